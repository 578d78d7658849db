/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the relay is, as seen from another thread.
 *
 * 1. Nothing here waits for a worker: one that hangs must not take the watcher
 *    along.
 */
#include "relay/worker.h"

#include <stdio.h>

static void listen_to(const struct pr_pulse *pulse, const char *who, int64_t now_us,
		      struct pr_relay_health *health)
{
	int64_t due_us = atomic_load_explicit(&pulse->due_us, memory_order_relaxed);
	int64_t silent_ms = (now_us - due_us) / 1000 + pulse->step_ms;

	if (due_us == 0)
		health->running = false;
	else if (now_us > due_us && silent_ms > health->silent_ms) {
		health->silent_ms = silent_ms;
		snprintf(health->who, sizeof(health->who), "%s", who);
	}
}

void pr_relay_health(struct pr_relay *relay, struct pr_relay_health *ret)
{
	int64_t now_us = pr_mono_us();

	*ret = (struct pr_relay_health){ .running = true };
	listen_to(&relay->janitor.pulse, relay->janitor.name, now_us, ret);
	for (int64_t i = 0; i < relay->config.workers; i++) {
		const struct pr_worker *worker = &relay->workers[i];
		int64_t trouble_us = atomic_load(&worker->trouble_since_us);
		int64_t away_ms = trouble_us ? (now_us - trouble_us) / 1000 + 1 : 0;

		listen_to(&worker->pulse, worker->name, now_us, ret);
		if (away_ms > ret->database_away_ms)
			ret->database_away_ms = away_ms;
	}
	ret->overdue = pr_stop_overdue(&relay->stop);
	ret->sink_away_ms = pr_breaker_open_ms(&relay->breaker, now_us, ret->reason);
}
