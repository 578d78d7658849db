/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watchdog of a thread. Before each step that may take long, the thread feeds it with the time
 * that the step may take. A watcher needs to know nothing about the thread. A wait without a
 * deadline (for a lock that another process holds) feeds the watchdog while it waits. The watchdog
 * of a hung thread becomes overdue.
 */
#ifndef PR_BASE_WATCHDOG_H
#define PR_BASE_WATCHDOG_H

#include "base/time.h"

#include <stdatomic.h>

#define PR_WATCHDOG_ENDED INT64_MAX

struct pr_watchdog {
	int64_t step_ms; /* longest duration of a step; set before the thread starts */
	_Atomic int64_t
		due_us; /* monotonic; 0: not started; PR_WATCHDOG_ENDED: the thread has ended */
	void (*on_feed)(
		struct pr_watchdog
			*watchdog); /* called at each feed by the thread itself; may be NULL */
};

/* The next feed is due after one step and a pause of pause_ms. The watchdog may be NULL. */
static inline void pr_watchdog_feed(struct pr_watchdog *watchdog, int64_t pause_ms)
{
	if (!watchdog)
		return;
	atomic_store_explicit(&watchdog->due_us,
			      pr_mono_us() + (watchdog->step_ms + pause_ms) * 1000,
			      memory_order_relaxed);
	if (watchdog->on_feed)
		watchdog->on_feed(watchdog);
}

static inline void pr_watchdog_end(struct pr_watchdog *watchdog)
{
	atomic_store(&watchdog->due_us, PR_WATCHDOG_ENDED);
}

#endif
