/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's calls, for nomem.c to starve: count, groups, gauges, leases, attempts. */
#include "contract/store/nomem.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

#define ID "018f0000-0000-7000-8000-000000000001"

static void insert_dead(void)
{
	app_sql("DELETE FROM postroom_attempts");
	app_sql("INSERT INTO postroom_outbox (id, topic, payload, status, claims, last_error) "
		"VALUES "
		"('" ID "', 'a', '{}', 'dead', 1, 'error 1'), "
		"('018f0000-0000-7000-8000-000000000002', 'a', '{}', 'dead', 1, 'error 2')");
	app_sql("INSERT INTO postroom_attempts (id, number, at, worker, error) SELECT id, 1, "
		"updated_at, "
		"NULL, last_error FROM postroom_messages");
}

static int count(void)
{
	int64_t found = -1;
	int status = postroom_count(world.store,
				    POSTROOM_FILTER(.status = "dead", .topic = "a*",
						    .error = "ERROR", .fingerprint = "error <n>"),
				    10, &found);

	CHECK(status < 0 || found == 2);
	return status;
}

TORTURE(X1_count_without_memory_fails_cleanly, .prepare = insert_dead, .run = count)

static int check_group(void *context, const postroom_group *group)
{
	CHECK(group->fingerprint && group->example_error && group->topic && group->example_id);
	CHECK_INT(group->count, 2);
	++*(int *)context;
	return 0;
}

static int groups(void)
{
	int seen = 0;
	int status = postroom_groups(world.store, POSTROOM_FILTER(.topic = "a"), 10, check_group,
				     &seen, NULL);

	CHECK(status < 0 || seen == 1);
	return status;
}

TORTURE(X1_groups_without_memory_fail_cleanly, .prepare = insert_dead, .run = groups)

static int check_attempt(void *context, const postroom_attempt *attempt)
{
	CHECK(attempt->error && attempt->number == 1);
	++*(int *)context;
	return 0;
}

static int attempts(void)
{
	int seen = 0;
	int status = postroom_attempts(world.store, POSTROOM_FILTER(.id = ID), check_attempt,
				       &seen);

	CHECK(status < 0 || seen == 1);
	return status;
}

TORTURE(X1_attempts_without_memory_fail_cleanly, .prepare = insert_dead, .run = attempts)

static void check_topic(void *context, const struct pr_topic_gauges *topic)
{
	CHECK(topic->ns && topic->topic);
	++*(int *)context;
}

static int collect(void)
{
	struct pr_gauges gauges;
	int seen = 0;
	int status = world.store->ops->collect(world.store, 200, &gauges, check_topic, &seen,
					       &world.store->err);

	CHECK(status < 0 || (seen == 1 && gauges.dead == 2 && gauges.dead_since_us > 0));
	return status;
}

TORTURE(M1_collect_without_memory_fails_cleanly, .prepare = insert_dead, .run = collect)

static void check_lease(void *context, const struct pr_lease_view *lease)
{
	CHECK(lease->worker);
	++*(int *)context;
}

static int leases(void)
{
	int seen = 0;
	int status = pr_store_leases(world.store, check_lease, &seen, &world.store->err);

	CHECK(status < 0 || seen == 0);
	return status;
}

TORTURE(M1_leases_without_memory_fail_cleanly, .prepare = insert_dead, .run = leases)

static int purge_attempts(void)
{
	int64_t purged = -1;
	int status = world.store->ops->purge(
		world.store,
		&(struct pr_purge){ .of = PR_PURGE_ATTEMPTS,
				    .filter = POSTROOM_FILTER(.table = POSTROOM_OUTBOX),
				    .limit = 10 },
		&purged, &world.store->err);

	CHECK(status < 0 || purged == 0);
	return status;
}

TORTURE(X2_purge_of_attempts_without_memory_fails_cleanly, .prepare = insert_dead,
	.run = purge_attempts)
