/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk enqueue as an application does it, through the library and on its own
 * connection, in the same transactions as `bare_sqlite insert`.
 *
 *	enqueue_lib FILE COUNT BATCH SIZE
 */
#include <postroom/sqlite.h>
#include <sqlite3.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The same as bare_sqlite's. */
#define SETTINGS                                                                                   \
	"PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4000; "       \
	"PRAGMA wal_autocheckpoint = 4000"

static sqlite3 *db;

static void must(int ok, const char *step)
{
	if (ok)
		return;
	fprintf(stderr, "enqueue_lib: %s\n", step);
	exit(1);
}

static void run(sqlite3_stmt *statement)
{
	must(sqlite3_step(statement) == SQLITE_DONE, sqlite3_errmsg(db));
	sqlite3_reset(statement);
}

static char *make_payload(size_t size)
{
	static const char head[] = "{\"text\":\"", tail[] = "\"}";
	char *payload = malloc(size + 1);
	must(payload && size >= sizeof(head) + sizeof(tail), "SIZE is too small");
	memset(payload, 'x', size);
	memcpy(payload, head, sizeof(head) - 1);
	memcpy(payload + size - (sizeof(tail) - 1), tail, sizeof(tail));
	return payload;
}

int main(int argc, char **argv)
{
	if (argc < 5) {
		fprintf(stderr, "usage: enqueue_lib FILE COUNT BATCH SIZE\n");
		return 2;
	}
	size_t count = strtoull(argv[2], NULL, 10), batch = strtoull(argv[3], NULL, 10);
	size_t size = strtoull(argv[4], NULL, 10);
	char *payload = make_payload(size);
	postroom_message *messages = calloc(batch, sizeof(*messages));
	postroom_receipt *receipts = calloc(batch, sizeof(*receipts));
	must(messages && receipts, "no memory");

	must(sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
			     SQLITE_OK &&
		     sqlite3_exec(db, SETTINGS, NULL, NULL, NULL) == SQLITE_OK,
	     sqlite3_errmsg(db));
	sqlite3_stmt *begin, *commit;
	must(sqlite3_prepare_v2(db, "BEGIN IMMEDIATE", -1, &begin, NULL) == SQLITE_OK &&
		     sqlite3_prepare_v2(db, "COMMIT", -1, &commit, NULL) == SQLITE_OK,
	     sqlite3_errmsg(db));
	postroom_box *box = postroom_box_sqlite(db);

	for (size_t i = 0; i < batch; i++)
		messages[i] = *POSTROOM_MESSAGE(.topic = "bench.orders", .payload = payload,
						.payload_len = size);
	while (count > 0) {
		size_t now = count < batch ? count : batch;
		run(begin);
		must(postroom_enqueue_many(box, messages, now, receipts) >= 0,
		     postroom_errmsg(box));
		run(commit);
		count -= now;
	}
	postroom_box_free(box);
	sqlite3_finalize(begin);
	sqlite3_finalize(commit);
	must(sqlite3_close(db) == SQLITE_OK, "close");
	free(messages);
	free(receipts);
	free(payload);
	return 0;
}
