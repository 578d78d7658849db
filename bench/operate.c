/* SPDX-License-Identifier: Apache-2.0 */
/* Times what an operator asks of a store: `operate URL [REPEATS]`. See run_operate. */
#pragma GCC diagnostic ignored "-Wshadow"
#include "base/time.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static postroom_store *store;
#define MOST 100
static int repeats = 9;

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

/* Of one query: how long each repetition took, and how long this thread ran meanwhile. */
static int64_t times_us[MOST], ran_us[MOST], begun_us, begun_running_us;

static int64_t running_us(void)
{
	struct timespec now = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void begin(void)
{
	begun_running_us = running_us();
	begun_us = pr_mono_us();
}

static void end(int i)
{
	times_us[i] = pr_mono_us() - begun_us;
	ran_us[i] = running_us() - begun_running_us;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * The median, and from what to what. The processor's time is that of this thread, so it has all of
 * SQLite in it, on a busy machine too, and nothing of a PostgreSQL server.
 */
static void print_result(const char *name, int status, int64_t found)
{
	qsort(times_us, (size_t)repeats, sizeof(*times_us), compare);
	qsort(ran_us, (size_t)repeats, sizeof(*ran_us), compare);
	printf("%-28s %9.2f ms (%.2f to %.2f; processor %.2f)  %lld%s%s\n", name,
	       (double)times_us[repeats / 2] / 1e3, (double)times_us[0] / 1e3,
	       (double)times_us[repeats - 1] / 1e3, (double)ran_us[repeats / 2] / 1e3,
	       (long long)found, status < 0 ? "  " : "",
	       status < 0 ? postroom_store_errmsg(store) : "");
	fflush(stdout);
}

static void time_list(const char *name, const postroom_filter *filter)
{
	int found = 0, status = 0;

	for (int i = 0; i < repeats; i++) {
		begin();
		found = 0;
		status = postroom_list(store, filter, 50, ignore_row, &found);
		end(i);
	}
	print_result(name, status, found);
}

static void time_count(const char *name, const postroom_filter *filter)
{
	int64_t count = 0;
	int status = 0;

	for (int i = 0; i < repeats; i++) {
		begin();
		status = postroom_count(store, filter, PR_GAUGES_CAP, &count);
		end(i);
	}
	print_result(name, status, count);
}

/* As the admin API answers: the rows, one more to know whether there are others, and the total. */
static void time_page(const char *group, const postroom_filter *filter)
{
	int64_t count = 0;
	char name[40];
	int found = 0, status = 0;

	for (int i = 0; i < repeats; i++) {
		begin();
		status = postroom_list(store, filter, 51, ignore_row, &found);
		if (status >= 0)
			status = postroom_count(store, filter, PR_GAUGES_CAP, &count);
		end(i);
	}
	snprintf(name, sizeof(name), "first page of %s", group);
	print_result(name, status, count);
}

static void time_groups(void)
{
	int found = 0, status = 0;

	for (int i = 0; i < repeats; i++) {
		begin();
		found = 0;
		status = postroom_groups(store, POSTROOM_FILTER(0), 100, ignore_group, &found,
					 NULL);
		end(i);
	}
	print_result("groups", status, found);
}

/* As the admin API answers: with the finished rows. */
static void time_stats(void)
{
	struct pr_gauges gauges = { 0 };
	struct pr_err err = { 0 };
	int64_t count = 0;
	int found = 0, status = 0;

	for (int i = 0; i < repeats; i++) {
		begin();
		status = store->ops->collect(store, PR_GAUGES_CAP, &gauges, ignore_topic, &found,
					     &err);
		if (status >= 0)
			status = postroom_count(store, POSTROOM_FILTER(.status = "delivered"),
						10000, &count);
		if (status >= 0)
			status = postroom_count(
				store,
				POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "completed"),
				10000, &count);
		end(i);
	}
	print_result("stats", status, gauges.pending + gauges.dead);
}

static void time_collect(int64_t cap, const char *name)
{
	struct pr_gauges gauges = { 0 };
	struct pr_err err = { 0 };
	int found = 0, status = 0;

	for (int i = 0; i < repeats; i++) {
		begin();
		status = store->ops->collect(store, cap, &gauges, ignore_topic, &found, &err);
		end(i);
	}
	print_result(name, status, gauges.pending + gauges.dead);
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
	if (repeats < 1 || repeats > MOST)
		return 2;
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
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		time_page(states[i], POSTROOM_FILTER(.status = states[i], .brief = 1));
	time_page("all", POSTROOM_FILTER(.brief = 1));
	time_page("an id",
		  POSTROOM_FILTER(.id = "018f0000-0000-7000-8000-000000000000", .brief = 1));
	time_page("a topic", POSTROOM_FILTER(.topic = "t.1", .brief = 1));
	time_page("a key", POSTROOM_FILTER(.key = "k77", .brief = 1));
	time_groups();
	time_stats();
	time_collect(PR_GAUGES_CAP, "collect");
	time_collect(10000, "collect, cap 10000");
	postroom_store_close(store);
	return 0;
}
