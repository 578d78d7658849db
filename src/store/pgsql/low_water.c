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
 * 6. The marks of the lanes also rise past transactions that stay open: a ten-minute import must
 *    not make every claim pass all that was settled since it began. A mark remembers the ids of
 *    those that it has passed, and for each of them the mark before. A scan compares them with
 *    its own snapshot. As long as all of them are open there, none of their messages is visible,
 *    and it starts at the mark. If one of them has ended, it starts where that one was passed:
 *    so it finds the late messages in the same snapshot as the later ones of their keys. The next
 *    raise forgets those that have ended.
 * 7. A mark stays true of the messages, whatever is written into the lane's row later: so
 *    of two raises at the same time either may be the last. An id of another server, in a
 *    restored dump, is not open here: a scan starts below, and the next raise forgets the id.
 * 8. A transaction without an id cannot be passed, nor can many of them. Then the marks wait for
 *    them. The marks of a scope always wait.
 */
#include "base/time.h"
#include "store/pgsql/array.h"
#include "store/pgsql/statements.h"

#include <stdlib.h>
#include <string.h>

/* Now and then, or as soon as scans probably pass much. */
#define RAISE_AFTER 50000
#define SLOW_SCAN_US 20000
#define RAISE_EVERY_US 250000
/* How long the first scan waits for open transactions. */
#define FIRST_TRIES 10
#define FIRST_TRY_MS 5
/* The row of each lane has so many ids of transactions that its mark has passed. */
#define PASSED_MAX 16
/* So many lanes at a time, because there may be much to pass; all of them after a long pause. */
#define LOWER_LANES 8
#define LOWER_EVERY_US 7000000LL
#define LOWER_SELDOM_US 20000000LL
#define LOWER_SHARE 100
/* See 5. */
#define OWN_FOR_US 10000000LL
#define OWN_SHARE 50
#define LATE_US 1000000

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
static PGresult *find_scope_low_water(struct pgsql_store *store, const struct pr_scope *scope,
				      const char *known, struct pr_err *err)
{
	bool by_row = store->kind == PR_LEASE_ROW;
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };
	const char *topic = pr_pgsql_pattern(scope->topic, &pattern),
		   *marks = store->scope_low_water.data;

	if (pattern.failed) {
		pr_err_nomem(err);
		return NULL;
	}
	if (!known) {
		/* Both statements have the same parameters. */
		pr_sql_bind_scope_near_row(&params, scope->ns, topic, scope->tenant_id,
					   store->scope_low_water_us, marks, store->proven_seq,
					   store->proven_us - LATE_US);
		return pr_sql_run(store, by_row ? &pr_sql_scope_near_row : &pr_sql_scope_near_lane,
				  &params, err);
	}
	pr_sql_bind_scope_far_row(&params, scope->ns, topic, scope->tenant_id, known, marks,
				  store->proven_seq);
	return pr_sql_run_by_page(store, by_row ? &pr_sql_scope_far_row : &pr_sql_scope_far_lane,
				  &params, err);
}

static int raise_scope_low_water(struct pgsql_store *store, const struct pr_scope *scope,
				 struct pr_err *err)
{
	int64_t begun_us = pr_mono_us();
	bool anew = !has_scope_low_water(store, scope) || pr_pgsql_low_water_is_stale(store, scope);
	PR_CLEANUP_RESULT PGresult *near = NULL, *far = NULL;
	const char *found;

	if (anew && !restart_proof(store, scope))
		return pr_err_nomem(err);
	near = find_scope_low_water(store, scope, NULL, err);
	if (!near)
		return err->status;
	found = PQgetvalue(near, 0, 0);
	if (strstr(found, "NULL")) {
		far = find_scope_low_water(store, scope, found, err);
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

/* Then the marks of the lanes are as good. */
static bool claims_all(const struct pgsql_store *store, const struct pr_scope *scope)
{
	return store->kind == PR_LEASE_LANE && store->rules.count == 0 && pr_scope_is_all(scope);
}

/* All transactions that wrote messages at that moment have ended. */
static int raise_proven(struct pgsql_store *store, const struct pr_scope *scope, struct pr_err *err)
{
	store->since_raised = 0;
	store->proven_seq = store->low_water_seq;
	store->proven_us = store->low_water_us;
	return claims_all(store, scope) ? POSTROOM_OK : raise_scope_low_water(store, scope, err);
}

enum { COL_SEQ, COL_US, COL_HOLDERS, COL_LASTING, COL_PASSED };

static void remember_holders(struct pr_buf *holders, const PGresult *writers)
{
	pr_buf_reset(holders);
	pr_buf_puts(holders, PQgetvalue(writers, 0, COL_HOLDERS));
}

/* passed: open transactions that the marks may rise past: xid8[]. */
static int raise_lanes(struct pgsql_store *store, int64_t seq, const char *passed,
		       struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_raise_low_water(&params, seq, passed);
	result = pr_sql_run(store, &pr_sql_raise_low_water, &params, err);
	if (!result)
		return err->status;
	store->since_raised = 0;
	return POSTROOM_OK;
}

/* patient: rather than past a transaction that may end in a moment, the marks rise later. */
static int raise_past_open(struct pgsql_store *store, const PGresult *writers, bool no_holder,
			   bool patient, struct pr_err *err)
{
	int64_t seq = atoll(PQgetvalue(writers, 0, COL_SEQ));
	const char *passed = PQgetvalue(writers, 0, COL_PASSED);
	bool asked = store->passing_seq > 0, none = strcmp(passed, "{}") == 0;
	int status = POSTROOM_OK;

	if (no_holder)
		status = raise_lanes(store, seq, "{}", err);
	else if (asked && (PQgetisnull(writers, 0, COL_PASSED) || (patient && !none)))
		return POSTROOM_OK;
	else if (asked)
		status = raise_lanes(store, store->passing_seq, passed, err);
	store->passing_seq = seq;
	remember_holders(&store->passing_holders, writers);
	return store->passing_holders.failed ? pr_err_nomem(err) : status;
}

/* Asks once; *ret_lasting: some of those who wrote when it was asked before still do. */
static int raise_if_proven(struct pgsql_store *store, const struct pr_scope *scope, bool patient,
			   bool *ret_lasting, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *writers = NULL;
	struct pgsql_params params = { 0 };
	bool asked = store->low_water_seq > 0, no_holder;
	int status = POSTROOM_OK;

	pr_sql_bind_lock_holders(&params, asked ? store->holders.data : "{}",
				 store->passing_seq > 0 ? store->passing_holders.data : "{}",
				 PASSED_MAX);
	writers = pr_sql_run(store, &pr_sql_lock_holders, &params, err);
	if (!writers)
		return err->status;
	store->raise_due_us = pr_mono_us() + RAISE_EVERY_US;
	no_holder = strcmp(PQgetvalue(writers, 0, COL_HOLDERS), "{}") == 0;
	*ret_lasting = !no_holder && (!asked || *PQgetvalue(writers, 0, COL_LASTING) == 't');
	if (store->kind == PR_LEASE_LANE)
		status = raise_past_open(store, writers, no_holder, patient, err);
	if (status < 0 || (*ret_lasting && asked))
		return status;
	if (asked && !no_holder)
		status = raise_proven(store, scope, err);
	store->low_water_seq = atoll(PQgetvalue(writers, 0, COL_SEQ));
	store->low_water_us = atoll(PQgetvalue(writers, 0, COL_US));
	if (no_holder)
		status = raise_proven(store, scope, err);
	remember_holders(&store->holders, writers);
	return store->holders.failed ? pr_err_nomem(err) : status;
}

/* The next raise lets scans start at the marks again. */
void pr_pgsql_note_passed_ended(struct pgsql_store *store, bool ended)
{
	if (ended && !store->passed_ended)
		store->raise_due_us = 0;
	store->passed_ended = ended;
}

/* There may be much for others in the way of the first look. */
static bool is_first_scan(const struct pgsql_store *store, const struct pr_scope *scope)
{
	return (store->rules.count > 0 || !pr_scope_is_all(scope)) &&
	       !has_scope_low_water(store, scope);
}

int pr_pgsql_raise_low_water(struct pgsql_store *store, const struct pr_scope *scope,
			     struct pr_err *err)
{
	bool lasting;
	int status;

	/* The mark of the last scan stays valid while a long transaction writes: it can be found again. */
	if (pr_pgsql_low_water_is_stale(store, scope) &&
	    raise_scope_low_water(store, scope, err) < 0)
		return err->status;
	if (pr_mono_us() < store->raise_due_us ||
	    (store->scan_us < SLOW_SCAN_US && store->since_raised < RAISE_AFTER &&
	     !store->passed_ended && !is_first_scan(store, scope)))
		return POSTROOM_OK;
	status = raise_if_proven(store, scope, store->scan_us == 0, &lasting, err);
	/* Nearly all who write are done in a moment, which the first look is worth. */
	for (int tries = 0; tries < FIRST_TRIES && status >= 0 && lasting && store->scan_us == 0;
	     tries++) {
		pr_stop_wait(store->stop, FIRST_TRY_MS);
		status = raise_if_proven(store, scope, tries < FIRST_TRIES - 1, &lasting, err);
	}
	return status;
}

int pr_pgsql_check_below_low_water(struct pgsql_store *store, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf lanes = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	int64_t begun_us = pr_mono_us(), cost_us;
	int count = LOWER_LANES;

	if (store->kind != PR_LEASE_LANE || begun_us < store->lower_due_us)
		return POSTROOM_OK;
	if (store->lower_due_us > 0 && begun_us > store->lower_due_us + LOWER_SELDOM_US)
		count = PG_LANES;
	for (int i = 0; i < count; i++)
		pr_pgsql_array_add_number(&lanes, store->lanes_checked_below++ % PG_LANES + 1);
	pr_sql_bind_lower_low_water(&params, pr_pgsql_array_end(&lanes));
	if (lanes.failed)
		return pr_err_nomem(err);
	result = pr_sql_run(store, &pr_sql_lower_low_water, &params, err);
	cost_us = (pr_mono_us() - begun_us) * LOWER_SHARE;
	store->lower_due_us = begun_us + (cost_us > LOWER_EVERY_US ? cost_us : LOWER_EVERY_US);
	return result ? POSTROOM_OK : err->status;
}
