/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SERVERS_KAFKA_H
#define TESTS_SERVERS_KAFKA_H

#include "servers/server.h"

#include <librdkafka/rdkafka.h>

/* The numbers of requests in the protocol. */
#define KAFKA_PRODUCE 0
#define KAFKA_FETCH 1
#define KAFKA_OFFSET_COMMIT 8
#define KAFKA_JOIN_GROUP 11

/* See kafka_broker.c: "topic NAME CODE", "partitions NAME N", "push API CODE COUNT", "hurry TIMES". */
void kafka_order(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Calls fn with every record until it says false; those of a partition in order. */
void kafka_each(bool (*fn)(rd_kafka_message_t *record, void *context), void *context);

/* Appends a header of a record; false if it has none of that name. */
bool kafka_header(const rd_kafka_message_t *record, const char *name, struct pr_buf *out);

#endif
