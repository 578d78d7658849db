/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher: workers that claim, publish and settle until they are stopped. */
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

/* With --drain: give up after this duration of an outage of a sink or the database. */
#define PR_DRAIN_PATIENCE_MS 30000

/* One sink of a configuration and how it may be used. */
struct pr_relay_sink {
	const char *name; /* NULL: not from a configuration */
	const char *url;
	const struct pr_url_setting *settings; /* in addition to those after the URL's '?' */
	size_t setting_count;
	int64_t concurrency; /* maximum messages in flight; 0: chosen by the sink */
	double rate;	     /* messages per second; 0: unlimited */
};

/* Which messages a sink gets. The first matching route applies. */
struct pr_relay_route {
	const char *ns;	   /* NULL: any */
	const char *topic; /* pattern; NULL: any */
	size_t sink;	   /* index into sinks */
};

/* Opens a worker's sink that no URL names. */
struct pr_handler {
	int (*open)(void *context, struct pr_sink **ret, struct pr_err *err);
	void *context;
};

struct pr_relay_config {
	const char *url;     /* database */
	const char *schema;  /* PostgreSQL; NULL: the first of the search_path */
	const char *to;	     /* sink URL */
	int64_t concurrency; /* of that sink, as in struct pr_relay_sink */
	double rate;
	const struct pr_relay_sink *sinks; /* instead of it, with routes */
	size_t sink_count;
	const struct pr_relay_route *routes;
	size_t route_count;
	struct pr_callback callback;  /* instead of it */
	struct pr_handler handler;    /* instead of it */
	const struct pr_table *table; /* NULL: the outbox */
	bool unordered;		      /* keys imply no order */
	bool renews_leases; /* a publish may take longer than the lease, which is renewed meanwhile */
	struct pr_scope scope;
	int64_t workers;
	int64_t batch_size;
	int64_t lease_ms;
	int64_t poll_interval_ms;   /* 0: the smaller of 1 s and a third of the lease */
	int64_t publish_timeout_ms; /* 0: the smaller of 10 s and half the lease */
	int64_t shutdown_grace_ms;
	struct pr_policy policy;
	int64_t retention_ms; /* delivered messages in scope are purged after this; < 0: never */
	int64_t dead_retention_ms; /* the same for dead ones */
	int64_t dedupe_retention_ms; /* dedupe keys of deleted messages are purged after this; < 0: never */
	int64_t inbox_retention_ms;  /* completed ones are purged from the inbox; < 0: never */
	int64_t collect_interval_ms; /* between two collections of store gauges; 0: 15 s */
	bool drain;		     /* stop when nothing is left to do */
	bool impatient;		     /* wait for an outage no longer than a drain does */
	enum pr_log_level log_level;
	enum pr_log_format log_format;
	pr_log_fn log; /* NULL: lines are written to stderr */
	void *log_context;
};

/* Fills in the derived defaults and checks the values against each other (D1). */
int pr_relay_config_check(struct pr_relay_config *config, struct pr_err *err);
/* Opens and closes each sink in use, unless opening it creates a file or connects. */
int pr_relay_try_sinks(const struct pr_relay_config *config, struct pr_err *err);

struct pr_relay;

int pr_relay_open(const struct pr_relay_config *config, struct pr_relay **ret, struct pr_err *err);

/*
 * The two halves of pr_relay_open(). The second one waits for a server that is down, and can be
 * stopped.
 */
int pr_relay_make(const struct pr_relay_config *config, struct pr_relay **ret, struct pr_err *err);
int pr_relay_ready(struct pr_relay *relay, struct pr_err *err);
/* Connects to the database once, to check it. */
int pr_relay_try(const struct pr_relay *relay, struct pr_err *err);

/* Runs until stopped or drained. POSTROOM_OK, or why it had to give up. */
int pr_relay_run(struct pr_relay *relay, struct pr_err *err);
/* Logs that pr_schema_is_incompatible(), once for all threads. */
void pr_relay_log_incompatible(struct pr_relay *relay, struct pr_log *log,
			       const struct pr_err *err);

/*
 * Switches to another configuration, from any one thread while the relay runs. All its sinks are
 * opened first; on failure nothing has changed. The old generation finishes its messages in
 * flight. Settings that cannot change (the database, the retry policy) stay, and a log line says
 * so. POSTROOM_STOPPED: the relay is stopping.
 */
int pr_relay_reload(struct pr_relay *relay, const struct pr_relay_config *config,
		    struct pr_err *err);

/* Safe from a signal handler and from any thread. */
void pr_relay_stop(struct pr_relay *relay);
void pr_relay_reopen(struct pr_relay *relay); /* sinks reopen their files */

/* The input has ended: end when nothing is left to do, as with drain. Safe from any thread. */
void pr_relay_finish(struct pr_relay *relay);

/*
 * Registers the watchdog of another thread before the relay runs: it is watched like the relay's
 * own workers.
 */
int pr_relay_watch(struct pr_relay *relay, const struct pr_watchdog *watchdog, const char *name,
		   struct pr_err *err);
const struct pr_stop *pr_relay_stopping(const struct pr_relay *relay);
/* Adds deliveries and failures of other threads to the totals. */
void pr_relay_add(struct pr_relay *relay, int64_t delivered, int64_t failed, int64_t dead);
/* The log lines of such deliveries and failures. */
void pr_log_failed(struct pr_log *log, const char *id, const char *key, int32_t attempt,
		   int32_t max, const char *error);
/* error is NULL if the previous line has the reason. */
void pr_log_dead(struct pr_log *log, const char *id, const char *key, int32_t attempts,
		 const char *error);

struct pr_relay_totals {
	int64_t fetched, delivered, failed, dead, lost;
};
void pr_relay_totals(struct pr_relay *relay, struct pr_relay_totals *ret);

/* Throughput and lag; safe from any thread, like the totals. */
struct pr_relay_report {
	struct pr_relay_totals totals; /* since the start */
	struct pr_rates_report rates;
	int64_t in_flight; /* claimed, and not settled yet */
};
void pr_relay_report(struct pr_relay *relay, struct pr_relay_report *ret);

/* Unrouted messages are counted up to this number. */
#define PR_UNROUTED_MAX 1000

/* Health. The call never waits for another thread. */
struct pr_relay_health {
	bool running;		     /* every thread has started */
	int64_t watchdog_overdue_ms; /* how long the watchdog of a thread is overdue; 0: none is */
	char watchdog_thread[20];    /* name of that thread */
	int64_t overdue_ms; /* how far a stop has exceeded its grace period; 0: it has not */
	int64_t database_outage_ms; /* 0: available */
	int sinks_down;
	int64_t sink_outage_ms; /* the longest current outage of a sink; 0: none is down */
	char sink[64];		/* its name; "" without a configuration */
	char reason[300];	/* reason of the outage */
	int64_t unrouted;	/* unrouted messages; PR_UNROUTED_MAX: or more */
};
void pr_relay_health(struct pr_relay *relay, struct pr_relay_health *ret);

void pr_relay_close(struct pr_relay *relay);

#endif
