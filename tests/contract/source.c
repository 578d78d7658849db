/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One contract for every source that is a broker. Each TEST() here runs once for each of
 * FOR_EACH_SOURCE, against a real one; what is read was written by our own sink of it.
 */
#include "contract/source.h"

#include "base/time.h"
#include "servers/proxy.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((size_t)1024 * 1024)
#define BATCH 40
#define SHORT_MS 200 /* for what is meant to run out of time */
#define WAIT_MS 1000
#define LIMIT 1000
#define SEEN_MAX 20000

static const struct source_backend *backend;
static struct server server;
static struct proxy proxy;
static struct rig rig;
static char name[32]; /* of what this test reads from: a server may have several tests */

/* A build may have no source that is a broker: then nobody calls these. */
__attribute__((unused)) static void begin_test(const struct source_backend *which)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };

	backend = which;
	snprintf(name, sizeof(name), "orders-%d", (int)getpid());
	rig_init(&rig);
	server.port = server_free_port();
	backend->server->start(&server);
	proxy_start(&proxy, server.port);
	if (backend->prepare)
		backend->prepare(&server, name);
	backend->put_sink_url(&url, SERVER_HOST, server.port, name);
	rig_open(&rig, pr_buf_text(&url));
}

__attribute__((unused)) static void end_test(void)
{
	rig_release(&rig);
	proxy_end(&proxy);
	if (!backend->server->shared)
		server_kill(&server);
}

#define REGISTER_FOR(test_name, which)                                                             \
	static void test_name##_of_##which(void)                                                   \
	{                                                                                          \
		begin_test(&which);                                                                \
		test_name();                                                                       \
		end_test();                                                                        \
	}                                                                                          \
	__attribute__((constructor)) static void register_##test_name##_##which(void)              \
	{                                                                                          \
		static struct test test = { .name = #test_name " " #which,                         \
					    .run = test_name##_of_##which };                       \
		test_register(&test);                                                              \
	}

#undef TEST
#define TEST(test_name)                                                                            \
	__attribute__((unused)) static void test_name(void);                                       \
	FOR_EACH_SOURCE(REGISTER_FOR, test_name)                                                   \
	static void test_name(void)

static struct pr_source *open_source(int port, const char *group, int64_t lease_ms)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_source *source = NULL;
	int status;

	backend->put_url(&url, SERVER_HOST, port, name);
	status = pr_source_open(pr_buf_text(&url), group, lease_ms, &source, &rig.err);
	CHECK_MSG(status == POSTROOM_OK, "%s: %s", pr_buf_text(&url), rig.err.text);
	return source;
}

static struct pr_source *open_here(void)
{
	return open_source(server.port, "readers", AMPLE_MS);
}

/* What read() says when it may wait for so long. */
static int try_read(struct pr_source *source, struct pr_events *events, size_t limit,
		    int64_t wait_ms)
{
	pr_events_reset(events);
	rig.flight.begin_until_us = pr_mono_us() + wait_ms * 1000;
	pr_err_clear(&rig.err);
	return source->ops->read(source, events, limit, &rig.flight, &rig.err);
}

/* Waits until there is something, a second at a time, as intake does. */
static void read_some(struct pr_source *source, struct pr_events *events, size_t limit)
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;

	do {
		int status = try_read(source, events, limit, WAIT_MS);

		CHECK_MSG(status == POSTROOM_OK, "read: %d %s", status, rig.err.text);
		CHECK_MSG(events->count > 0 || pr_mono_us() < patience_us, "nothing has come");
	} while (events->count == 0);
	CHECK(events->count <= limit);
}

static void ack(struct pr_source *source, const struct pr_events *events)
{
	int status = source->ops->ack(source, events, &rig.flight, &rig.err);

	CHECK_MSG(status == POSTROOM_OK, "ack: %s", rig.err.text);
}

/* How often each event "id-N" has come. */
struct seen {
	int times[SEEN_MAX];
	size_t count, different;
};

static void note(struct seen *seen, const struct pr_events *events)
{
	for (size_t i = 0; i < events->count; i++) {
		const char *id = events->list[i].id;

		CHECK(id && strncmp(id, "id-", 3) == 0 && atoi(id + 3) < SEEN_MAX);
		seen->different += seen->times[atoi(id + 3)]++ == 0;
		seen->count++;
	}
}

/* Each of the first count has come, and none but those of them. */
static void check_each_once(const struct seen *seen, size_t count)
{
	CHECK_INT(seen->count, count);
	for (size_t i = 0; i < count; i++)
		CHECK_MSG(seen->times[i] == 1, "id-%zu has come %d times", i, seen->times[i]);
}

static struct seen *new_seen(void)
{
	struct seen *seen = pr_arena_alloc(&rig.arena, sizeof(*seen));

	CHECK(seen != NULL);
	memset(seen, 0, sizeof(*seen));
	return seen;
}

/* Without an acknowledgement: count of them, which none of the reads before has given. */
static void read_and_keep(struct pr_source *source, struct seen *seen, size_t count)
{
	struct pr_events events = { 0 };

	do {
		read_some(source, &events, count);
	} while (backend->insists && events.count < count);
	note(seen, &events);
	pr_events_release(&events);
}

/* Reads, and acknowledges if asked to, until count more have been given. */
static void read_all(struct pr_source *source, struct seen *seen, size_t count, bool acknowledge)
{
	struct pr_events events = { 0 };
	size_t end = seen->count + count;

	while (seen->count < end) {
		if (!acknowledge) {
			read_and_keep(source, seen, end - seen->count);
			continue;
		}
		read_some(source, &events, end - seen->count);
		note(seen, &events);
		ack(source, &events);
	}
	pr_events_release(&events);
}

/* There is nothing to read, as far as one can see in a while; a connection may take longer. */
static void check_nothing_comes(struct pr_source *source)
{
	struct pr_events events = { 0 };
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;

	while (try_read(source, &events, LIMIT, SHORT_MS) < 0) {
		CHECK_INT(rig.err.status, POSTROOM_UNAVAILABLE);
		CHECK_MSG(pr_mono_us() < patience_us, "%s", rig.err.text);
	}
	CHECK_MSG(events.count == 0, "%s has come", events.list[0].place);
	pr_events_release(&events);
}

static void publish(postroom_delivery *items, size_t count)
{
	rig_publish(&rig, items, count);
	for (size_t i = 0; i < count; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_DELIVERED, "%s: %s", items[i].id,
			  items[i].reason);
}

/* The messages id-FIRST … */
static void publish_from(size_t first, size_t count)
{
	postroom_delivery *items = rig_items(&rig, count);

	for (size_t i = 0; i < count; i++)
		items[i] = rig_item(&rig, (int)(first + i), NULL, NULL);
	publish(items, count);
}

static void check_event(const struct pr_event *event, const postroom_delivery *item)
{
	const char *body = item->body ? item->body : item->payload;
	size_t len = item->body ? item->body_len : item->payload_len;

	CHECK_STR(event->id, item->id);
	CHECK_STR(event->topic, item->topic);
	CHECK(!event->key == !item->key);
	if (item->key)
		CHECK_STR(event->key, item->key);
	CHECK_STR(event->content_type, item->content_type);
	CHECK_MSG(event->len == len, "%s: %zu bytes instead of %zu", event->id, event->len, len);
	CHECK(memcmp(event->body, body, len) == 0);
	CHECK(event->body[len] == '\0');
	CHECK(event->place && event->place[0]);
}

/* Those that a message gave; a sink may add some of its own. */
static void check_header(const struct pr_event *event, const char *header, const char *expected)
{
	PR_CLEANUP_BUF struct pr_buf got = { 0 };
	struct pr_span headers = { event->headers, event->headers ? strlen(event->headers) : 0 };
	struct pr_span value;

	CHECK_MSG(headers.data && pr_json_check(headers.data, headers.len, NULL), "%s: %s",
		  event->id, event->headers);
	value = member(headers, header);
	CHECK_MSG(value.data, "%s has no header %s: %s", event->id, header, event->headers);
	pr_json_decode(value, &got);
	CHECK_STR(pr_buf_text(&got), expected);
}

/* One after the other: where they come to different places, their order is not ours. */
static void publish_and_check(struct pr_source *source, postroom_delivery *item)
{
	struct pr_events events = { 0 };

	publish(item, 1);
	read_some(source, &events, LIMIT);
	CHECK_INT(events.count, 1);
	check_event(events.list, item);
	if (strcmp(item->headers, "{}") != 0) {
		check_header(events.list, "traceparent", "00-ab-cd-01");
		check_header(events.list, "x-name", "Zo\xc3\xab \\ \"quoted\" \xf0\x9f\x93\xae");
	}
	ack(source, &events);
	pr_events_release(&events);
}

TEST(N2_what_is_read_has_the_id_topic_key_headers_and_bytes_that_the_sink_sent)
{
	unsigned char *large = malloc(MIB);
	struct pr_source *source = open_here();
	postroom_delivery items[8];

	CHECK(large != NULL);
	for (size_t i = 0; i < MIB; i++)
		large[i] = (unsigned char)(i * 7 + i / 251);
	for (int i = 0; i < 8; i++)
		items[i] = rig_item(&rig, i, i % 2 ? "customer 7 \xc3\xa9" : NULL, NULL);
	items[1].headers = "{\"traceparent\":\"00-ab-cd-01\",\"x-name\":\"Zo\\u00eb \\\\ "
			   "\\\"quoted\\\" \xf0\x9f\x93\xae\"}";
	items[2].topic = "заказы.созданы";
	items[3].topic = "x'\"`$(y)\\z%2f{topic}";
	items[4].payload = " [1 ,\t2] ";
	items[4].payload_len = strlen(items[4].payload);
	for (int i = 5; i < 8; i++) {
		items[i].content_type = "application/octet-stream";
		items[i].payload = "null";
		items[i].payload_len = 4;
		items[i].body = large;
	}
	items[5].body_len = 0;
	items[6].body_len = 256;
	items[7].body_len = MIB;
	for (int i = 0; i < 8; i++)
		publish_and_check(source, &items[i]);
	pr_source_close(source);
	free(large);
}

TEST(what_is_acknowledged_does_not_come_again)
{
	struct seen *seen = new_seen();
	struct pr_source *source = open_source(server.port, "readers", backend->shortest_lease_ms);

	publish_from(0, BATCH);
	read_all(source, seen, BATCH, true);
	check_each_once(seen, BATCH);
	check_nothing_comes(source);
	pr_source_close(source);
	source = open_source(server.port, "readers", backend->shortest_lease_ms);
	check_nothing_comes(source);
	publish_from(BATCH, 1);
	read_all(source, seen, 1, true);
	check_each_once(seen, BATCH + 1);
	pr_source_close(source);
}

TEST(a_new_group_starts_at_the_oldest_event_and_has_them_all)
{
	static const char *const groups[] = { "readers", "writers" };

	publish_from(0, BATCH);
	for (size_t i = 0; i < (backend->groups ? 2 : 1); i++) {
		struct pr_source *source = open_source(server.port, groups[i], AMPLE_MS);
		struct seen *seen = new_seen();

		read_all(source, seen, BATCH, true);
		check_each_once(seen, BATCH);
		pr_source_close(source);
	}
}

/* Silence is what --drain ends with: a broker that had no time to answer was not silent. */
TEST(N2_a_first_read_gives_what_there_is_though_it_may_not_wait)
{
	postroom_delivery item = rig_item(&rig, 0, NULL, "null");
	struct pr_source *source = open_here();
	struct pr_events events = { 0 };

	item.body = pr_arena_alloc(&rig.arena, MIB); /* it is on its way for a while */
	CHECK(item.body != NULL);
	memset((void *)item.body, 'x', MIB);
	item.body_len = MIB;
	publish(&item, 1);
	CHECK_MSG(try_read(source, &events, LIMIT, 0) == POSTROOM_OK, "%s", rig.err.text);
	CHECK_INT(events.count, 1);
	ack(source, &events);
	check_nothing_comes(source);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(what_an_instance_had_when_its_connection_broke_comes_to_another)
{
	struct seen *lost = new_seen(), *seen = new_seen();
	struct pr_source *dead, *source;

	if (backend->expect_loss)
		backend->expect_loss();
	publish_from(0, BATCH);
	dead = open_source(proxy.port, "readers", backend->shortest_lease_ms);
	read_all(dead, lost, BATCH, false);
	check_each_once(lost, BATCH);
	proxy_end(&proxy);
	source = open_source(server.port, "readers", backend->shortest_lease_ms);
	read_all(source, seen, BATCH, true);
	check_each_once(seen, BATCH);
	check_nothing_comes(source);
	pr_source_close(dead);
	pr_source_close(source);
	proxy_start(&proxy, server.port);
}

TEST(what_was_not_acknowledged_comes_back_at_once_after_a_close)
{
	struct seen *left = new_seen(), *seen = new_seen();
	struct pr_source *source = open_here();

	publish_from(0, BATCH);
	read_all(source, left, BATCH, false);
	pr_source_close(source);
	source = open_source(server.port, "readers",
			     backend->returns ? AMPLE_MS : backend->shortest_lease_ms);
	read_all(source, seen, BATCH, true);
	check_each_once(seen, BATCH);
	pr_source_close(source);
}

/* Members of a group may have to wait for each other. */
static void settle(struct pr_source *sources[2])
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;
	struct pr_events events = { 0 };
	bool ready[2] = { false };

	rig.flight.timeout_ms = SHORT_MS;
	for (size_t i = 0; !ready[0] || !ready[1]; i = 1 - i) {
		ready[i] = try_read(sources[i], &events, LIMIT, SHORT_MS) == POSTROOM_OK;
		CHECK_MSG(ready[i] || rig.err.status == POSTROOM_UNAVAILABLE, "%s", rig.err.text);
		CHECK_MSG(pr_mono_us() < patience_us, "%s", rig.err.text);
		CHECK_INT(events.count, 0);
	}
	rig.flight.timeout_ms = AMPLE_MS;
	pr_events_release(&events);
}

/* One of them in its turn: the others are not read meanwhile, and it may have to wait for them. */
static size_t take_turn(struct pr_source *source, struct seen *seen)
{
	struct pr_events events = { 0 };
	size_t count = 0;
	int status;

	rig.flight.timeout_ms = SHORT_MS;
	status = try_read(source, &events, BATCH / 4, SHORT_MS);
	rig.flight.timeout_ms = AMPLE_MS;
	CHECK_MSG(status == POSTROOM_OK || status == POSTROOM_UNAVAILABLE, "%s", rig.err.text);
	if (status == POSTROOM_OK && events.count > 0) {
		ack(source, &events);
		note(seen, &events);
		count = events.count;
	}
	pr_events_release(&events);
	return count;
}

TEST(N2_instances_of_a_group_share_the_events_and_none_is_lost_or_given_to_both)
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;
	struct pr_source *sources[2] = { open_here(), open_here() };
	struct seen *seen = new_seen();
	size_t had[2] = { 0 }, total = 0;

	settle(sources);
	/* A group may have lost one of them to a busy machine; it has him back soon. */
	do {
		publish_from(total, 10 * BATCH);
		total += 10 * BATCH;
		while (seen->count < total) {
			CHECK_MSG(pr_mono_us() < patience_us, "%zu and %zu of %zu", had[0], had[1],
				  total);
			for (size_t i = 0; i < 2; i++)
				had[i] += take_turn(sources[i], seen);
		}
	} while (backend->shares && (had[0] == 0 || had[1] == 0));
	check_each_once(seen, total);
	for (size_t i = 0; i < 2; i++) {
		check_nothing_comes(sources[i]);
		pr_source_close(sources[i]);
	}
}

/* Who is given it can not be said before; both are there to be asked. */
static struct pr_source *find_busy(struct pr_source *sources[2], struct pr_events *kept)
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;

	for (size_t i = 0;; i = 1 - i) {
		CHECK_MSG(try_read(sources[i], kept, LIMIT, SHORT_MS) == POSTROOM_OK, "%s",
			  rig.err.text);
		CHECK_MSG(pr_mono_us() < patience_us, "nothing has come");
		if (kept->count > 0)
			return sources[i];
	}
}

TEST(what_is_being_worked_on_is_kept_beyond_the_lease)
{
	struct pr_source *sources[2], *busy, *other;
	struct pr_events kept = { 0 }, events = { 0 };
	int64_t until_us;

	for (size_t i = 0; i < 2; i++)
		sources[i] = open_source(server.port, "readers", backend->shortest_lease_ms);
	settle(sources);
	publish_from(0, 1);
	busy = find_busy(sources, &kept);
	other = sources[busy == sources[0]];
	until_us = pr_mono_us() + 2 * backend->shortest_lease_ms * 1000;
	while (pr_mono_us() < until_us) {
		if (busy->ops->keep)
			CHECK_MSG(busy->ops->keep(busy, &kept, &rig.flight, &rig.err) ==
					  POSTROOM_OK,
				  "keep: %s", rig.err.text);
		CHECK_INT(try_read(other, &events, LIMIT, backend->shortest_lease_ms / 4),
			  POSTROOM_OK);
		CHECK_INT(events.count, 0);
	}
	ack(busy, &kept);
	pr_source_close(busy);
	check_nothing_comes(other);
	pr_source_close(other);
	pr_events_release(&kept);
	pr_events_release(&events);
}

TEST(an_event_without_an_id_has_the_same_place_when_it_comes_again)
{
	struct pr_source *source = open_source(server.port, "readers", AMPLE_MS);
	struct pr_events events = { 0 };
	char place[300];

	backend->publish_foreign(&server, name, "what others write");
	read_some(source, &events, LIMIT);
	CHECK_INT(events.count, 1);
	CHECK(events.list[0].id == NULL);
	CHECK_STR(events.list[0].body, "what others write");
	snprintf(place, sizeof(place), "%s", events.list[0].place);
	CHECK(place[0]);
	pr_source_close(source);
	source = open_source(server.port, "readers",
			     backend->returns ? AMPLE_MS : backend->shortest_lease_ms);
	read_some(source, &events, LIMIT);
	CHECK_STR(events.list[0].place, place);
	ack(source, &events);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(a_read_gives_no_more_than_its_limit_and_its_bytes)
{
	struct pr_source *source = open_here();
	struct pr_events events = { 0 };
	struct seen *seen = new_seen();
	char *large = malloc(MIB);

	CHECK(large != NULL);
	memset(large, 'x', MIB);
	for (int i = 0; i < 24; i++) {
		/* A key each: where they come to is not left to chance, a place may be small. */
		const char *key = pr_arena_printf(&rig.arena, "key-%d", i);
		postroom_delivery item = rig_item(&rig, i, key, "null");

		item.body = large;
		item.body_len = i < 12 ? MIB : 10;
		publish(&item, 1);
	}
	while (seen->count < 24) {
		size_t bytes = 0;

		read_some(source, &events, 5 + seen->count);
		for (size_t i = 0; i < events.count; i++)
			bytes += events.list[i].len;
		CHECK(events.count == 1 || bytes <= PR_SOURCE_BYTES);
		note(seen, &events);
		ack(source, &events);
	}
	check_each_once(seen, 24);
	check_nothing_comes(source);
	pr_source_close(source);
	pr_events_release(&events);
	free(large);
}

static void *stop_soon(void *context)
{
	(void)context;
	for (int i = 0; i < 10; i++)
		wait_a_moment();
	pr_stop_request(&rig.stop, AMPLE_MS);
	return NULL;
}

TEST(D4_a_read_that_waits_is_ended_by_a_stop)
{
	struct pr_source *source = open_here();
	struct pr_events events = { 0 };
	int64_t begun_us = pr_mono_us();
	pthread_t stopper;

	check_nothing_comes(source);
	CHECK(pthread_create(&stopper, NULL, stop_soon, NULL) == 0);
	CHECK_INT(try_read(source, &events, LIMIT, AMPLE_MS), POSTROOM_STOPPED);
	CHECK(pr_mono_us() - begun_us < AMPLE_MS * 1000 / 2);
	CHECK_INT(events.count, 0);
	pthread_join(stopper, NULL);
	CHECK_INT(try_read(source, &events, LIMIT, AMPLE_MS), POSTROOM_STOPPED);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(D4_what_was_read_can_be_acknowledged_after_a_stop)
{
	struct pr_source *source = open_here();
	struct pr_events events = { 0 };

	publish_from(0, 1);
	read_some(source, &events, LIMIT);
	pr_stop_request(&rig.stop, AMPLE_MS);
	ack(source, &events);
	pr_source_close(source);
	pr_stop_release(&rig.stop);
	CHECK_INT(pr_stop_init(&rig.stop, &rig.err), POSTROOM_OK);
	source = open_source(server.port, "readers", backend->shortest_lease_ms);
	check_nothing_comes(source);
	pr_source_close(source);
	pr_events_release(&events);
}

/* Ten times as long as is promised is a broken promise. */
static int read_shortly(struct pr_source *source, struct pr_events *events)
{
	int64_t begun_us = pr_mono_us();
	int status;

	rig.flight.timeout_ms = SHORT_MS;
	status = try_read(source, events, LIMIT, SHORT_MS);
	rig.flight.timeout_ms = AMPLE_MS;
	CHECK(pr_mono_us() - begun_us < 10 * 2 * SHORT_MS * 1000);
	return status;
}

/* As intake does: an outage is waited out with the same instance. */
static void read_all_in_the_end(struct pr_source *source, struct seen *seen, size_t count)
{
	struct pr_events events = { 0 };

	while (seen->different < count) {
		if (try_read(source, &events, LIMIT, SHORT_MS) < 0) {
			CHECK_INT(rig.err.status, POSTROOM_UNAVAILABLE);
			wait_a_moment();
			continue;
		}
		note(seen, &events);
		if (events.count > 0)
			ack(source, &events);
	}
	pr_events_release(&events);
}

/* From a server that answers nothing: only what it has sent ahead. */
static void read_ahead(struct pr_source *source, struct seen *seen)
{
	struct pr_events events = { 0 };

	read_shortly(source, &events);
	CHECK(backend->pushes || events.count == 0);
	/* Where an acknowledgement is answered it can not be now: they come again. */
	if (events.count > 0 && !backend->insists) {
		note(seen, &events);
		ack(source, &events);
	}
	pr_events_release(&events);
}

TEST(D5_it_reconnects_by_itself_after_the_server_was_killed)
{
	struct pr_source *source = open_here();
	struct pr_events events = { 0 };
	struct seen *seen = new_seen();

	if (backend->forgets)
		return pr_source_close(source);
	publish_from(0, BATCH);
	read_all(source, seen, BATCH / 2, true);
	server_kill(&server);
	/* What was sent ahead can not be acknowledged any more, and comes again. */
	while (read_shortly(source, &events) == POSTROOM_OK)
		CHECK(backend->pushes && events.count > 0);
	CHECK_INT(rig.err.status, POSTROOM_UNAVAILABLE);
	CHECK_MSG(strlen(rig.err.text) > 20, "%s", rig.err.text);
	backend->server->start(&server);
	read_all_in_the_end(source, seen, BATCH);
	if (!backend->repeats)
		check_each_once(seen, BATCH);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(nobody_there_is_an_outage)
{
	struct pr_source *source = open_source(server_free_port(), "readers", AMPLE_MS);
	struct pr_events events = { 0 };

	CHECK_INT(read_shortly(source, &events), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, SERVER_HOST);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(the_deadline_is_kept_when_the_server_hangs)
{
	struct pr_source *source = open_here(), *late = open_here();
	struct pr_events events = { 0 };
	struct seen *seen = new_seen();

	publish_from(0, BATCH);
	read_all(source, seen, 1, true);
	server_stop(&server);
	read_ahead(source, seen);
	read_shortly(late, &events);
	CHECK_INT(events.count, 0);
	CHECK(kill(server.pid, SIGCONT) == 0);
	pr_source_close(late);
	read_all_in_the_end(source, seen, BATCH);
	check_each_once(seen, BATCH);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(answers_that_come_late_and_byte_by_byte_are_understood)
{
	static const enum proxy_mode modes[] = { PROXY_BYTES, PROXY_DELAY };
	struct pr_source *source = open_source(proxy.port, "readers", AMPLE_MS);
	struct seen *seen = new_seen();

	for (size_t i = 0; i < 2; i++) {
		proxy.mode = modes[i];
		publish_from(i * BATCH, BATCH);
		read_all(source, seen, BATCH, true);
	}
	check_each_once(seen, 2 * BATCH);
	pr_source_close(source);
}

TEST(N2_what_was_lost_with_the_answer_comes_again)
{
	struct pr_source *source = open_source(proxy.port, "readers", backend->shortest_lease_ms);
	struct seen *seen = new_seen();

	publish_from(0, BATCH);
	read_all(source, seen, 1, true);
	proxy.mode = PROXY_CUT;
	read_ahead(source, seen);
	proxy.mode = PROXY_PASS;
	read_all_in_the_end(source, seen, BATCH);
	check_each_once(seen, BATCH);
	pr_source_close(source);
}

TEST(wrong_credentials_are_an_outage_and_are_not_repeated)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_events events = { 0 };
	struct pr_source *source;

	if (!backend->put_intruder_url)
		return;
	backend->put_intruder_url(&url, SERVER_HOST, server.port, name);
	CHECK_INT(pr_source_open(pr_buf_text(&url), "readers", AMPLE_MS, &source, &rig.err),
		  POSTROOM_OK);
	CHECK_INT(try_read(source, &events, LIMIT, SHORT_MS), POSTROOM_UNAVAILABLE);
	CHECK_MSG(strlen(rig.err.text) > 20, "%s", rig.err.text);
	CHECK(!strstr(rig.err.text, "wrong-secret"));
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(what_is_missing_is_named_until_it_is_there)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_events events = { 0 };
	struct pr_source *source;

	backend->put_url(&url, SERVER_HOST, server.port, "not-made-yet");
	CHECK_INT(pr_source_open(pr_buf_text(&url), "readers", AMPLE_MS, &source, &rig.err),
		  POSTROOM_OK);
	if (backend->makes) {
		CHECK_INT(try_read(source, &events, LIMIT, SHORT_MS), POSTROOM_OK);
	} else {
		CHECK_INT(try_read(source, &events, LIMIT, AMPLE_MS), POSTROOM_UNAVAILABLE);
		CHECK_CONTAINS(rig.err.text, "not-made-yet");
		backend->prepare(&server, "not-made-yet");
		while (try_read(source, &events, LIMIT, SHORT_MS) < 0)
			wait_a_moment();
	}
	CHECK_INT(events.count, 0);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(wrong_settings_are_clear_errors_at_open)
{
	for (size_t i = 0; i < 16 && backend->wrong[i]; i++) {
		struct pr_source *none = NULL;
		struct pr_err err = { 0 };

		CHECK_MSG(pr_source_open(backend->wrong[i], "readers", AMPLE_MS, &none, &err) ==
				  POSTROOM_SINK,
			  "%s: %d %s", backend->wrong[i], err.status, err.text);
		CHECK(none == NULL);
		CHECK_MSG(strlen(err.text) > 20, "%s: %s", backend->wrong[i], err.text);
	}
}

/* A client library may free in a thread of its own, later. */
TEST(ten_thousand_events_leave_nothing_behind)
{
	struct pr_source *source = open_here();
	struct pr_events events = { 0 };
	size_t descriptors = 0, memory = 0, total = 0;
	int64_t patience_us;

	for (size_t round = 0; round < 20; round++) {
		publish_from(round * 500, 500);
		pr_arena_reset(&rig.arena);
		for (size_t came = 0; came < 500; came += events.count) {
			read_some(source, &events, 100);
			ack(source, &events);
			total += events.count;
		}
		if (round == 9) {
			descriptors = open_descriptors();
			memory = mallinfo2().uordblks;
		}
	}
	CHECK_INT(total, 10000);
	CHECK_INT(open_descriptors(), descriptors);
	patience_us = pr_mono_us() + AMPLE_MS * 1000;
	while (mallinfo2().uordblks >= memory + 64 * 1024) {
		CHECK_MSG(pr_mono_us() < patience_us, "%zu bytes became %zu", memory,
			  mallinfo2().uordblks);
		wait_a_moment();
	}
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(instances_that_come_and_go_leave_no_descriptor_behind)
{
	struct pr_source *source = open_here();
	size_t before;

	check_nothing_comes(source);
	pr_source_close(source);
	before = open_descriptors();
	for (int round = 0; round < 3; round++) {
		source = open_here();
		check_nothing_comes(source);
		pr_source_close(source);
		CHECK_INT(open_descriptors(), before);
	}
}

TEST(it_describes_itself)
{
	struct pr_source *source = open_here();
	const struct pr_source_ops *ops = source->ops;

	CHECK(ops->summary && ops->example && ops->params && ops->schemes[0]);
	CHECK(strncmp(ops->example, ops->schemes[0], strlen(ops->schemes[0])) == 0);
	for (const struct pr_param *param = ops->params; param->name; param++)
		CHECK_MSG(param->help && param->help[0], "%s has no help", param->name);
	pr_source_close(source);
}
