/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease kind of a database: by row or by lane, the same for all relays.
 *
 * 1. It is in every row of postroom_lanes; a claim reads it there, in the snapshot of
 *    the claim.
 * 2. It changes only while no claim runs: a claim locks that table before it reads, and
 *    the change takes an exclusive lock for a moment.
 * 3. Each kind has its own indexes and fill factor. The indexes of the new kind are
 *    created before the change, those of the old kind are dropped after it, without a
 *    lock that a producer would wait for. A change that was stopped halfway is repeated.
 */
#include "store/pgsql/statements.h"

#include <stdlib.h>

int pr_pgsql_check_lease_kind(struct pgsql_store *store, bool *ret_lost, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = pr_sql_run(store, &pr_sql_lease_kind, NULL, err);

	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return pr_err_set(err, POSTROOM_SCHEMA,
				  "postroom_lanes is empty: its rows 1 to %d were deleted", PG_LANES);
	store->kind = *PQgetvalue(result, 0, 0) == 't' ? PR_LEASE_LANE : PR_LEASE_ROW;
	if (store->lanes_wanted == 0)
		store->lanes_wanted = PG_LANES;
	store->lease_kind_known = true;
	*ret_lost = *PQgetvalue(result, 0, 1) == 't';
	return POSTROOM_OK;
}

int pr_pgsql_load_lease_kind(struct pgsql_store *store, struct pr_err *err)
{
	bool lost;

	return store->lease_kind_known ? POSTROOM_OK : pr_pgsql_check_lease_kind(store, &lost, err);
}

/* The indexes that claims of each kind read. Those of the other kind only slow down producers. */
static const struct pgsql_kind_index indexes[] = {
	{ "postroom_outbox_unkeyed",
	  " ON {schema}postroom_outbox (next_attempt_at, seq) "
	  "WHERE key IS NULL AND state = 'ready' AND status = 'pending'",
	  PR_LEASE_ROW },
	{ "postroom_outbox_keyed",
	  " ON {schema}postroom_outbox (" PG_LANE_OF("") ", seq) "
	  "WHERE key IS NOT NULL AND state = 'ready' AND status = 'pending'",
	  PR_LEASE_ROW },
	{ "postroom_outbox_lane",
	  " ON {schema}postroom_outbox (" PG_LANE_OF("") ", seq) WHERE state = 'ready' AND status = 'pending'",
	  PR_LEASE_LANE },
};
#define INDEXES (sizeof(indexes) / sizeof(indexes[0]))

bool pr_pgsql_kind_index(size_t i, struct pgsql_kind_index *ret)
{
	if (i >= INDEXES)
		return false;
	*ret = indexes[i];
	return true;
}

#define CHANGING "changing how messages are leased"

/* Runs a command, put together from three parts, with {schema} filled in. */
static int run_kind_command(struct pgsql_store *store, const char *before, const char *name,
		   const char *after, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	PGresult *result;
	char *sql;

	pr_buf_puts(&text, before);
	pr_buf_puts(&text, name);
	pr_buf_puts(&text, after);
	sql = text.failed ? NULL : pr_pgsql_sql(store, NULL, text.data);
	if (!sql)
		return pr_err_nomem(err);
	result = pr_pgsql_query(store, sql, NULL, CHANGING, err);
	free(sql);
	PQclear(result);
	return result ? POSTROOM_OK : err->status;
}

static int drop_index(struct pgsql_store *store, const char *name, struct pr_err *err)
{
	return run_kind_command(store, "DROP INDEX CONCURRENTLY IF EXISTS {schema}", name, "", err);
}

/* An index that was not finished the last time is invalid, and its name is taken: it is dropped first. */
static int make_index(struct pgsql_store *store, const char *name, const char *definition,
		      struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	int status = POSTROOM_OK;

	pr_sql_bind_index_is_valid(&params, name);
	result = pr_sql_run(store, &pr_sql_index_is_valid, &params, err);
	if (!result)
		return err->status;
	if (PQntuples(result) > 0 && *PQgetvalue(result, 0, 0) == 't')
		return POSTROOM_OK;
	if (PQntuples(result) > 0)
		status = drop_index(store, name, err);
	if (status >= 0)
		status = run_kind_command(store, "CREATE INDEX CONCURRENTLY ", name, definition, err);
	return status;
}

/* The table is locked for a moment. If the lock is not free, the waiters behind it go first, and it is retried. */
#define LOCK_TRIES 60

static int set_kind(struct pgsql_store *store, enum pr_lease_kind kind, struct pr_err *err)
{
	int status = POSTROOM_BUSY;

	for (int i = 0; i < LOCK_TRIES && status == POSTROOM_BUSY; i++) {
		if (i > 0 && pr_stop_wait(store->stop, 500))
			break;
		status = run_kind_command(store,
				 "BEGIN; SET LOCAL lock_timeout = '500ms'; "
				 "LOCK TABLE {schema}postroom_lanes IN ACCESS EXCLUSIVE MODE; "
				 "UPDATE {schema}postroom_lanes SET low_water_seq = 0, passed = NULL, passed_from = NULL, lease = ",
				 kind == PR_LEASE_LANE ? "'lane'" : "'row'", "; COMMIT", err);
		if (status < 0)
			run_kind_command(store, "ROLLBACK", "", "", &(struct pr_err){ 0 });
	}
	return status;
}

/* Leases of lanes end when their messages are settled, or by themselves. */
static int await_lanes(struct pgsql_store *store, struct pr_err *err)
{
	for (;;) {
		PR_CLEANUP_RESULT PGresult *result = NULL;
		bool leased;
		int status = pr_pgsql_take_over(store, err);

		if (status < 0)
			return status;
		result = pr_sql_run(store, &pr_sql_any_lane_leased, NULL, err);
		if (!result)
			return err->status;
		leased = *PQgetvalue(result, 0, 0) == 't';
		if (!leased)
			return POSTROOM_OK;
		if (pr_stop_wait(store->stop, 100))
			return pr_err_set(err, POSTROOM_STOPPED,
					  CHANGING ": stopped while lanes are still leased; "
						   "run it again to finish");
	}
}

static int make_indexes(struct pgsql_store *store, enum pr_lease_kind kind, struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (size_t i = 0; status >= 0 && i < INDEXES; i++) {
		if (indexes[i].kind == kind)
			status = make_index(store, indexes[i].name, indexes[i].definition, err);
	}
	return status;
}

/*
 * With row leases, two more versions of each message are written, and the page has room for
 * them. With lane leases, a message is deleted unchanged. It applies to new pages only.
 */
static int set_fillfactor(struct pgsql_store *store, enum pr_lease_kind kind, struct pr_err *err)
{
	return run_kind_command(store, "ALTER TABLE {schema}postroom_outbox SET (fillfactor = ",
		       kind == PR_LEASE_LANE ? "100" : "50", ")", err);
}

static int change_kind(struct pgsql_store *store, enum pr_lease_kind kind, struct pr_err *err)
{
	int status = make_indexes(store, kind, err);
	bool lost;

	if (status >= 0)
		status = set_kind(store, kind, err);
	if (status >= 0 && kind == PR_LEASE_ROW)
		status = await_lanes(store, err);
	for (size_t i = 0; status >= 0 && i < INDEXES; i++) {
		if (indexes[i].kind != kind)
			status = drop_index(store, indexes[i].name, err);
	}
	/* Behind a pooler others may have changed it too: what is read now must be there. */
	if (status >= 0)
		status = pr_pgsql_check_lease_kind(store, &lost, err);
	if (status >= 0)
		status = make_indexes(store, store->kind, err);
	if (status >= 0)
		status = set_fillfactor(store, store->kind, err);
	if (status >= 0 && store->kind != kind)
		return pr_err_set(err, POSTROOM_BUSY,
				  CHANGING ": another process has changed it back meanwhile; "
					   "agree on one kind, and run it again");
	return status;
}

/* A lock of the session, because CREATE INDEX CONCURRENTLY runs in no transaction; so not behind a pooler. */
#define OWN_LOCK "(1886351222, hashtext('{schema}'))"

static int change_kind_exclusive(struct pgsql_store *store, enum pr_lease_kind kind, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	char *sql;
	int status;

	if (store->pooled)
		return change_kind(store, kind, err);
	sql = pr_pgsql_sql(store, NULL, "SELECT pg_try_advisory_lock" OWN_LOCK);
	if (!sql)
		return pr_err_nomem(err);
	result = pr_pgsql_query(store, sql, NULL, CHANGING, err);
	free(sql);
	if (!result)
		return err->status;
	if (*PQgetvalue(result, 0, 0) != 't')
		return pr_err_set(err, POSTROOM_BUSY,
				  CHANGING ": another process is changing it right now; "
					   "wait until it has finished, and run it again");
	status = change_kind(store, kind, err);
	run_kind_command(store, "SELECT pg_advisory_unlock" OWN_LOCK, "", "", &(struct pr_err){ 0 });
	return status;
}

int pr_pgsql_lease_kind(struct postroom_store *base, const enum pr_lease_kind *want,
			enum pr_lease_kind *ret, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	bool lost;
	/* Also if it is this kind already: an earlier change may have been stopped halfway. */
	int status = want ? change_kind_exclusive(store, *want, err) : POSTROOM_OK;

	if (status >= 0)
		status = pr_pgsql_check_lease_kind(store, &lost, err);
	if (status >= 0)
		*ret = store->kind;
	return status;
}
