/* SPDX-License-Identifier: Apache-2.0 */
/* kafka: carries every text; only the name of a topic has rules. */
#include "contract/sink/hostile.h"
#include "contract/sink/server.h"
#include "servers/kafka.h"

#define NAME_MAX_BYTES 249

static void start(struct server *server)
{
	kafka_kind.start(server);
}

static void put_url(const struct server *server, struct pr_buf *out)
{
	kafka_kind.put_url(out, SERVER_HOST, server->port);
	pr_buf_puts(out, "/{topic}.n-{namespace}.k-{key}.t-{tenant}");
}

static bool read_record(rd_kafka_message_t *message, void *context)
{
	struct pr_buf *record = record_add(context);
	rd_kafka_headers_t *headers;
	const char *name;
	const void *value;
	size_t len;

	CHECK(rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR);
	record_puts(record, "target", rd_kafka_topic_name(message->rkt));
	record_put(record, "key", message->key, message->key_len);
	record_put(record, "content", message->payload, message->len);
	for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &len) == 0; i++)
		record_put_header(record, name, strlen(name), value, len);
	return true;
}

static void read_all(const struct server *server, struct records *out)
{
	(void)server;
	kafka_each(read_record, out);
}

static bool expect(const postroom_delivery *item, struct pr_buf *record)
{
	PR_CLEANUP_BUF struct pr_buf target = { 0 };
	const char *unique = item->dedupe_key ? item->dedupe_key : item->id;

	pr_buf_printf(&target, "%s.n-%s", escape_bytes(item->topic, "-._", '_'),
		      escape_bytes(item->ns, "-._", '_'));
	pr_buf_printf(&target, ".k-%s.t-%s", escape_bytes(item->key, "-._", '_'),
		      escape_bytes(item->tenant_id, "-._", '_'));
	if (target.len > NAME_MAX_BYTES)
		return false;
	record_put(record, "target", target.data, target.len);
	record_puts(record, "key", item->key);
	record_put(record, "content", item->payload, item->payload_len);
	record_put_event(record, item, "ce_", false);
	record_put_header(record, "content-type", 12, item->content_type,
			  strlen(item->content_type));
	record_put_header(record, "idempotency-key", 15, unique, strlen(unique));
	record_put_headers(record, (struct pr_span){ item->headers, strlen(item->headers) }, false);
	return true;
}

const struct hostile_kind hostile_kafka = {
	.start = start,
	.put_url = put_url,
	.read = read_all,
	.expect = expect,
};
