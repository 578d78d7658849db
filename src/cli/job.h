/* SPDX-License-Identifier: Apache-2.0 */
/* The job that an exec handler works on, as the environment that consume has given it says. */
#ifndef PR_CLI_JOB_H
#define PR_CLI_JOB_H

#include "cli/cli.h"
#include "inbox/step.h"

struct cli_job {
	const char *doing; /* what errors begin with */
	const char *handler;
	const char *id;
	int64_t fence;
	const char *checkpoint; /* JSON; NULL: none */
	struct pr_steps steps;
};

/*
 * Finds the job and reads it, provided that it is still this handler's; what it has
 * lives as long as the program. On failure the error has been told.
 */
int cli_job_read(struct cli *cli, const char *doing, struct cli_job *ret);
/* Writes down a step with its result, or a checkpoint; the others are NULL. */
int cli_job_write(struct cli *cli, const struct cli_job *job, const char *step, const char *result,
		  const char *checkpoint);

#endif
