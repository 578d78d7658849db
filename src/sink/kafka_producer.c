/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The library calls back in rd_kafka_poll() and rd_kafka_flush() alone, in the
 *    thread of the worker: its own threads touch nothing of ours.
 * 2. A producer that still has messages when it is given up is ended at once, so
 *    that neither a report nor a message of it comes later.
 * 3. What the promise rests on (acks, idempotence, order) no setting can change.
 * 4. The value of a property that may be a secret is in no error.
 */
#include "sink/kafka_producer.h"

#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MS 50 /* between two looks at the deadline and the stop */
/* Time for the library to try a broker's other addresses, and for one to restart. */
#define DOWN_PATIENCE_US ((int64_t)1000 * 1000)

static const char *const defaults[][2] = {
	{ "client.id", "postroom" },
	{ "partitioner", "murmur2_random" },
	/* What is handed over is sent when the wait begins; before that, it is gathered. */
	{ "linger.ms", "50" },
	/* The broker knows its limit; more than this it answers by hanging up. */
	{ "message.max.bytes", "100000000" },
	/* A topic that does not exist is told soon; one that is being made is tried again. */
	{ "topic.metadata.propagation.max.ms", "1000" },
	{ "reconnect.backoff.max.ms", "500" },
	{ "socket.keepalive.enable", "true" },
};

static const char *const fixed[][2] = {
	{ "acks", "all" },
	{ "enable.idempotence", "true" },
	{ "queuing.strategy", "fifo" },
	{ "delivery.report.only.error", "false" },
	{ "log.queue", "true" },
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static int refuse_property(const char *name, const char *why, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_SINK, "kafka.%.100s: %s", name, why);
}

static int check_free(const char *name, struct pr_err *err)
{
	static const char *const ours[] = { "request.required.acks", "transactional.id",
					    "test.mock.num.brokers" };
	bool taken = false;

	if (strcmp(name, "bootstrap.servers") == 0 || strcmp(name, "metadata.broker.list") == 0)
		return refuse_property(
			name, "the brokers stand in front: kafka://HOST:PORT,…/TOPIC", err);
	for (size_t i = 0; i < COUNT(fixed); i++)
		taken = taken || strcmp(name, fixed[i][0]) == 0;
	for (size_t i = 0; i < COUNT(ours); i++)
		taken = taken || strcmp(name, ours[i]) == 0;
	if (taken)
		return refuse_property(name,
				       "it is not for settings to decide: what counts as delivered "
				       "rests on it",
				       err);
	return POSTROOM_OK;
}

static int set_property(rd_kafka_conf_t *conf, const char *name, const char *value,
			struct pr_err *err)
{
	char why[300] = "";

	if (rd_kafka_conf_set(conf, name, value, why, sizeof(why)) == RD_KAFKA_CONF_OK)
		return POSTROOM_OK;
	return refuse_property(
		name, pr_url_is_secret(name) ? "the library does not take its value" : why, err);
}

static int fill_conf(const struct pr_kafka_producer *producer, rd_kafka_conf_t *conf,
		     struct pr_err *err)
{
	const struct pr_param_list *given = &producer->properties;
	int status = set_property(conf, "bootstrap.servers", producer->url->host, err);

	for (size_t i = 0; i < COUNT(defaults) && status == POSTROOM_OK; i++)
		status = set_property(conf, defaults[i][0], defaults[i][1], err);
	for (size_t i = 0; i + 1 < given->count && status == POSTROOM_OK; i += 2) {
		status = check_free(given->items[i], err);
		if (status == POSTROOM_OK)
			status = set_property(conf, given->items[i], given->items[i + 1], err);
	}
	for (size_t i = 0; i < COUNT(fixed) && status == POSTROOM_OK; i++)
		status = set_property(conf, fixed[i][0], fixed[i][1], err);
	return status;
}

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
 * Half of what the library puts into a request, since what it adds to a message counts too;
 * and half of the time for which it gathers one, since handing over takes some as well. A
 * queue that is full makes a message wait until others have gone: 0 is one without a limit.
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

static void hear_report(rd_kafka_t *handle, const rd_kafka_message_t *message, void *context)
{
	struct pr_kafka_producer *producer = context;
	struct pr_kafka_sent *sent = message->_private;

	(void)handle;
	sent->reported = true;
	sent->error = message->err;
	producer->pending--;
	if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR)
		producer->down_us = 0;
}

static void hear_error(rd_kafka_t *handle, int code, const char *text, void *context)
{
	struct pr_kafka_producer *producer = context;

	(void)handle;
	if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
		snprintf(producer->trouble, sizeof(producer->trouble), "%s", text);
	else if (producer->down_us == 0)
		producer->down_us = pr_mono_us();
}

static void hear_log(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	struct pr_kafka_producer *producer = rd_kafka_opaque(handle);

	(void)level;
	if (!producer->flight)
		return;
	pr_log_event(producer->flight->log, PR_LOG_DEBUG, "KAFKA");
	pr_log_str(producer->flight->log, "facility", facility);
	pr_log_str(producer->flight->log, "message", text);
	pr_log_end(producer->flight->log);
}

int pr_kafka_begin(struct pr_kafka_producer *producer, struct pr_err *err)
{
	rd_kafka_conf_t *conf;
	char why[300] = "";

	if (producer->handle)
		return POSTROOM_OK;
	conf = rd_kafka_conf_new();
	if (fill_conf(producer, conf, err) < 0) {
		rd_kafka_conf_destroy(conf);
		return err->status;
	}
	set_round(producer, conf);
	rd_kafka_conf_set_opaque(conf, producer);
	rd_kafka_conf_set_dr_msg_cb(conf, hear_report);
	rd_kafka_conf_set_error_cb(conf, hear_error);
	rd_kafka_conf_set_log_cb(conf, hear_log);
	producer->handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof(why));
	if (!producer->handle) {
		rd_kafka_conf_destroy(conf);
		return pr_err_set(err, POSTROOM_SINK, "%s", why);
	}
	rd_kafka_set_log_queue(producer->handle, NULL);
	producer->pending = 0;
	producer->down_us = 0;
	producer->trouble[0] = '\0';
	return POSTROOM_OK;
}

static bool must_give_up(const struct pr_kafka_producer *producer, int64_t until_us)
{
	int64_t now_us = pr_mono_us();

	return now_us >= until_us || pr_stop_overdue(producer->flight->stop) ||
	       (producer->down_us && now_us >= producer->down_us + DOWN_PATIENCE_US);
}

rd_kafka_resp_err_t pr_kafka_produce(struct pr_kafka_producer *producer, const char *topic,
				     const postroom_delivery *item, rd_kafka_headers_t *headers,
				     struct pr_kafka_sent *sent, int64_t until_us)
{
	const void *value = item->body ? item->body : item->payload;
	/* Asks for a new topic's partitions at once; given its name alone, the library may take a second. */
	rd_kafka_topic_t *target = rd_kafka_topic_new(producer->handle, topic, NULL);
	rd_kafka_resp_err_t error = target ? RD_KAFKA_RESP_ERR_NO_ERROR : rd_kafka_last_error();

	while (target) {
		error = rd_kafka_producev(
			producer->handle, RD_KAFKA_V_RKT(target),
			RD_KAFKA_V_VALUE((void *)value,
					 item->body ? item->body_len : item->payload_len),
			RD_KAFKA_V_KEY(item->key, item->key ? strlen(item->key) : 0),
			RD_KAFKA_V_TIMESTAMP(item->created_at_us / 1000),
			RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(sent), RD_KAFKA_V_END);
		if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL || must_give_up(producer, until_us))
			break;
		rd_kafka_poll(producer->handle, STEP_MS);
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

bool pr_kafka_wait(struct pr_kafka_producer *producer, int64_t until_us)
{
	bool broken = false;

	while (producer->pending > 0 && !must_give_up(producer, until_us)) {
		rd_kafka_flush(producer->handle, STEP_MS);
		if (!broken && rd_kafka_fatal_error(producer->handle, NULL, 0)) {
			broken = true;
			/* What is on its way may still be acknowledged. */
			rd_kafka_purge(producer->handle, RD_KAFKA_PURGE_F_QUEUE);
		}
	}
	if (producer->pending == 0) {
		if (rd_kafka_fatal_error(producer->handle, NULL, 0))
			pr_kafka_end(producer);
		return true;
	}
	pr_kafka_end(producer);
	return false;
}

void pr_kafka_end(struct pr_kafka_producer *producer)
{
	if (!producer->handle)
		return;
	rd_kafka_purge(producer->handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT |
						 RD_KAFKA_PURGE_F_NON_BLOCKING);
	rd_kafka_destroy(producer->handle);
	producer->handle = NULL;
	producer->pending = 0;
}
