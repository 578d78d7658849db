/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of every call of the library fails once; in a second round
 * all that follow it fail too. The library's own allocations come here by
 * -Wl,--wrap; nomem_sqlite.c and nomem_pgsql.c are the databases. Whatever
 * fails: the call says so or does all of its work, nothing is half-written,
 * nothing leaks, and the same call works afterwards.
 */
#include "contract/store/nomem.h"

#include <stdlib.h>

static long countdown;	/* 0: nothing fails */
static bool persistent; /* once it has failed, it fails for good */
static bool failed;
static long live;

bool must_fail(void)
{
	if (countdown == 0)
		return false;
	if (failed)
		return persistent;
	if (--countdown > 0)
		return false;
	countdown = 1;
	failed = true;
	return true;
}

static void fail_from(long n)
{
	countdown = n;
	failed = false;
}

static void stop_failing(void)
{
	countdown = 0;
}

long pause_failures(void)
{
	long paused = countdown;

	countdown = 0;
	return paused;
}

void resume_failures(long paused)
{
	countdown = paused;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_reallocarray(void *memory, size_t count, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_reallocarray(void *memory, size_t count, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size)
{
	void *memory = must_fail() ? NULL : __real_malloc(size);

	live += memory != NULL;
	return memory;
}

void *__wrap_calloc(size_t count, size_t size)
{
	void *memory = must_fail() ? NULL : __real_calloc(count, size);

	live += memory != NULL;
	return memory;
}

void *__wrap_realloc(void *memory, size_t size)
{
	void *moved = must_fail() ? NULL : __real_realloc(memory, size);

	live += moved && !memory;
	return moved;
}

void *__wrap_reallocarray(void *memory, size_t count, size_t size)
{
	void *moved = must_fail() ? NULL : __real_reallocarray(memory, count, size);

	live += moved && !memory;
	return moved;
}

char *__wrap_strdup(const char *text)
{
	char *copy = must_fail() ? NULL : __real_strdup(text);

	live += copy != NULL;
	return copy;
}

void __wrap_free(void *memory)
{
	live -= memory != NULL;
	__real_free(memory);
}

struct world world;

int64_t rows(const char *status)
{
	char statement[200];

	snprintf(statement, sizeof(statement),
		 "SELECT count(*) FROM postroom_outbox WHERE status = '%s'", status);
	return number(statement);
}

static const char *message_of(const struct operation *op)
{
	(void)op;
	if (world.store && *postroom_store_errmsg(world.store))
		return postroom_store_errmsg(world.store);
	return world.box ? postroom_errmsg(world.box) : "";
}

/*
  * A server has done its work in one statement and committed it, though
 * there was no memory for its answer: as if the worker had died there.
 */
static void start_over(const struct operation *op)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_outbox"), 3);
	postroom_batch_free(world.batch);
	world.batch = NULL;
	app_sql("DELETE FROM postroom_outbox");
	app_sql("DELETE FROM postroom_dedupe");
	op->prepare();
}

/* False when nothing was left to fail. */
static bool fail_at(const struct operation *op, long n)
{
	long live_before = live;
	int64_t database_before = database_memory();
	int status;

	make_world();
	if (op->prepare)
		op->prepare();
	fail_from(n);
	status = op->run();
	stop_failing();
	if (status < 0) {
		CHECK_MSG(failed, "%s: fails by itself: %d %s", op->name, status, message_of(op));
		CHECK_MSG(status == POSTROOM_NOMEM || status == POSTROOM_TX_ABORTED ||
				  database_gave_up(status),
			  "%s: allocation %ld: status %d: %s", op->name, n, status, message_of(op));
		if (op->one_statement && !database_rolls_back)
			start_over(op);
		else if (op->unchanged)
			op->unchanged();
		status = op->run();
		CHECK_MSG(status >= 0, "%s: after allocation %ld failed: %d %s", op->name, n,
			  status, message_of(op));
	}
	if (op->done)
		op->done();
	end_world();
	CHECK_MSG(live == live_before, "%s: allocation %ld: %ld leaked", op->name, n,
		  live - live_before);
	CHECK_MSG(database_memory() == database_before, "%s: allocation %ld: %lld bytes leaked",
		  op->name, n, (long long)(database_memory() - database_before));
	return failed;
}

/* Some of the allocations; with POSTROOM_SOAK=1 each in both rounds, unless there are thousands. */
void torture(const struct operation *op)
{
	const char *soak = getenv("POSTROOM_SOAK");
	bool all = soak && strcmp(soak, "1") == 0;
	long n = 1, step = op->stride ? op->stride : 2;
	long next = all ? 1 + step / 8 : step, later = all ? next : 7 * step;

	start_database();
	/* Permanent allocations happen now. */
	make_world();
	end_world();
	remember_world();
	while (fail_at(op, n))
		n += next;
	CHECK_MSG(n > 1, "%s allocates nothing", op->name);
	persistent = true;
	for (n = 1; fail_at(op, n);)
		n += later;
}
