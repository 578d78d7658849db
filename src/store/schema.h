/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of schema/, embedded by tools/embed, and the code that all stores share for them. Each
 * array ends with version 0.
 */
#ifndef PR_STORE_SCHEMA_H
#define PR_STORE_SCHEMA_H

#include "store/store.h"

extern const struct pr_migration pr_schema_sqlite[];
extern const struct pr_migration pr_schema_pgsql[];

#define PR_SCHEMA_PROGRAM_SIZE 64

/* The contents of postroom_migrations. */
struct pr_schema_state {
	int version;	     /* the newest that was applied; 0: none */
	int compatible_with; /* the oldest version whose programs may work with it; 0: any */
	char program[PR_SCHEMA_PROGRAM_SIZE]; /* a version of the program that may */
};

int pr_schema_newest(const struct pr_migration *known);

/* POSTROOM_SCHEMA unless the database `where` has what a program that knows these needs. */
int pr_schema_check(const struct pr_migration *known, const struct pr_schema_state *state,
		    enum pr_schema_need need, const char *where, struct pr_err *err);

#endif
