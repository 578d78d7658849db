/* SPDX-License-Identifier: Apache-2.0 */
/* A producer of librdkafka: starts, waits for delivery reports, and ends. */
#ifndef PR_BROKER_KAFKA_PRODUCER_H
#define PR_BROKER_KAFKA_PRODUCER_H

#include "broker/kafka/client.h"
#include "sink/sink.h"

/* A message that was handed to the producer, and its result. */
struct pr_kafka_sent {
	bool begun;
	bool reported;
	rd_kafka_resp_err_t error;
};

struct pr_kafka_producer {
	struct pr_kafka_client client; /* the first member: callbacks receive its address */
	size_t pending;		       /* messages without a report */
	bool dropped; /* set by pr_kafka_wait(): the brokers are up, but dropped the connection */
	/*
	 * Limits of a round: messages of one partition that are produced between two waits are sent
	 * in one request, which the broker accepts or refuses as a whole.
	 */
	size_t round_count, round_bytes;
	int64_t round_us;
};

/* Starts the producer unless it runs. POSTROOM_SINK with the library's text on failure. */
int pr_kafka_begin(struct pr_kafka_producer *producer, struct pr_err *err);

/*
 * Produces one message. Its memory must stay valid until publish ends. The headers belong to the
 * library afterwards.
 */
rd_kafka_resp_err_t pr_kafka_produce(struct pr_kafka_producer *producer, const char *topic,
				     const postroom_delivery *item, rd_kafka_headers_t *headers,
				     struct pr_kafka_sent *sent, int64_t until_us);

/*
 * Waits for all delivery reports. False: it gave up. Then, and after a fatal error of the library,
 * the producer is ended, and no report comes later.
 */
bool pr_kafka_wait(struct pr_kafka_producer *producer, int64_t until_us);

void pr_kafka_end(struct pr_kafka_producer *producer);

/* probe.c: see struct pr_sink_ops. topic may be a template. */
void pr_kafka_probe(struct pr_kafka_producer *producer, const char *topic,
		    const struct pr_flight *flight, struct pr_checkup *checkup);

#endif
