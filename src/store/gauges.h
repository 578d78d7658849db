/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a database for metrics and dashboards. */
#ifndef PR_STORE_GAUGES_H
#define PR_STORE_GAUGES_H

#include <postroom/store.h>
#include <stdbool.h>

/*
 * Bounded counts for metrics and dashboards, of index entries only. Every count stops at the cap
 * that the caller gives; capped says that at least one did.
 */
struct pr_gauges {
	int64_t pending, processing, dead;
	int64_t failed_pending; /* of the pending ones: after at least one attempt */
	int64_t scheduled;	/* of the pending ones: delayed, never tried, not due yet */
	int64_t due;		/* of the pending ones: may be claimed now */
	int64_t oldest_age_us;	/* age of the oldest due or retried message; -1: none */
	int64_t inbox_pending, inbox_active, inbox_dead;
	int64_t inbox_oldest_age_us;
	/* When the first of the dead letters died; 0: there is none, or not all could be read. */
	int64_t dead_since_us, inbox_dead_since_us;
	int64_t table_bytes; /* of the outbox and its indexes; -1: not known */
	int64_t dead_tuples; /* PostgreSQL's estimate; -1: not known */
	int64_t rejected;    /* rows of adopted tables that cannot be messages; -1: not known */
	bool capped;
	bool topics_capped; /* the figures by topic and handler cover a part of the rows, or of the topics */
};

/* Figures of one topic of the outbox, or of one handler of the inbox. */
struct pr_topic_gauges {
	postroom_table table;
	const char *ns;	   /* of a topic; NULL for a handler */
	const char *topic; /* or the handler */
	int64_t pending, processing, failed_pending, dead;
	int64_t oldest_age_us; /* -1: nothing waits */
};
typedef void (*pr_topic_gauges_fn)(void *context, const struct pr_topic_gauges *topic);

#define PR_GAUGES_CAP 100000
#define PR_GAUGES_TOPICS 100

/* Leases of one worker that have not expired. */
struct pr_lease_view {
	const char *worker;
	postroom_table table;
	int64_t messages;
	int64_t lanes;		 /* 0: each message has its own lease */
	int64_t locked_until_us; /* the latest */
};
typedef void (*pr_lease_fn)(void *context, const struct pr_lease_view *lease);

#endif
