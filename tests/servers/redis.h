/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SERVERS_REDIS_H
#define TESTS_SERVERS_REDIS_H

#include "servers/server.h"

#include <hiredis.h>

#define REDIS_PASSWORD "the-secret"

/* With one setting more, as in ("--cluster-enabled", "yes"). */
void redis_start(struct server *server, const char *setting, const char *value);

/* What Redis says to a command; no error is expected. The caller frees it. */
redisReply *redis_ask(const struct server *server, const char *format, ...);
void redis_command(const struct server *server, const char *format, ...); /* the same, forgotten */

/* A field of the entry of a message, in whatever stream; false if it has none. */
bool redis_field(const struct server *server, const char *id, const char *name, struct pr_buf *out);

#endif
