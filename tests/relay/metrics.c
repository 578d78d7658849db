/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a relay in the test's own process, on every database. */
#include "relay/metrics.h"
#include "contract/store/jobs.h"
#include "relay/rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static struct pr_buf text_now;

static const char *scrape_as(bool openmetrics)
{
	pr_buf_reset(&text_now);
	CHECK_INT(pr_metrics_write(run.relay, &text_now, openmetrics), POSTROOM_OK);
	return pr_buf_text(&text_now);
}

static const char *scrape(void)
{
	return scrape_as(false);
}

/* The value of a series in the last text; -1: there is none. */
static double value(const char *series)
{
	const char *at = pr_buf_text(&text_now);
	size_t len = strlen(series);

	for (; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (strncmp(at, series, len) == 0 && at[len] == ' ')
			return strtod(at + len, NULL);
		if (!*at)
			break;
	}
	return -1;
}

static void wait_for(const char *series, double least)
{
	do {
		nap();
		scrape();
	} while (value(series) < least);
}

/* Counters of one fact are added one after the other: each is waited for, and checked. */
static void wait_for_count(const char *series, int count)
{
	wait_for(series, count);
	CHECK_INT((int)value(series), count);
}

/* A gauge may be read before the counters of the same text. */
static void wait_for_gauge(const char *series, double exact)
{
	do {
		nap();
		scrape();
	} while (value(series) != exact);
}

#define PUBLISHED(topic, sink, outcome)                                                            \
	"postroom_messages_published_total{topic=\"" topic "\",sink=\"" sink                       \
	"\",outcome=\"" outcome "\"}"
#define DEAD(topic, reason)                                                                        \
	"postroom_messages_dead_total{topic=\"" topic "\",reason=\"" reason "\"}"

static struct pr_relay_config config_to(const char *to)
{
	struct pr_relay_config config = rig_config();

	config.to = to;
	config.collect_interval_ms = 20;
	return config;
}

TEST(M1_counters_equal_the_deliveries)
{
	struct pr_relay_config config = config_to("file:out");

	put("orders.created", 120);
	put("orders.paid", 30);
	config.drain = true;
	start(config);
	wait_for_count(PUBLISHED("orders.created", "file", "delivered"), 120);
	wait_for_count(PUBLISHED("orders.paid", "file", "delivered"), 30);
	wait_for_count("postroom_messages_claimed_total{topic=\"orders.created\"}", 120);
	wait_for_count(PUBLISHED("orders.paid", "file", "failed"), 0);
	wait_for_count("postroom_delivery_latency_seconds_count{sink=\"file\"}", 150);
	CHECK(value("postroom_delivery_latency_seconds_sum{sink=\"file\"}") >= 0);
	wait_for_count("postroom_publish_duration_seconds_count{sink=\"file\",outcome="
		       "\"delivered\"}",
		       150);
	wait_for("postroom_sink_last_delivery_timestamp_seconds{sink=\"file\"}", 1e9);
	CHECK(value("postroom_batch_messages_count") >= 3);
	CHECK(value("postroom_sink_in_flight_messages{sink=\"file\"}") >= 0);
	finish();
	CHECK_INT(lines_in("out"), 150);
}

TEST(M1_series_exist_with_zero_from_the_start)
{
	start(config_to("null:"));
	scrape();
	CHECK_INT((int)value(PUBLISHED("other", "null", "delivered")), 0);
	CHECK_INT((int)value(PUBLISHED("other", "null", "rejected")), 0);
	CHECK_INT((int)value(DEAD("other", "crashed")), 0);
	CHECK_INT((int)value("postroom_leases_lost_total"), 0);
	CHECK_INT((int)value("postroom_sink_breaker_open{sink=\"null\"}"), 0);
	CHECK_INT((int)value("postroom_sink_breaker_opened_total{sink=\"null\"}"), 0);
	CHECK_INT((int)value("postroom_attempts_refunded_total{sink=\"null\"}"), 0);
	CHECK_INT((int)value("postroom_delivery_latency_seconds_bucket{sink=\"null\",le=\"+Inf\"}"),
		  0);
	CHECK_INT((int)value("postroom_config_last_reload_successful"), 1);
	CHECK(strstr(scrape(), "postroom_build_info{version=\"" POSTROOM_VERSION "\""));
	CHECK(!strstr(scrape(), "# EOF"));
	CHECK(strstr(scrape_as(true), "\n# EOF\n"));
	stop();
}

TEST(M1_dead_letters_are_counted_by_topic_and_reason)
{
	struct pr_relay_config config = config_to(
		"exec:case $POSTROOM_TOPIC in bad) exit 65;; *) exit 1;; esac");

	config.policy.max_attempts = 2;
	config.drain = true;
	put("flaky", 2);
	put("bad", 1);
	start(config);
	wait_for_count(DEAD("flaky", "max_attempts"), 2);
	wait_for_count(PUBLISHED("flaky", "exec", "failed"), 4);
	wait_for_count(DEAD("bad", "permanent"), 1);
	wait_for_count(PUBLISHED("bad", "exec", "rejected"), 1);
	CHECK_INT((int)value(PUBLISHED("bad", "exec", "failed")), 0);
	finish();
}

TEST(M1_breaker_and_refunds_are_counted)
{
	struct pr_relay_config config = config_to("exec:test -e up || exit 127; echo >> out");

	config.workers = 1;
	put("t", 3);
	start(config);
	wait_for("postroom_sink_breaker_open{sink=\"exec\"}", 1);
	wait_for_count("postroom_sink_breaker_opened_total{sink=\"exec\"}", 1);
	wait_for("postroom_attempts_refunded_total{sink=\"exec\"}", 3);
	wait_for(PUBLISHED("t", "exec", "unreachable"), 1);
	CHECK_INT((int)value("postroom_health{component=\"sink\"}"), 1);
	CHECK_INT((int)value("postroom_sink_breaker_opened_total{sink=\"exec\"}"), 1);
	CHECK(fclose(fopen("up", "w")) == 0);
	wait_for_count(PUBLISHED("t", "exec", "delivered"), 3);
	wait_for_gauge("postroom_sink_breaker_open{sink=\"exec\"}", 0);
	wait_for_gauge("postroom_health{component=\"sink\"}", 0);
	stop();
}

TEST(M1_counters_survive_a_reload_of_the_sink)
{
	struct pr_relay_sink before = { .name = "bus", .url = "file:before" };
	struct pr_relay_sink after = { .name = "bus", .url = "file:after" };
	struct pr_relay_route all = { .sink = 0 };
	struct pr_relay_config config = rig_config();

	config.sinks = &before;
	config.sink_count = 1;
	config.routes = &all;
	config.route_count = 1;
	CHECK(pr_relay_config_check(&config, &run.err) >= 0);
	start(config);
	put("t", 40);
	wait_for(PUBLISHED("t", "bus", "delivered"), 40);
	config.sinks = &after;
	CHECK(pr_relay_reload(run.relay, &config, &run.err) >= 0);
	put("t", 2);
	wait_for_lines("after", 2);
	wait_for(PUBLISHED("t", "bus", "delivered"), 42);
	CHECK(!strstr(strstr(scrape(), PUBLISHED("t", "bus", "delivered")) + 1,
		      PUBLISHED("t", "bus", "delivered")));
	pr_metrics_count_refused_reload(run.relay);
	scrape();
	CHECK_INT((int)value("postroom_config_last_reload_successful"), 0);
	stop();
}

TEST(M1_store_gauges_are_collected_only_while_scraped)
{
	struct pr_gauges gauges;
	int64_t age_ms;

	put("t", 7);
	start(config_to("exec:exit 127"));
	while (!pr_relay_gauges(run.relay, &gauges, &age_ms))
		nap();
	wait_for("postroom_outbox_backlog_messages", 7);
	CHECK_INT((int)value("postroom_outbox_backlog_messages"), 7);
	CHECK_INT((int)value("postroom_outbox_dead_messages"), 0);
	CHECK_INT((int)value("postroom_outbox_backlog_capped"), 0);
	put("t", 1);
	wait_for_gauge("postroom_outbox_backlog_messages", 8);
	wait_for("postroom_outbox_oldest_age_seconds", 0.001);
	CHECK(value("postroom_collector_last_success_timestamp_seconds") > 1e9);
	CHECK(value("postroom_store_operation_duration_seconds_count{operation=\"collect\"}") > 0);
	stop();
}

TEST(M1_figures_by_topic_are_reported_as_a_sample_where_they_are_one)
{
	static const char more[] =
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
		"INSERT INTO postroom_outbox (topic, payload, status) SELECT 't', '{}', 'dead' "
		"FROM n";

	sql(app, more, 3);
	start(config_to("null:"));
	wait_for_gauge("postroom_outbox_messages{topic=\"t\",status=\"dead\"}", 3);
	CHECK_INT((int)value("postroom_topics_capped"), 0);
	sql(app, more, 998);
	wait_for_gauge("postroom_outbox_dead_messages", 1001);
	CHECK_INT((int)value("postroom_outbox_messages{topic=\"t\",status=\"dead\"}"), 1000);
	CHECK_INT((int)value("postroom_topics_capped"), 1);
	CHECK_INT((int)value("postroom_outbox_backlog_capped"), 0);
	stop();
}

TEST(M1_hostile_topics_cannot_break_a_line)
{
	struct pr_relay_config config = config_to("null:");

	config.drain = true;
	put("say \"hi\"\\", 1);
	put("other", 1);
	put("\xc3\xa4 { } , = #", 1);
	start(config);
	wait_for("postroom_messages_claimed_total{topic=\"say \\\"hi\\\"\\\\\"}", 1);
	wait_for("postroom_messages_claimed_total{topic=\"other\"}", 1);
	wait_for("postroom_messages_claimed_total{topic=\"\xc3\xa4 { } , = #\"}", 1);
	finish();
}

TEST(M1_jobs_of_a_consumer_are_counted_by_handler)
{
	struct pr_relay_config config = config_to("exec:test $POSTROOM_ID != bad");

	config.table = &pr_table_inbox;
	config.scope.ns = "h";
	config.policy.max_attempts = 2;
	config.drain = true;
	job_submit("good", "1");
	job_submit("bad", "1");
	start(config);
	wait_for_count("postroom_handler_events_total{handler=\"h\",outcome=\"dead\"}", 1);
	wait_for_count("postroom_handler_events_total{handler=\"h\",outcome=\"completed\"}", 1);
	wait_for_count("postroom_handler_events_total{handler=\"h\",outcome=\"failed\"}", 2);
	wait_for_count("postroom_handler_duration_seconds_count{handler=\"h\"}", 3);
	CHECK_INT((int)value("postroom_duplicates_total{kind=\"inbox\"}"), 0);
	finish();
}

static void keep_sink(void *context, const struct pr_sink_view *view)
{
	*(struct pr_sink_view *)context = *view;
}

static void count_worker(void *context, const struct pr_worker_view *view)
{
	CHECK(view->since_us > 0);
	CHECK_STR(view->sink, "exec");
	CHECK(strcmp(view->state, "idle") == 0 || view->worker[0]);
	++*(int *)context;
}

TEST(M1_views_show_sinks_workers_and_history)
{
	struct pr_history_sample samples[PR_HISTORY_MAX];
	struct pr_sink_view view = { 0 };
	int workers = 0;

	put("t", 1);
	start(config_to("exec:echo no such order >&2; exit 1"));
	do {
		nap();
		pr_relay_sinks(run.relay, keep_sink, &view);
	} while (view.failed == 0 || view.last_error_at_us == 0);
	CHECK_STR(view.name, "exec");
	CHECK(strstr(view.last_error, "no such order"));
	CHECK_STR(view.breaker, "closed");
	CHECK_INT(view.delivered, 0);
	pr_relay_workers(run.relay, count_worker, &workers);
	CHECK_INT(workers, 2);
	CHECK(pr_relay_history(run.relay, samples) <= 3);
	stop();
}

static atomic_bool watched;

static void *watch(void *unused)
{
	struct pr_history_sample samples[PR_HISTORY_MAX];
	struct pr_sink_view view;
	struct pr_gauges gauges;
	struct pr_buf text = { 0 };
	int64_t age_ms;

	while (watched) {
		int workers = 0;

		pr_buf_reset(&text);
		CHECK_INT(pr_metrics_write(run.relay, &text, true), POSTROOM_OK);
		pr_relay_sinks(run.relay, keep_sink, &view);
		pr_relay_workers(run.relay, count_worker, &workers);
		pr_relay_gauges(run.relay, &gauges, &age_ms);
		pr_relay_history(run.relay, samples);
		pr_metrics_count_request(run.relay, "/metrics", 200);
		nap();
	}
	pr_buf_release(&text);
	return unused;
}

/* For the thread sanitizer. */
TEST(M1_views_may_be_read_while_the_relay_works_and_reloads)
{
	struct pr_relay_config config = config_to("exec:cat >/dev/null; test $((RANDOM % 3)) != 1");
	pthread_t threads[2];

	config.lease_ms = 30000;
	CHECK(pr_relay_config_check(&config, &run.err) >= 0);
	watched = true;
	start(config);
	for (int i = 0; i < 2; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, watch, NULL), 0);
	for (int i = 0; i < 3; i++) {
		put("t", 20);
		CHECK(pr_relay_reload(run.relay, &config, &run.err) >= 0);
	}
	wait_for(PUBLISHED("t", "exec", "delivered"), 1);
	watched = false;
	for (int i = 0; i < 2; i++)
		CHECK_INT(pthread_join(threads[i], NULL), 0);
	stop();
}

static void *probe(void *unused)
{
	struct pr_relay_health health;

	while (watched)
		pr_relay_health(run.relay, &health);
	return unused;
}

/* A consumer answers probes before it has opened its intakes. For the thread sanitizer, too. */
ON_ONE(H1_health_may_be_read_while_threads_are_added, backend_sqlite)
{
	struct pr_relay_config config = config_to("null:");
	struct pr_watchdog watchdog = { 0 };
	pthread_t thread;

	watched = true;
	start(config);
	CHECK_INT(pthread_create(&thread, NULL, probe, NULL), 0);
	for (int i = 0; i < 2000; i++)
		CHECK(pr_relay_watch(run.relay, &watchdog, "intake", &run.err) >= 0);
	watched = false;
	CHECK_INT(pthread_join(thread, NULL), 0);
	stop();
}

/* PostroomGaugesStale */
ON_ONE(M1_failed_collection_leaves_the_time_of_the_last_one, backend_sqlite)
{
	const char *collected = "postroom_collector_last_success_timestamp_seconds";
	const char *failed = "postroom_store_errors_total{operation=\"collect\",kind=\"other\"}";
	double last;

	start(config_to("null:"));
	wait_for("postroom_outbox_backlog_messages", 0);
	sql(app, "ALTER TABLE postroom_inbox RENAME TO away");
	sql(app, "ALTER TABLE postroom_outbox RENAME TO away_too");
	wait_for(failed, 1);
	last = value(collected);
	CHECK(last > 1e9);
	wait_for(failed, 3);
	CHECK(value(collected) <= last);
	sql(app, "ALTER TABLE away RENAME TO postroom_inbox");
	sql(app, "ALTER TABLE away_too RENAME TO postroom_outbox");
	wait_for(collected, last + 0.001);
	stop();
}
