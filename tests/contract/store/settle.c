/* SPDX-License-Identifier: Apache-2.0 */
/* Ack, nack, reject, release, renew: A1 to A4, A6, A7, R1, R2. */
#include "contract/store/backend.h"

#include <stdlib.h>

static postroom_batch *claim_many(int count)
{
	postroom_batch *batch;

	for (int i = 0; i < count; i++)
		PUT(.topic = "t", .payload = "1");
	batch = CLAIM(.limit = count);
	items_of(batch, (size_t)count);
	shift("updated_at", -1000);
	return batch;
}

static void check_unlocked(void)
{
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE status <> 'processing'"
			      " AND (locked_by IS NOT NULL OR locked_until IS NOT NULL)"),
		  0);
}

static void check_updated_now(int64_t before)
{
	int64_t updated = time_of(app, "updated_at", "true");

	CHECK(updated >= before - 2000 && updated <= database_now_us(app) + 2000);
}

TEST(A1_ack_delivers_and_clears)
{
	postroom_batch *batch = claim_many(1);
	int64_t before;

	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "first try"), POSTROOM_OK);
	postroom_batch_free(batch);
	MAKE_DUE();
	batch = claim_one();
	shift("updated_at", -1000);
	before = database_now_us(app);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK_INT(only_item(batch)->settled, POSTROOM_OK);
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "delivered");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "(null)");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 2);
	check_unlocked();
	check_updated_now(before);
	CHECK_INT(time_of(app, "delivered_at", "true"), time_of(app, "updated_at", "true"));
	postroom_batch_free(batch);
}

TEST(A1_delivered_is_terminal)
{
	postroom_batch *batch = claim_many(1);
	postroom_delivery *item = only_item(batch);

	CHECK_INT(postroom_ack(store, batch, item, 1), POSTROOM_OK);
	CHECK_INT(postroom_nack(store, batch, item, 1, "late"), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_ack(store, batch, item, 1), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_release(store, batch, item, 1), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_reject(store, batch, item, 1, "late"), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_renew(store, batch, item, 1), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = item->id)), POSTROOM_NOT_FOUND);
	CHECK_INT(rows("delivered"), 1);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "(null)");
	postroom_batch_free(batch);
}

typedef int (*settle_fn)(postroom_store *store, postroom_batch *batch, postroom_delivery *items,
			 size_t count);

static int nack(postroom_store *from, postroom_batch *batch, postroom_delivery *items, size_t count)
{
	return postroom_nack(from, batch, items, count, "no");
}

static int reject(postroom_store *from, postroom_batch *batch, postroom_delivery *items,
		  size_t count)
{
	return postroom_reject(from, batch, items, count, "no");
}

static const settle_fn every_way[] = { postroom_ack, nack, reject, postroom_release,
				       postroom_renew };
#define WAYS (sizeof(every_way) / sizeof(every_way[0]))

TEST(A2_only_the_holder_of_a_lease_settles)
{
	postroom_store *second = open_store();
	postroom_batch *late = claim_many(1), *current;

	EXPIRE_LEASES();
	current = claim_from(second, POSTROOM_CLAIM());
	only_item(current);
	for (size_t i = 0; i < WAYS; i++) {
		CHECK_INT(every_way[i](store, late, only_item(late), 1), POSTROOM_LEASE_LOST);
		CHECK_INT(only_item(late)->settled, POSTROOM_LEASE_LOST);
		CHECK_INT(rows("processing"), 1);
		CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 2);
		CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "(null)");
	}
	CHECK_INT(postroom_ack(second, current, only_item(current), 1), POSTROOM_OK);
	postroom_batch_free(late);
	postroom_batch_free(current);
	postroom_store_close(second);
}

/* The fence alone is not enough either: a restored backup may count its claims anew. */
TEST(A2_fencing_token_does_not_replace_owner)
{
	postroom_batch *batch = claim_many(1);

	sql(app,
	    "UPDATE %s SET locked_by = '018f0000-0000-7000-8000-000000000000' "
	    "WHERE locked_by IS NOT NULL",
	    backend->lanes ? "postroom_lanes" : "postroom_outbox");
	for (size_t i = 0; i < WAYS; i++)
		CHECK_INT(every_way[i](store, batch, only_item(batch), 1), POSTROOM_LEASE_LOST);
	CHECK_INT(rows("processing"), 1);
	postroom_batch_free(batch);
}

TEST_BY_ROW(A2_lost_lease_does_not_prevent_settle_of_others)
{
	postroom_batch *batch = claim_many(3);
	postroom_delivery *items = items_of(batch, 3);

	sql(app, "UPDATE postroom_outbox SET claims = claims + 1 WHERE id = '%s'", items[1].id);
	CHECK_INT(postroom_ack(store, batch, items, 3), POSTROOM_LEASE_LOST);
	CHECK_INT(items[0].settled, POSTROOM_OK);
	CHECK_INT(items[1].settled, POSTROOM_LEASE_LOST);
	CHECK_INT(items[2].settled, POSTROOM_OK);
	CHECK_INT(rows("delivered"), 2);
	CHECK_INT(rows("processing"), 1);
	postroom_batch_free(batch);
}

TEST(A2_purged_or_swept_message_is_a_lost_lease)
{
	postroom_batch *batch = claim_many(2);
	postroom_delivery *items = items_of(batch, 2);

	sql(app, "DELETE FROM postroom_outbox WHERE id = '%s'", items[0].id);
	CHECK_INT(postroom_ack(store, batch, items, 2), POSTROOM_LEASE_LOST);
	CHECK_INT(items[0].settled, POSTROOM_LEASE_LOST);
	CHECK_INT(rows("delivered"), 1);
	postroom_batch_free(batch);
}

TEST(A3_nack_records_the_error_and_schedules_a_retry)
{
	postroom_batch *batch = claim_many(1);
	int64_t before = database_now_us(app);

	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "connection \"refused\"\n"),
		  POSTROOM_OK);
	CHECK_INT(only_item(batch)->settled, POSTROOM_OK);
	CHECK_INT(only_item(batch)->dead, 0);
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "pending");
	CHECK_CONTAINS(text(app, "SELECT last_error FROM postroom_outbox"),
		       "connection \"refused\"");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
	CHECK(time_of(app, "next_attempt_at", "true") > before);
	check_unlocked();
	check_updated_now(before);
	postroom_batch_free(batch);
	batch = CLAIM();
	items_of(batch, 0);
	postroom_batch_free(batch);
}

TEST(A3_nack_of_last_attempt_is_dead_letter)
{
	PUT(.topic = "t", .payload = "1");
	for (int i = 1; i <= 3; i++) {
		postroom_batch *batch = CLAIM(.max_attempts = 3);

		CHECK_INT(only_item(batch)->attempt, i);
		CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
		CHECK_INT(only_item(batch)->dead, i == 3);
		CHECK_INT(rows("dead"), i == 3);
		postroom_batch_free(batch);
		MAKE_DUE();
	}
	check_unlocked();
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "no");
	CHECK_STR(text(app, "SELECT delivered_at FROM postroom_outbox"), "(null)");
}

static void nack_with(const char *reason, int32_t max_error_length)
{
	postroom_batch *batch;

	sql(app, "DELETE FROM postroom_outbox");
	PUT(.topic = "t", .payload = "1");
	batch = CLAIM(.max_error_length = max_error_length);
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, reason), POSTROOM_OK);
	postroom_batch_free(batch);
}

/* TRAPS 39 */
TEST(A3_errors_are_cut_between_characters)
{
	char reason[6001];

	for (int i = 0; i < 3000; i++)
		memcpy(reason + (ptrdiff_t)2 * i, "\xc3\xa9", 2);
	reason[6000] = 0;
	nack_with(reason, 0);
	CHECK_INT(number(app, "SELECT length(last_error) FROM postroom_outbox"), 2000);
	CHECK_INT(strlen(text(app, "SELECT last_error FROM postroom_outbox")), 4000);
	nack_with(reason, 5);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"),
		  "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9");
	nack_with(reason + 1, 2);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "\xef\xbf\xbd\xc3\xa9");
	nack_with("bad \xff\xfe bytes", 0);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"),
		  "bad \xef\xbf\xbd\xef\xbf\xbd bytes");
	nack_with(NULL, 0);
	CHECK_INT(rows("pending"), 1);
}

TEST(A4_many_messages_are_settled_in_one_call)
{
	postroom_batch *batch = claim_many(500);
	postroom_delivery *items = items_of(batch, 500);

	CHECK_INT(postroom_ack(store, batch, items, 200), POSTROOM_OK);
	CHECK_INT(postroom_nack(store, batch, items + 200, 100, "no"), POSTROOM_OK);
	CHECK_INT(postroom_reject(store, batch, items + 300, 100, "never"), POSTROOM_OK);
	CHECK_INT(postroom_release(store, batch, items + 400, 100), POSTROOM_OK);
	CHECK_INT(rows("delivered"), 200);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE status = 'pending'"
			      " AND attempts = 1 AND last_error = 'no'"),
		  100);
	CHECK_INT(rows("dead"), 100);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE status = 'pending'"
			      " AND attempts = 0 AND last_error IS NULL"),
		  100);
	check_unlocked();
	postroom_batch_free(batch);
}

TEST(A4_each_message_is_settled_by_its_own_verdict)
{
	postroom_batch *batch = claim_many(5);
	postroom_delivery *items = items_of(batch, 5);

	items[0].verdict = POSTROOM_DELIVERED;
	items[1].verdict = POSTROOM_FAILED;
	items[1].reason = "failed";
	items[1].retry_in_ms = 7000;
	items[2].verdict = POSTROOM_REJECTED;
	items[2].reason = "rejected";
	items[3].verdict = POSTROOM_UNREACHABLE;
	items[3].reason = "unreachable";
	items[4].verdict = POSTROOM_UNTRIED;
	for (int i = 2; i < 5; i++)
		items[i].retry_in_ms = -1;
	CHECK_INT(postroom_settle(store, batch, items, 5), POSTROOM_OK);
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox WHERE id = '%s'", items[0].id),
		  "delivered");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox WHERE id = '%s'", items[1].id),
		  "failed");
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox WHERE id = '%s'", items[2].id),
		  "dead");
	CHECK_INT(items[2].dead, 1);
	for (int i = 3; i < 5; i++) {
		CHECK_STR(text(app, "SELECT status FROM postroom_outbox WHERE id = '%s'",
			       items[i].id),
			  "pending");
		CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox WHERE id = '%s'",
				 items[i].id),
			  0);
	}
	check_unlocked();
	postroom_batch_free(batch);
}

/* R3's seam: the publisher says when. */
TEST(R1_delay_set_by_the_publisher_is_used)
{
	postroom_batch *batch = claim_many(1);
	postroom_delivery *item = only_item(batch);

	item->verdict = POSTROOM_FAILED;
	item->reason = "busy";
	item->retry_in_ms = 7000;
	CHECK_INT(postroom_settle(store, batch, item, 1), POSTROOM_OK);
	CHECK_INT(time_of(app, "next_attempt_at", "true") - time_of(app, "updated_at", "true"),
		  7000000);
	postroom_batch_free(batch);
}

TEST_BY_ROW(A6_release_refunds_attempt)
{
	postroom_batch *batch = claim_many(1);
	int64_t due = time_of(app, "next_attempt_at", "true"), before = database_now_us(app);

	CHECK_INT(postroom_release(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "pending");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 0);
	CHECK_INT(number(app, "SELECT claims FROM postroom_outbox"), 1);
	CHECK_INT(time_of(app, "next_attempt_at", "true"), due);
	check_unlocked();
	check_updated_now(before);
	postroom_batch_free(batch);
	batch = claim_one();
	CHECK_INT(only_item(batch)->attempt, 1);
	CHECK_INT(number(app, "SELECT claims FROM postroom_outbox"), 2);
	postroom_batch_free(batch);
}

TEST(A6_release_keeps_error_of_earlier_attempt)
{
	postroom_batch *batch = claim_many(1);

	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "earlier"), POSTROOM_OK);
	postroom_batch_free(batch);
	MAKE_DUE();
	batch = claim_one();
	CHECK_INT(postroom_release(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "earlier");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
	postroom_batch_free(batch);
}

/* TRAPS 12: the same worker, so locked_by alone would let the first try settle the second. */
TEST(A7_late_settle_of_first_attempt_does_not_change_the_second)
{
	postroom_batch *first = claim_many(1), *second;

	EXPIRE_LEASES();
	second = claim_one();
	CHECK_INT(number(app, "SELECT count(DISTINCT locked_by) FROM postroom_outbox"), 1);
	for (size_t i = 0; i < WAYS; i++)
		CHECK_INT(every_way[i](store, first, only_item(first), 1), POSTROOM_LEASE_LOST);
	CHECK_INT(rows("processing"), 1);
	CHECK_INT(postroom_ack(store, second, only_item(second), 1), POSTROOM_OK);
	CHECK_INT(rows("delivered"), 1);
	postroom_batch_free(first);
	postroom_batch_free(second);
}

/* attempts returns to its former value; only claims distinguishes the two attempts. */
TEST(A7_a_released_and_reclaimed_row_is_fenced_too)
{
	postroom_batch *first = claim_many(1), *second;

	CHECK_INT(postroom_release(store, first, only_item(first), 1), POSTROOM_OK);
	second = claim_one();
	CHECK_INT(only_item(second)->attempt, only_item(first)->attempt);
	for (size_t i = 0; i < WAYS; i++)
		CHECK_INT(every_way[i](store, first, only_item(first), 1), POSTROOM_LEASE_LOST);
	CHECK_INT(rows("processing"), 1);
	postroom_batch_free(first);
	postroom_batch_free(second);
}

TEST_BY_ROW(A7_retry_of_dead_letter_increases_fencing_token)
{
	postroom_batch *first = claim_many(1), *second;

	CHECK_INT(postroom_reject(store, first, only_item(first), 1, "no"), POSTROOM_OK);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = only_item(first)->id)), POSTROOM_OK);
	second = claim_one();
	CHECK(only_item(second)->fencing_token > only_item(first)->fencing_token);
	CHECK_INT(postroom_ack(store, first, only_item(first), 1), POSTROOM_LEASE_LOST);
	CHECK_INT(rows("processing"), 1);
	postroom_batch_free(first);
	postroom_batch_free(second);
}

TEST(A7_renew_restarts_lease_and_no_other_worker_claims_row)
{
	postroom_batch *batch, *none;
	int64_t until;

	PUT(.topic = "t", .payload = "1");
	batch = CLAIM(.lease_ms = 60000);
	shift("locked_until", -59);
	until = time_of(app, "locked_until", "true");
	CHECK_INT(postroom_renew(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK(time_of(app, "locked_until", "true") >= until + 58000000);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
	CHECK_INT(number(app, "SELECT claims FROM postroom_outbox"), 1);
	none = CLAIM();
	items_of(none, 0);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(none);
	postroom_batch_free(batch);
}

static int64_t backoff_after(int attempts, const postroom_claim_options *options)
{
	postroom_batch *batch;
	int64_t delay;

	sql(app, "DELETE FROM postroom_outbox");
	PUT(.topic = "t", .payload = "1");
	sql(app, "UPDATE postroom_outbox SET attempts = %d", attempts - 1);
	batch = claim_from(store, options);
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	delay = time_of(app, "next_attempt_at", "true") - time_of(app, "updated_at", "true");
	postroom_batch_free(batch);
	return delay;
}

TEST(R1_delays_double_up_to_the_maximum_with_jitter)
{
	static const struct {
		int attempts;
		int64_t delay_ms;
	} table[] = { { 1, 1000 },   { 2, 2000 },    { 3, 4000 },    { 8, 128000 },
		      { 9, 256000 }, { 10, 300000 }, { 64, 300000 }, { 1000000, 300000 } };

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		int64_t delay = backoff_after(table[i].attempts,
					      POSTROOM_CLAIM(.max_attempts = INT32_MAX));

		CHECK_MSG(delay >= table[i].delay_ms * 500 && delay <= table[i].delay_ms * 1000,
			  "attempt %d: %lld us", table[i].attempts, (long long)delay);
	}
}

TEST(R1_delays_are_spread)
{
	int64_t first = backoff_after(
		1, POSTROOM_CLAIM(.base_delay_ms = 3600000, .max_delay_ms = 3600000));
	bool spread = false;

	for (int i = 0; i < 5 && !spread; i++)
		spread = backoff_after(1, POSTROOM_CLAIM(.base_delay_ms = 3600000,
							 .max_delay_ms = 3600000)) != first;
	CHECK(spread);
}

TEST(R1_constant_backoff_does_not_grow)
{
	int64_t delay = backoff_after(
		9, POSTROOM_CLAIM(.base_delay_ms = 4000, .backoff = POSTROOM_BACKOFF_CONSTANT));

	CHECK_MSG(delay >= 2000000 && delay <= 4000000, "%lld us", (long long)delay);
}

TEST(R2_rejected_message_is_dead_immediately_with_its_reason)
{
	postroom_batch *batch = claim_many(1);
	int64_t before = database_now_us(app);

	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "no such customer"),
		  POSTROOM_OK);
	CHECK_INT(only_item(batch)->dead, 1);
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "no such customer");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
	check_unlocked();
	check_updated_now(before);
	postroom_batch_free(batch);
	MAKE_DUE();
	batch = CLAIM();
	items_of(batch, 0);
	postroom_batch_free(batch);
}
