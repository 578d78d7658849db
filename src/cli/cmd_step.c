/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of a job: completed once, then recorded with its output.
 *
 * 1. Nothing runs if another worker has taken over the job, or if the step is recorded.
 * 2. A step is done if its command ended on its own with status 0. A command that was
 *    killed by a timeout or a signal is not done, whatever its status.
 * 3. Output is passed on immediately, as fast as the reader accepts it. Waiting for the
 *    reader never delays the timeout or a signal.
 */
#include "cli/job.h"

#include "base/json.h"
#include "base/text.h"
#include "base/time.h"
#include "sink/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define KEEP_MAX ((size_t)64 * 1024)
#define KILL_AFTER_MS 2000

/* More than the capacity of a pipe; a background process of the command may write forever. */
#define LATE_MAX ((size_t)1024 * 1024)

enum { EXIT_BY_SIGNAL = 128 };

struct step_options {
	int64_t timeout_ms;
	bool show;
};

#define OPTION(member) offsetof(struct step_options, member)

static const struct pr_param params[] = {
	{ .name = "timeout",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(timeout_ms),
	  .value = "DUR",
	  .min = 1,
	  .max = POSTROOM_DELAY_MAX_MS,
	  .help = "time limit; then the command and all its child processes receive TERM, and KILL "
		  "2 seconds later (default: the time limit of the job)" },
	{ .name = "show",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(show),
	  .help = "list the completed steps with their output" },
	{ 0 },
};

struct running {
	struct cli *cli;
	struct pr_child child;
	bool ended;
	int out;		      /* output of the command; -1: at end of file */
	char piece[PIPE_BUF];	      /* a writable pipe accepts this much */
	size_t piece_len, piece_done; /* read, and passed on */
	size_t late;		      /* read after the command had ended */
	struct pr_buf captured;
	size_t dropped;
	int signals;
	int signal; /* the received signal, or 0 */
	bool timed_out;
	int64_t deadline_us; /* INT64_MAX: none */
};

static void cut_short(struct running *run)
{
	pr_child_end(&run->child, pr_mono_us(), KILL_AFTER_MS);
}

static void step_on_signal(struct running *run)
{
	struct signalfd_siginfo info;

	if (read(run->signals, &info, sizeof(info)) != sizeof(info) || run->signal)
		return;
	run->signal = (int)info.ssi_signo;
	if (!run->ended && !run->timed_out)
		cut_short(run);
}

static void close_out(struct running *run)
{
	close(run->out);
	run->out = -1;
}

static void drop_output(struct running *run)
{
	run->piece_len = 0;
	if (run->out >= 0)
		close_out(run);
}

static void keep_output(struct running *run, size_t len)
{
	size_t room = KEEP_MAX - run->captured.len;
	size_t captured = len < room ? len : room;

	pr_buf_append(&run->captured, run->piece, captured);
	run->dropped += len - captured;
}

static void take_piece(struct running *run)
{
	ssize_t n = read(run->out, run->piece, sizeof(run->piece));

	if (n < 0 && errno == EINTR)
		return;
	if (n > 0) {
		keep_output(run, (size_t)n);
		run->piece_len = run->cli->out_failed ? 0 : (size_t)n;
		run->piece_done = 0;
		run->late += run->ended ? (size_t)n : 0;
	} else if (n == 0 || errno != EAGAIN || run->ended) {
		close_out(run);
	}
	if (run->late > LATE_MAX)
		drop_output(run);
}

static void pass_on(struct running *run)
{
	ssize_t n = write(STDOUT_FILENO, run->piece + run->piece_done,
			  run->piece_len - run->piece_done);

	if (n >= 0) {
		run->piece_done += (size_t)n;
	} else if (errno != EINTR && errno != EAGAIN) {
		/* The step continues because its effect matters. main() reports the error. */
		run->cli->out_failed = true;
		run->cli->out_errno = errno;
		run->piece_done = run->piece_len;
	}
	if (run->piece_done == run->piece_len)
		run->piece_len = 0;
}

static int wait_ms(const struct running *run)
{
	int64_t until_us = run->child.kill_us ? run->child.kill_us : run->deadline_us;
	int64_t left_us = until_us - pr_mono_us();

	if (run->ended)
		return run->piece_len > 0 && !run->timed_out && !run->signal ? -1 : 0;
	if (until_us == INT64_MAX || run->child.killed)
		return -1;
	if (left_us <= 0)
		return 0;
	return left_us / 1000 < INT_MAX ? (int)(left_us / 1000) + 1 : INT_MAX;
}

/* Waits for the next event and handles it. */
static void wait_for_events(struct running *run)
{
	enum { OUT = PR_CHILD_FDS, STDOUT, SIGNALS, COUNT };
	bool full = run->piece_len > 0;
	struct pollfd fds[COUNT];
	int found;

	pr_child_watch(&run->child, fds);
	fds[OUT] = (struct pollfd){ .fd = full ? -1 : run->out, .events = POLLIN };
	fds[STDOUT] = (struct pollfd){ .fd = full ? STDOUT_FILENO : -1, .events = POLLOUT };
	fds[SIGNALS] = (struct pollfd){ .fd = run->signals, .events = POLLIN };
	found = poll(fds, COUNT, wait_ms(run));
	if (found < 0)
		return;
	if (found == 0 && run->ended && full) /* it was killed, so its output is not needed */
		drop_output(run);
	if (fds[SIGNALS].revents)
		step_on_signal(run);
	if (fds[STDOUT].revents)
		pass_on(run);
	if (run->out >= 0 && (fds[OUT].revents || (run->ended && !full)))
		take_piece(run);
	if (run->ended)
		return;
	run->ended = pr_child_serve(&run->child, fds, pr_mono_us());
	if (!run->ended && !run->timed_out && !run->signal && pr_mono_us() >= run->deadline_us) {
		run->timed_out = true;
		cut_short(run);
	}
}

/* Reads from the pipe without blocking. */
static bool open_pipe(struct running *run, int *ret_theirs)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	run->out = ends[0];
	*ret_theirs = ends[1];
	return fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

static int start(struct running *run, struct pr_err *err)
{
	int streams[] = { STDIN_FILENO, -1, STDERR_FILENO };
	size_t count = run->cli->arg_count - 1;
	const char **arguments = pr_arena_alloc(&run->cli->memory,
						(count + 1) * sizeof(*arguments));
	struct pr_program program = { .arguments = (char *const *)arguments,
				      .environment = environ };
	sigset_t ours;
	int status = pr_child_check(err);

	if (status < 0)
		return status;
	if (!arguments)
		return pr_err_nomem(err);
	memcpy(arguments, run->cli->args + 1, count * sizeof(*arguments));
	arguments[count] = NULL;
	program.file = arguments[0];
	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGHUP);
	sigaddset(&ours, SIGQUIT);
	sigprocmask(SIG_BLOCK, &ours, NULL);
	run->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
	if (run->signals < 0 || !open_pipe(run, &streams[1]))
		status = pr_err_errno(err, POSTROOM_SINK, "%s cannot be started", program.file);
	else
		status = pr_child_spawn(&run->child, &program, streams, err);
	if (streams[1] >= 0)
		close(streams[1]);
	return status;
}

/* The exit status of a failed command; CLI_DONE if it succeeded. */
static int exit_status(const struct running *run, const char *doing, int64_t timeout_ms)
{
	char limit[PR_DURATION_SIZE];

	if (run->timed_out) {
		pr_duration_format(timeout_ms, limit);
		return cli_fail(run->cli, "%s: timed out after %s", doing, limit);
	}
	if (run->signal)
		return EXIT_BY_SIGNAL + run->signal;
	if (run->child.signal) {
		cli_fail(run->cli, "%s: killed by signal %d", doing, run->child.signal);
		return EXIT_BY_SIGNAL + run->child.signal;
	}
	return run->child.status;
}

/* Truncates output between two characters, if it is text. */
static size_t whole_characters(const char *text, size_t len)
{
	for (size_t cut = 0; cut < 4 && cut < len; cut++) {
		if (pr_utf8_valid(text, len - cut))
			return len - cut;
	}
	return len;
}

/*
 * The result as JSON: a string, or {"stdout": …, "dropped": bytes} if it was truncated.
 * Binary output is "stdout_base64", so that it can be printed again unchanged.
 */
static void put_result(const struct running *run, struct pr_buf *out)
{
	const char *text = pr_buf_text(&run->captured);
	size_t len = run->dropped ? whole_characters(text, run->captured.len) : run->captured.len;
	bool plain = pr_utf8_valid(text, len) && !memchr(text, '\0', len);
	bool object = !plain || run->dropped;

	if (object)
		pr_buf_puts(out, plain ? "{\"stdout\":" : "{\"stdout_base64\":");
	if (plain)
		pr_json_put_stringn(out, text, len);
	else
		pr_json_put_base64(out, text, len);
	if (run->dropped)
		pr_buf_printf(out, ",\"dropped\":%zu", run->dropped + run->captured.len - len);
	if (object)
		pr_buf_putc(out, '}');
}

static void warn_of_cut(struct cli *cli, const char *name, int64_t dropped)
{
	pr_log_event(&cli->log, PR_LOG_WARN, "INBOX_STEP_OUTPUT_CUT");
	pr_log_str(&cli->log, "step", name);
	pr_log_int(&cli->log, "dropped", dropped);
	pr_log_end(&cli->log);
}

static int record(struct running *run, struct cli_job *job, const char *name)
{
	PR_CLEANUP_BUF struct pr_buf result = { 0 };
	struct cli *cli = run->cli;
	int status;

	job->doing = pr_arena_printf(
		&cli->memory,
		"step %s: the command succeeded but is not recorded, so it will run again", name);
	put_result(run, &result);
	if (!job->doing || run->captured.failed || result.failed)
		return cli_fail(
			cli, "step %s: the command succeeded, but there is no memory to record it",
			name);
	status = cli_job_write(cli, job, name, result.data, NULL);
	if (status != CLI_DONE)
		return status;
	cli->out_context = "the step was done and is recorded";
	if (run->dropped)
		warn_of_cut(cli, name, (int64_t)run->dropped);
	return CLI_DONE;
}

static int do_step(struct cli *cli, struct cli_job *job, const struct step_options *given)
{
	struct running run = { .cli = cli, .out = -1, .signals = -1, .deadline_us = INT64_MAX };
	const char *name = cli->args[0];
	struct pr_err err = { 0 };
	int status;

	if (given->timeout_ms > 0)
		run.deadline_us = pr_mono_us() + given->timeout_ms * 1000;
	if (start(&run, &err) < 0) {
		status = cli_fail(cli, "%s: %s", job->doing, err.text);
	} else {
		while (!run.ended || run.out >= 0 || run.piece_len > 0)
			wait_for_events(&run);
		status = exit_status(&run, job->doing, given->timeout_ms);
		if (status == CLI_DONE)
			status = record(&run, job, name);
	}
	drop_output(&run);
	if (run.signals >= 0)
		close(run.signals);
	pr_buf_release(&run.captured);
	return status;
}

/* Prints the output that put_result() encoded; any other JSON value is printed unchanged. */
static void print_again(struct cli *cli, const struct pr_step *step)
{
	struct pr_span result = { step->result, strlen(step->result) }, name, value;
	struct pr_json_members walk;
	int64_t dropped = 0;
	bool ours = false;

	if (pr_json_kind(result) == '"') {
		pr_json_decode(result, &cli->out);
		return;
	}
	walk = pr_json_members(result);
	while (pr_json_kind(result) == '{' && pr_json_next(&walk, &name, &value)) {
		bool text = pr_json_is(name, "\"stdout\"") && pr_json_kind(value) == '"';
		bool bytes = pr_json_is(name, "\"stdout_base64\"") && pr_json_kind(value) == '"';

		if (text)
			pr_json_decode(value, &cli->out);
		else if (bytes)
			pr_base64_decode((struct pr_span){ value.data + 1, value.len - 2 },
					 &cli->out);
		else if (pr_json_is(name, "\"dropped\"") && pr_json_kind(value) == '0')
			dropped = strtoll(value.data, NULL, 10);
		ours = ours || text || bytes;
	}
	if (!ours) {
		pr_buf_puts(&cli->out, step->result);
		pr_buf_putc(&cli->out, '\n');
	} else if (dropped) {
		warn_of_cut(cli, step->name, dropped);
	}
}

static int skip(struct cli *cli, const struct pr_step *step)
{
	/* Not needed in the log of a script. */
	pr_log_event(&cli->log, cli->err_terminal ? PR_LOG_INFO : PR_LOG_DEBUG,
		     "INBOX_STEP_SKIPPED");
	pr_log_str(&cli->log, "step", step->name);
	pr_log_str(&cli->log, "done_at", step->at);
	pr_log_end(&cli->log);
	print_again(cli, step);
	return CLI_DONE;
}

static int show_steps(struct cli *cli, const struct cli_job *job)
{
	static const char *const heads[] = { "STEP", "DONE AT", "RESULT", NULL };
	struct cli_table table;

	cli_table_begin(&table, cli, heads);
	for (const struct pr_step *step = job->steps.first; step; step = step->next) {
		if (cli->global.json) {
			cli_begin_object(cli);
			cli_put_member(&cli->out, "name", step->name);
			cli_put_member(&cli->out, "at", step->at);
			cli_put_json_member(&cli->out, "result", step->result,
					    strlen(step->result));
			cli_end_object(cli);
		} else {
			cli_table_cell(&table, CLI_PLAIN, step->name);
			cli_table_cell(&table, CLI_PLAIN, step->at);
			cli_table_cell(&table, CLI_DIM, step->result);
		}
	}
	cli_table_end(&table);
	return CLI_DONE;
}

static int check_step(struct cli *cli, const struct step_options *given)
{
	struct pr_err err = { 0 };

	if (given->show && (cli->arg_count > 0 || given->timeout_ms > 0))
		return cli_usage(cli, "step: --show lists the completed steps and takes no other "
				      "arguments");
	if (!given->show && cli->arg_count < 2)
		return cli_usage(cli, "step: NAME or CMD is missing: postroom step NAME "
				      "-- CMD...");
	if (!given->show && pr_step_check(cli->args[0], &err) < 0)
		return cli_usage(cli, "step: %s", err.text);
	return CLI_DONE;
}

static int step_run(struct cli *cli, void *options)
{
	const struct step_options *given = options;
	const struct pr_step *step;
	const char *doing = "step";
	struct cli_job job;
	int status = check_step(cli, given);

	if (status != CLI_DONE)
		return status;
	if (!given->show)
		doing = pr_arena_printf(&cli->memory, "step %s", cli->args[0]);
	status = cli_job_read(cli, doing ? doing : "step", &job);
	if (status != CLI_DONE)
		return status;
	if (given->show)
		return show_steps(cli, &job);
	step = pr_steps_find(&job.steps, cli->args[0]);
	return step ? skip(cli, step) : do_step(cli, &job, given);
}

const struct cli_command cmd_step = {
	.name = "step",
	.synopsis = "[--timeout DUR] NAME -- CMD...\n"
		    "--show",
	.summary = "In a handler: run a command unless this job has completed it",
	.about = "For commands that postroom consume --exec runs. Runs CMD. If CMD exits 0, step "
		 "NAME of the job is recorded as done. After a failure, a crash or a takeover, the "
		 "step is skipped, and the recorded stdout of CMD, up to 64 KiB, is printed again. "
		 "Any other exit status is passed on, or 128 plus the signal number; then nothing "
		 "is recorded.\n\nSteps run at least once: after a crash between the end of CMD "
		 "and its record, CMD runs again. So CMD must be idempotent. If another worker has "
		 "taken over the job, nothing runs and the exit status is 1.",
	.examples =
		"postroom step clone --timeout 10m -- sh -c 'rm -rf x && git clone \"$URL\" x'\n"
		"id=$(postroom step create -- ./create-account.sh) || exit\n"
		"postroom step --show",
	.params = params,
	.options_size = sizeof(struct step_options),
	.max_args = CLI_ANY_ARGS,
	.run = step_run,
};
