/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the store for a URL, and is the public face of what a store can do. */
#include "store/store.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define LIBRARY_BUSY_WAIT_MS 5000

static const struct pr_store_ops *const stores[] = {
#ifdef PR_WITH_SQLITE
	&pr_store_sqlite,
#endif
#ifdef PR_WITH_PGSQL
	&pr_store_pgsql,
#endif
};

/* A URL without a scheme is a path, and so SQLite's, which comes first where it is built in. */
static const struct pr_store_ops *find(const char *url)
{
	size_t len = strcspn(url, ":/");

	if (url[len] != ':')
		return stores[0];
	for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++) {
		for (const char *const *scheme = stores[i]->schemes; *scheme; scheme++) {
			if (strlen(*scheme) == len && strncmp(url, *scheme, len) == 0)
				return stores[i];
		}
	}
	return NULL;
}

int pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
		  struct pr_err *err)
{
	const struct pr_store_ops *ops = find(config->url);
	int status;

	if (!ops)
		return pr_err_set(err, POSTROOM_INVALID,
				  "no store for \"%.*s:\" in this build; a database is sqlite:FILE, "
				  "just FILE, or postgres://…",
				  (int)strcspn(config->url, ":"), config->url);
	status = ops->open(config, ret, err);
	if (status < 0)
		return status;
	(*ret)->ops = ops;
	pr_uuid_v4(&(*ret)->random, (*ret)->worker);
	return POSTROOM_OK;
}

bool pr_store_is_embedded(const char *url)
{
	const struct pr_store_ops *ops = find(url);

	return ops && ops->embedded;
}

int pr_store_ready(struct postroom_store *store, struct pr_err *err)
{
	if (store->ops->embedded)
		return store->ops->migrate(store, NULL, NULL, err);
	return store->ops->check_schema(store, err);
}

void pr_store_close(struct postroom_store *store)
{
	if (store)
		store->ops->close(store);
}

/* A store that could not be opened: it only has something to say. */
static void close_failed(struct postroom_store *store)
{
	free(store);
}

static const struct pr_store_ops failed_ops = { .close = close_failed };

int postroom_store_open(const char *url, postroom_store **ret)
{
	struct pr_store_config config = {
		.url = url,
		.create = true,
		.busy_wait_ms = LIBRARY_BUSY_WAIT_MS,
	};
	struct postroom_store *store = NULL;
	struct pr_err err = { 0 };
	int status = pr_store_open(&config, &store, &err);

	*ret = NULL;
	if (status >= 0)
		status = pr_store_ready(store, &err);
	if (status >= 0) {
		*ret = store;
		return status;
	}
	pr_store_close(store);
	store = calloc(1, sizeof(*store));
	if (store) {
		store->ops = &failed_ops;
		store->err = err;
		*ret = store;
	}
	return status;
}

void postroom_store_close(postroom_store *store)
{
	pr_store_close(store);
}

const char *postroom_store_errmsg(const postroom_store *store)
{
	return store ? store->err.text : "out of memory";
}

static struct pr_policy policy_of(const postroom_claim_options *options)
{
	return (struct pr_policy){
		.max_attempts = options->max_attempts ? options->max_attempts : 10,
		.base_delay_ms = options->base_delay_ms ? options->base_delay_ms : 1000,
		.max_delay_ms = options->max_delay_ms ? options->max_delay_ms : 300000,
		.backoff = options->backoff,
		.max_error_length = options->max_error_length ? options->max_error_length : 2000,
		.block = options->on_dead == POSTROOM_ON_DEAD_BLOCK,
	};
}

static int check_options(const postroom_claim_options *options, struct pr_err *err)
{
	if (options->size != sizeof(*options))
		return pr_err_set(err, POSTROOM_INVALID,
				  "claim: size must be sizeof(postroom_claim_options): use "
				  "POSTROOM_CLAIM()");
	if (options->limit < 0 || options->lease_ms < 0 || options->max_attempts < 0 ||
	    options->base_delay_ms < 0 || options->max_delay_ms < 0 ||
	    options->max_error_length < 0)
		return pr_err_set(err, POSTROOM_INVALID, "claim: no option may be negative");
	return POSTROOM_OK;
}

int pr_store_claim(postroom_store *store, const struct pr_table *table,
		   const postroom_claim_options *options, bool loose, postroom_batch **ret)
{
	struct postroom_batch *batch;
	struct pr_claim claim;
	char tenant[PR_UUID_SIZE];
	int status;

	*ret = NULL;
	pr_err_clear(&store->err);
	status = check_options(options, &store->err);
	if (status < 0)
		return status;
	if (options->tenant_id && !pr_uuid_normalize(options->tenant_id, tenant))
		return pr_err_set(&store->err, POSTROOM_INVALID, "claim: tenant_id is not a UUID");
	batch = calloc(1, sizeof(*batch));
	if (!batch)
		return pr_err_nomem(&store->err);
	batch->policy = policy_of(options);
	batch->lease_ms = options->lease_ms ? options->lease_ms : 30000;
	claim = (struct pr_claim){
		.scope = { options->ns, options->topic, options->tenant_id ? tenant : NULL },
		.limit = options->limit ? options->limit : 500,
		.max_bytes = options->max_bytes ? options->max_bytes : PR_BATCH_BYTES,
		.lease_ms = batch->lease_ms,
		.max_attempts = batch->policy.max_attempts,
		.suspects = true,
		.block = batch->policy.block,
		.loose = loose,
	};
	status = store->ops->claim(store, table, &claim, batch, &store->err);
	if (status < 0) {
		postroom_batch_free(batch);
		return status;
	}
	*ret = batch;
	return status;
}

int postroom_claim(postroom_store *store, const postroom_claim_options *options,
		   postroom_batch **ret)
{
	return pr_store_claim(store, &pr_table_outbox, options, false, ret);
}

postroom_delivery *postroom_batch_items(postroom_batch *batch, size_t *ret_count)
{
	*ret_count = batch->count;
	return batch->items;
}

void postroom_batch_free(postroom_batch *batch)
{
	if (!batch)
		return;
	pr_batch_release(batch);
	free(batch);
}

int postroom_settle(postroom_store *store, postroom_batch *batch, postroom_delivery *items,
		    size_t count)
{
	pr_err_clear(&store->err);
	return store->ops->settle(store, &pr_table_outbox, items, count, &batch->policy,
				  &store->err);
}

static int settle_all(postroom_store *store, postroom_batch *batch, postroom_delivery *items,
		      size_t count, postroom_verdict verdict, const char *reason)
{
	for (size_t i = 0; i < count; i++)
		pr_verdict_set(&items[i], verdict, &batch->arena, &batch->policy, reason,
			       reason ? strlen(reason) : 0);
	return postroom_settle(store, batch, items, count);
}

int postroom_ack(postroom_store *store, postroom_batch *batch, postroom_delivery *items,
		 size_t count)
{
	return settle_all(store, batch, items, count, POSTROOM_DELIVERED, NULL);
}

int postroom_nack(postroom_store *store, postroom_batch *batch, postroom_delivery *items,
		  size_t count, const char *reason)
{
	return settle_all(store, batch, items, count, POSTROOM_FAILED, reason);
}

int postroom_reject(postroom_store *store, postroom_batch *batch, postroom_delivery *items,
		    size_t count, const char *reason)
{
	return settle_all(store, batch, items, count, POSTROOM_REJECTED, reason);
}

int postroom_release(postroom_store *store, postroom_batch *batch, postroom_delivery *items,
		     size_t count)
{
	return settle_all(store, batch, items, count, POSTROOM_UNTRIED, NULL);
}

int postroom_renew(postroom_store *store, postroom_batch *batch, postroom_delivery *items,
		   size_t count)
{
	pr_err_clear(&store->err);
	return store->ops->renew(store, &pr_table_outbox, items, count, batch->lease_ms,
				 &store->err);
}

int postroom_sweep(postroom_store *store, int32_t max_attempts, int64_t *ret_buried)
{
	enum { AT_ONCE = 500 };
	struct pr_claim claim = { .max_attempts = max_attempts, .limit = AT_ONCE,
				  .max_bytes = PR_BATCH_BYTES };
	struct postroom_batch batch = { 0 };
	int64_t buried = 0;
	int status;

	pr_err_clear(&store->err);
	do {
		pr_batch_reset(&batch);
		status = store->ops->sweep(store, &pr_table_outbox, &claim, &batch, &store->err);
		buried += (int64_t)batch.buried_count;
	} while (status >= 0 && batch.buried_count > 0);
	pr_batch_release(&batch);
	if (status < 0 && buried == 0)
		return status;
	/* What is buried is; whoever sweeps again meets the rest. */
	pr_err_clear(&store->err);
	*ret_buried = buried;
	return POSTROOM_OK;
}

int pr_store_lease_lost(size_t lost, size_t count, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_LEASE_LOST,
			  "the lease on %zu of %zu messages was lost; they are somebody else's now",
			  lost, count);
}

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

static int check_status(const char *status, struct pr_err *err)
{
	static const char *const known[] = { "pending", "failed",    "processing",
					     "dead",	"delivered", NULL };

	for (size_t i = 0; known[i]; i++) {
		if (!status || strcmp(known[i], status) == 0)
			return POSTROOM_OK;
	}
	return pr_err_set(err, POSTROOM_INVALID,
			  "status \"%s\" is unknown; use pending, failed, processing, delivered or "
			  "dead",
			  status);
}

int pr_age_check(int64_t older_than_ms, struct pr_err *err)
{
	if (older_than_ms >= 0 && older_than_ms <= PR_AGE_MAX_MS)
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID,
			  "older_than_ms is %lld; it must be from 0 to %lld, which is 1000 years",
			  (long long)older_than_ms, (long long)PR_AGE_MAX_MS);
}

/* The filter checked, and as the tables hold it: the tenant in lower case. */
static int normalize(postroom_store *store, const postroom_filter *filter, postroom_filter *ret,
		     char tenant[PR_UUID_SIZE])
{
	pr_err_clear(&store->err);
	if (filter->size != sizeof(*filter))
		return pr_err_set(&store->err, POSTROOM_INVALID,
				  "size must be sizeof(postroom_filter): use POSTROOM_FILTER()");
	*ret = *filter;
	if (check_status(filter->status, &store->err) < 0 ||
	    pr_age_check(filter->older_than_ms, &store->err) < 0)
		return store->err.status;
	if (!filter->tenant_id)
		return POSTROOM_OK;
	if (!pr_uuid_normalize(filter->tenant_id, tenant))
		return pr_err_set(&store->err, POSTROOM_INVALID, "tenant \"%.60s\" is not a UUID",
				  filter->tenant_id);
	ret->tenant_id = tenant;
	return POSTROOM_OK;
}

int postroom_list(postroom_store *store, const postroom_filter *filter, int32_t limit,
		  postroom_row_fn fn, void *context)
{
	char tenant[PR_UUID_SIZE];
	postroom_filter checked;
	int status = normalize(store, filter, &checked, tenant);

	if (status < 0)
		return status;
	return store->ops->list(store, &checked, limit, fn, context, &store->err);
}

int postroom_show(postroom_store *store, const char *id, postroom_row_fn fn, void *context)
{
	pr_err_clear(&store->err);
	return store->ops->show(store, id, fn, context, &store->err);
}

int postroom_retry(postroom_store *store, const char *id)
{
	int64_t count;

	pr_err_clear(&store->err);
	return store->ops->retry(store, &pr_table_outbox, id, NULL, 1, &count, &store->err);
}

int postroom_retry_some(postroom_store *store, const postroom_filter *filter, int32_t limit,
			int64_t *ret)
{
	char tenant[PR_UUID_SIZE];
	postroom_filter checked;
	int status = normalize(store, filter, &checked, tenant);

	if (status < 0)
		return status;
	return store->ops->retry(store, &pr_table_outbox, NULL, &checked, limit, ret, &store->err);
}

int postroom_purge_some(postroom_store *store, const postroom_filter *filter, int32_t limit,
			int64_t *ret)
{
	char tenant[PR_UUID_SIZE];
	postroom_filter checked;
	int status = normalize(store, filter, &checked, tenant);

	if (status < 0)
		return status;
	if (!filter->status || (strcmp(filter->status, "delivered") != 0 &&
				strcmp(filter->status, "dead") != 0))
		return pr_err_set(&store->err, POSTROOM_INVALID,
				  "only delivered or dead messages can be purged");
	return store->ops->purge(store, &checked, limit, false, ret, &store->err);
}

int postroom_stats(postroom_store *store, postroom_counts *ret, postroom_topic_fn fn, void *context)
{
	pr_err_clear(&store->err);
	return store->ops->stats(store, ret, fn, context, &store->err);
}
