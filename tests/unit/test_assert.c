/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/assert.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void assert_release(int value);

static void assert_debug(int value)
{
	pr_assert(value == 1);
}

/* The signal that ends a process in which check(value) runs; 0: none. */
static int signal_of(void (*check)(int value), int value)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct rlimit none = { 0 };

		setrlimit(RLIMIT_CORE, &none);
		for (int number = 1; number < NSIG; number++)
			signal(number, SIG_DFL);
		check(value);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(broken_invariant_ends_the_process_in_tests)
{
	CHECK_INT(signal_of(assert_debug, 1), 0);
	CHECK_INT(signal_of(assert_debug, 2), SIGABRT);
}

TEST(broken_invariant_ends_the_process_in_release_builds)
{
	CHECK_INT(signal_of(assert_release, 1), 0);
	CHECK(signal_of(assert_release, 2) != 0);
}
