/* SPDX-License-Identifier: Apache-2.0 */
/* A message in AMQP form: properties, headers and a body. */
#ifndef PR_BROKER_AMQP_MESSAGE_H
#define PR_BROKER_AMQP_MESSAGE_H

#include "broker/amqp/connection.h"
#include "sink/sink.h"

#define PR_AMQP_APP_ID "postroom"	/* of all that the sink sends */
#define PR_AMQP_KEY_HEADER "ce_subject" /* has the message's key */
#define PR_AMQP_TENANT_HEADER "ce_tenantid"

/* A header that the sink adds to a message's own. */
bool pr_amqp_is_own_header(amqp_bytes_t name);

/* Memory that is used again for each message. */
struct pr_amqp_message_buffers {
	struct pr_buf text;
	struct pr_buf source;
	amqp_table_entry_t *entries;
	size_t capacity;
};

/*
 * Appends the content of a message after its basic.publish. POSTROOM_INVALID, with nothing
 * appended, if AMQP cannot carry the message.
 */
int pr_amqp_put_message(struct pr_amqp_message_buffers *buffers, struct pr_amqp_connection *conn,
			const postroom_delivery *item, struct pr_err *err);
void pr_amqp_message_buffers_release(struct pr_amqp_message_buffers *buffers);

#endif
