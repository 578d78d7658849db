/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a key (D6) where only SQLite could lose it, and what a drain waits for (D1). */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/sqlite/sqlite.h"
#pragma GCC diagnostic pop

#define SQLITE_TEST(test_name) ON_ONE(test_name, backend_sqlite)

/* As if it had passed many of others, and been slow therefore. */
static void raise_low_water(postroom_store *of)
{
	const struct pr_scope own = { .topic = "own" };

	pr_sqlite_raise_low_water(sqlite_store(of), &pr_table_outbox, &own, 0, 0, 3600000000);
	CHECK(pr_sqlite_low_water(sqlite_store(of), &pr_table_outbox, &own) > 0);
}

static void forget_low_water(postroom_store *of)
{
	sqlite_store(of)->sides[0].low_water_until_us = 0;
}

static void check_claims(postroom_store *by, const char *expected)
{
	postroom_batch *batch = claim_from(by, POSTROOM_CLAIM(.topic = "own"));
	size_t count = 0;
	postroom_delivery *items = pr_batch_items(batch, &count);
	char payloads[100] = "";

	for (size_t i = 0; i < count; i++)
		strncat(payloads, items[i].payload, sizeof(payloads) - strlen(payloads) - 1);
	CHECK_STR(payloads, expected);
	if (count > 0)
		CHECK_INT(postroom_ack(by, batch, items, count), POSTROOM_OK);
	postroom_batch_free(batch);
}

static void put_own(const char *payload)
{
	PUT(.topic = "own", .payload = payload, .key = "k");
}

/* Fails the first of the key, so that the second is held. */
static void hold_second(void)
{
	postroom_batch *batch;

	put_own("1");
	put_own("2");
	batch = CLAIM(.topic = "own", .limit = 1, .base_delay_ms = 3600 * 1000,
		      .max_delay_ms = 3600 * 1000);
	CHECK_STR(only_item(batch)->payload, "1");
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	check_claims(store, "");
	CHECK_INT(number(app, "SELECT state = 'held' FROM postroom_outbox WHERE payload = '2'"), 1);
}

SQLITE_TEST(D6_unblocked_message_below_low_water_mark_is_not_overtaken)
{
	postroom_store *other = open_store();

	hold_second();
	raise_low_water(store);
	raise_low_water(other);
	MAKE_DUE();
	check_claims(store, "1");
	put_own("3");
	check_claims(store, "");
	check_claims(other, "");
	forget_low_water(other);
	check_claims(other, "2");
	forget_low_water(store);
	check_claims(store, "3");
	postroom_store_close(other);
}

SQLITE_TEST(E8_message_that_joins_its_key_below_low_water_mark_is_not_overtaken)
{
	PUT(.topic = "own", .payload = "1", .key = "k", .delay_ms = 3600 * 1000);
	raise_low_water(store);
	sql(app, "UPDATE postroom_outbox SET created_at = created_at - 86400000000,"
		 " next_attempt_at = next_attempt_at - 86400000000");
	put_own("2");
	check_claims(store, "");
	forget_low_water(store);
	check_claims(store, "1");
	check_claims(store, "2");
}

SQLITE_TEST(E8_head_start_below_low_water_mark_is_not_overtaken)
{
	postroom_batch *batch;

	put_own("1");
	PUT(.topic = "own", .payload = "2", .key = "k", .priority = 60);
	batch = CLAIM(.topic = "own", .limit = 1);
	CHECK_STR(only_item(batch)->payload, "1");
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(number(app, "SELECT state = 'ready' FROM postroom_outbox WHERE payload = '2'"),
		  1);
	raise_low_water(store);
	put_own("3");
	check_claims(store, "");
	forget_low_water(store);
	check_claims(store, "2");
	check_claims(store, "3");
}

/* While many that were delayed join their keys, what came after them is not in sight yet. */
SQLITE_TEST(E8_head_start_does_not_overtake_its_key_while_delayed_messages_become_due)
{
	sql(app, "INSERT INTO postroom_outbox (topic, payload, key)"
		 " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
		 " SELECT 'others', '1', i FROM n");
	sql(app, "UPDATE postroom_outbox SET created_at = created_at - 60000000,"
		 " next_attempt_at = next_attempt_at - 30000000");
	put_own("1");
	PUT(.topic = "own", .payload = "2", .key = "k", .priority = 60);
	for (int round = 0; rows("delivered") == 0 && round < 20; round++) {
		postroom_batch *batch = CLAIM(.topic = "own", .limit = 1);
		size_t count = 0;
		postroom_delivery *items = pr_batch_items(batch, &count);

		if (count > 0) {
			CHECK_STR(items->payload, "1");
			CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
		}
		postroom_batch_free(batch);
	}
	check_claims(store, "2");
}

/* More than a claim scans at once, and no relay delivers them. */
static void fill_others(int count)
{
	sql(app,
	    "INSERT INTO postroom_outbox (topic, payload)"
	    " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
	    " SELECT 'others', '1' FROM n",
	    count);
}

SQLITE_TEST(C5_takeover_of_a_key_does_not_wait_for_messages_of_another_sink)
{
	const struct pr_rule rules[] = { { .topic = "own", .mine = true } };
	const struct pr_store_config config = { .url = url, .rules = { rules, 1 } };
	struct postroom_store *ruled = NULL;
	struct pr_err err = { 0 };
	postroom_batch *batch;

	CHECK_MSG(pr_store_open(&config, &ruled, &err) >= 0, "%s", err.text);
	fill_others(20001);
	put_own("1");
	put_own("2");
	postroom_batch_free(CLAIM(.topic = "own"));
	EXPIRE_LEASES();
	check_claims(store, "1");
	batch = claim_from(ruled, POSTROOM_CLAIM());
	CHECK_STR(only_item(batch)->payload, "2");
	postroom_batch_free(batch);
	pr_store_close(ruled);
}

static int64_t next_due_ms(void)
{
	const struct pr_scope own = { .topic = "own" };
	struct pr_err err = { 0 };
	int64_t ms = -1;
	bool unsure;

	CHECK_MSG(pr_sqlite_next_due(sqlite_store(store), &pr_table_outbox, &own, &ms, &unsure,
				     &err) >= 0,
		  "%s", err.text);
	return ms;
}

/* Moves all earlier rows into the future, as if the clock had been set back. */
static void set_clock_back(void)
{
	sql(app, "UPDATE postroom_outbox SET created_at = created_at + 3600000000,"
		 " next_attempt_at = next_attempt_at + 3600000000");
}

SQLITE_TEST(D6_clock_set_back_does_not_change_order_of_key)
{
	put_own("1");
	set_clock_back();
	CHECK(unfinished(false));
	CHECK_INT(next_due_ms(), 0);
	put_own("2");
	check_claims(store, "12");
	CHECK(!unfinished(false));
}

SQLITE_TEST(D1_drain_waits_for_clock_skew_but_not_for_delayed_messages)
{
	PUT(.topic = "own", .payload = "1", .delay_ms = 3600 * 1000);
	sql(app, "INSERT INTO postroom_outbox (topic, payload, next_attempt_at)"
		 " VALUES ('own', '2', 4000000000000000)");
	CHECK(!unfinished(false));
	PUT(.topic = "own", .payload = "3", .priority = 60);
	set_clock_back();
	check_claims(store, "");
	CHECK(unfinished(false));
}

/* So many that they do not all join their keys in one transaction. */
SQLITE_TEST(E8_messages_that_become_due_together_hide_nothing_below_low_water_mark)
{
	PUT(.topic = "others", .payload = "1");
	raise_low_water(store);
	sql(app, "INSERT INTO postroom_outbox (topic, payload, key, created_at, next_attempt_at)"
		 " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)"
		 " SELECT 'others', '1', i, 1600000000000000, 1700000000000000 FROM n");
	put_own("1");
	check_claims(store, "1");
}

/* More keys than one claim looks at. */
static void hold_many_keys(void)
{
	sql(app, "INSERT INTO postroom_outbox (topic, payload, key, state)"
		 " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)"
		 " SELECT 'own', '1', i, 'held' FROM n");
}

SQLITE_TEST(D1_a_drain_waits_for_every_key_that_was_blocked_before)
{
	int64_t left = 200;

	hold_many_keys();
	for (int pass = 0; unfinished(false); pass++) {
		postroom_batch *batch = CLAIM();
		size_t count = 0;
		postroom_delivery *items = pr_batch_items(batch, &count);

		CHECK_MSG(pass < 20, "%lld messages never came", (long long)left);
		CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
		left -= (int64_t)count;
		postroom_batch_free(batch);
	}
	CHECK_INT(left, 0);
}

SQLITE_TEST(D1_a_drain_waits_for_held_messages_unless_a_dead_one_blocks_them)
{
	hold_many_keys();
	CHECK(unfinished(true));
	sql(app, "UPDATE postroom_outbox SET seq = seq + 1000");
	sql(app, "INSERT INTO postroom_outbox (seq, topic, payload, key, status, state)"
		 " SELECT seq - 1000, topic, payload, key, 'dead', 'dead' FROM postroom_outbox");
	CHECK(!unfinished(true));
	CHECK(unfinished(false));
}

/* So many that every look at them is a slow one. */
SQLITE_TEST(D3_idle_scan_skips_messages_of_other_sinks_once)
{
	const struct pr_scope own = { .topic = "own" };

	fill_others(100000);
	CHECK(next_due_ms() == INT64_MAX);
	CHECK_INT(pr_sqlite_low_water(sqlite_store(store), &pr_table_outbox, &own), 100000);
	fill_others(10);
	CHECK(next_due_ms() == INT64_MAX);
	CHECK_INT(pr_sqlite_low_water(sqlite_store(store), &pr_table_outbox, &own), 100010);
	put_own("1");
	CHECK_INT(next_due_ms(), 0);
	check_claims(store, "1");
}
