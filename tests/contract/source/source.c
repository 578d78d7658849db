/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of every broker source about reading and acknowledging. */
#include "contract/source/rig.h"

#include "base/time.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

static void check_event(const struct pr_event *event, const postroom_delivery *item)
{
	const char *body = item->body ? item->body : item->payload;
	size_t len = item->body ? item->body_len : item->payload_len;

	CHECK_STR(event->id, item->id);
	CHECK_STR(event->topic, item->topic);
	CHECK(!event->key == !item->key);
	if (item->key)
		CHECK_STR(event->key, item->key);
	CHECK(!event->tenant_id == !item->tenant_id);
	if (item->tenant_id)
		CHECK_STR(event->tenant_id, item->tenant_id);
	CHECK(!event->correlation_id == !item->correlation_id);
	if (item->correlation_id)
		CHECK_STR(event->correlation_id, item->correlation_id);
	CHECK_STR(event->content_type, item->content_type);
	CHECK_MSG(event->len == len, "%s: %zu bytes instead of %zu", event->id, event->len, len);
	CHECK(memcmp(event->body, body, len) == 0);
	CHECK(event->body[len] == '\0');
	CHECK(event->broker_position && event->broker_position[0]);
}

/* Headers of the message; a sink may add some of its own. */
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

TEST(N2_event_has_id_topic_key_headers_and_bytes_of_the_sink)
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
	items[2].tenant_id = "0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c11";
	items[2].correlation_id = "order 7/\xc3\xa9, \"a\" %41";
	items[4].correlation_id = "c";
	items[6].tenant_id = items[2].tenant_id;
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

TEST(acknowledged_event_is_not_redelivered)
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

/* Silence is what --drain ends with: a broker that had no time to answer was not silent. */
TEST(N2_first_read_returns_available_events_without_waiting)
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

TEST(event_without_an_id_has_the_same_position_when_redelivered)
{
	struct pr_source *source = open_source(server.port, "readers", AMPLE_MS);
	struct pr_events events = { 0 };
	char broker_position[300];

	backend->publish_foreign(&server, name, "what others write");
	read_some(source, &events, LIMIT);
	CHECK_INT(events.count, 1);
	CHECK(events.list[0].id == NULL);
	CHECK_STR(events.list[0].body, "what others write");
	snprintf(broker_position, sizeof(broker_position), "%s", events.list[0].broker_position);
	CHECK(broker_position[0]);
	pr_source_close(source);
	source = open_source(server.port, "readers", AMPLE_MS);
	read_some(source, &events, LIMIT);
	CHECK_STR(events.list[0].broker_position, broker_position);
	ack(source, &events);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(read_respects_its_limits)
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

TEST(D4_a_read_that_waits_is_ended_by_a_stop)
{
	struct pr_source *source = open_here();
	struct pr_events events = { 0 };
	int64_t begun_us = pr_mono_us();
	pthread_t stopper;

	check_nothing_comes(source);
	CHECK(pthread_create(&stopper, NULL, rig_stop_soon, &rig) == 0);
	CHECK_INT(try_read(source, &events, LIMIT, AMPLE_MS), POSTROOM_STOPPED);
	CHECK(pr_mono_us() - begun_us < AMPLE_MS * 1000 / 2);
	CHECK_INT(events.count, 0);
	pthread_join(stopper, NULL);
	CHECK_INT(try_read(source, &events, LIMIT, AMPLE_MS), POSTROOM_STOPPED);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(D4_events_read_before_stop_can_be_acknowledged)
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

TEST(invalid_settings_are_clear_errors_at_open)
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
TEST(ten_thousand_events_leak_nothing)
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

TEST(opening_and_closing_instances_leaks_no_descriptor)
{
	struct pr_source *source;
	size_t before;

	if (backend->take_time)
		backend->take_time();
	source = open_here();
	check_nothing_comes(source);
	pr_source_close(source);
	before = open_descriptors();
	for (int round = 0; round < 2; round++) {
		source = open_here();
		check_nothing_comes(source);
		pr_source_close(source);
		CHECK_INT(open_descriptors(), before);
	}
}

TEST(sink_describes_itself)
{
	struct pr_source *source = open_here();
	const struct pr_source_ops *ops = source->ops;

	CHECK(ops->summary && ops->example && ops->params && ops->schemes[0]);
	CHECK(strncmp(ops->example, ops->schemes[0], strlen(ops->schemes[0])) == 0);
	for (const struct pr_param *param = ops->params; param->name; param++)
		CHECK_MSG(param->help && param->help[0], "%s has no help", param->name);
	pr_source_close(source);
}
