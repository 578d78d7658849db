/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures. Those of the store are read for all clients together, at most once per second, and less
 * often if reading many rows takes long: it uses 0.2 % of the time, which is 4 ms per refresh of a
 * dashboard.
 */
#include "admin/server.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>

#define CACHE_MIN_US 1000000
#define CACHE_MAX_US 30000000
#define CACHE_FACTOR 500
/* So few are counted in two milliseconds. If it took longer, the machine was busy. */
#define CACHE_FEW_ROWS 10000
/* Finished rows are the most, and matter least: they are counted up to here. */
#define FINISHED_CAP 10000
/* As many as that will hardly become fewer soon. */
#define CAPPED_US 60000000

struct pr_status_cache {
	int64_t valid_until_us; /* monotonic; 0: there is nothing in it */
	int64_t at_us;
	struct pr_gauges gauges;
	int64_t delivered, completed;
	int64_t capped_until_us; /* monotonic: until then, counts at FINISHED_CAP are not repeated */
	struct pr_buf topics;	 /* items of the list, with a comma between them */
};

void pr_status_cache_free(struct pr_status_cache *cache)
{
	if (!cache)
		return;
	pr_buf_release(&cache->topics);
	free(cache);
}

void pr_status_cache_expire(struct pr_status_cache *cache)
{
	if (cache)
		cache->valid_until_us = cache->capped_until_us = 0;
}

struct topic_list {
	struct pr_relay *relay;
	struct pr_buf *out;
};

static void add_topic(void *context, const struct pr_topic_gauges *topic)
{
	const struct topic_list *list = context;
	struct pr_buf *out = list->out;
	char error[PR_LAST_ERROR_SIZE];
	int64_t error_at_us;

	if (topic->table != POSTROOM_OUTBOX)
		return;
	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "namespace", topic->ns);
	pr_put_text(out, "topic", topic->topic);
	pr_put_int(out, "pending", topic->pending);
	pr_put_int(out, "processing", topic->processing);
	pr_put_int(out, "failed_pending", topic->failed_pending);
	pr_put_int(out, "dead", topic->dead);
	pr_put_seconds(out, "oldest_age_seconds", topic->oldest_age_us);
	error_at_us = pr_relay_topic_error(list->relay, topic->topic, error);
	pr_put_text(out, "last_error", error_at_us > 0 ? error : NULL);
	pr_put_time(out, "last_error_at", error_at_us);
	pr_buf_putc(out, '}');
}

int64_t pr_status_keep_us(int64_t took_us, int64_t rows)
{
	int64_t keep_us = took_us * CACHE_FACTOR;

	if (rows < CACHE_FEW_ROWS || keep_us < CACHE_MIN_US)
		return CACHE_MIN_US;
	return keep_us < CACHE_MAX_US ? keep_us : CACHE_MAX_US;
}

static int64_t count_rows(const struct pr_gauges *gauges)
{
	return gauges->pending + gauges->processing + gauges->dead + gauges->inbox_pending +
	       gauges->inbox_active + gauges->inbox_dead;
}

/* Rows that are finished meanwhile count twice, but none is missing. */
static int count_finished(struct postroom_store *store, struct pr_status_cache *cache)
{
	const postroom_filter delivered = { .size = sizeof(delivered), .status = "delivered" };
	const postroom_filter completed = { .size = sizeof(completed),
					    .table = POSTROOM_INBOX,
					    .status = "completed" };
	bool again = pr_mono_us() >= cache->capped_until_us;
	int status = POSTROOM_OK;

	if (again || cache->delivered < FINISHED_CAP)
		status = postroom_count(store, &delivered, FINISHED_CAP, &cache->delivered);
	if (status >= 0 && (again || cache->completed < FINISHED_CAP))
		status = postroom_count(store, &completed, FINISHED_CAP, &cache->completed);
	if (again)
		cache->capped_until_us = pr_mono_us() + CAPPED_US;
	return status;
}

/* NULL: the answer says why not. */
static const struct pr_status_cache *read_figures(struct pr_admin_request *request)
{
	struct pr_admin_database *database = &request->admin->database;
	struct pr_status_cache *cache = database->cache;
	struct topic_list topics = { .relay = request->admin->relay };
	struct postroom_store *store;
	struct pr_err err = { 0 };
	int64_t begun_us, now_us;

	if (!cache)
		cache = database->cache = calloc(1, sizeof(*cache));
	if (!cache) {
		pr_request_refuse(request, 503, "no_memory", "out of memory");
		return NULL;
	}
	begun_us = pr_mono_us();
	if (begun_us < cache->valid_until_us)
		return cache;
	cache->valid_until_us = 0;
	store = pr_database_store(request);
	if (!store)
		return NULL;
	pr_buf_reset(&cache->topics);
	topics.out = &cache->topics;
	if (store->ops->collect(store, PR_GAUGES_CAP, &cache->gauges, add_topic, &topics, &err) <
	    0) {
		pr_request_fail(request, &err);
		return NULL;
	}
	if (count_finished(store, cache) < 0) {
		pr_request_fail(request, &store->err);
		return NULL;
	}
	cache->at_us = pr_now_us();
	now_us = pr_mono_us();
	cache->valid_until_us = now_us +
				pr_status_keep_us(now_us - begun_us, count_rows(&cache->gauges));
	return cache;
}

const struct pr_gauges *pr_status_gauges(struct pr_admin_request *request)
{
	const struct pr_status_cache *cache = read_figures(request);

	return cache ? &cache->gauges : NULL;
}

static void put_rates(struct pr_buf *out, struct pr_relay *relay)
{
	static const char *const names[] = { "1m", "5m", "15m" };
	static const double seconds[] = { 60, 300, 900 };
	struct pr_relay_report report;

	pr_relay_report(relay, &report);
	pr_put_name(out, "rates");
	pr_buf_putc(out, '{');
	for (size_t i = 0; i < PR_RATES_WINDOWS; i++) {
		double delivered = (double)report.rates.windows[i].delivered;
		double per_second = report.rates.windows[i].per_second;
		/* The same time as for deliveries: there may have been less of it since the start. */
		double time = delivered > 0 && per_second > 0 ? delivered / per_second : seconds[i];

		pr_put_name(out, names[i]);
		pr_buf_putc(out, '{');
		pr_put_real(out, "delivered_per_second", per_second);
		pr_put_real(out, "failed_per_second",
			    (double)report.rates.windows[i].failed / time);
		pr_put_real(out, "failure_ratio", report.rates.windows[i].failure_ratio);
		pr_buf_putc(out, '}');
	}
	pr_buf_putc(out, '}');
}

static void put_history(struct pr_buf *out, struct pr_relay *relay)
{
	struct pr_history_sample samples[PR_HISTORY_MAX];
	size_t count = pr_relay_history(relay, samples);

	pr_put_name(out, "history");
	pr_buf_putc(out, '[');
	for (size_t i = 0; i < count; i++) {
		pr_put_comma(out);
		pr_buf_putc(out, '{');
		pr_put_time(out, "at", samples[i].at_us);
		pr_put_int(out, "delivered", samples[i].delivered);
		pr_put_int(out, "failed", samples[i].failed);
		pr_put_real(out, "p50_seconds", samples[i].p50);
		pr_put_real(out, "p99_seconds", samples[i].p99);
		pr_buf_putc(out, '}');
	}
	pr_buf_putc(out, ']');
}

static void put_counts(struct pr_buf *out, const struct pr_status_cache *cache)
{
	const struct pr_gauges *gauges = &cache->gauges;

	pr_put_int(out, "pending", gauges->pending);
	pr_put_int(out, "processing", gauges->processing);
	pr_put_int(out, "failed_pending", gauges->failed_pending);
	pr_put_int(out, "scheduled", gauges->scheduled);
	pr_put_int(out, "due", gauges->due);
	pr_put_int(out, "delivered", cache->delivered);
	pr_put_bool(out, "delivered_capped", cache->delivered >= FINISHED_CAP);
	pr_put_int(out, "dead", gauges->dead);
	pr_put_int(out, "backlog", gauges->pending + gauges->processing);
	pr_put_bool(out, "capped", gauges->capped);
	pr_put_seconds(out, "oldest_age_seconds", gauges->oldest_age_us);
	pr_put_time(out, "collected_at", cache->at_us);
	pr_put_name(out, "inbox");
	pr_buf_putc(out, '{');
	pr_put_int(out, "pending", gauges->inbox_pending);
	pr_put_int(out, "active", gauges->inbox_active);
	pr_put_int(out, "completed", cache->completed);
	pr_put_bool(out, "completed_capped", cache->completed >= FINISHED_CAP);
	pr_put_int(out, "dead", gauges->inbox_dead);
	pr_buf_putc(out, '}');
}

void pr_api_stats(struct pr_admin_request *request)
{
	const struct pr_status_cache *cache = read_figures(request);
	struct pr_admin *admin = request->admin;
	struct pr_buf *out = &request->answer.text;

	if (!cache)
		return;
	pr_buf_putc(out, '{');
	put_counts(out, cache);
	pr_put_health(admin, request->settings, &cache->gauges, out);
	put_rates(out, admin->relay);
	put_history(out, admin->relay);
	pr_put_bool(out, "read_only",
		    request->settings->read_only || request->role != PR_ROLE_OPERATOR);
	pr_put_bool(out, "show_payloads", pr_access_shows_payloads(request));
	pr_put_text(out, "version", POSTROOM_VERSION);
	pr_put_text(out, "database", pr_store_find(admin->database.url)->schemes[0]);
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
}

void pr_api_topics(struct pr_admin_request *request)
{
	const struct pr_status_cache *cache = read_figures(request);
	struct pr_buf *out = &request->answer.text;

	if (!cache)
		return;
	pr_buf_puts(out, "{\"items\":[");
	pr_buf_puts(out, pr_buf_text(&cache->topics));
	pr_buf_putc(out, ']');
	pr_put_bool(out, "capped", cache->gauges.capped || cache->gauges.topics_capped);
	pr_buf_puts(out, "}\n");
	out->failed = out->failed || cache->topics.failed;
	pr_request_succeed(request);
}

static void put_sink(void *context, const struct pr_sink_view *sink)
{
	struct pr_buf *out = context;

	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "name", sink->name);
	pr_put_text(out, "url", *sink->url_redacted ? sink->url_redacted : NULL);
	pr_put_text(out, "breaker", sink->breaker);
	pr_put_time(out, "open_since", sink->open_since_us);
	pr_put_text(out, "last_error", *sink->last_error ? sink->last_error : NULL);
	pr_put_time(out, "last_error_at", sink->last_error_at_us);
	pr_put_time(out, "last_delivery_at", sink->last_delivery_at_us);
	pr_put_int(out, "in_flight", sink->in_flight);
	pr_put_int(out, "delivered", sink->delivered);
	pr_put_int(out, "failed", sink->failed);
	pr_buf_putc(out, '}');
}

void pr_api_sinks(struct pr_admin_request *request)
{
	struct pr_buf *out = &request->answer.text;

	pr_buf_puts(out, "{\"items\":[");
	pr_relay_sinks(request->admin->relay, put_sink, out);
	pr_buf_puts(out, "]}\n");
	pr_request_succeed(request);
}

static void put_worker(void *context, const struct pr_worker_view *worker)
{
	struct pr_buf *out = context;

	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "worker", *worker->worker ? worker->worker : NULL);
	pr_put_text(out, "sink", worker->sink);
	pr_put_text(out, "state", worker->state);
	pr_put_int(out, "in_flight", worker->in_flight);
	pr_put_time(out, "since", worker->since_us);
	pr_buf_putc(out, '}');
}

static void put_lease(void *context, const struct pr_lease_view *lease)
{
	struct pr_buf *out = context;

	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "worker", lease->worker);
	pr_put_text(out, "table", lease->table == POSTROOM_INBOX ? "inbox" : "outbox");
	pr_put_int(out, "messages", lease->messages);
	pr_put_int(out, "lanes", lease->lanes);
	pr_put_time(out, "locked_until", lease->locked_until_us);
	pr_buf_putc(out, '}');
}

void pr_api_workers(struct pr_admin_request *request)
{
	struct postroom_store *store = pr_database_store(request);
	struct pr_buf *out = &request->answer.text;
	struct pr_err err = { 0 };

	if (!store)
		return;
	pr_buf_puts(out, "{\"items\":[");
	pr_relay_workers(request->admin->relay, put_worker, out);
	pr_buf_puts(out, "],\"leases\":[");
	if (pr_store_leases(store, put_lease, out, &err) < 0) {
		pr_request_fail(request, &err);
		return;
	}
	pr_buf_puts(out, "]}\n");
	pr_request_succeed(request);
}
