/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements of sql/NAME.sql. tools/sql turns them into pr_sql_NAME and pr_sql_bind_NAME() in
 * statements.h, which is generated. A statement is prepared under the name postroom_NAME.
 */
#ifndef PR_STORE_PGSQL_NAMED_H
#define PR_STORE_PGSQL_NAMED_H

#include "store/pgsql/pgsql.h"

struct pgsql_sql {
	size_t number; /* below pr_sql_count */
	int params;
	bool binary;		      /* the result */
	bool prepared;		      /* false: it runs once per connection, and returns text */
	const struct pr_table *table; /* whose columns {rules} compare; NULL: it has none */
	const char *name, *doing, *text;
};
extern const size_t pr_sql_count;

/* Runs a statement. params may be NULL. The caller clears the result. NULL: failure, err is filled. */
PGresult *pr_sql_run(struct pgsql_store *store, const struct pgsql_sql *sql,
		     struct pgsql_params *params, struct pr_err *err);
/* The same for its result row by row: see pr_pgsql_run_step_by_row(). */
bool pr_sql_run_by_row(struct pgsql_store *store, const struct pgsql_sql *sql,
		       struct pgsql_params *params, struct pr_err *err);
/* The same for one that reads most of a table: reads its pages in order, each of them once. */
PGresult *pr_sql_run_by_page(struct pgsql_store *store, const struct pgsql_sql *sql,
			     struct pgsql_params *params, struct pr_err *err);
/* As one of several statements that share a round trip. */
struct pgsql_step pr_sql_step(const struct pgsql_sql *sql, struct pgsql_params *params);

/* The conditions that replace {filter}. Such a statement is not prepared: its text varies. */
struct pgsql_filter {
	const postroom_filter *filter;
	const struct pr_filter_words *words;
	bool with_status; /* the filter's status is a condition, too */
};
PGresult *pr_sql_run_filtered(struct pgsql_store *store, const struct pgsql_sql *sql,
			      struct pgsql_params *params, const struct pgsql_filter *filter,
			      struct pr_err *err);

#endif
