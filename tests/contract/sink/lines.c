/* SPDX-License-Identifier: Apache-2.0 */
/* The line that stdout: and file: write, the choice of a sink by its URL, and what stdout: does with pipes. */
#include "contract/sink/sink.h"

#include "base/time.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct rig rig;

static void check_line(const postroom_delivery *item, const char *expected)
{
	PR_CLEANUP_BUF struct pr_buf line = { 0 };

	pr_sink_put_line(&line, item);
	CHECK(!line.failed);
	CHECK_STR(line.data, expected);
	CHECK(pr_json_check(line.data, line.len - 1, NULL));
}

TEST(K1_a_line_holds_every_field)
{
	check_line(&(postroom_delivery){ .id = "0190a1b2-0000-7000-8000-000000000001",
					 .ns = "billing",
					 .topic = "orders.\"created\"",
					 .key = "o-1",
					 .tenant_id = "6f1c2a34-0000-4000-8000-000000000002",
					 .dedupe_key = "6f1c2a34-0000-4000-8000-000000000002/x",
					 .correlation_id = "c-1",
					 .content_type = "application/json",
					 .headers = "{\"a\": \"b\"}",
					 .payload = "{\"n\": 1.0}",
					 .payload_len = 10,
					 .attempt = 3,
					 .created_at_us = 1700000000123456 },
		   "{\"id\":\"0190a1b2-0000-7000-8000-000000000001\",\"namespace\":\"billing\","
		   "\"topic\":\"orders.\\\"created\\\"\",\"key\":\"o-1\","
		   "\"tenant_id\":\"6f1c2a34-0000-4000-8000-000000000002\","
		   "\"dedupe_key\":\"6f1c2a34-0000-4000-8000-000000000002/x\","
		   "\"correlation_id\":\"c-1\",\"attempt\":3,"
		   "\"created_at\":\"2023-11-14T22:13:20.123456Z\",\"headers\":{\"a\": \"b\"},"
		   "\"content_type\":\"application/json\",\"payload\":{\"n\": 1.0}}\n");
}

TEST(K1_missing_fields_are_null_and_line_breaks_become_spaces)
{
	check_line(&(postroom_delivery){ .id = "i",
					 .ns = "default",
					 .topic = "t",
					 .content_type = "x/y",
					 .headers = "{\r\n}",
					 .payload = "[1,\n\"\\n\"\r]",
					 .payload_len = 10,
					 .body = "",
					 .body_len = 0,
					 .attempt = 1 },
		   "{\"id\":\"i\",\"namespace\":\"default\",\"topic\":\"t\",\"key\":null,"
		   "\"tenant_id\":null,\"dedupe_key\":null,\"correlation_id\":null,\"attempt\":1,"
		   "\"created_at\":\"1970-01-01T00:00:00.000000Z\",\"headers\":{  },"
		   "\"content_type\":\"x/y\",\"payload\":[1, \"\\n\" ],\"body_base64\":\"\"}\n");
}

static void check_open_fails(const char *url, const char *part)
{
	struct pr_sink *none = NULL;
	struct pr_err err = { 0 };

	CHECK_INT(pr_sink_open(url, &none, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, part);
}

TEST(unknown_sink_is_reported_with_the_nearest_and_all_names)
{
	check_open_fails("flie:out", "did you mean \"file:\"?");
	check_open_fails("flie:out", "null: stdout: file: exec:");
	check_open_fails("carrier-pigeon:home", "there is no sink \"carrier-pigeon:\"");
	check_open_fails("just a word", "SCHEME:");
	check_open_fails("", "SCHEME:");
	check_open_fails("file:out?snyc=no", "did you mean \"sync\"?");
	check_open_fails("file:missing/out", "does its directory exist?");
}

TEST(errors_show_no_password)
{
	struct pr_sink *none = NULL;
	struct pr_err err = { 0 };

	CHECK_INT(pr_sink_open("rediss://:geheim@host/stream?ca=/nowhere", &none, &err),
		  POSTROOM_SINK);
	CHECK(!strstr(err.text, "geheim"));
}

TEST(schemes_may_be_written_in_capitals)
{
	rig_init(&rig);
	rig_open(&rig, "NULL:");
	rig_release(&rig);
}

/* Publishing to a pipe, with the other end in the test's hand. */
static int reader = -1;

static void begin_pipe(void)
{
	int ends[2];

	rig_init(&rig);
	fflush(stdout);
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	reader = ends[0];
	/* From here on, failures are reported on stderr's copy. */
	CHECK(dup2(STDOUT_FILENO, 100) == 100 && dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
	close(ends[1]);
	rig_open(&rig, "stdout:");
	rig.flight.begin_until_us = pr_mono_us() + AMPLE_MS * 1000;
}

static void leave_pipe(void)
{
	CHECK(dup2(100, STDOUT_FILENO) == STDOUT_FILENO);
	close(100);
}

static void end_pipe(void)
{
	if (reader >= 0)
		close(reader);
	rig_release(&rig);
}

static int publish_to_pipe(postroom_delivery *items, size_t count)
{
	return rig.sink->ops->publish(rig.sink, items, count, &rig.flight, &rig.err);
}

static size_t count_verdicts(const postroom_delivery *items, size_t count, postroom_verdict verdict)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		found += items[i].verdict == verdict;
	return found;
}

TEST(K1_a_closed_stdout_breaks_the_sink_and_loses_nothing)
{
	postroom_delivery *items;
	int status;

	begin_pipe();
	items = rig_items(&rig, 3);
	close(reader);
	reader = -1;
	status = publish_to_pipe(items, 3);
	leave_pipe();
	CHECK_INT(status, POSTROOM_SINK);
	CHECK_CONTAINS(rig.err.text, "stdout was closed");
	CHECK_INT(count_verdicts(items, 3, POSTROOM_UNTRIED), 3);
	end_pipe();
}

struct partial_reader {
	size_t bytes; /* read these, then go */
	size_t lines; /* and this many whole lines were in them */
};

static void *read_some_and_close(void *context)
{
	struct partial_reader *part = context;
	char c;

	for (size_t i = 0; i < part->bytes; i++) {
		if (read(reader, &c, 1) != 1)
			break;
		part->lines += c == '\n';
	}
	close(reader);
	reader = -1;
	return NULL;
}

TEST(K1_lines_left_unread_in_the_pipe_are_not_delivered)
{
	struct partial_reader part = { .bytes = 5000 };
	postroom_delivery *items;
	size_t count = 2000; /* more than a pipe holds, so that the writer is still there */
	pthread_t thread;
	int status;

	begin_pipe();
	items = rig_items(&rig, count);
	CHECK(pthread_create(&thread, NULL, read_some_and_close, &part) == 0);
	status = publish_to_pipe(items, count);
	pthread_join(thread, NULL);
	leave_pipe();
	CHECK_INT(status, POSTROOM_SINK);
	CHECK(part.lines > 0);
	CHECK_INT(count_verdicts(items, count, POSTROOM_DELIVERED), part.lines);
	CHECK_INT(count_verdicts(items, part.lines, POSTROOM_DELIVERED), part.lines);
	CHECK_INT(count_verdicts(items, count, POSTROOM_UNTRIED), count - part.lines);
	end_pipe();
}

/* Takes what is in the pipe, and does not wait for more. */
static void drain_pipe(struct pr_buf *out)
{
	int waiting = 0;

	while (ioctl(reader, FIONREAD, &waiting) == 0 && waiting > 0) {
		char *at = pr_buf_reserve(out, (size_t)waiting);
		ssize_t n = at ? read(reader, at, (size_t)waiting) : -1;

		if (n <= 0)
			break;
		out->len += (size_t)n;
	}
}

TEST(K1_blocked_reader_does_not_block_sink_and_torn_line_is_ended)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	postroom_delivery *items, *again;
	size_t count = 1001, delivered, failed, at = 0, torn = 0, whole = 0;
	struct pr_span line, last = { 0 };
	char *huge;
	int first, second;

	begin_pipe();
	items = rig_items(&rig, count);
	/* Longer than the pipe, so that it must be torn. */
	huge = pr_arena_alloc(&rig.arena, 200001);
	CHECK(huge != NULL);
	memset(huge, '1', 200000);
	huge[0] = huge[199999] = '"';
	huge[200000] = '\0';
	items[100] = rig_item(&rig, 100, NULL, huge);
	rig.flight.timeout_ms = 5000;
	first = publish_to_pipe(items, count);
	drain_pipe(&text);
	rig.flight.timeout_ms = AMPLE_MS;
	rig.flight.begin_until_us = pr_mono_us() + AMPLE_MS * 1000;
	again = rig_items(&rig, 1);
	second = publish_to_pipe(again, 1);
	drain_pipe(&text);
	leave_pipe();

	CHECK_INT(first, POSTROOM_OK);
	CHECK_INT(second, POSTROOM_OK);
	delivered = count_verdicts(items, count, POSTROOM_DELIVERED);
	failed = count_verdicts(items, count, POSTROOM_FAILED);
	CHECK_INT(delivered, 100);
	CHECK_INT(failed, 1);
	CHECK_CONTAINS(items[100].reason, "timed out after 5s: no process reads stdout");
	CHECK_INT(count_verdicts(items, count, POSTROOM_UNTRIED), count - 101);
	CHECK_INT(again[0].verdict, POSTROOM_DELIVERED);
	while (next_line(&text, &at, &line)) {
		if (pr_json_check(line.data, line.len, NULL))
			whole++;
		else
			torn++;
		last = line;
	}
	CHECK_INT(whole, 101);
	CHECK_INT(torn, 1);
	CHECK_CONTAINS(last.data, "\"id\":\"id-0\"");
	end_pipe();
}

static void *stop_now(void *context)
{
	(void)context;
	pr_stop_request(&rig.stop, 0);
	return NULL;
}

TEST(D4_a_stop_ends_the_wait_for_a_sleeping_reader)
{
	postroom_delivery *items;
	size_t count = 2000;
	pthread_t thread;
	int status, full = 0;

	begin_pipe();
	items = rig_items(&rig, count);
	CHECK(pthread_create(&thread, NULL, stop_now, NULL) == 0);
	status = publish_to_pipe(items, count);
	pthread_join(thread, NULL);
	ioctl(reader, FIONREAD, &full);
	leave_pipe();
	CHECK_INT(status, POSTROOM_OK);
	CHECK(count_verdicts(items, count, POSTROOM_FAILED) <= 1);
	CHECK(count_verdicts(items, count, POSTROOM_UNTRIED) > 0);
	end_pipe();
}

#define WRITERS 4
#define ROUNDS 20
#define EACH 50

/* A worker has its own sink, log and arena, as in the relay. */
static void *write_batches(void *context)
{
	struct rig *own = context;

	for (int i = 0; i < ROUNDS; i++)
		own->sink->ops->publish(own->sink, rig_items(own, EACH), EACH, &own->flight,
					&own->err);
	return NULL;
}

TEST(K1_lines_of_several_workers_are_never_mixed)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct rig own[WRITERS];
	pthread_t threads[WRITERS];
	struct pr_span line;
	size_t lines = 0, at = 0;

	begin_pipe();
	for (int i = 0; i < WRITERS; i++) {
		rig_init(&own[i]);
		rig_open(&own[i], "stdout:");
		own[i].flight.begin_until_us = pr_mono_us() + AMPLE_MS * 1000;
		CHECK(pthread_create(&threads[i], NULL, write_batches, &own[i]) == 0);
	}
	while (lines < WRITERS * ROUNDS * EACH) {
		char *to = pr_buf_reserve(&text, 65536);
		ssize_t n = to ? read(reader, to, 65536) : -1;

		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			lines += to[i] == '\n';
		text.len += (size_t)n;
	}
	for (int i = 0; i < WRITERS; i++) {
		pthread_join(threads[i], NULL);
		rig_release(&own[i]);
	}
	leave_pipe();
	CHECK_INT(lines, WRITERS * ROUNDS * EACH);
	while (next_line(&text, &at, &line))
		CHECK(pr_json_check(line.data, line.len, NULL));
	end_pipe();
}
