/* SPDX-License-Identifier: Apache-2.0 */
/* A message as AMQP has it: properties, headers and a body. */
#ifndef PR_SINK_AMQP_MESSAGE_H
#define PR_SINK_AMQP_MESSAGE_H

#include "sink/amqp_link.h"

#define PR_AMQP_APP_ID "postroom"	/* of all that the sink sends */
#define PR_AMQP_KEY_HEADER "ce_subject" /* has the message's key */

/* A header that the sink adds to a message's own. */
bool pr_amqp_is_own_header(amqp_bytes_t name);

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
