/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that come into the inbox, and what a job writes down while it is at work.
 *
 * 1. Whatever arrives together is one IMMEDIATE transaction, the effects included:
 *    all of it is there, or nothing.
 * 2. The row is written before the effect: who finds it there already has none.
 * 3. In order, nothing overtakes an unfinished one of its key: all of those are in the
 *    index of keys from the moment they are written (sqlite_order.c), save those that
 *    are delayed and have no place in the order yet; nor a dead one, where those block.
 * 4. A job's progress is written only under its fence, in one statement.
 */
#include "base/time.h"
#include "store/sqlite.h"

#define BEFORE                                                                                     \
	"SELECT 1 FROM {table} AS e INDEXED BY {table}_key WHERE e.key = ?1 AND e.topic = ?2 "     \
	"AND e.namespace = ?3 AND " PR_SQLITE_IN_ORDER                                             \
	"AND e.status IN ('pending', '{active}') "                                                 \
	"UNION ALL SELECT 1 FROM {table} AS d INDEXED BY {table}_grave WHERE ?4 AND d.key = ?1 "   \
	"AND d.topic = ?2 AND d.namespace = ?3 AND d.key IS NOT NULL AND d.apart = 3 "             \
	"AND d.status = 'dead' LIMIT 1"

#define ARRIVE                                                                                     \
	"INSERT INTO {table} (id, handler_name, topic, key, content_type, headers, payload, "      \
	"body, status, attempts, claims, apart, next_attempt_at, last_attempt_at, last_error, "    \
	"created_at, updated_at, processed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "  \
	"?10, ?11, ?12, CASE WHEN ?10 > 0 THEN ?14 END, ?13, ?14, ?14, "                           \
	"CASE ?9 WHEN '{done}' THEN ?14 END) ON CONFLICT (id, handler_name) DO NOTHING"

/* Rebuilt member by member: a path made of the step's name would read its dots and quotes. */
#define STEPS                                                                                      \
	"(SELECT json_group_object(name, json(value)) FROM (SELECT key AS name, "                  \
	"CASE WHEN type IN ('object', 'array') THEN value WHEN type IN ('true', 'false') "         \
	"THEN type ELSE json_quote(value) END AS value "                                           \
	"FROM json_each({table}.steps) WHERE key <> ?4 "                                           \
	"UNION ALL SELECT ?4, json_object('result', json(?5), 'at', ?6)))"
#define PROGRESS                                                                                   \
	"UPDATE {table} SET steps = CASE WHEN ?4 IS NULL THEN steps ELSE " STEPS " END, "          \
	"checkpoint = coalesce(?7, checkpoint), updated_at = ?8 "                                  \
	"WHERE id = ?1 AND handler_name = ?2 AND status = '{active}' AND claims = ?3"

/* Does an earlier one of its key hold it back? */
static int look_before(struct sqlite_store *store, const char *handler, enum pr_in_order order,
		       const struct pr_arrival *arrival, bool *ret, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_BEFORE, &pr_table_inbox, BEFORE, err);
	int status = POSTROOM_OK;
	int rc;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, arrival->key);
	pr_sqlite_bind(stmt, 2, arrival->topic);
	pr_sqlite_bind(stmt, 3, handler);
	sqlite3_bind_int(stmt, 4, order == PR_ORDER_DEAD);
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "taking events in", err);
	*ret = rc == SQLITE_ROW;
	sqlite3_reset(stmt);
	return status;
}

/* What is delayed joins its key in its time; what has been tried already is in its order. */
static int apart_of(const struct pr_arrival *arrival, enum pr_arriving how)
{
	if (how == PR_ARRIVE_DEAD)
		return 3;
	if (how == PR_ARRIVE_DONE || arrival->delay_ms <= 0)
		return 4;
	return arrival->attempts > 0 ? 1 : 0;
}

static void bind_arrival(sqlite3_stmt *stmt, const char *handler, const struct pr_arrival *arrival,
			 enum pr_arriving how)
{
	static const char *const statuses[] = {
		[PR_ARRIVE_DONE] = "completed",
		[PR_ARRIVE_PENDING] = "pending",
		[PR_ARRIVE_DEAD] = "dead",
	};
	int64_t now_us = pr_now_us();

	pr_sqlite_bind(stmt, 1, arrival->id);
	pr_sqlite_bind(stmt, 2, handler);
	pr_sqlite_bind(stmt, 3, arrival->topic);
	pr_sqlite_bind(stmt, 4, arrival->key);
	pr_sqlite_bind(stmt, 5, arrival->content_type);
	pr_sqlite_bind(stmt, 6, arrival->headers);
	sqlite3_bind_text64(stmt, 7, arrival->payload.data, arrival->payload.len, SQLITE_STATIC,
			    SQLITE_UTF8);
	sqlite3_bind_blob64(stmt, 8, arrival->body.data, arrival->body.len, SQLITE_STATIC);
	pr_sqlite_bind(stmt, 9, statuses[how]);
	sqlite3_bind_int(stmt, 10, arrival->attempts);
	sqlite3_bind_int(stmt, 11, apart_of(arrival, how));
	sqlite3_bind_int64(stmt, 12, now_us + arrival->delay_ms * 1000);
	pr_sqlite_bind(stmt, 13, arrival->error);
	sqlite3_bind_int64(stmt, 14, now_us);
}

static int take_one(struct sqlite_store *store, const char *handler, const char *statement,
		    enum pr_in_order order, struct pr_arrival *arrival, bool *ret_effect,
		    struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_ARRIVE, &pr_table_inbox, ARRIVE, err);
	const struct pr_effect event = pr_arrival_effect(arrival);
	enum pr_arriving how = arrival->how;
	bool waits = false;
	int status = POSTROOM_OK;

	if (!stmt)
		return err->status;
	if (order != PR_ORDER_NONE && arrival->key && how == PR_ARRIVE_DONE)
		status = look_before(store, handler, order, arrival, &waits, err);
	if (waits)
		how = PR_ARRIVE_PENDING;
	if (status < 0)
		return status;
	bind_arrival(stmt, handler, arrival, how);
	status = pr_sqlite_run(store, stmt, "taking events in", err);
	/* What the table does not take is the event's own fault, and no reason to stop for it. */
	if (status < 0 && (err->native & 0xff) == SQLITE_CONSTRAINT)
		return err->status = POSTROOM_TX_ABORTED;
	if (status < 0)
		return status;
	arrival->known = sqlite3_changes(store->db) == 0;
	arrival->waits = waits && !arrival->known;
	*ret_effect = how == PR_ARRIVE_DONE && !arrival->known && statement;
	return *ret_effect ? pr_sqlite_effect(store, statement, &event, err) : POSTROOM_OK;
}

int pr_sqlite_take_in(struct postroom_store *base, const char *handler, const char *statement,
		      enum pr_in_order order, struct pr_arrival *arrivals, size_t count,
		      size_t *ret_at, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	bool blamed = false;
	size_t at = 0;
	int status = pr_sqlite_begin(base, err);

	if (status < 0)
		return status;
	for (size_t i = 0; status >= 0 && i < count; i++) {
		bool effect;

		pr_pulse_beat(store->pulse, 0);
		if (pr_stop_is_over(store->stop)) {
			status = pr_err_set(err, POSTROOM_STOPPED, "taking events in: told to stop");
			break;
		}
		status = take_one(store, handler, statement, order, &arrivals[i], &effect, err);
		/* What only the commit finds wrong is looked for from the first one on. */
		if (status < 0 || (effect && !blamed)) {
			at = i;
			blamed = true;
		}
	}
	status = pr_sqlite_effect_end(store, status, err);
	if (status >= 0)
		return status;
	for (size_t i = 0; i < count; i++)
		arrivals[i].known = arrivals[i].waits = false;
	if (status == POSTROOM_TX_ABORTED)
		*ret_at = at;
	return status;
}

int pr_sqlite_progress(struct postroom_store *base, const struct pr_progress *progress,
		       struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_PROGRESS, &pr_table_inbox, PROGRESS,
					       err);
	int64_t now_us = pr_now_us();
	char at[PR_RFC3339_SIZE];
	int status;

	if (!stmt)
		return err->status;
	pr_rfc3339(now_us, at);
	pr_sqlite_bind(stmt, 1, progress->id);
	pr_sqlite_bind(stmt, 2, progress->handler);
	sqlite3_bind_int64(stmt, 3, progress->fence);
	pr_sqlite_bind(stmt, 4, progress->step);
	pr_sqlite_bind(stmt, 5, progress->result);
	pr_sqlite_bind(stmt, 6, at);
	pr_sqlite_bind(stmt, 7, progress->checkpoint);
	sqlite3_bind_int64(stmt, 8, now_us);
	status = pr_sqlite_begin_finishing(base, err);
	if (status < 0)
		return status;
	status = pr_sqlite_run(store, stmt, "writing down a job's progress", err);
	if (status >= 0 && sqlite3_changes(store->db) == 0)
		status = pr_store_lease_lost(1, 1, err);
	return pr_sqlite_end(base, status, err);
}
