/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the library whose allocations fail one by one; see nomem.c. */
#ifndef TESTS_CONTRACT_NOMEM_H
#define TESTS_CONTRACT_NOMEM_H

#include "core/batch.h"
#include "harness.h"

#include <postroom.h>
#include <postroom/store.h>

/* The objects that one operation works with; made anew for every single failure. */
struct world {
	postroom_store *store;
	postroom_box *box; /* the application's */
	postroom_batch *batch;
};
extern struct world world;

/* The database: nomem_sqlite.c or nomem_pgsql.c. */
extern const bool database_rolls_back; /* also what was done in one statement */
void start_database(void);
void make_world(void);
void end_world(void);
void remember_world(void);	   /* what make_world() makes is to be made the same again */
int64_t database_memory(void);	   /* that it holds */
bool database_gave_up(int status); /* a way to say that there was no memory */
int try_open(postroom_store **ret);
void lose_tables(void);
int try_make_tables(void);
void find_tables(void); /* that were lost, and make a world with them */

/* On the application's connection. */
postroom_box *new_box(void);
void app_sql(const char *statement);
void app_begin(void);
bool app_in_transaction(void);
int64_t number(const char *statement);
int64_t rows(const char *status);
void expire_leases(void);

/* True if this allocation is to fail. */
bool must_fail(void);
/* Nothing fails between these two; what was counted goes on counting afterwards. */
long pause_failures(void);
void resume_failures(long paused);

struct operation {
	const char *name;
	void (*prepare)(void);
	int (*run)(void);
	/* Conditions after a failure, and after success. */
	void (*unchanged)(void);
	void (*done)(void);
	long stride;	    /* not every second allocation, where there are thousands; 0: that */
	bool one_statement; /* committed before its answer is read */
};

void torture(const struct operation *op);

#define TORTURE(test_name, ...)                                                                    \
	TEST(test_name)                                                                            \
	{                                                                                          \
		torture(&(const struct operation){ .name = #test_name, __VA_ARGS__ });             \
	}

#endif
