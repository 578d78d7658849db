/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every parameter, in one table: of a query, of a filter in a body, and of the description.
 *
 * 1. A value that is not understood is refused; it never counts as absent.
 */
#include "admin/request.h"

#include "base/assert.h"
#include "base/text.h"
#include "base/time.h"
#include "base/uuid.h"
#include "store/action.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond it, a list is to be continued with after=. */
#define PAGE_MAX 2000

#define QUERY(member) offsetof(struct pr_admin_query, member)
#define FILTER(member) QUERY(filter.member)
#define BOTH (PR_SET_OUTBOX | PR_SET_INBOX)
#define PAGES (PR_SET_OUTBOX_PAGE | PR_SET_INBOX_PAGE)

static const char *const outbox_states[] = { "pending",	  "failed", "processing",
					     "delivered", "dead",   NULL };
static const char *const inbox_states[] = {
	"pending", "failed", "active", "completed", "dead", NULL
};

const struct pr_admin_param pr_admin_query_params[] = {
	{ .name = "status",
	  .type = PR_TYPE_WORD,
	  .sets = PR_SET_OUTBOX,
	  .offset = FILTER(status),
	  .words = outbox_states,
	  .about = "Only messages in this state. failed: pending after at least one attempt" },
	{ .name = "status",
	  .type = PR_TYPE_WORD,
	  .sets = PR_SET_INBOX,
	  .offset = FILTER(status),
	  .words = inbox_states,
	  .about = "Only rows in this state. failed: pending after at least one attempt" },
	{ .name = "handler",
	  .type = PR_TYPE_TEXT,
	  .sets = PR_SET_INBOX,
	  .offset = FILTER(handler),
	  .max = POSTROOM_HANDLER_MAX,
	  .about = "Only rows of this handler" },
	{ .name = "topic",
	  .type = PR_TYPE_TEXT,
	  .sets = BOTH,
	  .offset = FILTER(topic),
	  .max = 1024,
	  .about = "Only this topic; * matches any characters" },
	{ .name = "namespace",
	  .type = PR_TYPE_TEXT,
	  .sets = PR_SET_OUTBOX,
	  .offset = FILTER(ns),
	  .max = POSTROOM_NAMESPACE_MAX,
	  .about = "Only this namespace" },
	{ .name = "tenant",
	  .type = PR_TYPE_UUID,
	  .sets = BOTH,
	  .offset = FILTER(tenant_id),
	  .about = "Only this tenant" },
	{ .name = "key",
	  .type = PR_TYPE_TEXT,
	  .sets = BOTH,
	  .offset = FILTER(key),
	  .max = 1024,
	  .about = "Only this key" },
	{ .name = "id",
	  .type = PR_TYPE_UUID,
	  .sets = PR_SET_OUTBOX,
	  .offset = FILTER(id),
	  .about = "Only this message" },
	{ .name = "id",
	  .type = PR_TYPE_TEXT,
	  .sets = PR_SET_INBOX,
	  .offset = FILTER(id),
	  .max = 1024,
	  .about = "Only this event" },
	{ .name = "error",
	  .type = PR_TYPE_TEXT,
	  .sets = BOTH,
	  .offset = FILTER(error),
	  .max = 1024,
	  .about = "Only rows whose last error contains this text, in upper or lower case" },
	{ .name = "fingerprint",
	  .type = PR_TYPE_TEXT,
	  .sets = BOTH,
	  .offset = FILTER(fingerprint),
	  .max = 1024,
	  .empty = PR_NONE,
	  .about = "Only rows whose last error has this cause, as groups report it" },
	{ .name = "sink",
	  .type = PR_TYPE_TEXT,
	  .sets = BOTH,
	  .offset = FILTER(sink),
	  .max = 1024,
	  .empty = PR_NONE,
	  .about = "Only rows whose last failed attempt was at this sink, as groups report it" },
	{ .name = "created_from",
	  .type = PR_TYPE_TIME,
	  .sets = BOTH,
	  .offset = FILTER(created_from_us),
	  .about = "Created at this time or later" },
	{ .name = "created_to",
	  .type = PR_TYPE_TIME,
	  .sets = BOTH,
	  .offset = FILTER(created_to_us),
	  .about = "Created before this time" },
	{ .name = "page",
	  .type = PR_TYPE_INT,
	  .sets = PAGES,
	  .offset = QUERY(page),
	  .min = 1,
	  .max = PAGE_MAX,
	  .fallback = "1",
	  .about = "Which page; use after beyond the last one" },
	{ .name = "page_size",
	  .type = PR_TYPE_INT,
	  .sets = PAGES,
	  .offset = QUERY(page_size),
	  .min = 1,
	  .max = 200,
	  .fallback = "50",
	  .about = "Rows per page" },
	{ .name = "after",
	  .type = PR_TYPE_TEXT,
	  .sets = PR_SET_OUTBOX_PAGE,
	  .offset = FILTER(after),
	  .max = 80,
	  .about = "Continue after this row: next_after of the previous page, or an id" },
	{ .name = "after",
	  .type = PR_TYPE_TEXT,
	  .sets = PR_SET_INBOX_PAGE,
	  .offset = FILTER(after),
	  .max = 20,
	  .about = "Continue after this row: next_after of the previous page" },
	{ .name = "limit",
	  .type = PR_TYPE_INT,
	  .sets = PR_SET_EXPORT,
	  .offset = QUERY(limit),
	  .min = 1,
	  .max = 10000000,
	  .fallback = "100000",
	  .about = "Export at most this many rows" },
	{ .name = "limit",
	  .type = PR_TYPE_INT,
	  .sets = PR_SET_GROUPS,
	  .offset = QUERY(limit),
	  .min = 1,
	  .max = 1000,
	  .fallback = "100",
	  .about = "At most this many groups" },
	{ 0 },
};

#define PARAMS (sizeof(pr_admin_query_params) / sizeof(*pr_admin_query_params))
_Static_assert(PARAMS <= 64, "each parameter has a bit of pr_admin_query.given");

const struct pr_admin_param *pr_admin_param_find(unsigned sets, const char *name)
{
	for (const struct pr_admin_param *param = pr_admin_query_params; param->name; param++) {
		if (param->sets & sets && strcmp(param->name, name) == 0)
			return param;
	}
	return NULL;
}

static bool refuse_unknown(struct pr_admin_request *request, unsigned sets, const char *name)
{
	const char *names[PARAMS];
	size_t count = 0;
	const char *nearest;

	for (const struct pr_admin_param *param = pr_admin_query_params; param->name; param++) {
		if (param->sets & sets)
			names[count++] = param->name;
		pr_assert(count < PARAMS);
	}
	names[count] = NULL;
	nearest = pr_text_nearest(name, names);
	return pr_request_refuse(
		request, 400, "unknown_parameter", "there is no parameter \"%.60s\"%s%s%s", name,
		nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

/* RFC 3339, or a date alone: midnight in UTC. A '+' that was decoded to a blank is accepted. */
bool pr_time_parse(const char *text, int64_t *ret_us)
{
	char copy[48];
	int length = snprintf(copy, sizeof(copy), "%s%s", text,
			      strlen(text) == 10 ? "T00:00:00Z" : "");
	char *blank = length > 11 ? strchr(copy + 11, ' ') : NULL;

	if (length >= (int)sizeof(copy))
		return false;
	if (blank)
		*blank = '+';
	/* 0 would be no limit at all. */
	return pr_rfc3339_parse(copy, ret_us, NULL) >= 0 && *ret_us > 0;
}

static bool set_number(struct pr_admin_request *request, const struct pr_admin_param *param,
		       const char *text, int64_t *target)
{
	size_t len = strspn(text, "0123456789");
	int64_t number = len > 0 && len < 18 && !text[len] ? strtoll(text, NULL, 10) : -1;

	if (number < param->min || number > param->max)
		return pr_request_refuse(request, 400, "bad_parameter",
					 "%s takes a number from %lld to %lld", param->name,
					 (long long)param->min, (long long)param->max);
	*target = number;
	return true;
}

static bool set_text(struct pr_admin_request *request, const struct pr_admin_param *param,
		     const char *text, const char **target)
{
	char uuid[PR_UUID_SIZE];
	const char *const *word = param->words;

	if (param->type == PR_TYPE_TEXT && strlen(text) > (size_t)param->max)
		return pr_request_refuse(request, 400, "bad_parameter",
					 "%s takes at most %lld bytes", param->name,
					 (long long)param->max);
	if (param->type == PR_TYPE_UUID) {
		if (!pr_uuid_normalize(text, uuid))
			return pr_request_refuse(request, 400, "bad_parameter", "%s takes a UUID",
						 param->name);
		text = uuid;
	}
	while (word && *word && strcmp(*word, text) != 0)
		word++;
	if (word && !*word) {
		PR_CLEANUP_BUF struct pr_buf known = { 0 };

		for (word = param->words; *word; word++)
			pr_buf_printf(&known, "%s%s", word > param->words ? ", " : "", *word);
		return pr_request_refuse(request, 400, "bad_parameter", "%s takes one of: %s",
					 param->name, pr_buf_text(&known));
	}
	if (param->empty && strcmp(text, param->empty) == 0)
		text = "";
	*target = pr_arena_strdup(&request->arena, text);
	return *target || pr_request_refuse(request, 503, "no_memory", "out of memory");
}

bool pr_request_set(struct pr_admin_request *request, unsigned sets, const char *name,
		    const char *text)
{
	const struct pr_admin_param *param = pr_admin_param_find(sets, name);
	char *field = param ? (char *)&request->query + param->offset : NULL;

	if (!param)
		return refuse_unknown(request, sets, name);
	if (!*text)
		return true; /* an empty field of a form */
	if (request->query.given & UINT64_C(1) << (param - pr_admin_query_params))
		return pr_request_refuse(request, 400, "bad_parameter", "%s is given twice", name);
	request->query.given |= UINT64_C(1) << (param - pr_admin_query_params);
	if (param->type == PR_TYPE_INT)
		return set_number(request, param, text, (int64_t *)(void *)field);
	if (param->type != PR_TYPE_TIME)
		return set_text(request, param, text, (const char **)(void *)field);
	if (pr_time_parse(text, (int64_t *)(void *)field))
		return true;
	return pr_request_refuse(request, 400, "bad_parameter",
				 "%s takes a time such as 2026-11-18T03:50:00Z, or a date",
				 param->name);
}
