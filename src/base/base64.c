/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <string.h>

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void pr_json_put_base64(struct pr_buf *out, const void *data, size_t len)
{
	const unsigned char *at = data;
	char *to = pr_buf_reserve(out, (len + 2) / 3 * 4 + 2);
	char *start = to;

	if (!to)
		return;
	*to++ = '"';
	for (; len > 0; at += 3) {
		unsigned bits = (unsigned)at[0] << 16;

		if (len > 1)
			bits |= (unsigned)at[1] << 8;
		if (len > 2)
			bits |= at[2];
		*to++ = base64_digits[bits >> 18];
		*to++ = base64_digits[bits >> 12 & 63];
		*to++ = len > 1 ? base64_digits[bits >> 6 & 63] : '=';
		*to++ = len > 2 ? base64_digits[bits & 63] : '=';
		len -= len > 3 ? 3 : len;
	}
	*to++ = '"';
	*to = '\0';
	out->len += (size_t)(to - start);
}

bool pr_base64_decode(struct pr_span text, struct pr_buf *out)
{
	size_t len = text.len;
	unsigned bits = 0, held = 0;

	if (len > 0 && len % 4 == 0) {
		len -= text.data[len - 1] == '=';
		len -= len < text.len && text.data[len - 1] == '=';
	}
	if (len % 4 == 1)
		return false;
	for (size_t i = 0; i < len; i++) {
		const char *digit = text.data[i] ? strchr(base64_digits, text.data[i]) : NULL;

		if (!digit)
			return false;
		bits = bits << 6 | (unsigned)(digit - base64_digits);
		held += 6;
		if (held >= 8) {
			held -= 8;
			pr_buf_putc(out, (char)(bits >> held & 0xff));
		}
	}
	/* Non-zero leftover bits mean that input was truncated. */
	return (bits & ((1u << held) - 1)) == 0;
}
