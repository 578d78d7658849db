/* SPDX-License-Identifier: Apache-2.0 */
/* PostgreSQL's text form of an array, put together element by element: {"a","b",NULL}. */
#ifndef PR_STORE_PGSQL_ARRAY_H
#define PR_STORE_PGSQL_ARRAY_H

#include "base/buf.h"

#include <stdint.h>

/* NULL adds a NULL. */
void pr_pgsql_array_add(struct pr_buf *array, const char *text, size_t len);
void pr_pgsql_array_add_text(struct pr_buf *array, const char *text);
void pr_pgsql_array_add_bytes(struct pr_buf *array, const void *data, size_t len); /* bytea */
void pr_pgsql_array_add_number(struct pr_buf *array, int64_t number);
void pr_pgsql_array_add_place(struct pr_buf *array, int64_t place); /* tid: block << 16 | offset */

/* Ends it and returns the text; the buffer is to be reset before the next use. */
const char *pr_pgsql_array_end(struct pr_buf *array);

#endif
