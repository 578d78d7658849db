/* SPDX-License-Identifier: Apache-2.0 */
/* An AMQP delivery, which consists of several frames, and the event that it carries. */
#ifndef PR_BROKER_AMQP_DELIVERY_H
#define PR_BROKER_AMQP_DELIVERY_H

#include "broker/amqp/connection.h"
#include "broker/source.h"

/* A zeroed struct is ready for use. Its memory is reused for each delivery. */
struct pr_amqp_delivery {
	enum { PR_AMQP_NOTHING, PR_AMQP_BEGUN, PR_AMQP_PARTS, PR_AMQP_WHOLE } stage;
	uint64_t tag; /* the channel's */
	uint64_t len; /* of the whole body */
	struct pr_buf routing_key, header, body;
	struct pr_buf text;
};

/* Adds the next frame of the channel. */
int pr_amqp_delivery_add_frame(struct pr_amqp_delivery *delivery, struct pr_amqp_connection *conn,
			       const struct pr_amqp_frame *frame, struct pr_err *err);

/* Fills the event from a complete delivery, and resets it for the next one. */
int pr_amqp_delivery_to_event(struct pr_amqp_delivery *delivery, struct pr_amqp_connection *conn,
			      struct pr_arena *arena, struct pr_event *event, struct pr_err *err);

/* Drops a partial delivery, because the channel was replaced. */
void pr_amqp_delivery_reset(struct pr_amqp_delivery *delivery);
void pr_amqp_delivery_release(struct pr_amqp_delivery *delivery);

#endif
