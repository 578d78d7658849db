/* SPDX-License-Identifier: Apache-2.0 */
/* Effects of a handler's statement that only SQLite has, and the store's cache for two tables. */
#include "contract/store/jobs.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/sqlite/sqlite.h"
#pragma GCC diagnostic pop

#define SQLITE_TEST(test_name) ON_ONE(test_name, backend_sqlite)

/* Taken in between two others: none of them may be there afterwards. */
static const char *failing(const char *statement)
{
	static struct pr_err err;
	struct pr_incoming_event events[] = { ARRIVAL(.id = "e1", .how = PR_INSERT_PENDING),
					      ARRIVAL(.id = "e2"), ARRIVAL(.id = "e3") };
	size_t at = 99;

	pr_err_clear(&err);
	CHECK_INT(store->ops->inbox_insert(
			  store, &(struct pr_inbox_insert){ "h", statement, false, events, 3 }, &at,
			  &err),
		  POSTROOM_TX_ABORTED);
	CHECK_INT(at, 1);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
	return err.text;
}

SQLITE_TEST(N2_rollback_inside_a_statement_is_a_failure_and_commits_nothing)
{
	sql(app, "CREATE TABLE effects (id text PRIMARY KEY ON CONFLICT ROLLBACK)");
	sql(app, "CREATE TRIGGER never BEFORE INSERT ON effects WHEN NEW.id = 'raise' "
		 "BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END");
	sql(app, "INSERT INTO effects VALUES ('there')");
	CHECK_CONTAINS(failing("INSERT INTO effects VALUES ('raise')"), "not this one");
	CHECK_CONTAINS(failing("INSERT INTO effects VALUES ('there')"), "effects.id");
	CHECK_CONTAINS(failing("INSERT OR ROLLBACK INTO effects VALUES ('there')"), "effects.id");
	CHECK_INT(number(app, "SELECT count(*) FROM effects"), 1);
}

SQLITE_TEST(N2_error_at_commit_is_a_failure_of_the_statement)
{
	struct pr_incoming_event events[] = { ARRIVAL(.id = "known"), ARRIVAL(.id = "e"),
					      ARRIVAL(.id = "known"),
					      ARRIVAL(.id = "f", .how = PR_INSERT_PENDING) };
	struct pr_err err = { 0 };
	size_t at = 99;

	job_submit("known", NULL);
	sql(app, "CREATE TABLE parents (id text PRIMARY KEY)");
	sql(app, "CREATE TABLE children (parent text REFERENCES parents DEFERRABLE "
		 "INITIALLY DEFERRED)");
	CHECK_INT(
		sqlite3_exec(sqlite_store(store)->db, "PRAGMA foreign_keys = ON", NULL, NULL, NULL),
		SQLITE_OK);
	CHECK_INT(store->ops->inbox_insert(
			  store,
			  &(struct pr_inbox_insert){ "h", "INSERT INTO children VALUES ('none')",
						     false, events, 4 },
			  &at, &err),
		  POSTROOM_TX_ABORTED);
	CHECK_INT(at, 1);
	CHECK_CONTAINS(err.text, "FOREIGN KEY");
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 1);
}

/* Otherwise the caller that splits the batch would insert the same events repeatedly. */
SQLITE_TEST(N2_failed_commit_without_statements_is_attributed_to_first_event)
{
	struct pr_incoming_event events[] = { ARRIVAL(.id = "e", .how = PR_INSERT_PENDING),
					      ARRIVAL(.id = "f", .how = PR_INSERT_PENDING) };
	struct pr_err err = { 0 };
	size_t at = 99;

	sql(app, "CREATE TABLE parents (id text PRIMARY KEY)");
	sql(app, "CREATE TABLE children (parent text REFERENCES parents DEFERRABLE "
		 "INITIALLY DEFERRED)");
	sql(app, "CREATE TRIGGER follow AFTER INSERT ON postroom_inbox "
		 "BEGIN INSERT INTO children VALUES ('none'); END");
	CHECK_INT(
		sqlite3_exec(sqlite_store(store)->db, "PRAGMA foreign_keys = ON", NULL, NULL, NULL),
		SQLITE_OK);
	CHECK_INT(store->ops->inbox_insert(store,
					   &(struct pr_inbox_insert){ "h", NULL, false, events, 2 },
					   &at, &err),
		  POSTROOM_TX_ABORTED);
	CHECK_INT(at, 0);
}

SQLITE_TEST(N2_full_database_is_not_blamed_on_an_event)
{
	struct pr_incoming_event event = ARRIVAL(.id = "e");
	struct pr_err err = { 0 };
	size_t at = 99;

	sql(app, "CREATE TABLE effects (data blob)");
	CHECK_INT(sqlite3_exec(sqlite_store(store)->db, "PRAGMA max_page_count = 100", NULL, NULL,
			       NULL),
		  SQLITE_OK);
	CHECK_INT(store->ops->inbox_insert(store,
					   &(struct pr_inbox_insert){
						   "h",
						   "INSERT INTO effects VALUES (zeroblob(9000000))",
						   false, &event, 1 },
					   &at, &err),
		  POSTROOM_DATABASE);
	CHECK_CONTAINS(err.text, "full");
	CHECK_INT(at, 99);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
}

SQLITE_TEST(N2_refused_statement_is_reported_with_its_fault)
{
	static const struct {
		const char *statement, *part;
	} bad[] = {
		{ "", "is empty" },
		{ "SELECT 1; SELECT 2", "consists of several" },
		{ "SELECT 1; nonsense", "consists of several" },
		{ "SELECT ?8", "seven" },
		{ "SELECT $2", "?1 payload" },
		{ "SELECT :payload", "?1 payload" },
		{ "INSERT INTO nowhere VALUES (1)", "no such table: nowhere" },
		{ "begin", "transaction" },
		{ "commit", "transaction" },
		{ "ROLLBACK TO a", "transaction" },
		{ "SAVEPOINT a", "transaction" },
		{ "/* quietly */ vacuum", "VACUUM" },
		{ "PRAGMA synchronous = OFF", "PRAGMA" },
		{ "ATTACH 'other.db' AS o", "ATTACH" },
		{ "DETACH o", "DETACH" },
	};
	struct pr_err err = { 0 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_INT(pr_store_check_statement(store, bad[i].statement, &err),
			  POSTROOM_INVALID);
		CHECK_CONTAINS(err.text, bad[i].part);
	}
	CHECK_INT(pr_store_check_statement(store, "SELECT ?, ?", &err), POSTROOM_OK);
}

/* The same scope, far on in the one table and at the beginning of the other. */
SQLITE_TEST(C6_low_water_mark_of_outbox_does_not_apply_to_inbox)
{
	const struct pr_scope scope = { .ns = "h" };

	for (int i = 0; i < 20; i++)
		PUT(.ns = "others", .topic = "t", .payload = "1");
	pr_sqlite_raise_low_water(sqlite_store(store), &pr_table_outbox, &scope, 0, 0, 3600000000);
	CHECK(pr_sqlite_low_water(sqlite_store(store), &pr_table_outbox, &scope) > 0);
	CHECK_INT(pr_sqlite_low_water(sqlite_store(store), &pr_table_inbox, &scope), 0);
	job_submit("a", NULL);
	CHECK_STR(jobs_done(false), "a ");
	CHECK(pr_sqlite_low_water(sqlite_store(store), &pr_table_outbox, &scope) > 0);
}
