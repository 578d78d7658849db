/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floors: how far each lane is empty for good.
 *
 * While some old transaction holds vacuum back, the dead entries of finished
 * messages pile up at the head of the lanes' index, and a look into a lane would
 * pass them all. Looks begin at the lane's floor instead.
 *
 * 1. Below a floor there is no message in its turn, nor will there be one. Who
 *    has been given a seq has had a lock on the table since before, and keeps it
 *    until the end of its transaction: so once all who had one at some moment are
 *    done, whatever had a seq by then is in plain sight, or finished.
 * 2. That moment's seq is read before the locks, and the messages after the locks
 *    have been seen to be gone: in statements of their own, so that each sees what
 *    the one before it has waited for.
 * 3. No message comes back into its turn with the seq it had: what is released was
 *    never taken out of it or stays apart, what an operator brings back gets a
 *    new one.
 * 4. People may give numbers by hand: so the sweep looks below the floors too, now
 *    and then, and lowers them.
 */
#include "base/time.h"
#include "store/pgsql.h"

#include <stdlib.h>

/* Fewer dead entries than this are passed in no time. */
#define RAISE_AFTER 1000
#define RAISE_EVERY_US 250000
#define LOWER_EVERY_US 60000000LL

#define HOLDERS                                                                             \
	"SELECT d.seq, h.holders, h.lasting FROM (SELECT coalesce(pg_sequence_last_value("   \
	"'{schema}{table}_seq_seq'), 0) AS seq OFFSET 0) AS d CROSS JOIN LATERAL "           \
	"(SELECT coalesce(array_agg(virtualtransaction), '{}')::text AS holders, "           \
	"coalesce(bool_or(virtualtransaction = ANY ($1::text[])), false) AS lasting "        \
	"FROM pg_locks WHERE locktype = 'relation' AND relation = '{schema}{table}'::regclass " \
	"AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "   \
	"AND mode = 'RowExclusiveLock' AND d.seq IS NOT NULL) AS h"

#define IN_TURN "o.lane = l.lane AND o.status = 'pending' AND o.apart = 0 "

/* All is looked up before the first lane is locked, and who has one locked is not waited for. */
#define SET_FLOORS(which, condition)                                                        \
	"WITH found AS MATERIALIZED (SELECT lane, epoch, " which " AS floor "                \
	"FROM " PG_ALL_LANES " AS l WHERE lease = 'lane'), "                                 \
	"free AS MATERIALIZED (SELECT l.lane, l.epoch, found.floor "                         \
	"FROM {schema}postroom_lanes AS l JOIN found ON found.lane = l.lane "                \
	"AND found.epoch = l.epoch AND " condition                                           \
	" ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED) "                                     \
	"UPDATE {schema}postroom_lanes AS l SET floor = free.floor FROM free "               \
	"WHERE l.lane = free.lane AND l.epoch = free.epoch"

#define RAISE                                                                               \
	SET_FLOORS("coalesce((SELECT seq FROM {schema}{table} AS o WHERE " IN_TURN          \
		   "AND o.seq BETWEEN l.floor AND $1::bigint ORDER BY o.seq LIMIT 1), "      \
		   "$1::bigint + 1)", "found.floor > l.floor")

#define LOWER                                                                               \
	SET_FLOORS("(SELECT seq FROM {schema}{table} AS o WHERE " IN_TURN                   \
		   "AND o.seq < l.floor ORDER BY o.seq LIMIT 1)", "found.floor < l.floor")

static int set_floors(struct pgsql_store *store, enum pgsql_slot slot,
		      const struct pr_table *table, const char *sql, struct pgsql_params *params,
		      struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = pr_pgsql_run(store, slot, table, sql, params, false,
							  "looking how far lanes are empty", err);

	return result ? POSTROOM_OK : err->status;
}

int pr_pgsql_raise_floors(struct pgsql_store *store, const struct pr_table *table,
			  struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	int status = POSTROOM_OK;

	if (store->kind != PR_LEASE_LANE || store->since_raised < RAISE_AFTER ||
	    pr_mono_us() < store->raise_due_us)
		return POSTROOM_OK;
	pr_pgsql_text(&params, store->floor_seq ? store->holders.data : "{}");
	result = pr_pgsql_run(store, PG_HOLDERS, table, HOLDERS, &params, false,
			      "looking who writes messages", err);
	if (!result)
		return err->status;
	store->raise_due_us = pr_mono_us() + RAISE_EVERY_US;
	if (store->floor_seq && *PQgetvalue(result, 0, 2) == 't')
		return POSTROOM_OK;
	if (store->floor_seq) {
		store->since_raised = 0;
		params.count = 0;
		pr_pgsql_number(&params, store->floor_seq);
		status = set_floors(store, PG_RAISE, table, RAISE, &params, err);
	}
	store->floor_seq = atoll(PQgetvalue(result, 0, 0));
	pr_buf_reset(&store->holders);
	pr_buf_puts(&store->holders, PQgetvalue(result, 0, 1));
	return store->holders.failed ? pr_err_nomem(err) : status;
}

int pr_pgsql_lower_floors(struct pgsql_store *store, const struct pr_table *table,
			  struct pr_err *err)
{
	struct pgsql_params params = { 0 };

	if (store->kind != PR_LEASE_LANE || pr_mono_us() < store->lower_due_us)
		return POSTROOM_OK;
	store->lower_due_us = pr_mono_us() + LOWER_EVERY_US;
	return set_floors(store, PG_LOWER, table, LOWER, &params, err);
}
