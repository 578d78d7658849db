/* SPDX-License-Identifier: Apache-2.0 */
/* The relay's pass over the inbox, with the relay in the test's own process, on every database. */
#include "contract/store/jobs.h"
#include "relay/rig.h"

static struct pr_relay_config job_config(const char *command)
{
	struct pr_relay_config config = rig_config();

	config.table = &pr_table_inbox;
	config.scope.ns = "h";
	config.to = command;
	config.batch_size = 1; /* one after the other */
	config.workers = 1;
	config.lease_ms = 5000;
	config.publish_timeout_ms = 600000;
	config.renews_leases = true;
	return config;
}

static void drain(struct pr_relay_config config)
{
	config.drain = true;
	start(config);
	finish();
}

TEST(J1_submitted_jobs_run_once_and_jobs_of_other_handlers_are_left_alone)
{
	struct pr_relay_config config = job_config("exec:echo $POSTROOM_ID >> done");

	job_submit("a", "{\"n\":1}");
	job_submit("b", NULL);
	CHECK_INT(postroom_inbox_submit(app->box, "other", "a", NULL, NULL), POSTROOM_OK);
	put("t", 1);
	drain(config);
	CHECK_INT(lines_in("done"), 2);
	CHECK_INT(jobs("completed"), 2);
	CHECK_INT(jobs("pending"), 1);
	CHECK_INT(rows("pending"), 1);
	CHECK(was_logged("INBOX_WORKER_FETCH count=1"));
	CHECK(was_logged("INBOX_WORKER_DISPATCH_SUCCESS id=a key=a"));
	CHECK(!was_logged("OUTBOX_"));
	/* Again: there is nothing to do. */
	drain(config);
	CHECK_INT(lines_in("done"), 2);
}

TEST(J1_job_that_keeps_failing_is_retried_until_dead)
{
	job_submit("a", "1");
	drain(job_config("exec:echo $POSTROOM_ATTEMPT >> tries; echo no >&2; exit 1"));
	CHECK_INT(lines_in("tries"), 3);
	CHECK_STR(job_status("a"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox"), "exit status 1: no");
	CHECK(was_logged("INBOX_WORKER_DEAD id=a key=a attempts=3"));
}

TEST(J1_job_of_dead_worker_is_taken_over)
{
	struct postroom_batch batch = { 0 };

	job_submit("a", "1");
	JOBS(store, &batch, .limit = 1);
	CHECK_STR(jobs_in(&batch), "a ");
	pr_batch_release(&batch);
	jobs_shift("locked_until", -3600);
	drain(job_config("exec:test \"$POSTROOM_ATTEMPT $POSTROOM_CLAIM\" = '2 2'"));
	CHECK_STR(job_status("a"), "completed");
	CHECK_INT(number(app, "SELECT attempts * 10 + claims FROM postroom_inbox"), 22);
}

TEST(J3_job_may_exceed_its_lease_but_not_its_timeout)
{
	struct pr_relay_config config = job_config("exec:echo >> tries; sleep 1000");

	job_submit("a", "1");
	config.lease_ms = 6000;
	config.publish_timeout_ms = 11500;
	config.policy.max_attempts = 1;
	drain(config);
	CHECK_INT(lines_in("tries"), 1);
	CHECK_STR(job_status("a"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox"), "timed out after 11500ms");
}

#define FAIL_A "exec:echo $POSTROOM_ID >> tries; test $POSTROOM_ID != a"

TEST(D6_ordered_events_wait_behind_failing_event_of_their_key)
{
	INSERT_EVENTS(true, ARRIVAL(.id = "a", .key = "k", .how = PR_INSERT_PENDING),
		      ARRIVAL(.id = "b", .key = "k", .how = PR_INSERT_PENDING));
	drain(job_config(FAIL_A "; s=$?; test -e b && exit 9; "
				"test $POSTROOM_ID = a || touch b; exit $s"));
	CHECK_INT(lines_in("tries"), 4);
	CHECK_STR(job_status("a"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox WHERE id = 'a'"),
		  "exit status 1");
	CHECK_STR(job_status("b"), "completed");
}

TEST(D6_unordered_failing_event_blocks_nothing)
{
	struct pr_relay_config config = job_config(FAIL_A);

	INSERT_EVENTS(false, ARRIVAL(.id = "a", .key = "k", .how = PR_INSERT_PENDING),
		      ARRIVAL(.id = "b", .key = "k", .how = PR_INSERT_PENDING),
		      ARRIVAL(.id = "c", .key = "k", .how = PR_INSERT_PENDING));
	config.batch_size = 10; /* in one batch with it too */
	config.unordered = true;
	config.policy.base_delay_ms = config.policy.max_delay_ms = 3600000;
	start(config);
	while (jobs("completed") < 2)
		nap();
	stop();
	CHECK_STR(job_status("a"), "pending");
	CHECK_INT(lines_in("tries"), 3);
}

TEST(N4_inbox_relay_purges_only_the_inbox)
{
	struct pr_relay_config config = job_config("exec:exit 65");

	put("t", 1);
	sql(app, "UPDATE postroom_outbox SET status = 'dead'");
	begin(app);
	CHECK_INT(postroom_inbox_once(app->box, "done", "other"), POSTROOM_OK);
	commit(app);
	job_submit("dies", "1");
	CHECK_INT(postroom_inbox_submit(app->box, "other", "dead", NULL, NULL), POSTROOM_OK);
	sql(app, "UPDATE postroom_inbox SET status = 'dead' WHERE id = 'dead'");
	config.retention_ms = config.dead_retention_ms = config.dedupe_retention_ms = 0;
	config.inbox_retention_ms = 0;
	start(config);
	while (number(app, "SELECT count(*) FROM postroom_inbox") > 1)
		nap();
	stop();
	CHECK(was_logged("INBOX_WORKER_DEAD id=dies"));
	CHECK_STR(job_status("dead"), "dead");
	CHECK_INT(rows("dead"), 1);
}
