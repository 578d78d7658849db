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
	redisReader *reader; /* NULL: not connected */
	bool reads;	     /* for a source: needs no transactions, and does not warn */
	bool in_flight;	     /* messages are in flight: a stop waits for the answers */
	bool warned;
	uint64_t connections; /* how many connections were made */
	struct pr_stream net_stream;
	size_t answer_max; /* maximum bytes of an answer; 0: no limit */
	size_t answer;	   /* bytes received of the next answer */
	struct pr_buf in, out;
	size_t out_at; /* how much of out was sent */
};

/*
 * Reads the URL of a sink or a source with one of these schemes. It does not connect. Errors in the
 * URL are POSTROOM_SINK. Release it only after success.
 */
int pr_redis_connection_init(struct pr_redis_connection *conn, const struct pr_url *url,
			     const char *const *schemes, const struct pr_tls_files *tls,
			     struct pr_err *err);
void pr_redis_connection_release(struct pr_redis_connection *conn);

/* Connects unless there is a working connection. POSTROOM_STOPPED: a stop was requested first. */
int pr_redis_connect(struct pr_redis_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err);

/*
 * Appends a command. lens NULL: its words end in NUL. If there is no memory, it sets
 * conn->out.failed.
 */
void pr_redis_put(struct pr_redis_connection *conn, int count, const char **words,
		  const size_t *lens);

/*
 * Sends pending data and returns the next answer, which the caller frees. NULL: it failed;
 * disconnect then. err->native is EMSGSIZE if the answer is longer than answer_max.
 */
redisReply *pr_redis_reply(struct pr_redis_connection *conn, const struct pr_flight *flight,
			   int64_t until_us, struct pr_err *err);

void pr_redis_disconnect(struct pr_redis_connection *conn);

/* probe.c: see struct pr_sink_ops. stream may be a template. */
void pr_redis_probe(struct pr_redis_connection *conn, const char *stream,
		    const struct pr_flight *flight, struct pr_checkup *checkup);

#endif
