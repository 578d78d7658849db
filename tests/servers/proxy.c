/* SPDX-License-Identifier: Apache-2.0 */
#include "servers/proxy.h"

#include "harness.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 2 /* a change of mode is seen after this */

static void hang_up(struct proxy_link *link)
{
	close(link->client);
	close(link->server);
	*link = (struct proxy_link){ .client = -1, .server = -1 };
}

static void take(struct proxy *proxy)
{
	static const int yes = 1;
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((in_port_t)proxy->to),
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(server, (struct sockaddr *)&address, sizeof(address)) == 0) {
		for (size_t i = 0; i < PROXY_LINKS; i++) {
			if (proxy->links[i].client < 0) {
				proxy->links[i] = (struct proxy_link){ client, server, false };
				return;
			}
		}
	}
	close(client);
	close(server);
}

static bool send_all(int fd, const char *data, size_t len, size_t step)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len < step ? len : step, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

/* False: the connection is over. */
static bool pass(struct proxy *proxy, int from, int to, bool answer)
{
	enum proxy_mode mode = proxy->mode;
	char data[16384];
	ssize_t n = recv(from, data, mode == PROXY_BYTES ? 512 : sizeof(data), 0);

	if (n <= 0)
		return false;
	if (answer && (mode == PROXY_MUTE || mode == PROXY_CUT)) {
		proxy->muted += (size_t)n;
		return mode == PROXY_MUTE;
	}
	if (mode == PROXY_DELAY)
		nanosleep(&(struct timespec){ .tv_nsec = 3 * 1000 * 1000 }, NULL);
	if (!send_all(to, data, (size_t)n, mode == PROXY_BYTES ? 1 : sizeof(data)))
		return false;
	if (!answer)
		proxy->requested += (size_t)n;
	else if (mode == PROXY_ONCE)
		proxy->mode = PROXY_MUTE;
	return true;
}

static void serve(struct proxy *proxy, struct proxy_link *link, const struct pollfd fds[2])
{
	bool alive = true;

	if (fds[0].revents)
		alive = pass(proxy, link->client, link->server, false);
	if (alive && fds[1].revents)
		alive = pass(proxy, link->server, link->client, true);
	if (!alive) {
		hang_up(link);
		proxy->ended++;
	}
}

static void *run(void *context)
{
	struct proxy *proxy = context;

	while (!proxy->ending) {
		struct pollfd fds[1 + 2 * PROXY_LINKS];
		bool stall;

		fds[0] = (struct pollfd){ .fd = proxy->listener, .events = POLLIN };
		for (size_t i = 0; i < PROXY_LINKS; i++) {
			struct proxy_link *link = &proxy->links[i];
			bool notify_unavailable = link->stalled;

			fds[1 + 2 * i] = (struct pollfd){ notify_unavailable ? -1 : link->client,
							  POLLIN, 0 };
			fds[2 + 2 * i] = (struct pollfd){ notify_unavailable ? -1 : link->server,
							  POLLIN, 0 };
		}
		poll(fds, 1 + 2 * PROXY_LINKS, LOOK_MS);
		stall = proxy->mode == PROXY_STALL;
		for (size_t i = 0; i < PROXY_LINKS; i++) {
			struct proxy_link *link = &proxy->links[i];

			if (stall && link->client >= 0)
				link->stalled = true;
			if (link->client >= 0 && !link->stalled)
				serve(proxy, link, &fds[1 + 2 * i]);
		}
		if (stall)
			proxy->mode = PROXY_PASS;
		if (fds[0].revents)
			take(proxy);
	}
	return NULL;
}

void proxy_start(struct proxy *proxy, int to)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(address);

	*proxy = (struct proxy){ .to = to };
	for (size_t i = 0; i < PROXY_LINKS; i++)
		proxy->links[i] = (struct proxy_link){ .client = -1, .server = -1 };
	proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(proxy->listener >= 0);
	CHECK(bind(proxy->listener, (struct sockaddr *)&address, len) == 0);
	CHECK(listen(proxy->listener, PROXY_LINKS) == 0);
	CHECK(getsockname(proxy->listener, (struct sockaddr *)&address, &len) == 0);
	proxy->port = ntohs(address.sin_port);
	CHECK(pthread_create(&proxy->thread, NULL, run, proxy) == 0);
}

void proxy_end(struct proxy *proxy)
{
	proxy->ending = true;
	pthread_join(proxy->thread, NULL);
	for (size_t i = 0; i < PROXY_LINKS; i++) {
		if (proxy->links[i].client >= 0)
			hang_up(&proxy->links[i]);
	}
	close(proxy->listener);
}
