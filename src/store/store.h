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
#include "base/watchdog.h"
#include "base/stop.h"
#include "base/uuid.h"
#include "core/batch.h"
#include "core/message.h"
#include "store/table.h"

#include <stdbool.h>

struct pr_store_config {
	const char *url;
	bool create;		     /* create the file if it does not exist */
	int64_t busy_wait_ms;	     /* how long to wait for a lock; < 0: until a stop */
	int64_t answer_ms;	     /* timeout of a server's reply; 0: none */
	int64_t statement_ms; /* timeout of the statement of inbox_insert and apply; 0: none */
	int64_t until_us;	     /* like the store's until_us, for opening it */
	const char *schema;	     /* PostgreSQL; NULL: the first of the search_path */
	const struct pr_stop *stop;  /* ends waits; NULL: no stop */
	struct pr_watchdog *watchdog;	     /* fed during long waits; NULL: none */
	bool finishing;		     /* the end of the grace period ends connecting, not the request to stop */
	struct pr_rules rules;	     /* in addition to the scope of each call; must outlive the store */
};

struct pr_scope {
	const char *ns;	   /* NULL: any, like the others; in the inbox it is the handler, which is required */
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
	bool block;    /* a dead letter blocks its key until an operator acts */
	bool unordered;    /* keys imply no order */
};

/* Unrouted messages: no rule matches them. */
struct pr_unrouted {
	int64_t count;
	char ns[POSTROOM_NAMESPACE_MAX + 1]; /* of one of them */
	char topic[POSTROOM_TOPIC_MAX + 1];
};

/* How an incoming event is inserted into the inbox. */
enum pr_insert_as {
	PR_INSERT_COMPLETED,	   /* completed, together with its effect */
	PR_INSERT_PENDING, /* as a job */
	PR_INSERT_DEAD	   /* no handler can process it, but it is not lost */
};

/* Which earlier events of its topic and key block an event that would be inserted as completed. */
enum pr_insert_order {
	PR_ORDER_NONE,	     /* none */
	PR_ORDER_UNFINISHED, /* unfinished events, except dead ones */
	PR_ORDER_DEAD	     /* unfinished and dead events: dead ones block their key until an operator acts */
};

/* A checked event for one handler. The caller owns its strings. */
struct pr_incoming_event {
	const char *id;
	const char *topic;
	const char *key; /* NULL if none */
	const char *tenant_id;	    /* in lower case; NULL if none */
	const char *correlation_id; /* NULL if none */
	const char *content_type;
	const char *headers;	/* JSON object of strings */
	struct pr_span payload; /* JSON; data NULL: none, or not JSON */
	struct pr_span body;	/* content that is not JSON; data NULL: none */
	enum pr_insert_as how;
	int32_t attempts; /* attempts so far */
	int64_t delay_ms; /* delay before the next attempt */
	const char *error; /* of the last attempt; NULL if none */

	bool duplicate;  /* out: a duplicate; nothing was done */
	bool waits;  /* out: pending behind an earlier event of its key */
};

/* An event as the parameters of a statement; NULL, and no data, are NULL. */
struct pr_statement_parameters {
	struct pr_span payload;
	const char *id, *topic, *key, *headers, *tenant_id, *correlation_id;
};

static inline struct pr_statement_parameters pr_incoming_event_parameters(const struct pr_incoming_event *incoming)
{
	return (struct pr_statement_parameters){ .payload = incoming->payload,
				   .id = incoming->id,
				   .topic = incoming->topic,
				   .key = incoming->key,
				   .headers = incoming->headers,
				   .tenant_id = incoming->tenant_id,
				   .correlation_id = incoming->correlation_id };
}

static inline struct pr_statement_parameters pr_job_parameters(const postroom_delivery *job)
{
	return (struct pr_statement_parameters){ .payload = { job->payload_len ? job->payload : NULL,
						job->payload_len },
				   .id = job->id,
				   .topic = job->topic,
				   .key = job->key,
				   .headers = job->headers,
				   .tenant_id = job->tenant_id,
				   .correlation_id = job->correlation_id };
}

/*
 * How far a handler has read a stream or partition. Positions are text that sorts in the broker's
 * order.
 */
struct pr_source_position {
	const char *source;
	const char *position; /* the highest position read */
	const char *purged; /* the highest position whose row may have been purged; "": none */
};
typedef int (*pr_source_fn)(void *context, const struct pr_source_position *entry, struct pr_err *err);

struct pr_progress {
	const char *handler, *id;
	int64_t fencing_token;
	const char *step, *result;
	const char *checkpoint;
};

/* How the messages of a database are claimed: a property of the database, the same for all relays. */
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

typedef void (*pr_migration_fn)(void *context, const struct pr_migration *migration,
				int64_t applied_at_us, const char *applied_by);

/*
 * Bounded counts for metrics and dashboards, of index entries only. Every count stops at the cap
 * that the caller gives; capped says that at least one did.
 */
struct pr_gauges {
	int64_t pending, processing, dead;
	int64_t failed_pending; /* of the pending ones: after at least one attempt */
	int64_t scheduled;	/* of the pending ones: delayed, never tried, not due yet */
	int64_t due;		/* of the pending ones: may be claimed now */
	int64_t oldest_age_us;	/* age of the oldest due or retried message; -1: none */
	int64_t inbox_pending, inbox_active, inbox_dead;
	int64_t inbox_oldest_age_us;
	int64_t table_bytes; /* of the outbox and its indexes; -1: not known */
	int64_t dead_tuples; /* PostgreSQL's estimate; -1: not known */
	bool capped;
	bool topics_capped; /* the figures by topic and handler cover a part of the rows, or of the topics */
};

/* Figures of one topic of the outbox, or of one handler of the inbox. */
struct pr_topic_gauges {
	postroom_table table;
	const char *ns;	   /* of a topic; NULL for a handler */
	const char *topic; /* or the handler */
	int64_t pending, processing, failed_pending, dead;
	int64_t oldest_age_us; /* -1: nothing waits */
};
typedef void (*pr_topic_gauges_fn)(void *context, const struct pr_topic_gauges *topic);

#define PR_GAUGES_CAP 100000
#define PR_GAUGES_TOPICS 100

/* fn, if any, gets at most PR_GAUGES_TOPICS topics and as many handlers. */
int pr_store_collect(struct postroom_store *store, int64_t cap, struct pr_gauges *ret,
		     pr_topic_gauges_fn fn, void *context, struct pr_err *err);

/* Leases of one worker that have not expired. */
struct pr_lease_view {
	const char *worker;
	postroom_table table;
	int64_t messages;
	int64_t lanes;		 /* 0: each message has its own lease */
	int64_t locked_until_us; /* the latest */
};
typedef void (*pr_lease_fn)(void *context, const struct pr_lease_view *lease);
int pr_store_leases(struct postroom_store *store, pr_lease_fn fn, void *context,
		    struct pr_err *err);

struct pr_store_ops {
	const char *const *schemes; /* ends in NULL */
	bool embedded; /* a file of the program: created and upgraded automatically */

	int (*open)(const struct pr_store_config *config, struct postroom_store **ret,
		    struct pr_err *err);
	void (*close)(struct postroom_store *store);

	/* Applies missing migrations; calls fn for each one. */
	int (*migrate)(struct postroom_store *store, pr_migration_fn fn, void *context,
		       struct pr_err *err);
	/*
	 * Calls fn for every migration of this program (applied_at_us is 0 if it is missing), then
	 * for those that a newer program has applied.
	 */
	int (*migrations)(struct postroom_store *store, pr_migration_fn fn, void *context,
			  struct pr_err *err);
	/*
	 * POSTROOM_SCHEMA unless all migrations of this program are applied, and no newer one that
	 * excludes this program.
	 */
	int (*check_schema)(struct postroom_store *store, struct pr_err *err);
	/*
	 * POSTROOM_SCHEMA and pr_schema_is_incompatible() only if a newer migration excludes this
	 * program.
	 */
	int (*check_compatible)(struct postroom_store *store, struct pr_err *err);

	/* A transaction on the store's own connection, and the application's view of that connection. */
	int (*begin)(struct postroom_store *store, struct pr_err *err);
	int (*commit)(struct postroom_store *store, struct pr_err *err);
	void (*rollback)(struct postroom_store *store);
	postroom_box *(*box)(struct postroom_store *store);

	int (*claim)(struct postroom_store *store, const struct pr_table *table,
		     const struct pr_claim *claim, struct postroom_batch *batch,
		     struct pr_err *err);
	/*
	 * Reads the withheld content of a claimed item into the arena, and sets withheld to 0.
	 * POSTROOM_BUSY: it is larger than most; withheld is its size. POSTROOM_LEASE_LOST: the
	 * row no longer exists. POSTROOM_NOMEM: no memory for it. POSTROOM_INVALID: the database
	 * cannot return it. Other failures are failures of the database.
	 */
	int (*load)(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *item, size_t most, struct pr_arena *arena,
		    struct pr_err *err);
	/* Both set the items' settled. POSTROOM_LEASE_LOST if any lease was lost. */
	int (*renew)(struct postroom_store *store, const struct pr_table *table,
		     postroom_delivery *items, size_t count, int64_t lease_ms,
		     struct pr_err *err);
	int (*settle)(struct postroom_store *store, const struct pr_table *table,
		      postroom_delivery *items, size_t count, const struct pr_policy *policy,
		      struct pr_err *err);
	/*
	 * Settles, and claims the next batch in the same transaction. On failure nothing was
	 * written; settling without a claim may still succeed.
	 */
	int (*settle_and_claim)(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *items, size_t count, const struct pr_policy *policy,
		    const struct pr_claim *claim, struct postroom_batch *next, struct pr_err *err);
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
	 * Counts pending messages of this scope that the store's rules do not match, up to limit.
	 * 0 if there are no rules.
	 */
	int (*unrouted)(struct postroom_store *store, const struct pr_table *table,
			const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
			struct pr_err *err);

	/*
	 * Inserts events into the inbox, all in one transaction. Duplicates (by id and handler)
	 * are skipped; the others are inserted as their how says. For completed events, the
	 * statement is run with the event as its parameters (1 payload, 2 id, 3 topic, 4 key, 5
	 * headers, 6 tenant_id, 7 correlation_id). Events that must wait for others by the order
	 * are inserted as pending instead. If the statement fails, everything is rolled back,
	 * *ret_at is the index of its event, and the status is POSTROOM_TX_ABORTED. Other failures
	 * are not attributed to an event.
	 */
	int (*inbox_insert)(struct postroom_store *store, const char *handler, const char *statement,
		       enum pr_insert_order order, struct pr_incoming_event *incoming_events, size_t count,
		       size_t *ret_at, struct pr_err *err);
	/*
	 * Completes a claimed job and runs the statement with it, in one transaction.
	 * POSTROOM_TX_ABORTED: the statement failed, as in inbox_insert. POSTROOM_LEASE_LOST:
	 * nothing was done.
	 */
	int (*apply)(struct postroom_store *store, const char *statement,
		     const postroom_delivery *job, struct pr_err *err);
	/*
	 * POSTROOM_INVALID unless it is one statement that inbox_insert and apply can run in a
	 * transaction.
	 */
	int (*check_statement)(struct postroom_store *store, const char *statement,
			       struct pr_err *err);
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
	 */
	int (*list)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		    postroom_row_fn fn, void *context, struct pr_err *err);
	/* All rows with the filter's id and handler, in full; none is no failure. */
	int (*show)(struct postroom_store *store, const postroom_filter *filter,
		    postroom_row_fn fn, void *context, struct pr_err *err);
	int (*retry)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		     int64_t *ret, struct pr_err *err);
	/* alone: nothing is done while another relay purges. */
	int (*purge)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		     bool alone, int64_t *ret, struct pr_err *err);
	int (*stats)(struct postroom_store *store, const postroom_filter *filter,
		     postroom_counts *ret, postroom_topic_fn fn, void *context, struct pr_err *err);
	int (*count)(struct postroom_store *store, const postroom_filter *filter, int64_t cap,
		     int64_t *ret, struct pr_err *err);
	int (*groups)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		      postroom_group_fn fn, void *context, int *ret_capped, struct pr_err *err);
	int (*attempts)(struct postroom_store *store, const postroom_filter *filter,
			postroom_attempt_fn fn, void *context, struct pr_err *err);
	int (*collect)(struct postroom_store *store, int64_t cap, struct pr_gauges *ret,
		       pr_topic_gauges_fn fn, void *context, struct pr_err *err);
	int (*leases)(struct postroom_store *store, pr_lease_fn fn, void *context,
		      struct pr_err *err);
	/*
	 * Deletes attempts of the table's rows that have left without a purge. Each call reads
	 * limit attempts and continues where the last one ended; *ret is how many are gone.
	 */
	int (*tidy_attempts)(struct postroom_store *store, const struct pr_table *table,
			     int32_t limit, int64_t *ret, struct pr_err *err);
	/* Changes the lease kind unless want is NULL. *ret is the current kind. */
	int (*lease)(struct postroom_store *store, const enum pr_lease_kind *want,
		     enum pr_lease_kind *ret, struct pr_err *err);
	/*
	 * Purges dedupe keys older than this whose messages were deleted, at most limit. alone: do
	 * nothing if another process is already purging.
	 */
	int (*forget)(struct postroom_store *store, int64_t older_than_ms, int32_t limit,
		      bool alone, int64_t *ret, struct pr_err *err);

	/*
	 * Records positions that a handler has read; a lower one changes nothing. There is one row
	 * per source and period, so purged is exact to the period.
	 */
	int (*record_sources)(struct postroom_store *store, const char *handler, int64_t period_ms,
			    const struct pr_source_position *entries, size_t count, struct pr_err *err);
	/*
	 * Calls fn with each source of the handler; a failure of fn ends it. *ret_us is when the
	 * newest purged row of the handler was completed; 0: none.
	 */
	int (*read_sources)(struct postroom_store *store, const char *handler,
			    pr_source_fn fn, void *context, int64_t *ret_us, struct pr_err *err);
	/* Deletes the positions: the handler has read nothing. */
	int (*forget_sources)(struct postroom_store *store, const char *handler,
			      struct pr_err *err);
};

/* Every store begins with this. */
struct postroom_store {
	const struct pr_store_ops *ops;
	char worker[PR_UUID_SIZE]; /* new at each open; written as locked_by */
	struct pr_random random;
	struct pr_err err; /* of the last call through <postroom/store.h> */
	struct pr_err notify_unavailable; /* status < 0: why no notification can end a wait() early */
	bool idle; /* the last wait() checked, and no message was claimable */
	enum pr_wakeup wakeup; /* of the last wait() */
	int64_t until_us; /* monotonic deadline of all waits; 0: as configured */
	const char *sink; /* named in the history of failed attempts; NULL: none */
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

/* Finds the store for the URL's scheme and opens it. Creates no tables. */
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
int pr_store_claim(struct postroom_store *store, const struct pr_table *table,
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

/* An entry for the inbox: an event that is handled in this transaction, or a command. */
struct pr_entry {
	const char *id;
	const char *handler;
	bool completed;
	const char *payload;   /* NULL if none, like the others */
	const char *tenant_id; /* in lower case */
	const char *correlation_id;
};

/*
 * The application's side of a connection; outbox/enqueue.c and inbox/accept.c
 * check, this writes.
 */
struct pr_box_ops {
	/*
	 * Writes checked messages and fills receipts, which may be NULL. On failure, *ret_at is
	 * the index of the message. POSTROOM_DUPLICATE only for a single message; for several, see
	 * each receipt.
	 */
	int (*insert)(postroom_box *box, const postroom_message *messages, size_t count,
		      postroom_receipt *receipts, size_t *ret_at, struct pr_err *err);
	/*
	 * Writes a checked entry unless its id and handler exist: POSTROOM_OK or
	 * POSTROOM_DUPLICATE. *ret_state is set for entries that this call does not complete.
	 */
	int (*accept)(postroom_box *box, const struct pr_entry *entry,
		      postroom_inbox_state *ret_state, struct pr_err *err);
	bool (*in_transaction)(postroom_box *box);
	void (*free)(postroom_box *box);
};

struct postroom_box {
	const struct pr_box_ops *ops;
	size_t max_payload; /* 0: POSTROOM_PAYLOAD_DEFAULT_MAX */
	struct pr_uuid_gen uuids;
	struct pr_err err;
};

extern const struct pr_store_ops pr_store_sqlite;
extern const struct pr_store_ops pr_store_pgsql;

#endif
