/* SPDX-License-Identifier: Apache-2.0 */
/* A listener that completes TLS handshakes and understands nothing that comes after them. */
#ifndef TESTS_SERVERS_TLS_H
#define TESTS_SERVERS_TLS_H

#include "servers/server.h"

/* Listens at server->port with a certificate for this host name; "ca.pem" is to be trusted. */
void tls_start(struct server *server, const char *host);
/* Whether a client has accepted the certificate and completed its handshake. */
bool tls_was_trusted(void);

#endif
