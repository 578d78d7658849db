/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes messages on the application's connection, in its transaction.
 *
 * 1. Nothing here begins, commits, rolls back or opens a savepoint.
 * 2. Statements are reset after each call.
 */
#include "store/sqlite/box.h"
#include "base/time.h"

#include <postroom/sqlite.h>
#include <stdlib.h>
#include <string.h>

/*
 * OR FAIL: because of the table's trigger SQLite would keep a journal of the
 * statement, a fifth of its cost. One row is written whole or not at all anyway.
 */
#define INSERT                                                                                     \
	"INSERT OR FAIL INTO postroom_outbox (id, namespace, topic, key, tenant_id, dedupe_key, "  \
	"correlation_id, content_type, headers, payload, body, next_attempt_at, created_at, "      \
	"updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13) "        \
	"ON CONFLICT (namespace, topic, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING"

#define FIND                                                                                       \
	"SELECT id, " PR_SQLITE_PART("payload") ", " PR_SQLITE_PART(                               \
		"body") " FROM postroom_outbox "                                                   \
			"WHERE namespace = ?1 AND topic = ?2 AND dedupe_key = ?3 "                 \
			"UNION ALL SELECT id, NULL, NULL FROM postroom_dedupe "                    \
			"WHERE namespace = ?1 AND topic = ?2 AND dedupe_key = ?3 LIMIT 1"

int pr_sqlite_box_prepare(struct sqlite_box *box, sqlite3_stmt **stmt, const char *sql,
			  const char *doing, struct pr_err *err)
{
	if (*stmt || sqlite3_prepare_v3(box->db, sql, -1, SQLITE_PREPARE_PERSISTENT, stmt, NULL) ==
			     SQLITE_OK)
		return POSTROOM_OK;
	return pr_sqlite_fail(box->db, NULL, doing, err);
}

int pr_sqlite_box_outcome(const struct sqlite_box *box, bool was_open, int status,
			  struct pr_err *err)
{
	if (status >= 0 || !was_open || !sqlite3_get_autocommit(box->db))
		return status;
	err->status = POSTROOM_TX_ABORTED;
	return pr_err_prefix(err, "the transaction was rolled back");
}

static void bind_message(sqlite3_stmt *stmt, const struct pr_prepared *message, const char *id)
{
	int64_t now_us = pr_now_us();

	pr_sqlite_bind(stmt, 1, id);
	pr_sqlite_bind(stmt, 2, message->ns);
	pr_sqlite_bind(stmt, 3, message->topic);
	pr_sqlite_bind(stmt, 4, message->key);
	pr_sqlite_bind(stmt, 5, message->tenant_id);
	pr_sqlite_bind(stmt, 6, message->dedupe_key);
	pr_sqlite_bind(stmt, 7, message->correlation_id);
	pr_sqlite_bind(stmt, 8, message->content_type);
	pr_sqlite_bind(stmt, 9, message->headers);
	sqlite3_bind_text64(stmt, 10, message->payload.data, message->payload.len, SQLITE_STATIC,
			    SQLITE_UTF8);
	if (message->body.data)
		sqlite3_bind_blob64(stmt, 11, message->body.data, message->body.len, SQLITE_STATIC);
	else
		sqlite3_bind_null(stmt, 11);
	sqlite3_bind_int64(stmt, 12, now_us + message->due_offset_us);
	sqlite3_bind_int64(stmt, 13, now_us);
}

static bool same_bytes(sqlite3_stmt *stmt, int column, struct pr_span expected)
{
	/* As text if it is text: in a UTF-16 database the blob would be other bytes. */
	const void *data = sqlite3_column_type(stmt, column) == SQLITE_TEXT
				   ? (const void *)sqlite3_column_text(stmt, column)
				   : sqlite3_column_blob(stmt, column);
	size_t len = (size_t)sqlite3_column_bytes(stmt, column);

	return len == expected.len && (len == 0 || memcmp(data, expected.data, len) == 0);
}

static int find_first(struct sqlite_box *box, const struct pr_prepared *message,
		      postroom_receipt *receipt, struct pr_err *err)
{
	int status = pr_sqlite_box_prepare(box, &box->find, FIND, "enqueue", err);

	if (status < 0)
		return status;
	pr_sqlite_bind(box->find, 1, message->ns);
	pr_sqlite_bind(box->find, 2, message->topic);
	pr_sqlite_bind(box->find, 3, message->dedupe_key);
	if (sqlite3_step(box->find) == SQLITE_ROW) {
		if (!pr_uuid_normalize((const char *)sqlite3_column_text(box->find, 0),
				       receipt->id))
			*receipt->id = '\0';
		receipt->duplicate = 1;
		/* Only the dedupe key of a deleted message is known. */
		receipt->differs = sqlite3_column_type(box->find, 1) != SQLITE_NULL &&
				   (!same_bytes(box->find, 1, message->payload) ||
				    !same_bytes(box->find, 2, message->body));
		status = POSTROOM_DUPLICATE;
	} else {
		status = pr_sqlite_fail(box->db, NULL, "enqueue: finding the first message", err);
	}
	sqlite3_reset(box->find);
	return status;
}

static int insert_one(struct sqlite_box *box, const struct pr_prepared *message,
		      postroom_receipt *receipt, struct pr_err *err)
{
	bool was_open = !sqlite3_get_autocommit(box->db);
	int status = pr_sqlite_box_prepare(box, &box->insert, INSERT, "enqueue", err);

	if (status < 0)
		return status;
	pr_uuid_v7(&box->base.uuids, pr_now_us(), receipt->id);
	receipt->duplicate = 0;
	receipt->differs = 0;
	bind_message(box->insert, message, receipt->id);
	if (sqlite3_step(box->insert) != SQLITE_DONE)
		status = pr_sqlite_fail(box->db, NULL, "enqueue", err);
	sqlite3_reset(box->insert);
	if (status >= 0 && sqlite3_changes(box->db) == 0)
		status = find_first(box, message, receipt, err);
	return pr_sqlite_box_outcome(box, was_open, status, err);
}

static int insert(postroom_box *base, const postroom_message *messages, size_t count,
		  postroom_receipt *receipts, size_t *ret_at, struct pr_err *err)
{
	struct pr_prepared prepared;
	postroom_receipt unwanted;
	int status = POSTROOM_OK;

	for (size_t i = 0; status >= 0 && i < count; i++) {
		postroom_receipt *receipt = receipts ? &receipts[i] : &unwanted;

		*ret_at = i;
		pr_message_prepare(&messages[i], &prepared);
		status = insert_one((struct sqlite_box *)base, &prepared, receipt, err);
		if (status >= 0)
			pr_receipt_set_key(receipt, &prepared);
	}
	return status;
}

static bool in_transaction(postroom_box *box)
{
	return !sqlite3_get_autocommit(((struct sqlite_box *)box)->db);
}

static void free_box(postroom_box *base)
{
	struct sqlite_box *box = (struct sqlite_box *)base;

	sqlite3_finalize(box->insert);
	sqlite3_finalize(box->find);
	sqlite3_finalize(box->once);
	sqlite3_finalize(box->submit);
	sqlite3_finalize(box->state);
	free(box);
}

static const struct pr_box_ops box_ops = {
	.insert = insert,
	.accept = pr_sqlite_box_accept,
	.in_transaction = in_transaction,
	.free = free_box,
};

postroom_box *postroom_box_sqlite(sqlite3 *db)
{
	struct sqlite_box *box = calloc(1, sizeof(*box));

	if (!box)
		return NULL;
	box->base.ops = &box_ops;
	box->db = db;
	return &box->base;
}

postroom_box *pr_sqlite_box(struct postroom_store *base)
{
	struct sqlite_store *store = sqlite_store(base);

	if (!store->box)
		store->box = postroom_box_sqlite(store->db);
	return store->box;
}
