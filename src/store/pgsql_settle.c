/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settling and renewing (A1–A4, A6, A7).
 *
 * 1. Every change is guarded by locked_by and by claims, which only ever
 *    grows: a late ack of an earlier claim finds nothing to change.
 * 2. One statement, and so one transaction, settles a batch of mixed verdicts.
 * 3. A lost lease is told, never repaired.
 */
#include "store/pgsql.h"
#include "store/pgsql_array.h"

#include <stdlib.h>
#include <string.h>

enum { ARRAY_ID, ARRAY_FENCE, ARRAY_FATE, ARRAY_REASON, ARRAY_DELAY, ARRAYS };

/* One moment for the whole batch. */
#define NOW "(SELECT at FROM now)"
#define WITH_NOW "WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at) "

/*
 * One look into the primary key for each, whatever the statistics say: nothing
 * here can be hashed or merged, and nothing is said of the table's rows alone,
 * or a planner that takes them for few compares each message with all of them.
 */
#define ROWS                                                                                \
	"FROM unnest($1::uuid[], $2::bigint[], $3::int[], $4::text[], $5::bigint[]) "        \
	"WITH ORDINALITY AS v(id, fence, fate, reason, delay, n) "                           \
	"WHERE t.id = ANY (ARRAY[v.id]) AND CASE WHEN t.claims = v.fence "                   \
	"THEN t.status = '{active}' AND t.locked_by = $6::uuid END RETURNING v.n"

/* In the order of enum pr_fate: 0 release, 1 done, 2 retry, 3 bury. */
#define SETTLE                                                                              \
	WITH_NOW "UPDATE {schema}{table} AS t SET "                                          \
	"status = (ARRAY['pending', '{done}', 'pending', 'dead'])[v.fate + 1], "             \
	"attempts = CASE v.fate WHEN 0 THEN greatest(attempts - 1, 0) ELSE attempts END, "   \
	"next_attempt_at = CASE v.fate WHEN 2 "                                              \
	"THEN " NOW " + v.delay * interval '1 millisecond' ELSE next_attempt_at END, "       \
	"last_error = CASE v.fate WHEN 1 THEN NULL WHEN 0 THEN coalesce(v.reason, last_error) " \
	"ELSE v.reason END, "                                                                \
	"{done_at} = CASE v.fate WHEN 1 THEN " NOW " ELSE {done_at} END, "                   \
	"locked_by = NULL, locked_until = NULL, updated_at = " NOW " " ROWS

#define RENEW                                                                               \
	WITH_NOW "UPDATE {schema}{table} AS t SET "                                          \
	"locked_until = " NOW " + v.delay * interval '1 millisecond', "                      \
	"updated_at = " NOW " " ROWS

_Static_assert(PR_FATE_RELEASE == 0 && PR_FATE_DONE == 1 && PR_FATE_RETRY == 2 && PR_FATE_BURY == 3,
	       "SETTLE counts on this order");

/* fates NULL: a renewal, for which the delay is the lease. */
static void fill_arrays(struct pgsql_store *store, const postroom_delivery *items, size_t count,
			const enum pr_fate *fates, int64_t lease_ms)
{
	struct pr_buf *arrays = store->arrays;

	for (size_t i = 0; i < ARRAYS; i++)
		pr_buf_reset(&arrays[i]);
	for (size_t i = 0; i < count; i++) {
		const char *reason = fates ? items[i].reason : NULL;

		pr_pgsql_array_add(&arrays[ARRAY_ID], items[i].id, PR_UUID_SIZE - 1);
		pr_pgsql_array_add_number(&arrays[ARRAY_FENCE], items[i].fence);
		pr_pgsql_array_add_number(&arrays[ARRAY_FATE], fates ? (int64_t)fates[i] : 0);
		pr_pgsql_array_add(&arrays[ARRAY_REASON], reason, reason ? strlen(reason) : 0);
		pr_pgsql_array_add_number(&arrays[ARRAY_DELAY],
					  fates ? items[i].retry_in_ms : lease_ms);
	}
}

static int run(struct pgsql_store *store, const struct pr_table *table, enum pgsql_slot slot,
	       const char *sql, postroom_delivery *items, size_t count, const char *doing,
	       struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };
	size_t found;

	for (size_t i = 0; i < ARRAYS; i++) {
		pr_pgsql_text(&params, pr_pgsql_array_end(&store->arrays[i]));
		if (store->arrays[i].failed)
			return pr_err_nomem(err);
	}
	pr_pgsql_text(&params, store->base.worker);
	result = pr_pgsql_run(store, slot, table, sql, &params, true, doing, err);
	if (!result)
		return err->status;
	for (size_t i = 0; i < count; i++)
		items[i].settled = POSTROOM_LEASE_LOST;
	found = (size_t)PQntuples(result);
	for (size_t row = 0; row < found; row++)
		items[pr_pgsql_read_int8(result, (int)row, 0) - 1].settled = POSTROOM_OK;
	return found == count ? POSTROOM_OK : pr_store_lease_lost(count - found, count, err);
}

int pr_pgsql_renew(struct postroom_store *base, const struct pr_table *table,
		   postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err)
{
	fill_arrays(pgsql_store(base), items, count, NULL, lease_ms);
	return run(pgsql_store(base), table, PG_RENEW, RENEW, items, count, "renewing leases", err);
}

int pr_pgsql_settle(struct postroom_store *base, const struct pr_table *table,
		    postroom_delivery *items, size_t count, const struct pr_policy *policy,
		    struct pr_err *err)
{
	enum pr_fate *fates = reallocarray(NULL, count + 1, sizeof(*fates));
	int status;

	if (!fates)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++)
		fates[i] = pr_verdict_decide(&items[i], policy, &base->random);
	fill_arrays(pgsql_store(base), items, count, fates, 0);
	status = run(pgsql_store(base), table, PG_SETTLE, SETTLE, items, count, "settling messages",
		     err);
	for (size_t i = 0; i < count; i++)
		items[i].dead = fates[i] == PR_FATE_BURY && items[i].settled == POSTROOM_OK &&
				(status >= 0 || status == POSTROOM_LEASE_LOST);
	free(fates);
	return status;
}
