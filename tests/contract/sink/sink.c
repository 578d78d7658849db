/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One contract for every sink. Each TEST() here runs once for each of
 * FOR_EACH_SINK; a new sink is one more struct subject and one more line there.
 */
#include "contract/sink/sink.h"

#include "base/time.h"
#include "contract/sink/server.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define BATCH 60
#define MIB ((size_t)1024 * 1024)

/* A sink under test. */
struct subject {
	const struct server_kind *server; /* it is one: a real one is begun for each test */
	const char *url;
	const char *picky_url; /* refuses messages of the topic "bad"; NULL: not possible */
	const char *wrong[16]; /* URLs it must refuse at open */
	void (*enter)(void);   /* around each call into the sink; may be NULL */
	void (*leave)(void);
	/* Appends the received ids in order, one per line. NULL: the sink cannot be read back. */
	void (*ids)(struct pr_buf *out);
	/* Appends what a message brought: its payload, or its body. */
	void (*content)(const char *id, struct pr_buf *out);
};

static void put_ids_of_lines(const char *path, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_span line;
	size_t at = 0;

	read_file(path, &text);
	while (next_line(&text, &at, &line)) {
		CHECK(pr_json_check(line.data, line.len, NULL));
		pr_json_decode(member(line, "id"), out);
		pr_buf_putc(out, '\n');
	}
}

static void put_content_of_line(const char *path, const char *id, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_span line, value;
	size_t at = 0;

	read_file(path, &text);
	while (next_line(&text, &at, &line)) {
		PR_CLEANUP_BUF struct pr_buf found = { 0 };

		pr_json_decode(member(line, "id"), &found);
		if (strcmp(pr_buf_text(&found), id) != 0)
			continue;
		value = member(line, "body_base64");
		if (!value.data) {
			value = member(line, "payload");
			pr_buf_append(out, value.data, value.len);
		} else {
			value.data++;
			value.len -= 2;
			CHECK(pr_base64_decode(value, out));
		}
		return;
	}
	test_fail(__FILE__, __LINE__, "%s has not arrived", id);
}

static void file_ids(struct pr_buf *out)
{
	put_ids_of_lines("out", out);
}

static void file_content(const char *id, struct pr_buf *out)
{
	put_content_of_line("out", id, out);
}

static void exec_ids(struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	read_file("ids", &text);
	pr_buf_append(out, text.data, text.len);
}

static void exec_content(const char *id, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	char path[64];

	snprintf(path, sizeof(path), "content-%s", id);
	CHECK_MSG(exists(path), "%s has not arrived", id);
	read_file(path, &text);
	pr_buf_append(out, text.data, text.len);
}

static int real_stdout = -1;

static void enter_stdout(void)
{
	int fd = open("out", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	fflush(stdout);
	real_stdout = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	CHECK(real_stdout >= 0 && dup2(fd, STDOUT_FILENO) == STDOUT_FILENO);
	close(fd);
}

static void leave_stdout(void)
{
	CHECK(dup2(real_stdout, STDOUT_FILENO) == STDOUT_FILENO);
	close(real_stdout);
}

static const struct subject null_sink = {
	.url = "null:",
	.wrong = { "null:somewhere", "null:?count=7", "nul:" },
};

static const struct subject stdout_sink = {
	.url = "stdout:",
	.wrong = { "stdout:out", "stdout:?sync=yes", "stout:" },
	.enter = enter_stdout,
	.leave = leave_stdout,
	.ids = file_ids,
	.content = file_content,
};

static const struct subject file_sink = {
	.url = "file:out",
	.wrong = { "file:", "file:no/such/directory/out", "file:/", "file:out?sink=no",
		   "file:out?sync=perhaps", "file://host/out", "file:%zz", "file:{topic}" },
	.ids = file_ids,
	.content = file_content,
};

static const struct subject unsynced_file_sink = {
	.url = "file:out?sync=no",
	.ids = file_ids,
	.content = file_content,
};

static const struct subject exec_sink = {
	.url = "exec:cat > content-$POSTROOM_ID; echo $POSTROOM_ID >> ids",
	.picky_url = "exec:test $POSTROOM_TOPIC != bad && echo $POSTROOM_ID >> ids",
	.wrong = { "exec:", "exec:  ", "exce:true" },
	.ids = exec_ids,
	.content = exec_content,
};

/* A subject for a server: the URL and the way to read back are the same for all of them. */
#define SERVER_SUBJECT(kind, ...)                                                                  \
	static const struct subject kind##_sink = {                                                \
		.server = &kind##_kind,                                                            \
		.wrong = { __VA_ARGS__ },                                                          \
		.ids = server_ids,                                                                 \
		.content = server_content,                                                         \
	};

static struct server server;
static const struct subject *subject;

__attribute__((unused)) static void server_ids(struct pr_buf *out)
{
	subject->server->ids(&server, out);
}

__attribute__((unused)) static void server_content(const char *id, struct pr_buf *out)
{
	subject->server->content(&server, id, out);
}

#ifdef PR_WITH_HTTP
SERVER_SUBJECT(http, "http:", "http:///hook", "http://localhost:99999/", "http://localhost/{topik}",
	       "http://localhost/?secret=hush!", "http://localhost/?header=nothing",
	       "http://localhost/?ca=/etc/hosts", "htpp://localhost/")
#endif
#ifdef PR_WITH_KAFKA
SERVER_SUBJECT(kafka, "kafka:", "kafka:///orders", "kafka://localhost/{topik}",
	       "kafka://localhost/a/b", "kafka://localhost/..", "kafka://user:pw@localhost/orders",
	       "kafka://localhost/orders?kafka.acks=1",
	       "kafka://localhost/orders?kafka.lingering=1")
#endif
#ifdef PR_WITH_NATS
SERVER_SUBJECT(nats, "nats:", "nats:///orders", "nats://localhost:0/orders", "nats://a:1,/orders",
	       "nats://localhost/{topik}", "nats://localhost/orders.>",
	       "nats://localhost/a..{topic}", "nats://:secret@localhost/orders",
	       "nats://localhost/a?nkey=U", "nats://localhost/a?creds=missing",
	       "nats://localhost/a?cert=missing&key=missing",
	       "nats://u:p@localhost/a?creds=/etc/hosts")
#endif
#ifdef PR_WITH_REDIS
SERVER_SUBJECT(redis, "redis:", "redis:///orders", "redis://localhost:0/orders",
	       "redis://localhost/0", "redis://localhost/{topik}", "redis://localhost/a?maxlen=x",
	       "redis://user@localhost/orders", "redis://localhost/orders?ca=x",
	       "rediss://localhost/orders?cert=x", "rediss://localhost/orders?ca=/nowhere")
#endif
#ifdef PR_WITH_AMQP
SERVER_SUBJECT(amqp, "amqp:///orders", "amqp://localhost:0/", "amqp://localhost/v/{topik}",
	       "amqp://localhost/v/e?routing_key={x", "amqp://user@localhost/",
	       "amqp://localhost/?heartbeat=500ms", "amqp://localhost/?ca=x",
	       "amqps://localhost/?ca=/nowhere")
#endif

#define FOR_EACH_SINK(do_it, test_name)                                                            \
	do_it(test_name, null_sink) do_it(test_name, stdout_sink) do_it(test_name, file_sink)      \
		do_it(test_name, unsynced_file_sink) do_it(test_name, exec_sink)                   \
			IF_HTTP(do_it(test_name, http_sink))                                       \
				IF_KAFKA(do_it(test_name, kafka_sink))                             \
					IF_NATS(do_it(test_name, nats_sink))                       \
						IF_REDIS(do_it(test_name, redis_sink))             \
							IF_AMQP(do_it(test_name, amqp_sink))

static struct rig rig;

static void enter(void)
{
	if (subject->enter)
		subject->enter();
}

static void leave(void)
{
	if (subject->leave)
		subject->leave();
}

static void open_sink(void)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };

	if (subject->server)
		subject->server->put_url(&url, SERVER_HOST, server.port);
	enter();
	rig_open(&rig, subject->server ? pr_buf_text(&url) : subject->url);
	leave();
}

static void begin_test(const struct subject *which)
{
	subject = which;
	rig_init(&rig);
	if (subject->server) {
		server.port = server_free_port();
		subject->server->start(&server);
	}
	open_sink();
}

static void publish(postroom_delivery *items, size_t count)
{
	enter();
	rig_publish(&rig, items, count);
	leave();
}

static void end_test(void)
{
	rig_release(&rig);
}

#undef TEST
#define TEST(test_name)                                                                            \
	static void test_name(void);                                                               \
	FOR_EACH_SINK(REGISTER_FOR, test_name)                                                     \
	static void test_name(void)

/* The position of a number among the received ids; each must be there once. */
static size_t place_of(const struct pr_buf *ids, int number)
{
	char id[32];
	size_t place = 0, found = SIZE_MAX;
	struct pr_span line;

	snprintf(id, sizeof(id), "id-%d", number);
	for (size_t at = 0; next_line(ids, &at, &line); place++) {
		if (line.len != strlen(id) || memcmp(line.data, id, line.len) != 0)
			continue;
		CHECK_MSG(found == SIZE_MAX, "%s has arrived twice", id);
		found = place;
	}
	CHECK_MSG(found != SIZE_MAX, "%s has not arrived", id);
	return found;
}

TEST(every_message_is_delivered_once_in_order_of_its_key)
{
	static const char *const keys[] = { "a", "b", "c", NULL };
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };
	postroom_delivery *items = rig_items(&rig, BATCH);

	for (int i = 0; i < BATCH; i++)
		items[i].key = keys[i % 4];
	publish(items, BATCH);
	for (int i = 0; i < BATCH; i++) {
		CHECK_INT(items[i].verdict, POSTROOM_DELIVERED);
		CHECK(items[i].reason == NULL);
	}
	if (!subject->ids)
		return;
	subject->ids(&ids);
	for (int i = 0; i < BATCH; i++) {
		size_t place = place_of(&ids, i);

		CHECK(i < 4 || items[i].key == NULL || place > place_of(&ids, i - 4));
	}
}

static void check_content(const char *id, const void *expected, size_t len)
{
	PR_CLEANUP_BUF struct pr_buf got = { 0 };

	subject->content(id, &got);
	CHECK_INT(got.len, len);
	CHECK(len == 0 || memcmp(got.data, expected, len) == 0);
}

TEST(payloads_are_sent_byte_for_byte)
{
	char *large = malloc(MIB + 1);
	const char *payloads[] = {
		"null",
		"{}",
		"\"\"",
		" [1 ,\t2] ",
		"1e400",
		"{\"a\":1,\"a\":2}",
		"\"\\u00e9 \\\" \\\\ \\/ \xc3\xa9 \xf0\x9f\x93\xae\"",
		large,
	};
	size_t count = sizeof(payloads) / sizeof(*payloads);
	postroom_delivery *items = rig_items(&rig, count);

	CHECK(large != NULL);
	memset(large, 'x', MIB);
	large[0] = large[MIB - 1] = '"';
	large[MIB] = '\0';
	for (size_t i = 0; i < count; i++)
		items[i] = rig_item(&rig, (int)i, NULL, payloads[i]);
	publish(items, count);
	for (size_t i = 0; i < count; i++) {
		const char *text = payloads[i];
		size_t len = strlen(text);

		CHECK_INT(items[i].verdict, POSTROOM_DELIVERED);
		if (!subject->content)
			continue;
		/* White space around the value is what a JSON reader does not hand out. */
		if (subject->content == file_content && text[0] == ' ')
			text++, len -= 2;
		check_content(items[i].id, text, len);
	}
	free(large);
}

TEST(bodies_are_sent_byte_for_byte)
{
	unsigned char *large = malloc(MIB);
	postroom_delivery *items = rig_items(&rig, 4);

	CHECK(large != NULL);
	for (size_t i = 0; i < MIB; i++)
		large[i] = (unsigned char)(i * 7 + i / 251);
	for (size_t i = 0; i < 4; i++) {
		items[i] = rig_item(&rig, (int)i, NULL, "null");
		items[i].content_type = "application/octet-stream";
		items[i].body = large;
	}
	items[0].body_len = 0;
	items[1].body_len = 1;
	items[2].body_len = 256;
	items[3].body_len = MIB;
	publish(items, 4);
	for (size_t i = 0; i < 4; i++) {
		CHECK_INT(items[i].verdict, POSTROOM_DELIVERED);
		if (subject->content)
			check_content(items[i].id, large, items[i].body_len);
	}
	free(large);
}

TEST(one_bad_message_gets_its_own_verdict)
{
	postroom_delivery *items = rig_items(&rig, 5);
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };

	if (subject->server) {
		subject->server->spoil(&server);
	} else if (subject->picky_url) {
		pr_sink_close(rig.sink);
		rig_open(&rig, subject->picky_url);
	} else {
		return;
	}
	items[2].topic = "bad";
	publish(items, 5);
	for (int i = 0; i < 5; i++)
		CHECK_INT(items[i].verdict, i == 2 ? POSTROOM_FAILED : POSTROOM_DELIVERED);
	CHECK(items[2].reason && items[2].reason[0]);
	subject->ids(&ids);
	for (int i = 0; i < 5; i++) {
		if (i != 2)
			place_of(&ids, i);
	}
}

static void publish_and_expect_nothing(void)
{
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };
	postroom_delivery *items = rig_items(&rig, 3);

	enter();
	CHECK_INT(rig.sink->ops->publish(rig.sink, items, 3, &rig.flight, &rig.err), POSTROOM_OK);
	leave();
	for (int i = 0; i < 3; i++)
		CHECK_INT(items[i].verdict, POSTROOM_UNTRIED);
	if (subject->ids)
		subject->ids(&ids);
	CHECK_INT(ids.len, 0);
}

TEST(no_message_is_begun_after_the_deadline)
{
	rig.flight.begin_until_us = pr_mono_us();
	publish_and_expect_nothing();
}

TEST(D4_no_message_is_begun_after_stop)
{
	rig.flight.begin_until_us = pr_mono_us() + AMPLE_MS * 1000;
	pr_stop_request(&rig.stop, AMPLE_MS);
	publish_and_expect_nothing();
}

TEST(empty_batch_is_accepted)
{
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };

	publish(NULL, 0);
	if (subject->ids)
		subject->ids(&ids);
	CHECK_INT(ids.len, 0);
}

TEST(invalid_settings_are_clear_errors_at_open)
{
	for (size_t i = 0; i < 16 && subject->wrong[i]; i++) {
		struct pr_sink *none = NULL;
		struct pr_err err = { 0 };

		CHECK_MSG(pr_sink_open(subject->wrong[i], &none, &err) == POSTROOM_SINK,
			  "%s: %d %s", subject->wrong[i], err.status, err.text);
		CHECK(none == NULL);
		CHECK_INT(err.status, POSTROOM_SINK);
		CHECK_MSG(strlen(err.text) > 20, "%s: %s", subject->wrong[i], err.text);
	}
}

TEST(sink_works_after_reopen)
{
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };
	postroom_delivery *items = rig_items(&rig, 2);

	publish(items, 1);
	if (rig.sink->ops->reopen)
		rig.sink->ops->reopen(rig.sink);
	publish(items + 1, 1);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	CHECK_INT(items[1].verdict, POSTROOM_DELIVERED);
	if (subject->ids) {
		subject->ids(&ids);
		CHECK(place_of(&ids, 0) < place_of(&ids, 1));
	}
}

TEST(many_messages_leak_no_descriptor_and_no_child)
{
	size_t closed, opened, connected;

	/* A client library may connect in the background: only a closed one is idle. */
	pr_sink_close(rig.sink);
	closed = open_descriptors();
	open_sink();
	opened = open_descriptors();
	publish(rig_items(&rig, BATCH), BATCH);
	connected = open_descriptors();
	CHECK(subject->server || connected == opened);
	for (int round = 0; round < 5; round++) {
		publish(rig_items(&rig, BATCH), BATCH);
		CHECK_INT(open_descriptors(), connected);
		CHECK(subject->server || !has_children());
	}
	for (int round = 0; round < 20; round++) {
		pr_sink_close(rig.sink);
		CHECK_INT(open_descriptors(), closed);
		open_sink();
	}
}

TEST(sink_describes_itself)
{
	const struct pr_sink_ops *ops = rig.sink->ops;

	CHECK(ops->summary && ops->example && ops->params && ops->schemes[0]);
	CHECK(strncmp(ops->example, ops->schemes[0], strlen(ops->schemes[0])) == 0);
	for (const struct pr_param *param = ops->params; param->name; param++)
		CHECK_MSG(param->help && param->help[0], "%s has no help", param->name);
}
