/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a Kafka consumer group: its records, and which of them are committed. */
#ifndef PR_BROKER_KAFKA_CONSUMER_H
#define PR_BROKER_KAFKA_CONSUMER_H

#include "broker/kafka/client.h"

struct pr_kafka_consumer {
	struct pr_kafka_client client; /* the first member: callbacks receive its address */
	const char *topic, *group;
	int64_t lease_ms;
	size_t share; /* bytes that the library fetches ahead, or half of that */
	rd_kafka_queue_t *queue;
	int fd; /* readable when the library has an event; valid while it runs */
	/*
	 * In the order in which they were fetched. The first `given` of them were returned and are not
	 * acknowledged.
	 */
	rd_kafka_message_t **held;
	size_t count, capacity, given;
	size_t bytes;		     /* of all held records */
	int64_t joined_us;	     /* when the group assigned partitions; 0: not yet */
	bool revoking;		     /* partitions are released once nothing is unacknowledged */
	bool paused;		     /* nothing is fetched until the next read */
	rd_kafka_resp_err_t refusal; /* the last error of topic or group; 0: none */
};

/* Checks its properties without connecting. POSTROOM_SINK: they are invalid. */
int pr_kafka_check(struct pr_kafka_consumer *consumer, struct pr_err *err);

/* Joins the group if it has not, without waiting. POSTROOM_SINK: invalid properties. */
int pr_kafka_join(struct pr_kafka_consumer *consumer, struct pr_err *err);

/*
 * Drops fetched records: they are redelivered, or belong to other members. Call it when no record
 * is unacknowledged.
 */
void pr_kafka_return_unread(struct pr_kafka_consumer *consumer);

/*
 * Fetches available records, up to limit records or bytes. None: nothing came by
 * flight->begin_until_us. Joining the group, and the first record of new partitions, may take the
 * flight's timeout. Failures are those of pr_source_ops.read.
 */
int pr_kafka_fetch(struct pr_kafka_consumer *consumer, size_t limit, size_t bytes,
		   const struct pr_flight *flight, struct pr_err *err);

/* The memory of a record, including its key and headers. */
size_t pr_kafka_size(const rd_kafka_message_t *message);

/* Commits the returned records, and drops them. */
int pr_kafka_commit(struct pr_kafka_consumer *consumer, const struct pr_flight *flight,
		    struct pr_err *err);

/* Shows the library that the consumer is alive, without fetching more. */
int pr_kafka_keep(struct pr_kafka_consumer *consumer, struct pr_err *err);

/* Leaves the group and drops all held records. */
void pr_kafka_leave(struct pr_kafka_consumer *consumer);

#endif
