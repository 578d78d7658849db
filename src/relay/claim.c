/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first step of a pass: take what is due. Most often the settling of the
 * batch before does it on the way.
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
	const struct postroom_batch *batch = worker->batch;

	for (size_t i = 0; i < batch->buried_count; i++) {
		const postroom_delivery *item = &batch->buried[i];

		pr_log_dead(&worker->log, item->id, pr_log_key(item), item->attempt, item->reason);
	}
	atomic_fetch_add(&worker->relay->totals.dead, (int64_t)batch->buried_count);
}

struct pr_next pr_claim_prepare(struct pr_worker *worker, int32_t limit)
{
	const struct pr_relay_config *config = &worker->crew->config;
	bool first = worker->batch == &worker->batches[0];
	struct pr_next next = {
		.claim = {
			.scope = config->scope,
			.limit = limit,
			.max_bytes = PR_BATCH_BYTES,
			.lease_ms = config->lease_ms,
			.max_attempts = config->policy.max_attempts,
			.suspects = !worker->suspected && pr_mono_us() >= worker->suspects_at_us,
			.block = config->policy.block,
			.loose = config->loose,
		},
		.batch = &worker->batches[first ? 1 : 0],
		.lease = pr_lease_from_now(config->lease_ms),
	};

	pr_batch_reset(next.batch);
	return next;
}

void pr_claim_receive(struct pr_worker *worker, const struct pr_next *next)
{
	size_t count = next->batch->count;
	/* Of those that a probe is chosen from the others are only looked at. */
	int64_t fetched = worker->probe ? 1 : (int64_t)count;

	worker->batch = next->batch;
	worker->lease = next->lease;
	if (worker->taken > (int64_t)count) {
		pr_limit_give_back(pr_worker_limit(worker), worker->taken - (int64_t)count);
		worker->taken = (int64_t)count;
	}
	worker->trouble_since_us = 0;
	/* One alone was left behind, or may have been: then the pass after the next looks again. */
	worker->suspected = next->claim.suspects && count == 1;
	if (next->claim.suspects && !worker->suspected)
		worker->suspects_at_us = pr_mono_us() + SUSPECTS_EVERY_US;
	atomic_store(&worker->in_flight, (int64_t)count);
	pr_log_buried(worker);
	if (count == 0)
		return;
	worker->last_count = (int64_t)count;
	worker->rest_ms = 0;
	atomic_fetch_add(&worker->relay->totals.fetched, fetched);
	pr_log_box(&worker->log, PR_LOG_INFO, "WORKER_FETCH");
	pr_log_int(&worker->log, "count", fetched);
	pr_log_end(&worker->log);
}

int pr_claim_batch(struct pr_worker *worker, int32_t limit, struct pr_err *err)
{
	struct pr_next next = pr_claim_prepare(worker, limit);
	int status;

	/* What a pass could not settle is the next owner's. */
	atomic_store(&worker->in_flight, 0);
	status = worker->store->ops->claim(worker->store, worker->crew->config.table, &next.claim,
					   next.batch, err);
	if (status >= 0)
		pr_claim_receive(worker, &next);
	else
		pr_limit_give_back(pr_worker_limit(worker), worker->taken);
	return status;
}
