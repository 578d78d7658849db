/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the bare loops over libpq. Any error ends the program. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include <libpq-fe.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define WORKERS_MAX 64

/* The planner's statistics mislead it: they describe a table that is usually empty. */
#define SETTINGS                                                                                   \
	"SET enable_seqscan = off; SET enable_bitmapscan = off; "                                  \
	"SET jit = off; SET plan_cache_mode = force_generic_plan"

/* As a sink needs them, in the store's order. */
#define COLUMNS                                                                                    \
	"id, claims, seq, next_attempt_at, attempts, created_at, namespace, topic, key, "          \
	"tenant_id, dedupe_key, correlation_id, content_type, headers, payload, body"
enum { COL_ID, COL_FENCE, COL_SEQ, COL_DUE, COL_FIRST_TEXT = 6, COL_PAYLOAD = 14, COL_COUNT = 16 };

extern const char *url;
extern int64_t count, batch_size, clients;
extern atomic_llong done;

void must(int ok, const char *step, PGconn *conn);
int64_t now_us(clockid_t clock);

PGconn *connect_to(void);
void run(PGconn *conn, const char *sql);
void prepare(PGconn *conn, const char *name, const char *sql);
int64_t ask(PGconn *conn, const char *sql);
/* The answer to the next statement of a pipeline, or to its end. */
PGresult *take_result(PGconn *conn);
int64_t read_number(const PGresult *result, int row, int column);

/* Each client in a thread of its own, with its number. */
void run_clients(void *(*work)(void *));
/* Prints the seconds that the clients took, and their bytes of WAL a message. */
void measure(void *(*work)(void *));

/* {"n":NUMBER,"text":"xx…"} of that size, at least; to be freed. */
char *make_payload(int64_t number, size_t size);
/* Memory that grows; what a sink would need of a result is copied into it. */
struct copies {
	char *data;
	size_t size;
};
void copy_texts(struct copies *copies, const PGresult *result);

/* A worker's id, new at each start. */
void make_worker_id(char id[40], int number);

/* An array in PostgreSQL's binary form. */
struct array {
	uint32_t type;
	char *data;
	size_t len;
};
void put_number(struct array *array, uint32_t number);
void begin_array(struct array *array, uint32_t items);
void put_item(struct array *array, const PGresult *result, int row, int column);

#endif
