/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Supervision of the relay: reports its state to the service manager (systemd, or
 * another listener at $NOTIFY_SOCKET), feeds the watchdog only while every thread
 * is alive, and reaps orphaned processes. Only the main thread calls these functions.
 */
#ifndef PR_CLI_SUPERVISE_H
#define PR_CLI_SUPERVISE_H

#include "cli/cli.h"

#include "base/service_manager.h"
#include "relay/relay.h"

struct cli_supervisor {
	struct cli *cli;
	const char *name; /* name of the command, for messages */
	struct pr_service_manager manager;
	bool ready;	       /* READY was sent to the manager */
	bool stopping;	       /* STOPPING was sent */
	bool watchdog_overdue; /* a thread does not feed its watchdog */
	int64_t looked_us;
	int64_t fed_us;	   /* when the watchdog was last fed */
	int64_t status_us; /* when the status was last sent */
	char status[500];
};

/* Before any thread starts. */
void cli_supervise_begin(struct cli_supervisor *supervisor, struct cli *cli, const char *name);

/* Call it periodically; relay is NULL until it is open. */
void cli_supervise_check(struct cli_supervisor *supervisor, struct pr_relay *relay);

/* Call these before and after a reload. */
void cli_supervise_reloading(struct cli_supervisor *supervisor);
void cli_supervise_reloaded(struct cli_supervisor *supervisor);

void cli_supervise_stopping(struct cli_supervisor *supervisor);
void cli_supervise_end(struct cli_supervisor *supervisor, bool well);

#endif
