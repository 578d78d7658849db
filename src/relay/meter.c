/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A counter is only ever added to, and a series that was shown once stays.
 * 2. Workers take no lock, except for the first message of a topic and for the text of an error.
 * 3. Nothing is counted before it is committed.
 * 4. Topics are untrusted text: at most PR_TOPICS_MAX of them become labels.
 */
#include "relay/meter.h"

#include "base/text.h"
#include "base/time.h"
#include "relay/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From /proc, since an embedding program may have started long before. 0: unknown. */
static int64_t read_process_start(void)
{
	char text[1024], *at;
	FILE *file = fopen("/proc/self/stat", "re");
	size_t len = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	long long ticks = 0;

	if (file)
		fclose(file);
	text[len] = '\0';
	/* The 22nd field, and the second, in parentheses, may contain blanks. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, " %lld", &ticks) != 1)
		return 0;
	return pr_now_us() - pr_mono_us() + ticks * 1000000 / sysconf(_SC_CLK_TCK);
}

void pr_meter_init(struct pr_metrics *metrics)
{
	pthread_mutex_init(&metrics->lock, NULL);
	pthread_mutex_init(&metrics->health.lock, NULL);
	pthread_mutex_init(&metrics->collection.lock, NULL);
	for (size_t i = 0; i <= PR_TOPICS_MAX; i++)
		pthread_mutex_init(&metrics->topics[i].last_error.lock, NULL);
	metrics->started_us = pr_now_us();
	metrics->process_started_us = read_process_start();
	atomic_store(&metrics->reloaded_us, metrics->started_us);
	snprintf(metrics->topics[0].name, sizeof(metrics->topics[0].name), "other");
	atomic_store(&metrics->topic_count, 1);
}

void pr_meter_release(struct pr_metrics *metrics)
{
	struct pr_sink_meter *sink = atomic_load(&metrics->sinks);

	while (sink) {
		struct pr_sink_meter *next = sink->next;

		pthread_mutex_destroy(&sink->last_error.lock);
		free(sink);
		sink = next;
	}
	free(metrics->collection.groups);
	free(metrics->collection.names);
	for (size_t i = 0; i <= PR_TOPICS_MAX; i++)
		pthread_mutex_destroy(&metrics->topics[i].last_error.lock);
	pthread_mutex_destroy(&metrics->collection.lock);
	pthread_mutex_destroy(&metrics->health.lock);
	pthread_mutex_destroy(&metrics->lock);
}

struct pr_sink_meter *pr_meter_sink(struct pr_metrics *metrics, const char *name)
{
	struct pr_sink_meter *sink = atomic_load(&metrics->sinks);
	size_t size = strlen(name) + 1;

	while (sink && strcmp(sink->name, name) != 0)
		sink = sink->next;
	if (sink)
		return sink;
	sink = calloc(1, sizeof(*sink) + size);
	if (!sink)
		return NULL;
	memcpy(sink->name, name, size);
	pthread_mutex_init(&sink->last_error.lock, NULL);
	/* Only pr_relay_make() and pr_relay_reload() add sinks, one at a time. */
	sink->next = atomic_load(&metrics->sinks);
	atomic_store_explicit(&metrics->sinks, sink, memory_order_release);
	return sink;
}

static size_t hash_topic(const char *topic)
{
	uint32_t hash = 2166136261U;

	for (; *topic; topic++)
		hash = (hash ^ (unsigned char)*topic) * 16777619U;
	return hash ^ hash >> 16;
}

/* The topic's index, or 0 with the slot where it would be. */
static size_t find_topic(struct pr_metrics *metrics, const char *topic, size_t *ret_slot)
{
	for (size_t slot = hash_topic(topic) % PR_TOPIC_SLOTS;;
	     slot = (slot + 1) % PR_TOPIC_SLOTS) {
		size_t at = atomic_load_explicit(&metrics->slots[slot], memory_order_acquire);

		*ret_slot = slot;
		if (at == 0 || strcmp(metrics->topics[at].name, topic) == 0)
			return at;
	}
}

static size_t add_topic(struct pr_metrics *metrics, const char *topic)
{
	size_t slot, at, count;

	pthread_mutex_lock(&metrics->lock);
	at = find_topic(metrics, topic, &slot);
	count = atomic_load(&metrics->topic_count);
	if (at == 0 && count <= PR_TOPICS_MAX) {
		at = count;
		snprintf(metrics->topics[at].name, sizeof(metrics->topics[at].name), "%s", topic);
		atomic_store_explicit(&metrics->slots[slot], (unsigned char)at,
				      memory_order_release);
		atomic_store_explicit(&metrics->topic_count, count + 1, memory_order_release);
	}
	pthread_mutex_unlock(&metrics->lock);
	return at;
}

size_t pr_meter_topic(struct pr_metrics *metrics, const char *topic)
{
	char clean[sizeof(metrics->topics[0].name)];
	size_t slot, at = find_topic(metrics, topic, &slot), len;

	if (at > 0)
		return at;
	/* Two labels must not become the same when they are written. */
	len = strlen(topic);
	if (len >= sizeof(clean) || !pr_utf8_valid(topic, len)) {
		pr_utf8_sanitize(topic, len, sizeof(clean), clean, sizeof(clean));
		topic = clean;
		at = find_topic(metrics, topic, &slot);
	}
	if (at > 0 || strcmp(topic, metrics->topics[0].name) == 0 ||
	    atomic_load_explicit(&metrics->topic_count, memory_order_relaxed) > PR_TOPICS_MAX)
		return at;
	return add_topic(metrics, topic);
}

size_t pr_meter_find_topic(struct pr_metrics *metrics, const char *topic)
{
	size_t slot;

	return find_topic(metrics, topic, &slot);
}

static void record_error(struct pr_last_error *last, const char *error, int64_t at_us)
{
	pthread_mutex_lock(&last->lock);
	pr_utf8_sanitize(error, strlen(error), sizeof(last->text), last->text, sizeof(last->text));
	last->at_us = at_us;
	pthread_mutex_unlock(&last->lock);
}

int64_t pr_meter_read_error(struct pr_last_error *error, char ret[PR_LAST_ERROR_SIZE])
{
	int64_t at_us;

	pthread_mutex_lock(&error->lock);
	memcpy(ret, error->text, PR_LAST_ERROR_SIZE);
	at_us = error->at_us;
	pthread_mutex_unlock(&error->lock);
	return at_us;
}

/* The same for a message of this worker; once, the log says that there are too many. */
static size_t find_label(struct pr_worker *worker, const char *topic)
{
	struct pr_metrics *metrics = &worker->relay->metrics;
	size_t at = pr_meter_topic(metrics, topic);

	if (at == 0 && strcmp(topic, metrics->topics[0].name) != 0 &&
	    !atomic_exchange(&metrics->topics_logged, true)) {
		pr_log_box(&worker->log, PR_LOG_WARN, "METRICS_TOPICS_CAPPED");
		pr_log_int(&worker->log, "limit", PR_TOPICS_MAX);
		pr_log_str(&worker->log, "topic", topic);
		pr_log_str(&worker->log, "advice",
			   "metrics count further topics as topic=\"other\"");
		pr_log_end(&worker->log);
	}
	return at;
}

/* Messages of one topic often follow each other: it is looked up once for all of them. */
struct run {
	const char *topic;
	size_t label;
};

static size_t follow_run(struct pr_worker *worker, struct run *run, const char *topic)
{
	if (!run->topic || (run->topic != topic && strcmp(run->topic, topic) != 0))
		run->label = find_label(worker, topic);
	run->topic = topic;
	return run->label;
}

void pr_meter_claimed(struct pr_worker *worker, struct postroom_batch *batch)
{
	struct pr_metrics *metrics = &worker->relay->metrics;
	struct pr_sink_meter *sink = worker->pool->sink_state->meter;
	struct run run = { 0 };
	int64_t bytes = 0, claimed = 0;
	uint64_t lanes = 0;
	size_t label = 0;

	for (size_t i = 0; i < batch->count; i++) {
		postroom_delivery *item = &batch->items[i];
		size_t now = follow_run(worker, &run, item->topic);

		if (now != label) {
			pr_count(&metrics->topics[label].claimed, claimed);
			claimed = 0;
			label = now;
			atomic_store_explicit(&sink->seen[label], true, memory_order_relaxed);
		}
		claimed++;
		item->content_bytes = item->payload_len + item->body_len + item->withheld;
		bytes += (int64_t)item->content_bytes;
		if (item->lane > 0)
			lanes |= UINT64_C(1) << ((item->lane - 1) & 63);
	}
	pr_count(&metrics->topics[label].claimed, claimed);
	if (batch->count > 0)
		pr_histogram_observe(&metrics->batches, &pr_buckets_batch, (int64_t)batch->count);
	atomic_store_explicit(&worker->in_flight_bytes, bytes, memory_order_relaxed);
	atomic_store_explicit(&worker->lanes, __builtin_popcountll(lanes), memory_order_relaxed);
}

/* From enqueue, or from the due time if that is later; two clocks may disagree. */
static int64_t latency_us(const postroom_delivery *item, int64_t now_us)
{
	int64_t from_us = item->created_at_us;

	/* The due time of a retry is the end of its backoff, not the time requested by the producer. */
	if (item->attempt <= 1 && item->due_us > from_us)
		from_us = item->due_us;
	return now_us > from_us ? now_us - from_us : 0;
}

static int64_t attempt_us(const struct pr_worker *worker, const postroom_delivery *item,
			  int64_t now_us)
{
	int64_t from_us = item->begun_us ? item->begun_us : worker->began_us;
	int64_t to_us = item->judged_us ? item->judged_us : now_us;

	return to_us > from_us ? to_us - from_us : 0;
}

/* Counts of one settled part, before they are added. */
struct part {
	struct pr_tally *latency;
	struct pr_tally publish[PR_OUTCOMES];
	int64_t events[PR_EVENT_OUTCOMES];
	int64_t refunded, bytes;
	const char *error;	 /* the last one */
	const char *topic_error; /* the last one of the topic being counted */
	int64_t wall_us, mono_us;
};

static void count_event(const struct pr_worker *worker, const postroom_delivery *item,
			int64_t duration_us, struct part *part)
{
	int64_t timeout_us = worker->generation->config.publish_timeout_ms * 1000;

	if (item->verdict == POSTROOM_DELIVERED)
		part->events[PR_EVENT_COMPLETED]++;
	else if (item->verdict == POSTROOM_FAILED && duration_us >= timeout_us)
		part->events[PR_EVENT_TIMEOUT]++;
	else if (item->verdict == POSTROOM_FAILED || item->verdict == POSTROOM_REJECTED)
		part->events[PR_EVENT_FAILED]++;
	part->events[PR_EVENT_DEAD] += item->dead != 0;
}

/* A settled item, whose lease was not lost. */
static void count_item(struct pr_worker *worker, const postroom_delivery *item, size_t label,
		       struct part *part)
{
	struct pr_topic_meter *topic = &worker->relay->metrics.topics[label];
	int64_t duration_us = attempt_us(worker, item, part->mono_us);

	if (item->verdict != POSTROOM_UNTRIED)
		pr_tally_add(&part->publish[item->verdict], &pr_buckets_operation, duration_us);
	if (item->verdict == POSTROOM_DELIVERED)
		pr_tally_add(part->latency, &pr_buckets_latency, latency_us(item, part->wall_us));
	else if (item->reason && item->verdict != POSTROOM_UNTRIED)
		part->error = part->topic_error = item->reason;
	part->refunded += item->verdict == POSTROOM_UNREACHABLE ||
			  item->verdict == POSTROOM_UNTRIED;
	if (item->dead)
		pr_count(&topic->dead[item->verdict == POSTROOM_REJECTED ? PR_DEATH_PERMANENT
									 : PR_DEATH_MAX_ATTEMPTS],
			 1);
	if (worker->generation->config.table != &pr_table_outbox)
		count_event(worker, item, duration_us, part);
}

static void add_part(struct pr_worker *worker, const struct part *part)
{
	struct pr_metrics *metrics = &worker->relay->metrics;
	struct pr_sink_meter *sink = worker->pool->sink_state->meter;

	pr_histogram_add(&sink->latency, part->latency);
	for (size_t i = 0; i < PR_OUTCOMES; i++) {
		pr_histogram_add(&sink->publish[i], &part->publish[i]);
		if (worker->generation->config.table != &pr_table_outbox)
			pr_histogram_add(&metrics->handler, &part->publish[i]);
	}
	for (size_t i = 0; i < PR_EVENT_OUTCOMES; i++)
		pr_count(&metrics->events[i], part->events[i]);
	pr_count(&sink->refunded, part->refunded);
	pr_count(&worker->in_flight_bytes, -part->bytes);
	if (part->latency->total > 0)
		atomic_store_explicit(&sink->last_delivery_us, part->wall_us, memory_order_relaxed);
	if (part->error)
		record_error(&sink->last_error, part->error, part->wall_us);
}

/* Items of one topic have been counted; the next ones are of another. */
static void add_topic_outcomes(struct pr_worker *worker, size_t label,
			       int64_t outcomes[PR_OUTCOMES], struct part *part)
{
	struct pr_sink_meter *sink = worker->pool->sink_state->meter;

	for (size_t i = 0; i < PR_OUTCOMES; i++) {
		pr_count(&sink->published[label][i], outcomes[i]);
		outcomes[i] = 0;
	}
	if (part->topic_error)
		record_error(&worker->relay->metrics.topics[label].last_error, part->topic_error,
			     part->wall_us);
	part->topic_error = NULL;
}

void pr_meter_settled(struct pr_worker *worker, const postroom_delivery *items, size_t count,
		      struct pr_tally *ret)
{
	struct pr_metrics *metrics = &worker->relay->metrics;
	struct part part = { .latency = ret, .mono_us = pr_mono_us() };
	int64_t outcomes[PR_OUTCOMES] = { 0 };
	struct run run = { 0 };
	size_t label = 0;

	*ret = (struct pr_tally){ 0 };
	/* Times of messages are from the clock of the database. */
	part.wall_us = pr_now_us() + pr_counted(&metrics->collection.ahead_us);
	for (size_t i = 0; i < count; i++) {
		size_t now = follow_run(worker, &run, items[i].topic);

		if (now != label)
			add_topic_outcomes(worker, label, outcomes, &part);
		label = now;
		part.bytes += (int64_t)items[i].content_bytes;
		if (items[i].settled == POSTROOM_LEASE_LOST)
			continue;
		outcomes[items[i].verdict]++;
		count_item(worker, &items[i], label, &part);
	}
	add_topic_outcomes(worker, label, outcomes, &part);
	add_part(worker, &part);
}

void pr_meter_dead_lettered(struct pr_worker *worker, const struct postroom_batch *batch)
{
	for (size_t i = 0; i < batch->dead_letter_count; i++) {
		size_t label = find_label(worker, batch->dead_letters[i].topic);

		pr_count(&worker->relay->metrics.topics[label].dead[PR_DEATH_CRASHED], 1);
	}
}

void pr_meter_state(struct pr_worker *worker, enum pr_worker_state state)
{
	atomic_store_explicit(&worker->state, state, memory_order_relaxed);
	atomic_store_explicit(&worker->state_us, pr_mono_us(), memory_order_relaxed);
}

static enum pr_store_failure failure_kind(int status, const struct pr_err *err)
{
	static const char *const conflicts[] = { "40001", "40P01", "55P03", "25P02" };

	for (size_t i = 0; i < sizeof(conflicts) / sizeof(conflicts[0]); i++) {
		if (strcmp(err->sqlstate, conflicts[i]) == 0)
			return PR_FAILURE_CONFLICT;
	}
	if (strcmp(err->sqlstate, "57014") == 0)
		return PR_FAILURE_TIMEOUT;
	if (status == POSTROOM_UNAVAILABLE)
		return PR_FAILURE_CONNECTION;
	return status == POSTROOM_BUSY || status == POSTROOM_TX_ABORTED ? PR_FAILURE_CONFLICT
									: PR_FAILURE_OTHER;
}

int pr_meter_store(struct pr_metrics *metrics, enum pr_store_operation operation, int64_t begun_us,
		   int status, const struct pr_err *err)
{
	if (status == POSTROOM_STOPPED)
		return status;
	pr_histogram_observe(&metrics->store[operation], &pr_buckets_operation,
			     pr_mono_us() - begun_us);
	if (status < 0 && status != POSTROOM_LEASE_LOST)
		pr_count(&metrics->store_errors[operation][failure_kind(status, err)], 1);
	return status;
}

void pr_meter_reload(struct pr_metrics *metrics, bool ok)
{
	atomic_store(&metrics->reload_failed, !ok);
	if (ok)
		atomic_store(&metrics->reloaded_us, pr_now_us());
}

void pr_metrics_count_refused_reload(struct pr_relay *relay)
{
	pr_meter_reload(&relay->metrics, false);
}

void pr_metrics_count_action(struct pr_relay *relay, const char *action, int64_t rows)
{
	static const char *const actions[PR_ACTIONS] = { "retry", "delete", "purge" };

	for (size_t i = 0; i < PR_ACTIONS; i++) {
		if (strcmp(action, actions[i]) == 0)
			pr_count(&relay->metrics.actions[i], rows);
	}
}

void pr_metrics_count_request(struct pr_relay *relay, const char *route, int code)
{
	struct pr_metrics *metrics = &relay->metrics;
	size_t at = 0, count;

	pthread_mutex_lock(&metrics->lock);
	count = atomic_load(&metrics->request_count);
	while (at < count && (metrics->requests[at].code != code ||
			      strcmp(metrics->requests[at].route, route) != 0))
		at++;
	if (at == PR_REQUESTS_MAX)
		at--;
	if (at == count) {
		bool last = at == PR_REQUESTS_MAX - 1;

		metrics->requests[at].route = last ? "other" : route;
		metrics->requests[at].code = last ? 0 : code;
		atomic_store_explicit(&metrics->request_count, count + 1, memory_order_release);
	}
	pr_count(&metrics->requests[at].count, 1);
	pthread_mutex_unlock(&metrics->lock);
}

void pr_metrics_set_health(struct pr_relay *relay, pr_health_fn fn, void *context)
{
	struct pr_health_hook *hook = &relay->metrics.health;

	/* The callback will read the gauges. */
	if (fn)
		pr_meter_want(&relay->metrics);
	pthread_mutex_lock(&hook->lock);
	hook->fn = fn;
	hook->context = context;
	pthread_mutex_unlock(&hook->lock);
}

void pr_metrics_count_events(struct pr_relay *relay, const struct pr_event_counts *counts)
{
	struct pr_metrics *metrics = &relay->metrics;

	pr_count(&metrics->events[PR_EVENT_COMPLETED], counts->completed);
	pr_count(&metrics->events[PR_EVENT_DUPLICATE], counts->duplicates);
	pr_count(&metrics->events[PR_EVENT_FAILED], counts->failed);
}

void pr_metrics_count_dead_event(struct pr_relay *relay, const char *topic, bool tried)
{
	struct pr_metrics *metrics = &relay->metrics;
	struct pr_topic_meter *meter = &metrics->topics[pr_meter_topic(metrics, topic)];

	pr_count(&metrics->events[PR_EVENT_DEAD], 1);
	pr_count(&meter->dead[tried ? PR_DEATH_MAX_ATTEMPTS : PR_DEATH_PERMANENT], 1);
}
