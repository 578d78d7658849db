/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order URL: writes an order and its message in one transaction, with
 * libpostroom-libpq. The library checks the message before it sends anything,
 * so bad input leaves the transaction usable. It returns a receipt, and reports
 * duplicates.
 *
 *	cc -o order order.c $(pkg-config --cflags --libs postroom-libpq)
 */
#include <postroom/libpq.h>

#include <stdio.h>
#include <string.h>

static int execute(PGconn *db, const char *sql, int count, const char *const *values)
{
	PGresult *result = PQexecParams(db, sql, count, NULL, values, NULL, NULL, 0);
	int failed = PQresultStatus(result) != PGRES_COMMAND_OK;

	if (failed)
		fprintf(stderr, "order: %s: %s", sql, PQerrorMessage(db));
	PQclear(result);
	return failed ? -1 : 0;
}

/* Returns 0 if the transaction should be committed. */
static int place(PGconn *db, postroom_box *box, const char *order, const char *total)
{
	const char *const row[] = { order, "Ada", total };
	char payload[100];
	postroom_receipt receipt;
	int status;

	snprintf(payload, sizeof(payload), "{\"order\": \"%s\", \"total\": %s}", order, total);
	status = postroom_enqueue(box,
				  POSTROOM_MESSAGE(.topic = "orders.created", .key = order,
						   .idempotency_key = order, .payload = payload),
				  &receipt);
	if (status == POSTROOM_DUPLICATE) {
		printf("%s was placed before, with message %s\n", order, receipt.id);
		return 0;
	}
	if (status < 0) {
		fprintf(stderr, "order: %s\n", postroom_errmsg(box));
		return -1;
	}
	if (execute(db, "INSERT INTO orders VALUES ($1, $2, $3)", 3, row) < 0)
		return -1;
	if (strcmp(total, "0") == 0) {
		printf("order %s costs nothing: rolled back, and no message about it\n", order);
		return -1;
	}
	printf("%s is placed, with message %s\n", order, receipt.id);
	return 0;
}

/* Returns 0 if the transaction was committed. */
static int place_order(PGconn *db, postroom_box *box, const char *order, const char *total)
{
	if (execute(db, "BEGIN", 0, NULL) < 0)
		return -1;
	if (place(db, box, order, total) == 0)
		return execute(db, "COMMIT", 0, NULL);
	execute(db, "ROLLBACK", 0, NULL);
	return -1;
}

int main(int argc, char **argv)
{
	int failed = 1;
	postroom_box *box;
	PGconn *db;

	if (argc != 2) {
		fprintf(stderr, "usage: order URL\n");
		return 2;
	}
	db = PQconnectdb(argv[1]);
	box = postroom_box_libpq(db);
	if (PQstatus(db) != CONNECTION_OK)
		fprintf(stderr, "order: %s", PQerrorMessage(db));
	else if (box &&
		 execute(db,
			 "CREATE TABLE IF NOT EXISTS orders"
			 " (id text PRIMARY KEY, customer text, total integer)",
			 0, NULL) == 0 &&
		 place_order(db, box, "c-1", "4200") == 0 &&
		 place_order(db, box, "c-1", "4200") == 0 && place_order(db, box, "c-2", "0") < 0)
		failed = 0;
	postroom_box_free(box);
	PQfinish(db);
	return failed;
}
