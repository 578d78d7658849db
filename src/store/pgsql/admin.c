/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes by operators (X1, X2): retry, purge; and exact statistics.
 *
 * 1. Retry and purge change only rows in the states that they are for, checked in
 *    the statement that changes the row.
 * 2. Each call is one short transaction that skips rows locked by others; large
 *    jobs call it repeatedly.
 * 3. The history of failed attempts leaves with its row, in the same statement.
 */
#include "base/time.h"
#include "store/pgsql/statements.h"

#include <stdlib.h>
#include <string.h>

/* Messages held behind the changed rows become claimable. If this fails, a relay's sweep does it. */
static int unblock_others(struct pgsql_store *store, const struct pr_table *table)
{
	struct pr_err ignored;

	pr_pgsql_unblock_stranded(store, table, false, &ignored);
	return POSTROOM_OK;
}

/*
 * Found by the index of dead rows. Within a step those of one key stay in the order they had; across
 * steps, too, unless they were dead before.
 */
static void put_retry(struct pr_query *query, const postroom_filter *filter, int32_t limit)
{
	bool inbox = filter->table == POSTROOM_INBOX;

	pr_query_put(query, "WITH dead AS MATERIALIZED (SELECT ");
	pr_query_put(query, inbox ? "ctid AS target" : "id AS target");
	pr_query_put(query, ", seq FROM {schema}{table} WHERE status = 'dead'");
	pr_query_filter(query, filter, pr_pgsql_words(filter), "updated_at");
	pr_query_number(query,
			inbox ? " ORDER BY seq LIMIT @::int FOR UPDATE SKIP LOCKED), " :
				" ORDER BY id LIMIT @::int FOR UPDATE SKIP LOCKED), ",
			limit);
	pr_query_put(query,
		     "numbered AS MATERIALIZED (SELECT target, nextval('{schema}{table}_seq_seq') AS seq "
		     "FROM (SELECT * FROM dead ORDER BY seq) AS dead) "
		     "UPDATE {schema}{table} AS t SET seq = numbered.seq, status = 'pending', "
		     "attempts = 0, next_attempt_at = clock_timestamp(), "
		     "updated_at = clock_timestamp(), state = ");
	pr_query_put(query, inbox ? "'scheduled' FROM numbered WHERE t.ctid = numbered.target" :
				    "'ready' FROM numbered WHERE t.id = ANY (ARRAY[numbered.target])");
}

int pr_pgsql_retry(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		   int64_t *ret, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	const struct pr_table *table = pr_filter_table(filter);
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	int status = pr_pgsql_force_index_scans(store, err);

	if (status < 0)
		return status;
	put_retry(&query, filter, limit);
	result = pr_pgsql_ask(store, table, &query, "retrying messages", err);
	if (!result)
		return err->status;
	*ret = atoll(PQcmdTuples(result));
	return *ret > 0 ? unblock_others(store, table) : POSTROOM_OK;
}

/* A source of rows to purge: a table, the state's index, and the column of its age. */
struct old {
	const char *table, *condition, *since, *order;
};

static const struct old dead_messages = { "postroom_outbox", "status = 'dead'", "updated_at", "id" };
static const struct old delivered_messages = { "postroom_outbox", "status = 'delivered'",
					       "delivered_at", "delivered_at" };
static const struct old history = { "postroom_history", "true", "delivered_at", "delivered_at" };
static const struct old dead_rows = { "postroom_inbox", "status = 'dead'", "updated_at", "seq" };
static const struct old completed_rows = { "postroom_inbox", "status = 'completed'", "updated_at",
					   "updated_at" };

static int purge_old(struct pgsql_store *store, const struct old *old, const struct pr_purge *purge,
		     int64_t *ret, struct pr_err *err)
{
	const postroom_filter *filter = purge->filter;
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	bool inbox = filter->table == POSTROOM_INBOX;

	/* Of many relays one purges at a time: the others skip it while the lock is held. */
	pr_query_text(&query,
		      "WITH lock AS MATERIALIZED (SELECT CASE WHEN @::boolean "
		      "THEN pg_try_advisory_xact_lock(1886351221) ELSE true END AS granted), ",
		      purge->exclusive ? "t" : "f");
	pr_query_put(&query, "old AS MATERIALIZED (SELECT ctid FROM {schema}");
	pr_query_put(&query, old->table);
	pr_query_put(&query, " WHERE (SELECT granted FROM lock) AND ");
	pr_query_put(&query, old->condition);
	pr_query_filter(&query, filter, old == &history ? &pr_pgsql_history_words :
							   pr_pgsql_words(filter),
			old->since);
	pr_query_put(&query, " ORDER BY ");
	pr_query_put(&query, old->order);
	pr_query_number(&query, " LIMIT @::int FOR UPDATE SKIP LOCKED), ", purge->limit);
	pr_query_put(&query, "gone AS (DELETE FROM {schema}");
	pr_query_put(&query, old->table);
	pr_query_put(&query, " WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING ");
	/* Only rows with more than one claim, or dead ones, can have a history of failures. */
	pr_query_put(&query, inbox ? "handler_name AS handler, id, claims" :
				     "'' AS handler, id::text AS id, claims");
	pr_query_put(&query,
		     "), forgotten AS (DELETE FROM {schema}postroom_attempts AS a "
		     "WHERE a.ctid = ANY (ARRAY(SELECT b.row_ctid FROM gone AS g CROSS JOIN LATERAL "
		     "(SELECT b.ctid AS row_ctid FROM {schema}postroom_attempts AS b "
		     "WHERE b.handler_name = g.handler AND b.id = g.id OFFSET 0) AS b "
		     "WHERE g.claims > 0))) SELECT count(*) FROM gone");
	result = pr_pgsql_ask(store, pr_filter_table(filter), &query,
			      inbox ? "purging the inbox" : "purging messages", err);
	if (!result)
		return err->status;
	*ret = pr_pgsql_number_at(result, 0, 0);
	return POSTROOM_OK;
}

static int purge_rows(struct pgsql_store *store, const struct pr_purge *purge, int64_t *ret,
		      struct pr_err *err)
{
	const postroom_filter *filter = purge->filter;
	struct pr_purge rest = *purge;
	bool dead = pr_filter_is(filter, "dead"), inbox = filter->table == POSTROOM_INBOX;
	const struct old *old = inbox ? (dead ? &dead_rows : &completed_rows) :
				dead  ? &dead_messages :
					&delivered_messages;
	int64_t more = 0;
	int status = purge_old(store, old, purge, ret, err);

	if (status < 0)
		return status;
	if (dead)
		return *ret > 0 ? unblock_others(store, pr_filter_table(filter)) : POSTROOM_OK;
	if (inbox || *ret == purge->limit)
		return POSTROOM_OK;
	rest.limit -= (int32_t)*ret;
	status = purge_old(store, &history, &rest, &more, err);
	if (status >= 0)
		*ret += more;
	/* Rows of the first table stay deleted; the next call continues with the second. */
	return *ret > 0 ? POSTROOM_OK : status;
}

static int purge_dedupe_keys(struct pgsql_store *store, const struct pr_purge *purge, int64_t *ret,
			     struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_purge_dedupe_keys(&params, purge->exclusive, purge->filter->older_than_ms,
				      purge->limit);
	result = pr_sql_run(store, &pr_sql_purge_dedupe_keys, &params, err);
	if (!result)
		return err->status;
	*ret = atoll(PQcmdTuples(result));
	return POSTROOM_OK;
}

int pr_pgsql_purge(struct postroom_store *base, const struct pr_purge *purge, int64_t *ret,
		   struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int status = pr_pgsql_force_index_scans(store, err);

	if (status < 0)
		return status;
	switch (purge->of) {
	case PR_PURGE_DEDUPE_KEYS:
		return purge_dedupe_keys(store, purge, ret, err);
	case PR_PURGE_ATTEMPTS:
		return pr_pgsql_purge_attempts(store, pr_filter_table(purge->filter), purge->limit,
					       ret, err);
	default:
		return purge_rows(store, purge, ret, err);
	}
}

int pr_pgsql_stats(struct postroom_store *base, const postroom_filter *filter, postroom_counts *ret,
		   postroom_topic_fn fn, void *context, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	const struct pgsql_filter with = { .filter = filter,
					   .words = pr_pgsql_words(filter),
					   .with_status = true };
	bool inbox = filter->table == POSTROOM_INBOX;
	postroom_counts total = { .oldest_age_us = -1 };

	result = pr_sql_run_filtered(pgsql_store(base),
				     inbox ? &pr_sql_stats_inbox : &pr_sql_stats_outbox, &params,
				     &with, err);
	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		postroom_counts topic = {
			.pending = pr_pgsql_number_at(result, row, 2),
			.processing = pr_pgsql_number_at(result, row, 3),
			.failed_pending = pr_pgsql_number_at(result, row, 4),
			.delivered = pr_pgsql_number_at(result, row, 5),
			.dead = pr_pgsql_number_at(result, row, 6),
			.oldest_age_us = -1,
		};

		if (!PQgetisnull(result, row, 8))
			topic.oldest_age_us = pr_pgsql_number_at(result, row, 7) -
					      pr_pgsql_number_at(result, row, 8);
		pr_counts_add(&total, &topic);
		if (fn)
			fn(context, pr_pgsql_text_at(result, row, 0), PQgetvalue(result, row, 1),
			   &topic);
	}
	*ret = total;
	return POSTROOM_OK;
}

int pr_pgsql_withdraw(struct pgsql_store *store, const char *ids, struct pr_buf *ret_ids,
		      struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_sql_bind_withdraw(&params, ids);
	result = pr_sql_run(store, &pr_sql_withdraw, &params, err);
	if (!result)
		return err->status;
	pr_buf_puts(ret_ids, PQgetvalue(result, 0, 0));
	return ret_ids->failed ? pr_err_nomem(err) : POSTROOM_OK;
}
