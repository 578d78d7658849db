/* SPDX-License-Identifier: Apache-2.0 */
/*
  * Relays, as the operating system has them: started, killed at any step, suspended at any
  * step and resumed after their leases, asked to stop, asked to read another
 * configuration.
 *
 * Found here: a stop that takes longer than its grace, or leaves leases behind.
 */
#include "sim.h"

#include <string.h>

/* Stopping may take longer than the grace by the last statements, on a machine that is busy. */
#define LAST_STATEMENTS 6

struct process processes[PROCESSES_MAX];

int __wrap_pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
			 struct pr_err *err);
int __wrap_pr_sink_open_with(const char *url, const struct pr_url_setting *settings,
			     size_t setting_count, struct pr_sink **ret, struct pr_err *err);

int __wrap_pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
			 struct pr_err *err)
{
	return store_open(config, ret, err);
}

int __wrap_pr_sink_open_with(const char *url, const struct pr_url_setting *settings,
			     size_t setting_count, struct pr_sink **ret, struct pr_err *err)
{
	(void)settings, (void)setting_count, (void)err;
	*ret = receiver_open((size_t)(url[strlen("sim:")] - '0'));
	return POSTROOM_OK;
}

/* Most of them while there is much to do. */
static int steps_to_fault(void)
{
	return (int)between(1, chance(700) ? 300 : 3000);
}

static void *run(void *context)
{
	struct process *process = context;
	struct pr_err err = { 0 };

	process->status = pr_relay_run(process->relay, &err);
	trace("ends with %d %s", process->status, process->status < 0 ? err.text : "");
	return NULL;
}

void process_begin(struct process *process)
{
	struct pr_err err;

	process->life++;
	process->begin_us = NEVER;
	process->began_us = world.now_us;
	process->stopped_us = NEVER;
	process->frozen_until_us = 0;
	process->fault_us = 0;
	process->fault_in = steps_to_fault();
	process->killed = false;
	memset(process->in_hand, 0, sizeof(process->in_hand));
	memset(process->begun, 0, sizeof(process->begun));
	ENSURE(pr_relay_make(&world.config, &process->relay, &err) >= 0, "%s", err.text);
	process->main = task_begin(process, run, process);
	trace("process %d.%d begins", process->number, process->life);
}

void process_stop(struct process *process)
{
	if (process->stopped_us != NEVER)
		return;
	trace("process %d is asked to stop", process->number);
	pr_relay_stop(process->relay);
	process->stopped_us = world.now_us;
	process->grace_us = world.config.shutdown_grace_ms * 1000;
}

/* Nothing that it claimed is left in its name, unless something kept it from that. */
static void check_left(const struct process *process)
{
	for (size_t i = 0; i < world.row_count; i++) {
		const struct row *row = &world.rows[i];

		ENSURE(row->status != PROCESSING || row->process != process ||
			       row->life != process->life || process->fault_us >= row->claimed_us,
		       "%s is still leased, and its relay has ended", row->id);
	}
}

static void check_end(const struct process *process)
{
	int64_t slack_us = SECOND + LAST_STATEMENTS * world.db_latency_us;

	ENSURE(process->status >= 0 || world.config.drain, "a relay ends with %d", process->status);
	ENSURE(process->stopped_us != NEVER || world.config.drain, "a relay ends by itself");
	check_left(process);
	if (process->stopped_us == NEVER || process->frozen_until_us >= process->stopped_us)
		return;
	ENSURE(world.now_us <= process->stopped_us + process->grace_us + slack_us,
	       "stopping takes %.3f s, and the grace is %.3f s",
	       (double)(world.now_us - process->stopped_us) / 1e6, (double)process->grace_us / 1e6);
}

void process_reap(struct process *process)
{
	struct pr_relay_totals totals;

	if (!process->relay || !(process->killed || process->main->done))
		return;
	trace("process %d.%d %s", process->number, process->life,
	      process->killed ? "is killed" : "has ended");
	if (!process->killed)
		check_end(process);
	pr_relay_totals(process->relay, &totals);
	world.logged += totals.delivered;
	pr_relay_close(process->relay);
	process->relay = NULL;
	for (size_t i = 0; i < TASKS_MAX; i++) {
		if (tasks[i].used && tasks[i].process == process)
			task_end(&tasks[i]);
	}
	/* Leases of that life may now expire without an owner. */
	process->life++;
	process->begin_us = world.now_us + between(0, 3 * SECOND);
}

/* All at once: other processes do not depend on what a reload waits for while it opens sinks. */
static void *reload(void *context)
{
	struct process *process = context;
	struct pr_relay_config config = world.config;
	struct pr_err err = { 0 };
	int status;

	config.batch_size = between(1, 20);
	current->held++;
	status = pr_relay_reload(process->relay, &config, &err);
	current->held--;
	trace("reload: %d, batches of %d", status, (int)config.batch_size);
	ENSURE(status >= 0 || status == POSTROOM_STOPPED, "%s", err.text);
	return NULL;
}

void process_step(void)
{
	struct process *process = current->process;

	if (current->held || process->faults_left == 0 || world.now_us >= world.calm_us ||
	    --process->fault_in > 0)
		return;
	process->faults_left--;
	process->fault_in = steps_to_fault();
	switch (between(0, 3)) {
	case 0:
		trace("killed");
		process->killed = true;
		sleep_until(NEVER, NULL);
		break;
	case 1:
		process->frozen_until_us = world.now_us +
					   between(0, 3 * world.config.lease_ms * 1000);
		process->fault_us = process->frozen_until_us;
		trace("frozen until %.6f", (double)process->frozen_until_us / 1e6);
		sleep_until(world.now_us, NULL);
		break;
	case 2:
		process_stop(process);
		break;
	default:
		task_begin(process, reload, process);
		break;
	}
}
