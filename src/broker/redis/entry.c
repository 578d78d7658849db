/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Entries of broker/redis/sink.c are read as they were enqueued: their fields are the event.
 * 2. An entry is ours if it has exactly the fields that the sink writes, in its order. Others'
 *    fields may have any meaning: an "id" may be that of a customer, and the same in many events.
 * 3. A field that is not text (with a NUL, or ill-formed UTF-8) is ignored, unless it is the
 *    content: a truncated id would be the id of another event.
 */
#include "broker/redis/entry.h"

#include "base/json.h"
#include "base/text.h"
#include "core/message.h"

#include <stdlib.h>
#include <string.h>

bool pr_redis_is_entry(const redisReply *entry)
{
	const redisReply *fields;

	if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2 ||
	    entry->element[0]->type != REDIS_REPLY_STRING ||
	    entry->element[1]->type != REDIS_REPLY_ARRAY)
		return false;
	fields = entry->element[1];
	for (size_t i = 0; i < fields->elements; i++) {
		if (fields->element[i]->type != REDIS_REPLY_STRING)
			return false;
	}
	return true;
}

bool pr_redis_have_ids(const redisReply *entries)
{
	for (size_t i = 0; i < entries->elements; i++) {
		const redisReply *entry = entries->element[i];

		if (entry->type != REDIS_REPLY_ARRAY || entry->elements == 0 ||
		    entry->element[0]->type != REDIS_REPLY_STRING)
			return false;
	}
	return true;
}

size_t pr_redis_entry_size(const redisReply *entry)
{
	const redisReply *fields = entry->element[1];
	size_t size = 0;

	for (size_t i = 0; i < fields->elements; i++)
		size += fields->element[i]->len;
	return size;
}

static bool is_named(const redisReply *field, const char *name)
{
	return field->len == strlen(name) && memcmp(field->str, name, field->len) == 0;
}

/* The fields of broker/redis/sink.c; only the body may be missing. */
static bool is_ours(const redisReply *fields)
{
	static const char *const names[] = {
		"id",		"namespace",	  "topic",   "key",	   "tenant_id",
		"dedupe_key",	"correlation_id", "attempt", "created_at", "headers",
		"content_type", "payload",	  "body"
	};
	const size_t most = sizeof(names) / sizeof(*names) * 2;

	if (fields->elements != most && fields->elements != most - 2)
		return false;
	for (size_t i = 0; i < fields->elements; i += 2) {
		if (!is_named(fields->element[i], names[i / 2]))
			return false;
	}
	return true;
}

static const redisReply *find(const redisReply *fields, const char *name)
{
	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		if (is_named(fields->element[i], name))
			return fields->element[i + 1];
	}
	return NULL;
}

/* NULL if there is none. Our sinks write an empty value then. */
static const redisReply *find_text(const redisReply *fields, const char *name)
{
	const redisReply *value = find(fields, name);

	if (!value || value->len == 0 || memchr(value->str, '\0', value->len) ||
	    !pr_utf8_valid(value->str, value->len))
		return NULL;
	return value;
}

/* Copies the field to *ret; NULL: there is none. False: no memory. */
static bool copy(struct pr_events *events, const redisReply *value, const char **ret)
{
	*ret = value ? pr_arena_copy(&events->arena, value->str, value->len) : NULL;
	return !value || *ret;
}

static bool copy_body(struct pr_events *events, struct pr_event *event, const char *data,
		      size_t len)
{
	event->body = pr_arena_copy(&events->arena, data, len);
	event->len = len;
	return event->body;
}

/* All fields as an object of strings. A name may occur several times. */
static bool write_body(struct pr_events *events, struct pr_event *event, const redisReply *fields,
		       struct pr_buf *scratch)
{
	pr_buf_reset(scratch);
	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		pr_buf_putc(scratch, i == 0 ? '{' : ',');
		pr_json_put_stringn(scratch, fields->element[i]->str, fields->element[i]->len);
		pr_buf_putc(scratch, ':');
		pr_json_put_stringn(scratch, fields->element[i + 1]->str,
				    fields->element[i + 1]->len);
	}
	pr_buf_puts(scratch, fields->elements < 2 ? "{}" : "}");
	event->content_type = "application/json";
	return !scratch->failed && copy_body(events, event, scratch->data, scratch->len);
}

static bool read_fields(struct pr_events *events, struct pr_event *event, const redisReply *fields,
			const redisReply *content)
{
	const redisReply *headers = find_text(fields, "headers");

	if (headers && !pr_headers_valid(headers->str, headers->len))
		headers = NULL;
	return copy(events, find_text(fields, "id"), &event->id) &&
	       copy(events, find_text(fields, "key"), &event->key) &&
	       copy(events, find_text(fields, "tenant_id"), &event->tenant_id) &&
	       copy(events, find_text(fields, "correlation_id"), &event->correlation_id) &&
	       copy(events, headers, &event->headers) &&
	       copy(events, find_text(fields, "content_type"), &event->content_type) &&
	       copy_body(events, event, content->str, content->len);
}

/* An entry's id begins with the server's time in milliseconds, unless its producer chose the id. */
static int64_t time_of(const char *id)
{
	unsigned long long ms = strtoull(id, NULL, 10);

	return ms <= INT64_MAX / 1000 ? (int64_t)ms * 1000 : 0;
}

int pr_redis_entry_read(const redisReply *entry, const char *stream, struct pr_buf *scratch,
			struct pr_events *events)
{
	const redisReply *fields = entry->element[1], *topic = NULL;
	struct pr_event *event = pr_events_add(events);
	bool good;

	if (!event)
		return POSTROOM_NOMEM;
	if (is_ours(fields)) {
		const redisReply *body = find(fields, "body");

		topic = find_text(fields, "topic");
		good = read_fields(events, event, fields, body ? body : find(fields, "payload"));
	} else {
		good = write_body(events, event, fields, scratch);
	}
	event->topic = topic ? pr_arena_copy(&events->arena, topic->str, topic->len)
			     : pr_arena_strdup(&events->arena, stream);
	event->broker_position = pr_arena_printf(&events->arena, "%s/%s", stream,
						 entry->element[0]->str);
	event->at_us = time_of(entry->element[0]->str);
	return good && event->topic && event->broker_position ? POSTROOM_OK : POSTROOM_NOMEM;
}
