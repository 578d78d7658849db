/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the PostgreSQL store, and by nobody else. */
#ifndef PR_STORE_PGSQL_H
#define PR_STORE_PGSQL_H

#include "store/store.h"

#include <libpq-fe.h>

/* Statements that are kept, one of each. */
enum pgsql_slot {
	PG_CLAIM_DUE,
	PG_CLAIM_EXPIRED,
	PG_SETTLE,
	PG_RENEW,
	PG_NEXT_DUE,
	PG_ANNOUNCE,
	PG_HUSH,
	PG_UNFINISHED,
	PG_SLOTS
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
	bool rung; /* the last sleep was ended by the bell */
	int64_t answer_ms; /* how long an answer may take; 0: as long as it does */
	const struct pr_stop *stop;
	postroom_box *box;
	/* See pgsql_claim.c. */
	int64_t mark_us;      /* the last row of the last claim: when it was due, */
	int64_t mark_seq;     /* and its number */
	int64_t head_due_us;  /* when the index is to be read from its head again */
	bool from_mark;	      /* the last claim started at the mark */
	bool busy;	      /* and its batch was full */
	size_t message_bytes; /* what messages are like; 0: not known yet */
	/* See pgsql_settle.c. */
	struct pr_buf arrays[5];
	unsigned prepared; /* names given so far */
	struct {
		char *sql;
		const struct pr_table *table;
		bool prepared;
		unsigned number; /* of its name */
	} slots[PG_SLOTS];
};

static inline struct pgsql_store *pgsql_store(struct postroom_store *store)
{
	return (struct pgsql_store *)store;
}

/* What the server or libpq said, as a status and a sentence: "doing: …". */
int pr_pgsql_fail(PGconn *conn, const PGresult *result, const char *where, const char *doing,
		  struct pr_err *err);

/* Parameters of a statement, in text unless said otherwise. NULL is NULL. */
#define PG_PARAMS_MAX 16
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

/*
 * From now on this session reads tables by their indexes and in their order, as
 * claims, sweeps and purges must. The planner would sort all that is due to find
 * the first hundred whenever the statistics are of a quieter time. Behind a
 * pooler it is left to the planner.
 */
int pr_pgsql_go_by_index(struct pgsql_store *store, struct pr_err *err);

/* sql with {schema} and the table's {fields} filled in; free() it. NULL: no memory. */
char *pr_pgsql_sql(const struct pgsql_store *store, const struct pr_table *table, const char *sql);

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

/* pgsql_claim.c */
int pr_pgsql_claim(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err);
int pr_pgsql_sweep(struct postroom_store *store, const struct pr_table *table,
		   const struct pr_scope *scope, int32_t max_attempts, int32_t limit,
		   struct postroom_batch *batch, struct pr_err *err);
int pr_pgsql_unfinished(struct postroom_store *store, const struct pr_table *table,
			const struct pr_scope *scope, bool *ret, struct pr_err *err);

/* {scope_ns}, … compared with $1 to $3: namespace, pattern, tenant; NULL is any. */
#define PG_SCOPE                                                                            \
	"($1::text IS NULL OR {scope_ns} = $1) AND ($2::text IS NULL OR {scope_topic} LIKE $2) " \
	"AND ($3::uuid IS NULL OR {scope_tenant} = $3) "

/* A sub-select is evaluated once, and may bound an index scan; a volatile function may not. */
#define PG_NOW "(SELECT clock_timestamp())"

/* Adds the three; pattern must live as long as params. False: no memory. */
bool pr_pgsql_add_scope(struct pgsql_params *params, const struct pr_scope *scope,
			struct pr_buf *pattern);

int64_t pr_pgsql_read_int8(const PGresult *result, int row, int column);

/* pgsql_wait.c */
int pr_pgsql_wait(struct postroom_store *store, const struct pr_table *table,
		  const struct pr_scope *scope, int64_t max_ms, struct pr_err *err);

/* pgsql_settle.c */
int pr_pgsql_renew(struct postroom_store *store, const struct pr_table *table,
		   postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err);
int pr_pgsql_settle(struct postroom_store *store, const struct pr_table *table,
		    postroom_delivery *items, size_t count, const struct pr_policy *policy,
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
int pr_pgsql_stats(struct postroom_store *store, postroom_counts *ret, postroom_topic_fn fn,
		   void *context, struct pr_err *err);

#endif
