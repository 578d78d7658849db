/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public face of the operator's side, whatever the store: it checks filters, so that a store
 * can rely on them.
 */
#include "store/query.h"

#include <stdlib.h>
#include <string.h>

/* A filter as the stores get it. */
struct checked {
	postroom_filter filter;
	bool nothing; /* the id is not a UUID: no message has it */
	char tenant[PR_UUID_SIZE];
	char id[PR_UUID_SIZE];
};

void pr_counts_add(postroom_counts *total, const postroom_counts *more)
{
	total->pending += more->pending;
	total->processing += more->processing;
	total->failed_pending += more->failed_pending;
	total->delivered += more->delivered;
	total->dead += more->dead;
	if (more->oldest_age_us > total->oldest_age_us)
		total->oldest_age_us = more->oldest_age_us;
}

int64_t pr_attempt_duration_ms(const postroom_delivery *item)
{
	if (item->begun_us <= 0 || item->judged_us < item->begun_us)
		return -1;
	return (item->judged_us - item->begun_us) / 1000;
}

static int check_status(const postroom_filter *filter, struct pr_err *err)
{
	static const char *const outbox[] = { "pending", "failed",    "processing",
					      "dead",	 "delivered", NULL };
	static const char *const inbox[] = { "pending", "failed",    "active",
					     "dead",	"completed", NULL };
	bool in_inbox = filter->table == POSTROOM_INBOX;
	const char *const *known = in_inbox ? inbox : outbox;

	for (size_t i = 0; known[i]; i++) {
		if (!filter->status || strcmp(known[i], filter->status) == 0)
			return POSTROOM_OK;
	}
	return pr_err_set(err, POSTROOM_INVALID,
			  in_inbox
				  ? "status \"%.60s\" is unknown; use pending, failed, active, "
				    "completed or dead"
				  : "status \"%.60s\" is unknown; use pending, failed, processing, "
				    "delivered or dead",
			  filter->status);
}

int pr_age_check(int64_t older_than_ms, struct pr_err *err)
{
	if (older_than_ms >= 0 && older_than_ms <= PR_AGE_MAX_MS)
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID,
			  "older_than_ms is %lld; it must be from 0 to %lld, which is 1000 years",
			  (long long)older_than_ms, (long long)PR_AGE_MAX_MS);
}

/* The year 9999, the last that the tables take. */
#define TIME_MAX_US 253402300799999999

static int check_times(const postroom_filter *filter, struct pr_err *err)
{
	if (filter->created_from_us < 0 || filter->created_from_us > TIME_MAX_US ||
	    filter->created_to_us < 0 || filter->created_to_us > TIME_MAX_US)
		return pr_err_set(err, POSTROOM_INVALID,
				  "created_from_us and created_to_us must be between the years "
				  "1970 and 9999");
	if (filter->offset < 0)
		return pr_err_set(err, POSTROOM_INVALID, "offset must not be negative");
	return pr_age_check(filter->older_than_ms, err);
}

static int check_table(const postroom_filter *filter, struct pr_err *err)
{
	if (filter->table == POSTROOM_OUTBOX && filter->handler)
		return pr_err_set(err, POSTROOM_INVALID, "only the inbox has handlers");
	if (filter->table == POSTROOM_INBOX && filter->ns)
		return pr_err_set(err, POSTROOM_INVALID, "only the outbox has namespaces");
	if (filter->table == POSTROOM_OUTBOX || filter->table == POSTROOM_INBOX)
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID, "table must be POSTROOM_OUTBOX or POSTROOM_INBOX");
}

static int check_after(const postroom_filter *filter, struct pr_err *err)
{
	char *end = NULL;

	if (filter->table == POSTROOM_OUTBOX || !filter->after)
		return POSTROOM_OK;
	if (filter->after[0] >= '0' && filter->after[0] <= '9' && strlen(filter->after) < 19 &&
	    strtoll(filter->after, &end, 10) >= 0 && *end == '\0')
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID, "after \"%.60s\" is not the seq of a row",
			  filter->after);
}

static int check(postroom_store *store, const postroom_filter *filter, struct checked *ret)
{
	struct pr_err *err = &store->err;
	postroom_filter *checked = &ret->filter;

	pr_err_clear(err);
	if (filter->size != sizeof(*filter))
		return pr_err_set(err, POSTROOM_INVALID,
				  "size must be sizeof(postroom_filter): use POSTROOM_FILTER()");
	*checked = *filter;
	ret->nothing = false;
	if (check_table(filter, err) < 0 || check_status(filter, err) < 0 ||
	    check_times(filter, err) < 0 || check_after(filter, err) < 0)
		return err->status;
	if (filter->tenant_id && !pr_uuid_normalize(filter->tenant_id, ret->tenant))
		return pr_err_set(err, POSTROOM_INVALID, "tenant \"%.60s\" is not a UUID",
				  filter->tenant_id);
	if (filter->tenant_id)
		checked->tenant_id = ret->tenant;
	if (filter->id && filter->table == POSTROOM_OUTBOX) {
		ret->nothing = !pr_uuid_normalize(filter->id, ret->id);
		checked->id = ret->id;
	}
	return POSTROOM_OK;
}

/* For what works on one row. */
static int check_one(postroom_store *store, const postroom_filter *filter, struct checked *ret)
{
	int status = check(store, filter, ret);

	if (status >= 0 && !filter->id)
		return pr_err_set(&store->err, POSTROOM_INVALID, "id is missing");
	ret->filter = (postroom_filter){ .size = sizeof(ret->filter),
					 .table = filter->table,
					 .handler = filter->handler,
					 .id = ret->filter.id };
	return status;
}

static int refuse_id(postroom_store *store, const postroom_filter *filter)
{
	if (filter->table == POSTROOM_OUTBOX)
		return pr_err_set(&store->err, POSTROOM_NOT_FOUND, "there is no message %s",
				  filter->id);
	return pr_err_set(&store->err, POSTROOM_NOT_FOUND, "there is no event %s%s%s", filter->id,
			  filter->handler ? " of handler " : "",
			  filter->handler ? filter->handler : "");
}

int postroom_list(postroom_store *store, const postroom_filter *filter, int32_t limit,
		  postroom_row_fn fn, void *context)
{
	struct checked checked;
	int status = check(store, filter, &checked);

	if (status < 0 || checked.nothing)
		return status;
	return store->ops->list(store, &checked.filter, limit, fn, context, &store->err);
}

/* For the rows of one id: all of them. */
#define ALL_ROWS INT32_MAX

struct counting {
	postroom_row_fn fn;
	void *context;
	int64_t count;
};

static int count_row(void *context, const postroom_row *row)
{
	struct counting *counting = context;

	counting->count++;
	return counting->fn(counting->context, row);
}

int postroom_show(postroom_store *store, const postroom_filter *filter, postroom_row_fn fn,
		  void *context)
{
	struct counting counting = { .fn = fn, .context = context };
	struct checked checked;
	int status = check_one(store, filter, &checked);

	if (status >= 0 && !checked.nothing)
		status = store->ops->list(store, &checked.filter, ALL_ROWS, count_row, &counting,
					  &store->err);
	if (status >= 0 && counting.count == 0)
		return refuse_id(store, filter);
	return status;
}

int postroom_count(postroom_store *store, const postroom_filter *filter, int64_t cap, int64_t *ret)
{
	struct checked checked;
	int status = check(store, filter, &checked);

	if (status >= 0 && cap < 0)
		return pr_err_set(&store->err, POSTROOM_INVALID, "cap must not be negative");
	if (status < 0)
		return status;
	*ret = 0;
	if (checked.nothing || cap == 0)
		return POSTROOM_OK;
	return store->ops->count(store, &checked.filter, cap, ret, &store->err);
}

struct asked {
	struct pr_err *err;
	const postroom_filter *filter;
};

static int refuse_state(void *context, const postroom_row *row)
{
	const struct asked *asked = context;

	if (asked->filter->table == POSTROOM_OUTBOX)
		pr_err_set(asked->err, POSTROOM_NOT_FOUND,
			   "message %s is %s; only dead messages can be retried", asked->filter->id,
			   row->status);
	else
		pr_err_set(asked->err, POSTROOM_NOT_FOUND,
			   "%s is %s at %s; only dead rows can be retried", asked->filter->id,
			   row->status, asked->filter->handler);
	return 0;
}

int postroom_retry(postroom_store *store, const postroom_filter *filter)
{
	struct asked asked = { .err = &store->err, .filter = filter };
	struct checked checked;
	int64_t count = 0;
	int status = check_one(store, filter, &checked);

	if (filter->table == POSTROOM_INBOX && !filter->handler)
		return pr_err_set(&store->err, POSTROOM_INVALID, "inbox retry: handler is missing");
	if (status < 0)
		return status;
	if (checked.nothing)
		return refuse_id(store, filter);
	status = store->ops->retry(store, &checked.filter, 1, &count, &store->err);
	if (status < 0 || count == 1)
		return status;
	status = store->ops->list(store, &checked.filter, ALL_ROWS, refuse_state, &asked,
				  &store->err);
	if (status < 0 || store->err.status < 0)
		return store->err.status;
	return refuse_id(store, filter);
}

int postroom_retry_some(postroom_store *store, const postroom_filter *filter, int32_t limit,
			int64_t *ret)
{
	struct checked checked;
	int status = check(store, filter, &checked);

	if (status < 0)
		return status;
	*ret = 0;
	if (checked.nothing)
		return POSTROOM_OK;
	return store->ops->retry(store, &checked.filter, limit, ret, &store->err);
}

int postroom_purge_some(postroom_store *store, const postroom_filter *filter, int32_t limit,
			int64_t *ret)
{
	struct checked checked;
	int status = check(store, filter, &checked);

	if (status < 0)
		return status;
	if (!pr_filter_is(filter, "dead") && !pr_filter_is(filter, pr_filter_table(filter)->done))
		return pr_err_set(&store->err, POSTROOM_INVALID, "only %s or dead %s can be purged",
				  pr_filter_table(filter)->done,
				  filter->table == POSTROOM_INBOX ? "rows" : "messages");
	*ret = 0;
	if (checked.nothing)
		return POSTROOM_OK;
	return store->ops->purge(store,
				 &(struct pr_purge){ .filter = &checked.filter, .limit = limit },
				 ret, &store->err);
}

int postroom_stats(postroom_store *store, const postroom_filter *filter, postroom_counts *ret,
		   postroom_topic_fn fn, void *context)
{
	struct checked checked;
	int status = check(store, filter ? filter : POSTROOM_FILTER(0), &checked);

	if (status < 0)
		return status;
	*ret = (postroom_counts){ .oldest_age_us = -1 };
	if (checked.nothing)
		return POSTROOM_OK;
	return store->ops->stats(store, &checked.filter, ret, fn, context, &store->err);
}

int postroom_groups(postroom_store *store, const postroom_filter *filter, int32_t limit,
		    postroom_group_fn fn, void *context, int *ret_capped)
{
	struct checked checked;
	int status = check(store, filter, &checked);
	int ignored;

	if (status < 0)
		return status;
	if (filter->status && !pr_filter_is(filter, "dead"))
		return pr_err_set(&store->err, POSTROOM_INVALID,
				  "only dead rows are grouped by their cause");
	if (!ret_capped)
		ret_capped = &ignored;
	*ret_capped = 0;
	if (checked.nothing)
		return POSTROOM_OK;
	return store->ops->groups(store, &checked.filter,
				  &(struct pr_grouping){ limit, fn, context, ret_capped },
				  &store->err);
}

int postroom_attempts(postroom_store *store, const postroom_filter *filter, postroom_attempt_fn fn,
		      void *context)
{
	struct checked checked;
	int status = check_one(store, filter, &checked);

	if (status >= 0 && filter->table == POSTROOM_INBOX && !filter->handler)
		return pr_err_set(&store->err, POSTROOM_INVALID, "attempts: handler is missing");
	if (status < 0 || checked.nothing)
		return status;
	return pr_store_attempts(store, &checked.filter, fn, context, &store->err);
}
