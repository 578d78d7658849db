/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other half: events are read from a broker into the inbox, and the relay's own
 * pass over the inbox has a handler take them on, each once.
 */
#ifndef PR_CONSUME_CONSUME_H
#define PR_CONSUME_CONSUME_H

#include "consume/arrival.h"
#include "relay/relay.h"

struct pr_consume_config {
	struct pr_relay_config relay; /* over the inbox; scope.ns is the handler */
	const char *from;	      /* NULL: only what is submitted */
	const char *statement; /* done with each event, in one transaction; NULL: the relay's sink */
	struct pr_identity identity;
	bool ordered;
	bool drain; /* end when the source is silent and nothing is left to do */
	size_t batch_size; /* of events that are read at once */
};

struct pr_consume;

/* What the configuration points to outlives it. Waits for a database that is down. */
int pr_consume_open(const struct pr_consume_config *config, struct pr_consume **ret,
		    struct pr_err *err);
/* Until its relay is stopped, or all is done that was to be done. */
int pr_consume_run(struct pr_consume *consume, struct pr_err *err);
struct pr_relay *pr_consume_relay(struct pr_consume *consume);
void pr_consume_close(struct pr_consume *consume);

/* statement.c: for pr_relay_config.handler; context is a struct pr_consume_config. */
int pr_statement_open(void *context, struct pr_sink **ret, struct pr_err *err);

/* intake.c */
struct pr_intake {
	struct pr_pulse pulse; /* stands first: who hears it beat finds the intake */
	const struct pr_consume_config *config;
	const struct pr_stop *stop;
	struct pr_relay *relay; /* whose totals and log it shares */
	int status; /* how it ended: POSTROOM_OK also when the source has come to its end */
	struct pr_err err;
	char name[32];

	struct pr_source *source;
	struct postroom_store *store; /* NULL while the database is away */
	struct pr_events events;
	struct pr_arrival *arrivals;
	size_t capacity;
	struct pr_log log;
	struct pr_random random;
	struct pr_arena scratch;
	int64_t source_away_us, database_away_us; /* since when; 0: they are there */
	int64_t kept_us; /* when the broker has last heard of what is at hand */
	bool at_hand;	 /* events are read and not in the inbox yet */
	bool gave_up;	 /* a drain has waited long enough for somebody */
};

/* The source is opened, and connects to nothing yet. */
int pr_intake_open(struct pr_intake *intake, struct pr_err *err);
/* A thread's body. */
void *pr_intake_run(void *intake);
void pr_intake_close(struct pr_intake *intake);

#endif
