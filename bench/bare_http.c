/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bare loop that the HTTP sink is measured against: the requests that it
  * would send, all of the same message, with libcurl alone.
 *
 *	bare_http URL COUNT CONNECTIONS SIZE	prints the seconds that COUNT requests took
 */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const lines[] = {
	"ce-specversion: 1.0",
	"ce-id: 019a8c5e-7d20-7b3c-9a31-0d3f0a5f7c11",
	"ce-source: /postroom/default",
	"ce-type: bench.orders",
	"ce-time: 2026-01-01T12:00:00.000000Z",
	"Content-Type: application/json",
	"Idempotency-Key: 019a8c5e-7d20-7b3c-9a31-0d3f0a5f7c11",
	"Expect:",
};

static void must(int ok, const char *step)
{
	if (ok)
		return;
	fprintf(stderr, "bare_http: %s\n", step);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static CURL *make_easy(const char *url, struct curl_slist *headers, const char *content)
{
	CURL *easy = curl_easy_init();

	must(easy != NULL, "no memory");
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "postroom/0");
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, content);
	return easy;
}

/* Takes away those that are done, and begins as many again while there is need. */
static long turn_over(CURLM *multi, long left)
{
	CURLMsg *message;
	long done = 0;
	int more;

	while ((message = curl_multi_info_read(multi, &more))) {
		CURL *easy = message->easy_handle;
		long status = 0;

		must(message->data.result == CURLE_OK, curl_easy_strerror(message->data.result));
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
		must(status == 204, "the server has not answered 204");
		curl_multi_remove_handle(multi, easy);
		done++;
		if (left-- > 0)
			curl_multi_add_handle(multi, easy);
		else
			curl_easy_cleanup(easy);
	}
	return done;
}

int main(int argc, char **argv)
{
	long count = argc == 5 ? atol(argv[2]) : 0, connections = argc == 5 ? atol(argv[3]) : 0;
	size_t size = argc == 5 ? (size_t)atol(argv[4]) : 0;
	struct curl_slist *headers = NULL;
	CURLM *multi = curl_multi_init();
	char *content = calloc(1, size + 1);
	long done = 0;
	int running;
	double begun;

	must(count >= connections && connections > 0, "usage: see the head of bare_http.c");
	must(multi && content, "no memory");
	memset(content, 'x', size);
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		headers = curl_slist_append(headers, lines[i]);
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, connections);
	begun = now();
	for (long i = 0; i < connections; i++)
		curl_multi_add_handle(multi, make_easy(argv[1], headers, content));
	while (done < count) {
		long ended;

		must(curl_multi_perform(multi, &running) == CURLM_OK, "libcurl has failed");
		ended = turn_over(multi, count - connections - done);
		done += ended;
		if (ended == 0)
			curl_multi_poll(multi, NULL, 0, 1000, NULL);
	}
	printf("%.3f\n", now() - begun);
	curl_multi_cleanup(multi);
	curl_slist_free_all(headers);
	free(content);
	return 0;
}
