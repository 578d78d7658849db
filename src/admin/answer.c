/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of an answer: JSON members, errors, and the status of a failed query. */
#include "admin/request.h"

#include "base/json.h"
#include "base/text.h"
#include "base/time.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pr_put_bool(struct pr_buf *out, const char *name, bool value)
{
	pr_put_name(out, name);
	pr_buf_puts(out, value ? "true" : "false");
}

void pr_put_real(struct pr_buf *out, const char *name, double value)
{
	pr_put_name(out, name);
	if (value >= 0 && value < 1e15)
		pr_buf_printf(out, "%.6g", value);
	else
		pr_buf_puts(out, "null");
}

void pr_put_seconds(struct pr_buf *out, const char *name, int64_t us)
{
	pr_put_name(out, name);
	if (us < 0)
		pr_buf_puts(out, "null");
	else
		pr_buf_printf(out, "%" PRId64 ".%03d", us / 1000000, (int)(us % 1000000 / 1000));
}

void pr_put_json(struct pr_buf *out, const char *name, const char *text)
{
	pr_put_name(out, name);
	pr_buf_puts(out, text ? text : "null");
}

bool pr_request_refuse(struct pr_admin_request *request, int code, const char *word,
		       const char *format, ...)
{
	struct pr_admin_answer *answer = &request->answer;
	char text[1200], clean[1200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* A cut through a character must not make ill-formed UTF-8. */
	pr_utf8_sanitize(text, strlen(text), sizeof(clean), clean, sizeof(clean));
	pr_buf_reset(&answer->text);
	pr_buf_puts(&answer->text, "{\"error\":{");
	pr_put_text(&answer->text, "code", word);
	pr_put_text(&answer->text, "message", clean);
	pr_buf_puts(&answer->text, "}}\n");
	answer->code = code;
	answer->type = "application/json";
	answer->fixed = NULL;
	answer->filename = NULL;
	return false;
}

bool pr_request_fail(struct pr_admin_request *request, const struct pr_err *err)
{
	request->answer.failed = err->status;
	switch (err->status) {
	case POSTROOM_INVALID:
		return pr_request_refuse(request, 400, "invalid", "%s", err->text);
	case POSTROOM_NOT_FOUND:
		return pr_request_refuse(request, 404, "not_found", "%s", err->text);
	case POSTROOM_NOMEM:
		return pr_request_refuse(request, 503, "no_memory", "out of memory");
	case POSTROOM_BUSY:
	case POSTROOM_STOPPED:
		return pr_request_refuse(request, 503, "busy", "%s", err->text);
	case POSTROOM_SCHEMA:
		return pr_request_refuse(request, 503, "schema", "%s", err->text);
	default:
		return pr_request_refuse(request, 503, "database_unavailable", "%s", err->text);
	}
}

void pr_request_succeed(struct pr_admin_request *request)
{
	if (request->answer.text.failed) {
		pr_request_refuse(request, 503, "no_memory", "the answer does not fit into memory");
		return;
	}
	request->answer.code = 200;
	if (!request->answer.type)
		request->answer.type = "application/json";
}
