/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher: workers that claim, publish and settle until told to stop. */
#ifndef PR_RELAY_RELAY_H
#define PR_RELAY_RELAY_H

#include "base/log.h"
#include "base/stop.h"
#include "base/url.h"
#include "core/verdict.h"
#include "relay/rates.h"
#include "sink/callback.h"
#include "store/store.h"

#define PR_CONCURRENCY_MAX 10000

/* With --drain: how long a sink or a database may stay away before we give up. */
#define PR_DRAIN_PATIENCE_MS 30000

/* One sink of a configuration and how it may be used. */
struct pr_relay_sink {
	const char *name; /* NULL: not from a configuration */
	const char *url;
	const struct pr_url_setting *settings; /* beside those behind the URL's '?' */
	size_t setting_count;
	int64_t concurrency; /* messages in its hands at once; 0: as many as it likes */
	double rate;	     /* messages a second; 0: as many as it takes */
};

/* Which messages a sink gets. The first one that fits counts. */
struct pr_relay_route {
	const char *ns;	   /* NULL: any */
	const char *topic; /* pattern; NULL: any */
	size_t sink;	   /* index into sinks */
};

/* Makes the sink of a worker, for who has one that no URL names. */
struct pr_handler {
	int (*open)(void *context, struct pr_sink **ret, struct pr_err *err);
	void *context;
};

struct pr_relay_config {
	const char *url;    /* database */
	const char *schema; /* PostgreSQL; NULL: the first of the search_path */
	const char *to;	    /* sink URL */
	int64_t concurrency; /* of that sink, as in struct pr_relay_sink */
	double rate;
	const struct pr_relay_sink *sinks; /* instead of it, with routes */
	size_t sink_count;
	const struct pr_relay_route *routes;
	size_t route_count;
	struct pr_callback callback; /* instead of it */
	struct pr_handler handler;   /* instead of it */
	const struct pr_table *table; /* NULL: the outbox */
	bool loose; /* keys do not order anything */
	bool beats; /* publishing may take longer than the lease, which is renewed meanwhile */
	struct pr_scope scope;
	int64_t workers;
	int64_t batch_size;
	int64_t lease_ms;
	int64_t poll_interval_ms;   /* 0: the smaller of 1 s and a third of the lease */
	int64_t publish_timeout_ms; /* 0: the smaller of 10 s and half the lease */
	int64_t shutdown_grace_ms;
	struct pr_policy policy;
	int64_t retention_ms; /* delivered messages in scope are purged after this; < 0: never */
	int64_t dead_retention_ms;   /* the same for dead ones */
	int64_t dedupe_retention_ms; /* keys whose messages have gone are forgotten; < 0: never */
	int64_t inbox_retention_ms;  /* completed ones are purged from the inbox; < 0: never */
	bool drain;		     /* stop when nothing is left to do */
	bool impatient;		     /* who stays away is waited for no longer than by a drain */
	enum pr_log_level log_level;
	enum pr_log_format log_format;
	pr_log_fn log; /* NULL: lines go to stderr */
	void *log_context;
};

/* Fills in the derived defaults and checks what must hold between the values (D1). */
int pr_relay_config_check(struct pr_relay_config *config, struct pr_err *err);
/* Opens and closes each sink that is used, where that makes nothing and connects to nothing. */
int pr_relay_try_sinks(const struct pr_relay_config *config, struct pr_err *err);

struct pr_relay;

int pr_relay_open(const struct pr_relay_config *config, struct pr_relay **ret, struct pr_err *err);

/* Its two halves, for who must be able to stop the second: it waits for a server that is down. */
int pr_relay_make(const struct pr_relay_config *config, struct pr_relay **ret, struct pr_err *err);
int pr_relay_ready(struct pr_relay *relay, struct pr_err *err);
/* The database tried once. */
int pr_relay_try(const struct pr_relay *relay, struct pr_err *err);

/* Runs until stopped or drained. POSTROOM_OK, or why it had to give up. */
int pr_relay_run(struct pr_relay *relay, struct pr_err *err);

/*
 * Works by another configuration from now on, from any one thread while it runs.
 * All its sinks are opened first; on failure nothing has changed. What is in flight
 * is finished by the old one. What can not change (the database, the retry policy)
 * stays, and a line of the log says so. POSTROOM_STOPPED: it is stopping.
 */
int pr_relay_reload(struct pr_relay *relay, const struct pr_relay_config *config,
		    struct pr_err *err);

/* Safe from a signal handler and from any thread. */
void pr_relay_stop(struct pr_relay *relay);
void pr_relay_reopen(struct pr_relay *relay); /* sinks reopen their files */

/* Ends when nothing is left to do, as with drain: no more is coming. From any thread. */
void pr_relay_finish(struct pr_relay *relay);

/* For who works beside it, before it runs: to be watched as its own workers are. */
int pr_relay_watch(struct pr_relay *relay, const struct pr_pulse *pulse, const char *name,
		   struct pr_err *err);
const struct pr_stop *pr_relay_stopping(const struct pr_relay *relay);
/* What others than its workers have done counts as theirs. */
void pr_relay_add(struct pr_relay *relay, int64_t delivered, int64_t failed, int64_t dead);
/* The log's lines about them are the same. */
void pr_log_failed(struct pr_log *log, const char *id, const char *key, int32_t attempt,
		   int32_t max, const char *error);
/* error is NULL if a line before it has told why. */
void pr_log_dead(struct pr_log *log, const char *id, const char *key, int32_t attempts,
		 const char *error);

struct pr_relay_totals {
	int64_t fetched, delivered, failed, dead, lost;
};
void pr_relay_totals(struct pr_relay *relay, struct pr_relay_totals *ret);

/* How it is doing; from any thread, as the totals. */
struct pr_relay_report {
	struct pr_relay_totals totals; /* since the start */
	struct pr_rates_report rates;
	int64_t in_flight; /* claimed, and not settled yet */
};
void pr_relay_report(struct pr_relay *relay, struct pr_relay_report *ret);

/* Messages without a route are not counted further than this. */
#define PR_UNROUTED_MOST 1000

/* How it is, told without waiting for anybody. */
struct pr_relay_health {
	bool running;	   /* every thread has begun its work */
	int64_t silent_ms; /* a thread that should have been heard of was not for so long; 0: none */
	char who[20];	   /* which one */
	int64_t overdue_ms; /* told to stop, and the grace has passed for so long; 0: it has not */
	int64_t database_away_ms; /* 0: it is there */
	int sinks_away;
	int64_t sink_away_ms; /* the one that has been away for longest; 0: all are there */
	char sink[64];	      /* its name; "" without a configuration */
	char reason[300];     /* why it is away */
	int64_t unrouted;     /* messages that no route wants; PR_UNROUTED_MOST: or more */
};
void pr_relay_health(struct pr_relay *relay, struct pr_relay_health *ret);

void pr_relay_close(struct pr_relay *relay);

#endif
