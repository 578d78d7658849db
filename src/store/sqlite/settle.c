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
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

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
	"UPDATE OR FAIL {table} SET status = 'pending', state = 'scheduled', next_attempt_at = ?6, " \
	"last_error = ?5, locked_by = NULL, locked_until = NULL, updated_at = ?1 "
#define MARK_DEAD                                                                                  \
	"UPDATE OR FAIL {table} SET status = 'dead', state = 'dead', last_error = ?5, "            \
	"locked_by = NULL, locked_until = NULL, updated_at = ?1 "
#define FORGET "DELETE FROM {table} "
#define REMEMBER                                                                                   \
	"INSERT OR IGNORE INTO postroom_dedupe (namespace, topic, dedupe_key, id, created_at) "    \
	"SELECT namespace, topic, dedupe_key, id, ?4 FROM postroom_outbox "                        \
	"WHERE seq IN (SELECT value FROM json_each(?1)) AND dedupe_key IS NOT NULL "               \
	"AND (?2 = 0 OR (locked_by = ?3 AND claims = ?2))"
#define RENEW "UPDATE OR FAIL {table} SET locked_until = ?5, updated_at = ?1 "

static const struct {
	enum sqlite_slot slot;
	const char *sql;
} fates[] = {
	[PR_DISPOSITION_RELEASE] = { SLOT_RELEASE, RELEASE ONE },
	[PR_DISPOSITION_DONE] = { SLOT_DONE, DONE ONE },
	[PR_DISPOSITION_RETRY] = { SLOT_RETRY, RETRY ONE },
	[PR_DISPOSITION_DEAD] = { SLOT_DEAD, MARK_DEAD ONE },
};

/* item->settled while its turn has not come. */
#define UNSETTLED 1

/* Runs a guarded update; the item learns whether the row was still ours. */
static int run_guarded(struct sqlite_store *store, sqlite3_stmt *stmt, const char *worker,
		       postroom_delivery *item, int64_t now_us, const char *doing,
		       struct pr_err *err)
{
	int status;

	sqlite3_bind_int64(stmt, 1, now_us);
	sqlite3_bind_int64(stmt, 2, item->seq);
	pr_sqlite_bind(stmt, 3, worker);
	sqlite3_bind_int64(stmt, 4, item->fencing_token);
	status = pr_sqlite_run(store, stmt, doing, err);
	if (status >= 0)
		item->settled = sqlite3_changes(store->db) ? POSTROOM_OK : POSTROOM_LEASE_LOST;
	return status;
}

static int settle_one(struct sqlite_store *store, const struct pr_table *table, const char *worker,
		      postroom_delivery *item, enum pr_disposition disposition, int64_t now_us,
		      struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, fates[disposition].slot, table,
					       fates[disposition].sql, err);
	int status;

	if (!stmt)
		return err->status;
	if (disposition != PR_DISPOSITION_DONE)
		pr_sqlite_bind(stmt, 5, item->reason);
	if (disposition == PR_DISPOSITION_RETRY)
		sqlite3_bind_int64(stmt, 6, now_us + item->retry_in_ms * 1000);
	status = run_guarded(store, stmt, worker, item, now_us, "settling messages", err);
	item->dead = disposition == PR_DISPOSITION_DEAD && item->settled == POSTROOM_OK;
	/* It failed, whether its lease was still ours or not. */
	if (status >= 0 &&
	    (disposition == PR_DISPOSITION_RETRY || disposition == PR_DISPOSITION_DEAD))
		status = pr_sqlite_add_attempt(store, table, item, worker, item->reason, err);
	return status;
}

int pr_sqlite_keep_dedupe_keys(struct sqlite_store *store, int64_t fencing_token,
			       struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_KEEP_DEDUPE_KEY, NULL, REMEMBER, err);
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
	[SETTLE_DELETE] = { SLOT_FORGET_MANY, FORGET MANY },
};

/*
 * Settles the first item and all that share its verdict and fencing token in one
 * statement: nearly always the whole batch. *ret_all is true if every
 * lease was still valid. If it is false, nothing is known about any item.
 */
static int settle_same_verdict(struct sqlite_store *store, const struct pr_table *table,
			       postroom_delivery *items, size_t count, enum together how,
			       int64_t now_us, bool *ret_all, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, many[how].slot, table, many[how].sql, err);
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
		sqlite3_bind_int64(stmt, 1, now_us);
	pr_sqlite_bind(stmt, 3, store->base.worker);
	sqlite3_bind_int64(stmt, 4, fencing_token);
	if (status >= 0)
		status = pr_sqlite_bind_seqs(stmt, 2, &store->seqs, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "settling messages", err);
	*ret_all = sqlite3_changes(store->db) == alike;
	return status;
}

/* A single one in the statement for many. */
static int delete_one(struct sqlite_store *store, const struct pr_table *table,
		      postroom_delivery *item, struct pr_err *err)
{
	bool ours = false;
	int status = settle_same_verdict(store, table, item, 1, SETTLE_DELETE, 0, &ours, err);

	if (!ours)
		item->settled = POSTROOM_LEASE_LOST;
	return status;
}

/* *ret_all comes back false when items were settled together and some were not ours. */
static int settle_items(struct sqlite_store *store, const struct pr_table *table,
			postroom_delivery *items, size_t count, const struct pr_policy *policy,
			bool one_by_one, bool *ret_all, struct pr_err *err)
{
	int64_t now_us = pr_now_us();
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
			status = settle_same_verdict(store, table, &items[i], count - i,
						     forget ? SETTLE_DELETE
						     : disposition == PR_DISPOSITION_DONE
							     ? SETTLE_DONE
							     : SETTLE_RELEASE,
						     now_us, ret_all, err);
		else if (forget)
			status = delete_one(store, table, &items[i], err);
		else
			status = settle_one(store, table, store->base.worker, &items[i],
					    disposition, now_us, err);
	}
	return status;
}

static int report_lost(const postroom_delivery *items, size_t count, struct pr_err *err)
{
	size_t lost = 0;

	for (size_t i = 0; i < count; i++)
		lost += items[i].settled == POSTROOM_LEASE_LOST;
	if (lost == 0)
		return POSTROOM_OK;
	return pr_store_lease_lost(lost, count, err);
}

/* Within a transaction that has just begun. */
static int settle_all(struct postroom_store *base, const struct pr_table *table,
		      postroom_delivery *items, size_t count, const struct pr_policy *policy,
		      struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	bool all;
	int status = settle_items(store, table, items, count, policy, false, &all, err);

	if (status >= 0 && !all) {
		/* An item lost its lease: start again, item by item, to find out which. */
		pr_sqlite_rollback(base);
		status = pr_sqlite_begin_finishing(base, err);
		if (status >= 0)
			status = settle_items(store, table, items, count, policy, true, &all, err);
	}
	if (status >= 0)
		status = pr_sqlite_order_free_settled(store, table, items, count, policy->block,
						      err);
	return status;
}

int pr_sqlite_settle(struct postroom_store *base, const struct pr_table *table,
		     postroom_delivery *items, size_t count, const struct pr_policy *policy,
		     struct pr_err *err)
{
	int status = pr_sqlite_begin_finishing(base, err);

	if (status < 0)
		return status;
	status = pr_sqlite_end(base, settle_all(base, table, items, count, policy, err), err);
	return status < 0 ? status : report_lost(items, count, err);
}

int pr_sqlite_settle_and_claim(struct postroom_store *base, const struct pr_table *table,
			       postroom_delivery *items, size_t count,
			       const struct pr_policy *policy, const struct pr_claim *claim,
			       struct postroom_batch *next, struct pr_err *err)
{
	bool more;
	int status = pr_sqlite_begin_finishing(base, err);

	if (status < 0)
		return status;
	status = settle_all(base, table, items, count, policy, err);
	if (status >= 0)
		status = pr_sqlite_claim_rows(sqlite_store(base), table, claim, next, &more, err);
	status = pr_sqlite_end(base, status, err);
	if (status < 0)
		pr_batch_reset(next);
	return status < 0 ? status : report_lost(items, count, err);
}

int pr_sqlite_apply(struct postroom_store *base, const char *statement,
		    const postroom_delivery *job, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	const struct pr_statement_parameters event = pr_job_parameters(job);
	postroom_delivery done = *job;
	int status = pr_sqlite_begin_finishing(base, err);

	if (status < 0)
		return status;
	done.verdict = POSTROOM_DELIVERED;
	status = settle_one(store, &pr_table_inbox, NULL, &done, PR_DISPOSITION_DONE, pr_now_us(),
			    err);
	if (status >= 0)
		status = report_lost(&done, 1, err);
	if (status >= 0)
		status = pr_sqlite_run_statement(store, statement, &event, err);
	if (status >= 0)
		status = pr_sqlite_order_free_settled(store, &pr_table_inbox, &done, 1, false, err);
	return pr_sqlite_end_statement(store, status, err);
}

int pr_sqlite_renew(struct postroom_store *base, const struct pr_table *table,
		    postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_RENEW, table, RENEW ONE, err);
	int64_t now_us;
	int status;

	if (!stmt)
		return err->status;
	status = pr_sqlite_begin_finishing(base, err);
	if (status < 0)
		return status;
	now_us = pr_now_us();
	sqlite3_bind_int64(stmt, 5, now_us + lease_ms * 1000);
	for (size_t i = 0; status >= 0 && i < count; i++)
		status = run_guarded(store, stmt, store->base.worker, &items[i], now_us,
				     "renewing leases", err);
	status = pr_sqlite_end(base, status, err);
	return status < 0 ? status : report_lost(items, count, err);
}
