/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The relay as seen from another thread.
 *
 * 1. Nothing here waits for a worker, and no callback runs while the relay's lock is held.
 * 2. A sink of two generations, during a reload, is one sink.
 */
#include "relay/worker.h"

#include <stdlib.h>
#include <string.h>

const char *const pr_worker_states[PR_WORKER_STATES] = {
	[PR_WORKER_IDLE] = "idle",
	[PR_WORKER_CLAIMING] = "claiming",
	[PR_WORKER_PUBLISHING] = "publishing",
	[PR_WORKER_SETTLING] = "settling",
};

static int64_t to_wall_us(int64_t mono_us)
{
	return pr_now_us() - (pr_mono_us() - mono_us);
}

static void read_meter(struct pr_sink_meter *meter, struct pr_sink_view *view)
{
	for (size_t i = 0; i <= PR_TOPICS_MAX; i++) {
		view->delivered += pr_counted(&meter->published[i][POSTROOM_DELIVERED]);
		view->failed += pr_counted(&meter->published[i][POSTROOM_FAILED]) +
				pr_counted(&meter->published[i][POSTROOM_REJECTED]);
	}
	view->last_delivery_at_us = pr_counted(&meter->last_delivery_us);
	view->last_error_at_us = pr_meter_read_error(&meter->last_error, view->last_error);
}

static void read_breaker(struct pr_breaker *breaker, struct pr_sink_view *view)
{
	char reason[300];
	int64_t open_ms = pr_breaker_open_ms(breaker, pr_mono_us(), reason);

	view->breaker_open = open_ms > 0;
	view->breaker = "closed";
	if (!view->breaker_open)
		return;
	view->breaker = pr_breaker_is_probing(breaker) ? "half-open" : "open";
	view->open_since_us = pr_now_us() - open_ms * 1000;
}

/* Of the sink in all generations. Call it with the lock of the relay held. */
static int64_t count_in_flight(const struct pr_relay *relay, const struct pr_sink_meter *meter)
{
	int64_t in_flight = 0;

	for (const struct pr_generation *generation = relay->generation; generation;
	     generation = generation->next) {
		for (size_t i = 0; i < generation->pool_count; i++) {
			const struct pr_sink_pool *pool = &generation->pools[i];

			if (pool->sink_state->meter != meter)
				continue;
			for (int64_t n = 0; n < generation->config.workers; n++)
				in_flight += atomic_load(&pool->workers[n].in_flight);
		}
	}
	return in_flight;
}

void pr_relay_sinks(struct pr_relay *relay, void (*fn)(void *context, const struct pr_sink_view *),
		    void *context)
{
	struct pr_sink_state **sink_states;
	int64_t *in_flight;
	size_t count;

	pthread_mutex_lock(&relay->lock);
	count = relay->generation->pool_count;
	sink_states = calloc(count + 1, sizeof(*sink_states));
	in_flight = calloc(count + 1, sizeof(*in_flight));
	for (size_t i = 0; sink_states && in_flight && i < count; i++) {
		sink_states[i] = relay->generation->pools[i].sink_state;
		in_flight[i] = count_in_flight(relay, sink_states[i]->meter);
	}
	pthread_mutex_unlock(&relay->lock);
	for (size_t i = 0; sink_states && in_flight && i < count; i++) {
		struct pr_sink_view view = { .name = sink_states[i]->meter->name,
					     .url_redacted = sink_states[i]->shown,
					     .in_flight = in_flight[i] };

		read_meter(sink_states[i]->meter, &view);
		read_breaker(&sink_states[i]->breaker, &view);
		fn(context, &view);
	}
	free(sink_states);
	free(in_flight);
}

int64_t pr_relay_topic_error(struct pr_relay *relay, const char *topic,
			     char ret[PR_LAST_ERROR_SIZE])
{
	struct pr_metrics *metrics = &relay->metrics;
	size_t at = pr_meter_find_topic(metrics, topic);

	return at > 0 ? pr_meter_read_error(&metrics->topics[at].last_error, ret) : 0;
}

static struct pr_worker_view view_worker(struct pr_worker *worker)
{
	int state = atomic_load(&worker->state);
	int64_t since_us = atomic_load(&worker->state_us);
	struct pr_worker_view view = {
		.sink = worker->pool->sink_state->meter->name,
		.state = pr_worker_states[state],
		.in_flight = atomic_load(&worker->in_flight),
		.since_us = since_us ? to_wall_us(since_us) : worker->relay->metrics.started_us,
	};

	if (atomic_load_explicit(&worker->identified, memory_order_acquire))
		memcpy(view.worker, worker->id, sizeof(view.worker));
	return view;
}

/* Call it with the lock of the relay held. NULL in *ret: no memory. */
static size_t list_workers(struct pr_relay *relay, struct pr_worker_view **ret)
{
	size_t most = 0, count = 0;

	for (const struct pr_generation *generation = relay->generation; generation;
	     generation = generation->next)
		most += generation->pool_count * (size_t)generation->config.workers;
	*ret = calloc(most + 1, sizeof(**ret));
	for (const struct pr_generation *generation = relay->generation; *ret && generation;
	     generation = generation->next) {
		for (size_t i = 0; i < generation->pool_count; i++) {
			for (int64_t n = 0; n < generation->config.workers; n++)
				(*ret)[count++] = view_worker(&generation->pools[i].workers[n]);
		}
	}
	return count;
}

void pr_relay_workers(struct pr_relay *relay,
		      void (*fn)(void *context, const struct pr_worker_view *), void *context)
{
	struct pr_worker_view *views;
	size_t count;

	pthread_mutex_lock(&relay->lock);
	count = list_workers(relay, &views);
	pthread_mutex_unlock(&relay->lock);
	for (size_t i = 0; i < count; i++)
		fn(context, &views[i]);
	free(views);
}

_Static_assert(PR_HISTORY_MAX == PR_RATES_SLOTS - 1, "one sample for each slot that is over");

size_t pr_relay_history(struct pr_relay *relay, struct pr_history_sample ret[PR_HISTORY_MAX])
{
	struct pr_rates_sample samples[PR_HISTORY_MAX];
	size_t count = pr_rates_history(&relay->rates, pr_mono_us(), samples);

	for (size_t i = 0; i < count; i++)
		ret[i] = (struct pr_history_sample){
			.at_us = to_wall_us(samples[i].begun_us),
			.delivered = samples[i].delivered,
			.failed = samples[i].failed,
			.p50 = samples[i].p50_us < 0 ? -1 : samples[i].p50_us / 1e6,
			.p99 = samples[i].p99_us < 0 ? -1 : samples[i].p99_us / 1e6,
		};
	return count;
}
