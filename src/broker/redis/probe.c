/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's checks of a Redis server. They only read. */
#include "broker/redis/connection.h"

#include "sink/sink.h"
#include "sink/target.h"

#include <string.h>

/* The value of a line NAME:VALUE in the reply to INFO, and its length. NULL: there is none. */
static const char *find_info(const char *info, const char *name, size_t *ret_len)
{
	size_t len = strlen(name);

	for (const char *at = info; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (strncmp(at, name, len) == 0 && at[len] == ':') {
			*ret_len = strcspn(at + len + 1, "\r\n");
			return at + len + 1;
		}
	}
	return NULL;
}

static bool info_is(const char *info, const char *name, const char *value)
{
	size_t len;
	const char *found = find_info(info, name, &len);

	return found && len == strlen(value) && memcmp(found, value, len) == 0;
}

static void put_command(const struct pr_address *address, const char *words,
			struct pr_checkup *checkup)
{
	pr_found_command(checkup, "redis-cli -h ");
	pr_found_command_word(checkup, address->host);
	pr_found_command(checkup, " -p %d %s", address->port, words);
}

static void judge_info(const struct pr_redis_connection *conn, const char *info,
		       struct pr_checkup *checkup)
{
	const struct pr_address *address = &conn->address;
	size_t len;
	const char *policy = find_info(info, "maxmemory_policy", &len);

	if (info_is(info, "role", "slave")) {
		pr_found(checkup, PR_LEVEL_PROBLEM, "%s port %d is a replica", address->host,
			 address->port);
		pr_found_detail(checkup,
				"A replica refuses writes, so no message can be delivered.");
		pr_found_advice(checkup, "The operator names the primary in the URL of the sink.");
	}
	if (!info_is(info, "aof_enabled", "1") && !info_is(info, "aof_enabled", "0")) {
		pr_found_skipped(checkup,
				 "INFO does not say whether writes are logged, so the durability "
				 "is unknown.",
				 "The administrator of the server finds out whether a crash loses "
				 "messages that it acknowledged.");
	}
	if (info_is(info, "aof_enabled", "0")) {
		pr_found(checkup, PR_LEVEL_WARNING,
			 "Redis does not log its writes (appendonly no)");
		pr_found_detail(checkup,
				"Messages are marked as delivered, but a crash of the server loses "
				"those since its last snapshot.");
		pr_found_advice(checkup, "The administrator of Redis runs the command, and adds "
					 "\"appendonly yes\" to redis.conf.");
		put_command(address, "CONFIG SET appendonly yes", checkup);
	}
	if (policy && strncmp(policy, "allkeys", 7) == 0) {
		pr_found(checkup, PR_LEVEL_WARNING,
			 "Redis may evict the stream (maxmemory-policy %.*s)",
			 len < 40 ? (int)len : 40, policy);
		pr_found_detail(checkup,
				"When memory runs out, Redis deletes whole streams, with messages "
				"that were not read.");
		pr_found_advice(checkup, "The administrator of Redis runs the command.");
		put_command(address, "CONFIG SET maxmemory-policy noeviction", checkup);
	}
}

static void judge_type(const char *stream, const redisReply *reply, struct pr_checkup *checkup)
{
	if (reply->type != REDIS_REPLY_STATUS) {
		pr_found_skipped(checkup, "The type of the key cannot be read.",
				 "The administrator of Redis allows the user the command TYPE.");
		return;
	}
	if (strcmp(reply->str, "none") == 0 || strcmp(reply->str, "stream") == 0)
		return;
	pr_found(checkup, PR_LEVEL_PROBLEM, "\"%s\" is a %.40s, not a stream", stream, reply->str);
	pr_found_detail(checkup, "Redis refuses to add messages to it.");
	pr_found_advice(checkup, "The operator names another stream in the URL of the sink.");
}

void pr_redis_probe(struct pr_redis_connection *conn, const char *stream,
		    const struct pr_flight *flight, struct pr_checkup *checkup)
{
	bool named = stream[0] && !pr_target_is_template(stream);
	struct pr_err err = { 0 };
	redisReply *reply;
	bool answered;

	if (pr_redis_connect(conn, flight, flight->begin_until_us, &err) < 0) {
		pr_found_unreachable(checkup, err.text);
		return;
	}
	pr_redis_put(conn, 1, (const char *[]){ "INFO" }, NULL);
	if (named)
		pr_redis_put(conn, 2, (const char *[]){ "TYPE", stream }, NULL);
	reply = pr_redis_reply(conn, flight, flight->begin_until_us, &err);
	answered = reply != NULL;
	if (answered && reply->type == REDIS_REPLY_STRING)
		judge_info(conn, reply->str, checkup);
	else
		pr_found_skipped(
			checkup,
			answered ? "The user may not run INFO, so the durability is unknown."
				 : err.text,
			"The administrator of Redis allows the user the command INFO.");
	freeReplyObject(reply);
	reply = answered && named ? pr_redis_reply(conn, flight, flight->begin_until_us, &err)
				  : NULL;
	if (reply)
		judge_type(stream, reply, checkup);
	else if (answered && named)
		pr_found_skipped(checkup, err.text, NULL);
	freeReplyObject(reply);
	pr_redis_disconnect(conn);
}
