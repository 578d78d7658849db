/* SPDX-License-Identifier: Apache-2.0 */
/* What amqp: promises beyond the contract, against a real server in each of its moods. */
#include "base/time.h"
#include "contract/sink.h"
#include "contract/sink_server.h"
#include "servers/amqp.h"
#include "servers/proxy.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LONG ((size_t)17 * 1024 * 1024) /* more than the server takes */
#define SHORT_MS 200

static struct server server;
static struct proxy proxy;
static struct rig rig;

static void start(void)
{
	rig_init(&rig);
	amqp_start(&server);
}

/* What stands behind the port: "/%2F/orders?mandatory=false". */
static void open_at(int port, const char *target)
{
	char url[600];

	snprintf(url, sizeof(url), "amqp://guest:guest@" SERVER_HOST ":%d%s", port, target);
	pr_sink_close(rig.sink);
	rig.sink = NULL;
	rig_open(&rig, url);
}

/* Of the test's own, with a suffix. */
static const char *own(const char *suffix)
{
	return pr_arena_printf(&rig.arena, "%s%s", amqp_own(), suffix);
}

static void open_own(const char *settings)
{
	open_at(server.port, pr_arena_printf(&rig.arena, "/%%2F/%s%s", amqp_own(), settings));
}

static postroom_delivery *publish_one(const char *topic)
{
	postroom_delivery *item = rig_items(&rig, 1);

	item->topic = topic;
	rig_publish(&rig, item, 1);
	return item;
}

static void check_outage(const char *says)
{
	rig_check_outage(&rig, says);
}

static void check_text(amqp_bytes_t got, const char *expected)
{
	char text[300];

	snprintf(text, sizeof(text), "%.*s", (int)got.len, (const char *)got.bytes);
	CHECK_STR(text, expected);
}

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
	for (int i = 0; i < properties->headers.num_entries; i++) {
		check_text(properties->headers.entries[i].key, headers[i][0]);
		check_text(properties->headers.entries[i].value.value.bytes, headers[i][1]);
	}
	check_text(message->body, "{\"number\": 0}");
}

TEST(K8_every_field_of_a_message_arrives)
{
	postroom_delivery *item;

	start();
	item = rig_items(&rig, 1);
	item->ns = "shop";
	item->key = "o-1";
	item->tenant_id = "0b7e0a3c-5d1e-4c39-8f6e-0d3f5c1f2a4b";
	item->dedupe_key = "d";
	item->correlation_id = "c";
	item->headers = "{\"ce_id\":\"forged\",\"a\":\"b\",\"Idempotency-Key\":\"forged\"}";
	open_own("");
	rig_publish(&rig, item, 1);
	CHECK_MSG(item->verdict == POSTROOM_DELIVERED, "%s", item->reason);
	CHECK(amqp_find(&server, amqp_own(), "id-0", check_fields, NULL));
	rig_release(&rig);
}

static void check_key(const amqp_message_t *message, const char *routing_key, void *context)
{
	(void)message;
	CHECK_STR(routing_key, context);
}

TEST(K8_exchange_and_routing_key_are_as_the_url_says)
{
	start();
	amqp_declare_queue(&server, own("-q"), -1);
	open_at(server.port, ""); /* the default exchange: the key names the queue */
	CHECK_INT(publish_one(own("-q"))->verdict, POSTROOM_DELIVERED);
	CHECK_INT(amqp_length(&server, own("-q")), 1);
	open_at(server.port, "//{topic}?routing_key=x.{namespace}.{topic}");
	CHECK_INT(publish_one(amqp_own())->verdict, POSTROOM_DELIVERED);
	CHECK(amqp_find(&server, amqp_own(), "id-0", check_key,
			pr_arena_printf(&rig.arena, "x.default.%s", amqp_own())));
	open_at(server.port, "/no-such-vhost/x");
	check_outage("no-such-vhost");
	rig_release(&rig);
}

TEST(K8_what_no_queue_takes_has_failed_although_it_is_confirmed)
{
	postroom_delivery *items;

	start();
	amqp_declare_exchange(&server, own("-narrow"), "direct");
	amqp_bind(&server, amqp_own(), own("-narrow"), "wanted");
	open_at(server.port, pr_arena_printf(&rig.arena, "/%%2F/%s", own("-narrow")));
	items = rig_items(&rig, 5);
	for (size_t i = 0; i < 5; i++)
		items[i].topic = i == 1 || i == 3 ? "unwanted" : "wanted";
	items[1].body = calloc(1, 300000); /* comes back in several frames */
	items[1].body_len = 300000;
	rig_publish(&rig, items, 5);
	for (size_t i = 0; i < 5; i++)
		CHECK_INT(items[i].verdict,
			  i == 1 || i == 3 ? POSTROOM_FAILED : POSTROOM_DELIVERED);
	CHECK_CONTAINS(items[1].reason, "312 NO_ROUTE");
	CHECK_CONTAINS(items[3].reason, "no queue for the routing key \"unwanted\"");
	CHECK_INT(amqp_length(&server, amqp_own()), 3);
	open_at(server.port,
		pr_arena_printf(&rig.arena, "/%%2F/%s?mandatory=false", own("-narrow")));
	CHECK_INT(publish_one("unwanted")->verdict, POSTROOM_DELIVERED);
	free((void *)items[1].body);
	rig_release(&rig);
}

TEST(K8_a_full_queue_fails_what_it_does_not_take_and_nothing_else)
{
	postroom_delivery *items;
	size_t taken = 0;

	start();
	amqp_declare_queue(&server, own("-small"), 2);
	amqp_bind(&server, own("-small"), amqp_own(), "small");
	open_own("");
	items = rig_items(&rig, 20);
	for (size_t i = 0; i < 20; i++)
		items[i].topic = i % 2 ? "small" : "other";
	rig_publish(&rig, items, 20);
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
	rig_release(&rig);
}

TEST(K8_an_exchange_that_is_not_there_is_an_outage)
{
	start();
	open_at(server.port, "/%2F/no-such-exchange");
	check_outage("no exchange 'no-such-exchange'");
	open_at(server.port, pr_arena_printf(&rig.arena, "/%%2F/%s", own("-later")));
	check_outage("(404)");
	amqp_declare_exchange(&server, own("-later"), "fanout");
	amqp_bind(&server, amqp_own(), own("-later"), "");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
}

TEST(K8_an_exchange_that_is_missing_where_others_are_there_fails_its_messages_alone)
{
	postroom_delivery *items;

	start();
	open_at(server.port, "/%2F/{topic}");
	items = rig_items(&rig, 6);
	for (size_t i = 0; i < 6; i++)
		items[i].topic = i == 2 || i == 4 ? "nowhere" : amqp_own();
	items[3].key = items[5].key = "k";
	rig_publish(&rig, items, 6);
	for (size_t i = 0; i < 6; i++)
		CHECK_MSG(items[i].verdict ==
				  (i == 2 || i == 4 ? POSTROOM_FAILED : POSTROOM_DELIVERED),
			  "%zu: %d %s", i, items[i].verdict, items[i].reason);
	CHECK_CONTAINS(items[2].reason, "no exchange 'nowhere'");
	rig_release(&rig);
}

TEST(K8_a_name_too_long_for_the_servers_own_words_fails_its_messages_alone)
{
	postroom_delivery *items;
	char name[250];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	start();
	open_at(server.port, "/%2F/{topic}");
	items = rig_items(&rig, 3);
	items[0].topic = items[2].topic = amqp_own();
	items[1].topic = name;
	rig_publish(&rig, items, 3);
	for (size_t i = 0; i < 3; i++)
		CHECK_MSG(items[i].verdict == (i == 1 ? POSTROOM_FAILED : POSTROOM_DELIVERED),
			  "%zu: %d %s", i, items[i].verdict, items[i].reason);
	rig_release(&rig);
}

TEST(K8_a_message_that_the_server_finds_too_long_fails_alone)
{
	char *body = calloc(LONG, 1);
	postroom_delivery *items;

	CHECK(body != NULL);
	start();
	open_own("");
	items = rig_items(&rig, 3);
	items[1].body = body;
	items[1].body_len = LONG;
	rig_publish(&rig, items, 3);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	CHECK_MSG(items[1].verdict == POSTROOM_FAILED, "%d: %s", items[1].verdict, items[1].reason);
	CHECK_CONTAINS(items[1].reason, "(406)");
	CHECK_INT(items[2].verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
	free(body);
}

TEST(K8_a_name_that_amqp_can_not_hold_is_rejected)
{
	char name[300], headers[330];
	postroom_delivery *items;

	start();
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	snprintf(headers, sizeof(headers), "{\"%s\":\"1\"}", name);
	open_own("");
	items = rig_items(&rig, 6);
	items[0].topic = name;
	items[1].id = name;
	items[2].headers = headers;
	items[3].headers = "{\"CC\":\"elsewhere\"}";
	items[4].correlation_id = name;
	rig_publish(&rig, items, 6);
	for (size_t i = 0; i < 5; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_REJECTED, "%zu: %d", i, items[i].verdict);
	CHECK_CONTAINS(items[0].reason, "255 bytes");
	CHECK_CONTAINS(items[1].reason, "the message's id is longer");
	CHECK_CONTAINS(items[2].reason, "the name of the header");
	CHECK_CONTAINS(items[3].reason, "\"CC\"");
	CHECK_CONTAINS(items[4].reason, "correlation id");
	CHECK_INT(items[5].verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
}

TEST(K8_headers_that_fit_in_no_frame_are_rejected)
{
	PR_CLEANUP_BUF struct pr_buf headers = { 0 };
	postroom_delivery *items;

	start();
	pr_buf_puts(&headers, "{\"long\":\"");
	for (int i = 0; i < 140000; i++)
		pr_buf_putc(&headers, 'x');
	pr_buf_puts(&headers, "\"}");
	open_own("");
	items = rig_items(&rig, 2);
	items[0].headers = pr_buf_text(&headers);
	rig_publish(&rig, items, 2);
	CHECK_INT(items[0].verdict, POSTROOM_REJECTED);
	CHECK_CONTAINS(items[0].reason, "one frame");
	CHECK_INT(items[1].verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
}

TEST(K8_a_server_that_is_short_of_memory_is_an_outage_and_is_sent_nothing_more)
{
	postroom_delivery *item;
	int before;

	start();
	open_own("");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	amqp_control("set_vm_memory_high_watermark absolute 1000");
	item = publish_one("a");
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item->reason, "takes no messages now: low on memory");
	for (int i = 0; i < 5; i++)
		check_outage("low on memory");
	amqp_control("set_vm_memory_high_watermark 0.8");
	while (publish_one("b")->verdict != POSTROOM_DELIVERED)
		wait_a_moment();
	/* What the server had not read when it closed its ears came through in the end, once. */
	before = amqp_length(&server, amqp_own());
	CHECK_MSG(before == 3, "%d", before);
	rig_release(&rig);
}

/* On the way to the server there is little room from now on. */
static void narrow_the_way(void)
{
	static const int size = 32 * 1024;
	int narrowed = 0;

	for (int fd = 3; fd < 100; fd++) {
		struct sockaddr_in peer = { 0 };
		socklen_t len = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
		    ntohs(peer.sin_port) == server.port)
			narrowed += setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0;
	}
	CHECK_INT(narrowed, 1);
}

static void *wake_later(void *context)
{
	for (int i = 0; i < 60; i++) /* meanwhile the way to it fills up */
		wait_a_moment();
	CHECK(kill(server.pid, SIGCONT) == 0);
	return context;
}

TEST(K8_what_had_not_left_when_the_server_closed_its_ears_never_leaves)
{
	enum { COUNT = 300, SIZE = 10000 };
	char *body = calloc(SIZE, 1);
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;
	int unreachable = 0;
	postroom_delivery *items;
	pthread_t waker;

	start();
	open_own("?heartbeat=0s");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	narrow_the_way();
	amqp_control("set_vm_memory_high_watermark absolute 1000");
	server_stop(&server);
	items = rig_items(&rig, COUNT);
	for (size_t i = 0; i < COUNT; i++) {
		items[i].body = body;
		items[i].body_len = SIZE;
	}
	CHECK(pthread_create(&waker, NULL, wake_later, NULL) == 0);
	rig_publish(&rig, items, COUNT);
	pthread_join(waker, NULL);
	amqp_control("set_vm_memory_high_watermark 0.8");
	for (size_t i = 0; i < COUNT; i++) {
		CHECK(items[i].verdict == POSTROOM_UNREACHABLE ||
		      items[i].verdict == POSTROOM_UNTRIED);
		unreachable += items[i].verdict == POSTROOM_UNREACHABLE;
	}
	CHECK(unreachable > 0 && unreachable < COUNT);
	/* All that may arrive do so by themselves, save one that had left in part. */
	while (amqp_length(&server, amqp_own()) < 1 + unreachable - 1) {
		CHECK_MSG(pr_mono_us() < patience_us, "%d of %d",
			  amqp_length(&server, amqp_own()) - 1, unreachable);
		wait_a_moment();
	}
	while (publish_one("b")->verdict != POSTROOM_DELIVERED)
		wait_a_moment();
	CHECK_INT(amqp_length(&server, amqp_own()), 1 + unreachable + 1);
	rig_release(&rig);
	free(body);
}

TEST(K8_a_connection_closed_while_idle_costs_nothing)
{
	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, pr_arena_printf(&rig.arena, "/%%2F/%s?heartbeat=1s", amqp_own()));
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	while (proxy.ended == 0) /* the server misses our heartbeats */
		wait_a_moment();
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	open_own("?heartbeat=0s");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	amqp_control("close_all_connections maintenance");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	CHECK_INT(amqp_length(&server, amqp_own()), 4);
	proxy_end(&proxy);
	rig_release(&rig);
}

TEST(K8_a_server_silent_for_two_heartbeats_is_given_up_before_the_deadline)
{
	postroom_delivery *item;

	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, pr_arena_printf(&rig.arena, "/%%2F/%s?heartbeat=1s", amqp_own()));
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	proxy.mode = PROXY_MUTE;
	item = publish_one("a");
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item->reason, "silent for two heartbeats");
	proxy_end(&proxy);
	rig_release(&rig);
}

/* how: suspend, and the queue confirms nothing any more; resume. */
static void treat_queue(const char *how)
{
	PR_CLEANUP_BUF struct pr_buf words = { 0 };

	pr_buf_printf(&words,
		      "eval '{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, "
		      "<<\"%s\">>)), ok = sys:%s(amqqueue:get_pid(Q)).'",
		      amqp_own(), how);
	amqp_control(pr_buf_text(&words));
}

static void *resume_after_heartbeats(void *context)
{
	size_t before = proxy.requested;

	while (proxy.requested == before)
		wait_a_moment();
	before = proxy.requested;
	/* Each is 8 bytes long, and there are two in a second. */
	while (proxy.requested < before + 8 * 8 && proxy.ended == 0)
		wait_a_moment();
	treat_queue("resume");
	return context;
}

TEST(K8_our_heartbeats_keep_the_connection_while_a_confirmation_takes_long)
{
	postroom_delivery *item;
	pthread_t other;

	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, pr_arena_printf(&rig.arena, "/%%2F/%s?heartbeat=1s", amqp_own()));
	treat_queue("suspend");
	CHECK(pthread_create(&other, NULL, resume_after_heartbeats, NULL) == 0);
	item = publish_one("a");
	pthread_join(other, NULL);
	CHECK_MSG(item->verdict == POSTROOM_DELIVERED, "%d: %s", item->verdict, item->reason);
	CHECK_INT(proxy.ended, 0);
	proxy_end(&proxy);
	rig_release(&rig);
}

TEST(K8_a_queue_that_does_not_confirm_fails_its_message_alone)
{
	postroom_delivery *items;

	start();
	amqp_declare_queue(&server, own("-other"), -1);
	amqp_bind(&server, own("-other"), amqp_own(), "other");
	open_own("?heartbeat=1s");
	treat_queue("suspend");
	items = rig_items(&rig, 3);
	items[0].topic = items[2].topic = "other";
	rig.flight.timeout_ms = 4000; /* several heartbeats of the server */
	rig_publish(&rig, items, 3);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	CHECK_MSG(items[1].verdict == POSTROOM_FAILED, "%d: %s", items[1].verdict, items[1].reason);
	CHECK_INT(items[2].verdict, POSTROOM_DELIVERED);
	treat_queue("resume");
	rig_release(&rig);
}

static void *stop_in_mid_batch(void *context)
{
	size_t before = proxy.requested;

	while (proxy.requested < before + 10000)
		wait_a_moment();
	server_stop(&server);
	return context;
}

TEST(K8_a_server_that_hangs_in_mid_batch_is_an_outage_and_costs_no_attempt)
{
	enum { COUNT = 400 };
	static const char *const keys[] = { "a", "b", "c", "d" };
	size_t delivered = 0, unreachable = 0;
	postroom_delivery *items;
	pthread_t stopper;

	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, pr_arena_printf(&rig.arena, "/%%2F/%s", amqp_own()));
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	items = rig_items(&rig, COUNT);
	for (size_t i = 0; i < COUNT; i++)
		items[i].key = keys[i % 4]; /* a round trip for every four */
	proxy.mode = PROXY_DELAY;
	rig.flight.timeout_ms = 1000;
	CHECK(pthread_create(&stopper, NULL, stop_in_mid_batch, NULL) == 0);
	rig_publish(&rig, items, COUNT);
	pthread_join(stopper, NULL);
	CHECK(kill(server.pid, SIGCONT) == 0);
	for (size_t i = 0; i < COUNT; i++) {
		CHECK_MSG(items[i].verdict != POSTROOM_FAILED, "%s", items[i].reason);
		delivered += items[i].verdict == POSTROOM_DELIVERED;
		unreachable += items[i].verdict == POSTROOM_UNREACHABLE;
	}
	CHECK(delivered > 0 && delivered < COUNT && unreachable > 0);
	proxy_end(&proxy);
	rig_release(&rig);
}

#define LATE_MS 4000

static void *answer_late(void *context)
{
	int64_t late_us = *(int64_t *)context + LATE_MS * 900;

	while (pr_mono_us() < late_us)
		wait_a_moment();
	CHECK(kill(server.pid, SIGCONT) == 0);
	return NULL;
}

TEST(K8_a_channel_that_is_closed_late_does_not_lengthen_the_deadline)
{
	postroom_delivery *item;
	int64_t begun_us;
	pthread_t other;

	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, "/%2F/{topic}?heartbeat=0s");
	CHECK_INT(publish_one(amqp_own())->verdict, POSTROOM_DELIVERED);
	server_stop(&server);
	proxy.mode = PROXY_ONCE;
	rig.flight.timeout_ms = LATE_MS;
	begun_us = pr_mono_us();
	CHECK(pthread_create(&other, NULL, answer_late, &begun_us) == 0);
	item = publish_one("nowhere");
	/* The promise is a quarter more than the timeout; without it, the timeout twice. */
	CHECK(pr_mono_us() - begun_us < LATE_MS * 1000 * 3 / 2);
	pthread_join(other, NULL);
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item->reason, "no exchange 'nowhere'");
	proxy_end(&proxy);
	rig_release(&rig);
}

TEST(K8_a_message_longer_than_the_way_keeps_the_deadline_too)
{
	char *body = calloc(LONG, 1);
	postroom_delivery *item;

	CHECK(body != NULL);
	start();
	open_own("");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	CHECK(kill(server.pid, SIGSTOP) == 0);
	item = rig_items(&rig, 1);
	item->body = body;
	item->body_len = LONG;
	rig.flight.timeout_ms = SHORT_MS;
	rig_publish(&rig, item, 1);
	CHECK(kill(server.pid, SIGCONT) == 0);
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	rig_release(&rig);
	free(body);
}

TEST(K8_amqps_is_amqp_to_a_server_that_has_proved_its_name)
{
	char url[600];
	postroom_delivery *items;

	start();
	snprintf(url, sizeof(url), "amqps://guest:guest@localhost:%d/%%2F/%s?ca=%s/ca.pem",
		 amqp_tls_port(), amqp_own(), amqp_directory());
	rig_open(&rig, url);
	items = rig_items(&rig, 500);
	rig_publish(&rig, items, 500);
	for (size_t i = 0; i < 500; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_DELIVERED, "%s", items[i].reason);
	CHECK_INT(amqp_length(&server, amqp_own()), 500);
	pr_sink_close(rig.sink);
	snprintf(url, sizeof(url), "amqps://guest:guest@" SERVER_HOST ":%d/%%2F/%s?ca=%s/ca.pem",
		 amqp_tls_port(), amqp_own(), amqp_directory());
	rig_open(&rig, url);
	check_outage("IP address mismatch");
	pr_sink_close(rig.sink);
	snprintf(url, sizeof(url), "amqps://guest:guest@localhost:%d/", amqp_tls_port());
	rig_open(&rig, url);
	check_outage("self-signed certificate");
	pr_sink_close(rig.sink);
	snprintf(url, sizeof(url), "amqps://guest:guest@localhost:%d/", server.port);
	rig_open(&rig, url);
	check_outage("the connection to localhost");
	rig_release(&rig);
}

TEST(K8_a_user_who_may_not_write_is_an_outage)
{
	start();
	amqp_control("add_user reader the-secret");
	amqp_control("set_permissions reader '' '' '.*'");
	rig_open(&rig, pr_arena_printf(&rig.arena, "amqp://reader:the-secret@localhost:%d/%%2F/%s",
				       server.port, amqp_own()));
	check_outage("ACCESS_REFUSED");
	rig_release(&rig);
}

TEST(K8_a_password_without_a_user_is_refused)
{
	struct pr_err err = { 0 };

	CHECK_INT(pr_sink_open("amqp://:the-secret@localhost", &rig.sink, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "USER:PASSWORD");
	CHECK(!strstr(err.text, "the-secret"));
}
