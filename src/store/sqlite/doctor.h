/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the doctor's files of the SQLite store. */
#ifndef PR_STORE_SQLITE_DOCTOR_H
#define PR_STORE_SQLITE_DOCTOR_H

#include "store/inspect.h"
#include "store/sqlite/sqlite.h"

struct sqlite_inspection {
	struct sqlite_store *store;
	const struct pr_inspection *inspection;
	struct pr_checkup *checkup;
	bool tables;
	bool wal;
	int64_t until_us; /* of the running statement */
};

#define SQLITE_PROGRESS_STEPS 10000

/* A progress handler: ends a statement that takes too long. context: the inspection. */
int pr_sqlite_interrupt_late(void *context);
/* Prepares a statement and starts its time. NULL: pr_sqlite_skip_failed() says why. */
sqlite3_stmt *pr_sqlite_prepare_check(struct sqlite_inspection *in, const char *sql);
/* Reports that the last statement failed, or took too long. */
void pr_sqlite_skip_failed(struct sqlite_inspection *in);

/* doctor_wal.c: how much of the log waits for a checkpoint, and for whom. */
void pr_sqlite_check_wal(struct sqlite_inspection *in);
/* doctor_objects.c: compares the schema with that of the migrations. */
void pr_sqlite_check_objects(struct sqlite_inspection *in);
/* doctor_adopt.c */
void pr_sqlite_check_adopted(struct sqlite_inspection *in);

#endif
