/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's side of a store. It is not part of struct pr_store_ops, because a library
 * for applications consists of the stores and must not carry the checks: only the
 * program links them.
 *
 * An inspection changes nothing. On PostgreSQL every statement runs in a read-only
 * transaction with short timeouts; the statements are in doctor/pgsql, one check per file.
 */
#ifndef PR_STORE_INSPECT_H
#define PR_STORE_INSPECT_H

#include "core/finding.h"
#include "store/store.h"

struct pr_inspection {
	int64_t patience_ms; /* transactions, locks, leases and messages may wait this long */
	int64_t retention_ms, inbox_retention_ms, dedupe_retention_ms; /* < 0: forever */
	int64_t workers;
	const struct pr_scope *scope; /* of the relay */
	/*
	 * Repair our own objects: called with each command that was run, and the error if it
	 * failed. NULL: change nothing.
	 */
	void (*fixed)(void *context, const char *command, const struct pr_err *err);
	void *context;
};

/* Checks that need no connection, of a database that is a file. */
void pr_store_inspect_file(const char *url, struct pr_checkup *checkup);
/*
 * Runs the store's checks and reports what they find. A failure means that the database was
 * lost meanwhile; a check that cannot be made is a finding.
 */
int pr_store_inspect(struct postroom_store *store, const struct pr_inspection *inspection,
		     struct pr_checkup *checkup, struct pr_err *err);

/* Of a database that cannot be opened: a finding of the running check, as exact as possible. */
void pr_store_explain_failure(const char *url, const struct pr_err *err,
			      struct pr_checkup *checkup);

/* Unrouted messages, as a check of all stores. */
void pr_inspect_routes(struct postroom_store *store, const struct pr_inspection *inspection,
		       bool routed, struct pr_checkup *checkup);

int pr_pgsql_inspect(struct postroom_store *store, const struct pr_inspection *inspection,
		     struct pr_checkup *checkup, struct pr_err *err);
int pr_sqlite_inspect(struct postroom_store *store, const struct pr_inspection *inspection,
		      struct pr_checkup *checkup, struct pr_err *err);
/* Checks of the file and its directory. */
void pr_sqlite_inspect_file(const char *url, struct pr_checkup *checkup);

#endif
