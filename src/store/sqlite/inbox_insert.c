/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inserts events into the inbox, and records the progress of jobs.
 *
 * 1. All events of a call are one IMMEDIATE transaction, including their effects.
 * 2. The row is written before the effect: a duplicate has no effect.
 * 3. With order, no event overtakes an unfinished event of its key: all of those are in the index
 *    of keys from the moment they are written (order.c), except delayed events, which are not part
 *    of the order yet. The same applies to dead letters if they block.
 * 4. Progress is written under the fencing token of the job, in one statement.
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#define BEFORE                                                                                     \
	"SELECT 1 FROM {table} AS e INDEXED BY {table}_key WHERE e.key = ?1 AND e.topic = ?2 "     \
	"AND e.namespace = ?3 AND " PR_SQLITE_IN_ORDER "AND e.status IN ('pending', '{active}') "  \
	"UNION ALL SELECT 1 FROM {table} AS d INDEXED BY {table}_blocking WHERE ?4 AND d.key = ?1 " \
	"AND d.topic = ?2 AND d.namespace = ?3 AND d.key IS NOT NULL AND d.state = 'dead' "        \
	"AND d.status = 'dead' LIMIT 1"

#define INSERT_EVENT                                                                               \
	"INSERT INTO {table} (id, handler_name, topic, key, content_type, headers, payload, "      \
	"body, status, attempts, claims, state, next_attempt_at, last_attempt_at, last_error, "    \
	"created_at, updated_at, processed_at, tenant_id, correlation_id) "                        \
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "                                        \
	"?10, ?11, ?12, CASE WHEN ?10 > 0 THEN ?14 END, ?13, ?14, ?14, "                           \
	"CASE ?9 WHEN '{done}' THEN ?14 END, ?15, ?16) ON CONFLICT (id, handler_name) DO NOTHING"

#define CONTENT "INSERT INTO postroom_content (size, payload, body) VALUES (?1, ?2, ?3)"
#define REFER "UPDATE {table} SET content = last_insert_rowid() WHERE seq = ?1"

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
static int find_blocker(struct sqlite_store *store, const struct pr_inbox_insert *insert,
			const struct pr_incoming_event *incoming, bool *ret, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_BEFORE, &pr_table_inbox, BEFORE, err);
	int status = POSTROOM_OK;
	int rc;

	if (!stmt)
		return err->status;
	pr_sqlite_bind(stmt, 1, incoming->key);
	pr_sqlite_bind(stmt, 2, incoming->topic);
	pr_sqlite_bind(stmt, 3, insert->handler);
	sqlite3_bind_int(stmt, 4, insert->order == PR_ORDER_DEAD);
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "taking events in", err);
	*ret = rc == SQLITE_ROW;
	sqlite3_reset(stmt);
	return status;
}

/* A delayed event joins its key when it is due; one with an attempt is in its order already. */
static const char *state_of(const struct pr_incoming_event *incoming, enum pr_insert_as how)
{
	if (how == PR_INSERT_DEAD)
		return "dead";
	if (how == PR_INSERT_COMPLETED || incoming->delay_ms <= 0)
		return "ready";
	return incoming->attempts > 0 ? "scheduled" : "new";
}

static bool is_large(const struct pr_incoming_event *incoming)
{
	return incoming->payload.len + incoming->body.len > PR_LARGE_BYTES;
}

static void bind_content(sqlite3_stmt *stmt, int index, const struct pr_incoming_event *incoming)
{
	sqlite3_bind_text64(stmt, index, incoming->payload.data, incoming->payload.len,
			    SQLITE_STATIC, SQLITE_UTF8);
	sqlite3_bind_blob64(stmt, index + 1, incoming->body.data, incoming->body.len,
			    SQLITE_STATIC);
}

/* The row has just been inserted without its content. */
static int insert_content(struct sqlite_store *store, const struct pr_incoming_event *incoming,
			  struct pr_err *err)
{
	int64_t seq = sqlite3_last_insert_rowid(store->db);
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_CONTENT, NULL, CONTENT, err);

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 1, (int64_t)(incoming->payload.len + incoming->body.len));
	bind_content(stmt, 2, incoming);
	if (pr_sqlite_run(store, stmt, "taking events in", err) < 0)
		return err->status;
	stmt = pr_sqlite_prepare(store, SLOT_REFER, &pr_table_inbox, REFER, err);
	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 1, seq);
	return pr_sqlite_run(store, stmt, "taking events in", err);
}

static void bind_incoming_event(sqlite3_stmt *stmt, const char *handler,
				const struct pr_incoming_event *incoming, enum pr_insert_as how)
{
	static const char *const statuses[] = {
		[PR_INSERT_COMPLETED] = "completed",
		[PR_INSERT_PENDING] = "pending",
		[PR_INSERT_DEAD] = "dead",
	};
	int64_t now_us = pr_now_us();

	pr_sqlite_bind(stmt, 1, incoming->id);
	pr_sqlite_bind(stmt, 2, handler);
	pr_sqlite_bind(stmt, 3, incoming->topic);
	pr_sqlite_bind(stmt, 4, incoming->key);
	pr_sqlite_bind(stmt, 5, incoming->content_type);
	pr_sqlite_bind(stmt, 6, incoming->headers);
	if (is_large(incoming)) {
		sqlite3_bind_null(stmt, 7);
		sqlite3_bind_null(stmt, 8);
	} else {
		bind_content(stmt, 7, incoming);
	}
	pr_sqlite_bind(stmt, 9, statuses[how]);
	sqlite3_bind_int(stmt, 10, incoming->attempts);
	pr_sqlite_bind(stmt, 11, state_of(incoming, how));
	sqlite3_bind_int64(stmt, 12, now_us + incoming->delay_ms * 1000);
	pr_sqlite_bind(stmt, 13, incoming->error);
	sqlite3_bind_int64(stmt, 14, now_us);
	pr_sqlite_bind(stmt, 15, incoming->tenant_id);
	pr_sqlite_bind(stmt, 16, incoming->correlation_id);
}

static int insert_event(struct sqlite_store *store, const struct pr_inbox_insert *insert,
			struct pr_incoming_event *incoming, bool *ret_effect, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_INBOX_INSERT, &pr_table_inbox,
					       INSERT_EVENT, err);
	const struct pr_statement_parameters event = pr_incoming_event_parameters(incoming);
	enum pr_insert_as how = incoming->how;
	bool waits = false;
	int status = POSTROOM_OK;

	if (!stmt)
		return err->status;
	if (insert->order != PR_ORDER_NONE && incoming->key && how == PR_INSERT_COMPLETED)
		status = find_blocker(store, insert, incoming, &waits, err);
	if (waits)
		how = PR_INSERT_PENDING;
	if (status < 0)
		return status;
	bind_incoming_event(stmt, insert->handler, incoming, how);
	status = pr_sqlite_run(store, stmt, "taking events in", err);
	/* A constraint fails because of this event: report the event and continue without it. */
	if (status < 0 && (err->native & 0xff) == SQLITE_CONSTRAINT)
		return err->status = POSTROOM_TX_ABORTED;
	if (status < 0)
		return status;
	incoming->duplicate = sqlite3_changes(store->db) == 0;
	if (!incoming->duplicate && is_large(incoming) && insert_content(store, incoming, err) < 0)
		return err->status;
	incoming->waits = waits && !incoming->duplicate;
	*ret_effect = how == PR_INSERT_COMPLETED && !incoming->duplicate && insert->statement;
	return *ret_effect ? pr_sqlite_run_statement(store, insert->statement, &event, err)
			   : POSTROOM_OK;
}

int pr_sqlite_inbox_insert(struct postroom_store *base, const struct pr_inbox_insert *insert,
			   size_t *ret_at, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	bool blamed = false;
	size_t at = 0;
	int status = pr_sqlite_begin(base, err);

	if (status < 0)
		return status;
	for (size_t i = 0; status >= 0 && i < insert->count; i++) {
		bool handler_stmt;

		pr_watchdog_feed(store->watchdog, 0);
		if (pr_stop_is_over(store->stop)) {
			status = pr_err_set(err, POSTROOM_STOPPED,
					    "inserting events: stop requested");
			break;
		}
		status = insert_event(store, insert, &insert->events[i], &handler_stmt, err);
		/* If only the commit fails, the events are retried one by one from the first. */
		if (status < 0 || (handler_stmt && !blamed)) {
			at = i;
			blamed = true;
		}
	}
	status = pr_sqlite_end_statement(store, status, err);
	if (status >= 0)
		return status;
	for (size_t i = 0; i < insert->count; i++)
		insert->events[i].duplicate = insert->events[i].waits = false;
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
	sqlite3_bind_int64(stmt, 3, progress->fencing_token);
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
