/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that only SQLite can cause: plans, cost of a claim, sequence numbers, busy errors. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/sqlite/sqlite.h"
#pragma GCC diagnostic pop

#include <postroom/sqlite.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The connections of this test are watched from the moment they are opened. */
#define SQLITE_TEST(test_name) ON_ONE(test_name, backend_sqlite)

#define MANY_STATEMENTS 64

static struct {
	bool on;
	int64_t steps;
	int64_t scans;
	int count;
	char *statements[MANY_STATEMENTS];
} watch;

static int profile(unsigned kind, void *context, void *p, void *x)
{
	sqlite3_stmt *stmt = p;
	const char *statement = sqlite3_sql(stmt);

	(void)kind, (void)context, (void)x;
	if (!watch.on)
		return 0;
	watch.steps += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 1);
	watch.scans += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_FULLSCAN_STEP, 1);
	for (int i = 0; i < watch.count; i++) {
		if (strcmp(watch.statements[i], statement) == 0)
			return 0;
	}
	CHECK(watch.count < MANY_STATEMENTS);
	watch.statements[watch.count++] = strdup(statement);
	return 0;
}

static int watch_connection(sqlite3 *db, const char **error, const void *api)
{
	(void)error, (void)api;
	sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, profile, NULL);
	return SQLITE_OK;
}

/* A store whose statements are counted from watch_begin() on. */
static postroom_store *open_watched(void)
{
	postroom_store *watched;

	sqlite3_auto_extension((void (*)(void))watch_connection);
	watched = open_store();
	sqlite3_cancel_auto_extension((void (*)(void))watch_connection);
	return watched;
}

static void watch_begin(void)
{
	watch.on = true;
	watch.steps = watch.scans = 0;
}

static void watch_end(void)
{
	watch.on = false;
}

static void finalize_statements(void)
{
	while (watch.count > 0)
		free(watch.statements[--watch.count]);
}

/* Everything the watched statements do to the outbox must go by an index or by its key. */
static void check_plans(void)
{
	CHECK(watch.count > 0);
	for (int i = 0; i < watch.count; i++) {
		sqlite3_stmt *stmt = NULL;
		char *explain = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", watch.statements[i]);

		CHECK_INT(sqlite3_prepare_v2(app->native, explain, -1, &stmt, NULL), SQLITE_OK);
		while (sqlite3_step(stmt) == SQLITE_ROW) {
			const char *detail = (const char *)sqlite3_column_text(stmt, 3);

			CHECK_MSG(!strstr(detail, "SCAN postroom_outbox") ||
					  strstr(detail, "USING"),
				  "%s\n#   %s", watch.statements[i], detail);
			CHECK_MSG(!strstr(detail, "TEMP B-TREE") ||
					  strstr(watch.statements[i], "+seq"),
				  "%s\n#   %s", watch.statements[i], detail);
		}
		sqlite3_finalize(stmt);
		sqlite3_free(explain);
	}
	finalize_statements();
}

static void fill(const char *status, int64_t count, const char *more_columns,
		 const char *more_values)
{
	sql(app,
	    "INSERT INTO postroom_outbox (topic, payload, status%s)"
	    " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %lld)"
	    " SELECT 't', '1', '%s'%s FROM n",
	    more_columns, (long long)count, status, more_values);
}

static void fill_history(int64_t count)
{
	fill("delivered", count, ", delivered_at, attempts, claims",
	     ", 1700000000000000 + i, 1, 1");
	fill("pending", count, ", next_attempt_at, attempts, claims",
	     ", 4000000000000000 + i, 3, 3");
	fill("dead", count / 10, ", attempts, claims", ", 10, 10");
}

/* TRAPS 6 */
SQLITE_TEST(C8_claim_and_settle_use_only_index_scans)
{
	postroom_store *watched = open_watched();
	postroom_batch *batch;
	int64_t dead_letters;

	fill_history(1000);
	PUT(.topic = "t", .payload = "1");
	PUT(.topic = "t", .payload = "1");
	watch_begin();
	batch = claim_from(watched, POSTROOM_CLAIM(.topic = "t*", .ns = "default"));
	CHECK_INT(postroom_renew(watched, batch, items_of(batch, 2), 2), POSTROOM_OK);
	CHECK_INT(postroom_nack(watched, batch, items_of(batch, 2), 1, "no"), POSTROOM_OK);
	CHECK_INT(postroom_ack(watched, batch, items_of(batch, 2) + 1, 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(postroom_sweep(watched, 10, &dead_letters), POSTROOM_OK);
	watch_end();
	CHECK_INT(watch.scans, 0);
	check_plans();
	postroom_store_close(watched);
}

static int ignore_row(void *context, const postroom_row *row)
{
	(void)context, (void)row;
	return 0;
}

SQLITE_TEST(X1_dead_messages_are_listed_retried_and_purged_by_an_index)
{
	postroom_store *watched = open_watched();
	int64_t done;

	fill_history(1000);
	watch_begin();
	CHECK_INT(postroom_list(watched, POSTROOM_FILTER(.status = "dead"), 20, ignore_row, NULL),
		  POSTROOM_OK);
	CHECK_INT(postroom_retry_some(watched, POSTROOM_FILTER(0), 10, &done), POSTROOM_OK);
	CHECK_INT(done, 10);
	CHECK_INT(postroom_purge_some(watched, POSTROOM_FILTER(.status = "dead"), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 10);
	CHECK_INT(postroom_purge_some(watched,
				      POSTROOM_FILTER(.status = "delivered", .older_than_ms = 1000),
				      10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 10);
	watch_end();
	check_plans();
	postroom_store_close(watched);
}

static int64_t steps_of_a_pass(postroom_store *watched)
{
	postroom_batch *batch;

	for (int i = 0; i < 50; i++)
		PUT(.topic = "t", .payload = "1");
	watch_begin();
	batch = claim_from(watched, POSTROOM_CLAIM());
	CHECK_INT(postroom_ack(watched, batch, items_of(batch, 50), 50), POSTROOM_OK);
	postroom_batch_free(batch);
	batch = claim_from(watched, POSTROOM_CLAIM());
	items_of(batch, 0);
	postroom_batch_free(batch);
	watch_end();
	finalize_statements();
	return watch.steps;
}

static int64_t steps_of_a_scan(postroom_store *watched, const char *topic)
{
	watch_begin();
	postroom_batch_free(claim_from(watched, POSTROOM_CLAIM(.topic = topic, .limit = 1)));
	watch_end();
	finalize_statements();
	return watch.steps;
}

/* Steps of SQLite's machine instead of time: the same on every computer. */
SQLITE_TEST(C8_history_and_backoff_do_not_slow_down_a_pass)
{
	postroom_store *watched = open_watched();
	int64_t empty, full;

	steps_of_a_pass(watched);
	empty = steps_of_a_pass(watched);
	fill_history(soak(20000, 1000000));
	full = steps_of_a_pass(watched);
	CHECK(empty > 0);
	CHECK_MSG(full <= empty + empty / 10, "%lld steps with history, %lld without",
		  (long long)full, (long long)empty);
	postroom_store_close(watched);
}

static void fail_head_of_key(void)
{
	postroom_batch *batch;

	PUT(.topic = "t", .payload = "0", .key = "stuck");
	batch = CLAIM(.limit = 1, .base_delay_ms = 3600 * 1000, .max_delay_ms = 3600 * 1000);
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
}

SQLITE_TEST(D6_held_messages_do_not_slow_down_a_pass)
{
	postroom_store *watched = open_watched();
	int64_t empty, full;

	steps_of_a_pass(watched);
	empty = steps_of_a_pass(watched);
	fail_head_of_key();
	fill("pending", soak(20000, 100000), ", key", ", 'stuck'");
	steps_of_a_pass(watched); /* finds them, and holds them back */
	full = steps_of_a_pass(watched);
	CHECK_MSG(full <= empty + empty / 5, "%lld steps with held messages, %lld without",
		  (long long)full, (long long)empty);
	CHECK_INT(rows("pending"), soak(20001, 100001));
	postroom_store_close(watched);
}

/* As if it had been many more of them, and slow therefore. */
static void find_it_slow(postroom_store *watched, const struct pr_scope *scope)
{
	pr_sqlite_raise_low_water(sqlite_store(watched), &pr_table_outbox, scope, 0, 0, 3600000000);
}

SQLITE_TEST(C6_messages_of_other_sinks_do_not_slow_down_scans)
{
	const struct pr_scope own = { .topic = "own" };
	postroom_store *watched = open_watched();
	int64_t empty, full;

	steps_of_a_scan(watched, "own");
	empty = steps_of_a_scan(watched, "own");
	fill("pending", soak(20000, 1000000), "", "");
	find_it_slow(watched, &own);
	full = steps_of_a_scan(watched, "own");
	/* A few, to update the low-water mark, and none for each message. */
	CHECK_MSG(full <= empty * 2, "%lld steps beside others' messages, %lld without",
		  (long long)full, (long long)empty);
	CHECK(steps_of_a_scan(watched, "t") > full);
	postroom_store_close(watched);
}

SQLITE_TEST(C6_retried_message_below_low_water_mark_is_claimed)
{
	const struct pr_scope own = { .topic = "own" };
	struct pr_claim claim = { .scope = own, .limit = 1, .max_attempts = 10 };
	struct pr_err err = { 0 };
	postroom_receipt released = PUT(.topic = "own", .payload = "1");
	postroom_batch *batch = CLAIM(.topic = "own", .limit = 1);
	bool unfinished = false;

	find_it_slow(store, &own);
	CHECK_INT(postroom_release(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	/* New ones are found at once, and a drain waits for the other. */
	PUT(.topic = "own", .payload = "2");
	batch = CLAIM(.topic = "own", .limit = 10);
	CHECK_STR(only_item(batch)->payload, "2");
	postroom_batch_free(batch);
	CHECK_INT(store->ops->unfinished(store, &pr_table_outbox, &claim, &unfinished, &err),
		  POSTROOM_OK);
	CHECK(unfinished);
	sqlite_store(store)->sides[0].low_water_until_us = 0; /* its time has passed */
	batch = CLAIM(.topic = "own", .limit = 1);
	CHECK_STR(only_item(batch)->id, released.id);
	postroom_batch_free(batch);
}

SQLITE_TEST(D6_claims_and_settles_of_keys_use_only_index_scans)
{
	postroom_store *watched = open_watched();
	postroom_batch *batch;

	fill_history(1000);
	fail_head_of_key();
	fill("pending", 1000, ", key", ", 'stuck'");
	fill("dead", 100, ", key, state", ", 'dead' || i, 'dead'");
	PUT(.topic = "t", .payload = "1", .key = "k");
	PUT(.topic = "t", .payload = "2", .key = "k", .priority = 10);
	PUT(.topic = "t", .payload = "3", .key = "delayed", .delay_ms = 1);
	watch_begin();
	for (int i = 0; i < 3; i++) {
		size_t count = 0;
		postroom_delivery *items;

		batch = claim_from(watched, POSTROOM_CLAIM(.on_dead = POSTROOM_ON_DEAD_BLOCK));
		items = pr_batch_items(batch, &count);
		CHECK_INT(postroom_ack(watched, batch, items, count), POSTROOM_OK);
		postroom_batch_free(batch);
	}
	watch_end();
	check_plans();
	postroom_store_close(watched);
}

/* Statements written by users: they must strand no message, and block nothing forever. */
SQLITE_TEST(D6_rows_changed_by_hand_block_nothing)
{
	static const char *const by_hand[] = {
		"UPDATE postroom_outbox SET status = 'dead' WHERE payload = '0'",
		"DELETE FROM postroom_outbox WHERE payload = '0'",
		"UPDATE postroom_outbox SET status = 'delivered' WHERE payload = '0'",
		"UPDATE postroom_outbox SET next_attempt_at = 0 WHERE payload = '0'",
	};

	for (size_t i = 0; i < sizeof(by_hand) / sizeof(by_hand[0]); i++) {
		fail_head_of_key();
		PUT(.topic = "t", .payload = "1", .key = "stuck");
		postroom_batch_free(CLAIM());
		CHECK_INT(rows("pending"), 2);
		sql(app, "%s", by_hand[i]);
		for (int pass = 0; pass < 4; pass++) {
			postroom_batch *batch = CLAIM();
			size_t count = 0;
			postroom_delivery *items = pr_batch_items(batch, &count);

			CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
			postroom_batch_free(batch);
		}
		CHECK_MSG(rows("pending") == 0, "after %s", by_hand[i]);
		sql(app, "UPDATE postroom_outbox SET status = 'pending', next_attempt_at = 0"
			 " WHERE status = 'dead'");
		postroom_batch_free(CLAIM());
		CHECK_INT(rows("pending"), 0);
		sql(app, "DELETE FROM postroom_outbox");
	}
}

SQLITE_TEST(A4_settle_and_claim_that_cannot_claim_settles_nothing)
{
	postroom_batch *batch;
	struct pr_policy policy = { .max_attempts = 10, .max_error_length = 100 };
	struct pr_claim claim = {
		.limit = 1, .max_bytes = 1000, .lease_ms = 30000, .max_attempts = 10
	};
	struct postroom_batch next = { 0 };
	struct pr_err err = { 0 };
	postroom_delivery *item;

	PUT(.topic = "t", .payload = "1");
	PUT(.topic = "t", .payload = "2");
	batch = CLAIM(.limit = 1);
	item = only_item(batch);
	item->verdict = POSTROOM_DELIVERED;
	sql(app, "CREATE TRIGGER refuse BEFORE UPDATE ON postroom_outbox"
		 " WHEN NEW.status = 'processing' BEGIN SELECT RAISE(ABORT, 'not now'); END");
	CHECK(store->ops->settle_and_claim(store, &pr_table_outbox,
					   &(struct pr_settle){ item, 1, &policy }, &claim, &next,
					   &err) < 0);
	CHECK_CONTAINS(err.text, "not now");
	CHECK_INT(next.count, 0);
	CHECK_INT(rows("delivered"), 0);
	sql(app, "DROP TRIGGER refuse");
	CHECK_INT(store->ops->settle_and_claim(store, &pr_table_outbox,
					       &(struct pr_settle){ item, 1, &policy }, &claim,
					       &next, &err),
		  POSTROOM_OK);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(next.count, 1);
	pr_batch_release(&next);
	postroom_batch_free(batch);
}

SQLITE_TEST(A4_settle_and_claim_reports_lost_lease_and_continues)
{
	struct pr_policy policy = { .max_attempts = 10, .max_error_length = 100, .forget = true };
	struct pr_claim claim = {
		.limit = 10, .max_bytes = 1000, .lease_ms = 30000, .max_attempts = 10
	};
	struct postroom_batch next = { 0 };
	struct pr_err err = { 0 };
	postroom_batch *batch;
	postroom_delivery *items;

	for (int i = 0; i < 3; i++)
		PUT(.topic = "t", .payload = "1",
		    .dedupe_key = (const char *[]){ "a", "b", "c" }[i]);
	batch = CLAIM(.limit = 2);
	items = items_of(batch, 2);
	items[0].verdict = items[1].verdict = POSTROOM_DELIVERED;
	sql(app, "UPDATE postroom_outbox SET claims = claims + 1 WHERE dedupe_key = 'a'");
	CHECK_INT(store->ops->settle_and_claim(store, &pr_table_outbox,
					       &(struct pr_settle){ items, 2, &policy }, &claim,
					       &next, &err),
		  POSTROOM_LEASE_LOST);
	CHECK_INT(items[0].settled, POSTROOM_LEASE_LOST);
	CHECK_INT(items[1].settled, POSTROOM_OK);
	CHECK_INT(next.count, 1);
	CHECK_INT(rows(NULL), 2);
	CHECK_STR(text(app, "SELECT group_concat(dedupe_key) FROM postroom_dedupe"), "b");
	pr_batch_release(&next);
	postroom_batch_free(batch);
}

SQLITE_TEST(E3_remembered_key_in_a_multi_row_insert_skips_only_its_row)
{
	sql(app, "INSERT INTO postroom_dedupe VALUES ('default', 't', 'old',"
		 " '01900000-0000-7000-8000-000000000001', 1)");
	sql(app,
	    "INSERT INTO postroom_outbox (topic, payload, dedupe_key)"
	    " VALUES ('t', '1', 'new'), ('t', '2', 'old'), ('u', '3', 'old'), ('t', '4', NULL)");
	CHECK_INT(rows(NULL), 3);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE payload = '2'"), 0);
}

SQLITE_TEST(C7_lanes_are_refused_with_a_reason)
{
	enum pr_lease_kind kind = PR_LEASE_LANE;
	struct pr_err err = { 0 };

	CHECK_INT(pr_store_lease_kind(store, &kind, &kind, &err), POSTROOM_INVALID);
	CHECK_CONTAINS(err.text, "always leased by row");
	CHECK_CONTAINS(err.text, "only PostgreSQL");
	CHECK_INT(pr_store_lease_kind(store, NULL, &kind, &err), POSTROOM_OK);
	CHECK_INT(kind, PR_LEASE_ROW);
}

/* TRAPS 21 */
SQLITE_TEST(E2_sequence_number_is_never_reused)
{
	int64_t last;

	for (int i = 0; i < 3; i++)
		PUT(.topic = "t", .payload = "1");
	last = number(app, "SELECT max(seq) FROM postroom_outbox");
	sql(app, "DELETE FROM postroom_outbox");
	PUT(.topic = "t", .payload = "1");
	CHECK_INT(number(app, "SELECT seq FROM postroom_outbox"), last + 1);
}

SQLITE_TEST(X1_retry_draws_a_new_seq_that_no_other_message_gets)
{
	postroom_batch *batch;
	postroom_receipt dead = PUT(.topic = "t", .payload = "1");
	int64_t revived;

	batch = claim_one();
	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = dead.id)), POSTROOM_OK);
	postroom_batch_free(batch);
	revived = number(app, "SELECT seq FROM postroom_outbox");
	sql(app, "DELETE FROM postroom_outbox");
	PUT(.topic = "t", .payload = "1");
	CHECK_INT(number(app, "SELECT seq FROM postroom_outbox"), revived + 1);
}

/* TRAPS 3 */
SQLITE_TEST(E2_times_are_integer_microseconds_finer_than_a_second)
{
	for (int i = 0; i < 50; i++)
		PUT(.topic = "t", .payload = "1");
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox"
			      " WHERE typeof(created_at) <> 'integer'"),
		  0);
	CHECK(number(app, "SELECT count(DISTINCT created_at) FROM postroom_outbox") > 1);
	CHECK(number(app, "SELECT count(*) FROM postroom_outbox WHERE created_at %% 1000000 <> 0") >
	      0);
}

/* TRAPS 31 */
SQLITE_TEST(E1_read_transaction_that_cannot_become_writer_is_reported)
{
	struct session *other = join();
	int status;

	PUT(.topic = "t", .payload = "1");
	sql(other, "BEGIN");
	CHECK_INT(number(other, "SELECT count(*) FROM postroom_outbox"), 1);
	PUT(.topic = "t", .payload = "1");
	status = postroom_enqueue(other->box, POSTROOM_MESSAGE(.topic = "t", .payload = "1"), NULL);
	CHECK_INT(status, POSTROOM_TX_ABORTED);
	CHECK_CONTAINS(postroom_errmsg(other->box), "BEGIN IMMEDIATE");
	CHECK_INT(postroom_errcode(other->box), SQLITE_BUSY_SNAPSHOT);
	rollback(other);
	begin(other);
	CHECK_INT(
		postroom_enqueue(other->box, POSTROOM_MESSAGE(.topic = "t", .payload = "1"), NULL),
		POSTROOM_OK);
	commit(other);
	leave(other);
	CHECK_INT(rows("pending"), 3);
}

SQLITE_TEST(E1_locked_database_is_busy_and_transaction_stays_usable)
{
	struct session *other = join();

	sqlite3_busy_timeout(other->native, 0);
	begin(app);
	sql(other, "BEGIN");
	CHECK_INT(
		postroom_enqueue(other->box, POSTROOM_MESSAGE(.topic = "t", .payload = "1"), NULL),
		POSTROOM_BUSY);
	CHECK(backend->in_transaction(other));
	commit(app);
	CHECK_INT(
		postroom_enqueue(other->box, POSTROOM_MESSAGE(.topic = "t", .payload = "1"), NULL),
		POSTROOM_OK);
	commit(other);
	leave(other);
	CHECK_INT(rows("pending"), 1);
}

/* A cursor of the application's own must neither disturb an enqueue nor be disturbed by it. */
SQLITE_TEST(E1_enqueue_works_beside_an_open_cursor_of_the_caller)
{
	sqlite3_stmt *cursor = NULL;
	int seen = 0;

	sql(app, "CREATE TABLE business (n INTEGER)");
	sql(app, "INSERT INTO business VALUES (1), (2), (3)");
	begin(app);
	CHECK_INT(sqlite3_prepare_v2(app->native, "SELECT n FROM business", -1, &cursor, NULL),
		  SQLITE_OK);
	while (sqlite3_step(cursor) == SQLITE_ROW) {
		seen++;
		CHECK_INT(postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "t", .payload = "1"),
					   NULL),
			  POSTROOM_OK);
	}
	sqlite3_finalize(cursor);
	commit(app);
	CHECK_INT(seen, 3);
	CHECK_INT(rows("pending"), 3);
}

static int64_t hook_calls;

static int count_commit(void *context)
{
	(void)context;
	hook_calls++;
	return 0;
}

static void count_rollback(void *context)
{
	(void)context;
	hook_calls++;
}

SQLITE_TEST(E1_enqueue_neither_commits_nor_rolls_back)
{
	const postroom_message *good = POSTROOM_MESSAGE(.topic = "t", .payload = "1",
							.dedupe_key = "k");

	begin(app);
	sqlite3_commit_hook(app->native, count_commit, NULL);
	sqlite3_rollback_hook(app->native, count_rollback, NULL);
	CHECK_INT(postroom_enqueue(app->box, good, NULL), POSTROOM_OK);
	CHECK_INT(postroom_enqueue(app->box, good, NULL), POSTROOM_DUPLICATE);
	CHECK_INT(postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = ""), NULL),
		  POSTROOM_INVALID);
	CHECK_INT(postroom_enqueue_many(app->box, good, 1, NULL), POSTROOM_OK);
	CHECK_INT(hook_calls, 0);
	commit(app);
	CHECK_INT(hook_calls, 1);
}

SQLITE_TEST(E1_full_disk_is_reported_as_aborted_transaction)
{
	char payload[60000];
	int status;

	memset(payload, 'a', sizeof(payload));
	payload[0] = payload[sizeof(payload) - 2] = '"';
	payload[sizeof(payload) - 1] = 0;
	sql(app, "PRAGMA max_page_count = 40");
	begin(app);
	for (int i = 0; i < 20; i++) {
		status = postroom_enqueue(app->box,
					  POSTROOM_MESSAGE(.topic = "t", .payload = payload), NULL);
		if (status < 0)
			break;
	}
	CHECK_MSG(status == POSTROOM_DATABASE || status == POSTROOM_TX_ABORTED, "%d: %s", status,
		  postroom_errmsg(app->box));
	CHECK_CONTAINS(postroom_errmsg(app->box), "full");
	CHECK_INT(postroom_errcode(app->box), SQLITE_FULL);
	if (status == POSTROOM_DATABASE)
		rollback(app);
	sql(app, "PRAGMA max_page_count = 100000");
	CHECK_INT(rows(NULL), 0);
	PUT(.topic = "t", .payload = payload);
}

/* E5: jsonb would print it anew; SQLite keeps what was written. */
SQLITE_TEST(E5_payload_text_is_published_unchanged)
{
	static const char payload[] =
		" {\"b\" : "
		"1.50e+1,\"a\":\"\\u00e9\\/\xc3\xa9\",\"a\":123456789012345678901234567890}\r\n";
	postroom_batch *batch;

	PUT(.topic = "t", .payload = payload);
	batch = claim_one();
	CHECK_STR(only_item(batch)->payload, payload);
	CHECK_INT(only_item(batch)->payload_len, sizeof(payload) - 1);
	postroom_batch_free(batch);
}

SQLITE_TEST(E5_table_refuses_values_that_are_not_text)
{
	refused(app, "INSERT INTO postroom_outbox (topic, payload) VALUES (x'74', '1')");
	refused(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', x'31')");
	refused(app,
		"INSERT INTO postroom_outbox (topic, payload) VALUES ('a' || char(0) || 'b', '1')");
	refused(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1' || char(0))");
	refused(app,
		"INSERT INTO postroom_outbox (topic, payload, attempts) VALUES ('t', '1', 'x')");
	refused(app, "INSERT INTO postroom_outbox (topic, payload, headers)"
		     " VALUES ('t', '1', '{\"a\":\"\\u0000\"}')");
	CHECK_INT(rows(NULL), 0);
}

static void check_open_fails(const char *at, int expected, const char *part)
{
	postroom_store *failed = NULL;
	int status = postroom_store_open(at, &failed);

	CHECK_MSG(status == expected, "%s: %d, not %d (%s)", at, status, expected,
		  postroom_store_errmsg(failed));
	CHECK_CONTAINS(postroom_store_errmsg(failed), part);
	postroom_store_close(failed);
}

SQLITE_TEST(Z1_file_that_is_not_a_database_is_reported_and_left_alone)
{
	static const char words[] =
		"This is a letter to my grandmother, and not a database at all.";
	FILE *file = fopen("letter", "w");
	struct stat st;

	CHECK(file);
	for (int i = 0; i < 100; i++)
		fputs(words, file);
	fclose(file);
	check_open_fails("letter", POSTROOM_UNAVAILABLE, "letter");
	CHECK_INT(stat("letter", &st), 0);
	CHECK_INT(st.st_size, 100 * (sizeof(words) - 1));
	check_open_fails("sqlite:missing/dir/x.db", POSTROOM_UNAVAILABLE, "missing/dir/x.db");
	check_open_fails(".", POSTROOM_UNAVAILABLE, "\".\"");
	check_open_fails("sqlite:", POSTROOM_INVALID, "path");
	check_open_fails("oracle://host/db", POSTROOM_INVALID, "oracle");
}

SQLITE_TEST(Z1_the_store_works_in_wal_mode)
{
	CHECK_STR(text(app, "PRAGMA journal_mode"), "wal");
	CHECK_STR(text(app, "PRAGMA integrity_check"), "ok");
}

/* An application may have chosen its encoding long before it met Postroom. */
SQLITE_TEST(Z1_utf_16_database_behaves_the_same)
{
	sqlite3 *db = NULL;
	postroom_batch *batch;

	world_end();
	CHECK_INT(sqlite3_open("wide.db", &db), SQLITE_OK);
	CHECK_INT(sqlite3_exec(db, "PRAGMA encoding = 'UTF-16'; CREATE TABLE business (n)", NULL,
			       NULL, NULL),
		  SQLITE_OK);
	CHECK_INT(sqlite3_close(db), SQLITE_OK);
	snprintf(url, sizeof(url), "sqlite:wide.db");
	world_connect();
	CHECK_STR(text(app, "PRAGMA encoding"), "UTF-16le");
	CHECK_INT(PUT(.topic = "t\xc3\xa9", .payload = "\"\xc3\xa9\"", .dedupe_key = "k").duplicate,
		  0);
	CHECK_INT(PUT(.topic = "t\xc3\xa9", .payload = "\"\xc3\xa9\"", .dedupe_key = "k").duplicate,
		  1);
	CHECK_INT(PUT(.topic = "t\xc3\xa9", .payload = "\"\xc3\xa9\"", .dedupe_key = "k").differs,
		  0);
	batch = CLAIM(.topic = "t*", .ns = "default");
	CHECK_STR(only_item(batch)->topic, "t\xc3\xa9");
	CHECK_STR(only_item(batch)->payload, "\"\xc3\xa9\"");
	CHECK_INT(only_item(batch)->payload_len, 4);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
}
