/* SPDX-License-Identifier: Apache-2.0 */
/* Duplicates and idempotency keys: E3, I1 to I4. */
#include "contract/store/backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define TENANT_A "0f5a3c1e-7b2d-4e9a-8c11-2233445566aa"
#define TENANT_B "1f5a3c1e-7b2d-4e9a-8c11-2233445566bb"

TEST(E3_a_conflict_is_success_and_names_the_first_row)
{
	postroom_receipt first = PUT(.topic = "t", .payload = "1", .dedupe_key = "k");
	postroom_receipt second = PUT(.topic = "t", .payload = "1", .dedupe_key = "k");

	CHECK_INT(first.duplicate, 0);
	CHECK_INT(second.duplicate, 1);
	CHECK_STR(second.id, first.id);
	CHECK_STR(second.dedupe_key, "k");
	CHECK_INT(rows(NULL), 1);
}

TEST(E3_a_key_is_unique_within_namespace_and_topic_only)
{
	PUT(.topic = "t", .payload = "1", .dedupe_key = "k");
	CHECK_INT(PUT(.topic = "u", .payload = "1", .dedupe_key = "k").duplicate, 0);
	CHECK_INT(PUT(.topic = "t", .ns = "n", .payload = "1", .dedupe_key = "k").duplicate, 0);
	CHECK_INT(PUT(.topic = "t", .payload = "1", .dedupe_key = "K").duplicate, 0);
	CHECK_INT(PUT(.topic = "t", .ns = "n", .payload = "1", .dedupe_key = "k").duplicate, 1);
	CHECK_INT(rows(NULL), 4);
}

/* TRAPS 26: a unique index over a NULL tenant would enforce nothing. */
TEST(E3_keys_without_a_tenant_are_unique_too)
{
	PUT(.topic = "t", .payload = "1", .idempotency_key = "k");
	CHECK_INT(PUT(.topic = "t", .payload = "1", .idempotency_key = "k").duplicate, 1);
	refused(app,
		"INSERT INTO postroom_outbox (topic, payload, dedupe_key) VALUES ('t', '1', 'k')");
	CHECK_INT(rows(NULL), 1);
}

TEST(E3_key_stays_unique_in_every_state_of_its_message)
{
	static const char *const states[] = { "delivered", "dead" };

	for (size_t i = 0; i < 2; i++) {
		postroom_receipt first = PUT(.topic = states[i], .payload = "1", .dedupe_key = "k");
		postroom_batch *batch = claim_one();

		if (i == 0)
			CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
		else
			CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "no"),
				  POSTROOM_OK);
		CHECK_INT(rows(states[i]), 1);
		CHECK_STR(PUT(.topic = states[i], .payload = "1", .dedupe_key = "k").id, first.id);
		postroom_batch_free(batch);
	}
	CHECK_INT(rows(NULL), 2);
}

TEST(E3_a_duplicate_within_one_transaction_is_seen)
{
	postroom_receipt first, second;

	begin(app);
	CHECK_INT(
		postroom_enqueue(app->box,
				 POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = "k"),
				 &first),
		POSTROOM_OK);
	CHECK_INT(
		postroom_enqueue(app->box,
				 POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = "k"),
				 &second),
		POSTROOM_DUPLICATE);
	CHECK_STR(second.id, first.id);
	rollback(app);
	CHECK_INT(PUT(.topic = "t", .payload = "1", .dedupe_key = "k").duplicate, 0);
}

/* TRAPS 28 */
TEST(E3_duplicate_reports_whether_its_content_differs)
{
	CHECK_INT(PUT(.topic = "t", .payload = "{\"a\": 1}", .dedupe_key = "k").differs, 0);
	CHECK_INT(PUT(.topic = "t", .payload = "{\"a\": 1}", .dedupe_key = "k").differs, 0);
	CHECK_INT(PUT(.topic = "t", .payload = "{\"a\": 2}", .dedupe_key = "k").differs, 1);
	CHECK_INT(PUT(.topic = "t", .body = "x", .body_len = 1, .dedupe_key = "k").differs, 1);
	CHECK_INT(PUT(.topic = "t", .body = "x", .body_len = 1, .dedupe_key = "b").differs, 0);
	CHECK_INT(PUT(.topic = "t", .body = "x", .body_len = 1, .dedupe_key = "b").differs, 0);
	CHECK_INT(PUT(.topic = "t", .body = "y", .body_len = 1, .dedupe_key = "b").differs, 1);
	CHECK_INT(PUT(.topic = "t", .payload = "null", .dedupe_key = "b").differs, 1);
	CHECK_STR(text(app, "SELECT payload FROM postroom_outbox WHERE dedupe_key = 'k'"),
		  "{\"a\": 1}");
}

#define PRODUCERS 4
#define KEYS 150

struct tally {
	int results[2]; /* pipe: one byte for each message that was new */
};

static void produce_all_keys(void *context, int index)
{
	struct tally *tally = context;
	struct session *me = join();
	char key[20];

	for (int i = 0; i < KEYS; i++) {
		int status;

		snprintf(key, sizeof(key), "k-%d", index % 2 ? i : KEYS - 1 - i);
		begin(me);
		status = postroom_enqueue(
			me->box, POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = key),
			NULL);
		CHECK_MSG(status >= 0, "enqueue: %s", postroom_errmsg(me->box));
		commit(me);
		if (status == POSTROOM_OK)
			CHECK_INT(write(tally->results[1], "", 1), 1);
	}
	leave(me);
}

TEST(E3_parallel_producers_leave_one_row_for_each_key)
{
	struct tally tally;
	char byte;
	int created = 0;

	CHECK_INT(pipe(tally.results), 0);
	in_parallel(PRODUCERS, produce_all_keys, &tally);
	close(tally.results[1]);
	while (read(tally.results[0], &byte, 1) == 1)
		created++;
	close(tally.results[0]);
	CHECK_INT(created, KEYS);
	CHECK_INT(rows(NULL), KEYS);
	CHECK_INT(number(app, "SELECT count(DISTINCT dedupe_key) FROM postroom_outbox"), KEYS);
}

struct waiter {
	struct session *session;
	int status;
	postroom_receipt receipt;
};

static void *enqueue_behind_another(void *context)
{
	struct waiter *waiter = context;

	begin(waiter->session);
	waiter->status = postroom_enqueue(
		waiter->session->box,
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = "k"),
		&waiter->receipt);
	commit(waiter->session);
	return NULL;
}

/* Starts a producer of the key that app's open transaction holds, and returns when it has to wait. */
static void start_waiter(struct waiter *waiter, pthread_t *thread, int blocked[2])
{
	char byte;

	CHECK_INT(pipe(blocked), 0);
	waiter->session = join();
	backend->announce_when_blocked(waiter->session, blocked[1]);
	CHECK_INT(pthread_create(thread, NULL, enqueue_behind_another, waiter), 0);
	CHECK_INT(read(blocked[0], &byte, 1), 1);
}

static void end_waiter(struct waiter *waiter, pthread_t thread, int blocked[2])
{
	CHECK_INT(pthread_join(thread, NULL), 0);
	leave(waiter->session);
	close(blocked[0]);
	close(blocked[1]);
}

/* TRAPS 23: "another transaction holds the key" is not "already enqueued". */
TEST(E3_waiting_enqueue_inserts_if_holder_of_key_rolls_back)
{
	struct waiter waiter = { .status = -100 };
	postroom_receipt held;
	pthread_t thread;
	int blocked[2];

	begin(app);
	CHECK_INT(postroom_enqueue(
			  app->box,
			  POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = "k"), &held),
		  POSTROOM_OK);
	start_waiter(&waiter, &thread, blocked);
	rollback(app);
	end_waiter(&waiter, thread, blocked);
	CHECK_INT(waiter.status, POSTROOM_OK);
	CHECK(strcmp(waiter.receipt.id, held.id) != 0);
	CHECK_STR(text(app, "SELECT id FROM postroom_outbox"), waiter.receipt.id);
	CHECK_INT(rows(NULL), 1);
}

/* TRAPS 22 */
TEST(E3_waiting_enqueue_returns_first_id_if_holder_of_key_commits)
{
	struct waiter waiter = { .status = -100 };
	postroom_receipt held;
	pthread_t thread;
	int blocked[2];

	begin(app);
	CHECK_INT(postroom_enqueue(
			  app->box,
			  POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = "k"), &held),
		  POSTROOM_OK);
	start_waiter(&waiter, &thread, blocked);
	commit(app);
	end_waiter(&waiter, thread, blocked);
	CHECK_INT(waiter.status, POSTROOM_DUPLICATE);
	CHECK_STR(waiter.receipt.id, held.id);
	CHECK_INT(rows(NULL), 1);
}

TEST(I1_the_key_is_the_same_for_every_caller)
{
	char key[POSTROOM_ID_SIZE], again[POSTROOM_ID_SIZE];

	/* printf %s acme:billing:inv-1:paid:0 | sha256sum | cut -c1-32 */
	CHECK_INT(postroom_key("acme", "billing", "inv-1", "paid", NULL, key), POSTROOM_OK);
	CHECK_STR(key, "0337af23-8959-242a-81a6-2733c35f5deb");
	CHECK_INT(postroom_key("ACME", "Billing", "INV-1", "Paid", "0", again), POSTROOM_OK);
	CHECK_STR(again, key);
	CHECK_INT(postroom_key("acme", "bill:ing", "inv-1", "paid", NULL, again), POSTROOM_INVALID);
	CHECK_INT(postroom_key("acme", "billing", "inv:1", "paid", NULL, again), POSTROOM_OK);
}

TEST(I2_an_idempotency_key_is_scoped_to_its_tenant)
{
	postroom_receipt a = PUT(.topic = "t", .payload = "1", .tenant_id = TENANT_A,
				 .idempotency_key = "k");
	postroom_receipt b = PUT(.topic = "t", .payload = "1", .tenant_id = TENANT_B,
				 .idempotency_key = "k");
	postroom_receipt none = PUT(.topic = "t", .payload = "1", .idempotency_key = "k");
	postroom_receipt again = PUT(.topic = "t", .payload = "1", .tenant_id = TENANT_A,
				     .idempotency_key = "k");

	CHECK_STR(a.dedupe_key, TENANT_A "/k");
	CHECK_STR(b.dedupe_key, TENANT_B "/k");
	CHECK_STR(none.dedupe_key, "k");
	CHECK_INT(a.duplicate + b.duplicate + none.duplicate, 0);
	CHECK_INT(again.duplicate, 1);
	CHECK_STR(again.id, a.id);
	CHECK_INT(rows(NULL), 3);
	CHECK_STR(text(app, "SELECT dedupe_key FROM postroom_outbox WHERE id = '%s'", a.id),
		  TENANT_A "/k");
}

TEST(I2_case_of_a_tenant_is_ignored)
{
	PUT(.topic = "t", .payload = "1", .tenant_id = TENANT_A, .idempotency_key = "k");
	CHECK_INT(PUT(.topic = "t", .payload = "1",
		      .tenant_id = "0F5A3C1E-7B2D-4E9A-8C11-2233445566AA", .idempotency_key = "k")
			  .duplicate,
		  1);
	CHECK_STR(text(app, "SELECT tenant_id FROM postroom_outbox"), TENANT_A);
}

TEST(I3_messages_without_a_key_are_never_duplicates)
{
	postroom_receipt first = PUT(.topic = "t", .payload = "1", .tenant_id = TENANT_A);
	postroom_receipt second = PUT(.topic = "t", .payload = "1", .tenant_id = TENANT_A);

	CHECK(strcmp(first.id, second.id) != 0);
	CHECK_STR(first.dedupe_key, "");
	CHECK_INT(first.duplicate + second.duplicate, 0);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE dedupe_key IS NULL"), 2);
}

TEST(I4_receipt_has_id_key_and_duplicate)
{
	postroom_receipt receipt = PUT(.topic = "t", .payload = "1", .idempotency_key = "k");

	CHECK_STR(receipt.id, text(app, "SELECT id FROM postroom_outbox"));
	CHECK_STR(receipt.dedupe_key, text(app, "SELECT dedupe_key FROM postroom_outbox"));
	CHECK_INT(receipt.duplicate, 0);
	CHECK_INT(PUT(.topic = "t", .payload = "1", .idempotency_key = "k").duplicate, 1);
}
