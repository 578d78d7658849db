/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The watchdog is fed only while no thread is silent; as soon as all are heard
 *    of again it is fed at once.
 * 2. A relay that was told to stop, or has to because one worker can not go on,
 *    ends although another hangs: when the grace is over and it is silent.
 */
#include "cli/supervise.h"

#include "base/time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_EVERY_US 5000000

/* Looks are ten times closer: if one is so late, the whole process stood still, or the machine slept. */
#define LATE_US 1000000

void cli_supervise_begin(struct cli_supervisor *supervisor, struct cli *cli, const char *name)
{
	struct pr_err err = { 0 };

	*supervisor = (struct cli_supervisor){
		.cli = cli,
		.name = name,
		.looked_us = pr_mono_us(),
	};
	if (pr_notify_init(&supervisor->notify, &err) < 0)
		cli_fail(cli, "%s: %s", name, err.text);
	pr_notify_status(&supervisor->notify, "opening the database");
}

/* Whoever loses its parent becomes a child of process 1, which we are in a container. */
static void reap_orphans(void)
{
	/* The commands of exec: are other threads' children, and theirs to wait for. */
	while (waitpid(-1, NULL, WNOHANG | __WNOTHREAD) > 0)
		;
}

static void put_away(char *text, size_t size, const char *what, int64_t away_ms)
{
	size_t len = strlen(text);

	if (away_ms)
		snprintf(text + len, size - len, "; %s has been away for %" PRId64 " s", what,
			 away_ms / 1000);
}

static void put_more(char *text, size_t size, const struct pr_relay_health *health)
{
	size_t len = strlen(text);

	if (health->sinks_away > 1)
		snprintf(text + len, size - len, " and %d more", health->sinks_away - 1);
	len = strlen(text);
	if (health->unrouted)
		snprintf(text + len, size - len, "; %" PRId64 "%s without a route",
			 health->unrouted, health->unrouted >= PR_UNROUTED_MOST ? " or more" : "");
}

static void tell_status(struct cli_supervisor *supervisor, struct pr_relay *relay,
			const struct pr_relay_health *health, int64_t now_us)
{
	struct pr_relay_totals totals;
	char text[sizeof(supervisor->status)], sink[80];
	size_t len;

	if (health->silent_ms || now_us - supervisor->told_us < STATUS_EVERY_US)
		return;
	supervisor->told_us = now_us;
	pr_relay_totals(relay, &totals);
	snprintf(text, sizeof(text), "delivered %" PRId64 ", failed %" PRId64 ", dead %" PRId64,
		 totals.delivered, totals.failed, totals.dead);
	put_away(text, sizeof(text), "the database", health->database_away_ms);
	snprintf(sink, sizeof(sink), "the sink%s%s", *health->sink ? " " : "", health->sink);
	put_away(text, sizeof(text), sink, health->sink_away_ms);
	len = strlen(text);
	if (health->sink_away_ms)
		snprintf(text + len, sizeof(text) - len, " (%s)", health->reason);
	put_more(text, sizeof(text), health);
	if (strcmp(text, supervisor->status) != 0)
		pr_notify_status(&supervisor->notify, text);
	memcpy(supervisor->status, text, sizeof(text));
}

static void heed_silence(struct cli_supervisor *supervisor, const struct pr_relay_health *health)
{
	struct pr_log *log = &supervisor->cli->log;
	char text[100];

	if (health->silent_ms && health->overdue_ms) {
		cli_fail(supervisor->cli,
			 "%s: %s hangs and does not stop; what was in flight will be claimed "
			 "again when its lease has run out",
			 supervisor->name, health->who);
		_exit(CLI_FAILED);
	}
	if (supervisor->silent == (health->silent_ms > 0))
		return;
	supervisor->silent = health->silent_ms > 0;
	pr_log_box(log, PR_LOG_WARN, supervisor->silent ? "WORKER_STUCK" : "WORKER_BACK");
	if (supervisor->silent) {
		pr_log_str(log, "thread", health->who);
		pr_log_int(log, "silent_ms", health->silent_ms);
		snprintf(text, sizeof(text), "%s hangs: nothing heard of it for %" PRId64 " s",
			 health->who, health->silent_ms / 1000);
		pr_notify_status(&supervisor->notify, text);
		supervisor->status[0] = '\0';
	}
	pr_log_end(log);
}

static void feed_watchdog(struct cli_supervisor *supervisor, int64_t now_us)
{
	int64_t every_us = supervisor->notify.watchdog_ms * 1000 / 2;

	if (!every_us || supervisor->silent || now_us - supervisor->fed_us < every_us)
		return;
	if (pr_notify_send(&supervisor->notify, "WATCHDOG=1"))
		supervisor->fed_us = now_us;
}

void cli_supervise_look(struct cli_supervisor *supervisor, struct pr_relay *relay)
{
	struct pr_relay_health health;
	int64_t now_us = pr_mono_us();
	bool late = now_us - supervisor->looked_us >= LATE_US;

	supervisor->looked_us = now_us;
	reap_orphans();
	/* If we stood still so did they: they shall be heard first. */
	if (!relay || late)
		return;
	pr_relay_health(relay, &health);
	if (!health.running)
		return;
	if (!supervisor->ready && !supervisor->stopping)
		supervisor->ready = pr_notify_send(&supervisor->notify, "READY=1");
	heed_silence(supervisor, &health);
	feed_watchdog(supervisor, now_us);
	tell_status(supervisor, relay, &health, now_us);
}

void cli_supervise_reloading(struct cli_supervisor *supervisor)
{
	pr_notify_reloading(&supervisor->notify);
}

void cli_supervise_reloaded(struct cli_supervisor *supervisor)
{
	/* Lost on its way, it is sent again with the next look. */
	supervisor->ready = pr_notify_send(&supervisor->notify, "READY=1");
}

void cli_supervise_stopping(struct cli_supervisor *supervisor)
{
	if (supervisor->stopping)
		return;
	supervisor->stopping = true;
	pr_notify_send(&supervisor->notify, "STOPPING=1");
}

void cli_supervise_end(struct cli_supervisor *supervisor, bool well)
{
	/* A drain may be done before anybody looked; it was no failure to start. */
	if (well && !supervisor->ready && !supervisor->stopping)
		pr_notify_send(&supervisor->notify, "READY=1");
	cli_supervise_stopping(supervisor);
	pr_notify_release(&supervisor->notify);
}
