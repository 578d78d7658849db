/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling the service manager how we are: datagrams of NAME=value lines to the
 * socket that $NOTIFY_SOCKET names, as systemd and others understand them. For
 * one thread; without that variable everything here does nothing.
 */
#ifndef PR_BASE_NOTIFY_H
#define PR_BASE_NOTIFY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct pr_notify {
	int fd; /* -1: nobody listens */
	struct sockaddr_un address;
	socklen_t address_len;
	int64_t watchdog_ms; /* how often a sign of life is awaited at least; 0: not at all */
};

/*
 * Takes $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID out of the environment,
 * so that no child speaks in our name: to be called before threads start. After a
 * failure it may be used as if nobody listened.
 */
int pr_notify_init(struct pr_notify *notify, struct pr_err *err);
void pr_notify_release(struct pr_notify *notify);

/* Never waits. False if it could not be sent; true too if nobody listens. */
bool pr_notify_send(const struct pr_notify *notify, const char *lines);

/* STATUS=, for people: made one line of well-formed text, whatever it was. */
bool pr_notify_status(const struct pr_notify *notify, const char *text);

/* RELOADING=1; to be followed by READY=1. */
bool pr_notify_reloading(const struct pr_notify *notify);

#endif
