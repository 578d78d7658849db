/* SPDX-License-Identifier: Apache-2.0 */
#include "base/uuid.h"

#include "base/text.h"

#include <string.h>

void pr_uuid_format(const unsigned char bytes[16], char out[PR_UUID_SIZE])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		*out++ = digits[bytes[i] >> 4];
		*out++ = digits[bytes[i] & 15];
	}
	*out = '\0';
}

void pr_uuid_v7(struct pr_uuid_gen *gen, int64_t now_us, char out[PR_UUID_SIZE])
{
	unsigned char bytes[16];
	int64_t ms = now_us / 1000;

	pr_random_fill(&gen->random, bytes, sizeof(bytes));
	if (ms > gen->last_ms) {
		gen->last_ms = ms;
		/* Half of the range stays free for later UUIDs of this millisecond. */
		gen->counter = ((unsigned)bytes[6] << 8 | bytes[7]) & 0x7ff;
	} else if (++gen->counter > 0xfff) {
		gen->last_ms++;
		gen->counter = 0;
	}
	for (int i = 0; i < 6; i++)
		bytes[i] = (unsigned char)((uint64_t)gen->last_ms >> (40 - 8 * i));
	bytes[6] = (unsigned char)(0x70 | gen->counter >> 8);
	bytes[7] = (unsigned char)(gen->counter & 0xff);
	bytes[8] = (unsigned char)(0x80 | (bytes[8] & 0x3f));
	pr_uuid_format(bytes, out);
}

void pr_uuid_v4(struct pr_random *random, char out[PR_UUID_SIZE])
{
	unsigned char bytes[16];

	pr_random_fill(random, bytes, sizeof(bytes));
	bytes[6] = (unsigned char)(0x40 | (bytes[6] & 0x0f));
	bytes[8] = (unsigned char)(0x80 | (bytes[8] & 0x3f));
	pr_uuid_format(bytes, out);
}

/* In lower case; 0: not a hex digit. */
static char lower_hex(unsigned char c)
{
	int value = pr_hex_value((char)c);

	return (char)(value < 0 ? 0 : "0123456789abcdef"[value]);
}

bool pr_uuid_normalize(const char *text, char out[PR_UUID_SIZE])
{
	bool hyphens = strnlen(text, 9) == 9 && text[8] == '-';
	char result[PR_UUID_SIZE];

	for (int i = 0; i < PR_UUID_SIZE - 1; i++) {
		bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
		unsigned char c = hyphen && !hyphens ? '-' : (unsigned char)*text++;

		result[i] = hyphen && c == '-' ? '-' : lower_hex(c);
		if (!result[i] || hyphen != (c == '-'))
			return false;
	}
	if (*text != '\0')
		return false;
	result[PR_UUID_SIZE - 1] = '\0';
	memcpy(out, result, PR_UUID_SIZE);
	return true;
}
