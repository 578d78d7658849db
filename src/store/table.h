/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description of a table whose rows are claimed, tried and settled. The stores implement claim,
 * renew, settle, sweep and retry once, over this description, as SQL with {names} in it.
 */
#ifndef PR_STORE_TABLE_H
#define PR_STORE_TABLE_H

#include "base/buf.h"

#include <stdbool.h>

struct pr_table {
	const char *name;
	const char *box;     /* prefix of its log events: OUTBOX_… */
	const char *active;  /* status while leased */
	const char *done;    /* status when all is well */
	const char *done_at; /* column with the time of completion */
	const char *columns; /* of a delivery, in pr_delivery_column's order, without its content */
	const char *scope_ns; /* compared with a claim's scope: columns or constants */
	const char *scope_topic;
	const char *scope_tenant;
	bool lanes; /* keyed rows are in lanes if the database has them; otherwise all rows are claimed individually */
};

/* The order of {columns} in every claim. The content follows: headers, payload and body. */
enum pr_delivery_column {
	PR_COL_SEQ,
	PR_COL_FENCING_TOKEN,
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
	PR_COL_WITHHELD, /* its size in bytes, if the content was left out; else 0 */
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
	bool mine;	   /* matching messages belong to this store; otherwise to another */
};

struct pr_rules {
	const struct pr_rule *list;
	size_t count; /* 0: all messages belong to this store; otherwise a message that matches no rule does not */
};

/* Appends text as an SQL literal; a pattern in the form that the operator needs. */
typedef void (*pr_literal_fn)(void *context, const char *text, bool pattern, struct pr_buf *out);

/*
 * Appends an expression that is true for messages of this store. like is the operator for
 * patterns. There must be rules.
 */
void pr_rules_sql(const struct pr_rules *rules, const struct pr_table *table, const char *like,
		  pr_literal_fn literal, void *context, struct pr_buf *out);

#endif
