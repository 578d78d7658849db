/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP connection, for sinks whose library would wait for it without an end.
 *
 * 1. It is given up at until_us, and at once when a stop is requested: nothing
 *    has begun yet.
 * 2. The descriptor is never inherited by what exec: starts.
 * 3. A far side that vanishes without a word is noticed by the kernel too.
 */
#include "base/time.h"
#include "sink/sink.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_MAX 65535

int pr_sink_address(const struct pr_sink *sink, int port, struct pr_address *ret,
		    struct pr_err *err)
{
	const char *host = sink->url.host, *end, *colon;
	char *rest;
	long number;

	if (host[0] == '[') {
		end = strchr(++host, ']');
		colon = end && end[1] == ':' ? end + 1 : NULL;
	} else {
		colon = strchr(host, ':');
		end = colon ? colon : host + strlen(host);
	}
	if (!end || end == host || (size_t)(end - host) >= sizeof(ret->host))
		return pr_err_set(err, POSTROOM_SINK, "%s needs a host, as in %s",
				  sink->ops->schemes[0], sink->ops->example);
	snprintf(ret->host, sizeof(ret->host), "%.*s", (int)(end - host), host);
	ret->port = port;
	if (!colon)
		return POSTROOM_OK;
	number = strtol(colon + 1, &rest, 10);
	if (colon[1] < '0' || colon[1] > '9' || *rest || number < 1 || number > PORT_MAX)
		return pr_err_set(err, POSTROOM_SINK, "%s: \"%.20s\" is no port from 1 to %d",
				  sink->ops->schemes[0], colon + 1, PORT_MAX);
	ret->port = (int)number;
	return POSTROOM_OK;
}

static int begin_connect(const struct addrinfo *address, int64_t timeout_ms)
{
	static const int yes = 1;
	unsigned int limit_ms = timeout_ms > INT32_MAX ? INT32_MAX : (unsigned int)timeout_ms;
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms));
	if (connect(fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* errno says why not. */
static bool await_connect(int fd, const struct pr_flight *flight, int64_t until_us)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = fd, .events = POLLOUT } };
	int error = 0;
	socklen_t len = sizeof(error);

	do {
		if (pr_stop_requested(flight->stop) || pr_mono_us() >= until_us) {
			errno = ETIMEDOUT;
			return false;
		}
		pr_flight_poll(flight, fds, 2, until_us);
	} while (!fds[1].revents);
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	errno = error;
	return error == 0;
}

int pr_flight_dial(const struct pr_flight *flight, const struct pr_address *to, int64_t until_us,
		   int *ret_fd, struct pr_err *err)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	char port[16];
	int fd = -1, error, left = 0;

	snprintf(port, sizeof(port), "%d", to->port);
	error = getaddrinfo(to->host, port, &hints, &list);
	if (error)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the host \"%s\" is not found: %s",
				  to->host, gai_strerror(error));
	for (struct addrinfo *at = list; at; at = at->ai_next)
		left++;
	for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next, left--) {
		int64_t now_us = pr_mono_us();

		fd = begin_connect(at, flight->timeout_ms);
		/* An address that does not answer leaves the others their part of the time. */
		if (fd >= 0 && !await_connect(fd, flight, now_us + (until_us - now_us) / left)) {
			error = errno;
			close(fd);
			fd = -1;
			errno = error;
		}
	}
	error = errno;
	freeaddrinfo(list);
	if (fd >= 0) {
		*ret_fd = fd;
		return POSTROOM_OK;
	}
	if (pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before there was a connection");
	errno = error;
	return pr_err_errno(err, POSTROOM_UNAVAILABLE, "no connection to %s port %d", to->host,
			    to->port);
}
