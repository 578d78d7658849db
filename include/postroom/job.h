/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: commands submitted to a handler, for programs that process them. A job is leased, done
 * step by step, and finished or failed. If a worker dies, another one takes its job over when the
 * lease has expired, and resumes after the last step.
 *
 *	while (postroom_job_begin(store, POSTROOM_JOB(.handler = "import"), &job) == POSTROOM_OK) {
 *		if (postroom_job_step(job, "clone", NULL) == POSTROOM_OK) {
 *			…
 *			postroom_job_step_done(job, "clone", NULL);
 *		}
 *		postroom_job_finish(job);
 *		postroom_job_free(job);
 *	}
 *
 * Each call runs short transactions on the store's connection. After a failure,
 * postroom_store_errmsg() has the sentence. A job is used by one thread, and not after its store
 * is closed. POSTROOM_LEASE_LOST from any call means that another worker has the job: stop working
 * on it. A step runs at least once: if a worker dies between the work and
 * postroom_job_step_done(), the step runs again, so make it idempotent. The keys of events do not
 * order their jobs here.
 */
#ifndef POSTROOM_JOB_H
#define POSTROOM_JOB_H

#include <postroom/store.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POSTROOM_STEP_MAX 255 /* bytes of a step's name */

typedef struct postroom_job postroom_job;

/* Zero means default. */
typedef struct postroom_job_options {
	size_t size;
	const char *handler;
	int64_t lease_ms;      /* 30 s; starts anew with every call about a step or checkpoint */
	int32_t max_attempts;  /* 10, the first included */
	int64_t base_delay_ms; /* 1 s */
	int64_t max_delay_ms;  /* 5 min */
	postroom_backoff backoff;
} postroom_job_options;

#define POSTROOM_JOB(...)                                                                          \
	(&(const postroom_job_options){ .size = sizeof(postroom_job_options), __VA_ARGS__ })

/*
 * Claims the handler's next due job. POSTROOM_NOT_FOUND: there is none. Free *ret with
 * postroom_job_free(); a job that is freed before it was finished is released, and its attempt
 * refunded.
 */
POSTROOM_API int postroom_job_begin(postroom_store *store, const postroom_job_options *options,
				    postroom_job **ret);
POSTROOM_API void postroom_job_free(postroom_job *job);

/* Valid as long as the job. */
POSTROOM_API const postroom_delivery *postroom_job_event(const postroom_job *job);
/* JSON, valid until it is replaced; NULL: none. */
POSTROOM_API const char *postroom_job_checkpoint(const postroom_job *job);

/*
 * Is this step still to be done? POSTROOM_OK: yes. POSTROOM_DUPLICATE: it has been done,
 * and *ret_result is its result (JSON, valid as long as the job). ret_result may be NULL.
 * A name has 1 to POSTROOM_STEP_MAX bytes of UTF-8 without control characters.
 */
POSTROOM_API int postroom_job_step(postroom_job *job, const char *name, const char **ret_result);
/* Marks the step as done. result is JSON of at most 1 MiB, like a checkpoint, or NULL for none. */
POSTROOM_API int postroom_job_step_done(postroom_job *job, const char *name, const char *result);
/* Replaces the checkpoint by this JSON. */
POSTROOM_API int postroom_job_set_checkpoint(postroom_job *job, const char *checkpoint);
/* The lease starts anew: for work that takes longer than it. */
POSTROOM_API int postroom_job_renew(postroom_job *job);

/*
 * Ends the job in one of three ways; afterwards only postroom_job_free() is allowed. Failures
 * other than POSTROOM_LEASE_LOST can be retried.
 */
/* Completed. */
POSTROOM_API int postroom_job_finish(postroom_job *job);
/* Failed: pending again after the backoff, or dead after its last attempt. */
POSTROOM_API int postroom_job_fail(postroom_job *job, const char *reason);
/* Dead at once. */
POSTROOM_API int postroom_job_reject(postroom_job *job, const char *reason);

#ifdef __cplusplus
}
#endif

#endif
