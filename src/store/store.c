/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the store for a URL, and implements the public functions over any store. */
#include "store/store.h"

#include "base/text.h"
#include "store/schema.h"

#include <stdlib.h>
#include <string.h>

#define LIBRARY_BUSY_WAIT_MS 5000

/* A URL without a scheme is a path, and so SQLite's, which comes first where it is built in. */
const struct pr_store_entry pr_stores[] = {
#ifdef PR_WITH_SQLITE
	{ &pr_store_sqlite, pr_schema_sqlite },
#endif
#ifdef PR_WITH_PGSQL
	{ &pr_store_pgsql, pr_schema_pgsql },
#endif
	{ NULL, NULL }
};

const struct pr_store_ops *pr_store_find(const char *url)
{
	size_t len = strcspn(url, ":/");

	if (url[len] != ':')
		return pr_stores[0].ops;
	for (const struct pr_store_entry *entry = pr_stores; entry->ops; entry++) {
		for (const char *const *scheme = entry->ops->schemes; *scheme; scheme++) {
			if (strlen(*scheme) == len && strncmp(url, *scheme, len) == 0)
				return entry->ops;
		}
	}
	return NULL;
}

int pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
		  struct pr_err *err)
{
	const struct pr_store_ops *ops = pr_store_find(config->url);
	int status;

	if (!ops)
		return pr_err_set(
			err, POSTROOM_INVALID,
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
	const struct pr_store_ops *ops = pr_store_find(url);

	return ops && ops->embedded;
}

int pr_store_ready(struct postroom_store *store, struct pr_err *err)
{
	if (store->ops->embedded)
		return store->ops->migrate(store, NULL, NULL, err);
	return store->ops->check_schema(store, PR_SCHEMA_COMPLETE, err);
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

int pr_store_settle(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_settle *settle, struct pr_err *err)
{
	return store->ops->settle_and_claim(store, table, settle, NULL, NULL, err);
}

int pr_store_claim(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err)
{
	return store->ops->settle_and_claim(store, table, NULL, claim, batch, err);
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

int pr_store_load(struct postroom_store *store, const struct pr_content_load *loading,
		  postroom_delivery *item, struct pr_err *err)
{
	int status = store->ops->load(store, loading->table, item, loading->most, loading->content,
				      err);

	item->loaded = status >= 0;
	switch (status) {
	case POSTROOM_LEASE_LOST:
		item->settled = POSTROOM_LEASE_LOST;
		return POSTROOM_OK;
	case POSTROOM_NOMEM:
		pr_err_set(err, POSTROOM_NOMEM, "there is no memory to receive the message");
		break;
	case POSTROOM_INVALID:
		break;
	default:
		return status;
	}
	pr_verdict_set(item, POSTROOM_FAILED, loading->reasons, loading->policy, err->text,
		       strlen(err->text));
	return POSTROOM_OK;
}

static bool share_key(const postroom_delivery *a, const postroom_delivery *b)
{
	return a->key && b->key && !a->unordered && strcmp(a->key, b->key) == 0 &&
	       strcmp(a->topic, b->topic) == 0 && strcmp(a->ns, b->ns) == 0;
}

/* Is it behind one of its key that the batch does not keep? */
static bool is_behind(const postroom_delivery *item, const postroom_delivery *dropped, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (share_key(item, &dropped[i]))
			return true;
	}
	return false;
}

/*
 * A batch has its content when the caller sees it. Of large messages it keeps as many as fit, and
 * always one. The others are released, with those behind them; one that cannot be received has failed.
 */
static int load_batch(postroom_store *store, const struct pr_table *table, size_t max_bytes,
		      struct postroom_batch *batch, struct pr_err *err)
{
	const struct pr_content_load loading = { .table = table,
						 .policy = &batch->policy,
						 .most = SIZE_MAX,
						 .content = &batch->arena,
						 .reasons = &batch->arena };
	postroom_delivery *dropped = NULL;
	size_t kept = 0, loaded = 0, count = 0;
	int status = POSTROOM_OK;

	for (size_t i = 0; i < batch->count && status >= 0; i++) {
		postroom_delivery *item = &batch->items[i];

		if (item->withheld && (loaded == 0 || loaded + item->withheld <= max_bytes)) {
			loaded += item->withheld;
			status = pr_store_load(store, &loading, item, err);
		}
		if (item->withheld && !dropped)
			dropped = pr_arena_alloc(&batch->arena, batch->count * sizeof(*dropped));
		if (item->withheld && !dropped)
			status = pr_err_nomem(err);
		else if (item->withheld || is_behind(item, dropped, count))
			dropped[count++] = *item;
		else
			batch->items[kept++] = *item;
	}
	if (status < 0)
		return status;
	batch->count = kept;
	batch->unloaded = count;
	if (count > 0)
		status = pr_store_settle(
			store, table, &(struct pr_settle){ dropped, count, &batch->policy }, err);
	return status == POSTROOM_LEASE_LOST ? POSTROOM_OK : status;
}

int pr_store_claim_new(postroom_store *store, const struct pr_table *table,
		       const postroom_claim_options *options, bool unordered, postroom_batch **ret)
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
		.reclaim_expired = true,
		.block = batch->policy.block,
		.unordered = unordered,
	};
	status = pr_store_claim(store, table, &claim, batch, &store->err);
	if (status >= 0)
		status = load_batch(store, table, claim.max_bytes, batch, &store->err);
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
	return pr_store_claim_new(store, &pr_table_outbox, options, false, ret);
}

size_t postroom_batch_count(const postroom_batch *batch)
{
	return batch->count;
}

postroom_delivery *postroom_batch_item(postroom_batch *batch, size_t index)
{
	return index < batch->count ? &batch->items[index] : NULL;
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
	return pr_store_settle(store, &pr_table_outbox,
			       &(struct pr_settle){ items, count, &batch->policy }, &store->err);
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

int postroom_sweep(postroom_store *store, int32_t max_attempts, int64_t *ret_dead)
{
	enum { AT_ONCE = 500 };
	struct pr_claim claim = { .max_attempts = max_attempts,
				  .limit = AT_ONCE,
				  .max_bytes = PR_BATCH_BYTES };
	struct postroom_batch batch = { 0 };
	int64_t dead_letters = 0;
	int status;

	pr_err_clear(&store->err);
	do {
		pr_batch_reset(&batch);
		status = store->ops->sweep(store, &pr_table_outbox, &claim, &batch, &store->err);
		dead_letters += (int64_t)batch.dead_letter_count;
	} while (status >= 0 && batch.dead_letter_count > 0);
	pr_batch_release(&batch);
	if (status < 0 && dead_letters == 0)
		return status;
	/* The dead letters so far are committed; the next sweep continues with the rest. */
	pr_err_clear(&store->err);
	*ret_dead = dead_letters;
	return POSTROOM_OK;
}

int pr_store_lease_lost(size_t lost, size_t count, struct pr_err *err)
{
	return pr_err_set(
		err, POSTROOM_LEASE_LOST,
		"the lease on %zu of %zu messages was lost; other workers may have claimed them",
		lost, count);
}
