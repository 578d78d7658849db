/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. What our sink wrote is read as it was enqueued; what it adds itself is left out.
 * 2. An id is the whole of what was sent or none at all: two ids never become one.
 * 3. The place of a message depends on nothing that changes when it is delivered again.
 */
#include "consume/amqp_delivery.h"

#include "base/json.h"
#include "sink/amqp_message.h"

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

static void begin(struct pr_amqp_delivery *delivery, const amqp_basic_deliver_t *deliver)
{
	delivery->tag = deliver->delivery_tag;
	delivery->stage = PR_AMQP_BEGUN;
	pr_sink_trim(&delivery->routing_key);
	pr_sink_trim(&delivery->header);
	pr_sink_trim(&delivery->body);
	pr_buf_append(&delivery->routing_key, deliver->routing_key.bytes, deliver->routing_key.len);
}

int pr_amqp_delivery_heed(struct pr_amqp_delivery *delivery, struct pr_amqp_link *link,
			  const struct pr_amqp_frame *frame, struct pr_err *err)
{
	const amqp_basic_properties_t *properties;

	if (frame->type == AMQP_FRAME_METHOD && frame->method == AMQP_BASIC_DELIVER_METHOD) {
		begin(delivery, frame->decoded);
	} else if (frame->type == AMQP_FRAME_HEADER && delivery->stage == PR_AMQP_BEGUN) {
		if (!pr_amqp_read_header(link, frame->payload, &delivery->len, &properties))
			return pr_err_set(err, POSTROOM_UNAVAILABLE,
					  "the properties of a message can not be read");
		/* Methods of the connection may come between its parts, and take the memory. */
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

/* As text, unless it is empty or can not be one. False: no memory. */
static bool copy(struct pr_arena *arena, amqp_bytes_t from, const char **ret)
{
	if (from.len == 0 || memchr(from.bytes, '\0', from.len))
		return true;
	*ret = pr_arena_copy(arena, from.bytes, from.len);
	return *ret != NULL;
}

/* False: a value that is no text and is not easily made one. */
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

/* The key is among the headers that our sink adds. */
static int give_headers(struct pr_amqp_delivery *delivery, const amqp_basic_properties_t *from,
			struct pr_arena *arena, struct pr_event *event, struct pr_err *err)
{
	bool ours = from->_flags & AMQP_BASIC_APP_ID_FLAG && is_named(from->app_id, PR_AMQP_APP_ID);
	struct pr_buf *text = &delivery->text;

	pr_buf_reset(text);
	for (int i = 0; i < from->headers.num_entries; i++) {
		const amqp_table_entry_t *entry = &from->headers.entries[i];
		size_t before = text->len;

		if (is_named(entry->key, PR_AMQP_KEY_HEADER) &&
		    entry->value.kind == AMQP_FIELD_KIND_UTF8 &&
		    !copy(arena, entry->value.value.bytes, &event->key))
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

static int give_place(const struct pr_amqp_delivery *delivery, struct pr_arena *arena,
		      struct pr_event *event, struct pr_err *err)
{
	const struct pr_span parts[] = {
		{ pr_buf_text(&delivery->routing_key), delivery->routing_key.len },
		{ pr_buf_text(&delivery->body), delivery->body.len },
	};

	event->place = pr_event_digest(arena, parts, 2);
	return event->place ? POSTROOM_OK : pr_err_nomem(err);
}

static int give_properties(struct pr_amqp_delivery *delivery, const amqp_basic_properties_t *from,
			   struct pr_arena *arena, struct pr_event *event, struct pr_err *err)
{
	amqp_bytes_t routing_key = { delivery->routing_key.len, delivery->routing_key.data };

	if ((from->_flags & AMQP_BASIC_MESSAGE_ID_FLAG &&
	     !copy(arena, from->message_id, &event->id)) ||
	    (from->_flags & AMQP_BASIC_TYPE_FLAG && !copy(arena, from->type, &event->topic)) ||
	    (from->_flags & AMQP_BASIC_CONTENT_TYPE_FLAG &&
	     !copy(arena, from->content_type, &event->content_type)) ||
	    (!event->topic && !copy(arena, routing_key, &event->topic)))
		return pr_err_nomem(err);
	if (from->_flags & AMQP_BASIC_HEADERS_FLAG)
		return give_headers(delivery, from, arena, event, err);
	return POSTROOM_OK;
}

int pr_amqp_delivery_give(struct pr_amqp_delivery *delivery, struct pr_amqp_link *link,
			  struct pr_arena *arena, struct pr_event *event, struct pr_err *err)
{
	amqp_bytes_t header = { delivery->header.len, delivery->header.data };
	const amqp_basic_properties_t *properties;
	uint64_t len;

	delivery->stage = PR_AMQP_NOTHING;
	if (!pr_amqp_read_header(link, header, &len, &properties))
		return pr_err_nomem(err);
	event->body = pr_arena_copy(arena, pr_buf_text(&delivery->body), delivery->body.len);
	event->len = delivery->body.len;
	if (!event->body)
		return pr_err_nomem(err);
	if (give_properties(delivery, properties, arena, event, err) < 0)
		return err->status;
	return give_place(delivery, arena, event, err);
}
