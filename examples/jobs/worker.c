/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker FILE: runs the jobs that were submitted to the handler "import", until none
 * is left. Each has two steps. You may kill it at any time: the next worker resumes
 * after the last completed step, and in the second step after the last loaded page.
 *
 *	cc -o worker worker.c $(pkg-config --cflags --libs postroom-sqlite)
 *	postroom --db shop.db inbox submit import j-1
 *	./worker shop.db
 */
#include <postroom/job.h>

#include <stdio.h>
#include <stdlib.h>

#define PAGES 3

/* Idempotent, like every step: a second run uses the same directory. */
static int prepare(postroom_job *job)
{
	printf("%s: a directory is made\n", postroom_delivery_id(postroom_job_event(job)));
	return postroom_job_step_done(job, "prepare", "{\"directory\": \"import\"}");
}

/* The checkpoint is the number of the last loaded page. Each checkpoint renews the lease. */
static int load(postroom_job *job)
{
	const char *before = postroom_job_checkpoint(job);
	char after[20];
	int status;

	for (int page = before ? atoi(before) + 1 : 1; page <= PAGES; page++) {
		printf("%s: page %d is loaded\n", postroom_delivery_id(postroom_job_event(job)),
		       page);
		snprintf(after, sizeof(after), "%d", page);
		status = postroom_job_set_checkpoint(job, after);
		if (status < 0)
			return status;
	}
	return postroom_job_step_done(job, "load", NULL);
}

static int work(postroom_job *job)
{
	int status = postroom_job_step(job, "prepare", NULL);

	if (status == POSTROOM_OK)
		status = prepare(job);
	if (status >= 0)
		status = postroom_job_step(job, "load", NULL);
	if (status == POSTROOM_OK)
		status = load(job);
	/* If a step fails, call postroom_job_fail(job, "why"). */
	return status < 0 ? status : postroom_job_finish(job);
}

int main(int argc, char **argv)
{
	postroom_store *store;
	postroom_job *job;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: worker FILE\n");
		return 2;
	}
	status = postroom_store_open(argv[1], &store);
	while (status >= 0) {
		status = postroom_job_begin(store, POSTROOM_JOB(.handler = "import"), &job);
		if (status < 0)
			break;
		status = work(job);
		postroom_job_free(job);
		/* Another worker has taken over this job; there may be more jobs. */
		if (status == POSTROOM_LEASE_LOST)
			status = POSTROOM_OK;
	}
	if (status != POSTROOM_NOT_FOUND)
		fprintf(stderr, "worker: %s\n", postroom_store_errmsg(store));
	postroom_store_close(store);
	return status != POSTROOM_NOT_FOUND;
}
