/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as text: checked, walked and written, never rebuilt.
 *
 * One rule for every database: RFC 8259, except for what PostgreSQL's jsonb refuses: \u0000, lone
 * surrogates, numbers out of numeric's range, ill-formed UTF-8. At most PR_JSON_DEPTH levels, and
 * 64 MiB when all numbers are written out.
 */
#ifndef PR_BASE_JSON_H
#define PR_BASE_JSON_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

#define PR_JSON_DEPTH 1000

/* A borrowed piece of text. */
struct pr_span {
	const char *data;
	size_t len;
};

struct pr_json_fault {
	size_t offset;	  /* where, in bytes from the start */
	const char *reason; /* "unexpected end", "\\u0000 is not allowed", … */
};

/* True if text is one JSON value with only white space around it. fault may be NULL. */
bool pr_json_check(const char *text, size_t len, struct pr_json_fault *fault);

/* The first character that is not white space decides: '{', '[', '"', 't', 'f', 'n', or '0' for numbers. Only for checked text. */
char pr_json_kind(struct pr_span value);

/*
 * Walks the members of an object that pr_json_check() has passed:
 *
 *	struct pr_json_members walk = pr_json_members(object);
 *	struct pr_span name, value;
 *	while (pr_json_next(&walk, &name, &value)) …
 *
 * name is the raw string with its quotes, value the raw value without the
 * white space around it.
 */
struct pr_json_members {
	const char *at;
	const char *end;
};
struct pr_json_members pr_json_members(struct pr_span object);
bool pr_json_next(struct pr_json_members *walk, struct pr_span *name, struct pr_span *value);

/*
 * True if the value is this text, byte for byte. Compare a member's name with its quotes:
 * "\"id\"".
 */
bool pr_json_is(struct pr_span value, const char *text);

/* Appends the decoded value of a raw string (with its quotes), in UTF-8. */
void pr_json_decode(struct pr_span string, struct pr_buf *out);

/* Appends text as a JSON string with its quotes; ill-formed bytes become U+FFFD. text NULL: null. */
void pr_json_put_string(struct pr_buf *out, const char *text);
void pr_json_put_stringn(struct pr_buf *out, const char *text, size_t len);

/* Appends data as a JSON string in base64. */
void pr_json_put_base64(struct pr_buf *out, const void *data, size_t len);

/* Decodes standard base64 with or without padding. False: invalid base64. */
bool pr_base64_decode(struct pr_span text, struct pr_buf *out);

#endif
