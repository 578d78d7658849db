/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has a crew work, puts another in its place when the configuration changes, waits
 * for them, cleans up.
 *
 * 1. Wrong settings, an unusable database and a sink that can not be opened are
 *    found before the first thread starts.
 * 2. When one worker ends with an error, all end, and the error is the relay's.
 * 3. A new configuration is used as a whole or not at all. Until the new crew is at
 *    work the old one is; then that finishes and settles what it has in flight.
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
	if (!config->beats && config->publish_timeout_ms > config->lease_ms / 2)
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
		.url = relay->crew->config.url,
		.schema = relay->crew->config.schema,
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

/* A server that is down is waited for; a file that is not there will not come by itself. */
int pr_relay_ready(struct pr_relay *relay, struct pr_err *err)
{
	struct pr_worker *janitor = &relay->crew->janitor;
	int status;

	while ((status = pr_relay_try(relay, err)) == POSTROOM_UNAVAILABLE &&
	       !pr_store_is_embedded(relay->crew->config.url)) {
		if (pr_stop_requested(&relay->stop))
			return pr_err_set(err, POSTROOM_STOPPED,
					  "told to stop while waiting for the database");
		status = pr_worker_trouble(janitor, err);
		if (status < 0)
			break;
	}
	janitor->trouble_since_us = 0;
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
	pthread_cond_init(&relay->ended, NULL);
	pr_rates_init(&relay->rates, pr_mono_us());
	status = pr_stop_init(&relay->stop, err);
	if (status >= 0)
		status = pr_crew_make(relay, config, &relay->crew, err);
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

/* Takes a crew that has ended out of those before the present one; NULL: none has. */
static struct pr_crew *take_former(struct pr_relay *relay)
{
	for (struct pr_crew **at = &relay->crew->next; *at; at = &(*at)->next) {
		struct pr_crew *crew = *at;

		if (crew->working == 0) {
			*at = crew->next;
			return crew;
		}
	}
	return NULL;
}

/* Until the present crew has ended, and all before it. Held: the lock. */
static int wait_for_crews(struct pr_relay *relay, int status, struct pr_err *err)
{
	while (relay->crew->working > 0 || relay->crew->next) {
		struct pr_crew *former = take_former(relay);

		if (!former) {
			pthread_cond_wait(&relay->ended, &relay->lock);
			continue;
		}
		pthread_mutex_unlock(&relay->lock);
		status = pr_crew_join(former, status, err);
		pr_crew_free(former);
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
	status = pr_crew_start(relay->crew, err);
	status = wait_for_crews(relay, status, err);
	relay->running = false;
	janitor = &relay->crew->janitor;
	drained = pr_crew_drains(relay->crew) && !pr_stop_requested(&relay->stop);
	pr_relay_stop(relay);
	pthread_mutex_unlock(&relay->lock);
	status = pr_crew_join(relay->crew, status, err);
	if (drained)
		pr_janitor_look_unrouted(janitor, true);
	pr_janitor_summarize(janitor, false);
	return status;
}

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* What can not change while a relay runs stays as it was; ret names what was to change. */
static void keep_fixed(const struct pr_relay_config *now, struct pr_relay_config *next,
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

/* By a log of its own: the janitor's is in use. */
static void tell_reloaded(struct pr_relay *relay, const char *kept)
{
	struct pr_log lines, *log = &lines;

	pr_crew_init_log(relay->crew, log);
	if (*kept) {
		pr_log_box(log, PR_LOG_WARN, "RELOAD_KEPT");
		pr_log_str(log, "settings", kept);
		pr_log_str(log, "advice", "restart the relay to change them");
		pr_log_end(log);
	}
	pr_log_box(log, PR_LOG_INFO, "RELOADED");
	pr_log_int(log, "sinks", (int64_t)relay->crew->outlet_count);
	pr_log_end(log);
	pr_log_release(log);
}

/* The new crew begins, the old one is told to finish. Held: the lock. */
static int change_crews(struct pr_relay *relay, struct pr_crew *crew, struct pr_err *err)
{
	struct pr_crew *before = relay->crew;
	int status;

	if (pr_stop_requested(&relay->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "the relay is stopping");
	status = relay->running ? pr_crew_start(crew, err) : POSTROOM_OK;
	if (status < 0)
		return status;
	crew->next = before;
	relay->crew = crew;
	atomic_store(&relay->grace_ms, crew->config.shutdown_grace_ms);
	/* Not the grace: that is for a stop. What is in flight is over by then anyway. */
	pr_stop_request(&before->stop, pr_pass_ms(&before->config));
	pthread_cond_signal(&relay->ended);
	return POSTROOM_OK;
}

int pr_relay_reload(struct pr_relay *relay, const struct pr_relay_config *config,
		    struct pr_err *err)
{
	struct pr_relay_config next = *config;
	struct pr_crew *crew = NULL;
	struct pr_err ignored;
	char kept[200];
	int status;

	/* Nobody but the caller puts another crew in its place. */
	keep_fixed(&relay->crew->config, &next, kept, sizeof(kept));
	status = pr_crew_make(relay, &next, &crew, err);
	if (status < 0)
		return status;
	pthread_mutex_lock(&relay->lock);
	status = change_crews(relay, crew, err);
	pthread_mutex_unlock(&relay->lock);
	if (status < 0) {
		pr_crew_join(crew, POSTROOM_OK, &ignored);
		pr_crew_free(crew);
		return status;
	}
	tell_reloaded(relay, kept);
	return POSTROOM_OK;
}

void pr_relay_stop(struct pr_relay *relay)
{
	pr_stop_request(&relay->stop, atomic_load(&relay->grace_ms));
}

void pr_relay_finish(struct pr_relay *relay)
{
	atomic_store(&relay->finishing, true);
	/* Whoever sleeps while another one watches gets up. */
	pthread_mutex_lock(&relay->lock);
	for (size_t i = 0; i < relay->crew->outlet_count; i++)
		pr_token_leave(relay->crew->outlets[i].watch);
	pthread_mutex_unlock(&relay->lock);
}

int pr_relay_watch(struct pr_relay *relay, const struct pr_pulse *pulse, const char *name,
		   struct pr_err *err)
{
	struct pr_guest *guests = reallocarray(relay->guests, relay->guest_count + 1, sizeof(*guests));

	if (!guests)
		return pr_err_nomem(err);
	guests[relay->guest_count++] = (struct pr_guest){ pulse, name };
	relay->guests = guests;
	return POSTROOM_OK;
}

const struct pr_stop *pr_relay_stopping(const struct pr_relay *relay)
{
	return &relay->stop;
}

void pr_relay_add(struct pr_relay *relay, int64_t delivered, int64_t failed, int64_t dead)
{
	/* Each of them was tried; what is only kept is fetched by who tries it. */
	atomic_fetch_add(&relay->totals.fetched, delivered + failed);
	atomic_fetch_add(&relay->totals.delivered, delivered);
	atomic_fetch_add(&relay->totals.failed, failed);
	atomic_fetch_add(&relay->totals.dead, dead);
	pr_rates_add(&relay->rates, pr_mono_us(), delivered, failed, PR_RATES_NO_LAG);
}

void pr_relay_reopen(struct pr_relay *relay)
{
	atomic_fetch_add(&relay->reopen_requests, 1);
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
	for (const struct pr_crew *crew = relay->crew; crew; crew = crew->next) {
		for (size_t i = 0; i < crew->outlet_count; i++) {
			for (int64_t n = 0; n < crew->config.workers; n++)
				ret->in_flight += atomic_load(&crew->outlets[i].workers[n].in_flight);
		}
	}
	pthread_mutex_unlock(&relay->lock);
}

void pr_relay_close(struct pr_relay *relay)
{
	if (!relay)
		return;
	while (relay->crew) {
		struct pr_crew *crew = relay->crew;

		relay->crew = crew->next;
		pr_crew_free(crew);
	}
	while (relay->gates) {
		struct pr_gate *gate = relay->gates;

		relay->gates = gate->next;
		pr_breaker_release(&gate->breaker);
		pr_limit_release(&gate->limit);
		free(gate);
	}
	free(relay->guests);
	pr_rates_release(&relay->rates);
	pthread_cond_destroy(&relay->ended);
	pthread_mutex_destroy(&relay->lock);
	pr_stop_release(&relay->stop);
	free(relay);
}
