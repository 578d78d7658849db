/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server accepts one connection after the other, sends the whole input on each and closes
 * it. It ends its side first, so that a sink that waits for more gets an end instead.
 */
#include "fuzz_server.h"

#include "base/text.h"
#include "base/time.h"
#include "sink/sink.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const uint8_t *input;
static size_t input_size;
static int port;

static void answer(int fd)
{
	char rest[4096];

	/* The request is read first, or closing would reset the connection. */
	if (read(fd, rest, sizeof(rest)) > 0) {
		pthread_mutex_lock(&lock);
		for (size_t at = 0; at < input_size;) {
			ssize_t n = send(fd, input + at, input_size - at, MSG_NOSIGNAL);

			if (n <= 0)
				break;
			at += (size_t)n;
		}
		pthread_mutex_unlock(&lock);
	}
	shutdown(fd, SHUT_WR);
	while (read(fd, rest, sizeof(rest)) > 0)
		;
	close(fd);
}

static void *serve(void *context)
{
	int listener = (int)(intptr_t)context, fd;

	while ((fd = accept(listener, NULL, NULL)) >= 0)
		answer(fd);
	return NULL;
}

static void start(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pthread_t thread;

	signal(SIGPIPE, SIG_IGN);
	HOLDS(fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 100) == 0);
	HOLDS(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
	port = ntohs(address.sin_port);
	HOLDS(pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0);
	pthread_detach(thread);
}

static void check(const postroom_delivery *item)
{
	HOLDS(item->verdict == POSTROOM_DELIVERED || item->verdict == POSTROOM_UNTRIED ||
	      (item->reason && *item->reason && pr_utf8_valid(item->reason, strlen(item->reason))));
	HOLDS(item->retry_in_ms <= (int64_t)24 * 3600 * 1000);
}

static void publish(struct pr_sink *sink)
{
	struct pr_policy policy = { .max_attempts = 10, .max_error_length = 2000 };
	postroom_delivery items[FUZZ_MESSAGES];
	struct pr_arena arena = { 0 };
	struct pr_stop stop;
	struct pr_err err = { 0 };
	struct pr_log log;
	struct pr_flight flight = { .arena = &arena,
				    .policy = &policy,
				    .begin_until_us = pr_mono_us() + 60000000,
				    .timeout_ms = 60000,
				    .stop = &stop,
				    .log = &log };

	pr_log_init(&log, STDERR_FILENO, PR_LOG_ERROR, PR_LOG_TEXT);
	HOLDS(pr_stop_init(&stop, &err) == POSTROOM_OK);
	for (int i = 0; i < FUZZ_MESSAGES; i++)
		items[i] = (postroom_delivery){ .id = "id",
						.ns = "default",
						.topic = "topic",
						.key = i > 0 ? "key" : NULL,
						.content_type = "application/json",
						.headers = "{}",
						.payload = "1",
						.payload_len = 1,
						.attempt = 1,
						.retry_in_ms = -1 };
	HOLDS(sink->ops->publish(sink, items, FUZZ_MESSAGES, &flight, &err) == POSTROOM_OK);
	for (int i = 0; i < FUZZ_MESSAGES; i++)
		check(&items[i]);
	pr_stop_release(&stop);
	pr_log_release(&log);
	pr_arena_release(&arena);
}

void fuzz_publish(const char *template, const uint8_t *data, size_t size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pr_sink *sink = NULL;
	struct pr_err err = { 0 };
	char url[300], number[16], *at;

	pthread_once(&once, start);
	pthread_mutex_lock(&lock);
	input = data;
	input_size = size;
	pthread_mutex_unlock(&lock);
	snprintf(url, sizeof(url), "%s", template);
	at = strstr(url, "PORT");
	snprintf(number, sizeof(number), "%d", port);
	memmove(at + strlen(number), at + 4, strlen(at + 4) + 1);
	memcpy(at, number, strlen(number));
	HOLDS(pr_sink_open(url, &sink, &err) == POSTROOM_OK);
	publish(sink);
	pr_sink_close(sink);
	/* The input is the caller's; no thread may look at it any more. */
	pthread_mutex_lock(&lock);
	input_size = 0;
	pthread_mutex_unlock(&lock);
}
