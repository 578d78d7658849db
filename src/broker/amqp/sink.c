/* SPDX-License-Identifier: Apache-2.0 */
/*
 * amqp: publishes each message to an exchange of RabbitMQ.
 *
 * 1. A message is DELIVERED when the server has confirmed it, and has not returned it before as
 *    unroutable.
 * 2. One message per key is in flight at a time: any of them may be refused, and then the next one
 *    must not be delivered. Different keys, and messages without a key, are sent together.
 * 3. A message that was sent and not confirmed may have been delivered: it is sent again. Late
 *    confirmations have numbers that are no longer awaited.
 * 4. If the server blocks publishers, nothing more is begun, and the connection stays open, since
 *    its content will be delivered. Messages that have not begun to leave are unsent: they would
 *    be delivered after messages of other workers.
 * 5. A refused exchange is not an outage if others are accepted.
 */
#include "sink/sink.h"
#include "base/time.h"
#include "broker/amqp/message.h"
#include "sink/queue.h"
#include "sink/target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WAITING_BYTES ((size_t)512 * 1024) /* pending bytes, before more messages are prepared */

struct amqp_sink {
	struct pr_sink sink;
	const char *exchange;
	const char *routing_key;
	bool mandatory;
	struct pr_tls_files tls;
	struct pr_amqp_connection conn;
	struct pr_amqp_message_buffers buffers;
	struct pr_buf exchange_name, key_name, reason;
};

/* A message in flight. The server numbers messages in the order in which they were sent. */
struct sent {
	size_t index;
	uint64_t send_offset; /* of its first byte on the connection */
	int64_t until_us;
	bool answered;
};

struct batch {
	const struct pr_flight *flight;
	struct pr_queue queue;
	struct sent *sent;
	size_t count;
	size_t oldest; /* all before it were answered */
	size_t left;   /* not answered */
	size_t delivered;
	uint64_t base;	/* the number before the first of them */
	bool returning; /* the next header is that of a returned message */
};

/* RabbitMQ accepts any bytes in a name. */
static const struct pr_target_rule name_rule = { .max = PR_AMQP_NAME_MAX };

/* Fills exchange_name and key_name. An empty exchange is the default one. */
static int name_target(struct amqp_sink *amqp, const postroom_delivery *item, struct pr_err *err)
{
	int status = POSTROOM_OK;

	pr_buf_reset(&amqp->exchange_name);
	pr_buf_reset(&amqp->key_name);
	if (amqp->exchange[0])
		status = pr_target_put(&amqp->exchange_name, amqp->exchange, &name_rule, item, err);
	if (status < 0)
		return status;
	return pr_target_put(&amqp->key_name, amqp->routing_key ? amqp->routing_key : "",
			     &name_rule, item, err);
}

/* Puts a message into the buffer, whole or not at all. */
static int put_message(struct amqp_sink *amqp, const postroom_delivery *item, struct pr_err *err)
{
	size_t before = amqp->conn.out.len;
	amqp_basic_publish_t publish = { .mandatory = amqp->mandatory };
	int status = name_target(amqp, item, err);

	if (status < 0)
		return status;
	publish.exchange = amqp_cstring_bytes(pr_buf_text(&amqp->exchange_name));
	publish.routing_key = amqp_cstring_bytes(pr_buf_text(&amqp->key_name));
	pr_amqp_put_method(&amqp->conn, AMQP_BASIC_PUBLISH_METHOD, &publish);
	status = pr_amqp_put_message(&amqp->buffers, &amqp->conn, item, err);
	if (status == POSTROOM_INVALID)
		amqp->conn.out.len = before;
	return status;
}

/* Prepares messages that may begin now, up to the buffer limit. */
static int begin_some(struct amqp_sink *amqp, struct batch *batch, struct pr_err *err)
{
	struct pr_amqp_connection *conn = &amqp->conn;

	while (conn->out.len - conn->out_at < WAITING_BYTES &&
	       batch->left < pr_flight_most(batch->flight, batch->queue.count)) {
		size_t index = pr_queue_next(&batch->queue, batch->flight);
		uint64_t send_offset = pr_amqp_send_offset(conn);
		postroom_delivery *item;
		int status;

		if (index == PR_SINK_NONE)
			return POSTROOM_OK;
		item = &batch->queue.items[index];
		status = put_message(amqp, item, err);
		if (status == POSTROOM_INVALID) {
			pr_sink_judge(item, 1, POSTROOM_REJECTED, batch->flight, err->text);
			continue;
		}
		batch->sent[batch->count++] = (struct sent){
			.index = index,
			.send_offset = send_offset,
			.until_us = pr_mono_us() + batch->flight->timeout_ms * 1000,
		};
		batch->left++;
		conn->tag++;
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

static postroom_delivery *item_of(const struct batch *batch, const struct sent *sent)
{
	return &batch->queue.items[sent->index];
}

static void set_verdict(struct batch *batch, struct sent *sent, bool taken)
{
	postroom_delivery *item = item_of(batch, sent);

	if (sent->answered)
		return;
	sent->answered = true;
	batch->left--;
	/* A returned message has its verdict already. */
	if (item->verdict != POSTROOM_UNTRIED)
		return;
	if (taken) {
		batch->delivered++;
		pr_sink_judge(item, 1, POSTROOM_DELIVERED, batch->flight, NULL);
	} else {
		pr_sink_judge(item, 1, POSTROOM_FAILED, batch->flight,
			      "the server would not take it (basic.nack): a queue is full, or in "
			      "trouble");
	}
}

static void handle_confirm(struct batch *batch, uint64_t tag, bool multiple, bool taken)
{
	size_t last;

	if (tag <= batch->base || tag > batch->base + batch->count)
		return;
	last = (size_t)(tag - batch->base - 1);
	for (size_t i = multiple ? batch->oldest : last; i <= last; i++)
		set_verdict(batch, &batch->sent[i], taken);
	while (batch->oldest < batch->count && batch->sent[batch->oldest].answered)
		batch->oldest++;
}

static void handle_return(struct amqp_sink *amqp, struct batch *batch,
			  const amqp_basic_return_t *returned)
{
	batch->returning = true;
	pr_buf_reset(&amqp->reason);
	pr_buf_printf(&amqp->reason, "returned (%d %.*s): the exchange \"%.*s\" ",
		      returned->reply_code, (int)returned->reply_text.len,
		      (const char *)returned->reply_text.bytes, (int)returned->exchange.len,
		      (const char *)returned->exchange.bytes);
	pr_buf_printf(&amqp->reason, "has no queue for the routing key \"%.*s\"; bind one",
		      (int)returned->routing_key.len, (const char *)returned->routing_key.bytes);
}

/* The header of a returned message contains its id. */
static void handle_returned_header(struct amqp_sink *amqp, struct batch *batch,
				   amqp_bytes_t payload)
{
	const amqp_basic_properties_t *properties;
	uint64_t len;

	if (!batch->returning)
		return;
	batch->returning = false;
	if (!pr_amqp_read_header(&amqp->conn, payload, &len, &properties) ||
	    !(properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG))
		return;
	for (size_t i = batch->oldest; i < batch->count; i++) {
		postroom_delivery *item = item_of(batch, &batch->sent[i]);

		if (!batch->sent[i].answered && strlen(item->id) == properties->message_id.len &&
		    memcmp(item->id, properties->message_id.bytes, properties->message_id.len) == 0)
			pr_sink_judge(item, 1, POSTROOM_FAILED, batch->flight,
				      pr_buf_text(&amqp->reason));
	}
}

/* Unanswered messages get the verdict; a returned one has its own. */
static void judge_rest(struct batch *batch, postroom_verdict verdict, const char *reason)
{
	for (size_t i = batch->oldest; i < batch->count; i++) {
		postroom_delivery *item = item_of(batch, &batch->sent[i]);

		if (!batch->sent[i].answered && item->verdict == POSTROOM_UNTRIED)
			pr_sink_judge(item, 1, verdict, batch->flight, reason);
	}
	batch->left = 0;
}

/* RabbitMQ truncates text after 255 bytes and appends dots. */
static bool is_cut(const char *sentence)
{
	size_t len = strlen(sentence);

	return len >= 3 && strcmp(sentence + len - 3, "...") == 0;
}

/* True if the server's sentence has the name after prefix, which ends in a quote. */
static bool quotes(const char *sentence, const char *prefix, const char *name)
{
	char quoted[PR_AMQP_NAME_MAX + 20];
	size_t len = (size_t)snprintf(quoted, sizeof(quoted), "%s%s' ", prefix, name);
	const char *at = sentence;

	while ((at = strstr(at, prefix))) {
		size_t there = strlen(at) - (is_cut(sentence) ? 3 : 0);

		if (strncmp(at, quoted, is_cut(sentence) && there < len ? there : len) == 0)
			return true;
		at++;
	}
	return false;
}

/* Whether the server's sentence is about this message. */
static bool names_message(struct amqp_sink *amqp, const postroom_delivery *item,
			  const char *sentence)
{
	bool exchange;

	if (name_target(amqp, item, NULL) < 0)
		return false;
	exchange = quotes(sentence, "exchange '", pr_buf_text(&amqp->exchange_name));
	if (!strstr(sentence, "topic '"))
		return exchange;
	/* The exchange follows the topic, if there is room. */
	return quotes(sentence, "topic '", pr_buf_text(&amqp->key_name)) &&
	       (exchange || is_cut(sentence));
}

/* Returns the unanswered message with the longest body. There is at least one. */
static postroom_delivery *find_longest(const struct batch *batch)
{
	postroom_delivery *longest = NULL;
	size_t most = 0;

	for (size_t i = batch->oldest; i < batch->count; i++) {
		postroom_delivery *item = item_of(batch, &batch->sent[i]);
		size_t len = item->body ? item->body_len : item->payload_len;

		if (!batch->sent[i].answered && (!longest || len > most)) {
			longest = item;
			most = len;
		}
	}
	return longest;
}

/*
 * The server has closed the channel because of one message, and dropped all later ones. False: the
 * message is unknown.
 */
static bool find_culprit(struct amqp_sink *amqp, struct batch *batch,
			 const amqp_channel_close_t *close, const char *sentence)
{
	bool named = pr_target_is_template(amqp->exchange) || strstr(sentence, "topic '");
	bool found = false;

	if (batch->left == 0)
		return false;
	if (close->reply_code == AMQP_PRECONDITION_FAILED) {
		pr_sink_judge(find_longest(batch), 1, POSTROOM_FAILED, batch->flight, sentence);
		return true;
	}
	for (size_t i = batch->oldest; named && i < batch->count; i++) {
		postroom_delivery *item = item_of(batch, &batch->sent[i]);

		if (batch->sent[i].answered || !names_message(amqp, item, sentence))
			continue;
		pr_sink_judge(item, 1, POSTROOM_UNREACHABLE, batch->flight, sentence);
		found = true;
	}
	return found;
}

/* Restarts all unanswered messages that are not the cause. */
static void restart_unanswered(struct batch *batch)
{
	for (size_t i = batch->oldest; i < batch->count; i++) {
		size_t index = batch->sent[i].index;

		if (batch->sent[i].answered ||
		    batch->queue.items[index].verdict != POSTROOM_UNTRIED)
			continue;
		batch->queue.begun[index] = false;
		if (index < batch->queue.first)
			batch->queue.first = index;
	}
	batch->count = batch->oldest = batch->left = 0;
	batch->base = 0;
	batch->returning = false;
}

static int handle_close(struct amqp_sink *amqp, struct batch *batch,
			const amqp_channel_close_t *close, struct pr_err *err)
{
	char sentence[400];
	int64_t until_us;

	snprintf(sentence, sizeof(sentence), "the server refuses (%d): %.*s", close->reply_code,
		 (int)close->reply_text.len,
		 close->reply_text.len ? (const char *)close->reply_text.bytes : "");
	if (!find_culprit(amqp, batch, close, sentence))
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s", sentence);
	/* The lease lasts for at least one timeout, but perhaps not for a second one. */
	until_us = batch->sent[batch->oldest].until_us;
	restart_unanswered(batch);
	/* Data that waits to be sent goes first; the server drops it. */
	return pr_amqp_reopen(&amqp->conn, batch->flight, until_us, err);
}

static int handle_sink_frame(struct amqp_sink *amqp, struct batch *batch,
			     const struct pr_amqp_frame *frame, struct pr_err *err)
{
	const amqp_basic_ack_t *ack = frame->decoded;
	const amqp_basic_nack_t *nack = frame->decoded;

	if (frame->type == AMQP_FRAME_HEADER)
		handle_returned_header(amqp, batch, frame->payload);
	if (frame->type != AMQP_FRAME_METHOD)
		return POSTROOM_OK;
	switch (frame->method) {
	case AMQP_BASIC_ACK_METHOD:
		handle_confirm(batch, ack->delivery_tag, ack->multiple, true);
		return POSTROOM_OK;
	case AMQP_BASIC_NACK_METHOD:
		handle_confirm(batch, nack->delivery_tag, nack->multiple, false);
		return POSTROOM_OK;
	case AMQP_BASIC_RETURN_METHOD:
		handle_return(amqp, batch, frame->decoded);
		return POSTROOM_OK;
	case AMQP_CHANNEL_CLOSE_METHOD:
		return handle_close(amqp, batch, frame->decoded, err);
	default:
		return POSTROOM_OK;
	}
}

/* Messages of which no byte was sent stay UNTRIED. */
static void unsend_waiting(struct amqp_sink *amqp, struct batch *batch)
{
	while (batch->count > batch->oldest &&
	       pr_amqp_unsend(&amqp->conn, batch->sent[batch->count - 1].send_offset)) {
		batch->count--;
		batch->left--;
		amqp->conn.tag--;
	}
}

/* Runs until every begun message is answered and no other message may begin. */
static int exchange_frames(struct amqp_sink *amqp, struct batch *batch, struct pr_err *err)
{
	struct pr_amqp_frame frame;
	int status;

	for (;;) {
		status = begin_some(amqp, batch, err);
		if (status < 0 || batch->left == 0)
			return status;
		status = pr_amqp_transfer(&amqp->conn, batch->flight,
					  batch->sent[batch->oldest].until_us, err);
		while (status >= 0 && (status = pr_amqp_next(&amqp->conn, &frame, err)) > 0)
			status = handle_sink_frame(amqp, batch, &frame, err);
		if (status < 0)
			return status;
		if (amqp->conn.blocked) {
			unsend_waiting(amqp, batch);
			judge_rest(batch, POSTROOM_UNREACHABLE, amqp->conn.why);
			return POSTROOM_OK;
		}
	}
}

/* A missing exchange concerns only the message if other exchanges exist. */
static void judge_exchanges(struct batch *batch)
{
	for (size_t i = 0; i < batch->queue.count && batch->delivered > 0; i++) {
		if (batch->queue.items[i].verdict == POSTROOM_UNREACHABLE)
			batch->queue.items[i].verdict = POSTROOM_FAILED;
	}
}

/* The connection was lost: one of the unanswered messages may be the cause. */
static void mark_together(struct batch *batch)
{
	for (size_t i = batch->oldest; i < batch->count; i++) {
		postroom_delivery *item = item_of(batch, &batch->sent[i]);

		if (!batch->sent[i].answered)
			item->together = item->verdict == POSTROOM_UNREACHABLE;
	}
}

/*
 * True if data was received in the last half of the timeout. A live server sends some, unless its
 * heartbeats are further apart.
 */
static bool is_server_alive(const struct amqp_sink *amqp, const struct pr_flight *flight)
{
	return pr_mono_us() - amqp->conn.received_us < flight->timeout_ms * 1000 / 2;
}

/* A failure is an error of all items, and nothing has been sent. */
static int publish_batch(struct amqp_sink *amqp, postroom_delivery *items, size_t count,
			 const struct pr_flight *flight, struct pr_err *err)
{
	struct batch batch = { .flight = flight, .base = amqp->conn.tag };
	struct pr_err failure = { 0 };
	int status;

	batch.sent = pr_arena_alloc(flight->arena, count * sizeof(*batch.sent));
	if (!batch.sent || !pr_queue_fill(&batch.queue, items, count, flight->arena))
		return pr_err_nomem(err);
	amqp->conn.in_flight = true;
	status = exchange_frames(amqp, &batch, &failure);
	amqp->conn.in_flight = false;
	if (status == POSTROOM_OK) {
		if (!amqp->conn.blocked)
			judge_exchanges(&batch);
		return POSTROOM_OK;
	}
	/* Unanswered while others were answered: if the server is alive, the message is the cause.
	 */
	judge_rest(&batch,
		   failure.native == ETIMEDOUT && batch.delivered > 0 &&
				   is_server_alive(amqp, flight)
			   ? POSTROOM_FAILED
			   : POSTROOM_UNREACHABLE,
		   failure.text);
	if (status == POSTROOM_UNAVAILABLE && failure.native != ETIMEDOUT)
		mark_together(&batch);
	pr_amqp_disconnect(&amqp->conn);
	return POSTROOM_OK;
}

static int publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
		   const struct pr_flight *flight, struct pr_err *err)
{
	struct amqp_sink *amqp = (struct amqp_sink *)sink;
	int64_t until_us = pr_mono_us() + flight->timeout_ms * 1000;
	struct pr_err failure = { 0 };
	int status;

	(void)err;
	if (count == 0 || !pr_flight_may_begin(flight))
		return POSTROOM_OK;
	status = pr_amqp_connect(&amqp->conn, flight, until_us, &failure);
	if (status == POSTROOM_OK && amqp->conn.blocked)
		status = pr_err_set(&failure, POSTROOM_UNAVAILABLE, "%s", amqp->conn.why);
	if (status == POSTROOM_OK && pr_flight_may_begin(flight))
		status = publish_batch(amqp, items, count, flight, &failure);
	if (status < 0 && status != POSTROOM_STOPPED)
		pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, failure.text);
	return POSTROOM_OK;
}

static int open_sink(struct pr_sink *sink, struct pr_err *err)
{
	struct amqp_sink *amqp = (struct amqp_sink *)sink;

	if (pr_amqp_connection_init(&amqp->conn, &sink->url, sink->ops->schemes, &amqp->tls,
				    "EXCHANGE", err) < 0)
		return err->status;
	amqp->exchange = amqp->conn.name;
	if (pr_target_check(amqp->exchange, &name_rule, err) >= 0 &&
	    (!amqp->routing_key || pr_target_check(amqp->routing_key, &name_rule, err) >= 0))
		return POSTROOM_OK;
	pr_amqp_connection_release(&amqp->conn);
	return pr_err_prefix(err, "amqp");
}

static void close_sink(struct pr_sink *sink)
{
	struct amqp_sink *amqp = (struct amqp_sink *)sink;

	pr_amqp_connection_release(&amqp->conn);
	pr_amqp_message_buffers_release(&amqp->buffers);
	pr_buf_release(&amqp->exchange_name);
	pr_buf_release(&amqp->key_name);
	pr_buf_release(&amqp->reason);
}

static void probe(struct pr_sink *sink, const struct pr_flight *flight, struct pr_checkup *checkup)
{
	struct amqp_sink *amqp = (struct amqp_sink *)sink;

	pr_amqp_probe(&amqp->conn, amqp->exchange, amqp->routing_key, flight, checkup);
}

static const char *const schemes[] = { "amqp", "amqps", NULL };

static const struct pr_param params[] = {
	{ .name = "routing_key",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct amqp_sink, routing_key),
	  .value = "TEXT",
	  .help = "the routing key, with {topic} and its kin; without it the topic" },
	{ .name = "mandatory",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct amqp_sink, mandatory),
	  .fallback = "true",
	  .help = "a message that reaches no queue has failed; false: it counts as delivered" },
	{ .name = "heartbeat",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct amqp_sink, conn.heartbeat_ms),
	  .value = "DUR",
	  .fallback = "5s",
	  .max = (int64_t)3600 * 1000,
	  .help = "the relay gives up a server that is silent for twice as long; whole "
		  "seconds, 0: never" },
	PR_TLS_PARAMS(struct amqp_sink, "amqps"),
	{ .name = NULL },
};

const struct pr_sink_ops pr_sink_amqp = {
	.schemes = schemes,
	.summary = "a message to an exchange of RabbitMQ, confirmed, for each message",
	.example = "amqp://guest:guest@localhost:5672/%2F/events",
	.server = true,
	.size = sizeof(struct amqp_sink),
	.params = params,
	.open = open_sink,
	.publish = publish,
	.probe = probe,
	.close = close_sink,
};
