/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operator does (X1, X2): list, show, retry, purge, count.
 *
 * 1. Retry and purge touch only the states they are for, checked in the very
 *    statement that changes the row.
 * 2. Each call is one short transaction that skips what others hold; whoever
 *    has much to do calls again.
 */
#include "base/time.h"
#include "store/pgsql.h"

#include <stdlib.h>
#include <string.h>

#define ROW                                                                                 \
	"seq, id, namespace, topic, tenant_id, key, dedupe_key, correlation_id, "            \
	"payload::text, body, content_type, headers::text, status, attempts, claims, "       \
	PG_TIME("next_attempt_at") ", locked_by, " PG_TIME("locked_until") ", "              \
	PG_TIME("last_attempt_at") ", last_error, " PG_TIME("created_at") ", "               \
	PG_TIME("updated_at") ", " PG_TIME("delivered_at")

#define FILTER                                                                              \
	"($1::text IS NULL OR namespace = $1) "                                              \
	"AND ($2::text IS NULL OR topic LIKE $2) "                                           \
	"AND ($3::uuid IS NULL OR tenant_id = $3) AND ($4::text IS NULL OR key = $4) "

static PGresult *query(struct pgsql_store *store, const struct pr_table *table, const char *sql,
		       struct pgsql_params *params, const char *doing, struct pr_err *err)
{
	char *text = pr_pgsql_sql(store, table, sql);
	PGresult *result;

	if (!text) {
		pr_err_nomem(err);
		return NULL;
	}
	result = pr_pgsql_query(store, text, params, doing, err);
	free(text);
	return result;
}

/* pattern must live as long as params: the filter's topic as LIKE wants it. */
static int add_filter(struct pgsql_params *params, const postroom_filter *filter,
		      struct pr_buf *pattern, struct pr_err *err)
{
	pr_pgsql_text(params, filter->ns);
	pr_pgsql_text(params, pr_pgsql_pattern(filter->topic, pattern));
	pr_pgsql_text(params, filter->tenant_id);
	pr_pgsql_text(params, filter->key);
	return pattern->failed ? pr_err_nomem(err) : POSTROOM_OK;
}

/* Hands a row to fn; its answer, or POSTROOM_NOMEM. */
static int hand_over(const PGresult *result, int at, postroom_row_fn fn, void *context)
{
	postroom_row row = {
		.seq = pr_pgsql_number_at(result, at, 0),
		.id = pr_pgsql_text_at(result, at, 1),
		.ns = pr_pgsql_text_at(result, at, 2),
		.topic = pr_pgsql_text_at(result, at, 3),
		.tenant_id = pr_pgsql_text_at(result, at, 4),
		.key = pr_pgsql_text_at(result, at, 5),
		.dedupe_key = pr_pgsql_text_at(result, at, 6),
		.correlation_id = pr_pgsql_text_at(result, at, 7),
		.payload = pr_pgsql_text_at(result, at, 8),
		.payload_len = (size_t)PQgetlength(result, at, 8),
		.content_type = pr_pgsql_text_at(result, at, 10),
		.headers = pr_pgsql_text_at(result, at, 11),
		.status = pr_pgsql_text_at(result, at, 12),
		.attempts = (int32_t)pr_pgsql_number_at(result, at, 13),
		.claims = pr_pgsql_number_at(result, at, 14),
		.next_attempt_at_us = pr_pgsql_number_at(result, at, 15),
		.locked_by = pr_pgsql_text_at(result, at, 16),
		.locked_until_us = pr_pgsql_number_at(result, at, 17),
		.last_attempt_at_us = pr_pgsql_number_at(result, at, 18),
		.last_error = pr_pgsql_text_at(result, at, 19),
		.created_at_us = pr_pgsql_number_at(result, at, 20),
		.updated_at_us = pr_pgsql_number_at(result, at, 21),
		.delivered_at_us = pr_pgsql_number_at(result, at, 22),
	};
	unsigned char *body = NULL;
	int answer;

	if (!pr_pgsql_body_at(result, at, 9, &body, &row.body_len))
		return POSTROOM_NOMEM;
	row.body = body;
	answer = fn(context, &row);
	PQfreemem(body);
	return answer;
}

static int walk(const PGresult *result, postroom_row_fn fn, void *context, struct pr_err *err)
{
	for (int row = 0; row < PQntuples(result); row++) {
		int answer = hand_over(result, row, fn, context);

		if (answer == POSTROOM_NOMEM)
			return pr_err_nomem(err);
		if (answer != 0)
			break;
	}
	return POSTROOM_OK;
}

static int refuse_id(const char *id, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_NOT_FOUND, "there is no message %s", id);
}

/* The status of a message; POSTROOM_NOT_FOUND when there is none. out has room for 20. */
static int status_of(struct pgsql_store *store, const char *id, char out[20], struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	char uuid[PR_UUID_SIZE];

	if (!pr_uuid_normalize(id, uuid))
		return refuse_id(id, err);
	pr_pgsql_text(&params, uuid);
	result = query(store, NULL, "SELECT status FROM {schema}postroom_messages WHERE id = $1::uuid",
		       &params, "reading messages", err);
	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return refuse_id(id, err);
	strncpy(out, PQgetvalue(result, 0, 0), 19);
	out[19] = '\0';
	return POSTROOM_OK;
}

/*
 * Newest first is by id: a UUIDv7 begins with its time, and the primary key
 * serves it.
 */
int pr_pgsql_list(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		  postroom_row_fn fn, void *context, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 }, sql = { 0 };
	struct pgsql_params params = { 0 };
	char ignored[20];
	int status = POSTROOM_OK;

	if (filter->after)
		status = status_of(store, filter->after, ignored, err);
	if (status >= 0)
		status = add_filter(&params, filter, &pattern, err);
	if (status < 0)
		return status;
	pr_pgsql_text(&params, filter->after);
	pr_pgsql_number(&params, limit);
	/* The dead are in the outbox as they are, and in an index of it. */
	pr_buf_printf(&sql,
		      "SELECT " ROW " FROM {schema}%s WHERE %s" FILTER
		      "AND ($5::uuid IS NULL OR id < $5) ORDER BY id DESC LIMIT $6::int",
		      filter->status && strcmp(filter->status, "dead") == 0 ? "postroom_outbox" :
									      "postroom_messages",
		      pr_pgsql_condition(filter->status));
	if (sql.failed)
		return pr_err_nomem(err);
	result = query(store, NULL, sql.data, &params, "reading messages", err);
	return result ? walk(result, fn, context, err) : err->status;
}

int pr_pgsql_show(struct postroom_store *base, const char *id, postroom_row_fn fn, void *context,
		  struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	char uuid[PR_UUID_SIZE];

	if (!pr_uuid_normalize(id, uuid))
		return refuse_id(id, err);
	pr_pgsql_text(&params, uuid);
	result = query(pgsql_store(base), NULL,
		       "SELECT " ROW " FROM {schema}postroom_messages WHERE id = $1::uuid", &params,
		       "reading messages", err);
	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return refuse_id(id, err);
	return walk(result, fn, context, err);
}

#define REVIVE                                                                              \
	"UPDATE {schema}{table} SET seq = nextval('{schema}{table}_seq_seq'), "              \
	"status = 'pending', attempts = 0, apart = 0, next_attempt_at = clock_timestamp(), " \
	"updated_at = clock_timestamp() "

/* Those behind it go on. It is done by then; should this fail, a relay's sweep does it. */
static int free_others(struct pgsql_store *store)
{
	struct pr_err unheard;

	pr_pgsql_free_stranded(store, &pr_table_outbox, false, &unheard);
	return POSTROOM_OK;
}

static int revive_one(struct pgsql_store *store, const struct pr_table *table, const char *id,
		      struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	char uuid[PR_UUID_SIZE], state[20];
	int status;

	if (!pr_uuid_normalize(id, uuid))
		return refuse_id(id, err);
	pr_pgsql_text(&params, uuid);
	result = query(store, table, REVIVE "WHERE id = $1::uuid AND status = 'dead'", &params,
		       "retrying messages", err);
	if (!result)
		return err->status;
	if (strcmp(PQcmdTuples(result), "0") != 0)
		return free_others(store);
	status = status_of(store, id, state, err);
	if (status < 0)
		return status;
	return pr_err_set(err, POSTROOM_NOT_FOUND,
			  "message %s is %s; only dead messages can be retried", id, state);
}

int pr_pgsql_retry(struct postroom_store *base, const struct pr_table *table, const char *id,
		   const postroom_filter *filter, int32_t limit, int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };
	int status;

	if (id) {
		status = revive_one(pgsql_store(base), table, id, err);
		if (status >= 0)
			*ret = 1;
		return status;
	}
	status = pr_pgsql_go_by_index(pgsql_store(base), err);
	if (status >= 0)
		status = add_filter(&params, filter, &pattern, err);
	if (status < 0)
		return status;
	pr_pgsql_number(&params, limit);
	pr_pgsql_number(&params, filter->older_than_ms);
	/*
	 * Found by their ids, of which there is an index. Within a step those of one key stay in the
	 * order they had; across steps, too, unless they were dead before.
	 */
	result = query(pgsql_store(base), table,
		       "WITH dead AS MATERIALIZED (SELECT id, seq FROM {schema}{table} "
		       "WHERE status = 'dead' AND updated_at <= " PG_BEFORE("$6") " AND " FILTER
		       "ORDER BY id LIMIT $5::int FOR UPDATE SKIP LOCKED), "
		       "numbered AS MATERIALIZED (SELECT id, nextval('{schema}{table}_seq_seq') AS seq "
		       "FROM (SELECT id FROM dead ORDER BY seq) AS dead) "
		       "UPDATE {schema}{table} AS t SET seq = numbered.seq, status = 'pending', "
		       "attempts = 0, apart = 0, next_attempt_at = clock_timestamp(), "
		       "updated_at = clock_timestamp() FROM numbered "
		       "WHERE t.id = ANY (ARRAY[numbered.id])",
		       &params, "retrying messages", err);
	if (!result)
		return err->status;
	*ret = atoll(PQcmdTuples(result));
	return free_others(pgsql_store(base));
}

#define REMOVE(table, condition, since, age, more, order, limit)                            \
	"old AS MATERIALIZED (SELECT ctid FROM {schema}" table " AS t "                      \
	"WHERE (SELECT mine FROM turn) AND " condition since                                 \
	" <= " PG_BEFORE(age) " AND " more                                                   \
	"ORDER BY " order " LIMIT " limit "::int FOR UPDATE SKIP LOCKED) "                   \
	"DELETE FROM {schema}" table " WHERE ctid = ANY (ARRAY(SELECT ctid FROM old))"

#define PURGE_DEAD                                                                          \
	PG_ALONE("$7") REMOVE("postroom_outbox", "status = 'dead' AND ", "updated_at", "$5", FILTER, \
			   "id", "$6")
#define PURGE_DELIVERED                                                                     \
	PG_ALONE("$7") REMOVE("postroom_outbox", "status = 'delivered' AND ", "delivered_at", "$5", \
			   FILTER, "delivered_at", "$6")
#define PURGE_HISTORY                                                                       \
	PG_ALONE("$7") REMOVE("postroom_history", "", "delivered_at", "$5", FILTER, "delivered_at", \
			   "$6")
#define PURGE_LIMIT 5 /* what stands before it */

/* A key is known as long as its message is there, however old. */
#define FORGET                                                                              \
	PG_ALONE("$3") REMOVE("postroom_dedupe", "", "created_at", "$1",                        \
			   "(SELECT true FROM {schema}postroom_outbox AS o "                 \
			   "WHERE o.namespace = t.namespace AND o.topic = t.topic "          \
			   "AND o.dedupe_key = t.dedupe_key LIMIT 1) IS NULL ",              \
			   "created_at", "$2")

static int remove_old(struct pgsql_store *store, const char *sql, struct pgsql_params *params,
		      int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = query(store, NULL, sql, params, "purging messages", err);

	if (!result)
		return err->status;
	*ret = atoll(PQcmdTuples(result));
	return POSTROOM_OK;
}

int pr_pgsql_purge(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		   bool alone, int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };
	bool dead = strcmp(filter->status, "dead") == 0;
	int64_t more = 0;
	int status = pr_pgsql_go_by_index(pgsql_store(base), err);

	if (status >= 0)
		status = add_filter(&params, filter, &pattern, err);
	if (status < 0)
		return status;
	pr_pgsql_number(&params, filter->older_than_ms);
	pr_pgsql_number(&params, limit);
	pr_pgsql_text(&params, alone ? "t" : "f");
	status = remove_old(pgsql_store(base), dead ? PURGE_DEAD : PURGE_DELIVERED, &params, ret, err);
	if (status < 0)
		return status;
	if (dead)
		return free_others(pgsql_store(base));
	if (*ret == limit)
		return POSTROOM_OK;
	params.count = PURGE_LIMIT;
	pr_pgsql_number(&params, limit - *ret);
	pr_pgsql_text(&params, alone ? "t" : "f");
	status = remove_old(pgsql_store(base), PURGE_HISTORY, &params, &more, err);
	if (status >= 0)
		*ret += more;
	/* What is gone from the one is gone; whoever calls again meets the other. */
	return *ret > 0 ? POSTROOM_OK : status;
}

int pr_pgsql_forget(struct postroom_store *base, int64_t older_than_ms, int32_t limit, bool alone,
		    int64_t *ret, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	int status = pr_pgsql_go_by_index(pgsql_store(base), err);

	if (status < 0)
		return status;
	pr_pgsql_number(&params, older_than_ms);
	pr_pgsql_number(&params, limit);
	pr_pgsql_text(&params, alone ? "t" : "f");
	return remove_old(pgsql_store(base), FORGET, &params, ret, err);
}

/*
 * What waits for a later time and was never tried is not old (TRAPS 34); what
 * was delayed is as old as it is due.
 */
#define COUNT                                                                               \
	"SELECT namespace, topic, count(*) FILTER (WHERE status = 'pending'), "              \
	"count(*) FILTER (WHERE status = 'processing'), "                                    \
	"count(*) FILTER (WHERE status = 'pending' AND attempts > 0), "                      \
	"count(*) FILTER (WHERE status = 'delivered'), "                                     \
	"count(*) FILTER (WHERE status = 'dead'), "                                          \
	PG_TIME("clock_timestamp()") ", "                                                    \
	PG_TIME("min(CASE "                                                                  \
	     "WHEN status = 'processing' OR (status = 'pending' AND claims > 0) "            \
	     "THEN created_at WHEN status = 'pending' AND next_attempt_at <= "               \
	     "clock_timestamp() THEN greatest(created_at, next_attempt_at) END)") " "        \
	"FROM {schema}postroom_messages GROUP BY namespace, topic ORDER BY namespace, topic"

int pr_pgsql_stats(struct postroom_store *base, postroom_counts *ret, postroom_topic_fn fn,
		   void *context, struct pr_err *err)
{
	postroom_counts total = { .oldest_age_us = -1 };
	PR_CLEANUP_RESULT PGresult *result =
		query(pgsql_store(base), NULL, COUNT, NULL, "counting messages", err);

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
			fn(context, PQgetvalue(result, row, 0), PQgetvalue(result, row, 1), &topic);
	}
	*ret = total;
	return POSTROOM_OK;
}
