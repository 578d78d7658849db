/* SPDX-License-Identifier: Apache-2.0 */
#include "core/batch.h"

#include <stdlib.h>

static void release_owned(struct postroom_batch *batch)
{
	if (batch->held)
		batch->release_owned(batch->held);
	batch->held = NULL;
}

void pr_batch_reset(struct postroom_batch *batch)
{
	release_owned(batch);
	pr_arena_reset(&batch->arena);
	batch->count = 0;
	batch->dead_letter_count = 0;
	batch->unloaded = 0;
}

void pr_batch_release(struct postroom_batch *batch)
{
	release_owned(batch);
	pr_arena_release(&batch->arena);
	free(batch->items);
	free(batch->dead_letters);
	*batch = (struct postroom_batch){ 0 };
}

static postroom_delivery *add(postroom_delivery **items, size_t *count, size_t *capacity)
{
	if (*count == *capacity) {
		size_t more = *capacity ? *capacity * 2 : 64;
		postroom_delivery *grown = reallocarray(*items, more, sizeof(**items));

		if (!grown)
			return NULL;
		*items = grown;
		*capacity = more;
	}
	(*items)[*count] = (postroom_delivery){ .retry_in_ms = -1 };
	return &(*items)[(*count)++];
}

postroom_delivery *pr_batch_add(struct postroom_batch *batch)
{
	return add(&batch->items, &batch->count, &batch->capacity);
}

postroom_delivery *pr_batch_add_dead_letter(struct postroom_batch *batch)
{
	return add(&batch->dead_letters, &batch->dead_letter_count, &batch->dead_letter_capacity);
}
