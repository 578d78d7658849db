/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Low-water marks beside transactions that stay open: they rise past them, and a claim
 * finds their messages as soon as its snapshot shows them.
 */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/statements.h"
#pragma GCC diagnostic pop

#include <stdlib.h>
#include <string.h>

/* One claim, which first looks whether marks may rise, however long ago the last look was. */
static postroom_batch *claim_and_raise(int limit)
{
	pgsql_store(store)->scan_us = 1000000;
	pgsql_store(store)->raise_due_us = 0;
	return CLAIM(.limit = limit);
}

/* Delivers everything, and lets the marks rise over it. */
static void settle_all(int64_t count)
{
	size_t claimed;
	int empty = 0;

	sql(app, "INSERT INTO postroom_outbox (topic, payload) SELECT 't', '1' "
		 "FROM generate_series(1, %lld)", (long long)count);
	do {
		postroom_batch *batch = claim_and_raise(5000);
		postroom_delivery *items = pr_batch_items(batch, &claimed);

		if (claimed > 0)
			CHECK_INT(postroom_ack(store, batch, items, claimed), POSTROOM_OK);
		postroom_batch_free(batch);
		empty += claimed == 0;
	} while (empty < 3);
}

static int64_t lowest_mark(void)
{
	return number(app, "SELECT min(low_water_seq) FROM postroom_lanes");
}

/* In how many lanes the mark has passed so many transactions. */
static int64_t lanes_that_passed(int count)
{
	return number(app, "SELECT count(*) FROM postroom_lanes WHERE coalesce(cardinality(passed), 0) = %d "
			   "AND coalesce(cardinality(passed_from), 0) = %d", count, count);
}

static postroom_receipt write_in(struct session *producer, const char *key)
{
	postroom_receipt receipt;

	CHECK_INT(postroom_enqueue(producer->box, POSTROOM_MESSAGE(.topic = "late", .key = key, .payload = "1"),
				   &receipt), POSTROOM_OK);
	return receipt;
}

/* A producer with one message, which the marks of all lanes have passed. */
static struct session *passed_producer(const char *key, postroom_receipt *ret_late)
{
	struct session *producer = join();

	begin(producer);
	*ret_late = write_in(producer, key);
	settle_all(2000);
	CHECK(lowest_mark() > 1000);
	CHECK_INT(lanes_that_passed(1), PG_LANES);
	return producer;
}

/* The only message that the next claim of a store finds is this one. */
static void check_next_claim_finds(postroom_store *from, const char *id)
{
	postroom_batch *batch = claim_from(from, POSTROOM_CLAIM(0));

	CHECK_STR(only_item(batch)->id, id);
	CHECK_INT(postroom_ack(from, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
}

LANE_TEST(C3_late_commit_of_passed_producer_is_found_by_next_claim)
{
	postroom_receipt late;
	struct session *producer = passed_producer("a", &late);

	commit(producer);
	CHECK(unfinished(false));
	check_next_claim_finds(store, late.id);
	settle_all(100);
	CHECK_INT(lanes_that_passed(0), PG_LANES);
	CHECK(lowest_mark() > 2000);
	leave(producer);
}

/* The relay that raised the marks was killed: what is known of them is in the database. */
LANE_TEST(C3_late_commit_is_found_after_the_relay_that_raised_marks_has_died)
{
	postroom_receipt late;
	struct session *producer = passed_producer("a", &late);
	postroom_store *next = open_store();

	end_backend(app, PQbackendPID(pgsql_store(store)->conn));
	postroom_batch_free(claim_from(next, POSTROOM_CLAIM(0)));
	commit(producer);
	check_next_claim_finds(next, late.id);
	postroom_store_close(next);
	leave(producer);
}

/* Which scan a busy relay makes: see lane.c. */
static struct postroom_batch claim_as_busy(void)
{
	const struct pr_claim claim = { .limit = 100, .max_bytes = SIZE_MAX, .lease_ms = 60000, .max_attempts = 10 };
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };

	CHECK_MSG(pr_store_claim(store, &pr_table_outbox, &claim, &batch, &err) >= 0, "%s", err.text);
	return batch;
}

LANE_TEST(D6_fast_path_claims_nothing_past_late_commit_of_passed_producer)
{
	postroom_receipt late;
	struct session *producer = passed_producer("a", &late);
	struct postroom_batch batch = claim_as_busy();

	pgsql_store(store)->raise_due_us = INT64_MAX;
	pr_batch_release(&batch);
	PUT(.topic = "t", .key = "b", .payload = "1");
	batch = claim_as_busy();
	CHECK_INT(batch.count, 1);
	CHECK(is_prepared(store, &pr_sql_claim_lanes_fast));
	CHECK(pgsql_store(store)->fast_path);
	pr_batch_release(&batch);
	commit(producer);
	PUT(.topic = "t", .key = "a", .payload = "1");
	batch = claim_as_busy();
	CHECK_INT(batch.count, 2);
	CHECK_STR(batch.items[0].id, late.id);
	pr_batch_release(&batch);
	leave(producer);
}

LANE_TEST(D6_messages_of_passed_producer_around_the_mark_are_claimed_in_order)
{
	postroom_receipt first, second;
	struct session *producer = passed_producer("a", &first);

	second = write_in(producer, "a");
	commit(producer);
	CHECK_STR(take_one(), first.id);
	CHECK_STR(take_one(), second.id);
	leave(producer);
}

/* A claim in whose snapshot it is open takes later messages; the next one finds all. */
LANE_TEST(D6_message_written_after_late_commit_is_claimed_behind_it)
{
	postroom_receipt late, other;
	struct session *producer = passed_producer("a", &late);

	other = PUT(.topic = "t", .key = "a", .payload = "1");
	CHECK_STR(take_one(), other.id);
	commit(producer);
	other = PUT(.topic = "t", .key = "a", .payload = "1");
	CHECK_STR(take_one(), late.id);
	CHECK_STR(take_one(), other.id);
	leave(producer);
}

LANE_TEST(C3_rollback_of_passed_producer_costs_one_rescan)
{
	postroom_receipt late;
	struct session *producer = passed_producer("a", &late);

	postroom_batch_free(CLAIM());
	CHECK(!pgsql_store(store)->passed_ended);
	rollback(producer);
	postroom_batch_free(CLAIM());
	CHECK(pgsql_store(store)->passed_ended);
	postroom_batch_free(CLAIM());
	CHECK(!pgsql_store(store)->passed_ended);
	CHECK_INT(lanes_that_passed(0), PG_LANES);
	CHECK(lowest_mark() > 1000);
	leave(producer);
}

LANE_TEST(C3_late_commit_of_passed_subtransaction_is_found)
{
	struct session *producer = join();
	postroom_receipt late;

	begin(producer);
	sql(producer, "SAVEPOINT outer_one");
	sql(producer, "SAVEPOINT inner_one");
	late = write_in(producer, NULL);
	sql(producer, "RELEASE inner_one");
	settle_all(2000);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_lanes WHERE passed = ARRAY['%s'::xid8]",
			 text(producer, "SELECT pg_current_xact_id()::text")), PG_LANES);
	sql(producer, "SAVEPOINT undone");
	write_in(producer, NULL);
	sql(producer, "ROLLBACK TO undone");
	postroom_batch_free(CLAIM());
	CHECK(!pgsql_store(store)->passed_ended);
	commit(producer);
	check_next_claim_finds(store, late.id);
	leave(producer);
}

LANE_TEST(C3_late_commit_of_prepared_transaction_is_found)
{
	struct session *producer = join();
	postroom_receipt late;

	begin(producer);
	late = write_in(producer, "a");
	settle_all(2000);
	CHECK_INT(lanes_that_passed(1), PG_LANES);
	sql(producer, "PREPARE TRANSACTION 'passed'");
	settle_all(2000);
	CHECK_INT(lanes_that_passed(1), PG_LANES);
	CHECK(lowest_mark() > 3000);
	sql(app, "COMMIT PREPARED 'passed'");
	check_next_claim_finds(store, late.id);
	leave(producer);
}

/* Between the look at the locks and the raise. */
LANE_TEST(C3_producer_that_ends_before_marks_rise_past_it_is_found)
{
	struct session *producer = join();
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	struct pr_err err = { 0 };
	postroom_receipt late;
	char passed[40];

	postroom_batch_free(CLAIM());
	begin(producer);
	late = write_in(producer, "a");
	snprintf(passed, sizeof(passed), "{%s}", text(producer, "SELECT pg_current_xact_id()::text"));
	commit(producer);
	pr_sql_bind_raise_low_water(&params, 5000, passed);
	result = pr_sql_run(pgsql_store(store), &pr_sql_raise_low_water, &params, &err);
	CHECK_MSG(result, "%s", err.text);
	CHECK_INT(lanes_that_passed(1), PG_LANES);
	check_next_claim_finds(store, late.id);
	leave(producer);
}

LANE_TEST(C3_passed_producers_end_at_different_times)
{
	postroom_receipt first, second;
	struct session *older = passed_producer("a", &first), *newer = join();
	int64_t mark = lowest_mark();

	begin(newer);
	second = write_in(newer, "a");
	settle_all(2000);
	CHECK_INT(lanes_that_passed(2), PG_LANES);
	/* Only what the newer one can have written is scanned again. */
	CHECK_INT(number(app, "SELECT min(passed_from[array_position(passed, '%s'::xid8)]) FROM postroom_lanes",
			 text(newer, "SELECT pg_current_xact_id()::text")), mark);
	commit(newer);
	check_next_claim_finds(store, second.id);
	settle_all(100);
	CHECK_INT(lanes_that_passed(1), PG_LANES);
	commit(older);
	check_next_claim_finds(store, first.id);
	leave(older);
	leave(newer);
}

LANE_TEST(C3_low_water_marks_wait_for_many_producers)
{
	struct session *producers[17];
	int64_t mark;

	for (int i = 0; i < 17; i++) {
		producers[i] = join();
		begin(producers[i]);
		write_in(producers[i], NULL);
	}
	mark = lowest_mark();
	settle_all(2000);
	CHECK_INT(lowest_mark(), mark);
	commit(producers[0]);
	settle_all(2000);
	CHECK(lowest_mark() > 1000);
	CHECK_INT(lanes_that_passed(16), PG_LANES);
	for (int i = 0; i < 17; i++) {
		if (i > 0)
			commit(producers[i]);
		leave(producers[i]);
	}
	CHECK_INT(rows("pending"), 16);
	settle_all(100);
	CHECK_INT(rows("pending"), 0);
}

/* It may draw a seq before it gets an id, so there is none to remember. */
LANE_TEST(C3_low_water_marks_wait_for_producer_without_an_id)
{
	struct session *producer = join();
	int64_t mark;

	settle_all(10);
	mark = lowest_mark();
	begin(producer);
	sql(producer, "LOCK TABLE postroom_outbox IN ROW EXCLUSIVE MODE");
	settle_all(2000);
	CHECK_INT(lowest_mark(), mark);
	rollback(producer);
	settle_all(2000);
	CHECK(lowest_mark() > 1000);
	leave(producer);
}

/* The ids of another server mean nothing here, whether they are still to come or long gone. */
static void restore_marks(const char *id)
{
	postroom_receipt late = PUT(.topic = "t", .payload = "1");

	sql(app, "UPDATE postroom_lanes SET low_water_seq = 1000000, passed = ARRAY[(%s)::text::xid8], passed_from = '{1}'", id);
	check_next_claim_finds(store, late.id);
	sql(app, "ALTER TABLE postroom_outbox ALTER seq RESTART 2000000");
	settle_all(2000);
	CHECK_INT(lanes_that_passed(0), PG_LANES);
	CHECK(lowest_mark() > 2000000);
}

LANE_TEST(C3_restored_marks_with_higher_ids_hide_nothing)
{
	restore_marks("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 4294967296");
}

LANE_TEST(C3_restored_marks_with_lower_ids_hide_nothing)
{
	restore_marks("SELECT 3");
}

/* Pages that the last claim has read, by auto_explain's first line for the whole plan. */
static int64_t claim_pages;

static void count_pages(void *context, const PGresult *notice)
{
	const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY), *at;

	(void)context;
	at = strstr(message, "heads AS MATERIALIZED") ? strstr(message, "Buffers: shared") : NULL;
	if (!at)
		return;
	claim_pages = 0;
	for (const char *end = strchr(at, '\n'), *next; (next = strchr(at, '=')) && next < end; at = next + 1) {
		if (strncmp(next - 3, "hit", 3) == 0 || strncmp(next - 4, "read", 4) == 0)
			claim_pages += strtoll(next + 1, NULL, 10);
	}
}

#define COUNT_PAGES                                                                                \
	"-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 "            \
	"-c auto_explain.log_level=notice -c auto_explain.log_analyze=on "                         \
	"-c auto_explain.log_buffers=on -c auto_explain.log_timing=off"

LANE_TEST(C8_claim_beside_open_producer_reads_nothing_that_was_settled)
{
	struct session *producer = join();
	postroom_store *watched;
	char watched_url[400];

	begin(producer);
	write_in(producer, "a");
	settle_all(100000);
	url_with_options(COUNT_PAGES, watched_url);
	watched = open_at(watched_url);
	PQsetNoticeReceiver(pgsql_store(watched)->conn, count_pages, NULL);
	claim_pages = -1;
	postroom_batch_free(claim_from(watched, POSTROOM_CLAIM(0)));
	CHECK_MSG(claim_pages >= 0 && claim_pages < 2000, "%lld pages", (long long)claim_pages);
	postroom_store_close(watched);
	leave(producer);
}
