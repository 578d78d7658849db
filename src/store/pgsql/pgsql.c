/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL store: one connection and its statements.
 *
 * 1. Names carry their schema: nothing depends on a session's search_path.
 * 2. Behind a pooler, no statement is prepared and the store does not listen.
 * 3. No message contains the password.
 */
#include "store/pgsql/named.h"

#include "base/url.h"

#include <stdlib.h>
#include <string.h>

static const char *const schemes[] = { "postgres", "postgresql", NULL };

static void close_store(struct postroom_store *base)
{
	struct pgsql_store *store = pgsql_store(base);

	if (store->box)
		store->box->ops->free(store->box);
	PQfinish(store->conn);
	for (size_t i = 0; store->prepared && i < pr_sql_count; i++)
		free(store->prepared[i].text);
	free(store->prepared);
	free(store->statement);
	for (size_t i = 0; i < sizeof(store->arrays) / sizeof(store->arrays[0]); i++)
		pr_buf_release(&store->arrays[i]);
	pr_buf_release(&store->lanes);
	pr_buf_release(&store->holders);
	pr_buf_release(&store->passing_holders);
	pr_buf_release(&store->passed);
	pr_buf_release(&store->head_snapshot);
	pr_buf_release(&store->low_water);
	pr_buf_release(&store->scope);
	pr_buf_release(&store->scope_low_water);
	pr_buf_release(&store->purged_handler);
	pr_buf_release(&store->purged_id);
	free(store->url);
	free(store);
}

static int open_store(const struct pr_store_config *config, struct postroom_store **ret,
		      struct pr_err *err)
{
	struct pgsql_store *store = calloc(1, sizeof(*store));
	int status;

	if (!store)
		return pr_err_nomem(err);
	store->answer_ms = config->answer_ms;
	store->statement_ms = config->statement_ms;
	store->base.until_us = config->until_us;
	store->stop = config->stop;
	store->watchdog = config->watchdog;
	store->rules = config->rules;
	pr_url_redact(config->url, store->shown, sizeof(store->shown));
	store->url = strdup(config->url);
	store->prepared = calloc(pr_sql_count, sizeof(*store->prepared));
	status = store->url && store->prepared ? pr_pgsql_connect(store, config, err) :
					      pr_err_nomem(err);
	if (status < 0) {
		close_store(&store->base);
		return status;
	}
	*ret = &store->base;
	return POSTROOM_OK;
}

static int begin(struct postroom_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = pr_pgsql_query(pgsql_store(store), "BEGIN", NULL,
							    "beginning to write", err);

	return result ? POSTROOM_OK : err->status;
}

/* COMMIT of a transaction that has failed is answered with ROLLBACK, and no error. */
static int commit(struct postroom_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result =
		pr_pgsql_query(pgsql_store(store), "COMMIT", NULL, "committing", err);

	if (!result)
		return err->status;
	if (strcmp(PQcmdStatus(result), "COMMIT") != 0)
		return pr_err_set(err, POSTROOM_TX_ABORTED,
				  "committing: the transaction had failed and was rolled back");
	return POSTROOM_OK;
}

void pr_pgsql_rollback(struct pgsql_store *store)
{
	PQclear(pr_pgsql_query(store, "ROLLBACK", NULL, "rolling back", NULL));
}

static int end(struct postroom_store *store, int status, struct pr_err *err)
{
	int committed = status >= 0 ? commit(store, err) : status;

	if (committed >= 0)
		return status;
	pr_pgsql_rollback(pgsql_store(store));
	return committed;
}

const struct pr_store_ops pr_store_pgsql = {
	.schemes = schemes,
	.open = open_store,
	.close = close_store,
	.migrate = pr_pgsql_migrate,
	.migrations = pr_pgsql_migrations,
	.check_schema = pr_pgsql_check_schema,
	.begin = begin,
	.end = end,
	.box = pr_pgsql_box,
	.settle_and_claim = pr_pgsql_settle_and_claim,
	.load = pr_pgsql_load,
	.renew = pr_pgsql_renew,
	.sweep = pr_pgsql_sweep,
	.wait = pr_pgsql_wait,
	.unfinished = pr_pgsql_unfinished,
	.inbox_insert = pr_pgsql_inbox_insert,
	.apply = pr_pgsql_apply,
	.progress = pr_pgsql_progress,
	.list = pr_pgsql_list,
	.count = pr_pgsql_count,
	.retry = pr_pgsql_retry,
	.stats = pr_pgsql_stats,
	.groups = pr_pgsql_groups,
	.collect = pr_pgsql_collect,
	.purge = pr_pgsql_purge,
	.unrouted = pr_pgsql_unrouted,
	.check_statement = pr_pgsql_check_statement,
	.attempts = pr_pgsql_attempts,
	.leases = pr_pgsql_leases,
	.lease_kind = pr_pgsql_lease_kind,
	.record_sources = pr_pgsql_record_sources,
	.read_sources = pr_pgsql_read_sources,
};
