/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer: a small business write and the note that the event was seen, one
 * transaction for each event.
 *
 *	once plain URL COUNT	the note is a row of a table that has a primary key and nothing else
 *	once bare URL COUNT	it is a plain INSERT into the inbox
 *	once postroom URL COUNT	it is postroom_inbox_once()
 *
 * Prints the seconds taken and the bytes of WAL an event.
 */
#include "bare.h"

#include <postroom/libpq.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSINESS "INSERT INTO bare_business (cents) VALUES ($1::int)"
#define PLAIN                                                                                      \
	"INSERT INTO bare_seen (id, handler_name) VALUES ($1, 'bench') ON CONFLICT DO NOTHING"
#define BARE                                                                                       \
	"INSERT INTO postroom_inbox (id, handler_name, status) "                                   \
	"VALUES ($1, 'bench', 'completed') ON CONFLICT DO NOTHING"

static const char *seen; /* NULL: through the library */

static void write_row(PGconn *conn, const char *statement, const char *value)
{
	PGresult *result = PQexecPrepared(conn, statement, 1, &value, NULL, NULL, 0);

	must(PQresultStatus(result) == PGRES_COMMAND_OK, statement, conn);
	PQclear(result);
}

static void *run_passes(void *thread)
{
	PGconn *conn = connect_to();
	postroom_box *box = postroom_box_libpq(conn);
	char id[40];

	(void)thread;
	prepare(conn, "business", BUSINESS);
	if (seen)
		prepare(conn, "seen", seen);
	for (int64_t n = 0; n < count; n++) {
		/* As random as the ids of events are to an index. */
		snprintf(id, sizeof(id), "%08x-%016llx", (unsigned)n * 2654435761u,
			 (unsigned long long)now_us(CLOCK_REALTIME));
		run(conn, "BEGIN");
		if (seen)
			write_row(conn, "seen", id);
		else
			must(postroom_inbox_once(box, id, "bench") == POSTROOM_OK,
			     postroom_errmsg(box), NULL);
		write_row(conn, "business", "100");
		run(conn, "COMMIT");
		atomic_fetch_add(&done, 1);
	}
	postroom_box_free(box);
	PQfinish(conn);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: see the head of once.c\n");
		return 2;
	}
	if (strcmp(argv[1], "postroom") != 0)
		seen = strcmp(argv[1], "plain") == 0 ? PLAIN : BARE;
	url = argv[2];
	count = atoll(argv[3]);
	clients = 1;
	measure(run_passes);
	return 0;
}
