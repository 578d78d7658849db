/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>

struct showing {
	struct cli *cli;
	struct postroom_store *store;
	int status;
};

/* Only columns that have a value; --json prints every column. */
static int print_shown_row(void *context, const postroom_row *row)
{
	struct showing *showing = context;
	struct cli *cli = showing->cli;

	cli_put_field(cli, "id", row->id);
	cli_put_field(cli, "status", row->status);
	cli_put_field(cli, "namespace", row->ns);
	cli_put_field(cli, "topic", row->topic);
	cli_put_field(cli, "key", row->key);
	cli_put_field(cli, "tenant_id", row->tenant_id);
	cli_put_field(cli, "dedupe_key", row->dedupe_key);
	cli_put_field(cli, "correlation_id", row->correlation_id);
	cli_put_progress_fields(cli, row);
	cli_put_time_field(cli, "delivered_at", row->delivered_at_us);
	cli_put_time_field(cli, "updated_at", row->updated_at_us);
	if (row->body)
		cli_put_number_field(cli, "body_bytes", (int64_t)row->body_len);
	showing->status = cli_put_attempts(cli, showing->store, POSTROOM_FILTER(.id = row->id));
	pr_buf_putc(&cli->out, '\n');
	if (cli->out_terminal)
		cli_put_lines(&cli->out, row->payload, row->payload_len);
	else
		pr_buf_append(&cli->out, row->payload, row->payload_len);
	pr_buf_putc(&cli->out, '\n');
	return 0;
}

static int print_shown_json(void *context, const postroom_row *row)
{
	struct showing *showing = context;
	struct cli *cli = showing->cli;

	cli_begin_object(cli);
	cli_put_row_members(&cli->out, row);
	showing->status = cli_put_attempts(cli, showing->store, POSTROOM_FILTER(.id = row->id));
	cli_end_object(cli);
	return 0;
}

static int show_run(struct cli *cli, void *options)
{
	struct showing showing = { .cli = cli };
	int status = cli_open_store(cli, CLI_OPEN_EXISTING, &showing.store);

	(void)options;
	if (status != CLI_DONE)
		return status;
	status = postroom_show(showing.store, POSTROOM_FILTER(.id = cli->args[0]),
			       cli->global.json ? print_shown_json : print_shown_row, &showing);
	if (status >= 0)
		status = showing.status;
	if (status < 0)
		cli_row_fail(cli, "", status, showing.store);
	postroom_store_close(showing.store);
	return status < 0 ? CLI_FAILED : CLI_DONE;
}

const struct cli_command cmd_show = {
	.name = "show",
	.synopsis = "ID",
	.summary = "Show one message with its payload",
	.about = "Prints the columns that have a value, the last ten failed attempts, and the "
		 "payload as it was enqueued. --json prints one object with every column, and the "
		 "failed attempts as attempts_log.",
	.examples = "postroom show 019a8f4e-7c11-7a52-8d53-0c9f4b7f2a10\n"
		    "postroom show --json 019a8f4e-7c11-7a52-8d53-0c9f4b7f2a10 | jq .payload",
	.min_args = 1,
	.max_args = 1,
	.run = show_run,
};
