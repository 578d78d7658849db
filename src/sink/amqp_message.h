/* SPDX-License-Identifier: Apache-2.0 */
/* A message as AMQP has it: properties, headers and a body. */
#ifndef PR_SINK_AMQP_MESSAGE_H
#define PR_SINK_AMQP_MESSAGE_H

#include "sink/amqp_link.h"

/* Memory that is used again for each message. */
struct pr_amqp_pen {
	struct pr_buf text;
	struct pr_buf source;
	amqp_table_entry_t *entries;
	size_t capacity;
};

/*
 * Puts the content of a message behind its basic.publish. POSTROOM_INVALID, with
 * nothing put, when AMQP can not say what the message has: its own fault.
 */
int pr_amqp_put_message(struct pr_amqp_pen *pen, struct pr_amqp_link *link,
			const postroom_delivery *item, struct pr_err *err);
void pr_amqp_pen_release(struct pr_amqp_pen *pen);

#endif
