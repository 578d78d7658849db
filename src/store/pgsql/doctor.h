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
	int since, before; /* server versions; 0: any */
	const char *sql;   /* with {names} in it: see doctor.c */
};

extern const struct pgsql_check pr_pgsql_checks[]; /* ends with id NULL */

/* doctor_schema.c: the indexes and triggers of the embedded schema, as rows of VALUES. */
void pr_pgsql_put_indexes(struct pr_buf *out);
void pr_pgsql_put_triggers(struct pr_buf *out);
/* doctor_objects.c: all other objects. */
void pr_pgsql_put_objects(struct pr_buf *out);

#endif
