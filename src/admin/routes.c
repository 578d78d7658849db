/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every request that is served. The description of the API is made from this table.
 *
 * 1. A path with a fixed word comes before one with any word in that position.
 */
#include "admin/server.h"

#include <stdlib.h>
#include <string.h>

const char *const pr_admin_methods[PR_METHODS] = { "GET", "POST", "DELETE" };

#define API "/api/v1"
#define OUTBOX API "/outbox"
#define INBOX API "/inbox"
#define NDJSON "application/x-ndjson"
#define CSV "text/csv"

const struct pr_admin_route pr_admin_routes[] = {
	{ PR_METHOD_GET, "/livez", PR_ROUTE_OPEN | PR_ROUTE_UNHEALTHY, 0, pr_api_livez, "getLive",
	  "Does the process work?", "Probe", NULL },
	{ PR_METHOD_GET, "/readyz", PR_ROUTE_OPEN | PR_ROUTE_UNHEALTHY | PR_ROUTE_DATABASE, 0,
	  pr_api_readyz, "getReady", "Does the database answer, and does its schema fit?", "Probe",
	  NULL },
	{ PR_METHOD_GET, "/healthz", PR_ROUTE_UNHEALTHY | PR_ROUTE_DATABASE, 0, pr_api_healthz, "getHealth",
	  "Health, with the reasons", "Health", NULL },
	{ PR_METHOD_GET, "/metrics", 0, 0, pr_api_metrics, "getMetrics",
	  "Metrics for Prometheus; OpenMetrics if the Accept header asks for it", NULL,
	  "text/plain" },
	{ PR_METHOD_GET, API "/openapi.json", 0, 0, pr_api_openapi, "getOpenapi",
	  "This description", "Openapi", NULL },
	{ PR_METHOD_GET, API "/stats", PR_ROUTE_DATABASE, 0, pr_api_stats, "getStats",
	  "Counts, rates and health", "Stats", NULL },
	{ PR_METHOD_GET, API "/topics", PR_ROUTE_DATABASE, 0, pr_api_topics, "listTopics",
	  "Counts by topic", "Topics", NULL },
	{ PR_METHOD_GET, API "/sinks", 0, 0, pr_api_sinks, "listSinks",
	  "Sinks with their circuit breakers", "Sinks", NULL },
	{ PR_METHOD_GET, API "/workers", PR_ROUTE_DATABASE, 0, pr_api_workers, "listWorkers",
	  "Workers of this process, and leases of all", "Workers", NULL },
	{ PR_METHOD_GET, API "/doctor", PR_ROUTE_DOCTOR, 0, pr_api_doctor, "getDoctor",
	  "Findings of postroom doctor; they are up to 30 s old", "Doctor", NULL },

	{ PR_METHOD_GET, OUTBOX, PR_ROUTE_DATABASE, PR_SET_OUTBOX | PR_SET_OUTBOX_PAGE, pr_api_list,
	  "listOutbox", "Messages, newest first", "OutboxList", NULL },
	{ PR_METHOD_GET, OUTBOX ".ndjson", PR_ROUTE_DATABASE, PR_SET_OUTBOX | PR_SET_EXPORT,
	  pr_api_export, "exportOutboxNdjson", "Export messages, one JSON object per line", NULL,
	  NDJSON },
	{ PR_METHOD_GET, OUTBOX ".csv", PR_ROUTE_DATABASE | PR_ROUTE_CSV,
	  PR_SET_OUTBOX | PR_SET_EXPORT, pr_api_export, "exportOutboxCsv",
	  "Export messages without their content", NULL, CSV },
	{ PR_METHOD_GET, OUTBOX "/groups", PR_ROUTE_DATABASE, PR_SET_OUTBOX | PR_SET_GROUPS,
	  pr_api_groups, "groupOutbox", "Dead letters by cause", "Groups", NULL },
	{ PR_METHOD_POST, OUTBOX "/retry", PR_ROUTE_DATABASE | PR_ROUTE_BODY, PR_SET_OUTBOX,
	  pr_api_retry, "retryOutbox", "Retry dead letters that match", "Action", NULL },
	{ PR_METHOD_POST, OUTBOX "/delete", PR_ROUTE_DATABASE | PR_ROUTE_BODY, PR_SET_OUTBOX,
	  pr_api_delete, "deleteOutbox", "Delete delivered or dead messages that match", "Action",
	  NULL },
	{ PR_METHOD_GET, OUTBOX "/{id}", PR_ROUTE_DATABASE, 0, pr_api_show, "getMessage",
	  "One message", "OutboxMessage", NULL },
	{ PR_METHOD_POST, OUTBOX "/{id}/retry", PR_ROUTE_DATABASE, 0, pr_api_retry_one,
	  "retryMessage", "Retry one dead letter", "Retried", NULL },
	{ PR_METHOD_DELETE, OUTBOX "/{id}", PR_ROUTE_DATABASE, 0, pr_api_delete_one,
	  "deleteMessage", "Delete one delivered or dead message", "Deleted", NULL },

	{ PR_METHOD_GET, INBOX, PR_ROUTE_DATABASE | PR_ROUTE_INBOX,
	  PR_SET_INBOX | PR_SET_INBOX_PAGE, pr_api_list, "listInbox", "Events, newest first",
	  "InboxList", NULL },
	{ PR_METHOD_GET, INBOX ".ndjson", PR_ROUTE_DATABASE | PR_ROUTE_INBOX,
	  PR_SET_INBOX | PR_SET_EXPORT, pr_api_export, "exportInboxNdjson",
	  "Export events, one JSON object per line", NULL, NDJSON },
	{ PR_METHOD_GET, INBOX ".csv", PR_ROUTE_DATABASE | PR_ROUTE_INBOX | PR_ROUTE_CSV,
	  PR_SET_INBOX | PR_SET_EXPORT, pr_api_export, "exportInboxCsv",
	  "Export events without their content", NULL, CSV },
	{ PR_METHOD_GET, INBOX "/groups", PR_ROUTE_DATABASE | PR_ROUTE_INBOX,
	  PR_SET_INBOX | PR_SET_GROUPS, pr_api_groups, "groupInbox", "Dead events by cause",
	  "Groups", NULL },
	{ PR_METHOD_POST, INBOX "/retry", PR_ROUTE_DATABASE | PR_ROUTE_BODY | PR_ROUTE_INBOX,
	  PR_SET_INBOX, pr_api_retry, "retryInbox", "Retry dead events that match", "Action",
	  NULL },
	{ PR_METHOD_POST, INBOX "/delete", PR_ROUTE_DATABASE | PR_ROUTE_BODY | PR_ROUTE_INBOX,
	  PR_SET_INBOX, pr_api_delete, "deleteInbox", "Delete completed or dead events that match",
	  "Action", NULL },
	{ PR_METHOD_GET, INBOX "/{handler}/{id}", PR_ROUTE_DATABASE | PR_ROUTE_INBOX, 0,
	  pr_api_show, "getEvent", "One event of one handler", "InboxEvent", NULL },
	{ PR_METHOD_POST, INBOX "/{handler}/{id}/retry", PR_ROUTE_DATABASE | PR_ROUTE_INBOX, 0,
	  pr_api_retry_one, "retryEvent", "Retry one dead event", "Retried", NULL },
	{ PR_METHOD_DELETE, INBOX "/{handler}/{id}", PR_ROUTE_DATABASE | PR_ROUTE_INBOX, 0,
	  pr_api_delete_one, "deleteEvent", "Delete one completed or dead event", "Deleted", NULL },

	{ PR_METHOD_GET, "/{id}", PR_ROUTE_OPEN | PR_ROUTE_PAGE, 0, pr_api_page, "getPage",
	  "The dashboard", NULL, "text/html" },
	{ 0 },
};

/* Does the path fit the route's? Notes what is in its braces. */
static bool fits(struct pr_admin_request *request, const char *path, char *const *segments,
		 size_t count)
{
	const char *id = NULL, *handler = NULL;

	for (size_t i = 0; i < count; i++) {
		size_t len;

		if (*path++ != '/')
			return false;
		len = strcspn(path, "/");
		if (strncmp(path, "{id}", len) == 0 && len == 4)
			id = segments[i];
		else if (strncmp(path, "{handler}", len) == 0 && len == 9)
			handler = segments[i];
		else if (strlen(segments[i]) != len || strncmp(path, segments[i], len) != 0)
			return false;
		/* Only the dashboard has an empty name: the page itself. */
		if (*path == '{' && !*segments[i] && count > 1)
			return false;
		path += len;
	}
	if (*path)
		return false;
	request->id = id;
	request->handler = handler;
	return true;
}

const struct pr_admin_route *pr_route_find(struct pr_admin_request *request, const char *method,
					   char *const *segments, size_t count)
{
	const struct pr_admin_route *other = NULL;
	PR_CLEANUP_BUF struct pr_buf allow = { 0 };

	if (strcmp(method, "HEAD") == 0)
		method = "GET"; /* the server sends the headers alone */
	for (const struct pr_admin_route *route = pr_admin_routes; route->path; route++) {
		/* /livez is not a file of the dashboard, whatever the method. */
		if ((other && route->flags & PR_ROUTE_PAGE) ||
		    !fits(request, route->path, segments, count))
			continue;
		if (strcmp(pr_admin_methods[route->method], method) == 0 &&
		    !(other && strcmp(other->path, route->path) != 0))
			return route;
		if (other && strcmp(other->path, route->path) != 0)
			continue;
		other = route;
		pr_buf_puts(&allow, allow.len > 0 ? ", " : "");
		pr_buf_puts(&allow, route->method == PR_METHOD_GET
					    ? "GET, HEAD"
					    : pr_admin_methods[route->method]);
	}
	if (other) {
		pr_request_refuse(request, 405, "method_not_allowed", "%s takes %s", other->path,
				  pr_buf_text(&allow));
		request->answer.allow = pr_arena_strdup(&request->arena, pr_buf_text(&allow));
	} else {
		pr_request_refuse(request, 404, "not_found",
				  "there is no such path; GET /api/v1/openapi.json lists them");
	}
	return NULL;
}
