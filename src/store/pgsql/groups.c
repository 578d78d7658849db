/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead rows by their cause.
 *
 * 1. The newest GROUPED rows are read, in the order of their index; the rest only makes the answer
 *    say that it is capped.
 * 2. Errors stay in the table: of a row only the fingerprint is kept, and of a group the error of
 *    its newest row is read in the end.
 */
#include "store/pgsql/pgsql.h"

#define GROUPED "100000"

#define GROUPS                                                                                     \
	", groups AS (SELECT cause, topic, handler, count(*) AS number, min(n) AS newest, "        \
	"min(at) AS first_at, max(at) AS last_at FROM rows WHERE n <= " GROUPED                    \
	" GROUP BY cause, topic, handler ORDER BY number DESC, newest LIMIT @::int) "              \
	"SELECT g.cause, e.last_error, g.topic, g.handler, r.id, g.number, " PG_TIME(              \
		"g.first_at") ", " PG_TIME("g.last_at") ", "                                       \
							"(SELECT count(*) > " GROUPED              \
							" FROM rows) "                             \
							"FROM groups AS g JOIN rows AS r ON r.n "  \
							"= g.newest CROSS JOIN LATERAL "

#define OUTBOX_ROWS                                                                                \
	"WITH rows AS MATERIALIZED (SELECT row_number() OVER () AS n, d.* FROM (SELECT id, "       \
	"topic::text AS topic, NULL::text AS handler, updated_at AS at, "                          \
	"coalesce({schema}postroom_fingerprint(last_error), '') AS cause "                         \
	"FROM {schema}postroom_outbox WHERE status = 'dead'"
#define OUTBOX_END " ORDER BY id DESC LIMIT " GROUPED " + 1) AS d)"
#define OUTBOX_EXAMPLE                                                                             \
	"(SELECT last_error FROM {schema}postroom_outbox AS o WHERE o.id = r.id OFFSET 0) AS e "   \
	"ORDER BY g.number DESC, g.newest"

#define INBOX_ROWS                                                                                 \
	"WITH rows AS MATERIALIZED (SELECT row_number() OVER () AS n, d.* FROM (SELECT id, "       \
	"coalesce(topic, handler_name)::text AS topic, handler_name::text AS handler, "            \
	"updated_at AS at, coalesce({schema}postroom_fingerprint(last_error), '') AS cause "       \
	"FROM {schema}postroom_inbox WHERE status = 'dead'"
#define INBOX_END " ORDER BY seq DESC LIMIT " GROUPED " + 1) AS d)"
#define INBOX_EXAMPLE                                                                              \
	"(SELECT last_error FROM {schema}postroom_inbox AS i WHERE i.id = r.id "                   \
	"AND i.handler_name = r.handler OFFSET 0) AS e ORDER BY g.number DESC, g.newest"

int pr_pgsql_groups(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		    postroom_group_fn fn, void *context, int *ret_capped, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '$' };
	bool inbox = filter->table == POSTROOM_INBOX;

	pr_query_put(&query, inbox ? INBOX_ROWS : OUTBOX_ROWS);
	pr_query_filter(&query, filter, pr_pgsql_words(filter), "updated_at");
	pr_query_put(&query, inbox ? INBOX_END : OUTBOX_END);
	pr_query_number(&query, GROUPS, limit);
	pr_query_put(&query, inbox ? INBOX_EXAMPLE : OUTBOX_EXAMPLE);
	result = pr_pgsql_ask(pgsql_store(base), NULL, &query, "grouping dead messages", err);
	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		const postroom_group group = {
			.fingerprint = pr_pgsql_text_at(result, row, 0),
			.example_error = pr_pgsql_text_at(result, row, 1),
			.topic = pr_pgsql_text_at(result, row, 2),
			.handler = pr_pgsql_text_at(result, row, 3),
			.example_id = pr_pgsql_text_at(result, row, 4),
			.count = pr_pgsql_number_at(result, row, 5),
			.first_at_us = pr_pgsql_number_at(result, row, 6),
			.last_at_us = pr_pgsql_number_at(result, row, 7),
		};

		*ret_capped = PQgetvalue(result, row, 8)[0] == 't';
		if (fn(context, &group) != 0)
			break;
	}
	return POSTROOM_OK;
}
