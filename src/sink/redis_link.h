/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to Redis, plain or through TLS, which never waits longer than it may.
 * hiredis knows what commands and answers look like; the waiting is ours.
 */
#ifndef PR_SINK_REDIS_LINK_H
#define PR_SINK_REDIS_LINK_H

#include "sink/wire.h"

#include <hiredis.h>

struct pr_redis_link {
	const struct pr_url *url; /* user and password */
	struct pr_address address;
	SSL_CTX *tls; /* NULL: plain */
	int64_t db;
	redisReader *reader; /* NULL: to be connected */
	bool reads;	     /* nothing is written: there are no transactions to be had, no warnings */
	bool in_flight;	     /* messages are on their way: a stop waits for the answers */
	bool warned;
	uint64_t connections; /* how many there have been */
	struct pr_wire wire;
	struct pr_buf in, out;
	size_t out_at; /* up to here sent */
};

/*
 * For the URL of a sink or a source, whose schemes these are; connects to nothing. What the
 * URL has wrong is POSTROOM_SINK. Only after success there is something to release.
 */
int pr_redis_link_open(struct pr_redis_link *link, const struct pr_url *url,
		       const char *const *schemes, const struct pr_tls_files *tls,
		       struct pr_err *err);
void pr_redis_link_release(struct pr_redis_link *link);

/*
 * Connects unless there is a connection already, and it lives. POSTROOM_STOPPED
 * when a stop came first.
 */
int pr_redis_connect(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		     struct pr_err *err);

/* A command to be sent; lens NULL: its words are strings. No memory is told by link->out.failed. */
void pr_redis_put(struct pr_redis_link *link, int count, const char **words, const size_t *lens);

/*
 * Sends what has been put, and returns the next answer, for the
 * caller to free. NULL and the error when there is none: then it is time to hang up.
 */
redisReply *pr_redis_reply(struct pr_redis_link *link, const struct pr_flight *flight,
			   int64_t until_us, struct pr_err *err);

void pr_redis_hang_up(struct pr_redis_link *link);

#endif
