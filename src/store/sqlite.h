/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the SQLite store, and by nobody else. */
#ifndef PR_STORE_SQLITE_H
#define PR_STORE_SQLITE_H

#include "store/store.h"

#include <sqlite3.h>

/* Statements that are kept, one of each for each table. */
enum sqlite_slot {
	SLOT_BEGIN,
	SLOT_COMMIT,
	SLOT_ROLLBACK,
	SLOT_EXPIRED,
	SLOT_TURN,
	SLOT_DUE,
	SLOT_CLAIM,
	SLOT_BURY,
	SLOT_DELAYED,
	SLOT_INTO_TURN,
	SLOT_FRONT,
	SLOT_EARLIER,
	SLOT_HOLD,
	SLOT_HOLD_EXPIRED,
	SLOT_ANY_HELD,
	SLOT_FIRST,
	SLOT_FREE,
	SLOT_NEXT_KEY,
	SLOT_RENEW,
	SLOT_DONE,
	SLOT_DONE_MANY,
	SLOT_REMEMBER,
	SLOT_FORGET_MANY,
	SLOT_RETRY,
	SLOT_DEAD,
	SLOT_RELEASE,
	SLOT_RELEASE_MANY,
	SLOT_NEXT_DUE,
	SLOT_LAST_SEQ,
	SLOT_UNFINISHED,
	SLOT_UNROUTED,
	SLOT_DELETE,
	SLOT_BEFORE,
	SLOT_ARRIVE,
	SLOT_PROGRESS,
	SLOT_COUNT
};

struct sqlite_key {
	char parts[3][POSTROOM_KEY_MAX + 1]; /* key, topic, namespace */
};

/* Numbers by numbers; 0 is no key. */
struct sqlite_map {
	struct sqlite_pair {
		int64_t key, value;
	} * pairs;
	size_t size, used;
};

/* What is kept and known of one table. */
struct sqlite_side {
	sqlite3_stmt *slots[SLOT_COUNT];
	bool skipped; /* the last claim left something that others will soon make way for */
	struct pr_buf scope; /* the floor's: see sqlite_floor.c */
	int64_t floor, floor_until_us;
	struct sqlite_key looked_at; /* how far stranded messages were looked for */
};

struct sqlite_store {
	struct postroom_store base;
	sqlite3 *db;
	char *path;
	int64_t busy_wait_ms;
	int64_t busy_since_us; /* when the wait for the lock began; for the error */
	const struct pr_stop *stop;
	struct pr_pulse *pulse;
	struct pr_rules rules;
	bool finishing; /* this transaction settles: a stop does not end its wait, only the grace does */
	postroom_box *box;
	int bell;		   /* inotify, from the first sleep on; -1: none */
	int checkpoint_at;	   /* frames in the WAL at which the next checkpoint is due */
	struct pr_buf seqs;	   /* numbers of rows, as a JSON array under construction */
	struct pr_buf turned;	   /* another: those that a claim puts into their turn */
	struct sqlite_map claimed; /* seqs of the batch being claimed, of those with a key */
	struct sqlite_map put_off; /* the first of each key that it has put off, by hash */
	struct sqlite_map front;   /* the first of each key that waits for its turn, by hash */
	int64_t front_end;	   /* up to which seq that is known */
	int front_read;
	const struct pr_scope *claim_scope; /* of the claim that these are for */
	int64_t claim_us;		    /* and when it began */
	int64_t closer; /* which earlier one was looked at last, and what came of it */
	int closer_order;
	struct sqlite_side sides[2];
	struct pr_buf effect_sql; /* the handler's statement that effect was made of */
	sqlite3_stmt *effect;
	int64_t statement_ms;	 /* how long it may take; 0: as long as it does */
	int64_t effect_until_us; /* of the one that runs */
};

static inline struct sqlite_store *sqlite_store(struct postroom_store *store)
{
	return (struct sqlite_store *)store;
}

/* Of what concerns no table, or both, it is the outbox's. */
static inline struct sqlite_side *sqlite_side(struct sqlite_store *store,
					      const struct pr_table *table)
{
	return &store->sides[table == &pr_table_inbox];
}

/*
 * Turns what SQLite says into a status and a sentence: "doing: …". store is
 * NULL on a borrowed connection.
 */
int pr_sqlite_fail(sqlite3 *db, const struct sqlite_store *store, const char *doing,
		   struct pr_err *err);

/* The busy handler: pauses before try number tries + 1; 0 when there was enough of it. */
int pr_sqlite_wait_for_lock(void *store, int tries);

/*
 * The slot's statement for this table, prepared at first use; NULL with err filled.
 * {rules} is the store's condition, "AND … ", or nothing where there are no rules.
 */
sqlite3_stmt *pr_sqlite_prepare(struct sqlite_store *store, enum sqlite_slot slot,
				const struct pr_table *table, const char *sql, struct pr_err *err);

/* Runs a statement that returns no rows, and resets it. */
int pr_sqlite_run(struct sqlite_store *store, sqlite3_stmt *stmt, const char *doing,
		  struct pr_err *err);

/* Every write is one short IMMEDIATE transaction. */
int pr_sqlite_begin(struct postroom_store *store, struct pr_err *err);
int pr_sqlite_begin_finishing(struct postroom_store *store, struct pr_err *err);
int pr_sqlite_commit(struct postroom_store *store, struct pr_err *err);
void pr_sqlite_rollback(struct postroom_store *store);

/* Commits when status >= 0, else rolls back; returns the first failure. */
int pr_sqlite_end(struct postroom_store *store, int status, struct pr_err *err);

/* text bound as it is for the statement's next run; NULL binds NULL. */
void pr_sqlite_bind(sqlite3_stmt *stmt, int index, const char *text);

/*
 * A topic pattern as GLOB wants it: everything but '*' stands for itself. False
 * when there is no memory: a pattern that is not bound would mean every topic.
 */
bool pr_sqlite_bind_pattern(sqlite3_stmt *stmt, int index, const char *pattern);

/*
 * Many rows in one statement: reset a buffer, add each, bind the whole for
 * `seq IN (SELECT value FROM json_each(?))`.
 */
void pr_sqlite_add_seq(struct pr_buf *seqs, int64_t seq);
int pr_sqlite_bind_seqs(sqlite3_stmt *stmt, int index, struct pr_buf *seqs, struct pr_err *err);

/* sqlite_migrate.c */
int pr_sqlite_migrate(struct postroom_store *store, pr_migration_fn fn, void *context,
		      struct pr_err *err);
int pr_sqlite_migrations(struct postroom_store *store, pr_migration_fn fn, void *context,
			 struct pr_err *err);
int pr_sqlite_check_schema(struct postroom_store *store, struct pr_err *err);

/* sqlite_box.c */
postroom_box *pr_sqlite_box(struct postroom_store *store);

/* What a claim is for; ?1 to ?3 are bound by pr_sqlite_bind_scope(). */
#define PR_SQLITE_SCOPE                                                                            \
	"(?1 IS NULL OR {scope_ns} = ?1) AND (?2 IS NULL OR {scope_topic} GLOB ?2) "               \
	"AND (?3 IS NULL OR {scope_tenant} = ?3) "
#define PR_SQLITE_IN_SCOPE PR_SQLITE_SCOPE "{rules}"
int pr_sqlite_bind_scope(sqlite3_stmt *stmt, const struct pr_scope *scope, struct pr_err *err);

/* sqlite_order.c: what claims, settling and the operator do about the order of a key (D6). */

/* The conditions of {table}_turn, {table}_due and {table}_key. */
#define PR_SQLITE_TURN                                                                             \
	"status = 'pending' AND (apart = 4 OR (apart = 0 AND next_attempt_at = created_at)) "
#define PR_SQLITE_DUE                                                                              \
	"status = 'pending' AND (apart IN (1, 3) "                                                 \
	"OR (apart = 0 AND next_attempt_at <> created_at)) "
#define PR_SQLITE_IN_ORDER                                                                         \
	"e.key IS NOT NULL AND e.{done_at} IS NULL AND e.apart <> 3 AND (e.claims > 0 "         \
	"OR e.apart IN (2, 4) OR (e.apart = 0 AND e.next_attempt_at < e.created_at)) "
/* Columns of the claims' queries behind {columns}, over {table} AS m; ?5 is pr_claim.block. */
#define PR_SQLITE_ORDER                                                                            \
	", m.next_attempt_at, CASE WHEN m.key IS NOT NULL THEN (SELECT e.seq FROM {table} AS e "   \
	"INDEXED BY {table}_key WHERE e.key = m.key AND e.topic = m.topic "                        \
	"AND e.namespace = m.namespace AND e.seq < m.seq AND " PR_SQLITE_IN_ORDER                  \
	"ORDER BY e.seq DESC LIMIT 1) END, "                                                       \
	"?5 AND m.key IS NOT NULL AND EXISTS (SELECT 1 FROM {table} AS d "                         \
	"INDEXED BY {table}_grave WHERE d.key = m.key AND d.topic = m.topic "                      \
	"AND d.namespace = m.namespace AND d.seq < m.seq AND d.key IS NOT NULL "                   \
	"AND d.apart = 3 AND d.status = 'dead') "
enum { PR_SQLITE_COL_DUE = PR_COL_COUNT, PR_SQLITE_COL_EARLIER, PR_SQLITE_COL_BLOCKED };

/* How many messages one transaction holds back, or puts into their turn. */
#define PR_SQLITE_ORDER_AT_ONCE 2000
/* How many it skips before it is content with what it has. */
#define PR_SQLITE_SKIP_MOST 200

/* What becomes of a message that a claim has found. */
enum sqlite_order {
	ORDER_CLAIM,
	ORDER_SKIP, /* an earlier one of its key is on its way right now: not this time */
	ORDER_TURN, /* others of its key wait for their turn before it: it must, too */
	ORDER_HOLD, /* an earlier one of its key is unfinished */
	ORDER_BLOCK /* an earlier one is dead, and waits for an operator */
};

/* At the beginning of a claim, which scope outlives: nothing is in the batch, nothing known. */
void pr_sqlite_order_begin(struct sqlite_store *store, const struct pr_table *table,
			   const struct pr_scope *scope, int64_t now_us);
/*
 * Delayed messages whose time has come take their turn. *ret_due_us is now, or
 * the time up to which all have, when there were too many.
 */
int pr_sqlite_order_join(struct sqlite_store *store, const struct pr_table *table, int64_t now_us,
			 int64_t *ret_due_us, struct pr_err *err);
/* Decides about the row under the cursor; in_turn: this query goes by seq. */
int pr_sqlite_order_decide(struct sqlite_store *store, const struct pr_table *table,
			   sqlite3_stmt *row, bool in_turn, enum sqlite_order *ret,
			   struct pr_err *err);
/* It is in the batch: those behind it may follow. False when there is no memory. */
bool pr_sqlite_order_claimed(struct sqlite_store *store, int64_t seq);
/* Holds back the messages of store->seqs; expired: they were leased. */
int pr_sqlite_order_hold(struct sqlite_store *store, const struct pr_table *table, bool expired,
			 struct pr_err *err);
/* Puts the messages of store->turned into their turn. */
int pr_sqlite_order_turn(struct sqlite_store *store, const struct pr_table *table,
			 struct pr_err *err);
/*
 * Lets the first of those go that are held back in this key, unless an
 * unfinished message is before them, or, with block, a dead one. To let go too
 * much is harmless: a claim holds it back again.
 */
int pr_sqlite_order_free_key(struct sqlite_store *store, const struct pr_table *table,
			     const char *key, const char *topic, const char *ns, bool block,
			     struct pr_err *err);
/* The same for the keys of all items that are delivered, or dead without block. */
int pr_sqlite_order_free_settled(struct sqlite_store *store, const struct pr_table *table,
				 const postroom_delivery *items, size_t count, bool block,
				 struct pr_err *err);
/*
 * Lets go what nothing holds back any more, because on_dead was block before or
 * somebody has deleted rows: a few keys at a time, all of them in the end.
 */
int pr_sqlite_order_free_stranded(struct sqlite_store *store, const struct pr_table *table,
				  bool block, struct pr_err *err);

/* sqlite_claim.c */
/* Within the caller's transaction; *ret_more when it stopped before it had seen all that is due. */
int pr_sqlite_claim_rows(struct sqlite_store *store, const struct pr_table *table,
			 const struct pr_claim *claim, struct postroom_batch *batch, bool *ret_more,
			 struct pr_err *err);
int pr_sqlite_claim(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err);
int pr_sqlite_sweep(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err);
/* sqlite_floor.c: the seq behind which what is in its turn in this scope begins; 0: not known. */
int64_t pr_sqlite_floor(struct sqlite_store *store, const struct pr_table *table,
			const struct pr_scope *scope);
/*
 * From a look in this transaction: the floor that it began at, or 0, the first that it
 * found, or 0, and what finding it took.
 */
void pr_sqlite_learn_floor(struct sqlite_store *store, const struct pr_table *table,
			   const struct pr_scope *scope, int64_t from, int64_t first,
			   int64_t took_us);
/*
 * From a look that found nothing in its turn, and no seq above last at that time; quiet:
 * nor anything delayed, failed, leased or held, which could come back.
 */
void pr_sqlite_learn_floor_idle(struct sqlite_store *store, const struct pr_table *table,
				const struct pr_scope *scope, int64_t from, int64_t last,
				int64_t took_us, bool quiet);

/*
 * Until the next message becomes eligible by itself; INT64_MAX: none will.
 * *ret_unsure: there are some of which only a claim can tell.
 */
int pr_sqlite_next_due(struct sqlite_store *store, const struct pr_table *table,
		       const struct pr_scope *scope, int64_t *ret_ms, bool *ret_unsure,
		       struct pr_err *err);
int pr_sqlite_unfinished(struct postroom_store *store, const struct pr_table *table,
			 const struct pr_claim *claim, bool *ret, struct pr_err *err);
int pr_sqlite_unrouted(struct postroom_store *store, const struct pr_table *table,
		       const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
		       struct pr_err *err);

/* sqlite_wait.c */
int pr_sqlite_wait(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_scope *scope, int64_t max_ms, struct pr_err *err);

/* sqlite_settle.c */
int pr_sqlite_renew(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err);
int pr_sqlite_settle(struct postroom_store *store, const struct pr_table *table,
		     postroom_delivery *items, size_t count, const struct pr_policy *policy,
		     struct pr_err *err);
int pr_sqlite_turn(struct postroom_store *store, const struct pr_table *table,
		   postroom_delivery *items, size_t count, const struct pr_policy *policy,
		   const struct pr_claim *claim, struct postroom_batch *next, struct pr_err *err);
/*
 * Writes down the dedupe keys of the messages of store->seqs, which are about
 * to be deleted; only of those claimed with this fence, if it is not 0.
 */
int pr_sqlite_remember(struct sqlite_store *store, int64_t fence, struct pr_err *err);

/* As pr_store_ops.apply. */
int pr_sqlite_apply(struct postroom_store *store, const char *statement,
		    const postroom_delivery *job, struct pr_err *err);

/* sqlite_effect.c: the handler's own statement. */
int pr_sqlite_check_statement(struct postroom_store *store, const char *statement,
			      struct pr_err *err);
/*
 * Runs it within the caller's transaction. POSTROOM_TX_ABORTED is the statement's own
 * failure; the transaction is then to be rolled back, if the statement has not done so.
 */
int pr_sqlite_effect(struct sqlite_store *store, const char *statement,
		     const struct pr_effect *event, struct pr_err *err);
/* As pr_sqlite_end(); what only the commit finds wrong is the statement's failure as well. */
int pr_sqlite_effect_end(struct sqlite_store *store, int status, struct pr_err *err);

/* sqlite_job.c */
int pr_sqlite_take_in(struct postroom_store *store, const char *handler, const char *statement,
		      enum pr_in_order order, struct pr_arrival *arrivals, size_t count,
		      size_t *ret_at, struct pr_err *err);
int pr_sqlite_progress(struct postroom_store *store, const struct pr_progress *progress,
		       struct pr_err *err);

/* sqlite_admin.c */
/*
 * Within the caller's transaction, over a query for dead rows (seq, namespace, topic, key)
 * that are gathered before the first is given out: changing seq must not move its scan.
 * Each comes back to life at the end of its key's order. *ret grows by their number.
 */
int pr_sqlite_revive(struct sqlite_store *store, const struct pr_table *table, sqlite3_stmt *dead,
		     int64_t *ret, struct pr_err *err);
/* Of any age (0) is also what bears a later time, since the clock was set back. */
int64_t pr_sqlite_before(int64_t older_than_ms);
/* Gathers such rows in store->seqs; dead: what they have blocked is free. */
int pr_sqlite_gather(struct sqlite_store *store, const struct pr_table *table, sqlite3_stmt *rows,
		     bool dead, int64_t *ret, struct pr_err *err);
/* Deletes the rows of store->seqs. */
int pr_sqlite_delete(struct sqlite_store *store, const struct pr_table *table, struct pr_err *err);
int pr_sqlite_list(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		   postroom_row_fn fn, void *context, struct pr_err *err);
int pr_sqlite_show(struct postroom_store *store, const char *id, postroom_row_fn fn, void *context,
		   struct pr_err *err);
int pr_sqlite_retry(struct postroom_store *store, const struct pr_table *table, const char *id,
		    const postroom_filter *filter, int32_t limit, int64_t *ret, struct pr_err *err);
int pr_sqlite_purge(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		    bool alone, int64_t *ret, struct pr_err *err);
int pr_sqlite_stats(struct postroom_store *store, postroom_counts *ret, postroom_topic_fn fn,
		    void *context, struct pr_err *err);
int pr_sqlite_lease(struct postroom_store *store, const enum pr_lease_kind *want,
		    enum pr_lease_kind *ret, struct pr_err *err);
int pr_sqlite_forget(struct postroom_store *store, int64_t older_than_ms, int32_t limit, bool alone,
		     int64_t *ret, struct pr_err *err);

/* sqlite_inbox.c */
int pr_sqlite_inbox_list(struct postroom_store *store, const postroom_inbox_filter *filter,
			 int32_t limit, postroom_inbox_row_fn fn, void *context,
			 struct pr_err *err);
int pr_sqlite_inbox_retry(struct postroom_store *store, const postroom_inbox_filter *filter,
			  int32_t limit, int64_t *ret, struct pr_err *err);
int pr_sqlite_inbox_purge(struct postroom_store *store, const postroom_inbox_filter *filter,
			  int32_t limit, bool alone, int64_t *ret, struct pr_err *err);
int pr_sqlite_inbox_stats(struct postroom_store *store, postroom_inbox_counts *ret,
			  postroom_inbox_handler_fn fn, void *context, struct pr_err *err);

#endif
