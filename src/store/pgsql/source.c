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
#include "store/pgsql/pgsql.h"
#include "store/pgsql/array.h"

#include <stdlib.h>

#define NOTE                                                                                       \
	"WITH given AS (SELECT * FROM unnest($2::text[], $3::text[]) AS v(source, position)), "    \
	"noted AS (INSERT INTO {schema}postroom_sources AS s "                                     \
	"(handler_name, source, started_at, position) "                                            \
	"SELECT $1::text, source, greatest(to_timestamp(floor(extract(epoch "                      \
	"FROM clock_timestamp()) * 1000 / $4::bigint) * $4::bigint / 1000), "                      \
	"(SELECT completed_at + interval '1 microsecond' FROM {schema}postroom_inbox_purged "      \
	"WHERE handler_name = $1::text)), position FROM given "                                    \
	"ORDER BY source COLLATE \"C\" "                                                           \
	"ON CONFLICT (handler_name, source, started_at) DO UPDATE "                                \
	"SET position = EXCLUDED.position WHERE s.position < EXCLUDED.position) "                  \
	"DELETE FROM {schema}postroom_sources AS s USING given AS g "                              \
	"WHERE s.handler_name = $1::text AND s.source = g.source AND EXISTS (SELECT "              \
	"FROM {schema}postroom_sources AS n JOIN {schema}postroom_inbox_purged AS p "              \
	"ON p.handler_name = n.handler_name AND n.started_at <= p.completed_at "                   \
	"WHERE n.handler_name = s.handler_name AND n.source = s.source "                           \
	"AND n.started_at > s.started_at AND n.position >= s.position)"

int pr_pgsql_record_sources(struct postroom_store *base, const char *handler, int64_t period_ms,
			  const struct pr_source_position *entries, size_t count, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pr_buf *sources = &store->arrays[0], *positions = &store->arrays[1];
	struct pgsql_params params = { 0 };

	pr_buf_reset(sources);
	pr_buf_reset(positions);
	for (size_t i = 0; i < count; i++) {
		pr_pgsql_array_add_text(sources, entries[i].source);
		pr_pgsql_array_add_text(positions, entries[i].position);
	}
	pr_pgsql_text(&params, handler);
	pr_pgsql_text(&params, pr_pgsql_array_end(sources));
	pr_pgsql_text(&params, pr_pgsql_array_end(positions));
	pr_pgsql_number(&params, period_ms);
	if (sources->failed || positions->failed)
		return pr_err_nomem(err);
	result = pr_pgsql_run(store, PG_RECORD_SOURCES, &pr_table_inbox, NOTE, &params, false,
			      "recording how far a source was read", err);
	return result ? POSTROOM_OK : err->status;
}

#define READ                                                                                       \
	"SELECT s.source, max(s.position), coalesce(max(s.position) FILTER "                       \
	"(WHERE s.started_at <= p.completed_at), ''), "                                            \
	"coalesce(" PG_TIME("p.completed_at") ", 0) FROM {schema}postroom_sources AS s "           \
					      "LEFT JOIN {schema}postroom_inbox_purged AS p "      \
					      "USING (handler_name) "                              \
					      "WHERE s.handler_name = $1::text GROUP BY "          \
					      "s.source, p.completed_at"

int pr_pgsql_read_sources(struct postroom_store *base, const char *handler, pr_source_fn fn,
			  void *context, int64_t *ret_us, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, handler);
	result = pr_pgsql_run(pgsql_store(base), PG_READ_SOURCES, &pr_table_inbox, READ, &params,
			      false, "reading how far sources were read", err);
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

int pr_pgsql_forget_sources(struct postroom_store *base, const char *handler, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	char *sql = pr_pgsql_sql(store, NULL,
				 "DELETE FROM {schema}postroom_sources WHERE handler_name = $1");

	if (!sql)
		return pr_err_nomem(err);
	pr_pgsql_text(&params, handler);
	result = pr_pgsql_query(store, sql, &params, "forgetting how far sources were read", err);
	free(sql);
	return result ? POSTROOM_OK : err->status;
}
