/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sink publishes messages to a receiver. A sink is one file, one const struct, one line in the
 * array of sink.c. Each worker has its own instance, used only by its thread.
 *
 * DELIVERED means that the receiver has acknowledged the message, never "handed to a client
 * library's queue".
 */
#ifndef PR_SINK_SINK_H
#define PR_SINK_SINK_H

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/param.h"
#include "base/stop.h"
#include "base/url.h"
#include "core/finding.h"
#include "core/verdict.h"
#include "net/flight.h"

#include <stdatomic.h>
#include <stdint.h>

struct pr_sink;

struct pr_sink_ops {
	const char *const *schemes; /* ends in NULL */
	const char *summary;	    /* one line for `postroom sinks` */
	const char *example;	    /* a URL */
	bool verbatim; /* the text after the colon is not a URL: no decoding, no settings */
	bool server;   /* a server: several consecutive failures are an outage */
	bool acts;     /* opening it creates a file or a connection, so a check does not open it */
	size_t size;   /* size of the instance, which begins with struct pr_sink */
	const struct pr_param *params; /* settings after '?', into the instance */

	/*
	 * The strings of url live as long as the instance. Invalid settings are POSTROOM_SINK.
	 * close is not called after a failure.
	 */
	int (*open)(struct pr_sink *sink, struct pr_err *err);

	/*
	 * Gives each item a verdict with pr_verdict_set(); items in front are begun
	 * first, and those never begun stay POSTROOM_UNTRIED. Returns POSTROOM_OK
	 * whatever the verdicts; a failure means that this sink is broken for good
	 * and the relay must stop.
	 *
	 * Order: items of one namespace, topic and key are delivered in the order of
	 * the array. An item whose predecessor in this call (pr_sink_order()) is not
	 * DELIVERED must not be delivered: it is not begun, and stays POSTROOM_UNTRIED.
	 */
	int (*publish)(struct pr_sink *sink, postroom_delivery *items, size_t count,
		       const struct pr_flight *flight, struct pr_err *err);

	/*
	 * Reports what would prevent deliveries, or lose messages afterwards: unreachable, refused
	 * credentials, a missing target, weak durability. It must publish and create nothing, and
	 * end by flight->begin_until_us. NULL: it has no probe.
	 */
	void (*probe)(struct pr_sink *sink, const struct pr_flight *flight,
		      struct pr_checkup *checkup);
	bool probes_closed; /* probe gets an instance with URL and settings that is not opened */

	void (*reopen)(struct pr_sink *sink); /* on SIGHUP; may be NULL */
	void (*close)(struct pr_sink *sink);  /* may be NULL */
};

struct pr_sink {
	const struct pr_sink_ops *ops;
	struct pr_url url;
	char *target; /* verbatim sinks: the text after the colon */
};

extern const struct pr_sink_ops *const pr_sinks[]; /* ends in NULL */

/* Returns the sink of a URL's scheme. The error for an unknown scheme offers the nearest. */
int pr_sink_find(const char *url, const struct pr_sink_ops **ret, struct pr_err *err);

/* POSTROOM_SINK if this build lacks the library for the scheme; the error says how to get it. */
int pr_sink_left_out(const char *scheme, struct pr_err *err);

int pr_sink_open(const char *url, struct pr_sink **ret, struct pr_err *err);
/* With further settings, which override those after the URL's '?'. */
int pr_sink_open_with(const char *url, const struct pr_url_setting *settings, size_t setting_count,
		      struct pr_sink **ret, struct pr_err *err);
void pr_sink_close(struct pr_sink *sink);

/* Opens the sink, probes it and closes it; problems are reported to the running check. */
void pr_sink_probe(const char *url, const struct pr_url_setting *settings, size_t setting_count,
		   const struct pr_flight *flight, struct pr_checkup *checkup);
/* Reports a sink that cannot be reached: the reason, and what to do about it. */
void pr_found_unreachable(struct pr_checkup *checkup, const char *why);

/* One line of stdout: and file:, with its newline: a JSON object. */
void pr_sink_put_line(struct pr_buf *out, const postroom_delivery *item);

/*
 * Sets the same verdict for all items. reason may be NULL. Clears together and by_name, which a
 * sink may set afterwards. An UNREACHABLE verdict by_name concerns only the message if others are
 * delivered.
 */
void pr_sink_judge(postroom_delivery *items, size_t count, postroom_verdict verdict,
		   const struct pr_flight *flight, const char *reason);

/*
 * Sets UNREACHABLE after the failure of something that several messages shared, such as a
 * connection. One of them may be the cause, so the relay publishes them again in smaller parts. A
 * message that was sent too, and is UNTRIED because of its key, also has together set.
 */
void pr_sink_judge_together(postroom_delivery *item, const struct pr_flight *flight,
			    const char *reason);

/* True if its key implies an order. */
static inline bool pr_sink_is_ordered(const postroom_delivery *item)
{
	return item->key && !item->unordered;
}

/*
 * For each item, the index of its predecessor with the same namespace, topic and key, or
 * PR_SINK_NONE. NULL: no memory.
 */
#define PR_SINK_NONE SIZE_MAX
size_t *pr_sink_order(postroom_delivery *items, size_t count, struct pr_arena *arena);
/* Absent equals empty: NULL and "" are the same. */
bool pr_sink_same_tenant(const postroom_delivery *a, const postroom_delivery *b);

extern const struct pr_sink_ops pr_sink_null;
extern const struct pr_sink_ops pr_sink_stdout;
extern const struct pr_sink_ops pr_sink_file;
extern const struct pr_sink_ops pr_sink_exec;
extern const struct pr_sink_ops pr_sink_http;
extern const struct pr_sink_ops pr_sink_kafka;
extern const struct pr_sink_ops pr_sink_nats;
extern const struct pr_sink_ops pr_sink_redis;
extern const struct pr_sink_ops pr_sink_amqp;

#endif
