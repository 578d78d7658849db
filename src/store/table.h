/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table whose rows are claimed, tried and settled. The stores write claim,
 * renew, settle, sweep and retry once, over this description, as SQL with
 * {names} in it.
 */
#ifndef PR_STORE_TABLE_H
#define PR_STORE_TABLE_H

#include "base/buf.h"

#include <stdbool.h>

struct pr_table {
	const char *name;
	const char *box;	 /* what its events are called in the log: OUTBOX_… */
	const char *active;	 /* status while leased */
	const char *done;	 /* status when all is well */
	const char *done_at;	 /* column that says since when */
	const char *columns;	 /* of a delivery, in pr_delivery_column's order */
	const char *scope_ns;	 /* what a claim's scope compares: columns, or constants */
	const char *scope_topic;
	const char *scope_tenant;
	bool lanes; /* what has a key waits in lanes, where the database has them; or else all rows are set apart */
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
extern const struct pr_table pr_table_inbox; /* of a job the handler is the namespace */

/* Appends sql with {table}, {active}, {columns}, … filled in: the fields' own names. */
void pr_table_sql(const struct pr_table *table, const char *sql, struct pr_buf *out);

/* Which messages a sink gets, when several share an outbox: the first one that fits decides. */
struct pr_rule {
	const char *ns;	   /* NULL: any */
	const char *topic; /* pattern; NULL: any */
	bool mine;	   /* those that fit are this store's; or else another's */
};

struct pr_rules {
	const struct pr_rule *list;
	size_t count; /* 0: everything is this store's; otherwise what fits none is not */
};

/* Appends text as a literal of the database's; as a pattern, ready for what compares them. */
typedef void (*pr_literal_fn)(void *context, const char *text, bool pattern, struct pr_buf *out);

/*
 * Appends an expression that is true of what is the store's own; like is the
 * operator for patterns. There must be rules.
 */
void pr_rules_sql(const struct pr_rules *rules, const struct pr_table *table, const char *like,
		  pr_literal_fn literal, void *context, struct pr_buf *out);

#endif
