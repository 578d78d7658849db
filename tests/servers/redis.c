/* SPDX-License-Identifier: Apache-2.0 */
#include "servers/redis.h"

#include "base/json.h"
#include "contract/sink/server.h"
#include "contract/sink/sink.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

static redisContext *reach(const struct server *server)
{
	struct timeval limit = { .tv_sec = AMPLE_MS / 1000 };
	redisContext *context = redisConnectWithTimeout(SERVER_HOST, server->port, limit);
	redisReply *reply;

	CHECK(context != NULL);
	if (context->err) {
		redisFree(context);
		return NULL;
	}
	reply = redisCommand(context, "AUTH %s", REDIS_PASSWORD);
	freeReplyObject(reply);
	return context;
}

static redisReply *run_command(const struct server *server, const char *format, va_list args)
{
	redisContext *context = reach(server);
	redisReply *reply;

	CHECK(context != NULL);
	reply = redisvCommand(context, format, args);
	CHECK_MSG(reply != NULL, "%s: %s", format, context->errstr);
	CHECK_MSG(reply->type != REDIS_REPLY_ERROR, "%s: %s", format, reply->str);
	redisFree(context);
	return reply;
}

redisReply *redis_ask(const struct server *server, const char *format, ...)
{
	redisReply *reply;
	va_list args;

	va_start(args, format);
	reply = run_command(server, format, args);
	va_end(args);
	return reply;
}

void redis_command(const struct server *server, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	freeReplyObject(run_command(server, format, args));
	va_end(args);
}

/* It answers before it has read its file again: then it says LOADING. */
static bool answers(const struct server *server)
{
	redisContext *context = reach(server);
	redisReply *reply;
	bool ready;

	if (!context)
		return false;
	reply = redisCommand(context, "PING");
	ready = reply && reply->type == REDIS_REPLY_STATUS;
	freeReplyObject(reply);
	redisFree(context);
	return ready;
}

void redis_start(struct server *server, const char *setting, const char *value)
{
	char port[16], cluster_port[16];
	const char *const argv[] = { "redis-server",
				     "--port",
				     port,
				     "--cluster-port",
				     cluster_port,
				     "--bind",
				     SERVER_HOST,
				     "--appendonly",
				     "yes",
				     "--appendfsync",
				     "always",
				     "--save",
				     "",
				     "--requirepass",
				     REDIS_PASSWORD,
				     "--loglevel",
				     "warning",
				     setting,
				     value,
				     NULL };

	snprintf(port, sizeof(port), "%d", server->port);
	/* By default port + 10000, which a client's connection may hold. */
	snprintf(cluster_port, sizeof(cluster_port), "%d", server_free_port());
	server_spawn(server, argv);
	while (!answers(server)) {
		CHECK_MSG(!is_gone(server->pid), "redis-server does not run; see tools/install");
		wait_a_moment();
	}
}

static void start(struct server *server)
{
	redis_start(server, NULL, NULL);
}

static void put_url(struct pr_buf *out, const char *host, int port)
{
	pr_buf_printf(out, "redis://:" REDIS_PASSWORD "@%s:%d", host, port);
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port)
{
	pr_buf_printf(out, "redis://:wrong-secret@%s:%d", host, port);
}

static void spoil(const struct server *server)
{
	redis_command(server, "SET bad occupied");
}

/* Calls fn for each entry of each stream until it says stop. */
static void each_entry(const struct server *server,
		       bool (*fn)(const redisReply *fields, void *context), void *context)
{
	redisReply *keys = redis_ask(server, "KEYS *");
	bool go_on = true;

	for (size_t i = 0; i < keys->elements && go_on; i++) {
		const redisReply *key = keys->element[i];
		redisReply *type = redis_ask(server, "TYPE %b", key->str, key->len);
		redisReply *entries = NULL;

		if (strcmp(type->str, "stream") == 0)
			entries = redis_ask(server, "XRANGE %b - +", key->str, key->len);
		for (size_t j = 0; entries && j < entries->elements && go_on; j++)
			go_on = fn(entries->element[j]->element[1], context);
		freeReplyObject(entries);
		freeReplyObject(type);
	}
	freeReplyObject(keys);
}

static const redisReply *find_field(const redisReply *fields, const char *name)
{
	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		if (strcmp(fields->element[i]->str, name) == 0)
			return fields->element[i + 1];
	}
	return NULL;
}

static bool put_id(const redisReply *fields, void *context)
{
	const redisReply *id = find_field(fields, "id");

	pr_buf_append(context, id->str, id->len);
	pr_buf_putc(context, '\n');
	return true;
}

static void ids(const struct server *server, struct pr_buf *out)
{
	each_entry(server, put_id, out);
}

struct question {
	const char *id, *name;
	struct pr_buf *out;
	bool found;
};

static bool answer(const redisReply *fields, void *context)
{
	struct question *question = context;
	const redisReply *id = find_field(fields, "id"), *value;

	if (strcmp(id->str, question->id) != 0)
		return true;
	value = find_field(fields, question->name);
	question->found = value != NULL;
	if (value)
		pr_buf_append(question->out, value->str, value->len);
	return false;
}

bool redis_field(const struct server *server, const char *id, const char *name, struct pr_buf *out)
{
	struct question question = { .id = id, .name = name, .out = out };

	each_entry(server, answer, &question);
	return question.found;
}

static void content(const struct server *server, const char *id, struct pr_buf *out)
{
	if (!redis_field(server, id, "body", out))
		CHECK_MSG(redis_field(server, id, "payload", out), "%s has not arrived", id);
}

static void header(const struct server *server, const char *id, const char *name,
		   struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf headers = { 0 };
	struct pr_span value;

	CHECK_MSG(redis_field(server, id, "headers", &headers), "%s has not arrived", id);
	value = member((struct pr_span){ headers.data, headers.len }, name);
	CHECK_MSG(value.data, "%s has no header %s", id, name);
	pr_json_decode(value, out);
}

const struct server_kind redis_kind = {
	.start = start,
	.put_url = put_url,
	.put_intruder_url = put_intruder_url,
	.ids = ids,
	.content = content,
	.header = header,
	.spoil = spoil,
};
