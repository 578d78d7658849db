/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of the API, made from the table of routes and the table of parameters, so that
 * it cannot differ from what is served. The shapes of the answers are in schemas.json.
 */
#include "admin/assets.h"
#include "admin/server.h"

#include "base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put_type(struct pr_buf *out, const struct pr_admin_param *param)
{
	pr_put_name(out, "schema");
	pr_buf_putc(out, '{');
	pr_put_text(out, "type", param->type == PR_TYPE_INT ? "integer" : "string");
	if (param->type == PR_TYPE_INT) {
		pr_put_int(out, "minimum", param->min);
		pr_put_int(out, "maximum", param->max);
		pr_put_json(out, "default", param->fallback);
	} else if (param->type == PR_TYPE_TEXT) {
		pr_put_int(out, "maxLength", param->max);
	} else if (param->type == PR_TYPE_UUID) {
		pr_put_text(out, "format", "uuid");
	} else if (param->type == PR_TYPE_TIME) {
		pr_put_text(out, "format", "date-time");
	}
	if (param->words) {
		pr_put_name(out, "enum");
		pr_buf_putc(out, '[');
		for (const char *const *word = param->words; *word; word++) {
			pr_put_comma(out);
			pr_json_put_string(out, *word);
		}
		pr_buf_putc(out, ']');
	}
	pr_buf_putc(out, '}');
}

static void put_path_parameter(struct pr_buf *out, const struct pr_admin_route *route,
			       const char *name, const char *about)
{
	bool uuid = !(route->flags & PR_ROUTE_INBOX);

	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "name", name);
	pr_put_text(out, "in", "path");
	pr_put_bool(out, "required", true);
	pr_put_text(out, "description", about);
	pr_put_json(out, "schema",
		    uuid ? "{\"type\":\"string\",\"format\":\"uuid\"}"
			 : "{\"type\":\"string\",\"minLength\":1,\"maxLength\":1024}");
	pr_buf_putc(out, '}');
}

static void put_parameters(struct pr_buf *out, const struct pr_admin_route *route)
{
	pr_put_name(out, "parameters");
	pr_buf_putc(out, '[');
	if (strstr(route->path, "{handler}"))
		put_path_parameter(out, route, "handler", "Name of the handler");
	if (strstr(route->path, "{id}"))
		put_path_parameter(out, route, "id", "Id of the row");
	for (const struct pr_admin_param *param = pr_admin_query_params; param->name; param++) {
		if (!(param->sets & route->sets) || route->flags & PR_ROUTE_BODY)
			continue;
		pr_put_comma(out);
		pr_buf_putc(out, '{');
		pr_put_text(out, "name", param->name);
		pr_put_text(out, "in", "query");
		pr_put_text(out, "description", param->about);
		put_type(out, param);
		pr_buf_putc(out, '}');
	}
	pr_buf_putc(out, ']');
}

static void put_body(struct pr_buf *out, const struct pr_admin_route *route)
{
	if (!(route->flags & PR_ROUTE_BODY))
		return;
	pr_buf_printf(out,
		      ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":"
		      "{\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}}}",
		      route->flags & PR_ROUTE_INBOX ? "InboxActionRequest" : "OutboxActionRequest");
}

static void put_answer(struct pr_buf *out, int code, const char *about, const char *schema,
		       const char *type)
{
	pr_put_comma(out);
	pr_buf_printf(out, "\"%d\":{", code);
	pr_put_text(out, "description", about);
	pr_put_name(out, "content");
	pr_buf_putc(out, '{');
	pr_put_name(out, type ? type : "application/json");
	if (schema)
		pr_buf_printf(out, "{\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}", schema);
	else
		pr_buf_puts(out, "{\"schema\":{\"type\":\"string\"}}");
	pr_buf_puts(out, "}}");
}

static void put_answers(struct pr_buf *out, const struct pr_admin_route *route)
{
	bool unsafe = route->method != PR_METHOD_GET;
	bool one = strstr(route->path, "{id}");
	bool database = route->flags & PR_ROUTE_DATABASE;

	pr_put_name(out, "responses");
	pr_buf_putc(out, '{');
	put_answer(out, 200, "Done", route->schema, route->type);
	put_answer(out, 400, "The request is wrong", "Error", NULL);
	if (!(route->flags & PR_ROUTE_OPEN))
		put_answer(out, 401, "The token is missing or wrong", "Error", NULL);
	put_answer(out, 403, unsafe ? "Read-only, or a foreign Host or Origin" : "A foreign Host",
		   "Error", NULL);
	if (one || route->sets & (PR_SET_OUTBOX_PAGE | PR_SET_INBOX_PAGE))
		put_answer(out, 404, "There is no such row", "Error", NULL);
	if (one && unsafe)
		put_answer(out, 409, "Its status does not allow this", "Error", NULL);
	if (unsafe)
		put_answer(out, 413, "The body is too large", "Error", NULL);
	if (route->flags & PR_ROUTE_UNHEALTHY)
		put_answer(out, 503, "Unhealthy", route->schema, NULL);
	else if (database)
		put_answer(out, 503, "The database cannot be used", "Error", NULL);
	else if (route->flags & PR_ROUTE_DOCTOR)
		put_answer(out, 503, "The checks cannot be made", "Error", NULL);
	pr_buf_putc(out, '}');
}

static void put_operation(struct pr_buf *out, const struct pr_admin_route *route)
{
	static const char *const methods[PR_METHODS] = { "get", "post", "delete" };

	pr_put_name(out, methods[route->method]);
	pr_buf_putc(out, '{');
	pr_put_text(out, "operationId", route->operation);
	pr_put_text(out, "summary", route->summary);
	if (route->flags & PR_ROUTE_OPEN)
		pr_put_json(out, "security", "[]");
	put_parameters(out, route);
	put_body(out, route);
	put_answers(out, route);
	pr_buf_putc(out, '}');
}

static bool is_first_of_path(const struct pr_admin_route *route)
{
	for (const struct pr_admin_route *other = pr_admin_routes; other < route; other++) {
		if (strcmp(other->path, route->path) == 0)
			return false;
	}
	return true;
}

static void put_description(struct pr_buf *out)
{
	pr_buf_puts(out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Postroom admin API\","
			 "\"version\":\"" POSTROOM_VERSION "\",\"license\":{\"name\":"
			 "\"Apache-2.0\",\"identifier\":\"Apache-2.0\"}},"
			 "\"servers\":[{\"url\":\"/\"}],\"security\":[{\"token\":[]}],\"paths\":{");
	for (const struct pr_admin_route *route = pr_admin_routes; route->path; route++) {
		if (route->flags & PR_ROUTE_PAGE || !is_first_of_path(route))
			continue;
		pr_put_name(out, route->path);
		pr_buf_putc(out, '{');
		for (const struct pr_admin_route *same = route; same->path; same++) {
			if (strcmp(same->path, route->path) == 0)
				put_operation(out, same);
		}
		pr_buf_putc(out, '}');
	}
	pr_buf_puts(out, "},\"components\":{\"securitySchemes\":{\"token\":{\"type\":\"http\","
			 "\"scheme\":\"bearer\"}},\"schemas\":");
	pr_buf_puts(out, (const char *)pr_schema_assets[0].data);
	pr_buf_puts(out, "}}\n");
}

/* It never changes, so it is written once. */
void pr_api_openapi(struct pr_admin_request *request)
{
	struct pr_buf *description = &request->admin->openapi;

	if (!description->len)
		put_description(description);
	if (description->failed) {
		pr_buf_release(description);
		request->answer.text.failed = true;
	}
	request->answer.fixed = (const unsigned char *)description->data;
	request->answer.fixed_len = description->len;
	pr_request_succeed(request);
}
