/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Every wait ends at until_us and when the grace of a stop is over; before there is
 *    a connection, as soon as a stop is requested.
 * 2. A connection that comes too late is the next call's. One that does not come at all
 *    is left alone with its thread after a while, each time after twice as long,
 *    five minutes at most.
 * 3. Secrets go to the library and nowhere else: no error repeats them.
 */
#include "sink/nats_link.h"

#include "base/json.h"
#include "base/time.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PORT 4222
#define PUSH_BYTES (32 * 1024)
#define WASTE_BYTES (256 * 1024)
#define STUCK_TIMEOUTS 3 /* of a publish, until a connection that is not made is begun anew */
#define PATIENCE_MAX_US 300000000

static int lost(const struct pr_nats_link *link, const char *why, struct pr_err *err)
{
	const struct pr_address *server = &link->servers[link->server];

	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the connection to %s port %d is lost: %s",
			  server->host, server->port, why);
}

static int refuse_setting(const char *what, natsStatus status, struct pr_err *err)
{
	if (status == NATS_NO_MEMORY)
		return pr_err_nomem(err);
	return pr_err_set(err, POSTROOM_SINK, "nats: %s: %s", what,
			  nats_GetLastError(NULL) ? nats_GetLastError(NULL)
						  : natsStatus_GetText(status));
}

static int set_servers(struct pr_nats_link *link, struct pr_err *err)
{
	const char *at = link->url->host;
	char host[300];

	for (;;) {
		size_t len = strcspn(at, ",");

		if (link->server_count == PR_NATS_SERVERS_MAX)
			return pr_err_set(err, POSTROOM_SINK, "nats: more than %d servers",
					  PR_NATS_SERVERS_MAX);
		if (len >= sizeof(host))
			return pr_err_set(err, POSTROOM_SINK, "nats: a host's name is too long");
		snprintf(host, sizeof(host), "%.*s", (int)len, at);
		if (pr_address_parse(link->url, host, PORT, &link->servers[link->server_count++],
				     err) < 0)
			return err->status;
		if (!at[len])
			return POSTROOM_OK;
		at += len + 1;
	}
}

/* As it must stand between quotes: the library puts it into JSON as it is. */
static const char *escape(struct pr_buf *out, const char *text)
{
	pr_buf_reset(out);
	pr_json_put_string(out, text);
	if (out->failed)
		return NULL;
	out->data[out->len - 1] = '\0';
	return out->data + 1;
}

static int set_user(const struct pr_nats_link *link, natsOptions *options, struct pr_err *err)
{
	const struct pr_url *url = link->url;
	PR_CLEANUP_BUF struct pr_buf user = { 0 };
	PR_CLEANUP_BUF struct pr_buf password = { 0 };
	natsStatus status = NATS_OK;

	if (url->password[0] && !url->user[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "nats: the password has no user; write nats://USER:PASSWORD@HOST "
				  "or nats://TOKEN@HOST");
	if (!url->user[0])
		return POSTROOM_OK;
	if (!escape(&user, url->user) || !escape(&password, url->password))
		return pr_err_nomem(err);
	if (url->password[0])
		status = natsOptions_SetUserInfo(options, user.data + 1, password.data + 1);
	else
		status = natsOptions_SetToken(options, user.data + 1);
	return status == NATS_OK ? POSTROOM_OK : refuse_setting("the user", status, err);
}

static int check_file(const char *setting, const char *path, struct pr_err *err)
{
	if (path && access(path, R_OK) < 0)
		return pr_err_errno(err, POSTROOM_SINK, "nats: %s: \"%s\"", setting, path);
	return POSTROOM_OK;
}

static int set_keys(const struct pr_nats_link *link, natsOptions *options, struct pr_err *err)
{
	natsStatus status = NATS_OK;

	if (!link->nkey != !link->seed)
		return pr_err_set(err, POSTROOM_SINK,
				  "nats: nkey (the public key) and seed (the file that holds the "
				  "seed) belong together");
	if ((link->creds != NULL) + (link->nkey != NULL) + (link->url->user[0] != '\0') > 1)
		return pr_err_set(err, POSTROOM_SINK,
				  "nats: one of creds, nkey and a user in the URL is enough");
	if (check_file("creds", link->creds, err) < 0 || check_file("seed", link->seed, err) < 0)
		return err->status;
	if (link->creds)
		status = natsOptions_SetUserCredentialsFromFiles(options, link->creds, NULL);
	else if (link->nkey)
		status = natsOptions_SetNKeyFromSeed(options, link->nkey, link->seed);
	return status == NATS_OK ? POSTROOM_OK : refuse_setting("the credentials", status, err);
}

/* The library would let OpenSSL ask. */
static int check_key(const char *path, struct pr_err *err)
{
	FILE *file = path ? fopen(path, "re") : NULL;
	EVP_PKEY *key;

	if (!path)
		return POSTROOM_OK;
	if (!file)
		return pr_err_errno(err, POSTROOM_SINK, "nats: key: \"%s\"", path);
	key = PEM_read_PrivateKey(file, NULL, pr_sink_ask_nobody, NULL);
	fclose(file);
	ERR_clear_error();
	if (!key)
		return pr_err_set(
			err, POSTROOM_SINK,
			"nats: key: \"%s\" holds no key in PEM, or one that is locked with "
			"a password; unlock it with: openssl pkey -in LOCKED -out KEY",
			path);
	EVP_PKEY_free(key);
	return POSTROOM_OK;
}

static int set_tls(const struct pr_nats_link *link, natsOptions *options, struct pr_err *err)
{
	natsStatus status = NATS_OK;

	if (!link->cert != !link->key)
		return pr_err_set(err, POSTROOM_SINK, "nats: cert and key belong together");
	if (check_file("ca", link->ca, err) < 0 || check_file("cert", link->cert, err) < 0 ||
	    check_key(link->key, err) < 0)
		return err->status;
	if (link->tls || link->ca || link->cert)
		status = natsOptions_SetSecure(options, true);
	if (status == NATS_OK && link->ca)
		status = natsOptions_LoadCATrustedCertificates(options, link->ca);
	if (status == NATS_OK && link->cert)
		status = natsOptions_LoadCertificatesChain(options, link->cert, link->key);
	return status == NATS_OK ? POSTROOM_OK : refuse_setting("TLS", status, err);
}

static natsStatus set_server(natsOptions *options, const struct pr_address *server,
			     int64_t timeout_ms)
{
	bool numeric6 = strchr(server->host, ':') != NULL;
	char url[300];
	natsStatus status;

	snprintf(url, sizeof(url), "nats://%s%s%s:%d", numeric6 ? "[" : "", server->host,
		 numeric6 ? "]" : "", server->port);
	status = natsOptions_SetURL(options, url);
	if (status == NATS_OK)
		status = natsOptions_SetTimeout(options, timeout_ms);
	return status;
}

static int fill_options(const struct pr_nats_link *link, natsOptions *options, int64_t timeout_ms,
			struct pr_err *err)
{
	natsStatus status = natsOptions_SetName(options, "postroom");

	/* Each of these would start a thread. */
	if (status == NATS_OK)
		status = natsOptions_SetSendAsap(options, true);
	if (status == NATS_OK)
		status = natsOptions_SetAllowReconnect(options, false);
	if (status == NATS_OK)
		status = natsOptions_SetPingInterval(options, 0);
	if (status == NATS_OK)
		status = set_server(options, &link->servers[link->server], timeout_ms);
	if (status != NATS_OK)
		return refuse_setting("the client library", status, err);
	if (set_user(link, options, err) < 0 || set_keys(link, options, err) < 0)
		return err->status;
	return set_tls(link, options, err);
}

/* For the server whose turn it is. */
static int make_options(const struct pr_nats_link *link, int64_t timeout_ms, natsOptions **ret,
			struct pr_err *err)
{
	natsOptions *options = NULL;

	if (natsOptions_Create(&options) != NATS_OK)
		return pr_err_nomem(err);
	if (fill_options(link, options, timeout_ms, err) < 0) {
		natsOptions_Destroy(options);
		return err->status;
	}
	*ret = options;
	return POSTROOM_OK;
}

int pr_nats_prepare(struct pr_nats_link *link, const struct pr_url *url, struct pr_err *err)
{
	natsOptions *options;

	link->url = url;
	if (set_servers(link, err) < 0 || make_options(link, 1, &options, err) < 0)
		return err->status;
	natsOptions_Destroy(options);
	return POSTROOM_OK;
}

void pr_nats_hang_up(struct pr_nats_link *link)
{
	natsSubscription_Destroy(link->answers);
	pr_nats_wire_end(link->wire);
	link->answers = NULL;
	link->wire = NULL;
	link->connection = NULL;
}

/* The library has them freed by a thread of its own, which is not to be woken for each. */
void pr_nats_empty_waste(struct pr_nats_link *link)
{
	for (size_t i = 0; i < link->waste_count; i++)
		natsMsg_Destroy(link->waste[i]);
	link->waste_count = link->waste_bytes = 0;
}

void pr_nats_waste(struct pr_nats_link *link, natsMsg *msg)
{
	if (!msg)
		return;
	link->waste[link->waste_count++] = msg;
	link->waste_bytes += (size_t)natsMsg_GetDataLength(msg);
	if (link->waste_count == PR_NATS_WASTE_MAX || link->waste_bytes >= WASTE_BYTES)
		pr_nats_empty_waste(link);
}

void pr_nats_release(struct pr_nats_link *link)
{
	pr_nats_empty_waste(link);
	pr_nats_hang_up(link);
	for (size_t i = 0; i < link->server_count; i++)
		pr_nats_wire_end(link->pending[i]);
}

static natsStatus subscribe(struct pr_nats_link *link)
{
	char pattern[PR_NATS_INBOX_SIZE + 2];
	natsInbox *inbox = NULL;
	natsStatus status = natsInbox_Create(&inbox);

	if (status != NATS_OK)
		return status;
	snprintf(link->inbox, sizeof(link->inbox), "%s", inbox);
	natsInbox_Destroy(inbox);
	snprintf(pattern, sizeof(pattern), "%s.>", link->inbox);
	status = natsConnection_SubscribeSync(&link->answers, link->connection, pattern);
	if (status == NATS_OK)
		status = natsSubscription_SetPendingLimits(link->answers, -1, -1);
	return status;
}

/* Waits for the wire of the server whose turn it is; false: it is not done yet. */
static bool await_wire(const struct pr_nats_wire *wire, const struct pr_flight *flight,
		       int64_t until_us)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = wire->done_fd, .events = POLLIN } };

	while (!atomic_load(&wire->done)) {
		if (pr_stop_requested(flight->stop) || pr_mono_us() >= until_us)
			return false;
		pr_flight_poll(flight, fds, 2, until_us);
	}
	return true;
}

/* Takes the wire that is done. */
static int take_wire(struct pr_nats_link *link, struct pr_err *err)
{
	const struct pr_address *server = &link->servers[link->server];
	struct pr_nats_wire *wire = link->pending[link->server];
	natsStatus status = wire->status;

	link->pending[link->server] = NULL;
	link->wire = wire;
	link->connection = wire->connection;
	if (status == NATS_OK)
		status = subscribe(link);
	if (status == NATS_OK) {
		link->patience_us[link->server] = 0;
		link->connections++;
		return POSTROOM_OK;
	}
	if (status == NATS_CONNECTION_AUTH_FAILED)
		pr_err_set(err, POSTROOM_UNAVAILABLE,
			   "%s port %d refuses us: %s; look at the user in the URL, or creds "
			   "or nkey",
			   server->host, server->port, wire->error);
	else
		pr_err_set(err, POSTROOM_UNAVAILABLE, "no connection to %s port %d: %s",
			   server->host, server->port,
			   wire->error[0] ? wire->error : natsStatus_GetText(status));
	pr_nats_hang_up(link);
	return err->status;
}

/* The library waits for a handshake without an end; the server may be well again by now. */
static void abandon_stuck(struct pr_nats_link *link, const struct pr_flight *flight)
{
	struct pr_nats_wire **pending = &link->pending[link->server];
	int64_t *patience_us = &link->patience_us[link->server];

	if (*patience_us == 0)
		*patience_us = flight->timeout_ms * 1000 * STUCK_TIMEOUTS;
	if (!*pending || atomic_load(&(*pending)->done) ||
	    pr_mono_us() - (*pending)->begun_us < *patience_us)
		return;
	pr_nats_wire_end(*pending);
	*pending = NULL;
	*patience_us *= 2;
	if (*patience_us > PATIENCE_MAX_US)
		*patience_us = PATIENCE_MAX_US;
}

static int begin_wire(struct pr_nats_link *link, int64_t timeout_ms, struct pr_err *err)
{
	natsOptions *options;
	natsStatus status;

	if (make_options(link, timeout_ms, &options, err) < 0)
		return err->status;
	/* Makes the library read all of the system's authorities: too much for a look at the settings. */
	status = natsOptions_SetExpectedHostname(options, link->servers[link->server].host);
	if (status != NATS_OK) {
		natsOptions_Destroy(options);
		return refuse_setting("TLS", status, err);
	}
	return pr_nats_wire_begin(options, &link->pending[link->server], err);
}

static int try_server(struct pr_nats_link *link, const struct pr_flight *flight, int64_t until_us,
		      struct pr_err *err)
{
	const struct pr_address *server = &link->servers[link->server];
	struct pr_nats_wire **pending = &link->pending[link->server];
	int64_t left_ms = (until_us - pr_mono_us()) / 1000;

	abandon_stuck(link, flight);
	/* What became of an earlier one is news only if it is good. */
	if (*pending && atomic_load(&(*pending)->done) && take_wire(link, err) == POSTROOM_OK)
		return POSTROOM_OK;
	if (!*pending && begin_wire(link, left_ms > 0 ? left_ms : 1, err) < 0)
		return err->status;
	if (await_wire(*pending, flight, until_us))
		return take_wire(link, err);
	if (pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before there was a connection");
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "no connection to %s port %d in the time there was", server->host,
			  server->port);
}

/* What came while nobody looked: questions whether we live, or a farewell. */
static bool is_alive(struct pr_nats_link *link)
{
	struct pollfd fd = { .fd = link->wire->fd, .events = POLLIN };

	while (!natsConnection_IsClosed(link->connection) && poll(&fd, 1, 0) > 0)
		natsConnection_ProcessReadEvent(link->connection);
	return !natsConnection_IsClosed(link->connection);
}

int pr_nats_connect(struct pr_nats_link *link, const struct pr_flight *flight, int64_t until_us,
		    struct pr_err *err)
{
	if (link->connection) {
		if (is_alive(link))
			return POSTROOM_OK;
		pr_nats_hang_up(link);
	}
	for (size_t left = link->server_count; left > 0; left--) {
		int64_t now_us = pr_mono_us();
		int status = try_server(link, flight, now_us + (until_us - now_us) / (int64_t)left,
					err);

		if (status == POSTROOM_OK || status == POSTROOM_STOPPED)
			return status;
		link->server = (link->server + 1) % link->server_count;
	}
	return err->status;
}

void pr_nats_push(struct pr_nats_link *link)
{
	if (natsConnection_Buffered(link->connection) >= PUSH_BYTES)
		natsConnection_ProcessWriteEvent(link->connection);
}

int pr_nats_turn(struct pr_nats_link *link, const struct pr_flight *flight, int64_t until_us,
		 struct pr_err *err)
{
	struct pollfd fds[3] = { { .fd = -1 },
				 { .fd = link->wire->fd, .events = POLLIN },
				 { .fd = link->wire->notes_fd, .events = POLLIN } };
	const struct pr_address *server = &link->servers[link->server];
	const char *why = NULL;
	bool late;

	if (link->wire->writing)
		natsConnection_ProcessWriteEvent(link->connection);
	late = pr_mono_us() >= until_us;
	if (late || pr_stop_overdue(flight->stop)) {
		pr_err_set(err, POSTROOM_UNAVAILABLE,
			   "no answer from %s port %d in the time there was", server->host,
			   server->port);
		err->native = late ? ETIMEDOUT : 0;
		return err->status;
	}
	if (link->wire->writing)
		fds[1].events |= POLLOUT;
	if (!natsConnection_IsClosed(link->connection))
		pr_flight_poll(flight, fds, 3, until_us);
	if (fds[1].revents & ~POLLOUT)
		natsConnection_ProcessReadEvent(link->connection);
	if (!natsConnection_IsClosed(link->connection))
		return POSTROOM_OK;
	natsConnection_GetLastError(link->connection, &why);
	return lost(link, why && why[0] ? why : "closed by the server", err);
}
