/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the message that makes others fail. Messages that share a connection fail together
 * when one of them makes the receiver drop it. They are published again in the same pass,
 * in smaller and smaller calls, until the cause fails alone and the others are delivered.
 *
 * 1. A message is not charged for a failure that it shared.
 * 2. Each shared failure halves the calls that follow, and a message that fails alone goes
 *    behind the others once: so it ends, and there is something to compare it with.
 * 3. A message stays behind those of its key: it is set aside together with them.
 * 4. A message that fails alone after that is judged as in the call that it failed in first:
 *    deliveries since then are evidence. There may be nothing left to compare it with.
 * 5. Publishing a message again counts for the sink's rate like any other.
 */
#include "relay/worker.h"

/* Bits of aside. */
enum {
	ASIDE = 1,   /* in small calls, after those that are not */
	LATEST = 2,  /* it was in the call that failed last: the others first */
	DEFERRED = 4 /* it has failed alone before, with nothing to compare it with */
};

static bool is_ahead(const postroom_delivery *item)
{
	return !(item->aside & LATEST);
}

/* UNTRIED: it was sent after another message of its key, which was not delivered. */
static bool failed_together(const postroom_delivery *item)
{
	return item->together &&
	       (item->verdict == POSTROOM_UNREACHABLE || item->verdict == POSTROOM_UNTRIED);
}

int pr_isolate_sort(struct pr_worker *worker, postroom_delivery *items, size_t count,
		    struct pr_err *err)
{
	const size_t *before = pr_sink_order(items, count, &worker->scratch);
	size_t ignored;
	int status;

	if (!before)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++) {
		if (before[i] != PR_SINK_NONE)
			items[i].aside |= items[before[i]].aside & (ASIDE | LATEST);
	}
	status = pr_items_partition(worker, items, count, is_ahead, &ignored, err);
	for (size_t i = 0; i < count; i++)
		items[i].aside &= ~LATEST;
	return status;
}

int pr_isolate_known(struct pr_worker *worker, postroom_delivery *items, size_t count,
		     struct pr_err *err)
{
	worker->aside_most = 1;
	if (!pr_breaker_mark_alone(pr_worker_breaker(worker), items, count, ASIDE | LATEST))
		return POSTROOM_OK;
	return pr_isolate_sort(worker, items, count, err);
}

size_t pr_isolate_take(struct pr_worker *worker, const postroom_delivery *items, size_t count)
{
	int32_t again = 0, allowed;
	int64_t wait_ms = 0;

	for (size_t i = 0; i < count; i++)
		again += items[i].lost_us != 0;
	if (again == 0)
		return count;
	allowed = pr_limit_take(pr_worker_limit(worker), again, pr_mono_us(), &wait_ms);
	worker->taken += allowed;
	if (allowed == again)
		return count;
	if (allowed == 0) {
		/* Other workers may need the memory meanwhile. */
		pr_load_drop_all(worker, worker->batch);
		pr_watchdog_feed(&worker->watchdog, wait_ms);
		pr_stop_wait(&worker->generation->stop, wait_ms);
	}
	for (size_t i = 0; i < count; i++) {
		if (items[i].lost_us && allowed-- == 0)
			return i;
	}
	return count;
}

size_t pr_isolate_next(struct pr_worker *worker, const postroom_delivery *items, size_t count)
{
	size_t ahead = 0;

	while (ahead < count && !items[ahead].aside)
		ahead++;
	if (ahead > 0)
		return ahead;
	return count > (size_t)worker->aside_most ? (size_t)worker->aside_most : count;
}

/* It failed alone, others are left, and there is nothing yet to compare it with. */
static bool is_inconclusive(struct pr_worker *worker, const postroom_delivery *item, size_t left)
{
	const struct pr_delivery_evidence *proof = &pr_worker_breaker(worker)->proof;
	int64_t failed_us = item->lost_us ? item->lost_us : item->judged_us;

	return left > 1 && !(item->aside & DEFERRED) &&
	       atomic_load(&proof->begun_us) <= failed_us &&
	       atomic_load(&proof->delivered_us) < worker->began_us;
}

static void set_aside(struct pr_worker *worker, postroom_delivery *item, int how)
{
	item->aside |= how;
	if (!item->lost_us)
		item->lost_us = worker->began_us;
	item->verdict = POSTROOM_UNTRIED;
	item->together = false;
	item->reason = NULL;
	worker->taken--; /* it has used its token of the rate, and needs another one */
}

bool pr_isolate_lost(struct pr_worker *worker, postroom_delivery *items, size_t count, size_t left)
{
	int how = ASIDE | LATEST;
	size_t lost = 0;

	for (size_t i = 0; i < count; i++)
		lost += failed_together(&items[i]);
	if (lost == 0 || pr_stop_requested(&worker->generation->stop))
		return false;
	if (lost == 1 && (count > 1 || !is_inconclusive(worker, &items[0], left)))
		return false;
	if (lost == 1)
		how |= DEFERRED;
	for (size_t i = 0; i < count; i++) {
		if (failed_together(&items[i]))
			set_aside(worker, &items[i], how);
	}
	worker->aside_most = (int32_t)((lost + 1) / 2);
	return true;
}

int64_t pr_isolate_began_us(const struct pr_worker *worker, const postroom_delivery *items,
			    size_t count)
{
	int64_t began_us = worker->began_us;

	for (size_t i = 0; i < count; i++) {
		const postroom_delivery *item = &items[i];

		if (item->verdict == POSTROOM_UNTRIED)
			continue;
		/* A failed connection is new evidence about the sink. */
		if (began_us != worker->began_us || item->verdict != POSTROOM_UNREACHABLE ||
		    !item->together || !item->lost_us)
			return worker->began_us;
		began_us = item->lost_us;
	}
	return began_us;
}
