/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Messages are begun in the order of the batch, each once.
 * 2. One whose predecessor of the same key is not DELIVERED is not begun.
 */
#include "sink/queue.h"

#include "base/time.h"

#include <string.h>

bool pr_queue_fill(struct pr_queue *queue, postroom_delivery *items, size_t count,
		   struct pr_arena *arena)
{
	*queue = (struct pr_queue){ .items = items, .count = count };
	queue->before = pr_sink_order(items, count, arena);
	queue->begun = pr_arena_alloc(arena, count * sizeof(*queue->begun));
	if (!queue->before || !queue->begun)
		return false;
	memset(queue->begun, 0, count * sizeof(*queue->begun));
	return true;
}

size_t pr_queue_next(struct pr_queue *queue, const struct pr_flight *flight)
{
	while (queue->first < queue->count && queue->begun[queue->first])
		queue->first++;
	if (queue->first == queue->count || !pr_flight_may_begin(flight))
		return PR_SINK_NONE;
	for (size_t i = queue->first; i < queue->count; i++) {
		size_t before = queue->before[i];

		if (queue->begun[i] ||
		    (before != PR_SINK_NONE && queue->items[before].verdict != POSTROOM_DELIVERED))
			continue;
		queue->begun[i] = true;
		queue->items[i].begun_us = pr_mono_us();
		return i;
	}
	return PR_SINK_NONE;
}
