/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renewing leases (A6).
 *
 * 1. The guards are those of a settle: the fencing token and locked_by.
 * 2. A lane is renewed once, for all items of the batch that are in it.
 */
#include "store/pgsql/settle.h"

static void bind_renewal(struct pgsql_store *store, const struct pr_table *table, int64_t lease_ms,
			 struct pgsql_settling *settling)
{
	const struct pr_buf *arrays = store->arrays;

	if (table->lanes) {
		pr_sql_bind_renew_outbox(&settling->params, arrays[ARRAY_ROW].data,
					 arrays[ARRAY_FENCING_TOKEN].data, lease_ms,
					 store->base.worker);
		settling->row_sql = &pr_sql_renew_outbox;
	} else {
		pr_sql_bind_renew_inbox(&settling->params, arrays[ARRAY_ROW].data,
					arrays[ARRAY_FENCING_TOKEN].data, lease_ms,
					store->base.worker);
		settling->row_sql = &pr_sql_renew_inbox;
	}
}

static int begin_renewing(struct pgsql_store *store, const struct pr_table *table, int64_t lease_ms,
			  struct pgsql_settling *settling, struct pr_err *err)
{
	bool known[PG_LANES + 1] = { false };

	if (!pr_pgsql_partition_by_lease(settling))
		return pr_err_nomem(err);
	pr_pgsql_reset_arrays(store);
	for (size_t i = 0; i < settling->item_count; i++) {
		const postroom_delivery *item = &settling->items[i];

		if (item->lane > 0)
			pr_pgsql_add_lane(store, item, known);
		else
			pr_pgsql_add_lease(store, table, item);
	}
	if (pr_pgsql_end_arrays(store, ARRAY_ROW, ARRAY_DONE_LANE, err) < 0)
		return err->status;
	if (settling->in_flight_items > 0) {
		pr_sql_bind_renew_lanes(&settling->lane_params, store->arrays[ARRAY_LANE].data,
					store->arrays[ARRAY_EPOCH].data, store->base.worker,
					lease_ms);
		pr_pgsql_add_step(settling,
				  pr_sql_step(&pr_sql_renew_lanes, &settling->lane_params));
	}
	if (settling->in_flight_items < settling->item_count) {
		bind_renewal(store, table, lease_ms, settling);
		pr_pgsql_add_step(settling, pr_sql_step(settling->row_sql, &settling->params));
	}
	return POSTROOM_OK;
}

static void read_renewed(const struct pgsql_settling *settling, const struct pgsql_step *step)
{
	bool renewed[PG_LANES + 1] = { false };

	if (step->sql != &pr_sql_renew_lanes) {
		pr_pgsql_read_settled(settling, step->result);
		return;
	}
	for (int row = 0; row < PQntuples(step->result); row++)
		renewed[pr_pgsql_read_int8(step->result, row, 0)] = true;
	for (size_t i = 0; i < settling->item_count; i++) {
		if (renewed[settling->items[i].lane])
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
		status = pr_pgsql_run_all(store, settling.steps, settling.count, "renewing leases",
					  err);
	for (size_t i = 0; status >= 0 && i < settling.count; i++)
		read_renewed(&settling, &settling.steps[i]);
	if (status >= 0)
		status = pr_pgsql_count_lost(&settling, err);
	pr_pgsql_release_settling(&settling);
	return status;
}
