/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claiming (C1–C6), and dead-lettering messages without attempts left (C5).
 *
 * 1. Due messages are found by one of three claim paths, each on its own partial
 *    index: scheduled (due at a time of their own), unkeyed, and lanes (lane.c).
 *    Rows in backoff, held behind their key, delivered or dead are in none of
 *    these indexes, and cost nothing. The inbox has no lanes: all its rows are
 *    on the scheduled path.
 * 2. A claim path is one statement; it chooses rows once, in a MATERIALIZED part.
 * 3. The database's clock alone decides, and it is clock_timestamp(): now()
 *    does not advance inside a transaction.
 * 4. A message with an expired lease is claimed alone: it may have crashed its
 *    worker, and must not affect other messages.
 * 5. A claim dead-letters each message without attempts left that it finds.
 * 6. A message with a key is claimed only if all earlier unfinished messages of
 *    its key are claimed with it, unless the claim is unordered. A claim holds
 *    any other message under a share lock on its blocker: the worker
 *    that finishes the blocker sees the held message, and unblocks it (settle.c).
 */
#include "store/pgsql/claim.h"
#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* The limit of a claim that may receive so many bytes: the server need not measure many more. */
static int32_t limit_for(const struct pgsql_store *store, const struct pr_claim *claim,
			 size_t count)
{
	size_t fit = store->message_bytes ? claim->max_bytes / store->message_bytes : SIZE_MAX;
	size_t wanted = (size_t)claim->limit - count;

	if (fit < 1)
		fit = 1;
	return (int32_t)(fit < wanted ? fit : wanted);
}

static size_t size_of(const postroom_delivery *item)
{
	return item->withheld ? item->withheld
			      : item->payload_len + item->body_len + strlen(item->headers);
}

/* The largest of this batch, or half of the last value: quick to shrink, slow to grow. */
static void learn_size(struct pgsql_store *store, const struct postroom_batch *batch)
{
	size_t largest = 1;

	for (size_t i = 0; i < batch->count; i++) {
		size_t bytes = size_of(&batch->items[i]);

		if (bytes > largest)
			largest = bytes;
	}
	if (batch->count > 0)
		store->message_bytes = largest > store->message_bytes / 2
					       ? largest
					       : store->message_bytes / 2;
}

/*
 * With lane leases, ready messages are in lanes, with a key or without. In a table without lanes
 * all pending rows are on the scheduled path.
 */
static bool uses_path(const struct pgsql_store *store, const struct pr_table *table,
		      enum pgsql_path path)
{
	if (!table->lanes)
		return path == PG_PATH_SCHEDULED;
	return path != PG_PATH_UNKEYED || store->kind == PR_LEASE_ROW;
}

static bool is_quiet(struct pgsql_path_state *path_state)
{
	if (path_state->skip == 0)
		return false;
	path_state->skip--;
	return true;
}

/* The bytes that may still be received, after those of the other claim paths. */
static struct pr_claim rest_of(const struct pr_claim *claim, const struct postroom_batch *batch)
{
	struct pr_claim rest = *claim;

	for (size_t i = 0; i < batch->count; i++) {
		size_t bytes = batch->items[i].withheld ? 0 : size_of(&batch->items[i]);

		rest.max_bytes -= bytes < rest.max_bytes ? bytes : rest.max_bytes;
	}
	return rest;
}

/* If all messages that were found are held now, there may be others behind them. */
#define HOLDING_ROUNDS 8

static int claim_path(const struct pgsql_claiming *whole, enum pgsql_path path, struct pr_err *err)
{
	const struct pr_claim rest = rest_of(whole->claim, whole->batch);
	struct pgsql_store *store = whole->store;
	struct postroom_batch *batch = whole->batch;
	const struct pgsql_claiming claiming = {
		.store = store, .table = whole->table, .claim = &rest, .batch = batch
	};
	size_t before = batch->count;
	int status = POSTROOM_OK;

	for (int round = 0; round < HOLDING_ROUNDS; round++) {
		struct pgsql_path_claim path_claim = { .path = path,
						       .limit = limit_for(store, &rest, before) };
		bool in_part = store->path_state[path].busy ||
			       (path == PG_PATH_LANES && store->many_keys);

		status = pr_pgsql_run_path(&claiming, &path_claim, err);
		if (status < 0 || batch->count > before || batch->dead_letter_count > 0)
			return status;
		if (path_claim.found < path_claim.limit && !in_part &&
		    !(path == PG_PATH_LANES && store->blocked))
			break;
	}
	return status;
}

static int by_due(const void *left, const void *right)
{
	const postroom_delivery *a = left, *b = right;

	if (a->due_us != b->due_us)
		return a->due_us < b->due_us ? -1 : 1;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static void sort_by_due(struct postroom_batch *batch)
{
	if (batch->count > 1)
		qsort(batch->items, batch->count, sizeof(*batch->items), by_due);
}

static int claim_paths(const struct pgsql_claiming *claiming, struct pr_err *err)
{
	struct pgsql_store *store = claiming->store;
	struct postroom_batch *batch = claiming->batch;
	enum pgsql_path first = store->first_path;
	bool was_quiet[PG_ROTATING_PATHS];
	int status = POSTROOM_OK;

	store->first_path = PG_PATH_SCHEDULED;
	for (int path = 0; path < PG_ROTATING_PATHS; path++)
		was_quiet[path] = is_quiet(&store->path_state[path]);
	/* The quiet ones follow if the others are empty. */
	for (int quiet = 0; quiet < 2 && batch->count == 0; quiet++) {
		for (int i = 0; i < PG_ROTATING_PATHS; i++) {
			enum pgsql_path path = (first + i) % PG_ROTATING_PATHS;

			if (batch->count == (size_t)claiming->claim->limit)
				break;
			if (!uses_path(store, claiming->table, path) || was_quiet[path] != quiet)
				continue;
			status = claim_path(claiming, path, err);
			/* Dead letters fill no batch: they are reported, and the next claim reads the rest. */
			if (status < 0 || (batch->count == 0 && batch->dead_letter_count > 0))
				return status;
		}
	}
	sort_by_due(batch);
	return status;
}

static int claim_expired(const struct pgsql_claiming *claiming, struct pr_err *err)
{
	struct pgsql_path_claim path_claim = { .path = PG_PATH_EXPIRED, .limit = 1 };
	int status = claiming->table->lanes ? pr_pgsql_take_over(claiming->store, err)
					    : POSTROOM_OK;

	return status < 0 ? status : pr_pgsql_run_path(claiming, &path_claim, err);
}

/* Unblocks the messages behind dead letters, unless dead letters block their key. */
static int unblock_dead_letter_keys(const struct pgsql_claiming *claiming, struct pr_err *err)
{
	const struct postroom_batch *batch = claiming->batch;

	if (claiming->claim->block || batch->dead_letter_count == 0)
		return POSTROOM_OK;
	return pr_pgsql_unblock_keys(claiming->store, claiming->table, batch->dead_letters,
				     batch->dead_letter_count, err);
}

static int claim_alone(const struct pgsql_claiming *claiming, struct pr_err *err)
{
	struct pgsql_store *store = claiming->store;
	const struct pr_claim *claim = claiming->claim;
	struct postroom_batch *batch = claiming->batch;
	int status = pr_pgsql_force_index_scans(store, err);

	if (status >= 0 && claiming->table->lanes)
		status = pr_pgsql_load_lease_kind(store, err);
	if (status >= 0 && claiming->table->lanes)
		status = pr_pgsql_raise_low_water(store, &claim->scope, err);
	if (status >= 0 && claim->reclaim_expired)
		status = claim_expired(claiming, err);
	if (status >= 0 && batch->count == 0 && batch->dead_letter_count == 0)
		status = claim_paths(claiming, err);
	if (status >= 0)
		status = unblock_dead_letter_keys(claiming, err);
	if (status < 0)
		pr_batch_reset(batch);
	else
		learn_size(store, batch);
	return status;
}

/* A settle and claim: the steps that settle, then the claim paths in their order. */
struct settling_and_claiming {
	struct pgsql_claiming claiming;
	struct pgsql_settling settling;
	struct pgsql_path_claim path_claim[PG_ROTATING_PATHS];
	size_t count; /* of claim paths */
};

static int add_claim_step(struct settling_and_claiming *both, const struct pr_claim *claim,
			  enum pgsql_path path, int32_t limit, struct pr_err *err)
{
	struct pgsql_claiming claiming = both->claiming;
	struct pgsql_path_claim *path_claim;
	int status;

	pr_assert(both->count < PG_ROTATING_PATHS);
	claiming.claim = claim;
	path_claim = &both->path_claim[both->count++];
	path_claim->path = path;
	path_claim->limit = limit;
	status = pr_pgsql_build_path_claim(&claiming, path_claim, err);
	pr_pgsql_add_step(&both->settling, path_claim->step);
	return status;
}

/* The paths that are not quiet, in their order. */
static size_t paths_in_order(struct pgsql_store *store, const struct pr_table *table,
			     enum pgsql_path paths[PG_ROTATING_PATHS])
{
	size_t count = 0;

	for (int i = 0; i < PG_ROTATING_PATHS; i++) {
		enum pgsql_path path = (store->first_path + i) % PG_ROTATING_PATHS;

		if (!is_quiet(&store->path_state[path]) && uses_path(store, table, path))
			paths[count++] = path;
	}
	return count;
}

/*
 * Each path but the last is asked for half of what is left, or for one part in so many if it did
 * not fill its last batch. The last path is asked for the rest.
 */
#define PART 16

static int add_paths(struct settling_and_claiming *both, struct pr_err *err)
{
	struct pgsql_store *store = both->claiming.store;
	const struct pr_claim *claim = both->claiming.claim;
	enum pgsql_path paths[PG_ROTATING_PATHS];
	size_t count = paths_in_order(store, both->claiming.table, paths);
	int32_t limit = limit_for(store, claim, 0), left = limit;

	if (count > 0)
		store->first_path = PG_PATH_SCHEDULED;
	for (size_t i = 0; i < count && left > 0; i++) {
		int32_t parts = store->path_state[paths[i]].busy ? 2 : PART;
		int32_t share = i + 1 == count ? left : (left + parts - 1) / parts;
		struct pr_claim part = *claim;

		part.max_bytes = claim->max_bytes / (size_t)limit * (size_t)share;
		if (add_claim_step(both, &part, paths[i], share, err) < 0)
			return err->status;
		left -= share;
	}
	return POSTROOM_OK;
}

/* Adds the steps that claim the next batch, if any. */
static int add_next_claim(struct settling_and_claiming *both, struct pr_err *err)
{
	const struct pr_claim *claim = both->claiming.claim;
	bool lanes = both->claiming.table->lanes;

	/* Only the lanes path reports expired leases together with its claim. */
	if (!claim->reclaim_expired || (lanes && both->claiming.store->none_expired))
		return add_paths(both, err);
	if (lanes && both->claiming.store->kind == PR_LEASE_LANE)
		pr_pgsql_add_step(&both->settling, pr_sql_step(&pr_sql_take_over_lanes, NULL));
	return add_claim_step(both, claim, PG_PATH_EXPIRED, 1, err);
}

/* Reads the results of all steps. Those of the claim are the last ones. */
static int read_settle_and_claim(struct settling_and_claiming *both, struct pr_err *err)
{
	const struct pgsql_claiming *claiming = &both->claiming;
	struct pgsql_settling *settling = &both->settling;
	struct pr_err ignored;
	bool fine = true;
	int status;

	pr_assert(settling->count >= both->count);
	settling->count -= both->count;
	for (size_t i = 0; i < both->count; i++) {
		both->path_claim[i].step = settling->steps[settling->count + i];
		fine &= pr_pgsql_add_to_batch(claiming, &both->path_claim[i], &ignored) >= 0;
	}
	/* It is committed: messages that cannot be read stay claimed until their lease expires. */
	if (!fine)
		pr_batch_reset(claiming->batch);
	status = pr_pgsql_end_settling(claiming->store, settling, err);
	if (both->count > 0) {
		sort_by_due(claiming->batch);
		unblock_dead_letter_keys(claiming, &ignored);
		learn_size(claiming->store, claiming->batch);
	}
	return status;
}

static int run_both(struct settling_and_claiming *both, const struct pr_policy *policy,
		    struct pr_err *err)
{
	struct pgsql_store *store = both->claiming.store;
	const struct pr_table *table = both->claiming.table;
	const struct pr_claim *claim = both->claiming.claim;
	bool lost;
	int status = pr_pgsql_force_index_scans(store, err);

	/* Now and then, so that a worker that is always busy also detects a change. */
	if (status >= 0 && table->lanes && claim->reclaim_expired)
		status = pr_pgsql_check_lease_kind(store, &lost, err);
	if (status >= 0 && table->lanes)
		status = pr_pgsql_raise_low_water(store, &claim->scope, err);
	if (status >= 0)
		status = pr_pgsql_begin_settling(store, table, policy, &both->settling, err);
	if (status >= 0)
		status = add_next_claim(both, err);
	if (status >= 0)
		status = pr_pgsql_run_all(store, both->settling.steps, both->settling.count,
					  "settling and claiming messages", err);
	return status < 0 ? status : read_settle_and_claim(both, err);
}

int pr_pgsql_settle_and_claim(struct postroom_store *base, const struct pr_table *table,
			      const struct pr_settle *settle, const struct pr_claim *claim,
			      struct postroom_batch *next, struct pr_err *err)
{
	struct settling_and_claiming both = { .claiming = { .store = pgsql_store(base),
							    .table = table,
							    .claim = claim,
							    .batch = next } };
	int status;

	if (!settle)
		return claim_alone(&both.claiming, err);
	if (!claim)
		return pr_pgsql_settle(base, table, settle, err);
	both.settling.items = settle->items;
	both.settling.item_count = settle->count;
	status = run_both(&both, settle->policy, err);
	pr_pgsql_release_settling(&both.settling);
	for (size_t i = 0; i < both.count; i++)
		pr_pgsql_release_path_claim(&both.path_claim[i]);
	return status;
}

int pr_pgsql_sweep(struct postroom_store *base, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	const struct pgsql_claiming claiming = {
		.store = store, .table = table, .claim = claim, .batch = batch
	};
	struct pgsql_path_claim path_claim = { .path = PG_PATH_EXPIRED,
					       .limit = claim->limit,
					       .min_attempts = claim->max_attempts };
	int status = pr_pgsql_force_index_scans(store, err);

	if (status >= 0 && table->lanes)
		status = pr_pgsql_take_over(store, err);
	if (status >= 0)
		status = pr_pgsql_run_path(&claiming, &path_claim, err);
	if (status >= 0)
		status = pr_pgsql_unblock_stranded(store, table, claim->block, err);
	if (status >= 0 && table->lanes)
		status = pr_pgsql_check_below_low_water(store, err);
	if (status < 0)
		pr_batch_reset(batch);
	return status;
}

int pr_pgsql_unfinished(struct postroom_store *base, const struct pr_table *table,
			const struct pr_claim *claim, bool *ret, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	const struct pr_scope *scope = &claim->scope;
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	const char *topic = pr_pgsql_pattern(scope->topic, &pattern);
	struct pgsql_params params = { 0 };

	/* Dead letters may have blocked until now. */
	if (pr_pgsql_unblock_stranded(store, table, claim->block, err) < 0)
		return err->status;
	if (pattern.failed)
		return pr_err_nomem(err);
	if (table->lanes)
		pr_sql_bind_unfinished_outbox(&params, scope->ns, topic, scope->tenant_id);
	else
		pr_sql_bind_unfinished_inbox(&params, scope->ns, topic, scope->tenant_id);
	result = pr_sql_run(store,
			    table->lanes ? &pr_sql_unfinished_outbox : &pr_sql_unfinished_inbox,
			    &params, err);
	if (!result)
		return err->status;
	*ret = *PQgetvalue(result, 0, 0) == 't';
	return POSTROOM_OK;
}
