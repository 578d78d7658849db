/* SPDX-License-Identifier: Apache-2.0 */
#include "bare.h"

#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAL "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"

const char *url;
int64_t count, batch_size, clients;
atomic_llong done;

void must(int ok, const char *step, PGconn *conn)
{
	if (ok)
		return;
	fprintf(stderr, "bare loop: %s: %s\n", step, conn ? PQerrorMessage(conn) : "");
	exit(1);
}

int64_t now_us(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void run(PGconn *conn, const char *sql)
{
	PGresult *result = PQexec(conn, sql);
	ExecStatusType status = PQresultStatus(result);
	must(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY,
	     sql, conn);
	PQclear(result);
}

PGconn *connect_to(void)
{
	PGconn *conn = PQconnectdb(url);
	must(PQstatus(conn) == CONNECTION_OK, "connect", conn);
	run(conn, "SET client_min_messages = warning");
	return conn;
}

void prepare(PGconn *conn, const char *name, const char *sql)
{
	PGresult *result = PQprepare(conn, name, sql, 0, NULL);
	must(PQresultStatus(result) == PGRES_COMMAND_OK, sql, conn);
	PQclear(result);
}

int64_t ask(PGconn *conn, const char *sql)
{
	PGresult *result = PQexec(conn, sql);
	must(PQresultStatus(result) == PGRES_TUPLES_OK, sql, conn);
	int64_t value = atoll(PQgetvalue(result, 0, 0));
	PQclear(result);
	return value;
}

PGresult *take_result(PGconn *conn)
{
	PGresult *result = PQgetResult(conn);
	ExecStatusType status = PQresultStatus(result);
	must(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ||
		     status == PGRES_PIPELINE_SYNC,
	     "pipeline", conn);
	if (status != PGRES_PIPELINE_SYNC)
		PQgetResult(conn);
	return result;
}

int64_t read_number(const PGresult *result, int row, int column)
{
	uint64_t value;
	memcpy(&value, PQgetvalue(result, row, column), sizeof(value));
	return (int64_t)be64toh(value);
}

void run_clients(void *(*work)(void *))
{
	pthread_t threads[WORKERS_MAX];
	for (intptr_t i = 0; i < clients; i++)
		must(pthread_create(&threads[i], NULL, work, (void *)i) == 0, "thread", NULL);
	for (int64_t i = 0; i < clients; i++)
		pthread_join(threads[i], NULL);
}

void measure(void *(*work)(void *))
{
	PGconn *conn = connect_to();
	int64_t wal = ask(conn, WAL), begun = now_us(CLOCK_MONOTONIC);

	run_clients(work);
	printf("%.6f %.1f\n", (double)(now_us(CLOCK_MONOTONIC) - begun) / 1e6,
	       (double)(ask(conn, WAL) - wal) / (double)count);
	must(atomic_load(&done) == count, "not COUNT messages", NULL);
	PQfinish(conn);
}

char *make_payload(int64_t number, size_t size)
{
	char head[64];
	int len = snprintf(head, sizeof(head), "{\"n\":%lld,\"text\":\"", (long long)number);
	char *payload = malloc(size + sizeof(head));
	must(payload != NULL, "no memory", NULL);
	memset(payload, 'x', size + sizeof(head));
	memcpy(payload, head, (size_t)len);
	strcpy(payload + ((size_t)len + 2 < size ? size - 2 : (size_t)len), "\"}");
	return payload;
}

void copy_texts(struct copies *copies, const PGresult *result)
{
	size_t used = 0;

	for (int row = 0; row < PQntuples(result); row++) {
		for (int i = COL_FIRST_TEXT; i < COL_COUNT; i++) {
			size_t len = (size_t)PQgetlength(result, row, i);
			if (used + len + 1 > copies->size) {
				copies->size = 2 * (used + len + 1);
				copies->data = realloc(copies->data, copies->size);
				must(copies->data != NULL, "no memory", NULL);
			}
			memcpy(copies->data + used, PQgetvalue(result, row, i), len + 1);
			used += len + 1;
		}
	}
}

void make_worker_id(char id[40], int number)
{
	snprintf(id, 40, "0b5e55ed-0000-4000-8000-%012x",
		 (unsigned)now_us(CLOCK_REALTIME) * WORKERS_MAX + (unsigned)number);
}

void put_number(struct array *array, uint32_t number)
{
	number = htobe32(number);
	memcpy(array->data + array->len, &number, sizeof(number));
	array->len += sizeof(number);
}

void begin_array(struct array *array, uint32_t items)
{
	array->len = 0;
	put_number(array, 1);
	put_number(array, 1);
	put_number(array, array->type);
	put_number(array, items);
	put_number(array, 1);
}

void put_item(struct array *array, const PGresult *result, int row, int column)
{
	int len = PQgetlength(result, row, column);
	put_number(array, (uint32_t)len);
	memcpy(array->data + array->len, PQgetvalue(result, row, column), (size_t)len);
	array->len += (size_t)len;
}
