/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs through <postroom/job.h>: begun, done step by step, ended, and taken over (J1, J2). */
#include "contract/store/jobs.h"

#include <postroom/job.h>

#include <string.h>

/* Lanes are the outbox's alone. */
#undef TEST
#define TEST TEST_BY_ROW

static postroom_job *begin_job(postroom_store *from)
{
	postroom_job *job = NULL;
	int status = postroom_job_begin(from, POSTROOM_JOB(.handler = "h"), &job);

	CHECK_MSG(status == POSTROOM_OK, "begin: %d %s", status, postroom_store_errmsg(from));
	CHECK(job);
	return job;
}

static postroom_job *begin_one(const char *id)
{
	job_submit(id, "{\"n\": 1}");
	return begin_job(store);
}

static void check_none(postroom_store *from)
{
	postroom_job *job = (postroom_job *)from;

	CHECK_INT(postroom_job_begin(from, POSTROOM_JOB(.handler = "h"), &job), POSTROOM_NOT_FOUND);
	CHECK(job == NULL);
}

static void expire_leases(void)
{
	jobs_shift("locked_until", -24 * 3600);
}

TEST(J1_a_job_is_begun_and_finished)
{
	postroom_job *job = begin_one("j-1");
	const postroom_delivery *event = postroom_job_event(job);

	CHECK_STR(postroom_delivery_id(event), "j-1");
	CHECK_STR(postroom_delivery_ns(event), "h");
	CHECK_STR(postroom_delivery_payload(event, NULL), "{\"n\": 1}");
	CHECK_INT(postroom_delivery_attempt(event), 1);
	CHECK_STR(job_status("j-1"), "active");
	check_none(store);
	CHECK_INT(postroom_job_finish(job), POSTROOM_OK);
	postroom_job_free(job);
	CHECK_STR(job_status("j-1"), "completed");
	check_none(store);
}

TEST(J1_only_the_handlers_own_jobs_are_begun)
{
	postroom_job *job = (postroom_job *)store;

	job_submit("j-1", "{\"n\": 1}");
	CHECK_INT(postroom_job_begin(store, POSTROOM_JOB(.handler = "other"), &job),
		  POSTROOM_NOT_FOUND);
	CHECK_CONTAINS(postroom_store_errmsg(store), "other has nothing to do");
	PUT(.topic = "t", .payload = "{}", .ns = "other");
	CHECK_INT(postroom_job_begin(store, POSTROOM_JOB(.handler = "other"), &job),
		  POSTROOM_NOT_FOUND);
}

TEST(J1_failed_job_is_retried_until_dead)
{
	postroom_job *job;

	job_submit("j-1", "{\"n\": 1}");
	for (int attempt = 1; attempt <= 2; attempt++) {
		CHECK_INT(postroom_job_begin(store,
					     POSTROOM_JOB(.handler = "h", .max_attempts = 2,
							  .base_delay_ms = 3600000,
							  .max_delay_ms = 3600000),
					     &job),
			  POSTROOM_OK);
		CHECK_INT(postroom_job_event(job)->attempt, attempt);
		CHECK_INT(postroom_job_fail(job, "no disk"), POSTROOM_OK);
		postroom_job_free(job);
		CHECK_STR(job_status("j-1"), attempt == 1 ? "pending" : "dead");
		CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox"), "no disk");
		check_none(store);
		if (attempt == 1)
			jobs_shift("next_attempt_at", -7200);
	}
}

TEST(J1_a_rejected_job_is_dead_at_once)
{
	postroom_job *job = begin_one("j-1");

	CHECK_INT(postroom_job_reject(job, "no such place"), POSTROOM_OK);
	postroom_job_free(job);
	CHECK_STR(job_status("j-1"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox"), "no such place");
}

TEST(J1_freed_job_is_released_and_its_attempt_refunded)
{
	postroom_job *job = begin_one("j-1");

	CHECK_INT(postroom_job_step_done(job, "a", NULL), POSTROOM_OK);
	postroom_job_free(job);
	postroom_job_free(NULL);
	CHECK_STR(job_status("j-1"), "pending");
	job = begin_job(store);
	CHECK_INT(postroom_job_event(job)->attempt, 1);
	CHECK_INT(postroom_job_step(job, "a", NULL), POSTROOM_DUPLICATE);
	postroom_job_free(job);
}

/* The steps of a job that was taken over are the new one's to go on from. */
TEST(J2_job_of_dead_worker_resumes_after_its_last_step)
{
	postroom_store *second = open_store();
	postroom_job *job = begin_one("j-1"), *heir;
	const char *result = NULL;

	CHECK_INT(postroom_job_step(job, "clone", &result), POSTROOM_OK);
	CHECK(result == NULL);
	CHECK_INT(postroom_job_step_done(job, "clone", "{\"files\": 3}"), POSTROOM_OK);
	CHECK_INT(postroom_job_set_checkpoint(job, "[1]"), POSTROOM_OK);
	expire_leases();
	heir = begin_job(second);
	CHECK_INT(postroom_job_event(heir)->attempt, 2);
	CHECK_INT(postroom_job_step(heir, "clone", &result), POSTROOM_DUPLICATE);
	CHECK_CONTAINS(result, "3}");
	CHECK_STR(postroom_job_checkpoint(heir), "[1]");
	CHECK_INT(postroom_job_step(heir, "build", NULL), POSTROOM_OK);
	CHECK_INT(postroom_job_step_done(heir, "build", NULL), POSTROOM_OK);
	CHECK_INT(postroom_job_step(heir, "build", &result), POSTROOM_DUPLICATE);
	CHECK_STR(result, "null");
	CHECK_INT(postroom_job_finish(heir), POSTROOM_OK);
	postroom_job_free(heir);
	postroom_job_free(job);
	postroom_store_close(second);
	CHECK_STR(job_status("j-1"), "completed");
}

typedef int (*call_fn)(postroom_job *job);

static int ask_step(postroom_job *job)
{
	return postroom_job_step(job, "a", NULL);
}

static int step_done(postroom_job *job)
{
	return postroom_job_step_done(job, "late", NULL);
}

static int set_checkpoint(postroom_job *job)
{
	return postroom_job_set_checkpoint(job, "\"late\"");
}

static int fail(postroom_job *job)
{
	return postroom_job_fail(job, "late");
}

static int reject(postroom_job *job)
{
	return postroom_job_reject(job, "late");
}

static const call_fn calls[] = { ask_step, step_done, set_checkpoint,	  postroom_job_renew,
				 fail,	   reject,    postroom_job_finish };

#define WHOLE                                                                                      \
	"SELECT status || claims || attempts || CAST(steps AS text) || "                           \
	"coalesce(CAST(checkpoint AS text), '') FROM postroom_inbox"

TEST(J1_every_call_for_a_lost_job_fails_and_changes_nothing)
{
	postroom_store *second = open_store();
	char before[2000];

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		postroom_job *job, *heir;

		sql(app, "DELETE FROM postroom_inbox");
		job = begin_one("j-1");
		expire_leases();
		heir = begin_job(second);
		snprintf(before, sizeof(before), "%s", text(app, WHOLE));
		CHECK_INT(calls[i](job), POSTROOM_LEASE_LOST);
		CHECK_CONTAINS(postroom_store_errmsg(store), "j-1 belongs to another worker");
		CHECK_INT(calls[i](job), POSTROOM_LEASE_LOST);
		postroom_job_free(job);
		CHECK_STR(text(app, WHOLE), before);
		postroom_job_free(heir);
	}
	postroom_store_close(second);
}

TEST(J1_calls_for_a_finished_job_fail)
{
	postroom_job *job = begin_one("j-1");

	CHECK_INT(postroom_job_finish(job), POSTROOM_OK);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		CHECK_INT(calls[i](job), POSTROOM_NOT_FOUND);
	CHECK_CONTAINS(postroom_store_errmsg(store), "j-1 has ended");
	postroom_job_free(job);
	CHECK_STR(job_status("j-1"), "completed");
}

TEST(J1_every_call_about_progress_renews_the_lease)
{
	postroom_store *second = open_store();
	postroom_job *job = begin_one("j-1");

	for (size_t i = 0; i < 4; i++) {
		expire_leases();
		CHECK_INT(calls[i](job), POSTROOM_OK);
		check_none(second);
	}
	postroom_job_free(job);
	postroom_store_close(second);
}

TEST(J2_a_checkpoint_is_replaced_as_a_whole)
{
	postroom_job *job = begin_one("j-1");

	CHECK(postroom_job_checkpoint(job) == NULL);
	CHECK_INT(postroom_job_set_checkpoint(job, "{\"a\": 1, \"b\": null}"), POSTROOM_OK);
	CHECK_INT(postroom_job_step_done(job, "a", "1"), POSTROOM_OK);
	CHECK_INT(postroom_job_set_checkpoint(job, "{\"c\": 2}"), POSTROOM_OK);
	CHECK_STR(postroom_job_checkpoint(job), "{\"c\": 2}");
	postroom_job_free(job);
	job = begin_job(store);
	CHECK_STR(postroom_job_checkpoint(job), "{\"c\": 2}");
	CHECK_INT(postroom_job_step(job, "a", NULL), POSTROOM_DUPLICATE);
	postroom_job_free(job);
}

TEST(J2_unusual_names_and_results_are_returned_unchanged)
{
	static const char *const names[] = { "a.b",	    "$[0]",  "\"", "it's",
					     "a\\u0041/\\", "größe", " ",  "{\"a\":1}" };
	static const char *const results[] = { "null",
					       "[]",
					       "\"\\\"\"",
					       "false",
					       "-0.5",
					       "\"é\"",
					       "{\"at\": \"x\", \"result\": null}",
					       "{}" };
	postroom_job *job = begin_one("j-1");
	const char *result;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		CHECK_INT(postroom_job_step_done(job, names[i], results[i]), POSTROOM_OK);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			CHECK_INT(postroom_job_step(job, names[i], &result), POSTROOM_DUPLICATE);
			/* SQLite has its own idea of blanks. */
			if (!strchr(results[i], ' '))
				CHECK_STR(result, results[i]);
		}
		CHECK_INT(postroom_job_step(job, "a", &result), POSTROOM_OK);
		postroom_job_free(job);
		if (round == 0)
			job = begin_job(store);
	}
}

TEST(J2_repeated_step_has_its_last_result)
{
	postroom_job *job = begin_one("j-1");
	const char *result;

	CHECK_INT(postroom_job_step_done(job, "a", "1"), POSTROOM_OK);
	CHECK_INT(postroom_job_step_done(job, "a", "2"), POSTROOM_OK);
	CHECK_INT(postroom_job_step(job, "a", &result), POSTROOM_DUPLICATE);
	CHECK_STR(result, "2");
	postroom_job_free(job);
	job = begin_job(store);
	CHECK_INT(postroom_job_step(job, "a", &result), POSTROOM_DUPLICATE);
	CHECK_STR(result, "2");
	postroom_job_free(job);
}

TEST(J2_bad_input_is_refused_and_writes_nothing)
{
	char longest[POSTROOM_STEP_MAX + 2];
	postroom_job *job = begin_one("j-1");

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	CHECK_INT(postroom_job_step(job, NULL, NULL), POSTROOM_INVALID);
	CHECK_INT(postroom_job_step(job, "", NULL), POSTROOM_INVALID);
	CHECK_INT(postroom_job_step_done(job, "a\n", NULL), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_store_errmsg(store), "job step done: the step's name");
	CHECK_INT(postroom_job_step_done(job, "\xff", NULL), POSTROOM_INVALID);
	CHECK_INT(postroom_job_step_done(job, longest, NULL), POSTROOM_INVALID);
	CHECK_INT(postroom_job_step_done(job, "a", "{"), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_store_errmsg(store), "result is not valid JSON");
	CHECK_INT(postroom_job_set_checkpoint(job, "nul"), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_store_errmsg(store), "checkpoint is not valid JSON");
	CHECK_INT(postroom_job_set_checkpoint(job, NULL), POSTROOM_INVALID);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox WHERE checkpoint IS NULL AND "
			      "CAST(steps AS text) = '{}'"),
		  1);
	longest[POSTROOM_STEP_MAX] = '\0';
	CHECK_INT(postroom_job_step_done(job, longest, NULL), POSTROOM_OK);
	postroom_job_free(job);
}

TEST(J1_bad_options_are_refused)
{
	postroom_job *job = (postroom_job *)store;

	job_submit("j-1", "{\"n\": 1}");
	CHECK_INT(postroom_job_begin(store, &(postroom_job_options){ .handler = "h" }, &job),
		  POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_store_errmsg(store), "POSTROOM_JOB()");
	CHECK_INT(postroom_job_begin(store, POSTROOM_JOB(.lease_ms = 1), &job), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_store_errmsg(store), "job begin: handler is missing");
	CHECK_INT(postroom_job_begin(store, POSTROOM_JOB(.handler = "a\n"), &job),
		  POSTROOM_INVALID);
	CHECK_INT(postroom_job_begin(store, POSTROOM_JOB(.handler = "h", .lease_ms = -1), &job),
		  POSTROOM_INVALID);
	CHECK(job == NULL);
	CHECK_STR(job_status("j-1"), "pending");
}

/* A claim that finds only jobs that died in their last attempt does not end the search. */
TEST(J1_next_job_is_found_behind_jobs_of_dead_workers)
{
	const postroom_job_options once = { .size = sizeof(once),
					    .handler = "h",
					    .max_attempts = 1 };
	postroom_store *dying[3];
	postroom_job *job, *left[3];

	for (int i = 0; i < 3; i++) {
		char id[] = { 'j', (char)('0' + i), '\0' };

		job_submit(id, "{\"n\": 1}");
		dying[i] = open_store();
		CHECK_INT(postroom_job_begin(dying[i], &once, &left[i]), POSTROOM_OK);
	}
	expire_leases();
	job_submit("alive", NULL);
	CHECK_INT(postroom_job_begin(store, &once, &job), POSTROOM_OK);
	CHECK_STR(postroom_job_event(job)->id, "alive");
	postroom_job_free(job);
	for (int i = 0; i < 3; i++) {
		postroom_job_free(left[i]);
		postroom_store_close(dying[i]);
	}
}
