/* SPDX-License-Identifier: Apache-2.0 */
/* A message that ends the program which publishes it. */
#include "library/relay.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void die_of_poison(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (strcmp(postroom_delivery_payload(item, NULL), "\"poison\"") == 0) {
		signal(SIGABRT, SIG_DFL);
		abort();
	}
	deliver(item, index, flight);
}

/* One life of the program: true when it came to a good end. */
static bool live(void)
{
	int status = 0;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		rig.silent = true;
		DRAIN(die_of_poison, .workers = 1, .max_attempts = 3, .lease_ms = 6000);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) || WTERMSIG(status) == SIGABRT);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(C5_message_that_aborts_its_program_is_dead_lettered_alone)
{
	int deaths = 0;

	for (int i = 0; i < 5; i++)
		PUT(.topic = "t", .payload = "1");
	PUT(.topic = "t", .payload = "\"poison\"");
	for (int i = 0; i < 5; i++)
		PUT(.topic = "t", .payload = "1");
	while (!live())
		CHECK(++deaths < 10);
	CHECK_INT(deaths, 3);
	CHECK_INT(rows("delivered"), 10);
	CHECK_INT(rows("dead"), 1);
	CHECK_STR(text(app, "SELECT payload FROM postroom_messages WHERE status = 'dead'"),
		  "\"poison\"");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_messages WHERE status = 'dead'"), 3);
}
