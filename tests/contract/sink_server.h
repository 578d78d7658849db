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

#ifdef PR_WITH_REDIS
#define IF_REDIS(...) __VA_ARGS__
extern const struct server_kind redis_kind;
#else
#define IF_REDIS(...)
#endif

#define FOR_EACH_SERVER(do_it, test_name)                                                          \
	IF_HTTP(do_it(test_name, http_kind)) IF_REDIS(do_it(test_name, redis_kind))

#endif
