/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inbox: accepting events and commands on the application's connection
 * (N2, N3), and what the operator does with them (N4).
 *
 * 1. Accepting begins, commits, rolls back and keeps open nothing. It writes
 *    first and looks afterwards: the write lock makes parallel duplicates wait.
 * 2. Retry and purge touch only the states they are for, checked in the very
 *    statement that changes the row.
 * 3. Each call of the operator's is one short transaction; whoever has much to
 *    do calls again.
 */
#include "base/time.h"
#include "store/sqlite_box.h"

#include <string.h>

#define ON_CONFLICT "ON CONFLICT (id, handler_name) DO NOTHING"
#define ONCE                                                                                       \
	"INSERT INTO postroom_inbox (id, handler_name, status, next_attempt_at, created_at, "      \
	"updated_at, processed_at) VALUES (?1, ?2, 'completed', ?3, ?3, ?3, ?3) " ON_CONFLICT
#define SUBMIT                                                                                     \
	"INSERT INTO postroom_inbox (id, handler_name, payload, next_attempt_at, created_at, "     \
	"updated_at) VALUES (?1, ?2, ?4, ?3, ?3, ?3) " ON_CONFLICT
#define STATE "SELECT status FROM postroom_inbox WHERE id = ?1 AND handler_name = ?2"

static int read_state(struct sqlite_box *box, const struct pr_entry *entry, const char *doing,
		      postroom_inbox_state *ret, struct pr_err *err)
{
	int status = pr_sqlite_box_prepare(box, &box->state, STATE, doing, err);

	if (status < 0)
		return status;
	pr_sqlite_bind(box->state, 1, entry->id);
	pr_sqlite_bind(box->state, 2, entry->handler);
	if (sqlite3_step(box->state) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(box->state, 0);

		if (name)
			*ret = pr_inbox_state(name);
		status = name ? POSTROOM_DUPLICATE : pr_err_nomem(err);
	} else {
		status = pr_sqlite_fail(box->db, NULL, doing, err);
	}
	sqlite3_reset(box->state);
	return status;
}

static int write_entry(struct sqlite_box *box, const struct pr_entry *entry, const char *doing,
		       postroom_inbox_state *ret_state, struct pr_err *err)
{
	sqlite3_stmt **stmt = entry->completed ? &box->once : &box->submit;
	int status = pr_sqlite_box_prepare(box, stmt, entry->completed ? ONCE : SUBMIT, doing, err);

	if (status < 0)
		return status;
	pr_sqlite_bind(*stmt, 1, entry->id);
	pr_sqlite_bind(*stmt, 2, entry->handler);
	sqlite3_bind_int64(*stmt, 3, pr_now_us());
	if (!entry->completed)
		pr_sqlite_bind(*stmt, 4, entry->payload);
	if (sqlite3_step(*stmt) != SQLITE_DONE)
		status = pr_sqlite_fail(box->db, NULL, doing, err);
	sqlite3_reset(*stmt);
	if (status < 0)
		return status;
	if (sqlite3_changes(box->db) == 0)
		return entry->completed ? POSTROOM_DUPLICATE :
					  read_state(box, entry, doing, ret_state, err);
	if (!entry->completed)
		*ret_state = POSTROOM_INBOX_PENDING;
	return POSTROOM_OK;
}

int pr_sqlite_box_accept(postroom_box *base, const struct pr_entry *entry,
			 postroom_inbox_state *ret_state, struct pr_err *err)
{
	struct sqlite_box *box = (struct sqlite_box *)base;
	const char *doing = entry->completed ? "inbox once" : "inbox submit";
	bool was_open = !sqlite3_get_autocommit(box->db);
	int status = write_entry(box, entry, doing, ret_state, err);

	return pr_sqlite_box_outcome(box, was_open, status, err);
}

/* A plain INSERT of what is completed need not say when: that is when it was written. */
#define ROW                                                                                        \
	"seq, id, handler_name, status, payload, checkpoint, steps, attempts, claims, "            \
	"next_attempt_at, locked_by, locked_until, last_attempt_at, last_error, created_at, "      \
	"updated_at, CASE WHEN status = 'completed' THEN coalesce(processed_at, updated_at) END, " \
	"coalesce(topic, handler_name), key, headers, content_type, body"

#define FILTER "(?1 IS NULL OR handler_name = ?1) AND (?2 IS NULL OR id = ?2) "

#define FROM(condition) "SELECT seq FROM postroom_inbox " condition " AND " FILTER
#define PAGE(condition) FROM(condition) "AND seq < ?3 AND (?5 IS NULL OR status = ?5) "
#define PENDING                                                                                    \
	PAGE("INDEXED BY postroom_inbox_turn WHERE " PR_SQLITE_TURN)                               \
	"UNION ALL " PAGE("INDEXED BY postroom_inbox_due WHERE " PR_SQLITE_DUE)                    \
	"UNION ALL " PAGE("INDEXED BY postroom_inbox_held WHERE apart = 2 AND status = 'pending'")

/* Each state is found by the index that holds it; the many that are completed, by seq. */
static const char *page_of(const postroom_inbox_filter *filter)
{
	static const struct {
		const char *status;
		const char *query;
	} kinds[] = {
		{ "pending", PENDING },
		{ "active", PAGE("INDEXED BY postroom_inbox_leased WHERE status = 'active'") },
		{ "dead", PAGE("INDEXED BY postroom_inbox_dead WHERE status = 'dead'") },
	};

	if (filter->id)
		return PAGE("WHERE id = ?2");
	for (size_t i = 0; filter->status && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].status, filter->status) == 0)
			return kinds[i].query;
	}
	return PAGE("NOT INDEXED WHERE true");
}

/* before, query and after are one statement; its ?1 and ?2 are the filter's. */
static sqlite3_stmt *prepare(struct sqlite_store *store, const char *before, const char *query,
			     const char *after, const postroom_inbox_filter *filter,
			     struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	sqlite3_stmt *stmt = NULL;

	pr_buf_printf(&sql, "%s%s%s", before, query, after);
	if (sql.failed) {
		pr_err_nomem(err);
		return NULL;
	}
	if (sqlite3_prepare_v2(store->db, sql.data, -1, &stmt, NULL) != SQLITE_OK) {
		pr_sqlite_fail(store->db, store, "preparing a statement", err);
		return NULL;
	}
	pr_sqlite_bind(stmt, 1, filter->handler);
	pr_sqlite_bind(stmt, 2, filter->id);
	return stmt;
}

static void read_row(sqlite3_stmt *stmt, postroom_inbox_row *row)
{
#define TEXT(column) ((const char *)sqlite3_column_text(stmt, column))
#define NUMBER(column) sqlite3_column_int64(stmt, column)
	*row = (postroom_inbox_row){
		.seq = NUMBER(0),
		.id = TEXT(1),
		.handler = TEXT(2),
		.status = TEXT(3),
		.payload = TEXT(4),
		.checkpoint = TEXT(5),
		.steps = TEXT(6),
		.attempts = (int32_t)NUMBER(7),
		.claims = NUMBER(8),
		.next_attempt_at_us = NUMBER(9),
		.locked_by = TEXT(10),
		.locked_until_us = NUMBER(11),
		.last_attempt_at_us = NUMBER(12),
		.last_error = TEXT(13),
		.created_at_us = NUMBER(14),
		.updated_at_us = NUMBER(15),
		.processed_at_us = NUMBER(16),
		.topic = TEXT(17),
		.key = TEXT(18),
		.headers = TEXT(19),
		.content_type = TEXT(20),
	};
	if (sqlite3_column_type(stmt, 21) != SQLITE_NULL) {
		const void *body = sqlite3_column_blob(stmt, 21);

		row->body = body ? body : "";
		row->body_len = (size_t)sqlite3_column_bytes(stmt, 21);
	}
#undef TEXT
#undef NUMBER
}

int pr_sqlite_inbox_list(struct postroom_store *base, const postroom_inbox_filter *filter,
			 int32_t limit, postroom_inbox_row_fn fn, void *context,
			 struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	/* The inner query sorts numbers only; whole rows are read for the page alone. */
	sqlite3_stmt *stmt = prepare(store,
				     "SELECT " ROW " FROM postroom_inbox WHERE seq IN (",
				     page_of(filter),
				     "ORDER BY seq DESC LIMIT ?4) ORDER BY seq DESC",
				     filter, err);
	int status = POSTROOM_OK;
	int rc;

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 3, filter->before_seq ? filter->before_seq : INT64_MAX);
	sqlite3_bind_int(stmt, 4, limit);
	pr_sqlite_bind(stmt, 5, filter->status);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		postroom_inbox_row row;

		read_row(stmt, &row);
		if (fn(context, &row) != 0) {
			rc = SQLITE_DONE;
			break;
		}
	}
	if (rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "reading the inbox", err);
	sqlite3_finalize(stmt);
	return status;
}

/* The rows are gathered first (the sorter holds them): see pr_sqlite_revive(). */
#define ROWS(condition)                                                                            \
	"SELECT seq, namespace, topic, key FROM postroom_inbox " condition " AND " FILTER          \
	"AND updated_at <= ?3 ORDER BY +seq LIMIT ?4"
#define DEAD ROWS("INDEXED BY postroom_inbox_dead WHERE status = 'dead'")
#define DEAD_BY_ID ROWS("WHERE id = ?2 AND status = 'dead'")
#define OLD                                                                                        \
	"SELECT seq FROM postroom_inbox INDEXED BY postroom_inbox_completed "                      \
	"WHERE status = 'completed' AND " FILTER "AND updated_at <= ?3 LIMIT ?4"

/* What to do with the rows that a query finds, within a transaction. */
typedef int (*doing_fn)(struct sqlite_store *store, sqlite3_stmt *rows, int64_t *ret,
			struct pr_err *err);

static int with_rows(struct postroom_store *base, const char *query,
		     const postroom_inbox_filter *filter, int32_t limit, doing_fn doing,
		     int64_t *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *rows = prepare(store, "", query, "", filter, err);
	int64_t count = 0;
	int status;

	if (!rows)
		return err->status;
	sqlite3_bind_int64(rows, 3, pr_sqlite_before(filter->older_than_ms));
	sqlite3_bind_int(rows, 4, limit);
	status = pr_sqlite_begin(base, err);
	if (status >= 0) {
		status = doing(store, rows, &count, err);
		sqlite3_reset(rows);
		status = pr_sqlite_end(base, status, err);
	}
	sqlite3_finalize(rows);
	if (status >= 0)
		*ret = count;
	return status;
}

static int revive(struct sqlite_store *store, sqlite3_stmt *rows, int64_t *ret, struct pr_err *err)
{
	return pr_sqlite_revive(store, &pr_table_inbox, rows, ret, err);
}

static int delete_rows(struct sqlite_store *store, sqlite3_stmt *rows, bool dead, int64_t *ret,
		       struct pr_err *err)
{
	int status = pr_sqlite_gather(store, &pr_table_inbox, rows, dead, ret, err);

	return status < 0 || *ret == 0 ? status : pr_sqlite_delete(store, &pr_table_inbox, err);
}

static int delete_dead(struct sqlite_store *store, sqlite3_stmt *rows, int64_t *ret,
		       struct pr_err *err)
{
	return delete_rows(store, rows, true, ret, err);
}

static int delete_old(struct sqlite_store *store, sqlite3_stmt *rows, int64_t *ret,
		      struct pr_err *err)
{
	return delete_rows(store, rows, false, ret, err);
}

int pr_sqlite_inbox_retry(struct postroom_store *base, const postroom_inbox_filter *filter,
			  int32_t limit, int64_t *ret, struct pr_err *err)
{
	return with_rows(base, filter->id ? DEAD_BY_ID : DEAD, filter, limit, revive, ret, err);
}

int pr_sqlite_inbox_purge(struct postroom_store *base, const postroom_inbox_filter *filter,
			  int32_t limit, bool alone, int64_t *ret, struct pr_err *err)
{
	(void)alone; /* there is one writer at a time anyway */
	if (strcmp(filter->status, "dead") == 0)
		return with_rows(base, DEAD, filter, limit, delete_dead, ret, err);
	return with_rows(base, OLD, filter, limit, delete_old, ret, err);
}

#define COUNT                                                                                      \
	"SELECT handler_name, sum(status = 'pending'), sum(status = 'active'), "                   \
	"sum(status = 'completed'), sum(status = 'dead') "                                         \
	"FROM postroom_inbox GROUP BY handler_name ORDER BY handler_name"

int pr_sqlite_inbox_stats(struct postroom_store *base, postroom_inbox_counts *ret,
			  postroom_inbox_handler_fn fn, void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	postroom_inbox_counts total = { 0 };
	sqlite3_stmt *stmt = NULL;
	int status = POSTROOM_OK;
	int rc;

	if (sqlite3_prepare_v2(store->db, COUNT, -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "counting the inbox", err);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const postroom_inbox_counts counts = {
			.pending = sqlite3_column_int64(stmt, 1),
			.active = sqlite3_column_int64(stmt, 2),
			.completed = sqlite3_column_int64(stmt, 3),
			.dead = sqlite3_column_int64(stmt, 4),
		};

		pr_inbox_counts_add(&total, &counts);
		if (fn)
			fn(context, (const char *)sqlite3_column_text(stmt, 0), &counts);
	}
	if (rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "counting the inbox", err);
	sqlite3_finalize(stmt);
	if (status >= 0)
		*ret = total;
	return status;
}
