/* SPDX-License-Identifier: Apache-2.0 */
/*
 * amqp: a consumer of a RabbitMQ queue.
 *
 * 1. Events are returned in the order of the channel's delivery tags. When nothing before a read is
 *    open, all up to its last event are acknowledged together. Events that stay open longer than
 *    the lease are returned with their channel and redelivered.
 * 2. A delivery tag belongs to its channel. Our numbers continue after the last channel's, so an
 *    event of an earlier channel is never mistaken for one of this channel.
 * 3. The server sends at most prefetch messages ahead; the rest waits in the socket.
 * 4. The server reports that the queue is empty: a new consumer asks for the state of its queue,
 *    and the reply comes after all messages that the queue had for it.
 * 5. Heartbeats are half a lease apart. read() and keep() send them, and between their calls we may
 *    send nothing for that long.
 */
#include "base/time.h"
#include "broker/amqp/delivery.h"

#include <errno.h>
#include <string.h>

#define AHEAD_BYTES ((size_t)1024 * 1024) /* received bytes that wait to be parsed */
#define HEARTBEAT_MAX_MS ((int64_t)3600 * 1000)

struct amqp_source {
	struct pr_source source;
	const char *queue;
	int64_t prefetch;
	struct pr_tls_files tls;
	struct pr_amqp_connection conn;
	struct pr_amqp_delivery delivery; /* the next one */
	uint64_t base;			  /* added to the channel's own numbers */
	uint64_t given;			  /* the last event that was returned */
	uint64_t acked;			  /* all events up to this one are acknowledged */
	int64_t open_us; /* since when the next event is open, if it was returned */
	bool asked;	 /* the queue's state was requested, and there is no answer yet */
};

/* Explains the server's error about a queue, and what to do about it. */
static int explain_refusal(const struct amqp_source *amqp, struct pr_err *err)
{
	if (err->native == AMQP_NOT_FOUND)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "%s port %d has no queue \"%s\" in the vhost \"%s\"; declare it, "
				  "as with amqp-declare-queue --queue %s --durable, and bind it to "
				  "an exchange",
				  amqp->conn.address.host, amqp->conn.address.port, amqp->queue,
				  amqp->conn.vhost, amqp->queue);
	if (err->native == AMQP_ACCESS_REFUSED)
		return pr_err_prefix(err, "queue \"%s\", which the user must be allowed to read",
				     amqp->queue);
	return err->status;
}

static int subscribe(struct amqp_source *amqp, const struct pr_flight *flight, int64_t until_us,
		     struct pr_err *err)
{
	amqp_basic_qos_t qos = { .prefetch_count = (uint16_t)amqp->prefetch };
	amqp_basic_consume_t consume = {
		.queue = amqp_cstring_bytes(amqp->queue),
		.consumer_tag = amqp_cstring_bytes(amqp->source.consumer),
	};
	amqp_queue_declare_t declare = { .queue = amqp_cstring_bytes(amqp->queue), .passive = 1 };

	pr_amqp_put_method(&amqp->conn, AMQP_BASIC_QOS_METHOD, &qos);
	pr_amqp_put_method(&amqp->conn, AMQP_BASIC_CONSUME_METHOD, &consume);
	if (!pr_amqp_expect(&amqp->conn, AMQP_BASIC_QOS_OK_METHOD, flight, until_us, err) ||
	    !pr_amqp_expect(&amqp->conn, AMQP_BASIC_CONSUME_OK_METHOD, flight, until_us, err))
		return explain_refusal(amqp, err);
	pr_amqp_put_method(&amqp->conn, AMQP_QUEUE_DECLARE_METHOD, &declare);
	amqp->asked = true;
	return POSTROOM_OK;
}

static bool is_source_alive(struct amqp_source *amqp)
{
	struct pr_amqp_connection *conn = &amqp->conn;

	return conn->connected &&
	       (conn->in.len - conn->in_at >= AHEAD_BYTES || pr_amqp_receive(conn));
}

static bool is_overdue(const struct amqp_source *amqp)
{
	return amqp->given != amqp->acked &&
	       pr_mono_us() - amqp->open_us > amqp->source.lease_ms * 1000;
}

/* Makes sure that there is a consumer. */
static int make_ready(struct amqp_source *amqp, const struct pr_flight *flight, struct pr_err *err)
{
	int64_t until_us = pr_mono_us() + flight->timeout_ms * 1000;
	int status;

	if (!is_source_alive(amqp)) {
		pr_amqp_disconnect(&amqp->conn);
		status = pr_amqp_connect(&amqp->conn, flight, until_us, err);
	} else if (!is_overdue(amqp)) {
		return POSTROOM_OK;
	} else {
		status = pr_amqp_release_buffers(&amqp->conn, flight, until_us, err);
	}
	pr_amqp_delivery_reset(&amqp->delivery);
	amqp->base = amqp->acked = amqp->given;
	return status < 0 ? status : subscribe(amqp, flight, until_us, err);
}

static int handle_source_frame(struct amqp_source *amqp, const struct pr_amqp_frame *frame,
			       struct pr_err *err)
{
	const amqp_channel_close_t *close = frame->decoded;

	if (frame->type == AMQP_FRAME_METHOD && frame->method == AMQP_QUEUE_DECLARE_OK_METHOD)
		amqp->asked = false;
	if (frame->type == AMQP_FRAME_METHOD && frame->method == AMQP_BASIC_CANCEL_METHOD)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "%s port %d no longer delivers the queue \"%s\": it has "
				  "been deleted, or its node is down",
				  amqp->conn.address.host, amqp->conn.address.port, amqp->queue);
	if (frame->type == AMQP_FRAME_METHOD && frame->method == AMQP_CHANNEL_CLOSE_METHOD) {
		pr_amqp_refused(&amqp->conn, close->reply_code, close->reply_text, err);
		return explain_refusal(amqp, err);
	}
	return pr_amqp_delivery_add_frame(&amqp->delivery, &amqp->conn, frame, err);
}

/* 1: the next delivery is complete; 0: it is not complete yet. */
static int assemble(struct amqp_source *amqp, struct pr_err *err)
{
	struct pr_amqp_frame frame;
	int status;

	while (amqp->delivery.stage != PR_AMQP_WHOLE) {
		status = pr_amqp_next(&amqp->conn, &frame, err);
		if (status > 0)
			status = handle_source_frame(amqp, &frame, err) < 0 ? err->status : 1;
		if (status <= 0)
			return status;
	}
	return 1;
}

static int add_event(struct amqp_source *amqp, struct pr_events *events, struct pr_err *err)
{
	uint64_t tag = amqp->base + amqp->delivery.tag;
	struct pr_event *event = pr_events_add(events);

	if (!event)
		return pr_err_nomem(err);
	if (amqp->given == amqp->acked)
		amqp->open_us = pr_mono_us();
	event->tag = amqp->given = tag;
	return pr_amqp_delivery_to_event(&amqp->delivery, &amqp->conn, &events->arena, event, err);
}

/* Returns all received deliveries, up to the limits. */
static int add_events(struct amqp_source *amqp, struct pr_events *events, size_t limit,
		      struct pr_err *err)
{
	size_t before = events->count, bytes = 0, used = events->arena.used;
	int status = POSTROOM_OK;

	/* The arena counts headers as well. */
	while (status >= 0 && events->count - before < limit &&
	       events->arena.used - used < amqp->source.bytes) {
		status = assemble(amqp, err);
		if (status <= 0)
			return status;
		bytes += amqp->delivery.body.len;
		if (bytes > amqp->source.bytes && events->count > before)
			return POSTROOM_OK;
		status = add_event(amqp, events, err);
	}
	return status;
}

static int await_delivery(struct amqp_source *amqp, struct pr_events *events, size_t limit,
			  const struct pr_flight *flight, struct pr_err *err)
{
	int64_t answer_until_us = pr_mono_us() + flight->timeout_ms * 1000;
	size_t before = events->count;
	int status = add_events(amqp, events, limit, err);

	while (status >= 0 && events->count == before) {
		int64_t until_us = flight->begin_until_us;

		if (amqp->asked && until_us < answer_until_us)
			until_us = answer_until_us;
		status = pr_amqp_transfer(&amqp->conn, flight, until_us, err);
		if (status < 0 && err->native == ETIMEDOUT && !amqp->asked)
			return POSTROOM_OK;
		if (status >= 0)
			status = add_events(amqp, events, limit, err);
	}
	return status;
}

static int read_amqp(struct pr_source *source, struct pr_events *events, size_t limit,
		     const struct pr_flight *flight, struct pr_err *err)
{
	struct amqp_source *amqp = (struct amqp_source *)source;
	size_t before = events->count;
	int status;

	if (pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before anything was read");
	status = make_ready(amqp, flight, err);
	if (status >= 0) {
		status = await_delivery(amqp, events, limit, flight, err);
		if (status >= 0 || status == POSTROOM_STOPPED)
			return status;
	}
	events->count = before;
	pr_amqp_disconnect(&amqp->conn);
	return status;
}

/* The number of the last event, or 0 if the events belong to an earlier channel. */
static uint64_t last_of(const struct amqp_source *amqp, const struct pr_events *events)
{
	uint64_t last = events->list[events->count - 1].tag;

	return amqp->conn.connected && last > amqp->base ? last : 0;
}

static int too_late(const struct amqp_source *amqp, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "the connection to %s port %d that delivered them is closed; the broker "
			  "redelivers them",
			  amqp->conn.address.host, amqp->conn.address.port);
}

static void put_ack(struct amqp_source *amqp, uint64_t tag, bool multiple)
{
	amqp_basic_ack_t method = { .delivery_tag = tag - amqp->base, .multiple = multiple };

	pr_amqp_put_method(&amqp->conn, AMQP_BASIC_ACK_METHOD, &method);
}

static int ack(struct pr_source *source, const struct pr_events *events,
	       const struct pr_flight *flight, struct pr_err *err)
{
	struct amqp_source *amqp = (struct amqp_source *)source;
	int64_t until_us = pr_mono_us() + flight->timeout_ms * 1000;
	uint64_t last;
	int status;

	if (events->count == 0)
		return POSTROOM_OK;
	last = last_of(amqp, events);
	if (last == 0)
		return too_late(amqp, err);
	if (events->list[0].tag == amqp->acked + 1) {
		put_ack(amqp, last, true);
		amqp->acked = last;
	} else {
		for (size_t i = 0; i < events->count; i++)
			put_ack(amqp, events->list[i].tag, false);
	}
	amqp->conn.in_flight = true;
	status = pr_amqp_flush(&amqp->conn, flight, until_us, err);
	amqp->conn.in_flight = false;
	if (status < 0)
		pr_amqp_disconnect(&amqp->conn);
	return status;
}

static int extend_lease(struct pr_source *source, const struct pr_events *events,
			const struct pr_flight *flight, struct pr_err *err)
{
	struct amqp_source *amqp = (struct amqp_source *)source;
	int status;

	(void)flight;
	if (events->count == 0)
		return POSTROOM_OK;
	if (last_of(amqp, events) == 0)
		return too_late(amqp, err);
	status = pr_amqp_heartbeat(&amqp->conn, err);
	if (status < 0)
		pr_amqp_disconnect(&amqp->conn);
	return status;
}

static int open_source(struct pr_source *source, struct pr_err *err)
{
	struct amqp_source *amqp = (struct amqp_source *)source;
	int64_t heartbeat_ms = (source->lease_ms + 1999) / 2000 * 1000;
	int status;

	amqp->conn.reads = true;
	amqp->conn.heartbeat_ms = heartbeat_ms < HEARTBEAT_MAX_MS ? heartbeat_ms : HEARTBEAT_MAX_MS;
	status = pr_amqp_connection_init(&amqp->conn, &source->url, source->ops->schemes,
					 &amqp->tls, "QUEUE", err);
	if (status < 0)
		return status;
	amqp->queue = amqp->conn.name;
	if (amqp->queue[0] && strlen(amqp->queue) <= PR_AMQP_NAME_MAX)
		return POSTROOM_OK;
	pr_amqp_connection_release(&amqp->conn);
	if (amqp->queue[0])
		return pr_err_set(err, POSTROOM_SINK, "amqp: the queue is longer than %d bytes",
				  PR_AMQP_NAME_MAX);
	return pr_err_set(err, POSTROOM_SINK,
			  "amqp: the URL names no queue; write amqp://HOST/VHOST/QUEUE, or "
			  "amqp://HOST//QUEUE for the default vhost");
}

static void close_source(struct pr_source *source)
{
	struct amqp_source *amqp = (struct amqp_source *)source;

	pr_amqp_connection_release(&amqp->conn);
	pr_amqp_delivery_release(&amqp->delivery);
}

static const char *const schemes[] = { "amqp", "amqps", NULL };

static const struct pr_param params[] = {
	{ .name = "prefetch",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct amqp_source, prefetch),
	  .value = "N",
	  .fallback = "1000",
	  .min = 1,
	  .max = UINT16_MAX,
	  .help = "messages that the server sends ahead of their acknowledgement" },
	PR_TLS_PARAMS(struct amqp_source, "amqps"),
	{ .name = NULL },
};

const struct pr_source_ops pr_source_amqp = {
	.schemes = schemes,
	.summary = "a queue of RabbitMQ, each message acknowledged when it is safe",
	.example = "amqp://guest:guest@localhost:5672/%2F/orders",
	.size = sizeof(struct amqp_source),
	.params = params,
	.open = open_source,
	.read = read_amqp,
	.ack = ack,
	.keep = extend_lease,
	.close = close_source,
};
