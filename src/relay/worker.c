/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: pass after pass until told to stop.
 *
 * 1. It holds nothing that a restart needs; it may die at any line.
 * 2. The database going away is a pause, never an end, but for --drain, which
 *    gives up when nothing works for PR_DRAIN_PATIENCE_MS.
 * 3. Every wait includes the stop.
 * 4. While there is nothing to do one worker of an outlet watches for all: its looks
 *    are one statement a poll interval. Whoever finds work lets another one watch
 *    before it begins, which looks for more at once: so all are up as soon as there
 *    is enough for all, and a commit never waits for a sink that is slow.
 */
#include "relay/worker.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

/* An idle --drain looks often: somebody waits for it. */
#define DRAIN_POLL_MS 20

/* However small the batches: so many poisoned ones in front can not keep the sink away. */
#define PROBE_AMONG 50

#define SINK_WAIT_MAX_MS 2000

/* Between two looks for a part of the sink's concurrency. */
#define PART_WAIT_MS 20

/* Between two looks whether another one still claims. */
#define TURN_WAIT_MS 5

/* Between two tries of a database that is away. */
#define PAUSE_MAX_MS 1000

/* Who was woken for something that others have taken leaves it to them for so long. */
#define VAIN_MS 100

/* Who sleeps while another one watches is heard of so often. */
#define SLEEP_MS 30000

int pr_worker_connect(struct pr_worker *worker, bool finishing, struct pr_err *err)
{
	const struct pr_crew *crew = worker->crew;
	struct pr_store_config config = {
		.url = crew->config.url,
		.schema = crew->config.schema,
		/* An answer that comes after the lease is worth nothing. */
		.answer_ms = crew->config.lease_ms,
		.busy_wait_ms = pr_crew_gives_up(crew) ? PR_DRAIN_PATIENCE_MS : -1,
		.until_us = worker->hurry_us,
		.stop = &crew->stop,
		.pulse = &worker->pulse,
		.finishing = finishing,
		.rules = worker->outlet ? worker->outlet->rules : crew->rules,
	};
	int status;

	if (worker->store)
		return POSTROOM_OK;
	status = pr_store_open(&config, &worker->store, err);
	if (status < 0)
		return status;
	/* What was claimed before the connection broke is still this worker's to settle. */
	if (worker->id[0])
		memcpy(worker->store->worker, worker->id, sizeof(worker->id));
	else
		memcpy(worker->id, worker->store->worker, sizeof(worker->id));
	return POSTROOM_OK;
}

void pr_worker_tell_trouble(struct pr_worker *worker, const struct pr_err *err)
{
	if (!worker->trouble_since_us)
		worker->trouble_since_us = pr_mono_us();
	pr_log_box(&worker->log, PR_LOG_WARN, "STORE_TROUBLE");
	pr_log_str(&worker->log, "error", err->text);
	pr_log_end(&worker->log);
	pr_store_close(worker->store);
	worker->store = NULL;
}

int pr_worker_trouble(struct pr_worker *worker, struct pr_err *err)
{
	const struct pr_crew *crew = worker->crew;

	if (err->status == POSTROOM_STOPPED)
		return POSTROOM_OK;
	pr_worker_tell_trouble(worker, err);
	if (pr_crew_gives_up(crew) &&
	    pr_mono_us() - worker->trouble_since_us >= PR_DRAIN_PATIENCE_MS * 1000LL)
		return err->status;
	pr_pulse_beat(&worker->pulse, PAUSE_MAX_MS);
	/* While stopping, what is published still wants to be settled: shorter pauses, but pauses. */
	if (pr_stop_wait(&crew->stop, pr_random_between(&worker->random, 200, PAUSE_MAX_MS)))
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

static bool take_watch(struct pr_worker *worker)
{
	if (!worker->watching)
		worker->watching = pr_token_take(worker->outlet->watch);
	return worker->watching;
}

static void leave_watch(struct pr_worker *worker)
{
	if (worker->watching)
		worker->watching = !pr_token_leave(worker->outlet->watch);
}

/*
 * The whole product in a few lines: claim, publish, settle, and on with the next
 * batch as long as settling brings one along. *ret_dry: there was nothing to claim.
 */
static int pass(struct pr_worker *worker, int32_t limit, bool *ret_dry, struct pr_err *err)
{
	const struct postroom_batch *batch;
	int status = pr_worker_connect(worker, false, err);

	if (status < 0)
		pr_limit_give_back(pr_worker_limit(worker), worker->taken);
	else
		status = pr_claim_batch(worker, limit, err);
	pr_turn_leave(worker);
	if (status < 0)
		return status;
	/* Settling may look only where it expects something: that it found nothing means little. */
	*ret_dry = worker->batch->count == 0;
	if (!*ret_dry) {
		worker->vain = false;
		leave_watch(worker);
	}
	do {
		batch = worker->batch;
		follow_reopen(worker);
		status = pr_publish_batch(worker, err);
		pr_log_flush(&worker->log);
	} while (status >= 0 && worker->batch != batch);
	return status;
}

static void tell_deaf(struct pr_worker *worker)
{
	if (worker->store->deaf.status >= 0 || atomic_exchange(&worker->relay->told_deaf, true))
		return;
	pr_log_box(&worker->log, PR_LOG_WARN, "STORE_POLLING");
	pr_log_str(&worker->log, "error", worker->store->deaf.text);
	pr_log_end(&worker->log);
}

static int wait_for_work(struct pr_worker *worker, int64_t ms, struct pr_err *err)
{
	int status;

	pr_pulse_beat(&worker->pulse, ms);
	status = worker->store->ops->wait(worker->store, worker->crew->config.table,
					  &worker->crew->config.scope, ms, err);
	tell_deaf(worker);
	return status;
}

/* Sleeps until it may watch, which is when the one that did has found something. */
static int sleep_unwatching(struct pr_worker *worker, struct pr_err *err)
{
	const struct pr_stop *stop = &worker->crew->stop;
	struct pollfd fds[2] = {
		{ .fd = worker->outlet->watch, .events = POLLIN },
		{ .fd = stop->fd, .events = POLLIN },
	};
	int status = POSTROOM_OK;

	while (status >= 0 && !pr_stop_requested(stop) && !pr_crew_drains(worker->crew) &&
	       !take_watch(worker)) {
		pr_pulse_beat(&worker->pulse, SLEEP_MS);
		if (poll(fds, 2, SLEEP_MS) == 0)
			status = wait_for_work(worker, 0, err);
	}
	worker->rest_ms = 0;
	return status;
}

static void lengthen_rest(struct pr_worker *worker)
{
	const struct pr_relay_config *config = &worker->crew->config;
	int64_t longest_ms = pr_crew_drains(worker->crew) ? DRAIN_POLL_MS : config->poll_interval_ms;
	bool was_long = worker->rest_ms >= longest_ms - longest_ms / 4;

	worker->rest_ms = worker->rest_ms ? worker->rest_ms * 2 : 1;
	if (worker->rest_ms < longest_ms)
		return;
	/* Jitter, or a fleet of relays that one commit has woken would poll in step. Once is enough. */
	worker->rest_ms = was_long ? longest_ms :
				     pr_random_between(&worker->random,
						       longest_ms - longest_ms / 4, longest_ms);
}

/* No look, and no bell either: they would only say the same again. */
static int rest_in_vain(struct pr_worker *worker)
{
	int64_t ms = worker->rest_ms < VAIN_MS ? worker->rest_ms : VAIN_MS;

	worker->vain = false;
	pr_pulse_beat(&worker->pulse, ms);
	pr_stop_wait(&worker->crew->stop, ms);
	return POSTROOM_OK;
}

/*
 * Nothing is due: sleeps until something may be, at first only for moments, then
 * longer and longer.
 */
static int rest(struct pr_worker *worker, struct pr_err *err)
{
	const struct pr_crew *crew = worker->crew;
	int64_t begun_us;
	bool idle;
	int status;

	do {
		pr_log_flush(&worker->log);
		lengthen_rest(worker);
		if (worker->vain)
			return rest_in_vain(worker);
		if (worker->rest_ms > PR_STORE_NAP_MS && !pr_crew_drains(crew) &&
		    !take_watch(worker))
			return sleep_unwatching(worker, err);
		begun_us = pr_mono_us();
		status = wait_for_work(worker, worker->rest_ms, err);
		idle = status >= 0 && worker->store->idle;
		if (worker->watching)
			atomic_store(&worker->outlet->quiet, idle);
		follow_reopen(worker);
	} while (idle && !pr_crew_drains(crew) && !pr_stop_requested(&crew->stop));
	worker->vain = pr_mono_us() - begun_us < worker->rest_ms * 1000;
	return status;
}

/* The same for a drain, which ends when there is nothing left to do. */
static int rest_draining(struct pr_worker *worker, bool *ret_done, struct pr_err *err)
{
	const struct pr_relay_config *config = &worker->crew->config;
	struct pr_claim claim = { .scope = config->scope,
				  .block = config->policy.block,
				  .loose = config->loose };
	bool unfinished = true;
	int status = worker->store->ops->unfinished(worker->store, config->table, &claim,
						    &unfinished, err);

	if (status < 0)
		return status;
	*ret_done = !unfinished;
	return unfinished ? rest(worker, err) : POSTROOM_OK;
}

/* Of how many claimed ones the probe is chosen. */
static int32_t probe_limit(struct pr_worker *worker)
{
	int64_t most = worker->crew->config.batch_size;
	size_t window = pr_breaker_window(pr_worker_breaker(worker));

	if (most < PROBE_AMONG)
		most = PROBE_AMONG;
	return (int32_t)(window < (size_t)most ? window : (size_t)most);
}

/*
 * What the sink's limits and its breaker let through now: that many messages may
 * be claimed. If none, *ret_wait_ms says when to ask again.
 */
static int32_t ask_for_work(struct pr_worker *worker, int64_t *ret_wait_ms)
{
	const struct pr_relay_config *config = &worker->crew->config;
	struct pr_breaker *breaker = pr_worker_breaker(worker);
	struct pr_limit *limit = pr_worker_limit(worker);
	int64_t now_us = pr_mono_us();
	enum pr_breaker_answer answer;

	*ret_wait_ms = PART_WAIT_MS;
	if (!pr_limit_enter(limit, &worker->part))
		return 0;
	worker->probe = 0;
	answer = pr_breaker_ask(breaker, now_us, pr_pass_ms(config) * 1000, &worker->probe,
				ret_wait_ms);
	worker->taken = 0;
	if (answer != PR_BREAKER_OPEN)
		worker->taken = pr_limit_take(limit, worker->probe ? 1 : worker->batch_limit,
					      now_us, ret_wait_ms);
	if (worker->taken > 0)
		return worker->probe ? probe_limit(worker) : (int32_t)worker->taken;
	if (worker->probe)
		pr_breaker_leave(breaker, worker->probe, now_us);
	pr_limit_leave(limit, worker->part);
	return 0;
}

/* The sink is away or has had enough; true when a drain has waited long enough. */
static bool wait_for_sink(struct pr_worker *worker, int64_t wait_ms, struct pr_err *err)
{
	const struct pr_crew *crew = worker->crew;
	char reason[300];
	int64_t open_ms = pr_breaker_open_ms(pr_worker_breaker(worker), pr_mono_us(), reason);

	if (pr_crew_gives_up(crew) && open_ms >= PR_DRAIN_PATIENCE_MS) {
		const char *name = worker->outlet->sink->name;

		pr_err_set(err, POSTROOM_SINK,
			   "the sink%s%.60s has been unreachable for %d s (%s); the messages wait, "
			   "nothing is lost",
			   name ? " " : "", name ? name : "", PR_DRAIN_PATIENCE_MS / 1000, reason);
		worker->gave_up = true;
		return true;
	}
	/* A slow rate may let nothing through for days. */
	if (wait_ms > SINK_WAIT_MAX_MS)
		wait_ms = SINK_WAIT_MAX_MS;
	pr_log_flush(&worker->log);
	pr_pulse_beat(&worker->pulse, wait_ms);
	pr_stop_wait(&crew->stop, wait_ms);
	return false;
}

static int work(struct pr_worker *worker)
{
	const struct pr_crew *crew = worker->crew;
	struct pr_err *err = &worker->err;
	bool done = false;

	while (!done && !pr_stop_requested(&crew->stop)) {
		int64_t wait_ms;
		bool dry = false;
		int32_t limit;
		int status;

		pr_pulse_beat(&worker->pulse, 0);
		if (!pr_turn_take(worker)) {
			pr_log_flush(&worker->log);
			pr_stop_wait(&crew->stop, TURN_WAIT_MS);
			continue;
		}
		limit = ask_for_work(worker, &wait_ms);
		if (limit == 0) {
			pr_turn_leave(worker);
			if (wait_for_sink(worker, wait_ms, err))
				return err->status;
			continue;
		}
		status = pass(worker, limit, &dry, err);
		pr_limit_leave(pr_worker_limit(worker), worker->part);
		if (worker->probe)
			pr_breaker_leave(pr_worker_breaker(worker), worker->probe, pr_mono_us());
		if (status >= 0 && dry)
			status = pr_crew_drains(crew) ? rest_draining(worker, &done, err) :
						      rest(worker, err);
		if (status == POSTROOM_SINK || status == POSTROOM_NOMEM)
			return status;
		if (status < 0)
			status = pr_worker_trouble(worker, err);
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

void *pr_worker_run(void *context)
{
	struct pr_worker *worker = context;
	struct pr_relay *relay = worker->relay;

	/* Held until all of the crew are there. */
	pthread_mutex_lock(&relay->lock);
	pthread_mutex_unlock(&relay->lock);
	worker->status = work(worker);
	/* Who gives up on the sink may have the watch; those asleep have to give up too. */
	leave_watch(worker);
	/* A worker that can not go on takes the others along: no half-dead relay. */
	if (worker->status < 0 && !worker->gave_up)
		pr_relay_stop(relay);
	pr_log_flush(&worker->log);
	pr_pulse_end(&worker->pulse);
	pthread_mutex_lock(&relay->lock);
	worker->crew->working--;
	pthread_cond_signal(&relay->ended);
	pthread_mutex_unlock(&relay->lock);
	return NULL;
}
