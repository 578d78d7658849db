/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

struct retry_options {
	bool dead;
	struct cli_filter filter;
};

static const struct pr_param params[] = {
	{ .name = "dead",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct retry_options, dead),
	  .help = "every dead message that the filters let through" },
	CLI_FILTER_PARAMS(struct retry_options, filter),
	{ 0 },
};

static int retry_named(struct cli *cli, struct postroom_store *store)
{
	int status = CLI_DONE;

	for (size_t i = 0; i < cli->arg_count; i++) {
		if (postroom_retry(store, cli->args[i]) < 0) {
			status = cli_fail(cli, "%s", postroom_store_errmsg(store));
			continue;
		}
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

static int retry_filtered(struct cli *cli, struct postroom_store *store,
			  postroom_filter *filter)
{
	struct cli_steps steps;
	int64_t some = 0;
	int status;

	cli_steps_begin(&steps, cli, "retry", 0, &filter->older_than_ms);
	do
		status = postroom_retry_some(store, filter, CLI_STEP, &some);
	while (cli_steps_go_on(&steps, status, some));
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_int_member(&cli->out, "retried", steps.total);
		cli_end_object(cli);
	} else {
		cli_put_messages(cli, steps.total, "");
		pr_buf_printf(&cli->out, " %s pending again\n", steps.total == 1 ? "is" : "are");
	}
	if (status < 0)
		return cli_fail(cli, "%s", postroom_store_errmsg(store));
	return CLI_DONE;
}

static int run(struct cli *cli, void *options)
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
		return cli_usage(cli, "retry: filters go with --dead, not with ids");
	status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	if (given->dead)
		status = retry_filtered(cli, store, &filter);
	else
		status = retry_named(cli, store);
	postroom_store_close(store);
	return status;
}

const struct cli_command cmd_retry = {
	.name = "retry",
	.synopsis = "ID...\n--dead [FILTERS]",
	.summary = "Bring dead messages back to life",
	.about = "Dead messages become pending: attempts 0, due at once, at the end of "
		 "their key's order; the last error stays readable. An id that is not a "
		 "dead message's is an error (exit 1); the others are brought back all the "
		 "same.",
	.examples = "postroom retry 019a8f4e-7c11-7a52-8d53-0c9f4b7f2a10\n"
		    "postroom retry --dead --topic 'orders.*'",
	.params = params,
	.options_size = sizeof(struct retry_options),
	.max_args = CLI_ANY_ARGS,
	.run = run,
};
