/* SPDX-License-Identifier: Apache-2.0 */
/* Non-blocking connection to a server, plain or through TLS. */
#ifndef PR_NET_STREAM_H
#define PR_NET_STREAM_H

#include "base/buf.h"
#include "base/param.h"
#include "net/flight.h"

#include <openssl/ssl.h>

#include <stdbool.h>
#include <sys/types.h>

struct pr_stream {
	int fd;
	SSL *ssl;	 /* NULL: plain */
	char fault[120]; /* TLS error; "": none yet */
	bool wants_room; /* the last call stopped because nothing more can be sent now */
};

/* Trusted certificates, and our own; NULL: not given. */
struct pr_tls_files {
	const char *ca, *cert, *key;
};

/* The settings of a sink or source whose instance has them as its member tls. scheme is the one
 * that uses TLS. */
#define PR_TLS_PARAMS(instance, scheme)                                                            \
	{ .name = "ca",                                                                            \
	  .type = PR_PARAM_STRING,                                                                 \
	  .offset = offsetof(instance, tls.ca),                                                    \
	  .value = "FILE",                                                                         \
	  .help = scheme ": certificates to trust, in PEM, instead of the system's" },             \
		{ .name = "cert",                                                                  \
		  .type = PR_PARAM_STRING,                                                         \
		  .offset = offsetof(instance, tls.cert),                                          \
		  .value = "FILE",                                                                 \
		  .help = scheme ": our own certificate, in PEM" },                                \
	{                                                                                          \
		.name = "key", .type = PR_PARAM_STRING, .offset = offsetof(instance, tls.key),     \
		.value = "FILE", .help = scheme ": its private key, in PEM"                        \
	}

/* True if the URL has the second scheme, which uses TLS. */
bool pr_tls_wanted(const struct pr_url *url, const char *const *schemes);

/* For the caller to free; NULL if the scheme does not use TLS. The errors are POSTROOM_SINK. */
int pr_tls_open(const struct pr_url *url, const char *const *schemes,
		const struct pr_tls_files *files, SSL_CTX **ret, struct pr_err *err);

/*
 * Connects, like pr_flight_dial(). tls NULL: plain. Otherwise the server must prove that it is
 * to->host; its handshake is part of the first send or receive.
 */
int pr_stream_open(struct pr_stream *net_stream, const struct pr_flight *flight,
		   struct pr_address *to, SSL_CTX *tls, int64_t until_us, struct pr_err *err);
void pr_stream_close(struct pr_stream *net_stream);

/* Returns how many bytes were sent; 0: none can be sent now. < 0 and the error: the connection is
 * closed. */
ssize_t pr_stream_send(struct pr_stream *net_stream, const char *data, size_t len,
		       struct pr_err *err);
/* Sends out from *at on as far as possible, and empties it when everything was sent. Returns like a
 * send. */
ssize_t pr_stream_flush(struct pr_stream *net_stream, struct pr_buf *out, size_t *at,
			struct pr_err *err);
/* Appends all available data. < 0 and the error: the connection is closed. */
ssize_t pr_stream_recv_available(struct pr_stream *net_stream, struct pr_buf *out,
				 struct pr_err *err);

#endif
