/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity and shape of an incoming event.
 *
 * 1. An event that the tables would refuse is detected here and inserted as dead, with the reason:
 *    one bad event never stops the others, and none is dropped. Only the content of an event that
 *    is larger than a row is dropped.
 * 2. A tenant that is not a UUID, or an invalid correlation id, is dropped: it is no reason to
 *    refuse an event.
 * 3. Content that is valid JSON for the tables is the payload; other content is the body, byte for
 *    byte.
 */
#include "consume/event.h"

#include <string.h>

static bool is_member(struct pr_span raw, const char *name, size_t len, struct pr_buf *scratch)
{
	pr_buf_reset(scratch);
	pr_json_decode(raw, scratch);
	return scratch->len == len && memcmp(pr_buf_text(scratch), name, len) == 0;
}

/* Returns the member of this name; the last one if there are several, as databases do. */
static bool find_member(struct pr_span object, const char *name, size_t len, struct pr_span *ret)
{
	struct pr_json_members walk = pr_json_members(object);
	PR_CLEANUP_BUF struct pr_buf scratch = { 0 };
	struct pr_span member, value;
	bool found = false;

	while (pr_json_next(&walk, &member, &value)) {
		if (is_member(member, name, len, &scratch)) {
			*ret = value;
			found = true;
		}
	}
	return found;
}

/* A string or a number is an identity; other values are not. */
static int take_text(struct pr_span value, struct pr_arena *arena, const char **ret,
		     struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	char kind = pr_json_kind(value);

	if (kind == '0')
		pr_buf_append(&text, value.data, value.len);
	else if (kind == '"')
		pr_json_decode(value, &text);
	else
		return POSTROOM_OK;
	*ret = text.failed ? NULL : pr_arena_copy(arena, pr_buf_text(&text), text.len);
	return *ret ? POSTROOM_OK : pr_err_nomem(err);
}

static int find_path(struct pr_span value, const char *path, struct pr_arena *arena,
		     const char **ret, struct pr_err *err)
{
	while (*path) {
		size_t len = strcspn(path, ".");

		if (pr_json_kind(value) != '{' || !find_member(value, path, len, &value))
			return POSTROOM_OK;
		path += len + (path[len] == '.');
	}
	return take_text(value, arena, ret, err);
}

static int find_header(const char *headers, const char *name, struct pr_arena *arena,
		       const char **ret, struct pr_err *err)
{
	struct pr_span value;

	if (!find_member((struct pr_span){ headers, strlen(headers) }, name, strlen(name), &value))
		return POSTROOM_OK;
	return take_text(value, arena, ret, err);
}

int pr_identity_check(const struct pr_identity *identity, struct pr_err *err)
{
	const char *path = identity->path;

	if (identity->header && path)
		return pr_err_set(err, POSTROOM_INVALID,
				  "an event has one identity: give --id-header or --id-path, not "
				  "both");
	if (identity->header && !*identity->header)
		return pr_err_set(err, POSTROOM_INVALID, "--id-header takes the name of a header");
	if (path && (!*path || *path == '.' || strstr(path, "..") || path[strlen(path) - 1] == '.'))
		return pr_err_set(err, POSTROOM_INVALID,
				  "--id-path takes names separated by dots, as in "
				  "data.order.id");
	return POSTROOM_OK;
}

/* Returns the id from where the settings say. An id that is too long is replaced by its digest. */
static int name_by_position(const struct pr_event *event, struct pr_arena *arena,
			    struct pr_incoming_event *ret, struct pr_err *err)
{
	const struct pr_span broker_position = { event->broker_position,
						 strlen(event->broker_position) };
	struct pr_err unheard;

	ret->id = event->broker_position;
	if (pr_text_check("id", event->broker_position, POSTROOM_EVENT_ID_MAX, &unheard) < 0)
		ret->id = pr_event_digest(arena, &broker_position, 1);
	return ret->id ? POSTROOM_OK : pr_err_nomem(err);
}

static int mark_dead(const struct pr_event *event, const char *why, struct pr_arena *arena,
		     struct pr_incoming_event *ret, struct pr_err *err)
{
	ret->how = PR_INSERT_DEAD;
	ret->error = pr_arena_strdup(arena, why);
	if (!ret->error)
		return pr_err_nomem(err);
	return name_by_position(event, arena, ret, err);
}

/* Returns why no handler can process it, or NULL. */
static const char *find_fault(const struct pr_incoming_event *incoming,
			      const struct pr_identity *identity, struct pr_err *err)
{
	size_t headers_len = strlen(incoming->headers);

	if (incoming->body.len > POSTROOM_PAYLOAD_MAX)
		pr_err_set(err, POSTROOM_INVALID,
			   "its content of %zu bytes exceeds the 64 MiB limit of the inbox, "
			   "and "
			   "was dropped",
			   incoming->body.len);
	else if (!incoming->id && identity->header)
		pr_err_set(err, POSTROOM_INVALID,
			   "the event has no id: header \"%.100s\" is missing", identity->header);
	else if (!incoming->id && identity->path)
		pr_err_set(err, POSTROOM_INVALID,
			   "the event has no id: no string or number at \"%.100s\"",
			   identity->path);
	else if (!incoming->id)
		pr_err_set(err, POSTROOM_INVALID,
			   "the event has no id: see --id-header and --id-path");
	else if (headers_len > POSTROOM_HEADERS_MAX ||
		 !pr_headers_valid(incoming->headers, headers_len))
		pr_err_set(err, POSTROOM_INVALID,
			   "its headers are not a JSON object of strings, or longer "
			   "than 64 KiB");
	else if (pr_text_check("its id", incoming->id, POSTROOM_EVENT_ID_MAX, err) >= 0 &&
		 pr_name_check("its topic", incoming->topic, POSTROOM_TOPIC_MAX, err) >= 0 &&
		 pr_text_check("its key", incoming->key, POSTROOM_KEY_MAX, err) >= 0)
		return NULL;
	return err->text;
}

static bool is_json_type(const char *content_type)
{
	return !content_type || strcasestr(content_type, "json");
}

/* The remains of an event that is inserted as dead must be valid for the tables. */
static void drop_unusable(struct pr_incoming_event *incoming, const char *handler)
{
	struct pr_err unheard;
	size_t headers_len = strlen(incoming->headers);

	if (headers_len > POSTROOM_HEADERS_MAX || !pr_headers_valid(incoming->headers, headers_len))
		incoming->headers = "{}";
	if (pr_name_check("topic", incoming->topic, POSTROOM_TOPIC_MAX, &unheard) < 0)
		incoming->topic = handler;
	if (pr_text_check("key", incoming->key, POSTROOM_KEY_MAX, &unheard) < 0)
		incoming->key = NULL;
	if (incoming->body.len > POSTROOM_PAYLOAD_MAX)
		incoming->body = (struct pr_span){ 0 };
}

/* Other producers may use the same names with another meaning. */
static int take_context(const struct pr_event *event, struct pr_arena *arena,
			struct pr_incoming_event *ret, struct pr_err *err)
{
	const char *correlation_id = event->correlation_id;
	char tenant_id[PR_UUID_SIZE];
	struct pr_err unheard;

	if (correlation_id && *correlation_id &&
	    pr_name_check("correlation_id", correlation_id, POSTROOM_CORRELATION_ID_MAX,
			  &unheard) >= 0)
		ret->correlation_id = correlation_id;
	if (!event->tenant_id || !pr_uuid_normalize(event->tenant_id, tenant_id))
		return POSTROOM_OK;
	ret->tenant_id = pr_arena_strdup(arena, tenant_id);
	return ret->tenant_id ? POSTROOM_OK : pr_err_nomem(err);
}

int pr_incoming_event_make(const struct pr_event *event, const struct pr_identity *identity,
			   const char *handler, struct pr_arena *arena,
			   struct pr_incoming_event *ret, struct pr_err *err)
{
	struct pr_span content = { event->body, event->len };
	struct pr_err fault;
	const char *why;
	int status = POSTROOM_OK;
	bool json;

	*ret = (struct pr_incoming_event){
		.topic = event->topic && *event->topic ? event->topic : handler,
		.key = event->key && *event->key ? event->key : NULL,
		.headers = event->headers ? event->headers : "{}",
		.content_type = event->content_type,
		.how = PR_INSERT_PENDING,
	};
	json = is_json_type(event->content_type) &&
	       pr_payload_check(event->body, event->len, POSTROOM_PAYLOAD_MAX, &fault) >= 0;
	if (json)
		ret->payload = content;
	else
		ret->body = content;
	if (pr_name_check("content_type", event->content_type, POSTROOM_CONTENT_TYPE_MAX, &fault) <
	    0)
		ret->content_type = NULL;
	if (!ret->content_type)
		ret->content_type = json ? "application/json" : "application/octet-stream";
	if (take_context(event, arena, ret, err) < 0)
		return err->status;
	if (identity->header)
		status = pr_headers_valid(ret->headers, strlen(ret->headers))
				 ? find_header(ret->headers, identity->header, arena, &ret->id, err)
				 : POSTROOM_OK;
	else if (identity->path)
		status = json ? find_path(content, identity->path, arena, &ret->id, err)
			      : POSTROOM_OK;
	else
		ret->id = event->id;
	if (status < 0)
		return status;
	why = find_fault(ret, identity, &fault);
	if (!why)
		return POSTROOM_OK;
	drop_unusable(ret, handler);
	return mark_dead(event, why, arena, ret, err);
}
