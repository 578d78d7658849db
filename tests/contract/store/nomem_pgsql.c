/* SPDX-License-Identifier: Apache-2.0 */
/* PostgreSQL for nomem.c, on the server of $POSTROOM_TEST_PG. libpq's own allocations do not fail. */
#include "contract/store/nomem.h"

#include "store/store.h"

#include <postroom/libpq.h>
#include <stdlib.h>
#include <unistd.h>

const bool database_rolls_back = false;

static char url[300];
static pid_t owner;
static PGconn *conn; /* the application's */

static void ignore_notice(void *context, const PGresult *notice)
{
	(void)context, (void)notice;
}

static PGconn *connect_to(const char *at)
{
	PGconn *to = PQconnectdb(at);

	CHECK_MSG(PQstatus(to) == CONNECTION_OK, "%s: %s", at, PQerrorMessage(to));
	PQsetNoticeReceiver(to, ignore_notice, NULL);
	return to;
}

static void execute(PGconn *on, const char *statement)
{
	PGresult *result = PQexec(on, statement);

	CHECK_MSG(PQresultStatus(result) == PGRES_COMMAND_OK, "%s: %s", statement,
		  PQresultErrorMessage(result));
	PQclear(result);
}

/* On the server, while this test's database is not there. */
static void on_server(const char *format)
{
	PGconn *server = connect_to(getenv("POSTROOM_TEST_PG"));
	char statement[200];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(statement, sizeof(statement), format, (int)getpid());
#pragma GCC diagnostic pop
	execute(server, statement);
	PQfinish(server);
}

static void drop_database(void)
{
	if (getpid() == owner)
		on_server("DROP DATABASE IF EXISTS postroom_nomem_%d WITH (FORCE)");
}

void start_database(void)
{
	const char *server = getenv("POSTROOM_TEST_PG");
	const char *path;

	CHECK_MSG(server && *server, "POSTROOM_TEST_PG names no PostgreSQL server: run this by "
				     "tools/with-postgres");
	path = strchr(strstr(server, "://") + 3, '/');
	CHECK(path);
	snprintf(url, sizeof(url), "%.*s/postroom_nomem_%d%s", (int)(path - server), server,
		 (int)getpid(), path + strcspn(path, "?"));
	on_server("CREATE DATABASE postroom_nomem_%d TEMPLATE template0");
	owner = getpid();
	atexit(drop_database);
	CHECK_INT(try_make_tables(), POSTROOM_OK);
}

static void open_app(void)
{
	conn = connect_to(url);
	world.box = postroom_box_libpq(conn);
	CHECK(world.box);
}

void make_world(void)
{
	CHECK_INT(try_open(&world.store), POSTROOM_OK);
	open_app();
	app_sql("DROP TABLE IF EXISTS business");
	app_sql("DELETE FROM postroom_outbox");
	app_sql("DELETE FROM postroom_dedupe");
	app_sql("DELETE FROM postroom_inbox");
}

void end_world(void)
{
	postroom_batch_free(world.batch);
	postroom_store_close(world.store);
	postroom_box_free(world.box);
	PQfinish(conn);
	memset(&world, 0, sizeof(world));
}

void remember_world(void)
{
}

int64_t database_memory(void)
{
	return 0;
}

bool database_gave_up(int status)
{
	(void)status;
	return false;
}

int try_open(postroom_store **ret)
{
	return postroom_store_open(url, ret);
}

void lose_tables(void)
{
	app_sql("DROP SCHEMA public CASCADE");
	app_sql("CREATE SCHEMA public");
	end_world();
}

int try_make_tables(void)
{
	struct postroom_store *store = NULL;
	struct pr_err err = { 0 };
	int status = pr_store_open(&(struct pr_store_config){ .url = url }, &store, &err);

	if (status >= 0)
		status = store->ops->migrate(store, NULL, NULL, &err);
	pr_store_close(store);
	return status;
}

void find_tables(void)
{
	CHECK_INT(try_open(&world.store), POSTROOM_OK);
	open_app();
}

postroom_box *new_box(void)
{
	return postroom_box_libpq(conn);
}

void app_sql(const char *statement)
{
	execute(conn, statement);
}

void app_begin(void)
{
	app_sql("BEGIN");
}

bool app_in_transaction(void)
{
	return PQtransactionStatus(conn) == PQTRANS_INTRANS;
}

int64_t number(const char *statement)
{
	PGresult *result = PQexec(conn, statement);
	int64_t value;

	CHECK_MSG(PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s", statement,
		  PQresultErrorMessage(result));
	value = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	return value;
}

void expire_leases(void)
{
	app_sql("UPDATE postroom_outbox SET locked_until = now() - interval '1 day' "
		"WHERE status = 'processing'");
}
