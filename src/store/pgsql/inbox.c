/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inbox: accepting events and commands on the application's connection
 * (N2, N3).
 *
 * 1. Accepting begins, commits and rolls back nothing, opens no savepoint, and
 *    keeps nothing in the session. It writes first and looks afterwards: the
 *    primary key makes parallel duplicates wait for each other's outcome.
 * 2. A conflict does not prove that a committed row exists: if an insert conflicts and then finds
 *    no row, it is repeated, a bounded number of times.
 */
#include "store/pgsql/box.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 50

#define ON_CONFLICT "ON CONFLICT (id, handler_name) DO NOTHING RETURNING id"
/* The function keeps its plan for the session, which a statement of ours may not. */
#define ONCE "SELECT true WHERE {schema}postroom_inbox_once($1, $2)"
#define SUBMIT                                                                                     \
	"INSERT INTO {schema}postroom_inbox (id, handler_name, payload, next_attempt_at, "         \
	"created_at, updated_at, tenant_id, correlation_id) "                                      \
	"SELECT $1, $2, $3::jsonb, now.at, now.at, now.at, $4::uuid, $5 "                          \
	"FROM (SELECT clock_timestamp()) AS now(at) " ON_CONFLICT
#define STATE "SELECT status FROM {schema}postroom_inbox WHERE id = $1 AND handler_name = $2"

/* POSTROOM_OK, or POSTROOM_DUPLICATE when the place was taken. */
static int write_entry(struct pgsql_box *box, const struct pr_entry *entry, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, entry->id);
	pr_pgsql_text(&params, entry->handler);
	if (!entry->completed) {
		pr_pgsql_text(&params, entry->payload);
		pr_pgsql_text(&params, entry->tenant_id);
		pr_pgsql_text(&params, entry->correlation_id);
	}
	result = pr_pgsql_box_run(box, entry->completed ? ONCE : SUBMIT, &params, err);
	if (!result)
		return err->status;
	return PQntuples(result) == 1 ? POSTROOM_OK : POSTROOM_DUPLICATE;
}

/* POSTROOM_DUPLICATE with its state, or POSTROOM_NOT_FOUND. */
static int read_entry_state(struct pgsql_box *box, const struct pr_entry *entry,
		      postroom_inbox_state *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, entry->id);
	pr_pgsql_text(&params, entry->handler);
	result = pr_pgsql_box_run(box, STATE, &params, err);
	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return POSTROOM_NOT_FOUND;
	*ret = pr_inbox_state(PQgetvalue(result, 0, 0));
	return POSTROOM_DUPLICATE;
}

static int submit(struct pgsql_box *box, const struct pr_entry *entry, postroom_inbox_state *ret,
		  struct pr_err *err)
{
	for (int i = 0; i < TRIES; i++) {
		int status = write_entry(box, entry, err);

		*ret = POSTROOM_INBOX_PENDING;
		if (status == POSTROOM_DUPLICATE)
			status = read_entry_state(box, entry, ret, err);
		if (status != POSTROOM_NOT_FOUND)
			return status;
	}
	return pr_err_set(err, POSTROOM_BUSY, "%s: \"%.60s\" comes and goes; try again", box->doing,
			  entry->id);
}

int pr_pgsql_box_accept(postroom_box *base, const struct pr_entry *entry,
			postroom_inbox_state *ret_state, struct pr_err *err)
{
	struct pgsql_box *box = (struct pgsql_box *)base;
	int status = pr_pgsql_box_begin(box, entry->completed ? "inbox once" : "inbox submit", err);

	if (status < 0)
		return status;
	return entry->completed ? write_entry(box, entry, err) : submit(box, entry, ret_state, err);
}
