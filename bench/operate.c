/* SPDX-License-Identifier: Apache-2.0 */
/* Times what an operator asks of a store: `operate URL [REPEATS]`. See run_operate. */
#pragma GCC diagnostic ignored "-Wshadow"
#include "base/time.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

static postroom_store *store;
static int repeats = 5;

static int ignore_row(void *context, const postroom_row *row)
{
	(void)row;
	(*(int *)context)++;
	return 0;
}

static int ignore_group(void *context, const postroom_group *group)
{
	(void)group;
	(*(int *)context)++;
	return 0;
}

static void ignore_topic(void *context, const struct pr_topic_gauges *topic)
{
	(void)topic;
	(*(int *)context)++;
}

static void print_result(const char *name, int status, int64_t best_us, int64_t found)
{
	printf("%-28s %9.2f ms  %lld%s%s\n", name, (double)best_us / 1e3, (long long)found,
	       status < 0 ? "  " : "", status < 0 ? postroom_store_errmsg(store) : "");
	fflush(stdout);
}

static void time_list(const char *name, const postroom_filter *filter)
{
	int64_t best_us = INT64_MAX;
	int found = 0, status = 0;

	for (int i = 0; i < repeats; i++) {
		int64_t begun_us = pr_mono_us();

		found = 0;
		status = postroom_list(store, filter, 50, ignore_row, &found);
		if (pr_mono_us() - begun_us < best_us)
			best_us = pr_mono_us() - begun_us;
	}
	print_result(name, status, best_us, found);
}

static void time_count(const char *name, const postroom_filter *filter)
{
	int64_t best_us = INT64_MAX, count = 0;
	int status = 0;

	for (int i = 0; i < repeats; i++) {
		int64_t begun_us = pr_mono_us();

		status = postroom_count(store, filter, PR_GAUGES_CAP, &count);
		if (pr_mono_us() - begun_us < best_us)
			best_us = pr_mono_us() - begun_us;
	}
	print_result(name, status, best_us, count);
}

static void time_groups(void)
{
	int64_t best_us = INT64_MAX;
	int found = 0, status = 0;

	for (int i = 0; i < repeats; i++) {
		int64_t begun_us = pr_mono_us();

		found = 0;
		status = postroom_groups(store, POSTROOM_FILTER(0), 100, ignore_group, &found,
					 NULL);
		if (pr_mono_us() - begun_us < best_us)
			best_us = pr_mono_us() - begun_us;
	}
	print_result("groups", status, best_us, found);
}

static void time_collect(int64_t cap, const char *name)
{
	struct pr_gauges gauges = { 0 };
	int64_t best_us = INT64_MAX;
	struct pr_err err = { 0 };
	int found = 0, status = 0;

	for (int i = 0; i < repeats; i++) {
		int64_t begun_us = pr_mono_us();

		status = pr_store_collect(store, cap, &gauges, ignore_topic, &found, &err);
		if (pr_mono_us() - begun_us < best_us)
			best_us = pr_mono_us() - begun_us;
	}
	print_result(name, status, best_us, gauges.pending + gauges.dead);
}

int main(int argc, char **argv)
{
	static const char *const states[] = { "pending", "failed", "processing", "delivered",
					      "dead" };

	if (argc < 2 || postroom_store_open(argv[1], &store) < 0) {
		fprintf(stderr, "operate: %s\n", argc < 2 ? "URL?" : postroom_store_errmsg(store));
		return 1;
	}
	if (argc > 2)
		repeats = atoi(argv[2]);
	time_list("list any", POSTROOM_FILTER(.brief = 1));
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		char name[40];

		snprintf(name, sizeof(name), "list %s", states[i]);
		time_list(name, POSTROOM_FILTER(.status = states[i], .brief = 1));
	}
	time_list("list dead by error",
		  POSTROOM_FILTER(.status = "dead", .error = "refused", .brief = 1));
	time_list("list dead by rare error",
		  POSTROOM_FILTER(.status = "dead", .error = "nowhere", .brief = 1));
	time_list("list dead by topic",
		  POSTROOM_FILTER(.status = "dead", .topic = "t.1", .brief = 1));
	time_list("list pending by topic",
		  POSTROOM_FILTER(.status = "pending", .topic = "t.1", .brief = 1));
	time_list("list by id", POSTROOM_FILTER(.id = "018f0000-0000-7000-8000-000000000000"));
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		char name[40];

		snprintf(name, sizeof(name), "count %s", states[i]);
		time_count(name, POSTROOM_FILTER(.status = states[i]));
	}
	time_groups();
	time_collect(PR_GAUGES_CAP, "collect");
	time_collect(10000, "collect, cap 10000");
	postroom_store_close(store);
	return 0;
}
