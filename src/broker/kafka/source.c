/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kafka: the records of a topic, for a consumer group.
 *
 * 1. Records that were read and not acknowledged are returned again by the next read, in order and
 *    before anything else, unless their partitions were reassigned.
 */
#include "broker/source.h"
#include "broker/kafka/consumer.h"
#include "broker/kafka/event.h"

#include <stdlib.h>

struct kafka_source {
	struct pr_source source;
	const char *group; /* NULL: the source's own */
	struct pr_kafka_consumer consumer;
	struct pr_kafka_pen pen;
};

static int add_record(struct kafka_source *kafka, struct pr_events *events,
		      const rd_kafka_message_t *message, struct pr_err *err)
{
	rd_kafka_headers_t *headers = NULL;
	rd_kafka_timestamp_type_t kind;
	int64_t at_ms = rd_kafka_message_timestamp(message, &kind);

	if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
		headers = NULL;
	if (pr_kafka_add_event(&kafka->pen, kafka->consumer.topic, message, headers, events, err) <
	    0)
		return err->status;
	if (at_ms > 0 && at_ms <= INT64_MAX / 1000)
		events->list[events->count - 1].at_us = at_ms * 1000;
	return POSTROOM_OK;
}

static int add_events(struct kafka_source *kafka, struct pr_events *events, size_t limit,
		      struct pr_err *err)
{
	struct pr_kafka_consumer *consumer = &kafka->consumer;
	size_t bytes = 0, at = 0;

	for (; at < consumer->count && at < limit; at++) {
		bytes += pr_kafka_size(consumer->held[at]);
		if (at > 0 && bytes > kafka->source.bytes)
			break;
		if (add_record(kafka, events, consumer->held[at], err) < 0)
			return err->status;
	}
	consumer->given = at;
	return POSTROOM_OK;
}

static int read_kafka(struct pr_source *source, struct pr_events *events, size_t limit,
		      const struct pr_flight *flight, struct pr_err *err)
{
	struct kafka_source *kafka = (struct kafka_source *)source;
	int status;

	kafka->consumer.share = source->bytes;
	status = pr_kafka_join(&kafka->consumer, err);
	if (status < 0)
		return status;
	kafka->consumer.client.flight = flight;
	pr_kafka_return_unread(&kafka->consumer);
	status = pr_kafka_fetch(&kafka->consumer, limit, source->bytes, flight, err);
	kafka->consumer.client.flight = NULL;
	return status < 0 ? status : add_events(kafka, events, limit, err);
}

static int ack(struct pr_source *source, const struct pr_events *events,
	       const struct pr_flight *flight, struct pr_err *err)
{
	struct kafka_source *kafka = (struct kafka_source *)source;

	return events->count == 0 ? POSTROOM_OK : pr_kafka_commit(&kafka->consumer, flight, err);
}

static int extend_lease(struct pr_source *source, const struct pr_events *events,
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

static void close_source(struct pr_source *source)
{
	struct kafka_source *kafka = (struct kafka_source *)source;

	pr_kafka_leave(&kafka->consumer);
	free(kafka->consumer.held);
	pr_buf_release(&kafka->pen.headers);
	pr_buf_release(&kafka->pen.key);
}

static int open_source(struct pr_source *source, struct pr_err *err)
{
	struct kafka_source *kafka = (struct kafka_source *)source;
	struct pr_kafka_consumer *consumer = &kafka->consumer;

	consumer->client.url = &source->url;
	consumer->topic = source->url.path;
	consumer->group = kafka->group ? kafka->group : source->group;
	consumer->lease_ms = source->lease_ms;
	consumer->share = source->bytes;
	if (pr_kafka_check_address(&source->url, source->ops->example, err) < 0)
		return err->status;
	if (!pr_kafka_is_name(consumer->topic))
		return pr_err_set(
			err, POSTROOM_SINK,
			"kafka: \"%.20s\" is not the name of a topic: write 1 to %d letters, "
			"digits, '.', '_' and '-', as in kafka://localhost:9092/orders",
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
	.open = open_source,
	.read = read_kafka,
	.ack = ack,
	.keep = extend_lease,
	.close = close_source,
};
