/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Databases on the server that $POSTROOM_TEST_PG names (tools/with-postgres
 * starts one). A runner has one that is emptied and made anew for each test,
 * which is much quicker than a new one, and new ones for tests that ask for
 * them. They carry its process id and are gone when it ends.
 */
#include "contract/store/backend.h"

#include "store/store.h"

#include <postroom/libpq.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "postroom_test_"

static pid_t runner;
static int made; /* databases of this test alone */

static const char *server_url(void)
{
	const char *server = getenv("POSTROOM_TEST_PG");

	CHECK_MSG(server && *server, "POSTROOM_TEST_PG names no PostgreSQL server: run this by "
				     "tools/with-postgres");
	return server;
}

static PGconn *connect_to(const char *at)
{
	PGconn *conn = PQconnectdb(at);

	CHECK_MSG(PQstatus(conn) == CONNECTION_OK, "%s: %s", at, PQerrorMessage(conn));
	return conn;
}

static void ignore_notice(void *context, const PGresult *notice)
{
	(void)context, (void)notice;
}

static void execute(PGconn *conn, const char *statement)
{
	PGresult *result = PQexec(conn, statement);

	CHECK_MSG(PQresultStatus(result) == PGRES_COMMAND_OK, "%s: %s", statement,
		  PQresultErrorMessage(result));
	PQclear(result);
}

/* The server's URL with another database in it. */
static void url_of(const char *name, char *out)
{
	const char *server = server_url();
	const char *path = strchr(strstr(server, "://") + 3, '/');

	CHECK_MSG(path, "POSTROOM_TEST_PG names no database: %s", server);
	CHECK(snprintf(out, 200, "%.*s/%s%s", (int)(path - server), server, name,
		       path + strcspn(path, "?")) < 200);
}

static void create(const char *name)
{
	PGconn *conn = connect_to(server_url());
	char statement[300];

	snprintf(statement, sizeof(statement), "CREATE DATABASE %s TEMPLATE template0", name);
	execute(conn, statement);
	PQfinish(conn);
}

static void make_tables(const char *at)
{
	struct postroom_store *made_for = NULL;
	struct pr_err err = { 0 };

	CHECK_MSG(pr_store_open(&(struct pr_store_config){ .url = at }, &made_for, &err) >= 0, "%s",
		  err.text);
	CHECK_MSG(made_for->ops->migrate(made_for, NULL, NULL, &err) >= 0, "%s", err.text);
	pr_store_close(made_for);
}

static bool exists(const char *name)
{
	PGconn *conn = connect_to(server_url());
	PGresult *found = PQexecParams(conn, "SELECT FROM pg_database WHERE datname = $1", 1, NULL,
				       &name, NULL, NULL, 0);
	bool there = PQntuples(found) == 1;

	PQclear(found);
	PQfinish(conn);
	return there;
}

static void new_database(char *out)
{
	char name[100];

	snprintf(name, sizeof(name), PREFIX "%d_%d_%d", (int)runner, (int)getpid(), ++made);
	create(name);
	url_of(name, out);
}

/* Without whatever the last test left in it, its connections included. */
static void empty(const char *at)
{
	PGconn *conn = connect_to(at);

	PQsetNoticeReceiver(conn, ignore_notice, NULL);
	PQclear(PQexec(conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
			     "WHERE datname = current_database() AND pid <> pg_backend_pid()"));
	execute(conn, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET ALL', "
		      "current_database()); END $$");
	execute(conn, "DROP SCHEMA public CASCADE");
	execute(conn, "CREATE SCHEMA public");
	execute(conn, "GRANT USAGE ON SCHEMA public TO PUBLIC");
	PQfinish(conn);
}

static void new_database_with_tables(char *out)
{
	char name[100];

	snprintf(name, sizeof(name), PREFIX "%d_shared", (int)runner);
	url_of(name, out);
	if (exists(name))
		empty(out);
	else
		create(name);
	make_tables(out);
}

/* Drops the databases with this prefix, and ends the sessions that are connected to them. */
static void drop(const char *beginning)
{
	PGconn *conn = connect_to(server_url());
	PGresult *names = PQexecParams(conn,
				       "SELECT format('DROP DATABASE %I WITH (FORCE)', datname) "
				       "FROM pg_database WHERE starts_with(datname::text, $1)",
				       1, NULL, &beginning, NULL, NULL, 0);

	for (int i = 0; i < PQntuples(names); i++)
		execute(conn, PQgetvalue(names, i, 0));
	PQclear(names);
	PQfinish(conn);
}

static void drop_databases(void)
{
	char beginning[100];

	snprintf(beginning, sizeof(beginning), PREFIX "%d_%d_", (int)runner, (int)getpid());
	drop(beginning);
}

/* Drops the database that the tests share, and those that failed tests left. */
static void drop_all_databases(void)
{
	char beginning[100];

	if (getpid() != runner || !getenv("POSTROOM_TEST_PG"))
		return;
	snprintf(beginning, sizeof(beginning), PREFIX "%d_", (int)runner);
	drop(beginning);
}

__attribute__((constructor)) static void remember_runner(void)
{
	runner = getpid();
	atexit(drop_all_databases);
}

static void connect_pgsql(struct session *session, const char *at)
{
	PGconn *conn = connect_to(at);

	PQsetNoticeReceiver(conn, ignore_notice, NULL);
	session->backend = &backend_pgsql;
	session->native = conn;
	session->box = postroom_box_libpq(conn);
	CHECK(session->box);
}

/* Looks on from a connection of its own until its session waits for a lock. */
static struct watcher {
	struct session *session;
	PGconn *conn;
	pthread_t thread;
	char pid[20];
	int fd;
	atomic_bool ended;
} watcher;

static void disconnect_pgsql(struct session *session)
{
	if (watcher.session == session) {
		watcher.ended = true;
		CHECK_INT(pthread_join(watcher.thread, NULL), 0);
		PQfinish(watcher.conn);
		watcher.session = NULL;
	}
	postroom_box_free(session->box);
	PQfinish(session->native);
}

static bool is_blocked(void)
{
	const char *pid = watcher.pid;
	PGresult *found = PQexecParams(watcher.conn,
				       "SELECT FROM pg_locks WHERE pid = $1::int AND NOT granted",
				       1, NULL, &pid, NULL, NULL, 0);
	bool blocked = PQntuples(found) > 0;

	CHECK_MSG(PQresultStatus(found) == PGRES_TUPLES_OK, "%s", PQresultErrorMessage(found));
	PQclear(found);
	return blocked;
}

static void *watch(void *context)
{
	(void)context;
	while (!watcher.ended) {
		if (is_blocked()) {
			CHECK_INT(write(watcher.fd, "", 1), 1);
			break;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return NULL;
}

static void announce_when_blocked(struct session *session, int fd)
{
	CHECK(!watcher.session);
	watcher.session = session;
	watcher.conn = connect_to(url);
	watcher.fd = fd;
	watcher.ended = false;
	snprintf(watcher.pid, sizeof(watcher.pid), "%d", PQbackendPID(session->native));
	CHECK_INT(pthread_create(&watcher.thread, NULL, watch, NULL), 0);
}

static bool run(struct session *session, const char *statement, char *error, size_t size)
{
	PGresult *result = PQexec(session->native, statement);
	ExecStatusType status = PQresultStatus(result);
	bool worked = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;

	if (!worked)
		snprintf(error, size, "%s", PQresultErrorMessage(result));
	PQclear(result);
	return worked;
}

static bool query(struct session *session, const char *statement, char *out, size_t size)
{
	PGresult *result = PQexec(session->native, statement);
	bool found;

	CHECK_MSG(PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s", statement,
		  PQresultErrorMessage(result));
	found = PQntuples(result) > 0 && !PQgetisnull(result, 0, 0);
	if (found)
		snprintf(out, size, "%s", PQgetvalue(result, 0, 0));
	PQclear(result);
	return found;
}

/*
  * The same database with lanes leased. Tests read messages through the view, as users
  * do; a lease that they let expire is that of a lane too.
 */
static void new_database_with_lanes(char *out)
{
	enum pr_lease_kind kind = PR_LEASE_LANE;
	struct postroom_store *changed = NULL;
	struct pr_err err = { 0 };

	new_database_with_tables(out);
	CHECK_MSG(pr_store_open(&(struct pr_store_config){ .url = out }, &changed, &err) >= 0, "%s",
		  err.text);
	CHECK_MSG(pr_store_lease_kind(changed, &kind, &kind, &err) >= 0, "%s", err.text);
	pr_store_close(changed);
}

#define TABLE "postroom_outbox"

static bool run_on_lanes(struct session *session, const char *statement, char *error, size_t size)
{
	static const struct {
		const char *column;
		const char *table; /* the other table that has it */
	} also[] = { { "locked_until", "postroom_lanes" }, { "delivered_at", "postroom_history" } };
	const char *set = "UPDATE " TABLE " SET ";
	char elsewhere[1000];

	for (size_t i = 0; i < 2 && strncmp(statement, set, strlen(set)) == 0; i++) {
		const char *change = statement + strlen(set);

		if (strncmp(change, also[i].column, strlen(also[i].column)) != 0)
			continue;
		snprintf(elsewhere, sizeof(elsewhere), "UPDATE %s SET %s", also[i].table, change);
		if (!run(session, elsewhere, error, size))
			return false;
	}
	return run(session, statement, error, size);
}

static bool query_messages(struct session *session, const char *statement, char *out, size_t size)
{
	char of_view[20000];
	size_t len = 0;
	const char *at;

	if (strncmp(statement, "SELECT", 6) != 0)
		return query(session, statement, out, size);
	while ((at = strstr(statement, TABLE))) {
		len += (size_t)snprintf(of_view + len, sizeof(of_view) - len,
					"%.*spostroom_messages", (int)(at - statement), statement);
		CHECK(len < sizeof(of_view));
		statement = at + strlen(TABLE);
	}
	CHECK((size_t)snprintf(of_view + len, sizeof(of_view) - len, "%s", statement) <
	      sizeof(of_view) - len);
	return query(session, of_view, out, size);
}

static bool in_transaction(struct session *session)
{
	return PQtransactionStatus(session->native) == PQTRANS_INTRANS;
}

const struct backend backend_pgsql = {
	.name = "pgsql",
	.begin = "BEGIN",
	.now_us = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
	.to_us = "(extract(epoch FROM %s) * 1000000)::bigint",
	.shift = "%s + (%lld) * interval '1 microsecond'",
	.new_database = new_database,
	.new_database_with_tables = new_database_with_tables,
	.make_tables = make_tables,
	.drop_databases = drop_databases,
	.connect = connect_pgsql,
	.disconnect = disconnect_pgsql,
	.run = run,
	.query = query,
	.in_transaction = in_transaction,
	.announce_when_blocked = announce_when_blocked,
};

const struct backend backend_pgsql_lane = {
	.name = "pgsql_lane",
	.lanes = true,
	.begin = "BEGIN",
	.now_us = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
	.to_us = "(extract(epoch FROM %s) * 1000000)::bigint",
	.shift = "%s + (%lld) * interval '1 microsecond'",
	.new_database = new_database,
	.new_database_with_tables = new_database_with_lanes,
	.make_tables = make_tables,
	.drop_databases = drop_databases,
	.connect = connect_pgsql,
	.disconnect = disconnect_pgsql,
	.run = run_on_lanes,
	.query = query_messages,
	.in_transaction = in_transaction,
	.announce_when_blocked = announce_when_blocked,
};
