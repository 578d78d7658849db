/* SPDX-License-Identifier: Apache-2.0 */
/* Converts an event of a broker to a row of the inbox. */
#ifndef PR_CONSUME_EVENT_H
#define PR_CONSUME_EVENT_H

#include "broker/source.h"
#include "store/store.h"

/* Where an event carries its id; both NULL: where the sinks of Postroom put it. */
struct pr_identity {
	const char *header;
	const char *path; /* path of members, as in data.order.id */
};

int pr_identity_check(const struct pr_identity *identity, struct pr_err *err);

/*
 * Fills *ret; its memory is the event's and the arena's. An event that no handler can process is
 * inserted as dead, under its position in the broker, so that it is visible and not lost. Fails
 * only without memory.
 */
int pr_incoming_event_make(const struct pr_event *event, const struct pr_identity *identity,
			   const char *handler, struct pr_arena *arena,
			   struct pr_incoming_event *ret, struct pr_err *err);

#endif
