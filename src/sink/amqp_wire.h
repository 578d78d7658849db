/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to and from a server, plain or through TLS, without ever waiting. */
#ifndef PR_SINK_AMQP_WIRE_H
#define PR_SINK_AMQP_WIRE_H

#include "base/buf.h"
#include "sink/sink.h"

#include <openssl/ssl.h>

struct pr_amqp_wire {
	int fd;
	SSL *ssl;	 /* NULL: plain */
	bool wants_room; /* the last call stopped because nothing more can be sent now */
};

/* Which certificates are trusted, and our own. The errors are POSTROOM_SINK. */
int pr_amqp_tls_open(const char *ca, const char *cert, const char *key, SSL_CTX **ret,
		     struct pr_err *err);

/* The wire owns fd from here on. tls NULL: plain; else the server must be who host says. */
int pr_amqp_wire_open(struct pr_amqp_wire *wire, int fd, SSL_CTX *tls, const char *host,
		      struct pr_err *err);
void pr_amqp_wire_close(struct pr_amqp_wire *wire);

/* How many bytes went; 0: none can go now. < 0 and the error: the connection is over. */
ssize_t pr_amqp_wire_send(struct pr_amqp_wire *wire, const char *data, size_t len,
			  struct pr_err *err);
/* Appends all that has come. < 0 and the error: the connection is over. */
ssize_t pr_amqp_wire_take(struct pr_amqp_wire *wire, struct pr_buf *out, struct pr_err *err);

#endif
