/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One write(), so that lines of several processes do not mix on stderr. */
__attribute__((format(printf, 2, 0))) static void print_error(struct cli *cli, const char *format,
							      va_list args)
{
	char text[2048];
	PR_CLEANUP_BUF struct pr_buf line = { 0 };

	vsnprintf(text, sizeof(text), format, args);
	pr_log_flush(&cli->log);
	if (cli->progress_shown)
		pr_buf_puts(&line, "\r\033[K");
	cli->progress_shown = false;
	pr_buf_puts(&line, cli->err_colour ? "\033[31mpostroom:\033[0m " : "postroom: ");
	cli_put_text(&line, text);
	pr_buf_putc(&line, '\n');
	ssize_t written = write(STDERR_FILENO, line.data, line.len);
	(void)written; /* an error cannot be reported */
}

int cli_fail(struct cli *cli, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_error(cli, format, args);
	va_end(args);
	return CLI_FAILED;
}

int cli_usage(struct cli *cli, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_error(cli, format, args);
	va_end(args);
	return CLI_USAGE;
}

int cli_config_fail(struct cli *cli, const struct pr_faults *faults, const struct pr_err *err)
{
	const char *line = pr_buf_text(&faults->text);

	if (faults->count == 0)
		return cli_fail(cli, "configuration: %s", err->text);
	while (*line) {
		size_t len = strcspn(line, "\n");

		cli_usage(cli, "%.*s", (int)len, line);
		line += len + (line[len] == '\n');
	}
	if (faults->count > PR_FAULTS_MAX)
		cli_usage(cli, "and %zu more", faults->count - PR_FAULTS_MAX);
	return CLI_USAGE;
}
