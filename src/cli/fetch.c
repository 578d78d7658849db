/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP client for the admin server of a relay.
 *
 * 1. Every wait has a time limit, and a signal ends it.
 * 2. It uses HTTP/1.0, so that the body is everything between the header and the end of the connection.
 */
#include "base/time.h"
#include "cli/top.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MAX ((size_t)16 * 1024 * 1024)

struct server {
	char host[256]; /* without brackets */
	char port[8];
	char authority[300];
	char base[300]; /* prefix of all paths; "" or "/…" without a slash at the end */
};

static int split_url(const char *url, struct server *server, struct pr_err *err)
{
	const char *at = url + strlen("http://"), *end, *colon;
	size_t len;

	if (strncmp(url, "http://", strlen("http://")) != 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "\"%.200s\" does not begin with http://, as in "
				  "http://127.0.0.1:8025",
				  url);
	end = at + strcspn(at, "/?#");
	colon = *at == '[' ? memchr(at, ']', (size_t)(end - at)) : at;
	colon = colon ? memchr(colon, ':', (size_t)(end - colon)) : NULL;
	snprintf(server->authority, sizeof(server->authority), "%.*s", (int)(end - at), at);
	snprintf(server->port, sizeof(server->port), "%.*s", colon ? (int)(end - colon - 1) : 2,
		 colon ? colon + 1 : "80");
	len = (size_t)((colon ? colon : end) - at);
	if (*at == '[' && len >= 2) {
		at++;
		len -= 2;
	}
	snprintf(server->host, sizeof(server->host), "%.*s", (int)len, at);
	snprintf(server->base, sizeof(server->base), "%s", end);
	len = strlen(server->base);
	if (len > 0 && server->base[len - 1] == '/')
		server->base[len - 1] = '\0';
	if (!server->host[0])
		return pr_err_set(err, POSTROOM_INVALID,
				  "\"%.200s\" names no host; write it as "
				  "http://127.0.0.1:8025",
				  url);
	return POSTROOM_OK;
}

/* False after a timeout or a signal; see errno. */
static bool wait_for(int fd, short events, int64_t until_us)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };
	int64_t left_ms = (until_us - pr_mono_us() + 999) / 1000;
	int ready = left_ms > 0 ? poll(&poll_fd, 1, (int)left_ms) : 0;

	if (ready == 0)
		errno = ETIMEDOUT;
	return ready > 0;
}

static int connect_one(const struct addrinfo *address, int64_t until_us)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int failure = 0;
	socklen_t size = sizeof(failure);

	if (fd < 0)
		return -1;
	if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
		return fd;
	if (errno == EINPROGRESS && wait_for(fd, POLLOUT, until_us) &&
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0)
		return fd;
	if (failure)
		errno = failure;
	failure = errno;
	close(fd);
	errno = failure;
	return -1;
}

static int connect_to(const struct server *server, int64_t until_us, struct pr_err *err)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	int code = getaddrinfo(server->host, server->port, &hints, &found), fd = -1;

	if (code) {
		pr_err_set(err, POSTROOM_UNAVAILABLE, "%s: %s", server->authority,
			   gai_strerror(code));
		return -1;
	}
	for (const struct addrinfo *one = found; one && fd < 0; one = one->ai_next)
		fd = connect_one(one, until_us);
	if (fd < 0)
		pr_err_errno(err, POSTROOM_UNAVAILABLE, "connecting to %s", server->authority);
	freeaddrinfo(found);
	return fd;
}

static int send_all(int fd, const struct pr_buf *request, int64_t until_us, struct pr_err *err)
{
	for (size_t sent = 0; sent < request->len;) {
		ssize_t n = send(fd, request->data + sent, request->len - sent, MSG_NOSIGNAL);

		if (n > 0)
			sent += (size_t)n;
		else if (errno != EAGAIN || !wait_for(fd, POLLOUT, until_us))
			return pr_err_errno(err, POSTROOM_UNAVAILABLE, "sending the request");
	}
	return POSTROOM_OK;
}

static int receive_all(int fd, struct pr_buf *answer, int64_t until_us, struct pr_err *err)
{
	answer->max = ANSWER_MAX;
	for (;;) {
		char *room = pr_buf_reserve(answer, 65536);
		ssize_t n = room ? recv(fd, room, 65536, 0) : -1;

		if (!room)
			return pr_err_nomem(err);
		if (n == 0)
			break;
		if (n > 0)
			answer->len += (size_t)n;
		else if (errno != EAGAIN || !wait_for(fd, POLLIN, until_us))
			return pr_err_errno(err, POSTROOM_UNAVAILABLE, "waiting for the response");
	}
	pr_buf_append(answer, "", 0);
	return answer->failed ? pr_err_nomem(err) : POSTROOM_OK;
}

static int exchange(const struct server *server, const struct pr_buf *request,
		    struct pr_buf *answer, int64_t until_us, struct pr_err *err)
{
	int fd = connect_to(server, until_us, err);
	int status = fd < 0 ? err->status : send_all(fd, request, until_us, err);

	if (status >= 0)
		status = receive_all(fd, answer, until_us, err);
	if (fd >= 0)
		close(fd);
	return status;
}

int cli_fetch(const char *url, const char *path, const char *token, int64_t timeout_ms,
	      struct pr_buf *body, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf request = { 0 }, answer = { 0 };
	struct server server = { 0 };
	const char *text, *end;
	int code = 0, status = split_url(url, &server, err);

	if (status < 0)
		return status;
	pr_buf_printf(&request, "GET %s%s HTTP/1.0\r\nHost: %s\r\n", server.base, path,
		      server.authority);
	if (token && !strpbrk(token, "\r\n"))
		pr_buf_printf(&request, "Authorization: Bearer %s\r\n", token);
	pr_buf_puts(&request, "\r\n");
	if (request.failed)
		return pr_err_nomem(err);
	status = exchange(&server, &request, &answer, pr_mono_us() + timeout_ms * 1000, err);
	if (status < 0)
		return status;
	text = pr_buf_text(&answer);
	end = strstr(text, "\r\n\r\n");
	if (!end || sscanf(text, "HTTP/1.%*d %d", &code) != 1)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s is not an HTTP server",
				  server.authority);
	if (code != 200)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s returns status %d for %s%s",
				  server.authority, code, path,
				  code == 401 ? "; give --token" : "");
	pr_buf_append(body, end + 4, answer.len - (size_t)(end + 4 - text));
	return body->failed ? pr_err_nomem(err) : POSTROOM_OK;
}
