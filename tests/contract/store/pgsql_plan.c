/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of claims and settles on PostgreSQL, whatever statistics the planner has. */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <stdlib.h>

/* The plans of everything that a watched store has run, one after the other. */
static struct pr_buf plans;
static int plan_count;

static void take_plan(void *context, const PGresult *notice)
{
	const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);

	(void)context;
	if (!strstr(message, "Query Text:"))
		return;
	pr_buf_puts(&plans, message);
	pr_buf_puts(&plans, "\n--\n");
	plan_count++;
}

/* The server reports the plan that was used, also a cached one, not a hypothetical one. */
#define WATCH                                                                                      \
	"-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 "            \
	"-c auto_explain.log_level=notice -c auto_explain.log_analyze=on "                         \
	"-c auto_explain.log_timing=off"

static postroom_store *open_watched(void)
{
	char watched_url[400];
	postroom_store *watched;

	url_with_options(WATCH, watched_url);
	watched = open_at(watched_url);
	PQsetNoticeReceiver(pgsql_store(watched)->conn, take_plan, NULL);
	pr_buf_reset(&plans);
	plan_count = 0;
	return watched;
}

static void close_watched(postroom_store *watched)
{
	postroom_store_close(watched);
	pr_buf_release(&plans);
}

static void check_plans(int at_least)
{
	const char *text = pr_buf_text(&plans);

	CHECK(!plans.failed);
	CHECK_MSG(plan_count >= at_least, "%d plans, not %d", plan_count, at_least);
	CHECK_MSG(!strstr(text, "Seq Scan on postroom_outbox"), "%s", text);
	pr_buf_reset(&plans);
	plan_count = 0;
}

static void fill_delivered(int64_t count)
{
	fill(count, ", status, delivered_at, attempts, claims",
	     ", 'delivered', now() - interval '1 day', 1, 1");
}

static void fill_backoff(int64_t count)
{
	fill(count, ", next_attempt_at, attempts, claims, state",
	     ", now() + interval '1 day', 3, 3, 'scheduled'");
}

static void fill_dead(int64_t count)
{
	fill(count, ", status, attempts, claims", ", 'dead', 10, 10");
}

static int ignore_row(void *context, const postroom_row *row)
{
	(void)context, (void)row;
	return 0;
}

/* Often enough that the server goes over from plans of the moment to a general one. */
#define PASSES 8
#define BATCH 500

static void make_passes(postroom_store *watched, const char *topic)
{
	for (int i = 0; i < PASSES; i++) {
		/* On a slow machine too, no failed message is due again before the last pass. */
		postroom_batch *batch = claim_from(
			watched, POSTROOM_CLAIM(.limit = BATCH, .topic = topic,
						.base_delay_ms = 3600000, .max_delay_ms = 3600000));
		size_t count = 0;
		postroom_delivery *items = pr_batch_items(batch, &count);
		int64_t done;

		/* From where the last one ended in the lanes there may be less. */
		CHECK(pgsql_store(watched)->kind == PR_LEASE_ROW ? count == BATCH
								 : count > BATCH / 2);
		CHECK_INT(postroom_renew(watched, batch, items, count), POSTROOM_OK);
		CHECK_INT(postroom_nack(watched, batch, items, 10, "no"), POSTROOM_OK);
		CHECK_INT(postroom_ack(watched, batch, items + 10, count - 10), POSTROOM_OK);
		postroom_batch_free(batch);
		CHECK_INT(postroom_sweep(watched, 10, &done), POSTROOM_OK);
	}
}

static int times(const char *part)
{
	int count = 0;

	for (const char *at = pr_buf_text(&plans); (at = strstr(at, part)); at++)
		count++;
	return count;
}

/* No step of any plan looks at more rows than that. */
static void check_short(const char *part, long most)
{
	for (const char *at = pr_buf_text(&plans); (at = strstr(at, part)); at++)
		CHECK_MSG(strtol(at + strlen(part), NULL, 10) <= most, "%s", pr_buf_text(&plans));
}

/* How many steps have passed over more than that. */
static int long_passes(long fast_path)
{
	static const char part[] = "Rows Removed by Filter: ";
	int count = 0;

	for (const char *at = pr_buf_text(&plans); (at = strstr(at, part)); at++)
		count += strtol(at + strlen(part), NULL, 10) > fast_path;
	return count;
}

/*
 * TRAPS 6 and 7: the same plans whatever the statistics say. Expired and due
 * claim, renew, nack, ack and sweep, over and over.
 */
static void check_passes(const char *topic)
{
	postroom_store *watched = open_watched();
	long most;

	/* On a slow machine, scans for low-water marks would be among them. */
	pgsql_store(watched)->raise_due_us = INT64_MAX;
	make_passes(watched, topic);
	if (pgsql_store(watched)->kind == PR_LEASE_ROW) {
		CHECK_MSG(times("Index Scan using postroom_outbox_unkeyed ") == PASSES, "%s",
			  pr_buf_text(&plans));
		CHECK_MSG(times("Index Scan using postroom_outbox_pkey ") == PASSES * 3, "%s",
			  pr_buf_text(&plans));
	}
	/* By lane, messages in flight are beside failed ones. */
	most = pgsql_store(watched)->kind == PR_LEASE_ROW ? BATCH : 2 * BATCH;
	check_short("actual rows=", most);
	check_short("Rows Removed by Filter: ", most);
	check_short("Rows Removed by Join Filter: ", most);
	check_plans(PASSES * 6);
	close_watched(watched);
}

#define BY_EITHER(test_name)                                                                       \
	static void test_name(void);                                                               \
	REGISTER_FOR(test_name, backend_pgsql)                                                     \
	REGISTER_FOR(test_name, backend_pgsql_lane)                                                \
	static void test_name(void)

BY_EITHER(C8_claims_use_indexes_without_statistics)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(soak(20000, 200000), "", "");
	check_passes(NULL);
	check_passes("t*");
}

BY_EITHER(C8_claims_use_indexes_with_statistics_of_an_empty_table)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(100, "", "");
	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "VACUUM ANALYZE postroom_outbox");
	fill(soak(20000, 200000), "", "");
	check_passes(NULL);
	check_passes("t*");
}

/* A quiet day, then a flood: by the statistics, a few of many are pending. */
BY_EITHER(C8_claims_use_indexes_with_statistics_of_a_small_backlog)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill_delivered(soak(20000, 200000));
	fill(100, "", "");
	sql(app, "VACUUM ANALYZE postroom_outbox");
	fill(soak(20000, 200000), "", "");
	check_passes(NULL);
	check_passes("t*");
}

/* The statistics after a quiet night: everything is delivered. */
BY_EITHER(C8_claims_use_indexes_beside_history_and_backoff)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill_delivered(soak(20000, 1000000));
	fill_backoff(soak(20000, 1000000));
	fill_dead(1000);
	sql(app, "VACUUM ANALYZE postroom_outbox");
	fill(20000, "", "");
	check_passes(NULL);
	check_passes("t*");
	sql(app, "ANALYZE postroom_outbox");
	check_passes(NULL);
	check_passes("t*");
}

/* Statistics that call every row pending. */
BY_EITHER(C8_claims_use_indexes_with_statistics_of_a_full_backlog)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(soak(20000, 200000), "", "");
	sql(app, "VACUUM ANALYZE postroom_outbox");
	check_passes(NULL);
	check_passes("t*");
	sql(app, "UPDATE postroom_outbox SET status = 'delivered', delivered_at = now()");
	fill(10000, "", "");
	check_passes(NULL);
	check_passes("t*");
}

/* Beside what was delivered before the lease changed. */
LANE_TEST(C8_message_with_row_lease_is_deleted_by_id)
{
	postroom_store *watched;
	postroom_batch *batch;

	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(20000, "", "");
	sql(app, "VACUUM ANALYZE postroom_outbox");
	sql(app, "UPDATE postroom_outbox SET status = 'delivered', delivered_at = now()");
	fill(10, ", attempts, claims, state", ", 1, 1, 'scheduled'");
	watched = open_watched();
	batch = claim_from(watched, POSTROOM_CLAIM(.limit = 10));
	CHECK_INT(postroom_ack(watched, batch, items_of(batch, 10), 10), POSTROOM_OK);
	postroom_batch_free(batch);
	check_short("Rows Removed by Filter: ", BATCH);
	check_plans(2);
	close_watched(watched);
}

PGSQL_TEST(X1_dead_messages_are_listed_retried_and_purged_by_an_index)
{
	postroom_store *watched;
	int64_t done;

	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill_delivered(soak(20000, 200000));
	fill_dead(2000);
	watched = open_watched();
	CHECK_INT(postroom_list(watched, POSTROOM_FILTER(.status = "dead"), 20, ignore_row, NULL),
		  POSTROOM_OK);
	CHECK_INT(postroom_retry_some(watched, POSTROOM_FILTER(0), BATCH, &done), POSTROOM_OK);
	CHECK_INT(done, BATCH);
	check_plans(2);
	CHECK_INT(postroom_purge_some(watched, POSTROOM_FILTER(.status = "dead"), BATCH, &done),
		  POSTROOM_OK);
	CHECK_INT(done, BATCH);
	CHECK_INT(postroom_purge_some(watched,
				      POSTROOM_FILTER(.status = "delivered", .older_than_ms = 1000),
				      BATCH, &done),
		  POSTROOM_OK);
	CHECK_INT(done, BATCH);
	check_short("actual rows=", BATCH);
	check_plans(2);
	close_watched(watched);
}

/* From a day ago, and without statistics. */
LANE_TEST(X2_the_history_is_purged_by_indexes)
{
	postroom_store *watched;
	int64_t done;

	sql(app, "ALTER TABLE postroom_history SET (autovacuum_enabled = off)");
	sql(app,
	    "INSERT INTO postroom_history (id, namespace, topic, payload, delivered_at) "
	    "SELECT postroom_uuid(), 'default', 't', '1', now() - interval '1 day' + "
	    "i / 100 * interval '1 second' FROM generate_series(1, %ld) AS i",
	    (long)soak(20000, 200000));
	watched = open_watched();
	for (int i = 0; i < PASSES; i++) {
		CHECK_INT(postroom_purge_some(
				  watched,
				  POSTROOM_FILTER(.status = "delivered", .older_than_ms = 1000),
				  BATCH, &done),
			  POSTROOM_OK);
		CHECK_INT(done, BATCH);
	}
	CHECK_MSG(!strstr(pr_buf_text(&plans), "Seq Scan on postroom_history"), "%s",
		  pr_buf_text(&plans));
	check_short("actual rows=", BATCH);
	check_short("Rows Removed by Filter: ", BATCH);
	check_plans(PASSES * 2);
	close_watched(watched);
}

/* The application's connection; the plans of what its box does. */
static void watch_session(struct session *watched)
{
	char watched_url[400];

	url_with_options(WATCH, watched_url);
	backend->connect(watched, watched_url);
	PQsetNoticeReceiver(conn_of(watched), take_plan, NULL);
}

PGSQL_TEST(E3_duplicates_are_found_by_an_index)
{
	static char names[BATCH][16];
	static postroom_message many[BATCH];
	struct session watched = { 0 };

	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(soak(20000, 200000), ", dedupe_key", ", 'k-' || i");
	watch_session(&watched);
	for (int i = 0; i < BATCH; i++) {
		snprintf(names[i], sizeof(names[i]), "k-%d", 7 * i + 1);
		many[i] = *POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = names[i]);
	}
	begin(&watched);
	CHECK_INT(postroom_enqueue(watched.box, &many[0], NULL), POSTROOM_DUPLICATE);
	CHECK_INT(postroom_enqueue_many(watched.box, many, BATCH, NULL), POSTROOM_OK);
	commit(&watched);
	check_short("actual rows=", BATCH);
	check_plans(6);
	pr_buf_release(&plans);
	backend->disconnect(&watched);
}

#define OTHERS 20000
/* All lanes are fewer, and the share of each is more. */
#define FEW 100

static void fill_for_others(void)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	/* By row, the last second is scanned repeatedly. */
	fill(OTHERS, ", key, created_at, next_attempt_at",
	     ", CASE WHEN i % 2 = 0 THEN i::text END, now() - interval '1 hour', "
	     "now() - interval '1 hour'");
}

static size_t take_own(postroom_store *watched)
{
	postroom_batch *batch = claim_from(watched, POSTROOM_CLAIM(.limit = 10, .topic = "own"));
	size_t count = 0;
	postroom_delivery *items = pr_batch_items(batch, &count);

	if (count > 0)
		CHECK_INT(postroom_ack(watched, batch, items, count), POSTROOM_OK);
	postroom_batch_free(batch);
	return count;
}

/* Also in lanes that were never claimed. indexes: how many indexes contain the messages. */
static void check_passed_once(int indexes)
{
	const struct pr_scope scope_low_water = { .topic = "own" };
	struct pr_err err = { 0 };
	postroom_store *watched;

	fill_for_others();
	sql(app,
	    "INSERT INTO postroom_outbox (topic, key, payload) SELECT 'own', "
	    "CASE WHEN i %% 2 = 0 THEN i::text END, '1' FROM generate_series(1, %d) AS i",
	    10 * PASSES);
	watched = open_watched();
	CHECK(take_own(watched) > 0);
	CHECK_MSG(long_passes(FEW) == indexes, "%s", pr_buf_text(&plans));
	/* However long it takes. */
	pgsql_store(watched)->scope_low_water_until_us = INT64_MAX;
	pr_buf_reset(&plans);
	while (take_own(watched) > 0)
		continue;
	check_short("Rows Removed by Join Filter: ", BATCH);
	CHECK_MSG(long_passes(FEW) == 0, "%s", pr_buf_text(&plans));
	check_plans(PASSES * 2);
	CHECK_INT(watched->ops->wait(watched, &pr_table_outbox, &scope_low_water, 20, &err),
		  POSTROOM_OK);
	CHECK_MSG(long_passes(FEW) == 0, "%s", pr_buf_text(&plans));
	CHECK_MSG(times("Rows Removed by Join Filter: ") == 0, "%s", pr_buf_text(&plans));
	close_watched(watched);
}

LANE_TEST(C6_messages_of_other_sinks_are_skipped_from_the_first_scan_by_lane)
{
	check_passed_once(1);
}

PGSQL_TEST(C6_messages_of_other_sinks_are_skipped_from_the_first_scan_by_row)
{
	check_passed_once(2);
}

/* The scan for unrouted messages skips all routed ones. */
static void check_read_by_page(int indexes)
{
	static const struct pr_rule rule = { .topic = "t", .mine = true };
	struct pr_unrouted found;
	struct pr_err err = { 0 };
	postroom_store *watched = open_watched();

	pgsql_store(watched)->rules = (struct pr_rules){ &rule, 1 };
	fill_for_others();
	PUT(.topic = "lost", .payload = "1");
	CHECK_INT(pr_store_unrouted(watched, &pr_table_outbox, &(struct pr_scope){ 0 }, 10, &found,
				    &err),
		  POSTROOM_OK);
	CHECK_INT(found.count, 1);
	CHECK_MSG(long_passes(FEW) == indexes, "%s", pr_buf_text(&plans));
	CHECK_MSG(times("Bitmap Heap Scan on postroom_outbox") == indexes + 2, "%s",
		  pr_buf_text(&plans));
	check_plans(1);
	close_watched(watched);
}

LANE_TEST(C6_unrouted_messages_are_counted_page_by_page_by_lane)
{
	check_read_by_page(1);
}

PGSQL_TEST(C6_unrouted_messages_are_counted_page_by_page_by_row)
{
	check_read_by_page(2);
}
