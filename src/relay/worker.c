/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: runs passes until it is stopped.
 *
 * 1. It holds nothing that a restart needs; it may crash at any line.
 * 2. An outage of the database pauses the worker and never ends it, except for --drain, which
 *    gives up after PR_DRAIN_PATIENCE_MS. A newer migration that excludes this program ends it:
 *    each new connection is checked, so a statement that fails because of such a migration leads
 *    there, too.
 * 3. Every wait includes the stop.
 * 4. While there is nothing to do, one worker of a pool holds the watch token and waits for all:
 *    it runs one statement per poll interval. When it finds work, it releases the token before it
 *    publishes, and the next holder checks for more immediately. So all workers run as soon as
 *    there is enough work, and a commit never waits for a slow sink.
 */
#include "relay/worker.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

/* An idle --drain polls often, because its caller waits for it. */
#define DRAIN_POLL_MS 20

/* Minimum of candidates for a probe, so that a few poison messages cannot keep the breaker open. */
#define PROBE_AMONG 50

#define SINK_WAIT_MAX_MS 2000

/* Pause between two attempts to get a share of the concurrency. */
#define PART_WAIT_MS 20

/* Pause between two checks whether another worker still claims. */
#define CLAIM_TOKEN_WAIT_MS 5

/* Pause between two attempts during an outage of the database. */
#define PAUSE_MAX_MS 1000

/* Back-off after a spurious wakeup. */
#define SPURIOUS_WAKEUP_PAUSE_MS 100

/* How often a sleeping worker feeds its watchdog. */
#define SLEEP_MS 30000

int pr_worker_connect(struct pr_worker *worker, bool finishing, struct pr_err *err)
{
	const struct pr_generation *generation = worker->generation;
	struct pr_store_config config = {
		.url = generation->config.url,
		.schema = generation->config.schema,
		/* A response after the end of the lease is useless. */
		.answer_ms = generation->config.lease_ms,
		.busy_wait_ms = pr_generation_gives_up(generation) ? PR_DRAIN_PATIENCE_MS : -1,
		.until_us = worker->open_until_us,
		.stop = &generation->stop,
		.watchdog = &worker->watchdog,
		.finishing = finishing,
		.rules = worker->pool ? worker->pool->rules : generation->rules,
	};
	int64_t begun_us = pr_mono_us();
	int status;

	if (worker->store)
		return POSTROOM_OK;
	status = pr_store_open(&config, &worker->store, err);
	if (status >= 0)
		status = worker->store->ops->check_schema(worker->store, PR_SCHEMA_COMPATIBLE, err);
	pr_meter_store(&generation->relay->metrics, PR_OPERATION_CONNECT, begun_us, status, err);
	if (status < 0) {
		pr_store_close(worker->store);
		worker->store = NULL;
		return status;
	}
	if (worker->pool && worker->pool->sink)
		worker->store->sink = worker->pool->sink_state->meter->name;
	/* The worker still settles messages that it claimed before the connection broke. */
	if (worker->id[0])
		memcpy(worker->store->worker, worker->id, sizeof(worker->id));
	else
		memcpy(worker->id, worker->store->worker, sizeof(worker->id));
	atomic_store_explicit(&worker->identified, true, memory_order_release);
	return POSTROOM_OK;
}

void pr_worker_log_outage(struct pr_worker *worker, const struct pr_err *err)
{
	if (!worker->outage_since_us)
		worker->outage_since_us = pr_mono_us();
	pr_log_box(&worker->log, PR_LOG_WARN, "STORE_TROUBLE");
	pr_log_str(&worker->log, "error", err->text);
	pr_log_end(&worker->log);
	pr_store_close(worker->store);
	worker->store = NULL;
}

int pr_worker_handle_outage(struct pr_worker *worker, struct pr_err *err)
{
	const struct pr_generation *generation = worker->generation;

	if (err->status == POSTROOM_STOPPED)
		return POSTROOM_OK;
	if (pr_schema_is_incompatible(err)) {
		pr_relay_log_incompatible(worker->relay, &worker->log, err);
		return err->status;
	}
	pr_worker_log_outage(worker, err);
	if (pr_generation_gives_up(generation) &&
	    pr_mono_us() - worker->outage_since_us >= PR_DRAIN_PATIENCE_MS * 1000LL)
		return err->status;
	pr_watchdog_feed(&worker->watchdog, PAUSE_MAX_MS);
	/* While stopping, published messages still have to be settled, so pauses are shorter. */
	if (pr_stop_wait(&generation->stop, pr_random_between(&worker->random, 200, PAUSE_MAX_MS)))
		pr_stop_wait(NULL, 50);
	return POSTROOM_OK;
}

static void follow_reopen(struct pr_worker *worker)
{
	unsigned requests = atomic_load(&worker->relay->reopen_requests);

	if (requests == worker->reopened)
		return;
	worker->reopened = requests;
	if (worker->sink->ops->reopen)
		worker->sink->ops->reopen(worker->sink);
}

static bool take_watch_token(struct pr_worker *worker)
{
	if (!worker->has_watch_token)
		worker->has_watch_token = pr_token_take(worker->pool->watch_token);
	return worker->has_watch_token;
}

static void release_watch_token(struct pr_worker *worker)
{
	if (worker->has_watch_token)
		worker->has_watch_token = !pr_token_release(worker->pool->watch_token);
}

/*
 * One pass: claim, publish, settle, and continue while settling also claims a batch.
 * *ret_dry: there was nothing to claim.
 */
static int run_pass(struct pr_worker *worker, int32_t limit, bool *ret_dry, struct pr_err *err)
{
	const struct postroom_batch *batch;
	int status = pr_worker_connect(worker, false, err);

	if (status < 0)
		pr_limit_refund(pr_worker_limit(worker), worker->taken);
	else
		status = pr_claim_batch(worker, limit, err);
	pr_claim_token_release(worker);
	if (status < 0)
		return status;
	/* Settle and claim may scan only a part: an empty result is no proof. */
	*ret_dry = worker->batch->count == 0;
	if (!*ret_dry) {
		worker->spurious_wakeup = false;
		release_watch_token(worker);
	}
	do {
		batch = worker->batch;
		follow_reopen(worker);
		status = pr_publish_batch(worker, err);
		pr_log_flush(&worker->log);
	} while (status >= 0 && worker->batch != batch);
	return status;
}

static void log_notify_unavailable(struct pr_worker *worker)
{
	if (worker->store->notify_unavailable.status >= 0 ||
	    atomic_exchange(&worker->relay->notify_unavailable_logged, true))
		return;
	pr_log_box(&worker->log, PR_LOG_WARN, "STORE_POLLING");
	pr_log_str(&worker->log, "error", worker->store->notify_unavailable.text);
	pr_log_end(&worker->log);
}

static int wait_for_work(struct pr_worker *worker, int64_t ms, struct pr_err *err)
{
	int status;

	pr_watchdog_feed(&worker->watchdog, ms);
	status = worker->store->ops->wait(worker->store, worker->generation->config.table,
					  &worker->generation->config.scope, ms, err);
	log_notify_unavailable(worker);
	if (status >= 0 && ms > PR_STORE_SHORT_WAIT_MS)
		pr_count(&worker->relay->metrics.wakeups[worker->store->wakeup], 1);
	return status;
}

/* Sleeps until it gets the watch token, which its holder releases when it finds work. */
static int sleep_until_watch_token(struct pr_worker *worker, struct pr_err *err)
{
	const struct pr_stop *stop = &worker->generation->stop;
	struct pollfd fds[2] = {
		{ .fd = worker->pool->watch_token, .events = POLLIN },
		{ .fd = stop->fd, .events = POLLIN },
	};
	int status = POSTROOM_OK;

	while (status >= 0 && !pr_stop_requested(stop) &&
	       !pr_generation_drains(worker->generation) && !take_watch_token(worker)) {
		pr_watchdog_feed(&worker->watchdog, SLEEP_MS);
		if (poll(fds, 2, SLEEP_MS) == 0)
			status = wait_for_work(worker, 0, err);
	}
	worker->sleep_ms = 0;
	return status;
}

static void lengthen_sleep(struct pr_worker *worker)
{
	const struct pr_relay_config *config = &worker->generation->config;
	int64_t longest_ms = pr_generation_drains(worker->generation) ? DRAIN_POLL_MS
								      : config->poll_interval_ms;
	bool was_long = worker->sleep_ms >= longest_ms - longest_ms / 4;

	worker->sleep_ms = worker->sleep_ms ? worker->sleep_ms * 2 : 1;
	if (worker->sleep_ms < longest_ms)
		return;
	/* Jitter, so that relays woken by one commit do not poll in step. Once is enough. */
	worker->sleep_ms = was_long ? longest_ms
				    : pr_random_between(&worker->random,
							longest_ms - longest_ms / 4, longest_ms);
}

/* Neither polls nor waits for notifications: both would report the same message again. */
static int back_off(struct pr_worker *worker)
{
	int64_t ms = worker->sleep_ms < SPURIOUS_WAKEUP_PAUSE_MS ? worker->sleep_ms
								 : SPURIOUS_WAKEUP_PAUSE_MS;

	worker->spurious_wakeup = false;
	pr_watchdog_feed(&worker->watchdog, ms);
	pr_stop_wait(&worker->generation->stop, ms);
	return POSTROOM_OK;
}

/*
 * Nothing is due: sleeps until something may be due, first briefly, then longer each
 * time.
 */
static int sleep_until_due(struct pr_worker *worker, struct pr_err *err)
{
	const struct pr_generation *generation = worker->generation;
	int64_t begun_us;
	bool idle;
	int status;

	do {
		pr_log_flush(&worker->log);
		lengthen_sleep(worker);
		if (worker->spurious_wakeup)
			return back_off(worker);
		if (worker->sleep_ms > PR_STORE_SHORT_WAIT_MS &&
		    !pr_generation_drains(generation) && !take_watch_token(worker))
			return sleep_until_watch_token(worker, err);
		begun_us = pr_mono_us();
		status = wait_for_work(worker, worker->sleep_ms, err);
		idle = status >= 0 && worker->store->idle;
		if (worker->has_watch_token)
			atomic_store(&worker->pool->quiet, idle);
		follow_reopen(worker);
	} while (idle && !pr_generation_drains(generation) &&
		 !pr_stop_requested(&generation->stop));
	worker->spurious_wakeup = pr_mono_us() - begun_us < worker->sleep_ms * 1000;
	return status;
}

/* The same for a drain, which ends when there is nothing left to do. */
static int sleep_while_draining(struct pr_worker *worker, bool *ret_done, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->generation->config;
	struct pr_claim claim = { .scope = config->scope,
				  .block = config->policy.block,
				  .unordered = config->unordered };
	bool unfinished = true;
	int status = worker->store->ops->unfinished(worker->store, config->table, &claim,
						    &unfinished, err);

	if (status < 0)
		return status;
	*ret_done = !unfinished;
	return unfinished ? sleep_until_due(worker, err) : POSTROOM_OK;
}

/* Number of claimed messages from which the probe is chosen. */
static int32_t probe_limit(struct pr_worker *worker)
{
	int64_t most = worker->generation->config.batch_size;
	size_t window = pr_breaker_window(pr_worker_breaker(worker));

	if (most < PROBE_AMONG)
		most = PROBE_AMONG;
	return (int32_t)(window < (size_t)most ? window : (size_t)most);
}

/*
 * The number of messages that the limits and the breaker of the sink allow to be claimed
 * now. If it is 0, *ret_wait_ms is when to check again.
 */
static int32_t check_sink_limits(struct pr_worker *worker, int64_t *ret_wait_ms)
{
	const struct pr_relay_config *config = &worker->generation->config;
	struct pr_breaker *breaker = pr_worker_breaker(worker);
	struct pr_limit *limit = pr_worker_limit(worker);
	int64_t now_us = pr_mono_us();
	enum pr_breaker_permission answer;

	*ret_wait_ms = PART_WAIT_MS;
	if (!pr_limit_enter(limit, &worker->part))
		return 0;
	worker->probe = 0;
	answer = pr_breaker_check(breaker, now_us, pr_pass_max_ms(config) * 1000, &worker->probe,
				  ret_wait_ms);
	worker->taken = 0;
	if (answer != PR_BREAKER_OPEN)
		worker->taken = pr_limit_take(limit, worker->probe ? 1 : worker->batch_limit,
					      now_us, ret_wait_ms);
	if (worker->taken > 0)
		return worker->probe ? probe_limit(worker) : (int32_t)worker->taken;
	if (worker->probe)
		pr_breaker_release_probe(breaker, worker->probe, now_us);
	pr_limit_leave(limit, worker->part);
	return 0;
}

/* The sink is down or at its limit; true if a drain has waited long enough. */
static bool wait_for_sink(struct pr_worker *worker, int64_t wait_ms, struct pr_err *err)
{
	const struct pr_generation *generation = worker->generation;
	char reason[300];
	int64_t open_ms = pr_breaker_open_ms(pr_worker_breaker(worker), pr_mono_us(), reason);

	if (pr_generation_gives_up(generation) && open_ms >= PR_DRAIN_PATIENCE_MS) {
		const char *name = worker->pool->sink->name;

		pr_err_set(err, POSTROOM_SINK,
			   "the sink%s%.60s has been unreachable for %d s (%s); the messages stay "
			   "in the database",
			   name ? " " : "", name ? name : "", PR_DRAIN_PATIENCE_MS / 1000, reason);
		worker->gave_up = true;
		return true;
	}
	/* A slow rate may allow nothing for days. */
	if (wait_ms > SINK_WAIT_MAX_MS)
		wait_ms = SINK_WAIT_MAX_MS;
	pr_log_flush(&worker->log);
	pr_watchdog_feed(&worker->watchdog, wait_ms);
	pr_stop_wait(&generation->stop, wait_ms);
	return false;
}

static int run_passes(struct pr_worker *worker)
{
	const struct pr_generation *generation = worker->generation;
	struct pr_err *err = &worker->err;
	bool done = false;

	while (!done && !pr_stop_requested(&generation->stop)) {
		int64_t wait_ms;
		bool dry = false;
		int32_t limit;
		int status;

		pr_watchdog_feed(&worker->watchdog, 0);
		if (!pr_claim_token_take(worker)) {
			pr_log_flush(&worker->log);
			pr_stop_wait(&generation->stop, CLAIM_TOKEN_WAIT_MS);
			continue;
		}
		limit = check_sink_limits(worker, &wait_ms);
		if (limit == 0) {
			pr_claim_token_release(worker);
			if (wait_for_sink(worker, wait_ms, err))
				return err->status;
			continue;
		}
		status = run_pass(worker, limit, &dry, err);
		pr_meter_state(worker, PR_WORKER_IDLE);
		pr_limit_leave(pr_worker_limit(worker), worker->part);
		if (worker->probe)
			pr_breaker_release_probe(pr_worker_breaker(worker), worker->probe,
						 pr_mono_us());
		if (status >= 0 && dry)
			status = pr_generation_drains(generation)
					 ? sleep_while_draining(worker, &done, err)
					 : sleep_until_due(worker, err);
		if (status == POSTROOM_SINK || status == POSTROOM_NOMEM)
			return status;
		if (status < 0)
			status = pr_worker_handle_outage(worker, err);
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

void *pr_worker_run(void *context)
{
	struct pr_worker *worker = context;
	struct pr_relay *relay = worker->relay;

	/* Held until all threads of the generation have started. */
	pthread_mutex_lock(&relay->lock);
	pthread_mutex_unlock(&relay->lock);
	worker->status = run_passes(worker);
	/* This worker may hold the watch token; sleeping workers have to give up too. */
	release_watch_token(worker);
	/* If a worker fails, all workers end, so that no relay runs partially. */
	if (worker->status < 0 && !worker->gave_up)
		pr_relay_stop(relay);
	pr_log_flush(&worker->log);
	pr_watchdog_end(&worker->watchdog);
	pthread_mutex_lock(&relay->lock);
	worker->generation->working--;
	pthread_cond_signal(&relay->ended);
	pthread_mutex_unlock(&relay->lock);
	return NULL;
}
