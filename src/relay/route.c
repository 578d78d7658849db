/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The first matching route selects the sink of a message. Messages of one key share namespace
 *    and topic, and therefore a sink.
 * 2. A sink that receives everything has no rules: its statements are those of a relay without
 *    routes.
 */
#include "relay/route.h"

#include "base/text.h"

#include <string.h>

static bool takes_all(const struct pr_rule *rule)
{
	return !rule->ns && (!rule->topic || strspn(rule->topic, "*") == strlen(rule->topic));
}

bool pr_route_rules(const struct pr_relay_route *routes, size_t count, size_t sink,
		    struct pr_rule *list, struct pr_rules *ret)
{
	size_t last_mine = 0, others = 0;
	bool all = false;

	/* Routes after a catch-all route, or after the last route to this sink, have no effect. */
	for (size_t i = 0; i < count && !all; i++) {
		bool mine = sink == PR_ROUTE_ANY || routes[i].sink == sink;

		list[i] = (struct pr_rule){ routes[i].ns, routes[i].topic, mine };
		all = takes_all(&list[i]);
		if (mine)
			last_mine = i + 1;
		else
			others++;
	}
	if (last_mine == 0)
		return false;
	*ret = (struct pr_rules){ list, last_mine };
	if (others == 0 && all)
		ret->count = 0;
	return true;
}

bool pr_route_fits(const struct pr_relay_route *routes, size_t count, const char *ns,
		   const char *topic)
{
	for (size_t i = 0; i < count; i++) {
		if ((!routes[i].ns || strcmp(routes[i].ns, ns) == 0) &&
		    (!routes[i].topic || pr_pattern_match(routes[i].topic, topic)))
			return true;
	}
	return false;
}
