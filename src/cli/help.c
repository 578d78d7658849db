/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>

#define HELP_COLUMN 29

static void put_heading(struct cli *cli, const char *text)
{
	cli_put_coloured(cli, CLI_BOLD, text, strlen(text));
	pr_buf_putc(&cli->out, '\n');
}

static void pad_to(struct pr_buf *out, size_t line_start, size_t column)
{
	if (column > 0 && out->len - line_start >= column) {
		pr_buf_putc(out, '\n');
		line_start = out->len;
	}
	while (!out->failed && out->len - line_start < column)
		pr_buf_putc(out, ' ');
}

static void put_default(struct pr_buf *out, const struct pr_param *param)
{
	if (param->type == PR_PARAM_CHOICE) {
		pr_buf_puts(out, " (");
		for (size_t i = 0; param->choices[i]; i++)
			pr_buf_printf(out, "%s%s", i > 0 ? ", " : "", param->choices[i]);
		if (param->fallback)
			pr_buf_printf(out, "; default %s", param->fallback);
		pr_buf_putc(out, ')');
	} else if (param->fallback && param->type != PR_PARAM_FLAG) {
		pr_buf_printf(out, " (default %s)", param->fallback);
	}
}

/* Wraps words at column 79 and indents the following lines; a blank line begins a paragraph. */
static void put_wrapped_help(struct pr_buf *out, size_t indent, const char *text)
{
	size_t column = indent;

	while (*text) {
		size_t len = strcspn(text, " \n");
		size_t gap = strspn(text + len, " \n");

		if (column > indent && column + 1 + len > 79) {
			pr_buf_putc(out, '\n');
			pad_to(out, out->len, indent);
			column = indent;
		} else if (column > indent) {
			pr_buf_putc(out, ' ');
			column++;
		}
		pr_buf_append(out, text, len);
		column += len;
		if (gap > 1 && text[len] == '\n') {
			pr_buf_puts(out, "\n\n");
			column = indent;
		}
		text += len + gap;
	}
	pr_buf_putc(out, '\n');
}

static void put_param(struct pr_buf *out, const struct pr_param *param)
{
	size_t start = out->len;
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	if (param->letter)
		pr_buf_printf(out, "  -%c, --%s", param->letter, param->name);
	else
		pr_buf_printf(out, "      --%s", param->name);
	if (param->value)
		pr_buf_printf(out, " %s", param->value);
	pad_to(out, start, HELP_COLUMN);
	pr_buf_puts(&text, param->help);
	put_default(&text, param);
	put_wrapped_help(out, HELP_COLUMN, pr_buf_text(&text));
}

static void put_lines(struct pr_buf *out, const char *before, const char *lines)
{
	do {
		size_t len = strcspn(lines, "\n");
		pr_buf_puts(out, before);
		pr_buf_append(out, lines, len);
		pr_buf_putc(out, '\n');
		lines += len + (lines[len] == '\n');
	} while (*lines);
}

static void put_synopsis(struct pr_buf *out, const struct cli_command *command)
{
	PR_CLEANUP_BUF struct pr_buf before = { 0 };

	pr_buf_printf(&before, "  postroom %s ", command->name);
	put_lines(out, pr_buf_text(&before), command->synopsis);
}

void cli_help_command(struct cli *cli, const struct cli_command *command)
{
	struct pr_buf *out = &cli->out;

	put_heading(cli, command->summary);
	pr_buf_putc(out, '\n');
	put_synopsis(out, command);
	pr_buf_putc(out, '\n');
	put_wrapped_help(out, 0, command->about);
	if (command->params) {
		pr_buf_putc(out, '\n');
		put_heading(cli, "Options");
		for (const struct pr_param *param = command->params; param->name; param++)
			put_param(out, param);
	}
	pr_buf_putc(out, '\n');
	put_heading(cli, "Options of every command");
	for (const struct pr_param *param = cli_global_params; param->name; param++)
		put_param(out, param);
	pr_buf_putc(out, '\n');
	put_heading(cli, "Examples");
	put_lines(out, "  ", command->examples);
}

void cli_help_overview(struct cli *cli)
{
	struct pr_buf *out = &cli->out;

	pr_buf_puts(out, "Postroom: transactional outbox and inbox for SQLite and PostgreSQL.\n\n"
			 "  postroom [OPTIONS] COMMAND [ARGUMENTS]\n\n");
	put_heading(cli, "Commands");
	for (size_t i = 0; cli_commands[i]; i++)
		pr_buf_printf(out, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
	pr_buf_putc(out, '\n');
	put_heading(cli, "Try it");
	pr_buf_puts(out,
		    "  postroom enqueue orders.created '{\"order\": 17}'    creates postroom.db\n"
		    "  postroom relay --to stdout: --drain                delivers it\n"
		    "  postroom list                                      shows its status\n"
		    "\n"
		    "The database is -d URL, else $POSTROOM_DB, else the one in -c FILE, else\n"
		    "sqlite:postroom.db. --json prints one JSON object per line. Exit status: 0\n"
		    "success, 1 failure, 2 wrong usage. More: postroom help COMMAND\n");
}
