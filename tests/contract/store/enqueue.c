/* SPDX-License-Identifier: Apache-2.0 */
/* Enqueue in the application's transaction: E1, E2, E6 to E9, and what is carried through. */
#include "contract/store/backend.h"

#include <stdlib.h>

#define TENANT "0f5a3c1e-7b2d-4e9a-8c11-2233445566aa"

static void make_business_table(void)
{
	sql(app, "CREATE TABLE business (n INTEGER)");
}

TEST(E1_business_change_and_message_commit_together)
{
	struct session *other = join();
	postroom_receipt receipt;

	make_business_table();
	begin(app);
	sql(app, "INSERT INTO business VALUES (1)");
	CHECK_INT(postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "t", .payload = "{}"),
				   &receipt),
		  POSTROOM_OK);
	CHECK(backend->in_transaction(app));
	CHECK_INT(number(other, "SELECT count(*) FROM business"), 0);
	CHECK_INT(number(other, "SELECT count(*) FROM postroom_outbox"), 0);
	commit(app);
	CHECK_INT(number(other, "SELECT count(*) FROM business"), 1);
	CHECK_STR(text(other, "SELECT id FROM postroom_outbox"), receipt.id);
	leave(other);
}

TEST(E1_a_rolled_back_transaction_sends_nothing)
{
	make_business_table();
	begin(app);
	sql(app, "INSERT INTO business VALUES (1)");
	CHECK_INT(postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "t", .payload = "{}"), NULL),
		  POSTROOM_OK);
	rollback(app);
	CHECK_INT(number(app, "SELECT count(*) FROM business"), 0);
	CHECK_INT(rows(NULL), 0);
	postroom_batch_free(CLAIM());
}

TEST(E1_transaction_is_usable_after_bad_input_and_duplicates)
{
	static const postroom_message bad[] = {
		{ .size = sizeof(postroom_message), .topic = "", .payload = "{}" },
		{ .size = sizeof(postroom_message), .topic = "t", .payload = "{" },
		{ .size = sizeof(postroom_message),
		  .topic = "t",
		  .payload = "{}",
		  .tenant_id = "x" },
	};

	make_business_table();
	begin(app);
	sql(app, "INSERT INTO business VALUES (1)");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_INT(postroom_enqueue(app->box, &bad[i], NULL), POSTROOM_INVALID);
		CHECK(backend->in_transaction(app));
		CHECK_INT(number(app, "SELECT count(*) FROM business"), 1);
	}
	for (int i = 0; i < 3; i++)
		CHECK_INT(postroom_enqueue(app->box,
					   POSTROOM_MESSAGE(.topic = "t", .payload = "{}",
							    .dedupe_key = "once"),
					   NULL),
			  i == 0 ? POSTROOM_OK : POSTROOM_DUPLICATE);
	sql(app, "INSERT INTO business VALUES (2)");
	CHECK_INT(postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "t", .payload = "{}"), NULL),
		  POSTROOM_OK);
	commit(app);
	CHECK_INT(number(app, "SELECT count(*) FROM business"), 2);
	CHECK_INT(rows("pending"), 2);
}

TEST(E1_rollback_to_savepoint_removes_its_messages)
{
	begin(app);
	CHECK_INT(
		postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "kept", .payload = "1"), NULL),
		POSTROOM_OK);
	sql(app, "SAVEPOINT inner_one");
	CHECK_INT(
		postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "gone", .payload = "2"), NULL),
		POSTROOM_OK);
	sql(app, "ROLLBACK TO SAVEPOINT inner_one");
	commit(app);
	CHECK_STR(text(app, "SELECT topic FROM postroom_outbox"), "kept");
	CHECK_INT(rows(NULL), 1);
}

TEST(E1_missing_tables_are_named_and_transaction_stays_usable)
{
	make_business_table();
	sql(app, "DROP VIEW IF EXISTS postroom_messages");
	sql(app, "DROP TABLE postroom_outbox");
	begin(app);
	sql(app, "INSERT INTO business VALUES (1)");
	CHECK_INT(postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "t", .payload = "{}"), NULL),
		  POSTROOM_SCHEMA);
	CHECK_CONTAINS(postroom_errmsg(app->box), "migrate");
	CHECK(backend->in_transaction(app));
	commit(app);
	CHECK_INT(number(app, "SELECT count(*) FROM business"), 1);
}

static void check_new_row(void)
{
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "pending");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 0);
	CHECK_INT(number(app, "SELECT claims FROM postroom_outbox"), 0);
	CHECK_STR(text(app, "SELECT locked_by FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT locked_until FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT last_attempt_at FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT delivered_at FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT namespace FROM postroom_outbox"), "default");
	CHECK_STR(text(app, "SELECT content_type FROM postroom_outbox"), "application/json");
	CHECK_STR(text(app, "SELECT headers FROM postroom_outbox"), "{}");
	CHECK_STR(text(app, "SELECT dedupe_key FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT key FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT tenant_id FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT correlation_id FROM postroom_outbox"), "(null)");
	CHECK_STR(text(app, "SELECT body FROM postroom_outbox"), "(null)");
}

/* Rounding to milliseconds may put a time just before or behind the clock. */
#define NEAR_US 2000

static void check_times_between(int64_t before, int64_t after)
{
	int64_t created = time_of(app, "created_at", "true");
	int64_t updated = time_of(app, "updated_at", "true");

	CHECK_MSG(created >= before - NEAR_US && created <= after + NEAR_US,
		  "created_at %lld is not between %lld and %lld", (long long)created,
		  (long long)before, (long long)after);
	/* Each default may have looked at the clock by itself. */
	CHECK_MSG(updated >= created && updated <= after + NEAR_US,
		  "updated_at %lld is not between %lld and %lld", (long long)updated,
		  (long long)created, (long long)after);
}

TEST(E2_a_new_row_is_pending_due_now_and_unlocked)
{
	int64_t before = database_now_us(app);

	PUT(.topic = "t", .payload = "{}");
	check_new_row();
	check_times_between(before, database_now_us(app));
	CHECK_INT(time_of(app, "next_attempt_at", "true"), time_of(app, "created_at", "true"));
	CHECK_INT(time_of(app, "updated_at", "true"), time_of(app, "created_at", "true"));
}

TEST(E2_delay_and_head_start_move_the_due_time)
{
	PUT(.topic = "late", .payload = "{}", .delay_ms = 90000);
	PUT(.topic = "soon", .payload = "{}", .priority = 3600);
	PUT(.topic = "both", .payload = "{}", .delay_ms = 90000, .priority = 30);
	CHECK_INT(time_of(app, "next_attempt_at", "topic = 'late'") -
			  time_of(app, "created_at", "topic = 'late'"),
		  90000000);
	CHECK_INT(time_of(app, "next_attempt_at", "topic = 'soon'") -
			  time_of(app, "created_at", "topic = 'soon'"),
		  -3600000000LL);
	CHECK_INT(time_of(app, "next_attempt_at", "topic = 'both'") -
			  time_of(app, "created_at", "topic = 'both'"),
		  60000000);
}

static void check_claimed(const char *topic, const char *payload)
{
	postroom_batch *batch = claim_one();

	CHECK_STR(only_item(batch)->topic, topic);
	CHECK_STR(only_item(batch)->payload, payload);
	postroom_batch_free(batch);
}

static void check_uuid_v7(const char *id, int64_t before_us, int64_t after_us)
{
	char high[9] = "", low[5] = "";
	int64_t ms;

	CHECK_INT(strlen(id), 36);
	for (int i = 0; i < 36; i++) {
		if (i == 8 || i == 13 || i == 18 || i == 23)
			CHECK_MSG(id[i] == '-', "%s", id);
		else
			CHECK_MSG(strchr("0123456789abcdef", id[i]), "%s", id);
	}
	CHECK_MSG(id[14] == '7', "version of %s", id);
	CHECK_MSG(strchr("89ab", id[19]), "variant of %s", id);
	memcpy(high, id, 8);
	memcpy(low, id + 9, 4);
	ms = ((int64_t)strtoul(high, NULL, 16) << 16) + (int64_t)strtoul(low, NULL, 16);
	CHECK_MSG(ms >= before_us / 1000 - 2 && ms <= after_us / 1000 + 2,
		  "time of %s: %lld is not between %lld and %lld", id, (long long)ms,
		  (long long)(before_us / 1000), (long long)(after_us / 1000));
}

TEST(E6_plain_insert_gets_every_default)
{
	int64_t before = database_now_us(app), after;

	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '{\"a\": 1}')");
	after = database_now_us(app);
	check_new_row();
	check_times_between(before, after);
	check_uuid_v7(text(app, "SELECT id FROM postroom_outbox"), before, after);
	check_claimed("t", "{\"a\": 1}");
}

TEST(E6_ids_made_by_sql_are_uuid_v7_and_all_different)
{
	int64_t before = database_now_us(app), after;

	for (int i = 0; i < 500; i++)
		sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '{}')");
	after = database_now_us(app);
	CHECK_INT(number(app, "SELECT count(DISTINCT id) FROM postroom_outbox"), 500);
	for (int i = 0; i < 500; i++)
		check_uuid_v7(text(app,
				   "SELECT id FROM postroom_outbox ORDER BY seq LIMIT 1 OFFSET %d",
				   i),
			      before, after);
}

TEST(E6_plain_insert_commits_with_the_business_change)
{
	make_business_table();
	begin(app);
	sql(app, "INSERT INTO business VALUES (1)");
	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('gone', '{}')");
	rollback(app);
	begin(app);
	sql(app, "INSERT INTO business VALUES (2)");
	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('sent', '{}')");
	commit(app);
	check_claimed("sent", "{}");
}

TEST(E6_ids_made_by_the_library_are_uuid_v7_and_grow)
{
	int64_t before = database_now_us(app);
	char last[POSTROOM_ID_SIZE] = "";

	for (int i = 0; i < 500; i++) {
		postroom_receipt receipt = PUT(.topic = "t", .payload = "{}");

		check_uuid_v7(receipt.id, before, database_now_us(app));
		CHECK_MSG(strcmp(receipt.id, last) > 0, "%s is not after %s", receipt.id, last);
		memcpy(last, receipt.id, sizeof(last));
	}
}

#define MANY 5000

static postroom_message *many_messages(void)
{
	postroom_message *messages = calloc(MANY, sizeof(*messages));

	CHECK(messages);
	for (int i = 0; i < MANY; i++)
		messages[i] = *POSTROOM_MESSAGE(.topic = "bulk", .payload = "{\"n\":1}");
	return messages;
}

TEST(E7_bulk_returns_one_receipt_per_message)
{
	postroom_message *messages = many_messages();
	postroom_receipt *receipts = calloc(MANY, sizeof(*receipts));

	CHECK(receipts);
	messages[7].dedupe_key = messages[4000].dedupe_key = "twice";
	begin(app);
	CHECK_INT(postroom_enqueue_many(app->box, messages, MANY, receipts), POSTROOM_OK);
	commit(app);
	CHECK_INT(rows("pending"), MANY - 1);
	for (int i = 0; i < MANY; i++) {
		CHECK_INT(receipts[i].duplicate, i == 4000);
		CHECK_INT(strlen(receipts[i].id), 36);
	}
	CHECK_STR(receipts[4000].id, receipts[7].id);
	CHECK_STR(receipts[4000].dedupe_key, "twice");
	CHECK_STR(receipts[8].dedupe_key, "");
	CHECK_STR(text(app, "SELECT id FROM postroom_outbox ORDER BY seq LIMIT 1 OFFSET 100"),
		  receipts[100].id);
	free(receipts);
	free(messages);
}

TEST(E7_one_bad_message_in_the_middle_writes_nothing_and_is_named)
{
	postroom_message *messages = many_messages();

	make_business_table();
	messages[2517].payload = "{\"n\":}";
	begin(app);
	sql(app, "INSERT INTO business VALUES (1)");
	CHECK_INT(postroom_enqueue_many(app->box, messages, MANY, NULL), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_errmsg(app->box), "message 2518:");
	CHECK_CONTAINS(postroom_errmsg(app->box), "payload");
	CHECK_INT(rows(NULL), 0);
	messages[2517].payload = "{\"n\":0}";
	CHECK_INT(postroom_enqueue_many(app->box, messages, MANY, NULL), POSTROOM_OK);
	commit(app);
	CHECK_INT(rows("pending"), MANY);
	CHECK_INT(number(app, "SELECT count(*) FROM business"), 1);
	free(messages);
}

TEST(E7_bulk_without_a_transaction_is_refused)
{
	postroom_message *messages = many_messages();

	CHECK_INT(postroom_enqueue_many(app->box, messages, 10, NULL), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_errmsg(app->box), "transaction");
	CHECK_INT(rows(NULL), 0);
	free(messages);
}

TEST(E7_empty_bulk_succeeds)
{
	begin(app);
	CHECK_INT(postroom_enqueue_many(app->box, NULL, 0, NULL), POSTROOM_OK);
	commit(app);
	CHECK_INT(rows(NULL), 0);
}

TEST(E8_claim_returns_every_field_of_a_message)
{
	postroom_receipt receipt = PUT(.topic = "orders.created",
				       .payload = " {\"b\": 1, \"a\": [2.50, \"\\u00e9\"]}\n",
				       .ns = "shop", .key = "o-1", .tenant_id = TENANT,
				       .idempotency_key = "i-1",
				       .headers = "{\"traceparent\": \"00-1\"}",
				       .correlation_id = "c-1",
				       .content_type = "application/vnd.shop+json");
	int64_t created = time_of(app, "created_at", "true");
	postroom_batch *batch = claim_one();
	postroom_delivery *item = only_item(batch);

	CHECK_STR(item->id, receipt.id);
	CHECK_STR(item->ns, "shop");
	CHECK_STR(item->topic, "orders.created");
	CHECK_STR(item->key, "o-1");
	CHECK_STR(item->tenant_id, TENANT);
	CHECK_STR(item->dedupe_key, TENANT "/i-1");
	CHECK_STR(item->correlation_id, "c-1");
	CHECK_STR(item->content_type, "application/vnd.shop+json");
	CHECK_STR(item->headers, "{\"traceparent\": \"00-1\"}");
	CHECK(!item->body);
	CHECK_INT(item->body_len, 0);
	CHECK_INT(item->attempt, 1);
	CHECK_INT(item->created_at_us, created);
	postroom_batch_free(batch);
}

TEST(E8_omitted_fields_are_null)
{
	postroom_batch *batch;
	postroom_delivery *item;

	PUT(.topic = "t", .payload = "1");
	batch = claim_one();
	item = only_item(batch);
	CHECK_STR(item->ns, "default");
	CHECK(!item->key && !item->tenant_id && !item->dedupe_key && !item->correlation_id);
	CHECK_STR(item->content_type, "application/json");
	CHECK_STR(item->headers, "{}");
	postroom_batch_free(batch);
}

TEST(E8_a_binary_body_is_carried_byte_for_byte)
{
	unsigned char body[256];
	postroom_batch *batch;
	postroom_delivery *item;

	for (int i = 0; i < 256; i++)
		body[i] = (unsigned char)(255 - i);
	PUT(.topic = "t", .body = body, .body_len = sizeof(body));
	batch = claim_one();
	item = only_item(batch);
	CHECK_STR(item->payload, "null");
	CHECK_STR(item->content_type, "application/octet-stream");
	CHECK_INT(item->body_len, sizeof(body));
	CHECK(memcmp(item->body, body, sizeof(body)) == 0);
	postroom_batch_free(batch);
}

TEST(E8_a_delayed_message_waits_until_it_is_due)
{
	PUT(.topic = "t", .payload = "1", .delay_ms = 3600000);
	postroom_batch_free(CLAIM());
	CHECK_INT(rows("processing"), 0);
	shift("next_attempt_at", -3599);
	postroom_batch_free(CLAIM());
	CHECK_INT(rows("processing"), 0);
	shift("next_attempt_at", -2);
	postroom_batch_free(claim_one());
}

TEST(E8_a_priority_overtakes_by_its_head_start)
{
	postroom_batch *batch;
	postroom_delivery *items;

	PUT(.topic = "old", .payload = "1");
	shift("next_attempt_at", -100);
	PUT(.topic = "plain", .payload = "1");
	PUT(.topic = "bit", .payload = "1", .priority = 50);
	PUT(.topic = "much", .payload = "1", .priority = 200);
	batch = CLAIM();
	items = items_of(batch, 4);
	CHECK_STR(items[0].topic, "much");
	CHECK_STR(items[1].topic, "old");
	CHECK_STR(items[2].topic, "bit");
	CHECK_STR(items[3].topic, "plain");
	postroom_batch_free(batch);
}

TEST(E9_enqueue_does_not_interpret_the_payload)
{
	static const char *const payloads[] = {
		"{\"error\": \"no\", \"status\": \"failed\"}",
		"{\"success\": false}",
		"null",
		"false",
		"0",
		"\"\"",
		"[]",
		"{}",
		"{\"emit\": false, \"skip\": true}",
	};
	size_t count = sizeof(payloads) / sizeof(payloads[0]);
	postroom_batch *batch;
	postroom_delivery *items;

	for (size_t i = 0; i < count; i++)
		CHECK_INT(PUT(.topic = "t", .payload = payloads[i]).duplicate, 0);
	batch = CLAIM();
	items = items_of(batch, count);
	for (size_t i = 0; i < count; i++)
		CHECK_STR(items[i].payload, payloads[i]);
	postroom_batch_free(batch);
}
