/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Periodic work: sweep, purge of old delivered, dead and completed rows and of their dedupe keys,
 * and one summary line per minute.
 *
 * 1. Each step is a short transaction followed by a pause: claims have priority.
 * 2. After a failure the next round retries, on a new connection. The workers log the outage.
 * 3. An idle relay sweeps together with each purge, not more often.
 * 4. Only messages of the relay's scope are touched: other relays may have another max_attempts
 *    and retention for the rest. Unrouted messages are only counted. Completed inbox rows and
 *    dedupe keys have no scope: the shortest retention applies.
 * 5. Every chore runs in every round, even with a large backlog.
 * 6. A relay over the inbox does not touch the outbox.
 * 7. Every round first checks that no newer migration excludes this program. If one does, the
 *    relay stops.
 */
#include "relay/worker.h"

#include <string.h>

#define SWEEP_EVERY_MS 5000
#define PURGE_EVERY_MS 60000
#define SUMMARY_EVERY_MS 60000LL
#define AT_ONCE 500
#define UNROUTED_LOG_EVERY_US 60000000
/* The scan for unrouted messages takes at most 1/n of the time. */
#define UNROUTED_SHARE 100
#define PAUSE_MS 20
/* Then the other chores run, and this one continues in the next round. */
#define CHORE_MS 5000

/* A short transaction over at most AT_ONCE rows; *ret is their number, or AT_ONCE if there may be more. */
typedef int (*step_fn)(struct pr_worker *worker, int64_t *ret, struct pr_err *err);

static int sweep_table(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	struct pr_claim_request next = pr_claim_prepare(worker, AT_ONCE);
	int64_t begun_us = pr_mono_us();
	int status = worker->store->ops->sweep(worker->store, worker->generation->config.table,
					       &next.claim, next.batch, err);

	pr_meter_store(&worker->relay->metrics, PR_OPERATION_SWEEP, begun_us, status, err);
	worker->batch = next.batch;
	if (status < 0)
		return status;
	pr_log_dead_letters(worker);
	/* Fewer than requested may be the limit of memory. */
	*ret = worker->batch->dead_letter_count > 0 ? AT_ONCE : 0;
	return POSTROOM_OK;
}

static int purge_rows(struct pr_worker *worker, enum pr_purged kind, const postroom_filter *old,
		      int64_t *ret, struct pr_err *err)
{
	const struct pr_purge purge = { .filter = old, .limit = AT_ONCE, .exclusive = true };
	struct pr_metrics *metrics = &worker->relay->metrics;
	int64_t begun_us = pr_mono_us();
	int status = worker->store->ops->purge(worker->store, &purge, ret, err);

	if (status >= 0)
		pr_count(&metrics->purged[kind], *ret);
	return pr_meter_store(metrics, PR_OPERATION_PURGE, begun_us, status, err);
}

static int purge_status(struct pr_worker *worker, enum pr_purged kind, int64_t after_ms,
			int64_t *ret, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->generation->config;
	const postroom_filter old = {
		.size = sizeof(old),
		.status = kind == PR_PURGED_DEAD ? "dead" : "delivered",
		.ns = config->scope.ns,
		.topic = config->scope.topic,
		.tenant_id = config->scope.tenant_id,
		.older_than_ms = after_ms,
	};

	return purge_rows(worker, kind, &old, ret, err);
}

static int purge_delivered(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	return purge_status(worker, PR_PURGED_DELIVERED, worker->generation->config.retention_ms,
			    ret, err);
}

static int purge_dead(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	return purge_status(worker, PR_PURGED_DEAD, worker->generation->config.dead_retention_ms,
			    ret, err);
}

static int purge_dedupe_keys(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	const postroom_filter old = {
		.size = sizeof(old),
		.older_than_ms = worker->generation->config.dedupe_retention_ms,
	};
	const struct pr_purge purge = {
		.of = PR_PURGE_DEDUPE_KEYS, .filter = &old, .limit = AT_ONCE, .exclusive = true
	};

	return worker->store->ops->purge(worker->store, &purge, ret, err);
}

static int purge_completed(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	const postroom_filter old = {
		.size = sizeof(old),
		.table = POSTROOM_INBOX,
		.status = "completed",
		.older_than_ms = worker->generation->config.inbox_retention_ms,
	};

	return purge_rows(worker, PR_PURGED_COMPLETED, &old, ret, err);
}

static int purge_dead_jobs(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	const postroom_filter old = {
		.size = sizeof(old),
		.table = POSTROOM_INBOX,
		.status = "dead",
		.handler = worker->generation->config.scope.ns,
		.older_than_ms = worker->generation->config.dead_retention_ms,
	};

	return purge_rows(worker, PR_PURGED_DEAD, &old, ret, err);
}

/* Attempts of messages that were deleted as soon as they were delivered, or by hand. */
static int purge_attempts(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	bool outbox = worker->generation->config.table == &pr_table_outbox;
	const postroom_filter all = {
		.size = sizeof(all),
		.table = outbox ? POSTROOM_OUTBOX : POSTROOM_INBOX,
	};
	const struct pr_purge purge = { .of = PR_PURGE_ATTEMPTS, .filter = &all, .limit = AT_ONCE };

	return worker->store->ops->purge(worker->store, &purge, ret, err);
}

/* True: there was no time for the remaining rows. */
static bool run_until_done(struct pr_worker *worker, step_fn step)
{
	int64_t until_us = pr_mono_us() + CHORE_MS * 1000LL;
	int64_t done = 0;
	struct pr_err err;
	int status;

	do {
		pr_watchdog_feed(&worker->watchdog, PAUSE_MS);
		status = pr_worker_connect(worker, false, &err);
		if (status >= 0)
			status = step(worker, &done, &err);
	} while (status >= 0 && done == AT_ONCE && pr_mono_us() < until_us &&
		 !pr_stop_wait(&worker->generation->stop, PAUSE_MS));
	if (status < 0) {
		pr_store_close(worker->store);
		worker->store = NULL;
	}
	return status >= 0 && done == AT_ONCE;
}

/* True: there is more to do. */
static bool purge_all(struct pr_worker *worker)
{
	const struct pr_relay_config *config = &worker->generation->config;
	bool outbox = config->table == &pr_table_outbox;
	bool more = false;

	if (outbox && config->retention_ms >= 0)
		more |= run_until_done(worker, purge_delivered);
	if (config->dead_retention_ms >= 0)
		more |= run_until_done(worker, outbox ? purge_dead : purge_dead_jobs);
	if (outbox && config->dedupe_retention_ms >= 0)
		more |= run_until_done(worker, purge_dedupe_keys);
	if (config->inbox_retention_ms >= 0)
		more |= run_until_done(worker, purge_completed);
	run_until_done(worker, purge_attempts);
	return more;
}

static void log_unrouted(struct pr_worker *janitor, const struct pr_unrouted *found)
{
	struct pr_log *log = &janitor->log;

	pr_log_box(log, found->count ? PR_LOG_WARN : PR_LOG_INFO, "UNROUTED");
	pr_log_int(log, "count", found->count);
	if (found->count) {
		pr_log_str(log, "namespace", found->ns);
		pr_log_str(log, "topic", found->topic);
	}
	pr_log_end(log);
	janitor->unrouted_logged_us = pr_mono_us();
}

void pr_janitor_count_unrouted(struct pr_worker *janitor, bool always)
{
	_Atomic int64_t *known = &janitor->relay->unrouted;
	int64_t begun_us = pr_mono_us(), before;
	struct pr_unrouted found;
	struct pr_err err;

	if (janitor->generation->rules.count == 0 && atomic_load(known) == 0)
		return;
	/* At the end of a drain everything else has stopped. */
	if (pr_worker_connect(janitor, always, &err) < 0 ||
	    pr_store_unrouted(janitor->store, janitor->generation->config.table,
			      &janitor->generation->config.scope, PR_UNROUTED_MAX, &found,
			      &err) < 0) {
		pr_store_close(janitor->store);
		janitor->store = NULL;
		return;
	}
	/* It has to read past all routed messages. */
	janitor->unrouted_at_us = pr_mono_us() + (pr_mono_us() - begun_us) * UNROUTED_SHARE;
	before = atomic_exchange(known, found.count);
	if ((before == 0) != (found.count == 0) ||
	    (found.count &&
	     (always || pr_mono_us() >= janitor->unrouted_logged_us + UNROUTED_LOG_EVERY_US)))
		log_unrouted(janitor, &found);
}

void pr_janitor_summarize(struct pr_worker *janitor, bool trouble)
{
	struct pr_relay *relay = janitor->relay;
	struct pr_relay_totals last, *before = &last;
	struct pr_log *log = &janitor->log;
	struct pr_relay_report now;

	pr_relay_report(relay, &now);
	/* The janitor of the previous generation may do the same. */
	pthread_mutex_lock(&relay->lock);
	last = relay->summarized;
	relay->summarized = now.totals;
	pthread_mutex_unlock(&relay->lock);
	if (!trouble && now.in_flight == 0 && memcmp(before, &now.totals, sizeof(*before)) == 0)
		return;
	pr_log_box(log, PR_LOG_INFO, "WORKER_SUMMARY");
	pr_log_int(log, "fetched", now.totals.fetched - before->fetched);
	pr_log_int(log, "delivered", now.totals.delivered - before->delivered);
	pr_log_int(log, "failed", now.totals.failed - before->failed);
	pr_log_int(log, "dead", now.totals.dead - before->dead);
	pr_log_int(log, "lost", now.totals.lost - before->lost);
	pr_log_int(log, "in_flight", now.in_flight);
	pr_log_real(log, "per_second_1m", now.rates.windows[PR_RATES_1M].per_second);
	pr_log_real(log, "per_second_5m", now.rates.windows[PR_RATES_5M].per_second);
	pr_log_real(log, "per_second_15m", now.rates.windows[PR_RATES_15M].per_second);
	pr_log_real(log, "failure_ratio", now.rates.windows[PR_RATES_1M].failure_ratio);
	if (now.rates.lag_ms >= 0)
		pr_log_int(log, "lag_ms", now.rates.lag_ms);
	pr_log_end(log);
	pr_log_flush(log);
}

/* False: the schema excludes this program, and the relay is stopping. */
static bool check_schema(struct pr_worker *worker)
{
	struct pr_err err = { 0 };
	bool connected = worker->store;
	int status = pr_worker_connect(worker, false, &err);

	if (status >= 0 && connected)
		status = worker->store->ops->check_schema(worker->store, PR_SCHEMA_COMPATIBLE,
							  &err);
	if (status >= 0)
		return true;
	pr_store_close(worker->store);
	worker->store = NULL;
	if (!pr_schema_is_incompatible(&err))
		return true;
	pr_relay_log_incompatible(worker->relay, &worker->log, &err);
	worker->status = status;
	worker->err = err;
	pr_relay_stop(worker->relay);
	return false;
}

/* The scans of the workers have shown that there is nothing to sweep. */
static bool is_quiet(const struct pr_generation *generation)
{
	for (size_t i = 0; i < generation->pool_count; i++) {
		if (!atomic_load(&generation->pools[i].quiet))
			return false;
	}
	return true;
}

/* Collects gauges until the next round begins; true: stop. */
static bool wait_for_round(struct pr_worker *worker)
{
	int64_t until_us = pr_mono_us() + SWEEP_EVERY_MS * 1000LL, left_ms;

	while ((left_ms = (until_us - pr_mono_us() + 999) / 1000) > 0) {
		int64_t collect_ms = (worker->collect_at_us - pr_mono_us() + 999) / 1000;

		if (pr_janitor_is_watched(worker) && collect_ms <= 0) {
			pr_janitor_collect(worker);
			continue;
		}
		if (pr_janitor_is_watched(worker) && collect_ms < left_ms)
			left_ms = collect_ms;
		pr_watchdog_feed(&worker->watchdog, left_ms);
		if (pr_stop_wait(&worker->generation->stop, left_ms))
			return true;
	}
	return pr_stop_requested(&worker->generation->stop);
}

void *pr_janitor_run(void *context)
{
	struct pr_worker *worker = context;
	int64_t summary_us = pr_mono_us() + SUMMARY_EVERY_MS * 1000;
	int64_t elapsed_ms = 0;
	bool purging = false;

	for (;;) {
		if (wait_for_round(worker))
			break;
		if (!check_schema(worker))
			break;
		/* Also in the first round: a short-lived relay must clean up, too. */
		purging = purging || elapsed_ms % PURGE_EVERY_MS == 0;
		if (purging || !is_quiet(worker->generation))
			run_until_done(worker, sweep_table);
		if (purging)
			purging = purge_all(worker);
		if (pr_mono_us() >= worker->unrouted_at_us)
			pr_janitor_count_unrouted(worker, false);
		elapsed_ms += SWEEP_EVERY_MS;
		/* By the clock: a purge may have taken long. */
		if (pr_mono_us() >= summary_us) {
			pr_janitor_summarize(worker, !worker->store);
			summary_us = pr_mono_us() + SUMMARY_EVERY_MS * 1000;
		}
		pr_log_flush(&worker->log);
	}
	pr_log_flush(&worker->log);
	pr_watchdog_end(&worker->watchdog);
	return NULL;
}
