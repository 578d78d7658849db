/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the workers and the janitor, waits for the workers, cleans up.
 *
 * 1. Wrong settings, an unusable database and a sink that can not be opened are
 *    found before the first thread starts.
 * 2. When one worker ends with an error, all end, and the error is the relay's.
 */
#include "relay/relay.h"

#include "relay/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a step may take beyond its own deadline when everything is slow. */
#define BUSY_MACHINE_MS 1000

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
	if (config->publish_timeout_ms > config->lease_ms / 2)
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
		.url = relay->config.url,
		.schema = relay->config.schema,
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
	struct pr_worker *janitor = &relay->janitor;
	int status;

	while ((status = pr_relay_try(relay, err)) == POSTROOM_UNAVAILABLE &&
	       !pr_store_is_embedded(relay->config.url)) {
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

static void prepare_worker(struct pr_relay *relay, struct pr_worker *worker)
{
	const struct pr_relay_config *config = &relay->config;

	worker->relay = relay;
	/* Publishing, settling and any answer of the database end within a lease. */
	worker->pulse.step_ms = relay->config.lease_ms + BUSY_MACHINE_MS;
	worker->batch = &worker->batches[0];
	worker->batch_limit = (int32_t)config->batch_size;
	if (config->log)
		pr_log_init_call(&worker->log, config->log_level, config->log, config->log_context);
	else
		pr_log_init(&worker->log, STDERR_FILENO, config->log_level, config->log_format);
}

static int open_sink(const struct pr_relay_config *config, struct pr_sink **ret, struct pr_err *err)
{
	if (config->callback.publish)
		return pr_sink_open_callback(&config->callback, ret, err);
	return pr_sink_open(config->to, ret, err);
}

int pr_relay_make(const struct pr_relay_config *config, struct pr_relay **ret, struct pr_err *err)
{
	struct pr_relay *relay = calloc(1, sizeof(*relay));
	int status;

	if (!relay)
		return pr_err_nomem(err);
	relay->config = *config;
	relay->stop.fd = -1;
	pr_breaker_init(&relay->breaker);
	pr_limit_init(&relay->limit, config->rate, config->concurrency, config->workers,
		      pr_mono_us());
	pr_rates_init(&relay->rates, pr_mono_us());
	prepare_worker(relay, &relay->janitor);
	snprintf(relay->janitor.name, sizeof(relay->janitor.name), "janitor");
	relay->workers = calloc((size_t)config->workers, sizeof(*relay->workers));
	status = relay->workers ? pr_stop_init(&relay->stop, err) : pr_err_nomem(err);
	for (int64_t i = 0; status >= 0 && i < config->workers; i++) {
		struct pr_worker *worker = &relay->workers[i];

		prepare_worker(relay, worker);
		snprintf(worker->name, sizeof(worker->name), "worker %d", (int)i + 1);
		status = open_sink(config, &worker->sink, err);
	}
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

static int start(struct pr_worker *worker, void *(*body)(void *), struct pr_err *err)
{
	int code = pthread_create(&worker->thread, NULL, body, worker);

	if (code)
		return pr_err_set(err, POSTROOM_NOMEM, "starting a thread: %s", strerror(code));
	pthread_setname_np(worker->thread, worker->name);
	worker->started = true;
	return POSTROOM_OK;
}

int pr_relay_run(struct pr_relay *relay, struct pr_err *err)
{
	int64_t workers = relay->config.workers;
	int status = start(&relay->janitor, pr_janitor_run, err);

	for (int64_t i = 0; status >= 0 && i < workers; i++)
		status = start(&relay->workers[i], pr_worker_run, err);
	if (status < 0)
		pr_relay_stop(relay);
	for (int64_t i = 0; i < workers; i++) {
		struct pr_worker *worker = &relay->workers[i];

		if (worker->started)
			pthread_join(worker->thread, NULL);
		if (worker->status < 0 && status >= 0) {
			*err = worker->err;
			status = worker->status;
		}
	}
	pr_relay_stop(relay);
	if (relay->janitor.started)
		pthread_join(relay->janitor.thread, NULL);
	pr_janitor_summarize(&relay->janitor, false);
	return status;
}

void pr_relay_stop(struct pr_relay *relay)
{
	pr_stop_request(&relay->stop, relay->config.shutdown_grace_ms);
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
	for (int64_t i = 0; i < relay->config.workers; i++)
		ret->in_flight += atomic_load(&relay->workers[i].in_flight);
}

static void release_worker(struct pr_worker *worker)
{
	pr_store_close(worker->store);
	pr_sink_close(worker->sink);
	for (size_t i = 0; i < 2; i++)
		pr_batch_release(&worker->batches[i]);
	pr_log_release(&worker->log);
}

void pr_relay_close(struct pr_relay *relay)
{
	if (!relay)
		return;
	for (int64_t i = 0; relay->workers && i < relay->config.workers; i++)
		release_worker(&relay->workers[i]);
	release_worker(&relay->janitor);
	free(relay->workers);
	pr_breaker_release(&relay->breaker);
	pr_limit_release(&relay->limit);
	pr_rates_release(&relay->rates);
	pr_stop_release(&relay->stop);
	free(relay);
}
