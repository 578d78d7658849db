/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of file: beyond the sink contract. */
#include "contract/sink/sink.h"

#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rig rig;
static int flushes;
static int flush_error;

/* Replaces the C library's function: counts, and fails if asked to. */
int fdatasync(int fd)
{
	(void)fd;
	flushes++;
	errno = flush_error;
	return flush_error ? -1 : 0;
}

static void begin(const char *url)
{
	rig_init(&rig);
	rig_open(&rig, url);
}

static void publish_one(int number, postroom_verdict expected, const char *reason)
{
	postroom_delivery item = rig_item(&rig, number, NULL, NULL);

	rig_publish(&rig, &item, 1);
	CHECK_INT(item.verdict, expected);
	if (reason)
		CHECK_CONTAINS(item.reason, reason);
}

/* Lines of the file that are JSON; torn gets the number of the others. */
static size_t count_lines(const char *path, size_t *torn)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_span line;
	size_t at = 0, whole = 0;

	*torn = 0;
	read_file(path, &text);
	while (next_line(&text, &at, &line)) {
		if (pr_json_check(line.data, line.len, NULL))
			whole++;
		else
			(*torn)++;
	}
	return whole;
}

static void check_lines(const char *path, size_t whole, size_t torn)
{
	size_t found_torn;

	CHECK_INT(count_lines(path, &found_torn), whole);
	CHECK_INT(found_torn, torn);
}

TEST(K2_sink_appends_to_existing_file)
{
	write_file("out", "{\"mine\":1}\n");
	begin("file:out");
	publish_one(1, POSTROOM_DELIVERED, NULL);
	check_lines("out", 2, 0);
	rig_release(&rig);
}

TEST(K2_a_torn_last_line_is_ended_before_the_next)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	write_file("out", "{\"id\":\"whole\"}\n{\"id\":\"to");
	begin("file:out");
	publish_one(1, POSTROOM_DELIVERED, NULL);
	publish_one(2, POSTROOM_DELIVERED, NULL);
	check_lines("out", 3, 1);
	read_file("out", &text);
	CHECK_CONTAINS(text.data, "{\"id\":\"to\n{\"id\":\"id-1\"");
	rig_release(&rig);
}

TEST(K2_delivered_means_flushed_once_per_batch)
{
	begin("file:out");
	rig_publish(&rig, rig_items(&rig, 50), 50);
	CHECK_INT(flushes, 1);
	rig_release(&rig);
}

TEST(K2_sync_no_does_not_flush)
{
	begin("file:out?sync=no");
	rig_publish(&rig, rig_items(&rig, 50), 50);
	CHECK_INT(flushes, 0);
	check_lines("out", 50, 0);
	rig_release(&rig);
}

TEST(K2_failed_flush_is_not_a_delivery)
{
	begin("file:out");
	publish_one(1, POSTROOM_DELIVERED, NULL);
	flush_error = EIO;
	publish_one(2, POSTROOM_UNREACHABLE, "Input/output error");
	check_lines("out", 1, 0);
	flush_error = 0;
	publish_one(2, POSTROOM_DELIVERED, NULL);
	check_lines("out", 2, 0);
	rig_release(&rig);
}

TEST(K2_full_disk_leaves_no_partial_line_and_sink_recovers)
{
	struct rlimit limit = { 0 };
	struct stat st;
	postroom_delivery *items;

	begin("file:out");
	signal(SIGXFSZ, SIG_IGN);
	publish_one(1, POSTROOM_DELIVERED, NULL);
	CHECK(stat("out", &st) == 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0);

	/* Room for three lines and a half. */
	limit.rlim_cur = (rlim_t)st.st_size * 9 / 2;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	items = rig_items(&rig, 10);
	rig_publish(&rig, items, 10);
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	for (int i = 0; i < 10; i++) {
		CHECK_INT(items[i].verdict, POSTROOM_UNREACHABLE);
		CHECK_CONTAINS(items[i].reason, "\"out\" cannot be written: File too large");
	}
	check_lines("out", 1, 0);

	rig_publish(&rig, items, 10);
	CHECK_INT(items[9].verdict, POSTROOM_DELIVERED);
	check_lines("out", 11, 0);
	rig_release(&rig);
}

TEST(K2_reopen_creates_a_new_file_after_rotation)
{
	begin("file:out");
	publish_one(1, POSTROOM_DELIVERED, NULL);
	CHECK(rename("out", "out.1") == 0);
	rig.sink->ops->reopen(rig.sink);
	publish_one(2, POSTROOM_DELIVERED, NULL);
	check_lines("out.1", 1, 0);
	check_lines("out", 1, 0);
	rig_release(&rig);
}

TEST(K2_deleted_file_loses_no_message)
{
	begin("file:out");
	publish_one(1, POSTROOM_DELIVERED, NULL);
	CHECK(unlink("out") == 0);
	publish_one(2, POSTROOM_DELIVERED, NULL);
	check_lines("out", 1, 0);
	rig_release(&rig);
}

TEST(K2_missing_directory_is_an_outage)
{
	CHECK(mkdir("d", 0700) == 0);
	begin("file:d/out");
	CHECK(rename("d", "e") == 0);
	publish_one(1, POSTROOM_UNREACHABLE, "No such file or directory");
	CHECK(rename("e", "d") == 0);
	publish_one(1, POSTROOM_DELIVERED, NULL);
	check_lines("d/out", 1, 0);
	rig_release(&rig);
}

TEST(K2_held_file_lock_is_waited_for_until_the_deadline)
{
	postroom_delivery item;
	int fd;

	begin("file:out");
	fd = open("out", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
	item = rig_item(&rig, 1, NULL, NULL);
	rig.flight.begin_until_us = pr_mono_us() + 3000 * 1000;
	CHECK_INT(rig.sink->ops->publish(rig.sink, &item, 1, &rig.flight, &rig.err), POSTROOM_OK);
	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item.reason, "is locked by another process");
	check_lines("out", 0, 0);
	close(fd);
	publish_one(1, POSTROOM_DELIVERED, NULL);
	check_lines("out", 1, 0);
	rig_release(&rig);
}

static _Atomic bool enough;

static void *append_lines(void *context)
{
	size_t *written = context;
	int fd = open("out", O_WRONLY | O_APPEND | O_CLOEXEC);

	for (; !enough; (*written)++) {
		CHECK_INT(write(fd, "{}\n", 3), 3);
		wait_a_moment();
	}
	close(fd);
	return NULL;
}

TEST(K2_message_that_never_got_the_file_lock_is_untried)
{
	postroom_delivery item;
	pthread_t other;
	size_t written = 0;
	int fd;

	begin("file:out");
	fd = open("out", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
	item = rig_item(&rig, 1, NULL, NULL);
	rig.flight.begin_until_us = pr_mono_us() + 4000 * 1000;
	CHECK(pthread_create(&other, NULL, append_lines, &written) == 0);
	CHECK_INT(rig.sink->ops->publish(rig.sink, &item, 1, &rig.flight, &rig.err), POSTROOM_OK);
	enough = true;
	pthread_join(other, NULL);
	CHECK_MSG(item.verdict == POSTROOM_UNTRIED, "%d: %s", item.verdict, item.reason);
	close(fd);
	publish_one(1, POSTROOM_DELIVERED, NULL);
	check_lines("out", written + 1, 0);
	rig_release(&rig);
}

TEST(K2_paths_may_be_urls_and_have_spaces)
{
	char here[500], url[600];

	CHECK(getcwd(here, sizeof(here)) != NULL);
	snprintf(url, sizeof(url), "file://%s/with%%20space", here);
	begin(url);
	publish_one(1, POSTROOM_DELIVERED, NULL);
	check_lines("with space", 1, 0);
	rig_release(&rig);
}

TEST(K2_pipes_and_devices_are_refused)
{
	struct pr_sink *none = NULL;
	struct pr_err err = { 0 };

	CHECK(mkfifo("fifo", 0600) == 0);
	CHECK_INT(pr_sink_open("file:fifo", &none, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "not a regular file");
	CHECK_INT(pr_sink_open("file:/dev/null", &none, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "not a regular file");
}

#define RELAYS 6
#define PER_BATCH 40

/* Publishes until it is killed, and says on its pipe how many batches were delivered. */
__attribute__((noreturn)) static void relay(int number, int report)
{
	struct rig own;

	rig_init(&own);
	rig_open(&own, "file:out?sync=no");
	for (int batch = 0;; batch++) {
		postroom_delivery *items = rig_items(&own, PER_BATCH);

		for (int i = 0; i < PER_BATCH; i++)
			items[i].id = pr_arena_printf(&own.arena, "r%d-b%d-%d", number, batch, i);
		rig_publish(&own, items, PER_BATCH);
		CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
		CHECK(write(report, "x", 1) == 1);
		pr_arena_reset(&own.arena);
	}
}

/* The relay's ids must be those of its batches, complete and in order, and at least those it reported. */
static void check_relay(const struct pr_buf *text, int number, int64_t batches)
{
	struct pr_span line;
	size_t at = 0;
	int64_t seen = 0;

	while (next_line(text, &at, &line)) {
		char expected[64], prefix[32];

		snprintf(prefix, sizeof(prefix), "{\"id\":\"r%d-", number);
		if (strncmp(line.data, prefix, strlen(prefix)) != 0 ||
		    !pr_json_check(line.data, line.len, NULL))
			continue;
		snprintf(expected, sizeof(expected), "%sb%d-%d\"", prefix, (int)(seen / PER_BATCH),
			 (int)(seen % PER_BATCH));
		CHECK_MSG(strncmp(line.data, expected, strlen(expected)) == 0, "%.40s, not %s",
			  line.data, expected);
		seen++;
	}
	CHECK_MSG(seen >= batches * PER_BATCH, "relay %d: %lld lines for %lld batches", number,
		  (long long)seen, (long long)batches);
}

TEST(K2_killed_relays_leave_complete_lines_in_one_file)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	int report[RELAYS][2];
	int64_t batches[RELAYS] = { 0 };
	pid_t pids[RELAYS];
	size_t torn;
	char c;

	for (int i = 0; i < RELAYS; i++) {
		CHECK(pipe2(report[i], O_CLOEXEC) == 0);
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i] == 0)
			relay(i, report[i][1]);
		close(report[i][1]);
	}
	/* Each dies at its own moment; the others go on behind what it left. */
	for (int i = 0; i < RELAYS; i++) {
		for (int n = 0; n < 20 + i * 7 && read(report[i][0], &c, 1) == 1; n++)
			batches[i]++;
		CHECK(kill(pids[i], SIGKILL) == 0);
		CHECK(waitpid(pids[i], NULL, 0) == pids[i]);
		while (read(report[i][0], &c, 1) == 1)
			batches[i]++;
	}
	begin("file:out");
	publish_one(1, POSTROOM_DELIVERED, NULL);
	read_file("out", &text);
	for (int i = 0; i < RELAYS; i++)
		check_relay(&text, i, batches[i]);
	count_lines("out", &torn);
	CHECK_MSG(torn <= RELAYS, "%zu torn lines of %d kills", torn, RELAYS);
	rig_release(&rig);
}
