/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec: runs a shell command for each message.
 *
 * 1. As many commands run concurrently as the flight allows, begun in the order of the batch.
 * 2. One command per key runs at a time, in order, and only after the previous one was delivered:
 *    messages behind a failure stay UNTRIED.
 * 3. No child outlives publish().
 * 4. The verdict depends only on how the command ended: 0 delivered; 65 (or variables that are too
 *    long for any command) rejected; 126 and 127 (not executable, not found) unreachable; all
 *    others failed. A command that lost its lease is ended and stays UNTRIED.
 *
 * The child has our environment and POSTROOM_…; each of those is always set, and empty if the
 * message has no such attribute.
 */
#include "base/text.h"
#include "base/time.h"
#include "sink/attributes.h"
#include "sink/child.h"
#include "sink/queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNNING_MAX 64
#define RUNNING_DEFAULT 8

/* Time between TERM and KILL. It is only a part of the timeout, because the lease must outlast
 * both. */
#define KILL_AFTER_MS 2000

#define EXIT_REJECTED PR_CHILD_TOO_LONG

#define COMMAND_MAX (128 * 1024) /* Linux limit for one argument */

struct run {
	struct pr_child child;
	postroom_delivery *item; /* NULL: free */
	int64_t deadline_us;
	const char *cut_short; /* why it was ended, or NULL */
	bool lost;	       /* because its lease was lost */
};

static const char *const variables[] = {
	"POSTROOM_ID",
	"POSTROOM_TOPIC",
	"POSTROOM_KEY",
	"POSTROOM_NAMESPACE",
	"POSTROOM_TENANT_ID",
	"POSTROOM_DEDUPE_KEY",
	"POSTROOM_CORRELATION_ID",
	"POSTROOM_ATTEMPT",
	"POSTROOM_CLAIM",
	"POSTROOM_HEADERS",
	"POSTROOM_CONTENT_TYPE",
};
#define VARIABLES (sizeof(variables) / sizeof(*variables))

struct exec_sink {
	struct pr_sink sink;
	char **environment; /* our environment, then VARIABLES entries, then NULL */
	size_t own_count;
	struct pr_buf variables;
	struct run runs[RUNNING_MAX];
	size_t running;
};

static bool is_setting(const char *variable)
{
	for (size_t i = 0; i < VARIABLES; i++) {
		size_t len = strlen(variables[i]);

		if (strncmp(variable, variables[i], len) == 0 && variable[len] == '=')
			return true;
	}
	return false;
}

static int open_exec(struct pr_sink *sink, struct pr_err *err)
{
	struct exec_sink *exec = (struct exec_sink *)sink;
	size_t count = 0;

	if (sink->target[strspn(sink->target, " \t\n")] == '\0')
		return pr_err_set(err, POSTROOM_SINK, "exec: needs a command, as in %s",
				  pr_sink_exec.example);
	/* It would be too long for every message, and each message would be rejected. */
	if (strlen(sink->target) >= COMMAND_MAX)
		return pr_err_set(err, POSTROOM_SINK,
				  "exec: the command is longer than %d bytes; put it into a script",
				  COMMAND_MAX - 1);
	if (pr_child_check(err) < 0)
		return err->status;
	while (environ && environ[count])
		count++;
	exec->environment = calloc(count + VARIABLES + 1, sizeof(*exec->environment));
	if (!exec->environment)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++) {
		if (!is_setting(environ[i]))
			exec->environment[exec->own_count++] = environ[i];
	}
	return POSTROOM_OK;
}

static void close_exec(struct pr_sink *sink)
{
	struct exec_sink *exec = (struct exec_sink *)sink;

	free(exec->environment);
	pr_buf_release(&exec->variables);
}

/* fork() copies the variables, so that one set serves all messages. */
static bool set_variables(struct exec_sink *exec, const postroom_delivery *item)
{
	char attempt[16], claim[24];
	const char *const values[VARIABLES] = {
		item->id,	    item->topic,	  item->key, item->ns, item->tenant_id,
		item->dedupe_key,   item->correlation_id, attempt,   claim,    item->headers,
		item->content_type,
	};
	struct pr_buf *text = &exec->variables;
	char *at;

	snprintf(attempt, sizeof(attempt), "%d", item->attempt);
	snprintf(claim, sizeof(claim), "%" PRId64, item->fencing_token);
	pr_buf_reset(text);
	for (size_t i = 0; i < VARIABLES; i++) {
		pr_buf_puts(text, variables[i]);
		pr_buf_putc(text, '=');
		pr_buf_puts(text, values[i] ? values[i] : "");
		pr_buf_putc(text, '\0');
	}
	if (text->failed)
		return false;
	at = text->data;
	for (size_t i = 0; i < VARIABLES; i++) {
		exec->environment[exec->own_count + i] = at;
		at += strlen(at) + 1;
	}
	return true;
}

/* An environment variable can contain any text. */
static const struct pr_protocol protocol = { .name = "exec" };

static void begin_run(struct exec_sink *exec, postroom_delivery *item,
		      const struct pr_flight *flight)
{
	struct run *run = exec->runs;
	const void *input = item->body ? item->body : item->payload;
	size_t len = item->body ? item->body_len : item->payload_len;
	struct pr_err err = { 0 };

	while (run->item)
		run++;
	if (pr_attributes_check(item, &protocol, &exec->variables, &err) < 0) {
		pr_sink_judge(item, 1,
			      err.status == POSTROOM_INVALID ? POSTROOM_REJECTED
							     : POSTROOM_UNREACHABLE,
			      flight, err.text);
		return;
	}
	if (!set_variables(exec, item))
		pr_err_nomem(&err);
	else
		pr_child_start(&run->child, exec->sink.target, exec->environment, input, len, &err);
	if (err.status < 0) {
		pr_sink_judge(item, 1, POSTROOM_UNREACHABLE, flight, err.text);
		return;
	}
	run->item = item;
	run->deadline_us = pr_mono_us() + flight->timeout_ms * 1000;
	run->cut_short = NULL;
	run->lost = false;
	exec->running++;
}

/* Skips to the last max_chars characters of well-formed text. */
static const char *last_chars(const char *text, size_t len, size_t max_chars)
{
	const char *at = text + len;

	for (size_t chars = 0; at > text && chars < max_chars; chars++) {
		do
			at--;
		while (at > text && ((unsigned char)*at & 0xc0) == 0x80);
	}
	return at;
}

static size_t trim_output(const char *text, size_t len)
{
	while (len > 0 && strchr(" \t\r\n", text[len - 1]))
		len--;
	return len;
}

/* The reason: how it ended, then the end of its output. A reason is truncated at its end, so this
 * must fit. */
static void set_verdict(const struct run *run, postroom_verdict verdict, const char *ending,
			const struct pr_flight *flight)
{
	static const char more[] = "…";
	const struct pr_child_text *output = &run->child.err;
	char clean[PR_CHILD_KEEP * 3 + 1];
	char reason[sizeof(clean) + 300];
	size_t limit = (size_t)flight->policy->max_error_length;
	size_t used = strlen(ending) + strlen(": ") + 1;
	size_t len = pr_utf8_sanitize(output->data, trim_output(output->data, output->len),
				      SIZE_MAX, clean, sizeof(clean));
	const char *tail = last_chars(clean, len, limit > used ? limit - used : 0);
	bool cut = tail > clean || output->dropped > 0;

	if (len > 0 && limit > used)
		snprintf(reason, sizeof(reason), "%s: %s%s", ending, cut ? more : "", tail);
	else
		snprintf(reason, sizeof(reason), "%s", ending);
	pr_sink_judge(run->item, 1, verdict, flight, reason);
}

static void log_output(const struct run *run, struct pr_log *log)
{
	const struct pr_child_text *output = &run->child.out;
	char clean[PR_CHILD_KEEP * 3 + 1];

	if (output->len == 0)
		return;
	pr_utf8_sanitize(output->data, trim_output(output->data, output->len), SIZE_MAX, clean,
			 sizeof(clean));
	pr_log_event(log, PR_LOG_INFO, "EXEC_OUTPUT");
	pr_log_str(log, "id", run->item->id);
	pr_log_str(log, "text", clean);
	if (output->dropped > 0)
		pr_log_int(log, "dropped_bytes", (int64_t)output->dropped);
	pr_log_end(log);
}

static void finish_run(struct exec_sink *exec, struct run *run, const struct pr_flight *flight)
{
	const struct pr_child *child = &run->child;
	postroom_verdict verdict = POSTROOM_FAILED;
	char ending[60];

	log_output(run, flight->log);
	snprintf(ending, sizeof(ending), "exit status %d", child->status);
	if (run->cut_short)
		snprintf(ending, sizeof(ending), "%s", run->cut_short);
	else if (child->signal)
		snprintf(ending, sizeof(ending), "killed by signal %d", child->signal);
	else if (child->status == EXIT_SUCCESS)
		verdict = POSTROOM_DELIVERED;
	else if (child->status == EXIT_REJECTED)
		verdict = POSTROOM_REJECTED;
	else if (child->status == PR_CHILD_NOT_EXECUTABLE || child->status == PR_CHILD_NOT_FOUND)
		verdict = POSTROOM_UNREACHABLE;

	/* A lost message is judged by its new worker. */
	if (!run->lost && verdict == POSTROOM_DELIVERED)
		pr_sink_judge(run->item, 1, verdict, flight, NULL);
	else if (!run->lost)
		set_verdict(run, verdict, ending, flight);
	run->item = NULL;
	exec->running--;
}

static int64_t kill_after_ms(const struct pr_flight *flight)
{
	int64_t part_ms = flight->timeout_ms / PR_FLIGHT_END_PART;

	return part_ms < KILL_AFTER_MS ? part_ms : KILL_AFTER_MS;
}

/* Ends commands that have timed out. */
static void end_overdue(struct run *run, const struct pr_flight *flight, int64_t now_us)
{
	char limit[PR_DURATION_SIZE];

	if (pr_stop_overdue(flight->stop)) {
		if (!run->cut_short)
			run->cut_short = "stopped";
		pr_child_end(&run->child, now_us, 0);
	} else if (!run->cut_short && pr_flight_lost(flight)) {
		run->cut_short = "the lease was lost";
		run->lost = true;
		pr_child_end(&run->child, now_us, kill_after_ms(flight));
	} else if (!run->cut_short && now_us >= run->deadline_us) {
		pr_duration_format(flight->timeout_ms, limit);
		run->cut_short = pr_arena_printf(flight->arena, "timed out after %s", limit);
		if (!run->cut_short)
			run->cut_short = "timed out";
		pr_child_end(&run->child, now_us, kill_after_ms(flight));
	}
}

static int64_t next_due(const struct run *run)
{
	if (run->child.killed)
		return INT64_MAX;
	return run->cut_short ? run->child.kill_us : run->deadline_us;
}

/* Waits for an event of a run, and handles it. */
static void wait_for_runs(struct exec_sink *exec, const struct pr_flight *flight)
{
	struct pollfd fds[1 + RUNNING_MAX * PR_CHILD_FDS];
	struct run *watched[RUNNING_MAX];
	int64_t until_us = INT64_MAX, now_us;
	nfds_t used = 1;
	size_t count = 0;

	for (struct run *run = exec->runs; run < exec->runs + RUNNING_MAX; run++) {
		if (!run->item)
			continue;
		watched[count++] = run;
		pr_child_watch(&run->child, fds + used);
		used += PR_CHILD_FDS;
		if (next_due(run) < until_us)
			until_us = next_due(run);
	}
	pr_flight_poll(flight, fds, used, until_us);
	now_us = pr_mono_us();
	for (size_t i = 0; i < count; i++) {
		if (pr_child_serve(&watched[i]->child, fds + 1 + i * PR_CHILD_FDS, now_us))
			finish_run(exec, watched[i], flight);
		else
			end_overdue(watched[i], flight, now_us);
	}
}

static size_t running_most(const struct pr_flight *flight)
{
	if (flight->concurrency <= 0)
		return RUNNING_DEFAULT;
	return flight->concurrency < RUNNING_MAX ? (size_t)flight->concurrency : RUNNING_MAX;
}

static int exec_publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
			const struct pr_flight *flight, struct pr_err *err)
{
	struct exec_sink *exec = (struct exec_sink *)sink;
	struct pr_queue queue;
	size_t next;

	(void)err;
	if (!pr_queue_fill(&queue, items, count, flight->arena)) {
		pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, "out of memory");
		return POSTROOM_OK;
	}
	for (;;) {
		while (exec->running < running_most(flight)) {
			next = pr_queue_next(&queue, flight);
			if (next == PR_SINK_NONE)
				break;
			begin_run(exec, &items[next], flight);
		}
		if (exec->running == 0)
			break;
		wait_for_runs(exec, flight);
	}
	return POSTROOM_OK;
}

/* Only a program with a path can be checked: the shell searches the others. */
static void exec_probe(struct pr_sink *sink, const struct pr_flight *flight,
		       struct pr_checkup *checkup)
{
	const char *begin = sink->target + strspn(sink->target, " \t\n");
	size_t len = strcspn(begin, " \t\n");
	char program[4096];
	int why;

	(void)flight;
	snprintf(program, sizeof(program), "%.*s", (int)len, begin);
	if (!strchr(program, '/') || program[strcspn(program, "\"'$`;&|<>()*?=\\~")] != '\0' ||
	    access(program, X_OK) == 0)
		return;
	why = errno;
	pr_found(checkup, PR_LEVEL_PROBLEM, "\"%s\" cannot be run", program);
	pr_found_detail(checkup, "%s. Messages wait in the outbox.", strerror(why));
	pr_found_advice(checkup,
			"The operator installs the program, makes it executable, or corrects "
			"the URL of the sink. A relative path starts where the relay starts.");
	if (why == ENOENT)
		return;
	pr_found_command(checkup, "chmod +x ");
	pr_found_command_word(checkup, program);
}

static const char *const schemes[] = { "exec", NULL };
static const struct pr_param params[] = { { .name = NULL } };

const struct pr_sink_ops pr_sink_exec = {
	.schemes = schemes,
	.summary = "runs a shell command for each message, the payload on its stdin",
	.example = "exec:./deliver.sh",
	.verbatim = true,
	.size = sizeof(struct exec_sink),
	.params = params,
	.open = open_exec,
	.publish = exec_publish,
	.probe = exec_probe,
	.close = close_exec,
};
