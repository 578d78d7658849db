/* SPDX-License-Identifier: Apache-2.0 */
/* A store without its optional operations: the defaults of store/optional.c apply. */
#include "contract/store/backend.h"

#include "store/store.h"

static int refuse_attempt(void *context, const postroom_attempt *attempt)
{
	(void)context, (void)attempt;
	CHECK_MSG(false, "an attempt of a store that keeps none");
	return 0;
}

static void refuse_lease(void *context, const struct pr_lease_view *lease)
{
	(void)context, (void)lease;
	CHECK_MSG(false, "a lease of a store that shows none");
}

static int refuse_source(void *context, const struct pr_source_position *entry, struct pr_err *err)
{
	(void)context, (void)entry, (void)err;
	CHECK_MSG(false, "a source of a store that records none");
	return 0;
}

/* The same database without its optional operations. */
static struct pr_store_ops only_required(const struct pr_store_ops *full)
{
	struct pr_store_ops ops = *full;

	ops.unrouted = NULL;
	ops.check_statement = NULL;
	ops.attempts = NULL;
	ops.leases = NULL;
	ops.lease_kind = NULL;
	ops.record_sources = NULL;
	ops.read_sources = NULL;
	return ops;
}

TEST(X1_store_without_optional_operations_has_defaults)
{
	const struct pr_store_ops *full = store->ops;
	const struct pr_store_ops required = only_required(full);
	const struct pr_source_position position = { .source = "s", .position = "1" };
	const enum pr_lease_kind lane = PR_LEASE_LANE;
	enum pr_lease_kind kind = PR_LEASE_LANE;
	struct pr_unrouted found = { .count = 1 };
	struct pr_err err = { 0 };
	int64_t purged_us = 1;
	postroom_batch *batch;
	char id[POSTROOM_ID_SIZE];

	memcpy(id, PUT(.topic = "t", .payload = "1").id, sizeof(id));
	store->ops = &required;
	batch = CLAIM();
	CHECK_INT(pr_store_leases(store, refuse_lease, NULL, &err), POSTROOM_OK);
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "later"), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(postroom_attempts(store, POSTROOM_FILTER(.id = id), refuse_attempt, NULL),
		  POSTROOM_OK);
	CHECK_INT(pr_store_unrouted(store, &pr_table_outbox, &(struct pr_scope){ 0 }, 10, &found,
				    &err),
		  POSTROOM_OK);
	CHECK_INT(found.count, 0);
	CHECK_INT(pr_store_check_statement(store, "SELECT 1", &err), POSTROOM_OK);
	CHECK_INT(pr_store_lease_kind(store, NULL, &kind, &err), POSTROOM_OK);
	CHECK_INT(kind, PR_LEASE_ROW);
	CHECK_INT(pr_store_lease_kind(store, &lane, &kind, &err), POSTROOM_INVALID);
	CHECK_INT(pr_store_record_sources(store, "h", 1000, &position, 1, &err), POSTROOM_OK);
	CHECK_INT(pr_store_read_sources(store, "h", refuse_source, NULL, &purged_us, &err),
		  POSTROOM_OK);
	CHECK_INT(purged_us, 0);
	CHECK_INT(pr_store_delete_sources(store, "h", &err), POSTROOM_OK);
	store->ops = full;
}
