/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes by operators (X1, X2): retry and purge; and exact statistics.
 *
 * 1. Retry and purge change only rows in the states that they are for, checked in
 *    the statement that changes the row.
 * 2. Each call is one short transaction; large jobs call it repeatedly.
 * 3. The history of failed attempts leaves with its row, in the same transaction.
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#include <string.h>

static sqlite3_stmt *prepare_filter(struct sqlite_store *store, const char *sql, struct pr_err *err)
{
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK)
		pr_sqlite_fail(store->db, store, "preparing a statement", err);
	return stmt;
}

/* Messages held behind the row under the cursor become claimable. */
static int free_successors(struct sqlite_store *store, const struct pr_table *table,
			   sqlite3_stmt *row, struct pr_err *err)
{
	const struct sqlite_key_name name = {
		.key = pr_sqlite_key_part(row, 3),
		.topic = pr_sqlite_key_part(row, 2),
		.ns = pr_sqlite_key_part(row, 1),
	};

	if (!name.key)
		return POSTROOM_OK;
	/* If another dead one blocks them, the next claim will hold them back again. */
	return pr_sqlite_unblock_key(store, table, &name, false, err);
}

/* Each gets a new seq (D6). sqlite_sequence moves along, so that no number is given twice. */
static int retry_dead(struct sqlite_store *store, const struct pr_table *table, sqlite3_stmt *dead,
		      int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	sqlite3_stmt *number, *update = NULL;
	int status = POSTROOM_OK;
	int rc = SQLITE_ERROR;

	pr_table_sql(table,
		     "UPDATE {table} SET seq = (SELECT seq FROM sqlite_sequence "
		     "WHERE name = '{table}'), status = 'pending', state = 'ready', attempts = 0, "
		     "next_attempt_at = ?1, updated_at = ?1 WHERE seq = ?2 AND status = 'dead'",
		     &sql);
	if (sql.failed)
		return pr_err_nomem(err);
	number = prepare_filter(store, "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = ?1",
				err);
	if (number)
		update = prepare_filter(store, sql.data, err);
	if (!update) {
		sqlite3_finalize(number);
		return err->status;
	}
	pr_sqlite_bind(number, 1, table->name);
	sqlite3_bind_int64(update, 1, pr_now_us());
	while (status >= 0 && (rc = sqlite3_step(dead)) == SQLITE_ROW) {
		sqlite3_bind_int64(update, 2, sqlite3_column_int64(dead, 0));
		status = pr_sqlite_run(store, number, "retrying messages", err);
		if (status >= 0)
			status = pr_sqlite_run(store, update, "retrying messages", err);
		*ret += sqlite3_changes(store->db);
		if (status >= 0)
			status = free_successors(store, table, dead, err);
	}
	if (status >= 0 && rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "retrying messages", err);
	sqlite3_finalize(number);
	sqlite3_finalize(update);
	return status;
}

int64_t pr_sqlite_before(int64_t older_than_ms)
{
	return older_than_ms > 0 ? pr_now_us() - older_than_ms * 1000 : INT64_MAX;
}

/* Which dead or done rows, gathered before the first is changed: changing seq must not move the scan. */
static void put_rows(struct pr_query *query, const postroom_filter *filter, const char *status,
		     int32_t limit)
{
	const struct pr_table *table = pr_filter_table(filter);
	bool dead = strcmp(status, "dead") == 0;
	const char *since = dead || filter->table == POSTROOM_INBOX ? "updated_at" : table->done_at;

	pr_query_put(query, "SELECT seq, namespace, topic, key FROM ");
	pr_query_put(query, table->name);
	if (!filter->id) {
		pr_query_put(query, " INDEXED BY ");
		pr_query_put(query, table->name);
		pr_query_put(query, "_");
		pr_query_put(query, status);
	}
	pr_query_put(query, dead			      ? " WHERE status = 'dead'"
			    : filter->table == POSTROOM_INBOX ? " WHERE status = 'completed'"
							      : " WHERE status = 'delivered'");
	pr_query_filter(query, filter, pr_sqlite_words(filter), since);
	pr_query_number(query, dead ? " ORDER BY +seq LIMIT @" : " LIMIT @", limit);
}

int pr_sqlite_retry(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		    int64_t *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	sqlite3_stmt *rows;
	int64_t revived = 0;
	int status;

	put_rows(&query, filter, "dead", limit);
	rows = pr_sqlite_prepare_query(store, &query, err);
	if (!rows)
		return err->status;
	status = pr_sqlite_begin(base, err);
	if (status >= 0) {
		status = retry_dead(store, pr_filter_table(filter), rows, &revived, err);
		sqlite3_reset(rows);
		status = pr_sqlite_end(base, status, err);
	}
	pr_sqlite_answered(store, rows, SQLITE_DONE, NULL, err);
	if (status >= 0)
		*ret = revived;
	return status;
}

static int gather(struct sqlite_store *store, const struct pr_table *table, sqlite3_stmt *stmt,
		  bool dead, int64_t *ret, struct pr_err *err)
{
	int status = POSTROOM_OK;
	int rc = SQLITE_ROW;

	pr_buf_reset(&store->seqs);
	while (status >= 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		pr_sqlite_add_seq(&store->seqs, sqlite3_column_int64(stmt, 0));
		(*ret)++;
		if (dead)
			status = free_successors(store, table, stmt, err);
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "purging messages", err);
	sqlite3_reset(stmt);
	return status;
}

static int delete_outbox_rows(struct sqlite_store *store, const struct pr_table *table,
			      struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(
		store, SLOT_DELETE, table,
		"DELETE FROM {table} WHERE seq IN (SELECT value FROM json_each(?1))", err);
	int status;

	if (!stmt)
		return err->status;
	status = pr_sqlite_bind_seqs(stmt, 1, &store->seqs, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "purging messages", err);
	return status;
}

/* Within a transaction; a dedupe key outlives its message, the history of attempts does not. */
static int delete_found(struct sqlite_store *store, const struct pr_table *table,
			sqlite3_stmt *rows, bool dead, int64_t *ret, struct pr_err *err)
{
	int status = gather(store, table, rows, dead, ret, err);

	if (status < 0 || *ret == 0)
		return status;
	if (table == &pr_table_outbox)
		status = pr_sqlite_keep_dedupe_keys(store, 0, err);
	if (status >= 0)
		status = pr_sqlite_delete_attempts(store, table, err);
	if (status >= 0)
		status = delete_outbox_rows(store, table, err);
	return status;
}

static int purge_rows(struct sqlite_store *store, const struct pr_purge *purge, int64_t *ret,
		      struct pr_err *err)
{
	const postroom_filter *filter = purge->filter;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	bool dead = pr_filter_is(filter, "dead");
	sqlite3_stmt *rows;
	int64_t purged = 0;
	int status;

	put_rows(&query, filter, filter->status, purge->limit);
	rows = pr_sqlite_prepare_query(store, &query, err);
	if (!rows)
		return err->status;
	status = pr_sqlite_begin(&store->base, err);
	if (status >= 0)
		status = pr_sqlite_end(
			&store->base,
			delete_found(store, pr_filter_table(filter), rows, dead, &purged, err),
			err);
	pr_sqlite_answered(store, rows, SQLITE_DONE, NULL, err);
	if (status >= 0)
		*ret = purged;
	return status;
}

static int purge_dedupe_keys(struct sqlite_store *store, const struct pr_purge *purge, int64_t *ret,
			     struct pr_err *err)
{
	sqlite3_stmt *stmt = prepare_filter(
		store,
		"DELETE FROM postroom_dedupe WHERE (namespace, topic, dedupe_key) "
		"IN (SELECT namespace, topic, dedupe_key FROM postroom_dedupe "
		"INDEXED BY postroom_dedupe_age WHERE created_at <= ?1 LIMIT ?2)",
		err);
	int status;

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 1, pr_sqlite_before(purge->filter->older_than_ms));
	sqlite3_bind_int(stmt, 2, purge->limit);
	status = pr_sqlite_begin(&store->base, err);
	if (status >= 0) {
		int64_t forgotten;

		status = pr_sqlite_run(store, stmt, "purging dedupe keys", err);
		forgotten = sqlite3_changes(store->db);
		status = pr_sqlite_end(&store->base, status, err);
		if (status >= 0)
			*ret = forgotten;
	}
	sqlite3_finalize(stmt);
	return status;
}

/* exclusive needs no lock here: there is one writer at a time. */
int pr_sqlite_purge(struct postroom_store *base, const struct pr_purge *purge, int64_t *ret,
		    struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);

	switch (purge->of) {
	case PR_PURGE_DEDUPE_KEYS:
		return purge_dedupe_keys(store, purge, ret, err);
	case PR_PURGE_ATTEMPTS:
		return pr_sqlite_purge_attempts(store, pr_filter_table(purge->filter), purge->limit,
						ret, err);
	default:
		return purge_rows(store, purge, ret, err);
	}
}

/*
 * A delayed message that was never tried is not old (TRAPS 34); a delayed one that is due is as old
 * as its due time.
 */
#define COUNTS                                                                                     \
	"sum(status = 'pending'), sum(status IN ('processing', 'active')), "                       \
	"sum(status = 'pending' AND attempts > 0), sum(status IN ('delivered', 'completed')), "    \
	"sum(status = 'dead'), "                                                                   \
	"min(CASE WHEN status IN ('processing', 'active') OR (status = 'pending' AND claims > 0) " \
	"THEN created_at WHEN status = 'pending' AND next_attempt_at <= @ "                        \
	"THEN max(created_at, next_attempt_at) END) "

/* status is a word that has been checked. */
static void put_stats(struct pr_query *query, const postroom_filter *filter, int64_t now_us)
{
	bool inbox = filter->table == POSTROOM_INBOX;

	pr_query_number(
		query,
		inbox ? "SELECT NULL, handler_name, " COUNTS "FROM postroom_inbox WHERE true"
		      : "SELECT namespace, topic, " COUNTS "FROM postroom_outbox WHERE true",
		now_us);
	if (pr_filter_is(filter, "failed"))
		pr_query_put(query, " AND status = 'pending' AND attempts > 0");
	else if (filter->status)
		pr_query_text(query, " AND status = @", filter->status);
	pr_query_filter(query, filter, pr_sqlite_words(filter), "updated_at");
	pr_query_put(query, " GROUP BY 1, 2 ORDER BY 1, 2");
}

int pr_sqlite_stats(struct postroom_store *base, const postroom_filter *filter,
		    postroom_counts *ret, postroom_topic_fn fn, void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	postroom_counts total = { .oldest_age_us = -1 };
	int64_t now_us = pr_now_us();
	sqlite3_stmt *stmt;
	int rc, status;

	put_stats(&query, filter, now_us);
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		bool none = sqlite3_column_type(stmt, 7) == SQLITE_NULL;
		int64_t age_us = now_us - sqlite3_column_int64(stmt, 7);
		postroom_counts topic = {
			.pending = sqlite3_column_int64(stmt, 2),
			.processing = sqlite3_column_int64(stmt, 3),
			.failed_pending = sqlite3_column_int64(stmt, 4),
			.delivered = sqlite3_column_int64(stmt, 5),
			.dead = sqlite3_column_int64(stmt, 6),
			.oldest_age_us = none	      ? -1
					 : age_us < 0 ? 0
						      : age_us,
		};

		pr_counts_add(&total, &topic);
		if (fn)
			fn(context, (const char *)sqlite3_column_text(stmt, 0),
			   (const char *)sqlite3_column_text(stmt, 1), &topic);
	}
	status = pr_sqlite_answered(store, stmt, rc, "counting messages", err);
	if (status >= 0)
		*ret = total;
	return status;
}
