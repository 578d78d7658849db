/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of the mirror for a producer in SQLite, measured on a copy in memory. */
#include "adopt/sqlite/sqlite.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>

#define DOING "measuring the mirror"
#define SAMPLE_ROWS 200
#define ROUNDS 9

struct copy {
	sqlite3 *db;
	struct pr_buf sql; /* the schema */
	struct pr_buf insert;
	sqlite3_stmt *to;
	int64_t rows;
	bool failed;
};

static void take_sql(void *context, sqlite3_stmt *row)
{
	struct copy *copy = context;

	pr_buf_puts(&copy->sql, (const char *)sqlite3_column_text(row, 0));
	pr_buf_puts(&copy->sql, ";\n");
}

/* postroom_outbox with everything around it, and the table with its indexes, but not its triggers. */
static int copy_schema(struct pr_adopt *adopt, struct copy *copy, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status;

	pr_buf_puts(&sql, "SELECT sql FROM main.sqlite_schema WHERE sql IS NOT NULL AND name NOT "
			  "LIKE 'sqlite%' "
			  "AND ((tbl_name LIKE 'postroom%' AND name NOT LIKE 'postroom_adopt%') OR "
			  "(tbl_name = ");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	pr_buf_puts(&sql, " AND type <> 'trigger')) ORDER BY type = 'trigger', type = 'view', type "
			  "= 'index'");
	status = sql.failed ? pr_err_nomem(err)
			    : pr_adopt_sqlite_query(adopt, sql.data, DOING, take_sql, copy, err);
	if (status >= 0)
		pr_adopt_sqlite_put_tables(&copy->sql);
	return status;
}

static int fail_copy(const struct copy *copy, struct pr_err *err)
{
	return pr_sqlite_fail(copy->db, NULL, DOING, err);
}

static int run(struct copy *copy, struct pr_buf *sql, struct pr_err *err)
{
	int rc = sql->failed ? SQLITE_NOMEM
			     : sqlite3_exec(copy->db, pr_buf_text(sql), NULL, NULL, NULL);

	pr_buf_reset(sql);
	return rc == SQLITE_OK ? POSTROOM_OK : fail_copy(copy, err);
}

static void copy_row(void *context, sqlite3_stmt *row)
{
	struct copy *copy = context;

	for (int i = 0; i < sqlite3_column_count(row); i++)
		sqlite3_bind_value(copy->to, i + 1, sqlite3_column_value(row, i));
	if (sqlite3_step(copy->to) != SQLITE_DONE)
		copy->failed = true;
	else
		copy->rows++;
	sqlite3_reset(copy->to);
}

static void put_names(const struct pr_adopt *adopt, struct pr_buf *out)
{
	for (size_t i = 0; i < adopt->column_count; i++) {
		pr_buf_puts(out, i > 0 ? ", " : "");
		pr_adopt_put_ident(out, adopt->columns[i].name);
	}
}

/* All rows are open again. A generated column makes it fail: then nothing is measured. */
static int copy_rows(struct pr_adopt *adopt, struct copy *copy, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status;

	pr_buf_printf(&sql, "CREATE TEMP TABLE sample AS SELECT * FROM %s", adopt->name);
	status = run(copy, &sql, err);
	pr_buf_puts(&sql, "INSERT INTO temp.sample VALUES (");
	for (size_t i = 0; i < adopt->column_count; i++)
		pr_buf_puts(&sql, i > 0 ? ", ?" : "?");
	pr_buf_putc(&sql, ')');
	if (status >= 0 &&
	    sqlite3_prepare_v2(copy->db, pr_buf_text(&sql), -1, &copy->to, NULL) != SQLITE_OK)
		status = fail_copy(copy, err);
	pr_buf_reset(&sql);
	pr_buf_puts(&sql, "SELECT ");
	put_names(adopt, &sql);
	pr_buf_printf(&sql, " FROM %s AS t WHERE ", adopt->name);
	pr_adopt_sqlite_put_only(adopt, "t", &sql);
	pr_buf_printf(&sql, " LIMIT %d", SAMPLE_ROWS);
	if (status >= 0)
		status = pr_adopt_sqlite_query(adopt, pr_buf_text(&sql), DOING, copy_row, copy,
					       err);
	sqlite3_finalize(copy->to);
	pr_buf_reset(&sql);
	if (status < 0 || !pr_adopt_has_marker(adopt))
		return status;
	pr_buf_puts(&sql, "UPDATE temp.sample SET ");
	pr_adopt_sqlite_put_mark(adopt, false, &sql);
	return run(copy, &sql, err);
}

static int compare_times(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

static int time_inserts(struct pr_adopt *adopt, struct copy *copy, int64_t rows, int64_t *ret_us,
			struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int64_t times[ROUNDS];
	int status = POSTROOM_OK;

	for (int i = 0; i < ROUNDS && status >= 0; i++) {
		int64_t begun_us;

		pr_buf_printf(&sql, "DELETE FROM main.%s; DELETE FROM postroom_outbox; BEGIN",
			      adopt->name);
		status = run(copy, &sql, err);
		pr_buf_printf(&sql, "INSERT INTO main.%s SELECT * FROM temp.sample LIMIT %lld",
			      adopt->name, (long long)rows);
		begun_us = pr_mono_us();
		if (status >= 0)
			status = run(copy, &sql, err);
		times[i] = pr_mono_us() - begun_us;
		pr_buf_puts(&sql, "COMMIT");
		if (status >= 0)
			status = run(copy, &sql, err);
	}
	if (status < 0)
		return status;
	qsort(times, ROUNDS, sizeof(times[0]), compare_times);
	*ret_us = times[ROUNDS / 2];
	return POSTROOM_OK;
}

static int measure_copy(struct pr_adopt *adopt, struct copy *copy, struct pr_adopt_cost *ret,
			struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf mirror = { 0 };
	int status = copy_schema(adopt, copy, err);

	if (status >= 0)
		status = run(copy, &copy->sql, err);
	if (status >= 0)
		status = copy_rows(adopt, copy, err);
	ret->rows = copy->failed ? 0 : copy->rows;
	for (int i = 0; i < 2 && status >= 0 && ret->rows > 0; i++) {
		if (i == 1)
			status = pr_adopt_sqlite_put_mirror(adopt, &mirror, err);
		if (i == 1 && status >= 0)
			status = run(copy, &mirror, err);
		if (status >= 0)
			status = time_inserts(adopt, copy, 1, &ret->single_us[i], err);
		if (status >= 0)
			status = time_inserts(adopt, copy, ret->rows, &ret->bulk_us[i], err);
	}
	return status;
}

int pr_adopt_sqlite_measure(struct pr_adopt *adopt, struct pr_adopt_cost *ret, struct pr_err *err)
{
	struct copy copy = { 0 };
	int status;

	if (sqlite3_open_v2(":memory:", &copy.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
			    NULL) != SQLITE_OK)
		status = fail_copy(&copy, err);
	else
		status = measure_copy(adopt, &copy, ret, err);
	pr_buf_release(&copy.sql);
	sqlite3_close(copy.db);
	return status;
}
