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
	int fd; /* readable for ever once stopping */
	int event; /* what is written to for that; the same, unless there is a parent */
	_Atomic int64_t deadline_us; /* monotonic; 0: not stopping */
	const struct pr_stop *parent; /* NULL: none */
};

int pr_stop_init(struct pr_stop *stop, struct pr_err *err);
/* One that a request to the parent stops as well; not the other way round. */
int pr_stop_init_under(struct pr_stop *stop, const struct pr_stop *parent, struct pr_err *err);
void pr_stop_release(struct pr_stop *stop);

/* Begin nothing new from now on, and give up what is not done after grace_ms. */
void pr_stop_request(struct pr_stop *stop, int64_t grace_ms);
bool pr_stop_requested(const struct pr_stop *stop);
int64_t pr_stop_deadline_us(const struct pr_stop *stop); /* when the grace ends; 0: not stopping */
bool pr_stop_overdue(const struct pr_stop *stop); /* the grace has passed */
/* Also the time that the database has to write down what the end of the grace has cut. */
bool pr_stop_is_over(const struct pr_stop *stop);
#define PR_STOP_LAST_US 1000000
/* Readable when the deadline changes: the parent may yet be stopped, and sooner. -1: it will not. */
int pr_stop_news_fd(const struct pr_stop *stop);

/* Sleeps until asked to stop (true) or for ms (false). */
bool pr_stop_wait(const struct pr_stop *stop, int64_t ms);

#endif
