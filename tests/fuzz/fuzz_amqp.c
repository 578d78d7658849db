/* SPDX-License-Identifier: Apache-2.0 */
/* Input from an AMQP server: frames, and the headers of returned messages. */
#include "fuzz.h"

#include "broker/amqp/connection.h"

#define FRAME_BYTES 4096

static void read_frames(struct pr_amqp_connection *conn)
{
	struct pr_amqp_frame frame;
	struct pr_err err = { 0 };
	size_t before = conn->in_at;
	int status;

	while ((status = pr_amqp_next(conn, &frame, &err)) > 0) {
		const amqp_basic_properties_t *properties;
		uint64_t len;

		HOLDS(conn->in_at > before && conn->in_at <= conn->in.len);
		before = conn->in_at;
		HOLDS(frame.type != AMQP_FRAME_METHOD || frame.decoded || !frame.payload.len);
		if (frame.type == AMQP_FRAME_HEADER)
			pr_amqp_read_header(conn, frame.payload, &len, &properties);
	}
	HOLDS(status == 0 || (err.status == status && *err.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pr_amqp_connection conn = { .frame_max = FRAME_BYTES };

	snprintf(conn.address.host, sizeof(conn.address.host), "host");
	init_amqp_pool(&conn.pool, FRAME_BYTES);
	/* In two parts, as a connection may bring them. */
	pr_buf_append(&conn.in, data, size / 2);
	read_frames(&conn);
	pr_buf_append(&conn.in, data + size / 2, size - size / 2);
	read_frames(&conn);
	empty_amqp_pool(&conn.pool);
	pr_buf_release(&conn.in);
	return 0;
}
