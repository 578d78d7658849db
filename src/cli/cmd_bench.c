/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a database and a sink: bulk enqueue, drain, and the time from enqueue
 * to delivery at a constant rate.
 *
 * 1. The benchmark uses its own namespace, which is emptied before and after.
 *    Messages of an interrupted run are delivered to null: and purged.
 * 2. A database that contains other messages is refused: a benchmark would slow
 *    down their relays and leave free pages in the file.
 */
#include "cli/cli.h"

#include "base/time.h"
#include "base/url.h"
#include "relay/relay.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAMESPACE "postroom-bench"
#define BULK_TOPIC "bench.bulk"
#define LATENCY_TOPIC "bench.latency"
#define PURGE_AT_ONCE 1000
#define STALLED_MS 30000 /* a relay without a delivery for this time has stalled */

struct bench_options {
	int64_t messages;
	int64_t size;
	int64_t batch_size;
	int64_t workers;
	int64_t rate;
	int64_t time_ms;
	int64_t poll_interval_ms;
	const char *to;
};

#define OPTION(member) offsetof(struct bench_options, member)

static const struct pr_param params[] = {
	{ .name = "messages",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(messages),
	  .value = "N",
	  .fallback = "20000",
	  .min = 1,
	  .max = 100000000,
	  .help = "number of messages to enqueue and drain" },
	{ .name = "size",
	  .type = PR_PARAM_SIZE,
	  .offset = OPTION(size),
	  .value = "SIZE",
	  .fallback = "200",
	  .min = 2,
	  .max = POSTROOM_PAYLOAD_DEFAULT_MAX,
	  .help = "size of each payload, in bytes" },
	{ .name = "batch-size",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(batch_size),
	  .value = "N",
	  .fallback = "500",
	  .min = 1,
	  .max = 10000,
	  .help = "messages per enqueue transaction, and maximum per claim" },
	{ .name = "to",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(to),
	  .value = "SINK-URL",
	  .fallback = "null:",
	  .help = "sink that receives the messages (postroom sinks lists all sinks)" },
	{ .name = "workers",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(workers),
	  .value = "N",
	  .fallback = "2",
	  .min = 1,
	  .max = 256,
	  .help = "number of worker threads of the relay" },
	{ .name = "poll-interval",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(poll_interval_ms),
	  .value = "DUR",
	  .min = 1,
	  .max = 86400000,
	  .help = "time between two polls of the relay (default: as for postroom relay)" },
	{ .name = "rate",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(rate),
	  .value = "N",
	  .fallback = "100",
	  .min = 1,
	  .max = 10000,
	  .help = "messages per second during the latency measurement" },
	{ .name = "time",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(time_ms),
	  .value = "DUR",
	  .fallback = "5s",
	  .min = 100,
	  .max = 3600000,
	  .help = "duration of the latency measurement" },
	{ 0 },
};

struct bench {
	struct cli *cli;
	const struct bench_options *given;
	struct postroom_store *store;
	char *payload;

	double enqueue_s;
	double drain_s;
	struct pr_relay_totals drained;
	int64_t *latencies_us;
	int64_t latency_sent;
	int64_t latency_count;
};

/* A relay in a separate thread, while the main thread enqueues and measures. */
struct runner {
	struct pr_relay *relay;
	pthread_t thread;
	struct pr_err err;
	int status;
	int64_t ended_us;
	atomic_bool finished;
};

static void *run_relay(void *context)
{
	struct runner *runner = context;

	runner->status = pr_relay_run(runner->relay, &runner->err);
	runner->ended_us = pr_mono_us();
	atomic_store(&runner->finished, true);
	return NULL;
}

static int start_relay(struct bench *bench, struct runner *runner, const char *to, bool drain)
{
	const struct bench_options *given = bench->given;
	int64_t level = bench->cli->global.log_level;
	struct pr_relay_config config = {
		.url = bench->cli->global.db,
		.schema = bench->cli->global.schema,
		.to = to,
		.scope = { .ns = NAMESPACE },
		.workers = given->workers,
		.batch_size = given->batch_size,
		.lease_ms = 30000,
		.poll_interval_ms = given->poll_interval_ms,
		.shutdown_grace_ms = 20000,
		/* One attempt: retries would measure the backoff. */
		.policy = { .max_attempts = 1,
			    .base_delay_ms = 1000,
			    .max_delay_ms = 1000,
			    .max_error_length = 2000 },
		.retention_ms = -1,
		.dead_retention_ms = -1,
		.dedupe_retention_ms = -1,
		.inbox_retention_ms = -1,
		.drain = drain,
		/* One line per message would measure the terminal. */
		.log_level = level < PR_LOG_WARN ? PR_LOG_WARN : (enum pr_log_level)level,
		.log_format = (enum pr_log_format)bench->cli->global.log_format,
	};
	int status = pr_relay_config_check(&config, &runner->err);

	if (status >= 0)
		status = pr_relay_open(&config, &runner->relay, &runner->err);
	if (status == POSTROOM_INVALID || status == POSTROOM_SINK)
		return cli_usage(bench->cli, "bench: %s", runner->err.text);
	if (status < 0)
		return cli_fail(bench->cli, "bench: %s", runner->err.text);
	if (pthread_create(&runner->thread, NULL, run_relay, runner) != 0) {
		pr_relay_close(runner->relay);
		return cli_fail(bench->cli, "bench: cannot start a thread: no resources left");
	}
	return CLI_DONE;
}

static int end_relay(struct bench *bench, struct runner *runner)
{
	pthread_join(runner->thread, NULL);
	pr_relay_close(runner->relay);
	if (runner->status < 0)
		return cli_fail(bench->cli, "bench: %s", runner->err.text);
	return CLI_DONE;
}

static void pause_ms(int64_t ms)
{
	const struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&pause, NULL);
}

static int drain(struct bench *bench, const char *to, double *ret_s,
		 struct pr_relay_totals *ret_totals)
{
	struct runner runner = { 0 };
	struct cli_progress progress;
	int64_t started_us = pr_mono_us();
	int status = start_relay(bench, &runner, to, true);

	if (status != CLI_DONE)
		return status;
	cli_progress_begin(&progress, bench->cli, "drain", bench->given->messages);
	while (!atomic_load(&runner.finished)) {
		pr_relay_totals(runner.relay, ret_totals);
		cli_progress_show(&progress, ret_totals->delivered + ret_totals->dead,
				  ret_totals->delivered + ret_totals->dead);
		pause_ms(20);
	}
	cli_progress_end(&progress);
	pr_relay_totals(runner.relay, ret_totals);
	*ret_s = (double)(runner.ended_us - started_us) / 1e6;
	return end_relay(bench, &runner);
}

static postroom_message make_message(const struct bench *bench, const char *topic)
{
	return (postroom_message){
		.size = sizeof(postroom_message),
		.ns = NAMESPACE,
		.topic = topic,
		.payload = bench->payload,
		.payload_len = (size_t)bench->given->size,
	};
}

/* One transaction. */
static int write_messages(struct bench *bench, const postroom_message *messages, int64_t count)
{
	const struct pr_store_ops *ops = bench->store->ops;
	postroom_box *box = ops->box(bench->store);
	struct pr_err err = { 0 };
	int status;

	if (!box)
		return cli_fail(bench->cli, "bench: no memory");
	status = ops->begin(bench->store, &err);
	if (status >= 0 && postroom_enqueue_many(box, messages, (size_t)count, NULL) < 0)
		status = pr_err_set(&err, POSTROOM_DATABASE, "%s", postroom_errmsg(box));
	if (ops->end(bench->store, status, &err) >= 0)
		return CLI_DONE;
	return cli_fail(bench->cli, "bench: %s", err.text);
}

static int enqueue_bulk(struct bench *bench)
{
	int64_t count = bench->given->messages, batch = bench->given->batch_size;
	postroom_message *messages = calloc((size_t)batch, sizeof(*messages));
	struct cli_progress progress;
	int status = CLI_DONE;

	if (!messages)
		return cli_fail(bench->cli, "bench: no memory");
	for (int64_t i = 0; i < batch; i++)
		messages[i] = make_message(bench, BULK_TOPIC);
	cli_progress_begin(&progress, bench->cli, "enqueue", count);
	for (int64_t done = 0; status == CLI_DONE && done < count; done += batch) {
		status = write_messages(bench, messages,
					count - done < batch ? count - done : batch);
		cli_progress_show(&progress, done, done);
	}
	cli_progress_end(&progress);
	free(messages);
	return status;
}

static int measure_bulk(struct bench *bench)
{
	const struct bench_options *given = bench->given;
	int64_t started_us = pr_mono_us();
	int status = enqueue_bulk(bench);

	bench->enqueue_s = (double)(pr_mono_us() - started_us) / 1e6;
	if (status == CLI_DONE)
		status = drain(bench, given->to, &bench->drain_s, &bench->drained);
	return status;
}

/* A constant rate, one message per transaction, like an application. */
static int send_steadily(struct bench *bench, struct runner *runner)
{
	const postroom_message message = make_message(bench, LATENCY_TOPIC);
	int64_t started_us = pr_mono_us(), interval_us = 1000000 / bench->given->rate;

	while (bench->latency_sent * interval_us < bench->given->time_ms * 1000 &&
	       !atomic_load(&runner->finished)) {
		int64_t early_us = started_us + bench->latency_sent * interval_us - pr_mono_us();

		if (early_us > 0)
			nanosleep(&(struct timespec){ .tv_sec = early_us / 1000000,
						      .tv_nsec = early_us % 1000000 * 1000 },
				  NULL);
		if (write_messages(bench, &message, 1) != CLI_DONE)
			return CLI_FAILED;
		bench->latency_sent++;
	}
	return CLI_DONE;
}

static void wait_for_deliveries(struct bench *bench, struct runner *runner)
{
	struct pr_relay_totals totals;
	int64_t seen = -1, seen_us = pr_mono_us();

	while (!atomic_load(&runner->finished)) {
		pr_relay_totals(runner->relay, &totals);
		if (totals.delivered + totals.dead >= bench->latency_sent)
			return;
		if (totals.delivered + totals.dead > seen) {
			seen = totals.delivered + totals.dead;
			seen_us = pr_mono_us();
		}
		if (pr_mono_us() - seen_us > STALLED_MS * 1000LL)
			return;
		pause_ms(5);
	}
}

static int take_latency(void *context, const postroom_row *row)
{
	struct bench *bench = context;

	if (bench->latency_count < bench->latency_sent)
		bench->latencies_us[bench->latency_count++] = row->delivered_at_us -
							      row->created_at_us;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int read_latencies(struct bench *bench)
{
	bench->latencies_us = calloc((size_t)bench->latency_sent + 1, sizeof(int64_t));
	if (!bench->latencies_us)
		return cli_fail(bench->cli, "bench: no memory");
	if (postroom_list(
		    bench->store,
		    POSTROOM_FILTER(.status = "delivered", .ns = NAMESPACE, .topic = LATENCY_TOPIC),
		    (int32_t)bench->latency_sent, take_latency, bench) < 0)
		return cli_fail(bench->cli, "bench: %s", postroom_store_errmsg(bench->store));
	qsort(bench->latencies_us, (size_t)bench->latency_count, sizeof(int64_t), by_value);
	return CLI_DONE;
}

static int measure_latency(struct bench *bench)
{
	struct runner runner = { 0 };
	int status = start_relay(bench, &runner, bench->given->to, false), ended;

	if (status != CLI_DONE)
		return status;
	status = send_steadily(bench, &runner);
	if (status == CLI_DONE)
		wait_for_deliveries(bench, &runner);
	pr_relay_stop(runner.relay);
	ended = end_relay(bench, &runner);
	if (status == CLI_DONE)
		status = ended;
	return status == CLI_DONE ? read_latencies(bench) : status;
}

static int purge_bench(struct bench *bench, const char *status)
{
	int64_t count = PURGE_AT_ONCE;

	while (count == PURGE_AT_ONCE)
		if (postroom_purge_some(bench->store,
					POSTROOM_FILTER(.status = status, .ns = NAMESPACE),
					PURGE_AT_ONCE, &count) < 0)
			return cli_fail(bench->cli, "bench: %s",
					postroom_store_errmsg(bench->store));
	return CLI_DONE;
}

static int clean_up(struct bench *bench)
{
	struct pr_relay_totals totals;
	double seconds;
	int status = drain(bench, "null:", &seconds, &totals);

	if (status == CLI_DONE)
		status = purge_bench(bench, "delivered");
	return status == CLI_DONE ? purge_bench(bench, "dead") : status;
}

struct inhabitants {
	int64_t ours, others;
};

static void count_bench_topic(void *context, const char *ns, const char *topic,
			      const postroom_counts *counts)
{
	struct inhabitants *found = context;
	int64_t *whose = strcmp(ns, NAMESPACE) == 0 ? &found->ours : &found->others;

	(void)topic;
	*whose += counts->pending + counts->processing + counts->delivered + counts->dead;
}

static int check_scratch(struct bench *bench)
{
	struct inhabitants found = { 0 };
	postroom_counts counts;

	if (postroom_stats(bench->store, NULL, &counts, count_bench_topic, &found) < 0)
		return cli_fail(bench->cli, "bench: %s", postroom_store_errmsg(bench->store));
	if (found.others > 0)
		return cli_fail(bench->cli,
				"bench: the database contains messages that are not from a "
				"benchmark (%" PRId64 "); name a scratch database with --db",
				found.others);
	return found.ours > 0 ? clean_up(bench) : CLI_DONE;
}

static double percentile_ms(const struct bench *bench, int percent)
{
	int64_t index = (bench->latency_count * percent + 99) / 100 - 1;

	return (double)bench->latencies_us[index < 0 ? 0 : index] / 1e3;
}

static void put_number_member(struct pr_buf *out, const char *name, double value)
{
	char text[64];
	int len = snprintf(text, sizeof(text), "%.3f", value);

	cli_put_json_member(out, name, text, (size_t)len);
}

static void put_latency_member(struct pr_buf *out, const char *name, const struct bench *bench,
			       int percent)
{
	if (bench->latency_count > 0)
		put_number_member(out, name, percentile_ms(bench, percent));
	else
		cli_put_member(out, name, NULL);
}

static void print_bench_json(struct bench *bench, const char *to)
{
	const struct bench_options *given = bench->given;
	struct pr_buf *out = &bench->cli->out;

	cli_begin_object(bench->cli);
	cli_put_int_member(out, "messages", given->messages);
	cli_put_int_member(out, "size", given->size);
	cli_put_int_member(out, "batch_size", given->batch_size);
	cli_put_int_member(out, "workers", given->workers);
	cli_put_member(out, "to", to);
	put_number_member(out, "enqueue_seconds", bench->enqueue_s);
	put_number_member(out, "enqueue_per_second", (double)given->messages / bench->enqueue_s);
	put_number_member(out, "drain_seconds", bench->drain_s);
	put_number_member(out, "drain_per_second",
			  (double)bench->drained.delivered / bench->drain_s);
	cli_put_int_member(out, "delivered", bench->drained.delivered);
	cli_put_int_member(out, "dead", bench->drained.dead);
	cli_put_int_member(out, "latency_sent", bench->latency_sent);
	cli_put_int_member(out, "latency_delivered", bench->latency_count);
	put_latency_member(out, "latency_p50_ms", bench, 50);
	put_latency_member(out, "latency_p95_ms", bench, 95);
	put_latency_member(out, "latency_p99_ms", bench, 99);
	cli_end_object(bench->cli);
}

static void add_rate(struct cli_table *table, const char *label, int64_t count, double seconds,
		     const char *detail)
{
	PR_CLEANUP_BUF struct pr_buf rate = { 0 };

	cli_put_count(&rate, (int64_t)((double)count / seconds));
	pr_buf_puts(&rate, "/s");
	cli_table_cell(table, CLI_BOLD, label);
	cli_table_cell(table, CLI_PLAIN, pr_buf_text(&rate));
	cli_table_cell(table, CLI_PLAIN, detail);
}

static void add_latency(struct cli_table *table, const struct bench *bench, int percent,
			const char *detail)
{
	char label[32], value[32] = "-";

	snprintf(label, sizeof(label), "latency p%d", percent);
	if (bench->latency_count > 0)
		snprintf(value, sizeof(value), "%.1f ms", percentile_ms(bench, percent));
	cli_table_cell(table, CLI_BOLD, label);
	cli_table_cell(table, CLI_PLAIN, value);
	cli_table_cell(table, CLI_PLAIN, detail);
}

static void print_bench_table(struct bench *bench, const char *to)
{
	static const char *const heads[] = { "MEASURE", "RESULT", "HOW", NULL };
	const struct bench_options *given = bench->given;
	struct cli_table table;
	char detail[1200];

	cli_table_begin(&table, bench->cli, heads);
	snprintf(detail, sizeof(detail),
		 "%" PRId64 " messages of %" PRId64 " bytes, %" PRId64 " per transaction",
		 given->messages, given->size, given->batch_size);
	add_rate(&table, "enqueue", given->messages, bench->enqueue_s, detail);
	snprintf(detail, sizeof(detail),
		 "to %s, %" PRId64 " workers; %" PRId64 " delivered, %" PRId64 " dead", to,
		 given->workers, bench->drained.delivered, bench->drained.dead);
	add_rate(&table, "drain", bench->drained.delivered, bench->drain_s, detail);
	snprintf(detail, sizeof(detail),
		 "enqueue to delivery, %" PRId64 " per second; %" PRId64 " of %" PRId64
		 " delivered",
		 given->rate, bench->latency_count, bench->latency_sent);
	add_latency(&table, bench, 50, detail);
	add_latency(&table, bench, 95, detail);
	add_latency(&table, bench, 99, detail);
	cli_table_end(&table);
}

static int measure_drain(struct bench *bench)
{
	char to[1000];
	int status = check_scratch(bench), cleaned;

	if (status != CLI_DONE)
		return status;
	status = measure_bulk(bench);
	if (status == CLI_DONE)
		status = measure_latency(bench);
	cleaned = clean_up(bench);
	if (status != CLI_DONE)
		return status;
	pr_url_redact(bench->given->to, to, sizeof(to));
	if (bench->cli->global.json)
		print_bench_json(bench, to);
	else
		print_bench_table(bench, to);
	return cleaned;
}

/* A JSON string of exactly size bytes. */
static char *make_payload(size_t size)
{
	char *payload = malloc(size + 1);

	if (!payload)
		return NULL;
	memset(payload, 'x', size);
	payload[0] = payload[size - 1] = '"';
	payload[size] = '\0';
	return payload;
}

static int bench_run(struct cli *cli, void *options)
{
	struct bench bench = { .cli = cli, .given = options };
	int status = cli_open_store(cli, CLI_OPEN_CREATE, &bench.store);

	if (status != CLI_DONE)
		return status;
	bench.payload = make_payload((size_t)bench.given->size);
	status = bench.payload ? measure_drain(&bench) : cli_fail(cli, "bench: no memory");
	pr_store_close(bench.store);
	free(bench.latencies_us);
	free(bench.payload);
	return status;
}

const struct cli_command cmd_bench = {
	.name = "bench",
	.synopsis = "[OPTIONS]",
	.summary = "Measure enqueue, drain and latency on a database and a sink",
	.about = "Enqueues messages in bulk and drains them to the sink. Then it enqueues messages "
		 "one at a time and measures how long each takes to be delivered.\n\nName a "
		 "scratch database: bench refuses a database that contains other messages. Its own "
		 "messages are in the namespace " NAMESPACE
		 " and are purged at the end. Failed messages are not retried.",
	.examples = "postroom bench --db /var/tmp/scratch.db\n"
		    "postroom bench --db /var/tmp/scratch.db --messages 200000 --size 1k --json\n"
		    "postroom bench --db /var/tmp/scratch.db --to file:/var/tmp/out.ndjson",
	.params = params,
	.options_size = sizeof(struct bench_options),
	.run = bench_run,
};
