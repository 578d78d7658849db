/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the operator commands for the outbox and the inbox. */
#include "cli/cli.h"

#include "base/time.h"
#include "store/action.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_read_when(struct cli *cli, const char *option, const char *text, int64_t *ret_us)
{
	struct pr_err err = { 0 };
	int64_t ago_ms;

	if (!text)
		return CLI_DONE;
	if (pr_duration_parse(text, &ago_ms, &err) >= 0) {
		int64_t now_us = pr_now_us();

		/* 0 would mean no limit. */
		*ret_us = ago_ms < now_us / 1000 ? now_us - ago_ms * 1000 : 1;
		return CLI_DONE;
	}
	if (pr_rfc3339_parse(text, ret_us, &err) < 0)
		return cli_usage(cli,
				 "--%s takes a duration such as 2h, or a time such as "
				 "2026-11-15T21:37:42Z, not \"%s\"",
				 option, text);
	if (*ret_us == 0)
		*ret_us = 1;
	return CLI_DONE;
}

int cli_print_matched(struct cli *cli, struct postroom_store *store, const postroom_filter *filter)
{
	int64_t count = 0;

	if (postroom_count(store, filter, INT64_MAX, &count) < 0)
		return cli_fail(cli, "%s", postroom_store_errmsg(store));
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_int_member(&cli->out, "matched", count);
		cli_end_object(cli);
	} else if (filter->table == POSTROOM_INBOX) {
		pr_buf_printf(&cli->out, "%" PRId64 " %s would be changed\n", count,
			      count == 1 ? "row" : "rows");
	} else {
		cli_put_messages(cli, count, "");
		pr_buf_puts(&cli->out, " would be changed\n");
	}
	return CLI_DONE;
}

static int print_group_json(void *context, const postroom_group *group)
{
	struct cli *cli = context;

	cli_begin_object(cli);
	cli_put_member(&cli->out, "fingerprint", group->fingerprint);
	cli_put_member(&cli->out, "example_error", group->example_error);
	cli_put_member(&cli->out, "topic", group->topic);
	if (group->handler)
		cli_put_member(&cli->out, "handler", group->handler);
	cli_put_member(&cli->out, "sink", *group->sink ? group->sink : PR_NONE);
	cli_put_int_member(&cli->out, "count", group->count);
	cli_put_time_member(&cli->out, "first_at", group->first_at_us);
	cli_put_time_member(&cli->out, "last_at", group->last_at_us);
	cli_put_member(&cli->out, "example_id", group->example_id);
	return cli_end_object(cli) ? 0 : 1;
}

static int print_group(void *context, const postroom_group *group)
{
	struct cli_table *table = context;

	cli_table_int(table, group->count);
	cli_table_cell(table, CLI_PLAIN, group->handler ? group->handler : group->topic);
	cli_table_cell(table, CLI_PLAIN, *group->sink ? group->sink : PR_NONE);
	cli_table_time(table, group->first_at_us);
	cli_table_time(table, group->last_at_us);
	cli_table_cell(table, CLI_PLAIN, group->example_id);
	cli_table_cell(table, CLI_DIM, group->fingerprint);
	return table->cli->out_failed;
}

int cli_print_groups(struct cli *cli, struct postroom_store *store, const postroom_filter *filter,
		     int32_t limit)
{
	static const char *const heads[] = { "COUNT", "TOPIC",	 "SINK",  "FIRST",
					     "LAST",  "EXAMPLE", "ERROR", NULL };
	static const char *const inbox_heads[] = { "COUNT", "HANDLER", "SINK",	"FIRST",
						   "LAST",  "EXAMPLE", "ERROR", NULL };
	struct cli_table table;
	int status, capped = 0;

	if (cli->global.json) {
		status = postroom_groups(store, filter, limit, print_group_json, cli, &capped);
	} else {
		cli_table_begin(&table, cli, filter->table == POSTROOM_INBOX ? inbox_heads : heads);
		status = postroom_groups(store, filter, limit, print_group, &table, &capped);
		cli_table_end(&table);
	}
	if (status < 0)
		return cli_fail(cli, "%s", postroom_store_errmsg(store));
	if (capped) {
		pr_log_event(&cli->log, PR_LOG_WARN, "OUTBOX_GROUPS_CAPPED");
		pr_log_str(&cli->log, "error", "only the newest 100000 dead rows are counted");
		pr_log_end(&cli->log);
	}
	return CLI_DONE;
}

static int put_attempt_json(void *context, const postroom_attempt *attempt)
{
	struct pr_buf *out = context;

	pr_buf_puts(out, out->len > 0 && out->data[out->len - 1] == '}' ? ",{" : "{");
	cli_put_int_member(out, "number", attempt->number);
	cli_put_time_member(out, "at", attempt->at_us);
	if (attempt->duration_ms >= 0)
		cli_put_int_member(out, "duration_ms", attempt->duration_ms);
	else
		cli_put_member(out, "duration_ms", NULL);
	cli_put_member(out, "worker", attempt->worker);
	cli_put_member(out, "sink", attempt->sink);
	cli_put_member(out, "error", attempt->error);
	pr_buf_putc(out, '}');
	return 0;
}

static int put_attempt(void *context, const postroom_attempt *attempt)
{
	struct cli *cli = context;
	PR_CLEANUP_BUF struct pr_buf line = { 0 };
	char at[PR_RFC3339_SIZE];

	pr_rfc3339(attempt->at_us, at);
	pr_buf_printf(&line, "%d at %s", attempt->number, at);
	if (attempt->duration_ms >= 0)
		pr_buf_printf(&line, " after %" PRId64 "ms", attempt->duration_ms);
	if (attempt->sink)
		pr_buf_printf(&line, " to %s", attempt->sink);
	if (attempt->worker)
		pr_buf_printf(&line, " by %s", attempt->worker);
	if (attempt->error)
		pr_buf_printf(&line, ": %s", attempt->error);
	cli_put_field(cli, "attempt", pr_buf_text(&line));
	return 0;
}

int cli_put_attempts(struct cli *cli, struct postroom_store *store, const postroom_filter *filter)
{
	int status;

	if (!cli->global.json)
		return postroom_attempts(store, filter, put_attempt, cli);
	cli_put_json_member(&cli->out, "attempts_log", "[", 1);
	status = postroom_attempts(store, filter, put_attempt_json, &cli->out);
	pr_buf_putc(&cli->out, ']');
	return status;
}

/* The name of the user, or uid-N; room outlives the result. */
static const char *find_actor(char *room, size_t size)
{
	struct passwd entry, *found = NULL;

	if (getpwuid_r(getuid(), &entry, room, size, &found) == 0 && found)
		return found->pw_name;
	snprintf(room, size, "uid-%lu", (unsigned long)getuid());
	return room;
}

void cli_log_action(struct cli *cli, const char *action, const postroom_filter *filter,
		    int64_t count)
{
	char room[1024];

	pr_log_action(&cli->log, action, filter, count, find_actor(room, sizeof(room)));
}

void cli_log_action_on(struct cli *cli, const char *action, const char *text, int64_t count)
{
	char room[1024];

	pr_log_action_on(&cli->log, action, text, count, find_actor(room, sizeof(room)));
}
