/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of adopt/ only. */
#ifndef PR_ADOPT_PARTS_H
#define PR_ADOPT_PARTS_H

#include "adopt/adopt.h"
#include "store/pgsql/pgsql.h"

/* Triggers have the same names on all tables. */
#define ADOPT_INSERT_TRIGGER "postroom_adopt_insert"
#define ADOPT_REOPEN_TRIGGER "postroom_adopt_reopen"
/*
 * A statement that writers wait for ends within half a second: it waits for each of its locks for
 * ADOPT_LOCK_MS at most, and it is canceled if all of them take longer.
 */
#define ADOPT_LOCK_MS 300
#define ADOPT_DDL_TIMEOUT "SET statement_timeout = '450ms'"
#define ADOPT_NO_TIMEOUT "SET statement_timeout = 0"

static inline struct pgsql_store *adopt_store(const struct pr_adopt *adopt)
{
	return pgsql_store(adopt->store);
}

/* layout.c */
int pr_adopt_read_layout(struct pr_adopt *adopt, const char *table, struct pr_err *err);
/* The index of the column, or -1. */
int pr_adopt_find_column(const struct pr_adopt *adopt, const char *name);

/* Calls fn with some values of the column that are not NULL, as text. */
typedef void (*pr_adopt_value_fn)(void *context, const char *value, size_t len);
int pr_adopt_sample_values(struct pr_adopt *adopt, const char *column, bool distinct,
			   pr_adopt_value_fn fn, void *context, struct pr_err *err);
/* The labels of an enum, in their order. */
int pr_adopt_read_labels(struct pr_adopt *adopt, const char *column, pr_adopt_value_fn fn,
			 void *context, struct pr_err *err);

/* presets.c */
struct pr_adopt_preset {
	const char *name;
	const char *signature[8]; /* columns that the table must have */
	const char *parts[PR_ADOPT_PARTS]; /* as in pr_adopt; "sql:" and an
					    * expression; "table:" and a prefix: the
					    * rest of the table's name */
	const char *zone;    /* of times without a time zone; NULL: it depends */
	const char *refused; /* why it cannot be adopted, and what to do instead; NULL: it can */
};
/* By name, or by the signature if name is NULL. NULL: none. */
const struct pr_adopt_preset *pr_adopt_find_preset(const struct pr_adopt *adopt, const char *name);
void pr_adopt_list_presets(const struct pr_adopt *adopt, struct pr_buf *out);
/* Sets a part that the preset has; false if it has none. */
bool pr_adopt_use_preset(struct pr_adopt *adopt, const struct pr_adopt_preset *preset,
			 enum pr_adopt_part part);

/* detect.c: fills the parts that are NULL. */
int pr_adopt_detect(struct pr_adopt *adopt, struct pr_err *err);

/* marker.c, for both databases */
struct pr_adopt_dialect {
	void (*put_literal)(struct pr_buf *out, const char *text);
	/* the current time, as the application writes it to this column */
	void (*put_now)(const struct pr_adopt *adopt, const struct pr_adopt_column *column,
			struct pr_buf *out);
	bool has_booleans; /* not only the numbers 0 and 1 */
};
bool pr_adopt_has_part(const struct pr_adopt *adopt, enum pr_adopt_part part);
/* The column of a part; NULL if it is a constant or an expression. */
const struct pr_adopt_column *pr_adopt_column_of(const struct pr_adopt *adopt,
						 enum pr_adopt_part part);
/* Whether adopt can mark rows by the column: a time is NULL while the row is open. */
bool pr_adopt_is_settable(const struct pr_adopt_column *column);
/* The marker's column, and for a status its value. */
const struct pr_adopt_column *pr_adopt_marker_of(const struct pr_adopt *adopt,
						 const char **ret_value);
bool pr_adopt_has_marker(const struct pr_adopt *adopt);
/* Literals of the values, which are separated by commas. */
void pr_adopt_put_value_list(const struct pr_adopt_dialect *dialect, const char *values,
			     struct pr_buf *out);
/* "a = …, b = …": marks a row as done, or as open. */
void pr_adopt_put_assignments(const struct pr_adopt *adopt, const struct pr_adopt_dialect *dialect,
			      bool done, struct pr_buf *out);

/* check.c */
/* Leaves out columns that an adopted table no longer has, if --status and --undo work without. */
void pr_adopt_skip_missing(struct pr_adopt *adopt);
/* Checks the parts and finds out what kind the done marker is. */
int pr_adopt_check_mapping(struct pr_adopt *adopt, struct pr_err *err);

/* mapping.c */
void pr_adopt_put_ident(struct pr_buf *out, const char *name);
void pr_adopt_put_literal(struct pr_buf *out, const char *text);
/* "a, b" of postroom_outbox, and the expressions for them. row is an alias, or "(c.n)". */
void pr_adopt_put_columns(const struct pr_adopt *adopt, struct pr_buf *out);
void pr_adopt_put_values(const struct pr_adopt *adopt, const char *row, const char *id,
			 struct pr_buf *out);
void pr_adopt_put_id(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
/* Conditions on a row. */
void pr_adopt_put_open(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_put_done(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
/* The same as open, and not leased by the old dispatcher. */
void pr_adopt_put_free(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
/* "a = …, b = …" for an UPDATE that marks a row as done, or as open. */
void pr_adopt_put_mark(const struct pr_adopt *adopt, bool done, struct pr_buf *out);
/* "t.a = n.a AND …": the same row, by the operators of the key's index. */
void pr_adopt_put_same(const struct pr_adopt *adopt, const char *a, const char *b,
		       struct pr_buf *out);
/* The key of a row as text, for an operator. */
void pr_adopt_put_row_key(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
void pr_adopt_put_order(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
/* The rows that the adoption concerns. */
void pr_adopt_put_only(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);
/* The column and the value of "COLUMN:VALUE". The name may contain colons, too. */
const struct pr_adopt_column *pr_adopt_split(const struct pr_adopt *adopt, const char *spec,
					     const char **ret_value);

/* sql.c: whole statements. */
void pr_adopt_put_state_table(const struct pr_adopt *adopt, struct pr_buf *out);
void pr_adopt_put_rejects_table(const struct pr_adopt *adopt, struct pr_buf *out);
void pr_adopt_put_function(const struct pr_adopt *adopt, bool reopened, struct pr_buf *out);
void pr_adopt_put_trigger(const struct pr_adopt *adopt, const struct pr_adopt_target *target,
			  bool reopened, struct pr_buf *out);
void pr_adopt_put_work(const struct pr_adopt *adopt, bool undo, struct pr_buf *out);
/* $1 and $2 are the first and the last position. */
void pr_adopt_put_move(const struct pr_adopt *adopt, struct pr_buf *out);
void pr_adopt_put_lock(const struct pr_adopt *adopt, struct pr_buf *out);
void pr_adopt_put_hand_back(const struct pr_adopt *adopt, struct pr_buf *out);
/* "row.a = w.k0 AND …" */
void pr_adopt_put_work_key(const struct pr_adopt *adopt, const char *row, struct pr_buf *out);

/* state.c */
/* The parts as a JSON object, as they are recorded. */
void pr_adopt_put_mapping(const struct pr_adopt *adopt, struct pr_buf *out);
int pr_adopt_load_state(struct pr_adopt *adopt, struct pr_err *err);
int pr_adopt_save_state(struct pr_adopt *adopt, struct pr_err *err);
int pr_adopt_drop_state(struct pr_adopt *adopt, struct pr_err *err);
/* Refuses tables and functions with our names that others may have prepared. */
int pr_adopt_check_owners(struct pr_adopt *adopt, struct pr_err *err);
/* Only one process adopts a table at a time. */
int pr_adopt_lock(struct pr_adopt *adopt, struct pr_err *err);
int pr_adopt_run(struct pr_adopt *adopt, const char *sql, const char *doing, struct pr_err *err);

/* open.c: the first checks, and the options --column. */
int pr_adopt_begin(struct pr_adopt *adopt, struct postroom_store *store,
		   const struct pr_adopt_wish *wish, struct pr_err *err);
int pr_adopt_take_columns(struct pr_adopt *adopt, const struct pr_adopt_wish *wish,
			  struct pr_err *err);

/* keys.c */
void pr_adopt_put_key_column(const struct pr_adopt *adopt, struct pr_buf *out);
/* The columns of the index: a key is unique within its tenant. */
void pr_adopt_put_unique(const struct pr_adopt *adopt, struct pr_buf *out);
/* The rows without a key, and a chunk of them. */
void pr_adopt_put_key_work(const struct pr_adopt *adopt, struct pr_buf *out);
void pr_adopt_put_key_chunk(const struct pr_adopt *adopt, struct pr_buf *out);

/* backlog.c */
int pr_adopt_fill_keys(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
		       struct pr_err *err);

/* mirror.c */
int pr_adopt_set_timeouts(struct pr_adopt *adopt, struct pr_err *err);
/* A statement that needs a strong lock for a moment: tried again after a lock timeout. */
int pr_adopt_retry(struct pr_adopt *adopt, const char *sql, const struct pr_stop *stop,
		   struct pr_err *err);
int pr_adopt_drop_triggers(struct pr_adopt *adopt, const struct pr_stop *stop, struct pr_err *err);
int pr_adopt_drop_functions(struct pr_adopt *adopt, struct pr_err *err);

#endif
