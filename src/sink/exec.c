/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec: runs a shell command once a message.
 *
 * 1. As many at once as the flight says, begun in the order of the batch.
 * 2. Of one key only one runs at a time, in order, and only after the one before
 *    it was delivered: what follows a failure stays UNTRIED.
 * 3. No child outlives publish().
 * 4. A verdict comes from the command's end alone: 0 delivered, 65 rejected, 126
 *    and 127 (not executable, not found) unreachable, all else failed. What has lost
 *    its lease is made to end, and stays UNTRIED.
 *
 * The child sees our environment and POSTROOM_…; each of those is always set,
 * and empty where the message has none.
 */
#include "base/text.h"
#include "base/time.h"
#include "sink/child.h"
#include "sink/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNNING_MAX 64
#define RUNNING_DEFAULT 8

/* Between TERM and KILL, but never more than a part of the timeout: the lease has to outlast both. */
#define KILL_AFTER_MS 2000

#define EXIT_REJECTED 65

struct run {
	struct pr_child child;
	postroom_delivery *item; /* NULL: free */
	int64_t deadline_us;
	const char *cut_short; /* why it was made to end, or NULL */
	bool lost; /* because it is no longer ours */
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
	char **environment; /* ours, then VARIABLES places, then NULL */
	size_t own_count;
	struct pr_buf variables;
	struct run runs[RUNNING_MAX];
	size_t running;
};

static bool is_ours(const char *variable)
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
	if (pr_child_check(err) < 0)
		return err->status;
	while (environ && environ[count])
		count++;
	exec->environment = calloc(count + VARIABLES + 1, sizeof(*exec->environment));
	if (!exec->environment)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++) {
		if (!is_ours(environ[i]))
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

/* fork() copies it all, so that one set of variables serves every message in turn. */
static bool set_variables(struct exec_sink *exec, const postroom_delivery *item)
{
	char attempt[16], claim[24];
	const char *const values[VARIABLES] = {
		item->id,
		item->topic,
		item->key,
		item->ns,
		item->tenant_id,
		item->dedupe_key,
		item->correlation_id,
		attempt,
		claim,
		item->headers,
		item->content_type,
	};
	struct pr_buf *text = &exec->variables;
	char *at;

	snprintf(attempt, sizeof(attempt), "%d", item->attempt);
	snprintf(claim, sizeof(claim), "%" PRId64, item->fence);
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

static void begin(struct exec_sink *exec, postroom_delivery *item, const struct pr_flight *flight)
{
	struct run *run = exec->runs;
	const void *input = item->body ? item->body : item->payload;
	size_t len = item->body ? item->body_len : item->payload_len;
	struct pr_err err = { 0 };

	while (run->item)
		run++;
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

static size_t trimmed(const char *text, size_t len)
{
	while (len > 0 && strchr(" \t\r\n", text[len - 1]))
		len--;
	return len;
}

/* How it ended, then the end of what it said: the reason is cut at its own end, so this must fit. */
static void judge(const struct run *run, postroom_verdict verdict, const char *ending,
		  const struct pr_flight *flight)
{
	static const char more[] = "…";
	const struct pr_child_text *said = &run->child.err;
	char clean[PR_CHILD_KEEP * 3 + 1];
	char reason[sizeof(clean) + 300];
	size_t limit = (size_t)flight->policy->max_error_length;
	size_t used = strlen(ending) + strlen(": ") + 1;
	size_t len = pr_utf8_sanitize(said->data, trimmed(said->data, said->len), SIZE_MAX, clean,
				      sizeof(clean));
	const char *tail = last_chars(clean, len, limit > used ? limit - used : 0);
	bool cut = tail > clean || said->dropped > 0;

	if (len > 0 && limit > used)
		snprintf(reason, sizeof(reason), "%s: %s%s", ending, cut ? more : "", tail);
	else
		snprintf(reason, sizeof(reason), "%s", ending);
	pr_sink_judge(run->item, 1, verdict, flight, reason);
}

static void log_output(const struct run *run, struct pr_log *log)
{
	const struct pr_child_text *said = &run->child.out;
	char clean[PR_CHILD_KEEP * 3 + 1];

	if (said->len == 0)
		return;
	pr_utf8_sanitize(said->data, trimmed(said->data, said->len), SIZE_MAX, clean,
			 sizeof(clean));
	pr_log_event(log, PR_LOG_INFO, "EXEC_OUTPUT");
	pr_log_str(log, "id", run->item->id);
	pr_log_str(log, "text", clean);
	if (said->dropped > 0)
		pr_log_int(log, "dropped_bytes", (int64_t)said->dropped);
	pr_log_end(log);
}

static void finish(struct exec_sink *exec, struct run *run, const struct pr_flight *flight)
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
	else if (child->status == PR_CHILD_NOT_EXECUTABLE ||
		 child->status == PR_CHILD_NOT_FOUND)
		verdict = POSTROOM_UNREACHABLE;

	/* What is lost whoever has it now will judge. */
	if (!run->lost && verdict == POSTROOM_DELIVERED)
		pr_sink_judge(run->item, 1, verdict, flight, NULL);
	else if (!run->lost)
		judge(run, verdict, ending, flight);
	run->item = NULL;
	exec->running--;
}

static int64_t kill_after_ms(const struct pr_flight *flight)
{
	int64_t part_ms = flight->timeout_ms / PR_FLIGHT_END_PART;

	return part_ms < KILL_AFTER_MS ? part_ms : KILL_AFTER_MS;
}

/* Ends what has had its time. */
static void enforce(struct run *run, const struct pr_flight *flight, int64_t now_us)
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

/* Waits until something happens to one of the runs, and does what follows from it. */
static void attend(struct exec_sink *exec, const struct pr_flight *flight)
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
			finish(exec, watched[i], flight);
		else
			enforce(watched[i], flight, now_us);
	}
}

static size_t running_most(const struct pr_flight *flight)
{
	if (flight->concurrency <= 0)
		return RUNNING_DEFAULT;
	return flight->concurrency < RUNNING_MAX ? (size_t)flight->concurrency : RUNNING_MAX;
}

static int publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
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
			begin(exec, &items[next], flight);
		}
		if (exec->running == 0)
			break;
		attend(exec, flight);
	}
	return POSTROOM_OK;
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
	.publish = publish,
	.close = close_exec,
};
