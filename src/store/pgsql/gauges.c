/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded figures for metrics and dashboards, and the leases of the moment.
 *
 * 1. Counts stop at the cap. They read entries of partial indexes, in the order of the index, so that
 *    a table of any size costs no more.
 * 2. Figures by topic and times of death need the rows: they cover the first SHARE-th part of the cap
 *    of each state.
 * 3. The statements share a snapshot: a message that changes its state meanwhile is counted once.
 */
#include "store/pgsql/statements.h"

#include <string.h>

#define SHARE 100
#define DOING "collecting figures"

#define OUTBOX "FROM {schema}postroom_outbox WHERE "

/*
 * Ready messages without, and with, a key; in lanes one index has both. In no
 * order: an order by an expression could not be had from the index alone.
 */
static const struct state {
	const char *index, *condition;
} unkeyed = { "postroom_outbox_unkeyed", "key IS NULL AND state = 'ready' AND status = 'pending'" },
  keyed = { "postroom_outbox_keyed", "key IS NOT NULL AND state = 'ready' AND status = 'pending'" },
  in_lanes = { "postroom_outbox_lane", "state = 'ready' AND status = 'pending'" },
  dead = { "postroom_outbox_dead", "status = 'dead'" };

struct collecting {
	struct pgsql_store *store;
	int64_t cap;
	struct pr_gauges *gauges;
	int64_t since_us, inbox_since_us; /* INT64_MAX: nothing waits */
	struct pr_err *err;
};

static void take_numbers(const PGresult *result, int64_t numbers[5])
{
	memset(numbers, 0, 5 * sizeof(*numbers));
	for (int i = 0; PQntuples(result) > 0 && i < PQnfields(result); i++)
		numbers[i] = pr_pgsql_number_at(result, 0, i);
}

/* Runs a statement whose only parameter, if any, is the cap. */
static int read_gauge(struct collecting *collecting, const struct pgsql_sql *sql,
		      int64_t numbers[5])
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	if (sql->params > 0)
		pr_pgsql_number(&params, collecting->cap);
	result = pr_sql_run(collecting->store, sql, &params, collecting->err);
	if (!result)
		return collecting->err->status;
	take_numbers(result, numbers);
	return POSTROOM_OK;
}

/* Runs sql with the cap as its only parameter, if it has one; reads up to five numbers, 0 for NULL. */
static int read_numbers(struct collecting *collecting, const char *sql, int64_t numbers[5])
{
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_query_put(&query, sql);
	if (strstr(sql, "$1"))
		query.values[query.count++].number = collecting->cap;
	result = pr_pgsql_ask(collecting->store, NULL, &query, DOING, collecting->err);
	if (!result)
		return collecting->err->status;
	take_numbers(result, numbers);
	return POSTROOM_OK;
}

/*
 * Counts a state that may have many messages, up to the cap. To skip them is faster than to count
 * them, so if vacuum has found about as many as the cap, the query skips them first.
 */
static int count_state(struct collecting *collecting, const struct state *state, int64_t *ret)
{
	PR_CLEANUP_BUF struct pr_buf hint = { 0 }, probe = { 0 }, count = { 0 };
	int64_t numbers[5];
	int status;

	pr_buf_printf(&hint,
		      "SELECT reltuples::bigint FROM pg_class "
		      "WHERE oid = to_regclass('{schema}%s')",
		      state->index);
	pr_buf_printf(&probe, "SELECT 1 " OUTBOX "%s LIMIT 1 OFFSET $1::bigint - 1",
		      state->condition);
	pr_buf_printf(&count, "SELECT count(*) FROM (SELECT " OUTBOX "%s LIMIT $1::bigint) AS c",
		      state->condition);
	if (hint.failed || probe.failed || count.failed)
		return pr_err_nomem(collecting->err);
	status = read_numbers(collecting, hint.data, numbers);
	if (status >= 0 && numbers[0] >= collecting->cap - collecting->cap / 10) {
		status = read_numbers(collecting, probe.data, numbers);
		if (status >= 0 && numbers[0] == 1) {
			*ret = collecting->cap;
			return POSTROOM_OK;
		}
	}
	if (status >= 0)
		status = read_numbers(collecting, count.data, numbers);
	if (status >= 0)
		*ret = numbers[0];
	return status;
}

static void note_since(int64_t *since_us, int64_t us)
{
	if (us > 0 && us < *since_us)
		*since_us = us;
}

/* Adds a count that stops at the cap. */
static void add(struct collecting *collecting, int64_t *to, int64_t number)
{
	collecting->gauges->capped |= number >= collecting->cap;
	*to += number;
}

static int collect_ready(struct collecting *collecting)
{
	bool lanes = collecting->store->kind == PR_LEASE_LANE;
	struct pr_gauges *gauges = collecting->gauges;
	int64_t numbers[5] = { 0 }, ready = 0, more = 0;
	int status = count_state(collecting, lanes ? &in_lanes : &unkeyed, &more);

	if (status < 0)
		return status;
	add(collecting, &ready, more);
	if (!lanes) {
		/* Beyond the cap there is nothing to count. */
		more = 0;
		if (ready < collecting->cap)
			status = count_state(collecting, &keyed, &more);
		if (status < 0)
			return status;
		add(collecting, &ready, more);
		status = read_gauge(collecting, &pr_sql_gauge_oldest_unkeyed, numbers);
		note_since(&collecting->since_us, numbers[0]);
	}
	if (status >= 0)
		status = read_gauge(collecting, lanes ? &pr_sql_gauge_oldest_in_lanes :
							&pr_sql_gauge_oldest_keyed, numbers);
	if (status < 0)
		return status;
	note_since(&collecting->since_us, numbers[0]);
	status = read_gauge(collecting, &pr_sql_gauge_in_flight, numbers);
	if (status < 0)
		return status;
	gauges->processing += numbers[0];
	ready = ready > numbers[0] ? ready - numbers[0] : 0;
	gauges->pending += ready;
	gauges->due += ready;
	return POSTROOM_OK;
}

static int64_t share_of_cap(const struct collecting *collecting)
{
	return collecting->cap / SHARE > 0 ? collecting->cap / SHARE : 1;
}

/* Since when there are dead letters, unless there are more than a share of the cap. */
static int collect_deaths(struct collecting *collecting, const struct pgsql_sql *sql,
			  int64_t count, int64_t *ret)
{
	int64_t numbers[5];
	int status;

	if (count == 0 || count > share_of_cap(collecting))
		return POSTROOM_OK;
	status = read_gauge(collecting, sql, numbers);
	if (status >= 0)
		*ret = numbers[0];
	return status;
}

static int collect_outbox(struct collecting *collecting)
{
	struct pr_gauges *gauges = collecting->gauges;
	const struct pgsql_sql *const waiting[] = { &pr_sql_gauge_scheduled, &pr_sql_gauge_held };
	int64_t numbers[5];
	int status = collect_ready(collecting);

	for (size_t i = 0; status >= 0 && i < sizeof(waiting) / sizeof(waiting[0]); i++) {
		status = read_gauge(collecting, waiting[i], numbers);
		if (status < 0)
			return status;
		add(collecting, &gauges->pending, numbers[0]);
		gauges->failed_pending += numbers[1];
		gauges->scheduled += numbers[2];
		gauges->due += numbers[3];
		note_since(&collecting->since_us, numbers[4]);
	}
	if (status >= 0)
		status = read_gauge(collecting, &pr_sql_gauge_leased, numbers);
	if (status < 0)
		return status;
	add(collecting, &gauges->processing, numbers[0]);
	note_since(&collecting->since_us, numbers[1]);
	status = count_state(collecting, &dead, &numbers[0]);
	if (status < 0)
		return status;
	add(collecting, &gauges->dead, numbers[0]);
	return collect_deaths(collecting, &pr_sql_gauge_first_death, gauges->dead,
			      &gauges->dead_since_us);
}

static int collect_inbox(struct collecting *collecting)
{
	struct pr_gauges *gauges = collecting->gauges;
	const struct {
		const struct pgsql_sql *sql;
		int64_t *to;
		bool aged;
	} parts[] = {
		{ &pr_sql_gauge_inbox_pending, &gauges->inbox_pending, true },
		{ &pr_sql_gauge_inbox_held, &gauges->inbox_pending, false },
		{ &pr_sql_gauge_inbox_active, &gauges->inbox_active, true },
		{ &pr_sql_gauge_inbox_dead, &gauges->inbox_dead, false },
	};
	int status = POSTROOM_OK;

	for (size_t i = 0; status >= 0 && i < sizeof(parts) / sizeof(parts[0]); i++) {
		int64_t numbers[5];

		status = read_gauge(collecting, parts[i].sql, numbers);
		if (status < 0)
			return status;
		add(collecting, parts[i].to, numbers[0]);
		if (parts[i].aged)
			note_since(&collecting->inbox_since_us, numbers[1]);
	}
	if (status < 0)
		return status;
	return collect_deaths(collecting, &pr_sql_gauge_inbox_first_death, gauges->inbox_dead,
			      &gauges->inbox_dead_since_us);
}

static int collect_topics(struct collecting *collecting, postroom_table table,
			  pr_topic_gauges_fn fn, void *context)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pr_gauges *gauges = collecting->gauges;
	struct pgsql_params params = { 0 };
	const struct pgsql_sql *sql;
	int64_t seen = 0;

	if (table == POSTROOM_INBOX) {
		sql = &pr_sql_gauge_handlers;
		pr_sql_bind_gauge_handlers(&params, share_of_cap(collecting), PR_GAUGES_TOPICS);
	} else if (collecting->store->kind == PR_LEASE_LANE) {
		sql = &pr_sql_gauge_topics_by_lane;
		pr_sql_bind_gauge_topics_by_lane(&params, share_of_cap(collecting),
						 PR_GAUGES_TOPICS);
	} else {
		sql = &pr_sql_gauge_topics_by_row;
		pr_sql_bind_gauge_topics_by_row(&params, share_of_cap(collecting),
						PR_GAUGES_TOPICS);
	}
	result = pr_sql_run(collecting->store, sql, &params, collecting->err);
	if (!result)
		return collecting->err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		int64_t since_us = pr_pgsql_number_at(result, row, 6);
		struct pr_topic_gauges topic = {
			.table = table,
			.ns = pr_pgsql_text_at(result, row, 0),
			.topic = pr_pgsql_text_at(result, row, 1),
			.pending = pr_pgsql_number_at(result, row, 2),
			.processing = pr_pgsql_number_at(result, row, 3),
			.failed_pending = pr_pgsql_number_at(result, row, 4),
			.dead = pr_pgsql_number_at(result, row, 5),
			.oldest_age_us =
				since_us > 0 ? pr_pgsql_number_at(result, row, 7) - since_us : -1,
		};

		seen = pr_pgsql_number_at(result, row, 8);
		fn(context, &topic);
	}
	gauges->topics_capped |= PQntuples(result) == PR_GAUGES_TOPICS;
	if (table == POSTROOM_OUTBOX)
		gauges->topics_capped |= seen < gauges->pending + gauges->dead;
	else
		gauges->topics_capped |= seen < gauges->inbox_pending + gauges->inbox_dead;
	return POSTROOM_OK;
}

static int collect_all(struct collecting *collecting, pr_topic_gauges_fn fn, void *context)
{
	int status = collect_outbox(collecting);

	if (status >= 0)
		status = collect_inbox(collecting);
	if (status >= 0 && fn)
		status = collect_topics(collecting, POSTROOM_OUTBOX, fn, context);
	if (status >= 0 && fn)
		status = collect_topics(collecting, POSTROOM_INBOX, fn, context);
	return status;
}

static int64_t age_at(int64_t now_us, int64_t since_us)
{
	if (since_us == INT64_MAX)
		return -1;
	return now_us > since_us ? now_us - since_us : 0;
}

/* Only `postroom adopt` creates the table, and a relay without the privilege to read it needs none. */
static int collect_rejects(struct collecting *collecting)
{
	int64_t numbers[5];
	int status;

	collecting->gauges->rejected = 0;
	status = read_numbers(collecting,
			      "SELECT CASE WHEN t.oid IS NULL THEN 0 "
			      "WHEN has_table_privilege(t.oid, 'SELECT') THEN 1 ELSE 2 END "
			      "FROM (SELECT to_regclass('{schema}postroom_adopt_rejects')::oid) AS t(oid)",
			      numbers);
	if (status < 0 || numbers[0] == 0)
		return status;
	collecting->gauges->rejected = -1;
	if (numbers[0] == 2)
		return status;
	status = read_numbers(collecting,
			      "SELECT count(*) FROM (SELECT FROM {schema}postroom_adopt_rejects "
			      "LIMIT $1::bigint) AS r",
			      numbers);
	if (status >= 0)
		collecting->gauges->rejected = numbers[0];
	return status;
}

int pr_pgsql_collect(struct postroom_store *base, int64_t cap, struct pr_gauges *ret,
		     pr_topic_gauges_fn fn, void *context, struct pr_err *err)
{
	struct pr_gauges gauges = { 0 };
	struct collecting collecting = { .store = pgsql_store(base), .cap = cap, .gauges = &gauges,
					 .since_us = INT64_MAX, .inbox_since_us = INT64_MAX,
					 .err = err };
	struct pr_err ignored = { 0 };
	PGresult *begun;
	int64_t numbers[5];
	int status = pr_pgsql_force_index_scans(collecting.store, err);

	if (status >= 0)
		status = pr_pgsql_load_lease_kind(collecting.store, err);
	if (status < 0)
		return status;
	begun = pr_pgsql_query(collecting.store, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
			       NULL, DOING, err);
	if (!begun)
		return err->status;
	PQclear(begun);
	status = collect_all(&collecting, fn, context);
	if (status >= 0)
		status = read_gauge(&collecting, &pr_sql_table_size, numbers);
	if (status >= 0) {
		gauges.table_bytes = numbers[0];
		gauges.dead_tuples = numbers[1];
		gauges.oldest_age_us = age_at(numbers[2], collecting.since_us);
		gauges.inbox_oldest_age_us = age_at(numbers[2], collecting.inbox_since_us);
		status = collect_rejects(&collecting);
	}
	PQclear(pr_pgsql_query(collecting.store, "ROLLBACK", NULL, DOING, &ignored));
	if (status < 0)
		return status;
	*ret = gauges;
	return POSTROOM_OK;
}

int pr_pgsql_leases(struct postroom_store *base, pr_lease_fn fn, void *context, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result =
		pr_sql_run(pgsql_store(base), &pr_sql_live_leases, NULL, err);

	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		const struct pr_lease_view lease = {
			.worker = pr_pgsql_text_at(result, row, 0),
			.table = pr_pgsql_number_at(result, row, 1) ? POSTROOM_INBOX :
								      POSTROOM_OUTBOX,
			.messages = pr_pgsql_number_at(result, row, 2),
			.lanes = pr_pgsql_number_at(result, row, 3),
			.locked_until_us = pr_pgsql_number_at(result, row, 4),
		};

		fn(context, &lease);
	}
	return POSTROOM_OK;
}
