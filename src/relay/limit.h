/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much a sink is given: messages a second, messages at once, and how many
 * are claimed for it together. One a sink, shared by all its workers. Time is
 * given, on the monotonic clock.
 */
#ifndef PR_RELAY_LIMIT_H
#define PR_RELAY_LIMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pr_limit {
	pthread_mutex_t lock;
	double rate;	     /* messages a second; 0: any number */
	double tokens;	     /* messages that may be claimed now; a second's worth at most */
	int64_t filled_us;   /* when they were counted */
	int64_t concurrency; /* messages in the sink's hands at once; 0: any number */
	int64_t at_once;     /* of them, in a worker's */
	int64_t in_hand;
};

/* workers: how many share it. */
void pr_limit_init(struct pr_limit *limit, double rate, int64_t concurrency, int64_t workers,
		   int64_t now_us);
/* From now on; what has been taken counts. */
void pr_limit_change(struct pr_limit *limit, double rate, int64_t concurrency, int64_t workers);
void pr_limit_release(struct pr_limit *limit);

/*
 * How many messages of want may be claimed now: they are counted from here on.
 * 0: none, and *ret_wait_ms says when to ask again.
 */
int32_t pr_limit_take(struct pr_limit *limit, int32_t want, int64_t now_us, int64_t *ret_wait_ms);

/* So many of those were not published. */
void pr_limit_give_back(struct pr_limit *limit, int64_t count);

/*
 * A worker's part of the concurrency, before it claims anything, so that nothing
 * lies claimed and waits for it. *ret is 0 where there is no limit. False: the
 * others have all of it; ask again.
 */
bool pr_limit_enter(struct pr_limit *limit, int64_t *ret);
/* What nobody else has of it, want at most, for a while: one worker alone may use all. */
int64_t pr_limit_widen(struct pr_limit *limit, int64_t want);
void pr_limit_leave(struct pr_limit *limit, int64_t part);

/*
 * How many messages are to be claimed next, between 1 and most, when of the count
 * in a batch of at most limit so many were done in its first slice: about what the
 * sink does in one. How long that took says nothing: many may take long together.
 */
int32_t pr_limit_adapt(int32_t limit, int32_t most, int64_t count, int64_t done);

#endif
