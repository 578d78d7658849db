/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/json.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define FLUSH_PAST ((size_t)64 * 1024)
#define LINES_MAX ((size_t)1024 * 1024)

const char *const pr_log_levels[] = { "debug", "info", "warn", "error", "off", NULL };
const char *const pr_log_formats[] = { "text", "json", NULL };

void pr_log_init(struct pr_log *log, int fd, enum pr_log_level level, enum pr_log_format format)
{
	*log = (struct pr_log){
		.fd = fd,
		.box = "OUTBOX",
		.level = level,
		.format = format,
		.lines = { .max = LINES_MAX },
	};
}

void pr_log_init_call(struct pr_log *log, enum pr_log_level level, pr_log_fn fn, void *context)
{
	pr_log_init(log, -1, level, PR_LOG_TEXT);
	log->fn = fn;
	log->context = context;
}

void pr_log_release(struct pr_log *log)
{
	pr_log_flush(log);
	pr_buf_release(&log->lines);
}

/* Puts ` field=` or `,"field":`. */
static void put_field(struct pr_log *log, const char *field)
{
	if (log->format == PR_LOG_TEXT) {
		pr_buf_putc(&log->lines, ' ');
		pr_buf_puts(&log->lines, field);
		pr_buf_putc(&log->lines, '=');
		return;
	}
	pr_buf_putc(&log->lines, log->lines.len == log->line_start ? '{' : ',');
	pr_json_put_string(&log->lines, field);
	pr_buf_putc(&log->lines, ':');
}

static bool is_plain(const char *value)
{
	const char *c = value;

	while (*c > ' ' && *c < 0x7f && *c != '"' && *c != '=')
		c++;
	return *c == '\0' && c > value;
}

static void put_time(struct pr_log *log)
{
	char now[PR_RFC3339_SIZE];

	pr_rfc3339(pr_now_us(), now);
	pr_log_str(log, "time", now);
}

/* box: prefix of the event's name, or "". */
static void begin(struct pr_log *log, enum pr_log_level level, const char *box, const char *event)
{
	const char *between = *box ? "_" : "";

	log->open = level >= log->level;
	if (!log->open)
		return;
	log->line_start = log->lines.len;
	log->line_level = level;
	if (log->format == PR_LOG_TEXT && !log->fn) {
		pr_buf_puts(&log->lines, box);
		pr_buf_puts(&log->lines, between);
		pr_buf_puts(&log->lines, event);
		return;
	}
	snprintf(log->event, sizeof(log->event), "%s%s%s", box, between, event);
	if (log->fn)
		return;
	put_time(log);
	pr_log_str(log, "level", pr_log_levels[level]);
	pr_log_str(log, "event", log->event);
}

void pr_log_event(struct pr_log *log, enum pr_log_level level, const char *event)
{
	begin(log, level, "", event);
}

void pr_log_box(struct pr_log *log, enum pr_log_level level, const char *event)
{
	begin(log, level, log->box, event);
}

void pr_log_str(struct pr_log *log, const char *field, const char *value)
{
	if (!log->open)
		return;
	put_field(log, field);
	if (log->format == PR_LOG_TEXT && (!value || is_plain(value)))
		pr_buf_puts(&log->lines, value ? value : "\"\"");
	else
		pr_json_put_string(&log->lines, value);
}

void pr_log_int(struct pr_log *log, const char *field, int64_t value)
{
	if (!log->open)
		return;
	put_field(log, field);
	pr_buf_printf(&log->lines, "%" PRId64, value);
}

void pr_log_real(struct pr_log *log, const char *field, double value)
{
	if (!log->open)
		return;
	put_field(log, field);
	pr_buf_printf(&log->lines, "%.3f", value);
}

/* Fields that could not be allocated are left out, but the event is still logged. */
static void call(struct pr_log *log)
{
	const char *fields = log->lines.failed ? "" : pr_buf_text(&log->lines);

	log->open = false;
	log->fn(log->context, log->line_level, log->event, *fields == ' ' ? fields + 1 : fields);
	pr_buf_reset(&log->lines);
}

void pr_log_end(struct pr_log *log)
{
	if (!log->open)
		return;
	if (log->sink)
		pr_log_str(log, "sink", log->sink);
	if (log->fn) {
		call(log);
		return;
	}
	if (log->format == PR_LOG_TEXT) {
		pr_log_str(log, "level", pr_log_levels[log->line_level]);
		put_time(log);
		pr_buf_putc(&log->lines, '\n');
	} else {
		pr_buf_puts(&log->lines, "}\n");
	}
	log->open = false;
	if (log->lines.failed)
		log->lines.len = log->line_start; /* that line is lost, the lines before it are
						   * complete */
	if (log->lines.failed || log->lines.len > FLUSH_PAST || log->line_level >= PR_LOG_WARN)
		pr_log_flush(log);
}

void pr_log_flush(struct pr_log *log)
{
	const char *at = log->lines.data;
	size_t left = log->lines.len;

	while (left > 0) {
		ssize_t done = write(log->fd, at, left);

		if (done >= 0) {
			at += done;
			left -= (size_t)done;
		} else if (errno == EAGAIN) {
			poll(&(struct pollfd){ .fd = log->fd, .events = POLLOUT }, 1, -1);
		} else if (errno != EINTR) {
			break; /* the reader of the log has exited: there is no place to report
			        * it */
		}
	}
	pr_buf_reset(&log->lines);
}
