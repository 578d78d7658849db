/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by settle.c and renew.c: the arrays that their statements unnest, and their results. */
#ifndef PR_STORE_PGSQL_SETTLE_H
#define PR_STORE_PGSQL_SETTLE_H

#include "store/pgsql/statements.h"

/* Of messages with row leases, of their keys, and of messages in lanes: settled and failed ones. */
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

void pr_pgsql_reset_arrays(struct pgsql_store *store);
/* Ends the arrays from..to. */
int pr_pgsql_end_arrays(struct pgsql_store *store, size_t from, size_t to, struct pr_err *err);

/* Adds the row of an item with a row lease, and its fencing token. */
void pr_pgsql_add_lease(struct pgsql_store *store, const struct pr_table *table,
			const postroom_delivery *item);
/* Adds the lane of an item, once. */
void pr_pgsql_add_lane(struct pgsql_store *store, const postroom_delivery *item,
		       bool known[PG_LANES + 1]);

/*
 * Items with row leases come first. Items of lanes are sorted by seq, as the statement expects.
 * The memory for the results is allocated before they arrive. False: no memory.
 */
bool pr_pgsql_partition_by_lease(struct pgsql_settling *settling);

/* The result has the ordinals of the rows whose lease this worker still had. */
void pr_pgsql_read_settled(const struct pgsql_settling *settling, const PGresult *result);
/* POSTROOM_LEASE_LOST if any item was not settled or renewed. */
int pr_pgsql_count_lost(const struct pgsql_settling *settling, struct pr_err *err);

#endif
