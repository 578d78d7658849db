/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. An offset is committed when every earlier record of its partition that we received is safe:
 *    unacknowledged records are always the first ones held, and records leave only by a commit or
 *    with their partition.
 * 2. Partitions that the group revokes are released when nothing is unacknowledged. All held
 *    records go with them, since the next owner starts at the committed offset.
 * 3. Only the intake's thread polls the library's queues, and runs all callbacks.
 * 4. State that the library has cached about topic and group does not outlive a refusal: the
 *    consumer is replaced.
 */
#include "broker/kafka/consumer.h"

#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ANSWER_MS 250 /* for unreachable brokers to reconnect */
#define LEAVE_US ((int64_t)1000 * 1000)
#define LEAVE_STEP_MS 20
#define FIRST_US ((int64_t)2000 * 1000) /* for the first record of new partitions */
#define HEARTBEAT_MS 3000
/* Limits of brokers by default (group.min.session.timeout.ms, …max…). */
#define SESSION_MIN_MS 6000
#define SESSION_MAX_MS 1800000
#define POLL_MS 300000

/*
 * librdkafka decides by the values of queued records whether to fetch ahead. Keys and headers do
 * not count. From 2.2 on, it can be made to decide again soon, so few records need to be queued.
 * Before that, it decides again after a second. A low limit would then delay events, because the
 * queue must last for a second.
 */
#define QUEUE_BACKOFF_VERSION 0x02020000
#define QUEUE_BACKOFF_MS "10"
#define QUEUED_MIN "8"

static pr_kafka_pair fixed[] = {
	{ "enable.auto.commit", "false" },
	{ "enable.auto.offset.store", "false" },
	{ "enable.partition.eof", "false" },
	{ "partition.assignment.strategy", "range,roundrobin" },
	{ NULL, NULL },
};

/* Each intake thread is a separate member, so members cannot have a lasting name. */
static const char *const refused[] = { "group.id", "group.instance.id", NULL };

/* Reading the headers makes the library copy them. */
size_t pr_kafka_size(const rd_kafka_message_t *message)
{
	size_t size = message->len + message->key_len, len;
	rd_kafka_headers_t *headers = NULL;
	const char *name;
	const void *value;

	if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return size;
	for (size_t i = 0;
	     rd_kafka_header_get_all(headers, i, &name, &value, &len) == RD_KAFKA_RESP_ERR_NO_ERROR;
	     i++)
		size += 2 * (strlen(name) + len);
	return size;
}

static void release_records(struct pr_kafka_consumer *consumer, size_t count)
{
	for (size_t i = 0; i < consumer->count; i++) {
		if (i >= count) {
			consumer->held[i - count] = consumer->held[i];
			continue;
		}
		consumer->bytes -= pr_kafka_size(consumer->held[i]);
		rd_kafka_message_destroy(consumer->held[i]);
	}
	consumer->count -= count;
	consumer->given = 0;
}

static void pause_and_rewind(struct pr_kafka_consumer *consumer)
{
	release_records(consumer, consumer->count);
	consumer->revoking = false;
	consumer->joined_us = 0;
	rd_kafka_assign(consumer->client.handle, NULL);
}

static void on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t event,
			 rd_kafka_topic_partition_list_t *partitions, void *context)
{
	struct pr_kafka_consumer *consumer = context;

	if (event == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
		rd_kafka_assign(handle, partitions);
		consumer->joined_us = pr_mono_us();
		if (consumer->paused)
			rd_kafka_pause_partitions(handle, partitions);
	} else if (consumer->given > 0 && !rd_kafka_assignment_lost(handle)) {
		consumer->revoking = true;
	} else {
		pause_and_rewind(consumer);
	}
}

static int64_t within(int64_t value, int64_t least, int64_t most)
{
	if (value < least)
		return least;
	return value < most ? value : most;
}

static int make_conf(struct pr_kafka_consumer *consumer, rd_kafka_conf_t **ret, struct pr_err *err)
{
	int64_t session_ms = within(consumer->lease_ms, SESSION_MIN_MS, SESSION_MAX_MS);
	char session[24], heartbeat[24], poll_interval[24], ahead[24], ahead_kbytes[24];
	bool can_refetch_soon = rd_kafka_version() >= QUEUE_BACKOFF_VERSION;
	size_t ahead_bytes = can_refetch_soon ? consumer->share / 2 : consumer->share / 4 * 3;
	/* fetch.max.bytes follows queued.max.messages.kbytes by itself. */
	pr_kafka_pair defaults[] = {
		{ "group.id", consumer->group },
		{ "auto.offset.reset", "earliest" },
		{ "session.timeout.ms", session },
		{ "heartbeat.interval.ms", heartbeat },
		{ "max.poll.interval.ms", poll_interval },
		{ "queued.max.messages.kbytes", ahead_kbytes },
		{ "fetch.message.max.bytes", ahead },
		{ can_refetch_soon ? "queued.min.messages" : NULL, QUEUED_MIN },
		{ "fetch.queue.backoff.ms", QUEUE_BACKOFF_MS },
		{ NULL, NULL },
	};
	const struct pr_kafka_rules rules = {
		.defaults = defaults,
		.fixed = fixed,
		.refused = refused,
		.reason = "the committed position depends on it; group=NAME names the group",
	};

	snprintf(session, sizeof(session), "%jd", (intmax_t)session_ms);
	snprintf(heartbeat, sizeof(heartbeat), "%jd",
		 (intmax_t)within(session_ms / 3, 1, HEARTBEAT_MS));
	snprintf(poll_interval, sizeof(poll_interval), "%jd",
		 (intmax_t)within(session_ms, POLL_MS, SESSION_MAX_MS));
	snprintf(ahead, sizeof(ahead), "%zu", ahead_bytes);
	snprintf(ahead_kbytes, sizeof(ahead_kbytes), "%zu", ahead_bytes / 1024 + 1);
	if (pr_kafka_client_conf(&consumer->client, &rules, ret, err) < 0)
		return err->status;
	rd_kafka_conf_set_rebalance_cb(*ret, on_rebalance);
	return POSTROOM_OK;
}

int pr_kafka_check(struct pr_kafka_consumer *consumer, struct pr_err *err)
{
	rd_kafka_conf_t *conf;

	if (make_conf(consumer, &conf, err) < 0)
		return err->status;
	rd_kafka_conf_destroy(conf);
	return POSTROOM_OK;
}

static int subscribe(struct pr_kafka_consumer *consumer, struct pr_err *err)
{
	rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
	rd_kafka_resp_err_t error;

	rd_kafka_topic_partition_list_add(topics, consumer->topic, RD_KAFKA_PARTITION_UA);
	error = rd_kafka_subscribe(consumer->client.handle, topics);
	rd_kafka_topic_partition_list_destroy(topics);
	if (!error)
		return POSTROOM_OK;
	pr_kafka_leave(consumer);
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "subscribing to topic \"%s\": %s",
			  consumer->topic, rd_kafka_err2str(error));
}

int pr_kafka_join(struct pr_kafka_consumer *consumer, struct pr_err *err)
{
	static const uint64_t one = 1;
	rd_kafka_conf_t *conf;

	if (consumer->client.handle)
		return POSTROOM_OK;
	consumer->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (consumer->fd < 0)
		return pr_err_errno(err, POSTROOM_UNAVAILABLE, "creating an event descriptor");
	if (make_conf(consumer, &conf, err) < 0 ||
	    pr_kafka_client_begin(&consumer->client, RD_KAFKA_CONSUMER, conf, err) < 0) {
		close(consumer->fd);
		return err->status;
	}
	rd_kafka_poll_set_consumer(consumer->client.handle);
	consumer->queue = rd_kafka_queue_get_consumer(consumer->client.handle);
	rd_kafka_queue_io_event_enable(consumer->queue, consumer->fd, &one, sizeof(one));
	consumer->revoking = consumer->paused = false;
	consumer->joined_us = 0;
	consumer->refusal = RD_KAFKA_RESP_ERR_NO_ERROR;
	return subscribe(consumer, err);
}

/* Waits until the library has an event. Polling it early loses nothing. */
static void await_event(const struct pr_kafka_consumer *consumer, const struct pr_flight *flight,
			int64_t until_us)
{
	struct pollfd fds[2] = { [1] = { .fd = consumer->fd, .events = POLLIN } };
	uint64_t signaled;

	pr_flight_poll(flight, fds, 2, until_us);
	if (fds[1].revents && read(consumer->fd, &signaled, sizeof(signaled)) < 0)
		return;
}

static void set_paused(struct pr_kafka_consumer *consumer, bool paused)
{
	rd_kafka_topic_partition_list_t *all;

	if (!paused && !consumer->paused)
		return;
	consumer->paused = paused;
	if (rd_kafka_assignment(consumer->client.handle, &all) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return;
	if (paused)
		rd_kafka_pause_partitions(consumer->client.handle, all);
	else
		rd_kafka_resume_partitions(consumer->client.handle, all);
	rd_kafka_topic_partition_list_destroy(all);
}

void pr_kafka_return_unread(struct pr_kafka_consumer *consumer)
{
	consumer->given = 0;
	if (consumer->revoking)
		pause_and_rewind(consumer);
	set_paused(consumer, false);
}

static void on_refusal(struct pr_kafka_consumer *consumer, const rd_kafka_message_t *message)
{
	/* The library then leaves the group and rejoins it automatically. */
	if (message->err == RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED)
		return;
	consumer->refusal = message->err;
	snprintf(consumer->client.trouble, sizeof(consumer->client.trouble), "%s",
		 rd_kafka_message_errstr(message));
}

/* Serves available events, and changes that the group has made meanwhile. */
static int poll_library(struct pr_kafka_consumer *consumer, size_t limit, size_t bytes,
			struct pr_err *err)
{
	while (consumer->count < limit && consumer->bytes < bytes && !consumer->refusal) {
		rd_kafka_message_t *message;

		/* Get the memory first: the library returns each record once. */
		if (consumer->count == consumer->capacity) {
			size_t capacity = consumer->capacity ? consumer->capacity * 2 : 64;
			rd_kafka_message_t **more = reallocarray(consumer->held, capacity,
								 sizeof(rd_kafka_message_t *));

			if (!more)
				return pr_err_nomem(err);
			consumer->held = more;
			consumer->capacity = capacity;
		}
		message = rd_kafka_consumer_poll(consumer->client.handle, 0);
		if (!message)
			break;
		if (message->err) {
			on_refusal(consumer, message);
			rd_kafka_message_destroy(message);
			continue;
		}
		consumer->held[consumer->count++] = message;
		consumer->bytes += pr_kafka_size(message);
	}
	return POSTROOM_OK;
}

static int explain_outage(const struct pr_kafka_consumer *consumer, struct pr_err *err)
{
	const char *host = consumer->client.url->host;

	switch (consumer->refusal) {
	case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
	case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "there is no topic \"%s\" at %s; create it, or correct the URL",
				  consumer->topic, host);
	case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "topic \"%s\" at %s cannot be read: grant READ on it",
				  consumer->topic, host);
	case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "group \"%s\" at %s cannot be joined: grant READ on it, or "
				  "name another with group=NAME",
				  consumer->group, host);
	default:
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "reading topic \"%s\" at %s: %s",
				  consumer->topic, host, consumer->client.trouble);
	}
}

/* The library reports when all brokers are down, never when one reconnects. */
static int check_brokers(struct pr_kafka_consumer *consumer, struct pr_err *err)
{
	const struct rd_kafka_metadata *metadata;
	struct pr_kafka_client *client = &consumer->client;

	if (rd_kafka_metadata(client->handle, 0, NULL, &metadata, ANSWER_MS) !=
	    RD_KAFKA_RESP_ERR_NO_ERROR)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "no broker of %s is reachable: %s",
				  client->url->host,
				  client->trouble[0] ? client->trouble : "no answer");
	rd_kafka_metadata_destroy(metadata);
	client->down_us = 0;
	client->trouble[0] = '\0';
	return POSTROOM_OK;
}

/*
 * Fails if no records can come. last: the wait ends, so an unreachable cluster is a failure, too.
 */
static int check_progress(struct pr_kafka_consumer *consumer, bool last, struct pr_err *err)
{
	struct pr_kafka_client *client = &consumer->client;

	if (!consumer->refusal)
		consumer->refusal = rd_kafka_fatal_error(client->handle, client->trouble,
							 sizeof(client->trouble));
	if (consumer->refusal && consumer->count == 0) {
		explain_outage(consumer, err);
		pr_kafka_leave(consumer);
		return err->status;
	}
	if (pr_kafka_is_down(client) || (last && client->down_us))
		return check_brokers(consumer, err);
	return POSTROOM_OK;
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The end of the wait. A missing answer means nothing before the brokers had time to answer. */
static int64_t wait_until(const struct pr_kafka_consumer *consumer, const struct pr_flight *flight,
			  int64_t answer_until_us)
{
	int64_t first_us = consumer->joined_us + FIRST_US;

	if (!consumer->joined_us || first_us > answer_until_us)
		first_us = answer_until_us;
	return later(flight->begin_until_us, first_us);
}

static int not_joined(const struct pr_kafka_consumer *consumer, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "group \"%s\" at %s has not accepted this consumer yet: it waits for "
			  "its other members, or the broker does not answer",
			  consumer->group, consumer->client.url->host);
}

/* While no broker is reachable, no records are returned, because they could not be committed. */
int pr_kafka_fetch(struct pr_kafka_consumer *consumer, size_t limit, size_t bytes,
		   const struct pr_flight *flight, struct pr_err *err)
{
	/* The group needs our polls, even while the same records are returned repeatedly. */
	bool full = consumer->count >= limit || consumer->bytes >= bytes;
	int64_t answer_until_us = pr_mono_us() + flight->timeout_ms * 1000;

	for (;;) {
		int64_t down_us, until_us = wait_until(consumer, flight, answer_until_us);
		bool last = pr_mono_us() >= until_us;
		int status = full ? pr_kafka_keep(consumer, err)
				  : poll_library(consumer, limit, bytes, err);

		if (consumer->count == 0 && pr_stop_requested(flight->stop))
			return pr_err_set(err, POSTROOM_STOPPED, "stopped before an event came");
		if (status == POSTROOM_OK)
			status = check_progress(consumer, last || pr_stop_requested(flight->stop),
						err);
		down_us = consumer->client.down_us;
		if (status < 0 || (consumer->count > 0 && !down_us))
			return status;
		if (last)
			return consumer->joined_us ? POSTROOM_OK : not_joined(consumer, err);
		if (down_us && down_us + PR_KAFKA_PATIENCE_US < until_us)
			until_us = down_us + PR_KAFKA_PATIENCE_US;
		await_event(consumer, flight, until_us);
	}
}

/* Lists the offset after the last unacknowledged record of each partition. */
static rd_kafka_topic_partition_list_t *list_offsets(const struct pr_kafka_consumer *consumer)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);

	for (size_t i = 0; i < consumer->given; i++) {
		const rd_kafka_message_t *message = consumer->held[i];
		rd_kafka_topic_partition_t *broker_position = rd_kafka_topic_partition_list_find(
			list, consumer->topic, message->partition);

		if (!broker_position)
			broker_position = rd_kafka_topic_partition_list_add(list, consumer->topic,
									    message->partition);
		broker_position->offset = message->offset + 1;
	}
	return list;
}

static rd_kafka_resp_err_t error_of(rd_kafka_event_t *event)
{
	rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(event);
	rd_kafka_resp_err_t error = rd_kafka_event_error(event);

	for (int i = 0; partitions && i < partitions->cnt && !error; i++)
		error = partitions->elems[i].err;
	return error;
}

/* Each commit has its own queue, so that a late answer is not mistaken for the next one's. */
static rd_kafka_resp_err_t commit_and_wait(struct pr_kafka_consumer *consumer,
					   const struct pr_flight *flight)
{
	static const uint64_t one = 1;
	int64_t until_us = pr_mono_us() + flight->timeout_ms * 1000;
	rd_kafka_topic_partition_list_t *offsets = list_offsets(consumer);
	rd_kafka_queue_t *answers = rd_kafka_queue_new(consumer->client.handle);
	rd_kafka_event_t *event = NULL;
	rd_kafka_resp_err_t error;

	rd_kafka_queue_io_event_enable(answers, consumer->fd, &one, sizeof(one));
	error = rd_kafka_commit_queue(consumer->client.handle, offsets, answers, NULL, NULL);
	rd_kafka_topic_partition_list_destroy(offsets);
	while (!error && !(event = rd_kafka_queue_poll(answers, 0))) {
		if (pr_mono_us() >= until_us || pr_stop_overdue(flight->stop))
			error = RD_KAFKA_RESP_ERR__TIMED_OUT;
		else
			await_event(consumer, flight, until_us);
	}
	if (event)
		error = error_of(event);
	rd_kafka_event_destroy(event);
	rd_kafka_queue_destroy(answers);
	return error;
}

int pr_kafka_commit(struct pr_kafka_consumer *consumer, const struct pr_flight *flight,
		    struct pr_err *err)
{
	rd_kafka_resp_err_t error;

	if (consumer->given == 0)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "group \"%s\" has assigned the partitions to other members; the "
				  "records read from topic \"%s\" are redelivered",
				  consumer->group, consumer->topic);
	error = commit_and_wait(consumer, flight);
	if (error)
		return pr_err_set(
			err, POSTROOM_UNAVAILABLE,
			"committing the position of group \"%s\" in topic \"%s\" at %s: %s; "
			"its last records are redelivered",
			consumer->group, consumer->topic, consumer->client.url->host,
			rd_kafka_err2str(error));
	release_records(consumer, consumer->given);
	consumer->client.down_us = 0;
	if (consumer->revoking)
		pause_and_rewind(consumer);
	return POSTROOM_OK;
}

int pr_kafka_keep(struct pr_kafka_consumer *consumer, struct pr_err *err)
{
	if (!consumer->client.handle)
		return POSTROOM_OK;
	set_paused(consumer, true);
	return poll_library(consumer, SIZE_MAX, SIZE_MAX, err);
}

/* Leaves the group, so that other members need not wait for the session timeout. */
static void leave_group(struct pr_kafka_consumer *consumer)
{
	rd_kafka_t *handle = consumer->client.handle;
	rd_kafka_queue_t *answers = rd_kafka_queue_new(handle);
	rd_kafka_error_t *error = rd_kafka_consumer_close_queue(handle, answers);
	int64_t until_us = pr_mono_us() + LEAVE_US;

	while (!error && !rd_kafka_consumer_closed(handle) && pr_mono_us() < until_us) {
		rd_kafka_event_t *event = rd_kafka_queue_poll(answers, LEAVE_STEP_MS);

		if (event && rd_kafka_event_type(event) == RD_KAFKA_EVENT_REBALANCE)
			rd_kafka_assign(handle, NULL);
		rd_kafka_event_destroy(event);
	}
	rd_kafka_error_destroy(error);
	rd_kafka_queue_destroy(answers);
}

void pr_kafka_leave(struct pr_kafka_consumer *consumer)
{
	struct pr_kafka_client *client = &consumer->client;

	if (!client->handle)
		return;
	if (consumer->revoking)
		pause_and_rewind(consumer);
	release_records(consumer, consumer->count);
	rd_kafka_queue_io_event_enable(consumer->queue, -1, NULL, 0);
	rd_kafka_queue_destroy(consumer->queue);
	if (!client->down_us)
		leave_group(consumer);
	rd_kafka_destroy_flags(client->handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	client->handle = NULL;
	close(consumer->fd);
}
