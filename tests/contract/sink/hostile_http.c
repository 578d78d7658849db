/* SPDX-License-Identifier: Apache-2.0 */
/* http:, in both modes of CloudEvents: the requests as they came, read strictly. */
#include "contract/sink/hostile.h"
#include "contract/sink/http_server.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#define KEY_BASE64 "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLw=="
#define PATH "/{topic}/n-{namespace}/k-{key}/t-{tenant}?secret=whsec_" KEY_BASE64

static void start(struct server *server)
{
	(void)server;
	start_server(answer_ok);
}

static void put_url(const struct server *server, struct pr_buf *out)
{
	(void)server;
	pr_buf_printf(out, "%s" PATH "&header=Authorization:%%20Bearer%%20x", web.base);
}

static void put_structured_url(const struct server *server, struct pr_buf *out)
{
	put_url(server, out);
	pr_buf_puts(out, "&mode=structured");
}

static bool is_token(const char *name)
{
	for (const char *at = name; *at; at++) {
		if (!strchr("!#$%&'*+-.^_`|~0123456789", *at) &&
		    ((*at | 0x20) < 'a' || (*at | 0x20) > 'z'))
			return false;
	}
	return name[0] != '\0';
}

/* The value of a header among the lines of a head, or "". */
static void find_header(struct pr_span head, const char *name, char *out, size_t size)
{
	struct pr_buf text = { .data = (char *)head.data, .len = head.len };
	struct pr_span line;
	size_t len = strlen(name);

	out[0] = '\0';
	for (size_t at = 0; next_line(&text, &at, &line);) {
		if (line.len > len + 2 && strncmp(line.data, name, len) == 0 &&
		    line.data[len] == ':')
			snprintf(out, size, "%.*s", (int)(line.len - len - 3), line.data + len + 2);
	}
}

/* The signature is that of the id as it came. */
static bool is_signed(struct pr_span head, struct pr_span content)
{
	PR_CLEANUP_BUF struct pr_buf key = { 0 };
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	char id[20000], time[40], got[100], expected[100] = "v1,";
	unsigned char digest[32];
	unsigned int len = sizeof(digest);

	find_header(head, "webhook-id", id, sizeof(id));
	find_header(head, "webhook-timestamp", time, sizeof(time));
	find_header(head, "webhook-signature", got, sizeof(got));
	pr_buf_printf(&text, "%s.%s.", id, time);
	pr_buf_append(&text, content.data, content.len);
	CHECK(pr_base64_decode((struct pr_span){ KEY_BASE64, strlen(KEY_BASE64) }, &key));
	CHECK(HMAC(EVP_sha256(), key.data, (int)key.len, (const unsigned char *)text.data, text.len,
		   digest, &len) != NULL);
	EVP_EncodeBlock((unsigned char *)expected + 3, digest, (int)len);
	return strcmp(got, expected) == 0;
}

/* A line of a head without its LF. */
static void read_line(struct pr_span line, struct pr_buf *record)
{
	const char *colon = memchr(line.data, ':', line.len);
	const char *value, *end = line.data + line.len - 1;
	char name[6000];

	CHECK_MSG(line.len > 0 && *end == '\r' && !memchr(line.data, '\r', line.len - 1),
		  "a line does not end in CR LF: %.*s", (int)line.len, line.data);
	CHECK_MSG(colon != NULL, "%.*s is no header", (int)line.len, line.data);
	snprintf(name, sizeof(name), "%.*s", (int)(colon - line.data), line.data);
	CHECK_MSG(is_token(name), "%s is no header's name", name);
	value = colon + 1 + strspn(colon + 1, " \t");
	while (end > value && strchr(" \t", end[-1]))
		end--;
	if (strcmp(name, "webhook-timestamp") == 0 || strcmp(name, "webhook-signature") == 0)
		return;
	record_put_header(record, name, strlen(name), value, (size_t)(end - value));
}

static void read_request(struct pr_span request, struct pr_buf *record)
{
	const char *end = memmem(request.data, request.len, "\r\n\r\n", 4);
	struct pr_buf head = { .data = (char *)request.data };
	struct pr_span line, content;
	size_t at = 0;

	CHECK(end != NULL);
	head.len = (size_t)(end + 2 - request.data);
	content = (struct pr_span){ end + 4, request.len - head.len - 2 };
	CHECK(next_line(&head, &at, &line));
	record_put(record, "request", line.data, line.len - 1);
	while (next_line(&head, &at, &line))
		read_line(line, record);
	record_puts(record, "signed",
		    is_signed((struct pr_span){ head.data, head.len }, content) ? "yes" : "no");
	record_put(record, "content", content.data, content.len);
}

static void read_requests(const struct server *server, struct records *out)
{
	const char *at = web.seen.data, *all_end = at + web.seen.len;

	(void)server;
	while (at < all_end) {
		const char *end = memchr(at, 0x1e, (size_t)(all_end - at));

		CHECK(end != NULL);
		read_request((struct pr_span){ at, (size_t)(end - at) }, record_add(out));
		at = end + 1;
	}
}

static bool is_carried(const char *name, const char *value)
{
	return is_token(name) && is_printable(value);
}

static void put_text_header(struct pr_buf *record, const char *name, const char *value)
{
	record_put_header(record, name, strlen(name), value, strlen(value));
}

/* The checks of both modes. False: the message must be rejected. */
static bool expect_request(const postroom_delivery *item, size_t content_len, struct pr_buf *record)
{
	PR_CLEANUP_BUF struct pr_buf line = { 0 };
	struct pr_span headers = { item->headers, strlen(item->headers) };
	char length[32];

	if (!each_header(headers, is_carried) || strcmp(item->topic, "..") == 0)
		return false;
	pr_buf_printf(&line, "POST /%s/n-%s", escape_bytes(item->topic, "-._~", '%'),
		      escape_bytes(item->ns, "-._~", '%'));
	pr_buf_printf(&line, "/k-%s/t-%s HTTP/1.1", escape_bytes(item->key, "-._~", '%'),
		      escape_bytes(item->tenant_id, "-._~", '%'));
	record_put(record, "request", line.data, line.len);
	snprintf(length, sizeof(length), "%zu", content_len);
	put_text_header(record, "Host", web.base + strlen("http://"));
	put_text_header(record, "User-Agent", "postroom/" POSTROOM_VERSION);
	put_text_header(record, "Accept", "*/*");
	put_text_header(record, "Content-Length", length);
	put_text_header(record, "Authorization", "Bearer x");
	put_text_header(record, "webhook-id", percent_encode(item->id));
	put_text_header(record, "Idempotency-Key",
			percent_encode(item->dedupe_key ? item->dedupe_key : item->id));
	record_put_headers(record, headers, true);
	record_puts(record, "signed", "yes");
	return true;
}

static bool expect_binary(const postroom_delivery *item, struct pr_buf *record)
{
	const char *start = item->content_type + strspn(item->content_type, " \t");
	size_t len = strlen(start);

	if (!expect_request(item, item->payload_len, record) || !is_printable(item->content_type))
		return false;
	while (len > 0 && strchr(" \t", start[len - 1]))
		len--;
	record_put_header(record, "Content-Type", strlen("Content-Type"), start, len);
	record_put_event(record, item, "ce-", true);
	record_put(record, "content", item->payload, item->payload_len);
	return true;
}

static void put_json(struct pr_buf *out, const char *name, const char *value)
{
	if (!value)
		return;
	pr_buf_printf(out, "%s\"%s\":", out->len > 0 ? "," : "{", name);
	pr_json_put_string(out, value);
}

static bool expect_structured(const postroom_delivery *item, struct pr_buf *record)
{
	PR_CLEANUP_BUF struct pr_buf content = { 0 };
	PR_CLEANUP_BUF struct pr_buf source = { 0 };

	pr_buf_printf(&source, "/postroom/%s", escape_bytes(item->ns, "-._~", '%'));
	put_json(&content, "specversion", "1.0");
	put_json(&content, "id", item->id);
	put_json(&content, "source", pr_buf_text(&source));
	put_json(&content, "type", item->topic);
	put_json(&content, "time", "2023-11-14T22:13:20.123456Z");
	put_json(&content, "subject", item->key);
	put_json(&content, "tenantid", item->tenant_id);
	put_json(&content, "correlationid", item->correlation_id);
	put_json(&content, "datacontenttype", item->content_type);
	/* Of another type, the payload's text is the content. */
	if (strcmp(item->content_type, "application/json") == 0)
		pr_buf_printf(&content, ",\"data\":%s}", item->payload);
	else
		put_json(&content, "data", item->payload), pr_buf_putc(&content, '}');
	if (!expect_request(item, content.len, record))
		return false;
	put_text_header(record, "Content-Type", "application/cloudevents+json");
	record_put(record, "content", content.data, content.len);
	return true;
}

const struct hostile_kind hostile_http = {
	.start = start,
	.put_url = put_url,
	.read = read_requests,
	.expect = expect_binary,
};

const struct hostile_kind hostile_structured = {
	.start = start,
	.put_url = put_structured_url,
	.read = read_requests,
	.expect = expect_structured,
};
