/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP connection, for sinks whose library would wait without a deadline.
 *
 * 1. It ends at until_us, and immediately when a stop is requested: nothing has begun yet.
 * 2. Commands of exec: never inherit the descriptor.
 * 3. The kernel detects a receiver that disappears.
 * 4. libc resolves names without a timeout, so a thread does it. The thread touches only its
 *    lookup, and the last owner frees it. An address has one lookup at a time: a result that is
 *    too late for one call is used by the next.
 */
#include "base/time.h"
#include "net/flight.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_MAX 65535

/* A late answer of a slow name server is still valid for the next call, but not indefinitely. */
#define GOOD_FOR_US 60000000

struct pr_lookup {
	atomic_int owners;
	atomic_bool done;
	int done_fd;
	int error;	 /* what getaddrinfo() returned */
	int64_t done_us; /* and when */
	struct addrinfo *list;
	char host[sizeof(((struct pr_address *)0)->host)];
	char port[16];
};

int pr_address_parse(const struct pr_url *url, const char *host, int port, struct pr_address *ret,
		     struct pr_err *err)
{
	const char *end, *colon;
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
		return pr_err_set(err, POSTROOM_SINK, "%s needs a host, as in %s://localhost:%d/…",
				  url->scheme, url->scheme, port);
	snprintf(ret->host, sizeof(ret->host), "%.*s", (int)(end - host), host);
	ret->port = port;
	if (!colon)
		return POSTROOM_OK;
	number = strtol(colon + 1, &rest, 10);
	if (colon[1] < '0' || colon[1] > '9' || *rest || number < 1 || number > PORT_MAX)
		return pr_err_set(err, POSTROOM_SINK, "%s: \"%.20s\" is not a port from 1 to %d",
				  url->scheme, colon + 1, PORT_MAX);
	ret->port = (int)number;
	return POSTROOM_OK;
}

static int find(const char *host, const char *port, int flags, struct addrinfo **ret)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
				  .ai_socktype = SOCK_STREAM,
				  .ai_flags = flags };

	return getaddrinfo(host, port, &hints, ret);
}

static void end_lookup(struct pr_lookup *lookup)
{
	if (!lookup || atomic_fetch_sub(&lookup->owners, 1) > 1)
		return;
	if (lookup->list)
		freeaddrinfo(lookup->list);
	close(lookup->done_fd);
	free(lookup);
}

void pr_address_release(struct pr_address *address)
{
	end_lookup(address->lookup);
	address->lookup = NULL;
}

static void *look_up(void *context)
{
	struct pr_lookup *lookup = context;

	lookup->error = find(lookup->host, lookup->port, 0, &lookup->list);
	lookup->done_us = pr_mono_us();
	atomic_store(&lookup->done, true);
	eventfd_write(lookup->done_fd, 1);
	end_lookup(lookup);
	return NULL;
}

static bool begin_thread(struct pr_lookup *lookup)
{
	pthread_attr_t attributes;
	pthread_t thread;
	bool begun;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	begun = pthread_create(&thread, &attributes, look_up, lookup) == 0;
	pthread_attr_destroy(&attributes);
	return begun;
}

static int begin_lookup(struct pr_address *to, const char *port, struct pr_err *err)
{
	struct pr_lookup *lookup = calloc(1, sizeof(*lookup));
	int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (!lookup || done_fd < 0) {
		if (done_fd >= 0)
			close(done_fd);
		free(lookup);
		return pr_err_nomem(err);
	}
	lookup->done_fd = done_fd;
	snprintf(lookup->host, sizeof(lookup->host), "%s", to->host);
	snprintf(lookup->port, sizeof(lookup->port), "%s", port);
	atomic_store(&lookup->owners, 2);
	if (!begin_thread(lookup)) {
		atomic_store(&lookup->owners, 1);
		end_lookup(lookup);
		return pr_err_nomem(err);
	}
	to->lookup = lookup;
	return POSTROOM_OK;
}

static int stopped(struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_STOPPED, "stopped before the connection was made");
}

static int await_lookup(const struct pr_flight *flight, const struct pr_address *to,
			int64_t until_us, struct pr_err *err)
{
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = to->lookup->done_fd, .events = POLLIN } };

	while (!atomic_load(&to->lookup->done)) {
		if (pr_stop_requested(flight->stop))
			return stopped(err);
		if (pr_mono_us() >= until_us)
			return pr_err_set(err, POSTROOM_UNAVAILABLE,
					  "the host \"%s\" was not found in time; check "
					  "the name servers of this machine",
					  to->host);
		pr_flight_poll(flight, fds, 2, until_us);
	}
	return POSTROOM_OK;
}

/* Returns the result of a lookup that an earlier call began, unless it failed or is too old. */
static bool is_stale(const struct pr_lookup *lookup)
{
	return atomic_load(&lookup->done) &&
	       (lookup->error || pr_mono_us() - lookup->done_us > GOOD_FOR_US);
}

/* Returns the addresses, for the caller to free. */
static int resolve(const struct pr_flight *flight, struct pr_address *to, int64_t until_us,
		   struct addrinfo **ret, struct pr_err *err)
{
	char port[16];
	int status = POSTROOM_OK, error;

	snprintf(port, sizeof(port), "%d", to->port);
	if (find(to->host, port, AI_NUMERICHOST, ret) == 0)
		return POSTROOM_OK;
	if (to->lookup && is_stale(to->lookup))
		pr_address_release(to);
	if (!to->lookup)
		status = begin_lookup(to, port, err);
	if (status == POSTROOM_OK)
		status = await_lookup(flight, to, until_us, err);
	if (status < 0)
		return status;
	error = to->lookup->error;
	*ret = to->lookup->list;
	to->lookup->list = NULL;
	pr_address_release(to);
	if (error)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the host \"%s\" was not found: %s",
				  to->host, gai_strerror(error));
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

/* On failure, errno is set. */
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

int pr_flight_dial(const struct pr_flight *flight, struct pr_address *to, int64_t until_us,
		   int *ret_fd, struct pr_err *err)
{
	struct addrinfo *list = NULL;
	int fd = -1, error, left = 0;

	if (resolve(flight, to, until_us, &list, err) < 0)
		return err->status;
	for (struct addrinfo *at = list; at; at = at->ai_next)
		left++;
	for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next, left--) {
		int64_t now_us = pr_mono_us();

		fd = begin_connect(at, flight->timeout_ms);
		/* An address that does not answer uses only its share of the time. */
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
		return stopped(err);
	errno = error;
	return pr_err_errno(err, POSTROOM_UNAVAILABLE, "cannot connect to %s port %d", to->host,
			    to->port);
}
