/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. No byte of a message can end a header line or add one: attributes and ids are
 *    percent-encoded, and pr_attributes_check() has passed the content type and headers.
 * 2. Headers of a message cannot override those of the protocol (content-length, ce-…,
 *    webhook-…) or of the sink's settings.
 * 3. Our own headers come first in the list, so that a redirect to another origin can go
 *    without the message's and those of the settings, which may be secret.
 * 4. The content is the message's own memory, or this request's: nothing is copied
 *    to be sent, and nothing is allocated for it after warm-up.
 */
#include "sink/http.h"

#include "base/json.h"
#include "sink/attributes.h"
#include "sink/target.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_own_header(const char *name)
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

	/* The error does not repeat the line: it may contain a token. */
	if (!line[len] || !pr_is_token(line, len) || !pr_is_header_value(line, strlen(line)))
		return pr_err_set(err, POSTROOM_SINK,
				  "header: write NAME: VALUE, as in header=X-Team: orders");
	if (strspn(line + len + 1, " \t") == strlen(line + len + 1))
		return pr_err_set(err, POSTROOM_SINK, "header: \"%.*s:\" has no value", (int)len,
				  line);
	snprintf(name, sizeof(name), "%.*s", (int)len, line);
	if (is_own_header(name))
		return pr_err_set(err, POSTROOM_SINK, "header: %s cannot be set", name);
	return POSTROOM_OK;
}

/*
 * Keeps escapes as written, because an escaped slash is not a separator, and encodes other bytes
 * where a path requires it. Only the braces of a template may be escaped, as in every sink.
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

/* A value is one segment, or part of one, or of the query: its slashes and '&' are not separators.
 */
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
		return pr_err_set(err, POSTROOM_SINK, "\"%s\" is not a host%s%s; write it as in %s",
				  url->host, code != CURLUE_OK ? ": " : "",
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
	/* Large contents are sent immediately, without "Expect: 100-continue". */
	static char no_expect[] = "Expect:";
	size_t count = http->headers.count;

	for (size_t i = 0; i < count; i++) {
		if (check_fixed(http->headers.items[i], err) < 0)
			return err->status;
		http->fixed[i] = (struct curl_slist){ (char *)http->headers.items[i],
						      &http->fixed[i + 1] };
	}
	http->fixed[count] = (struct curl_slist){ no_expect, NULL };
	if (http->source &&
	    (!http->source[0] || !pr_is_header_value(http->source, strlen(http->source))))
		return pr_err_set(err, POSTROOM_SINK,
				  "source: must be a URI, as in source=//orders.example.test");
	if (http->query &&
	    (strpbrk(http->query, " #") || !pr_is_header_value(http->query, strlen(http->query))))
		return pr_err_set(err, POSTROOM_SINK,
				  "query: write a space as %%2520 and '#' as %%2523");
	return make_url(http, err);
}

/* Appends the line in request->line to the list. */
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

/* Appends a value unchanged, except for surrounding blanks: they are not part of it, and HTTP/2
 * forbids them. */
static void put_header_value(struct pr_http_request *request, const char *text, size_t len)
{
	struct pr_span value = pr_trim_value(text, len);

	pr_buf_append(&request->line, value.data, value.len);
}

/* They were checked: names are tokens, and values have no line breaks. */
static void put_message_headers(struct pr_http_request *request)
{
	const char *headers = request->item->headers;
	struct pr_json_members walk = pr_json_members((struct pr_span){ headers, strlen(headers) });
	struct pr_buf *line = &request->line, *text = &request->text;
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		size_t name_len;

		pr_buf_reset(line);
		pr_buf_reset(text);
		pr_json_decode(name, line);
		pr_json_decode(value, text);
		if (line->failed || text->failed)
			break;
		if (is_own_header(line->data) || is_fixed(request->http, line->data))
			continue;
		name_len = line->len;
		pr_buf_puts(line, ": ");
		put_header_value(request, pr_buf_text(text), text->len);
		/* For libcurl, a line that ends in ';' is a header without a value, and one that
		 * ends in ':' removes the header. */
		if (line->len == name_len + 2) {
			line->len = name_len;
			pr_buf_putc(line, ';');
		}
		add_line(request);
	}
	request->failed |= line->failed || text->failed;
	pr_buf_reset(line);
}

/* The signature covers the id as it is sent. */
static void put_signature_header(struct pr_http_request *request, struct pr_span content)
{
	struct pr_buf *id = &request->text;
	int64_t seconds = pr_now_us() / 1000000;

	if (request->http->webhook.count == 0)
		return;
	pr_buf_reset(id);
	pr_ce_put_header_value(id, request->item->id);
	request->failed |= id->failed;
	pr_buf_printf(&request->line, "webhook-id: %s", pr_buf_text(id));
	add_line(request);
	pr_buf_printf(&request->line, "webhook-timestamp: %lld", (long long)seconds);
	add_line(request);
	pr_buf_puts(&request->line, "webhook-signature: ");
	if (!pr_webhook_sign(&request->http->webhook, pr_buf_text(id), seconds, content,
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
		pr_buf_trim(&request->content);
		pr_ce_put_json(&request->content, &ce, item);
		request->failed |= request->content.failed;
		*ret_content = (struct pr_span){ request->content.data, request->content.len };
		pr_buf_puts(&request->line, "Content-Type: application/cloudevents+json");
	} else {
		*ret_content = item->body ? (struct pr_span){ item->body, item->body_len }
					  : (struct pr_span){ item->payload, item->payload_len };
		put_attributes(request, &ce);
		pr_buf_puts(&request->line, "Content-Type: ");
		put_header_value(request, item->content_type, strlen(item->content_type));
	}
	add_line(request);
	pr_buf_puts(&request->line, "Idempotency-Key: ");
	pr_ce_put_header_value(&request->line, item->dedupe_key ? item->dedupe_key : item->id);
	add_line(request);
}

void pr_http_drop_headers(struct pr_http_request *request)
{
	struct pr_http *http = request->http;

	/* libcurl reads the list again for each request. The last fixed header is "Expect:". */
	*request->foreign = &http->fixed[http->headers.count];
}

/* Sets the address of this message, if each has its own. */
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

#define RULE "control characters are not allowed, and in names no spaces or separators"

static const struct pr_protocol binary = {
	.name = "HTTP",
	.content_type = pr_is_header_value,
	.header_name = pr_is_token,
	.header_value = pr_is_header_value,
	.rule = RULE,
};

/* There, content type and payload are members of a JSON object. */
static const struct pr_protocol structured = {
	.name = "HTTP",
	.json = true,
	.header_name = pr_is_token,
	.header_value = pr_is_header_value,
	.rule = RULE,
};

bool pr_http_write(struct pr_http_request *request, const struct pr_flight *flight,
		   struct pr_span *ret_content)
{
	struct pr_err err = { 0 };

	pr_arena_reset(&request->arena);
	pr_buf_reset(&request->line);
	request->end = &request->headers;
	if (pr_attributes_check(request->item,
				request->http->mode == PR_HTTP_BINARY ? &binary : &structured,
				&request->text, &err) == POSTROOM_INVALID) {
		pr_sink_judge(request->item, 1, POSTROOM_REJECTED, flight, err.text);
		return false;
	}
	request->failed = err.status < 0;
	if (!put_url(request, flight))
		return false;
	put_own(request, ret_content);
	put_signature_header(request, *ret_content);
	request->foreign = request->end;
	put_message_headers(request);
	if (request->failed) {
		pr_sink_judge(request->item, 1, POSTROOM_UNREACHABLE, flight, "out of memory");
		return false;
	}
	return true;
}
