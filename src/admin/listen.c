/* SPDX-License-Identifier: Apache-2.0 */
/* Where the server listens: numbers only, so that no name server decides who may connect. */
#include "admin/settings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 64

static bool parse_port(const char *text, in_port_t *ret)
{
	size_t len = strspn(text, "0123456789");
	long port;

	if (len == 0 || len > 5 || text[len])
		return false;
	port = strtol(text, NULL, 10);
	if (port > 65535)
		return false;
	*ret = htons((in_port_t)port);
	return true;
}

static bool parse_host(struct pr_listen_address *address, in_port_t port)
{
	const char *host = strcmp(address->host, "localhost") == 0 ? "127.0.0.1" : address->host;

	if (inet_pton(AF_INET, host, &address->at.v4.sin_addr) == 1) {
		address->at.v4.sin_family = AF_INET;
		address->at.v4.sin_port = port;
		address->len = sizeof(address->at.v4);
		address->loopback = ntohl(address->at.v4.sin_addr.s_addr) >> 24 == 127;
		return true;
	}
	memset(&address->at, 0, sizeof(address->at));
	if (inet_pton(AF_INET6, host, &address->at.v6.sin6_addr) == 1) {
		address->at.v6.sin6_family = AF_INET6;
		address->at.v6.sin6_port = port;
		address->len = sizeof(address->at.v6);
		address->loopback = IN6_IS_ADDR_LOOPBACK(&address->at.v6.sin6_addr);
		return true;
	}
	return false;
}

int pr_listen_parse(const char *text, struct pr_listen_address *ret, struct pr_err *err)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	bool brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';
	struct pr_listen_address address = { 0 };
	in_port_t port;

	if (colon && parse_port(colon + 1, &port) && len > 0 && len < sizeof(address.host)) {
		snprintf(address.host, sizeof(address.host), "%.*s",
			 (int)(brackets ? len - 2 : len), text + brackets);
		if (parse_host(&address, port) &&
		    brackets == (address.at.any.sa_family == AF_INET6)) {
			*ret = address;
			return POSTROOM_OK;
		}
	}
	return pr_err_set(err, POSTROOM_INVALID,
			  "\"%.80s\" is not ADDR:PORT; examples: 127.0.0.1:8025, [::1]:8025, "
			  "0.0.0.0:8025",
			  text);
}

int pr_listen_open(const char *text, int *ret, struct pr_err *err)
{
	struct pr_listen_address address;
	int status = pr_listen_parse(text, &address, err);
	const int on = 1;
	int fd;

	if (status < 0)
		return status;
	fd = socket(address.at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return pr_err_errno(err, POSTROOM_INVALID, "admin: cannot listen on %s", text);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, &address.at.any, address.len) < 0 || listen(fd, BACKLOG) < 0) {
		bool used = errno == EADDRINUSE;

		status = pr_err_errno(err, POSTROOM_INVALID, "admin: cannot listen on %s", text);
		if (used)
			status = pr_err_set(err, POSTROOM_INVALID,
					    "admin: cannot listen on %s: the address is in use; "
					    "choose another port, or end the process that has it",
					    text);
		close(fd);
		return status;
	}
	*ret = fd;
	return POSTROOM_OK;
}

void pr_listen_name(int fd, char *out, size_t size)
{
	struct pr_listen_address address = { .len = sizeof(address.at) };
	char host[INET6_ADDRSTRLEN] = "?";
	int port = 0;

	if (getsockname(fd, &address.at.any, &address.len) == 0) {
		bool v6 = address.at.any.sa_family == AF_INET6;
		const void *raw = v6 ? (const void *)&address.at.v6.sin6_addr
				     : (const void *)&address.at.v4.sin_addr;

		inet_ntop(address.at.any.sa_family, raw, host, sizeof(host));
		port = ntohs(v6 ? address.at.v6.sin6_port : address.at.v4.sin_port);
	}
	snprintf(out, size, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}
