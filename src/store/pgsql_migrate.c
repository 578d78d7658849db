/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versioned, additive migrations (U1).
 *
 * 1. One transaction under an advisory lock: two programs that start at once do
 *    it once, and a crash leaves the old schema whole.
 * 2. DDL waits for its locks only briefly, and is tried again: while it waits,
 *    everybody behind it waits too.
 */
#include "base/time.h"
#include "store/pgsql.h"
#include "store/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 20
#define TRY_AGAIN_MS 250

static int run(struct pgsql_store *store, const char *sql, const char *doing, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	char *text = pr_pgsql_sql(store, NULL, sql);

	if (!text)
		return pr_err_nomem(err);
	result = pr_pgsql_query(store, text, NULL, doing, err);
	free(text);
	return result ? POSTROOM_OK : err->status;
}

static PGresult *query(struct pgsql_store *store, const char *sql, struct pgsql_params *params,
		       struct pr_err *err)
{
	char *text = pr_pgsql_sql(store, NULL, sql);
	PGresult *result;

	if (!text) {
		pr_err_nomem(err);
		return NULL;
	}
	result = pr_pgsql_query(store, text, params, "reading postroom_migrations", err);
	free(text);
	return result;
}

/* The newest version applied, 0 if none. */
static int read_version(struct pgsql_store *store, int *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *ledger = NULL, *newest = NULL;
	struct pgsql_params params = { 0 };
	char name[200];

	*ret = 0;
	snprintf(name, sizeof(name), "%spostroom_migrations", store->schema);
	pr_pgsql_text(&params, name);
	ledger = query(store, "SELECT to_regclass($1)", &params, err);
	if (!ledger)
		return err->status;
	if (PQgetisnull(ledger, 0, 0))
		return POSTROOM_OK;
	newest = query(store, "SELECT coalesce(max(version), 0) FROM {schema}postroom_migrations",
		       NULL, err);
	if (!newest)
		return err->status;
	*ret = atoi(PQgetvalue(newest, 0, 0));
	return POSTROOM_OK;
}

int pr_pgsql_check_schema(struct postroom_store *base, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int version;
	int status = read_version(store, &version, err);

	if (status >= 0)
		status = pr_schema_check(pr_schema_pgsql, version, store->shown, err);
	return status;
}

static int record(struct pgsql_store *store, const struct pr_migration *migration,
		  struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_number(&params, migration->version);
	pr_pgsql_text(&params, migration->name);
	pr_pgsql_text(&params, POSTROOM_VERSION);
	result = query(store,
		       "INSERT INTO {schema}postroom_migrations (version, name, applied_by) "
		       "VALUES ($1, $2, $3)",
		       &params, err);
	return result ? POSTROOM_OK : err->status;
}

/* Asked first, since CREATE SCHEMA IF NOT EXISTS wants the privilege even where there is one. */
static int create_schema(struct pgsql_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *found = NULL;
	struct pgsql_params params = { 0 };
	char name[sizeof(store->schema)], sql[sizeof(name) + 20];

	snprintf(name, sizeof(name), "%.*s", (int)strlen(store->schema) - 1, store->schema);
	pr_pgsql_text(&params, name);
	found = query(store, "SELECT to_regnamespace($1)", &params, err);
	if (!found)
		return err->status;
	if (!PQgetisnull(found, 0, 0))
		return POSTROOM_OK;
	snprintf(sql, sizeof(sql), "CREATE SCHEMA %s", name);
	return run(store, sql, "creating the schema", err);
}

static int apply_missing(struct pgsql_store *store, pr_migration_fn fn, void *context,
			 struct pr_err *err)
{
	int version;
	/* The number spells "post" and is the same for every version of this program. */
	int status = run(store,
			 "SELECT pg_advisory_xact_lock(1886351220); SET LOCAL lock_timeout = '2s'",
			 "taking the migration lock", err);

	if (status >= 0)
		status = create_schema(store, err);
	if (status >= 0)
		status = run(store,
			 "CREATE TABLE IF NOT EXISTS {schema}postroom_migrations ("
			 "version integer PRIMARY KEY, name text NOT NULL, "
			 "applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), "
			 "applied_by text NOT NULL)",
			 "creating postroom_migrations", err);
	if (status >= 0)
		status = read_version(store, &version, err);
	if (status >= 0)
		status = pr_schema_refuse_newer(pr_schema_pgsql, version, store->shown, err);
	for (const struct pr_migration *m = pr_schema_pgsql; status >= 0 && m->version; m++) {
		if (m->version <= version)
			continue;
		status = run(store, m->sql, m->name, err);
		if (status >= 0)
			status = record(store, m, err);
		if (status >= 0 && fn)
			fn(context, m, pr_now_us(), POSTROOM_VERSION);
	}
	return status;
}

static int try_migrate(struct postroom_store *base, pr_migration_fn fn, void *context,
		       struct pr_err *err)
{
	int status = base->ops->begin(base, err);

	if (status < 0)
		return status;
	status = apply_missing(pgsql_store(base), fn, context, err);
	if (status >= 0)
		status = base->ops->commit(base, err);
	if (status < 0)
		base->ops->rollback(base);
	return status;
}

int pr_pgsql_migrate(struct postroom_store *base, pr_migration_fn fn, void *context,
		     struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int version;
	int status = read_version(store, &version, err);

	if (status >= 0)
		status = pr_schema_refuse_newer(pr_schema_pgsql, version, store->shown, err);
	if (status < 0 || version == pr_schema_newest(pr_schema_pgsql))
		return status;
	for (int i = 0; i < TRIES; i++) {
		status = try_migrate(base, fn, context, err);
		if (status != POSTROOM_BUSY || pr_stop_wait(store->stop, TRY_AGAIN_MS))
			break;
	}
	return status;
}

int pr_pgsql_migrations(struct postroom_store *base, pr_migration_fn fn, void *context,
			struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int version;
	int status = read_version(store, &version, err);

	for (const struct pr_migration *m = pr_schema_pgsql; status >= 0 && m->version; m++) {
		PR_CLEANUP_RESULT PGresult *result = NULL;
		struct pgsql_params params = { 0 };

		if (m->version > version) {
			fn(context, m, 0, NULL);
			continue;
		}
		pr_pgsql_number(&params, m->version);
		result = query(store,
			       "SELECT (extract(epoch FROM applied_at) * 1000000)::bigint, applied_by "
			       "FROM {schema}postroom_migrations WHERE version = $1",
			       &params, err);
		if (!result)
			return err->status;
		if (PQntuples(result) == 1)
			fn(context, m, atoll(PQgetvalue(result, 0, 0)), PQgetvalue(result, 0, 1));
		else
			fn(context, m, 0, NULL);
	}
	return status < 0 ? status : pr_schema_refuse_newer(pr_schema_pgsql, version, store->shown, err);
}
