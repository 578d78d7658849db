/* SPDX-License-Identifier: Apache-2.0 */
#include "core/message.h"

#include "base/assert.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>

int pr_text_check(const char *field, const char *text, size_t max, struct pr_err *err)
{
	size_t len;

	if (!text)
		return POSTROOM_OK;
	len = strnlen(text, max + 1);
	if (len == 0)
		return pr_err_set(err, POSTROOM_INVALID, "%s must not be empty", field);
	if (len > max)
		return pr_err_set(err, POSTROOM_INVALID, "%s is longer than %zu bytes", field, max);
	if (!pr_utf8_valid(text, len))
		return pr_err_set(err, POSTROOM_INVALID, "%s is not valid UTF-8", field);
	return POSTROOM_OK;
}

int pr_name_check(const char *field, const char *text, size_t max, struct pr_err *err)
{
	int status = pr_text_check(field, text, max, err);

	if (status >= 0 && text && pr_text_has_control(text))
		status = pr_err_set(err, POSTROOM_INVALID, "%s must not contain control characters",
				    field);
	return status;
}

/* In checked JSON, a control character is either an escape or a raw DEL. */
static bool has_escaped_control(struct pr_span json)
{
	for (size_t i = 0; i < json.len; i++) {
		const char *at = json.data + i;

		if (*at == 0x7f)
			return true;
		if (*at != '\\')
			continue;
		i++;
		if (strchr("bfnrt", at[1]))
			return true;
		if (at[1] == 'u' &&
		    (strncmp(at + 2, "000", 3) == 0 || strncmp(at + 2, "001", 3) == 0 ||
		     strncasecmp(at + 2, "007f", 4) == 0))
			return true;
	}
	return false;
}

bool pr_headers_valid(const char *text, size_t len)
{
	struct pr_span object = { text, len }, name, value;
	struct pr_json_members walk;

	if (!pr_json_check(text, len, NULL) || pr_json_kind(object) != '{')
		return false;
	walk = pr_json_members(object);
	while (pr_json_next(&walk, &name, &value)) {
		if (pr_json_kind(value) != '"')
			return false;
	}
	return true;
}

static size_t payload_length(const postroom_message *message)
{
	if (!message->payload)
		return 0;
	return message->payload_len ? message->payload_len : strlen(message->payload);
}

int pr_value_check(const char *field, const char *json, size_t len, size_t max, struct pr_err *err)
{
	struct pr_json_fault fault;

	if (len > max)
		return pr_err_set(err, POSTROOM_INVALID,
				  "%s of %zu bytes is larger than the maximum of %zu", field, len,
				  max);
	if (!pr_json_check(json, len, &fault))
		return pr_err_set(err, POSTROOM_INVALID, "%s is not valid JSON: %s at byte %zu",
				  field, fault.reason, fault.offset + 1);
	return POSTROOM_OK;
}

int pr_payload_check(const char *payload, size_t len, size_t max, struct pr_err *err)
{
	return pr_value_check("payload", payload, len, max, err);
}

static int check_content(const postroom_message *message, size_t max, struct pr_err *err)
{
	size_t len = payload_length(message);

	if (message->body && message->payload &&
	    (len != 4 || memcmp(message->payload, "null", 4) != 0))
		return pr_err_set(err, POSTROOM_INVALID,
				  "payload must be omitted when there is a body");
	if (!message->body && !message->payload)
		return pr_err_set(err, POSTROOM_INVALID, "payload is missing");
	if (message->body_len > max)
		return pr_err_set(err, POSTROOM_INVALID,
				  "body of %zu bytes is larger than the maximum of %zu",
				  message->body_len, max);
	return message->payload ? pr_payload_check(message->payload, len, max, err) : POSTROOM_OK;
}

/* The tenant's UUID, hyphenated or as 32 hex digits, and a slash. */
static bool begins_with_tenant(const char *key, const char *tenant)
{
	char bare[33];
	size_t n = 0;

	for (const char *c = tenant; *c; c++) {
		if (*c != '-')
			bare[n++] = *c;
		pr_assert(n < sizeof(bare));
	}
	bare[n] = '\0';
	return (strncasecmp(key, tenant, 36) == 0 && key[36] == '/') ||
	       (strncasecmp(key, bare, 32) == 0 && key[32] == '/');
}

static int check_keys(const postroom_message *message, struct pr_err *err)
{
	const char *key = message->dedupe_key, *idempotency = message->idempotency_key;
	char tenant[PR_UUID_SIZE] = "";
	int status;

	if (message->tenant_id && !pr_uuid_normalize(message->tenant_id, tenant))
		return pr_err_set(err, POSTROOM_INVALID,
				  "tenant_id is not a UUID (write it as 8-4-4-4-12 hex digits)");
	if (key && idempotency)
		return pr_err_set(
			err, POSTROOM_INVALID,
			"dedupe_key and idempotency_key exclude each other: give only one");
	status = pr_text_check("dedupe_key", key, POSTROOM_DEDUPE_KEY_MAX, err);
	if (status >= 0)
		status = pr_text_check("idempotency_key", idempotency,
				       POSTROOM_DEDUPE_KEY_MAX - (*tenant ? 37 : 0), err);
	if (status >= 0 && *tenant && key && !begins_with_tenant(key, tenant))
		status = pr_err_set(err, POSTROOM_INVALID,
				    "dedupe_key must start with the tenant id \"%s/\"", tenant);
	return status;
}

static int check_headers(const char *headers, struct pr_err *err)
{
	size_t len;

	if (!headers)
		return POSTROOM_OK;
	len = strnlen(headers, POSTROOM_HEADERS_MAX + 1);
	if (len > POSTROOM_HEADERS_MAX)
		return pr_err_set(err, POSTROOM_INVALID, "headers are longer than %d bytes",
				  POSTROOM_HEADERS_MAX);
	if (!pr_headers_valid(headers, len) ||
	    has_escaped_control((struct pr_span){ headers, len }))
		return pr_err_set(err, POSTROOM_INVALID,
				  "headers must be a JSON object whose values are strings, without "
				  "control characters");
	return POSTROOM_OK;
}

static int check_schedule(const postroom_message *message, struct pr_err *err)
{
	if (message->delay_ms < 0 || message->delay_ms > POSTROOM_DELAY_MAX_MS)
		return pr_err_set(err, POSTROOM_INVALID, "delay must be between 0 and 3650 days");
	if (message->priority < 0 || message->priority > POSTROOM_PRIORITY_MAX)
		return pr_err_set(err, POSTROOM_INVALID,
				  "priority must be between 0 and %d seconds of head start",
				  POSTROOM_PRIORITY_MAX);
	return POSTROOM_OK;
}

int pr_message_check(const postroom_message *message, size_t max_payload, struct pr_err *err)
{
	int status;

	if (message->size != sizeof(*message))
		return pr_err_set(err, POSTROOM_INVALID,
				  "size must be sizeof(postroom_message): use POSTROOM_MESSAGE()");
	if (!message->topic)
		return pr_err_set(err, POSTROOM_INVALID, "topic is missing");
	status = pr_name_check("topic", message->topic, POSTROOM_TOPIC_MAX, err);
	if (status >= 0)
		status = pr_name_check("namespace", message->ns, POSTROOM_NAMESPACE_MAX, err);
	if (status >= 0)
		status = pr_text_check("key", message->key, POSTROOM_KEY_MAX, err);
	if (status >= 0)
		status = pr_name_check("correlation_id", message->correlation_id,
				       POSTROOM_CORRELATION_ID_MAX, err);
	if (status >= 0)
		status = pr_name_check("content_type", message->content_type,
				       POSTROOM_CONTENT_TYPE_MAX, err);
	if (status >= 0)
		status = check_keys(message, err);
	if (status >= 0)
		status = check_schedule(message, err);
	if (status >= 0)
		status = check_headers(message->headers, err);
	if (status >= 0)
		status = check_content(message, max_payload, err);
	return status;
}

void pr_message_prepare(const postroom_message *message, struct pr_prepared *ret)
{
	ret->ns = message->ns ? message->ns : "default";
	ret->topic = message->topic;
	ret->key = message->key;
	ret->tenant_id = NULL;
	if (message->tenant_id && pr_uuid_normalize(message->tenant_id, ret->tenant_text))
		ret->tenant_id = ret->tenant_text;
	ret->dedupe_key = message->dedupe_key;
	if (message->idempotency_key && ret->tenant_id) {
		size_t len = strlen(message->idempotency_key);

		memcpy(ret->dedupe_text, ret->tenant_text, 36);
		ret->dedupe_text[36] = '/';
		memcpy(ret->dedupe_text + 37, message->idempotency_key, len + 1);
		ret->dedupe_key = ret->dedupe_text;
	} else if (message->idempotency_key) {
		ret->dedupe_key = message->idempotency_key;
	}
	ret->correlation_id = message->correlation_id;
	ret->content_type = message->content_type;
	if (!ret->content_type)
		ret->content_type = message->body ? "application/octet-stream" : "application/json";
	ret->headers = message->headers ? message->headers : "{}";
	ret->payload = message->payload
			       ? (struct pr_span){ message->payload, payload_length(message) }
			       : (struct pr_span){ "null", 4 };
	ret->body = (struct pr_span){ message->body, message->body_len };
	ret->due_offset_us = message->delay_ms * 1000 - (int64_t)message->priority * 1000000;
}

void pr_receipt_set_key(postroom_receipt *receipt, const struct pr_prepared *prepared)
{
	const char *key = prepared->dedupe_key ? prepared->dedupe_key : "";

	memcpy(receipt->dedupe_key, key, strlen(key) + 1);
}
