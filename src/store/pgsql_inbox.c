/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inbox: accepting events and commands on the application's connection
 * (N2, N3), and what the operator does with them (N4).
 *
 * 1. Accepting begins, commits and rolls back nothing, opens no savepoint, and
 *    keeps nothing in the session. It writes first and looks afterwards: the
 *    primary key makes parallel duplicates wait for each other's outcome.
 * 2. "Somebody has it" is not "it is there": who finds neither a free place nor
 *    a row tries again, a bounded number of times.
 * 3. Retry and purge touch only the states they are for, checked in the very
 *    statement that changes the row; each call is one short transaction that
 *    skips what others hold.
 */
#include "store/pgsql_box.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 50

#define ON_CONFLICT "ON CONFLICT (id, handler_name) DO NOTHING RETURNING id"
/* The function keeps its plan for the session, which a statement of ours may not. */
#define ONCE "SELECT true WHERE {schema}postroom_inbox_once($1, $2)"
#define SUBMIT                                                                              \
	"INSERT INTO {schema}postroom_inbox (id, handler_name, payload, next_attempt_at, "   \
	"created_at, updated_at) SELECT $1, $2, $3::jsonb, now.at, now.at, now.at "          \
	"FROM (SELECT clock_timestamp()) AS now(at) " ON_CONFLICT
#define STATE "SELECT status FROM {schema}postroom_inbox WHERE id = $1 AND handler_name = $2"

/* POSTROOM_OK, or POSTROOM_DUPLICATE when the place was taken. */
static int write_entry(struct pgsql_box *box, const struct pr_entry *entry, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, entry->id);
	pr_pgsql_text(&params, entry->handler);
	if (!entry->completed)
		pr_pgsql_text(&params, entry->payload);
	result = pr_pgsql_box_run(box, entry->completed ? ONCE : SUBMIT, &params, err);
	if (!result)
		return err->status;
	return PQntuples(result) == 1 ? POSTROOM_OK : POSTROOM_DUPLICATE;
}

/* POSTROOM_DUPLICATE with its state, or POSTROOM_NOT_FOUND. */
static int read_state(struct pgsql_box *box, const struct pr_entry *entry,
		      postroom_inbox_state *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, entry->id);
	pr_pgsql_text(&params, entry->handler);
	result = pr_pgsql_box_run(box, STATE, &params, err);
	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return POSTROOM_NOT_FOUND;
	*ret = pr_inbox_state(PQgetvalue(result, 0, 0));
	return POSTROOM_DUPLICATE;
}

static int submit(struct pgsql_box *box, const struct pr_entry *entry, postroom_inbox_state *ret,
		  struct pr_err *err)
{
	for (int i = 0; i < TRIES; i++) {
		int status = write_entry(box, entry, err);

		*ret = POSTROOM_INBOX_PENDING;
		if (status == POSTROOM_DUPLICATE)
			status = read_state(box, entry, ret, err);
		if (status != POSTROOM_NOT_FOUND)
			return status;
	}
	return pr_err_set(err, POSTROOM_BUSY, "%s: \"%.60s\" comes and goes; try again", box->doing,
			  entry->id);
}

int pr_pgsql_box_accept(postroom_box *base, const struct pr_entry *entry,
			postroom_inbox_state *ret_state, struct pr_err *err)
{
	struct pgsql_box *box = (struct pgsql_box *)base;
	int status = pr_pgsql_box_begin(box, entry->completed ? "inbox once" : "inbox submit", err);

	if (status < 0)
		return status;
	return entry->completed ? write_entry(box, entry, err) : submit(box, entry, ret_state, err);
}

/* A plain INSERT of what is completed need not say when: that is when it was written. */
#define ROW                                                                                 \
	"seq, id, handler_name, status, payload::text, checkpoint::text, steps::text, "      \
	"attempts, claims, " PG_TIME("next_attempt_at") ", locked_by, " PG_TIME("locked_until") \
	", " PG_TIME("last_attempt_at") ", last_error, " PG_TIME("created_at") ", "          \
	PG_TIME("updated_at") ", CASE WHEN status = 'completed' THEN "                       \
	PG_TIME("coalesce(processed_at, updated_at)") " END, "                               \
	"coalesce(topic, handler_name), key, headers::text, content_type, body"

#define OF_HANDLER "($1::text IS NULL OR handler_name = $1) AND "
#define FILTER OF_HANDLER "($2::text IS NULL OR id = $2) "

/* before, the condition of the status, filter, and after are one statement. */
static PGresult *query(struct pgsql_store *store, const char *before, const char *status,
		       const char *filter, const char *after, struct pgsql_params *params,
		       const char *doing, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	PGresult *result = NULL;
	char *text = NULL;

	pr_buf_printf(&sql, "%s%s%s%s", before, pr_pgsql_condition(status), filter, after);
	if (!sql.failed)
		text = pr_pgsql_sql(store, NULL, sql.data);
	if (text)
		result = pr_pgsql_query(store, text, params, doing, err);
	else
		pr_err_nomem(err);
	free(text);
	return result;
}

static int hand_over(const PGresult *result, int at, postroom_inbox_row_fn fn, void *context)
{
	postroom_inbox_row row = {
		.seq = pr_pgsql_number_at(result, at, 0),
		.id = pr_pgsql_text_at(result, at, 1),
		.handler = pr_pgsql_text_at(result, at, 2),
		.status = pr_pgsql_text_at(result, at, 3),
		.payload = pr_pgsql_text_at(result, at, 4),
		.checkpoint = pr_pgsql_text_at(result, at, 5),
		.steps = pr_pgsql_text_at(result, at, 6),
		.attempts = (int32_t)pr_pgsql_number_at(result, at, 7),
		.claims = pr_pgsql_number_at(result, at, 8),
		.next_attempt_at_us = pr_pgsql_number_at(result, at, 9),
		.locked_by = pr_pgsql_text_at(result, at, 10),
		.locked_until_us = pr_pgsql_number_at(result, at, 11),
		.last_attempt_at_us = pr_pgsql_number_at(result, at, 12),
		.last_error = pr_pgsql_text_at(result, at, 13),
		.created_at_us = pr_pgsql_number_at(result, at, 14),
		.updated_at_us = pr_pgsql_number_at(result, at, 15),
		.processed_at_us = pr_pgsql_number_at(result, at, 16),
		.topic = pr_pgsql_text_at(result, at, 17),
		.key = pr_pgsql_text_at(result, at, 18),
		.headers = pr_pgsql_text_at(result, at, 19),
		.content_type = pr_pgsql_text_at(result, at, 20),
	};
	unsigned char *body = NULL;
	int answer;

	if (!pr_pgsql_body_at(result, at, 21, &body, &row.body_len))
		return POSTROOM_NOMEM;
	row.body = body;
	answer = fn(context, &row);
	PQfreemem(body);
	return answer;
}

#define PAGE(order) "AND seq < $3::bigint ORDER BY " order " DESC LIMIT $4::int"

int pr_pgsql_inbox_list(struct postroom_store *base, const postroom_inbox_filter *filter,
			int32_t limit, postroom_inbox_row_fn fn, void *context,
			struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, filter->handler);
	pr_pgsql_text(&params, filter->id);
	pr_pgsql_number(&params, filter->before_seq ? filter->before_seq : INT64_MAX);
	pr_pgsql_number(&params, limit);
	/* What has an id is found by it, and not by a walk down the index of seq. */
	result = query(pgsql_store(base), "SELECT " ROW " FROM {schema}postroom_inbox WHERE ",
		       filter->status, filter->id ? OF_HANDLER "id = $2 " : FILTER,
		       filter->id ? PAGE("seq + 0") : PAGE("seq"), &params, "reading the inbox",
		       err);
	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		int answer = hand_over(result, row, fn, context);

		if (answer == POSTROOM_NOMEM)
			return pr_err_nomem(err);
		if (answer != 0)
			break;
	}
	return POSTROOM_OK;
}

#define FIND                                                                                \
	PG_ALONE("$5") "old AS MATERIALIZED (SELECT ctid, seq FROM {schema}postroom_inbox "        \
		       "WHERE (SELECT mine FROM turn) AND "
#define AT_MOST(order)                                                                      \
	"AND updated_at <= " PG_BEFORE("$3") " "                                             \
	"ORDER BY " order " LIMIT $4::int FOR UPDATE SKIP LOCKED) "
#define FOUND "WHERE ctid = ANY (ARRAY(SELECT ctid FROM old))"
/* Those of one key stay in the order they had, at its end. */
#define RETRY                                                                               \
	AT_MOST("seq") ", numbered AS MATERIALIZED (SELECT ctid AS place, "                  \
		       "nextval('{schema}postroom_inbox_seq_seq') AS seq "                    \
		       "FROM (SELECT * FROM old ORDER BY seq) AS o) "                         \
		       "UPDATE {schema}postroom_inbox AS t SET status = 'pending', apart = 1, " \
		       "seq = n.seq, attempts = 0, next_attempt_at = clock_timestamp(), "     \
		       "updated_at = clock_timestamp() FROM numbered AS n WHERE t.ctid = n.place"
#define PURGE(order) AT_MOST(order) "DELETE FROM {schema}postroom_inbox " FOUND

/* Finds rows of this status by the filter; sql is what is done with them. */
static int change(struct pgsql_store *store, const char *state, const char *sql,
		  const postroom_inbox_filter *filter, int32_t limit, bool alone,
		  const char *doing, int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	struct pr_err unheard;
	int status = pr_pgsql_go_by_index(store, err);

	if (status < 0)
		return status;
	pr_pgsql_text(&params, filter->handler);
	pr_pgsql_text(&params, filter->id);
	pr_pgsql_number(&params, filter->older_than_ms);
	pr_pgsql_number(&params, limit);
	pr_pgsql_text(&params, alone ? "t" : "f");
	result = query(store, FIND, state, FILTER, sql, &params, doing, err);
	if (!result)
		return err->status;
	*ret = atoll(PQcmdTuples(result));
	/* What the dead held back goes on. It is done by then; should this fail, a sweep does it. */
	if (strcmp(state, "dead") == 0 && *ret > 0)
		pr_pgsql_free_stranded(store, &pr_table_inbox, false, &unheard);
	return POSTROOM_OK;
}

int pr_pgsql_inbox_retry(struct postroom_store *base, const postroom_inbox_filter *filter,
			 int32_t limit, int64_t *ret, struct pr_err *err)
{
	return change(pgsql_store(base), "dead", RETRY, filter, limit, false,
		      "retrying what is dead", ret, err);
}

int pr_pgsql_inbox_purge(struct postroom_store *base, const postroom_inbox_filter *filter,
			 int32_t limit, bool alone, int64_t *ret, struct pr_err *err)
{
	bool dead = strcmp(filter->status, "dead") == 0;

	return change(pgsql_store(base), filter->status, dead ? PURGE("seq") : PURGE("updated_at"),
		      filter, limit, alone, "purging the inbox", ret, err);
}

#define COUNT                                                                               \
	"SELECT handler_name, count(*) FILTER (WHERE status = 'pending'), "                  \
	"count(*) FILTER (WHERE status = 'active'), "                                        \
	"count(*) FILTER (WHERE status = 'completed'), "                                     \
	"count(*) FILTER (WHERE status = 'dead') FROM {schema}postroom_inbox WHERE "

int pr_pgsql_inbox_stats(struct postroom_store *base, postroom_inbox_counts *ret,
			 postroom_inbox_handler_fn fn, void *context, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	postroom_inbox_counts total = { 0 };
	struct pgsql_params all = { 0 };

	pr_pgsql_text(&all, NULL);
	pr_pgsql_text(&all, NULL);
	result = query(pgsql_store(base), COUNT, NULL, FILTER,
		       "GROUP BY handler_name ORDER BY handler_name", &all, "counting the inbox",
		       err);
	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		const postroom_inbox_counts counts = {
			.pending = pr_pgsql_number_at(result, row, 1),
			.active = pr_pgsql_number_at(result, row, 2),
			.completed = pr_pgsql_number_at(result, row, 3),
			.dead = pr_pgsql_number_at(result, row, 4),
		};

		pr_inbox_counts_add(&total, &counts);
		if (fn)
			fn(context, PQgetvalue(result, row, 0), &counts);
	}
	*ret = total;
	return POSTROOM_OK;
}
