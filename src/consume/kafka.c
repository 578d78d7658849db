/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kafka: the records of a topic, for a consumer group.
 *
 * 1. What was read and not acknowledged is given out again by the next read, in its
 *    order and before anything else, unless its partitions have gone to others.
 * 2. An id is taken from a record of our sink alone: what others call ce_id is unique
 *    together with its source only.
 * 3. No text is cut at a NUL: two that differ stay different.
 */
#include "base/json.h"
#include "base/text.h"
#include "consume/kafka_consumer.h"
#include "consume/source.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OUR_SOURCE "/postroom/"

struct kafka_source {
	struct pr_source source;
	const char *group; /* NULL: the source's own */
	struct pr_kafka_consumer consumer;
	struct pr_buf headers, key;
};

/* The last header of that name; data NULL if there is none, or it is no text. */
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

/* As the sink wrote them: what it added itself is left out. */
static const char *copy_headers(struct kafka_source *kafka, struct pr_events *events,
				const rd_kafka_headers_t *headers, bool ours)
{
	struct pr_buf *out = &kafka->headers;
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

/* A key that is no text, as Java's numbers are none, is shown in base64. */
static const char *copy_key(struct kafka_source *kafka, struct pr_events *events,
			    const rd_kafka_message_t *message)
{
	struct pr_buf *out = &kafka->key;

	if (!memchr(message->key, '\0', message->key_len) &&
	    pr_utf8_valid(message->key, message->key_len))
		return pr_arena_copy(&events->arena, message->key, message->key_len);
	pr_buf_reset(out);
	pr_json_put_base64(out, message->key, message->key_len);
	return out->failed ? NULL : pr_arena_copy(&events->arena, out->data + 1, out->len - 2);
}

static int add(struct kafka_source *kafka, struct pr_events *events,
	       const rd_kafka_message_t *message, struct pr_err *err)
{
	struct pr_event *event = pr_events_add(events);
	rd_kafka_headers_t *headers = NULL;
	struct pr_span content_type;
	bool ours, typed, keyed = message->key && message->key_len > 0;

	if (!event)
		return pr_err_nomem(err);
	if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
		headers = NULL;
	ours = is_ours(headers);
	event->place = pr_arena_printf(&events->arena, "%s/%d/%jd", kafka->consumer.topic,
				       message->partition, (intmax_t)message->offset);
	if (ours)
		event->id = copy(events, header_of(headers, "ce_id"));
	event->topic = ours ? copy(events, header_of(headers, "ce_type"))
			    : pr_arena_strdup(&events->arena, kafka->consumer.topic);
	if (keyed)
		event->key = copy_key(kafka, events, message);
	event->headers = copy_headers(kafka, events, headers, ours);
	content_type = header_of(headers, "content-type");
	typed = content_type.data;
	event->content_type = copy(events, content_type);
	event->len = message->payload ? message->len : 0;
	event->body = pr_arena_copy(&events->arena, event->len > 0 ? message->payload : "",
				    event->len);
	if (!event->place || (ours && !event->id) || !event->topic || (keyed && !event->key) ||
	    !event->headers || !event->body || (typed && !event->content_type))
		return pr_err_nomem(err);
	return POSTROOM_OK;
}

static int give_out(struct kafka_source *kafka, struct pr_events *events, size_t limit,
		    struct pr_err *err)
{
	struct pr_kafka_consumer *consumer = &kafka->consumer;
	size_t bytes = 0, at = 0;

	for (; at < consumer->count && at < limit; at++) {
		bytes += consumer->held[at]->len;
		if (at > 0 && bytes > PR_SOURCE_BYTES)
			break;
		if (add(kafka, events, consumer->held[at], err) < 0)
			return err->status;
	}
	consumer->given = at;
	return POSTROOM_OK;
}

static int read_kafka(struct pr_source *source, struct pr_events *events, size_t limit,
		      const struct pr_flight *flight, struct pr_err *err)
{
	struct kafka_source *kafka = (struct kafka_source *)source;
	int status = pr_kafka_join(&kafka->consumer, err);

	if (status < 0)
		return status;
	kafka->consumer.client.flight = flight;
	pr_kafka_recall(&kafka->consumer);
	status = pr_kafka_fetch(&kafka->consumer, limit, PR_SOURCE_BYTES, flight, err);
	kafka->consumer.client.flight = NULL;
	return status < 0 ? status : give_out(kafka, events, limit, err);
}

static int ack(struct pr_source *source, const struct pr_events *events,
	       const struct pr_flight *flight, struct pr_err *err)
{
	struct kafka_source *kafka = (struct kafka_source *)source;

	return events->count == 0 ? POSTROOM_OK : pr_kafka_commit(&kafka->consumer, flight, err);
}

static int keep(struct pr_source *source, const struct pr_events *events,
		const struct pr_flight *flight, struct pr_err *err)
{
	struct kafka_source *kafka = (struct kafka_source *)source;
	int status;

	(void)events;
	kafka->consumer.client.flight = flight;
	status = pr_kafka_keep(&kafka->consumer, err);
	kafka->consumer.client.flight = NULL;
	return status;
}

static void close_kafka(struct pr_source *source)
{
	struct kafka_source *kafka = (struct kafka_source *)source;

	pr_kafka_leave(&kafka->consumer);
	free(kafka->consumer.held);
	pr_buf_release(&kafka->headers);
	pr_buf_release(&kafka->key);
}

static int open_kafka(struct pr_source *source, struct pr_err *err)
{
	struct kafka_source *kafka = (struct kafka_source *)source;
	struct pr_kafka_consumer *consumer = &kafka->consumer;

	consumer->client.url = &source->url;
	consumer->topic = source->url.path;
	consumer->group = kafka->group ? kafka->group : source->group;
	consumer->lease_ms = source->lease_ms;
	if (pr_kafka_check_address(&source->url, source->ops->example, err) < 0)
		return err->status;
	if (!pr_kafka_is_name(consumer->topic))
		return pr_err_set(
			err, POSTROOM_SINK,
			"kafka: \"%.20s\" is no name of a topic to read: 1 to %d letters, "
			"digits, '.', '_' and '-', and not just \".\" or \"..\"",
			consumer->topic, PR_KAFKA_NAME_MAX);
	if (!consumer->group[0])
		return pr_err_set(err, POSTROOM_SINK, "kafka: group must not be empty");
	return pr_kafka_check(consumer, err) < 0 ? pr_err_prefix(err, "kafka") : POSTROOM_OK;
}

static const char *const schemes[] = { "kafka", NULL };

static const struct pr_param params[] = {
	{ .name = "group",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct kafka_source, group),
	  .value = "NAME",
	  .help = "the consumer group; the handler's name unless given" },
	{ .name = "kafka.*",
	  .type = PR_PARAM_LIST,
	  .offset = offsetof(struct kafka_source, consumer.client.properties),
	  .value = "VALUE",
	  .help = "any property of librdkafka, as in kafka.fetch.min.bytes=1000" },
	{ .name = NULL },
};

const struct pr_source_ops pr_source_kafka = {
	.schemes = schemes,
	.summary = "the records of a Kafka topic, for a consumer group",
	.example = "kafka://localhost:9092/orders.created?group=billing",
	.size = sizeof(struct kafka_source),
	.params = params,
	.open = open_kafka,
	.read = read_kafka,
	.ack = ack,
	.keep = keep,
	.close = close_kafka,
};
