/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the SQLite store only. */
#ifndef PR_STORE_SQLITE_SQLITE_H
#define PR_STORE_SQLITE_SQLITE_H

#include "store/query.h"
#include "store/store.h"

#include <sqlite3.h>

/* Prepared statements, one of each per table. */
enum sqlite_slot {
	SLOT_BEGIN,
	SLOT_COMMIT,
	SLOT_ROLLBACK,
	SLOT_SCHEMA_VERSION,
	SLOT_EXPIRED,
	SLOT_READY,
	SLOT_DUE,
	SLOT_LOAD,
	SLOT_LOAD_TEXT,
	SLOT_ENCODING,
	SLOT_CLAIM,
	SLOT_DEAD_LETTER,
	SLOT_DELAYED,
	SLOT_MAKE_READY,
	SLOT_FRONT,
	SLOT_EARLIER,
	SLOT_HOLD,
	SLOT_HOLD_EXPIRED,
	SLOT_ANY_HELD,
	SLOT_FIRST,
	SLOT_UNBLOCK,
	SLOT_NEXT_KEY,
	SLOT_RENEW,
	SLOT_DONE,
	SLOT_DONE_MANY,
	SLOT_KEEP_DEDUPE_KEY,
	SLOT_DELETE_MANY,
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
	SLOT_INBOX_INSERT,
	SLOT_CONTENT,
	SLOT_REFER,
	SLOT_PROGRESS,
	SLOT_RECORD_SOURCE,
	SLOT_THIN_SOURCE,
	SLOT_READ_SOURCES,
	SLOT_ADD_ATTEMPT,
	SLOT_TRIM_ATTEMPTS,
	SLOT_DELETE_ATTEMPTS,
	SLOT_COUNT
};

/* Borrowed. */
struct sqlite_key_name {
	const char *key, *topic, *ns;
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

/* State of one table. */
struct sqlite_side {
	sqlite3_stmt *slots[SLOT_COUNT];
	int versions[SLOT_COUNT]; /* schema version for which each statement was prepared */
	bool skipped;		  /* the last claim skipped messages that will be claimable soon */
	struct pr_buf scope;	  /* scope of the low-water mark: see low_water.c */
	int64_t low_water_seq, low_water_until_us;
	struct sqlite_key stranded_after; /* where the search for stranded messages continues */
};

struct sqlite_store {
	struct postroom_store base;
	sqlite3 *db;
	char *path;
	int64_t busy_wait_ms;
	int64_t busy_since_us; /* start of the wait for the lock; for the error */
	const struct pr_stop *stop;
	struct pr_watchdog *watchdog;
	struct pr_rules rules;
	int schema_version; /* as the last transaction found it */
	int utf16;	    /* 1: text is stored as UTF-16; -1: as UTF-8; 0: unknown */
	bool finishing; /* this transaction settles: only the end of the grace period ends its wait */
	postroom_box *box;
	int notify_fd;		   /* inotify descriptor, from the first sleep on; -1: none */
	int checkpoint_at;	   /* frames in the WAL at which the next checkpoint is due */
	struct pr_buf seqs;	   /* numbers of rows, as a JSON array under construction */
	struct pr_buf made_ready;  /* a second array: rows that a claim makes ready */
	struct sqlite_map claimed; /* seqs of keyed messages in the batch being claimed */
	struct sqlite_map
		held_keys; /* by hash of the key: the first message that this claim does not take */
	struct sqlite_map front; /* by hash of the key: the first ready message */
	int64_t front_end;	 /* front is complete up to this seq */
	int front_read;
	const struct pr_scope *claim_scope; /* scope of the current claim */
	int64_t claim_us;		    /* start of the current claim */
	int64_t checked_seq; /* seq of the earlier message that was checked last, and the result */
	int checked_order;
	struct sqlite_side sides[2];
	struct pr_buf handler_sql; /* text of the handler's prepared statement */
	sqlite3_stmt *handler_stmt;
	int64_t statement_ms;	  /* its timeout; 0: none */
	int64_t handler_until_us; /* deadline of the running statement */
	int64_t purged_seq;	  /* up to which attempt: see attempts.c */
};

static inline struct sqlite_store *sqlite_store(struct postroom_store *store)
{
	return (struct sqlite_store *)store;
}

/* Statements that concern no table, or both, use the outbox's side. */
static inline struct sqlite_side *sqlite_side(struct sqlite_store *store,
					      const struct pr_table *table)
{
	return &store->sides[table == &pr_table_inbox];
}

/*
 * Converts an SQLite error into a status and a sentence: "doing: …". store is NULL on a borrowed
 * connection.
 */
int pr_sqlite_fail(sqlite3 *db, const struct sqlite_store *store, const char *doing,
		   struct pr_err *err);

/* The busy handler: pauses before attempt number tries + 1. 0: give up. */
int pr_sqlite_wait_for_lock(void *store, int tries);

/*
 * The slot's statement for this table, prepared at first use; NULL with err filled.
 * {rules} is the store's condition, "AND … ", or nothing where there are no rules.
 */
sqlite3_stmt *pr_sqlite_prepare(struct sqlite_store *store, enum sqlite_slot slot,
				const struct pr_table *table, const char *sql, struct pr_err *err);

/* map.c. The value of a key, or otherwise. */
int64_t pr_sqlite_map_get(const struct sqlite_map *map, int64_t key, int64_t otherwise);
/* Keeps the smallest value of a key. False: no memory. */
bool pr_sqlite_map_put(struct sqlite_map *map, int64_t key, int64_t value);
void pr_sqlite_map_clear(struct sqlite_map *map);
/* Two keys with the same hash only wait for each other. */
int64_t pr_sqlite_hash_key(const char *key, const char *topic, const char *ns);

/* load.c: handles for reading payloads and bodies. Close them before a row is written. */
struct sqlite_content {
	struct sqlite_store *store;
	const struct pr_table *table;
	struct pr_arena *arena;
	size_t most;	/* larger ones are withheld */
	int64_t number; /* of the row in postroom_content; 0: the content is in the message's row */
	sqlite3_blob *payload, *body;
};
/* The row under the cursor, which has {columns} and PR_SQLITE_CONTENT. */
int pr_sqlite_read_row(sqlite3_stmt *row, const struct pr_table *table, struct pr_arena *arena,
		       postroom_delivery *item, struct pr_err *err);
int pr_sqlite_read_content(struct sqlite_content *content, sqlite3_stmt *row,
			   postroom_delivery *item, struct pr_err *err);
void pr_sqlite_close_content(struct sqlite_content *content);
int pr_sqlite_load(struct postroom_store *store, const struct pr_table *table,
		   postroom_delivery *item, size_t most, struct pr_arena *arena,
		   struct pr_err *err);

const char *pr_sqlite_key_part(sqlite3_stmt *row, int column);
/* Binds ?1 to ?3. */
void pr_sqlite_bind_key(sqlite3_stmt *stmt, const char *key, const char *topic, const char *ns);
/* Resets a query about the order of a key after its last step, which returned rc. */
int pr_sqlite_end_query(struct sqlite_store *store, sqlite3_stmt *stmt, int rc, struct pr_err *err);
/* Runs a statement that returns no rows, and resets it. */
int pr_sqlite_run(struct sqlite_store *store, sqlite3_stmt *stmt, const char *doing,
		  struct pr_err *err);

/* transaction.c: every write is one short IMMEDIATE transaction. */
int pr_sqlite_settle_and_claim(struct postroom_store *store, const struct pr_table *table,
			       const struct pr_settle *settle, const struct pr_claim *claim,
			       struct postroom_batch *batch, struct pr_err *err);
int pr_sqlite_begin(struct postroom_store *store, struct pr_err *err);
int pr_sqlite_begin_finishing(struct postroom_store *store, struct pr_err *err);
int pr_sqlite_commit(struct postroom_store *store, struct pr_err *err);
void pr_sqlite_rollback(struct postroom_store *store);

/* Commits when status >= 0, else rolls back; returns the first failure. */
int pr_sqlite_end(struct postroom_store *store, int status, struct pr_err *err);

/* text bound as it is for the statement's next run; NULL binds NULL. */
void pr_sqlite_bind(sqlite3_stmt *stmt, int index, const char *text);

/*
 * Binds a topic pattern for GLOB: only '*' is special. False: no memory (an unbound pattern would
 * match every topic).
 */
bool pr_sqlite_bind_pattern(sqlite3_stmt *stmt, int index, const char *pattern);
void pr_sqlite_pattern(const char *pattern, struct pr_buf *out);

/*
 * Many rows in one statement: reset a buffer, add each, bind the whole for
 * `seq IN (SELECT value FROM json_each(?))`.
 */
void pr_sqlite_add_seq(struct pr_buf *seqs, int64_t seq);
int pr_sqlite_bind_seqs(sqlite3_stmt *stmt, int index, struct pr_buf *seqs, struct pr_err *err);

/* migrate.c */
int pr_sqlite_migrate(struct postroom_store *store, pr_migration_fn fn, void *context,
		      struct pr_err *err);
int pr_sqlite_migrations(struct postroom_store *store, pr_migration_fn fn, void *context,
			 struct pr_err *err);
int pr_sqlite_check_schema(struct postroom_store *store, enum pr_schema_need need,
			   struct pr_err *err);

/* box.c */
postroom_box *pr_sqlite_box(struct postroom_store *store);

/*
 * A UUID may be written with hyphens or without, in either case. Compared with a column:
 * "id IN " PR_SQLITE_UUID("?1"), where ?1 has hyphens and lower case.
 */
#define PR_SQLITE_UUID(uuid)                                                                       \
	"(" uuid ", replace(" uuid ", '-', ''), upper(" uuid "), upper(replace(" uuid ", '-', "    \
										      "'')))"

/* The scope of a claim; pr_sqlite_bind_scope() binds ?1 to ?3. */
#define PR_SQLITE_SCOPE                                                                            \
	"(?1 IS NULL OR {scope_ns} = ?1) AND (?2 IS NULL OR {scope_topic} GLOB ?2) "               \
	"AND (?3 IS NULL OR {scope_tenant} IN " PR_SQLITE_UUID("?3") ") "
#define PR_SQLITE_IN_SCOPE PR_SQLITE_SCOPE "{rules}"
int pr_sqlite_bind_scope(sqlite3_stmt *stmt, const struct pr_scope *scope, struct pr_err *err);

/* order.c: the order of a key (D6) in a claim. */

/* The conditions of {table}_ready, {table}_due and {table}_key. */
#define PR_SQLITE_READY                                                                            \
	"status = 'pending' AND (state = 'ready' OR (state = 'new' AND next_attempt_at = "         \
	"created_at)) "
#define PR_SQLITE_DUE                                                                              \
	"status = 'pending' AND (state IN ('scheduled', 'dead') "                                  \
	"OR (state = 'new' AND next_attempt_at <> created_at)) "
#define PR_SQLITE_IN_ORDER                                                                         \
	"e.key IS NOT NULL AND e.{done_at} IS NULL AND e.state <> 'dead' AND (e.claims > 0 "       \
	"OR e.state IN ('held', 'ready') OR (e.state = 'new' AND e.next_attempt_at < "             \
	"e.created_at)) "
/* The unfinished messages of a key that pr_sqlite_bind_key() has bound. */
#define PR_SQLITE_UNFINISHED_OF_KEY                                                                \
	"e.key = ?1 AND e.topic = ?2 AND e.namespace = ?3 AND " PR_SQLITE_IN_ORDER                 \
	"AND e.status IN ('pending', '{active}') "
/*
 * The content, after {columns}: only the types of payload and body, which reads no byte of them.
 * See load.c.
 */
#define PR_SQLITE_VALUE(column)                                                                    \
	"CASE typeof(" column ") WHEN 'text' THEN 1 WHEN 'blob' THEN 2 "                           \
	"ELSE CAST(" column " AS TEXT) END"
#define PR_SQLITE_CONTENT                                                                          \
	"m.headers, " PR_SQLITE_VALUE("m.payload") ", " PR_SQLITE_VALUE(                           \
		"m.body") ", CASE WHEN m.content IS NULL THEN 0 ELSE coalesce((SELECT size FROM "  \
			  "postroom_content "                                                      \
			  "WHERE number = m.content), 1) END"
/* payload or body, in a query that reads whole rows. */
#define PR_SQLITE_PART(column)                                                                     \
	"CASE WHEN content IS NULL THEN " column " ELSE (SELECT c." column                         \
	" FROM postroom_content AS c WHERE c.number = content) END"
/* Further columns of the claims' queries, over {table} AS m; ?5 is pr_claim.block. */
#define PR_SQLITE_ORDER                                                                            \
	", m.next_attempt_at, CASE WHEN m.key IS NOT NULL THEN (SELECT e.seq FROM {table} AS e "   \
	"INDEXED BY {table}_key WHERE e.key = m.key AND e.topic = m.topic "                        \
	"AND e.namespace = m.namespace AND e.seq < m.seq AND " PR_SQLITE_IN_ORDER                  \
	"ORDER BY e.seq DESC LIMIT 1) END, "                                                       \
	"?5 AND m.key IS NOT NULL AND EXISTS (SELECT 1 FROM {table} AS d "                         \
	"INDEXED BY {table}_blocking WHERE d.key = m.key AND d.topic = m.topic "                   \
	"AND d.namespace = m.namespace AND d.seq < m.seq AND d.key IS NOT NULL "                   \
	"AND d.state = 'dead' AND d.status = 'dead') "
enum { PR_SQLITE_COL_DUE = PR_COL_COUNT, PR_SQLITE_COL_EARLIER, PR_SQLITE_COL_BLOCKED };

/* How many messages one transaction holds or makes ready. */
#define PR_SQLITE_ORDER_AT_ONCE 2000
/* After skipping this many messages, a claim returns what it has. */
#define PR_SQLITE_SKIP_MOST 200

/* Decision of a claim about a message. */
enum sqlite_order {
	ORDER_CLAIM,
	ORDER_SKIP,	  /* an earlier message of its key is in flight: skip it this time */
	ORDER_MAKE_READY, /* earlier messages of its key are ready: it becomes ready, too */
	ORDER_HOLD,	  /* an earlier message of its key is unfinished */
	ORDER_BLOCK	  /* an earlier message is dead and blocks the key */
};

/* Begins a claim; scope must outlive it. Resets all state of the last claim. */
void pr_sqlite_order_begin(struct sqlite_store *store, const struct pr_table *table,
			   const struct pr_scope *scope, int64_t now_us);
/*
 * Makes delayed messages that are due ready. *ret_due_us is now, or if there were too many, the
 * time up to which all are ready.
 */
int pr_sqlite_order_join(struct sqlite_store *store, const struct pr_table *table, int64_t now_us,
			 int64_t *ret_due_us, struct pr_err *err);
/* Decides about the row under the cursor. ready: this query is ordered by seq. */
int pr_sqlite_order_decide(struct sqlite_store *store, const struct pr_table *table,
			   sqlite3_stmt *row, bool ready, enum sqlite_order *ret,
			   struct pr_err *err);
/* The message is in the batch: later messages of its key may follow. False: no memory. */
bool pr_sqlite_order_claimed(struct sqlite_store *store, int64_t seq);
/* Holds the messages of store->seqs. expired: they were leased. */
int pr_sqlite_order_hold(struct sqlite_store *store, const struct pr_table *table, bool expired,
			 struct pr_err *err);
/* Makes the messages of store->made_ready ready. */
int pr_sqlite_order_make_ready(struct sqlite_store *store, const struct pr_table *table,
			       struct pr_err *err);
/* claim.c */
/*
 * Runs within the caller's transaction. *ret_more: it stopped before it had seen all due messages.
 */
int pr_sqlite_claim_rows(struct sqlite_store *store, const struct pr_table *table,
			 const struct pr_claim *claim, struct postroom_batch *batch, bool *ret_more,
			 struct pr_err *err);
int pr_sqlite_sweep(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err);
/* low_water.c: the low-water mark of ready messages in this scope; 0: unknown. */
int64_t pr_sqlite_low_water(struct sqlite_store *store, const struct pr_table *table,
			    const struct pr_scope *scope);
/*
 * Learns from a scan in this transaction: the mark where it began or 0, the first message found or
 * 0, and its duration.
 */
void pr_sqlite_raise_low_water(struct sqlite_store *store, const struct pr_table *table,
			       const struct pr_scope *scope, int64_t from, int64_t first,
			       int64_t took_us);
/*
 * Learns from a scan that found no ready message, and no seq above last at that time. quiet:
 * nothing is delayed, failed, leased or held either.
 */
void pr_sqlite_raise_low_water_idle(struct sqlite_side *side, const struct pr_scope *scope,
				    int64_t from, int64_t last, int64_t took_us, bool quiet);

/*
 * Time until the next message becomes due; INT64_MAX: never. *ret_unsure: only a claim can decide
 * whether some messages are due.
 */
int pr_sqlite_next_due(struct sqlite_store *store, const struct pr_table *table,
		       const struct pr_scope *scope, int64_t *ret_ms, bool *ret_unsure,
		       struct pr_err *err);
int pr_sqlite_unfinished(struct postroom_store *store, const struct pr_table *table,
			 const struct pr_claim *claim, bool *ret, struct pr_err *err);
int pr_sqlite_unrouted(struct postroom_store *store, const struct pr_table *table,
		       const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
		       struct pr_err *err);

/* wait.c */
int pr_sqlite_wait(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_scope *scope, int64_t max_ms, struct pr_err *err);

/* settle.c */
int pr_sqlite_renew(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err);
/*
 * Unblocks the first held message of this key, unless an unfinished message is before it, or, with
 * block, a dead one. Unblocking too much is harmless: a claim holds the message again.
 */
int pr_sqlite_unblock_key(struct sqlite_store *store, const struct pr_table *table,
			  const struct sqlite_key_name *name, bool block, struct pr_err *err);
/* The same for the keys of all items that are delivered, or that are dead without block. */
int pr_sqlite_unblock_settled(struct sqlite_store *store, const struct pr_table *table,
			      const postroom_delivery *items, size_t count, bool block,
			      struct pr_err *err);
/*
 * Unblocks stranded messages, whose blocker no longer exists: on_dead was block before, or rows
 * were deleted by hand. A few keys per call; repeated calls cover all keys.
 */
int pr_sqlite_unblock_stranded(struct sqlite_store *store, const struct pr_table *table, bool block,
			       struct pr_err *err);
/* Within a transaction that has just begun. */
int pr_sqlite_settle_rows(struct postroom_store *store, const struct pr_table *table,
			  const struct pr_settle *settle, struct pr_err *err);
/* POSTROOM_LEASE_LOST if the lease of any item was lost. */
int pr_sqlite_report_lost(const postroom_delivery *items, size_t count, struct pr_err *err);
/*
 * Keeps the dedupe keys of the messages of store->seqs, which are about to be deleted. If the
 * fencing token is not 0, only of messages claimed with it.
 */
int pr_sqlite_keep_dedupe_keys(struct sqlite_store *store, int64_t fencing_token,
			       struct pr_err *err);

/* As pr_store_ops.apply. */
int pr_sqlite_apply(struct postroom_store *store, const char *statement,
		    const postroom_delivery *job, struct pr_err *err);

/* statement.c: the handler's own statement. */
int pr_sqlite_check_statement(struct postroom_store *store, const char *statement,
			      struct pr_err *err);
/*
 * Runs the statement within the caller's transaction. POSTROOM_TX_ABORTED: the statement failed;
 * roll the transaction back if the statement has not done so.
 */
int pr_sqlite_run_statement(struct sqlite_store *store, const char *statement,
			    const struct pr_statement_parameters *event, struct pr_err *err);
/* Like pr_sqlite_end(). An error at the commit is a failure of the statement, too. */
int pr_sqlite_end_statement(struct sqlite_store *store, int status, struct pr_err *err);

/* inbox_insert.c */
int pr_sqlite_inbox_insert(struct postroom_store *store, const struct pr_inbox_insert *insert,
			   size_t *ret_at, struct pr_err *err);
int pr_sqlite_progress(struct postroom_store *store, const struct pr_progress *progress,
		       struct pr_err *err);

/* list.c */
/*
 * The sink of a row's last failed attempt, or ''. The columns of the attempt get other names, so that
 * id and handler_name are the row's. An application may write a UUID in another form than the history has.
 */
#define PR_SQLITE_SINK(handler, id)                                                                \
	"coalesce((SELECT sink FROM (SELECT handler_name AS h, id AS i, seq AS s, sink "           \
	"FROM postroom_attempts) WHERE h = " handler " AND i = " id                                \
	" ORDER BY s DESC LIMIT 1), '')"
#define PR_SQLITE_OUTBOX_SINK                                                                      \
	PR_SQLITE_SINK("''",                                                                       \
		       "CASE length(id) WHEN 32 THEN lower(substr(id, 1, 8) || '-' || "            \
		       "substr(id, 9, 4) || '-' || substr(id, 13, 4) || '-' || substr(id, 17, 4) " \
		       "|| '-' || substr(id, 21)) ELSE lower(id) END")
#define PR_SQLITE_INBOX_SINK PR_SQLITE_SINK("handler_name", "id")
const struct pr_filter_words *pr_sqlite_words(const postroom_filter *filter);
/* The query, prepared and bound; it ends at the store's deadline. NULL with err filled. */
sqlite3_stmt *pr_sqlite_prepare_query(struct sqlite_store *store, const struct pr_query *query,
				      struct pr_err *err);
/* Finalizes it; rc is what the last step returned. */
int pr_sqlite_answered(struct sqlite_store *store, sqlite3_stmt *stmt, int rc, const char *doing,
		       struct pr_err *err);
int pr_sqlite_list(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		   postroom_row_fn fn, void *context, struct pr_err *err);
int pr_sqlite_count(struct postroom_store *store, const postroom_filter *filter, int64_t cap,
		    int64_t *ret, struct pr_err *err);

/* groups.c */
int pr_sqlite_groups(struct postroom_store *store, const postroom_filter *filter,
		     const struct pr_grouping *grouping, struct pr_err *err);
/* postroom_fingerprint(), on the store's own connection. */
int pr_sqlite_add_functions(struct sqlite_store *store, struct pr_err *err);

/* gauges.c */
int pr_sqlite_collect(struct postroom_store *store, int64_t cap, struct pr_gauges *ret,
		      pr_topic_gauges_fn fn, void *context, struct pr_err *err);
int pr_sqlite_leases(struct postroom_store *store, pr_lease_fn fn, void *context,
		     struct pr_err *err);

/* attempts.c */
int pr_sqlite_attempts(struct postroom_store *store, const postroom_filter *filter,
		       postroom_attempt_fn fn, void *context, struct pr_err *err);
/* Within the caller's transaction: attempt number of this item failed. worker NULL: not known. */
int pr_sqlite_add_attempt(struct sqlite_store *store, const struct pr_table *table,
			  const postroom_delivery *item, const char *worker, const char *error,
			  struct pr_err *err);
/* Of the rows of store->seqs, which are about to be deleted. */
int pr_sqlite_delete_attempts(struct sqlite_store *store, const struct pr_table *table,
			      struct pr_err *err);
int pr_sqlite_purge_attempts(struct sqlite_store *store, const struct pr_table *table,
			     int32_t limit, int64_t *ret, struct pr_err *err);

/* admin.c */
/* Age 0 includes rows with a future timestamp, which exist after the clock was set back. */
int64_t pr_sqlite_before(int64_t older_than_ms);
int pr_sqlite_retry(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		    int64_t *ret, struct pr_err *err);
int pr_sqlite_purge(struct postroom_store *store, const struct pr_purge *purge, int64_t *ret,
		    struct pr_err *err);
int pr_sqlite_stats(struct postroom_store *store, const postroom_filter *filter,
		    postroom_counts *ret, postroom_topic_fn fn, void *context, struct pr_err *err);

/* source.c */
int pr_sqlite_record_sources(struct postroom_store *store, const char *handler, int64_t period_ms,
			     const struct pr_source_position *entries, size_t count,
			     struct pr_err *err);
int pr_sqlite_read_sources(struct postroom_store *store, const char *handler, pr_source_fn fn,
			   void *context, int64_t *ret_us, struct pr_err *err);

#endif
