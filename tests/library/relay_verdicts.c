/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of each verdict of a callback. */
#include "library/relay.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_item(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	CHECK_STR(postroom_delivery_topic(item), "orders");
	CHECK_STR(postroom_delivery_ns(item), "shop");
	CHECK_STR(postroom_delivery_key(item), "o-1");
	CHECK_STR(postroom_delivery_payload(item, NULL), "{\"n\": 1}");
	CHECK_STR(postroom_delivery_headers(item), "{\"a\": \"b\"}");
	CHECK_STR(postroom_delivery_correlation_id(item), "c-1");
	CHECK_STR(postroom_delivery_dedupe_key(item), "d-1");
	CHECK_INT(postroom_delivery_attempt(item), 1);
	CHECK(postroom_flight_left_ms(flight) > 0);
	CHECK(postroom_flight_may_begin(flight));
	deliver(item, index, flight);
}

TEST(D2_callback_receives_the_whole_message)
{
	PUT(.topic = "orders", .payload = "{\"n\": 1}", .key = "o-1", .ns = "shop",
	    .headers = "{\"a\": \"b\"}", .correlation_id = "c-1", .dedupe_key = "d-1");
	DRAIN(check_item, .workers = 1);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(totals().delivered, 1);
	CHECK_INT(totals().fetched, 1);
}

static void fail(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index;
	postroom_delivery_judge(item, POSTROOM_FAILED,
				postroom_flight_text(flight, "try %d of %s",
						     postroom_delivery_attempt(item),
						     postroom_delivery_topic(item)));
}

TEST(D2_failed_message_is_retried_and_becomes_dead_letter_with_reason)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(fail, .workers = 1, .max_attempts = 3);
	CHECK_STR(rig.seen, "1 1 1 ");
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "try 3 of orders");
	CHECK_INT(totals().failed, 3);
	CHECK_INT(totals().dead, 1);
	CHECK(was_logged("OUTBOX_WORKER_DISPATCH_FAIL id="));
	CHECK(was_logged("retry=2 max=3 error=\"try 2 of orders\""));
}

static void reject(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index, (void)flight;
	postroom_delivery_judge(item, POSTROOM_REJECTED, "never");
}

TEST(R2_message_rejected_by_the_callback_is_dead_immediately)
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
	postroom_delivery_retry_in(item, 86400000);
	postroom_relay_stop(rig.relay);
}

TEST(R3_callback_sets_the_retry_time)
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

static void fail_once_unreachable(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	deliver(item, index, flight);
	if (atomic_fetch_add(&rig.flag, 1) == 0) {
		postroom_delivery_judge(item, POSTROOM_UNREACHABLE, "no server");
	}
}

TEST(D2_unreachable_receiver_uses_no_attempt)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(fail_once_unreachable, .workers = 1, .max_attempts = 1);
	CHECK_STR(rig.seen, "1 1 ");
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
	CHECK(was_logged("OUTBOX_SINK_UNREACHABLE error=\"no server\""));
	CHECK(was_logged("OUTBOX_SINK_BACK \n"));
	CHECK_INT(totals().failed, 0);
}

static void deliver_one_a_call(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (index == 0)
		deliver(item, index, flight);
}

TEST(A6_message_left_untried_by_callback_is_retried_without_an_attempt)
{
	for (int i = 0; i < 3; i++)
		PUT(.topic = "orders", .payload = "1");
	DRAIN(deliver_one_a_call, .workers = 1, .max_attempts = 1);
	CHECK_INT(rows("delivered"), 3);
	CHECK_INT(rig.calls, 3);
	CHECK_INT(number(app, "SELECT max(attempts) FROM postroom_outbox"), 1);
	CHECK(!was_logged("OUTBOX_SINK_UNREACHABLE"));
}

static void begin_late(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (atomic_load(&rig.calls) > 1)
		deliver(item, index, flight);
}

ON_ONE(D2_callback_that_attempts_nothing_counts_as_outage, backend_sqlite)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(begin_late, .workers = 1, .max_attempts = 1);
	CHECK_INT(rig.calls, 2);
	CHECK_INT(rows("delivered"), 1);
	CHECK(was_logged("OUTBOX_SINK_UNREACHABLE error=\"the callback tried none"));
}

static void say_nonsense(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index, (void)flight;
	postroom_delivery_judge(item, (postroom_verdict)17, NULL);
}

TEST(D2_an_unknown_verdict_is_a_failure)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(say_nonsense, .workers = 1, .max_attempts = 1);
	CHECK_CONTAINS(text(app, "SELECT last_error FROM postroom_outbox"), "invalid verdict: 17");
	CHECK_INT(rows("dead"), 1);
}

/* Messages held behind 1 must not be published with it, nor before it is delivered. */
static void fail_the_first_once(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	deliver(item, index, flight);
	if (strcmp(postroom_delivery_payload(item, NULL), "1") == 0 &&
	    postroom_delivery_attempt(item) == 1)
		fail(item, index, flight);
}

TEST(D6_callback_receives_messages_of_a_key_one_by_one_in_order)
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

TEST(C6_relay_claims_only_its_namespace_topic_and_tenant)
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
	if (strcmp(postroom_delivery_payload(item, NULL), "1") == 0)
		fail_once_unreachable(item, index, flight);
	else if (strcmp(postroom_delivery_payload(item, NULL), "2") == 0)
		fail(item, index, flight);
	else
		reject(item, index, flight);
}

TEST(D2_relay_without_log_prints_nothing)
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

ON_ONE(L1_log_callback_receives_events_of_its_level, backend_sqlite)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(fail_once_unreachable, .workers = 1, .log_level = POSTROOM_LOG_WARN);
	CHECK_STR(rig.events, "OUTBOX_SINK_UNREACHABLE error=\"no server\"\nOUTBOX_SINK_BACK \n");
}

static void *stop_when_all_is_gone(void *context)
{
	(void)context;
	while (rows(NULL) > 0)
		nap();
	postroom_relay_stop(rig.relay);
	return NULL;
}

ON_ONE(X2_delivered_messages_are_deleted_immediately_if_configured, backend_sqlite)
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
