/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>

static const char *const kinds[] = { [PR_LEASE_ROW] = "row", [PR_LEASE_LANE] = "lane" };

static void put_kind(struct cli *cli, enum pr_lease_kind kind)
{
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_member(&cli->out, "lease", kinds[kind]);
		cli_end_object(cli);
	} else {
		pr_buf_printf(&cli->out, "%s\n", kinds[kind]);
	}
}

static int lease_run(struct cli *cli, void *options)
{
	const char *word = cli->arg_count > 0 ? cli->args[0] : NULL;
	bool row = word && strcmp(word, kinds[PR_LEASE_ROW]) == 0;
	enum pr_lease_kind want = row ? PR_LEASE_ROW : PR_LEASE_LANE, kind;
	struct postroom_store *store = NULL;
	struct pr_err err = { 0 };
	int status;

	(void)options;
	if (word && !row && strcmp(word, kinds[PR_LEASE_LANE]) != 0)
		return cli_usage(cli, "lease: a lease is row or lane, not \"%s\"", word);
	status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	status = pr_store_lease_kind(store, word ? &want : NULL, &kind, &err);
	pr_store_close(store);
	if (status < 0)
		return cli_fail(cli, "%s", err.text);
	put_kind(cli, kind);
	return CLI_DONE;
}

const struct cli_command cmd_lease = {
	.name = "lease",
	.synopsis = "[row|lane]",
	.summary = "Show or change how messages are claimed",
	.about = "row: each message has its own lease. lane: messages are partitioned into 64 "
		 "lanes by their key, and one lease covers all messages of a batch from one lane. "
		 "This costs the database far less. The delivery guarantees are the same.\n\nThe "
		 "setting is stored in the database and applies to all relays. It may be changed "
		 "while they run. SQLite supports only row. Without an argument, the current "
		 "setting is printed.",
	.examples = "postroom lease\n"
		    "postroom -d postgres://app@db1/shop lease lane",
	.max_args = 1,
	.run = lease_run,
};
