/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dispatcher inside your own program: it claims messages, passes them to your callback, and
 * settles the results. Link with libpostroom-relay, which includes the functions of the other two
 * libraries.
 *
 * It starts its own threads in postroom_relay_run() and ends them before that returns. It touches
 * no signals, prints nothing and never exits. Its threads have the signal mask of the thread that
 * calls postroom_relay_run().
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
 * Publishes messages and gives each of them a verdict with postroom_delivery_judge().
 * The verdict is POSTROOM_UNTRIED when the callback is called.
 *
 *	DELIVERED	the receiver has acknowledged the message. Do not use it for
 *			a message that was only queued: it is not sent again.
 *	FAILED		retried after the backoff, or after the delay given with
 *			postroom_delivery_retry_in(); dead after max_attempts.
 *	REJECTED	dead immediately: no further attempt could succeed.
 *	UNREACHABLE	the receiver is down, whatever the message. No attempt is
 *			counted. The relay claims one message every few seconds
 *			until one is delivered.
 *	UNTRIED		not started, for lack of time; it is claimed again. No
 *			attempt is counted. A call that tries none of its messages,
 *			although it had time to, counts as UNREACHABLE.
 *
 * The reason is stored as last_error and logged. It must live until the callback
 * returns; postroom_flight_text() makes one that does.
 *
 * No two messages of a call share namespace, topic and key, so they may be
 * published in any order or concurrently. A key's next message comes with a later
 * call, after the one before it was DELIVERED.
 *
 * Each worker calls from its own thread: with several workers, the callback runs
 * concurrently. If a callback never returns, neither does postroom_relay_run(). If
 * it returns after the lease of its messages has expired, they are published again
 * by their new owner.
 */
typedef void (*postroom_publish_fn)(void *context, postroom_delivery *const *items, size_t count,
				    postroom_flight *flight);

/*
 * 1 while another message may begin. 0: leave the rest UNTRIED, because the relay stops or the
 * time of this call is over. Call it before each message except the first.
 */
POSTROOM_API int postroom_flight_may_begin(const postroom_flight *flight);

/*
 * How much time begun messages have left. 0: the callback must return immediately. A stop shortens
 * it: call this again after each wait.
 */
POSTROOM_API int64_t postroom_flight_left_ms(const postroom_flight *flight);

/*
 * Formats a reason that lives until the callback returns. NULL, which is a valid reason, if there
 * is no memory.
 */
POSTROOM_API const char *postroom_flight_text(postroom_flight *flight, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

typedef enum postroom_log_level {
	POSTROOM_LOG_DEBUG = -1,
	POSTROOM_LOG_INFO = 0, /* events of each message */
	POSTROOM_LOG_WARN = 1, /* begin and end of outages of the database or the receiver */
	POSTROOM_LOG_ERROR = 2
} postroom_log_level;

/*
 * Receives each log event, such as "OUTBOX_WORKER_DISPATCH_FAIL", with its fields as "id=… key=…
 * retry=1 max=10", or ""; valid during the call. Several threads call it concurrently. It must not
 * call the relay except for postroom_relay_stop() and postroom_relay_totals().
 */
typedef void (*postroom_log_fn)(void *context, postroom_log_level level, const char *event,
				const char *fields);

#define POSTROOM_NEVER (-1)   /* a retention: nothing is purged */
#define POSTROOM_AT_ONCE (-2) /* retention_ms: messages are deleted when they are delivered */

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
	int32_t batch_size;	    /* at most 500 messages per claim */
	int64_t lease_ms;	    /* 30 s; then another relay may take over */
	int64_t poll_interval_ms;   /* 1 s, or a third of the lease if that is shorter */
	int64_t publish_timeout_ms; /* 10 s, or half the lease if that is shorter */
	int64_t shutdown_grace_ms;  /* 20 s to finish messages in flight */
	int32_t max_attempts;	    /* 10, the first included */
	int64_t base_delay_ms;	    /* 1 s before the second attempt */
	int64_t max_delay_ms;	    /* 5 min between attempts at most */
	postroom_backoff backoff;
	int32_t max_error_length; /* 2000 characters of a reason are stored */
	postroom_on_dead on_dead;
	int64_t retention_ms;	     /* 7 days, then delivered messages are purged */
	int64_t dedupe_retention_ms; /* 30 days, then the dedupe keys of purged messages are purged */
	int drain;		     /* not 0: run only until every message is delivered or dead */
	postroom_log_fn log;	     /* NULL: silence */
	void *log_context;
	postroom_log_level log_level; /* events below it are not logged */
	int64_t inbox_retention_ms;   /* 30 days, then completed events are purged from the inbox */
} postroom_relay_options;

#define POSTROOM_RELAY(...)                                                                        \
	(&(const postroom_relay_options){ .size = sizeof(postroom_relay_options), __VA_ARGS__ })

/*
 * Checks the options and connects to the database. An SQLite file and its tables are created if
 * necessary; other databases must have been migrated. An unreachable server is not an error;
 * postroom_relay_run() waits for it. On failure, *ret is NULL or a relay that only has an error
 * message; close it in both cases.
 */
POSTROOM_API int postroom_relay_open(const postroom_relay_options *options, postroom_relay **ret);

/*
 * Runs until stopped or drained: POSTROOM_OK. An outage of the database or the receiver is not a
 * failure, unless drain is set and it lasts for 30 s. Call it only once per relay.
 */
POSTROOM_API int postroom_relay_run(postroom_relay *relay);

/*
 * Stops the relay: it begins nothing more, settles messages in flight, releases the rest and
 * returns from postroom_relay_run(), immediately if that has not been called yet. Safe from a
 * signal handler, from the callback, and from any thread until postroom_relay_close(). It is
 * idempotent.
 */
POSTROOM_API void postroom_relay_stop(postroom_relay *relay);

typedef struct postroom_totals {
	int64_t fetched; /* claimed, each claim counted */
	int64_t delivered;
	int64_t failed; /* attempts that FAILED or were REJECTED */
	int64_t dead;
	int64_t lost;	     /* settled too late: another relay had claimed it */
	int64_t reserved[8]; /* for later fields */
} postroom_totals;

/* Since it was opened; from any thread. */
POSTROOM_API void postroom_relay_totals(postroom_relay *relay, postroom_totals *ret);

/*
 * How it is doing, as text in the Prometheus format 0.0.4 for your own /metrics: the metrics of
 * `postroom relay` without those of the process. Needs size bytes, the NUL included, of which
 * *ret_needed gets the number; POSTROOM_NOMEM if there are fewer, or no memory: then the text is
 * "" and you may call it again. From any thread until postroom_relay_close(). It runs no query:
 * counts of the tables are collected every 15 s by the relay itself, from the first call on.
 */
POSTROOM_API int postroom_relay_metrics(postroom_relay *relay, char *text, size_t size,
					size_t *ret_needed);

/* The sentence for the last failure of open or run, once that has returned. */
POSTROOM_API const char *postroom_relay_errmsg(const postroom_relay *relay);

/* Not while postroom_relay_run() runs. NULL is harmless. */
POSTROOM_API void postroom_relay_close(postroom_relay *relay);

#ifdef __cplusplus
}
#endif

#endif
