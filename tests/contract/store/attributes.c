/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which values an attribute may have: the library, bulk calls, the SQL function and a plain
 * INSERT agree, on every database.
 */
#include "contract/store/backend.h"

#include <stdlib.h>

#define TENANT "0f5a3c1e-7b2d-4e9a-8c11-2233445566aa"
#define TENANT_HEX "0f5a3c1e7b2d4e9a8c112233445566aa"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum attribute { TOPIC, NAMESPACE, KEY, DEDUPE_KEY, CORRELATION_ID, CONTENT_TYPE, HEADERS };

static const char *const columns[] = { "topic",		 "namespace",	 "key",	   "dedupe_key",
				       "correlation_id", "content_type", "headers" };

struct value {
	enum attribute attribute;
	const char *text;
	bool taken;
};

static const struct value values[] = {
	{ TOPIC, "a\r\nb", false },
	{ TOPIC, "a\x7f", false },
	{ TOPIC, "a\tb", false },
	{ TOPIC, "a%0d%0ab \xc3\xa9", true },
	{ NAMESPACE, "a\nb", false },
	{ NAMESPACE, "\x1f", false },
	{ NAMESPACE, "a b", true },
	/* Keys are identities of foreign systems: sinks escape them. */
	{ KEY, "a\r\nb\t\x7f\x01", true },
	{ DEDUPE_KEY, "a\r\nb\t\x7f\x01", true },
	{ CORRELATION_ID, "a\r\nb", false },
	{ CORRELATION_ID, "a\x7f", false },
	{ CORRELATION_ID, "\x01", false },
	{ CORRELATION_ID, "a b \xf0\x9f\x98\x80", true },
	{ CONTENT_TYPE, "text/plain\r\nx: y", false },
	{ CONTENT_TYPE, "text/plain\n", false },
	{ CONTENT_TYPE, "text/plain; charset=\"utf-8\"", true },
	{ HEADERS, "{\"a\": 1}", false },
	{ HEADERS, "{\"a\": null}", false },
	{ HEADERS, "{\"a\": true}", false },
	{ HEADERS, "{\"a\": [\"b\"]}", false },
	{ HEADERS, "{\"a\": {\"b\": \"c\"}}", false },
	{ HEADERS, "{\"a\": \"b\", \"c\": 2}", false },
	{ HEADERS, "{\"a\": \"b\\r\\nc\"}", false },
	{ HEADERS, "{\"a\\n\": \"b\"}", false },
	{ HEADERS, "{\"a\": \"\\u000a\"}", false },
	{ HEADERS, "{\"a\": \"\\u001F\"}", false },
	{ HEADERS, "{\"a\": \"\\u007f\"}", false },
	{ HEADERS, "{\"a\": \"\\u007F\"}", false },
	{ HEADERS, "{\"a\": \"\x7f\"}", false },
	{ HEADERS, "{\"a\": \"\\\\\\n\"}", false },
	{ HEADERS, "{\"a\": \"\\\\n \\\\u000a \\\" \\/\"}", true },
	{ HEADERS, "{\"a\": \"\\u0041\\u00e9 %0d%0a\", \"\": \"\"}", true },
};

/* With the value as one attribute of a message that is fine otherwise. */
static postroom_message message_with(const struct value *value)
{
	postroom_message message = *POSTROOM_MESSAGE(.topic = "t", .payload = "1");
	const char **const fields[] = { &message.topic,
					&message.ns,
					&message.key,
					&message.dedupe_key,
					&message.correlation_id,
					&message.content_type,
					&message.headers };

	*fields[value->attribute] = value->text;
	return message;
}

static void check_library(const struct value *value, size_t count)
{
	postroom_message messages[2] = { message_with(value),
					 *POSTROOM_MESSAGE(.topic = "t", .payload = "1") };
	int status;

	begin(app);
	status = count == 1 ? postroom_enqueue(app->box, messages, NULL)
			    : postroom_enqueue_many(app->box, messages, count, NULL);
	CHECK_MSG(status == (value->taken ? POSTROOM_OK : POSTROOM_INVALID), "%s = %s: %d %s",
		  columns[value->attribute], value->text, status, postroom_errmsg(app->box));
	if (!value->taken)
		CHECK_CONTAINS(postroom_errmsg(app->box), columns[value->attribute]);
	CHECK(backend->in_transaction(app));
	rollback(app);
}

static void check_sql(const struct value *value, const char *statement)
{
	char error[1000];
	bool taken = backend->run(app, statement, error, sizeof(error));

	CHECK_MSG(taken == value->taken, "%s: %s", statement, taken ? "taken" : error);
	if (!taken)
		CHECK_CONTAINS(error, columns[value->attribute]);
	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "DELETE FROM postroom_dedupe");
}

TEST(E5_all_entry_points_agree_on_attribute_values)
{
	char statement[1000];

	for (size_t i = 0; i < COUNT(values); i++) {
		const struct value *value = &values[i];
		const char *column = columns[value->attribute];
		bool topic = value->attribute == TOPIC;

		check_library(value, 1);
		check_library(value, 2);
		snprintf(statement, sizeof(statement),
			 "INSERT INTO postroom_outbox (%s, payload%s) VALUES ('%s', '1'%s)", column,
			 topic ? "" : ", topic", value->text, topic ? "" : ", 't'");
		check_sql(value, statement);
		if (backend == &backend_sqlite)
			continue;
		snprintf(statement, sizeof(statement),
			 "SELECT postroom_enqueue(topic => '%s', payload => '1'%s%s%s%s%s)",
			 topic ? value->text : "t", topic ? "" : ", ", topic ? "" : column,
			 topic ? "" : " => '", topic ? "" : value->text, topic ? "" : "'");
		check_sql(value, statement);
	}
}

TEST(E5_headers_are_checked_when_they_change)
{
	PUT(.topic = "t", .payload = "1");
	CHECK_CONTAINS(refused(app, "UPDATE postroom_outbox SET headers = '{\"a\": 1}'"),
		       "headers");
	CHECK_CONTAINS(refused(app, "UPDATE postroom_outbox SET headers = '{\"a\": \"\\n\"}'"),
		       "headers");
	sql(app, "UPDATE postroom_outbox SET headers = '{\"a\": \"b\"}'");
}

TEST(E5_ids_and_tenants_are_hex_digits)
{
	static const char *const bad[] = {
		"",
		"x",
		"0f5a3c1e-7b2d-4e9a-8c11-2233445566ag",
		"0f5a3c1e7b2d4e9a8c112233445566ag",
		"0f5a3c1e7b2d4e9a8c112233445566a",
		"0f5a3c1e7b2d4e9a8c112233445566aaa",
		"0f5a3c1e-7b2d-4e9a-8c11-2233445\r\n6aa",
		"0f5a3c1e-7b2d-4e9a-8c11-22334455----",
		"\r\nevil: x---7b2d-4e9a-8c11-223344556677",
		"GET / HT-1.1 -host-evil-body\r\n\r\nxxxx",
	};

	for (size_t i = 0; i < COUNT(bad); i++) {
		refused(app,
			"INSERT INTO postroom_outbox (id, topic, payload) VALUES ('%s', 't', '1')",
			bad[i]);
		refused(app,
			"INSERT INTO postroom_outbox (tenant_id, topic, payload) "
			"VALUES ('%s', 't', '1')",
			bad[i]);
	}
	CHECK_INT(rows(NULL), 0);
}

static int check_row(void *context, const postroom_row *row)
{
	CHECK_STR(row->id, context);
	CHECK_STR(row->tenant_id, TENANT);
	return 0;
}

/* A dead message with such ids is listed, shown, retried and delivered by the same ids. */
static void check_forms(const char *id, const char *tenant, const char *canonical)
{
	static const char *const forms[] = { TENANT, TENANT_HEX,
					     "0F5A3C1E7B2D4E9A8C112233445566AA" };
	postroom_batch *batch;

	sql(app,
	    "INSERT INTO postroom_outbox (id, tenant_id, topic, payload, dedupe_key, status) "
	    "VALUES ('%s', '%s', 't', '1', '" TENANT "/k', 'dead')",
	    id, tenant);
	for (size_t i = 0; i < COUNT(forms); i++)
		CHECK_INT(postroom_list(store, POSTROOM_FILTER(.tenant_id = forms[i]), 10,
					check_row, (void *)canonical),
			  POSTROOM_OK);
	CHECK_INT(postroom_show(store, POSTROOM_FILTER(.id = id), check_row, (void *)canonical),
		  POSTROOM_OK);
	CHECK_INT(postroom_show(store, POSTROOM_FILTER(.id = canonical), check_row,
				(void *)canonical),
		  POSTROOM_OK);
	CHECK_STR(text(app, "SELECT id FROM postroom_messages"), canonical);
	CHECK_STR(text(app, "SELECT tenant_id FROM postroom_messages"), TENANT);
	CHECK_STR(PUT(.topic = "t", .payload = "1", .dedupe_key = TENANT "/k").id, canonical);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = id)), POSTROOM_OK);
	batch = CLAIM(.tenant_id = TENANT_HEX);
	CHECK_STR(only_item(batch)->id, canonical);
	CHECK_STR(only_item(batch)->tenant_id, TENANT);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "DELETE FROM postroom_dedupe");
}

TEST(E5_ids_without_hyphens_are_normalized_for_readers)
{
	static const char canonical[] = "6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b";

	check_forms(canonical, TENANT, canonical);
	check_forms("6f1c2a349b0d4e5f8a7b1c2d3e4f5a6b", TENANT_HEX, canonical);
	check_forms("6F1C2A34-9B0D-4E5F-8A7B-1C2D3E4F5A6B", TENANT, canonical);
	check_forms("6F1C2A349B0D4E5F8A7B1C2D3E4F5A6B", "0F5A3C1E7B2D4E9A8C112233445566AA",
		    canonical);
}

TEST(E4_either_form_of_the_prefix_fits_either_form_of_the_tenant)
{
	static const char *const tenants[] = { TENANT, TENANT_HEX };
	static const char *const keys[] = { TENANT "/a", TENANT_HEX "/a",
					    "0F5A3C1E-7B2D-4E9A-8C11-2233445566AA/a" };
	static const char *const bad[] = { "a", TENANT_HEX "a/", TENANT "a",
					   "1f5a3c1e7b2d4e9a8c112233445566aa/a",
					   "0f5a3c1e7-b2d-4e9a-8c11-2233445566aa/a" };

	for (size_t i = 0; i < COUNT(tenants); i++) {
		for (size_t j = 0; j < COUNT(keys); j++)
			sql(app,
			    "INSERT INTO postroom_outbox (topic, payload, tenant_id, dedupe_key) "
			    "VALUES ('t%zu', '1', '%s', '%s')",
			    i, tenants[i], keys[j]);
		for (size_t j = 0; j < COUNT(bad); j++)
			CHECK_CONTAINS(
				refused(app,
					"INSERT INTO postroom_outbox (topic, payload, tenant_id, "
					"dedupe_key) VALUES ('t', '1', '%s', '%s')",
					tenants[i], bad[j]),
				"dedupe_key");
		CHECK_INT(PUT(.topic = "lib", .payload = "1", .tenant_id = tenants[i],
			      .idempotency_key = "k")
				  .duplicate,
			  i);
	}
}
