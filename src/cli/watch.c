/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The first signal stops the relay; the second ends the process immediately. Before
 *    the relay is open, nothing is in flight, so the first signal ends the process.
 * 2. This file uses the relay only between cli_watch_relay() and the return of run().
 */
#include "cli/watch.h"

#include <unistd.h>

static void draw_progress(struct cli_watch *watch, struct pr_relay *relay)
{
	struct pr_relay_totals totals;

	pr_relay_totals(relay, &totals);
	cli_progress_show(&watch->progress, totals.delivered + totals.dead,
			  totals.delivered + totals.dead);
}

static void hang_up(struct cli_watch *watch, struct pr_relay *relay)
{
	watch->hung_up = !relay;
	if (!relay)
		return;
	cli_supervise_reloading(&watch->supervisor);
	pr_relay_reopen(relay);
	if (watch->reload)
		watch->reload(watch, relay);
	cli_supervise_reloaded(&watch->supervisor);
}

static void end(struct cli_watch *watch, struct pr_relay *relay)
{
	cli_supervise_stopping(&watch->supervisor);
	if (!relay) {
		_exit(CLI_DONE); /* still waiting for the database: nothing is in flight */
	} else if (watch->stopping) {
		cli_fail(watch->cli,
			 "%s: received a second stop signal; messages in flight will be reclaimed "
			 "when "
			 "their lease has expired",
			 watch->name);
		_exit(CLI_FAILED);
	} else {
		watch->stopping = true;
		pr_relay_stop(relay);
	}
}

static void watch_relay(struct cli_watch *watch)
{
	static const struct timespec pause = { .tv_nsec = 100000000 };

	for (;;) {
		int number = sigtimedwait(&watch->set, NULL, &pause);
		struct pr_relay *relay = atomic_load(&watch->relay);

		if (atomic_load(&watch->finished))
			return;
		if (number == SIGHUP || (relay && watch->hung_up))
			hang_up(watch, relay);
		if (number > 0 && number != SIGHUP)
			end(watch, relay);
		cli_supervise_check(&watch->supervisor, relay);
		if (relay && atomic_load(&watch->draw))
			draw_progress(watch, relay);
	}
}

static void *run_thread(void *context)
{
	struct cli_watch *watch = context;

	watch->status = watch->run(watch, &watch->err);
	atomic_store(&watch->finished, true);
	pthread_kill(watch->watcher, SIGHUP);
	return NULL;
}

static int begin_watch(struct cli_watch *watch)
{
	cli_supervise_begin(&watch->supervisor, watch->cli, watch->name);
	watch->watcher = pthread_self();
	sigemptyset(&watch->set);
	sigaddset(&watch->set, SIGTERM);
	sigaddset(&watch->set, SIGINT);
	sigaddset(&watch->set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &watch->set, NULL);
	return pthread_create(&watch->thread, NULL, run_thread, watch);
}

int cli_watch(struct cli_watch *watch)
{
	struct cli *cli = watch->cli;

	if (begin_watch(watch) != 0)
		return cli_fail(cli, "%s: cannot start a thread: no resources left", watch->name);
	watch_relay(watch);
	pthread_join(watch->thread, NULL);
	cli_supervise_end(&watch->supervisor, watch->status >= 0);
	if (atomic_load(&watch->draw))
		cli_progress_end(&watch->progress);
	if (watch->status >= 0)
		return CLI_DONE;
	if (!atomic_load(&watch->relay) &&
	    (watch->status == POSTROOM_INVALID || watch->status == POSTROOM_SINK))
		return cli_usage(cli, "%s", watch->err.text);
	return cli_fail(cli, "%s", watch->err.text);
}

void cli_watch_relay(struct cli_watch *watch, struct pr_relay *relay)
{
	atomic_store(&watch->relay, relay);
}

void cli_watch_draw(struct cli_watch *watch, const char *label, int64_t total)
{
	cli_progress_begin(&watch->progress, watch->cli, label, total);
	atomic_store(&watch->draw, true);
}
