/* SPDX-License-Identifier: Apache-2.0 */
/* Which sink gets which messages. */
#ifndef PR_RELAY_ROUTE_H
#define PR_RELAY_ROUTE_H

#include "relay/relay.h"

/* Instead of a sink's index: all of them. */
#define PR_ROUTE_ANY SIZE_MAX

/*
 * What of the routes matters to one sink, as a store wants it, in list, which has
 * room for count rules. False when no message can ever get there.
 */
bool pr_route_rules(const struct pr_relay_route *routes, size_t count, size_t sink,
		    struct pr_rule *list, struct pr_rules *ret);

/* Does any route fit? */
bool pr_route_fits(const struct pr_relay_route *routes, size_t count, const char *ns,
		   const char *topic);

#endif
