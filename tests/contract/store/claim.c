/* SPDX-License-Identifier: Apache-2.0 */
/* Claiming: C1 to C6, and the traps around a lease's end. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENANT_A "0f5a3c1e-7b2d-4e9a-8c11-2233445566aa"
#define TENANT_B "1f5a3c1e-7b2d-4e9a-8c11-2233445566bb"

static void put_many(const char *topic, int count)
{
	for (int i = 0; i < count; i++)
		PUT(.topic = topic, .payload = "1");
}

TEST(C1_only_pending_due_messages_are_claimed)
{
	postroom_batch *batch;

	put_many("due", 1);
	PUT(.topic = "later", .payload = "1", .delay_ms = 60000);
	put_many("leased", 1);
	put_many("delivered", 1);
	put_many("dead", 1);
	batch = CLAIM(.topic = "leased");
	only_item(batch);
	postroom_batch_free(batch);
	batch = CLAIM(.topic = "de*");
	items_of(batch, 2);
	CHECK_INT(postroom_ack(store, batch, &items_of(batch, 2)[0], 1), POSTROOM_OK);
	CHECK_INT(postroom_reject(store, batch, &items_of(batch, 2)[1], 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	batch = CLAIM();
	CHECK_STR(only_item(batch)->topic, "due");
	postroom_batch_free(batch);
}

TEST(C1_only_expired_leases_are_reclaimed)
{
	postroom_batch *batch;

	put_many("t", 1);
	postroom_batch_free(claim_one());
	batch = CLAIM();
	items_of(batch, 0);
	postroom_batch_free(batch);
	EXPIRE_LEASES();
	batch = claim_one();
	CHECK_INT(only_item(batch)->attempt, 2);
	postroom_batch_free(batch);
}

TEST(C1_claim_respects_its_limit)
{
	postroom_batch *batch;

	put_many("t", 20);
	batch = CLAIM(.limit = 7);
	items_of(batch, 7);
	CHECK_INT(rows("processing"), 7);
	CHECK_INT(rows("pending"), 13);
	postroom_batch_free(batch);
}

TEST_BY_RELAY(C1_claim_respects_byte_limit_but_always_returns_one_message)
{
	char payload[3002];
	postroom_batch *batch;

	memset(payload, 'a', sizeof(payload));
	payload[0] = payload[3000] = '"';
	payload[3001] = 0;
	for (int i = 0; i < 5; i++)
		PUT(.topic = "t", .payload = payload);
	batch = CLAIM(.max_bytes = 100);
	items_of(batch, 1);
	CHECK_INT(rows("processing"), 1);
	postroom_batch_free(batch);
	batch = CLAIM(.max_bytes = 6500);
	CHECK_MSG(count_of(batch) >= 1 && count_of(batch) <= 3, "%zu claimed", count_of(batch));
	CHECK_INT(rows("processing"), 1 + count_of(batch));
	postroom_batch_free(batch);
}

TEST_BY_ROW(C2_claim_writes_lease_attempt_and_times)
{
	postroom_batch *batch;
	postroom_delivery *item;
	int64_t before, last;

	put_many("t", 1);
	shift("updated_at", -1000);
	before = database_now_us(app);
	batch = CLAIM(.lease_ms = 5000);
	item = only_item(batch);
	CHECK_INT(item->attempt, 1);
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "processing");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
	CHECK_INT(number(app, "SELECT claims FROM postroom_outbox"), 1);
	CHECK_INT(strlen(text(app, "SELECT locked_by FROM postroom_outbox")), 36);
	last = time_of(app, "last_attempt_at", "true");
	CHECK(last >= before - 2000 && last <= database_now_us(app) + 2000);
	CHECK_INT(time_of(app, "updated_at", "true"), last);
	CHECK_INT(time_of(app, "locked_until", "true") - last, 5000000);
	postroom_batch_free(batch);
}

TEST(C2_attempts_and_claims_grow_with_every_claim)
{
	put_many("t", 1);
	for (int i = 1; i <= 4; i++) {
		postroom_batch *batch = claim_one();

		CHECK_INT(only_item(batch)->attempt, i);
		CHECK_INT(number(app, "SELECT claims FROM postroom_outbox"), i);
		postroom_batch_free(batch);
		EXPIRE_LEASES();
	}
}

/* TRAPS 5 and 20 */
TEST_BY_ROW(C3_batch_is_in_order_of_enqueue)
{
	char payload[20];
	postroom_batch *batch;
	postroom_delivery *items;

	begin(app);
	for (int i = 0; i < 200; i++) {
		snprintf(payload, sizeof(payload), "%d", i);
		CHECK_INT(postroom_enqueue(app->box,
					   POSTROOM_MESSAGE(.topic = "t", .payload = payload),
					   NULL),
			  POSTROOM_OK);
	}
	commit(app);
	/* All of them due at the same time: only seq distinguishes them. */
	sql(app, "UPDATE postroom_outbox SET next_attempt_at ="
		 " (SELECT min(next_attempt_at) FROM postroom_outbox)");
	batch = CLAIM(.limit = 150);
	items = items_of(batch, 150);
	for (int i = 0; i < 150; i++)
		CHECK_INT(strtol(items[i].payload, NULL, 10), i);
	postroom_batch_free(batch);
	batch = CLAIM();
	items = items_of(batch, 50);
	for (int i = 0; i < 50; i++)
		CHECK_INT(strtol(items[i].payload, NULL, 10), 150 + i);
	postroom_batch_free(batch);
}

TEST(C3_oldest_due_message_is_claimed_first)
{
	postroom_batch *batch;
	postroom_delivery *items;

	put_many("a", 1);
	PUT(.topic = "b", .payload = "1", .priority = 20);
	PUT(.topic = "c", .payload = "1", .priority = 10);
	batch = CLAIM();
	items = items_of(batch, 3);
	CHECK_STR(items[0].topic, "b");
	CHECK_STR(items[1].topic, "c");
	CHECK_STR(items[2].topic, "a");
	postroom_batch_free(batch);
}

/* A flood of newcomers must not keep what waits for another try, or what was left behind, out. */
TEST(C3_new_messages_starve_neither_retries_nor_expired_leases)
{
	postroom_batch *batch;
	bool retried = false, taken_over = false;

	put_many("retry", 1);
	batch = claim_one();
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	put_many("expired", 1);
	postroom_batch_free(claim_one());
	EXPIRE_LEASES();
	MAKE_DUE();
	for (int i = 0; i < 10 && !(retried && taken_over); i++) {
		postroom_delivery *items;
		size_t count = 0;

		put_many("new", 5);
		batch = CLAIM(.limit = 2);
		items = pr_batch_items(batch, &count);
		for (size_t n = 0; n < count; n++) {
			retried |= strcmp(items[n].topic, "retry") == 0;
			taken_over |= strcmp(items[n].topic, "expired") == 0;
		}
		postroom_batch_free(batch);
	}
	CHECK(retried);
	CHECK(taken_over);
}

#define CLAIMERS 4
#define CLAIMED_ROWS 400

/* Each claimer records the ids that it claims, and holds every lease to the end. */
static void claim_until_empty(void *context, int index)
{
	int *ids = context;
	postroom_store *mine = open_store();
	size_t count = 0;

	(void)index;
	do {
		postroom_batch *batch = claim_from(mine, POSTROOM_CLAIM(.limit = 7));
		postroom_delivery *items = pr_batch_items(batch, &count);

		for (size_t i = 0; i < count; i++) {
			CHECK_INT(items[i].attempt, 1);
			CHECK_INT(write(ids[1], items[i].id, 36), 36);
		}
		postroom_batch_free(batch);
	} while (count > 0);
	postroom_store_close(mine);
}

TEST(C4_row_with_valid_lease_is_not_claimed_again)
{
	int ids[2];
	char id[37] = "";
	int seen = 0;

	put_many("t", CLAIMED_ROWS);
	CHECK_INT(pipe(ids), 0);
	in_parallel(CLAIMERS, claim_until_empty, ids);
	close(ids[1]);
	sql(app, "CREATE TABLE seen (id TEXT PRIMARY KEY)");
	begin(app);
	while (read(ids[0], id, 36) == 36) {
		sql(app, "INSERT INTO seen VALUES ('%s')", id);
		seen++;
	}
	commit(app);
	close(ids[0]);
	if (!backend->lanes)
		CHECK_INT(seen, CLAIMED_ROWS);
	CHECK_INT(rows("processing"), seen);
	CHECK_INT(number(app,
			 "SELECT count(*) FROM postroom_outbox WHERE attempts = 1 AND claims = 1"),
		  seen);
}

/* TRAPS 10 */
TEST(C5_sweep_dead_letters_crash_in_last_attempt)
{
	int64_t dead_letters = -1;

	put_many("t", 3);
	postroom_batch_free(CLAIM(.max_attempts = 1));
	CHECK_INT(postroom_sweep(store, 1, &dead_letters), POSTROOM_OK);
	CHECK_INT(dead_letters, 0);
	CHECK_INT(rows("processing"), 3);
	EXPIRE_LEASES();
	CHECK_INT(postroom_sweep(store, 1, &dead_letters), POSTROOM_OK);
	CHECK_INT(dead_letters, 3);
	CHECK_INT(rows("dead"), 3);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE locked_by IS NULL"
			      " AND locked_until IS NULL AND last_error IS NOT NULL"),
		  3);
}

/* A large message is claimed first, and its content is loaded afterwards. */
TEST(D8_large_content_is_complete_and_missing_body_stays_missing)
{
	const size_t size = 700001;
	char *large = malloc(size + 1);
	postroom_batch *batch;

	CHECK(large);
	for (size_t i = 0; i < size; i++)
		large[i] = (char)('a' + i % 26);
	large[0] = large[size - 1] = '"';
	large[size] = '\0';
	PUT(.topic = "payload", .payload = large, .headers = "{\"a\": \"b\"}");
	PUT(.topic = "body", .body = large, .body_len = size);
	batch = CLAIM(.topic = "payload");
	CHECK_INT(only_item(batch)->payload_len, size);
	CHECK(memcmp(only_item(batch)->payload, large, size) == 0);
	CHECK_STR(only_item(batch)->headers, "{\"a\": \"b\"}");
	CHECK(!only_item(batch)->body && only_item(batch)->body_len == 0);
	postroom_batch_free(batch);
	batch = CLAIM(.topic = "body");
	CHECK_INT(only_item(batch)->body_len, size);
	CHECK(memcmp(only_item(batch)->body, large, size) == 0);
	CHECK_STR(only_item(batch)->payload, "null");
	postroom_batch_free(batch);
	free(large);
}

/* A sweep needs no content of dead letters, so it reads none, however many there are. */
TEST_BY_RELAY(D8_sweep_reads_no_content)
{
	const size_t size = 1000000;
	const struct pr_claim sweep = { .limit = 100, .max_bytes = 100 * size, .max_attempts = 1 };
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };
	char *large = malloc(size + 1);

	CHECK(large);
	memset(large, '1', size);
	large[0] = large[size - 1] = '"';
	large[size] = '\0';
	for (int i = 0; i < 20; i++)
		PUT(.topic = "t", .payload = large);
	free(large);
	PUT(.topic = "t", .payload = "[1]");
	postroom_batch_free(CLAIM(.max_attempts = 1, .max_bytes = 100 * size));
	CHECK_INT(rows("processing"), 21);
	EXPIRE_LEASES();
	CHECK_MSG(store->ops->sweep(store, &pr_table_outbox, &sweep, &batch, &err) >= 0, "%s",
		  err.text);
	CHECK_INT(batch.dead_letter_count, 21);
	for (size_t i = 0; i < batch.dead_letter_count; i++)
		CHECK_INT(batch.dead_letters[i].payload_len, 0);
	CHECK_INT(rows("dead"), 21);
	pr_batch_release(&batch);
}

TEST(C5_claim_dead_letters_crash_in_last_attempt)
{
	put_many("t", 3);
	postroom_batch_free(CLAIM(.max_attempts = 1));
	EXPIRE_LEASES();
	for (int i = 0; i < 3; i++) {
		postroom_batch *batch = CLAIM(.max_attempts = 1);

		items_of(batch, 0);
		postroom_batch_free(batch);
	}
	CHECK_INT(rows("dead"), 3);
	CHECK_INT(rows("processing"), 0);
}

TEST(C5_pending_without_attempts_left_is_not_stranded)
{
	postroom_batch *batch;

	put_many("t", 1);
	for (int i = 0; i < 3; i++) {
		batch = claim_one();
		CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "broken"), POSTROOM_OK);
		postroom_batch_free(batch);
		MAKE_DUE();
	}
	CHECK_INT(rows("pending"), 1);
	batch = CLAIM(.max_attempts = 3);
	items_of(batch, 0);
	postroom_batch_free(batch);
	CHECK_INT(rows("dead"), 1);
	CHECK_CONTAINS(text(app, "SELECT last_error FROM postroom_outbox"), "broken");
}

TEST(C5_sweep_leaves_other_rows_unchanged)
{
	postroom_batch *batch;
	int64_t dead_letters = -1;

	put_many("pending", 1);
	batch = claim_one();
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	put_many("leased", 1);
	postroom_batch_free(CLAIM(.topic = "leased"));
	EXPIRE_LEASES();
	CHECK_INT(postroom_sweep(store, 5, &dead_letters), POSTROOM_OK);
	CHECK_INT(dead_letters, 0);
	CHECK_INT(rows("pending"), 1);
	CHECK_INT(rows("processing"), 1);
}

/* TRAPS 11: what was settled or claimed again meanwhile is not the sweep's any more. */
TEST(C5_a_renewed_lease_is_not_swept)
{
	postroom_batch *batch;
	int64_t dead_letters = -1;

	put_many("t", 1);
	batch = CLAIM(.max_attempts = 1);
	EXPIRE_LEASES();
	CHECK_INT(postroom_renew(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK_INT(postroom_sweep(store, 1, &dead_letters), POSTROOM_OK);
	CHECK_INT(dead_letters, 0);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK_INT(rows("delivered"), 1);
	postroom_batch_free(batch);
}

static size_t claimed(const postroom_claim_options *options)
{
	postroom_batch *batch = claim_from(store, options);
	size_t count = count_of(batch);

	CHECK_INT(rows("processing"), count);
	CHECK_INT(postroom_release(store, batch, pr_batch_items(batch, &count), count),
		  POSTROOM_OK);
	postroom_batch_free(batch);
	return count;
}

#define CLAIMED(...) claimed(POSTROOM_CLAIM(__VA_ARGS__))

TEST(C6_claim_is_limited_to_namespace_topic_and_tenant)
{
	PUT(.topic = "orders.created", .payload = "1");
	PUT(.topic = "orders.paid.late", .payload = "1", .ns = "shop");
	PUT(.topic = "users.created", .payload = "1", .ns = "shop", .tenant_id = TENANT_A);
	PUT(.topic = "users.gone", .payload = "1", .tenant_id = TENANT_B);
	CHECK_INT(CLAIMED(.ns = "shop"), 2);
	CHECK_INT(CLAIMED(.ns = "default"), 2);
	CHECK_INT(CLAIMED(.ns = "sho"), 0);
	CHECK_INT(CLAIMED(.topic = "orders.*"), 2);
	CHECK_INT(CLAIMED(.topic = "*.created"), 2);
	CHECK_INT(CLAIMED(.topic = "*"), 4);
	CHECK_INT(CLAIMED(.topic = "*.*.*"), 1);
	CHECK_INT(CLAIMED(.topic = "orders.created"), 1);
	CHECK_INT(CLAIMED(.topic = "orders"), 0);
	CHECK_INT(CLAIMED(.tenant_id = TENANT_A), 1);
	CHECK_INT(CLAIMED(.tenant_id = "0F5A3C1E-7B2D-4E9A-8C11-2233445566AA"), 1);
	CHECK_INT(CLAIMED(.ns = "shop", .topic = "users.*", .tenant_id = TENANT_A), 1);
	CHECK_INT(CLAIMED(.ns = "shop", .topic = "users.*", .tenant_id = TENANT_B), 0);
	CHECK_INT(CLAIMED(.limit = 100), 4);
}

TEST(C6_only_the_star_is_special_in_a_topic_pattern)
{
	static const char *const topics[] = { "a?c", "a_c", "a%c", "a[b]c", "a\\c", "ABC", "a-^c" };
	size_t count = sizeof(topics) / sizeof(topics[0]);

	for (size_t i = 0; i < count; i++)
		PUT(.topic = topics[i], .payload = "1");
	for (size_t i = 0; i < count; i++)
		CHECK_MSG(CLAIMED(.topic = topics[i]) == 1, "pattern %s", topics[i]);
	CHECK_INT(CLAIMED(.topic = "a*c"), count - 1);
	CHECK_INT(CLAIMED(.topic = "a[*]c"), 1);
	CHECK_INT(CLAIMED(.topic = "*?*"), 1);
	CHECK_INT(CLAIMED(.topic = "abc"), 0);
}

TEST(C6_expired_leases_outside_the_scope_are_not_reclaimed)
{
	postroom_batch *batch;

	put_many("mine", 1);
	put_many("theirs", 1);
	postroom_batch_free(CLAIM());
	EXPIRE_LEASES();
	batch = CLAIM(.topic = "mine");
	CHECK_STR(only_item(batch)->topic, "mine");
	postroom_batch_free(batch);
	batch = CLAIM(.topic = "mine", .max_attempts = 1);
	items_of(batch, 0);
	postroom_batch_free(batch);
	CHECK_INT(rows("dead"), 0);
}

TEST(C6_invalid_scope_is_an_error_and_claims_nothing)
{
	postroom_batch *batch = NULL;

	put_many("t", 1);
	CHECK_INT(postroom_claim(store, POSTROOM_CLAIM(.tenant_id = "no-tenant"), &batch),
		  POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_store_errmsg(store), "tenant");
	postroom_batch_free(batch);
	CHECK_INT(rows("pending"), 1);
}

/* TRAPS 37: a message that kills its worker must not take its neighbours along. */
TEST(C1_messages_of_dead_worker_are_reclaimed_one_at_a_time)
{
	int reclaim_expired = 0, newcomers = 0;

	put_many("left", 5);
	postroom_batch_free(CLAIM());
	EXPIRE_LEASES();
	put_many("new", 5);
	for (int i = 0; i < 20; i++) {
		postroom_batch *batch = CLAIM();
		size_t count = 0;
		postroom_delivery *items = pr_batch_items(batch, &count);

		for (size_t n = 0; n < count; n++) {
			if (items[n].attempt > 1) {
				CHECK_STR(items[n].topic, "left");
				CHECK_INT(count, 1);
				reclaim_expired++;
			} else {
				newcomers++;
			}
		}
		if (count > 0)
			CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
		postroom_batch_free(batch);
	}
	CHECK_INT(reclaim_expired, 5);
	CHECK_INT(newcomers, 5);
}

/* TRAPS 15 */
TEST(C2_every_worker_has_its_own_id)
{
	postroom_store *second = open_store();
	postroom_batch *a, *b;

	put_many("t", 2);
	a = CLAIM(.limit = 1);
	b = claim_from(second, POSTROOM_CLAIM(.limit = 1));
	CHECK_INT(number(app, "SELECT count(DISTINCT locked_by) FROM postroom_outbox"), 2);
	postroom_batch_free(a);
	postroom_batch_free(b);
	postroom_store_close(second);
}
