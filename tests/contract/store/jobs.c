/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: the inbox is claimed, settled and kept in order as the outbox is (J1, D6, N4). */
#include "contract/store/jobs.h"

TEST(J1_completed_job_is_never_started_again)
{
	postroom_inbox_state state = POSTROOM_INBOX_DEAD;
	struct postroom_batch batch = { 0 };

	job_submit("a", "{\"n\": 1}");
	JOBS(store, &batch, .reclaim_expired = true);
	CHECK_STR(jobs_in(&batch), "a ");
	CHECK_STR(batch.items[0].ns, "h");
	CHECK_STR(batch.items[0].topic, "h");
	CHECK_STR(batch.items[0].payload, "{\"n\": 1}");
	CHECK_STR(batch.items[0].headers, "{}");
	CHECK_STR(batch.items[0].content_type, "application/json");
	CHECK(!batch.items[0].key && !batch.items[0].tenant_id && !batch.items[0].unordered);
	CHECK_INT(batch.items[0].attempt, 1);
	CHECK_STR(job_status("a"), "active");
	CHECK_STR(jobs_done(false), "");
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_DELIVERED), POSTROOM_OK);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox WHERE status = 'completed' "
			      "AND processed_at IS NOT NULL AND locked_by IS NULL"),
		  1);
	CHECK_STR(jobs_done(false), "");
	CHECK_INT(postroom_inbox_submit(app->box, "h", "a", NULL, &state), POSTROOM_DUPLICATE);
	CHECK_INT(state, POSTROOM_INBOX_COMPLETED);
	CHECK_STR(jobs_done(false), "");
	pr_batch_release(&batch);
}

TEST(J1_a_command_needs_no_payload)
{
	struct postroom_batch batch = { 0 };

	job_submit("a", NULL);
	JOBS(store, &batch);
	CHECK_STR(jobs_in(&batch), "a ");
	CHECK_INT(batch.items[0].payload_len, 0);
	CHECK_STR(batch.items[0].payload, "");
	CHECK(!batch.items[0].body);
	pr_batch_release(&batch);
}

TEST(J1_failed_job_backs_off_and_is_dead_after_last_attempt)
{
	struct postroom_batch batch = { 0 };

	job_submit("a", NULL);
	for (int attempt = 1; attempt <= 3; attempt++) {
		JOBS(store, &batch);
		CHECK_STR(jobs_in(&batch), "a ");
		CHECK_INT(batch.items[0].attempt, attempt);
		CHECK_INT(jobs_settle(store, &batch, POSTROOM_FAILED), POSTROOM_OK);
		CHECK_STR(job_status("a"), attempt < 3 ? "pending" : "dead");
		CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox"), "no");
		CHECK_STR(jobs_done(false), "");
		jobs_shift("next_attempt_at", -7200);
	}
	CHECK_STR(jobs_done(false), "");
	job_submit("b", NULL);
	JOBS(store, &batch);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_REJECTED), POSTROOM_OK);
	CHECK_STR(job_status("b"), "dead");
	pr_batch_release(&batch);
}

TEST(J1_unstarted_job_is_released_and_its_attempt_refunded)
{
	struct postroom_batch batch = { 0 };

	job_submit("a", NULL);
	JOBS(store, &batch);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_UNTRIED), POSTROOM_OK);
	JOBS(store, &batch);
	CHECK_STR(jobs_in(&batch), "a ");
	CHECK_INT(batch.items[0].attempt, 1);
	CHECK_INT(batch.items[0].fencing_token, 2);
	pr_batch_release(&batch);
}

TEST(J1_job_of_dead_worker_is_taken_over_and_its_late_finish_refused)
{
	struct postroom_batch late = { 0 }, taken = { 0 };
	postroom_store *other = open_store();
	struct pr_err err = { 0 };

	job_submit("a", NULL);
	JOBS(store, &late);
	JOBS(other, &taken, .reclaim_expired = true);
	CHECK_INT(taken.count, 0);
	jobs_shift("locked_until", -24 * 3600);
	JOBS(other, &taken, .reclaim_expired = true);
	CHECK_STR(jobs_in(&taken), "a ");
	CHECK(taken.items[0].fencing_token > late.items[0].fencing_token);
	CHECK_INT(jobs_settle(store, &late, POSTROOM_DELIVERED), POSTROOM_LEASE_LOST);
	CHECK_INT(store->ops->renew(store, &pr_table_inbox, late.items, 1, 30000, &err),
		  POSTROOM_LEASE_LOST);
	CHECK_STR(job_status("a"), "active");
	CHECK_INT(other->ops->renew(other, &pr_table_inbox, taken.items, 1, 30000, &err),
		  POSTROOM_OK);
	CHECK_INT(jobs_settle(other, &taken, POSTROOM_DELIVERED), POSTROOM_OK);
	CHECK_STR(job_status("a"), "completed");
	pr_batch_release(&late);
	pr_batch_release(&taken);
	postroom_store_close(other);
}

TEST(J1_sweep_dead_letters_job_that_crashed_in_last_attempt)
{
	const struct pr_claim claim = {
		.scope.ns = "h", .limit = 10, .max_bytes = 1 << 20, .max_attempts = 1
	};
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };

	job_submit("a", NULL);
	JOBS(store, &batch, .max_attempts = 1);
	jobs_shift("locked_until", -24 * 3600);
	pr_batch_reset(&batch);
	CHECK_MSG(store->ops->sweep(store, &pr_table_inbox, &claim, &batch, &err) >= 0, "%s",
		  err.text);
	CHECK_INT(batch.dead_letter_count, 1);
	CHECK_STR(batch.dead_letters[0].id, "a");
	CHECK_STR(job_status("a"), "dead");
	pr_batch_release(&batch);
}

static void work(void *context, int index)
{
	postroom_store *mine = open_store();
	struct session *session = join();
	struct postroom_batch batch = { 0 };

	(void)context, (void)index;
	while (number(session, "SELECT count(*) FROM postroom_inbox WHERE status <> 'completed'")) {
		JOBS(mine, &batch, .limit = 3, .reclaim_expired = true);
		for (size_t i = 0; i < batch.count; i++)
			sql(session, "INSERT INTO runs VALUES ('%s')", batch.items[i].id);
		if (batch.count)
			CHECK_INT(jobs_settle(mine, &batch, POSTROOM_DELIVERED), POSTROOM_OK);
	}
	pr_batch_release(&batch);
	leave(session);
	postroom_store_close(mine);
}

TEST(J1_parallel_workers_never_share_a_job)
{
	char id[20];

	sql(app, "CREATE TABLE runs (id text)");
	begin(app);
	for (int i = 0; i < 60; i++) {
		snprintf(id, sizeof(id), "j-%d", i);
		job_submit(id, NULL);
	}
	commit(app);
	in_parallel(4, work, NULL);
	CHECK_INT(number(app, "SELECT count(*) FROM runs"), 60);
	CHECK_INT(number(app, "SELECT count(DISTINCT id) FROM runs"), 60);
}

TEST(J1_one_store_serves_the_outbox_and_the_inbox)
{
	struct postroom_batch batch = { 0 };

	for (int i = 0; i < 3; i++) {
		char id[20];

		snprintf(id, sizeof(id), "j-%d", i);
		PUT(.ns = "h", .topic = "h", .payload = "1");
		job_submit(id, NULL);
		postroom_batch_free(CLAIM(.ns = "h", .limit = 1));
		JOBS(store, &batch);
		CHECK_INT(batch.count, 1);
		CHECK_STR(batch.items[0].id, id);
		CHECK_INT(jobs_settle(store, &batch, POSTROOM_DELIVERED), POSTROOM_OK);
	}
	CHECK_INT(jobs("completed"), 3);
	CHECK_INT(rows("delivered"), 0);
	pr_batch_release(&batch);
}

TEST(J1_handler_claims_only_its_own_jobs)
{
	struct postroom_batch batch = { 0 };
	struct pr_claim claim = { .scope.ns = "h", .limit = 10, .max_attempts = 3 };
	struct pr_err err = { 0 };
	bool any = true;

	CHECK_INT(postroom_inbox_submit(app->box, "other", "x", NULL, NULL), POSTROOM_OK);
	JOBS(store, &batch);
	CHECK_INT(batch.count, 0);
	CHECK_INT(store->ops->unfinished(store, &pr_table_inbox, &claim, &any, &err), POSTROOM_OK);
	CHECK(!any);
	job_submit("x", NULL);
	CHECK_INT(store->ops->unfinished(store, &pr_table_inbox, &claim, &any, &err), POSTROOM_OK);
	CHECK(any);
	CHECK_STR(jobs_done(false), "x ");
	CHECK_INT(store->ops->unfinished(store, &pr_table_inbox, &claim, &any, &err), POSTROOM_OK);
	CHECK(!any);
	CHECK_INT(jobs("pending"), 1);
	pr_batch_release(&batch);
}

static void put_events(void)
{
	ledger_make();
	INSERT_EVENTS(false, ARRIVAL(.id = "k1", .key = "k", .how = PR_INSERT_PENDING),
		      ARRIVAL(.id = "k2", .key = "k", .how = PR_INSERT_PENDING),
		      ARRIVAL(.id = "l1", .key = "l", .how = PR_INSERT_PENDING));
}

TEST(D6_jobs_of_a_key_run_in_order)
{
	struct postroom_batch first = { 0 }, second = { 0 };
	postroom_store *other = open_store();

	put_events();
	JOBS(store, &first, .limit = 1);
	CHECK_STR(jobs_in(&first), "k1 ");
	JOBS(other, &second);
	CHECK_STR(jobs_in(&second), "l1 ");
	CHECK_INT(jobs_settle(store, &first, POSTROOM_FAILED), POSTROOM_OK);
	CHECK_STR(jobs_done(false), "");
	jobs_shift("next_attempt_at", -7200);
	CHECK_STR(jobs_done(false), "k1 k2 ");
	pr_batch_release(&first);
	pr_batch_release(&second);
	postroom_store_close(other);
}

TEST(D6_dead_job_unblocks_its_key)
{
	struct postroom_batch batch = { 0 };

	put_events();
	JOBS(store, &batch, .limit = 1);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_REJECTED), POSTROOM_OK);
	CHECK_STR(jobs_done(false), "k2 l1 ");
	pr_batch_release(&batch);
}

TEST(D6_unordered_failing_job_blocks_nothing)
{
	struct postroom_batch first = { 0 }, second = { 0 };
	postroom_store *other = open_store();

	put_events();
	JOBS(store, &first, .limit = 1, .unordered = true);
	CHECK_STR(jobs_in(&first), "k1 ");
	CHECK(first.items[0].unordered);
	JOBS(other, &second, .limit = 1, .unordered = true);
	CHECK_STR(jobs_in(&second), "k2 ");
	CHECK_INT(jobs_settle(store, &first, POSTROOM_FAILED), POSTROOM_OK);
	CHECK_INT(jobs_settle(other, &second, POSTROOM_DELIVERED), POSTROOM_OK);
	CHECK_STR(job_status("k1"), "pending");
	CHECK_STR(jobs_done(true), "l1 ");
	jobs_shift("next_attempt_at", -7200);
	CHECK_STR(jobs_done(true), "k1 ");
	pr_batch_release(&first);
	pr_batch_release(&second);
	postroom_store_close(other);
}

TEST(D6_held_events_are_unblocked_when_order_is_switched_off)
{
	struct postroom_batch batch = { 0 };

	put_events();
	JOBS(store, &batch, .limit = 1);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_FAILED), POSTROOM_OK);
	CHECK_STR(jobs_done(false), "l1 ");
	jobs_shift("next_attempt_at", -7200);
	JOBS(store, &batch, .limit = 1, .unordered = true);
	CHECK_STR(jobs_in(&batch), "k1 ");
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_REJECTED), POSTROOM_OK);
	CHECK_STR(jobs_done(true), "k2 ");
	pr_batch_release(&batch);
}

TEST(N4_retried_dead_job_moves_to_the_end_of_its_key)
{
	struct postroom_batch batch = { 0 };

	put_events();
	JOBS(store, &batch, .limit = 1);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_REJECTED), POSTROOM_OK);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = "h",
							.id = "k1")),
		  POSTROOM_OK);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox WHERE id = 'k1'"), "no");
	CHECK_STR(jobs_done(false), "k2 l1 k1 ");
	pr_batch_release(&batch);
}

TEST(N4_purging_a_dead_job_unblocks_its_key)
{
	struct postroom_batch batch = { 0 };
	int64_t purged = 0;

	put_events();
	JOBS(store, &batch, .limit = 1, .block = true);
	CHECK_STR(jobs_in(&batch), "k1 ");
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_REJECTED), POSTROOM_OK);
	JOBS(store, &batch, .block = true);
	CHECK_STR(jobs_in(&batch), "l1 ");
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_DELIVERED), POSTROOM_OK);
	CHECK_INT(postroom_purge_some(store,
				      POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "dead"),
				      10, &purged),
		  POSTROOM_OK);
	CHECK_INT(purged, 1);
	JOBS(store, &batch, .block = true);
	CHECK_STR(jobs_in(&batch), "k2 ");
	pr_batch_release(&batch);
}

/* A clock was set back: what is of any age does not have to wait until it is there again. */
TEST(X1_dead_job_with_future_timestamp_is_retried_and_purged)
{
	struct postroom_batch batch = { 0 };
	int64_t done = 0;

	job_submit("a", NULL);
	JOBS(store, &batch);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_REJECTED), POSTROOM_OK);
	jobs_shift("updated_at", 3600);
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	JOBS(store, &batch);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_REJECTED), POSTROOM_OK);
	jobs_shift("updated_at", 3600);
	CHECK_INT(postroom_purge_some(store,
				      POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "dead"),
				      10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	pr_batch_release(&batch);
}

static int check_row(void *context, const postroom_row *row)
{
	bool event = strcmp(row->id, "e") == 0;

	CHECK_STR(row->topic, event ? "t" : "h");
	CHECK_STR(row->headers, event ? "{\"h\": \"v\"}" : "{}");
	CHECK_STR(row->content_type, event ? "text/plain" : "application/json");
	CHECK(!row->payload);
	if (event) {
		CHECK_STR(row->key, "k");
		CHECK_INT(row->body_len, 3);
		CHECK(memcmp(row->body, "a\0b", 3) == 0);
	} else {
		CHECK(!row->key && !row->body);
	}
	(*(int *)context)++;
	return 0;
}

TEST(N4_row_is_shown_with_the_attributes_of_its_event)
{
	int shown = 0;

	job_submit("c", NULL);
	INSERT_EVENTS(false, ARRIVAL(.id = "e", .key = "k", .body = { "a\0b", 3 },
				     .content_type = "text/plain", .how = PR_INSERT_PENDING));
	CHECK_INT(postroom_list(store,
				POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "pending"), 10,
				check_row, &shown),
		  POSTROOM_OK);
	CHECK_INT(shown, 2);
}

TEST(N1_a_key_needs_a_topic)
{
	CHECK_CONTAINS(refused(app, "INSERT INTO postroom_inbox (id, handler_name, key) "
				    "VALUES ('e', 'h', 'k')"),
		       "topic");
	refused(app, "INSERT INTO postroom_inbox (id, handler_name, topic) VALUES ('e', 'h', '')");
	refused(app, "INSERT INTO postroom_inbox (id, handler_name, headers) "
		     "VALUES ('e', 'h', '[]')");
	sql(app, "INSERT INTO postroom_inbox (id, handler_name, topic, key) "
		 "VALUES ('e', 'h', 't', 'k')");
	CHECK_STR(text(app, "SELECT namespace FROM postroom_inbox"), "h");
	CHECK_STR(jobs_done(false), "e ");
}
