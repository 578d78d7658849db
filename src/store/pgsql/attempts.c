/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of failed attempts.
 *
 * 1. A row of it is written when an attempt has failed, together with the disposition. A message
 *    that never fails has no part in it.
 * 2. The last KEPT of each message stay.
 * 3. They leave with a purge of their message. Relays delete those of messages that left otherwise.
 */
#include "store/pgsql/pgsql.h"
#include "store/pgsql/array.h"

#include <stdlib.h>
#include <string.h>

#define KEPT "10"

const char pr_pgsql_add_attempts[] =
	"WITH failed AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::text[], $3::int[], "
	"$4::bigint[], $5::text[]) AS v(handler, id, number, duration_ms, error)), "
	/* One more is written by this statement, which does not see it yet. */
	"trimmed AS (DELETE FROM {schema}postroom_attempts WHERE ctid = ANY (ARRAY("
	"SELECT a.place FROM failed AS v CROSS JOIN LATERAL (SELECT ctid AS place "
	"FROM {schema}postroom_attempts AS a WHERE a.handler_name = v.handler AND a.id = v.id "
	"ORDER BY a.handler_name, a.id, a.seq DESC OFFSET " KEPT " - 1) AS a))) "
	"INSERT INTO {schema}postroom_attempts (handler_name, id, number, duration_ms, worker, "
	"sink, "
	"error) SELECT handler, id, number, nullif(duration_ms, -1), $6::uuid, $7::text, error "
	"FROM failed";

int pr_pgsql_attempts(struct postroom_store *base, const postroom_filter *filter,
		      postroom_attempt_fn fn, void *context, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };

	pr_query_text(&query,
		      "SELECT number, " PG_TIME(
			      "at") ", duration_ms, worker, sink, error FROM (SELECT * "
				    "FROM {schema}postroom_attempts WHERE handler_name = @::text",
		      filter->handler ? filter->handler : "");
	pr_query_text(&query,
		      " AND id = @::text ORDER BY handler_name DESC, id DESC, seq DESC LIMIT " KEPT
		      ") AS newest ORDER BY seq",
		      filter->id);
	result = pr_pgsql_ask(pgsql_store(base), NULL, &query, "reading attempts", err);
	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		const postroom_attempt attempt = {
			.number = (int32_t)pr_pgsql_number_at(result, row, 0),
			.at_us = pr_pgsql_number_at(result, row, 1),
			.duration_ms = PQgetisnull(result, row, 2)
					       ? -1
					       : pr_pgsql_number_at(result, row, 2),
			.worker = pr_pgsql_text_at(result, row, 3),
			.sink = pr_pgsql_text_at(result, row, 4),
			.error = pr_pgsql_text_at(result, row, 5),
		};

		if (fn(context, &attempt) != 0)
			break;
	}
	return POSTROOM_OK;
}

/* An expired lease: the previous attempt failed, whatever became of its worker. */
int pr_pgsql_note_takeovers(struct pgsql_store *store, const struct pr_table *table,
			    const postroom_delivery *items, size_t count, const char *reason,
			    struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf handlers = { 0 }, ids = { 0 }, numbers = { 0 },
				     durations = { 0 }, errors = { 0 };
	struct pr_buf *const arrays[] = { &handlers, &ids, &numbers, &durations, &errors };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	if (count == 0)
		return POSTROOM_OK;
	for (size_t i = 0; i < count; i++) {
		pr_pgsql_array_add_text(&handlers, table->lanes ? "" : items[i].ns);
		pr_pgsql_array_add_text(&ids, items[i].id);
		pr_pgsql_array_add_number(&numbers, items[i].attempt - (items[i].dead ? 0 : 1));
		pr_pgsql_array_add_number(&durations, -1);
		pr_pgsql_array_add_text(&errors, reason);
	}
	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
		pr_pgsql_text(&params, pr_pgsql_array_end(arrays[i]));
		if (arrays[i]->failed)
			return pr_err_nomem(err);
	}
	pr_pgsql_text(&params, NULL);
	pr_pgsql_text(&params, store->base.sink);
	result = pr_pgsql_run(store, PG_ATTEMPTS, table, pr_pgsql_add_attempts, &params, false,
			      "recording attempts", err);
	return result ? POSTROOM_OK : err->status;
}

/* Only tables that the role of a relay, or of a consumer, may read. */
#define GONE_FROM_OUTBOX                                                                           \
	"(SELECT true FROM {schema}postroom_outbox AS o WHERE o.id = s.id::uuid LIMIT 1) IS NULL " \
	"AND (SELECT true FROM {schema}postroom_history AS h WHERE h.id = s.id::uuid LIMIT 1) "    \
	"IS NULL"
#define GONE_FROM_INBOX                                                                            \
	"(SELECT true FROM {schema}postroom_inbox AS i WHERE i.id = s.id "                         \
	"AND i.handler_name = s.handler_name LIMIT 1) IS NULL"

/* Where the next call starts; from the beginning when all have been read. */
static int keep_position(struct pgsql_store *store, const PGresult *result, int32_t limit,
			 struct pr_err *err)
{
	pr_buf_reset(&store->tidied_handler);
	pr_buf_reset(&store->tidied_id);
	store->tidied_seq = 0;
	if (PQntuples(result) == 1 && pr_pgsql_number_at(result, 0, 4) == limit) {
		pr_buf_puts(&store->tidied_handler, PQgetvalue(result, 0, 0));
		pr_buf_puts(&store->tidied_id, PQgetvalue(result, 0, 1));
		store->tidied_seq = pr_pgsql_number_at(result, 0, 2);
	}
	return store->tidied_handler.failed || store->tidied_id.failed ? pr_err_nomem(err) :
									 POSTROOM_OK;
}

int pr_pgsql_tidy_attempts(struct postroom_store *base, const struct pr_table *table, int32_t limit,
			   int64_t *ret, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	int status = pr_pgsql_force_index_scans(store, err);

	if (status < 0)
		return status;
	pr_query_put(&query, "WITH seen AS MATERIALIZED (SELECT ctid AS place, handler_name, id, seq "
			     "FROM {schema}postroom_attempts WHERE handler_name ");
	pr_query_put(&query, table->lanes ? "= ''" : "> ''");
	pr_query_text(&query, " AND (handler_name, id, seq) > (@::text, ",
		      pr_buf_text(&store->tidied_handler));
	pr_query_text(&query, "@::text, ", pr_buf_text(&store->tidied_id));
	pr_query_number(&query, "@::bigint)", store->tidied_seq);
	pr_query_number(&query, " ORDER BY handler_name, id, seq LIMIT @::int), ", limit);
	pr_query_put(&query, "gone AS (DELETE FROM {schema}postroom_attempts WHERE ctid = ANY (ARRAY("
			     "SELECT place FROM seen AS s WHERE ");
	pr_query_put(&query, table->lanes ? GONE_FROM_OUTBOX : GONE_FROM_INBOX);
	pr_query_put(&query, ")) RETURNING 1) "
			     "SELECT handler_name, id, seq, (SELECT count(*) FROM gone), "
			     "(SELECT count(*) FROM seen) FROM seen "
			     "ORDER BY handler_name DESC, id DESC, seq DESC LIMIT 1");
	result = pr_pgsql_ask(store, NULL, &query, "tidying attempts", err);
	if (!result)
		return err->status;
	*ret = PQntuples(result) == 1 ? pr_pgsql_number_at(result, 0, 3) : 0;
	return keep_position(store, result, limit, err);
}
