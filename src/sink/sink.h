/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where messages go. A sink is one file, one const struct, one line in the
 * array of sink.c. Each worker has its own instance, used by its thread alone.
 *
 * DELIVERED means that the far side has acknowledged it, never "handed to a
 * client library's queue".
 */
#ifndef PR_SINK_SINK_H
#define PR_SINK_SINK_H

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/param.h"
#include "base/stop.h"
#include "base/url.h"
#include "core/verdict.h"

#include <poll.h>
#include <stdint.h>

struct pr_beat;

/* One call to publish: what it may use and when it must be back. */
struct pr_flight {
	struct pr_arena *arena;		/* reasons go here */
	const struct pr_policy *policy; /* how long they may be */
	int64_t begin_until_us;		/* monotonic: nothing new is begun after this */
	int64_t timeout_ms;		/* what a single message may take, ending it aside */
	int64_t concurrency; /* begun and not ended, at once; 0: as the sink likes it */
	const struct pr_stop *stop;	/* requested: begin nothing new; overdue: give up at once */
	struct pr_log *log;
	struct pr_beat *beat; /* NULL: the lease outlasts the flight anyway */
};

/*
 * A flight may take longer than the lease: pr_flight_poll() and pr_flight_wait()
 * renew it on the way, as often as they are called.
 */
struct pr_beat {
	void (*renew)(struct pr_beat *beat); /* sets next_us, and until_us if it could */
	int64_t next_us;  /* monotonic: when to renew */
	int64_t until_us; /* when the lease ends */
};

/* The lease has run out: whatever is under way is to be ended at once, and stays POSTROOM_UNTRIED. */
bool pr_flight_lost(const struct pr_flight *flight);

/* Ending what has timed out may take this part of the timeout more. */
#define PR_FLIGHT_END_PART 4

/*
 * False once the stop is requested, begin_until_us has passed, or the lease is lost: to be
 * asked before each beginning.
 */
bool pr_flight_may_begin(const struct pr_flight *flight);

/* How many of count messages may be begun and not ended at once. */
static inline size_t pr_flight_most(const struct pr_flight *flight, size_t count)
{
	return flight->concurrency > 0 && (size_t)flight->concurrency < count ?
		       (size_t)flight->concurrency : count;
}

/*
 * poll() that also ends at until_us, when a stop is requested, and when its
 * grace is over. fds[0] is the flight's own; the caller's stand behind it.
 */
void pr_flight_poll(const struct pr_flight *flight, struct pollfd *fds, nfds_t count,
		    int64_t until_us);

/*
 * The same for libraries that poll by themselves: the descriptor to poll with
 * theirs (fd -1: none), and for how many milliseconds.
 */
int pr_flight_wait(const struct pr_flight *flight, struct pollfd *ret_own, int64_t until_us);

struct pr_lookup;

struct pr_address {
	char host[256]; /* a name or an address, without brackets */
	int port;
	struct pr_lookup *lookup; /* of the name, begun and not heard of yet; NULL: none */
};

/*
 * A TCP connection, not blocking, for the caller to close. POSTROOM_STOPPED when
 * a stop came first, POSTROOM_UNAVAILABLE when there is none by until_us.
 */
int pr_flight_dial(const struct pr_flight *flight, struct pr_address *to, int64_t until_us,
		   int *ret_fd, struct pr_err *err);

/*
 * HOST, HOST:PORT or [HOST]:PORT, which is the URL's host or one of several there; port is
 * what it is without one.
 */
int pr_address_parse(const struct pr_url *url, const char *host, int port, struct pr_address *ret,
		     struct pr_err *err);
void pr_address_release(struct pr_address *address);

struct pr_sink;

struct pr_sink_ops {
	const char *const *schemes; /* ends in NULL */
	const char *summary;	    /* one line for `postroom sinks` */
	const char *example;	    /* a URL */
	bool verbatim;		    /* what stands behind the colon is not a URL: no decoding, no settings */
	bool server;		    /* a server: several failures in a row are an outage */
	bool acts;		    /* opening it makes a file or a connection: nothing for a mere check */
	size_t size;		    /* of the instance, which begins with struct pr_sink */
	const struct pr_param *params; /* settings behind '?', into the instance */

	/*
	 * url->path etc. are the instance's for its life. Bad settings are
	 * POSTROOM_SINK. close is not called after a failure.
	 */
	int (*open)(struct pr_sink *sink, struct pr_err *err);

	/*
	 * Gives each item a verdict with pr_verdict_set(); items in front are begun
	 * first, and those never begun stay POSTROOM_UNTRIED. Returns POSTROOM_OK
	 * whatever the verdicts; a failure means that this sink is broken for good
	 * and the relay must stop.
	 *
	 * Order: what shares namespace, topic and key arrives as it stands here. An
	 * item whose predecessor in this call (pr_sink_order()) is not DELIVERED must
	 * not arrive: it is not begun, and stays POSTROOM_UNTRIED.
	 */
	int (*publish)(struct pr_sink *sink, postroom_delivery *items, size_t count,
		       const struct pr_flight *flight, struct pr_err *err);

	void (*reopen)(struct pr_sink *sink); /* on SIGHUP; may be NULL */
	void (*close)(struct pr_sink *sink);  /* may be NULL */
};

struct pr_sink {
	const struct pr_sink_ops *ops;
	struct pr_url url;
	char *target; /* verbatim sinks: all behind the colon */
};

extern const struct pr_sink_ops *const pr_sinks[]; /* ends in NULL */

/* The sink that a URL's scheme names; an unknown one's error offers the nearest. */
int pr_sink_find(const char *url, const struct pr_sink_ops **ret, struct pr_err *err);

/* POSTROOM_SINK if this build does without what the scheme needs, and how to get it. */
int pr_sink_left_out(const char *scheme, struct pr_err *err);

int pr_sink_open(const char *url, struct pr_sink **ret, struct pr_err *err);
/* With further settings, which prevail over those behind the URL's '?'. */
int pr_sink_open_with(const char *url, const struct pr_url_setting *settings, size_t setting_count,
		      struct pr_sink **ret, struct pr_err *err);
void pr_sink_close(struct pr_sink *sink);

/* One line of stdout: and file:, with its newline: a JSON object. */
void pr_sink_put_line(struct pr_buf *out, const postroom_delivery *item);

/* The same verdict for all of them. reason may be NULL. */
void pr_sink_judge(postroom_delivery *items, size_t count, postroom_verdict verdict,
		   const struct pr_flight *flight, const char *reason);

/* Its key puts it in an order with others. */
static inline bool pr_sink_is_ordered(const postroom_delivery *item)
{
	return item->key && !item->loose;
}

/*
 * Of each item, where the one of its namespace, topic and key before it is, or
 * PR_SINK_NONE. NULL when there is no memory.
 */
#define PR_SINK_NONE SIZE_MAX
size_t *pr_sink_order(postroom_delivery *items, size_t count, struct pr_arena *arena);
/* None is one of its own: NULL and "" are the same. */
bool pr_sink_same_tenant(const postroom_delivery *a, const postroom_delivery *b);

/* Empties a buffer between batches; what one huge message made of it is given back. */
void pr_sink_trim(struct pr_buf *buf);

/* For OpenSSL, which would ask for the password of a locked key itself, on the terminal or stdin. */
static inline int pr_sink_ask_nobody(char *room, int size, int writing, void *context)
{
	(void)room;
	(void)size;
	(void)writing;
	(void)context;
	return -1;
}

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
