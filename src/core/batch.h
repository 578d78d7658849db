/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of claimed messages. Its arena holds all of its memory. */
#ifndef PR_CORE_BATCH_H
#define PR_CORE_BATCH_H

#include "base/arena.h"
#include "core/delivery.h"
#include "core/verdict.h"

struct postroom_batch {
	struct pr_arena arena;
	postroom_delivery *items;
	size_t count;
	size_t capacity;
	postroom_delivery *dead_letters; /* claimed with no attempts left: now dead, to be logged */
	size_t dead_letter_count;
	size_t dead_letter_capacity;
	size_t unloaded;	 /* how many were claimed and settled without being returned to the
			  * caller */
	struct pr_policy policy; /* policy of the claim; postroom_nack() and others use it */
	int64_t lease_ms;
	void *held; /* memory that the items point into, such as a PGresult */
	void (*release_owned)(void *held);
};

/* A zeroed batch is ready for use. */
void pr_batch_reset(struct postroom_batch *batch);
void pr_batch_release(struct postroom_batch *batch);

/* Appends a zeroed item. NULL: no memory. Pointers to earlier items become invalid. */
postroom_delivery *pr_batch_add(struct postroom_batch *batch);
postroom_delivery *pr_batch_add_dead_letter(struct postroom_batch *batch);

static inline postroom_delivery *pr_batch_items(struct postroom_batch *batch, size_t *ret_count)
{
	*ret_count = batch->count;
	return batch->items;
}

#endif
