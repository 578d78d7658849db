/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The middle of a pass: hand the batch to the sink, slice by slice, and settle
 * each slice as soon as it is decided, so that an ack never waits for a slow
 * neighbour.
 *
 * 1. Nothing is published unless the lease outlasts the slice, by the monotonic
 *    clock: it is renewed, or the batch is left to whoever has it by now.
 * 2. Told to stop, or the sink unreachable: what was not begun is released at
 *    once, its attempt given back.
 */
#include "relay/worker.h"

#include <string.h>

/* Nothing new is begun later than this into a slice; what has begun is then waited for. */
#define SLICE_MS 1000

static int64_t slice_ms(const struct pr_relay_config *config)
{
	return config->lease_ms / 6 < SLICE_MS ? config->lease_ms / 6 : SLICE_MS;
}

/* Moves the items for which front() is true before the others, each in their order. */
static size_t bring_forward(struct pr_worker *worker, postroom_delivery *items, size_t count,
			    bool (*front)(const postroom_delivery *))
{
	size_t ahead = 0, kept = 0;
	postroom_delivery *rest;

	while (ahead < count && front(&items[ahead]))
		ahead++;
	rest = pr_arena_alloc(&worker->batch.arena, (count - ahead) * sizeof(*rest));
	/* Without memory for the move only the run in front counts: the others are released. */
	for (size_t i = ahead; rest && i < count; i++) {
		if (front(&items[i]))
			items[ahead++] = items[i];
		else
			rest[kept++] = items[i];
	}
	if (kept)
		memcpy(&items[ahead], rest, kept * sizeof(*rest));
	return ahead;
}

static bool decided(const postroom_delivery *item)
{
	return item->verdict != POSTROOM_UNTRIED;
}

static bool lost(const postroom_delivery *item)
{
	return item->settled == POSTROOM_LEASE_LOST;
}

/*
 * Makes sure that the lease of the items outlasts a slice. Those that are lost
 * are told and counted into *from. Failing to renew is no failure as long as
 * time is left for another slice.
 */
static int keep_lease(struct pr_worker *worker, size_t *from, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->relay->config;
	struct postroom_batch *batch = &worker->batch;
	int64_t need_ms = slice_ms(config) + config->publish_timeout_ms;
	struct pr_lease renewed = pr_lease_from_now(config->lease_ms);
	int status;

	if (pr_lease_left_ms(worker->lease) >= need_ms)
		return POSTROOM_OK;
	if (!worker->store)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the database is away");
	status = worker->store->ops->renew(worker->store, &pr_table_outbox, batch->items + *from,
					   batch->count - *from, config->lease_ms, err);
	if (status < 0 && status != POSTROOM_LEASE_LOST)
		return status;
	worker->lease = renewed;
	if (status == POSTROOM_LEASE_LOST) {
		size_t gone = bring_forward(worker, batch->items + *from, batch->count - *from,
					    lost);

		for (size_t i = *from; i < *from + gone; i++) {
			pr_log_event(&worker->log, PR_LOG_INFO, "OUTBOX_WORKER_SKIP_PROCESSED");
			pr_log_str(&worker->log, "id", batch->items[i].id);
			pr_log_end(&worker->log);
		}
		atomic_fetch_add(&worker->relay->totals.lost, (int64_t)gone);
		*from += gone;
	}
	return POSTROOM_OK;
}

/* Reads the breaker's evidence from the verdicts; true while the sink may be used. */
static bool heed(struct pr_worker *worker, const postroom_delivery *items, size_t count)
{
	struct pr_breaker *breaker = &worker->relay->breaker;
	const postroom_delivery *unreachable = NULL;
	bool answered = false;

	for (size_t i = 0; i < count; i++) {
		if (items[i].verdict == POSTROOM_UNREACHABLE)
			unreachable = &items[i];
		else
			answered = true;
	}
	if (unreachable && pr_breaker_trip(breaker, unreachable->reason)) {
		pr_log_event(&worker->log, PR_LOG_WARN, "OUTBOX_SINK_UNREACHABLE");
		pr_log_str(&worker->log, "error", unreachable->reason);
		pr_log_end(&worker->log);
	}
	if (!unreachable && answered && pr_breaker_reset(breaker)) {
		pr_log_event(&worker->log, PR_LOG_WARN, "OUTBOX_SINK_BACK");
		pr_log_end(&worker->log);
	}
	return !unreachable;
}

static int publish_slice(struct pr_worker *worker, postroom_delivery *items, size_t count,
			 struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->relay->config;
	struct pr_flight flight = {
		.arena = &worker->batch.arena,
		.policy = &config->policy,
		.begin_until_us = pr_mono_us() + slice_ms(config) * 1000,
		.timeout_ms = config->publish_timeout_ms,
		.stop = &worker->relay->stop,
		.log = &worker->log,
	};

	return worker->sink->ops->publish(worker->sink, items, count, &flight, err);
}

/* Publishes from *from on until all is decided or something says stop; *from moves along. */
static int publish_slices(struct pr_worker *worker, size_t *from, struct pr_err *err)
{
	struct postroom_batch *batch = &worker->batch;

	while (*from < batch->count && !pr_stop_requested(&worker->relay->stop)) {
		bool usable;
		size_t done;
		int broken;
		int status = keep_lease(worker, from, err);

		if (status < 0 || *from == batch->count)
			return status;
		broken = publish_slice(worker, batch->items + *from, batch->count - *from, err);
		done = bring_forward(worker, batch->items + *from, batch->count - *from, decided);
		usable = heed(worker, batch->items + *from, done);
		if (broken < 0) {
			struct pr_err unheard;

			pr_settle_items(worker, batch->items + *from, done, &unheard);
			*from += done;
			return broken;
		}
		status = pr_settle_items(worker, batch->items + *from, done, err);
		*from += done;
		if (status < 0 || !usable || done == 0)
			return status;
	}
	return POSTROOM_OK;
}

int pr_publish_batch(struct pr_worker *worker, struct pr_err *err)
{
	struct postroom_batch *batch = &worker->batch;
	struct pr_err later;
	size_t from = 0;
	int status = publish_slices(worker, &from, err);

	if (from < batch->count && pr_lease_left_ms(worker->lease) > 0) {
		int released = pr_settle_items(worker, batch->items + from, batch->count - from,
					       status < 0 ? &later : err);

		if (status >= 0)
			status = released;
	}
	return status;
}
