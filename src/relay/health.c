/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health of the relay, as seen from another thread.
 *
 * 1. Nothing here waits for a worker, so a hung worker cannot block the watcher.
 */
#include "relay/worker.h"

#include <stdio.h>
#include <string.h>

/* This long after the grace period, a thread that is still ending feeds its watchdog more often. */
#define LINGER_MS 2000

static void check_watchdog(const struct pr_watchdog *watchdog, const char *watchdog_thread,
			   int64_t now_us, struct pr_relay_health *health)
{
	int64_t due_us = atomic_load_explicit(&watchdog->due_us, memory_order_relaxed);
	int64_t watchdog_overdue_ms = (now_us - due_us) / 1000 + watchdog->step_ms;
	bool lingers = health->overdue_ms > LINGER_MS && watchdog_overdue_ms > LINGER_MS;

	if (due_us == 0)
		health->running = false;
	else if ((now_us > due_us || lingers) &&
		 watchdog_overdue_ms > health->watchdog_overdue_ms) {
		health->watchdog_overdue_ms = watchdog_overdue_ms;
		snprintf(health->watchdog_thread, sizeof(health->watchdog_thread), "%s",
			 watchdog_thread);
	}
}

static void check_worker(const struct pr_worker *worker, int64_t now_us,
			 struct pr_relay_health *health)
{
	int64_t trouble_us = atomic_load(&worker->outage_since_us);
	int64_t outage_ms = trouble_us ? (now_us - trouble_us) / 1000 + 1 : 0;

	check_watchdog(&worker->watchdog, worker->name, now_us, health);
	if (outage_ms > health->database_outage_ms)
		health->database_outage_ms = outage_ms;
}

static void check_sink(struct pr_sink_pool *pool, int64_t now_us, struct pr_relay_health *health)
{
	const char *name = pool->sink->name;
	char reason[sizeof(health->reason)];
	int64_t outage_ms = pr_breaker_open_ms(&pool->sink_state->breaker, now_us, reason);

	health->sinks_down += outage_ms > 0;
	if (outage_ms <= health->sink_outage_ms)
		return;
	health->sink_outage_ms = outage_ms;
	snprintf(health->sink, sizeof(health->sink), "%s", name ? name : "");
	memcpy(health->reason, reason, sizeof(reason));
}

void pr_relay_health(struct pr_relay *relay, struct pr_relay_health *ret)
{
	int64_t now_us = pr_mono_us(), end_us = pr_stop_deadline_us(&relay->stop);

	*ret = (struct pr_relay_health){ .running = true };
	if (end_us && now_us >= end_us)
		ret->overdue_ms = (now_us - end_us) / 1000 + 1;
	pthread_mutex_lock(&relay->lock);
	for (const struct pr_generation *generation = relay->generation; generation;
	     generation = generation->next) {
		check_watchdog(&generation->janitor.watchdog, generation->janitor.name, now_us,
			       ret);
		for (size_t i = 0; i < generation->pool_count; i++) {
			for (int64_t n = 0; n < generation->config.workers; n++)
				check_worker(&generation->pools[i].workers[n], now_us, ret);
		}
	}
	for (size_t i = 0; i < relay->watched_count; i++)
		check_watchdog(relay->watched_threads[i].watchdog, relay->watched_threads[i].name,
			       now_us, ret);
	for (size_t i = 0; i < relay->generation->pool_count; i++)
		check_sink(&relay->generation->pools[i], now_us, ret);
	pthread_mutex_unlock(&relay->lock);
	ret->unrouted = atomic_load(&relay->unrouted);
}
