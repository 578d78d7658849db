/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole relay, on one thread and in virtual time.
 *
  * It runs src/relay as it is, from pr_relay_run() on. The linker puts ours in
 * the place of the clock, of randomness, of threads (here: coroutines, one of which
 * runs at a time), of the database and of the sink. All that happens follows from a
 * seed: the settings, the messages, how long everything takes, and what fails.
 *
 *	sim.c	  a seed's settings, and what is true of every end
 *	process.c relays: begun, killed, frozen, stopped, reloaded
 *	sched.c	  coroutines and the clock
 *	store.c	  the model of a database
  *	sink.c	  the receiver
 *
 * tests/sim/mutations breaks the relay in one place after the other; each break
 * must be found by some seed.
 */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include "relay/worker.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <ucontext.h>

#define ROWS_MAX 400
#define SINKS_MAX 2
#define PROCESSES_MAX 3
#define NEVER INT64_MAX
#define SECOND 1000000LL

struct process;

enum row_status { PENDING, PROCESSING, DELIVERED, DEAD };

/* The effect of a message on every attempt. */
enum poison {
	HARMLESS,
	FAILS, /* it fails */
	DROPS, /* it cannot reach the sink */
	KILLS, /* the same, and it takes others of its call along */
	POISONS
};

/* A message: what the database has of it, and what really happened to it. */
struct row {
	int64_t seq;
	size_t sink;
	char id[16], key[8]; /* key "": none */
	enum row_status status;
	int32_t attempts;
	int64_t claims;
	char owner[PR_UUID_SIZE];
	int64_t until_us, due_us, created_us;

	struct process *process; /* who claimed it last, */
	int life;		 /* its how many-th, */
	int64_t claimed_us;	 /* and when */
	postroom_verdict said;	 /* by the sink, of this claim */
	bool arrived;		 /* with this claim, whatever the sink said */
	int incoming_events;
	int excused; /* deliveries that a fault explains */
	int spent;   /* tries that really failed, or were cut off */
	bool rejected;
	enum poison poison;
	int64_t outage_us; /* when the call began in which it first could not reach the sink */
	size_t lost_with;  /* messages that failed together in its last call, itself included */
};

enum outage_kind { REFUSING, FAILING, HANGING, OUTAGE_KINDS };

/* How a sink behaves, in thousandths. */
struct receiver {
	bool server;
	int fails, rejects, loses_answers, hangs, declines, unreachable;
	int64_t latency_us; /* at most, but for a slow one */
	int slow;
	int64_t outage_begin_us, outage_end_us;
	enum outage_kind outage;
	int64_t concurrency;
	double rate;
	int64_t delivered_us; /* when something was last delivered */
};

struct world {
	uint64_t seed, random;
	bool verbose;
	int64_t now_us;
	int64_t calm_us; /* no fault is injected from here on */
	struct pr_relay_config config;
	struct pr_relay_sink sinks[SINKS_MAX];
	struct pr_relay_route routes[SINKS_MAX];
	struct receiver far[SINKS_MAX];
	size_t sink_count;
	struct row rows[ROWS_MAX];
	size_t row_count;
	int db_fails, db_loses_answers; /* thousandths of the statements */
	int64_t db_latency_us, db_outage_us, db_back_us;
	bool stalls;	/* a processor that now and then does something else */
	bool none_dies; /* there are only outages: no message may die of them */
	bool changed;	/* a message may have been finished */
	int64_t logged; /* delivered, as the relays count */
	size_t process_count;
	int64_t steps;
};
extern struct world world;

/* sched.c */
struct task {
	ucontext_t context;
	struct process *process;
	struct pr_worker *worker; /* NULL: it is none */
	void *(*body)(void *);
	void *argument;
	int64_t wake_us;
	const struct pr_stop *stop; /* its request ends the sleep */
	const void *waits_for;
	struct pollfd *fds; /* what it polls for, as of so many writes */
	nfds_t fd_count;
	unsigned writes;
	int held; /* locks */
	bool used, done;
	char *stack;

	int64_t claim_sent_us;
	bool publishing;
	int64_t probe_since_us; /* when it was let through, if it probes */
	int64_t open_claim_us;	/* the outage in which it has claimed without having to probe */
};
#define TASKS_MAX 96
extern struct task tasks[TASKS_MAX];
extern struct task *current; /* NULL: the scheduler */

void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define ENSURE(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail(__VA_ARGS__);                                                         \
	} while (0)

uint64_t draw(void);
int64_t between(int64_t low, int64_t high);
bool chance(int thousandths);

struct task *task_begin(struct process *process, void *(*body)(void *), void *argument);
void task_end(struct task *task);
/* Lets others run until then, or until stop is requested, if there is one. */
void sleep_until(int64_t wake_us, const struct pr_stop *stop);
void sleep_for(int64_t us);
/* Runs the next task, if that is before until_us; false: there is none. */
bool run_next(int64_t until_us);

/* process.c: one relay of the operating system's, in many lives. */
struct process {
	int number, life;
	struct pr_relay *relay; /* NULL: it does not run */
	struct task *main;
	int status;
	int64_t begin_us; /* when it is to begin */
	int64_t began_us;
	int64_t frozen_until_us;
	int64_t stopped_us; /* when it was asked to; NEVER: not yet */
	int64_t grace_us;
	int64_t fault_us; /* when something last kept it from its work */
	int fault_in;	  /* steps */
	int faults_left;
	bool killed;
	int64_t in_hand[SINKS_MAX]; /* what the sink may have of it at once */
	int64_t begun[SINKS_MAX];
};
extern struct process processes[PROCESSES_MAX];

void process_begin(struct process *process);
/* It has been killed, or has ended: cleans up, and sees whether it left everything in order. */
void process_reap(struct process *process);
void process_stop(struct process *process);
/* Called wherever a process could be interrupted. */
void process_step(void);

/* store.c */
int store_open(const struct pr_store_config *config, struct postroom_store **ret,
	       struct pr_err *err);
struct row *row_add(size_t sink, const char *key, enum poison poison);
bool row_finished(const struct row *row);
bool all_finished(void);

/* sink.c */
struct pr_sink *receiver_open(size_t number);

#endif
