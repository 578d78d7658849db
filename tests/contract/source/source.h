/* SPDX-License-Identifier: Apache-2.0 */
/* The source contract's interface to a broker, beyond that of the sink contract. */
#ifndef TESTS_CONTRACT_SOURCE_H
#define TESTS_CONTRACT_SOURCE_H

#include "contract/sink/server.h"
#include "contract/sink/sink.h"
#include "servers/server.h"

#include "broker/source.h"

struct source_backend {
	const struct server_kind *server;
	/*
	 * Makes what the test called name reads from, as far as the source and our sink do not
	 * make it themselves. May be NULL.
	 */
	void (*prepare)(const struct server *server, const char *name);
	/* The source's URL, and that of the sink which writes what it reads. */
	void (*put_url)(struct pr_buf *out, const char *host, int port, const char *name);
	void (*put_sink_url)(struct pr_buf *out, const char *host, int port, const char *name);
	/* With credentials that it refuses, "wrong-secret". NULL: it asks for none. */
	void (*put_intruder_url)(struct pr_buf *out, const char *host, int port, const char *name);
	/* As any other program would: a body, and nothing else that it must not have. */
	void (*publish_foreign)(const struct server *server, const char *name, const char *body);
	/*
	 * The broker says from now on that what has this name is missing, or no longer says so.
	 * NULL: it is missing until prepare() makes it.
	 */
	void (*set_missing)(const char *name, bool missing);
	/* Instances will come and go; said before the first of them is opened. May be NULL. */
	void (*take_time)(void);
	const char *wrong[16]; /* URLs that it must refuse at open */
	bool makes;	       /* whatever is read from is made, so that it is never missing */
	bool groups;	 /* each group receives all events; otherwise all readers share them */
	bool pushes;	 /* the server sends events ahead, before they are read */
	bool insists;	 /* what was read is given again by each read until it is acknowledged */
	bool repeats;	 /* killed, the server forgets what was acknowledged just before */
	bool unanswered; /* an acknowledgement has no reply: it may be lost with its connection */
	int64_t shortest_lease_ms; /* that a source of it takes */
};

#ifdef PR_WITH_REDIS
extern const struct source_backend redis_backend;
#endif
#ifdef PR_WITH_KAFKA
extern const struct source_backend kafka_backend;
#endif
#ifdef PR_WITH_NATS
extern const struct source_backend nats_backend;
#endif
#ifdef PR_WITH_AMQP
extern const struct source_backend amqp_backend;
#endif

/* One line each: IF_KAFKA(do_it(test_name, kafka_backend)), … */
#define FOR_EACH_SOURCE(do_it, test_name)                                                          \
	IF_KAFKA(do_it(test_name, kafka_backend))                                                  \
	IF_REDIS(do_it(test_name, redis_backend))                                                  \
	IF_NATS(do_it(test_name, nats_backend))                                                    \
	IF_AMQP(do_it(test_name, amqp_backend))

#endif
