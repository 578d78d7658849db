/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claiming (C1–C6) and burying what has no attempts left (C5).
 *
 * 1. A claim is one IMMEDIATE transaction: nobody else can claim or settle
 *    between its reads and its writes.
 * 2. Due and expired are two queries on two partial indexes. Rows in backoff,
 *    delivered or dead are in neither, and cost nothing.
 * 3. What is found with an expired lease may have killed its worker. It is
 *    claimed alone, so that it can not take its neighbours along.
 * 4. Whatever is met without attempts left is buried there and then.
 * 5. A batch holds claimed rows only after the commit; on failure it is empty.
 */
#include "base/time.h"
#include "store/sqlite.h"

#include <string.h>

#define IN_SCOPE                                                                                   \
	"(?1 IS NULL OR {scope_ns} = ?1) AND (?2 IS NULL OR {scope_topic} GLOB ?2) "               \
	"AND (?3 IS NULL OR {scope_tenant} = ?3) "

#define DUE                                                                                        \
	"SELECT {columns} FROM {table} INDEXED BY {table}_due "                                    \
	"WHERE status = 'pending' AND next_attempt_at <= ?4 AND " IN_SCOPE                         \
	"ORDER BY next_attempt_at, seq LIMIT ?5"

#define EXPIRED                                                                                    \
	"SELECT {columns} FROM {table} INDEXED BY {table}_leased "                                 \
	"WHERE status = '{active}' AND locked_until < ?4 AND attempts >= ?6 AND " IN_SCOPE         \
	"ORDER BY locked_until, seq LIMIT ?5"

/* OR FAIL spares SQLite a journal for the statement; on any failure the transaction goes anyway. */
#define CLAIM                                                                                      \
	"UPDATE OR FAIL {table} SET status = '{active}', attempts = attempts + 1, "                \
	"claims = claims + 1, locked_by = ?1, locked_until = ?2, last_attempt_at = ?3, "           \
	"updated_at = ?3 WHERE seq IN (SELECT value FROM json_each(?4))"

#define BURY                                                                                       \
	"UPDATE {table} SET status = 'dead', locked_by = NULL, locked_until = NULL, "              \
	"last_error = coalesce(?1, last_error), updated_at = ?2 WHERE seq = ?3"

#define NEXT_DUE                                                                                   \
	"SELECT (SELECT next_attempt_at FROM {table} INDEXED BY {table}_due "                      \
	"WHERE status = 'pending' AND " IN_SCOPE "ORDER BY next_attempt_at, seq LIMIT 1), "        \
	"(SELECT locked_until FROM {table} INDEXED BY {table}_leased "                             \
	"WHERE status = '{active}' AND " IN_SCOPE "ORDER BY locked_until LIMIT 1)"

#define UNFINISHED                                                                                 \
	"SELECT EXISTS (SELECT 1 FROM {table} INDEXED BY {table}_leased "                          \
	"WHERE status = '{active}' AND " IN_SCOPE ") "                                             \
	"OR EXISTS (SELECT 1 FROM {table} INDEXED BY {table}_due "                                 \
	"WHERE status = 'pending' AND (next_attempt_at <= ?4 OR claims > 0) AND " IN_SCOPE ")"

#define EXPIRED_REASON "the lease ran out during the last attempt: its worker died or hung"

/* How many expired rows one claim looks at: nearly always there is none. */
#define EXPIRED_AT_ONCE 100

static int bind_scope(sqlite3_stmt *stmt, const struct pr_scope *scope, struct pr_err *err)
{
	pr_sqlite_bind(stmt, 1, scope->ns);
	pr_sqlite_bind(stmt, 3, scope->tenant_id);
	return pr_sqlite_bind_pattern(stmt, 2, scope->topic) ? POSTROOM_OK : pr_err_nomem(err);
}

static const char *copy_text(struct pr_arena *arena, sqlite3_stmt *stmt, int column, bool *failed)
{
	const unsigned char *text = sqlite3_column_text(stmt, column);
	const char *copy;

	if (!text)
		return NULL;
	copy = pr_arena_copy(arena, text, (size_t)sqlite3_column_bytes(stmt, column));
	*failed |= !copy;
	return copy;
}

/* Copies the row under the cursor; false when there is no memory. */
static bool read_row(sqlite3_stmt *stmt, struct pr_arena *arena, postroom_delivery *item)
{
	bool failed = false;

	item->seq = sqlite3_column_int64(stmt, PR_COL_SEQ);
	item->fence = sqlite3_column_int64(stmt, PR_COL_FENCE);
	item->attempt = sqlite3_column_int(stmt, PR_COL_ATTEMPTS);
	item->created_at_us = sqlite3_column_int64(stmt, PR_COL_CREATED_AT);
	item->id = copy_text(arena, stmt, PR_COL_ID, &failed);
	item->ns = copy_text(arena, stmt, PR_COL_NAMESPACE, &failed);
	item->topic = copy_text(arena, stmt, PR_COL_TOPIC, &failed);
	item->key = copy_text(arena, stmt, PR_COL_KEY, &failed);
	item->tenant_id = copy_text(arena, stmt, PR_COL_TENANT_ID, &failed);
	item->dedupe_key = copy_text(arena, stmt, PR_COL_DEDUPE_KEY, &failed);
	item->correlation_id = copy_text(arena, stmt, PR_COL_CORRELATION_ID, &failed);
	item->content_type = copy_text(arena, stmt, PR_COL_CONTENT_TYPE, &failed);
	item->headers = copy_text(arena, stmt, PR_COL_HEADERS, &failed);
	item->payload = copy_text(arena, stmt, PR_COL_PAYLOAD, &failed);
	item->payload_len = (size_t)sqlite3_column_bytes(stmt, PR_COL_PAYLOAD);
	if (sqlite3_column_type(stmt, PR_COL_BODY) != SQLITE_NULL) {
		const void *body = sqlite3_column_blob(stmt, PR_COL_BODY);

		item->body_len = (size_t)sqlite3_column_bytes(stmt, PR_COL_BODY);
		item->body = pr_arena_copy(arena, body, item->body_len);
		failed |= !item->body;
	}
	return !failed;
}

/*
 * Reads rows into the batch until the limit, the bytes or the rows run out;
 * those without attempts left go to the buried ones and do not count.
 */
static int read_rows(struct sqlite_store *store, sqlite3_stmt *stmt, int32_t max_attempts,
		     int32_t limit, size_t max_bytes, struct postroom_batch *batch,
		     struct pr_err *err)
{
	int status = POSTROOM_OK;
	size_t bytes = 0;
	int rc = SQLITE_ROW;

	while (batch->count < (size_t)limit && bytes < max_bytes &&
	       (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		bool spent = sqlite3_column_int(stmt, PR_COL_ATTEMPTS) >= max_attempts;
		postroom_delivery *item = spent ? pr_batch_add_buried(batch) : pr_batch_add(batch);

		if (!item || !read_row(stmt, &batch->arena, item)) {
			status = pr_err_nomem(err);
			break;
		}
		bytes += item->payload_len + item->body_len;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "claiming messages", err);
	sqlite3_reset(stmt);
	return status;
}

/* Up to limit rows with at least min_attempts, of which one may have attempts left. */
static int read_expired(struct sqlite_store *store, const struct pr_table *table,
			const struct pr_scope *scope, int64_t now_us, int32_t min_attempts,
			int32_t max_attempts, int32_t limit, struct postroom_batch *batch,
			struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_EXPIRED, table, EXPIRED, err);

	if (!stmt)
		return err->status;
	if (bind_scope(stmt, scope, err) < 0)
		return err->status;
	sqlite3_bind_int64(stmt, 4, now_us);
	sqlite3_bind_int(stmt, 5, limit);
	sqlite3_bind_int(stmt, 6, min_attempts);
	return read_rows(store, stmt, max_attempts, 1, SIZE_MAX, batch, err);
}

static int read_due(struct sqlite_store *store, const struct pr_table *table,
		    const struct pr_claim *claim, int64_t now_us, struct postroom_batch *batch,
		    struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_DUE, table, DUE, err);

	if (!stmt)
		return err->status;
	if (bind_scope(stmt, &claim->scope, err) < 0)
		return err->status;
	sqlite3_bind_int64(stmt, 4, now_us);
	sqlite3_bind_int(stmt, 5, claim->limit);
	return read_rows(store, stmt, claim->max_attempts, claim->limit, claim->max_bytes, batch,
			 err);
}

static int lease_items(struct sqlite_store *store, const struct pr_table *table,
		       const struct pr_claim *claim, int64_t now_us, struct postroom_batch *batch,
		       struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_CLAIM, table, CLAIM, err);
	int status;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, store->base.worker);
	sqlite3_bind_int64(stmt, 2, now_us + claim->lease_ms * 1000);
	sqlite3_bind_int64(stmt, 3, now_us);
	pr_buf_reset(&store->seqs);
	for (size_t i = 0; i < batch->count; i++) {
		batch->items[i].attempt++;
		batch->items[i].fence++;
		pr_sqlite_add_seq(store, batch->items[i].seq);
	}
	status = pr_sqlite_bind_seqs(store, stmt, 4, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "claiming messages", err);
	return status;
}

/* Those from index `from` on; reason NULL keeps the last error that stands there. */
static int bury(struct sqlite_store *store, const struct pr_table *table,
		struct postroom_batch *batch, size_t from, const char *reason, int64_t now_us,
		struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_BURY, table, BURY, err);
	int status = POSTROOM_OK;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, reason);
	sqlite3_bind_int64(stmt, 2, now_us);
	for (size_t i = from; status >= 0 && i < batch->buried_count; i++) {
		batch->buried[i].reason = reason;
		batch->buried[i].dead = 1;
		sqlite3_bind_int64(stmt, 3, batch->buried[i].seq);
		status = pr_sqlite_run(store, stmt, "burying messages", err);
	}
	return status;
}

static int claim_rows(struct sqlite_store *store, const struct pr_table *table,
		      const struct pr_claim *claim, struct postroom_batch *batch,
		      struct pr_err *err)
{
	int64_t now_us = pr_now_us();
	size_t expired;
	int status = POSTROOM_OK;

	if (claim->suspects)
		status = read_expired(store, table, &claim->scope, now_us, 0, claim->max_attempts,
				      EXPIRED_AT_ONCE, batch, err);
	expired = batch->buried_count;
	if (status >= 0 && expired > 0)
		status = bury(store, table, batch, 0, EXPIRED_REASON, now_us, err);
	if (status >= 0 && batch->count == 0)
		status = read_due(store, table, claim, now_us, batch, err);
	if (status >= 0 && batch->buried_count > expired)
		status = bury(store, table, batch, expired, NULL, now_us, err);
	if (status >= 0 && batch->count > 0)
		status = lease_items(store, table, claim, now_us, batch, err);
	return status;
}

int pr_sqlite_claim(struct postroom_store *base, const struct pr_table *table,
		    const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err)
{
	int status = pr_sqlite_begin(base, err);

	if (status >= 0)
		status = pr_sqlite_end(
			base, claim_rows(sqlite_store(base), table, claim, batch, err), err);
	if (status < 0)
		pr_batch_reset(batch);
	return status;
}

int pr_sqlite_sweep(struct postroom_store *base, const struct pr_table *table,
		    const struct pr_scope *scope, int32_t max_attempts, int32_t limit,
		    struct postroom_batch *batch, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	int64_t now_us = pr_now_us();
	int status = pr_sqlite_begin(base, err);

	if (status < 0)
		return status;
	status = read_expired(store, table, scope, now_us, max_attempts, max_attempts, limit, batch,
			      err);
	if (status >= 0)
		status = bury(store, table, batch, 0, EXPIRED_REASON, now_us, err);
	status = pr_sqlite_end(base, status, err);
	if (status < 0)
		pr_batch_reset(batch);
	return status;
}

/* Runs a query of one row over a scope; the statement is left on that row, or NULL. */
static sqlite3_stmt *look(struct sqlite_store *store, enum sqlite_slot slot,
			  const struct pr_table *table, const char *sql,
			  const struct pr_scope *scope, int64_t now_us, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, slot, table, sql, err);

	if (!stmt || bind_scope(stmt, scope, err) < 0)
		return NULL;
	if (now_us)
		sqlite3_bind_int64(stmt, 4, now_us);
	if (sqlite3_step(stmt) == SQLITE_ROW)
		return stmt;
	pr_sqlite_fail(store->db, store, "looking for work", err);
	sqlite3_reset(stmt);
	return NULL;
}

/* Until the next message becomes eligible by itself; INT64_MAX: none will. */
static int next_due(struct sqlite_store *store, const struct pr_table *table,
		    const struct pr_scope *scope, int64_t *ret_ms, struct pr_err *err)
{
	sqlite3_stmt *stmt = look(store, SLOT_NEXT_DUE, table, NEXT_DUE, scope, 0, err);
	int64_t next_us = INT64_MAX, now_us = pr_now_us();

	if (!stmt)
		return err->status;
	for (int column = 0; column < 2; column++) {
		int64_t due_us = sqlite3_column_int64(stmt, column);

		if (sqlite3_column_type(stmt, column) != SQLITE_NULL && due_us < next_us)
			next_us = due_us;
	}
	sqlite3_reset(stmt);
	if (next_us != INT64_MAX)
		next_us = next_us <= now_us ? 0 : (next_us - now_us + 999) / 1000;
	*ret_ms = next_us;
	return POSTROOM_OK;
}

int pr_sqlite_wait(struct postroom_store *base, const struct pr_table *table,
		   const struct pr_scope *scope, int64_t max_ms, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	int64_t next_ms = INT64_MAX;

	if (max_ms > PR_STORE_NAP_MS) {
		int status = next_due(store, table, scope, &next_ms, err);

		if (status < 0)
			return status;
	}
	pr_stop_wait(store->stop, next_ms < max_ms ? next_ms : max_ms);
	return POSTROOM_OK;
}

int pr_sqlite_unfinished(struct postroom_store *base, const struct pr_table *table,
			 const struct pr_scope *scope, bool *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = look(store, SLOT_UNFINISHED, table, UNFINISHED, scope, pr_now_us(),
				  err);

	if (!stmt)
		return err->status;
	*ret = sqlite3_column_int(stmt, 0) != 0;
	sqlite3_reset(stmt);
	return POSTROOM_OK;
}
