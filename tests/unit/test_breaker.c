/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "relay/breaker.h"

#include <string.h>

#define S 1000000LL
#define START (1000003 * S) /* no round number, and long after the machine began */
#define PAUSE (2 * S)
#define LONGEST (30 * S)

static struct pr_breaker breaker;
static postroom_delivery items[200];
static int64_t probe; /* the last ticket */

enum { DELIVERED = POSTROOM_DELIVERED, FAILED = POSTROOM_FAILED, AWAY = POSTROOM_UNREACHABLE };

/* A call with messages first, first + 1, … of the same verdict. */
static struct pr_breaker_results call(int64_t first, size_t count, int verdict)
{
	for (size_t i = 0; i < count; i++)
		items[i] = (postroom_delivery){ .seq = first + (int64_t)i,
						.verdict = (postroom_verdict)verdict,
						.reason = "no room" };
	return (struct pr_breaker_results){
		.items = items, .count = count, .server = true, .pause_us = PAUSE
	};
}

static enum pr_breaker_change hear(int64_t first, size_t count, int verdict)
{
	struct pr_breaker_results results = call(first, count, verdict);

	return pr_breaker_record(&breaker, START, &results);
}

static enum pr_breaker_change hear_ticket(int64_t ticket, int64_t seq, int verdict, int64_t now_us)
{
	struct pr_breaker_results results = call(seq, 1, verdict);

	results.probe = ticket;
	return pr_breaker_record(&breaker, now_us, &results);
}

static enum pr_breaker_change hear_probe(int64_t seq, int verdict, int64_t now_us)
{
	return hear_ticket(probe, seq, verdict, now_us);
}

static enum pr_breaker_permission ask(int64_t now_us)
{
	int64_t wait_ms;

	return pr_breaker_check(&breaker, now_us, LONGEST, &probe, &wait_ms);
}

static int given_back(size_t count)
{
	int given = 0;

	for (size_t i = 0; i < count; i++)
		given += items[i].verdict == POSTROOM_UNREACHABLE;
	return given;
}

TEST(D5_one_unreachable_verdict_opens_the_breaker)
{
	char reason[300];

	pr_breaker_init(&breaker);
	CHECK_INT(ask(START), PR_BREAKER_CLOSED);
	CHECK_INT(hear(1, 1, AWAY), PR_BREAKER_OPENED);
	CHECK_INT(hear(2, 1, AWAY), PR_BREAKER_UNCHANGED);
	CHECK_INT(ask(START), PR_BREAKER_OPEN);
	CHECK_INT(pr_breaker_open_ms(&breaker, START + 7 * S, reason), 7001);
	CHECK_STR(reason, "no room");
	pr_breaker_release(&breaker);
}

TEST(D5_server_that_fails_a_whole_batch_is_an_outage_and_uses_no_attempt)
{
	pr_breaker_init(&breaker);
	CHECK_INT(hear(1, 20, FAILED), PR_BREAKER_OPENED);
	CHECK_INT(given_back(20), 20);
	pr_breaker_release(&breaker);
}

TEST(D5_consecutive_failures_add_up_over_calls)
{
	pr_breaker_init(&breaker);
	for (int64_t seq = 1; seq < PR_BREAKER_RUN; seq++) {
		CHECK_INT(hear(seq, 1, FAILED), PR_BREAKER_UNCHANGED);
		CHECK_INT(given_back(1), 0);
	}
	CHECK_INT(hear(PR_BREAKER_RUN, 1, FAILED), PR_BREAKER_OPENED);
	CHECK_INT(given_back(1), 1);
	pr_breaker_release(&breaker);
}

TEST(D5_failures_settled_before_opening_are_refunded_with_next_failure)
{
	pr_breaker_init(&breaker);
	CHECK_INT(hear(1, 2, FAILED), PR_BREAKER_UNCHANGED);
	CHECK_INT(hear(1, 1, FAILED), PR_BREAKER_UNCHANGED);
	/* Two attempts of 1 and one of 2 are to be refunded; 3 and 4 are in flight. */
	CHECK_INT(hear(3, 2, FAILED), PR_BREAKER_OPENED);
	CHECK_INT(given_back(2), 2);
	CHECK_INT(hear(9, 1, DELIVERED), PR_BREAKER_RECOVERED);
	hear(1, 4, FAILED);
	CHECK_INT(given_back(4), 2);
	CHECK_INT(items[2].verdict, POSTROOM_FAILED);
	CHECK_INT(hear(9, 1, DELIVERED), PR_BREAKER_UNCHANGED);
	hear(1, 4, FAILED);
	CHECK_INT(given_back(4), 1);
	CHECK_INT(items[0].verdict, POSTROOM_UNREACHABLE);
	CHECK_INT(hear(9, 1, DELIVERED), PR_BREAKER_UNCHANGED);
	hear(1, 4, FAILED);
	CHECK_INT(given_back(4), 0);
	pr_breaker_release(&breaker);
}

TEST(R1_message_that_fails_alone_is_not_an_outage)
{
	pr_breaker_init(&breaker);
	for (int i = 0; i < 100; i++)
		CHECK_INT(hear(1, 1, FAILED), PR_BREAKER_UNCHANGED);
	CHECK_INT(given_back(1), 0);
	/* Until another one fails too: then all of it was one. */
	CHECK_INT(hear(2, 1, FAILED), PR_BREAKER_OPENED);
	pr_breaker_release(&breaker);
}

TEST(R1_a_success_between_failures_keeps_their_count)
{
	pr_breaker_init(&breaker);
	for (int64_t seq = 1; seq < 50; seq++) {
		CHECK_INT(hear(seq, 4, FAILED), PR_BREAKER_UNCHANGED);
		CHECK_INT(given_back(4), 0);
		CHECK_INT(hear(99, 1, seq % 2 ? DELIVERED : POSTROOM_REJECTED),
			  PR_BREAKER_UNCHANGED);
	}
	pr_breaker_release(&breaker);
}

TEST(R1_batch_with_one_success_is_not_an_outage)
{
	struct pr_breaker_results results = call(1, 20, FAILED);

	pr_breaker_init(&breaker);
	items[7].verdict = POSTROOM_DELIVERED;
	CHECK_INT(pr_breaker_record(&breaker, START, &results), PR_BREAKER_UNCHANGED);
	CHECK_INT(given_back(20), 0);
	pr_breaker_release(&breaker);
}

/* All that are left fail again, in calls of so many; who has failed ten times is dead. */
static size_t fail_poisoned(int *attempts, size_t poisoned, size_t in_a_call)
{
	size_t left = 0, count = 0;

	for (size_t i = 0; i < poisoned; i++) {
		if (attempts[i] < 10)
			items[count++] = (postroom_delivery){ .seq = (int64_t)i + 1,
							      .verdict = POSTROOM_FAILED };
		if (count > 0 && (count == in_a_call || i == poisoned - 1)) {
			struct pr_breaker_results results = {
				.items = items, .count = count, .server = true, .pause_us = PAUSE
			};

			pr_breaker_record(&breaker, START, &results);
			for (; count > 0; count--)
				attempts[items[count - 1].seq - 1] += items[count - 1].verdict ==
								      POSTROOM_FAILED;
		}
	}
	for (size_t i = 0; i < poisoned; i++)
		left += attempts[i] < 10;
	return left;
}

static void let_die(size_t poisoned, size_t in_a_call)
{
	int attempts[200] = { 0 };
	int successes = 0;

	pr_breaker_init(&breaker);
	while (fail_poisoned(attempts, poisoned, in_a_call) > 0) {
		/* A good one comes only when they have made it look like an outage. */
		if (pr_breaker_is_open(&breaker))
			hear(1000 + successes++, 1, DELIVERED);
		CHECK_MSG(successes < 200, "%d poisoned, %d in a call", (int)poisoned,
			  (int)in_a_call);
	}
	pr_breaker_release(&breaker);
}

TEST(R1_poison_messages_of_a_quiet_server_become_dead_letters)
{
	for (size_t poisoned = 2; poisoned <= 20; poisoned++) {
		for (size_t in_a_call = 1; in_a_call <= poisoned; in_a_call++)
			let_die(poisoned, in_a_call);
	}
	/* More than are remembered. */
	for (size_t in_a_call = 10; in_a_call <= 200; in_a_call += 10)
		let_die(200, in_a_call);
}

TEST(R1_message_that_fails_while_another_probe_succeeds_counts_its_next_failure)
{
	pr_breaker_init(&breaker);
	CHECK_INT(hear(1, 5, FAILED), PR_BREAKER_OPENED);
	CHECK_INT(ask(START + PAUSE), PR_BREAKER_PROBE);
	CHECK_INT(hear_probe(6, FAILED, START + PAUSE), PR_BREAKER_UNCHANGED);
	CHECK_INT(given_back(1), 1);
	CHECK_INT(hear(9, 1, DELIVERED), PR_BREAKER_RECOVERED);
	/* Nor does that make an outage again; once each. */
	CHECK_INT(hear(1, 6, FAILED), PR_BREAKER_UNCHANGED);
	CHECK_INT(given_back(6), 0);
	CHECK_INT(hear(1, 6, FAILED), PR_BREAKER_OPENED);
	CHECK_INT(given_back(6), 6);
	pr_breaker_release(&breaker);
}

TEST(D5_failure_is_refunded_once)
{
	pr_breaker_init(&breaker);
	for (int64_t seq = 1; seq < PR_BREAKER_RUN; seq++)
		hear(seq, 1, FAILED);
	CHECK_INT(hear(5, 1, FAILED), PR_BREAKER_OPENED);
	CHECK_INT(hear(9, 1, DELIVERED), PR_BREAKER_RECOVERED);
	/* A refunded failure counts as a consecutive one, but cannot be refunded again. */
	for (int64_t seq = 1; seq < PR_BREAKER_RUN; seq++) {
		CHECK_INT(hear(seq, 1, FAILED), PR_BREAKER_UNCHANGED);
		CHECK_INT(given_back(1), 1);
	}
	CHECK_INT(hear(6, 1, FAILED), PR_BREAKER_OPENED);
	CHECK_INT(hear(9, 1, DELIVERED), PR_BREAKER_RECOVERED);
	for (int64_t seq = 1; seq < PR_BREAKER_RUN; seq++) {
		hear(seq, 1, FAILED);
		CHECK_INT(given_back(1), 0);
	}
	pr_breaker_release(&breaker);
}

TEST(K3_failed_commands_are_not_an_outage)
{
	struct pr_breaker_results results = call(1, 20, FAILED);

	pr_breaker_init(&breaker);
	results.server = false;
	CHECK_INT(pr_breaker_record(&breaker, START, &results), PR_BREAKER_UNCHANGED);
	CHECK_INT(given_back(20), 0);
	CHECK_INT(ask(START), PR_BREAKER_CLOSED);
	pr_breaker_release(&breaker);
}

TEST(D5_breaker_permits_one_probe_per_pause)
{
	int64_t now_us = START, wait_ms = 0;

	pr_breaker_init(&breaker);
	hear(1, 1, AWAY);
	for (int i = 0; i < 10; i++) {
		CHECK_INT(pr_breaker_check(&breaker, now_us + S, LONGEST, &probe, &wait_ms),
			  PR_BREAKER_OPEN);
		CHECK_INT(wait_ms, 1000);
		now_us += PAUSE;
		CHECK_INT(ask(now_us), PR_BREAKER_PROBE);
		/* A slow probe: no other worker probes meanwhile, nor do other results count. */
		now_us += 5 * S;
		CHECK_INT(ask(now_us), PR_BREAKER_OPEN);
		hear(7, 1, FAILED);
		CHECK_INT(given_back(1), 1);
		CHECK_INT(ask(now_us), PR_BREAKER_OPEN);
		CHECK_INT(hear_probe(1, i % 2 ? AWAY : FAILED, now_us), PR_BREAKER_UNCHANGED);
		CHECK_INT(given_back(1), 1);
	}
	CHECK_INT(hear_probe(1, DELIVERED, now_us), PR_BREAKER_RECOVERED);
	CHECK_INT(ask(now_us), PR_BREAKER_CLOSED);
	pr_breaker_release(&breaker);
}

/* The same, with the server's Retry-After. */
static enum pr_breaker_change hear_later(int64_t ticket, size_t count, int64_t retry_in_ms)
{
	struct pr_breaker_results results = call(1, count, FAILED);

	results.probe = ticket;
	for (size_t i = 0; i < count; i++)
		items[i].retry_in_ms = -1;
	items[count / 2].retry_in_ms = retry_in_ms;
	return pr_breaker_record(&breaker, START, &results);
}

TEST(R3_probe_respects_retry_after)
{
	const int64_t day_ms = 24 * 3600 * 1000;

	pr_breaker_init(&breaker);
	CHECK_INT(hear_later(0, 5, 60000), PR_BREAKER_OPENED);
	CHECK_INT(ask(START + 60 * S - 1), PR_BREAKER_OPEN);
	CHECK_INT(ask(START + 60 * S), PR_BREAKER_PROBE);
	CHECK_INT(hear_later(probe, 1, 90000), PR_BREAKER_UNCHANGED);
	CHECK_INT(ask(START + 90 * S - 1), PR_BREAKER_OPEN);
	CHECK_INT(ask(START + 90 * S), PR_BREAKER_PROBE);
	/* Neither at once, nor for as long as it likes. */
	CHECK_INT(hear_later(probe, 1, 1), PR_BREAKER_UNCHANGED);
	CHECK_INT(ask(START + PAUSE - 1), PR_BREAKER_OPEN);
	CHECK_INT(ask(START + PAUSE), PR_BREAKER_PROBE);
	CHECK_INT(hear_later(probe, 1, day_ms), PR_BREAKER_UNCHANGED);
	CHECK_INT(ask(START + 300 * S - 1), PR_BREAKER_OPEN);
	CHECK_INT(ask(START + 300 * S), PR_BREAKER_PROBE);
	pr_breaker_release(&breaker);
}

TEST(R3_refunded_failure_still_respects_retry_after)
{
	pr_breaker_init(&breaker);
	for (int i = 0; i < 4; i++)
		CHECK_INT(hear(1, 1, FAILED), PR_BREAKER_UNCHANGED);
	CHECK_INT(hear(2, 1, FAILED), PR_BREAKER_OPENED);
	CHECK_INT(hear(9, 1, DELIVERED), PR_BREAKER_RECOVERED);
	CHECK_INT(hear_later(0, 1, 60000), PR_BREAKER_UNCHANGED);
	CHECK_INT(given_back(1), 0);
	CHECK_INT(hear_later(0, 1, -1), PR_BREAKER_UNCHANGED);
	CHECK_INT(given_back(1), 1);
	pr_breaker_release(&breaker);
}

TEST(D5_lost_probe_is_replaced)
{
	pr_breaker_init(&breaker);
	hear(1, 1, AWAY);
	CHECK_INT(ask(START + PAUSE), PR_BREAKER_PROBE);
	CHECK_INT(ask(START + PAUSE + LONGEST - 1), PR_BREAKER_OPEN);
	CHECK_INT(ask(START + PAUSE + LONGEST), PR_BREAKER_PROBE);
	/* A worker without a message to probe with leaves the probe to the next. */
	pr_breaker_release_probe(&breaker, probe, START + PAUSE + LONGEST);
	CHECK_INT(ask(START + PAUSE + LONGEST), PR_BREAKER_PROBE);
	pr_breaker_release(&breaker);
}

TEST(D5_late_probe_result_permits_no_further_probe)
{
	int64_t now_us = START + PAUSE + 2 * LONGEST, late[2], second;

	pr_breaker_init(&breaker);
	hear(1, 1, AWAY);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(ask(START + PAUSE + i * LONGEST), PR_BREAKER_PROBE);
		late[i] = probe;
	}
	CHECK_INT(ask(now_us), PR_BREAKER_PROBE);
	second = probe;
	/* With a verdict or without. */
	CHECK_INT(hear_ticket(late[0], 1, AWAY, now_us), PR_BREAKER_UNCHANGED);
	pr_breaker_release_probe(&breaker, late[1], now_us);
	CHECK_INT(ask(now_us + LONGEST - 1), PR_BREAKER_OPEN);
	CHECK_INT(hear_ticket(second, 2, AWAY, now_us + S), PR_BREAKER_UNCHANGED);
	CHECK_INT(ask(now_us + S + PAUSE), PR_BREAKER_PROBE);
	/* Good news are good, however old. */
	CHECK_INT(hear_ticket(late[0], 1, DELIVERED, now_us + S + PAUSE), PR_BREAKER_RECOVERED);
	pr_breaker_release(&breaker);
}

TEST(D5_old_probe_is_still_the_only_one_when_breaker_reopens)
{
	int64_t now_us = START + PAUSE;

	pr_breaker_init(&breaker);
	hear(1, 1, AWAY);
	CHECK_INT(ask(now_us), PR_BREAKER_PROBE);
	CHECK_INT(hear(2, 1, DELIVERED), PR_BREAKER_RECOVERED);
	CHECK_INT(hear(3, 1, AWAY), PR_BREAKER_OPENED);
	CHECK_INT(ask(now_us + LONGEST - 1), PR_BREAKER_OPEN);
	CHECK_INT(hear_probe(1, AWAY, now_us + 9 * S), PR_BREAKER_UNCHANGED);
	CHECK_INT(ask(now_us + 9 * S + PAUSE - 1), PR_BREAKER_OPEN);
	CHECK_INT(ask(now_us + 9 * S + PAUSE), PR_BREAKER_PROBE);
	/* The sink has recovered, and the breaker is closed: the next time there is no one to wait for. */
	CHECK_INT(hear_probe(1, DELIVERED, now_us + 20 * S), PR_BREAKER_RECOVERED);
	CHECK_INT(hear_ticket(0, 3, AWAY, now_us + 20 * S), PR_BREAKER_OPENED);
	CHECK_INT(ask(now_us + 20 * S + PAUSE), PR_BREAKER_PROBE);
	pr_breaker_release(&breaker);
}

TEST(D5_each_probe_uses_another_message)
{
	const size_t none = SIZE_MAX;
	const size_t free_all[] = { none, none, none, none };
	const size_t behind[] = { none, 0, none, 2 };

	pr_breaker_init(&breaker);
	call(1, 4, POSTROOM_UNTRIED);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < 4; i++)
			CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, 4, free_all),
				  (int64_t)i);
	}
	/* The fourth went last. */
	CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, 4, behind), 0);
	CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, 4, behind), 2);
	CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, 4, behind), 0);
	/* A single message is retried each time, and so is the first when their order is not known. */
	CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, 1, free_all), 0);
	CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, 1, free_all), 0);
	CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, 4, NULL), 0);
	CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, 4, NULL), 0);
	pr_breaker_release(&breaker);
}

/* The sequence number of the probe that is chosen from so many of 1, 2, 3, … */
static int64_t choose_among(size_t most)
{
	static const size_t before[] = { [0 ... 19] = SIZE_MAX };
	size_t count = pr_breaker_window(&breaker);

	if (count > most)
		count = most;
	call(1, count, POSTROOM_UNTRIED);
	return items[pr_breaker_choose(&breaker, items, count, before)].seq;
}

TEST(D5_probe_is_chosen_from_a_growing_window)
{
	pr_breaker_init(&breaker);
	hear(1, 1, AWAY);
	CHECK_INT((int64_t)pr_breaker_window(&breaker), PR_BREAKER_WINDOW_MIN);
	for (int round = 0; round < 2; round++) {
		for (int64_t seq = 1; seq <= 20; seq++) {
			CHECK_INT(choose_among(20), seq);
			CHECK((int64_t)pr_breaker_window(&breaker) <= 2 * seq || round > 0);
		}
	}
	/* There are no more to choose from. */
	CHECK_INT((int64_t)pr_breaker_window(&breaker), 32);
	CHECK_INT(hear(1, 1, DELIVERED), PR_BREAKER_RECOVERED);
	CHECK_INT((int64_t)pr_breaker_window(&breaker), PR_BREAKER_WINDOW_MIN);
	pr_breaker_release(&breaker);
}

TEST(D5_outage_of_six_hours_uses_no_attempt)
{
	int64_t now_us = START, attempts = 0, probes = 0;

	pr_breaker_init(&breaker);
	hear(1, 20, FAILED);
	attempts += 20 - given_back(20);
	while (now_us < START + 6 * 3600 * S) {
		now_us += S / 10;
		if (ask(now_us) != PR_BREAKER_PROBE)
			continue;
		probes++;
		CHECK_INT(hear_probe(probes % 20 + 1, FAILED, now_us), PR_BREAKER_UNCHANGED);
		attempts += 1 - given_back(1);
	}
	CHECK_INT(attempts, 0);
	CHECK_INT(probes, 6 * 3600 / 2);
	pr_breaker_release(&breaker);
}

TEST(D5_failed_message_is_not_probed_while_others_wait)
{
	static const size_t free_all[6] = { SIZE_MAX, SIZE_MAX, SIZE_MAX,
					    SIZE_MAX, SIZE_MAX, SIZE_MAX };

	pr_breaker_init(&breaker);
	CHECK_INT(hear(1, 5, FAILED), PR_BREAKER_OPENED);
	call(1, 6, FAILED);
	CHECK_INT(pr_breaker_choose(&breaker, items, 6, free_all), 5);
	pr_breaker_release(&breaker);
}
