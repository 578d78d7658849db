/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the doctor's files of the PostgreSQL store. */
#ifndef PR_STORE_PGSQL_DOCTOR_H
#define PR_STORE_PGSQL_DOCTOR_H

#include "store/inspect.h"
#include "store/pgsql/pgsql.h"

/*
 * A check is one statement of doctor/pgsql: it returns a row for each finding, with level,
 * title, detail, advice, command, and whether --fix may run the command.
 */
struct pgsql_check {
	const char *id;
	const char *title;
	bool schema;	   /* needs the migrations to be of this version */
	bool tables;	   /* and needs to read the tables */
	bool sessions;	   /* needs to see what other sessions do */
	const char *relation; /* without this table, there is nothing to check; NULL: none */
	int since, before; /* server versions; 0: any */
	const char *sql;   /* with {names} in it: see doctor.c */
};

extern const struct pgsql_check pr_pgsql_checks[]; /* ends with id NULL */

struct pgsql_inspection {
	struct pgsql_store *store;
	const struct pr_inspection *inspection;
	struct pr_checkup *checkup;
	bool schema; /* all migrations of this program were applied */
	bool tables; /* and the tables can be read */
	bool indexes; /* and the indexes were checked */
	bool wrong_indexes; /* some are missing or not as defined */
	const char *unreadable; /* why not */
	bool sees_sessions;
	char grant[200]; /* what this role needs to see them */
	char grant_reading[800]; /* and to read the version of the tables */
};

/*
 * The transaction of a check: it reads only, and ends soon. If a policy hides rows from the role,
 * a statement fails (row_security = off), so that the check is skipped and not ok.
 */
#define PG_DOCTOR_BEGIN                                                                            \
	"BEGIN READ ONLY; SET LOCAL row_security = off; SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '200ms'; "  \
	"SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off"
#define PG_DOCTOR_DOING "inspecting the database"

/* doctor_plans.c: explains the statements that claim. */
void pr_pgsql_check_plans(struct pgsql_inspection *in);
/* doctor_pooler.c: asks the pooler, if there is one, about its pools. */
void pr_pgsql_check_pooler(struct pgsql_inspection *in);

/* doctor_schema.c: the indexes and triggers of the embedded schema, as rows of VALUES. */
void pr_pgsql_put_indexes(struct pr_buf *out);
void pr_pgsql_put_triggers(struct pr_buf *out);
/* doctor_objects.c: all other objects. */
void pr_pgsql_put_objects(struct pr_buf *out);

#endif
