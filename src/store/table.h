/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table whose rows are claimed, tried and settled. The stores write claim,
 * renew, settle, sweep and retry once, over this description, as SQL with
 * {names} in it.
 */
#ifndef PR_STORE_TABLE_H
#define PR_STORE_TABLE_H

#include "base/buf.h"

struct pr_table {
	const char *name;
	const char *active;	 /* status while leased */
	const char *done;	 /* status when all is well */
	const char *done_at;	 /* column that says since when */
	const char *columns;	 /* of a delivery, in pr_delivery_column's order */
	const char *scope_ns;	 /* what a claim's scope compares: columns, or constants */
	const char *scope_topic;
	const char *scope_tenant;
};

/* The order of {columns} in every claim. */
enum pr_delivery_column {
	PR_COL_SEQ,
	PR_COL_FENCE,
	PR_COL_ATTEMPTS,
	PR_COL_CREATED_AT,
	PR_COL_ID,
	PR_COL_NAMESPACE,
	PR_COL_TOPIC,
	PR_COL_KEY,
	PR_COL_TENANT_ID,
	PR_COL_DEDUPE_KEY,
	PR_COL_CORRELATION_ID,
	PR_COL_CONTENT_TYPE,
	PR_COL_HEADERS,
	PR_COL_PAYLOAD,
	PR_COL_BODY,
	PR_COL_COUNT
};

extern const struct pr_table pr_table_outbox;

/* Appends sql with {table}, {active}, {columns}, … filled in: the fields' own names. */
void pr_table_sql(const struct pr_table *table, const char *sql, struct pr_buf *out);

#endif
