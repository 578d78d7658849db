/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of a store. A store is one directory and one line in the array of store.c.
 * contract/store runs over every store.
 *
 * Every function returns a status and fills err. On failure, output parameters stay untouched. A
 * store is used by one thread at a time.
 */
#ifndef PR_STORE_STORE_H
#define PR_STORE_STORE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/stop.h"
#include "base/uuid.h"
#include "base/watchdog.h"
#include "core/batch.h"
#include "core/message.h"
#include "store/box.h"
#include "store/gauges.h"
#include "store/inbox.h"
#include "store/table.h"

#include <stdbool.h>

struct pr_store_config {
	const char *url;
	bool create;	      /* create the file if it does not exist */
	int64_t busy_wait_ms; /* how long to wait for a lock; < 0: until a stop */
	int64_t answer_ms;    /* timeout of a server's reply; 0: none */
	int64_t statement_ms; /* timeout of the statement of inbox_insert and apply; 0: none */
	int64_t query_ms; /* the server cancels longer statements, except behind a pooler; 0: none */
	int64_t until_us;	      /* like the store's until_us, for opening it */
	const char *schema;	      /* PostgreSQL; NULL: the first of the search_path */
	const struct pr_stop *stop;   /* ends waits; NULL: no stop */
	struct pr_watchdog *watchdog; /* fed during long waits; NULL: none */
	bool finishing; /* the end of the grace period ends connecting, not the request to stop */
	struct pr_rules rules; /* in addition to the scope of each call; must outlive the store */
};

/* NULL members match everything. */
struct pr_scope {
	const char *ns;	   /* in the inbox it is the handler, which is required */
	const char *topic; /* pattern */
	const char *tenant_id;
};

/* Stores a scope, and compares with it. */
void pr_scope_store(const struct pr_scope *scope, struct pr_buf *kept);
bool pr_scope_equals(const struct pr_scope *scope, const struct pr_buf *kept);
bool pr_scope_is_all(const struct pr_scope *scope);

/* The content of a batch in memory, unless the caller decides: payloads, bodies and headers. */
#define PR_BATCH_BYTES ((size_t)8 * 1024 * 1024)

/*
 * A claim omits the content of larger messages, and load() reads it after the commit, so the
 * attempt counts even if the message cannot be received. PG_LARGE is the same.
 */
#define PR_LARGE_BYTES ((size_t)256 * 1024)

struct pr_claim {
	struct pr_scope scope;
	int32_t limit;
	size_t max_bytes; /* of content; 0: one message, without its content */
	int64_t lease_ms;
	int32_t max_attempts;
	bool reclaim_expired; /* claim expired leases first; one of them is claimed alone */
	bool block;	      /* a dead letter blocks its key until an operator acts */
	bool unordered;	      /* keys imply no order */
};

/* Items to settle: of one batch, with their verdicts. */
struct pr_settle {
	postroom_delivery *items;
	size_t count;
	const struct pr_policy *policy;
};

/* Unrouted messages: no rule matches them. */
struct pr_unrouted {
	int64_t count;
	char ns[POSTROOM_NAMESPACE_MAX + 1]; /* of one of them */
	char topic[POSTROOM_TOPIC_MAX + 1];
};

/* How the messages of a database are claimed. All its relays do the same. */
enum pr_lease_kind {
	PR_LEASE_ROW, /* each message has its own lease */
	PR_LEASE_LANE /* one lease per lane covers all its messages in a batch */
};

/* Why a wait() ended. */
enum pr_wakeup { PR_WAKEUP_POLLED, PR_WAKEUP_NOTIFIED, PR_WAKEUP_FILE, PR_WAKEUPS };

/* Waits up to this are plain sleeps, without a statement. */
#define PR_STORE_SHORT_WAIT_MS 15

struct pr_migration {
	int version;
	int compatible_with; /* programs that include all migrations up to this version keep working */
	const char *name;
	const char *sql; /* NULL: applied to the database by a newer program */
};

/* How much of the schema a program needs. */
enum pr_schema_need {
	/*
	 * No newer migration excludes this program; otherwise pr_schema_is_incompatible(). Missing
	 * tables are not a failure here.
	 */
	PR_SCHEMA_COMPATIBLE,
	PR_SCHEMA_COMPLETE /* and all migrations of this program are applied */
};

typedef void (*pr_migration_fn)(void *context, const struct pr_migration *migration,
				int64_t applied_at_us, const char *applied_by);

/* Kinds of rows that a purge deletes, at most limit of them per call. */
enum pr_purge_of {
	PR_PURGE_ROWS, /* of the filter, with their attempts */
	/* dedupe keys older than the filter's older_than_ms whose messages were deleted */
	PR_PURGE_DEDUPE_KEYS,
	/*
	 * attempts of rows of the filter's table that were deleted without a purge. Each call
	 * reads limit attempts and continues where the last one ended.
	 */
	PR_PURGE_ATTEMPTS
};

struct pr_purge {
	enum pr_purge_of of;
	const postroom_filter *filter;
	int32_t limit;
	bool exclusive; /* do nothing if another process is already purging */
};

/* How groups() answers. */
struct pr_grouping {
	int32_t limit; /* of groups */
	postroom_group_fn fn;
	void *context;
	int *ret_capped; /* set to 1 if only a part of the dead rows was read */
};

/*
 * The operations of a store. A store may leave the operations of the last group NULL; the functions
 * pr_store_*() below then apply the default. All others are required.
 *
 * Status codes that every operation may return: POSTROOM_UNAVAILABLE (the database cannot be
 * reached now), POSTROOM_BUSY (a lock or timeout), POSTROOM_STOPPED (the stop of the
 * configuration), POSTROOM_NOMEM, POSTROOM_DATABASE. After each of them, nothing was written and
 * the store can be used again, or at least closed.
 */
struct pr_store_ops {
	const char *const *schemes; /* ends in NULL; the first one is the name of the store */
	bool embedded;		    /* a file of the program: created and upgraded automatically */

	int (*open)(const struct pr_store_config *config, struct postroom_store **ret,
		    struct pr_err *err);
	void (*close)(struct postroom_store *store);

	/* Applies missing migrations in one transaction; calls fn for each one. */
	int (*migrate)(struct postroom_store *store, pr_migration_fn fn, void *context,
		       struct pr_err *err);
	/*
	 * Calls fn for every migration of this program (applied_at_us is 0 if it is missing), then
	 * for those that a newer program has applied.
	 */
	int (*migrations)(struct postroom_store *store, pr_migration_fn fn, void *context,
			  struct pr_err *err);
	/* POSTROOM_SCHEMA unless this program can use the tables; see enum pr_schema_need. */
	int (*check_schema)(struct postroom_store *store, enum pr_schema_need need,
			    struct pr_err *err);

	/*
	 * A write transaction on the store's own connection; other operations are not called
	 * within it. end() commits it if status >= 0, and returns status. Otherwise, or if the
	 * commit fails, it rolls back and returns the failure; err then keeps the first one.
	 */
	int (*begin)(struct postroom_store *store, struct pr_err *err);
	int (*end)(struct postroom_store *store, int status, struct pr_err *err);
	/* The application's side of that connection. It belongs to the store. */
	postroom_box *(*box)(struct postroom_store *store);

	/*
	 * Settles a batch, claims the next one, or does both in one transaction: settle or claim
	 * may be NULL, and batch is NULL without a claim.
	 *
	 * Settling writes each item's disposition, guarded by its fencing token, and sets its
	 * settled. It unblocks what was held behind finished messages. POSTROOM_LEASE_LOST: the
	 * leases of some items were lost; the others are settled, and the claim was made.
	 *
	 * Claiming adds to the batch, oldest first, due messages of the scope that the store's
	 * rules match, with a lease for this worker and a new fencing token. A key's messages are
	 * claimed in order, and none while an earlier one is unfinished elsewhere. Two workers
	 * never claim the same message. Messages without attempts left become dead letters, which
	 * are added to batch->dead_letters.
	 *
	 * On any other failure nothing was written, and the batch is empty. If both were asked
	 * for, settling alone may still succeed.
	 */
	int (*settle_and_claim)(struct postroom_store *store, const struct pr_table *table,
				const struct pr_settle *settle, const struct pr_claim *claim,
				struct postroom_batch *batch, struct pr_err *err);
	/*
	 * Reads the withheld content of a claimed item into the arena, and sets withheld to 0.
	 * POSTROOM_BUSY: it is larger than most; withheld is its size. POSTROOM_LEASE_LOST: the
	 * row no longer exists. POSTROOM_NOMEM: no memory for it. POSTROOM_INVALID: the database
	 * cannot return it. Other failures are failures of the database.
	 */
	int (*load)(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *item, size_t most, struct pr_arena *arena,
		    struct pr_err *err);
	/*
	 * Extends the leases of claimed items to lease_ms from now, and sets their settled.
	 * POSTROOM_LEASE_LOST if any lease was lost; the others are renewed.
	 */
	int (*renew)(struct postroom_store *store, const struct pr_table *table,
		     postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err);
	/*
	 * Dead-letters messages with an expired lease and no attempts left, at most limit and
	 * max_bytes, and adds them to batch->dead_letters. Unblocks stranded messages.
	 */
	int (*sweep)(struct postroom_store *store, const struct pr_table *table,
		     const struct pr_claim *claim, struct postroom_batch *batch,
		     struct pr_err *err);
	/*
	 * Sleeps until a message may be due, at most max_ms. It ends early when a message becomes
	 * due, at a stop, and when a producer notifies, if the database supports that. Short
	 * sleeps run no statement, longer ones run one, and store->idle is its result.
	 */
	int (*wait)(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_scope *scope, int64_t max_ms, struct pr_err *err);
	/*
	 * True if any message is leased, due or waiting for a retry. Delayed messages that were
	 * never tried do not count, nor messages behind blocking dead letters.
	 */
	int (*unfinished)(struct postroom_store *store, const struct pr_table *table,
			  const struct pr_claim *claim, bool *ret, struct pr_err *err);

	/*
	 * Inserts events into the inbox, all in one transaction. Duplicates (by id and handler)
	 * are skipped; the others are inserted as their how says. For completed events, the
	 * statement is run with the event as its parameters (1 payload, 2 id, 3 topic, 4 key, 5
	 * headers, 6 tenant_id, 7 correlation_id). Events that must wait for others by the order
	 * are inserted as pending instead. If the statement fails, everything is rolled back,
	 * *ret_at is the index of its event, and the status is POSTROOM_TX_ABORTED. Other failures
	 * are not attributed to an event.
	 */
	int (*inbox_insert)(struct postroom_store *store, const struct pr_inbox_insert *insert,
			    size_t *ret_at, struct pr_err *err);
	/*
	 * Completes a claimed job and runs the statement with it, in one transaction.
	 * POSTROOM_TX_ABORTED: the statement failed, as in inbox_insert. POSTROOM_LEASE_LOST:
	 * nothing was done.
	 */
	int (*apply)(struct postroom_store *store, const char *statement,
		     const postroom_delivery *job, struct pr_err *err);
	/*
	 * Records the progress of a claimed job: the step with its result (JSON) unless it is
	 * NULL, and the checkpoint (JSON) unless it is NULL. POSTROOM_LEASE_LOST: the job is no
	 * longer active with this fencing token.
	 */
	int (*progress)(struct postroom_store *store, const struct pr_progress *progress,
			struct pr_err *err);

	/*
	 * The operator's side; see <postroom/store.h>. filter->table says of which table. Filters
	 * have been checked: UUIDs are in lower case with hyphens.
	 *
	 * list() gives fn at most limit rows, newest first; a row with an id is found by it. No
	 * row is no failure. count() counts such rows, up to the cap. retry() makes dead rows
	 * pending again, oldest first. stats() counts by status, and calls fn for each topic or
	 * handler. groups() gives dead rows by their cause, most frequent first.
	 */
	int (*list)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		    postroom_row_fn fn, void *context, struct pr_err *err);
	int (*count)(struct postroom_store *store, const postroom_filter *filter, int64_t cap,
		     int64_t *ret, struct pr_err *err);
	int (*retry)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		     int64_t *ret, struct pr_err *err);
	int (*stats)(struct postroom_store *store, const postroom_filter *filter,
		     postroom_counts *ret, postroom_topic_fn fn, void *context, struct pr_err *err);
	int (*groups)(struct postroom_store *store, const postroom_filter *filter,
		      const struct pr_grouping *grouping, struct pr_err *err);
	/* See struct pr_gauges. fn may be NULL. */
	int (*collect)(struct postroom_store *store, int64_t cap, struct pr_gauges *ret,
		       pr_topic_gauges_fn fn, void *context, struct pr_err *err);
	/* Deletes old rows, in one short transaction; see struct pr_purge. */
	int (*purge)(struct postroom_store *store, const struct pr_purge *purge, int64_t *ret,
		     struct pr_err *err);

	/*
	 * Optional from here on. Each comment ends with the default.
	 *
	 * Counts pending messages of this scope that the store's rules do not match, up to limit.
	 * 0 if there are no rules. Default: 0.
	 */
	int (*unrouted)(struct postroom_store *store, const struct pr_table *table,
			const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
			struct pr_err *err);
	/*
	 * POSTROOM_INVALID unless it is one statement that inbox_insert and apply can run in a
	 * transaction. Default: every statement is one.
	 */
	int (*check_statement)(struct postroom_store *store, const char *statement,
			       struct pr_err *err);
	/* Gives fn the failed attempts of the filter's id, oldest first. Default: none. */
	int (*attempts)(struct postroom_store *store, const postroom_filter *filter,
			postroom_attempt_fn fn, void *context, struct pr_err *err);
	/* Gives fn the leases that have not expired, by worker. Default: none. */
	int (*leases)(struct postroom_store *store, pr_lease_fn fn, void *context,
		      struct pr_err *err);
	/*
	 * Changes the lease kind unless want is NULL. *ret is the current kind. Default: always
	 * PR_LEASE_ROW.
	 */
	int (*lease_kind)(struct postroom_store *store, const enum pr_lease_kind *want,
			  enum pr_lease_kind *ret, struct pr_err *err);
	/*
	 * Records positions that a handler has read; a lower one changes nothing. There is one row
	 * per source and period, so purged is exact to the period. entries NULL: deletes all
	 * positions of the handler, which has then read nothing. Default: records nothing.
	 */
	int (*record_sources)(struct postroom_store *store, const char *handler, int64_t period_ms,
			      const struct pr_source_position *entries, size_t count,
			      struct pr_err *err);
	/*
	 * Calls fn with each source of the handler; a failure of fn ends it. *ret_us is when the
	 * newest purged row of the handler was completed; 0: none. Default: no sources.
	 */
	int (*read_sources)(struct postroom_store *store, const char *handler, pr_source_fn fn,
			    void *context, int64_t *ret_us, struct pr_err *err);
};

/* Every store begins with this. */
struct postroom_store {
	const struct pr_store_ops *ops;
	char worker[PR_UUID_SIZE]; /* new at each open; written as locked_by */
	struct pr_random random;
	struct pr_err err; /* of the last call through <postroom/store.h> */
	struct pr_err
		notify_unavailable; /* status < 0: why no notification can end a wait() early */
	bool idle;		    /* the last wait() checked, and no message was claimable */
	enum pr_wakeup wakeup;	    /* of the last wait() */
	int64_t until_us;	    /* monotonic deadline of all waits; 0: as configured */
	const char *sink;	    /* named in the history of failed attempts; NULL: none */
};

/* The error of an attempt whose lease was taken over. */
#define PR_TAKEOVER_REASON "the lease expired during the attempt: its worker died or hung"
/* How long the attempt took; -1: not known. */
int64_t pr_attempt_duration_ms(const postroom_delivery *item);

/*
 * The cause of an error: UUIDs become <uuid>, hexadecimal numbers <hex>, other digits <n>; of the
 * first 1000 characters, the first 200 of the result. The databases compute the same with
 * postroom_fingerprint(). Returns the length, or POSTROOM_INVALID when size is too small.
 */
#define PR_FINGERPRINT_SIZE (200 * 4 + 1)
int pr_fingerprint(const char *error, char *out, size_t size);

/*
 * Settle and claim alone; see settle_and_claim(). The relay's combined call is the operation
 * itself.
 */
int pr_store_settle(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_settle *settle, struct pr_err *err);
int pr_store_claim(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err);

/* The optional operations, or their defaults. */
int pr_store_unrouted(struct postroom_store *store, const struct pr_table *table,
		      const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
		      struct pr_err *err);
int pr_store_check_statement(struct postroom_store *store, const char *statement,
			     struct pr_err *err);
int pr_store_attempts(struct postroom_store *store, const postroom_filter *filter,
		      postroom_attempt_fn fn, void *context, struct pr_err *err);
int pr_store_leases(struct postroom_store *store, pr_lease_fn fn, void *context,
		    struct pr_err *err);
int pr_store_lease_kind(struct postroom_store *store, const enum pr_lease_kind *want,
			enum pr_lease_kind *ret, struct pr_err *err);
int pr_store_record_sources(struct postroom_store *store, const char *handler, int64_t period_ms,
			    const struct pr_source_position *entries, size_t count,
			    struct pr_err *err);
int pr_store_delete_sources(struct postroom_store *store, const char *handler, struct pr_err *err);
int pr_store_read_sources(struct postroom_store *store, const char *handler, pr_source_fn fn,
			  void *context, int64_t *ret_us, struct pr_err *err);

/* The stores of this build. The last entry has no ops. */
extern const struct pr_store_entry {
	const struct pr_store_ops *ops;
	const struct pr_migration *schema;
} pr_stores[];
/* The store for the URL's scheme; NULL: none in this build. */
const struct pr_store_ops *pr_store_find(const char *url);
/* Opens the store for the URL. Creates no tables. */
int pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
		  struct pr_err *err);
/* True for a file of the program, false for a server. */
bool pr_store_is_embedded(const char *url);
/* True if a newer migration excludes this program. Waiting does not help. */
bool pr_schema_is_incompatible(const struct pr_err *err);
/* Makes sure that the tables exist: an embedded store creates them, others must have them. */
int pr_store_ready(struct postroom_store *store, struct pr_err *err);
void pr_store_close(struct postroom_store *store);

/* Memory for the content of items, and for the reasons why some cannot be received. */
struct pr_content_load {
	const struct pr_table *table;
	const struct pr_policy *policy;
	size_t most; /* of content */
	struct pr_arena *content, *reasons;
};
/*
 * Loads an item. If its content cannot be received, the item gets a verdict or is lost, and the
 * call succeeds. POSTROOM_BUSY: it is larger than most. Other statuses: the database failed.
 */
int pr_store_load(struct postroom_store *store, const struct pr_content_load *loading,
		  postroom_delivery *item, struct pr_err *err);

/* postroom_claim() for any table; the error is in the store. */
int pr_store_claim_new(struct postroom_store *store, const struct pr_table *table,
		       const postroom_claim_options *options, bool unordered, postroom_batch **ret);

/* Fills err for POSTROOM_LEASE_LOST. */
int pr_store_lease_lost(size_t lost, size_t count, struct pr_err *err);

/* The state as the tables spell it, and the reverse. */
const char *pr_inbox_state_name(postroom_inbox_state state);
postroom_inbox_state pr_inbox_state(const char *name);

/*
 * The greatest age that both databases can compute; a greater one would overflow into the future.
 */
#define PR_AGE_MAX_MS (365250LL * 24 * 3600 * 1000)
int pr_age_check(int64_t older_than_ms, struct pr_err *err);

/* Adds the counts and keeps the greater age. */
void pr_counts_add(postroom_counts *total, const postroom_counts *more);

extern const struct pr_store_ops pr_store_sqlite;
extern const struct pr_store_ops pr_store_pgsql;

#endif
