/* SPDX-License-Identifier: Apache-2.0 */
/* A key whose message is leaving the table while another producer brings it again: E3. */
#include "contract/store/pgsql.h"

#define AGAIN POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = "k")

TEST_ON_PGSQL(E3_key_stays_unique_while_its_message_is_deleted)
{
	postroom_receipt first = put_message(AGAIN), again;
	struct session *hand = join();

	begin(hand);
	sql(hand, "DELETE FROM postroom_outbox");
	/* No session should have to wait for it; one that does fails after this time. */
	sql(app, "SET lock_timeout = '10s'");
	again = put_message(AGAIN);
	CHECK_INT(again.duplicate, 1);
	CHECK_STR(again.id, first.id);
	sql(app, "INSERT INTO postroom_outbox (topic, payload, dedupe_key) VALUES ('t', '1', 'k')");
	commit(hand);
	leave(hand);
	CHECK_INT(rows(NULL), 0);
}

TEST_ON_PGSQL(E3_key_stays_unique_in_snapshot_that_sees_deleted_message)
{
	postroom_receipt first = put_message(AGAIN), again;
	struct session *hand = join();

	sql(app, "BEGIN ISOLATION LEVEL REPEATABLE READ");
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox"), 1);
	sql(hand, "DELETE FROM postroom_outbox");
	CHECK_INT(postroom_enqueue(app->box, AGAIN, &again), POSTROOM_DUPLICATE);
	CHECK_STR(again.id, first.id);
	sql(app, "INSERT INTO postroom_outbox (topic, payload, dedupe_key) VALUES ('t', '1', 'k')");
	commit(app);
	leave(hand);
	CHECK_INT(rows(NULL), 0);
}

/* Returns when session has found the key taken, and before the index has been asked. */
static void await_between(struct session *session)
{
	struct session *eye = join();

	await_blocked(eye, session);
	leave(eye);
}

/* Triggers go by their names. */
static void stop_between(void)
{
	sql(app, "CREATE FUNCTION stop_here() RETURNS trigger LANGUAGE plpgsql AS "
		 "'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END'");
	sql(app, "CREATE TRIGGER zz_stop BEFORE INSERT ON postroom_outbox FOR EACH ROW "
		 "WHEN (NEW.dedupe_key = 'k') EXECUTE FUNCTION stop_here()");
	sql(app, "SELECT pg_advisory_lock(1)");
}

static void let_the_first_leave(void)
{
	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "SELECT pg_advisory_unlock(1)");
}

/* The duplicate that slipped through is a record without delivery. */
static void check_never_sent(int64_t others)
{
	postroom_batch *batch;

	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE status = 'delivered' "
			      "AND attempts = 0"),
		  1);
	CHECK_INT(rows(NULL), 1 + others);
	batch = CLAIM();
	CHECK_INT(count_of(batch), others);
	postroom_batch_free(batch);
}

static void enqueue_between(const postroom_message *messages, size_t count,
			    postroom_receipt receipts[2])
{
	struct session *other = join();
	struct producer producer = {
		.session = other, .messages = messages, .count = count, .receipts = receipts
	};

	stop_between();
	begin(other);
	start_producer(&producer);
	await_between(other);
	let_the_first_leave();
	end_producer(&producer);
	CHECK_MSG(producer.status >= 0, "%s", postroom_errmsg(other->box));
	if (count == 1)
		receipts[0] = producer.receipt;
	commit(other);
	leave(other);
}

TEST_ON_PGSQL(E3_insert_beside_a_deletion_is_a_duplicate)
{
	postroom_receipt first = put_message(AGAIN), receipts[2];

	enqueue_between(AGAIN, 1, receipts);
	CHECK_INT(receipts[0].duplicate, 1);
	CHECK_STR(receipts[0].id, first.id);
	check_never_sent(0);
}

TEST_ON_PGSQL(E3_bulk_insert_beside_a_deletion_is_a_duplicate)
{
	const postroom_message both[] = { *AGAIN, *POSTROOM_MESSAGE(.topic = "t", .payload = "1",
								    .dedupe_key = "later") };
	postroom_receipt first = put_message(AGAIN), receipts[2];

	enqueue_between(both, 2, receipts);
	CHECK_INT(receipts[0].duplicate, 1);
	CHECK_STR(receipts[0].id, first.id);
	CHECK_INT(receipts[1].duplicate, 0);
	check_never_sent(1);
}

TEST_ON_PGSQL(E3_function_insert_beside_a_deletion_is_a_duplicate)
{
	postroom_receipt first = put_message(AGAIN);
	struct session *other = join();
	PGresult *answer;

	stop_between();
	CHECK(PQsendQuery(
		conn_of(other),
		"SELECT id, duplicate FROM postroom_enqueue('t', '1', dedupe_key => 'k')"));
	await_between(other);
	let_the_first_leave();
	answer = PQgetResult(conn_of(other));
	CHECK_STR(PQgetvalue(answer, 0, 0), first.id);
	CHECK_STR(PQgetvalue(answer, 0, 1), "t");
	PQclear(answer);
	CHECK(!PQgetResult(conn_of(other)));
	leave(other);
	check_never_sent(0);
}
