/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeps until another process writes to the database (D3).
 *
 * Every commit, in any language, writes to the WAL, or to the database file in the other journal
 * modes. The kernel notifies the relay; producers pay nothing.
 *
 * 1. A notification means that something was written, and it is early: a commit is visible only
 *    after the disk has answered, and nothing notifies of that. So a scan that finds nothing is
 *    repeated after 1 ms, 2 ms, 4 ms, …: a commit that takes t to become visible is found before
 *    2t.
 * 2. A scan reads and takes no lock that could block a producer. If other tables are written
 *    constantly, there is a scan every MOST_MS, and scans use at most a fiftieth of the time.
 * 3. The order is: clear the notification, scan, sleep. A write in between notifies the sleep.
 * 4. The WAL may be created later than the database: each scan watches both again. The file that
 *    exists while this connection is open stays the same, even if it is truncated.
 * 5. Without inotify this is a plain sleep.
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#define MOST_MS 10
#define POLLS_PART 50

static int watch(struct sqlite_store *store)
{
	const char *path = sqlite3_db_filename(store->db, "main");

	if (store->notify_fd < 0)
		store->notify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (store->notify_fd < 0 || inotify_add_watch(store->notify_fd, path, IN_MODIFY) < 0)
		return -1;
	if (inotify_add_watch(store->notify_fd, sqlite3_filename_wal(path), IN_MODIFY) < 0)
		return errno == ENOENT ? 0 : -1;
	return 0;
}

/* Clears the notification; true if there was one since the last call. */
static bool clear_notification(struct sqlite_store *store)
{
	char events[4096];
	bool any = false;

	if (watch(store) < 0)
		pr_err_errno(&store->base.notify_unavailable, POSTROOM_UNAVAILABLE,
			     "watching \"%s\" for commits", store->path);
	else
		pr_err_clear(&store->base.notify_unavailable);
	while (store->notify_fd >= 0 && read(store->notify_fd, events, sizeof(events)) > 0)
		any = true;
	return any;
}

/* True if a notification comes within ms. */
static bool wait_for_notification(struct sqlite_store *store, int64_t ms)
{
	struct pollfd fds[2] = {
		{ .fd = store->notify_fd, .events = POLLIN },
		{ .fd = store->stop ? store->stop->fd : -1, .events = POLLIN },
	};

	return poll(fds, 2, (int)ms) > 0 && fds[0].revents;
}

static int64_t next_pause(int64_t pause_ms, bool notified)
{
	if (!notified)
		return pause_ms * 2;
	if (pause_ms == 0 || pause_ms > MOST_MS)
		return 1;
	return pause_ms * 2 < MOST_MS ? pause_ms * 2 : MOST_MS;
}

static int sleep_until(struct sqlite_store *store, const struct pr_table *table,
		       const struct pr_scope *scope, int64_t until_us, struct pr_err *err)
{
	int64_t pause_ms = 0; /* until the next scan; 0: none is due */

	while (!pr_stop_requested(store->stop)) {
		bool notified = clear_notification(store);
		int64_t begun_us = pr_mono_us(), now_us, left_ms, next_ms;
		bool unsure;
		int status = pr_sqlite_next_due(store, table, scope, &next_ms, &unsure, err);

		if (status < 0)
			return status;
		if (notified)
			store->base.wakeup = PR_WAKEUP_FILE;
		now_us = pr_mono_us();
		left_ms = (until_us - now_us + 999) / 1000;
		store->base.idle = !unsure && next_ms > left_ms;
		if (next_ms < left_ms)
			left_ms = next_ms;
		if (left_ms <= 0)
			break;
		pause_ms = next_pause(pause_ms, notified);
		if (notified) {
			int64_t rest_ms = (now_us - begun_us) * POLLS_PART / 1000;

			rest_ms = rest_ms > pause_ms ? rest_ms : pause_ms;
			pr_stop_wait(store->stop, rest_ms < left_ms ? rest_ms : left_ms);
		} else if (pause_ms && pause_ms < left_ms) {
			wait_for_notification(store, pause_ms);
		} else if (!wait_for_notification(store, left_ms)) {
			break;
		}
	}
	return POSTROOM_OK;
}

int pr_sqlite_wait(struct postroom_store *base, const struct pr_table *table,
		   const struct pr_scope *scope, int64_t max_ms, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);

	base->idle = false;
	base->wakeup = PR_WAKEUP_POLLED;
	if (max_ms > PR_STORE_SHORT_WAIT_MS && sqlite_side(store, table)->skipped)
		max_ms = PR_STORE_SHORT_WAIT_MS;
	if (max_ms > PR_STORE_SHORT_WAIT_MS)
		return sleep_until(store, table, scope, pr_mono_us() + max_ms * 1000, err);
	pr_stop_wait(store->stop, max_ms);
	return POSTROOM_OK;
}
