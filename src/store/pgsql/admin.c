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
#include "store/pgsql/pgsql.h"

#include <stdlib.h>
#include <string.h>

/* Messages held behind the changed rows become claimable. If this fails, a relay's sweep does it. */
static int unblock_others(struct pgsql_store *store, const struct pr_table *table)
{
	struct pr_err ignored;

	pr_pgsql_free_stranded(store, table, false, &ignored);
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
	pr_query_put(query, inbox ? "ctid AS place" : "id AS place");
	pr_query_put(query, ", seq FROM {schema}{table} WHERE status = 'dead'");
	pr_query_filter(query, filter, pr_pgsql_words(filter), "updated_at");
	pr_query_number(query,
			inbox ? " ORDER BY seq LIMIT @::int FOR UPDATE SKIP LOCKED), " :
				" ORDER BY id LIMIT @::int FOR UPDATE SKIP LOCKED), ",
			limit);
	pr_query_put(query,
		     "numbered AS MATERIALIZED (SELECT place, nextval('{schema}{table}_seq_seq') AS seq "
		     "FROM (SELECT * FROM dead ORDER BY seq) AS dead) "
		     "UPDATE {schema}{table} AS t SET seq = numbered.seq, status = 'pending', "
		     "attempts = 0, next_attempt_at = clock_timestamp(), "
		     "updated_at = clock_timestamp(), apart = ");
	pr_query_put(query, inbox ? "1 FROM numbered WHERE t.ctid = numbered.place" :
				    "0 FROM numbered WHERE t.id = ANY (ARRAY[numbered.place])");
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

static int purge_old(struct pgsql_store *store, const struct old *old,
		     const postroom_filter *filter, int32_t limit, bool alone, int64_t *ret,
		     struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	bool inbox = filter->table == POSTROOM_INBOX;

	pr_query_text(&query, PG_ALONE("@"), alone ? "t" : "f");
	pr_query_put(&query, "old AS MATERIALIZED (SELECT ctid FROM {schema}");
	pr_query_put(&query, old->table);
	pr_query_put(&query, " WHERE (SELECT mine FROM turn) AND ");
	pr_query_put(&query, old->condition);
	pr_query_filter(&query, filter, old == &history ? &pr_pgsql_history_words :
							   pr_pgsql_words(filter),
			old->since);
	pr_query_put(&query, " ORDER BY ");
	pr_query_put(&query, old->order);
	pr_query_number(&query, " LIMIT @::int FOR UPDATE SKIP LOCKED), ", limit);
	pr_query_put(&query, "gone AS (DELETE FROM {schema}");
	pr_query_put(&query, old->table);
	pr_query_put(&query, " WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING ");
	/* Only rows with more than one claim, or dead ones, can have a history of failures. */
	pr_query_put(&query, inbox ? "handler_name AS handler, id, claims" :
				     "'' AS handler, id::text AS id, claims");
	pr_query_put(&query,
		     "), forgotten AS (DELETE FROM {schema}postroom_attempts AS a "
		     "WHERE a.ctid = ANY (ARRAY(SELECT b.place FROM gone AS g CROSS JOIN LATERAL "
		     "(SELECT b.ctid AS place FROM {schema}postroom_attempts AS b "
		     "WHERE b.handler_name = g.handler AND b.id = g.id OFFSET 0) AS b "
		     "WHERE g.claims > 0))) SELECT count(*) FROM gone");
	result = pr_pgsql_ask(store, pr_filter_table(filter), &query,
			      inbox ? "purging the inbox" : "purging messages", err);
	if (!result)
		return err->status;
	*ret = pr_pgsql_number_at(result, 0, 0);
	return POSTROOM_OK;
}

int pr_pgsql_purge(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		   bool alone, int64_t *ret, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	bool dead = pr_filter_is(filter, "dead"), inbox = filter->table == POSTROOM_INBOX;
	const struct old *old = inbox ? (dead ? &dead_rows : &completed_rows) :
				dead  ? &dead_messages :
					&delivered_messages;
	int64_t more = 0;
	int status = pr_pgsql_force_index_scans(store, err);

	if (status >= 0)
		status = purge_old(store, old, filter, limit, alone, ret, err);
	if (status < 0)
		return status;
	if (dead)
		return *ret > 0 ? unblock_others(store, pr_filter_table(filter)) : POSTROOM_OK;
	if (inbox || *ret == limit)
		return POSTROOM_OK;
	status = purge_old(store, &history, filter, limit - (int32_t)*ret, alone, &more, err);
	if (status >= 0)
		*ret += more;
	/* Rows of the first table stay deleted; the next call continues with the second. */
	return *ret > 0 ? POSTROOM_OK : status;
}

/* A key is known as long as its message is there, however old. */
#define FORGET                                                                                     \
	PG_ALONE("@") "old AS MATERIALIZED (SELECT ctid FROM {schema}postroom_dedupe AS t "        \
	"WHERE (SELECT mine FROM turn) "                                                           \
	"AND (SELECT true FROM {schema}postroom_outbox AS o WHERE o.namespace = t.namespace "      \
	"AND o.topic = t.topic AND o.dedupe_key = t.dedupe_key LIMIT 1) IS NULL"

int pr_pgsql_purge_dedupe_keys(struct postroom_store *base, int64_t older_than_ms, int32_t limit, bool alone,
		    int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	int status = pr_pgsql_force_index_scans(pgsql_store(base), err);

	if (status < 0)
		return status;
	pr_query_text(&query, FORGET, alone ? "t" : "f");
	pr_query_number(&query, " AND created_at <= " PG_BEFORE("@"), older_than_ms);
	pr_query_number(&query,
			" ORDER BY created_at LIMIT @::int FOR UPDATE SKIP LOCKED) "
			"DELETE FROM {schema}postroom_dedupe "
			"WHERE ctid = ANY (ARRAY(SELECT ctid FROM old))",
			limit);
	result = pr_pgsql_ask(pgsql_store(base), NULL, &query, "forgetting dedupe keys", err);
	if (!result)
		return err->status;
	*ret = atoll(PQcmdTuples(result));
	return POSTROOM_OK;
}

/*
 * A delayed message that was never tried is not old (TRAPS 34); a delayed one that is due is as old
 * as its due time.
 */
#define COUNTS                                                                                     \
	"count(*) FILTER (WHERE status = 'pending'), "                                             \
	"count(*) FILTER (WHERE status IN ('processing', 'active')), "                             \
	"count(*) FILTER (WHERE status = 'pending' AND attempts > 0), "                            \
	"count(*) FILTER (WHERE status IN ('delivered', 'completed')), "                           \
	"count(*) FILTER (WHERE status = 'dead'), "                                                \
	PG_TIME("clock_timestamp()") ", "                                                          \
	PG_TIME("min(CASE WHEN status IN ('processing', 'active') "                                \
		"OR (status = 'pending' AND claims > 0) "                                          \
		"THEN created_at WHEN status = 'pending' AND next_attempt_at <= "                  \
		"clock_timestamp() THEN greatest(created_at, next_attempt_at) END)") " "

int pr_pgsql_stats(struct postroom_store *base, const postroom_filter *filter, postroom_counts *ret,
		   postroom_topic_fn fn, void *context, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	bool inbox = filter->table == POSTROOM_INBOX;
	postroom_counts total = { .oldest_age_us = -1 };

	pr_query_put(&query, inbox ? "SELECT NULL, handler_name, " COUNTS
				     "FROM {schema}postroom_inbox WHERE " :
				     "SELECT namespace, topic, " COUNTS
				     "FROM {schema}postroom_messages WHERE ");
	pr_query_put(&query, pr_pgsql_condition(filter->status));
	pr_query_put(&query, "true");
	pr_query_filter(&query, filter, pr_pgsql_words(filter), "updated_at");
	pr_query_put(&query, " GROUP BY 1, 2 ORDER BY 1, 2");
	result = pr_pgsql_ask(pgsql_store(base), NULL, &query,
			      inbox ? "counting the inbox" : "counting messages", err);
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
