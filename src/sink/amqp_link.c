/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Every wait ends at until_us and when the grace of a stop is over; while nothing
 *    is in flight, as soon as a stop is requested.
 * 2. A server that has been silent for two heartbeats is gone, and one that has not
 *    heard us for one will hang up: then a new connection is made before anything is sent.
 * 3. The password leaves in connection.start-ok and nowhere else: no error repeats it.
 */
#include "sink/amqp_link.h"

#include "base/time.h"

#include <errno.h>
#include <string.h>

#define FRAME_MAX 131072 /* what RabbitMQ proposes */
#define FRAME_MIN 4096	 /* what every server takes */
#define POOL_PAGE 4096
#define TLS_RECORD 16384 /* what TLS may hold of the beginning, and will have again */
#define PORT 5672
#define TLS_PORT 5671

/* VHOST/NAME; the last '/' divides them, since "/" is the name of the usual vhost. */
static const char *divide_path(struct pr_amqp_link *link, char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
	link->vhost = path[0] ? path : "/";
	return slash ? slash + 1 : "";
}

int pr_amqp_link_open(struct pr_amqp_link *link, const struct pr_url *url,
		      const char *const *schemes, const struct pr_tls_files *tls, const char *what,
		      const char **name, struct pr_err *err)
{
	int port = pr_tls_wanted(url, schemes) ? TLS_PORT : PORT;

	link->url = url;
	if (pr_address_parse(url, url->host, port, &link->address, err) < 0)
		return err->status;
	if (url->user[0] && !url->password[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "amqp: the user \"%s\" has no password; write "
				  "amqp://USER:PASSWORD@HOST/VHOST/%s",
				  url->user, what);
	if (!url->user[0] && url->password[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "amqp: there is a password, but no user; write "
				  "amqp://USER:PASSWORD@HOST/VHOST/%s",
				  what);
	*name = divide_path(link, url->path);
	if (strlen(link->vhost) > PR_AMQP_NAME_MAX)
		return pr_err_set(err, POSTROOM_SINK, "amqp: the vhost is longer than %d bytes",
				  PR_AMQP_NAME_MAX);
	if (link->heartbeat_ms % 1000 != 0)
		return pr_err_set(err, POSTROOM_SINK, "amqp: heartbeat takes whole seconds");
	init_amqp_pool(&link->pool, POOL_PAGE);
	return pr_tls_open(url, schemes, tls, &link->tls, err);
}

void pr_amqp_hang_up(struct pr_amqp_link *link)
{
	if (link->connected)
		pr_wire_close(&link->wire);
	link->connected = link->blocked = false;
}

static int lost(const struct pr_amqp_link *link, struct pr_err *err)
{
	return pr_err_prefix(err, "the connection to %s port %d is lost", link->address.host,
			     link->address.port);
}

uint64_t pr_amqp_place(const struct pr_amqp_link *link)
{
	return link->gone + (link->out.len - link->out_at);
}

bool pr_amqp_take_back(struct pr_amqp_link *link, uint64_t place)
{
	if (place < link->gone + (link->tls ? TLS_RECORD : 0))
		return false;
	link->out.len = link->out_at + (size_t)(place - link->gone);
	return true;
}

static int flush(struct pr_amqp_link *link, struct pr_err *err)
{
	size_t before = link->out_at;
	ssize_t gone;

	if (link->out.failed)
		return pr_err_nomem(err);
	gone = pr_wire_flush(&link->wire, &link->out, &link->out_at, err);
	if (gone < 0) {
		/* What left before it failed can not be taken back. */
		link->gone += link->out_at - before;
		return lost(link, err);
	}
	link->gone += (uint64_t)gone;
	if (gone > 0)
		link->sent_us = pr_mono_us();
	return POSTROOM_OK;
}

/* Says so first if that costs no waiting: RabbitMQ logs who just vanishes. */
static void part(struct pr_amqp_link *link)
{
	amqp_connection_close_t close = { .reply_code = AMQP_REPLY_SUCCESS };
	struct pr_err ignored;

	if (link->connected && !link->out.failed && link->out_at == link->out.len) {
		pr_amqp_put_method(link, AMQP_CONNECTION_CLOSE_METHOD, &close);
		flush(link, &ignored);
	}
	pr_amqp_hang_up(link);
}

void pr_amqp_link_release(struct pr_amqp_link *link)
{
	part(link);
	pr_address_release(&link->address);
	pr_buf_release(&link->in);
	pr_buf_release(&link->out);
	empty_amqp_pool(&link->pool);
	SSL_CTX_free(link->tls);
}

/* 0: nothing has come. */
static ssize_t take_in(struct pr_amqp_link *link, struct pr_err *err)
{
	ssize_t n;

	if (link->in_at == link->in.len) {
		link->in_at = 0;
		pr_sink_trim(&link->in);
	} else if (link->in_at > 0) {
		memmove(link->in.data, link->in.data + link->in_at, link->in.len - link->in_at);
		link->in.len -= link->in_at;
		link->in_at = 0;
	}
	n = pr_wire_take(&link->wire, &link->in, err);
	if (n < 0)
		return lost(link, err);
	if (n > 0)
		link->heard_us = pr_mono_us();
	return n;
}

/* When there is something to do for the heartbeats, or until_us. */
static int64_t tend_heartbeat(struct pr_amqp_link *link, int64_t now_us, int64_t until_us)
{
	int64_t next_us;

	if (link->heartbeat_ms == 0)
		return until_us;
	next_us = link->sent_us + link->heartbeat_ms * 1000 / 2;
	if (next_us <= now_us) {
		/* What waits to be sent says as much. */
		if (link->out_at == link->out.len)
			pr_amqp_put_heartbeat(link);
		next_us = now_us + link->heartbeat_ms * 1000 / 2;
	}
	return next_us < until_us ? next_us : until_us;
}

int pr_amqp_transfer(struct pr_amqp_link *link, const struct pr_flight *flight, int64_t until_us,
		     struct pr_err *err)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = link->wire.fd, .events = POLLIN } };
	int64_t now_us = pr_mono_us();
	int64_t wake_us = tend_heartbeat(link, now_us, until_us);

	/* What the server said last (confirms, a reason) counts, though it no longer listens. */
	if (flush(link, err) < 0)
		return take_in(link, err) > 0 ? POSTROOM_OK : err->status;
	if (!link->in_flight && pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before anything was sent");
	if (pr_stop_overdue(flight->stop) || now_us >= until_us) {
		pr_err_set(err, POSTROOM_UNAVAILABLE,
			   "no answer from %s port %d in the time there was", link->address.host,
			   link->address.port);
		err->native = now_us >= until_us ? ETIMEDOUT : 0;
		return err->status;
	}
	if (link->heartbeat_ms > 0 && now_us - link->heard_us > 2 * link->heartbeat_ms * 1000)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "%s port %d has been silent for two heartbeats",
				  link->address.host, link->address.port);
	if (link->wire.wants_room)
		fds[1].events |= POLLOUT;
	pr_flight_poll(flight, fds, 2, wake_us);
	return fds[1].revents && take_in(link, err) < 0 ? err->status : POSTROOM_OK;
}

int pr_amqp_flush(struct pr_amqp_link *link, const struct pr_flight *flight, int64_t until_us,
		  struct pr_err *err)
{
	int status = flush(link, err);

	while (status >= 0 && link->out_at < link->out.len)
		status = pr_amqp_transfer(link, flight, until_us, err);
	return status;
}

int pr_amqp_beat(struct pr_amqp_link *link, struct pr_err *err)
{
	tend_heartbeat(link, pr_mono_us(), INT64_MAX);
	return flush(link, err);
}

void *pr_amqp_expect(struct pr_amqp_link *link, amqp_method_number_t method,
		     const struct pr_flight *flight, int64_t until_us, struct pr_err *err)
{
	struct pr_amqp_frame frame;
	amqp_channel_close_t *close;

	for (;;) {
		int status = pr_amqp_next(link, &frame, err);

		if (status < 0)
			return NULL;
		if (status == 0) {
			if (pr_amqp_transfer(link, flight, until_us, err) < 0)
				return NULL;
			continue;
		}
		if (frame.type != AMQP_FRAME_METHOD)
			continue;
		if (frame.method == method)
			return frame.decoded;
		if (frame.method == AMQP_CHANNEL_CLOSE_METHOD) {
			close = frame.decoded;
			pr_amqp_refused(link, close->reply_code, close->reply_text, err);
			return NULL;
		}
	}
}

static amqp_table_entry_t flag(const char *name)
{
	return (amqp_table_entry_t){
		.key = amqp_cstring_bytes(name),
		.value = { .kind = AMQP_FIELD_KIND_BOOLEAN, .value = { .boolean = true } },
	};
}

static amqp_table_entry_t text(const char *name, const char *value)
{
	return (amqp_table_entry_t){
		.key = amqp_cstring_bytes(name),
		.value = { .kind = AMQP_FIELD_KIND_UTF8,
			   .value = { .bytes = amqp_cstring_bytes(value) } },
	};
}

static int log_in(struct pr_amqp_link *link, struct pr_err *err)
{
	amqp_table_entry_t abilities[] = { flag("publisher_confirms"), flag("basic.nack"),
					   flag("connection.blocked"),
					   flag("consumer_cancel_notify"),
					   flag("authentication_failure_close") };
	amqp_table_entry_t properties[] = {
		text("product", "postroom"),
		text("version", POSTROOM_VERSION),
		{ .key = amqp_cstring_bytes("capabilities"),
		  .value = { .kind = AMQP_FIELD_KIND_TABLE,
			     .value = { .table = { .num_entries = 5, .entries = abilities } } } },
	};
	const char *user = link->url->user[0] ? link->url->user : "guest";
	const char *password = link->url->user[0] ? link->url->password : "guest";
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
	pr_amqp_put_method(link, AMQP_CONNECTION_START_OK_METHOD, &ok);
	return POSTROOM_OK;
}

static int open_channel(struct pr_amqp_link *link, const struct pr_flight *flight, int64_t until_us,
			struct pr_err *err)
{
	amqp_channel_open_t open = { 0 };
	amqp_confirm_select_t select = { 0 };

	link->tag = 0;
	pr_amqp_put_method(link, AMQP_CHANNEL_OPEN_METHOD, &open);
	if (!link->reads)
		pr_amqp_put_method(link, AMQP_CONFIRM_SELECT_METHOD, &select);
	if (!pr_amqp_expect(link, AMQP_CHANNEL_OPEN_OK_METHOD, flight, until_us, err) ||
	    (!link->reads &&
	     !pr_amqp_expect(link, AMQP_CONFIRM_SELECT_OK_METHOD, flight, until_us, err)))
		return err->status;
	return POSTROOM_OK;
}

int pr_amqp_reopen(struct pr_amqp_link *link, const struct pr_flight *flight, int64_t until_us,
		   struct pr_err *err)
{
	amqp_channel_close_ok_t ok = { 0 };

	pr_amqp_put_method(link, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
	return open_channel(link, flight, until_us, err);
}

int pr_amqp_give_back(struct pr_amqp_link *link, const struct pr_flight *flight, int64_t until_us,
		      struct pr_err *err)
{
	amqp_channel_close_t close = { .reply_code = AMQP_REPLY_SUCCESS };

	pr_amqp_put_method(link, AMQP_CHANNEL_CLOSE_METHOD, &close);
	if (!pr_amqp_expect(link, AMQP_CHANNEL_CLOSE_OK_METHOD, flight, until_us, err))
		return err->status;
	return open_channel(link, flight, until_us, err);
}

static int greet(struct pr_amqp_link *link, const struct pr_flight *flight, int64_t until_us,
		 struct pr_err *err)
{
	amqp_connection_tune_ok_t ok = { .channel_max = PR_AMQP_CHANNEL,
					 .heartbeat = (uint16_t)(link->heartbeat_ms / 1000) };
	amqp_connection_open_t open = { .virtual_host = amqp_cstring_bytes(link->vhost) };
	const amqp_connection_tune_t *tune;

	pr_buf_append(&link->out, "AMQP\0\0\x09\x01", 8);
	if (!pr_amqp_expect(link, AMQP_CONNECTION_START_METHOD, flight, until_us, err) ||
	    log_in(link, err) < 0)
		return err->status;
	tune = pr_amqp_expect(link, AMQP_CONNECTION_TUNE_METHOD, flight, until_us, err);
	if (!tune)
		return err->status;
	if (tune->frame_max >= FRAME_MIN && tune->frame_max < FRAME_MAX)
		link->frame_max = tune->frame_max;
	ok.frame_max = (uint32_t)link->frame_max;
	pr_amqp_put_method(link, AMQP_CONNECTION_TUNE_OK_METHOD, &ok);
	pr_amqp_put_method(link, AMQP_CONNECTION_OPEN_METHOD, &open);
	if (!pr_amqp_expect(link, AMQP_CONNECTION_OPEN_OK_METHOD, flight, until_us, err))
		return err->status;
	return open_channel(link, flight, until_us, err);
}

static int connect_link(struct pr_amqp_link *link, const struct pr_flight *flight, int64_t until_us,
			struct pr_err *err)
{
	int fd;
	int status = pr_flight_dial(flight, &link->address, until_us, &fd, err);

	if (status == POSTROOM_OK)
		status = pr_wire_open(&link->wire, fd, link->tls, link->address.host, err);
	if (status < 0)
		return status;
	link->connected = true;
	link->in_at = link->out_at = 0;
	link->gone = 0;
	pr_sink_trim(&link->in);
	pr_sink_trim(&link->out);
	link->frame_max = FRAME_MAX;
	link->heard_us = link->sent_us = pr_mono_us();
	status = greet(link, flight, until_us, err);
	if (status < 0)
		pr_amqp_hang_up(link);
	return status;
}

bool pr_amqp_hear(struct pr_amqp_link *link)
{
	int64_t limit_us = link->heartbeat_ms * 1000, now_us = pr_mono_us();
	struct pr_err ignored;

	/* A server that does not read does not ask for heartbeats either. */
	if (limit_us > 0 && !link->blocked && now_us - link->sent_us > limit_us)
		return false;
	if (take_in(link, &ignored) < 0)
		return false;
	return limit_us == 0 || now_us - link->heard_us <= 2 * limit_us;
}

/* Nobody waits for what came since the last message was confirmed. */
static bool is_alive(struct pr_amqp_link *link)
{
	struct pr_amqp_frame frame;
	struct pr_err ignored;
	int status;

	if (!pr_amqp_hear(link))
		return false;
	while ((status = pr_amqp_next(link, &frame, &ignored)) > 0) {
		if (frame.type == AMQP_FRAME_METHOD && frame.method == AMQP_CHANNEL_CLOSE_METHOD)
			return false;
	}
	return status == 0;
}

int pr_amqp_connect(struct pr_amqp_link *link, const struct pr_flight *flight, int64_t until_us,
		    struct pr_err *err)
{
	if (link->connected) {
		if (is_alive(link))
			return POSTROOM_OK;
		part(link);
	}
	return connect_link(link, flight, until_us, err);
}
