/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call to publish or read, as the network code sees it: its deadlines to begin, wait and
 * connect. Every wait ends at a deadline or at a stop, and renews the lease meanwhile.
 */
#ifndef PR_NET_FLIGHT_H
#define PR_NET_FLIGHT_H

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/url.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pr_policy;

struct pr_lease_renewer;

/* Evidence from the deliveries of a sink, over all of its workers. Times are monotonic. */
struct pr_delivery_evidence {
	_Atomic int64_t delivered_us; /* when a message was last delivered */
	_Atomic int64_t begun_us;     /* the latest beginning of all delivered messages */
};

/* One call to publish: its resources and its deadline. */
struct pr_flight {
	struct pr_arena *arena;		/* for reasons */
	const struct pr_policy *policy; /* maximum length of a reason */
	int64_t begin_until_us;		/* monotonic: nothing new is begun after this */
	int64_t timeout_ms;		/* timeout of a single message, without the time to end
					 * it */
	int64_t concurrency;		/* maximum number in flight; 0: the sink decides */
	const struct pr_stop *stop;	/* requested: begin nothing new; overdue: abandon
					 * everything */
	struct pr_log *log;
	struct pr_lease_renewer *renewer;   /* NULL: the lease outlasts the flight */
	int64_t began_us;		    /* when the call began, on the monotonic clock */
	struct pr_delivery_evidence *proof; /* pr_sink_judge() adds each delivery; may be NULL */
};

/*
 * A flight may take longer than the lease: pr_flight_poll() and pr_flight_wait() renew it when they
 * are called.
 */
struct pr_lease_renewer {
	void (*renew)(
		struct pr_lease_renewer *renewer); /* sets next_us, and until_us if it succeeded */
	int64_t next_us;			   /* monotonic: when to renew */
	int64_t until_us;			   /* when the lease ends */
};

/* True if the lease has expired: everything in flight must be ended, and stays POSTROOM_UNTRIED. */
bool pr_flight_lost(const struct pr_flight *flight);

/* Ending a timed-out request may take this additional share of the timeout. */
#define PR_FLIGHT_END_PART 4

/*
 * False once the stop is requested, begin_until_us has passed, or the lease is lost. Check it
 * before each beginning.
 */
bool pr_flight_may_begin(const struct pr_flight *flight);

/* How many of count messages may be in flight. */
static inline size_t pr_flight_most(const struct pr_flight *flight, size_t count)
{
	return flight->concurrency > 0 && (size_t)flight->concurrency < count
		       ? (size_t)flight->concurrency
		       : count;
}

/*
 * poll() that also ends at until_us, when a stop is requested, and when its grace period ends.
 * fds[0] is the flight's; the caller's descriptors follow.
 */
void pr_flight_poll(const struct pr_flight *flight, struct pollfd *fds, nfds_t count,
		    int64_t until_us);

/*
 * The same for libraries that poll: the descriptor to add to theirs (fd -1: none), and the timeout
 * in milliseconds.
 */
int pr_flight_wait(const struct pr_flight *flight, struct pollfd *ret_own, int64_t until_us);

struct pr_lookup;

struct pr_address {
	char host[256]; /* a name or an address, without brackets */
	int port;
	struct pr_lookup *lookup; /* unfinished lookup of the name; NULL: none */
};

/*
 * Opens a non-blocking TCP connection, for the caller to close. POSTROOM_STOPPED: a stop came
 * first. POSTROOM_UNAVAILABLE: there is no connection by until_us.
 */
int pr_flight_dial(const struct pr_flight *flight, struct pr_address *to, int64_t until_us,
		   int *ret_fd, struct pr_err *err);

/* Parses HOST, HOST:PORT or [HOST]:PORT: the URL's host, or one of several. port is the default. */
int pr_address_parse(const struct pr_url *url, const char *host, int port, struct pr_address *ret,
		     struct pr_err *err);
void pr_address_release(struct pr_address *address);

#endif
