/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unique keys in a table of SQLite. The backfill runs in chunks. The index is built under the write
 * lock, because SQLite has no other way; so its time is measured on a copy first. SQLite cannot add
 * NOT NULL to a column either: triggers refuse rows without a key.
 */
#include "adopt/sqlite/sqlite.h"

#include "base/time.h"

#include <string.h>

#define DOING "adding keys"

static bool has_column(const struct pr_adopt *adopt)
{
	return pr_adopt_find_column(adopt, adopt->parts[PR_ADOPT_DEDUPE]) >= 0;
}

static void put_column(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "ALTER TABLE %s ADD COLUMN ", adopt->name);
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " TEXT");
}

/* ?1: the last row of the chunk before; ?2: rows per chunk. */
static void put_fill(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "UPDATE %s SET ", adopt->name);
	pr_adopt_put_key_column(adopt, out);
	pr_buf_printf(out,
		      " = %s%s%s\nWHERE _rowid_ IN (SELECT _rowid_ FROM %s WHERE _rowid_ > ?1 AND ",
		      adopt->key_sql ? "(" : ADOPT_SQLITE_NEW_ID,
		      adopt->key_sql ? adopt->key_sql : "", adopt->key_sql ? ")" : "", adopt->name);
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " IS NULL ORDER BY _rowid_ LIMIT ?2)\nRETURNING _rowid_, ");
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " IS NULL");
}

static void put_index(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "CREATE UNIQUE INDEX IF NOT EXISTS postroom_keys_%s ON %s (",
		      adopt->function, adopt->name);
	pr_adopt_put_unique(adopt, out);
	pr_buf_putc(out, ')');
}

static void put_required(const struct pr_adopt *adopt, struct pr_buf *out)
{
	static const char *const events[][2] = { { "insert", "INSERT" }, { "update", "UPDATE" } };

	for (size_t i = 0; i < 2; i++) {
		pr_buf_printf(out,
			      "%sCREATE TRIGGER IF NOT EXISTS postroom_keys_%s_%s BEFORE %s ON "
			      "%s\nWHEN NEW.",
			      i > 0 ? ";\n" : "", events[i][0], adopt->function, events[i][1],
			      adopt->name);
		pr_adopt_put_key_column(adopt, out);
		pr_buf_puts(out, " IS NULL\nBEGIN\n\tSELECT RAISE(ABORT, 'the idempotency key is "
				 "required');\nEND");
	}
}

struct filling {
	int64_t last, rows, empty;
};

static void take_filled(struct filling *filling, sqlite3_stmt *row)
{
	int64_t number = sqlite3_column_int64(row, 0);

	filling->last = number > filling->last ? number : filling->last;
	filling->empty += sqlite3_column_int(row, 1);
	filling->rows++;
}

static int fill_chunk(struct pr_adopt *adopt, const char *sql, int64_t size,
		      struct filling *filling, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(adopt->store);
	sqlite3_stmt *stmt = NULL;
	int rc = SQLITE_OK, status = pr_sqlite_begin(adopt->store, err);

	if (status < 0)
		return status;
	filling->rows = 0;
	if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK) {
		status = pr_sqlite_fail(store->db, store, DOING, err);
		return pr_sqlite_end(adopt->store, status, err);
	}
	sqlite3_bind_int64(stmt, 1, filling->last);
	sqlite3_bind_int64(stmt, 2, size);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		take_filled(filling, stmt);
	if (rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, DOING, err);
	sqlite3_finalize(stmt);
	if (status >= 0 && filling->empty > 0)
		status = pr_err_set(
			err, POSTROOM_DATABASE,
			"adopt: a row of %s has no key although one was set: --key-sql gives NULL "
			"for it; correct that and run the command again",
			adopt->name);
	return pr_sqlite_end(adopt->store, status, err);
}

static int fill(struct pr_adopt *adopt, struct pr_adopt_progress *progress, struct pr_err *err)
{
	struct filling filling = { .last = INT64_MIN };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int64_t size = progress->chunk < 1000 ? progress->chunk : 1000;
	int status = POSTROOM_OK;

	put_fill(adopt, &sql);
	if (sql.failed)
		return pr_err_nomem(err);
	do {
		status = fill_chunk(adopt, sql.data, size, &filling, err);
		if (status < 0)
			return status;
		progress->moved += filling.rows;
		if (progress->show)
			progress->show(progress->context, progress->moved, progress->moved);
		if (pr_stop_wait(progress->stop, filling.rows == size ? 2 : 0))
			return pr_err_set(err, POSTROOM_BUSY,
					  "adopt: interrupted; run the command again to continue");
	} while (filling.rows == size);
	return POSTROOM_OK;
}

struct duplicates {
	int64_t count;
	struct pr_buf names;
};

static void take_duplicate(void *context, sqlite3_stmt *row)
{
	struct duplicates *found = context;
	const char *name = (const char *)sqlite3_column_text(row, 0);

	if (found->count++ < 5)
		pr_buf_printf(&found->names, "%s%s", found->count > 1 ? ", " : "",
			      name ? name : "");
}

static int refuse_duplicates(struct pr_adopt *adopt, struct pr_err *err)
{
	struct duplicates found = { 0 };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status;

	pr_buf_puts(&sql, "SELECT ");
	pr_adopt_put_key_column(adopt, &sql);
	pr_buf_printf(&sql, " FROM %s WHERE ", adopt->name);
	pr_adopt_put_key_column(adopt, &sql);
	pr_buf_puts(&sql, " IS NOT NULL GROUP BY ");
	pr_adopt_put_unique(adopt, &sql);
	pr_buf_puts(&sql, " HAVING count(*) > 1");
	if (adopt->parts[PR_ADOPT_TENANT]) {
		pr_buf_puts(&sql, " AND ");
		pr_adopt_put_ident(&sql, adopt->parts[PR_ADOPT_TENANT]);
		pr_buf_puts(&sql, " IS NOT NULL");
	}
	status = sql.failed ? pr_err_nomem(err)
			    : pr_adopt_sqlite_query(adopt, sql.data, DOING, take_duplicate, &found,
						    err);
	if (status >= 0 && found.count > 0)
		status = pr_err_set(
			err, POSTROOM_INVALID,
			"adopt: %lld keys of %s occur more than once, such as %s; no row was "
			"deleted: give those rows other keys, then run the command again",
			(long long)found.count, adopt->name, pr_buf_text(&found.names));
	pr_buf_release(&found.names);
	return status;
}

static int run_put(struct pr_adopt *adopt, void (*put)(const struct pr_adopt *, struct pr_buf *),
		   struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	put(adopt, &sql);
	return pr_adopt_sqlite_run_built(adopt, &sql, DOING, err);
}

int pr_adopt_sqlite_keys(struct pr_adopt *adopt, struct pr_adopt_progress *progress, bool required,
			 struct pr_err *err)
{
	int status = has_column(adopt) ? POSTROOM_OK : run_put(adopt, put_column, err);

	if (status >= 0 && required)
		status = run_put(adopt, put_required, err);
	if (status >= 0)
		status = fill(adopt, progress, err);
	if (status >= 0)
		status = refuse_duplicates(adopt, err);
	return status < 0 ? status : run_put(adopt, put_index, err);
}

/* A copy with as many random keys. The temporary store is in memory. */
int pr_adopt_sqlite_measure_keys(struct pr_adopt *adopt, int64_t *ret_ms, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int64_t begun_us;
	int status;

	pr_buf_puts(&sql, "CREATE TEMP TABLE postroom_adopt_copy AS SELECT ");
	if (adopt->parts[PR_ADOPT_TENANT])
		pr_adopt_put_ident(&sql, adopt->parts[PR_ADOPT_TENANT]);
	else
		pr_buf_puts(&sql, "NULL");
	pr_buf_printf(&sql, " AS tenant, " ADOPT_SQLITE_NEW_ID " AS key FROM %s", adopt->name);
	status = pr_adopt_sqlite_run_built(adopt, &sql, DOING, err);
	if (status < 0)
		return status;
	begun_us = pr_mono_us();
	status = pr_adopt_sqlite_run(adopt,
				     "CREATE UNIQUE INDEX temp.postroom_adopt_copied ON "
				     "postroom_adopt_copy (tenant, key)",
				     DOING, err);
	*ret_ms = (pr_mono_us() - begun_us + 999) / 1000;
	return status < 0 ? status
			  : pr_adopt_sqlite_run(adopt, "DROP TABLE temp.postroom_adopt_copy", DOING,
						err);
}

int pr_adopt_sqlite_explain_keys(struct pr_adopt *adopt, bool required, pr_adopt_text_fn fn,
				 void *context, struct pr_err *err)
{
	const struct {
		const char *locks;
		void (*put)(const struct pr_adopt *, struct pr_buf *);
		bool skipped;
	} steps[] = {
		{ "the write lock of the database, for a moment", put_column, has_column(adopt) },
		{ "the write lock, for a moment. From here on, new rows need a key", put_required,
		  !required },
		{ "the write lock, for each chunk", put_fill, false },
		{ "the write lock, until the index is built", put_index, false },
	};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		PR_CLEANUP_BUF struct pr_buf sql = { 0 };

		if (steps[i].skipped)
			continue;
		pr_buf_printf(&sql, "-- locks: %s\n", steps[i].locks);
		steps[i].put(adopt, &sql);
		pr_buf_puts(&sql, ";\n");
		if (sql.failed)
			return pr_err_nomem(err);
		fn(context, sql.data);
	}
	return POSTROOM_OK;
}
