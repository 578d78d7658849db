/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdout: one JSON object per line.
 *
 * 1. Lines are never mixed: a writer holds the lock until its batch is written, because a pipe
 *    accepts a long write in pieces.
 * 2. A reader that has stopped reading cannot block us: no write blocks, and only a line that was
 *    begun is waited for.
 * 3. A partial line is ended before the next one.
 * 4. DELIVERED is a line that the kernel has accepted; a pipe has no better acknowledgement. When
 *    the reader has closed the pipe, unread lines do not count.
 *
 * Writing to a closed pipe raises SIGPIPE. The sink leaves signals alone: the program must ignore
 * it.
 */
#include "base/time.h"
#include "sink/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* There is one standard output for any number of workers. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool torn;

struct stdout_sink {
	struct pr_sink sink;
	struct pr_buf lines;
	mode_t mode;
};

/* A batch that is being written. */
struct output {
	const char *data;
	struct pr_lines lines;
	size_t at;	  /* written up to here */
	size_t line;	  /* the first line that is not completely written */
	int64_t begun_us; /* when it became the first */
};

static int open_stdout(struct pr_sink *sink, struct pr_err *err)
{
	struct stdout_sink *out = (struct stdout_sink *)sink;
	int flags = fcntl(STDOUT_FILENO, F_GETFL);
	struct stat st;

	if (sink->url.path[0] || sink->url.host[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "stdout: takes nothing after the colon; for a file write %s",
				  pr_sink_file.example);
	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || fstat(STDOUT_FILENO, &st) < 0)
		return pr_err_set(err, POSTROOM_SINK,
				  "stdout: is closed and cannot be written; "
				  "redirect it, or name another sink");
	out->mode = st.st_mode;
	return POSTROOM_OK;
}

static void close_stdout(struct pr_sink *sink)
{
	pr_buf_release(&((struct stdout_sink *)sink)->lines);
}

static bool between_lines(const struct output *out)
{
	return out->at == 0 || out->data[out->at - 1] == '\n';
}

/* False when it is time to give up: later for a line that was begun. */
static bool wait_for_room(const struct output *out, const struct pr_flight *flight)
{
	int64_t until_us = out->begun_us + flight->timeout_ms * 1000;
	struct pollfd fds[2] = { { 0 }, { .fd = STDOUT_FILENO, .events = POLLOUT } };

	if (between_lines(out) && flight->begin_until_us < until_us)
		until_us = flight->begin_until_us;
	for (;;) {
		if (between_lines(out) ? !pr_flight_may_begin(flight)
				       : pr_stop_overdue(flight->stop))
			return false;
		pr_flight_poll(flight, fds, 2, until_us);
		if (fds[1].revents)
			return true;
		if (pr_mono_us() >= until_us)
			return false;
	}
}

/* True when everything is written or it is time to give up; false with errno if a write failed. */
static bool write_lines(struct output *out, bool may_block, const struct pr_flight *flight)
{
	out->begun_us = pr_mono_us();
	while (out->line < out->lines.count && wait_for_room(out, flight)) {
		size_t len = out->lines.line[out->lines.count - 1].end - out->at;
		ssize_t n;

		/* This much can be written whenever poll() reports that there is room. */
		if (may_block && len > PIPE_BUF)
			len = PIPE_BUF;
		n = write(STDOUT_FILENO, out->data + out->at, len);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return false;
		if (n > 0)
			out->at += (size_t)n;
		while (out->line < out->lines.count && out->lines.line[out->line].end <= out->at) {
			out->line++;
			out->begun_us = pr_mono_us();
		}
	}
	return true;
}

/* Returns how much of the output was certainly received, after a write has failed. */
static size_t arrived(const struct stdout_sink *sink, const struct output *out)
{
	int unread = 0;

	if (S_ISREG(sink->mode))
		return out->at;
	/* The pipe still contains the bytes that its reader did not read. */
	if (S_ISFIFO(sink->mode) && ioctl(STDOUT_FILENO, FIONREAD, &unread) == 0)
		return out->at > (size_t)unread ? out->at - (size_t)unread : 0;
	return 0;
}

static int fail_write(const struct stdout_sink *sink, struct output *out, struct pr_err *err)
{
	int code = errno;
	size_t sure = arrived(sink, out);

	for (out->line = 0; out->line < out->lines.count && out->lines.line[out->line].end <= sure;
	     out->line++)
		;
	errno = code;
	return pr_err_errno(err, POSTROOM_SINK,
			    code == EPIPE ? "stdout was closed by its reader; messages it has not "
					    "read stay in the outbox"
					  : "stdout cannot be written; the missing messages "
					    "stay in the outbox");
}

static void end_torn_line(postroom_delivery *item, const struct pr_flight *flight)
{
	char took[PR_DURATION_SIZE], reason[100];

	pr_duration_format(flight->timeout_ms, took);
	if (pr_stop_overdue(flight->stop))
		snprintf(reason, sizeof(reason), "stopped: no process reads stdout");
	else
		snprintf(reason, sizeof(reason), "timed out after %s: no process reads stdout",
			 took);
	pr_sink_judge(item, 1, POSTROOM_FAILED, flight, reason);
}

static int stdout_publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
			  const struct pr_flight *flight, struct pr_err *err)
{
	struct stdout_sink *own = (struct stdout_sink *)sink;
	struct output out = { 0 };
	int status = POSTROOM_OK;

	/* Begins with a line break, to end a torn line if there is one. */
	pr_buf_putc(&own->lines, '\n');
	if (!pr_lines_put(&own->lines, items, count, flight, &out.lines)) {
		pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, "out of memory");
		pr_buf_trim(&own->lines);
		return POSTROOM_OK;
	}

	out.data = own->lines.data;
	pthread_mutex_lock(&lock);
	out.at = torn ? 0 : 1;
	if (!write_lines(&out, !S_ISREG(own->mode), flight))
		status = fail_write(own, &out, err);
	else if (!between_lines(&out))
		end_torn_line(&items[out.lines.line[out.line].item], flight);
	torn = out.at == 0 || !between_lines(&out);
	pthread_mutex_unlock(&lock);

	pr_lines_judge(&out.lines, out.line, items, count, flight);
	pr_buf_trim(&own->lines);
	return status;
}

static const char *const schemes[] = { "stdout", NULL };
static const struct pr_param params[] = { { .name = NULL } };

const struct pr_sink_ops pr_sink_stdout = {
	.schemes = schemes,
	.summary = "one JSON object per line on standard output",
	.example = "stdout:",
	.size = sizeof(struct stdout_sink),
	.params = params,
	.open = open_stdout,
	.publish = stdout_publish,
	.close = close_stdout,
};
