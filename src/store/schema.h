/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of schema/, embedded by tools/embed; each array ends with version
 * 0. And what every store does with them.
 */
#ifndef PR_STORE_SCHEMA_H
#define PR_STORE_SCHEMA_H

#include "store/store.h"

extern const struct pr_migration pr_schema_sqlite[];
extern const struct pr_migration pr_schema_pgsql[];

int pr_schema_newest(const struct pr_migration *known);

/* POSTROOM_SCHEMA when the database `where` is of a version past all known ones. */
int pr_schema_refuse_newer(const struct pr_migration *known, int version, const char *where,
			   struct pr_err *err);

/* The same, and also when anything is missing. */
int pr_schema_check(const struct pr_migration *known, int version, const char *where,
		    struct pr_err *err);

#endif
