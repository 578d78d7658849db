/* SPDX-License-Identifier: Apache-2.0 */
#include "store/pgsql_array.h"

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
static void add_digits(struct pr_buf *array, int64_t number)
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
	pr_buf_append(array, at, (size_t)(digits + sizeof(digits) - at));
}

void pr_pgsql_array_add_number(struct pr_buf *array, int64_t number)
{
	separate(array);
	add_digits(array, number);
}

void pr_pgsql_array_add_place(struct pr_buf *array, int64_t place)
{
	separate(array);
	pr_buf_append(array, "\"(", 2);
	add_digits(array, place >> 16);
	pr_buf_putc(array, ',');
	add_digits(array, place & 0xffff);
	pr_buf_append(array, ")\"", 2);
}

const char *pr_pgsql_array_end(struct pr_buf *array)
{
	if (array->len == 0)
		pr_buf_putc(array, '{');
	pr_buf_putc(array, '}');
	return array->data;
}
