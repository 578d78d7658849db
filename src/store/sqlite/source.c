/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far handlers have read their sources, so that a replay of purged events is noticed.
 *
 * 1. A position never goes back within a period, whichever consumer writes it last.
 * 2. A period ends early when rows are purged that were completed in it: what is passed after
 *    that cannot have been purged by it.
 * 3. A row is deleted only when another one says as much for every later purge.
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#define DOING "recording how far a source was read"

#define NOTE                                                                                       \
	"INSERT INTO postroom_sources (handler_name, source, started_at, position) "               \
	"VALUES (?1, ?2, max(?3, coalesce((SELECT completed_at + 1 FROM postroom_inbox_purged "    \
	"WHERE handler_name = ?1), 0)), ?4) "                                                      \
	"ON CONFLICT (handler_name, source, started_at) DO UPDATE "                                \
	"SET position = excluded.position WHERE position < excluded.position"

#define THIN                                                                                       \
	"DELETE FROM postroom_sources AS s WHERE handler_name = ?1 AND source = ?2 AND EXISTS "    \
	"(SELECT 1 FROM postroom_sources AS n JOIN postroom_inbox_purged AS p "                    \
	"ON p.handler_name = n.handler_name AND n.started_at <= p.completed_at "                   \
	"WHERE n.handler_name = ?1 AND n.source = ?2 AND n.started_at > s.started_at "             \
	"AND n.position >= s.position)"

static int record_source(struct sqlite_store *store, const char *handler, int64_t started_us,
			 const struct pr_source_position *entry, struct pr_err *err)
{
	sqlite3_stmt *insert, *thin;
	int status;

	insert = pr_sqlite_prepare(store, SLOT_RECORD_SOURCE, &pr_table_inbox, NOTE, err);
	if (!insert)
		return err->status;
	thin = pr_sqlite_prepare(store, SLOT_THIN_SOURCE, &pr_table_inbox, THIN, err);
	if (!thin)
		return err->status;
	pr_sqlite_bind(insert, 1, handler);
	pr_sqlite_bind(insert, 2, entry->source);
	sqlite3_bind_int64(insert, 3, started_us);
	pr_sqlite_bind(insert, 4, entry->position);
	status = pr_sqlite_run(store, insert, DOING, err);
	if (status < 0)
		return status;
	pr_sqlite_bind(thin, 1, handler);
	pr_sqlite_bind(thin, 2, entry->source);
	return pr_sqlite_run(store, thin, DOING, err);
}

static int delete_sources(struct sqlite_store *store, const char *handler, struct pr_err *err)
{
	sqlite3_stmt *stmt = NULL;
	int status = POSTROOM_OK;

	if (sqlite3_prepare_v2(store->db, "DELETE FROM postroom_sources WHERE handler_name = ?1",
			       -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "preparing a statement", err);
	pr_sqlite_bind(stmt, 1, handler);
	if (sqlite3_step(stmt) != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "deleting the positions of sources", err);
	sqlite3_finalize(stmt);
	return status;
}

int pr_sqlite_record_sources(struct postroom_store *base, const char *handler, int64_t period_ms,
			     const struct pr_source_position *entries, size_t count,
			     struct pr_err *err)
{
	int64_t now_us = pr_now_us();
	int status;

	if (!entries)
		return delete_sources(sqlite_store(base), handler, err);
	status = pr_sqlite_begin(base, err);
	if (status < 0)
		return status;
	for (size_t i = 0; i < count && status >= 0; i++)
		status = record_source(sqlite_store(base), handler,
				       now_us - now_us % (period_ms * 1000), &entries[i], err);
	return pr_sqlite_end(base, status, err);
}

#define READ                                                                                       \
	"SELECT s.source, max(s.position), coalesce(max(s.position) FILTER "                       \
	"(WHERE s.started_at <= p.completed_at), ''), coalesce(p.completed_at, 0) "                \
	"FROM postroom_sources AS s LEFT JOIN postroom_inbox_purged AS p USING (handler_name) "    \
	"WHERE s.handler_name = ?1 GROUP BY s.source"

static int read_position(sqlite3_stmt *stmt, pr_source_fn fn, void *context, struct pr_err *err)
{
	const struct pr_source_position entry = {
		.source = (const char *)sqlite3_column_text(stmt, 0),
		.position = (const char *)sqlite3_column_text(stmt, 1),
		.purged = (const char *)sqlite3_column_text(stmt, 2),
	};

	if (!entry.source || !entry.position || !entry.purged)
		return pr_err_nomem(err);
	return fn(context, &entry, err);
}

int pr_sqlite_read_sources(struct postroom_store *base, const char *handler, pr_source_fn fn,
			   void *context, int64_t *ret_us, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_READ_SOURCES, &pr_table_inbox, READ,
					       err);
	int status = POSTROOM_OK;
	int rc = SQLITE_ROW;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, handler);
	*ret_us = 0;
	while (status >= 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		*ret_us = sqlite3_column_int64(stmt, 3);
		status = read_position(stmt, fn, context, err);
	}
	if (status >= 0 && rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "reading how far sources were read", err);
	sqlite3_reset(stmt);
	return status;
}
