/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versioned, additive migrations (U1).
 *
 * 1. All migrations are one transaction under an advisory lock: two programs that start together
 *    apply them once, and a crash leaves the old schema intact.
 * 2. DDL waits only briefly for its locks and is then retried: while it waits, later statements
 *    wait behind it. It waits for less than deadlock_timeout (1s by default): if a relay has
 *    locked the same tables in another order, the migration yields, not the relay.
 */
#include "base/time.h"
#include "store/pgsql/statements.h"
#include "store/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 60
#define TRY_AGAIN_MS 250

static int run_sql(struct pgsql_store *store, const char *sql, const char *doing, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	char *text = pr_pgsql_sql(store, NULL, sql);

	if (!text)
		return pr_err_nomem(err);
	result = pr_pgsql_query(store, text, NULL, doing, err);
	free(text);
	return result ? POSTROOM_OK : err->status;
}

static int query_state(struct pgsql_store *store, struct pr_schema_state *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = pr_sql_run(store, &pr_sql_schema_state, NULL, err);

	*ret = (struct pr_schema_state){ 0 };
	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return POSTROOM_OK;
	ret->version = atoi(PQgetvalue(result, 0, 0));
	ret->compatible_with = atoi(PQgetvalue(result, 0, 1));
	snprintf(ret->program, sizeof(ret->program), "%s", PQgetvalue(result, 0, 2));
	return POSTROOM_OK;
}

/* For transactions too, which a statement on a missing table would end. */
static int read_schema_state(struct pgsql_store *store, struct pr_schema_state *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *ledger = NULL;
	struct pgsql_params params = { 0 };
	char name[200];

	*ret = (struct pr_schema_state){ 0 };
	snprintf(name, sizeof(name), "%spostroom_migrations", store->schema);
	pr_sql_bind_find_table(&params, name);
	ledger = pr_sql_run(store, &pr_sql_find_table, &params, err);
	if (!ledger)
		return err->status;
	return PQgetisnull(ledger, 0, 0) ? POSTROOM_OK : query_state(store, ret, err);
}

int pr_pgsql_check_schema(struct postroom_store *base, enum pr_schema_need need, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	bool complete = need == PR_SCHEMA_COMPLETE;
	struct pr_schema_state state;
	/* Relays check compatibility all the time, with one statement. */
	int status = complete ? read_schema_state(store, &state, err)
			      : query_state(store, &state, err);

	/* Missing tables have a message of their own. */
	if (!complete && status == POSTROOM_SCHEMA && strcmp(err->sqlstate, "42P01") == 0)
		return POSTROOM_OK;
	if (status >= 0)
		status = pr_schema_check(pr_schema_pgsql, &state, need, store->shown, err);
	return status;
}

static int record_migration(struct pgsql_store *store, const struct pr_migration *migration,
		  struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_record_migration(&params, migration->version, migration->name,
				     postroom_version(), migration->compatible_with);
	result = pr_sql_run(store, &pr_sql_record_migration, &params, err);
	return result ? POSTROOM_OK : err->status;
}

/* Asked first, since CREATE SCHEMA IF NOT EXISTS wants the privilege even where there is one. */
static int create_schema(struct pgsql_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *found = NULL;
	struct pgsql_params params = { 0 };
	char name[sizeof(store->schema)], sql[sizeof(name) + 20];

	snprintf(name, sizeof(name), "%.*s", (int)strlen(store->schema) - 1, store->schema);
	pr_sql_bind_find_schema(&params, name);
	found = pr_sql_run(store, &pr_sql_find_schema, &params, err);
	if (!found)
		return err->status;
	if (!PQgetisnull(found, 0, 0))
		return POSTROOM_OK;
	snprintf(sql, sizeof(sql), "CREATE SCHEMA %s", name);
	return run_sql(store, sql, "creating the schema", err);
}

static int apply_missing(struct pgsql_store *store, pr_migration_fn fn, void *context,
			 struct pr_err *err)
{
	struct pr_schema_state state;
	/* The number spells "post" and is the same for every version of this program. */
	int status = run_sql(
		store, "SELECT pg_advisory_xact_lock(1886351220); SET LOCAL lock_timeout = '500ms'",
		"taking the migration lock", err);

	if (status >= 0)
		status = create_schema(store, err);
	if (status >= 0)
		status = run_sql(store,
			     "CREATE TABLE IF NOT EXISTS {schema}postroom_migrations ("
			     "version integer PRIMARY KEY, name text NOT NULL, "
			     "applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), "
			     "applied_by text NOT NULL, compatible_with integer NOT NULL)",
			     "creating postroom_migrations", err);
	if (status >= 0)
		status = read_schema_state(store, &state, err);
	if (status >= 0)
		status = pr_schema_check(pr_schema_pgsql, &state, PR_SCHEMA_COMPATIBLE,
					 store->shown, err);
	for (const struct pr_migration *m = pr_schema_pgsql; status >= 0 && m->version; m++) {
		if (m->version <= state.version)
			continue;
		status = run_sql(store, m->sql, m->name, err);
		if (status >= 0)
			status = record_migration(store, m, err);
		if (status >= 0 && fn)
			fn(context, m, pr_now_us(), postroom_version());
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
	return base->ops->end(base, status, err);
}

int pr_pgsql_migrate(struct postroom_store *base, pr_migration_fn fn, void *context,
		     struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	struct pr_schema_state state;
	int status = read_schema_state(store, &state, err);

	if (status >= 0)
		status = pr_schema_check(pr_schema_pgsql, &state, PR_SCHEMA_COMPATIBLE,
					 store->shown, err);
	if (status < 0 || state.version >= pr_schema_newest(pr_schema_pgsql))
		return status;
	for (int i = 0; i < TRIES; i++) {
		status = try_migrate(base, fn, context, err);
		if (status != POSTROOM_BUSY || pr_stop_wait(store->stop, TRY_AGAIN_MS))
			break;
	}
	return status;
}

/* Reports the migrations that a newer program has applied. */
static int report_unknown(struct pgsql_store *store, pr_migration_fn fn, void *context,
			struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_newer_migrations(&params, pr_schema_newest(pr_schema_pgsql));
	result = pr_sql_run(store, &pr_sql_newer_migrations, &params, err);
	if (!result)
		return err->status;
	for (int i = 0; i < PQntuples(result); i++) {
		const struct pr_migration migration = {
			.version = atoi(PQgetvalue(result, i, 0)),
			.compatible_with = atoi(PQgetvalue(result, i, 1)),
			.name = PQgetvalue(result, i, 2),
		};

		fn(context, &migration, atoll(PQgetvalue(result, i, 3)), PQgetvalue(result, i, 4));
	}
	return POSTROOM_OK;
}

int pr_pgsql_migrations(struct postroom_store *base, pr_migration_fn fn, void *context,
			struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	struct pr_schema_state state;
	int status = read_schema_state(store, &state, err);

	for (const struct pr_migration *m = pr_schema_pgsql; status >= 0 && m->version; m++) {
		PR_CLEANUP_RESULT PGresult *result = NULL;
		struct pgsql_params params = { 0 };

		if (m->version > state.version) {
			fn(context, m, 0, NULL);
			continue;
		}
		pr_sql_bind_read_migration(&params, m->version);
		result = pr_sql_run(store, &pr_sql_read_migration, &params, err);
		if (!result)
			return err->status;
		if (PQntuples(result) == 1)
			fn(context, m, atoll(PQgetvalue(result, 0, 0)), PQgetvalue(result, 0, 1));
		else
			fn(context, m, 0, NULL);
	}
	return status < 0 || state.version == 0 ? status : report_unknown(store, fn, context, err);
}
