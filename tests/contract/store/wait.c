/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping until there is work (D3). A sleep without end is a hang, which the harness ends. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

#include <dirent.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SQLITE_TEST(test_name) ON_ONE(test_name, backend_sqlite)

#define LONG_MS ((int64_t)600 * 1000)		 /* longer than the harness waits */
#define SHORTEST_MS (PR_STORE_SHORT_WAIT_MS + 1) /* that is no nap */

static void wait_for(postroom_store *on, const struct pr_table *table, int64_t max_ms)
{
	struct pr_err err = { 0 };

	/* In the inbox every waiting worker has a handler. */
	const struct pr_scope scope = { .ns = table == &pr_table_inbox ? "h" : NULL };

	CHECK_MSG(on->ops->wait(on, table, &scope, max_ms, &err) >= 0, "%s", err.text);
}

static void wait_on(postroom_store *on, int64_t max_ms)
{
	wait_for(on, &pr_table_outbox, max_ms);
}

static postroom_store *open_as_it_is(const char *at)
{
	const struct pr_store_config config = { .url = at, .busy_wait_ms = -1 };
	postroom_store *opened = NULL;
	struct pr_err err = { 0 };

	CHECK_MSG(pr_store_open(&config, &opened, &err) >= 0, "%s", err.text);
	return opened;
}

/* How often the process has gone to sleep; -1: it is awake. */
static long sleeps_of(pid_t pid)
{
	char path[64], line[256];
	bool asleep = false;
	long sleeps = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		asleep = asleep || strncmp(line, "State:\tS", 8) == 0;
		sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps);
	}
	fclose(file);
	return asleep ? sleeps : -1;
}

/* Until it lies in one sleep that lasts. */
static void await_sleep(pid_t pid)
{
	long before = -1;

	for (int same = 0; same < 30; usleep(1000)) {
		long sleeps = sleeps_of(pid);

		same = sleeps >= 0 && sleeps == before ? same + 1 : 0;
		before = sleeps;
	}
}

/* One process sleeps with its store, another writes. */
struct pair {
	int fds[2];
	const char *slept_on; /* URL */
	const struct pr_table *table;
	void (*write)(struct session *session, pid_t sleeper);
};

/* Until producers are to notify: a sleep before that only waits for the answer of the server. */
static void await_announcement(struct session *session, const struct pr_table *table)
{
	const char *deadline = table == &pr_table_inbox ? "postroom_inbox_notify_until"
							: "postroom_notify_until";

	if (backend == &backend_sqlite)
		return;
	while (number(session,
		      "SELECT (last_value > extract(epoch FROM clock_timestamp()) * 1000)::int "
		      "FROM %s",
		      deadline) == 0)
		usleep(1000);
}

static void run_half(void *context, int index)
{
	struct pair *pair = context;
	struct session *session = join();
	pid_t sleeper = getpid();

	if (index == 0) {
		postroom_store *mine = open_as_it_is(pair->slept_on);

		CHECK(write(pair->fds[1], &sleeper, sizeof(sleeper)) == sizeof(sleeper));
		wait_for(mine, pair->table, LONG_MS);
		CHECK_MSG(number(session, "SELECT count(*) FROM %s", pair->table->name) == 1,
			  "it got up, and there was nothing");
		postroom_store_close(mine);
	} else {
		CHECK(read(pair->fds[0], &sleeper, sizeof(sleeper)) == sizeof(sleeper));
		await_announcement(session, pair->table);
		await_sleep(sleeper);
		pair->write(session, sleeper);
	}
	leave(session);
}

static void sleep_while(const char *slept_on, void (*write)(struct session *session, pid_t sleeper))
{
	struct pair pair = { .slept_on = slept_on, .table = &pr_table_outbox, .write = write };

	CHECK(pipe(pair.fds) == 0);
	in_parallel(2, run_half, &pair);
}

static void insert_message(struct session *session, pid_t sleeper)
{
	(void)sleeper;
	sql(session, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '{}')");
}

TEST(D3_a_commit_in_another_process_ends_a_sleep)
{
	sleep_while(url, insert_message);
}

static void submit_command(struct session *session, pid_t sleeper)
{
	(void)sleeper;
	CHECK_INT(postroom_inbox_submit(session->box, "h", "c", NULL, NULL), POSTROOM_OK);
}

TEST(D3_a_command_submitted_in_another_process_ends_a_sleep)
{
	struct pair pair = { .slept_on = url, .table = &pr_table_inbox, .write = submit_command };

	CHECK(pipe(pair.fds) == 0);
	in_parallel(2, run_half, &pair);
}

static void write_elsewhere(struct session *session, pid_t sleeper)
{
	for (int i = 0; i < 200; i++)
		sql(session, "INSERT INTO other VALUES (%d)", i);
	await_sleep(sleeper);
	sql(session, "INSERT INTO other VALUES (-1)");
	insert_message(session, sleeper);
}

TEST(D3_writes_to_other_tables_do_not_end_a_sleep)
{
	sql(app, "CREATE TABLE other (n int)");
	sleep_while(url, write_elsewhere);
}

static void write_late(struct session *session, pid_t sleeper)
{
	begin(session);
	insert_message(session, sleeper);
	await_sleep(sleeper);
	commit(session);
}

TEST(D3_late_commit_ends_a_sleep)
{
	sleep_while(url, write_late);
}

static void write_into_a_new_wal(struct session *session, pid_t sleeper)
{
	for (int i = 0; i < 3; i++) {
		sql(session, "INSERT INTO other VALUES (%d)", i);
		CHECK_INT(number(session, "PRAGMA wal_checkpoint(TRUNCATE)"), 0);
		await_sleep(sleeper);
	}
	insert_message(session, sleeper);
}

SQLITE_TEST(D3_sleeping_relay_survives_truncation_of_wal)
{
	sql(app, "CREATE TABLE other (n int)");
	sleep_while(url, write_into_a_new_wal);
}

static void write_from_spilling_cache(struct session *session, pid_t sleeper)
{
	sql(session, "PRAGMA cache_size = 5");
	begin(session);
	sql(session,
	    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) "
	    "INSERT INTO other SELECT randomblob(3000) FROM n");
	await_sleep(sleeper);
	insert_message(session, sleeper);
	await_sleep(sleeper);
	commit(session);
}

SQLITE_TEST(D3_wal_write_before_the_commit_does_not_end_a_sleep)
{
	sql(app, "CREATE TABLE other (n blob)");
	sleep_while(url, write_from_spilling_cache);
}

static pid_t held_up_for;

static ssize_t pwrite_and_wait(int fd, const void *data, size_t size, off_t at)
{
	ssize_t written = pwrite(fd, data, size, at);

	await_sleep(held_up_for);
	return written;
}

static void write_to_a_slow_disk(struct session *session, pid_t sleeper)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

	held_up_for = sleeper;
	vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)pwrite_and_wait);
	vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)pwrite_and_wait);
	insert_message(session, sleeper);
}

/* The notification comes when the WAL is written, which is before the commit is visible. */
SQLITE_TEST(D3_commit_delayed_by_the_disk_ends_a_sleep)
{
	sleep_while(url, write_to_a_slow_disk);
}

SQLITE_TEST(D3_commit_without_a_wal_ends_a_sleep)
{
	postroom_store_close(store);
	store = NULL;
	CHECK_STR(text(app, "PRAGMA journal_mode = DELETE"), "delete");
	sleep_while(url, insert_message);
}

static void switch_to_wal(struct session *session, pid_t sleeper)
{
	CHECK_STR(text(session, "PRAGMA journal_mode = WAL"), "wal");
	await_sleep(sleeper);
	insert_message(session, sleeper);
}

SQLITE_TEST(D3_wal_created_during_a_sleep_is_watched)
{
	postroom_store_close(store);
	store = NULL;
	CHECK_STR(text(app, "PRAGMA journal_mode = DELETE"), "delete");
	sleep_while(url, switch_to_wal);
}

SQLITE_TEST(D3_sleeping_relay_watches_wal_behind_symbolic_link)
{
	char target[220];

	snprintf(target, sizeof(target), "../%s", strchr(url, ':') + 1);
	CHECK(mkdir("elsewhere", 0700) == 0);
	CHECK(symlink(target, "elsewhere/link.db") == 0);
	sleep_while("sqlite:elsewhere/link.db", insert_message);
}

/* SQLite itself may keep a descriptor open after a close, for the sake of its locks. */
static int count_watches(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int count = 0;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		char target[64] = "";

		if (readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) > 0)
			count += strcmp(target, "anon_inode:inotify") == 0;
	}
	closedir(dir);
	return count;
}

SQLITE_TEST(D3_sleeps_use_one_descriptor)
{
	postroom_store *sleeper = open_as_it_is(url);

	CHECK_INT(count_watches(), 0);
	for (int i = 0; i < 20; i++) {
		sql(app, "PRAGMA wal_checkpoint(TRUNCATE)");
		sql(app, "CREATE TABLE t%d (n)", i);
		wait_on(sleeper, SHORTEST_MS);
		CHECK_INT(count_watches(), 1);
	}
	postroom_store_close(sleeper);
	CHECK_INT(count_watches(), 0);
}

SQLITE_TEST(D3_without_inotify_sleep_lasts_its_time_and_reports_why)
{
	struct rlimit limit, none;

	wait_on(store, 1);
	CHECK_INT(store->notify_unavailable.status, POSTROOM_OK);
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none = limit;
	none.rlim_cur = 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	wait_on(store, SHORTEST_MS);
	CHECK_INT(store->notify_unavailable.status, POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(store->notify_unavailable.text,
		       "watching \"contract1.db\" for commits: Too many open files");

	/* It tries again each time. */
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	wait_on(store, SHORTEST_MS);
	CHECK_INT(store->notify_unavailable.status, POSTROOM_OK);
}

/* The first wait discards earlier notifications. */
static bool is_idle(void)
{
	wait_on(store, 1);
	wait_on(store, SHORTEST_MS);
	return store->idle;
}

TEST(D3_sleep_reports_that_no_message_is_claimable)
{
	postroom_batch *batch;

	wait_on(store, 1);
	CHECK_MSG(!store->idle, "a nap does not look");
	CHECK(is_idle());
	for (int with_key = 0; with_key < 2; with_key++) {
		PUT(.topic = "t", .payload = "1", .key = with_key ? "k" : NULL);
		CHECK_MSG(!is_idle(), "it is due");
		postroom_batch_free(claim_one());
		CHECK_MSG(is_idle(), "it is leased");
		EXPIRE_LEASES();
		CHECK_MSG(!is_idle(), "its lease has ended");
		batch = claim_one();
		CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
		postroom_batch_free(batch);
		CHECK_MSG(is_idle(), "it is delivered");
	}
	PUT(.topic = "t", .payload = "1", .key = "k", .delay_ms = 3600 * 1000);
	batch = CLAIM();
	CHECK_INT(count_of(batch), 0);
	postroom_batch_free(batch);
	CHECK_MSG(is_idle(), "it is delayed");
	MAKE_DUE();
	CHECK_MSG(!is_idle(), "its time has come");
}

static struct pr_stop stop;

static void *request_stop(void *sleeper)
{
	await_sleep(*(pid_t *)sleeper);
	pr_stop_request(&stop, 0);
	return NULL;
}

SQLITE_TEST(D4_a_stop_ends_a_sleep)
{
	struct pr_err err = { 0 };
	postroom_store *mine = NULL;
	pid_t self = getpid();
	pthread_t thread;

	CHECK_INT(pr_stop_init(&stop, &err), POSTROOM_OK);
	CHECK_INT(
		pr_store_open(&(struct pr_store_config){ .url = url, .stop = &stop }, &mine, &err),
		POSTROOM_OK);
	CHECK_INT(pthread_create(&thread, NULL, request_stop, &self), 0);
	wait_on(mine, LONG_MS);
	CHECK(pr_stop_requested(&stop));
	pthread_join(thread, NULL);
	postroom_store_close(mine);
	pr_stop_release(&stop);
}
