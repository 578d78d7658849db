/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The yardstick on PostgreSQL: the smallest libpq loops that make the same
 * durable writes as Postroom on the same tables, with nothing around them: no
 * checks of their own, no routing, no verdicts, no errors but "it did not work".
 *
 *	bare_pgsql insert URL COUNT BATCH SIZE CLIENTS [KEYS]	INSERTs, BATCH of them a commit
 *	bare_pgsql plain URL COUNT BATCH SIZE CLIENTS		the same into the table bare_plain
 *	bare_pgsql enqueue URL COUNT BATCH SIZE CLIENTS		the same through postroom_enqueue()
 *	bare_pgsql drain URL COUNT BATCH WORKERS		claim and settle all that has no key
 *	bare_pgsql seeds URL COUNT BATCH WORKERS SIZE		the naive layout, in a table of its own
 *	bare_pgsql listen URL COUNT BATCH			a loop that is woken; one line per message
 *
 * All but the last print the seconds taken and the bytes of WAL a message. With
 * KEYS every message has one of so many keys, at random. The tables come from
  * `postroom migrate`, and must be in the search_path.
 */
#include "bare.h"

#include <endian.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLEEP_MS 1000

/* $1 payload, $2 key */
#define INSERT(table)                                                                              \
	"INSERT INTO " table " (namespace, topic, payload, content_type, headers, key) "           \
	"VALUES ('default', 'bench.orders', $1, 'application/json', '{}', $2)"
#define ENQUEUE "SELECT id, duplicate FROM postroom_enqueue('bench.orders', $1, key => $2)"

#define NOW "(SELECT at FROM now)"

/*
 * The store's own statements, but for where the reading starts. $1 limit,
 * $2 worker, $3 and $4 where to start, $5 to $7 scope, $8 bytes, $9 attempts
 */
#define CLAIM                                                                                      \
	"WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at), "                              \
	"chosen AS MATERIALIZED (SELECT ctid, "                                                    \
	"pg_column_size(payload) + coalesce(pg_column_size(body), 0) AS bytes "                    \
	"FROM postroom_outbox WHERE status = 'pending' AND state = 'ready' AND key IS NULL "             \
	"AND next_attempt_at <= " NOW                                                              \
	" AND (next_attempt_at, seq) >= ($3::timestamptz, $4::bigint) "                            \
	"AND ($5::text IS NULL OR namespace = $5) AND ($6::text IS NULL OR topic LIKE $6) "        \
	"AND ($7::uuid IS NULL OR tenant_id = $7) "                                                \
	"ORDER BY next_attempt_at, seq LIMIT $1::int FOR UPDATE SKIP LOCKED), "                    \
	"fitting AS (SELECT ctid FROM (SELECT ctid, bytes, "                                       \
	"sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) AS total FROM chosen) AS summed "              \
	"WHERE total <= $8::bigint OR total = bytes) "                                             \
	"UPDATE postroom_outbox SET "                                                              \
	"status = CASE WHEN attempts < $9::int THEN 'processing' ELSE 'dead' END, "                \
	"locked_by = CASE WHEN attempts < $9::int THEN $2::uuid END, "                             \
	"locked_until = CASE WHEN attempts < $9::int THEN " NOW " + interval '30 s' END, "         \
	"last_attempt_at = CASE WHEN attempts < $9::int THEN " NOW " ELSE last_attempt_at END, "   \
	"attempts = attempts + (attempts < $9::int)::int, claims = claims + 1, state = 'scheduled', "        \
	"updated_at = " NOW " WHERE ctid = ANY (ARRAY(SELECT ctid FROM fitting)) "                 \
	"RETURNING " COLUMNS

/* $1 ids, $2 fencing tokens, $3 worker, $4 dispositions, $5 reasons, $6 delays */
#define SETTLE                                                                                     \
	"WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at) "                               \
	"UPDATE postroom_outbox AS t SET "                                                         \
	"status = (ARRAY['pending', 'delivered', 'pending', 'dead'])[v.disposition + 1], "         \
	"attempts = CASE v.disposition WHEN 0 THEN greatest(attempts - 1, 0) ELSE attempts END, "  \
	"next_attempt_at = CASE v.disposition WHEN 2 "                                             \
	"THEN " NOW " + v.delay * interval '1 millisecond' ELSE next_attempt_at END, "             \
	"last_error = CASE v.disposition WHEN 1 THEN NULL ELSE v.reason END, "                     \
	"delivered_at = CASE v.disposition WHEN 1 THEN " NOW " ELSE delivered_at END, "            \
	"locked_by = NULL, locked_until = NULL, updated_at = " NOW " "                             \
	"FROM unnest($1::uuid[], $2::bigint[], $4::int[], $5::text[], $6::bigint[]) "              \
	"WITH ORDINALITY AS v(id, fence, disposition, reason, delay, n) "                          \
	"WHERE t.id = ANY (ARRAY[v.id]) AND CASE WHEN t.claims = v.fence "                         \
	"THEN t.status = 'processing' AND t.locked_by = $3::uuid END RETURNING v.n"

#define SEEDS_TABLE                                                                                \
	"DROP TABLE IF EXISTS bare_seeds; CREATE TABLE bare_seeds "                                \
	"(LIKE postroom_outbox INCLUDING DEFAULTS INCLUDING IDENTITY, PRIMARY KEY (id)); "         \
	"ALTER TABLE bare_seeds DROP COLUMN state; "                                               \
	"CREATE UNIQUE INDEX ON bare_seeds (namespace, topic, dedupe_key) "                        \
	"WHERE dedupe_key IS NOT NULL; "                                                           \
	"CREATE INDEX ON bare_seeds (status, next_attempt_at); "                                   \
	"CREATE INDEX ON bare_seeds (locked_until)"
#define SEEDS_FILL                                                                                 \
	"INSERT INTO bare_seeds (topic, payload) SELECT 'bench.orders', "                          \
	"jsonb_build_object('text', repeat('x', %lld)) FROM generate_series(1, %lld)"
/* They come with the same parameters, and have no use for most. */
#define UNUSED_BY_SEEDS                                                                            \
	"AND ($3::timestamptz, $4::bigint, $5::text, $6::text, $7::uuid, $8::bigint, $9::int) "    \
	"IS DISTINCT FROM NULL "
#define SEEDS_CLAIM                                                                                \
	"WITH chosen AS MATERIALIZED (SELECT id FROM bare_seeds "                                  \
	"WHERE ((status = 'pending' AND next_attempt_at <= now()) "                                \
	"OR (status = 'processing' AND locked_until < now())) AND attempts < 10 "                  \
	"ORDER BY created_at, id LIMIT $1::int FOR UPDATE SKIP LOCKED) "                           \
	"UPDATE bare_seeds AS t SET status = 'processing', attempts = attempts + 1, "              \
	"claims = claims + 1, locked_by = $2::uuid, locked_until = now() + interval '30 s', "      \
	"last_attempt_at = now(), updated_at = now() FROM chosen WHERE t.id = chosen.id "          \
	"" UNUSED_BY_SEEDS "RETURNING t." COLUMNS
#define SEEDS_SETTLE                                                                               \
	"UPDATE bare_seeds SET status = 'delivered', last_error = NULL, locked_by = NULL, "        \
	"locked_until = NULL, delivered_at = now(), updated_at = now() "                           \
	"WHERE id = ANY ($1::uuid[]) AND locked_by = $3::uuid AND "                                \
	"($2::bigint[], $4::int[], $5::text[], $6::bigint[]) IS DISTINCT FROM NULL "               \
	"RETURNING id"

static size_t size;

static const char *insert_sql;
static int64_t keys;

static void *insert(void *thread)
{
	PGconn *conn = connect_to();
	int64_t share = count / clients + ((intptr_t)thread < count % clients);
	char *payload = make_payload(0, size), key[32];
	const char *values[] = { payload, keys > 0 ? key : NULL };
	unsigned seed = (unsigned)(intptr_t)thread;

	prepare(conn, "insert", insert_sql);
	PQenterPipelineMode(conn);
	while (share > 0) {
		int64_t some = share < batch_size ? share : batch_size;
		for (int64_t i = 0; i < some; i++) {
			if (keys > 0)
				snprintf(key, sizeof(key), "key-%lld",
					 rand_r(&seed) % (long long)keys);
			must(PQsendQueryPrepared(conn, "insert", 2, values, NULL, NULL, 1),
			     "insert", conn);
		}
		PQpipelineSync(conn);
		for (int64_t i = 0; i <= some; i++)
			PQclear(take_result(conn));
		share -= some;
		atomic_fetch_add(&done, some);
	}
	free(payload);
	PQfinish(conn);
	return NULL;
}

enum { IDS, FENCES, FATES, REASONS, DELAYS, ARRAYS };
static const uint32_t array_types[ARRAYS] = { 2950, 20, 23, 25, 20 };

struct worker {
	PGconn *conn;
	char id[40];
	char limit[24];
	struct array arrays[ARRAYS];
	int count; /* claimed and not yet settled */
	int64_t mark_due, mark_seq;
	int64_t head_at; /* read from the beginning again after this */
	bool from_mark;
	struct copies copies;
};

static bool two_commits;
static const char *settings = SETTINGS, *claim_sql = CLAIM, *settle_sql = SETTLE;

static void open_worker(struct worker *worker, int number)
{
	worker->conn = connect_to();
	run(worker->conn, settings);
	prepare(worker->conn, "claim", claim_sql);
	prepare(worker->conn, "settle", settle_sql);
	make_worker_id(worker->id, number);
	snprintf(worker->limit, sizeof(worker->limit), "%lld", (long long)batch_size);
	for (int i = 0; i < ARRAYS; i++) {
		worker->arrays[i].type = array_types[i];
		worker->arrays[i].data = malloc((size_t)batch_size * 20 + 20);
		must(worker->arrays[i].data != NULL, "no memory", NULL);
	}
}

static void close_worker(struct worker *worker)
{
	PQfinish(worker->conn);
	for (int i = 0; i < ARRAYS; i++)
		free(worker->arrays[i].data);
	free(worker->copies.data);
}

/*
 * The scan starts behind the last row claimed, where no dead rows lie; and from
 * the beginning again when ten times the time has passed that this takes, or
 * when too little was found: rows commit late.
 */
static void send_claim(struct worker *worker)
{
	static const int binary[9] = { 0, 0, 1, 1 };
	static const int lengths[9] = { 0, 0, 8, 8 };
	uint64_t due = (uint64_t)INT64_MIN, seq = 0; /* INT64_MIN is -infinity */

	worker->from_mark = worker->head_at > now_us(CLOCK_MONOTONIC);
	if (worker->from_mark) {
		due = (uint64_t)worker->mark_due;
		seq = (uint64_t)worker->mark_seq;
	}
	due = htobe64(due);
	seq = htobe64(seq);
	const char *values[] = { worker->limit, worker->id, (char *)&due, (char *)&seq, NULL,
				 NULL,		NULL,	    "8388608",	  "10" };
	must(PQsendQueryPrepared(worker->conn, "claim", 9, values, lengths, binary, 1), "claim",
	     worker->conn);
}

static void send_settle(struct worker *worker)
{
	static const int binary[] = { 1, 1, 0, 1, 1, 1 };
	const struct array *arrays = worker->arrays;
	const char *values[] = { arrays[IDS].data,   arrays[FENCES].data,  worker->id,
				 arrays[FATES].data, arrays[REASONS].data, arrays[DELAYS].data };
	int lengths[] = {
		(int)arrays[IDS].len,	(int)arrays[FENCES].len,  0,
		(int)arrays[FATES].len, (int)arrays[REASONS].len, (int)arrays[DELAYS].len
	};
	must(PQsendQueryPrepared(worker->conn, "settle", 6, values, lengths, binary, 1), "settle",
	     worker->conn);
}

/* Copies the columns that a sink would need; the positions are those of the last row. */
static void take_rows(struct worker *worker, const PGresult *result, FILE *out)
{
	for (int i = 0; i < ARRAYS; i++)
		begin_array(&worker->arrays[i], (uint32_t)PQntuples(result));
	for (int row = 0; row < PQntuples(result); row++) {
		int64_t due = read_number(result, row, COL_DUE);
		int64_t seq = read_number(result, row, COL_SEQ);
		put_item(&worker->arrays[IDS], result, row, COL_ID);
		put_item(&worker->arrays[FENCES], result, row, COL_FENCE);
		put_number(&worker->arrays[FATES], 4);
		put_number(&worker->arrays[FATES], 1);
		put_number(&worker->arrays[REASONS], UINT32_MAX);
		put_number(&worker->arrays[DELAYS], UINT32_MAX);
		if (row == 0 || due > worker->mark_due ||
		    (due == worker->mark_due && seq > worker->mark_seq)) {
			worker->mark_due = due;
			worker->mark_seq = seq;
		}
		/* jsonb's binary form is a version number and the text. */
		if (out)
			fprintf(out, "%s\n", PQgetvalue(result, row, COL_PAYLOAD) + 1);
	}
	if (out)
		fflush(out);
	copy_texts(&worker->copies, result);
	worker->count = PQntuples(result);
}

/* Settles one batch and claims the next: one round trip, one commit (unless two are the point). */
static void run_pass(struct worker *worker, FILE *out)
{
	int64_t begun = now_us(CLOCK_MONOTONIC);
	int settling = worker->count;
	PGresult *result;

	if (settling > 0)
		send_settle(worker);
	if (settling > 0 && two_commits)
		PQpipelineSync(worker->conn);
	send_claim(worker);
	PQpipelineSync(worker->conn);
	if (settling > 0) {
		result = take_result(worker->conn);
		must(PQntuples(result) == settling, "a lease was lost", NULL);
		PQclear(result);
		if (two_commits)
			PQclear(take_result(worker->conn));
		atomic_fetch_add(&done, settling);
	}
	result = take_result(worker->conn);
	PQclear(take_result(worker->conn));
	take_rows(worker, result, out);
	PQclear(result);
	if (!worker->from_mark)
		worker->head_at = now_us(CLOCK_MONOTONIC) * 11 - begun * 10;
	if (worker->count < batch_size)
		worker->head_at = 0;
}

static void *drain(void *thread)
{
	struct worker worker = { 0 };
	bool again;

	open_worker(&worker, (int)(intptr_t)thread);
	PQenterPipelineMode(worker.conn);
	do {
		again = worker.count > 0;
		run_pass(&worker, NULL);
	} while (worker.count > 0 || again);
	close_worker(&worker);
	return NULL;
}

static void fill_seeds(void)
{
	PGconn *conn = connect_to();
	char sql[sizeof(SEEDS_FILL) + 40];

	snprintf(sql, sizeof(sql), SEEDS_FILL, (long long)size - 11, (long long)count);
	run(conn, SEEDS_TABLE);
	run(conn, sql);
	PQfinish(conn);
}

/* Sleeps until a producer notifies. Polls soon afterwards for transactions that commit late. */
static void wait_for_notification(PGconn *conn, int ms)
{
	struct pollfd poll_in = { .fd = PQsocket(conn), .events = POLLIN };
	PGnotify *notify;

	PQconsumeInput(conn);
	if (!(notify = PQnotifies(conn))) {
		poll(&poll_in, 1, ms);
		PQconsumeInput(conn);
		notify = PQnotifies(conn);
	}
	for (; notify; notify = PQnotifies(conn))
		PQfreemem(notify);
}

/*
  * Sets the notify deadline. The value of a sequence is visible at once, without
  * waiting for the disk.
 */
#define DEADLINE                                                                                   \
	"SELECT set_config('synchronous_commit', 'off', true), setval('postroom_notify_until', "   \
	"(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::bigint)"

static void set_notify_deadline(PGconn *conn, bool asleep)
{
	const char *ms = asleep ? "2000" : "0";
	must(PQsendQueryPrepared(conn, "deadline", 1, &ms, NULL, NULL, 0), "deadline", conn);
	PQpipelineSync(conn);
	PQclear(take_result(conn));
	PQclear(take_result(conn));
}

static void listen_and_drain(void)
{
	struct worker worker = { 0 };
	int64_t announced = 0;
	char listen[64];
	int ms = 1;

	open_worker(&worker, 0);
	snprintf(listen, sizeof(listen), "LISTEN postroom_%lld",
		 (long long)ask(worker.conn, "SELECT 'postroom_outbox'::regclass::oid"));
	run(worker.conn, listen);
	prepare(worker.conn, "deadline", DEADLINE);
	PQenterPipelineMode(worker.conn);
	while (atomic_load(&done) < count) {
		run_pass(&worker, stdout);
		if (worker.count > 0) {
			if (announced)
				set_notify_deadline(worker.conn, false);
			announced = 0;
			ms = 1;
		} else if (now_us(CLOCK_MONOTONIC) - announced > SLEEP_MS * 1000) {
			set_notify_deadline(worker.conn, true);
			announced = now_us(CLOCK_MONOTONIC);
		} else {
			wait_for_notification(worker.conn, ms);
			ms = 2 * ms < SLEEP_MS ? 2 * ms : SLEEP_MS;
		}
	}
	close_worker(&worker);
}

static bool choose_insert(const char *mode)
{
	if (strcmp(mode, "insert") == 0)
		insert_sql = INSERT("postroom_outbox");
	else if (strcmp(mode, "plain") == 0)
		insert_sql = INSERT("bare_plain");
	else if (strcmp(mode, "enqueue") == 0)
		insert_sql = ENQUEUE;
	return insert_sql != NULL;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	int64_t numbers[5] = { 0 };

	url = argv[argc > 2 ? 2 : 0];
	for (int i = 3; i < argc && i < 8; i++)
		numbers[i - 3] = atoll(argv[i]);
	count = numbers[0];
	batch_size = numbers[1];
	clients = numbers[2];
	size = (size_t)numbers[3];
	if (choose_insert(mode) && (argc == 7 || argc == 8)) {
		size = (size_t)numbers[2];
		clients = numbers[3];
		keys = numbers[4];
		measure(insert);
	} else if (strcmp(mode, "drain") == 0 && argc == 6) {
		measure(drain);
	} else if (strcmp(mode, "seeds") == 0 && argc == 7) {
		settings = "";
		two_commits = true;
		claim_sql = SEEDS_CLAIM;
		settle_sql = SEEDS_SETTLE;
		fill_seeds();
		measure(drain);
	} else if (strcmp(mode, "listen") == 0 && argc == 5) {
		clients = 1;
		listen_and_drain();
	} else {
		fprintf(stderr, "usage: see the head of bare_pgsql.c\n");
		return 2;
	}
	return 0;
}
