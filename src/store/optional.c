/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that a store may omit, with their defaults. */
#include "store/store.h"

int pr_store_unrouted(struct postroom_store *store, const struct pr_table *table,
		      const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
		      struct pr_err *err)
{
	if (store->ops->unrouted)
		return store->ops->unrouted(store, table, scope, limit, ret, err);
	*ret = (struct pr_unrouted){ 0 };
	return POSTROOM_OK;
}

int pr_store_check_statement(struct postroom_store *store, const char *statement,
			     struct pr_err *err)
{
	if (store->ops->check_statement)
		return store->ops->check_statement(store, statement, err);
	return POSTROOM_OK;
}

int pr_store_attempts(struct postroom_store *store, const postroom_filter *filter,
		      postroom_attempt_fn fn, void *context, struct pr_err *err)
{
	if (store->ops->attempts)
		return store->ops->attempts(store, filter, fn, context, err);
	return POSTROOM_OK;
}

int pr_store_leases(struct postroom_store *store, pr_lease_fn fn, void *context, struct pr_err *err)
{
	if (store->ops->leases)
		return store->ops->leases(store, fn, context, err);
	return POSTROOM_OK;
}

int pr_store_lease_kind(struct postroom_store *store, const enum pr_lease_kind *want,
			enum pr_lease_kind *ret, struct pr_err *err)
{
	if (store->ops->lease_kind)
		return store->ops->lease_kind(store, want, ret, err);
	if (want && *want != PR_LEASE_ROW)
		return pr_err_set(
			err, POSTROOM_INVALID,
			"messages of this database are always leased by row; only PostgreSQL "
			"has lanes, because SQLite has one writer at a time");
	*ret = PR_LEASE_ROW;
	return POSTROOM_OK;
}

int pr_store_record_sources(struct postroom_store *store, const char *handler, int64_t period_ms,
			    const struct pr_source_position *entries, size_t count,
			    struct pr_err *err)
{
	if (store->ops->record_sources)
		return store->ops->record_sources(store, handler, period_ms, entries, count, err);
	return POSTROOM_OK;
}

int pr_store_delete_sources(struct postroom_store *store, const char *handler, struct pr_err *err)
{
	return pr_store_record_sources(store, handler, 0, NULL, 0, err);
}

int pr_store_read_sources(struct postroom_store *store, const char *handler, pr_source_fn fn,
			  void *context, int64_t *ret_us, struct pr_err *err)
{
	if (store->ops->read_sources)
		return store->ops->read_sources(store, handler, fn, context, ret_us, err);
	*ret_us = 0;
	return POSTROOM_OK;
}
