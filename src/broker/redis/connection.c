/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Every wait ends at until_us and when the grace of a stop is over; while nothing is in flight,
 *    as soon as a stop is requested.
 * 2. Between calls, no answers are pending on a connection.
 * 3. The password is sent in AUTH only. No error repeats it.
 * 4. Data received before the end of a connection is processed, even if a send fails first: it may
 *    say why.
 */
#include "broker/redis/connection.h"

#include "base/assert.h"
#include "base/time.h"
#include "sink/sink.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PORT 6379

int pr_redis_connection_init(struct pr_redis_connection *conn, const struct pr_url *url,
			     const char *const *schemes, const struct pr_tls_files *tls,
			     struct pr_err *err)
{
	conn->url = url;
	/* The output buffer has no limit of its own: the batch has one. */
	conn->out.max = SIZE_MAX / 2;
	if (pr_address_parse(url, url->host, PORT, &conn->address, err) < 0)
		return err->status;
	if (url->path[0] && url->path[strspn(url->path, "0123456789")] == '\0')
		return pr_err_set(
			err, POSTROOM_SINK,
			"redis: the name of the stream follows the host, and it cannot "
			"be the number %s; for a database write redis://HOST/STREAM?db=%s",
			url->path, url->path);
	if (url->user[0] && !url->password[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "redis: the user \"%s\" has no password; write "
				  "redis://USER:PASSWORD@HOST/STREAM",
				  url->user);
	return pr_tls_open(url, schemes, tls, &conn->tls, err);
}

void pr_redis_disconnect(struct pr_redis_connection *conn)
{
	if (!conn->reader)
		return;
	redisReaderFree(conn->reader);
	conn->reader = NULL;
	pr_stream_close(&conn->net_stream);
}

void pr_redis_connection_release(struct pr_redis_connection *conn)
{
	pr_redis_disconnect(conn);
	pr_address_release(&conn->address);
	pr_buf_release(&conn->in);
	pr_buf_release(&conn->out);
	SSL_CTX_free(conn->tls);
}

void pr_redis_put(struct pr_redis_connection *conn, int count, const char **words,
		  const size_t *lens)
{
	char *command = NULL;
	long long len = redisFormatCommandArgv(&command, count, words, lens);

	if (len < 0) {
		conn->out.failed = true;
		return;
	}
	pr_buf_append(&conn->out, command, (size_t)len);
	redisFreeCommand(command);
}

static int fail_connection(const struct pr_redis_connection *conn, struct pr_err *err)
{
	return pr_err_prefix(err, "the connection to %s port %d is lost", conn->address.host,
			     conn->address.port);
}

static int flush(struct pr_redis_connection *conn, struct pr_err *err)
{
	if (conn->out.failed)
		return pr_err_nomem(err);
	return pr_stream_flush(&conn->net_stream, &conn->out, &conn->out_at, err) < 0
		       ? fail_connection(conn, err)
		       : POSTROOM_OK;
}

/* 0: nothing was received. */
static ssize_t recv_available(struct pr_redis_connection *conn, struct pr_err *err)
{
	ssize_t n;

	pr_buf_trim(&conn->in);
	n = pr_stream_recv_available(&conn->net_stream, &conn->in, err);
	if (n < 0)
		return fail_connection(conn, err);
	if (n > 0 && redisReaderFeed(conn->reader, conn->in.data, conn->in.len) != REDIS_OK)
		return pr_err_nomem(err);
	conn->answer += (size_t)n;
	return n;
}

/* Sends pending data and receives available data, waiting once for either. */
static int transfer(struct pr_redis_connection *conn, const struct pr_flight *flight,
		    int64_t until_us, struct pr_err *err)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = conn->net_stream.fd, .events = POLLIN } };

	/* The server's last reply explains more than a failed send. */
	if (flush(conn, err) < 0)
		return recv_available(conn, err) > 0 ? POSTROOM_OK : err->status;
	if (!conn->in_flight && pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before data was sent");
	if (pr_stop_overdue(flight->stop) || pr_mono_us() >= until_us) {
		pr_err_set(err, POSTROOM_UNAVAILABLE, "no answer from %s port %d in time",
			   conn->address.host, conn->address.port);
		err->native = ETIMEDOUT;
		return err->status;
	}
	if (conn->net_stream.wants_room)
		fds[1].events |= POLLOUT;
	pr_flight_poll(flight, fds, 2, until_us);
	return fds[1].revents && recv_available(conn, err) < 0 ? err->status : POSTROOM_OK;
}

redisReply *pr_redis_reply(struct pr_redis_connection *conn, const struct pr_flight *flight,
			   int64_t until_us, struct pr_err *err)
{
	for (;;) {
		redisReader *reader = conn->reader;
		void *reply = NULL;

		if (redisReaderGetReply(reader, &reply) != REDIS_OK) {
			pr_err_set(err, POSTROOM_UNAVAILABLE,
				   "%s port %d does not answer as Redis does: %s",
				   conn->address.host, conn->address.port, reader->errstr);
			return NULL;
		}
		if (reply) {
			conn->answer = 0;
			return reply;
		}
		if (conn->answer_max > 0 && conn->answer > conn->answer_max) {
			pr_err_set(err, POSTROOM_UNAVAILABLE,
				   "the answer of %s port %d is longer than %zu bytes",
				   conn->address.host, conn->address.port, conn->answer_max);
			err->native = EMSGSIZE;
			return NULL;
		}
		if (transfer(conn, flight, until_us, err) < 0)
			return NULL;
	}
}

/* Reads an answer that must not be an error. */
static redisReply *expect_reply(struct pr_redis_connection *conn, const char *command,
				const struct pr_flight *flight, int64_t until_us,
				struct pr_err *err)
{
	redisReply *reply = pr_redis_reply(conn, flight, until_us, err);

	if (!reply || reply->type != REDIS_REPLY_ERROR)
		return reply;
	/* A server that does not know AUTH repeats its arguments, which are secret. */
	if (strcmp(command, "AUTH") == 0)
		pr_err_set(err, POSTROOM_UNAVAILABLE,
			   "%s port %d refuses AUTH (%.*s): check user and password, and whether "
			   "the server has any",
			   conn->address.host, conn->address.port, (int)strcspn(reply->str, " "),
			   reply->str);
	else
		pr_err_set(err, POSTROOM_UNAVAILABLE, "%s port %d refuses %s: %s",
			   conn->address.host, conn->address.port, command, reply->str);
	freeReplyObject(reply);
	return NULL;
}

static bool is_off(const redisReply *reply)
{
	const redisReply *value;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return false;
	value = reply->element[1];
	return value->type == REDIS_REPLY_STRING && strcmp(value->str, "no") == 0;
}

/*
 * Warns if a server keeps its streams only in memory. A server that refuses the command is
 * accepted.
 */
static int probe_disk(struct pr_redis_connection *conn, const struct pr_flight *flight,
		      int64_t until_us, struct pr_err *err)
{
	redisReply *reply = pr_redis_reply(conn, flight, until_us, err);

	if (!reply)
		return err->status;
	if (is_off(reply) && !conn->warned) {
		conn->warned = true;
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

static void put_auth(struct pr_redis_connection *conn)
{
	const char *words[] = { "AUTH", conn->url->user, conn->url->password };

	if (conn->url->user[0]) {
		pr_redis_put(conn, 3, words, NULL);
	} else {
		words[1] = conn->url->password;
		pr_redis_put(conn, 2, words, NULL);
	}
}

/* The commands of a handshake whose replies are expected, in this order. */
struct commands {
	const char *name[4];
	size_t count;
};

static void expect(struct commands *commands, const char *name)
{
	pr_assert(commands->count < sizeof(commands->name) / sizeof(commands->name[0]));
	commands->name[commands->count++] = name;
}

/* An empty transaction shows whether this user may run transactions. */
static void put_handshake(struct pr_redis_connection *conn, struct commands *commands)
{
	pr_redis_put(conn, 1, (const char *[]){ "MULTI" }, NULL);
	expect(commands, "MULTI");
	pr_redis_put(conn, 1, (const char *[]){ "EXEC" }, NULL);
	expect(commands, "EXEC");
	pr_redis_put(conn, 3, (const char *[]){ "CONFIG", "GET", "appendonly" }, NULL);
}

static int handshake(struct pr_redis_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err)
{
	struct commands commands = { 0 };
	char db[32];

	if (conn->url->password[0]) {
		put_auth(conn);
		expect(&commands, "AUTH");
	}
	if (conn->db > 0) {
		snprintf(db, sizeof(db), "%" PRId64, conn->db);
		pr_redis_put(conn, 2, (const char *[]){ "SELECT", db }, NULL);
		expect(&commands, "SELECT");
	}
	if (!conn->reads)
		put_handshake(conn, &commands);
	if (conn->out.failed)
		return pr_err_nomem(err);
	for (size_t i = 0; i < commands.count; i++) {
		redisReply *reply = expect_reply(conn, commands.name[i], flight, until_us, err);

		if (!reply)
			return err->status;
		freeReplyObject(reply);
	}
	return conn->reads ? POSTROOM_OK : probe_disk(conn, flight, until_us, err);
}

static int connect_link(struct pr_redis_connection *conn, const struct pr_flight *flight,
			int64_t until_us, struct pr_err *err)
{
	int status = pr_stream_open(&conn->net_stream, flight, &conn->address, conn->tls, until_us,
				    err);

	if (status < 0)
		return status;
	conn->reader = redisReaderCreate();
	if (!conn->reader) {
		pr_stream_close(&conn->net_stream);
		return pr_err_nomem(err);
	}
	conn->connections++;
	conn->answer = 0;
	conn->out_at = 0;
	pr_buf_trim(&conn->out);
	status = handshake(conn, flight, until_us, err);
	if (status < 0)
		pr_redis_disconnect(conn);
	return status;
}

/* No answers are pending between batches: readable data is the server's close. */
int pr_redis_connect(struct pr_redis_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err)
{
	struct pr_err ignored;

	if (conn->reader) {
		if (recv_available(conn, &ignored) == 0)
			return POSTROOM_OK;
		pr_redis_disconnect(conn);
	}
	return connect_link(conn, flight, until_us, err);
}
