/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what a program sends to PostgreSQL, without the server's help: preloaded,
 * it stands before libpq. At its end it writes "STATEMENTS TRANSACTIONS" to the
 * file $COUNT_STATEMENTS; statements that share a pipeline are one transaction.
 */
#include <libpq-fe.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_llong statements, transactions;

/* Those that run outside of a pipeline are a transaction each. */
static void count_one(PGconn *conn)
{
	atomic_fetch_add(&statements, 1);
	if (PQpipelineStatus(conn) == PQ_PIPELINE_OFF)
		atomic_fetch_add(&transactions, 1);
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

	atomic_fetch_add(&transactions, 1);
	return real(conn);
}

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("COUNT_STATEMENTS");
	FILE *file = path ? fopen(path, "w") : NULL;

	if (!file)
		return;
	fprintf(file, "%lld %lld\n", (long long)statements, (long long)transactions);
	fclose(file);
}
