/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All who work by one configuration: an outlet with its workers for each sink
 * that is used, and a janitor.
 *
 * 1. A sink that can not be opened is found before the first thread starts.
 * 2. A crew borrows nothing of the configuration it was made from.
 * 3. Two crews at work at the same time are like two relays: leases keep them
 *    apart. What they share is what is known of a sink that is away.
 * 4. No worker begins before all have been started and the limits are theirs: if one
 *    can not be started, nothing has changed.
 */
#include "relay/worker.h"

#include "relay/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What a step may take beyond its own deadline when everything is slow. */
#define BUSY_MACHINE_MS 1000

/* False: no memory, here and in all that follow. */
static bool keep_text(struct pr_crew *crew, const char **text)
{
	if (!*text)
		return true;
	*text = pr_arena_strdup(&crew->strings, *text);
	return *text != NULL;
}

static bool keep_settings(struct pr_crew *crew, struct pr_relay_sink *sink)
{
	struct pr_url_setting *settings =
		pr_arena_copy(&crew->strings, sink->settings, sink->setting_count * sizeof(*settings));

	for (size_t i = 0; settings && i < sink->setting_count; i++) {
		settings[i].name = pr_arena_strdup(&crew->strings, settings[i].name);
		settings[i].value = pr_arena_strdup(&crew->strings, settings[i].value);
		if (!settings[i].name || !settings[i].value)
			return false;
	}
	sink->settings = settings;
	return settings;
}

static bool keep_sinks(struct pr_crew *crew)
{
	struct pr_relay_config *config = &crew->config;
	struct pr_relay_sink *sinks = pr_arena_copy(&crew->strings, config->sinks,
						    config->sink_count * sizeof(*sinks));

	for (size_t i = 0; sinks && i < config->sink_count; i++) {
		if (!keep_text(crew, &sinks[i].name) || !keep_text(crew, &sinks[i].url) ||
		    !keep_settings(crew, &sinks[i]))
			return false;
	}
	config->sinks = sinks;
	return sinks;
}

static bool keep_routes(struct pr_crew *crew)
{
	struct pr_relay_config *config = &crew->config;
	struct pr_relay_route *routes = pr_arena_copy(&crew->strings, config->routes,
						      config->route_count * sizeof(*routes));

	for (size_t i = 0; routes && i < config->route_count; i++) {
		if (!keep_text(crew, &routes[i].ns) || !keep_text(crew, &routes[i].topic))
			return false;
	}
	config->routes = routes;
	return routes;
}

static bool keep_config(struct pr_crew *crew)
{
	struct pr_relay_config *config = &crew->config;

	return keep_text(crew, &config->url) && keep_text(crew, &config->schema) &&
	       keep_text(crew, &config->to) && keep_text(crew, &config->scope.ns) &&
	       keep_text(crew, &config->scope.topic) && keep_text(crew, &config->scope.tenant_id) &&
	       keep_sinks(crew) && keep_routes(crew);
}

/* What is known of this sink, from now on if it is new. NULL: no memory. */
static struct pr_gate *find_gate(struct pr_relay *relay, const struct pr_relay_sink *sink)
{
	const char *name = sink->name ? sink->name : "", *url = sink->url ? sink->url : "";
	size_t size = strlen(name) + strlen(url) + 2;
	struct pr_gate *gate, *made = calloc(1, sizeof(*made) + size);

	if (!made)
		return NULL;
	snprintf(made->sink, size, "%s %s", name, url);
	for (gate = relay->gates; gate; gate = gate->next) {
		if (strcmp(gate->sink, made->sink) == 0) {
			free(made);
			return gate;
		}
	}
	pr_breaker_init(&made->breaker);
	pr_limit_init(&made->limit, 0, 0, 1, pr_mono_us());
	made->next = relay->gates;
	return relay->gates = made;
}

void pr_crew_init_log(const struct pr_crew *crew, struct pr_log *log)
{
	const struct pr_relay_config *config = &crew->config;

	if (config->log)
		pr_log_init_call(log, config->log_level, config->log, config->log_context);
	else
		pr_log_init(log, STDERR_FILENO, config->log_level, config->log_format);
	log->box = config->table->box;
}

static void prepare(struct pr_worker *worker, struct pr_crew *crew, struct pr_outlet *outlet)
{
	worker->relay = crew->relay;
	worker->crew = crew;
	worker->outlet = outlet;
	worker->reopened = atomic_load(&crew->relay->reopen_requests);
	/* Publishing, settling and any answer of the database end within a lease. */
	worker->pulse.step_ms = crew->config.lease_ms + BUSY_MACHINE_MS;
	worker->batch = &worker->batches[0];
	worker->batch_limit = (int32_t)crew->config.batch_size;
	pr_crew_init_log(crew, &worker->log);
	worker->log.sink = outlet ? outlet->sink->name : NULL;
}

static int open_sink(const struct pr_relay_sink *sink, struct pr_sink **ret, struct pr_err *err)
{
	int status = pr_sink_open_with(sink->url, sink->settings, sink->setting_count, ret, err);

	return status < 0 && sink->name ? pr_err_prefix(err, "sink %.60s", sink->name) : status;
}

static int open_workers_sink(const struct pr_relay_config *config, const struct pr_relay_sink *sink,
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

static int add_outlet(struct pr_crew *crew, const struct pr_relay_sink *sink, struct pr_rules rules,
		      struct pr_err *err)
{
	struct pr_outlet *outlet = &crew->outlets[crew->outlet_count++];
	int64_t workers = crew->config.workers;

	*outlet = (struct pr_outlet){ .crew = crew, .sink = sink, .rules = rules };
	outlet->watch = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	outlet->turn = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	outlet->gate = find_gate(crew->relay, sink);
	outlet->workers = calloc((size_t)workers, sizeof(*outlet->workers));
	if (!outlet->gate || !outlet->workers)
		return pr_err_nomem(err);
	if (outlet->watch < 0 || outlet->turn < 0)
		return pr_err_errno(err, POSTROOM_NOMEM, "making an event descriptor");
	for (int64_t i = 0; i < workers; i++)
		prepare(&outlet->workers[i], crew, outlet);
	for (int64_t i = 0; i < workers; i++) {
		struct pr_worker *worker = &outlet->workers[i];
		int status;

		snprintf(worker->name, sizeof(worker->name), "%.10s %u",
			 sink->name ? sink->name : "worker", (unsigned)(uint16_t)(i + 1));
		status = open_workers_sink(&crew->config, sink, &worker->sink, err);
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

static int add_routed(struct pr_crew *crew, struct pr_err *err)
{
	const struct pr_relay_config *config = &crew->config;

	for (size_t i = 0; i < config->sink_count; i++) {
		struct pr_rule *list = pr_arena_alloc(&crew->strings,
						      config->route_count * sizeof(*list));
		struct pr_rules rules;
		int status;

		if (!list)
			return pr_err_nomem(err);
		if (!pr_route_rules(config->routes, config->route_count, i, list, &rules))
			continue;
		status = add_outlet(crew, &config->sinks[i], rules, err);
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

static int add_outlets(struct pr_crew *crew, struct pr_err *err)
{
	struct pr_relay_config *config = &crew->config;
	size_t most = config->sink_count + 1;
	struct pr_relay_sink *only;
	struct pr_rule *list;

	crew->outlets = calloc(most, sizeof(*crew->outlets));
	only = pr_arena_alloc(&crew->strings, sizeof(*only));
	list = pr_arena_alloc(&crew->strings, (config->route_count + 1) * sizeof(*list));
	if (!crew->outlets || !only || !list)
		return pr_err_nomem(err);
	*only = (struct pr_relay_sink){ .url = config->to,
					.concurrency = config->concurrency,
					.rate = config->rate };
	if (config->to || config->callback.publish || config->handler.open)
		return add_outlet(crew, only, (struct pr_rules){ 0 }, err);
	if (!pr_route_rules(config->routes, config->route_count, PR_ROUTE_ANY, list, &crew->rules))
		return pr_err_set(err, POSTROOM_INVALID,
				  "there is no route to any sink; add one, or name a sink with --to");
	return add_routed(crew, err);
}

int pr_crew_make(struct pr_relay *relay, const struct pr_relay_config *config, struct pr_crew **ret,
		 struct pr_err *err)
{
	struct pr_crew *crew = calloc(1, sizeof(*crew));
	int status;

	if (!crew)
		return pr_err_nomem(err);
	crew->relay = relay;
	crew->config = *config;
	if (!crew->config.table)
		crew->config.table = &pr_table_outbox;
	crew->stop.fd = crew->stop.event = -1;
	prepare(&crew->janitor, crew, NULL);
	snprintf(crew->janitor.name, sizeof(crew->janitor.name), "janitor");
	status = keep_config(crew) ? pr_stop_init_under(&crew->stop, &relay->stop, err) :
				     pr_err_nomem(err);
	if (status >= 0)
		status = add_outlets(crew, err);
	if (status < 0) {
		pr_crew_free(crew);
		return status;
	}
	*ret = crew;
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

static void change_limits(struct pr_crew *crew)
{
	for (size_t i = 0; i < crew->outlet_count; i++) {
		const struct pr_relay_sink *sink = crew->outlets[i].sink;

		pr_limit_change(&crew->outlets[i].gate->limit, sink->rate, sink->concurrency,
				crew->config.workers);
	}
}

int pr_crew_start(struct pr_crew *crew, struct pr_err *err)
{
	int status = start(&crew->janitor, pr_janitor_run, err);

	for (size_t i = 0; status >= 0 && i < crew->outlet_count; i++) {
		for (int64_t n = 0; status >= 0 && n < crew->config.workers; n++) {
			status = start(&crew->outlets[i].workers[n], pr_worker_run, err);
			if (status >= 0)
				crew->working++;
		}
	}
	if (status < 0)
		pr_crew_stop(crew);
	else
		change_limits(crew);
	return status;
}

void pr_crew_stop(struct pr_crew *crew)
{
	pr_stop_request(&crew->stop, crew->config.shutdown_grace_ms);
}

int pr_crew_join(struct pr_crew *crew, int status, struct pr_err *err)
{
	for (size_t i = 0; i < crew->outlet_count; i++) {
		for (int64_t n = 0; n < crew->config.workers; n++) {
			struct pr_worker *worker = &crew->outlets[i].workers[n];

			if (worker->started)
				pthread_join(worker->thread, NULL);
			if (worker->status < 0 && status >= 0) {
				*err = worker->err;
				status = worker->status;
			}
		}
	}
	pr_crew_stop(crew);
	if (crew->janitor.started)
		pthread_join(crew->janitor.thread, NULL);
	return status;
}

static void release(struct pr_worker *worker)
{
	pr_store_close(worker->store);
	pr_sink_close(worker->sink);
	for (size_t i = 0; i < 2; i++)
		pr_batch_release(&worker->batches[i]);
	pr_arena_release(&worker->scratch);
	pr_log_release(&worker->log);
}

void pr_crew_free(struct pr_crew *crew)
{
	if (!crew)
		return;
	for (size_t i = 0; i < crew->outlet_count; i++) {
		for (int64_t n = 0; crew->outlets[i].workers && n < crew->config.workers; n++)
			release(&crew->outlets[i].workers[n]);
		free(crew->outlets[i].workers);
		if (crew->outlets[i].watch >= 0)
			close(crew->outlets[i].watch);
		if (crew->outlets[i].turn >= 0)
			close(crew->outlets[i].turn);
	}
	release(&crew->janitor);
	free(crew->outlets);
	pr_stop_release(&crew->stop);
	pr_arena_release(&crew->strings);
	free(crew);
}
