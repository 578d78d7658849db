/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a Kafka consumer group: its records, and which of them are committed. */
#ifndef PR_BROKER_KAFKA_CONSUMER_H
#define PR_BROKER_KAFKA_CONSUMER_H

#include "broker/kafka/client.h"

struct pr_kafka_consumer {
	struct pr_kafka_client client; /* first: callbacks are given this */
	const char *topic, *group;
	int64_t lease_ms;
	size_t share; /* of bytes: the library fetches that much ahead, or half of it */
	rd_kafka_queue_t *queue;
	int fd; /* readable when the library has something to say; a begun consumer's */
	/* In the order they came. The first ones, given of them, are out and not acknowledged. */
	rd_kafka_message_t **held;
	size_t count, capacity, given;
	size_t bytes;	   /* of all that are held */
	int64_t joined_us; /* since when we know which partitions are ours, if any; 0: we do not */
	bool revoking;	   /* the group wants its partitions back; they go when nothing is out */
	bool paused;	   /* nothing is fetched until the next read */
	rd_kafka_resp_err_t refusal; /* what the library last said of topic or group; 0: nothing */
};

/* Whether its properties will do: connects to nothing, POSTROOM_SINK. */
int pr_kafka_check(struct pr_kafka_consumer *consumer, struct pr_err *err);

/* Joins the group, if it is in none; waits for nothing. Bad properties are POSTROOM_SINK. */
int pr_kafka_join(struct pr_kafka_consumer *consumer, struct pr_err *err);

/* Call it when no record is unacknowledged: they are redelivered, or belong to other members. */
void pr_kafka_return_unread(struct pr_kafka_consumer *consumer);

/*
 * Holds what there is: limit records or bytes of them, then no more. None: nothing came by
 * flight->begin_until_us, though the group has taken us in: that, and the first record of new
 * partitions, may take the flight's timeout. Failures as those of pr_source_ops.read.
 */
int pr_kafka_fetch(struct pr_kafka_consumer *consumer, size_t limit, size_t bytes,
		   const struct pr_flight *flight, struct pr_err *err);

/* Memory of a record, with its key and headers. */
size_t pr_kafka_size(const rd_kafka_message_t *message);

/* Commits what is out, which is then forgotten. */
int pr_kafka_commit(struct pr_kafka_consumer *consumer, const struct pr_flight *flight,
		    struct pr_err *err);

/* Shows the library that the consumer is alive, without fetching more. */
int pr_kafka_keep(struct pr_kafka_consumer *consumer, struct pr_err *err);

/* Leaves the group and forgets all that is held. */
void pr_kafka_leave(struct pr_kafka_consumer *consumer);

#endif
