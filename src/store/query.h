/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A statement of the operator's side under construction. Only the conditions that the filter gives
 * become part of it, so that the planner sees which index serves them. Values are parameters.
 */
#ifndef PR_STORE_QUERY_H
#define PR_STORE_QUERY_H

#include "store/store.h"

#define PR_QUERY_VALUES 18

struct pr_query {
	struct pr_buf sql;
	char mark; /* '$' or '?': what begins a parameter */
	size_t count;
	struct pr_query_value {
		const char *text; /* NULL: the number counts */
		int64_t number;
	} values[PR_QUERY_VALUES];
	struct pr_buf pattern; /* the topic as the database compares it */
};

/* One condition for each member of postroom_filter; '@' is the parameter. NULL: has none. */
struct pr_filter_words {
	const char *ns, *topic, *tenant_id, *key, *handler, *id;
	const char *error, *fingerprint, *sink, *created_from, *created_to;
	const char *older_than; /* without its column */
	void (*pattern)(const char *pattern, struct pr_buf *out);
	int64_t (*age)(int64_t older_than_ms); /* NULL: the parameter is the age itself */
};

void pr_query_put(struct pr_query *query, const char *sql);
/* Appends sql, with '@' for the value, which must outlive the query. */
void pr_query_text(struct pr_query *query, const char *sql, const char *text);
void pr_query_number(struct pr_query *query, const char *sql, int64_t number);
/* Adds the value of the next parameter, which the statement names itself. */
void pr_query_add(struct pr_query *query, int64_t number);
/* Appends " AND …" for each part of the filter; since is the column that older_than compares. */
void pr_query_filter(struct pr_query *query, const postroom_filter *filter,
		     const struct pr_filter_words *words, const char *since);
void pr_query_release(struct pr_query *query);
#define PR_CLEANUP_QUERY __attribute__((cleanup(pr_query_release)))

/* Whether the filter's status is this one. */
bool pr_filter_is(const postroom_filter *filter, const char *status);
const struct pr_table *pr_filter_table(const postroom_filter *filter);

#endif
