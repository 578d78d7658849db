/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements and transactions of the SQLite store, and the transactions of a worker.
 *
 * 1. A write transaction is IMMEDIATE from its first statement: a read that becomes a write fails
 *    immediately, regardless of the busy handler.
 * 2. No statement stays open between calls: it would prevent a checkpoint of the WAL.
 * 3. A worker settles a batch and claims the next one in one transaction: claim.c and settle.c
 *    change rows, and this file begins and ends.
 */
#include "store/sqlite/sqlite.h"

#include <string.h>

/* A topic pattern as GLOB wants it: each character may take three. */
#define GLOB_SIZE (POSTROOM_TOPIC_MAX * 3 + 4)

/* The pattern as GLOB wants it: only '*' is special. Returns the length. */
static size_t glob_of(const char *pattern, char out[GLOB_SIZE])
{
	size_t len = 0;

	/* A pattern longer than the longest topic is cut: with '*'s aside it could not match anyway. */
	for (; *pattern && len + 4 < GLOB_SIZE; pattern++) {
		if (*pattern == '[' || *pattern == '?') {
			out[len++] = '[';
			out[len++] = *pattern;
			out[len++] = ']';
		} else {
			out[len++] = *pattern;
		}
	}
	out[len] = '\0';
	return len;
}

void pr_sqlite_pattern(const char *pattern, struct pr_buf *out)
{
	char glob[GLOB_SIZE];

	pr_buf_append(out, glob, glob_of(pattern, glob));
}

static void put_literal(void *context, const char *text, bool pattern, struct pr_buf *out)
{
	char glob[GLOB_SIZE];
	char *quoted;

	(void)context;
	if (pattern)
		glob_of(text, glob);
	quoted = sqlite3_mprintf("%Q", pattern ? glob : text);
	if (quoted)
		pr_buf_puts(out, quoted);
	else
		out->failed = true;
	sqlite3_free(quoted);
}

/* Last of all: nothing in a rule's own text is taken for a {name}. */
static void fill_rules(const struct sqlite_store *store, const struct pr_table *table,
		       const char *sql, struct pr_buf *out)
{
	const char *at;

	while ((at = strstr(sql, "{rules}"))) {
		pr_buf_append(out, sql, (size_t)(at - sql));
		if (store->rules.count > 0) {
			pr_buf_puts(out, "AND ");
			pr_rules_sql(&store->rules, table, "GLOB", put_literal, NULL, out);
		}
		sql = at + strlen("{rules}");
	}
	pr_buf_puts(out, sql);
}

sqlite3_stmt *pr_sqlite_prepare(struct sqlite_store *store, enum sqlite_slot slot,
				const struct pr_table *table, const char *sql, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf filled = { 0 }, text = { 0 };
	struct sqlite_side *side = sqlite_side(store, table);
	sqlite3_stmt **stmt = &side->slots[slot];

	/* The first ones know no tables. */
	if (*stmt && (slot <= SLOT_SCHEMA_VERSION || side->versions[slot] == store->schema_version))
		return *stmt;
	sqlite3_finalize(*stmt);
	*stmt = NULL;
	side->versions[slot] = store->schema_version;
	if (table)
		pr_table_sql(table, sql, &filled);
	else
		pr_buf_puts(&filled, sql);
	fill_rules(store, table, pr_buf_text(&filled), &text);
	if (filled.failed || text.failed) {
		pr_err_nomem(err);
		return NULL;
	}
	if (sqlite3_prepare_v3(store->db, text.data, -1, SQLITE_PREPARE_PERSISTENT, stmt, NULL) !=
	    SQLITE_OK)
		pr_sqlite_fail(store->db, store, "preparing a statement", err);
	return *stmt;
}

int pr_sqlite_run(struct sqlite_store *store, sqlite3_stmt *stmt, const char *doing,
		  struct pr_err *err)
{
	int status = POSTROOM_OK;

	if (sqlite3_step(stmt) != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, doing, err);
	sqlite3_reset(stmt);
	return status;
}

static int run_slot(struct postroom_store *base, enum sqlite_slot slot, const char *sql,
		    const char *doing, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, slot, NULL, sql, err);

	if (!stmt)
		return err ? err->status : POSTROOM_DATABASE;
	return pr_sqlite_run(store, stmt, doing, err);
}

/*
 * After a change of the schema SQLite prepares a statement anew while it runs. If there is no memory
 * for that, it may roll back the whole transaction and then run the statement outside of it. So
 * every statement of a transaction is prepared for the schema of that transaction.
 */
static int read_schema_version(struct sqlite_store *store, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_SCHEMA_VERSION, NULL,
					       "PRAGMA schema_version", err);
	int status = POSTROOM_OK;

	if (!stmt)
		return err->status;
	if (sqlite3_step(stmt) == SQLITE_ROW)
		store->schema_version = sqlite3_column_int(stmt, 0);
	else
		status = pr_sqlite_fail(store->db, store, "beginning to write", err);
	sqlite3_reset(stmt);
	return status;
}

static int begin(struct postroom_store *store, bool finishing, struct pr_err *err)
{
	int status;

	/* Prepared before it is needed: without memory there must still be a way back. */
	if (!pr_sqlite_prepare(sqlite_store(store), SLOT_ROLLBACK, NULL, "ROLLBACK", err))
		return err->status;
	/* A rollback can fail too; what it left open ends here. */
	pr_sqlite_rollback(store);
	sqlite_store(store)->busy_since_us = 0;
	sqlite_store(store)->finishing = finishing;
	status = run_slot(store, SLOT_BEGIN, "BEGIN IMMEDIATE", "beginning to write", err);
	if (status >= 0)
		status = read_schema_version(sqlite_store(store), err);
	if (status < 0)
		pr_sqlite_rollback(store);
	return status;
}

int pr_sqlite_begin(struct postroom_store *store, struct pr_err *err)
{
	return begin(store, false, err);
}

int pr_sqlite_begin_finishing(struct postroom_store *store, struct pr_err *err)
{
	return begin(store, true, err);
}

int pr_sqlite_commit(struct postroom_store *store, struct pr_err *err)
{
	return run_slot(store, SLOT_COMMIT, "COMMIT", "committing", err);
}

void pr_sqlite_rollback(struct postroom_store *store)
{
	/* After a full disk or an I/O error SQLite has often done it already. */
	if (!sqlite3_get_autocommit(sqlite_store(store)->db))
		run_slot(store, SLOT_ROLLBACK, "ROLLBACK", "rolling back", NULL);
}

int pr_sqlite_end(struct postroom_store *store, int status, struct pr_err *err)
{
	if (status >= 0) {
		int committed = pr_sqlite_commit(store, err);

		if (committed >= 0)
			return status;
		status = committed;
	}
	pr_sqlite_rollback(store);
	return status;
}

const char *pr_sqlite_key_part(sqlite3_stmt *row, int column)
{
	return (const char *)sqlite3_column_text(row, column);
}

void pr_sqlite_bind_key(sqlite3_stmt *stmt, const char *key, const char *topic, const char *ns)
{
	pr_sqlite_bind(stmt, 1, key);
	pr_sqlite_bind(stmt, 2, topic);
	pr_sqlite_bind(stmt, 3, ns);
}

/* The end of a query that is read to its end: 0, or why it broke off. */
int pr_sqlite_end_query(struct sqlite_store *store, sqlite3_stmt *stmt, int rc, struct pr_err *err)
{
	int status = POSTROOM_OK;

	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "checking the order of a key", err);
	sqlite3_reset(stmt);
	return status;
}

void pr_sqlite_bind(sqlite3_stmt *stmt, int index, const char *text)
{
	if (text)
		sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC);
	else
		sqlite3_bind_null(stmt, index);
}

bool pr_sqlite_bind_pattern(sqlite3_stmt *stmt, int index, const char *pattern)
{
	char glob[GLOB_SIZE];
	size_t len;

	if (!pattern) {
		sqlite3_bind_null(stmt, index);
		return true;
	}
	len = glob_of(pattern, glob);
	return sqlite3_bind_text(stmt, index, glob, (int)len, SQLITE_TRANSIENT) == SQLITE_OK;
}

int pr_sqlite_bind_scope(sqlite3_stmt *stmt, const struct pr_scope *scope, struct pr_err *err)
{
	pr_sqlite_bind(stmt, 1, scope->ns);
	pr_sqlite_bind(stmt, 3, scope->tenant_id);
	return pr_sqlite_bind_pattern(stmt, 2, scope->topic) ? POSTROOM_OK : pr_err_nomem(err);
}

void pr_sqlite_add_seq(struct pr_buf *seqs, int64_t seq)
{
	char digits[24];
	char *at = digits + sizeof(digits);

	/* By hand: printf would be a tenth of the claim. */
	do {
		*--at = (char)('0' + seq % 10);
		seq /= 10;
	} while (seq > 0);
	*--at = seqs->len ? ',' : '[';
	pr_buf_append(seqs, at, (size_t)(digits + sizeof(digits) - at));
}

int pr_sqlite_bind_seqs(sqlite3_stmt *stmt, int index, struct pr_buf *seqs, struct pr_err *err)
{
	if (seqs->len && seqs->data[seqs->len - 1] != ']')
		pr_buf_putc(seqs, ']');
	if (seqs->failed)
		return pr_err_nomem(err);
	sqlite3_bind_text64(stmt, index, pr_buf_text(seqs), seqs->len, SQLITE_STATIC, SQLITE_UTF8);
	return POSTROOM_OK;
}

/* If many messages must be held or made ready first, a claim takes several short transactions. */
static int claim_alone(struct postroom_store *base, const struct pr_table *table,
		       const struct pr_claim *claim, struct postroom_batch *batch,
		       struct pr_err *err)
{
	bool more = false;
	int status;

	do {
		status = pr_sqlite_begin(base, err);
		if (status >= 0)
			status = pr_sqlite_end(base,
					       pr_sqlite_claim_rows(sqlite_store(base), table,
								    claim, batch, &more, err),
					       err);
	} while (status >= 0 && more && batch->count == 0 && batch->dead_letter_count == 0);
	if (status < 0)
		pr_batch_reset(batch);
	return status;
}

int pr_sqlite_settle_and_claim(struct postroom_store *base, const struct pr_table *table,
			       const struct pr_settle *settle, const struct pr_claim *claim,
			       struct postroom_batch *batch, struct pr_err *err)
{
	bool more;
	int status;

	if (!settle)
		return claim_alone(base, table, claim, batch, err);
	status = pr_sqlite_begin_finishing(base, err);
	if (status < 0)
		return status;
	status = pr_sqlite_settle_rows(base, table, settle, err);
	if (status >= 0 && claim)
		status = pr_sqlite_claim_rows(sqlite_store(base), table, claim, batch, &more, err);
	status = pr_sqlite_end(base, status, err);
	if (status < 0 && claim)
		pr_batch_reset(batch);
	return status < 0 ? status : pr_sqlite_report_lost(settle->items, settle->count, err);
}
