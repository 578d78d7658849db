/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Every wait ends at until_us and when the grace of a stop is over; while nothing is in flight,
 *    as soon as a stop is requested.
 * 2. A server that has sent nothing for two heartbeats is unreachable. A server that has received
 *    nothing from us for one heartbeat may close the connection, so a new one is made before
 *    anything is sent.
 * 3. The password is sent in connection.start-ok only. No error repeats it.
 */
#include "broker/amqp/connection.h"

#include "base/time.h"
#include "sink/sink.h"

#include <errno.h>
#include <string.h>

#define FRAME_MAX 131072 /* what RabbitMQ proposes */
#define FRAME_MIN 4096	 /* every server accepts this */
#define POOL_PAGE 4096
#define TLS_RECORD 16384 /* bytes that TLS may hold back and send again */
#define PORT 5672
#define TLS_PORT 5671

/* VHOST/NAME; the last '/' divides them, since "/" is the name of the usual vhost. */
static const char *divide_path(struct pr_amqp_connection *conn, char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
	conn->vhost = path[0] ? path : "/";
	return slash ? slash + 1 : "";
}

int pr_amqp_connection_init(struct pr_amqp_connection *conn, const struct pr_url *url,
			    const char *const *schemes, const struct pr_tls_files *tls,
			    const char *kind, struct pr_err *err)
{
	int port = pr_tls_wanted(url, schemes) ? TLS_PORT : PORT;

	conn->url = url;
	if (pr_address_parse(url, url->host, port, &conn->address, err) < 0)
		return err->status;
	if (url->user[0] && !url->password[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "amqp: the user \"%s\" has no password; write "
				  "amqp://USER:PASSWORD@HOST/VHOST/%s",
				  url->user, kind);
	if (!url->user[0] && url->password[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "amqp: there is a password, but no user; write "
				  "amqp://USER:PASSWORD@HOST/VHOST/%s",
				  kind);
	conn->name = divide_path(conn, url->path);
	if (strlen(conn->vhost) > PR_AMQP_NAME_MAX)
		return pr_err_set(err, POSTROOM_SINK, "amqp: the vhost is longer than %d bytes",
				  PR_AMQP_NAME_MAX);
	if (conn->heartbeat_ms % 1000 != 0)
		return pr_err_set(err, POSTROOM_SINK, "amqp: heartbeat takes whole seconds");
	init_amqp_pool(&conn->pool, POOL_PAGE);
	return pr_tls_open(url, schemes, tls, &conn->tls, err);
}

void pr_amqp_disconnect(struct pr_amqp_connection *conn)
{
	if (conn->connected)
		pr_stream_close(&conn->net_stream);
	conn->connected = conn->blocked = false;
}

static int fail_connection(const struct pr_amqp_connection *conn, struct pr_err *err)
{
	return pr_err_prefix(err, "the connection to %s port %d is lost", conn->address.host,
			     conn->address.port);
}

uint64_t pr_amqp_send_offset(const struct pr_amqp_connection *conn)
{
	return conn->sent_bytes + (conn->out.len - conn->out_at);
}

bool pr_amqp_unsend(struct pr_amqp_connection *conn, uint64_t offset)
{
	if (offset < conn->sent_bytes + (conn->tls ? TLS_RECORD : 0))
		return false;
	conn->out.len = conn->out_at + (size_t)(offset - conn->sent_bytes);
	return true;
}

static int flush(struct pr_amqp_connection *conn, struct pr_err *err)
{
	size_t before = conn->out_at;
	ssize_t sent;

	if (conn->out.failed)
		return pr_err_nomem(err);
	sent = pr_stream_flush(&conn->net_stream, &conn->out, &conn->out_at, err);
	if (sent < 0) {
		/* Bytes that were sent before the failure cannot be unsent. */
		conn->sent_bytes += conn->out_at - before;
		return fail_connection(conn, err);
	}
	conn->sent_bytes += (uint64_t)sent;
	if (sent > 0)
		conn->sent_us = pr_mono_us();
	return POSTROOM_OK;
}

/* Closes the connection properly if that needs no waiting: RabbitMQ logs clients that disappear. */
static void send_close(struct pr_amqp_connection *conn)
{
	amqp_connection_close_t close = { .reply_code = AMQP_REPLY_SUCCESS };
	struct pr_err ignored;

	if (conn->connected && !conn->out.failed && conn->out_at == conn->out.len) {
		pr_amqp_put_method(conn, AMQP_CONNECTION_CLOSE_METHOD, &close);
		flush(conn, &ignored);
	}
	pr_amqp_disconnect(conn);
}

void pr_amqp_connection_release(struct pr_amqp_connection *conn)
{
	send_close(conn);
	pr_address_release(&conn->address);
	pr_buf_release(&conn->in);
	pr_buf_release(&conn->out);
	empty_amqp_pool(&conn->pool);
	SSL_CTX_free(conn->tls);
}

/* 0: nothing was received. */
static ssize_t recv_available(struct pr_amqp_connection *conn, struct pr_err *err)
{
	ssize_t n;

	if (conn->in_at == conn->in.len) {
		conn->in_at = 0;
		pr_buf_trim(&conn->in);
	} else if (conn->in_at > 0) {
		memmove(conn->in.data, conn->in.data + conn->in_at, conn->in.len - conn->in_at);
		conn->in.len -= conn->in_at;
		conn->in_at = 0;
	}
	n = pr_stream_recv_available(&conn->net_stream, &conn->in, err);
	if (n < 0)
		return fail_connection(conn, err);
	if (n > 0)
		conn->received_us = pr_mono_us();
	return n;
}

/* When the next heartbeat action is due, or until_us. */
static int64_t tend_heartbeat(struct pr_amqp_connection *conn, int64_t now_us, int64_t until_us)
{
	int64_t next_us;

	if (conn->heartbeat_ms == 0)
		return until_us;
	next_us = conn->sent_us + conn->heartbeat_ms * 1000 / 2;
	if (next_us <= now_us) {
		/* Data that waits to be sent counts as a heartbeat. */
		if (conn->out_at == conn->out.len)
			pr_amqp_put_heartbeat(conn);
		next_us = now_us + conn->heartbeat_ms * 1000 / 2;
	}
	return next_us < until_us ? next_us : until_us;
}

int pr_amqp_transfer(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = conn->net_stream.fd, .events = POLLIN } };
	int64_t now_us = pr_mono_us();
	int64_t wake_us = tend_heartbeat(conn, now_us, until_us);

	/* The server's last frames (confirms, a reason) count, even if sending has failed. */
	if (flush(conn, err) < 0)
		return recv_available(conn, err) > 0 ? POSTROOM_OK : err->status;
	if (!conn->in_flight && pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before data was sent");
	if (pr_stop_overdue(flight->stop) || now_us >= until_us) {
		pr_err_set(err, POSTROOM_UNAVAILABLE, "no answer from %s port %d in time",
			   conn->address.host, conn->address.port);
		err->native = now_us >= until_us ? ETIMEDOUT : 0;
		return err->status;
	}
	if (conn->heartbeat_ms > 0 && now_us - conn->received_us > 2 * conn->heartbeat_ms * 1000)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "%s port %d has been silent for two heartbeats",
				  conn->address.host, conn->address.port);
	if (conn->net_stream.wants_room)
		fds[1].events |= POLLOUT;
	pr_flight_poll(flight, fds, 2, wake_us);
	return fds[1].revents && recv_available(conn, err) < 0 ? err->status : POSTROOM_OK;
}

int pr_amqp_flush(struct pr_amqp_connection *conn, const struct pr_flight *flight, int64_t until_us,
		  struct pr_err *err)
{
	int status = flush(conn, err);

	while (status >= 0 && conn->out_at < conn->out.len)
		status = pr_amqp_transfer(conn, flight, until_us, err);
	return status;
}

int pr_amqp_heartbeat(struct pr_amqp_connection *conn, struct pr_err *err)
{
	tend_heartbeat(conn, pr_mono_us(), INT64_MAX);
	return flush(conn, err);
}

void *pr_amqp_expect(struct pr_amqp_connection *conn, amqp_method_number_t method,
		     const struct pr_flight *flight, int64_t until_us, struct pr_err *err)
{
	struct pr_amqp_frame frame;
	amqp_channel_close_t *close;

	for (;;) {
		int status = pr_amqp_next(conn, &frame, err);

		if (status < 0)
			return NULL;
		if (status == 0) {
			if (pr_amqp_transfer(conn, flight, until_us, err) < 0)
				return NULL;
			continue;
		}
		if (frame.type != AMQP_FRAME_METHOD)
			continue;
		if (frame.method == method)
			return frame.decoded;
		if (frame.method == AMQP_CHANNEL_CLOSE_METHOD) {
			close = frame.decoded;
			pr_amqp_refused(conn, close->reply_code, close->reply_text, err);
			return NULL;
		}
	}
}

static amqp_table_entry_t put_flag(const char *name)
{
	return (amqp_table_entry_t){
		.key = amqp_cstring_bytes(name),
		.value = { .kind = AMQP_FIELD_KIND_BOOLEAN, .value = { .boolean = true } },
	};
}

static amqp_table_entry_t put_text(const char *name, const char *value)
{
	return (amqp_table_entry_t){
		.key = amqp_cstring_bytes(name),
		.value = { .kind = AMQP_FIELD_KIND_UTF8,
			   .value = { .bytes = amqp_cstring_bytes(value) } },
	};
}

static int log_in(struct pr_amqp_connection *conn, struct pr_err *err)
{
	amqp_table_entry_t abilities[] = { put_flag("publisher_confirms"), put_flag("basic.nack"),
					   put_flag("connection.blocked"),
					   put_flag("consumer_cancel_notify"),
					   put_flag("authentication_failure_close") };
	amqp_table_entry_t properties[] = {
		put_text("product", "postroom"),
		put_text("version", POSTROOM_VERSION),
		{ .key = amqp_cstring_bytes("capabilities"),
		  .value = { .kind = AMQP_FIELD_KIND_TABLE,
			     .value = { .table = { .num_entries = 5, .entries = abilities } } } },
	};
	const char *user = conn->url->user[0] ? conn->url->user : "guest";
	const char *password = conn->url->user[0] ? conn->url->password : "guest";
	PR_CLEANUP_BUF struct pr_buf response = { 0 };
	amqp_connection_start_ok_t ok = {
		.client_properties = { .num_entries = 3, .entries = properties },
		.mechanism = amqp_cstring_bytes("PLAIN"),
		.locale = amqp_cstring_bytes("en_US"),
	};

	pr_buf_putc(&response, '\0');
	pr_buf_puts(&response, user);
	pr_buf_putc(&response, '\0');
	pr_buf_puts(&response, password);
	if (response.failed)
		return pr_err_nomem(err);
	ok.response = (amqp_bytes_t){ .len = response.len, .bytes = response.data };
	pr_amqp_put_method(conn, AMQP_CONNECTION_START_OK_METHOD, &ok);
	return POSTROOM_OK;
}

static int open_channel(struct pr_amqp_connection *conn, const struct pr_flight *flight,
			int64_t until_us, struct pr_err *err)
{
	amqp_channel_open_t open = { 0 };
	amqp_confirm_select_t select = { 0 };

	conn->tag = 0;
	pr_amqp_put_method(conn, AMQP_CHANNEL_OPEN_METHOD, &open);
	if (!conn->reads)
		pr_amqp_put_method(conn, AMQP_CONFIRM_SELECT_METHOD, &select);
	if (!pr_amqp_expect(conn, AMQP_CHANNEL_OPEN_OK_METHOD, flight, until_us, err) ||
	    (!conn->reads &&
	     !pr_amqp_expect(conn, AMQP_CONFIRM_SELECT_OK_METHOD, flight, until_us, err)))
		return err->status;
	return POSTROOM_OK;
}

int pr_amqp_reopen(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		   int64_t until_us, struct pr_err *err)
{
	amqp_channel_close_ok_t ok = { 0 };

	pr_amqp_put_method(conn, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
	return open_channel(conn, flight, until_us, err);
}

int pr_amqp_release_buffers(struct pr_amqp_connection *conn, const struct pr_flight *flight,
			    int64_t until_us, struct pr_err *err)
{
	amqp_channel_close_t close = { .reply_code = AMQP_REPLY_SUCCESS };

	pr_amqp_put_method(conn, AMQP_CHANNEL_CLOSE_METHOD, &close);
	if (!pr_amqp_expect(conn, AMQP_CHANNEL_CLOSE_OK_METHOD, flight, until_us, err))
		return err->status;
	return open_channel(conn, flight, until_us, err);
}

static int handshake(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err)
{
	amqp_connection_tune_ok_t ok = { .channel_max = PR_AMQP_CHANNEL,
					 .heartbeat = (uint16_t)(conn->heartbeat_ms / 1000) };
	amqp_connection_open_t open = { .virtual_host = amqp_cstring_bytes(conn->vhost) };
	const amqp_connection_tune_t *tune;

	pr_buf_append(&conn->out, "AMQP\0\0\x09\x01", 8);
	if (!pr_amqp_expect(conn, AMQP_CONNECTION_START_METHOD, flight, until_us, err) ||
	    log_in(conn, err) < 0)
		return err->status;
	tune = pr_amqp_expect(conn, AMQP_CONNECTION_TUNE_METHOD, flight, until_us, err);
	if (!tune)
		return err->status;
	if (tune->frame_max >= FRAME_MIN && tune->frame_max < FRAME_MAX)
		conn->frame_max = tune->frame_max;
	ok.frame_max = (uint32_t)conn->frame_max;
	pr_amqp_put_method(conn, AMQP_CONNECTION_TUNE_OK_METHOD, &ok);
	pr_amqp_put_method(conn, AMQP_CONNECTION_OPEN_METHOD, &open);
	if (!pr_amqp_expect(conn, AMQP_CONNECTION_OPEN_OK_METHOD, flight, until_us, err))
		return err->status;
	return open_channel(conn, flight, until_us, err);
}

static int connect_link(struct pr_amqp_connection *conn, const struct pr_flight *flight,
			int64_t until_us, struct pr_err *err)
{
	int status = pr_stream_open(&conn->net_stream, flight, &conn->address, conn->tls, until_us,
				    err);

	if (status < 0)
		return status;
	conn->connected = true;
	conn->in_at = conn->out_at = 0;
	conn->sent_bytes = 0;
	pr_buf_trim(&conn->in);
	pr_buf_trim(&conn->out);
	conn->frame_max = FRAME_MAX;
	conn->received_us = conn->sent_us = pr_mono_us();
	status = handshake(conn, flight, until_us, err);
	if (status < 0)
		pr_amqp_disconnect(conn);
	return status;
}

bool pr_amqp_receive(struct pr_amqp_connection *conn)
{
	int64_t limit_us = conn->heartbeat_ms * 1000, now_us = pr_mono_us();
	struct pr_err ignored;

	/* A server that does not read does not expect heartbeats either. */
	if (limit_us > 0 && !conn->blocked && now_us - conn->sent_us > limit_us)
		return false;
	if (recv_available(conn, &ignored) < 0)
		return false;
	return limit_us == 0 || now_us - conn->received_us <= 2 * limit_us;
}

/* No call waits for frames received since the last message was confirmed. */
static bool is_alive(struct pr_amqp_connection *conn)
{
	struct pr_amqp_frame frame;
	struct pr_err ignored;
	int status;

	if (!pr_amqp_receive(conn))
		return false;
	while ((status = pr_amqp_next(conn, &frame, &ignored)) > 0) {
		if (frame.type == AMQP_FRAME_METHOD && frame.method == AMQP_CHANNEL_CLOSE_METHOD)
			return false;
	}
	return status == 0;
}

int pr_amqp_connect(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		    int64_t until_us, struct pr_err *err)
{
	if (conn->connected) {
		if (is_alive(conn))
			return POSTROOM_OK;
		send_close(conn);
	}
	return connect_link(conn, flight, until_us, err);
}
