/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A handler that lost its lease gets an error before it does anything: its fencing
 *    token is older than that of the job.
 * 2. No connection stays open while the command of a handler runs: it may take hours.
 * 3. Recording a step is retried during a short outage, or while another process locks
 *    the database longer than other commands wait. Otherwise the step would run again.
 */
#include "cli/job.h"

#include "base/time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int find_job(struct cli *cli, struct cli_job *job)
{
	static const char *const names[] = { "POSTROOM_HANDLER", "POSTROOM_ID", "POSTROOM_CLAIM" };
	const char *values[3], *schema = getenv("POSTROOM_SCHEMA");
	char *end;

	for (size_t i = 0; i < 3; i++) {
		values[i] = getenv(names[i]);
		if (!values[i] || !*values[i])
			return cli_usage(cli,
					 "%s: %s is not set; run this only in commands of postroom "
					 "consume --exec, which sets it; see postroom help %s",
					 job->doing, names[i], cli->command->name);
	}
	job->handler = values[0];
	job->id = values[1];
	errno = 0;
	job->fencing_token = strtoll(values[2], &end, 10);
	if (errno || *end || job->fencing_token <= 0)
		return cli_usage(cli,
				 "%s: POSTROOM_CLAIM is \"%.40s\", not the number that postroom "
				 "consume has set",
				 job->doing, values[2]);
	if (!cli->global.schema && schema && *schema)
		cli->global.schema = schema;
	return CLI_DONE;
}

static int fail_lost(struct cli *cli, const struct cli_job *job)
{
	return cli_fail(cli,
			"%s: %s belongs to another worker: its lease at %s has expired; stop "
			"working on it",
			job->doing, job->id, job->handler);
}

struct reading {
	struct cli *cli;
	struct cli_job *job;
	bool found;
	int status; /* an enum cli_exit; errors were reported */
};

static int store_row(void *context, const postroom_row *row)
{
	struct reading *reading = context;
	struct cli_job *job = reading->job;
	struct pr_arena *memory = &reading->cli->memory;
	struct pr_err err = { 0 };

	reading->found = true;
	if (strcmp(row->status, "active") != 0 || row->claims != job->fencing_token) {
		reading->status = fail_lost(reading->cli, job);
		return 1;
	}
	if (row->checkpoint)
		job->checkpoint = pr_arena_strdup(memory, row->checkpoint);
	if ((row->checkpoint && !job->checkpoint) ||
	    pr_steps_read(&job->steps, row->steps, memory, &err) < 0)
		reading->status = cli_fail(reading->cli, "%s: no memory", job->doing);
	return 1;
}

int cli_job_read(struct cli *cli, const char *doing, struct cli_job *ret)
{
	struct reading reading = { .cli = cli, .job = ret };
	postroom_filter one = { .size = sizeof(one), .table = POSTROOM_INBOX };
	struct postroom_store *store = NULL;
	int status;

	*ret = (struct cli_job){ .doing = doing };
	status = find_job(cli, ret);
	if (status == CLI_DONE)
		status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	one.handler = ret->handler;
	one.id = ret->id;
	if (postroom_list(store, &one, 1, store_row, &reading) < 0)
		status = cli_fail(cli, "%s: %s", doing, postroom_store_errmsg(store));
	else if (!reading.found)
		status = cli_fail(cli, "%s: there is no event %s of handler %s; it may have been purged",
				  doing, one.id, one.handler);
	else
		status = reading.status;
	pr_store_close(store);
	return status;
}

#define PATIENCE_US (INT64_C(60) * 1000000)
#define PAUSE_MS 250

static int write_progress(struct cli *cli, const struct pr_progress *progress, struct pr_err *err)
{
	const struct pr_store_config config = {
		.url = cli->global.db,
		.busy_wait_ms = CLI_BUSY_WAIT_MS,
		.schema = cli->global.schema,
	};
	struct postroom_store *store = NULL;
	int status = pr_store_open(&config, &store, err);

	if (status < 0)
		return status;
	status = store->ops->check_schema(store, PR_SCHEMA_COMPATIBLE, err);
	if (status >= 0)
		status = store->ops->progress(store, progress, err);
	pr_store_close(store);
	return status;
}

static void report_waiting(struct cli *cli, const char *step, const struct pr_err *err)
{
	pr_log_event(&cli->log, PR_LOG_WARN, "INBOX_STEP_NOT_RECORDED_YET");
	pr_log_str(&cli->log, "step", step);
	pr_log_str(&cli->log, "error", err->text);
	pr_log_end(&cli->log);
	pr_log_flush(&cli->log);
}

int cli_job_write(struct cli *cli, const struct cli_job *job, const char *step, const char *result,
		  const char *checkpoint)
{
	const struct pr_progress progress = {
		.handler = job->handler,
		.id = job->id,
		.fencing_token = job->fencing_token,
		.step = step,
		.result = result,
		.checkpoint = checkpoint,
	};
	int64_t until_us = pr_mono_us() + PATIENCE_US;
	struct pr_err err = { 0 };
	bool reported = false;
	int status = write_progress(cli, &progress, &err);

	while (step && (status == POSTROOM_BUSY || status == POSTROOM_UNAVAILABLE) &&
	       pr_mono_us() < until_us) {
		if (!reported)
			report_waiting(cli, step, &err);
		reported = true;
		pr_stop_wait(NULL, PAUSE_MS);
		status = write_progress(cli, &progress, &err);
	}
	if (status == POSTROOM_LEASE_LOST)
		return fail_lost(cli, job);
	return status < 0 ? cli_fail(cli, "%s: %s", job->doing, err.text) : CLI_DONE;
}
