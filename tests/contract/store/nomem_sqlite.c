/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite for nomem.c: its own allocations fail too, by its configuration. */
#include "contract/store/nomem.h"

#include <postroom/sqlite.h>
#include <unistd.h>

#define PATH "nomem.db"

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

const bool database_rolls_back = true;

static sqlite3 *db; /* the application's */

static sqlite3_mem_methods real_methods;

static void *sqlite_malloc(int size)
{
	return must_fail() ? NULL : real_methods.xMalloc(size);
}

static void *sqlite_realloc(void *memory, int size)
{
	return must_fail() ? NULL : real_methods.xRealloc(memory, size);
}

void start_database(void)
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

void app_sql(const char *statement)
{
	CHECK_MSG(sqlite3_exec(db, statement, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", statement,
		  sqlite3_errmsg(db));
}

int64_t number(const char *statement)
{
	sqlite3_stmt *stmt = NULL;
	int64_t value;

	CHECK_INT(sqlite3_prepare_v2(db, statement, -1, &stmt, NULL), SQLITE_OK);
	CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
	value = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return value;
}

static void remove_database(void)
{
	unlink(PATH);
	unlink(PATH "-wal");
	unlink(PATH "-shm");
}

static void open_app(void)
{
	CHECK_INT(sqlite3_open(PATH, &db), SQLITE_OK);
	app_sql("PRAGMA synchronous = OFF");
	world.box = postroom_box_sqlite(db);
	CHECK(world.box);
}

/* The file with its tables and nothing in them, as it is copied for each world. */
static char template[1 << 20];
static size_t template_size;

void remember_world(void)
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

void make_world(void)
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
	CHECK_INT(sqlite3_close(db), SQLITE_OK);
	memset(&world, 0, sizeof(world));
}

/* json_valid() without memory says that the text is not valid. */
bool database_gave_up(int status)
{
	return status == POSTROOM_DATABASE &&
	       postroom_errcode(world.box) == SQLITE_CONSTRAINT_CHECK;
}

int64_t database_memory(void)
{
	return sqlite3_memory_used();
}

void app_begin(void)
{
	app_sql("BEGIN IMMEDIATE");
}

bool app_in_transaction(void)
{
	return !sqlite3_get_autocommit(db);
}

postroom_box *new_box(void)
{
	return postroom_box_sqlite(db);
}

void expire_leases(void)
{
	app_sql("UPDATE postroom_outbox SET locked_until = 1");
}

int try_open(postroom_store **ret)
{
	return postroom_store_open(PATH, ret);
}

void lose_tables(void)
{
	end_world();
	remove_database();
}

int try_make_tables(void)
{
	postroom_store *store = NULL;
	int status = try_open(&store);

	postroom_store_close(store);
	return status;
}

void find_tables(void)
{
	CHECK_INT(try_open(&world.store), POSTROOM_OK);
	open_app();
}
