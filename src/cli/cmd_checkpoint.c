/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/job.h"

#include <string.h>

static void print_checkpoint(struct cli *cli, const char *checkpoint)
{
	if (!checkpoint)
		checkpoint = "null";
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_json_member(&cli->out, "checkpoint", checkpoint, strlen(checkpoint));
		cli_end_object(cli);
	} else {
		pr_buf_puts(&cli->out, checkpoint);
		pr_buf_putc(&cli->out, '\n');
	}
}

static int checkpoint_run(struct cli *cli, void *options)
{
	PR_CLEANUP_BUF struct pr_buf content = { 0 };
	const char *checkpoint = cli->arg_count > 0 ? cli->args[0] : NULL;
	struct pr_err err = { 0 };
	struct cli_job job;
	int status = cli_job_read(cli, "checkpoint", &job);

	(void)options;
	if (status != CLI_DONE)
		return status;
	if (!checkpoint) {
		print_checkpoint(cli, job.checkpoint);
		return CLI_DONE;
	}
	if (strcmp(checkpoint, "-") == 0) {
		status = cli_read_stdin(cli, job.doing, "checkpoint", POSTROOM_PAYLOAD_DEFAULT_MAX,
					&content);
		if (status != CLI_DONE)
			return status;
		checkpoint = content.data;
	}
	if (pr_progress_check("checkpoint", checkpoint, &err) < 0)
		return cli_fail(cli, "%s; nothing was changed", err.text);
	return cli_job_write(cli, &job, NULL, NULL, checkpoint);
}

const struct cli_command cmd_checkpoint = {
	.name = "checkpoint",
	.synopsis = "[JSON]",
	.summary = "In a handler: print or replace the job's checkpoint",
	.about = "For commands that postroom consume --exec runs. A job can store one JSON value "
		 "from which it can resume. The value survives failures, crashes and takeovers. "
		 "Without JSON, the value is printed, or null if there is none. With JSON, the "
		 "value is replaced; - reads it from stdin. The maximum size is 1 MiB.\n\nExits 1 "
		 "and changes nothing if another worker has taken over the job, or if the argument "
		 "is not JSON.",
	.examples = "page=$(postroom checkpoint | jq '.page // 1')\n"
		    "postroom checkpoint \"{\\\"page\\\": $((page + 1))}\"",
	.max_args = 1,
	.run = checkpoint_run,
};
