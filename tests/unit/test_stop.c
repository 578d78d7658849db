/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/stop.h"
#include "base/time.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#define FOR_EVER_MS ((int64_t)1000 * 3600 * 24)

static struct pr_stop stop;

static bool readable(void)
{
	struct pollfd fd = { .fd = stop.fd, .events = POLLIN };

	return poll(&fd, 1, 0) == 1;
}

TEST(D4_stop_is_initially_not_requested)
{
	CHECK_INT(pr_stop_init(&stop, NULL), POSTROOM_OK);
	CHECK(!pr_stop_requested(&stop) && !pr_stop_overdue(&stop) && !readable());
	CHECK(!pr_stop_wait(&stop, 0));
	CHECK(!pr_stop_wait(&stop, 5));
	CHECK(!pr_stop_requested(NULL) && !pr_stop_overdue(NULL));

	pr_stop_request(&stop, FOR_EVER_MS);
	CHECK(pr_stop_requested(&stop) && !pr_stop_overdue(&stop) && readable());
	CHECK(pr_stop_wait(&stop, FOR_EVER_MS));
	CHECK(readable());
	pr_stop_release(&stop);
}

TEST(D4_a_later_request_does_not_prolong_the_grace)
{
	CHECK_INT(pr_stop_init(&stop, NULL), POSTROOM_OK);
	pr_stop_request(&stop, 0);
	pr_stop_request(&stop, FOR_EVER_MS);
	CHECK(pr_stop_overdue(&stop));
	pr_stop_release(&stop);
}

static void *request(void *unused)
{
	pr_stop_request(&stop, FOR_EVER_MS);
	return unused;
}

TEST(D4_a_wait_ends_when_another_thread_requests)
{
	pthread_t thread;

	CHECK_INT(pr_stop_init(&stop, NULL), POSTROOM_OK);
	CHECK(pthread_create(&thread, NULL, request, NULL) == 0);
	CHECK(pr_stop_wait(&stop, FOR_EVER_MS));
	CHECK(pthread_join(thread, NULL) == 0);
	pr_stop_release(&stop);
}

static void on_signal(int signal_number)
{
	(void)signal_number;
	pr_stop_request(&stop, FOR_EVER_MS);
}

TEST(D4_a_wait_ends_when_a_signal_handler_requests)
{
	CHECK_INT(pr_stop_init(&stop, NULL), POSTROOM_OK);
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
	CHECK(pr_stop_wait(&stop, FOR_EVER_MS));
	pr_stop_release(&stop);
}

TEST(D7_stop_request_applies_to_children_not_to_parents)
{
	struct pr_stop parent;

	CHECK_INT(pr_stop_init(&parent, NULL), POSTROOM_OK);
	CHECK_INT(pr_stop_init_under(&stop, &parent, NULL), POSTROOM_OK);
	CHECK(!pr_stop_requested(&stop) && !readable());
	CHECK_INT(pr_stop_event_fd(&stop), stop.fd);
	pr_stop_request(&stop, FOR_EVER_MS);
	CHECK(pr_stop_requested(&stop) && readable() && pr_stop_wait(&stop, FOR_EVER_MS));
	CHECK(!pr_stop_requested(&parent));
	/* The shorter grace counts. */
	CHECK(!pr_stop_overdue(&stop));
	CHECK_INT(pr_stop_event_fd(&stop), parent.fd);
	pr_stop_request(&parent, 0);
	CHECK(pr_stop_overdue(&stop));
	CHECK_INT(pr_stop_event_fd(&stop), -1);
	pr_stop_release(&stop);

	CHECK_INT(pr_stop_init_under(&stop, &parent, NULL), POSTROOM_OK);
	CHECK(pr_stop_requested(&stop) && readable() && pr_stop_wait(&stop, FOR_EVER_MS));
	pr_stop_release(&stop);
	pr_stop_release(&parent);
}
