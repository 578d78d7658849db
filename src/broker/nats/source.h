/* SPDX-License-Identifier: Apache-2.0 */
/* Shared declarations of the source nats:. */
#ifndef PR_BROKER_NATS_SOURCE_H
#define PR_BROKER_NATS_SOURCE_H

#include "broker/nats/connection.h"
#include "broker/nats/reply.h"
#include "broker/source.h"

#define PR_NATS_NAME_MAX 255 /* of streams and consumers, in bytes */

struct pr_nats_source {
	struct pr_source source;
	struct pr_nats_connection conn;
	const char *durable;		 /* the setting; NULL: the group's name is used */
	char name[PR_NATS_NAME_MAX + 1]; /* of the consumer */
	bool ready;			 /* it is there, as it must be */
	size_t most;			 /* that it gives before it wants acknowledgements */
	uint64_t calls;
	int64_t asked_us;    /* for messages, and nothing was heard since; 0: it was */
	struct pr_buf given; /* where to acknowledge what read() gave last: each ends in a NUL */
	natsMsg **late;	     /* came when they were not waited for, or were too much for a read */
	size_t late_first, late_count, late_capacity;
	struct pr_buf text, errors;
	struct pr_buf value, headers; /* of a message, while it is read */
};

/* When a wait ends; a stop that is requested ends it too, unless it is to go on in its grace. */
struct pr_nats_wait {
	const struct pr_flight *flight;
	int64_t until_us;
	bool in_grace;
};

/* Publishes a request; its answers come to a subject that pr_nats_is_reply() knows. */
int pr_nats_request(struct pr_nats_source *nats, const char *subject, const char *content,
		    struct pr_err *err);
bool pr_nats_is_reply(const struct pr_nats_source *nats, natsMsg *msg);

/* Waits for the answer, for the caller to waste. NULL: there is no responder. */
int pr_nats_await(struct pr_nats_source *nats, const struct pr_nats_wait *wait, natsMsg **ret,
		  struct pr_err *err);

/* Errors that the server has reported about our requests. */
int pr_nats_check_errors(struct pr_nats_source *nats, struct pr_err *err);

/* Makes sure of the durable consumer. */
int pr_nats_make_ready(struct pr_nats_source *nats, const struct pr_nats_wait *wait,
		       struct pr_err *err);

/* Whether it is a message of a stream; reply is where to acknowledge it. */
bool pr_nats_is_event(const char *reply);
int pr_nats_add_event(struct pr_nats_source *nats, natsMsg *msg, struct pr_events *events,
		      struct pr_err *err);

#endif
