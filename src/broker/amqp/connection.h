/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to an AMQP 0-9-1 server with one channel. Every wait ends at a deadline. rabbitmq-c
 * encodes and decodes methods; the waiting is ours.
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
	const char *vhost, *name; /* name: behind the vhost in the URL */
	struct pr_address address;
	SSL_CTX *tls; /* NULL: plain */
	int64_t heartbeat_ms;
	bool reads; /* for a source: the channel has no confirms */

	bool connected;
	bool in_flight; /* messages are in flight: a stop waits for the answers */
	bool blocked;	/* the server has blocked publishers, and the reason is logged */
	char why[600];
	struct pr_stream net_stream;
	struct pr_buf in, out;
	size_t in_at, out_at; /* how much of in was read, and of out was sent */
	uint64_t sent_bytes;  /* bytes that were sent on this connection */
	size_t frame_max;
	int64_t received_us, sent_us;
	uint64_t tag; /* of the last message sent on this channel */
	amqp_pool_t pool;
};

/* Valid until the next frame is read. */
struct pr_amqp_frame {
	uint8_t type;
	amqp_method_number_t method;
	void *decoded;	      /* of a method */
	amqp_bytes_t payload; /* of other frames */
};

/*
 * Reads the URL of a sink or a source with one of these schemes. It does not connect. conn->name
 * becomes the text after the vhost: an exchange or a queue; errors call it kind. Errors in the URL
 * are POSTROOM_SINK. Release it only after success.
 */
int pr_amqp_connection_init(struct pr_amqp_connection *conn, const struct pr_url *url,
			    const char *const *schemes, const struct pr_tls_files *tls,
			    const char *kind, struct pr_err *err);
void pr_amqp_connection_release(struct pr_amqp_connection *conn);

/* Connects unless there is a working connection. POSTROOM_STOPPED: a stop was requested first. */
int pr_amqp_connect(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		    int64_t until_us, struct pr_err *err);
void pr_amqp_disconnect(struct pr_amqp_connection *conn);

/* Receives available data without waiting. False: the connection no longer works. */
bool pr_amqp_receive(struct pr_amqp_connection *conn);

/* Opens a new channel after the server has closed the old one. */
int pr_amqp_reopen(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		   int64_t until_us, struct pr_err *err);
/*
 * Closes the channel, waits until the server has requeued its unacknowledged messages, and opens a
 * new one.
 */
int pr_amqp_release_buffers(struct pr_amqp_connection *conn, const struct pr_flight *flight,
			    int64_t until_us, struct pr_err *err);

void pr_amqp_put_heartbeat(struct pr_amqp_connection *conn);
void pr_amqp_put_method(struct pr_amqp_connection *conn, amqp_method_number_t method,
			void *decoded);

/*
 * Puts the header and the body after basic.publish. POSTROOM_INVALID, with nothing put: the
 * properties, of at most room bytes, do not fit into a frame.
 */
int pr_amqp_put_content(struct pr_amqp_connection *conn, amqp_basic_properties_t *properties,
			size_t room, const void *body, size_t len, struct pr_err *err);

/* The offset, in everything that this connection sends, of the next byte that will be put. */
uint64_t pr_amqp_send_offset(const struct pr_amqp_connection *conn);
/* Removes everything that was put from that offset on. False: some of it may have been sent. */
bool pr_amqp_unsend(struct pr_amqp_connection *conn, uint64_t offset);

/*
 * Sends pending data and receives available data, waiting once for either. err->native is ETIMEDOUT
 * if until_us has passed.
 */
int pr_amqp_transfer(struct pr_amqp_connection *conn, const struct pr_flight *flight,
		     int64_t until_us, struct pr_err *err);

/* 1: the next frame of the channel; 0: none yet; < 0: disconnect. */
int pr_amqp_next(struct pr_amqp_connection *conn, struct pr_amqp_frame *ret, struct pr_err *err);

/* Fills err with the server's text for the reason of a close. err->native is the server's code. */
int pr_amqp_refused(const struct pr_amqp_connection *conn, uint16_t code, amqp_bytes_t text,
		    struct pr_err *err);

/*
 * Waits for a method, skips everything before it, and returns its fields. NULL: it failed;
 * err->native is the server's code if the server has refused.
 */
void *pr_amqp_expect(struct pr_amqp_connection *conn, amqp_method_number_t method,
		     const struct pr_flight *flight, int64_t until_us, struct pr_err *err);

/* Sends all pending data. */
int pr_amqp_flush(struct pr_amqp_connection *conn, const struct pr_flight *flight, int64_t until_us,
		  struct pr_err *err);
/* Sends a heartbeat if one is due, as far as possible without waiting. */
int pr_amqp_heartbeat(struct pr_amqp_connection *conn, struct pr_err *err);

/* probe.c: see struct pr_sink_ops. Both names may be templates; routing_key NULL: the topic. */
void pr_amqp_probe(struct pr_amqp_connection *conn, const char *exchange, const char *routing_key,
		   const struct pr_flight *flight, struct pr_checkup *checkup);

/*
 * Reads the payload of a header frame: the length of the body, and the properties. False: it is
 * invalid.
 */
bool pr_amqp_read_header(struct pr_amqp_connection *conn, amqp_bytes_t payload, uint64_t *ret_len,
			 const amqp_basic_properties_t **ret);

#endif
