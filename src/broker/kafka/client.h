/* SPDX-License-Identifier: Apache-2.0 */
/* A client of librdkafka, for producers and consumers: its settings, its start, its errors. */
#ifndef PR_BROKER_KAFKA_CLIENT_H
#define PR_BROKER_KAFKA_CLIENT_H

#include "sink/sink.h"

#include <librdkafka/rdkafka.h>

#define PR_KAFKA_NAME_MAX 249 /* bytes in the name of a topic */

typedef const char *const pr_kafka_pair[2]; /* a property of the library and its value */

/* Which properties are whose. Lists end in NULL. */
struct pr_kafka_rules {
	pr_kafka_pair *defaults;    /* unless settings say otherwise */
	pr_kafka_pair *fixed;	    /* whatever settings say */
	const char *const *refused; /* not for settings either, and left alone */
	const char *reason;	    /* for what rests on the fixed and the refused ones */
};

struct pr_kafka_client {
	const struct pr_url *url;
	struct pr_param_list properties; /* of the library: names and values in turn */
	rd_kafka_t *handle;		 /* NULL: none, or the last one was given up */
	const struct pr_flight *flight;	 /* while there is one */
	int64_t down_us;		 /* since when no broker is connected; 0: one may be */
	char trouble[300];		 /* the library's last error about its brokers; "": none */
};

/* Time for the library to try a broker's other addresses, and for one to restart. */
#define PR_KAFKA_PATIENCE_US ((int64_t)1000 * 1000)

/* True if no broker has been connected for longer than that. */
bool pr_kafka_is_down(const struct pr_kafka_client *client);

/* Characters allowed in a topic's name, and whether a name is valid. */
bool pr_kafka_is_name_sign(char c);
bool pr_kafka_is_name(const char *name);

/* Names that a message's own headers cannot use: the sink sets them. */
bool pr_kafka_is_own_header(const char *name);

/* Hosts there must be, and no password in front of them. POSTROOM_SINK. */
int pr_kafka_check_address(const struct pr_url *url, const char *example, struct pr_err *err);

/*
 * The properties by the rules, and where its errors and logs go. Callbacks are given the
 * client as their opaque pointer.
 */
int pr_kafka_client_conf(struct pr_kafka_client *client, const struct pr_kafka_rules *rules,
			 rd_kafka_conf_t **ret, struct pr_err *err);

/* Begins it; takes conf, also on failure. The library's own sentence then, POSTROOM_SINK. */
int pr_kafka_client_begin(struct pr_kafka_client *client, rd_kafka_type_t type,
			  rd_kafka_conf_t *conf, struct pr_err *err);

#endif
