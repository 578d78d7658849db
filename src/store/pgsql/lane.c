/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes: messages of a key share one, and go through it in order.
 *
 * 1. A claim locks the row of each of its lanes, and takes no message of a lane whose
 *    row has changed since the statement's snapshot: so the snapshot shows the lane's
 *    messages as they are. Other claims skip a locked lane. A claim that delays a
 *    message raises the lane's epoch too, because in other scopes it may be due.
 * 2. With row leases, the claim writes the messages, and its commit frees the lane.
 *    The epoch has grown, so a statement with an older snapshot takes nothing.
 * 3. With lane leases, the claim does not write the messages: the lane's row has the
 *    worker, the end of the lease and the messages in flight. Other workers take
 *    nothing from the lane until these are settled or the lease has expired.
 * 4. A takeover turns an expired lane lease into expired leases of its messages, each
 *    with one counted attempt. They are then reclaimed one by one, like all others.
 *    It is one transaction, so it happens once, even if the worker crashes during it.
 * 5. A worker continues at its resume position, in the lanes that filled its last batch,
 *    while a scan of all lanes costs more than a twentieth of its time. A scan from there
 *    passes over late commits and released messages, and later messages of their key
 *    must not overtake them. So it reads only lanes that no other worker has claimed from
 *    since, and never passes a message that was found and not claimed. It reads only keyed
 *    messages that were already visible when the heads were read: the transaction of a late
 *    one may have written later messages of the key, too. The oldest transaction that was
 *    open then and has ended since bounds their xmin. A subtransaction has a higher id than
 *    its parent, so it is above the bound as well.
 * 6. Messages of one lane are far from each other in the table, so a full batch of many
 *    keys takes a few messages from each of many lanes: pages are read once instead of
 *    many times. With more workers, each takes fewer lanes: half of them stay free for
 *    other workers.
 * 7. Holding and delaying need parts of a statement that nearly always have no effect,
 *    and are a fifth of its cost. The fast path has none of these parts: it claims nothing
 *    while any message could be behind another, and does not change early messages.
 *    The next full scan does both.
 * 8. While the backlog is small, most lanes are empty, and reading their rows is most of
 *    the cost of a scan. So the fast path finds messages first, from the low-water marks of
 *    the last full scan, and reads only the rows of lanes with messages. A lane whose
 *    mark is lower by now is read by the next full scan.
 */
#include "base/time.h"
#include "store/pgsql/array.h"
#include "store/pgsql/claim.h"

#include <stdlib.h>
#include <string.h>

/* A batch is small if it fills less than one part in so many. */
#define LITTLE 4

/* A scan from the lowest low-water mark passes rows of the other lanes: at most this many. */
#define MARKS_SPREAD 20000

/* How long scans check for blockers after one was found. */
#define BLOCKERS_US 500000

/* The lowest low-water mark of all lanes; false if others are much higher. */
static bool find_lowest_mark(struct pgsql_store *store, const struct pr_scope *scope, int64_t *ret)
{
	const char *at = store->low_water.data,
		   *scope_low_water = pr_pgsql_scope_low_water_lanes(store, scope);
	int64_t highest = 0;

	*ret = INT64_MAX;
	for (int lane = 0; lane < PG_LANES; lane++) {
		int64_t mark = strtoll(at + 1, (char **)&at, 10);
		int64_t other = scope_low_water ? strtoll(scope_low_water + 1,
							  (char **)&scope_low_water, 10)
						: 0;

		if (other > mark)
			mark = other;
		if (mark < *ret)
			*ret = mark;
		if (mark > highest)
			highest = mark;
	}
	return highest - *ret <= MARKS_SPREAD;
}

/* Whether the fast path would do: see 8. */
static bool may_be_fast(struct pgsql_store *store, const struct pr_claim *claim,
			int64_t *ret_lowest)
{
	/* Only a full scan reports expired leases, and only it resumes. */
	return store->fast_path && !claim->reclaim_expired &&
	       !store->path_state[PG_PATH_LANES].from_resume &&
	       find_lowest_mark(store, &claim->scope, ret_lowest);
}

/* The number of parts of a batch of many keys: see 6. */
#define PARTS 16

/* How many messages to claim from each lane. */
static int64_t choose_quota(const struct pgsql_store *store, int32_t limit)
{
	return store->many_keys ? limit / PARTS + 1 : limit;
}

static const char *choose_lanes(struct pgsql_store *store, bool all)
{
	if (all) {
		pr_buf_reset(&store->lanes);
		for (int lane = 1; lane <= PG_LANES; lane++)
			pr_pgsql_array_add_number(&store->lanes, lane);
		pr_pgsql_array_end(&store->lanes);
	}
	return store->lanes.data;
}

static void put_resume_positions(const struct pgsql_store *store,
				 struct pgsql_path_claim *path_claim)
{
	for (size_t lane = 1; lane <= PG_LANES; lane++) {
		pr_pgsql_array_add_number(&path_claim->resume_seqs, store->resume_seq[lane]);
		pr_pgsql_array_add_number(&path_claim->resume_epochs, store->epochs[lane]);
	}
}

static const struct pgsql_sql *bind_fast(const struct pgsql_claiming *claiming, int64_t lowest,
					 struct pgsql_path_claim *path_claim)
{
	const struct pr_claim *claim = claiming->claim;
	struct pgsql_store *store = claiming->store;

	pr_sql_bind_claim_lanes_fast(
		&path_claim->params, claim->scope.ns, path_claim->topic, claim->scope.tenant_id,
		path_claim->limit, claim->max_attempts, store->base.worker, claim->lease_ms,
		pr_pgsql_max_bytes(claim), claim->block && !claim->unordered, store->low_water.data,
		store->passed.len > 0 ? store->passed.data : NULL, lowest,
		choose_lanes(store, true), pr_pgsql_scope_low_water_lanes(store, &claim->scope));
	return &pr_sql_claim_lanes_fast;
}

/* The arguments that the scans of all lanes have in common. */
#define SCOPE_AND_LEASE                                                                            \
	&path_claim->params, claim->scope.ns, path_claim->topic, claim->scope.tenant_id,           \
		path_claim->limit, claim->max_attempts, store->base.worker, claim->lease_ms
#define LANES_TO_READ                                                                              \
	path_claim->resume_seqs.data, path_claim->resume_epochs.data, pr_pgsql_max_bytes(claim),   \
		claim->block && !claim->unordered, from_resume ? store->head_snapshot.data : NULL, \
		choose_lanes(store, !from_resume), choose_quota(store, path_claim->limit),         \
		store->lanes_wanted, pr_pgsql_scope_low_water_lanes(store, &claim->scope)

const struct pgsql_sql *pr_pgsql_bind_lanes(const struct pgsql_claiming *claiming,
					    struct pgsql_path_claim *path_claim)
{
	const struct pr_claim *claim = claiming->claim;
	struct pgsql_store *store = claiming->store;
	bool from_resume = store->path_state[PG_PATH_LANES].from_resume;
	bool blockers = !store->no_blockers || pr_mono_us() < store->blockers_until_us;
	int64_t lowest;

	if (store->kind == PR_LEASE_LANE && !blockers && may_be_fast(store, claim, &lowest))
		return bind_fast(claiming, lowest, path_claim);
	if (from_resume)
		put_resume_positions(store, path_claim);
	pr_pgsql_array_end(&path_claim->resume_seqs);
	pr_pgsql_array_end(&path_claim->resume_epochs);
	if (store->kind == PR_LEASE_ROW) {
		pr_sql_bind_claim_lanes_by_row(SCOPE_AND_LEASE, path_claim->reason, LANES_TO_READ);
		return &pr_sql_claim_lanes_by_row;
	}
	if (!blockers) {
		pr_sql_bind_claim_lanes_unblocked(SCOPE_AND_LEASE, LANES_TO_READ);
		return &pr_sql_claim_lanes_unblocked;
	}
	pr_sql_bind_claim_lanes(SCOPE_AND_LEASE, LANES_TO_READ);
	return &pr_sql_claim_lanes;
}

static bool differ(const PGresult *result, int row, int column)
{
	return PQgetlength(result, row, column) != PQgetlength(result, row - 1, column) ||
	       memcmp(PQgetvalue(result, row, column), PQgetvalue(result, row - 1, column),
		      (size_t)PQgetlength(result, row, column)) != 0;
}

/* The lanes of a batch, their epochs, and the resume position behind its last message of each. */
struct lanes_read {
	bool known[PG_LANES + 1];
	int64_t count;
	size_t key_changes; /* between neighboring rows */
};

static void read_lanes(struct pgsql_store *store, const PGresult *result, struct lanes_read *read)
{
	/* The first row has the facts about the scan. The others are in no order. */
	for (int row = 1; row < PQntuples(result); row++) {
		int32_t lane = pr_pgsql_read_int4(result, row, PG_COL_LANE);
		int64_t next = pr_pgsql_read_int8(result, row, PR_COL_SEQ) + 1;

		if (!read->known[lane]) {
			read->known[lane] = true;
			pr_pgsql_array_add_number(&store->lanes, lane);
			store->resume_seq[lane] = 0;
			read->count++;
		}
		if (next > store->resume_seq[lane])
			store->resume_seq[lane] = next;
		store->epochs[lane] = pr_pgsql_read_int8(result, row, PG_COL_EPOCH);
		read->key_changes += row > 1 && (PQgetisnull(result, row, PR_COL_KEY) ||
						 differ(result, row, PR_COL_KEY));
	}
}

/* Marks and heads are those of a scan from the heads. */
static void learn_heads(struct pgsql_store *store, const PGresult *result)
{
	if (PQntuples(result) == 0 || store->path_state[PG_PATH_LANES].from_resume)
		return;
	pr_buf_reset(&store->head_snapshot);
	pr_buf_puts(&store->head_snapshot, PQgetvalue(result, 0, PG_COL_SNAPSHOT));
	if (PQgetisnull(result, 0, PG_COL_LOW_WATER))
		return;
	pr_buf_reset(&store->low_water);
	pr_buf_puts(&store->low_water, PQgetvalue(result, 0, PG_COL_LOW_WATER));
	pr_buf_reset(&store->passed);
	pr_buf_puts(&store->passed, PQgetvalue(result, 0, PG_COL_PASSED));
	pr_pgsql_note_passed_ended(store, *PQgetvalue(result, 0, PG_COL_PASSED_ENDED));
}

void pr_pgsql_learn_lanes(struct pgsql_store *store, const struct pgsql_path_claim *path_claim,
			  const PGresult *result, size_t count)
{
	bool full = count >= (size_t)path_claim->limit, blockers = false;
	struct lanes_read read = { 0 };

	pr_buf_reset(&store->lanes);
	if (count > 0)
		read_lanes(store, result, &read);
	pr_pgsql_array_end(&store->lanes);
	learn_heads(store, result);
	if (PQntuples(result) > 0)
		blockers = *PQgetvalue(result, 0, PG_COL_BLOCKERS);
	store->blocked = blockers && path_claim->step.sql != &pr_sql_claim_lanes;
	if (blockers)
		store->blockers_until_us = pr_mono_us() + BLOCKERS_US;
	if (store->kind == PR_LEASE_LANE)
		store->in_flight += count;
	store->since_raised += count;
	store->many_keys = full && read.key_changes > count / 2;
	/* Messages that were found and not claimed must be held or delayed. */
	store->no_blockers = path_claim->found == (int64_t)count;
	store->fast_path = store->no_blockers && count * LITTLE < (size_t)path_claim->limit &&
			   store->low_water.len > 0 && !store->low_water.failed &&
			   !store->passed.failed;
	/* A full batch shows how many it takes; others may have the rest. */
	if (full)
		store->lanes_wanted = store->many_keys && read.count < PARTS ? PARTS : read.count;
	else
		store->lanes_wanted = store->lanes_wanted * 2 < PG_LANES ? store->lanes_wanted * 2
									 : PG_LANES;
}

int pr_pgsql_take_over(struct pgsql_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	bool lost;
	int status = pr_pgsql_check_lease_kind(store, &lost, err);

	if (status < 0 || !lost)
		return status;
	result = pr_sql_run(store, &pr_sql_take_over_lanes, NULL, err);
	return result ? POSTROOM_OK : err->status;
}
