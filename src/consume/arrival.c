/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity and shape of an event.
 *
 * 1. What the tables would refuse is found here: it arrives dead, with the reason,
 *    so that one bad event never stops the others, and none is thrown away. Only of one
 *    that is larger than a row may be the content stays behind.
 * 2. Content that is JSON as the tables take it is the payload, anything else is the
 *    body, byte for byte.
 */
#include "consume/arrival.h"

#include <string.h>

static bool is_member(struct pr_span raw, const char *name, size_t len, struct pr_buf *scratch)
{
	pr_buf_reset(scratch);
	pr_json_decode(raw, scratch);
	return scratch->len == len && memcmp(pr_buf_text(scratch), name, len) == 0;
}

/* The member of this name, the last one if there are several, as databases see it. */
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

/* A string says what it says, a number stands for itself; nothing else is an identity. */
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
				  "--id-path takes names with dots between them, as in "
				  "data.order.id");
	return POSTROOM_OK;
}

/* Where it stands; what is too long for an id is known by its digest. */
static int name_by_place(const struct pr_event *event, struct pr_arena *arena,
			 struct pr_arrival *ret, struct pr_err *err)
{
	const struct pr_span place = { event->place, strlen(event->place) };
	struct pr_err unheard;

	ret->id = event->place;
	if (pr_text_check("id", event->place, POSTROOM_EVENT_ID_MAX, &unheard) < 0)
		ret->id = pr_event_digest(arena, &place, 1);
	return ret->id ? POSTROOM_OK : pr_err_nomem(err);
}

static int bury(const struct pr_event *event, const char *why, struct pr_arena *arena,
		struct pr_arrival *ret, struct pr_err *err)
{
	ret->how = PR_ARRIVE_DEAD;
	ret->error = pr_arena_strdup(arena, why);
	if (!ret->error)
		return pr_err_nomem(err);
	return name_by_place(event, arena, ret, err);
}

/* Why nobody can be given it, or NULL. */
static const char *find_fault(const struct pr_arrival *arrival, const struct pr_identity *identity,
			      struct pr_err *err)
{
	size_t headers_len = strlen(arrival->headers);

	if (arrival->body.len > POSTROOM_PAYLOAD_MAX)
		pr_err_set(err, POSTROOM_INVALID,
			   "its content of %zu bytes is more than the 64 MiB that the inbox takes, and "
			   "was left out",
			   arrival->body.len);
	else if (!arrival->id && identity->header)
		pr_err_set(err, POSTROOM_INVALID, "the event has no header \"%.100s\" to know it by",
			   identity->header);
	else if (!arrival->id && identity->path)
		pr_err_set(err, POSTROOM_INVALID,
			   "the event has no string or number at \"%.100s\" to know it by",
			   identity->path);
	else if (!arrival->id)
		pr_err_set(err, POSTROOM_INVALID,
			   "the event has no id to know it by: see --id-header and --id-path");
	else if (headers_len > POSTROOM_HEADERS_MAX ||
		 !pr_headers_valid(arrival->headers, headers_len))
		pr_err_set(err, POSTROOM_INVALID, "its headers are no JSON object of strings, or longer "
						  "than 64 KiB");
	else if (pr_text_check("its id", arrival->id, POSTROOM_EVENT_ID_MAX, err) >= 0 &&
		 pr_name_check("its topic", arrival->topic, POSTROOM_TOPIC_MAX, err) >= 0 &&
		 pr_text_check("its key", arrival->key, POSTROOM_KEY_MAX, err) >= 0)
		return NULL;
	return err->text;
}

static bool says_json(const char *content_type)
{
	return !content_type || strcasestr(content_type, "json");
}

/* What is left of an event that arrives dead must be something that the tables take. */
static void drop_what_is_wrong(struct pr_arrival *arrival, const char *handler)
{
	struct pr_err unheard;
	size_t headers_len = strlen(arrival->headers);

	if (headers_len > POSTROOM_HEADERS_MAX || !pr_headers_valid(arrival->headers, headers_len))
		arrival->headers = "{}";
	if (pr_name_check("topic", arrival->topic, POSTROOM_TOPIC_MAX, &unheard) < 0)
		arrival->topic = handler;
	if (pr_text_check("key", arrival->key, POSTROOM_KEY_MAX, &unheard) < 0)
		arrival->key = NULL;
	if (arrival->body.len > POSTROOM_PAYLOAD_MAX)
		arrival->body = (struct pr_span){ 0 };
}

int pr_arrival_make(const struct pr_event *event, const struct pr_identity *identity,
		    const char *handler, struct pr_arena *arena, struct pr_arrival *ret,
		    struct pr_err *err)
{
	struct pr_span content = { event->body, event->len };
	struct pr_err fault;
	const char *why;
	int status = POSTROOM_OK;
	bool json;

	*ret = (struct pr_arrival){
		.topic = event->topic && *event->topic ? event->topic : handler,
		.key = event->key && *event->key ? event->key : NULL,
		.headers = event->headers ? event->headers : "{}",
		.content_type = event->content_type,
		.how = PR_ARRIVE_PENDING,
	};
	json = says_json(event->content_type) &&
	       pr_payload_check(event->body, event->len, POSTROOM_PAYLOAD_MAX, &fault) >= 0;
	if (json)
		ret->payload = content;
	else
		ret->body = content;
	if (pr_name_check("content_type", event->content_type, POSTROOM_CONTENT_TYPE_MAX, &fault) < 0)
		ret->content_type = NULL;
	if (!ret->content_type)
		ret->content_type = json ? "application/json" : "application/octet-stream";
	if (identity->header)
		status = pr_headers_valid(ret->headers, strlen(ret->headers)) ?
				 find_header(ret->headers, identity->header, arena, &ret->id, err) :
				 POSTROOM_OK;
	else if (identity->path)
		status = json ? find_path(content, identity->path, arena, &ret->id, err) : POSTROOM_OK;
	else
		ret->id = event->id;
	if (status < 0)
		return status;
	why = find_fault(ret, identity, &fault);
	if (!why)
		return POSTROOM_OK;
	drop_what_is_wrong(ret, handler);
	return bury(event, why, arena, ret, err);
}
