/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays for PostgreSQL, built element by element. In text: {"a","b",NULL}. In binary for arrays
 * with one element per message of a lane, so that the server does not parse digits.
 */
#ifndef PR_STORE_PGSQL_ARRAY_H
#define PR_STORE_PGSQL_ARRAY_H

#include "base/buf.h"

#include <stdint.h>

/* NULL adds a NULL. */
void pr_pgsql_array_add(struct pr_buf *array, const char *text, size_t len);
void pr_pgsql_array_add_text(struct pr_buf *array, const char *text);
void pr_pgsql_array_add_bytes(struct pr_buf *array, const void *data, size_t len); /* bytea */
void pr_pgsql_array_add_number(struct pr_buf *array, int64_t number);

/* Ends it and returns the text; the buffer is to be reset before the next use. */
const char *pr_pgsql_array_end(struct pr_buf *array);

void pr_pgsql_binary_add_seq(struct pr_buf *array, int64_t seq);
void pr_pgsql_binary_add_ctid(struct pr_buf *array, int64_t ctid); /* tid: block << 16 | offset */

enum pr_pgsql_binary { PG_BINARY_SEQ, PG_BINARY_CTID };
/* Ends it, all of that kind: len bytes from data on. */
void pr_pgsql_binary_end(struct pr_buf *array, enum pr_pgsql_binary kind);

#endif
