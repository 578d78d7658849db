/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The library calls back only in rd_kafka_poll() and rd_kafka_flush(), in the worker's thread.
 * 2. An abandoned producer that still has messages is ended immediately, so it sends and reports
 *    nothing later.
 * 3. Settings cannot change acks, idempotence and order, which the guarantee depends on.
 */
#include "broker/kafka/producer.h"

#include "base/time.h"
#include "sink/sink.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_MS 1000 /* twice as long as the library waits between two connections */
#define STEP_MS 50     /* between two checks of the deadline and the stop */

static pr_kafka_pair defaults[] = {
	{ "partitioner", "murmur2_random" },
	/* Messages are sent when the wait begins; before that, they are batched. */
	{ "linger.ms", "50" },
	/*
	 * The broker enforces its own limit. It closes the connection for anything larger than
	 * this.
	 */
	{ "message.max.bytes", "100000000" },
	/* A missing topic is reported soon; one that is being created is retried. */
	{ "topic.metadata.propagation.max.ms", "1000" },
	{ NULL, NULL },
};

static pr_kafka_pair fixed[] = {
	{ "acks", "all" },
	{ "enable.idempotence", "true" },
	{ "queuing.strategy", "fifo" },
	{ "delivery.report.only.error", "false" },
	{ NULL, NULL },
};

static const char *const refused[] = { "request.required.acks", "transactional.id", NULL };

static const struct pr_kafka_rules rules = {
	.defaults = defaults,
	.fixed = fixed,
	.refused = refused,
	.reason = "delivery depends on it",
};

static size_t number_of(const rd_kafka_conf_t *conf, const char *name)
{
	char text[32] = "";
	size_t size = sizeof(text);

	rd_kafka_conf_get(conf, name, text, &size);
	return strtoul(text, NULL, 10);
}

static size_t lesser(size_t a, size_t b)
{
	return a < b ? a : b;
}

/*
 * Limits of a round. Half of the library's limits for a request, because it adds bytes to each
 * message; and half of the time for which it collects a request, because producing takes time, too.
 * A full queue makes a message wait; 0 is a queue without a limit.
 */
static void set_round(struct pr_kafka_producer *producer, const rd_kafka_conf_t *conf)
{
	size_t count = number_of(conf, "queue.buffering.max.messages");
	size_t bytes = number_of(conf, "queue.buffering.max.kbytes") * 1024;
	size_t request = lesser(number_of(conf, "batch.size"),
				number_of(conf, "message.max.bytes"));

	producer->round_count = lesser(number_of(conf, "batch.num.messages"),
				       count > 0 ? count : SIZE_MAX);
	producer->round_bytes = lesser(bytes, request) / 2;
	producer->round_us = (int64_t)number_of(conf, "linger.ms") * 1000 / 2;
}

static void on_report(rd_kafka_t *handle, const rd_kafka_message_t *message, void *context)
{
	struct pr_kafka_producer *producer = context;
	struct pr_kafka_sent *sent = message->_private;

	(void)handle;
	sent->reported = true;
	sent->error = message->err;
	producer->pending--;
	if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR)
		producer->client.down_us = 0;
}

int pr_kafka_begin(struct pr_kafka_producer *producer, struct pr_err *err)
{
	rd_kafka_conf_t *conf;

	if (producer->client.handle)
		return POSTROOM_OK;
	if (pr_kafka_client_conf(&producer->client, &rules, &conf, err) < 0)
		return err->status;
	set_round(producer, conf);
	rd_kafka_conf_set_dr_msg_cb(conf, on_report);
	producer->pending = 0;
	return pr_kafka_client_begin(&producer->client, RD_KAFKA_PRODUCER, conf, err);
}

static bool must_give_up(const struct pr_kafka_producer *producer, int64_t until_us)
{
	return pr_mono_us() >= until_us || pr_stop_overdue(producer->client.flight->stop) ||
	       pr_kafka_is_down(&producer->client);
}

static rd_kafka_resp_err_t submit(const struct pr_kafka_producer *producer,
				  rd_kafka_topic_t *target, const postroom_delivery *item,
				  rd_kafka_headers_t *headers, struct pr_kafka_sent *sent)
{
	const void *value = item->body ? item->body : item->payload;
	size_t len = item->body ? item->body_len : item->payload_len;
	size_t key_len = item->key ? strlen(item->key) : 0;

	return rd_kafka_producev(
		producer->client.handle, RD_KAFKA_V_RKT(target),
		RD_KAFKA_V_VALUE((void *)value, len), RD_KAFKA_V_KEY(item->key, key_len),
		RD_KAFKA_V_TIMESTAMP(item->created_at_us / 1000), RD_KAFKA_V_HEADERS(headers),
		RD_KAFKA_V_OPAQUE(sent), RD_KAFKA_V_END);
}

rd_kafka_resp_err_t pr_kafka_produce(struct pr_kafka_producer *producer, const char *topic,
				     const postroom_delivery *item, rd_kafka_headers_t *headers,
				     struct pr_kafka_sent *sent, int64_t until_us)
{
	/* Asks for a new topic's partitions at once; given its name alone, the library may take a second. */
	rd_kafka_topic_t *target = rd_kafka_topic_new(producer->client.handle, topic, NULL);
	rd_kafka_resp_err_t error = target ? RD_KAFKA_RESP_ERR_NO_ERROR : rd_kafka_last_error();

	while (target) {
		error = submit(producer, target, item, headers, sent);
		if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL || must_give_up(producer, until_us))
			break;
		rd_kafka_poll(producer->client.handle, STEP_MS);
	}
	if (target)
		rd_kafka_topic_destroy(target);
	sent->begun = true;
	sent->reported = error != RD_KAFKA_RESP_ERR_NO_ERROR;
	sent->error = error;
	if (sent->reported)
		rd_kafka_headers_destroy(headers);
	else
		producer->pending++;
	return error;
}

/*
 * All brokers seem to be down. If one answers as soon as nothing is sent, one of the messages makes
 * it close the connection repeatedly.
 */
static bool answers_without_messages(struct pr_kafka_producer *producer)
{
	const struct rd_kafka_metadata *metadata;
	rd_kafka_t *handle = producer->client.handle;

	if (pr_stop_requested(producer->client.flight->stop))
		return false;
	rd_kafka_purge(handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
	if (rd_kafka_metadata(handle, 0, NULL, &metadata, ANSWER_MS) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return false;
	rd_kafka_metadata_destroy(metadata);
	return true;
}

bool pr_kafka_wait(struct pr_kafka_producer *producer, int64_t until_us)
{
	bool broken = false;

	while (producer->pending > 0 && !must_give_up(producer, until_us)) {
		rd_kafka_flush(producer->client.handle, STEP_MS);
		if (!broken && rd_kafka_fatal_error(producer->client.handle, NULL, 0)) {
			broken = true;
			/* Messages in flight may still be acknowledged. */
			rd_kafka_purge(producer->client.handle, RD_KAFKA_PURGE_F_QUEUE);
		}
	}
	if (producer->pending == 0) {
		if (rd_kafka_fatal_error(producer->client.handle, NULL, 0))
			pr_kafka_end(producer);
		return true;
	}
	producer->dropped = pr_mono_us() < until_us && answers_without_messages(producer);
	pr_kafka_end(producer);
	return false;
}

void pr_kafka_end(struct pr_kafka_producer *producer)
{
	if (!producer->client.handle)
		return;
	rd_kafka_purge(producer->client.handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT |
							RD_KAFKA_PURGE_F_NON_BLOCKING);
	rd_kafka_destroy(producer->client.handle);
	producer->client.handle = NULL;
	producer->pending = 0;
}
