/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of large messages: loaded after the claim, and kept while it is published.
 *
 * 1. All workers share one memory budget for it. A message that is larger than the budget is
 *    loaded alone. So the memory of a relay is bounded, for any number of workers and waiting
 *    messages.
 * 2. No worker waits for memory without renewing leases: the wait is short, and the caller repeats
 *    it.
 * 3. A message that cannot be received has failed, and its attempt counts. Other messages
 *    continue.
 */
#include "relay/worker.h"

#include <string.h>

#define CONTENT_BUDGET ((size_t)16 * 1024 * 1024)

/* Small batches: all of them together, and each of them. */
#define BATCHES ((size_t)8 * 1024 * 1024)
#define BATCH_MOST ((size_t)2 * 1024 * 1024)

/* Pause between two attempts to get memory. */
#define WAIT_MS 10
/* A refused worker is served first for this long; it may have stopped. */
#define FIRST_US 1000000

size_t pr_load_share(const struct pr_generation *generation)
{
	size_t workers = generation->pool_count * (size_t)generation->config.workers;
	size_t share = workers ? BATCHES / 2 / workers : BATCH_MOST;

	if (share < PR_LARGE_BYTES)
		share = PR_LARGE_BYTES;
	return share < BATCH_MOST ? share : BATCH_MOST;
}

static bool take_content_budget(struct pr_worker *worker, size_t bytes)
{
	struct pr_content_budget *content_budget = &worker->relay->content_budget;
	int64_t now_us = pr_mono_us();
	bool others_first, taken;

	pthread_mutex_lock(&content_budget->lock);
	others_first = content_budget->waiter && content_budget->waiter != worker &&
		       now_us - content_budget->waiter_us < FIRST_US;
	taken = content_budget->used == 0 || (!others_first && bytes <= CONTENT_BUDGET &&
					      content_budget->used <= CONTENT_BUDGET - bytes);
	if (taken) {
		content_budget->used += bytes;
		worker->content_budget += bytes;
		if (content_budget->waiter == worker)
			content_budget->waiter = NULL;
	} else if (!others_first) {
		content_budget->waiter = worker;
		content_budget->waiter_us = now_us;
	}
	pthread_mutex_unlock(&content_budget->lock);
	return taken;
}

static void release_content_budget(struct pr_worker *worker)
{
	struct pr_content_budget *content_budget = &worker->relay->content_budget;

	pthread_mutex_lock(&content_budget->lock);
	content_budget->used -= worker->content_budget;
	worker->content_budget = 0;
	pthread_mutex_unlock(&content_budget->lock);
}

static bool is_done(const postroom_delivery *item)
{
	return item->verdict != POSTROOM_UNTRIED || item->settled != POSTROOM_OK;
}

/* Items that were not published yet are loaded again before their slice. */
static void drop_all(struct pr_worker *worker, postroom_delivery *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!items[i].loaded)
			continue;
		if (!is_done(&items[i]))
			items[i].withheld = items[i].payload_len + items[i].body_len +
					    strlen(items[i].headers);
		items[i].headers = "{}";
		items[i].payload = "";
		items[i].body = NULL;
		items[i].payload_len = items[i].body_len = 0;
		items[i].loaded = 0;
	}
	pr_arena_reset(&worker->content);
	release_content_budget(worker);
}

void pr_load_drop(struct pr_worker *worker, postroom_delivery *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (items[i].loaded && !is_done(&items[i]))
			return;
	}
	if (worker->content_budget > 0)
		drop_all(worker, items, count);
}

void pr_load_drop_all(struct pr_worker *worker, struct postroom_batch *batch)
{
	if (worker->content_budget > 0)
		drop_all(worker, batch->items, batch->count);
}

/* Loads an item into reserved memory. POSTROOM_BUSY: it is larger than announced. */
static int load_one(struct pr_worker *worker, postroom_delivery *item, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->generation->config;
	const struct pr_content_load loading = { .table = config->table,
						 .policy = &config->policy,
						 .most = item->withheld,
						 .content = &worker->content,
						 .reasons = &worker->scratch };

	pr_watchdog_feed(&worker->watchdog, 0);
	if (!worker->store)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the database is unreachable");
	return pr_store_load(worker->store, &loading, item, err);
}

int pr_load_items(struct pr_worker *worker, postroom_delivery *items, size_t count, size_t *ret,
		  struct pr_err *err)
{
	size_t ready = 0;

	/* A worker that waits for memory holds none, or it might wait for itself. */
	if (count > 0 && items[0].withheld && worker->content_budget > 0)
		drop_all(worker, worker->batch->items, worker->batch->count);
	/* Loaded content is published first. */
	while (ready < count && !items[ready].withheld)
		ready++;
	*ret = ready;
	if (ready > 0 && worker->content_budget > 0)
		return POSTROOM_OK;
	for (; ready < count; *ret = ++ready) {
		postroom_delivery *item = &items[ready];
		bool first = ready == 0;
		int status;

		if (!item->withheld)
			continue;
		/* Several only if they are not too large, since the batch itself also uses memory. */
		if (!first && worker->content_budget + item->withheld > BATCH_MOST)
			break;
		if (!take_content_budget(worker, item->withheld)) {
			pr_watchdog_feed(&worker->watchdog, WAIT_MS);
			if (first)
				pr_stop_wait(&worker->generation->stop, WAIT_MS);
			break;
		}
		status = load_one(worker, item, err);
		if (status < 0 && status != POSTROOM_BUSY)
			return status;
		if (item->loaded)
			continue;
		if (first) {
			pr_arena_reset(&worker->content);
			release_content_budget(worker);
			break;
		}
		/* As the first item of a slice, its reason outlives the slice. */
		item->verdict = POSTROOM_UNTRIED;
		item->settled = POSTROOM_OK;
		item->reason = NULL;
		break;
	}
	return POSTROOM_OK;
}
