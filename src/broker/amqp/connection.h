/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to an AMQP 0-9-1 server with one channel, which never waits longer
 * than it may. rabbitmq-c knows what methods look like; the waiting is ours.
 */
#ifndef PR_BROKER_AMQP_CONNECTION_H
#define PR_BROKER_AMQP_CONNECTION_H

#include "broker/amqp/rabbitmq.h"
#include "net/stream.h"
#include "sink/sink.h"

#define PR_AMQP_CHANNEL 1
#define PR_AMQP_NAME_MAX 255 /* bytes of an exchange, a queue, a routing key */

struct pr_amqp_connection {
	const struct pr_url *url; /* user and password */
	const char *vhost;
	struct pr_address address;
	SSL_CTX *tls; /* NULL: plain */
	int64_t heartbeat_ms;
	bool reads; /* nothing is published: the channel confirms nothing */

	bool connected;
	bool in_flight; /* messages are on their way: a stop waits for the answers */
	bool blocked;	/* the server takes no messages; why is known */
	char why[600];
	struct pr_stream net_stream;
	struct pr_buf in, out;
	size_t in_at, out_at; /* up to here read and sent */
	uint64_t gone;	      /* bytes that were sent on this connection */
	size_t frame_max;
	int64_t heard_us, sent_us;
	uint64_t tag; /* of the last message sent on this channel */
	amqp_pool_t pool;
};

/* Valid until the next is read. */
struct pr_amqp_frame {
	uint8_t type;
	amqp_method_number_t method;
	void *decoded;	      /* of a method */
	amqp_bytes_t payload; /* of other frames */
};

/*
 * For the URL of a sink or a source, with these schemes; does not connect. name gets the text
 * after the vhost: an exchange or a queue, as kind says for errors. Errors in the URL are
 * POSTROOM_SINK. Release it only after success.
 */
int pr_amqp_connection_init(struct pr_amqp_connection *conn, const struct pr_url *url,
			    const char *const *schemes, const struct pr_tls_files *tls,
			    const char *kind, const char **name, struct pr_err *err);
void pr_amqp_connection_release(struct pr_amqp_connection *conn);

/*
 * Connects unless there is a connection already, and it lives. POSTROOM_STOPPED
 * when a stop came first.
 */
int pr_amqp_connect(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		    int64_t until_us, struct pr_err *err);
void pr_amqp_disconnect(struct pr_amqp_connection *conn);

/* Takes in what has come meanwhile; false: the connection is of no use any more. */
bool pr_amqp_receive(struct pr_amqp_connection *conn);

/* After the server has closed the channel: a new one. */
int pr_amqp_reopen(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		   int64_t until_us, struct pr_err *err);
/* Closes the channel, waits until what was not acknowledged there is back, and opens a new one. */
int pr_amqp_release_buffers(struct pr_amqp_connection *conn, const struct pr_flight *flight,
			    int64_t until_us, struct pr_err *err);

void pr_amqp_put_heartbeat(struct pr_amqp_connection *conn);
void pr_amqp_put_method(struct pr_amqp_connection *conn, amqp_method_number_t method,
			void *decoded);

/*
 * The header and the body behind basic.publish. POSTROOM_INVALID and nothing put
 * when the properties, of room bytes at most, fit in no frame.
 */
int pr_amqp_put_content(struct pr_amqp_connection *conn, amqp_basic_properties_t *properties,
			size_t room, const void *body, size_t len, struct pr_err *err);

/* Where in all that this connection sends the next will stand that is put. */
uint64_t pr_amqp_send_offset(const struct pr_amqp_connection *conn);
/* Takes back all that was put from there on; false when it may have begun to leave. */
bool pr_amqp_unsend(struct pr_amqp_connection *conn, uint64_t place);

/*
 * Sends what has been put and takes in what has come, waiting once for either.
 * err->native is ETIMEDOUT when until_us has passed.
 */
int pr_amqp_transfer(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err);

/* 1: the next frame of the channel; 0: none yet; < 0 and the error: time to hang up. */
int pr_amqp_next(struct pr_amqp_connection *conn, struct pr_amqp_frame *ret, struct pr_err *err);

/* An error of the server's own words for what it closes and why; its code is the native one. */
int pr_amqp_refused(const struct pr_amqp_connection *conn, uint16_t code, amqp_bytes_t text,
		    struct pr_err *err);

/*
 * Waits for a method and passes over all that comes before it; its fields, or NULL and the
 * error, whose native code is the server's own if it has refused.
 */
void *pr_amqp_expect(struct pr_amqp_connection *conn, amqp_method_number_t method,
		     const struct pr_flight *flight, int64_t until_us, struct pr_err *err);

/* Sends all that has been put. */
int pr_amqp_flush(struct pr_amqp_connection *conn, const struct pr_flight *flight, int64_t until_us,
		  struct pr_err *err);
/* Sends a heartbeat if it is time for one, as far as that takes no waiting. */
int pr_amqp_heartbeat(struct pr_amqp_connection *conn, struct pr_err *err);

/* probe.c: see struct pr_sink_ops. Both names may be templates; routing_key NULL: the topic. */
void pr_amqp_probe(struct pr_amqp_connection *conn, const char *exchange, const char *routing_key,
		   const struct pr_flight *flight, struct pr_checkup *checkup);

/* The payload of a header frame: how long the body is, and the properties; false: it is none. */
bool pr_amqp_read_header(struct pr_amqp_connection *conn, amqp_bytes_t payload, uint64_t *ret_len,
			 const amqp_basic_properties_t **ret);

#endif
