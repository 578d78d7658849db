/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of cases in files, which tests in other languages and databases replay. */
#ifndef TESTS_UNIT_TABLE_H
#define TESTS_UNIT_TABLE_H

#include "base/buf.h"

#include <stdio.h>

struct table {
	FILE *file;
	char *line;
	size_t size;
	int number; /* of the line last read */
};

/* Opens tests/NAME; fails the test if it is not there. */
void table_open(struct table *table, const char *name);

/* Splits the next line that is no comment at its tabs; false at the end. Fails the test unless it has count fields. */
bool table_next(struct table *table, char **fields, size_t count);
void table_close(struct table *table);

/* Appends a text of json_cases.tsv as the bytes it stands for. */
void table_unescape(const char *text, size_t len, struct pr_buf *out);

#endif
