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
 *    stands still inside a transaction.
 * 4. A message with an expired lease is claimed alone: it may have crashed its
 *    worker, and must not affect other messages.
 * 5. A claim dead-letters each message that it meets without attempts left.
 * 6. A message with a key is claimed only if all earlier unfinished messages of
 *    its key are claimed with it, unless the claim is unordered. A claim holds
 *    any other message (apart = 2) under a share lock on its blocker: the worker
 *    that finishes the blocker sees the held message, and unblocks it (settle.c).
 * 7. The scan starts behind the last row of the claim before, because the dead
 *    entries of settled rows pile up at the head of the index while some old
 *    transaction holds vacuum back. A row may commit late: so this is done only
 *    while batches are full, the head is read again as soon as that costs no more
 *    than one part in HEAD_SHARE of the time, every REREAD_US at the latest, and
 *    at once when nothing is found behind the resume position.
 */
#include "base/assert.h"
#include "base/time.h"
#include "store/pgsql/pgsql.h"
#include "store/pgsql/array.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_SHARE 20
#define REREAD_US 10000000

/* This many claims skip a path that was empty, as long as another path finds messages. */
#define QUIET_CLAIMS 6

#define EXPIRED_REASON "the lease ran out during the last attempt: its worker died or hung"

/* By ctid: a list of places leaves the planner nothing to get wrong. */
#define CLAIM_PLACES                                                                               \
	"UPDATE {schema}{table} SET " PG_CLAIM_SET                                                 \
	" WHERE ctid = ANY (ARRAY(SELECT place FROM fitting)) "                                    \
	"RETURNING {columns}, " PG_CONTENT_OF_FITTING ", status = 'dead' AS dead_lettered, 0 AS of_lane, 0::bigint AS of_epoch, " \
	"next_attempt_at AS due, NULL::tid AS place"
#define CLAIM_THEM "claimed AS (" CLAIM_PLACES ") "

/* While lanes are leased, or some still are, nothing is taken past them. */
#define CLAIM_TURN                                                                                 \
	PG_WITH_NOW ", chosen AS MATERIALIZED (SELECT ctid AS place, seq, "                        \
	"next_attempt_at AS due, " PG_BYTES " AS bytes FROM {schema}{table} "                      \
	"WHERE status = 'pending' AND apart = 0 AND key IS NULL "                                  \
	"AND next_attempt_at <= " PG_AT " AND (next_attempt_at, seq) > "                           \
	"(timestamptz 'epoch' + $9::bigint * interval '1 microsecond', $11::bigint) "              \
	"AND (SELECT lease = 'row' FROM " PG_LANE("1::smallint") " AS one) "                       \
	"AND " PG_LANE_OF("") " <> ALL (ARRAY(SELECT lane FROM {schema}postroom_lanes "            \
	"WHERE locked_by IS NOT NULL)) AND " PG_SCOPE                                              \
	"ORDER BY next_attempt_at, seq LIMIT $4::int FOR UPDATE SKIP LOCKED), "                    \
	PG_FITTING("chosen", "due, seq") " " CLAIM_PLACES ", 0::bigint"

/*
 * A delayed message with a key joins the order of its key now, at its end. Messages of one
 * key join in the order of their due times, and none before one that another worker has
 * locked. A row that is locked in a version newer than the snapshot cannot be written, so
 * this claim skips it. There is no resume position here ($9 is 0): these rows are few, and
 * not in the order of seq.
 */
#define CLAIM_ITSELF                                                                               \
	PG_WITH_NOW ", chosen AS MATERIALIZED (SELECT ctid AS place FROM {schema}{table} "         \
	"WHERE status = 'pending' AND apart IN (1, 3) AND next_attempt_at <= " PG_AT               \
	" AND $9::bigint = 0 AND " PG_SCOPE                                                        \
	"ORDER BY next_attempt_at, seq LIMIT $4::int FOR UPDATE SKIP LOCKED), "                    \
	"there AS MATERIALIZED (SELECT ctid AS place, seq, key, topic, namespace, apart, "         \
	"next_attempt_at AS due, " PG_BYTES " AS bytes FROM {schema}{table} "                      \
	"WHERE ctid = ANY (ARRAY(SELECT place FROM chosen))), "                                    \
	"delayed AS MATERIALIZED (SELECT ctid AS place, key, topic, namespace, seq, "              \
	"next_attempt_at AS due, ctid IN (SELECT place FROM there) AS mine "                       \
	"FROM {schema}{table} WHERE status = 'pending' AND apart = 3 "                             \
	"AND (next_attempt_at, seq) <= (SELECT due, seq FROM there WHERE apart = 3 "               \
	"ORDER BY due DESC, seq DESC LIMIT 1) AND " PG_SCOPE "), "                                 \
	"numbered AS MATERIALIZED (SELECT place, nextval('{schema}{table}_seq_seq') AS seq "       \
	"FROM (SELECT place FROM (SELECT *, bool_and(mine) OVER ("                                 \
	"PARTITION BY key, topic, namespace ORDER BY due, seq) AS ready FROM delayed) AS d "       \
	"WHERE ready ORDER BY due, seq) AS r), "                                                   \
	"joining AS (UPDATE {schema}{table} AS t SET apart = 0, seq = n.seq "                      \
	"FROM numbered AS n WHERE t.ctid = n.place), "                                             \
	"keys AS MATERIALIZED (SELECT key, topic, namespace, array_agg(seq) AS mine "              \
	"FROM there WHERE apart = 1 AND key IS NOT NULL AND NOT $12::boolean "                     \
	"GROUP BY 1, 2, 3), "                                                                      \
	"met AS MATERIALIZED (SELECT * FROM there WHERE apart = 1), "                              \
	PG_BEHIND ", " PG_HOLD ", "                                                                \
	PG_FITTING("met " PG_BEHIND_NOTHING, "seq") ", " CLAIM_THEM                                \
	"SELECT c.*, n.met FROM (SELECT count(*) AS met FROM chosen) AS n "                        \
	"LEFT JOIN claimed AS c ON true"

#define EARLIER(condition)                                                                         \
	"EXISTS (SELECT FROM {schema}{table} AS b WHERE b.key = t.key AND b.topic = t.topic "      \
	"AND b.namespace = t.namespace AND b.seq < t.seq AND " condition ")"
#define BLOCKED "$11::boolean AND key IS NOT NULL AND " EARLIER("b.status = 'dead'")
#define EXPIRED                                                                                    \
	"FROM {schema}{table} AS t WHERE status = '{active}' AND locked_until < " PG_AT            \
	" AND attempts >= $9::bigint AND " PG_SCOPE

/*
 * The earliest of its key: the others wait for it. Those behind one that blocks are
 * held, all of them: an expired lease would count as unfinished work without end.
 */
#define CLAIM_EXPIRED                                                                              \
	PG_WITH_NOW ", blocked AS MATERIALIZED (SELECT ctid AS place " EXPIRED "AND " BLOCKED      \
	" ORDER BY locked_until LIMIT 500 FOR UPDATE SKIP LOCKED), "                               \
	"held AS (UPDATE {schema}{table} SET status = 'pending', apart = 2, "                      \
	"locked_by = NULL, locked_until = NULL, updated_at = " PG_AT                               \
	" WHERE ctid = ANY (ARRAY(SELECT place FROM blocked))), "                                  \
	"chosen AS MATERIALIZED (SELECT ctid AS place, seq, CASE WHEN attempts < $5::int THEN " PG_BYTES \
	" ELSE 0 END AS bytes " EXPIRED                                                            \
	"AND (key IS NULL OR $12::boolean OR (NOT " EARLIER("b.apart = 1 AND b.status IN ('pending', '{active}')") \
	" AND NOT " EARLIER("b.apart = 2 AND b.status = 'pending'") ")) "                          \
	"AND NOT (" BLOCKED ") "                                                                   \
	"ORDER BY locked_until, seq LIMIT $4::int FOR UPDATE SKIP LOCKED), "                       \
	PG_FITTING("chosen", "seq") ", " CLAIM_THEM                                                \
	"SELECT c.*, 0::bigint FROM claimed AS c"

const char *pr_pgsql_claim_sql(enum pgsql_slot slot)
{
	switch (slot) {
	case PG_CLAIM_SCHEDULED:
		return CLAIM_ITSELF;
	case PG_CLAIM_UNKEYED:
		return CLAIM_TURN;
	case PG_CLAIM_EXPIRED:
		return CLAIM_EXPIRED;
	default:
		return pr_pgsql_lanes_sql(slot);
	}
}

static enum pgsql_slot slot_of(struct pgsql_store *store, const struct pr_claim *claim,
			       enum pgsql_path path, int64_t *ret_low_water)
{
	static const enum pgsql_slot slots[] = { [PG_PATH_SCHEDULED] = PG_CLAIM_SCHEDULED,
						 [PG_PATH_UNKEYED] = PG_CLAIM_UNKEYED,
						 [PG_PATH_EXPIRED] = PG_CLAIM_EXPIRED };

	return path == PG_PATH_LANES ? pr_pgsql_lanes_slot(store, claim, ret_low_water) : slots[path];
}

/* The server counts the bytes; that it has not to count far is what the messages before are for. */
static int32_t limit_for(const struct pgsql_store *store, const struct pr_claim *claim,
			 size_t have)
{
	size_t fit = store->message_bytes ? claim->max_bytes / store->message_bytes : SIZE_MAX;
	size_t wanted = (size_t)claim->limit - have;

	if (fit < 1)
		fit = 1;
	return (int32_t)(fit < wanted ? fit : wanted);
}

static size_t size_of(const postroom_delivery *item)
{
	return item->withheld ? item->withheld :
				item->payload_len + item->body_len + strlen(item->headers);
}

/* The largest of this batch, or half of what was remembered: quick to shrink, slow to grow. */
static void learn_size(struct pgsql_store *store, const struct postroom_batch *batch)
{
	size_t largest = 1;

	for (size_t i = 0; i < batch->count; i++) {
		size_t bytes = size_of(&batch->items[i]);

		if (bytes > largest)
			largest = bytes;
	}
	if (batch->count > 0)
		store->message_bytes = largest > store->message_bytes / 2 ? largest :
									    store->message_bytes / 2;
}

/* Whether the arm goes on where its last batch ended. Few are set apart, and not in order. */
static void choose_start(struct pgsql_store *store, enum pgsql_path path)
{
	struct pgsql_path_state *path_state = &store->path_state[path];

	path_state->from_resume = path != PG_PATH_SCHEDULED && path_state->busy &&
			     pr_mono_us() < path_state->head_due_us;
}

/* Where the arm starts to read: at a number, or at one for each lane. */
static void add_start(struct pgsql_store *store, const struct pr_scope *scope,
		      enum pgsql_slot slot, struct pgsql_path_claim *path_claim)
{
	bool from_resume = store->path_state[path_claim->path].from_resume;

	if (path_claim->path == PG_PATH_SCHEDULED) {
		pr_pgsql_number(&path_claim->params, 0);
		return;
	}
	if (path_claim->path == PG_PATH_UNKEYED) {
		pr_pgsql_number(&path_claim->params,
				from_resume ? store->resume_us : pr_pgsql_scope_low_water(store, scope));
		return;
	}
	pr_buf_reset(&path_claim->starts);
	pr_buf_reset(&path_claim->epochs);
	for (size_t lane = 1; from_resume && lane <= PG_LANES; lane++) {
		pr_pgsql_array_add_number(&path_claim->starts, store->resume_seq[lane]);
		pr_pgsql_array_add_number(&path_claim->epochs, store->epochs[lane]);
	}
	pr_pgsql_array_end(&path_claim->starts);
	pr_pgsql_text(&path_claim->params,
		      slot == PG_CLAIM_FAST ? store->low_water.data : path_claim->starts.data);
}

/* One arm's question. bound: for expired leases, how many attempts they must have had. */
static int build_path_claim(struct pgsql_store *store, const struct pr_claim *claim, enum pgsql_path path,
	       int32_t limit, int64_t bound, struct pgsql_path_claim *path_claim, struct pr_err *err)
{
	struct pgsql_params *params = &path_claim->params;
	enum pgsql_slot slot;
	int64_t floor;

	path_claim->path = path;
	path_claim->limit = limit;
	path_claim->begun_us = pr_mono_us();
	path_claim->reason = path == PG_PATH_EXPIRED ? EXPIRED_REASON : NULL;
	params->count = 0;
	pr_buf_reset(&path_claim->pattern);
	if (!pr_pgsql_add_scope(params, &claim->scope, &path_claim->pattern))
		return pr_err_nomem(err);
	pr_pgsql_number(params, limit);
	pr_pgsql_number(params, claim->max_attempts);
	pr_pgsql_text(params, store->base.worker);
	pr_pgsql_number(params, claim->lease_ms);
	pr_pgsql_text(params, path_claim->reason);
	if (path != PG_PATH_EXPIRED)
		choose_start(store, path);
	slot = slot_of(store, claim, path, &floor);
	if (path == PG_PATH_EXPIRED)
		pr_pgsql_number(params, bound);
	else
		add_start(store, &claim->scope, slot, path_claim);
	pr_pgsql_number(params, claim->max_bytes < INT64_MAX ? (int64_t)claim->max_bytes : INT64_MAX);
	if (path == PG_PATH_UNKEYED)
		pr_pgsql_number(params, store->path_state[path].from_resume ? store->resume_seq[0] : 0);
	else
		pr_pgsql_text(params, claim->block && !claim->unordered ? "t" : "f");
	if (path == PG_PATH_SCHEDULED || path == PG_PATH_EXPIRED)
		pr_pgsql_text(params, claim->unordered ? "t" : "f");
	if (path == PG_PATH_LANES) {
		bool from_resume = store->path_state[path].from_resume;

		pr_pgsql_array_end(&path_claim->epochs);
		if (slot == PG_CLAIM_FAST) {
			pr_pgsql_text(params, store->passed.len > 0 ? store->passed.data : NULL);
			pr_pgsql_number(params, floor);
		} else {
			pr_pgsql_text(params, path_claim->epochs.data);
			pr_pgsql_text(params, from_resume ? store->head_snapshot.data : NULL);
		}
		pr_pgsql_text(params, pr_pgsql_lanes_to_read(store, !from_resume));
		pr_pgsql_number(params, pr_pgsql_lane_quota(store, limit));
		pr_pgsql_number(params, store->lanes_wanted);
		pr_pgsql_text(params, pr_pgsql_scope_low_water_lanes(store, &claim->scope));
	}
	if (path_claim->starts.failed || path_claim->epochs.failed ||
	    (path == PG_PATH_LANES && store->lanes.failed))
		return pr_err_nomem(err);
	path_claim->step = (struct pgsql_step){ .slot = slot,
					    .sql = pr_pgsql_claim_sql(slot),
					    .params = params,
					    .binary = true };
	return POSTROOM_OK;
}

static void release_path_claims(struct pgsql_path_claim *path_claim)
{
	pr_buf_release(&path_claim->pattern);
	pr_buf_release(&path_claim->starts);
	pr_buf_release(&path_claim->epochs);
}

/* The last of an answer that comes in any order. */
static void set_resume(struct pgsql_store *store, const PGresult *result)
{
	store->resume_us = store->resume_seq[0] = 0;
	for (int row = 0; row < PQntuples(result); row++) {
		int64_t due_us = pr_pgsql_read_time(result, row, PG_COL_DUE);
		int64_t seq = pr_pgsql_read_int8(result, row, PR_COL_SEQ);

		if (due_us > store->resume_us || (due_us == store->resume_us && seq > store->resume_seq[0])) {
			store->resume_us = due_us;
			store->resume_seq[0] = seq;
		}
	}
}

static void remember_resume(struct pgsql_store *store, const struct pgsql_path_claim *path_claim,
		     const PGresult *result, int64_t met, size_t count)
{
	struct pgsql_path_state *path_state = &store->path_state[path_claim->path];
	int64_t now_us = pr_mono_us();
	int64_t took_us = now_us - path_claim->begun_us, pause_us = took_us * HEAD_SHARE;
	bool many_keys = store->many_keys;

	if (path_claim->path == PG_PATH_UNKEYED && count > 0)
		set_resume(store, result);
	if (path_claim->path == PG_PATH_LANES)
		pr_pgsql_learn_lanes(store, path_claim, result, met, count);
	if (path_claim->path != PG_PATH_SCHEDULED && !path_state->from_resume)
		store->scan_us = took_us;
	if (!path_state->from_resume)
		path_state->head_due_us = now_us + (pause_us < REREAD_US ? pause_us : REREAD_US);
	path_state->busy = met >= path_claim->limit;
	/* In the lanes never past what was left there: see lane.c. */
	if (path_claim->path == PG_PATH_LANES)
		path_state->busy &= (size_t)met == count && store->many_keys == many_keys &&
				 !store->lanes.failed && !store->head_snapshot.failed;
	path_state->skip = met == 0 && !(path_claim->path == PG_PATH_LANES && store->blocked) ? QUIET_CLAIMS : 0;
	if (path_claim->path == PG_PATH_LANES && PQntuples(result) > 0) {
		/* A scan of a few lanes does not show the state of the others. */
		if (!path_state->from_resume && !PQgetisnull(result, 0, PG_COL_EXPIRED))
			store->none_expired = !*PQgetvalue(result, 0, PG_COL_EXPIRED);
		if (!*PQgetvalue(result, 0, PG_COL_IS_DUE))
			store->path_state[PG_PATH_SCHEDULED].skip = QUIET_CLAIMS;
	}
	if (count >= (size_t)path_claim->limit)
		store->first_path = (path_claim->path + 1) % PG_ROTATING_PATHS;
}

/* The claim is committed: if the history cannot be written, it has a gap. */
static void note_takeovers(struct pgsql_store *store, const struct pr_table *table,
			   const struct postroom_batch *batch, size_t live, size_t dead_letters)
{
	struct pr_err ignored;

	pr_pgsql_note_takeovers(store, table, batch->items + live, batch->count - live,
				PR_TAKEOVER_REASON, &ignored);
	pr_pgsql_note_takeovers(store, table, batch->dead_letters + dead_letters, batch->dead_letter_count - dead_letters,
				EXPIRED_REASON, &ignored);
}

/* Takes the answer over into the batch. *ret_met: how many were met, taken or not. */
static int add_to_batch(struct pgsql_store *store, const struct pr_table *table, bool unordered,
		  struct pgsql_path_claim *path_claim, struct postroom_batch *batch, int64_t *ret_met,
		  struct pr_err *err)
{
	PGresult *result = path_claim->step.result;
	size_t before = batch->count, dead_letters = batch->dead_letter_count;
	int status;

	path_claim->step.result = NULL;
	if (path_claim->path == PG_PATH_UNKEYED)
		*ret_met = PQntuples(result); /* nothing is met there that is not taken */
	else
		*ret_met = PQntuples(result) ? pr_pgsql_read_int8(result, 0, PG_COL_MET) : 0;
	status = pr_pgsql_read_batch(table, result,
			       path_claim->path == PG_PATH_LANES && store->kind == PR_LEASE_LANE,
			       path_claim->reason, batch, err);
	for (size_t i = before; i < batch->count; i++)
		batch->items[i].unordered = unordered;
	if (status >= 0 && path_claim->path != PG_PATH_EXPIRED)
		remember_resume(store, path_claim, result, *ret_met, batch->count - before);
	/* Until the next look for them. */
	else if (status >= 0 && batch->count == before && batch->dead_letter_count == dead_letters)
		store->none_expired = true;
	else if (status >= 0)
		note_takeovers(store, table, batch, before, dead_letters);
	return status;
}

static int run_path(struct pgsql_store *store, const struct pr_table *table,
		   const struct pr_claim *claim, enum pgsql_path path, int32_t limit, int64_t bound,
		   struct postroom_batch *batch, int64_t *ret_met, struct pr_err *err)
{
	struct pgsql_path_claim path_claim = { 0 };
	int status = build_path_claim(store, claim, path, limit, bound, &path_claim, err);

	if (status >= 0) {
		path_claim.step.result = pr_pgsql_run(store, path_claim.step.slot, table, path_claim.step.sql,
						  &path_claim.params, true, "claiming messages", err);
		status = path_claim.step.result ?
				 add_to_batch(store, table, claim->unordered, &path_claim, batch, ret_met, err) :
				 err->status;
	}
	release_path_claims(&path_claim);
	return status;
}

/*
 * Where lanes are leased, what waits is in one of them, with a key or without. In a
 * table without lanes everything is set apart.
 */
static bool uses_unkeyed_path(const struct pgsql_store *store, const struct pr_table *table,
		     enum pgsql_path path)
{
	if (!table->lanes)
		return path == PG_PATH_SCHEDULED;
	return path != PG_PATH_UNKEYED || store->kind == PR_LEASE_ROW;
}

/* All that was met had to be parked: there may be more behind it. */
#define PARKING_ROUNDS 8

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

static int claim_path(struct pgsql_store *store, const struct pr_table *table,
		     const struct pr_claim *whole, enum pgsql_path path,
		     struct postroom_batch *batch, struct pr_err *err)
{
	const struct pr_claim rest = rest_of(whole, batch), *claim = &rest;
	size_t before = batch->count;
	int64_t met = 0;
	int status;

	for (int round = 0; round < PARKING_ROUNDS; round++) {
		int32_t limit = limit_for(store, claim, before);
		bool in_part = store->path_state[path].busy || (path == PG_PATH_LANES && store->many_keys);

		status = run_path(store, table, claim, path, limit, 0, batch, &met, err);
		if (status < 0 || batch->count > before || batch->dead_letter_count > 0)
			return status;
		if (met < limit && !in_part && !(path == PG_PATH_LANES && store->blocked))
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

static int claim_paths(struct pgsql_store *store, const struct pr_table *table,
		      const struct pr_claim *claim, struct postroom_batch *batch,
		      struct pr_err *err)
{
	enum pgsql_path first = store->first_path;
	bool was_quiet[PG_ROTATING_PATHS];
	int status = POSTROOM_OK;

	store->first_path = PG_PATH_SCHEDULED;
	for (int path = 0; path < PG_ROTATING_PATHS; path++)
		was_quiet[path] = is_quiet(&store->path_state[path]);
	/* The quiet ones have their turn when there is nothing else. */
	for (int quiet = 0; quiet < 2 && batch->count == 0; quiet++) {
		for (int i = 0; i < PG_ROTATING_PATHS; i++) {
			enum pgsql_path path = (first + i) % PG_ROTATING_PATHS;

			if (batch->count == (size_t)claim->limit)
				break;
			if (!uses_unkeyed_path(store, table, path) || was_quiet[path] != quiet)
				continue;
			status = claim_path(store, table, claim, path, batch, err);
			/* Dead letters fill no batch: they are reported, and the next claim reads the rest. */
			if (status < 0 || (batch->count == 0 && batch->dead_letter_count > 0))
				return status;
		}
	}
	sort_by_due(batch);
	return status;
}

static int claim_expired(struct pgsql_store *store, const struct pr_table *table,
			 const struct pr_claim *claim, struct postroom_batch *batch,
			 struct pr_err *err)
{
	int status = table->lanes ? pr_pgsql_take_over(store, table, err) : POSTROOM_OK;
	int64_t met;

	if (status >= 0)
		status = run_path(store, table, claim, PG_PATH_EXPIRED, 1, 0, batch, &met, err);
	return status;
}

/* Unblocks the messages behind dead letters, unless dead letters block their key. */
static int unblock_dead_letter_keys(struct pgsql_store *store, const struct pr_table *table, bool block,
		       struct postroom_batch *batch, struct pr_err *err)
{
	if (block || batch->dead_letter_count == 0)
		return POSTROOM_OK;
	return pr_pgsql_free_keys(store, table, batch->dead_letters, batch->dead_letter_count, err);
}

static int claim_alone(struct postroom_store *base, const struct pr_table *table,
		       const struct pr_claim *claim, struct postroom_batch *batch,
		       struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int status = pr_pgsql_force_index_scans(store, err);

	if (status >= 0 && table->lanes)
		status = pr_pgsql_load_lease_kind(store, err);
	if (status >= 0 && table->lanes)
		status = pr_pgsql_raise_low_water(store, &claim->scope, err);
	if (status >= 0 && claim->reclaim_expired)
		status = claim_expired(store, table, claim, batch, err);
	if (status >= 0 && batch->count == 0 && batch->dead_letter_count == 0)
		status = claim_paths(store, table, claim, batch, err);
	if (status >= 0)
		status = unblock_dead_letter_keys(store, table, claim->block, batch, err);
	if (status < 0)
		pr_batch_reset(batch);
	else
		learn_size(store, batch);
	return status;
}

/* The claim of a settle and claim: the claim paths in their order. */
struct pgsql_next {
	struct pgsql_path_claim path_claim[PG_ROTATING_PATHS];
	size_t count;
};

static int add_claim_step(struct pgsql_store *store, const struct pr_claim *claim, enum pgsql_path path,
		    int32_t limit, struct pgsql_settling *settling, struct pgsql_next *next,
		    struct pr_err *err)
{
	struct pgsql_path_claim *path_claim;
	int status;

	pr_assert(next->count < PG_ROTATING_PATHS);
	path_claim = &next->path_claim[next->count++];
	status = build_path_claim(store, claim, path, limit, 0, path_claim, err);
	pr_pgsql_add_step(settling, path_claim->step);
	return status;
}

/* The arms whose turn it is, in their order. */
static size_t paths_in_order(struct pgsql_store *store, const struct pr_table *table,
			   enum pgsql_path arms[PG_ROTATING_PATHS])
{
	size_t count = 0;

	for (int i = 0; i < PG_ROTATING_PATHS; i++) {
		enum pgsql_path path = (store->first_path + i) % PG_ROTATING_PATHS;

		if (!is_quiet(&store->path_state[path]) && uses_unkeyed_path(store, table, path))
			arms[count++] = path;
	}
	return count;
}

/*
 * Of each but the last half of what is left is asked for, or one part in so many where the arm
 * did not fill its last one; of the last, the rest.
 */
#define PART 16

static int add_paths(struct pgsql_store *store, const struct pr_table *table,
		    const struct pr_claim *claim, struct pgsql_settling *settling,
		    struct pgsql_next *next, struct pr_err *err)
{
	enum pgsql_path arms[PG_ROTATING_PATHS];
	size_t count = paths_in_order(store, table, arms);
	int32_t limit = limit_for(store, claim, 0), left = limit;

	if (count > 0)
		store->first_path = PG_PATH_SCHEDULED;
	for (size_t i = 0; i < count && left > 0; i++) {
		int32_t parts = store->path_state[arms[i]].busy ? 2 : PART;
		int32_t share = i + 1 == count ? left : (left + parts - 1) / parts;
		struct pr_claim part = *claim;

		part.max_bytes = claim->max_bytes / (size_t)limit * (size_t)share;
		if (add_claim_step(store, &part, arms[i], share, settling, next, err) < 0)
			return err->status;
		left -= share;
	}
	return POSTROOM_OK;
}

/* Adds what the next batch is to be asked for, if anything. */
static int add_next_claim(struct pgsql_store *store, const struct pr_table *table,
		      const struct pr_claim *claim, struct pgsql_settling *settling,
		      struct pgsql_next *next, struct pr_err *err)
{
	/* Only the lanes path reports expired leases together with its claim. */
	if (!claim->reclaim_expired || (table->lanes && store->none_expired))
		return add_paths(store, table, claim, settling, next, err);
	if (table->lanes && store->kind == PR_LEASE_LANE)
		pr_pgsql_add_step(settling, pr_pgsql_taking_over(&settling->no_params));
	return add_claim_step(store, claim, PG_PATH_EXPIRED, 1, settling, next, err);
}

/* Reads the results of the steps of a settle, the next batch last. */
static int read_settle_and_claim(struct pgsql_store *store, const struct pr_table *table,
		    const struct pr_claim *claim, struct pgsql_settling *settling,
		    struct pgsql_next *next, struct postroom_batch *batch, struct pr_err *err)
{
	struct pr_err unheard;
	bool fine = true;
	int64_t met;
	int status;

	pr_assert(settling->count >= next->count);
	settling->count -= next->count;
	for (size_t i = 0; i < next->count; i++) {
		struct pgsql_path_claim *path_claim = &next->path_claim[i];

		path_claim->step = settling->steps[settling->count + i];
		fine &= add_to_batch(store, table, claim->unordered, path_claim, batch, &met, &unheard) >= 0;
	}
	/* It is committed: messages that cannot be read stay claimed until their lease expires. */
	if (!fine)
		pr_batch_reset(batch);
	status = pr_pgsql_end_settling(store, settling, err);
	if (next->count > 0) {
		sort_by_due(batch);
		unblock_dead_letter_keys(store, table, claim->block, batch, &unheard);
		learn_size(store, batch);
	}
	return status;
}

int pr_pgsql_settle_and_claim(struct postroom_store *base, const struct pr_table *table,
			      const struct pr_settle *settle, const struct pr_claim *claim,
			      struct postroom_batch *next, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	struct pgsql_settling settling = { 0 };
	struct pgsql_next asked = { 0 };
	bool lost;
	int status;

	if (!settle)
		return claim_alone(base, table, claim, next, err);
	if (!claim)
		return pr_pgsql_settle(base, table, settle, err);
	settling.items = settle->items;
	settling.item_count = settle->count;
	status = pr_pgsql_force_index_scans(store, err);
	/* Now and then: who is always busy has to learn of a change as well. */
	if (status >= 0 && table->lanes && claim->reclaim_expired)
		status = pr_pgsql_check_lease_kind(store, &lost, err);
	if (status >= 0 && table->lanes)
		status = pr_pgsql_raise_low_water(store, &claim->scope, err);
	if (status >= 0)
		status = pr_pgsql_begin_settling(store, table, settle->policy, &settling, err);
	if (status >= 0)
		status = add_next_claim(store, table, claim, &settling, &asked, err);
	if (status >= 0)
		status = pr_pgsql_run_all(store, table, settling.steps, settling.count,
					  "settling and claiming messages", err);
	if (status >= 0)
		status = read_settle_and_claim(store, table, claim, &settling, &asked, next, err);
	pr_pgsql_release_settling(&settling);
	for (size_t i = 0; i < asked.count; i++)
		release_path_claims(&asked.path_claim[i]);
	return status;
}

int pr_pgsql_sweep(struct postroom_store *base, const struct pr_table *table,
		   const struct pr_claim *claim, struct postroom_batch *batch, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int64_t met;
	int status = pr_pgsql_force_index_scans(store, err);

	if (status >= 0 && table->lanes)
		status = pr_pgsql_take_over(store, table, err);
	if (status >= 0)
		status = run_path(store, table, claim, PG_PATH_EXPIRED, claim->limit,
				 claim->max_attempts, batch, &met, err);
	if (status >= 0)
		status = pr_pgsql_free_stranded(store, table, claim->block, err);
	if (status >= 0 && table->lanes)
		status = pr_pgsql_check_below_low_water(store, err);
	if (status < 0)
		pr_batch_reset(batch);
	return status;
}

/* Held messages do not count; their blocker does. */
#define WAITING(condition)                                                                         \
	"EXISTS (SELECT FROM {schema}{table} WHERE status = 'pending' AND " condition              \
	" AND " PG_SCOPE ") "
#define LEASED_BY(kind)                                                                            \
	"(SELECT lease = '" kind "' FROM " PG_LANE("1::smallint") " AS one)"
#define UNFINISHED_APART                                                                           \
	"SELECT EXISTS (SELECT FROM {schema}{table} WHERE status = '{active}' AND " PG_SCOPE ") "  \
	"OR " WAITING("apart IN (1, 3) AND (next_attempt_at <= " PG_NOW " OR claims > 0)")
#define UNFINISHED                                                                                 \
	UNFINISHED_APART "OR " WAITING("apart = 0 AND key IS NULL AND next_attempt_at <= " PG_NOW  \
		      " AND " LEASED_BY("row"))                                                    \
	"OR " WAITING("apart = 0 AND key IS NOT NULL AND next_attempt_at <= " PG_NOW               \
		      " AND " LEASED_BY("row"))                                                    \
	"OR EXISTS (SELECT FROM " PG_ALL_LANES " AS l WHERE lease = 'lane' AND EXISTS ("           \
	"SELECT FROM {schema}{table} AS o WHERE " PG_LANE_OF("o.") " = l.lane "                    \
	"AND o.seq >= l.start_seq "                                                                    \
	"AND status = 'pending' AND apart = 0 AND next_attempt_at <= " PG_NOW " AND " PG_SCOPE PG_ONE_BY_ONE "))"

int pr_pgsql_unfinished(struct postroom_store *base, const struct pr_table *table,
			const struct pr_claim *claim, bool *ret, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };

	/* Others may have let the dead block. */
	if (pr_pgsql_free_stranded(pgsql_store(base), table, claim->block, err) < 0)
		return err->status;
	if (!pr_pgsql_add_scope(&params, &claim->scope, &pattern))
		return pr_err_nomem(err);
	result = pr_pgsql_run(pgsql_store(base), PG_UNFINISHED, table,
			      table->lanes ? UNFINISHED : UNFINISHED_APART, &params, false,
			      "looking for work", err);
	if (!result)
		return err->status;
	*ret = *PQgetvalue(result, 0, 0) == 't';
	return POSTROOM_OK;
}
