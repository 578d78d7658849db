/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The actions of `postroom inbox`. They share one table of options; each action
 * lists the options that it accepts.
 */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct inbox_options {
	const char *status;
	const char *handler;
	int64_t limit;
	int64_t after;
	bool dead;
	int64_t older_than_ms;
	bool yes;
	const char *tenant;
	const char *correlation_id;
	int64_t group_by;
	bool dry_run;
	struct cli_filter filter; /* error, sink, since and until */
};

enum option {
	STATUS,
	HANDLER,
	LIMIT,
	AFTER,
	DEAD,
	OLDER_THAN,
	YES,
	TENANT,
	CORRELATION_ID,
	GROUP_BY,
	DRY_RUN,
	ERROR,
	SINK,
	SINCE,
	UNTIL
};

static const char *const groupings[] = { "none", "error", NULL };

#define OPTION(member) offsetof(struct inbox_options, member)

static const struct pr_param params[] = {
	[STATUS] = { .name = "status",
		     .type = PR_PARAM_STRING,
		     .offset = OPTION(status),
		     .value = "STATUS",
		     .help = "list: only pending, active, completed or dead; purge: completed or "
			     "dead, required" },
	[HANDLER] = { .name = "handler",
		      .type = PR_PARAM_STRING,
		      .offset = OPTION(handler),
		      .value = "NAME",
		      .help = "list, retry --dead, purge: only events of this handler" },
	[LIMIT] = { .name = "limit",
		    .type = PR_PARAM_INT,
		    .offset = OPTION(limit),
		    .value = "N",
		    .fallback = "50",
		    .min = 1,
		    .max = INT32_MAX,
		    .help = "list: maximum number of rows" },
	[AFTER] = { .name = "after",
		    .type = PR_PARAM_INT,
		    .offset = OPTION(after),
		    .value = "SEQ",
		    .min = 1,
		    .help = "list: continue after the row with this seq, which --json prints" },
	[DEAD] = { .name = "dead",
		   .type = PR_PARAM_FLAG,
		   .offset = OPTION(dead),
		   .help = "retry: all dead events" },
	[OLDER_THAN] = { .name = "older-than",
			 .type = PR_PARAM_DURATION,
			 .offset = OPTION(older_than_ms),
			 .value = "DUR",
			 .max = CLI_AGE_MAX_MS,
			 .help = "purge: only rows that became completed or dead longer ago than "
				 "this" },
	[YES] = { .name = "yes",
		  .type = PR_PARAM_FLAG,
		  .offset = OPTION(yes),
		  .help = "purge: do not ask for confirmation" },
	[TENANT] = { .name = "tenant",
		     .type = PR_PARAM_STRING,
		     .offset = OPTION(tenant),
		     .value = "UUID",
		     .help = "submit: the tenant of the command" },
	[CORRELATION_ID] = { .name = "correlation-id",
			     .type = PR_PARAM_STRING,
			     .offset = OPTION(correlation_id),
			     .value = "ID",
			     .help = "submit: the correlation id, which is passed to the handler" },
	[GROUP_BY] = { .name = "group-by",
		       .type = PR_PARAM_CHOICE,
		       .offset = OPTION(group_by),
		       .value = "WHAT",
		       .fallback = "none",
		       .choices = groupings,
		       .help = "list --status dead: error prints one line per cause, handler "
			       "and sink" },
	[DRY_RUN] = { .name = "dry-run",
		      .type = PR_PARAM_FLAG,
		      .offset = OPTION(dry_run),
		      .help = "retry --dead, purge: only print how many rows match" },
	[ERROR] = CLI_CAUSE_PARAMS(struct inbox_options, filter),
	{ 0 },
};

static void put_event_json(struct pr_buf *out, const char *name, const char *json)
{
	if (json)
		cli_put_json_member(out, name, json, strlen(json));
	else
		cli_put_member(out, name, NULL);
}

static void put_members(struct pr_buf *out, const postroom_row *row)
{
	cli_put_member(out, "id", row->id);
	cli_put_member(out, "handler", row->handler);
	cli_put_int_member(out, "seq", row->seq);
	cli_put_member(out, "topic", row->topic);
	cli_put_member(out, "key", row->key);
	cli_put_member(out, "tenant_id", row->tenant_id);
	cli_put_member(out, "correlation_id", row->correlation_id);
	cli_put_member(out, "status", row->status);
	put_event_json(out, "payload", row->payload);
	cli_put_body_member(out, row->body, row->body_len);
	cli_put_member(out, "content_type", row->content_type);
	put_event_json(out, "headers", row->headers);
	put_event_json(out, "checkpoint", row->checkpoint);
	put_event_json(out, "steps", row->steps);
	cli_put_progress_members(out, row);
	cli_put_time_member(out, "processed_at", row->processed_at_us);
}

static int print_event_json(void *context, const postroom_row *row)
{
	struct cli *cli = context;

	cli_begin_object(cli);
	put_members(&cli->out, row);
	return cli_end_object(cli) ? 0 : 1;
}

static int print_event_row(void *context, const postroom_row *row)
{
	struct cli_table *table = context;

	cli_table_cell(table, CLI_PLAIN, row->id);
	cli_table_cell(table, CLI_PLAIN, row->handler);
	cli_table_cell(table, cli_status_colour(row->status), row->status);
	cli_table_int(table, row->attempts);
	cli_table_time(table, row->created_at_us);
	cli_table_cell(table, CLI_DIM, row->last_error);
	return table->cli->out_failed;
}

static int list_inbox(struct cli *cli, const struct inbox_options *given,
		      struct postroom_store *store)
{
	static const char *const heads[] = { "ID",	"HANDLER",    "STATUS", "TRIES",
					     "CREATED", "LAST ERROR", NULL };
	postroom_filter filter = { .size = sizeof(filter),
				   .table = POSTROOM_INBOX,
				   .status = given->status,
				   .handler = given->handler,
				   .brief = !cli->global.json };
	struct cli_filter more = given->filter;
	struct cli_table table;
	char after[24];
	int status = cli_filter_read(cli, &more, &filter);

	if (status != CLI_DONE)
		return status;
	if (given->group_by && (!given->status || strcmp(given->status, "dead") != 0))
		return cli_usage(cli, "inbox list: --group-by error goes with --status dead");
	if (given->group_by)
		return cli_print_groups(cli, store, &filter, (int32_t)given->limit);
	snprintf(after, sizeof(after), "%" PRId64, given->after);
	if (given->after)
		filter.after = after;
	cli_table_begin(&table, cli, heads);
	if (cli->global.json)
		status = postroom_list(store, &filter, (int32_t)given->limit, print_event_json,
				       cli);
	else
		status = postroom_list(store, &filter, (int32_t)given->limit, print_event_row,
				       &table);
	cli_table_end(&table);
	if (status == POSTROOM_INVALID)
		return cli_usage(cli, "inbox list: %s", postroom_store_errmsg(store));
	if (status < 0)
		return cli_fail(cli, "inbox list: %s", postroom_store_errmsg(store));
	return CLI_DONE;
}

struct shown {
	struct cli *cli;
	struct postroom_store *store;
	size_t count;
	int status;
};

static int show_row(void *context, const postroom_row *row)
{
	struct shown *shown = context;
	struct cli *cli = shown->cli;
	const postroom_filter one = {
		.size = sizeof(one), .table = POSTROOM_INBOX, .handler = row->handler, .id = row->id
	};

	if (cli->global.json) {
		shown->count++;
		cli_begin_object(cli);
		put_members(&cli->out, row);
		shown->status = cli_put_attempts(cli, shown->store, &one);
		return cli_end_object(cli) && shown->status >= 0 ? 0 : 1;
	}
	if (shown->count++ > 0)
		pr_buf_putc(&cli->out, '\n');
	cli_put_field(cli, "id", row->id);
	cli_put_field(cli, "handler", row->handler);
	cli_put_field(cli, "topic", row->topic);
	cli_put_field(cli, "key", row->key);
	cli_put_field(cli, "tenant_id", row->tenant_id);
	cli_put_field(cli, "correlation_id", row->correlation_id);
	cli_put_field(cli, "status", row->status);
	cli_put_progress_fields(cli, row);
	cli_put_time_field(cli, "processed_at", row->processed_at_us);
	cli_put_time_field(cli, "updated_at", row->updated_at_us);
	cli_put_field(cli, "checkpoint", row->checkpoint);
	cli_put_field(cli, "steps", strcmp(row->steps, "{}") == 0 ? NULL : row->steps);
	cli_put_field(cli, "payload", row->payload);
	if (row->body)
		cli_put_number_field(cli, "body_bytes", (int64_t)row->body_len);
	shown->status = cli_put_attempts(cli, shown->store, &one);
	return cli_flush_some(cli) && shown->status >= 0 ? 0 : 1;
}

static int show_event(struct cli *cli, const struct inbox_options *given,
		      struct postroom_store *store)
{
	bool one = cli->arg_count == 3;
	const postroom_filter filter = { .size = sizeof(filter),
					 .table = POSTROOM_INBOX,
					 .handler = one ? cli->args[1] : NULL,
					 .id = cli->args[one ? 2 : 1] };
	struct shown shown = { .cli = cli, .store = store };
	int status = postroom_show(store, &filter, show_row, &shown);

	(void)given;
	if (status < 0 || shown.status < 0)
		return cli_row_fail(cli, "inbox show: ", status < 0 ? status : shown.status, store);
	return CLI_DONE;
}

static void print_submitted(struct cli *cli, postroom_inbox_state state, bool duplicate)
{
	const char *name = pr_inbox_state_name(state);

	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_member(&cli->out, "id", cli->args[2]);
		cli_put_member(&cli->out, "handler", cli->args[1]);
		cli_put_member(&cli->out, "status", name);
		cli_put_json_member(&cli->out, "duplicate", duplicate ? "true" : "false",
				    duplicate ? 4 : 5);
		cli_end_object(cli);
		return;
	}
	cli_put_text(&cli->out, cli->args[2]);
	pr_buf_printf(&cli->out, duplicate ? " is already %s\n" : " is %s\n", name);
}

static int submit(struct cli *cli, const struct inbox_options *given, struct postroom_store *store)
{
	PR_CLEANUP_BUF struct pr_buf content = { 0 };
	postroom_box *box = store->ops->box(store);
	const char *payload = cli->arg_count > 3 ? cli->args[3] : NULL;
	postroom_inbox_state state = POSTROOM_INBOX_PENDING;
	int status;

	if (!box)
		return cli_fail(cli, "inbox submit: no memory");
	if (payload && strcmp(payload, "-") == 0) {
		status = cli_read_stdin(cli, "inbox submit", "payload",
					POSTROOM_PAYLOAD_DEFAULT_MAX, &content);
		if (status != CLI_DONE)
			return status;
		payload = content.data;
	}
	/* A single statement is its own transaction. */
	status = postroom_inbox_submit_command(
		box,
		POSTROOM_COMMAND(.handler = cli->args[1], .id = cli->args[2], .payload = payload,
				 .tenant_id = given->tenant,
				 .correlation_id = given->correlation_id),
		&state);
	if (status < 0)
		return cli_fail(cli, "%s", postroom_errmsg(box));
	cli->out_context = "inbox submit: the command was written";
	if (status == POSTROOM_DUPLICATE) {
		pr_log_event(&cli->log, PR_LOG_INFO, "INBOX_DUPLICATE");
		pr_log_str(&cli->log, "handler", cli->args[1]);
		pr_log_str(&cli->log, "id", cli->args[2]);
		pr_log_str(&cli->log, "status", pr_inbox_state_name(state));
		pr_log_end(&cli->log);
	}
	print_submitted(cli, state, status == POSTROOM_DUPLICATE);
	return CLI_DONE;
}

static int retry_named_event(struct cli *cli, struct postroom_store *store)
{
	int status = CLI_DONE;

	for (size_t i = 2; i < cli->arg_count; i++) {
		const postroom_filter one = { .size = sizeof(one),
					      .table = POSTROOM_INBOX,
					      .handler = cli->args[1],
					      .id = cli->args[i] };

		int result = postroom_retry(store, &one);

		if (result < 0) {
			status = cli_row_fail(cli, "inbox retry: ", result, store);
			continue;
		}
		cli_log_action(cli, "retry", &one, 1);
		if (cli->global.json) {
			cli_begin_object(cli);
			cli_put_member(&cli->out, "id", cli->args[i]);
			cli_put_member(&cli->out, "handler", cli->args[1]);
			cli_put_member(&cli->out, "status", "pending");
			cli_end_object(cli);
		} else {
			cli_put_text(&cli->out, cli->args[i]);
			pr_buf_puts(&cli->out, " is pending again\n");
		}
	}
	return status;
}

static void print_total(struct cli *cli, const char *member, int64_t total, const char *words)
{
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_int_member(&cli->out, member, total);
		cli_end_object(cli);
	} else {
		pr_buf_printf(&cli->out, "%" PRId64 " %s\n", total, words);
	}
}

static int retry(struct cli *cli, const struct inbox_options *given, struct postroom_store *store)
{
	postroom_filter filter = { .size = sizeof(filter),
				   .table = POSTROOM_INBOX,
				   .status = "dead",
				   .handler = given->handler };
	struct cli_filter more = given->filter;
	postroom_filter asked;
	struct cli_steps steps;
	int64_t some = 0;
	int status = cli_filter_read(cli, &more, &filter);

	if (status != CLI_DONE)
		return status;
	if (given->dead == (cli->arg_count > 1) || cli->arg_count == 2)
		return cli_usage(cli, "inbox retry: give either HANDLER ID... or --dead");
	if (!given->dead && (given->handler || given->dry_run || cli_filter_any(&more)))
		return cli_usage(cli,
				 "inbox retry: --handler, --dry-run and filters go with --dead, "
				 "not with ids");
	if (!given->dead)
		return retry_named_event(cli, store);
	if (given->dry_run)
		return cli_print_matched(cli, store, &filter);
	asked = filter;
	cli_steps_begin(&steps, cli, "inbox retry", 0, &filter.older_than_ms);
	do
		status = postroom_retry_some(store, &filter, CLI_STEP, &some);
	while (cli_steps_next(&steps, status, some));
	if (status >= 0 || steps.total > 0)
		cli_log_action(cli, "retry", &asked, steps.total);
	print_total(cli, "retried", steps.total, "pending again");
	return cli_steps_end(&steps, status, store);
}

static bool confirm_inbox_purge(const struct inbox_options *given)
{
	char question[60];

	snprintf(question, sizeof(question), "Delete all %s events from the inbox permanently?",
		 given->status);
	return cli_confirm(question);
}

static int purge_inbox(struct cli *cli, const struct inbox_options *given,
		       struct postroom_store *store)
{
	postroom_filter filter = { .size = sizeof(filter),
				   .table = POSTROOM_INBOX,
				   .status = given->status,
				   .handler = given->handler,
				   .older_than_ms = given->older_than_ms };
	struct cli_filter more = given->filter;
	postroom_filter asked;
	struct cli_steps steps;
	int64_t some = 0;
	int status = cli_filter_read(cli, &more, &filter);

	if (status != CLI_DONE)
		return status;
	if (given->status && strcmp(given->status, "completed") != 0 &&
	    strcmp(given->status, "dead") != 0)
		return cli_usage(cli,
				 "inbox purge: --status takes completed or dead, not \"%s\"; "
				 "unfinished events are never deleted",
				 given->status);
	if (!given->status)
		return cli_usage(cli,
				 "inbox purge: --status is missing: give --status completed or "
				 "--status dead; unfinished events are never deleted");
	if (given->dry_run)
		return cli_print_matched(cli, store, &filter);
	asked = filter;
	if (!given->yes && isatty(STDIN_FILENO) && !confirm_inbox_purge(given))
		return cli_fail(cli, "inbox purge: nothing was deleted");
	cli_steps_begin(&steps, cli, "inbox purge", 0, &filter.older_than_ms);
	do
		status = postroom_purge_some(store, &filter, CLI_STEP, &some);
	while (cli_steps_next(&steps, status, some));
	if (status >= 0 || steps.total > 0)
		cli_log_action(cli, "purge", &asked, steps.total);
	print_total(cli, "purged", steps.total, "deleted");
	return cli_steps_end(&steps, status, store);
}

#define BIT(option) (1U << (option))
#define CAUSE (BIT(ERROR) | BIT(SINK) | BIT(SINCE) | BIT(UNTIL))

static const struct action {
	const char *name;
	const char *arguments;
	size_t min, max; /* arguments, the name included */
	unsigned options;
	enum cli_open open;
	int (*run)(struct cli *cli, const struct inbox_options *given,
		   struct postroom_store *store);
} actions[] = {
	{ "list", "", 1, 1,
	  BIT(STATUS) | BIT(HANDLER) | BIT(LIMIT) | BIT(AFTER) | BIT(GROUP_BY) | CAUSE,
	  CLI_OPEN_EXISTING, list_inbox },
	{ "show", " [HANDLER] ID", 2, 3, 0, CLI_OPEN_EXISTING, show_event },
	{ "submit", " HANDLER ID [PAYLOAD]", 3, 4, BIT(TENANT) | BIT(CORRELATION_ID),
	  CLI_OPEN_CREATE, submit },
	{ "retry", " HANDLER ID...", 1, CLI_ANY_ARGS,
	  BIT(DEAD) | BIT(HANDLER) | BIT(DRY_RUN) | CAUSE, CLI_OPEN_EXISTING, retry },
	{ "purge", "", 1, 1,
	  BIT(STATUS) | BIT(HANDLER) | BIT(OLDER_THAN) | BIT(YES) | BIT(DRY_RUN) | CAUSE,
	  CLI_OPEN_EXISTING, purge_inbox },
};

static int check_inbox(struct cli *cli, const struct action *action)
{
	if (cli->arg_count < action->min || cli->arg_count > action->max)
		return cli_usage(cli, "inbox %s: wrong number of arguments: postroom inbox %s%s",
				 action->name, action->name, action->arguments);
	for (size_t i = 0; params[i].name; i++) {
		if (cli->given[i] && !(action->options & BIT(i)))
			return cli_usage(cli,
					 "inbox %s: --%s does not apply; see postroom help inbox",
					 action->name, params[i].name);
	}
	return CLI_DONE;
}

static int inbox_run(struct cli *cli, void *options)
{
	const struct action *action = NULL;
	struct postroom_store *store = NULL;
	int status;

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (strcmp(actions[i].name, cli->args[0]) == 0)
			action = &actions[i];
	}
	if (!action)
		return cli_usage(cli,
				 "inbox: unknown action %s; use list, show, submit, retry or purge",
				 cli->args[0]);
	status = check_inbox(cli, action);
	if (status == CLI_DONE)
		status = cli_open_store(cli, action->open, &store);
	if (status != CLI_DONE)
		return status;
	status = action->run(cli, options, store);
	postroom_store_close(store);
	return status;
}

const struct cli_command cmd_inbox = {
	.name = "inbox",
	.synopsis = "list [--status STATUS] [--handler NAME] [OPTIONS]\n"
		    "show [HANDLER] ID\n"
		    "submit HANDLER ID [PAYLOAD] [OPTIONS]\n"
		    "retry HANDLER ID...\n"
		    "retry --dead [--handler NAME] [OPTIONS]\n"
		    "purge --status completed|dead [--older-than DUR] [OPTIONS]",
	.summary = "Inspect the inbox, and submit commands to handlers",
	.about = "The inbox records which events and commands each handler has processed, so that "
		 "each takes effect once.\n\nlist prints the newest rows first. show without "
		 "HANDLER prints the state of the event for every handler. retry makes dead events "
		 "pending again.\n\nsubmit writes a command, once per HANDLER and ID. Submitting "
		 "it again prints the state of the first command and also exits 0. PAYLOAD is "
		 "JSON; - reads it from stdin; it is optional.\n\npurge deletes rows permanently, "
		 "in small transactions. If a purged event is redelivered, it counts as new. relay "
		 "and consume purge rows of all handlers that completed longer ago than their "
		 "--inbox-retention.",
	.examples = "postroom inbox submit invoices c-17 '{\"order\": 17}'\n"
		    "postroom inbox show invoices c-17\n"
		    "postroom inbox list --status dead\n"
		    "postroom inbox purge --status completed --older-than 90d --yes",
	.params = params,
	.options_size = sizeof(struct inbox_options),
	.min_args = 1,
	.max_args = CLI_ANY_ARGS,
	.run = inbox_run,
};
