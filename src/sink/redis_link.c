/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Every wait ends at until_us and when the grace of a stop is over; while nothing
 *    is in flight, as soon as a stop is requested.
 * 2. A connection that is given back to its user owes no answers.
 * 3. The password leaves in AUTH and nowhere else: no error repeats it.
 * 4. What came before the end of a connection is heard, also when sending finds the end first:
 *    it may say why.
 */
#include "sink/redis_link.h"

#include "base/time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PORT 6379

int pr_redis_link_open(struct pr_redis_link *link, const struct pr_url *url,
		       const char *const *schemes, const struct pr_tls_files *tls,
		       struct pr_err *err)
{
	link->url = url;
	/* A batch is as long as its messages are. */
	link->out.max = SIZE_MAX / 2;
	if (pr_address_parse(url, url->host, PORT, &link->address, err) < 0)
		return err->status;
	if (url->path[0] && url->path[strspn(url->path, "0123456789")] == '\0')
		return pr_err_set(err, POSTROOM_SINK,
				  "redis: behind the host stands the stream's name; for the "
				  "database %s write redis://HOST/STREAM?db=%s",
				  url->path, url->path);
	if (url->user[0] && !url->password[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "redis: the user \"%s\" has no password; write "
				  "redis://USER:PASSWORD@HOST/STREAM",
				  url->user);
	return pr_tls_open(url, schemes, tls, &link->tls, err);
}

void pr_redis_hang_up(struct pr_redis_link *link)
{
	if (!link->reader)
		return;
	redisReaderFree(link->reader);
	link->reader = NULL;
	pr_wire_close(&link->wire);
}

void pr_redis_link_release(struct pr_redis_link *link)
{
	pr_redis_hang_up(link);
	pr_address_release(&link->address);
	pr_buf_release(&link->in);
	pr_buf_release(&link->out);
	SSL_CTX_free(link->tls);
}

void pr_redis_put(struct pr_redis_link *link, int count, const char **words, const size_t *lens)
{
	char *command = NULL;
	long long len = redisFormatCommandArgv(&command, count, words, lens);

	if (len < 0) {
		link->out.failed = true;
		return;
	}
	pr_buf_append(&link->out, command, (size_t)len);
	redisFreeCommand(command);
}

static int lost(const struct pr_redis_link *link, struct pr_err *err)
{
	return pr_err_prefix(err, "the connection to %s port %d is lost", link->address.host,
			     link->address.port);
}

static int flush(struct pr_redis_link *link, struct pr_err *err)
{
	if (link->out.failed)
		return pr_err_nomem(err);
	return pr_wire_flush(&link->wire, &link->out, &link->out_at, err) < 0 ? lost(link, err)
									     : POSTROOM_OK;
}

/* 0: nothing has come. */
static ssize_t take_in(struct pr_redis_link *link, struct pr_err *err)
{
	ssize_t n;

	pr_sink_trim(&link->in);
	n = pr_wire_take(&link->wire, &link->in, err);
	if (n < 0)
		return lost(link, err);
	if (n > 0 && redisReaderFeed(link->reader, link->in.data, link->in.len) != REDIS_OK)
		return pr_err_nomem(err);
	return n;
}

/* Sends what waits to be sent and takes in what has come, waiting once for either. */
static int transfer(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		    struct pr_err *err)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = link->wire.fd, .events = POLLIN } };

	/* What the server said last tells more than that it no longer listens. */
	if (flush(link, err) < 0)
		return take_in(link, err) > 0 ? POSTROOM_OK : err->status;
	if (!link->in_flight && pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before anything was sent");
	if (pr_stop_overdue(flight->stop) || pr_mono_us() >= until_us)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "no answer from %s port %d in the time there was",
				  link->address.host, link->address.port);
	if (link->wire.wants_room)
		fds[1].events |= POLLOUT;
	pr_flight_poll(flight, fds, 2, until_us);
	return fds[1].revents && take_in(link, err) < 0 ? err->status : POSTROOM_OK;
}

redisReply *pr_redis_reply(struct pr_redis_link *link, const struct pr_flight *flight,
			   int64_t until_us, struct pr_err *err)
{
	for (;;) {
		redisReader *reader = link->reader;
		void *reply = NULL;

		if (redisReaderGetReply(reader, &reply) != REDIS_OK) {
			pr_err_set(err, POSTROOM_UNAVAILABLE,
				   "%s port %d does not answer as Redis does: %s",
				   link->address.host, link->address.port, reader->errstr);
			return NULL;
		}
		if (reply)
			return reply;
		if (transfer(link, flight, until_us, err) < 0)
			return NULL;
	}
}

/* An answer that must not be an error. */
static redisReply *expect_reply(struct pr_redis_link *link, const char *command,
				const struct pr_flight *flight, int64_t until_us,
				struct pr_err *err)
{
	redisReply *reply = pr_redis_reply(link, flight, until_us, err);

	if (!reply || reply->type != REDIS_REPLY_ERROR)
		return reply;
	/* A server that does not know AUTH repeats what stands behind it. */
	if (strcmp(command, "AUTH") == 0)
		pr_err_set(err, POSTROOM_UNAVAILABLE,
			   "%s port %d refuses AUTH (%.*s): see whether user and password are as "
			   "the server has them, and whether it asks for any",
			   link->address.host, link->address.port, (int)strcspn(reply->str, " "),
			   reply->str);
	else
		pr_err_set(err, POSTROOM_UNAVAILABLE, "%s port %d refuses %s: %s",
			   link->address.host, link->address.port, command, reply->str);
	freeReplyObject(reply);
	return NULL;
}

static bool says_no(const redisReply *reply)
{
	const redisReply *value;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return false;
	value = reply->element[1];
	return value->type == REDIS_REPLY_STRING && strcmp(value->str, "no") == 0;
}

/*
 * Warns of a server that keeps its streams in memory alone. One that will not
 * say is left in peace.
 */
static int probe_disk(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		      struct pr_err *err)
{
	redisReply *reply = pr_redis_reply(link, flight, until_us, err);

	if (!reply)
		return err->status;
	if (says_no(reply) && !link->warned) {
		link->warned = true;
		pr_log_box(flight->log, PR_LOG_WARN, "SINK_WARNING");
		pr_log_str(flight->log, "sink", "redis");
		pr_log_str(flight->log, "warning",
			   "appendonly is off: what is delivered is lost when the server "
			   "dies before its next snapshot");
		pr_log_end(flight->log);
	}
	freeReplyObject(reply);
	return POSTROOM_OK;
}

static void put_auth(struct pr_redis_link *link)
{
	const char *words[] = { "AUTH", link->url->user, link->url->password };

	if (link->url->user[0]) {
		pr_redis_put(link, 3, words, NULL);
	} else {
		words[1] = link->url->password;
		pr_redis_put(link, 2, words, NULL);
	}
}

/* A transaction of nothing tells whether this user may have one at all. */
static void put_questions(struct pr_redis_link *link, const char **commands, size_t *count)
{
	pr_redis_put(link, 1, (const char *[]){ "MULTI" }, NULL);
	commands[(*count)++] = "MULTI";
	pr_redis_put(link, 1, (const char *[]){ "EXEC" }, NULL);
	commands[(*count)++] = "EXEC";
	pr_redis_put(link, 3, (const char *[]){ "CONFIG", "GET", "appendonly" }, NULL);
}

static int greet(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		 struct pr_err *err)
{
	const char *commands[5] = { NULL };
	char db[32];
	size_t count = 0;

	if (link->url->password[0]) {
		put_auth(link);
		commands[count++] = "AUTH";
	}
	if (link->db > 0) {
		snprintf(db, sizeof(db), "%" PRId64, link->db);
		pr_redis_put(link, 2, (const char *[]){ "SELECT", db }, NULL);
		commands[count++] = "SELECT";
	}
	if (!link->reads)
		put_questions(link, commands, &count);
	if (link->out.failed)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++) {
		redisReply *reply = expect_reply(link, commands[i], flight, until_us, err);

		if (!reply)
			return err->status;
		freeReplyObject(reply);
	}
	return link->reads ? POSTROOM_OK : probe_disk(link, flight, until_us, err);
}

static int connect_link(struct pr_redis_link *link, const struct pr_flight *flight,
			int64_t until_us, struct pr_err *err)
{
	int fd;
	int status = pr_flight_dial(flight, &link->address, until_us, &fd, err);

	if (status == POSTROOM_OK)
		status = pr_wire_open(&link->wire, fd, link->tls, link->address.host, err);
	if (status < 0)
		return status;
	link->reader = redisReaderCreate();
	if (!link->reader) {
		pr_wire_close(&link->wire);
		return pr_err_nomem(err);
	}
	link->connections++;
	link->out_at = 0;
	pr_sink_trim(&link->out);
	status = greet(link, flight, until_us, err);
	if (status < 0)
		pr_redis_hang_up(link);
	return status;
}

/* Nothing is owed to us between batches: whatever there is to read is a farewell. */
int pr_redis_connect(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		     struct pr_err *err)
{
	struct pr_err ignored;

	if (link->reader) {
		if (take_in(link, &ignored) == 0)
			return POSTROOM_OK;
		pr_redis_hang_up(link);
	}
	return connect_link(link, flight, until_us, err);
}
