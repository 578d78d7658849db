/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/json.h"
#include "sink/sink.h"

#include <stdio.h>
#include <string.h>

static const char *const types[] = {
	[PR_PARAM_STRING] = "text", [PR_PARAM_FLAG] = "flag",
	[PR_PARAM_INT] = "number",  [PR_PARAM_DURATION] = "duration",
	[PR_PARAM_SIZE] = "size",   [PR_PARAM_CHOICE] = "choice",
	[PR_PARAM_LIST] = "list",   [PR_PARAM_PERIOD] = "period",
};

static void put_params_json(struct pr_buf *out, const struct pr_param *param)
{
	cli_put_json_member(out, "params", "[", 1);
	for (bool first = true; param && param->name; param++, first = false) {
		pr_buf_puts(out, first ? "{" : ",{");
		cli_put_member(out, "name", param->name);
		cli_put_member(out, "type", types[param->type]);
		cli_put_member(out, "default", param->fallback);
		cli_put_member(out, "help", param->help);
		pr_buf_putc(out, '}');
	}
	pr_buf_putc(out, ']');
}

static void put_sink_json(struct cli *cli, const struct pr_sink_ops *sink)
{
	cli_begin_object(cli);
	cli_put_member(&cli->out, "name", sink->schemes[0]);
	cli_put_json_member(&cli->out, "schemes", "[", 1);
	for (size_t i = 0; sink->schemes[i]; i++) {
		pr_buf_puts(&cli->out, i > 0 ? "," : "");
		pr_json_put_string(&cli->out, sink->schemes[i]);
	}
	pr_buf_putc(&cli->out, ']');
	cli_put_member(&cli->out, "summary", sink->summary);
	cli_put_member(&cli->out, "example", sink->example);
	put_params_json(&cli->out, sink->params);
	cli_end_object(cli);
}

static void put_one(struct cli *cli, const struct pr_sink_ops *sink)
{
	static const char *const heads[] = { "SETTING", "TYPE", "DEFAULT", "MEANING", NULL };
	struct cli_table table;

	pr_buf_printf(&cli->out, "%s: %s\nfor example %s\n", sink->schemes[0], sink->summary,
		      sink->example);
	cli_table_begin(&table, cli, heads);
	for (const struct pr_param *param = sink->params; param && param->name; param++) {
		cli_table_cell(&table, CLI_PLAIN, param->name);
		cli_table_cell(&table, CLI_PLAIN, types[param->type]);
		cli_table_cell(&table, CLI_PLAIN, param->fallback);
		cli_table_cell(&table, CLI_PLAIN, param->help);
	}
	cli_table_end(&table);
}

/* "file:" means the same as "file". */
static int find_sink(struct cli *cli, const char *name, const struct pr_sink_ops **ret)
{
	struct pr_err err;
	char url[64];

	snprintf(url, sizeof(url), "%.60s:", name);
	return pr_sink_find(url, ret, &err) < 0 ? cli_fail(cli, "sinks: %s", err.text) : CLI_DONE;
}

static void put_all(struct cli *cli)
{
	static const char *const heads[] = { "SINK", "EXAMPLE", "DESCRIPTION", NULL };
	struct cli_table table;

	cli_table_begin(&table, cli, heads);
	for (size_t i = 0; pr_sinks[i]; i++) {
		cli_table_cell(&table, CLI_PLAIN, pr_sinks[i]->schemes[0]);
		cli_table_cell(&table, CLI_PLAIN, pr_sinks[i]->example);
		cli_table_cell(&table, CLI_PLAIN, pr_sinks[i]->summary);
	}
	cli_table_end(&table);
}

static int sinks_run(struct cli *cli, void *options)
{
	const struct pr_sink_ops *sink = NULL;

	(void)options;
	if (cli->arg_count > 0) {
		int status = find_sink(cli, cli->args[0], &sink);

		if (status != CLI_DONE)
			return status;
	}
	if (cli->global.json) {
		for (size_t i = 0; pr_sinks[i]; i++) {
			if (!sink || sink == pr_sinks[i])
				put_sink_json(cli, pr_sinks[i]);
		}
	} else if (sink) {
		put_one(cli, sink);
	} else {
		put_all(cli);
	}
	return CLI_DONE;
}

const struct cli_command cmd_sinks = {
	.name = "sinks",
	.synopsis = "[NAME]",
	.summary = "List the sinks and their settings",
	.about = "Without NAME: lists all sinks. With NAME: lists the settings of that sink. In "
		 "the URL of a sink, settings follow a '?'.",
	.examples = "postroom sinks\npostroom sinks file",
	.max_args = 1,
	.run = sinks_run,
};
