/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settling and renewing (A1–A4, A6, A7).
 *
 * 1. A fencing token guards every change. For row leases it is claims, which only
 *    grows, together with locked_by (claims alone if a handler settles the claim of its
 *    worker). For lane leases it is the lane's epoch, together with locked_by. A late
 *    ack of an earlier claim changes nothing.
 * 2. All verdicts of a batch are one transaction.
 * 3. A lost lease is reported, never repaired.
 * 4. A finished message unblocks the messages held behind it, in a later statement of
 *    the same transaction. The claim that held one of them had a share lock on the
 *    blocker until its commit, so that statement sees the held message.
 */
#include "base/assert.h"
#include "store/pgsql/array.h"
#include "store/pgsql/statements.h"

#include <stdlib.h>
#include <string.h>

/* So many of a key are freed at a time: as many as a batch may take. */
#define RUN "500"

/* Of messages with leases of their own, of their keys, of those leased by lanes. */
enum {
	ARRAY_ROW,
	ARRAY_FENCING_TOKEN,
	ARRAY_DISPOSITION,
	ARRAY_REASON,
	ARRAY_DELAY,
	ARRAY_KEY,
	ARRAY_TOPIC,
	ARRAY_NAMESPACE,
	ARRAY_LANE,
	ARRAY_EPOCH,
	ARRAY_DONE_LANE,
	ARRAY_DONE_SEQ,
	ARRAY_DONE_CTID,
	ARRAY_OF_LANE,
	ARRAY_SEQ,
	ARRAY_LANE_DISPOSITION,
	ARRAY_LANE_REASON,
	ARRAY_LANE_DELAY,
	ARRAYS_OF_LEASES,
	ARRAY_FAILED_HANDLER = ARRAYS_OF_LEASES,
	ARRAY_FAILED_ID,
	ARRAY_FAILED_NUMBER,
	ARRAY_FAILED_DURATION,
	ARRAY_FAILED_ERROR,
	ARRAYS
};
_Static_assert(ARRAYS == PG_SETTLE_ARRAYS, "pgsql.h has room for them");

/*
 * One look into a unique index for each, whatever the statistics say: nothing
 * here can be hashed or merged, and nothing is said of the table's rows alone,
 * or a planner that takes them for few compares each message with all of them.
 */
#define ROWS                                                                                       \
	"FROM unnest($1::{row_type}[], $2::bigint[], $3::int[], $4::text[], $5::bigint[]) "        \
	"WITH ORDINALITY AS v(row, fence, disposition, reason, delay, n) "                         \
	"WHERE t.{row} = ANY (ARRAY[v.row]) AND CASE WHEN t.claims = v.fence "                     \
	"THEN t.status = '{active}' AND t.locked_by = coalesce($6::uuid, t.locked_by) END "        \
	"RETURNING v.n"

/* In the order of enum pr_disposition: 0 release, 1 done, 2 retry, 3 dead. */
#define SETTLE                                                                                     \
	PG_WITH_NOW " UPDATE {schema}{table} AS t SET "                                            \
	"status = (ARRAY['pending', '{done}', 'pending', 'dead'])[v.disposition + 1], "                   \
	"attempts = CASE v.disposition WHEN 0 THEN greatest(attempts - 1, 0) ELSE attempts END, "         \
	"next_attempt_at = CASE v.disposition WHEN 2 "                                                    \
	"THEN " PG_AT " + v.delay * interval '1 millisecond' ELSE next_attempt_at END, "           \
	"last_error = CASE v.disposition WHEN 1 THEN NULL WHEN 0 THEN coalesce(v.reason, last_error) "    \
	"ELSE v.reason END, "                                                                      \
	"{done_at} = CASE v.disposition WHEN 1 THEN " PG_AT " ELSE {done_at} END, "                       \
	"locked_by = NULL, locked_until = NULL, updated_at = " PG_AT " " ROWS

#define RENEW                                                                                      \
	PG_WITH_NOW " UPDATE {schema}{table} AS t SET "                                            \
	"locked_until = " PG_AT " + v.delay * interval '1 millisecond', "                          \
	"updated_at = " PG_AT " " ROWS

_Static_assert(PR_DISPOSITION_RELEASE == 0 && PR_DISPOSITION_DONE == 1 && PR_DISPOSITION_RETRY == 2 && PR_DISPOSITION_DEAD == 3,
	       "SETTLE counts on this order");

/*
 * Where lanes are leased, what was delivered leaves at once, also what was claimed by itself. By its
 * name: the rest is in a form that fits no index.
 */
#define MOVE                                                                                       \
	"WITH gone AS (DELETE FROM {schema}{table} WHERE id = ANY ($1::uuid[]) "                   \
	"AND CASE WHEN claims > 0 THEN status = '{done}' END RETURNING " PG_HISTORY_COLUMNS ") "   \
	"INSERT INTO {schema}postroom_history (" PG_HISTORY_COLUMNS ") "                           \
	"SELECT * FROM gone WHERE $2::boolean"

#define FREE                                                                                       \
	" UPDATE {schema}{table} SET state = 'scheduled' WHERE ctid = ANY (ARRAY("                           \
	"SELECT h.place FROM keys AS k CROSS JOIN LATERAL (SELECT ctid AS place "                  \
	"FROM {schema}{table} WHERE " PG_OF_KEY "AND status = 'pending' AND state = 'held' "            \
	"AND seq < coalesce((SELECT seq FROM {schema}{table} WHERE " PG_OF_KEY                     \
	"AND state = 'scheduled' AND status IN ('pending', '{active}') ORDER BY seq LIMIT 1), "              \
	"9223372036854775807) ORDER BY seq LIMIT " RUN ") AS h WHERE true"

#define FREE_KEYS                                                                                  \
	"WITH keys AS MATERIALIZED (SELECT DISTINCT key, topic, namespace "                        \
	"FROM unnest($1::text[], $2::text[], $3::text[]) AS k(key, topic, namespace) "             \
	"WHERE " PG_ANY_HELD ")" FREE "))"

/* From key to key, not from message to message. */
#define FREE_STRANDED                                                                              \
	"WITH RECURSIVE keys AS ((SELECT key, topic, namespace FROM {schema}{table} "              \
	"WHERE status = 'pending' AND state = 'held' ORDER BY key, topic, namespace LIMIT 1) "          \
	"UNION ALL SELECT n.* FROM keys AS k CROSS JOIN LATERAL "                                  \
	"(SELECT key, topic, namespace FROM {schema}{table} "                                      \
	"WHERE status = 'pending' AND state = 'held' "                                                  \
	"AND (key, topic, namespace) > (k.key, k.topic, k.namespace) "                             \
	"ORDER BY key, topic, namespace LIMIT 1) AS n)" FREE                                       \
	" AND (NOT $1::boolean OR (SELECT true FROM {schema}{table} WHERE " PG_OF_KEY              \
	"AND status = 'dead' LIMIT 1) IS NULL)))"

static void reset_arrays(struct pgsql_store *store)
{
	for (size_t i = 0; i < PG_SETTLE_ARRAYS; i++)
		pr_buf_reset(&store->arrays[i]);
}

static void add_binary(struct pgsql_params *params, struct pr_buf *array, enum pr_pgsql_binary kind)
{
	pr_pgsql_binary_end(array, kind);
	pr_pgsql_text(params, array->data);
	params->lengths[params->count - 1] = (int)array->len;
	params->formats[params->count - 1] = 1;
}

/* Ends the arrays from..to and hands them over. */
static int add_arrays(struct pgsql_store *store, size_t from, size_t to,
		      struct pgsql_params *params, struct pr_err *err)
{
	for (size_t i = from; i < to; i++) {
		struct pr_buf *array = &store->arrays[i];

		if (i == ARRAY_DONE_SEQ)
			add_binary(params, array, PG_BINARY_SEQ);
		else if (i == ARRAY_DONE_CTID)
			add_binary(params, array, PG_BINARY_CTID);
		else
			pr_pgsql_text(params, pr_pgsql_array_end(array));
		if (array->failed)
			return pr_err_nomem(err);
	}
	return POSTROOM_OK;
}

/* disposition NULL: a renewal, for which the delay is the lease. */
static void add_row(struct pgsql_store *store, const struct pr_table *table,
		    const postroom_delivery *item, const enum pr_disposition *disposition, int64_t lease_ms)
{
	struct pr_buf *arrays = store->arrays;

	if (table->lanes)
		pr_pgsql_array_add(&arrays[ARRAY_ROW], item->id, PR_UUID_SIZE - 1);
	else
		pr_pgsql_array_add_number(&arrays[ARRAY_ROW], item->seq);
	pr_pgsql_array_add_number(&arrays[ARRAY_FENCING_TOKEN], item->fencing_token);
	pr_pgsql_array_add_number(&arrays[ARRAY_DISPOSITION], disposition ? (int64_t)*disposition : 0);
	pr_pgsql_array_add_text(&arrays[ARRAY_REASON], disposition ? item->reason : NULL);
	pr_pgsql_array_add_number(&arrays[ARRAY_DELAY], disposition ? item->retry_in_ms : lease_ms);
}

static void add_key(struct pgsql_store *store, const postroom_delivery *item)
{
	pr_pgsql_array_add_text(&store->arrays[ARRAY_KEY], item->key);
	pr_pgsql_array_add_text(&store->arrays[ARRAY_TOPIC], item->topic);
	pr_pgsql_array_add_text(&store->arrays[ARRAY_NAMESPACE], item->ns);
}

/* Each lane once. */
static void add_lane(struct pgsql_store *store, const postroom_delivery *item,
		     bool known[PG_LANES + 1])
{
	pr_assert(item->lane <= PG_LANES);
	if (known[item->lane])
		return;
	known[item->lane] = true;
	pr_pgsql_array_add_number(&store->arrays[ARRAY_LANE], item->lane);
	pr_pgsql_array_add_number(&store->arrays[ARRAY_EPOCH], item->fencing_token);
}

static void add_in_flight(struct pgsql_store *store, const postroom_delivery *item, enum pr_disposition disposition)
{
	struct pr_buf *arrays = store->arrays;

	if (disposition == PR_DISPOSITION_DONE) {
		pr_pgsql_array_add_number(&arrays[ARRAY_DONE_LANE], item->lane);
		pr_pgsql_binary_add_seq(&arrays[ARRAY_DONE_SEQ], item->seq);
		pr_pgsql_binary_add_ctid(&arrays[ARRAY_DONE_CTID], item->ctid);
		return;
	}
	pr_pgsql_array_add_number(&arrays[ARRAY_OF_LANE], item->lane);
	pr_pgsql_array_add_number(&arrays[ARRAY_SEQ], item->seq);
	pr_pgsql_array_add_number(&arrays[ARRAY_LANE_DISPOSITION], (int64_t)disposition);
	pr_pgsql_array_add_text(&arrays[ARRAY_LANE_REASON], item->reason);
	pr_pgsql_array_add_number(&arrays[ARRAY_LANE_DELAY], item->retry_in_ms);
	/* A released message is below the resume position. */
	if (disposition == PR_DISPOSITION_RELEASE)
		store->path_state[PG_PATH_LANES].busy = false;
}

/* It failed, whether its lease was still ours or not. */
static void add_failed(struct pgsql_store *store, const struct pr_table *table,
		       const postroom_delivery *item)
{
	struct pr_buf *arrays = store->arrays;

	pr_pgsql_array_add_text(&arrays[ARRAY_FAILED_HANDLER], table->lanes ? "" : item->ns);
	pr_pgsql_array_add_text(&arrays[ARRAY_FAILED_ID], item->id);
	pr_pgsql_array_add_number(&arrays[ARRAY_FAILED_NUMBER], item->attempt);
	pr_pgsql_array_add_number(&arrays[ARRAY_FAILED_DURATION], pr_attempt_duration_ms(item));
	pr_pgsql_array_add_text(&arrays[ARRAY_FAILED_ERROR], item->reason);
}

void pr_pgsql_add_step(struct pgsql_settling *settling, struct pgsql_step step)
{
	pr_assert(settling->count < PG_STEPS_MAX);
	settling->steps[settling->count++] = step;
}

static void add_settle_step(struct pgsql_settling *settling, enum pgsql_slot slot, const char *sql,
		     struct pgsql_params *params)
{
	pr_pgsql_add_step(settling, (struct pgsql_step){
		.slot = slot, .sql = sql, .params = params, .binary = true });
}

/* The parameter with the lane of each that was delivered: the short statement has no use for it. */
#define DONE_LANE_PARAM (ARRAY_DONE_LANE - ARRAY_LANE)
/* Whether what is not found is given up; the short statement has no such. */
#define GIVE_UP_PARAM (ARRAY_OF_LANE - ARRAY_LANE + 1)

static int settle_lanes(struct pgsql_store *store, const struct pr_policy *policy,
			struct pgsql_settling *settling, struct pr_err *err)
{
	struct pgsql_params *params = &settling->lane_params;
	/* All that this store has claimed: then the lanes are free without a look at what they held. */
	bool whole = settling->in_flight_items == store->in_flight;
	bool delivered = whole && store->arrays[ARRAY_SEQ].len == 0;
	struct pgsql_step step = pr_pgsql_settling_lanes(delivered, policy->forget);

	if (add_arrays(store, ARRAY_LANE, ARRAY_OF_LANE, params, err) < 0)
		return err->status;
	if (delivered)
		params->values[DONE_LANE_PARAM] = NULL;
	pr_pgsql_text(params, store->base.worker);
	if (!delivered) {
		pr_pgsql_text(params, "f");
		if (add_arrays(store, ARRAY_OF_LANE, ARRAYS_OF_LEASES, params, err) < 0)
			return err->status;
	}
	add_settle_step(settling, step.slot, step.sql, params);
	return POSTROOM_OK;
}

static int settle_rows(struct pgsql_store *store, const struct pr_table *table,
		       const struct pr_policy *policy, bool keyed,
		       struct pgsql_settling *settling, struct pr_err *err)
{
	if (add_arrays(store, ARRAY_ROW, ARRAY_KEY, &settling->params, err) < 0)
		return err->status;
	pr_pgsql_text(&settling->params, settling->anyone ? NULL : store->base.worker);
	add_settle_step(settling, PG_SETTLE, SETTLE, &settling->params);
	if (table->lanes && store->kind == PR_LEASE_LANE) {
		pr_pgsql_text(&settling->move_params, settling->params.values[ARRAY_ROW]);
		pr_pgsql_text(&settling->move_params, policy->forget ? "f" : "t");
		add_settle_step(settling, PG_MOVE, MOVE, &settling->move_params);
	}
	if (!keyed)
		return POSTROOM_OK;
	if (add_arrays(store, ARRAY_KEY, ARRAY_LANE, &settling->key_params, err) < 0)
		return err->status;
	add_settle_step(settling, PG_FREE, FREE_KEYS, &settling->key_params);
	return POSTROOM_OK;
}

static int record_attempts(struct pgsql_store *store, struct pgsql_settling *settling,
			   struct pr_err *err)
{
	struct pgsql_params *params = &settling->attempt_params;

	if (store->arrays[ARRAY_FAILED_ID].len == 0)
		return POSTROOM_OK;
	if (add_arrays(store, ARRAY_FAILED_HANDLER, ARRAYS, params, err) < 0)
		return err->status;
	pr_pgsql_text(params, store->base.worker);
	pr_pgsql_text(params, store->base.sink);
	pr_pgsql_add_step(settling, pr_sql_step(&pr_sql_add_attempts, params));
	return POSTROOM_OK;
}

static int compare_lane_seq(const void *left, const void *right, void *context)
{
	const postroom_delivery *items = context;
	int64_t a = items[*(const size_t *)left].seq, b = items[*(const size_t *)right].seq;

	return a < b ? -1 : a > b;
}

/*
 * Items with row leases come first. Items of lanes are sorted by seq, as the statement expects.
 * The memory for the results is allocated before they arrive.
 */
static bool partition_by_lease(struct pgsql_settling *settling)
{
	size_t count = settling->item_count, rows = 0, in_flight_items = 0;

	settling->dispositions = reallocarray(NULL, count + 1, sizeof(*settling->dispositions));
	settling->order = reallocarray(NULL, count + 1, sizeof(*settling->order));
	settling->settled_count = reallocarray(NULL, count + 1, sizeof(*settling->settled_count));
	if (!settling->dispositions || !settling->order || !settling->settled_count)
		return false;
	for (size_t i = 0; i < count; i++) {
		settling->items[i].settled = POSTROOM_LEASE_LOST;
		settling->in_flight_items += settling->items[i].lane > 0;
	}
	for (size_t i = 0; i < count; i++) {
		if (settling->items[i].lane > 0)
			settling->order[count - settling->in_flight_items + in_flight_items++] = i;
		else
			settling->order[rows++] = i;
	}
	qsort_r(settling->order + rows, in_flight_items, sizeof(*settling->order), compare_lane_seq, settling->items);
	return true;
}

int pr_pgsql_begin_settling(struct pgsql_store *store, const struct pr_table *table,
			    const struct pr_policy *policy, struct pgsql_settling *settling,
			    struct pr_err *err)
{
	bool known[PG_LANES + 1] = { false }, keyed = false;
	int status = POSTROOM_OK;

	if (!partition_by_lease(settling))
		return pr_err_nomem(err);
	reset_arrays(store);
	for (size_t i = 0; i < settling->item_count; i++) {
		size_t at = settling->order[i];
		postroom_delivery *item = &settling->items[at];
		enum pr_disposition disposition = pr_verdict_decide(item, policy, &store->base.random);

		settling->dispositions[at] = disposition;
		if (disposition == PR_DISPOSITION_RETRY || disposition == PR_DISPOSITION_DEAD)
			add_failed(store, table, item);
		if (item->lane > 0) {
			add_lane(store, item, known);
			add_in_flight(store, item, disposition);
			continue;
		}
		add_row(store, table, item, &disposition, 0);
		if (item->key && (disposition == PR_DISPOSITION_DONE || (disposition == PR_DISPOSITION_DEAD && !policy->block))) {
			add_key(store, item);
			keyed = true;
		}
	}
	if (settling->in_flight_items > 0)
		status = settle_lanes(store, policy, settling, err);
	if (status >= 0 && settling->in_flight_items < settling->item_count)
		status = settle_rows(store, table, policy, keyed, settling, err);
	if (status >= 0)
		status = record_attempts(store, settling, err);
	return status;
}

/* The answer has the numbers of those that were still ours. */
static void read_settled(const struct pgsql_settling *settling, const PGresult *result)
{
	for (int row = 0; row < PQntuples(result); row++) {
		size_t number = (size_t)pr_pgsql_read_int8(result, row, 0);

		settling->items[settling->order[number - 1]].settled = POSTROOM_OK;
	}
}

static int compare_numbers(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return a < b ? -1 : a > b;
}

/* The answer is one array with the seq of each that was still in a lane of ours; how many it has. */
static size_t read_settled_lanes(struct pgsql_settling *settling, const PGresult *result)
{
	int64_t *settled_count = settling->settled_count;
	size_t count = pr_pgsql_read_array(result, settled_count, settling->in_flight_items);

	qsort(settled_count, count, sizeof(*settled_count), compare_numbers);
	for (size_t i = 0; i < settling->item_count; i++) {
		postroom_delivery *item = &settling->items[i];

		if (item->lane > 0 && bsearch(&item->seq, settled_count, count, sizeof(*settled_count), compare_numbers))
			item->settled = POSTROOM_OK;
	}
	return count;
}

/*
 * Messages that were not found, or are no longer ours: once more, in a new snapshot. One that was
 * changed by hand meanwhile is found now, and its lane is still leased; one that was deleted is given up.
 */
static int settle_moved(struct pgsql_store *store, bool forget, struct pgsql_settling *settling,
			struct pr_err *err)
{
	struct pgsql_step step = pr_pgsql_settling_lanes(false, forget);
	const char **values = settling->lane_params.values;
	PR_CLEANUP_RESULT PGresult *result = NULL;

	/* After the short statement, which has none of these. */
	if (!values[DONE_LANE_PARAM]) {
		values[DONE_LANE_PARAM] = store->arrays[ARRAY_DONE_LANE].data;
		pr_pgsql_text(&settling->lane_params, "t");
		if (add_arrays(store, ARRAY_OF_LANE, ARRAYS_OF_LEASES, &settling->lane_params, err) < 0)
			return err->status;
	}
	values[GIVE_UP_PARAM] = "t";
	result = pr_pgsql_run(store, step.slot, &pr_table_outbox, step.sql, &settling->lane_params,
			      true, "settling messages", err);
	if (result)
		read_settled_lanes(settling, result);
	return result ? POSTROOM_OK : err->status;
}

static int count_lost(const struct pgsql_settling *settling, struct pr_err *err)
{
	size_t lost = 0;

	for (size_t i = 0; i < settling->item_count; i++)
		lost += settling->items[i].settled != POSTROOM_OK;
	return lost == 0 ? POSTROOM_OK : pr_store_lease_lost(lost, settling->item_count, err);
}

int pr_pgsql_end_settling(struct pgsql_store *store, struct pgsql_settling *settling,
			  struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (size_t i = 0; i < settling->count && status >= 0; i++) {
		const struct pgsql_step *step = &settling->steps[i];
		bool forget = step->slot == PG_SETTLE_DELIVERED || step->slot == PG_SETTLE_LANES;
		bool keep = step->slot == PG_SETTLE_DELIVERED_KEEP ||
			    step->slot == PG_SETTLE_LANES_KEEP;

		if (step->slot == PG_SETTLE)
			read_settled(settling, step->result);
		else if ((forget || keep) && read_settled_lanes(settling, step->result) < settling->in_flight_items)
			status = settle_moved(store, forget, settling, err);
	}
	for (size_t i = 0; i < settling->item_count; i++) {
		postroom_delivery *item = &settling->items[i];

		item->dead = settling->dispositions[i] == PR_DISPOSITION_DEAD && item->settled == POSTROOM_OK;
		/* A second settle finds no lease, neither of the lane nor of the row. */
		if (item->lane > 0 && status >= 0) {
			item->lane = 0;
			item->fencing_token = -1;
		}
	}
	if (status < 0)
		return status;
	store->in_flight -= settling->in_flight_items < store->in_flight ? settling->in_flight_items : store->in_flight;
	return count_lost(settling, err);
}

void pr_pgsql_release_settling(struct pgsql_settling *settling)
{
	free(settling->dispositions);
	free(settling->order);
	free(settling->settled_count);
	for (size_t i = 0; i < settling->count; i++)
		PQclear(settling->steps[i].result);
}

int pr_pgsql_settle(struct postroom_store *base, const struct pr_table *table,
		    const struct pr_settle *settle, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	struct pgsql_settling settling = { .items = settle->items, .item_count = settle->count };
	int status = pr_pgsql_begin_settling(store, table, settle->policy, &settling, err);

	if (status >= 0)
		status = pr_pgsql_run_all(store, table, settling.steps, settling.count,
					  "settling messages", err);
	if (status >= 0)
		status = pr_pgsql_end_settling(store, &settling, err);
	pr_pgsql_release_settling(&settling);
	return status;
}

static int begin_renewing(struct pgsql_store *store, const struct pr_table *table,
			  int64_t lease_ms, struct pgsql_settling *settling, struct pr_err *err)
{
	bool known[PG_LANES + 1] = { false };

	if (!partition_by_lease(settling))
		return pr_err_nomem(err);
	reset_arrays(store);
	for (size_t i = 0; i < settling->item_count; i++) {
		const postroom_delivery *item = &settling->items[i];

		if (item->lane > 0)
			add_lane(store, item, known);
		else
			add_row(store, table, item, NULL, lease_ms);
	}
	if (settling->in_flight_items > 0) {
		if (add_arrays(store, ARRAY_LANE, ARRAY_DONE_LANE, &settling->lane_params, err) < 0)
			return err->status;
		pr_pgsql_text(&settling->lane_params, store->base.worker);
		pr_pgsql_number(&settling->lane_params, lease_ms);
		add_settle_step(settling, PG_RENEW_LANES, pr_pgsql_renew_lanes, &settling->lane_params);
	}
	if (settling->in_flight_items < settling->item_count) {
		if (add_arrays(store, ARRAY_ROW, ARRAY_KEY, &settling->params, err) < 0)
			return err->status;
		pr_pgsql_text(&settling->params, store->base.worker);
		add_settle_step(settling, PG_RENEW, RENEW, &settling->params);
	}
	return POSTROOM_OK;
}

static void read_renewed(const struct pgsql_settling *settling, const struct pgsql_step *step)
{
	bool ours[PG_LANES + 1] = { false };

	if (step->slot == PG_RENEW) {
		read_settled(settling, step->result);
		return;
	}
	for (int row = 0; row < PQntuples(step->result); row++)
		ours[pr_pgsql_read_int8(step->result, row, 0)] = true;
	for (size_t i = 0; i < settling->item_count; i++) {
		if (ours[settling->items[i].lane])
			settling->items[i].settled = POSTROOM_OK;
	}
}

int pr_pgsql_renew(struct postroom_store *base, const struct pr_table *table,
		   postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	struct pgsql_settling settling = { .items = items, .item_count = count };
	int status = begin_renewing(store, table, lease_ms, &settling, err);

	if (status >= 0)
		status = pr_pgsql_run_all(store, table, settling.steps, settling.count,
					  "renewing leases", err);
	for (size_t i = 0; status >= 0 && i < settling.count; i++)
		read_renewed(&settling, &settling.steps[i]);
	if (status >= 0)
		status = count_lost(&settling, err);
	pr_pgsql_release_settling(&settling);
	return status;
}

int pr_pgsql_free_keys(struct pgsql_store *store, const struct pr_table *table,
		       const postroom_delivery *items, size_t count, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	bool keyed = false;

	reset_arrays(store);
	for (size_t i = 0; i < count; i++) {
		if (items[i].key) {
			add_key(store, &items[i]);
			keyed = true;
		}
	}
	if (!keyed)
		return POSTROOM_OK;
	if (add_arrays(store, ARRAY_KEY, ARRAY_LANE, &params, err) < 0)
		return err->status;
	result = pr_pgsql_run(store, PG_FREE, table, FREE_KEYS, &params, false, "freeing keys", err);
	return result ? POSTROOM_OK : err->status;
}

int pr_pgsql_free_stranded(struct pgsql_store *store, const struct pr_table *table, bool block,
			   struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, block ? "t" : "f");
	result = pr_pgsql_run(store, PG_FREE_STRANDED, table, FREE_STRANDED, &params, false,
			      "freeing keys", err);
	return result ? POSTROOM_OK : err->status;
}
