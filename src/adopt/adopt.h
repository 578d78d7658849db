/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adoption of an existing outbox table: new rows are mirrored into postroom_outbox by a trigger,
 * in the transaction of the application, and the rows that wait are moved in chunks.
 *
 * A row has one sender at any time. The transaction that writes our message also sets the done
 * marker of their row (or deletes the row), so the old dispatcher and the relay never see the
 * same row. All steps are idempotent; a killed adoption continues where it ended.
 */
#ifndef PR_ADOPT_ADOPT_H
#define PR_ADOPT_ADOPT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/stop.h"
#include "store/store.h"

/* Parts of a mapping: columns of postroom_outbox first, then properties of their table. */
enum pr_adopt_part {
	PR_ADOPT_ID,
	PR_ADOPT_NAMESPACE,
	PR_ADOPT_TOPIC,
	PR_ADOPT_TENANT,
	PR_ADOPT_KEY,
	PR_ADOPT_DEDUPE,
	PR_ADOPT_CORRELATION,
	PR_ADOPT_PAYLOAD,
	PR_ADOPT_BODY,
	PR_ADOPT_CONTENT_TYPE,
	PR_ADOPT_HEADERS,
	PR_ADOPT_NEXT,
	PR_ADOPT_CREATED,
	PR_ADOPT_COLUMNS,
	PR_ADOPT_DONE = PR_ADOPT_COLUMNS, /* COLUMN, COLUMN:VALUE, delete or none */
	PR_ADOPT_OPEN,			  /* values of a status column: VALUE,VALUE */
	PR_ADOPT_DONE_AT,		  /* a time that is set together with the marker */
	PR_ADOPT_LOCKED,		  /* until when the old dispatcher has leased a row */
	PR_ADOPT_ONLY,			  /* COLUMN:VALUE,VALUE: other rows are left alone */
	PR_ADOPT_PARTS
};
extern const char *const pr_adopt_part_names[PR_ADOPT_PARTS + 1]; /* ends in NULL */

/* How a row that is taken over is kept from the old dispatcher. */
enum pr_adopt_done { PR_ADOPT_FLAG, PR_ADOPT_TIME, PR_ADOPT_STATUS, PR_ADOPT_DELETE, PR_ADOPT_NONE };

/* The types that matter for a mapping. */
enum pr_adopt_type {
	PR_ADOPT_TEXT,
	PR_ADOPT_UUID,
	PR_ADOPT_INT,
	PR_ADOPT_BOOL,
	PR_ADOPT_ENUM,
	PR_ADOPT_JSON,
	PR_ADOPT_JSONB,
	PR_ADOPT_BYTES,
	PR_ADOPT_TIMESTAMPTZ,
	PR_ADOPT_TIMESTAMP,
	PR_ADOPT_OTHER
};

/* How a time is written in SQLite, which has no type for it. */
enum pr_adopt_time {
	PR_ADOPT_TIME_TEXT, /* 2026-01-31 12:00:00.000 */
	PR_ADOPT_TIME_ISO,  /* 2026-01-31T12:00:00.000Z */
	PR_ADOPT_TIME_SECONDS,
	PR_ADOPT_TIME_MILLISECONDS,
	PR_ADOPT_TIME_MICROSECONDS
};

struct pr_adopt_column {
	const char *name;
	enum pr_adopt_type type;
	enum pr_adopt_time time; /* in SQLite */
	const char *fallback; /* the default, as SQL; "" if there is none */
	bool generated;	      /* computed from other columns: no statement can set it */
	bool not_null;
};

/* A table that rows can be inserted into: the table, or one of its partitions. */
struct pr_adopt_target {
	const char *name;   /* quoted, with its schema */
	const char *schema; /* quoted */
	const char *digest; /* of its name, for names of its objects */
	bool has_rows;	  /* it is not partitioned further */
	bool exists;	  /* one of its triggers exists */
	int enabled;	  /* number of its triggers, if all are enabled and call the mirror */
};

/* Whether all triggers of a mapping work. Rows that have no marker are never opened again. */
static inline bool pr_adopt_is_mirrored(const struct pr_adopt_target *target, bool has_marker)
{
	return target->enabled == (target->has_rows && has_marker ? 2 : 1);
}

#define PR_ADOPT_KEY_MAX 8

struct pr_adopt {
	struct postroom_store *store;
	struct pr_arena arena;
	const char *schema, *table; /* their names, unquoted */
	const char *name;	    /* quoted, with the schema */
	const char *own;	    /* the schema of postroom_outbox, quoted, with a dot */
	const char *function;	    /* of the mirror: quoted, with its schema */
	struct pr_adopt_column *columns;
	size_t column_count;
	size_t key[PR_ADOPT_KEY_MAX]; /* indexes of the columns that identify a row */
	const char *equals[PR_ADOPT_KEY_MAX]; /* the operators of their index, with their schemas */
	size_t key_count;
	struct pr_adopt_target *targets;
	size_t target_count;
	/* The mapping: a column, a constant in single quotes, or an expression of the preset. */
	const char *parts[PR_ADOPT_PARTS];
	bool expression[PR_ADOPT_PARTS];
	const char *key_sql; /* of --keys: an expression; NULL: random */
	const char *preset; /* NULL: none */
	const char *zone;   /* of times without a time zone; NULL: not given */
	enum pr_adopt_done done;
	bool adopted;	    /* the mapping is that of an adoption that has begun */
	const char *since;  /* when it began */
	int64_t moved;	    /* rows of the backlog that were moved so far */
	struct pr_buf note; /* remarks for the operator, one per line */
};

struct pr_adopt_wish {
	const char *table;
	const char *preset;
	const char *zone;
	const char *const *columns; /* OURS=THEIRS */
	size_t column_count;
	const char *key_sql;
	bool existing; /* of an adoption only: without one, there is no mapping */
};

/*
 * Reads the layout of the table, and the mapping: of an earlier adoption, or by the wish, the
 * presets and the dictionary. It changes nothing. Release it after failures, too.
 */
int pr_adopt_open(struct pr_adopt *adopt, struct postroom_store *store,
		  const struct pr_adopt_wish *wish, struct pr_err *err);
void pr_adopt_release(struct pr_adopt *adopt);

/* Calls fn with rows as they would be delivered, as JSON objects, at most limit. */
typedef void (*pr_adopt_text_fn)(void *context, const char *text);
int pr_adopt_sample(struct pr_adopt *adopt, int limit, pr_adopt_text_fn fn, void *context,
		    struct pr_err *err);

/* Calls fn with each statement that an adoption runs, after a comment with its locks. */
int pr_adopt_explain(struct pr_adopt *adopt, int64_t chunk, pr_adopt_text_fn fn, void *context,
		     struct pr_err *err);

/* Median times of an INSERT without its COMMIT: without the mirror, and with it. */
struct pr_adopt_cost {
	int64_t single_us[2], bulk_us[2];
	int64_t rows; /* of the bulk insert; 0: there are no rows to measure with */
};
int pr_adopt_measure(struct pr_adopt *adopt, struct pr_adopt_cost *ret, struct pr_err *err);

/* Puts the names of their columns that no part of a message uses. */
void pr_adopt_put_unused(const struct pr_adopt *adopt, struct pr_buf *out);

/* Calls fn with each GRANT that a role with INSERT on their table needs. */
int pr_adopt_missing_grants(struct pr_adopt *adopt, pr_adopt_text_fn fn, void *context,
			    struct pr_err *err);

/* Creates the tables of Postroom that an adoption needs. Only one process adopts at a time. */
int pr_adopt_create_tables(struct pr_adopt *adopt, struct pr_err *err);

/* Creates the mirror. From its end on, every new row is mirrored. How many tables are new. */
int pr_adopt_mirror(struct pr_adopt *adopt, const struct pr_stop *stop, struct pr_err *err);

struct pr_adopt_progress {
	int64_t chunk; /* rows per transaction at most */
	const struct pr_stop *stop;
	void (*show)(void *context, int64_t done, int64_t total);
	void (*pause)(void *context, const char *why); /* may be NULL */
	void *context;
	int64_t moved, rejected;
	int64_t locked; /* rows that other transactions keep locked, or whose message is in flight */
};
/* Moves the waiting rows, or with pr_adopt_undo() hands undelivered messages back. */
int pr_adopt_backlog(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
		     struct pr_err *err);
/*
 * Drops the mirror first. Of tables whose rows are deleted, nothing can be handed back. If rows are
 * locked at its end, the adoption stays recorded, so that a later call can hand back the rest.
 */
int pr_adopt_undo(struct pr_adopt *adopt, struct pr_adopt_progress *progress, struct pr_err *err);

/*
 * Unique keys in their own table: a nullable column, values for the rows without one, and a unique
 * index. With required, the column also becomes NOT NULL. It needs no mapping of the messages.
 */
int pr_adopt_open_keys(struct pr_adopt *adopt, struct postroom_store *store,
		       const struct pr_adopt_wish *wish, struct pr_err *err);
int pr_adopt_keys(struct pr_adopt *adopt, struct pr_adopt_progress *progress, bool required,
		  struct pr_err *err);
/*
 * How long building the index makes writers wait, measured on a copy; -1: they do not wait, as in
 * PostgreSQL.
 */
int pr_adopt_measure_keys(struct pr_adopt *adopt, int64_t *ret_ms, struct pr_err *err);
int pr_adopt_explain_keys(struct pr_adopt *adopt, bool required, pr_adopt_text_fn fn, void *context,
			  struct pr_err *err);

struct pr_adopt_status {
	int64_t targets, mirrored; /* tables and partitions, and those with triggers */
	int64_t open;		   /* rows that wait in their table */
	int64_t other;		   /* rows that neither wait nor are done */
	int64_t rejected;
	int64_t pending, processing, delivered, dead; /* messages of rows that still exist */
};
int pr_adopt_status(struct pr_adopt *adopt, struct pr_adopt_status *ret, struct pr_err *err);
/* Calls fn with each reason and its number of rows, most frequent first, at most ten. */
int pr_adopt_rejects(struct pr_adopt *adopt, pr_adopt_text_fn fn, void *context,
		     struct pr_err *err);

#endif
