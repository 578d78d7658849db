/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of failed attempts.
 *
 * 1. A row of it is written when an attempt has failed, together with the disposition. A message
 *    that never fails has no part in it.
 * 2. The last KEPT of each message stay.
 * 3. They leave with a purge of their message. Relays delete those of messages that left otherwise.
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#define KEPT "10"
#define DOING "recording attempts"

#define ADD                                                                                        \
	"INSERT INTO postroom_attempts (handler_name, id, number, at, duration_ms, worker, sink, " \
	"error) VALUES (?1, ?2, ?3, ?4, nullif(?5, -1), ?6, ?7, ?8)"
#define TRIM                                                                                       \
	"DELETE FROM postroom_attempts WHERE seq IN (SELECT seq FROM postroom_attempts "           \
	"WHERE handler_name = ?1 AND id = ?2 ORDER BY seq DESC LIMIT -1 OFFSET " KEPT ")"
/* Only rows that were claimed can have failed. */
#define DELETE_OUTBOX                                                                              \
	"DELETE FROM postroom_attempts WHERE handler_name = '' AND id IN "                         \
	"(SELECT id FROM postroom_messages WHERE seq IN (SELECT value FROM json_each(?1)) "        \
	"AND claims > 0)"
#define DELETE_INBOX                                                                               \
	"DELETE FROM postroom_attempts WHERE (handler_name, id) IN "                               \
	"(SELECT handler_name, id FROM postroom_inbox "                                            \
	"WHERE seq IN (SELECT value FROM json_each(?1)) AND claims > 0)"

static int trim(struct sqlite_store *store, const struct pr_table *table, const char *handler,
		const char *id, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_TRIM_ATTEMPTS, table, TRIM, err);

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, handler);
	pr_sqlite_bind(stmt, 2, id);
	return pr_sqlite_run(store, stmt, DOING, err);
}

int pr_sqlite_add_attempt(struct sqlite_store *store, const struct pr_table *table,
			  const postroom_delivery *item, const char *worker, const char *error,
			  struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_ADD_ATTEMPT, table, ADD, err);
	const char *handler = table == &pr_table_outbox ? "" : item->ns;
	int status;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, handler);
	pr_sqlite_bind(stmt, 2, item->id);
	sqlite3_bind_int(stmt, 3, item->attempt);
	sqlite3_bind_int64(stmt, 4, pr_now_us());
	sqlite3_bind_int64(stmt, 5, pr_attempt_duration_ms(item));
	pr_sqlite_bind(stmt, 6, worker);
	pr_sqlite_bind(stmt, 7, store->base.sink);
	pr_sqlite_bind(stmt, 8, error);
	status = pr_sqlite_run(store, stmt, DOING, err);
	/* No message has failed more often than it was claimed. */
	if (status >= 0 && item->fencing_token >= 10)
		status = trim(store, table, handler, item->id, err);
	return status;
}

int pr_sqlite_delete_attempts(struct sqlite_store *store, const struct pr_table *table,
			      struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(
		store, SLOT_DELETE_ATTEMPTS, table,
		table == &pr_table_outbox ? DELETE_OUTBOX : DELETE_INBOX, err);
	int status;

	if (!stmt)
		return err->status;
	status = pr_sqlite_bind_seqs(stmt, 1, &store->seqs, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "purging attempts", err);
	return status;
}

int pr_sqlite_attempts(struct postroom_store *base, const postroom_filter *filter,
		       postroom_attempt_fn fn, void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	sqlite3_stmt *stmt;
	int rc;

	pr_query_text(&query,
		      "SELECT number, at, coalesce(duration_ms, -1), worker, sink, error FROM "
		      "(SELECT * FROM postroom_attempts WHERE handler_name = @",
		      filter->handler ? filter->handler : "");
	pr_query_text(&query, " AND id = @ ORDER BY seq DESC LIMIT " KEPT ") ORDER BY seq",
		      filter->id);
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const postroom_attempt attempt = {
			.number = sqlite3_column_int(stmt, 0),
			.at_us = sqlite3_column_int64(stmt, 1),
			.duration_ms = sqlite3_column_int64(stmt, 2),
			.worker = (const char *)sqlite3_column_text(stmt, 3),
			.sink = (const char *)sqlite3_column_text(stmt, 4),
			.error = (const char *)sqlite3_column_text(stmt, 5),
		};

		if (sqlite3_errcode(store->db) == SQLITE_NOMEM) {
			rc = SQLITE_NOMEM;
			break;
		}
		if (fn(context, &attempt) != 0)
			break;
	}
	return pr_sqlite_answered(store, stmt, rc, "reading attempts", err);
}

/* Attempts after the last one seen, a few hundred at a time; from the beginning when all were seen. */
#define PURGE_ORPHANS                                                                              \
	"DELETE FROM postroom_attempts WHERE seq IN (SELECT seq FROM postroom_attempts AS a "      \
	"WHERE seq > ?1 AND seq <= ?2 AND (handler_name = '') = ?3 "                               \
	"AND CASE handler_name WHEN '' THEN NOT EXISTS "                                           \
	"(SELECT 1 FROM postroom_outbox AS o WHERE o.id IN " PR_SQLITE_UUID(                       \
		"a.id") ") "                                                                       \
			"ELSE NOT EXISTS (SELECT 1 FROM postroom_inbox AS i WHERE i.id = a.id "    \
			"AND i.handler_name = a.handler_name) END)"

static int find_end(struct sqlite_store *store, int32_t limit, int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	sqlite3_stmt *stmt;
	int rc;

	pr_query_number(&query,
			"SELECT max(seq) FROM (SELECT seq FROM postroom_attempts WHERE seq > @",
			store->purged_seq);
	pr_query_number(&query, " ORDER BY seq LIMIT @)", limit);
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(stmt, 0);
	return pr_sqlite_answered(store, stmt, rc, "purging attempts", err);
}

int pr_sqlite_purge_attempts(struct sqlite_store *store, const struct pr_table *table,
			     int32_t limit, int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	int64_t end = 0;
	sqlite3_stmt *stmt;
	int status = find_end(store, limit, &end, err);

	*ret = 0;
	if (status < 0 || end == 0) {
		store->purged_seq = 0;
		return status;
	}
	pr_query_put(&query, PURGE_ORPHANS);
	pr_query_add(&query, store->purged_seq);
	pr_query_add(&query, end);
	pr_query_add(&query, table == &pr_table_outbox);
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	status = pr_sqlite_begin(&store->base, err);
	if (status >= 0) {
		status = pr_sqlite_run(store, stmt, "purging attempts", err);
		*ret = sqlite3_changes(store->db);
		status = pr_sqlite_end(&store->base, status, err);
	}
	pr_sqlite_answered(store, stmt, SQLITE_DONE, NULL, err);
	if (status >= 0)
		store->purged_seq = end;
	return status;
}
