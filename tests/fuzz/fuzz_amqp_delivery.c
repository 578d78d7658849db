/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a channel, as they come from the wire. */
#include "fuzz_event.h"

#include "broker/amqp/delivery.h"

#define FRAME_MAX 131072

static void read_all(struct pr_amqp_connection *conn, struct pr_events *events)
{
	struct pr_amqp_delivery delivery = { 0 };
	struct pr_amqp_frame frame;
	struct pr_err err;

	while (pr_amqp_next(conn, &frame, &err) > 0 &&
	       pr_amqp_delivery_add_frame(&delivery, conn, &frame, &err) >= 0) {
		struct pr_event *event;

		if (delivery.stage != PR_AMQP_WHOLE)
			continue;
		event = pr_events_add(events);
		HOLDS(event);
		HOLDS(pr_amqp_delivery_to_event(&delivery, conn, &events->arena, event, &err) >= 0);
	}
	pr_amqp_delivery_release(&delivery);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pr_amqp_connection conn = { .connected = true, .frame_max = FRAME_MAX };
	struct pr_events events = { 0 };

	snprintf(conn.address.host, sizeof(conn.address.host), "localhost");
	init_amqp_pool(&conn.pool, 4096);
	pr_buf_append(&conn.in, data, size);
	read_all(&conn, &events);
	fuzz_check_events(&events);
	pr_events_release(&events);
	pr_buf_release(&conn.in);
	empty_amqp_pool(&conn.pool);
	return 0;
}
