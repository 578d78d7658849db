/* SPDX-License-Identifier: Apache-2.0 */
/*
  * Promises of every sink that is a server, when things go wrong. Each TEST()
 * here runs once for each of FOR_EACH_SERVER, against a real one, most of them
 * over a wire with faults.
 */
#include "contract/sink/server.h"

#include "base/time.h"
#include "contract/sink/sink.h"
#include "servers/proxy.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH 40
#define SHORT_MS 200 /* for a publish that is meant to run out of time */
#define LONGEST_MOMENT_US 50000
#define KEYS 4

static const struct server_kind *kind;
static struct server server;
static struct proxy proxy;
static struct rig rig;

/* A build may have no sink that is a server: then these are unused. */
__attribute__((unused)) static void begin_test(const struct server_kind *which)
{
	kind = which;
	rig_init(&rig);
	server.port = server_free_port();
	kind->start(&server);
	proxy_start(&proxy, server.port);
}

__attribute__((unused)) static void end_test(void)
{
	rig_release(&rig);
	proxy_end(&proxy);
	if (!kind->shared)
		server_kill(&server);
}

#undef TEST
#define TEST(test_name)                                                                            \
	__attribute__((unused)) static void test_name(void);                                       \
	FOR_EACH_SERVER(REGISTER_FOR, test_name)                                                   \
	static void test_name(void)

static void open_to(const char *host, int port)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };

	kind->put_url(&url, host, port);
	rig_open(&rig, pr_buf_text(&url));
}

static size_t count_of(const postroom_delivery *items, size_t count, postroom_verdict verdict)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		found += items[i].verdict == verdict;
	return found;
}

/* Messages of a few keys in turn. */
static postroom_delivery *keyed_items(size_t count)
{
	static const char *const keys[KEYS] = { "a", "b", "c", "d" };
	postroom_delivery *items = rig_items(&rig, count);

	for (size_t i = 0; i < count; i++)
		items[i].key = keys[i % KEYS];
	return items;
}

/* Repeats undelivered messages in their order, as the relay does. */
static void publish_until_delivered(postroom_delivery *items, size_t count)
{
	postroom_delivery *left = pr_arena_alloc(&rig.arena, count * sizeof(*left));

	CHECK(left != NULL);
	rig.flight.timeout_ms = AMPLE_MS;
	for (;;) {
		size_t rest = 0;

		for (size_t i = 0; i < count; i++) {
			CHECK(items[i].verdict != POSTROOM_REJECTED);
			if (items[i].verdict != POSTROOM_DELIVERED) {
				items[i].verdict = POSTROOM_UNTRIED;
				left[rest++] = items[i];
			}
		}
		if (rest == 0)
			return;
		rig_publish(&rig, left, rest);
		rest = 0;
		for (size_t i = 0; i < count; i++) {
			if (items[i].verdict != POSTROOM_DELIVERED)
				items[i].verdict = left[rest++].verdict;
		}
		if (count_of(left, rest, POSTROOM_DELIVERED) == 0)
			wait_a_moment();
	}
}

/* Where a message arrived first; it may have arrived again. */
static size_t first_place(const struct pr_buf *ids, const char *id)
{
	struct pr_span line;
	size_t place = 0;

	for (size_t at = 0; next_line(ids, &at, &line); place++) {
		if (line.len == strlen(id) && memcmp(line.data, id, line.len) == 0)
			return place;
	}
	test_fail(__FILE__, __LINE__, "%s has not arrived", id);
}

static void check_all_arrived_in_order(const postroom_delivery *items, size_t count)
{
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };

	kind->ids(&server, &ids);
	for (size_t i = 0; i < count; i++) {
		size_t place = first_place(&ids, items[i].id);

		if (items[i].key && i >= KEYS)
			CHECK_MSG(place > first_place(&ids, items[i - KEYS].id), "%s came early",
				  items[i].id);
	}
}

static void check_content(const char *id, const char *expected)
{
	PR_CLEANUP_BUF struct pr_buf got = { 0 };

	kind->content(&server, id, &got);
	CHECK_STR(pr_buf_text(&got), expected);
}

static struct {
	_Atomic bool ended;
	int64_t us;
} watch;

/* Time without the pauses of a busy machine, in which the other threads do not run either. */
static void *run_watch(void *context)
{
	(void)context;
	while (!watch.ended) {
		int64_t begun_us = pr_mono_us(), took_us;

		wait_a_moment();
		took_us = pr_mono_us() - begun_us;
		watch.us += took_us < LONGEST_MOMENT_US ? took_us : LONGEST_MOMENT_US;
	}
	return NULL;
}

/* For what is meant to run out of time: ten times as long as is promised is a broken promise. */
static void publish_shortly(postroom_delivery *items, size_t count)
{
	int64_t promised_ms = SHORT_MS + SHORT_MS / PR_FLIGHT_END_PART, took_ms;
	pthread_t other;

	watch.ended = false;
	watch.us = 0;
	CHECK(pthread_create(&other, NULL, run_watch, NULL) == 0);
	rig.flight.timeout_ms = SHORT_MS;
	rig_publish(&rig, items, count);
	watch.ended = true;
	pthread_join(other, NULL);
	took_ms = watch.us / 1000;
	CHECK_MSG(took_ms < 10 * promised_ms, "%d ms instead of %d", (int)took_ms,
		  (int)promised_ms);
}

/* A publish that cannot succeed as a whole, and must return all the same. */
static postroom_delivery *publish_hindered(size_t count)
{
	postroom_delivery *items = keyed_items(count);

	publish_shortly(items, count);
	CHECK(count_of(items, count, POSTROOM_DELIVERED) < count);
	CHECK_INT(count_of(items, count, POSTROOM_REJECTED), 0);
	CHECK_MSG(count_of(items, count, POSTROOM_UNTRIED) < count, "no message has a verdict");
	for (size_t i = 0; i < count; i++)
		CHECK(items[i].verdict == POSTROOM_UNTRIED ||
		      items[i].verdict == POSTROOM_DELIVERED ||
		      (items[i].reason && *items[i].reason));
	return items;
}

static postroom_delivery *publish_unreachable(size_t count)
{
	postroom_delivery *items = publish_hindered(count);

	CHECK_INT(count_of(items, count, POSTROOM_DELIVERED), 0);
	return items;
}

static void publish_one(void)
{
	postroom_delivery *item = rig_items(&rig, 1);

	item->id = "first";
	rig_publish(&rig, item, 1);
	CHECK_MSG(item->verdict == POSTROOM_DELIVERED, "%s", item->reason);
}

/* nats.c may miss the end of a greeting that comes in pieces: it is begun anew then. */
static void be_greeted_by_bytes(void)
{
	postroom_delivery *item = rig_items(&rig, 1);
	int tries = 1;

	IF_NATS(if (kind == &nats_kind) tries = 4;)
	proxy.mode = PROXY_BYTES;
	rig.flight.timeout_ms = AMPLE_MS / 6;
	do {
		item->verdict = POSTROOM_UNTRIED;
		rig_publish(&rig, item, 1);
	} while (item->verdict == POSTROOM_UNREACHABLE && --tries > 0);
	CHECK_MSG(item->verdict == POSTROOM_DELIVERED, "%s", item->reason);
	rig.flight.timeout_ms = AMPLE_MS;
}

TEST(slow_replies_byte_by_byte_are_parsed)
{
	static const enum proxy_mode modes[] = { PROXY_BYTES, PROXY_DELAY };

	open_to(SERVER_HOST, proxy.port);
	be_greeted_by_bytes();
	for (size_t i = 0; i < 2; i++) {
		postroom_delivery *items = keyed_items(BATCH);

		proxy.mode = modes[i];
		rig_publish(&rig, items, BATCH);
		CHECK_MSG(count_of(items, BATCH, POSTROOM_DELIVERED) == BATCH, "%s",
			  items[0].reason);
		check_all_arrived_in_order(items, BATCH);
	}
}

TEST(unacknowledged_event_is_redelivered_and_never_lost)
{
	static const enum proxy_mode modes[] = { PROXY_CUT, PROXY_MUTE, PROXY_STALL };

	for (size_t i = 0; i < 3; i++) {
		postroom_delivery *items;

		open_to(SERVER_HOST, proxy.port);
		publish_one();
		proxy.mode = modes[i];
		while (modes[i] == PROXY_STALL && proxy.mode != PROXY_PASS)
			wait_a_moment();
		/* A sink with several connections may have others that do not stall. */
		items = modes[i] == PROXY_STALL ? publish_hindered(BATCH)
						: publish_unreachable(BATCH);
		CHECK(modes[i] == PROXY_STALL || proxy.muted > 0);
		proxy.mode = PROXY_PASS;
		publish_until_delivered(items, BATCH);
		check_all_arrived_in_order(items, BATCH);
		pr_sink_close(rig.sink);
	}
	rig.sink = NULL;
}

static void *kill_once_it_hears(void *context)
{
	size_t before = *(size_t *)context;

	while (proxy.requested == before)
		wait_a_moment();
	server_kill(&server);
	return NULL;
}

TEST(D5_server_killed_during_a_batch_loses_nothing)
{
	postroom_delivery *items = keyed_items(BATCH);
	size_t before;
	pthread_t killer;

	open_to(SERVER_HOST, proxy.port);
	publish_one();
	before = proxy.requested;
	proxy.mode = PROXY_BYTES; /* a batch takes its time */
	CHECK(pthread_create(&killer, NULL, kill_once_it_hears, &before) == 0);
	rig_publish(&rig, items, BATCH);
	pthread_join(killer, NULL);
	proxy.mode = PROXY_PASS;
	kind->start(&server);
	publish_until_delivered(items, BATCH);
	check_all_arrived_in_order(items, BATCH);
}

TEST(D5_relay_reconnects_after_a_restart)
{
	postroom_delivery *items = keyed_items(BATCH);

	open_to(SERVER_HOST, server.port);
	publish_one();
	server_kill(&server);
	publish_unreachable(2);
	kind->start(&server);
	publish_until_delivered(items, BATCH);
	check_all_arrived_in_order(items, BATCH);
}

TEST(deadline_is_respected_if_the_server_hangs)
{
	postroom_delivery *items;

	open_to(SERVER_HOST, server.port);
	publish_one();
	server_stop(&server);
	items = publish_unreachable(BATCH);
	publish_unreachable(2); /* a new connection this time, to a server that never answers */
	CHECK(kill(server.pid, SIGCONT) == 0);
	publish_until_delivered(items, BATCH);
	check_all_arrived_in_order(items, BATCH);
}

TEST(D8_messages_begun_stay_within_concurrency)
{
	postroom_delivery *items;
	struct pr_err err;

	open_to(SERVER_HOST, server.port);
	publish_one();
	rig.flight.concurrency = 2;
	items = rig_items(&rig, 5);
	publish_until_delivered(items, 5);
	server_stop(&server);
	items = rig_items(&rig, 5);
	rig.flight.timeout_ms = 8000;
	/* Not again when the first have had their time. */
	rig.flight.begin_until_us = pr_mono_us() + rig.flight.timeout_ms * 1000 / 2;
	CHECK_INT(rig.sink->ops->publish(rig.sink, items, 5, &rig.flight, &err), POSTROOM_OK);
	CHECK(kill(server.pid, SIGCONT) == 0);
	CHECK_INT(count_of(items, 5, POSTROOM_DELIVERED), 0);
	CHECK_INT(count_of(items, 5, POSTROOM_UNTRIED), 3);
}

static void *request_stop(void *context)
{
	size_t before = *(size_t *)context;

	while (proxy.requested == before)
		wait_a_moment();
	pr_stop_request(&rig.stop, SHORT_MS);
	return NULL;
}

TEST(D4_the_end_of_the_grace_ends_a_publish)
{
	postroom_delivery *items = keyed_items(BATCH);
	int64_t begun_us;
	size_t before;
	pthread_t stopper;

	open_to(SERVER_HOST, proxy.port);
	publish_one();
	before = proxy.requested;
	proxy.mode = PROXY_MUTE;
	CHECK(pthread_create(&stopper, NULL, request_stop, &before) == 0);
	begun_us = pr_mono_us();
	rig_publish(&rig, items, BATCH);
	/* Not the timeout, which is AMPLE_MS. */
	CHECK(pr_mono_us() - begun_us < AMPLE_MS * 1000 / 2);
	pthread_join(stopper, NULL);
	CHECK_INT(count_of(items, BATCH, POSTROOM_DELIVERED), 0);
	CHECK_INT(count_of(items, BATCH, POSTROOM_REJECTED), 0);
}

TEST(invalid_credentials_are_an_outage_and_not_repeated)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	PR_CLEANUP_BUF struct pr_buf log = { 0 };
	postroom_delivery *items;

	if (!kind->put_intruder_url)
		return;
	kind->put_intruder_url(&url, SERVER_HOST, server.port);
	rig_open(&rig, pr_buf_text(&url));
	items = rig_items(&rig, 3);
	rig_publish(&rig, items, 3);
	for (size_t i = 0; i < 3; i++) {
		CHECK_INT(items[i].verdict, POSTROOM_UNREACHABLE);
		CHECK(items[i].reason && !strstr(items[i].reason, "wrong-secret"));
	}
	read_file("log", &log);
	CHECK(!strstr(pr_buf_text(&log), "wrong-secret"));
}

TEST(refused_connection_is_an_outage)
{
	int unused = server_free_port();
	const struct {
		const char *host;
		int port;
	} cases[] = { { SERVER_HOST, unused }, /* refused */
		      { "192.0.2.1", unused }, /* no way there, or no answer */
		      { "nowhere.invalid", unused } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		postroom_delivery *items = rig_items(&rig, 3);

		open_to(cases[i].host, cases[i].port);
		publish_shortly(items, 3);
		CHECK_MSG(count_of(items, 3, POSTROOM_UNREACHABLE) == 3, "%s: %d", cases[i].host,
			  items[0].verdict);
		CHECK_CONTAINS(items[0].reason, cases[i].host);
		pr_sink_close(rig.sink);
	}
	rig.sink = NULL;
}

TEST(D6_messages_behind_a_refused_message_of_their_key_are_not_sent)
{
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };
	postroom_delivery *items = rig_items(&rig, 4);

	kind->spoil(&server);
	open_to(SERVER_HOST, server.port);
	for (size_t i = 0; i < 4; i++) {
		items[i].key = "k";
		items[i].topic = i % 2 == 0 ? "bad" : "good";
	}
	rig_publish(&rig, items, 4);
	CHECK_INT(items[0].verdict, POSTROOM_FAILED);
	CHECK(items[0].reason && items[0].reason[0]);
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	items[2].verdict = POSTROOM_DELIVERED; /* released; the others go on */
	items[0].verdict = POSTROOM_DELIVERED;
	publish_until_delivered(items, 4);
	kind->ids(&server, &ids);
	CHECK(first_place(&ids, "id-1") < first_place(&ids, "id-3"));
	CHECK(!strstr(pr_buf_text(&ids), "id-0") && !strstr(pr_buf_text(&ids), "id-2"));
}

TEST(topics_of_any_script_are_delivered)
{
	static const char *const topics[] = { "заказы.созданы", "注文/作成", "a b",
					      "caf\xc3\xa9 \xf0\x9f\x93\xae",
					      "x'\"`$(y)\\z%2f{topic}" };
	size_t count = sizeof(topics) / sizeof(*topics);
	postroom_delivery *items = rig_items(&rig, count);

	open_to(SERVER_HOST, server.port);
	for (size_t i = 0; i < count; i++)
		items[i].topic = topics[i];
	rig_publish(&rig, items, count);
	for (size_t i = 0; i < count; i++) {
		CHECK_MSG(items[i].verdict == POSTROOM_DELIVERED, "%s: %s", topics[i],
			  items[i].reason);
		check_content(items[i].id, items[i].payload);
	}
}

TEST(headers_are_sent_with_every_allowed_character)
{
	PR_CLEANUP_BUF struct pr_buf value = { 0 };
	PR_CLEANUP_BUF struct pr_buf headers = { 0 };
	PR_CLEANUP_BUF struct pr_buf got = { 0 };
	postroom_delivery *item = rig_items(&rig, 1);

	for (char c = kind->printable ? '!' : 1; c < 0x7f; c++)
		pr_buf_putc(&value, c);
	if (!kind->printable)
		pr_buf_putc(&value, 0x7f);
	pr_buf_puts(&value, " \t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x93\xae.");
	pr_buf_puts(&headers, "{\"plain\":\"1\",\"x-all\":");
	pr_json_put_string(&headers, pr_buf_text(&value));
	pr_buf_puts(&headers, "}");
	item->headers = pr_buf_text(&headers);
	open_to(SERVER_HOST, server.port);
	rig_publish(&rig, item, 1);
	CHECK_MSG(item->verdict == POSTROOM_DELIVERED, "%s", item->reason);
	kind->header(&server, item->id, "x-all", &got);
	CHECK_STR(pr_buf_text(&got), pr_buf_text(&value));
	pr_buf_reset(&got);
	kind->header(&server, item->id, "plain", &got);
	CHECK_STR(pr_buf_text(&got), "1");
}

/* One round of a long life: a batch of 500. */
static void publish_round(void)
{
	postroom_delivery *items = keyed_items(500);

	rig_publish(&rig, items, 500);
	CHECK_INT(count_of(items, 500, POSTROOM_DELIVERED), 500);
	pr_arena_reset(&rig.arena);
}

/*
 * A client library may free in a thread of its own, later: what that one has not come to
 * yet is not left behind. So the least that was in use counts before, and what remains after.
 */
TEST(a_hundred_thousand_messages_leak_nothing)
{
	size_t descriptors, memory = SIZE_MAX;
	int64_t patience_us;

	open_to(SERVER_HOST, server.port);
	for (int round = 0; round < 20; round++) {
		publish_round();
		if (round >= 10 && mallinfo2().uordblks < memory)
			memory = mallinfo2().uordblks;
	}
	descriptors = open_descriptors();
	for (int round = 20; round < 200; round++)
		publish_round();
	CHECK_INT(open_descriptors(), descriptors);
	patience_us = pr_mono_us() + AMPLE_MS * 1000;
	while (mallinfo2().uordblks >= memory + 64 * 1024) {
		CHECK_MSG(pr_mono_us() < patience_us, "%zu bytes became %zu", memory,
			  mallinfo2().uordblks);
		wait_a_moment();
	}
}
