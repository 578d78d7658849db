/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of /metrics.
 *
 * 1. Each family is written once, with all its series together.
 * 2. A series that may ever have a value exists with 0 from the start, so that increase() sees
 *    its first change. For topics that is when they are first seen.
 * 3. Store gauges are those of the janitor's last collection; before the first there are none.
 */
#include "relay/metrics.h"

#include "base/revision.h"
#include "relay/exposition.h"
#include "relay/worker.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const char *const outcomes[PR_OUTCOMES] = {
	[POSTROOM_UNTRIED] = "untried",		[POSTROOM_DELIVERED] = "delivered",
	[POSTROOM_UNREACHABLE] = "unreachable", [POSTROOM_FAILED] = "failed",
	[POSTROOM_REJECTED] = "rejected",
};
static const char *const deaths[PR_DEATHS] = { "max_attempts", "permanent", "crashed" };
static const char *const operations[PR_OPERATIONS] = {
	"connect", "claim", "settle", "settle_and_claim", "renew", "sweep", "purge", "collect"
};
static const char *const failures[PR_FAILURES] = { "connection", "timeout", "conflict", "other" };
static const char *const purged[PR_PURGED_STATUSES] = { "delivered", "dead", "completed" };
static const char *const actions[PR_ACTIONS] = { "retry", "delete", "purge" };
static const char *const events[PR_EVENT_OUTCOMES] = { "completed", "duplicate", "failed", "dead",
						       "timeout" };
static const char *const wakeups[PR_WAKEUPS] = { "polled", "notified", "file" };
static const char *const components[PR_HEALTH_COMPONENTS] = { "store", "sink", "backlog", "age",
							      "dead" };

/* The input of the text. */
struct writing {
	struct pr_exposition to;
	struct pr_relay *relay;
	struct pr_metrics *metrics;
	struct pr_sink_meter *sinks;
	size_t topics;
	const char *handler; /* NULL: no consumer */
};

/* One counter for each value of a label. */
static void write_counters(struct writing *writing, enum pr_family_id id, const char *label,
			   const char *const *values, const _Atomic int64_t *counters, size_t count)
{
	pr_expose_family(&writing->to, id);
	for (size_t i = 0; i < count; i++)
		pr_expose(&writing->to, pr_counted(&counters[i]), PR_LABELS({ label, values[i] }));
}

static void write_single(struct writing *writing, enum pr_family_id id, int64_t value)
{
	pr_expose_family(&writing->to, id);
	pr_expose(&writing->to, value, PR_NO_LABELS);
}

static void write_time(struct writing *writing, enum pr_family_id id, int64_t us)
{
	pr_expose_family(&writing->to, id);
	pr_expose_time(&writing->to, us, PR_NO_LABELS);
}

static void write_published(struct writing *writing)
{
	pr_expose_family(&writing->to, PR_FAMILY_BUILD_INFO);
	pr_expose(&writing->to, 1,
		  PR_LABELS({ "version", postroom_version() }, { "revision", pr_revision() },
			    { "compiler", pr_compiler() }));
	pr_expose_family(&writing->to, PR_FAMILY_PUBLISHED);
	for (struct pr_sink_meter *sink = writing->sinks; sink; sink = sink->next) {
		for (size_t topic = 0; topic < writing->topics; topic++) {
			if (topic > 0 && !atomic_load(&sink->seen[topic]))
				continue;
			for (size_t i = 0; i < PR_OUTCOMES; i++)
				pr_expose(
					&writing->to, pr_counted(&sink->published[topic][i]),
					PR_LABELS({ "topic", writing->metrics->topics[topic].name },
						  { "sink", sink->name },
						  { "outcome", outcomes[i] }));
		}
	}
}

static void write_topics(struct writing *writing)
{
	struct pr_topic_meter *topics = writing->metrics->topics;

	pr_expose_family(&writing->to, PR_FAMILY_CLAIMED);
	for (size_t i = 0; i < writing->topics; i++)
		pr_expose(&writing->to, pr_counted(&topics[i].claimed),
			  PR_LABELS({ "topic", topics[i].name }));
	pr_expose_family(&writing->to, PR_FAMILY_DEAD);
	for (size_t i = 0; i < writing->topics; i++) {
		for (size_t death = 0; death < PR_DEATHS; death++)
			pr_expose(&writing->to, pr_counted(&topics[i].dead[death]),
				  PR_LABELS({ "topic", topics[i].name },
					    { "reason", deaths[death] }));
	}
}

static void write_durations(struct writing *writing)
{
	struct pr_exposition *to = &writing->to;

	pr_expose_family(to, PR_FAMILY_LATENCY);
	for (struct pr_sink_meter *sink = writing->sinks; sink; sink = sink->next)
		pr_expose_histogram(to, &sink->latency, &pr_buckets_latency,
				    PR_LABELS({ "sink", sink->name }));
	pr_expose_family(to, PR_FAMILY_PUBLISH);
	for (struct pr_sink_meter *sink = writing->sinks; sink; sink = sink->next) {
		for (size_t i = POSTROOM_UNTRIED + 1; i < PR_OUTCOMES; i++)
			pr_expose_histogram(
				to, &sink->publish[i], &pr_buckets_operation,
				PR_LABELS({ "sink", sink->name }, { "outcome", outcomes[i] }));
	}
	pr_expose_family(to, PR_FAMILY_BATCH);
	pr_expose_histogram(to, &writing->metrics->batches, &pr_buckets_batch, PR_NO_LABELS);
}

static void write_store(struct writing *writing)
{
	struct pr_exposition *to = &writing->to;
	struct pr_metrics *metrics = writing->metrics;

	pr_expose_family(to, PR_FAMILY_STORE);
	for (size_t i = 0; i < PR_OPERATIONS; i++)
		pr_expose_histogram(to, &metrics->store[i], &pr_buckets_operation,
				    PR_LABELS({ "operation", operations[i] }));
	pr_expose_family(to, PR_FAMILY_STORE_ERRORS);
	for (size_t i = 0; i < PR_OPERATIONS; i++) {
		for (size_t kind = 0; kind < PR_FAILURES; kind++)
			pr_expose(to, pr_counted(&metrics->store_errors[i][kind]),
				  PR_LABELS({ "operation", operations[i] },
					    { "kind", failures[kind] }));
	}
}

static void write_counts(struct writing *writing)
{
	struct pr_metrics *metrics = writing->metrics;
	struct pr_exposition *to = &writing->to;
	struct pr_relay_totals totals;

	pr_relay_totals(writing->relay, &totals);
	write_single(writing, PR_FAMILY_LOST, totals.lost);
	write_counters(writing, PR_FAMILY_PURGED, "status", purged, metrics->purged,
		       PR_PURGED_STATUSES);
	write_counters(writing, PR_FAMILY_ACTIONS, "action", actions, metrics->actions, PR_ACTIONS);
	write_counters(writing, PR_FAMILY_WAKEUPS, "cause", wakeups, metrics->wakeups, PR_WAKEUPS);
	if (atomic_load(&metrics->request_count) > 0)
		pr_expose_family(to, PR_FAMILY_REQUESTS);
	for (size_t i = 0; i < atomic_load(&metrics->request_count); i++) {
		char code[16];

		snprintf(code, sizeof(code), "%d", metrics->requests[i].code);
		pr_expose(to, pr_counted(&metrics->requests[i].count),
			  PR_LABELS({ "route", metrics->requests[i].route }, { "code", code }));
	}
	write_single(writing, PR_FAMILY_RELOAD_OK, !atomic_load(&metrics->reload_failed));
	write_time(writing, PR_FAMILY_RELOAD_AT, pr_counted(&metrics->reloaded_us));
}

static void write_handler(struct writing *writing)
{
	struct pr_exposition *to = &writing->to;
	struct pr_metrics *metrics = writing->metrics;

	if (!writing->handler)
		return;
	pr_expose_family(to, PR_FAMILY_DUPLICATES);
	pr_expose(to, pr_counted(&metrics->events[PR_EVENT_DUPLICATE]),
		  PR_LABELS({ "kind", "inbox" }));
	pr_expose_family(to, PR_FAMILY_EVENTS);
	for (size_t i = 0; i < PR_EVENT_OUTCOMES; i++)
		pr_expose(to, pr_counted(&metrics->events[i]),
			  PR_LABELS({ "handler", writing->handler }, { "outcome", events[i] }));
	pr_expose_family(to, PR_FAMILY_HANDLER);
	pr_expose_histogram(to, &metrics->handler, &pr_buckets_operation,
			    PR_LABELS({ "handler", writing->handler }));
}

/* Counters of sinks, also of those that a reload has removed. */
static void write_sink_counters(struct writing *writing)
{
	struct pr_exposition *to = &writing->to;

	pr_expose_family(to, PR_FAMILY_REFUNDED);
	for (struct pr_sink_meter *sink = writing->sinks; sink; sink = sink->next)
		pr_expose(to, pr_counted(&sink->refunded), PR_LABELS({ "sink", sink->name }));
	pr_expose_family(to, PR_FAMILY_BREAKER_OPENED);
	for (struct pr_sink_meter *sink = writing->sinks; sink; sink = sink->next)
		pr_expose(to, pr_counted(&sink->opened), PR_LABELS({ "sink", sink->name }));
	pr_expose_family(to, PR_FAMILY_LAST_DELIVERY);
	for (struct pr_sink_meter *sink = writing->sinks; sink; sink = sink->next)
		pr_expose_time(to, pr_counted(&sink->last_delivery_us),
			       PR_LABELS({ "sink", sink->name }));
}

/* Families with one series per sink in use: each is collected in a separate buffer. */
struct sink_gauges {
	struct pr_exposition open, messages, bytes;
	struct pr_relay *relay;
};

static int64_t count_bytes(struct pr_relay *relay, const char *name)
{
	int64_t bytes = 0;

	pthread_mutex_lock(&relay->lock);
	for (const struct pr_generation *generation = relay->generation; generation;
	     generation = generation->next) {
		for (size_t i = 0; i < generation->pool_count; i++) {
			const struct pr_sink_pool *pool = &generation->pools[i];

			if (strcmp(pool->sink_state->meter->name, name) != 0)
				continue;
			for (int64_t n = 0; n < generation->config.workers; n++)
				bytes += pr_counted(&pool->workers[n].in_flight_bytes);
		}
	}
	pthread_mutex_unlock(&relay->lock);
	return bytes > 0 ? bytes : 0;
}

static void write_sink(void *context, const struct pr_sink_view *view)
{
	struct sink_gauges *gauges = context;
	const struct pr_label *labels = PR_LABELS({ "sink", view->name });

	pr_expose(&gauges->open, view->breaker_open, labels);
	pr_expose(&gauges->messages, view->in_flight, labels);
	pr_expose(&gauges->bytes, count_bytes(gauges->relay, view->name), labels);
}

static void join(struct pr_buf *out, struct pr_buf *part)
{
	if (part->failed)
		out->failed = true;
	pr_buf_append(out, pr_buf_text(part), part->len);
	pr_buf_release(part);
}

static void write_sinks(struct writing *writing)
{
	bool openmetrics = writing->to.openmetrics;
	struct pr_buf open = { 0 }, messages = { 0 }, bytes = { 0 };
	struct sink_gauges gauges = { .open = { &open, openmetrics, NULL },
				      .messages = { &messages, openmetrics, NULL },
				      .bytes = { &bytes, openmetrics, NULL },
				      .relay = writing->relay };

	pr_expose_family(&gauges.open, PR_FAMILY_BREAKER_OPEN);
	pr_expose_family(&gauges.messages, PR_FAMILY_IN_FLIGHT);
	pr_expose_family(&gauges.bytes, PR_FAMILY_IN_FLIGHT_BYTES);
	pr_relay_sinks(writing->relay, write_sink, &gauges);
	join(writing->to.out, &open);
	join(writing->to.out, &messages);
	join(writing->to.out, &bytes);
}

static void write_workers(struct writing *writing)
{
	int64_t states[PR_WORKER_STATES] = { 0 }, lanes = 0;
	struct pr_relay *relay = writing->relay;

	pthread_mutex_lock(&relay->lock);
	for (const struct pr_generation *generation = relay->generation; generation;
	     generation = generation->next) {
		for (size_t i = 0; i < generation->pool_count; i++) {
			for (int64_t n = 0; n < generation->config.workers; n++) {
				struct pr_worker *worker = &generation->pools[i].workers[n];

				states[atomic_load(&worker->state)]++;
				lanes += atomic_load(&worker->lanes);
			}
		}
	}
	pthread_mutex_unlock(&relay->lock);
	pr_expose_family(&writing->to, PR_FAMILY_WORKERS);
	for (size_t i = 0; i < PR_WORKER_STATES; i++)
		pr_expose(&writing->to, states[i], PR_LABELS({ "state", pr_worker_states[i] }));
	write_single(writing, PR_FAMILY_LANES, lanes);
}

static void write_health(struct writing *writing)
{
	int levels[PR_HEALTH_COMPONENTS] = { 0, 0, -1, -1, -1 };
	struct pr_health_hook *hook = &writing->metrics->health;
	struct pr_relay_health health;

	pr_relay_health(writing->relay, &health);
	write_single(writing, PR_FAMILY_STORE_CONNECTED,
		     health.running && health.database_outage_ms == 0);
	levels[PR_HEALTH_STORE] = health.database_outage_ms > 0 ? 2 : 0;
	levels[PR_HEALTH_SINK] = health.sinks_down > 0 ? 1 : 0;
	/* Held during the call: once pr_metrics_set_health() has returned, the old one is not used. */
	pthread_mutex_lock(&hook->lock);
	if (hook->fn)
		hook->fn(hook->context, levels);
	pthread_mutex_unlock(&hook->lock);
	pr_expose_family(&writing->to, PR_FAMILY_HEALTH);
	for (size_t i = 0; i < PR_HEALTH_COMPONENTS; i++) {
		if (levels[i] >= 0)
			pr_expose(&writing->to, levels[i],
				  PR_LABELS({ "component", components[i] }));
	}
}

static void write_outbox_topics(struct writing *writing)
{
	struct pr_exposition *to = &writing->to;

	pr_expose_family(to, PR_FAMILY_MESSAGES);
	for (size_t i = 0; i < writing->topics; i++) {
		struct pr_topic_meter *topic = &writing->metrics->topics[i];

		if (i > 0 && !atomic_load(&topic->collected))
			continue;
		pr_expose(to, pr_counted(&topic->gauges.pending),
			  PR_LABELS({ "topic", topic->name }, { "status", "pending" }));
		pr_expose(to, pr_counted(&topic->gauges.processing),
			  PR_LABELS({ "topic", topic->name }, { "status", "processing" }));
		pr_expose(to, pr_counted(&topic->gauges.dead),
			  PR_LABELS({ "topic", topic->name }, { "status", "dead" }));
	}
}

static void write_inbox_handler(void *context, const struct pr_topic_gauges *group)
{
	struct pr_exposition *to = context;

	if (group->table != POSTROOM_INBOX)
		return;
	pr_expose(to, group->pending,
		  PR_LABELS({ "handler", group->topic }, { "status", "pending" }));
	pr_expose(to, group->processing,
		  PR_LABELS({ "handler", group->topic }, { "status", "active" }));
	pr_expose(to, group->dead, PR_LABELS({ "handler", group->topic }, { "status", "dead" }));
}

static void write_gauges(struct writing *writing)
{
	struct pr_gauges gauges;
	int64_t age_ms, at_us;
	bool any = pr_relay_gauges(writing->relay, &gauges, &age_ms);

	at_us = atomic_load(&writing->metrics->collection.at_us);
	write_time(writing, PR_FAMILY_COLLECTED, any ? at_us : writing->metrics->started_us);
	if (!any)
		return;
	write_single(writing, PR_FAMILY_BACKLOG, gauges.pending + gauges.processing);
	write_single(writing, PR_FAMILY_CAPPED, gauges.capped);
	write_outbox_topics(writing);
	write_single(writing, PR_FAMILY_TOPICS_CAPPED, gauges.topics_capped);
	write_single(writing, PR_FAMILY_FAILED_PENDING, gauges.failed_pending);
	write_single(writing, PR_FAMILY_SCHEDULED, gauges.scheduled);
	write_single(writing, PR_FAMILY_OUTBOX_DEAD, gauges.dead);
	write_time(writing, PR_FAMILY_OLDEST, gauges.oldest_age_us > 0 ? gauges.oldest_age_us : 0);
	if (gauges.table_bytes >= 0)
		write_single(writing, PR_FAMILY_TABLE_BYTES, gauges.table_bytes);
	if (gauges.dead_tuples >= 0)
		write_single(writing, PR_FAMILY_DEAD_TUPLES, gauges.dead_tuples);
	if (gauges.rejected >= 0)
		write_single(writing, PR_FAMILY_REJECTED, gauges.rejected);
	pr_expose_family(&writing->to, PR_FAMILY_INBOX);
	pr_relay_groups(writing->relay, write_inbox_handler, &writing->to);
	write_time(writing, PR_FAMILY_INBOX_OLDEST,
		   gauges.inbox_oldest_age_us > 0 ? gauges.inbox_oldest_age_us : 0);
}

static int64_t count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int64_t count = -1; /* the descriptor of the directory itself */

	if (!directory)
		return -1;
	for (const struct dirent *entry; (entry = readdir(directory));)
		count += entry->d_name[0] != '.';
	closedir(directory);
	return count;
}

static int64_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	long long size = 0, resident = -1;

	if (file && fscanf(file, "%lld %lld", &size, &resident) != 2)
		resident = -1;
	if (file)
		fclose(file);
	return resident < 0 ? -1 : resident * sysconf(_SC_PAGESIZE);
}

static void write_process(struct writing *writing)
{
	struct timespec cpu = { 0 };
	struct rlimit limit = { 0 };
	int64_t descriptors = count_descriptors(), resident = resident_bytes();

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	write_time(writing, PR_FAMILY_CPU, cpu.tv_sec * 1000000LL + cpu.tv_nsec / 1000);
	if (resident >= 0)
		write_single(writing, PR_FAMILY_RSS, resident);
	if (descriptors >= 0)
		write_single(writing, PR_FAMILY_OPEN_FDS, descriptors);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		write_single(writing, PR_FAMILY_MAX_FDS, (int64_t)limit.rlim_cur);
	if (writing->metrics->process_started_us)
		write_time(writing, PR_FAMILY_START, writing->metrics->process_started_us);
}

static const char *find_handler(struct pr_relay *relay)
{
	const struct pr_relay_config *config;
	const char *handler;

	pthread_mutex_lock(&relay->lock);
	config = &relay->generation->config;
	handler = config->table != &pr_table_outbox ? config->scope.ns : NULL;
	pthread_mutex_unlock(&relay->lock);
	/* A consumer is never reloaded, so its first generation's text stays. */
	return handler;
}

int pr_metrics_write_part(struct pr_relay *relay, struct pr_buf *out, bool openmetrics,
			  bool process)
{
	struct pr_metrics *metrics = &relay->metrics;
	struct writing writing = {
		.to = { out, openmetrics, NULL },
		.relay = relay,
		.metrics = metrics,
		.sinks = atomic_load_explicit(&metrics->sinks, memory_order_acquire),
		.topics = atomic_load_explicit(&metrics->topic_count, memory_order_acquire),
		.handler = find_handler(relay),
	};

	write_published(&writing);
	write_topics(&writing);
	write_durations(&writing);
	write_store(&writing);
	write_counts(&writing);
	write_handler(&writing);
	write_sink_counters(&writing);
	write_sinks(&writing);
	write_workers(&writing);
	write_health(&writing);
	write_gauges(&writing);
	if (process)
		write_process(&writing);
	pr_expose_end(&writing.to);
	return out->failed ? POSTROOM_NOMEM : POSTROOM_OK;
}

int pr_metrics_write(struct pr_relay *relay, struct pr_buf *out, bool openmetrics)
{
	return pr_metrics_write_part(relay, out, openmetrics, true);
}
