/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The yardstick: the smallest loop that makes the same durable writes as
 * Postroom on the same tables, with nothing around it: no checks of its own,
 * no routing, no verdicts, no errors but "it did not work".
 *
 *	bare_sqlite insert FILE COUNT BATCH SIZE
 *	bare_sqlite drain FILE COUNT BATCH
 *	bare_sqlite delete FILE COUNT BATCH
 *
 * drain leases each row and marks it delivered, in one transaction with the next
 * claim. delete is step a lease for many could do at best: it reads, and deletes
 * step it has read. The tables come from `postroom migrate`.
 */
#include <sqlite3.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORKER "0b5e55ed-0000-4000-8000-000000000001"
#define LEASE_US 30000000
#define FIRST_TEXT 4 /* of COLUMNS: numbers come first, texts and the body from here on */
#define LAST_TEXT 14
/* As the store has them: the loop around the statements is compared, not the settings. */
#define SETTINGS                                                                                   \
	"PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4000; "       \
	"PRAGMA wal_autocheckpoint = 4000"
#define COLUMNS                                                                                    \
	"seq, claims, attempts, created_at, id, namespace, topic, key, tenant_id, "                \
	"dedupe_key, correlation_id, content_type, headers, payload, body"

static sqlite3 *db;
static sqlite3_stmt *begin, *commit;

static void must(int ok, const char *step)
{
	if (ok)
		return;
	fprintf(stderr, "bare_sqlite: %s: %s\n", step, sqlite3_errmsg(db));
	exit(1);
}

static sqlite3_stmt *prepare(const char *sql)
{
	sqlite3_stmt *statement;
	must(sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL) ==
		     SQLITE_OK,
	     sql);
	return statement;
}

static void run(sqlite3_stmt *statement)
{
	must(sqlite3_step(statement) == SQLITE_DONE, sqlite3_sql(statement));
	sqlite3_reset(statement);
}

static int64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void insert(int64_t count, int64_t batch, size_t size)
{
	static const char head[] = "{\"text\":\"", tail[] = "\"}";
	sqlite3_stmt *statement = prepare(
		"INSERT INTO postroom_outbox (id, namespace, topic, payload, content_type, "
		"headers, "
		"next_attempt_at, created_at, updated_at) "
		"VALUES (?1, 'default', 'bench.orders', ?2, 'application/json', '{}', ?3, ?3, ?3)");
	char *payload = malloc(size + 1);
	must(payload && size >= sizeof(head) + sizeof(tail), "SIZE is too small");
	memset(payload, 'x', size);
	memcpy(payload, head, sizeof(head) - 1);
	memcpy(payload + size - (sizeof(tail) - 1), tail, sizeof(tail));

	for (int64_t i = 0; i < count;) {
		int64_t now = now_us();
		run(begin);
		for (int64_t end = i + batch < count ? i + batch : count; i < end; i++) {
			char id[40];
			int64_t ms = now / 1000;
			snprintf(id, sizeof(id), "%08x-%04x-7%03x-8000-%012llx",
				 (unsigned)(ms >> 16), (unsigned)(ms & 0xffff),
				 (unsigned)(i & 0xfff), (unsigned long long)i & 0xffffffffffff);
			sqlite3_bind_text(statement, 1, id, 36, SQLITE_STATIC);
			sqlite3_bind_text(statement, 2, payload, (int)size, SQLITE_STATIC);
			sqlite3_bind_int64(statement, 3, now);
			run(statement);
		}
		run(commit);
	}
	sqlite3_finalize(statement);
	free(payload);
}

struct claimed {
	char *seqs; /* JSON array: one statement takes them all */
	char *memory;
	size_t seqs_len, memory_len, memory_size;
	int64_t fencing_token;
	int count;
};

/* Copies step a sink would need of the row and notes its seq. */
static void take(struct claimed *batch, sqlite3_stmt *row)
{
	batch->seqs_len += (size_t)sprintf(batch->seqs + batch->seqs_len, ",%lld",
					   sqlite3_column_int64(row, 0));
	batch->fencing_token = sqlite3_column_int64(row, 1) + 1;
	for (int i = FIRST_TEXT; i <= LAST_TEXT; i++) {
		const void *text = sqlite3_column_blob(row, i);
		size_t len = (size_t)sqlite3_column_bytes(row, i);
		if (!text)
			continue;
		if (batch->memory_len + len + 1 > batch->memory_size) {
			batch->memory_size = 2 * (batch->memory_len + len + 1);
			batch->memory = realloc(batch->memory, batch->memory_size);
			must(batch->memory != NULL, "no memory");
		}
		memcpy(batch->memory + batch->memory_len, text, len);
		batch->memory[batch->memory_len + len] = 0;
		batch->memory_len += len + 1;
	}
	batch->count++;
}

/* In a transaction that the caller begins and commits. */
static void read_due(struct claimed *batch, sqlite3_stmt *due, int64_t now, int64_t limit)
{
	int status;
	batch->seqs_len = batch->memory_len = 0;
	batch->count = 0;

	sqlite3_bind_int64(due, 1, now);
	sqlite3_bind_int64(due, 2, limit);
	while ((status = sqlite3_step(due)) == SQLITE_ROW)
		take(batch, due);
	must(status == SQLITE_DONE, "claim");
	sqlite3_reset(due);
	batch->seqs[0] = '[';
	batch->seqs[batch->seqs_len++] = ']';
}

static void claim(struct claimed *batch, sqlite3_stmt *due, sqlite3_stmt *lease, int64_t limit)
{
	int64_t now = now_us();
	read_due(batch, due, now, limit);
	if (batch->count == 0)
		return;
	sqlite3_bind_text(lease, 1, batch->seqs, (int)batch->seqs_len, SQLITE_STATIC);
	sqlite3_bind_int64(lease, 2, now);
	sqlite3_bind_int64(lease, 3, now + LEASE_US);
	run(lease);
}

static void settle(struct claimed *batch, sqlite3_stmt *done)
{
	sqlite3_bind_text(done, 1, batch->seqs, (int)batch->seqs_len, SQLITE_STATIC);
	sqlite3_bind_int64(done, 2, now_us());
	sqlite3_bind_int64(done, 3, batch->fencing_token);
	run(done);
	must(sqlite3_changes(db) == batch->count, "a lease was lost");
}

#define DUE                                                                                        \
	"SELECT " COLUMNS " FROM postroom_outbox INDEXED BY postroom_outbox_ready "                \
	"WHERE status = 'pending' AND (state = 'ready' OR (state = 'new' AND next_attempt_at = "   \
	"created_at)) "                                                                            \
	"AND next_attempt_at <= ?1 ORDER BY seq LIMIT ?2"

static void drain(int64_t count, int64_t batch_size)
{
	/* OR FAIL: without it a statement of many rows keeps a journal of its own. */
	sqlite3_stmt *due = prepare(DUE);
	sqlite3_stmt *lease = prepare("UPDATE OR FAIL postroom_outbox SET status = 'processing', "
				      "attempts = attempts + 1, "
				      "claims = claims + 1, locked_by = '" WORKER
				      "', locked_until = ?3, "
				      "last_attempt_at = ?2, updated_at = ?2 WHERE seq IN (SELECT "
				      "value FROM json_each(?1))");
	sqlite3_stmt *done = prepare(
		"UPDATE OR FAIL postroom_outbox SET status = 'delivered', locked_by = NULL, "
		"locked_until = NULL, last_error = NULL, delivered_at = ?2, updated_at = ?2 "
		"WHERE seq IN (SELECT value FROM json_each(?1)) AND locked_by = '" WORKER "' "
		"AND claims = ?3");
	struct claimed batch = { .seqs = malloc((size_t)batch_size * 21 + 2) };
	must(batch.seqs != NULL, "no memory");

	do {
		run(begin);
		if (batch.count > 0)
			settle(&batch, done);
		count -= batch.count;
		claim(&batch, due, lease, batch_size);
		run(commit);
	} while (batch.count > 0);
	must(count == 0, "drained another number of messages than COUNT");
	sqlite3_finalize(due);
	sqlite3_finalize(lease);
	sqlite3_finalize(done);
	free(batch.seqs);
	free(batch.memory);
}

static void drain_deleting(int64_t count, int64_t batch_size)
{
	sqlite3_stmt *due = prepare(DUE);
	sqlite3_stmt *gone = prepare("DELETE FROM postroom_outbox "
				     "WHERE seq IN (SELECT value FROM json_each(?1))");
	struct claimed batch = { .seqs = malloc((size_t)batch_size * 21 + 2) };
	must(batch.seqs != NULL, "no memory");

	do {
		run(begin);
		if (batch.count > 0) {
			sqlite3_bind_text(gone, 1, batch.seqs, (int)batch.seqs_len, SQLITE_STATIC);
			run(gone);
		}
		count -= batch.count;
		read_due(&batch, due, now_us(), batch_size);
		run(commit);
	} while (batch.count > 0);
	must(count == 0, "drained another number of messages than COUNT");
	sqlite3_finalize(due);
	sqlite3_finalize(gone);
	free(batch.seqs);
	free(batch.memory);
}

int main(int argc, char **argv)
{
	if (argc < 5 || (strcmp(argv[1], "insert") == 0 && argc < 6)) {
		fprintf(stderr, "usage: bare_sqlite insert FILE COUNT BATCH SIZE\n"
				"       bare_sqlite drain|delete FILE COUNT BATCH\n");
		return 2;
	}
	must(sqlite3_open_v2(argv[2], &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
		     SQLITE_OK,
	     argv[2]);
	must(sqlite3_exec(db, SETTINGS, NULL, NULL, NULL) == SQLITE_OK, SETTINGS);
	begin = prepare("BEGIN IMMEDIATE");
	commit = prepare("COMMIT");
	int64_t count = atoll(argv[3]), batch = atoll(argv[4]);
	if (strcmp(argv[1], "insert") == 0)
		insert(count, batch, (size_t)atoll(argv[5]));
	else if (strcmp(argv[1], "delete") == 0)
		drain_deleting(count, batch);
	else
		drain(count, batch);
	sqlite3_finalize(begin);
	sqlite3_finalize(commit);
	must(sqlite3_close(db) == SQLITE_OK, "close");
	return 0;
}
