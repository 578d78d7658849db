/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settles and renews (A1–A4, A6, A7).
 *
 * 1. Every change is guarded by locked_by and by claims, the fencing token: a late ack of an
 *    earlier claim changes nothing.
 * 2. A lost lease is reported, never repaired: another worker has the row.
 * 3. All verdicts of a call are one transaction. The statements use OR FAIL, which saves SQLite a
 *    journal for each of them: on any failure the whole transaction is rolled back.
 * 4. A dedupe key is kept before its message is deleted.
 * 5. A job is completed before its statement runs: if the lease is lost, there is no effect.
 * 6. When a message of a key ends, the next ones are unblocked, a run at a time, in the same
 *    transaction (D6).
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#include <stdio.h>

/* Without a worker the fencing token suffices: no two claims of a row have the same. */
#define GUARD "AND status = '{active}' AND locked_by = coalesce(?3, locked_by) AND claims = ?4"
#define ONE "WHERE seq = ?2 " GUARD
#define MANY "WHERE seq IN (SELECT value FROM json_each(?2)) " GUARD

#define RELEASE                                                                                    \
	"UPDATE OR FAIL {table} SET status = 'pending', attempts = max(attempts - 1, 0), "         \
	"last_error = coalesce(?5, last_error), locked_by = NULL, locked_until = NULL, "           \
	"updated_at = ?1 "
#define DONE                                                                                       \
	"UPDATE OR FAIL {table} SET status = '{done}', last_error = NULL, "                        \
	"locked_by = NULL, locked_until = NULL, {done_at} = ?1, updated_at = ?1 "
#define RETRY                                                                                      \
	"UPDATE OR FAIL {table} SET status = 'pending', state = 'scheduled', next_attempt_at = "   \
	"?6, "                                                                                     \
	"last_error = ?5, locked_by = NULL, locked_until = NULL, updated_at = ?1 "
#define MARK_DEAD                                                                                  \
	"UPDATE OR FAIL {table} SET status = 'dead', state = 'dead', last_error = ?5, "            \
	"locked_by = NULL, locked_until = NULL, updated_at = ?1 "
#define DELETE "DELETE FROM {table} "
#define KEEP_DEDUPE_KEYS                                                                           \
	"INSERT OR IGNORE INTO postroom_dedupe (namespace, topic, dedupe_key, id, created_at) "    \
	"SELECT namespace, topic, dedupe_key, id, ?4 FROM postroom_outbox "                        \
	"WHERE seq IN (SELECT value FROM json_each(?1)) AND dedupe_key IS NOT NULL "               \
	"AND (?2 = 0 OR (locked_by = ?3 AND claims = ?2))"
#define RENEW "UPDATE OR FAIL {table} SET locked_until = ?5, updated_at = ?1 "

/* How many messages are unblocked at once. */
#define UNBLOCK_AT_ONCE 500
/* Up to this many keys with held messages are listed, instead of one query per settled message. */
#define FEW_KEYS 50

#define ANY_HELD "SELECT 1 FROM {table} INDEXED BY {table}_held WHERE state = 'held' LIMIT 1"

#define FIRST_OF_KEY                                                                               \
	"SELECT e.state = 'held', EXISTS (SELECT 1 FROM {table} AS d INDEXED BY {table}_blocking " \
	"WHERE d.key = ?1 AND d.topic = ?2 AND d.namespace = ?3 AND d.seq < e.seq "                \
	"AND d.key IS NOT NULL AND d.state = 'dead' AND d.status = 'dead') "                       \
	"FROM {table} AS e INDEXED BY {table}_key WHERE " PR_SQLITE_UNFINISHED_OF_KEY              \
	"ORDER BY e.seq LIMIT 1"

#define UNBLOCK                                                                                    \
	"UPDATE OR FAIL {table} SET state = 'ready' WHERE seq IN (SELECT seq FROM {table} "        \
	"INDEXED BY {table}_held WHERE state = 'held' AND key = ?1 AND topic = ?2 "                \
	"AND namespace = ?3 ORDER BY seq LIMIT ?4)"

/* Column by column: a comparison of all three at once would walk over every message of the key. */
#define HELD_KEY(condition, order)                                                                 \
	"SELECT * FROM (SELECT key, topic, namespace FROM {table} INDEXED BY {table}_held "        \
	"WHERE state = 'held' AND " condition " ORDER BY " order " LIMIT 1) "
#define NEXT_KEY                                                                                   \
	HELD_KEY("key = ?1 AND topic = ?2 AND namespace > ?3", "namespace")                        \
	"UNION ALL " HELD_KEY(                                                                     \
		"key = ?1 AND topic > ?2",                                                         \
		"topic, namespace") "UNION ALL " HELD_KEY("key > ?1",                              \
							  "key, topic, namespace") "LIMIT 1"

static const struct {
	enum sqlite_slot slot;
	const char *sql;
} dispositions[] = {
	[PR_DISPOSITION_RELEASE] = { SLOT_RELEASE, RELEASE ONE },
	[PR_DISPOSITION_DONE] = { SLOT_DONE, DONE ONE },
	[PR_DISPOSITION_RETRY] = { SLOT_RETRY, RETRY ONE },
	[PR_DISPOSITION_DEAD] = { SLOT_DEAD, MARK_DEAD ONE },
};

/* item->settled before the item was settled. */
#define UNSETTLED 1

/* One call to settle, renew or apply. */
struct settling {
	struct sqlite_store *store;
	const struct pr_table *table;
	const char *worker; /* NULL: the fencing token is the only guard */
	int64_t now_us;
};

/* Runs a guarded update; item->settled is whether the lease was still valid. */
static int run_guarded(const struct settling *settling, sqlite3_stmt *stmt, postroom_delivery *item,
		       const char *doing, struct pr_err *err)
{
	struct sqlite_store *store = settling->store;
	int status;

	sqlite3_bind_int64(stmt, 1, settling->now_us);
	sqlite3_bind_int64(stmt, 2, item->seq);
	pr_sqlite_bind(stmt, 3, settling->worker);
	sqlite3_bind_int64(stmt, 4, item->fencing_token);
	status = pr_sqlite_run(store, stmt, doing, err);
	if (status >= 0)
		item->settled = sqlite3_changes(store->db) ? POSTROOM_OK : POSTROOM_LEASE_LOST;
	return status;
}

static int settle_one(const struct settling *settling, postroom_delivery *item,
		      enum pr_disposition disposition, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(settling->store, dispositions[disposition].slot,
					       settling->table, dispositions[disposition].sql, err);
	int status;

	if (!stmt)
		return err->status;
	if (disposition != PR_DISPOSITION_DONE)
		pr_sqlite_bind(stmt, 5, item->reason);
	if (disposition == PR_DISPOSITION_RETRY)
		sqlite3_bind_int64(stmt, 6, settling->now_us + item->retry_in_ms * 1000);
	status = run_guarded(settling, stmt, item, "settling messages", err);
	item->dead = disposition == PR_DISPOSITION_DEAD && item->settled == POSTROOM_OK;
	/* The attempt failed, even if the lease was lost. */
	if (status >= 0 &&
	    (disposition == PR_DISPOSITION_RETRY || disposition == PR_DISPOSITION_DEAD))
		status = pr_sqlite_add_attempt(settling->store, settling->table, item,
					       settling->worker, item->reason, err);
	return status;
}

int pr_sqlite_keep_dedupe_keys(struct sqlite_store *store, int64_t fencing_token,
			       struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_KEEP_DEDUPE_KEY, NULL, KEEP_DEDUPE_KEYS,
					       err);
	int status;

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 2, fencing_token);
	pr_sqlite_bind(stmt, 3, store->base.worker);
	/* Not by the message's own created_at, which a producer may have set to any time. */
	sqlite3_bind_int64(stmt, 4, pr_now_us());
	status = pr_sqlite_bind_seqs(stmt, 1, &store->seqs, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "remembering dedupe keys", err);
	return status;
}

enum together { SETTLE_RELEASE, SETTLE_DONE, SETTLE_DELETE };

static const struct {
	enum sqlite_slot slot;
	const char *sql;
} many[] = {
	[SETTLE_RELEASE] = { SLOT_RELEASE_MANY, RELEASE MANY },
	[SETTLE_DONE] = { SLOT_DONE_MANY, DONE MANY },
	[SETTLE_DELETE] = { SLOT_DELETE_MANY, DELETE MANY },
};

/*
 * Settles the first item and all that share its verdict and fencing token in one
 * statement: nearly always the whole batch. *ret_all is true if every
 * lease was still valid. If it is false, nothing is known about any item.
 */
static int settle_same_verdict(const struct settling *settling, postroom_delivery *items,
			       size_t count, enum together how, bool *ret_all, struct pr_err *err)
{
	struct sqlite_store *store = settling->store;
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, many[how].slot, settling->table,
					       many[how].sql, err);
	postroom_verdict verdict = items->verdict;
	int64_t fencing_token = items->fencing_token;
	bool remember = false;
	int alike = 0;
	int status = POSTROOM_OK;

	if (!stmt)
		return err->status;
	pr_buf_reset(&store->seqs);
	for (size_t i = 0; i < count; i++) {
		postroom_delivery *item = &items[i];

		if (item->verdict != verdict || item->fencing_token != fencing_token ||
		    (item->reason && how == SETTLE_RELEASE) || item->settled != UNSETTLED)
			continue;
		pr_sqlite_add_seq(&store->seqs, item->seq);
		item->settled = POSTROOM_OK;
		item->dead = 0;
		remember |= how == SETTLE_DELETE && item->dedupe_key;
		alike++;
	}
	if (remember)
		status = pr_sqlite_keep_dedupe_keys(store, fencing_token, err);
	if (how != SETTLE_DELETE)
		sqlite3_bind_int64(stmt, 1, settling->now_us);
	pr_sqlite_bind(stmt, 3, settling->worker);
	sqlite3_bind_int64(stmt, 4, fencing_token);
	if (status >= 0)
		status = pr_sqlite_bind_seqs(stmt, 2, &store->seqs, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "settling messages", err);
	*ret_all = sqlite3_changes(store->db) == alike;
	return status;
}

/* Deletes one message with the statement for many. */
static int delete_one(const struct settling *settling, postroom_delivery *item, struct pr_err *err)
{
	bool ours = false;
	int status = settle_same_verdict(settling, item, 1, SETTLE_DELETE, &ours, err);

	if (!ours)
		item->settled = POSTROOM_LEASE_LOST;
	return status;
}

/* *ret_all is false if items were settled together and some had lost their lease. */
static int settle_items(struct sqlite_store *store, const struct pr_table *table,
			const struct pr_settle *settle, bool one_by_one, bool *ret_all,
			struct pr_err *err)
{
	const struct pr_policy *policy = settle->policy;
	postroom_delivery *items = settle->items;
	size_t count = settle->count;
	const struct settling settling = { store, table, store->base.worker, pr_now_us() };
	int status = POSTROOM_OK;

	*ret_all = true;
	for (size_t i = 0; i < count; i++)
		items[i].settled = UNSETTLED;
	for (size_t i = 0; status >= 0 && *ret_all && i < count; i++) {
		enum pr_disposition disposition;
		bool forget;

		if (items[i].settled != UNSETTLED)
			continue;
		disposition = pr_verdict_decide(&items[i], policy, &store->base.random);
		forget = disposition == PR_DISPOSITION_DONE && policy->forget;
		if (!one_by_one && (disposition == PR_DISPOSITION_DONE ||
				    (disposition == PR_DISPOSITION_RELEASE && !items[i].reason)))
			status = settle_same_verdict(&settling, &items[i], count - i,
						     forget ? SETTLE_DELETE
						     : disposition == PR_DISPOSITION_DONE
							     ? SETTLE_DONE
							     : SETTLE_RELEASE,
						     ret_all, err);
		else if (forget)
			status = delete_one(&settling, &items[i], err);
		else
			status = settle_one(&settling, &items[i], disposition, err);
	}
	return status;
}

int pr_sqlite_report_lost(const postroom_delivery *items, size_t count, struct pr_err *err)
{
	size_t lost = 0;

	for (size_t i = 0; i < count; i++)
		lost += items[i].settled == POSTROOM_LEASE_LOST;
	if (lost == 0)
		return POSTROOM_OK;
	return pr_store_lease_lost(lost, count, err);
}

int pr_sqlite_unblock_key(struct sqlite_store *store, const struct pr_table *table,
			  const struct sqlite_key_name *name, bool block, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_FIRST, table, FIRST_OF_KEY, err);
	bool held = false;
	int status, rc;

	if (!stmt)
		return err->status;
	pr_sqlite_bind_key(stmt, name->key, name->topic, name->ns);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		held = sqlite3_column_int(stmt, 0) && !(block && sqlite3_column_int(stmt, 1));
	status = pr_sqlite_end_query(store, stmt, rc, err);
	if (status < 0 || !held)
		return status;
	stmt = pr_sqlite_prepare(store, SLOT_UNBLOCK, table, UNBLOCK, err);
	if (!stmt)
		return err->status;
	pr_sqlite_bind_key(stmt, name->key, name->topic, name->ns);
	sqlite3_bind_int(stmt, 4, UNBLOCK_AT_ONCE);
	return pr_sqlite_run(store, stmt, "unblocking messages of a key", err);
}

static int any_held(struct sqlite_store *store, const struct pr_table *table, bool *ret,
		    struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_ANY_HELD, table, ANY_HELD, err);
	int rc;

	if (!stmt)
		return err->status;
	rc = sqlite3_step(stmt);
	*ret = rc == SQLITE_ROW;
	return pr_sqlite_end_query(store, stmt, rc, err);
}

/* Moves to the next key with held messages; after the last one, back to the beginning. */
static int next_held(struct sqlite_store *store, const struct pr_table *table,
		     struct sqlite_key *at, bool *ret, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_NEXT_KEY, table, NEXT_KEY, err);
	int rc;

	if (!stmt)
		return err->status;
	pr_sqlite_bind_key(stmt, at->parts[0], at->parts[1], at->parts[2]);
	rc = sqlite3_step(stmt);
	*ret = rc == SQLITE_ROW;
	for (int i = 0; i < 3; i++) {
		const char *part = *ret ? pr_sqlite_key_part(stmt, i) : NULL;

		snprintf(at->parts[i], sizeof(at->parts[i]), "%s", part ? part : "");
	}
	return pr_sqlite_end_query(store, stmt, rc, err);
}

/*
 * Few keys have held messages, and many messages are settled at once: listing those keys is
 * cheaper than one query per message. *ret_known is false if there are too many of them.
 */
static int list_held(struct sqlite_store *store, const struct pr_table *table, bool *ret_known,
		     struct pr_err *err)
{
	struct sqlite_key at = { 0 };
	bool found = true;
	int status = POSTROOM_OK;

	pr_sqlite_map_clear(&store->front);
	for (int i = 0; status >= 0 && found && i < FEW_KEYS; i++) {
		status = next_held(store, table, &at, &found, err);
		if (status >= 0 && found &&
		    !pr_sqlite_map_put(&store->front,
				       pr_sqlite_hash_key(at.parts[0], at.parts[1], at.parts[2]),
				       1))
			status = pr_err_nomem(err);
	}
	*ret_known = !found;
	return status;
}

static bool is_over(const postroom_delivery *item, bool block)
{
	return item->settled == POSTROOM_OK &&
	       (item->dead ? !block : item->verdict == POSTROOM_DELIVERED);
}

int pr_sqlite_unblock_settled(struct sqlite_store *store, const struct pr_table *table,
			      const postroom_delivery *items, size_t count, bool block,
			      struct pr_err *err)
{
	bool any = false, known = false;
	int status = any_held(store, table, &any, err);

	if (status >= 0 && any && count > FEW_KEYS)
		status = list_held(store, table, &known, err);
	for (size_t i = 0; any && status >= 0 && i < count; i++) {
		const postroom_delivery *item = &items[i];

		if (!item->key || !is_over(item, block) ||
		    (known &&
		     !pr_sqlite_map_get(&store->front,
					pr_sqlite_hash_key(item->key, item->topic, item->ns), 0)))
			continue;
		status = pr_sqlite_unblock_key(
			store, table, &(struct sqlite_key_name){ item->key, item->topic, item->ns },
			block, err);
	}
	return status;
}

int pr_sqlite_unblock_stranded(struct sqlite_store *store, const struct pr_table *table, bool block,
			       struct pr_err *err)
{
	struct sqlite_key *at = &sqlite_side(store, table)->stranded_after;
	bool found = true;
	int status = POSTROOM_OK;

	for (int i = 0; status >= 0 && found && i < FEW_KEYS; i++) {
		status = next_held(store, table, at, &found, err);
		if (status >= 0 && found)
			status = pr_sqlite_unblock_key(store, table,
						       &(struct sqlite_key_name){ at->parts[0],
										  at->parts[1],
										  at->parts[2] },
						       block, err);
	}
	return status;
}

int pr_sqlite_settle_rows(struct postroom_store *base, const struct pr_table *table,
			  const struct pr_settle *settle, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	bool all;
	int status = settle_items(store, table, settle, false, &all, err);

	if (status >= 0 && !all) {
		/* An item lost its lease: start again, item by item, to find out which. */
		pr_sqlite_rollback(base);
		status = pr_sqlite_begin_finishing(base, err);
		if (status >= 0)
			status = settle_items(store, table, settle, true, &all, err);
	}
	if (status >= 0)
		status = pr_sqlite_unblock_settled(store, table, settle->items, settle->count,
						   settle->policy->block, err);
	return status;
}

int pr_sqlite_apply(struct postroom_store *base, const char *statement,
		    const postroom_delivery *job, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	const struct pr_statement_parameters event = pr_job_parameters(job);
	struct settling settling = { store, &pr_table_inbox, NULL, 0 };
	postroom_delivery done = *job;
	int status = pr_sqlite_begin_finishing(base, err);

	if (status < 0)
		return status;
	done.verdict = POSTROOM_DELIVERED;
	settling.now_us = pr_now_us();
	status = settle_one(&settling, &done, PR_DISPOSITION_DONE, err);
	if (status >= 0)
		status = pr_sqlite_report_lost(&done, 1, err);
	if (status >= 0)
		status = pr_sqlite_run_statement(store, statement, &event, err);
	if (status >= 0)
		status = pr_sqlite_unblock_settled(store, &pr_table_inbox, &done, 1, false, err);
	return pr_sqlite_end_statement(store, status, err);
}

int pr_sqlite_renew(struct postroom_store *base, const struct pr_table *table,
		    postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	struct settling renewing = { store, table, store->base.worker, 0 };
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_RENEW, table, RENEW ONE, err);
	int status;

	if (!stmt)
		return err->status;
	status = pr_sqlite_begin_finishing(base, err);
	if (status < 0)
		return status;
	renewing.now_us = pr_now_us();
	sqlite3_bind_int64(stmt, 5, renewing.now_us + lease_ms * 1000);
	for (size_t i = 0; status >= 0 && i < count; i++)
		status = run_guarded(&renewing, stmt, &items[i], "renewing leases", err);
	status = pr_sqlite_end(base, status, err);
	return status < 0 ? status : pr_sqlite_report_lost(items, count, err);
}
