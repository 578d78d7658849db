/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the PostgreSQL store, and by nobody else. */
#ifndef PR_STORE_PGSQL_H
#define PR_STORE_PGSQL_H

#include "store/store.h"

#include <libpq-fe.h>

/* Statements that are kept, one of each for each table. */
enum pgsql_slot {
	PG_CLAIM_EXPIRED,
	PG_CLAIM_ITSELF,
	PG_CLAIM_TURN,
	PG_CLAIM_LANES_ROW,
	PG_CLAIM_LANES,
	PG_CLAIM_PLAIN,
	PG_CLAIM_FEW,
	PG_TAKE_OVER,
	PG_SETTLE,
	PG_MOVE,
	PG_FREE,
	PG_FREE_STRANDED,
	PG_RENEW,
	PG_SETTLE_LANES,
	PG_SETTLE_LANES_KEEP,
	PG_SETTLE_DELIVERED,
	PG_SETTLE_DELIVERED_KEEP,
	PG_RENEW_LANES,
	PG_HOLDERS,
	PG_RAISE,
	PG_LOWER,
	PG_OWN_NEAR_ROW,
	PG_OWN_NEAR_LANE,
	PG_OWN_FAR_ROW,
	PG_OWN_FAR_LANE,
	PG_KIND,
	PG_LEASED_LANES,
	PG_NEXT_DUE,
	PG_ANNOUNCE,
	PG_HUSH,
	PG_UNFINISHED,
	PG_UNROUTED_LANE,
	PG_UNROUTED_ROW,
	PG_BEGIN,
	PG_BY_INDEX,
	PG_BY_PAGE,
	PG_AS_BEFORE,
	PG_TAKE_IN,
	PG_TAKE_IN_ORDERED,
	PG_PROGRESS,
	PG_SLOTS
};

/* See pgsql_settle.c. */
#define PG_SETTLE_ARRAYS 18

/* As many as the schema has. */
#define PG_LANES 64

/* Where a claim finds what is due: see pgsql_claim.c. */
enum pgsql_arm {
	PG_ARM_ITSELF,
	PG_ARM_TURN,
	PG_ARM_LANES,
	PG_ARMS_IN_TURN,
	PG_ARM_EXPIRED = PG_ARMS_IN_TURN,
	PG_ARMS
};

struct pgsql_reading {
	int64_t head_due_us; /* when the index is to be read from its head again */
	int skip;	     /* it was empty: how many claims to leave it alone while others are not */
	bool busy;	     /* the last batch was full */
	bool from_mark;	     /* and was read from the mark on */
};

struct pgsql_store {
	struct postroom_store base;
	PGconn *conn;
	char *url;
	char shown[200];   /* the URL without its password */
	char schema[140];  /* quoted, with its dot */
	bool pooled;	   /* behind a pooler: nothing may be kept in the session */
	bool by_index;	   /* see pr_pgsql_go_by_index() */
	const struct pr_table *listening; /* whose bell is heard on this connection; NULL: none */
	int64_t answer_ms; /* how long an answer may take; 0: as long as it does */
	const struct pr_stop *stop;
	struct pr_pulse *pulse;
	struct pr_rules rules;
	postroom_box *box;
	/* See pgsql_claim.c. */
	struct pgsql_reading reading[PG_ARMS_IN_TURN];
	enum pgsql_arm first_arm;     /* whose turn it is to be read first */
	int64_t mark_us, marks[PG_LANES + 1]; /* behind the last row claimed: in its turn, of each lane */
	size_t message_bytes;	      /* what messages are like; 0: not known yet */
	/* See pgsql_lane.c. */
	bool kind_known;
	int64_t epochs[PG_LANES + 1]; /* when the marks of the lanes were made */
	int64_t drawn;		      /* a seq that a message has been given */
	int64_t head_seq;	      /* one that had been given before the lanes were read from their heads */
	bool none_expired;	      /* when the lanes were read the last time */
	enum pr_lease_kind kind; /* as it was when last looked at */
	struct pr_buf lanes;	 /* those of the last batch, or those that are asked for */
	int64_t lanes_wanted;	 /* how many it takes to fill one */
	bool many_keys;		 /* it was full, and of many keys */
	size_t in_flight;	 /* messages claimed by lanes and not settled yet */
	bool plain;		 /* the last look left nothing of what it met */
	bool few;		 /* and that was little */
	bool barred;		 /* by walls, which the last look did not heed, or by more than fits */
	int64_t walls_until_us;	 /* there are some, or were more than fit; then it is tried whether there still are */
	struct pr_buf floors;	 /* of all lanes, when they were last looked at: bigint[] */
	/* See pgsql_floor.c. */
	int64_t look_us;	 /* what the last look into all lanes took */
	size_t since_raised;	 /* messages taken from lanes since the floors were thought of */
	int64_t raise_due_us;
	int64_t lower_due_us;
	int64_t lowered;	 /* lanes that were looked below */
	int64_t floor_seq, floor_us; /* where they may be raised to once those are done: lanes, the rest */
	int64_t proven_seq, proven_us; /* where they were raised to */
	struct pr_buf holders;	 /* who wrote messages when that was the last seq: text[] */
	struct pr_buf scope;	 /* for which there are floors of this store's own */
	struct pr_buf own;	 /* of the lanes: bigint[] */
	int64_t own_us;		 /* of what is in its turn without one */
	int64_t own_until_us;	 /* when they are looked for anew */
	enum pr_lease_kind own_kind;
	/* See pgsql_settle.c. */
	struct pr_buf arrays[PG_SETTLE_ARRAYS];
	struct pgsql_kept {
		char *sql;
		bool prepared;
	} slots[2][PG_SLOTS]; /* of the outbox, of the inbox */
	/* See pgsql_statement.c. */
	int64_t statement_ms; /* what it may take; 0: as long as it does */
	char *statement;     /* the user's, as it was prepared */
	unsigned statements; /* names given so far */
};

static inline struct pgsql_store *pgsql_store(struct postroom_store *store)
{
	return (struct pgsql_store *)store;
}

/* What the server or libpq said, as a status and a sentence: "doing: …". */
int pr_pgsql_fail(PGconn *conn, const PGresult *result, const char *where, const char *doing,
		  struct pr_err *err);

/*
 * The same of the user's statement: status, if it failed by itself; what has happened to
 * the database meanwhile (a lost connection, no room, a conflict worth another try) is told as ever.
 */
int pr_pgsql_fail_statement(PGconn *conn, const PGresult *result, const char *where, int status,
			    const char *doing, struct pr_err *err);

/* Parameters of a statement, in text unless said otherwise. NULL is NULL. */
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

/*
 * Runs a kept statement, or one of the moment. The result is the caller's to
 * clear; NULL with err filled. binary is for the result.
 */
PGresult *pr_pgsql_run(struct pgsql_store *store, enum pgsql_slot slot,
		       const struct pr_table *table, const char *sql, struct pgsql_params *params,
		       bool binary, const char *doing, struct pr_err *err);
PGresult *pr_pgsql_query(struct pgsql_store *store, const char *sql, struct pgsql_params *params,
			 const char *doing, struct pr_err *err);

/* One of several statements that share a round trip, a transaction and a commit. */
struct pgsql_step {
	enum pgsql_slot slot;
	const char *sql;
	struct pgsql_params *params;
	bool binary; /* the result */
	PGresult *result; /* the caller's to clear */
};

/*
 * All or nothing; on failure there are no results. A transaction that the first of them
 * has begun is left as it is.
 */
int pr_pgsql_run_all(struct pgsql_store *store, const struct pr_table *table,
		     struct pgsql_step *steps, size_t count, const char *doing, struct pr_err *err);

/*
 * For what reads most of a table: in the order of its pages, each of them once. In the order of
 * an index neighbours are far apart. NULL on failure.
 */
PGresult *pr_pgsql_run_by_page(struct pgsql_store *store, enum pgsql_slot slot,
			       const struct pr_table *table, const char *sql,
			       struct pgsql_params *params, const char *doing, struct pr_err *err);

/* Whatever shares a round trip. */
struct pgsql_pipe {
	/* Sends number i; false if libpq could not. */
	bool (*send)(struct pgsql_store *store, void *context, size_t i);
	/* Its answer, which is to be cleared; false if it is a failure, with err filled. */
	bool (*answer)(struct pgsql_store *store, void *context, size_t i, PGresult *result,
		       struct pr_err *err);
	void *context;
	size_t count;
};
int pr_pgsql_pipe(struct pgsql_store *store, const struct pgsql_pipe *pipe, const char *doing,
		  struct pr_err *err);

/* The one result of what was sent. NULL with err filled. */
PGresult *pr_pgsql_await(struct pgsql_store *store, const char *doing, struct pr_err *err);

/*
 * From now on this session reads tables by their indexes and in their order, as
 * claims, sweeps and purges must. The planner would sort all that is due to find
 * the first hundred whenever the statistics are of a quieter time. Behind a
 * pooler it is left to the planner.
 */
int pr_pgsql_go_by_index(struct pgsql_store *store, struct pr_err *err);

/*
 * sql with {schema}, the table's {fields}, PostgreSQL's own of them and the store's
 * {rules} ("AND … ", or nothing) filled in; free() it. NULL: no memory.
 */
char *pr_pgsql_sql(struct pgsql_store *store, const struct pr_table *table, const char *sql);

/* "status = '…' AND ", or nothing for NULL: the indexes of the states know no parameters. */
const char *pr_pgsql_condition(const char *status);

/* A topic pattern as LIKE wants it, in out: everything but '*' stands for itself. NULL stays NULL. */
const char *pr_pgsql_pattern(const char *pattern, struct pr_buf *out);

static inline void pr_pgsql_clear(PGresult **result)
{
	PQclear(*result);
}
#define PR_CLEANUP_RESULT __attribute__((cleanup(pr_pgsql_clear)))

/*
 * Waits until the socket can do what is wanted, until_us at the latest (0: for
 * ever). heed_request: a request to stop ends the wait, and not only its grace.
 */
int pr_pgsql_wait_socket(struct pgsql_store *store, short events, int64_t until_us,
			 bool heed_request, const char *doing, struct pr_err *err);

/* pgsql_connect.c: fills in conn, schema and pooled. */
int pr_pgsql_connect(struct pgsql_store *store, const struct pr_store_config *config,
		     struct pr_err *err);

/* pgsql_migrate.c */
int pr_pgsql_migrate(struct postroom_store *store, pr_migration_fn fn, void *context,
		     struct pr_err *err);
int pr_pgsql_migrations(struct postroom_store *store, pr_migration_fn fn, void *context,
			struct pr_err *err);
int pr_pgsql_check_schema(struct postroom_store *store, struct pr_err *err);

/* pgsql_box.c */
postroom_box *pr_pgsql_box(struct postroom_store *store);
/* The connection goes away before the box does. */
void pr_pgsql_box_disconnect(postroom_box *box);

/* pgsql_batch.c: behind {columns} every claim answers with these. */
enum { PG_COL_DEAD = PR_COL_COUNT, PG_COL_LANE, PG_COL_EPOCH, PG_COL_DUE,
       PG_COL_PLACE, PG_COL_MET, PG_COL_DRAWN, PG_COL_FLOORS, PG_COL_IS_DUE,
       PG_COL_EXPIRED, PG_COL_WALLS };

/* The batch keeps the result; by_lane: lanes have the leases; reason is that of the buried. */
int pr_pgsql_take(const struct pr_table *table, PGresult *result, bool by_lane,
		  const char *reason, struct postroom_batch *batch, struct pr_err *err);

/* pgsql_claim.c */
int pr_pgsql_claim(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err);
int pr_pgsql_turn(struct postroom_store *store, const struct pr_table *table,
		  postroom_delivery *items, size_t count, const struct pr_policy *policy,
		  const struct pr_claim *claim, struct postroom_batch *next, struct pr_err *err);
int pr_pgsql_sweep(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err);
int pr_pgsql_unfinished(struct postroom_store *store, const struct pr_table *table,
			const struct pr_claim *claim, bool *ret, struct pr_err *err);

/* What one arm is asked. */
struct pgsql_asking {
	enum pgsql_arm arm;
	int32_t limit;
	const char *reason;
	int64_t begun_us;
	struct pr_buf pattern;
	struct pr_buf starts, epochs;
	struct pgsql_params params;
	struct pgsql_step step;
};

/* pgsql_lane.c */
const char *pr_pgsql_lanes_sql(enum pgsql_slot slot);
/* How to ask, and for PG_CLAIM_FEW from where on. */
enum pgsql_slot pr_pgsql_lanes_slot(struct pgsql_store *store, const struct pr_claim *claim,
				    int64_t *ret_floor);
/* From what a claim of lanes has brought: where and how many to ask for next time. */
void pr_pgsql_learn_lanes(struct pgsql_store *store, const struct pgsql_asking *asking,
			  const PGresult *result, int64_t met, size_t count);
const char *pr_pgsql_lanes_to_read(struct pgsql_store *store, bool all);
/* How many messages to take of each. */
int64_t pr_pgsql_lane_quota(const struct pgsql_store *store, int32_t limit);
/* What a dead owner had in flight becomes messages with expired leases of their own. */
int pr_pgsql_take_over(struct pgsql_store *store, const struct pr_table *table,
		       struct pr_err *err);
struct pgsql_step pr_pgsql_taking_over(struct pgsql_params *no_params);
/* delivered: all of them; what that does not settle is to be settled without it. */
struct pgsql_step pr_pgsql_settling_lanes(bool delivered, bool forget);
extern const char pr_pgsql_renew_lanes[];

/* pgsql_kind.c */
int pr_pgsql_know_kind(struct pgsql_store *store, struct pr_err *err);
/* *ret_lost: leases of lanes have ended. */
int pr_pgsql_look_at_kind(struct pgsql_store *store, bool *ret_lost, struct pr_err *err);
int pr_pgsql_lease(struct postroom_store *store, const enum pr_lease_kind *want,
		   enum pr_lease_kind *ret, struct pr_err *err);

/* pgsql_floor.c: both do something only when it is time for it. */
int pr_pgsql_raise_floors(struct pgsql_store *store, const struct pr_table *table,
			  const struct pr_scope *scope, struct pr_err *err);
int pr_pgsql_lower_floors(struct pgsql_store *store, const struct pr_table *table,
			  struct pr_err *err);

/* Where looks for this scope begin: bigint[] of the lanes, NULL for what they have themselves. */
const char *pr_pgsql_own_floors(struct pgsql_store *store, const struct pr_scope *scope);
/* The same for what is in its turn without a lane; in microseconds. */
int64_t pr_pgsql_own_floor(struct pgsql_store *store, const struct pr_scope *scope);
/* Messages may have come below them. */
bool pr_pgsql_floors_are_old(const struct pgsql_store *store, const struct pr_scope *scope);
/* They are good again: nothing was found below them, by a look that began then. */
void pr_pgsql_keep_floors(struct pgsql_store *store, int64_t begun_us);

#define PG_HISTORY_COLUMNS                                                                  \
	"id, seq, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, "   \
	"body, content_type, headers, attempts, claims, next_attempt_at, last_attempt_at, "  \
	"created_at, delivered_at"

/*
 * Pieces of claims. $4 is the limit, $5 max_attempts, $6 the worker, $7 the
 * lease, $8 why they are buried, $9 where to start, $10 how many bytes, $11 whether
 * the dead block, $12, where messages are claimed by themselves, that keys order nothing.
 */
#define PG_WITH_NOW "WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at)"
#define PG_AT "(SELECT at FROM now)"

/* As they are stored, which is uncompressed. */
#define PG_BYTES "coalesce(pg_column_size(payload), 0) + coalesce(pg_column_size(body), 0)"

#define PG_CLAIM_SET                                                                        \
	"status = CASE WHEN attempts < $5::int THEN '{active}' ELSE 'dead' END, "            \
	"locked_by = CASE WHEN attempts < $5::int THEN $6::uuid END, "                       \
	"locked_until = CASE WHEN attempts < $5::int "                                       \
	"THEN " PG_AT " + $7::bigint * interval '1 millisecond' END, "                       \
	"last_attempt_at = CASE WHEN attempts < $5::int THEN " PG_AT                         \
	" ELSE last_attempt_at END, "                                                        \
	"last_error = CASE WHEN attempts < $5::int THEN last_error "                         \
	"ELSE coalesce($8::text, last_error) END, "                                          \
	"attempts = attempts + (attempts < $5::int)::int, claims = claims + 1, "             \
	"apart = 1, updated_at = " PG_AT

/* Of those from somewhere, as many as the bytes allow, but always one. */
#define PG_FITTING(from, order)                                                             \
	"fitting AS MATERIALIZED (SELECT * FROM (SELECT *, sum(bytes) OVER (ORDER BY " order \
	" ROWS UNBOUNDED PRECEDING) AS total FROM (SELECT * FROM " from ") AS free) AS summed " \
	"WHERE total <= $10::bigint OR total = bytes)"

/*
 * keys(key, topic, namespace, mine) become behind(…, seq, place, brief): the first
 * message of the key that is unfinished and not mine, and where it is. One that
 * is being published and will be done in a moment is brief.
 */
#define PG_OF_KEY "key = k.key AND topic = k.topic AND namespace = k.namespace "
/* Nearly always nothing is: asked once, it spares a look for each key. */
#define PG_ANY_HELD                                                                         \
	"EXISTS (SELECT FROM {schema}{table} WHERE status = 'pending' AND apart = 2) "
#define PG_BEHIND                                                                           \
	"behind AS MATERIALIZED (SELECT k.key, k.topic, k.namespace, b.seq, b.place, "       \
	"b.status = '{active}' AND b.last_attempt_at > " PG_AT                               \
	" - interval '100 milliseconds' AS brief FROM keys AS k CROSS JOIN LATERAL "         \
	"(SELECT * FROM ((SELECT ctid AS place, seq, status, last_attempt_at "               \
	"FROM {schema}{table} WHERE " PG_OF_KEY "AND apart = 1 "                             \
	"AND status IN ('pending', '{active}') ORDER BY seq "                                \
	"LIMIT coalesce(cardinality(k.mine), 0) + 1) UNION ALL "                             \
	"(SELECT ctid, seq, status, last_attempt_at FROM {schema}{table} "                   \
	"WHERE " PG_ANY_HELD "AND " PG_OF_KEY                                                \
	"AND apart = 2 AND status = 'pending' ORDER BY seq LIMIT 1) UNION ALL "              \
	"(SELECT ctid, seq, status, last_attempt_at FROM {schema}{table} "                   \
	"WHERE $11::boolean AND " PG_OF_KEY "AND status = 'dead' ORDER BY seq LIMIT 1)) AS a " \
	"WHERE k.mine IS NULL OR seq <> ALL (k.mine) ORDER BY seq LIMIT 1) AS b)"

#define PG_BEHIND_NOTHING                                                                   \
	"LEFT JOIN (SELECT key, topic, namespace, seq AS wall FROM behind) AS b "            \
	"USING (key, topic, namespace) WHERE (wall IS NULL OR seq < wall)"

/* met(place, seq, key, …) that are behind something are set aside, unless that is being settled. */
#define PG_PARK                                                                             \
	"parked AS (UPDATE {schema}{table} SET apart = 2 WHERE ctid = ANY (ARRAY("           \
	"SELECT ctid FROM {schema}{table} WHERE ctid = ANY (ARRAY("                          \
	"SELECT met.place FROM met JOIN behind AS b USING (key, topic, namespace) "          \
	"WHERE met.seq > b.seq AND NOT b.brief AND b.place = ANY (ARRAY("                    \
	"SELECT ctid FROM {schema}{table} "                                                  \
	"WHERE ctid = ANY (ARRAY(SELECT place FROM behind WHERE NOT brief)) "                \
	"FOR SHARE SKIP LOCKED)))) FOR UPDATE SKIP LOCKED)))"

/* The lane of a message of o, as the indexes have it. */
#define PG_LANE_OF(o)                                                                       \
	"((CASE WHEN " o "key IS NULL THEN " o "seq ELSE hashtext(" o "key) END & 63) + 1)"
/* A lane as it is now: see the key of postroom_lanes. */
#define PG_LANE(lane) PG_LANE_AND("", lane)
#define PG_LANE_AND(columns, lane)                                                          \
	"(SELECT *" columns " FROM {schema}postroom_lanes AS l WHERE l.lane = " lane         \
	" ORDER BY l.epoch DESC LIMIT 1)"
#define PG_ALL_LANES                                                                        \
	"generate_series(1, 64) AS n CROSS JOIN LATERAL " PG_LANE("n::smallint")
/* At the end of what EXISTS looks for: so that it is looked up in each lane, and never joined with all. */
#define PG_ONE_BY_ONE "OFFSET 0"

/*
 * {scope_ns}, … compared with $1 to $3: namespace, pattern, tenant; NULL is any, but for the
 * handler, which is the namespace of the inbox. And the store's rules.
 */
#define PG_SCOPE PG_SCOPE_ALL "{rules}"
/* Without the rules. */
#define PG_SCOPE_ALL                                                                        \
	"({any_ns}{scope_ns} = $1::text) AND ($2::text IS NULL OR {scope_topic} LIKE $2) " \
	"AND ($3::uuid IS NULL OR {scope_tenant} = $3) "

/* $4, in waits and looks for what is unfinished. */
#define PG_OWN_FLOOR "timestamptz 'epoch' + $4::bigint * interval '1 microsecond'"

/* A sub-select is evaluated once, and may bound an index scan; a volatile function may not. */
#define PG_NOW "(SELECT clock_timestamp())"

/* Adds the three; pattern must live as long as params. False: no memory. */
bool pr_pgsql_add_scope(struct pgsql_params *params, const struct pr_scope *scope,
			struct pr_buf *pattern);

/* A time in microseconds, for answers in text. What is NULL is read as NULL, or as 0. */
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

/* pgsql_wait.c */
int pr_pgsql_wait(struct postroom_store *store, const struct pr_table *table,
		  const struct pr_scope *scope, int64_t max_ms, struct pr_err *err);
int pr_pgsql_unrouted(struct postroom_store *store, const struct pr_table *table,
		      const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
		      struct pr_err *err);

/* pgsql_settle.c */
int pr_pgsql_renew(struct postroom_store *store, const struct pr_table *table,
		   postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err);
int pr_pgsql_settle(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *items, size_t count, const struct pr_policy *policy,
		    struct pr_err *err);

/* The statements that settle a batch, and room for two that claim the next. */
struct pgsql_settling {
	postroom_delivery *items;
	size_t item_count;
	enum pr_fate *fates;
	bool anyone;	 /* whoever has claimed them: their fences tell enough */
	size_t *order;	 /* of the items: those with leases of their own first */
	int64_t *landed; /* room for the others */
	size_t flown;	 /* how many the lanes have */
	struct pgsql_params params, lane_params, key_params, move_params, no_params;
	struct pgsql_step steps[7];
	size_t count; /* of steps */
};

int pr_pgsql_begin_settling(struct pgsql_store *store, const struct pr_table *table,
			    const struct pr_policy *policy, struct pgsql_settling *settling,
			    struct pr_err *err);
/* Reads the answers: each item learns what became of it. */
int pr_pgsql_end_settling(struct pgsql_store *store, struct pgsql_settling *settling,
			  struct pr_err *err);
void pr_pgsql_release_settling(struct pgsql_settling *settling);

/* What was held behind finished messages of these items' keys goes on. */
int pr_pgsql_free_keys(struct pgsql_store *store, const struct pr_table *table,
		       const postroom_delivery *items, size_t count, struct pr_err *err);
/* The same for all keys: who finished a message may have died before, or let the dead block. */
int pr_pgsql_free_stranded(struct pgsql_store *store, const struct pr_table *table, bool block,
			   struct pr_err *err);

/* pgsql_statement.c */
int pr_pgsql_check_statement(struct postroom_store *store, const char *statement,
			     struct pr_err *err);
int pr_pgsql_apply(struct postroom_store *store, const char *statement,
		   const postroom_delivery *job, struct pr_err *err);
/* Prepares it, outside of a transaction; one that can not be run fails for every event. */
int pr_pgsql_know_statement(struct pgsql_store *store, const char *statement, struct pr_err *err);
struct pgsql_running {
	const struct pr_effect *events;
	size_t count;
	bool careful; /* constraints are looked at behind each, not at the commit */
	size_t at;    /* out: for which it failed */
	bool late;    /* out: at the commit, and nobody knows for which */
	struct pr_buf json;
};
/*
 * Runs it for each event and commits the transaction that is open. POSTROOM_TX_ABORTED
 * when it fails by itself. After a failure the transaction is to be rolled back.
 */
int pr_pgsql_run_statement(struct pgsql_store *store, struct pgsql_running *running,
			   struct pr_err *err);
/*
 * What lost a race is worth another try, a few times; a statement of old, once. Who always
 * loses is to blame: *status is POSTROOM_TX_ABORTED then.
 */
bool pr_pgsql_try_again(struct pgsql_store *store, int *status, int tries, struct pr_err *err);
extern const struct pgsql_step pr_pgsql_begin;

/* pgsql_arrive.c */
int pr_pgsql_take_in(struct postroom_store *store, const char *handler, const char *statement,
		     enum pr_in_order order, struct pr_arrival *arrivals, size_t count,
		     size_t *ret_at, struct pr_err *err);
int pr_pgsql_progress(struct postroom_store *store, const struct pr_progress *progress,
		      struct pr_err *err);

/* pgsql_admin.c */
int pr_pgsql_list(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		  postroom_row_fn fn, void *context, struct pr_err *err);
int pr_pgsql_show(struct postroom_store *store, const char *id, postroom_row_fn fn, void *context,
		  struct pr_err *err);
int pr_pgsql_retry(struct postroom_store *store, const struct pr_table *table, const char *id,
		   const postroom_filter *filter, int32_t limit, int64_t *ret, struct pr_err *err);
int pr_pgsql_purge(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		   bool alone, int64_t *ret, struct pr_err *err);
int pr_pgsql_forget(struct postroom_store *store, int64_t older_than_ms, int32_t limit, bool alone,
		    int64_t *ret, struct pr_err *err);
int pr_pgsql_stats(struct postroom_store *store, postroom_counts *ret, postroom_topic_fn fn,
		   void *context, struct pr_err *err);

/* Of any age (0) is also what bears a later time, since the clock was set back. */
#define PG_BEFORE(older_than_ms)                                                            \
	"(SELECT CASE WHEN " older_than_ms "::bigint > 0 THEN clock_timestamp() - "          \
	older_than_ms "::bigint * interval '1 millisecond' ELSE 'infinity' END)"

/* Of many relays one purges at a time: who can not have the lock leaves it to its holder. */
#define PG_ALONE(alone)                                                                     \
	"WITH turn AS MATERIALIZED (SELECT CASE WHEN " alone "::boolean "                    \
	"THEN pg_try_advisory_xact_lock(1886351221) ELSE true END AS mine), "

/* pgsql_inbox.c */
int pr_pgsql_inbox_list(struct postroom_store *store, const postroom_inbox_filter *filter,
			int32_t limit, postroom_inbox_row_fn fn, void *context,
			struct pr_err *err);
int pr_pgsql_inbox_retry(struct postroom_store *store, const postroom_inbox_filter *filter,
			 int32_t limit, int64_t *ret, struct pr_err *err);
int pr_pgsql_inbox_purge(struct postroom_store *store, const postroom_inbox_filter *filter,
			 int32_t limit, bool alone, int64_t *ret, struct pr_err *err);
int pr_pgsql_inbox_stats(struct postroom_store *store, postroom_inbox_counts *ret,
			 postroom_inbox_handler_fn fn, void *context, struct pr_err *err);

#endif
