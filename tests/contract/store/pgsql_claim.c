/* SPDX-License-Identifier: Apache-2.0 */
/* Claiming and settling on PostgreSQL: what vacuum, the clock and a server that does not answer can do to it. */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <signal.h>
#include <stdlib.h>

static PGconn *conn_of_store(postroom_store *of)
{
	return pgsql_store(of)->conn;
}

/* TRAPS 4: however the planner joins, the choice is made once. */
PGSQL_TEST(C1_claim_respects_its_limit_with_any_plan)
{
	static const char *const settings[] = {
		"-c enable_hashjoin=off -c enable_mergejoin=off -c enable_material=off",
		"-c enable_nestloop=off",
		"-c enable_indexscan=off -c enable_bitmapscan=off",
		"-c enable_seqscan=off",
		"-c enable_tidscan=off",
		"-c enable_sort=off",
		"-c plan_cache_mode=force_generic_plan",
		"-c plan_cache_mode=force_custom_plan",
		"-c default_transaction_isolation=serializable",
	};
	int64_t claimed = 0;

	fill(1000, "", "");
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		postroom_store *odd;
		char odd_url[400];

		url_with_options(settings[i], odd_url);
		odd = open_at(odd_url);
		for (int n = 0; n < 7; n++) {
			postroom_batch *batch = claim_from(odd, POSTROOM_CLAIM(.limit = 5));
			postroom_delivery *items = items_of(batch, 5);

			claimed += 5;
			CHECK_INT(rows("processing") + rows("delivered"), claimed);
			CHECK_MSG(postroom_ack(odd, batch, items, 5) == POSTROOM_OK, "%s: %s",
				  settings[i], postroom_store_errmsg(odd));
			postroom_batch_free(batch);
		}
		postroom_store_close(odd);
	}
	CHECK_INT(rows("delivered"), claimed);
}

/* TRAPS 5: the oldest are last in the table. */
PGSQL_TEST(C3_batch_is_in_order_with_any_physical_order_of_rows)
{
	postroom_batch *batch;
	postroom_delivery *items;

	fill(300, ", next_attempt_at", ", now() - i * interval '1 second'");
	batch = CLAIM();
	items = items_of(batch, 300);
	for (int i = 0; i < 300; i++)
		CHECK_INT(strtol(items[i].payload, NULL, 10), 300 - i);
	postroom_batch_free(batch);
}

/* TRAPS 1: now() does not advance, and the transaction was begun before. */
PGSQL_TEST(C2_a_lease_inside_a_transaction_is_counted_from_the_clock)
{
	struct pr_err err = { 0 };
	postroom_batch *batch;
	int64_t before;

	PUT(.topic = "t", .payload = "1");
	CHECK_INT(store->ops->begin(store, &err), POSTROOM_OK);
	PQclear(PQexec(conn_of_store(store), "SELECT 1"));
	before = database_now_us(app);
	batch = CLAIM(.lease_ms = 60000);
	CHECK_INT(store->ops->end(store, POSTROOM_OK, &err), POSTROOM_OK);
	CHECK(time_of(app, "locked_until", "true") >= before + 60000000);
	CHECK(time_of(app, "last_attempt_at", "true") >= before);
	CHECK_INT(store->ops->begin(store, &err), POSTROOM_OK);
	PQclear(PQexec(conn_of_store(store), "SELECT 1"));
	before = database_now_us(app);
	CHECK_INT(postroom_renew(store, batch, only_item(batch), 1), POSTROOM_OK);
	only_item(batch)->verdict = POSTROOM_FAILED;
	only_item(batch)->retry_in_ms = 5000;
	CHECK_INT(postroom_settle(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK_INT(store->ops->end(store, POSTROOM_OK, &err), POSTROOM_OK);
	CHECK(time_of(app, "next_attempt_at", "true") >= before + 5000000);
	postroom_batch_free(batch);
}

PGSQL_TEST(C4_locked_row_is_skipped_without_waiting)
{
	struct session *other = join();
	postroom_batch *batch;

	fill(3, "", "");
	begin(other);
	CHECK_INT(number(other, "SELECT seq FROM postroom_outbox ORDER BY seq LIMIT 1 FOR UPDATE"),
		  1);
	batch = CLAIM();
	CHECK_STR(items_of(batch, 2)[0].payload, "2");
	postroom_batch_free(batch);
	rollback(other);
	leave(other);
	batch = claim_one();
	CHECK_STR(only_item(batch)->payload, "1");
	postroom_batch_free(batch);
}

/* More than fits into the socket, to a server that does not read. */
static void settle_unread(const struct pr_stop *stop, int64_t answer_ms, struct pr_err *err)
{
	enum { COUNT = 20000 };
	struct pr_claim claim = {
		.limit = COUNT, .max_bytes = 1 << 30, .lease_ms = 60000, .max_attempts = 10
	};
	struct pr_policy policy = { .max_attempts = 10, .max_error_length = 100 };
	struct postroom_batch batch = { 0 };
	postroom_store *stuck = NULL;
	int pid;

	fill(COUNT, "", "");
	CHECK_INT(pr_store_open(&(struct pr_store_config){ .url = url, .stop = stop }, &stuck, err),
		  POSTROOM_OK);
	CHECK_INT(pr_store_claim(stuck, &pr_table_outbox, &claim, &batch, err), POSTROOM_OK);
	CHECK_INT(batch.count, COUNT);
	for (size_t i = 0; i < COUNT; i++)
		batch.items[i].verdict = POSTROOM_DELIVERED;
	/* The first settle prepares all statements. */
	CHECK_INT(pr_store_settle(stuck, &pr_table_outbox,
				  &(struct pr_settle){ batch.items, 1, &policy }, err),
		  POSTROOM_OK);
	pgsql_store(stuck)->answer_ms = answer_ms;
	pid = PQbackendPID(conn_of_store(stuck));
	CHECK_INT(kill(pid, SIGSTOP), 0);
	pr_store_settle(stuck, &pr_table_outbox,
			&(struct pr_settle){ batch.items + 1, COUNT - 1, &policy }, err);
	CHECK_INT(kill(pid, SIGCONT), 0);
	pr_batch_release(&batch);
	pr_store_close(stuck);
}

PGSQL_TEST(D5_server_that_reads_nothing_times_out_like_one_that_does_not_answer)
{
	struct pr_err err = { 0 };

	settle_unread(NULL, 100, &err);
	CHECK_INT(err.status, POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(err.text, "no answer from");
}

static void *request_stop(void *stop)
{
	struct session *eye = join();

	while (number(eye, "SELECT count(*) FROM postroom_outbox WHERE status = 'delivered'") == 0)
		continue;
	leave(eye);
	pr_stop_request(stop, 100);
	return NULL;
}

PGSQL_TEST(D4_server_that_reads_nothing_does_not_delay_stop_past_grace)
{
	struct pr_err err = { 0 };
	struct pr_stop stop;
	pthread_t thread;

	CHECK_INT(pr_stop_init(&stop, &err), POSTROOM_OK);
	CHECK_INT(pthread_create(&thread, NULL, request_stop, &stop), 0);
	settle_unread(&stop, 0, &err);
	CHECK_INT(err.status, POSTROOM_STOPPED);
	CHECK_INT(pthread_join(thread, NULL), 0);
	pr_stop_release(&stop);
}

#define CLAIMERS 4

static void claim_and_ack(void *context, int index)
{
	postroom_store *mine = open_at(url);
	size_t count = 0;

	(void)context, (void)index;
	do {
		postroom_batch *batch = claim_from(mine, POSTROOM_CLAIM(.limit = 10));
		postroom_delivery *items = pr_batch_items(batch, &count);

		if (count > 0)
			CHECK_MSG(postroom_ack(mine, batch, items, count) == POSTROOM_OK, "%s",
				  postroom_store_errmsg(mine));
		postroom_batch_free(batch);
	} while (count > 0);
	postroom_store_close(mine);
}

/* An application may have made SERIALIZABLE the default of its database. */
PGSQL_TEST(C4_workers_succeed_if_transactions_are_serializable_by_default)
{
	fill(2000, "", "");
	sql(app, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET "
		 "default_transaction_isolation = serializable', current_database()); END $$");
	in_parallel(CLAIMERS, claim_and_ack, NULL);
	CHECK_INT(rows("delivered"), 2000);
	CHECK_INT(number(app, "SELECT max(claims) FROM postroom_outbox"), 1);
}

/* A place in the table may belong to another row by the time its first owner is settled. */
PGSQL_TEST(A7_message_that_reuses_a_purged_row_is_not_settled)
{
	postroom_batch *first, *second;
	char place[20];

	PUT(.topic = "first", .payload = "1");
	first = claim_one();
	snprintf(place, sizeof(place), "%s", text(app, "SELECT ctid FROM postroom_outbox"));
	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "VACUUM postroom_outbox");
	PUT(.topic = "second", .payload = "1");
	second = claim_one();
	CHECK_STR(text(app, "SELECT ctid FROM postroom_outbox"), place);
	CHECK_INT(postroom_ack(store, first, only_item(first), 1), POSTROOM_LEASE_LOST);
	CHECK_INT(postroom_renew(store, first, only_item(first), 1), POSTROOM_LEASE_LOST);
	CHECK_INT(rows("processing"), 1);
	CHECK_INT(postroom_ack(store, second, only_item(second), 1), POSTROOM_OK);
	postroom_batch_free(first);
	postroom_batch_free(second);
}

PGSQL_TEST(A1_messages_moved_by_vacuum_full_are_settled)
{
	postroom_batch *batch;
	postroom_delivery *items;
	char place[20];

	fill(50, "", "");
	sql(app, "DELETE FROM postroom_outbox WHERE payload <= '40'");
	batch = CLAIM();
	items = items_of(batch, 10);
	snprintf(place, sizeof(place), "%s",
		 text(app, "SELECT ctid FROM postroom_outbox WHERE id = '%s'", items[9].id));
	sql(app, "VACUUM FULL postroom_outbox");
	CHECK(strcmp(text(app, "SELECT ctid FROM postroom_outbox WHERE id = '%s'", items[9].id),
		     place) != 0);
	CHECK_INT(postroom_renew(store, batch, items, 10), POSTROOM_OK);
	CHECK_INT(postroom_ack(store, batch, items, 5), POSTROOM_OK);
	sql(app, "VACUUM FULL postroom_outbox");
	CHECK_INT(postroom_nack(store, batch, items + 5, 5, "no"), POSTROOM_OK);
	CHECK_INT(rows("delivered"), 5);
	CHECK_INT(rows("pending"), 5);
	postroom_batch_free(batch);
}

/* A column added by a user, or new tables in place of old ones, must not break prepared statements. */
PGSQL_TEST(U1_prepared_statements_survive_changes_of_the_table)
{
	fill(30, "", "");
	for (int i = 0; i < 3; i++) {
		postroom_batch *batch = CLAIM(.limit = 2);

		CHECK_INT(postroom_ack(store, batch, items_of(batch, 2), 2), POSTROOM_OK);
		postroom_batch_free(batch);
		sql(app, "ALTER TABLE postroom_outbox ADD COLUMN later_%d text", i);
		sql(app, "CREATE INDEX ON postroom_outbox (later_%d)", i);
		sql(app, "ANALYZE postroom_outbox");
	}
	CHECK_INT(rows("delivered"), 6);
}

/* An arm that has little or nothing is asked beside the one that is full. */
PGSQL_TEST(C1_every_settle_and_claim_brings_a_batch_in_a_uniform_backlog)
{
	const struct pr_claim claim = {
		.limit = 10, .max_bytes = SIZE_MAX, .lease_ms = 60000, .max_attempts = 3
	};
	const struct pr_policy policy = { .max_attempts = 3 };
	struct postroom_batch batches[2] = { 0 };
	struct pr_err err = { 0 };
	int of_key = 0;

	fill(300, "", "");
	CHECK_INT(pr_store_claim(store, &pr_table_outbox, &claim, &batches[0], &err), POSTROOM_OK);
	for (int settle_and_claim = 0; settle_and_claim < 20; settle_and_claim++) {
		struct postroom_batch *now = &batches[settle_and_claim % 2],
				      *next = &batches[(settle_and_claim + 1) % 2];

		if (settle_and_claim == 8)
			PUT(.topic = "t", .key = "k", .payload = "1");
		for (size_t i = 0; i < now->count; i++)
			now->items[i].verdict = POSTROOM_DELIVERED;
		pr_batch_reset(next);
		CHECK_MSG(store->ops->settle_and_claim(
				  store, &pr_table_outbox,
				  &(struct pr_settle){ now->items, now->count, &policy }, &claim,
				  next, &err) == POSTROOM_OK,
			  "%s", err.text);
		CHECK(next->count > 0);
		CHECK(next->count <= 10);
		for (size_t i = 0; i < next->count; i++)
			of_key += next->items[i].key != NULL;
	}
	CHECK_INT(of_key, 1);
	pr_batch_release(&batches[0]);
	pr_batch_release(&batches[1]);
}
