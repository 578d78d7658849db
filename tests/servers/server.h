/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real servers for tests: each runs in the test's scratch directory, listens on
 * this machine alone, and ends with the test, whatever ends that.
 */
#ifndef TESTS_SERVERS_SERVER_H
#define TESTS_SERVERS_SERVER_H

#include "base/buf.h"

#include <stdbool.h>
#include <sys/types.h>

#define SERVER_HOST "127.0.0.1"

struct server {
	pid_t pid;
	int port;
};

/* The sink contract's interface to a kind of server. */
struct server_kind {
	bool printable; /* headers cannot hold control characters, or spaces at their ends */
	bool shared;	/* one for all tests: start says on which port, and it stays at the end */
	/*
	 * Begins it on server->port and returns when it answers. After a kill it comes
	 * back with all that it had acknowledged.
	 */
	void (*start)(struct server *server);
	/* The sink's URL; each message goes where its topic says. */
	void (*put_url)(struct pr_buf *out, const char *host, int port);
	/* The same with credentials that it refuses, "wrong-secret". NULL: it asks for none. */
	void (*put_intruder_url)(struct pr_buf *out, const char *host, int port);
	/* Appends the ids that have arrived, a line each; those of one topic in order. */
	void (*ids)(const struct server *server, struct pr_buf *out);
	/* Appends what a message brought: its body, or else its payload; or one of its headers. */
	void (*content)(const struct server *server, const char *id, struct pr_buf *out);
	void (*header)(const struct server *server, const char *id, const char *name,
		       struct pr_buf *out);
	/* From now on it refuses messages of the topic "bad", and them alone. */
	void (*spoil)(const struct server *server);
};

int server_free_port(void);
/* argv ends in NULL; what it says goes to the file "server.log". */
void server_spawn(struct server *server, const char *const *argv);
void server_stop(struct server *server); /* SIGSTOP, and returns when all its threads are stopped */
void server_kill(struct server *server); /* -9, and waits for the end */
bool server_accepts(int port);		 /* a server listens there */

#endif
