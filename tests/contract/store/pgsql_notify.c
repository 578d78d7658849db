/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications of PostgreSQL: who receives them, and who may withdraw the request for them (D3). */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_MS ((int64_t)600 * 1000)		 /* longer than the harness waits */
#define SHORTEST_MS (PR_STORE_SHORT_WAIT_MS + 1) /* that announces a sleep */

static void wait_on(postroom_store *on, int64_t max_ms)
{
	struct pr_err err = { 0 };

	CHECK_MSG(on->ops->wait(on, &pr_table_outbox, &(struct pr_scope){ 0 }, max_ms, &err) >= 0,
		  "%s", err.text);
}

static void notify(int times)
{
	for (int i = 0; i < times; i++)
		sql(app, "SELECT pg_notify('postroom_' || 'postroom_outbox'::regclass::oid, '')");
}

TEST_ON_PGSQL(D3_busy_worker_drains_its_notifications)
{
	postroom_batch *batch;

	wait_on(store, SHORTEST_MS);
	for (int round = 0; round < 3; round++) {
		notify(100);
		PUT(.topic = "t", .payload = "1");
		batch = claim_one();
		CHECK(!PQnotifies(pgsql_store(store)->conn));
		notify(100);
		CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
		CHECK(!PQnotifies(pgsql_store(store)->conn));
		postroom_batch_free(batch);
	}
}

static int64_t announced(void)
{
	return number(app, "SELECT last_value FROM postroom_notify_until");
}

/* Until a sleep of minutes is announced that is not the one before. */
static int64_t await_announcement(int64_t before)
{
	while (announced() <= before ||
	       number(app, "SELECT (last_value > extract(epoch FROM clock_timestamp()) * 1000 "
			   "+ 60000)::int FROM postroom_notify_until") == 0)
		usleep(1000);
	return announced();
}

/* A process with a store of its own, which sleeps until it is notified. */
static pid_t start_sleeper(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		wait_on(open_store(), LONG_MS);
		_exit(0);
	}
	return pid;
}

static void end_sleeper(pid_t pid)
{
	int status = 0;

	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The first relay is notified but slow. Meanwhile a second one goes to sleep. */
TEST_ON_PGSQL(D3_relay_clears_only_its_own_announcement)
{
	pid_t slow = start_sleeper(), second;
	int64_t first = await_announcement(0), both;

	CHECK_INT(kill(slow, SIGSTOP), 0);
	notify(1);
	second = start_sleeper();
	both = await_announcement(first);
	CHECK_INT(kill(slow, SIGCONT), 0);
	end_sleeper(slow);
	CHECK_INT(announced(), both);
	/* The second one is still notified of new messages, and then clears its announcement. */
	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')");
	end_sleeper(second);
	CHECK_INT(announced(), 1);
}
