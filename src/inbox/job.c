/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs for programs that process them: a claim of one inbox row, and its progress.
 *
 * 1. Leases, fencing tokens and backoff are in the stores: this file only handles one claimed row.
 * 2. Steps and checkpoint are read after the claim, so that no other worker can have added to
 *    them.
 * 3. A step or checkpoint is stored in memory only after the table has it.
 * 4. A job that has ended or was lost never touches the table again.
 */
#include <postroom/job.h>

#include "base/time.h"
#include "inbox/step.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

struct postroom_job {
	struct postroom_store *store;
	struct postroom_batch *batch; /* has the one item; its arena has the steps too */
	postroom_delivery *item;
	struct pr_steps steps;
	struct pr_buf checkpoint; /* no data: none */
	bool over;		  /* settled, or lost */
	bool lost;
};

static int lose_job(postroom_job *job, const char *doing)
{
	job->over = job->lost = true;
	return pr_err_set(&job->store->err, POSTROOM_LEASE_LOST,
			  "%s: %s belongs to another worker: its lease at %s has expired; stop "
			  "working on it",
			  doing, job->item->id, job->item->ns);
}

/* Checks that there is an open job, before anything is written. */
static int begin_call(postroom_job *job, const char *doing)
{
	pr_err_clear(&job->store->err);
	if (job->lost)
		return lose_job(job, doing);
	if (job->over)
		return pr_err_set(&job->store->err, POSTROOM_NOT_FOUND,
				  "%s: %s has ended; begin the next job", doing, job->item->id);
	return POSTROOM_OK;
}

static int end_call(postroom_job *job, const char *doing, int status)
{
	if (status == POSTROOM_LEASE_LOST)
		return lose_job(job, doing);
	return status < 0 ? pr_err_prefix(&job->store->err, "%s", doing) : status;
}

static int check_options(const postroom_job_options *options, struct pr_err *err)
{
	if (options->size != sizeof(*options))
		return pr_err_set(err, POSTROOM_INVALID,
				  "size must be sizeof(postroom_job_options): use POSTROOM_JOB()");
	if (!options->handler)
		return pr_err_set(err, POSTROOM_INVALID, "handler is missing");
	return pr_name_check("handler", options->handler, POSTROOM_HANDLER_MAX, err);
}

/*
 * Claims until there is a job, or none is left. A claim may only have dead-lettered messages, or
 * failed one whose content could not be loaded.
 */
static int claim_one(postroom_job *job, const postroom_job_options *options)
{
	const postroom_claim_options claim = {
		.size = sizeof(claim),
		.ns = options->handler,
		.limit = 1,
		.lease_ms = options->lease_ms,
		.max_attempts = options->max_attempts,
		.base_delay_ms = options->base_delay_ms,
		.max_delay_ms = options->max_delay_ms,
		.backoff = options->backoff,
	};
	int status;

	for (;;) {
		status = pr_store_claim_new(job->store, &pr_table_inbox, &claim, true, &job->batch);
		if (status < 0)
			return status;
		if (job->batch->count > 0)
			break;
		if (job->batch->dead_letter_count == 0 && job->batch->unloaded == 0)
			return pr_err_set(&job->store->err, POSTROOM_NOT_FOUND,
					  "%s has nothing to do", options->handler);
		postroom_batch_free(job->batch);
		job->batch = NULL;
	}
	job->item = job->batch->items;
	return POSTROOM_OK;
}

static int keep_progress(void *context, const postroom_row *row)
{
	postroom_job *job = context;
	struct pr_err *err = &job->store->err;

	if (row->claims != job->item->fencing_token) {
		lose_job(job, "job begin");
		return 1;
	}
	if (row->checkpoint)
		pr_buf_puts(&job->checkpoint, row->checkpoint);
	if (job->checkpoint.failed)
		pr_err_nomem(err);
	else
		pr_steps_read(&job->steps, row->steps, &job->batch->arena, err);
	return err->status < 0;
}

static int read_progress(postroom_job *job)
{
	const postroom_filter one = { .size = sizeof(one),
				      .table = POSTROOM_INBOX,
				      .handler = job->item->ns,
				      .id = job->item->id };
	struct pr_err *err = &job->store->err;
	int status = job->store->ops->list(job->store, &one, INT32_MAX, keep_progress, job, err);

	return status < 0 ? status : err->status;
}

int postroom_job_begin(postroom_store *store, const postroom_job_options *options,
		       postroom_job **ret)
{
	postroom_job *job;
	int status;

	*ret = NULL;
	pr_err_clear(&store->err);
	status = check_options(options, &store->err);
	if (status < 0)
		return pr_err_prefix(&store->err, "job begin");
	job = calloc(1, sizeof(*job));
	if (!job)
		return pr_err_nomem(&store->err);
	job->store = store;
	status = claim_one(job, options);
	if (status >= 0)
		status = read_progress(job);
	if (status < 0) {
		postroom_job_free(job);
		return status;
	}
	*ret = job;
	return POSTROOM_OK;
}

static int settle_job(postroom_job *job, postroom_verdict verdict, const char *reason,
		      struct pr_err *err)
{
	struct postroom_batch *batch = job->batch;

	pr_verdict_set(job->item, verdict, &batch->arena, &batch->policy, reason,
		       reason ? strlen(reason) : 0);
	return pr_store_settle(job->store, &pr_table_inbox,
			       &(struct pr_settle){ job->item, 1, &batch->policy }, err);
}

void postroom_job_free(postroom_job *job)
{
	struct pr_err unheard = { 0 };

	if (!job)
		return;
	/* If the release fails, the job is taken over when its lease has expired. */
	if (job->item && !job->over)
		settle_job(job, POSTROOM_UNTRIED, NULL, &unheard);
	postroom_batch_free(job->batch);
	pr_buf_release(&job->checkpoint);
	free(job);
}

const postroom_delivery *postroom_job_event(const postroom_job *job)
{
	return job->item;
}

const char *postroom_job_checkpoint(const postroom_job *job)
{
	return job->checkpoint.data;
}

static int renew_job(postroom_job *job)
{
	return job->store->ops->renew(job->store, &pr_table_inbox, job->item, 1,
				      job->batch->lease_ms, &job->store->err);
}

int postroom_job_renew(postroom_job *job)
{
	static const char doing[] = "job renew";
	int status = begin_call(job, doing);

	return status < 0 ? status : end_call(job, doing, renew_job(job));
}

int postroom_job_step(postroom_job *job, const char *name, const char **ret_result)
{
	static const char doing[] = "job step";
	int status = begin_call(job, doing);
	const struct pr_step *step;

	if (status < 0)
		return status;
	status = pr_step_check(name, &job->store->err);
	if (status >= 0)
		status = renew_job(job);
	if (status < 0)
		return end_call(job, doing, status);
	step = pr_steps_find(&job->steps, name);
	if (!step)
		return POSTROOM_OK;
	if (ret_result)
		*ret_result = step->result;
	return POSTROOM_DUPLICATE;
}

static int write_progress(postroom_job *job, const char *step, const char *result,
			  const char *checkpoint)
{
	const struct pr_progress progress = {
		.handler = job->item->ns,
		.id = job->item->id,
		.fencing_token = job->item->fencing_token,
		.step = step,
		.result = result,
		.checkpoint = checkpoint,
	};
	int status = renew_job(job);

	if (status < 0)
		return status;
	return job->store->ops->progress(job->store, &progress, &job->store->err);
}

/* Allocated before the write, because the write cannot be undone when there is no memory. */
static struct pr_step *new_step(postroom_job *job, const char *name, const char *result)
{
	struct pr_arena *arena = &job->batch->arena;
	struct pr_step *step = pr_arena_alloc(arena, sizeof(*step));
	char at[PR_RFC3339_SIZE];

	if (!step)
		return NULL;
	pr_rfc3339(pr_now_us(), at);
	*step = (struct pr_step){ .name = pr_arena_strdup(arena, name),
				  .result = pr_arena_strdup(arena, result),
				  .at = pr_arena_strdup(arena, at) };
	return step->name && step->result && step->at ? step : NULL;
}

int postroom_job_step_done(postroom_job *job, const char *name, const char *result)
{
	static const char doing[] = "job step done";
	struct pr_err *err = &job->store->err;
	int status = begin_call(job, doing);
	struct pr_step *step, *before;

	if (status < 0)
		return status;
	result = result ? result : "null";
	status = pr_step_check(name, err);
	if (status >= 0)
		status = pr_progress_check("result", result, err);
	if (status < 0)
		return end_call(job, doing, status);
	step = new_step(job, name, result);
	if (!step)
		return pr_err_nomem(err);
	status = write_progress(job, name, result, NULL);
	if (status < 0)
		return end_call(job, doing, status);
	before = pr_steps_find(&job->steps, name);
	if (before)
		before->result = step->result;
	else
		pr_steps_add(&job->steps, step);
	return POSTROOM_OK;
}

int postroom_job_set_checkpoint(postroom_job *job, const char *checkpoint)
{
	static const char doing[] = "job set checkpoint";
	struct pr_buf copy = { 0 };
	int status = begin_call(job, doing);

	if (status < 0)
		return status;
	status = pr_progress_check("checkpoint", checkpoint, &job->store->err);
	if (status < 0)
		return end_call(job, doing, status);
	pr_buf_puts(&copy, checkpoint);
	status = copy.failed ? pr_err_nomem(&job->store->err)
			     : write_progress(job, NULL, NULL, checkpoint);
	if (status < 0) {
		pr_buf_release(&copy);
		return end_call(job, doing, status);
	}
	pr_buf_release(&job->checkpoint);
	job->checkpoint = copy;
	return POSTROOM_OK;
}

static int end_job(postroom_job *job, const char *doing, postroom_verdict verdict,
		   const char *reason)
{
	int status = begin_call(job, doing);

	if (status < 0)
		return status;
	status = settle_job(job, verdict, reason, &job->store->err);
	job->over = status >= 0;
	return end_call(job, doing, status);
}

int postroom_job_finish(postroom_job *job)
{
	return end_job(job, "job finish", POSTROOM_DELIVERED, NULL);
}

int postroom_job_fail(postroom_job *job, const char *reason)
{
	return end_job(job, "job fail", POSTROOM_FAILED, reason);
}

int postroom_job_reject(postroom_job *job, const char *reason)
{
	return end_job(job, "job reject", POSTROOM_REJECTED, reason);
}
