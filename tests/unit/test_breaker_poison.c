/* SPDX-License-Identifier: Apache-2.0 */
/* UNREACHABLE verdicts: about the sink, or about the message. */
#include "../harness.h"
#include "relay/breaker.h"

#define S 1000000LL
#define START (1000003 * S)
#define PAUSE (2 * S)
#define LONGEST (30 * S)

enum { DELIVERED = POSTROOM_DELIVERED, FAILED = POSTROOM_FAILED, AWAY = POSTROOM_UNREACHABLE };

static struct pr_breaker breaker;
static postroom_delivery items[20];
static size_t count;
static int64_t now_us;

static void begin(void)
{
	pr_breaker_init(&breaker);
	now_us = START;
}

/* Begins a call of one second; its messages are added below. */
static void begin_call(void)
{
	now_us += S;
	count = 0;
}

/* With its verdict so many microseconds after the call began. */
static postroom_delivery *add(int64_t seq, int verdict, int64_t begun_us, int64_t judged_us)
{
	postroom_delivery *item = &items[count++];

	*item = (postroom_delivery){ .seq = seq,
				     .verdict = (postroom_verdict)verdict,
				     .reason = "reset",
				     .begun_us = now_us + begun_us,
				     .judged_us = now_us + judged_us };
	if (verdict != DELIVERED)
		return item;
	breaker.proof.delivered_us = item->judged_us;
	if (breaker.proof.begun_us < item->begun_us)
		breaker.proof.begun_us = item->begun_us;
	return item;
}

static enum pr_breaker_change end_call(int64_t probe)
{
	struct pr_breaker_results results = { .items = items,
					      .count = count,
					      .began_us = now_us,
					      .server = true,
					      .probe = probe,
					      .pause_us = PAUSE };

	now_us += S;
	return pr_breaker_record(&breaker, now_us, &results);
}

static enum pr_breaker_change call_one(int64_t seq, int verdict)
{
	begin_call();
	add(seq, verdict, 0, 10);
	return end_call(0);
}

static enum pr_breaker_permission ask(int64_t *ret_probe)
{
	int64_t wait_ms;

	return pr_breaker_check(&breaker, now_us, LONGEST, ret_probe, &wait_ms);
}

TEST(R1_single_message_that_cannot_reach_a_working_sink_has_failed)
{
	begin();
	begin_call();
	add(1, DELIVERED, 0, 10);
	add(2, AWAY, 0, 20);
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	CHECK_INT(items[1].verdict, FAILED);
	CHECK(!pr_breaker_is_open(&breaker));
	pr_breaker_release(&breaker);
}

TEST(R1_message_fails_if_another_worker_delivered_since_its_call_began)
{
	begin();
	breaker.proof.delivered_us = START + S;
	CHECK_INT(call_one(1, AWAY), PR_BREAKER_UNCHANGED);
	CHECK_INT(items[0].verdict, FAILED);
	/* Not if that was before. */
	CHECK_INT(call_one(2, AWAY), PR_BREAKER_OPENED);
	CHECK_INT(items[0].verdict, AWAY);
	pr_breaker_release(&breaker);
}

TEST(R1_messages_fail_if_one_that_began_later_was_delivered)
{
	begin();
	begin_call();
	for (int64_t seq = 1; seq <= 5; seq++)
		add(seq, AWAY, 0, 10);
	add(6, DELIVERED, 20, 30);
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	for (size_t i = 0; i < 5; i++)
		CHECK_INT(items[i].verdict, FAILED);
	CHECK(!pr_breaker_is_open(&breaker));
	pr_breaker_release(&breaker);
}

TEST(R1_messages_refused_by_name_fail_where_others_are_delivered)
{
	begin();
	begin_call();
	add(1, DELIVERED, 0, 10);
	add(2, AWAY, 0, 20)->by_name = true;
	add(3, AWAY, 0, 20)->by_name = true;
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	CHECK_INT(items[1].verdict, FAILED);
	CHECK_INT(items[2].verdict, FAILED);
	/* Nowhere else: then it is the sink. */
	begin_call();
	add(4, AWAY, 0, 20)->by_name = true;
	add(5, AWAY, 0, 20)->by_name = true;
	CHECK_INT(end_call(0), PR_BREAKER_OPENED);
	CHECK_INT(items[0].verdict, AWAY);
	pr_breaker_release(&breaker);
}

/* Ten are delivered, then the sink ends: ten more fail. */
static void end_in_the_middle(void)
{
	begin_call();
	for (int64_t seq = 1; seq <= 10; seq++)
		add(seq, DELIVERED, seq, 100 + seq);
	for (int64_t seq = 11; seq <= 20; seq++)
		add(seq, AWAY, seq, 200 + seq);
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	for (size_t i = 10; i < 20; i++)
		CHECK_INT(items[i].verdict, AWAY);
}

TEST(D5_outage_in_the_middle_of_a_call_is_probed_immediately_and_refunded)
{
	static const size_t before[20] = { [0 ... 19] = SIZE_MAX };
	char reason[300];
	int64_t probe;

	begin();
	end_in_the_middle();
	/* In doubt: nothing is logged yet, and only the probe is claimed. */
	CHECK_INT(pr_breaker_open_ms(&breaker, now_us, reason), 0);
	CHECK_INT(ask(&probe), PR_BREAKER_PROBE);
	CHECK(pr_breaker_window(&breaker) > 10);
	begin_call();
	for (int64_t seq = 11; seq <= 21; seq++)
		add(seq, POSTROOM_UNTRIED, 0, 0);
	CHECK_INT((int64_t)pr_breaker_choose(&breaker, items, count, before), 10);
	count = 0;
	add(21, AWAY, 0, 10);
	CHECK_INT(end_call(probe), PR_BREAKER_OPENED);
	CHECK_INT(items[0].verdict, AWAY);
	CHECK(pr_breaker_open_ms(&breaker, now_us + S, reason) > 0);
	CHECK_INT(ask(&probe), PR_BREAKER_OPEN);
	pr_breaker_release(&breaker);
}

TEST(D5_doubt_ends_without_log_if_probe_is_delivered)
{
	int64_t probe;

	begin();
	end_in_the_middle();
	CHECK_INT(ask(&probe), PR_BREAKER_PROBE);
	begin_call();
	add(21, DELIVERED, 0, 10);
	CHECK_INT(end_call(probe), PR_BREAKER_UNCHANGED);
	CHECK_INT(ask(&probe), PR_BREAKER_CLOSED);
	/* Messages that fail again now were the cause. */
	CHECK_INT(call_one(11, AWAY), PR_BREAKER_UNCHANGED);
	CHECK_INT(items[0].verdict, FAILED);
	pr_breaker_release(&breaker);
}

TEST(D5_doubt_becomes_outage_if_probe_fails_at_the_server)
{
	int64_t probe;

	begin();
	end_in_the_middle();
	CHECK_INT(ask(&probe), PR_BREAKER_PROBE);
	begin_call();
	add(21, FAILED, 0, 10);
	CHECK_INT(end_call(probe), PR_BREAKER_OPENED);
	CHECK_INT(items[0].verdict, AWAY);
	pr_breaker_release(&breaker);
}

/* Another worker delivers something while the probe, which is poison itself, fails. */
TEST(R1_doubt_ends_when_its_probe_is_charged)
{
	int64_t probe;

	begin();
	end_in_the_middle();
	CHECK_INT(ask(&probe), PR_BREAKER_PROBE);
	begin_call();
	add(21, AWAY, 0, 10);
	breaker.proof.delivered_us = now_us + 5;
	CHECK_INT(end_call(probe), PR_BREAKER_UNCHANGED);
	CHECK_INT(items[0].verdict, FAILED);
	CHECK_INT(ask(&probe), PR_BREAKER_CLOSED);
	pr_breaker_release(&breaker);
}

TEST(D5_delivery_before_a_doubt_does_not_charge_its_probe)
{
	int64_t probe;

	begin();
	CHECK_INT(call_one(1, AWAY), PR_BREAKER_OPENED);
	now_us += PAUSE;
	CHECK_INT(ask(&probe), PR_BREAKER_PROBE);
	begin_call();
	add(2, DELIVERED, 0, 10);
	CHECK_INT(end_call(probe), PR_BREAKER_RECOVERED);
	begin_call();
	add(3, DELIVERED, 0, 10);
	add(4, AWAY, 20, 30);
	add(5, AWAY, 20, 30);
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	CHECK_INT(ask(&probe), PR_BREAKER_PROBE);
	begin_call();
	add(1, AWAY, 0, 10);
	CHECK_INT(end_call(probe), PR_BREAKER_OPENED);
	CHECK_INT(items[0].verdict, AWAY);
	pr_breaker_release(&breaker);
}

TEST(R1_message_that_fails_alone_is_charged_once_others_were_delivered_between)
{
	int64_t probe;

	begin();
	CHECK_INT(call_one(1, AWAY), PR_BREAKER_OPENED);
	CHECK_INT(items[0].verdict, AWAY);
	now_us += PAUSE;
	CHECK_INT(ask(&probe), PR_BREAKER_PROBE);
	begin_call();
	add(2, DELIVERED, 0, 10);
	CHECK_INT(end_call(probe), PR_BREAKER_RECOVERED);
	/* And from then on, whether there are others or not. */
	for (int i = 0; i < 10; i++) {
		CHECK_INT(call_one(1, AWAY), PR_BREAKER_UNCHANGED);
		CHECK_INT(items[0].verdict, FAILED);
	}
	/* Until there is an outage: that is not its fault. */
	CHECK_INT(call_one(3, AWAY), PR_BREAKER_OPENED);
	now_us += PAUSE;
	CHECK_INT(ask(&probe), PR_BREAKER_PROBE);
	begin_call();
	add(1, AWAY, 0, 10);
	CHECK_INT(end_call(probe), PR_BREAKER_UNCHANGED);
	CHECK_INT(items[0].verdict, AWAY);
	pr_breaker_release(&breaker);
}

TEST(D5_outage_beside_a_poison_message_uses_no_attempt)
{
	begin();
	begin_call();
	add(1, AWAY, 0, 10);
	add(2, DELIVERED, 20, 30);
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	CHECK_INT(items[0].verdict, FAILED);
	begin_call();
	add(1, AWAY, 0, 10);
	add(3, AWAY, 0, 10);
	CHECK_INT(end_call(0), PR_BREAKER_OPENED);
	CHECK_INT(items[0].verdict, AWAY);
	pr_breaker_release(&breaker);
}

TEST(R1_messages_that_fail_together_are_not_charged)
{
	begin();
	begin_call();
	add(1, AWAY, 0, 10)->together = true;
	add(2, AWAY, 0, 10)->together = true;
	add(3, DELIVERED, 20, 30);
	end_call(0);
	CHECK_INT(items[0].verdict, AWAY);
	CHECK_INT(items[1].verdict, AWAY);
	/* The one that fails without the others is, and is published alone from then on. */
	begin_call();
	add(1, AWAY, 0, 10)->together = true;
	items[0].lost_us = now_us - S;
	breaker.proof.begun_us = now_us - S / 2;
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	CHECK_INT(items[0].verdict, FAILED);
	begin_call();
	add(1, POSTROOM_UNTRIED, 0, 0);
	add(4, POSTROOM_UNTRIED, 0, 0);
	CHECK(pr_breaker_mark_alone(&breaker, items, count, 1));
	CHECK_INT(items[0].aside, 1);
	CHECK_INT(items[1].aside, 0);
	pr_breaker_release(&breaker);
}

TEST(R1_charged_messages_are_not_an_outage)
{
	begin();
	begin_call();
	for (int64_t seq = 1; seq <= 8; seq++)
		add(seq, AWAY, 0, 10);
	add(9, DELIVERED, 20, 30);
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	begin_call();
	for (int64_t seq = 1; seq <= 8; seq++)
		add(seq, AWAY, 0, 10);
	CHECK_INT(end_call(0), PR_BREAKER_UNCHANGED);
	for (size_t i = 0; i < 8; i++)
		CHECK_INT(items[i].verdict, FAILED);
	pr_breaker_release(&breaker);
}

TEST(R1_full_table_of_poison_suspects_drops_its_oldest_entry)
{
	static struct pr_poison_suspects suspects;

	for (int64_t seq = 1; seq <= PR_POISON_SUSPECTS_MAX + 2; seq++)
		pr_poison_add(&suspects, seq);
	CHECK(!pr_poison_find(&suspects, 2));
	CHECK(pr_poison_find(&suspects, 3));
	CHECK(pr_poison_find(&suspects, PR_POISON_SUSPECTS_MAX + 2));
	pr_poison_remove(&suspects, 3);
	CHECK(!pr_poison_find(&suspects, 3));
	CHECK_INT((int64_t)suspects.count, PR_POISON_SUSPECTS_MAX - 1);
}
