/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A generation: all threads that run under one configuration. It has one sink pool per sink in
 * use, and a janitor.
 *
 * 1. A sink that cannot be opened is found before the first thread starts.
 * 2. A generation copies everything it needs from its configuration.
 * 3. Two generations at work are like two relays: leases prevent conflicts. They share the sink
 *    states.
 * 4. No worker begins before all threads have started and the limits have changed: if one cannot
 *    start, nothing has changed.
 */
#include "relay/worker.h"

#include "relay/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Tolerance beyond the deadline of a step, for a slow machine. */
#define BUSY_MACHINE_MS 1000

/* These functions return false if there is no memory. */
static bool copy_text(struct pr_generation *generation, const char **text)
{
	if (!*text)
		return true;
	*text = pr_arena_strdup(&generation->strings, *text);
	return *text != NULL;
}

static bool copy_settings(struct pr_generation *generation, struct pr_relay_sink *sink)
{
	struct pr_url_setting *settings = pr_arena_copy(&generation->strings, sink->settings,
							sink->setting_count * sizeof(*settings));

	for (size_t i = 0; settings && i < sink->setting_count; i++) {
		settings[i].name = pr_arena_strdup(&generation->strings, settings[i].name);
		settings[i].value = pr_arena_strdup(&generation->strings, settings[i].value);
		if (!settings[i].name || !settings[i].value)
			return false;
	}
	sink->settings = settings;
	return settings;
}

static bool copy_sinks(struct pr_generation *generation)
{
	struct pr_relay_config *config = &generation->config;
	struct pr_relay_sink *sinks = pr_arena_copy(&generation->strings, config->sinks,
						    config->sink_count * sizeof(*sinks));

	for (size_t i = 0; sinks && i < config->sink_count; i++) {
		if (!copy_text(generation, &sinks[i].name) ||
		    !copy_text(generation, &sinks[i].url) || !copy_settings(generation, &sinks[i]))
			return false;
	}
	config->sinks = sinks;
	return sinks;
}

static bool copy_routes(struct pr_generation *generation)
{
	struct pr_relay_config *config = &generation->config;
	struct pr_relay_route *routes = pr_arena_copy(&generation->strings, config->routes,
						      config->route_count * sizeof(*routes));

	for (size_t i = 0; routes && i < config->route_count; i++) {
		if (!copy_text(generation, &routes[i].ns) ||
		    !copy_text(generation, &routes[i].topic))
			return false;
	}
	config->routes = routes;
	return routes;
}

static bool copy_config(struct pr_generation *generation)
{
	struct pr_relay_config *config = &generation->config;

	return copy_text(generation, &config->url) && copy_text(generation, &config->schema) &&
	       copy_text(generation, &config->to) && copy_text(generation, &config->scope.ns) &&
	       copy_text(generation, &config->scope.topic) &&
	       copy_text(generation, &config->scope.tenant_id) && copy_sinks(generation) &&
	       copy_routes(generation);
}

/* The label of its series; a sink without a name uses its scheme. */
static struct pr_sink_meter *find_meter(const struct pr_generation *generation,
					const struct pr_relay_sink *sink)
{
	const char *name = sink->name;
	char scheme[32];

	snprintf(scheme, sizeof(scheme), "%.*s", (int)strcspn(sink->url ? sink->url : "", ":"),
		 sink->url ? sink->url : "");
	if (!name && generation->config.handler.open)
		name = "statement";
	else if (!name)
		name = generation->config.callback.publish ? "callback" : scheme;
	return pr_meter_sink(&generation->relay->metrics, name);
}

static char *redact(const char *url)
{
	size_t size = strlen(url) * 3 + 100;
	char *shown = malloc(size);

	if (shown)
		pr_url_redact(url, shown, size);
	return shown;
}

/* The state of this sink; a new sink gets a new state. NULL: no memory. */
static struct pr_sink_state *find_sink_state(const struct pr_generation *generation,
					     const struct pr_relay_sink *sink)
{
	const char *name = sink->name ? sink->name : "", *url = sink->url ? sink->url : "";
	size_t size = strlen(name) + strlen(url) + 2;
	struct pr_sink_state *sink_state, *made = calloc(1, sizeof(*made) + size);
	struct pr_relay *relay = generation->relay;

	if (!made)
		return NULL;
	snprintf(made->sink, size, "%s %s", name, url);
	for (sink_state = relay->sink_states; sink_state; sink_state = sink_state->next) {
		if (strcmp(sink_state->sink, made->sink) == 0) {
			free(made);
			return sink_state;
		}
	}
	made->meter = find_meter(generation, sink);
	made->shown = redact(url);
	if (!made->meter || !made->shown) {
		free(made->shown);
		free(made);
		return NULL;
	}
	pr_breaker_init(&made->breaker);
	pr_limit_init(&made->limit, 0, 0, 1, pr_mono_us());
	made->next = relay->sink_states;
	return relay->sink_states = made;
}

void pr_generation_init_log(const struct pr_generation *generation, struct pr_log *log)
{
	const struct pr_relay_config *config = &generation->config;

	if (config->log)
		pr_log_init_call(log, config->log_level, config->log, config->log_context);
	else
		pr_log_init(log, STDERR_FILENO, config->log_level, config->log_format);
	log->box = config->table->box;
}

static void open_pool(struct pr_worker *worker, struct pr_generation *generation,
		      struct pr_sink_pool *pool)
{
	worker->relay = generation->relay;
	worker->generation = generation;
	worker->pool = pool;
	worker->reopened = atomic_load(&generation->relay->reopen_requests);
	/* Publishing, settling and every response of the database end within a lease. */
	worker->watchdog.step_ms = generation->config.lease_ms + BUSY_MACHINE_MS;
	worker->batch = &worker->batches[0];
	worker->batch_limit = (int32_t)generation->config.batch_size;
	pr_generation_init_log(generation, &worker->log);
	worker->log.sink = pool ? pool->sink->name : NULL;
}

static int open_sink(const struct pr_relay_sink *sink, struct pr_sink **ret, struct pr_err *err)
{
	int status = pr_sink_open_with(sink->url, sink->settings, sink->setting_count, ret, err);

	return status < 0 && sink->name ? pr_err_prefix(err, "sink %.60s", sink->name) : status;
}

static int open_worker_sink(const struct pr_relay_config *config, const struct pr_relay_sink *sink,
			    struct pr_sink **ret, struct pr_err *err)
{
	if (config->handler.open)
		return config->handler.open(config->handler.context, ret, err);
	if (config->callback.publish)
		return pr_sink_open_callback(&config->callback, ret, err);
	return open_sink(sink, ret, err);
}

static int try_sink(const struct pr_relay_sink *given, struct pr_err *err)
{
	const struct pr_sink_ops *ops;
	struct pr_sink *sink = NULL;
	int status = pr_sink_find(given->url, &ops, err);

	if (status >= 0 && !ops->acts)
		status = open_sink(given, &sink, err);
	pr_sink_close(sink);
	return status;
}

int pr_relay_try_sinks(const struct pr_relay_config *config, struct pr_err *err)
{
	const struct pr_relay_sink only = { .url = config->to };
	int status = config->to ? try_sink(&only, err) : POSTROOM_OK;

	for (size_t i = 0; status >= 0 && i < config->sink_count; i++) {
		size_t route = 0;

		while (route < config->route_count && config->routes[route].sink != i)
			route++;
		if (route < config->route_count)
			status = try_sink(&config->sinks[i], err);
	}
	return status;
}

static int add_sink_pool(struct pr_generation *generation, const struct pr_relay_sink *sink,
			 struct pr_rules rules, struct pr_err *err)
{
	struct pr_sink_pool *pool = &generation->pools[generation->pool_count++];
	int64_t workers = generation->config.workers;

	*pool = (struct pr_sink_pool){ .generation = generation, .sink = sink, .rules = rules };
	pool->watch_token = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	pool->claim_token = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	pool->sink_state = find_sink_state(generation, sink);
	pool->workers = calloc((size_t)workers, sizeof(*pool->workers));
	if (!pool->sink_state || !pool->workers)
		return pr_err_nomem(err);
	if (pool->watch_token < 0 || pool->claim_token < 0)
		return pr_err_errno(err, POSTROOM_NOMEM, "creating an event descriptor");
	for (int64_t i = 0; i < workers; i++)
		open_pool(&pool->workers[i], generation, pool);
	for (int64_t i = 0; i < workers; i++) {
		struct pr_worker *worker = &pool->workers[i];
		int status;

		snprintf(worker->name, sizeof(worker->name), "%.10s %u",
			 sink->name ? sink->name : "worker", (unsigned)(uint16_t)(i + 1));
		status = open_worker_sink(&generation->config, sink, &worker->sink, err);
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

static int add_routed(struct pr_generation *generation, struct pr_err *err)
{
	const struct pr_relay_config *config = &generation->config;

	for (size_t i = 0; i < config->sink_count; i++) {
		struct pr_rule *list = pr_arena_alloc(&generation->strings,
						      config->route_count * sizeof(*list));
		struct pr_rules rules;
		int status;

		if (!list)
			return pr_err_nomem(err);
		if (!pr_route_rules(config->routes, config->route_count, i, list, &rules))
			continue;
		status = add_sink_pool(generation, &config->sinks[i], rules, err);
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

static int add_sink_pools(struct pr_generation *generation, struct pr_err *err)
{
	struct pr_relay_config *config = &generation->config;
	size_t most = config->sink_count + 1;
	struct pr_relay_sink *only;
	struct pr_rule *list;

	generation->pools = calloc(most, sizeof(*generation->pools));
	only = pr_arena_alloc(&generation->strings, sizeof(*only));
	list = pr_arena_alloc(&generation->strings, (config->route_count + 1) * sizeof(*list));
	if (!generation->pools || !only || !list)
		return pr_err_nomem(err);
	*only = (struct pr_relay_sink){ .url = config->to,
					.concurrency = config->concurrency,
					.rate = config->rate };
	if (config->to || config->callback.publish || config->handler.open)
		return add_sink_pool(generation, only, (struct pr_rules){ 0 }, err);
	if (!pr_route_rules(config->routes, config->route_count, PR_ROUTE_ANY, list,
			    &generation->rules))
		return pr_err_set(
			err, POSTROOM_INVALID,
			"there is no route to any sink; add one, or name a sink with --to");
	return add_routed(generation, err);
}

int pr_generation_new(struct pr_relay *relay, const struct pr_relay_config *config,
		      struct pr_generation **ret, struct pr_err *err)
{
	struct pr_generation *generation = calloc(1, sizeof(*generation));
	int status;

	if (!generation)
		return pr_err_nomem(err);
	generation->relay = relay;
	generation->config = *config;
	if (!generation->config.table)
		generation->config.table = &pr_table_outbox;
	generation->stop.fd = generation->stop.event = -1;
	open_pool(&generation->janitor, generation, NULL);
	snprintf(generation->janitor.name, sizeof(generation->janitor.name), "janitor");
	status = copy_config(generation) ? pr_stop_init_under(&generation->stop, &relay->stop, err)
					 : pr_err_nomem(err);
	if (status >= 0)
		status = add_sink_pools(generation, err);
	if (status < 0) {
		pr_generation_free(generation);
		return status;
	}
	*ret = generation;
	return POSTROOM_OK;
}

static int start_thread(struct pr_worker *worker, void *(*body)(void *), struct pr_err *err)
{
	int code = pthread_create(&worker->thread, NULL, body, worker);

	if (code)
		return pr_err_set(err, POSTROOM_NOMEM, "starting a thread: %s", strerror(code));
	pthread_setname_np(worker->thread, worker->name);
	worker->started = true;
	return POSTROOM_OK;
}

static void change_limits(struct pr_generation *generation)
{
	for (size_t i = 0; i < generation->pool_count; i++) {
		const struct pr_relay_sink *sink = generation->pools[i].sink;

		pr_limit_change(&generation->pools[i].sink_state->limit, sink->rate,
				sink->concurrency, generation->config.workers);
	}
}

int pr_generation_start(struct pr_generation *generation, struct pr_err *err)
{
	int status = start_thread(&generation->janitor, pr_janitor_run, err);

	for (size_t i = 0; status >= 0 && i < generation->pool_count; i++) {
		for (int64_t n = 0; status >= 0 && n < generation->config.workers; n++) {
			status = start_thread(&generation->pools[i].workers[n], pr_worker_run, err);
			if (status >= 0)
				generation->working++;
		}
	}
	if (status < 0)
		pr_generation_stop(generation);
	else
		change_limits(generation);
	return status;
}

void pr_generation_stop(struct pr_generation *generation)
{
	pr_stop_request(&generation->stop, generation->config.shutdown_grace_ms);
}

int pr_generation_join(struct pr_generation *generation, int status, struct pr_err *err)
{
	for (size_t i = 0; i < generation->pool_count; i++) {
		for (int64_t n = 0; n < generation->config.workers; n++) {
			struct pr_worker *worker = &generation->pools[i].workers[n];

			if (worker->started)
				pthread_join(worker->thread, NULL);
			if (worker->status < 0 && status >= 0) {
				*err = worker->err;
				status = worker->status;
			}
		}
	}
	pr_generation_stop(generation);
	if (generation->janitor.started)
		pthread_join(generation->janitor.thread, NULL);
	if (generation->janitor.status < 0 && status >= 0) {
		*err = generation->janitor.err;
		status = generation->janitor.status;
	}
	return status;
}

static void release_pools(struct pr_worker *worker)
{
	pr_store_close(worker->store);
	pr_sink_close(worker->sink);
	for (size_t i = 0; i < 2; i++)
		pr_batch_release(&worker->batches[i]);
	pr_arena_release(&worker->scratch);
	pr_arena_release(&worker->content);
	pr_log_release(&worker->log);
}

void pr_generation_free(struct pr_generation *generation)
{
	if (!generation)
		return;
	for (size_t i = 0; i < generation->pool_count; i++) {
		for (int64_t n = 0; generation->pools[i].workers && n < generation->config.workers;
		     n++)
			release_pools(&generation->pools[i].workers[n]);
		free(generation->pools[i].workers);
		if (generation->pools[i].watch_token >= 0)
			close(generation->pools[i].watch_token);
		if (generation->pools[i].claim_token >= 0)
			close(generation->pools[i].claim_token);
	}
	release_pools(&generation->janitor);
	free(generation->pools);
	pr_stop_release(&generation->stop);
	pr_arena_release(&generation->strings);
	free(generation);
}
