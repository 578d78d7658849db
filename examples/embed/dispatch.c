/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch [URL]: a shop that places three orders, each with its message in one
 * transaction, and delivers the messages itself, in a callback. URL is that of a
 * SQLite file (shop.db unless given) or of a PostgreSQL database that
 * `postroom --db URL migrate` has prepared. It runs until SIGINT or SIGTERM.
 *
 *	cc -o dispatch dispatch.c $(pkg-config --cflags --libs postroom-relay)
 */
#define _POSIX_C_SOURCE 200809L

#include <postroom/libpq.h>
#include <postroom/relay.h>
#include <postroom/sqlite.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const orders[] = { "o-1", "o-2", "o-3" };

#define MAKE_ORDERS "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY)"

/*
 * Call it in the transaction that writes the order. Returns 0 if it succeeded. A second call for
 * the same order reports a duplicate.
 */
static int enqueue_order(postroom_box *box, const char *order)
{
	char payload[100];
	int status;

	snprintf(payload, sizeof(payload), "{\"order\": \"%s\"}", order);
	status = postroom_enqueue(box,
				  POSTROOM_MESSAGE(.topic = "orders.created", .key = order,
						   .idempotency_key = order, .payload = payload),
				  NULL);
	if (status < 0)
		fprintf(stderr, "dispatch: %s\n", postroom_errmsg(box));
	return status < 0;
}

static int run_sqlite(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	fprintf(stderr, "dispatch: %s: %s\n", sql, sqlite3_errmsg(db));
	return 1;
}

static int place_on_sqlite(const char *path)
{
	postroom_box *box;
	char sql[200];
	sqlite3 *db;
	int failed;

	sqlite3_open(path, &db);
	sqlite3_busy_timeout(db, 10000);
	box = run_sqlite(db, MAKE_ORDERS) ? NULL : postroom_box_sqlite(db);
	failed = !box;
	for (size_t i = 0; !failed && i < sizeof(orders) / sizeof(orders[0]); i++) {
		sqlite3_snprintf(sizeof(sql), sql, "INSERT OR IGNORE INTO orders VALUES (%Q)",
				 orders[i]);
		failed = run_sqlite(db, "BEGIN IMMEDIATE") || run_sqlite(db, sql) ||
			 enqueue_order(box, orders[i]) || run_sqlite(db, "COMMIT");
	}
	postroom_box_free(box);
	sqlite3_close(db); /* rolls back what was not committed */
	return failed;
}

static int run_libpq(PGconn *conn, const char *sql)
{
	PGresult *result = PQexec(conn, sql);
	int failed = PQresultStatus(result) != PGRES_COMMAND_OK;

	PQclear(result);
	if (failed)
		fprintf(stderr, "dispatch: %s: %s", sql, PQerrorMessage(conn));
	return failed;
}

static int place_on_postgres(const char *url)
{
	PGconn *conn = PQconnectdb(url);
	postroom_box *box = postroom_box_libpq(conn);
	char sql[200];
	int failed = !box || run_libpq(conn, "SET client_min_messages = warning") ||
		     run_libpq(conn, MAKE_ORDERS);

	for (size_t i = 0; !failed && i < sizeof(orders) / sizeof(orders[0]); i++) {
		snprintf(sql, sizeof(sql),
			 "INSERT INTO orders VALUES ('%s') ON CONFLICT DO NOTHING", orders[i]);
		failed = run_libpq(conn, "BEGIN") || run_libpq(conn, sql) ||
			 enqueue_order(box, orders[i]) || run_libpq(conn, "COMMIT");
	}
	postroom_box_free(box);
	PQfinish(conn);
	return failed;
}

/*
 * Called by each worker in its own thread. Here a printed message counts as delivered. A real
 * callback sends it and waits for the answer, for at most postroom_flight_left_ms().
 */
static void publish(void *context, postroom_delivery *const *items, size_t count,
		    postroom_flight *flight)
{
	FILE *out = context;

	for (size_t i = 0; i < count && (i == 0 || postroom_flight_may_begin(flight)); i++) {
		fprintf(out, "%s %s %s\n", postroom_delivery_topic(items[i]),
			postroom_delivery_key(items[i]), postroom_delivery_payload(items[i], NULL));
		if (fflush(out) == 0)
			postroom_delivery_judge(items[i], POSTROOM_DELIVERED, NULL);
		else
			postroom_delivery_judge(items[i], POSTROOM_FAILED,
						"cannot write to standard output");
	}
}

static void log_event(void *context, postroom_log_level level, const char *event,
		      const char *fields)
{
	(void)level;
	fprintf(context, "%s %s\n", event, fields);
}

static postroom_relay *relay; /* a signal handler gets no context */

static void stop(int number)
{
	(void)number;
	postroom_relay_stop(relay);
}

static void on_signals(void (*handler)(int))
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int main(int argc, char **argv)
{
	const char *url = argc > 1 ? argv[1] : "shop.db";
	int failed;

	failed = postroom_relay_open(POSTROOM_RELAY(.url = url, .publish = publish,
						    .context = stdout, .log = log_event,
						    .log_context = stderr,
						    .log_level = POSTROOM_LOG_WARN),
				     &relay) < 0;
	if (!failed) {
		on_signals(stop);
		if (strncmp(url, "postgres", 8) == 0)
			failed = place_on_postgres(url);
		else
			failed = place_on_sqlite(strncmp(url, "sqlite:", 7) ? url : url + 7);
		failed = failed || postroom_relay_run(relay) < 0;
		on_signals(SIG_DFL); /* the handler must not meet a relay that is closed */
	}
	if (*postroom_relay_errmsg(relay))
		fprintf(stderr, "dispatch: %s\n", postroom_relay_errmsg(relay));
	postroom_relay_close(relay);
	return failed;
}
