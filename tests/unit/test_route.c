/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "relay/route.h"

static struct pr_rule list[8];

/* The rules of a sink as text: "ns/topic+ ns/topic- ", "all" or "none". */
static const char *rules_of(const struct pr_relay_route *routes, size_t count, size_t sink)
{
	static char text[300];
	struct pr_rules rules;
	size_t used = 0;

	if (!pr_route_rules(routes, count, sink, list, &rules))
		return "none";
	if (rules.count == 0)
		return "all";
	for (size_t i = 0; i < rules.count; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s/%s%c ",
					 rules.list[i].ns ? rules.list[i].ns : "",
					 rules.list[i].topic ? rules.list[i].topic : "",
					 rules.list[i].mine ? '+' : '-');
	return text;
}

#define RULES(sink, ...)                                                                           \
	rules_of((const struct pr_relay_route[]){ __VA_ARGS__ },                                   \
		 sizeof((const struct pr_relay_route[]){ __VA_ARGS__ }) /                          \
			 sizeof(struct pr_relay_route),                                            \
		 sink)

TEST(D7_irrelevant_rules_of_a_sink_are_dropped)
{
	CHECK_STR(RULES(0, { .topic = "a.*" }, { .topic = "b.*", .sink = 1 }), "/a.*+ ");
	CHECK_STR(RULES(1, { .topic = "a.*" }, { .topic = "b.*", .sink = 1 }), "/a.*- /b.*+ ");
	CHECK_STR(RULES(1, { .ns = "n" }, { .ns = "m", .topic = "t", .sink = 1 }, { .topic = "x" }),
		  "n/- m/t+ ");
	CHECK_STR(RULES(PR_ROUTE_ANY, { .topic = "a" }, { .ns = "n", .sink = 1 }), "/a+ n/+ ");
}

TEST(D7_sink_of_all_messages_has_no_rules)
{
	CHECK_STR(RULES(0, { .sink = 0 }), "all");
	CHECK_STR(RULES(0, { .topic = "**" }, { .topic = "b", .sink = 1 }), "all");
	CHECK_STR(RULES(0, { .topic = "a" }, { .ns = "n" }, { .topic = "*" }), "all");
	CHECK_STR(RULES(PR_ROUTE_ANY, { .topic = "a", .sink = 1 }, { .sink = 0 }), "all");
	CHECK_STR(RULES(0, { .topic = "a", .sink = 1 }, { .sink = 0 }), "/a- /+ ");
	CHECK_STR(RULES(0, { .ns = "n", .topic = "*" }), "n/*+ ");
}

TEST(D7_catch_all_route_receives_all_remaining_messages)
{
	CHECK_STR(RULES(1, { .topic = "*" }, { .topic = "b", .sink = 1 }), "none");
	CHECK_STR(RULES(2, { .topic = "a" }, { .topic = "b", .sink = 1 }), "none");
	CHECK_STR(rules_of(NULL, 0, PR_ROUTE_ANY), "none");
}
