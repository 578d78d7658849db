/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. While open, at most one worker at a time is let through, to probe.
 * 2. A probe whose worker never comes back does not keep it open for ever:
 *    the next one is let through after the same pause.
 */
#include "relay/breaker.h"

#include "base/time.h"

#include <stdio.h>

#define PROBE_EVERY_MS 2000

void pr_breaker_init(struct pr_breaker *breaker)
{
	*breaker = (struct pr_breaker){ 0 };
	pthread_mutex_init(&breaker->lock, NULL);
}

void pr_breaker_release(struct pr_breaker *breaker)
{
	pthread_mutex_destroy(&breaker->lock);
}

enum pr_breaker_answer pr_breaker_ask(struct pr_breaker *breaker, int64_t *ret_wait_ms)
{
	enum pr_breaker_answer answer = PR_BREAKER_CLOSED;
	int64_t now_us = pr_mono_us();

	pthread_mutex_lock(&breaker->lock);
	if (breaker->open_since_us && now_us >= breaker->probe_at_us) {
		answer = PR_BREAKER_PROBE;
		breaker->probe_at_us = now_us + PROBE_EVERY_MS * 1000;
	} else if (breaker->open_since_us) {
		answer = PR_BREAKER_OPEN;
		*ret_wait_ms = (breaker->probe_at_us - now_us + 999) / 1000;
	}
	pthread_mutex_unlock(&breaker->lock);
	return answer;
}

bool pr_breaker_trip(struct pr_breaker *breaker, const char *reason)
{
	int64_t now_us = pr_mono_us();
	bool opened;

	pthread_mutex_lock(&breaker->lock);
	opened = !breaker->open_since_us;
	if (opened)
		breaker->open_since_us = now_us;
	breaker->probe_at_us = now_us + PROBE_EVERY_MS * 1000;
	snprintf(breaker->reason, sizeof(breaker->reason), "%s", reason ? reason : "no reason given");
	pthread_mutex_unlock(&breaker->lock);
	return opened;
}

bool pr_breaker_reset(struct pr_breaker *breaker)
{
	bool closed;

	pthread_mutex_lock(&breaker->lock);
	closed = breaker->open_since_us != 0;
	breaker->open_since_us = 0;
	pthread_mutex_unlock(&breaker->lock);
	return closed;
}

int64_t pr_breaker_open_ms(struct pr_breaker *breaker, char reason[300])
{
	int64_t ms = 0;

	pthread_mutex_lock(&breaker->lock);
	if (breaker->open_since_us) {
		ms = (pr_mono_us() - breaker->open_since_us) / 1000 + 1;
		snprintf(reason, 300, "%s", breaker->reason);
	}
	pthread_mutex_unlock(&breaker->lock);
	return ms;
}
