/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A text that has passed cannot end a header line, or is written percent-encoded, as a
 *    JSON string, or with its length before it.
 * 2. Headers are walked only after they were checked as JSON.
 * 3. A reason quotes at most QUOTED_MAX bytes; pr_verdict_set() cleans them.
 */
#include "sink/attributes.h"

#include "base/text.h"
#include "core/message.h"

#include <string.h>

#define QUOTED_MAX 100

bool pr_is_token(const char *text, size_t len)
{
	static const char signs[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < len; i++) {
		char lower = (char)(text[i] | 0x20);

		if (!(lower >= 'a' && lower <= 'z') && !(text[i] >= '0' && text[i] <= '9') &&
		    !memchr(signs, text[i], sizeof(signs) - 1))
			return false;
	}
	return len > 0;
}

bool pr_is_header_value(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f)
			return false;
	}
	return true;
}

struct pr_span pr_trim_value(const char *text, size_t len)
{
	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
		len--;
	for (; len > 0 && (*text == ' ' || *text == '\t'); len--)
		text++;
	return (struct pr_span){ text, len };
}

static int refuse(const struct pr_protocol *protocol, const char *field, const char *text,
		  struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_INVALID, "%s \"%.*s\" cannot be sent by %s: %s", field,
			  QUOTED_MAX, text, protocol->name, protocol->rule);
}

/* Text must be UTF-8, for JSON in the database and for the readers of headers. */
static int check_texts(const postroom_delivery *item, const struct pr_protocol *protocol,
		       struct pr_err *err)
{
	const struct {
		const char *name, *text;
	} texts[] = {
		{ "id", item->id },
		{ "namespace", item->ns },
		{ "topic", item->topic },
		{ "key", item->key },
		{ "tenant_id", item->tenant_id },
		{ "dedupe_key", item->dedupe_key },
		{ "correlation_id", item->correlation_id },
		{ "content_type", item->content_type },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		if (texts[i].text && !pr_utf8_valid(texts[i].text, strlen(texts[i].text)))
			return pr_err_set(err, POSTROOM_INVALID,
					  "%s cannot be sent by %s: it is not valid UTF-8",
					  texts[i].name, protocol->name);
	}
	return POSTROOM_OK;
}

static int check_headers(const char *headers, const struct pr_protocol *protocol,
			 struct pr_buf *scratch, struct pr_err *err)
{
	struct pr_json_members walk = pr_json_members((struct pr_span){ headers, strlen(headers) });
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		const char *text;
		size_t name_len;
		bool good = true;

		pr_buf_reset(scratch);
		pr_json_decode(name, scratch);
		name_len = scratch->len;
		pr_buf_putc(scratch, '\0');
		pr_json_decode(value, scratch);
		if (scratch->failed)
			return pr_err_nomem(err);
		text = scratch->data;
		if (protocol->header_name)
			good = protocol->header_name(text, name_len);
		if (good && protocol->header_value)
			good = protocol->header_value(text + name_len + 1,
						      scratch->len - name_len - 1);
		if (!good)
			return refuse(protocol, "header", text, err);
	}
	return POSTROOM_OK;
}

static int check_payload(const postroom_delivery *item, const struct pr_protocol *protocol,
			 struct pr_err *err)
{
	struct pr_json_fault fault;

	if (!protocol->json || pr_json_check(item->payload, item->payload_len, &fault))
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID,
			  "payload cannot be sent by %s: it is not valid JSON: %s at byte %zu",
			  protocol->name, fault.reason, fault.offset + 1);
}

int pr_attributes_check(const postroom_delivery *item, const struct pr_protocol *protocol,
			struct pr_buf *scratch, struct pr_err *err)
{
	if (check_texts(item, protocol, err) < 0 || check_payload(item, protocol, err) < 0)
		return err->status;
	if (protocol->content_type &&
	    !protocol->content_type(item->content_type, strlen(item->content_type)))
		return refuse(protocol, "content_type", item->content_type, err);
	if (strcmp(item->headers, "{}") == 0)
		return POSTROOM_OK;
	if (!pr_headers_valid(item->headers, strlen(item->headers)))
		return pr_err_set(err, POSTROOM_INVALID,
				  "headers cannot be sent by %s: they are not a JSON object whose "
				  "values are strings",
				  protocol->name);
	if (!protocol->header_name && !protocol->header_value)
		return POSTROOM_OK;
	return check_headers(item->headers, protocol, scratch, err);
}
