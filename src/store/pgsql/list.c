/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries by operators (X1): list, count.
 *
 * 1. A page is found first, as the ids of its rows, through the index of the state; only then are
 *    its rows read, through the view that knows both kinds of lease.
 * 2. The filter's conditions are literally those of the partial indexes, so that these serve them.
 */
#include "store/pgsql/statements.h"
#include "store/position.h"

#include <stdlib.h>
#include <string.h>

static void put_pattern(const char *pattern, struct pr_buf *out)
{
	pr_pgsql_pattern(pattern, out);
}

/* Only ASCII letters are lower-cased, whatever the collation. */
#define ERROR "strpos(lower(last_error COLLATE \"C\"), lower(@::text COLLATE \"C\")) > 0"
#define TIME "timestamptz 'epoch' + @::bigint * interval '1 microsecond'"
/* A sub-select is evaluated once, and may bound an index scan. */
#define AGE " <= (SELECT clock_timestamp() - @::bigint * interval '1 millisecond')"

/* The words that all tables share. */
#define COMMON_WORDS                                                                               \
	.tenant_id = "tenant_id = @::uuid", .key = "key = @::text",                                \
	.created_from = "created_at >= " TIME, .created_to = "created_at < " TIME,                 \
	.older_than = AGE, .pattern = put_pattern
/* The words of messages, delivered or not. */
#define MESSAGE_WORDS                                                                              \
	COMMON_WORDS, .ns = "namespace = @::text", .topic = "topic LIKE @::text", .id = "id = @::uuid"
/* The words of rows that may have an error. */
#define ERROR_WORDS                                                                                \
	.error = ERROR,                                                                            \
	.fingerprint = "coalesce({schema}postroom_fingerprint(last_error), '') = @::text"

/*
 * The sink of a row's last failed attempt. The columns of the attempt get other names, so that id and
 * handler_name are the row's.
 */
#define SINK(handler, id)                                                                          \
	"coalesce((SELECT sink FROM (SELECT handler_name AS h, id AS i, seq AS s, sink "           \
	"FROM {schema}postroom_attempts) AS a WHERE h = " handler " AND i = " id                   \
	" ORDER BY h DESC, i DESC, s DESC LIMIT 1), '') = @::text"
#define OUTBOX_SINK SINK("''", "id::text")

const struct pr_filter_words pr_pgsql_outbox_words = { MESSAGE_WORDS, ERROR_WORDS,
						       .sink = OUTBOX_SINK };

/* A delivered message has no error. */
const struct pr_filter_words pr_pgsql_history_words = {
	MESSAGE_WORDS,
	.error = "@::text IS NULL",
	.fingerprint = "@::text = ''",
	.sink = OUTBOX_SINK,
};

const struct pr_filter_words pr_pgsql_inbox_words = {
	COMMON_WORDS,
	ERROR_WORDS,
	.sink = SINK("handler_name", "id"),
	.topic = "coalesce(topic, handler_name) LIKE @::text",
	.handler = "handler_name = @::text",
	.id = "id = @::text",
};

const struct pr_filter_words *pr_pgsql_words(const postroom_filter *filter)
{
	return filter->table == POSTROOM_INBOX ? &pr_pgsql_inbox_words : &pr_pgsql_outbox_words;
}

PGresult *pr_pgsql_ask(struct pgsql_store *store, const struct pr_table *table,
		       const struct pr_query *query, const char *doing, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PGresult *result;
	char *text;

	for (size_t i = 0; i < query->count; i++) {
		if (query->values[i].text)
			pr_pgsql_text(&params, query->values[i].text);
		else
			pr_pgsql_number(&params, query->values[i].number);
	}
	text = query->sql.failed ? NULL : pr_pgsql_sql(store, table, pr_buf_text(&query->sql));
	if (!text) {
		pr_err_nomem(err);
		return NULL;
	}
	result = pr_pgsql_query(store, text, &params, doing, err);
	free(text);
	return result;
}

/* The order of the columns that read_row() reads. */
#define LEASE                                                                                                 \
	"attempts, claims, " PG_TIME("next_attempt_at") ", locked_by, " PG_TIME("locked_until") ", " PG_TIME( \
		"last_attempt_at") ", last_error, " PG_TIME("created_at") ", " PG_TIME("updated_"             \
										       "at") ", "
#define ROW(headers, payload, body)                                                                \
	"seq, id, status, topic, tenant_id, key, correlation_id, " payload ", " body               \
	", content_type, " headers ", " LEASE "namespace, dedupe_key, " PG_TIME("delivered_at")
#define WHOLE_ROW ROW("headers::text", "payload::text", "body")
#define BRIEF_ROW ROW("'{}'", "''", "NULL::bytea")

/* Gives a row to fn; its answer, or POSTROOM_NOMEM. */
static int give_row(const PGresult *result, int at, postroom_table table, postroom_row_fn fn,
		    void *context)
{
	postroom_row row = {
		.seq = pr_pgsql_number_at(result, at, 0),
		.id = pr_pgsql_text_at(result, at, 1),
		.status = pr_pgsql_text_at(result, at, 2),
		.topic = pr_pgsql_text_at(result, at, 3),
		.tenant_id = pr_pgsql_text_at(result, at, 4),
		.key = pr_pgsql_text_at(result, at, 5),
		.correlation_id = pr_pgsql_text_at(result, at, 6),
		.payload = pr_pgsql_text_at(result, at, 7),
		.payload_len = (size_t)PQgetlength(result, at, 7),
		.content_type = pr_pgsql_text_at(result, at, 9),
		.headers = pr_pgsql_text_at(result, at, 10),
		.attempts = (int32_t)pr_pgsql_number_at(result, at, 11),
		.claims = pr_pgsql_number_at(result, at, 12),
		.next_attempt_at_us = pr_pgsql_number_at(result, at, 13),
		.locked_by = pr_pgsql_text_at(result, at, 14),
		.locked_until_us = pr_pgsql_number_at(result, at, 15),
		.last_attempt_at_us = pr_pgsql_number_at(result, at, 16),
		.last_error = pr_pgsql_text_at(result, at, 17),
		.created_at_us = pr_pgsql_number_at(result, at, 18),
		.updated_at_us = pr_pgsql_number_at(result, at, 19),
	};
	unsigned char *body = NULL;
	int answer;

	if (table == POSTROOM_OUTBOX) {
		row.ns = pr_pgsql_text_at(result, at, 20);
		row.dedupe_key = pr_pgsql_text_at(result, at, 21);
		row.delivered_at_us = pr_pgsql_number_at(result, at, 22);
	} else {
		row.handler = pr_pgsql_text_at(result, at, 20);
		row.processed_at_us = pr_pgsql_number_at(result, at, 21);
		row.checkpoint = pr_pgsql_text_at(result, at, 22);
		row.steps = pr_pgsql_text_at(result, at, 23);
	}
	if (!pr_pgsql_body_at(result, at, 8, &body, &row.body_len))
		return POSTROOM_NOMEM;
	row.body = body;
	answer = fn(context, &row);
	PQfreemem(body);
	return answer;
}

static int give_rows(const PGresult *result, postroom_table table, postroom_row_fn fn,
		     void *context, struct pr_err *err)
{
	for (int row = 0; row < PQntuples(result); row++) {
		int answer = give_row(result, row, table, fn, context);

		if (answer == POSTROOM_NOMEM)
			return pr_err_nomem(err);
		if (answer != 0)
			break;
	}
	return POSTROOM_OK;
}

/* The sort order of a page, and where the previous page ended. */
struct page {
	const char *order; /* columns of the branches, "" for a count */
	bool by_delivery;
	const char *after; /* an id */
	int64_t after_us;  /* by_delivery */
	int64_t rows;	   /* of each branch: limit and offset */
};

/* Begins a branch that is read as a whole. */
#define FEW "(SELECT * FROM "

/* A branch: the matching rows of one index. from ends in a condition. */
static void put_branch(struct pr_query *query, const char *from, const postroom_filter *filter,
		    const struct pr_filter_words *words, const struct page *page)
{
	bool fenced = strncmp(from, FEW, strlen(FEW)) == 0;
	const char *since = page->by_delivery ? "delivered_at" : "updated_at";

	pr_query_put(query, from);
	pr_query_filter(query, filter, words, since);
	if (page->by_delivery && page->after) {
		pr_query_number(query, " AND (delivered_at, id) < (" TIME, page->after_us);
		pr_query_text(query, ", @::uuid)", page->after);
	} else if (page->after) {
		pr_query_text(query, " AND id < @::uuid", page->after);
	}
	/* All of a small state are read and sorted: a walk down the ids might pass by all others. */
	if (fenced)
		pr_query_put(query, " OFFSET 0) AS few");
	pr_query_put(query, page->order);
	pr_query_number(query, " LIMIT @::bigint)", page->rows);
}

#define FROM "(SELECT id, delivered_at FROM {schema}postroom_outbox AS o WHERE "
/* Messages in flight in lanes are pending in the table. */
#define NOT_LEASED                                                                                 \
	" AND NOT EXISTS (SELECT FROM {schema}postroom_lanes AS l WHERE o.state = 'ready' "              \
	"AND l.lane = " PG_LANE_OF("o.") " AND o.seq = ANY (l.in_flight))"
#define LANES                                                                                      \
	"(SELECT o.id, o.delivered_at FROM {schema}postroom_lanes AS l "                           \
	"CROSS JOIN LATERAL unnest(l.in_flight) AS f(seq) CROSS JOIN LATERAL "                     \
	"(SELECT * FROM {schema}postroom_outbox AS o WHERE " PG_LANE_OF(                           \
		"o.") " = l.lane "                                                                 \
		      "AND o.seq = f.seq AND state = 'ready' AND status = 'pending' OFFSET 0) AS o "     \
		      "WHERE true"

/* Each state is found by the index that has it. */
static void put_outbox_branches(struct pr_query *query, const postroom_filter *filter,
			    const struct page *page)
{
	static const struct {
		const char *status;
		const char *first, *second;
	} branches[] = {
		{ "dead", FROM "status = 'dead'", NULL },
		{ "delivered", FROM "status = 'delivered'",
		  "(SELECT id, delivered_at FROM {schema}postroom_history WHERE true" },
		{ "processing", FEW FROM "status = 'processing'", LANES },
		{ "failed", FEW FROM "state IN ('scheduled', 'delayed') AND status = 'pending' AND attempts > 0",
		  FEW FROM "state = 'held' AND status = 'pending' AND attempts > 0" },
		{ "pending", FROM "status = 'pending'" NOT_LEASED, NULL },
	};

	for (size_t i = 0; filter->status && i < sizeof(branches) / sizeof(branches[0]); i++) {
		bool history = strcmp(branches[i].status, "delivered") == 0;

		if (strcmp(branches[i].status, filter->status) != 0)
			continue;
		put_branch(query, branches[i].first, filter, &pr_pgsql_outbox_words, page);
		if (!branches[i].second)
			return;
		pr_query_put(query, " UNION ALL ");
		put_branch(query, branches[i].second, filter,
			history ? &pr_pgsql_history_words : &pr_pgsql_outbox_words, page);
		return;
	}
	put_branch(query, FROM "true", filter, &pr_pgsql_outbox_words, page);
	pr_query_put(query, " UNION ALL ");
	put_branch(query, "(SELECT id, delivered_at FROM {schema}postroom_history WHERE true", filter,
		&pr_pgsql_history_words, page);
}

/* Where the list continues; POSTROOM_NOT_FOUND when there is no such message. */
static int find_after(struct pgsql_store *store, const postroom_filter *filter,
		      struct pr_position *position, struct page *page, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };

	if (!pr_position_parse(filter->after, position))
		return pr_err_set(err, POSTROOM_NOT_FOUND, "there is no message %s", filter->after);
	page->after = position->id;
	page->after_us = position->delivered_at_us;
	/* The row may have been deleted, or delivered, since. */
	if (position->known && (!page->by_delivery || position->delivered_at_us))
		return POSTROOM_OK;
	pr_query_text(&query,
		      "SELECT status, " PG_TIME(
			      "delivered_at") " FROM {schema}postroom_messages WHERE id = @::uuid",
		      position->id);
	result = pr_pgsql_ask(store, NULL, &query, "reading messages", err);
	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return pr_err_set(err, POSTROOM_NOT_FOUND, "there is no message %s", filter->after);
	if (page->by_delivery && PQgetisnull(result, 0, 1))
		return pr_err_set(err, POSTROOM_NOT_FOUND,
				  "message %s is %s; the list has delivered messages",
				  filter->after, PQgetvalue(result, 0, 0));
	page->after_us = pr_pgsql_number_at(result, 0, 1);
	return POSTROOM_OK;
}

/* The query refers to the position. */
static int list_outbox(struct pgsql_store *store, const postroom_filter *filter, int32_t limit,
		       struct pr_position *position, struct pr_query *query, struct pr_err *err)
{
	bool by_delivery = pr_filter_is(filter, "delivered");
	const char *order = by_delivery ? " ORDER BY delivered_at DESC, id DESC"
					: " ORDER BY id DESC";
	struct page page = { .order = order,
			     .by_delivery = by_delivery,
			     .rows = limit + filter->offset };
	int status = filter->after ? find_after(store, filter, position, &page, err) : POSTROOM_OK;

	if (status < 0)
		return status;
	pr_query_put(query, "SELECT ");
	pr_query_put(query, filter->brief ? BRIEF_ROW : WHOLE_ROW);
	pr_query_put(query, " FROM (SELECT id AS page_id, delivered_at AS page_at FROM (");
	put_outbox_branches(query, filter, &page);
	pr_query_put(query, ") AS branches");
	pr_query_put(query, order);
	pr_query_number(query, " LIMIT @::int", limit);
	pr_query_number(query, " OFFSET @::bigint", filter->offset);
	pr_query_put(query, ") AS page CROSS JOIN LATERAL (SELECT * FROM {schema}postroom_messages "
			    "AS m WHERE m.id = page.page_id LIMIT 1) AS m ORDER BY ");
	pr_query_put(query, by_delivery ? "page_at DESC, page_id DESC" : "page_id DESC");
	return POSTROOM_OK;
}

/* Newest first is by seq. A row with an id is found by it, and not by a walk down the index of seq. */
static PGresult *list_inbox(struct pgsql_store *store, const postroom_filter *filter, int32_t limit,
			    struct pr_err *err)
{
	const struct pgsql_filter with = { .filter = filter,
					   .words = &pr_pgsql_inbox_words,
					   .with_status = true };
	struct pgsql_params params = { 0 };

	if (filter->id)
		pr_sql_bind_find_inbox(&params, filter->brief, filter->after, limit, filter->offset);
	else
		pr_sql_bind_list_inbox(&params, filter->brief, filter->after, limit, filter->offset);
	return pr_sql_run_filtered(store, filter->id ? &pr_sql_find_inbox : &pr_sql_list_inbox,
				   &params, &with, err);
}

int pr_pgsql_list(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		  postroom_row_fn fn, void *context, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	bool inbox = filter->table == POSTROOM_INBOX;
	struct pr_position position;
	/* Each state has its index. With the planner's choice, a wrong estimate costs a JIT compilation. */
	int status = filter->status ? pr_pgsql_force_index_scans(store, err) : POSTROOM_OK;

	if (status >= 0 && !inbox)
		status = list_outbox(store, filter, limit, &position, &query, err);
	if (status < 0)
		return status;
	result = inbox ? list_inbox(store, filter, limit, err) :
			 pr_pgsql_ask(store, NULL, &query, "reading messages", err);
	return result ? give_rows(result, filter->table, fn, context, err) : err->status;
}

/* Or nothing at all. */
static bool has_only_status(const postroom_filter *filter)
{
	return filter->table == POSTROOM_OUTBOX && !filter->ns && !filter->topic &&
	       !filter->tenant_id && !filter->key && !filter->id && !filter->error &&
	       !filter->fingerprint && !filter->sink && !filter->created_from_us &&
	       !filter->created_to_us && filter->older_than_ms <= 0;
}

/* In flight in lanes, among the pending ones. */
#define IN_FLIGHT                                                                                     \
	"(SELECT coalesce(sum(cardinality(in_flight)), 0)::bigint FROM {schema}postroom_lanes)"
#define MOST "$1::bigint + " IN_FLIGHT
/* Counts entries of one index, and reads no row. */
#define ENTRIES(condition)                                                                         \
	"(SELECT FROM {schema}postroom_outbox WHERE " condition " LIMIT " MOST ")"
#define WAITING                                                                                    \
	ENTRIES("state IN ('scheduled', 'delayed') AND status = 'pending'")                                          \
	" UNION ALL " ENTRIES("state = 'held' AND status = 'pending'")
/* Messages in flight are rows of the outbox, too. */
static const char all_entries[] =
	ENTRIES("true") " UNION ALL (SELECT FROM {schema}postroom_history LIMIT $1::bigint)";
static const char delivered_entries[] = ENTRIES(
	"status = 'delivered'") " UNION ALL (SELECT FROM {schema}postroom_history LIMIT $1::bigint)";
static const char pending_entries[] =
	ENTRIES("key IS NULL AND state = 'ready' AND status = 'pending'") " UNION ALL " ENTRIES(
		"key IS NOT NULL AND state = 'ready' AND status = 'pending'") " UNION ALL " WAITING;
static const char lane_entries[] = ENTRIES("state = 'ready' AND status = 'pending'") " UNION ALL " WAITING;

/*
 * Counts all messages, or those of a state that may have many, by the entries of indexes. < 0 in
 * *ret: the rows must be read, because some of fewer than the cap may be in flight.
 */
static int count_entries(struct pgsql_store *store, const postroom_filter *filter, int64_t cap,
			 int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	bool pending = pr_filter_is(filter, "pending");
	int status = pr_pgsql_load_lease_kind(store, err);
	int64_t entries, in_flight;

	if (status < 0)
		return status;
	pr_query_put(&query, "SELECT (SELECT count(*) FROM (SELECT FROM (");
	pr_query_put(&query, !filter->status		    ? all_entries
			     : !pending			    ? delivered_entries
			     : store->kind == PR_LEASE_LANE ? lane_entries
							    : pending_entries);
	pr_query_put(&query, ") AS branches LIMIT " MOST ") AS capped), " IN_FLIGHT);
	query.values[query.count++].number = cap;
	result = pr_pgsql_ask(store, NULL, &query, "counting messages", err);
	if (!result)
		return err->status;
	entries = pr_pgsql_number_at(result, 0, 0);
	in_flight = pending ? pr_pgsql_number_at(result, 0, 1) : 0;
	if (entries - in_flight >= cap)
		*ret = cap;
	else
		*ret = in_flight > 0 ? -1 : entries;
	return POSTROOM_OK;
}

int pr_pgsql_count(struct postroom_store *base, const postroom_filter *filter, int64_t cap,
		   int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	const struct page page = { .order = "",
				   .rows = cap,
				   .by_delivery = pr_filter_is(filter, "delivered") };
	int status = pr_pgsql_force_index_scans(pgsql_store(base), err);

	if (status >= 0 && has_only_status(filter) &&
	    (!filter->status || page.by_delivery || pr_filter_is(filter, "pending"))) {
		status = count_entries(pgsql_store(base), filter, cap, ret, err);
		if (status < 0 || *ret >= 0)
			return status;
	}
	if (status < 0)
		return status;
	pr_query_put(&query, "SELECT count(*) FROM (SELECT FROM (");
	if (filter->table == POSTROOM_INBOX) {
		pr_query_put(&query, "SELECT FROM {schema}postroom_inbox WHERE ");
		pr_query_put(&query, pr_pgsql_condition(filter->status));
		pr_query_put(&query, "true");
		pr_query_filter(&query, filter, &pr_pgsql_inbox_words, "updated_at");
	} else {
		put_outbox_branches(&query, filter, &page);
	}
	pr_query_number(&query, ") AS branches LIMIT @::bigint) AS capped", cap);
	result = pr_pgsql_ask(pgsql_store(base), NULL, &query, "counting messages", err);
	if (!result)
		return err->status;
	*ret = pr_pgsql_number_at(result, 0, 0);
	return POSTROOM_OK;
}
