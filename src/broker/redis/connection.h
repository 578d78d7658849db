/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to Redis, plain or through TLS, with deadlines for every wait. hiredis formats
 * commands and parses answers; the waiting is ours.
 */
#ifndef PR_BROKER_REDIS_CONNECTION_H
#define PR_BROKER_REDIS_CONNECTION_H

#include "net/stream.h"
#include "sink/sink.h"

#include <hiredis.h>

struct pr_redis_connection {
	const struct pr_url *url; /* user and password */
	struct pr_address address;
	SSL_CTX *tls; /* NULL: plain */
	int64_t db;
	redisReader *reader; /* NULL: to be connected */
	bool reads;	/* nothing is written: there are no transactions to be had, no warnings */
	bool in_flight; /* messages are on their way: a stop waits for the answers */
	bool warned;
	uint64_t connections; /* how many there have been */
	struct pr_stream net_stream;
	size_t answer_max; /* bytes of an answer, beyond which it is an error; 0: no limit */
	size_t answer;	   /* bytes that have come of the next one */
	struct pr_buf in, out;
	size_t out_at; /* up to here sent */
};

/*
 * For the URL of a sink or a source, with these schemes; does not connect. Errors in the URL are
 * POSTROOM_SINK. Release it only after success.
 */
int pr_redis_connection_init(struct pr_redis_connection *conn, const struct pr_url *url,
			     const char *const *schemes, const struct pr_tls_files *tls,
			     struct pr_err *err);
void pr_redis_connection_release(struct pr_redis_connection *conn);

/*
 * Connects unless there is a connection already, and it lives. POSTROOM_STOPPED
 * when a stop came first.
 */
int pr_redis_connect(struct pr_redis_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err);

/* Appends a command; lens NULL: its words are strings. Out of memory sets link->out.failed. */
void pr_redis_put(struct pr_redis_connection *conn, int count, const char **words,
		  const size_t *lens);

/*
 * Sends what has been put, and returns the next answer, for the
 * caller to free. NULL and the error when there is none: then it is time to hang up. The error of
 * one that is longer than answer_max is EMSGSIZE.
 */
redisReply *pr_redis_reply(struct pr_redis_connection *conn, const struct pr_flight *flight,
			   int64_t until_us, struct pr_err *err);

void pr_redis_disconnect(struct pr_redis_connection *conn);

/* probe.c: see struct pr_sink_ops. stream may be a template. */
void pr_redis_probe(struct pr_redis_connection *conn, const char *stream,
		    const struct pr_flight *flight, struct pr_checkup *checkup);

#endif
