/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where events come from. A source is one file, one const struct, one line in
 * the array of source.c; contract/source*.c run over every one of them.
 *
 * Each intake thread has its own instance, used by it alone. What has been read is
 * the source's until it is acknowledged: a broker gives it to somebody else when we
 * die, and after the lease when we are only silent.
 */
#ifndef PR_CONSUME_SOURCE_H
#define PR_CONSUME_SOURCE_H

#include "base/json.h"
#include "base/uuid.h"
#include "sink/sink.h"

/* An event as it came. Every byte of it lives in the batch's arena. */
struct pr_event {
	const char *id;	   /* what a sink of ours has called it; NULL: nobody did */
	const char *place; /* where it stands in the broker, the same whenever it is delivered: "orders/1700-0" */
	const char *topic; /* NULL: it does not say */
	const char *key;   /* NULL if none */
	const char *headers;	  /* JSON object of strings; NULL: {} */
	const char *content_type; /* NULL: it does not say */
	const char *body;	  /* its content, whatever that is; ends in a NUL that does not count */
	size_t len;
	uint64_t tag; /* the source's own */
};

struct pr_events {
	struct pr_arena arena;
	struct pr_event *list;
	size_t count, capacity;
};

/* A zeroed struct is ready for use. */
void pr_events_reset(struct pr_events *events);
void pr_events_release(struct pr_events *events);
/* A zeroed event at the end, or NULL when there is no memory. */
struct pr_event *pr_events_add(struct pr_events *events);

/*
 * "sha256:…" of the parts with a zero byte between them, the same on every machine: for what
 * has no place of its own. NULL: no memory.
 */
const char *pr_event_digest(struct pr_arena *arena, const struct pr_span *parts, size_t count);

struct pr_source;

struct pr_source_ops {
	const char *const *schemes; /* ends in NULL */
	const char *summary;	    /* one line for the manual */
	const char *example;	    /* a URL */
	size_t size; /* of the instance, which begins with struct pr_source */
	const struct pr_param *params; /* settings behind '?', into the instance */

	/* Checks its settings; connects to nothing. Bad ones are POSTROOM_SINK. */
	int (*open)(struct pr_source *source, struct pr_err *err);

	/*
	 * Adds what there is, limit events and PR_SOURCE_BYTES at most (but always one),
	 * without waiting for more once there is one; waits until flight->begin_until_us
	 * for the first. Connects if need be, makes its group or consumer if there is none
	 * (which begins at the oldest event), and takes over what others have left. None:
	 * nothing came. POSTROOM_UNAVAILABLE: the broker is not there, or not as it must be;
	 * the next call tries again. POSTROOM_STOPPED: a stop came first.
	 * POSTROOM_NOT_FOUND: there will never be more.
	 * What an earlier call has read and nobody has acknowledged may come again.
	 */
	int (*read)(struct pr_source *source, struct pr_events *events, size_t limit,
		    const struct pr_flight *flight, struct pr_err *err);

	/*
	 * All that read() gave last are safe: the broker may forget them. Waits for its
	 * answer where it gives one. A failure is no loss: they will come again.
	 */
	int (*ack)(struct pr_source *source, const struct pr_events *events,
		   const struct pr_flight *flight, struct pr_err *err);

	/* They take longer: the broker is not to give them to others yet. May be NULL. */
	int (*keep)(struct pr_source *source, const struct pr_events *events,
		    const struct pr_flight *flight, struct pr_err *err);

	/* What was read and not acknowledged goes back, as far as that takes no waiting. */
	void (*close)(struct pr_source *source); /* may be NULL */
};

/* A read stops here; one event may be larger. */
#define PR_SOURCE_BYTES ((size_t)8 * 1024 * 1024)

struct pr_source {
	const struct pr_source_ops *ops;
	struct pr_url url;
	const char *group; /* the handler's name, unless the URL's settings say otherwise */
	char consumer[PR_UUID_SIZE]; /* this very instance */
	int64_t lease_ms; /* after this, others may have what we have not acknowledged */
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
