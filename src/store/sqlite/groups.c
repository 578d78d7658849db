/* SPDX-License-Identifier: Apache-2.0 */
/* Dead rows by their cause: the newest GROUPED of them, in the order of their index. */
#include "store/sqlite/sqlite.h"

#define GROUPED "100000"

static void fingerprint(sqlite3_context *context, int count, sqlite3_value **values)
{
	const char *error = (const char *)sqlite3_value_text(values[0]);
	char out[PR_FINGERPRINT_SIZE];
	int len;

	(void)count;
	if (!error) {
		sqlite3_result_null(context);
		return;
	}
	len = pr_fingerprint(error, out, sizeof(out));
	if (len < 0)
		sqlite3_result_error_nomem(context);
	else
		sqlite3_result_text(context, out, len, SQLITE_TRANSIENT);
}

int pr_sqlite_add_functions(struct sqlite_store *store, struct pr_err *err)
{
	if (sqlite3_create_function(store->db, "postroom_fingerprint", 1,
				    SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, fingerprint, NULL,
				    NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "opening the database", err);
	return POSTROOM_OK;
}

#define OUTBOX_ROWS                                                                                \
	"topic, NULL AS handler, " PR_SQLITE_OUTBOX_SINK " AS sink "                               \
	"FROM postroom_outbox INDEXED BY postroom_outbox_dead "                                    \
	"WHERE status = 'dead'"
#define INBOX_ROWS                                                                                 \
	"coalesce(topic, handler_name) AS topic, handler_name AS handler, " PR_SQLITE_INBOX_SINK   \
	" AS sink "                                                                                \
	"FROM postroom_inbox INDEXED BY postroom_inbox_dead WHERE status = 'dead'"

/* Errors stay in the table: of a group, the error of its newest row is read in the end. */
#define GROUPS                                                                                     \
	" ORDER BY seq DESC LIMIT " GROUPED " + 1), groups AS (SELECT cause, topic, handler, "     \
	"sink, count(*) AS number, min(at) AS first_at, max(at) AS last_at, max(seq) AS newest "   \
	"FROM (SELECT * FROM dead LIMIT " GROUPED ") GROUP BY cause, topic, handler, sink "        \
	"ORDER BY number DESC, newest DESC LIMIT @) "                                              \
	"SELECT g.cause, r.last_error, g.topic, g.handler, r.id, g.number, g.first_at, "           \
	"g.last_at, (SELECT count(*) > " GROUPED " FROM dead), g.sink "                            \
	"FROM groups AS g CROSS JOIN "

int pr_sqlite_groups(struct postroom_store *base, const postroom_filter *filter,
		     const struct pr_grouping *grouping, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	bool inbox = filter->table == POSTROOM_INBOX;
	sqlite3_stmt *stmt;
	int rc;

	pr_query_put(&query, "WITH dead AS MATERIALIZED (SELECT seq, updated_at AS at, "
			     "coalesce(postroom_fingerprint(last_error), '') AS cause, ");
	pr_query_put(&query, inbox ? INBOX_ROWS : OUTBOX_ROWS);
	pr_query_filter(&query, filter, pr_sqlite_words(filter), "updated_at");
	pr_query_number(&query, GROUPS, grouping->limit);
	pr_query_put(&query, inbox ? "postroom_inbox" : "postroom_messages");
	pr_query_put(&query, " AS r ON r.seq = g.newest ORDER BY g.number DESC, g.newest DESC");
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const postroom_group group = {
			.fingerprint = (const char *)sqlite3_column_text(stmt, 0),
			.example_error = (const char *)sqlite3_column_text(stmt, 1),
			.topic = (const char *)sqlite3_column_text(stmt, 2),
			.handler = (const char *)sqlite3_column_text(stmt, 3),
			.example_id = (const char *)sqlite3_column_text(stmt, 4),
			.count = sqlite3_column_int64(stmt, 5),
			.first_at_us = sqlite3_column_int64(stmt, 6),
			.last_at_us = sqlite3_column_int64(stmt, 7),
			.sink = (const char *)sqlite3_column_text(stmt, 9),
		};

		*grouping->ret_capped = sqlite3_column_int(stmt, 8);
		if (sqlite3_errcode(store->db) == SQLITE_NOMEM) {
			rc = SQLITE_NOMEM;
			break;
		}
		if (grouping->fn(grouping->context, &group) != 0)
			break;
	}
	return pr_sqlite_answered(store, stmt, rc, "grouping dead messages", err);
}
