/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has to happen now and then: burying what died with its worker, purging
 * what was delivered or died long ago and forgetting its keys, one summary line a minute.
 *
 * 1. Each step is a short transaction with a pause behind it: the claims come
 *    first.
 * 2. A failure is left for the next round, on a new connection; the workers tell
 *    about trouble.
 * 3. Only the messages of the relay's own scope are touched: another relay may
 *    have another max_attempts and retention for the rest.
 */
#include "relay/worker.h"

#include <string.h>

#define SWEEP_EVERY_MS 5000
#define PURGE_EVERY_MS 60000
#define SUMMARY_EVERY_MS 60000LL
#define AT_ONCE 500
#define PAUSE_MS 20

/* A short transaction over AT_ONCE rows at most; *ret is how many there were. */
typedef int (*step_fn)(struct pr_worker *worker, int64_t *ret, struct pr_err *err);

static int sweep(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	struct pr_next next = pr_claim_prepare(worker, AT_ONCE);
	int status = worker->store->ops->sweep(worker->store, &pr_table_outbox, &next.claim,
					       next.batch, err);

	worker->batch = next.batch;
	if (status < 0)
		return status;
	pr_log_buried(worker);
	*ret = (int64_t)worker->batch->buried_count;
	return POSTROOM_OK;
}

static int purge(struct pr_worker *worker, const char *what, int64_t after_ms, int64_t *ret,
		 struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->relay->config;
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
	return purge(worker, "delivered", worker->relay->config.retention_ms, ret, err);
}

static int purge_dead(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	return purge(worker, "dead", worker->relay->config.dead_retention_ms, ret, err);
}

static int forget(struct pr_worker *worker, int64_t *ret, struct pr_err *err)
{
	return worker->store->ops->forget(worker->store, worker->relay->config.dedupe_retention_ms,
					  AT_ONCE, true, ret, err);
}

static void repeat(struct pr_worker *worker, step_fn step)
{
	int64_t done = 0;
	struct pr_err err;
	int status;

	do {
		pr_pulse_beat(&worker->pulse, PAUSE_MS);
		status = pr_worker_connect(worker, false, &err);
		if (status >= 0)
			status = step(worker, &done, &err);
	} while (status >= 0 && done == AT_ONCE && !pr_stop_wait(&worker->relay->stop, PAUSE_MS));
	if (status < 0) {
		pr_store_close(worker->store);
		worker->store = NULL;
	}
}

void pr_janitor_summarize(struct pr_worker *janitor, bool trouble)
{
	struct pr_relay_totals *before = &janitor->relay->summarized;
	struct pr_log *log = &janitor->log;
	struct pr_relay_report now;

	pr_relay_report(janitor->relay, &now);
	if (!trouble && now.in_flight == 0 && memcmp(before, &now.totals, sizeof(*before)) == 0)
		return;
	pr_log_event(log, PR_LOG_INFO, "OUTBOX_WORKER_SUMMARY");
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
	*before = now.totals;
}

void *pr_janitor_run(void *context)
{
	struct pr_worker *worker = context;
	const struct pr_relay_config *config = &worker->relay->config;
	int64_t summary_us = pr_mono_us() + SUMMARY_EVERY_MS * 1000;
	int64_t elapsed_ms = 0;

	for (;;) {
		pr_pulse_beat(&worker->pulse, SWEEP_EVERY_MS);
		if (pr_stop_wait(&worker->relay->stop, SWEEP_EVERY_MS))
			break;
		repeat(worker, sweep);
		/* In the first round too: a relay that never lives for long cleans up as well. */
		if (elapsed_ms % PURGE_EVERY_MS == 0 && config->retention_ms >= 0)
			repeat(worker, purge_delivered);
		if (elapsed_ms % PURGE_EVERY_MS == 0 && config->dead_retention_ms >= 0)
			repeat(worker, purge_dead);
		if (elapsed_ms % PURGE_EVERY_MS == 0 && config->dedupe_retention_ms >= 0)
			repeat(worker, forget);
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
