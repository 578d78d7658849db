/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A response counts once its headers are complete; its body changes no verdict.
 * 2. At most HEAD_MAX and BODY_MAX bytes of a response are read, and PR_HTTP_KEEP stored.
 * 3. Text of the receiver becomes one printable line.
 * 4. A redirect to another scheme, host or port carries neither the headers of the settings nor
 *    those of the message, and no later redirect restores them.
 */
#include "sink/http.h"

#include "base/text.h"
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define HEAD_MAX ((size_t)256 * 1024)
/* Reading a body to its end keeps the connection open; a longer body is not worth it. */
#define BODY_MAX ((size_t)64 * 1024)

/* Maximum of Retry-After: a message is retried within a day, whatever the server asks for. */
#define RETRY_AFTER_MAX_S ((int64_t)24 * 3600)

static size_t trim_answer(const char *text, size_t len)
{
	while (len > 0 && strchr(" \t\r\n", text[len - 1]))
		len--;
	return len;
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
	char *left = NULL, *right = NULL;
	bool same = curl_url_get(a, part, &left, CURLU_DEFAULT_PORT) == CURLUE_OK &&
		    curl_url_get(b, part, &right, CURLU_DEFAULT_PORT) == CURLUE_OK &&
		    strcasecmp(left, right) == 0;

	curl_free(left);
	curl_free(right);
	return same;
}

/* True if a redirect stays at the origin of the sink's URL. An unreadable one does not. */
static bool is_same_origin(const struct pr_http_request *request, const char *location)
{
	CURLU *own = curl_url(), *next = curl_url();
	char *current = NULL;
	bool same;

	curl_easy_getinfo(request->easy, CURLINFO_EFFECTIVE_URL, &current);
	same = own && next && current &&
	       curl_url_set(own, CURLUPART_URL, request->http->url.data, 0) == CURLUE_OK &&
	       curl_url_set(next, CURLUPART_URL, current, 0) == CURLUE_OK &&
	       curl_url_set(next, CURLUPART_URL, location, 0) == CURLUE_OK &&
	       same_part(own, next, CURLUPART_SCHEME) && same_part(own, next, CURLUPART_HOST) &&
	       same_part(own, next, CURLUPART_PORT);
	curl_url_cleanup(own);
	curl_url_cleanup(next);
	return same;
}

/* Returns the value of the header of that name, which includes its colon; data NULL: another
 * header. */
static struct pr_span header_value(const char *name, const char *line, size_t len)
{
	size_t skip = strlen(name);

	if (len < skip || strncasecmp(line, name, skip) != 0)
		return (struct pr_span){ 0 };
	while (skip < len && strchr(" \t", line[skip]))
		skip++;
	return (struct pr_span){ line + skip, trim_answer(line + skip, len - skip) };
}

static void store_retry_after(struct pr_http_request *request, const char *line, size_t len)
{
	struct pr_span value = header_value("retry-after:", line, len);

	if (value.data)
		pr_utf8_sanitize(value.data, value.len, SIZE_MAX, request->retry_after,
				 sizeof(request->retry_after));
}

static void store_location(struct pr_http_request *request, const char *line, size_t len)
{
	struct pr_span value = header_value("location:", line, len);
	char *location;

	if (!value.data)
		return;
	if (request->http->follow > 0) {
		location = strndup(value.data, value.len);
		if (!location || !is_same_origin(request, location))
			pr_http_drop_headers(request);
		free(location);
	}
	pr_utf8_sanitize(value.data, value.len, SIZE_MAX, request->location,
			 sizeof(request->location));
}

static size_t on_header(char *data, size_t size, size_t count, void *context)
{
	struct pr_http_request *request = context;
	size_t len = size * count;
	long status = 0;

	request->head_bytes += len;
	if (request->head_bytes > HEAD_MAX)
		return 0;
	if (len > 5 && memcmp(data, "HTTP/", 5) == 0) {
		request->answered = false;
		request->retry_after[0] = '\0';
	} else if (trim_answer(data, len) == 0) {
		/* The headers of an interim response end with an empty line too. */
		curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
		request->answered = status >= 200;
	} else if (!request->answered) { /* later ones are trailers */
		store_location(request, data, len);
		store_retry_after(request, data, len);
	}
	return len;
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
	struct pr_http_request *request = context;
	size_t len = size * count;

	if (request->answer_bytes < PR_HTTP_KEEP) {
		size_t room = PR_HTTP_KEEP - request->answer_bytes;

		memcpy(request->answer + request->answer_bytes, data, len < room ? len : room);
	}
	request->answer_bytes += len;
	return request->answer_bytes > BODY_MAX ? 0 : len;
}

void pr_http_listen(struct pr_http_request *request)
{
	curl_easy_setopt(request->easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(request->easy, CURLOPT_HEADERDATA, request);
	curl_easy_setopt(request->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(request->easy, CURLOPT_WRITEDATA, request);
	curl_easy_setopt(request->easy, CURLOPT_ERRORBUFFER, request->error);
}

void pr_http_reset_answer(struct pr_http_request *request)
{
	request->answered = request->denied = false;
	request->head_bytes = request->answer_bytes = 0;
	request->location[0] = request->retry_after[0] = request->error[0] = '\0';
}

static postroom_verdict verdict_of(long status)
{
	if (status >= 200 && status < 300)
		return POSTROOM_DELIVERED;
	/* It has moved: that concerns the operator who configured the sink, not the message. */
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
static size_t collapse_spaces(char *text, size_t len)
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

/*
 * Returns seconds from now, at most RETRY_AFTER_MAX_S; 0 or less if there is nothing to wait for.
 * Newer versions of libcurl limit CURLINFO_RETRY_AFTER to six hours.
 */
static int64_t retry_after_s(const char *value)
{
	size_t digits = strspn(value, "0123456789");
	int64_t wait_s = 0;
	time_t when;

	if (digits > 0 && value[digits] == '\0') {
		wait_s = strtoll(value, NULL, 10); /* out of range: use the maximum */
	} else {
		when = curl_getdate(value, NULL);
		if (when >= 0)
			wait_s = (int64_t)when - (int64_t)time(NULL);
	}
	return wait_s < RETRY_AFTER_MAX_S ? wait_s : RETRY_AFTER_MAX_S;
}

/* A new address may repeat the secrets of the old one, so only its host is shown. */
static const char *shown_location(const struct pr_http_request *request, char *out, size_t size)
{
	if (!strstr(request->location, "://"))
		return "another path there";
	pr_url_redact(request->location, out, size);
	return out;
}

static void judge_answer(struct pr_http_request *request, long status,
			 const struct pr_flight *flight)
{
	postroom_verdict verdict = verdict_of(status);
	size_t kept = request->answer_bytes < PR_HTTP_KEEP ? request->answer_bytes : PR_HTTP_KEEP;
	char clean[PR_HTTP_KEEP * 3 + 1];
	char reason[sizeof(clean) + sizeof(request->location) + 100];
	char location[sizeof(request->location) * 4 + 4];
	int64_t retry_s;

	if (verdict == POSTROOM_DELIVERED) {
		pr_sink_judge(request->item, 1, verdict, flight, NULL);
		return;
	}
	collapse_spaces(clean,
			pr_utf8_sanitize(request->answer, kept, SIZE_MAX, clean, sizeof(clean)));
	if (status >= 300 && status < 400 && request->location[0])
		snprintf(reason, sizeof(reason), "HTTP %ld: moved to %s", status,
			 shown_location(request, location, sizeof(location)));
	else
		snprintf(reason, sizeof(reason), "HTTP %ld%s%s", status, clean[0] ? ": " : "",
			 clean);
	pr_sink_judge(request->item, 1, verdict, flight, reason);
	/* The path of one message may be missing or forbidden while others work. */
	request->item->by_name = request->http->templated && (status == 403 || status == 404);
	retry_s = retry_after_s(request->retry_after);
	/* A delay of 0 is left to the backoff, or all attempts would be used up immediately. */
	if (verdict == POSTROOM_FAILED && retry_s > 0)
		request->item->retry_in_ms = retry_s * 1000;
}

static void judge_failure(struct pr_http_request *request, CURLcode code,
			  const struct pr_flight *flight)
{
	const char *error = request->error[0] ? request->error : curl_easy_strerror(code);
	char limit[PR_DURATION_SIZE];
	const char *host = request->http->sink.url.host;
	char reason[CURL_ERROR_SIZE + 400];
	curl_off_t began_us = 0;
	long version = 0;

	curl_easy_getinfo(request->easy, CURLINFO_PRETRANSFER_TIME_T, &began_us);
	/* One of several addresses may have been denied while another was connected. */
	if (request->denied && code == CURLE_COULDNT_CONNECT) {
		pr_sink_judge(request->item, 1, POSTROOM_UNREACHABLE, flight,
			      "the address of the host is private, and deny_private is set");
	} else if (code == CURLE_OPERATION_TIMEDOUT && began_us > 0) {
		pr_duration_format(flight->timeout_ms, limit);
		snprintf(reason, sizeof(reason), "no answer within %s", limit);
		pr_sink_judge(request->item, 1, POSTROOM_FAILED, flight, reason);
	} else if (code == CURLE_HTTP2_STREAM && !strstr(error, "underlying")) {
		/* The connection works, or libcurl would report it: the error concerns the message.
		 */
		snprintf(reason, sizeof(reason), "%.255s: %s", host, error);
		pr_sink_judge(request->item, 1, POSTROOM_FAILED, flight, reason);
	} else if (request->head_bytes > HEAD_MAX) {
		pr_sink_judge(request->item, 1, POSTROOM_UNREACHABLE, flight,
			      "the headers of the answer are longer than 256 KiB");
	} else {
		snprintf(reason, sizeof(reason), "%.255s: %s", host, error);
		pr_sink_judge(request->item, 1, POSTROOM_UNREACHABLE, flight, reason);
		/* With HTTP/2, one of several requests may have made the server close the
		 * connection. */
		curl_easy_getinfo(request->easy, CURLINFO_HTTP_VERSION, &version);
		request->item->together = version >= CURL_HTTP_VERSION_2_0;
	}
}

/* A redirect before a missing response is not a response. */
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
