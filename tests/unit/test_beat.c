/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/time.h"
#include "sink/sink.h"

static struct {
	struct pr_beat beat;
	int64_t lease_us;
	int64_t again_us;
	int renewals;
} heart;

static void renew(struct pr_beat *beat)
{
	CHECK(beat == &heart.beat);
	CHECK(pr_mono_us() >= beat->next_us);
	heart.renewals++;
	beat->until_us = pr_mono_us() + heart.lease_us;
	beat->next_us = pr_mono_us() + heart.again_us;
}

/* Its lease has so much left. */
static struct pr_flight begin(int64_t left_us, int64_t lease_us, int64_t again_us)
{
	heart.beat = (struct pr_beat){ renew, pr_mono_us(), pr_mono_us() + left_us };
	heart.lease_us = lease_us;
	heart.again_us = again_us;
	return (struct pr_flight){ .beat = &heart.beat };
}

TEST(A5_who_waits_for_what_is_under_way_renews_its_lease_on_the_way)
{
	struct pr_flight flight = begin(60000000, 60000000, 1000);
	struct pollfd own;

	/* Without an end of its own: each wait ends when the next renewal is due. */
	while (heart.renewals < 3)
		pr_flight_poll(&flight, &own, 1, INT64_MAX);
	CHECK(!pr_flight_lost(&flight));
	/* And none comes before it is due. */
	heart.beat.next_us = INT64_MAX;
	CHECK_INT(pr_flight_wait(&flight, &own, pr_mono_us()), 0);
	CHECK_INT(heart.renewals, 3);
}

TEST(A5_a_wait_ends_with_a_lease_that_can_not_be_renewed)
{
	/* Not a second time: before the first the lease can not run out, however slow all is. */
	struct pr_flight flight = begin(60000000, 20000, 1000000000);
	struct pollfd own;

	while (!pr_flight_lost(&flight))
		pr_flight_poll(&flight, &own, 1, INT64_MAX);
	CHECK_INT(heart.renewals, 1);
}

static void lose(struct pr_beat *beat)
{
	beat->until_us = 0;
}

TEST(A5_a_wait_does_not_begin_when_the_lease_turns_out_to_be_lost)
{
	struct pr_flight flight = begin(60000000, 0, 0);
	struct pollfd own;

	heart.beat.renew = lose;
	CHECK_INT(pr_flight_wait(&flight, &own, INT64_MAX), 0);
	CHECK(pr_flight_lost(&flight));
	/* Once that is known there may be something else to wait for. */
	CHECK(pr_flight_wait(&flight, &own, INT64_MAX) > 0);
}

TEST(A5_a_lease_that_has_run_out_is_not_renewed)
{
	struct pr_flight flight = begin(0, 60000000, 0);
	struct pollfd own;

	pr_flight_poll(&flight, &own, 1, pr_mono_us());
	pr_flight_wait(&flight, &own, pr_mono_us());
	CHECK_INT(heart.renewals, 0);
	CHECK(pr_flight_lost(&flight));
}

TEST(A5_a_flight_that_its_lease_outlasts_has_nothing_to_lose)
{
	struct pr_flight flight = { 0 };

	CHECK(!pr_flight_lost(&flight));
}

TEST(D6_a_key_that_orders_nothing_puts_nobody_behind_another)
{
	postroom_delivery items[] = {
		{ .ns = "n", .topic = "t", .key = "k" },
		{ .ns = "n", .topic = "t", .key = "k", .loose = 1 },
		{ .ns = "n", .topic = "t", .key = "k" },
		{ .ns = "n", .topic = "t", .key = "k", .loose = 1 },
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
