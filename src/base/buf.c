/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *pr_buf_reserve(struct pr_buf *buf, size_t len)
{
	size_t max = buf->max ? buf->max : PR_BUF_MAX;
	size_t cap = buf->cap;
	char *data;

	if (buf->failed)
		return NULL;
	if (len > max - buf->len) {
		buf->failed = true;
		return NULL;
	}
	if (buf->len + len < cap)
		return buf->data + buf->len;
	if (cap < 256)
		cap = 256;
	while (cap <= buf->len + len)
		cap *= 2;
	data = realloc(buf->data, cap);
	if (!data) {
		buf->failed = true;
		return NULL;
	}
	buf->data = data;
	buf->cap = cap;
	return data + buf->len;
}

void pr_buf_append(struct pr_buf *buf, const void *data, size_t len)
{
	char *at = pr_buf_reserve(buf, len);

	if (!at)
		return;
	if (len)
		memcpy(at, data, len);
	at[len] = '\0';
	buf->len += len;
}

void pr_buf_puts(struct pr_buf *buf, const char *text)
{
	pr_buf_append(buf, text, strlen(text));
}

void pr_buf_putc(struct pr_buf *buf, char c)
{
	pr_buf_append(buf, &c, 1);
}

void pr_buf_append_utf8(struct pr_buf *buf, const char *text, size_t len)
{
	const char *at = text, *end = text + len;

	while (at < end) {
		const char *run = at;
		size_t step = 0;

		while (at < end && (step = pr_utf8_length(at, (size_t)(end - at))) > 0)
			at += step;
		pr_buf_append(buf, run, (size_t)(at - run));
		if (at < end) {
			pr_buf_puts(buf, "\xef\xbf\xbd");
			at++;
		}
	}
}

void pr_buf_printf(struct pr_buf *buf, const char *format, ...)
{
	va_list args;
	char *at;
	int len;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len < 0) {
		buf->failed = true;
		return;
	}
	at = pr_buf_reserve(buf, (size_t)len);
	if (!at)
		return;
	va_start(args, format);
	vsnprintf(at, (size_t)len + 1, format, args);
	va_end(args);
	buf->len += (size_t)len;
}

const char *pr_buf_text(const struct pr_buf *buf)
{
	return buf->len ? buf->data : "";
}

void pr_buf_reset(struct pr_buf *buf)
{
	buf->len = 0;
	buf->failed = false;
}

void pr_buf_release(struct pr_buf *buf)
{
	free(buf->data);
	*buf = (struct pr_buf){ .max = buf->max };
}

/* The capacity that a buffer may keep between batches: more than an ordinary batch needs. */
#define KEEP_BYTES ((size_t)2 * 1024 * 1024)

void pr_buf_trim(struct pr_buf *buf)
{
	if (buf->cap > KEEP_BYTES)
		pr_buf_release(buf);
	pr_buf_reset(buf);
}
