/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of claimed messages. Every byte of it lives in its arena. */
#ifndef PR_CORE_BATCH_H
#define PR_CORE_BATCH_H

#include "base/arena.h"
#include "core/verdict.h"

#include <postroom/store.h>

struct postroom_batch {
	struct pr_arena arena;
	postroom_delivery *items;
	size_t count;
	size_t capacity;
	postroom_delivery *buried; /* met with no attempts left: dead now, only to be told */
	size_t buried_count;
	size_t buried_capacity;
	struct pr_policy policy; /* as the messages were claimed; postroom_nack() and its kin use it */
	int64_t lease_ms;
	void *held; /* what a store keeps alive for the items: a server's answer */
	void (*drop_held)(void *held);
};

/* A zeroed batch is ready for use. */
void pr_batch_reset(struct postroom_batch *batch);
void pr_batch_release(struct postroom_batch *batch);

/* A zeroed item at the end, or NULL when there is no memory. Earlier pointers to items may be moved by it. */
postroom_delivery *pr_batch_add(struct postroom_batch *batch);
postroom_delivery *pr_batch_add_buried(struct postroom_batch *batch);

#endif
