/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what a program asks its database, without the server's help: preloaded, it
 * is loaded before libpq and SQLite. The file $COUNT_STATEMENTS has the counts at any
 * time, as 64-bit numbers: statements, transactions, and the statements of the thread
 * "janitor", which are in neither. Statements that share a pipeline are one transaction.
 */
#include <libpq-fe.h>
#include <sqlite3.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct counts {
	atomic_llong statements, transactions, janitor;
};

static struct counts *counts;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("COUNT_STATEMENTS");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	void *memory = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(*counts)) == 0)
		memory = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		abort();
	counts = memory;
	close(fd);
}

static void count(bool transaction)
{
	char name[16] = "";

	pthread_getname_np(pthread_self(), name, sizeof(name));
	if (strcmp(name, "janitor") == 0) {
		atomic_fetch_add(&counts->janitor, 1);
		return;
	}
	atomic_fetch_add(&counts->statements, 1);
	if (transaction)
		atomic_fetch_add(&counts->transactions, 1);
}

/* Statements outside of a pipeline are one transaction each. */
static void count_one(PGconn *conn)
{
	count(PQpipelineStatus(conn) == PQ_PIPELINE_OFF);
}

static void *original(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		abort();
	return found;
}

EXPORT int PQsendQueryPrepared(PGconn *conn, const char *name, int count, const char *const *values,
			       const int *lengths, const int *formats, int result_format)
{
	int (*real)(PGconn *, const char *, int, const char *const *, const int *, const int *,
		    int) = original("PQsendQueryPrepared");

	count_one(conn);
	return real(conn, name, count, values, lengths, formats, result_format);
}

EXPORT int PQsendQueryParams(PGconn *conn, const char *sql, int count, const Oid *types,
			     const char *const *values, const int *lengths, const int *formats,
			     int result_format)
{
	int (*real)(PGconn *, const char *, int, const Oid *, const char *const *, const int *,
		    const int *, int) = original("PQsendQueryParams");

	count_one(conn);
	return real(conn, sql, count, types, values, lengths, formats, result_format);
}

EXPORT int PQsendQuery(PGconn *conn, const char *sql)
{
	int (*real)(PGconn *, const char *) = original("PQsendQuery");

	count_one(conn);
	return real(conn, sql);
}

EXPORT int PQpipelineSync(PGconn *conn)
{
	int (*real)(PGconn *) = original("PQpipelineSync");

	atomic_fetch_add(&counts->transactions, 1);
	return real(conn);
}

/* Those in autocommit are a transaction each, and so is a COMMIT. */
EXPORT int sqlite3_step(sqlite3_stmt *stmt)
{
	int (*real)(sqlite3_stmt *) = original("sqlite3_step");
	bool first = !sqlite3_stmt_busy(stmt);
	int rc = real(stmt);

	if (first)
		count(sqlite3_get_autocommit(sqlite3_db_handle(stmt)));
	return rc;
}
