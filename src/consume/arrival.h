/* SPDX-License-Identifier: Apache-2.0 */
/* From what a broker has delivered to what the inbox takes in. */
#ifndef PR_CONSUME_ARRIVAL_H
#define PR_CONSUME_ARRIVAL_H

#include "consume/source.h"
#include "store/store.h"

/* Where an event bears its identity; both NULL: where the sinks of this product put it. */
struct pr_identity {
	const char *header;
	const char *path; /* of members, as in data.order.id */
};

int pr_identity_check(const struct pr_identity *identity, struct pr_err *err);

/*
 * Fills *ret; what it needs besides the event lives in the arena. An event that no
 * handler could be given arrives dead, under the place it has in the broker: it is
 * seen, and not lost. Fails only without memory.
 */
int pr_arrival_make(const struct pr_event *event, const struct pr_identity *identity,
		    const char *handler, struct pr_arena *arena, struct pr_arrival *ret,
		    struct pr_err *err);

#endif
