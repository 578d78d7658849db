/* SPDX-License-Identifier: Apache-2.0 */
/* amqp: carries every text, but names and properties are short strings. */
#include "contract/sink/hostile.h"
#include "contract/sink/server.h"
#include "servers/amqp.h"

#define SHORT_BYTES 255

static void start(struct server *server)
{
	amqp_start(server);
}

static void put_url(const struct server *server, struct pr_buf *out)
{
	amqp_kind.put_url(out, SERVER_HOST, server->port);
	pr_buf_puts(out, "?routing_key={topic}:n-{namespace}:k-{key}:t-{tenant}");
}

static void put_bytes(struct pr_buf *record, const char *name, amqp_bytes_t value)
{
	record_put(record, name, value.bytes, value.len);
}

static void read_message(const amqp_message_t *message, struct pr_buf *record)
{
	const amqp_basic_properties_t *properties = &message->properties;

	put_bytes(record, "message_id", properties->message_id);
	put_bytes(record, "type", properties->type);
	put_bytes(record, "content_type", properties->content_type);
	put_bytes(record, "content", message->body);
	if (properties->_flags & AMQP_BASIC_CORRELATION_ID_FLAG)
		put_bytes(record, "correlation_id", properties->correlation_id);
	for (int i = 0; i < properties->headers.num_entries; i++) {
		const amqp_table_entry_t *entry = &properties->headers.entries[i];

		CHECK(entry->value.kind == AMQP_FIELD_KIND_UTF8);
		record_put_header(record, entry->key.bytes, entry->key.len,
				  entry->value.value.bytes.bytes, entry->value.value.bytes.len);
	}
}

static void read_all(const struct server *server, struct records *out)
{
	amqp_connection_state_t connection = amqp_reach(server);

	for (;;) {
		amqp_rpc_reply_t reply = amqp_basic_get(connection, 1,
							amqp_cstring_bytes(amqp_own()), false);
		const amqp_basic_get_ok_t *got = reply.reply.decoded;
		struct pr_buf *record;
		amqp_message_t message;

		CHECK(reply.reply_type == AMQP_RESPONSE_NORMAL);
		if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
			break;
		record = record_add(out);
		put_bytes(record, "target", got->routing_key);
		CHECK(amqp_read_message(connection, 1, &message, 0).reply_type ==
		      AMQP_RESPONSE_NORMAL);
		read_message(&message, record);
		amqp_destroy_message(&message);
		amqp_maybe_release_buffers(connection);
	}
	amqp_end(connection);
}

static bool is_short(const char *text)
{
	return !text || strlen(text) <= SHORT_BYTES;
}

static bool is_carried(const char *name, const char *value)
{
	(void)value;
	return is_short(name);
}

static bool expect(const postroom_delivery *item, struct pr_buf *record)
{
	PR_CLEANUP_BUF struct pr_buf target = { 0 };
	struct pr_span headers = { item->headers, strlen(item->headers) };
	const char *unique = item->dedupe_key ? item->dedupe_key : item->id;

	pr_buf_printf(&target, "%s:n-%s:k-%s:t-%s", item->topic, item->ns,
		      item->key ? item->key : "", item->tenant_id ? item->tenant_id : "");
	if (target.len > SHORT_BYTES || !is_short(item->id) || !is_short(item->topic) ||
	    !is_short(item->content_type) || !is_short(item->correlation_id) ||
	    !each_header(headers, is_carried))
		return false;
	record_put(record, "target", target.data, target.len);
	record_puts(record, "message_id", item->id);
	record_puts(record, "type", item->topic);
	record_puts(record, "content_type", item->content_type);
	if (item->correlation_id)
		record_puts(record, "correlation_id", item->correlation_id);
	record_put(record, "content", item->payload, item->payload_len);
	record_put_event(record, item, "ce_", false);
	record_put_header(record, "idempotency-key", 15, unique, strlen(unique));
	record_put_headers(record, headers, false);
	return true;
}

const struct hostile_kind hostile_amqp = {
	.start = start,
	.put_url = put_url,
	.read = read_all,
	.expect = expect,
};
