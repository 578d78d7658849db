/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of exec: beyond the sink contract. */
#include "contract/sink/sink.h"

#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rig rig;

static void begin(const char *url)
{
	rig_init(&rig);
	rig_open(&rig, url);
}

static postroom_delivery run_item(postroom_delivery item)
{
	rig_publish(&rig, &item, 1);
	return item;
}

static postroom_delivery run_one(const char *url)
{
	begin(url);
	return run_item(rig_item(&rig, 1, NULL, NULL));
}

static void check_file(const char *path, const char *expected)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	read_file(path, &text);
	CHECK_STR(text.data, expected);
}

static int read_pid(const char *path)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	int pid;

	/* The file is there before the number is in it. */
	do {
		wait_until_exists(path);
		read_file(path, &text);
		pid = atoi(text.data);
	} while (!pid || !strchr(text.data, '\n'));
	return pid;
}

TEST(K3_the_exit_status_is_the_verdict)
{
	static const struct {
		const char *url;
		postroom_verdict verdict;
		const char *reason;
	} cases[] = {
		{ "exec:exit 0", POSTROOM_DELIVERED, NULL },
		{ "exec:echo bad data >&2; exit 65", POSTROOM_REJECTED,
		  "exit status 65: bad data" },
		{ "exec:exit 126", POSTROOM_UNREACHABLE, "exit status 126" },
		{ "exec:exit 127", POSTROOM_UNREACHABLE, "exit status 127" },
		{ "exec:exit 3", POSTROOM_FAILED, "exit status 3" },
		{ "exec:echo one >&2; echo two >&2; exit 1", POSTROOM_FAILED,
		  "exit status 1: one\ntwo" },
		{ "exec:echo fine >&2; exit 0", POSTROOM_DELIVERED, NULL },
		{ "exec:kill -9 $$", POSTROOM_FAILED, "killed by signal 9" },
		{ "exec:echo help >&2; kill -15 $$", POSTROOM_FAILED, "killed by signal 15: help" },
		{ "exec:exit 255", POSTROOM_FAILED, "exit status 255" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		postroom_delivery item = run_one(cases[i].url);

		CHECK_MSG(item.verdict == cases[i].verdict, "%s: verdict %d, %s", cases[i].url,
			  (int)item.verdict, item.reason ? item.reason : "");
		if (cases[i].reason)
			CHECK_STR(item.reason, cases[i].reason);
		else
			CHECK(item.reason == NULL);
		rig_release(&rig);
	}
}

TEST(K3_missing_command_is_unreachable_with_reason)
{
	postroom_delivery item = run_one("exec:no-such-command-anywhere --flag");

	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item.reason, "exit status 127: ");
	CHECK_CONTAINS(item.reason, "no-such-command-anywhere");
	rig_release(&rig);
}

TEST(K3_command_is_used_verbatim)
{
	run_one("exec:echo '100%25 {topic} ?a=b&c' > out");
	check_file("out", "100%25 {topic} ?a=b&c\n");
	rig_release(&rig);
}

TEST(K3_the_message_is_in_the_environment)
{
	postroom_delivery item;

	unsetenv("POSTROOM_SOAK"); /* make soak has set it for us, not for the command */
	setenv("POSTROOM_ID", "the parent's", 1);
	setenv("POSTROOM_KEY", "the parent's", 1);
	setenv("POSTROOM_DB", "sqlite:mine.db", 1);
	begin("exec:env | grep ^POSTROOM_ | sort > out");
	item = rig_item(&rig, 7, "k 1", NULL);
	item.ns = "billing";
	item.tenant_id = "6f1c2a34-0000-4000-8000-000000000002";
	item.dedupe_key = "6f1c2a34-0000-4000-8000-000000000002/x";
	item.correlation_id = "c-1";
	item.attempt = 3;
	item.fencing_token = 41;
	item.headers = "{\"a\":\"b c\"}";
	CHECK_INT(run_item(item).verdict, POSTROOM_DELIVERED);
	check_file("out", "POSTROOM_ATTEMPT=3\n"
			  "POSTROOM_CLAIM=41\n"
			  "POSTROOM_CONTENT_TYPE=application/json\n"
			  "POSTROOM_CORRELATION_ID=c-1\n"
			  "POSTROOM_DB=sqlite:mine.db\n"
			  "POSTROOM_DEDUPE_KEY=6f1c2a34-0000-4000-8000-000000000002/x\n"
			  "POSTROOM_HEADERS={\"a\":\"b c\"}\n"
			  "POSTROOM_ID=id-7\n"
			  "POSTROOM_KEY=k 1\n"
			  "POSTROOM_NAMESPACE=billing\n"
			  "POSTROOM_TENANT_ID=6f1c2a34-0000-4000-8000-000000000002\n"
			  "POSTROOM_TOPIC=orders.created\n");
	/* A field that the message lacks is empty; it does not keep the value of the message before. */
	CHECK_INT(run_item(rig_item(&rig, 8, NULL, NULL)).verdict, POSTROOM_DELIVERED);
	check_file("out", "POSTROOM_ATTEMPT=1\n"
			  "POSTROOM_CLAIM=0\n"
			  "POSTROOM_CONTENT_TYPE=application/json\n"
			  "POSTROOM_CORRELATION_ID=\n"
			  "POSTROOM_DB=sqlite:mine.db\n"
			  "POSTROOM_DEDUPE_KEY=\n"
			  "POSTROOM_HEADERS={}\n"
			  "POSTROOM_ID=id-8\n"
			  "POSTROOM_KEY=\n"
			  "POSTROOM_NAMESPACE=default\n"
			  "POSTROOM_TENANT_ID=\n"
			  "POSTROOM_TOPIC=orders.created\n");
	rig_release(&rig);

	/* A shell takes one of two variables of the same name, other programs the other one. */
	run_one("exec:tr '\\0' '\\n' < /proc/$$/environ | grep -c ^POSTROOM_ID= > out");
	check_file("out", "1\n");
	rig_release(&rig);
}

static char *repeat(char c, size_t count)
{
	char *text = pr_arena_alloc(&rig.arena, count + 1);

	CHECK(text != NULL);
	memset(text, c, count);
	text[count] = '\0';
	return text;
}

TEST(K3_the_largest_headers_fit_into_the_environment)
{
	postroom_delivery item;
	char *headers;

	begin("exec:printf %s \"$POSTROOM_HEADERS\" | wc -c > out");
	item = rig_item(&rig, 1, NULL, NULL);
	headers = repeat('x', POSTROOM_HEADERS_MAX);
	memcpy(headers, "{\"x\":\"", 6);
	memcpy(headers + POSTROOM_HEADERS_MAX - 2, "\"}", 2);
	item.headers = headers;
	CHECK_INT(run_item(item).verdict, POSTROOM_DELIVERED);
	check_file("out", "65536\n");
	rig_release(&rig);
}

TEST(K3_command_too_long_for_every_message_is_refused_at_open)
{
	size_t len = (size_t)256 * 1024;
	char *url = malloc(len + 1);
	struct pr_sink *sink;
	struct pr_err err;

	CHECK(url != NULL);
	memset(url, ' ', len);
	memcpy(url, "exec:true", 9);
	url[len] = '\0';
	CHECK_INT(pr_sink_open(url, &sink, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "the command is longer than");
	free(url);
}

TEST(R2_message_too_long_for_the_environment_is_rejected)
{
	size_t len = (size_t)256 * 1024;
	char *headers = malloc(len + 1);
	postroom_delivery item;

	CHECK(headers != NULL);
	memset(headers, 'x', len);
	memcpy(headers, "{\"name\":\"", 9);
	memcpy(headers + len - 2, "\"}", 3);
	begin("exec:true");
	item = rig_item(&rig, 1, NULL, NULL);
	item.headers = headers;
	item = run_item(item);
	CHECK_INT(item.verdict, POSTROOM_REJECTED);
	CHECK_CONTAINS(item.reason, "too long");
	CHECK_INT(run_item(rig_item(&rig, 2, NULL, NULL)).verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
	free(headers);
}

TEST(K3_a_command_need_not_read_its_stdin)
{
	postroom_delivery item;

	begin("exec:true");
	item = run_item(rig_item(&rig, 1, NULL, repeat('1', (size_t)4 * 1024 * 1024)));
	CHECK_INT(item.verdict, POSTROOM_DELIVERED);
	rig_release(&rig);

	begin("exec:exec <&-; touch closed; test -e closed");
	item = run_item(rig_item(&rig, 1, NULL, repeat('1', (size_t)4 * 1024 * 1024)));
	CHECK_INT(item.verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
}

TEST(K3_command_receives_end_of_stdin)
{
	begin("exec:cat > out; cat >> out");
	run_item(rig_item(&rig, 1, NULL, "[1,2]"));
	check_file("out", "[1,2]");
	rig_release(&rig);
}

TEST(A3_the_end_of_stderr_is_kept_within_the_limit)
{
	postroom_delivery item;
	size_t chars = 0;

	begin("exec:yes 'é is not the end' | head -c 1000000 >&2; echo; echo the end >&2; exit 3");
	rig.policy.max_error_length = 100;
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_FAILED);
	CHECK(strncmp(item.reason, "exit status 3: …", strlen("exit status 3: …")) == 0);
	CHECK_STR(item.reason + strlen(item.reason) - strlen("the end"), "the end");
	for (const char *c = item.reason; *c; c++)
		chars += ((unsigned char)*c & 0xc0) != 0x80;
	CHECK_INT(chars, 100);
	rig_release(&rig);
}

TEST(A3_reason_has_no_nul_and_no_truncated_character)
{
	postroom_delivery item = run_one("exec:printf 'a\\000b\\377c' >&2; exit 1");

	CHECK_STR(item.reason, "exit status 1: a\xef\xbf\xbd"
			       "b\xef\xbf\xbd"
			       "c");
	rig_release(&rig);
}

TEST(K3_stdout_goes_to_the_log_and_is_bounded)
{
	PR_CLEANUP_BUF struct pr_buf log = { 0 };
	postroom_delivery item = run_one("exec:echo hello there; echo again");

	CHECK_INT(item.verdict, POSTROOM_DELIVERED);
	read_file("log", &log);
	CHECK_CONTAINS(log.data, "EXEC_OUTPUT id=id-1 text=\"hello there\\nagain\"");
	rig_release(&rig);

	item = run_one("exec:head -c 10000000 /dev/zero | tr '\\0' x");
	CHECK_INT(item.verdict, POSTROOM_DELIVERED);
	read_file("log", &log);
	CHECK_CONTAINS(log.data, "dropped_bytes=9995904");
	CHECK(log.len < 10000);
	rig_release(&rig);
}

TEST(K3_command_past_its_timeout_is_ended_with_its_children)
{
	postroom_delivery item;
	int shell, inner;

	begin("exec:echo $$ > new; mv new shell; echo so far >&2; sleep 1000 & echo $! > new; "
	      "mv new inner; wait");
	rig.flight.timeout_ms = 100;
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_FAILED);
	/* A slow machine may end it before it has said anything. */
	CHECK_CONTAINS(item.reason, "timed out after 100ms");
	CHECK(!has_children());
	if (exists("shell")) {
		shell = read_pid("shell");
		CHECK(is_gone(shell));
	}
	if (exists("inner")) {
		inner = read_pid("inner");
		wait_until_gone(inner);
	}
	rig_release(&rig);
}

TEST(K3_a_command_that_ignores_term_is_killed)
{
	postroom_delivery item;

	begin("exec:trap '' TERM; touch ignoring; while :; do sleep 0.1; done");
	rig.flight.timeout_ms = 200;
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_FAILED);
	CHECK_CONTAINS(item.reason, "timed out after 200ms");
	CHECK(!has_children());
	rig_release(&rig);
}

TEST(K3_process_that_ignores_term_is_killed_after_closing_pipes)
{
	postroom_delivery item;

	begin("exec:sh -c 'trap \"\" TERM; echo $$ > inner; exec sleep 1000' > /dev/null 2>&1 & "
	      "until [ -s inner ]; do sleep 0.01; done; touch ready; wait");
	rig.flight.timeout_ms = 1000;
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_FAILED);
	if (exists("ready"))
		wait_until_gone(read_pid("inner"));
	rig_release(&rig);
}

/* The shell dies of TERM at once; what it waits for must still have its time. */
TEST(K3_children_of_a_command_may_clean_up_after_term)
{
	postroom_delivery item;

	begin("exec:(trap 'sleep 0.2; echo bye > bye; exit 0' TERM; touch ready;"
	      " while :; do sleep 0.02; done) > /dev/null 2>&1; true");
	rig.flight.timeout_ms = 12000; /* a part of it is what there is for tidying up */
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_FAILED);
	if (exists("ready"))
		check_file("bye", "bye\n");
	rig_release(&rig);
}

TEST(K3_an_exit_of_0_after_the_timeout_is_still_a_failure)
{
	postroom_delivery item;

	begin("exec:trap 'exit 0' TERM; while :; do sleep 0.02; done");
	rig.flight.timeout_ms = 200;
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_FAILED);
	CHECK_CONTAINS(item.reason, "timed out after 200ms");
	rig_release(&rig);
}

TEST(K3_grandchild_with_open_pipes_does_not_block_sink)
{
	postroom_delivery item = run_one(
		"exec:sleep 1000 & echo $! > inner; echo failed >&2; exit 4");
	int inner = read_pid("inner");

	CHECK_INT(item.verdict, POSTROOM_FAILED);
	CHECK_STR(item.reason, "exit status 4: failed");
	CHECK(!is_gone(inner));
	kill(inner, SIGKILL);
	rig_release(&rig);
}

TEST(K3_endlessly_writing_grandchild_does_not_block_sink)
{
	postroom_delivery item = run_one("exec:yes & echo $! > inner; exit 0");
	int inner = read_pid("inner");

	CHECK_INT(item.verdict, POSTROOM_DELIVERED);
	kill(inner, SIGKILL);
	rig_release(&rig);
}

TEST(K3_several_commands_run_concurrently)
{
	postroom_delivery *items;

	/* None ends before all eight are there. */
	begin("exec:touch here-$POSTROOM_ID; until [ -e here-id-0 -a -e here-id-1 -a -e here-id-2"
	      " -a -e here-id-3 -a -e here-id-4 -a -e here-id-5 -a -e here-id-6 -a -e here-id-7 ];"
	      " do sleep 0.01; done");
	items = rig_items(&rig, 8);
	rig_publish(&rig, items, 8);
	for (int i = 0; i < 8; i++)
		CHECK_INT(items[i].verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
}

TEST(K3_at_most_eight_commands_run_concurrently)
{
	postroom_delivery *items;

	begin("exec:touch run-$POSTROOM_ID; sleep 0.02; n=$(ls -d run-* | wc -l); rm "
	      "run-$POSTROOM_ID;"
	      " [ $n -le 8 ]");
	items = rig_items(&rig, 40);
	rig_publish(&rig, items, 40);
	for (int i = 0; i < 40; i++)
		CHECK_INT(items[i].verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
}

TEST(K3_commands_of_a_key_run_one_at_a_time_in_order)
{
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };
	postroom_delivery *items;
	struct pr_span line;
	int last[2] = { -1, -1 };

	begin("exec:mkdir busy-$POSTROOM_KEY || exit 9; echo $POSTROOM_ID >> ids; sleep 0.01;"
	      " rmdir busy-$POSTROOM_KEY");
	items = rig_items(&rig, 30);
	for (int i = 0; i < 30; i++)
		items[i].key = i % 3 == 0 ? "a" : "b";
	rig_publish(&rig, items, 30);
	for (int i = 0; i < 30; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_DELIVERED, "%d: %s", i, items[i].reason);
	read_file("ids", &ids);
	for (size_t at = 0; next_line(&ids, &at, &line);) {
		int number = atoi(line.data + strlen("id-"));
		int *before = &last[number % 3 == 0];

		CHECK(number > *before);
		*before = number;
	}
	rig_release(&rig);
}

TEST(K3_failed_command_blocks_only_its_own_key)
{
	postroom_delivery *items;

	begin("exec:test $POSTROOM_ID != id-4");
	items = rig_items(&rig, 20);
	for (int i = 0; i < 20; i++)
		items[i].key = i % 4 == 0 ? "a" : i % 4 == 1 ? "b" : NULL;
	/* The same key in another topic or namespace is another key. */
	items[12].topic = "another";
	items[16].ns = "another";
	rig_publish(&rig, items, 20);
	for (int i = 0; i < 20; i++) {
		postroom_verdict expected = POSTROOM_DELIVERED;

		if (i == 4)
			expected = POSTROOM_FAILED;
		else if (i == 8)
			expected = POSTROOM_UNTRIED;
		CHECK_MSG(items[i].verdict == expected, "message %d: verdict %d", i,
			  (int)items[i].verdict);
	}
	rig_release(&rig);
}

TEST(K3_earlier_messages_start_first)
{
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };
	postroom_delivery *items;
	struct pr_span line;
	int place = 0;

	begin("exec:echo $POSTROOM_ID >> ids");
	items = rig_items(&rig, 64);
	rig_publish(&rig, items, 64);
	read_file("ids", &ids);
	for (size_t at = 0; next_line(&ids, &at, &line); place++) {
		int number = atoi(line.data + strlen("id-"));

		/* Seven others may be in flight with it. */
		CHECK_MSG(number < place + 8, "%d at place %d", number, place);
	}
	CHECK_INT(place, 64);
	rig_release(&rig);
}

static void *stop_when_started(void *context)
{
	int64_t grace_ms = *(const int64_t *)context;

	wait_until_exists("started");
	pr_stop_request(&rig.stop, grace_ms);
	write_file("go", "");
	return NULL;
}

static void publish_and_stop(int64_t grace_ms, postroom_delivery *items, size_t count)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, stop_when_started, &grace_ms) == 0);
	rig_publish(&rig, items, count);
	pthread_join(thread, NULL);
	CHECK(!has_children());
}

TEST(D4_stop_finishes_running_commands_and_starts_no_more)
{
	postroom_delivery *items;

	begin("exec:touch started; until [ -e go ]; do sleep 0.01; done");
	items = rig_items(&rig, 20);
	publish_and_stop(AMPLE_MS, items, 20);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	for (int i = 0; i < 20; i++) {
		if (i < 8 && items[i].verdict == POSTROOM_DELIVERED)
			continue;
		CHECK_MSG(items[i].verdict == POSTROOM_UNTRIED, "message %d: %s", i,
			  items[i].reason);
	}
	CHECK_INT(items[8].verdict, POSTROOM_UNTRIED);
	rig_release(&rig);
}

TEST(D4_overdue_stop_kills_running_commands)
{
	postroom_delivery *items;

	begin("exec:trap '' TERM; touch started; sleep 1000; touch too-late");
	items = rig_items(&rig, 20);
	publish_and_stop(0, items, 20);
	CHECK_INT(items[0].verdict, POSTROOM_FAILED);
	CHECK_STR(items[0].reason, "stopped");
	CHECK_INT(items[19].verdict, POSTROOM_UNTRIED);
	CHECK(!exists("too-late"));
	rig_release(&rig);
}

TEST(D4_the_end_of_the_grace_is_noticed_while_waiting)
{
	postroom_delivery *items;

	begin("exec:touch started; sleep 1000");
	items = rig_items(&rig, 1);
	publish_and_stop(50, items, 1);
	CHECK_INT(items[0].verdict, POSTROOM_FAILED);
	CHECK_STR(items[0].reason, "stopped");
	rig_release(&rig);
}

TEST(K3_a_command_inherits_no_descriptors)
{
	PR_CLEANUP_BUF struct pr_buf fds = { 0 };
	struct pr_span line;
	int leak = open("/dev/null", O_RDONLY), number;

	CHECK(leak >= 0 && dup2(leak, 50) == 50);
	/* ls has the directory it reads open too, and the shell its own copy of nothing. */
	run_one("exec:ls /proc/self/fd > out");
	read_file("out", &fds);
	for (size_t at = 0; next_line(&fds, &at, &line);) {
		number = atoi(line.data);
		CHECK_MSG(number <= 3, "descriptor %d is open in the command", number);
	}
	rig_release(&rig);
	close(50);
	close(leak);
}

/*
 * The C library keeps the first two real-time signals for itself: what its
 * posix_spawn() starts, as make's commands are, ignores them, and sigaction()
 * will not change that.
 */
static void reset_internal_signals(void)
{
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} action = { 0 };

	for (int number = 32; number <= 33; number++)
		syscall(SYS_rt_sigaction, number, &action, NULL, sizeof(action.mask));
}

TEST(K3_a_command_has_no_signal_blocked_or_ignored)
{
	sigset_t blocked;

	reset_internal_signals();
	signal(SIGUSR2, SIG_IGN);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	run_one("exec:exec grep -E '^Sig(Blk|Ign)' /proc/self/status > out");
	check_file("out", "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
	rig_release(&rig);
}

TEST(K3_command_has_its_own_process_group)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	int pid, group;

	run_one("exec:exec cat /proc/self/stat > out");
	read_file("out", &text);
	CHECK(sscanf(text.data, "%d (%*[^)]) %*c %*d %d", &pid, &group) == 2);
	CHECK_INT(group, pid);
	rig_release(&rig);
}

TEST(K3_closed_standard_descriptors_are_tolerated)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	postroom_delivery item;

	begin("exec:cat > out; echo seen; echo noted >&2; exit 5");
	item = rig_item(&rig, 1, NULL, "[7]");
	fflush(stdout);
	fcntl(STDOUT_FILENO, F_DUPFD, 200);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	rig.flight.begin_until_us = pr_mono_us() + AMPLE_MS * 1000;
	rig.sink->ops->publish(rig.sink, &item, 1, &rig.flight, &rig.err);
	CHECK(dup2(200, STDOUT_FILENO) == STDOUT_FILENO && dup2(200, STDERR_FILENO) >= 0);
	pr_log_flush(&rig.log);
	CHECK_INT(item.verdict, POSTROOM_FAILED);
	CHECK_STR(item.reason, "exit status 5: noted");
	check_file("out", "[7]");
	read_file("log", &text);
	CHECK_CONTAINS(text.data, "text=seen");
	rig_release(&rig);
}

TEST(K3_command_and_its_children_end_with_the_relay)
{
	pid_t relay = fork();
	int command, inner;

	CHECK(relay >= 0);
	if (relay == 0) {
		run_one("exec:sh -c 'trap \"\" TERM; sleep 1000' & echo $! > inner; echo $$ > "
			"command;"
			" sleep 1000; true");
		_exit(0);
	}
	command = read_pid("command");
	inner = read_pid("inner");
	CHECK(kill(relay, SIGKILL) == 0 && waitpid(relay, NULL, 0) == relay);
	wait_until_gone(command);
	wait_until_gone(inner);
}

TEST(K3_ignored_sigchld_is_a_clear_error)
{
	struct pr_sink *none = NULL;
	struct pr_err err = { 0 };

	signal(SIGCHLD, SIG_IGN);
	CHECK_INT(pr_sink_open("exec:true", &none, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "SIGCHLD");
}

/* As a kernel that does not have the call. */
static void remove_server(int call)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(*filter), .filter = filter };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST(K3_system_without_close_range_is_a_clear_error)
{
	struct pr_sink *none = NULL;
	struct pr_err err = { 0 };
	postroom_delivery item;

	begin("exec:touch ran");
	remove_server(SYS_close_range);
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item.reason, "close_range");
	CHECK(!exists("ran"));
	CHECK_INT(pr_sink_open("exec:true", &none, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "Linux 5.9");
	rig_release(&rig);
}

static void check_outage(postroom_delivery item)
{
	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item.reason, "cannot be started: Too many open files");
}

TEST(K3_lack_of_descriptors_is_an_outage)
{
	struct rlimit limit, none;
	size_t before;

	begin("exec:true");
	before = open_descriptors();
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	/* Room for five of the seven descriptors that it takes to start one. */
	none = limit;
	none.rlim_cur = (rlim_t)open("/dev/null", O_RDONLY | O_CLOEXEC) + 5;
	close((int)none.rlim_cur - 5);
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	check_outage(run_item(rig_item(&rig, 1, NULL, NULL)));
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	CHECK_INT(open_descriptors(), before);
	CHECK(!has_children());
	CHECK_INT(run_item(rig_item(&rig, 1, NULL, NULL)).verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
}
