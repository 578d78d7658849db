/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The service watchdog is fed only while all threads feed their own watchdogs.
 *    When a hanging thread recovers, it is fed immediately.
 * 2. A relay that is stopping, by a signal or because a worker failed, ends although
 *    another thread hangs: after the grace period.
 */
#include "cli/supervise.h"

#include "base/time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_EVERY_US 5000000

/* Checks run ten times as often: a check that is this late means that the process or machine was suspended. */
#define LATE_US 1000000

void cli_supervise_begin(struct cli_supervisor *supervisor, struct cli *cli, const char *name)
{
	struct pr_err err = { 0 };

	*supervisor = (struct cli_supervisor){
		.cli = cli,
		.name = name,
		.looked_us = pr_mono_us(),
	};
	if (pr_service_manager_init(&supervisor->manager, &err) < 0)
		cli_fail(cli, "%s: %s", name, err.text);
	pr_service_manager_status(&supervisor->manager, "opening the database");
}

/* Orphaned processes become children of process 1, which may be this process in a container. */
static void reap_orphans(void)
{
	/* Commands of exec: are children of other threads, which wait for them. */
	while (waitpid(-1, NULL, WNOHANG | __WNOTHREAD) > 0)
		;
}

static void put_outage(char *text, size_t size, const char *name, int64_t outage_ms)
{
	size_t len = strlen(text);

	if (outage_ms)
		snprintf(text + len, size - len, "; %s has been down for %" PRId64 " s", name,
			 outage_ms / 1000);
}

static void put_more(char *text, size_t size, const struct pr_relay_health *health)
{
	size_t len = strlen(text);

	if (health->sinks_down > 1)
		snprintf(text + len, size - len, " and %d more", health->sinks_down - 1);
	len = strlen(text);
	if (health->unrouted)
		snprintf(text + len, size - len, "; %" PRId64 "%s without a route",
			 health->unrouted, health->unrouted >= PR_UNROUTED_MAX ? " or more" : "");
}

static void send_status(struct cli_supervisor *supervisor, struct pr_relay *relay,
			const struct pr_relay_health *health, int64_t now_us)
{
	struct pr_relay_totals totals;
	char text[sizeof(supervisor->status)], sink[80];
	size_t len;

	if (health->watchdog_overdue_ms || now_us - supervisor->status_us < STATUS_EVERY_US)
		return;
	supervisor->status_us = now_us;
	pr_relay_totals(relay, &totals);
	snprintf(text, sizeof(text), "delivered %" PRId64 ", failed %" PRId64 ", dead %" PRId64,
		 totals.delivered, totals.failed, totals.dead);
	put_outage(text, sizeof(text), "the database", health->database_outage_ms);
	snprintf(sink, sizeof(sink), "the sink%s%s", *health->sink ? " " : "", health->sink);
	put_outage(text, sizeof(text), sink, health->sink_outage_ms);
	len = strlen(text);
	if (health->sink_outage_ms)
		snprintf(text + len, sizeof(text) - len, " (%s)", health->reason);
	put_more(text, sizeof(text), health);
	if (strcmp(text, supervisor->status) != 0)
		pr_service_manager_status(&supervisor->manager, text);
	memcpy(supervisor->status, text, sizeof(text));
}

static void check_watchdogs(struct cli_supervisor *supervisor, const struct pr_relay_health *health)
{
	struct pr_log *log = &supervisor->cli->log;
	char text[100];

	if (health->watchdog_overdue_ms && health->overdue_ms) {
		cli_fail(supervisor->cli,
			 "%s: %s hangs and does not stop; another relay will reclaim the messages "
			 "in flight when their lease has expired",
			 supervisor->name, health->watchdog_thread);
		_exit(CLI_FAILED);
	}
	if (supervisor->watchdog_overdue == (health->watchdog_overdue_ms > 0))
		return;
	supervisor->watchdog_overdue = health->watchdog_overdue_ms > 0;
	pr_log_box(log, PR_LOG_WARN, supervisor->watchdog_overdue ? "WORKER_STUCK" : "WORKER_BACK");
	if (supervisor->watchdog_overdue) {
		pr_log_str(log, "thread", health->watchdog_thread);
		pr_log_int(log, "silent_ms", health->watchdog_overdue_ms);
		snprintf(text, sizeof(text),
			 "%s hangs: it has not fed its watchdog for %" PRId64 " s",
			 health->watchdog_thread, health->watchdog_overdue_ms / 1000);
		pr_service_manager_status(&supervisor->manager, text);
		supervisor->status[0] = '\0';
	}
	pr_log_end(log);
}

static void feed_watchdog(struct cli_supervisor *supervisor, int64_t now_us)
{
	int64_t every_us = supervisor->manager.watchdog_ms * 1000 / 2;

	if (!every_us || supervisor->watchdog_overdue || now_us - supervisor->fed_us < every_us)
		return;
	if (pr_service_manager_send(&supervisor->manager, "WATCHDOG=1"))
		supervisor->fed_us = now_us;
}

void cli_supervise_check(struct cli_supervisor *supervisor, struct pr_relay *relay)
{
	struct pr_relay_health health;
	int64_t now_us = pr_mono_us();
	bool late = now_us - supervisor->looked_us >= LATE_US;

	supervisor->looked_us = now_us;
	reap_orphans();
	/* After a suspension, first give the threads time to feed their watchdogs. */
	if (!relay || late)
		return;
	pr_relay_health(relay, &health);
	if (!health.running)
		return;
	if (!supervisor->ready && !supervisor->stopping)
		supervisor->ready = pr_service_manager_send(&supervisor->manager, "READY=1");
	check_watchdogs(supervisor, &health);
	feed_watchdog(supervisor, now_us);
	send_status(supervisor, relay, &health, now_us);
}

void cli_supervise_reloading(struct cli_supervisor *supervisor)
{
	pr_service_manager_reloading(&supervisor->manager);
}

void cli_supervise_reloaded(struct cli_supervisor *supervisor)
{
	/* A lost notification is sent again at the next check. */
	supervisor->ready = pr_service_manager_send(&supervisor->manager, "READY=1");
}

void cli_supervise_stopping(struct cli_supervisor *supervisor)
{
	if (supervisor->stopping)
		return;
	supervisor->stopping = true;
	pr_service_manager_send(&supervisor->manager, "STOPPING=1");
}

void cli_supervise_end(struct cli_supervisor *supervisor, bool well)
{
	/* A drain may end before the first check; it started nevertheless. */
	if (well && !supervisor->ready && !supervisor->stopping)
		pr_service_manager_send(&supervisor->manager, "READY=1");
	cli_supervise_stopping(supervisor);
	pr_service_manager_release(&supervisor->manager);
}
