/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of what an operator can do with the inbox, whatever the store. */
#include "store/store.h"

#include <string.h>

/* In the order of postroom_inbox_state. */
static const char *const states[] = { "pending", "active", "completed", "dead", NULL };

const char *pr_inbox_state_name(postroom_inbox_state state)
{
	return states[state];
}

postroom_inbox_state pr_inbox_state(const char *name)
{
	int i = 0;

	while (i < POSTROOM_INBOX_DEAD && strcmp(states[i], name) != 0)
		i++;
	return (postroom_inbox_state)i;
}

void pr_inbox_counts_add(postroom_inbox_counts *total, const postroom_inbox_counts *more)
{
	total->pending += more->pending;
	total->active += more->active;
	total->completed += more->completed;
	total->dead += more->dead;
}

static int check(postroom_store *store, const postroom_inbox_filter *filter)
{
	size_t i = 0;

	pr_err_clear(&store->err);
	if (filter->size != sizeof(*filter))
		return pr_err_set(&store->err, POSTROOM_INVALID,
				  "size must be sizeof(postroom_inbox_filter): use "
				  "POSTROOM_INBOX_FILTER()");
	while (filter->status && states[i] && strcmp(states[i], filter->status) != 0)
		i++;
	if (!states[i])
		return pr_err_set(&store->err, POSTROOM_INVALID,
				  "status \"%.60s\" is unknown; use pending, active, completed or "
				  "dead",
				  filter->status);
	return pr_age_check(filter->older_than_ms, &store->err);
}

int postroom_inbox_list(postroom_store *store, const postroom_inbox_filter *filter, int32_t limit,
			postroom_inbox_row_fn fn, void *context)
{
	int status = check(store, filter);

	if (status < 0)
		return status;
	return store->ops->inbox_list(store, filter, limit, fn, context, &store->err);
}

struct asked {
	struct pr_err *err;
	const char *handler;
	const char *id;
};

static int refuse_state(void *context, const postroom_inbox_row *row)
{
	const struct asked *asked = context;

	pr_err_set(asked->err, POSTROOM_NOT_FOUND,
		   "%s is %s at %s; only what is dead can be retried", asked->id, row->status,
		   asked->handler);
	return 0;
}

int postroom_inbox_retry(postroom_store *store, const char *handler, const char *id)
{
	const postroom_inbox_filter one = { .size = sizeof(one), .handler = handler, .id = id };
	struct asked asked = { .err = &store->err, .handler = handler, .id = id };
	int64_t count = 0;
	int status;

	pr_err_clear(&store->err);
	if (!handler || !id)
		return pr_err_set(&store->err, POSTROOM_INVALID, "inbox retry: %s is missing",
				  handler ? "id" : "handler");
	status = store->ops->inbox_retry(store, &one, 1, &count, &store->err);
	if (status < 0 || count == 1)
		return status;
	status = store->ops->inbox_list(store, &one, 1, refuse_state, &asked, &store->err);
	if (status < 0 || store->err.status < 0)
		return store->err.status;
	return pr_err_set(&store->err, POSTROOM_NOT_FOUND, "there is no %s at %s", id, handler);
}

int postroom_inbox_retry_some(postroom_store *store, const postroom_inbox_filter *filter,
			      int32_t limit, int64_t *ret)
{
	int status = check(store, filter);

	if (status < 0)
		return status;
	return store->ops->inbox_retry(store, filter, limit, ret, &store->err);
}

int postroom_inbox_purge_some(postroom_store *store, const postroom_inbox_filter *filter,
			      int32_t limit, int64_t *ret)
{
	int status = check(store, filter);

	if (status < 0)
		return status;
	if (!filter->status || (strcmp(filter->status, "completed") != 0 &&
				strcmp(filter->status, "dead") != 0))
		return pr_err_set(&store->err, POSTROOM_INVALID,
				  "only what is completed or dead can be purged");
	return store->ops->inbox_purge(store, filter, limit, false, ret, &store->err);
}

int postroom_inbox_stats(postroom_store *store, postroom_inbox_counts *ret,
			 postroom_inbox_handler_fn fn, void *context)
{
	pr_err_clear(&store->err);
	return store->ops->inbox_stats(store, ret, fn, context, &store->err);
}
