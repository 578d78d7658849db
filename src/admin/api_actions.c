/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operator actions: retry and delete, of one row or of all that match.
 *
 * 1. A call changes at most 10,000 rows, in transactions of 1,000, and takes little longer than
 *    CALL_MS: clients call again while there is more, and stop by not calling.
 * 2. Rows that become dead while a call runs are left alone: it would never end.
 * 3. Every action is logged after its commit, and counted.
 */
#include "admin/server.h"

#include "base/json.h"
#include "base/time.h"
#include "store/action.h"

#include <stdio.h>
#include <string.h>

#define CALL_MAX 10000
#define BATCH 1000
#define CALL_MS 2000
#define MATCHED_CAP 100000
#define EXAMPLES 5

static bool is_inbox_action(const struct pr_admin_request *request)
{
	return request->route->flags & PR_ROUTE_INBOX;
}

static void log_action(struct pr_admin_request *request, const char *action,
		       const postroom_filter *filter, int64_t count)
{
	postroom_filter logged = *filter;

	logged.older_than_ms = 0; /* our own bound, not the operator's */
	pr_log_action(&request->admin->database.log, action, &logged, count, request->actor);
	pr_metrics_count_action(request->admin->relay, action, count);
	pr_status_cache_expire(request->admin->database.cache);
}

typedef int (*change_fn)(postroom_store *store, const postroom_filter *filter, int32_t limit,
			 int64_t *ret);

static int keep_status(void *context, const postroom_row *row)
{
	snprintf(context, 16, "%s", row->status);
	return 1;
}

/* Changes the row of the path, which must be in one of two states. */
static bool change_one(struct pr_admin_request *request, const char *action, change_fn change,
		       const char *or_status)
{
	postroom_filter filter = pr_request_filter(request);
	postroom_store *store = pr_database_store(request);
	char status[16] = "";
	int64_t count = 0;

	if (!store)
		return false;
	if (postroom_show(store, &filter, keep_status, status) < 0)
		return pr_request_fail(request, &store->err);
	if (strcmp(status, "dead") != 0 && (!or_status || strcmp(status, or_status) != 0))
		return pr_request_refuse(
			request, 409, "conflict", "%s: the status is %s; it must be dead%s%s",
			request->id, status, or_status ? " or " : "", or_status ? or_status : "");
	filter.status = status;
	if (change(store, &filter, 1, &count) < 0)
		return pr_request_fail(request, &store->err);
	if (count == 0)
		return pr_request_refuse(request, 409, "conflict",
					 "%s has just been changed by another; read it again",
					 request->id);
	log_action(request, action, &filter, count);
	return true;
}

void pr_api_retry_one(struct pr_admin_request *request)
{
	struct pr_buf *out = &request->answer.text;

	if (!change_one(request, "retry", postroom_retry_some, NULL))
		return;
	pr_buf_putc(out, '{');
	pr_put_text(out, "id", request->id);
	pr_put_text(out, "status", "pending");
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
}

void pr_api_delete_one(struct pr_admin_request *request)
{
	const char *done = is_inbox_action(request) ? "completed" : "delivered";
	struct pr_buf *out = &request->answer.text;

	if (!change_one(request, "delete", postroom_purge_some, done))
		return;
	pr_buf_putc(out, '{');
	pr_put_text(out, "id", request->id);
	pr_put_bool(out, "deleted", true);
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
}

struct action {
	const char *name;
	change_fn change;
	postroom_filter filter;
	int64_t most;
	int64_t matched, done;
	bool more;
};

static int put_example(void *context, const postroom_row *row)
{
	struct pr_buf *out = context;

	pr_put_comma(out);
	pr_json_put_string(out, row->id);
	return out->failed;
}

static bool try_action(struct pr_admin_request *request, postroom_store *store,
		       const struct action *action, struct pr_buf *out)
{
	postroom_filter filter = action->filter;

	filter.brief = 1;
	pr_put_name(out, "examples");
	pr_buf_putc(out, '[');
	if (postroom_list(store, &filter, EXAMPLES, put_example, out) < 0)
		return pr_request_fail(request, &store->err);
	pr_buf_putc(out, ']');
	return true;
}

static bool run_action(struct pr_admin_request *request, postroom_store *store,
		       struct action *action)
{
	int64_t begun_us = pr_mono_us(), some = 0, step = 0;
	int status = POSTROOM_OK;

	do {
		step = action->most - action->done < BATCH ? action->most - action->done : BATCH;
		action->filter.older_than_ms = (pr_mono_us() - begun_us) / 1000;
		store->until_us = pr_mono_us() + PR_ADMIN_QUERY_MS * 1000;
		status = action->change(store, &action->filter, (int32_t)step, &some);
		if (status < 0)
			break;
		action->done += some;
	} while (some == step && action->done < action->most &&
		 pr_mono_us() - begun_us < CALL_MS * 1000);
	if (action->done > 0 || status >= 0)
		log_action(request, action->name, &action->filter, action->done);
	if (status < 0 && action->done == 0)
		return pr_request_fail(request, &store->err);
	action->more = status < 0 || (some == step && action->matched > action->done);
	return true;
}

static void act(struct pr_admin_request *request, struct action *action)
{
	const struct pr_admin_query *query = &request->query;
	postroom_store *store = pr_database_store(request);
	struct pr_buf *out = &request->answer.text;
	struct pr_buf examples = { 0 };
	bool fine;

	if (!store)
		return;
	action->most = query->limit ? query->limit : CALL_MAX;
	if (query->rate && query->rate < action->most)
		action->most = query->rate;
	if (postroom_count(store, &action->filter, MATCHED_CAP, &action->matched) < 0) {
		pr_request_fail(request, &store->err);
		return;
	}
	fine = query->dry_run ? try_action(request, store, action, &examples)
			      : run_action(request, store, action);
	if (fine) {
		pr_buf_putc(out, '{');
		pr_put_int(out, "matched", action->matched);
		if (action->matched >= MATCHED_CAP)
			pr_put_bool(out, "matched_capped", true);
		pr_put_int(out, "done", action->done);
		pr_put_bool(out, "more", query->dry_run ? action->matched > 0 : action->more);
		if (query->dry_run)
			pr_buf_printf(out, ",%s", pr_buf_text(&examples));
		pr_buf_puts(out, "}\n");
		pr_request_succeed(request);
	}
	pr_buf_release(&examples);
}

void pr_api_retry(struct pr_admin_request *request)
{
	struct action action = { .name = "retry",
				 .change = postroom_retry_some,
				 .filter = pr_request_filter(request) };

	if (action.filter.status && strcmp(action.filter.status, "dead") != 0) {
		pr_request_refuse(request, 400, "bad_body",
				  "only dead messages can be retried; leave filter.status out");
		return;
	}
	action.filter.status = "dead";
	act(request, &action);
}

void pr_api_delete(struct pr_admin_request *request)
{
	const char *done = is_inbox_action(request) ? "completed" : "delivered";
	struct action action = { .name = "delete",
				 .change = postroom_purge_some,
				 .filter = pr_request_filter(request) };
	const char *status = action.filter.status;

	if (!status || (strcmp(status, "dead") != 0 && strcmp(status, done) != 0)) {
		pr_request_refuse(request, 400, "bad_body",
				  "filter.status must be dead or %s: other messages cannot be "
				  "deleted",
				  done);
		return;
	}
	act(request, &action);
}
