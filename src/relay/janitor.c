/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has to happen now and then: burying what died with its worker, purging
 * what was delivered long ago, one summary line a minute.
 *
 * 1. Each step is a short transaction with a pause behind it: the claims come
 *    first.
 * 2. A failure is left for the next round, on a new connection; the workers tell
 *    about trouble.
 * 3. Only the relay's own scope is touched: another relay may have another
 *    max_attempts and retention for the rest.
 */
#include "relay/worker.h"

#define SWEEP_EVERY_MS 5000
#define PURGE_EVERY_MS 60000
#define SUMMARY_EVERY_MS 60000
#define AT_ONCE 500
#define PAUSE_MS 20

static void give_up_round(struct pr_worker *worker)
{
	pr_store_close(worker->store);
	worker->store = NULL;
}

static void sweep(struct pr_worker *worker)
{
	const struct pr_relay_config *config = &worker->relay->config;
	struct pr_err err;
	int status;

	do {
		pr_batch_reset(&worker->batch);
		status = pr_worker_connect(worker, false, &err);
		if (status >= 0)
			status = worker->store->ops->sweep(
				worker->store, &pr_table_outbox, &config->scope,
				config->policy.max_attempts, AT_ONCE, &worker->batch, &err);
		if (status >= 0)
			pr_log_buried(worker);
	} while (status >= 0 && worker->batch.buried_count == AT_ONCE &&
		 !pr_stop_wait(&worker->relay->stop, PAUSE_MS));
	if (status < 0)
		give_up_round(worker);
}

static void purge(struct pr_worker *worker)
{
	const struct pr_relay_config *config = &worker->relay->config;
	postroom_filter old = {
		.size = sizeof(old),
		.status = "delivered",
		.ns = config->scope.ns,
		.topic = config->scope.topic,
		.tenant_id = config->scope.tenant_id,
		.older_than_ms = config->retention_ms,
	};
	int64_t purged = 0;
	struct pr_err err;
	int status;

	if (old.older_than_ms < 0)
		return;
	do {
		status = pr_worker_connect(worker, false, &err);
		if (status >= 0)
			status = worker->store->ops->purge(worker->store, &old, AT_ONCE, true, &purged,
							   &err);
	} while (status >= 0 && purged == AT_ONCE &&
		 !pr_stop_wait(&worker->relay->stop, PAUSE_MS));
	if (status < 0)
		give_up_round(worker);
}

static void summarize(struct pr_worker *worker, struct pr_relay_totals *before)
{
	struct pr_relay_totals now;

	pr_relay_totals(worker->relay, &now);
	pr_log_event(&worker->log, PR_LOG_INFO, "OUTBOX_WORKER_SUMMARY");
	pr_log_int(&worker->log, "fetched", now.fetched - before->fetched);
	pr_log_int(&worker->log, "delivered", now.delivered - before->delivered);
	pr_log_int(&worker->log, "failed", now.failed - before->failed);
	pr_log_int(&worker->log, "dead", now.dead - before->dead);
	pr_log_end(&worker->log);
	pr_log_flush(&worker->log);
	*before = now;
}

void *pr_janitor_run(void *context)
{
	struct pr_worker *worker = context;
	struct pr_relay_totals before = { 0 };
	int64_t elapsed_ms = 0;

	while (!pr_stop_wait(&worker->relay->stop, SWEEP_EVERY_MS)) {
		elapsed_ms += SWEEP_EVERY_MS;
		sweep(worker);
		if (elapsed_ms % PURGE_EVERY_MS == 0)
			purge(worker);
		if (elapsed_ms % SUMMARY_EVERY_MS == 0)
			summarize(worker, &before);
		pr_log_flush(&worker->log);
	}
	return NULL;
}
