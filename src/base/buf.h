/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing buffer with a maximum. The first failure (no memory, past the maximum) is sticky:
 * later appends do nothing, and one check at the end is enough.
 */
#ifndef PR_BASE_BUF_H
#define PR_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct pr_buf {
	char *data; /* always ends in NUL once anything was appended */
	size_t len;
	size_t cap;
	size_t max; /* 0: PR_BUF_MAX */
	bool failed;
};

#define PR_BUF_MAX ((size_t)256 * 1024 * 1024)

/* A zeroed buffer is ready for use. */
void pr_buf_append(struct pr_buf *buf, const void *data, size_t len);
void pr_buf_puts(struct pr_buf *buf, const char *text);
/* Bytes that are not UTF-8 become U+FFFD. */
void pr_buf_append_utf8(struct pr_buf *buf, const char *text, size_t len);
void pr_buf_putc(struct pr_buf *buf, char c);
void pr_buf_printf(struct pr_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Returns room for len more bytes at data + len, or NULL. Add the bytes used to buf->len. */
char *pr_buf_reserve(struct pr_buf *buf, size_t len);
/* The text so far; "" if it is empty. */
const char *pr_buf_text(const struct pr_buf *buf);
void pr_buf_reset(
	struct pr_buf *buf); /* empties the buffer and clears the failure; keeps the memory */
void pr_buf_release(struct pr_buf *buf);
/* Empties a buffer between batches, and frees memory that only a huge message needed. */
void pr_buf_trim(struct pr_buf *buf);

#define PR_CLEANUP_BUF __attribute__((cleanup(pr_buf_release)))

#endif
