/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/json.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FLUSH_AT ((size_t)64 * 1024)

bool cli_flush(struct cli *cli)
{
	size_t done = 0;

	if (cli->out.failed && !cli->out_failed) {
		cli->out_failed = true;
		errno = ENOMEM;
	}
	while (!cli->out_failed && done < cli->out.len) {
		ssize_t n = write(STDOUT_FILENO, cli->out.data + done, cli->out.len - done);
		if (n >= 0)
			done += (size_t)n;
		else if (errno != EINTR)
			cli->out_failed = true;
	}
	if (cli->out_failed && !cli->out_errno)
		cli->out_errno = errno;
	pr_buf_reset(&cli->out);
	return !cli->out_failed;
}

bool cli_flush_some(struct cli *cli)
{
	if (cli->out_failed)
		return false;
	return (cli->out.len < FLUSH_AT && !cli->out.failed) || cli_flush(cli);
}

static void put_visible(struct pr_buf *out, const char *text, size_t len, bool layout)
{
	const unsigned char *end = (const unsigned char *)text + len;

	for (const unsigned char *p = (const unsigned char *)text; p < end; p++) {
		/* C1 controls, U+0080 to U+009F, are C2 80 to C2 9F in UTF-8. */
		bool c1 = p[0] == 0xc2 && p + 1 < end && p[1] >= 0x80 && p[1] <= 0x9f;
		bool space = *p == '\n' || *p == '\t';

		if (space && !layout)
			pr_buf_puts(out, *p == '\n' ? "\\n" : "\\t");
		else if ((*p < 0x20 && !space) || *p == 0x7f)
			pr_buf_printf(out, "\\x%02x", *p);
		else if (c1)
			pr_buf_printf(out, "\\x%02x", *++p);
		else
			pr_buf_putc(out, (char)*p);
	}
}

void cli_put_text(struct pr_buf *out, const char *text)
{
	put_visible(out, text, strlen(text), false);
}

void cli_put_lines(struct pr_buf *out, const char *text, size_t len)
{
	put_visible(out, text, len, true);
}

void cli_put_count(struct pr_buf *out, int64_t number)
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRId64, number);

	for (int i = 0; i < len; i++) {
		pr_buf_putc(out, digits[i]);
		int left = len - 1 - i;
		if (left > 0 && left % 3 == 0 && digits[i] != '-')
			pr_buf_putc(out, ',');
	}
}

void cli_put_messages(struct cli *cli, int64_t number, const char *status)
{
	if (cli->out_terminal)
		cli_put_count(&cli->out, number);
	else
		pr_buf_printf(&cli->out, "%" PRId64, number);
	pr_buf_printf(&cli->out, " %s%smessage%s", status, *status ? " " : "",
		      number == 1 ? "" : "s");
}

void cli_begin_object(struct cli *cli)
{
	pr_buf_putc(&cli->out, '{');
}

bool cli_end_object(struct cli *cli)
{
	pr_buf_puts(&cli->out, "}\n");
	return cli_flush_some(cli);
}

static const char *const colour_codes[] = {
	[CLI_PLAIN] = "",	 [CLI_BOLD] = "\033[1m",   [CLI_DIM] = "\033[2m",
	[CLI_RED] = "\033[31m",	 [CLI_GREEN] = "\033[32m", [CLI_YELLOW] = "\033[33m",
	[CLI_CYAN] = "\033[36m",
};

void cli_put_coloured(struct cli *cli, enum cli_colour colour, const char *text, size_t len)
{
	bool coloured = cli->out_colour && colour != CLI_PLAIN;

	if (coloured)
		pr_buf_puts(&cli->out, colour_codes[colour]);
	pr_buf_append(&cli->out, text, len);
	if (coloured)
		pr_buf_puts(&cli->out, "\033[0m");
}

enum cli_colour cli_status_colour(const char *status)
{
	if (strcmp(status, "delivered") == 0 || strcmp(status, "completed") == 0)
		return CLI_GREEN;
	if (strcmp(status, "dead") == 0)
		return CLI_RED;
	if (strcmp(status, "processing") == 0 || strcmp(status, "active") == 0)
		return CLI_CYAN;
	return CLI_YELLOW;
}

size_t cli_columns(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	return 80;
}

void cli_put_field(struct cli *cli, const char *name, const char *text)
{
	PR_CLEANUP_BUF struct pr_buf label = { 0 };

	if (!text)
		return;
	pr_buf_printf(&label, "%-16s", name);
	cli_put_coloured(cli, CLI_DIM, pr_buf_text(&label), label.len);
	cli_put_text(&cli->out, text);
	pr_buf_putc(&cli->out, '\n');
}

void cli_put_time_field(struct cli *cli, const char *name, int64_t time_us)
{
	char text[PR_RFC3339_SIZE];

	if (time_us == 0)
		return;
	pr_rfc3339(time_us, text);
	cli_put_field(cli, name, text);
}

void cli_put_number_field(struct cli *cli, const char *name, int64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, number);
	cli_put_field(cli, name, text);
}
