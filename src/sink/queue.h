/* SPDX-License-Identifier: Apache-2.0 */
/* The progress of a batch, for sinks that have several messages in flight. */
#ifndef PR_SINK_QUEUE_H
#define PR_SINK_QUEUE_H

#include "sink/sink.h"

struct pr_queue {
	postroom_delivery *items;
	size_t count;
	const size_t *before; /* see pr_sink_order() */
	bool *begun;
	size_t first; /* all messages before it were begun */
};

/* False when there is no memory. */
bool pr_queue_fill(struct pr_queue *queue, postroom_delivery *items, size_t count,
		   struct pr_arena *arena);

/*
 * Returns the first message that may begin now, and marks it as begun. PR_SINK_NONE: none is left,
 * each waits for its predecessor, or the flight allows no more.
 */
size_t pr_queue_next(struct pr_queue *queue, const struct pr_flight *flight);

#endif
