/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread's sign of life. Each says, before it does anything that may take
 * long, by when it will be heard of again; whoever watches needs to know nothing
 * of what it does. A wait without an end of its own (a lock that somebody else
 * holds) beats while it waits, and a thread that hangs falls silent.
 */
#ifndef PR_BASE_PULSE_H
#define PR_BASE_PULSE_H

#include "base/time.h"

#include <stdatomic.h>

#define PR_PULSE_ENDED INT64_MAX

struct pr_pulse {
	int64_t step_ms; /* what any one step may take; set before the thread starts */
	_Atomic int64_t
		due_us; /* monotonic; 0: not begun; PR_PULSE_ENDED: nothing is owed any more */
	void (*heard)(struct pr_pulse *pulse); /* at each beat, on the thread's own stack; may be NULL */
};

/* The next one comes after a step at most, and a pause of pause_ms before it. pulse may be NULL. */
static inline void pr_pulse_beat(struct pr_pulse *pulse, int64_t pause_ms)
{
	if (!pulse)
		return;
	atomic_store_explicit(&pulse->due_us, pr_mono_us() + (pulse->step_ms + pause_ms) * 1000,
			      memory_order_relaxed);
	if (pulse->heard)
		pulse->heard(pulse);
}

static inline void pr_pulse_end(struct pr_pulse *pulse)
{
	atomic_store(&pulse->due_us, PR_PULSE_ENDED);
}

#endif
