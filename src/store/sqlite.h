/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the SQLite store, and by nobody else. */
#ifndef PR_STORE_SQLITE_H
#define PR_STORE_SQLITE_H

#include "store/store.h"

#include <sqlite3.h>

/* Statements that are kept, one of each. */
enum sqlite_slot {
	SLOT_BEGIN,
	SLOT_COMMIT,
	SLOT_ROLLBACK,
	SLOT_EXPIRED,
	SLOT_DUE,
	SLOT_CLAIM,
	SLOT_BURY,
	SLOT_RENEW,
	SLOT_DONE,
	SLOT_DONE_MANY,
	SLOT_RETRY,
	SLOT_DEAD,
	SLOT_RELEASE,
	SLOT_RELEASE_MANY,
	SLOT_NEXT_DUE,
	SLOT_UNFINISHED,
	SLOT_COUNT
};

struct sqlite_store {
	struct postroom_store base;
	sqlite3 *db;
	char *path;
	int64_t busy_wait_ms;
	int64_t busy_since_us; /* when the wait for the lock began; for the error */
	const struct pr_stop *stop;
	bool finishing; /* this transaction settles: a stop does not end its wait, only the grace does */
	postroom_box *box;
	int checkpoint_at; /* frames in the WAL at which the next checkpoint is due */
	struct pr_buf seqs; /* numbers of rows, as a JSON array under construction */
	struct {
		sqlite3_stmt *stmt;
		const struct pr_table *table;
	} slots[SLOT_COUNT];
};

static inline struct sqlite_store *sqlite_store(struct postroom_store *store)
{
	return (struct sqlite_store *)store;
}

/*
 * Turns what SQLite says into a status and a sentence: "doing: …". store is
 * NULL on a borrowed connection.
 */
int pr_sqlite_fail(sqlite3 *db, const struct sqlite_store *store, const char *doing,
		   struct pr_err *err);

/* The busy handler: pauses before try number tries + 1; 0 when there was enough of it. */
int pr_sqlite_wait_for_lock(void *store, int tries);

/* The slot's statement for this table, prepared at first use; NULL with err filled. */
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
 * Many rows in one statement: reset store->seqs, add each, bind the whole for
 * `seq IN (SELECT value FROM json_each(?))`.
 */
void pr_sqlite_add_seq(struct sqlite_store *store, int64_t seq);
int pr_sqlite_bind_seqs(struct sqlite_store *store, sqlite3_stmt *stmt, int index,
			struct pr_err *err);

/* sqlite_migrate.c */
int pr_sqlite_migrate(struct postroom_store *store, pr_migration_fn fn, void *context,
		      struct pr_err *err);
int pr_sqlite_migrations(struct postroom_store *store, pr_migration_fn fn, void *context,
			 struct pr_err *err);
int pr_sqlite_check_schema(struct postroom_store *store, struct pr_err *err);

/* sqlite_box.c */
postroom_box *pr_sqlite_box(struct postroom_store *store);

/* sqlite_claim.c */
int pr_sqlite_claim(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_claim *claim, struct postroom_batch *batch,
		    struct pr_err *err);
int pr_sqlite_sweep(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_scope *scope, int32_t max_attempts, int32_t limit,
		    struct postroom_batch *batch, struct pr_err *err);
int pr_sqlite_wait(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_scope *scope, int64_t max_ms, struct pr_err *err);
int pr_sqlite_unfinished(struct postroom_store *store, const struct pr_table *table,
			 const struct pr_scope *scope, bool *ret, struct pr_err *err);

/* sqlite_settle.c */
int pr_sqlite_renew(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err);
int pr_sqlite_settle(struct postroom_store *store, const struct pr_table *table,
		     postroom_delivery *items, size_t count, const struct pr_policy *policy,
		     struct pr_err *err);

/* sqlite_admin.c */
int pr_sqlite_list(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		   postroom_row_fn fn, void *context, struct pr_err *err);
int pr_sqlite_show(struct postroom_store *store, const char *id, postroom_row_fn fn,
		   void *context, struct pr_err *err);
int pr_sqlite_retry(struct postroom_store *store, const struct pr_table *table, const char *id,
		    const postroom_filter *filter, int32_t limit, int64_t *ret,
		    struct pr_err *err);
int pr_sqlite_purge(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		    bool alone, int64_t *ret, struct pr_err *err);
int pr_sqlite_stats(struct postroom_store *store, postroom_counts *ret, postroom_topic_fn fn,
		    void *context, struct pr_err *err);

#endif
