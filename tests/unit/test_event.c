/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "consume/event.h"

#include <stdlib.h>

static struct pr_arena arena;

static struct pr_incoming_event make(struct pr_event event, struct pr_identity identity)
{
	struct pr_incoming_event incoming;
	struct pr_err err;

	if (!event.broker_position)
		event.broker_position = "orders/1-0";
	if (!event.body)
		event.body = "{\"n\":1}";
	if (!event.len)
		event.len = strlen(event.body);
	CHECK_INT(pr_incoming_event_make(&event, &identity, "books", &arena, &incoming, &err),
		  POSTROOM_OK);
	return incoming;
}

TEST(N2_event_keeps_all_its_attributes)
{
	struct pr_incoming_event incoming = make(
		(struct pr_event){
			.id = "e1", .topic = "orders", .key = "k", .headers = "{\"a\":\"b\"}" },
		(struct pr_identity){ 0 });

	CHECK_INT(incoming.how, PR_INSERT_PENDING);
	CHECK_STR(incoming.id, "e1");
	CHECK_STR(incoming.topic, "orders");
	CHECK_STR(incoming.key, "k");
	CHECK_STR(incoming.headers, "{\"a\":\"b\"}");
	CHECK_STR(incoming.content_type, "application/json");
	CHECK(incoming.payload.len == 7 && !incoming.body.data);
}

TEST(N2_event_keeps_its_tenant_and_correlation_id)
{
	struct pr_incoming_event incoming = make(
		(struct pr_event){ .id = "e1",
				   .tenant_id = "0B9AC2F6-3F0E-4D7E-9A43-5A1F2A6F0C11",
				   .correlation_id = "order 7/\xc3\xa9" },
		(struct pr_identity){ 0 });

	CHECK_INT(incoming.how, PR_INSERT_PENDING);
	CHECK_STR(incoming.tenant_id, "0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c11");
	CHECK_STR(incoming.correlation_id, "order 7/\xc3\xa9");
}

/* N3: tenants of others need not be UUIDs, and their correlation ids may be anything. */
TEST(N3_unusable_tenant_or_correlation_id_of_an_event_is_dropped)
{
	static const char *const tenants[] = { "", "acme", "0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c1",
					       "0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c11 ",
					       "\xff\r\n" };
	char huge[POSTROOM_CORRELATION_ID_MAX + 2] = "";
	const char *const correlations[] = { "", "a\r\nb", "\xff", "\x7f", huge };

	memset(huge, 'x', sizeof(huge) - 1);
	for (size_t i = 0; i < 5; i++) {
		struct pr_incoming_event incoming = make(
			(struct pr_event){ .id = "e1",
					   .tenant_id = tenants[i],
					   .correlation_id = correlations[i] },
			(struct pr_identity){ 0 });

		CHECK_INT(incoming.how, PR_INSERT_PENDING);
		CHECK_STR(incoming.id, "e1");
		CHECK(!incoming.tenant_id && !incoming.correlation_id);
	}
}

TEST(N2_content_that_is_not_json_is_the_body_byte_for_byte)
{
	static const struct pr_event events[] = {
		{ .id = "e", .body = "not json", .len = 8 },
		{ .id = "e", .body = "{\"a\":\"\\u0000\"}", .len = 14 },
		{ .id = "e", .body = "1\0002", .len = 3 },
		{ .id = "e", .body = "17", .len = 2, .content_type = "text/plain" },
	};

	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		struct pr_incoming_event incoming = make(events[i], (struct pr_identity){ 0 });

		CHECK_INT(incoming.how, PR_INSERT_PENDING);
		CHECK(!incoming.payload.data && incoming.body.data == events[i].body);
		CHECK_INT(incoming.body.len, events[i].len);
		CHECK_STR(incoming.content_type, events[i].content_type
							 ? events[i].content_type
							 : "application/octet-stream");
	}
}

TEST(N2_identity_is_found_in_the_configured_field)
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
		struct pr_incoming_event incoming = make(
			(struct pr_event){ .id = "not this one",
					   .headers = cases[i].headers,
					   .body = cases[i].body },
			cases[i].identity);

		CHECK_INT(incoming.how, cases[i].id ? PR_INSERT_PENDING : PR_INSERT_DEAD);
		CHECK_STR(incoming.id, cases[i].id ? cases[i].id : "orders/1-0");
	}
}

TEST(N2_unusable_event_is_dead_under_its_position)
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
		struct pr_incoming_event incoming = make(events[i], (struct pr_identity){ 0 });

		CHECK_INT(incoming.how, PR_INSERT_DEAD);
		CHECK_STR(incoming.id, "orders/1-0");
		CHECK(incoming.error && *incoming.error);
		CHECK(pr_headers_valid(incoming.headers, strlen(incoming.headers)));
		CHECK(pr_name_check("topic", incoming.topic, POSTROOM_TOPIC_MAX, NULL) >= 0);
		CHECK(pr_text_check("key", incoming.key, POSTROOM_KEY_MAX, NULL) >= 0);
		CHECK(incoming.payload.data);
	}
}

TEST(N2_event_larger_than_a_row_is_dead_without_its_content)
{
	char *body = calloc(1, POSTROOM_PAYLOAD_MAX + 1);
	struct pr_incoming_event incoming;

	CHECK(body != NULL);
	incoming = make((struct pr_event){ .id = "e", .body = body, .len = POSTROOM_PAYLOAD_MAX },
			(struct pr_identity){ 0 });
	CHECK_INT(incoming.how, PR_INSERT_PENDING);
	incoming = make(
		(struct pr_event){ .id = "e", .body = body, .len = POSTROOM_PAYLOAD_MAX + 1 },
		(struct pr_identity){ 0 });
	CHECK_INT(incoming.how, PR_INSERT_DEAD);
	CHECK_STR(incoming.id, "orders/1-0");
	CHECK(!incoming.payload.data && !incoming.body.data);
	CHECK(strstr(incoming.error, "67108865 bytes") && strstr(incoming.error, "was dropped"));
	free(body);
}

TEST(N2_position_that_is_too_long_is_replaced_by_its_digest)
{
	char broker_position[POSTROOM_EVENT_ID_MAX + 2];
	struct pr_incoming_event one, other;

	memset(broker_position, 'x', sizeof(broker_position) - 1);
	broker_position[sizeof(broker_position) - 1] = '\0';
	one = make((struct pr_event){ .broker_position = broker_position },
		   (struct pr_identity){ 0 });
	other = make((struct pr_event){ .broker_position = broker_position },
		     (struct pr_identity){ 0 });
	CHECK(strncmp(one.id, "sha256:", 7) == 0);
	CHECK_INT(strlen(one.id), 7 + 64);
	CHECK_STR(one.id, other.id);
}
