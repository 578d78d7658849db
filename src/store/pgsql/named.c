/* SPDX-License-Identifier: Apache-2.0 */
#include "store/pgsql/statements.h"

#include <stdlib.h>
#include <string.h>

struct pgsql_step pr_sql_step(const struct pgsql_sql *sql, struct pgsql_params *params)
{
	static struct pgsql_params none;

	return (struct pgsql_step){ .sql = sql,
				    .params = params ? params : &none,
				    .binary = sql->binary };
}

static PGresult *run_text(struct pgsql_store *store, const struct pgsql_sql *sql, const char *text,
			  struct pgsql_params *params, struct pr_err *err)
{
	char *whole = pr_pgsql_sql(store, sql->table, text);
	PGresult *result;

	if (!whole) {
		pr_err_nomem(err);
		return NULL;
	}
	result = pr_pgsql_query(store, whole, params, sql->doing, err);
	free(whole);
	return result;
}

PGresult *pr_sql_run(struct pgsql_store *store, const struct pgsql_sql *sql,
		     struct pgsql_params *params, struct pr_err *err)
{
	struct pgsql_step step = pr_sql_step(sql, params);

	if (!sql->prepared)
		return run_text(store, sql, sql->text, step.params, err);
	return pr_pgsql_run_step(store, &step, sql->doing, err);
}

bool pr_sql_run_by_row(struct pgsql_store *store, const struct pgsql_sql *sql,
		       struct pgsql_params *params, struct pr_err *err)
{
	struct pgsql_step step = pr_sql_step(sql, params);

	return pr_pgsql_run_step_by_row(store, &step, sql->doing, err);
}

PGresult *pr_sql_run_by_page(struct pgsql_store *store, const struct pgsql_sql *sql,
			     struct pgsql_params *params, struct pr_err *err)
{
	struct pgsql_step steps[] = { pr_sql_step(&pr_sql_read_by_page, NULL),
				      pr_sql_step(sql, params) };

	if (pr_pgsql_run_all(store, steps, 2, sql->doing, err) < 0)
		return NULL;
	PQclear(steps[0].result);
	return steps[1].result;
}

/* Appends the text with the conditions in place of {filter}; their parameters follow its own. */
static void put_filtered(struct pr_query *query, const struct pgsql_sql *sql,
			 const struct pgsql_filter *filter)
{
	static const char mark[] = "{filter}";
	const char *text = sql->text, *at;

	/* Distinct values that equal no other: its own parameters are not in the query. */
	for (int i = 0; i < sql->params; i++)
		query->values[query->count++].number = INT64_MIN + i;
	while ((at = strstr(text, mark))) {
		pr_buf_append(&query->sql, text, (size_t)(at - text));
		if (filter->with_status) {
			pr_query_put(query, " AND ");
			pr_query_put(query, pr_pgsql_condition(filter->filter->status));
			pr_query_put(query, "true");
		}
		pr_query_filter(query, filter->filter, filter->words, "updated_at");
		text = at + strlen(mark);
	}
	pr_query_put(query, text);
}

PGresult *pr_sql_run_filtered(struct pgsql_store *store, const struct pgsql_sql *sql,
			      struct pgsql_params *params, const struct pgsql_filter *filter,
			      struct pr_err *err)
{
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };

	put_filtered(&query, sql, filter);
	for (size_t i = (size_t)sql->params; i < query.count; i++) {
		if (query.values[i].text)
			pr_pgsql_text(params, query.values[i].text);
		else
			pr_pgsql_number(params, query.values[i].number);
	}
	if (query.sql.failed) {
		pr_err_nomem(err);
		return NULL;
	}
	return run_text(store, sql, pr_buf_text(&query.sql), params, err);
}
