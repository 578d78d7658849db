/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/store/backend.h"

#include <postroom/sqlite.h>
#include <unistd.h>

/* A file comes into being when it is opened, and its tables with it. */
static void new_database(char *out)
{
	static int made;

	snprintf(out, 200, "sqlite:contract%d.db", ++made);
}

static void make_tables(const char *at)
{
	postroom_store *made_for = NULL;

	CHECK_MSG(postroom_store_open(at, &made_for) >= 0, "%s", postroom_store_errmsg(made_for));
	postroom_store_close(made_for);
}

/* They go with the test's directory. */
static void drop_databases(void)
{
}

static void connect_sqlite(struct session *session, const char *at)
{
	sqlite3 *db = NULL;

	CHECK_INT(sqlite3_open_v2(strchr(at, ':') + 1, &db, SQLITE_OPEN_READWRITE, NULL),
		  SQLITE_OK);
	sqlite3_busy_timeout(db, 60000);
	session->backend = &backend_sqlite;
	session->native = db;
	session->box = postroom_box_sqlite(db);
	CHECK(session->box);
}

static void disconnect_sqlite(struct session *session)
{
	postroom_box_free(session->box);
	/* sqlite3_close(), not _v2: a statement that the box forgot would be SQLITE_BUSY. */
	CHECK_INT(sqlite3_close(session->native), SQLITE_OK);
}

static bool run(struct session *session, const char *statement, char *error, size_t size)
{
	sqlite3 *db = session->native;

	if (sqlite3_exec(db, statement, NULL, NULL, NULL) == SQLITE_OK)
		return true;
	snprintf(error, size, "%s", sqlite3_errmsg(db));
	return false;
}

static bool query(struct session *session, const char *statement, char *out, size_t size)
{
	sqlite3_stmt *stmt = NULL;
	bool found = false;

	CHECK_MSG(sqlite3_prepare_v2(session->native, statement, -1, &stmt, NULL) == SQLITE_OK,
		  "%s: %s", statement, sqlite3_errmsg(session->native));
	if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_text(stmt, 0)) {
		snprintf(out, size, "%s", (const char *)sqlite3_column_text(stmt, 0));
		found = true;
	}
	CHECK_MSG(sqlite3_finalize(stmt) == SQLITE_OK, "%s: %s", statement,
		  sqlite3_errmsg(session->native));
	return found;
}

static bool in_transaction(struct session *session)
{
	return !sqlite3_get_autocommit(session->native);
}

static int send_and_wait(void *context, int times)
{
	int fd = (int)(intptr_t)context;

	(void)times;
	CHECK_INT(write(fd, "", 1), 1);
	sqlite3_sleep(1);
	return 1;
}

static void announce_when_blocked(struct session *session, int fd)
{
	sqlite3_busy_handler(session->native, send_and_wait, (void *)(intptr_t)fd);
}

const struct backend backend_sqlite = {
	.name = "sqlite",
	.begin = "BEGIN IMMEDIATE",
	.now_us = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000",
	.to_us = "%s",
	.shift = "%s + (%lld)",
	.new_database = new_database,
	.new_database_with_tables = new_database,
	.make_tables = make_tables,
	.drop_databases = drop_databases,
	.connect = connect_sqlite,
	.disconnect = disconnect_sqlite,
	.run = run,
	.query = query,
	.in_transaction = in_transaction,
	.announce_when_blocked = announce_when_blocked,
};
