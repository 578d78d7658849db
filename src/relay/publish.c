/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The middle of a pass: hand the batch to the sink, slice by slice, and settle
 * each slice as soon as it is decided, so that an ack never waits for a slow
 * neighbour.
 *
 * 1. Nothing is published unless the lease outlasts the slice, by the monotonic
 *    clock: it is renewed, or the batch is left to whoever has it by now. What may
 *    take longer than its lease has it renewed by the loop that waits for it, never by
 *    anybody beside it: a worker that hangs loses it.
 * 2. Told to stop, or the sink away: what was not begun is released at once, its
 *    attempt given back; so is what the end of the grace has cut. While the sink is
 *    away one message at a time is published.
 * 3. A message that did not arrive, whatever became of it, keeps back what stands
 *    behind it with its namespace, topic and key: that is released with it. So does
 *    one that arrived and was lost before it could be settled: it will arrive again.
 * 4. What a slice has decided is settled before the next begins, which takes over the
 *    memory of the reasons.
 */
#include "relay/worker.h"

#include <string.h>

/* Nothing new is begun later than this into a slice; what has begun is then waited for. */
#define SLICE_MS 1000

/* One part in so many of the lease is kept for settling, and for renewing what is left. */
#define SETTLE_PART 10

/* What is under way for long has its lease renewed after one part in so many of it. */
#define BEAT_PART 3

/* The database may take one part in so many of the lease for that, and is then asked again soon. */
#define BEAT_TRY_PART 6
#define BEAT_AGAIN_PART 30
#define BEAT_AGAIN_MAX_MS 1000

static int64_t slice_ms(const struct pr_relay_config *config)
{
	return config->lease_ms / 6 < SLICE_MS ? config->lease_ms / 6 : SLICE_MS;
}

/* Not to be published any more: decided, or else its settled says why. */
static bool is_over(const postroom_delivery *item)
{
	return item->verdict != POSTROOM_UNTRIED || item->settled != POSTROOM_OK;
}

static bool is_lost(const postroom_delivery *item)
{
	return item->settled == POSTROOM_LEASE_LOST;
}

static bool keeps_back(const postroom_delivery *item)
{
	return pr_sink_is_ordered(item) && is_over(item) &&
	       (item->verdict != POSTROOM_DELIVERED || is_lost(item));
}

static bool any_lost(const postroom_delivery *items, size_t count)
{
	size_t i = 0;

	while (i < count && !is_lost(&items[i]))
		i++;
	return i < count;
}

/* Not only the one right before it counts: that may have arrived and the one before that be lost. */
static bool stands_behind(const postroom_delivery *items, const size_t *before, size_t at)
{
	do {
		at = before[at];
	} while (at != PR_SINK_NONE && !keeps_back(&items[at]));
	return at != PR_SINK_NONE;
}

/* Whoever stands behind one that did not arrive is over too. */
static void keep_back(struct pr_worker *worker, postroom_delivery *items, size_t count)
{
	const size_t *before;
	size_t i = 0;

	while (i < count && !keeps_back(&items[i]))
		i++;
	if (i == count)
		return;
	before = pr_sink_order(items, count, &worker->scratch);
	for (; i < count; i++) {
		/* Without the memory to tell keys apart all that have one wait. */
		if (pr_sink_is_ordered(&items[i]) && !is_over(&items[i]) &&
		    (!before || stands_behind(items, before, i)))
			items[i].settled = POSTROOM_BUSY;
	}
}

int pr_items_part(struct pr_worker *worker, postroom_delivery *items, size_t count,
		  bool (*is_first)(const postroom_delivery *item), size_t *ret_first,
		  struct pr_err *err)
{
	size_t ahead = 0, kept = 0;
	postroom_delivery *rest;

	while (ahead < count && is_first(&items[ahead]))
		ahead++;
	rest = pr_arena_alloc(&worker->scratch, (count - ahead) * sizeof(*rest));
	if (!rest)
		return pr_err_nomem(err);
	for (size_t i = ahead; i < count; i++) {
		if (is_first(&items[i]))
			items[ahead++] = items[i];
		else
			rest[kept++] = items[i];
	}
	memcpy(&items[ahead], rest, kept * sizeof(*rest));
	*ret_first = ahead;
	return POSTROOM_OK;
}

/*
 * Some are lost: what stands behind them is released. The first of the items have been
 * settled before; all that are over now are counted into *from.
 */
static int leave_behind(struct pr_worker *worker, postroom_delivery *items, size_t count,
			size_t settled, size_t *from, struct pr_err *err)
{
	size_t gone;
	int status;

	keep_back(worker, items, count);
	items += settled;
	status = pr_items_part(worker, items, count - settled, is_over, &gone, err);
	if (status < 0)
		return status;
	*from += gone;
	return pr_settle_items(worker, items, gone, err);
}

/* How long the lease must last when something begins: until it is settled, or until the next beat. */
static int64_t after_begin_ms(const struct pr_relay_config *config)
{
	int64_t timeout_ms = config->publish_timeout_ms;
	int64_t ms = config->beats ? config->lease_ms / BEAT_PART :
				     timeout_ms + timeout_ms / PR_FLIGHT_END_PART;

	return ms + config->lease_ms / SETTLE_PART;
}

/*
 * Makes sure that the lease of the items outlasts a slice. Those that are lost
 * are told, those behind them released, and all counted into *from.
 */
static int keep_lease(struct pr_worker *worker, size_t *from, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->crew->config;
	struct postroom_batch *batch = worker->batch;
	postroom_delivery *items = batch->items + *from;
	struct pr_lease renewed = pr_lease_from_now(config->lease_ms);
	size_t count = batch->count - *from;
	int status;

	if (pr_lease_left_ms(worker->lease) >= slice_ms(config) + after_begin_ms(config))
		return POSTROOM_OK;
	if (!worker->store)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the database is away");
	status = worker->store->ops->renew(worker->store, config->table, items, count,
					   config->lease_ms, err);
	if (status < 0 && status != POSTROOM_LEASE_LOST)
		return status;
	worker->lease = renewed;
	worker->trouble_since_us = 0;
	if (status >= 0)
		return POSTROOM_OK;
	return leave_behind(worker, items, count, 0, from, err);
}

/* Cut at the end of the grace: neither they nor the sink are at fault. */
static void give_back(postroom_delivery *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (items[i].verdict == POSTROOM_FAILED)
			items[i].verdict = POSTROOM_UNREACHABLE;
	}
}

/* Reads the breaker's evidence from the verdicts; true while the sink may be used. */
static bool heed(struct pr_worker *worker, postroom_delivery *items, size_t count)
{
	struct pr_breaker *breaker = pr_worker_breaker(worker);
	struct pr_breaker_heard heard = {
		.items = items,
		.count = count,
		.server = worker->sink->ops->server,
		.probe = worker->probe,
		.pause_us = 1000 * pr_random_between(&worker->random, PR_BREAKER_PAUSE_MIN_MS,
						     PR_BREAKER_PAUSE_MAX_MS),
	};
	enum pr_breaker_news news;
	char reason[300] = "";

	if (pr_stop_overdue(&worker->crew->stop)) {
		give_back(items, count);
		return false;
	}
	news = pr_breaker_heed(breaker, pr_mono_us(), &heard);
	worker->probe = 0;
	if (news == PR_BREAKER_OPENED) {
		pr_breaker_open_ms(breaker, pr_mono_us(), reason);
		pr_log_box(&worker->log, PR_LOG_WARN, "SINK_UNREACHABLE");
		pr_log_str(&worker->log, "error", reason);
		pr_log_end(&worker->log);
	} else if (news == PR_BREAKER_SHUT) {
		pr_log_box(&worker->log, PR_LOG_WARN, "SINK_BACK");
		pr_log_end(&worker->log);
	}
	return !pr_breaker_is_open(breaker);
}

/* What renews the lease of all that the worker has, while some of it is under way. */
struct heart {
	struct pr_beat beat;
	struct pr_worker *worker;
	postroom_delivery *items;
	size_t count;
};

static void follow_lease(struct heart *heart)
{
	const struct pr_relay_config *config = &heart->worker->crew->config;
	int64_t until_us = heart->worker->lease.until_us;

	heart->beat.until_us = until_us;
	heart->beat.next_us = until_us - (config->lease_ms - config->lease_ms / BEAT_PART) * 1000;
}

/* Bounded: whoever is under way wants to be heard, and nothing goes on past the end of the lease. */
static int try_renewing(struct heart *heart, struct pr_err *err)
{
	struct pr_worker *worker = heart->worker;
	int64_t lease_ms = worker->crew->config.lease_ms;
	int64_t hurry_us = pr_mono_us() + lease_ms * 1000 / BEAT_TRY_PART;
	int status;

	if (heart->beat.until_us < hurry_us)
		hurry_us = heart->beat.until_us;
	worker->hurry_us = hurry_us;
	status = pr_worker_connect(worker, true, err);
	worker->hurry_us = 0;
	if (status < 0)
		return status;
	worker->store->until_us = hurry_us;
	status = worker->store->ops->renew(worker->store, worker->crew->config.table, heart->items,
					   heart->count, lease_ms, err);
	worker->store->until_us = 0;
	return status;
}

static int64_t again_ms(int64_t lease_ms)
{
	int64_t part_ms = lease_ms / BEAT_AGAIN_PART;

	return part_ms < BEAT_AGAIN_MAX_MS ? part_ms : BEAT_AGAIN_MAX_MS;
}

/* If one of them is another's by now so may all be: they were claimed together. */
static void renew(struct pr_beat *beat)
{
	struct heart *heart = (struct heart *)beat;
	struct pr_worker *worker = heart->worker;
	int64_t lease_ms = worker->crew->config.lease_ms;
	struct pr_lease renewed = pr_lease_from_now(lease_ms);
	struct pr_err err = { 0 };
	bool lost = false;
	int status;

	pr_pulse_beat(&worker->pulse, 0);
	status = try_renewing(heart, &err);
	/* What is decided is guarded once more when it is settled. */
	for (size_t i = 0; i < heart->count; i++) {
		lost |= heart->items[i].verdict == POSTROOM_UNTRIED && is_lost(&heart->items[i]);
		heart->items[i].settled = POSTROOM_OK;
	}
	if (status < 0 && status != POSTROOM_LEASE_LOST) {
		pr_worker_tell_trouble(worker, &err);
		beat->next_us = pr_mono_us() + again_ms(lease_ms) * 1000;
		return;
	}
	worker->trouble_since_us = 0;
	worker->lease.until_us = lost ? 0 : renewed.until_us;
	follow_lease(heart);
}

/*
 * The lease has run out under way: what is undecided is another's by now, or will be. It
 * may have begun, so its attempt is not given back.
 */
static void leave_lost(postroom_delivery *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (items[i].verdict != POSTROOM_UNTRIED)
			continue;
		items[i].settled = POSTROOM_LEASE_LOST;
		items[i].kept = true;
	}
}

static int publish_slice(struct pr_worker *worker, postroom_delivery *items, size_t count,
			 struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->crew->config;
	int64_t slice_end_us = pr_mono_us() + slice_ms(config) * 1000;
	/* The process may have slept since it looked at the lease. */
	int64_t lease_end_us = worker->lease.until_us - after_begin_ms(config) * 1000;
	struct heart heart = {
		.beat = { .renew = renew },
		.worker = worker,
		.items = items,
		.count = (size_t)(worker->batch->items + worker->batch->count - items),
	};
	int64_t more = pr_limit_widen(pr_worker_limit(worker), (int64_t)count - worker->part);
	struct pr_flight flight = {
		.arena = &worker->scratch,
		.policy = &config->policy,
		.begin_until_us = slice_end_us < lease_end_us ? slice_end_us : lease_end_us,
		.timeout_ms = config->publish_timeout_ms,
		.concurrency = worker->part + more,
		.stop = &worker->crew->stop,
		.log = &worker->log,
		.beat = config->beats ? &heart.beat : NULL,
	};
	int status;

	follow_lease(&heart);
	/* A batch may take as many slices as it has messages: none keeps what it needed. */
	pr_arena_reset(&worker->scratch);
	pr_pulse_beat(&worker->pulse, 0);
	status = worker->sink->ops->publish(worker->sink, items, count, &flight, err);
	pr_limit_leave(pr_worker_limit(worker), more);
	if (pr_flight_lost(&flight))
		leave_lost(items, count);
	return status;
}

/* Publishes from *from on until all is over or something says stop; *from moves along. */
static int publish_slices(struct pr_worker *worker, size_t *from, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->crew->config;
	struct postroom_batch *batch = worker->batch;
	bool first = true;

	while (*from < batch->count && !pr_stop_requested(&worker->crew->stop)) {
		struct pr_err unheard;
		postroom_delivery *items;
		size_t left, done;
		bool usable;
		int broken;
		int status = keep_lease(worker, from, err);

		items = batch->items + *from;
		left = batch->count - *from;
		if (status < 0 || left == 0)
			return status;
		broken = publish_slice(worker, items, left, err);
		keep_back(worker, items, left);
		status = pr_items_part(worker, items, left, is_over, &done,
				       broken < 0 ? &unheard : err);
		if (status < 0)
			return broken < 0 ? broken : status;
		usable = heed(worker, items, done);
		*from += done;
		if (broken < 0) {
			pr_settle_items(worker, items, done, &unheard);
			return broken;
		}
		if (first && usable)
			worker->batch_limit = pr_limit_adapt(worker->batch_limit,
							     (int32_t)config->batch_size,
							     (int64_t)left, (int64_t)done);
		first = false;
		if (done == left && usable)
			return pr_settle_last(worker, items, done, err);
		status = pr_settle_items(worker, items, done, err);
		if (status < 0 || !usable || done == 0)
			return status;
		if (any_lost(items, done))
			status = leave_behind(worker, items, left, done, from, err);
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

/* One message finds out whether the sink is back; the others are only there to choose it from. */
static int publish_probe(struct pr_worker *worker, size_t *from, struct pr_err *err)
{
	struct postroom_batch *batch = worker->batch;
	postroom_delivery *items, first;
	struct pr_err unheard;
	size_t chosen;
	int broken;
	int status = keep_lease(worker, from, err);

	if (status < 0 || *from == batch->count)
		return status;
	items = batch->items + *from;
	chosen = pr_breaker_choose(pr_worker_breaker(worker), items, batch->count - *from,
				   pr_sink_order(items, batch->count - *from, &worker->scratch));
	first = items[0];
	items[0] = items[chosen];
	items[chosen] = first;
	broken = publish_slice(worker, items, 1, err);
	heed(worker, items, 1);
	if (!is_over(items))
		return broken;
	*from += 1;
	status = pr_settle_items(worker, items, 1, broken < 0 ? &unheard : err);
	return broken < 0 ? broken : status;
}

int pr_publish_batch(struct pr_worker *worker, struct pr_err *err)
{
	struct postroom_batch *batch = worker->batch;
	struct pr_err later;
	size_t from = 0;
	int status = worker->probe ? publish_probe(worker, &from, err)
				   : publish_slices(worker, &from, err);

	if (from < batch->count)
		pr_limit_give_back(pr_worker_limit(worker), worker->taken - (int64_t)from);
	if (from < batch->count && pr_lease_left_ms(worker->lease) > 0) {
		int released = pr_settle_items(worker, batch->items + from, batch->count - from,
					       status < 0 ? &later : err);

		if (status >= 0)
			status = released;
	}
	return status;
}
