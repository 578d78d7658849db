/* SPDX-License-Identifier: Apache-2.0 */
/*
  * The cost of a claim with a long history, against the same claim on an empty
 * table. Both databases get a few due messages at a time; claims of them, and
 * claims that find nothing, are timed in alternation.
 *
 *	claim_cost EMPTY FULL HISTORY ROUNDS
 *
 * Fills FULL with HISTORY delivered messages and as many in backoff, then prints
 * four medians in microseconds: `found EMPTY FULL nothing EMPTY FULL`.
 */
#include <postroom/sqlite.h>
#include <postroom/store.h>
#include <sqlite3.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DUE_AT_ONCE 10

static void must(int ok, const char *step)
{
	if (ok)
		return;
	fprintf(stderr, "claim_cost: %s\n", step);
	exit(1);
}

struct side {
	sqlite3 *db;
	postroom_box *box;
	postroom_store *store;
	double *found, *nothing;
};

static double mono_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void execute(sqlite3 *db, const char *sql)
{
	must(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(db));
}

static void fill(sqlite3 *db, int64_t history)
{
	char *sql = sqlite3_mprintf(
		"BEGIN IMMEDIATE;"
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %lld) "
		"INSERT INTO postroom_outbox (topic, payload, status, attempts, claims, "
		"delivered_at) "
		"SELECT 'bench.orders', '{}', 'delivered', 1, 1, i FROM n;"
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %lld) "
		"INSERT INTO postroom_outbox (topic, payload, attempts, claims, last_error, "
		"next_attempt_at) "
		"SELECT 'bench.orders', '{}', 3, 3, 'the receiver was down', "
		"(unixepoch() + 3600) * 1000000 + i FROM n;"
		"COMMIT; PRAGMA wal_checkpoint(TRUNCATE)",
		history, history);
	must(sql != NULL, "no memory");
	execute(db, sql);
	sqlite3_free(sql);
}

static void open_side(struct side *side, const char *file, int64_t rounds)
{
	must(postroom_store_open(file, &side->store) >= 0, postroom_store_errmsg(side->store));
	must(sqlite3_open(file, &side->db) == SQLITE_OK, sqlite3_errmsg(side->db));
	side->box = postroom_box_sqlite(side->db);
	side->found = calloc((size_t)rounds, sizeof(double));
	side->nothing = calloc((size_t)rounds, sizeof(double));
	must(side->box && side->found && side->nothing, "no memory");
}

static void close_side(struct side *side)
{
	postroom_box_free(side->box);
	postroom_store_close(side->store);
	sqlite3_close(side->db);
	free(side->found);
	free(side->nothing);
}

/* The time of one claim that must find `expected`; step it found is acknowledged. */
static double time_claim(struct side *side, size_t expected)
{
	postroom_batch *batch = NULL;
	size_t count;
	double started = mono_us();
	int status = postroom_claim(side->store, POSTROOM_CLAIM(.limit = DUE_AT_ONCE), &batch);
	double took = mono_us() - started;

	must(status >= 0, postroom_store_errmsg(side->store));
	count = postroom_batch_count(batch);
	must(count == expected, "a claim brought another number of messages than it had to");
	if (count > 0)
		must(postroom_ack(side->store, batch, postroom_batch_item(batch, 0), count) >= 0,
		     postroom_store_errmsg(side->store));
	postroom_batch_free(batch);
	return took;
}

static void round_of(struct side *side, int64_t round)
{
	execute(side->db, "BEGIN IMMEDIATE");
	for (int i = 0; i < DUE_AT_ONCE; i++)
		must(postroom_enqueue(side->box,
				      POSTROOM_MESSAGE(.topic = "bench.orders", .payload = "{}"),
				      NULL) >= 0,
		     postroom_errmsg(side->box));
	execute(side->db, "COMMIT");
	side->found[round] = time_claim(side, DUE_AT_ONCE);
	side->nothing[round] = time_claim(side, 0);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, int64_t count)
{
	qsort(values, (size_t)count, sizeof(*values), by_value);
	return values[count / 2];
}

int main(int argc, char **argv)
{
	if (argc < 5) {
		fprintf(stderr, "usage: claim_cost EMPTY FULL HISTORY ROUNDS\n");
		return 2;
	}
	int64_t rounds = atoll(argv[4]);
	struct side empty = { 0 }, full = { 0 };

	open_side(&empty, argv[1], rounds);
	open_side(&full, argv[2], rounds);
	fill(full.db, atoll(argv[3]));
	for (int64_t i = 0; i < rounds; i++) {
		round_of(&empty, i);
		round_of(&full, i);
	}
	printf("found %.1f %.1f nothing %.1f %.1f\n", median(empty.found, rounds),
	       median(full.found, rounds), median(empty.nothing, rounds),
	       median(full.nothing, rounds));
	close_side(&empty);
	close_side(&full);
	return 0;
}
