/* SPDX-License-Identifier: Apache-2.0 */
/* Adoption of a table in SQLite: shared by the files of this folder. */
#ifndef PR_ADOPT_SQLITE_SQLITE_H
#define PR_ADOPT_SQLITE_SQLITE_H

#include "adopt/parts.h"
#include "store/sqlite/sqlite.h"

#define ADOPT_SQLITE_INSERT "postroom_adopt_insert_"
#define ADOPT_SQLITE_REOPEN "postroom_adopt_reopen_"

#define ADOPT_SQLITE_NEW_ID                                                                        \
	"lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || "                        \
	"substr(hex(randomblob(2)), 2) || '-a' || substr(hex(randomblob(2)), 2) || '-' || "        \
	"hex(randomblob(6)))"

struct pr_adopt_output {
	pr_adopt_text_fn fn;
	void *context;
	int count;
};

static inline sqlite3 *adopt_db(const struct pr_adopt *adopt)
{
	return sqlite_store(adopt->store)->db;
}

/* sqlite/layout.c */
int pr_adopt_sqlite_read_layout(struct pr_adopt *adopt, const char *table, struct pr_err *err);
int pr_adopt_sqlite_sample_values(struct pr_adopt *adopt, const char *column, bool distinct,
				  pr_adopt_value_fn fn, void *context, struct pr_err *err);

/* sqlite/db.c: statements, and the record of adoptions. */
typedef void (*pr_adopt_row_fn)(void *context, sqlite3_stmt *row);
/* Runs all statements of sql. */
int pr_adopt_sqlite_run(struct pr_adopt *adopt, const char *sql, const char *doing,
			struct pr_err *err);
int pr_adopt_sqlite_run_built(struct pr_adopt *adopt, struct pr_buf *sql, const char *doing,
			      struct pr_err *err);
/* Calls fn, if any, with each row. */
int pr_adopt_sqlite_query(struct pr_adopt *adopt, const char *sql, const char *doing,
			  pr_adopt_row_fn fn, void *context, struct pr_err *err);
/* The first number of the first row; 0: there is none. */
int pr_adopt_sqlite_number(struct pr_adopt *adopt, const char *sql, const char *doing, int64_t *ret,
			   struct pr_err *err);
void pr_adopt_sqlite_put_literal(struct pr_buf *out, const char *text);
int pr_adopt_sqlite_load_state(struct pr_adopt *adopt, struct pr_err *err);
int pr_adopt_sqlite_save_state(struct pr_adopt *adopt, struct pr_err *err);
int pr_adopt_sqlite_drop_state(struct pr_adopt *adopt, struct pr_err *err);
void pr_adopt_sqlite_put_tables(struct pr_buf *out);

/* sqlite/mapping.c: expressions over a row, which is NEW, OLD or an alias. */
void pr_adopt_sqlite_put_message(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_sqlite_put_id(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_sqlite_put_open(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_sqlite_put_free(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_sqlite_put_done(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_sqlite_put_only(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_sqlite_put_mark(const struct pr_adopt *adopt, bool done, struct pr_buf *out);
void pr_adopt_sqlite_put_key(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_sqlite_put_order(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);

/* sqlite/mirror.c: whole statements. */
int pr_adopt_sqlite_put_mirror(struct pr_adopt *adopt, struct pr_buf *out, struct pr_err *err);
void pr_adopt_sqlite_put_drop(const struct pr_adopt *adopt, struct pr_buf *out);
void pr_adopt_sqlite_put_move(const struct pr_adopt *adopt, struct pr_buf *out);
void pr_adopt_sqlite_put_list(const struct pr_adopt *adopt, struct pr_buf *out);

/* sqlite/backlog.c, sqlite/keys.c: the functions of adopt.h. */
int pr_adopt_sqlite_sample(struct pr_adopt *adopt, int limit, pr_adopt_text_fn fn, void *context,
			   struct pr_err *err);
int pr_adopt_sqlite_explain(struct pr_adopt *adopt, int64_t chunk, pr_adopt_text_fn fn,
			    void *context, struct pr_err *err);
int pr_adopt_sqlite_mirror(struct pr_adopt *adopt, struct pr_err *err);
int pr_adopt_sqlite_backlog(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
			    struct pr_err *err);
int pr_adopt_sqlite_undo(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
			 struct pr_err *err);
int pr_adopt_sqlite_status(struct pr_adopt *adopt, struct pr_adopt_status *ret, struct pr_err *err);
int pr_adopt_sqlite_rejects(struct pr_adopt *adopt, pr_adopt_text_fn fn, void *context,
			    struct pr_err *err);
int pr_adopt_sqlite_measure(struct pr_adopt *adopt, struct pr_adopt_cost *ret, struct pr_err *err);
int pr_adopt_sqlite_keys(struct pr_adopt *adopt, struct pr_adopt_progress *progress, bool required,
			 struct pr_err *err);
int pr_adopt_sqlite_measure_keys(struct pr_adopt *adopt, int64_t *ret_ms, struct pr_err *err);
int pr_adopt_sqlite_explain_keys(struct pr_adopt *adopt, bool required, pr_adopt_text_fn fn,
				 void *context, struct pr_err *err);

#endif
