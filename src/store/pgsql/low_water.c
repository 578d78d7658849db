/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Low-water marks: no claimable row of a lane is below its mark.
 *
 * While some old transaction holds vacuum back, the dead entries of finished
 * messages pile up at the head of the lanes' index, and a scan of a lane would
 * pass them all. Scans begin at the lane's low-water mark instead.
 *
 * 1. Below a mark there is no ready message, nor will there be one. A transaction
 *    already holds a lock on the table when it draws a seq, and keeps it until its end.
 *    So once all transactions that held one at some moment have ended, every message
 *    with a seq up to that moment is visible, or finished.
 * 2. The seq of that moment is read before the locks, and the messages after the locks
 *    are gone: in separate statements, so that each sees the commits that the one
 *    before it has waited for.
 * 3. No message becomes ready again with its old seq: a released message stayed ready
 *    or scheduled, and a message that an operator retries gets a new seq.
 * 4. Users may insert a seq by hand: so the sweep also scans below the marks, of some
 *    lanes at a time, and lowers them.
 * 5. A store also has marks in memory, for the scope of its claims: a million messages
 *    of another sink are passed once, before the first scan and page by page, and not by
 *    every scan. Unkeyed messages are in the order of their time, which a transaction may
 *    have read before it had the lock, or a user may have set by hand: so their mark is one
 *    second lower. Every ten seconds all marks are found again, or later if that takes
 *    long. An idle store scans below them with its one statement.
 */
#include "base/time.h"
#include "store/pgsql/pgsql.h"
#include "store/pgsql/array.h"

#include <stdlib.h>
#include <string.h>

/* Now and then, or as soon as there is reason to think that much is passed. */
#define RAISE_AFTER 50000
#define SLOW_SCAN_US 20000
#define RAISE_EVERY_US 250000
/* How long the first look waits for those who write. */
#define FIRST_TRIES 10
#define FIRST_TRY_MS 5
/* So many lanes at a time: there may be much to pass. All of them by who sweeps seldom. */
#define LOWER_LANES 8
#define LOWER_EVERY_US 7000000LL
#define LOWER_SELDOM_US 20000000LL
#define LOWER_SHARE 100
/* See 5. */
#define OWN_FOR_US 10000000LL
#define OWN_SHARE 50
#define LATE_US 1000000

#define HOLDERS                                                                                    \
	"SELECT d.seq, h.holders, h.lasting, d.at FROM (SELECT coalesce(pg_sequence_last_value("   \
	"'{schema}{table}_seq_seq'), 0) AS seq, (extract(epoch FROM clock_timestamp()) "           \
	"* 1000000)::bigint AS at OFFSET 0) AS d CROSS JOIN LATERAL "                              \
	"(SELECT coalesce(array_agg(virtualtransaction), '{}')::text AS holders, "                 \
	"coalesce(bool_or(virtualtransaction = ANY ($1::text[])), false) AS lasting "              \
	"FROM pg_locks WHERE locktype = 'relation' AND relation = '{schema}{table}'::regclass "    \
	"AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "         \
	"AND mode = 'RowExclusiveLock' AND d.seq IS NOT NULL) AS h"

#define IN_TURN PG_LANE_OF("o.") " = l.lane AND o.status = 'pending' AND o.state = 'ready' "

/* All is looked up before the first lane is locked, and who has one locked is not waited for. */
#define SET_FLOORS(lanes, which, condition)                                                        \
	"WITH found AS MATERIALIZED (SELECT lane, epoch, " which " AS floor "                      \
	"FROM " lanes " WHERE lease = 'lane'), "                                                   \
	"free AS MATERIALIZED (SELECT l.lane, l.epoch, found.floor "                               \
	"FROM {schema}postroom_lanes AS l JOIN found ON found.lane = l.lane "                      \
	"AND found.epoch = l.epoch AND " condition                                                 \
	" ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED) "                                           \
	"UPDATE {schema}postroom_lanes AS l SET low_water_seq = free.floor FROM free "                     \
	"WHERE l.lane = free.lane AND l.epoch = free.epoch"

#define RAISE                                                                                      \
	SET_FLOORS(PG_ALL_LANES " AS l",                                                           \
		   "coalesce((SELECT seq FROM {schema}{table} AS o WHERE " IN_TURN                 \
		   "AND o.seq BETWEEN l.low_water_seq AND $1::bigint ORDER BY o.seq LIMIT 1), "            \
		   "$1::bigint + 1)", "found.floor > l.low_water_seq")

#define LOWER                                                                                      \
	SET_FLOORS("unnest($1::smallint[]) AS n CROSS JOIN LATERAL " PG_LANE("n") " AS l",         \
		   "(SELECT seq FROM {schema}{table} AS o WHERE " IN_TURN                          \
		   "AND o.seq < l.low_water_seq ORDER BY o.seq LIMIT 1)", "found.floor < l.low_water_seq")

static int set_low_water(struct pgsql_store *store, enum pgsql_slot slot,
		      const struct pr_table *table, const char *sql, struct pgsql_params *params,
		      struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = pr_pgsql_run(store, slot, table, sql, params, false,
							  "looking how far lanes are empty", err);

	return result ? POSTROOM_OK : err->status;
}

/*
 * $4 and $5: where they are now; $6 and $7: where they may rise to. Near: of a lane whose first
 * messages are all for others, nothing is known yet.
 */
#define OWN_NEAR(fresh, settle_and_claim)                                                          \
	"SELECT ARRAY(SELECT (SELECT seq FROM (SELECT seq, (" PG_SCOPE ") AS ours "                \
	"FROM {schema}{table} AS o WHERE " PG_LANE_OF("o.") " = l.lane AND " fresh                 \
	" AND o.seq >= ($5::bigint[])[l.lane] AND o.seq <= $6::bigint "                            \
	"ORDER BY o.seq LIMIT 100) AS o WHERE ours LIMIT 1) "                                      \
	"FROM generate_series(1, 64) AS l(lane) ORDER BY l.lane), " settle_and_claim

/* Of those lanes: $4, what is known of the others; $5 and $6 as above. */
#define OWN_FAR(fresh)                                                                             \
	"SELECT ARRAY(SELECT coalesce(($4::bigint[])[l.lane], f.seq, $6::bigint + 1) "             \
	"FROM generate_series(1, 64) AS l(lane) LEFT JOIN (SELECT " PG_LANE_OF("o.") " AS lane, min(o.seq) AS seq " \
	"FROM {schema}{table} AS o WHERE " PG_LANE_OF("o.") " = ANY (ARRAY(SELECT n::smallint "    \
	"FROM generate_series(1, 64) AS n WHERE ($4::bigint[])[n] IS NULL)) AND " fresh            \
	" AND o.seq >= (SELECT min(floor) FROM unnest($5::bigint[]) AS floor) "                    \
	"AND o.seq >= ($5::bigint[])[" PG_LANE_OF("o.") "::int] AND o.seq <= $6::bigint AND " PG_SCOPE \
	"GROUP BY 1) AS f ON f.lane = l.lane ORDER BY l.lane)"

#define IN_LANE "o.status = 'pending' AND o.state = 'ready'"
#define WITH_KEY IN_LANE " AND o.key IS NOT NULL"

static const struct scope_low_water {
	enum pgsql_slot near_slot, far_slot;
	const char *near_sql, *far_sql;
} own_by[] = {
	[PR_LEASE_ROW] = {
		PG_OWN_NEAR_ROW, PG_OWN_FAR_ROW,
		OWN_NEAR(WITH_KEY,
			 "coalesce((SELECT (extract(epoch FROM next_attempt_at) * 1000000)::bigint "
			 "FROM {schema}{table} WHERE status = 'pending' AND state = 'ready' AND key IS NULL "
			 "AND next_attempt_at >= " PG_SCOPE_LOW_WATER " AND next_attempt_at <= "
			 "timestamptz 'epoch' + $7::bigint * interval '1 microsecond' AND " PG_SCOPE
			 "ORDER BY next_attempt_at, seq LIMIT 1), $7::bigint)"),
		OWN_FAR(WITH_KEY),
	},
	[PR_LEASE_LANE] = {
		PG_OWN_NEAR_LANE, PG_OWN_FAR_LANE,
		OWN_NEAR(IN_LANE, "greatest($4::bigint, $7::bigint)"),
		OWN_FAR(IN_LANE),
	},
};

static bool has_scope_low_water(const struct pgsql_store *store, const struct pr_scope *scope)
{
	return store->scope_low_water.len > 0 && store->scope_low_water_kind == store->kind &&
	       pr_scope_equals(scope, &store->scope);
}

bool pr_pgsql_low_water_is_stale(const struct pgsql_store *store, const struct pr_scope *scope)
{
	return has_scope_low_water(store, scope) && pr_mono_us() >= store->scope_low_water_until_us;
}

void pr_pgsql_store_low_water(struct pgsql_store *store, int64_t begun_us)
{
	int64_t now_us = pr_mono_us(), cost_us = (now_us - begun_us) * OWN_SHARE;

	store->scope_low_water_until_us = now_us + (cost_us > OWN_FOR_US ? cost_us : OWN_FOR_US);
}

const char *pr_pgsql_scope_low_water_lanes(struct pgsql_store *store, const struct pr_scope *scope)
{
	return has_scope_low_water(store, scope) ? store->scope_low_water.data : NULL;
}

int64_t pr_pgsql_scope_low_water(struct pgsql_store *store, const struct pr_scope *scope)
{
	return has_scope_low_water(store, scope) ? store->scope_low_water_us : 0;
}

static bool restart_proof(struct pgsql_store *store, const struct pr_scope *scope)
{
	pr_buf_reset(&store->scope_low_water);
	for (int lane = 1; lane <= PG_LANES; lane++)
		pr_pgsql_array_add_number(&store->scope_low_water, 0);
	pr_pgsql_array_end(&store->scope_low_water);
	pr_scope_store(scope, &store->scope);
	store->scope_low_water_us = 0;
	store->scope_low_water_kind = store->kind;
	return !store->scope_low_water.failed && !store->scope.failed;
}

/* known: of the lanes that were found near; NULL: looks near. */
static PGresult *find_scope_low_water(struct pgsql_store *store, const struct pr_table *table,
		      const struct pr_scope *scope, const char *known, struct pr_err *err)
{
	static const char doing[] = "looking how far the outbox is empty";
	const struct scope_low_water *scope_low_water = &own_by[store->kind];
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };

	if (!pr_pgsql_add_scope(&params, scope, &pattern)) {
		pr_err_nomem(err);
		return NULL;
	}
	if (known)
		pr_pgsql_text(&params, known);
	else
		pr_pgsql_number(&params, store->scope_low_water_us);
	pr_pgsql_text(&params, store->scope_low_water.data);
	pr_pgsql_number(&params, store->proven_seq);
	if (known)
		return pr_pgsql_run_by_page(store, scope_low_water->far_slot, table, scope_low_water->far_sql, &params, doing,
					    err);
	pr_pgsql_number(&params, store->proven_us - LATE_US);
	return pr_pgsql_run(store, scope_low_water->near_slot, table, scope_low_water->near_sql, &params, false, doing, err);
}

static int raise_scope_low_water(struct pgsql_store *store, const struct pr_table *table,
		     const struct pr_scope *scope, struct pr_err *err)
{
	int64_t begun_us = pr_mono_us();
	bool anew = !has_scope_low_water(store, scope) || pr_pgsql_low_water_is_stale(store, scope);
	PR_CLEANUP_RESULT PGresult *near = NULL, *far = NULL;
	const char *found;

	if (anew && !restart_proof(store, scope))
		return pr_err_nomem(err);
	near = find_scope_low_water(store, table, scope, NULL, err);
	if (!near)
		return err->status;
	found = PQgetvalue(near, 0, 0);
	if (strstr(found, "NULL")) {
		far = find_scope_low_water(store, table, scope, found, err);
		if (!far)
			return err->status;
		found = PQgetvalue(far, 0, 0);
	}
	pr_buf_reset(&store->scope_low_water);
	pr_buf_puts(&store->scope_low_water, found);
	store->scope_low_water_us = atoll(PQgetvalue(near, 0, 1));
	if (anew)
		pr_pgsql_store_low_water(store, begun_us);
	return store->scope_low_water.failed ? pr_err_nomem(err) : POSTROOM_OK;
}

/* Then the lanes' floors are as good. */
static bool claims_all(const struct pgsql_store *store, const struct pr_scope *scope)
{
	return store->kind == PR_LEASE_LANE && store->rules.count == 0 && pr_scope_is_all(scope);
}

/* All who wrote messages at that moment are done. */
static int raise_proven(struct pgsql_store *store, const struct pr_table *table,
		    const struct pr_scope *scope, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	int status = POSTROOM_OK;

	store->since_raised = 0;
	store->proven_seq = store->low_water_seq;
	store->proven_us = store->low_water_us;
	pr_pgsql_number(&params, store->proven_seq);
	if (store->kind == PR_LEASE_LANE)
		status = set_low_water(store, PG_RAISE, table, RAISE, &params, err);
	if (status >= 0 && !claims_all(store, scope))
		status = raise_scope_low_water(store, table, scope, err);
	return status;
}

/* Asks once; *ret_lasting: some of those who wrote when it was asked before still do. */
static int raise_if_proven(struct pgsql_store *store, const struct pr_table *table,
			   const struct pr_scope *scope, bool *ret_lasting, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	bool asked = store->low_water_seq > 0, no_holder;
	int status = POSTROOM_OK;

	pr_pgsql_text(&params, asked ? store->holders.data : "{}");
	result = pr_pgsql_run(store, PG_HOLDERS, table, HOLDERS, &params, false,
			      "looking who writes messages", err);
	if (!result)
		return err->status;
	store->raise_due_us = pr_mono_us() + RAISE_EVERY_US;
	no_holder = strcmp(PQgetvalue(result, 0, 1), "{}") == 0;
	*ret_lasting = !no_holder && (!asked || *PQgetvalue(result, 0, 2) == 't');
	if (*ret_lasting && asked)
		return POSTROOM_OK;
	if (asked && !no_holder)
		status = raise_proven(store, table, scope, err);
	store->low_water_seq = atoll(PQgetvalue(result, 0, 0));
	store->low_water_us = atoll(PQgetvalue(result, 0, 3));
	if (no_holder)
		status = raise_proven(store, table, scope, err);
	pr_buf_reset(&store->holders);
	pr_buf_puts(&store->holders, PQgetvalue(result, 0, 1));
	return store->holders.failed ? pr_err_nomem(err) : status;
}

/* There may be much for others in the way of the first look. */
static bool is_first_scan(const struct pgsql_store *store, const struct pr_scope *scope)
{
	return (store->rules.count > 0 || !pr_scope_is_all(scope)) && !has_scope_low_water(store, scope);
}

int pr_pgsql_raise_low_water(struct pgsql_store *store, const struct pr_table *table,
			  const struct pr_scope *scope, struct pr_err *err)
{
	bool lasting;
	int status;

	/* The mark of the last scan stays valid while a long transaction writes: it can be found again. */
	if (pr_pgsql_low_water_is_stale(store, scope) && raise_scope_low_water(store, table, scope, err) < 0)
		return err->status;
	if (pr_mono_us() < store->raise_due_us ||
	    (store->scan_us < SLOW_SCAN_US && store->since_raised < RAISE_AFTER &&
	     !is_first_scan(store, scope)))
		return POSTROOM_OK;
	status = raise_if_proven(store, table, scope, &lasting, err);
	/* Nearly all who write are done in a moment, which the first look is worth. */
	for (int tries = 0; tries < FIRST_TRIES && status >= 0 && lasting && store->scan_us == 0; tries++) {
		pr_stop_wait(store->stop, FIRST_TRY_MS);
		status = raise_if_proven(store, table, scope, &lasting, err);
	}
	return status;
}

int pr_pgsql_check_below_low_water(struct pgsql_store *store, const struct pr_table *table,
			  struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf lanes = { 0 };
	struct pgsql_params params = { 0 };
	int64_t begun_us = pr_mono_us(), cost_us;
	int count = LOWER_LANES, status;

	if (store->kind != PR_LEASE_LANE || begun_us < store->lower_due_us)
		return POSTROOM_OK;
	if (store->lower_due_us > 0 && begun_us > store->lower_due_us + LOWER_SELDOM_US)
		count = PG_LANES;
	for (int i = 0; i < count; i++)
		pr_pgsql_array_add_number(&lanes, store->lanes_checked_below++ % PG_LANES + 1);
	pr_pgsql_text(&params, pr_pgsql_array_end(&lanes));
	if (lanes.failed)
		return pr_err_nomem(err);
	status = set_low_water(store, PG_LOWER, table, LOWER, &params, err);
	cost_us = (pr_mono_us() - begun_us) * LOWER_SHARE;
	store->lower_due_us = begun_us + (cost_us > LOWER_EVERY_US ? cost_us : LOWER_EVERY_US);
	return status;
}
