/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/time.h"

#include <string.h>
#include <unistd.h>

struct purge_options {
	const char *status;
	int64_t older_than_ms;
	struct cli_filter filter;
	bool yes;
	bool dry_run;
};

static const struct pr_param params[] = {
	{ .name = "status",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct purge_options, status),
	  .value = "STATUS",
	  .help = "delivered or dead; required" },
	{ .name = "older-than",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct purge_options, older_than_ms),
	  .value = "DUR",
	  .max = CLI_AGE_MAX_MS,
	  .help = "only messages that became delivered or dead longer ago than this" },
	CLI_FILTER_PARAMS(struct purge_options, filter),
	{ .name = "yes",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct purge_options, yes),
	  .help = "do not ask for confirmation" },
	{ .name = "dry-run",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct purge_options, dry_run),
	  .help = "only print how many messages match" },
	{ 0 },
};

static void put_question(struct pr_buf *out, const postroom_filter *filter, int64_t count)
{
	char age[PR_DURATION_SIZE];

	pr_buf_puts(out, "Delete ");
	cli_put_count(out, count);
	pr_buf_printf(out, " %s message%s", filter->status, count == 1 ? "" : "s");
	if (filter->older_than_ms > 0) {
		pr_duration_format(filter->older_than_ms, age);
		pr_buf_printf(out, " older than %s", age);
	}
	pr_buf_puts(out, " permanently?");
}

static bool confirm_purge(const postroom_filter *filter, int64_t count)
{
	PR_CLEANUP_BUF struct pr_buf question = { 0 };

	put_question(&question, filter, count);
	return !question.failed && cli_confirm(question.data);
}

static int purge_messages(struct cli *cli, struct postroom_store *store, postroom_filter *filter,
			  int64_t expected)
{
	const postroom_filter asked = *filter;
	struct cli_steps steps;
	int64_t some = 0;
	int status;

	cli_steps_begin(&steps, cli, "purge", expected, &filter->older_than_ms);
	do
		status = postroom_purge_some(store, filter, CLI_STEP, &some);
	while (cli_steps_next(&steps, status, some));
	if (status >= 0 || steps.total > 0)
		cli_log_action(cli, "purge", &asked, steps.total);
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_int_member(&cli->out, "purged", steps.total);
		cli_end_object(cli);
	} else {
		cli_put_messages(cli, steps.total, filter->status);
		pr_buf_puts(&cli->out, " deleted\n");
	}
	return cli_steps_end(&steps, status, store);
}

static int ask_and_purge(struct cli *cli, struct postroom_store *store, postroom_filter *filter,
			 bool asking)
{
	int64_t count = 0;

	if ((asking || cli->err_terminal) && postroom_count(store, filter, INT64_MAX, &count) < 0)
		return cli_fail(cli, "%s", postroom_store_errmsg(store));
	if (asking && !confirm_purge(filter, count))
		return cli_fail(cli, "purge: nothing was deleted");
	return purge_messages(cli, store, filter, count);
}

static int purge_run(struct cli *cli, void *options)
{
	struct purge_options *given = options;
	postroom_filter filter = { .size = sizeof(filter),
				   .older_than_ms = given->older_than_ms,
				   .status = given->status };
	struct postroom_store *store = NULL;
	int status = cli_filter_read(cli, &given->filter, &filter);

	if (status != CLI_DONE)
		return status;
	if (!given->status)
		return cli_usage(
			cli,
			"purge: --status is missing: give --status delivered or --status dead");
	if (strcmp(given->status, "delivered") != 0 && strcmp(given->status, "dead") != 0)
		return cli_usage(cli,
				 "--status takes delivered or dead, not \"%s\"; "
				 "unfinished messages are never deleted",
				 given->status);
	status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	if (given->dry_run)
		status = cli_print_matched(cli, store, &filter);
	else
		status = ask_and_purge(cli, store, &filter, !given->yes && isatty(STDIN_FILENO));
	postroom_store_close(store);
	return status;
}

const struct cli_command cmd_purge = {
	.name = "purge",
	.synopsis = "--status delivered|dead [--older-than DUR] [FILTERS]",
	.summary = "Delete delivered or dead messages permanently",
	.about = "Deletes in small transactions, so that producers and relays can continue. Ctrl-C "
		 "stops after the current one. On a terminal it asks for confirmation. The dedupe "
		 "keys of deleted messages are kept "
		 "for the --dedupe-retention of the relay. Deleting a dead message unblocks the "
		 "messages held behind it (relay --on-dead block).",
	.examples = "postroom purge --status delivered --older-than 7d\n"
		    "postroom purge --status dead --topic 'trial.*' --yes\n"
		    "postroom purge --status dead --error 'no such user' --dry-run",
	.params = params,
	.options_size = sizeof(struct purge_options),
	.run = purge_run,
};
