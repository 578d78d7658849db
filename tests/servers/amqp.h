/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RabbitMQ takes seconds to start: one serves all tests of a run and ends with it.
 * Each test has an exchange of its own there.
 */
#ifndef TESTS_SERVERS_AMQP_H
#define TESTS_SERVERS_AMQP_H

#include "broker/amqp/rabbitmq.h"
#include "servers/server.h"

/*
 * The exchange of this test, which is also the name of the queue that gets whatever
 * is bound to no other one.
 */
const char *amqp_own(void);
void amqp_start(struct server *server);
int amqp_tls_port(void);
const char *amqp_directory(void); /* ca.pem is there */

/* A connection with channel 1 open, to be ended with amqp_end(). */
amqp_connection_state_t amqp_reach(const struct server *server);
void amqp_end(amqp_connection_state_t connection);

void amqp_declare_exchange(const struct server *server, const char *name, const char *type);
/* limit >= 0: it refuses more messages than that. */
void amqp_declare_queue(const struct server *server, const char *name, int limit);
void amqp_bind(const struct server *server, const char *queue, const char *exchange,
	       const char *key);

/* Whether a queue has the message; then fn gets it. */
bool amqp_find(const struct server *server, const char *queue, const char *id,
	       void (*fn)(const amqp_message_t *message, const char *routing_key, void *context),
	       void *context);
int amqp_length(const struct server *server, const char *queue);

/* rabbitmqctl WORDS, which must succeed. */
void amqp_control(const char *words);

#endif
