/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inbox's commands, one word behind `inbox` each. They share one table of
 * options; which of them an action takes is said with it.
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
};

enum option { STATUS, HANDLER, LIMIT, AFTER, DEAD, OLDER_THAN, YES };

#define OPTION(member) offsetof(struct inbox_options, member)

static const struct pr_param params[] = {
	[STATUS] = { .name = "status",
		     .type = PR_PARAM_STRING,
		     .offset = OPTION(status),
		     .value = "STATUS",
		     .help = "list: only pending, active, completed or dead; purge: completed or "
			     "dead, has to be given" },
	[HANDLER] = { .name = "handler",
		      .type = PR_PARAM_STRING,
		      .offset = OPTION(handler),
		      .value = "NAME",
		      .help = "list, retry --dead, purge: only this handler's" },
	[LIMIT] = { .name = "limit",
		    .type = PR_PARAM_INT,
		    .offset = OPTION(limit),
		    .value = "N",
		    .fallback = "50",
		    .min = 1,
		    .max = INT32_MAX,
		    .help = "list: at most so many" },
	[AFTER] = { .name = "after",
		    .type = PR_PARAM_INT,
		    .offset = OPTION(after),
		    .value = "SEQ",
		    .min = 1,
		    .help = "list: go on behind the row with this seq, which --json shows" },
	[DEAD] = { .name = "dead",
		   .type = PR_PARAM_FLAG,
		   .offset = OPTION(dead),
		   .help = "retry: all that are dead" },
	[OLDER_THAN] = { .name = "older-than",
			 .type = PR_PARAM_DURATION,
			 .offset = OPTION(older_than_ms),
			 .value = "DUR",
			 .max = CLI_AGE_MAX_MS,
			 .help = "purge: only what has been completed or dead for longer" },
	[YES] = { .name = "yes",
		  .type = PR_PARAM_FLAG,
		  .offset = OPTION(yes),
		  .help = "purge: do not ask, not even on a terminal" },
	{ 0 },
};

static void put_json(struct pr_buf *out, const char *name, const char *json)
{
	if (json)
		cli_put_json_member(out, name, json, strlen(json));
	else
		cli_put_member(out, name, NULL);
}

static int print_json(void *context, const postroom_inbox_row *row)
{
	struct cli *cli = context;
	struct pr_buf *out = &cli->out;

	cli_begin_object(cli);
	cli_put_member(out, "id", row->id);
	cli_put_member(out, "handler", row->handler);
	cli_put_int_member(out, "seq", row->seq);
	cli_put_member(out, "topic", row->topic);
	cli_put_member(out, "key", row->key);
	cli_put_member(out, "status", row->status);
	put_json(out, "payload", row->payload);
	cli_put_body_member(out, row->body, row->body_len);
	cli_put_member(out, "content_type", row->content_type);
	put_json(out, "headers", row->headers);
	put_json(out, "checkpoint", row->checkpoint);
	put_json(out, "steps", row->steps);
	cli_put_int_member(out, "attempts", row->attempts);
	cli_put_int_member(out, "claims", row->claims);
	cli_put_time_member(out, "next_attempt_at", row->next_attempt_at_us);
	cli_put_member(out, "locked_by", row->locked_by);
	cli_put_time_member(out, "locked_until", row->locked_until_us);
	cli_put_time_member(out, "last_attempt_at", row->last_attempt_at_us);
	cli_put_member(out, "last_error", row->last_error);
	cli_put_time_member(out, "created_at", row->created_at_us);
	cli_put_time_member(out, "updated_at", row->updated_at_us);
	cli_put_time_member(out, "processed_at", row->processed_at_us);
	return cli_end_object(cli) ? 0 : 1;
}

static int print_row(void *context, const postroom_inbox_row *row)
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

static int list(struct cli *cli, const struct inbox_options *given, struct postroom_store *store)
{
	static const char *const heads[] = { "ID",	"HANDLER",    "STATUS", "TRIES",
					     "CREATED", "LAST ERROR", NULL };
	const postroom_inbox_filter filter = { .size = sizeof(filter),
					       .status = given->status,
					       .handler = given->handler,
					       .before_seq = given->after };
	struct cli_table table;
	int status;

	cli_table_begin(&table, cli, heads);
	if (cli->global.json)
		status = postroom_inbox_list(store, &filter, (int32_t)given->limit, print_json, cli);
	else
		status = postroom_inbox_list(store, &filter, (int32_t)given->limit, print_row,
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
	size_t count;
};

static int show_row(void *context, const postroom_inbox_row *row)
{
	struct shown *shown = context;
	struct cli *cli = shown->cli;
	bool waiting = strcmp(row->status, "pending") == 0;

	if (cli->global.json) {
		shown->count++;
		return print_json(cli, row);
	}
	if (shown->count++ > 0)
		pr_buf_putc(&cli->out, '\n');
	cli_put_field(cli, "id", row->id);
	cli_put_field(cli, "handler", row->handler);
	cli_put_field(cli, "topic", row->topic);
	cli_put_field(cli, "key", row->key);
	cli_put_field(cli, "status", row->status);
	cli_put_field(cli, "content_type", row->content_type);
	cli_put_field(cli, "headers", row->headers);
	cli_put_number_field(cli, "attempts", row->attempts);
	cli_put_time_field(cli, "created_at", row->created_at_us);
	cli_put_time_field(cli, "next_attempt_at", waiting ? row->next_attempt_at_us : 0);
	cli_put_time_field(cli, "last_attempt_at", row->last_attempt_at_us);
	cli_put_field(cli, "last_error", row->last_error);
	cli_put_field(cli, "locked_by", row->locked_by);
	cli_put_time_field(cli, "locked_until", row->locked_until_us);
	cli_put_time_field(cli, "processed_at", row->processed_at_us);
	cli_put_time_field(cli, "updated_at", row->updated_at_us);
	cli_put_field(cli, "checkpoint", row->checkpoint);
	cli_put_field(cli, "steps", strcmp(row->steps, "{}") == 0 ? NULL : row->steps);
	cli_put_field(cli, "payload", row->payload);
	if (row->body)
		cli_put_number_field(cli, "body_bytes", (int64_t)row->body_len);
	return cli_flush_some(cli) ? 0 : 1;
}

static int show(struct cli *cli, const struct inbox_options *given, struct postroom_store *store)
{
	bool one = cli->arg_count == 3;
	const postroom_inbox_filter filter = { .size = sizeof(filter),
					       .handler = one ? cli->args[1] : NULL,
					       .id = cli->args[one ? 2 : 1] };
	struct shown shown = { .cli = cli };

	(void)given;
	if (postroom_inbox_list(store, &filter, INT32_MAX, show_row, &shown) < 0)
		return cli_fail(cli, "inbox show: %s", postroom_store_errmsg(store));
	if (shown.count == 0)
		return cli_fail(cli, "inbox show: there is no %s%s%s", filter.id, one ? " at " : "",
				one ? filter.handler : "");
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

	(void)given;
	if (!box)
		return cli_fail(cli, "inbox submit: no memory");
	if (payload && strcmp(payload, "-") == 0) {
		status = cli_read_stdin(cli, "inbox submit", "payload",
					POSTROOM_PAYLOAD_DEFAULT_MAX, &content);
		if (status != CLI_DONE)
			return status;
		payload = content.data;
	}
	/* One statement is a transaction of its own. */
	status = postroom_inbox_submit(box, cli->args[1], cli->args[2], payload, &state);
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

static int retry_named(struct cli *cli, struct postroom_store *store)
{
	int status = CLI_DONE;

	for (size_t i = 2; i < cli->arg_count; i++) {
		if (postroom_inbox_retry(store, cli->args[1], cli->args[i]) < 0) {
			status = cli_fail(cli, "inbox retry: %s", postroom_store_errmsg(store));
			continue;
		}
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
	postroom_inbox_filter filter = { .size = sizeof(filter), .handler = given->handler };
	struct cli_steps steps;
	int64_t some = 0;
	int status;

	if (given->dead == (cli->arg_count > 1) || cli->arg_count == 2)
		return cli_usage(cli, "inbox retry: give either HANDLER ID... or --dead");
	if (!given->dead && given->handler)
		return cli_usage(cli, "inbox retry: --handler goes with --dead, not with ids");
	if (!given->dead)
		return retry_named(cli, store);
	cli_steps_begin(&steps, cli, "retry", 0, &filter.older_than_ms);
	do
		status = postroom_inbox_retry_some(store, &filter, CLI_STEP, &some);
	while (cli_steps_go_on(&steps, status, some));
	print_total(cli, "retried", steps.total, "pending again");
	if (status < 0)
		return cli_fail(cli, "inbox retry: %s", postroom_store_errmsg(store));
	return CLI_DONE;
}

static bool ask(const struct inbox_options *given)
{
	char question[60];

	snprintf(question, sizeof(question), "Delete what is %s in the inbox for good?", given->status);
	return cli_confirm(question);
}

static int purge(struct cli *cli, const struct inbox_options *given, struct postroom_store *store)
{
	postroom_inbox_filter filter = { .size = sizeof(filter),
					 .status = given->status,
					 .handler = given->handler,
					 .older_than_ms = given->older_than_ms };
	struct cli_steps steps;
	int64_t some = 0;
	int status;

	if (!given->status ||
	    (strcmp(given->status, "completed") != 0 && strcmp(given->status, "dead") != 0))
		return cli_usage(cli, "inbox purge: say what to delete: --status completed or "
				      "--status dead; what is unfinished is never deleted");
	if (!given->yes && isatty(STDIN_FILENO) && !ask(given))
		return cli_fail(cli, "inbox purge: nothing was deleted");
	cli_steps_begin(&steps, cli, "purge", 0, &filter.older_than_ms);
	do
		status = postroom_inbox_purge_some(store, &filter, CLI_STEP, &some);
	while (cli_steps_go_on(&steps, status, some));
	print_total(cli, "purged", steps.total, "deleted");
	if (status < 0)
		return cli_fail(cli, "inbox purge: %s", postroom_store_errmsg(store));
	return CLI_DONE;
}

#define BIT(option) (1U << (option))

static const struct action {
	const char *name;
	const char *arguments;
	size_t min, max; /* arguments, the name included */
	unsigned options;
	enum cli_open open;
	int (*run)(struct cli *cli, const struct inbox_options *given,
		   struct postroom_store *store);
} actions[] = {
	{ "list", "", 1, 1, BIT(STATUS) | BIT(HANDLER) | BIT(LIMIT) | BIT(AFTER),
	  CLI_OPEN_EXISTING, list },
	{ "show", " [HANDLER] ID", 2, 3, 0, CLI_OPEN_EXISTING, show },
	{ "submit", " HANDLER ID [PAYLOAD]", 3, 4, 0, CLI_OPEN_CREATE, submit },
	{ "retry", " HANDLER ID...", 1, CLI_ANY_ARGS, BIT(DEAD) | BIT(HANDLER), CLI_OPEN_EXISTING,
	  retry },
	{ "purge", "", 1, 1, BIT(STATUS) | BIT(HANDLER) | BIT(OLDER_THAN) | BIT(YES),
	  CLI_OPEN_EXISTING, purge },
};

static int check(struct cli *cli, const struct action *action)
{
	if (cli->arg_count < action->min || cli->arg_count > action->max)
		return cli_usage(cli, "inbox %s: wrong number of arguments: postroom inbox %s%s",
				 action->name, action->name, action->arguments);
	for (size_t i = 0; params[i].name; i++) {
		if (cli->given[i] && !(action->options & BIT(i)))
			return cli_usage(cli, "inbox %s: --%s is for something else; postroom help "
					      "inbox says for what",
					 action->name, params[i].name);
	}
	return CLI_DONE;
}

static int run(struct cli *cli, void *options)
{
	const struct action *action = NULL;
	struct postroom_store *store = NULL;
	int status;

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (strcmp(actions[i].name, cli->args[0]) == 0)
			action = &actions[i];
	}
	if (!action)
		return cli_usage(cli, "inbox: there is no %s; use list, show, submit, retry or purge",
				 cli->args[0]);
	status = check(cli, action);
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
		    "submit HANDLER ID [PAYLOAD]\n"
		    "retry HANDLER ID...\n"
		    "retry --dead [--handler NAME]\n"
		    "purge --status completed|dead [--older-than DUR] [OPTIONS]",
	.summary = "Look at the inbox, and give handlers commands",
	.about = "The inbox remembers which events and commands each handler has seen, so that "
		 "each takes effect once.\n\n"
		 "submit writes a command, once for each HANDLER and ID: the second time it says "
		 "how the first one stands, and exits 0 too. PAYLOAD is JSON, - reads it from "
		 "stdin; without one there is none. list is newest first. show without HANDLER "
		 "shows what every handler made of the event. retry makes what is dead pending "
		 "again. purge deletes for good, in small transactions: what is deleted is new "
		 "when it comes again. relay and consume purge what has been completed for longer "
		 "than their --inbox-retention, whichever handler it is of.",
	.examples = "postroom inbox submit invoices c-17 '{\"order\": 17}'\n"
		    "postroom inbox show invoices c-17\n"
		    "postroom inbox list --status dead\n"
		    "postroom inbox purge --status completed --older-than 90d --yes",
	.params = params,
	.options_size = sizeof(struct inbox_options),
	.min_args = 1,
	.max_args = CLI_ANY_ARGS,
	.run = run,
};
