/* SPDX-License-Identifier: Apache-2.0 */
/*
  * Throughput of RabbitMQ without a relay and a database in front of it: persistent
 * messages with as many headers as the sink gives them, confirmed in batches.
 *
 *	bare_amqp PORT QUEUE COUNT BATCH CLIENTS SIZE	prints the seconds that it took
 *	bare_amqp PORT QUEUE	a new queue; prints how many messages the old one had
 */
#include "broker/amqp/rabbitmq.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLIENTS_MAX 64
#define ID "019a8c5e-7d20-7b3c-9a31-0d3f0a5f7c11"

static const char *const headers[][2] = {
	{ "ce_specversion", "1.0" },
	{ "ce_id", ID },
	{ "ce_source", "/postroom/default" },
	{ "ce_type", "bench.orders" },
	{ "ce_time", "2026-01-01T12:00:00.000000Z" },
	{ "idempotency-key", ID },
};
#define HEADERS (sizeof(headers) / sizeof(*headers))

static int port;
static const char *queue;
static uint64_t count, batch;
static char *content;

static void must(int ok, const char *step)
{
	if (ok)
		return;
	fprintf(stderr, "bare_amqp: %s\n", step);
	exit(1);
}

static amqp_connection_state_t connect_to(void)
{
	amqp_connection_state_t conn = amqp_new_connection();
	amqp_socket_t *socket = amqp_tcp_socket_new(conn);

	must(socket && amqp_socket_open(socket, "127.0.0.1", port) == 0, "no connection");
	must(amqp_login(conn, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest")
			     .reply_type == AMQP_RESPONSE_NORMAL,
	     "no login");
	must(amqp_channel_open(conn, 1) && amqp_confirm_select(conn, 1), "no channel");
	return conn;
}

/* Takes one confirmation; they may come in any order, for one message or all up to one. */
static uint64_t hear(amqp_connection_state_t conn, uint64_t base, bool *confirmed)
{
	amqp_frame_t frame;
	const amqp_basic_ack_t *ack;
	uint64_t number = 0;

	amqp_maybe_release_buffers(conn);
	must(amqp_simple_wait_frame(conn, &frame) == AMQP_STATUS_OK &&
		     frame.frame_type == AMQP_FRAME_METHOD &&
		     frame.payload.method.id == AMQP_BASIC_ACK_METHOD,
	     "something else than a confirmation has come");
	ack = frame.payload.method.decoded;
	must(ack->delivery_tag > base && ack->delivery_tag <= base + batch, "a wrong number");
	for (uint64_t i = ack->multiple ? 0 : ack->delivery_tag - base - 1;
	     i < ack->delivery_tag - base; i++) {
		number += !confirmed[i];
		confirmed[i] = true;
	}
	return number;
}

static void *publish(void *context)
{
	amqp_connection_state_t conn = connect_to();
	amqp_table_entry_t entries[HEADERS];
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
			  AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.delivery_mode = 2,
		.content_type = amqp_cstring_bytes("application/json"),
		.message_id = amqp_cstring_bytes(ID),
		.headers = { HEADERS, entries },
	};
	uint64_t sent = 0;
	bool *confirmed = malloc(batch * sizeof(*confirmed));

	(void)context;
	must(confirmed != NULL, "no memory");
	for (size_t i = 0; i < HEADERS; i++)
		entries[i] = (amqp_table_entry_t){
			.key = amqp_cstring_bytes(headers[i][0]),
			.value = { .kind = AMQP_FIELD_KIND_UTF8,
				   .value.bytes = amqp_cstring_bytes(headers[i][1]) },
		};
	for (; sent < count; sent += batch) {
		memset(confirmed, 0, batch * sizeof(*confirmed));
		for (uint64_t i = 0; i < batch; i++)
			must(amqp_basic_publish(conn, 1, amqp_empty_bytes,
						amqp_cstring_bytes(queue), 1, 0, &properties,
						amqp_cstring_bytes(content)) == AMQP_STATUS_OK,
			     "the connection is lost");
		for (uint64_t number = 0; number < batch;)
			number += hear(conn, sent, confirmed);
	}
	amqp_destroy_connection(conn);
	free(confirmed);
	return NULL;
}

/* A quorum queue is step RabbitMQ advises where no message may be lost; it is always durable. */
static void renew_queue(void)
{
	amqp_connection_state_t conn = connect_to();
	amqp_table_entry_t type = {
		.key = amqp_cstring_bytes("x-queue-type"),
		.value = { .kind = AMQP_FIELD_KIND_UTF8,
			   .value.bytes = amqp_cstring_bytes("quorum") },
	};
	const amqp_queue_delete_ok_t *old = amqp_queue_delete(conn, 1, amqp_cstring_bytes(queue), 0,
							      0);

	must(old != NULL, "cannot delete the queue");
	printf("%u\n", old->message_count);
	must(amqp_queue_declare(conn, 1, amqp_cstring_bytes(queue), 0, 1, 0, 0,
				(amqp_table_t){ 1, &type }) != NULL,
	     "cannot declare the queue");
	amqp_destroy_connection(conn);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	pthread_t threads[CLIENTS_MAX];
	long clients = argc == 7 ? atol(argv[5]) : 0;
	size_t size = argc == 7 ? (size_t)atol(argv[6]) : 0;
	double begun = now();

	if (argc == 3) {
		port = atoi(argv[1]);
		queue = argv[2];
		renew_queue();
		return 0;
	}
	must(clients > 0 && clients <= CLIENTS_MAX, "usage: see the head of bare_amqp.c");
	port = atoi(argv[1]);
	queue = argv[2];
	count = strtoull(argv[3], NULL, 10) / (uint64_t)clients;
	batch = strtoull(argv[4], NULL, 10);
	content = calloc(1, size + 1);
	must(batch > 0 && content, "usage: see the head of bare_amqp.c");
	memset(content, 'x', size);
	for (long i = 0; i < clients; i++)
		must(pthread_create(&threads[i], NULL, publish, NULL) == 0, "no thread");
	for (long i = 0; i < clients; i++)
		pthread_join(threads[i], NULL);
	printf("%.3f\n", now() - begun);
	free(content);
	return 0;
}
