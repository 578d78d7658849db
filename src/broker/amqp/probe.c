/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's checks of RabbitMQ.
 *
 * AMQP cannot be asked whether an exchange or queue is durable. But declaring an existing one with
 * durable=true changes nothing if it is durable, and is refused with the reason if it is not. So
 * the probe declares it passively first, and again only if it exists.
 */
#include "broker/amqp/connection.h"

#include "sink/sink.h"
#include "sink/target.h"

#include <stdio.h>
#include <string.h>

#define TYPE_SIZE 64

struct probe {
	struct pr_amqp_connection *conn;
	const struct pr_flight *flight;
	struct pr_checkup *checkup;
};

/* The server closes a channel after a refusal, so each check has its own connection. */
static bool ask_exchange(const struct probe *probe, const char *name, const char *type,
			 struct pr_err *err)
{
	amqp_exchange_declare_t declare = { .exchange = amqp_cstring_bytes(name),
					    .type = amqp_cstring_bytes(type ? type : ""),
					    .passive = !type,
					    .durable = true };
	int64_t until_us = probe->flight->begin_until_us;

	if (pr_amqp_connect(probe->conn, probe->flight, until_us, err) < 0)
		return false;
	pr_amqp_put_method(probe->conn, AMQP_EXCHANGE_DECLARE_METHOD, &declare);
	if (pr_amqp_expect(probe->conn, AMQP_EXCHANGE_DECLARE_OK_METHOD, probe->flight, until_us,
			   err))
		return true;
	pr_amqp_disconnect(probe->conn);
	return false;
}

static bool ask_queue(const struct probe *probe, const char *name, bool passive, struct pr_err *err)
{
	amqp_queue_declare_t declare = { .queue = amqp_cstring_bytes(name),
					 .passive = passive,
					 .durable = true };
	int64_t until_us = probe->flight->begin_until_us;

	if (pr_amqp_connect(probe->conn, probe->flight, until_us, err) < 0)
		return false;
	pr_amqp_put_method(probe->conn, AMQP_QUEUE_DECLARE_METHOD, &declare);
	if (pr_amqp_expect(probe->conn, AMQP_QUEUE_DECLARE_OK_METHOD, probe->flight, until_us, err))
		return true;
	pr_amqp_disconnect(probe->conn);
	return false;
}

static void report_missing(const struct probe *probe, const char *kind, const char *name,
			   const struct pr_err *err)
{
	bool missing = err->native == AMQP_NOT_FOUND;

	pr_found(probe->checkup, PR_LEVEL_PROBLEM, "The %s \"%s\" %s", kind, name,
		 missing ? "does not exist" : "cannot be used");
	pr_found_detail(probe->checkup, "%s. Messages wait in the outbox.", err->text);
	pr_found_advice(probe->checkup, "The administrator of RabbitMQ creates it, or the operator "
					"corrects the URL of the sink.");
	if (!missing)
		return;
	pr_found_command(probe->checkup, "rabbitmqadmin declare %s durable=true%s name=", kind,
			 strcmp(kind, "exchange") == 0 ? " type=topic" : "");
	pr_found_command_word(probe->checkup, name);
}

static void report_durability(const struct probe *probe, const char *kind, const char *name,
			      const struct pr_err *err)
{
	if (strstr(err->text, "'durable'")) {
		pr_found(probe->checkup, PR_LEVEL_WARNING, "The %s \"%s\" is not durable", kind,
			 name);
		pr_found_detail(probe->checkup,
				"A restart of RabbitMQ deletes it: messages that were "
				"delivered are lost, or new ones have nowhere to go.");
		pr_found_advice(probe->checkup,
				"The administrator of RabbitMQ deletes it and creates it "
				"again as durable.");
	} else if (err->native == AMQP_ACCESS_REFUSED) {
		pr_found_skipped(probe->checkup,
				 "The user may not declare it, so its durability is unknown.",
				 "The administrator of RabbitMQ looks at it with the command.");
		pr_found_command(probe->checkup, "rabbitmqctl list_%ss name durable", kind);
	} else if (err->native != AMQP_PRECONDITION_FAILED) {
		/* Another argument that differs is refused after "durable" was compared. */
		pr_found_skipped(probe->checkup, err->text, NULL);
	}
}

/* The type that the server names when it refuses a different one. */
static bool read_type(const struct pr_err *err, char out[TYPE_SIZE])
{
	const char *at = strstr(err->text, "'type'") ? strstr(err->text, "current is '") : NULL;

	if (!at)
		return false;
	at += strlen("current is '");
	snprintf(out, TYPE_SIZE, "%.*s", (int)strcspn(at, "'"), at);
	return true;
}

static void probe_exchange(const struct probe *probe, const char *name)
{
	struct pr_err err = { 0 };
	char type[TYPE_SIZE];

	if (!ask_exchange(probe, name, NULL, &err)) {
		report_missing(probe, "exchange", name, &err);
		return;
	}
	if (!ask_exchange(probe, name, "topic", &err) &&
	    (!read_type(&err, type) || !ask_exchange(probe, name, type, &err)))
		report_durability(probe, "exchange", name, &err);
}

static void probe_queue(const struct probe *probe, const char *name)
{
	struct pr_err err = { 0 };

	if (!ask_queue(probe, name, true, &err))
		report_missing(probe, "queue", name, &err);
	else if (!ask_queue(probe, name, false, &err))
		report_durability(probe, "queue", name, &err);
}

void pr_amqp_probe(struct pr_amqp_connection *conn, const char *exchange, const char *routing_key,
		   const struct pr_flight *flight, struct pr_checkup *checkup)
{
	const struct probe probe = { conn, flight, checkup };
	struct pr_err err = { 0 };

	if (pr_amqp_connect(conn, flight, flight->begin_until_us, &err) < 0) {
		pr_found_unreachable(checkup, err.text);
		return;
	}
	if (conn->blocked) {
		pr_found_unreachable(checkup, conn->why);
		return;
	}
	/* RabbitMQ does not allow declaring its built-in exchanges, which are durable. */
	if (exchange[0] && !pr_target_is_template(exchange) && strncmp(exchange, "amq.", 4) != 0)
		probe_exchange(&probe, exchange);
	if (!exchange[0] && routing_key && routing_key[0] && !pr_target_is_template(routing_key))
		probe_queue(&probe, routing_key);
	pr_amqp_disconnect(conn);
}
