/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An outage is not poison: while the sink can not be reached nothing is claimed
 * for it, but for one message every few seconds that finds out whether it is
 * back. One breaker a sink, shared by all workers.
 */
#ifndef PR_RELAY_BREAKER_H
#define PR_RELAY_BREAKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pr_breaker {
	pthread_mutex_t lock;
	int64_t open_since_us; /* monotonic; 0: closed */
	int64_t probe_at_us;
	char reason[300]; /* why it opened, for people */
};

enum pr_breaker_answer {
	PR_BREAKER_CLOSED, /* claim as you like */
	PR_BREAKER_PROBE,  /* claim one message: you are the one who finds out */
	PR_BREAKER_OPEN	   /* claim nothing */
};

void pr_breaker_init(struct pr_breaker *breaker);
void pr_breaker_release(struct pr_breaker *breaker);

/* ret_wait_ms is set for PR_BREAKER_OPEN: when to ask again. */
enum pr_breaker_answer pr_breaker_ask(struct pr_breaker *breaker, int64_t *ret_wait_ms);

/* The sink could not be reached; true if that opened the breaker. */
bool pr_breaker_trip(struct pr_breaker *breaker, const char *reason);

/* The sink answered; true if that closed it. */
bool pr_breaker_reset(struct pr_breaker *breaker);

/* How long it has been open, 0 if closed; reason gets its text. */
int64_t pr_breaker_open_ms(struct pr_breaker *breaker, char reason[300]);

#endif
