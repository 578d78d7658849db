/* SPDX-License-Identifier: Apache-2.0 */
/* Publishes that take longer than their lease, and handlers, with the relay in the test's process. */
#include "relay/rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* On a busy machine a moment may last for seconds; a renewal must still be in time. */
#define LEASE_MS 6000

/* In flight until there is a file "go". */
#define COMMAND                                                                                    \
	"exec:echo $$ >> pids; echo $POSTROOM_CLAIM >> begun; "                                    \
	"while ! test -e go; do sleep 0.02; done; echo >> completed"

static struct pr_relay_config long_config(void)
{
	struct pr_relay_config config = rig_config();

	config.to = COMMAND;
	config.lease_ms = LEASE_MS;
	config.publish_timeout_ms = 600000;
	config.renews_leases = true;
	return config;
}

static void start_long(void)
{
	put("t", 1);
	start(long_config());
	wait_for_lines("begun", 1);
}

/* Waits until the first command is gone. It may be killed before it could say anything. */
static void wait_for_end(void)
{
	FILE *pids = fopen("pids", "r");
	int pid = 0;

	CHECK(pids && fscanf(pids, "%d", &pid) == 1);
	fclose(pids);
	while (kill(pid, 0) == 0)
		nap();
	CHECK_INT(lines_in("completed"), 0);
}

static void let_it_end(void)
{
	close(open("go", O_WRONLY | O_CREAT, 0600));
	while (rows("delivered") < 1)
		nap();
}

static struct pr_relay_totals totals(void)
{
	struct pr_relay_totals totals;

	pr_relay_totals(run.relay, &totals);
	return totals;
}

TEST(D1_publish_timeout_may_exceed_the_lease_only_if_it_is_renewed)
{
	struct pr_relay_config config = long_config();

	CHECK_INT(pr_relay_config_check(&config, &run.err), POSTROOM_OK);
	config.renews_leases = false;
	CHECK_INT(pr_relay_config_check(&config, &run.err), POSTROOM_INVALID);
	CHECK_CONTAINS(run.err.text, "publish-timeout");
}

TEST(A5_publish_longer_than_its_lease_runs_once)
{
	int64_t until_us;

	start_long();
	until_us = database_now_us(app) + 2 * LEASE_MS * 1000;
	while (database_now_us(app) < until_us)
		nap();
	let_it_end();
	CHECK_INT(totals().lost, 0);
	stop();
	CHECK_INT(lines_in("begun"), 1);
	CHECK_INT(lines_in("completed"), 1);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
}

TEST_BY_ROW(A2_lost_lease_ends_its_command_and_settles_nothing)
{
	start_long();
	begin(app); /* a renewal in between would shorten the other worker's lease */
	shift("locked_until", 3600);
	sql(app, "UPDATE postroom_outbox SET claims = claims + 1, "
		 "locked_by = '6f1c2a34-0000-4000-8000-000000000002'");
	commit(app);
	wait_for_end();
	while (totals().lost < 1)
		nap();
	CHECK_INT(totals().lost, 1);
	CHECK(was_logged("OUTBOX_WORKER_SKIP_PROCESSED id="));
	CHECK_INT(totals().failed, 0);
	stop();
	CHECK_INT(rows("processing"), 1);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
	CHECK_INT(lines_in("begun"), 1);
}

TEST_BY_ROW(A5_lease_that_cannot_be_renewed_ends_the_command)
{
	struct session *other = join();

	start_long();
	begin(other);
	if (backend != &backend_sqlite)
		sql(other, "LOCK TABLE postroom_outbox IN EXCLUSIVE MODE");
	/* The lock is still held: no worker has waited for it any longer than the lease. */
	wait_for_end();
	CHECK(was_logged("OUTBOX_STORE_TROUBLE"));
	rollback(other);
	leave(other);
	wait_for_lines("begun", 2);
	let_it_end();
	stop();
	/* It was begun: an attempt like any other. */
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 2);
	CHECK_INT(lines_in("completed"), 1);
}

/* This whole process, but for the commands: as a laptop that sleeps, or a debugger. */
static void sleep_past_the_lease(void)
{
	pid_t us = getpid(), other = fork();

	CHECK(other >= 0);
	if (other > 0)
		return;
	kill(us, SIGSTOP);
	nanosleep(&(struct timespec){ .tv_sec = 2 * LEASE_MS / 1000 }, NULL);
	kill(us, SIGCONT);
	_exit(0);
}

TEST(A5_suspended_worker_stops_after_its_lease_expired)
{
	struct pr_relay_config config = long_config();

	put("t", 1);
	config.workers = 1; /* no other worker claims it: it could be renewed */
	start(config);
	wait_for_lines("begun", 1);
	sleep_past_the_lease();
	wait_for_end();
	wait_for_lines("begun", 2);
	let_it_end();
	stop();
	CHECK_INT(lines_in("completed"), 1);
}

static int keep_odd_ones(struct pr_sink *sink, postroom_delivery *items, size_t count,
			 const struct pr_flight *flight, struct pr_err *err)
{
	(void)sink, (void)err;
	pr_sink_judge(items, count, POSTROOM_DELIVERED, flight, NULL);
	for (size_t i = 0; i < count; i++)
		items[i].settled_by_handler = strcmp(items[i].topic, "odd") == 0;
	return POSTROOM_OK;
}

static int open_handler(void *context, struct pr_sink **ret, struct pr_err *err)
{
	static const char *const schemes[] = { "test", NULL };
	static const struct pr_sink_ops ops = { .schemes = schemes, .publish = keep_odd_ones };

	if (strcmp(context, "works") != 0)
		return pr_err_set(err, POSTROOM_INVALID, "the handler is broken");
	*ret = calloc(1, sizeof(**ret));
	CHECK(*ret);
	(*ret)->ops = &ops;
	return POSTROOM_OK;
}

TEST_BY_ROW(N2_event_settled_by_handler_is_logged_and_not_settled_again)
{
	struct pr_relay_config config = rig_config();
	char line[200];

	put("odd", 1);
	put("even", 2);
	put("odd", 1);
	config.handler = (struct pr_handler){ open_handler, "works" };
	start(config);
	while (totals().delivered < 4)
		nap();
	stop();
	CHECK_INT(rows("delivered"), 2);
	/* As if it had forgotten to: no other worker has changed them. */
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE topic = 'odd' "
			      "AND status = 'processing'"),
		  2);
	snprintf(line, sizeof(line), "OUTBOX_WORKER_DISPATCH_SUCCESS id=%s",
		 text(app, "SELECT id FROM postroom_outbox WHERE topic = 'odd'"));
	CHECK(was_logged(line));
}

TEST(D1_unusable_handler_is_reported_before_start)
{
	struct pr_relay_config config = rig_config();

	config.handler = (struct pr_handler){ open_handler, "does not" };
	CHECK_INT(pr_relay_config_check(&config, &run.err), POSTROOM_OK);
	CHECK_INT(pr_relay_open(&config, &run.relay, &run.err), POSTROOM_INVALID);
	CHECK_CONTAINS(run.err.text, "the handler is broken");
}
