/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis: one stream entry per message.
 *
 * 1. A message is DELIVERED when the server has answered its XADD with an id, and, with wait=,
 *    when that many replicas have it, too.
 * 2. A batch is one MULTI … EXEC in one write. The server checks each XADD before the first of
 *    them runs, so that no error of the server can accept a message and refuse the one before it.
 *    A refused XADD refuses all of them: the others are sent again without it, in the same call.
 * 3. A failure within EXEC depends on the stream's name, which the messages of a key share unless
 *    {tenant} is part of it: then a message behind one of another tenant waits for the next call.
 * 4. A message that was sent and not answered may have been delivered: it is UNREACHABLE, to be
 *    sent again, and the connection is closed, so that no late reply can be mistaken for another.
 * 5. A refusal because of the server's state (loading, read-only, full) is UNREACHABLE; one
 *    because of the message or its stream is FAILED.
 */
#include "sink/sink.h"
#include "base/assert.h"
#include "base/time.h"
#include "broker/redis/connection.h"
#include "sink/attributes.h"
#include "sink/target.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX 40 /* of a command; XADD with all its fields has 32 */

struct redis_sink {
	struct pr_sink sink;
	int64_t maxlen;
	int64_t wait;
	int64_t wait_timeout_ms;
	struct pr_tls_files tls;
	struct pr_redis_connection conn;
	struct pr_buf name;
};

/* A message of the transaction. */
struct sent {
	postroom_delivery *item;
	bool by_name; /* refused because of the name of its stream */
};

struct batch {
	struct sent *sent;
	size_t count;
	size_t queued; /* accepted into the transaction */
	size_t refused;
};

/* Redis accepts any bytes in a name. */
static const struct pr_target_rule name_rule = { .max = 0 };

struct words {
	const char *text[WORDS_MAX];
	size_t len[WORDS_MAX];
	int count;
};

static void add_word(struct words *words, const char *text, size_t len)
{
	pr_assert(words->count < WORDS_MAX);
	words->text[words->count] = text;
	words->len[words->count++] = len;
}

static void add_field(struct words *words, const char *name, const char *value)
{
	add_word(words, name, strlen(name));
	add_word(words, value ? value : "", value ? strlen(value) : 0);
}

static void put_message(struct redis_sink *redis, const postroom_delivery *item)
{
	struct words words = { .count = 0 };
	char maxlen[32], attempt[32], created[PR_RFC3339_SIZE];

	add_field(&words, "XADD", pr_buf_text(&redis->name));
	if (redis->maxlen > 0) {
		snprintf(maxlen, sizeof(maxlen), "%" PRId64, redis->maxlen);
		add_field(&words, "MAXLEN", "~");
		add_word(&words, maxlen, strlen(maxlen));
	}
	add_word(&words, "*", 1);
	snprintf(attempt, sizeof(attempt), "%d", item->attempt);
	pr_rfc3339(item->created_at_us, created);
	/* Redis stores the names once if all entries have the same fields. */
	add_field(&words, "id", item->id);
	add_field(&words, "namespace", item->ns);
	add_field(&words, "topic", item->topic);
	add_field(&words, "key", item->key);
	add_field(&words, "tenant_id", item->tenant_id);
	add_field(&words, "dedupe_key", item->dedupe_key);
	add_field(&words, "correlation_id", item->correlation_id);
	add_field(&words, "attempt", attempt);
	add_field(&words, "created_at", created);
	add_field(&words, "headers", item->headers);
	add_field(&words, "content_type", item->content_type);
	add_word(&words, "payload", strlen("payload"));
	add_word(&words, item->payload, item->payload_len);
	if (item->body) {
		add_word(&words, "body", strlen("body"));
		add_word(&words, item->body, item->body_len);
	}
	pr_redis_put(&redis->conn, words.count, words.text, words.len);
}

/* False for a batch that is sent again without the refused messages, which have a verdict. */
static bool all_untried(const postroom_delivery *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (items[i].verdict != POSTROOM_UNTRIED)
			return false;
	}
	return true;
}

/* Finds the items that must wait for the next call. *ret is NULL if there are none. */
static int mark_held(const struct redis_sink *redis, postroom_delivery *items, size_t count,
		     const struct pr_flight *flight, bool **ret, struct pr_err *err)
{
	size_t *before;
	bool *held;

	*ret = NULL;
	if (!pr_target_uses(redis->sink.url.path, "tenant") && all_untried(items, count))
		return POSTROOM_OK;
	before = pr_sink_order(items, count, flight->arena);
	held = pr_arena_alloc(flight->arena, count * sizeof(*held));
	if (!before || !held)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++)
		held[i] = before[i] != PR_SINK_NONE &&
			  (held[before[i]] || items[before[i]].verdict != POSTROOM_UNTRIED ||
			   !pr_sink_same_tenant(&items[i], &items[before[i]]));
	*ret = held;
	return POSTROOM_OK;
}

/* The protocol sends the length of every word before it. */
static const struct pr_protocol protocol = { .name = "Redis" };

/*
 * Rejects messages that cannot be sent. release_followers() revokes that if an earlier message of
 * the key was not delivered.
 */
static int reject(struct redis_sink *redis, postroom_delivery *items, size_t count,
		  const struct pr_flight *flight, struct pr_err *err)
{
	for (size_t i = 0; i < count; i++) {
		int status = POSTROOM_OK;

		if (items[i].verdict == POSTROOM_UNTRIED)
			status = pr_attributes_check(&items[i], &protocol, &redis->name, err);
		if (status == POSTROOM_INVALID)
			pr_sink_judge(&items[i], 1, POSTROOM_REJECTED, flight, err->text);
		else if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

/* Waits at most half of the timeout, so that the answer comes in time. */
static void put_wait(struct redis_sink *redis, const struct pr_flight *flight)
{
	int64_t half_ms = flight->timeout_ms / 2 > 0 ? flight->timeout_ms / 2 : 1;
	char replicas[32], limit[32];

	snprintf(replicas, sizeof(replicas), "%" PRId64, redis->wait);
	snprintf(limit, sizeof(limit), "%" PRId64,
		 redis->wait_timeout_ms < half_ms ? redis->wait_timeout_ms : half_ms);
	pr_redis_put(&redis->conn, 3, (const char *[]){ "WAIT", replicas, limit }, NULL);
}

/* Puts the transaction into the buffer. On failure, nothing of it was sent. */
static int put_transaction(struct redis_sink *redis, postroom_delivery *items, size_t count,
			   const struct pr_flight *flight, struct batch *batch, struct pr_err *err)
{
	bool *held = NULL;
	int status = reject(redis, items, count, flight, err);

	if (status == POSTROOM_OK)
		status = mark_held(redis, items, count, flight, &held, err);
	batch->sent = pr_arena_alloc(flight->arena, count * sizeof(*batch->sent));
	if (!batch->sent)
		return pr_err_nomem(err);
	pr_redis_put(&redis->conn, 1, (const char *[]){ "MULTI" }, NULL);
	for (size_t i = 0; i < count && status == POSTROOM_OK; i++) {
		if (items[i].verdict != POSTROOM_UNTRIED || (held && held[i]))
			continue;
		pr_buf_reset(&redis->name);
		status = pr_target_put(&redis->name, redis->sink.url.path, &name_rule, &items[i],
				       err);
		if (status == POSTROOM_INVALID) {
			pr_sink_judge(&items[i], 1, POSTROOM_REJECTED, flight, err->text);
			status = POSTROOM_OK;
			continue;
		}
		if (status == POSTROOM_OK)
			put_message(redis, &items[i]);
		batch->sent[batch->count++] = (struct sent){ .item = &items[i] };
	}
	pr_redis_put(&redis->conn, 1, (const char *[]){ "EXEC" }, NULL);
	if (redis->wait > 0)
		put_wait(redis, flight);
	if (status == POSTROOM_OK && redis->conn.out.failed)
		return pr_err_nomem(err);
	return status;
}

static bool begins_with_one_of(const char *text, const char *const *codes)
{
	size_t len = strcspn(text, " ");

	for (; *codes; codes++) {
		if (strlen(*codes) == len && memcmp(text, *codes, len) == 0)
			return true;
	}
	return false;
}

static bool is_outage(const char *error)
{
	static const char *const codes[] = { "LOADING", "READONLY",   "MASTERDOWN", "CLUSTERDOWN",
					     "MISCONF", "NOREPLICAS", "OOM",	    "BUSY",
					     "NOAUTH",	"WRONGPASS",  NULL };

	return begins_with_one_of(error, codes);
}

static bool is_about_name(const char *error)
{
	static const char *const codes[] = { "NOPERM", "MOVED", "ASK", "TRYAGAIN", NULL };

	return begins_with_one_of(error, codes);
}

/* Errors name the stream, because a template in the URL has many. */
static void set_refused(struct redis_sink *redis, postroom_delivery *item, postroom_verdict verdict,
			const char *error, const struct pr_flight *flight)
{
	struct pr_buf *text = &redis->name;

	pr_buf_reset(text);
	pr_buf_puts(text, "XADD to \"");
	pr_target_put(text, redis->sink.url.path, &name_rule, item, NULL);
	pr_buf_printf(text, "\": %s", error);
	pr_sink_judge(item, 1, verdict, flight, pr_buf_text(text));
}

static void judge_reply(struct redis_sink *redis, struct batch *batch, struct sent *sent,
			const redisReply *reply, const struct pr_flight *flight)
{
	postroom_verdict verdict = POSTROOM_FAILED;

	if (reply->type == REDIS_REPLY_STATUS) {
		batch->queued++;
		return;
	}
	if (reply->type == REDIS_REPLY_STRING) {
		pr_verdict_set(sent->item, POSTROOM_DELIVERED, flight->arena, flight->policy, NULL,
			       0);
		return;
	}
	batch->refused++;
	if (reply->type != REDIS_REPLY_ERROR) {
		set_refused(redis, sent->item, verdict, "the answer is no id", flight);
		return;
	}
	sent->by_name = is_about_name(reply->str);
	if (sent->by_name || is_outage(reply->str))
		verdict = POSTROOM_UNREACHABLE;
	set_refused(redis, sent->item, verdict, reply->str, flight);
}

/* Judges the remaining messages. together: one of them may be the cause. */
static void judge_rest(struct batch *batch, const struct pr_flight *flight, bool together,
		       const char *reason)
{
	for (size_t i = 0; i < batch->count; i++) {
		postroom_delivery *item = batch->sent[i].item;

		if (item->verdict != POSTROOM_UNTRIED)
			continue;
		pr_sink_judge(item, 1, POSTROOM_UNREACHABLE, flight, reason);
		item->together = together;
	}
}

static void judge_exec(struct redis_sink *redis, struct batch *batch, const redisReply *reply,
		       const struct pr_flight *flight)
{
	size_t at = 0;

	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == batch->queued) {
		for (size_t i = 0; i < batch->count; i++) {
			if (batch->sent[i].item->verdict == POSTROOM_UNTRIED)
				judge_reply(redis, batch, &batch->sent[i], reply->element[at++],
					    flight);
		}
		return;
	}
	/* EXECABORT: nothing was written, so messages that were not refused stay UNTRIED. */
	if (batch->refused > 0)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		judge_rest(batch, flight, false,
			   reply->str[0] ? reply->str : "EXEC failed without a reason");
	else
		judge_rest(batch, flight, false, "EXEC was not answered by a list");
}

/* A refused name is not an outage if others are accepted. */
static void judge_names(struct batch *batch)
{
	for (size_t i = 0; i < batch->count && batch->queued > 0; i++) {
		if (batch->sent[i].by_name)
			batch->sent[i].item->verdict = POSTROOM_FAILED;
	}
}

/* The messages are in the stream, but perhaps not on the replicas. */
static void mark_unconfirmed(struct batch *batch, const struct pr_flight *flight,
			     const char *reason)
{
	for (size_t i = 0; i < batch->count; i++) {
		if (batch->sent[i].item->verdict == POSTROOM_DELIVERED)
			pr_sink_judge(batch->sent[i].item, 1, POSTROOM_UNREACHABLE, flight, reason);
	}
}

/* The messages are in the stream, and on the replicas if they must be. */
static void mark_delivered(struct batch *batch, const struct pr_flight *flight)
{
	for (size_t i = 0; i < batch->count; i++) {
		if (batch->sent[i].item->verdict == POSTROOM_DELIVERED)
			pr_sink_judge(batch->sent[i].item, 1, POSTROOM_DELIVERED, flight, NULL);
	}
}

static void judge_wait(const struct redis_sink *redis, struct batch *batch, const redisReply *reply,
		       const struct pr_flight *flight)
{
	char reason[200];

	if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= redis->wait) {
		mark_delivered(batch, flight);
		return;
	}
	if (reply->type == REDIS_REPLY_ERROR)
		snprintf(reason, sizeof(reason), "WAIT: %.150s", reply->str);
	else
		snprintf(reason, sizeof(reason),
			 "it is in the stream, but %lld replicas have it instead of %" PRId64,
			 reply->integer, redis->wait);
	mark_unconfirmed(batch, flight, reason);
}

/* Reads all the answers to a transaction; each verdict is set as soon as it is known. */
static int read_replies(struct redis_sink *redis, struct batch *batch,
			const struct pr_flight *flight, int64_t until_us, struct pr_err *err)
{
	redisReply *reply = pr_redis_reply(&redis->conn, flight, until_us, err); /* of MULTI */

	for (size_t i = 0; i < batch->count && reply; i++) {
		freeReplyObject(reply);
		reply = pr_redis_reply(&redis->conn, flight, until_us, err);
		if (reply)
			judge_reply(redis, batch, &batch->sent[i], reply, flight);
	}
	if (!reply)
		return err->status;
	freeReplyObject(reply);
	reply = pr_redis_reply(&redis->conn, flight, until_us, err);
	if (!reply)
		return err->status;
	judge_exec(redis, batch, reply, flight);
	judge_names(batch);
	freeReplyObject(reply);
	if (redis->wait == 0) {
		mark_delivered(batch, flight);
		return POSTROOM_OK;
	}
	reply = pr_redis_reply(&redis->conn, flight, until_us, err);
	if (!reply) {
		mark_unconfirmed(batch, flight, err->text);
		return err->status;
	}
	judge_wait(redis, batch, reply, flight);
	freeReplyObject(reply);
	return POSTROOM_OK;
}

/* A message that was not delivered after another undelivered one is not at fault. */
static void release_followers(postroom_delivery *items, size_t count,
			      const struct pr_flight *flight)
{
	size_t *before = pr_sink_order(items, count, flight->arena);

	for (size_t i = 0; before && i < count; i++) {
		bool together = items[i].together;

		if (before[i] == PR_SINK_NONE || items[i].verdict == POSTROOM_DELIVERED ||
		    items[before[i]].verdict == POSTROOM_DELIVERED)
			continue;
		pr_sink_judge(&items[i], 1, POSTROOM_UNTRIED, flight, NULL);
		items[i].together = together;
	}
}

/* Some were not delivered only because others were refused, not because of the server. */
static bool has_unblamed(const struct batch *batch)
{
	bool found = false;

	for (size_t i = 0; i < batch->count; i++) {
		if (batch->sent[i].item->verdict == POSTROOM_UNREACHABLE)
			return false;
		found = found || batch->sent[i].item->verdict == POSTROOM_UNTRIED;
	}
	return found;
}

/*
 * Sends the UNTRIED messages in one transaction. On failure nothing was sent, and the error applies
 * to all of them. *ret_again: another transaction can deliver some of them.
 */
static int publish_batch(struct redis_sink *redis, postroom_delivery *items, size_t count,
			 const struct pr_flight *flight, bool *ret_again, struct pr_err *err)
{
	int64_t until_us = pr_mono_us() + flight->timeout_ms * 1000;
	struct batch batch = { 0 };
	int status = pr_redis_connect(&redis->conn, flight, until_us, err);

	*ret_again = false;
	if (status < 0 || !pr_flight_may_begin(flight))
		return status;
	status = put_transaction(redis, items, count, flight, &batch, err);
	if (status < 0) {
		pr_redis_disconnect(&redis->conn);
		return status;
	}
	redis->conn.in_flight = true;
	status = read_replies(redis, &batch, flight, until_us, err);
	redis->conn.in_flight = false;
	/* A transaction that contains a refused command is never executed. */
	if (status < 0 && batch.refused == 0)
		judge_rest(&batch, flight,
			   status == POSTROOM_UNAVAILABLE && err->native != ETIMEDOUT, err->text);
	*ret_again = has_unblamed(&batch);
	if (status < 0)
		pr_redis_disconnect(&redis->conn);
	return POSTROOM_OK;
}

static int publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
		   const struct pr_flight *flight, struct pr_err *err)
{
	struct redis_sink *redis = (struct redis_sink *)sink;
	bool again = true, arrived = true, reached = true;
	struct pr_err failure = { 0 };
	int status = POSTROOM_OK;

	(void)err;
	/* A whole transaction is in flight at once, so the rest waits for the next call. */
	count = pr_flight_most(flight, count);
	while (count > 0 && again && status == POSTROOM_OK && pr_flight_may_begin(flight))
		status = publish_batch(redis, items, count, flight, &again, &failure);
	for (size_t i = 0; i < count; i++) {
		if (status < 0 && status != POSTROOM_STOPPED &&
		    items[i].verdict == POSTROOM_UNTRIED)
			pr_sink_judge(&items[i], 1, POSTROOM_UNREACHABLE, flight, failure.text);
		arrived = arrived && items[i].verdict == POSTROOM_DELIVERED;
		reached = reached && items[i].verdict != POSTROOM_UNREACHABLE;
	}
	if (!arrived)
		release_followers(items, count, flight);
	/* After a failover the name may lead to another server. */
	if (!reached)
		pr_redis_disconnect(&redis->conn);
	return POSTROOM_OK;
}

static int open_sink(struct pr_sink *sink, struct pr_err *err)
{
	struct redis_sink *redis = (struct redis_sink *)sink;

	if (pr_target_check(sink->url.path, &name_rule, err) < 0)
		return pr_err_prefix(err, "redis");
	return pr_redis_connection_init(&redis->conn, &sink->url, sink->ops->schemes, &redis->tls,
					err);
}

static void close_sink(struct pr_sink *sink)
{
	struct redis_sink *redis = (struct redis_sink *)sink;

	pr_redis_connection_release(&redis->conn);
	pr_buf_release(&redis->name);
}

static void probe(struct pr_sink *sink, const struct pr_flight *flight, struct pr_checkup *checkup)
{
	pr_redis_probe(&((struct redis_sink *)sink)->conn, sink->url.path, flight, checkup);
}

static const char *const schemes[] = { "redis", "rediss", NULL };

static const struct pr_param params[] = {
	{ .name = "db",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct redis_sink, conn.db),
	  .value = "N",
	  .fallback = "0",
	  .max = INT32_MAX,
	  .help = "the database that holds the stream" },
	{ .name = "maxlen",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct redis_sink, maxlen),
	  .value = "N",
	  .fallback = "0",
	  .help = "cut the stream to about this many entries, read or not; 0: never" },
	{ .name = "wait",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct redis_sink, wait),
	  .value = "N",
	  .fallback = "0",
	  .max = 100,
	  .help = "replicas that must have a message before it counts as delivered" },
	{ .name = "wait_timeout",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct redis_sink, wait_timeout_ms),
	  .value = "DUR",
	  .fallback = "1s",
	  .min = 1,
	  .help = "how long to wait for them, at most half the publish timeout" },
	PR_TLS_PARAMS(struct redis_sink, "rediss"),
	{ .name = NULL },
};

const struct pr_sink_ops pr_sink_redis = {
	.schemes = schemes,
	.summary = "an entry of a Redis stream for each message (XADD)",
	.example = "redis://localhost:6379/{topic}",
	.server = true,
	.size = sizeof(struct redis_sink),
	.params = params,
	.open = open_sink,
	.publish = publish,
	.probe = probe,
	.close = close_sink,
};
