/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first step of a pass: claim due messages. Usually the settle of the previous batch claims
 * the next one.
 *
 * 1. The lease is counted from before the claim is sent.
 * 2. Expired leases are reclaimed from time to time. While there are some, passes alternate
 *    between them and due messages, so that neither starves: many messages of a dead relay are
 *    tried one by one while the others flow.
 */
#include "relay/worker.h"

/*
 * A row may make the claim itself fail. After a failure, this many claims fetch one message each
 * and read no content: then only the faulty message fails.
 */
#define CAREFUL_CLAIMS 32

/* Time between two scans for expired leases while there are none. */
#define RECLAIM_EVERY_US 500000

void pr_log_dead_letters(struct pr_worker *worker)
{
	const struct postroom_batch *batch = worker->batch;

	for (size_t i = 0; i < batch->dead_letter_count; i++) {
		const postroom_delivery *item = &batch->dead_letters[i];

		pr_log_dead(&worker->log, item->id, pr_log_key(item), item->attempt, item->reason);
	}
	atomic_fetch_add(&worker->relay->totals.dead, (int64_t)batch->dead_letter_count);
	pr_meter_dead_lettered(worker, batch);
}

struct pr_claim_request pr_claim_prepare(struct pr_worker *worker, int32_t limit)
{
	const struct pr_relay_config *config = &worker->generation->config;
	bool first = worker->batch == &worker->batches[0];
	struct pr_claim_request next = {
		.claim = {
			.scope = config->scope,
			.limit = worker->careful ? 1 : limit,
			.max_bytes = worker->careful ? 0 : pr_load_share(worker->generation),
			.lease_ms = config->lease_ms,
			.max_attempts = config->policy.max_attempts,
			.reclaim_expired = !worker->reclaimed && pr_mono_us() >= worker->reclaim_at_us,
			.block = config->policy.block,
			.unordered = config->unordered,
		},
		.batch = &worker->batches[first ? 1 : 0],
		.lease = pr_lease_from_now(config->lease_ms),
	};

	pr_batch_reset(next.batch);
	return next;
}

void pr_claim_receive(struct pr_worker *worker, const struct pr_claim_request *next)
{
	size_t count = next->batch->count;
	/* All except the probe itself are only candidates. */
	int64_t fetched = worker->probe ? 1 : (int64_t)count;

	worker->batch = next->batch;
	worker->lease = next->lease;
	if (worker->taken > (int64_t)count) {
		pr_limit_refund(pr_worker_limit(worker), worker->taken - (int64_t)count);
		worker->taken = (int64_t)count;
	}
	worker->outage_since_us = 0;
	if (worker->careful > 0)
		worker->careful--;
	/* A single message may have an expired lease: the pass after the next scans again. */
	worker->reclaimed = next->claim.reclaim_expired && count == 1;
	if (next->claim.reclaim_expired && !worker->reclaimed)
		worker->reclaim_at_us = pr_mono_us() + RECLAIM_EVERY_US;
	atomic_store(&worker->in_flight, (int64_t)count);
	pr_meter_claimed(worker, next->batch);
	pr_log_dead_letters(worker);
	if (count == 0)
		return;
	worker->last_count = (int64_t)count;
	worker->sleep_ms = 0;
	atomic_fetch_add(&worker->relay->totals.fetched, fetched);
	pr_log_box(&worker->log, PR_LOG_INFO, "WORKER_FETCH");
	pr_log_int(&worker->log, "count", fetched);
	pr_log_end(&worker->log);
}

int pr_claim_batch(struct pr_worker *worker, int32_t limit, struct pr_err *err)
{
	struct pr_claim_request next = pr_claim_prepare(worker, limit);
	int64_t begun_us = pr_mono_us();
	int status;

	/* Messages that a pass could not settle are reclaimed later. */
	atomic_store(&worker->in_flight, 0);
	atomic_store(&worker->in_flight_bytes, 0);
	pr_meter_state(worker, PR_WORKER_CLAIMING);
	status = pr_store_claim(worker->store, worker->generation->config.table, &next.claim,
				next.batch, err);
	pr_meter_store(&worker->relay->metrics, PR_OPERATION_CLAIM, begun_us, status, err);
	if (status >= 0) {
		pr_claim_receive(worker, &next);
		return status;
	}
	pr_limit_refund(pr_worker_limit(worker), worker->taken);
	if (status != POSTROOM_STOPPED)
		worker->careful = CAREFUL_CLAIMS;
	return status;
}
