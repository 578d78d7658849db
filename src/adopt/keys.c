/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unique keys in their own table, without downtime. Every step is idempotent:
 * 1. A nullable column without a default: the table is not rewritten, and old rows have no key.
 * 2. Keys for the rows without one, in chunks, as in backlog.c.
 * 3. A unique index, built concurrently. An invalid one, which an interrupted build has left, is
 *    dropped first. Duplicates are named and never deleted.
 * 4. Only if asked for: NOT NULL, by a check that is validated while writers continue.
 */
#include "adopt/sqlite/sqlite.h"

#include <stdlib.h>
#include <string.h>

#define DOING "adding keys"
#define CHECK_NAME "postroom_key_is_required"
#define WORK "pg_temp.postroom_adopt_work"

static int key_column(const struct pr_adopt *adopt)
{
	return pr_adopt_find_column(adopt, adopt->parts[PR_ADOPT_DEDUPE]);
}

void pr_adopt_put_key_column(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_adopt_put_ident(out, adopt->parts[PR_ADOPT_DEDUPE]);
}

void pr_adopt_put_unique(const struct pr_adopt *adopt, struct pr_buf *out)
{
	if (adopt->parts[PR_ADOPT_TENANT]) {
		pr_adopt_put_ident(out, adopt->parts[PR_ADOPT_TENANT]);
		pr_buf_puts(out, ", ");
	}
	pr_adopt_put_key_column(adopt, out);
}

static void put_index_name(const struct pr_adopt_target *target, struct pr_buf *out)
{
	pr_buf_printf(out, "postroom_keys_%s", target->digest);
}

static void put_column(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "ALTER TABLE %s ADD COLUMN IF NOT EXISTS ", adopt->name);
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " uuid");
}

static void put_index(const struct pr_adopt *adopt, const struct pr_adopt_target *target,
		      struct pr_buf *out)
{
	pr_buf_puts(out, "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS ");
	put_index_name(target, out);
	pr_buf_printf(out, " ON %s (", target->name);
	pr_adopt_put_unique(adopt, out);
	pr_buf_putc(out, ')');
}

static void put_drop_index(const struct pr_adopt_target *target, struct pr_buf *out)
{
	pr_buf_printf(out, "DROP INDEX CONCURRENTLY IF EXISTS %s.", target->schema);
	put_index_name(target, out);
}

static void put_check(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "ALTER TABLE %s ADD CONSTRAINT " CHECK_NAME " CHECK (", adopt->name);
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " IS NOT NULL) NOT VALID");
}

static void put_validate(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "ALTER TABLE %s VALIDATE CONSTRAINT " CHECK_NAME, adopt->name);
}

static void put_not_null(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "ALTER TABLE %s ALTER COLUMN ", adopt->name);
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " SET NOT NULL");
}

static void put_drop_check(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "ALTER TABLE %s DROP CONSTRAINT IF EXISTS " CHECK_NAME, adopt->name);
}

void pr_adopt_put_key_work(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_puts(out, "CREATE TEMP TABLE postroom_adopt_work AS\n"
			 "SELECT row_number() OVER () AS position");
	for (size_t i = 0; i < adopt->key_count; i++) {
		pr_buf_puts(out, ", t.");
		pr_adopt_put_ident(out, adopt->columns[adopt->key[i]].name);
		pr_buf_printf(out, " AS k%zu", i);
	}
	pr_buf_printf(out, "\nFROM %s AS t WHERE t.", adopt->name);
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " IS NULL");
}

static void put_new_key(const struct pr_adopt *adopt, struct pr_buf *out)
{
	int found = key_column(adopt);
	bool text = found >= 0 && adopt->columns[found].type == PR_ADOPT_TEXT;

	if (adopt->key_sql)
		pr_buf_printf(out, "(%s)", adopt->key_sql);
	else
		pr_buf_puts(out, text ? "gen_random_uuid()::text" : "gen_random_uuid()");
}

void pr_adopt_put_key_chunk(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_puts(out, "WITH chunk AS MATERIALIZED (\n\tSELECT ");
	for (size_t i = 0; i < adopt->key_count; i++)
		pr_buf_printf(out, "%sw.k%zu", i > 0 ? ", " : "", i);
	pr_buf_printf(out, " FROM " WORK " AS w\n\tJOIN %s AS t ON ", adopt->name);
	pr_adopt_put_work_key(adopt, "t", out);
	pr_buf_puts(out, "\n\tWHERE w.position BETWEEN $1::bigint AND $2::bigint AND t.");
	pr_adopt_put_key_column(adopt, out);
	pr_buf_printf(out,
		      " IS NULL\n\tFOR UPDATE OF t SKIP LOCKED),\nchanged AS (UPDATE %s AS t SET ",
		      adopt->name);
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " = ");
	put_new_key(adopt, out);
	pr_buf_puts(out, "\n\tFROM chunk AS w WHERE ");
	pr_adopt_put_work_key(adopt, "t", out);
	pr_buf_puts(out, "\n\tRETURNING t.");
	pr_adopt_put_key_column(adopt, out);
	pr_buf_puts(out, " IS NOT NULL AS done)\nSELECT (SELECT count(*) FROM chunk), "
			 "(SELECT count(*) FROM changed AS c WHERE c.done)");
}

typedef void (*put_fn)(const struct pr_adopt *adopt, struct pr_buf *out);

static int run_key_step(struct pr_adopt *adopt, put_fn put, const struct pr_stop *stop,
			struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	put(adopt, &sql);
	return sql.failed ? pr_err_nomem(err) : pr_adopt_retry(adopt, sql.data, stop, err);
}

/* 1: valid, 0: invalid, -1: there is none; other values are errors. */
static int find_index(struct pr_adopt *adopt, const struct pr_adopt_target *target, int *ret,
		      struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf name = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	put_index_name(target, &name);
	if (name.failed)
		return pr_err_nomem(err);
	pr_pgsql_text(&params, target->name);
	pr_pgsql_text(&params, name.data);
	result = pr_pgsql_query(adopt_store(adopt),
				"SELECT i.indisvalid FROM pg_index AS i JOIN pg_class AS c "
				"ON c.oid = i.indexrelid WHERE i.indrelid = $1::regclass AND c.relname = $2",
				&params, DOING, err);
	if (!result)
		return err->status;
	*ret = PQntuples(result) == 0 ? -1 : *PQgetvalue(result, 0, 0) == 't';
	return POSTROOM_OK;
}

static int refuse_duplicates(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_buf_puts(&sql, "SELECT count(*), string_agg(name, ', ') FILTER (WHERE number <= 5) "
			  "FROM (SELECT concat_ws('/', ");
	pr_adopt_put_unique(adopt, &sql);
	pr_buf_puts(&sql, ") AS name, row_number() OVER () AS number FROM ");
	pr_buf_printf(&sql, "%s WHERE ", adopt->name);
	pr_adopt_put_key_column(adopt, &sql);
	pr_buf_puts(&sql, " IS NOT NULL GROUP BY ");
	pr_adopt_put_unique(adopt, &sql);
	pr_buf_puts(&sql, " HAVING count(*) > 1) AS found");
	if (sql.failed)
		return pr_err_nomem(err);
	result = pr_pgsql_query(adopt_store(adopt), sql.data, &params, DOING, err);
	if (!result)
		return err->status;
	if (strcmp(PQgetvalue(result, 0, 0), "0") == 0)
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID,
			  "adopt: %s keys of %s occur more than once, such as %s; no row was deleted: "
			  "give those rows other keys, then run the command again",
			  PQgetvalue(result, 0, 0), adopt->name, PQgetvalue(result, 0, 1));
}

static int run_sql(struct pr_adopt *adopt, struct pr_buf *sql, const struct pr_stop *stop,
		   struct pr_err *err)
{
	int status = sql->failed ? pr_err_nomem(err) : pr_adopt_retry(adopt, sql->data, stop, err);

	pr_buf_reset(sql);
	return status;
}

/* It waits for old transactions, and neither readers nor writers wait for it. */
static int build_index(struct pr_adopt *adopt, const struct pr_adopt_target *target,
		       const struct pr_stop *stop, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int valid = -1, status = find_index(adopt, target, &valid, err);

	if (status < 0 || valid == 1)
		return status;
	if (valid == 0) {
		put_drop_index(target, &sql);
		status = run_sql(adopt, &sql, stop, err);
	}
	put_index(adopt, target, &sql);
	if (status >= 0)
		status = run_sql(adopt, &sql, stop, err);
	if (status >= 0)
		status = find_index(adopt, target, &valid, err);
	if (status >= 0 && valid != 1)
		return pr_err_set(err, POSTROOM_DATABASE,
				  "adopt: the unique index of %s is not valid; run the command again",
				  target->name);
	return status;
}

/* A partitioned table has one index per partition: no other can be built concurrently. */
static int build_indexes(struct pr_adopt *adopt, const struct pr_stop *stop, struct pr_err *err)
{
	bool complete = true;
	int status = POSTROOM_OK;

	for (size_t i = 0; i < adopt->target_count && status >= 0; i++) {
		int valid = 1;

		if (adopt->targets[i].has_rows)
			status = find_index(adopt, &adopt->targets[i], &valid, err);
		complete = complete && valid == 1;
	}
	if (status < 0 || complete)
		return status;
	status = refuse_duplicates(adopt, err);
	if (status >= 0)
		status = pr_adopt_run(adopt, "SET lock_timeout = 0", DOING, err);
	if (status >= 0)
		status = pr_adopt_run(adopt, ADOPT_NO_TIMEOUT, DOING, err);
	for (size_t i = 0; i < adopt->target_count && status >= 0; i++) {
		if (adopt->targets[i].has_rows)
			status = build_index(adopt, &adopt->targets[i], stop, err);
	}
	return status;
}

/* Whether the column is NOT NULL, and whether the check exists. */
static int find_required(struct pr_adopt *adopt, bool *not_null, bool *check, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_pgsql_text(&params, adopt->name);
	pr_pgsql_text(&params, adopt->parts[PR_ADOPT_DEDUPE]);
	result = pr_pgsql_query(adopt_store(adopt),
				"SELECT a.attnotnull, EXISTS (SELECT FROM pg_constraint AS c "
				"WHERE c.conrelid = a.attrelid AND c.conname = '" CHECK_NAME "') "
				"FROM pg_attribute AS a WHERE a.attrelid = $1::regclass AND a.attname = $2",
				&params, DOING, err);
	if (!result)
		return err->status;
	*not_null = *PQgetvalue(result, 0, 0) == 't';
	*check = *PQgetvalue(result, 0, 1) == 't';
	return POSTROOM_OK;
}

static int require_keys(struct pr_adopt *adopt, const struct pr_stop *stop, struct pr_err *err)
{
	static const put_fn steps[] = { put_validate, put_not_null, put_drop_check };
	bool not_null = false, check = false;
	int status = find_required(adopt, &not_null, &check, err);

	if (status >= 0 && not_null && !check)
		return POSTROOM_OK;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status >= 0; i++) {
		status = pr_adopt_set_timeouts(adopt, err);
		/* Validating reads the whole table, and writers continue. */
		if (status >= 0 && steps[i] == put_validate)
			status = pr_adopt_run(adopt, ADOPT_NO_TIMEOUT, DOING, err);
		if (status >= 0)
			status = run_key_step(adopt, steps[i], stop, err);
	}
	return status;
}

/* From here on new rows need a key, so the rows that are filled next are the last ones. */
static int add_check(struct pr_adopt *adopt, const struct pr_stop *stop, struct pr_err *err)
{
	bool not_null = false, check = false;
	int status = find_required(adopt, &not_null, &check, err);

	return status < 0 || not_null || check ? status : run_key_step(adopt, put_check, stop, err);
}

int pr_adopt_keys(struct pr_adopt *adopt, struct pr_adopt_progress *progress, bool required,
		  struct pr_err *err)
{
	int status;

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_keys(adopt, progress, required, err);
	status = pr_adopt_lock(adopt, err);
	if (status >= 0)
		status = pr_adopt_set_timeouts(adopt, err);
	if (status >= 0 && key_column(adopt) < 0)
		status = run_key_step(adopt, put_column, progress->stop, err);
	if (status >= 0 && required)
		status = add_check(adopt, progress->stop, err);
	if (status >= 0)
		status = pr_adopt_fill_keys(adopt, progress, err);
	if (status >= 0)
		status = build_indexes(adopt, progress->stop, err);
	/* Rows that are still locked may have no key. */
	if (status >= 0 && required && progress->locked == 0)
		status = require_keys(adopt, progress->stop, err);
	return status;
}

int pr_adopt_measure_keys(struct pr_adopt *adopt, int64_t *ret_ms, struct pr_err *err)
{
	*ret_ms = -1;
	return adopt->store->ops->embedded ? pr_adopt_sqlite_measure_keys(adopt, ret_ms, err)
					   : POSTROOM_OK;
}

struct key_step {
	const char *locks;
	put_fn put;
	const char *sql;
	bool whole;
};

static int explain_indexes(struct pr_adopt *adopt, pr_adopt_text_fn fn, void *context,
			   struct pr_err *err)
{
	for (size_t i = 0; i < adopt->target_count; i++) {
		PR_CLEANUP_BUF struct pr_buf sql = { 0 };

		if (!adopt->targets[i].has_rows)
			continue;
		pr_buf_puts(&sql, "-- locks: SHARE UPDATE EXCLUSIVE on the table: blocks no reader and no "
				  "writer\n");
		put_index(adopt, &adopt->targets[i], &sql);
		pr_buf_puts(&sql, ";\n");
		if (sql.failed)
			return pr_err_nomem(err);
		fn(context, sql.data);
	}
	return POSTROOM_OK;
}

int pr_adopt_explain_keys(struct pr_adopt *adopt, bool required, pr_adopt_text_fn fn, void *context,
			  struct pr_err *err)
{
#define MOMENT "ACCESS EXCLUSIVE on the table for a moment, until lock_timeout at most; retried"
	static const struct key_step steps[] = {
		{ "none", NULL, "SET lock_timeout = '300ms'" },
		{ "none", NULL, ADOPT_DDL_TIMEOUT },
		{ MOMENT, put_column, NULL },
		{ "none", NULL, ADOPT_NO_TIMEOUT },
		{ "ACCESS SHARE on the table: blocks no reader and no writer", pr_adopt_put_key_work, NULL },
		{ "ROW EXCLUSIVE on the table, and the rows of one chunk; locked rows are skipped",
		  pr_adopt_put_key_chunk, NULL },
		{ NULL, NULL, NULL }, /* the indexes */
		{ "none", NULL, ADOPT_DDL_TIMEOUT },
		{ MOMENT ". From here on, new rows need a key", put_check, NULL, true },
		{ "none", NULL, ADOPT_NO_TIMEOUT },
		{ "SHARE UPDATE EXCLUSIVE on the table: blocks no reader and no writer", put_validate,
		  NULL, true },
		{ "none", NULL, ADOPT_DDL_TIMEOUT },
		{ MOMENT ". The check makes a scan needless", put_not_null, NULL, true },
		{ MOMENT, put_drop_check, NULL },
	};
	size_t count = sizeof(steps) / sizeof(steps[0]) - (required ? 0 : 7);

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_explain_keys(adopt, required, fn, context, err);
	for (size_t i = 0; i < count; i++) {
		PR_CLEANUP_BUF struct pr_buf sql = { 0 };

		if (!steps[i].locks) {
			if (explain_indexes(adopt, fn, context, err) < 0)
				return err->status;
			continue;
		}
		pr_buf_printf(&sql, "-- locks: %s\n", steps[i].locks);
		/* As the command runs it: a transaction of its own, which can be repeated. */
		pr_buf_puts(&sql, steps[i].whole ? "BEGIN;\n" : "");
		if (steps[i].put)
			steps[i].put(adopt, &sql);
		else
			pr_buf_puts(&sql, steps[i].sql);
		pr_buf_puts(&sql, steps[i].whole ? ";\nCOMMIT;\n" : ";\n");
		if (sql.failed)
			return pr_err_nomem(err);
		fn(context, sql.data);
	}
	return POSTROOM_OK;
}

static int check_columns(struct pr_adopt *adopt, struct pr_err *err)
{
	const char *key = adopt->parts[PR_ADOPT_DEDUPE], *tenant = adopt->parts[PR_ADOPT_TENANT];
	int found = key_column(adopt);
	enum pr_adopt_type type = found < 0 ? PR_ADOPT_UUID : adopt->columns[found].type;

	if (strlen(key) > 63)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: dedupe_key=%s: names of columns have 63 bytes at most", key);
	if (tenant && pr_adopt_find_column(adopt, tenant) < 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: tenant_id=%s: the table has no such column; names are compared "
				  "exactly",
				  tenant);
	if (!adopt->key_sql && type != PR_ADOPT_UUID && type != PR_ADOPT_TEXT)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: dedupe_key=%s: random keys are UUIDs, and the column is neither "
				  "uuid nor text; give --key-sql",
				  key);
	if (tenant && !adopt->columns[pr_adopt_find_column(adopt, tenant)].not_null)
		pr_buf_printf(&adopt->note,
			      "%s may be NULL, and rows without a tenant may have the same key; for keys that "
			      "are unique without the tenant, give --column tenant_id=\n",
			      tenant);
	if (adopt->target_count > 1 || !adopt->targets[0].has_rows)
		pr_buf_puts(&adopt->note, "the table is partitioned: the index makes keys unique within each "
					  "partition; run the command again after you have added one\n");
	return POSTROOM_OK;
}

int pr_adopt_open_keys(struct pr_adopt *adopt, struct postroom_store *store,
		       const struct pr_adopt_wish *wish, struct pr_err *err)
{
	static const char *const keys[] = { "IdempotencyKey", "idempotencyKey", "idempotency_key" };
	static const char *const tenants[] = { "TenantId", "tenantId", "tenant_id" };
	int status = pr_adopt_begin(adopt, store, wish, err);

	if (status >= 0)
		status = pr_adopt_take_columns(adopt, wish, err);
	if (status < 0)
		return status;
	for (size_t i = 0; i < 3; i++) {
		if (!adopt->parts[PR_ADOPT_TENANT] && pr_adopt_find_column(adopt, tenants[i]) >= 0)
			adopt->parts[PR_ADOPT_TENANT] = tenants[i];
		if (!adopt->parts[PR_ADOPT_DEDUPE] && pr_adopt_find_column(adopt, keys[i]) >= 0)
			adopt->parts[PR_ADOPT_DEDUPE] = keys[i];
	}
	if (!adopt->parts[PR_ADOPT_DEDUPE] || !*adopt->parts[PR_ADOPT_DEDUPE])
		adopt->parts[PR_ADOPT_DEDUPE] = "idempotency_key";
	if (adopt->parts[PR_ADOPT_TENANT] && !*adopt->parts[PR_ADOPT_TENANT])
		adopt->parts[PR_ADOPT_TENANT] = NULL;
	adopt->key_sql = wish->key_sql;
	return check_columns(adopt, err);
}
