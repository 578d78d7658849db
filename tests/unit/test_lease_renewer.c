/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/time.h"
#include "sink/sink.h"

static struct {
	struct pr_lease_renewer renewer;
	int64_t lease_us;
	int64_t again_us;
	int renewals;
} heartbeat;

static void renew(struct pr_lease_renewer *renewer)
{
	CHECK(renewer == &heartbeat.renewer);
	CHECK(pr_mono_us() >= renewer->next_us);
	heartbeat.renewals++;
	renewer->until_us = pr_mono_us() + heartbeat.lease_us;
	renewer->next_us = pr_mono_us() + heartbeat.again_us;
}

/* Its lease has so much left. */
static struct pr_flight begin(int64_t left_us, int64_t lease_us, int64_t again_us)
{
	heartbeat.renewer = (struct pr_lease_renewer){ renew, pr_mono_us(),
						       pr_mono_us() + left_us };
	heartbeat.lease_us = lease_us;
	heartbeat.again_us = again_us;
	return (struct pr_flight){ .renewer = &heartbeat.renewer };
}

TEST(A5_wait_for_running_messages_renews_their_lease)
{
	struct pr_flight flight = begin(60000000, 60000000, 1000);
	struct pollfd own;

	/* Without an end of its own: each wait ends when the next renewal is due. */
	while (heartbeat.renewals < 3)
		pr_flight_poll(&flight, &own, 1, INT64_MAX);
	CHECK(!pr_flight_lost(&flight));
	/* And none comes before it is due. */
	heartbeat.renewer.next_us = INT64_MAX;
	CHECK_INT(pr_flight_wait(&flight, &own, pr_mono_us()), 0);
	CHECK_INT(heartbeat.renewals, 3);
}

TEST(A5_wait_ends_if_lease_cannot_be_renewed)
{
	/* Not a second time: the lease cannot expire before the first renewal, however slow the machine. */
	struct pr_flight flight = begin(60000000, 20000, 1000000000);
	struct pollfd own;

	while (!pr_flight_lost(&flight))
		pr_flight_poll(&flight, &own, 1, INT64_MAX);
	CHECK_INT(heartbeat.renewals, 1);
}

static void lose(struct pr_lease_renewer *renewer)
{
	renewer->until_us = 0;
}

TEST(A5_wait_does_not_begin_if_lease_is_lost)
{
	struct pr_flight flight = begin(60000000, 0, 0);
	struct pollfd own;

	heartbeat.renewer.renew = lose;
	CHECK_INT(pr_flight_wait(&flight, &own, INT64_MAX), 0);
	CHECK(pr_flight_lost(&flight));
	/* Once that is known there may be something else to wait for. */
	CHECK(pr_flight_wait(&flight, &own, INT64_MAX) > 0);
}

TEST(A5_expired_lease_is_not_renewed)
{
	struct pr_flight flight = begin(0, 60000000, 0);
	struct pollfd own;

	pr_flight_poll(&flight, &own, 1, pr_mono_us());
	pr_flight_wait(&flight, &own, pr_mono_us());
	CHECK_INT(heartbeat.renewals, 0);
	CHECK(pr_flight_lost(&flight));
}

TEST(A5_flight_shorter_than_its_lease_needs_no_renewal)
{
	struct pr_flight flight = { 0 };

	CHECK(!pr_flight_lost(&flight));
}

TEST(D6_unordered_key_blocks_nothing)
{
	postroom_delivery items[] = {
		{ .ns = "n", .topic = "t", .key = "k" },
		{ .ns = "n", .topic = "t", .key = "k", .unordered = 1 },
		{ .ns = "n", .topic = "t", .key = "k" },
		{ .ns = "n", .topic = "t", .key = "k", .unordered = 1 },
	};
	struct pr_arena arena = { 0 };
	const size_t *before = pr_sink_order(items, 4, &arena);

	CHECK(before);
	CHECK(before[0] == PR_SINK_NONE);
	CHECK(before[1] == PR_SINK_NONE);
	CHECK_INT(before[2], 0);
	CHECK(before[3] == PR_SINK_NONE);
	pr_arena_release(&arena);
}
