/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operator does (X1, X2): list, show, retry, purge, forget, count.
 *
 * 1. Retry and purge touch only the states they are for, checked in the very
 *    statement that changes the row.
 * 2. Each call is one short transaction; whoever has much to do calls again.
 */
#include "base/time.h"
#include "store/sqlite.h"

#include <string.h>

#define ROW                                                                                        \
	"seq, id, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, "         \
	"body, content_type, headers, status, attempts, claims, next_attempt_at, locked_by, "      \
	"locked_until, last_attempt_at, last_error, created_at, updated_at, delivered_at"

#define FILTER                                                                                     \
	"(?1 IS NULL OR namespace = ?1) AND (?2 IS NULL OR topic GLOB ?2) "                        \
	"AND (?3 IS NULL OR tenant_id = ?3) AND (?4 IS NULL OR key = ?4) "

#define FROM "SELECT seq FROM postroom_outbox "
#define PAGE FILTER "AND seq < ?5 "
#define PENDING(which)                                                                             \
	FROM "INDEXED BY postroom_outbox_turn WHERE " PR_SQLITE_TURN "AND " which PAGE             \
	     "UNION ALL " FROM "INDEXED BY postroom_outbox_due WHERE " PR_SQLITE_DUE               \
	     "AND " which PAGE "UNION ALL " FROM                                                   \
	     "INDEXED BY postroom_outbox_held WHERE apart = 2 "                                    \
	     "AND status = 'pending' AND " which PAGE

/* Each kind is found by the index that holds it. */
static const struct kind {
	const char *status;
	const char *query;
} kinds[] = {
	{ "pending", PENDING("") },
	{ "failed", PENDING("attempts > 0 AND ") },
	{ "processing",
	  FROM "INDEXED BY postroom_outbox_leased WHERE status = 'processing' AND " PAGE },
	{ "delivered", FROM "NOT INDEXED WHERE status = 'delivered' AND " PAGE },
	{ "dead", FROM "INDEXED BY postroom_outbox_dead WHERE status = 'dead' AND " PAGE },
};

static const char *query_of(const char *status)
{
	for (size_t i = 0; status && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].status, status) == 0)
			return kinds[i].query;
	}
	return FROM "NOT INDEXED WHERE " PAGE;
}

static sqlite3_stmt *prepare(struct sqlite_store *store, const char *sql, struct pr_err *err)
{
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK)
		pr_sqlite_fail(store->db, store, "preparing a statement", err);
	return stmt;
}

static int bind_filter(sqlite3_stmt *stmt, const postroom_filter *filter, struct pr_err *err)
{
	pr_sqlite_bind(stmt, 1, filter->ns);
	pr_sqlite_bind(stmt, 3, filter->tenant_id);
	pr_sqlite_bind(stmt, 4, filter->key);
	return pr_sqlite_bind_pattern(stmt, 2, filter->topic) ? POSTROOM_OK : pr_err_nomem(err);
}

static void read_row(sqlite3_stmt *stmt, postroom_row *row)
{
#define TEXT(column) ((const char *)sqlite3_column_text(stmt, column))
#define BYTES(column) ((size_t)sqlite3_column_bytes(stmt, column))
#define NUMBER(column) sqlite3_column_int64(stmt, column)
	*row = (postroom_row){
		.seq = NUMBER(0),
		.id = TEXT(1),
		.ns = TEXT(2),
		.topic = TEXT(3),
		.tenant_id = TEXT(4),
		.key = TEXT(5),
		.dedupe_key = TEXT(6),
		.correlation_id = TEXT(7),
		.payload = TEXT(8),
		.payload_len = BYTES(8),
		.content_type = TEXT(10),
		.headers = TEXT(11),
		.status = TEXT(12),
		.attempts = (int32_t)NUMBER(13),
		.claims = NUMBER(14),
		.next_attempt_at_us = NUMBER(15),
		.locked_by = TEXT(16),
		.locked_until_us = NUMBER(17),
		.last_attempt_at_us = NUMBER(18),
		.last_error = TEXT(19),
		.created_at_us = NUMBER(20),
		.updated_at_us = NUMBER(21),
		.delivered_at_us = NUMBER(22),
	};
	if (sqlite3_column_type(stmt, 9) != SQLITE_NULL) {
		const void *body = sqlite3_column_blob(stmt, 9);

		row->body = body ? body : "";
		row->body_len = BYTES(9);
	}
#undef TEXT
#undef BYTES
#undef NUMBER
}

/* Hands each row to fn and finalizes the statement; POSTROOM_NOT_FOUND when there was none. */
static int walk(struct sqlite_store *store, sqlite3_stmt *stmt, postroom_row_fn fn, void *context,
		struct pr_err *err)
{
	int status = POSTROOM_NOT_FOUND;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		postroom_row row;

		status = POSTROOM_OK;
		read_row(stmt, &row);
		if (fn(context, &row) != 0) {
			rc = SQLITE_DONE;
			break;
		}
	}
	if (rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "reading messages", err);
	sqlite3_finalize(stmt);
	return status;
}

/* One number for an id, or POSTROOM_NOT_FOUND with the error said. */
static int seq_of(struct sqlite_store *store, const char *id, int64_t *ret, struct pr_err *err)
{
	sqlite3_stmt *stmt = prepare(store, "SELECT seq FROM postroom_outbox WHERE id = ?1", err);
	int status = POSTROOM_OK;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, id);
	switch (sqlite3_step(stmt)) {
	case SQLITE_ROW:
		*ret = sqlite3_column_int64(stmt, 0);
		break;
	case SQLITE_DONE:
		status = pr_err_set(err, POSTROOM_NOT_FOUND, "there is no message %s", id);
		break;
	default:
		status = pr_sqlite_fail(store->db, store, "reading messages", err);
	}
	sqlite3_finalize(stmt);
	return status;
}

int pr_sqlite_list(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		   postroom_row_fn fn, void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int64_t after = INT64_MAX;
	sqlite3_stmt *stmt;
	int status = POSTROOM_OK;

	if (filter->after)
		status = seq_of(store, filter->after, &after, err);
	if (status < 0)
		return status;
	/* The inner query sorts numbers only; whole rows are read for the page alone. */
	pr_buf_printf(&sql,
		      "SELECT " ROW " FROM postroom_outbox WHERE seq IN (%s"
		      "ORDER BY seq DESC LIMIT ?6) ORDER BY seq DESC",
		      query_of(filter->status));
	if (sql.failed)
		return pr_err_nomem(err);
	stmt = prepare(store, sql.data, err);
	if (!stmt)
		return err->status;
	status = bind_filter(stmt, filter, err);
	if (status < 0) {
		sqlite3_finalize(stmt);
		return status;
	}
	sqlite3_bind_int64(stmt, 5, after);
	sqlite3_bind_int(stmt, 6, limit);
	status = walk(store, stmt, fn, context, err);
	return status == POSTROOM_NOT_FOUND ? POSTROOM_OK : status;
}

int pr_sqlite_show(struct postroom_store *base, const char *id, postroom_row_fn fn, void *context,
		   struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = prepare(store, "SELECT " ROW " FROM postroom_outbox WHERE id = ?1",
				     err);
	int status;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, id);
	status = walk(store, stmt, fn, context, err);
	if (status == POSTROOM_NOT_FOUND)
		pr_err_set(err, status, "there is no message %s", id);
	return status;
}

/* What waited for the row under the cursor, which has a key, need not any more. */
static int free_successors(struct sqlite_store *store, const struct pr_table *table,
			   sqlite3_stmt *row, struct pr_err *err)
{
	const char *key = (const char *)sqlite3_column_text(row, 3);

	if (!key)
		return POSTROOM_OK;
	/* If another dead one blocks them, the next claim will hold them back again. */
	return pr_sqlite_order_free_key(store, table, key,
					(const char *)sqlite3_column_text(row, 2),
					(const char *)sqlite3_column_text(row, 1), false, err);
}

/* Each gets a new seq (D6). sqlite_sequence moves along, so that no number is given twice. */
int pr_sqlite_revive(struct sqlite_store *store, const struct pr_table *table, sqlite3_stmt *dead,
		     int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	sqlite3_stmt *number, *update = NULL;
	int status = POSTROOM_OK;
	int rc = SQLITE_ERROR;

	pr_table_sql(table,
		     "UPDATE {table} SET seq = (SELECT seq FROM sqlite_sequence "
		     "WHERE name = '{table}'), status = 'pending', apart = 4, attempts = 0, "
		     "next_attempt_at = ?1, updated_at = ?1 WHERE seq = ?2 AND status = 'dead'",
		     &sql);
	if (sql.failed)
		return pr_err_nomem(err);
	number = prepare(store, "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = ?1", err);
	if (number)
		update = prepare(store, sql.data, err);
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

static int refuse_retry(struct sqlite_store *store, const char *id, struct pr_err *err)
{
	sqlite3_stmt *stmt = prepare(store, "SELECT status FROM postroom_outbox WHERE id = ?1",
				     err);
	int status;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, id);
	if (sqlite3_step(stmt) == SQLITE_ROW)
		status = pr_err_set(err, POSTROOM_NOT_FOUND,
				    "message %s is %s; only dead messages can be retried", id,
				    (const char *)sqlite3_column_text(stmt, 0));
	else
		status = pr_err_set(err, POSTROOM_NOT_FOUND, "there is no message %s", id);
	sqlite3_finalize(stmt);
	return status;
}

/* The rows are gathered first (the sorter holds them): changing seq must not move the scan. */
#define DEAD "SELECT seq, namespace, topic, key FROM {table} "
#define DEAD_BY_ID DEAD "WHERE id = ?1 AND status = 'dead' ORDER BY +seq"
#define DEAD_BY_FILTER                                                                             \
	DEAD "INDEXED BY {table}_dead WHERE status = 'dead' "                                      \
	     "AND updated_at <= ?6 AND " FILTER "ORDER BY +seq LIMIT ?5"

int64_t pr_sqlite_before(int64_t older_than_ms)
{
	return older_than_ms > 0 ? pr_now_us() - older_than_ms * 1000 : INT64_MAX;
}

int pr_sqlite_retry(struct postroom_store *base, const struct pr_table *table, const char *id,
		    const postroom_filter *filter, int32_t limit, int64_t *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	sqlite3_stmt *stmt;
	int64_t revived = 0;
	int status = POSTROOM_OK;

	pr_table_sql(table, id ? DEAD_BY_ID : DEAD_BY_FILTER, &sql);
	if (sql.failed)
		return pr_err_nomem(err);
	stmt = prepare(store, sql.data, err);
	if (!stmt)
		return err->status;
	if (id) {
		pr_sqlite_bind(stmt, 1, id);
	} else {
		status = bind_filter(stmt, filter, err);
		sqlite3_bind_int(stmt, 5, limit);
		sqlite3_bind_int64(stmt, 6, pr_sqlite_before(filter->older_than_ms));
	}
	if (status >= 0)
		status = pr_sqlite_begin(base, err);
	if (status >= 0) {
		status = pr_sqlite_revive(store, table, stmt, &revived, err);
		if (status >= 0 && id && revived == 0)
			status = refuse_retry(store, id, err);
		sqlite3_reset(stmt);
		status = pr_sqlite_end(base, status, err);
	}
	sqlite3_finalize(stmt);
	if (status >= 0)
		*ret = revived;
	return status;
}

#define OLD "SELECT seq, namespace, topic, key FROM postroom_outbox INDEXED BY "
#define OLD_DEAD                                                                                   \
	OLD "postroom_outbox_dead WHERE status = 'dead' AND updated_at <= ?6 AND " FILTER          \
	    "ORDER BY +seq LIMIT ?5"
#define OLD_DELIVERED                                                                              \
	OLD "postroom_outbox_delivered WHERE status = 'delivered' AND delivered_at <= ?6 "         \
	    "AND " FILTER "LIMIT ?5"

int pr_sqlite_gather(struct sqlite_store *store, const struct pr_table *table, sqlite3_stmt *stmt,
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

int pr_sqlite_delete(struct sqlite_store *store, const struct pr_table *table, struct pr_err *err)
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

/* Within a transaction; a dedupe key outlives its message. */
static int delete_rows(struct sqlite_store *store, sqlite3_stmt *old, bool dead, int64_t *ret,
		       struct pr_err *err)
{
	int status = pr_sqlite_gather(store, &pr_table_outbox, old, dead, ret, err);

	if (status < 0 || *ret == 0)
		return status;
	status = pr_sqlite_remember(store, 0, err);
	if (status >= 0)
		status = pr_sqlite_delete(store, &pr_table_outbox, err);
	return status;
}

int pr_sqlite_purge(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		    bool alone, int64_t *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	bool dead = strcmp(filter->status, "dead") == 0;
	sqlite3_stmt *old = prepare(store, dead ? OLD_DEAD : OLD_DELIVERED, err);
	int64_t purged = 0;
	int status;

	(void)alone; /* there is one writer at a time anyway */
	if (!old)
		return err->status;
	status = bind_filter(old, filter, err);
	sqlite3_bind_int(old, 5, limit);
	sqlite3_bind_int64(old, 6, pr_sqlite_before(filter->older_than_ms));
	if (status >= 0)
		status = pr_sqlite_begin(base, err);
	if (status >= 0)
		status = pr_sqlite_end(base, delete_rows(store, old, dead, &purged, err), err);
	sqlite3_finalize(old);
	if (status >= 0)
		*ret = purged;
	return status;
}

int pr_sqlite_forget(struct postroom_store *base, int64_t older_than_ms, int32_t limit, bool alone,
		     int64_t *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = prepare(
		store,
		"DELETE FROM postroom_dedupe WHERE (namespace, topic, dedupe_key) "
		"IN (SELECT namespace, topic, dedupe_key FROM postroom_dedupe "
		"INDEXED BY postroom_dedupe_age WHERE created_at <= ?1 LIMIT ?2)",
		err);
	int status;

	(void)alone;
	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 1, pr_sqlite_before(older_than_ms));
	sqlite3_bind_int(stmt, 2, limit);
	status = pr_sqlite_begin(base, err);
	if (status >= 0) {
		int64_t forgotten;

		status = pr_sqlite_run(store, stmt, "forgetting dedupe keys", err);
		forgotten = sqlite3_changes(store->db);
		status = pr_sqlite_end(base, status, err);
		if (status >= 0)
			*ret = forgotten;
	}
	sqlite3_finalize(stmt);
	return status;
}

int pr_sqlite_lease(struct postroom_store *base, const enum pr_lease_kind *want,
		    enum pr_lease_kind *ret, struct pr_err *err)
{
	(void)base;
	if (want && *want != PR_LEASE_ROW)
		return pr_err_set(err, POSTROOM_INVALID,
				  "SQLite has one writer at a time, so its messages are always "
				  "leased by row; lanes are for PostgreSQL");
	*ret = PR_LEASE_ROW;
	return POSTROOM_OK;
}

/*
 * What waits for a later time and was never tried is not old (TRAPS 34); what
 * was delayed is as old as it is due.
 */
#define COUNT                                                                                      \
	"SELECT namespace, topic, sum(status = 'pending'), sum(status = 'processing'), "           \
	"sum(status = 'pending' AND attempts > 0), sum(status = 'delivered'), "                    \
	"sum(status = 'dead'), "                                                                   \
	"min(CASE WHEN status = 'processing' OR (status = 'pending' AND claims > 0) "              \
	"THEN created_at WHEN status = 'pending' AND next_attempt_at <= ?1 "                       \
	"THEN max(created_at, next_attempt_at) END) "                                              \
	"FROM postroom_outbox GROUP BY namespace, topic"

int pr_sqlite_stats(struct postroom_store *base, postroom_counts *ret, postroom_topic_fn fn,
		    void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	postroom_counts total = { .oldest_age_us = -1 };
	sqlite3_stmt *stmt = prepare(store, COUNT, err);
	int64_t now_us = pr_now_us();
	int rc;

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 1, now_us);
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
	if (rc != SQLITE_DONE) {
		int status = pr_sqlite_fail(store->db, store, "counting messages", err);

		sqlite3_finalize(stmt);
		return status;
	}
	sqlite3_finalize(stmt);
	*ret = total;
	return POSTROOM_OK;
}
