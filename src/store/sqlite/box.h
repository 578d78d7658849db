/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two files that write on an application's connection. */
#ifndef PR_STORE_SQLITE_BOX_H
#define PR_STORE_SQLITE_BOX_H

#include "store/sqlite/sqlite.h"

/* With its statements, each prepared at first use. */
struct sqlite_box {
	struct postroom_box base;
	sqlite3 *db;
	sqlite3_stmt *insert;
	sqlite3_stmt *find;
	sqlite3_stmt *once;
	sqlite3_stmt *submit;
	sqlite3_stmt *state;
};

int pr_sqlite_box_prepare(struct sqlite_box *box, sqlite3_stmt **stmt, const char *sql,
			  const char *doing, struct pr_err *err);

/*
 * The status, or POSTROOM_TX_ABORTED: after a full disk, an I/O error or lack of memory, SQLite
 * may have rolled back the transaction.
 */
int pr_sqlite_box_outcome(const struct sqlite_box *box, bool was_open, int status,
			  struct pr_err *err);

/* inbox.c */
int pr_sqlite_box_accept(postroom_box *box, const struct pr_entry *entry,
			 postroom_inbox_state *ret_state, struct pr_err *err);

#endif
