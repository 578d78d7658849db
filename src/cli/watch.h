/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a relay until a signal stops it. Signals are blocked in all threads except
 * the main thread, which only supervises the others and draws a progress bar. So
 * signals are handled at any time, also while the database is being opened. It must
 * be the main thread: orphans that process 1 of a container inherits become children
 * of that thread.
 */
#ifndef PR_CLI_WATCH_H
#define PR_CLI_WATCH_H

#include "cli/supervise.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct cli_watch {
	struct cli *cli;  /* with the log of the box of the relay */
	const char *name; /* name of the command, for messages */
	void *context;
	/* Opens a relay, passes it to cli_watch_relay() and runs it, in a separate thread. */
	int (*run)(struct cli_watch *watch, struct pr_err *err);
	/* Called on SIGHUP, in addition to reopening the files of sinks; may be NULL. */
	void (*reload)(struct cli_watch *watch, struct pr_relay *relay);

	/* The other members are private. */
	pthread_t thread;
	pthread_t watcher;
	sigset_t set;
	struct cli_supervisor supervisor;
	struct pr_relay *_Atomic relay; /* NULL until it is open */
	atomic_bool finished;		/* see status and err */
	int status;
	struct pr_err err;
	bool stopping;
	bool hung_up;	  /* SIGHUP came before the relay was open; handled afterwards */
	atomic_bool draw; /* show a progress bar; progress is initialized before */
	struct cli_progress progress;
};

/*
 * Waits until run() has returned, reports its error and returns the exit status. The
 * caller then closes everything that run() has opened.
 */
int cli_watch(struct cli_watch *watch);

/* Called by run(): the relay is open and receives signals from now on. */
void cli_watch_relay(struct cli_watch *watch, struct pr_relay *relay);

/* Called by run() before that, to show a progress bar for this many messages. */
void cli_watch_draw(struct cli_watch *watch, const char *label, int64_t total);

#endif
