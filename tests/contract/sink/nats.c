/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of nats: beyond the sink contract, with a real server in each of its states. */
#include "servers/nats.h"
#include "contract/sink/server.h"
#include "contract/sink/sink.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_SIZE 200
#define SHORT_MS 5000		       /* for a publish that is meant to run out of time */
#define LONG ((size_t)9 * 1024 * 1024) /* more than the server's max_payload */

static struct server server;
static struct rig rig;

static void start(void)
{
	rig_init(&rig);
	server.port = server_free_port();
	nats_start(&server, NULL);
}

static void end(void)
{
	rig_release(&rig);
	server_kill(&server);
}

static void open_target(const char *target)
{
	char url[300];

	snprintf(url, sizeof(url), "nats://%s:%s@" SERVER_HOST ":%d/%s", NATS_USER,
		 NATS_PASSWORD_IN_URL, server.port, target);
	pr_sink_close(rig.sink);
	rig.sink = NULL;
	rig_open(&rig, url);
}

/* A stream of the given subject, which takes up to max_msgs messages and then refuses more; 0: any. */
static void add_stream(const char *name, const char *subject, int64_t max_msgs)
{
	jsStreamConfig config;

	jsStreamConfig_Init(&config);
	if (max_msgs > 0)
		config.MaxMsgs = max_msgs;
	config.Discard = js_DiscardNew;
	nats_add_stream(&server, name, subject, config);
}

static postroom_delivery *publish_topics(const char *const *topics, size_t count)
{
	postroom_delivery *items = rig_items(&rig, count);

	for (size_t i = 0; i < count; i++)
		items[i].topic = topics[i];
	rig_publish(&rig, items, count);
	return items;
}

static void check_item(const postroom_delivery *item, postroom_verdict verdict, const char *says)
{
	CHECK_MSG(item->verdict == verdict, "%s: %d %s", item->id, item->verdict, item->reason);
	if (says)
		CHECK_CONTAINS(item->reason, says);
}

static void check_header(natsMsg *msg, const char *name, const char *expected)
{
	const char *value = NULL;

	CHECK_MSG(natsMsgHeader_Get(msg, name, &value) == NATS_OK, "%s is missing", name);
	CHECK_STR(value, expected);
}

TEST(K7_every_field_of_a_message_is_in_its_headers)
{
	static const char *const headers[][2] = {
		{ "Nats-Msg-Id", "id-0" },
		{ "ce-specversion", "1.0" },
		{ "ce-id", "id-0" },
		{ "ce-source", "/postroom/shop" },
		{ "ce-type", "orders.created" },
		{ "ce-time", "2023-11-14T22:13:20.123456Z" },
		{ "ce-subject", "o%C3%A9-1" },
		{ "ce-tenantid", "0b7e0a3c-5d1e-4c39-8f6e-0d3f5c1f2a4b" },
		{ "ce-correlationid", "c" },
		{ "Content-Type", "application/json" },
		{ "Idempotency-Key", "d" },
		{ "traceparent", "00-1-2-3" },
	};
	postroom_delivery *item;
	natsMsg *msg;

	start();
	add_stream(NATS_STREAM, NATS_PREFIX ">", 0);
	open_target(NATS_PREFIX "{namespace}.{topic}");
	item = rig_items(&rig, 1);
	item->ns = "shop";
	item->key = "o\xc3\xa9-1";
	item->tenant_id = "0b7e0a3c-5d1e-4c39-8f6e-0d3f5c1f2a4b";
	item->dedupe_key = "d";
	item->correlation_id = "c";
	item->headers = "{\"traceparent\":\"00-1-2-3\",\"Content-Type\":\"x\",\"CE-Id\":\"x\"}";
	rig_publish(&rig, item, 1);
	check_item(item, POSTROOM_DELIVERED, NULL);
	msg = nats_last(&server, NATS_PREFIX "shop.orders.created");
	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++)
		check_header(msg, headers[i][0], headers[i][1]);
	CHECK_STR(natsMsg_GetData(msg), "{\"number\": 0}");
	natsMsg_Destroy(msg);
	end();
}

TEST(K7_only_dots_of_a_topic_stay_unescaped_in_the_subject)
{
	static const char *const cases[][2] = {
		{ "orders.created", "orders.created" },
		{ "a b", "a%20b" },
		{ "*.>", "%2A.%3E" },
		{ ".a..b.", "%2Ea.%2Eb%2E" },
		{ "...", "%2E%2E%2E" },
		{ "100%", "100%25" },
		{ "$JS.API.STREAM.PURGE.ALL", "%24JS.API.STREAM.PURGE.ALL" },
		{ "tab\tline\r\nPUB x 0", "tab%09line%0D%0APUB%20x%200" },
	};

	start();
	add_stream(NATS_STREAM, NATS_PREFIX ">", 0);
	open_target(NATS_PREFIX "{topic}");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		postroom_delivery *item = rig_items(&rig, 1);
		PR_CLEANUP_BUF struct pr_buf subject = { 0 };

		item->id = item->topic = cases[i][0];
		if (strchr(item->id, '\n'))
			item->id = "lines";
		rig_publish(&rig, item, 1);
		check_item(item, POSTROOM_DELIVERED, NULL);
		pr_buf_printf(&subject, NATS_PREFIX "%s", cases[i][1]);
		natsMsg_Destroy(nats_last(&server, pr_buf_text(&subject)));
	}
	end();
}

TEST(K7_message_cannot_inject_protocol_commands)
{
	postroom_delivery *items;
	jsStreamConfig config;

	start();
	jsStreamConfig_Init(&config);
	config.AllowRollup = true;
	nats_add_stream(&server, NATS_STREAM, "orders", config);
	open_target("");
	items = rig_items(&rig, 4);
	for (size_t i = 0; i < 4; i++)
		items[i].topic = "orders";
	items[1].headers = "{\"Nats-Rollup\":\"all\",\"nats-expected-stream\":\"OTHER\"}";
	items[2].headers = "{\"a\":\"b\\r\\nNats-Rollup: all\"}";
	items[3].headers = "{\"a: b\\r\\nNats-Rollup\":\"all\"}";
	rig_publish(&rig, items, 4);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	check_item(&items[1], POSTROOM_DELIVERED, NULL);
	check_item(&items[2], POSTROOM_REJECTED, "header \"a\" cannot be sent by NATS");
	check_item(&items[3], POSTROOM_REJECTED, "cannot be sent by NATS");
	CHECK_INT(nats_count(&server, NATS_STREAM), 2);
	/* As a topic, the server's own commands are none. */
	items = publish_topics((const char *const[]){ "$JS.API.STREAM.DELETE.ALL" }, 1);
	check_item(&items[0], POSTROOM_UNREACHABLE, "\"%24JS.API.STREAM.DELETE.ALL\"");
	CHECK_INT(nats_count(&server, NATS_STREAM), 2);
	end();
}

TEST(K7_subject_without_a_stream_is_an_outage_with_advice)
{
	static const char *const topics[] = { "known", "unknown", "known", "unknown" };
	postroom_delivery *items;

	start();
	add_stream("KNOWN", "known", 0);
	open_target("");
	items = publish_topics(topics, 4);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	check_item(
		&items[1], POSTROOM_UNREACHABLE,
		"publish to \"unknown\": no stream has this subject; create one with: nats stream "
		"add");
	check_item(&items[2], POSTROOM_DELIVERED, NULL);
	check_item(&items[3], POSTROOM_UNREACHABLE, "no stream has this subject");
	add_stream("UNKNOWN", "unknown", 0);
	items = publish_topics(topics + 1, 1);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	end();
}

/*
 * An acknowledgement that takes its time: others that are on their way are there before it.
 * context becomes how many of its own those were at most.
 */
static void acknowledge_slowly(natsConnection *connection, natsSubscription *subscription,
			       natsMsg *msg, void *context)
{
	int *most = context;
	int more = 0;

	for (int i = 0; i < 100; i++)
		CHECK(natsConnection_Flush(connection) == NATS_OK);
	CHECK(natsSubscription_GetPending(subscription, &more, NULL) == NATS_OK);
	if (more > *most)
		*most = more;
	CHECK(natsConnection_PublishString(connection, natsMsg_GetReply(msg),
					   "{\"stream\":\"S\",\"seq\":1}") == NATS_OK);
	natsConnection_Flush(connection); /* with the answer out, the test may be over */
	natsMsg_Destroy(msg);
}

TEST(K7_missing_stream_does_not_affect_other_messages)
{
	static const char *const topics[] = { "slow", "unknown", "slow" };
	natsSubscription *slow = NULL;
	postroom_delivery *items;
	struct nats_desk desk;
	int most = 0;

	start();
	CHECK(nats_reach(&server, &desk));
	CHECK(natsConnection_Subscribe(&slow, desk.connection, "slow", acknowledge_slowly, &most) ==
	      NATS_OK);
	CHECK(natsConnection_Flush(desk.connection) == NATS_OK);
	open_target("");
	items = publish_topics(topics, 3);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	check_item(&items[1], POSTROOM_UNREACHABLE, "publish to \"unknown\"");
	check_item(&items[2], POSTROOM_DELIVERED, NULL);
	CHECK_INT(most, 1);
	most = 0;
	rig.flight.concurrency = 1;
	items = publish_topics(topics, 3);
	check_item(&items[1], POSTROOM_UNREACHABLE, "publish to \"unknown\"");
	check_item(&items[2], POSTROOM_DELIVERED, NULL);
	CHECK_INT(most, 0);
	natsSubscription_Destroy(slow);
	nats_leave(&desk);
	end();
}

TEST(K7_a_server_without_room_is_an_outage)
{
	static const char body[3000];
	postroom_delivery *items;

	rig_init(&rig);
	server.port = server_free_port();
	nats_start(&server, "jetstream { store_dir: \"jetstream\", max_file_store: 20000 }");
	add_stream(NATS_STREAM, "orders.created", 0);
	open_target("");
	items = rig_items(&rig, 20);
	for (size_t i = 0; i < 20; i++) {
		items[i].body = body;
		items[i].body_len = sizeof(body);
		items[i].key = "k";
	}
	rig_publish(&rig, items, 20);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	for (size_t i = 1; i < 20; i++) {
		if (items[i].verdict != POSTROOM_DELIVERED) {
			check_item(&items[i], POSTROOM_UNREACHABLE, "resource");
			break;
		}
	}
	check_item(&items[19], POSTROOM_UNTRIED, NULL);
	end();
}

TEST(K7_full_stream_fails_its_messages_and_is_an_outage_if_alone)
{
	static const char *const topics[] = { "full", "free", "full", "full" };
	postroom_delivery *items;

	start();
	add_stream("FULL", "full", 1);
	add_stream("FREE", "free", 0);
	open_target("");
	items = publish_topics(topics, 4);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	check_item(&items[1], POSTROOM_DELIVERED, NULL);
	check_item(&items[2], POSTROOM_FAILED, "publish to \"full\": maximum messages exceeded");
	check_item(&items[3], POSTROOM_FAILED, "maximum messages exceeded");
	items = rig_items(&rig, 2);
	for (size_t i = 0; i < 2; i++) {
		items[i].id = i == 0 ? "x" : "y";
		items[i].topic = "full";
	}
	rig_publish(&rig, items, 2);
	check_item(&items[0], POSTROOM_UNREACHABLE, "maximum messages exceeded");
	check_item(&items[1], POSTROOM_UNREACHABLE, "maximum messages exceeded");
	end();
}

TEST(D6_smaller_message_does_not_overtake_one_over_the_byte_limit)
{
	char *body = calloc(3000, 1);
	postroom_delivery *items;
	jsStreamConfig config;

	CHECK(body != NULL);
	start();
	jsStreamConfig_Init(&config);
	config.MaxBytes = 3000;
	config.Discard = js_DiscardNew;
	nats_add_stream(&server, NATS_STREAM, "orders.created", config);
	open_target("");
	items = rig_items(&rig, 4);
	items[0].key = items[1].key = items[2].key = "k";
	items[1].body = body;
	items[1].body_len = 3000;
	rig_publish(&rig, items, 4);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	check_item(&items[1], POSTROOM_FAILED, "maximum bytes exceeded");
	check_item(&items[2], POSTROOM_UNTRIED, NULL);
	check_item(&items[3], POSTROOM_DELIVERED, NULL);
	CHECK_INT(nats_count(&server, NATS_STREAM), 2);
	end();
	free(body);
}

TEST(K7_message_that_is_too_long_is_rejected_alone)
{
	char *body = calloc(LONG, 1);
	postroom_delivery *items;
	jsStreamConfig config;

	CHECK(body != NULL);
	start();
	jsStreamConfig_Init(&config);
	config.MaxMsgSize = 2000;
	nats_add_stream(&server, NATS_STREAM, "orders.created", config);
	open_target("");
	items = rig_items(&rig, 4);
	items[1].body = body;
	items[1].body_len = LONG;
	items[2].body = body;
	items[2].body_len = 3000;
	rig_publish(&rig, items, 4);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	check_item(&items[1], POSTROOM_REJECTED, "max_payload");
	check_item(&items[2], POSTROOM_REJECTED, "message size exceeds maximum allowed");
	check_item(&items[3], POSTROOM_DELIVERED, NULL);
	end();
	free(body);
}

TEST(K7_duplicate_in_the_stream_counts_as_delivered)
{
	static const char *const topics[] = { "orders" };

	start();
	add_stream(NATS_STREAM, "orders", 0);
	open_target("");
	for (int i = 0; i < 3; i++)
		check_item(publish_topics(topics, 1), POSTROOM_DELIVERED, NULL);
	CHECK_INT(nats_count(&server, NATS_STREAM), 1);
	end();
}

TEST(K7_forbidden_subject_is_reported_and_works_once_allowed)
{
	static const char *const topics[] = { "secret", "open", "secret" };
	postroom_delivery *items;

	start();
	add_stream(NATS_STREAM, "*", 0);
	nats_permit(&server, NATS_DENY("secret"));
	open_target("");
	items = publish_topics(topics, 3);
	check_item(&items[0], POSTROOM_FAILED, "publish to \"secret\": this user may not");
	check_item(&items[1], POSTROOM_DELIVERED, NULL);
	check_item(&items[2], POSTROOM_FAILED, "this user may not");
	items = publish_topics(topics, 1);
	check_item(&items[0], POSTROOM_UNREACHABLE, "this user may not");
	nats_permit(&server, "{}");
	items = publish_topics(topics, 1);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	nats_permit(&server, "{ publish: [\">\"], subscribe: [\"elsewhere\"] }");
	open_target("");
	items = publish_topics(topics, 1);
	check_item(&items[0], POSTROOM_UNREACHABLE, "must be allowed to subscribe to _INBOX.>");
	end();
}

TEST(K7_each_forbidden_subject_is_reported)
{
	/* The library keeps the beginning of what the server says. */
	PR_CLEANUP_BUF struct pr_buf longest = { 0 };
	postroom_delivery *items;

	pr_buf_puts(&longest, "long.");
	while (longest.len < 400)
		pr_buf_putc(&longest, 'x');
	start();
	add_stream(NATS_STREAM, "*", 0);
	nats_permit(&server, "{ publish: { deny: [\"a\", \"b\", \"long.>\"] } }");
	open_target("");
	items = publish_topics((const char *const[]){ "a", "b", longest.data, "open", "a" }, 5);
	check_item(&items[0], POSTROOM_FAILED, "publish to \"a\": this user may not");
	check_item(&items[1], POSTROOM_FAILED, "publish to \"b\": this user may not");
	check_item(&items[2], POSTROOM_FAILED, "xxx\": this user may not");
	check_item(&items[3], POSTROOM_DELIVERED, NULL);
	check_item(&items[4], POSTROOM_FAILED, "this user may not");
	end();
}

TEST(K7_unanswered_message_fails_alone_if_later_ones_are_acknowledged)
{
	static const char *const topics[] = { "mute", "open", "open" };
	natsSubscription *mute = NULL;
	postroom_delivery *items;
	struct nats_desk desk;

	start();
	add_stream(NATS_STREAM, "open", 0);
	CHECK(nats_reach(&server, &desk));
	CHECK(natsConnection_SubscribeSync(&mute, desk.connection, "mute") == NATS_OK);
	CHECK(natsConnection_Flush(desk.connection) == NATS_OK);
	open_target("");
	rig.flight.timeout_ms = SHORT_MS;
	items = publish_topics(topics, 3);
	check_item(&items[0], POSTROOM_FAILED, "publish to \"mute\": no acknowledgement in time");
	check_item(&items[1], POSTROOM_DELIVERED, NULL);
	check_item(&items[2], POSTROOM_DELIVERED, NULL);
	items = publish_topics(topics, 1);
	check_item(&items[0], POSTROOM_UNREACHABLE, "no answer from " SERVER_HOST);
	natsSubscription_Destroy(mute);
	nats_leave(&desk);
	end();
}

/* To the second message, also what would be an acknowledgement of the first, only too late. */
static void say_something(natsConnection *connection, natsSubscription *subscription, natsMsg *msg,
			  void *context)
{
	char *first = context;

	(void)subscription;
	if (first[0])
		CHECK(natsConnection_PublishString(connection, first,
						   "{\"stream\":\"S\",\"seq\":1}") == NATS_OK);
	else
		snprintf(first, FIRST_SIZE, "%s", natsMsg_GetReply(msg));
	CHECK(natsConnection_PublishString(connection, natsMsg_GetReply(msg), "hello") == NATS_OK);
	natsConnection_Flush(connection); /* with the answer out, the test may be over */
	natsMsg_Destroy(msg);
}

TEST(K7_reply_that_is_not_from_a_stream_is_not_a_delivery)
{
	static const char *const topics[] = { "service" };
	natsSubscription *service = NULL;
	char first[FIRST_SIZE] = "";
	postroom_delivery *items;
	struct nats_desk desk;

	start();
	CHECK(nats_reach(&server, &desk));
	CHECK(natsConnection_Subscribe(&service, desk.connection, "service", say_something,
				       first) == NATS_OK);
	CHECK(natsConnection_Flush(desk.connection) == NATS_OK);
	open_target("");
	items = publish_topics(topics, 1);
	check_item(&items[0], POSTROOM_FAILED, "does something else listen");
	items = publish_topics(topics, 1);
	check_item(&items[0], POSTROOM_FAILED, "does something else listen");
	CHECK(first[0] != '\0');
	natsSubscription_Destroy(service);
	nats_leave(&desk);
	end();
}

TEST(K7_message_without_a_part_of_its_subject_is_rejected)
{
	postroom_delivery *items;

	start();
	add_stream(NATS_STREAM, NATS_PREFIX ">", 0);
	open_target(NATS_PREFIX "{tenant}.{topic}");
	items = rig_items(&rig, 2);
	items[1].tenant_id = "a.b";
	rig_publish(&rig, items, 2);
	check_item(&items[0], POSTROOM_REJECTED, "{tenant}");
	check_item(&items[1], POSTROOM_DELIVERED, NULL);
	end();
}

TEST(K7_connection_lost_while_idle_uses_no_attempt)
{
	static const char *const topics[] = { "orders" };

	start();
	add_stream(NATS_STREAM, "orders", 0);
	open_target("");
	check_item(publish_topics(topics, 1), POSTROOM_DELIVERED, NULL);
	server_kill(&server);
	nats_start(&server, NULL);
	check_item(publish_topics(topics, 1), POSTROOM_DELIVERED, NULL);
	end();
}

TEST(K7_one_reachable_server_of_several_is_enough)
{
	char url[300];
	postroom_delivery *items;

	start();
	add_stream(NATS_STREAM, "orders.created", 0);
	snprintf(url, sizeof(url),
		 "nats://%s:%s@nowhere.invalid," SERVER_HOST ":%d," SERVER_HOST ":%d", NATS_USER,
		 NATS_PASSWORD_IN_URL, server_free_port(), server.port);
	rig_open(&rig, url);
	items = rig_items(&rig, 1);
	rig_publish(&rig, items, 1);
	check_item(&items[0], POSTROOM_DELIVERED, NULL);
	end();
}

/* Demands TLS, and says no more. */
static void *greet(void *context)
{
	static const char info[] = "INFO {\"server_id\":\"x\",\"version\":\"2.9.10\","
				   "\"headers\":true,\"max_payload\":1048576,"
				   "\"tls_required\":true}\r\n";
	int *fds = context; /* the listener, and whom it has let in */

	fds[1] = accept4(fds[0], NULL, NULL, SOCK_CLOEXEC);
	CHECK(fds[1] >= 0);
	CHECK(send(fds[1], info, strlen(info), MSG_NOSIGNAL) == (ssize_t)strlen(info));
	return NULL;
}

TEST(K7_endless_handshake_does_not_block_the_next_server)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fds[2] = { socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), -1 }, yes = 1;
	postroom_delivery *item;
	pthread_t greeter;

	rig_init(&rig);
	server.port = server_free_port();
	address.sin_port = htons((in_port_t)server.port);
	CHECK(setsockopt(fds[0], SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0);
	CHECK(bind(fds[0], (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(listen(fds[0], 1) == 0);
	CHECK(pthread_create(&greeter, NULL, greet, fds) == 0);
	open_target("");
	rig.flight.timeout_ms = SHORT_MS;
	item = rig_items(&rig, 1);
	rig_publish(&rig, item, 1);
	check_item(item, POSTROOM_UNREACHABLE, "in time");
	pthread_join(greeter, NULL);
	close(fds[0]);
	nats_start(&server, NULL);
	add_stream(NATS_STREAM, "orders.created", 0);
	while (item->verdict != POSTROOM_DELIVERED)
		rig_publish(&rig, item, 1);
	close(fds[1]);
	end();
}
