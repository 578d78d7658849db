/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of either table: lists, single rows, and dead ones by cause. */
#include "admin/server.h"

#include "base/json.h"
#include "store/action.h"
#include "store/position.h"

#include <string.h>

/* Lists count no further than this. */
#define TOTAL_CAP 100000
#define GROUPS 100

static bool is_inbox_request(const struct pr_admin_request *request)
{
	return request->route->flags & PR_ROUTE_INBOX;
}

postroom_filter pr_request_filter(const struct pr_admin_request *request)
{
	postroom_filter filter = request->query.filter;

	filter.size = sizeof(filter);
	filter.table = is_inbox_request(request) ? POSTROOM_INBOX : POSTROOM_OUTBOX;
	if (request->id)
		filter.id = request->id;
	if (request->handler)
		filter.handler = request->handler;
	return filter;
}

void pr_put_row_columns(struct pr_buf *out, const postroom_row *row, bool inbox)
{
	pr_put_text(out, "id", row->id);
	pr_put_int(out, "seq", row->seq);
	if (inbox)
		pr_put_text(out, "handler", row->handler);
	else
		pr_put_text(out, "namespace", row->ns);
	pr_put_text(out, "topic", row->topic);
	pr_put_text(out, "tenant_id", row->tenant_id);
	pr_put_text(out, "key", row->key);
	if (!inbox)
		pr_put_text(out, "dedupe_key", row->dedupe_key);
	pr_put_text(out, "correlation_id", row->correlation_id);
	pr_put_text(out, "content_type", row->content_type);
	pr_put_text(out, "status", row->status);
	pr_put_int(out, "attempts", row->attempts);
	pr_put_int(out, "claims", row->claims);
	pr_put_time(out, "next_attempt_at", row->next_attempt_at_us);
	pr_put_text(out, "locked_by", row->locked_by);
	pr_put_time(out, "locked_until", row->locked_until_us);
	pr_put_time(out, "last_attempt_at", row->last_attempt_at_us);
	pr_put_text(out, "last_error", row->last_error);
	pr_put_time(out, "created_at", row->created_at_us);
	pr_put_time(out, "updated_at", row->updated_at_us);
	if (inbox)
		pr_put_time(out, "processed_at", row->processed_at_us);
	else
		pr_put_time(out, "delivered_at", row->delivered_at_us);
}

static void put_stored_json(struct pr_buf *out, const char *name, const char *json)
{
	pr_put_json_text(out, name, json, json ? strlen(json) : 0);
}

void pr_put_row_content(struct pr_buf *out, const postroom_row *row, bool inbox, bool shown)
{
	pr_put_name(out, "payload_text");
	/* As text: a parser that reads numbers as doubles would change 9007199254740993. */
	if (shown && row->payload)
		pr_json_put_stringn(out, row->payload,
				    row->payload_len ? row->payload_len : strlen(row->payload));
	else
		pr_buf_puts(out, "null");
	pr_put_name(out, "body_base64");
	if (shown && row->body)
		pr_json_put_base64(out, row->body, row->body_len);
	else
		pr_buf_puts(out, "null");
	put_stored_json(out, "headers", shown && row->headers ? row->headers : "{}");
	if (inbox) {
		put_stored_json(out, "checkpoint", shown ? row->checkpoint : NULL);
		put_stored_json(out, "steps", shown ? row->steps : NULL);
	}
	pr_put_bool(out, "payload_hidden", !shown);
}

struct page {
	struct pr_buf *out;
	bool inbox;
	int64_t room; /* rows that the page takes; one more is read */
	int64_t count;
	char after[PR_ROW_POSITION_SIZE]; /* of the last one */
};

static int put_item(void *context, const postroom_row *row)
{
	struct page *page = context;

	if (page->count++ == page->room)
		return 1;
	pr_put_comma(page->out);
	pr_buf_putc(page->out, '{');
	pr_put_row_columns(page->out, row, page->inbox);
	pr_buf_putc(page->out, '}');
	pr_row_position(row, page->after);
	return page->out->failed;
}

static bool fail(struct pr_admin_request *request, const postroom_store *store)
{
	return pr_request_fail(request, &store->err);
}

static bool check_page(struct pr_admin_request *request)
{
	const char *after = request->query.filter.after;
	struct pr_position position;

	if (after && request->query.page > 1)
		return pr_request_refuse(request, 400, "bad_parameter",
					 "after and page do not go together");
	if (after && (is_inbox_request(request) ? after[strspn(after, "0123456789")] != '\0'
						: !pr_position_parse(after, &position)))
		return pr_request_refuse(request, 400, "bad_parameter",
					 "after takes the next_after of a page");
	return true;
}

void pr_api_list(struct pr_admin_request *request)
{
	const struct pr_admin_query *query = &request->query;
	postroom_filter filter = pr_request_filter(request), whole = filter;
	struct pr_buf *out = &request->answer.text;
	struct page page = { .out = out,
			     .inbox = is_inbox_request(request),
			     .room = query->page_size };
	postroom_store *store = check_page(request) ? pr_database_store(request) : NULL;
	int64_t total = 0;

	if (!store)
		return;
	filter.brief = 1;
	filter.offset = (query->page - 1) * query->page_size;
	whole.after = NULL;
	pr_buf_puts(out, "{\"items\":[");
	if (postroom_list(store, &filter, (int32_t)query->page_size + 1, put_item, &page) < 0 ||
	    postroom_count(store, &whole, TOTAL_CAP, &total) < 0) {
		fail(request, store);
		return;
	}
	pr_buf_putc(out, ']');
	pr_put_int(out, "page", query->page);
	pr_put_int(out, "page_size", query->page_size);
	pr_put_int(out, "total", total);
	pr_put_bool(out, "total_capped", total >= TOTAL_CAP);
	pr_put_text(out, "next_after", page.count > page.room ? page.after : NULL);
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
}

struct whole_row {
	struct pr_buf *out;
	bool inbox, shown;
};

static int put_whole_row(void *context, const postroom_row *row)
{
	const struct whole_row *whole = context;

	pr_put_row_columns(whole->out, row, whole->inbox);
	pr_put_row_content(whole->out, row, whole->inbox, whole->shown);
	return 1;
}

static int put_attempt(void *context, const postroom_attempt *attempt)
{
	struct pr_buf *out = context;

	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_int(out, "number", attempt->number);
	pr_put_time(out, "at", attempt->at_us);
	if (attempt->duration_ms >= 0)
		pr_put_int(out, "duration_ms", attempt->duration_ms);
	else
		pr_put_json(out, "duration_ms", NULL);
	pr_put_text(out, "worker", attempt->worker);
	pr_put_text(out, "sink", attempt->sink);
	pr_put_text(out, "error", attempt->error);
	pr_buf_putc(out, '}');
	return out->failed;
}

void pr_api_show(struct pr_admin_request *request)
{
	const postroom_filter filter = pr_request_filter(request);
	struct pr_buf *out = &request->answer.text;
	struct whole_row whole = { out, is_inbox_request(request),
				   pr_access_shows_payloads(request) };
	postroom_store *store = pr_database_store(request);

	if (!store)
		return;
	pr_buf_putc(out, '{');
	if (postroom_show(store, &filter, put_whole_row, &whole) < 0) {
		fail(request, store);
		return;
	}
	pr_put_name(out, "attempts_log");
	pr_buf_putc(out, '[');
	if (postroom_attempts(store, &filter, put_attempt, out) < 0 &&
	    store->err.status != POSTROOM_INVALID) {
		fail(request, store);
		return;
	}
	pr_buf_puts(out, "]}\n");
	pr_request_succeed(request);
}

static int put_group(void *context, const postroom_group *group)
{
	struct pr_buf *out = context;

	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "fingerprint", *group->fingerprint ? group->fingerprint : PR_NONE);
	pr_put_text(out, "example_error", group->example_error);
	pr_put_text(out, "topic", group->topic);
	pr_put_text(out, "handler", group->handler);
	pr_put_text(out, "sink", *group->sink ? group->sink : PR_NONE);
	pr_put_int(out, "count", group->count);
	pr_put_time(out, "first_at", group->first_at_us);
	pr_put_time(out, "last_at", group->last_at_us);
	pr_put_text(out, "example_id", group->example_id);
	pr_buf_putc(out, '}');
	return out->failed;
}

void pr_api_groups(struct pr_admin_request *request)
{
	postroom_filter filter = pr_request_filter(request);
	int32_t limit = request->query.limit ? (int32_t)request->query.limit : GROUPS;
	struct pr_buf *out = &request->answer.text;
	postroom_store *store;
	int capped = 0;

	if (filter.status && strcmp(filter.status, "dead") != 0) {
		pr_request_refuse(request, 400, "bad_parameter",
				  "groups are of dead messages; leave status out");
		return;
	}
	filter.status = "dead";
	store = pr_database_store(request);
	if (!store)
		return;
	pr_buf_puts(out, "{\"items\":[");
	if (postroom_groups(store, &filter, limit, put_group, out, &capped) < 0) {
		fail(request, store);
		return;
	}
	pr_buf_putc(out, ']');
	pr_put_bool(out, "capped", capped);
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
}
