/* SPDX-License-Identifier: Apache-2.0 */
/* What each verdict of a callback leads to. */
#include "library/relay.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void look(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	CHECK_STR(item->topic, "orders");
	CHECK_STR(item->ns, "shop");
	CHECK_STR(item->key, "o-1");
	CHECK_STR(item->payload, "{\"n\": 1}");
	CHECK_STR(item->headers, "{\"a\": \"b\"}");
	CHECK_STR(item->correlation_id, "c-1");
	CHECK_STR(item->dedupe_key, "d-1");
	CHECK_INT(item->attempt, 1);
	CHECK(postroom_flight_left_ms(flight) > 0);
	CHECK(postroom_flight_may_begin(flight));
	deliver(item, index, flight);
}

TEST(D2_a_callback_gets_the_whole_message_and_delivers_it)
{
	PUT(.topic = "orders", .payload = "{\"n\": 1}", .key = "o-1", .ns = "shop",
	    .headers = "{\"a\": \"b\"}", .correlation_id = "c-1", .dedupe_key = "d-1");
	DRAIN(look, .workers = 1);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(totals().delivered, 1);
	CHECK_INT(totals().fetched, 1);
}

static void fail(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index;
	item->verdict = POSTROOM_FAILED;
	item->reason = postroom_flight_text(flight, "try %d of %s", item->attempt, item->topic);
}

TEST(D2_a_failed_message_is_tried_again_and_dies_with_its_reason)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(fail, .workers = 1, .max_attempts = 3);
	CHECK_STR(rig.seen, "1 1 1 ");
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "try 3 of orders");
	CHECK_INT(totals().failed, 3);
	CHECK_INT(totals().dead, 1);
	CHECK(was_told("OUTBOX_WORKER_DISPATCH_FAIL id="));
	CHECK(was_told("retry=2 max=3 error=\"try 2 of orders\""));
}

static void reject(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index, (void)flight;
	item->verdict = POSTROOM_REJECTED;
	item->reason = "never";
}

TEST(R2_a_message_that_the_callback_rejects_is_dead_at_once)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(reject, .workers = 1);
	CHECK_STR(rig.seen, "1 ");
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "never");
}

static void fail_until_tomorrow(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	fail(item, index, flight);
	item->retry_in_ms = 86400000;
	postroom_relay_stop(rig.relay);
}

TEST(R3_the_callback_says_when_to_try_again)
{
	int64_t in_us;

	PUT(.topic = "orders", .payload = "1");
	OPEN(.workers = 1);
	run_relay(fail_until_tomorrow);
	close_relay();
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "pending");
	in_us = time_of(app, "next_attempt_at", "true") - time_of(app, "last_attempt_at", "true");
	/* By the backoff it would be a millisecond. */
	CHECK(in_us >= 86400LL * 1000000);
}

static void be_away_once(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	deliver(item, index, flight);
	if (atomic_fetch_add(&rig.flag, 1) == 0) {
		item->verdict = POSTROOM_UNREACHABLE;
		item->reason = "nobody there";
	}
}

TEST(D2_an_unreachable_far_side_costs_no_attempt)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(be_away_once, .workers = 1, .max_attempts = 1);
	CHECK_STR(rig.seen, "1 1 ");
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
	CHECK(was_told("OUTBOX_SINK_UNREACHABLE error=\"nobody there\""));
	CHECK(was_told("OUTBOX_SINK_BACK \n"));
	CHECK_INT(totals().failed, 0);
}

static void deliver_one_a_call(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (index == 0)
		deliver(item, index, flight);
}

TEST(A6_what_a_callback_leaves_untried_comes_again_without_an_attempt)
{
	for (int i = 0; i < 3; i++)
		PUT(.topic = "orders", .payload = "1");
	DRAIN(deliver_one_a_call, .workers = 1, .max_attempts = 1);
	CHECK_INT(rows("delivered"), 3);
	CHECK_INT(rig.calls, 3);
	CHECK_INT(number(app, "SELECT max(attempts) FROM postroom_outbox"), 1);
	CHECK(!was_told("OUTBOX_SINK_UNREACHABLE"));
}

static void begin_late(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (atomic_load(&rig.calls) > 1)
		deliver(item, index, flight);
}

ON_ONE(D2_a_callback_that_tries_nothing_is_taken_for_an_outage, backend_sqlite)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(begin_late, .workers = 1, .max_attempts = 1);
	CHECK_INT(rig.calls, 2);
	CHECK_INT(rows("delivered"), 1);
	CHECK(was_told("OUTBOX_SINK_UNREACHABLE error=\"the callback tried none"));
}

static void say_nonsense(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index, (void)flight;
	item->verdict = (postroom_verdict)17;
}

TEST(D2_an_unknown_verdict_is_a_failure)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(say_nonsense, .workers = 1, .max_attempts = 1);
	CHECK_CONTAINS(text(app, "SELECT last_error FROM postroom_outbox"), "gave 17");
	CHECK_INT(rows("dead"), 1);
}

/* Whoever stands behind 1 must not be there with it, nor before it has arrived. */
static void fail_the_first_once(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	deliver(item, index, flight);
	if (strcmp(item->payload, "1") == 0 && item->attempt == 1)
		fail(item, index, flight);
}

TEST(D6_a_callback_gets_the_messages_of_a_key_one_by_one_and_in_order)
{
	static const char *const payloads[] = { "1", "2", "3", "4" };

	for (size_t i = 0; i < 4; i++)
		PUT(.topic = "orders", .key = "a", .payload = payloads[i]);
	PUT(.topic = "orders", .key = "b", .payload = "9");
	DRAIN(fail_the_first_once, .workers = 2);
	CHECK_INT(rows("delivered"), 5);
	/* Five calls at least: 1, 1, 2, 3, 4; 9 goes with one of them or alone. */
	CHECK(rig.calls >= 5);
	*strchr(rig.seen, '9') = ' ';
	for (char *at = rig.seen, *to = rig.seen;; at++) {
		if (*at != ' ')
			*to++ = *at;
		if (!*at)
			break;
	}
	CHECK_STR(rig.seen, "11234");
}

TEST(C6_a_relay_sees_its_own_namespace_topic_and_tenant_only)
{
	const char *tenant = "6f1ed002-ab5d-4b7f-9c2e-0123456789ab";

	PUT(.topic = "a.x", .ns = "shop", .tenant_id = tenant, .payload = "1");
	PUT(.topic = "a.x", .ns = "other", .tenant_id = tenant, .payload = "2");
	PUT(.topic = "b.x", .ns = "shop", .tenant_id = tenant, .payload = "3");
	PUT(.topic = "a.x", .ns = "shop", .payload = "4");
	DRAIN(deliver, .workers = 1, .ns = "shop", .topic = "a.*",
	      .tenant_id = "6F1ED002-AB5D-4B7F-9C2E-0123456789AB");
	CHECK_STR(rig.seen, "1 ");
	CHECK_INT(rows("pending"), 3);
}

static void do_all(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (strcmp(item->payload, "1") == 0)
		be_away_once(item, index, flight);
	else if (strcmp(item->payload, "2") == 0)
		fail(item, index, flight);
	else
		reject(item, index, flight);
}

TEST(D2_nothing_is_printed_by_a_relay_without_a_log)
{
	int out = dup(STDOUT_FILENO), fd = open("printed", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;

	CHECK(out >= 0 && fd >= 0);
	fflush(stdout);
	PUT(.topic = "orders", .payload = "1");
	PUT(.topic = "orders", .payload = "2");
	PUT(.topic = "orders", .payload = "3");
	CHECK(dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0);
	rig.silent = true;
	OPEN(.drain = 1, .max_attempts = 2);
	run_relay(do_all);
	close_relay();
	fflush(stdout);
	CHECK(dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(rows("dead"), 2);
	CHECK(fstat(fd, &st) == 0);
	CHECK_INT(st.st_size, 0);
	close(out);
	close(fd);
}

ON_ONE(L1_the_log_callback_gets_what_reaches_its_level, backend_sqlite)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(be_away_once, .workers = 1, .log_level = POSTROOM_LOG_WARN);
	CHECK_STR(rig.events,
		  "OUTBOX_SINK_UNREACHABLE error=\"nobody there\"\nOUTBOX_SINK_BACK \n");
}

static void *stop_when_all_is_gone(void *context)
{
	(void)context;
	while (rows(NULL) > 0)
		nap();
	postroom_relay_stop(rig.relay);
	return NULL;
}

ON_ONE(X2_delivered_messages_are_deleted_at_once_when_told_so, backend_sqlite)
{
	pthread_t thread;

	PUT(.topic = "orders", .payload = "1");
	PUT(.topic = "orders", .payload = "2", .key = "a");
	OPEN(.workers = 1, .retention_ms = POSTROOM_AT_ONCE);
	CHECK(pthread_create(&thread, NULL, stop_when_all_is_gone, NULL) == 0);
	run_relay(deliver);
	pthread_join(thread, NULL);
	close_relay();
	CHECK_INT(totals().delivered, 2);
}
