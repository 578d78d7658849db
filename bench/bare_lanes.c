/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The yardstick for lane leases: the smallest loop that leases a lane, records
 * what is in flight, reads it in order, and lets it go again, on the same tables
 * and with as durable an end as Postroom. Every worker has lanes of its own and
 * stays with one until that is empty; settling a batch and claiming the next share
 * a round trip and a commit.
 *
 *	bare_lanes URL COUNT BATCH WORKERS [keep]
 *
 * Prints the seconds taken and the bytes of WAL a message. keep: what is delivered
 * goes to the history. The tables come from `postroom migrate` and `postroom lease
  * lane`, and must be in the search_path.
 */
#include "bare.h"

#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES 64
#define LANE "((CASE WHEN key IS NULL THEN seq ELSE hashtext(key) END & 63) + 1)"

/*
  * $1 lane, $2 limit, $3 worker, $4 the epoch that the worker knows: if another worker had
  * the lane in between, the epoch has changed, and nothing is claimed.
 */
#define CLAIM                                                                                      \
	"WITH met AS MATERIALIZED (SELECT " COLUMNS ", ctid FROM postroom_outbox "                 \
	"WHERE " LANE " = $1::smallint AND status = 'pending' AND state = 'ready' "                      \
	"ORDER BY seq LIMIT $2::int), "                                                            \
	"leased AS (UPDATE postroom_lanes SET locked_by = $3::uuid, "                              \
	"locked_until = clock_timestamp() + interval '30 s', epoch = epoch + 1, "                  \
	"in_flight = ARRAY(SELECT seq FROM met) WHERE lane = $1::smallint "                        \
	"AND locked_by IS NULL AND epoch = $4::bigint AND EXISTS (SELECT FROM met) "               \
	"RETURNING epoch) SELECT met.*, epoch FROM met CROSS JOIN leased"
enum { COL_PLACE = COL_COUNT, COL_EPOCH };

/* $1 lane, $2 worker, $3 epoch, $4 where what was delivered is: no statistics can spoil that */
#define LET_GO                                                                                     \
	"WITH mine AS (UPDATE postroom_lanes SET locked_by = NULL, locked_until = NULL, "          \
	"in_flight = NULL WHERE lane = $1::smallint AND locked_by = $2::uuid "                     \
	"AND epoch = $3::bigint RETURNING lane)"
#define DELETE                                                                                     \
	"DELETE FROM postroom_outbox WHERE ctid = ANY ($4::tid[]) AND EXISTS (SELECT FROM mine) "  \
	"AND status = 'pending' AND state = 'ready'"
#define SETTLE LET_GO " " DELETE
#define HISTORY                                                                                    \
	"id, seq, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, "         \
	"body, content_type, headers, attempts, claims, next_attempt_at"
#define SETTLE_KEEP                                                                                \
	LET_GO ", gone AS (" DELETE " RETURNING " HISTORY ", created_at) "                         \
	       "INSERT INTO postroom_history (" HISTORY                                            \
	       ", created_at, last_attempt_at, delivered_at) "                                     \
	       "SELECT " HISTORY ", created_at, clock_timestamp(), clock_timestamp() FROM gone"

struct worker {
	PGconn *conn;
	char id[40];
	char limit[24];
	int lane;
	int64_t epochs[LANES + 1];
	struct array places;
	int count; /* claimed and not yet settled */
	struct copies copies;
};

static const char *settle_sql = SETTLE;

static void open_worker(struct worker *worker, int number)
{
	worker->conn = connect_to();
	run(worker->conn, SETTINGS);
	PGresult *result = PQexec(worker->conn, "SELECT epoch FROM postroom_lanes ORDER BY lane");
	must(PQntuples(result) == LANES, "postroom_lanes", worker->conn);
	for (int lane = 1; lane <= LANES; lane++)
		worker->epochs[lane] = atoll(PQgetvalue(result, lane - 1, 0));
	PQclear(result);
	prepare(worker->conn, "claim", CLAIM);
	prepare(worker->conn, "settle", settle_sql);
	make_worker_id(worker->id, number);
	snprintf(worker->limit, sizeof(worker->limit), "%lld", (long long)batch_size);
	worker->places.type = 27;
	worker->places.data = malloc((size_t)batch_size * 12 + 20);
	must(worker->places.data != NULL, "no memory", NULL);
	PQenterPipelineMode(worker->conn);
}

static void send_settle(struct worker *worker)
{
	static const int binary[] = { 0, 0, 0, 1 };
	char lane[24], epoch[24];
	const char *values[] = { lane, worker->id, epoch, worker->places.data };
	int lengths[] = { 0, 0, 0, (int)worker->places.len };

	snprintf(lane, sizeof(lane), "%d", worker->lane);
	snprintf(epoch, sizeof(epoch), "%lld", (long long)worker->epochs[worker->lane]);
	must(PQsendQueryPrepared(worker->conn, "settle", 4, values, lengths, binary, 1), "settle",
	     worker->conn);
}

static void send_claim(struct worker *worker)
{
	char lane[24], epoch[24];
	const char *values[] = { lane, worker->limit, worker->id, epoch };

	snprintf(lane, sizeof(lane), "%d", worker->lane);
	snprintf(epoch, sizeof(epoch), "%lld", (long long)worker->epochs[worker->lane]);
	must(PQsendQueryPrepared(worker->conn, "claim", 4, values, NULL, NULL, 1), "claim",
	     worker->conn);
}

static void take_rows(struct worker *worker, const PGresult *result)
{
	worker->count = PQntuples(result);
	begin_array(&worker->places, (uint32_t)worker->count);
	for (int row = 0; row < worker->count; row++)
		put_item(&worker->places, result, row, COL_PLACE);
	if (worker->count > 0)
		worker->epochs[worker->lane] = read_number(result, 0, COL_EPOCH);
	copy_texts(&worker->copies, result);
}

/* Settles one batch and claims the next, of that lane. */
static void run_pass(struct worker *worker, int lane)
{
	int settling = worker->count;
	PGresult *result;

	if (settling > 0)
		send_settle(worker);
	worker->lane = lane;
	send_claim(worker);
	PQpipelineSync(worker->conn);
	if (settling > 0) {
		result = take_result(worker->conn);
		must(atoi(PQcmdTuples(result)) == settling, "a lease was lost", NULL);
		PQclear(result);
		atomic_fetch_add(&done, settling);
	}
	result = take_result(worker->conn);
	PQclear(take_result(worker->conn));
	take_rows(worker, result);
	PQclear(result);
}

static void *drain(void *thread)
{
	struct worker worker = { 0 };
	int number = (int)(intptr_t)thread;

	open_worker(&worker, number);
	for (int lane = 1 + number; lane <= LANES; lane += (int)clients) {
		do
			run_pass(&worker, lane);
		while (worker.count == batch_size);
	}
	if (worker.count > 0)
		run_pass(&worker, worker.lane);
	PQfinish(worker.conn);
	free(worker.places.data);
	free(worker.copies.data);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 5 && !(argc == 6 && strcmp(argv[5], "keep") == 0)) {
		fprintf(stderr, "usage: see the head of bare_lanes.c\n");
		return 2;
	}
	url = argv[1];
	count = atoll(argv[2]);
	batch_size = atoll(argv[3]);
	clients = atoll(argv[4]);
	if (argc == 6)
		settle_sql = SETTLE_KEEP;
	measure(drain);
	return 0;
}
