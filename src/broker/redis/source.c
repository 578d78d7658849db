/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis: a consumer group of a stream.
 *
 * 1. An entry is returned when it is in our list of pending entries on the server, and stays there
 *    until XACK: nothing is lost if we crash.
 * 2. Pending entries that never reached the caller (a broken connection, a wait that a stop has
 *    ended, a reply beyond the byte limit of a read) are requested again before new ones.
 * 3. Entries that are pending for longer than the lease, of any consumer, are claimed by the first
 *    consumer that scans for them.
 * 4. A read that is abandoned while the server waits for entries closes the connection: no late
 *    reply can be mistaken for another.
 * 5. Only a script removes a consumer, after it has checked that nothing is pending for it.
 */
#include "base/assert.h"
#include "base/time.h"
#include "broker/redis/connection.h"
#include "broker/redis/entry.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_COUNT 16	/* entries to request before their size is known */
#define GROWTH 4	/* factor by which that number may grow from read to read */
#define ANSWER_SHARES 2 /* longest answer for several entries, in multiples of source->bytes */
#define CLAIM_MAX 100
#define ID_SIZE 48
#define WORDS_AROUND 8 /* words of a command beside the ids */
#define SWEEPS_PER_LEASE 3
#define DEAD_AFTER_LEASES 10 /* of inactivity */
#define REMOVE_EVERY_MS ((int64_t)10 * 60 * 1000)

struct redis_source {
	struct pr_source source;
	const char *group; /* NULL: the source's own */
	struct pr_tls_files tls;
	struct pr_redis_connection conn;
	uint64_t connection;  /* number of the connection whose pending entries were reset */
	char from[ID_SIZE];   /* entries after it may not have been returned; "": all were */
	char cursor[ID_SIZE]; /* where the scan for abandoned entries continues */
	int64_t sweep_us;     /* when the next scan begins */
	int64_t remove_us;
	size_t count;	    /* entries to request at once, by their size so far */
	struct pr_buf held; /* ids of ID_SIZE each: returned and not acknowledged */
	struct pr_buf scratch;
};

/* A command with the ids of entries. */
struct about {
	const char *const *head, *const *tail; /* words before and after the ids; end in NULL */
	const char *(*id_at)(const void *list, size_t i);
	const void *list;
	size_t count;
};

static const char *stream_of(const struct redis_source *redis)
{
	return redis->source.url.path;
}

static const char *group_of(const struct redis_source *redis)
{
	return redis->group ? redis->group : redis->source.group;
}

static int64_t answer_by(const struct pr_flight *flight)
{
	return pr_mono_us() + flight->timeout_ms * 1000;
}

static const char *event_id(const void *list, size_t i)
{
	const struct pr_events *events = list;

	return strrchr(events->list[i].broker_position, '/') + 1;
}

static const char *held_id(const void *list, size_t i)
{
	const struct redis_source *redis = list;

	return redis->held.data + i * ID_SIZE;
}

static void put_about(struct redis_source *redis, const struct about *about)
{
	const char **words = reallocarray(NULL, about->count + WORDS_AROUND, sizeof(*words));
	size_t count = 0;

	if (!words) {
		redis->conn.out.failed = true;
		return;
	}
	for (size_t i = 0; about->head[i]; i++)
		words[count++] = about->head[i];
	for (size_t i = 0; i < about->count; i++)
		words[count++] = about->id_at(about->list, i);
	for (size_t i = 0; about->tail && about->tail[i]; i++)
		words[count++] = about->tail[i];
	pr_assert(count <= about->count + WORDS_AROUND);
	pr_redis_put(&redis->conn, (int)count, words, NULL);
	free(words);
}

static int explain_refusal(const struct redis_source *redis, const char *answer, struct pr_err *err)
{
	const char *advice = "";

	if (strncmp(answer, "WRONGTYPE", strlen("WRONGTYPE")) == 0)
		advice = "; the key is not a stream";
	else if (strncmp(answer, "NOPERM", strlen("NOPERM")) == 0)
		advice = "; the user needs this key, +xgroup, +xreadgroup, +xautoclaim, +xclaim "
			 "and +xack";
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "the stream \"%s\" at %s port %d cannot be read: %s%s", stream_of(redis),
			  redis->conn.address.host, redis->conn.address.port, answer, advice);
}

/* Returns an answer, which may be an error. NULL: there is none. */
static redisReply *read_reply(struct redis_source *redis, const struct pr_flight *flight,
			      int64_t until_us, struct pr_err *err)
{
	if (!redis->conn.out.failed)
		return pr_redis_reply(&redis->conn, flight, until_us, err);
	pr_err_nomem(err);
	return NULL;
}

static bool is_error(const redisReply *reply, const char *code)
{
	return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, code, strlen(code)) == 0;
}

static int make_group(struct redis_source *redis, const struct pr_flight *flight,
		      struct pr_err *err)
{
	redisReply *reply;
	int status = POSTROOM_OK;

	pr_redis_put(&redis->conn, 6,
		     (const char *[]){ "XGROUP", "CREATE", stream_of(redis), group_of(redis), "0",
				       "MKSTREAM" },
		     NULL);
	reply = read_reply(redis, flight, answer_by(flight), err);
	if (!reply)
		return err->status;
	/* BUSYGROUP: another instance was faster. */
	if (reply->type == REDIS_REPLY_ERROR && !is_error(reply, "BUSYGROUP"))
		status = explain_refusal(redis, reply->str, err);
	freeReplyObject(reply);
	return status;
}

/*
 * Reads the answer to a command that needs the group. If there is no group, it is created, and *ret
 * is NULL: there is nothing to read yet.
 */
static int run_group_command(struct redis_source *redis, const struct pr_flight *flight,
			     int64_t until_us, redisReply **ret, struct pr_err *err)
{
	redisReply *reply = read_reply(redis, flight, until_us, err);
	int status;

	*ret = NULL;
	if (!reply)
		return err->status;
	if (reply->type != REDIS_REPLY_ERROR) {
		*ret = reply;
		return POSTROOM_OK;
	}
	if (is_error(reply, "NOGROUP") || is_error(reply, "UNBLOCKED"))
		status = make_group(redis, flight, err);
	else
		status = explain_refusal(redis, reply->str, err);
	freeReplyObject(reply);
	return status;
}

/* How many entries to request. A whole answer is in memory; that of one entry has no limit. */
static size_t count_to_read(struct redis_source *redis, size_t limit)
{
	size_t count = limit < redis->count ? limit : redis->count;

	redis->conn.answer_max = count > 1 ? ANSWER_SHARES * redis->source.bytes : 0;
	return count;
}

static void learn_size(struct redis_source *redis, size_t bytes, size_t count)
{
	size_t fits = redis->source.bytes / (bytes / count + 1);

	redis->count = fits < redis->count * GROWTH ? fits : redis->count * GROWTH;
	if (redis->count == 0)
		redis->count = 1;
}

/* Adds entries up to the limits, and requests the rest again. Deleted entries have only an id. */
static int add_entries(struct redis_source *redis, const redisReply *entries,
		       struct pr_events *events, size_t limit, struct pr_err *err)
{
	size_t bytes = 0, first = events->count;

	for (size_t i = 0; i < entries->elements; i++) {
		const redisReply *entry = entries->element[i];
		char id[ID_SIZE];

		if (!pr_redis_is_entry(entry))
			continue;
		bytes += pr_redis_entry_size(entry);
		if (events->count - first == limit ||
		    (events->count > first && bytes > redis->source.bytes)) {
			memcpy(redis->from, redis->held.data + redis->held.len - ID_SIZE, ID_SIZE);
			break;
		}
		if (pr_redis_entry_read(entry, stream_of(redis), &redis->scratch, events) < 0)
			return pr_err_nomem(err);
		memset(id, 0, sizeof(id));
		snprintf(id, sizeof(id), "%s", entry->element[0]->str);
		pr_buf_append(&redis->held, id, sizeof(id));
		if (redis->held.failed)
			return pr_err_nomem(err);
	}
	if (events->count > first)
		learn_size(redis, bytes, events->count - first);
	return POSTROOM_OK;
}

static redisReply *entries_of(const redisReply *reply)
{
	const redisReply *stream = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1
					   ? reply->element[0]
					   : NULL;

	if (!stream || stream->type != REDIS_REPLY_ARRAY || stream->elements != 2 ||
	    stream->element[1]->type != REDIS_REPLY_ARRAY)
		return NULL;
	return stream->element[1];
}

static const char *entry_id(const void *list, size_t i)
{
	return ((const redisReply *)list)->element[i]->element[0]->str;
}

/* Entries that were deleted while pending are never returned. */
static int ack_deleted(struct redis_source *redis, redisReply *entries,
		       const struct pr_flight *flight, struct pr_err *err)
{
	const char *head[] = { "XACK", stream_of(redis), group_of(redis), NULL };
	struct about about = { .head = head, .id_at = entry_id, .list = entries };
	redisReply *reply;

	for (size_t i = 0; i < entries->elements; i++) {
		redisReply *entry = entries->element[i];

		if (pr_redis_is_entry(entry))
			continue;
		entries->element[i] = entries->element[about.count];
		entries->element[about.count++] = entry;
	}
	if (about.count == 0)
		return POSTROOM_OK;
	put_about(redis, &about);
	reply = read_reply(redis, flight, answer_by(flight), err);
	freeReplyObject(reply);
	return reply ? POSTROOM_OK : err->status;
}

/* Reads our pending entries after redis->from, which the caller may not have received. */
static int read_own(struct redis_source *redis, struct pr_events *events, size_t limit,
		    const struct pr_flight *flight, struct pr_err *err)
{
	redisReply *reply, *entries;
	char count[32];
	int status;

	snprintf(count, sizeof(count), "%zu", count_to_read(redis, limit));
	pr_redis_put(&redis->conn, 9,
		     (const char *[]){ "XREADGROUP", "GROUP", group_of(redis),
				       redis->source.consumer, "COUNT", count, "STREAMS",
				       stream_of(redis), redis->from },
		     NULL);
	status = run_group_command(redis, flight, answer_by(flight), &reply, err);
	if (!reply)
		return status;
	entries = entries_of(reply);
	if (entries && !pr_redis_have_ids(entries)) {
		freeReplyObject(reply);
		return explain_refusal(redis, "XREADGROUP was not answered as it should be", err);
	}
	redis->from[0] = '\0';
	if (entries && entries->elements > 0) {
		snprintf(redis->from, sizeof(redis->from), "%s",
			 entry_id(entries, entries->elements - 1));
		status = add_entries(redis, entries, events, limit, err);
		if (status == POSTROOM_OK)
			status = ack_deleted(redis, entries, flight, err);
	}
	freeReplyObject(reply);
	return status;
}

/* Claims some entries that other consumers have had for longer than the lease. */
static int read_abandoned(struct redis_source *redis, struct pr_events *events, size_t limit,
			  const struct pr_flight *flight, struct pr_err *err)
{
	size_t most_now = count_to_read(redis, limit < CLAIM_MAX ? limit : CLAIM_MAX);
	char count[32], idle[32];
	redisReply *reply;
	int status;

	snprintf(count, sizeof(count), "%zu", most_now);
	snprintf(idle, sizeof(idle), "%" PRId64, redis->source.lease_ms);
	pr_redis_put(&redis->conn, 8,
		     (const char *[]){ "XAUTOCLAIM", stream_of(redis), group_of(redis),
				       redis->source.consumer, idle, redis->cursor, "COUNT",
				       count },
		     NULL);
	status = run_group_command(redis, flight, answer_by(flight), &reply, err);
	if (!reply)
		return status;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
	    reply->element[0]->type != REDIS_REPLY_STRING) {
		freeReplyObject(reply);
		return explain_refusal(redis, "XAUTOCLAIM was not answered as it should be", err);
	}
	snprintf(redis->cursor, sizeof(redis->cursor), "%s", reply->element[0]->str);
	if (strcmp(redis->cursor, "0-0") == 0)
		redis->sweep_us = pr_mono_us() + redis->source.lease_ms * 1000 / SWEEPS_PER_LEASE;
	status = add_entries(redis, reply->element[1], events, limit, err);
	freeReplyObject(reply);
	return status;
}

static int read_new(struct redis_source *redis, struct pr_events *events, size_t limit,
		    const struct pr_flight *flight, struct pr_err *err)
{
	const char *words[11] = { "XREADGROUP", "GROUP", group_of(redis), redis->source.consumer,
				  "COUNT" };
	int64_t until_us = flight->begin_until_us < redis->sweep_us ? flight->begin_until_us
								    : redis->sweep_us;
	int64_t wait_ms = (until_us - pr_mono_us() + 999) / 1000;
	char count[32], block[32];
	const redisReply *entries;
	int used = 5, status;
	redisReply *reply;

	snprintf(count, sizeof(count), "%zu", count_to_read(redis, limit));
	words[used++] = count;
	/* For Redis, 0 is forever. */
	if (wait_ms > 0) {
		snprintf(block, sizeof(block), "%" PRId64, wait_ms);
		words[used++] = "BLOCK";
		words[used++] = block;
	}
	words[used++] = "STREAMS";
	words[used++] = stream_of(redis);
	words[used] = ">";
	pr_redis_put(&redis->conn, used + 1, words, NULL);
	status = run_group_command(
		redis, flight, answer_by(flight) + (wait_ms > 0 ? wait_ms * 1000 : 0), &reply, err);
	if (!reply)
		return status;
	entries = entries_of(reply);
	if (entries)
		status = add_entries(redis, entries, events, limit, err);
	freeReplyObject(reply);
	return status;
}

/* Removes a consumer without pending entries: our own, or one that has been inactive for long. */
static const char remove_script[] =
	"for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do "
	"local f = {} "
	"for i = 1, #c, 2 do f[c[i]] = c[i + 1] end "
	"if f.pending == 0 and (f.idle >= tonumber(ARGV[2]) or f.name == ARGV[3]) then "
	"redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], f.name) end end";

static void put_remove_script(struct redis_source *redis, const char *own)
{
	char idle[32];

	snprintf(idle, sizeof(idle), "%" PRId64, redis->source.lease_ms * DEAD_AFTER_LEASES);
	pr_redis_put(&redis->conn, 7,
		     (const char *[]){ "EVAL", remove_script, "1", stream_of(redis),
				       group_of(redis), idle, own },
		     NULL);
}

/* Without permission to run scripts, inactive consumers stay on the server. */
static int remove_dead_consumers(struct redis_source *redis, const struct pr_flight *flight,
				 struct pr_err *err)
{
	redisReply *reply;

	redis->remove_us = pr_mono_us() + REMOVE_EVERY_MS * 1000;
	put_remove_script(redis, "");
	reply = read_reply(redis, flight, answer_by(flight), err);
	freeReplyObject(reply);
	return reply ? POSTROOM_OK : err->status;
}

static int begin_session(struct redis_source *redis, const struct pr_flight *flight,
			 struct pr_err *err)
{
	int status = pr_redis_connect(&redis->conn, flight, answer_by(flight), err);

	if (status < 0 || redis->connection == redis->conn.connections)
		return status;
	redis->connection = redis->conn.connections;
	/* All entries pending for us are redelivered. */
	snprintf(redis->from, sizeof(redis->from), "0");
	pr_buf_reset(&redis->held);
	return POSTROOM_OK;
}

/* Reads pending, abandoned or new entries, in this order. *ret_new: new entries were requested. */
static int read_next(struct redis_source *redis, struct pr_events *events, size_t limit,
		     const struct pr_flight *flight, bool *ret_new, struct pr_err *err)
{
	*ret_new = false;
	if (redis->from[0])
		return read_own(redis, events, limit, flight, err);
	if (pr_mono_us() >= redis->sweep_us)
		return read_abandoned(redis, events, limit, flight, err);
	if (pr_mono_us() >= redis->remove_us)
		return remove_dead_consumers(redis, flight, err);
	*ret_new = true;
	return read_new(redis, events, limit, flight, err);
}

/* Larger entries than before are pending for us now. A new connection requests them one by one. */
static int ask_for_fewer(struct redis_source *redis, const struct pr_flight *flight,
			 struct pr_err *err)
{
	pr_redis_disconnect(&redis->conn);
	redis->count = 1;
	return begin_session(redis, flight, err);
}

static int read_redis(struct pr_source *source, struct pr_events *events, size_t limit,
		      const struct pr_flight *flight, struct pr_err *err)
{
	struct redis_source *redis = (struct redis_source *)source;
	size_t first = events->count;
	bool is_new = false;
	int status;

	if (pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before anything was read");
	status = begin_session(redis, flight, err);
	/* New entries are requested in any case, even when there is no time to wait. */
	while (status == POSTROOM_OK && events->count == first &&
	       (!is_new || pr_mono_us() < flight->begin_until_us)) {
		status = read_next(redis, events, limit, flight, &is_new, err);
		if (status < 0 && err->native == EMSGSIZE) {
			status = ask_for_fewer(redis, flight, err);
			is_new = false;
		}
	}
	if (status < 0)
		pr_redis_disconnect(&redis->conn);
	return status;
}

static int run_for_ids(struct redis_source *redis, const struct about *about,
		       const struct pr_flight *flight, struct pr_err *err)
{
	redisReply *reply;
	int status = pr_redis_connect(&redis->conn, flight, answer_by(flight), err);

	if (status < 0)
		return status;
	put_about(redis, about);
	redis->conn.in_flight = true;
	reply = read_reply(redis, flight, answer_by(flight), err);
	redis->conn.in_flight = false;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		status = explain_refusal(redis, reply->str, err);
	else if (!reply)
		status = err->status;
	if (status < 0)
		pr_redis_disconnect(&redis->conn);
	freeReplyObject(reply);
	return status;
}

static int ack_redis(struct pr_source *source, const struct pr_events *events,
		     const struct pr_flight *flight, struct pr_err *err)
{
	struct redis_source *redis = (struct redis_source *)source;
	const char *head[] = { "XACK", stream_of(redis), group_of(redis), NULL };
	struct about about = { head, NULL, event_id, events, events->count };
	int status = events->count > 0 ? run_for_ids(redis, &about, flight, err) : POSTROOM_OK;

	if (status == POSTROOM_OK)
		pr_buf_reset(&redis->held);
	return status;
}

static int keep_redis(struct pr_source *source, const struct pr_events *events,
		      const struct pr_flight *flight, struct pr_err *err)
{
	struct redis_source *redis = (struct redis_source *)source;
	const char *head[] = { "XCLAIM", stream_of(redis), group_of(redis), source->consumer, "0",
			       NULL };
	const char *tail[] = { "JUSTID", NULL };
	struct about about = { head, tail, event_id, events, events->count };

	return events->count > 0 ? run_for_ids(redis, &about, flight, err) : POSTROOM_OK;
}

static int open_source(struct pr_source *source, struct pr_err *err)
{
	struct redis_source *redis = (struct redis_source *)source;

	if (!source->url.path[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "redis: the URL names no stream; write it after the host, as in "
				  "%s",
				  source->ops->example);
	if (redis->group && !redis->group[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "redis: group must not be empty; without it, the group is the "
				  "handler's name");
	redis->count = FIRST_COUNT;
	redis->conn.reads = true;
	snprintf(redis->cursor, sizeof(redis->cursor), "0-0");
	return pr_redis_connection_init(&redis->conn, &source->url, source->ops->schemes,
					&redis->tls, err);
}

/* Makes our entries look pending since 1970, so that the next consumer that scans claims them. */
static void release_pending(struct redis_source *redis)
{
	const char *head[] = {
		"XCLAIM", stream_of(redis), group_of(redis), redis->source.consumer, "0", NULL
	};
	const char *tail[] = { "TIME", "0", "JUSTID", NULL };
	struct about about = { head, tail, held_id, redis, redis->held.len / ID_SIZE };

	if (about.count > 0)
		put_about(redis, &about);
}

static void close_source(struct pr_source *source)
{
	struct redis_source *redis = (struct redis_source *)source;
	struct pr_err ignored;

	if (redis->conn.reader) {
		release_pending(redis);
		put_remove_script(redis, source->consumer);
		if (!redis->conn.out.failed)
			pr_stream_flush(&redis->conn.net_stream, &redis->conn.out,
					&redis->conn.out_at, &ignored);
	}
	pr_redis_connection_release(&redis->conn);
	pr_buf_release(&redis->held);
	pr_buf_release(&redis->scratch);
}

static const char *const schemes[] = { "redis", "rediss", NULL };

static const struct pr_param params[] = {
	{ .name = "group",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct redis_source, group),
	  .value = "NAME",
	  .help = "the consumer group; without it, the handler's name" },
	{ .name = "db",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct redis_source, conn.db),
	  .value = "N",
	  .fallback = "0",
	  .max = INT32_MAX,
	  .help = "the database that holds the stream" },
	PR_TLS_PARAMS(struct redis_source, "rediss"),
	{ .name = NULL },
};

const struct pr_source_ops pr_source_redis = {
	.schemes = schemes,
	.summary = "a consumer group of a Redis stream (XREADGROUP)",
	.example = "redis://localhost:6379/orders",
	.size = sizeof(struct redis_source),
	.params = params,
	.open = open_source,
	.read = read_redis,
	.ack = ack_redis,
	.keep = keep_redis,
	.close = close_source,
};
