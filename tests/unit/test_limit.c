/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/time.h"
#include "relay/limit.h"

#define S 1000000LL
#define START (1000003 * S)

static struct pr_limit limit;

TEST(D8_rate_limit_allows_a_burst_of_one_second)
{
	int64_t taken = 0, wait_ms, now_us = START;

	pr_limit_init(&limit, 100, 0, 2, START);
	for (; now_us < START + 60 * S; now_us += 7919)
		taken += pr_limit_take(&limit, 500, now_us, &wait_ms);
	CHECK_MSG(taken <= 60 * 100 + 100, "%d", (int)taken);
	CHECK_MSG(taken >= 60 * 100, "%d", (int)taken);
	pr_limit_release(&limit);
}

TEST(D8_idle_time_saves_up_one_second_of_rate)
{
	int64_t wait_ms = 0;

	pr_limit_init(&limit, 100, 0, 2, START);
	CHECK_INT(pr_limit_take(&limit, 500, START + 3600 * S, &wait_ms), 100);
	CHECK_INT(pr_limit_take(&limit, 500, START + 3600 * S, &wait_ms), 0);
	/* Not message by message: a tenth of a second's worth. */
	CHECK_INT(wait_ms, 101);
	CHECK_INT(pr_limit_take(&limit, 500, START + 3600 * S + wait_ms * 1000, &wait_ms), 10);
	pr_limit_release(&limit);
}

TEST(D8_unpublished_message_does_not_count_for_the_rate)
{
	int64_t wait_ms;

	pr_limit_init(&limit, 100, 0, 2, START);
	CHECK_INT(pr_limit_take(&limit, 500, START, &wait_ms), 100);
	pr_limit_refund(&limit, 70);
	CHECK_INT(pr_limit_take(&limit, 60, START, &wait_ms), 60);
	pr_limit_refund(&limit, 100000);
	CHECK_INT(pr_limit_take(&limit, 500, START, &wait_ms), 100);
	pr_limit_release(&limit);
}

TEST(D8_slow_rate_permits_one_message_when_due)
{
	int64_t wait_ms = 0, taken = 0, now_us = START;

	pr_limit_init(&limit, 0.1, 0, 2, START);
	CHECK_INT(pr_limit_take(&limit, 500, now_us, &wait_ms), 1);
	for (int i = 0; i < 20; i++) {
		taken += pr_limit_take(&limit, 500, now_us, &wait_ms);
		CHECK(wait_ms > 0 && wait_ms <= 10001);
		now_us += wait_ms * 1000;
	}
	/* A worker that waits for the returned time takes one after each wait. */
	CHECK_INT(taken, 19);
	pr_limit_release(&limit);
}

TEST(D8_no_rate_means_no_limit)
{
	int64_t wait_ms, part = 7;

	pr_limit_init(&limit, 0, 0, 2, START);
	for (int i = 0; i < 100; i++)
		CHECK_INT(pr_limit_take(&limit, 500, START, &wait_ms), 500);
	CHECK(pr_limit_enter(&limit, &part));
	CHECK_INT(part, 0);
	pr_limit_release(&limit);
}

TEST(D8_workers_share_the_concurrency)
{
	int64_t parts[3];

	pr_limit_init(&limit, 0, 5, 2, START);
	CHECK(pr_limit_enter(&limit, &parts[0]));
	CHECK(pr_limit_enter(&limit, &parts[1]));
	CHECK_INT(parts[0] + parts[1], 5);
	CHECK(!pr_limit_enter(&limit, &parts[2]));
	pr_limit_leave(&limit, parts[0]);
	CHECK(pr_limit_enter(&limit, &parts[2]));
	CHECK_INT(parts[2], parts[0]);
	/* One alone may have all of it for a while. */
	CHECK_INT(pr_limit_widen(&limit, 500), 0);
	pr_limit_leave(&limit, parts[1]);
	CHECK_INT(pr_limit_widen(&limit, 500), parts[1]);
	CHECK(!pr_limit_enter(&limit, &parts[0]));
	pr_limit_leave(&limit, parts[1]);
	CHECK(pr_limit_enter(&limit, &parts[0]));
	pr_limit_release(&limit);

	/* Fewer than workers: one each, and the rest of them wait. */
	pr_limit_init(&limit, 0, 1, 4, START);
	CHECK(pr_limit_enter(&limit, &parts[0]));
	CHECK_INT(parts[0], 1);
	CHECK(!pr_limit_enter(&limit, &parts[1]));
	pr_limit_release(&limit);
}

TEST(D8_batch_size_adapts_to_the_speed_of_the_sink)
{
	int32_t next = 500;

	next = pr_limit_adapt(next, 500, next, 5);
	CHECK_INT(next, 5);
	CHECK_INT(pr_limit_adapt(next, 500, next, 1), 1);
	CHECK_INT(pr_limit_adapt(next, 500, next, 0), 1);
	/* A short one says nothing about longer ones. */
	CHECK_INT(pr_limit_adapt(8, 500, 3, 3), 8);
	for (int i = 0; i < 20; i++)
		next = pr_limit_adapt(next, 500, next, next);
	CHECK_INT(next, 500);
}

TEST(D8_batches_are_never_smaller_than_the_concurrency)
{
	int32_t next = 500;

	/* Eight at once, of which each outlasts the slice: no time makes them fewer. */
	for (int i = 0; i < 20; i++) {
		next = pr_limit_adapt(next, 500, next, next < 8 ? next : 8);
		CHECK_MSG(next == 8 || next == 16, "%d", (int)next);
	}
	next = 1;
	for (int i = 0; i < 3; i++)
		next = pr_limit_adapt(next, 500, next, next < 8 ? next : 8);
	CHECK_INT(next, 8);
}

TEST(D8_worker_takes_no_more_concurrency_than_it_has_messages)
{
	int64_t part, other;

	pr_limit_init(&limit, 0, 8, 4, START);
	CHECK(pr_limit_enter(&limit, &part));
	CHECK_INT(part, 2);
	CHECK_INT(pr_limit_widen(&limit, 1 - part), 0);
	CHECK_INT(pr_limit_widen(&limit, 5 - part), 3);
	/* The others have what is left. */
	CHECK(pr_limit_enter(&limit, &other));
	CHECK_INT(other, 2);
	CHECK_INT(pr_limit_widen(&limit, 100), 1);
	pr_limit_release(&limit);
}

TEST(G1_valid_rate_is_parsed_and_others_are_refused)
{
	static const char *const wrong[] = {
		"",	 "/s",	"0",	"-1",	 "+1",	  "1/d",	 "1 s",
		"1e9/s", "nan", "0x10", "1.2.3", "0.0/s", "99999999999", "0.0000000000000001"
	};
	struct pr_err err = { 0 };
	double rate = 0;

	CHECK_INT(pr_rate_parse("500/s", &rate, &err), POSTROOM_OK);
	CHECK_INT((int64_t)rate, 500);
	CHECK_INT(pr_rate_parse("30/m", &rate, &err), POSTROOM_OK);
	CHECK_INT((int64_t)(rate * 10), 5);
	CHECK_INT(pr_rate_parse("7200/h", &rate, &err), POSTROOM_OK);
	CHECK_INT((int64_t)rate, 2);
	CHECK_INT(pr_rate_parse("12.5", &rate, &err), POSTROOM_OK);
	CHECK_INT((int64_t)(rate * 2), 25);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		CHECK_MSG(pr_rate_parse(wrong[i], &rate, &err) == POSTROOM_INVALID, "%s", wrong[i]);
	CHECK_CONTAINS(err.text, "30/m");
}

TEST(D7_limits_change_while_messages_are_in_flight)
{
	int64_t part, other, wait_ms = 0;

	pr_limit_init(&limit, 0, 0, 2, 1000000);
	CHECK(pr_limit_enter(&limit, &part));
	CHECK_INT(part, 0);
	CHECK_INT(pr_limit_widen(&limit, 500), 0);
	CHECK_INT(pr_limit_take(&limit, 500, 1000000, &wait_ms), 500);
	pr_limit_change(&limit, 10, 8, 2);
	CHECK(pr_limit_enter(&limit, &part));
	CHECK_INT(part, 4);
	CHECK_INT(pr_limit_widen(&limit, 500), 4);
	CHECK(pr_limit_take(&limit, 500, 2000000, &wait_ms) <= 10);
	/* Lowered below the number in flight: no batch enters until enough have left. */
	pr_limit_change(&limit, 10, 2, 2);
	CHECK(!pr_limit_enter(&limit, &other));
	CHECK_INT(other, 0);
	CHECK_INT(pr_limit_widen(&limit, 500), 0);
	pr_limit_leave(&limit, 8);
	CHECK(pr_limit_enter(&limit, &other));
	CHECK_INT(other, 1);
	pr_limit_release(&limit);
}
