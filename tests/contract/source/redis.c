/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of redis: as a source beyond the contract. */
#include "contract/source/source.h"

#include "base/time.h"
#include "servers/redis.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void put_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	pr_buf_printf(out, "redis://:" REDIS_PASSWORD "@%s:%d/%s", host, port, name);
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	pr_buf_printf(out, "redis://:wrong-secret@%s:%d/%s", host, port, name);
}

/* The fields that our sink writes, in its order. */
#define OURS(id)                                                                                   \
	"id " id " namespace default topic orders key k tenant_id t dedupe_key d "                 \
	"correlation_id c attempt 1 created_at now headers {} content_type application/json "      \
	"payload"

static void publish_foreign(const struct server *server, const char *name, const char *body)
{
	redis_command(server, "XADD %s * " OURS("%s") " %s", name, "", body);
}

const struct source_backend redis_backend = {
	.server = &redis_kind,
	.put_url = put_url,
	.put_sink_url = put_url,
	.put_intruder_url = put_intruder_url,
	.publish_foreign = publish_foreign,
	.wrong = { "redis:", "redis://localhost", "redis:///orders", "redis://localhost:0/orders",
		   "redis://localhost/0", "redis://user@localhost/orders",
		   "redis://localhost/orders?ca=x", "rediss://localhost/orders?ca=/nowhere",
		   "redis://localhost/orders?group=", "redis://localhost/orders?grup=a",
		   "rediz://localhost/orders" },
	.makes = true,
	.groups = true,
	.shortest_lease_ms = 6000,
};

#define LEASE_MS 2000

static struct server server;
static struct rig rig;
static struct pr_source *source;
static struct pr_events events;

static struct pr_source *open_as(const char *user, const char *target)
{
	struct pr_source *opened;
	char url[300];

	snprintf(url, sizeof(url), "redis://%s@" SERVER_HOST ":%d/%s", user, server.port, target);
	CHECK_MSG(pr_source_open(url, "readers", LEASE_MS, &opened, &rig.err) == POSTROOM_OK, "%s",
		  rig.err.text);
	return opened;
}

static void start(void)
{
	rig_init(&rig);
	server.port = server_free_port();
	redis_start(&server, NULL, NULL);
	source = open_as(":" REDIS_PASSWORD, "orders");
}

static void end(void)
{
	pr_source_close(source);
	pr_events_release(&events);
	rig_release(&rig);
	server_kill(&server);
}

static int try_read(int64_t wait_ms)
{
	pr_events_reset(&events);
	rig.flight.begin_until_us = pr_mono_us() + wait_ms * 1000;
	return source->ops->read(source, &events, 100, &rig.flight, &rig.err);
}

static void read_one(void)
{
	do
		CHECK_MSG(try_read(AMPLE_MS) == POSTROOM_OK, "%s", rig.err.text);
	while (events.count == 0);
	CHECK_INT(events.count, 1);
}

static void ack(void)
{
	CHECK_MSG(source->ops->ack(source, &events, &rig.flight, &rig.err) == POSTROOM_OK, "%s",
		  rig.err.text);
}

static int64_t pending(void)
{
	redisReply *reply = redis_ask(&server, "XPENDING orders readers");
	int64_t count = reply->element[0]->integer;

	freeReplyObject(reply);
	return count;
}

static bool has_consumer(const char *name)
{
	redisReply *reply = redis_ask(&server, "XINFO CONSUMERS orders readers");
	bool found = false;

	for (size_t i = 0; i < reply->elements; i++)
		found = found || strcmp(reply->element[i]->element[1]->str, name) == 0;
	freeReplyObject(reply);
	return found;
}

TEST(N2_foreign_entry_becomes_an_object_of_its_fields)
{
	start();
	redis_command(&server, "XADD orders 7-1 id 5 total %b", "9\"\0\xff", (size_t)4);
	read_one();
	CHECK(events.list->id == NULL && events.list->key == NULL && events.list->headers == NULL);
	CHECK_STR(events.list->broker_position, "orders/7-1");
	CHECK_STR(events.list->topic, "orders");
	CHECK_STR(events.list->content_type, "application/json");
	CHECK_STR(events.list->body, "{\"id\":\"5\",\"total\":\"9\\\"\xef\xbf\xbd\xef\xbf\xbd\"}");
	CHECK_INT(events.list->len, strlen(events.list->body));
	ack();
	end();
}

TEST(N2_id_of_a_foreign_entry_is_not_its_identity)
{
	static const char *const entries[] = {
		"id a payload 1",	   "payload 1 id a topic t",	 OURS("a") " 1 more 2",
		"first 1 " OURS("a") " 1", OURS("a") " 1 body 2 body 3",
	};

	start();
	for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
		char command[400];

		snprintf(command, sizeof(command), "XADD orders * %s", entries[i]);
		redis_command(&server, command);
		read_one();
		CHECK_MSG(events.list->id == NULL, "%s", entries[i]);
		CHECK_STR(events.list->topic, "orders");
		CHECK_CONTAINS(events.list->body, "\"id\":\"a\"");
		ack();
	}
	redis_command(&server, "XADD orders * " OURS("a") " 1 body 2");
	read_one();
	CHECK_STR(events.list->id, "a");
	CHECK_STR(events.list->body, "2");
	ack();
	end();
}

TEST(N2_binary_fields_are_ignored)
{
	start();
	redis_command(
		&server,
		"XADD orders * id %b namespace n topic %b key %b tenant_id t dedupe_key d "
		"correlation_id c attempt 1 created_at now headers %s content_type a/b payload 1",
		"a\0b", (size_t)3, "", (size_t)0, "\xff", (size_t)1, "[\"no\",\"headers\"]");
	read_one();
	CHECK(events.list->id == NULL && events.list->key == NULL && events.list->headers == NULL);
	CHECK_STR(events.list->topic, "orders");
	CHECK_STR(events.list->body, "1");
	ack();
	end();
}

TEST(D5_unacknowledged_events_are_read_before_new_ones_after_reconnect)
{
	start();
	source->lease_ms = AMPLE_MS;
	redis_command(&server, "XADD orders 1-1 " OURS("a") " 1");
	read_one();
	redis_command(&server, "CLIENT KILL TYPE normal");
	redis_command(&server, "XADD orders 2-1 " OURS("b") " 2");
	read_one();
	CHECK_STR(events.list->id, "a");
	ack();
	read_one();
	CHECK_STR(events.list->id, "b");
	ack();
	CHECK_INT(pending(), 0);
	end();
}

TEST(events_beyond_the_byte_limit_are_in_the_next_read)
{
	size_t seen = 0, len = (size_t)1024 * 1024;
	char *large = calloc(1, len);

	CHECK(large != NULL);
	start();
	source->lease_ms = AMPLE_MS;
	/* After small ones many are asked for at once. */
	for (int i = 0; i < 16; i++)
		redis_command(&server, "XADD orders * " OURS("small") " 1");
	CHECK_INT(try_read(AMPLE_MS), POSTROOM_OK);
	CHECK_INT(events.count, 16);
	ack();
	for (int i = 0; i < 20; i++)
		redis_command(&server, "XADD orders * " OURS("large-%d") " 1 body %b", i, large,
			      len);
	while (seen < 20) {
		char id[32];

		CHECK_MSG(try_read(AMPLE_MS) == POSTROOM_OK, "%s", rig.err.text);
		CHECK(events.count > 0 && events.count * len <= PR_SOURCE_BYTES);
		snprintf(id, sizeof(id), "large-%zu", seen);
		CHECK_STR(events.list[0].id, id);
		seen += events.count;
		ack();
	}
	CHECK_INT(pending(), 0);
	free(large);
	end();
}

TEST(D5_recreated_stream_is_read_from_its_beginning)
{
	start();
	CHECK_INT(try_read(1), POSTROOM_OK);
	redis_command(&server, "DEL orders");
	redis_command(&server, "XADD orders 1-1 " OURS("a") " 1");
	read_one();
	CHECK_STR(events.list->id, "a");
	ack();
	end();
}

static void *delete_while_it_waits(void *context)
{
	bool waits = false;

	(void)context;
	while (!waits) {
		redisReply *reply = redis_ask(&server, "INFO clients");

		waits = strstr(reply->str, "blocked_clients:1\r");
		freeReplyObject(reply);
	}
	redis_command(&server, "DEL orders");
	redis_command(&server, "XADD orders 1-1 " OURS("a") " 1");
	return NULL;
}

TEST(D5_stream_deleted_during_a_wait_is_read_when_recreated)
{
	pthread_t thread;

	start();
	CHECK(pthread_create(&thread, NULL, delete_while_it_waits, NULL) == 0);
	read_one();
	CHECK_STR(events.list->id, "a");
	ack();
	pthread_join(thread, NULL);
	end();
}

/* Reads on without acknowledging. */
static int64_t pending_after_read(void)
{
	CHECK_INT(try_read(AMPLE_MS), POSTROOM_OK);
	return pending();
}

TEST(entries_deleted_while_claimed_do_not_stay_pending)
{
	start();
	for (int i = 1; i <= 40; i++)
		redis_command(&server, "XADD orders %d-1 " OURS("%d") " 1", i, i);
	while (pending_after_read() < 40)
		;
	for (int i = 1; i < 40; i++)
		redis_command(&server, "XDEL orders %d-1", i);
	redis_command(&server, "CLIENT KILL TYPE normal");
	read_one();
	CHECK_STR(events.list->id, "40");
	ack();
	CHECK_INT(pending(), 0);
	end();
}

TEST(dead_consumers_are_removed)
{
	start();
	redis_command(&server, "XGROUP CREATE orders readers 0 MKSTREAM");
	redis_command(&server, "XGROUP CREATECONSUMER orders readers gone");
	while (has_consumer("gone")) {
		pr_source_close(source);
		source = open_as(":" REDIS_PASSWORD, "orders");
		source->lease_ms = LEASE_MS / 100; /* ten of them are the silence of the dead */
		CHECK_INT(try_read(1), POSTROOM_OK);
	}
	end();
}

TEST(close_with_nothing_pending_removes_the_consumer)
{
	char name[PR_UUID_SIZE];

	start();
	redis_command(&server, "XADD orders 1-1 " OURS("a") " 1");
	read_one();
	snprintf(name, sizeof(name), "%s", source->consumer);
	CHECK(has_consumer(name));
	ack();
	pr_source_close(source);
	while (has_consumer(name))
		wait_a_moment();
	source = NULL;
	end();
}

TEST(the_url_may_name_the_group)
{
	redisReply *reply;

	start();
	pr_source_close(source);
	source = open_as(":" REDIS_PASSWORD, "orders?group=billing&db=3");
	CHECK_INT(try_read(1), POSTROOM_OK);
	redis_command(&server, "SWAPDB 0 3");
	reply = redis_ask(&server, "XINFO GROUPS orders");
	CHECK_STR(reply->element[0]->element[1]->str, "billing");
	freeReplyObject(reply);
	end();
}

TEST(user_with_the_documented_permissions_can_read)
{
	start();
	redis_command(&server, "ACL SETUSER reader on >pw ~orders +xreadgroup +xautoclaim +xclaim "
			       "+xack");
	redis_command(&server, "XADD orders 1-1 " OURS("a") " 1");
	pr_source_close(source);
	source = open_as("reader:pw", "orders");
	CHECK_INT(try_read(AMPLE_MS), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "NOPERM");
	CHECK_CONTAINS(rig.err.text, "+xgroup");
	redis_command(&server, "ACL SETUSER reader +xgroup|create");
	read_one();
	CHECK(source->ops->keep(source, &events, &rig.flight, &rig.err) == POSTROOM_OK);
	ack();
	CHECK_INT(pending(), 0);
	end();
}

TEST(key_that_is_not_a_stream_is_reported)
{
	start();
	redis_command(&server, "SET orders occupied");
	CHECK_INT(try_read(AMPLE_MS), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "\"orders\"");
	CHECK_CONTAINS(rig.err.text, "not a stream");
	redis_command(&server, "DEL orders");
	CHECK_INT(try_read(1), POSTROOM_OK);
	end();
}

TEST(K6_rediss_reads_through_tls)
{
	int port = server_free_port();
	char url[300];

	start();
	CHECK(system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
		     "-addext subjectAltName=DNS:localhost -keyout key.pem -out ca.pem "
		     "2>openssl.log") == 0);
	redis_command(
		&server,
		"CONFIG SET tls-cert-file ca.pem tls-key-file key.pem tls-ca-cert-file ca.pem "
		"tls-auth-clients no tls-port %d",
		port);
	redis_command(&server, "XADD orders 1-1 " OURS("a") " 1");
	pr_source_close(source);
	snprintf(url, sizeof(url), "rediss://:" REDIS_PASSWORD "@localhost:%d/orders?ca=ca.pem",
		 port);
	CHECK_INT(pr_source_open(url, "readers", LEASE_MS, &source, &rig.err), POSTROOM_OK);
	read_one();
	CHECK_STR(events.list->id, "a");
	ack();
	end();
}

/* A server that gives a malformed reply to every command. */
static void *answer_oddly(void *context)
{
	static const char odd[] = "*1\r\n*2\r\n$6\r\norders\r\n*1\r\n$3\r\n1-0\r\n";
	int fd = accept4(*(int *)context, NULL, NULL, SOCK_CLOEXEC);
	char asked[1000];

	while (recv(fd, asked, sizeof(asked), 0) > 0)
		send(fd, odd, strlen(odd), MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

TEST(malformed_entries_are_an_outage)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pthread_t other;

	rig_init(&rig);
	server.port = server_free_port();
	address.sin_port = htons((in_port_t)server.port);
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	      listen(listener, 1) == 0);
	CHECK(pthread_create(&other, NULL, answer_oddly, &listener) == 0);
	source = open_as(":" REDIS_PASSWORD, "orders");
	CHECK_INT(try_read(AMPLE_MS), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "XREADGROUP was not answered as it should be");
	pr_source_close(source);
	pthread_join(other, NULL);
	close(listener);
	pr_events_release(&events);
	rig_release(&rig);
}
