/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far handlers have read their sources, so that a replay of purged events is noticed.
 *
 * 1. A position never goes back within a period, whichever consumer writes it last.
 * 2. Sources are written in the order of their names: two consumers never wait for each other
 *    in a circle.
 * 3. A period ends early when rows are purged that were completed in it: what is passed after
 *    that cannot have been purged by it.
 * 4. A row is deleted only when another one says as much for every later purge.
 */
#include "store/pgsql/array.h"
#include "store/pgsql/statements.h"

static int forget_sources(struct pgsql_store *store, const char *handler, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_forget_sources(&params, handler);
	result = pr_sql_run(store, &pr_sql_forget_sources, &params, err);
	return result ? POSTROOM_OK : err->status;
}

int pr_pgsql_record_sources(struct postroom_store *base, const char *handler, int64_t period_ms,
			  const struct pr_source_position *entries, size_t count, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pr_buf *sources = &store->arrays[0], *positions = &store->arrays[1];
	struct pgsql_params params = { 0 };

	if (!entries)
		return forget_sources(store, handler, err);
	pr_buf_reset(sources);
	pr_buf_reset(positions);
	for (size_t i = 0; i < count; i++) {
		pr_pgsql_array_add_text(sources, entries[i].source);
		pr_pgsql_array_add_text(positions, entries[i].position);
	}
	pr_sql_bind_record_sources(&params, handler, pr_pgsql_array_end(sources),
				   pr_pgsql_array_end(positions), period_ms);
	if (sources->failed || positions->failed)
		return pr_err_nomem(err);
	result = pr_sql_run(store, &pr_sql_record_sources, &params, err);
	return result ? POSTROOM_OK : err->status;
}

int pr_pgsql_read_sources(struct postroom_store *base, const char *handler, pr_source_fn fn,
			  void *context, int64_t *ret_us, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_read_sources(&params, handler);
	result = pr_sql_run(pgsql_store(base), &pr_sql_read_sources, &params, err);
	if (!result)
		return err->status;
	*ret_us = 0;
	for (int row = 0; row < PQntuples(result); row++) {
		const struct pr_source_position entry = {
			.source = PQgetvalue(result, row, 0),
			.position = PQgetvalue(result, row, 1),
			.purged = PQgetvalue(result, row, 2),
		};

		*ret_us = pr_pgsql_number_at(result, row, 3);
		if (fn(context, &entry, err) < 0)
			return err->status;
	}
	return POSTROOM_OK;
}
