/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to one of several NATS servers, with the deadlines of the flight. */
#ifndef PR_BROKER_NATS_CONNECTION_H
#define PR_BROKER_NATS_CONNECTION_H

#include "broker/nats/handshake.h"
#include "sink/sink.h"

#define PR_NATS_SERVERS_MAX 16
#define PR_NATS_INBOX_SIZE 64
#define PR_NATS_DISCARDED_MAX 512

struct pr_nats_connection {
	const struct pr_url *url;
	const char *creds; /* the settings of the same names */
	const char *nkey;
	const char *seed;
	const char *ca;
	const char *cert;
	const char *key;
	bool tls;
	struct pr_address servers[PR_NATS_SERVERS_MAX];
	size_t server_count;
	size_t server; /* the one to try first, or the one it is connected to */
	/* Handshakes that were begun and not completed: each server has at most one. */
	struct pr_nats_handshake *pending[PR_NATS_SERVERS_MAX];
	int64_t patience_us[PR_NATS_SERVERS_MAX]; /* with a pending handshake; 0: the default */
	struct pr_nats_handshake *handshake;	  /* NULL: no connection */
	natsConnection *connection;		  /* of the handshake */
	uint64_t connections;			  /* how many connections were made */
	natsSubscription *answers;		  /* of the subject "INBOX.>" */
	char inbox[PR_NATS_INBOX_SIZE];
	natsMsg *discarded[PR_NATS_DISCARDED_MAX]; /* to be destroyed */
	size_t discarded_count, discarded_bytes;
};

#define PR_NATS_FILE(setting, instance, text)                                                      \
	{                                                                                          \
		.name = #setting, .type = PR_PARAM_STRING,                                         \
		.offset = offsetof(instance, conn.setting), .value = "FILE", .help = text          \
	}

/* The settings of a sink or source that has a pr_nats_connection as its member conn. */
#define PR_NATS_PARAMS(instance)                                                                   \
	PR_NATS_FILE(creds, instance, "the user's JWT and seed, as nsc writes them"),              \
		{ .name = "nkey",                                                                  \
		  .type = PR_PARAM_STRING,                                                         \
		  .offset = offsetof(instance, conn.nkey),                                         \
		  .value = "KEY",                                                                  \
		  .help = "the user's public nkey (U…), with seed" },                              \
		PR_NATS_FILE(seed, instance, "the seed of that nkey"),                             \
		{ .name = "tls",                                                                   \
		  .type = PR_PARAM_FLAG,                                                           \
		  .offset = offsetof(instance, conn.tls),                                          \
		  .value = "BOOL",                                                                 \
		  .fallback = "false",                                                             \
		  .help = "refuse servers without TLS" },                                          \
		PR_NATS_FILE(ca, instance,                                                         \
			     "certificates to trust besides the system's; implies tls"),           \
		PR_NATS_FILE(cert, instance, "our certificate, with key; implies tls"),            \
		PR_NATS_FILE(key, instance, "the key of that certificate")

/*
 * Sets servers, credentials and certificates from the URL and the settings. Errors are
 * POSTROOM_SINK.
 */
int pr_nats_prepare(struct pr_nats_connection *conn, const struct pr_url *url, struct pr_err *err);
void pr_nats_release(struct pr_nats_connection *conn);

/* Destroys a message, later and together with others. msg may be NULL. */
void pr_nats_discard_later(struct pr_nats_connection *conn, natsMsg *msg);
void pr_nats_discard(struct pr_nats_connection *conn);

/*
 * Connects unless connected, trying each server once. POSTROOM_STOPPED: a stop was requested first.
 * POSTROOM_UNAVAILABLE: there is no connection by until_us.
 */
int pr_nats_connect(struct pr_nats_connection *conn, const struct pr_flight *flight,
		    int64_t until_us, struct pr_err *err);
void pr_nats_disconnect(struct pr_nats_connection *conn);

/* Sends pending data as far as possible without waiting, once there is enough of it. */
void pr_nats_push(struct pr_nats_connection *conn);

/*
 * Sends pending data and receives available data, waiting once for either. Received messages are in
 * conn->answers, errors of the server in the handshake. After until_us it returns
 * POSTROOM_UNAVAILABLE, and err->native is ETIMEDOUT.
 */
int pr_nats_transfer(struct pr_nats_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err);

/* probe.c: see struct pr_sink_ops. subject may be a template. */
void pr_nats_probe(struct pr_nats_connection *conn, const char *subject,
		   const struct pr_flight *flight, struct pr_checkup *checkup);

#endif
