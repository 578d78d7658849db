/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first step of a pass: take what is due.
 *
 * 1. The lease's clock starts before the claim is sent.
 * 2. Expired leases are looked for now and then. While there are some, they and
 *    the due messages take turns, so that neither starves: a crowd left by a
 *    dead relay is tried one by one while the rest flows on.
 */
#include "relay/worker.h"

/* How often to look for expired leases while there are none. */
#define SUSPECTS_EVERY_US 500000

void pr_log_buried(struct pr_worker *worker)
{
	struct postroom_batch *batch = &worker->batch;

	for (size_t i = 0; i < batch->buried_count; i++) {
		const postroom_delivery *item = &batch->buried[i];

		pr_log_event(&worker->log, PR_LOG_INFO, "OUTBOX_WORKER_DEAD");
		pr_log_str(&worker->log, "id", item->id);
		pr_log_str(&worker->log, "key", pr_log_key(item));
		pr_log_int(&worker->log, "attempts", item->attempt);
		if (item->reason)
			pr_log_str(&worker->log, "error", item->reason);
		pr_log_end(&worker->log);
	}
	atomic_fetch_add(&worker->relay->totals.dead, (int64_t)batch->buried_count);
}

int pr_claim_batch(struct pr_worker *worker, int32_t limit, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->relay->config;
	struct pr_claim claim = {
		.scope = config->scope,
		.limit = limit,
		.max_bytes = PR_BATCH_BYTES,
		.lease_ms = config->lease_ms,
		.max_attempts = config->policy.max_attempts,
		.suspects = !worker->suspected && pr_mono_us() >= worker->suspects_at_us,
	};
	struct postroom_batch *batch = &worker->batch;
	int status;

	pr_batch_reset(batch);
	worker->lease = pr_lease_from_now(config->lease_ms);
	status = worker->store->ops->claim(worker->store, &pr_table_outbox, &claim, batch, err);
	if (status < 0)
		return status;
	/* One alone was left behind, or may have been: then the pass after the next looks again. */
	worker->suspected = claim.suspects && batch->count == 1;
	if (claim.suspects && !worker->suspected)
		worker->suspects_at_us = pr_mono_us() + SUSPECTS_EVERY_US;
	pr_log_buried(worker);
	if (batch->count == 0)
		return POSTROOM_OK;
	atomic_fetch_add(&worker->relay->totals.fetched, (int64_t)batch->count);
	pr_log_event(&worker->log, PR_LOG_INFO, "OUTBOX_WORKER_FETCH");
	pr_log_int(&worker->log, "count", (int64_t)batch->count);
	pr_log_end(&worker->log);
	return POSTROOM_OK;
}
