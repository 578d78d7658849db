/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of amqp: beyond the sink contract, with a real server in each of its states. */
#include "contract/sink/amqp.h"

#include "servers/amqp.h"

#include <stdlib.h>

#define LONG ((size_t)17 * 1024 * 1024) /* more than the server takes */

struct server server;
struct rig amqp_rig;

void start(void)
{
	rig_init(&amqp_rig);
	amqp_start(&server);
}

void open_at(int port, const char *target)
{
	char url[600];

	snprintf(url, sizeof(url), "amqp://guest:guest@" SERVER_HOST ":%d%s", port, target);
	pr_sink_close(amqp_rig.sink);
	amqp_rig.sink = NULL;
	rig_open(&amqp_rig, url);
}

const char *own(const char *suffix)
{
	return pr_arena_printf(&amqp_rig.arena, "%s%s", amqp_own(), suffix);
}

void open_own(const char *settings)
{
	open_at(server.port, pr_arena_printf(&amqp_rig.arena, "/%%2F/%s%s", amqp_own(), settings));
}

postroom_delivery *publish_one(const char *topic)
{
	postroom_delivery *item = rig_items(&amqp_rig, 1);

	item->topic = topic;
	rig_publish(&amqp_rig, item, 1);
	return item;
}

static void check_text(amqp_bytes_t got, const char *expected)
{
	char text[300];

	snprintf(text, sizeof(text), "%.*s", (int)got.len, (const char *)got.bytes);
	CHECK_STR(text, expected);
}

static void check_header(const amqp_table_t *headers, const char *name, const char *expected)
{
	amqp_bytes_t key = amqp_cstring_bytes(name);

	for (int i = 0; i < headers->num_entries; i++) {
		const amqp_table_entry_t *entry = &headers->entries[i];

		if (entry->key.len != key.len || memcmp(entry->key.bytes, key.bytes, key.len) != 0)
			continue;
		check_text(entry->value.value.bytes, expected);
		return;
	}
	CHECK_MSG(false, "there is no header %s", name);
}

/* RabbitMQ 4 sorts the headers. */
static void check_fields(const amqp_message_t *message, const char *routing_key, void *context)
{
	static const char *const headers[][2] = {
		{ "ce_specversion", "1.0" },
		{ "ce_id", "id-0" },
		{ "ce_source", "/postroom/shop" },
		{ "ce_type", "orders.created" },
		{ "ce_time", "2023-11-14T22:13:20.123456Z" },
		{ "ce_subject", "o-1" },
		{ "ce_tenantid", "0b7e0a3c-5d1e-4c39-8f6e-0d3f5c1f2a4b" },
		{ "ce_correlationid", "c" },
		{ "idempotency-key", "d" },
		{ "a", "b" },
	};
	const amqp_basic_properties_t *properties = &message->properties;

	(void)context;
	CHECK_STR(routing_key, "orders.created");
	check_text(properties->message_id, "id-0");
	check_text(properties->type, "orders.created");
	check_text(properties->content_type, "application/json");
	check_text(properties->correlation_id, "c");
	check_text(properties->app_id, "postroom");
	CHECK_INT(properties->delivery_mode, 2);
	CHECK_INT(properties->timestamp, 1700000000);
	CHECK_INT(properties->headers.num_entries, sizeof(headers) / sizeof(*headers));
	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++)
		check_header(&properties->headers, headers[i][0], headers[i][1]);
	check_text(message->body, "{\"number\": 0}");
}

TEST(K8_every_field_of_a_message_is_sent)
{
	postroom_delivery *item;

	start();
	item = rig_items(&amqp_rig, 1);
	item->ns = "shop";
	item->key = "o-1";
	item->tenant_id = "0b7e0a3c-5d1e-4c39-8f6e-0d3f5c1f2a4b";
	item->dedupe_key = "d";
	item->correlation_id = "c";
	item->headers = "{\"ce_id\":\"forged\",\"a\":\"b\",\"Idempotency-Key\":\"forged\"}";
	open_own("");
	rig_publish(&amqp_rig, item, 1);
	CHECK_MSG(item->verdict == POSTROOM_DELIVERED, "%s", item->reason);
	CHECK(amqp_find(&server, amqp_own(), "id-0", check_fields, NULL));
	rig_release(&amqp_rig);
}

static void check_key(const amqp_message_t *message, const char *routing_key, void *context)
{
	(void)message;
	CHECK_STR(routing_key, context);
}

TEST(K8_url_sets_exchange_and_routing_key)
{
	start();
	amqp_declare_queue(&server, own("-q"), -1);
	open_at(server.port, ""); /* the default exchange: the key names the queue */
	CHECK_INT(publish_one(own("-q"))->verdict, POSTROOM_DELIVERED);
	CHECK_INT(amqp_length(&server, own("-q")), 1);
	open_at(server.port, "//{topic}?routing_key=x.{namespace}.{topic}");
	CHECK_INT(publish_one(amqp_own())->verdict, POSTROOM_DELIVERED);
	CHECK(amqp_find(&server, amqp_own(), "id-0", check_key,
			pr_arena_printf(&amqp_rig.arena, "x.default.%s", amqp_own())));
	open_at(server.port, "/no-such-vhost/x");
	rig_check_outage(&amqp_rig, "no-such-vhost");
	rig_release(&amqp_rig);
}

TEST(K8_confirmed_but_unroutable_message_fails)
{
	postroom_delivery *items;

	start();
	amqp_declare_exchange(&server, own("-narrow"), "direct");
	amqp_bind(&server, amqp_own(), own("-narrow"), "wanted");
	open_at(server.port, pr_arena_printf(&amqp_rig.arena, "/%%2F/%s", own("-narrow")));
	items = rig_items(&amqp_rig, 5);
	for (size_t i = 0; i < 5; i++)
		items[i].topic = i == 1 || i == 3 ? "unwanted" : "wanted";
	items[1].body = calloc(1, 300000); /* comes back in several frames */
	items[1].body_len = 300000;
	rig_publish(&amqp_rig, items, 5);
	for (size_t i = 0; i < 5; i++)
		CHECK_INT(items[i].verdict,
			  i == 1 || i == 3 ? POSTROOM_FAILED : POSTROOM_DELIVERED);
	CHECK_CONTAINS(items[1].reason, "312 NO_ROUTE");
	CHECK_CONTAINS(items[3].reason, "no queue for the routing key \"unwanted\"");
	CHECK_INT(amqp_length(&server, amqp_own()), 3);
	open_at(server.port,
		pr_arena_printf(&amqp_rig.arena, "/%%2F/%s?mandatory=false", own("-narrow")));
	CHECK_INT(publish_one("unwanted")->verdict, POSTROOM_DELIVERED);
	free((void *)items[1].body);
	rig_release(&amqp_rig);
}

TEST(K8_full_queue_fails_only_the_messages_it_refuses)
{
	postroom_delivery *items;
	size_t taken = 0;

	start();
	amqp_declare_queue(&server, own("-small"), 2);
	amqp_bind(&server, own("-small"), amqp_own(), "small");
	open_own("");
	items = rig_items(&amqp_rig, 20);
	for (size_t i = 0; i < 20; i++)
		items[i].topic = i % 2 ? "small" : "other";
	rig_publish(&amqp_rig, items, 20);
	for (size_t i = 0; i < 20; i++) {
		taken += items[i].verdict == POSTROOM_DELIVERED && i % 2;
		CHECK(i % 2 || items[i].verdict == POSTROOM_DELIVERED);
		if (items[i].verdict != POSTROOM_DELIVERED) {
			CHECK_INT(items[i].verdict, POSTROOM_FAILED);
			CHECK_CONTAINS(items[i].reason, "basic.nack");
		}
	}
	CHECK_INT(taken, amqp_length(&server, own("-small")));
	CHECK(taken >= 2 && taken < 10);
	rig_release(&amqp_rig);
}

TEST(K8_missing_exchange_is_an_outage)
{
	start();
	open_at(server.port, "/%2F/no-such-exchange");
	rig_check_outage(&amqp_rig, "no exchange 'no-such-exchange'");
	open_at(server.port, pr_arena_printf(&amqp_rig.arena, "/%%2F/%s", own("-later")));
	rig_check_outage(&amqp_rig, "(404)");
	amqp_declare_exchange(&server, own("-later"), "fanout");
	amqp_bind(&server, amqp_own(), own("-later"), "");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	rig_release(&amqp_rig);
}

TEST(K8_missing_exchange_fails_only_its_messages_if_others_exist)
{
	postroom_delivery *items;

	start();
	open_at(server.port, "/%2F/{topic}");
	items = rig_items(&amqp_rig, 6);
	for (size_t i = 0; i < 6; i++)
		items[i].topic = i == 2 || i == 4 ? "nowhere" : amqp_own();
	items[3].key = items[5].key = "k";
	rig_publish(&amqp_rig, items, 6);
	for (size_t i = 0; i < 6; i++)
		CHECK_MSG(items[i].verdict ==
				  (i == 2 || i == 4 ? POSTROOM_FAILED : POSTROOM_DELIVERED),
			  "%zu: %d %s", i, items[i].verdict, items[i].reason);
	CHECK_CONTAINS(items[2].reason, "no exchange 'nowhere'");
	rig_release(&amqp_rig);
}

TEST(K8_name_truncated_in_the_server_error_fails_its_messages_alone)
{
	postroom_delivery *items;
	char name[250];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	start();
	open_at(server.port, "/%2F/{topic}");
	items = rig_items(&amqp_rig, 3);
	items[0].topic = items[2].topic = amqp_own();
	items[1].topic = name;
	rig_publish(&amqp_rig, items, 3);
	for (size_t i = 0; i < 3; i++)
		CHECK_MSG(items[i].verdict == (i == 1 ? POSTROOM_FAILED : POSTROOM_DELIVERED),
			  "%zu: %d %s", i, items[i].verdict, items[i].reason);
	rig_release(&amqp_rig);
}

TEST(K8_message_too_long_for_the_server_fails_alone)
{
	char *body = calloc(LONG, 1);
	postroom_delivery *items;

	CHECK(body != NULL);
	start();
	open_own("");
	items = rig_items(&amqp_rig, 3);
	items[1].body = body;
	items[1].body_len = LONG;
	rig_publish(&amqp_rig, items, 3);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	CHECK_MSG(items[1].verdict == POSTROOM_FAILED, "%d: %s", items[1].verdict, items[1].reason);
	CHECK_CONTAINS(items[1].reason, "(406)");
	CHECK_INT(items[2].verdict, POSTROOM_DELIVERED);
	rig_release(&amqp_rig);
	free(body);
}

TEST(K8_name_too_long_for_amqp_is_rejected)
{
	char name[300], headers[330];
	postroom_delivery *items;

	start();
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	snprintf(headers, sizeof(headers), "{\"%s\":\"1\"}", name);
	open_own("");
	items = rig_items(&amqp_rig, 6);
	items[0].topic = name;
	items[1].id = name;
	items[2].headers = headers;
	items[3].headers = "{\"CC\":\"elsewhere\"}";
	items[4].correlation_id = name;
	rig_publish(&amqp_rig, items, 6);
	for (size_t i = 0; i < 5; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_REJECTED, "%zu: %d", i, items[i].verdict);
	CHECK_CONTAINS(items[0].reason, "255 bytes");
	CHECK_CONTAINS(items[1].reason, "the message's id is longer");
	CHECK_CONTAINS(items[2].reason, "the name of the header");
	CHECK_CONTAINS(items[3].reason, "\"CC\"");
	CHECK_CONTAINS(items[4].reason, "correlation id");
	CHECK_INT(items[5].verdict, POSTROOM_DELIVERED);
	rig_release(&amqp_rig);
}

TEST(K8_headers_larger_than_a_frame_are_rejected)
{
	PR_CLEANUP_BUF struct pr_buf headers = { 0 };
	postroom_delivery *items;

	start();
	pr_buf_puts(&headers, "{\"long\":\"");
	for (int i = 0; i < 140000; i++)
		pr_buf_putc(&headers, 'x');
	pr_buf_puts(&headers, "\"}");
	open_own("");
	items = rig_items(&amqp_rig, 2);
	items[0].headers = pr_buf_text(&headers);
	rig_publish(&amqp_rig, items, 2);
	CHECK_INT(items[0].verdict, POSTROOM_REJECTED);
	CHECK_CONTAINS(items[0].reason, "one frame");
	CHECK_INT(items[1].verdict, POSTROOM_DELIVERED);
	rig_release(&amqp_rig);
}

TEST(K8_amqps_verifies_the_name_of_the_server)
{
	char url[600];
	postroom_delivery *items;

	start();
	snprintf(url, sizeof(url), "amqps://guest:guest@localhost:%d/%%2F/%s?ca=%s/ca.pem",
		 amqp_tls_port(), amqp_own(), amqp_directory());
	rig_open(&amqp_rig, url);
	items = rig_items(&amqp_rig, 500);
	rig_publish(&amqp_rig, items, 500);
	for (size_t i = 0; i < 500; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_DELIVERED, "%s", items[i].reason);
	CHECK_INT(amqp_length(&server, amqp_own()), 500);
	pr_sink_close(amqp_rig.sink);
	snprintf(url, sizeof(url), "amqps://guest:guest@" SERVER_HOST ":%d/%%2F/%s?ca=%s/ca.pem",
		 amqp_tls_port(), amqp_own(), amqp_directory());
	rig_open(&amqp_rig, url);
	rig_check_outage(&amqp_rig, "IP address mismatch");
	pr_sink_close(amqp_rig.sink);
	snprintf(url, sizeof(url), "amqps://guest:guest@localhost:%d/", amqp_tls_port());
	rig_open(&amqp_rig, url);
	rig_check_outage(&amqp_rig, "self-signed certificate");
	pr_sink_close(amqp_rig.sink);
	snprintf(url, sizeof(url), "amqps://guest:guest@localhost:%d/", server.port);
	rig_open(&amqp_rig, url);
	rig_check_outage(&amqp_rig, "the connection to localhost");
	rig_release(&amqp_rig);
}

TEST(K8_missing_write_permission_is_an_outage)
{
	start();
	amqp_control("add_user reader the-secret");
	amqp_control("set_permissions reader '' '' '.*'");
	rig_open(&amqp_rig,
		 pr_arena_printf(&amqp_rig.arena, "amqp://reader:the-secret@localhost:%d/%%2F/%s",
				 server.port, amqp_own()));
	rig_check_outage(&amqp_rig, "ACCESS_REFUSED");
	rig_release(&amqp_rig);
}

TEST(K8_a_password_without_a_user_is_refused)
{
	struct pr_err err = { 0 };

	CHECK_INT(pr_sink_open("amqp://:the-secret@localhost", &amqp_rig.sink, &err),
		  POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "USER:PASSWORD");
	CHECK(!strstr(err.text, "the-secret"));
}
