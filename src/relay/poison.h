/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poison suspects: messages of one sink that failed as UNREACHABLE and may themselves be the
 * cause. They are in memory only, under the breaker's lock. A full table drops its oldest entry.
 */
#ifndef PR_RELAY_POISON_H
#define PR_RELAY_POISON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PR_POISON_SUSPECTS_MAX 256

struct pr_poison_suspect {
	int64_t seq;
	int64_t failed_us; /* its last failure; other messages delivered since are evidence */
	bool guilty;	   /* others were delivered while it failed: its failures count */
	bool alone;	   /* it makes others of its call fail: publish it in a call of its own */
};

struct pr_poison_suspects {
	struct pr_poison_suspect list[PR_POISON_SUSPECTS_MAX];
	size_t count;
	size_t next; /* the entry that is replaced next, once the table is full */
};

/* NULL: not a suspect. */
struct pr_poison_suspect *pr_poison_find(struct pr_poison_suspects *suspects, int64_t seq);
/* The message's entry; adds one if there is none. */
struct pr_poison_suspect *pr_poison_add(struct pr_poison_suspects *suspects, int64_t seq);
void pr_poison_remove(struct pr_poison_suspects *suspects, int64_t seq);
/* After a real outage no suspect is guilty any more: the outage may have caused its failures. */
void pr_poison_clear(struct pr_poison_suspects *suspects);

#endif
