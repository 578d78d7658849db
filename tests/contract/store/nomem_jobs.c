/* SPDX-License-Identifier: Apache-2.0 */
/* Every store call for incoming events and jobs, for nomem.c to starve. */
#include "contract/store/nomem.h"
#include "store/store.h"

#define EFFECT "INSERT INTO effects VALUES (1); -- with a tail"

static struct postroom_batch batch;

static int report(int status, const struct pr_err *err)
{
	world.box->err = *err; /* where its code is looked for */
	return status;
}

static void make_effects(void)
{
	app_sql("CREATE TABLE IF NOT EXISTS effects (n integer)");
	app_sql("DELETE FROM effects");
}

static int inbox_insert(void)
{
	const struct pr_incoming_event event = { .id = "e",
						 .topic = "t",
						 .key = "k",
						 .content_type = "application/json",
						 .headers = "{}",
						 .payload = { "{\"n\": 1}", 8 } };
	struct pr_incoming_event events[] = { event, event, event };
	struct pr_err err = { 0 };
	size_t at = 0;
	int status;

	events[1].id = "f";
	events[1].how = PR_INSERT_PENDING;
	events[2].id = "g";
	status = world.store->ops->inbox_insert(
		world.store, &(struct pr_inbox_insert){ "h", EFFECT, true, events, 3 }, &at, &err);
	CHECK(status < 0 || (events[2].waits && !events[0].waits && !events[0].duplicate));
	return report(status, &err);
}

static void nothing_inserted(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_inbox"), 0);
	CHECK_INT(number("SELECT count(*) FROM effects"), 0);
}

static void all_inserted(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_inbox"), 3);
	CHECK_INT(number("SELECT count(*) FROM effects"), 1);
}

TORTURE(N2_no_memory_to_take_events_in, .prepare = make_effects, .run = inbox_insert, .stride = 7,
	.unchanged = nothing_inserted, .done = all_inserted)

static void claim_job(void)
{
	const struct pr_claim claim = {
		.scope.ns = "h", .limit = 1, .max_bytes = 1000, .lease_ms = 30000, .max_attempts = 3
	};
	struct pr_err err = { 0 };

	make_effects();
	CHECK_INT(postroom_inbox_submit(world.box, "h", "c", "{\"n\": 1}", NULL), POSTROOM_OK);
	CHECK_MSG(pr_store_claim(world.store, &pr_table_inbox, &claim, &batch, &err) >= 0, "%s",
		  err.text);
	CHECK_INT(batch.count, 1);
}

static int apply(void)
{
	struct pr_err err = { 0 };

	return report(world.store->ops->apply(world.store, EFFECT, batch.items, &err), &err);
}

static void not_applied(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_inbox WHERE status = 'active'"), 1);
	CHECK_INT(number("SELECT count(*) FROM effects"), 0);
}

static void applied(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_inbox WHERE status = 'completed'"), 1);
	CHECK_INT(number("SELECT count(*) FROM effects"), 1);
	pr_batch_release(&batch);
}

TORTURE(J1_no_memory_to_apply_a_job, .prepare = claim_job, .run = apply, .unchanged = not_applied,
	.done = applied, .stride = 3)

static int progress(void)
{
	const struct pr_progress made = { .handler = "h",
					  .id = "c",
					  .fencing_token = batch.items[0].fencing_token,
					  .step = "a.\"b\"",
					  .result = "{\"r\": 1}",
					  .checkpoint = "[1]" };
	struct pr_err err = { 0 };

	return report(world.store->ops->progress(world.store, &made, &err), &err);
}

static void nothing_written_down(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_inbox WHERE checkpoint IS NULL"), 1);
}

static void written_down(void)
{
	CHECK_INT(number("SELECT count(*) FROM postroom_inbox WHERE checkpoint IS NOT NULL"), 1);
	pr_batch_release(&batch);
}

TORTURE(J2_no_memory_to_write_down_progress, .prepare = claim_job, .run = progress,
	.unchanged = nothing_written_down, .done = written_down)
