/* SPDX-License-Identifier: Apache-2.0 */
/* Shared declarations of the source nats:. */
#ifndef PR_BROKER_NATS_SOURCE_H
#define PR_BROKER_NATS_SOURCE_H

#include "broker/nats/connection.h"
#include "broker/nats/reply.h"
#include "broker/source.h"

#define PR_NATS_NAME_MAX 255 /* bytes in the name of a stream or consumer */

struct pr_nats_source {
	struct pr_source source;
	struct pr_nats_connection conn;
	const char *durable;		 /* the setting; NULL: the group's name is used */
	char name[PR_NATS_NAME_MAX + 1]; /* of the consumer */
	bool ready;			 /* the consumer exists and was checked */
	size_t most;			 /* unacknowledged messages that the server allows */
	uint64_t calls;
	int64_t asked_us;    /* of the last request without an answer; 0: all were answered */
	struct pr_buf given; /* the reply subjects of the last read(), each with its NUL */
	natsMsg **late;	     /* messages that came after their read, or exceeded its limits */
	size_t late_first, late_count, late_capacity;
	struct pr_buf text, errors;
	struct pr_buf value, headers; /* used while a message is read */
};

/* The end of a wait. The request to stop also ends it, unless it continues in the grace period. */
struct pr_nats_wait {
	const struct pr_flight *flight;
	int64_t until_us;
	bool in_grace;
};

/* Publishes a request. pr_nats_is_reply() recognizes its answers. */
int pr_nats_request(struct pr_nats_source *nats, const char *subject, const char *content,
		    struct pr_err *err);
bool pr_nats_is_reply(const struct pr_nats_source *nats, natsMsg *msg);

/* Waits for the answer, which the caller discards. NULL: there is no responder. */
int pr_nats_await(struct pr_nats_source *nats, const struct pr_nats_wait *wait, natsMsg **ret,
		  struct pr_err *err);

/* Fails if the server has reported an error about our requests. */
int pr_nats_check_errors(struct pr_nats_source *nats, struct pr_err *err);

/* Makes sure that the durable consumer exists. */
int pr_nats_make_ready(struct pr_nats_source *nats, const struct pr_nats_wait *wait,
		       struct pr_err *err);

/* True if the message with this reply subject comes from a stream. */
bool pr_nats_is_event(const char *reply);
int pr_nats_add_event(struct pr_nats_source *nats, natsMsg *msg, struct pr_events *events,
		      struct pr_err *err);

#endif
