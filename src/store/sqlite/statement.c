/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handler's statement: checked, run with an event, and its failures attributed.
 *
 * 1. It runs inside a transaction of the store. While preparing, SQLite reports what a statement
 *    would do: statements that begin or end a transaction, or cannot run in one, are refused.
 * 2. RAISE(ROLLBACK) and ON CONFLICT ROLLBACK still end the transaction. That is a failure:
 *    nothing is written after it.
 * 3. Only a failure of the statement itself is POSTROOM_TX_ABORTED. A lock, a full disk or lack of
 *    memory is a failure of the database, and no reason to give up an event.
 * 4. A statement that exceeds its timeout is interrupted and has failed.
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#include <string.h>

#define PARAMETERS 7
#define NAMED "?1 payload, ?2 id, ?3 topic, ?4 key, ?5 headers, ?6 tenant_id, ?7 correlation_id"

/* Instructions of SQLite's machine between two checks of the deadline. */
#define CHECK_EVERY 10000

/* What SQLite's authorizer reported while a statement was prepared. */
struct authorization {
	bool reported; /* anything at all: only VACUUM reports nothing */
	bool transaction;
	const char *outside; /* what belongs outside of transactions */
};

static int note_transaction_end(void *context, int action, const char *first, const char *second,
				const char *database, const char *trigger)
{
	struct authorization *authorization = context;

	(void)first, (void)second, (void)database, (void)trigger;
	authorization->reported = true;
	switch (action) {
	case SQLITE_TRANSACTION:
	case SQLITE_SAVEPOINT:
		authorization->transaction = true;
		return SQLITE_DENY;
	case SQLITE_ATTACH:
		authorization->outside = "ATTACH";
		return SQLITE_DENY;
	case SQLITE_DETACH:
		authorization->outside = "DETACH";
		return SQLITE_DENY;
	case SQLITE_PRAGMA:
		authorization->outside = "PRAGMA";
		return SQLITE_DENY;
	default:
		return SQLITE_OK;
	}
}

static int refuse_statement(struct pr_err *err, const char *why)
{
	return pr_err_set(err, POSTROOM_INVALID, "the handler's statement %s", why);
}

static bool is_database_error(int native)
{
	switch (native & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_NOMEM:
	case SQLITE_FULL:
	case SQLITE_IOERR:
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_CANTOPEN:
	case SQLITE_READONLY:
	case SQLITE_PROTOCOL:
	case SQLITE_INTERRUPT:
		return true;
	default:
		return false;
	}
}

/* Reports the error that SQLite has just returned. */
static int fail_statement(struct sqlite_store *store, int blame, const char *doing,
			  struct pr_err *err)
{
	int native = sqlite3_extended_errcode(store->db);

	if (is_database_error(native))
		return pr_sqlite_fail(store->db, store, doing, err);
	pr_err_set(err, blame, "the handler's statement failed: %s", sqlite3_errmsg(store->db));
	err->native = native;
	return blame;
}

/* True if more than semicolons and comments follow the first statement. */
static bool has_second_statement(sqlite3 *db, const char *tail)
{
	while (*tail) {
		sqlite3_stmt *next = NULL;
		bool more = sqlite3_prepare_v2(db, tail, -1, &next, &tail) != SQLITE_OK || next;

		sqlite3_finalize(next);
		if (more)
			return true;
	}
	return false;
}

static int check_parameters(sqlite3_stmt *stmt, struct pr_err *err)
{
	int count = sqlite3_bind_parameter_count(stmt);

	if (count > PARAMETERS)
		return refuse_statement(err, "has too many parameters; an event has seven: " NAMED);
	for (int i = 1; i <= count; i++) {
		const char *name = sqlite3_bind_parameter_name(stmt, i);

		/* SQLite treats $2 as a name, and would number it by its position. */
		if (name && *name != '?')
			return refuse_statement(err,
						"has a parameter with a name; write them as SQLite "
						"numbers them: " NAMED);
	}
	return POSTROOM_OK;
}

static int check_first_statement(struct sqlite_store *store,
				 const struct authorization *authorization, int rc,
				 sqlite3_stmt *stmt, const char *tail, struct pr_err *err)
{
	if (authorization->transaction)
		return refuse_statement(
			err, "begins or ends a transaction; omit that, because it runs in the "
			     "transaction of the inbox");
	if (authorization->outside || (stmt && !authorization->reported))
		return pr_err_set(err, POSTROOM_INVALID,
				  "the handler's statement cannot be a %s: it runs inside a "
				  "transaction",
				  authorization->outside ? authorization->outside : "VACUUM");
	if (rc != SQLITE_OK)
		return fail_statement(store, POSTROOM_INVALID, "preparing the handler's statement",
				      err);
	if (!stmt)
		return refuse_statement(err, "is empty; write one SQL statement");
	if (has_second_statement(store->db, tail))
		return sqlite3_errcode(store->db) == SQLITE_NOMEM
			       ? pr_err_nomem(err)
			       : refuse_statement(
					 err,
					 "consists of several; write one, or put the others into a "
					 "trigger");
	return check_parameters(stmt, err);
}

/* The prepared statement is reused while the text is the same. POSTROOM_INVALID if it cannot run. */
static int prepare_statement(struct sqlite_store *store, const char *statement, struct pr_err *err)
{
	struct authorization authorization = { 0 };
	const char *tail = "";
	int status, rc;

	if (store->handler_stmt && strcmp(pr_buf_text(&store->handler_sql), statement) == 0)
		return POSTROOM_OK;
	sqlite3_finalize(store->handler_stmt);
	store->handler_stmt = NULL;
	sqlite3_set_authorizer(store->db, note_transaction_end, &authorization);
	rc = sqlite3_prepare_v3(store->db, statement, -1, SQLITE_PREPARE_PERSISTENT,
				&store->handler_stmt, &tail);
	status = check_first_statement(store, &authorization, rc, store->handler_stmt, tail, err);
	sqlite3_set_authorizer(store->db, NULL, NULL);
	pr_buf_reset(&store->handler_sql);
	pr_buf_puts(&store->handler_sql, statement);
	if (status >= 0 && store->handler_sql.failed)
		status = pr_err_nomem(err);
	if (status < 0) {
		sqlite3_finalize(store->handler_stmt);
		store->handler_stmt = NULL;
	}
	return status;
}

int pr_sqlite_check_statement(struct postroom_store *base, const char *statement,
			      struct pr_err *err)
{
	return prepare_statement(sqlite_store(base), statement, err);
}

static int is_late(void *context)
{
	const struct sqlite_store *store = context;

	pr_watchdog_feed(store->watchdog, 0);
	return pr_mono_us() >= store->handler_until_us;
}

/* An interrupted statement also rolls back the transaction. */
static int run_until_deadline(struct sqlite_store *store, struct pr_err *err)
{
	char limit[PR_DURATION_SIZE];
	bool late;
	int rc;

	store->handler_until_us = pr_mono_us() + store->statement_ms * 1000;
	if (store->statement_ms)
		sqlite3_progress_handler(store->db, CHECK_EVERY, is_late, store);
	do {
		rc = sqlite3_step(store->handler_stmt);
	} while (rc == SQLITE_ROW && !(store->statement_ms && is_late(store)));
	sqlite3_progress_handler(store->db, 0, NULL, NULL);
	late = store->statement_ms && (rc == SQLITE_ROW || rc == SQLITE_INTERRUPT);
	if (rc == SQLITE_DONE)
		return POSTROOM_OK;
	if (!late)
		return fail_statement(store, POSTROOM_TX_ABORTED, "running the handler's statement",
				      err);
	pr_duration_format(store->statement_ms, limit);
	return pr_err_set(err, POSTROOM_TX_ABORTED, "the handler's statement timed out after %s",
			  limit);
}

static void bind_event(sqlite3_stmt *stmt, const struct pr_statement_parameters *event)
{
	const char *texts[] = { event->id,	event->topic,	  event->key,
				event->headers, event->tenant_id, event->correlation_id };
	int count = sqlite3_bind_parameter_count(stmt);

	if (count > 0)
		sqlite3_bind_text64(stmt, 1, event->payload.data, event->payload.len, SQLITE_STATIC,
				    SQLITE_UTF8);
	for (int i = 2; i <= count; i++)
		pr_sqlite_bind(stmt, i, texts[i - 2]);
}

int pr_sqlite_run_statement(struct sqlite_store *store, const char *statement,
			    const struct pr_statement_parameters *event, struct pr_err *err)
{
	int status = prepare_statement(store, statement, err);

	if (status == POSTROOM_INVALID)
		return err->status = POSTROOM_TX_ABORTED;
	if (status < 0)
		return status;
	bind_event(store->handler_stmt, event);
	status = run_until_deadline(store, err);
	sqlite3_reset(store->handler_stmt);
	if (status >= 0 && sqlite3_get_autocommit(store->db))
		status = pr_err_set(err, POSTROOM_TX_ABORTED,
				    "the handler's statement has ended the transaction that it "
				    "runs in; leave that out");
	return status;
}

int pr_sqlite_end_statement(struct sqlite_store *store, int status, struct pr_err *err)
{
	if (status >= 0) {
		int committed = pr_sqlite_commit(&store->base, err);

		if (committed >= 0)
			return status;
		status = committed;
		/* A deferred foreign key. */
		if ((err->native & 0xff) == SQLITE_CONSTRAINT)
			status = fail_statement(store, POSTROOM_TX_ABORTED, "committing", err);
	}
	pr_sqlite_rollback(&store->base);
	return status;
}
