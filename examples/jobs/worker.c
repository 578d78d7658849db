/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker FILE: does the jobs that were submitted to the handler "import", until there
 * are none left. Each has two steps. Kill it whenever you like: the next one goes on
 * behind the last step, and within the second one behind the last page.
 *
 *	cc -o worker worker.c $(pkg-config --cflags --libs postroom-sqlite)
 *	postroom --db shop.db inbox submit import j-1
 *	./worker shop.db
 */
#include <postroom/job.h>

#include <stdio.h>
#include <stdlib.h>

#define PAGES 3

/* May be done again, like every step: it is the same directory the second time. */
static int prepare(postroom_job *job)
{
	printf("%s: a directory is made\n", postroom_delivery_id(postroom_job_event(job)));
	return postroom_job_step_done(job, "prepare", "{\"directory\": \"import\"}");
}

/* The checkpoint is the number of the last page that is in. Each one starts the lease anew. */
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
		/* Another worker has taken that job over; there may be more. */
		if (status == POSTROOM_LEASE_LOST)
			status = POSTROOM_OK;
	}
	if (status != POSTROOM_NOT_FOUND)
		fprintf(stderr, "worker: %s\n", postroom_store_errmsg(store));
	postroom_store_close(store);
	return status != POSTROOM_NOT_FOUND;
}
