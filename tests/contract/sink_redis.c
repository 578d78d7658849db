/* SPDX-License-Identifier: Apache-2.0 */
/* What redis: promises beyond the contract, against a real server in each of its moods. */
#include "contract/sink.h"
#include "contract/sink_server.h"
#include "servers/redis.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONG ((size_t)32 * 1024 * 1024) /* more than the buffers on the way to the server */

static struct server server;
static struct rig rig;
static int silent_port; /* where nobody answers; 0: no name leads there */

/* In libc's place, for names that lead to a silent address first and then where they lead. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
		struct addrinfo **ret)
{
	__typeof__(getaddrinfo) *libcs;
	struct addrinfo *silent;
	char port[16];
	int status;

	*(void **)&libcs = dlsym(RTLD_NEXT, "getaddrinfo");
	status = libcs(name, service, hints, ret);
	if (status != 0 || silent_port == 0)
		return status;
	snprintf(port, sizeof(port), "%d", silent_port);
	status = libcs(SERVER_HOST, port, hints, &silent);
	silent->ai_next = *ret;
	*ret = silent;
	return status;
}

static void start(void)
{
	rig_init(&rig);
	server.port = server_free_port();
	redis_start(&server, NULL, NULL);
}

static void end(void)
{
	rig_release(&rig);
	server_kill(&server);
}

/* With its user, its stream and its settings: "app:pw", "orders?db=3". */
static void open_as(const char *user, const char *target)
{
	char url[300];

	snprintf(url, sizeof(url), "redis://%s@" SERVER_HOST ":%d/%s", user, server.port, target);
	pr_sink_close(rig.sink);
	rig.sink = NULL;
	rig_open(&rig, url);
}

static void open_target(const char *target)
{
	open_as(":" REDIS_PASSWORD, target);
}

static postroom_verdict publish_one(const char *topic)
{
	postroom_delivery *item = rig_items(&rig, 1);

	item->topic = topic;
	rig_publish(&rig, item, 1);
	return item->verdict;
}

static int64_t length_of(const char *stream)
{
	redisReply *reply = redis_ask(&server, "XLEN %s", stream);
	int64_t length = reply->integer;

	freeReplyObject(reply);
	return length;
}

static void check_outage(const char *says)
{
	rig_check_outage(&rig, says);
}

/* The asking one aside. */
static void wait_until_no_connection_is_left(void)
{
	for (;;) {
		redisReply *reply = redis_ask(&server, "INFO clients");
		bool alone = strstr(reply->str, "connected_clients:1\r") != NULL;

		freeReplyObject(reply);
		if (alone)
			return;
		wait_a_moment();
	}
}

TEST(K6_every_field_of_a_message_is_in_its_entry)
{
	static const char *const fields[][2] = {
		{ "id", "id-0" },
		{ "namespace", "shop" },
		{ "topic", "orders.created" },
		{ "key", "o-1" },
		{ "tenant_id", "0b7e0a3c-5d1e-4c39-8f6e-0d3f5c1f2a4b" },
		{ "dedupe_key", "d" },
		{ "correlation_id", "c" },
		{ "attempt", "3" },
		{ "created_at", "2023-11-14T22:13:20.123456Z" },
		{ "headers", "{\"a\":\"b\"}" },
		{ "content_type", "application/json" },
		{ "payload", "{\"number\": 0}" },
	};
	PR_CLEANUP_BUF struct pr_buf none = { 0 };
	postroom_delivery *item;

	start();
	item = rig_items(&rig, 2);
	item->ns = "shop";
	item->key = "o-1";
	item->tenant_id = "0b7e0a3c-5d1e-4c39-8f6e-0d3f5c1f2a4b";
	item->dedupe_key = "d";
	item->correlation_id = "c";
	item->attempt = 3;
	item->headers = "{\"a\":\"b\"}";
	item[1].body = "";
	open_target("events");
	rig_publish(&rig, item, 2);
	CHECK_INT(item->verdict, POSTROOM_DELIVERED);
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		PR_CLEANUP_BUF struct pr_buf got = { 0 };

		CHECK(redis_field(&server, "id-0", fields[i][0], &got));
		CHECK_STR(pr_buf_text(&got), fields[i][1]);
	}
	CHECK(redis_field(&server, "id-1", "key", &none) && none.len == 0);
	CHECK(!redis_field(&server, "id-0", "body", &none));
	CHECK(redis_field(&server, "id-1", "body", &none) && none.len == 0);
	end();
}

TEST(K6_stream_database_and_length_are_as_the_url_says)
{
	redisReply *reply;

	start();
	open_target("{namespace}:{topic}:%7B%7Btag%7D%7D");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("default:a:{tag}"), 1);
	open_target("");
	CHECK_INT(publish_one("b"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("b"), 1);
	open_target("c?db=5");
	CHECK_INT(publish_one("c"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("c"), 0);
	reply = redis_ask(&server, "INFO keyspace");
	CHECK_CONTAINS(reply->str, "db5:keys=1");
	freeReplyObject(reply);
	open_target("d?maxlen=100");
	for (int i = 0; i < 10; i++)
		rig_publish(&rig, rig_items(&rig, 100), 100);
	CHECK_MSG(length_of("d") >= 100 && length_of("d") < 1000, "%d", (int)length_of("d"));
	open_target("e?db=99");
	check_outage("refuses SELECT");
	end();
}

TEST(K6_a_server_that_can_not_take_it_now_is_an_outage)
{
	start();
	open_target("events");
	redis_tell(&server, "CONFIG SET maxmemory 1");
	check_outage("OOM");
	redis_tell(&server, "CONFIG SET maxmemory 0 min-replicas-to-write 1");
	check_outage("NOREPLICAS");
	redis_tell(&server, "CONFIG SET min-replicas-to-write 0");
	redis_tell(&server, "REPLICAOF " SERVER_HOST " %d", server_free_port());
	check_outage("READONLY");
	wait_until_no_connection_is_left(); /* after a failover the name leads to another server */
	redis_tell(&server, "REPLICAOF NO ONE");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("events"), 1);
	redis_tell(&server, "CONFIG SET requirepass changed");
	pr_sink_close(rig.sink);
	rig.sink = NULL;
	open_target("events");
	check_outage("WRONGPASS");
	open_as("", "events");
	check_outage("NOAUTH");
	end();
}

static bool is_busy(void)
{
	redisContext *context = redisConnect(SERVER_HOST, server.port);
	redisReply *reply;
	bool busy;

	CHECK(context != NULL && !context->err);
	freeReplyObject(redisCommand(context, "AUTH " REDIS_PASSWORD));
	reply = redisCommand(context, "PING");
	busy = reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSY", 4) == 0;
	freeReplyObject(reply);
	redisFree(context);
	return busy;
}

TEST(K6_a_server_busy_with_a_script_is_an_outage)
{
	redisContext *other;
	int sent = 0;

	start();
	open_target("events");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	redis_tell(&server, "CONFIG SET busy-reply-threshold 1");
	other = redisConnect(SERVER_HOST, server.port);
	CHECK(other != NULL && !other->err);
	redisAppendCommand(other, "AUTH " REDIS_PASSWORD);
	redisAppendCommand(other, "EVAL %s 0", "while true do end");
	CHECK(redisBufferWrite(other, &sent) == REDIS_OK && sent);
	while (!is_busy())
		wait_a_moment();
	check_outage("BUSY");
	check_outage("BUSY"); /* by a new connection */
	redis_tell(&server, "SCRIPT KILL");
	while (publish_one("a") != POSTROOM_DELIVERED)
		wait_a_moment();
	redisFree(other);
	end();
}

TEST(K6_a_stream_that_the_user_may_not_write_fails_alone)
{
	postroom_delivery *items;

	start();
	redis_tell(&server, "ACL SETUSER app on >pw +multi +exec +xadd ~orders*");
	open_as("app:pw", "");
	items = rig_items(&rig, 3);
	items[1].topic = "secret";
	rig_publish(&rig, items, 3);
	CHECK_INT(items[0].verdict, POSTROOM_UNTRIED);
	CHECK_INT(items[1].verdict, POSTROOM_FAILED);
	CHECK_CONTAINS(items[1].reason, "XADD to \"secret\": NOPERM");
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	CHECK_INT(length_of("orders.created"), 0);
	CHECK_INT(publish_one("orders.created"), POSTROOM_DELIVERED);
	/* Alone it can not be told from a user who may nothing. */
	CHECK_INT(publish_one("secret"), POSTROOM_UNREACHABLE);
	redis_tell(&server, "ACL SETUSER app -multi");
	open_as("app:pw", "");
	check_outage("refuses MULTI: NOPERM");
	end();
}

TEST(K6_a_body_that_the_server_finds_too_long_fails_alone)
{
	char *body = calloc(LONG, 1);
	postroom_delivery *items;

	CHECK(body != NULL);
	start();
	redis_tell(&server, "CONFIG SET proto-max-bulk-len 1mb");
	open_target("events");
	items = rig_items(&rig, 3);
	items[1].body = body;
	items[1].body_len = LONG;
	rig_publish(&rig, items, 3);
	CHECK_INT(items[0].verdict, POSTROOM_UNTRIED);
	CHECK_MSG(items[1].verdict == POSTROOM_FAILED, "%d: %s", items[1].verdict, items[1].reason);
	CHECK_CONTAINS(items[1].reason, "invalid bulk length");
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	CHECK_INT(length_of("events"), 0);
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	end();
	free(body);
}

TEST(D6_one_key_in_several_streams_goes_message_by_message)
{
	static const char *const tenants[] = { "t1", "t1", "t2", "t2" };
	postroom_delivery *items;

	start();
	redis_tell(&server, "SET to-t1 occupied");
	open_target("to-{tenant}");
	items = rig_items(&rig, 4);
	for (size_t i = 0; i < 4; i++) {
		items[i].key = "k";
		items[i].tenant_id = tenants[i];
	}
	rig_publish(&rig, items, 4);
	CHECK_INT(items[0].verdict, POSTROOM_FAILED);
	for (size_t i = 1; i < 4; i++)
		CHECK_INT(items[i].verdict, POSTROOM_UNTRIED);
	CHECK_INT(length_of("to-t2"), 0);
	redis_tell(&server, "DEL to-t1");
	items[0].verdict = POSTROOM_UNTRIED;
	rig_publish(&rig, items, 4);
	CHECK_INT(items[1].verdict, POSTROOM_DELIVERED);
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	rig_publish(&rig, items + 2, 2);
	CHECK_INT(items[3].verdict, POSTROOM_DELIVERED);
	CHECK_INT(length_of("to-t2"), 2);
	end();
}

TEST(K6_a_message_without_a_name_for_its_stream_is_rejected)
{
	postroom_delivery *items;

	start();
	open_target("{tenant}");
	items = rig_items(&rig, 2);
	items[1].tenant_id = "t";
	rig_publish(&rig, items, 2);
	CHECK_INT(items[0].verdict, POSTROOM_REJECTED);
	CHECK_CONTAINS(items[0].reason, "{tenant}");
	CHECK_INT(items[1].verdict, POSTROOM_DELIVERED);
	end();
}

TEST(K6_delivered_means_on_as_many_replicas_as_asked_for)
{
	struct server replica = { .port = server_free_port() };
	redisReply *reply;

	start();
	open_target("events?wait=1&wait_timeout=20ms");
	check_outage("0 replicas have it instead of 1");
	CHECK(mkdir("replica", 0700) == 0 && chdir("replica") == 0);
	redis_start(&replica, "--masterauth", REDIS_PASSWORD);
	CHECK(chdir("..") == 0);
	redis_tell(&replica, "REPLICAOF " SERVER_HOST " %d", server.port);
	open_target("events?wait=1&wait_timeout=1m");
	while (publish_one("last") != POSTROOM_DELIVERED)
		wait_a_moment();
	reply = redis_ask(&replica, "XREVRANGE events + - COUNT 1");
	CHECK_INT(reply->elements, 1);
	CHECK_STR(reply->element[0]->element[1]->element[5]->str, "last");
	freeReplyObject(reply);
	server_kill(&replica);
	end();
}

static size_t count_warnings(void)
{
	PR_CLEANUP_BUF struct pr_buf log = { 0 };
	size_t count = 0;

	read_file("log", &log);
	for (const char *at = pr_buf_text(&log); (at = strstr(at, "OUTBOX_SINK_WARNING")); at++)
		count++;
	return count;
}

TEST(K6_a_server_that_keeps_nothing_on_disk_is_warned_of_once)
{
	start();
	open_target("events");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(count_warnings(), 0);
	redis_tell(&server, "CONFIG SET appendonly no");
	for (int i = 0; i < 3; i++) {
		redis_tell(&server, "CLIENT KILL TYPE normal");
		CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	}
	CHECK_INT(count_warnings(), 1);
	end();
}

TEST(K6_a_connection_closed_while_idle_costs_nothing)
{
	start();
	open_target("events");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	redis_tell(&server, "CLIENT KILL TYPE normal");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("events"), 2);
	end();
}

TEST(K6_a_cluster_that_does_not_serve_the_stream_is_an_outage)
{
	postroom_delivery *items;

	rig_init(&rig);
	server.port = server_free_port();
	redis_start(&server, "--cluster-enabled", "yes");
	open_target("");
	check_outage("CLUSTERDOWN");
	redis_tell(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
	while (publish_one("a") != POSTROOM_DELIVERED)
		wait_a_moment();
	items = rig_items(&rig, 2);
	items[0].topic = "a";
	rig_publish(&rig, items, 2);
	CHECK_INT(items[0].verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(items[0].reason, "CROSSSLOT");
	open_target("{{shop}}:{topic}");
	items = rig_items(&rig, 2);
	items[0].topic = "a";
	rig_publish(&rig, items, 2);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	CHECK_INT(items[1].verdict, POSTROOM_DELIVERED);
	end();
}

/* Its backlog is full: the kernel answers nobody else. */
static int be_silent(int fds[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t len = sizeof(address);

	address.sin_addr.s_addr = inet_addr(SERVER_HOST);
	for (size_t i = 0; i < 2; i++)
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(bind(fds[0], (struct sockaddr *)&address, len) == 0 && listen(fds[0], 0) == 0);
	CHECK(getsockname(fds[0], (struct sockaddr *)&address, &len) == 0);
	CHECK(connect(fds[1], (struct sockaddr *)&address, len) == 0);
	return ntohs(address.sin_port);
}

TEST(K6_an_address_that_does_not_answer_leaves_time_for_the_next_one)
{
	int fds[2];

	start();
	open_target("orders");
	rig.flight.timeout_ms = 2000;
	silent_port = be_silent(fds);
	CHECK_INT(publish_one("t"), POSTROOM_DELIVERED);
	silent_port = 0;
	for (size_t i = 0; i < 2; i++)
		close(fds[i]);
	end();
}
