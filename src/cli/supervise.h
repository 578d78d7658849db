/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The relay's side of being supervised: tells the service manager (systemd, or
 * whatever listens at $NOTIFY_SOCKET) how it is, feeds the watchdog only while
 * every thread is alive, and reaps what nobody else does. All from the main
 * thread.
 */
#ifndef PR_CLI_SUPERVISE_H
#define PR_CLI_SUPERVISE_H

#include "cli/cli.h"

#include "base/notify.h"
#include "relay/relay.h"

struct cli_supervisor {
	struct cli *cli;
	const char *name; /* of the command, for messages */
	struct pr_notify notify;
	bool ready;    /* the manager knows that we run */
	bool stopping; /* and that we stop */
	bool silent;   /* a thread is not heard of */
	int64_t looked_us;
	int64_t fed_us;	 /* the watchdog */
	int64_t told_us; /* the status */
	char status[500];
};

/* Before any thread starts. */
void cli_supervise_begin(struct cli_supervisor *supervisor, struct cli *cli, const char *name);

/* To be called all the time; relay is NULL until it is open. */
void cli_supervise_look(struct cli_supervisor *supervisor, struct pr_relay *relay);

/* Around what SIGHUP does. */
void cli_supervise_reloading(struct cli_supervisor *supervisor);
void cli_supervise_reloaded(struct cli_supervisor *supervisor);

void cli_supervise_stopping(struct cli_supervisor *supervisor);
void cli_supervise_end(struct cli_supervisor *supervisor, bool well);

#endif
