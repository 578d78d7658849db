/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One contract for every database. Each TEST() of this suite runs once for
 * each backend of FOR_EACH_BACKEND, with a fresh database, the application's
 * own connection to it (app) and a store that is open on it (store). A second
 * database is one more struct backend and one more line there.
 */
#ifndef TESTS_CONTRACT_STORE_BACKEND_H
#define TESTS_CONTRACT_STORE_BACKEND_H

#include "core/batch.h"
#include "harness.h"

#include <postroom.h>
#include <postroom/store.h>

/* An application's connection. */
struct session {
	const struct backend *backend;
	void *native;
	postroom_box *box;
};

struct backend {
	const char *name;
	bool lanes;	    /* a lease is that of a lane: others wait for what it holds */
	const char *begin;  /* what a careful application says */
	const char *now_us; /* SQL: the database's clock in microseconds */
	const char *to_us;  /* printf format: a time column in microseconds */
	const char *shift;  /* printf format: column, microseconds; the right side of SET */

	/* The URL of a new database without tables, or of an empty one with them; out has room for 200 bytes. */
	void (*new_database)(char *out);
	void (*new_database_with_tables)(char *out);
	/* What `postroom migrate` does. */
	void (*make_tables)(const char *url);
	void (*drop_databases)(void); /* all of this test's */
	void (*connect)(struct session *session, const char *url);
	void (*disconnect)(struct session *session);
	/* True if it worked; otherwise error says why. */
	bool (*run)(struct session *session, const char *sql, char *error, size_t size);
	/* The first column of the first row as text; false if that is NULL or there is no row. */
	bool (*query)(struct session *session, const char *sql, char *out, size_t size);
	bool (*in_transaction)(struct session *session);
	/* Changes how a store that was opened works; NULL: not at all. */
	void (*adapt)(postroom_store *opened);
	/* Writes one byte to fd whenever this session has to wait for another session's lock. */
	void (*announce_when_blocked)(struct session *session, int fd);
};

extern const struct backend backend_sqlite;
extern const struct backend backend_pgsql;
extern const struct backend backend_pgsql_lane; /* lanes leased, not rows */

/* The SQL functions for workers, in databases of both kinds of lease. */
extern struct backend backend_workers_row;
extern struct backend backend_workers_lane;

#ifdef CONTRACT_OF_WORKERS
#define FOR_EACH_BACKEND(do_it, test_name)                                                         \
	do_it(test_name, backend_workers_row) do_it(test_name, backend_workers_lane)
#define FOR_EACH_BY_ROW(do_it, test_name) do_it(test_name, backend_workers_row)
#define FOR_EACH_ON_PGSQL(do_it, test_name) FOR_EACH_BACKEND(do_it, test_name)
#define FOR_EACH_RELAY(do_it, test_name)
#else
#define FOR_EACH_BACKEND(do_it, test_name)                                                         \
	do_it(test_name, backend_sqlite) FOR_EACH_ON_PGSQL(do_it, test_name)
#define FOR_EACH_BY_ROW(do_it, test_name)                                                          \
	do_it(test_name, backend_sqlite) do_it(test_name, backend_pgsql)
#define FOR_EACH_ON_PGSQL(do_it, test_name)                                                        \
	do_it(test_name, backend_pgsql) do_it(test_name, backend_pgsql_lane)
#define FOR_EACH_RELAY(do_it, test_name) FOR_EACH_BACKEND(do_it, test_name)
#endif

/* The world of the running test. */
extern const struct backend *backend;
extern char url[200];
extern struct session *app;
extern postroom_store *store;

/* Around each test. */
void begin_test(const struct backend *which);
void end_test(void);
void world_end(void);
void world_connect(void); /* after world_end(), to url as it is now */

#define ON_ONE(test_name, which)                                                                   \
	static void test_name(void);                                                               \
	REGISTER_FOR(test_name, which)                                                             \
	static void test_name(void)

/* The requirement ids are found by TEST(name), here as everywhere. */
#undef TEST
#define TEST(test_name)                                                                            \
	static void test_name(void);                                                               \
	FOR_EACH_BACKEND(REGISTER_FOR, test_name)                                                  \
	static void test_name(void)

/* For tests that observe a lease on the message itself, or one order of all messages. */
#define TEST_BY_ROW(test_name)                                                                     \
	static void test_name(void);                                                               \
	FOR_EACH_BY_ROW(REGISTER_FOR, test_name)                                                   \
	static void test_name(void)

/* For what only relays can do, and the SQL functions for workers cannot. */
#define TEST_BY_RELAY(test_name)                                                                   \
	__attribute__((unused)) static void test_name(void);                                       \
	FOR_EACH_RELAY(REGISTER_FOR, test_name)                                                    \
	static void test_name(void)

/* PostgreSQL, with both kinds of lease. */
#define TEST_ON_PGSQL(test_name)                                                                   \
	static void test_name(void);                                                               \
	FOR_EACH_ON_PGSQL(REGISTER_FOR, test_name)                                                 \
	static void test_name(void)

/* SQL on a session; sql() must work, refused() must not and returns why. */
void sql(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *refused(struct session *session, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int64_t number(struct session *session, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* "(null)" for NULL; good for the next few calls. */
const char *text(struct session *session, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* A time column of the one row that where selects, in microseconds. */
int64_t time_of(struct session *session, const char *column, const char *where);
int64_t database_now_us(struct session *session);

void begin(struct session *session);
void commit(struct session *session);
void rollback(struct session *session);

/* Moves a time column of every row that has one, instead of waiting. */
void shift(const char *column, int64_t seconds);
#define EXPIRE_LEASES() shift("locked_until", -24 * 3600)
#define MAKE_DUE() shift("next_attempt_at", -24 * 3600)

struct session *join(void); /* another application on the same database */
void leave(struct session *session);
postroom_store *open_store(void);

/* One message in a transaction of its own. */
postroom_receipt put_message(const postroom_message *message);
#define PUT(...) put_message(POSTROOM_MESSAGE(__VA_ARGS__))

/* A claim that must work. */
postroom_batch *claim_from(postroom_store *from, const postroom_claim_options *options);
#define CLAIM(...) claim_from(store, POSTROOM_CLAIM(__VA_ARGS__))
postroom_delivery *items_of(postroom_batch *batch, size_t expected);
postroom_delivery *only_item(postroom_batch *batch);
size_t count_of(postroom_batch *batch);

/* Claims one message and returns its batch, so that tests can go on from processing. */
postroom_batch *claim_one(void);

/* Whether a drain would go on; block: a death blocks its key. */
bool unfinished(bool block);

/* How many rows have this status; NULL: all. */
int64_t rows(const char *status);

/* Runs fn(context, i) in n processes at once and expects all of them to return. */
void in_parallel(int n, void (*fn)(void *context, int index), void *context);

/* n for `make check`, or the full figure with POSTROOM_SOAK=1. */
int64_t soak(int64_t in_check, int64_t in_soak);

#endif
