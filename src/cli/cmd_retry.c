/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

struct retry_options {
	bool dead;
	bool dry_run;
	struct cli_filter filter;
};

static const struct pr_param params[] = {
	{ .name = "dead",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct retry_options, dead),
	  .help = "all dead messages that match the filters" },
	{ .name = "dry-run",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct retry_options, dry_run),
	  .help = "with --dead: only print how many messages match" },
	CLI_FILTER_PARAMS(struct retry_options, filter),
	{ 0 },
};

static int retry_named_message(struct cli *cli, struct postroom_store *store)
{
	int status = CLI_DONE;

	for (size_t i = 0; i < cli->arg_count; i++) {
		const postroom_filter one = { .size = sizeof(one), .id = cli->args[i] };

		int result = postroom_retry(store, &one);

		if (result < 0) {
			status = cli_row_fail(cli, "", result, store);
			continue;
		}
		cli_log_action(cli, "retry", &one, 1);
		if (cli->global.json) {
			cli_begin_object(cli);
			cli_put_member(&cli->out, "id", cli->args[i]);
			cli_put_member(&cli->out, "status", "pending");
			cli_end_object(cli);
		} else {
			pr_buf_printf(&cli->out, "%s is pending again\n", cli->args[i]);
		}
	}
	return status;
}

static int retry_filtered(struct cli *cli, struct postroom_store *store, postroom_filter *filter)
{
	const postroom_filter asked = *filter;
	struct cli_steps steps;
	int64_t some = 0;
	int status;

	cli_steps_begin(&steps, cli, "retry", 0, &filter->older_than_ms);
	do
		status = postroom_retry_some(store, filter, CLI_STEP, &some);
	while (cli_steps_next(&steps, status, some));
	if (status >= 0 || steps.total > 0)
		cli_log_action(cli, "retry", &asked, steps.total);
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_int_member(&cli->out, "retried", steps.total);
		cli_end_object(cli);
	} else {
		cli_put_messages(cli, steps.total, "");
		pr_buf_printf(&cli->out, " %s pending again\n", steps.total == 1 ? "is" : "are");
	}
	return cli_steps_end(&steps, status, store);
}

static int retry_run(struct cli *cli, void *options)
{
	struct retry_options *given = options;
	postroom_filter filter = { .size = sizeof(filter), .status = "dead" };
	struct postroom_store *store = NULL;
	int status = cli_filter_read(cli, &given->filter, &filter);

	if (status != CLI_DONE)
		return status;
	if (given->dead == (cli->arg_count > 0))
		return cli_usage(cli, "retry: give either the messages' ids or --dead");
	if (!given->dead && cli_filter_any(&given->filter))
		return cli_usage(cli, "retry: filters require --dead and exclude ids");
	if (!given->dead && given->dry_run)
		return cli_usage(cli, "retry: --dry-run requires --dead and excludes ids");
	status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	if (given->dry_run)
		status = cli_print_matched(cli, store, &filter);
	else if (given->dead)
		status = retry_filtered(cli, store, &filter);
	else
		status = retry_named_message(cli, store);
	postroom_store_close(store);
	return status;
}

const struct cli_command cmd_retry = {
	.name = "retry",
	.synopsis = "ID...\n--dead [FILTERS]",
	.summary = "Retry dead messages",
	.about =
		"Dead messages become pending again: with 0 attempts, due immediately, and at the "
		"end of the order of their key. The last error is kept. An id that does not belong "
		"to a dead message is an error (exit 1); the other messages are retried anyway. "
		"With --dead, Ctrl-C stops after the current transaction.",
	.examples = "postroom retry 019a8f4e-7c11-7a52-8d53-0c9f4b7f2a10\n"
		    "postroom retry --dead --topic 'orders.*'\n"
		    "postroom retry --dead --error 'connection refused' --since 2h --dry-run",
	.params = params,
	.options_size = sizeof(struct retry_options),
	.max_args = CLI_ANY_ARGS,
	.run = retry_run,
};
