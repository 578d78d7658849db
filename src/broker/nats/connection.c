/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Every wait ends at until_us and when the grace of a stop is over; before there is a
 *    connection, as soon as a stop is requested.
 * 2. A connection that is made too late is used by the next call. One that is never made is
 *    abandoned with its thread after a while. Each time, that takes twice as long, up to five
 *    minutes.
 * 3. Secrets are passed to the library only. No error repeats them.
 */
#include "broker/nats/connection.h"
#include "net/password.h"

#include "base/assert.h"
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
#define DISCARDED_BYTES (256 * 1024)
#define STUCK_TIMEOUTS 3 /* of a publish, until an unfinished connection is abandoned */
#define PATIENCE_MAX_US 300000000

static int fail_connection(const struct pr_nats_connection *conn, const char *why,
			   struct pr_err *err)
{
	const struct pr_address *server = &conn->servers[conn->server];

	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the connection to %s port %d is lost: %s",
			  server->host, server->port, why);
}

static int refuse_setting(const char *setting, natsStatus status, struct pr_err *err)
{
	if (status == NATS_NO_MEMORY)
		return pr_err_nomem(err);
	return pr_err_set(err, POSTROOM_SINK, "nats: %s: %s", setting,
			  nats_GetLastError(NULL) ? nats_GetLastError(NULL)
						  : natsStatus_GetText(status));
}

static int set_servers(struct pr_nats_connection *conn, struct pr_err *err)
{
	const char *at = conn->url->host;
	char host[300];

	for (;;) {
		size_t len = strcspn(at, ",");

		if (conn->server_count == PR_NATS_SERVERS_MAX)
			return pr_err_set(err, POSTROOM_SINK, "nats: more than %d servers",
					  PR_NATS_SERVERS_MAX);
		if (len >= sizeof(host))
			return pr_err_set(err, POSTROOM_SINK, "nats: a host's name is too long");
		snprintf(host, sizeof(host), "%.*s", (int)len, at);
		if (pr_address_parse(conn->url, host, PORT, &conn->servers[conn->server_count++],
				     err) < 0)
			return err->status;
		if (!at[len])
			return POSTROOM_OK;
		at += len + 1;
	}
}

/* Escapes the text for JSON: the library puts it between quotes unchanged. */
static const char *escape_quotes(struct pr_buf *out, const char *text)
{
	pr_buf_reset(out);
	pr_json_put_string(out, text);
	if (out->failed)
		return NULL;
	out->data[out->len - 1] = '\0';
	return out->data + 1;
}

static int set_user(const struct pr_nats_connection *conn, natsOptions *options, struct pr_err *err)
{
	const struct pr_url *url = conn->url;
	PR_CLEANUP_BUF struct pr_buf user = { 0 };
	PR_CLEANUP_BUF struct pr_buf password = { 0 };
	natsStatus status = NATS_OK;

	if (url->password[0] && !url->user[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "nats: the password has no user; write nats://USER:PASSWORD@HOST "
				  "or nats://TOKEN@HOST");
	if (!url->user[0])
		return POSTROOM_OK;
	if (!escape_quotes(&user, url->user) || !escape_quotes(&password, url->password))
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

static int set_keys(const struct pr_nats_connection *conn, natsOptions *options, struct pr_err *err)
{
	natsStatus status = NATS_OK;

	if (!conn->nkey != !conn->seed)
		return pr_err_set(err, POSTROOM_SINK,
				  "nats: nkey (the public key) and seed (the file with the seed) "
				  "must be given together");
	if ((conn->creds != NULL) + (conn->nkey != NULL) + (conn->url->user[0] != '\0') > 1)
		return pr_err_set(err, POSTROOM_SINK,
				  "nats: give only one of creds, nkey and a user in the URL");
	if (check_file("creds", conn->creds, err) < 0 || check_file("seed", conn->seed, err) < 0)
		return err->status;
	if (conn->creds)
		status = natsOptions_SetUserCredentialsFromFiles(options, conn->creds, NULL);
	else if (conn->nkey)
		status = natsOptions_SetNKeyFromSeed(options, conn->nkey, conn->seed);
	return status == NATS_OK ? POSTROOM_OK : refuse_setting("the credentials", status, err);
}

/* Otherwise OpenSSL would prompt for the password. */
static int check_key(const char *path, struct pr_err *err)
{
	FILE *file = path ? fopen(path, "re") : NULL;
	EVP_PKEY *key;

	if (!path)
		return POSTROOM_OK;
	if (!file)
		return pr_err_errno(err, POSTROOM_SINK, "nats: key: cannot read \"%s\"", path);
	key = PEM_read_PrivateKey(file, NULL, pr_refuse_password_prompt, NULL);
	fclose(file);
	ERR_clear_error();
	if (!key)
		return pr_err_set(
			err, POSTROOM_SINK,
			"nats: key: \"%s\" contains no key in PEM, or one that is locked with "
			"a password; unlock it with: openssl pkey -in LOCKED -out KEY",
			path);
	EVP_PKEY_free(key);
	return POSTROOM_OK;
}

static int set_tls(const struct pr_nats_connection *conn, natsOptions *options, struct pr_err *err)
{
	natsStatus status = NATS_OK;

	if (!conn->cert != !conn->key)
		return pr_err_set(err, POSTROOM_SINK, "nats: cert and key must be given together");
	if (check_file("ca", conn->ca, err) < 0 || check_file("cert", conn->cert, err) < 0 ||
	    check_key(conn->key, err) < 0)
		return err->status;
	if (conn->tls || conn->ca || conn->cert)
		status = natsOptions_SetSecure(options, true);
	if (status == NATS_OK && conn->ca)
		status = natsOptions_LoadCATrustedCertificates(options, conn->ca);
	if (status == NATS_OK && conn->cert)
		status = natsOptions_LoadCertificatesChain(options, conn->cert, conn->key);
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

static int fill_options(const struct pr_nats_connection *conn, natsOptions *options,
			int64_t timeout_ms, struct pr_err *err)
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
		status = set_server(options, &conn->servers[conn->server], timeout_ms);
	if (status != NATS_OK)
		return refuse_setting("the client library", status, err);
	if (set_user(conn, options, err) < 0 || set_keys(conn, options, err) < 0)
		return err->status;
	return set_tls(conn, options, err);
}

/* Makes the library's options for the current server. */
static int make_options(const struct pr_nats_connection *conn, int64_t timeout_ms,
			natsOptions **ret, struct pr_err *err)
{
	natsOptions *options = NULL;

	if (natsOptions_Create(&options) != NATS_OK)
		return pr_err_nomem(err);
	if (fill_options(conn, options, timeout_ms, err) < 0) {
		natsOptions_Destroy(options);
		return err->status;
	}
	*ret = options;
	return POSTROOM_OK;
}

int pr_nats_prepare(struct pr_nats_connection *conn, const struct pr_url *url, struct pr_err *err)
{
	natsOptions *options;

	conn->url = url;
	if (set_servers(conn, err) < 0 || make_options(conn, 1, &options, err) < 0)
		return err->status;
	natsOptions_Destroy(options);
	return POSTROOM_OK;
}

void pr_nats_disconnect(struct pr_nats_connection *conn)
{
	natsSubscription_Destroy(conn->answers);
	pr_nats_handshake_end(conn->handshake);
	conn->answers = NULL;
	conn->handshake = NULL;
	conn->connection = NULL;
}

/* A thread of the library frees messages. Freeing many at once wakes it less often. */
void pr_nats_discard(struct pr_nats_connection *conn)
{
	for (size_t i = 0; i < conn->discarded_count; i++)
		natsMsg_Destroy(conn->discarded[i]);
	conn->discarded_count = conn->discarded_bytes = 0;
}

void pr_nats_discard_later(struct pr_nats_connection *conn, natsMsg *msg)
{
	if (!msg)
		return;
	pr_assert(conn->discarded_count < PR_NATS_DISCARDED_MAX);
	conn->discarded[conn->discarded_count++] = msg;
	conn->discarded_bytes += (size_t)natsMsg_GetDataLength(msg);
	if (conn->discarded_count == PR_NATS_DISCARDED_MAX ||
	    conn->discarded_bytes >= DISCARDED_BYTES)
		pr_nats_discard(conn);
}

void pr_nats_release(struct pr_nats_connection *conn)
{
	pr_nats_discard(conn);
	pr_nats_disconnect(conn);
	for (size_t i = 0; i < conn->server_count; i++)
		pr_nats_handshake_end(conn->pending[i]);
}

static natsStatus subscribe(struct pr_nats_connection *conn)
{
	char pattern[PR_NATS_INBOX_SIZE + 2];
	natsInbox *inbox = NULL;
	natsStatus status = natsInbox_Create(&inbox);

	if (status != NATS_OK)
		return status;
	snprintf(conn->inbox, sizeof(conn->inbox), "%s", inbox);
	natsInbox_Destroy(inbox);
	snprintf(pattern, sizeof(pattern), "%s.>", conn->inbox);
	status = natsConnection_SubscribeSync(&conn->answers, conn->connection, pattern);
	if (status == NATS_OK)
		status = natsSubscription_SetPendingLimits(conn->answers, -1, -1);
	return status;
}

/* Waits for the handshake with the current server. False: it is not done yet. */
static bool await_handshake(const struct pr_nats_handshake *handshake,
			    const struct pr_flight *flight, int64_t until_us)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = handshake->done_fd, .events = POLLIN } };

	while (!atomic_load(&handshake->done)) {
		if (pr_stop_requested(flight->stop) || pr_mono_us() >= until_us)
			return false;
		pr_flight_poll(flight, fds, 2, until_us);
	}
	return true;
}

/* Uses the connection of a handshake that is done. */
static int use_handshake(struct pr_nats_connection *conn, struct pr_err *err)
{
	const struct pr_address *server = &conn->servers[conn->server];
	struct pr_nats_handshake *handshake = conn->pending[conn->server];
	natsStatus status = handshake->status;

	conn->pending[conn->server] = NULL;
	conn->handshake = handshake;
	conn->connection = handshake->connection;
	if (status == NATS_OK)
		status = subscribe(conn);
	if (status == NATS_OK) {
		conn->patience_us[conn->server] = 0;
		conn->connections++;
		return POSTROOM_OK;
	}
	if (status == NATS_CONNECTION_AUTH_FAILED)
		pr_err_set(err, POSTROOM_UNAVAILABLE,
			   "%s port %d refuses the login: %s; check the user in the URL, or creds "
			   "or nkey",
			   server->host, server->port, handshake->error);
	else
		pr_err_set(err, POSTROOM_UNAVAILABLE, "cannot connect to %s port %d: %s",
			   server->host, server->port,
			   handshake->error[0] ? handshake->error : natsStatus_GetText(status));
	pr_nats_disconnect(conn);
	return err->status;
}

/* The library waits for a handshake forever, but the server may have recovered meanwhile. */
static void abandon_stuck(struct pr_nats_connection *conn, const struct pr_flight *flight)
{
	struct pr_nats_handshake **pending = &conn->pending[conn->server];
	int64_t *patience_us = &conn->patience_us[conn->server];

	if (*patience_us == 0)
		*patience_us = flight->timeout_ms * 1000 * STUCK_TIMEOUTS;
	if (!*pending || atomic_load(&(*pending)->done) ||
	    pr_mono_us() - (*pending)->begun_us < *patience_us)
		return;
	pr_nats_handshake_end(*pending);
	*pending = NULL;
	*patience_us *= 2;
	if (*patience_us > PATIENCE_MAX_US)
		*patience_us = PATIENCE_MAX_US;
}

static int begin_handshake(struct pr_nats_connection *conn, int64_t timeout_ms, struct pr_err *err)
{
	natsOptions *options;
	natsStatus status;

	if (make_options(conn, timeout_ms, &options, err) < 0)
		return err->status;
	/*
	 * Not in make_options(): it makes the library read all certificates of the system, which
	 * takes too long for a check of the settings.
	 */
	status = natsOptions_SetExpectedHostname(options, conn->servers[conn->server].host);
	if (status != NATS_OK) {
		natsOptions_Destroy(options);
		return refuse_setting("TLS", status, err);
	}
	return pr_nats_handshake_begin(options, &conn->pending[conn->server], err);
}

static int try_server(struct pr_nats_connection *conn, const struct pr_flight *flight,
		      int64_t until_us, struct pr_err *err)
{
	const struct pr_address *server = &conn->servers[conn->server];
	struct pr_nats_handshake **pending = &conn->pending[conn->server];
	int64_t left_ms = (until_us - pr_mono_us()) / 1000;

	abandon_stuck(conn, flight);
	/* The result of an earlier attempt counts only if it succeeded. */
	if (*pending && atomic_load(&(*pending)->done) && use_handshake(conn, err) == POSTROOM_OK)
		return POSTROOM_OK;
	if (!*pending && begin_handshake(conn, left_ms > 0 ? left_ms : 1, err) < 0)
		return err->status;
	if (await_handshake(*pending, flight, until_us))
		return use_handshake(conn, err);
	if (pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before the connection was made");
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "cannot connect to %s port %d in time",
			  server->host, server->port);
}

/* Data received between calls: the server's PING, or its close. */
static bool is_alive(struct pr_nats_connection *conn)
{
	struct pollfd fd = { .fd = conn->handshake->fd, .events = POLLIN };

	while (!natsConnection_IsClosed(conn->connection) && poll(&fd, 1, 0) > 0)
		natsConnection_ProcessReadEvent(conn->connection);
	return !natsConnection_IsClosed(conn->connection);
}

int pr_nats_connect(struct pr_nats_connection *conn, const struct pr_flight *flight,
		    int64_t until_us, struct pr_err *err)
{
	if (conn->connection) {
		if (is_alive(conn))
			return POSTROOM_OK;
		pr_nats_disconnect(conn);
	}
	for (size_t left = conn->server_count; left > 0; left--) {
		int64_t now_us = pr_mono_us();
		int status = try_server(conn, flight, now_us + (until_us - now_us) / (int64_t)left,
					err);

		if (status == POSTROOM_OK || status == POSTROOM_STOPPED)
			return status;
		conn->server = (conn->server + 1) % conn->server_count;
	}
	return err->status;
}

void pr_nats_push(struct pr_nats_connection *conn)
{
	if (natsConnection_Buffered(conn->connection) >= PUSH_BYTES)
		natsConnection_ProcessWriteEvent(conn->connection);
}

int pr_nats_transfer(struct pr_nats_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err)
{
	struct pollfd fds[3] = { { .fd = -1 },
				 { .fd = conn->handshake->fd, .events = POLLIN },
				 { .fd = conn->handshake->errors_fd, .events = POLLIN } };
	const struct pr_address *server = &conn->servers[conn->server];
	const char *why = NULL;
	bool late;

	if (conn->handshake->writing)
		natsConnection_ProcessWriteEvent(conn->connection);
	late = pr_mono_us() >= until_us;
	if (late || pr_stop_overdue(flight->stop)) {
		pr_err_set(err, POSTROOM_UNAVAILABLE, "no answer from %s port %d in time",
			   server->host, server->port);
		err->native = late ? ETIMEDOUT : 0;
		return err->status;
	}
	if (conn->handshake->writing)
		fds[1].events |= POLLOUT;
	if (!natsConnection_IsClosed(conn->connection))
		pr_flight_poll(flight, fds, 3, until_us);
	if (fds[1].revents & ~POLLOUT)
		natsConnection_ProcessReadEvent(conn->connection);
	if (!natsConnection_IsClosed(conn->connection))
		return POSTROOM_OK;
	natsConnection_GetLastError(conn->connection, &why);
	return fail_connection(conn, why && why[0] ? why : "closed by the server", err);
}
