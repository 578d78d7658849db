/* SPDX-License-Identifier: Apache-2.0 */
/* Claiming and settling on PostgreSQL: what the planner, vacuum and the clock can do to it. */
#include "contract/store_pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql.h"
#pragma GCC diagnostic pop

#include <signal.h>
#include <stdlib.h>

static PGconn *conn_of_store(postroom_store *of)
{
	return pgsql_store(of)->conn;
}

/* The plans of everything that a watched store has run, one after the other. */
static struct pr_buf plans;
static int plan_count;

static void take_plan(void *context, const PGresult *notice)
{
	const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);

	(void)context;
	if (!strstr(message, "Query Text:"))
		return;
	pr_buf_puts(&plans, message);
	pr_buf_puts(&plans, "\n--\n");
	plan_count++;
}

static postroom_store *open_at(const char *at)
{
	postroom_store *opened = NULL;

	CHECK_MSG(postroom_store_open(at, &opened) >= 0, "%s", postroom_store_errmsg(opened));
	return opened;
}

/* The server tells the plan that was used, a cached one too, not one that might have been. */
#define WATCH                                                                                      \
	"-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 "            \
	"-c auto_explain.log_level=notice -c auto_explain.log_analyze=on "                         \
	"-c auto_explain.log_timing=off"

static postroom_store *open_watched(void)
{
	char watched_url[400];
	postroom_store *watched;

	url_with_options(WATCH, watched_url);
	watched = open_at(watched_url);
	PQsetNoticeReceiver(conn_of_store(watched), take_plan, NULL);
	pr_buf_reset(&plans);
	plan_count = 0;
	return watched;
}

static void close_watched(postroom_store *watched)
{
	postroom_store_close(watched);
	pr_buf_release(&plans);
}

static void check_plans(int at_least)
{
	const char *text = pr_buf_text(&plans);

	CHECK(!plans.failed);
	CHECK_MSG(plan_count >= at_least, "%d plans, not %d", plan_count, at_least);
	CHECK_MSG(!strstr(text, "Seq Scan on postroom_outbox"), "%s", text);
	pr_buf_reset(&plans);
	plan_count = 0;
}

static void fill(int64_t count, const char *columns, const char *values)
{
	sql(app,
	    "INSERT INTO postroom_outbox (topic, payload%s) SELECT 't', to_jsonb(i)%s "
	    "FROM generate_series(1, %lld) AS i",
	    columns, values, (long long)count);
}

static void fill_delivered(int64_t count)
{
	fill(count, ", status, delivered_at, attempts, claims",
	     ", 'delivered', now() - interval '1 day', 1, 1");
}

static void fill_backoff(int64_t count)
{
	fill(count, ", next_attempt_at, attempts, claims, apart",
	     ", now() + interval '1 day', 3, 3, 1");
}

static void fill_dead(int64_t count)
{
	fill(count, ", status, attempts, claims", ", 'dead', 10, 10");
}

static int ignore_row(void *context, const postroom_row *row)
{
	(void)context, (void)row;
	return 0;
}

/* Often enough that the server goes over from plans of the moment to a general one. */
#define PASSES 8
#define BATCH 500

static void make_passes(postroom_store *watched, const char *topic)
{
	for (int i = 0; i < PASSES; i++) {
		postroom_batch *batch = claim_from(watched,
						   POSTROOM_CLAIM(.limit = BATCH, .topic = topic));
		postroom_delivery *items = items_of(batch, BATCH);
		int64_t done;

		CHECK_INT(postroom_renew(watched, batch, items, BATCH), POSTROOM_OK);
		CHECK_INT(postroom_nack(watched, batch, items, 10, "no"), POSTROOM_OK);
		CHECK_INT(postroom_ack(watched, batch, items + 10, BATCH - 10), POSTROOM_OK);
		postroom_batch_free(batch);
		CHECK_INT(postroom_sweep(watched, 10, &done), POSTROOM_OK);
	}
}

static int times(const char *part)
{
	int count = 0;

	for (const char *at = pr_buf_text(&plans); (at = strstr(at, part)); at++)
		count++;
	return count;
}

/* No step of any plan looks at more rows than a batch has. */
static void check_short(const char *part)
{
	for (const char *at = pr_buf_text(&plans); (at = strstr(at, part)); at++)
		CHECK_MSG(strtol(at + strlen(part), NULL, 10) <= BATCH, "%s", pr_buf_text(&plans));
}

/*
 * TRAPS 6 and 7: the same plans whatever the statistics say. Expired and due
 * claim, renew, nack, ack and sweep, over and over.
 */
static void check_passes(const char *topic)
{
	postroom_store *watched = open_watched();

	/* On a slow machine there would be looks for floors among them. */
	pgsql_store(watched)->raise_due_us = INT64_MAX;
	make_passes(watched, topic);
	CHECK_MSG(times("Index Scan using postroom_outbox_turn ") == PASSES, "%s",
		  pr_buf_text(&plans));
	CHECK_MSG(times("Index Scan using postroom_outbox_pkey ") == PASSES * 3, "%s",
		  pr_buf_text(&plans));
	check_short("actual rows=");
	check_short("Rows Removed by Filter: ");
	check_short("Rows Removed by Join Filter: ");
	check_plans(PASSES * 6);
	close_watched(watched);
}

PGSQL_TEST(C8_claims_go_by_index_where_nobody_has_counted_the_rows)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(soak(20000, 200000), "", "");
	check_passes(NULL);
	check_passes("t*");
}

PGSQL_TEST(C8_claims_go_by_index_where_the_rows_were_counted_when_there_were_none)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(100, "", "");
	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "VACUUM ANALYZE postroom_outbox");
	fill(soak(20000, 200000), "", "");
	check_passes(NULL);
	check_passes("t*");
}

/* A quiet day, then a flood: by the statistics, a few of many are pending. */
PGSQL_TEST(C8_claims_go_by_index_where_few_were_pending_when_the_rows_were_counted)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill_delivered(soak(20000, 200000));
	fill(100, "", "");
	sql(app, "VACUUM ANALYZE postroom_outbox");
	fill(soak(20000, 200000), "", "");
	check_passes(NULL);
	check_passes("t*");
}

/* What the server thinks after a quiet night: everything is delivered. */
PGSQL_TEST(C8_claims_go_by_index_beside_history_and_backoff)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill_delivered(soak(20000, 1000000));
	fill_backoff(soak(20000, 1000000));
	fill_dead(1000);
	sql(app, "VACUUM ANALYZE postroom_outbox");
	fill(20000, "", "");
	check_passes(NULL);
	check_passes("t*");
	sql(app, "ANALYZE postroom_outbox");
	check_passes(NULL);
	check_passes("t*");
}

/* Statistics that call every row pending. */
PGSQL_TEST(C8_claims_go_by_index_where_everything_was_pending_once)
{
	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(soak(20000, 200000), "", "");
	sql(app, "VACUUM ANALYZE postroom_outbox");
	check_passes(NULL);
	check_passes("t*");
	sql(app, "UPDATE postroom_outbox SET status = 'delivered', delivered_at = now()");
	fill(10000, "", "");
	check_passes(NULL);
	check_passes("t*");
}

PGSQL_TEST(X1_dead_messages_are_listed_retried_and_purged_by_an_index)
{
	postroom_store *watched;
	int64_t done;

	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill_delivered(soak(20000, 200000));
	fill_dead(2000);
	watched = open_watched();
	CHECK_INT(postroom_list(watched, POSTROOM_FILTER(.status = "dead"), 20, ignore_row, NULL),
		  POSTROOM_OK);
	CHECK_INT(postroom_retry_some(watched, POSTROOM_FILTER(0), BATCH, &done), POSTROOM_OK);
	CHECK_INT(done, BATCH);
	check_plans(2);
	CHECK_INT(postroom_purge_some(watched, POSTROOM_FILTER(.status = "dead"), BATCH, &done),
		  POSTROOM_OK);
	CHECK_INT(done, BATCH);
	CHECK_INT(postroom_purge_some(watched,
				      POSTROOM_FILTER(.status = "delivered", .older_than_ms = 1000),
				      BATCH, &done),
		  POSTROOM_OK);
	CHECK_INT(done, BATCH);
	check_short("actual rows=");
	check_plans(2);
	close_watched(watched);
}

/* The application's connection; the plans of what its box does. */
static void watch_session(struct session *watched)
{
	char watched_url[400];

	url_with_options(WATCH, watched_url);
	backend->connect(watched, watched_url);
	PQsetNoticeReceiver(conn_of(watched), take_plan, NULL);
}

PGSQL_TEST(E3_duplicates_are_found_by_an_index)
{
	static char names[BATCH][16];
	static postroom_message many[BATCH];
	struct session watched = { 0 };

	sql(app, "ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)");
	fill(soak(20000, 200000), ", dedupe_key", ", 'k-' || i");
	watch_session(&watched);
	for (int i = 0; i < BATCH; i++) {
		snprintf(names[i], sizeof(names[i]), "k-%d", 7 * i + 1);
		many[i] = *POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = names[i]);
	}
	begin(&watched);
	CHECK_INT(postroom_enqueue(watched.box, &many[0], NULL), POSTROOM_DUPLICATE);
	CHECK_INT(postroom_enqueue_many(watched.box, many, BATCH, NULL), POSTROOM_OK);
	commit(&watched);
	check_short("actual rows=");
	check_plans(6);
	pr_buf_release(&plans);
	backend->disconnect(&watched);
}

/* TRAPS 4: however the planner joins, the choice is made once. */
PGSQL_TEST(C1_a_limit_of_five_claims_exactly_five_whatever_the_plan)
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

/* TRAPS 5: the oldest stand last in the table. */
PGSQL_TEST(C3_a_batch_is_in_order_however_the_rows_lie)
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

/* TRAPS 1: now() stands still, and the transaction was begun before. */
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
	CHECK_INT(store->ops->commit(store, &err), POSTROOM_OK);
	CHECK(time_of(app, "locked_until", "true") >= before + 60000000);
	CHECK(time_of(app, "last_attempt_at", "true") >= before);
	CHECK_INT(store->ops->begin(store, &err), POSTROOM_OK);
	PQclear(PQexec(conn_of_store(store), "SELECT 1"));
	before = database_now_us(app);
	CHECK_INT(postroom_renew(store, batch, only_item(batch), 1), POSTROOM_OK);
	only_item(batch)->verdict = POSTROOM_FAILED;
	only_item(batch)->retry_in_ms = 5000;
	CHECK_INT(postroom_settle(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK_INT(store->ops->commit(store, &err), POSTROOM_OK);
	CHECK(time_of(app, "next_attempt_at", "true") >= before + 5000000);
	postroom_batch_free(batch);
}

PGSQL_TEST(C4_a_row_that_somebody_holds_is_passed_over_not_waited_for)
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
	struct pr_claim claim = { .limit = COUNT, .max_bytes = 1 << 30, .lease_ms = 60000,
				  .max_attempts = 10 };
	struct pr_policy policy = { .max_attempts = 10, .max_error_length = 100 };
	struct postroom_batch batch = { 0 };
	postroom_store *stuck = NULL;
	int pid;

	fill(COUNT, "", "");
	CHECK_INT(pr_store_open(&(struct pr_store_config){ .url = url, .stop = stop }, &stuck, err),
		  POSTROOM_OK);
	CHECK_INT(stuck->ops->claim(stuck, &pr_table_outbox, &claim, &batch, err), POSTROOM_OK);
	CHECK_INT(batch.count, COUNT);
	for (size_t i = 0; i < COUNT; i++)
		batch.items[i].verdict = POSTROOM_DELIVERED;
	/* What it has to prepare is prepared. */
	CHECK_INT(stuck->ops->settle(stuck, &pr_table_outbox, batch.items, 1, &policy, err),
		  POSTROOM_OK);
	pgsql_store(stuck)->answer_ms = answer_ms;
	pid = PQbackendPID(conn_of_store(stuck));
	CHECK_INT(kill(pid, SIGSTOP), 0);
	stuck->ops->settle(stuck, &pr_table_outbox, batch.items + 1, COUNT - 1, &policy, err);
	CHECK_INT(kill(pid, SIGCONT), 0);
	pr_batch_release(&batch);
	pr_store_close(stuck);
}

PGSQL_TEST(D5_a_server_that_reads_nothing_is_waited_for_no_longer_than_for_an_answer)
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

PGSQL_TEST(D4_a_server_that_reads_nothing_keeps_nobody_beyond_the_grace)
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
		postroom_delivery *items = postroom_batch_items(batch, &count);

		if (count > 0)
			CHECK_MSG(postroom_ack(mine, batch, items, count) == POSTROOM_OK, "%s",
				  postroom_store_errmsg(mine));
		postroom_batch_free(batch);
	} while (count > 0);
	postroom_store_close(mine);
}

/* An application may have made SERIALIZABLE the default of its database. */
PGSQL_TEST(C4_workers_do_not_fail_where_transactions_are_serializable_by_default)
{
	fill(2000, "", "");
	sql(app, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET "
		 "default_transaction_isolation = serializable', current_database()); END $$");
	in_parallel(CLAIMERS, claim_and_ack, NULL);
	CHECK_INT(rows("delivered"), 2000);
	CHECK_INT(number(app, "SELECT max(claims) FROM postroom_outbox"), 1);
}

/* A place in the table may belong to another row by the time its first owner is settled. */
PGSQL_TEST(A7_a_message_in_the_place_of_a_purged_one_is_not_mistaken_for_it)
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

PGSQL_TEST(A1_what_vacuum_full_has_moved_is_settled_all_the_same)
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

/* A column that somebody adds, or new tables in place of old ones, must not break what is prepared. */
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
PGSQL_TEST(C1_in_a_backlog_of_one_kind_every_turn_brings_a_batch)
{
	const struct pr_claim claim = { .limit = 10,
					.max_bytes = SIZE_MAX,
					.lease_ms = 60000,
					.max_attempts = 3 };
	const struct pr_policy policy = { .max_attempts = 3 };
	struct postroom_batch batches[2] = { 0 };
	struct pr_err err = { 0 };
	int of_key = 0;

	fill(300, "", "");
	CHECK_INT(store->ops->claim(store, &pr_table_outbox, &claim, &batches[0], &err), POSTROOM_OK);
	for (int turn = 0; turn < 20; turn++) {
		struct postroom_batch *now = &batches[turn % 2], *next = &batches[(turn + 1) % 2];

		if (turn == 8)
			PUT(.topic = "t", .key = "k", .payload = "1");
		for (size_t i = 0; i < now->count; i++)
			now->items[i].verdict = POSTROOM_DELIVERED;
		pr_batch_reset(next);
		CHECK_MSG(store->ops->turn(store, &pr_table_outbox, now->items, now->count, &policy,
					   &claim, next, &err) == POSTROOM_OK,
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
