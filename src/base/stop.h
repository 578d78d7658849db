/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request to stop. A relay has one, shared by all its threads. Every wait in the relay includes
 * its descriptor. A signal handler or any thread can request a stop.
 */
#ifndef PR_BASE_STOP_H
#define PR_BASE_STOP_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pr_stop {
	int fd;	   /* readable from the request on */
	int event; /* eventfd behind fd; the same descriptor unless there is a parent */
	_Atomic int64_t deadline_us;  /* monotonic; 0: not stopping */
	const struct pr_stop *parent; /* NULL: none */
};

int pr_stop_init(struct pr_stop *stop, struct pr_err *err);
/* A request to the parent also stops this one, but not vice versa. */
int pr_stop_init_under(struct pr_stop *stop, const struct pr_stop *parent, struct pr_err *err);
void pr_stop_release(struct pr_stop *stop);

/* Requests a stop: begin nothing new, and abandon unfinished work after grace_ms. */
void pr_stop_request(struct pr_stop *stop, int64_t grace_ms);
bool pr_stop_requested(const struct pr_stop *stop);
int64_t pr_stop_deadline_us(const struct pr_stop *stop); /* when the grace period ends; 0: not
							  * stopping */
bool pr_stop_overdue(const struct pr_stop *stop);	 /* the grace period has passed */
/* Also the time to settle in the database after the end of the grace period. */
bool pr_stop_is_over(const struct pr_stop *stop);
#define PR_STOP_LAST_US 1000000
/* Readable when the deadline changes, because the parent may be stopped later with an earlier
 * deadline. -1: the deadline cannot change. */
int pr_stop_event_fd(const struct pr_stop *stop);

/* Sleeps until a stop is requested (true) or for ms (false). */
bool pr_stop_wait(const struct pr_stop *stop, int64_t ms);

#endif
