/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>

struct list_options {
	int64_t status;
	struct cli_filter filter;
	int64_t limit;
	const char *after;
	int64_t group_by;
};

static const char *const groupings[] = { "none", "error", NULL };

static const char *const statuses[] = { "any",	     "pending", "failed", "processing",
					"delivered", "dead",	NULL };

static const struct pr_param params[] = {
	{ .name = "status",
	  .type = PR_PARAM_CHOICE,
	  .offset = offsetof(struct list_options, status),
	  .value = "STATUS",
	  .fallback = "any",
	  .choices = statuses,
	  .help = "only messages with this status; failed means pending after at least one "
		  "attempt" },
	CLI_FILTER_PARAMS(struct list_options, filter),
	{ .name = "limit",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct list_options, limit),
	  .value = "N",
	  .fallback = "50",
	  .min = 1,
	  .max = INT32_MAX,
	  .help = "maximum number of messages" },
	{ .name = "after",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct list_options, after),
	  .value = "ID",
	  .help = "continue after this message, the last one of an earlier list" },
	{ .name = "group-by",
	  .type = PR_PARAM_CHOICE,
	  .offset = offsetof(struct list_options, group_by),
	  .value = "WHAT",
	  .fallback = "none",
	  .choices = groupings,
	  .help = "with --status dead: error prints one line per cause, topic and sink" },
	{ 0 },
};

static int print_message_json(void *context, const postroom_row *row)
{
	struct cli *cli = context;

	cli_put_row(&cli->out, row);
	return cli_flush_some(cli) ? 0 : 1;
}

static int print_message_row(void *context, const postroom_row *row)
{
	struct cli_table *table = context;

	cli_table_cell(table, CLI_PLAIN, row->id);
	cli_table_cell(table, cli_status_colour(row->status), row->status);
	cli_table_int(table, row->attempts);
	cli_table_time(table, row->created_at_us);
	cli_table_cell(table, CLI_PLAIN, row->topic);
	cli_table_cell(table, CLI_PLAIN, row->key);
	cli_table_cell(table, CLI_DIM, row->last_error);
	return table->cli->out_failed;
}

static int list_messages(struct cli *cli, struct postroom_store *store,
			 const postroom_filter *filter, int32_t limit)
{
	static const char *const heads[] = { "ID",    "STATUS", "TRIES",      "CREATED",
					     "TOPIC", "KEY",	"LAST ERROR", NULL };
	struct cli_table table;
	int status;

	cli_table_begin(&table, cli, heads);
	if (cli->global.json)
		status = postroom_list(store, filter, limit, print_message_json, cli);
	else
		status = postroom_list(store, filter, limit, print_message_row, &table);
	cli_table_end(&table);
	if (status < 0)
		return cli_row_fail(cli, "", status, store);
	return CLI_DONE;
}

static int list_run(struct cli *cli, void *options)
{
	struct list_options *given = options;
	postroom_filter filter = { .size = sizeof(filter),
				   .after = given->after,
				   .brief = !cli->global.json };
	struct postroom_store *store = NULL;
	int status = cli_filter_read(cli, &given->filter, &filter);

	if (given->status > 0)
		filter.status = statuses[given->status];
	if (status == CLI_DONE && given->group_by &&
	    (!filter.status || strcmp(filter.status, "dead") != 0))
		return cli_usage(cli, "list: --group-by error goes with --status dead");
	if (status == CLI_DONE && given->group_by && given->after)
		return cli_usage(cli, "list: --group-by and --after exclude each other");
	if (status == CLI_DONE)
		status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	if (given->group_by)
		status = cli_print_groups(cli, store, &filter, (int32_t)given->limit);
	else
		status = list_messages(cli, store, &filter, (int32_t)given->limit);
	postroom_store_close(store);
	return status;
}

const struct cli_command cmd_list = {
	.name = "list",
	.synopsis = "[OPTIONS]",
	.summary = "List messages, newest first",
	.about = "Prints a table on a terminal; in a pipe, the same columns separated by tabs, "
		 "without a header. --json prints whole rows, including payloads. Delivered "
		 "messages are sorted by delivery time. --group-by error groups dead messages by "
		 "cause: the error without ids and numbers, the topic, the sink, and the "
		 "number of messages.",
	.examples = "postroom list --status dead\n"
		    "postroom list --status dead --group-by error\n"
		    "postroom list --status dead --error timeout --since 2h\n"
		    "postroom list --topic 'orders.*' --limit 10\n"
		    "postroom list --json --status dead | jq -r .last_error",
	.params = params,
	.options_size = sizeof(struct list_options),
	.run = list_run,
};
