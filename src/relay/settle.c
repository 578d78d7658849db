/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last step of a pass: write down what became of each message, then say
 * it.
 *
 * 1. A verdict is logged and counted only after it has been committed.
 * 2. A lost lease is logged and otherwise left alone.
 * 3. While the database is away settling is tried again until the lease ends:
 *    what was published and can not be written down will be delivered again.
 * 4. Claiming the next batch on the way never stands in the way of settling: if
 *    both together fail, settling alone is tried as ever. None is claimed before
 *    its rate allows some of it.
 * 5. What the publisher has settled itself, together with its effect, is told and
 *    counted as all else, and the store does not hear of it again.
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

static void tell_failure(struct pr_worker *worker, const postroom_delivery *item)
{
	pr_log_failed(&worker->log, item->id, pr_log_key(item), item->attempt,
		      worker->crew->config.policy.max_attempts, item->reason);
	atomic_fetch_add(&worker->relay->totals.failed, 1);
	if (!item->dead)
		return;
	pr_log_dead(&worker->log, item->id, pr_log_key(item), item->attempt, NULL);
	atomic_fetch_add(&worker->relay->totals.dead, 1);
}

static void tell(struct pr_worker *worker, const postroom_delivery *items, size_t count)
{
	struct pr_log *log = &worker->log;
	int64_t delivered = 0, failed = 0, created_us = 0;

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
			tell_failure(worker, item);
			failed++;
		}
	}
	atomic_fetch_add(&worker->relay->totals.delivered, delivered);
	atomic_fetch_sub(&worker->in_flight, (int64_t)count);
	pr_rates_add(&worker->relay->rates, pr_mono_us(), delivered, failed,
		     pr_now_us() - created_us);
}

static bool is_kept(const postroom_delivery *item)
{
	return item->kept;
}

/* What needs no settling is told, and *items and *count are the others. */
static int tell_kept(struct pr_worker *worker, postroom_delivery **items, size_t *count,
		     struct pr_err *err)
{
	size_t kept = 0;
	int status;

	while (kept < *count && !is_kept(&(*items)[kept]))
		kept++;
	if (kept == *count)
		return POSTROOM_OK;
	status = pr_items_part(worker, *items, *count, is_kept, &kept, err);
	if (status < 0)
		return status;
	tell(worker, *items, kept);
	*items += kept;
	*count -= kept;
	return POSTROOM_OK;
}

int pr_settle_items(struct pr_worker *worker, postroom_delivery *items, size_t count,
		    struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->crew->config;
	int status = tell_kept(worker, &items, &count, err);

	if (status < 0 || count == 0)
		return status;
	for (;;) {
		pr_pulse_beat(&worker->pulse, 0);
		status = pr_worker_connect(worker, true, err);
		if (status >= 0)
			status = worker->store->ops->settle(worker->store, config->table, items,
							    count, &config->policy, err);
		if (status >= 0 || status == POSTROOM_LEASE_LOST)
			break;
		if (pr_lease_left_ms(worker->lease) <= 0 || pr_stop_overdue(&worker->crew->stop))
			return status;
		status = pr_worker_trouble(worker, err);
		if (status < 0)
			return status;
	}
	worker->trouble_since_us = 0;
	tell(worker, items, count);
	return POSTROOM_OK;
}

int pr_settle_last(struct pr_worker *worker, postroom_delivery *items, size_t count,
		   struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->crew->config;
	struct pr_limit *limit = pr_worker_limit(worker);
	struct postroom_store *store = worker->store;
	int64_t wait_ms;
	struct pr_next next;
	int status = tell_kept(worker, &items, &count, err);

	if (status < 0 || count == 0)
		return status;
	if (!store || pr_stop_requested(&worker->crew->stop) || !pr_turn_take(worker))
		return pr_settle_items(worker, items, count, err);
	worker->taken = pr_limit_take(limit, worker->batch_limit, pr_mono_us(), &wait_ms);
	if (worker->taken == 0) {
		pr_turn_leave(worker);
		return pr_settle_items(worker, items, count, err);
	}
	next = pr_claim_prepare(worker, (int32_t)worker->taken);
	pr_pulse_beat(&worker->pulse, 0);
	status = store->ops->turn(store, config->table, items, count, &config->policy,
				  &next.claim, next.batch, err);
	pr_turn_leave(worker);
	if (status < 0 && status != POSTROOM_LEASE_LOST) {
		pr_limit_give_back(limit, worker->taken);
		return pr_settle_items(worker, items, count, err);
	}
	tell(worker, items, count);
	pr_claim_receive(worker, &next);
	return POSTROOM_OK;
}
