/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer: intakes read events from a broker into the inbox, and a relay over the inbox passes
 * each event to a handler once.
 */
#ifndef PR_CONSUME_CONSUME_H
#define PR_CONSUME_CONSUME_H

#include "consume/event.h"
#include "consume/replay.h"
#include "relay/relay.h"

struct pr_consume_config {
	struct pr_relay_config relay; /* over the inbox; scope.ns is the handler */
	const char *from;	      /* NULL: only submitted commands */
	const char *statement; /* run for each event, in one transaction; NULL: the relay's sink */
	struct pr_identity identity;
	bool ordered;
	bool accept_replay; /* --accept-replay: accept events whose rows were purged */
	bool drain;	    /* end when the source has no more events and every job is finished */
	size_t batch_size;  /* number of intakes */
	/* Runs beside the relay from its creation, and is closed before it. open may be NULL. */
	struct {
		int (*open)(void *context, struct pr_relay *relay, struct pr_err *err);
		void (*close)(void *context);
		void *context;
	} beside;
};

struct pr_consume;

/* The configuration's pointers must outlive the consumer. Waits for a database that is down. */
int pr_consume_open(const struct pr_consume_config *config, struct pr_consume **ret,
		    struct pr_err *err);
/* Runs until its relay is stopped, or until a drain is complete. */
int pr_consume_run(struct pr_consume *consume, struct pr_err *err);
struct pr_relay *pr_consume_relay(struct pr_consume *consume);
void pr_consume_close(struct pr_consume *consume);

/* statement.c: for pr_relay_config.handler; context is a struct pr_consume_config. */
int pr_statement_open(void *context, struct pr_sink **ret, struct pr_err *err);

/* intake.c */
struct pr_intake {
	struct pr_watchdog watchdog; /* must be the first member: the watchdog's callback finds
				      * the intake by it */
	const struct pr_consume_config *config;
	const struct pr_stop *stop;
	struct pr_relay *relay; /* the intake shares its totals and log */
	size_t sharers;		/* intakes of this consumer, which share PR_SOURCE_BYTES */
	int status;		/* result: POSTROOM_OK also when the source has ended */
	struct pr_err err;
	char name[32];

	struct pr_source *source;
	struct postroom_store *store; /* NULL during an outage of the database */
	struct pr_events events;
	struct pr_replay replay;
	struct pr_incoming_event *incoming_events;
	size_t capacity;
	struct pr_log log;
	struct pr_random random;
	struct pr_arena scratch;
	int64_t source_outage_us, database_outage_us; /* since when; 0: no outage */
	int64_t extended_us; /* when the lease of the current batch was last extended */
	bool unacked;	     /* events were read and are not in the inbox yet */
	bool gave_up;	     /* a drain has waited long enough for the database or broker */
};

/* Opens the source, without connecting yet. */
int pr_intake_open(struct pr_intake *intake, struct pr_err *err);
/* The thread's main function. */
void *pr_intake_run(void *intake);
void pr_intake_close(struct pr_intake *intake);

#endif
