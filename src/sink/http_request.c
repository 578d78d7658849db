/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. No byte of a message can end a header line or add one: names are tokens,
 *    values have no control characters, or the message is REJECTED.
 * 2. What we or the protocol decide (content-length, ce-…, webhook-…) and what the
 *    sink's settings fix, no message's header can.
 * 3. The content is the message's own memory, or this request's: nothing is copied
 *    to be sent, and nothing is allocated for it after warm-up.
 */
#include "sink/http.h"

#include "base/json.h"
#include "sink/target.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char token_signs[] = "!#$%&'*+-.^_`|~";

static bool is_token(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char lower = (char)(name[i] | 0x20);

		if (!(lower >= 'a' && lower <= 'z') && !(name[i] >= '0' && name[i] <= '9') &&
		    !memchr(token_signs, name[i], sizeof(token_signs) - 1))
			return false;
	}
	return len > 0;
}

static bool is_value(const char *value, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
			return false;
	}
	return true;
}

static bool is_ours(const char *name)
{
	static const char *const names[] = {
		"connection",	  "content-length",    "content-type", "expect",	   "host",
		"http2-settings", "idempotency-key",   "keep-alive",   "proxy-connection", "te",
		"trailer",	  "transfer-encoding", "upgrade",
	};
	static const char *const prefixes[] = { "ce-", "proxy-auth", "webhook-" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcasecmp(name, names[i]) == 0)
			return true;
	}
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
		if (strncasecmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	}
	return false;
}

static int check_fixed(const char *line, struct pr_err *err)
{
	size_t len = strcspn(line, ":");
	char name[64];

	/* The line is not repeated: a token may be in it. */
	if (!line[len] || !is_token(line, len) || !is_value(line, strlen(line)))
		return pr_err_set(err, POSTROOM_SINK,
				  "header: it is written NAME: VALUE, as in header=X-Team: orders");
	if (strspn(line + len + 1, " \t") == strlen(line + len + 1))
		return pr_err_set(err, POSTROOM_SINK, "header: there is nothing behind \"%.*s:\"",
				  (int)len, line);
	snprintf(name, sizeof(name), "%.*s", (int)len, line);
	if (is_ours(name))
		return pr_err_set(err, POSTROOM_SINK, "header: %s is not for settings to decide",
				  name);
	return POSTROOM_OK;
}

/*
 * As it was written, since an escaped slash is none; encoded where a path must be. Only
 * a template's braces may be escaped or not, as for every sink.
 */
static void put_path(struct pr_buf *out, const char *path)
{
	static const char plain[] = "-._~!$&'()*+,;=:@/{}%";

	for (; *path; path++) {
		char lower = (char)(*path | 0x20);

		if (strncasecmp(path, "%7b", 3) == 0 || strncasecmp(path, "%7d", 3) == 0) {
			pr_buf_putc(out, (path[2] | 0x20) == 'b' ? '{' : '}');
			path += 2;
		} else if ((lower >= 'a' && lower <= 'z') || (*path >= '0' && *path <= '9') ||
			   strchr(plain, *path)) {
			pr_buf_putc(out, *path);
		} else {
			pr_buf_printf(out, "%%%02X", (unsigned)(unsigned char)*path);
		}
	}
}

static bool is_path_sign(char c)
{
	char lower = (char)(c | 0x20);

	return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || strchr("-._~", c);
}

/* A value is one segment, or part of one, or of the query: its slashes and '&' are no separators. */
static const struct pr_target_rule path_rule = { .value = is_path_sign, .escape = '%' };

static int check_url(const struct pr_http *http, struct pr_err *err)
{
	const struct pr_url *url = &http->sink.url;
	CURLU *parsed = curl_url();
	CURLUcode code;

	if (!parsed || http->url.failed) {
		curl_url_cleanup(parsed);
		return pr_err_nomem(err);
	}
	code = curl_url_set(parsed, CURLUPART_URL, http->url.data, 0);
	curl_url_cleanup(parsed);
	if (code != CURLUE_OK || !url->host[0])
		return pr_err_set(err, POSTROOM_SINK, "\"%s\" is no host%s%s; as in %s", url->host,
				  code != CURLUE_OK ? ": " : "",
				  code != CURLUE_OK ? curl_url_strerror(code) : "",
				  http->sink.ops->example);
	return POSTROOM_OK;
}

/* Escaped dots are dots: RFC 3986, 6.2.2.2. */
static bool has_dot_segment(const char *path)
{
	for (;;) {
		size_t dots = 0;

		for (; *path == '.' || strncasecmp(path, "%2e", 3) == 0; dots++)
			path += *path == '.' ? 1 : 3;
		if ((dots == 1 || dots == 2) && (!*path || strchr("/?", *path)))
			return true;
		path += strcspn(path, "/?");
		if (*path != '/')
			return false;
		path++;
	}
}

static int make_url(struct pr_http *http, struct pr_err *err)
{
	const struct pr_url *url = &http->sink.url;
	const char *template;

	pr_buf_printf(&http->url, "%s://%s/", url->scheme, url->host);
	http->origin_len = http->url.len;
	put_path(&http->url, url->raw_path);
	if (http->query)
		pr_buf_printf(&http->url, "?%s", http->query);
	if (check_url(http, err) < 0)
		return err->status;
	template = http->url.data + http->origin_len;
	http->templated = strpbrk(template, "{}") != NULL;
	if (!http->templated)
		return POSTROOM_OK;
	if (has_dot_segment(template))
		return pr_err_set(err, POSTROOM_SINK,
				  "a part of the path is . or ..; write the path that it leads to");
	return pr_target_check(template, &path_rule, err);
}

int pr_http_prepare(struct pr_http *http, struct pr_err *err)
{
	/* Large contents are sent at once, without asking first. */
	static char no_expect[] = "Expect:";
	size_t count = http->headers.count;

	for (size_t i = 0; i < count; i++) {
		if (check_fixed(http->headers.items[i], err) < 0)
			return err->status;
		http->fixed[i] = (struct curl_slist){ (char *)http->headers.items[i],
						      &http->fixed[i + 1] };
	}
	http->fixed[count] = (struct curl_slist){ no_expect, NULL };
	if (http->source && (!http->source[0] || !is_value(http->source, strlen(http->source))))
		return pr_err_set(err, POSTROOM_SINK,
				  "source: a URI is wanted, as in source=//orders.example.test");
	if (http->query &&
	    (strpbrk(http->query, " #") || !is_value(http->query, strlen(http->query))))
		return pr_err_set(err, POSTROOM_SINK,
				  "query: a space or '#' in it is to be written %%2520 or %%2523");
	return make_url(http, err);
}

/* Takes the line in request->line. */
static void add_line(struct pr_http_request *request)
{
	struct curl_slist *header = pr_arena_alloc(&request->arena, sizeof(*header));

	if (!header || request->line.failed) {
		request->failed = true;
		return;
	}
	header->data = pr_arena_copy(&request->arena, request->line.data, request->line.len);
	if (!header->data) {
		request->failed = true;
		return;
	}
	header->next = request->http->fixed;
	*request->end = header;
	request->end = &header->next;
	pr_buf_reset(&request->line);
}

static void put_attributes(struct pr_http_request *request, const struct pr_ce *ce)
{
	for (size_t i = 0; i < ce->count; i++) {
		pr_buf_printf(&request->line, "ce-%s: ", ce->attributes[i].name);
		pr_ce_put_header_value(&request->line, ce->attributes[i].value);
		add_line(request);
	}
}

static bool is_fixed(const struct pr_http *http, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < http->headers.count; i++) {
		if (strncasecmp(http->headers.items[i], name, len) == 0 &&
		    http->headers.items[i][len] == ':')
			return true;
	}
	return (http->sink.url.user[0] || http->sink.url.password[0]) &&
	       strcasecmp(name, "authorization") == 0;
}

static bool refuse(struct pr_http_request *request, const struct pr_flight *flight,
		   const char *what, const char *name)
{
	char reason[300];

	snprintf(reason, sizeof(reason), "%s \"%.100s\" can not be sent by HTTP: %s", what, name,
		 "control characters are not allowed, and in names no spaces or separators");
	pr_sink_judge(request->item, 1, POSTROOM_REJECTED, flight, reason);
	return false;
}

/* Blanks around a value are no part of it, and in HTTP/2 a reason to refuse the request. */
static void trim_value(struct pr_buf *line, size_t value_at)
{
	size_t blanks;

	while (line->len > value_at && strchr(" \t", line->data[line->len - 1]))
		line->len--;
	line->data[line->len] = '\0';
	blanks = strspn(line->data + value_at, " \t");
	memmove(line->data + value_at, line->data + value_at + blanks,
		line->len + 1 - value_at - blanks);
	line->len -= blanks;
}

static bool put_message_headers(struct pr_http_request *request, const struct pr_flight *flight)
{
	const char *headers = request->item->headers;
	struct pr_json_members walk = pr_json_members((struct pr_span){ headers, strlen(headers) });
	struct pr_buf *line = &request->line;
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		size_t name_len, value_at;

		pr_buf_reset(line);
		pr_json_decode(name, line);
		name_len = line->len;
		if (line->failed)
			break;
		if (!is_token(pr_buf_text(line), name_len))
			return refuse(request, flight, "header", pr_buf_text(line));
		if (is_ours(line->data) || is_fixed(request->http, line->data))
			continue;
		pr_buf_puts(line, ": ");
		value_at = line->len;
		pr_json_decode(value, line);
		if (line->failed)
			break;
		if (!is_value(line->data + value_at, line->len - value_at)) {
			line->data[name_len] = '\0';
			return refuse(request, flight, "header", line->data);
		}
		trim_value(line, value_at);
		/* For libcurl a line that ends in ';' is a header without a value, one in ':' none at all. */
		if (line->len == value_at) {
			line->len = name_len;
			pr_buf_putc(line, ';');
		}
		add_line(request);
	}
	request->failed |= line->failed;
	pr_buf_reset(line);
	return true;
}

static void put_signature(struct pr_http_request *request, struct pr_span content)
{
	const char *id = request->item->id;
	int64_t seconds = pr_now_us() / 1000000;

	if (request->http->webhook.count == 0)
		return;
	pr_buf_printf(&request->line, "webhook-id: %s", id);
	add_line(request);
	pr_buf_printf(&request->line, "webhook-timestamp: %lld", (long long)seconds);
	add_line(request);
	pr_buf_puts(&request->line, "webhook-signature: ");
	if (!pr_webhook_sign(&request->http->webhook, id, seconds, content.data, content.len,
			     &request->line))
		request->failed = true;
	add_line(request);
}

static void put_own(struct pr_http_request *request, struct pr_span *ret_content)
{
	const postroom_delivery *item = request->item;
	struct pr_ce ce;

	pr_ce_fill(&ce, item, request->http->source, &request->source);
	request->failed |= request->source.failed;
	if (request->http->mode == PR_HTTP_STRUCTURED) {
		pr_sink_trim(&request->content);
		pr_ce_put_json(&request->content, &ce, item);
		request->failed |= request->content.failed;
		*ret_content = (struct pr_span){ request->content.data, request->content.len };
		pr_buf_puts(&request->line, "Content-Type: application/cloudevents+json");
	} else {
		*ret_content = item->body ? (struct pr_span){ item->body, item->body_len }
					  : (struct pr_span){ item->payload, item->payload_len };
		put_attributes(request, &ce);
		pr_buf_printf(&request->line, "Content-Type: %s", item->content_type);
	}
	add_line(request);
	pr_buf_puts(&request->line, "Idempotency-Key: ");
	pr_ce_put_header_value(&request->line, item->dedupe_key ? item->dedupe_key : item->id);
	add_line(request);
}

/* The address of this message, where each has its own. */
static bool put_url(struct pr_http_request *request, const struct pr_flight *flight)
{
	const struct pr_http *http = request->http;
	const char *path = http->url.data + http->origin_len;
	struct pr_err err;

	pr_buf_reset(&request->url);
	if (!http->templated)
		return true;
	pr_buf_append(&request->url, http->url.data, http->origin_len);
	if (pr_target_put(&request->url, path, &path_rule, request->item, &err) ==
	    POSTROOM_INVALID) {
		pr_sink_judge(request->item, 1, POSTROOM_REJECTED, flight, err.text);
		return false;
	}
	if (!request->url.failed && has_dot_segment(request->url.data + http->origin_len)) {
		pr_sink_judge(request->item, 1, POSTROOM_REJECTED, flight,
			      "a part of the path would be . or .. for this message, which leads "
			      "elsewhere");
		return false;
	}
	request->failed |= request->url.failed;
	return true;
}

bool pr_http_write(struct pr_http_request *request, const struct pr_flight *flight,
		   struct pr_span *ret_content)
{
	const postroom_delivery *item = request->item;

	pr_arena_reset(&request->arena);
	pr_buf_reset(&request->line);
	request->end = &request->headers;
	request->failed = false;
	if (!is_value(item->content_type, strlen(item->content_type)))
		return refuse(request, flight, "content_type", item->content_type);
	if (!put_url(request, flight))
		return false;
	put_own(request, ret_content);
	if (!put_message_headers(request, flight))
		return false;
	put_signature(request, *ret_content);
	if (request->failed) {
		pr_sink_judge(request->item, 1, POSTROOM_UNREACHABLE, flight, "out of memory");
		return false;
	}
	return true;
}
