/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. An answer counts once its headers have ended; what becomes of its body
 *    changes no verdict.
 * 2. Of an answer no more than HEAD_MAX and BODY_MAX is read, and PR_HTTP_KEEP kept.
 * 3. What the far side says becomes one printable line, whatever it is.
 */
#include "sink/http.h"

#include "base/text.h"
#include "base/time.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HEAD_MAX ((size_t)256 * 1024)
/* Reading on to the end of a body keeps the connection; a longer one is not worth that. */
#define BODY_MAX ((size_t)64 * 1024)

/* Whatever a server asks for, a message is looked at again within a day. */
#define RETRY_AFTER_MAX_S ((curl_off_t)24 * 3600)

static size_t trimmed(const char *text, size_t len)
{
	while (len > 0 && strchr(" \t\r\n", text[len - 1]))
		len--;
	return len;
}

static void keep_location(struct pr_http_request *request, const char *line, size_t len)
{
	static const char name[] = "location:";
	size_t skip = strlen(name);

	if (len < skip || strncasecmp(line, name, skip) != 0)
		return;
	while (skip < len && line[skip] == ' ')
		skip++;
	pr_utf8_sanitize(line + skip, trimmed(line + skip, len - skip), SIZE_MAX, request->location,
			 sizeof(request->location));
}

static size_t hear_header(char *data, size_t size, size_t count, void *context)
{
	struct pr_http_request *request = context;
	size_t len = size * count;
	long status = 0;

	request->head_bytes += len;
	if (request->head_bytes > HEAD_MAX)
		return 0;
	if (len > 5 && memcmp(data, "HTTP/", 5) == 0) {
		request->answered = false;
	} else if (trimmed(data, len) == 0) {
		/* The headers of an interim answer end with an empty line too. */
		curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
		request->answered = status >= 200;
	} else {
		keep_location(request, data, len);
	}
	return len;
}

static size_t hear_body(char *data, size_t size, size_t count, void *context)
{
	struct pr_http_request *request = context;
	size_t len = size * count;

	if (request->said_bytes < PR_HTTP_KEEP) {
		size_t room = PR_HTTP_KEEP - request->said_bytes;

		memcpy(request->said + request->said_bytes, data, len < room ? len : room);
	}
	request->said_bytes += len;
	return request->said_bytes > BODY_MAX ? 0 : len;
}

void pr_http_listen(struct pr_http_request *request)
{
	curl_easy_setopt(request->easy, CURLOPT_HEADERFUNCTION, hear_header);
	curl_easy_setopt(request->easy, CURLOPT_HEADERDATA, request);
	curl_easy_setopt(request->easy, CURLOPT_WRITEFUNCTION, hear_body);
	curl_easy_setopt(request->easy, CURLOPT_WRITEDATA, request);
	curl_easy_setopt(request->easy, CURLOPT_ERRORBUFFER, request->error);
}

void pr_http_forget_answer(struct pr_http_request *request)
{
	request->answered = request->denied = false;
	request->head_bytes = request->said_bytes = 0;
	request->location[0] = request->error[0] = '\0';
}

static postroom_verdict verdict_of(long status)
{
	if (status >= 200 && status < 300)
		return POSTROOM_DELIVERED;
	/* It has moved, which is for the one who configured the sink to know and no message's fault. */
	if (status >= 300 && status < 400)
		return POSTROOM_UNREACHABLE;
	switch (status) {
	case 401:
	case 403:
	case 404:
	case 407:
		return POSTROOM_UNREACHABLE;
	case 400:
	case 405:
	case 410:
	case 411:
	case 413:
	case 414:
	case 415:
	case 422:
		return POSTROOM_REJECTED;
	default:
		return POSTROOM_FAILED;
	}
}

/* In place: every stretch of white space and control characters becomes one space. */
static size_t squeeze(char *text, size_t len)
{
	size_t kept = 0;

	for (size_t i = 0; i < len; i++) {
		bool blank = (unsigned char)text[i] <= ' ' || text[i] == 0x7f;

		if (blank && (kept == 0 || text[kept - 1] == ' '))
			continue;
		text[kept++] = blank ? ' ' : text[i];
	}
	kept -= kept > 0 && text[kept - 1] == ' ';
	text[kept] = '\0';
	return kept;
}

static void judge_answer(struct pr_http_request *request, long status,
			 const struct pr_flight *flight)
{
	postroom_verdict verdict = verdict_of(status);
	size_t kept = request->said_bytes < PR_HTTP_KEEP ? request->said_bytes : PR_HTTP_KEEP;
	char clean[PR_HTTP_KEEP * 3 + 1];
	char reason[sizeof(clean) + sizeof(request->location) + 100];
	curl_off_t retry_s = 0;

	if (verdict == POSTROOM_DELIVERED) {
		pr_sink_judge(request->item, 1, verdict, flight, NULL);
		return;
	}
	squeeze(clean, pr_utf8_sanitize(request->said, kept, SIZE_MAX, clean, sizeof(clean)));
	if (status >= 300 && status < 400 && request->location[0])
		snprintf(reason, sizeof(reason), "HTTP %ld: it has moved to %s", status,
			 request->location);
	else
		snprintf(reason, sizeof(reason), "HTTP %ld%s%s", status, clean[0] ? ": " : "",
			 clean);
	pr_sink_judge(request->item, 1, verdict, flight, reason);
	curl_easy_getinfo(request->easy, CURLINFO_RETRY_AFTER, &retry_s);
	/* "At once" is left to the backoff, or the attempts would be gone at once. */
	if (verdict == POSTROOM_FAILED && retry_s > 0)
		request->item->retry_in_ms =
			(int64_t)(retry_s < RETRY_AFTER_MAX_S ? retry_s : RETRY_AFTER_MAX_S) * 1000;
}

static void judge_failure(struct pr_http_request *request, CURLcode code,
			  const struct pr_flight *flight)
{
	const char *said = request->error[0] ? request->error : curl_easy_strerror(code);
	char limit[PR_DURATION_SIZE];
	const char *host = request->http->sink.url.host;
	char reason[CURL_ERROR_SIZE + 400];
	curl_off_t began_us = 0;

	curl_easy_getinfo(request->easy, CURLINFO_PRETRANSFER_TIME_T, &began_us);
	/* Of several addresses one may have been denied, and another connected. */
	if (request->denied && code == CURLE_COULDNT_CONNECT) {
		pr_sink_judge(request->item, 1, POSTROOM_UNREACHABLE, flight,
			      "the address of the host is private, and deny_private is set");
	} else if (code == CURLE_OPERATION_TIMEDOUT && began_us > 0) {
		pr_duration_format(flight->timeout_ms, limit);
		snprintf(reason, sizeof(reason), "no answer within %s", limit);
		pr_sink_judge(request->item, 1, POSTROOM_FAILED, flight, reason);
	} else if (code == CURLE_HTTP2_STREAM && !strstr(said, "underlying")) {
		/* The connection lives, or else it says so: it is about the message. */
		snprintf(reason, sizeof(reason), "%.255s: %s", host, said);
		pr_sink_judge(request->item, 1, POSTROOM_FAILED, flight, reason);
	} else if (request->head_bytes > HEAD_MAX) {
		pr_sink_judge(request->item, 1, POSTROOM_UNREACHABLE, flight,
			      "the headers of the answer are longer than 256 KiB");
	} else {
		snprintf(reason, sizeof(reason), "%.255s: %s", host, said);
		pr_sink_judge(request->item, 1, POSTROOM_UNREACHABLE, flight, reason);
	}
}

/* A redirect on the way to an answer that never came is none. */
static bool was_followed(const struct pr_http_request *request, long status, CURLcode code)
{
	return request->http->follow > 0 && status >= 300 && status < 400 && code != CURLE_OK &&
	       code != CURLE_TOO_MANY_REDIRECTS;
}

void pr_http_judge(struct pr_http_request *request, CURLcode code, const struct pr_flight *flight)
{
	long status = 0;

	curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
	if (request->answered && !was_followed(request, status, code))
		judge_answer(request, status, flight);
	else
		judge_failure(request, code, flight);
}
