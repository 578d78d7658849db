/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include "../harness.h"

#include <errno.h>
#include <stdlib.h>

void table_open(struct table *table, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", TESTS_DIR, name);
	*table = (struct table){ .file = fopen(path, "r") };
	CHECK_MSG(table->file, "%s: %s", path, strerror(errno));
}

bool table_next(struct table *table, char **fields, size_t count)
{
	size_t have = 0;

	do {
		if (getline(&table->line, &table->size, table->file) < 0)
			return false;
		table->number++;
	} while (table->line[0] == '#');
	table->line[strcspn(table->line, "\n")] = '\0';
	for (char *rest = table->line, *field; (field = strsep(&rest, "\t")); have++) {
		if (have < count)
			fields[have] = field;
	}
	CHECK_MSG(have == count, "line %d has %zu fields, not %zu", table->number, have, count);
	return true;
}

void table_close(struct table *table)
{
	fclose(table->file);
	free(table->line);
}

/* \(TEXT*N) at text, which has len bytes; returns its length. */
static size_t unfold(const char *text, size_t len, struct pr_buf *out)
{
	for (size_t at = 2; at < len; at++) {
		char *rest;
		unsigned long count;

		if (text[at] != '*')
			continue;
		count = strtoul(text + at + 1, &rest, 10);
		if (rest == text + at + 1 || *rest != ')')
			continue;
		while (count-- > 0)
			table_unescape(text + 2, at - 2, out);
		return (size_t)(rest + 1 - text);
	}
	test_fail(__FILE__, __LINE__, "no end of \\( in %s", text);
}

void table_unescape(const char *text, size_t len, struct pr_buf *out)
{
	for (size_t at = 0; at < len;) {
		char digits[3] = "";

		if (text[at] != '\\') {
			pr_buf_putc(out, text[at++]);
			continue;
		}
		CHECK(at + 1 < len);
		switch (text[at + 1]) {
		case '\\':
			pr_buf_putc(out, '\\');
			at += 2;
			break;
		case 'x':
			CHECK(at + 3 < len);
			memcpy(digits, text + at + 2, 2);
			pr_buf_putc(out, (char)strtoul(digits, NULL, 16));
			at += 4;
			break;
		case '(':
			at += unfold(text + at, len - at, out);
			break;
		default:
			test_fail(__FILE__, __LINE__, "unknown escape in %s", text + at);
		}
	}
}
