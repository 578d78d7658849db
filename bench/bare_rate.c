/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of a latency: producers that keep to a rate, and a clock at the sink.
 *
 *	bare_rate produce URL COUNT RATE CLIENTS SIZE	COUNT single INSERTs at RATE a second
 *	bare_rate stamp COUNT				reads the lines of stdout:, or of bare_pgsql
 *
 * Both print "NUMBER MICROSECONDS" for each message: when its commit was
 * confirmed, and when its line was read; the payload carries the number.
 */
#include "bare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSERT "INSERT INTO postroom_outbox (topic, payload) VALUES ('bench.orders', $1)"

static double rate;
static size_t size;

/* Every client has its share of the moments at which a message is to be sent. */
static void *produce(void *thread)
{
	PGconn *conn = connect_to();
	int64_t begun = now_us(CLOCK_MONOTONIC);

	prepare(conn, "insert", INSERT);
	for (int64_t n = (intptr_t)thread; n < count; n += clients) {
		int64_t wait = begun + (int64_t)((double)n * 1e6 / rate) - now_us(CLOCK_MONOTONIC);
		char *payload = make_payload(n, size);
		if (wait > 0)
			nanosleep(&(struct timespec){ wait / 1000000, wait % 1000000 * 1000 },
				  NULL);
		PGresult *result = PQexecPrepared(conn, "insert", 1, (const char *const *)&payload,
						  NULL, NULL, 0);
		must(PQresultStatus(result) == PGRES_COMMAND_OK, "insert", conn);
		printf("%lld %lld\n", (long long)n, (long long)now_us(CLOCK_REALTIME));
		PQclear(result);
		free(payload);
	}
	PQfinish(conn);
	return NULL;
}

/* Keeps them until the end: a pipe without a reader would delay the clock. */
static void stamp(void)
{
	int64_t(*stamps)[2] = calloc((size_t)count, sizeof(*stamps));
	int64_t seen = 0;
	char *line = NULL;
	size_t line_size = 0;

	must(stamps != NULL, "no memory", NULL);
	while (seen < count && getline(&line, &line_size, stdin) > 0) {
		int64_t now = now_us(CLOCK_REALTIME);
		const char *at = strstr(line, "\"n\":");
		if (!at)
			continue;
		stamps[seen][0] = atoll(at + 4);
		stamps[seen++][1] = now;
	}
	for (int64_t i = 0; i < seen; i++)
		printf("%lld %lld\n", (long long)stamps[i][0], (long long)stamps[i][1]);
	free(stamps);
	free(line);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "stamp") == 0) {
		count = atoll(argv[2]);
		stamp();
	} else if (argc == 7 && strcmp(argv[1], "produce") == 0) {
		url = argv[2];
		count = atoll(argv[3]);
		rate = atof(argv[4]);
		clients = atoll(argv[5]);
		size = (size_t)atoll(argv[6]);
		run_clients(produce);
	} else {
		fprintf(stderr, "usage: see the head of bare_rate.c\n");
		return 2;
	}
	return 0;
}
