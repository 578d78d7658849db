/* SPDX-License-Identifier: Apache-2.0 */
/* Messages held behind others of their key (D6), late commits (E8), and that none is stranded. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

#include <stdlib.h>

#define DAY (24 * 3600)

static void put_numbers(const char *key, int from, int to)
{
	char payload[20];

	for (int i = from; i <= to; i++) {
		snprintf(payload, sizeof(payload), "%d", i);
		PUT(.topic = "t", .payload = payload, .key = key);
	}
}

/* Claims and delivers until nothing comes any more: "a1 a2 b1". */
static const char *deliver_all(const postroom_claim_options *options)
{
	static char all[4000];
	size_t len = 0, count = 0;

	all[0] = 0;
	do {
		postroom_batch *batch = claim_from(store, options);
		postroom_delivery *items = pr_batch_items(batch, &count);

		for (size_t i = 0; i < count; i++) {
			len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s%s",
						len ? " " : "", items[i].key ? items[i].key : "-",
						items[i].payload);
			CHECK(len < sizeof(all));
		}
		if (count > 0)
			CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
		postroom_batch_free(batch);
	} while (count > 0);
	return all;
}

#define DELIVER(...) deliver_all(POSTROOM_CLAIM(__VA_ARGS__))

/* Claims one and fails it, so that it is not due before MAKE_DUE(). */
static void fail_one(const char *expected)
{
	postroom_batch *batch = CLAIM(.limit = 1, .base_delay_ms = DAY / 2 * 1000,
				      .max_delay_ms = DAY / 2 * 1000);

	CHECK_STR(only_item(batch)->payload, expected);
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
}

ON_ONE(E8_due_messages_are_claimed_in_order_of_enqueue, backend_sqlite)
{
	PUT(.topic = "t", .payload = "1", .key = "a", .delay_ms = 300);
	put_numbers("a", 2, 3);
	while (number(app, "SELECT count(*) FROM postroom_outbox WHERE next_attempt_at <= %s",
		      backend->now_us) < 3)
		;
	CHECK_STR(DELIVER(0), "a1 a2 a3");
}

ON_ONE(E8_a_head_start_overtakes_other_keys, backend_sqlite)
{
	postroom_batch *batch;

	put_numbers("b", 1, 3);
	PUT(.topic = "t", .payload = "1", .key = "a", .priority = 60);
	batch = CLAIM(.limit = 1);
	CHECK_STR(only_item(batch)->key, "a");
	postroom_batch_free(batch);
}

/* The one that is due later is written first, and is before the other in the table. */
TEST_ON_PGSQL(E8_delayed_messages_join_their_key_in_the_order_in_which_they_are_due)
{
	PUT(.topic = "t", .payload = "2", .key = "a", .delay_ms = 2000);
	PUT(.topic = "t", .payload = "1", .key = "a", .delay_ms = 1000);
	MAKE_DUE();
	CHECK_STR(DELIVER(0), "a1 a2");
}

/* Another relay is about to let the first one join. */
TEST_ON_PGSQL(E8_a_delayed_message_joins_its_key_only_after_those_due_before_it)
{
	struct session *other = join();

	PUT(.topic = "t", .payload = "1", .key = "a", .delay_ms = 1000);
	PUT(.topic = "t", .payload = "2", .key = "a", .delay_ms = 2000);
	MAKE_DUE();
	begin(other);
	sql(other, "SELECT FROM postroom_outbox WHERE payload = '1' FOR UPDATE");
	CHECK_STR(DELIVER(0), "");
	rollback(other);
	leave(other);
	CHECK_STR(DELIVER(0), "a1 a2");
}

TEST(E8_head_starts_do_not_change_the_order_of_a_key)
{
	char payload[20];
	int seen = 0;

	for (int i = 0; i < 60; i++) {
		snprintf(payload, sizeof(payload), "%d", i);
		PUT(.topic = "t", .payload = payload, .key = "a", .priority = i % 3 * 100);
	}
	for (int pass = 0; seen < 60; pass++) {
		postroom_batch *batch = CLAIM(.limit = 7);
		size_t count = 0;
		postroom_delivery *items = pr_batch_items(batch, &count);

		CHECK_MSG(pass < 200, "%d of 60 came", seen);
		for (size_t i = 0; i < count; i++)
			CHECK_INT(atoi(items[i].payload), seen++);
		if (count > 0)
			CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
		postroom_batch_free(batch);
	}
}

TEST(D6_reclaimed_message_waits_behind_failing_message)
{
	postroom_store *dead = open_store();

	put_numbers("a", 1, 3);
	postroom_batch_free(claim_from(dead, POSTROOM_CLAIM(0)));
	EXPIRE_LEASES();
	fail_one("1");
	put_numbers("b", 1, 2);
	CHECK_STR(DELIVER(0), "b1 b2");
	MAKE_DUE();
	CHECK_STR(DELIVER(0), "a1 a2 a3");
	postroom_store_close(dead);
}

TEST(D6_sweep_unblocks_keys_of_dead_letters)
{
	postroom_store *dead = open_store();
	int64_t dead_letters = 0;

	put_numbers("a", 1, 1);
	postroom_batch_free(claim_from(dead, POSTROOM_CLAIM(.max_attempts = 1)));
	shift("last_attempt_at", -DAY);
	put_numbers("a", 2, 3);
	CHECK_STR(DELIVER(.max_attempts = 1), "");
	EXPIRE_LEASES();
	CHECK_INT(postroom_sweep(store, 1, &dead_letters), POSTROOM_OK);
	CHECK_INT(dead_letters, 1);
	CHECK_STR(DELIVER(.max_attempts = 1), "a2 a3");
	postroom_store_close(dead);
}

static void dead_letter_and_block(void)
{
	postroom_batch *batch;

	put_numbers("a", 1, 3);
	batch = CLAIM(.limit = 1, .on_dead = POSTROOM_ON_DEAD_BLOCK);
	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_STR(DELIVER(.on_dead = POSTROOM_ON_DEAD_BLOCK), "");
}

ON_ONE(D6_key_is_unblocked_when_dead_letters_no_longer_block, backend_sqlite)
{
	postroom_store *later;

	dead_letter_and_block();
	later = store;
	store = open_store();
	CHECK_STR(DELIVER(0), "a2 a3");
	postroom_store_close(later);
}

TEST_BY_RELAY(D6_drain_waits_for_failing_keys_but_not_for_blocked_ones)
{
	int64_t done = 0;

	dead_letter_and_block();
	CHECK(!unfinished(true));
	CHECK_INT(rows("pending"), 2);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead"), 10, &done),
		  POSTROOM_OK);
	CHECK(unfinished(true));
	CHECK_STR(DELIVER(.on_dead = POSTROOM_ON_DEAD_BLOCK), "a2 a3");
	put_numbers("b", 1, 3);
	fail_one("1");
	CHECK_STR(DELIVER(0), "");
	CHECK(unfinished(false));
	MAKE_DUE();
	CHECK_STR(DELIVER(0), "b1 b2 b3");
	CHECK(!unfinished(false));
}

/* The first of the key crashes its worker until it is dead; the others were in flight with it. */
TEST_BY_RELAY(D6_reclaimed_message_waits_behind_blocking_dead_letter)
{
	postroom_store *dead = open_store();
	int64_t done = 0;

	put_numbers("a", 1, 4);
	postroom_batch_free(claim_from(dead, POSTROOM_CLAIM(.max_attempts = 2)));
	EXPIRE_LEASES();
	postroom_batch_free(claim_from(dead, POSTROOM_CLAIM(.max_attempts = 2)));
	EXPIRE_LEASES();
	CHECK_STR(DELIVER(.max_attempts = 2, .on_dead = POSTROOM_ON_DEAD_BLOCK), "");
	CHECK_INT(rows("dead"), 1);
	CHECK_STR(DELIVER(.max_attempts = 2, .on_dead = POSTROOM_ON_DEAD_BLOCK), "");
	CHECK_INT(rows("pending"), 3);
	CHECK(!unfinished(true));
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead"), 10, &done),
		  POSTROOM_OK);
	CHECK_STR(DELIVER(.max_attempts = 2, .on_dead = POSTROOM_ON_DEAD_BLOCK), "a2 a3 a4");
	postroom_store_close(dead);
}

TEST_BY_ROW(D6_held_messages_are_listed_and_counted_as_pending)
{
	postroom_counts counts;

	put_numbers("a", 1, 4);
	fail_one("1");
	CHECK_STR(DELIVER(0), "");
	CHECK_INT(postroom_stats(store, NULL, &counts, NULL, NULL), POSTROOM_OK);
	CHECK_INT(counts.pending, 4);
	CHECK_INT(counts.failed_pending, 1);
}

/* A walk at random: producers, three workers, failures, deaths, crashes; and at each claim the order is checked. */

#define MOST 4000
#define KEYS 4
#define WORKERS 3
#define OPEN_MOST 6

enum disposition { WAITING, IN_FLIGHT, OVER };

static struct {
	char id[POSTROOM_ID_SIZE];
	int key;
	enum disposition disposition;
} messages[MOST];
static int message_count;

static struct {
	postroom_store *by;
	postroom_batch *batch;
} open_batches[OPEN_MOST];
static int open_count;

static unsigned chance(unsigned of)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state % of);
}

static int find_message(const char *id)
{
	for (int i = 0; i < message_count; i++) {
		if (strcmp(messages[i].id, id) == 0)
			return i;
	}
	test_fail(__FILE__, __LINE__, "a message that was never enqueued: %s", id);
	return -1;
}

static void walk_enqueue(void)
{
	static const char *const keys[KEYS] = { "a", "b", "c", NULL };
	int key = (int)chance(KEYS);
	postroom_receipt receipt;

	if (message_count == MOST)
		return;
	receipt = PUT(.topic = "t", .payload = "1", .key = keys[key],
		      .priority = chance(4) == 0 ? (int32_t)chance(300) : 0);
	memcpy(messages[message_count].id, receipt.id, sizeof(receipt.id));
	messages[message_count].key = key;
	messages[message_count++].disposition = WAITING;
}

/* Those before it in its key are over, or before it in this very batch. */
static void check_turn(postroom_delivery *items, size_t at)
{
	int claimed = find_message(items[at].id);

	CHECK(messages[claimed].disposition == WAITING);
	for (int i = 0; i < claimed; i++) {
		bool before = messages[i].disposition == OVER ||
			      messages[i].key != messages[claimed].key ||
			      messages[i].key == KEYS - 1;

		for (size_t n = 0; n < at && !before; n++)
			before = strcmp(items[n].id, messages[i].id) == 0;
		CHECK_MSG(before, "message %d was claimed before %d of its key", claimed, i);
	}
}

static void walk_claim(postroom_store *by)
{
	postroom_batch *batch;
	postroom_delivery *items;
	size_t count = 0;

	if (open_count == OPEN_MOST)
		return;
	batch = claim_from(
		by, POSTROOM_CLAIM(.limit = 1 + (int32_t)chance(6), .max_attempts = 1000000));
	items = pr_batch_items(batch, &count);
	for (size_t i = 0; i < count; i++)
		check_turn(items, i);
	for (size_t i = 0; i < count; i++)
		messages[find_message(items[i].id)].disposition = IN_FLIGHT;
	if (count == 0) {
		postroom_batch_free(batch);
		return;
	}
	open_batches[open_count].by = by;
	open_batches[open_count++].batch = batch;
}

/* As a relay does: what comes behind a failure of its key is not tried. */
static void walk_settle(void)
{
	int at = (int)chance((unsigned)(open_count ? open_count : 1));
	bool broken[KEYS] = { false };
	postroom_delivery *items;
	size_t count = 0;

	if (open_count == 0)
		return;
	items = pr_batch_items(open_batches[at].batch, &count);
	for (size_t i = 0; i < count; i++) {
		int message = find_message(items[i].id);
		int key = messages[message].key;
		unsigned luck = chance(20);

		items[i].retry_in_ms = 0;
		items[i].verdict = broken[key] || luck < 2 ? POSTROOM_UNTRIED
				   : luck < 5		   ? POSTROOM_FAILED
				   : luck < 6		   ? POSTROOM_REJECTED
							   : POSTROOM_DELIVERED;
		broken[key] |= key != KEYS - 1 && (items[i].verdict == POSTROOM_UNTRIED ||
						   items[i].verdict == POSTROOM_FAILED);
		messages[message].disposition = items[i].verdict == POSTROOM_DELIVERED ||
								items[i].verdict ==
									POSTROOM_REJECTED
							? OVER
							: WAITING;
	}
	CHECK_INT(postroom_settle(open_batches[at].by, open_batches[at].batch, items, count),
		  POSTROOM_OK);
	postroom_batch_free(open_batches[at].batch);
	open_batches[at] = open_batches[--open_count];
}

static void walk_crash(postroom_store *workers[WORKERS])
{
	while (open_count > 0)
		postroom_batch_free(open_batches[--open_count].batch);
	for (int i = 0; i < message_count; i++) {
		if (messages[i].disposition == IN_FLIGHT)
			messages[i].disposition = WAITING;
	}
	EXPIRE_LEASES();
	for (int i = 0; i < WORKERS; i++) {
		postroom_store_close(workers[i]);
		workers[i] = open_store();
	}
}

TEST(D6_all_messages_of_a_key_are_delivered_in_order)
{
	int64_t steps = soak(1500, 20000);
	postroom_store *workers[WORKERS];
	int left = 0;

	for (int i = 0; i < WORKERS; i++)
		workers[i] = open_store();
	for (int64_t i = 0; i < steps; i++) {
		unsigned luck = chance(100);

		if (luck < 35)
			walk_enqueue();
		else if (luck < 65)
			walk_claim(workers[chance(WORKERS)]);
		else if (luck < 97)
			walk_settle();
		else if (luck < 99)
			shift("last_attempt_at", -60); /* a claim of long ago */
		else
			walk_crash(workers);
	}
	walk_crash(workers);
	for (int i = 0; i < message_count; i++)
		left += messages[i].disposition != OVER;
	for (int pass = 0; left > 0; pass++) {
		int before = left;

		CHECK_MSG(pass < 20 * MOST, "%d messages never came", left);
		walk_claim(workers[pass % WORKERS]);
		while (open_count > 0)
			walk_settle();
		left = 0;
		for (int i = 0; i < message_count; i++)
			left += messages[i].disposition != OVER;
		CHECK(left <= before);
	}
	CHECK_INT(rows("pending") + rows("processing"), 0);
	for (int i = 0; i < WORKERS; i++)
		postroom_store_close(workers[i]);
}
