/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TRAPS 8 and 19: scans of a lane begin at its low-water mark or behind the last batch, and
 * miss nothing.
 */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <string.h>

/* Takes and delivers what there is, once; whether that one was among it. */
static bool deliver(const char *wanted)
{
	postroom_batch *batch = CLAIM(.limit = 5000);
	size_t count = 0;
	postroom_delivery *items = pr_batch_items(batch, &count);
	bool found = false;

	for (size_t i = 0; i < count; i++)
		found |= wanted && strcmp(items[i].id, wanted) == 0;
	if (count > 0)
		CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
	postroom_batch_free(batch);
	return found;
}

/* Busy enough for the marks to rise, and then no longer busy. */
static void deliver_many(void)
{
	pgsql_store(store)->scan_us = 1000000;
	sql(app, "INSERT INTO postroom_outbox (topic, payload) "
		 "SELECT 't', '1' FROM generate_series(1, 2000)");
	do
		deliver(NULL);
	while (rows("pending") > 0);
}

/* Until the marks have been checked so often. */
static void check_low_water(int times)
{
	while (times > 0) {
		int64_t before = pgsql_store(store)->raise_due_us;

		deliver_many();
		times -= pgsql_store(store)->raise_due_us != before;
	}
}

static int64_t lowest_low_water(void)
{
	return number(app, "SELECT min(low_water_seq) FROM postroom_lanes");
}

LANE_TEST(C3_low_water_marks_rise_while_vacuum_is_held_back)
{
	struct session *old = join();

	begin(old);
	sql(old, "CREATE TEMPORARY TABLE anything (n int)"); /* it has a number, and could write */
	check_low_water(3);
	CHECK(lowest_low_water() > 1000);
	leave(old);
}

LANE_TEST(C3_late_commit_is_above_every_low_water_mark)
{
	struct session *other = join();
	postroom_receipt late;

	begin(other);
	CHECK_INT(postroom_enqueue(other->box, POSTROOM_MESSAGE(.topic = "late", .payload = "1"),
				   &late),
		  POSTROOM_OK);
	check_low_water(4);
	commit(other);
	CHECK(deliver(late.id));
	leave(other);
}

/* The library draws the numbers of many messages before it writes them. */
LANE_TEST(C3_seq_is_drawn_only_under_a_lock_on_the_table)
{
	const postroom_message many[2] = { *POSTROOM_MESSAGE(.topic = "t", .payload = "1"),
					   *POSTROOM_MESSAGE(.topic = "t", .payload = "1") };
	struct session *other = join(), *holder = join();
	struct producer producer = { .session = other, .messages = many, .count = 2 };

	begin(holder);
	sql(holder, "LOCK TABLE postroom_outbox IN SHARE MODE");
	begin(other);
	start_producer(&producer);
	await_blocked(app, other);
	CHECK_INT(number(app, "SELECT count(last_value) FROM pg_sequences "
			      "WHERE sequencename LIKE 'postroom_%%_seq_seq'"),
		  0);
	rollback(holder);
	end_producer(&producer);
	CHECK_INT(producer.status, POSTROOM_OK);
	rollback(other);
	leave(holder);
	leave(other);
}

/* Numbers given by hand may be below the low-water mark. */
LANE_TEST(C3_sweep_finds_messages_below_low_water_mark)
{
	int64_t dead_letters;

	while (lowest_low_water() == 0)
		deliver_many();
	sql(app, "INSERT INTO postroom_outbox (seq, topic, payload) VALUES (1, 'low', '1')");
	/* Some lanes at a time. */
	for (int i = 0; i < 8; i++) {
		pgsql_store(store)->lower_due_us = 0;
		CHECK_INT(postroom_sweep(store, 1, &dead_letters), POSTROOM_OK);
	}
	deliver(NULL);
	CHECK_INT(rows("pending"), 0);
}

/* An idle relay sweeps once a minute: it would be the eighth sweep that looks into the last lanes. */
LANE_TEST(C3_rare_sweep_checks_below_all_low_water_marks)
{
	int64_t dead_letters;

	while (lowest_low_water() <= PG_LANES)
		deliver_many();
	CHECK_INT(postroom_sweep(store, 1, &dead_letters), POSTROOM_OK);
	sql(app, "INSERT INTO postroom_outbox (seq, topic, payload) "
		 "SELECT n, 'low', '1' FROM generate_series(1, 64) AS n");
	pgsql_store(store)->lower_due_us -= 60000000;
	CHECK_INT(postroom_sweep(store, 1, &dead_letters), POSTROOM_OK);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_lanes WHERE low_water_seq > 64"), 0);
}

LANE_TEST(C7_change_of_lease_kind_resets_low_water_marks)
{
	enum pr_lease_kind kind = PR_LEASE_ROW;
	struct pr_err err = { 0 };

	while (lowest_low_water() == 0)
		deliver_many();
	CHECK_MSG(pr_store_lease_kind(store, &kind, &kind, &err) >= 0, "%s", err.text);
	CHECK_INT(number(app, "SELECT max(low_water_seq) FROM postroom_lanes"), 0);
}

static void put_foreign(int count)
{
	sql(app,
	    "INSERT INTO postroom_outbox (topic, payload, key) SELECT 'foreign', '1', "
	    "CASE WHEN n %% 2 = 0 THEN n::text END FROM generate_series(1, %d) AS n",
	    count);
}

/* Delivers all messages of the topic; returns their number. */
static size_t deliver_own(void)
{
	postroom_batch *batch;
	size_t count = 0;
	postroom_delivery *items;

	pgsql_store(store)->scan_us = 1000000;
	batch = CLAIM(.topic = "own", .limit = 100);
	items = pr_batch_items(batch, &count);
	if (count > 0)
		CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
	postroom_batch_free(batch);
	return count;
}

static void await_scope_low_water(void)
{
	while (pgsql_store(store)->scope_low_water_us == 0)
		CHECK_INT(deliver_own(), 0);
}

/* Messages for others are scanned once; later ones are found, with a key and without. */
static void check_found_above_scope_low_water(void)
{
	struct session *other = join();
	postroom_batch *all;
	int64_t looked_at;

	put_foreign(100);
	begin(other);
	CHECK_INT(postroom_enqueue(other->box, POSTROOM_MESSAGE(.topic = "own", .payload = "1"),
				   NULL),
		  POSTROOM_OK);
	CHECK_INT(postroom_enqueue(other->box,
				   POSTROOM_MESSAGE(.topic = "own", .key = "a", .payload = "1"),
				   NULL),
		  POSTROOM_OK);
	put_foreign(100);
	for (int times = 0; times < 4; times += pgsql_store(store)->raise_due_us != looked_at) {
		looked_at = pgsql_store(store)->raise_due_us;
		CHECK_INT(deliver_own(), 0);
	}
	CHECK_INT(pgsql_store(store)->scope_low_water_us, 0);
	commit(other);
	CHECK_INT(deliver_own(), 2);
	await_scope_low_water();
	PUT(.topic = "own", .payload = "1");
	PUT(.topic = "own", .payload = "1", .key = "a");
	CHECK_INT(deliver_own(), 2);
	/* Of the others nothing is missed by who claims in another scope. */
	all = CLAIM(.limit = 1000);
	CHECK_INT(count_of(all), 200);
	postroom_batch_free(all);
	leave(other);
}

LANE_TEST(C6_messages_of_other_sinks_are_skipped_once_by_lane)
{
	check_found_above_scope_low_water();
}

ON_ONE(C6_messages_of_other_sinks_are_skipped_once_by_row, backend_pgsql)
{
	check_found_above_scope_low_water();
}

/* People may say themselves since when a message is due: a mark does not hide it for long. */
ON_ONE(C3_idle_relay_finds_message_older_than_low_water_mark, backend_pgsql)
{
	const struct pr_scope scope_low_water = { .topic = "own" };
	const struct pr_claim claim = { .scope = scope_low_water, .limit = 1, .max_attempts = 10 };
	struct pr_err err = { 0 };
	bool unfinished = false;

	put_foreign(100);
	await_scope_low_water();
	sql(app, "INSERT INTO postroom_outbox (topic, payload, next_attempt_at) "
		 "VALUES ('own', '1', now() - interval '1 hour')");
	CHECK_INT(store->ops->unfinished(store, &pr_table_outbox, &claim, &unfinished, &err),
		  POSTROOM_OK);
	CHECK(unfinished);
	/* Nothing was claimed meanwhile that would have checked the marks again. */
	pgsql_store(store)->scope_low_water_until_us = 0;
	pgsql_store(store)->raise_due_us = INT64_MAX;
	CHECK_INT(store->ops->wait(store, &pr_table_outbox, &scope_low_water, 20, &err),
		  POSTROOM_OK);
	CHECK(!store->idle);
	CHECK_INT(deliver_own(), 1);
}

/* The later message was written by a session that saw the late one, whatever its timestamp. */
LANE_TEST(D6_late_commit_is_not_overtaken_by_later_messages)
{
	struct session *other = join();
	struct pgsql_path_state *path_state = &pgsql_store(store)->path_state[PG_PATH_LANES];
	postroom_receipt late;

	for (int i = 0; i < 3; i++)
		postroom_batch_free(CLAIM());
	begin(other);
	CHECK_INT(postroom_enqueue(other->box,
				   POSTROOM_MESSAGE(.topic = "t", .key = "a", .payload = "1"),
				   &late),
		  POSTROOM_OK);
	PUT(.topic = "t", .key = "a", .payload = "0");
	take_one();
	commit(other);
	sql(app, "INSERT INTO postroom_outbox (topic, key, payload, created_at) "
		 "VALUES ('t', 'a', '2', now() - interval '1 hour')");
	/* As if the look into all lanes had taken very long. */
	CHECK(path_state->busy);
	path_state->head_due_us = INT64_MAX;
	CHECK_STR(take_one(), late.id);
	leave(other);
}

/* It wrote the later message of the key, too: both become visible at the same time. */
static void write_around_resume_position(bool in_subtransaction)
{
	struct session *other = join();
	struct pgsql_path_state *path_state = &pgsql_store(store)->path_state[PG_PATH_LANES];
	postroom_receipt late;

	for (int i = 0; i < 3; i++)
		postroom_batch_free(CLAIM());
	begin(other);
	CHECK_INT(postroom_enqueue(other->box,
				   POSTROOM_MESSAGE(.topic = "t", .key = "a", .payload = "1"),
				   &late),
		  POSTROOM_OK);
	for (int i = 0; i < 2; i++)
		PUT(.topic = "t", .key = "a", .payload = "0");
	if (in_subtransaction)
		sql(other, "SAVEPOINT later");
	CHECK_INT(postroom_enqueue(other->box,
				   POSTROOM_MESSAGE(.topic = "t", .key = "a", .payload = "2"),
				   NULL),
		  POSTROOM_OK);
	take_one();
	path_state->head_due_us = 0; /* all lanes once more, now that all have a seq */
	take_one();
	commit(other);
	CHECK(path_state->busy);
	path_state->head_due_us = INT64_MAX;
	CHECK_STR(take_one(), late.id);
	leave(other);
}

LANE_TEST(D6_late_commit_is_not_overtaken_by_its_own_later_message)
{
	write_around_resume_position(false);
}

LANE_TEST(D6_late_commit_is_not_overtaken_by_its_own_subtransaction)
{
	write_around_resume_position(true);
}

/* A worker between two batches: what it has is delivered, and what there is then is taken. */
static void take_turn(struct postroom_batch *now, struct postroom_batch *next, bool reclaim_expired)
{
	const struct pr_claim claim = { .limit = 100,
					.max_bytes = SIZE_MAX,
					.lease_ms = 60000,
					.max_attempts = 10,
					.reclaim_expired = reclaim_expired };
	const struct pr_policy policy = { .max_attempts = 10 };
	struct pr_err err = { 0 };

	for (size_t i = 0; i < now->count; i++)
		now->items[i].verdict = POSTROOM_DELIVERED;
	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1'), ('t', '2')");
	pr_batch_reset(next);
	if (now->count > 0)
		CHECK_MSG(store->ops->settle_and_claim(
				  store, &pr_table_outbox,
				  &(struct pr_settle){ now->items, now->count, &policy }, &claim,
				  next, &err) >= 0,
			  "%s", err.text);
	else
		CHECK_MSG(pr_store_claim(store, &pr_table_outbox, &claim, next, &err) >= 0, "%s",
			  err.text);
}

LANE_TEST(D3_fast_path_reads_only_lanes_with_messages)
{
	struct postroom_batch batches[2] = { 0 };

	take_turn(&batches[1], &batches[0], false);
	CHECK_INT(batches[0].count, 2);
	for (int i = 0; i < 3; i++) {
		struct postroom_batch *now = &batches[i % 2], *next = &batches[(i + 1) % 2];

		take_turn(now, next, false);
		CHECK_INT(next->count, 2);
		CHECK(is_prepared(store, &pr_sql_claim_lanes_fast));
	}
	pr_batch_release(&batches[0]);
	pr_batch_release(&batches[1]);
}

/* Then a lane is left alone until all have been scanned: what is below comes first. */
LANE_TEST(D6_fast_path_skips_nothing_below_lowered_mark)
{
	struct postroom_batch none = { 0 }, next = { 0 };

	sql(app, "UPDATE postroom_lanes SET low_water_seq = 1000, epoch = 1");
	take_turn(&none, &next, true);
	CHECK_INT(next.count, 0);
	sql(app, "UPDATE postroom_lanes SET low_water_seq = 0");
	sql(app, "INSERT INTO postroom_outbox (seq, topic, payload) SELECT seq + 1024, 't', '3' "
		 "FROM postroom_outbox");
	take_turn(&none, &next, false);
	CHECK(is_prepared(store, &pr_sql_claim_lanes_fast));
	CHECK_INT(next.count, 0);
	take_turn(&none, &next, true);
	CHECK_INT(next.count, 8);
	pr_batch_release(&none);
	pr_batch_release(&next);
}

/* Of the table itself: what people see is a view. */
static const char *state_of(const char *payload)
{
	return text(app, "(SELECT state FROM postroom_outbox WHERE key = 'a' AND payload = '%s')",
		      payload);
}

/* Only messages of its key are held. all: all lanes are scanned. */
static void meet_blockers(bool all)
{
	struct postroom_batch batches[2] = { 0 };
	struct pgsql_store *scope_low_water = pgsql_store(store);

	take_turn(&batches[1], &batches[0], all);
	take_turn(&batches[0], &batches[1], all);
	CHECK(scope_low_water->fast_path);
	CHECK(is_prepared(store, all ? &pr_sql_claim_lanes_unblocked : &pr_sql_claim_lanes_fast));
	sql(app, "INSERT INTO postroom_outbox (topic, payload, key, attempts, claims, state, "
		 "next_attempt_at) "
		 "VALUES ('t', '1', 'a', 1, 1, 'scheduled', now() + interval '1 hour')");
	sql(app, "INSERT INTO postroom_outbox (topic, payload, key) VALUES ('t', '2', 'a'), ('t', "
		 "'3', 'b')");
	take_turn(&batches[1], &batches[0], all);
	CHECK_INT(batches[0].count, 0);
	CHECK(scope_low_water->blocked);
	CHECK(scope_low_water->blockers_until_us > 0);
	scope_low_water->blockers_until_us = INT64_MAX; /* however long it takes */
	/* And two more by now. */
	take_turn(&batches[0], &batches[1], all);
	CHECK_INT(batches[1].count, 5);
	CHECK(!scope_low_water->blocked);
	CHECK_STR(state_of("2"), "held");
	pr_batch_release(&batches[0]);
	pr_batch_release(&batches[1]);
}

LANE_TEST(D6_fast_path_leaves_possibly_held_messages_to_scan_of_all_lanes)
{
	meet_blockers(false);
}

LANE_TEST(D6_fast_path_leaves_possibly_held_messages_to_full_scan)
{
	meet_blockers(true);
}

LANE_TEST(D6_every_scan_respects_blockers)
{
	struct postroom_batch batches[2] = { 0 };
	struct pgsql_store *scope_low_water = pgsql_store(store);

	sql(app, "INSERT INTO postroom_outbox (topic, payload, key, attempts, claims, state, "
		 "next_attempt_at) "
		 "VALUES ('t', '1', 'a', 1, 1, 'scheduled', now() + interval '1 hour')");
	for (int i = 0; i < 4; i++) {
		take_turn(&batches[(i + 1) % 2], &batches[i % 2], false);
		CHECK_INT(batches[i % 2].count, 2);
		/* Each look says until when; however long the next one takes to come. */
		CHECK(scope_low_water->blockers_until_us > 0 &&
		      scope_low_water->blockers_until_us < INT64_MAX);
		scope_low_water->blockers_until_us = INT64_MAX;
	}
	CHECK(!is_prepared(store, &pr_sql_claim_lanes_unblocked));
	CHECK(!is_prepared(store, &pr_sql_claim_lanes_fast));
	pr_batch_release(&batches[0]);
	pr_batch_release(&batches[1]);
}

/* A time given by hand to a message that is in its turn already. */
static void meet_early(bool all)
{
	struct postroom_batch batches[2] = { 0 };

	take_turn(&batches[1], &batches[0], all);
	sql(app, "INSERT INTO postroom_outbox (topic, payload, key) VALUES ('t', '3', 'a')");
	sql(app, "UPDATE postroom_outbox SET next_attempt_at = now() + interval '1 hour' "
		 "WHERE payload = '3'");
	take_turn(&batches[0], &batches[1], all);
	CHECK_INT(batches[1].count, 2);
	CHECK(is_prepared(store, all ? &pr_sql_claim_lanes_unblocked : &pr_sql_claim_lanes_fast));
	CHECK(!pgsql_store(store)->no_blockers && !pgsql_store(store)->fast_path);
	CHECK_STR(state_of("3"), "ready");
	take_turn(&batches[1], &batches[0], all);
	CHECK_INT(batches[0].count, 2);
	CHECK_STR(state_of("3"), "delayed");
	pr_batch_release(&batches[0]);
	pr_batch_release(&batches[1]);
}

LANE_TEST(E8_message_found_too_early_by_fast_path_is_delayed_by_the_next_scan)
{
	meet_early(false);
}

LANE_TEST(E8_message_found_too_early_is_delayed_by_the_next_scan)
{
	meet_early(true);
}

/* It would pass over all that lies between them, in every lane. */
LANE_TEST(C8_lanes_with_distant_low_water_marks_are_read_one_by_one)
{
	struct postroom_batch batches[2] = { 0 };

	sql(app, "ALTER TABLE postroom_outbox ALTER seq RESTART 50000");
	sql(app, "UPDATE postroom_lanes SET low_water_seq = CASE WHEN lane = 1 THEN 0 ELSE 50000 END");
	take_turn(&batches[1], &batches[0], false);
	take_turn(&batches[0], &batches[1], false);
	CHECK_INT(batches[1].count, 2);
	CHECK(pgsql_store(store)->fast_path);
	CHECK(!is_prepared(store, &pr_sql_claim_lanes_fast));
	pr_batch_release(&batches[0]);
	pr_batch_release(&batches[1]);
}

LANE_TEST(C5_fast_path_detects_expired_leases)
{
	struct postroom_batch batches[2] = { 0 };
	postroom_store *dying = open_store();
	postroom_batch *lost;

	take_turn(&batches[1], &batches[0], false);
	take_turn(&batches[0], &batches[1], true); /* there are none */
	CHECK(pgsql_store(store)->none_expired);
	PUT(.topic = "t", .payload = "1");
	lost = claim_from(dying, POSTROOM_CLAIM(.limit = 1));
	sql(app, "UPDATE postroom_lanes SET locked_until = clock_timestamp() - interval '1 second' "
		 "WHERE locked_by = (SELECT locked_by FROM postroom_messages WHERE seq = "
		 "(SELECT max(seq) FROM postroom_outbox))");
	take_turn(&batches[1], &batches[0], false);
	take_turn(&batches[0], &batches[1], true);
	CHECK(!pgsql_store(store)->none_expired);
	take_turn(&batches[1], &batches[0], true);
	CHECK_INT(batches[0].count, 1);
	CHECK_INT(batches[0].items[0].attempt, 2);
	postroom_batch_free(lost);
	postroom_store_close(dying);
	pr_batch_release(&batches[0]);
	pr_batch_release(&batches[1]);
}
