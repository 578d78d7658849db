/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/sink/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct rig rig;
struct web web = { .lock = PTHREAD_MUTEX_INITIALIZER };

void header_of(const struct request *request, const char *name, char *out, size_t size)
{
	struct pr_buf head = { .data = request->text.data, .len = request->head_len };
	struct pr_span line;
	size_t len = strlen(name);

	out[0] = '\0';
	for (size_t at = 0; next_line(&head, &at, &line);) {
		if (line.len > len + 2 && strncasecmp(line.data, name, len) == 0 &&
		    line.data[len] == ':')
			snprintf(out, size, "%.*s", (int)(line.len - len - 3), line.data + len + 2);
	}
}

bool read_more(struct request *request)
{
	char *at = pr_buf_reserve(&request->text, 65537);
	ssize_t n = read(request->fd, at, 65536);

	if (n <= 0)
		return false;
	at[n] = '\0';
	request->text.len += (size_t)n;
	return true;
}

static bool read_request(struct request *request)
{
	char length[32];
	char *end;

	pr_buf_reset(&request->text);
	do {
		if (!read_more(request))
			return false;
		end = memmem(request->text.data, request->text.len, "\r\n\r\n", 4);
	} while (!end);
	request->head_len = (size_t)(end + 4 - request->text.data);
	header_of(request, "Content-Length", length, sizeof(length));
	while (request->text.len < request->head_len + (size_t)atoi(length)) {
		if (!read_more(request))
			return false;
	}
	return true;
}

static void *serve_connection(void *context)
{
	struct request request = { .fd = (int)(intptr_t)context };
	answer_fn answer;
	bool more = true;

	while (more && read_request(&request)) {
		pthread_mutex_lock(&web.lock);
		pr_buf_append(&web.seen, request.text.data, request.text.len);
		pr_buf_putc(&web.seen, 0x1e);
		answer = web.answer;
		pthread_mutex_unlock(&web.lock);
		atomic_fetch_add(&web.requests, 1);
		more = answer(&request);
	}
	close(request.fd);
	pr_buf_release(&request.text);
	return NULL;
}

static void *serve(void *context)
{
	int listener = (int)(intptr_t)context, fd;
	pthread_attr_t detached;
	pthread_t thread;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		atomic_fetch_add(&web.connections, 1);
		CHECK(pthread_create(&thread, &detached, serve_connection, (void *)(intptr_t)fd) ==
		      0);
	}
	return NULL;
}

void start_server(answer_fn answer)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	pthread_t thread;

	web.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(web.fd >= 0 && bind(web.fd, (struct sockaddr *)&address, len) == 0);
	CHECK(listen(web.fd, 200) == 0);
	CHECK(getsockname(web.fd, (struct sockaddr *)&address, &len) == 0);
	snprintf(web.base, sizeof(web.base), "http://127.0.0.1:%d", ntohs(address.sin_port));
	/* Threads of an earlier server of this test may still look. */
	pthread_mutex_lock(&web.lock);
	web.answer = answer;
	pthread_mutex_unlock(&web.lock);
	if (answer) {
		CHECK(pthread_create(&thread, NULL, serve, (void *)(intptr_t)web.fd) == 0);
		pthread_detach(thread);
	}
}

void say(const struct request *request, const char *text)
{
	for (size_t len = strlen(text); len > 0;) {
		ssize_t n = write(request->fd, text, len);

		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

bool answer_ok(const struct request *request)
{
	say(request, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	return true;
}

const char *seen(void)
{
	return pr_buf_text(&web.seen);
}

void begin(answer_fn answer, const char *rest)
{
	char url[600];

	rig_init(&rig);
	start_server(answer);
	snprintf(url, sizeof(url), "%s%s", web.base, rest);
	rig_open(&rig, url);
}

postroom_delivery run_item(postroom_delivery item)
{
	rig_publish(&rig, &item, 1);
	return item;
}

postroom_delivery run_one(answer_fn answer, const char *rest)
{
	begin(answer, rest);
	return run_item(rig_item(&rig, 1, NULL, NULL));
}

postroom_delivery item_with(const char *headers)
{
	postroom_delivery item = rig_item(&rig, 1, NULL, NULL);

	item.headers = headers;
	return item;
}
