/* SPDX-License-Identifier: Apache-2.0 */
#include "base/members.h"

#include "base/json.h"
#include "base/time.h"

#include <inttypes.h>

void pr_put_comma(struct pr_buf *out)
{
	char last = out->len > 0 ? out->data[out->len - 1] : '{';

	if (last != '{' && last != '[' && last != ':')
		pr_buf_putc(out, ',');
}

void pr_put_name(struct pr_buf *out, const char *name)
{
	pr_put_comma(out);
	pr_buf_printf(out, "\"%s\":", name);
}

void pr_put_text(struct pr_buf *out, const char *name, const char *text)
{
	pr_put_name(out, name);
	pr_json_put_string(out, text);
}

void pr_put_int(struct pr_buf *out, const char *name, int64_t value)
{
	pr_put_name(out, name);
	pr_buf_printf(out, "%" PRId64, value);
}

void pr_put_time(struct pr_buf *out, const char *name, int64_t time_us)
{
	char text[PR_RFC3339_SIZE];

	if (time_us != 0)
		pr_rfc3339(time_us, text);
	pr_put_text(out, name, time_us != 0 ? text : NULL);
}

void pr_put_json_text(struct pr_buf *out, const char *name, const char *json, size_t len)
{
	size_t start;

	pr_put_name(out, name);
	start = out->len;
	if (json)
		pr_buf_append_utf8(out, json, len);
	else
		pr_buf_puts(out, "null");
	/* Between values only: in a string, JSON escapes them. */
	for (size_t i = start; !out->failed && i < out->len; i++) {
		if (out->data[i] == '\n' || out->data[i] == '\r')
			out->data[i] = ' ';
	}
}
