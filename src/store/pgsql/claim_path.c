/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One claim path: its statement, and where the next claim resumes.
 *
 * 1. The scan of unkeyed messages and of lanes starts behind the last row of the claim before,
 *    because the dead entries of settled rows pile up at the head of the index while an old
 *    transaction holds vacuum back. A row may commit late: so this is done only while batches are
 *    full. The head is read again as soon as that costs no more than one part in HEAD_SHARE of the
 *    time, every REREAD_US at the latest, and at once when nothing is found behind the resume
 *    position.
 * 2. Scheduled messages are few, and not in the order of seq: they have no resume position.
 */
#include "base/time.h"
#include "store/pgsql/array.h"
#include "store/pgsql/claim.h"

#include <string.h>

#define HEAD_SHARE 20
#define REREAD_US 10000000

/* This many claims skip a path that was empty, as long as another path finds messages. */
#define QUIET_CLAIMS 6

#define EXPIRED_REASON "the lease ran out during the last attempt: its worker died or hung"

int64_t pr_pgsql_max_bytes(const struct pr_claim *claim)
{
	return claim->max_bytes < INT64_MAX ? (int64_t)claim->max_bytes : INT64_MAX;
}

static const struct pgsql_sql *bind_scheduled(const struct pgsql_claiming *claiming,
					      struct pgsql_path_claim *path_claim)
{
	const struct pr_claim *claim = claiming->claim;

	pr_sql_bind_claim_scheduled(&path_claim->params, claim->scope.ns, path_claim->topic,
				    claim->scope.tenant_id, path_claim->limit, claim->max_attempts,
				    claiming->store->base.worker, claim->lease_ms,
				    path_claim->reason, pr_pgsql_max_bytes(claim),
				    claim->block && !claim->unordered, claim->unordered);
	return pr_sql_claim_scheduled(claiming->table);
}

static const struct pgsql_sql *bind_expired(const struct pgsql_claiming *claiming,
					    struct pgsql_path_claim *path_claim)
{
	const struct pr_claim *claim = claiming->claim;

	pr_sql_bind_claim_expired(&path_claim->params, claim->scope.ns, path_claim->topic,
				  claim->scope.tenant_id, path_claim->limit, claim->max_attempts,
				  claiming->store->base.worker, claim->lease_ms, path_claim->reason,
				  path_claim->min_attempts, pr_pgsql_max_bytes(claim),
				  claim->block && !claim->unordered, claim->unordered);
	return pr_sql_claim_expired(claiming->table);
}

static const struct pgsql_sql *bind_unkeyed(const struct pgsql_claiming *claiming,
					    struct pgsql_path_claim *path_claim)
{
	const struct pr_claim *claim = claiming->claim;
	struct pgsql_store *store = claiming->store;
	bool from_resume = store->path_state[PG_PATH_UNKEYED].from_resume;

	pr_sql_bind_claim_unkeyed(
		&path_claim->params, claim->scope.ns, path_claim->topic, claim->scope.tenant_id,
		path_claim->limit, claim->max_attempts, store->base.worker, claim->lease_ms,
		path_claim->reason,
		from_resume ? store->resume_us : pr_pgsql_scope_low_water(store, &claim->scope),
		from_resume ? store->resume_seq[0] : 0, pr_pgsql_max_bytes(claim));
	return &pr_sql_claim_unkeyed;
}

/* Whether the path resumes behind its last batch. */
static void choose_start(struct pgsql_store *store, enum pgsql_path path)
{
	struct pgsql_path_state *path_state = &store->path_state[path];

	path_state->from_resume = path != PG_PATH_SCHEDULED && path_state->busy &&
				  pr_mono_us() < path_state->head_due_us;
}

int pr_pgsql_build_path_claim(const struct pgsql_claiming *claiming,
			      struct pgsql_path_claim *path_claim, struct pr_err *err)
{
	static const struct pgsql_sql *(*const bind[])(const struct pgsql_claiming *,
						       struct pgsql_path_claim *) = {
		[PG_PATH_SCHEDULED] = bind_scheduled,
		[PG_PATH_UNKEYED] = bind_unkeyed,
		[PG_PATH_LANES] = pr_pgsql_bind_lanes,
		[PG_PATH_EXPIRED] = bind_expired,
	};
	const struct pgsql_sql *sql;

	path_claim->begun_us = pr_mono_us();
	path_claim->reason = path_claim->path == PG_PATH_EXPIRED ? EXPIRED_REASON : NULL;
	path_claim->topic = pr_pgsql_pattern(claiming->claim->scope.topic, &path_claim->pattern);
	if (path_claim->path != PG_PATH_EXPIRED)
		choose_start(claiming->store, path_claim->path);
	sql = bind[path_claim->path](claiming, path_claim);
	if (path_claim->pattern.failed || path_claim->resume_seqs.failed ||
	    path_claim->resume_epochs.failed ||
	    (path_claim->path == PG_PATH_LANES && claiming->store->lanes.failed))
		return pr_err_nomem(err);
	path_claim->step = pr_sql_step(sql, &path_claim->params);
	return POSTROOM_OK;
}

void pr_pgsql_release_path_claim(struct pgsql_path_claim *path_claim)
{
	pr_buf_release(&path_claim->pattern);
	pr_buf_release(&path_claim->resume_seqs);
	pr_buf_release(&path_claim->resume_epochs);
}

/* The last of the rows, which are in any order. */
static void set_resume(struct pgsql_store *store, const PGresult *result)
{
	store->resume_us = store->resume_seq[0] = 0;
	for (int row = 0; row < PQntuples(result); row++) {
		int64_t due_us = pr_pgsql_read_time(result, row, PG_COL_DUE);
		int64_t seq = pr_pgsql_read_int8(result, row, PR_COL_SEQ);

		if (due_us > store->resume_us ||
		    (due_us == store->resume_us && seq > store->resume_seq[0])) {
			store->resume_us = due_us;
			store->resume_seq[0] = seq;
		}
	}
}

/* The first row of a claim from lanes says more than the path itself needs. */
static void learn_facts(struct pgsql_store *store, const PGresult *result)
{
	if (PQntuples(result) == 0)
		return;
	/* A scan of a few lanes does not show the state of the others. */
	if (!store->path_state[PG_PATH_LANES].from_resume &&
	    !PQgetisnull(result, 0, PG_COL_EXPIRED))
		store->none_expired = !*PQgetvalue(result, 0, PG_COL_EXPIRED);
	if (!*PQgetvalue(result, 0, PG_COL_IS_DUE))
		store->path_state[PG_PATH_SCHEDULED].skip = QUIET_CLAIMS;
}

static void remember_resume(struct pgsql_store *store, const struct pgsql_path_claim *path_claim,
			    const PGresult *result, size_t count)
{
	struct pgsql_path_state *path_state = &store->path_state[path_claim->path];
	int64_t now_us = pr_mono_us();
	int64_t took_us = now_us - path_claim->begun_us, pause_us = took_us * HEAD_SHARE;
	bool many_keys = store->many_keys, lanes = path_claim->path == PG_PATH_LANES;

	if (path_claim->path == PG_PATH_UNKEYED && count > 0)
		set_resume(store, result);
	if (lanes)
		pr_pgsql_learn_lanes(store, path_claim, result, count);
	if (path_claim->path != PG_PATH_SCHEDULED && !path_state->from_resume)
		store->scan_us = took_us;
	if (!path_state->from_resume)
		path_state->head_due_us = now_us + (pause_us < REREAD_US ? pause_us : REREAD_US);
	path_state->busy = path_claim->found >= path_claim->limit;
	/* In the lanes never past messages that were found and not claimed: see lane.c. */
	if (lanes)
		path_state->busy &= (size_t)path_claim->found == count &&
				    store->many_keys == many_keys && !store->lanes.failed &&
				    !store->head_snapshot.failed;
	path_state->skip = path_claim->found == 0 && !(lanes && store->blocked) ? QUIET_CLAIMS : 0;
	if (lanes)
		learn_facts(store, result);
	if (count >= (size_t)path_claim->limit)
		store->first_path = (path_claim->path + 1) % PG_ROTATING_PATHS;
}

/* The claim is committed: if the history cannot be written, it has a gap. */
static void note_takeovers(const struct pgsql_claiming *claiming, size_t items, size_t dead_letters)
{
	const struct postroom_batch *batch = claiming->batch;
	struct pr_err ignored;

	pr_pgsql_note_takeovers(claiming->store, claiming->table, batch->items + items,
				batch->count - items, PR_TAKEOVER_REASON, &ignored);
	pr_pgsql_note_takeovers(claiming->store, claiming->table,
				batch->dead_letters + dead_letters,
				batch->dead_letter_count - dead_letters, EXPIRED_REASON, &ignored);
}

int pr_pgsql_add_to_batch(const struct pgsql_claiming *claiming,
			  struct pgsql_path_claim *path_claim, struct pr_err *err)
{
	struct pgsql_store *store = claiming->store;
	struct postroom_batch *batch = claiming->batch;
	PGresult *result = path_claim->step.result;
	size_t before = batch->count, dead_letters = batch->dead_letter_count;
	int status;

	path_claim->step.result = NULL;
	if (path_claim->path == PG_PATH_UNKEYED)
		path_claim->found = PQntuples(result); /* all of them are claimed */
	else
		path_claim->found = PQntuples(result) ? pr_pgsql_read_int8(result, 0, PG_COL_FOUND)
						      : 0;
	status = pr_pgsql_read_batch(claiming->table, result,
				     path_claim->path == PG_PATH_LANES &&
					     store->kind == PR_LEASE_LANE,
				     path_claim->reason, batch, err);
	for (size_t i = before; i < batch->count; i++)
		batch->items[i].unordered = claiming->claim->unordered;
	if (status >= 0 && path_claim->path != PG_PATH_EXPIRED)
		remember_resume(store, path_claim, result, batch->count - before);
	/* Until the next scan of all lanes. */
	else if (status >= 0 && batch->count == before && batch->dead_letter_count == dead_letters)
		store->none_expired = true;
	else if (status >= 0)
		note_takeovers(claiming, before, dead_letters);
	return status;
}

int pr_pgsql_run_path(const struct pgsql_claiming *claiming, struct pgsql_path_claim *path_claim,
		      struct pr_err *err)
{
	int status = pr_pgsql_build_path_claim(claiming, path_claim, err);

	if (status >= 0) {
		path_claim->step.result = pr_pgsql_run_step(claiming->store, &path_claim->step,
							    "claiming messages", err);
		status = path_claim->step.result ? pr_pgsql_add_to_batch(claiming, path_claim, err)
						 : err->status;
	}
	pr_pgsql_release_path_claim(path_claim);
	return status;
}
