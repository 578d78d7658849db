/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the PostgreSQL store only. */
#ifndef PR_STORE_PGSQL_PGSQL_H
#define PR_STORE_PGSQL_PGSQL_H

#include "store/query.h"
#include "store/store.h"

#include <libpq-fe.h>

/* See settle.c. */
#define PG_SETTLE_ARRAYS 23

/* As many as the schema has. */
#define PG_LANES 64

/* Claim paths: see claim.c. */
enum pgsql_path {
	PG_PATH_SCHEDULED,
	PG_PATH_UNKEYED,
	PG_PATH_LANES,
	PG_ROTATING_PATHS,
	PG_PATH_EXPIRED = PG_ROTATING_PATHS,
	PG_PATHS
};

struct pgsql_path_state {
	int64_t head_due_us; /* when to read the index from its head again */
	int skip; /* the path was empty: number of claims that skip it while other paths are not empty */
	bool busy;	  /* the last batch was full */
	bool from_resume; /* and was read from the resume position */
};

struct pgsql_store {
	struct postroom_store base;
	PGconn *conn;
	char *url;
	char shown[200];  /* the URL without its password */
	char schema[140]; /* quoted, with its dot */
	bool pooled;	  /* behind a pooler: the session has no state of ours */
	bool by_index;	  /* see pr_pgsql_force_index_scans() */
	const struct pr_table
		*listening; /* the table whose channel this connection listens on; NULL: none */
	bool notified;	    /* a notification was received and is not yet acted on */
	int64_t announced;  /* the value of our last announcement: see wait.c */
	int64_t answer_ms;  /* timeout of a reply; 0: none */
	const struct pr_stop *stop;
	struct pr_watchdog *watchdog;
	struct pr_rules rules;
	postroom_box *box;
	/* See claim.c. */
	struct pgsql_path_state path_state[PG_ROTATING_PATHS];
	enum pgsql_path first_path; /* the path that the next claim reads first */
	int64_t resume_us,
		resume_seq
			[PG_LANES +
			 1]; /* resume positions, after the last row claimed: of unkeyed rows, and of each lane */
	size_t message_bytes; /* size of typical messages; 0: unknown */
	/* See lane.c. */
	bool lease_kind_known;
	int64_t epochs[PG_LANES + 1]; /* epochs of the lanes at their resume positions */
	struct pr_buf head_snapshot;  /* the snapshot that read the lanes from their heads */
	bool none_expired;	      /* at the last scan of the lanes */
	enum pr_lease_kind kind;      /* the lease kind at the last check */
	struct pr_buf lanes;	      /* lanes of the last batch, or lanes to claim from */
	int64_t lanes_wanted;	      /* how many lanes fill a batch */
	bool many_keys;		      /* the last batch was full and had many keys */
	size_t in_flight;	      /* messages claimed by lanes and not settled yet */
	bool no_blockers;	      /* the last scan claimed every row that it found */
	bool fast_path;		      /* and found few rows */
	bool blocked; /* blockers exist that the last scan did not check, or more rows than fit */
	int64_t blockers_until_us; /* until then there may be blockers; then check again */
	struct pr_buf low_water;   /* where scans of the lanes started at the last scan: bigint[] */
	struct pr_buf passed;	   /* open transactions that these marks have passed: xid8[] */
	/* See low_water.c. */
	int64_t scan_us; /* duration of the last scan of all lanes */
	size_t since_raised; /* messages claimed from lanes since the low-water marks were last raised */
	int64_t raise_due_us;
	int64_t lower_due_us;
	int64_t lanes_checked_below; /* number of lanes that were checked below their low-water mark */
	int64_t low_water_seq,
		low_water_us; /* where the marks may rise to once all holders have ended: lanes, the rest */
	int64_t proven_seq, proven_us; /* where they have risen to */
	struct pr_buf
		holders; /* transactions that were writing messages when that was the last seq: text[] */
	int64_t passing_seq;	       /* where the marks of the lanes may rise to, past those of */
	struct pr_buf passing_holders; /* that have an id: text[] */
	bool passed_ended; /* scans start below the marks of the lanes, because one that was passed has ended */
	struct pr_buf scope;	       /* scope that has low-water marks of its own in this store */
	struct pr_buf scope_low_water; /* low-water marks of the lanes for this scope: bigint[] */
	int64_t scope_low_water_us;    /* the same for unkeyed rows */
	int64_t scope_low_water_until_us; /* when to find them again */
	enum pr_lease_kind scope_low_water_kind;
	/* See settle.c. */
	struct pr_buf arrays[PG_SETTLE_ARRAYS];
	struct pgsql_prepared {
		char *text;
		bool prepared;
	} * prepared; /* the statements of sql/: see named.h */
	/* Up to which attempt attempts were purged: see attempts.c. */
	struct pr_buf purged_handler, purged_id;
	int64_t purged_seq;
	/* See statement.c. */
	int64_t statement_ms; /* its timeout; 0: none */
	char *statement;      /* the user's statement, as prepared */
	unsigned statements;  /* number of names used */
};

static inline struct pgsql_store *pgsql_store(struct postroom_store *store)
{
	return (struct pgsql_store *)store;
}

/* Converts an error of the server or libpq into a status and a sentence: "doing: …". */
int pr_pgsql_fail(PGconn *conn, const PGresult *result, const char *where, const char *doing,
		  struct pr_err *err);

/*
 * The same for the user's statement. Returns status if the statement itself failed. Failures of
 * the database (a lost connection, no room, a conflict worth a retry) are returned as usual.
 */
int pr_pgsql_fail_statement(PGconn *conn, const PGresult *result, const char *where, int status,
			    const char *doing, struct pr_err *err);

/* Parameters of a statement, in text format by default. NULL is SQL's NULL. */
#define PG_PARAMS_MAX 17
struct pgsql_params {
	int count;
	const char *values[PG_PARAMS_MAX];
	int lengths[PG_PARAMS_MAX];
	int formats[PG_PARAMS_MAX];
	char numbers[PG_PARAMS_MAX][24];
};

void pr_pgsql_text(struct pgsql_params *params, const char *value);
void pr_pgsql_number(struct pgsql_params *params, int64_t value);
/* In binary. No data is SQL's NULL. */
void pr_pgsql_bytes(struct pgsql_params *params, struct pr_span bytes);

/* Runs an unprepared statement. The caller clears the result. NULL: failure, err is filled. */
PGresult *pr_pgsql_query(struct pgsql_store *store, const char *sql, struct pgsql_params *params,
			 const char *doing, struct pr_err *err);

/* One of several statements that share a round trip, a transaction and a commit. */
struct pgsql_step {
	const struct pgsql_sql *sql;
	struct pgsql_params *params;
	bool binary;	  /* the result */
	PGresult *result; /* the caller's to clear */
};

/* Runs one alone. */
PGresult *pr_pgsql_run_step(struct pgsql_store *store, const struct pgsql_step *step,
			    const char *doing, struct pr_err *err);

/*
 * Sends a prepared statement whose result is read row by row, in binary, so that libpq has only
 * one row in memory. pr_pgsql_await_row() returns each row, then a result without rows, then NULL.
 * It also returns NULL, with err filled, after a failure.
 */
bool pr_pgsql_run_step_by_row(struct pgsql_store *store, const struct pgsql_step *step,
			      const char *doing, struct pr_err *err);
PGresult *pr_pgsql_await_row(struct pgsql_store *store, const char *doing, struct pr_err *err);
/* After the last row or a failure (in err): makes the connection ready for the next statement. */
int pr_pgsql_end_rows(struct pgsql_store *store, const char *doing, struct pr_err *err);

/*
 * All or nothing; on failure there are no results. A transaction that the first of them
 * has begun is left as it is.
 */
int pr_pgsql_run_all(struct pgsql_store *store, struct pgsql_step *steps, size_t count,
		     const char *doing, struct pr_err *err);

/* Of a failed transaction, too. Outside of one it does nothing. */
void pr_pgsql_rollback(struct pgsql_store *store);

/* Statements that share a round trip. */
struct pgsql_pipe {
	/* Sends number i; false if libpq could not. */
	bool (*send)(struct pgsql_store *store, void *context, size_t i);
	/* Handles and clears its result. False: failure, err is filled. */
	bool (*answer)(struct pgsql_store *store, void *context, size_t i, PGresult *result,
		       struct pr_err *err);
	void *context;
	size_t count;
};
int pr_pgsql_pipe(struct pgsql_store *store, const struct pgsql_pipe *pipe, const char *doing,
		  struct pr_err *err);

/* The single result of a sent statement. NULL: failure, err is filled. */
PGresult *pr_pgsql_await(struct pgsql_store *store, const char *doing, struct pr_err *err);

/* Empties libpq's notification queue. store->notified is true if there was a notification. */
void pr_pgsql_drain_notifications(struct pgsql_store *store);

/*
 * Makes this session use index scans in index order, as claims, sweeps and purges need. With
 * outdated statistics, the planner would sort all due rows to find the first hundred. Behind a
 * pooler, the planner decides.
 */
int pr_pgsql_force_index_scans(struct pgsql_store *store, struct pr_err *err);

/*
 * sql with {schema}, the table's {fields}, PostgreSQL's own of them and the store's
 * {rules} ("AND … ", or nothing) filled in; free() it. NULL: no memory.
 */
char *pr_pgsql_sql(struct pgsql_store *store, const struct pr_table *table, const char *sql);

/* "status = '…' AND ", or nothing for NULL: the indexes of the states know no parameters. */
const char *pr_pgsql_condition(const char *status);

/* Converts a topic pattern for LIKE, into out: only '*' is special. NULL stays NULL. */
const char *pr_pgsql_pattern(const char *pattern, struct pr_buf *out);

static inline void pr_pgsql_clear(PGresult **result)
{
	PQclear(*result);
}
#define PR_CLEANUP_RESULT __attribute__((cleanup(pr_pgsql_clear)))

/*
 * Waits until the socket is ready for events, at most until until_us (0: no deadline).
 * until_request: the request to stop ends the wait, not only the end of its grace period.
 */
int pr_pgsql_wait_socket(struct pgsql_store *store, short events, int64_t until_us,
			 bool until_request, const char *doing, struct pr_err *err);

/* connect.c: fills in conn, schema and pooled. */
int pr_pgsql_connect(struct pgsql_store *store, const struct pr_store_config *config,
		     struct pr_err *err);

/* migrate.c */
int pr_pgsql_migrate(struct postroom_store *store, pr_migration_fn fn, void *context,
		     struct pr_err *err);
int pr_pgsql_migrations(struct postroom_store *store, pr_migration_fn fn, void *context,
			struct pr_err *err);
int pr_pgsql_check_schema(struct postroom_store *store, enum pr_schema_need need,
			  struct pr_err *err);

/* box.c */
postroom_box *pr_pgsql_box(struct postroom_store *store);
/* The connection is closed before the box is freed. */
void pr_pgsql_box_disconnect(postroom_box *box);

/* batch.c: behind {columns} every claim answers with these. */
enum {
	PG_COL_DEAD = PR_COL_COUNT,
	PG_COL_LANE,
	PG_COL_EPOCH,
	PG_COL_DUE,
	PG_COL_CTID,
	PG_COL_FOUND,
	PG_COL_SNAPSHOT,
	PG_COL_LOW_WATER,
	PG_COL_PASSED,
	PG_COL_PASSED_ENDED,
	PG_COL_IS_DUE,
	PG_COL_EXPIRED,
	PG_COL_BLOCKERS
};

/* The batch owns the result. by_lane: the lanes have the leases. reason: of the dead letters. */
int pr_pgsql_read_batch(const struct pr_table *table, PGresult *result, bool by_lane,
			const char *reason, struct postroom_batch *batch, struct pr_err *err);

/* load.c */
int pr_pgsql_load(struct postroom_store *store, const struct pr_table *table,
		  postroom_delivery *item, size_t most, struct pr_arena *arena, struct pr_err *err);

/* claim.c */
int pr_pgsql_settle_and_claim(struct postroom_store *store, const struct pr_table *table,
			      const struct pr_settle *settle, const struct pr_claim *claim,
			      struct postroom_batch *batch, struct pr_err *err);
int pr_pgsql_sweep(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err);
int pr_pgsql_unfinished(struct postroom_store *store, const struct pr_table *table,
			const struct pr_claim *claim, bool *ret, struct pr_err *err);

/* lane.c: messages in flight at a crashed worker become messages with expired row leases. */
int pr_pgsql_take_over(struct pgsql_store *store, struct pr_err *err);

/* lease_kind.c */
int pr_pgsql_load_lease_kind(struct pgsql_store *store, struct pr_err *err);
/* *ret_lost: leases of lanes have ended. */
int pr_pgsql_check_lease_kind(struct pgsql_store *store, bool *ret_lost, struct pr_err *err);
int pr_pgsql_lease_kind(struct postroom_store *store, const enum pr_lease_kind *want,
			enum pr_lease_kind *ret, struct pr_err *err);

/* low_water.c: both do something only when it is due. */
int pr_pgsql_raise_low_water(struct pgsql_store *store, const struct pr_scope *scope,
			     struct pr_err *err);
int pr_pgsql_check_below_low_water(struct pgsql_store *store, struct pr_err *err);
/* ended: the last scan started below the marks of the lanes, because one that they passed has ended. */
void pr_pgsql_note_passed_ended(struct pgsql_store *store, bool ended);

/* Where scans of this scope begin: bigint[] of the lanes; NULL: use the marks of the lanes. */
const char *pr_pgsql_scope_low_water_lanes(struct pgsql_store *store, const struct pr_scope *scope);
/* The same for unkeyed rows without a lane; in microseconds. */
int64_t pr_pgsql_scope_low_water(struct pgsql_store *store, const struct pr_scope *scope);
/* New messages may be below these marks. */
bool pr_pgsql_low_water_is_stale(const struct pgsql_store *store, const struct pr_scope *scope);
/* They are valid again: a scan that began then found nothing below them. */
void pr_pgsql_store_low_water(struct pgsql_store *store, int64_t begun_us);

/* The lane of a message of o, as the indexes have it. */
#define PG_LANE_OF(o)                                                                              \
	"((CASE WHEN " o "key IS NULL THEN " o "seq ELSE hashtext(" o "key) END & 63) + 1)"
/* A time in microseconds, for answers in text. NULL is read as NULL, or as 0. */
#define PG_TIME(column) "(extract(epoch FROM " column ") * 1000000)::bigint"
const char *pr_pgsql_text_at(const PGresult *result, int row, int column);
int64_t pr_pgsql_number_at(const PGresult *result, int row, int column);
/* bytea, NULL if there is none; PQfreemem() it. False: no memory. */
bool pr_pgsql_body_at(const PGresult *result, int row, int column, unsigned char **ret,
		      size_t *ret_len);

/* Of answers in binary. */
int32_t pr_pgsql_read_int4(const PGresult *result, int row, int column);
int64_t pr_pgsql_read_time(const PGresult *result, int row, int column); /* microseconds */
int64_t pr_pgsql_read_int8(const PGresult *result, int row, int column);
/* A bigint[] as the only answer: how many there are, at most max. */
size_t pr_pgsql_read_array(const PGresult *result, int64_t *numbers, size_t max);

/* wait.c */
int pr_pgsql_wait(struct postroom_store *store, const struct pr_table *table,
		  const struct pr_scope *scope, int64_t max_ms, struct pr_err *err);
int pr_pgsql_unrouted(struct postroom_store *store, const struct pr_table *table,
		      const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
		      struct pr_err *err);

/* settle.c */
int pr_pgsql_renew(struct postroom_store *store, const struct pr_table *table,
		   postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err);
int pr_pgsql_settle(struct postroom_store *store, const struct pr_table *table,
		    const struct pr_settle *settle, struct pr_err *err);

/* The statements that settle a batch, and those that claim the next. */
#define PG_STEPS_MAX 8
struct pgsql_settling {
	postroom_delivery *items;
	size_t item_count;
	enum pr_disposition *dispositions;
	bool anyone;		/* of any worker: the fencing token is enough */
	size_t *order;		/* order of the items: those with row leases first */
	int64_t *settled_count; /* room for the others */
	size_t in_flight_items; /* how many the lanes have */
	const struct pgsql_sql *row_sql,
		*lane_sql; /* of the steps that settle or renew rows, and that settle lanes */
	bool forget;	   /* delivered messages are deleted */
	struct pgsql_params params, lane_params, key_params, move_params, attempt_params;
	struct pgsql_step steps[PG_STEPS_MAX];
	size_t count; /* of steps */
};

void pr_pgsql_add_step(struct pgsql_settling *settling, struct pgsql_step step);
int pr_pgsql_begin_settling(struct pgsql_store *store, const struct pr_table *table,
			    const struct pr_policy *policy, struct pgsql_settling *settling,
			    struct pr_err *err);
/* Reads the results and sets the outcome of each item. */
int pr_pgsql_end_settling(struct pgsql_store *store, struct pgsql_settling *settling,
			  struct pr_err *err);
void pr_pgsql_release_settling(struct pgsql_settling *settling);

/* Unblocks messages held behind finished messages of these items' keys. */
int pr_pgsql_unblock_keys(struct pgsql_store *store, const struct pr_table *table,
			  const postroom_delivery *items, size_t count, struct pr_err *err);
/*
 * The same for all keys: a worker may have died after finishing a message, or dead letters may
 * have blocked before.
 */
int pr_pgsql_unblock_stranded(struct pgsql_store *store, const struct pr_table *table, bool block,
			      struct pr_err *err);

/* statement.c */
int pr_pgsql_check_statement(struct postroom_store *store, const char *statement,
			     struct pr_err *err);
int pr_pgsql_apply(struct postroom_store *store, const char *statement,
		   const postroom_delivery *job, struct pr_err *err);
/*
 * Prepares the statement outside of a transaction. A statement that cannot run fails for every
 * event.
 */
int pr_pgsql_prepare_statement(struct pgsql_store *store, const char *statement,
			       struct pr_err *err);
struct pgsql_running {
	const struct pr_statement_parameters *events;
	size_t count;
	bool careful; /* check constraints after each statement, not at the commit */
	size_t at;    /* out: for which it failed */
	bool late;    /* out: the commit failed, for an unknown event */
	struct pr_buf json;
};
/*
 * Runs the statement for each event and commits the open transaction. POSTROOM_TX_ABORTED: the
 * statement itself failed. After a failure, roll the transaction back.
 */
int pr_pgsql_run_statement(struct pgsql_store *store, struct pgsql_running *running,
			   struct pr_err *err);
/*
 * True if a retry is worthwhile: a few times after a lost race, once after a stale prepared
 * statement. A statement that always loses has failed: *status is then POSTROOM_TX_ABORTED.
 */
bool pr_pgsql_should_retry(struct pgsql_store *store, int *status, int tries, struct pr_err *err);

/* inbox_insert.c */
int pr_pgsql_inbox_insert(struct postroom_store *store, const struct pr_inbox_insert *insert,
			  size_t *ret_at, struct pr_err *err);
int pr_pgsql_progress(struct postroom_store *store, const struct pr_progress *progress,
		      struct pr_err *err);

/* list.c */
extern const struct pr_filter_words pr_pgsql_outbox_words, pr_pgsql_history_words,
	pr_pgsql_inbox_words;
const struct pr_filter_words *pr_pgsql_words(const postroom_filter *filter);
/* Runs it with its values. NULL with err filled. */
PGresult *pr_pgsql_ask(struct pgsql_store *store, const struct pr_table *table,
		       const struct pr_query *query, const char *doing, struct pr_err *err);
int pr_pgsql_list(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		  postroom_row_fn fn, void *context, struct pr_err *err);
int pr_pgsql_count(struct postroom_store *store, const postroom_filter *filter, int64_t cap,
		   int64_t *ret, struct pr_err *err);

/* groups.c */
int pr_pgsql_groups(struct postroom_store *store, const postroom_filter *filter,
		    const struct pr_grouping *grouping, struct pr_err *err);

/* gauges.c */
int pr_pgsql_collect(struct postroom_store *store, int64_t cap, struct pr_gauges *ret,
		     pr_topic_gauges_fn fn, void *context, struct pr_err *err);
int pr_pgsql_leases(struct postroom_store *store, pr_lease_fn fn, void *context,
		    struct pr_err *err);

/* attempts.c */
int pr_pgsql_attempts(struct postroom_store *store, const postroom_filter *filter,
		      postroom_attempt_fn fn, void *context, struct pr_err *err);
/* Of items whose expired leases have been claimed. */
int pr_pgsql_note_takeovers(struct pgsql_store *store, const struct pr_table *table,
			    const postroom_delivery *items, size_t count, const char *reason,
			    struct pr_err *err);
int pr_pgsql_purge_attempts(struct pgsql_store *store, const struct pr_table *table, int32_t limit,
			    int64_t *ret, struct pr_err *err);

/* admin.c */
int pr_pgsql_retry(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		   int64_t *ret, struct pr_err *err);
int pr_pgsql_purge(struct postroom_store *store, const struct pr_purge *purge, int64_t *ret,
		   struct pr_err *err);
/*
 * Within the caller's transaction, and under row leases: deletes those of the messages that are
 * pending, as if they had never been written. ids and ret_ids are arrays of PostgreSQL.
 */
int pr_pgsql_withdraw(struct pgsql_store *store, const char *ids, struct pr_buf *ret_ids,
		      struct pr_err *err);
int pr_pgsql_stats(struct postroom_store *store, const postroom_filter *filter,
		   postroom_counts *ret, postroom_topic_fn fn, void *context, struct pr_err *err);

/* lease_kind.c: the indexes that only one kind of lease has; false: there is no such one. */
struct pgsql_kind_index {
	const char *name;
	const char *definition; /* behind CREATE INDEX and the name */
	enum pr_lease_kind kind;
};
bool pr_pgsql_kind_index(size_t i, struct pgsql_kind_index *ret);

/* source.c */
int pr_pgsql_record_sources(struct postroom_store *store, const char *handler, int64_t period_ms,
			    const struct pr_source_position *entries, size_t count,
			    struct pr_err *err);
int pr_pgsql_read_sources(struct postroom_store *store, const char *handler, pr_source_fn fn,
			  void *context, int64_t *ret_us, struct pr_err *err);

#endif
