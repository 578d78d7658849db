/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has to happen now and then: burying what died with its worker, purging
 * what was delivered, died or was completed in the inbox long ago and forgetting its
 * keys, one summary line a minute.
 *
 * 1. Each step is a short transaction with a pause behind it: the claims come
 *    first.
 * 2. A failure is left for the next round, on a new connection; the workers tell
 *    about trouble.
 * 3. An idle relay sweeps with every purge, no more often.
 * 4. Only the messages of the relay's own scope are touched: another relay may
 *    have another max_attempts and retention for the rest. What no route wants is
 *    only counted. What is completed in the inbox and forgotten keys know no scope:
 *    the shortest retention counts.
 * 5. However much there is to do, every chore has its turn in every round.
 * 6. Who works for the inbox leaves the outbox alone.
 */
#include "relay/worker.h"

#include <string.h>

#define SWEEP_EVERY_MS 5000
#define PURGE_EVERY_MS 60000
#define SUMMARY_EVERY_MS 60000LL
#define AT_ONCE 500
#define UNROUTED_TELL_EVERY_US 60000000
/* Looking for messages without a route takes one part in so many of the time at most. */
#define UNROUTED_SHARE 100
#define PAUSE_MS 20
/* Then the other chores have their turn, and this one goes on in the next round. */
#define CHORE_MS 5000

/* A short transaction over AT_ONCE rows at most; *ret is how many, or AT_ONCE if there may be more. */
typedef int (*step_fn)(struct pr_worker *worker, int64_t *ret, struct pr_err *err);

static int sweep(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	struct pr_next next = pr_claim_prepare(worker, AT_ONCE);
	int status = worker->store->ops->sweep(worker->store, worker->crew->config.table,
					       &next.claim, next.batch, err);

	worker->batch = next.batch;
	if (status < 0)
		return status;
	pr_log_buried(worker);
	/* Fewer than wanted may be as many as fit into memory. */
	*ret = worker->batch->buried_count > 0 ? AT_ONCE : 0;
	return POSTROOM_OK;
}

static int purge(struct pr_worker *worker, const char *what, int64_t after_ms, int64_t *ret,
		 struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->crew->config;
	const postroom_filter old = {
		.size = sizeof(old),
		.status = what,
		.ns = config->scope.ns,
		.topic = config->scope.topic,
		.tenant_id = config->scope.tenant_id,
		.older_than_ms = after_ms,
	};

	return worker->store->ops->purge(worker->store, &old, AT_ONCE, true, ret, err);
}

static int purge_delivered(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	return purge(worker, "delivered", worker->crew->config.retention_ms, ret, err);
}

static int purge_dead(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	return purge(worker, "dead", worker->crew->config.dead_retention_ms, ret, err);
}

static int forget(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	return worker->store->ops->forget(worker->store, worker->crew->config.dedupe_retention_ms,
					  AT_ONCE, true, ret, err);
}

static int purge_completed(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	const postroom_inbox_filter old = {
		.size = sizeof(old),
		.status = "completed",
		.older_than_ms = worker->crew->config.inbox_retention_ms,
	};

	return worker->store->ops->inbox_purge(worker->store, &old, AT_ONCE, true, ret, err);
}

static int purge_dead_jobs(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	const postroom_inbox_filter old = {
		.size = sizeof(old),
		.status = "dead",
		.handler = worker->crew->config.scope.ns,
		.older_than_ms = worker->crew->config.dead_retention_ms,
	};

	return worker->store->ops->inbox_purge(worker->store, &old, AT_ONCE, true, ret, err);
}

/* True: there is more to do, for which there was no time. */
static bool repeat(struct pr_worker *worker, step_fn step)
{
	int64_t until_us = pr_mono_us() + CHORE_MS * 1000LL;
	int64_t done = 0;
	struct pr_err err;
	int status;

	do {
		pr_pulse_beat(&worker->pulse, PAUSE_MS);
		status = pr_worker_connect(worker, false, &err);
		if (status >= 0)
			status = step(worker, &done, &err);
	} while (status >= 0 && done == AT_ONCE && pr_mono_us() < until_us &&
		 !pr_stop_wait(&worker->crew->stop, PAUSE_MS));
	if (status < 0) {
		pr_store_close(worker->store);
		worker->store = NULL;
	}
	return status >= 0 && done == AT_ONCE;
}

/* True: there is more to do. */
static bool purge_all(struct pr_worker *worker)
{
	const struct pr_relay_config *config = &worker->crew->config;
	bool outbox = config->table == &pr_table_outbox;
	bool more = false;

	if (outbox && config->retention_ms >= 0)
		more |= repeat(worker, purge_delivered);
	if (config->dead_retention_ms >= 0)
		more |= repeat(worker, outbox ? purge_dead : purge_dead_jobs);
	if (outbox && config->dedupe_retention_ms >= 0)
		more |= repeat(worker, forget);
	if (config->inbox_retention_ms >= 0)
		more |= repeat(worker, purge_completed);
	return more;
}

static void tell_unrouted(struct pr_worker *janitor, const struct pr_unrouted *found)
{
	struct pr_log *log = &janitor->log;

	pr_log_box(log, found->count ? PR_LOG_WARN : PR_LOG_INFO, "UNROUTED");
	pr_log_int(log, "count", found->count);
	if (found->count) {
		pr_log_str(log, "namespace", found->ns);
		pr_log_str(log, "topic", found->topic);
	}
	pr_log_end(log);
	janitor->unrouted_told_us = pr_mono_us();
}

void pr_janitor_look_unrouted(struct pr_worker *janitor, bool always)
{
	_Atomic int64_t *known = &janitor->relay->unrouted;
	int64_t begun_us = pr_mono_us(), before;
	struct pr_unrouted found;
	struct pr_err err;

	if (janitor->crew->rules.count == 0 && atomic_load(known) == 0)
		return;
	/* At the end of a drain everything else has stopped. */
	if (pr_worker_connect(janitor, always, &err) < 0 ||
	    janitor->store->ops->unrouted(janitor->store, janitor->crew->config.table,
					  &janitor->crew->config.scope, PR_UNROUTED_MOST, &found,
					  &err) < 0) {
		pr_store_close(janitor->store);
		janitor->store = NULL;
		return;
	}
	/* It has to read past all that has a route. */
	janitor->unrouted_at_us = pr_mono_us() + (pr_mono_us() - begun_us) * UNROUTED_SHARE;
	before = atomic_exchange(known, found.count);
	if ((before == 0) != (found.count == 0) ||
	    (found.count && (always || pr_mono_us() >= janitor->unrouted_told_us +
								UNROUTED_TELL_EVERY_US)))
		tell_unrouted(janitor, &found);
}

void pr_janitor_summarize(struct pr_worker *janitor, bool trouble)
{
	struct pr_relay *relay = janitor->relay;
	struct pr_relay_totals last, *before = &last;
	struct pr_log *log = &janitor->log;
	struct pr_relay_report now;

	pr_relay_report(relay, &now);
	/* The janitor of the crew before may be at it too. */
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

/* The workers' looks tell that there is nothing to sweep. */
static bool is_quiet(const struct pr_crew *crew)
{
	for (size_t i = 0; i < crew->outlet_count; i++) {
		if (!atomic_load(&crew->outlets[i].quiet))
			return false;
	}
	return true;
}

void *pr_janitor_run(void *context)
{
	struct pr_worker *worker = context;
	int64_t summary_us = pr_mono_us() + SUMMARY_EVERY_MS * 1000;
	int64_t elapsed_ms = 0;
	bool purging = false;

	for (;;) {
		pr_pulse_beat(&worker->pulse, SWEEP_EVERY_MS);
		if (pr_stop_wait(&worker->crew->stop, SWEEP_EVERY_MS))
			break;
		/* In the first round too: a relay that never lives for long cleans up as well. */
		purging = purging || elapsed_ms % PURGE_EVERY_MS == 0;
		if (purging || !is_quiet(worker->crew))
			repeat(worker, sweep);
		if (purging)
			purging = purge_all(worker);
		if (pr_mono_us() >= worker->unrouted_at_us)
			pr_janitor_look_unrouted(worker, false);
		elapsed_ms += SWEEP_EVERY_MS;
		/* By the clock: a purge may have taken long. */
		if (pr_mono_us() >= summary_us) {
			pr_janitor_summarize(worker, !worker->store);
			summary_us = pr_mono_us() + SUMMARY_EVERY_MS * 1000;
		}
		pr_log_flush(&worker->log);
	}
	pr_pulse_end(&worker->pulse);
	return NULL;
}
