/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bar ends with a carriage return and is shorter than any log line, so that a
 * log line from another thread overwrites it completely.
 */
#include "cli/cli.h"

#include "base/time.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define REDRAW_US 100000
#define BAR_WIDTH 20

static void put_bar(struct pr_buf *line, int64_t done, int64_t total)
{
	int64_t percent = done >= total ? 100 : done * 100 / total;
	int64_t full = percent * BAR_WIDTH / 100;

	pr_buf_putc(line, '[');
	for (int64_t i = 0; i < BAR_WIDTH; i++)
		pr_buf_putc(line, i < full ? '#' : '.');
	pr_buf_printf(line, "] %3d%% ", (int)percent);
}

void cli_progress_begin(struct cli_progress *progress, struct cli *cli, const char *label,
			int64_t total)
{
	*progress = (struct cli_progress){
		.cli = cli,
		.label = label,
		.total = total,
		.started_us = pr_mono_us(),
	};
}

void cli_progress_show(struct cli_progress *progress, int64_t done, int64_t count)
{
	if (!progress->cli->err_terminal)
		return;
	int64_t now_us = pr_mono_us();
	if (now_us - progress->drawn_us < REDRAW_US)
		return;
	progress->drawn_us = now_us;

	PR_CLEANUP_BUF struct pr_buf line = { 0 };
	int64_t elapsed_ms = (now_us - progress->started_us) / 1000;
	pr_buf_printf(&line, "\r\033[K%s ", progress->label);
	if (progress->total > 0)
		put_bar(&line, done, progress->total);
	cli_put_count(&line, count);
	if (elapsed_ms > 0) {
		pr_buf_puts(&line, "  ");
		cli_put_count(&line, count * 1000 / elapsed_ms);
		pr_buf_puts(&line, "/s");
	}
	pr_buf_putc(&line, '\r');
	ssize_t written = write(STDERR_FILENO, line.data, line.len);
	(void)written; /* an error is ignored */
	progress->cli->progress_shown = true;
}

void cli_progress_end(struct cli_progress *progress)
{
	if (!progress->cli->progress_shown)
		return;
	ssize_t written = write(STDERR_FILENO, "\r\033[K", 4);
	(void)written;
	progress->cli->progress_shown = false;
}

static const int ends[] = { SIGINT, SIGTERM };
static volatile sig_atomic_t interrupted;

static void end_steps(int number)
{
	(void)number;
	interrupted = 1;
}

static void catch_step_signals(struct cli_steps *steps)
{
	struct sigaction action = { .sa_handler = end_steps,
				    .sa_flags = (int)(SA_RESTART | SA_RESETHAND) };

	interrupted = 0;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		sigaction(ends[i], &action, &steps->before[i]);
		/* As with nohup. */
		if (steps->before[i].sa_handler == SIG_IGN)
			sigaction(ends[i], &steps->before[i], NULL);
	}
}

void cli_steps_begin(struct cli_steps *steps, struct cli *cli, const char *label, int64_t expected,
		     int64_t *older_than_ms)
{
	*steps = (struct cli_steps){ .older_than_ms = older_than_ms, .least_ms = *older_than_ms };
	catch_step_signals(steps);
	cli_progress_begin(&steps->progress, cli, label, expected);
}

bool cli_steps_next(struct cli_steps *steps, int status, int64_t some)
{
	if (status >= 0)
		steps->total += some;
	cli_progress_show(&steps->progress, steps->total, steps->total);
	*steps->older_than_ms = steps->least_ms +
				(pr_mono_us() - steps->progress.started_us) / 1000;
	steps->interrupted = status >= 0 && some == CLI_STEP && interrupted;
	if (status >= 0 && some == CLI_STEP && !steps->interrupted)
		return true;
	cli_progress_end(&steps->progress);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaction(ends[i], &steps->before[i], NULL);
	return false;
}

int cli_steps_end(const struct cli_steps *steps, int status, const struct postroom_store *store)
{
	struct cli *cli = steps->progress.cli;

	if (status < 0)
		return cli_fail(cli, "%s", postroom_store_errmsg(store));
	if (steps->interrupted)
		return cli_fail(cli, "%s: interrupted; the others are unchanged",
				steps->progress.label);
	return CLI_DONE;
}

bool cli_confirm(const char *question)
{
	char answer[16];

	if (dprintf(STDERR_FILENO, "%s [y/N] ", question) < 0 ||
	    !fgets(answer, sizeof(answer), stdin))
		return false;
	answer[strcspn(answer, "\r\n")] = '\0';
	return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}
