/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Messages of our sink are read as they were enqueued; headers that the sink adds are dropped.
 * 2. An id is read completely or not at all, so two different ids never become equal.
 * 3. The position of a message depends on nothing that changes at a redelivery.
 */
#include "broker/amqp/delivery.h"

#include "base/json.h"
#include "broker/amqp/message.h"
#include "sink/sink.h"

#include <inttypes.h>
#include <string.h>

void pr_amqp_delivery_reset(struct pr_amqp_delivery *delivery)
{
	delivery->stage = PR_AMQP_NOTHING;
}

void pr_amqp_delivery_release(struct pr_amqp_delivery *delivery)
{
	pr_buf_release(&delivery->routing_key);
	pr_buf_release(&delivery->header);
	pr_buf_release(&delivery->body);
	pr_buf_release(&delivery->text);
}

static void begin_delivery(struct pr_amqp_delivery *delivery, const amqp_basic_deliver_t *deliver)
{
	delivery->tag = deliver->delivery_tag;
	delivery->stage = PR_AMQP_BEGUN;
	pr_buf_trim(&delivery->routing_key);
	pr_buf_trim(&delivery->header);
	pr_buf_trim(&delivery->body);
	pr_buf_append(&delivery->routing_key, deliver->routing_key.bytes, deliver->routing_key.len);
}

int pr_amqp_delivery_add_frame(struct pr_amqp_delivery *delivery, struct pr_amqp_connection *conn,
			       const struct pr_amqp_frame *frame, struct pr_err *err)
{
	const amqp_basic_properties_t *properties;

	if (frame->type == AMQP_FRAME_METHOD && frame->method == AMQP_BASIC_DELIVER_METHOD) {
		begin_delivery(delivery, frame->decoded);
	} else if (frame->type == AMQP_FRAME_HEADER && delivery->stage == PR_AMQP_BEGUN) {
		if (!pr_amqp_read_header(conn, frame->payload, &delivery->len, &properties))
			return pr_err_set(err, POSTROOM_UNAVAILABLE,
					  "the properties of a message cannot be read");
		/* Methods of the connection may arrive between its parts, and reuse the memory. */
		pr_buf_append(&delivery->header, frame->payload.bytes, frame->payload.len);
		delivery->stage = PR_AMQP_PARTS;
	} else if (frame->type == AMQP_FRAME_BODY && delivery->stage == PR_AMQP_PARTS) {
		pr_buf_append(&delivery->body, frame->payload.bytes, frame->payload.len);
	}
	if (delivery->stage == PR_AMQP_PARTS && delivery->body.len >= delivery->len)
		delivery->stage = PR_AMQP_WHOLE;
	if (delivery->routing_key.failed || delivery->header.failed || delivery->body.failed)
		return pr_err_nomem(err);
	return POSTROOM_OK;
}

static bool is_named(amqp_bytes_t name, const char *text)
{
	return name.len == strlen(text) && memcmp(name.bytes, text, name.len) == 0;
}

/* Copies a value as text, unless it is empty or contains a NUL. False: no memory. */
static bool copy_text(struct pr_arena *arena, amqp_bytes_t from, const char **ret)
{
	if (from.len == 0 || memchr(from.bytes, '\0', from.len))
		return true;
	*ret = pr_arena_copy(arena, from.bytes, from.len);
	return *ret != NULL;
}

/* False: the value has no simple form as text. */
static bool put_value(struct pr_buf *out, const amqp_field_value_t *value)
{
	char text[40] = "";

	switch (value->kind) {
	case AMQP_FIELD_KIND_UTF8:
	case AMQP_FIELD_KIND_BYTES:
		pr_json_put_stringn(out, value->value.bytes.bytes, value->value.bytes.len);
		return true;
	case AMQP_FIELD_KIND_BOOLEAN:
		snprintf(text, sizeof(text), "%s", value->value.boolean ? "true" : "false");
		break;
	case AMQP_FIELD_KIND_I8:
		snprintf(text, sizeof(text), "%d", value->value.i8);
		break;
	case AMQP_FIELD_KIND_U8:
		snprintf(text, sizeof(text), "%d", value->value.u8);
		break;
	case AMQP_FIELD_KIND_I16:
		snprintf(text, sizeof(text), "%d", value->value.i16);
		break;
	case AMQP_FIELD_KIND_U16:
		snprintf(text, sizeof(text), "%d", value->value.u16);
		break;
	case AMQP_FIELD_KIND_I32:
		snprintf(text, sizeof(text), "%" PRId32, value->value.i32);
		break;
	case AMQP_FIELD_KIND_U32:
		snprintf(text, sizeof(text), "%" PRIu32, value->value.u32);
		break;
	case AMQP_FIELD_KIND_I64:
		snprintf(text, sizeof(text), "%" PRId64, value->value.i64);
		break;
	case AMQP_FIELD_KIND_TIMESTAMP:
	case AMQP_FIELD_KIND_U64:
		snprintf(text, sizeof(text), "%" PRIu64, value->value.u64);
		break;
	case AMQP_FIELD_KIND_F32:
		snprintf(text, sizeof(text), "%.9g", (double)value->value.f32);
		break;
	case AMQP_FIELD_KIND_F64:
		snprintf(text, sizeof(text), "%.17g", value->value.f64);
		break;
	case AMQP_FIELD_KIND_VOID:
		break;
	default:
		return false;
	}
	pr_json_put_string(out, text);
	return true;
}

/* Reads a header that our sink adds, if it describes the event. False: no memory. */
static bool read_own_header(const amqp_table_entry_t *entry, struct pr_arena *arena,
			    struct pr_event *event)
{
	amqp_bytes_t value = entry->value.value.bytes;

	if (entry->value.kind != AMQP_FIELD_KIND_UTF8)
		return true;
	if (is_named(entry->key, PR_AMQP_KEY_HEADER))
		return copy_text(arena, value, &event->key);
	if (is_named(entry->key, PR_AMQP_TENANT_HEADER))
		return copy_text(arena, value, &event->tenant_id);
	return true;
}

static int set_headers(struct pr_amqp_delivery *delivery, const amqp_basic_properties_t *from,
		       struct pr_arena *arena, struct pr_event *event, struct pr_err *err)
{
	bool ours = from->_flags & AMQP_BASIC_APP_ID_FLAG && is_named(from->app_id, PR_AMQP_APP_ID);
	struct pr_buf *text = &delivery->text;

	pr_buf_reset(text);
	for (int i = 0; i < from->headers.num_entries; i++) {
		const amqp_table_entry_t *entry = &from->headers.entries[i];
		size_t before = text->len;

		if (!read_own_header(entry, arena, event))
			return pr_err_nomem(err);
		if (ours && pr_amqp_is_own_header(entry->key))
			continue;
		pr_buf_putc(text, before ? ',' : '{');
		pr_json_put_stringn(text, entry->key.bytes, entry->key.len);
		pr_buf_putc(text, ':');
		if (!put_value(text, &entry->value))
			text->len = before;
	}
	if (text->len == 0)
		return POSTROOM_OK;
	pr_buf_putc(text, '}');
	event->headers = text->failed ? NULL : pr_arena_copy(arena, text->data, text->len);
	return event->headers ? POSTROOM_OK : pr_err_nomem(err);
}

static int set_position(const struct pr_amqp_delivery *delivery, struct pr_arena *arena,
			struct pr_event *event, struct pr_err *err)
{
	const struct pr_span parts[] = {
		{ pr_buf_text(&delivery->routing_key), delivery->routing_key.len },
		{ pr_buf_text(&delivery->body), delivery->body.len },
	};

	event->broker_position = pr_event_digest(arena, parts, 2);
	return event->broker_position ? POSTROOM_OK : pr_err_nomem(err);
}

static int set_properties(struct pr_amqp_delivery *delivery, const amqp_basic_properties_t *from,
			  struct pr_arena *arena, struct pr_event *event, struct pr_err *err)
{
	amqp_bytes_t routing_key = { delivery->routing_key.len, delivery->routing_key.data };

	if ((from->_flags & AMQP_BASIC_MESSAGE_ID_FLAG &&
	     !copy_text(arena, from->message_id, &event->id)) ||
	    (from->_flags & AMQP_BASIC_TYPE_FLAG && !copy_text(arena, from->type, &event->topic)) ||
	    (from->_flags & AMQP_BASIC_CONTENT_TYPE_FLAG &&
	     !copy_text(arena, from->content_type, &event->content_type)) ||
	    (from->_flags & AMQP_BASIC_CORRELATION_ID_FLAG &&
	     !copy_text(arena, from->correlation_id, &event->correlation_id)) ||
	    (!event->topic && !copy_text(arena, routing_key, &event->topic)))
		return pr_err_nomem(err);
	if (from->_flags & AMQP_BASIC_HEADERS_FLAG)
		return set_headers(delivery, from, arena, event, err);
	return POSTROOM_OK;
}

int pr_amqp_delivery_to_event(struct pr_amqp_delivery *delivery, struct pr_amqp_connection *conn,
			      struct pr_arena *arena, struct pr_event *event, struct pr_err *err)
{
	amqp_bytes_t header = { delivery->header.len, delivery->header.data };
	const amqp_basic_properties_t *properties;
	uint64_t len;

	delivery->stage = PR_AMQP_NOTHING;
	if (!pr_amqp_read_header(conn, header, &len, &properties))
		return pr_err_nomem(err);
	event->body = pr_arena_copy(arena, pr_buf_text(&delivery->body), delivery->body.len);
	event->len = delivery->body.len;
	if (!event->body)
		return pr_err_nomem(err);
	if (set_properties(delivery, properties, arena, event, err) < 0)
		return err->status;
	return set_position(delivery, arena, event, err);
}
