/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping until somebody writes to the database (D3).
 *
 * Whoever commits, in whatever language, writes to the WAL, or to the database
 * itself in the other journal modes. The kernel tells; producers pay nothing.
 *
 * 1. The bell says that something was written, not what, and says it too early: a
 *    commit can be seen only after the disk has answered, and nothing tells of
 *    that. So a look that finds nothing is repeated after 1 ms, 2 ms, 4 ms, …:
 *    what takes t to be seen is found before 2t, and silence costs little.
 * 2. A look reads and takes no lock that a producer could wait for. Other tables
 *    may be written to all the time: then there is a look every MOST_MS, and
 *    looks take no more than a fiftieth of the time.
 * 3. First the bell is emptied, then comes the look, then the sleep: what is
 *    written in between rings for the sleep.
 * 4. The WAL may come later than the database: each look watches both anew. The
 *    file that is there while this connection is open stays the same, however
 *    often it is truncated and started again.
 * 5. Without a bell this is a plain sleep.
 */
#include "base/time.h"
#include "store/sqlite.h"

#include <errno.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#define MOST_MS 10
#define LOOKS_PART 50

static int watch(struct sqlite_store *store)
{
	const char *path = sqlite3_db_filename(store->db, "main");

	if (store->bell < 0)
		store->bell = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (store->bell < 0 || inotify_add_watch(store->bell, path, IN_MODIFY) < 0)
		return -1;
	if (inotify_add_watch(store->bell, sqlite3_filename_wal(path), IN_MODIFY) < 0)
		return errno == ENOENT ? 0 : -1;
	return 0;
}

/* Empties the bell; true if it has rung since the last time. */
static bool rung(struct sqlite_store *store)
{
	char events[4096];
	bool any = false;

	if (watch(store) < 0)
		pr_err_errno(&store->base.deaf, POSTROOM_UNAVAILABLE, "watching \"%s\" for commits",
			     store->path);
	else
		pr_err_clear(&store->base.deaf);
	while (store->bell >= 0 && read(store->bell, events, sizeof(events)) > 0)
		any = true;
	return any;
}

/* True if it rings within ms. */
static bool hear(struct sqlite_store *store, int64_t ms)
{
	struct pollfd fds[2] = {
		{ .fd = store->bell, .events = POLLIN },
		{ .fd = store->stop ? store->stop->fd : -1, .events = POLLIN },
	};

	return poll(fds, 2, (int)ms) > 0 && fds[0].revents;
}

static int64_t next_pause(int64_t pause_ms, bool ringing)
{
	if (!ringing)
		return pause_ms * 2;
	if (pause_ms == 0 || pause_ms > MOST_MS)
		return 1;
	return pause_ms * 2 < MOST_MS ? pause_ms * 2 : MOST_MS;
}

static int sleep_until(struct sqlite_store *store, const struct pr_table *table,
		       const struct pr_scope *scope, int64_t until_us, struct pr_err *err)
{
	int64_t pause_ms = 0; /* until the next look; 0: there is no reason for one */

	while (!pr_stop_requested(store->stop)) {
		bool ringing = rung(store);
		int64_t begun_us = pr_mono_us(), now_us, left_ms, next_ms;
		bool unsure;
		int status = pr_sqlite_next_due(store, table, scope, &next_ms, &unsure, err);

		if (status < 0)
			return status;
		now_us = pr_mono_us();
		left_ms = (until_us - now_us + 999) / 1000;
		store->base.idle = !unsure && next_ms > left_ms;
		if (next_ms < left_ms)
			left_ms = next_ms;
		if (left_ms <= 0)
			break;
		pause_ms = next_pause(pause_ms, ringing);
		if (ringing) {
			int64_t rest_ms = (now_us - begun_us) * LOOKS_PART / 1000;

			rest_ms = rest_ms > pause_ms ? rest_ms : pause_ms;
			pr_stop_wait(store->stop, rest_ms < left_ms ? rest_ms : left_ms);
		} else if (pause_ms && pause_ms < left_ms) {
			hear(store, pause_ms);
		} else if (!hear(store, left_ms)) {
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
	if (max_ms > PR_STORE_NAP_MS && sqlite_side(store, table)->skipped)
		max_ms = PR_STORE_NAP_MS;
	if (max_ms > PR_STORE_NAP_MS)
		return sleep_until(store, table, scope, pr_mono_us() + max_ms * 1000, err);
	pr_stop_wait(store->stop, max_ms);
	return POSTROOM_OK;
}
