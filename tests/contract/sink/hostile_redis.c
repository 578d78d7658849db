/* SPDX-License-Identifier: Apache-2.0 */
/* redis: takes any bytes, in names too: they arrive as they are. */
#include "contract/sink/hostile.h"
#include "contract/sink/server.h"
#include "servers/redis.h"

static void start(struct server *server)
{
	redis_kind.start(server);
}

static void put_url(const struct server *server, struct pr_buf *out)
{
	redis_kind.put_url(out, SERVER_HOST, server->port);
	pr_buf_puts(out, "/{topic}:n-{namespace}:k-{key}:t-{tenant}");
}

static void read_stream(const redisReply *name, const redisReply *entries, struct records *out)
{
	for (size_t i = 0; i < entries->elements; i++) {
		const redisReply *fields = entries->element[i]->element[1];
		struct pr_buf *record = record_add(out);

		record_put(record, "target", name->str, name->len);
		for (size_t j = 0; j + 1 < fields->elements; j += 2) {
			const redisReply *value = fields->element[j + 1];

			if (strcmp(fields->element[j]->str, "payload") == 0)
				record_put(record, "content", value->str, value->len);
			else
				record_put(record, fields->element[j]->str, value->str, value->len);
		}
	}
}

/* Every key of the server must be a stream of ours. */
static void read_all(const struct server *server, struct records *out)
{
	redisReply *keys = redis_ask(server, "KEYS *");

	for (size_t i = 0; i < keys->elements; i++) {
		const redisReply *key = keys->element[i];
		redisReply *entries = redis_ask(server, "XRANGE %b - +", key->str, key->len);

		read_stream(key, entries, out);
		freeReplyObject(entries);
	}
	freeReplyObject(keys);
}

static bool expect(const postroom_delivery *item, struct pr_buf *record)
{
	PR_CLEANUP_BUF struct pr_buf target = { 0 };

	pr_buf_printf(&target, "%s:n-%s:k-%s:t-%s", item->topic, item->ns,
		      item->key ? item->key : "", item->tenant_id ? item->tenant_id : "");
	record_put(record, "target", target.data, target.len);
	record_puts(record, "id", item->id);
	record_puts(record, "namespace", item->ns);
	record_puts(record, "topic", item->topic);
	record_puts(record, "key", item->key);
	record_puts(record, "tenant_id", item->tenant_id);
	record_puts(record, "dedupe_key", item->dedupe_key);
	record_puts(record, "correlation_id", item->correlation_id);
	record_puts(record, "attempt", "1");
	record_puts(record, "created_at", "2023-11-14T22:13:20.123456Z");
	record_puts(record, "headers", item->headers);
	record_puts(record, "content_type", item->content_type);
	record_put(record, "content", item->payload, item->payload_len);
	return true;
}

const struct hostile_kind hostile_redis = {
	.start = start,
	.put_url = put_url,
	.read = read_all,
	.expect = expect,
};
