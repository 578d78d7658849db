/* SPDX-License-Identifier: Apache-2.0 */
/* nats-server with JetStream, and queries of its streams. */
#ifndef TESTS_SERVERS_NATS_H
#define TESTS_SERVERS_NATS_H

#include "servers/server.h"

#include <nats/nats.h>

#define NATS_USER "app"
/* The password has a backslash and a quote in it. */
#define NATS_PASSWORD_IN_URL "the-%5C%22secret"
#define NATS_STREAM "ALL" /* has every subject under NATS_PREFIX */
#define NATS_PREFIX "t."

/* With these lines more in its configuration; NULL: none. The stream is not made. */
void nats_start(struct server *server, const char *settings);
/* Sets the permissions of its user, as in NATS_DENY("subject"). */
#define NATS_DENY(subject) "{ publish: { deny: [\"" subject "\"] } }"
void nats_permit(const struct server *server, const char *permissions);

/* To the streams, as one who may everything. */
struct nats_desk {
	natsConnection *connection;
	jsCtx *js;
};
bool nats_reach(const struct server *server,
		struct nats_desk *desk); /* false: it does not answer */
void nats_leave(struct nats_desk *desk);

/* Makes a stream of one subject; config has the rest of what it is to be. */
void nats_add_stream(const struct server *server, const char *name, const char *subject,
		     jsStreamConfig config);
uint64_t nats_count(const struct server *server, const char *stream); /* of its messages */
/* The newest message of a subject of NATS_STREAM, for the caller to destroy. */
natsMsg *nats_last(const struct server *server, const char *subject);

#endif
