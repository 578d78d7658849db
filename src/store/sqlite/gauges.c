/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded figures for metrics and dashboards, and the leases of the moment.
 *
 * 1. Counts stop at the cap. They read entries of partial indexes, so that a table of any size costs
 *    no more.
 * 2. Figures by topic and times of death need the rows: they cover the first SHARE-th part of the cap
 *    of each state.
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#include <string.h>

#define SHARE 100
#define DOING "collecting figures"

/* ?1 is the cap, ?2 the time. A message that was claimed before is as old as it is. */
#define SINCE                                                                                      \
	"min(CASE WHEN claims > 0 THEN created_at WHEN next_attempt_at <= ?2 "                     \
	"THEN max(created_at, next_attempt_at) END)"

/* Each: how many; of these failed, scheduled, due; and since when the oldest waits. */
static const struct figures {
	const char *sql;
	postroom_table table;
	enum { PENDING, LEASED, DEAD } state;
	/* Whether the cap is reached: to skip rows is faster than to count them. NULL: few rows. */
	const char *probe;
} figures[] = {
	/* All of these are due; the oldest is the first. */
	{ "SELECT count(*), 0, 0, count(*), (SELECT created_at FROM postroom_outbox "
	  "INDEXED BY postroom_outbox_ready WHERE " PR_SQLITE_READY "ORDER BY seq LIMIT 1) "
	  "FROM (SELECT 1 FROM postroom_outbox INDEXED BY postroom_outbox_ready "
	  "WHERE " PR_SQLITE_READY "LIMIT ?1) WHERE ?2 > 0",
	  POSTROOM_OUTBOX, PENDING,
	  "SELECT 1 FROM postroom_outbox INDEXED BY postroom_outbox_ready WHERE " PR_SQLITE_READY
	  "LIMIT 1 OFFSET @" },
	{ "SELECT count(*), sum(attempts > 0), sum(attempts = 0 AND next_attempt_at > ?2), "
	  "sum(next_attempt_at <= ?2), " SINCE " FROM (SELECT attempts, claims, created_at, "
	  "next_attempt_at FROM postroom_outbox INDEXED BY postroom_outbox_due "
	  "WHERE " PR_SQLITE_DUE "LIMIT ?1)",
	  POSTROOM_OUTBOX, PENDING, NULL },
	{ "SELECT count(*), sum(attempts > 0), 0, 0, min(created_at) FROM (SELECT attempts, "
	  "created_at FROM postroom_outbox INDEXED BY postroom_outbox_held "
	  "WHERE state = 'held' AND status = 'pending' LIMIT ?1) WHERE ?2 > 0",
	  POSTROOM_OUTBOX, PENDING, NULL },
	{ "SELECT count(*), 0, 0, 0, min(created_at) FROM (SELECT created_at FROM postroom_outbox "
	  "INDEXED BY postroom_outbox_leased WHERE status = 'processing' LIMIT ?1) WHERE ?2 > 0",
	  POSTROOM_OUTBOX, LEASED, NULL },
	{ "SELECT count(*), 0, 0, 0, NULL FROM (SELECT 1 FROM postroom_outbox "
	  "INDEXED BY postroom_outbox_dead WHERE status = 'dead' LIMIT ?1) WHERE ?2 > 0",
	  POSTROOM_OUTBOX, DEAD,
	  "SELECT 1 FROM postroom_outbox INDEXED BY postroom_outbox_dead WHERE status = 'dead' "
	  "LIMIT 1 OFFSET @" },
	{ "SELECT count(*), 0, 0, 0, (SELECT created_at FROM postroom_inbox "
	  "INDEXED BY postroom_inbox_ready WHERE " PR_SQLITE_READY "ORDER BY seq LIMIT 1) "
	  "FROM (SELECT 1 FROM postroom_inbox INDEXED BY postroom_inbox_ready "
	  "WHERE " PR_SQLITE_READY "LIMIT ?1) WHERE ?2 > 0",
	  POSTROOM_INBOX, PENDING,
	  "SELECT 1 FROM postroom_inbox INDEXED BY postroom_inbox_ready WHERE " PR_SQLITE_READY
	  "LIMIT 1 OFFSET @" },
	{ "SELECT count(*), 0, 0, 0, " SINCE " FROM (SELECT claims, created_at, next_attempt_at "
	  "FROM postroom_inbox INDEXED BY postroom_inbox_due WHERE " PR_SQLITE_DUE "LIMIT ?1)",
	  POSTROOM_INBOX, PENDING, NULL },
	{ "SELECT count(*), 0, 0, 0, min(created_at) FROM (SELECT created_at FROM postroom_inbox "
	  "INDEXED BY postroom_inbox_held WHERE state = 'held' AND status = 'pending' LIMIT ?1) "
	  "WHERE ?2 > 0",
	  POSTROOM_INBOX, PENDING, NULL },
	{ "SELECT count(*), 0, 0, 0, min(created_at) FROM (SELECT created_at FROM postroom_inbox "
	  "INDEXED BY postroom_inbox_leased WHERE status = 'active' LIMIT ?1) WHERE ?2 > 0",
	  POSTROOM_INBOX, LEASED, NULL },
	{ "SELECT count(*), 0, 0, 0, NULL FROM (SELECT 1 FROM postroom_inbox "
	  "INDEXED BY postroom_inbox_dead WHERE status = 'dead' LIMIT ?1) WHERE ?2 > 0",
	  POSTROOM_INBOX, DEAD,
	  "SELECT 1 FROM postroom_inbox INDEXED BY postroom_inbox_dead WHERE status = 'dead' LIMIT "
	  "1 OFFSET @" },
};

static void note_age(int64_t *age_us, int64_t now_us, int64_t since_us)
{
	int64_t us = now_us > since_us ? now_us - since_us : 0;

	if (us > *age_us)
		*age_us = us;
}

/* full: there are at least cap rows, and of the counts only the first is known. */
static void add_figures(struct pr_gauges *gauges, const struct figures *part, sqlite3_stmt *stmt,
			bool full, int64_t cap, int64_t now_us)
{
	bool inbox = part->table == POSTROOM_INBOX;
	int64_t *const to[2][3] = {
		{ &gauges->pending, &gauges->processing, &gauges->dead },
		{ &gauges->inbox_pending, &gauges->inbox_active, &gauges->inbox_dead },
	};
	int64_t count = full ? cap : sqlite3_column_int64(stmt, 0);

	*to[inbox][part->state] += count;
	gauges->capped |= count >= cap;
	if (!inbox) {
		gauges->failed_pending += sqlite3_column_int64(stmt, 1);
		gauges->scheduled += sqlite3_column_int64(stmt, 2);
		gauges->due += full && part->state == PENDING ? cap : sqlite3_column_int64(stmt, 3);
	}
	if (sqlite3_column_type(stmt, 4) != SQLITE_NULL)
		note_age(inbox ? &gauges->inbox_oldest_age_us : &gauges->oldest_age_us, now_us,
			 sqlite3_column_int64(stmt, 4));
}

static int probe(struct sqlite_store *store, const char *sql, int64_t cap, bool *ret,
		 struct pr_err *err)
{
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	sqlite3_stmt *stmt;
	int rc;

	*ret = false;
	if (!sql)
		return POSTROOM_OK;
	pr_query_number(&query, sql, cap - 1);
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	rc = sqlite3_step(stmt);
	*ret = rc == SQLITE_ROW;
	return pr_sqlite_answered(store, stmt, rc, DOING, err);
}

static int collect_states(struct sqlite_store *store, int64_t cap, int64_t now_us,
			  struct pr_gauges *gauges, struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (size_t i = 0; status >= 0 && i < sizeof(figures) / sizeof(figures[0]); i++) {
		PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
		sqlite3_stmt *stmt;
		bool full;
		int rc;

		status = probe(store, figures[i].probe, cap, &full, err);
		if (status < 0)
			return status;
		pr_query_put(&query, figures[i].sql);
		pr_query_add(&query, full ? 1 : cap);
		pr_query_add(&query, now_us);
		stmt = pr_sqlite_prepare_query(store, &query, err);
		if (!stmt)
			return err->status;
		rc = sqlite3_step(stmt);
		if (rc == SQLITE_ROW)
			add_figures(gauges, &figures[i], stmt, full, cap, now_us);
		status = pr_sqlite_answered(store, stmt, rc, DOING, err);
	}
	return status;
}

/* Since when there are dead letters, unless there are more than rows. */
static int collect_deaths(struct sqlite_store *store, postroom_table table, int64_t rows,
			  struct pr_gauges *gauges, struct pr_err *err)
{
	static const char *const queries[] = {
		"SELECT min(updated_at) FROM (SELECT updated_at FROM postroom_outbox "
		"INDEXED BY postroom_outbox_dead WHERE status = 'dead' LIMIT @)",
		"SELECT min(updated_at) FROM (SELECT updated_at FROM postroom_inbox "
		"INDEXED BY postroom_inbox_dead WHERE status = 'dead' LIMIT @)",
	};
	bool inbox = table == POSTROOM_INBOX;
	int64_t dead = inbox ? gauges->inbox_dead : gauges->dead;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	sqlite3_stmt *stmt;
	int rc;

	if (dead == 0 || dead > rows)
		return POSTROOM_OK;
	pr_query_number(&query, queries[inbox], rows);
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*(inbox ? &gauges->inbox_dead_since_us : &gauges->dead_since_us) =
			sqlite3_column_int64(stmt, 0);
	return pr_sqlite_answered(store, stmt, rc, DOING, err);
}

/* ?1 rows of each state, ?2 the time, ?3 topics. */
#define SAMPLE(state, table, name, index)                                                          \
	"SELECT * FROM (SELECT '" state "' AS state, " name                                        \
	", attempts, claims, created_at, next_attempt_at FROM postroom_" table                     \
	" INDEXED BY postroom_" table "_" index " LIMIT ?1)"
/* clang-format off */
#define OR_SAMPLE(state, table, name, index) " UNION ALL " SAMPLE(state, table, name, index)
#define BY_TOPIC(table, name, active)                                                              \
	"SELECT ns, topic, sum(state = 'p'), sum(state = 'l'), "                                   \
	"sum(state = 'p' AND attempts > 0), sum(state = 'd'), min(CASE state WHEN 'l' "            \
	"THEN created_at WHEN 'p' THEN CASE WHEN claims > 0 THEN created_at "                      \
	"WHEN next_attempt_at <= ?2 THEN max(created_at, next_attempt_at) END END), "              \
	"sum(count(*)) OVER () FROM ("                                                             \
	SAMPLE("p", table, name, "ready WHERE " PR_SQLITE_READY)                                   \
	OR_SAMPLE("p", table, name, "due WHERE " PR_SQLITE_DUE)                                    \
	OR_SAMPLE("p", table, name, "held WHERE state = 'held' AND status = 'pending'")            \
	OR_SAMPLE("l", table, name, "leased WHERE status = '" active "'")                          \
	OR_SAMPLE("d", table, name, "dead WHERE status = 'dead' ORDER BY seq DESC")                \
	") GROUP BY 1, 2 ORDER BY count(*) DESC, 1, 2 LIMIT ?3"
/* clang-format on */

static const char outbox_topics[] = BY_TOPIC("outbox", "namespace AS ns, topic", "processing");
static const char inbox_handlers[] = BY_TOPIC("inbox", "NULL AS ns, handler_name AS topic",
					      "active");

/* One call to collect. */
struct collecting {
	struct sqlite_store *store;
	struct pr_gauges *gauges;
	pr_topic_gauges_fn fn;
	void *context;
	int64_t rows, now_us;
};

static int collect_topics(const struct collecting *collecting, postroom_table table,
			  struct pr_err *err)
{
	struct sqlite_store *store = collecting->store;
	struct pr_gauges *gauges = collecting->gauges;
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	int64_t seen = 0, topics = 0;
	sqlite3_stmt *stmt;
	int rc;

	pr_query_put(&query, table == POSTROOM_INBOX ? inbox_handlers : outbox_topics);
	pr_query_add(&query, collecting->rows);
	pr_query_add(&query, collecting->now_us);
	pr_query_add(&query, PR_GAUGES_TOPICS);
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct pr_topic_gauges topic = {
			.table = table,
			.ns = (const char *)sqlite3_column_text(stmt, 0),
			.topic = (const char *)sqlite3_column_text(stmt, 1),
			.pending = sqlite3_column_int64(stmt, 2),
			.processing = sqlite3_column_int64(stmt, 3),
			.failed_pending = sqlite3_column_int64(stmt, 4),
			.dead = sqlite3_column_int64(stmt, 5),
			.oldest_age_us = -1,
		};

		if (sqlite3_errcode(store->db) == SQLITE_NOMEM) {
			rc = SQLITE_NOMEM;
			break;
		}
		if (sqlite3_column_type(stmt, 6) != SQLITE_NULL)
			note_age(&topic.oldest_age_us, collecting->now_us,
				 sqlite3_column_int64(stmt, 6));
		seen = sqlite3_column_int64(stmt, 7);
		topics++;
		collecting->fn(collecting->context, &topic);
	}
	gauges->topics_capped |= topics == PR_GAUGES_TOPICS;
	if (table == POSTROOM_OUTBOX)
		gauges->topics_capped |= seen < gauges->pending + gauges->processing + gauges->dead;
	else
		gauges->topics_capped |= seen < gauges->inbox_pending + gauges->inbox_active +
							gauges->inbox_dead;
	return pr_sqlite_answered(store, stmt, rc, DOING, err);
}

/* Of the whole file: SQLite keeps no sizes of tables. */
static int collect_size(struct sqlite_store *store, struct pr_gauges *gauges, struct pr_err *err)
{
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	sqlite3_stmt *stmt;
	int rc;

	pr_query_put(&query,
		     "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		gauges->table_bytes = sqlite3_column_int64(stmt, 0);
	return pr_sqlite_answered(store, stmt, rc, DOING, err);
}

/* Only `postroom adopt` creates the table. */
static int collect_rejects(struct sqlite_store *store, int64_t cap, struct pr_gauges *gauges,
			   struct pr_err *err)
{
	static const char *const queries[] = {
		"SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = "
		"'postroom_adopt_rejects'",
		"SELECT count(*) FROM (SELECT 1 FROM postroom_adopt_rejects LIMIT @)",
	};
	int64_t found = 1;

	for (int i = 0; i < 2 && found > 0; i++) {
		PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
		sqlite3_stmt *stmt;
		int rc, status;

		if (i == 0)
			pr_query_put(&query, queries[i]);
		else
			pr_query_number(&query, queries[i], cap);
		stmt = pr_sqlite_prepare_query(store, &query, err);
		if (!stmt)
			return err->status;
		rc = sqlite3_step(stmt);
		found = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
		status = pr_sqlite_answered(store, stmt, rc, DOING, err);
		if (status < 0)
			return status;
	}
	gauges->rejected = found;
	return POSTROOM_OK;
}

static int collect_all(struct sqlite_store *store, int64_t cap, struct pr_gauges *gauges,
		       pr_topic_gauges_fn fn, void *context, struct pr_err *err)
{
	int64_t now_us = pr_now_us(), part = cap / SHARE > 0 ? cap / SHARE : 1;
	const struct collecting collecting = { store, gauges, fn, context, part, now_us };
	int status = collect_states(store, cap, now_us, gauges, err);

	if (status >= 0)
		status = collect_deaths(store, POSTROOM_OUTBOX, part, gauges, err);
	if (status >= 0)
		status = collect_deaths(store, POSTROOM_INBOX, part, gauges, err);
	if (status >= 0 && fn)
		status = collect_topics(&collecting, POSTROOM_OUTBOX, err);
	if (status >= 0 && fn)
		status = collect_topics(&collecting, POSTROOM_INBOX, err);
	if (status >= 0)
		status = collect_size(store, gauges, err);
	return status >= 0 ? collect_rejects(store, cap, gauges, err) : status;
}

int pr_sqlite_collect(struct postroom_store *base, int64_t cap, struct pr_gauges *ret,
		      pr_topic_gauges_fn fn, void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	struct pr_gauges gauges = { .oldest_age_us = -1,
				    .inbox_oldest_age_us = -1,
				    .dead_tuples = -1 };
	int status;

	/* As before writing: without memory there must still be a way back, also of the last call. */
	if (!pr_sqlite_prepare(store, SLOT_ROLLBACK, NULL, "ROLLBACK", err))
		return err->status;
	pr_sqlite_rollback(base);
	/* One snapshot: a message that changes its state meanwhile is counted once. */
	if (sqlite3_exec(store->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, DOING, err);
	status = collect_all(store, cap, &gauges, fn, context, err);
	status = pr_sqlite_end(base, status, err);
	if (status >= 0)
		*ret = gauges;
	return status;
}

int pr_sqlite_leases(struct postroom_store *base, pr_lease_fn fn, void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	sqlite3_stmt *stmt;
	int rc;

	pr_query_number(&query,
			"SELECT locked_by, 0, count(*), max(locked_until) FROM postroom_outbox "
			"INDEXED BY postroom_outbox_leased WHERE status = 'processing' "
			"AND locked_until > @ GROUP BY locked_by UNION ALL "
			"SELECT locked_by, 1, count(*), max(locked_until) FROM postroom_inbox "
			"INDEXED BY postroom_inbox_leased WHERE status = 'active' "
			"AND locked_until > @ GROUP BY locked_by ORDER BY 2, 1",
			pr_now_us());
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const struct pr_lease_view lease = {
			.worker = (const char *)sqlite3_column_text(stmt, 0),
			.table = sqlite3_column_int(stmt, 1) ? POSTROOM_INBOX : POSTROOM_OUTBOX,
			.messages = sqlite3_column_int64(stmt, 2),
			.locked_until_us = sqlite3_column_int64(stmt, 3),
		};

		if (!lease.worker) {
			rc = SQLITE_NOMEM;
			break;
		}
		fn(context, &lease);
	}
	return pr_sqlite_answered(store, stmt, rc, "reading leases", err);
}
