/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nats: publishes each message to a JetStream stream.
 *
 * 1. A message is DELIVERED when a stream has acknowledged it, or reports it as a duplicate.
 * 2. Any message of a batch can be refused alone. So messages of a key are sent one after the
 *    other, each after the previous one was acknowledged; all others are sent together.
 * 3. A message that no stream accepts is returned without its name. When as many messages are
 *    unanswered as were returned, they are those.
 * 4. A message that was sent and not answered may have been delivered: it is UNREACHABLE, to be
 *    sent again with the same Nats-Msg-Id, and the connection is closed. If a later message is
 *    acknowledged, the server received it: then it FAILED.
 * 5. A reply names its call: a late one is never mistaken for another.
 * 6. A subject without a stream is UNREACHABLE by its name: the relay counts it if others are
 *    delivered. A stream that is full or forbidden is an outage unless other streams accept
 *    messages.
 */
#include "sink/sink.h"
#include "base/time.h"
#include "broker/nats/connection.h"
#include "broker/nats/message.h"
#include "broker/nats/reply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Codes of JetStream's errors. */
#define ERROR_ACCOUNT_LIMIT 10002
#define ERROR_MESSAGE_TOO_LONG 10054
#define ERROR_STORE_FAILED 10077
#define ERROR_HEADERS_TOO_LONG 10097

/*
 * The library truncates the server's errors, but never before this length. They may contain only a
 * part of a long subject.
 */
#define ERROR_WHOLE 200

struct nats_sink {
	struct pr_sink sink;
	struct pr_nats_connection conn;
	struct pr_nats_message_buffers buffers;
	struct pr_buf text;
	struct pr_buf errors;
	uint64_t calls;
};

struct sent {
	int64_t until_us;
	size_t position; /* in batch->line */
	bool waiting;
	bool by_stream; /* refused because of its stream */
};

struct batch {
	postroom_delivery *items;
	size_t count;
	struct sent *sent;
	size_t *before, *after; /* of the same key, or PR_SINK_NONE */
	size_t *line;		/* indexes of messages, in the order in which they were begun */
	size_t first;		/* all before it are begun, or wait for others of their key */
	size_t begun, oldest;	/* positions in the line; all before the oldest are answered */
	size_t waiting;
	size_t unanswered;		  /* returned without a name */
	size_t delivered, last_delivered; /* how many, and the last position of one in the line */
	bool forbidden; /* a late error may describe a problem that is solved by then */
};

static int fill_batch(struct batch *batch, postroom_delivery *items, size_t count,
		      const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_arena *arena = flight->arena;

	*batch = (struct batch){ .items = items, .count = count };
	batch->before = pr_sink_order(items, count, arena);
	batch->after = pr_arena_alloc(arena, count * sizeof(*batch->after));
	batch->line = pr_arena_alloc(arena, count * sizeof(*batch->line));
	batch->sent = pr_arena_alloc(arena, count * sizeof(*batch->sent));
	if (!batch->before || !batch->after || !batch->line || !batch->sent)
		return pr_err_nomem(err);
	memset(batch->sent, 0, count * sizeof(*batch->sent));
	for (size_t i = 0; i < count; i++)
		batch->after[i] = PR_SINK_NONE;
	for (size_t i = 0; i < count; i++) {
		if (batch->before[i] != PR_SINK_NONE)
			batch->after[batch->before[i]] = i;
	}
	return POSTROOM_OK;
}

static void set_verdict(struct batch *batch, size_t at, postroom_verdict verdict,
			const struct pr_flight *flight, const char *reason)
{
	batch->sent[at].waiting = false;
	batch->waiting--;
	pr_sink_judge(&batch->items[at], 1, verdict, flight, reason);
}

/* Errors name the subject, because a template in the URL has many. */
static void set_refused(struct nats_sink *nats, struct batch *batch, size_t at,
			postroom_verdict verdict, const char *error, const struct pr_flight *flight)
{
	struct pr_buf *text = &nats->text;

	pr_buf_reset(text);
	pr_nats_subject(&nats->buffers, nats->sink.url.path, &batch->items[at], NULL);
	pr_buf_printf(text, "publish to \"%s\": %s", pr_buf_text(&nats->buffers.subject), error);
	set_verdict(batch, at, verdict, flight, pr_buf_text(text));
}

/* Fails if the connection fails. A message that cannot be sent gets its verdict. */
static int begin_message(struct nats_sink *nats, struct batch *batch, size_t at, int64_t until_us,
			 const struct pr_flight *flight, struct pr_err *err)
{
	postroom_delivery *item = &batch->items[at];
	char reply[PR_NATS_INBOX_SIZE + 48];
	natsMsg *msg = NULL;
	natsStatus sent;
	int status = pr_nats_subject(&nats->buffers, nats->sink.url.path, item, err);

	snprintf(reply, sizeof(reply), "%s.%" PRIu64 ".%zu", nats->conn.inbox, nats->calls, at);
	if (status == POSTROOM_OK)
		status = pr_nats_compose(&nats->buffers, item, reply, &msg, err);
	if (status == POSTROOM_INVALID) {
		pr_sink_judge(item, 1, POSTROOM_REJECTED, flight, err->text);
		return POSTROOM_OK;
	}
	if (status < 0)
		return status;
	sent = natsConnection_PublishMsg(nats->conn.connection, msg);
	pr_nats_discard_later(&nats->conn, msg);
	batch->sent[at] = (struct sent){ .until_us = until_us,
					 .position = batch->begun,
					 .waiting = true };
	batch->line[batch->begun++] = at;
	batch->waiting++;
	if (sent == NATS_MAX_PAYLOAD)
		set_refused(nats, batch, at, POSTROOM_REJECTED,
			    "it is longer than the server's max_payload allows", flight);
	else if (sent == NATS_NO_MEMORY)
		return pr_err_nomem(err);
	else if (sent != NATS_OK)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the connection is lost: %s",
				  natsStatus_GetText(sent));
	pr_nats_push(&nats->conn);
	return POSTROOM_OK;
}

static void judge_error(struct nats_sink *nats, struct batch *batch, size_t at,
			const struct pr_nats_answer *answer, const struct pr_flight *flight)
{
	postroom_verdict verdict = POSTROOM_FAILED;
	const char *text = pr_buf_text(answer->text);

	if (answer->code == 0)
		text = "the answer is no acknowledgement of a stream; does something else listen "
		       "to this subject?";
	else if (answer->error == ERROR_MESSAGE_TOO_LONG || answer->error == ERROR_HEADERS_TOO_LONG)
		verdict = POSTROOM_REJECTED;
	else if (answer->error == ERROR_STORE_FAILED && strncmp(text, "maximum", 7) == 0)
		batch->sent[at].by_stream = true;
	else if (answer->code >= 500 || answer->error == ERROR_ACCOUNT_LIMIT)
		verdict = POSTROOM_UNREACHABLE;
	set_refused(nats, batch, at, verdict, text, flight);
}

/* The item of an answer. PR_SINK_NONE: the answer is for another call, or repeated. */
static size_t find_item(const struct nats_sink *nats, const struct batch *batch,
			const char *subject)
{
	size_t len = strlen(nats->conn.inbox);
	uint64_t call = 0;
	size_t at = 0;

	if (strncmp(subject, nats->conn.inbox, len) != 0 ||
	    sscanf(subject + len, ".%" SCNu64 ".%zu", &call, &at) != 2 || call != nats->calls ||
	    at >= batch->count || !batch->sent[at].waiting)
		return PR_SINK_NONE;
	return at;
}

static int read_reply(struct nats_sink *nats, struct batch *batch, natsMsg *msg,
		      const struct pr_flight *flight, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_nats_answer answer = { .text = &text };
	size_t at = find_item(nats, batch, natsMsg_GetSubject(msg));
	size_t next;

	if (at == PR_SINK_NONE)
		return POSTROOM_OK;
	pr_nats_read_reply(msg, &answer);
	if (!answer.acknowledged) {
		judge_error(nats, batch, at, &answer, flight);
		return POSTROOM_OK;
	}
	set_verdict(batch, at, POSTROOM_DELIVERED, flight, NULL);
	batch->delivered++;
	if (batch->sent[at].position > batch->last_delivered)
		batch->last_delivered = batch->sent[at].position;
	next = batch->after[at];
	if (next == PR_SINK_NONE || !pr_flight_may_begin(flight))
		return POSTROOM_OK;
	return begin_message(nats, batch, next, pr_mono_us() + flight->timeout_ms * 1000, flight,
			     err);
}

static int read_replies(struct nats_sink *nats, struct batch *batch, const struct pr_flight *flight,
			struct pr_err *err)
{
	int status = POSTROOM_OK;

	while (status == POSTROOM_OK) {
		natsMsg *msg = NULL;
		natsStatus got = natsSubscription_NextMsg(&msg, nats->conn.answers, 0);

		if (got == NATS_NO_RESPONDERS)
			batch->unanswered++;
		else if (got != NATS_OK)
			break;
		else
			status = read_reply(nats, batch, msg, flight, err);
		pr_nats_discard_later(&nats->conn, msg);
	}
	return status;
}

static void judge_unanswered(struct nats_sink *nats, struct batch *batch,
			     const struct pr_flight *flight)
{
	if (batch->unanswered == 0 || batch->unanswered < batch->waiting)
		return;
	for (size_t i = 0; i < batch->count; i++) {
		if (!batch->sent[i].waiting)
			continue;
		set_refused(nats, batch, i, POSTROOM_UNREACHABLE,
			    "no stream has this subject; create one with: nats stream add NAME "
			    "--subjects SUBJECT (or JetStream is off there)",
			    flight);
		batch->items[i].by_name = true;
	}
	batch->unanswered = 0;
}

/*
 * words is the rest of an error after the first quote: the subject and a quote, or a part of the
 * subject.
 */
static bool is_named(const char *words, const struct pr_buf *subject)
{
	size_t len = strlen(words);

	if (len > subject->len)
		return words[subject->len] == '"' &&
		       memcmp(words, subject->data, subject->len) == 0;
	return len >= ERROR_WHOLE && memcmp(words, subject->data, len) == 0;
}

static int judge_reported(struct nats_sink *nats, struct batch *batch, const char *error,
			  const struct pr_flight *flight, struct pr_err *err)
{
	const char *words = strstr(error, "Publish to \"");

	if (!words)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "%s; the user must be allowed to subscribe to _INBOX.>", error);
	words += strlen("Publish to \"");
	batch->forbidden = true;
	for (size_t i = 0; i < batch->count; i++) {
		if (!batch->sent[i].waiting ||
		    pr_nats_subject(&nats->buffers, nats->sink.url.path, &batch->items[i], NULL) <
			    0 ||
		    !is_named(words, &nats->buffers.subject))
			continue;
		batch->sent[i].by_stream = true;
		set_refused(nats, batch, i, POSTROOM_FAILED, "this user may not", flight);
	}
	return POSTROOM_OK;
}

/*
 * The server does not answer a message that the user may not publish. It reports an error that
 * names the subject.
 */
static int judge_forbidden(struct nats_sink *nats, struct batch *batch,
			   const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_buf *errors = &nats->errors;
	int status = POSTROOM_OK;
	char *rest;

	pr_buf_reset(errors);
	pr_nats_handshake_read_errors(nats->conn.handshake, errors);
	if (errors->failed)
		return pr_err_nomem(err);
	if (errors->len == 0)
		return POSTROOM_OK;
	for (char *error = strtok_r(errors->data, "\n", &rest); error && status == POSTROOM_OK;
	     error = strtok_r(NULL, "\n", &rest))
		status = judge_reported(nats, batch, error, flight, err);
	return status;
}

/*
 * Judges messages that were not answered in time. False: nothing shows that the server received
 * them, or one of them was returned.
 */
static bool judge_overdue(struct nats_sink *nats, struct batch *batch,
			  const struct pr_flight *flight)
{
	int64_t now_us = pr_mono_us();
	bool any = false;

	for (size_t i = 0; i < batch->count && batch->delivered > 0 && batch->unanswered == 0;
	     i++) {
		const struct sent *sent = &batch->sent[i];

		if (!sent->waiting || sent->until_us > now_us ||
		    sent->position > batch->last_delivered)
			continue;
		any = true;
		set_refused(
			nats, batch, i, POSTROOM_FAILED,
			"no acknowledgement in time; does something that is no stream listen to "
			"this subject?",
			flight);
	}
	return any;
}

static int64_t patience_us(struct batch *batch)
{
	while (!batch->sent[batch->line[batch->oldest]].waiting)
		batch->oldest++;
	return batch->sent[batch->line[batch->oldest]].until_us;
}

/* A full or forbidden stream is an outage if no other message is accepted either. */
static void judge_streams(struct batch *batch)
{
	for (size_t i = 0; i < batch->count && batch->delivered == 0; i++) {
		if (batch->sent[i].by_stream)
			batch->items[i].verdict = POSTROOM_UNREACHABLE;
	}
}

/*
 * Begins as many messages as may be in flight. A message that waits for another of its key is begun
 * when that one is answered.
 */
static int begin_more(struct nats_sink *nats, struct batch *batch, int64_t until_us,
		      const struct pr_flight *flight, struct pr_err *err)
{
	int status = POSTROOM_OK;

	while (status == POSTROOM_OK && batch->first < batch->count &&
	       batch->waiting < pr_flight_most(flight, batch->count) &&
	       pr_flight_may_begin(flight)) {
		size_t at = batch->first++;

		if (batch->before[at] == PR_SINK_NONE)
			status = begin_message(nats, batch, at, until_us, flight, err);
	}
	return status;
}

static int publish_batch(struct nats_sink *nats, struct batch *batch,
			 const struct pr_flight *flight, int64_t until_us, struct pr_err *err)
{
	int status;

	nats->calls++;
	status = begin_more(nats, batch, until_us, flight, err);
	while (status == POSTROOM_OK && batch->waiting > 0) {
		status = pr_nats_transfer(&nats->conn, flight, patience_us(batch), err);
		if (status < 0 && err->native == ETIMEDOUT && judge_overdue(nats, batch, flight))
			status = POSTROOM_OK;
		if (status == POSTROOM_OK)
			status = read_replies(nats, batch, flight, err);
		if (status == POSTROOM_OK)
			status = judge_forbidden(nats, batch, flight, err);
		judge_unanswered(nats, batch, flight);
		if (status == POSTROOM_OK)
			status = begin_more(nats, batch, pr_mono_us() + flight->timeout_ms * 1000,
					    flight, err);
	}
	return status;
}

static int publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
		   const struct pr_flight *flight, struct pr_err *err)
{
	struct nats_sink *nats = (struct nats_sink *)sink;
	int64_t until_us = pr_mono_us() + flight->timeout_ms * 1000;
	struct pr_err failure = { 0 };
	struct batch batch;
	int status;

	(void)err;
	if (count == 0 || !pr_flight_may_begin(flight))
		return POSTROOM_OK;
	status = fill_batch(&batch, items, count, flight, &failure);
	if (status == POSTROOM_OK)
		status = pr_nats_connect(&nats->conn, flight, until_us, &failure);
	if (status < 0) {
		if (status != POSTROOM_STOPPED)
			pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, failure.text);
		return POSTROOM_OK;
	}
	status = publish_batch(nats, &batch, flight, until_us, &failure);
	pr_nats_discard(&nats->conn);
	for (size_t i = 0; i < count && status < 0; i++) {
		if (!batch.sent[i].waiting)
			continue;
		set_verdict(&batch, i, POSTROOM_UNREACHABLE, flight, failure.text);
		/* The connection was lost: one of the messages may be the cause. */
		items[i].together = status == POSTROOM_UNAVAILABLE && failure.native != ETIMEDOUT;
	}
	if (status < 0 || batch.forbidden)
		pr_nats_disconnect(&nats->conn);
	judge_streams(&batch);
	pr_buf_trim(&nats->buffers.value);
	return POSTROOM_OK;
}

static void close_sink(struct pr_sink *sink)
{
	struct nats_sink *nats = (struct nats_sink *)sink;

	pr_nats_release(&nats->conn);
	pr_nats_message_buffers_release(&nats->buffers);
	pr_buf_release(&nats->text);
	pr_buf_release(&nats->errors);
}

static int open_sink(struct pr_sink *sink, struct pr_err *err)
{
	struct nats_sink *nats = (struct nats_sink *)sink;

	if (pr_nats_check_subject(sink->url.path, err) < 0)
		return pr_err_prefix(err, "nats");
	if (pr_nats_prepare(&nats->conn, &sink->url, err) < 0) {
		pr_nats_release(&nats->conn);
		return err->status;
	}
	return POSTROOM_OK;
}

static void probe(struct pr_sink *sink, const struct pr_flight *flight, struct pr_checkup *checkup)
{
	pr_nats_probe(&((struct nats_sink *)sink)->conn, sink->url.path, flight, checkup);
}

static const char *const schemes[] = { "nats", NULL };

static const struct pr_param params[] = {
	PR_NATS_PARAMS(struct nats_sink),
	{ .name = NULL },
};

const struct pr_sink_ops pr_sink_nats = {
	.schemes = schemes,
	.summary = "a message of a NATS JetStream stream for each message",
	.example = "nats://localhost:4222/{topic}",
	.server = true,
	.size = sizeof(struct nats_sink),
	.params = params,
	.open = open_sink,
	.publish = publish,
	.probe = probe,
	.close = close_sink,
};
