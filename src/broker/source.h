/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source reads events from a broker. A source is one file, one const struct, one line in the
 * array of source.c; contract/source*.c run over every one of them.
 *
 * Each intake thread has its own instance. Events that were read belong to the source until they
 * are acknowledged. A broker redelivers them after a crash, and when their lease expires.
 */
#ifndef PR_BROKER_SOURCE_H
#define PR_BROKER_SOURCE_H

#include "base/json.h"
#include "base/uuid.h"
#include "sink/sink.h"

/* An event as it was received. The batch's arena holds its memory. */
struct pr_event {
	const char *id;		     /* the id, if one of our sinks has set it; NULL: none */
	const char *broker_position; /* its position in the broker, the same at every delivery:
				  * "orders/1700-0" */
	const char *topic;	     /* NULL: it does not say */
	const char *key;	     /* NULL if none */
	const char *tenant_id;	     /* as received, not checked; NULL if none */
	const char *correlation_id;  /* the same */
	const char *headers;	     /* JSON object of strings; NULL: {} */
	const char *content_type;    /* NULL: it does not say */
	const char *body;	     /* its content, followed by a NUL */
	size_t len;
	int64_t at_us; /* when the broker received it, by its own clock; 0: unknown */
	uint64_t tag;  /* the source's own */
};

struct pr_events {
	struct pr_arena arena;
	struct pr_event *list;
	size_t count, capacity;
};

/* A zeroed struct is ready for use. */
void pr_events_reset(struct pr_events *events);
void pr_events_release(struct pr_events *events);
/* Appends a zeroed event. NULL: no memory. */
struct pr_event *pr_events_add(struct pr_events *events);

/*
 * "sha256:…" of the parts with a zero byte between them, the same on every machine. It identifies
 * events that have no position. NULL: no memory.
 */
const char *pr_event_digest(struct pr_arena *arena, const struct pr_span *parts, size_t count);

struct pr_source;

struct pr_source_ops {
	const char *const *schemes;    /* ends in NULL */
	const char *summary;	       /* one line for the manual */
	const char *example;	       /* a URL */
	size_t size;		       /* of the instance, which begins with struct pr_source */
	const struct pr_param *params; /* settings after '?', into the instance */

	/* Checks its settings without connecting. POSTROOM_SINK: they are invalid. */
	int (*open)(struct pr_source *source, struct pr_err *err);

	/*
	 * Adds available events, at most limit and source->bytes (but always one), without waiting
	 * for more once there is one; waits until flight->begin_until_us for the first. Connects if
	 * necessary, creates its group or consumer if there is none (starting at the oldest event),
	 * and takes over abandoned events. None: there was no event. POSTROOM_UNAVAILABLE: the
	 * broker is unreachable or unusable; the next call retries. POSTROOM_STOPPED: a stop came
	 * first. POSTROOM_NOT_FOUND: the source has ended. Events that were read and not
	 * acknowledged may be redelivered.
	 */
	int (*read)(struct pr_source *source, struct pr_events *events, size_t limit,
		    const struct pr_flight *flight, struct pr_err *err);

	/*
	 * Acknowledges all events of the last read(). Waits for the broker's answer if it gives
	 * one. A failure loses nothing: the events are redelivered.
	 */
	int (*ack)(struct pr_source *source, const struct pr_events *events,
		   const struct pr_flight *flight, struct pr_err *err);

	/* Extends the lease of the last read, so that the broker does not redeliver it. May be
	 * NULL. */
	int (*keep)(struct pr_source *source, const struct pr_events *events,
		    const struct pr_flight *flight, struct pr_err *err);

	/* Returns unacknowledged events to the broker, as far as that needs no waiting. */
	void (*close)(struct pr_source *source); /* may be NULL */
};

/*
 * Limit of a read for all sources of a consumer together. One event may be larger. A source, with
 * its client library, buffers only a few times its part of this.
 */
#define PR_SOURCE_BYTES ((size_t)8 * 1024 * 1024)

struct pr_source {
	const struct pr_source_ops *ops;
	struct pr_url url;
	const char *group; /* the handler's name, unless the URL's settings say otherwise */
	char consumer[PR_UUID_SIZE]; /* unique name of this instance */
	int64_t lease_ms; /* after this, other consumers may receive unacknowledged events */
	size_t bytes;	  /* limit of a read: PR_SOURCE_BYTES, or a part of it; set before the first
		       * one */
};

extern const struct pr_source_ops *const pr_sources[]; /* ends in NULL */

/* group and lease_ms as in struct pr_source; group is borrowed for the source's life. */
int pr_source_open(const char *url, const char *group, int64_t lease_ms, struct pr_source **ret,
		   struct pr_err *err);
void pr_source_close(struct pr_source *source);

extern const struct pr_source_ops pr_source_stdin;
extern const struct pr_source_ops pr_source_redis;
extern const struct pr_source_ops pr_source_kafka;
extern const struct pr_source_ops pr_source_nats;
extern const struct pr_source_ops pr_source_amqp;

#endif
