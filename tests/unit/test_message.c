/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "core/message.h"

#include <stdlib.h>

#define TENANT "6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b"
#define BARE "6f1c2a349b0d4e5f8a7b1c2d3e4f5a6b"
#define OTHER "00000000-0000-4000-8000-000000000000"
#define MAX 1000

/* A text of len letters, for the test's life. */
static const char *letters(size_t len)
{
	static char room[8][70000];
	static size_t next;
	char *text = room[next++ % 8];

	CHECK(len < sizeof(room[0]));
	memset(text, 'x', len);
	text[len] = '\0';
	return text;
}

static void takes(const postroom_message *message)
{
	struct pr_err err = { 0 };
	int status = pr_message_check(message, MAX, &err);

	CHECK_MSG(status == POSTROOM_OK, "%s", err.text);
}

/* Refused with a sentence that begins with the field's name. */
static void refuses(const char *field, const postroom_message *message)
{
	struct pr_err err = { 0 };
	int status = pr_message_check(message, MAX, &err);

	CHECK_MSG(status == POSTROOM_INVALID, "a bad %s is taken", field);
	CHECK_MSG(strncmp(err.text, field, strlen(field)) == 0, "%s: \"%s\"", field, err.text);
	CHECK_INT(err.status, POSTROOM_INVALID);
}

TEST(E5_E8_valid_messages_are_accepted)
{
	takes(POSTROOM_MESSAGE(.topic = "t", .payload = "{}"));
	takes(POSTROOM_MESSAGE(.topic = "t", .payload = "{}garbage", .payload_len = 2));
	takes(POSTROOM_MESSAGE(.topic = "t", .body = "\0\xff", .body_len = 2));
	takes(POSTROOM_MESSAGE(.topic = "t", .body = "", .body_len = 0));
	takes(POSTROOM_MESSAGE(.topic = "t", .body = "x", .body_len = 1, .payload = "null"));
	takes(POSTROOM_MESSAGE(.topic = letters(255), .payload = "1", .ns = letters(255),
			       .key = letters(1024), .correlation_id = letters(255),
			       .content_type = letters(255), .dedupe_key = letters(512),
			       .headers = "{\"a\":\"b\"}", .delay_ms = POSTROOM_DELAY_MAX_MS,
			       .priority = 3600));
	takes(POSTROOM_MESSAGE(.topic = "t", .payload = "1", .tenant_id = TENANT,
			       .idempotency_key = letters(512 - 37)));
	takes(POSTROOM_MESSAGE(.topic = "\xc3\xa9", .payload = "1", .key = "a\nb"));
}

TEST(E5_every_bad_field_is_named)
{
	refuses("topic", POSTROOM_MESSAGE(.payload = "1"));
	refuses("topic", POSTROOM_MESSAGE(.topic = "", .payload = "1"));
	refuses("topic", POSTROOM_MESSAGE(.topic = letters(256), .payload = "1"));
	refuses("topic", POSTROOM_MESSAGE(.topic = "a\nb", .payload = "1"));
	refuses("topic", POSTROOM_MESSAGE(.topic = "a\x7f", .payload = "1"));
	refuses("topic", POSTROOM_MESSAGE(.topic = "\xff", .payload = "1"));
	refuses("namespace", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .ns = ""));
	refuses("namespace", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .ns = letters(256)));
	refuses("namespace", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .ns = "\t"));
	refuses("namespace", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .ns = "\xc3"));
	refuses("key", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .key = ""));
	refuses("key", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .key = letters(1025)));
	refuses("key", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .key = "\xed\xa0\x80"));
	refuses("correlation_id",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .correlation_id = ""));
	refuses("correlation_id",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .correlation_id = letters(256)));
	refuses("correlation_id",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .correlation_id = "a\r\nb"));
	refuses("headers",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .headers = "{\"a\": \"b\\r\\nc\"}"));
	refuses("content_type", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .content_type = ""));
	refuses("content_type",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .content_type = "a\r\nb"));
	refuses("delay", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .delay_ms = -1));
	refuses("delay", POSTROOM_MESSAGE(.topic = "t", .payload = "1",
					  .delay_ms = POSTROOM_DELAY_MAX_MS + 1));
	refuses("priority", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .priority = -1));
	refuses("priority", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .priority = 3601));
	refuses("size", &(const postroom_message){ .topic = "t", .payload = "1" });
}

TEST(E5_E8_invalid_content_is_refused)
{
	refuses("payload", POSTROOM_MESSAGE(.topic = "t"));
	refuses("payload", POSTROOM_MESSAGE(.topic = "t", .payload = ""));
	refuses("payload", POSTROOM_MESSAGE(.topic = "t", .payload = "{"));
	refuses("payload", POSTROOM_MESSAGE(.topic = "t", .payload = "\"\\u0000\""));
	refuses("payload", POSTROOM_MESSAGE(.topic = "t", .payload = "\"\xff\""));
	refuses("payload", POSTROOM_MESSAGE(.topic = "t", .payload = "1\0", .payload_len = 2));
	refuses("payload",
		POSTROOM_MESSAGE(.topic = "t", .payload = "{}", .body = "x", .body_len = 1));
	refuses("payload", POSTROOM_MESSAGE(.topic = "t", .payload = letters(MAX + 1)));
	refuses("body",
		POSTROOM_MESSAGE(.topic = "t", .body = letters(MAX + 1), .body_len = MAX + 1));
	refuses("headers", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .headers = ""));
	refuses("headers", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .headers = "[]"));
	refuses("headers", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .headers = "{\"a\":1}"));
	refuses("headers", POSTROOM_MESSAGE(.topic = "t", .payload = "1",
					    .headers = "{\"a\":\"b\","
						       "\"c\":null}"));
	refuses("headers", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .headers = "{\"a\"}"));
	refuses("headers",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .headers = letters(65537)));
}

TEST(E4_dedupe_key_begins_with_its_tenant)
{
	static const char *const good[] = { TENANT "/a", BARE "/a", TENANT "/",
					    "6F1C2A34-9B0D-4E5F-8A7B-1C2D3E4F5A6B/a" };
	static const char *const bad[] = { "a",	       TENANT,		BARE,
					   TENANT "a", BARE "a",	OTHER "/a",
					   "/" TENANT, " " TENANT "/a", "6f1c2a34/" };

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		takes(POSTROOM_MESSAGE(.topic = "t", .payload = "1", .tenant_id = TENANT,
				       .dedupe_key = good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		refuses("dedupe_key", POSTROOM_MESSAGE(.topic = "t", .payload = "1",
						       .tenant_id = TENANT, .dedupe_key = bad[i]));
		takes(POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = bad[i]));
	}
	takes(POSTROOM_MESSAGE(.topic = "t", .payload = "1", .tenant_id = BARE));
	refuses("tenant_id", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .tenant_id = "acme"));
	refuses("tenant_id", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .tenant_id = ""));
	refuses("dedupe_key", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = "a",
					       .idempotency_key = "b"));
	refuses("dedupe_key", POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = ""));
	refuses("dedupe_key",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = letters(513)));
	refuses("idempotency_key",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .idempotency_key = ""));
	refuses("idempotency_key",
		POSTROOM_MESSAGE(.topic = "t", .payload = "1", .tenant_id = TENANT,
				 .idempotency_key = letters(512 - 36)));
}

TEST(I2_I3_idempotency_key_is_kept_with_its_tenant)
{
	struct pr_prepared prepared;

	pr_message_prepare(POSTROOM_MESSAGE(.topic = "t", .payload = "1",
					    .tenant_id = "6F1C2A34-9B0D-4E5F-8A7B-1C2D3E4F5A6B",
					    .idempotency_key = "k"),
			   &prepared);
	CHECK_STR(prepared.tenant_id, TENANT);
	CHECK_STR(prepared.dedupe_key, TENANT "/k");
	pr_message_prepare(POSTROOM_MESSAGE(.topic = "t", .payload = "1", .idempotency_key = "k"),
			   &prepared);
	CHECK_STR(prepared.dedupe_key, "k");
	CHECK(!prepared.tenant_id);
	pr_message_prepare(POSTROOM_MESSAGE(.topic = "t", .payload = "1"), &prepared);
	CHECK(!prepared.dedupe_key);
}

TEST(E2_E8_message_gets_its_defaults)
{
	struct pr_prepared prepared;

	pr_message_prepare(POSTROOM_MESSAGE(.topic = "t", .payload = "[1]x", .payload_len = 3,
					    .delay_ms = 1500),
			   &prepared);
	CHECK_STR(prepared.ns, "default");
	CHECK_STR(prepared.content_type, "application/json");
	CHECK_STR(prepared.headers, "{}");
	CHECK_INT(prepared.payload.len, 3);
	CHECK(!prepared.body.data);
	CHECK_INT(prepared.due_offset_us, 1500000);
	pr_message_prepare(
		POSTROOM_MESSAGE(.topic = "t", .body = "b", .body_len = 1, .priority = 7),
		&prepared);
	CHECK_STR(prepared.content_type, "application/octet-stream");
	CHECK_INT(prepared.payload.len, 4);
	CHECK(memcmp(prepared.payload.data, "null", 4) == 0);
	CHECK_INT(prepared.body.len, 1);
	CHECK_INT(prepared.due_offset_us, -7000000);
}
