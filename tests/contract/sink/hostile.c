/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every attribute of a message × hostile values × every sink, read back from the real
 * receiver: exactly one message arrives, with exactly the attributes that were given, or the
 * message is rejected with a reason and nothing arrives.
 *
 * Attributes are C strings, so that only a header's JSON can bring a NUL.
 */
#include "contract/sink/hostile.h"

#include "base/text.h"
#include "base/time.h"
#include "contract/sink/server.h"

#include <stdlib.h>

#define OVERLONG 5000 /* longer than any name, subject or short string may be */

enum attribute {
	ID,
	NAMESPACE,
	TOPIC,
	KEY,
	TENANT,
	DEDUPE_KEY,
	CORRELATION_ID,
	CONTENT_TYPE,
	HEADER_NAME,
	HEADER_VALUE,
	ATTRIBUTES
};

static const char *const attribute_names[ATTRIBUTES] = {
	"id",	      "namespace",	"topic",	"key",	       "tenant_id",
	"dedupe_key", "correlation_id", "content_type", "header name", "header value",
};

static char overlong[OVERLONG + 1];

static const char *const values[] = {
	"a\rb",
	"a\nb",
	"a\r\nEvil: yes",
	"a\r\n\r\nPOST /evil HTTP/1.1\r\nHost: evil\r\nContent-Length: 0\r\n\r\n",
	"a\r\n\r\n*3\r\n$3\r\nSET\r\n$4\r\nevil\r\n$3\r\nyes\r\n",
	"a 1\r\nx\r\nPUB evil 3\r\nyes\r\n",
	"a%0d%0aEvil:%20yes",
	"a\tb",
	"a\x7f"
	"b",
	"\x01\x1b[2J",
	"caf\xc3\xa9 \xe2\x80\xa8\xc2\x85",
	"a\xff"
	"b",
	"a\xc0\x8d\xc0\x8a",
	"a\xed\xa0\x80",
	" a ",
	"a b",
	"../../a/b",
	"..",
	"a.*.>.b",
	"$JS.API.STREAM.DELETE",
	"{topic}}{{key}",
	"\"'`$(touch evil);\\",
	"a:b=c",
	overlong,
};
#define VALUES (sizeof(values) / sizeof(*values))

/* Not part the tables take for headers; whatever they hold, a sink must not be led astray. */
static const char *const bad_headers[] = {
	"",
	"[]",
	"null",
	"{\"a\":1}",
	"{\"a\":null}",
	"{\"a\":{\"b\":\"c\"}}",
	"{\"a\":\"b\"}{\"c\":\"d\"}",
	"{\"a\":\"b\"},\"id\":\"evil\"",
	"{\"a\":\"b\nEvil: yes\"}",
	"{\"a\":\"b",
	"{\"a\":\"b\\u0000c\"}",
	"{\"a\\u0000b\":\"c\"}",
	"{\"a\":\"\\ud800\"}",
};
#define BAD_HEADERS (sizeof(bad_headers) / sizeof(*bad_headers))

static void put_escaped(struct pr_buf *out, const void *value, size_t len)
{
	const unsigned char *at = value;

	for (size_t i = 0; i < len; i++) {
		if (at[i] > ' ' && at[i] < 0x7f && at[i] != '\\' && at[i] != '=')
			pr_buf_putc(out, (char)at[i]);
		else
			pr_buf_printf(out, "\\x%02x", at[i]);
	}
}

struct pr_buf *record_add(struct records *records)
{
	CHECK(records->count < RECORDS_MAX);
	return &records->text[records->count++];
}

void record_put(struct pr_buf *record, const char *name, const void *value, size_t len)
{
	put_escaped(record, name, strlen(name));
	pr_buf_putc(record, '=');
	put_escaped(record, value, len);
	pr_buf_putc(record, '\n');
}

void record_puts(struct pr_buf *record, const char *name, const char *value)
{
	record_put(record, name, value ? value : "", value ? strlen(value) : 0);
}

void record_put_header(struct pr_buf *record, const char *name, size_t name_len, const void *value,
		       size_t len)
{
	pr_buf_puts(record, "header\\x20");
	put_escaped(record, name, name_len);
	pr_buf_putc(record, '=');
	put_escaped(record, value, len);
	pr_buf_putc(record, '\n');
}

void record_put_headers(struct pr_buf *record, struct pr_span headers, bool trimmed)
{
	struct pr_json_members walk = pr_json_members(headers);
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		PR_CLEANUP_BUF struct pr_buf left = { 0 };
		PR_CLEANUP_BUF struct pr_buf right = { 0 };
		const char *start;
		size_t len;

		pr_json_decode(name, &left);
		pr_json_decode(value, &right);
		start = pr_buf_text(&right);
		len = right.len;
		for (; trimmed && len > 0 && strchr(" \t", *start); len--)
			start++;
		while (trimmed && len > 0 && strchr(" \t", start[len - 1]))
			len--;
		record_put_header(record, pr_buf_text(&left), left.len, start, len);
	}
}

bool each_header(struct pr_span headers, bool (*good)(const char *name, const char *value))
{
	struct pr_json_members walk = pr_json_members(headers);
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		PR_CLEANUP_BUF struct pr_buf left = { 0 };
		PR_CLEANUP_BUF struct pr_buf right = { 0 };

		pr_json_decode(name, &left);
		pr_json_decode(value, &right);
		if (!good(pr_buf_text(&left), pr_buf_text(&right)))
			return false;
	}
	return true;
}

static struct rig world;

static const char *keep(struct pr_buf *text)
{
	const char *kept = pr_arena_strdup(&world.arena, pr_buf_text(text));

	CHECK(kept != NULL);
	pr_buf_release(text);
	return kept;
}

const char *percent_encode(const char *text)
{
	struct pr_buf out = { 0 };

	for (; text && *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c > ' ' && c < 0x7f && c != '"' && c != '%')
			pr_buf_putc(&out, (char)c);
		else
			pr_buf_printf(&out, "%%%02X", c);
	}
	return keep(&out);
}

const char *escape_bytes(const char *text, const char *kept, char escape)
{
	struct pr_buf out = { 0 };

	for (; text && *text; text++) {
		unsigned char c = (unsigned char)*text, lower = c | 0x20;

		if ((lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || strchr(kept, c))
			pr_buf_putc(&out, (char)c);
		else
			pr_buf_printf(&out, "%c%02X", escape, c);
	}
	return keep(&out);
}

bool is_printable(const char *text)
{
	for (; *text; text++) {
		if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
			return false;
	}
	return true;
}

void record_put_event(struct pr_buf *record, const postroom_delivery *item, const char *prefix,
		      bool encoded)
{
	char time[PR_RFC3339_SIZE], source[OVERLONG * 3 + 50];
	const char *const attributes[][2] = {
		{ "specversion", "1.0" },
		{ "id", item->id },
		{ "source", source },
		{ "type", item->topic },
		{ "time", time },
		{ "subject", item->key },
		{ "tenantid", item->tenant_id },
		{ "correlationid", item->correlation_id },
	};

	pr_rfc3339(item->created_at_us, time);
	snprintf(source, sizeof(source), "/postroom/%s", escape_bytes(item->ns, "-._~", '%'));
	for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++) {
		PR_CLEANUP_BUF struct pr_buf name = { 0 };
		const char *value = attributes[i][1];

		if (!value)
			continue;
		pr_buf_printf(&name, "%s%s", prefix, attributes[i][0]);
		value = encoded ? percent_encode(value) : value;
		record_put_header(record, pr_buf_text(&name), name.len, value, strlen(value));
	}
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines in order, so that records can be compared. */
static const char *sorted(const struct pr_buf *record)
{
	char *lines[100], *rest, *copy = strdup(pr_buf_text(record));
	struct pr_buf out = { 0 };
	size_t count = 0;

	for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		CHECK(count < 100);
		lines[count++] = line;
	}
	qsort(lines, count, sizeof(*lines), compare_lines);
	for (size_t i = 0; i < count; i++)
		pr_buf_printf(&out, "%s\n", lines[i]);
	free(copy);
	return keep(&out);
}

/* As JSON, with bytes beyond ASCII as they are. */
static const char *make_headers(const char *name, const char *value)
{
	const char *const parts[] = { name, value };
	struct pr_buf out = { 0 };

	for (int i = 0; i < 2; i++) {
		pr_buf_puts(&out, i == 0 ? "{\"" : "\":\"");
		for (const char *at = parts[i]; *at; at++) {
			if ((unsigned char)*at < ' ' || *at == '"' || *at == '\\')
				pr_buf_printf(&out, "\\u%04x", (unsigned)*at);
			else
				pr_buf_putc(&out, *at);
		}
	}
	pr_buf_puts(&out, "\"}");
	return keep(&out);
}

static void set_attribute(postroom_delivery *item, enum attribute attribute, const char *value)
{
	const char **const fields[ATTRIBUTES] = {
		[ID] = &item->id,
		[NAMESPACE] = &item->ns,
		[TOPIC] = &item->topic,
		[KEY] = &item->key,
		[TENANT] = &item->tenant_id,
		[DEDUPE_KEY] = &item->dedupe_key,
		[CORRELATION_ID] = &item->correlation_id,
		[CONTENT_TYPE] = &item->content_type,
	};

	if (attribute == HEADER_NAME)
		item->headers = make_headers(value, "x");
	else if (attribute == HEADER_VALUE)
		item->headers = make_headers("x-name", value);
	else
		*fields[attribute] = value;
}

static const struct hostile_kind *kind;
static struct server server;

static void begin_test(const struct hostile_kind *which)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };

	kind = which;
	memset(overlong, 'x', OVERLONG);
	rig_init(&world);
	if (kind->start) {
		server.port = server_free_port();
		kind->start(&server);
	}
	kind->put_url(&server, &url);
	if (kind->enter)
		kind->enter();
	rig_open(&world, pr_buf_text(&url));
	if (kind->leave)
		kind->leave();
}

static void end_test(void)
{
	rig_release(&world);
}

static void publish(postroom_delivery *items, size_t count)
{
	if (kind->enter)
		kind->enter();
	rig_publish(&world, items, count);
	if (kind->leave)
		kind->leave();
}

static bool is_text(const postroom_delivery *item)
{
	const char *const texts[] = {
		item->id,	 item->ns,	   item->topic,		 item->key,
		item->tenant_id, item->dedupe_key, item->correlation_id, item->content_type,
		item->headers
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		if (texts[i] && !pr_utf8_valid(texts[i], strlen(texts[i])))
			return false;
	}
	return true;
}

static size_t count_equal(const struct records *records, const char *expected)
{
	size_t found = 0;

	for (size_t i = 0; i < records->count; i++)
		found += strcmp(sorted(&records->text[i]), expected) == 0;
	return found;
}

/* A record with the same content; for the message of a failed test. */
static const char *find_content(const struct records *records, const postroom_delivery *item)
{
	PR_CLEANUP_BUF struct pr_buf line = { 0 };

	record_put(&line, "content", item->payload, item->payload_len);
	for (size_t i = 0; i < records->count; i++) {
		if (strstr(pr_buf_text(&records->text[i]), pr_buf_text(&line)))
			return sorted(&records->text[i]);
	}
	return "nothing";
}

static void check_item(const postroom_delivery *item, const struct records *records,
		       const char *part, const char *value)
{
	PR_CLEANUP_BUF struct pr_buf shown = { 0 };
	PR_CLEANUP_BUF struct pr_buf expected = { 0 };
	bool carried = is_text(item) && kind->expect(item, &expected);

	put_escaped(&shown, value, strnlen(value, 60));
	CHECK_MSG(item->verdict == (carried ? POSTROOM_DELIVERED : POSTROOM_REJECTED),
		  "%s \"%s\": verdict %d (%s)", part, pr_buf_text(&shown), (int)item->verdict,
		  item->reason ? item->reason : "");
	if (!carried) {
		CHECK_MSG(item->reason && strlen(item->reason) > 20, "%s \"%s\": %s", part,
			  pr_buf_text(&shown), item->reason ? item->reason : "no reason");
		CHECK_MSG(strcmp(find_content(records, item), "nothing") == 0, "%s \"%s\": %s",
			  part, pr_buf_text(&shown), find_content(records, item));
		return;
	}
	CHECK_MSG(count_equal(records, sorted(&expected)) == 1,
		  "%s \"%s\" arrived as\n%snot as\n%s", part, pr_buf_text(&shown),
		  find_content(records, item), sorted(&expected));
}

static size_t count_delivered(const postroom_delivery *items, size_t count)
{
	size_t delivered = 0;

	for (size_t i = 0; i < count; i++)
		delivered += items[i].verdict == POSTROOM_DELIVERED;
	return delivered;
}

static void release(struct records *records)
{
	for (size_t i = 0; i < RECORDS_MAX; i++)
		pr_buf_release(&records->text[i]);
	free(records);
}

#undef TEST
#define TEST(test_name)                                                                            \
	static void test_name(void);                                                               \
	REGISTER_FOR(test_name, hostile_file)                                                      \
	REGISTER_FOR(test_name, hostile_stdout)                                                    \
	REGISTER_FOR(test_name, hostile_exec)                                                      \
	IF_HTTP(REGISTER_FOR(test_name, hostile_http))                                             \
	IF_HTTP(REGISTER_FOR(test_name, hostile_structured))                                       \
	IF_KAFKA(REGISTER_FOR(test_name, hostile_kafka))                                           \
	IF_NATS(REGISTER_FOR(test_name, hostile_nats))                                             \
	IF_REDIS(REGISTER_FOR(test_name, hostile_redis))                                           \
	IF_AMQP(REGISTER_FOR(test_name, hostile_amqp))                                             \
	static void test_name(void)

TEST(K1_hostile_attribute_is_sent_exactly_or_rejected)
{
	struct records *records = calloc(1, sizeof(*records));
	size_t count = ATTRIBUTES * VALUES;
	postroom_delivery *items = rig_items(&world, count);

	CHECK(records != NULL);
	for (size_t i = 0; i < count; i++)
		set_attribute(&items[i], (enum attribute)(i / VALUES), values[i % VALUES]);
	publish(items, count);
	kind->read(&server, records);
	for (size_t i = 0; i < count; i++)
		check_item(&items[i], records, attribute_names[i / VALUES], values[i % VALUES]);
	CHECK_INT(records->count, count_delivered(items, count));
	release(records);
}

TEST(K1_headers_other_than_object_of_strings_are_rejected)
{
	struct records *records = calloc(1, sizeof(*records));
	postroom_delivery *items = rig_items(&world, BAD_HEADERS + 1);

	CHECK(records != NULL);
	for (size_t i = 0; i < BAD_HEADERS; i++)
		items[i].headers = bad_headers[i];
	publish(items, BAD_HEADERS + 1);
	for (size_t i = 0; i < BAD_HEADERS; i++) {
		CHECK_MSG(items[i].verdict == POSTROOM_REJECTED, "%s: verdict %d", bad_headers[i],
			  (int)items[i].verdict);
		CHECK_CONTAINS(items[i].reason, "headers");
	}
	CHECK_INT(items[BAD_HEADERS].verdict, POSTROOM_DELIVERED);
	kind->read(&server, records);
	CHECK_INT(records->count, 1);
	release(records);
}

/* A rejected message is not delivered: part follows it in its key waits for the next call. */
TEST(D6_rejected_attribute_blocks_later_messages_of_its_key)
{
	struct records *records = calloc(1, sizeof(*records));
	postroom_delivery *items = rig_items(&world, 5);

	CHECK(records != NULL);
	for (int i = 0; i < 4; i++)
		items[i].key = "k";
	items[1].headers = "[]";
	publish(items, 5);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	CHECK_INT(items[1].verdict, POSTROOM_REJECTED);
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	CHECK_INT(items[3].verdict, POSTROOM_UNTRIED);
	CHECK_INT(items[4].verdict, POSTROOM_DELIVERED);
	kind->read(&server, records);
	CHECK_INT(records->count, 2);
	release(records);
}
