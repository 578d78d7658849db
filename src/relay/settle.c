/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last step of a pass: settle each message, then log the result.
 *
 * 1. A verdict is logged and counted only after it was committed.
 * 2. A lost lease is logged and otherwise ignored.
 * 3. During an outage of the database, settle is retried until the lease ends: a published message
 *    that cannot be settled will be delivered again.
 * 4. Claiming the next batch never prevents the settle: if the combined call fails, the worker
 *    settles without claiming. Nothing is claimed before the rate allows it.
 * 5. A message that its handler has settled together with its effect is logged and counted like
 *    others, and the store does not settle it again.
 */
#include "relay/worker.h"

void pr_log_failed(struct pr_log *log, const char *id, const char *key, int32_t attempt,
		   int32_t max, const char *error)
{
	pr_log_box(log, PR_LOG_INFO, "WORKER_DISPATCH_FAIL");
	pr_log_str(log, "id", id);
	pr_log_str(log, "key", key);
	pr_log_int(log, "retry", attempt);
	pr_log_int(log, "max", max);
	pr_log_str(log, "error", error);
	pr_log_end(log);
}

void pr_log_dead(struct pr_log *log, const char *id, const char *key, int32_t attempts,
		 const char *error)
{
	pr_log_box(log, PR_LOG_INFO, "WORKER_DEAD");
	pr_log_str(log, "id", id);
	pr_log_str(log, "key", key);
	pr_log_int(log, "attempts", attempts);
	if (error)
		pr_log_str(log, "error", error);
	pr_log_end(log);
}

static void log_failure(struct pr_worker *worker, const postroom_delivery *item)
{
	pr_log_failed(&worker->log, item->id, pr_log_key(item), item->attempt,
		      worker->generation->config.policy.max_attempts, item->reason);
	atomic_fetch_add(&worker->relay->totals.failed, 1);
	if (!item->dead)
		return;
	pr_log_dead(&worker->log, item->id, pr_log_key(item), item->attempt, NULL);
	atomic_fetch_add(&worker->relay->totals.dead, 1);
}

static void log_settled(struct pr_worker *worker, const postroom_delivery *items, size_t count)
{
	struct pr_log *log = &worker->log;
	int64_t delivered = 0, failed = 0, created_us = 0;
	struct pr_tally latency;

	for (size_t i = 0; i < count; i++) {
		const postroom_delivery *item = &items[i];

		if (item->settled == POSTROOM_LEASE_LOST) {
			pr_log_box(log, PR_LOG_INFO, "WORKER_SKIP_PROCESSED");
			pr_log_str(log, "id", item->id);
			pr_log_end(log);
			atomic_fetch_add(&worker->relay->totals.lost, 1);
		} else if (item->verdict == POSTROOM_DELIVERED) {
			pr_log_box(log, PR_LOG_INFO, "WORKER_DISPATCH_SUCCESS");
			pr_log_str(log, "id", item->id);
			pr_log_str(log, "key", pr_log_key(item));
			pr_log_end(log);
			delivered++;
			created_us = item->created_at_us;
		} else if (item->verdict == POSTROOM_FAILED || item->verdict == POSTROOM_REJECTED) {
			log_failure(worker, item);
			failed++;
		}
	}
	atomic_fetch_add(&worker->relay->totals.delivered, delivered);
	if (atomic_fetch_sub(&worker->in_flight, (int64_t)count) == (int64_t)count)
		atomic_store(&worker->lanes, 0);
	pr_meter_settled(worker, items, count, &latency);
	pr_rates_add(&worker->relay->rates, pr_mono_us(), delivered, failed,
		     pr_now_us() - created_us, &latency);
}

static bool is_settled_by_handler(const postroom_delivery *item)
{
	return item->settled_by_handler;
}

/* Logs items that need no settle; *items and *count become the others. */
static int log_settled_by_handler(struct pr_worker *worker, postroom_delivery **items,
				  size_t *count, struct pr_err *err)
{
	size_t settled_by_handler = 0;
	int status;

	while (settled_by_handler < *count && !is_settled_by_handler(&(*items)[settled_by_handler]))
		settled_by_handler++;
	if (settled_by_handler == *count)
		return POSTROOM_OK;
	status = pr_items_partition(worker, *items, *count, is_settled_by_handler,
				    &settled_by_handler, err);
	if (status < 0)
		return status;
	log_settled(worker, *items, settled_by_handler);
	*items += settled_by_handler;
	*count -= settled_by_handler;
	return POSTROOM_OK;
}

int pr_settle_items(struct pr_worker *worker, postroom_delivery *items, size_t count,
		    struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->generation->config;
	struct pr_settle settle = { .policy = &config->policy };
	int64_t begun_us;
	int status = log_settled_by_handler(worker, &items, &count, err);

	if (status < 0 || count == 0)
		return status;
	settle.items = items;
	settle.count = count;
	pr_meter_state(worker, PR_WORKER_SETTLING);
	for (;;) {
		pr_watchdog_feed(&worker->watchdog, 0);
		status = pr_worker_connect(worker, true, err);
		begun_us = pr_mono_us();
		if (status >= 0)
			status = pr_meter_store(
				&worker->relay->metrics, PR_OPERATION_SETTLE, begun_us,
				pr_store_settle(worker->store, config->table, &settle, err), err);
		if (status >= 0 || status == POSTROOM_LEASE_LOST)
			break;
		if (pr_lease_left_ms(worker->lease) <= 0 ||
		    pr_stop_overdue(&worker->generation->stop))
			return status;
		status = pr_worker_handle_outage(worker, err);
		if (status < 0)
			return status;
	}
	worker->outage_since_us = 0;
	log_settled(worker, items, count);
	return POSTROOM_OK;
}

int pr_settle_last(struct pr_worker *worker, postroom_delivery *items, size_t count,
		   struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->generation->config;
	struct pr_limit *limit = pr_worker_limit(worker);
	struct postroom_store *store = worker->store;
	int64_t wait_ms, begun_us;
	struct pr_claim_request next;
	int status = log_settled_by_handler(worker, &items, &count, err);

	if (status < 0 || count == 0)
		return status;
	if (!store || pr_stop_requested(&worker->generation->stop) || !pr_claim_token_take(worker))
		return pr_settle_items(worker, items, count, err);
	worker->taken = pr_limit_take(limit, worker->batch_limit, pr_mono_us(), &wait_ms);
	if (worker->taken == 0) {
		pr_claim_token_release(worker);
		return pr_settle_items(worker, items, count, err);
	}
	next = pr_claim_prepare(worker, (int32_t)worker->taken);
	pr_watchdog_feed(&worker->watchdog, 0);
	pr_meter_state(worker, PR_WORKER_SETTLING);
	begun_us = pr_mono_us();
	status = store->ops->settle_and_claim(store, config->table,
					      &(struct pr_settle){ items, count, &config->policy },
					      &next.claim, next.batch, err);
	pr_meter_store(&worker->relay->metrics, PR_OPERATION_SETTLE_AND_CLAIM, begun_us, status,
		       err);
	pr_claim_token_release(worker);
	if (status < 0 && status != POSTROOM_LEASE_LOST) {
		pr_limit_refund(limit, worker->taken);
		return pr_settle_items(worker, items, count, err);
	}
	log_settled(worker, items, count);
	pr_claim_receive(worker, &next);
	return POSTROOM_OK;
}
