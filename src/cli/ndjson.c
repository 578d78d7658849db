/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Returned messages do not move before ndjson_recycle(): the buffer has its full
 *    size from the start (unused pages cost nothing) and is never reallocated.
 * 2. This file checks only that a line is an object with known members of the right
 *    type; core/message.c validates the message.
 */
#include "cli/ndjson.h"

#include "base/json.h"
#include "base/text.h"
#include "base/time.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK ((size_t)4 * 1024 * 1024)
#define READ_SIZE ((size_t)256 * 1024)
#define SLACK ((size_t)256 * 1024) /* all members but the payload, escaped */

enum kind { TEXT, PAYLOAD, HEADERS, BODY, DELAY, PRIORITY };

static const struct member {
	const char *name;
	enum kind kind;
	size_t offset; /* for TEXT */
} members[] = {
	{ "topic", TEXT, offsetof(postroom_message, topic) },
	{ "payload", PAYLOAD, 0 },
	{ "key", TEXT, offsetof(postroom_message, key) },
	{ "namespace", TEXT, offsetof(postroom_message, ns) },
	{ "tenant_id", TEXT, offsetof(postroom_message, tenant_id) },
	{ "dedupe_key", TEXT, offsetof(postroom_message, dedupe_key) },
	{ "idempotency_key", TEXT, offsetof(postroom_message, idempotency_key) },
	{ "correlation_id", TEXT, offsetof(postroom_message, correlation_id) },
	{ "headers", HEADERS, 0 },
	{ "content_type", TEXT, offsetof(postroom_message, content_type) },
	{ "body_base64", BODY, 0 },
	{ "delay", DELAY, 0 },
	{ "priority", PRIORITY, 0 },
};
#define MEMBER_COUNT (sizeof(members) / sizeof(members[0]))

struct parser {
	const char *line;
	struct pr_arena *arena;
	struct pr_buf *scratch;
	postroom_message *message;
	struct pr_err *err;
};

static size_t column_of(const char *line, size_t offset)
{
	size_t column = 1;

	for (size_t i = 0; i < offset; i++)
		column += ((unsigned char)line[i] & 0xc0) != 0x80;
	return column;
}

__attribute__((format(printf, 3, 4))) static int refuse(struct parser *parser, const char *at,
							const char *format, ...)
{
	char message[300];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return pr_err_set(parser->err, POSTROOM_INVALID, "column %zu: %s",
			  column_of(parser->line, (size_t)(at - parser->line)), message);
}

/* Decodes a raw string into the arena; most need no decoding. */
static char *decode(struct parser *parser, struct pr_span string, size_t *ret_len)
{
	const char *inside = string.data + 1;
	size_t len = string.len - 2;

	if (memchr(inside, '\\', len)) {
		pr_buf_reset(parser->scratch);
		pr_json_decode(string, parser->scratch);
		if (parser->scratch->failed)
			return NULL;
		inside = pr_buf_text(parser->scratch);
		len = parser->scratch->len;
	}
	*ret_len = len;
	return pr_arena_copy(parser->arena, inside, len);
}

static const struct member *find_member(const char *name, size_t len)
{
	for (size_t i = 0; i < MEMBER_COUNT; i++) {
		if (strncmp(members[i].name, name, len) == 0 && members[i].name[len] == '\0')
			return &members[i];
	}
	return NULL;
}

static int refuse_name(struct parser *parser, const char *at, const char *name)
{
	const char *names[MEMBER_COUNT + 1];
	const char *nearest;

	for (size_t i = 0; i < MEMBER_COUNT; i++)
		names[i] = members[i].name;
	names[MEMBER_COUNT] = NULL;
	nearest = pr_text_nearest(name, names);
	if (nearest)
		return refuse(parser, at, "unknown member \"%.60s\"; did you mean \"%s\"?", name,
			      nearest);
	return refuse(parser, at, "unknown member \"%.60s\"", name);
}

static int set_text(struct parser *parser, const struct member *member, struct pr_span value)
{
	size_t len;
	char *text;

	if (pr_json_kind(value) != '"')
		return refuse(parser, value.data, "%s must be a string", member->name);
	text = decode(parser, value, &len);
	if (!text)
		return pr_err_nomem(parser->err);
	*(const char **)((char *)parser->message + member->offset) = text;
	return POSTROOM_OK;
}

static int set_headers(struct parser *parser, struct pr_span value)
{
	if (pr_json_kind(value) != '{')
		return refuse(parser, value.data, "headers must be an object of strings");
	parser->message->headers = pr_arena_copy(parser->arena, value.data, value.len);
	return parser->message->headers ? POSTROOM_OK : pr_err_nomem(parser->err);
}

static int set_body(struct parser *parser, struct pr_span value)
{
	struct pr_span text = { value.data + 1, value.len - 2 };
	bool escaped;

	if (pr_json_kind(value) != '"')
		return refuse(parser, value.data, "body_base64 must be a string");
	/* Some encoders write '/' as "\/". */
	escaped = memchr(text.data, '\\', text.len) != NULL;
	if (escaped) {
		text.data = decode(parser, value, &text.len);
		if (!text.data)
			return pr_err_nomem(parser->err);
	}
	pr_buf_reset(parser->scratch);
	if (!pr_base64_decode(text, parser->scratch))
		return refuse(parser, value.data, "body_base64 is not base64");
	parser->message->body = parser->scratch->failed
					? NULL
					: pr_arena_copy(parser->arena, pr_buf_text(parser->scratch),
							parser->scratch->len);
	parser->message->body_len = parser->scratch->len;
	return parser->message->body ? POSTROOM_OK : pr_err_nomem(parser->err);
}

/* A number ends where its member does, so strtod() stops inside the line. */
static int set_delay(struct parser *parser, struct pr_span value)
{
	double seconds;
	size_t len;
	char *text;

	if (pr_json_kind(value) == '0') {
		seconds = strtod(value.data, NULL);
		if (!(seconds >= 0 && seconds * 1000 <= (double)POSTROOM_DELAY_MAX_MS))
			return refuse(parser, value.data,
				      "delay must be between 0 and 3650 days, in seconds");
		parser->message->delay_ms = (int64_t)(seconds * 1000 + 0.5);
		return POSTROOM_OK;
	}
	if (pr_json_kind(value) != '"')
		return refuse(parser, value.data,
			      "delay must be a duration like \"5s\" or seconds");
	text = decode(parser, value, &len);
	if (!text)
		return pr_err_nomem(parser->err);
	if (pr_duration_parse(text, &parser->message->delay_ms, NULL) < 0)
		return refuse(parser, value.data,
			      "delay must be a duration like \"5s\" or seconds");
	return POSTROOM_OK;
}

static int set_priority(struct parser *parser, struct pr_span value)
{
	double seconds = pr_json_kind(value) == '0' ? strtod(value.data, NULL) : -1;

	if (!(seconds >= 0 && seconds <= POSTROOM_PRIORITY_MAX) || (int32_t)seconds < seconds)
		return refuse(parser, value.data, "priority must be a whole number from 0 to %d",
			      POSTROOM_PRIORITY_MAX);
	parser->message->priority = (int32_t)seconds;
	return POSTROOM_OK;
}

static int set_member(struct parser *parser, const struct member *member, struct pr_span value)
{
	if (member->kind == PAYLOAD) {
		parser->message->payload = value.data;
		parser->message->payload_len = value.len;
		return POSTROOM_OK;
	}
	if (pr_json_kind(value) == 'n') /* like a missing member */
		return POSTROOM_OK;
	switch (member->kind) {
	case HEADERS:
		return set_headers(parser, value);
	case BODY:
		return set_body(parser, value);
	case DELAY:
		return set_delay(parser, value);
	case PRIORITY:
		return set_priority(parser, value);
	default:
		return set_text(parser, member, value);
	}
}

static int read_member(struct parser *parser, struct pr_span name, struct pr_span value,
		       unsigned *seen)
{
	const struct member *member = find_member(name.data + 1, name.len - 2);
	size_t len;
	char *text;

	if (!member) {
		text = decode(parser, name, &len);
		if (!text)
			return pr_err_nomem(parser->err);
		member = find_member(text, len);
		if (!member)
			return refuse_name(parser, name.data, text);
	}
	if (*seen & 1u << (member - members))
		return refuse(parser, name.data, "\"%s\" is given twice", member->name);
	*seen |= 1u << (member - members);
	return set_member(parser, member, value);
}

int ndjson_parse(const char *line, size_t len, struct pr_arena *arena, struct pr_buf *scratch,
		 postroom_message *ret, struct pr_err *err)
{
	struct parser parser = { line, arena, scratch, ret, err };
	struct pr_span object = { line, len }, name, value;
	struct pr_json_members walk;
	struct pr_json_fault fault;
	unsigned seen = 0;
	int status = POSTROOM_OK;

	*ret = (postroom_message){ .size = sizeof(*ret) };
	if (!pr_json_check(line, len, &fault))
		return refuse(&parser, line + fault.offset, "%s", fault.reason);
	if (pr_json_kind(object) != '{')
		return refuse(&parser, line,
			      "not an object; a line is like {\"topic\": …, "
			      "\"payload\": …}");
	walk = pr_json_members(object);
	while (status >= 0 && pr_json_next(&walk, &name, &value))
		status = read_member(&parser, name, value, &seen);
	/* The payload column is null if there is a body. */
	if (ret->body && ret->payload && pr_json_kind((struct pr_span){ ret->payload, 1 }) == 'n') {
		ret->payload = NULL;
		ret->payload_len = 0;
	}
	return status;
}

int ndjson_open(struct ndjson *in, int fd, size_t max_payload, struct pr_err *err)
{
	*in = (struct ndjson){ .fd = fd };
	in->line_max = max_payload / 3 * 4 + SLACK; /* a body is in base64 */
	in->size = CHUNK + in->line_max + 1;
	in->text = malloc(in->size);
	return in->text ? POSTROOM_OK : pr_err_nomem(err);
}

void ndjson_release(struct ndjson *in)
{
	free(in->text);
	pr_arena_release(&in->arena);
	pr_buf_release(&in->scratch);
}

void ndjson_recycle(struct ndjson *in)
{
	memmove(in->text, in->text + in->at, in->end - in->at);
	in->end -= in->at;
	in->at = 0;
	pr_arena_reset(&in->arena);
}

static int read_more(struct ndjson *in, struct pr_err *err)
{
	size_t room = in->size - in->end;
	ssize_t n;

	do
		n = read(in->fd, in->text + in->end, room < READ_SIZE ? room : READ_SIZE);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return pr_err_errno(err, POSTROOM_UNAVAILABLE, "line %lld: cannot read",
				    (long long)in->line + 1);
	in->eof = n == 0;
	in->end += (size_t)n;
	in->read += n;
	return POSTROOM_OK;
}

/* Finds the next line; an enum ndjson_result or a failure. */
static int next_line(struct ndjson *in, struct pr_span *ret, struct pr_err *err)
{
	size_t searched = 0;

	for (;;) {
		const char *start = in->text + in->at;
		const char *newline = memchr(start + searched, '\n', in->end - in->at - searched);
		size_t len = newline ? (size_t)(newline - start) : in->end - in->at;

		if (len > in->line_max)
			return pr_err_set(err, POSTROOM_INVALID,
					  "line %lld is longer than %zu bytes, more than the "
					  "largest payload needs; see --max-payload",
					  (long long)in->line + 1, in->line_max);
		if (newline || (in->eof && len > 0)) {
			*ret = (struct pr_span){ start, len };
			in->at += len + (newline != NULL);
			in->line++;
			return NDJSON_MESSAGE;
		}
		if (in->eof)
			return NDJSON_END;
		if (in->at >= CHUNK)
			return NDJSON_FULL;
		searched = len;
		int status = read_more(in, err);
		if (status < 0)
			return status;
	}
}

static bool blank(struct pr_span line)
{
	for (size_t i = 0; i < line.len; i++) {
		if (line.data[i] != ' ' && line.data[i] != '\t' && line.data[i] != '\r')
			return false;
	}
	return true;
}

int ndjson_next(struct ndjson *in, postroom_message *ret, struct pr_err *err)
{
	char message[sizeof(err->text)];
	struct pr_span line = { 0 };
	int result;

	do
		result = next_line(in, &line, err);
	while (result == NDJSON_MESSAGE && blank(line));
	if (result != NDJSON_MESSAGE)
		return result;
	result = ndjson_parse(line.data, line.len, &in->arena, &in->scratch, ret, err);
	if (result >= 0)
		return NDJSON_MESSAGE;
	memcpy(message, err->text, sizeof(message));
	return pr_err_set(err, result, "line %lld, %.900s", (long long)in->line, message);
}
