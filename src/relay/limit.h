/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of a sink: messages per second, messages in flight, and messages per
 * claim. All workers of a sink share one. Callers pass the time, on the monotonic clock.
 */
#ifndef PR_RELAY_LIMIT_H
#define PR_RELAY_LIMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pr_limit {
	pthread_mutex_t lock;
	double rate;	     /* messages per second; 0: unlimited */
	double tokens;	     /* messages that may be claimed now; at most one second's worth */
	int64_t filled_us;   /* when they were counted */
	int64_t concurrency; /* maximum messages in flight at the sink; 0: unlimited */
	int64_t at_once;     /* share of a worker */
	int64_t in_use;
};

/* workers: how many share it. */
void pr_limit_init(struct pr_limit *limit, double rate, int64_t concurrency, int64_t workers,
		   int64_t now_us);
/* Changes the limits. Messages already taken still count. */
void pr_limit_change(struct pr_limit *limit, double rate, int64_t concurrency, int64_t workers);
void pr_limit_release(struct pr_limit *limit);

/*
 * How many of want messages may be claimed now. They count from now on. 0: none; *ret_wait_ms is
 * when to retry.
 */
int32_t pr_limit_take(struct pr_limit *limit, int32_t want, int64_t now_us, int64_t *ret_wait_ms);

/* Returns what was taken for messages that were not published. */
void pr_limit_refund(struct pr_limit *limit, int64_t count);

/*
 * Takes a worker's share of the concurrency before it claims anything, so that no claimed message
 * waits for it. *ret is 0 if there is no limit. False: the other workers use all of it; retry.
 */
bool pr_limit_enter(struct pr_limit *limit, int64_t *ret);
/* Takes unused concurrency, at most want, for a while: a single worker may use all of it. */
int64_t pr_limit_widen(struct pr_limit *limit, int64_t want);
void pr_limit_leave(struct pr_limit *limit, int64_t part);

/*
 * How many messages to claim next, between 1 and most, if done of count messages (of a batch of at
 * most limit) were finished in the first slice: about as many as the sink finishes in one slice.
 * The duration says nothing, since many may run concurrently.
 */
int32_t pr_limit_adapt(int32_t limit, int32_t most, int64_t count, int64_t done);

#endif
