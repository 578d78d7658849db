/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inbox: accepting events and commands on the application's connection
 * (N2, N3).
 *
 * 1. Accepting begins, commits, rolls back and keeps open nothing. It writes
 *    first and checks afterwards: the write lock makes parallel duplicates wait.
 */
#include "base/time.h"
#include "store/sqlite/box.h"

#include <string.h>

#define ON_CONFLICT "ON CONFLICT (id, handler_name) DO NOTHING"
#define ONCE                                                                                       \
	"INSERT INTO postroom_inbox (id, handler_name, status, next_attempt_at, created_at, "      \
	"updated_at, processed_at) VALUES (?1, ?2, 'completed', ?3, ?3, ?3, ?3) " ON_CONFLICT
#define SUBMIT                                                                                     \
	"INSERT INTO postroom_inbox (id, handler_name, payload, next_attempt_at, created_at, "     \
	"updated_at, tenant_id, correlation_id) VALUES (?1, ?2, ?4, ?3, ?3, ?3, ?5, "              \
	"?6) " ON_CONFLICT
#define STATE "SELECT status FROM postroom_inbox WHERE id = ?1 AND handler_name = ?2"

static int read_entry_state(struct sqlite_box *box, const struct pr_entry *entry, const char *doing,
			    postroom_inbox_state *ret, struct pr_err *err)
{
	int status = pr_sqlite_box_prepare(box, &box->state, STATE, doing, err);

	if (status < 0)
		return status;
	pr_sqlite_bind(box->state, 1, entry->id);
	pr_sqlite_bind(box->state, 2, entry->handler);
	if (sqlite3_step(box->state) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(box->state, 0);

		if (name)
			*ret = pr_inbox_state(name);
		status = name ? POSTROOM_DUPLICATE : pr_err_nomem(err);
	} else {
		status = pr_sqlite_fail(box->db, NULL, doing, err);
	}
	sqlite3_reset(box->state);
	return status;
}

static int write_entry(struct sqlite_box *box, const struct pr_entry *entry, const char *doing,
		       postroom_inbox_state *ret_state, struct pr_err *err)
{
	sqlite3_stmt **stmt = entry->completed ? &box->once : &box->submit;
	int status = pr_sqlite_box_prepare(box, stmt, entry->completed ? ONCE : SUBMIT, doing, err);

	if (status < 0)
		return status;
	pr_sqlite_bind(*stmt, 1, entry->id);
	pr_sqlite_bind(*stmt, 2, entry->handler);
	sqlite3_bind_int64(*stmt, 3, pr_now_us());
	if (!entry->completed) {
		pr_sqlite_bind(*stmt, 4, entry->payload);
		pr_sqlite_bind(*stmt, 5, entry->tenant_id);
		pr_sqlite_bind(*stmt, 6, entry->correlation_id);
	}
	if (sqlite3_step(*stmt) != SQLITE_DONE)
		status = pr_sqlite_fail(box->db, NULL, doing, err);
	sqlite3_reset(*stmt);
	if (status < 0)
		return status;
	if (sqlite3_changes(box->db) == 0)
		return entry->completed ? POSTROOM_DUPLICATE
					: read_entry_state(box, entry, doing, ret_state, err);
	if (!entry->completed)
		*ret_state = POSTROOM_INBOX_PENDING;
	return POSTROOM_OK;
}

int pr_sqlite_box_accept(postroom_box *base, const struct pr_entry *entry,
			 postroom_inbox_state *ret_state, struct pr_err *err)
{
	struct sqlite_box *box = (struct sqlite_box *)base;
	const char *doing = entry->completed ? "inbox once" : "inbox submit";
	bool was_open = !sqlite3_get_autocommit(box->db);
	int status = write_entry(box, entry, doing, ret_state, err);

	return pr_sqlite_box_outcome(box, was_open, status, err);
}
