/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a generation, replaces it when the configuration changes, waits for all generations, cleans
 * up.
 *
 * 1. Invalid settings, an unusable database and a sink that cannot be opened are found before the
 *    first thread starts.
 * 2. If one worker ends with an error, all end, and the relay returns that error.
 * 3. A new configuration is applied completely or not at all. The old generation works until the
 *    new one has started; then it finishes and settles its messages in flight.
 */
#include "relay/relay.h"

#include "relay/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void format(int64_t ms, char out[PR_DURATION_SIZE])
{
	pr_duration_format(ms, out);
}

int pr_relay_config_check(struct pr_relay_config *config, struct pr_err *err)
{
	char poll[PR_DURATION_SIZE], lease[PR_DURATION_SIZE], timeout[PR_DURATION_SIZE];

	if (!config->poll_interval_ms)
		config->poll_interval_ms = smaller(1000, config->lease_ms / 3);
	if (!config->publish_timeout_ms)
		config->publish_timeout_ms = smaller(10000, config->lease_ms / 2);
	format(config->poll_interval_ms, poll);
	format(config->publish_timeout_ms, timeout);
	format(config->lease_ms, lease);
	if (config->poll_interval_ms > config->lease_ms / 3)
		return pr_err_set(err, POSTROOM_INVALID,
				  "poll-interval %s is more than a third of the lease %s; make one "
				  "shorter or the other longer",
				  poll, lease);
	if (!config->renews_leases && config->publish_timeout_ms > config->lease_ms / 2)
		return pr_err_set(err, POSTROOM_INVALID,
				  "publish-timeout %s is more than half of the lease %s; make one "
				  "shorter or the other longer",
				  timeout, lease);
	if (config->policy.base_delay_ms > config->policy.max_delay_ms)
		return pr_err_set(err, POSTROOM_INVALID,
				  "base-delay is longer than max-delay; make one shorter or the "
				  "other longer");
	return POSTROOM_OK;
}

int pr_relay_try(const struct pr_relay *relay, struct pr_err *err)
{
	struct pr_store_config config = {
		.url = relay->generation->config.url,
		.schema = relay->generation->config.schema,
		.create = true,
		.busy_wait_ms = PR_DRAIN_PATIENCE_MS,
		.stop = &relay->stop,
	};
	struct postroom_store *store = NULL;
	int status = pr_store_open(&config, &store, err);

	if (status < 0)
		return status;
	status = pr_store_ready(store, err);
	pr_store_close(store);
	return status;
}

/* The relay waits for an unreachable server, but not for a missing file. */
int pr_relay_ready(struct pr_relay *relay, struct pr_err *err)
{
	struct pr_worker *janitor = &relay->generation->janitor;
	int status;

	while ((status = pr_relay_try(relay, err)) == POSTROOM_UNAVAILABLE &&
	       !pr_store_is_embedded(relay->generation->config.url)) {
		if (pr_stop_requested(&relay->stop))
			return pr_err_set(err, POSTROOM_STOPPED,
					  "stopped while waiting for the database");
		status = pr_worker_handle_outage(janitor, err);
		if (status < 0)
			break;
	}
	janitor->outage_since_us = 0;
	return status;
}

int pr_relay_make(const struct pr_relay_config *config, struct pr_relay **ret, struct pr_err *err)
{
	struct pr_relay *relay = calloc(1, sizeof(*relay));
	int status;

	if (!relay)
		return pr_err_nomem(err);
	relay->stop.fd = relay->stop.event = -1;
	relay->grace_ms = config->shutdown_grace_ms;
	pthread_mutex_init(&relay->lock, NULL);
	pthread_mutex_init(&relay->content_budget.lock, NULL);
	pthread_cond_init(&relay->ended, NULL);
	pr_rates_init(&relay->rates, pr_mono_us());
	pr_meter_init(&relay->metrics);
	status = pr_stop_init(&relay->stop, err);
	if (status >= 0)
		status = pr_generation_new(relay, config, &relay->generation, err);
	if (status < 0) {
		pr_relay_close(relay);
		return status;
	}
	*ret = relay;
	return POSTROOM_OK;
}

int pr_relay_open(const struct pr_relay_config *config, struct pr_relay **ret, struct pr_err *err)
{
	struct pr_relay *relay = NULL;
	int status = pr_relay_make(config, &relay, err);

	if (status >= 0)
		status = pr_relay_ready(relay, err);
	if (status < 0) {
		pr_relay_close(relay);
		return status;
	}
	*ret = relay;
	return POSTROOM_OK;
}

/* Removes an earlier generation that has ended from the list; NULL: there is none. */
static struct pr_generation *take_ended_generation(struct pr_relay *relay)
{
	for (struct pr_generation **at = &relay->generation->next; *at; at = &(*at)->next) {
		struct pr_generation *generation = *at;

		if (generation->working == 0) {
			*at = generation->next;
			return generation;
		}
	}
	return NULL;
}

/* Waits until all generations have ended. Call it with the lock held. */
static int wait_for_generations(struct pr_relay *relay, int status, struct pr_err *err)
{
	while (relay->generation->working > 0 || relay->generation->next) {
		struct pr_generation *former = take_ended_generation(relay);

		if (!former) {
			pthread_cond_wait(&relay->ended, &relay->lock);
			continue;
		}
		pthread_mutex_unlock(&relay->lock);
		status = pr_generation_join(former, status, err);
		pr_generation_free(former);
		pthread_mutex_lock(&relay->lock);
	}
	return status;
}

int pr_relay_run(struct pr_relay *relay, struct pr_err *err)
{
	struct pr_worker *janitor;
	bool drained;
	int status;

	pthread_mutex_lock(&relay->lock);
	relay->running = true;
	status = pr_generation_start(relay->generation, err);
	status = wait_for_generations(relay, status, err);
	relay->running = false;
	janitor = &relay->generation->janitor;
	drained = pr_generation_drains(relay->generation) && !pr_stop_requested(&relay->stop);
	pr_relay_stop(relay);
	pthread_mutex_unlock(&relay->lock);
	status = pr_generation_join(relay->generation, status, err);
	if (drained)
		pr_janitor_count_unrouted(janitor, true);
	pr_janitor_summarize(janitor, false);
	return status;
}

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Keeps settings that cannot change while a relay runs; ret lists those that differ. */
static void keep_unchangeable(const struct pr_relay_config *now, struct pr_relay_config *next,
			      char *ret, size_t size)
{
	const struct {
		const char *name;
		bool changed;
	} fixed[] = {
		{ "database", !same(now->url, next->url) },
		{ "schema", !same(now->schema, next->schema) },
		{ "max_attempts", now->policy.max_attempts != next->policy.max_attempts },
		{ "base_delay", now->policy.base_delay_ms != next->policy.base_delay_ms },
		{ "max_delay", now->policy.max_delay_ms != next->policy.max_delay_ms },
		{ "backoff", now->policy.backoff != next->policy.backoff },
		{ "on_dead", now->policy.block != next->policy.block },
	};
	size_t used = 0;

	ret[0] = '\0';
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
		if (fixed[i].changed && used < size)
			used += (size_t)snprintf(ret + used, size - used, "%s%s", used ? " " : "",
						 fixed[i].name);
	}
	next->url = now->url;
	next->schema = now->schema;
	next->policy.max_attempts = now->policy.max_attempts;
	next->policy.base_delay_ms = now->policy.base_delay_ms;
	next->policy.max_delay_ms = now->policy.max_delay_ms;
	next->policy.backoff = now->policy.backoff;
	next->policy.block = now->policy.block;
	next->drain = now->drain;
}

/* With a separate log, because the janitor uses its own. */
static void log_reload(struct pr_relay *relay, const char *kept)
{
	struct pr_log lines, *log = &lines;

	pr_generation_init_log(relay->generation, log);
	if (*kept) {
		pr_log_box(log, PR_LOG_WARN, "RELOAD_KEPT");
		pr_log_str(log, "settings", kept);
		pr_log_str(log, "advice", "restart the relay to change them");
		pr_log_end(log);
	}
	pr_log_box(log, PR_LOG_INFO, "RELOADED");
	pr_log_int(log, "sinks", (int64_t)relay->generation->pool_count);
	pr_log_end(log);
	pr_log_release(log);
}

/* Starts the new generation and stops the old one. Call it with the lock held. */
static int switch_generations(struct pr_relay *relay, struct pr_generation *generation,
			      struct pr_err *err)
{
	struct pr_generation *before = relay->generation;
	int status;

	if (pr_stop_requested(&relay->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "the relay is stopping");
	status = relay->running ? pr_generation_start(generation, err) : POSTROOM_OK;
	if (status < 0)
		return status;
	generation->next = before;
	relay->generation = generation;
	atomic_store(&relay->grace_ms, generation->config.shutdown_grace_ms);
	/* The grace period is only for a stop. Messages in flight have ended by then anyway. */
	pr_stop_request(&before->stop, pr_pass_max_ms(&before->config));
	pthread_cond_signal(&relay->ended);
	return POSTROOM_OK;
}

static int reload(struct pr_relay *relay, const struct pr_relay_config *config, struct pr_err *err)
{
	struct pr_relay_config next = *config;
	struct pr_generation *generation = NULL;
	struct pr_err ignored;
	char kept[200];
	int status;

	/* Only the caller replaces the generation. */
	keep_unchangeable(&relay->generation->config, &next, kept, sizeof(kept));
	status = pr_generation_new(relay, &next, &generation, err);
	if (status < 0)
		return status;
	pthread_mutex_lock(&relay->lock);
	status = switch_generations(relay, generation, err);
	pthread_mutex_unlock(&relay->lock);
	if (status < 0) {
		pr_generation_join(generation, POSTROOM_OK, &ignored);
		pr_generation_free(generation);
		return status;
	}
	log_reload(relay, kept);
	return POSTROOM_OK;
}

int pr_relay_reload(struct pr_relay *relay, const struct pr_relay_config *config,
		    struct pr_err *err)
{
	int status = reload(relay, config, err);

	if (status != POSTROOM_STOPPED)
		pr_meter_reload(&relay->metrics, status >= 0);
	return status;
}

void pr_relay_stop(struct pr_relay *relay)
{
	pr_stop_request(&relay->stop, atomic_load(&relay->grace_ms));
}

void pr_relay_finish(struct pr_relay *relay)
{
	atomic_store(&relay->finishing, true);
	/* Wakes the workers that sleep while another one holds the watch token. */
	pthread_mutex_lock(&relay->lock);
	for (size_t i = 0; i < relay->generation->pool_count; i++)
		pr_token_release(relay->generation->pools[i].watch_token);
	pthread_mutex_unlock(&relay->lock);
}

int pr_relay_watch(struct pr_relay *relay, const struct pr_watchdog *watchdog, const char *name,
		   struct pr_err *err)
{
	struct pr_watched_thread *watched_threads;

	/* A probe may be reading them. */
	pthread_mutex_lock(&relay->lock);
	watched_threads = reallocarray(relay->watched_threads, relay->watched_count + 1,
				       sizeof(*watched_threads));
	if (watched_threads) {
		watched_threads[relay->watched_count++] = (struct pr_watched_thread){ watchdog,
										      name };
		relay->watched_threads = watched_threads;
	}
	pthread_mutex_unlock(&relay->lock);
	return watched_threads ? POSTROOM_OK : pr_err_nomem(err);
}

const struct pr_stop *pr_relay_stopping(const struct pr_relay *relay)
{
	return &relay->stop;
}

void pr_relay_add(struct pr_relay *relay, int64_t delivered, int64_t failed, int64_t dead)
{
	/* Each of them was tried; stored events count when they are claimed. */
	atomic_fetch_add(&relay->totals.fetched, delivered + failed);
	atomic_fetch_add(&relay->totals.delivered, delivered);
	atomic_fetch_add(&relay->totals.failed, failed);
	atomic_fetch_add(&relay->totals.dead, dead);
	pr_rates_add(&relay->rates, pr_mono_us(), delivered, failed, PR_RATES_NO_LAG, NULL);
}

void pr_relay_reopen(struct pr_relay *relay)
{
	atomic_fetch_add(&relay->reopen_requests, 1);
}

void pr_relay_log_incompatible(struct pr_relay *relay, struct pr_log *log, const struct pr_err *err)
{
	if (atomic_exchange(&relay->incompatible_logged, true))
		return;
	pr_log_box(log, PR_LOG_ERROR, "SCHEMA_INCOMPATIBLE");
	pr_log_str(log, "error", err->text);
	pr_log_end(log);
}

void pr_relay_totals(struct pr_relay *relay, struct pr_relay_totals *ret)
{
	ret->fetched = atomic_load(&relay->totals.fetched);
	ret->delivered = atomic_load(&relay->totals.delivered);
	ret->failed = atomic_load(&relay->totals.failed);
	ret->dead = atomic_load(&relay->totals.dead);
	ret->lost = atomic_load(&relay->totals.lost);
}

void pr_relay_report(struct pr_relay *relay, struct pr_relay_report *ret)
{
	pr_relay_totals(relay, &ret->totals);
	pr_rates_read(&relay->rates, pr_mono_us(), &ret->rates);
	ret->in_flight = 0;
	pthread_mutex_lock(&relay->lock);
	for (const struct pr_generation *generation = relay->generation; generation;
	     generation = generation->next) {
		for (size_t i = 0; i < generation->pool_count; i++) {
			for (int64_t n = 0; n < generation->config.workers; n++)
				ret->in_flight += atomic_load(
					&generation->pools[i].workers[n].in_flight);
		}
	}
	pthread_mutex_unlock(&relay->lock);
}

void pr_relay_close(struct pr_relay *relay)
{
	if (!relay)
		return;
	while (relay->generation) {
		struct pr_generation *generation = relay->generation;

		relay->generation = generation->next;
		pr_generation_free(generation);
	}
	while (relay->sink_states) {
		struct pr_sink_state *sink_state = relay->sink_states;

		relay->sink_states = sink_state->next;
		pr_breaker_release(&sink_state->breaker);
		pr_limit_release(&sink_state->limit);
		free(sink_state->shown);
		free(sink_state);
	}
	free(relay->watched_threads);
	pr_rates_release(&relay->rates);
	pr_meter_release(&relay->metrics);
	pthread_cond_destroy(&relay->ended);
	pthread_mutex_destroy(&relay->content_budget.lock);
	pthread_mutex_destroy(&relay->lock);
	pr_stop_release(&relay->stop);
	free(relay);
}
