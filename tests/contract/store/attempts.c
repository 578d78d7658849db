/* SPDX-License-Identifier: Apache-2.0 */
/* The history of failed attempts: X1, N4. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

struct log {
	char text[400];
	char worker[40], sink[20];
	int64_t duration_ms;
	int count;
};

static int add(void *context, const postroom_attempt *attempt)
{
	struct log *log = context;
	size_t len = strlen(log->text);

	snprintf(log->text + len, sizeof(log->text) - len, "%d %s; ", attempt->number,
		 attempt->error);
	snprintf(log->worker, sizeof(log->worker), "%s",
		 attempt->worker ? attempt->worker : "(null)");
	snprintf(log->sink, sizeof(log->sink), "%s", attempt->sink ? attempt->sink : "(null)");
	log->duration_ms = attempt->duration_ms;
	log->count++;
	CHECK(attempt->at_us > 0);
	return 0;
}

static struct log attempts_of(const postroom_filter *filter)
{
	struct log log = { 0 };

	CHECK_MSG(postroom_attempts(store, filter, add, &log) >= 0, "%s",
		  postroom_store_errmsg(store));
	return log;
}

#define ATTEMPTS(...) attempts_of(POSTROOM_FILTER(__VA_ARGS__))

/* Claims the only message that is due and fails it. */
static void fail(const char *reason, bool for_good)
{
	postroom_batch *batch = CLAIM(.max_attempts = 100);

	CHECK_INT(for_good ? postroom_reject(store, batch, only_item(batch), 1, reason)
			   : postroom_nack(store, batch, only_item(batch), 1, reason),
		  POSTROOM_OK);
	postroom_batch_free(batch);
}

TEST_BY_RELAY(X1_failed_attempts_are_remembered_with_worker_and_sink)
{
	postroom_receipt receipt = PUT(.topic = "t", .payload = "{}");
	struct log log;

	CHECK_INT(ATTEMPTS(.id = receipt.id).count, 0);
	store->sink = "bus";
	fail("first", false);
	MAKE_DUE();
	fail("second", true);
	log = ATTEMPTS(.id = receipt.id);
	CHECK_STR(log.text, "1 first; 2 second; ");
	CHECK_STR(log.worker, store->worker);
	CHECK_STR(log.sink, "bus");
	CHECK_INT(log.duration_ms, -1);
	/* They stay when an operator retries it. */
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = receipt.id)), POSTROOM_OK);
	fail("third", true);
	CHECK_STR(ATTEMPTS(.id = receipt.id).text, "1 first; 2 second; 1 third; ");
}

TEST_BY_RELAY(X1_the_duration_of_an_attempt_is_remembered)
{
	postroom_receipt receipt = PUT(.topic = "t", .payload = "{}");
	postroom_batch *batch = CLAIM();

	only_item(batch)->begun_us = 1000000;
	only_item(batch)->judged_us = 1250000;
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "slow"), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(ATTEMPTS(.id = receipt.id).duration_ms, 250);
}

TEST(X1_the_last_ten_attempts_are_kept)
{
	postroom_receipt receipt = PUT(.topic = "t", .payload = "{}", .key = "k");
	char reason[20];

	for (int i = 1; i <= 13; i++) {
		snprintf(reason, sizeof(reason), "e%d", i);
		fail(reason, false);
		MAKE_DUE();
	}
	CHECK_STR(ATTEMPTS(.id = receipt.id).text,
		  "4 e4; 5 e5; 6 e6; 7 e7; 8 e8; 9 e9; 10 e10; 11 e11; 12 e12; 13 e13; ");
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_attempts"), 10);
}

TEST(X1_a_message_that_never_fails_has_no_attempts)
{
	postroom_batch *batch;

	PUT(.topic = "t", .payload = "{}");
	PUT(.topic = "t", .payload = "{}", .key = "k");
	batch = CLAIM();
	CHECK_INT(postroom_release(store, batch, items_of(batch, 2), 2), POSTROOM_OK);
	postroom_batch_free(batch);
	batch = CLAIM();
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 2), 2), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_attempts"), 0);
}

TEST(X1_expired_lease_counts_as_failed_attempt)
{
	postroom_receipt receipt = PUT(.topic = "t", .payload = "{}", .key = "k");
	postroom_store *other = open_store();
	postroom_batch *batch;
	struct log log;

	postroom_batch_free(claim_from(other, POSTROOM_CLAIM()));
	EXPIRE_LEASES();
	postroom_batch_free(CLAIM(.max_attempts = 2));
	log = ATTEMPTS(.id = receipt.id);
	CHECK_STR(log.text, "1 " PR_TAKEOVER_REASON "; ");
	EXPIRE_LEASES();
	batch = CLAIM(.max_attempts = 2);
	CHECK_INT(count_of(batch), 0);
	postroom_batch_free(batch);
	log = ATTEMPTS(.id = receipt.id);
	CHECK_INT(log.count, 2);
	CHECK_MSG(strstr(log.text, "; 2 the lease ran out"), "%s", log.text);
	postroom_store_close(other);
}

TEST(X2_attempts_are_deleted_with_their_message)
{
	int64_t done;

	PUT(.topic = "dead", .payload = "{}");
	fail("x", true);
	PUT(.topic = "kept", .payload = "{}");
	fail("x", true);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead", .topic = "dead"), 10,
				      &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_attempts"), 1);
}

TEST(X2_attempts_of_a_delivered_message_are_deleted_with_it)
{
	postroom_batch *batch;
	int64_t done;

	PUT(.topic = "t", .payload = "{}");
	fail("x", false);
	MAKE_DUE();
	batch = CLAIM();
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_attempts"), 1);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "delivered"), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_attempts"), 0);
}

TEST(X2_sweep_deletes_attempts_of_rows_deleted_by_hand)
{
	struct pr_err err = { 0 };
	int64_t gone = -1;

	sql(app, "INSERT INTO postroom_inbox (id, handler_name) VALUES ('1', 'h')");
	PUT(.topic = "t", .payload = "{}");
	fail("x", true);
	PUT(.topic = "t", .payload = "{}");
	fail("y", true);
	sql(app,
	    "INSERT INTO postroom_attempts (handler_name, id, number, at) VALUES "
	    "('h', '1', 1, %s), ('h', '2', 1, %s)",
	    backend == &backend_sqlite ? "1" : "now()", backend == &backend_sqlite ? "1" : "now()");
	sql(app, "DELETE FROM postroom_outbox WHERE last_error = 'x'");
	/* One at a time, to the end and around. */
	for (int i = 0; i < 10; i++)
		CHECK_MSG(
			store->ops->purge(
				store,
				&(struct pr_purge){
					.of = PR_PURGE_ATTEMPTS,
					.filter = POSTROOM_FILTER(.table = i < 5 ? POSTROOM_OUTBOX
										 : POSTROOM_INBOX),
					.limit = 1 },
				&gone, &err) >= 0,
			"%s", err.text);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_attempts"), 2);
}

TEST(N4_failed_attempts_of_a_job_are_remembered_by_handler)
{
	postroom_claim_options options = { .size = sizeof(options), .ns = "h" };
	postroom_batch *batch;
	int64_t done;

	sql(app, "INSERT INTO postroom_inbox (id, handler_name) VALUES ('1', 'h'), ('1', 'g')");
	CHECK_INT(pr_store_claim_new(store, &pr_table_inbox, &options, false, &batch), POSTROOM_OK);
	only_item(batch)->verdict = POSTROOM_REJECTED;
	only_item(batch)->reason = "bad";
	CHECK_INT(pr_store_settle(store, &pr_table_inbox,
				  &(struct pr_settle){ only_item(batch), 1, &batch->policy },
				  &store->err),
		  POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_STR(ATTEMPTS(.table = POSTROOM_INBOX, .handler = "h", .id = "1").text, "1 bad; ");
	CHECK_INT(ATTEMPTS(.table = POSTROOM_INBOX, .handler = "g", .id = "1").count, 0);
	CHECK_INT(postroom_attempts(store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .id = "1"), add,
				    NULL),
		  POSTROOM_INVALID);
	CHECK_INT(postroom_purge_some(store,
				      POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "dead"),
				      10, &done),
		  POSTROOM_OK);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_attempts"), 0);
}
