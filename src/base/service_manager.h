/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status messages for the service manager: datagrams of NAME=value lines to the socket in
 * $NOTIFY_SOCKET, as systemd and others read them. For one thread. Without that variable, every
 * function here does nothing.
 */
#ifndef PR_BASE_SERVICE_MANAGER_H
#define PR_BASE_SERVICE_MANAGER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct pr_service_manager {
	int fd; /* -1: there is no socket */
	struct sockaddr_un address;
	socklen_t address_len;
	int64_t watchdog_ms; /* watchdog interval of the service manager; 0: no watchdog */
};

/*
 * Removes $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID from the environment, so that no child
 * process can send messages as us. Call it before threads start. After a failure, the struct can
 * be used as if there were no socket.
 */
int pr_service_manager_init(struct pr_service_manager *notify, struct pr_err *err);
void pr_service_manager_release(struct pr_service_manager *notify);

/* Never waits. False: the message could not be sent. True if there is no socket. */
bool pr_service_manager_send(const struct pr_service_manager *notify, const char *lines);

/* STATUS=, for people. The text is converted into one line of valid UTF-8. */
bool pr_service_manager_status(const struct pr_service_manager *notify, const char *text);

/* RELOADING=1; to be followed by READY=1. */
bool pr_service_manager_reloading(const struct pr_service_manager *notify);

#endif
