/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a database must be able to do. A store is one file and one line in the
 * array of store.c; contract/store.c runs over every one of them.
 *
 * Every function returns a status and fills err; what it hands out is left
 * untouched on failure. A store is used by one thread at a time.
 */
#ifndef PR_STORE_STORE_H
#define PR_STORE_STORE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/pulse.h"
#include "base/stop.h"
#include "base/uuid.h"
#include "core/batch.h"
#include "core/message.h"
#include "store/table.h"

#include <stdbool.h>

struct pr_store_config {
	const char *url;
	bool create;		     /* make the file if there is none */
	int64_t busy_wait_ms;	     /* how long to wait for a lock; < 0: for ever, until stop */
	int64_t answer_ms;	     /* how long a server's answer may take; 0: as long as it does */
	int64_t statement_ms; /* how long a statement of take_in or apply may; 0: as long as it does */
	int64_t until_us;	     /* as the store's, for opening it */
	const char *schema;	     /* PostgreSQL; NULL: the first of the search_path */
	const struct pr_stop *stop;  /* ends waits; NULL: nobody stops us */
	struct pr_pulse *pulse;	     /* beats in waits that go on; NULL: nobody listens */
	bool finishing;		     /* connecting ends with the grace, not with the request to stop */
	struct pr_rules rules;	     /* beside the scope of each call; they outlive the store */
};

struct pr_scope {
	const char *ns;	   /* NULL: any, as the others; in the inbox it is the handler, and always given */
	const char *topic; /* pattern */
	const char *tenant_id;
};

/* Takes note of a scope, and knows it again. */
void pr_scope_keep(const struct pr_scope *scope, struct pr_buf *kept);
bool pr_scope_is(const struct pr_scope *scope, const struct pr_buf *kept);
bool pr_scope_is_all(const struct pr_scope *scope);

/* A batch's payloads and bodies in memory; a worker of the relay has two batches at most. */
#define PR_BATCH_BYTES ((size_t)8 * 1024 * 1024)

struct pr_claim {
	struct pr_scope scope;
	int32_t limit;
	size_t max_bytes;
	int64_t lease_ms;
	int32_t max_attempts;
	bool suspects; /* look for expired leases first; one of them comes alone */
	bool block;    /* a dead message holds its key back until an operator acts */
	bool loose;    /* keys do not order anything: each is claimed by itself */
};

/* Messages that no rule wants. */
struct pr_unrouted {
	int64_t count;
	char ns[POSTROOM_NAMESPACE_MAX + 1]; /* of one of them */
	char topic[POSTROOM_TOPIC_MAX + 1];
};

/* How an event that a broker has delivered comes into the inbox. */
enum pr_arriving {
	PR_ARRIVE_DONE,	   /* completed, together with its effect */
	PR_ARRIVE_PENDING, /* as a job */
	PR_ARRIVE_DEAD	   /* nobody can handle it, but it is not lost */
};

/* What an event that is to arrive done waits behind, of those before it with its topic and key. */
enum pr_in_order {
	PR_ORDER_NONE,	     /* nothing */
	PR_ORDER_UNFINISHED, /* what is not completed yet, save the dead */
	PR_ORDER_DEAD	     /* the dead too, which hold their key back until an operator acts */
};

/* An event for one handler, checked. Its strings are the caller's. */
struct pr_arrival {
	const char *id;
	const char *topic;
	const char *key; /* NULL if none */
	const char *content_type;
	const char *headers;	/* JSON object of strings */
	struct pr_span payload; /* JSON; data NULL: there is none, or it is not JSON */
	struct pr_span body;	/* what is not JSON; data NULL: there is none */
	enum pr_arriving how;
	int32_t attempts; /* made already */
	int64_t delay_ms; /* until it may be tried (again) */
	const char *error; /* of the last attempt; NULL if none */

	bool known;  /* out: it was there before; nothing was done */
	bool waits;  /* out: not done, but pending behind an earlier one of its key */
};

/* An event as the parameters of a statement; NULL, and no data, are NULL. */
struct pr_effect {
	struct pr_span payload;
	const char *id, *topic, *key, *headers;
};

static inline struct pr_effect pr_arrival_effect(const struct pr_arrival *arrival)
{
	return (struct pr_effect){ .payload = arrival->payload,
				   .id = arrival->id,
				   .topic = arrival->topic,
				   .key = arrival->key,
				   .headers = arrival->headers };
}

static inline struct pr_effect pr_job_effect(const postroom_delivery *job)
{
	return (struct pr_effect){ .payload = { job->payload_len ? job->payload : NULL,
						job->payload_len },
				   .id = job->id,
				   .topic = job->topic,
				   .key = job->key,
				   .headers = job->headers };
}

struct pr_progress {
	const char *handler, *id;
	int64_t fence;
	const char *step, *result;
	const char *checkpoint;
};

/* How the messages of a database are claimed: a property of the database, the same for all relays. */
enum pr_lease_kind {
	PR_LEASE_ROW, /* each message bears its own lease */
	PR_LEASE_LANE /* a lane of messages bears one for all of a batch */
};

/* Naps up to this are just slept. */
#define PR_STORE_NAP_MS 15

struct pr_migration {
	int version;
	const char *name;
	const char *sql;
};

typedef void (*pr_migration_fn)(void *context, const struct pr_migration *migration,
				int64_t applied_at_us, const char *applied_by);

struct pr_store_ops {
	const char *const *schemes; /* ends in NULL */
	bool embedded; /* the program's own file: made and upgraded without asking */

	int (*open)(const struct pr_store_config *config, struct postroom_store **ret,
		    struct pr_err *err);
	void (*close)(struct postroom_store *store);

	/* Applies what is missing; calls fn for each migration applied now. */
	int (*migrate)(struct postroom_store *store, pr_migration_fn fn, void *context,
		       struct pr_err *err);
	/* Calls fn for every known migration; applied_at_us is 0 for those still missing. */
	int (*migrations)(struct postroom_store *store, pr_migration_fn fn, void *context,
			  struct pr_err *err);
	/* POSTROOM_SCHEMA unless exactly the known migrations are there. */
	int (*check_schema)(struct postroom_store *store, struct pr_err *err);

	/* A transaction on the store's own connection, and the application's view of that connection. */
	int (*begin)(struct postroom_store *store, struct pr_err *err);
	int (*commit)(struct postroom_store *store, struct pr_err *err);
	void (*rollback)(struct postroom_store *store);
	postroom_box *(*box)(struct postroom_store *store);

	int (*claim)(struct postroom_store *store, const struct pr_table *table,
		     const struct pr_claim *claim, struct postroom_batch *batch,
		     struct pr_err *err);
	/* Each sets the items' settled; POSTROOM_LEASE_LOST when any was lost. */
	int (*renew)(struct postroom_store *store, const struct pr_table *table,
		     postroom_delivery *items, size_t count, int64_t lease_ms,
		     struct pr_err *err);
	int (*settle)(struct postroom_store *store, const struct pr_table *table,
		      postroom_delivery *items, size_t count, const struct pr_policy *policy,
		      struct pr_err *err);
	/*
	 * Settles, and claims the next batch in the same transaction. When it fails
	 * nothing was done at all; settling alone may still succeed.
	 */
	int (*turn)(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *items, size_t count, const struct pr_policy *policy,
		    const struct pr_claim *claim, struct postroom_batch *next, struct pr_err *err);
	/*
	 * Buries expired leases without attempts left, at most limit and max_bytes; they are added
	 * to batch->buried. Frees what is held behind nothing any more.
	 */
	int (*sweep)(struct postroom_store *store, const struct pr_table *table,
		     const struct pr_claim *claim, struct postroom_batch *batch,
		     struct pr_err *err);
	/*
	 * Sleeps until something may be due, for max_ms at most: less when a message
	 * becomes due by itself, when told to stop, and when a producer rings, if this
	 * database has a bell. Short naps cost no statement, longer ones one: store->idle
	 * tells what came of it.
	 */
	int (*wait)(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_scope *scope, int64_t max_ms, struct pr_err *err);
	/*
	 * Is anything leased, due, or waiting for another try? What is delayed and was
	 * never tried does not count, nor what the dead hold back where they block.
	 */
	int (*unfinished)(struct postroom_store *store, const struct pr_table *table,
			  const struct pr_claim *claim, bool *ret, struct pr_err *err);

	/*
	 * Counts what waits in this scope and is not this store's by its rules, up to
	 * limit. None where there are no rules.
	 */
	int (*unrouted)(struct postroom_store *store, const struct pr_table *table,
			const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
			struct pr_err *err);

	/*
	 * Takes events into the inbox, all in one transaction: each whose id and handler
	 * are new as its how says. For those that arrive done, statement is run with the
	 * event as its parameters (1 payload, 2 id, 3 topic, 4 key, 5 headers), save for
	 * those that have to wait for others by the order: they arrive pending.
	 * When the statement fails everything is rolled back, *ret_at is whose it was, and
	 * the status is POSTROOM_TX_ABORTED; other failures are not the event's fault.
	 */
	int (*take_in)(struct postroom_store *store, const char *handler, const char *statement,
		       enum pr_in_order order, struct pr_arrival *arrivals, size_t count,
		       size_t *ret_at, struct pr_err *err);
	/*
	 * Completes a claimed job and runs statement with it, in one transaction. As in
	 * take_in, POSTROOM_TX_ABORTED is the statement's own failure, and
	 * POSTROOM_LEASE_LOST means that nothing was done.
	 */
	int (*apply)(struct postroom_store *store, const char *statement,
		     const postroom_delivery *job, struct pr_err *err);
	/* POSTROOM_INVALID unless it is one statement that take_in and apply can run in a transaction. */
	int (*check_statement)(struct postroom_store *store, const char *statement,
			       struct pr_err *err);
	/*
	 * Writes down what a claimed job has done: step with its result (JSON) unless it
	 * is NULL, and checkpoint (JSON) unless that is NULL. POSTROOM_LEASE_LOST when the
	 * job is no longer active with this fence.
	 */
	int (*progress)(struct postroom_store *store, const struct pr_progress *progress,
			struct pr_err *err);

	/* The operator's side; see <postroom/store.h>. */
	int (*list)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		    postroom_row_fn fn, void *context, struct pr_err *err);
	int (*show)(struct postroom_store *store, const char *id, postroom_row_fn fn,
		    void *context, struct pr_err *err);
	/* id, or filter and limit. */
	int (*retry)(struct postroom_store *store, const struct pr_table *table, const char *id,
		     const postroom_filter *filter, int32_t limit, int64_t *ret,
		     struct pr_err *err);
	/* alone: nothing is done while somebody else is at it. */
	int (*purge)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		     bool alone, int64_t *ret, struct pr_err *err);
	int (*stats)(struct postroom_store *store, postroom_counts *ret, postroom_topic_fn fn,
		     void *context, struct pr_err *err);
	/* Changes how messages are claimed, unless want is NULL; *ret is how they are now. */
	int (*lease)(struct postroom_store *store, const enum pr_lease_kind *want,
		     enum pr_lease_kind *ret, struct pr_err *err);
	/*
	 * Forgets dedupe keys older than this whose messages have gone, at most limit.
	 * alone: nothing is done while somebody else is at it.
	 */
	int (*forget)(struct postroom_store *store, int64_t older_than_ms, int32_t limit,
		      bool alone, int64_t *ret, struct pr_err *err);

	/* The same of the inbox, with filters that have been checked. */
	int (*inbox_list)(struct postroom_store *store, const postroom_inbox_filter *filter,
			  int32_t limit, postroom_inbox_row_fn fn, void *context,
			  struct pr_err *err);
	int (*inbox_retry)(struct postroom_store *store, const postroom_inbox_filter *filter,
			   int32_t limit, int64_t *ret, struct pr_err *err);
	int (*inbox_purge)(struct postroom_store *store, const postroom_inbox_filter *filter,
			   int32_t limit, bool alone, int64_t *ret, struct pr_err *err);
	int (*inbox_stats)(struct postroom_store *store, postroom_inbox_counts *ret,
			   postroom_inbox_handler_fn fn, void *context, struct pr_err *err);
};

/* Every store begins with this. */
struct postroom_store {
	const struct pr_store_ops *ops;
	char worker[PR_UUID_SIZE]; /* new at every open: locked_by */
	struct pr_random random;
	struct pr_err err; /* of the last call through <postroom/store.h> */
	struct pr_err deaf; /* status < 0: why nobody can end a wait() early */
	bool idle; /* the last wait() has looked, and there was nothing that a claim could find */
	int64_t until_us; /* monotonic: nobody is waited for any longer; 0: by the configuration */
};

/* Finds the store for the URL's scheme and opens it. Creates no tables. */
int pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
		  struct pr_err *err);
/* Is it the program's own file, and no server that may come back? */
bool pr_store_is_embedded(const char *url);
/* Makes sure that the tables are there: an embedded store makes them, another must have them. */
int pr_store_ready(struct postroom_store *store, struct pr_err *err);
void pr_store_close(struct postroom_store *store);

/* postroom_claim() over any table; the error is the store's own. */
int pr_store_claim(struct postroom_store *store, const struct pr_table *table,
		   const postroom_claim_options *options, bool loose, postroom_batch **ret);

/* POSTROOM_LEASE_LOST, said in words. */
int pr_store_lease_lost(size_t lost, size_t count, struct pr_err *err);

/* As the tables write it, and back. */
const char *pr_inbox_state_name(postroom_inbox_state state);
postroom_inbox_state pr_inbox_state(const char *name);
void pr_inbox_counts_add(postroom_inbox_counts *total, const postroom_inbox_counts *more);

/* So long ago both databases can still count; beyond it an age would overflow into the future. */
#define PR_AGE_MAX_MS (365250LL * 24 * 3600 * 1000)
int pr_age_check(int64_t older_than_ms, struct pr_err *err);

/* Sums, and the older of the ages. */
void pr_counts_add(postroom_counts *total, const postroom_counts *more);

/* What the inbox is given: an event that is handled in this transaction, or a command. */
struct pr_entry {
	const char *id;
	const char *handler;
	bool completed;
	const char *payload; /* NULL if none */
};

/*
 * The application's side of a connection; outbox/enqueue.c and inbox/accept.c
 * check, this writes.
 */
struct pr_box_ops {
	/*
	 * Writes checked messages and fills receipts, which may be NULL. On failure
	 * *ret_at is the message it happened at. POSTROOM_DUPLICATE only for a single
	 * one; of many, each receipt tells.
	 */
	int (*insert)(postroom_box *box, const postroom_message *messages, size_t count,
		      postroom_receipt *receipts, size_t *ret_at, struct pr_err *err);
	/*
	 * Writes a checked entry, unless there is one with its id and handler:
	 * POSTROOM_OK or POSTROOM_DUPLICATE. *ret_state is set for what is not
	 * completed by this call.
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
