/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request as a client may send it: a method, a target, headers and a body, apart by line feeds.
 * Routes, parameters, bodies and access are decided; no handler runs.
 */
#include "fuzz.h"

#include "admin/access.h"
#include "base/json.h"

#include <string.h>

static struct pr_admin_settings *settings(bool guarded)
{
	static struct pr_admin_settings *both[2];
	const struct pr_admin_config config = {
		.listen = "127.0.0.1:8025",
		.token = guarded ? "token" : NULL,
		.read_token = guarded ? "reader" : NULL,
	};

	if (!both[guarded])
		both[guarded] = pr_settings_new(&config);
	HOLDS(both[guarded]);
	return pr_settings_ref(both[guarded]);
}

/* The next line of the input, ended in place; "" when there is none. */
static char *next_line(char **at)
{
	char *line = *at, *end = strchr(line, '\n');

	*at = end ? end + 1 : line + strlen(line);
	if (end)
		*end = '\0';
	return line;
}

static const char *or_null(const char *text)
{
	return *text ? text : NULL;
}

static void check_error(const struct pr_admin_answer *answer)
{
	HOLDS(answer->code >= 400 && answer->code < 500 && answer->text.len < 4000);
	HOLDS(pr_json_check(answer->text.data, answer->text.len - 1, NULL));
}

static void check_texts(const struct pr_admin_request *request)
{
	const postroom_filter *filter = &request->query.filter;
	const char *texts[] = { filter->status,	     filter->ns,   filter->topic,
				filter->tenant_id,   filter->key,  filter->after,
				filter->handler,     filter->id,   filter->error,
				filter->fingerprint, filter->sink, request->id,
				request->handler };

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		HOLDS(!texts[i] || strlen(texts[i]) <= PR_ADMIN_TARGET_MAX);
	HOLDS(request->query.page >= 1 && request->query.page_size >= 1);
	HOLDS(request->query.page_size <= 200 && request->query.limit >= 0);
	HOLDS(filter->created_from_us >= 0 && filter->created_to_us >= 0);
}

static bool read_all(struct pr_admin_request *request, char *input)
{
	const char *method = next_line(&input);
	struct pr_admin_headers headers;

	request->target = strdup(next_line(&input));
	headers = (struct pr_admin_headers){ .host = or_null(next_line(&input)),
					     .authorization = or_null(next_line(&input)),
					     .origin = or_null(next_line(&input)),
					     .fetch_site = or_null(next_line(&input)) };
	HOLDS(request->target);
	if (!pr_request_read_target(request, method) || !pr_access_check(request, &headers))
		return false;
	HOLDS(request->role != PR_ROLE_NOBODY || request->route->flags & PR_ROUTE_OPEN);
	HOLDS(request->route->method == PR_METHOD_GET || request->role == PR_ROLE_OPERATOR);
	pr_buf_puts(&request->body, input);
	return pr_request_read_body(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pr_admin_request request;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	pr_request_init(&request);
	request.settings = settings(size % 2);
	if (read_all(&request, text))
		check_texts(&request);
	else
		check_error(&request.answer);
	pr_request_release(&request);
	free(text);
	return 0;
}
