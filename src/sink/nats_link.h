/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to one of several NATS servers that waits as the flight says. */
#ifndef PR_SINK_NATS_LINK_H
#define PR_SINK_NATS_LINK_H

#include "sink/nats_wire.h"
#include "sink/sink.h"

#define PR_NATS_SERVERS_MAX 16
#define PR_NATS_INBOX_SIZE 64
#define PR_NATS_WASTE_MAX 512

struct pr_nats_link {
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
	/* Those that were begun and not waited for to the end: each server has one at most. */
	struct pr_nats_wire *pending[PR_NATS_SERVERS_MAX];
	int64_t patience_us[PR_NATS_SERVERS_MAX]; /* with such a one; 0: as at first */
	struct pr_nats_wire *wire;		  /* NULL: no connection */
	natsConnection *connection;		  /* the wire's */
	uint64_t connections;			  /* that there have been */
	natsSubscription *answers;		  /* to inbox, ".", and anything behind it */
	char inbox[PR_NATS_INBOX_SIZE];
	natsMsg *waste[PR_NATS_WASTE_MAX]; /* to be destroyed */
	size_t waste_count, waste_bytes;
};

#define PR_NATS_FILE(setting, instance, text)                                                      \
	{                                                                                          \
		.name = #setting, .type = PR_PARAM_STRING,                                         \
		.offset = offsetof(instance, link.setting), .value = "FILE", .help = text          \
	}

/* The settings of whoever has such a link as its member link. */
#define PR_NATS_PARAMS(instance)                                                                   \
	PR_NATS_FILE(creds, instance, "the user's JWT and seed, as nsc writes them"),              \
	{ .name = "nkey",                                                                          \
	  .type = PR_PARAM_STRING,                                                                 \
	  .offset = offsetof(instance, link.nkey),                                                 \
	  .value = "KEY",                                                                          \
	  .help = "the user's public nkey (U…), with seed" },                                      \
	PR_NATS_FILE(seed, instance, "the seed of that nkey"),                                     \
	{ .name = "tls",                                                                           \
	  .type = PR_PARAM_FLAG,                                                                   \
	  .offset = offsetof(instance, link.tls),                                                  \
	  .value = "BOOL",                                                                         \
	  .fallback = "false",                                                                     \
	  .help = "refuse servers without TLS" },                                                  \
	PR_NATS_FILE(ca, instance, "whom to trust beside the system's authorities; implies tls"),  \
	PR_NATS_FILE(cert, instance, "our certificate, with key; implies tls"),                    \
	PR_NATS_FILE(key, instance, "the key of that certificate")

/* Servers, credentials and certificates as URL and settings say; the errors are POSTROOM_SINK. */
int pr_nats_prepare(struct pr_nats_link *link, const struct pr_url *url, struct pr_err *err);
void pr_nats_release(struct pr_nats_link *link);

/* Destroys a message, together with others; NULL is none. */
void pr_nats_waste(struct pr_nats_link *link, natsMsg *msg);
void pr_nats_empty_waste(struct pr_nats_link *link);

/*
 * Makes sure of a connection, trying each server once. POSTROOM_STOPPED when a
 * stop came first, POSTROOM_UNAVAILABLE when there is none by until_us.
 */
int pr_nats_connect(struct pr_nats_link *link, const struct pr_flight *flight, int64_t until_us,
		    struct pr_err *err);
void pr_nats_hang_up(struct pr_nats_link *link);

/* Sends what can be sent without waiting, once there is enough of it. */
void pr_nats_push(struct pr_nats_link *link);

/*
 * Sends what waits to be sent and takes in what has come, waiting once for
 * either. What has come is to be had from link->answers and from the wire's notes.
 * With until_us over, it is POSTROOM_UNAVAILABLE, and native is ETIMEDOUT.
 */
int pr_nats_turn(struct pr_nats_link *link, const struct pr_flight *flight, int64_t until_us,
		 struct pr_err *err);

#endif
