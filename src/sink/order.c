/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the predecessor of each message: sorted by key, it is the neighbor. */
#include "sink/sink.h"

#include <stdlib.h>
#include <string.h>

static int compare_keys(const void *a, const void *b, void *context)
{
	const postroom_delivery *items = context;
	size_t left_at = *(const size_t *)a, right_at = *(const size_t *)b;
	const postroom_delivery *left = &items[left_at], *right = &items[right_at];
	int order = strcmp(left->key, right->key);

	if (order == 0)
		order = strcmp(left->topic, right->topic);
	if (order == 0)
		order = strcmp(left->ns, right->ns);
	return order;
}

static int compare_keys_and_places(const void *a, const void *b, void *context)
{
	size_t left_at = *(const size_t *)a, right_at = *(const size_t *)b;
	int order = compare_keys(a, b, context);

	return order ? order : (left_at > right_at) - (left_at < right_at);
}

size_t *pr_sink_order(postroom_delivery *items, size_t count, struct pr_arena *arena)
{
	size_t *sorted = pr_arena_alloc(arena, count * sizeof(*sorted));
	size_t *before = pr_arena_alloc(arena, count * sizeof(*before));
	size_t keyed = 0;

	if (!sorted || !before)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		before[i] = PR_SINK_NONE;
		if (pr_sink_is_ordered(&items[i]))
			sorted[keyed++] = i;
	}
	qsort_r(sorted, keyed, sizeof(*sorted), compare_keys_and_places, items);
	for (size_t i = 1; i < keyed; i++) {
		if (compare_keys(&sorted[i - 1], &sorted[i], items) == 0)
			before[sorted[i]] = sorted[i - 1];
	}
	return before;
}

bool pr_sink_same_tenant(const postroom_delivery *a, const postroom_delivery *b)
{
	return strcmp(a->tenant_id ? a->tenant_id : "", b->tenant_id ? b->tenant_id : "") == 0;
}
