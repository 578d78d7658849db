/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the mirror for a producer, measured on temporary copies of both tables, in a transaction
 * that is rolled back. Neither table is written, and nothing is sent.
 */
#include "adopt/sqlite/sqlite.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>

#define DOING "measuring the mirror"
#define SAMPLE_ROWS 500
#define BULK_ROUNDS 5
#define SINGLE_ROUNDS 25
#define ROUNDS_MAX SINGLE_ROUNDS
#define PLAIN "pg_temp.postroom_adopt_plain"
#define MIRRORED "pg_temp.postroom_adopt_mirrored"

static int run_probe(struct pr_adopt *adopt, struct pr_buf *sql, struct pr_err *err)
{
	int status = sql->failed ? pr_err_nomem(err) : pr_adopt_run(adopt, sql->data, DOING, err);

	pr_buf_reset(sql);
	return status;
}

/* Columns with a generated value become plain ones, so that rows can be copied as they are. */
static int copy_tables(struct pr_adopt *adopt, struct pr_err *err)
{
	static const char *const copies[] = { "postroom_adopt_plain", "postroom_adopt_mirrored" };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status = POSTROOM_OK;

	for (size_t i = 0; i < 2 && status >= 0; i++) {
		pr_buf_printf(&sql,
			      "CREATE TEMP TABLE %s (LIKE %s INCLUDING CONSTRAINTS INCLUDING INDEXES "
			      "INCLUDING STORAGE) ON COMMIT DROP",
			      copies[i], adopt->name);
		status = run_probe(adopt, &sql, err);
	}
	if (status >= 0) {
		pr_buf_printf(&sql,
			      "CREATE TEMP TABLE postroom_outbox (LIKE %spostroom_outbox INCLUDING ALL) "
			      "ON COMMIT DROP",
			      adopt->own);
		status = run_probe(adopt, &sql, err);
	}
	return status;
}

/* The triggers of postroom_outbox that every INSERT fires. */
static int copy_triggers(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	int status = POSTROOM_OK;

	pr_buf_printf(&sql,
		      "SELECT regexp_replace(pg_get_triggerdef(g.oid), ' ON [^ ]*postroom_outbox ', "
		      "' ON pg_temp.postroom_outbox ') FROM pg_trigger AS g "
		      "WHERE g.tgrelid = '%spostroom_outbox'::regclass AND NOT g.tgisinternal",
		      adopt->own);
	if (sql.failed)
		return pr_err_nomem(err);
	result = pr_pgsql_query(adopt_store(adopt), sql.data, &params, DOING, err);
	if (!result)
		return err->status;
	for (int i = 0; i < PQntuples(result) && status >= 0; i++)
		status = pr_adopt_run(adopt, PQgetvalue(result, i, 0), DOING, err);
	return status;
}

/* The newest rows are likely to be in memory. All are open again. */
static int take_sample(struct pr_adopt *adopt, int64_t *ret_rows, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_buf_printf(&sql, "CREATE TEMP TABLE postroom_adopt_sample ON COMMIT DROP AS SELECT * FROM %s "
			    "AS t WHERE ", adopt->name);
	pr_adopt_put_only(adopt, "t", &sql);
	pr_buf_printf(&sql, " LIMIT %d", SAMPLE_ROWS);
	if (sql.failed)
		return pr_err_nomem(err);
	result = pr_pgsql_query(adopt_store(adopt), sql.data, &params, DOING, err);
	if (!result)
		return err->status;
	*ret_rows = strtoll(PQcmdTuples(result), NULL, 10);
	if (!pr_adopt_has_marker(adopt))
		return POSTROOM_OK;
	pr_buf_reset(&sql);
	pr_buf_puts(&sql, "UPDATE pg_temp.postroom_adopt_sample SET ");
	pr_adopt_put_mark(adopt, false, &sql);
	return run_probe(adopt, &sql, err);
}

static int create_mirror(const struct pr_adopt *adopt, struct pr_adopt *copy, struct pr_err *err)
{
	static const struct pr_adopt_target target = { .name = MIRRORED, .has_rows = true };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status = POSTROOM_OK;

	*copy = *adopt;
	copy->name = MIRRORED;
	copy->function = "pg_temp.postroom_adopt_measured";
	copy->own = "pg_temp.";
	for (int reopened = 0; reopened <= pr_adopt_has_marker(copy) && status >= 0; reopened++) {
		pr_adopt_put_function(copy, reopened, &sql);
		status = run_probe(copy, &sql, err);
		if (status < 0)
			break;
		pr_adopt_put_trigger(copy, &target, reopened, &sql);
		status = run_probe(copy, &sql, err);
	}
	return status;
}

static int compare_times(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

static int64_t median(int64_t *times, int count)
{
	qsort(times, (size_t)count, sizeof(*times), compare_times);
	return times[count / 2];
}

static int time_insert(struct pr_adopt *adopt, const char *table, int rows, int64_t *ret_us,
		       struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int64_t begun_us;
	int status;

	pr_buf_printf(&sql, "DELETE FROM %s", table);
	status = run_probe(adopt, &sql, err);
	if (status < 0)
		return status;
	pr_buf_printf(&sql, "INSERT INTO %s SELECT * FROM pg_temp.postroom_adopt_sample LIMIT %d", table,
		      rows);
	begun_us = pr_mono_us();
	status = run_probe(adopt, &sql, err);
	*ret_us = pr_mono_us() - begun_us;
	return status;
}

/* In turns, so that both meet the same load. The first round warms up. */
static int compare(struct pr_adopt *adopt, int rows, int rounds, int64_t ret_us[2],
		   struct pr_err *err)
{
	static const char *const tables[] = { PLAIN, MIRRORED };
	int64_t times[2][ROUNDS_MAX + 1];
	int status = POSTROOM_OK;

	for (int round = 0; round <= rounds; round++) {
		for (int i = 0; i < 2 && status >= 0; i++)
			status = time_insert(adopt, tables[i], rows, &times[i][round], err);
	}
	for (int i = 0; i < 2 && status >= 0; i++)
		ret_us[i] = median(times[i] + 1, rounds);
	return status;
}

/* Rows that are refused would be measured as something else. */
static int count_mirrored(struct pr_adopt *adopt, int64_t *ret, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result =
		pr_pgsql_query(adopt_store(adopt), "SELECT count(*) FROM pg_temp.postroom_outbox", &params,
			       DOING, err);

	if (!result)
		return err->status;
	*ret = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	return POSTROOM_OK;
}

static int measure_copies(struct pr_adopt *adopt, struct pr_adopt_cost *ret, struct pr_err *err)
{
	struct pr_adopt copy;
	int64_t mirrored = 0;
	int status = pr_adopt_run(adopt, "SET LOCAL statement_timeout = '3s'", DOING, err);

	if (status >= 0)
		status = copy_tables(adopt, err);
	if (status >= 0)
		status = copy_triggers(adopt, err);
	if (status >= 0)
		status = take_sample(adopt, &ret->rows, err);
	if (status < 0 || ret->rows == 0)
		return status;
	status = create_mirror(adopt, &copy, err);
	if (status >= 0)
		status = compare(adopt, 1, SINGLE_ROUNDS, ret->single_us, err);
	if (status >= 0)
		status = compare(adopt, (int)ret->rows, BULK_ROUNDS, ret->bulk_us, err);
	if (status >= 0)
		status = count_mirrored(adopt, &mirrored, err);
	if (status >= 0 && mirrored == 0)
		ret->rows = 0;
	return status;
}

int pr_adopt_measure(struct pr_adopt *adopt, struct pr_adopt_cost *ret, struct pr_err *err)
{
	struct pr_err ignored = { 0 };
	int status;

	*ret = (struct pr_adopt_cost){ 0 };
	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_measure(adopt, ret, err);
	status = pr_adopt_run(adopt, "BEGIN", DOING, err);
	if (status < 0)
		return status;
	status = measure_copies(adopt, ret, err);
	pr_adopt_run(adopt, "ROLLBACK", DOING, &ignored);
	return status;
}
