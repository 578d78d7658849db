/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, running, stopping, and time. */
#include "library/relay.h"

#include <malloc.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

static void *stop_when_called(void *context)
{
	(void)context;
	while (atomic_load(&rig.calls) == 0)
		nap();
	postroom_relay_stop(rig.relay);
	atomic_store(&rig.flag, 1);
	return NULL;
}

/* The first message holds its call until the stop has been asked for. */
static void wait_for_the_stop(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	while (!atomic_load(&rig.flag))
		nap();
	if (index > 0 && !postroom_flight_may_begin(flight))
		return;
	deliver(item, index, flight);
}

static void check_one_delivered_and_the_rest_released(void)
{
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(rows("pending"), 2);
	CHECK_INT(number(app, "SELECT sum(attempts) FROM postroom_outbox WHERE status = 'pending'"),
		  0);
}

TEST(D4_stop_from_another_thread_finishes_in_flight_and_releases_the_rest)
{
	pthread_t thread;

	for (int i = 0; i < 3; i++)
		PUT(.topic = "orders", .payload = "1");
	OPEN(.workers = 1);
	CHECK(pthread_create(&thread, NULL, stop_when_called, NULL) == 0);
	run_relay(wait_for_the_stop);
	pthread_join(thread, NULL);
	close_relay();
	check_one_delivered_and_the_rest_released();
}

static postroom_relay *to_stop;

static void on_signal(int number_of_signal)
{
	(void)number_of_signal;
	postroom_relay_stop(to_stop);
	atomic_store(&rig.flag, 1);
}

/* To the process, so that any of its threads may get it. */
static void be_interrupted(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (index == 0)
		CHECK(kill(getpid(), SIGUSR1) == 0);
	wait_for_the_stop(item, index, flight);
}

TEST(D4_stop_from_signal_handler_finishes_in_flight_and_releases_the_rest)
{
	struct sigaction action = { .sa_handler = on_signal };

	for (int i = 0; i < 3; i++)
		PUT(.topic = "orders", .payload = "1");
	OPEN(.workers = 1);
	to_stop = rig.relay;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	run_relay(be_interrupted);
	close_relay();
	check_one_delivered_and_the_rest_released();
}

static void *interrupt(void *context)
{
	(void)context;
	while (totals().delivered == 0)
		nap();
	kill(getpid(), SIGUSR1);
	return NULL;
}

TEST(D4_a_signal_ends_an_idle_relay)
{
	struct sigaction action = { .sa_handler = on_signal };
	pthread_t thread;

	PUT(.topic = "orders", .payload = "1");
	OPEN(.workers = 2, .lease_ms = 3600000, .poll_interval_ms = 600000);
	to_stop = rig.relay;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, interrupt, NULL) == 0);
	run_relay(deliver);
	pthread_join(thread, NULL);
	close_relay();
	CHECK_INT(rows("delivered"), 1);
}

TEST(D4_relay_stopped_before_its_start_publishes_nothing)
{
	PUT(.topic = "orders", .payload = "1");
	OPEN(.workers = 1);
	postroom_relay_stop(rig.relay);
	postroom_relay_stop(rig.relay);
	run_relay(deliver);
	close_relay();
	CHECK_INT(rig.calls, 0);
	CHECK_INT(rows("pending"), 1);
}

/* Ten seconds at first; a tenth of one after the stop. */
static void use_all_the_time(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index, (void)item;
	CHECK(postroom_flight_left_ms(flight) > 100);
	postroom_relay_stop(rig.relay);
	CHECK(postroom_flight_left_ms(flight) <= 100);
	CHECK(!postroom_flight_may_begin(flight));
	while (postroom_flight_left_ms(flight) > 0)
		nap();
}

TEST(D4_stop_shortens_the_deadline_of_a_callback)
{
	PUT(.topic = "orders", .payload = "1");
	OPEN(.workers = 1, .shutdown_grace_ms = 100);
	run_relay(use_all_the_time);
	close_relay();
	CHECK_INT(rig.calls, 1);
	CHECK_INT(rows("delivered") + rows("dead"), 0);
}

static void outlive_the_lease(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (postroom_delivery_attempt(item) == 1) {
		while (postroom_flight_left_ms(flight) > 0)
			nap();
		while (totals().delivered == 0)
			nap();
	}
	deliver(item, index, flight);
}

TEST(A2_callback_that_blocks_past_its_lease_settles_nothing)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(outlive_the_lease, .workers = 2, .lease_ms = 4000);
	CHECK_STR(rig.seen, "1 1 ");
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 2);
	CHECK_INT(totals().delivered, 1);
	CHECK_INT(totals().lost, 1);
	CHECK(was_logged("OUTBOX_WORKER_SKIP_PROCESSED id="));
}

/* Another one takes the first message, as after a lease that ended, and gives it back. */
static void lose_the_first(void)
{
	postroom_batch *taken;

	EXPIRE_LEASES();
	taken = CLAIM();
	CHECK_STR(only_item(taken)->payload, "11");
	CHECK_INT(postroom_release(store, taken, only_item(taken), 1), POSTROOM_OK);
	postroom_batch_free(taken);
}

/* The rest is delivered, so that its slice ends without an outage. */
static void leave_one_untried(const char *payload, postroom_delivery *item)
{
	if (strcmp(postroom_delivery_payload(item, NULL), payload) == 0 &&
	    atomic_fetch_add(&rig.flag, 1) == 0)
		lose_the_first();
	else
		postroom_delivery_judge(item, POSTROOM_DELIVERED, NULL);
}

static void leave_the_second(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index, (void)flight;
	leave_one_untried("12", item);
}

static void leave_the_third(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index, (void)flight;
	leave_one_untried("13", item);
}

TEST_BY_ROW(D6_message_waits_behind_one_of_its_key_lost_at_settle)
{
	PUT(.topic = "orders", .payload = "11", .key = "1");
	PUT(.topic = "orders", .payload = "21", .key = "2");
	PUT(.topic = "orders", .payload = "12", .key = "1");
	PUT(.topic = "orders", .payload = "22", .key = "2");
	DRAIN(leave_the_second, .workers = 1);
	CHECK_STR(rig.seen, "11 21 12 22 11 12 ");
	CHECK_INT(totals().lost, 1);
	CHECK_INT(rows("delivered"), 4);
}

TEST_BY_ROW(D6_message_waits_behind_lost_message_though_one_between_was_settled)
{
	PUT(.topic = "orders", .payload = "11", .key = "1");
	PUT(.topic = "orders", .payload = "21", .key = "2");
	PUT(.topic = "orders", .payload = "12", .key = "1");
	PUT(.topic = "orders", .payload = "22", .key = "2");
	PUT(.topic = "orders", .payload = "13", .key = "1");
	PUT(.topic = "orders", .payload = "23", .key = "2");
	DRAIN(leave_the_third, .workers = 1);
	CHECK_STR(rig.seen, "11 21 12 22 13 23 11 13 ");
	CHECK_INT(totals().lost, 1);
	CHECK_INT(rows("delivered"), 6);
}

static struct {
	size_t first, most; /* bytes in use, as the callback finds them */
} heap;

/* One message per call, so that a batch takes as many slices as it has messages. */
static void deliver_the_first(void *context, postroom_delivery *const *items, size_t count,
			      postroom_flight *flight)
{
	struct mallinfo2 now = mallinfo2();
	size_t used = now.uordblks + now.hblkhd, of_sqlite = (size_t)sqlite3_memory_used();

	(void)context, (void)count, (void)flight;
	/* The janitor opens its own connection at some time: what SQLite keeps does not count. */
	used -= used > of_sqlite ? of_sqlite : used; /* a sanitizer counts nothing */
	if (heap.first == 0)
		heap.first = used;
	if (heap.most < used)
		heap.most = used;
	postroom_delivery_judge(items[0], POSTROOM_DELIVERED, NULL);
}

ON_ONE(D8_memory_does_not_grow_with_the_slices_of_a_batch, backend_sqlite)
{
	enum { COUNT = 400 };

	for (int i = 0; i < COUNT; i++)
		PUT(.topic = "orders", .payload = "1");
	heap.first = heap.most = 0;
	CHECK_INT(postroom_relay_open(POSTROOM_RELAY(.url = url, .publish = deliver_the_first,
						     .workers = 1, .drain = 1),
				      &rig.relay),
		  POSTROOM_OK);
	CHECK_INT(postroom_relay_run(rig.relay), POSTROOM_OK);
	close_relay();
	CHECK_INT(rows("delivered"), COUNT);
	/* The memory of one slice for all messages, several times over; not once for each slice. */
	CHECK_MSG(heap.most - heap.first < 4 * COUNT * sizeof(postroom_delivery), "%zu bytes more",
		  heap.most - heap.first);
}

static void outlive_the_deadline(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	while (postroom_flight_left_ms(flight) > 0)
		nap();
	CHECK(!postroom_flight_may_begin(flight));
	deliver(item, index, flight);
}

TEST(D2_message_published_just_after_deadline_counts)
{
	PUT(.topic = "orders", .payload = "1");
	DRAIN(outlive_the_deadline, .workers = 2, .lease_ms = 60000, .publish_timeout_ms = 1);
	CHECK_STR(rig.seen, "1 ");
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(totals().lost, 0);
}

static void meet(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	atomic_fetch_add(&rig.inside, 1);
	while (atomic_load(&rig.inside) < 2)
		nap();
	deliver(item, index, flight);
}

TEST(D2_two_workers_call_at_the_same_time)
{
	PUT(.topic = "orders", .payload = "1");
	PUT(.topic = "orders", .payload = "2");
	DRAIN(meet, .workers = 2, .batch_size = 1);
	CHECK_INT(rows("delivered"), 2);
	CHECK_INT(rig.calls, 2);
}

static const char *refuse(postroom_relay_options options)
{
	static char why[1000];
	int status;

	options.size = sizeof(options);
	if (!options.url)
		options.url = url;
	options.publish = publish;
	status = postroom_relay_open(&options, &rig.relay);
	CHECK_INT(status, POSTROOM_INVALID);
	snprintf(why, sizeof(why), "%s", postroom_relay_errmsg(rig.relay));
	CHECK_INT(postroom_relay_run(rig.relay), POSTROOM_INVALID);
	postroom_relay_stop(rig.relay);
	CHECK_INT(totals().fetched, 0);
	close_relay();
	return why;
}
#define REFUSE(...) refuse((postroom_relay_options){ __VA_ARGS__ })

TEST(D1_invalid_options_are_rejected_by_name)
{
	CHECK_CONTAINS(REFUSE(.workers = 257), "workers is 257");
	CHECK_CONTAINS(REFUSE(.batch_size = -1), "batch_size is -1");
	CHECK_CONTAINS(REFUSE(.lease_ms = 29), "lease_ms is 29");
	CHECK_CONTAINS(REFUSE(.poll_interval_ms = 10001), "a third of the lease");
	CHECK_CONTAINS(REFUSE(.publish_timeout_ms = 15001), "half of the lease");
	CHECK_CONTAINS(REFUSE(.base_delay_ms = 2, .max_delay_ms = 1), "base-delay");
	CHECK_CONTAINS(REFUSE(.tenant_id = "me"), "tenant_id \"me\"");
	CHECK_CONTAINS(REFUSE(.retention_ms = -3), "retention_ms is -3");
	CHECK_CONTAINS(REFUSE(.dedupe_retention_ms = POSTROOM_AT_ONCE),
		       "dedupe_retention_ms is -2");
	CHECK_CONTAINS(REFUSE(.inbox_retention_ms = POSTROOM_AT_ONCE), "inbox_retention_ms is -2");
	CHECK_CONTAINS(REFUSE(.log_level = (postroom_log_level)3), "log_level is 3");
	CHECK_CONTAINS(REFUSE(.backoff = (postroom_backoff)2), "backoff is 2");
	CHECK_CONTAINS(REFUSE(.on_dead = (postroom_on_dead)2), "on_dead is 2");
}

TEST(D2_a_relay_without_url_callback_or_size_is_refused)
{
	postroom_relay_options sizeless = { .url = url, .publish = publish };

	CHECK_INT(postroom_relay_open(POSTROOM_RELAY(.publish = publish), &rig.relay),
		  POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_relay_errmsg(rig.relay), "url is missing");
	close_relay();
	CHECK_INT(postroom_relay_open(POSTROOM_RELAY(.url = url), &rig.relay), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_relay_errmsg(rig.relay), "publish is missing");
	close_relay();
	CHECK_INT(postroom_relay_open(&sizeless, &rig.relay), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_relay_errmsg(rig.relay), "POSTROOM_RELAY()");
	close_relay();
	postroom_relay_close(NULL);
}

static int open_longer(size_t size, char last)
{
	union {
		postroom_relay_options known;
		char bytes[sizeof(postroom_relay_options) + 16];
	} given = { .known = { .size = size, .url = url, .publish = publish } };

	memset(given.bytes + sizeof(given.known), 0, sizeof(given.bytes) - sizeof(given.known));
	given.bytes[sizeof(given.bytes) - 1] = last;
	return postroom_relay_open(&given.known, &rig.relay);
}

TEST(D2_newer_options_are_accepted_if_new_fields_are_unused)
{
	const size_t known = sizeof(postroom_relay_options);

	CHECK_INT(open_longer(known + 16, 0), POSTROOM_OK);
	close_relay();
	CHECK_INT(open_longer(known + 16, 1), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_relay_errmsg(rig.relay), "newer");
	close_relay();
	/* Not ours to read. */
	CHECK_INT(open_longer(known, 1), POSTROOM_OK);
	close_relay();
	CHECK_INT(open_longer(known - 1, 0), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_relay_errmsg(rig.relay), "POSTROOM_RELAY()");
	close_relay();
}

TEST(D2_a_relay_runs_once)
{
	OPEN(.drain = 1);
	CHECK_INT(postroom_relay_run(rig.relay), POSTROOM_OK);
	CHECK_INT(postroom_relay_run(rig.relay), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_relay_errmsg(rig.relay), "open another");
	close_relay();
}

static void *stop_when_in_trouble(void *context)
{
	(void)context;
	while (!was_logged("OUTBOX_STORE_TROUBLE error="))
		nap();
	postroom_relay_stop(rig.relay);
	return NULL;
}

ON_ONE(D5_relay_waits_for_unreachable_server_until_stopped, backend_sqlite)
{
	char kept[sizeof(url)];
	pthread_t thread;

	memcpy(kept, url, sizeof(url));
	snprintf(url, sizeof(url), "postgres:///shop?host=/nowhere");
	OPEN(.workers = 1);
	memcpy(url, kept, sizeof(url));
	CHECK(pthread_create(&thread, NULL, stop_when_in_trouble, NULL) == 0);
	run_relay(deliver);
	pthread_join(thread, NULL);
	close_relay();
}

ON_ONE(D2_file_that_cannot_be_created_is_reported_immediately, backend_sqlite)
{
	int status = postroom_relay_open(
		POSTROOM_RELAY(.url = "/nowhere/shop.db", .publish = publish), &rig.relay);

	CHECK_INT(status, POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(postroom_relay_errmsg(rig.relay), "/nowhere/shop.db");
	close_relay();
}
