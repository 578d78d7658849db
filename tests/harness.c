/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A hung test is a failed one; the longest takes seconds, so this is no measure of speed. */
#define HUNG_AFTER_SECONDS 300

static struct test *tests;

void test_register(struct test *test)
{
	struct test **at = &tests;

	while (*at)
		at = &(*at)->next;
	*at = test;
}

void test_fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	printf("# %s:%d: ", file, line);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static bool run(const struct test *test)
{
	char scratch[] = "/tmp/postroom-test.XXXXXX";
	int status = 0;
	pid_t pid;

	if (!mkdtemp(scratch)) {
		perror("mkdtemp");
		exit(1);
	}
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (chdir(scratch) < 0)
			test_fail(__FILE__, __LINE__, "chdir %s: %s", scratch, strerror(errno));
		alarm(HUNG_AFTER_SECONDS);
		test->run();
		/* exit(), not _exit(): the leak check of the sanitizer runs at exit. */
		exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	nftw(scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	if (WIFSIGNALED(status))
		printf("# killed by signal %d (%s)\n", WTERMSIG(status),
		       strsignal(WTERMSIG(status)));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool selected(const struct test *test, char **words)
{
	if (!*words)
		return true;
	for (; *words; words++) {
		if (strstr(test->name, *words))
			return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0;

	(void)argc;
	for (struct test *test = tests; test; test = test->next) {
		if (!selected(test, argv + 1))
			continue;
		if (run(test)) {
			passed++;
			printf("ok %s\n", test->name);
		} else {
			failed++;
			printf("not ok %s\n", test->name);
		}
		fflush(stdout);
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
