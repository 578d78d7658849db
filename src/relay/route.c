/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A message goes to the sink of the first route that fits it, and to no other:
 *    so those of one key, which share namespace and topic, share a sink too.
 * 2. Who gets everything has no rules at all: then the store's statements are
 *    those of a relay without routes.
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

	/* Behind one that takes all, and behind the last that leads here, nothing matters. */
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
