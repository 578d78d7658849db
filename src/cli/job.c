/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A handler whose lease was lost is told so before it does anything: the number of
 *    its claim is not the job's any more.
 * 2. No connection is kept while a handler's command runs: that may take hours.
 * 3. A step that was done is recorded though the database be away for a moment, or
 *    somebody's for longer than other commands wait: else it would be done again.
 */
#include "cli/job.h"

#include "base/time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int find(struct cli *cli, struct cli_job *job)
{
	static const char *const names[] = { "POSTROOM_HANDLER", "POSTROOM_ID", "POSTROOM_CLAIM" };
	const char *values[3], *schema = getenv("POSTROOM_SCHEMA");
	char *end;

	for (size_t i = 0; i < 3; i++) {
		values[i] = getenv(names[i]);
		if (!values[i] || !*values[i])
			return cli_usage(cli,
					 "%s: %s is not set; this is for commands that postroom "
					 "consume --exec runs, whose environment says which job "
					 "they are working on: postroom help %s shows how",
					 job->doing, names[i], cli->command->name);
	}
	job->handler = values[0];
	job->id = values[1];
	errno = 0;
	job->fence = strtoll(values[2], &end, 10);
	if (errno || *end || job->fence <= 0)
		return cli_usage(cli,
				 "%s: POSTROOM_CLAIM is \"%.40s\", and not the number that "
				 "postroom consume has put there",
				 job->doing, values[2]);
	if (!cli->global.schema && schema && *schema)
		cli->global.schema = schema;
	return CLI_DONE;
}

static int lost(struct cli *cli, const struct cli_job *job)
{
	return cli_fail(cli,
			"%s: %s is somebody else's by now: its lease at %s has run out; stop "
			"working on it",
			job->doing, job->id, job->handler);
}

struct reading {
	struct cli *cli;
	struct cli_job *job;
	bool found;
	int status; /* an enum cli_exit, told */
};

static int keep(void *context, const postroom_inbox_row *row)
{
	struct reading *reading = context;
	struct cli_job *job = reading->job;
	struct pr_arena *memory = &reading->cli->memory;
	struct pr_err err = { 0 };

	reading->found = true;
	if (strcmp(row->status, "active") != 0 || row->claims != job->fence) {
		reading->status = lost(reading->cli, job);
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
	postroom_inbox_filter one = { .size = sizeof(one) };
	struct postroom_store *store = NULL;
	int status;

	*ret = (struct cli_job){ .doing = doing };
	status = find(cli, ret);
	if (status == CLI_DONE)
		status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	one.handler = ret->handler;
	one.id = ret->id;
	if (postroom_inbox_list(store, &one, 1, keep, &reading) < 0)
		status = cli_fail(cli, "%s: %s", doing, postroom_store_errmsg(store));
	else if (!reading.found)
		status = cli_fail(cli, "%s: there is no %s at %s", doing, one.id, one.handler);
	else
		status = reading.status;
	pr_store_close(store);
	return status;
}

#define PATIENCE_US (INT64_C(60) * 1000000)
#define PAUSE_MS 250

static int write_down(struct cli *cli, const struct pr_progress *progress, struct pr_err *err)
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
	status = store->ops->progress(store, progress, err);
	pr_store_close(store);
	return status;
}

static void tell_waiting(struct cli *cli, const char *step, const struct pr_err *err)
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
		.fence = job->fence,
		.step = step,
		.result = result,
		.checkpoint = checkpoint,
	};
	int64_t until_us = pr_mono_us() + PATIENCE_US;
	struct pr_err err = { 0 };
	bool told = false;
	int status = write_down(cli, &progress, &err);

	while (step && (status == POSTROOM_BUSY || status == POSTROOM_UNAVAILABLE) &&
	       pr_mono_us() < until_us) {
		if (!told)
			tell_waiting(cli, step, &err);
		told = true;
		pr_stop_wait(NULL, PAUSE_MS);
		status = write_down(cli, &progress, &err);
	}
	if (status == POSTROOM_LEASE_LOST)
		return lost(cli, job);
	return status < 0 ? cli_fail(cli, "%s: %s", job->doing, err.text) : CLI_DONE;
}
