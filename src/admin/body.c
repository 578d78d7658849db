/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of an action: {"filter":{…},"dry_run":bool,"limit":n,"rate":n}.
 *
 * 1. All of it is checked as JSON before any of it is used; its depth and size are bounded.
 * 2. Unknown and empty members are refused: an action must not run with a filter that was misspelled,
 *    or whose value a script has lost.
 */
#include "admin/request.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define ACTION_MAX 10000

static bool refuse_body(struct pr_admin_request *request, const char *fault)
{
	return pr_request_refuse(request, 400, "bad_body", "the body %s", fault);
}

static bool read_member(struct pr_admin_request *request, const char *name, struct pr_span value)
{
	PR_CLEANUP_BUF struct pr_buf text = { .max = PR_ADMIN_BODY_MAX };
	char kind = pr_json_kind(value);

	if (!pr_admin_param_find(request->route->sets, name))
		return pr_request_set(request, request->route->sets, name, "");
	if (kind == '"')
		pr_json_decode(value, &text);
	else if (kind == '0')
		pr_buf_append(&text, value.data, value.len);
	else
		return pr_request_refuse(request, 400, "bad_body", "filter.%.60s takes a string",
					 name);
	if (text.failed)
		return pr_request_refuse(request, 503, "no_memory", "out of memory");
	/* Without it the action would have no limit of that kind. */
	if (text.len == 0)
		return pr_request_refuse(request, 400, "bad_body",
					 "filter.%.60s is empty; leave it out to match all", name);
	return pr_request_set(request, request->route->sets, name, pr_buf_text(&text));
}

static bool read_filter(struct pr_admin_request *request, struct pr_span object)
{
	struct pr_json_members walk = pr_json_members(object);
	struct pr_span name, value;

	if (pr_json_kind(object) != '{')
		return refuse_body(request, "needs an object as its filter");
	while (pr_json_next(&walk, &name, &value)) {
		PR_CLEANUP_BUF struct pr_buf text = { .max = PR_ADMIN_BODY_MAX };

		pr_json_decode(name, &text);
		if (text.failed)
			return pr_request_refuse(request, 503, "no_memory", "out of memory");
		if (!read_member(request, pr_buf_text(&text), value))
			return false;
	}
	return true;
}

static bool read_count(struct pr_admin_request *request, const char *name, struct pr_span value,
		       int64_t *ret)
{
	char digits[8] = "";

	if (value.len < sizeof(digits) && pr_json_kind(value) == '0') {
		memcpy(digits, value.data, value.len);
		if (digits[strspn(digits, "0123456789")] == '\0')
			*ret = strtoll(digits, NULL, 10);
	}
	if (*ret < 1 || *ret > ACTION_MAX)
		return pr_request_refuse(request, 400, "bad_body", "%s takes a number from 1 to %d",
					 name, ACTION_MAX);
	return true;
}

static bool read_flag(struct pr_admin_request *request, struct pr_span value, bool *ret)
{
	*ret = pr_json_is(value, "true");
	return *ret || pr_json_is(value, "false") ||
	       refuse_body(request, "needs true or false as its dry_run");
}

struct seen {
	bool filter, dry_run, limit, rate;
};

static bool read_top(struct pr_admin_request *request, struct pr_span name, struct pr_span value,
		     struct seen *seen)
{
	struct pr_admin_query *query = &request->query;
	bool *known = pr_json_is(name, "\"filter\"")	? &seen->filter
		      : pr_json_is(name, "\"dry_run\"") ? &seen->dry_run
		      : pr_json_is(name, "\"limit\"")	? &seen->limit
		      : pr_json_is(name, "\"rate\"")	? &seen->rate
							: NULL;

	if (!known)
		return pr_request_refuse(request, 400, "unknown_parameter",
					 "the body has an unknown member %.*s; it takes filter, "
					 "dry_run, limit and rate",
					 name.len > 60 ? 60 : (int)name.len, name.data);
	if (*known)
		return refuse_body(request, "has a member twice");
	*known = true;
	if (known == &seen->filter)
		return read_filter(request, value);
	if (known == &seen->dry_run)
		return read_flag(request, value, &query->dry_run);
	if (known == &seen->limit)
		return read_count(request, "limit", value, &query->limit);
	return read_count(request, "rate", value, &query->rate);
}

static bool read_action(struct pr_admin_request *request, struct pr_span text)
{
	struct pr_json_members walk = pr_json_members(text);
	struct seen seen = { 0 };
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		if (!read_top(request, name, value, &seen))
			return false;
	}
	return seen.filter || refuse_body(request, "needs a filter; {\"filter\":{}} means all");
}

bool pr_request_read_body(struct pr_admin_request *request)
{
	struct pr_span text = { pr_buf_text(&request->body), request->body.len };
	struct pr_json_fault fault = { 0 };

	if (request->body.failed || request->body.len > PR_ADMIN_BODY_MAX)
		return pr_request_refuse(request, 413, "body_too_large",
					 "the body has more than %zu bytes", PR_ADMIN_BODY_MAX);
	if (!(request->route->flags & PR_ROUTE_BODY))
		return text.len == 0 || pr_json_is(text, "{}") ||
		       refuse_body(request, "must be empty");
	if (!pr_json_check(text.data, text.len, &fault))
		return pr_request_refuse(request, 400, "bad_body",
					 "the body is not JSON: %s at byte %zu", fault.reason,
					 fault.offset + 1);
	if (pr_json_kind(text) != '{')
		return refuse_body(request, "is not an object");
	return read_action(request, text);
}
