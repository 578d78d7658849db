/* SPDX-License-Identifier: Apache-2.0 */
/* The job that an exec handler processes; consume passes it in environment variables. */
#ifndef PR_CLI_JOB_H
#define PR_CLI_JOB_H

#include "cli/cli.h"
#include "inbox/step.h"

struct cli_job {
	const char *doing; /* prefix of errors */
	const char *handler;
	const char *id;
	int64_t fencing_token;
	const char *checkpoint; /* JSON; NULL: none */
	struct pr_steps steps;
};

/*
 * Finds and reads the job if this handler still has its lease. The memory of the job
 * lives as long as the program. Reports errors.
 */
int cli_job_read(struct cli *cli, const char *doing, struct cli_job *ret);
/* Records a step with its result, or a checkpoint; the other arguments are NULL. */
int cli_job_write(struct cli *cli, const struct cli_job *job, const char *step, const char *result,
		  const char *checkpoint);

#endif
