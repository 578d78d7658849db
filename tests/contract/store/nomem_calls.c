/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the library, for nomem.c to starve. */
#include "contract/store/nomem.h"

#define TENANT "0f5a3c1e-7b2d-4e9a-8c11-2233445566aa"

static const postroom_message messages[] = {
	{ .size = sizeof(postroom_message),
	  .topic = "a.one",
	  .payload = "{\"n\": 1}",
	  .key = "k",
	  .tenant_id = TENANT,
	  .idempotency_key = "i-1",
	  .headers = "{\"h\": \"v\"}",
	  .correlation_id = "c" },
	{ .size = sizeof(postroom_message), .topic = "a.two", .body = "binary", .body_len = 6 },
	{ .size = sizeof(postroom_message), .topic = "b.three", .payload = "{\"n\": 3}" },
};

static void fill(void)
{
	app_begin();
	CHECK_INT(postroom_enqueue_many(world.box, messages, 3, NULL), POSTROOM_OK);
	app_sql("COMMIT");
}

static void fill_and_claim(void)
{
	fill();
	CHECK_INT(postroom_claim(world.store, POSTROOM_CLAIM(0), &world.batch), POSTROOM_OK);
}

static void fill_and_dead_letter(void)
{
	size_t count;
	postroom_delivery *items;

	fill_and_claim();
	items = pr_batch_items(world.batch, &count);
	CHECK_INT(postroom_reject(world.store, world.batch, items, count, "poison"), POSTROOM_OK);
}

static void fill_and_deliver(void)
{
	size_t count;
	postroom_delivery *items;

	fill_and_claim();
	items = pr_batch_items(world.batch, &count);
	CHECK_INT(postroom_ack(world.store, world.batch, items, count), POSTROOM_OK);
}

static void fill_and_expire(void)
{
	fill();
	CHECK_INT(postroom_claim(world.store, POSTROOM_CLAIM(.max_attempts = 1), &world.batch),
		  POSTROOM_OK);
	expire_leases();
}

static int open_store(void)
{
	postroom_store *store = NULL;
	int status = try_open(&store);

	CHECK((status < 0) == (store == NULL || *postroom_store_errmsg(store)));
	postroom_store_close(store);
	return status;
}

TORTURE(E5_no_memory_to_open_a_store, .run = open_store, .stride = 3)

static void reopen(void)
{
	find_tables();
	CHECK(number("SELECT count(*) FROM postroom_migrations") > 0);
}

TORTURE(U1_no_memory_to_make_the_tables, .prepare = lose_tables, .run = try_make_tables,
	.done = reopen, .stride = 29)

static int make_box(void)
{
	postroom_box *box = new_box();

	if (!box)
		return POSTROOM_NOMEM;
	postroom_box_free(box);
	return POSTROOM_OK;
}

TORTURE(E1_no_memory_to_make_a_box, .run = make_box)

static void begin_with_business(void)
{
	app_sql("CREATE TABLE IF NOT EXISTS business (n integer)");
	app_begin();
	app_sql("INSERT INTO business VALUES (1)");
}

static int enqueue_one(void)
{
	postroom_receipt receipt;
	int status = postroom_enqueue(world.box, &messages[0], &receipt);

	if (status >= 0)
		CHECK_INT(strlen(receipt.id), 36);
	return status;
}

/* Either still open with all that was in it, or rolled back and reported so. */
static void transaction_is_whole_or_gone(void)
{
	if (!app_in_transaction())
		begin_with_business();
	CHECK_INT(number("SELECT count(*) FROM business"), 1);
	CHECK_INT(number("SELECT count(*) FROM postroom_outbox"), 0);
}

static void business_and_message_commit(void)
{
	app_sql("COMMIT");
	CHECK_INT(number("SELECT count(*) FROM business"), 1);
	CHECK_INT(rows("pending"), 1);
}

TORTURE(E1_no_memory_to_enqueue, .prepare = begin_with_business, .run = enqueue_one,
	.unchanged = transaction_is_whole_or_gone, .done = business_and_message_commit)

static int enqueue_duplicate(void)
{
	postroom_receipt receipt;
	int status = postroom_enqueue(world.box, &messages[0], &receipt);

	if (status >= 0) {
		CHECK_INT(status, POSTROOM_DUPLICATE);
		CHECK_INT(receipt.duplicate, 1);
		CHECK_INT(receipt.differs, 0);
		CHECK_INT(strlen(receipt.id), 36);
	}
	return status;
}

TORTURE(E3_no_memory_to_find_the_first, .prepare = fill, .run = enqueue_duplicate)

static void nothing_written(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_outbox"), 0);
}

static void three_pending(void)
{
	CHECK_INT(rows("pending"), 3);
}

/* The transaction is the test's own and must not fail. */
static int enqueue_all(void)
{
	long paused = pause_failures();
	int status;

	app_begin();
	resume_failures(paused);
	status = postroom_enqueue_many(world.box, messages, 3, NULL);
	pause_failures();
	if (status >= 0)
		app_sql("COMMIT");
	else if (app_in_transaction())
		app_sql("ROLLBACK");
	return status;
}

TORTURE(E7_no_memory_to_enqueue_many, .run = enqueue_all, .unchanged = nothing_written,
	.done = three_pending)

static void check_item(const postroom_delivery *item)
{
	bool first = strcmp(item->topic, "a.one") == 0;

	CHECK_INT(strlen(item->id), 36);
	CHECK_STR(item->ns, "default");
	CHECK_STR(item->payload, first ? "{\"n\": 1}" : "null");
	CHECK_STR(item->headers, first ? "{\"h\": \"v\"}" : "{}");
	if (first) {
		CHECK_STR(item->key, "k");
		CHECK_STR(item->tenant_id, TENANT);
		CHECK_STR(item->dedupe_key, TENANT "/i-1");
		CHECK_STR(item->correlation_id, "c");
		CHECK_STR(item->content_type, "application/json");
	} else {
		CHECK_STR(item->topic, "a.two");
		CHECK_STR(item->content_type, "application/octet-stream");
		CHECK_INT(item->body_len, 6);
		CHECK(memcmp(item->body, "binary", 6) == 0);
	}
}

/* A scope that is lost on the way would claim too much; a column, too little. */
static int claim_in_scope(void)
{
	size_t count;
	int status = postroom_claim(world.store, POSTROOM_CLAIM(.topic = "a.*"), &world.batch);

	if (status < 0) {
		CHECK(!world.batch);
		return status;
	}
	pr_batch_items(world.batch, &count);
	CHECK_INT(count, 2);
	for (size_t i = 0; i < count; i++)
		check_item(&pr_batch_items(world.batch, &count)[i]);
	return status;
}

static void none_claimed(void)
{
	CHECK_INT(rows("pending"), 3);
	CHECK_INT(number("SELECT sum(attempts) + sum(claims) FROM postroom_outbox"), 0);
}

static void scope_claimed(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_outbox WHERE status = 'processing'"
			 " AND topic LIKE 'a.%' AND attempts = 1 AND claims = 1"),
		  2);
	CHECK_INT(rows("pending"), 1);
}

TORTURE(C2_no_memory_to_claim, .prepare = fill, .run = claim_in_scope, .unchanged = none_claimed,
	.done = scope_claimed, .one_statement = true, .stride = 3)

static bool any_left(void)
{
	long paused = pause_failures();
	bool any = rows("processing") > 0;

	resume_failures(paused);
	return any;
}

/* Messages of a dead worker may be reclaimed one at a time. */
static int claim_nothing_left(void)
{
	int status = POSTROOM_OK;

	while (status >= 0 && any_left()) {
		postroom_batch *batch = NULL;
		size_t count = 0;

		status = postroom_claim(world.store, POSTROOM_CLAIM(.max_attempts = 1), &batch);
		if (status >= 0)
			pr_batch_items(batch, &count);
		CHECK_INT(count, 0);
		postroom_batch_free(batch);
	}
	return status;
}

static void still_processing(void)
{
	CHECK_INT(rows("processing"), 3);
}

static void all_dead(void)
{
	CHECK_INT(rows("dead"), 3);
}

TORTURE(C5_lack_of_memory_for_dead_letters_while_claiming_is_reported, .prepare = fill_and_expire,
	.run = claim_nothing_left, .unchanged = still_processing, .done = all_dead,
	.one_statement = true)

static int sweep(void)
{
	int64_t dead_letters = -1;
	int status = postroom_sweep(world.store, 1, &dead_letters);

	CHECK_INT(dead_letters, status < 0 ? -1 : 3);
	return status;
}

TORTURE(C5_no_memory_to_sweep, .prepare = fill_and_expire, .run = sweep,
	.unchanged = still_processing, .done = all_dead, .one_statement = true)

static postroom_delivery *claimed(size_t *count)
{
	return pr_batch_items(world.batch, count);
}

static int ack(void)
{
	size_t count;
	postroom_delivery *items = claimed(&count);

	return postroom_ack(world.store, world.batch, items, count);
}

static void all_delivered(void)
{
	CHECK_INT(rows("delivered"), 3);
}

TORTURE(A1_no_memory_to_ack, .prepare = fill_and_claim, .run = ack, .unchanged = still_processing,
	.done = all_delivered)

static int nack(void)
{
	size_t count;
	postroom_delivery *items = claimed(&count);
	char reason[5000];

	memset(reason, 'x', sizeof(reason));
	reason[sizeof(reason) - 1] = 0;
	return postroom_nack(world.store, world.batch, items, count, reason);
}

/* Without memory for its reason a failure is still a failure. */
static void all_tried_once(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_outbox WHERE status = 'pending'"
			 " AND attempts = 1 AND locked_by IS NULL"
			 " AND (last_error IS NULL OR length(last_error) = 2000)"),
		  3);
}

TORTURE(A3_no_memory_to_nack, .prepare = fill_and_claim, .run = nack, .unchanged = still_processing,
	.done = all_tried_once)

static int settle_mixed(void)
{
	size_t count;
	postroom_delivery *items = claimed(&count);

	items[0].verdict = POSTROOM_REJECTED;
	items[1].verdict = POSTROOM_UNTRIED;
	items[2].verdict = POSTROOM_DELIVERED;
	return postroom_settle(world.store, world.batch, items, count);
}

static void all_settled(void)
{
	CHECK_INT(rows("dead"), 1);
	CHECK_INT(rows("pending"), 1);
	CHECK_INT(rows("delivered"), 1);
}

TORTURE(A4_no_memory_to_settle, .prepare = fill_and_claim, .run = settle_mixed,
	.unchanged = still_processing, .done = all_settled)

static int renew(void)
{
	size_t count;
	postroom_delivery *items = claimed(&count);

	return postroom_renew(world.store, world.batch, items, count);
}

TORTURE(A7_no_memory_to_renew, .prepare = fill_and_claim, .run = renew,
	.unchanged = still_processing, .done = still_processing)

static int see_row(void *context, const postroom_row *row)
{
	int *seen = context;

	CHECK(row->id && row->ns && row->topic && row->payload && row->content_type &&
	      row->headers && row->status);
	if (strcmp(row->topic, "a.one") == 0)
		CHECK(row->key && row->tenant_id && row->dedupe_key && row->correlation_id &&
		      row->last_error);
	if (strcmp(row->topic, "a.two") == 0)
		CHECK(row->body && row->body_len == 6);
	++*seen;
	return 0;
}

static int list(void)
{
	int seen = 0;
	int status = postroom_list(world.store, POSTROOM_FILTER(.topic = "a.*"), 10, see_row,
				   &seen);

	CHECK(status < 0 || seen == 2);
	return status;
}

TORTURE(X1_no_memory_to_list, .prepare = fill_and_dead_letter, .run = list)

static int show(void)
{
	char id[POSTROOM_ID_SIZE];
	size_t count;
	int seen = 0, status;

	memcpy(id, claimed(&count)[0].id, sizeof(id));
	status = postroom_show(world.store, POSTROOM_FILTER(.id = id), see_row, &seen);
	CHECK(status < 0 || seen == 1);
	return status;
}

TORTURE(X1_no_memory_to_show, .prepare = fill_and_dead_letter, .run = show)

static int retry_one(void)
{
	size_t count;
	int status = postroom_retry(world.store, POSTROOM_FILTER(.id = claimed(&count)[1].id));

	return status;
}

static void one_alive(void)
{
	CHECK_INT(rows("dead"), 2);
	CHECK_INT(rows("pending"), 1);
}

TORTURE(X1_no_memory_to_retry, .prepare = fill_and_dead_letter, .run = retry_one,
	.unchanged = all_dead, .done = one_alive)

static int retry_scope(void)
{
	int64_t done = -1;
	int status = postroom_retry_some(world.store, POSTROOM_FILTER(.topic = "b.*"), 10, &done);

	CHECK(status < 0 || done == 1);
	return status;
}

TORTURE(X1_no_memory_to_retry_some, .prepare = fill_and_dead_letter, .run = retry_scope,
	.unchanged = all_dead, .done = one_alive)

static int purge_scope(void)
{
	int64_t done = -1;
	int status = postroom_purge_some(
		world.store, POSTROOM_FILTER(.status = "delivered", .topic = "b.*"), 10, &done);

	CHECK(status < 0 || done == 1);
	return status;
}

static void two_delivered(void)
{
	CHECK_INT(rows("delivered"), 2);
}

TORTURE(X2_no_memory_to_purge, .prepare = fill_and_deliver, .run = purge_scope,
	.unchanged = all_delivered, .done = two_delivered)

static void see_topic(void *context, const char *ns, const char *topic,
		      const postroom_counts *counts)
{
	int *seen = context;

	CHECK(ns && topic && counts->dead == 1);
	++*seen;
}

static int stats(void)
{
	postroom_counts counts;
	int seen = 0;
	int status = postroom_stats(world.store, NULL, &counts, see_topic, &seen);

	CHECK(status < 0 || (seen == 3 && counts.dead == 3));
	return status;
}

TORTURE(M1_no_memory_to_count, .prepare = fill_and_dead_letter, .run = stats)
