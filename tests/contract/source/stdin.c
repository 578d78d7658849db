/* SPDX-License-Identifier: Apache-2.0 */
/* stdin: as a source, over a pipe and over a file. */
#include "contract/sink/sink.h"

#include "base/time.h"
#include "broker/source.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static struct rig rig;
static struct pr_source *source;
static struct pr_events events;
static int writer = -1; /* the other end of the pipe */

static void open_pipe(void)
{
	int ends[2];

	rig_init(&rig);
	CHECK(pipe(ends) == 0 && dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
	close(ends[0]);
	writer = ends[1];
	CHECK_MSG(pr_source_open("-", "readers", AMPLE_MS, &source, &rig.err) == POSTROOM_OK, "%s",
		  rig.err.text);
}

static void open_text(const char *text)
{
	int fd;

	rig_init(&rig);
	write_file("in", text);
	fd = open("in", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO);
	close(fd);
	CHECK_INT(pr_source_open("stdin:", "readers", AMPLE_MS, &source, &rig.err), POSTROOM_OK);
}

static void end(void)
{
	pr_source_close(source);
	pr_events_release(&events);
	rig_release(&rig);
	if (writer >= 0)
		close(writer);
}

static void say(const char *text)
{
	CHECK(write(writer, text, strlen(text)) == (ssize_t)strlen(text));
}

static int try_read(size_t limit, int64_t wait_ms)
{
	pr_events_reset(&events);
	rig.flight.begin_until_us = pr_mono_us() + wait_ms * 1000;
	return source->ops->read(source, &events, limit, &rig.flight, &rig.err);
}

/* Exactly so many come now. */
static void expect(size_t count)
{
	CHECK_MSG(try_read(100, AMPLE_MS) == POSTROOM_OK, "%s", rig.err.text);
	CHECK_INT(events.count, count);
	CHECK_INT(source->ops->ack(source, &events, &rig.flight, &rig.err), POSTROOM_OK);
}

TEST(N2_line_written_by_a_sink_is_read_unchanged)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	postroom_delivery *items;

	rig_init(&rig);
	items = rig_items(&rig, 3);
	items[0].key = "k \xc3\xa9";
	items[0].tenant_id = "0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c11";
	items[0].correlation_id = "order \"7\" \xc3\xa9";
	items[0].headers = "{\"traceparent\": \"00-ab\"}";
	items[0].payload = "{\"a\": [1, \"\\u00e9\"]}";
	items[0].payload_len = strlen(items[0].payload);
	items[1].content_type = "image/png";
	items[1].body = "\x89PNG\0\xff";
	items[1].body_len = 6;
	items[2].content_type = "text/plain";
	items[2].body = "";
	for (int i = 0; i < 3; i++)
		pr_sink_put_line(&text, &items[i]);
	rig_release(&rig);
	open_text(pr_buf_text(&text));
	expect(3);
	CHECK_STR(events.list[0].id, "id-0");
	CHECK(strncmp(events.list[0].broker_position, "sha256:", 7) == 0);
	CHECK_STR(events.list[0].topic, "orders.created");
	CHECK_STR(events.list[0].key, "k \xc3\xa9");
	CHECK_STR(events.list[0].tenant_id, "0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c11");
	CHECK_STR(events.list[0].correlation_id, "order \"7\" \xc3\xa9");
	CHECK(!events.list[1].tenant_id && !events.list[1].correlation_id);
	CHECK_STR(events.list[0].headers, "{\"traceparent\": \"00-ab\"}");
	CHECK_STR(events.list[0].content_type, "application/json");
	CHECK_STR(events.list[0].body, "{\"a\": [1, \"\\u00e9\"]}");
	CHECK(events.list[1].key == NULL);
	CHECK_STR(events.list[1].content_type, "image/png");
	CHECK_INT(events.list[1].len, 6);
	CHECK(memcmp(events.list[1].body, "\x89PNG\0\xff", 7) == 0);
	CHECK_STR(events.list[2].id, "id-2");
	CHECK_INT(events.list[2].len, 0);
	CHECK_INT(try_read(100, AMPLE_MS), POSTROOM_NOT_FOUND);
	end();
}

TEST(foreign_lines_are_read_unchanged)
{
	static const char *const lines[] = {
		"plain words",
		"{\"total\": 5}",
		"[1, 2]",
		"{\"id\": 7, \"total\": 1}",
		"{\"id\": \"broken\"",
		"{\"id\":\"\", \"key\":\"k\"}",
	};
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	for (int i = 0; i < 6; i++)
		pr_buf_printf(&text, "%s\n", lines[i]);
	open_text(pr_buf_text(&text));
	expect(6);
	for (int i = 0; i < 6; i++) {
		CHECK(i == 0 || strcmp(events.list[i].broker_position,
				       events.list[i - 1].broker_position) != 0);
		CHECK(events.list[i].id == NULL && events.list[i].key == NULL);
		CHECK_STR(events.list[i].body, lines[i]);
		CHECK(!events.list[i].content_type == (i == 0 || i == 4));
	}
	end();
}

TEST(line_with_id_but_without_payload_is_the_content)
{
	open_text("\n  \r\n{\"id\": \"a\", \"topic\": \"t\", \"total\": 5}\n"
		  "{\"id\": \"b\", \"body_base64\": \"aGk\\/\"}\n{\"id\": \"c\", \"body_base64\": "
		  "\"?\"}\n");
	expect(3);
	CHECK_STR(events.list[0].topic, "t");
	CHECK_STR(events.list[0].body, "{\"id\": \"a\", \"topic\": \"t\", \"total\": 5}");
	CHECK_STR(events.list[1].body, "hi?");
	CHECK_STR(events.list[2].id, "c");
	CHECK_STR(events.list[2].body, "{\"id\": \"c\", \"body_base64\": \"?\"}");
	CHECK_INT(try_read(100, AMPLE_MS), POSTROOM_NOT_FOUND);
	end();
}

TEST(line_without_an_id_may_carry_it_in_another_field)
{
	open_text("{\"topic\": \"t\", \"headers\": {\"ref\": \"r\"}, \"payload\": {\"n\": 1}}\n");
	expect(1);
	CHECK(events.list[0].id == NULL);
	CHECK_STR(events.list[0].topic, "t");
	CHECK_STR(events.list[0].headers, "{\"ref\": \"r\"}");
	CHECK_STR(events.list[0].body, "{\"n\": 1}");
	end();
}

TEST(line_is_read_when_complete_or_at_the_end)
{
	open_pipe();
	say("one\ntw");
	expect(1);
	CHECK_STR(events.list[0].body, "one");
	CHECK_INT(try_read(100, 1), POSTROOM_OK);
	CHECK_INT(events.count, 0);
	say("o\nthree");
	expect(1);
	CHECK_STR(events.list[0].body, "two");
	close(writer);
	writer = -1;
	expect(1);
	CHECK_STR(events.list[0].body, "three");
	CHECK_INT(try_read(100, AMPLE_MS), POSTROOM_NOT_FOUND);
	CHECK_INT(try_read(100, AMPLE_MS), POSTROOM_NOT_FOUND);
	end();
}

TEST(read_from_stdin_respects_its_limits)
{
	size_t len = PR_SOURCE_BYTES + 1;
	char *text = malloc(len + sizeof("\na\nb\nc\n"));

	CHECK(text != NULL);
	memset(text, 'x', len);
	memcpy(text + len, "\na\nb\nc\n", sizeof("\na\nb\nc\n"));
	open_text(text);
	expect(1);
	CHECK_INT(events.list[0].len, len);
	CHECK_INT(try_read(2, AMPLE_MS), POSTROOM_OK);
	CHECK_INT(events.count, 2);
	expect(1);
	CHECK_STR(events.list[0].body, "c");
	CHECK_INT(try_read(2, AMPLE_MS), POSTROOM_NOT_FOUND);
	end();
	free(text);
}

TEST(D4_a_wait_for_a_line_is_ended_by_a_stop)
{
	pthread_t stopper;

	open_pipe();
	CHECK(pthread_create(&stopper, NULL, rig_stop_soon, &rig) == 0);
	CHECK_INT(try_read(100, AMPLE_MS), POSTROOM_STOPPED);
	pthread_join(stopper, NULL);
	end();
}

TEST(stdin_has_one_reader_and_no_path)
{
	static const char *const wrong[] = { "stdin:in", "stdin:?a=b", "stdin://host",
					     "stdon:", "nothing" };
	struct pr_source *other = NULL;

	open_pipe();
	CHECK_INT(pr_source_open("-", "readers", AMPLE_MS, &other, &rig.err), POSTROOM_OK);
	say("one\n");
	CHECK_INT(other->ops->read(other, &events, 1, &rig.flight, &rig.err), POSTROOM_NOT_FOUND);
	pr_source_close(other);
	other = NULL;
	expect(1);
	for (size_t i = 0; i < 5; i++) {
		CHECK_MSG(pr_source_open(wrong[i], "readers", AMPLE_MS, &other, &rig.err) ==
				  POSTROOM_SINK,
			  "%s", wrong[i]);
		CHECK_MSG(strlen(rig.err.text) > 20, "%s", rig.err.text);
	}
	CHECK(other == NULL);
	pr_source_close(source);
	CHECK_INT(pr_source_open("-", "readers", AMPLE_MS, &source, &rig.err), POSTROOM_OK);
	say("two\n");
	expect(1);
	pr_source_close(source);
	close(STDIN_FILENO);
	CHECK_INT(pr_source_open("-", "readers", AMPLE_MS, &source, &rig.err), POSTROOM_SINK);
	CHECK_CONTAINS(rig.err.text, "closed");
	source = NULL;
	end();
}
