/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that write on an application's connection. */
#ifndef PR_STORE_PGSQL_BOX_H
#define PR_STORE_PGSQL_BOX_H

#include "store/pgsql/pgsql.h"

/* False: see sql/enqueue.sql. */
#define PG_BOX_IS_NEW(inserted, row) (*PQgetvalue(inserted, row, 1) == 't')

#define PG_BOX_ARRAYS 13

struct pgsql_box {
	struct postroom_box base;
	PGconn *conn;
	char schema[140]; /* quoted, with its dot; "": by the search_path */
	bool found;	  /* the tables, once */
	const char *doing; /* right now, for errors */
	struct pr_buf arrays[PG_BOX_ARRAYS];
};

/*
 * Call it before sending: sets the action for errors, and refuses a connection or tables that
 * would make the statement fail.
 */
int pr_pgsql_box_begin(struct pgsql_box *box, const char *doing, struct pr_err *err);

/* NULL with err filled. */
struct pgsql_sql;
PGresult *pr_pgsql_box_run(struct pgsql_box *box, const struct pgsql_sql *sql,
			   const struct pgsql_params *params, struct pr_err *err);

/* One message, as often as it takes. POSTROOM_OK or POSTROOM_DUPLICATE, or a failure. */
int pr_pgsql_box_insert(struct pgsql_box *box, const postroom_message *message,
			postroom_receipt *receipt, struct pr_err *err);

/* inbox.c */
int pr_pgsql_box_accept(postroom_box *box, const struct pr_entry *entry,
			postroom_inbox_state *ret_state, struct pr_err *err);

/* bulk.c: many, with receipts that may be NULL. */
int pr_pgsql_box_insert_many(struct pgsql_box *box, const postroom_message *messages, size_t count,
			     postroom_receipt *receipts, size_t *ret_at, struct pr_err *err);

#endif
