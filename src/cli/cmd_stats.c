/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/time.h"
#include "config/config.h"
#include "relay/route.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

struct stats_options {
	bool watch;
	int64_t interval_ms;
	struct cli_filter filter;
};

static const struct pr_param params[] = {
	{ .name = "watch",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct stats_options, watch),
	  .help = "repeat until interrupted" },
	{ .name = "interval",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct stats_options, interval_ms),
	  .value = "DUR",
	  .fallback = "1s",
	  .min = 50,
	  .max = 86400000,
	  .help = "time between two counts of --watch" },
	CLI_FILTER_PARAMS(struct stats_options, filter),
	{ 0 },
};

/* The counts of one interval. */
struct interval {
	const postroom_filter *filter;
	const struct pr_config *config; /* NULL: the routes are unknown */
	int64_t unrouted;		/* pending messages that match no route */
	struct pr_buf topics;
	struct pr_buf handlers;
	struct cli_table table;
};

static void count_unrouted(struct interval *interval, const char *ns, const char *topic,
			   const postroom_counts *counts)
{
	const struct pr_config *config = interval->config;

	if (config && !pr_route_fits(config->routes, config->route_count, ns, topic))
		interval->unrouted += counts->pending;
}

static void put_age_member(struct pr_buf *out, int64_t age_us)
{
	char text[40];
	int len = snprintf(text, sizeof(text), "%" PRId64 ".%03d", age_us / 1000000,
			   (int)(age_us / 1000 % 1000));

	if (age_us < 0)
		cli_put_member(out, "oldest_age_seconds", NULL);
	else
		cli_put_json_member(out, "oldest_age_seconds", text, (size_t)len);
}

static void put_counts_json(struct pr_buf *out, const postroom_counts *counts)
{
	cli_put_int_member(out, "pending", counts->pending);
	cli_put_int_member(out, "processing", counts->processing);
	cli_put_int_member(out, "failed_pending", counts->failed_pending);
	cli_put_int_member(out, "delivered", counts->delivered);
	cli_put_int_member(out, "dead", counts->dead);
	cli_put_int_member(out, "backlog", counts->pending + counts->processing);
	put_age_member(out, counts->oldest_age_us);
}

static void add_topic_json(void *context, const char *ns, const char *topic,
			   const postroom_counts *counts)
{
	struct interval *interval = context;
	struct pr_buf *topics = &interval->topics;

	count_unrouted(interval, ns, topic, counts);
	pr_buf_puts(topics, topics->len > 0 ? ",{" : "{");
	cli_put_member(topics, "namespace", ns);
	cli_put_member(topics, "topic", topic);
	put_counts_json(topics, counts);
	pr_buf_putc(topics, '}');
}

static void put_inbox_json(struct pr_buf *out, const postroom_counts *counts)
{
	cli_put_int_member(out, "pending", counts->pending);
	cli_put_int_member(out, "active", counts->processing);
	cli_put_int_member(out, "completed", counts->delivered);
	cli_put_int_member(out, "dead", counts->dead);
}

static void add_handler_json(void *context, const char *ns, const char *handler,
			     const postroom_counts *counts)
{
	struct interval *interval = context;
	struct pr_buf *handlers = &interval->handlers;

	(void)ns;
	pr_buf_puts(handlers, handlers->len > 0 ? ",{" : "{");
	cli_put_member(handlers, "handler", handler);
	put_inbox_json(handlers, counts);
	pr_buf_putc(handlers, '}');
}

static void put_list(struct cli *cli, const char *name, struct pr_buf *list)
{
	if (list->failed)
		cli->out.failed = true;
	cli_put_json_member(&cli->out, name, "[", 1);
	pr_buf_append(&cli->out, pr_buf_text(list), list->len);
	pr_buf_putc(&cli->out, ']');
}

/* The same for the inbox, which has no namespaces. */
static int count_inbox(struct postroom_store *store, const postroom_filter *outbox,
		       postroom_counts *ret, postroom_topic_fn fn, void *context)
{
	postroom_filter filter = *outbox;

	filter.table = POSTROOM_INBOX;
	filter.ns = NULL;
	return postroom_stats(store, &filter, ret, fn, context);
}

static int print_stats_json(struct cli *cli, struct postroom_store *store,
			    struct interval *interval)
{
	postroom_counts counts, inbox;
	int status = postroom_stats(store, interval->filter, &counts, add_topic_json, interval);

	if (status >= 0)
		status = count_inbox(store, interval->filter, &inbox, add_handler_json, interval);
	if (status < 0)
		return status;
	cli_begin_object(cli);
	put_counts_json(&cli->out, &counts);
	if (interval->config)
		cli_put_int_member(&cli->out, "unrouted", interval->unrouted);
	else
		cli_put_member(&cli->out, "unrouted", NULL);
	put_list(cli, "topics", &interval->topics);
	cli_put_json_member(&cli->out, "inbox", "{", 1);
	put_inbox_json(&cli->out, &inbox);
	put_list(cli, "handlers", &interval->handlers);
	pr_buf_putc(&cli->out, '}');
	cli_end_object(cli);
	return POSTROOM_OK;
}

static void add_counts(struct cli_table *table, const postroom_counts *counts)
{
	char age[PR_DURATION_SIZE];

	cli_table_int(table, counts->pending);
	cli_table_int(table, counts->failed_pending);
	cli_table_int(table, counts->processing);
	cli_table_int(table, counts->delivered);
	cli_table_int(table, counts->dead);
	cli_table_cell(table, CLI_PLAIN, cli_format_age(counts->oldest_age_us, age));
}

static void add_topic_row(void *context, const char *ns, const char *topic,
			  const postroom_counts *counts)
{
	struct interval *interval = context;
	struct cli_table *table = &interval->table;

	count_unrouted(interval, ns, topic, counts);
	cli_table_cell(table, CLI_PLAIN, ns);
	cli_table_cell(table, CLI_PLAIN, topic);
	add_counts(table, counts);
}

static int print_stats_table(struct cli *cli, struct postroom_store *store,
			     struct interval *interval)
{
	static const char *const heads[] = { "NAMESPACE", "TOPIC",	"PENDING",
					     "FAILED",	  "PROCESSING", "DELIVERED",
					     "DEAD",	  "OLDEST",	NULL };
	postroom_counts counts, inbox = { 0 };
	int status;

	cli_table_begin(&interval->table, cli, heads);
	status = postroom_stats(store, interval->filter, &counts, add_topic_row, interval);
	if (status >= 0) {
		cli_table_cell(&interval->table, CLI_BOLD, "all");
		cli_table_cell(&interval->table, CLI_PLAIN, "");
		add_counts(&interval->table, &counts);
	}
	cli_table_end(&interval->table);
	if (status >= 0 && interval->unrouted)
		pr_buf_printf(&cli->out, "%" PRId64 " of the pending have no route\n",
			      interval->unrouted);
	if (status >= 0)
		status = count_inbox(store, interval->filter, &inbox, NULL, NULL);
	if (inbox.pending + inbox.processing + inbox.delivered + inbox.dead > 0)
		pr_buf_printf(&cli->out,
			      "inbox: %" PRId64 " pending, %" PRId64 " active, %" PRId64
			      " completed, %" PRId64 " dead\n",
			      inbox.pending, inbox.processing, inbox.delivered, inbox.dead);
	return status;
}

static void count_stats_topic(void *context, const char *ns, const char *topic,
			      const postroom_counts *counts)
{
	count_unrouted(context, ns, topic, counts);
}

/* In a pipe: one line of name=value. */
static int print_line(struct cli *cli, struct postroom_store *store, struct interval *interval)
{
	postroom_counts counts;
	int status = postroom_stats(store, interval->filter, &counts, count_stats_topic, interval);
	struct pr_buf *out = &cli->out;

	if (status < 0)
		return status;
	pr_buf_printf(out, "pending=%" PRId64 " processing=%" PRId64 " failed_pending=%" PRId64,
		      counts.pending, counts.processing, counts.failed_pending);
	pr_buf_printf(out, " delivered=%" PRId64 " dead=%" PRId64 " backlog=%" PRId64,
		      counts.delivered, counts.dead, counts.pending + counts.processing);
	if (counts.oldest_age_us < 0)
		pr_buf_puts(out, " oldest_age_seconds=");
	else
		pr_buf_printf(out, " oldest_age_seconds=%.3f", (double)counts.oldest_age_us / 1e6);
	if (interval->config)
		pr_buf_printf(out, " unrouted=%" PRId64, interval->unrouted);
	pr_buf_putc(out, '\n');
	return POSTROOM_OK;
}

static int print_stats(struct cli *cli, struct postroom_store *store,
		       const struct pr_config *config, const postroom_filter *filter, bool watch)
{
	struct interval interval = { .config = config, .filter = filter };

	if (cli->global.json) {
		int status = print_stats_json(cli, store, &interval);

		pr_buf_release(&interval.topics);
		pr_buf_release(&interval.handlers);
		return status;
	}
	if (!cli->out_terminal)
		return print_line(cli, store, &interval);
	if (watch)
		pr_buf_puts(&cli->out, "\033[H\033[J");
	return print_stats_table(cli, store, &interval);
}

static int stats_run(struct cli *cli, void *options)
{
	struct stats_options *given = options;
	const struct timespec pause = { .tv_sec = given->interval_ms / 1000,
					.tv_nsec = given->interval_ms % 1000 * 1000000 };
	struct postroom_store *store = NULL;
	postroom_filter filter = { .size = sizeof(filter) };
	struct pr_config *config;
	int status = cli_filter_read(cli, &given->filter, &filter);

	if (status == CLI_DONE)
		status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	config = cli_load_routes(cli);
	status = print_stats(cli, store, config, &filter, given->watch);
	while (status >= 0 && given->watch && cli_flush(cli)) {
		nanosleep(&pause, NULL);
		status = print_stats(cli, store, config, &filter, true);
	}
	if (status < 0)
		cli_fail(cli, "%s", postroom_store_errmsg(store));
	postroom_store_close(store);
	pr_config_free(config);
	return status < 0 ? CLI_FAILED : CLI_DONE;
}

const struct cli_command cmd_stats = {
	.name = "stats",
	.synopsis = "[--watch] [FILTERS]",
	.summary = "Count messages by status, namespace and topic",
	.about = "The numbers are exact. FAILED counts the pending messages with at least one "
		 "failed attempt. The backlog is pending + processing. OLDEST ignores messages "
		 "that are delayed to a later time. With a configuration, stats also counts the "
		 "pending messages that match no route.\n\nIn a pipe it prints one line of totals. "
		 "--json prints one object, which also contains the topics and the inbox. With "
		 "--watch it prints one line or object per interval.",
	.examples = "postroom stats\npostroom stats --since 1h --topic 'orders.*'\npostroom stats "
		    "--watch\npostroom stats --json | jq .backlog",
	.params = params,
	.options_size = sizeof(struct stats_options),
	.run = stats_run,
};
