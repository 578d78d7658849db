/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of redis: beyond the sink contract, with a real server in each of its states. */
#include "servers/redis.h"
#include "contract/sink/server.h"
#include "contract/sink/sink.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONG ((size_t)32 * 1024 * 1024) /* more than the buffers on the way to the server */

static struct server server;
static struct rig rig;
static int silent_port;	     /* no server answers there; 0: the host name does not resolve */
static atomic_bool hanging;  /* names are looked up until this ends */
static atomic_bool stopping; /* the first look at a name makes the relay stop */
static atomic_int lookups;   /* of names, not of addresses */

/*
 * In libc's place, for names that lead to a silent address first and then where they lead,
 * and for those that no server answers for.
 */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
		struct addrinfo **ret)
{
	__typeof__(getaddrinfo) *libcs;
	struct addrinfo *silent;
	char port[16];
	int status;

	*(void **)&libcs = dlsym(RTLD_NEXT, "getaddrinfo");
	if (!(hints->ai_flags & AI_NUMERICHOST)) {
		lookups++;
		if (stopping)
			pr_stop_request(&rig.stop, AMPLE_MS);
		stopping = false;
		while (hanging)
			wait_a_moment();
	}
	status = libcs(name, service, hints, ret);
	if (status != 0 || silent_port == 0)
		return status;
	snprintf(port, sizeof(port), "%d", silent_port);
	status = libcs(SERVER_HOST, port, hints, &silent);
	silent->ai_next = *ret;
	*ret = silent;
	return status;
}

static atomic_int long_sends = -1; /* -1: they are not counted */

/* Replaces libc's function, for a long send after the receiver has disconnected. */
ssize_t send(int fd, const void *data, size_t len, int flags)
{
	__typeof__(send) *libcs;
	struct pollfd end_of_it = { .fd = fd };

	*(void **)&libcs = dlsym(RTLD_NEXT, "send");
	if (len > LONG / 2 && long_sends >= 0 && long_sends++ > 0)
		poll(&end_of_it, 1, -1);
	return libcs(fd, data, len, flags);
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

TEST(K6_url_sets_stream_database_and_length)
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

TEST(K6_server_that_cannot_accept_messages_is_an_outage)
{
	start();
	open_target("events");
	redis_command(&server, "CONFIG SET maxmemory 1");
	check_outage("OOM");
	redis_command(&server, "CONFIG SET maxmemory 0 min-replicas-to-write 1");
	check_outage("NOREPLICAS");
	redis_command(&server, "CONFIG SET min-replicas-to-write 0");
	redis_command(&server, "REPLICAOF " SERVER_HOST " %d", server_free_port());
	check_outage("READONLY");
	wait_until_no_connection_is_left(); /* after a failover the name leads to another server */
	redis_command(&server, "REPLICAOF NO ONE");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("events"), 1);
	redis_command(&server, "CONFIG SET requirepass changed");
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
	redis_command(&server, "CONFIG SET busy-reply-threshold 1");
	other = redisConnect(SERVER_HOST, server.port);
	CHECK(other != NULL && !other->err);
	redisAppendCommand(other, "AUTH " REDIS_PASSWORD);
	redisAppendCommand(other, "EVAL %s 0", "while true do end");
	CHECK(redisBufferWrite(other, &sent) == REDIS_OK && sent);
	while (!is_busy())
		wait_a_moment();
	check_outage("BUSY");
	check_outage("BUSY"); /* by a new connection */
	redis_command(&server, "SCRIPT KILL");
	while (publish_one("a") != POSTROOM_DELIVERED)
		wait_a_moment();
	redisFree(other);
	end();
}

/* More of them than make an outage when nothing arrives between. */
TEST(K6_forbidden_streams_fail_alone)
{
	postroom_delivery *items;

	start();
	redis_command(&server, "ACL SETUSER app on >pw +multi +exec +xadd ~orders*");
	open_as("app:pw", "");
	items = rig_items(&rig, 12);
	for (size_t i = 0; i < 12; i += 2)
		items[i].topic = "secret";
	rig_publish(&rig, items, 12);
	for (size_t i = 0; i < 12; i += 2) {
		CHECK_INT(items[i].verdict, POSTROOM_FAILED);
		CHECK_CONTAINS(items[i].reason, "XADD to \"secret\": NOPERM");
		CHECK_INT(items[i + 1].verdict, POSTROOM_DELIVERED);
	}
	CHECK_INT(length_of("orders.created"), 6);
	/* A single refusal looks like a user without any permission. */
	CHECK_INT(publish_one("secret"), POSTROOM_UNREACHABLE);
	redis_command(&server, "ACL SETUSER app -multi");
	open_as("app:pw", "");
	check_outage("refuses MULTI: NOPERM");
	end();
}

TEST(D6_messages_behind_a_refused_stream_are_not_resent_with_others)
{
	static const char *const tenants[] = { "bad", "good", "good" };
	postroom_delivery *items;

	start();
	redis_command(&server, "ACL SETUSER app on >pw +multi +exec +xadd ~to-good");
	open_as("app:pw", "to-{tenant}");
	items = rig_items(&rig, 4);
	for (size_t i = 0; i < 3; i++) {
		items[i].key = "k";
		items[i].tenant_id = tenants[i];
	}
	items[3].tenant_id = "good";
	rig_publish(&rig, items, 4);
	CHECK_INT(items[0].verdict, POSTROOM_FAILED);
	CHECK_INT(items[1].verdict, POSTROOM_UNTRIED);
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	CHECK_INT(items[3].verdict, POSTROOM_DELIVERED);
	CHECK_INT(length_of("to-good"), 1);
	end();
}

TEST(K6_body_too_long_for_the_server_fails_alone)
{
	char *body = calloc(LONG, 1);
	postroom_delivery *items;

	CHECK(body != NULL);
	start();
	redis_command(&server, "CONFIG SET proto-max-bulk-len 1mb");
	open_target("events");
	items = rig_items(&rig, 4);
	items[0].body = body;
	items[0].body_len = LONG;
	items[2].key = items[3].key = "k";
	items[2].body = body;
	items[2].body_len = LONG;
	rig_publish(&rig, items, 4);
	for (size_t i = 0; i < 4; i += 2) {
		CHECK_MSG(items[i].verdict == POSTROOM_FAILED, "%d: %s", items[i].verdict,
			  items[i].reason);
		CHECK_CONTAINS(items[i].reason, "invalid bulk length");
	}
	CHECK_INT(items[1].verdict, POSTROOM_DELIVERED);
	CHECK_INT(items[3].verdict, POSTROOM_UNTRIED); /* behind one that did not arrive */
	CHECK_INT(length_of("events"), 1);
	end();
	free(body);
}

TEST(K6_refusal_is_read_if_sending_fails_after_it)
{
	char *body = calloc(LONG, 1);
	postroom_delivery *item;

	CHECK(body != NULL);
	start();
	redis_command(&server, "CONFIG SET proto-max-bulk-len 1mb");
	open_target("events");
	item = rig_items(&rig, 1);
	item->body = body;
	item->body_len = LONG;
	long_sends = 0;
	rig_publish(&rig, item, 1);
	CHECK(long_sends > 1);
	CHECK_MSG(item->verdict == POSTROOM_FAILED, "%d: %s", item->verdict, item->reason);
	CHECK_CONTAINS(item->reason, "invalid bulk length");
	end();
	free(body);
}

TEST(D6_key_in_several_streams_is_sent_message_by_message)
{
	static const char *const tenants[] = { "t1", "t1", "t2", "t2" };
	postroom_delivery *items;

	start();
	redis_command(&server, "SET to-t1 occupied");
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
	redis_command(&server, "DEL to-t1");
	items[0].verdict = POSTROOM_UNTRIED;
	rig_publish(&rig, items, 4);
	CHECK_INT(items[1].verdict, POSTROOM_DELIVERED);
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	rig_publish(&rig, items + 2, 2);
	CHECK_INT(items[3].verdict, POSTROOM_DELIVERED);
	CHECK_INT(length_of("to-t2"), 2);
	end();
}

TEST(K6_message_without_a_stream_name_is_rejected)
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

TEST(K6_delivered_means_on_the_required_number_of_replicas)
{
	struct server replica = { .port = server_free_port() };
	redisReply *reply;

	start();
	open_target("events?wait=1&wait_timeout=20ms");
	check_outage("0 replicas have it instead of 1");
	CHECK(mkdir("replica", 0700) == 0 && chdir("replica") == 0);
	redis_start(&replica, "--masterauth", REDIS_PASSWORD);
	CHECK(chdir("..") == 0);
	redis_command(&replica, "REPLICAOF " SERVER_HOST " %d", server.port);
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

/* A session that waits for replicas has received the reply to EXEC. */
static void *cut_off_waiting(void *context)
{
	bool waiting = false;

	while (!waiting) {
		redisReply *reply = redis_ask(&server, "INFO clients");

		waiting = strstr(reply->str, "blocked_clients:1\r") != NULL;
		freeReplyObject(reply);
	}
	redis_command(&server, "CLIENT KILL TYPE normal");
	return context;
}

TEST(K6_unconfirmed_replicas_do_not_count)
{
	pthread_t cutter;

	start();
	open_target("events?wait=1&wait_timeout=1m");
	CHECK(pthread_create(&cutter, NULL, cut_off_waiting, NULL) == 0);
	check_outage("is lost");
	pthread_join(cutter, NULL);
	CHECK_INT(length_of("events"), 3);
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

TEST(K6_server_without_persistence_is_warned_about_once)
{
	start();
	open_target("events");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(count_warnings(), 0);
	redis_command(&server, "CONFIG SET appendonly no");
	for (int i = 0; i < 3; i++) {
		redis_command(&server, "CLIENT KILL TYPE normal");
		CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	}
	CHECK_INT(count_warnings(), 1);
	end();
}

TEST(K6_connection_closed_while_idle_uses_no_attempt)
{
	start();
	open_target("events");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	redis_command(&server, "CLIENT KILL TYPE normal");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("events"), 2);
	end();
}

TEST(K6_cluster_that_serves_no_slots_is_an_outage)
{
	postroom_delivery *items;

	rig_init(&rig);
	server.port = server_free_port();
	redis_start(&server, "--cluster-enabled", "yes");
	open_target("");
	check_outage("CLUSTERDOWN");
	redis_command(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
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

/* The backlog is full: the kernel answers no further client. */
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

TEST(K6_unresponsive_address_leaves_time_for_the_next_one)
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

static void open_by_name(void)
{
	char url[300];

	snprintf(url, sizeof(url), "redis://:" REDIS_PASSWORD "@localhost:%d/events", server.port);
	rig_open(&rig, url);
	hanging = true;
}

TEST(K6_hanging_name_server_is_an_outage_and_is_queried_once)
{
	start();
	open_by_name();
	rig.flight.timeout_ms = 20;
	check_outage("localhost");
	check_outage("localhost");
	while (lookups == 0) /* its thread may not have begun yet */
		wait_a_moment();
	CHECK_INT(lookups, 1);
	rig.flight.timeout_ms = AMPLE_MS;
	hanging = false;
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(lookups, 1);
	end();
}

TEST(D4_a_stop_ends_the_wait_for_a_name)
{
	start();
	open_by_name();
	stopping = true;
	CHECK_INT(publish_one("a"), POSTROOM_UNTRIED);
	CHECK_INT(lookups, 1);
	while (stopping)
		wait_a_moment();
	end(); /* while it is still looked up */
	hanging = false;
}

static void open_tls(const char *host, int port, const char *settings)
{
	char url[300];

	snprintf(url, sizeof(url), "rediss://:" REDIS_PASSWORD "@%s:%d/events%s", host, port,
		 settings);
	pr_sink_close(rig.sink);
	rig.sink = NULL;
	rig_open(&rig, url);
}

TEST(K6_rediss_trusts_only_the_configured_authority)
{
	int port = server_free_port();
	char *body = calloc(LONG, 1);
	postroom_delivery *items;

	CHECK(body != NULL);
	start();
	CHECK(system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
		     "-addext subjectAltName=DNS:localhost -keyout key.pem -out ca.pem "
		     "2>openssl.log") == 0);
	redis_command(
		&server,
		"CONFIG SET tls-cert-file ca.pem tls-key-file key.pem tls-ca-cert-file ca.pem "
		"tls-auth-clients no tls-port %d",
		port);
	open_tls("localhost", port, "?ca=ca.pem");
	items = rig_items(&rig, 500);
	items[7].body = body;
	items[7].body_len = LONG;
	rig_publish(&rig, items, 500);
	for (size_t i = 0; i < 500; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_DELIVERED, "%s", items[i].reason);
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("events"), 501);
	open_tls(SERVER_HOST, port, "?ca=ca.pem");
	check_outage("IP address mismatch");
	open_tls("localhost", port, "");
	check_outage("self-signed certificate");
	open_tls("localhost", server.port, "?ca=ca.pem");
	rig.flight.timeout_ms = 100; /* without TLS the server may wait for the end of a line */
	check_outage("localhost");
	rig.flight.timeout_ms = AMPLE_MS;
	redis_command(&server, "CONFIG SET tls-auth-clients yes");
	open_tls("localhost", port, "?ca=ca.pem");
	check_outage("certificate required");
	open_tls("localhost", port, "?ca=ca.pem&cert=ca.pem&key=key.pem");
	CHECK_INT(publish_one("a"), POSTROOM_DELIVERED);
	CHECK_INT(length_of("events"), 502);
	end();
	free(body);
}
