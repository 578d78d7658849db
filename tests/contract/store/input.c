/* SPDX-License-Identifier: Apache-2.0 */
/* Input that is refused by the library and by the table itself: E4 and E5. */
#include "contract/store/backend.h"

#include <stdlib.h>

#define TENANT "0f5a3c1e-7b2d-4e9a-8c11-2233445566aa"
#define TENANT_HEX "0f5a3c1e7b2d4e9a8c112233445566aa"
#define OTHER_TENANT "1f5a3c1e-7b2d-4e9a-8c11-2233445566aa"

static void check_refused(const postroom_message *message, const char *field)
{
	postroom_receipt receipt;
	int status;

	memset(&receipt, 'x', sizeof(receipt));
	begin(app);
	status = postroom_enqueue(app->box, message, &receipt);
	CHECK_MSG(status == POSTROOM_INVALID, "%s: status %d (%s)", field, status,
		  postroom_errmsg(app->box));
	CHECK_CONTAINS(postroom_errmsg(app->box), field);
	CHECK_INT(rows(NULL), 0);
	/* Committing shows that nothing was left behind for later. */
	commit(app);
	CHECK_INT(rows(NULL), 0);
}

#define REFUSED(field, ...) check_refused(POSTROOM_MESSAGE(__VA_ARGS__), field)

TEST(E4_a_dedupe_key_without_the_tenants_prefix_is_refused)
{
	REFUSED("dedupe_key", .topic = "t", .payload = "1", .tenant_id = TENANT, .dedupe_key = "k");
	REFUSED("dedupe_key", .topic = "t", .payload = "1", .tenant_id = TENANT,
		.dedupe_key = OTHER_TENANT "/k");
	REFUSED("dedupe_key", .topic = "t", .payload = "1", .tenant_id = TENANT,
		.dedupe_key = TENANT);
	REFUSED("dedupe_key", .topic = "t", .payload = "1", .tenant_id = TENANT,
		.dedupe_key = TENANT ":k");
	REFUSED("dedupe_key", .topic = "t", .payload = "1", .tenant_id = TENANT,
		.dedupe_key = TENANT_HEX "k/");
	REFUSED("dedupe_key", .topic = "t", .payload = "1", .tenant_id = TENANT,
		.dedupe_key = " " TENANT "/k");
}

TEST(E4_both_forms_of_the_prefix_are_accepted)
{
	PUT(.topic = "t", .payload = "1", .tenant_id = TENANT, .dedupe_key = TENANT "/k");
	PUT(.topic = "t", .payload = "1", .tenant_id = TENANT, .dedupe_key = TENANT_HEX "/k");
	PUT(.topic = "t", .payload = "1", .dedupe_key = "no tenant, no prefix");
	CHECK_INT(rows("pending"), 3);
}

TEST(E4_table_constraint_enforces_the_prefix)
{
	static const char insert[] =
		"INSERT INTO postroom_outbox (topic, payload, tenant_id, dedupe_key)"
		" VALUES ('t', '1', '%s', '%s')";
	static const char *const bad[] = {
		"k", TENANT, TENANT ":k", OTHER_TENANT "/k", TENANT_HEX "k", " " TENANT "/k", ""
	};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_CONTAINS(refused(app, insert, TENANT, bad[i]), "dedupe_key");
	CHECK_INT(rows(NULL), 0);
	sql(app, insert, TENANT, TENANT "/k");
	sql(app, insert, TENANT, TENANT_HEX "/k");
#pragma GCC diagnostic pop
	CHECK_CONTAINS(refused(app, "UPDATE postroom_outbox SET dedupe_key = 'k'"), "dedupe_key");
	CHECK_INT(rows("pending"), 2);
}

/* Texts that every parser accepts as JSON, and texts that are invalid. */
static const char *const good_json[] = {
	"0",
	"-0",
	"-1.5e-10",
	"1e400",
	"123456789012345678901234567890",
	"\"\"",
	"true",
	"null",
	"[]",
	"{}",
	" \t\r\n{\"a\" : [1 , 2]} \n",
	"\"\\u0041\\n\\/\\\\\"",
	"\"\\ud83d\\ude00\"",
	"\"\\\\u0000\"",
	"\"\\\\ud800\"",
	"{\"a\":1,\"a\":2}",
	"\"\xc3\xa9\"",
	"\"\xf0\x9f\x98\x80\"",
	"\"\\uDBFF\\uDFFF x \\uD800\\uDC00\"",
	"\"\\\\\\ud83d\\ude00\"",
	"\"\x7f\"",
};
static const char *const bad_json[] = {
	"",
	" ",
	"{",
	"}",
	"[1,]",
	"{\"a\":1,}",
	"{a:1}",
	"{'a':1}",
	"nul",
	"True",
	"NaN",
	"Infinity",
	"-",
	"01",
	"1.",
	".5",
	"1e",
	"+1",
	"0x10",
	"\"",
	"\"\\x\"",
	"\"\\u12\"",
	"\"\t\"",
	"\"\n\"",
	"1 2",
	"[1] x",
	"// c\n1",
	"1/* c */",
	"{\"a\" 1}",
	"[1 2]",
	"\"\\u0000\"",
	"{\"a\\u0000\":1}",
	"\"\\ud800\"",
	"\"\\udc00\"",
	"\"\\ud800x\"",
	"\"\\ud800\\u0041\"",
	"\"\\udc00\\ud800\"",
	"\"\\ud800\\ud800\\udc00\"",
	"\"\\\\\\u0000\"",
	"\"\\\\\\ud800\"",
	"[\"\\ude00\"]",
	"\"\\ud83d\\ude00\\ude00\"",
	"\"\\ud800\\\\udc00\"",
	"\xef\xbb\xbf{}",
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

TEST(E5_json_of_every_kind_is_accepted)
{
	for (size_t i = 0; i < COUNT(good_json); i++) {
		int status;

		begin(app);
		status = postroom_enqueue(
			app->box, POSTROOM_MESSAGE(.topic = "t", .payload = good_json[i]), NULL);
		CHECK_MSG(status == POSTROOM_OK, "%s: %s", good_json[i], postroom_errmsg(app->box));
		commit(app);
	}
	CHECK_INT(rows("pending"), COUNT(good_json));
}

TEST(E5_invalid_json_text_is_refused)
{
	for (size_t i = 0; i < COUNT(bad_json); i++) {
		begin(app);
		CHECK_MSG(postroom_enqueue(app->box,
					   POSTROOM_MESSAGE(.topic = "t", .payload = bad_json[i]),
					   NULL) == POSTROOM_INVALID,
			  "taken: %s", bad_json[i]);
		CHECK_CONTAINS(postroom_errmsg(app->box), "payload");
		rollback(app);
	}
	REFUSED("payload", .topic = "t", .payload = "\"\xff\"");
	REFUSED("payload", .topic = "t", .payload = "\"\xc0\x80\"");
	REFUSED("payload", .topic = "t", .payload = "\"\xed\xa0\x80\"");
	REFUSED("payload", .topic = "t", .payload = "1\0 ", .payload_len = 3);
	REFUSED("payload", .topic = "t", .payload = "\"a\0b\"", .payload_len = 5);
	REFUSED("payload", .topic = "t", .payload = "1e131072");
	REFUSED("payload", .topic = "t", .payload = "[-1e999999999]");
	REFUSED("payload", .topic = "t", .payload = "1e-16384");
}

/* Doubles the quotes of an SQL string. */
static const char *quoted(const char *value)
{
	static char out[4096];
	size_t n = 0;

	for (; *value; value++) {
		if (*value == '\'')
			out[n++] = '\'';
		out[n++] = *value;
	}
	out[n] = 0;
	return out;
}

TEST(E5_table_accepts_and_refuses_the_same_json)
{
	char error[1000], statement[5000];

	for (size_t i = 0; i < COUNT(good_json); i++)
		sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '%s')",
		    quoted(good_json[i]));
	CHECK_INT(rows("pending"), COUNT(good_json));
	for (size_t i = 0; i < COUNT(bad_json); i++) {
		snprintf(statement, sizeof(statement),
			 "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '%s')",
			 quoted(bad_json[i]));
		CHECK_MSG(!backend->run(app, statement, error, sizeof(error)), "taken: %s",
			  bad_json[i]);
	}
	CHECK_INT(rows("pending"), COUNT(good_json));
}

TEST(E5_the_table_itself_refuses_other_bad_input)
{
	static const struct {
		const char *column, *value;
	} bad[] = {
		{ "topic", "''" },
		{ "topic", "'a\nb'" },
		{ "topic", "NULL" },
		{ "namespace", "''" },
		{ "namespace", "'a\t'" },
		{ "namespace", "NULL" },
		{ "tenant_id", "'x'" },
		{ "tenant_id", "'0f5a3c1e-7b2d-4e9a-8c11-2233445566ag'" },
		{ "tenant_id", "'0f5a3c1e7b2d4e9a8c112233445566aa----'" },
		{ "key", "''" },
		{ "dedupe_key", "''" },
		{ "correlation_id", "''" },
		{ "content_type", "''" },
		{ "headers", "'[]'" },
		{ "headers", "'{'" },
		{ "status", "'done'" },
		{ "status", "NULL" },
		{ "attempts", "-1" },
	};

	for (size_t i = 0; i < COUNT(bad); i++) {
		bool topic = strcmp(bad[i].column, "topic") == 0;

		CHECK_CONTAINS(
			refused(app,
				"INSERT INTO postroom_outbox (%s, payload%s) VALUES (%s, '1'%s)",
				bad[i].column, topic ? "" : ", topic", bad[i].value,
				topic ? "" : ", 't'"),
			bad[i].column);
	}
	CHECK_INT(rows(NULL), 0);
}

TEST(E5_bad_input_names_its_field_and_writes_nothing)
{
	char longer[2000];

	memset(longer, 'a', sizeof(longer));
	longer[sizeof(longer) - 1] = 0;
	REFUSED("topic", .payload = "1");
	REFUSED("topic", .topic = "", .payload = "1");
	REFUSED("topic", .topic = longer, .payload = "1");
	REFUSED("topic", .topic = "a\nb", .payload = "1");
	REFUSED("topic", .topic = "a\x7f", .payload = "1");
	REFUSED("topic", .topic = "\xff", .payload = "1");
	REFUSED("namespace", .topic = "t", .payload = "1", .ns = "");
	REFUSED("namespace", .topic = "t", .payload = "1", .ns = longer);
	REFUSED("namespace", .topic = "t", .payload = "1", .ns = "\x01");
	REFUSED("payload", .topic = "t");
	REFUSED("tenant_id", .topic = "t", .payload = "1", .tenant_id = "");
	REFUSED("tenant_id", .topic = "t", .payload = "1", .tenant_id = TENANT "0");
	REFUSED("tenant_id", .topic = "t", .payload = "1",
		.tenant_id = "0f5a3c1e-7b2d-4e9a-8c11-2233445566ag");
	REFUSED("key", .topic = "t", .payload = "1", .key = longer);
	REFUSED("key", .topic = "t", .payload = "1", .key = "\xc3");
	REFUSED("dedupe_key", .topic = "t", .payload = "1", .dedupe_key = longer);
	REFUSED("dedupe_key", .topic = "t", .payload = "1", .dedupe_key = "a",
		.idempotency_key = "b");
	REFUSED("idempotency_key", .topic = "t", .payload = "1", .idempotency_key = longer);
	REFUSED("correlation_id", .topic = "t", .payload = "1", .correlation_id = longer);
	REFUSED("content_type", .topic = "t", .payload = "1", .content_type = longer);
	REFUSED("headers", .topic = "t", .payload = "1", .headers = "[]");
	REFUSED("headers", .topic = "t", .payload = "1", .headers = "{\"a\":1}");
	REFUSED("headers", .topic = "t", .payload = "1", .headers = "{\"a\":\"\\u0000\"}");
	REFUSED("headers", .topic = "t", .payload = "1", .headers = "{");
	REFUSED("delay", .topic = "t", .payload = "1", .delay_ms = -1);
	REFUSED("delay", .topic = "t", .payload = "1", .delay_ms = INT64_MAX);
	REFUSED("priority", .topic = "t", .payload = "1", .priority = -1);
	REFUSED("priority", .topic = "t", .payload = "1", .priority = 3601);
	REFUSED("body", .topic = "t", .payload = "{}", .body = "x", .body_len = 1);
}

static char *json_string_of(size_t length)
{
	char *payload = malloc(length + 1);

	CHECK(payload);
	memset(payload, 'a', length);
	payload[0] = payload[length - 1] = '"';
	payload[length] = 0;
	return payload;
}

TEST(E5_payloads_are_accepted_up_to_the_maximum)
{
	char *fits = json_string_of(POSTROOM_PAYLOAD_DEFAULT_MAX);
	char *over = json_string_of(POSTROOM_PAYLOAD_DEFAULT_MAX + 1);

	REFUSED("payload", .topic = "t", .payload = over);
	REFUSED("body", .topic = "t", .body = over, .body_len = POSTROOM_PAYLOAD_DEFAULT_MAX + 1);
	PUT(.topic = "t", .payload = fits);
	CHECK_INT(postroom_box_set_max_payload(app->box, 10), POSTROOM_OK);
	begin(app);
	CHECK_INT(postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "t", .payload = fits), NULL),
		  POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_errmsg(app->box), "payload");
	rollback(app);
	CHECK_INT(postroom_box_set_max_payload(app->box, POSTROOM_PAYLOAD_DEFAULT_MAX + 1),
		  POSTROOM_OK);
	PUT(.topic = "t", .payload = over);
	CHECK_INT(postroom_box_set_max_payload(app->box, (size_t)POSTROOM_PAYLOAD_MAX + 1),
		  POSTROOM_INVALID);
	CHECK_INT(rows("pending"), 2);
	free(fits);
	free(over);
}

TEST(E5_values_of_the_longest_length_are_accepted)
{
	char value[POSTROOM_KEY_MAX + 1];

	memset(value, 'a', sizeof(value));
	value[POSTROOM_KEY_MAX] = 0;
	PUT(.topic = value + POSTROOM_KEY_MAX - POSTROOM_TOPIC_MAX, .payload = "1", .key = value,
	    .ns = value + POSTROOM_KEY_MAX - POSTROOM_NAMESPACE_MAX,
	    .dedupe_key = value + POSTROOM_KEY_MAX - POSTROOM_DEDUPE_KEY_MAX,
	    .correlation_id = value + POSTROOM_KEY_MAX - POSTROOM_CORRELATION_ID_MAX,
	    .content_type = value + POSTROOM_KEY_MAX - POSTROOM_CONTENT_TYPE_MAX);
	CHECK_INT(rows("pending"), 1);
}

TEST(E5_the_longest_dedupe_key_counts_the_tenant_before_it)
{
	char value[POSTROOM_DEDUPE_KEY_MAX + 1];

	memset(value, 'a', sizeof(value));
	value[POSTROOM_DEDUPE_KEY_MAX] = 0;
	REFUSED("idempotency_key", .topic = "t", .payload = "1", .tenant_id = TENANT,
		.idempotency_key = value + 36);
	PUT(.topic = "t", .payload = "1", .tenant_id = TENANT, .idempotency_key = value + 37);
	CHECK_INT(number(app, "SELECT length(dedupe_key) FROM postroom_outbox"),
		  POSTROOM_DEDUPE_KEY_MAX);
}
