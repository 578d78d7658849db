/* SPDX-License-Identifier: Apache-2.0 */
/* The servers that the contract of sinks runs over: those that this build has a sink for. */
#ifndef TESTS_CONTRACT_SINK_SERVER_H
#define TESTS_CONTRACT_SINK_SERVER_H

#include "servers/server.h"

#ifdef PR_WITH_HTTP
#define IF_HTTP(...) __VA_ARGS__
extern const struct server_kind http_kind;
#else
#define IF_HTTP(...)
#endif

#ifdef PR_WITH_KAFKA
#define IF_KAFKA(...) __VA_ARGS__
extern const struct server_kind kafka_kind;
#else
#define IF_KAFKA(...)
#endif

#ifdef PR_WITH_NATS
#define IF_NATS(...) __VA_ARGS__
extern const struct server_kind nats_kind;
#else
#define IF_NATS(...)
#endif

#ifdef PR_WITH_REDIS
#define IF_REDIS(...) __VA_ARGS__
extern const struct server_kind redis_kind;
#else
#define IF_REDIS(...)
#endif

#ifdef PR_WITH_AMQP
#define IF_AMQP(...) __VA_ARGS__
extern const struct server_kind amqp_kind;
#else
#define IF_AMQP(...)
#endif

#define FOR_EACH_SERVER(do_it, test_name)                                                          \
	IF_HTTP(do_it(test_name, http_kind))                                                       \
	IF_KAFKA(do_it(test_name, kafka_kind)) IF_NATS(do_it(test_name, nats_kind))                \
		IF_REDIS(do_it(test_name, redis_kind)) IF_AMQP(do_it(test_name, amqp_kind))

#endif
