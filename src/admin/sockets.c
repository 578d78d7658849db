/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets of all connections.
 *
 * 1. libmicrohttpd 0.9.75 crashes if it is stopped while it answers a malformed request: it takes
 *    that answer for queued, although it has dropped it. So all connections are ended before.
 * 2. A socket leaves the list before it is closed: a descriptor of the list is never another's.
 * 3. Slow clients do not keep others out: beyond the limits, the connection that has waited longest
 *    for its client makes room. A byte now and then is no progress; only a whole request is.
 */
#include "admin/server.h"

#include "base/time.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define STEP_US 20000
/* Answers that are being sent have the first part of the time. */
#define SEND_US 200000
#define END_US 5000000

void pr_sockets_init(struct pr_admin_sockets *sockets)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&sockets->lock, NULL);
	pthread_cond_init(&sockets->closed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

/* Of IPv6 the network: one client may have all addresses of it. */
static void read_address(const struct sockaddr *client, unsigned char out[16])
{
	memset(out, 0, 16);
	if (client && client->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const void *)client;

		memcpy(out, &v4->sin_addr, sizeof(v4->sin_addr));
	} else if (client && client->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)client;

		memcpy(out, &v6->sin6_addr, IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) ? 16 : 8);
	}
}

/* Counts connections, all or those of one address, and finds the one that has waited longest. */
static size_t count_sockets(struct pr_admin_sockets *sockets, const unsigned char *address,
			    struct pr_admin_socket **ret_longest)
{
	size_t count = 0;

	*ret_longest = NULL;
	for (size_t i = 0; i < PR_ADMIN_SOCKETS; i++) {
		struct pr_admin_socket *socket = &sockets->sockets[i];

		if (!socket->open || socket->ended ||
		    (address && memcmp(socket->address, address, 16) != 0))
			continue;
		count++;
		if (socket->waits_us &&
		    (!*ret_longest || socket->waits_us < (*ret_longest)->waits_us))
			*ret_longest = socket;
	}
	return count;
}

static void end_longest(struct pr_admin_sockets *sockets, const unsigned char *address,
			size_t limit)
{
	struct pr_admin_socket *longest;

	if (count_sockets(sockets, address, &longest) <= limit || !longest)
		return;
	longest->ended = true;
	shutdown(longest->fd, SHUT_RDWR);
}

struct pr_admin_socket *pr_sockets_add(struct pr_admin_sockets *sockets, int fd,
				       const struct sockaddr *client)
{
	struct pr_admin_socket *socket = NULL;

	pthread_mutex_lock(&sockets->lock);
	for (size_t i = 0; !socket && i < PR_ADMIN_SOCKETS; i++) {
		if (!sockets->sockets[i].open)
			socket = &sockets->sockets[i];
	}
	if (socket) {
		*socket = (struct pr_admin_socket){ .fd = fd,
						    .open = true,
						    .waits_us = pr_mono_us() };
		read_address(client, socket->address);
		end_longest(sockets, socket->address, PR_ADMIN_ADDRESS_CONNECTIONS);
		end_longest(sockets, NULL, PR_ADMIN_CONNECTIONS);
	}
	pthread_mutex_unlock(&sockets->lock);
	return socket;
}

void pr_sockets_remove(struct pr_admin_sockets *sockets, struct pr_admin_socket *socket)
{
	pthread_mutex_lock(&sockets->lock);
	socket->open = false;
	pthread_cond_signal(&sockets->closed);
	pthread_mutex_unlock(&sockets->lock);
}

static void set_waits(struct pr_admin_sockets *sockets, struct pr_admin_socket *socket,
		      int64_t waits_us)
{
	if (!socket)
		return;
	pthread_mutex_lock(&sockets->lock);
	socket->waits_us = waits_us;
	pthread_mutex_unlock(&sockets->lock);
}

void pr_sockets_serve(struct pr_admin_sockets *sockets, struct pr_admin_socket *socket)
{
	set_waits(sockets, socket, 0);
}

void pr_sockets_wait(struct pr_admin_sockets *sockets, struct pr_admin_socket *socket)
{
	set_waits(sockets, socket, pr_mono_us());
}

/* Returns how many there were. */
static size_t shut_down(struct pr_admin_sockets *sockets, int how)
{
	size_t count = 0;

	for (size_t i = 0; i < PR_ADMIN_SOCKETS; i++) {
		if (!sockets->sockets[i].open)
			continue;
		shutdown(sockets->sockets[i].fd, how);
		count++;
	}
	return count;
}

void pr_sockets_end(struct pr_admin_sockets *sockets)
{
	int64_t begun_us = pr_mono_us(), now_us;

	pthread_mutex_lock(&sockets->lock);
	while ((now_us = pr_mono_us()) - begun_us < END_US) {
		int64_t until_us = now_us + STEP_US;
		const struct timespec until = { .tv_sec = until_us / 1000000,
						.tv_nsec = until_us % 1000000 * 1000 };

		/* Again in each step: one may have been accepted meanwhile. */
		if (shut_down(sockets, now_us - begun_us < SEND_US ? SHUT_RD : SHUT_RDWR) == 0)
			break;
		pthread_cond_timedwait(&sockets->closed, &sockets->lock, &until);
	}
	pthread_mutex_unlock(&sockets->lock);
}

void pr_sockets_release(struct pr_admin_sockets *sockets)
{
	pthread_cond_destroy(&sockets->closed);
	pthread_mutex_destroy(&sockets->lock);
}
