/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the library whose allocations fail one by one; see nomem.c. */
#ifndef TESTS_CONTRACT_NOMEM_H
#define TESTS_CONTRACT_NOMEM_H

#include "harness.h"

#include <postroom.h>
#include <postroom/sqlite.h>
#include <postroom/store.h>

#define PATH "nomem.db"

/* What one operation works with; made anew for every single failure. */
struct world {
	postroom_store *store;
	sqlite3 *db; /* the application's */
	postroom_box *box;
	postroom_batch *batch;
};
extern struct world world;

void open_app(void);
void end_world(void);
void remove_database(void);

/* On the application's connection. */
void app_sql(const char *statement);
int64_t number(const char *statement);
int64_t rows(const char *status);

/* Nothing fails between these two; what was counted goes on counting afterwards. */
long pause_failures(void);
void resume_failures(long paused);

struct operation {
	const char *name;
	void (*prepare)(void);
	int (*run)(void);
	/* What must be true after a failure, and after success. */
	void (*unchanged)(void);
	void (*done)(void);
	long stride; /* not each allocation, where there are thousands; 0: each */
};

void torture(const struct operation *op);

#define TORTURE(test_name, ...)                                                                    \
	TEST(test_name)                                                                            \
	{                                                                                          \
		torture(&(const struct operation){ .name = #test_name, __VA_ARGS__ });             \
	}

#endif
