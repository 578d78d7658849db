/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the sink of each message. */
#ifndef PR_RELAY_ROUTE_H
#define PR_RELAY_ROUTE_H

#include "relay/relay.h"

/* Instead of a sink's index: all of them. */
#define PR_ROUTE_ANY SIZE_MAX

/*
 * Compiles the routes into the rules of one sink, in list, which has room for count rules. False:
 * no message can ever reach this sink.
 */
bool pr_route_rules(const struct pr_relay_route *routes, size_t count, size_t sink,
		    struct pr_rule *list, struct pr_rules *ret);

/* True if any route matches. */
bool pr_route_fits(const struct pr_relay_route *routes, size_t count, const char *ns,
		   const char *topic);

#endif
