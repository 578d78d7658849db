/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A frame longer than the negotiated maximum is neither sent nor waited for.
 * 2. Frames about the connection are handled here: the caller sees only its channel.
 */
#include "broker/amqp/connection.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#define FRAME_HEAD 7 /* type, channel, size */
#define FRAME_END 0xce
#define CONTENT_HEAD 12	 /* class, weight, size of the body */
#define METHOD_ROOM 8192 /* more than any method of ours takes */

static void store16(char *at, uint16_t value)
{
	value = htobe16(value);
	memcpy(at, &value, sizeof(value));
}

static void store32(char *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
}

static void store64(char *at, uint64_t value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof(value));
}

static uint32_t load32(const char *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return be32toh(value);
}

static uint64_t load64(const char *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return be64toh(value);
}

/*
 * Completes a frame: `at` has room for the head, the payload of len bytes, which is already there,
 * and the end.
 */
static void close_frame(struct pr_buf *out, char *at, uint8_t type, uint16_t channel, size_t len)
{
	at[0] = (char)type;
	store16(at + 1, channel);
	store32(at + 3, (uint32_t)len);
	at[FRAME_HEAD + len] = (char)FRAME_END;
	out->len += FRAME_HEAD + len + 1;
}

void pr_amqp_put_heartbeat(struct pr_amqp_connection *conn)
{
	char *at = pr_buf_reserve(&conn->out, FRAME_HEAD + 1);

	if (at)
		close_frame(&conn->out, at, AMQP_FRAME_HEARTBEAT, 0, 0);
}

void pr_amqp_put_method(struct pr_amqp_connection *conn, amqp_method_number_t method, void *decoded)
{
	char *at = pr_buf_reserve(&conn->out, FRAME_HEAD + 4 + METHOD_ROOM + 1);
	amqp_bytes_t room = { .len = METHOD_ROOM };
	int len;

	if (!at)
		return;
	room.bytes = at + FRAME_HEAD + 4;
	store32(at + FRAME_HEAD, method);
	len = amqp_encode_method(method, decoded, room);
	if (len < 0) {
		conn->out.failed = true;
		return;
	}
	close_frame(&conn->out, at, AMQP_FRAME_METHOD,
		    method >> 16 == AMQP_CONNECTION_CLASS ? 0 : PR_AMQP_CHANNEL, 4 + (size_t)len);
}

int pr_amqp_put_content(struct pr_amqp_connection *conn, amqp_basic_properties_t *properties,
			size_t room, const void *body, size_t len, struct pr_err *err)
{
	size_t most = conn->frame_max - FRAME_HEAD - 1;
	const char *from = body;
	amqp_bytes_t encoded = { .len = room };
	char *at = pr_buf_reserve(&conn->out, FRAME_HEAD + CONTENT_HEAD + room + 1);
	int used;

	if (!at)
		return pr_err_nomem(err);
	encoded.bytes = at + FRAME_HEAD + CONTENT_HEAD;
	used = amqp_encode_properties(AMQP_BASIC_CLASS, properties, encoded);
	if (used < 0 || CONTENT_HEAD + (size_t)used > most)
		return pr_err_set(err, POSTROOM_INVALID,
				  "the headers of the message are longer than the %zu bytes that "
				  "the server takes in one frame",
				  most);
	store16(at + FRAME_HEAD, AMQP_BASIC_CLASS);
	store16(at + FRAME_HEAD + 2, 0);
	store64(at + FRAME_HEAD + 4, len);
	close_frame(&conn->out, at, AMQP_FRAME_HEADER, PR_AMQP_CHANNEL,
		    CONTENT_HEAD + (size_t)used);
	while (len > 0) {
		size_t part = len < most ? len : most;

		at = pr_buf_reserve(&conn->out, FRAME_HEAD + part + 1);
		if (!at)
			return pr_err_nomem(err);
		memcpy(at + FRAME_HEAD, from, part);
		close_frame(&conn->out, at, AMQP_FRAME_BODY, PR_AMQP_CHANNEL, part);
		from += part;
		len -= part;
	}
	return POSTROOM_OK;
}

int pr_amqp_refused(const struct pr_amqp_connection *conn, uint16_t code, amqp_bytes_t text,
		    struct pr_err *err)
{
	pr_err_set(err, POSTROOM_UNAVAILABLE, "%s port %d refuses (%d): %.*s", conn->address.host,
		   conn->address.port, code, (int)text.len,
		   text.len ? (const char *)text.bytes : "");
	err->native = code;
	return err->status;
}

static int not_amqp(const struct pr_amqp_connection *conn, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "%s port %d does not answer as AMQP 0-9-1 does", conn->address.host,
			  conn->address.port);
}

/* 1: the frame is for the caller; 0: it was handled here. */
static int handle_method(struct pr_amqp_connection *conn, struct pr_amqp_frame *frame,
			 struct pr_err *err)
{
	amqp_connection_close_t *close;
	amqp_connection_blocked_t *blocked;

	if (frame->payload.len < 4)
		return not_amqp(conn, err);
	frame->method = load32(frame->payload.bytes);
	frame->payload.bytes = (char *)frame->payload.bytes + 4;
	frame->payload.len -= 4;
	recycle_amqp_pool(&conn->pool);
	if (amqp_decode_method(frame->method, &conn->pool, frame->payload, &frame->decoded) < 0)
		return not_amqp(conn, err);
	switch (frame->method) {
	case AMQP_CONNECTION_CLOSE_METHOD:
		close = frame->decoded;
		return pr_amqp_refused(conn, close->reply_code, close->reply_text, err);
	case AMQP_CONNECTION_BLOCKED_METHOD:
		blocked = frame->decoded;
		conn->blocked = true;
		snprintf(conn->why, sizeof(conn->why), "%s port %d takes no messages now: %.*s",
			 conn->address.host, conn->address.port, (int)blocked->reason.len,
			 blocked->reason.len ? (const char *)blocked->reason.bytes : "");
		return 0;
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		conn->blocked = false;
		return 0;
	default:
		return 1;
	}
}

int pr_amqp_next(struct pr_amqp_connection *conn, struct pr_amqp_frame *ret, struct pr_err *err)
{
	for (;;) {
		const char *at = pr_buf_text(&conn->in) + conn->in_at;
		size_t there = conn->in.len - conn->in_at, len;
		int status = 1;

		if (there < FRAME_HEAD + 1)
			return 0;
		len = load32(at + 3);
		if (len > conn->frame_max)
			return not_amqp(conn, err);
		if (there < FRAME_HEAD + len + 1)
			return 0;
		if ((uint8_t)at[FRAME_HEAD + len] != FRAME_END)
			return not_amqp(conn, err);
		conn->in_at += FRAME_HEAD + len + 1;
		*ret = (struct pr_amqp_frame){
			.type = (uint8_t)at[0],
			.payload = { .len = len, .bytes = (char *)at + FRAME_HEAD },
		};
		if (ret->type == AMQP_FRAME_HEARTBEAT)
			continue;
		if (ret->type == AMQP_FRAME_METHOD)
			status = handle_method(conn, ret, err);
		if (status != 0)
			return status;
	}
}

bool pr_amqp_read_header(struct pr_amqp_connection *conn, amqp_bytes_t payload, uint64_t *ret_len,
			 const amqp_basic_properties_t **ret)
{
	const char *at = payload.bytes;
	amqp_bytes_t encoded;
	void *decoded;

	if (payload.len < CONTENT_HEAD)
		return false;
	encoded = (amqp_bytes_t){ payload.len - CONTENT_HEAD, (char *)at + CONTENT_HEAD };
	recycle_amqp_pool(&conn->pool);
	if (amqp_decode_properties(AMQP_BASIC_CLASS, &conn->pool, encoded, &decoded) < 0)
		return false;
	*ret_len = load64(at + 4);
	*ret = decoded;
	return true;
}
