/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Every wait ends at until_us and when the grace of a stop is over; while nothing
 *    is in flight, as soon as a stop is requested.
 * 2. A connection that is given back to its user owes no answers.
 * 3. The password leaves in AUTH and nowhere else: no error repeats it.
 */
#include "sink/redis_link.h"

#include "base/time.h"

#include <string.h>
#include <unistd.h>

void pr_redis_hang_up(struct pr_redis_link *link)
{
	if (link->context)
		redisFree(link->context);
	link->context = NULL;
}

static int lost(const struct pr_redis_link *link, const char *why, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the connection to %s port %d is lost: %s",
			  link->address.host, link->address.port, why);
}

/* Sends what waits to be sent and takes in what has come, waiting once for either. */
static int transfer(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		    struct pr_err *err)
{
	redisContext *context = link->context;
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = context->fd, .events = POLLIN } };
	int sent = 0;

	if (redisBufferWrite(context, &sent) != REDIS_OK)
		return lost(link, context->errstr, err);
	if (!link->in_flight && pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before anything was sent");
	if (pr_stop_overdue(flight->stop) || pr_mono_us() >= until_us)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "no answer from %s port %d in the time there was",
				  link->address.host, link->address.port);
	if (!sent)
		fds[1].events |= POLLOUT;
	pr_flight_poll(flight, fds, 2, until_us);
	if ((fds[1].revents & ~POLLOUT) && redisBufferRead(context) != REDIS_OK)
		return lost(link, context->errstr, err);
	return POSTROOM_OK;
}

redisReply *pr_redis_reply(struct pr_redis_link *link, const struct pr_flight *flight,
			   int64_t until_us, struct pr_err *err)
{
	for (;;) {
		redisReader *reader = link->context->reader;
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
		pr_log_event(flight->log, PR_LOG_WARN, "OUTBOX_SINK_WARNING");
		pr_log_str(flight->log, "sink", "redis");
		pr_log_str(flight->log, "warning",
			   "appendonly is off: what is delivered is lost when the server "
			   "dies before its next snapshot");
		pr_log_end(flight->log);
	}
	freeReplyObject(reply);
	return POSTROOM_OK;
}

/* A transaction of nothing tells whether this user may have one at all. */
static int greet(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		 struct pr_err *err)
{
	const struct pr_url *url = link->url;
	const char *commands[5] = { NULL };
	size_t count = 0;

	if (url->password[0]) {
		if (url->user[0])
			redisAppendCommand(link->context, "AUTH %s %s", url->user, url->password);
		else
			redisAppendCommand(link->context, "AUTH %s", url->password);
		commands[count++] = "AUTH";
	}
	if (link->db > 0) {
		redisAppendCommand(link->context, "SELECT %lld", (long long)link->db);
		commands[count++] = "SELECT";
	}
	redisAppendCommand(link->context, "MULTI");
	commands[count++] = "MULTI";
	redisAppendCommand(link->context, "EXEC");
	commands[count++] = "EXEC";
	redisAppendCommand(link->context, "CONFIG GET appendonly");
	if (link->context->err)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++) {
		redisReply *reply = expect_reply(link, commands[i], flight, until_us, err);

		if (!reply)
			return err->status;
		freeReplyObject(reply);
	}
	return probe_disk(link, flight, until_us, err);
}

static int connect_link(struct pr_redis_link *link, const struct pr_flight *flight,
			int64_t until_us, struct pr_err *err)
{
	int fd;
	int status = pr_flight_dial(flight, &link->address, until_us, &fd, err);

	if (status < 0)
		return status;
	link->context = redisConnectFd(fd);
	if (!link->context) {
		close(fd);
		return pr_err_nomem(err);
	}
	status = link->context->err ? pr_err_nomem(err) : greet(link, flight, until_us, err);
	if (status < 0)
		pr_redis_hang_up(link);
	return status;
}

/* Nothing is owed to us between batches: whatever there is to read is a farewell. */
int pr_redis_connect(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		     struct pr_err *err)
{
	if (link->context) {
		struct pollfd fd = { .fd = link->context->fd, .events = POLLIN };

		if (poll(&fd, 1, 0) == 0)
			return POSTROOM_OK;
		pr_redis_hang_up(link);
	}
	return connect_link(link, flight, until_us, err);
}
