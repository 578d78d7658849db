/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to Redis that never waits longer than it may. */
#ifndef PR_SINK_REDIS_LINK_H
#define PR_SINK_REDIS_LINK_H

#include "sink/sink.h"

#include <hiredis.h>

struct pr_redis_link {
	const struct pr_url *url; /* user and password */
	struct pr_address address;
	int64_t db;
	redisContext *context; /* NULL: to be connected */
	bool in_flight;	       /* messages are on their way: a stop waits for the answers */
	bool warned;
};

/*
 * Connects unless there is a connection already, and it lives. POSTROOM_STOPPED
 * when a stop came first.
 */
int pr_redis_connect(struct pr_redis_link *link, const struct pr_flight *flight, int64_t until_us,
		     struct pr_err *err);

/*
 * Sends what has been appended to the context, and returns the next answer, for the
 * caller to free. NULL and the error when there is none: then it is time to hang up.
 */
redisReply *pr_redis_reply(struct pr_redis_link *link, const struct pr_flight *flight,
			   int64_t until_us, struct pr_err *err);

void pr_redis_hang_up(struct pr_redis_link *link);

#endif
