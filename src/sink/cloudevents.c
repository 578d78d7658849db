/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. No attribute can break out of its header: bytes that are not printable
 *    ASCII are percent-encoded, line breaks included.
 *    A decoded value can contain any byte except NUL.
 * 2. JSON is passed on as the text that was enqueued.
 */
#include "sink/cloudevents.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>

static void put_percent(struct pr_buf *out, unsigned char byte)
{
	static const char digits[] = "0123456789ABCDEF";

	pr_buf_putc(out, '%');
	pr_buf_putc(out, digits[byte >> 4]);
	pr_buf_putc(out, digits[byte & 15]);
}

void pr_ce_put_header_value(struct pr_buf *out, const char *value)
{
	for (; *value; value++) {
		if (*value > 0x20 && *value < 0x7f && *value != '"' && *value != '%')
			pr_buf_putc(out, *value);
		else
			put_percent(out, (unsigned char)*value);
	}
}

void pr_ce_take_header_value(struct pr_buf *out, const char *value)
{
	size_t before = out->len;

	for (const char *at = value; *at; at++) {
		int high = *at == '%' ? pr_hex_value(at[1]) : -1;
		int low = high >= 0 ? pr_hex_value(at[2]) : -1;

		if (low >= 0 && high + low > 0) {
			pr_buf_putc(out, (char)(high * 16 + low));
			at += 2;
		} else {
			pr_buf_putc(out, *at);
		}
	}
	if (out->failed || pr_utf8_valid(pr_buf_text(out) + before, out->len - before))
		return;
	out->len = before;
	pr_buf_puts(out, value);
}

/* A URI reference: bytes that a path segment cannot contain are encoded. */
static void put_source(struct pr_buf *out, const char *ns)
{
	pr_buf_puts(out, "/postroom/");
	for (; *ns; ns++) {
		char lower = (char)(*ns | 0x20);

		if ((lower >= 'a' && lower <= 'z') || (*ns >= '0' && *ns <= '9') ||
		    strchr("-._~", *ns))
			pr_buf_putc(out, *ns);
		else
			put_percent(out, (unsigned char)*ns);
	}
}

static void add(struct pr_ce *ce, const char *name, const char *value)
{
	if (!value)
		return;
	pr_assert(ce->count < PR_CE_MAX);
	ce->attributes[ce->count++] = (struct pr_ce_attribute){ name, value };
}

void pr_ce_fill(struct pr_ce *ce, const postroom_delivery *item, const char *source,
		struct pr_buf *scratch)
{
	if (!source) {
		pr_buf_reset(scratch);
		put_source(scratch, item->ns);
		source = pr_buf_text(scratch);
	}
	ce->count = 0;
	pr_rfc3339(item->created_at_us, ce->time);
	add(ce, "specversion", "1.0");
	add(ce, "id", item->id);
	add(ce, "source", source);
	add(ce, "type", item->topic);
	add(ce, "time", ce->time);
	add(ce, "subject", item->key);
	add(ce, "tenantid", item->tenant_id);
	add(ce, "correlationid", item->correlation_id);
}

static bool is_json(const char *content_type)
{
	size_t len = strcspn(content_type, "; \t");

	return (len == strlen("application/json") &&
		strncasecmp(content_type, "application/json", len) == 0) ||
	       (len > strlen("+json") && strncasecmp(content_type + len - 5, "+json", 5) == 0);
}

void pr_ce_put_json(struct pr_buf *out, const struct pr_ce *ce, const postroom_delivery *item)
{
	for (size_t i = 0; i < ce->count; i++) {
		pr_buf_putc(out, i > 0 ? ',' : '{');
		pr_json_put_string(out, ce->attributes[i].name);
		pr_buf_putc(out, ':');
		pr_json_put_string(out, ce->attributes[i].value);
	}
	pr_buf_puts(out, ",\"datacontenttype\":");
	pr_json_put_string(out, item->content_type);
	if (item->body) {
		pr_buf_puts(out, ",\"data_base64\":");
		pr_json_put_base64(out, item->body, item->body_len);
	} else if (is_json(item->content_type)) {
		pr_buf_puts(out, ",\"data\":");
		pr_buf_append(out, item->payload, item->payload_len);
	} else {
		/* With another content type, a string is the content: the same bytes as in binary
		 * mode. */
		pr_buf_puts(out, ",\"data\":");
		pr_json_put_stringn(out, item->payload, item->payload_len);
	}
	pr_buf_putc(out, '}');
}
