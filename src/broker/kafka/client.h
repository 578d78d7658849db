/* SPDX-License-Identifier: Apache-2.0 */
/* A client of librdkafka, for producers and consumers: settings, start, errors. */
#ifndef PR_BROKER_KAFKA_CLIENT_H
#define PR_BROKER_KAFKA_CLIENT_H

#include "sink/sink.h"

#include <librdkafka/rdkafka.h>

#define PR_KAFKA_NAME_MAX 249 /* bytes in the name of a topic */

typedef const char *const pr_kafka_pair[2]; /* a property of the library and its value */

/* Properties that are set here, and those that settings may change. Lists end in NULL. */
struct pr_kafka_rules {
	pr_kafka_pair *defaults;    /* unless settings say otherwise */
	pr_kafka_pair *fixed;	    /* whatever settings say */
	const char *const *refused; /* that settings cannot set; the library's default applies */
	const char *reason;	    /* why settings cannot change the fixed and the refused ones */
};

struct pr_kafka_client {
	const struct pr_url *url;
	struct pr_param_list properties; /* of the library: name, value, name, value, … */
	rd_kafka_t *handle;		 /* NULL: not started, or abandoned */
	const struct pr_flight *flight;	 /* NULL outside of a call */
	int64_t down_us;   /* since when no broker is connected; 0: one may be connected */
	char trouble[300]; /* the library's last error about its brokers; "": none */
};

/* Time for the library to try a broker's other addresses, and for a broker to restart. */
#define PR_KAFKA_PATIENCE_US ((int64_t)1000 * 1000)

/* True if no broker has been connected for longer than that. */
bool pr_kafka_is_down(const struct pr_kafka_client *client);

/* Characters allowed in a topic's name, and whether a name is valid. */
bool pr_kafka_is_name_char(char c);
bool pr_kafka_is_name(const char *name);

/* True for a header that the sink sets, so that a message's own headers cannot use the name. */
bool pr_kafka_is_own_header(const char *name);

/* POSTROOM_SINK if the URL has no hosts, or a user or password in front of them. */
int pr_kafka_check_address(const struct pr_url *url, const char *example, struct pr_err *err);

/*
 * Makes the library's configuration by the rules, with our callbacks for errors and logs. The
 * client is the opaque pointer of callbacks.
 */
int pr_kafka_client_conf(struct pr_kafka_client *client, const struct pr_kafka_rules *rules,
			 rd_kafka_conf_t **ret, struct pr_err *err);

/*
 * Starts the client. It owns conf afterwards, also on failure: POSTROOM_SINK with the library's
 * text.
 */
int pr_kafka_client_begin(struct pr_kafka_client *client, rd_kafka_type_t type,
			  rd_kafka_conf_t *conf, struct pr_err *err);

#endif
