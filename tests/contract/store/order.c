/* SPDX-License-Identifier: Apache-2.0 */
/* Order within a key (D6, E8), and what becomes of a lease for many when its owner is gone (C7). */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

#include <stdlib.h>

static void put_keyed(const char *key, int from, int to)
{
	char payload[20];

	for (int i = from; i <= to; i++) {
		snprintf(payload, sizeof(payload), "%d", i);
		PUT(.topic = "t", .payload = payload, .key = key);
	}
}

/* "a1 a2 b1": keys and payloads of a batch, in its order; good for the next few calls. */
static const char *contents(postroom_batch *batch)
{
	static char texts[4][2000];
	static unsigned next;
	char *out = texts[next++ % 4];
	size_t count = 0, len = 0;
	postroom_delivery *items = pr_batch_items(batch, &count);

	out[0] = '\0';
	for (size_t i = 0; i < count; i++)
		len += (size_t)snprintf(out + len, sizeof(texts[0]) - len, "%s%s%s", i ? " " : "",
					items[i].key ? items[i].key : "-", items[i].payload);
	CHECK(len < sizeof(texts[0]));
	return out;
}

static void ack_all(postroom_store *from, postroom_batch *batch)
{
	size_t count = 0;
	postroom_delivery *items = pr_batch_items(batch, &count);

	CHECK_INT(postroom_ack(from, batch, items, count), POSTROOM_OK);
	postroom_batch_free(batch);
}

/* Claims and delivers all there is, and says what it was. */
static const char *drain_by(postroom_store *from, const postroom_claim_options *options)
{
	static char all[4000];
	size_t len = 0;

	all[0] = '\0';
	for (;;) {
		postroom_batch *batch = claim_from(from, options);

		if (count_of(batch) == 0) {
			postroom_batch_free(batch);
			return all;
		}
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", len ? " " : "",
					contents(batch));
		CHECK(len < sizeof(all));
		ack_all(from, batch);
	}
}

static const char *drain(void)
{
	return drain_by(store, POSTROOM_CLAIM(0));
}

/* The first message fails, and is not due again before MAKE_DUE(). */
static void fail_first(void)
{
	postroom_batch *batch = CLAIM(.limit = 1, .base_delay_ms = 3600 * 1000,
				      .max_delay_ms = 3600 * 1000);

	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
}

TEST(D6_messages_of_a_key_are_claimed_together_in_order)
{
	postroom_batch *batch;

	put_keyed("a", 1, 5);
	batch = CLAIM();
	CHECK_STR(contents(batch), "a1 a2 a3 a4 a5");
	ack_all(store, batch);
}

TEST(D6_later_message_is_not_claimed_while_another_worker_has_an_earlier_one)
{
	postroom_store *other = open_store();
	postroom_batch *first, *second;

	put_keyed("a", 1, 3);
	first = CLAIM(.limit = 1);
	CHECK_STR(contents(first), "a1");
	second = claim_from(other, POSTROOM_CLAIM(0));
	CHECK_STR(contents(second), "");
	postroom_batch_free(second);
	ack_all(store, first);
	second = claim_from(other, POSTROOM_CLAIM(0));
	CHECK_STR(contents(second), "a2 a3");
	ack_all(other, second);
	postroom_store_close(other);
}

TEST(D6_keys_of_other_topics_and_namespaces_are_other_keys)
{
	postroom_batch *first;

	put_keyed("a", 1, 1);
	first = CLAIM();
	PUT(.topic = "other", .payload = "2", .key = "b");
	PUT(.topic = "t", .payload = "3", .key = "c", .ns = "other");
	CHECK_STR(drain(), "b2 c3");
	ack_all(store, first);
}

TEST(D6_failing_message_blocks_only_its_own_key)
{
	put_keyed("a", 1, 3);
	fail_first();
	put_keyed("b", 1, 2);
	PUT(.topic = "t", .payload = "9");
	for (int i = 0; i < 3; i++) {
		const char *got = drain();

		CHECK_MSG(!strstr(got, "a"), "%s", got);
	}
	CHECK_INT(rows("pending"), 3);
	MAKE_DUE();
	CHECK_STR(drain(), "a1 a2 a3");
}

TEST(D6_released_message_keeps_its_position)
{
	postroom_store *other = open_store();
	postroom_batch *batch;

	put_keyed("a", 1, 4);
	batch = CLAIM(.limit = 2);
	CHECK_INT(postroom_release(store, batch, items_of(batch, 2), 2), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_STR(drain_by(other, POSTROOM_CLAIM(0)), "a1 a2 a3 a4");
	postroom_store_close(other);
}

TEST_BY_RELAY(D6_failure_releases_rest_of_its_run_behind_it)
{
	postroom_batch *batch;
	postroom_delivery *items;

	put_keyed("a", 1, 4);
	batch = CLAIM(.limit = 3, .base_delay_ms = 3600 * 1000, .max_delay_ms = 3600 * 1000);
	items = items_of(batch, 3);
	CHECK_INT(postroom_nack(store, batch, items, 1, "no"), POSTROOM_OK);
	CHECK_INT(postroom_release(store, batch, items + 1, 2), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_STR(drain(), "");
	MAKE_DUE();
	CHECK_STR(drain(), "a1 a2 a3 a4");
}

TEST(D6_all_held_messages_are_delivered_in_order)
{
	postroom_batch *batch;
	int expected = 2;

	put_keyed("a", 1, 1);
	fail_first();
	begin(app);
	for (int i = 2; i <= 1300; i++) {
		char payload[20];

		snprintf(payload, sizeof(payload), "%d", i);
		CHECK_INT(postroom_enqueue(
				  app->box,
				  POSTROOM_MESSAGE(.topic = "t", .key = "a", .payload = payload),
				  NULL),
			  POSTROOM_OK);
	}
	commit(app);
	CHECK_STR(drain(), "");
	MAKE_DUE();
	batch = CLAIM(.limit = 1);
	CHECK_STR(contents(batch), "a1");
	ack_all(store, batch);
	while (expected <= 1300) {
		size_t count = 0;
		postroom_delivery *items;

		batch = CLAIM();
		items = pr_batch_items(batch, &count);
		CHECK_MSG(count > 0, "%d never came", expected);
		for (size_t i = 0; i < count; i++)
			CHECK_INT(atoi(items[i].payload), expected++);
		ack_all(store, batch);
	}
}

TEST(E8_a_delayed_message_joins_its_keys_order_when_it_is_due)
{
	PUT(.topic = "t", .payload = "1", .key = "a", .delay_ms = 3600 * 1000);
	put_keyed("a", 2, 3);
	CHECK_STR(drain(), "a2 a3");
	MAKE_DUE();
	CHECK_STR(drain(), "a1");
}

TEST(E8_a_head_start_does_not_overtake_its_own_key)
{
	put_keyed("a", 1, 2);
	PUT(.topic = "t", .payload = "3", .key = "a", .priority = 3600);
	CHECK_STR(drain(), "a1 a2 a3");
}

TEST(X1_resent_message_moves_to_the_end_of_its_key)
{
	postroom_batch *batch;
	int64_t done = -1;

	put_keyed("a", 1, 1);
	batch = CLAIM();
	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	put_keyed("a", 2, 3);
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(0), 10, &done), POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_STR(drain(), "a2 a3 a1");
}

static void dead_letter_first(void)
{
	postroom_batch *batch;

	put_keyed("a", 1, 3);
	batch = CLAIM(.limit = 1, .on_dead = POSTROOM_ON_DEAD_BLOCK);
	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
}

static void check_blocked(void)
{
	for (int i = 0; i < 3; i++) {
		postroom_batch *batch = CLAIM(.on_dead = POSTROOM_ON_DEAD_BLOCK);

		CHECK_STR(contents(batch), "");
		postroom_batch_free(batch);
	}
}

TEST(D6_dead_letter_unblocks_its_key_unless_configured_to_block)
{
	dead_letter_first();
	CHECK_STR(drain(), "a2 a3");
}

TEST_BY_RELAY(D6_retrying_the_dead_letter_unblocks_its_key)
{
	int64_t done;

	dead_letter_first();
	check_blocked();
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(0), 10, &done), POSTROOM_OK);
	CHECK_STR(drain_by(store, POSTROOM_CLAIM(.on_dead = POSTROOM_ON_DEAD_BLOCK)), "a2 a3 a1");
}

TEST_BY_RELAY(D6_purging_the_dead_letter_unblocks_its_key)
{
	int64_t done;

	dead_letter_first();
	check_blocked();
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead"), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_STR(drain_by(store, POSTROOM_CLAIM(.on_dead = POSTROOM_ON_DEAD_BLOCK)), "a2 a3");
}

/* TRAPS 37, and the earliest of a key first. */
TEST(C7_takeover_counts_one_attempt_and_reclaims_one_by_one)
{
	postroom_store *other;

	put_keyed("a", 1, 3);
	PUT(.topic = "t", .payload = "4");
	postroom_batch_free(CLAIM());
	CHECK_INT(rows("processing"), 4);
	put_keyed("a", 5, 5);
	EXPIRE_LEASES();
	other = open_store();
	for (int i = 0; i < 4; i++) {
		postroom_batch *batch = claim_from(other, POSTROOM_CLAIM(0));

		CHECK_INT(only_item(batch)->attempt, 2);
		if (only_item(batch)->key)
			CHECK_INT(number(app,
					 "SELECT count(*) FROM postroom_outbox WHERE key = 'a' AND "
					 "status = 'delivered'") +
					  1,
				  atoi(only_item(batch)->payload));
		ack_all(other, batch);
	}
	postroom_store_close(other);
	CHECK_INT(number(app, "SELECT max(attempts) FROM postroom_outbox"), 2);
	CHECK_STR(drain(), "a5");
}

TEST(C7_owner_that_returns_too_late_settles_nothing)
{
	postroom_batch *late;
	postroom_delivery *items;
	int64_t dead_letters;

	put_keyed("a", 1, 2);
	late = CLAIM();
	items = items_of(late, 2);
	EXPIRE_LEASES();
	CHECK_INT(postroom_sweep(store, 10, &dead_letters), POSTROOM_OK);
	postroom_batch_free(claim_one());
	CHECK_INT(postroom_ack(store, late, items, 1), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_renew(store, late, items, 1), POSTROOM_LEASE_LOST);
	CHECK_INT(rows("delivered"), 0);
	postroom_batch_free(late);
}

TEST(A4_settle_and_claim_settles_one_batch_and_claims_next)
{
	struct pr_policy policy = { .max_attempts = 10, .max_error_length = 100 };
	struct pr_claim claim = {
		.limit = 3, .max_bytes = 1 << 20, .lease_ms = 30000, .max_attempts = 10
	};
	struct postroom_batch batches[2] = { 0 };
	struct pr_err err = { 0 };
	size_t seen = 0;

	for (int i = 0; i < 9; i++)
		PUT(.topic = "t", .payload = "1");
	CHECK_INT(pr_store_claim(store, &pr_table_outbox, &claim, &batches[0], &err), POSTROOM_OK);
	for (int settle_and_claim = 0; seen < 9; settle_and_claim++) {
		struct postroom_batch *now = &batches[settle_and_claim % 2],
				      *next = &batches[(settle_and_claim + 1) % 2];

		CHECK(settle_and_claim < 20);
		for (size_t i = 0; i < now->count; i++)
			now->items[i].verdict = POSTROOM_DELIVERED;
		pr_batch_reset(next);
		if (now->count == 0) {
			CHECK_INT(pr_store_claim(store, &pr_table_outbox, &claim, next, &err),
				  POSTROOM_OK);
			continue;
		}
		seen += now->count;
		CHECK_INT(store->ops->settle_and_claim(
				  store, &pr_table_outbox,
				  &(struct pr_settle){ now->items, now->count, &policy }, &claim,
				  next, &err),
			  POSTROOM_OK);
		CHECK_INT(rows("delivered"), (int64_t)seen);
		CHECK_INT(rows("processing"), (int64_t)next->count);
	}
	pr_batch_release(&batches[0]);
	pr_batch_release(&batches[1]);
}
