/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. An id is read only from a record of our sink: the ce_id of another producer is unique only
 *    together with its source.
 * 2. No text is cut at a NUL, so two different texts never become equal.
 */
#include "broker/kafka/event.h"

#include "base/json.h"
#include "base/text.h"
#include "broker/kafka/client.h"

#include <string.h>
#include <strings.h>

#define OUR_SOURCE "/postroom/"

/* The last header of that name. data NULL: there is none, or it is not text. */
static struct pr_span header_of(const rd_kafka_headers_t *headers, const char *wanted)
{
	struct pr_span found = { 0 };
	const char *name;
	const void *value;
	size_t len;

	for (size_t i = 0; headers && rd_kafka_header_get_all(headers, i, &name, &value, &len) ==
					      RD_KAFKA_RESP_ERR_NO_ERROR;
	     i++) {
		if (strcasecmp(name, wanted) == 0)
			found = (struct pr_span){ value, value ? len : 0 };
	}
	if (found.len == 0 || memchr(found.data, '\0', found.len) ||
	    !pr_utf8_valid(found.data, found.len))
		return (struct pr_span){ 0 };
	return found;
}

static bool is_ours(const rd_kafka_headers_t *headers)
{
	struct pr_span from = header_of(headers, "ce_source");

	return from.len > strlen(OUR_SOURCE) &&
	       memcmp(from.data, OUR_SOURCE, strlen(OUR_SOURCE)) == 0 &&
	       header_of(headers, "ce_id").data && header_of(headers, "ce_type").data;
}

static const char *copy(struct pr_events *events, struct pr_span text)
{
	return text.data ? pr_arena_copy(&events->arena, text.data, text.len) : NULL;
}

/* Headers as they were enqueued, without those that the sink adds. */
static const char *copy_headers(struct pr_kafka_pen *pen, struct pr_events *events,
				const rd_kafka_headers_t *headers, bool ours)
{
	struct pr_buf *out = &pen->headers;
	const char *name;
	const void *value;
	size_t len;

	pr_buf_reset(out);
	for (size_t i = 0; headers && rd_kafka_header_get_all(headers, i, &name, &value, &len) ==
					      RD_KAFKA_RESP_ERR_NO_ERROR;
	     i++) {
		if (ours ? pr_kafka_is_own_header(name) : strcasecmp(name, "content-type") == 0)
			continue;
		pr_buf_putc(out, out->len > 0 ? ',' : '{');
		pr_json_put_string(out, name);
		pr_buf_putc(out, ':');
		pr_json_put_stringn(out, value ? value : "", value ? len : 0);
	}
	pr_buf_puts(out, out->len > 0 ? "}" : "{}");
	return out->failed ? NULL : pr_arena_copy(&events->arena, out->data, out->len);
}

/* A key that is not text, such as a binary number from Java, is converted to base64. */
static const char *copy_key(struct pr_kafka_pen *pen, struct pr_events *events,
			    const rd_kafka_message_t *message)
{
	struct pr_buf *out = &pen->key;

	if (!memchr(message->key, '\0', message->key_len) &&
	    pr_utf8_valid(message->key, message->key_len))
		return pr_arena_copy(&events->arena, message->key, message->key_len);
	pr_buf_reset(out);
	pr_json_put_base64(out, message->key, message->key_len);
	return out->failed ? NULL : pr_arena_copy(&events->arena, out->data + 1, out->len - 2);
}

/*
 * Reads attributes that are not identities, also from CloudEvents of other producers. False: no
 * memory.
 */
static bool copy_context(struct pr_events *events, const rd_kafka_headers_t *headers,
			 struct pr_event *event)
{
	struct pr_span tenant = header_of(headers, "ce_tenantid");
	struct pr_span correlation = header_of(headers, "ce_correlationid");

	event->tenant_id = copy(events, tenant);
	event->correlation_id = copy(events, correlation);
	return (!tenant.data || event->tenant_id) && (!correlation.data || event->correlation_id);
}

int pr_kafka_add_event(struct pr_kafka_pen *pen, const char *topic,
		       const rd_kafka_message_t *message, const rd_kafka_headers_t *headers,
		       struct pr_events *events, struct pr_err *err)
{
	struct pr_event *event = pr_events_add(events);
	struct pr_span content_type;
	bool ours, typed, keyed = message->key && message->key_len > 0;

	if (!event)
		return pr_err_nomem(err);
	ours = is_ours(headers);
	event->broker_position = pr_arena_printf(&events->arena, "%s/%d/%jd", topic,
						 message->partition, (intmax_t)message->offset);
	if (ours)
		event->id = copy(events, header_of(headers, "ce_id"));
	event->topic = ours ? copy(events, header_of(headers, "ce_type"))
			    : pr_arena_strdup(&events->arena, topic);
	if (keyed)
		event->key = copy_key(pen, events, message);
	event->headers = copy_headers(pen, events, headers, ours);
	content_type = header_of(headers, "content-type");
	typed = content_type.data;
	event->content_type = copy(events, content_type);
	event->len = message->payload ? message->len : 0;
	event->body = pr_arena_copy(&events->arena, event->len > 0 ? message->payload : "",
				    event->len);
	if (!event->broker_position || (ours && !event->id) || !event->topic ||
	    (keyed && !event->key) || !event->headers || !event->body ||
	    (typed && !event->content_type) || !copy_context(events, headers, event))
		return pr_err_nomem(err);
	return POSTROOM_OK;
}
