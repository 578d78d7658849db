/* SPDX-License-Identifier: Apache-2.0 */
/* Settling what lanes have leased: what leaves, where to, and what is done by hand meanwhile. */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <pthread.h>

LANE_TEST(A1_delivered_message_moves_from_outbox_to_history)
{
	postroom_batch *batch;
	PGresult *left;

	put_some(2, NULL);
	batch = CLAIM();
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 2), 2), POSTROOM_OK);
	postroom_batch_free(batch);
	left = PQexec(conn_of(app), "SELECT (SELECT count(*) FROM postroom_outbox), "
				    "(SELECT count(*) FROM postroom_history WHERE attempts = 1)");
	CHECK_STR(PQgetvalue(left, 0, 0), "0");
	CHECK_STR(PQgetvalue(left, 0, 1), "2");
	PQclear(left);
}

LANE_TEST(A1_messages_moved_by_table_rewrite_are_settled)
{
	postroom_batch *batch;

	put_some(40, "a");
	put_some(3, NULL);
	batch = CLAIM(.limit = 100);
	/* By the order of random keys, so that hardly one stays where it was. */
	sql(app, "CREATE INDEX shuffled ON postroom_outbox (md5(id::text))");
	sql(app, "CLUSTER postroom_outbox USING shuffled");
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 43), 43), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(rows("delivered"), 43);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_history"), 43);
}

/* Settled together with the next claim, too; then the lanes are free for other workers. */
LANE_TEST(A1_settle_and_claim_settles_messages_moved_by_rewrite)
{
	const struct pr_policy policy = { .max_attempts = 3 };
	const struct pr_claim claim = {
		.limit = 10, .max_bytes = 1 << 20, .lease_ms = 30000, .max_attempts = 3
	};
	struct postroom_batch first = { 0 }, next = { 0 };
	struct pr_err err = { 0 };

	put_some(20, NULL);
	CHECK_MSG(pr_store_claim(store, &pr_table_outbox, &claim, &first, &err) >= 0, "%s",
		  err.text);
	CHECK_INT(first.count, 10);
	sql(app, "CREATE INDEX shuffled ON postroom_outbox (md5(id::text))");
	sql(app, "CLUSTER postroom_outbox USING shuffled");
	for (size_t i = 0; i < first.count; i++)
		first.items[i].verdict = POSTROOM_DELIVERED;
	CHECK_MSG(store->ops->settle_and_claim(
			  store, &pr_table_outbox,
			  &(struct pr_settle){ first.items, first.count, &policy }, &claim, &next,
			  &err) >= 0,
		  "%s", err.text);
	CHECK_INT(next.count, 10);
	CHECK_INT(rows("delivered"), 10);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_lanes WHERE locked_by IS NOT NULL"),
		  10);
	pr_batch_release(&first);
	pr_batch_release(&next);
}

/* Plain SQL gives times of its own: then a batch is not in the order of its numbers. */
LANE_TEST(A1_one_short_statement_settles_batch_in_any_order)
{
	postroom_batch *batch;

	sql(app,
	    "INSERT INTO postroom_outbox (topic, payload, created_at, next_attempt_at) "
	    "SELECT 't', '1', now() - n * interval '1 minute', now() - n * interval '1 minute' "
	    "FROM generate_series(1, 9) AS n");
	batch = CLAIM(.limit = 100);
	CHECK(items_of(batch, 9)[0].seq > items_of(batch, 9)[8].seq);
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 9), 9), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(rows("delivered"), 9);
	CHECK(is_prepared(store, &pr_sql_settle_delivered_lanes_to_history));
	CHECK(!is_prepared(store, &pr_sql_settle_lanes_to_history));
}

/* The ctid of a message may belong to another one when it is settled. */
LANE_TEST(A2_row_that_reuses_a_ctid_is_not_settled)
{
	postroom_batch *batch;

	put_some(1, "a");
	batch = CLAIM();
	sql(app, "CREATE TABLE places AS SELECT ctid AS place FROM postroom_outbox");
	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "VACUUM postroom_outbox");
	put_some(1, "a");
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox JOIN places ON ctid = place"),
		  1);
	CHECK_INT(postroom_ack(store, batch, items_of(batch, 1), 1), POSTROOM_LEASE_LOST);
	postroom_batch_free(batch);
	CHECK_INT(rows("pending"), 1);
}

/* And each leaves once for the history. */
LANE_TEST(A2_batch_that_lost_one_lane_settles_all_other_lanes)
{
	postroom_batch *batch;
	postroom_delivery *items;
	int lost = 0;

	put_some(3, NULL);
	batch = CLAIM();
	items = items_of(batch, 3);
	sql(app, "UPDATE postroom_lanes SET epoch = epoch + 1, locked_by = NULL, "
		 "locked_until = NULL, in_flight = NULL WHERE lane = "
		 "(SELECT min(lane) FROM postroom_lanes WHERE locked_by IS NOT NULL)");
	CHECK_INT(postroom_ack(store, batch, items, 3), POSTROOM_LEASE_LOST);
	for (int i = 0; i < 3; i++)
		lost += items[i].settled == POSTROOM_LEASE_LOST;
	CHECK_INT(lost, 1);
	postroom_batch_free(batch);
	CHECK_INT(rows("pending"), 1);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_history"), 2);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_lanes WHERE locked_by IS NOT NULL"),
		  0);
}

struct settler {
	postroom_batch *batch;
	int status;
	bool one_fails;
	pthread_t thread;
};

static void *settle_three(void *context)
{
	static const struct pr_policy policy = { .max_attempts = 10,
						 .max_error_length = 100,
						 .base_delay_ms = 60000,
						 .max_delay_ms = 60000 };
	struct settler *settler = context;
	postroom_delivery *items = items_of(settler->batch, 3);
	struct pr_err err = { 0 };

	for (int i = 0; i < 3; i++)
		items[i].verdict = POSTROOM_DELIVERED;
	if (settler->one_fails)
		items[0].verdict = POSTROOM_FAILED;
	settler->status = pr_store_settle(store, &pr_table_outbox,
					  &(struct pr_settle){ items, 3, &policy }, &err);
	return NULL;
}

/* A user changes one of three messages in flight by hand, after their settle has begun. */
static int settle_while(const char *done_by_hand, bool one_fails)
{
	struct settler settler = { .one_fails = one_fails };
	struct session *hand = join(), *eye = join();

	put_some(3, NULL);
	settler.batch = CLAIM();
	begin(hand);
	sql(hand, "%s", done_by_hand);
	CHECK_INT(pthread_create(&settler.thread, NULL, settle_three, &settler), 0);
	await_blocked_pid(eye, PQbackendPID(pgsql_store(store)->conn));
	commit(hand);
	CHECK_INT(pthread_join(settler.thread, NULL), 0);
	postroom_batch_free(settler.batch);
	leave(hand);
	leave(eye);
	CHECK_INT(rows(NULL) - rows("delivered"), one_fails);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_lanes WHERE locked_by IS NOT NULL"),
		  0);
	return settler.status;
}

#define CHANGED "UPDATE postroom_outbox SET correlation_id = 'c' WHERE seq = 2"
#define DELETED "DELETE FROM postroom_outbox WHERE seq = 2"

LANE_TEST(A1_message_changed_by_hand_while_settled_leaves_once)
{
	CHECK_INT(settle_while(CHANGED, false), POSTROOM_OK);
	CHECK_INT(rows("delivered"), 3);
}

LANE_TEST(A1_message_changed_by_hand_while_settled_beside_failure_leaves_once)
{
	CHECK_INT(settle_while(CHANGED, true), POSTROOM_OK);
	CHECK_INT(rows("delivered"), 2);
}

LANE_TEST(A2_message_deleted_by_hand_while_settled_is_not_logged_as_delivered)
{
	CHECK_INT(settle_while(DELETED, false), POSTROOM_LEASE_LOST);
	CHECK_INT(rows("delivered"), 2);
}

LANE_TEST(A2_message_deleted_by_hand_beside_failure_is_not_logged_as_delivered)
{
	CHECK_INT(settle_while(DELETED, true), POSTROOM_LEASE_LOST);
	CHECK_INT(rows("delivered"), 1);
}

LANE_TEST(A3_failed_message_changed_by_hand_counts_its_attempt)
{
	CHECK_INT(
		settle_while("UPDATE postroom_outbox SET correlation_id = 'c' WHERE seq = 1", true),
		POSTROOM_OK);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox WHERE status = 'pending'"), 1);
}

/* Settled one by one, of which the first is not there any more. */
LANE_TEST(A2_message_deleted_by_hand_does_not_keep_its_lane_leased)
{
	postroom_batch *batch;
	postroom_delivery *items;

	put_some(3, "a");
	batch = CLAIM();
	items = items_of(batch, 3);
	sql(app, DELETED);
	CHECK_INT(postroom_ack(store, batch, items + 1, 1), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_ack(store, batch, items, 1), POSTROOM_OK);
	CHECK_INT(postroom_nack(store, batch, items + 2, 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_lanes WHERE locked_by IS NOT NULL"),
		  0);
}

LANE_TEST(X2_without_retention_message_that_had_failed_is_deleted_too)
{
	struct pr_policy policy = { .max_attempts = 10, .max_error_length = 100, .forget = true };
	struct pr_err err = { 0 };

	put_some(1, "a");
	for (int i = 0; i < 2; i++) {
		postroom_batch *batch = claim_one();

		only_item(batch)->verdict = i == 0 ? POSTROOM_FAILED : POSTROOM_DELIVERED;
		CHECK_INT(pr_store_settle(store, &pr_table_outbox,
					  &(struct pr_settle){ only_item(batch), 1, &policy },
					  &err),
			  POSTROOM_OK);
		postroom_batch_free(batch);
		MAKE_DUE();
	}
	CHECK_INT(rows(NULL), 0);
}
