/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of failed attempts.
 *
 * 1. A row of it is written when an attempt has failed, together with the disposition. A message
 *    that never fails has no part in it.
 * 2. The last ten of each message stay.
 * 3. They leave with a purge of their message. Relays delete those of messages that left otherwise.
 */
#include "store/pgsql/array.h"
#include "store/pgsql/statements.h"

#include <stdlib.h>
#include <string.h>

int pr_pgsql_attempts(struct postroom_store *base, const postroom_filter *filter,
		      postroom_attempt_fn fn, void *context, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_read_attempts(&params, filter->handler ? filter->handler : "", filter->id);
	result = pr_sql_run(pgsql_store(base), &pr_sql_read_attempts, &params, err);
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

/* An expired lease: the previous attempt failed, whatever its worker did. */
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
		pr_pgsql_array_end(arrays[i]);
		if (arrays[i]->failed)
			return pr_err_nomem(err);
	}
	pr_sql_bind_add_attempts(&params, handlers.data, ids.data, numbers.data, durations.data,
				 errors.data, NULL, store->base.sink);
	result = pr_sql_run(store, &pr_sql_add_attempts, &params, err);
	return result ? POSTROOM_OK : err->status;
}

/* Where the next call starts; from the beginning when all have been read. */
static int keep_position(struct pgsql_store *store, const PGresult *result, int32_t limit,
			 struct pr_err *err)
{
	pr_buf_reset(&store->purged_handler);
	pr_buf_reset(&store->purged_id);
	store->purged_seq = 0;
	if (PQntuples(result) == 1 && pr_pgsql_number_at(result, 0, 4) == limit) {
		pr_buf_puts(&store->purged_handler, PQgetvalue(result, 0, 0));
		pr_buf_puts(&store->purged_id, PQgetvalue(result, 0, 1));
		store->purged_seq = pr_pgsql_number_at(result, 0, 2);
	}
	return store->purged_handler.failed || store->purged_id.failed ? pr_err_nomem(err) :
									 POSTROOM_OK;
}

/* Reads only tables that the role of a relay, or of a consumer, may read. */
int pr_pgsql_purge_attempts(struct pgsql_store *store, const struct pr_table *table, int32_t limit,
			    int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	if (table->lanes)
		pr_sql_bind_purge_attempts_outbox(&params, pr_buf_text(&store->purged_handler),
						 pr_buf_text(&store->purged_id),
						 store->purged_seq, limit);
	else
		pr_sql_bind_purge_attempts_inbox(&params, pr_buf_text(&store->purged_handler),
						pr_buf_text(&store->purged_id), store->purged_seq,
						limit);
	result = pr_sql_run(store, table->lanes ? &pr_sql_purge_attempts_outbox :
						  &pr_sql_purge_attempts_inbox,
			    &params, err);
	if (!result)
		return err->status;
	*ret = PQntuples(result) == 1 ? pr_pgsql_number_at(result, 0, 3) : 0;
	return keep_position(store, result, limit, err);
}
