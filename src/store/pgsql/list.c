/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries by operators (X1): list, show, count.
 *
 * 1. A page is found first, as the ids of its rows, through the index of the state; only then are
 *    its rows read, through the view that knows both kinds of lease.
 * 2. The filter's conditions are literally those of the partial indexes, so that these serve them.
 */
#include "store/pgsql/pgsql.h"
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
	.error = ERROR, .fingerprint = "{schema}postroom_fingerprint(last_error) = @::text"

const struct pr_filter_words pr_pgsql_outbox_words = { MESSAGE_WORDS, ERROR_WORDS };

/* A delivered message has no error. */
const struct pr_filter_words pr_pgsql_history_words = {
	MESSAGE_WORDS,
	.error = "@::text IS NULL",
	.fingerprint = "@::text IS NULL",
};

const struct pr_filter_words pr_pgsql_inbox_words = {
	COMMON_WORDS,
	ERROR_WORDS,
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

/* A plain INSERT of a completed row need not say when it was completed: when it was written. */
#define INBOX_ROW(headers, payload, body, progress)                                                \
	"seq, id, status, coalesce(topic, handler_name), tenant_id, key, correlation_id, " payload \
	", " body ", content_type, " headers ", " LEASE "handler_name, "                           \
	"CASE WHEN status = 'completed' THEN " PG_TIME(                                            \
		"coalesce(processed_at, updated_at)") " END, " progress
#define WHOLE_INBOX_ROW                                                                            \
	INBOX_ROW("headers::text", "payload::text", "body", "checkpoint::text, steps::text")
#define BRIEF_INBOX_ROW INBOX_ROW("'{}'", "NULL", "NULL::bytea", "NULL, '{}'")

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
	const char *order; /* columns of the arms, "" for a count */
	bool by_delivery;
	const char *after; /* an id */
	int64_t after_us;  /* by_delivery */
	int64_t rows;	   /* of each arm: limit and offset */
};

/* Begins an arm that is read as a whole. */
#define FEW "(SELECT * FROM "

/* An arm: the matching rows of one index. from ends in a condition. */
static void put_arm(struct pr_query *query, const char *from, const postroom_filter *filter,
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
/* In lanes' leases, whose messages look as if they were waiting. */
#define NOT_LEASED                                                                                 \
	" AND NOT EXISTS (SELECT FROM {schema}postroom_lanes AS l WHERE o.apart = 0 "              \
	"AND l.lane = " PG_LANE_OF("o.") " AND o.seq = ANY (l.in_flight))"
#define LANES                                                                                      \
	"(SELECT o.id, o.delivered_at FROM {schema}postroom_lanes AS l "                           \
	"CROSS JOIN LATERAL unnest(l.in_flight) AS f(seq) CROSS JOIN LATERAL "                     \
	"(SELECT * FROM {schema}postroom_outbox AS o WHERE " PG_LANE_OF(                           \
		"o.") " = l.lane "                                                                 \
		      "AND o.seq = f.seq AND apart = 0 AND status = 'pending' OFFSET 0) AS o "     \
		      "WHERE true"

/* Each state is found by the index that has it. */
static void put_outbox_arms(struct pr_query *query, const postroom_filter *filter,
			    const struct page *page)
{
	static const struct {
		const char *status;
		const char *first, *second;
	} arms[] = {
		{ "dead", FROM "status = 'dead'", NULL },
		{ "delivered", FROM "status = 'delivered'",
		  "(SELECT id, delivered_at FROM {schema}postroom_history WHERE true" },
		{ "processing", FEW FROM "status = 'processing'", LANES },
		{ "failed", FEW FROM "apart IN (1, 3) AND status = 'pending' AND attempts > 0",
		  FEW FROM "apart = 2 AND status = 'pending' AND attempts > 0" },
		{ "pending", FROM "status = 'pending'" NOT_LEASED, NULL },
	};

	for (size_t i = 0; filter->status && i < sizeof(arms) / sizeof(arms[0]); i++) {
		bool history = strcmp(arms[i].status, "delivered") == 0;

		if (strcmp(arms[i].status, filter->status) != 0)
			continue;
		put_arm(query, arms[i].first, filter, &pr_pgsql_outbox_words, page);
		if (!arms[i].second)
			return;
		pr_query_put(query, " UNION ALL ");
		put_arm(query, arms[i].second, filter,
			history ? &pr_pgsql_history_words : &pr_pgsql_outbox_words, page);
		return;
	}
	put_arm(query, FROM "true", filter, &pr_pgsql_outbox_words, page);
	pr_query_put(query, " UNION ALL ");
	put_arm(query, "(SELECT id, delivered_at FROM {schema}postroom_history WHERE true", filter,
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
	put_outbox_arms(query, filter, &page);
	pr_query_put(query, ") AS arms");
	pr_query_put(query, order);
	pr_query_number(query, " LIMIT @::int", limit);
	pr_query_number(query, " OFFSET @::bigint", filter->offset);
	pr_query_put(query, ") AS page CROSS JOIN LATERAL (SELECT * FROM {schema}postroom_messages "
			    "AS m WHERE m.id = page.page_id LIMIT 1) AS m ORDER BY ");
	pr_query_put(query, by_delivery ? "page_at DESC, page_id DESC" : "page_id DESC");
	return POSTROOM_OK;
}

/* Newest first is by seq. A row with an id is found by it, and not by a walk down the index of seq. */
static int list_inbox(const postroom_filter *filter, int32_t limit, struct pr_query *query)
{
	pr_query_put(query, "SELECT ");
	pr_query_put(query, filter->brief ? BRIEF_INBOX_ROW : WHOLE_INBOX_ROW);
	pr_query_put(query, " FROM {schema}postroom_inbox WHERE ");
	pr_query_put(query, pr_pgsql_condition(filter->status));
	pr_query_put(query, "true");
	pr_query_filter(query, filter, &pr_pgsql_inbox_words, "updated_at");
	if (filter->after)
		pr_query_text(query, " AND seq < @::bigint", filter->after);
	pr_query_put(query, filter->id ? " ORDER BY seq + 0 DESC" : " ORDER BY seq DESC");
	pr_query_number(query, " LIMIT @::int", limit);
	pr_query_number(query, " OFFSET @::bigint", filter->offset);
	return POSTROOM_OK;
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

	if (status >= 0)
		status = inbox ? list_inbox(filter, limit, &query)
			       : list_outbox(store, filter, limit, &position, &query, err);
	if (status < 0)
		return status;
	result = pr_pgsql_ask(store, NULL, &query, inbox ? "reading the inbox" : "reading messages",
			      err);
	return result ? give_rows(result, filter->table, fn, context, err) : err->status;
}

int pr_pgsql_show(struct postroom_store *base, const postroom_filter *filter, postroom_row_fn fn,
		  void *context, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	bool inbox = filter->table == POSTROOM_INBOX;

	pr_query_put(&query, "SELECT ");
	pr_query_put(&query, inbox ? WHOLE_INBOX_ROW " FROM {schema}postroom_inbox WHERE true"
				   : WHOLE_ROW " FROM {schema}postroom_messages WHERE true");
	pr_query_filter(&query, filter, pr_pgsql_words(filter), "updated_at");
	if (inbox)
		pr_query_put(&query, " ORDER BY seq + 0 DESC");
	result = pr_pgsql_ask(pgsql_store(base), NULL, &query,
			      inbox ? "reading the inbox" : "reading messages", err);
	return result ? give_rows(result, filter->table, fn, context, err) : err->status;
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

	if (status < 0)
		return status;
	pr_query_put(&query, "SELECT count(*) FROM (SELECT FROM (");
	if (filter->table == POSTROOM_INBOX) {
		pr_query_put(&query, "SELECT FROM {schema}postroom_inbox WHERE ");
		pr_query_put(&query, pr_pgsql_condition(filter->status));
		pr_query_put(&query, "true");
		pr_query_filter(&query, filter, &pr_pgsql_inbox_words, "updated_at");
	} else {
		put_outbox_arms(&query, filter, &page);
	}
	pr_query_number(&query, ") AS arms LIMIT @::bigint) AS capped", cap);
	result = pr_pgsql_ask(pgsql_store(base), NULL, &query, "counting messages", err);
	if (!result)
		return err->status;
	*ret = pr_pgsql_number_at(result, 0, 0);
	return POSTROOM_OK;
}
