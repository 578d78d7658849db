/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/json.h"
#include "base/log.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* A datagram socket keeps writes apart: each receive shows exactly one of them. */
static int open_log(struct pr_log *log, enum pr_log_level level, enum pr_log_format format)
{
	int fds[2], size = 1 << 20;

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds) == 0);
	CHECK(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	pr_log_init(log, fds[1], level, format);
	return fds[0];
}

/* One write's text, to be freed; "" if there was none. */
static char *received(int fd)
{
	char *text = calloc(1, 1 << 20);

	CHECK(text);
	if (recv(fd, text, (1 << 20) - 1, MSG_DONTWAIT) < 0)
		text[0] = '\0';
	return text;
}

static void log_one(struct pr_log *log, enum pr_log_level level, int64_t n)
{
	pr_log_event(log, level, "OUTBOX_WORKER_FETCH");
	pr_log_int(log, "count", n);
	pr_log_end(log);
}

static int count_lines(const char *text)
{
	int lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

TEST(L1_text_lines_begin_with_the_event)
{
	struct pr_log log;
	int fd = open_log(&log, PR_LOG_INFO, PR_LOG_TEXT);
	char *text;

	pr_log_event(&log, PR_LOG_INFO, "OUTBOX_WORKER_DISPATCH_FAIL");
	pr_log_str(&log, "id", "0190-ab");
	pr_log_str(&log, "key", NULL);
	pr_log_str(&log, "empty", "");
	pr_log_str(&log, "error", "no route: \"x\"\nto host");
	pr_log_str(&log, "pair", "a=b");
	pr_log_str(&log, "name", "\xc3\xa9");
	pr_log_int(&log, "retry", -3);
	pr_log_end(&log);
	pr_log_flush(&log);
	text = received(fd);
	CHECK(strncmp(text, "OUTBOX_WORKER_DISPATCH_FAIL id=", 31) == 0);
	CHECK_CONTAINS(text,
		       " id=0190-ab key=\"\" empty=\"\" error=\"no route: \\\"x\\\"\\nto host\" "
		       "pair=\"a=b\" name=\"\xc3\xa9\" retry=-3 level=info time=20");
	CHECK_INT(count_lines(text), 1);
	free(text);
	pr_log_release(&log);
}

TEST(L1_event_names_begin_with_outbox_or_inbox)
{
	struct pr_log log;
	int fd = open_log(&log, PR_LOG_INFO, PR_LOG_TEXT);
	char *text;

	pr_log_box(&log, PR_LOG_INFO, "WORKER_FETCH");
	pr_log_end(&log);
	log.box = "INBOX";
	pr_log_box(&log, PR_LOG_INFO, "WORKER_FETCH");
	pr_log_end(&log);
	pr_log_event(&log, PR_LOG_INFO, "EXEC_OUTPUT");
	pr_log_end(&log);
	log.format = PR_LOG_JSON;
	pr_log_box(&log, PR_LOG_INFO, "WORKER_DEAD");
	pr_log_end(&log);
	pr_log_flush(&log);
	text = received(fd);
	CHECK(strncmp(text, "OUTBOX_WORKER_FETCH level=", 26) == 0);
	CHECK_CONTAINS(text, "\nINBOX_WORKER_FETCH level=");
	CHECK_CONTAINS(text, "\nEXEC_OUTPUT level=");
	CHECK_CONTAINS(text, "\"event\":\"INBOX_WORKER_DEAD\"");
	free(text);
	pr_log_release(&log);
}

TEST(L1_json_lines_are_json)
{
	struct pr_log log;
	int fd = open_log(&log, PR_LOG_INFO, PR_LOG_JSON);
	char *text;

	pr_log_event(&log, PR_LOG_INFO, "OUTBOX_WORKER_DEAD");
	pr_log_str(&log, "key", NULL);
	pr_log_str(&log, "error", "a \"b\"\n\xff");
	pr_log_int(&log, "attempts", 10);
	pr_log_end(&log);
	pr_log_flush(&log);
	text = received(fd);
	CHECK_INT(count_lines(text), 1);
	CHECK(pr_json_check(text, strlen(text), NULL));
	CHECK_CONTAINS(text, "\"level\":\"info\",\"event\":\"OUTBOX_WORKER_DEAD\",\"key\":null,"
			     "\"error\":\"a \\\"b\\\"\\n\xef\xbf\xbd\",\"attempts\":10}\n");
	free(text);
	pr_log_release(&log);
}

TEST(L1_lines_of_a_batch_are_one_write)
{
	struct pr_log log;
	int fd = open_log(&log, PR_LOG_INFO, PR_LOG_TEXT);
	char *text;

	for (int i = 0; i < 100; i++)
		log_one(&log, PR_LOG_INFO, i);
	text = received(fd);
	CHECK_STR(text, "");
	free(text);
	pr_log_flush(&log);
	text = received(fd);
	CHECK_INT(count_lines(text), 100);
	free(text);
	text = received(fd);
	CHECK_STR(text, "");
	free(text);
	pr_log_release(&log);
}

TEST(L1_lower_levels_are_dropped_and_warnings_are_flushed)
{
	struct pr_log log;
	int fd = open_log(&log, PR_LOG_WARN, PR_LOG_TEXT);
	char *text;

	log_one(&log, PR_LOG_DEBUG, 1);
	log_one(&log, PR_LOG_INFO, 2);
	CHECK_INT(log.lines.len, 0);
	log_one(&log, PR_LOG_WARN, 3);
	text = received(fd);
	CHECK_CONTAINS(text, "count=3 level=warn");
	CHECK_INT(count_lines(text), 1);
	free(text);
	log.level = PR_LOG_OFF;
	log_one(&log, PR_LOG_ERROR, 4);
	CHECK_INT(log.lines.len, 0);
	pr_log_release(&log);
}

TEST(L1_full_buffer_is_flushed_and_oversize_line_is_dropped_alone)
{
	struct pr_log log;
	int fd = open_log(&log, PR_LOG_INFO, PR_LOG_TEXT);
	size_t huge_size = (size_t)3 << 20;
	char *text, *huge = malloc(huge_size);

	CHECK(huge);
	memset(huge, 'x', huge_size - 1);
	huge[huge_size - 1] = '\0';
	for (int i = 0; log.lines.len <= 64 * 1024 - 200; i++)
		log_one(&log, PR_LOG_INFO, i);
	for (int i = 0; log.lines.len > 0; i++) {
		CHECK(i < 10);
		log_one(&log, PR_LOG_INFO, i);
	}
	text = received(fd);
	CHECK(strlen(text) > 64 * 1024);
	free(text);

	log_one(&log, PR_LOG_INFO, 41);
	pr_log_event(&log, PR_LOG_INFO, "HUGE");
	pr_log_str(&log, "value", huge);
	pr_log_end(&log);
	log_one(&log, PR_LOG_INFO, 42);
	pr_log_flush(&log);
	text = received(fd);
	CHECK_CONTAINS(text, "count=41");
	CHECK(!strstr(text, "HUGE"));
	CHECK_INT(count_lines(text), 1);
	free(text);
	text = received(fd);
	CHECK_CONTAINS(text, "count=42");
	CHECK_INT(count_lines(text), 1);
	free(text);
	free(huge);
	pr_log_release(&log);
}

TEST(L1_closed_reader_of_the_log_causes_no_error)
{
	struct pr_log log;
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	CHECK(pipe2(fds, O_CLOEXEC) == 0);
	close(fds[0]);
	pr_log_init(&log, fds[1], PR_LOG_INFO, PR_LOG_TEXT);
	log_one(&log, PR_LOG_ERROR, 1);
	CHECK_INT(log.lines.len, 0);
	pr_log_release(&log);
}

TEST(L1_real_number_is_a_number_in_both_formats)
{
	static const char *const expected[] = {
		[PR_LOG_TEXT] = " ratio=0.250 ", [PR_LOG_JSON] = ",\"ratio\":0.250}"
	};

	for (int format = PR_LOG_TEXT; format <= PR_LOG_JSON; format++) {
		struct pr_log log;
		int fd = open_log(&log, PR_LOG_INFO, (enum pr_log_format)format);
		char *text;

		pr_log_event(&log, PR_LOG_INFO, "OUTBOX_WORKER_SUMMARY");
		pr_log_real(&log, "ratio", 0.25);
		pr_log_end(&log);
		pr_log_flush(&log);
		text = received(fd);
		CHECK_CONTAINS(text, expected[format]);
		free(text);
		pr_log_release(&log);
		close(fd);
	}
}

static void note(void *context, enum pr_log_level level, const char *event, const char *fields)
{
	char *out = context;

	sprintf(out + strlen(out), "%s|%s|%s\n", pr_log_levels[level], event, fields);
}

TEST(L1_callback_gets_each_complete_event)
{
	char seen[300] = "";
	struct pr_log log;

	pr_log_init_call(&log, PR_LOG_INFO, note, seen);
	log_one(&log, PR_LOG_DEBUG, 1);
	log_one(&log, PR_LOG_INFO, 2);
	CHECK_STR(seen, "info|OUTBOX_WORKER_FETCH|count=2\n");
	seen[0] = '\0';
	pr_log_event(&log, PR_LOG_WARN, "OUTBOX_SINK_BACK");
	pr_log_end(&log);
	pr_log_event(&log, PR_LOG_ERROR, "OUTBOX_STORE_TROUBLE");
	pr_log_str(&log, "error", "no \"way\"");
	pr_log_int(&log, "n", -1);
	pr_log_end(&log);
	CHECK_STR(seen, "warn|OUTBOX_SINK_BACK|\n"
			"error|OUTBOX_STORE_TROUBLE|error=\"no \\\"way\\\"\" n=-1\n");
	pr_log_release(&log);
}
