/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dispatcher inside your own program: it claims messages, hands them to your
 * callback, and settles what became of them. Link with libpostroom-relay,
 * which has the functions of the other two libraries too.
 *
 * It starts threads of its own in postroom_relay_run() and ends them before
 * that returns. It touches no signals, prints nothing and never exits; its
 * threads have the signal mask of the thread that calls postroom_relay_run().
 */
#ifndef POSTROOM_RELAY_H
#define POSTROOM_RELAY_H

#include <postroom/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct postroom_relay postroom_relay;

/* One call of the callback; valid until it returns, for the thread that was called. */
typedef struct postroom_flight postroom_flight;

/*
 * Publishes messages and says of each what became of it: item->verdict, which
 * is POSTROOM_UNTRIED when the callback gets it.
 *
 *	DELIVERED	the far side has it for good. Never said of what was only
 *			queued: it is not sent again.
 *	FAILED		tried again after item->retry_in_ms, or by the backoff if
 *			that is left alone; dead after max_attempts.
 *	REJECTED	dead at once: no further attempt could succeed.
 *	UNREACHABLE	the far side is not there, whatever the message. No
 *			attempt is counted, and nothing more is claimed, but for
 *			one message every few seconds until one gets through.
 *	UNTRIED		not begun, for want of time; it comes again. No attempt is
 *			counted. A call that tries none of its messages although
 *			it might have begun is taken for UNREACHABLE.
 *
 * item->reason may say why: kept as last_error and logged. It must live until
 * the callback returns; postroom_flight_text() makes one that does.
 *
 * No two messages of a call share namespace, topic and key, so they may be
 * published in any order or at the same time. A key's next message comes with a
 * later call, after the one before it was DELIVERED.
 *
 * Each worker calls from its own thread, so that with several workers the
 * callback runs several times at once. A call that does not come back keeps its
 * worker, and postroom_relay_run(), waiting. One that comes back after its
 * messages' lease has ended has published them for nothing: they are somebody
 * else's then, and are published again.
 */
typedef void (*postroom_publish_fn)(void *context, postroom_delivery *items, size_t count,
				    postroom_flight *flight);

/*
 * 1 while another message may be begun, 0 when the rest is to be left UNTRIED:
 * the relay is to stop, or this call has had its time. To be asked before each
 * message but the first.
 */
POSTROOM_API int postroom_flight_may_begin(const postroom_flight *flight);

/*
 * How long what has begun may still take, 0 when the callback must come back at
 * once. It grows shorter when the relay is told to stop: ask again after a wait.
 */
POSTROOM_API int64_t postroom_flight_left_ms(const postroom_flight *flight);

/* A reason, printf-like, that lives long enough. NULL, fine as one, when there is no memory. */
POSTROOM_API const char *postroom_flight_text(postroom_flight *flight, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

typedef enum postroom_log_level {
	POSTROOM_LOG_DEBUG = -1,
	POSTROOM_LOG_INFO = 0, /* what happens to each message */
	POSTROOM_LOG_WARN = 1, /* the database or the far side is away, or back */
	POSTROOM_LOG_ERROR = 2
} postroom_log_level;

/*
 * Gets each log event, such as "OUTBOX_WORKER_DISPATCH_FAIL", with its fields as
 * "id=… key=… retry=1 max=10", "" if it has none; valid during the call. Called
 * by several threads at once. It must not call the relay but for
 * postroom_relay_stop() and postroom_relay_totals().
 */
typedef void (*postroom_log_fn)(void *context, postroom_log_level level, const char *event,
				const char *fields);

#define POSTROOM_NEVER (-1)   /* a retention: nothing is purged or forgotten */
#define POSTROOM_AT_ONCE (-2) /* retention_ms: messages are deleted once they are delivered */

/* Zero means default. Strings are copied; context and log_context stay the caller's. */
typedef struct postroom_relay_options {
	size_t size;
	const char *url; /* the database: "sqlite:PATH", a path, or "postgres://…"; must be given */
	postroom_publish_fn publish; /* must be given */
	void *context;
	const char *schema;	    /* PostgreSQL; NULL: the first of the search_path */
	const char *ns;		    /* NULL: every namespace */
	const char *topic;	    /* a pattern, '*' for any characters; NULL: every topic */
	const char *tenant_id;	    /* NULL: every tenant */
	int32_t workers;	    /* 2, each with a thread and a database connection */
	int32_t batch_size;	    /* 500 messages claimed at once, at most */
	int64_t lease_ms;	    /* 30 s; then another relay may take over */
	int64_t poll_interval_ms;   /* 1 s, or a third of the lease if that is shorter */
	int64_t publish_timeout_ms; /* 10 s, or half the lease if that is shorter */
	int64_t shutdown_grace_ms;  /* 20 s to finish what is in flight */
	int32_t max_attempts;	    /* 10, the first included */
	int64_t base_delay_ms;	    /* 1 s before the second attempt */
	int64_t max_delay_ms;	    /* 5 min between attempts at most */
	postroom_backoff backoff;
	int32_t max_error_length; /* 2000 characters of a reason are kept */
	postroom_on_dead on_dead;
	int64_t retention_ms;	     /* 7 days, then delivered messages are purged */
	int64_t dedupe_retention_ms; /* 30 days, then the keys of purged messages are forgotten */
	int drain;		     /* not 0: run only until every message is delivered or dead */
	postroom_log_fn log;	     /* NULL: silence */
	void *log_context;
	postroom_log_level log_level; /* what is below it is not told */
	int64_t inbox_retention_ms;   /* 30 days, then what is completed is purged from the inbox */
} postroom_relay_options;

#define POSTROOM_RELAY(...)                                                                        \
	(&(const postroom_relay_options){ .size = sizeof(postroom_relay_options), __VA_ARGS__ })

/*
 * Checks the options and tries the database: a SQLite file and its tables are
 * made if need be, other databases must have been migrated. A server that is
 * down is no failure; postroom_relay_run() waits for it. On failure *ret is NULL
 * or a relay that only has an error message; close it all the same.
 */
POSTROOM_API int postroom_relay_open(const postroom_relay_options *options, postroom_relay **ret);

/*
 * Works until stopped, or drained: then POSTROOM_OK. A failure says why it had to
 * give up, which an outage of the database or of the far side is not, unless
 * drain is set and it lasts for 30 s. Only once for each relay.
 */
POSTROOM_API int postroom_relay_run(postroom_relay *relay);

/*
 * Begin nothing more, settle what is in flight, release the rest, return from
 * postroom_relay_run(), at once if that has not been called yet. Safe from a
 * signal handler, from the callback, and from any thread until
 * postroom_relay_close(); again and again is harmless.
 */
POSTROOM_API void postroom_relay_stop(postroom_relay *relay);

typedef struct postroom_totals {
	int64_t fetched; /* claimed, each claim counted */
	int64_t delivered;
	int64_t failed; /* attempts that FAILED or were REJECTED */
	int64_t dead;
	int64_t lost; /* settled too late: the lease had gone to another relay */
} postroom_totals;

/* Since it was opened; from any thread. */
POSTROOM_API void postroom_relay_totals(postroom_relay *relay, postroom_totals *ret);

/* The sentence for the last failure of open or run, once that has returned. */
POSTROOM_API const char *postroom_relay_error(const postroom_relay *relay);

/* Not while postroom_relay_run() runs. NULL is harmless. */
POSTROOM_API void postroom_relay_close(postroom_relay *relay);

#ifdef __cplusplus
}
#endif

#endif
