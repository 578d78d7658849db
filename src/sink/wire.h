/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to and from a server, plain or through TLS, without ever waiting. */
#ifndef PR_SINK_WIRE_H
#define PR_SINK_WIRE_H

#include "base/buf.h"
#include "sink/sink.h"

#include <openssl/ssl.h>

struct pr_wire {
	int fd;
	SSL *ssl;	 /* NULL: plain */
	char fault[120]; /* of TLS; "": none yet */
	bool wants_room; /* the last call stopped because nothing more can be sent now */
};

/* Which certificates are trusted, and our own; NULL: not given. */
struct pr_tls_files {
	const char *ca, *cert, *key;
};

/* The settings of a sink or source whose instance has them as its member tls; scheme is the one with TLS. */
#define PR_TLS_PARAMS(instance, scheme)                                                            \
	{ .name = "ca",                                                                            \
	  .type = PR_PARAM_STRING,                                                                 \
	  .offset = offsetof(instance, tls.ca),                                                    \
	  .value = "FILE",                                                                         \
	  .help = scheme ": certificates to trust, in PEM, instead of the system's" },             \
	{ .name = "cert",                                                                          \
	  .type = PR_PARAM_STRING,                                                                 \
	  .offset = offsetof(instance, tls.cert),                                                  \
	  .value = "FILE",                                                                         \
	  .help = scheme ": our own certificate, in PEM" },                                        \
	{ .name = "key",                                                                           \
	  .type = PR_PARAM_STRING,                                                                 \
	  .offset = offsetof(instance, tls.key),                                                   \
	  .value = "FILE",                                                                         \
	  .help = scheme ": its private key, in PEM" }

/* Whether the URL's scheme is the second one, which has TLS. */
bool pr_tls_wanted(const struct pr_url *url, const char *const *schemes);

/* For the caller to free; NULL when the scheme has no TLS. The errors are POSTROOM_SINK. */
int pr_tls_open(const struct pr_url *url, const char *const *schemes,
		const struct pr_tls_files *files, SSL_CTX **ret, struct pr_err *err);

/* The wire owns fd from here on. tls NULL: plain; else the server must be who host says. */
int pr_wire_open(struct pr_wire *wire, int fd, SSL_CTX *tls, const char *host, struct pr_err *err);
void pr_wire_close(struct pr_wire *wire);

/* How many bytes went; 0: none can go now. < 0 and the error: the connection is over. */
ssize_t pr_wire_send(struct pr_wire *wire, const char *data, size_t len, struct pr_err *err);
/* Sends out from *at on as far as it goes, and empties it when all has gone. Returns like a send. */
ssize_t pr_wire_flush(struct pr_wire *wire, struct pr_buf *out, size_t *at, struct pr_err *err);
/* Appends all that has come. < 0 and the error: the connection is over. */
ssize_t pr_wire_take(struct pr_wire *wire, struct pr_buf *out, struct pr_err *err);

#endif
