/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims messages (C1–C6) and dead-letters messages without attempts left (C5).
 *
 * 1. A claim is part of one IMMEDIATE transaction: no other connection can claim or settle between
 *    its reads and its writes.
 * 2. Three queries on three partial indexes find ready, due and expired messages. Rows in backoff,
 *    delivered, dead or held are in none of them. The first two are merged by due time, so that
 *    neither starves the other.
 * 3. A message with an expired lease may have crashed its worker. It is claimed alone, so that it
 *    cannot affect others, and not before the earlier ones of its key. Until then it stays
 *    unchanged.
 * 4. A message without attempts left is dead-lettered when a claim meets it.
 * 5. A batch contains claimed rows only after the commit; on failure it is empty.
 */
#include "base/assert.h"
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS "{columns}, " PR_SQLITE_CONTENT PR_SQLITE_ORDER
#define PENDING "SELECT " COLUMNS "FROM {table} AS m INDEXED BY {table}_"
/*
 * A message in state 'new' was due when it was enqueued, whatever the clock says now. Its time
 * matters only while earlier delayed messages may not have joined their keys yet (?7).
 */
#define READY                                                                                      \
	PENDING "ready WHERE " PR_SQLITE_READY "AND seq > ?6 "                                     \
		"AND (next_attempt_at <= ?4 OR (state = 'new' AND NOT ?7)) "                       \
		"AND " PR_SQLITE_IN_SCOPE "ORDER BY seq"
#define DUE                                                                                        \
	PENDING "due WHERE " PR_SQLITE_DUE "AND next_attempt_at <= ?4 AND " PR_SQLITE_IN_SCOPE     \
		"ORDER BY next_attempt_at, seq"

#define EXPIRED                                                                                    \
	"SELECT " COLUMNS "FROM {table} AS m INDEXED BY {table}_leased "                           \
	"WHERE status = '{active}' AND locked_until < ?4 AND attempts >= ?6 "                      \
	"AND " PR_SQLITE_IN_SCOPE "ORDER BY locked_until, seq"

/* OR FAIL saves SQLite a journal for the statement. Any failure rolls back the transaction. */
#define CLAIM                                                                                      \
	"UPDATE OR FAIL {table} SET status = '{active}', attempts = attempts + 1, "                \
	"claims = claims + 1, locked_by = ?1, locked_until = ?2, last_attempt_at = ?3, "           \
	"updated_at = ?3 WHERE seq IN (SELECT value FROM json_each(?4))"

#define MARK_DEAD                                                                                  \
	"UPDATE {table} SET status = 'dead', state = 'dead', locked_by = NULL, locked_until = "    \
	"NULL, "                                                                                   \
	"last_error = coalesce(?1, last_error), updated_at = ?2 WHERE seq = ?3"

#define ANY(index, condition)                                                                      \
	"EXISTS (SELECT 1 FROM {table} INDEXED BY {table}_" index " WHERE " condition              \
	"AND " PR_SQLITE_IN_SCOPE ") "

/*
 * An expired lease does not end a wait at once: the expired messages that the last claim skipped
 * wait for others, or for the next takeover. A held message does not end it either: it may be
 * stranded.
 */
#define NEXT_DUE                                                                                   \
	"SELECT (SELECT CASE state WHEN 'new' THEN 0 ELSE next_attempt_at END "                    \
	"FROM {table} INDEXED BY {table}_ready "                                                   \
	"WHERE " PR_SQLITE_READY "AND seq > ?5 AND " PR_SQLITE_IN_SCOPE "ORDER BY seq LIMIT 1), "  \
	"(SELECT next_attempt_at FROM {table} INDEXED BY {table}_due "                             \
	"WHERE " PR_SQLITE_DUE "AND " PR_SQLITE_IN_SCOPE                                           \
	"ORDER BY next_attempt_at, seq LIMIT 1), "                                                 \
	"(SELECT locked_until FROM {table} INDEXED BY {table}_leased "                             \
	"WHERE status = '{active}' AND locked_until >= ?4 AND " PR_SQLITE_IN_SCOPE                 \
	"ORDER BY locked_until LIMIT 1), " ANY("leased", "status = '{active}' AND locked_until < " \
							 "?4 ") "OR " ANY(                         \
		"held",                                                                            \
		"state = 'held' AND status = 'pending' ") ", (SELECT max(seq) FROM {table})"

/*
 * A held message is not counted: its blocker is, or waits for an operator. It is counted once it
 * has no blocker: claims unblock such messages, a few keys at a time.
 */
#define EARLIER(index, condition)                                                                  \
	"EXISTS (SELECT 1 FROM {table} AS e INDEXED BY {table}_" index                             \
	" WHERE e.key = {table}.key AND e.topic = {table}.topic "                                  \
	"AND e.namespace = {table}.namespace AND e.seq < {table}.seq AND " condition ") "
#define STRANDED                                                                                   \
	"state = 'held' AND status = 'pending' AND NOT " EARLIER(                                  \
		"key", PR_SQLITE_IN_ORDER                                                          \
		"AND e.status IN ('pending', '{active}')") "AND NOT (?5 AND " EARLIER("blocking",  \
										      "e.key IS "  \
										      "NOT NULL "  \
										      "AND "       \
										      "e.state = " \
										      "'dead' "    \
										      "AND "       \
										      "e.status "  \
										      "= 'dead'") ") "
/* A time that is not later than its enqueueing is no delay, whatever the clock says now. */
#define WAITING                                                                                    \
	"AND (next_attempt_at <= ?4 OR claims > 0 OR (state = 'new' AND next_attempt_at < "        \
	"created_at)) "
#define UNFINISHED                                                                                 \
	"SELECT " ANY("leased", "status = '{active}' ") "OR " ANY(                                 \
		"ready", PR_SQLITE_READY) "OR " ANY("due",                                         \
						    PR_SQLITE_DUE WAITING) "OR " ANY("held",       \
										     STRANDED)

#define UNROUTED_IN(index, condition)                                                              \
	"SELECT {scope_ns} AS ns, {scope_topic} AS topic FROM {table} INDEXED BY {table}_" index   \
	" WHERE " condition "AND " PR_SQLITE_SCOPE "AND NOT (true {rules}) "
#define UNROUTED                                                                                        \
	"SELECT count(*), ns, topic FROM (" UNROUTED_IN(                                                \
		"ready",                                                                                \
		PR_SQLITE_READY) "UNION ALL " UNROUTED_IN("due", PR_SQLITE_DUE) "UNION "                \
										"ALL"                   \
										" " UNROUTED_IN("held", \
												"state = 'held' AND status = 'pending' ") "LIMIT ?4)"

#define EXPIRED_REASON "the lease ran out during the last attempt: its worker died or hung"

/* Most expired rows that one claim dead-letters. */
#define EXPIRED_AT_ONCE 100

#define PATHS_MAX 2

/* One of the queries that a claim reads from. */
struct claim_path {
	sqlite3_stmt *stmt;
	bool ready;
	int rc; /* of its last step; SQLITE_OK: its row was handled */
};

struct reading {
	struct claim_path paths[PATHS_MAX];
	int count;
	const struct pr_table *table;
	const struct pr_claim *claim;
	int32_t limit;
	int32_t dead_limit;
	size_t max_bytes;
	int64_t now_us;
	int64_t first_ready; /* the first ready seq that was found */
	int64_t found_us;    /* how long it took to find it, or that there is none */
	bool expired;
	bool joining; /* delayed messages still join their keys: later messages are not visible yet */
	struct sqlite_content content;
	size_t bytes;
	int held, made_ready; /* how many of store->seqs and store->made_ready */
	int skipped;
};

/* One call to claim or sweep. */
struct claiming {
	struct sqlite_store *store;
	const struct pr_table *table;
	const struct pr_claim *claim;
	struct postroom_batch *batch;
	int64_t now_us;
};

static bool is_full(const struct reading *reading, const struct postroom_batch *batch)
{
	return batch->count >= (size_t)reading->limit ||
	       batch->dead_letter_count >= (size_t)reading->dead_limit ||
	       (batch->count > 0 && reading->bytes >= reading->max_bytes) ||
	       reading->held + reading->made_ready >= PR_SQLITE_ORDER_AT_ONCE ||
	       reading->skipped >= PR_SQLITE_SKIP_MOST;
}

static bool is_older(const struct claim_path *a, const struct claim_path *b)
{
	int64_t a_us = sqlite3_column_int64(a->stmt, PR_SQLITE_COL_DUE);
	int64_t b_us = sqlite3_column_int64(b->stmt, PR_SQLITE_COL_DUE);

	return a_us < b_us || (a_us == b_us && sqlite3_column_int64(a->stmt, PR_COL_SEQ) <
						       sqlite3_column_int64(b->stmt, PR_COL_SEQ));
}

/* The row that has been due for longest; NULL when there is none, or on failure. */
static struct claim_path *oldest(struct reading *reading)
{
	int64_t begun_us = reading->found_us ? 0 : pr_mono_us();
	struct claim_path *found = NULL;

	for (int i = 0; i < reading->count; i++) {
		struct claim_path *path = &reading->paths[i];

		if (path->rc == SQLITE_OK)
			path->rc = sqlite3_step(path->stmt);
		if (!reading->found_us && path->ready) {
			reading->found_us = pr_mono_us() - begun_us + 1;
			if (path->rc == SQLITE_ROW)
				reading->first_ready = sqlite3_column_int64(path->stmt, PR_COL_SEQ);
		}
		if (path->rc != SQLITE_ROW && path->rc != SQLITE_DONE)
			return NULL;
		if (path->rc == SQLITE_ROW && (!found || is_older(path, found)))
			found = path;
	}
	return found;
}

/* A row with an expired lease is left unchanged, unless only an operator can unblock it. */
static void hold_row(struct sqlite_store *store, struct reading *reading, enum sqlite_order order,
		     int64_t seq)
{
	if (reading->expired && order != ORDER_BLOCK)
		return;
	if (order == ORDER_SKIP) {
		reading->skipped++;
	} else if (order == ORDER_MAKE_READY) {
		pr_sqlite_add_seq(&store->made_ready, seq);
		reading->made_ready++;
	} else {
		pr_sqlite_add_seq(&store->seqs, seq);
		reading->held++;
	}
}

/* Claims the row under the cursor, or holds it if it has to wait for others of its key. */
static int claim_row(struct sqlite_store *store, struct reading *reading, struct claim_path *path,
		     struct postroom_batch *batch, struct pr_err *err)
{
	int64_t seq = sqlite3_column_int64(path->stmt, PR_COL_SEQ);
	bool spent = sqlite3_column_int(path->stmt, PR_COL_ATTEMPTS) >=
		     reading->claim->max_attempts;
	enum sqlite_order order = ORDER_CLAIM;
	postroom_delivery *item;
	int status = POSTROOM_OK;

	if (!spent && !reading->claim->unordered)
		status = pr_sqlite_order_decide(store, reading->table, path->stmt,
						path->ready && !reading->joining, &order, err);
	if (status < 0)
		return status;
	if (order != ORDER_CLAIM) {
		hold_row(store, reading, order, seq);
		return POSTROOM_OK;
	}
	item = spent ? pr_batch_add_dead_letter(batch) : pr_batch_add(batch);
	if (!item)
		return pr_err_nomem(err);
	status = pr_sqlite_read_row(path->stmt, reading->table, &batch->arena, item, err);
	/* The content of a dead letter is not needed. */
	if (status < 0 || spent)
		return status;
	item->unordered = reading->claim->unordered;
	item->due_us = sqlite3_column_int64(path->stmt, PR_SQLITE_COL_DUE);
	if (item->key && !pr_sqlite_order_claimed(store, seq))
		return pr_err_nomem(err);
	status = pr_sqlite_read_content(&reading->content, path->stmt, item, err);
	reading->bytes += item->withheld + item->payload_len + item->body_len +
			  strlen(item->headers);
	return status;
}

/*
 * Reads rows into the batch until it is full or the rows run out; rows without
 * attempts left go to the dead letters and do not count.
 */
static int read_rows(struct sqlite_store *store, struct reading *reading,
		     struct postroom_batch *batch, struct pr_err *err)
{
	struct claim_path *path;
	int status = POSTROOM_OK;

	pr_sqlite_order_begin(store, reading->table, &reading->claim->scope, reading->now_us);
	pr_buf_reset(&store->seqs);
	pr_buf_reset(&store->made_ready);
	reading->content = (struct sqlite_content){
		.store = store,
		.table = reading->table,
		.arena = &batch->arena,
		.most = reading->claim->max_bytes ? PR_LARGE_BYTES : 0,
	};
	while (status >= 0 && !is_full(reading, batch) && (path = oldest(reading))) {
		status = claim_row(store, reading, path, batch, err);
		path->rc = SQLITE_OK;
	}
	for (int i = 0; i < reading->count; i++) {
		int rc = reading->paths[i].rc;

		if (status >= 0 && rc != SQLITE_OK && rc != SQLITE_ROW && rc != SQLITE_DONE)
			status = pr_sqlite_fail(store->db, store, "claiming messages", err);
	}
	for (int i = 0; i < reading->count; i++)
		sqlite3_reset(reading->paths[i].stmt);
	pr_sqlite_close_content(&reading->content);
	if (status >= 0 && reading->held)
		status = pr_sqlite_order_hold(store, reading->table, reading->expired, err);
	if (status >= 0 && reading->made_ready)
		status = pr_sqlite_order_make_ready(store, reading->table, err);
	return status;
}

static int add_path(struct sqlite_store *store, struct reading *reading, enum sqlite_slot slot,
		    const char *sql, int64_t due_us, struct pr_err *err)
{
	struct claim_path *path;

	pr_assert(reading->count < PATHS_MAX);
	path = &reading->paths[reading->count++];
	path->stmt = pr_sqlite_prepare(store, slot, reading->table, sql, err);
	path->ready = slot == SLOT_READY;
	if (!path->stmt || pr_sqlite_bind_scope(path->stmt, &reading->claim->scope, err) < 0)
		return err->status;
	sqlite3_bind_int64(path->stmt, 4, due_us);
	sqlite3_bind_int(path->stmt, 5, reading->claim->block);
	return POSTROOM_OK;
}

/* At most limit rows with at least min_attempts, of which one may have attempts left. */
static int read_expired(const struct claiming *claiming, int32_t limit, int32_t min_attempts,
			struct pr_err *err)
{
	struct reading reading = {
		.table = claiming->table,
		.claim = claiming->claim,
		.limit = 1,
		.dead_limit = limit,
		.max_bytes = claiming->claim->max_bytes,
		.now_us = claiming->now_us,
		.expired = true,
	};
	int status = add_path(claiming->store, &reading, SLOT_EXPIRED, EXPIRED, claiming->now_us,
			      err);

	if (status < 0)
		return status;
	sqlite3_bind_int(reading.paths[0].stmt, 6, min_attempts);
	return read_rows(claiming->store, &reading, claiming->batch, err);
}

static int read_pending(const struct claiming *claiming, int64_t due_us, bool *ret_more,
			struct pr_err *err)
{
	struct sqlite_store *store = claiming->store;
	const struct pr_table *table = claiming->table;
	const struct pr_claim *claim = claiming->claim;
	struct reading reading = {
		.table = table,
		.claim = claim,
		.limit = claim->limit,
		.dead_limit = INT32_MAX,
		.max_bytes = claim->max_bytes,
		.now_us = claiming->now_us,
		.joining = due_us < claiming->now_us,
	};
	int64_t low_water_seq = pr_sqlite_low_water(store, table, &claim->scope);
	int status = add_path(store, &reading, SLOT_READY, READY, due_us, err);

	if (status >= 0) {
		sqlite3_bind_int64(reading.paths[0].stmt, 6, low_water_seq);
		sqlite3_bind_int(reading.paths[0].stmt, 7, reading.joining);
		status = add_path(store, &reading, SLOT_DUE, DUE, due_us, err);
	}
	if (status >= 0)
		status = read_rows(store, &reading, claiming->batch, err);
	/* While messages join their keys, earlier ones than the first found may appear. */
	if (status >= 0 && reading.found_us > 0 && !reading.joining)
		pr_sqlite_raise_low_water(store, table, &claim->scope, low_water_seq,
					  reading.first_ready, reading.found_us);
	sqlite_side(store, table)->skipped = reading.skipped > 0;
	*ret_more |= reading.made_ready > 0 || reading.held >= PR_SQLITE_ORDER_AT_ONCE;
	return status;
}

static int lease_items(struct sqlite_store *store, const struct pr_table *table,
		       const struct pr_claim *claim, int64_t now_us, struct postroom_batch *batch,
		       struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_CLAIM, table, CLAIM, err);
	int status;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, store->base.worker);
	sqlite3_bind_int64(stmt, 2, now_us + claim->lease_ms * 1000);
	sqlite3_bind_int64(stmt, 3, now_us);
	pr_buf_reset(&store->seqs);
	for (size_t i = 0; i < batch->count; i++) {
		batch->items[i].attempt++;
		batch->items[i].fencing_token++;
		pr_sqlite_add_seq(&store->seqs, batch->items[i].seq);
	}
	status = pr_sqlite_bind_seqs(stmt, 4, &store->seqs, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "claiming messages", err);
	return status;
}

/* Dead-letters the rows from index `from` on. reason NULL keeps their last error. */
static int dead_letter_rows(const struct claiming *claiming, size_t from, const char *reason,
			    struct pr_err *err)
{
	struct sqlite_store *store = claiming->store;
	const struct pr_table *table = claiming->table;
	struct postroom_batch *batch = claiming->batch;
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_DEAD_LETTER, table, MARK_DEAD, err);
	int status = POSTROOM_OK;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, reason);
	sqlite3_bind_int64(stmt, 2, claiming->now_us);
	for (size_t i = from; status >= 0 && i < batch->dead_letter_count; i++) {
		batch->dead_letters[i].reason = reason;
		batch->dead_letters[i].dead = 1;
		sqlite3_bind_int64(stmt, 3, batch->dead_letters[i].seq);
		status = pr_sqlite_run(store, stmt, "dead-lettering messages", err);
	}
	if (status >= 0)
		status = pr_sqlite_unblock_settled(store, table, batch->dead_letters + from,
						   batch->dead_letter_count - from,
						   claiming->claim->block, err);
	return status;
}

/* Records a failed attempt for each reclaimed message, even if its old worker still runs. */
static int record_takeovers(struct sqlite_store *store, const struct pr_table *table,
			    const struct postroom_batch *batch, struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (size_t i = 0; status >= 0 && i < batch->count; i++)
		status = pr_sqlite_add_attempt(store, table, &batch->items[i], NULL,
					       PR_TAKEOVER_REASON, err);
	for (size_t i = 0; status >= 0 && i < batch->dead_letter_count; i++)
		status = pr_sqlite_add_attempt(store, table, &batch->dead_letters[i], NULL,
					       EXPIRED_REASON, err);
	return status;
}

/* Takeover: dead-letters rows without attempts left, and claims one other row alone. */
static int claim_expired(const struct claiming *claiming, struct pr_err *err)
{
	int status = pr_sqlite_unblock_stranded(claiming->store, claiming->table,
						claiming->claim->block, err);

	if (status >= 0)
		status = read_expired(claiming, EXPIRED_AT_ONCE, 0, err);
	if (status >= 0)
		status = record_takeovers(claiming->store, claiming->table, claiming->batch, err);
	if (status >= 0 && claiming->batch->dead_letter_count > 0)
		status = dead_letter_rows(claiming, 0, EXPIRED_REASON, err);
	return status;
}

int pr_sqlite_claim_rows(struct sqlite_store *store, const struct pr_table *table,
			 const struct pr_claim *claim, struct postroom_batch *batch, bool *ret_more,
			 struct pr_err *err)
{
	int64_t now_us = pr_now_us(), due_us = now_us;
	const struct claiming claiming = { store, table, claim, batch, now_us };
	size_t expired;
	int status = pr_sqlite_order_join(store, table, now_us, &due_us, err);

	*ret_more = due_us != now_us;
	if (status >= 0 && claim->reclaim_expired)
		status = claim_expired(&claiming, err);
	expired = batch->dead_letter_count;
	if (status >= 0 && batch->count == 0)
		status = read_pending(&claiming, due_us, ret_more, err);
	if (status >= 0 && batch->dead_letter_count > expired)
		status = dead_letter_rows(&claiming, expired, NULL, err);
	if (status >= 0 && batch->count > 0)
		status = lease_items(store, table, claim, now_us, batch, err);
	return status;
}

int pr_sqlite_sweep(struct postroom_store *base, const struct pr_table *table,
		    const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err)
{
	const struct claiming claiming = { sqlite_store(base), table, claim, batch, pr_now_us() };
	int status = pr_sqlite_begin(base, err);

	if (status < 0)
		return status;
	status = read_expired(&claiming, claim->limit, claim->max_attempts, err);
	if (status >= 0)
		status = record_takeovers(claiming.store, table, batch, err);
	if (status >= 0)
		status = dead_letter_rows(&claiming, 0, EXPIRED_REASON, err);
	status = pr_sqlite_end(base, status, err);
	if (status < 0)
		pr_batch_reset(batch);
	return status;
}

/* A query of one row over a scope. */
static sqlite3_stmt *prepare_scan(struct sqlite_store *store, enum sqlite_slot slot,
				  const struct pr_table *table, const char *sql,
				  const struct pr_scope *scope, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, slot, table, sql, err);

	if (!stmt || pr_sqlite_bind_scope(stmt, scope, err) < 0)
		return NULL;
	return stmt;
}

/* The statement is left on its row, unless this fails. */
static int run_scan(struct sqlite_store *store, sqlite3_stmt *stmt, struct pr_err *err)
{
	if (sqlite3_step(stmt) == SQLITE_ROW)
		return POSTROOM_OK;
	pr_sqlite_fail(store->db, store, "checking for work", err);
	sqlite3_reset(stmt);
	return err->status;
}

int pr_sqlite_next_due(struct sqlite_store *store, const struct pr_table *table,
		       const struct pr_scope *scope, int64_t *ret_ms, bool *ret_unsure,
		       struct pr_err *err)
{
	int64_t next_us = INT64_MAX, now_us = pr_now_us(), begun_us = pr_mono_us();
	int64_t low_water_seq = pr_sqlite_low_water(store, table, scope);
	sqlite3_stmt *stmt = prepare_scan(store, SLOT_NEXT_DUE, table, NEXT_DUE, scope, err);

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 4, now_us);
	sqlite3_bind_int64(stmt, 5, low_water_seq);
	if (run_scan(store, stmt, err) < 0)
		return err->status;
	for (int column = 0; column < 3; column++) {
		int64_t due_us = sqlite3_column_int64(stmt, column);

		if (sqlite3_column_type(stmt, column) != SQLITE_NULL && due_us < next_us)
			next_us = due_us;
	}
	/* The clock may have been ahead when the first ready message was written. Later ones may be due. */
	*ret_unsure = sqlite3_column_int64(stmt, 0) > now_us || sqlite3_column_int(stmt, 3) != 0;
	if (sqlite3_column_type(stmt, 0) == SQLITE_NULL)
		pr_sqlite_raise_low_water_idle(sqlite_side(store, table), scope, low_water_seq,
					       sqlite3_column_int64(stmt, 4),
					       pr_mono_us() - begun_us,
					       next_us == INT64_MAX && !*ret_unsure);
	sqlite3_reset(stmt);
	if (next_us != INT64_MAX)
		next_us = next_us <= now_us ? 0 : (next_us - now_us + 999) / 1000;
	*ret_ms = next_us;
	return POSTROOM_OK;
}

int pr_sqlite_unfinished(struct postroom_store *base, const struct pr_table *table,
			 const struct pr_claim *claim, bool *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = prepare_scan(store, SLOT_UNFINISHED, table, UNFINISHED, &claim->scope,
					  err);

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 4, pr_now_us());
	sqlite3_bind_int(stmt, 5, claim->block);
	if (run_scan(store, stmt, err) < 0)
		return err->status;
	*ret = sqlite3_column_int(stmt, 0) != 0;
	sqlite3_reset(stmt);
	return POSTROOM_OK;
}

static void copy_name(char *out, size_t size, const unsigned char *name)
{
	snprintf(out, size, "%s", name ? (const char *)name : "");
}

int pr_sqlite_unrouted(struct postroom_store *base, const struct pr_table *table,
		       const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
		       struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt;

	*ret = (struct pr_unrouted){ 0 };
	if (store->rules.count == 0)
		return POSTROOM_OK;
	stmt = prepare_scan(store, SLOT_UNROUTED, table, UNROUTED, scope, err);
	if (!stmt)
		return err->status;
	sqlite3_bind_int(stmt, 4, limit);
	if (run_scan(store, stmt, err) < 0)
		return err->status;
	ret->count = sqlite3_column_int64(stmt, 0);
	copy_name(ret->ns, sizeof(ret->ns), sqlite3_column_text(stmt, 1));
	copy_name(ret->topic, sizeof(ret->topic), sqlite3_column_text(stmt, 2));
	sqlite3_reset(stmt);
	return POSTROOM_OK;
}
