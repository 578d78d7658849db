/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log events, one line each, as `EVENT field=value … time=…` or as JSON. The program logs; the
 * library never does. An embedding program may receive the events by a callback instead.
 *
 * A line is built from fields and stays in the log's own buffer until pr_log_flush(): the lines of
 * a batch are one write. Each thread has its own pr_log. The descriptor may be shared, since a
 * flush is a single write.
 */
#ifndef PR_BASE_LOG_H
#define PR_BASE_LOG_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum pr_log_level { PR_LOG_DEBUG, PR_LOG_INFO, PR_LOG_WARN, PR_LOG_ERROR, PR_LOG_OFF };
enum pr_log_format { PR_LOG_TEXT, PR_LOG_JSON };

extern const char *const pr_log_levels[];  /* "debug", …, NULL */
extern const char *const pr_log_formats[]; /* "text", "json", NULL */

/* Receives an event instead of a line: fields is "name=value …", or "". */
typedef void (*pr_log_fn)(void *context, enum pr_log_level level, const char *event,
			  const char *fields);

#define PR_LOG_EVENT_SIZE 64

struct pr_log {
	int fd;
	pr_log_fn fn; /* NULL: lines are written to fd */
	void *context;
	const char *box;	       /* prefix of the event names: OUTBOX or INBOX */
	char event[PR_LOG_EVENT_SIZE]; /* name of the event for fn and JSON */
	const char *sink; /* value of the last field of every line, sink=; NULL: no such field */
	enum pr_log_level level;
	enum pr_log_format format;
	struct pr_buf lines;
	size_t line_start; /* where the line being built begins */
	enum pr_log_level line_level;
	bool open; /* a line is being built: fields count */
};

/* Initializes a log of the outbox that writes to fd. It cannot fail. */
void pr_log_init(struct pr_log *log, int fd, enum pr_log_level level, enum pr_log_format format);
/* A log that calls fn with every event, as soon as it ends. */
void pr_log_init_call(struct pr_log *log, enum pr_log_level level, pr_log_fn fn, void *context);
void pr_log_release(struct pr_log *log); /* flushes */

/*
 *	pr_log_box(log, PR_LOG_INFO, "WORKER_FETCH");
 *	pr_log_int(log, "count", n);
 *	pr_log_end(log);
 *
 * Below the level all of it is a few comparisons. Text values are quoted in
 * text format when they hold anything but plain printable ASCII without
 * spaces, quotes and '='; a NULL value is "" in text and null in JSON.
 */
void pr_log_event(struct pr_log *log, enum pr_log_level level, const char *event);
/* An event whose name begins with the log's box: OUTBOX_… or INBOX_… */
void pr_log_box(struct pr_log *log, enum pr_log_level level, const char *event);
void pr_log_str(struct pr_log *log, const char *field, const char *value);
void pr_log_int(struct pr_log *log, const char *field, int64_t value);
void pr_log_real(struct pr_log *log, const char *field, double value); /* three decimals */
void pr_log_end(struct pr_log *log); /* flushes automatically past 64 KiB, and at warn or above */
void pr_log_flush(struct pr_log *log);

#endif
