/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http:// and https:// send one request per message; the status of the response is the verdict.
 *
 * 1. Up to `connections` requests are in flight, begun in the order of the batch; one per key, and
 *    only after the previous one was delivered.
 * 2. No request outlives publish(): its timeout is that of the flight, and an overdue stop ends
 *    it. Connections outlive it for reuse, unless all were silent.
 * 3. Only the settings decide where requests are sent: proxies of the environment, .netrc,
 *    unrequested redirects and other protocols are not used.
 * 4. With deny_private, no connection is made to an address that is not public, whatever name or
 *    redirect led to it.
 */
#include "sink/http.h"

#include "base/time.h"
#include "sink/queue.h"

#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

/* Never undone: other threads may use libcurl until the process ends. */
static void init_curl(void)
{
	curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void close_http(struct pr_sink *sink)
{
	struct pr_http *http = (struct pr_http *)sink;

	for (int64_t i = 0; http->requests && i < http->connections; i++) {
		struct pr_http_request *request = &http->requests[i];

		curl_easy_cleanup(request->easy);
		pr_arena_release(&request->arena);
		pr_buf_release(&request->line);
		pr_buf_release(&request->text);
		pr_buf_release(&request->source);
		pr_buf_release(&request->content);
		pr_buf_release(&request->url);
	}
	free(http->requests);
	curl_multi_cleanup(http->multi);
	pr_buf_release(&http->url);
	pr_webhook_release(&http->webhook);
}

/* NULL: no memory. */
static CURLM *make_multi(const struct pr_http *http)
{
	CURLM *multi = curl_multi_init();

	if (multi)
		curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)http->connections);
	return multi;
}

static int set_up_handle(struct pr_http *http, struct pr_err *err)
{
	pthread_once(&curl_once, init_curl);
	if (curl_ready != CURLE_OK)
		return pr_err_set(err, POSTROOM_SINK, "libcurl cannot be used: %s",
				  curl_easy_strerror(curl_ready));
	if (pr_http_check(http, err) < 0 || pr_http_prepare(http, err) < 0 ||
	    pr_webhook_init(&http->webhook, &http->secrets, err) < 0)
		return err->status;
	http->requests = calloc((size_t)http->connections, sizeof(*http->requests));
	http->multi = make_multi(http);
	if (!http->requests || !http->multi)
		return pr_err_nomem(err);
	for (int64_t i = 0; i < http->connections; i++)
		http->requests[i].http = http;
	return POSTROOM_OK;
}

static int open_http(struct pr_sink *sink, struct pr_err *err)
{
	int status = set_up_handle((struct pr_http *)sink, err);

	if (status < 0) {
		pr_err_prefix(err, "%s", sink->url.scheme);
		close_http(sink);
	}
	return status;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct pr_http_request *request = context;
	int64_t limit_ms = request->http->timeout_ms;
	int patience_ms = limit_ms < INT_MAX ? (int)limit_ms : INT_MAX;
	int fd;

	(void)purpose;
	if (request->http->deny_private && pr_http_is_private(&address->addr)) {
		request->denied = true;
		return CURL_SOCKET_BAD;
	}
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	/* While other connections still answer, a dead HTTP/2 connection is left for the kernel to
	 * close. */
	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof(patience_ms));
	return fd;
}

static void set_security(CURL *easy, const struct pr_http *http)
{
	const struct pr_url *url = &http->sink.url;

	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (http->ca)
		curl_easy_setopt(easy, CURLOPT_CAINFO, http->ca);
	if (http->cert)
		curl_easy_setopt(easy, CURLOPT_SSLCERT, http->cert);
	if (http->key)
		curl_easy_setopt(easy, CURLOPT_SSLKEY, http->key);
	/* Without one, OpenSSL would prompt on the terminal. */
	curl_easy_setopt(easy, CURLOPT_KEYPASSWD, http->key_password ? http->key_password : "");
	if (url->user[0] || url->password[0]) {
		curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
		curl_easy_setopt(easy, CURLOPT_USERNAME, url->user);
		curl_easy_setopt(easy, CURLOPT_PASSWORD, url->password);
	}
}

static void set_routes(CURL *easy, const struct pr_http *http)
{
	bool tls = strcmp(http->sink.url.scheme, "https") == 0;

	curl_easy_setopt(easy, CURLOPT_URL, http->url.data);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	/* An empty proxy keeps libcurl from using the environment's. */
	curl_easy_setopt(easy, CURLOPT_PROXY, http->proxy ? http->proxy : "");
	curl_easy_setopt(easy, CURLOPT_NOPROXY, "");
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, http->follow > 0 ? 1L : 0L);
	curl_easy_setopt(easy, CURLOPT_MAXREDIRS, (long)http->follow);
	curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
	curl_easy_setopt(easy, CURLOPT_POSTREDIR, (long)CURL_REDIR_POST_ALL);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
			 (long)(tls ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
	/* With HTTP/2, all requests share one connection, so they must wait for the first to
	 * connect. */
	curl_easy_setopt(easy, CURLOPT_PIPEWAIT, tls ? 1L : 0L);
}

/* Options that are the same for every message. */
static bool make_easy(struct pr_http_request *request)
{
	const struct pr_http *http = request->http;
	CURL *easy = curl_easy_init();

	if (!easy)
		return false;
	request->easy = easy;
	set_security(easy, http);
	set_routes(easy, http);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* A lookup that hangs is abandoned when its request times out. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)http->connect_timeout_ms);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "postroom/" POSTROOM_VERSION);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, request);
	curl_easy_setopt(easy, CURLOPT_POST, 1L);
	if (http->method == PR_HTTP_PUT)
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "PUT");
	pr_http_listen(request);
	return true;
}

static bool start_request(struct pr_http_request *request, struct pr_span content,
			  const struct pr_flight *flight)
{
	if (!request->easy && !make_easy(request))
		return false;
	pr_http_reset_answer(request);
	if (request->url.len > 0 &&
	    curl_easy_setopt(request->easy, CURLOPT_URL, request->url.data) != CURLE_OK)
		return false;
	curl_easy_setopt(request->easy, CURLOPT_HTTPHEADER, request->headers);
	curl_easy_setopt(request->easy, CURLOPT_POSTFIELDS, content.len > 0 ? content.data : "");
	curl_easy_setopt(request->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)content.len);
	curl_easy_setopt(request->easy, CURLOPT_TIMEOUT_MS, (long)flight->timeout_ms);
	return curl_multi_add_handle(request->http->multi, request->easy) == CURLM_OK;
}

static void begin_request(struct pr_http *http, postroom_delivery *item,
			  const struct pr_flight *flight)
{
	struct pr_http_request *request = http->requests;
	struct pr_span content;

	while (request->item)
		request++;
	request->item = item;
	if (!pr_http_write(request, flight, &content)) {
		request->item = NULL;
	} else if (!start_request(request, content, flight)) {
		pr_sink_judge(item, 1, POSTROOM_UNREACHABLE, flight, "out of memory");
		request->item = NULL;
	} else {
		http->running++;
	}
}

static void end_request(struct pr_http_request *request)
{
	curl_multi_remove_handle(request->http->multi, request->easy);
	request->item = NULL;
	request->http->running--;
}

/* False if no request has ended. */
static bool finish_requests(struct pr_http *http, const struct pr_flight *flight)
{
	size_t before = http->running;
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(http->multi, &left))) {
		char *context = NULL;
		struct pr_http_request *request;

		/* The only message type; removing the handle invalidates the message. */
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &context);
		request = (struct pr_http_request *)(void *)context;
		http->answered |= request->answered;
		http->timed_out |= message->data.result == CURLE_OPERATION_TIMEDOUT;
		pr_http_judge(request, message->data.result, flight);
		end_request(request);
	}
	return http->running < before;
}

static void cancel_requests(struct pr_http *http, postroom_verdict verdict,
			    const struct pr_flight *flight, const char *reason)
{
	for (int64_t i = 0; i < http->connections; i++) {
		struct pr_http_request *request = &http->requests[i];

		if (!request->item)
			continue;
		pr_sink_judge(request->item, 1, verdict, flight, reason);
		end_request(request);
	}
}

/* Makes progress on all requests; if none has ended, waits for an event. */
static void wait_for_requests(struct pr_http *http, const struct pr_flight *flight)
{
	struct curl_waitfd own = { .fd = -1 };
	struct pollfd stop;
	int running, wait_ms;

	if (curl_multi_perform(http->multi, &running) != CURLM_OK) {
		cancel_requests(http, POSTROOM_UNREACHABLE, flight, "libcurl has failed");
		return;
	}
	if (finish_requests(http, flight))
		return;
	if (pr_flight_lost(flight)) {
		cancel_requests(http, POSTROOM_UNTRIED, flight, NULL);
	} else if (pr_stop_overdue(flight->stop)) {
		cancel_requests(http, POSTROOM_UNREACHABLE, flight, "stopped");
	} else {
		wait_ms = pr_flight_wait(flight, &stop, INT64_MAX);
		own = (struct curl_waitfd){ .fd = stop.fd, .events = CURL_WAIT_POLLIN };
		curl_multi_poll(http->multi, &own, stop.fd >= 0 ? 1 : 0, wait_ms, NULL);
	}
}

/*
 * An HTTP/2 connection outlives the timeouts of its requests. If it is dead, all later requests
 * would share it until the kernel gives up after fifteen minutes.
 */
static void leave_silent_connections(struct pr_http *http)
{
	CURLM *fresh = http->timed_out && !http->answered ? make_multi(http) : NULL;

	if (fresh) {
		curl_multi_cleanup(http->multi);
		http->multi = fresh;
	}
	http->timed_out = http->answered = false;
}

/* Connects, including the TLS handshake, without a request. */
static void http_probe(struct pr_sink *sink, const struct pr_flight *flight,
		       struct pr_checkup *checkup)
{
	struct pr_http *http = (struct pr_http *)sink;
	struct pr_http_request *request = &http->requests[0];
	char reason[CURL_ERROR_SIZE] = "";
	CURLcode code;

	http->timeout_ms = flight->timeout_ms;
	if (!make_easy(request)) {
		pr_found_skipped(checkup, "Out of memory.", NULL);
		return;
	}
	curl_easy_setopt(request->easy, CURLOPT_CONNECT_ONLY, 1L);
	curl_easy_setopt(request->easy, CURLOPT_TIMEOUT_MS, (long)flight->timeout_ms);
	curl_easy_setopt(request->easy, CURLOPT_ERRORBUFFER, reason);
	code = curl_easy_perform(request->easy);
	curl_easy_setopt(request->easy, CURLOPT_ERRORBUFFER, NULL);
	if (request->denied)
		pr_found_unreachable(checkup, "its address is private, and deny_private is set");
	else if (code != CURLE_OK)
		pr_found_unreachable(checkup, reason[0] ? reason : curl_easy_strerror(code));
}

static int http_publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
			const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_http *http = (struct pr_http *)sink;
	size_t most = pr_flight_most(flight, (size_t)http->connections), next;
	struct pr_queue queue;

	(void)err;
	http->timeout_ms = flight->timeout_ms;
	if (!pr_queue_fill(&queue, items, count, flight->arena)) {
		pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, "out of memory");
		return POSTROOM_OK;
	}
	for (;;) {
		while (http->running < most) {
			next = pr_queue_next(&queue, flight);
			if (next == PR_SINK_NONE)
				break;
			begin_request(http, &items[next], flight);
		}
		if (http->running == 0)
			break;
		wait_for_requests(http, flight);
	}
	leave_silent_connections(http);
	return POSTROOM_OK;
}

static const char *const schemes[] = { "http", "https", NULL };
static const char *const methods[] = { "POST", "PUT", NULL };
static const char *const modes[] = { "binary", "structured", NULL };

#define FIELD(name) .offset = offsetof(struct pr_http, name)

static const struct pr_param params[] = {
	{ .name = "secret",
	  .type = PR_PARAM_LIST,
	  FIELD(secrets),
	  .value = "SECRET",
	  .help = "whsec_… secret to sign with; repeat it, or use commas, for several" },
	{ .name = "mode",
	  .type = PR_PARAM_CHOICE,
	  FIELD(mode),
	  .choices = modes,
	  .fallback = "binary",
	  .help = "CloudEvents: binary (attributes in headers) or structured (one JSON object)" },
	{ .name = "source",
	  .type = PR_PARAM_STRING,
	  FIELD(source),
	  .value = "URI",
	  .help = "source of the events; default /postroom/NAMESPACE" },
	{ .name = "method",
	  .type = PR_PARAM_CHOICE,
	  FIELD(method),
	  .choices = methods,
	  .fallback = "POST",
	  .help = "POST or PUT" },
	{ .name = "query",
	  .type = PR_PARAM_STRING,
	  FIELD(query),
	  .value = "TEXT",
	  .help = "query string of the address, without the '?'" },
	{ .name = "header",
	  .type = PR_PARAM_LIST,
	  FIELD(headers),
	  .value = "NAME: VALUE",
	  .help = "a header for every request; can be repeated" },
	{ .name = "connections",
	  .type = PR_PARAM_INT,
	  FIELD(connections),
	  .fallback = "32",
	  .min = 1,
	  .max = 1000,
	  .help = "concurrent requests per worker" },
	{ .name = "connect_timeout",
	  .type = PR_PARAM_DURATION,
	  FIELD(connect_timeout_ms),
	  .value = "DUR",
	  .fallback = "5s",
	  .min = 1,
	  .max = 3600000,
	  .help = "for lookup, connect and TLS; the publish timeout covers the whole request" },
	{ .name = "follow",
	  .type = PR_PARAM_INT,
	  FIELD(follow),
	  .fallback = "0",
	  .min = 0,
	  .max = 10,
	  .help = "redirects to follow; never from https to http" },
	{ .name = "deny_private",
	  .type = PR_PARAM_FLAG,
	  FIELD(deny_private),
	  .help = "refuse to connect to addresses that are not public" },
	{ .name = "proxy",
	  .type = PR_PARAM_STRING,
	  FIELD(proxy),
	  .value = "URL",
	  .help = "use this proxy; those of the environment are never used" },
	{ .name = "ca",
	  .type = PR_PARAM_STRING,
	  FIELD(ca),
	  .value = "FILE",
	  .help = "certificates to trust, in PEM, instead of the system's" },
	{ .name = "cert",
	  .type = PR_PARAM_STRING,
	  FIELD(cert),
	  .value = "FILE",
	  .help = "our own certificate, in PEM" },
	{ .name = "key",
	  .type = PR_PARAM_STRING,
	  FIELD(key),
	  .value = "FILE",
	  .help = "private key of cert, if it is in another file" },
	{ .name = "key_password",
	  .type = PR_PARAM_STRING,
	  FIELD(key_password),
	  .value = "TEXT",
	  .help = "the password of the key" },
	{ .name = NULL },
};

const struct pr_sink_ops pr_sink_http = {
	.schemes = schemes,
	.summary = "sends each message to a web server, as a CloudEvent, optionally signed",
	.example = "https://example.test/hook",
	.server = true,
	.size = sizeof(struct pr_http),
	.params = params,
	.open = open_http,
	.publish = http_publish,
	.probe = http_probe,
	.close = close_http,
};
