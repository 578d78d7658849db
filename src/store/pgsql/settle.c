/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settling (A1–A4, A7); renew.c renews.
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
#include "store/pgsql/settle.h"
#include "base/assert.h"
#include "store/pgsql/array.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(PR_DISPOSITION_RELEASE == 0 && PR_DISPOSITION_DONE == 1 &&
		       PR_DISPOSITION_RETRY == 2 && PR_DISPOSITION_DEAD == 3,
	       "the statements use these numbers");

void pr_pgsql_reset_arrays(struct pgsql_store *store)
{
	for (size_t i = 0; i < PG_SETTLE_ARRAYS; i++)
		pr_buf_reset(&store->arrays[i]);
}

int pr_pgsql_end_arrays(struct pgsql_store *store, size_t from, size_t to, struct pr_err *err)
{
	for (size_t i = from; i < to; i++) {
		struct pr_buf *array = &store->arrays[i];

		if (i == ARRAY_DONE_SEQ)
			pr_pgsql_binary_end(array, PG_BINARY_SEQ);
		else if (i == ARRAY_DONE_CTID)
			pr_pgsql_binary_end(array, PG_BINARY_CTID);
		else
			pr_pgsql_array_end(array);
		if (array->failed)
			return pr_err_nomem(err);
	}
	return POSTROOM_OK;
}

void pr_pgsql_add_lease(struct pgsql_store *store, const struct pr_table *table,
			const postroom_delivery *item)
{
	struct pr_buf *arrays = store->arrays;

	if (table->lanes)
		pr_pgsql_array_add(&arrays[ARRAY_ROW], item->id, PR_UUID_SIZE - 1);
	else
		pr_pgsql_array_add_number(&arrays[ARRAY_ROW], item->seq);
	pr_pgsql_array_add_number(&arrays[ARRAY_FENCING_TOKEN], item->fencing_token);
}

static void add_row(struct pgsql_store *store, const struct pr_table *table,
		    const postroom_delivery *item, enum pr_disposition disposition)
{
	struct pr_buf *arrays = store->arrays;

	pr_pgsql_add_lease(store, table, item);
	pr_pgsql_array_add_number(&arrays[ARRAY_DISPOSITION], (int64_t)disposition);
	pr_pgsql_array_add_text(&arrays[ARRAY_REASON], item->reason);
	pr_pgsql_array_add_number(&arrays[ARRAY_DELAY], item->retry_in_ms);
}

static void add_key(struct pgsql_store *store, const postroom_delivery *item)
{
	pr_pgsql_array_add_text(&store->arrays[ARRAY_KEY], item->key);
	pr_pgsql_array_add_text(&store->arrays[ARRAY_TOPIC], item->topic);
	pr_pgsql_array_add_text(&store->arrays[ARRAY_NAMESPACE], item->ns);
}

void pr_pgsql_add_lane(struct pgsql_store *store, const postroom_delivery *item,
		       bool known[PG_LANES + 1])
{
	pr_assert(item->lane <= PG_LANES);
	if (known[item->lane])
		return;
	known[item->lane] = true;
	pr_pgsql_array_add_number(&store->arrays[ARRAY_LANE], item->lane);
	pr_pgsql_array_add_number(&store->arrays[ARRAY_EPOCH], item->fencing_token);
}

static void add_in_flight(struct pgsql_store *store, const postroom_delivery *item,
			  enum pr_disposition disposition)
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

static struct pr_span span_of(const struct pr_buf *array)
{
	return (struct pr_span){ array->data, array->len };
}

/* Of messages that were all delivered. */
static const struct pgsql_sql *bind_delivered_lanes(struct pgsql_store *store, bool forget,
						    struct pgsql_params *params)
{
	const struct pr_buf *arrays = store->arrays;
	const char *lanes = arrays[ARRAY_LANE].data, *epochs = arrays[ARRAY_EPOCH].data;
	struct pr_span seqs = span_of(&arrays[ARRAY_DONE_SEQ]);
	struct pr_span ctids = span_of(&arrays[ARRAY_DONE_CTID]);

	if (forget) {
		pr_sql_bind_settle_delivered_lanes(params, lanes, epochs, seqs, ctids,
						   store->base.worker);
		return &pr_sql_settle_delivered_lanes;
	}
	pr_sql_bind_settle_delivered_lanes_to_history(params, lanes, epochs, seqs, ctids,
						      store->base.worker);
	return &pr_sql_settle_delivered_lanes_to_history;
}

/* abandon: messages that are not found leave their lane. */
static const struct pgsql_sql *bind_lanes(struct pgsql_store *store, bool forget, bool abandon,
					  struct pgsql_params *params)
{
	const struct pr_buf *arrays = store->arrays;
	struct pr_span seqs = span_of(&arrays[ARRAY_DONE_SEQ]);
	struct pr_span ctids = span_of(&arrays[ARRAY_DONE_CTID]);

	if (forget) {
		pr_sql_bind_settle_lanes(
			params, arrays[ARRAY_LANE].data, arrays[ARRAY_EPOCH].data,
			arrays[ARRAY_DONE_LANE].data, seqs, ctids, store->base.worker, abandon,
			arrays[ARRAY_OF_LANE].data, arrays[ARRAY_SEQ].data,
			arrays[ARRAY_LANE_DISPOSITION].data, arrays[ARRAY_LANE_REASON].data,
			arrays[ARRAY_LANE_DELAY].data);
		return &pr_sql_settle_lanes;
	}
	pr_sql_bind_settle_lanes_to_history(
		params, arrays[ARRAY_LANE].data, arrays[ARRAY_EPOCH].data,
		arrays[ARRAY_DONE_LANE].data, seqs, ctids, store->base.worker, abandon,
		arrays[ARRAY_OF_LANE].data, arrays[ARRAY_SEQ].data,
		arrays[ARRAY_LANE_DISPOSITION].data, arrays[ARRAY_LANE_REASON].data,
		arrays[ARRAY_LANE_DELAY].data);
	return &pr_sql_settle_lanes_to_history;
}

static int settle_lanes(struct pgsql_store *store, const struct pr_policy *policy,
			struct pgsql_settling *settling, struct pr_err *err)
{
	struct pgsql_params *params = &settling->lane_params;
	/* All that this store has claimed: then the lanes can be released without reading in_flight. */
	bool whole = settling->in_flight_items == store->in_flight;
	bool delivered = whole && store->arrays[ARRAY_SEQ].len == 0;

	if (pr_pgsql_end_arrays(store, ARRAY_LANE, ARRAYS_OF_LEASES, err) < 0)
		return err->status;
	settling->forget = policy->forget;
	settling->lane_sql = delivered ? bind_delivered_lanes(store, policy->forget, params)
				       : bind_lanes(store, policy->forget, false, params);
	pr_pgsql_add_step(settling, pr_sql_step(settling->lane_sql, params));
	return POSTROOM_OK;
}

static void bind_rows(struct pgsql_store *store, const struct pr_table *table,
		      struct pgsql_settling *settling)
{
	const struct pr_buf *arrays = store->arrays;
	const char *worker = settling->anyone ? NULL : store->base.worker;

	if (table->lanes) {
		pr_sql_bind_settle_outbox(&settling->params, arrays[ARRAY_ROW].data,
					  arrays[ARRAY_FENCING_TOKEN].data,
					  arrays[ARRAY_DISPOSITION].data, arrays[ARRAY_REASON].data,
					  arrays[ARRAY_DELAY].data, worker);
		settling->row_sql = &pr_sql_settle_outbox;
	} else {
		pr_sql_bind_settle_inbox(&settling->params, arrays[ARRAY_ROW].data,
					 arrays[ARRAY_FENCING_TOKEN].data,
					 arrays[ARRAY_DISPOSITION].data, arrays[ARRAY_REASON].data,
					 arrays[ARRAY_DELAY].data, worker);
		settling->row_sql = &pr_sql_settle_inbox;
	}
}

static void bind_keys(const struct pgsql_store *store, struct pgsql_params *params)
{
	pr_sql_bind_unblock_keys(params, store->arrays[ARRAY_KEY].data,
				 store->arrays[ARRAY_TOPIC].data,
				 store->arrays[ARRAY_NAMESPACE].data);
}

static int settle_rows(struct pgsql_store *store, const struct pr_table *table,
		       const struct pr_policy *policy, struct pgsql_settling *settling,
		       struct pr_err *err)
{
	bool keyed = store->arrays[ARRAY_KEY].len > 0;

	if (pr_pgsql_end_arrays(store, ARRAY_ROW, ARRAY_LANE, err) < 0)
		return err->status;
	bind_rows(store, table, settling);
	pr_pgsql_add_step(settling, pr_sql_step(settling->row_sql, &settling->params));
	if (table->lanes && store->kind == PR_LEASE_LANE) {
		pr_sql_bind_move_to_history(&settling->move_params, store->arrays[ARRAY_ROW].data,
					    !policy->forget);
		pr_pgsql_add_step(settling,
				  pr_sql_step(&pr_sql_move_to_history, &settling->move_params));
	}
	if (!keyed)
		return POSTROOM_OK;
	bind_keys(store, &settling->key_params);
	pr_pgsql_add_step(settling, pr_sql_step(pr_sql_unblock_keys(table), &settling->key_params));
	return POSTROOM_OK;
}

static int record_attempts(struct pgsql_store *store, struct pgsql_settling *settling,
			   struct pr_err *err)
{
	struct pgsql_params *params = &settling->attempt_params;
	const struct pr_buf *arrays = store->arrays;

	if (arrays[ARRAY_FAILED_ID].len == 0)
		return POSTROOM_OK;
	if (pr_pgsql_end_arrays(store, ARRAY_FAILED_HANDLER, ARRAYS, err) < 0)
		return err->status;
	pr_sql_bind_add_attempts(
		params, arrays[ARRAY_FAILED_HANDLER].data, arrays[ARRAY_FAILED_ID].data,
		arrays[ARRAY_FAILED_NUMBER].data, arrays[ARRAY_FAILED_DURATION].data,
		arrays[ARRAY_FAILED_ERROR].data, store->base.worker, store->base.sink);
	pr_pgsql_add_step(settling, pr_sql_step(&pr_sql_add_attempts, params));
	return POSTROOM_OK;
}

static int compare_lane_seq(const void *left, const void *right, void *context)
{
	const postroom_delivery *items = context;
	int64_t a = items[*(const size_t *)left].seq, b = items[*(const size_t *)right].seq;

	return a < b ? -1 : a > b;
}

bool pr_pgsql_partition_by_lease(struct pgsql_settling *settling)
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
	qsort_r(settling->order + rows, in_flight_items, sizeof(*settling->order), compare_lane_seq,
		settling->items);
	return true;
}

static void add_item(struct pgsql_store *store, const struct pr_table *table,
		     const struct pr_policy *policy, const postroom_delivery *item,
		     enum pr_disposition disposition)
{
	bool finished = disposition == PR_DISPOSITION_DONE ||
			(disposition == PR_DISPOSITION_DEAD && !policy->block);

	if (disposition == PR_DISPOSITION_RETRY || disposition == PR_DISPOSITION_DEAD)
		add_failed(store, table, item);
	if (item->lane > 0) {
		add_in_flight(store, item, disposition);
		return;
	}
	add_row(store, table, item, disposition);
	if (item->key && finished)
		add_key(store, item);
}

int pr_pgsql_begin_settling(struct pgsql_store *store, const struct pr_table *table,
			    const struct pr_policy *policy, struct pgsql_settling *settling,
			    struct pr_err *err)
{
	bool known[PG_LANES + 1] = { false };
	int status = POSTROOM_OK;

	if (!pr_pgsql_partition_by_lease(settling))
		return pr_err_nomem(err);
	pr_pgsql_reset_arrays(store);
	for (size_t i = 0; i < settling->item_count; i++) {
		size_t at = settling->order[i];
		postroom_delivery *item = &settling->items[at];

		settling->dispositions[at] = pr_verdict_decide(item, policy, &store->base.random);
		if (item->lane > 0)
			pr_pgsql_add_lane(store, item, known);
		add_item(store, table, policy, item, settling->dispositions[at]);
	}
	if (settling->in_flight_items > 0)
		status = settle_lanes(store, policy, settling, err);
	if (status >= 0 && settling->in_flight_items < settling->item_count)
		status = settle_rows(store, table, policy, settling, err);
	if (status >= 0)
		status = record_attempts(store, settling, err);
	return status;
}

void pr_pgsql_read_settled(const struct pgsql_settling *settling, const PGresult *result)
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

/* The result is one array with the seq of each settled message. Returns their number. */
static size_t read_settled_lanes(struct pgsql_settling *settling, const PGresult *result)
{
	int64_t *settled_count = settling->settled_count;
	size_t count = pr_pgsql_read_array(result, settled_count, settling->in_flight_items);

	qsort(settled_count, count, sizeof(*settled_count), compare_numbers);
	for (size_t i = 0; i < settling->item_count; i++) {
		postroom_delivery *item = &settling->items[i];

		if (item->lane > 0 && bsearch(&item->seq, settled_count, count,
					      sizeof(*settled_count), compare_numbers))
			item->settled = POSTROOM_OK;
	}
	return count;
}

/*
 * Settles messages that were not found once more, in a new snapshot. One that was changed by hand
 * meanwhile is found now, and its lane is still leased. One that was deleted is abandoned.
 */
static int settle_moved(struct pgsql_store *store, struct pgsql_settling *settling,
			struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	const struct pgsql_sql *sql = bind_lanes(store, settling->forget, true, &params);
	PR_CLEANUP_RESULT PGresult *result = pr_sql_run(store, sql, &params, err);

	if (result)
		read_settled_lanes(settling, result);
	return result ? POSTROOM_OK : err->status;
}

int pr_pgsql_count_lost(const struct pgsql_settling *settling, struct pr_err *err)
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

		if (settling->row_sql && step->sql == settling->row_sql)
			pr_pgsql_read_settled(settling, step->result);
		else if (settling->lane_sql && step->sql == settling->lane_sql &&
			 read_settled_lanes(settling, step->result) < settling->in_flight_items)
			status = settle_moved(store, settling, err);
	}
	for (size_t i = 0; i < settling->item_count; i++) {
		postroom_delivery *item = &settling->items[i];

		item->dead = settling->dispositions[i] == PR_DISPOSITION_DEAD &&
			     item->settled == POSTROOM_OK;
		/* A second settle finds no lease, neither of the lane nor of the row. */
		if (item->lane > 0 && status >= 0) {
			item->lane = 0;
			item->fencing_token = -1;
		}
	}
	if (status < 0)
		return status;
	store->in_flight -= settling->in_flight_items < store->in_flight ? settling->in_flight_items
									 : store->in_flight;
	return pr_pgsql_count_lost(settling, err);
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
		status = pr_pgsql_run_all(store, settling.steps, settling.count,
					  "settling messages", err);
	if (status >= 0)
		status = pr_pgsql_end_settling(store, &settling, err);
	pr_pgsql_release_settling(&settling);
	return status;
}

int pr_pgsql_unblock_keys(struct pgsql_store *store, const struct pr_table *table,
			  const postroom_delivery *items, size_t count, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_reset_arrays(store);
	for (size_t i = 0; i < count; i++) {
		if (items[i].key)
			add_key(store, &items[i]);
	}
	if (store->arrays[ARRAY_KEY].len == 0)
		return POSTROOM_OK;
	if (pr_pgsql_end_arrays(store, ARRAY_KEY, ARRAY_LANE, err) < 0)
		return err->status;
	bind_keys(store, &params);
	result = pr_sql_run(store, pr_sql_unblock_keys(table), &params, err);
	return result ? POSTROOM_OK : err->status;
}

int pr_pgsql_unblock_stranded(struct pgsql_store *store, const struct pr_table *table, bool block,
			      struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_unblock_stranded(&params, block);
	result = pr_sql_run(store, pr_sql_unblock_stranded(table), &params, err);
	return result ? POSTROOM_OK : err->status;
}
