/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks PgBouncer about its pools, over the same address, in its database "pgbouncer". It answers
 * the users in its stats_users; for all others, and for other poolers, the check is skipped.
 */
#include "store/pgsql/doctor.h"

#include "base/time.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_US ((int64_t)3 * 1000 * 1000)
#define SETTINGS_MOST 64

/* Settings of a session with the server, which the console of the pooler refuses. */
static bool is_for_server(const char *keyword)
{
	static const char *const names[] = { "dbname", "options", "replication",
					     "target_session_attrs" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], keyword) == 0)
			return true;
	}
	return false;
}

static int await_connection(struct pgsql_store *console, struct pr_err *err)
{
	int64_t until_us = pr_mono_us() + CONNECT_US;

	while (PQstatus(console->conn) != CONNECTION_BAD) {
		PostgresPollingStatusType want = PQconnectPoll(console->conn);

		if (want == PGRES_POLLING_OK)
			return PQsetnonblocking(console->conn, 1);
		if (want != PGRES_POLLING_FAILED &&
		    pr_pgsql_wait_socket(console, want == PGRES_POLLING_READING ? POLLIN : POLLOUT,
					 until_us, true, "connecting to the pooler", err) < 0)
			return err->status;
	}
	return pr_pgsql_fail(console->conn, NULL, console->shown, "connecting to the pooler", err);
}

static int open_console(const struct pgsql_store *store, struct pgsql_store *console,
			struct pr_err *err)
{
	PQconninfoOption *options = PQconninfo(store->conn);
	const char *names[SETTINGS_MOST + 2] = { "dbname" };
	const char *values[SETTINGS_MOST + 2] = { "pgbouncer" };
	size_t count = 1;

	if (!options)
		return pr_err_nomem(err);
	for (const PQconninfoOption *at = options; at->keyword && count <= SETTINGS_MOST; at++) {
		if (!at->val || !*at->val || is_for_server(at->keyword))
			continue;
		names[count] = at->keyword;
		values[count++] = at->val;
	}
	console->conn = PQconnectStartParams(names, values, 0);
	PQconninfoFree(options);
	return console->conn ? await_connection(console, err) : pr_err_nomem(err);
}

/* A number of the row of this database with the largest one; -1: there is none. */
static int64_t read_largest(const PGresult *result, const char *database, const char *key,
			    const char *column)
{
	int by = PQfnumber(result, key), at = PQfnumber(result, column);
	int64_t largest = -1;

	for (int row = 0; by >= 0 && at >= 0 && row < PQntuples(result); row++) {
		int64_t value = strtoll(PQgetvalue(result, row, at), NULL, 10);

		if (strcmp(PQgetvalue(result, row, by), database) == 0 && value > largest)
			largest = value;
	}
	return largest;
}

static void judge_pools(struct pgsql_inspection *in, const PGresult *pools)
{
	const char *database = PQdb(in->store->conn);
	int64_t waiting = read_largest(pools, database, "database", "cl_waiting");
	int64_t waited_s = read_largest(pools, database, "database", "maxwait");

	if (waiting < 1 || waited_s < 1)
		return;
	pr_found(in->checkup, PR_LEVEL_WARNING, "%lld clients wait for a connection of the pool",
		 (long long)waiting);
	pr_found_detail(in->checkup,
			"The longest has waited for %lld s. Producers and relays wait with them, and "
			"leases may expire meanwhile.",
			(long long)waited_s);
	pr_found_advice(in->checkup,
			"The administrator of the pooler finds out who holds its connections (run the "
			"command in its database pgbouncer), or raises default_pool_size.");
	pr_found_command(in->checkup, "SHOW SERVERS;");
}

static void judge_size(struct pgsql_inspection *in, const PGresult *databases)
{
	int64_t size = read_largest(databases, PQdb(in->store->conn), "name", "pool_size");
	int64_t workers = in->inspection->workers;

	if (size < 0 || size >= workers)
		return;
	pr_found(in->checkup, PR_LEVEL_NOTE,
		 "The pool has %lld connections, and the relay %lld workers", (long long)size,
		 (long long)workers);
	pr_found_detail(in->checkup,
			"Workers wait for each other, and producers with the same user and database "
			"wait for them.");
	pr_found_advice(in->checkup,
			"The administrator of the pooler runs the command in its database pgbouncer, "
			"and sets default_pool_size in pgbouncer.ini too; or the operator lowers "
			"relay.workers.");
	pr_found_command(in->checkup, "SET default_pool_size = %lld;", (long long)workers + 3);
}

static void ask(struct pgsql_inspection *in, struct pgsql_store *console)
{
	struct pr_err err = { 0 };
	PR_CLEANUP_RESULT PGresult *pools = NULL, *databases = NULL;

	if (open_console(in->store, console, &err) >= 0)
		pools = pr_pgsql_query(console, "SHOW POOLS", NULL, PG_DOCTOR_DOING, &err);
	if (pools)
		databases = pr_pgsql_query(console, "SHOW DATABASES", NULL, PG_DOCTOR_DOING, &err);
	if (!databases) {
		pr_found_skipped(in->checkup, err.text,
				 "If the pooler is PgBouncer, its administrator adds the user to "
				 "stats_users in pgbouncer.ini.");
		return;
	}
	judge_pools(in, pools);
	judge_size(in, databases);
}

void pr_pgsql_check_pooler(struct pgsql_inspection *in)
{
	struct pgsql_store *console;

	if (!in->store->pooled || !in->store->conn ||
	    !pr_check_begin(in->checkup, "pools", "The pooler has free connections"))
		return;
	console = calloc(1, sizeof(*console));
	if (console) {
		console->base.until_us = in->store->base.until_us;
		console->answer_ms = CONNECT_US / 1000;
		console->stop = in->store->stop;
		snprintf(console->shown, sizeof(console->shown), "%s", in->store->shown);
		ask(in, console);
		PQfinish(console->conn);
		free(console);
	} else {
		pr_found_skipped(in->checkup, "There is not enough memory.", NULL);
	}
	pr_check_end(in->checkup);
}
