/* SPDX-License-Identifier: Apache-2.0 */
#include "store/pgsql/array.h"

#include <endian.h>
#include <string.h>

static void separate(struct pr_buf *array)
{
	pr_buf_putc(array, array->len ? ',' : '{');
}

void pr_pgsql_array_add(struct pr_buf *array, const char *text, size_t len)
{
	separate(array);
	if (!text) {
		pr_buf_append(array, "NULL", 4);
		return;
	}
	pr_buf_putc(array, '"');
	while (len > 0) {
		size_t plain = 0;

		while (plain < len && text[plain] != '"' && text[plain] != '\\')
			plain++;
		pr_buf_append(array, text, plain);
		text += plain;
		len -= plain;
		if (len > 0) {
			pr_buf_putc(array, '\\');
			pr_buf_putc(array, *text++);
			len--;
		}
	}
	pr_buf_putc(array, '"');
}

void pr_pgsql_array_add_text(struct pr_buf *array, const char *text)
{
	pr_pgsql_array_add(array, text, text ? strlen(text) : 0);
}

void pr_pgsql_array_add_bytes(struct pr_buf *array, const void *data, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *bytes = data;
	char *at;

	if (!data) {
		pr_pgsql_array_add(array, NULL, 0);
		return;
	}
	separate(array);
	pr_buf_puts(array, "\"\\\\x");
	at = pr_buf_reserve(array, len * 2);
	if (!at)
		return;
	for (size_t i = 0; i < len; i++) {
		*at++ = digits[bytes[i] >> 4];
		*at++ = digits[bytes[i] & 15];
	}
	array->len += len * 2;
	pr_buf_putc(array, '"');
}

/* Without printf(): thousands of them a second are what settling is made of. */
void pr_pgsql_array_add_number(struct pr_buf *array, int64_t number)
{
	char digits[24];
	char *at = digits + sizeof(digits);
	uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;

	do {
		*--at = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest > 0);
	if (number < 0)
		*--at = '-';
	separate(array);
	pr_buf_append(array, at, (size_t)(digits + sizeof(digits) - at));
}

const char *pr_pgsql_array_end(struct pr_buf *array)
{
	if (array->len == 0)
		pr_buf_putc(array, '{');
	pr_buf_putc(array, '}');
	return array->data;
}

/* Dimensions, whether there are NULLs, the type; of the dimension its length and lower bound. */
#define HEADER_WORDS 5
#define EMPTY_WORDS 3

static void put_words(struct pr_buf *array, const uint32_t *words, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t word = htobe32(words[i]);

		pr_buf_append(array, &word, sizeof(word));
	}
}

static void put_element(struct pr_buf *array, const void *data, uint32_t len)
{
	static const uint32_t header[HEADER_WORDS];

	if (array->len == 0)
		put_words(array, header, HEADER_WORDS);
	put_words(array, &len, 1);
	pr_buf_append(array, data, len);
}

void pr_pgsql_binary_add_seq(struct pr_buf *array, int64_t seq)
{
	uint64_t number = htobe64((uint64_t)seq);

	put_element(array, &number, sizeof(number));
}

#define CTID_SIZE 6

void pr_pgsql_binary_add_ctid(struct pr_buf *array, int64_t ctid)
{
	uint64_t number = htobe64((uint64_t)ctid);

	put_element(array, (char *)&number + sizeof(number) - CTID_SIZE, CTID_SIZE);
}

void pr_pgsql_binary_end(struct pr_buf *array, enum pr_pgsql_binary kind)
{
	static const struct {
		uint32_t type; /* what its row in pg_type has been since the beginning */
		uint32_t size;
	} kinds[] = { [PG_BINARY_SEQ] = { 20, sizeof(int64_t) }, [PG_BINARY_CTID] = { 27, CTID_SIZE } };
	const uint32_t empty[EMPTY_WORDS] = { 0, 0, kinds[kind].type };
	uint32_t count, header[HEADER_WORDS];

	if (array->len == 0)
		put_words(array, empty, EMPTY_WORDS);
	if (array->failed || array->len == sizeof(empty))
		return;
	count = (uint32_t)((array->len - sizeof(header)) / (sizeof(count) + kinds[kind].size));
	header[0] = htobe32(1);
	header[1] = 0;
	header[2] = htobe32(kinds[kind].type);
	header[3] = htobe32(count);
	header[4] = htobe32(1);
	memcpy(array->data, header, sizeof(header));
}
