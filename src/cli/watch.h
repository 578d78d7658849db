/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command does around a relay that runs until it is told to stop. Signals
 * are blocked in every thread and taken by the main one, which does nothing else
 * but watch over the others (and draw a bar): so they can come at any time, while
 * the database is being opened too. It has to be the main one: orphans that
 * process 1 of a container inherits become that thread's children.
 */
#ifndef PR_CLI_WATCH_H
#define PR_CLI_WATCH_H

#include "cli/supervise.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct cli_watch {
	struct cli *cli; /* its log is of the box that the relay works on */
	const char *name; /* of the command, for messages */
	void *context;
	/* Opens a relay, shows it with cli_watch_relay() and runs it, in a thread of its own. */
	int (*run)(struct cli_watch *watch, struct pr_err *err);
	/* On SIGHUP, besides the sinks that open their files again; NULL: nothing. */
	void (*reload)(struct cli_watch *watch, struct pr_relay *relay);

	/* The rest is the watch's own. */
	pthread_t thread;
	pthread_t watcher;
	sigset_t set;
	struct cli_supervisor supervisor;
	struct pr_relay *_Atomic relay; /* NULL until it is open */
	atomic_bool finished;		/* and status and err tell how */
	int status;
	struct pr_err err;
	bool stopping;
	bool hung_up;	  /* while it was being opened: to be done when it is */
	atomic_bool draw; /* the bar; progress is set up before */
	struct cli_progress progress;
};

/*
 * Until run() has returned; returns the command's exit status, having said what was
 * wrong. What run() has opened is the caller's to close after it.
 */
int cli_watch(struct cli_watch *watch);

/* From run(): the relay is open. Signals reach it from now on. */
void cli_watch_relay(struct cli_watch *watch, struct pr_relay *relay);

/* Before that, if a bar is to show how far it is with so many. */
void cli_watch_draw(struct cli_watch *watch, const char *label, int64_t total);

#endif
