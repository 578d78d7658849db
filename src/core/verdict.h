/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the publisher's verdict to the disposition that the store writes. */
#ifndef PR_CORE_VERDICT_H
#define PR_CORE_VERDICT_H

#include "base/arena.h"
#include "base/random.h"

#include "core/delivery.h"

#include <stdbool.h>

struct pr_policy {
	int32_t max_attempts;
	int64_t base_delay_ms;
	int64_t max_delay_ms;
	postroom_backoff backoff;
	int32_t max_error_length; /* characters */
	bool block;		  /* a dead letter blocks its key until an operator acts */
	bool forget;		  /* delivered messages are deleted immediately if the store can */
};

enum pr_disposition {
	PR_DISPOSITION_RELEASE, /* pending as before; the attempt is refunded */
	PR_DISPOSITION_DONE,	/* delivered */
	PR_DISPOSITION_RETRY,	/* pending again after retry_in_ms */
	PR_DISPOSITION_DEAD	/* dead */
};

/*
 * Decides by the verdict. An item is dead if it was rejected or if its last attempt failed. A
 * failure without a retry time gets its delay by R1.
 */
enum pr_disposition pr_verdict_decide(postroom_delivery *item, const struct pr_policy *policy,
				      struct pr_random *random);

/*
 * R1: min(base * 2^(attempts-1), max), then uniform between half of it and all of it. Constant:
 * min(base, max).
 */
int64_t pr_backoff_ms(const struct pr_policy *policy, int32_t attempts, struct pr_random *random);

/* Sets verdict and reason; the reason is copied into the arena, truncated and cleaned (A3). */
void pr_verdict_set(postroom_delivery *item, postroom_verdict verdict, struct pr_arena *arena,
		    const struct pr_policy *policy, const char *reason, size_t len);

#endif
