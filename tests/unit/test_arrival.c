/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "consume/arrival.h"

#include <stdlib.h>

static struct pr_arena arena;

static struct pr_arrival make(struct pr_event event, struct pr_identity identity)
{
	struct pr_arrival arrival;
	struct pr_err err;

	if (!event.place)
		event.place = "orders/1-0";
	if (!event.body)
		event.body = "{\"n\":1}";
	if (!event.len)
		event.len = strlen(event.body);
	CHECK_INT(pr_arrival_make(&event, &identity, "books", &arena, &arrival, &err), POSTROOM_OK);
	return arrival;
}

TEST(N2_an_event_arrives_with_what_it_bears)
{
	struct pr_arrival arrival = make(
		(struct pr_event){ .id = "e1", .topic = "orders", .key = "k", .headers = "{\"a\":\"b\"}" },
		(struct pr_identity){ 0 });

	CHECK_INT(arrival.how, PR_ARRIVE_PENDING);
	CHECK_STR(arrival.id, "e1");
	CHECK_STR(arrival.topic, "orders");
	CHECK_STR(arrival.key, "k");
	CHECK_STR(arrival.headers, "{\"a\":\"b\"}");
	CHECK_STR(arrival.content_type, "application/json");
	CHECK(arrival.payload.len == 7 && !arrival.body.data);
}

TEST(N2_what_is_no_json_is_the_body_byte_for_byte)
{
	static const struct pr_event events[] = {
		{ .id = "e", .body = "not json", .len = 8 },
		{ .id = "e", .body = "{\"a\":\"\\u0000\"}", .len = 14 },
		{ .id = "e", .body = "1\0002", .len = 3 },
		{ .id = "e", .body = "17", .len = 2, .content_type = "text/plain" },
	};

	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		struct pr_arrival arrival = make(events[i], (struct pr_identity){ 0 });

		CHECK_INT(arrival.how, PR_ARRIVE_PENDING);
		CHECK(!arrival.payload.data && arrival.body.data == events[i].body);
		CHECK_INT(arrival.body.len, events[i].len);
		CHECK_STR(arrival.content_type,
			  events[i].content_type ? events[i].content_type : "application/octet-stream");
	}
}

TEST(N2_an_identity_is_found_where_it_was_said_to_be)
{
	static const struct {
		struct pr_identity identity;
		const char *headers, *body, *id; /* id NULL: none */
	} cases[] = {
		{ { .header = "ref" }, "{\"ref\":\"r\\u00e9\"}", "1", "r\xc3\xa9" },
		{ { .header = "ref" }, "{\"REF\":\"r\"}", "1", NULL },
		{ { .header = "ref" }, NULL, "1", NULL },
		{ { .path = "a.b" }, NULL, "{\"a\":{\"b\":\"x\"}}", "x" },
		{ { .path = "a.b" }, NULL, "{\"a\":{\"b\":17}}", "17" },
		{ { .path = "a" }, NULL, "{\"a\":1,\"\\u0061\":2}", "2" },
		{ { .path = "a.b" }, NULL, "{\"a\":{\"b\":{}}}", NULL },
		{ { .path = "a.b" }, NULL, "{\"a\":[]}", NULL },
		{ { .path = "a.b" }, NULL, "{\"a.b\":1}", NULL },
		{ { .path = "a" }, NULL, "no json", NULL },
		{ { .path = "a" }, NULL, "{\"a\":\"\"}", NULL },
		{ { .path = "a" }, NULL, "{\"a\":null}", NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pr_arrival arrival = make((struct pr_event){ .id = "not this one",
								    .headers = cases[i].headers,
								    .body = cases[i].body },
						 cases[i].identity);

		CHECK_INT(arrival.how, cases[i].id ? PR_ARRIVE_PENDING : PR_ARRIVE_DEAD);
		CHECK_STR(arrival.id, cases[i].id ? cases[i].id : "orders/1-0");
	}
}

TEST(N2_what_no_table_takes_arrives_dead_under_its_place)
{
	char huge[POSTROOM_EVENT_ID_MAX + 2];
	const struct pr_event events[] = {
		{ .topic = "t" },
		{ .id = "", .topic = "t" },
		{ .id = huge, .topic = "t" },
		{ .id = "\xff", .topic = "t" },
		{ .id = "e", .topic = "a\nb" },
		{ .id = "e", .topic = "t", .key = huge },
		{ .id = "e", .topic = "t", .headers = "[]" },
		{ .id = "e", .topic = "t", .headers = "{\"a\":1}" },
		{ .id = "e", .topic = "t", .headers = "nonsense" },
	};

	memset(huge, 'x', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = '\0';
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		struct pr_arrival arrival = make(events[i], (struct pr_identity){ 0 });

		CHECK_INT(arrival.how, PR_ARRIVE_DEAD);
		CHECK_STR(arrival.id, "orders/1-0");
		CHECK(arrival.error && *arrival.error);
		CHECK(pr_headers_valid(arrival.headers, strlen(arrival.headers)));
		CHECK(pr_name_check("topic", arrival.topic, POSTROOM_TOPIC_MAX, NULL) >= 0);
		CHECK(pr_text_check("key", arrival.key, POSTROOM_KEY_MAX, NULL) >= 0);
		CHECK(arrival.payload.data);
	}
}

TEST(N2_what_is_larger_than_a_row_may_be_arrives_dead_without_it)
{
	char *body = calloc(1, POSTROOM_PAYLOAD_MAX + 1);
	struct pr_arrival arrival;

	CHECK(body != NULL);
	arrival = make((struct pr_event){ .id = "e", .body = body, .len = POSTROOM_PAYLOAD_MAX },
		       (struct pr_identity){ 0 });
	CHECK_INT(arrival.how, PR_ARRIVE_PENDING);
	arrival = make((struct pr_event){ .id = "e", .body = body, .len = POSTROOM_PAYLOAD_MAX + 1 },
		       (struct pr_identity){ 0 });
	CHECK_INT(arrival.how, PR_ARRIVE_DEAD);
	CHECK_STR(arrival.id, "orders/1-0");
	CHECK(!arrival.payload.data && !arrival.body.data);
	CHECK(strstr(arrival.error, "67108865 bytes") && strstr(arrival.error, "left out"));
	free(body);
}

TEST(N2_a_place_that_is_too_long_is_known_by_its_digest)
{
	char place[POSTROOM_EVENT_ID_MAX + 2];
	struct pr_arrival one, other;

	memset(place, 'x', sizeof(place) - 1);
	place[sizeof(place) - 1] = '\0';
	one = make((struct pr_event){ .place = place }, (struct pr_identity){ 0 });
	other = make((struct pr_event){ .place = place }, (struct pr_identity){ 0 });
	CHECK(strncmp(one.id, "sha256:", 7) == 0);
	CHECK_INT(strlen(one.id), 7 + 64);
	CHECK_STR(one.id, other.id);
}
