/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claiming (C1–C6) and burying what has no attempts left (C5).
 *
 * 1. A claim is one statement and one commit. The rows are chosen in a
 *    MATERIALIZED part, once, with FOR UPDATE SKIP LOCKED.
 * 2. Due and expired are two statements on two partial indexes. Rows in
 *    backoff, delivered or dead are in neither, and cost nothing.
 * 3. The database's clock alone decides, and it is clock_timestamp(): now()
 *    stands still inside a transaction.
 * 4. What is found with an expired lease is claimed alone: it may have killed
 *    its worker, and must not take its neighbours along.
 * 5. Whatever is met without attempts left is buried there and then.
 * 6. The scan starts behind the last row of the claim before, because the dead
 *    entries of settled rows pile up at the head of the index while some old
 *    transaction holds vacuum back. A row may commit late, have a head start, or
 *    be brought back by an operator: so this is done only while batches are
 *    full, the head is read again as soon as that costs no more than one part in
 *    HEAD_SHARE of the time, every REREAD_US at the latest, and at once when
 *    nothing is found behind the mark.
 */
#include "base/time.h"
#include "store/pgsql.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_SHARE 10
#define REREAD_US 1000000

/* One moment for the whole claim; a sub-select of it may bound an index scan. */
#define NOW "(SELECT at FROM now)"

/*
 * By ctid rather than by a join: a list of places leaves the planner nothing to
 * get wrong when the statistics are of an empty table. What was chosen beyond
 * the bytes asked for is let go with the commit; they are counted as they are
 * stored, which is uncompressed.
 */
#define CLAIM(condition, order)                                                             \
	"WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at), "                        \
	"chosen AS MATERIALIZED (SELECT ctid, "                                              \
	"pg_column_size(payload) + coalesce(pg_column_size(body), 0) AS bytes "              \
	"FROM {schema}{table} WHERE " condition " AND " PG_SCOPE                             \
	"ORDER BY " order " LIMIT $4::int FOR UPDATE SKIP LOCKED), "                         \
	"fitting AS (SELECT ctid FROM (SELECT ctid, bytes, "                                 \
	"sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) AS total FROM chosen) AS summed "        \
	"WHERE total <= $10::bigint OR total = bytes) "                                      \
	"UPDATE {schema}{table} SET "                                                        \
	"status = CASE WHEN attempts < $5::int THEN '{active}' ELSE 'dead' END, "            \
	"locked_by = CASE WHEN attempts < $5::int THEN $6::uuid END, "                       \
	"locked_until = CASE WHEN attempts < $5::int "                                       \
	"THEN " NOW " + $7::bigint * interval '1 millisecond' END, "                         \
	"last_attempt_at = CASE WHEN attempts < $5::int THEN " NOW                           \
	" ELSE last_attempt_at END, "                                                        \
	"last_error = CASE WHEN attempts < $5::int THEN last_error "                         \
	"ELSE coalesce($8::text, last_error) END, "                                          \
	"attempts = attempts + (attempts < $5::int)::int, claims = claims + 1, "             \
	"updated_at = " NOW " WHERE ctid = ANY (ARRAY(SELECT ctid FROM fitting)) "           \
	"RETURNING {columns}, status = 'dead', next_attempt_at"

#define CLAIM_DUE                                                                           \
	CLAIM("status = 'pending' AND next_attempt_at <= " NOW                               \
	      " AND (next_attempt_at, seq) >= "                                              \
	      "(timestamptz 'epoch' + $9::bigint * interval '1 microsecond', $11::bigint)",  \
	      "next_attempt_at, seq")

#define CLAIM_EXPIRED                                                                       \
	CLAIM("status = '{active}' AND locked_until < " NOW " AND attempts >= $9::bigint",   \
	      "locked_until, seq")

#define EXPIRED_REASON "the lease ran out during the last attempt: its worker died or hung"

/* Behind {columns}. */
enum { COL_DEAD = PR_COL_COUNT, COL_DUE };

/* PostgreSQL counts from 2000. */
#define EPOCH_US 946684800000000LL

int64_t pr_pgsql_read_int8(const PGresult *result, int row, int column)
{
	uint64_t value;

	memcpy(&value, PQgetvalue(result, row, column), sizeof(value));
	return (int64_t)be64toh(value);
}

static int32_t read_int4(const PGresult *result, int row, int column)
{
	uint32_t value;

	memcpy(&value, PQgetvalue(result, row, column), sizeof(value));
	return (int32_t)be32toh(value);
}

static const char *read_text(const PGresult *result, int row, int column)
{
	return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

static const char *read_uuid(const PGresult *result, int row, int column, struct pr_arena *arena,
			     bool *failed)
{
	char *text;

	if (PQgetisnull(result, row, column))
		return NULL;
	text = pr_arena_alloc(arena, PR_UUID_SIZE);
	if (text)
		pr_uuid_format((const unsigned char *)PQgetvalue(result, row, column), text);
	*failed |= !text;
	return text;
}

/* Strings stay in the result, which the batch keeps. */
static bool read_row(const PGresult *result, int row, struct pr_arena *arena,
		     postroom_delivery *item)
{
	bool failed = false;

	item->seq = pr_pgsql_read_int8(result, row, PR_COL_SEQ);
	item->fence = pr_pgsql_read_int8(result, row, PR_COL_FENCE);
	item->attempt = read_int4(result, row, PR_COL_ATTEMPTS);
	item->created_at_us = pr_pgsql_read_int8(result, row, PR_COL_CREATED_AT) + EPOCH_US;
	item->id = read_uuid(result, row, PR_COL_ID, arena, &failed);
	item->ns = read_text(result, row, PR_COL_NAMESPACE);
	item->topic = read_text(result, row, PR_COL_TOPIC);
	item->key = read_text(result, row, PR_COL_KEY);
	item->tenant_id = read_uuid(result, row, PR_COL_TENANT_ID, arena, &failed);
	item->dedupe_key = read_text(result, row, PR_COL_DEDUPE_KEY);
	item->correlation_id = read_text(result, row, PR_COL_CORRELATION_ID);
	item->content_type = read_text(result, row, PR_COL_CONTENT_TYPE);
	/* jsonb's binary form is a version number and the text. */
	item->headers = read_text(result, row, PR_COL_HEADERS) + 1;
	item->payload = read_text(result, row, PR_COL_PAYLOAD) + 1;
	item->payload_len = (size_t)PQgetlength(result, row, PR_COL_PAYLOAD) - 1;
	item->body = read_text(result, row, PR_COL_BODY);
	item->body_len = (size_t)PQgetlength(result, row, PR_COL_BODY);
	return !failed;
}

struct place_in_order {
	int64_t due;
	int64_t seq;
	int row;
};

static int compare(const void *a, const void *b)
{
	const struct place_in_order *left = a, *right = b;

	if (left->due != right->due)
		return left->due < right->due ? -1 : 1;
	return left->seq < right->seq ? -1 : left->seq > right->seq;
}

/* UPDATE … RETURNING comes back in any order: sorts, then fills the batch. */
static int read_rows(struct pgsql_store *store, PGresult *result, const char *reason,
		     struct postroom_batch *batch, struct pr_err *err)
{
	size_t count = (size_t)PQntuples(result);
	struct place_in_order *order = pr_arena_alloc(&batch->arena, count * sizeof(*order));

	if (!order)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++)
		order[i] = (struct place_in_order){ .due = pr_pgsql_read_int8(result, (int)i, COL_DUE),
						    .seq = pr_pgsql_read_int8(result, (int)i, PR_COL_SEQ),
						    .row = (int)i };
	qsort(order, count, sizeof(*order), compare);
	store->mark_us = order[count - 1].due + EPOCH_US;
	store->mark_seq = order[count - 1].seq;
	for (size_t i = 0; i < count; i++) {
		bool dead = *PQgetvalue(result, order[i].row, COL_DEAD);
		postroom_delivery *item = dead ? pr_batch_add_buried(batch) : pr_batch_add(batch);

		if (!item || !read_row(result, order[i].row, &batch->arena, item))
			return pr_err_nomem(err);
		item->dead = dead;
		if (dead)
			item->reason = reason;
	}
	return POSTROOM_OK;
}

static void drop_result(void *result)
{
	PQclear(result);
}

/* The batch keeps one result at a time; one without rows needs no keeping. */
static int take(struct pgsql_store *store, PGresult *result, const char *reason,
		struct postroom_batch *batch, struct pr_err *err)
{
	if (PQntuples(result) == 0) {
		PQclear(result);
		return POSTROOM_OK;
	}
	batch->held = result;
	batch->drop_held = drop_result;
	return read_rows(store, result, reason, batch, err);
}

static int run_claim(struct pgsql_store *store, const struct pr_table *table, bool expired,
		     const struct pr_claim *claim, int32_t limit, int64_t bound,
		     struct postroom_batch *batch, struct pr_err *err)
{
	const char *reason = expired ? EXPIRED_REASON : NULL;
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };
	PGresult *result;

	if (pr_pgsql_go_by_index(store, err) < 0)
		return err->status;
	if (!pr_pgsql_add_scope(&params, &claim->scope, &pattern))
		return pr_err_nomem(err);
	pr_pgsql_number(&params, limit);
	pr_pgsql_number(&params, claim->max_attempts);
	pr_pgsql_text(&params, store->base.worker);
	pr_pgsql_number(&params, claim->lease_ms);
	pr_pgsql_text(&params, reason);
	pr_pgsql_number(&params, bound);
	pr_pgsql_number(&params, claim->max_bytes < INT64_MAX ? (int64_t)claim->max_bytes : INT64_MAX);
	if (!expired)
		pr_pgsql_number(&params, bound ? store->mark_seq : 0);
	result = pr_pgsql_run(store, expired ? PG_CLAIM_EXPIRED : PG_CLAIM_DUE, table,
			      expired ? CLAIM_EXPIRED : CLAIM_DUE, &params, true,
			      "claiming messages", err);
	return result ? take(store, result, reason, batch, err) : err->status;
}

/* The server counts the bytes; that it has not to count far is what the messages before are for. */
static int32_t limit_for(const struct pgsql_store *store, const struct pr_claim *claim)
{
	size_t fit = store->message_bytes ? claim->max_bytes / store->message_bytes : SIZE_MAX;

	if (fit < 1)
		fit = 1;
	return fit < (size_t)claim->limit ? (int32_t)fit : claim->limit;
}

/* The largest of this batch, or half of what was remembered: quick to shrink, slow to grow. */
static void learn_size(struct pgsql_store *store, const struct postroom_batch *batch)
{
	size_t largest = 1;

	for (size_t i = 0; i < batch->count; i++) {
		size_t bytes = batch->items[i].payload_len + batch->items[i].body_len;

		if (bytes > largest)
			largest = bytes;
	}
	if (batch->count > 0)
		store->message_bytes = largest > store->message_bytes / 2 ? largest :
									    store->message_bytes / 2;
}

static int claim_due(struct pgsql_store *store, const struct pr_table *table,
		     const struct pr_claim *claim, struct postroom_batch *batch,
		     struct pr_err *err)
{
	int64_t begun_us = pr_mono_us();
	int32_t limit = limit_for(store, claim);
	int status;

	store->from_mark = store->busy && begun_us < store->head_due_us;
	status = run_claim(store, table, false, claim, limit, store->from_mark ? store->mark_us : 0,
			   batch, err);
	if (status < 0)
		return status;
	if (store->from_mark && batch->count == 0 && batch->buried_count == 0) {
		store->busy = false;
		return claim_due(store, table, claim, batch, err);
	}
	if (!store->from_mark) {
		int64_t now_us = pr_mono_us(), pause_us = (now_us - begun_us) * HEAD_SHARE;

		store->head_due_us = now_us + (pause_us < REREAD_US ? pause_us : REREAD_US);
	}
	store->busy = batch->count == (size_t)limit;
	if (batch->count > 0)
		store->rung = false;
	learn_size(store, batch);
	return POSTROOM_OK;
}

int pr_pgsql_claim(struct postroom_store *base, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int status = POSTROOM_OK;

	if (claim->suspects)
		status = run_claim(store, table, true, claim, 1, 0, batch, err);
	/* One that was only buried fills no batch, but its strings are held: go on next time. */
	if (status >= 0 && batch->count == 0 && batch->buried_count == 0)
		status = claim_due(store, table, claim, batch, err);
	if (status < 0)
		pr_batch_reset(batch);
	return status;
}

int pr_pgsql_sweep(struct postroom_store *base, const struct pr_table *table,
		   const struct pr_scope *scope, int32_t max_attempts, int32_t limit,
		   struct postroom_batch *batch, struct pr_err *err)
{
	struct pr_claim claim = { .scope = *scope,
				  .max_attempts = max_attempts,
				  .max_bytes = SIZE_MAX };
	int status = run_claim(pgsql_store(base), table, true, &claim, limit, max_attempts, batch,
			       err);

	if (status < 0)
		pr_batch_reset(batch);
	return status;
}

#define UNFINISHED                                                                          \
	"SELECT EXISTS (SELECT FROM {schema}{table} WHERE status = '{active}' AND " PG_SCOPE ") " \
	"OR EXISTS (SELECT FROM {schema}{table} WHERE status = 'pending' "                   \
	"AND (next_attempt_at <= " PG_NOW " OR claims > 0) AND " PG_SCOPE ")"

int pr_pgsql_unfinished(struct postroom_store *base, const struct pr_table *table,
			const struct pr_scope *scope, bool *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };

	if (!pr_pgsql_add_scope(&params, scope, &pattern))
		return pr_err_nomem(err);
	result = pr_pgsql_run(pgsql_store(base), PG_UNFINISHED, table, UNFINISHED, &params, false,
			      "looking for work", err);
	if (!result)
		return err->status;
	*ret = *PQgetvalue(result, 0, 0) == 't';
	return POSTROOM_OK;
}
