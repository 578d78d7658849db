/* SPDX-License-Identifier: Apache-2.0 */
/* Migrations on PostgreSQL, schemas of one's own, and what a store says of a server. */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <stdlib.h>

static struct postroom_store *open_in(const char *schema)
{
	struct postroom_store *opened = NULL;
	struct pr_err err = { 0 };

	CHECK_MSG(pr_store_open(&(struct pr_store_config){ .url = url, .schema = schema }, &opened,
				&err) >= 0,
		  "%s", err.text);
	return opened;
}

static void migrate(struct postroom_store *in)
{
	struct pr_err err = { 0 };

	CHECK_MSG(in->ops->migrate(in, NULL, NULL, &err) >= 0, "%s", err.text);
	CHECK_MSG(in->ops->check_schema(in, PR_SCHEMA_COMPLETE, &err) >= 0, "%s", err.text);
}

static void *migrate_in_thread(void *context)
{
	migrate(context);
	return NULL;
}

static char first_url[sizeof(url)];

static void use_empty_database(void)
{
	world_end();
	memcpy(first_url, url, sizeof(url));
	backend->new_database(url);
	/* Only the application's side: there is nothing for a store to open yet. */
	backend->connect(app, url);
}

static void leave_empty_database(void)
{
	backend->disconnect(app);
	memcpy(url, first_url, sizeof(url));
	world_connect();
}

PGSQL_TEST(U1_missing_tables_are_reported_and_not_created)
{
	postroom_store *without = NULL;

	use_empty_database();
	CHECK_INT(postroom_store_open(url, &without), POSTROOM_SCHEMA);
	CHECK_CONTAINS(postroom_store_errmsg(without), "postroom migrate");
	postroom_store_close(without);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_class WHERE relname LIKE 'postroom%%'"), 0);
	leave_empty_database();
}

static void note_migration(void *context, const struct pr_migration *migration,
			   int64_t applied_at_us, const char *applied_by)
{
	int *applied = context;

	CHECK(migration->version > 0 && migration->name && migration->sql);
	CHECK_INT(applied_at_us != 0, applied_by != NULL);
	*applied += applied_at_us != 0;
}

PGSQL_TEST(U1_migrations_are_reported_once_and_recorded)
{
	struct postroom_store *fresh;
	struct pr_err err = { 0 };
	int reported = 0, known = 0;

	use_empty_database();
	fresh = open_in(NULL);
	CHECK_INT(fresh->ops->migrations(fresh, note_migration, &known, &err), POSTROOM_OK);
	CHECK_INT(known, 0);
	CHECK_INT(fresh->ops->migrate(fresh, note_migration, &reported, &err), POSTROOM_OK);
	CHECK(reported > 0);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_migrations"), reported);
	CHECK_INT(fresh->ops->migrations(fresh, note_migration, &known, &err), POSTROOM_OK);
	CHECK_INT(known, reported);
	known = 0;
	CHECK_INT(fresh->ops->migrate(fresh, note_migration, &known, &err), POSTROOM_OK);
	CHECK_INT(known, 0);
	pr_store_close(fresh);
	leave_empty_database();
}

/* TRAPS 33: while it waits, all sessions behind it wait; so it gives up its lock and retries. */
PGSQL_TEST(U1_migration_yields_to_a_long_lock_and_retries)
{
	struct session *holder, *eye;
	struct postroom_store *fresh;
	pthread_t thread;
	int pid;

	use_empty_database();
	sql(app,
	    "CREATE TABLE postroom_migrations (version integer PRIMARY KEY, name text NOT NULL, "
	    "applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), applied_by text NOT NULL, "
	    "compatible_with integer NOT NULL)");
	holder = join();
	eye = join();
	begin(holder);
	sql(holder, "LOCK TABLE postroom_migrations IN SHARE MODE");
	fresh = open_in(NULL);
	pid = PQbackendPID(pgsql_store(fresh)->conn);
	CHECK_INT(pthread_create(&thread, NULL, migrate_in_thread, fresh), 0);
	await_blocked_pid(eye, pid);
	/* The lock is not released, and yet it stops waiting, holds nothing, and retries. */
	await_unblocked_pid(eye, pid);
	await_blocked_pid(eye, pid);
	await_unblocked_pid(eye, pid);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_class WHERE relname = 'postroom_outbox'"),
		  0);
	rollback(holder);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox"), 0);
	pr_store_close(fresh);
	leave(holder);
	leave(eye);
	leave_empty_database();
}

/* One after the other under a lock: the second finds the work done. */
PGSQL_TEST(U1_a_second_migration_waits_for_the_first)
{
	struct session *holder, *eye;
	struct postroom_store *fresh;
	pthread_t thread;

	use_empty_database();
	holder = join();
	eye = join();
	fresh = open_in(NULL);
	begin(holder);
	sql(holder, "SELECT pg_advisory_xact_lock(1886351220)");
	CHECK_INT(pthread_create(&thread, NULL, migrate_in_thread, fresh), 0);
	await_blocked_pid(eye, PQbackendPID(pgsql_store(fresh)->conn));
	CHECK_INT(number(app, "SELECT count(*) FROM pg_class WHERE relname LIKE 'postroom%%'"), 0);
	commit(holder);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox"), 0);
	pr_store_close(fresh);
	leave(holder);
	leave(eye);
	leave_empty_database();
}

PGSQL_TEST(U1_failed_migration_leaves_no_objects)
{
	struct postroom_store *fresh;
	struct pr_err err = { 0 };

	use_empty_database();
	sql(app, "CREATE FUNCTION postroom_key(tenant text, category text, entity text, kind text, "
		 "version text DEFAULT '0') RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'");
	fresh = open_in(NULL);
	CHECK(fresh->ops->migrate(fresh, NULL, NULL, &err) < 0);
	CHECK_CONTAINS(err.text, "postroom_key");
	CHECK_INT(number(app, "SELECT count(*) FROM pg_class WHERE relname LIKE 'postroom%%'"), 0);
	sql(app, "DROP FUNCTION postroom_key");
	migrate(fresh);
	pr_store_close(fresh);
	leave_empty_database();
}

/* Uses a store in a schema, from its migration to a delivery. */
static void check_schema(const char *schema)
{
	struct postroom_store *in = open_in(schema);
	postroom_batch *batch;
	postroom_receipt receipt;
	struct pr_err err = { 0 };
	int64_t done;

	migrate(in);
	migrate(in);
	CHECK_INT(in->ops->begin(in, &err), POSTROOM_OK);
	CHECK_INT(
		postroom_enqueue(in->ops->box(in),
				 POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = "k"),
				 &receipt),
		POSTROOM_OK);
	CHECK_INT(postroom_enqueue_many(in->ops->box(in),
					(postroom_message[]){
						*POSTROOM_MESSAGE(.topic = "t", .payload = "1",
								  .dedupe_key = "k"),
						*POSTROOM_MESSAGE(.topic = "t", .payload = "2"),
					},
					2, NULL),
		  POSTROOM_OK);
	CHECK_INT(in->ops->end(in, POSTROOM_OK, &err), POSTROOM_OK);
	batch = claim_from(in, POSTROOM_CLAIM(0));
	CHECK_STR(items_of(batch, 2)[0].id, receipt.id);
	CHECK_INT(postroom_renew(in, batch, items_of(batch, 2), 2), POSTROOM_OK);
	CHECK_INT(postroom_ack(in, batch, items_of(batch, 2), 1), POSTROOM_OK);
	CHECK_INT(postroom_reject(in, batch, items_of(batch, 2) + 1, 1, "no"), POSTROOM_OK);
	CHECK_INT(postroom_retry(in, POSTROOM_FILTER(.id = items_of(batch, 2)[1].id)), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(postroom_sweep(in, 10, &done), POSTROOM_OK);
	CHECK_INT(in->ops->wait(in, &pr_table_outbox, &(struct pr_scope){ 0 }, 30, &err),
		  POSTROOM_OK);
	CHECK_INT(postroom_purge_some(in, POSTROOM_FILTER(.status = "delivered"), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	pr_store_close(in);
}

PGSQL_TEST(U1_separate_schema_contains_everything)
{
	static const char *const schemas[] = {
		"mail", "Mixed Case", "with \"quotes\"", "d\xc3\xa9j\xc3\xa0", "a.b", "select"
	};

	use_empty_database();
	for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++)
		check_schema(schemas[i]);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_class WHERE relname LIKE 'postroom%%' "
			      "AND relnamespace = 'public'::regnamespace"),
		  0);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'postroom%%' "
			      "AND pronamespace = 'public'::regnamespace"),
		  0);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_class WHERE relname = 'postroom_outbox'"),
		  sizeof(schemas) / sizeof(schemas[0]));
	/* The functions know where their table is. */
	sql(app, "SELECT \"Mixed Case\".postroom_enqueue('t', '1')");
	CHECK_INT(number(app, "SELECT count(*) FROM \"Mixed Case\".postroom_outbox"), 2);
	leave_empty_database();
}

PGSQL_TEST(U1_search_path_selects_the_schema_by_default)
{
	char in_path[400];
	struct postroom_store *there = NULL;
	struct pr_err err = { 0 };

	use_empty_database();
	sql(app, "CREATE SCHEMA first");
	url_with_options("-c search_path=first,public", in_path);
	CHECK_INT(pr_store_open(&(struct pr_store_config){ .url = in_path }, &there, &err),
		  POSTROOM_OK);
	migrate(there);
	pr_store_close(there);
	CHECK_INT(number(app, "SELECT count(*) FROM first.postroom_outbox"), 0);
	/* And a producer finds them by its own. */
	sql(app, "SET search_path = first");
	PUT(.topic = "t", .payload = "1");
	CHECK_INT(number(app, "SELECT count(*) FROM first.postroom_outbox"), 1);
	leave_empty_database();
}

PGSQL_TEST(U1_invalid_schema_name_is_refused)
{
	static const char *const bad[] = {
		"",
		"it's",
		"a$$b",
		"{schema}",
		"back\\slash",
		"a234567890123456789012345678901234567890123456789012345678901234"
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct postroom_store *refused_one = NULL;
		struct pr_err err = { 0 };

		CHECK_INT(pr_store_open(&(struct pr_store_config){ .url = url, .schema = bad[i] },
					&refused_one, &err),
			  POSTROOM_INVALID);
		CHECK_CONTAINS(err.text, "schema");
	}
}

PGSQL_TEST(D5_store_with_ended_connection_reports_it)
{
	postroom_batch *batch = NULL;
	int status;

	PUT(.topic = "t", .payload = "1");
	end_backend(app, PQbackendPID(pgsql_store(store)->conn));
	for (int i = 0; i < 2; i++) {
		status = postroom_claim(store, POSTROOM_CLAIM(0), &batch);
		CHECK_MSG(status == POSTROOM_UNAVAILABLE, "%d: %s", status,
			  postroom_store_errmsg(store));
		CHECK(!batch);
		CHECK(strlen(postroom_store_errmsg(store)) > 20);
	}
	CHECK_INT(rows("pending"), 1);
}

/* The state of the server is unknown: the connection is closed, the box too. */
PGSQL_TEST(D5_server_that_does_not_answer_in_time_times_out)
{
	struct pr_store_config config = { .url = url, .answer_ms = 200 };
	struct session *other = join();
	struct postroom_store *hasty = NULL;
	postroom_batch *batch = NULL;
	struct pr_err err = { 0 };
	postroom_box *box;

	CHECK_INT(pr_store_open(&config, &hasty, &err), POSTROOM_OK);
	box = hasty->ops->box(hasty);
	CHECK_INT(postroom_enqueue(box, POSTROOM_MESSAGE(.topic = "t", .payload = "1"), NULL),
		  POSTROOM_OK);
	begin(other);
	sql(other, "LOCK TABLE postroom_outbox");
	CHECK_INT(postroom_claim(hasty, POSTROOM_CLAIM(0), &batch), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(postroom_store_errmsg(hasty), "no answer");
	rollback(other);
	CHECK_INT(postroom_claim(hasty, POSTROOM_CLAIM(0), &batch), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(postroom_store_errmsg(hasty), "closed");
	CHECK_INT(postroom_enqueue(box, POSTROOM_MESSAGE(.topic = "t", .payload = "1"), NULL),
		  POSTROOM_TX_ABORTED);
	CHECK_CONTAINS(postroom_errmsg(box), "closed");
	pr_store_close(hasty);
	leave(other);
	CHECK_INT(rows(NULL), 1);
}

/* A lost answer to a claim: what the server did is found again after the lease, nothing is lost. */
PGSQL_TEST(D5_cancelled_statement_changes_nothing_and_can_be_repeated)
{
	struct session *other = join();
	char impatient_url[400];
	postroom_store *impatient = NULL;
	postroom_batch *batch = NULL;

	PUT(.topic = "t", .payload = "1");
	url_with_options("-c lock_timeout=50ms", impatient_url);
	CHECK_INT(postroom_store_open(impatient_url, &impatient), POSTROOM_OK);
	begin(other);
	sql(other, "LOCK TABLE postroom_outbox");
	CHECK_INT(postroom_claim(impatient, POSTROOM_CLAIM(0), &batch), POSTROOM_BUSY);
	CHECK_CONTAINS(postroom_store_errmsg(impatient), "lock");
	rollback(other);
	batch = claim_from(impatient, POSTROOM_CLAIM(0));
	CHECK_INT(only_item(batch)->attempt, 1);
	postroom_batch_free(batch);
	postroom_store_close(impatient);
	leave(other);
}
