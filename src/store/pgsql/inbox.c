/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inbox: accepting events and commands on the application's connection
 * (N2, N3).
 *
 * 1. Accepting begins, commits and rolls back nothing, opens no savepoint, and
 *    keeps nothing in the session. It writes first and reads afterwards: the
 *    primary key makes parallel duplicates wait for each other's outcome.
 * 2. A conflict does not prove that a committed row exists: if an insert conflicts and then finds
 *    no row, it is repeated, a bounded number of times.
 */
#include "store/pgsql/box.h"
#include "store/pgsql/statements.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 50

/* POSTROOM_OK, or POSTROOM_DUPLICATE if there is a row with this id. */
static int write_entry(struct pgsql_box *box, const struct pr_entry *entry, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	if (entry->completed)
		pr_sql_bind_inbox_once(&params, entry->id, entry->handler);
	else
		pr_sql_bind_inbox_submit(&params, entry->id, entry->handler, entry->payload,
					 entry->tenant_id, entry->correlation_id);
	result = pr_pgsql_box_run(box, entry->completed ? &pr_sql_inbox_once : &pr_sql_inbox_submit,
				  &params, err);
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

	pr_sql_bind_inbox_state(&params, entry->id, entry->handler);
	result = pr_pgsql_box_run(box, &pr_sql_inbox_state, &params, err);
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
	return pr_err_set(err, POSTROOM_BUSY,
			  "%s: transactions keep adding and removing \"%.60s\"; retry",
			  box->doing, entry->id);
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
