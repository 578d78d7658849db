/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The middle of a pass: pass the batch to the sink, slice by slice, and settle each slice as soon
 * as it is decided, so that an ack never waits for a slow message.
 *
 * 1. Nothing is published unless the lease outlasts the slice, on the monotonic clock: the lease
 *    is renewed, or the batch is dropped. If a publish may take longer than its lease, its own
 *    wait loop renews the lease, never another thread: a hung worker loses its lease.
 * 2. At a stop or an outage of the sink, messages not begun are released immediately and their
 *    attempts refunded. So are messages cut off at the end of the grace period. During an outage
 *    one message at a time is published as a probe.
 * 3. A message that was not delivered blocks the later messages of its namespace, topic and key:
 *    they are released with it. So does a message that was delivered and lost before it could be
 *    settled: it will be delivered again.
 * 4. The verdicts of a slice are settled before the next slice begins, which reuses the memory of
 *    the reasons.
 */
#include "relay/worker.h"

#include <string.h>

/* No publish begins later than this into a slice; then the slice waits for those in flight. */
#define SLICE_MS 1000

/* 1/n of the lease is reserved for settling, and for renewing the rest. */
#define SETTLE_PART 10

/* During a long publish, the lease is renewed after 1/n of it. */
#define RENEW_PART 3

/* A renewal may take 1/n of the lease; a failed one is retried soon. */
#define RENEW_TIMEOUT_PART 6
#define RENEW_RETRY_PART 30
#define RENEW_RETRY_MAX_MS 1000

static int64_t slice_ms(const struct pr_relay_config *config)
{
	return config->lease_ms / 6 < SLICE_MS ? config->lease_ms / 6 : SLICE_MS;
}

/* No longer to be published: it has a verdict, or settled has the reason. */
static bool is_finished(const postroom_delivery *item)
{
	return item->verdict != POSTROOM_UNTRIED || item->settled != POSTROOM_OK;
}

static bool is_lost(const postroom_delivery *item)
{
	return item->settled == POSTROOM_LEASE_LOST;
}

static bool blocks_followers(const postroom_delivery *item)
{
	return pr_sink_is_ordered(item) && is_finished(item) &&
	       (item->verdict != POSTROOM_DELIVERED || is_lost(item));
}

static bool any_lost(const postroom_delivery *items, size_t count)
{
	size_t i = 0;

	while (i < count && !is_lost(&items[i]))
		i++;
	return i < count;
}

/* Checks all earlier messages of the key: the last may be delivered and the one before it lost. */
static bool is_behind_unsent(const postroom_delivery *items, const size_t *before, size_t at)
{
	do {
		at = before[at];
	} while (at != PR_SINK_NONE && !blocks_followers(&items[at]));
	return at != PR_SINK_NONE;
}

/* A message that was not delivered blocks later messages of its key: they are released. */
static void release_followers(struct pr_worker *worker, postroom_delivery *items, size_t count)
{
	const size_t *before;
	size_t i = 0;

	while (i < count && !blocks_followers(&items[i]))
		i++;
	if (i == count)
		return;
	before = pr_sink_order(items, count, &worker->scratch);
	for (; i < count; i++) {
		/* Without memory to compare keys, all messages with a key are released. */
		if (pr_sink_is_ordered(&items[i]) && !is_finished(&items[i]) &&
		    (!before || is_behind_unsent(items, before, i)))
			items[i].settled = POSTROOM_BUSY;
	}
}

int pr_items_partition(struct pr_worker *worker, postroom_delivery *items, size_t count,
		       bool (*is_first)(const postroom_delivery *item), size_t *ret_first,
		       struct pr_err *err)
{
	size_t ahead = 0, settled_by_handler = 0;
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
			rest[settled_by_handler++] = items[i];
	}
	memcpy(&items[ahead], rest, settled_by_handler * sizeof(*rest));
	*ret_first = ahead;
	return POSTROOM_OK;
}

/*
 * Some leases are lost: releases the later messages of their keys. The first items are already
 * settled. Adds all items that are finished now to *from.
 */
static int skip_followers(struct pr_worker *worker, postroom_delivery *items, size_t count,
			  size_t settled, size_t *from, struct pr_err *err)
{
	size_t gone;
	int status;

	release_followers(worker, items, count);
	items += settled;
	status = pr_items_partition(worker, items, count - settled, is_finished, &gone, err);
	if (status < 0)
		return status;
	*from += gone;
	return pr_settle_items(worker, items, gone, err);
}

/* The lease needed when a publish begins: until the settle, or until the next renewal. */
static int64_t after_begin_ms(const struct pr_relay_config *config)
{
	int64_t timeout_ms = config->publish_timeout_ms;
	int64_t ms = config->renews_leases ? config->lease_ms / RENEW_PART
					   : timeout_ms + timeout_ms / PR_FLIGHT_END_PART;

	return ms + config->lease_ms / SETTLE_PART;
}

static bool outlasts_slice(const struct pr_worker *worker)
{
	const struct pr_relay_config *config = &worker->generation->config;

	return pr_lease_left_ms(worker->lease) >= slice_ms(config) + after_begin_ms(config);
}

/*
 * Makes sure that the lease of the items outlasts a slice. Logs lost items, releases later
 * messages of their keys, and adds all of them to *from.
 */
static int ensure_lease(struct pr_worker *worker, size_t *from, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->generation->config;
	struct postroom_batch *batch = worker->batch;
	postroom_delivery *items = batch->items + *from;
	struct pr_lease renewed = pr_lease_from_now(config->lease_ms);
	size_t count = batch->count - *from;
	int64_t begun_us = pr_mono_us();
	int status;

	if (outlasts_slice(worker))
		return POSTROOM_OK;
	if (!worker->store)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the database is unreachable");
	status = worker->store->ops->renew(worker->store, config->table, items, count,
					   config->lease_ms, err);
	pr_meter_store(&worker->relay->metrics, PR_OPERATION_RENEW, begun_us, status, err);
	if (status < 0 && status != POSTROOM_LEASE_LOST)
		return status;
	worker->lease = renewed;
	worker->outage_since_us = 0;
	if (status >= 0)
		return POSTROOM_OK;
	return skip_followers(worker, items, count, 0, from, err);
}

/* Cut off at the end of the grace period: not the fault of the messages or the sink. */
static void release_cut_off(postroom_delivery *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (items[i].verdict == POSTROOM_FAILED)
			items[i].verdict = POSTROOM_UNREACHABLE;
	}
}

/* Passes the verdicts to the breaker; true while the sink may be used. */
static bool report_to_breaker(struct pr_worker *worker, postroom_delivery *items, size_t count)
{
	struct pr_breaker *breaker = pr_worker_breaker(worker);
	struct pr_breaker_results results = {
		.items = items,
		.count = count,
		.server = worker->sink->ops->server,
		.began_us = pr_isolate_began_us(worker, items, count),
		.probe = worker->probe,
		.pause_us = 1000 * pr_random_between(&worker->random, PR_BREAKER_PAUSE_MIN_MS,
						     PR_BREAKER_PAUSE_MAX_MS),
	};
	enum pr_breaker_change news;
	char reason[300] = "";

	if (pr_stop_overdue(&worker->generation->stop)) {
		release_cut_off(items, count);
		return false;
	}
	news = pr_breaker_record(breaker, pr_mono_us(), &results);
	worker->probe = 0;
	if (news == PR_BREAKER_OPENED) {
		pr_count(&worker->pool->sink_state->meter->opened, 1);
		pr_breaker_open_ms(breaker, pr_mono_us(), reason);
		pr_log_box(&worker->log, PR_LOG_WARN, "SINK_UNREACHABLE");
		pr_log_str(&worker->log, "error", reason);
		pr_log_end(&worker->log);
	} else if (news == PR_BREAKER_RECOVERED) {
		pr_log_box(&worker->log, PR_LOG_WARN, "SINK_BACK");
		pr_log_end(&worker->log);
	}
	return !pr_breaker_is_open(breaker);
}

/* Renews the lease of all items of the worker while some are in flight. */
struct heartbeat {
	struct pr_lease_renewer renewer;
	struct pr_worker *worker;
	postroom_delivery *items;
	size_t count;
};

static void update_lease(struct heartbeat *heartbeat)
{
	const struct pr_relay_config *config = &heartbeat->worker->generation->config;
	int64_t until_us = heartbeat->worker->lease.until_us;

	heartbeat->renewer.until_us = until_us;
	heartbeat->renewer.next_us = until_us -
				     (config->lease_ms - config->lease_ms / RENEW_PART) * 1000;
}

/* Limited in time: the publish in flight must continue, and nothing continues after the lease. */
static int try_renew(struct heartbeat *heartbeat, struct pr_err *err)
{
	struct pr_worker *worker = heartbeat->worker;
	int64_t lease_ms = worker->generation->config.lease_ms;
	int64_t begun_us, open_until_us = pr_mono_us() + lease_ms * 1000 / RENEW_TIMEOUT_PART;
	int status;

	if (heartbeat->renewer.until_us < open_until_us)
		open_until_us = heartbeat->renewer.until_us;
	worker->open_until_us = open_until_us;
	status = pr_worker_connect(worker, true, err);
	worker->open_until_us = 0;
	if (status < 0)
		return status;
	worker->store->until_us = open_until_us;
	begun_us = pr_mono_us();
	status = worker->store->ops->renew(worker->store, worker->generation->config.table,
					   heartbeat->items, heartbeat->count, lease_ms, err);
	pr_meter_store(&worker->relay->metrics, PR_OPERATION_RENEW, begun_us, status, err);
	worker->store->until_us = 0;
	return status;
}

static int64_t renew_retry_ms(int64_t lease_ms)
{
	int64_t part_ms = lease_ms / RENEW_RETRY_PART;

	return part_ms < RENEW_RETRY_MAX_MS ? part_ms : RENEW_RETRY_MAX_MS;
}

/* If one lease is lost, all may be: the items were claimed together. */
static void renew_during_publish(struct pr_lease_renewer *renewer)
{
	struct heartbeat *heartbeat = (struct heartbeat *)renewer;
	struct pr_worker *worker = heartbeat->worker;
	int64_t lease_ms = worker->generation->config.lease_ms;
	struct pr_lease renewed = pr_lease_from_now(lease_ms);
	struct pr_err err = { 0 };
	bool lost = false;
	int status;

	pr_watchdog_feed(&worker->watchdog, 0);
	status = try_renew(heartbeat, &err);
	/* For items with a verdict, settle checks the lease again. */
	for (size_t i = 0; i < heartbeat->count; i++) {
		lost |= heartbeat->items[i].verdict == POSTROOM_UNTRIED &&
			is_lost(&heartbeat->items[i]);
		heartbeat->items[i].settled = POSTROOM_OK;
	}
	if (status < 0 && status != POSTROOM_LEASE_LOST) {
		pr_worker_log_outage(worker, &err);
		renewer->next_us = pr_mono_us() + renew_retry_ms(lease_ms) * 1000;
		return;
	}
	worker->outage_since_us = 0;
	worker->lease.until_us = lost ? 0 : renewed.until_us;
	update_lease(heartbeat);
}

/*
 * The lease has expired during the publish: other workers may claim the items without a verdict.
 * Their publish may have begun, so their attempts are not refunded.
 */
static void drop_lost(postroom_delivery *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (items[i].verdict != POSTROOM_UNTRIED)
			continue;
		items[i].settled = POSTROOM_LEASE_LOST;
		items[i].settled_by_handler = true;
	}
}

/*
 * A large message alone for which the sink has no memory: it may never fit, and the others do. So
 * its attempt counts, although sinks report that as unreachable.
 */
static int charge_large(struct pr_worker *worker, postroom_delivery *item, int status,
			struct pr_err *err)
{
	static const char why[] = "there is no memory to publish the message";
	bool unreachable = item->verdict == POSTROOM_UNREACHABLE && item->reason &&
			   strstr(item->reason, "out of memory");

	if (!unreachable && (status != POSTROOM_NOMEM || is_finished(item)))
		return status;
	pr_err_clear(err);
	pr_verdict_set(item, POSTROOM_FAILED, &worker->scratch, &worker->generation->config.policy,
		       why, strlen(why));
	return POSTROOM_OK;
}

static int publish_slice(struct pr_worker *worker, postroom_delivery *items, size_t count,
			 struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->generation->config;
	int64_t slice_end_us = pr_mono_us() + slice_ms(config) * 1000;
	/* The process may have been suspended since it checked the lease. */
	int64_t lease_end_us = worker->lease.until_us - after_begin_ms(config) * 1000;
	struct heartbeat heartbeat = {
		.renewer = { .renew = renew_during_publish },
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
		.stop = &worker->generation->stop,
		.log = &worker->log,
		.renewer = config->renews_leases ? &heartbeat.renewer : NULL,
		.began_us = pr_mono_us(),
		.proof = &pr_worker_breaker(worker)->proof,
	};
	int status;

	worker->began_us = flight.began_us;
	update_lease(&heartbeat);
	/* Frees the memory of the previous slice: a batch may have as many slices as messages. */
	pr_arena_reset(&worker->scratch);
	pr_watchdog_feed(&worker->watchdog, 0);
	pr_meter_state(worker, PR_WORKER_PUBLISHING);
	status = worker->sink->ops->publish(worker->sink, items, count, &flight, err);
	pr_limit_leave(pr_worker_limit(worker), more);
	if (pr_flight_lost(&flight))
		drop_lost(items, count);
	return count == 1 && items->loaded ? charge_large(worker, items, status, err) : status;
}

/* Messages that could not be loaded were not published. Isolated ones have no token any more. */
static void refund_tokens(struct pr_worker *worker, const postroom_delivery *items, size_t count)
{
	int64_t tokens = 0;

	for (size_t i = 0; i < count; i++)
		tokens += items[i].lost_us == 0;
	pr_limit_refund(pr_worker_limit(worker), tokens);
}

/* Calls the sink once and settles the verdicts; false in *ret_on: leave the rest. */
static int publish_call(struct pr_worker *worker, size_t *from, bool *ret_on, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->generation->config;
	struct postroom_batch *batch = worker->batch;
	postroom_delivery *items = batch->items + *from;
	size_t left = batch->count - *from, count = pr_isolate_next(worker, items, left), done;
	bool first = *from == 0, usable, again;
	struct pr_err unheard;
	int status, broken;

	*ret_on = true;
	if (count == 0)
		return POSTROOM_OK;
	status = pr_load_items(worker, items, count, &count, err);
	/* Nothing can be published: there is no memory yet, or the first items cannot be received. */
	if (status >= 0 && count == 0) {
		status = skip_followers(worker, items, left, 0, from, err);
		refund_tokens(worker, items, (size_t)(batch->items + *from - items));
	}
	if (status < 0 || count == 0)
		return status;
	/* Loading took long: the caller renews the lease and calls again. */
	if (worker->content_budget > 0 && !outlasts_slice(worker))
		return POSTROOM_OK;
	count = pr_isolate_take(worker, items, count);
	if (count == 0)
		return POSTROOM_OK;
	broken = publish_slice(worker, items, count, err);
	again = broken >= 0 && pr_isolate_lost(worker, items, count, left);
	release_followers(worker, items, left);
	pr_load_drop(worker, items, left);
	status = pr_items_partition(worker, items, left, is_finished, &done,
				    broken < 0 ? &unheard : err);
	if (status < 0)
		return broken < 0 ? broken : status;
	usable = report_to_breaker(worker, items, done);
	*from += done;
	*ret_on = usable && (done > 0 || again);
	if (broken < 0) {
		pr_settle_items(worker, items, done, &unheard);
		return broken;
	}
	if (first && usable && !again)
		worker->batch_limit = pr_limit_adapt(worker->batch_limit,
						     (int32_t)config->batch_size, (int64_t)count,
						     (int64_t)done);
	if (done == left && usable) {
		*ret_on = false;
		return pr_settle_last(worker, items, done, err);
	}
	status = pr_settle_items(worker, items, done, err);
	if (status >= 0 && *ret_on && any_lost(items, done))
		status = skip_followers(worker, items, left, done, from, err);
	if (status >= 0 && *ret_on && again)
		status = pr_isolate_sort(worker, batch->items + *from, batch->count - *from, err);
	return status;
}

/* Publishes from *from on until all items are finished or a stop; advances *from. */
static int publish_slices(struct pr_worker *worker, size_t *from, struct pr_err *err)
{
	struct postroom_batch *batch = worker->batch;
	int status = pr_isolate_known(worker, batch->items, batch->count, err);
	bool on = true;

	while (status >= 0 && on && *from < batch->count &&
	       !pr_stop_requested(&worker->generation->stop)) {
		status = ensure_lease(worker, from, err);
		if (status < 0 || *from == batch->count)
			break;
		status = publish_call(worker, from, &on, err);
	}
	return status;
}

/* One message tests whether the sink is available; the others are only candidates. */
static int publish_probe(struct pr_worker *worker, size_t *from, struct pr_err *err)
{
	struct postroom_batch *batch = worker->batch;
	postroom_delivery *items, first;
	struct pr_err unheard;
	size_t chosen, ready;
	int broken;
	int status = ensure_lease(worker, from, err);

	if (status < 0 || *from == batch->count)
		return status;
	items = batch->items + *from;
	chosen = pr_breaker_choose(pr_worker_breaker(worker), items, batch->count - *from,
				   pr_sink_order(items, batch->count - *from, &worker->scratch));
	first = items[0];
	items[0] = items[chosen];
	items[chosen] = first;
	status = pr_load_items(worker, items, 1, &ready, err);
	if (status >= 0 && ready == 0) {
		status = skip_followers(worker, items, 1, 0, from, err);
		refund_tokens(worker, items, (size_t)(batch->items + *from - items));
	}
	if (status < 0 || ready == 0)
		return status;
	broken = publish_slice(worker, items, 1, err);
	pr_load_drop(worker, items, 1);
	report_to_breaker(worker, items, 1);
	if (!is_finished(items))
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

	pr_load_drop_all(worker, batch);
	if (from < batch->count)
		pr_limit_refund(pr_worker_limit(worker), worker->taken - (int64_t)from);
	/* Even if the lease seems to be over: it began later if the claim was delayed. */
	if (from < batch->count) {
		int released = pr_settle_items(worker, batch->items + from, batch->count - from,
					       status < 0 ? &later : err);

		if (status >= 0)
			status = released;
	}
	return status;
}
