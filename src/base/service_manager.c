/* SPDX-License-Identifier: Apache-2.0 */
#include "base/service_manager.h"

#include "base/text.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* "/path", or "@name" for an abstract socket, whose first byte is NUL instead. */
static int read_address(struct pr_service_manager *notify, const char *name, struct pr_err *err)
{
	struct sockaddr_un *address = &notify->address;
	size_t len = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || len < 2)
		return pr_err_set(err, POSTROOM_INVALID,
				  "NOTIFY_SOCKET \"%.100s\" is neither a path nor @NAME; the "
				  "service manager is not notified",
				  name);
	if (len >= sizeof(address->sun_path))
		return pr_err_set(err, POSTROOM_INVALID,
				  "NOTIFY_SOCKET \"%.100s…\" is longer than the %zu bytes of a "
				  "socket name; the service manager is not notified",
				  name, sizeof(address->sun_path) - 1);
	address->sun_family = AF_UNIX;
	memcpy(address->sun_path, name, len);
	if (name[0] == '@')
		address->sun_path[0] = '\0';
	notify->address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	return POSTROOM_OK;
}

/* Returns 0 if the text is not a number: then no watchdog is expected. */
static int64_t read_number(const char *text)
{
	char *end;
	long long value;

	if (!text || *text < '0' || *text > '9')
		return 0;
	errno = 0;
	value = strtoll(text, &end, 10);
	return *end || errno ? 0 : value;
}

static void read_watchdog(struct pr_service_manager *notify)
{
	const char *pid = getenv("WATCHDOG_PID");
	int64_t usec = read_number(getenv("WATCHDOG_USEC"));

	if (!pid || read_number(pid) == getpid())
		notify->watchdog_ms = usec / 1000;
}

int pr_service_manager_init(struct pr_service_manager *notify, struct pr_err *err)
{
	const char *name = getenv("NOTIFY_SOCKET");
	int status = POSTROOM_OK;

	*notify = (struct pr_service_manager){ .fd = -1 };
	if (name && *name) {
		read_watchdog(notify);
		status = read_address(notify, name, err);
		if (status >= 0)
			notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (status >= 0 && notify->fd < 0)
			status = pr_err_errno(err, POSTROOM_NOMEM,
					      "creating a socket for NOTIFY_SOCKET");
	}
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	return status;
}

void pr_service_manager_release(struct pr_service_manager *notify)
{
	if (notify->fd >= 0)
		close(notify->fd);
	notify->fd = -1;
}

bool pr_service_manager_send(const struct pr_service_manager *notify, const char *lines)
{
	if (notify->fd < 0)
		return true;
	return sendto(notify->fd, lines, strlen(lines), MSG_DONTWAIT | MSG_NOSIGNAL,
		      (const struct sockaddr *)&notify->address, notify->address_len) >= 0;
}

bool pr_service_manager_status(const struct pr_service_manager *notify, const char *text)
{
	static const char name[] = "STATUS=";
	char line[600];

	memcpy(line, name, sizeof(name));
	pr_utf8_sanitize(text, strlen(text), SIZE_MAX, line + strlen(name),
			 sizeof(line) - strlen(name));
	/* A line break would begin another assignment. */
	for (char *at = line; *at; at++) {
		if ((unsigned char)*at < ' ')
			*at = ' ';
	}
	return pr_service_manager_send(notify, line);
}

bool pr_service_manager_reloading(const struct pr_service_manager *notify)
{
	struct timespec now;
	char lines[80];

	/* The manager's clock, by which it distinguishes this reload from an earlier one. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(lines, sizeof(lines), "RELOADING=1\nMONOTONIC_USEC=%lld",
		 (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	return pr_service_manager_send(notify, lines);
}
