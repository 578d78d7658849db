/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a Kafka record into an event. */
#ifndef PR_BROKER_KAFKA_EVENT_H
#define PR_BROKER_KAFKA_EVENT_H

#include "base/buf.h"
#include "broker/source.h"

#include <librdkafka/rdkafka.h>

/* Memory that is reused for each record. A zeroed struct is ready for use. */
struct pr_kafka_pen {
	struct pr_buf headers, key;
};

/* headers may be NULL. The caller sets the time. The only failure is POSTROOM_NOMEM. */
int pr_kafka_add_event(struct pr_kafka_pen *pen, const char *topic,
		       const rd_kafka_message_t *message, const rd_kafka_headers_t *headers,
		       struct pr_events *events, struct pr_err *err);

#endif
