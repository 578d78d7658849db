/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of every call of the library fails once; in a second round
 * all that follow it fail too. The library's own allocations
 * come here by -Wl,--wrap, those of SQLite by its configuration. Whatever
 * fails: the call says so or does all of its work, nothing is half-written,
 * nothing leaks, and the same call works afterwards.
 */
#include "contract/nomem.h"

#include <stdlib.h>
#include <unistd.h>

/* Thousands of databases are made here, and none of them has to survive a power cut. */
#define VISIBLE __attribute__((visibility("default")))
VISIBLE int fsync(int fd);
VISIBLE int fdatasync(int fd);

int fsync(int fd)
{
	(void)fd;
	return 0;
}

int fdatasync(int fd)
{
	(void)fd;
	return 0;
}

static long countdown;	/* 0: nothing fails */
static bool persistent; /* once it has failed, it fails for good */
static bool failed;
static long live;

static bool must_fail(void)
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

static void arm(long n)
{
	countdown = n;
	failed = false;
}

static void disarm(void)
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

static sqlite3_mem_methods real_methods;

static void *sqlite_malloc(int size)
{
	return must_fail() ? NULL : real_methods.xMalloc(size);
}

static void *sqlite_realloc(void *memory, int size)
{
	return must_fail() ? NULL : real_methods.xRealloc(memory, size);
}

static void take_over_sqlite(void)
{
	sqlite3_mem_methods methods;

	CHECK_INT(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_methods), SQLITE_OK);
	methods = real_methods;
	methods.xMalloc = sqlite_malloc;
	methods.xRealloc = sqlite_realloc;
	CHECK_INT(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods), SQLITE_OK);
	/* A connection's own little heap would hide most of its allocations. */
	CHECK_INT(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
	CHECK_INT(sqlite3_initialize(), SQLITE_OK);
}

struct world world;

void app_sql(const char *statement)
{
	CHECK_MSG(sqlite3_exec(world.db, statement, NULL, NULL, NULL) == SQLITE_OK, "%s: %s",
		  statement, sqlite3_errmsg(world.db));
}

int64_t number(const char *statement)
{
	sqlite3_stmt *stmt = NULL;
	int64_t value;

	CHECK_INT(sqlite3_prepare_v2(world.db, statement, -1, &stmt, NULL), SQLITE_OK);
	CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
	value = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return value;
}

int64_t rows(const char *status)
{
	char statement[200];

	snprintf(statement, sizeof(statement),
		 "SELECT count(*) FROM postroom_outbox WHERE status = '%s'", status);
	return number(statement);
}

void remove_database(void)
{
	unlink(PATH);
	unlink(PATH "-wal");
	unlink(PATH "-shm");
}

void open_app(void)
{
	CHECK_INT(sqlite3_open(PATH, &world.db), SQLITE_OK);
	app_sql("PRAGMA synchronous = OFF");
	world.box = postroom_box_sqlite(world.db);
	CHECK(world.box);
}

/* The file with its tables and nothing in them, as it is copied for each world. */
static char template[1 << 20];
static size_t template_size;

static void read_template(void)
{
	FILE *file = fopen(PATH, "r");

	CHECK(file);
	template_size = fread(template, 1, sizeof(template), file);
	CHECK(template_size > 0 && template_size < sizeof(template));
	fclose(file);
}

static void write_template(void)
{
	FILE *file = fopen(PATH, "w");

	CHECK(file);
	CHECK_INT(fwrite(template, 1, template_size, file), template_size);
	CHECK_INT(fclose(file), 0);
}

static void make_world(void)
{
	remove_database();
	if (template_size)
		write_template();
	CHECK_INT(postroom_store_open(PATH, &world.store), POSTROOM_OK);
	open_app();
}

void end_world(void)
{
	postroom_batch_free(world.batch);
	postroom_store_close(world.store);
	postroom_box_free(world.box);
	CHECK_INT(sqlite3_close(world.db), SQLITE_OK);
	memset(&world, 0, sizeof(world));
}

static const char *message_of(const struct operation *op)
{
	(void)op;
	if (world.store && *postroom_store_errmsg(world.store))
		return postroom_store_errmsg(world.store);
	return world.box ? postroom_errmsg(world.box) : "";
}

/* json_valid() without memory says that the text is not valid. */
static bool json_gave_up(int status)
{
	return status == POSTROOM_DATABASE &&
	       postroom_errcode(world.box) == SQLITE_CONSTRAINT_CHECK;
}

/* False when nothing was left to fail. */
static bool fail_at(const struct operation *op, long n)
{
	long live_before = live;
	sqlite3_int64 sqlite_before = sqlite3_memory_used();
	int status;

	make_world();
	if (op->prepare)
		op->prepare();
	arm(n);
	status = op->run();
	disarm();
	if (status < 0) {
		CHECK_MSG(failed, "%s: fails by itself: %d %s", op->name, status, message_of(op));
		CHECK_MSG(status == POSTROOM_NOMEM || status == POSTROOM_TX_ABORTED ||
				  json_gave_up(status),
			  "%s: allocation %ld: status %d: %s", op->name, n, status, message_of(op));
		if (op->unchanged)
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
	CHECK_MSG(sqlite3_memory_used() == sqlite_before, "%s: allocation %ld: %lld bytes leaked",
		  op->name, n, (long long)(sqlite3_memory_used() - sqlite_before));
	return failed;
}

/* With POSTROOM_SOAK=1 each single allocation in both rounds. */
void torture(const struct operation *op)
{
	const char *soak = getenv("POSTROOM_SOAK");
	bool all = soak && strcmp(soak, "1") == 0;
	long n = 1;

	take_over_sqlite();
	/* Whatever is kept for good is allocated now. */
	make_world();
	end_world();
	read_template();
	while (fail_at(op, n))
		n += all || !op->stride ? 1 : op->stride;
	CHECK_MSG(n > 1, "%s allocates nothing", op->name);
	persistent = true;
	for (n = 1; fail_at(op, n);)
		n += all ? 1 : 7;
}
