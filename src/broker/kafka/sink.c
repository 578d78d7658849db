/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kafka: one record per message.
 *
 * 1. A message is DELIVERED when its delivery report says that all in-sync replicas have it
 *    (acks=all); handing it to the library means nothing.
 * 2. The messages of a key are sent to one partition in one request, which is accepted or refused
 *    as a whole. Messages that do not fit, or come after the library may have begun to send
 *    (linger.ms), wait for the reply. With {tenant} in the topic's name, a message behind one of
 *    another tenant waits for the next call.
 * 3. A message that was produced and not reported by the deadline may have been delivered: it is
 *    UNREACHABLE, to be sent again, and the producer is replaced.
 * 4. A broker refuses a whole request for its size: a message is REJECTED only if it was refused
 *    alone.
 * 5. A refused topic is not an outage if others are accepted.
 */
#include "broker/kafka/producer.h"

#include "base/json.h"
#include "base/time.h"
#include "sink/attributes.h"
#include "sink/cloudevents.h"
#include "sink/sink.h"
#include "sink/target.h"

#include <string.h>

#define OWN_HEADERS 2	    /* in addition to the attributes of a CloudEvent */
#define WEIGHT_OF_NAMES 500 /* what a record's headers have in common */

struct kafka_sink {
	struct pr_sink sink;
	struct pr_kafka_producer producer;
	struct pr_buf name;
	struct pr_buf source;
	struct pr_buf header_name, header_value;
};

/* One call of publish. */
struct batch {
	postroom_delivery *items;
	size_t count;
	const size_t *before; /* see pr_sink_order() */
	struct pr_kafka_sent *sent;
	bool by_tenant;			 /* messages of one key may go to several topics */
	size_t round_count, round_bytes; /* produced since the last wait */
	int64_t round_until_us;		 /* later, the library may have begun to send */
	int64_t until_us;
};

static const struct pr_target_rule name_rule = {
	.text = pr_kafka_is_name_char,
	.value = pr_kafka_is_name_char,
	.escape = '_',
	.max = PR_KAFKA_NAME_MAX,
};

static int put_name(struct kafka_sink *kafka, const postroom_delivery *item, struct pr_err *err)
{
	pr_buf_reset(&kafka->name);
	if (pr_target_put(&kafka->name, kafka->sink.url.path, &name_rule, item, err) < 0)
		return err->status;
	if (!pr_kafka_is_name(pr_buf_text(&kafka->name)))
		return pr_err_set(err, POSTROOM_INVALID,
				  "\"%s\" is not a valid name of a Kafka topic",
				  pr_buf_text(&kafka->name));
	return POSTROOM_OK;
}

static bool add_header(rd_kafka_headers_t *headers, const char *name, const char *value, size_t len)
{
	return rd_kafka_header_add(headers, name, -1, value, (ssize_t)len) ==
	       RD_KAFKA_RESP_ERR_NO_ERROR;
}

static bool add_own(struct kafka_sink *kafka, rd_kafka_headers_t *headers,
		    const postroom_delivery *item)
{
	const char *unique = item->dedupe_key ? item->dedupe_key : item->id;
	struct pr_ce ce;
	bool good;

	pr_ce_fill(&ce, item, NULL, &kafka->source);
	good = !kafka->source.failed;
	for (size_t i = 0; i < ce.count; i++) {
		const struct pr_ce_attribute *attribute = &ce.attributes[i];

		pr_buf_reset(&kafka->header_name);
		pr_buf_printf(&kafka->header_name, "ce_%s", attribute->name);
		good = good && !kafka->header_name.failed &&
		       add_header(headers, kafka->header_name.data, attribute->value,
				  strlen(attribute->value));
	}
	return good &&
	       add_header(headers, "content-type", item->content_type,
			  strlen(item->content_type)) &&
	       add_header(headers, "idempotency-key", unique, strlen(unique));
}

static bool add_given(struct kafka_sink *kafka, rd_kafka_headers_t *headers,
		      const postroom_delivery *item)
{
	struct pr_json_members walk = pr_json_members(
		(struct pr_span){ item->headers, strlen(item->headers) });
	struct pr_span name, value;
	bool good = true;

	while (good && pr_json_next(&walk, &name, &value)) {
		pr_buf_reset(&kafka->header_name);
		pr_buf_reset(&kafka->header_value);
		pr_json_decode(name, &kafka->header_name);
		pr_json_decode(value, &kafka->header_value);
		if (pr_kafka_is_own_header(pr_buf_text(&kafka->header_name)))
			continue;
		good = !kafka->header_name.failed && !kafka->header_value.failed &&
		       add_header(headers, pr_buf_text(&kafka->header_name),
				  pr_buf_text(&kafka->header_value), kafka->header_value.len);
	}
	return good;
}

static rd_kafka_headers_t *make_headers(struct kafka_sink *kafka, const postroom_delivery *item)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(PR_CE_MAX + OWN_HEADERS);

	if (headers && add_own(kafka, headers, item) && add_given(kafka, headers, item))
		return headers;
	rd_kafka_headers_destroy(headers);
	return NULL;
}

/* True if an earlier message of its key was not begun or failed, or may go to another topic. */
static bool must_wait(const struct batch *batch, size_t at)
{
	size_t before = batch->before[at];

	if (before == PR_SINK_NONE)
		return false;
	return !batch->sent[before].begun ||
	       (batch->sent[before].reported && batch->sent[before].error) ||
	       (batch->by_tenant && !pr_sink_same_tenant(&batch->items[before], &batch->items[at]));
}

/* The protocol sends the length of keys and headers before them. */
static const struct pr_protocol protocol = { .name = "Kafka" };

/* Hands one message to the producer; one that Kafka cannot carry is rejected. */
static int produce_one(struct kafka_sink *kafka, struct batch *batch, size_t at,
		       const struct pr_flight *flight, struct pr_err *err)
{
	postroom_delivery *item = &batch->items[at];
	rd_kafka_headers_t *headers;
	int status = pr_attributes_check(item, &protocol, &kafka->header_value, err);

	if (status == POSTROOM_OK)
		status = put_name(kafka, item, err);
	if (status == POSTROOM_INVALID) {
		pr_sink_judge(item, 1, POSTROOM_REJECTED, flight, err->text);
		return POSTROOM_OK;
	}
	if (status < 0)
		return status;
	headers = make_headers(kafka, item);
	if (!headers)
		return pr_err_nomem(err);
	pr_kafka_produce(&kafka->producer, pr_buf_text(&kafka->name), item, headers,
			 &batch->sent[at], batch->until_us);
	return POSTROOM_OK;
}

/* Errors of the topic, not of the cluster. */
static bool is_about_name(rd_kafka_resp_err_t error)
{
	return error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
	       error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
	       error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
	       error == RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION ||
	       error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
}

/* Errors about the records themselves. All other errors concern brokers, or the library. */
static bool is_about_records(rd_kafka_resp_err_t error)
{
	return error == RD_KAFKA_RESP_ERR_UNKNOWN || error == RD_KAFKA_RESP_ERR_INVALID_MSG ||
	       error == RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE ||
	       error == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP ||
	       error == RD_KAFKA_RESP_ERR_INVALID_RECORD ||
	       error == RD_KAFKA_RESP_ERR_INVALID_REQUEST ||
	       error == RD_KAFKA_RESP_ERR_POLICY_VIOLATION ||
	       error == RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT ||
	       error == RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE;
}

/* Errors that another message of the same producer has caused. */
static bool is_side_effect(rd_kafka_resp_err_t error)
{
	return error == RD_KAFKA_RESP_ERR__PURGE_QUEUE ||
	       error == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT || error == RD_KAFKA_RESP_ERR__FATAL ||
	       error == RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE;
}

static postroom_verdict verdict_of(const struct pr_kafka_sent *sent, bool others_arrived)
{
	if (!sent->reported)
		return POSTROOM_UNREACHABLE;
	if (sent->error == RD_KAFKA_RESP_ERR_NO_ERROR)
		return POSTROOM_DELIVERED;
	if (sent->error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
		return POSTROOM_REJECTED;
	if (is_about_records(sent->error) || (is_about_name(sent->error) && others_arrived))
		return POSTROOM_FAILED;
	return POSTROOM_UNREACHABLE;
}

static void explain_error(struct kafka_sink *kafka, const struct pr_kafka_sent *sent,
			  postroom_delivery *item, struct pr_buf *out)
{
	const struct pr_kafka_producer *producer = &kafka->producer;
	bool late = !sent->reported || is_side_effect(sent->error) ||
		    sent->error == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT;

	pr_buf_reset(out);
	if (late && !producer->client.trouble[0]) {
		pr_buf_printf(out, "no acknowledgement from %s in time",
			      producer->client.url->host);
		return;
	}
	if (late) {
		pr_buf_printf(out, "no acknowledgement from %s: %s", producer->client.url->host,
			      producer->client.trouble);
		return;
	}
	put_name(kafka, item, NULL);
	pr_buf_printf(out, "topic \"%s\": %s", pr_buf_text(&kafka->name),
		      rd_kafka_err2str(sent->error));
}

/* The library's cached state of brokers and topics must not outlive an outage. */
static bool is_stale(const struct pr_kafka_sent *sent)
{
	return sent->begun && sent->reported && sent->error && !is_about_records(sent->error) &&
	       sent->error != RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
}

static void judge(struct kafka_sink *kafka, struct batch *batch, const struct pr_flight *flight)
{
	bool arrived = false, blamed = false, stale = false, dropped = kafka->producer.dropped;

	for (size_t i = 0; i < batch->count; i++) {
		const struct pr_kafka_sent *sent = &batch->sent[i];

		stale = stale || is_stale(sent);
		if (!sent->begun || !sent->reported)
			continue;
		arrived = arrived || !sent->error;
		blamed = blamed || (sent->error && !is_side_effect(sent->error));
	}
	for (size_t i = 0; i < batch->count; i++) {
		const struct pr_kafka_sent *sent = &batch->sent[i];
		postroom_delivery *item = &batch->items[i];
		size_t before = batch->before[i];

		/* A message is rejected only after the previous one of its key was delivered. */
		if (item->verdict == POSTROOM_REJECTED && before != PR_SINK_NONE &&
		    batch->items[before].verdict != POSTROOM_DELIVERED)
			pr_sink_judge(item, 1, POSTROOM_UNTRIED, flight, NULL);
		if (!sent->begun)
			continue;
		if (sent->reported && !sent->error) {
			pr_sink_judge(item, 1, POSTROOM_DELIVERED, flight, NULL);
			continue;
		}
		/* A message after one that was not delivered is not at fault either. */
		if ((before != PR_SINK_NONE &&
		     batch->items[before].verdict != POSTROOM_DELIVERED) ||
		    (blamed && sent->reported && is_side_effect(sent->error))) {
			item->together = dropped && !sent->reported;
			continue;
		}
		explain_error(kafka, sent, item, &kafka->header_value);
		pr_sink_judge(item, 1, verdict_of(sent, arrived), flight,
			      pr_buf_text(&kafka->header_value));
		item->together = dropped && item->verdict == POSTROOM_UNREACHABLE;
	}
	if (stale)
		pr_kafka_end(&kafka->producer);
}

static bool was_too_large(const struct pr_kafka_sent *sent)
{
	return sent->begun && sent->reported && sent->error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
}

/*
 * Messages that were refused together are sent one by one. One that is refused alone is too large.
 */
static int send_one_by_one(struct kafka_sink *kafka, struct batch *batch,
			   const struct pr_flight *flight, struct pr_err *err)
{
	size_t begun = 0;
	int status = POSTROOM_OK;

	for (size_t i = 0; i < batch->count; i++)
		begun += batch->sent[i].begun;
	for (size_t i = 0; i < batch->count && begun > 1; i++) {
		if (!was_too_large(&batch->sent[i]))
			continue;
		batch->sent[i] = (struct pr_kafka_sent){ 0 };
		if (status < 0 || must_wait(batch, i) || !pr_flight_may_begin(flight))
			continue;
		status = pr_kafka_begin(&kafka->producer, err);
		if (status == POSTROOM_OK)
			status = produce_one(kafka, batch, i, flight, err);
		if (status == POSTROOM_OK && batch->sent[i].begun)
			pr_kafka_wait(&kafka->producer, batch->until_us);
	}
	return status;
}

static size_t length_of(const char *text)
{
	return text ? strlen(text) : 0;
}

/* An estimate of a message's size in a request. */
static size_t weight_of(const postroom_delivery *item)
{
	return (item->body ? item->body_len : item->payload_len) + strlen(item->headers) +
	       strlen(item->topic) + 2 * length_of(item->key) + length_of(item->dedupe_key) +
	       length_of(item->correlation_id) + WEIGHT_OF_NAMES;
}

/*
 * True if the message need not wait: it fits into the request of its predecessor, or has none in
 * flight.
 */
static bool fits(const struct kafka_sink *kafka, const struct batch *batch, size_t at)
{
	size_t before = batch->before[at];

	return before == PR_SINK_NONE || !batch->sent[before].begun ||
	       batch->sent[before].reported ||
	       (batch->round_count < kafka->producer.round_count &&
		batch->round_bytes + weight_of(&batch->items[at]) <= kafka->producer.round_bytes &&
		pr_mono_us() < batch->round_until_us);
}

static int produce_all(struct kafka_sink *kafka, struct batch *batch,
		       const struct pr_flight *flight, struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (size_t i = 0; i < batch->count && status == POSTROOM_OK; i++) {
		if (!fits(kafka, batch, i)) {
			if (!pr_kafka_wait(&kafka->producer, batch->until_us))
				break;
			batch->round_count = batch->round_bytes = 0;
			status = pr_kafka_begin(&kafka->producer, err);
		}
		if (status < 0 || !pr_flight_may_begin(flight))
			break;
		if (must_wait(batch, i))
			continue;
		if (batch->round_count == 0)
			batch->round_until_us = pr_mono_us() + kafka->producer.round_us;
		status = produce_one(kafka, batch, i, flight, err);
		batch->round_count++;
		batch->round_bytes += weight_of(&batch->items[i]);
	}
	return status;
}

/* A failure is an error of all items without a verdict. */
static int publish_batch(struct kafka_sink *kafka, struct batch *batch,
			 const struct pr_flight *flight, struct pr_err *err)
{
	int status = pr_kafka_begin(&kafka->producer, err);

	if (status == POSTROOM_OK)
		status = produce_all(kafka, batch, flight, err);
	if (kafka->producer.client.handle)
		pr_kafka_wait(&kafka->producer, batch->until_us);
	if (status == POSTROOM_OK)
		status = send_one_by_one(kafka, batch, flight, err);
	judge(kafka, batch, flight);
	return status;
}

static int publish(struct pr_sink *sink, postroom_delivery *items, size_t given,
		   const struct pr_flight *flight, struct pr_err *err)
{
	struct kafka_sink *kafka = (struct kafka_sink *)sink;
	/* A whole request is in flight at once, so the rest waits for the next call. */
	size_t count = pr_flight_most(flight, given);
	struct batch batch = {
		.items = items,
		.count = count,
		.by_tenant = pr_target_uses(sink->url.path, "tenant"),
		.until_us = pr_mono_us() + flight->timeout_ms * 1000,
	};
	struct pr_err failure = { 0 };
	int status;

	(void)err;
	if (count == 0 || !pr_flight_may_begin(flight))
		return POSTROOM_OK;
	batch.before = pr_sink_order(items, count, flight->arena);
	batch.sent = pr_arena_alloc(flight->arena, count * sizeof(*batch.sent));
	if (!batch.before || !batch.sent) {
		pr_err_nomem(&failure);
		pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, failure.text);
		return POSTROOM_OK;
	}
	memset(batch.sent, 0, count * sizeof(*batch.sent));
	kafka->producer.client.flight = flight;
	kafka->producer.dropped = false;
	/* The library has had no reason to reconnect between two calls. */
	if (kafka->producer.client.down_us)
		kafka->producer.client.down_us = pr_mono_us();
	status = publish_batch(kafka, &batch, flight, &failure);
	kafka->producer.client.flight = NULL;
	for (size_t i = 0; status < 0 && i < count; i++) {
		if (items[i].verdict == POSTROOM_UNTRIED && batch.before[i] == PR_SINK_NONE)
			pr_sink_judge(&items[i], 1, POSTROOM_UNREACHABLE, flight, failure.text);
	}
	return POSTROOM_OK;
}

static int open_sink(struct pr_sink *sink, struct pr_err *err)
{
	struct kafka_sink *kafka = (struct kafka_sink *)sink;
	const char *topic = sink->url.path;

	kafka->producer.client.url = &sink->url;
	if (pr_kafka_check_address(&sink->url, sink->ops->example, err) < 0)
		return err->status;
	if (pr_target_check(topic, &name_rule, err) < 0)
		return pr_err_prefix(err, "kafka");
	if (topic[0] && !strchr(topic, '{') && !pr_kafka_is_name(topic))
		return pr_err_set(
			err, POSTROOM_SINK,
			"kafka: \"%.20s…\" is not the name of a topic: write 1 to %d letters, "
			"digits, '.', '_' and '-', and not just \".\" or \"..\"",
			topic, PR_KAFKA_NAME_MAX);
	if (pr_kafka_begin(&kafka->producer, err) < 0)
		return pr_err_prefix(err, "kafka");
	return POSTROOM_OK;
}

static void close_sink(struct pr_sink *sink)
{
	struct kafka_sink *kafka = (struct kafka_sink *)sink;

	pr_kafka_end(&kafka->producer);
	pr_buf_release(&kafka->name);
	pr_buf_release(&kafka->source);
	pr_buf_release(&kafka->header_name);
	pr_buf_release(&kafka->header_value);
}

static void probe(struct pr_sink *sink, const struct pr_flight *flight, struct pr_checkup *checkup)
{
	pr_kafka_probe(&((struct kafka_sink *)sink)->producer, sink->url.path, flight, checkup);
}

static const char *const schemes[] = { "kafka", NULL };

static const struct pr_param params[] = {
	{ .name = "kafka.*",
	  .type = PR_PARAM_LIST,
	  .offset = offsetof(struct kafka_sink, producer.client.properties),
	  .value = "VALUE",
	  .help = "any property of librdkafka, as in kafka.linger.ms=20" },
	{ .name = NULL },
};

const struct pr_sink_ops pr_sink_kafka = {
	.schemes = schemes,
	.summary = "a record of a Kafka topic for each message (acks=all, idempotent)",
	.example = "kafka://localhost:9092/{topic}",
	.server = true,
	.size = sizeof(struct kafka_sink),
	.params = params,
	.acts = true,
	.open = open_sink,
	.publish = publish,
	.probe = probe,
	.close = close_sink,
};
