/* SPDX-License-Identifier: Apache-2.0 */
/* A producer of librdkafka: its life, and waiting for its reports. */
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
	struct pr_kafka_client client; /* first: callbacks are given this */
	size_t pending;		       /* messages without a report */
	bool dropped; /* set by pr_kafka_wait(): brokers answer, and dropped what was handed over */
	/*
	 * Up to these, what is handed over before a wait goes to a partition in one
	 * request, which the broker takes or refuses as a whole.
	 */
	size_t round_count, round_bytes;
	int64_t round_us;
};

/* Begins it, if there is none. The library's own sentence on failure, POSTROOM_SINK. */
int pr_kafka_begin(struct pr_kafka_producer *producer, struct pr_err *err);

/* Hands over one message, whose memory must stay until publish is over. Takes the headers. */
rd_kafka_resp_err_t pr_kafka_produce(struct pr_kafka_producer *producer, const char *topic,
				     const postroom_delivery *item, rd_kafka_headers_t *headers,
				     struct pr_kafka_sent *sent, int64_t until_us);

/*
 * Waits for the reports of all that was handed over. False when it had to be given
 * up. Then, and when the library has called the producer broken, it is ended: no
 * report comes later.
 */
bool pr_kafka_wait(struct pr_kafka_producer *producer, int64_t until_us);

void pr_kafka_end(struct pr_kafka_producer *producer);

/* probe.c: see struct pr_sink_ops. topic may be a template. */
void pr_kafka_probe(struct pr_kafka_producer *producer, const char *topic,
		    const struct pr_flight *flight, struct pr_checkup *checkup);

#endif
