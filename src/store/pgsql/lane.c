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
 *    since, and never passes a message that was met and not claimed. It reads only keyed
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
#include "store/pgsql/pgsql.h"
#include "store/pgsql/array.h"

#include <stdlib.h>
#include <string.h>

/* Each lane's own row first, for it says where to begin. */
#define LOOKED(lease_kind, fresh, walls)                                                           \
	"looked AS MATERIALIZED (SELECT l.* FROM unnest($14::smallint[]) AS n "                    \
	"CROSS JOIN LATERAL " PG_LANE_AND(PG_START_SEQ, "n") " AS l), "                            \
	"seen AS MATERIALIZED (SELECT l.lane, epoch, CASE WHEN epoch = ($12::bigint[])[l.lane] "   \
	"THEN ($9::bigint[])[l.lane] ELSE "                                                        \
	"(SELECT seq FROM {schema}{table} AS o WHERE " PG_LANE_OF("o.") " = l.lane AND " fresh     \
	" AND o.seq >= greatest(l.start_seq, ($17::bigint[])[l.lane]) AND " PG_SCOPE                   \
	"ORDER BY o.seq LIMIT 1) END AS head FROM looked AS l WHERE lease = '" lease_kind          \
	"' AND locked_by IS NULL AND $8::text IS NULL" walls "), "
/* The more workers, the fewer lanes for each of them. */
#define SHARE                                                                                      \
	"least($16::int, CASE WHEN $15::int < $4::int AND cardinality($14::smallint[]) = 64 "      \
	"THEN (SELECT greatest(32 / (1 + count(DISTINCT locked_by)), 1) "                          \
	"FROM looked WHERE locked_by <> $6::uuid) END)"

#define EARLY_AND_BYTES                                                                            \
	"next_attempt_at > " PG_AT " OR attempts >= $5::int AS early, " PG_BYTES " AS bytes "

/* See 5. $13: the snapshot that read the heads; NULL: it is this one. */
#define VISIBLE_AT_HEADS                                                                           \
	"coalesce(age(o.xmin) > (SELECT age(least(pg_snapshot_xmax($13::pg_snapshot), "            \
	"(SELECT xid FROM pg_snapshot_xip($13::pg_snapshot) AS xid WHERE xid <> ALL (" PG_OPEN     \
	"::xid8[]) ORDER BY xid LIMIT 1))::xid)), true)"

/* seen: head and epoch of each lane. fresh: condition of the index of that kind of lease. */
#define MET(seen, fresh, columns)                                                                  \
	PG_WITH_NOW ", " seen                                                                      \
	"mine AS MATERIALIZED (SELECT l.lane, s.head, l.epoch + 1 AS epoch FROM seen AS s "        \
	"JOIN {schema}postroom_lanes AS l ON l.lane = s.lane AND l.epoch = s.epoch "               \
	"WHERE s.head IS NOT NULL AND l.locked_by IS NULL "                                        \
	"ORDER BY s.head LIMIT " SHARE " FOR UPDATE OF l SKIP LOCKED), "                           \
	"met AS MATERIALIZED (SELECT mine.epoch, o.* FROM mine CROSS JOIN LATERAL (SELECT mine.lane, ctid AS place, " \
	"next_attempt_at, " EARLY_AND_BYTES ", " columns " FROM {schema}{table} AS o WHERE " PG_LANE_OF("o.") " = mine.lane AND " fresh \
	" AND o.seq >= mine.head AND (key IS NULL OR " VISIBLE_AT_HEADS ") AND " PG_SCOPE            \
	"ORDER BY o.seq LIMIT $15::int) AS o "                                                     \
	"LIMIT $4::int), "

/*
 * Messages that must not be claimed now are held, or delayed until they are due. walls:
 * whether there can be blockers. With row leases there nearly always are, and the search for
 * one may pass many dead entries.
 */
#define HOLD_BACK(walls)                                                                           \
	"keys AS MATERIALIZED (SELECT DISTINCT key, topic, namespace, NULL::bigint[] AS mine "     \
	"FROM met WHERE key IS NOT NULL AND " walls "), " PG_BEHIND ", " PG_HOLD ", "              \
	"later AS (UPDATE {schema}{table} "                                                        \
	"SET state = CASE WHEN key IS NULL OR attempts > 0 THEN 'scheduled'::{schema}postroom_state ELSE 'delayed' END "                     \
	"WHERE ctid = ANY (ARRAY(SELECT place FROM met AS m WHERE early "                          \
	"AND NOT EXISTS (SELECT FROM behind AS b WHERE b.key = m.key AND b.topic = m.topic "       \
	"AND b.namespace = m.namespace AND b.seq < m.seq))) RETURNING " PG_LANE_OF("") " AS lane), "

#define FITTING(kept, behind_nothing)                                                              \
	"weight AS MATERIALIZED (SELECT sum(bytes) AS bytes FROM met), "                           \
	"fitting AS " kept "MATERIALIZED (SELECT * FROM met " behind_nothing                       \
	" AND NOT early AND ((SELECT bytes FROM weight) <= $10::bigint OR "                        \
	"(SELECT sum(m.bytes) <= $10::bigint OR count(*) = 1 FROM met AS m "                       \
	"WHERE (m.lane, m.seq) <= (met.lane, met.seq)))), "

#define CHANGED                                                                                    \
	"changed AS (UPDATE {schema}postroom_lanes AS l SET epoch = m.epoch FROM mine AS m "       \
	"WHERE l.lane = m.lane AND l.epoch = m.epoch - 1 "                                         \
	"AND m.lane IN (SELECT lane FROM later) AND m.lane NOT IN (SELECT lane FROM fitting)), "

#define MET_AND_CHOSEN(seen, fresh, columns, walls)                                                \
	MET(seen, fresh, columns)                                                                  \
	HOLD_BACK(walls) FITTING("", PG_BEHIND_NOTHING) CHANGED

#define ANY(condition) "EXISTS (SELECT FROM {schema}{table} WHERE " condition ")"

/* One row of facts about the scan, joined with the claimed messages. */
#define ANSWER(number, low_water, due, expired, walls)                                             \
	"SELECT c.*, n.* FROM (SELECT " number " AS met, "                                         \
	"pg_current_snapshot()::text AS snapshot, "                                                \
	low_water ", "                                                                             \
	due " AS due, " expired " AS expired, " walls " AS walls FROM met) AS n "                  \
	"LEFT JOIN claimed AS c ON false "                                                        \
	"UNION ALL SELECT *, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL "                      \
	"FROM claimed"

#define NO_MARKS "NULL::text AS floors, NULL::text AS passed, false AS passed_ended"
#define MARKS                                                                                      \
	"(SELECT array_agg(start_seq ORDER BY lane)::text FROM looked) AS floors, "                \
	"(SELECT array_agg(DISTINCT xid)::text FROM looked CROSS JOIN unnest(passed) AS xid "      \
	"WHERE xid = ANY (" PG_OPEN "::xid8[])) AS passed, "                                       \
	"(SELECT coalesce(bool_or(start_seq < low_water_seq), false) FROM looked) AS passed_ended"

#define KEYED "o.status = 'pending' AND o.state = 'ready' AND o.key IS NOT NULL"
#define CLAIM_ROWS                                                                                 \
	MET_AND_CHOSEN(LOOKED("row", KEYED, ""), KEYED, "seq, key, topic, namespace", "true")      \
	"passed AS (UPDATE {schema}postroom_lanes AS l SET epoch = f.epoch "                       \
	"FROM (SELECT DISTINCT lane, epoch FROM fitting) AS f "                                    \
	"WHERE l.lane = f.lane AND l.epoch = f.epoch - 1), "                                       \
	"epochs AS MATERIALIZED (SELECT ARRAY(SELECT mine.epoch FROM generate_series(1, 64) AS n " \
	"LEFT JOIN mine ON mine.lane = n ORDER BY n) AS each), "                                   \
	"claimed AS (UPDATE {schema}{table} SET " PG_CLAIM_SET " WHERE ctid = ANY (ARRAY("         \
	"SELECT place FROM fitting)) RETURNING {columns}, " PG_CONTENT_OF_FITTING ", status = 'dead' AS dead_lettered, " \
	PG_LANE_OF("") "::int AS of_lane, ((SELECT each FROM epochs))[" PG_LANE_OF("") "::int] "   \
	"AS of_epoch, next_attempt_at AS due, ctid AS place) "                                     \
	ANSWER("count(*)", NO_MARKS, "true", "true", "false")

#define ANY_BLOCKER                                                                                \
	"(" ANY("key IS NOT NULL AND state = 'scheduled' AND status IN ('pending', '{active}')")             \
	" OR " ANY("state = 'held' AND status = 'pending'")                                             \
	" OR ($11::boolean AND " ANY("key IS NOT NULL AND status = 'dead'") "))"

#define BLOCKERS "walls AS MATERIALIZED (SELECT " ANY_BLOCKER " AS there), "
#define BLOCKED_BY "(SELECT there FROM walls)"
#define NO_BLOCKER " AND NOT " BLOCKED_BY

#define FRESH "o.status = 'pending' AND o.state = 'ready'"
#define LEASE(from, by, returning)                                                                 \
	"leased AS (UPDATE {schema}postroom_lanes AS l SET locked_by = $6::uuid, "                 \
	"locked_until = " PG_AT " + $7::bigint * interval '1 millisecond', "                       \
	"epoch = f.epoch, in_flight = f.seqs FROM " from " AS f "                                  \
	"WHERE " by " AND l.epoch = f.epoch - 1" returning "), "
#define CLAIMED(from, withheld, size)                                                              \
	"claimed AS NOT MATERIALIZED (SELECT {columns}, " PG_CONTENT(withheld, size) ", NULL::boolean AS dead_lettered, " \
	"lane::int AS of_lane, epoch AS of_epoch, next_attempt_at AS due, place FROM " from ") "
#define ANY_DUE ANY("status = 'pending' AND state IN ('scheduled', 'delayed') AND next_attempt_at <= " PG_AT)

#define LEASE_LOOKED                                                                               \
	LEASE("(SELECT lane, epoch, array_agg(seq) AS seqs FROM fitting GROUP BY lane, epoch)",    \
	      "l.lane = f.lane", "")                                                               \
	CLAIMED("fitting", PG_IS_LARGE, "bytes")                                                   \
	ANSWER("count(*)", MARKS,                                                                  \
	       ANY_DUE, ANY("status = '{active}' AND locked_until < " PG_AT)                       \
	       " OR EXISTS (SELECT FROM looked WHERE locked_until < " PG_AT ")", BLOCKED_BY)

/*
 * Where there is little: all of it, from the floors ($9, and $13 the lowest) that hold as long
 * as none is lower by now, lane by lane; then the rows of these lanes, each found again where this
 * statement has seen it (spot). One that was rewritten meanwhile may be found in its new place or not,
 * by version and plan: so what is claimed is what was leased. To set such a statement up is most of what
 * it costs, each column in each of its parts: so what a message is made of is read at the end. If there
 * is more than may be taken, if only because of what others have in flight, nothing is: that hides the
 * rest as a wall does.
 * It takes nothing either once a transaction has ended that the marks have passed ($12).
 * $8, $15 and $16 are for other scans.
 */
#define PEEK_LOW_WATER(lane) "greatest(($9::bigint[])[" lane "], ($17::bigint[])[" lane "])"
#define PEEKED                                                                                     \
	"peeked AS MATERIALIZED (SELECT lane, count(*) AS number, sum(CASE WHEN " PG_IS_LARGE      \
	" THEN $10::bigint + 1 ELSE bytes END) AS bytes, "                                         \
	"array_agg(seq) FILTER (WHERE NOT early) AS seqs, "                                        \
	"array_agg(place) FILTER (WHERE NOT early) AS places FROM ("                               \
	"SELECT " PG_LANE_OF("o.") "::smallint AS lane, seq, ctid AS place, " EARLY_AND_BYTES      \
	"FROM {schema}{table} AS o WHERE " PG_LANE_OF("o.") " = ANY ($14::smallint[]) AND "        \
	FRESH " AND o.seq >= $13::bigint AND o.seq >= "                                            \
	PEEK_LOW_WATER(PG_LANE_OF("o.") "::smallint") " AND " PG_SCOPE                             \
	"LIMIT $4::int::bigint + 1) AS o GROUP BY lane), "
#define TOO_MANY                                                                                   \
	"(SELECT coalesce(sum(number) > $4::int, false) OR NOT coalesce($12::xid8[] <@ " PG_OPEN   \
	", true) FROM peeked)"
#define CLAIM_FEW                                                                                  \
	PG_WITH_NOW ", " BLOCKERS PEEKED                                                           \
	"seen AS MATERIALIZED (SELECT p.*, l.epoch, l.spot FROM peeked AS p "                      \
	"CROSS JOIN LATERAL " PG_LANE_AND(", ctid AS spot", "p.lane") " AS l "                     \
	"WHERE l.low_water_seq >= ($9::bigint[])[p.lane] AND lease = 'lane' AND locked_by IS NULL "        \
	"AND $8::text IS NULL AND $15::int > 0 AND $16::int > 0 "    \
	"AND NOT " TOO_MANY NO_BLOCKER "), "                                                       \
	"mine AS MATERIALIZED (SELECT s.lane, number, bytes, seqs, places, spot, "                 \
	"l.epoch + 1 AS epoch FROM seen AS s "                                                     \
	"JOIN {schema}postroom_lanes AS l ON l.ctid = s.spot AND l.epoch = s.epoch "               \
	"WHERE l.locked_by IS NULL FOR UPDATE OF l SKIP LOCKED), "                                 \
	"met AS MATERIALIZED (SELECT coalesce(sum(number), 0)::bigint AS number, "                 \
	"coalesce(sum(bytes) > $10::bigint, false) OR " TOO_MANY " AS too_much FROM mine), "       \
	LEASE("(SELECT * FROM mine WHERE seqs IS NOT NULL AND NOT (SELECT too_much FROM met))",    \
	      "l.ctid = f.spot", " RETURNING f.lane, f.epoch, f.places")                           \
	CLAIMED("(SELECT lane, epoch, unnest(places) AS place FROM leased) AS m "                  \
		"JOIN {schema}{table} AS t ON t.ctid = place", "false", "0")                       \
	ANSWER("number", NO_MARKS, ANY_DUE, "NULL::boolean", BLOCKED_BY " OR too_much")

static const char claim_rows[] = CLAIM_ROWS;
static const char claim_lanes[] =
	MET_AND_CHOSEN(BLOCKERS LOOKED("lane", FRESH, ""), FRESH, "{columns}, headers, payload, body", BLOCKED_BY)
	LEASE_LOOKED;
static const char claim_plain[] =
	MET(BLOCKERS LOOKED("lane", FRESH, NO_BLOCKER), FRESH, "{columns}, headers, payload, body")
	FITTING("NOT ", "WHERE true") LEASE_LOOKED;
static const char claim_few[] = CLAIM_FEW;

const char *pr_pgsql_lanes_sql(enum pgsql_slot slot)
{
	switch (slot) {
	case PG_CLAIM_LANES_ROW:
		return claim_rows;
	case PG_CLAIM_PLAIN:
		return claim_plain;
	case PG_CLAIM_FAST:
		return claim_few;
	default:
		return claim_lanes;
	}
}

/* A batch is small if it fills less than one part in so many. */
#define LITTLE 4

/* A scan from the lowest low-water mark passes rows of the other lanes: at most this many. */
#define PEEK_SPREAD 20000

/* How long scans check for blockers after one was found. */
#define BLOCKERS_US 500000

/* The lowest low-water mark of all lanes; false if others are much higher. */
static bool lowest_low_water(struct pgsql_store *store, const struct pr_scope *scope, int64_t *ret)
{
	const char *at = store->low_water.data, *scope_low_water = pr_pgsql_scope_low_water_lanes(store, scope);
	int64_t highest = 0;

	*ret = INT64_MAX;
	for (int lane = 0; lane < PG_LANES; lane++) {
		int64_t floor = strtoll(at + 1, (char **)&at, 10);
		int64_t other = scope_low_water ? strtoll(scope_low_water + 1, (char **)&scope_low_water, 10) : 0;

		if (other > floor)
			floor = other;
		if (floor < *ret)
			*ret = floor;
		if (floor > highest)
			highest = floor;
	}
	return highest - *ret <= PEEK_SPREAD;
}

enum pgsql_slot pr_pgsql_lanes_slot(struct pgsql_store *store, const struct pr_claim *claim,
				    int64_t *ret_low_water)
{
	if (store->kind == PR_LEASE_ROW)
		return PG_CLAIM_LANES_ROW;
	if (!store->no_blockers || pr_mono_us() < store->blockers_until_us)
		return PG_CLAIM_LANES;
	/* Not when it has to be known whether leases have run out, nor to go on where the last one ended. */
	if (store->fast_path && !claim->reclaim_expired && !store->path_state[PG_PATH_LANES].from_resume &&
	    lowest_low_water(store, &claim->scope, ret_low_water))
		return PG_CLAIM_FAST;
	return PG_CLAIM_PLAIN;
}

/* How many parts a batch is taken in where keys change all the time: see 6. */
#define PARTS 16

int64_t pr_pgsql_lane_quota(const struct pgsql_store *store, int32_t limit)
{
	return store->many_keys ? limit / PARTS + 1 : limit;
}

const char *pr_pgsql_lanes_to_read(struct pgsql_store *store, bool all)
{
	if (all) {
		pr_buf_reset(&store->lanes);
		for (int lane = 1; lane <= PG_LANES; lane++)
			pr_pgsql_array_add_number(&store->lanes, lane);
		pr_pgsql_array_end(&store->lanes);
	}
	return store->lanes.data;
}

static bool differ(const PGresult *result, int row, int column)
{
	return PQgetlength(result, row, column) != PQgetlength(result, row - 1, column) ||
	       memcmp(PQgetvalue(result, row, column), PQgetvalue(result, row - 1, column),
		      (size_t)PQgetlength(result, row, column)) != 0;
}

void pr_pgsql_learn_lanes(struct pgsql_store *store, const struct pgsql_path_claim *path_claim,
			  const PGresult *result, int64_t met, size_t count)
{
	bool known[PG_LANES + 1] = { false }, full = count >= (size_t)path_claim->limit, walls = false;
	int64_t lanes = 0;
	size_t changes = 0;

	pr_buf_reset(&store->lanes);
	for (int row = 1; row < PQntuples(result) && count > 0; row++) {
		int32_t lane = pr_pgsql_read_int4(result, row, PG_COL_LANE);
		int64_t mark = pr_pgsql_read_int8(result, row, PR_COL_SEQ) + 1;

		if (!known[lane]) {
			known[lane] = true;
			pr_pgsql_array_add_number(&store->lanes, lane);
			store->resume_seq[lane] = 0;
			lanes++;
		}
		/* The answer is in no order. */
		if (mark > store->resume_seq[lane])
			store->resume_seq[lane] = mark;
		store->epochs[lane] = pr_pgsql_read_int8(result, row, PG_COL_EPOCH);
		changes += row > 1 && (PQgetisnull(result, row, PR_COL_KEY) || differ(result, row, PR_COL_KEY));
	}
	pr_pgsql_array_end(&store->lanes);
	if (PQntuples(result) > 0 && !store->path_state[PG_PATH_LANES].from_resume) {
		pr_buf_reset(&store->head_snapshot);
		pr_buf_puts(&store->head_snapshot, PQgetvalue(result, 0, PG_COL_SNAPSHOT));
	}
	if (PQntuples(result) > 0 && !PQgetisnull(result, 0, PG_COL_LOW_WATER) &&
	    !store->path_state[PG_PATH_LANES].from_resume) {
		pr_buf_reset(&store->low_water);
		pr_buf_puts(&store->low_water, PQgetvalue(result, 0, PG_COL_LOW_WATER));
		pr_buf_reset(&store->passed);
		pr_buf_puts(&store->passed, PQgetvalue(result, 0, PG_COL_PASSED));
		pr_pgsql_note_passed_ended(store, *PQgetvalue(result, 0, PG_COL_PASSED_ENDED));
	}
	if (PQntuples(result) > 0)
		walls = *PQgetvalue(result, 0, PG_COL_BLOCKERS);
	store->blocked = walls && path_claim->step.slot != PG_CLAIM_LANES;
	if (walls)
		store->blockers_until_us = pr_mono_us() + BLOCKERS_US;
	if (store->kind == PR_LEASE_LANE)
		store->in_flight += count;
	store->since_raised += count;
	store->many_keys = full && changes > count / 2;
	/* Messages that were met and not claimed must be held or delayed. */
	store->no_blockers = met == (int64_t)count;
	store->fast_path = store->no_blockers && count * LITTLE < (size_t)path_claim->limit &&
		     store->low_water.len > 0 && !store->low_water.failed && !store->passed.failed;
	/* A full batch shows how many it takes; others may have the rest. */
	if (full)
		store->lanes_wanted = store->many_keys && lanes < PARTS ? PARTS : lanes;
	else
		store->lanes_wanted = store->lanes_wanted * 2 < PG_LANES ? store->lanes_wanted * 2 :
									   PG_LANES;
}

/*
 * mine: lanes that are still this worker's. Delivered messages leave; failed ones
 * are set apart; released ones are as they were. Where they are is known since
 * they were claimed, unless the table was rewritten: then they are found one by
 * one, by a plan that does not depend on statistics. A message that is not found stays in
 * flight, because a user may have locked it by hand, until the worker gives it up: $7.
 */
#define MINE                                                                                       \
	PG_WITH_NOW ", mine AS MATERIALIZED (SELECT l.lane, l.epoch, l.in_flight "                 \
	"FROM unnest($1::smallint[], $2::bigint[]) AS w(lane, epoch) "                             \
	"JOIN {schema}postroom_lanes AS l ON l.lane = w.lane AND l.epoch = w.epoch "               \
	"WHERE l.locked_by = $6::uuid ORDER BY l.lane FOR UPDATE OF l), "
/* By their places: the rest is in a form that fits no index, for the planner to get nothing wrong. */
#define GONE(columns)                                                                              \
	"gone AS (DELETE FROM {schema}{table} AS t "                                               \
	"USING unnest($3::smallint[], $4::bigint[], $5::tid[]) AS v(lane, seq, place) "            \
	"WHERE v.lane = ANY (ARRAY(SELECT lane FROM mine)) AND t.ctid = v.place "                  \
	"AND CASE WHEN t.seq = v.seq THEN t.status = 'pending' AND t.state = 'ready' END "               \
	"RETURNING t.seq" columns "), "
#define FOUND(v)                                                                                   \
	"(SELECT ctid FROM {schema}{table} AS o WHERE o.status = 'pending' AND o.state = 'ready' "       \
	"AND " PG_LANE_OF("o.") " = " v ".lane AND o.seq = " v ".seq LIMIT 1)"

#define SETTLE_LANES(columns, kept)                                                                \
	MINE GONE(columns)                                                                         \
	"moved AS (DELETE FROM {schema}{table} AS t WHERE ctid = ANY (ARRAY("                      \
	"SELECT " FOUND("v") " FROM unnest($3::smallint[], $4::bigint[]) AS v(lane, seq) "         \
	"JOIN mine USING (lane) WHERE (SELECT count(*) FROM gone) < cardinality($4))) "            \
	"RETURNING t.seq" columns "), "                                                            \
	kept("(SELECT * FROM gone UNION ALL SELECT * FROM moved) AS left_now")                     \
	"ours AS MATERIALIZED (SELECT v.*, " FOUND("v") " AS place FROM unnest("                   \
	"$8::smallint[], $9::bigint[], $10::int[], $11::text[], $12::bigint[]) "                   \
	"AS v(lane, seq, disposition, reason, delay) JOIN mine USING (lane)), "                           \
	"changed AS (UPDATE {schema}{table} AS t SET "                                             \
	"status = CASE v.disposition WHEN 3 THEN 'dead' ELSE 'pending' END, "                             \
	"attempts = attempts + (v.disposition > 0)::int, claims = claims + (v.disposition > 0)::int, "           \
	"state = CASE WHEN v.disposition > 0 THEN 'scheduled'::{schema}postroom_state ELSE 'ready' END, next_attempt_at = CASE v.disposition WHEN 2 "                         \
	"THEN " PG_AT " + v.delay * interval '1 millisecond' ELSE next_attempt_at END, "           \
	"last_error = v.reason, "                                                                  \
	"last_attempt_at = CASE WHEN v.disposition > 0 THEN " PG_AT " ELSE last_attempt_at END, "         \
	"updated_at = " PG_AT " FROM ours AS v WHERE t.seq = v.seq AND t.ctid = ANY (ARRAY("       \
	"SELECT place FROM ours WHERE disposition > 1 OR (disposition = 0 AND reason IS NOT NULL))) "            \
	"RETURNING t.seq), "                                                                       \
	"settled AS MATERIALIZED (SELECT seq FROM gone UNION ALL SELECT seq FROM moved "           \
	"UNION ALL SELECT seq FROM changed "                                                       \
	"UNION ALL SELECT seq FROM ours WHERE disposition = 0 AND reason IS NULL), "                      \
	"rest AS MATERIALIZED (SELECT lane, epoch, nullif(ARRAY("                                  \
	"SELECT unnest(in_flight) EXCEPT SELECT seq FROM settled "                                 \
	"EXCEPT SELECT unnest($4::bigint[] || $9::bigint[]) WHERE $7::boolean), "                  \
	"'{}') AS seqs FROM mine), "                                                               \
	"let_go AS (UPDATE {schema}postroom_lanes AS l SET in_flight = rest.seqs, "                \
	"locked_by = CASE WHEN rest.seqs IS NOT NULL THEN l.locked_by END, "                       \
	"locked_until = CASE WHEN rest.seqs IS NOT NULL THEN l.locked_until END "                  \
	"FROM rest WHERE l.lane = rest.lane AND l.epoch = rest.epoch) "                            \
	"SELECT array_agg(seq) FROM settled"

/*
 * Nearly always everything was delivered, is where it was, and all that this worker has.
 * Where it is not, or a lane is lost, the lanes stay leased, and the statement above follows.
 * All places are read at once, in the order of the table, and each row is known by its seq: one
 * that has a seq of those delivered at a place of theirs is the version that was claimed, for
 * every change would have moved it.
 */
#define SETTLE_DELIVERED(kept)                                                                     \
	MINE                                                                                       \
	"gone AS (DELETE FROM {schema}{table} AS t WHERE t.ctid = ANY ("                           \
	"CASE WHEN (SELECT count(*) FROM mine) = cardinality($1) THEN $5::tid[] END) "             \
	"AND t.seq = ($4::bigint[])[width_bucket(t.seq, $4::bigint[])] "                           \
	"AND $3::smallint[] IS NULL RETURNING t.seq), "                                            \
	"known AS MATERIALIZED (SELECT array_agg(seq) AS seqs, "                                   \
	"count(*) = cardinality($4) AS whole FROM gone), " kept                                    \
	"let_go AS (UPDATE {schema}postroom_lanes AS l SET in_flight = NULL, "                     \
	"locked_by = NULL, locked_until = NULL FROM mine WHERE l.lane = mine.lane "                \
	"AND l.epoch = mine.epoch AND (SELECT whole FROM known)) "                                 \
	"SELECT seqs FROM known"

#define HISTORY                                                                                    \
	", id, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, "            \
	"body, content_type, headers, attempts + 1 AS attempts, claims + 1 AS claims, "            \
	"next_attempt_at, " PG_AT " AS last_attempt_at, created_at, " PG_AT " AS delivered_at"
#define KEEP(gone)                                                                                 \
	"kept AS (INSERT INTO {schema}postroom_history (" PG_HISTORY_COLUMNS ") "                  \
	"SELECT " PG_HISTORY_COLUMNS " FROM " gone "), "
#define FORGET(gone) ""
/*
 * Rows as the snapshot has them, but only deleted ones: a user may have locked one by hand.
 * Nearly always all were deleted, and no seq has to be compared.
 */
#define KEEP_GONE                                                                                  \
	KEEP("(SELECT t.seq" HISTORY " FROM {schema}{table} AS t WHERE t.ctid = ANY ($5::tid[]) "  \
	     "AND CASE WHEN (SELECT whole FROM known) THEN true "                                  \
	     "ELSE t.seq IN (SELECT seq FROM gone) END) AS left_now")

struct pgsql_step pr_pgsql_settling_lanes(bool delivered, bool forget)
{
	static const struct pgsql_step steps[2][2] = {
		{ { .slot = PG_SETTLE_LANES_KEEP, .sql = SETTLE_LANES(HISTORY, KEEP) },
		  { .slot = PG_SETTLE_LANES, .sql = SETTLE_LANES("", FORGET) } },
		{ { .slot = PG_SETTLE_DELIVERED_KEEP, .sql = SETTLE_DELIVERED(KEEP_GONE) },
		  { .slot = PG_SETTLE_DELIVERED, .sql = SETTLE_DELIVERED("") } },
	};

	return steps[delivered][forget];
}

const char pr_pgsql_renew_lanes[] =
	PG_WITH_NOW " UPDATE {schema}postroom_lanes AS l SET "
	"locked_until = " PG_AT " + $4::bigint * interval '1 millisecond' "
	"FROM unnest($1::smallint[], $2::bigint[]) AS w(lane, epoch) "
	"WHERE l.lane = w.lane AND l.epoch = w.epoch AND l.locked_by = $3::uuid "
	"RETURNING l.lane::bigint";

#define TAKE_OVER                                                                                  \
	PG_WITH_NOW ", lost AS MATERIALIZED (SELECT lane, locked_by, locked_until, in_flight "     \
	"FROM {schema}postroom_lanes WHERE locked_until < " PG_AT                                  \
	" FOR UPDATE SKIP LOCKED), "                                                               \
	"left_behind AS (UPDATE {schema}{table} AS t SET status = '{active}', "                    \
	"attempts = attempts + 1, claims = claims + 1, state = 'scheduled', locked_by = v.locked_by, "       \
	"locked_until = v.locked_until, last_attempt_at = v.locked_until, updated_at = " PG_AT     \
	" FROM lost AS v WHERE " PG_LANE_OF("t.") " = v.lane AND t.ctid = ANY (ARRAY("             \
	"SELECT " FOUND("w") " FROM (SELECT lane, unnest(in_flight) AS seq FROM lost) AS w))) "    \
	"UPDATE {schema}postroom_lanes SET locked_by = NULL, locked_until = NULL, "                \
	"in_flight = NULL, epoch = epoch + 1 WHERE lane IN (SELECT lane FROM lost)"

struct pgsql_step pr_pgsql_taking_over(struct pgsql_params *no_params)
{
	return (struct pgsql_step){ .slot = PG_TAKE_OVER, .sql = TAKE_OVER, .params = no_params };
}

int pr_pgsql_take_over(struct pgsql_store *store, const struct pr_table *table,
		       struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	bool lost;
	int status = pr_pgsql_check_lease_kind(store, &lost, err);

	if (status < 0 || !lost)
		return status;
	result = pr_pgsql_run(store, PG_TAKE_OVER, table, TAKE_OVER, &params, false,
			      "taking over lanes", err);
	return result ? POSTROOM_OK : err->status;
}
