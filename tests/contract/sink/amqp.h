/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of amqp:. */
#ifndef TESTS_CONTRACT_SINK_AMQP_H
#define TESTS_CONTRACT_SINK_AMQP_H

#include "contract/sink/sink.h"
#include "servers/server.h"

extern struct server server;
extern struct rig amqp_rig;

void start(void);

/* target is the part after the port: "/%2F/orders?mandatory=false". */
void open_at(int port, const char *target);
/* To the exchange of the test's own. */
void open_own(const char *settings);
/* Its name with a suffix. */
const char *own(const char *suffix);

postroom_delivery *publish_one(const char *topic);

#endif
