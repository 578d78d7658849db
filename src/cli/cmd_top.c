/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A live view of a relay or a database.
 *
 * 1. At exit the terminal is always restored: screen, cursor, echo.
 * 2. A signal handler only sets a flag and ends the current wait.
 */
#include "base/time.h"
#include "cli/top.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define DEFAULT_URL "http://127.0.0.1:8025"

struct top_options {
	const char *url;
	const char *token;
	int64_t interval_ms;
	int64_t count;
};

static const struct pr_param params[] = {
	{ .name = "url",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct top_options, url),
	  .value = "URL",
	  .help = "admin server of a relay; none reads the database only (default " DEFAULT_URL
		  ")" },
	{ .name = "token",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct top_options, token),
	  .value = "TOKEN",
	  .help = "token of that server (default $POSTROOM_ADMIN_TOKEN)" },
	{ .name = "interval",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct top_options, interval_ms),
	  .value = "DUR",
	  .fallback = "2s",
	  .min = 100,
	  .max = 3600000,
	  .help = "time between two updates" },
	{ .name = "count",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct top_options, count),
	  .value = "N",
	  .max = 1000000000,
	  .help = "exit after this many updates (default: until interrupted)" },
	{ 0 },
};

static volatile sig_atomic_t stopped, resized;
static int wakeup[2] = { -1, -1 }; /* a signal may arrive just before a wait begins */

static void top_on_signal(int signal)
{
	int before = errno;
	ssize_t ignored = write(wakeup[1], "", 1);

	(void)ignored; /* the pipe is full: the wait ends anyway */
	if (signal == SIGWINCH)
		resized = 1;
	else
		stopped = 1;
	errno = before;
}

static bool catch_top_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH };
	struct sigaction action = {
		.sa_handler = top_on_signal
	}; /* no SA_RESTART: it ends waits */

	if (pipe2(wakeup, O_CLOEXEC | O_NONBLOCK) < 0)
		return false;
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
	return true;
}

struct top {
	struct cli *cli;
	const struct top_options *given;
	const char *url;   /* NULL: the database only */
	const char *token; /* NULL if none */
	struct postroom_store *store;
	struct top_view view;
	bool screen; /* draw on a terminal */
	bool keys;   /* read keys from the terminal */
	struct termios before;
};

static void open_screen(struct top *top)
{
	static const char begin[] = "\033[?1049h\033[?25l";
	struct termios now;

	if (!top->cli->out_terminal)
		return;
	top->screen = true;
	pr_buf_puts(&top->cli->out, begin);
	if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &top->before) < 0)
		return;
	now = top->before;
	now.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
	/* A suspended process must not leave the alternate screen active. */
	now.c_cc[VSUSP] = _POSIX_VDISABLE;
	now.c_cc[VMIN] = 0;
	now.c_cc[VTIME] = 0;
	top->keys = tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

static void close_screen(struct top *top)
{
	if (!top->screen)
		return;
	pr_buf_puts(&top->cli->out, "\033[?25h\033[?1049l");
	cli_flush(top->cli);
	if (top->keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
}

static int read_database(struct top *top, struct pr_err *err)
{
	const struct pr_store_config config = {
		.url = top->cli->global.db,
		.busy_wait_ms = CLI_BUSY_WAIT_MS,
		.schema = top->cli->global.schema,
	};
	int status = POSTROOM_OK;

	if (!top->store) {
		status = pr_store_open(&config, &top->store, err);
		if (status >= 0)
			status = top->store->ops->check_schema(top->store, PR_SCHEMA_COMPLETE, err);
	}
	if (status >= 0)
		status = top_read_store(top->store, &top->view, err);
	if (status < 0) {
		pr_store_close(top->store);
		top->store = NULL;
	}
	return status;
}

/* Collects the current data. An error is displayed, unless there is no data yet. */
static int read_view(struct top *top, bool first)
{
	struct top_view *view = &top->view;
	struct pr_err api = { 0 }, err = { 0 };

	*view = (struct top_view){ .p50 = -1, .p99 = -1, .oldest_age = -1 };
	if (top->url && top_read_api(top->url, top->token, view, &api))
		return CLI_DONE;
	if (stopped)
		return CLI_DONE;
	if (api.status == POSTROOM_INVALID)
		return cli_usage(top->cli, "top: --url %s", api.text);
	snprintf(view->source, sizeof(view->source), "database");
	if (top->url)
		snprintf(view->note, sizeof(view->note), "no relay: %.200s; counts of the database",
			 api.text);
	if (read_database(top, &err) >= 0)
		return CLI_DONE;
	if (first && top->url && err.status != POSTROOM_INVALID)
		return cli_fail(top->cli, "top: no relay: %s; %s", api.text, err.text);
	if (first)
		return cli_store_fail(top->cli, &err);
	snprintf(view->note, sizeof(view->note), "%.290s", err.text);
	return CLI_DONE;
}

static void show_top(struct top *top)
{
	struct winsize size = { .ws_row = 24, .ws_col = 80 };

	if (top->screen) {
		if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 ||
		    size.ws_col == 0)
			size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
		top_draw(top->cli, &top->view, size.ws_row, size.ws_col);
	} else if (top->cli->global.json) {
		top_print_json(top->cli, &top->view);
	} else {
		top_print(top->cli, &top->view);
	}
}

/* True if the user pressed a key to quit. */
static bool read_keys(const struct top *top)
{
	char keys[64];
	ssize_t n = top->keys ? read(STDIN_FILENO, keys, sizeof(keys)) : 0;

	return n > 0 && (memchr(keys, 'q', (size_t)n) || memchr(keys, 'Q', (size_t)n));
}

/* Waits for the next update; true: quit. */
static bool wait_for_update(struct top *top)
{
	int64_t until_us = pr_mono_us() + top->given->interval_ms * 1000, left_ms;

	while (!stopped && (left_ms = (until_us - pr_mono_us() + 999) / 1000) > 0) {
		struct pollfd fds[2] = {
			{ .fd = top->keys ? STDIN_FILENO : -1, .events = POLLIN },
			{ .fd = wakeup[0], .events = POLLIN },
		};
		char ignored[64];

		if (poll(fds, 2, (int)left_ms) > 0 && fds[0].revents &&
		    (read_keys(top) || (fds[0].revents & (POLLHUP | POLLERR))))
			return true;
		if (fds[1].revents && read(wakeup[0], ignored, sizeof(ignored)) > 0 && resized) {
			resized = 0;
			show_top(top);
			cli_flush(top->cli);
		}
	}
	return stopped;
}

static int watch(struct top *top)
{
	int64_t shown = 0;
	int status = read_view(top, true);

	if (status != CLI_DONE || stopped)
		return status;
	open_screen(top);
	for (;;) {
		show_top(top);
		if (!cli_flush(top->cli) || ++shown == top->given->count || wait_for_update(top))
			break;
		status = read_view(top, false);
		if (status != CLI_DONE || stopped)
			break;
	}
	close_screen(top);
	return status;
}

static int top_run(struct cli *cli, void *options)
{
	const struct top_options *given = options;
	struct top top = { .cli = cli, .given = given, .url = given->url, .token = given->token };
	int status;

	if (!top.url)
		top.url = DEFAULT_URL;
	else if (strcmp(top.url, "none") == 0)
		top.url = NULL;
	if (!top.token)
		top.token = getenv("POSTROOM_ADMIN_TOKEN");
	if (!catch_top_signals())
		return cli_fail(cli, "top: cannot make a pipe: %s", strerror(errno));
	status = watch(&top);
	pr_store_close(top.store);
	return status;
}

const struct cli_command cmd_top = {
	.name = "top",
	.synopsis = "[--url URL] [OPTIONS]",
	.summary = "Watch throughput, backlog, sinks and errors live",
	.about = "Reads the admin server of a relay. If no server answers, it shows the counts of "
		 "the database, without rates and sinks. Press q or Ctrl-C to quit. In a pipe it "
		 "prints one line per update, or one JSON object with --json.",
	.examples = "postroom top\n"
		    "postroom top --url http://relay-1:8025 --token \"$TOKEN\"\n"
		    "postroom top --url none --count 1 | cat",
	.params = params,
	.options_size = sizeof(struct top_options),
	.run = top_run,
};
