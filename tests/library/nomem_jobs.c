/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of <postroom/job.h>, for contract/store/nomem.c to starve. */
#include "contract/store/nomem.h"
#include "store/store.h"

#include <postroom/job.h>

static postroom_job *job;

static int report(int status)
{
	world.box->err = world.store->err; /* where its code is looked for */
	return status;
}

static int64_t having(const char *condition)
{
	char statement[200];

	snprintf(statement, sizeof(statement), "SELECT count(*) FROM postroom_inbox WHERE %s",
		 condition);
	return number(statement);
}

static void submit_begun(void)
{
	app_sql("INSERT INTO postroom_inbox (id, handler_name, payload, checkpoint, steps) VALUES "
		"('c', 'h', '{\"n\": 1}', '[1]', '{\"a\": {\"result\": 1, \"at\": \"2026\"}}')");
}

static int begin_job(void)
{
	return postroom_job_begin(world.store, POSTROOM_JOB(.handler = "h"), &job);
}

/* There may have been no memory to give it back either: then its lease has to run out. */
static void let_it_run_out(void)
{
	CHECK(job == NULL);
	app_sql("UPDATE postroom_inbox SET locked_until = created_at WHERE status = 'active'");
}

static void begun(void)
{
	CHECK_STR(postroom_job_checkpoint(job), "[1]");
	CHECK_INT(postroom_job_step(job, "a", NULL), POSTROOM_DUPLICATE);
	postroom_job_free(job);
}

TORTURE(J1_no_memory_to_begin_a_job, .prepare = submit_begun, .run = begin_job,
	.unchanged = let_it_run_out, .done = begun, .stride = 5)

static void submit_and_begin(void)
{
	submit_begun();
	CHECK_INT(begin_job(), POSTROOM_OK);
}

static int ask_step(void)
{
	const char *result = NULL;
	int status = postroom_job_step(job, "a", &result);

	CHECK(status < 0 || (status == POSTROOM_DUPLICATE && strcmp(result, "1") == 0));
	return status;
}

static void end_job(void)
{
	postroom_job_free(job);
}

TORTURE(J2_no_memory_to_ask_for_a_step, .prepare = submit_and_begin, .run = ask_step,
	.done = end_job)

static int step_done(void)
{
	return report(postroom_job_step_done(job, "b", "{\"r\": 1}"));
}

static void step_unknown(void)
{
	CHECK_INT(having("CAST(steps AS text) LIKE '%\"b\"%'"), 0);
	CHECK_INT(postroom_job_step(job, "b", NULL), POSTROOM_OK);
}

static void step_known(void)
{
	CHECK_INT(having("CAST(steps AS text) LIKE '%\"b\"%'"), 1);
	CHECK_INT(postroom_job_step(job, "b", NULL), POSTROOM_DUPLICATE);
	postroom_job_free(job);
}

TORTURE(J2_no_memory_to_note_a_step, .prepare = submit_and_begin, .run = step_done,
	.unchanged = step_unknown, .done = step_known)

static int set_checkpoint(void)
{
	return report(postroom_job_set_checkpoint(job, "[2]"));
}

static void old_checkpoint(void)
{
	CHECK_INT(having("CAST(checkpoint AS text) = '[1]'"), 1);
	CHECK_STR(postroom_job_checkpoint(job), "[1]");
}

static void new_checkpoint(void)
{
	CHECK_INT(having("CAST(checkpoint AS text) = '[2]'"), 1);
	CHECK_STR(postroom_job_checkpoint(job), "[2]");
	postroom_job_free(job);
}

TORTURE(J2_no_memory_to_write_a_checkpoint, .prepare = submit_and_begin, .run = set_checkpoint,
	.unchanged = old_checkpoint, .done = new_checkpoint)

static int finish(void)
{
	return postroom_job_finish(job);
}

static void still_active(void)
{
	CHECK_INT(having("status = 'active'"), 1);
}

static void completed(void)
{
	CHECK_INT(having("status = 'completed'"), 1);
	postroom_job_free(job);
}

TORTURE(J1_no_memory_to_finish_a_job, .prepare = submit_and_begin, .run = finish,
	.unchanged = still_active, .done = completed)
