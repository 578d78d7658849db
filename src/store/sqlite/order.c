/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a key (D6): which messages wait for which, and how they are held.
 *
 * 1. Most messages are ready and claimed in the order of seq, which is the order of every key. The
 *    index of keys has only exceptions: messages that were claimed before, are held, have a head
 *    start, or became ready later, where a low-water mark may hide them (low_water.c).
 * 2. A message is claimed only if the nearest one before it in that index is in the same batch, or
 *    there is none. If it was not found by seq, no earlier message of its key may be ready either.
 *    A claim is alone in the database, so what it sees is valid until it commits.
 * 3. A message behind an unfinished one is held (state 'held') by the first claim that meets it,
 *    and is then in no index that claims read: held messages cost nothing. Messages that wait only
 *    for a moment are skipped.
 * 4. An unblocked message (settle.c) is only a candidate; the claim decides.
 * 5. A delayed message is not part of the order before it is due.
 */
#include "store/sqlite/sqlite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many ready messages are scanned for an earlier one of a key. */
#define FRONT_MOST 20000
/* A message claimed less than this ago is nearly done: holding its successors costs more than skipping them. */
#define YOUNG_US 200000

#define DELAYED                                                                                    \
	"SELECT seq, next_attempt_at FROM {table} INDEXED BY {table}_delayed "                     \
	"WHERE key IS NOT NULL AND state = 'new' AND next_attempt_at > created_at "                \
	"AND next_attempt_at <= ?1 "                                                               \
	"ORDER BY next_attempt_at LIMIT ?2"

#define FRONT                                                                                      \
	"SELECT seq, key, topic, namespace FROM {table} INDEXED BY {table}_ready "                 \
	"WHERE " PR_SQLITE_READY "AND seq > ?4 AND seq < ?5 AND " PR_SQLITE_IN_SCOPE               \
	"ORDER BY seq LIMIT ?6"

#define IN_SEQS "WHERE seq IN (SELECT value FROM json_each(?1))"
#define MAKE_READY "UPDATE OR FAIL {table} SET state = 'ready' " IN_SEQS
#define HOLD "UPDATE OR FAIL {table} SET state = 'held' " IN_SEQS
#define HOLD_EXPIRED                                                                               \
	"UPDATE OR FAIL {table} SET status = 'pending', state = 'held', locked_by = NULL, "        \
	"locked_until = NULL " IN_SEQS

#define EARLIER                                                                                    \
	"SELECT e.seq, e.status = '{active}' AND e.last_attempt_at BETWEEN ?5 AND ?6 "             \
	"AND e.locked_until > ?6 FROM {table} AS e INDEXED BY {table}_key "                        \
	"WHERE " PR_SQLITE_UNFINISHED_OF_KEY "AND e.seq < ?4 ORDER BY e.seq DESC LIMIT 1"

static int64_t hash_of(sqlite3_stmt *row)
{
	return pr_sqlite_hash_key(pr_sqlite_key_part(row, PR_COL_KEY), pr_sqlite_key_part(row, PR_COL_TOPIC),
			  pr_sqlite_key_part(row, PR_COL_NAMESPACE));
}

/* Runs a statement over the messages of seqs. */
static int update_seqs(struct sqlite_store *store, const struct pr_table *table,
		       enum sqlite_slot slot, const char *sql, struct pr_buf *seqs,
		       struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, slot, table, sql, err);
	int status;

	if (!stmt)
		return err->status;
	status = pr_sqlite_bind_seqs(stmt, 1, seqs, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "keeping the order of a key", err);
	return status;
}

void pr_sqlite_order_begin(struct sqlite_store *store, const struct pr_table *table,
			   const struct pr_scope *scope, int64_t now_us)
{
	pr_sqlite_map_clear(&store->claimed);
	pr_sqlite_map_clear(&store->held_keys);
	pr_sqlite_map_clear(&store->front);
	/* A message that became ready below the low-water mark is in the index of keys. */
	store->front_end = pr_sqlite_low_water(store, table, scope);
	store->front_read = 0;
	store->claim_scope = scope;
	store->claim_us = now_us;
	store->checked_seq = 0;
}

int pr_sqlite_order_join(struct sqlite_store *store, const struct pr_table *table, int64_t now_us,
			 int64_t *ret_due_us, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_DELAYED, table, DELAYED, err);
	int64_t last_us = now_us;
	int joined = 0, rc;
	int status;

	if (!stmt)
		return err->status;
	pr_buf_reset(&store->made_ready);
	sqlite3_bind_int64(stmt, 1, now_us);
	sqlite3_bind_int(stmt, 2, PR_SQLITE_ORDER_AT_ONCE);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		pr_sqlite_add_seq(&store->made_ready, sqlite3_column_int64(stmt, 0));
		last_us = sqlite3_column_int64(stmt, 1);
		joined++;
	}
	status = pr_sqlite_end_query(store, stmt, rc, err);
	if (status < 0)
		return status;
	/* There may be more of the same time. */
	*ret_due_us = joined == PR_SQLITE_ORDER_AT_ONCE ? last_us - 1 : now_us;
	return joined ? pr_sqlite_order_make_ready(store, table, err) : POSTROOM_OK;
}

/* Reads the ready messages before seq, if they are not too many. */
static int read_front(struct sqlite_store *store, const struct pr_table *table, int64_t seq,
		      struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_FRONT, table, FRONT, err);
	bool stored = true;
	int rc;

	if (!stmt || pr_sqlite_bind_scope(stmt, store->claim_scope, err) < 0)
		return err->status;
	sqlite3_bind_int64(stmt, 4, store->front_end);
	sqlite3_bind_int64(stmt, 5, seq);
	sqlite3_bind_int(stmt, 6, FRONT_MOST - store->front_read);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && stored) {
		store->front_end = sqlite3_column_int64(stmt, 0);
		store->front_read++;
		if (sqlite3_column_type(stmt, 1) != SQLITE_NULL)
			stored = pr_sqlite_map_put(
				&store->front,
				pr_sqlite_hash_key(pr_sqlite_key_part(stmt, 1), pr_sqlite_key_part(stmt, 2), pr_sqlite_key_part(stmt, 3)),
				store->front_end);
	}
	if (!stored) {
		sqlite3_reset(stmt);
		return pr_err_nomem(err);
	}
	if (rc == SQLITE_DONE && store->front_read < FRONT_MOST)
		store->front_end = seq - 1;
	return pr_sqlite_end_query(store, stmt, rc, err);
}

/* Is an earlier message of its key ready? If there are too many to know, the answer is yes. */
static int has_earlier_ready(struct sqlite_store *store, const struct pr_table *table,
			     sqlite3_stmt *row, enum sqlite_order *ret, struct pr_err *err)
{
	int64_t seq = sqlite3_column_int64(row, PR_COL_SEQ);
	int status = POSTROOM_OK;

	if (store->front_end < seq - 1 && store->front_read < FRONT_MOST)
		status = read_front(store, table, seq, err);
	if (status >= 0 &&
	    (store->front_end < seq - 1 || pr_sqlite_map_get(&store->front, hash_of(row), INT64_MAX) < seq))
		*ret = ORDER_MAKE_READY;
	return status;
}

/*
 * The index also has rows whose status was set to dead or delivered by hand. They block no other
 * message. This slower query excludes them.
 */
static int check_blocker(struct sqlite_store *store, const struct pr_table *table,
			 sqlite3_stmt *row, int64_t earlier, enum sqlite_order *ret,
			 struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_EARLIER, table, EARLIER, err);
	int rc;

	if (!stmt)
		return err->status;
	/* Many messages wait behind one blocker, and all get the same answer. */
	if (store->checked_seq == earlier) {
		*ret = (enum sqlite_order)store->checked_order;
		return POSTROOM_OK;
	}
	pr_sqlite_bind_key(stmt, pr_sqlite_key_part(row, PR_COL_KEY), pr_sqlite_key_part(row, PR_COL_TOPIC),
		 pr_sqlite_key_part(row, PR_COL_NAMESPACE));
	sqlite3_bind_int64(stmt, 4, sqlite3_column_int64(row, PR_COL_SEQ));
	sqlite3_bind_int64(stmt, 5, store->claim_us - YOUNG_US);
	sqlite3_bind_int64(stmt, 6, store->claim_us);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW && !pr_sqlite_map_get(&store->claimed, sqlite3_column_int64(stmt, 0), 0)) {
		*ret = sqlite3_column_int(stmt, 1) ? ORDER_SKIP : ORDER_HOLD;
		store->checked_seq = earlier;
		store->checked_order = *ret;
	}
	return pr_sqlite_end_query(store, stmt, rc, err);
}

int pr_sqlite_order_decide(struct sqlite_store *store, const struct pr_table *table,
			   sqlite3_stmt *row, bool ready, enum sqlite_order *ret,
			   struct pr_err *err)
{
	int64_t earlier = sqlite3_column_int64(row, PR_SQLITE_COL_EARLIER);
	int64_t seq = sqlite3_column_int64(row, PR_COL_SEQ);
	int status = POSTROOM_OK;

	*ret = ORDER_CLAIM;
	if (sqlite3_column_type(row, PR_COL_KEY) == SQLITE_NULL)
		return POSTROOM_OK;
	if (sqlite3_column_int(row, PR_SQLITE_COL_BLOCKED))
		*ret = ORDER_BLOCK;
	else if (sqlite3_column_type(row, PR_SQLITE_COL_EARLIER) != SQLITE_NULL &&
		 !pr_sqlite_map_get(&store->claimed, earlier, 0))
		status = check_blocker(store, table, row, earlier, ret, err);
	if (status >= 0 && *ret == ORDER_CLAIM && !ready)
		status = has_earlier_ready(store, table, row, ret, err);
	/* Messages that this same claim holds are not in the index yet. */
	if (*ret == ORDER_CLAIM && store->held_keys.used &&
	    pr_sqlite_map_get(&store->held_keys, hash_of(row), INT64_MAX) < seq)
		*ret = ORDER_HOLD;
	if (status >= 0 && *ret != ORDER_CLAIM && !pr_sqlite_map_put(&store->held_keys, hash_of(row), seq))
		status = pr_err_nomem(err);
	return status;
}

bool pr_sqlite_order_claimed(struct sqlite_store *store, int64_t seq)
{
	return pr_sqlite_map_put(&store->claimed, seq, 1);
}

int pr_sqlite_order_hold(struct sqlite_store *store, const struct pr_table *table, bool expired,
			 struct pr_err *err)
{
	return expired ? update_seqs(store, table, SLOT_HOLD_EXPIRED, HOLD_EXPIRED, &store->seqs,
				     err)
		       : update_seqs(store, table, SLOT_HOLD, HOLD, &store->seqs, err);
}

int pr_sqlite_order_make_ready(struct sqlite_store *store, const struct pr_table *table,
			       struct pr_err *err)
{
	return update_seqs(store, table, SLOT_MAKE_READY, MAKE_READY, &store->made_ready, err);
}
