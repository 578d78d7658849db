/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking everybody to stop. One per relay, shared by all its threads; every
 * wait in the relay includes its descriptor. Requesting is safe from a signal
 * handler and from any thread.
 */
#ifndef PR_BASE_STOP_H
#define PR_BASE_STOP_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pr_stop {
	int fd; /* eventfd: readable for ever once stopping */
	_Atomic int64_t deadline_us; /* monotonic; 0: not stopping */
};

int pr_stop_init(struct pr_stop *stop, struct pr_err *err);
void pr_stop_release(struct pr_stop *stop);

/* Begin nothing new from now on, and give up what is not done after grace_ms. */
void pr_stop_request(struct pr_stop *stop, int64_t grace_ms);
bool pr_stop_requested(const struct pr_stop *stop);
bool pr_stop_overdue(const struct pr_stop *stop); /* the grace has passed */

/* Sleeps until asked to stop (true) or for ms (false). */
bool pr_stop_wait(const struct pr_stop *stop, int64_t ms);

#endif
