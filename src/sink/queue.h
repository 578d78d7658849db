/* SPDX-License-Identifier: Apache-2.0 */
/* A batch and how far it is, for sinks that have several messages under way at once. */
#ifndef PR_SINK_QUEUE_H
#define PR_SINK_QUEUE_H

#include "sink/sink.h"

struct pr_queue {
	postroom_delivery *items;
	size_t count;
	const size_t *before; /* see pr_sink_order() */
	bool *begun;
	size_t first; /* all before it were begun */
};

/* False when there is no memory. */
bool pr_queue_fill(struct pr_queue *queue, postroom_delivery *items, size_t count,
		   struct pr_arena *arena);

/*
 * The first that may begin now and is then taken for begun, or PR_SINK_NONE: none
 * is left, each waits for the one of its key before it, or the flight allows no more.
 */
size_t pr_queue_next(struct pr_queue *queue, const struct pr_flight *flight);

#endif
