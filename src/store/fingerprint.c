/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cause of an error, without the parts that differ from message to message.
 *
 * 1. The result equals that of the SQL function postroom_fingerprint() on both databases: first
 *    UUIDs, then hexadecimal numbers, then digits, each over the whole text. One pass would differ
 *    for "0x" before a UUID.
 * 2. The cost is bounded by INPUT_MAX characters, whatever the error.
 */
#include "store/store.h"

#include <string.h>

#define INPUT_MAX 1000
#define RESULT_MAX 200
#define UUID_LENGTH 36

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Length of what is replaced at the start of text; 0: nothing is. */
typedef size_t (*match_fn)(const char *text);

static size_t match_uuid(const char *text)
{
	for (size_t i = 0; i < UUID_LENGTH; i++) {
		bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;

		if (hyphen ? text[i] != '-' : !is_hex(text[i]))
			return 0;
	}
	return UUID_LENGTH;
}

static size_t match_hex(const char *text)
{
	size_t len = 2;

	if (text[0] != '0' || text[1] != 'x' || !is_hex(text[2]))
		return 0;
	while (is_hex(text[len]))
		len++;
	return len;
}

static size_t match_digits(const char *text)
{
	size_t len = 0;

	while (is_digit(text[len]))
		len++;
	return len;
}

/* Bytes of the first max characters. A character starts with a byte that continues no other. */
static size_t cut(const char *text, size_t max)
{
	size_t at = 0;

	for (size_t count = 0; text[at]; at++) {
		if (((unsigned char)text[at] & 0xC0) != 0x80 && count++ == max)
			break;
	}
	return at;
}

/* out has room for the longest result: a replaced text is at least a third of its replacement. */
static void replace(const char *text, match_fn match, const char *by, char *out)
{
	size_t by_len = strlen(by);

	while (*text) {
		size_t len = match(text);

		if (len > 0) {
			memcpy(out, by, by_len);
			out += by_len;
			text += len;
		} else {
			*out++ = *text++;
		}
	}
	*out = '\0';
}

int pr_fingerprint(const char *error, char *out, size_t size)
{
	char without_uuids[INPUT_MAX * 4 + 1];
	char without_hex[sizeof(without_uuids) * 2];
	char result[sizeof(without_hex) * 3];
	size_t len = cut(error, INPUT_MAX);

	/* Bytes that continue no character may make it longer than characters are. */
	if (len > sizeof(without_uuids) - 1)
		len = sizeof(without_uuids) - 1;
	memcpy(result, error, len);
	result[len] = '\0';
	replace(result, match_uuid, "<uuid>", without_uuids);
	replace(without_uuids, match_hex, "<hex>", without_hex);
	replace(without_hex, match_digits, "<n>", result);
	len = cut(result, RESULT_MAX);
	if (len >= size)
		return POSTROOM_INVALID;
	memcpy(out, result, len);
	out[len] = '\0';
	return (int)len;
}
