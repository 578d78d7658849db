/* SPDX-License-Identifier: Apache-2.0 */
/* From what the publisher said to what the store writes. */
#ifndef PR_CORE_VERDICT_H
#define PR_CORE_VERDICT_H

#include "base/arena.h"
#include "base/random.h"

#include <postroom/store.h>

#include <stdbool.h>

struct pr_policy {
	int32_t max_attempts;
	int64_t base_delay_ms;
	int64_t max_delay_ms;
	postroom_backoff backoff;
	int32_t max_error_length; /* characters */
	bool block;  /* a dead message holds its key back until an operator acts */
	bool forget; /* delivered messages are not kept, where the store can tell them apart at once */
};

enum pr_fate {
	PR_FATE_RELEASE, /* pending as before, the attempt given back */
	PR_FATE_DONE,	 /* delivered */
	PR_FATE_RETRY,	 /* pending again after retry_in_ms */
	PR_FATE_BURY	 /* dead */
};

/*
 * Decides an item by its verdict: dead when rejected or when a failure was the
 * last attempt; a failure that does not say when gets its delay by R1.
 */
enum pr_fate pr_verdict_decide(postroom_delivery *item, const struct pr_policy *policy,
			       struct pr_random *random);

/*
 * R1: min(base * 2^(attempts-1), max), then uniform between its half and
 * itself. Constant: base, not past max, as it is.
 */
int64_t pr_backoff_ms(const struct pr_policy *policy, int32_t attempts, struct pr_random *random);

/* Sets verdict and reason; the reason is copied into the arena, cut and cleaned (A3). */
void pr_verdict_set(postroom_delivery *item, postroom_verdict verdict, struct pr_arena *arena,
		    const struct pr_policy *policy, const char *reason, size_t len);

#endif
