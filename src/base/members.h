/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a JSON object under construction, with the comma where one is needed. */
#ifndef PR_BASE_MEMBERS_H
#define PR_BASE_MEMBERS_H

#include "base/buf.h"

#include <stdint.h>

/* A comma unless the member or element is the first. */
void pr_put_comma(struct pr_buf *out);
void pr_put_name(struct pr_buf *out, const char *name);
void pr_put_text(struct pr_buf *out, const char *name, const char *text); /* NULL: null */
void pr_put_int(struct pr_buf *out, const char *name, int64_t value);
void pr_put_time(struct pr_buf *out, const char *name, int64_t time_us); /* 0: null */
/*
 * JSON from a table, on one line and in UTF-8: programs that write to a file of SQLite may leave other
 * bytes in its strings. json NULL: null.
 */
void pr_put_json_text(struct pr_buf *out, const char *name, const char *json, size_t len);

#endif
