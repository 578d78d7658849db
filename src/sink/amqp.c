/* SPDX-License-Identifier: Apache-2.0 */
/*
 * amqp: one message to an exchange of RabbitMQ a message.
 *
 * 1. A message is DELIVERED when the server has confirmed it, and has not returned
 *    it before as one that no queue takes.
 * 2. Of a key one message is under way at a time: any of them may be refused by
 *    itself, and the next must not arrive then. Different keys, and messages without
 *    one, go together.
 * 3. Whatever was sent and not confirmed may have arrived: it is sent again. Late
 *    confirmations are for numbers that nobody waits for any more.
 * 4. A server that takes no messages for now is left alone: nothing more is begun,
 *    and the connection stays, since what is in it arrives in the end. What has not
 *    begun to leave is taken back: it would arrive behind what others deliver until then.
 * 5. An exchange that is refused where others are taken is no outage.
 */
#include "base/time.h"
#include "sink/amqp_message.h"
#include "sink/queue.h"
#include "sink/target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WAITING_BYTES ((size_t)512 * 1024) /* to be sent, before more is made ready */

struct amqp_sink {
	struct pr_sink sink;
	const char *exchange;
	const char *routing_key;
	bool mandatory;
	struct pr_tls_files tls;
	struct pr_amqp_link link;
	struct pr_amqp_pen pen;
	struct pr_buf exchange_name, key_name, reason;
};

/* A message on its way; the server counts them as they were sent. */
struct sent {
	size_t index;
	uint64_t place; /* of its first byte on the connection */
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

/* RabbitMQ takes any bytes for a name. */
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
static int compose(struct amqp_sink *amqp, const postroom_delivery *item, struct pr_err *err)
{
	size_t before = amqp->link.out.len;
	amqp_basic_publish_t publish = { .mandatory = amqp->mandatory };
	int status = name_target(amqp, item, err);

	if (status < 0)
		return status;
	publish.exchange = amqp_cstring_bytes(pr_buf_text(&amqp->exchange_name));
	publish.routing_key = amqp_cstring_bytes(pr_buf_text(&amqp->key_name));
	pr_amqp_put_method(&amqp->link, AMQP_BASIC_PUBLISH_METHOD, &publish);
	status = pr_amqp_put_message(&amqp->pen, &amqp->link, item, err);
	if (status == POSTROOM_INVALID)
		amqp->link.out.len = before;
	return status;
}

/* Makes ready what may begin now, as much as is worth it. */
static int begin_some(struct amqp_sink *amqp, struct batch *batch, struct pr_err *err)
{
	struct pr_amqp_link *link = &amqp->link;

	while (link->out.len - link->out_at < WAITING_BYTES &&
	       batch->left < pr_flight_most(batch->flight, batch->queue.count)) {
		size_t index = pr_queue_next(&batch->queue, batch->flight);
		uint64_t place = pr_amqp_place(link);
		postroom_delivery *item;
		int status;

		if (index == PR_SINK_NONE)
			return POSTROOM_OK;
		item = &batch->queue.items[index];
		status = compose(amqp, item, err);
		if (status == POSTROOM_INVALID) {
			pr_sink_judge(item, 1, POSTROOM_REJECTED, batch->flight, err->text);
			continue;
		}
		batch->sent[batch->count++] = (struct sent){
			.index = index,
			.place = place,
			.until_us = pr_mono_us() + batch->flight->timeout_ms * 1000,
		};
		batch->left++;
		link->tag++;
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

static postroom_delivery *item_of(const struct batch *batch, const struct sent *sent)
{
	return &batch->queue.items[sent->index];
}

static void answer(struct batch *batch, struct sent *sent, bool taken)
{
	postroom_delivery *item = item_of(batch, sent);

	if (sent->answered)
		return;
	sent->answered = true;
	batch->left--;
	/* One that was returned has its verdict. */
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

static void heed_answer(struct batch *batch, uint64_t tag, bool multiple, bool taken)
{
	size_t last;

	if (tag <= batch->base || tag > batch->base + batch->count)
		return;
	last = (size_t)(tag - batch->base - 1);
	for (size_t i = multiple ? batch->oldest : last; i <= last; i++)
		answer(batch, &batch->sent[i], taken);
	while (batch->oldest < batch->count && batch->sent[batch->oldest].answered)
		batch->oldest++;
}

static void heed_return(struct amqp_sink *amqp, struct batch *batch,
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

/* The header of a returned message says whose it is. */
static void heed_header(struct amqp_sink *amqp, struct batch *batch, amqp_bytes_t payload)
{
	const amqp_basic_properties_t *properties;
	uint64_t len;

	if (!batch->returning)
		return;
	batch->returning = false;
	if (!pr_amqp_read_header(&amqp->link, payload, &len, &properties) ||
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

/* Those not answered get the verdict; a returned one has its own. */
static void judge_rest(struct batch *batch, postroom_verdict verdict, const char *reason)
{
	for (size_t i = batch->oldest; i < batch->count; i++) {
		postroom_delivery *item = item_of(batch, &batch->sent[i]);

		if (!batch->sent[i].answered && item->verdict == POSTROOM_UNTRIED)
			pr_sink_judge(item, 1, verdict, batch->flight, reason);
	}
	batch->left = 0;
}

/* RabbitMQ ends what is longer than 255 bytes with dots. */
static bool is_cut(const char *sentence)
{
	size_t len = strlen(sentence);

	return len >= 3 && strcmp(sentence + len - 3, "...") == 0;
}

/* Whether the server's sentence has the name behind what ends in a quote, as far as it goes. */
static bool quotes(const char *sentence, const char *what, const char *name)
{
	char quoted[PR_AMQP_NAME_MAX + 20];
	size_t len = (size_t)snprintf(quoted, sizeof(quoted), "%s%s' ", what, name);
	const char *at = sentence;

	while ((at = strstr(at, what))) {
		size_t there = strlen(at) - (is_cut(sentence) ? 3 : 0);

		if (strncmp(at, quoted, is_cut(sentence) && there < len ? there : len) == 0)
			return true;
		at++;
	}
	return false;
}

/* Whether the server's sentence is about this message. */
static bool is_meant(struct amqp_sink *amqp, const postroom_delivery *item, const char *sentence)
{
	bool exchange;

	if (name_target(amqp, item, NULL) < 0)
		return false;
	exchange = quotes(sentence, "exchange '", pr_buf_text(&amqp->exchange_name));
	if (!strstr(sentence, "topic '"))
		return exchange;
	/* The exchange stands behind the topic, if there is room. */
	return quotes(sentence, "topic '", pr_buf_text(&amqp->key_name)) &&
	       (exchange || is_cut(sentence));
}

/* Of those not answered, the one with the longest body; they are at least one. */
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
 * The server has closed the channel for one of the messages, and has dropped all
 * behind it. False: it is not known for which.
 */
static bool blame(struct amqp_sink *amqp, struct batch *batch, const amqp_channel_close_t *close,
		  const char *sentence)
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

		if (batch->sent[i].answered || !is_meant(amqp, item, sentence))
			continue;
		pr_sink_judge(item, 1, POSTROOM_UNREACHABLE, batch->flight, sentence);
		found = true;
	}
	return found;
}

/* All that were not answered and are not to blame begin anew. */
static void begin_anew(struct batch *batch)
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

static int heed_close(struct amqp_sink *amqp, struct batch *batch,
		      const amqp_channel_close_t *close, struct pr_err *err)
{
	char sentence[400];
	int64_t until_us;

	snprintf(sentence, sizeof(sentence), "the server refuses (%d): %.*s", close->reply_code,
		 (int)close->reply_text.len,
		 close->reply_text.len ? (const char *)close->reply_text.bytes : "");
	if (!blame(amqp, batch, close, sentence))
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s", sentence);
	/* The lease is sure to last for one timeout, not for a second one. */
	until_us = batch->sent[batch->oldest].until_us;
	begin_anew(batch);
	/* What waits to be sent goes first; the server drops it. */
	return pr_amqp_reopen(&amqp->link, batch->flight, until_us, err);
}

static int heed(struct amqp_sink *amqp, struct batch *batch, const struct pr_amqp_frame *frame,
		struct pr_err *err)
{
	const amqp_basic_ack_t *ack = frame->decoded;
	const amqp_basic_nack_t *nack = frame->decoded;

	if (frame->type == AMQP_FRAME_HEADER)
		heed_header(amqp, batch, frame->payload);
	if (frame->type != AMQP_FRAME_METHOD)
		return POSTROOM_OK;
	switch (frame->method) {
	case AMQP_BASIC_ACK_METHOD:
		heed_answer(batch, ack->delivery_tag, ack->multiple, true);
		return POSTROOM_OK;
	case AMQP_BASIC_NACK_METHOD:
		heed_answer(batch, nack->delivery_tag, nack->multiple, false);
		return POSTROOM_OK;
	case AMQP_BASIC_RETURN_METHOD:
		heed_return(amqp, batch, frame->decoded);
		return POSTROOM_OK;
	case AMQP_CHANNEL_CLOSE_METHOD:
		return heed_close(amqp, batch, frame->decoded, err);
	default:
		return POSTROOM_OK;
	}
}

/* Those that have not begun to leave stay UNTRIED. */
static void take_back(struct amqp_sink *amqp, struct batch *batch)
{
	while (batch->count > batch->oldest &&
	       pr_amqp_take_back(&amqp->link, batch->sent[batch->count - 1].place)) {
		batch->count--;
		batch->left--;
		amqp->link.tag--;
	}
}

/* Until each that was begun has its answer and none is left that may begin. */
static int exchange(struct amqp_sink *amqp, struct batch *batch, struct pr_err *err)
{
	struct pr_amqp_frame frame;
	int status;

	for (;;) {
		status = begin_some(amqp, batch, err);
		if (status < 0 || batch->left == 0)
			return status;
		status = pr_amqp_transfer(&amqp->link, batch->flight,
					  batch->sent[batch->oldest].until_us, err);
		while (status >= 0 && (status = pr_amqp_next(&amqp->link, &frame, err)) > 0)
			status = heed(amqp, batch, &frame, err);
		if (status < 0)
			return status;
		if (amqp->link.blocked) {
			take_back(amqp, batch);
			judge_rest(batch, POSTROOM_UNREACHABLE, amqp->link.why);
			return POSTROOM_OK;
		}
	}
}

/* An exchange that is missing where others are there is the message's own trouble. */
static void judge_exchanges(struct batch *batch)
{
	for (size_t i = 0; i < batch->queue.count && batch->delivered > 0; i++) {
		if (batch->queue.items[i].verdict == POSTROOM_UNREACHABLE)
			batch->queue.items[i].verdict = POSTROOM_FAILED;
	}
}

/*
 * Whether the server was heard in the last half of the timeout. One that lives is,
 * unless its heartbeats are further apart than that.
 */
static bool is_heard(const struct amqp_sink *amqp, const struct pr_flight *flight)
{
	return pr_mono_us() - amqp->link.heard_us < flight->timeout_ms * 1000 / 2;
}

/* A failure is an error that all of the items share, and nothing has been sent. */
static int publish_batch(struct amqp_sink *amqp, postroom_delivery *items, size_t count,
			 const struct pr_flight *flight, struct pr_err *err)
{
	struct batch batch = { .flight = flight, .base = amqp->link.tag };
	struct pr_err failure = { 0 };
	int status;

	batch.sent = pr_arena_alloc(flight->arena, count * sizeof(*batch.sent));
	if (!batch.sent || !pr_queue_fill(&batch.queue, items, count, flight->arena))
		return pr_err_nomem(err);
	amqp->link.in_flight = true;
	status = exchange(amqp, &batch, &failure);
	amqp->link.in_flight = false;
	if (status == POSTROOM_OK) {
		if (!amqp->link.blocked)
			judge_exchanges(&batch);
		return POSTROOM_OK;
	}
	/* Unanswered where others were answered: if the server lives, it is about the message. */
	judge_rest(&batch,
		   failure.native == ETIMEDOUT && batch.delivered > 0 && is_heard(amqp, flight)
			   ? POSTROOM_FAILED
			   : POSTROOM_UNREACHABLE,
		   failure.text);
	pr_amqp_hang_up(&amqp->link);
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
	status = pr_amqp_connect(&amqp->link, flight, until_us, &failure);
	if (status == POSTROOM_OK && amqp->link.blocked)
		status = pr_err_set(&failure, POSTROOM_UNAVAILABLE, "%s", amqp->link.why);
	if (status == POSTROOM_OK && pr_flight_may_begin(flight))
		status = publish_batch(amqp, items, count, flight, &failure);
	if (status < 0 && status != POSTROOM_STOPPED)
		pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, failure.text);
	return POSTROOM_OK;
}

static int open_amqp(struct pr_sink *sink, struct pr_err *err)
{
	struct amqp_sink *amqp = (struct amqp_sink *)sink;

	if (pr_amqp_link_open(&amqp->link, &sink->url, sink->ops->schemes, &amqp->tls, "EXCHANGE",
			      &amqp->exchange, err) < 0)
		return err->status;
	if (pr_target_check(amqp->exchange, &name_rule, err) >= 0 &&
	    (!amqp->routing_key || pr_target_check(amqp->routing_key, &name_rule, err) >= 0))
		return POSTROOM_OK;
	pr_amqp_link_release(&amqp->link);
	return pr_err_prefix(err, "amqp");
}

static void close_amqp(struct pr_sink *sink)
{
	struct amqp_sink *amqp = (struct amqp_sink *)sink;

	pr_amqp_link_release(&amqp->link);
	pr_amqp_pen_release(&amqp->pen);
	pr_buf_release(&amqp->exchange_name);
	pr_buf_release(&amqp->key_name);
	pr_buf_release(&amqp->reason);
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
	  .help = "a message that no queue takes has failed; false: it is delivered, to nobody" },
	{ .name = "heartbeat",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct amqp_sink, link.heartbeat_ms),
	  .value = "DUR",
	  .fallback = "5s",
	  .max = (int64_t)3600 * 1000,
	  .help = "a server silent for twice as long is gone; whole seconds, 0: never" },
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
	.open = open_amqp,
	.publish = publish,
	.close = close_amqp,
};
