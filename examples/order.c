/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order FILE: writes an order and its message in one transaction, with
 * libpostroom-sqlite. The library checks the message, returns a receipt, and
 * reports duplicates.
 *
 *	cc -o order order.c $(pkg-config --cflags --libs postroom-sqlite)
 */
#include <postroom/sqlite.h>

#include <stdio.h>

static int execute(sqlite3 *db, const char *sql)
{
	int code = sqlite3_exec(db, sql, NULL, NULL, NULL);

	if (code != SQLITE_OK)
		fprintf(stderr, "order: %s: %s\n", sql, sqlite3_errmsg(db));
	return code;
}

/* The order is written once, however often the customer clicks. */
static int place_order(sqlite3 *db, postroom_box *box, const char *order, int total)
{
	char payload[100], sql[200];
	postroom_receipt receipt;
	int status;

	snprintf(payload, sizeof(payload), "{\"order\": \"%s\", \"total\": %d}", order, total);
	sqlite3_snprintf(sizeof(sql), sql, "INSERT INTO orders VALUES (%Q, 'Ada', %d)", order,
			 total);

	/* IMMEDIATE: no other program can write between our read and our write. */
	if (execute(db, "BEGIN IMMEDIATE") != SQLITE_OK)
		return -1;
	status = postroom_enqueue(box,
				  POSTROOM_MESSAGE(.topic = "orders.created", .key = order,
						   .idempotency_key = order, .payload = payload),
				  &receipt);
	if (status == POSTROOM_DUPLICATE) {
		printf("%s was placed before, with message %s\n", order, receipt.id);
		return execute(db, "ROLLBACK");
	}
	if (status < 0) {
		fprintf(stderr, "order: %s\n", postroom_errmsg(box));
		execute(db, "ROLLBACK");
		return -1;
	}
	if (execute(db, sql) != SQLITE_OK) {
		execute(db, "ROLLBACK");
		return -1;
	}
	printf("%s is placed, with message %s\n", order, receipt.id);
	return execute(db, "COMMIT");
}

int main(int argc, char **argv)
{
	int failed = 1;
	postroom_box *box;
	sqlite3 *db;

	if (argc != 2 || sqlite3_open(argv[1], &db) != SQLITE_OK) {
		fprintf(stderr, "usage: order FILE\n");
		return 2;
	}
	sqlite3_busy_timeout(db, 10000);
	execute(db, "CREATE TABLE IF NOT EXISTS orders"
		    " (id TEXT PRIMARY KEY, customer TEXT, total INTEGER)");

	box = postroom_box_sqlite(db);
	if (box && place_order(db, box, "c-1", 4200) == 0 && place_order(db, box, "c-1", 4200) == 0)
		failed = 0;
	postroom_box_free(box);
	sqlite3_close(db);
	return failed;
}
