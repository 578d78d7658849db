/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versioned, additive migrations (U1).
 *
 * 1. All missing migrations are applied in one IMMEDIATE transaction: two programs that start
 *    together apply them once, and a crash leaves the old schema intact.
 * 2. An up-to-date database is only read: starting on it takes no write lock.
 */
#include "base/time.h"
#include "store/schema.h"
#include "store/sqlite/sqlite.h"

#include <stdio.h>
#include <string.h>

#define LEDGER                                                                                     \
	"CREATE TABLE IF NOT EXISTS postroom_migrations ("                                         \
	"version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL, "           \
	"applied_by TEXT NOT NULL, compatible_with INTEGER NOT NULL) STRICT"

/* The program that has applied the most exclusive migration knows it, and so do newer ones. */
#define STATE                                                                                      \
	"SELECT (SELECT max(version) FROM postroom_migrations), compatible_with, applied_by "      \
	"FROM postroom_migrations ORDER BY compatible_with DESC, version LIMIT 1"

static int execute(struct sqlite_store *store, const char *sql, const char *doing,
		   struct pr_err *err)
{
	if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, doing, err);
	return POSTROOM_OK;
}

static int read_schema_state(struct sqlite_store *store, struct pr_schema_state *ret,
			     struct pr_err *err)
{
	sqlite3_stmt *stmt = NULL;
	int status = POSTROOM_OK;

	*ret = (struct pr_schema_state){ 0 };
	if (sqlite3_prepare_v2(store->db,
			       "SELECT 1 FROM sqlite_schema WHERE type = 'table' "
			       "AND name = 'postroom_migrations'",
			       -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "reading the schema", err);
	switch (sqlite3_step(stmt)) {
	case SQLITE_DONE:
		sqlite3_finalize(stmt);
		return POSTROOM_OK;
	case SQLITE_ROW:
		break;
	default:
		status = pr_sqlite_fail(store->db, store, "reading the schema", err);
	}
	sqlite3_finalize(stmt);
	if (status < 0)
		return status;
	if (sqlite3_prepare_v2(store->db, STATE, -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "reading postroom_migrations", err);
	switch (sqlite3_step(stmt)) {
	case SQLITE_ROW:
		ret->version = sqlite3_column_int(stmt, 0);
		ret->compatible_with = sqlite3_column_int(stmt, 1);
		snprintf(ret->program, sizeof(ret->program), "%s",
			 (const char *)sqlite3_column_text(stmt, 2));
		break;
	case SQLITE_DONE:
		break;
	default:
		status = pr_sqlite_fail(store->db, store, "reading postroom_migrations", err);
	}
	sqlite3_finalize(stmt);
	return status;
}

int pr_sqlite_check_schema(struct postroom_store *base, enum pr_schema_need need,
			   struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	struct pr_schema_state state;
	int status = read_schema_state(store, &state, err);

	if (status >= 0)
		status = pr_schema_check(pr_schema_sqlite, &state, need, store->path, err);
	return status;
}

/* WAL lets the application write while the relay reads. It is kept in the file. */
static int use_wal(struct sqlite_store *store, struct pr_err *err)
{
	sqlite3_stmt *stmt = NULL;
	int status = POSTROOM_OK;
	int rc, tries = 0;

	/* SQLite calls no busy handler here: two that switch at once would both be refused. */
	do {
		sqlite3_finalize(stmt);
		rc = sqlite3_prepare_v2(store->db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);
		if (rc == SQLITE_OK)
			rc = sqlite3_step(stmt);
	} while ((rc & 0xff) == SQLITE_BUSY && pr_sqlite_wait_for_lock(store, tries++));
	if (rc != SQLITE_ROW)
		status = pr_sqlite_fail(store->db, store, "switching to WAL mode", err);
	else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "wal") != 0)
		status = pr_err_set(err, POSTROOM_DATABASE,
				    "\"%s\" cannot be switched to WAL mode; use a file on a local "
				    "disk",
				    store->path);
	sqlite3_finalize(stmt);
	return status;
}

static int record_migration(struct sqlite_store *store, const struct pr_migration *migration,
			    int64_t now_us, struct pr_err *err)
{
	sqlite3_stmt *stmt = NULL;
	int status;

	if (sqlite3_prepare_v2(store->db,
			       "INSERT INTO postroom_migrations (version, name, applied_at, "
			       "applied_by, compatible_with) VALUES (?1, ?2, ?3, ?4, ?5)",
			       -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "recording a migration", err);
	sqlite3_bind_int(stmt, 1, migration->version);
	pr_sqlite_bind(stmt, 2, migration->name);
	sqlite3_bind_int64(stmt, 3, now_us);
	pr_sqlite_bind(stmt, 4, postroom_version());
	sqlite3_bind_int(stmt, 5, migration->compatible_with);
	status = pr_sqlite_run(store, stmt, "recording a migration", err);
	sqlite3_finalize(stmt);
	return status;
}

static int apply_missing(struct sqlite_store *store, pr_migration_fn fn, void *context,
			 struct pr_err *err)
{
	struct pr_schema_state state;
	int status = execute(store, LEDGER, "creating postroom_migrations", err);

	if (status >= 0)
		status = read_schema_state(store, &state, err);
	if (status >= 0)
		status = pr_schema_check(pr_schema_sqlite, &state, PR_SCHEMA_COMPATIBLE,
					 store->path, err);
	for (const struct pr_migration *m = pr_schema_sqlite; status >= 0 && m->version; m++) {
		int64_t now_us = pr_now_us();

		if (m->version <= state.version)
			continue;
		status = execute(store, m->sql, m->name, err);
		if (status >= 0)
			status = record_migration(store, m, now_us, err);
		if (status >= 0 && fn)
			fn(context, m, now_us, postroom_version());
	}
	return status;
}

int pr_sqlite_migrate(struct postroom_store *base, pr_migration_fn fn, void *context,
		      struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	struct pr_schema_state state;
	int status = read_schema_state(store, &state, err);

	if (status >= 0)
		status = pr_schema_check(pr_schema_sqlite, &state, PR_SCHEMA_COMPATIBLE,
					 store->path, err);
	if (status < 0 || state.version >= pr_schema_newest(pr_schema_sqlite))
		return status;
	status = use_wal(store, err);
	if (status < 0)
		return status;
	status = pr_sqlite_begin(base, err);
	if (status < 0)
		return status;
	return pr_sqlite_end(base, apply_missing(store, fn, context, err), err);
}

/* Reports the migrations that a newer program has applied. */
static int report_unknown(struct sqlite_store *store, pr_migration_fn fn, void *context,
			  struct pr_err *err)
{
	sqlite3_stmt *stmt = NULL;
	int status = POSTROOM_OK;
	int rc;

	if (sqlite3_prepare_v2(store->db,
			       "SELECT version, compatible_with, name, applied_at, applied_by "
			       "FROM postroom_migrations WHERE version > ?1 ORDER BY version",
			       -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "reading postroom_migrations", err);
	sqlite3_bind_int(stmt, 1, pr_schema_newest(pr_schema_sqlite));
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const struct pr_migration migration = {
			.version = sqlite3_column_int(stmt, 0),
			.compatible_with = sqlite3_column_int(stmt, 1),
			.name = (const char *)sqlite3_column_text(stmt, 2),
		};

		fn(context, &migration, sqlite3_column_int64(stmt, 3),
		   (const char *)sqlite3_column_text(stmt, 4));
	}
	if (rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "reading postroom_migrations", err);
	sqlite3_finalize(stmt);
	return status;
}

int pr_sqlite_migrations(struct postroom_store *base, pr_migration_fn fn, void *context,
			 struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = NULL;
	struct pr_schema_state state;
	int status = read_schema_state(store, &state, err);

	if (status < 0)
		return status;
	if (state.version > 0 &&
	    sqlite3_prepare_v2(store->db,
			       "SELECT applied_at, applied_by FROM postroom_migrations "
			       "WHERE version = ?1",
			       -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "reading postroom_migrations", err);
	for (const struct pr_migration *m = pr_schema_sqlite; m->version; m++) {
		if (stmt)
			sqlite3_bind_int(stmt, 1, m->version);
		if (stmt && sqlite3_step(stmt) == SQLITE_ROW)
			fn(context, m, sqlite3_column_int64(stmt, 0),
			   (const char *)sqlite3_column_text(stmt, 1));
		else
			fn(context, m, 0, NULL);
		sqlite3_reset(stmt);
	}
	sqlite3_finalize(stmt);
	return state.version > 0 ? report_unknown(store, fn, context, err) : POSTROOM_OK;
}
