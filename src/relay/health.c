/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the relay is, as seen from another thread.
 *
 * 1. Nothing here waits for a worker: one that hangs must not take the watcher
 *    along.
 */
#include "relay/worker.h"

#include <stdio.h>
#include <string.h>

/* So long after the grace of a stop, whoever still works at its end is heard of more often. */
#define LINGER_MS 2000

static void listen_to(const struct pr_pulse *pulse, const char *who, int64_t now_us,
		      struct pr_relay_health *health)
{
	int64_t due_us = atomic_load_explicit(&pulse->due_us, memory_order_relaxed);
	int64_t silent_ms = (now_us - due_us) / 1000 + pulse->step_ms;
	bool lingers = health->overdue_ms > LINGER_MS && silent_ms > LINGER_MS;

	if (due_us == 0)
		health->running = false;
	else if ((now_us > due_us || lingers) && silent_ms > health->silent_ms) {
		health->silent_ms = silent_ms;
		snprintf(health->who, sizeof(health->who), "%s", who);
	}
}

static void look_at_worker(const struct pr_worker *worker, int64_t now_us,
			   struct pr_relay_health *health)
{
	int64_t trouble_us = atomic_load(&worker->trouble_since_us);
	int64_t away_ms = trouble_us ? (now_us - trouble_us) / 1000 + 1 : 0;

	listen_to(&worker->pulse, worker->name, now_us, health);
	if (away_ms > health->database_away_ms)
		health->database_away_ms = away_ms;
}

static void look_at_sink(struct pr_outlet *outlet, int64_t now_us, struct pr_relay_health *health)
{
	const char *name = outlet->sink->name;
	char reason[sizeof(health->reason)];
	int64_t away_ms = pr_breaker_open_ms(&outlet->gate->breaker, now_us, reason);

	health->sinks_away += away_ms > 0;
	if (away_ms <= health->sink_away_ms)
		return;
	health->sink_away_ms = away_ms;
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
	for (const struct pr_crew *crew = relay->crew; crew; crew = crew->next) {
		listen_to(&crew->janitor.pulse, crew->janitor.name, now_us, ret);
		for (size_t i = 0; i < crew->outlet_count; i++) {
			for (int64_t n = 0; n < crew->config.workers; n++)
				look_at_worker(&crew->outlets[i].workers[n], now_us, ret);
		}
	}
	for (size_t i = 0; i < relay->guest_count; i++)
		listen_to(relay->guests[i].pulse, relay->guests[i].name, now_us, ret);
	for (size_t i = 0; i < relay->crew->outlet_count; i++)
		look_at_sink(&relay->crew->outlets[i], now_us, ret);
	pthread_mutex_unlock(&relay->lock);
	ret->unrouted = atomic_load(&relay->unrouted);
}
