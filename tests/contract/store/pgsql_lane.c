/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of lanes, and the change from one kind of lease to the other. */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <pthread.h>

static enum pr_lease_kind change_to(enum pr_lease_kind kind)
{
	struct postroom_store *changed = NULL;
	struct pr_err err = { 0 };

	CHECK_MSG(pr_store_open(&(struct pr_store_config){ .url = url }, &changed, &err) >= 0, "%s",
		  err.text);
	CHECK_MSG(pr_store_lease_kind(changed, &kind, &kind, &err) >= 0, "%s", err.text);
	pr_store_close(changed);
	return kind;
}

/* The number of claimable messages; they are released again. */
static size_t claimable(void)
{
	postroom_store *other = open_store();
	postroom_batch *batch = claim_from(other, POSTROOM_CLAIM(0));
	size_t count = 0;
	postroom_delivery *items = pr_batch_items(batch, &count);

	if (count > 0)
		CHECK_INT(postroom_release(other, batch, items, count), POSTROOM_OK);
	postroom_batch_free(batch);
	postroom_store_close(other);
	return count;
}

LANE_TEST(C7_claim_of_a_lane_writes_no_message)
{
	PGresult *same;

	put_some(3, "a");
	sql(app, "CREATE TABLE places AS SELECT ctid AS place, id FROM postroom_outbox");
	postroom_batch_free(CLAIM());
	same = PQexec(conn_of(app), "SELECT count(*) FROM places AS p JOIN postroom_outbox AS o "
				    "ON o.id = p.id AND o.ctid = p.place");
	CHECK_STR(PQgetvalue(same, 0, 0), "3");
	PQclear(same);
	CHECK_INT(rows("processing"), 3);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_messages WHERE locked_by IS NOT NULL "
			      "AND locked_until > clock_timestamp() AND attempts = 1"),
		  3);
}

LANE_TEST(C7_takeover_does_not_count_messages_settled_before)
{
	postroom_batch *batch;
	int64_t dead_letters;

	put_some(4, "a");
	batch = CLAIM();
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 4), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(rows("processing"), 3);
	EXPIRE_LEASES();
	for (int i = 0; i < 3; i++)
		CHECK_INT(postroom_sweep(store, 10, &dead_letters), POSTROOM_OK);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE status = 'processing' "
			      "AND attempts = 1 AND claims = 1"),
		  3);
}

/* The rest of the lane is still this one's. */
LANE_TEST(A2_second_settle_unblocks_nothing_else)
{
	postroom_batch *batch;
	postroom_delivery *items;

	put_some(3, "a");
	batch = CLAIM();
	items = items_of(batch, 3);
	CHECK_INT(postroom_ack(store, batch, items, 1), POSTROOM_OK);
	CHECK_INT(postroom_ack(store, batch, items, 1), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_ack(store, batch, items + 1, 1), POSTROOM_OK);
	CHECK_INT(claimable(), 0);
	CHECK_INT(postroom_ack(store, batch, items + 2, 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(rows("delivered"), 3);
}

/* A claim reads a limited number of index rows per lane; messages in flight are still in the index. */
LANE_TEST(D6_messages_in_flight_elsewhere_hide_no_free_lane)
{
	const struct pr_claim claim = {
		.limit = 40, .max_bytes = 1 << 20, .lease_ms = 30000, .max_attempts = 10
	};
	postroom_store *other = open_store();
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };

	/* A scan of all lanes, so that the next one may be the fast path. */
	CHECK_INT(pr_store_claim(other, &pr_table_outbox, &claim, &batch, &err), POSTROOM_OK);
	sql(app, "INSERT INTO postroom_outbox (seq, topic, payload) "
		 "SELECT n * 64, 't', '1' FROM generate_series(1, 40) AS n");
	postroom_batch_free(CLAIM(.limit = 40));
	CHECK_INT(rows("processing"), 40);
	sql(app, "INSERT INTO postroom_outbox (seq, topic, payload) VALUES (62, 't', '1')");
	CHECK(pgsql_store(other)->fast_path);
	CHECK_INT(pr_store_claim(other, &pr_table_outbox, &claim, &batch, &err), POSTROOM_OK);
	CHECK(is_prepared(other, &pr_sql_claim_lanes_fast));
	CHECK_INT(batch.count, 1);
	CHECK_INT(batch.items[0].seq, 62);
	pr_batch_release(&batch);
	postroom_store_close(other);
}

/* Scheduled messages are always left for the claims by row; ready ones are in lanes now. */
PGSQL_TEST(C7_new_lease_kind_is_detected_while_only_retries_are_claimed)
{
	const struct pr_policy policy = { .max_attempts = 10 };
	struct pr_claim claim = {
		.limit = 10, .max_bytes = 1 << 20, .lease_ms = 30000, .max_attempts = 10
	};
	struct postroom_batch first = { 0 }, next = { 0 };
	struct pr_err err = { 0 };

	sql(app, "INSERT INTO postroom_outbox (topic, payload, state) "
		 "SELECT 'again', '1', 'scheduled' FROM generate_series(1, 40)");
	CHECK_MSG(pr_store_claim(store, &pr_table_outbox, &claim, &first, &err) >= 0, "%s",
		  err.text);
	CHECK_INT(first.count, 10);
	CHECK_INT(change_to(PR_LEASE_LANE), PR_LEASE_LANE);
	for (size_t i = 0; i < first.count; i++)
		first.items[i].verdict = POSTROOM_DELIVERED;
	claim.reclaim_expired = true;
	CHECK_MSG(store->ops->settle_and_claim(
			  store, &pr_table_outbox,
			  &(struct pr_settle){ first.items, first.count, &policy }, &claim, &next,
			  &err) >= 0,
		  "%s", err.text);
	CHECK_INT(pgsql_store(store)->kind, PR_LEASE_LANE);
	pr_batch_release(&first);
	pr_batch_release(&next);
}

/* However large the backlog, no worker keeps all lanes for long. */
LANE_TEST(D6_joining_worker_gets_a_share_of_the_lanes)
{
	enum { WORKERS = 12, LIMIT = 64 };
	postroom_store *workers[WORKERS];
	postroom_batch *batches[WORKERS];
	size_t idle = 0;

	sql(app, "INSERT INTO postroom_outbox (topic, payload, key) "
		 "SELECT 't', '1', 'k' || n FROM generate_series(1, 8000) AS n");
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = open_store();
		batches[i] = claim_from(workers[i], POSTROOM_CLAIM(.limit = LIMIT));
	}
	for (int round = 0; round < 6; round++) {
		idle = 0;
		for (int i = 0; i < WORKERS; i++) {
			size_t count = 0;
			postroom_delivery *items = pr_batch_items(batches[i], &count);

			if (count > 0)
				CHECK_INT(postroom_ack(workers[i], batches[i], items, count),
					  POSTROOM_OK);
			postroom_batch_free(batches[i]);
			batches[i] = claim_from(workers[i], POSTROOM_CLAIM(.limit = LIMIT));
			pr_batch_items(batches[i], &count);
			idle += count == 0;
		}
	}
	CHECK_INT(idle, 0);
	for (int i = 0; i < WORKERS; i++) {
		postroom_batch_free(batches[i]);
		postroom_store_close(workers[i]);
	}
}

PGSQL_TEST(C7_row_leases_survive_the_change_to_lanes)
{
	postroom_batch *batch;

	put_some(2, "a");
	put_some(2, NULL);
	batch = CLAIM();
	CHECK_INT(change_to(PR_LEASE_LANE), PR_LEASE_LANE);
	put_some(1, "a");
	CHECK_INT(claimable(), 0);
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 4), 4), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(claimable(), 1);
}

static void *change_to_rows(void *context)
{
	(void)context;
	CHECK_INT(change_to(PR_LEASE_ROW), PR_LEASE_ROW);
	return NULL;
}

/* The messages of a lane stay with their owner, whatever the others do by then. */
LANE_TEST(C7_leased_lane_survives_the_change_to_row_leases)
{
	postroom_batch *batch;
	pthread_t thread;

	put_some(2, "a");
	put_some(2, NULL);
	batch = CLAIM();
	CHECK_INT(pthread_create(&thread, NULL, change_to_rows, NULL), 0);
	while (number(app, "SELECT count(*) FROM postroom_lanes WHERE lease = 'row'") == 0)
		continue;
	put_some(1, "b");
	CHECK_INT(claimable(), 1);
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 4), 4), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_STR(text(app, "SELECT to_regclass('postroom_outbox_lane')"), "(null)");
	CHECK_INT(rows("delivered"), 4);
}

/* One of them would drop the indexes that the other has made. */
LANE_TEST(C7_second_concurrent_change_of_lease_kind_is_refused)
{
	enum pr_lease_kind kind = PR_LEASE_LANE;
	struct pr_err err = { 0 };
	postroom_batch *batch;
	pthread_t thread;

	put_some(2, "a");
	batch = CLAIM();
	CHECK_INT(pthread_create(&thread, NULL, change_to_rows, NULL), 0);
	while (number(app, "SELECT count(*) FROM postroom_lanes WHERE lease = 'row'") == 0)
		continue;
	CHECK_INT(pr_store_lease_kind(store, &kind, &kind, &err), POSTROOM_BUSY);
	CHECK_CONTAINS(err.text, "another process is changing it");
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 2), 2), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_INT(change_to(PR_LEASE_LANE), PR_LEASE_LANE);
}

/* Behind a pooler sessions cannot be locked out: then the claim indexes must at least exist in the end. */
PGSQL_TEST(C7_change_of_lease_kind_creates_missing_indexes)
{
	struct pr_err err = { 0 };
	enum pr_lease_kind kind = PR_LEASE_LANE;

	sql(app, "CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS "
		 "'BEGIN DROP INDEX postroom_outbox_lane; RETURN NULL; END'");
	sql(app, "CREATE TRIGGER drop_it AFTER UPDATE ON postroom_lanes "
		 "FOR EACH STATEMENT EXECUTE FUNCTION drop_it()");
	CHECK_MSG(pr_store_lease_kind(store, &kind, &kind, &err) >= 0, "%s", err.text);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_index WHERE indisvalid AND "
			      "indexrelid = to_regclass('postroom_outbox_lane')"),
		  1);
}

/* Stopped halfway, it is finished by doing it again. */
PGSQL_TEST(C7_interrupted_change_of_lease_kind_is_repeated)
{
	sql(app, "CREATE INDEX postroom_outbox_lane ON postroom_outbox (seq) "
		 "WHERE status = 'pending' AND state = 'ready'");
	sql(app, "UPDATE pg_index SET indisvalid = false "
		 "WHERE indexrelid = 'postroom_outbox_lane'::regclass");
	CHECK_INT(change_to(PR_LEASE_LANE), PR_LEASE_LANE);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_index WHERE indisvalid AND "
			      "indexrelid = 'postroom_outbox_lane'::regclass"),
		  1);
	CHECK_STR(text(app, "SELECT to_regclass('postroom_outbox_unkeyed')"), "(null)");
	CHECK_INT(change_to(PR_LEASE_ROW), PR_LEASE_ROW);
	put_some(1, "a");
	CHECK_INT(claimable(), 1);
}

static const char *room(void)
{
	return text(app, "SELECT substring(reloptions::text FROM 'fillfactor=([0-9]+)') "
			 "FROM pg_class WHERE oid = 'postroom_outbox'::regclass");
}

/* Half a page for the versions to come is half of all reading and writing where there are none. */
PGSQL_TEST(C7_fillfactor_is_reduced_only_for_row_leases)
{
	CHECK_STR(room(), "50");
	CHECK_INT(change_to(PR_LEASE_LANE), PR_LEASE_LANE);
	CHECK_STR(room(), "100");
	CHECK_INT(change_to(PR_LEASE_ROW), PR_LEASE_ROW);
	CHECK_STR(room(), "50");
}

static const struct pr_claim some = {
	.limit = 10, .max_bytes = 1 << 20, .lease_ms = 30000, .max_attempts = 10
};

struct claimer {
	postroom_store *by;
	struct postroom_batch batch;
	pthread_t thread;
};

static void *claim_some(void *context)
{
	struct claimer *claimer = context;
	struct pr_err err = { 0 };

	CHECK_MSG(pr_store_claim(claimer->by, &pr_table_outbox, &some, &claimer->batch, &err) >= 0,
		  "%s", err.text);
	return NULL;
}

static void make_odd(void)
{
	sql(app, "DROP SCHEMA IF EXISTS odd CASCADE");
	sql(app, "CREATE SCHEMA odd");
}

#define WAIT "SELECT pg_advisory_xact_lock_shared(1); "

/* The functions of the schema odd come before the database's own, and may wait for app. */
static void open_odd(struct claimer *claimer)
{
	struct pr_err err = { 0 };
	char odd_url[400];

	url_with_options("-c search_path=odd,pg_catalog", odd_url);
	CHECK_MSG(pr_store_open(&(struct pr_store_config){ .url = odd_url, .schema = "public" },
				&claimer->by, &err) >= 0,
		  "%s", err.text);
	/* One-time work is done here. */
	claim_some(claimer);
	CHECK_INT(claimer->batch.count, 0);
	pgsql_store(claimer->by)->raise_due_us = INT64_MAX;
}

/* Returns when this path of a claim has its snapshot, and waits in one of the functions. */
static void start_claimer(struct claimer *claimer, enum pgsql_path path)
{
	struct pgsql_store *pgsql = pgsql_store(claimer->by);
	struct session *eye = join();

	for (int i = 0; i < PG_ROTATING_PATHS; i++)
		pgsql->path_state[i].skip = i != (int)path;
	sql(app, "SELECT pg_advisory_lock(1)");
	CHECK_INT(pthread_create(&claimer->thread, NULL, claim_some, claimer), 0);
	await_blocked_pid(eye, PQbackendPID(pgsql->conn));
	leave(eye);
}

static size_t end_claimer(struct claimer *claimer)
{
	size_t count;

	sql(app, "SELECT pg_advisory_unlock(1)");
	CHECK_INT(pthread_join(claimer->thread, NULL), 0);
	count = claimer->batch.count;
	pr_batch_release(&claimer->batch);
	pr_store_close(claimer->by);
	return count;
}

/* The row is unchanged but has another ctid: a session that locks the old one cannot claim it. */
TEST_ON_PGSQL(D6_message_released_meanwhile_is_not_overtaken)
{
	struct claimer claimer = { 0 };
	postroom_batch *batch;

	make_odd();
	sql(app, "CREATE FUNCTION odd.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
		 "'" WAIT "SELECT pg_catalog.clock_timestamp()'");
	open_odd(&claimer);
	put_some(2, "a");
	sql(app, "UPDATE postroom_outbox SET state = 'scheduled'");
	start_claimer(&claimer, PG_PATH_SCHEDULED);
	batch = CLAIM(.limit = 1);
	CHECK_INT(only_item(batch)->seq, 1);
	CHECK_INT(postroom_release(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(end_claimer(&claimer), 0);
	CHECK_INT(claimable(), 2);
}

/* The claim of scheduled messages begins before the other one, and ends after it. */
static void hold_meanwhile(const struct pgsql_sql *scan)
{
	struct claimer claimer = { 0 };

	make_odd();
	sql(app, "CREATE FUNCTION odd.unnest(smallint[]) RETURNS SETOF smallint LANGUAGE sql AS "
		 "'" WAIT "SELECT pg_catalog.unnest($1)'");
	sql(app, "CREATE FUNCTION odd.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
		 "'" WAIT "SELECT pg_catalog.clock_timestamp() + interval ''1 hour'' '");
	open_odd(&claimer);
	pgsql_store(claimer.by)->no_blockers = scan != &pr_sql_claim_lanes;
	pgsql_store(claimer.by)->fast_path = scan == &pr_sql_claim_lanes_fast;
	sql(app, "INSERT INTO postroom_outbox (topic, payload, key, next_attempt_at) "
		 "VALUES ('t', '1', 'a', now() + interval '30 minutes')");
	start_claimer(&claimer, PG_PATH_LANES);
	CHECK_INT(claimable(), 0);
	CHECK(is_prepared(claimer.by, scan));
	/* The others may have been, when it was opened. */
	CHECK_INT(is_prepared(claimer.by, &pr_sql_claim_lanes_unblocked),
		  scan == &pr_sql_claim_lanes_unblocked);
	CHECK_INT(is_prepared(claimer.by, &pr_sql_claim_lanes_fast), scan == &pr_sql_claim_lanes_fast);
	CHECK_INT(end_claimer(&claimer), 0);
}

PGSQL_TEST(D6_message_held_meanwhile_is_not_claimed)
{
	hold_meanwhile(&pr_sql_claim_lanes_by_row);
}

LANE_TEST(D6_message_held_meanwhile_is_not_claimed_from_a_leased_lane)
{
	hold_meanwhile(&pr_sql_claim_lanes);
}

LANE_TEST(D6_message_held_meanwhile_is_not_claimed_by_scan_without_blockers)
{
	hold_meanwhile(&pr_sql_claim_lanes_unblocked);
}

LANE_TEST(D6_message_held_meanwhile_is_not_claimed_by_fast_path)
{
	hold_meanwhile(&pr_sql_claim_lanes_fast);
}

static size_t claim_from_few(void)
{
	struct postroom_batch batch = { 0 };
	struct pgsql_store *scope_low_water = pgsql_store(store);
	struct pr_err err = { 0 };
	size_t count;

	scope_low_water->fast_path = scope_low_water->no_blockers = scope_low_water->low_water.len >
								    0;
	scope_low_water->blockers_until_us = 0;
	CHECK_MSG(pr_store_claim(store, &pr_table_outbox, &some, &batch, &err) >= 0, "%s",
		  err.text);
	count = batch.count;
	pr_batch_release(&batch);
	return count;
}

/* If there is more than a fast path expects, it is claimed without another wait. */
LANE_TEST(D3_fast_path_fills_a_batch_if_it_finds_enough)
{
	CHECK_INT(claim_from_few(), 0); /* a scan of all lanes, for the low-water marks */
	put_some(10, NULL);
	CHECK_INT(claim_from_few(), 10);
	CHECK(!pgsql_store(store)->blocked);
	sql(app, "TRUNCATE postroom_outbox");
	sql(app,
	    "UPDATE postroom_lanes SET locked_by = NULL, locked_until = NULL, in_flight = NULL");
	put_some(30, NULL);
	CHECK_INT(claim_from_few(), 10);
	CHECK_INT(claim_from_few(), 10);
	CHECK(is_prepared(store, &pr_sql_claim_lanes_fast));
}

LANE_TEST(D8_fast_path_respects_the_byte_limit)
{
	CHECK_INT(claim_from_few(), 0);
	sql(app,
	    "INSERT INTO postroom_outbox (topic, payload, body) "
	    "SELECT 't', 'null', decode(repeat('00', 300000), 'hex') FROM generate_series(1, 5)");
	CHECK_INT(claim_from_few(), 3);
	CHECK(is_prepared(store, &pr_sql_claim_lanes_fast));
}

/* Its row is not where it was seen: then it is leased all the same, or left. */
LANE_TEST(C3_fast_path_claims_only_leased_lanes_if_a_lane_is_rewritten)
{
	struct claimer claimer = { 0 };
	size_t count;

	make_odd();
	sql(app, "CREATE FUNCTION odd.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
		 "'" WAIT "SELECT pg_catalog.clock_timestamp()'");
	open_odd(&claimer);
	pgsql_store(claimer.by)->no_blockers = pgsql_store(claimer.by)->fast_path = true;
	put_some(4, NULL);
	start_claimer(&claimer, PG_PATH_LANES);
	CHECK(is_prepared(claimer.by, &pr_sql_claim_lanes_fast));
	sql(app, "UPDATE postroom_lanes SET low_water_seq = low_water_seq WHERE lane %% 2 = 0");
	count = end_claimer(&claimer);
	CHECK(count >= 2);
	CHECK_INT(number(app, "(SELECT sum(cardinality(in_flight)) FROM postroom_lanes)"), count);
}
