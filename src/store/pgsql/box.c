/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes messages on the application's connection, in its transaction.
 *
 * 1. Nothing here begins, commits, rolls back or opens a savepoint, and the session keeps no
 *    state.
 * 2. Errors that can be foreseen are returned before a statement is sent: a failed statement
 *    aborts the caller's transaction.
 * 3. A key that another transaction holds is not yet a duplicate: if there is neither a free key
 *    nor a row, the insert is retried, a bounded number of times.
 */
#include "store/pgsql/box.h"

#include "base/time.h"
#include "store/pgsql/statements.h"

#include <postroom/libpq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 50

static int fail_box(struct pgsql_box *box, const PGresult *result, struct pr_err *err)
{
	bool in_transaction = PQtransactionStatus(box->conn) == PQTRANS_INERROR;
	int status = pr_pgsql_fail(box->conn, result, PQdb(box->conn) ? PQdb(box->conn) : "",
				   box->doing, err);

	if (in_transaction || PQstatus(box->conn) == CONNECTION_BAD)
		status = err->status = POSTROOM_TX_ABORTED;
	return status;
}

/* Everything about the connection that would make the statement fail. */
static int check_connection(struct pgsql_box *box, struct pr_err *err)
{
	const char *encoding = PQparameterStatus(box->conn, "client_encoding");
	const char *server = PQparameterStatus(box->conn, "server_encoding");

	if (PQstatus(box->conn) != CONNECTION_OK)
		return pr_err_set(err, POSTROOM_TX_ABORTED,
				  "%s: the connection is closed; connect again", box->doing);
	if (PQpipelineStatus(box->conn) != PQ_PIPELINE_OFF)
		return pr_err_set(err, POSTROOM_INVALID,
				  "%s: the connection is in pipeline mode; leave it first",
				  box->doing);
	switch (PQtransactionStatus(box->conn)) {
	case PQTRANS_INERROR:
		return pr_err_set(err, POSTROOM_TX_ABORTED,
				  "%s: the transaction has failed already; roll back", box->doing);
	case PQTRANS_ACTIVE:
		return pr_err_set(err, POSTROOM_INVALID,
				  "%s: another command is in progress on this connection",
				  box->doing);
	default:
		break;
	}
	if ((encoding && strcmp(encoding, "UTF8") != 0) || (server && strcmp(server, "UTF8") != 0))
		return pr_err_set(err, POSTROOM_INVALID,
				  "%s: client and database must be in UTF8, not %s and %s",
				  box->doing, encoding ? encoding : "?", server ? server : "?");
	return POSTROOM_OK;
}

PGresult *pr_pgsql_box_run(struct pgsql_box *box, const struct pgsql_sql *statement,
			   const struct pgsql_params *params, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	const char *sql = statement->text, *at;
	PGresult *result;

	for (; (at = strstr(sql, "{schema}")); sql = at + 8) {
		pr_buf_append(&text, sql, (size_t)(at - sql));
		pr_buf_puts(&text, box->schema);
	}
	pr_buf_puts(&text, sql);
	if (text.failed) {
		pr_err_nomem(err);
		return NULL;
	}
	result = PQexecParams(box->conn, text.data, params->count, NULL, params->values,
			      params->lengths, params->formats, 0);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return result;
	fail_box(box, result, err);
	PQclear(result);
	return NULL;
}

/* A statement on a table that is not there would end the transaction: so the first one asks. */
static int check_tables(struct pgsql_box *box, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *found = NULL;

	if (box->found)
		return POSTROOM_OK;
	found = pr_pgsql_box_run(box, &pr_sql_outbox_exists, &(struct pgsql_params){ 0 }, err);
	if (!found)
		return err->status;
	if (PQgetisnull(found, 0, 0))
		return pr_err_set(err, POSTROOM_SCHEMA,
				  "%s: \"%s\" has no Postroom tables in %s; run `postroom "
				  "migrate`",
				  box->doing, PQdb(box->conn),
				  *box->schema
					  ? box->schema
					  : "any schema of the search_path that this role may use");
	box->found = true;
	return POSTROOM_OK;
}

int pr_pgsql_box_begin(struct pgsql_box *box, const char *doing, struct pr_err *err)
{
	int status;

	box->doing = doing;
	status = check_connection(box, err);
	return status < 0 ? status : check_tables(box, err);
}

/* POSTROOM_DUPLICATE with the receipt filled, or POSTROOM_NOT_FOUND. */
static int find_first(struct pgsql_box *box, const struct pr_prepared *message,
		      postroom_receipt *receipt, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *found = NULL, *differs = NULL;
	PR_CLEANUP_BUF struct pr_buf payload = { 0 };
	struct pgsql_params by_key = { 0 }, by_id = { 0 };

	pr_sql_bind_find_duplicate(&by_key, message->ns, message->topic, message->dedupe_key);
	found = pr_pgsql_box_run(box, &pr_sql_find_duplicate, &by_key, err);
	if (!found)
		return err->status;
	if (PQntuples(found) == 0)
		return POSTROOM_NOT_FOUND;
	snprintf(receipt->id, sizeof(receipt->id), "%s", PQgetvalue(found, 0, 0));
	receipt->duplicate = 1;
	/* For a producer that may not read payloads, the comparison is not reported. */
	if (strcmp(PQgetvalue(found, 0, 1), "t") != 0)
		return POSTROOM_DUPLICATE;
	pr_buf_append(&payload, message->payload.data, message->payload.len);
	if (payload.failed)
		return pr_err_nomem(err);
	pr_sql_bind_compare_duplicate(&by_id, receipt->id, payload.data, message->body);
	differs = pr_pgsql_box_run(box, &pr_sql_compare_duplicate, &by_id, err);
	if (!differs)
		return err->status;
	receipt->differs = PQntuples(differs) == 1 && strcmp(PQgetvalue(differs, 0, 0), "t") == 0;
	return POSTROOM_DUPLICATE;
}

static int insert_once(struct pgsql_box *box, const struct pr_prepared *message,
		       postroom_receipt *receipt, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *inserted = NULL;
	PR_CLEANUP_BUF struct pr_buf payload = { 0 };
	struct pgsql_params params = { 0 };

	receipt->duplicate = 0;
	receipt->differs = 0;
	pr_uuid_v7(&box->base.uuids, pr_now_us(), receipt->id);
	pr_buf_append(&payload, message->payload.data, message->payload.len);
	if (payload.failed)
		return pr_err_nomem(err);
	pr_sql_bind_enqueue(&params, receipt->id, message->ns, message->topic, message->key,
			    message->tenant_id, message->dedupe_key, message->correlation_id,
			    message->content_type, message->headers, payload.data, message->body,
			    message->due_offset_us);
	inserted = pr_pgsql_box_run(box, &pr_sql_enqueue, &params, err);
	if (!inserted)
		return err->status;
	return PQntuples(inserted) == 1 && PG_BOX_IS_NEW(inserted, 0) ? POSTROOM_OK :
									POSTROOM_NOT_FOUND;
}

int pr_pgsql_box_insert(struct pgsql_box *box, const postroom_message *message,
			postroom_receipt *receipt, struct pr_err *err)
{
	struct pr_prepared prepared;

	pr_message_prepare(message, &prepared);
	pr_receipt_set_key(receipt, &prepared);
	for (int i = 0; i < TRIES; i++) {
		int status = insert_once(box, &prepared, receipt, err);

		if (status != POSTROOM_NOT_FOUND)
			return status;
		/* Taken; but by a transaction that may have rolled back by now. */
		status = find_first(box, &prepared, receipt, err);
		if (status != POSTROOM_NOT_FOUND)
			return status;
	}
	return pr_err_set(err, POSTROOM_BUSY,
			  "enqueue: transactions keep adding and removing \"%s\"; retry",
			  prepared.dedupe_key);
}

static int insert(postroom_box *base, const postroom_message *messages, size_t count,
		  postroom_receipt *receipts, size_t *ret_at, struct pr_err *err)
{
	struct pgsql_box *box = (struct pgsql_box *)base;
	postroom_receipt unwanted;
	int status = pr_pgsql_box_begin(box, "enqueue", err);

	*ret_at = 0;
	if (status < 0)
		return status;
	if (count == 1)
		return pr_pgsql_box_insert(box, messages, receipts ? receipts : &unwanted, err);
	return pr_pgsql_box_insert_many(box, messages, count, receipts, ret_at, err);
}

static bool in_transaction(postroom_box *box)
{
	/* insert() reports errors of the connection. */
	return PQtransactionStatus(((struct pgsql_box *)box)->conn) != PQTRANS_IDLE;
}

static void free_box(postroom_box *base)
{
	struct pgsql_box *box = (struct pgsql_box *)base;

	for (size_t i = 0; i < PG_BOX_ARRAYS; i++)
		pr_buf_release(&box->arrays[i]);
	free(box);
}

static const struct pr_box_ops box_ops = {
	.insert = insert,
	.accept = pr_pgsql_box_accept,
	.in_transaction = in_transaction,
	.free = free_box,
};

postroom_box *postroom_box_libpq(PGconn *conn)
{
	struct pgsql_box *box = calloc(1, sizeof(*box));

	if (!box)
		return NULL;
	box->base.ops = &box_ops;
	box->conn = conn;
	return &box->base;
}

/* libpq takes no connection for a closed one, and that is what an enqueue will say. */
void pr_pgsql_box_disconnect(postroom_box *box)
{
	((struct pgsql_box *)box)->conn = NULL;
}

postroom_box *pr_pgsql_box(struct postroom_store *base)
{
	struct pgsql_store *store = pgsql_store(base);

	if (!store->box) {
		store->box = postroom_box_libpq(store->conn);
		if (store->box)
			memcpy(((struct pgsql_box *)store->box)->schema, store->schema,
			       sizeof(store->schema));
	}
	return store->box;
}
