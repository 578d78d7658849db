/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a request's target: path and query, in bytes from any client.
 *
 * 1. The path is split before it is decoded: %2F is part of a name.
 * 2. NUL, ill-formed escapes and ill-formed UTF-8 are refused, never repaired.
 */
#include "admin/request.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

const char *pr_percent_decode(char *text, bool plus)
{
	char *out = text;

	for (const char *in = text; *in; in++) {
		int high, low;

		if (*in != '%') {
			*out++ = plus && *in == '+' ? ' ' : *in;
			continue;
		}
		high = pr_hex_value(in[1]);
		low = high < 0 ? -1 : pr_hex_value(in[2]);
		if (low < 0)
			return "has a % without two hexadecimal digits";
		if (high == 0 && low == 0)
			return "contains a NUL";
		*out++ = (char)(high << 4 | low);
		in += 2;
	}
	*out = '\0';
	return pr_utf8_valid(text, (size_t)(out - text)) ? NULL : "is not UTF-8";
}

static bool read_parameter(struct pr_admin_request *request, char *text)
{
	char *value = strchr(text, '=');
	const char *why;

	if (value)
		*value++ = '\0';
	why = pr_percent_decode(text, true);
	if (why)
		return pr_request_refuse(request, 400, "bad_parameter",
					 "the name of a parameter %s", why);
	if (!*text)
		return pr_request_refuse(request, 400, "bad_parameter", "a parameter has no name");
	why = value ? pr_percent_decode(value, true) : NULL;
	if (why)
		return pr_request_refuse(request, 400, "bad_parameter", "parameter \"%.60s\" %s",
					 text, why);
	return pr_request_set(request, request->route->sets, text, value ? value : "");
}

static bool read_query(struct pr_admin_request *request, char *query)
{
	unsigned sets = request->route->flags & PR_ROUTE_BODY ? 0 : request->route->sets;

	while (query && *query) {
		char *next = strchr(query, '&');

		if (next)
			*next++ = '\0';
		if (*query && !sets)
			return pr_request_refuse(request, 400, "unknown_parameter",
						 "%s takes no parameters in its query",
						 request->route->path);
		if (*query && !read_parameter(request, query))
			return false;
		query = next;
	}
	return true;
}

/* Splits "/a/b" in place; false: there are too many parts. */
static bool split_path(char *path, char *segments[PR_ADMIN_SEGMENTS], size_t *ret)
{
	size_t count = 0;

	while (path) {
		char *slash = strchr(++path, '/');

		if (count == PR_ADMIN_SEGMENTS)
			return false;
		if (slash)
			*slash = '\0';
		segments[count++] = path;
		path = slash;
	}
	*ret = count;
	return true;
}

bool pr_request_read_target(struct pr_admin_request *request, const char *method)
{
	char *path = pr_arena_strdup(&request->arena, request->target);
	char *segments[PR_ADMIN_SEGMENTS];
	size_t count = 0;
	char *query;

	if (!path)
		return pr_request_refuse(request, 503, "no_memory", "out of memory");
	if (*path != '/' || strlen(path) > PR_ADMIN_TARGET_MAX)
		return pr_request_refuse(request, *path != '/' ? 400 : 414, "bad_target",
					 "a request's target is a path, of at most %zu bytes",
					 PR_ADMIN_TARGET_MAX);
	query = strchr(path, '?');
	if (query)
		*query++ = '\0';
	if (!split_path(path, segments, &count))
		return pr_request_refuse(request, 404, "not_found", "there is no such path");
	for (size_t i = 0; i < count; i++) {
		const char *why = pr_percent_decode(segments[i], false);

		if (why)
			return pr_request_refuse(request, 400, "bad_path", "the path %s", why);
	}
	request->route = pr_route_find(request, method, segments, count);
	return request->route && read_query(request, query);
}

void pr_request_init(struct pr_admin_request *request)
{
	*request = (struct pr_admin_request){
		.query = { .filter = { .size = sizeof(postroom_filter) },
			   .page = 1,
			   .page_size = 50 },
		.body = { .max = PR_ADMIN_BODY_MAX + 1 },
	};
}

void pr_request_release(struct pr_admin_request *request)
{
	pr_buf_release(&request->body);
	pr_buf_release(&request->answer.text);
	pr_arena_release(&request->arena);
	pr_settings_unref(request->settings);
	free(request->target);
}
