/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of amqp: as a source beyond the contract, with a real server in each of its states. */
#include "contract/source/source.h"

#include "base/time.h"
#include "servers/amqp.h"
#include "servers/proxy.h"

#include <stdlib.h>

#define LIMIT 1000
#define LEASE_MS 3000
#define BEAT_MS 1000	  /* a lease with heartbeats of a second, the shortest there are */
#define SLOW_BEAT_MS 6000 /* of three seconds: a busy machine does not miss two of them */
#define SHORT_MS 200

static struct server server;
static struct proxy proxy;
static struct rig rig;
static struct pr_events events;

/* The server is there for all tests: each has queues and exchanges of its own. */
static const char *own(const char *name)
{
	static char full[100];

	snprintf(full, sizeof(full), "%s-%s", amqp_own(), name);
	return full;
}

static void prepare(const struct server *at, const char *name)
{
	amqp_declare_exchange(at, own(name), "fanout");
	amqp_declare_queue(at, own(name), -1);
	amqp_bind(at, own(name), own(name), "");
}

/* As many ahead as the contract leaves open at once, and no more: others are to have some too. */
static void put_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	pr_buf_printf(out, "amqp://guest:guest@%s:%d//%s?prefetch=50", host, port, own(name));
}

static void put_sink_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	pr_buf_printf(out, "amqp://guest:guest@%s:%d/%%2F/%s", host, port, own(name));
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	pr_buf_printf(out, "amqp://guest:wrong-secret@%s:%d//%s", host, port, own(name));
}

static void publish_as(const struct server *at, const char *exchange, const char *routing_key,
		       amqp_basic_properties_t *properties, const char *body)
{
	amqp_connection_state_t connection = amqp_reach(at);

	CHECK(amqp_basic_publish(connection, 1, amqp_cstring_bytes(exchange),
				 amqp_cstring_bytes(routing_key), 0, 0, properties,
				 amqp_cstring_bytes(body)) == AMQP_STATUS_OK);
	amqp_end(connection);
}

static void publish_foreign(const struct server *at, const char *name, const char *body)
{
	publish_as(at, own(name), "", NULL, body);
}

const struct source_backend amqp_backend = {
	.server = &amqp_kind,
	.prepare = prepare,
	.put_url = put_url,
	.put_sink_url = put_sink_url,
	.put_intruder_url = put_intruder_url,
	.publish_foreign = publish_foreign,
	.wrong = { "amqp:", "amqp://localhost", "amqp://localhost/orders", "amqp:////orders",
		   "amqp://localhost:0//orders", "amqp://user@localhost//orders",
		   "amqp://:secret@localhost//orders", "amqp://localhost//orders?ca=x",
		   "amqps://localhost//orders?ca=/nowhere", "amqp://localhost//orders?prefetch=0",
		   "amqp://localhost//orders?prefetch=65536",
		   "amqp://localhost//orders?heartbeat=1s", "amqq://localhost//orders" },
	.pushes = true,
	.repeats = true,
	.unanswered = true,
	.shortest_lease_ms = LEASE_MS,
};

static struct pr_source *open_at(const char *host, int port, const char *settings, int64_t lease_ms)
{
	const char *url = pr_arena_printf(&rig.arena, "amqp%s://guest:guest@%s:%d//%s%s",
					  port == amqp_tls_port() ? "s" : "", host, port,
					  own("read"), settings);
	struct pr_source *source = NULL;

	CHECK_MSG(pr_source_open(url, "readers", lease_ms, &source, &rig.err) == POSTROOM_OK,
		  "%s: %s", url, rig.err.text);
	return source;
}

static struct pr_source *start(void)
{
	rig_init(&rig);
	amqp_start(&server);
	prepare(&server, "read");
	return open_at(SERVER_HOST, server.port, "", AMPLE_MS);
}

static void publish(const char *body)
{
	publish_foreign(&server, "read", body);
}

static int try_read(struct pr_source *source, size_t limit, int64_t wait_ms)
{
	pr_events_reset(&events);
	pr_err_clear(&rig.err);
	rig.flight.begin_until_us = pr_mono_us() + wait_ms * 1000;
	return source->ops->read(source, &events, limit, &rig.flight, &rig.err);
}

static void expect_one(struct pr_source *source, const char *body)
{
	CHECK_MSG(try_read(source, 1, AMPLE_MS) == POSTROOM_OK, "%s", rig.err.text);
	CHECK_INT(events.count, 1);
	CHECK_STR(events.list[0].body, body);
}

static int ack(struct pr_source *source)
{
	return source->ops->ack(source, &events, &rig.flight, &rig.err);
}

static void end(struct pr_source *source)
{
	pr_source_close(source);
	pr_events_release(&events);
	rig_release(&rig);
}

/* These members and no others, in any order: RabbitMQ 4 sorts the headers. */
static void check_members(const char *object, const char *const *members, size_t count)
{
	size_t len = 1; /* the braces, and a comma less than members */

	CHECK(object != NULL);
	for (size_t i = 0; i < count; i++) {
		CHECK_CONTAINS(object, members[i]);
		len += strlen(members[i]) + 1;
	}
	CHECK_INT(strlen(object), len);
}

TEST(N2_foreign_message_is_read_with_its_amqp_properties)
{
	struct pr_source *source = start();
	amqp_table_entry_t nothing = { .key = amqp_cstring_bytes("x") };
	amqp_table_entry_t entries[] = {
		{ .key = amqp_cstring_bytes("ce_id"),
		  .value = { .kind = AMQP_FIELD_KIND_UTF8,
			     .value = { .bytes = amqp_cstring_bytes("theirs") } } },
		{ .key = amqp_cstring_bytes("x-death"),
		  .value = { .kind = AMQP_FIELD_KIND_TABLE,
			     .value = { .table = { .num_entries = 0, .entries = &nothing } } } },
		{ .key = amqp_cstring_bytes("n"),
		  .value = { .kind = AMQP_FIELD_KIND_I32, .value = { .i32 = -7 } } },
		{ .key = amqp_cstring_bytes("b"),
		  .value = { .kind = AMQP_FIELD_KIND_BOOLEAN, .value = { .boolean = 1 } } },
		{ .key = amqp_cstring_bytes("bytes"),
		  .value = { .kind = AMQP_FIELD_KIND_BYTES,
			     .value = { .bytes = { .len = 2, .bytes = (char[]){ 'a', '\0' } } } } },
	};
	static const char *const members[] = {
		"\"ce_id\":\"theirs\"",
		"\"n\":\"-7\"",
		"\"b\":\"true\"",
		"\"bytes\":\"a\xef\xbf\xbd\"",
	};
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG,
		.headers = { .num_entries = 5, .entries = entries },
		.message_id = { .len = 3, .bytes = (char[]){ 'a', '\0', 'b' } },
	};

	publish_as(&server, own("read"), "orders.created", &properties, "hello");
	expect_one(source, "hello");
	CHECK_STR(events.list[0].topic, "orders.created");
	check_members(events.list[0].headers, members, sizeof(members) / sizeof(*members));
	/* An id that no text can hold would be taken for another's. */
	CHECK(events.list[0].id == NULL);
	CHECK(events.list[0].key == NULL && events.list[0].content_type == NULL);
	CHECK_STR(events.list[0].broker_position,
		  "sha256:58b533cea3757e8b91b0b9863a041db457a31862f238f2239c60866916c0ad77");
	end(source);
}

TEST(N2_headers_exclude_those_added_by_the_sink)
{
	struct pr_source *source = start();
	postroom_delivery *item = rig_items(&rig, 1);
	PR_CLEANUP_BUF struct pr_buf url = { 0 };

	item->headers = "{\"a\":\"b\"}";
	item->key = "o-1";
	put_sink_url(&url, SERVER_HOST, server.port, "read");
	rig_open(&rig, pr_buf_text(&url));
	rig_publish(&rig, item, 1);
	CHECK_INT(item->verdict, POSTROOM_DELIVERED);
	CHECK_INT(try_read(source, 1, AMPLE_MS), POSTROOM_OK);
	CHECK_STR(events.list[0].headers, "{\"a\":\"b\"}");
	CHECK_STR(events.list[0].key, "o-1");
	end(source);
}

TEST(N2_only_unacknowledged_events_are_redelivered_after_the_lease)
{
	struct pr_source *source = start();
	int64_t patience_us;

	pr_source_close(source);
	source = open_at(SERVER_HOST, server.port, "", LEASE_MS);
	publish("a");
	publish("b");
	expect_one(source, "a");
	expect_one(source, "b");
	CHECK_INT(ack(source), POSTROOM_OK);
	patience_us = pr_mono_us() + AMPLE_MS * 1000;
	do {
		CHECK_MSG(try_read(source, LIMIT, SHORT_MS) == POSTROOM_OK, "%s", rig.err.text);
		CHECK_MSG(pr_mono_us() < patience_us, "nothing has come");
	} while (events.count == 0);
	CHECK_INT(events.count, 1);
	CHECK_STR(events.list[0].body, "a");
	CHECK_INT(ack(source), POSTROOM_OK);
	publish("c");
	expect_one(source, "c");
	end(source);
}

TEST(N2_batch_of_earlier_connection_acknowledges_nothing)
{
	struct pr_source *source = start();
	struct pr_events before;

	publish("a");
	publish("b");
	expect_one(source, "a");
	before = events;
	events = (struct pr_events){ 0 };
	amqp_control("close_all_connections maintenance");
	while (try_read(source, LIMIT, AMPLE_MS) < 0)
		CHECK_INT(rig.err.status, POSTROOM_UNAVAILABLE);
	CHECK_INT(source->ops->ack(source, &before, &rig.flight, &rig.err), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "redelivers them");
	CHECK_INT(source->ops->keep(source, &before, &rig.flight, &rig.err), POSTROOM_UNAVAILABLE);
	pr_source_close(source);
	source = open_at(SERVER_HOST, server.port, "", AMPLE_MS);
	expect_one(source, "a");
	expect_one(source, "b");
	pr_events_release(&before);
	end(source);
}

TEST(N2_deleted_queue_is_an_outage_until_recreated)
{
	struct pr_source *source = start();
	amqp_connection_state_t connection;

	CHECK_INT(try_read(source, LIMIT, SHORT_MS), POSTROOM_OK);
	connection = amqp_reach(&server);
	CHECK(amqp_queue_delete(connection, 1, amqp_cstring_bytes(own("read")), 0, 0) != NULL);
	amqp_end(connection);
	CHECK_INT(try_read(source, LIMIT, AMPLE_MS), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "deleted");
	CHECK_INT(try_read(source, LIMIT, AMPLE_MS), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "amqp-declare-queue --queue");
	prepare(&server, "read");
	publish("a");
	expect_one(source, "a");
	end(source);
}

TEST(N2_consumer_takes_at_most_prefetch_events)
{
	struct pr_source *source = start(), *other;

	for (int i = 0; i < 5; i++)
		publish("a");
	pr_source_close(source);
	source = open_at(SERVER_HOST, server.port, "?prefetch=2", AMPLE_MS);
	expect_one(source, "a");
	expect_one(source, "a");
	other = open_at(SERVER_HOST, server.port, "?prefetch=3", AMPLE_MS);
	for (int i = 0; i < 3; i++)
		expect_one(other, "a");
	pr_source_close(other);
	end(source);
}

TEST(N2_a_read_that_waits_long_keeps_its_connection)
{
	struct pr_source *source = start();
	size_t before;

	pr_source_close(source);
	proxy_start(&proxy, server.port);
	source = open_at(SERVER_HOST, proxy.port, "", SLOW_BEAT_MS);
	CHECK_INT(try_read(source, LIMIT, SHORT_MS), POSTROOM_OK);
	before = proxy.requested;
	/* Each heartbeat is 8 bytes long, and there are two in three seconds: longer than may be silence. */
	while (proxy.requested < before + 6 * 8)
		CHECK_MSG(try_read(source, LIMIT, SHORT_MS) == POSTROOM_OK, "%s", rig.err.text);
	CHECK_INT(proxy.ended, 0);
	proxy.mode = PROXY_MUTE;
	while (try_read(source, LIMIT, SHORT_MS) == POSTROOM_OK)
		CHECK_INT(events.count, 0);
	CHECK_CONTAINS(rig.err.text, "silent for two heartbeats");
	proxy_end(&proxy);
	end(source);
}

TEST(N2_connection_closed_while_idle_loses_nothing)
{
	struct pr_source *source = start();

	pr_source_close(source);
	proxy_start(&proxy, server.port);
	source = open_at(SERVER_HOST, proxy.port, "", BEAT_MS);
	CHECK_INT(try_read(source, LIMIT, SHORT_MS), POSTROOM_OK);
	while (proxy.ended == 0) /* the server misses our heartbeats */
		wait_a_moment();
	publish("a");
	expect_one(source, "a");
	CHECK_INT(ack(source), POSTROOM_OK);
	proxy_end(&proxy);
	end(source);
}

TEST(N2_amqps_verifies_the_name_of_the_server)
{
	struct pr_source *source = start();
	const char *ca = pr_arena_printf(&rig.arena, "?ca=%s/ca.pem", amqp_directory());

	publish("a");
	pr_source_close(source);
	source = open_at(SERVER_HOST, amqp_tls_port(), ca, AMPLE_MS);
	CHECK_INT(try_read(source, LIMIT, AMPLE_MS), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "IP address mismatch");
	pr_source_close(source);
	source = open_at("localhost", amqp_tls_port(), ca, AMPLE_MS);
	expect_one(source, "a");
	CHECK_INT(ack(source), POSTROOM_OK);
	end(source);
}

TEST(N2_missing_read_permission_is_an_outage)
{
	struct pr_source *source = start();
	const char *url;

	pr_source_close(source);
	amqp_control("add_user writer the-secret");
	amqp_control("set_permissions writer '' '.*' ''");
	url = pr_arena_printf(&rig.arena, "amqp://writer:the-secret@localhost:%d//%s", server.port,
			      own("read"));
	CHECK_INT(pr_source_open(url, "readers", AMPLE_MS, &source, &rig.err), POSTROOM_OK);
	CHECK_INT(try_read(source, LIMIT, AMPLE_MS), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "ACCESS_REFUSED");
	CHECK_CONTAINS(rig.err.text, "must be allowed to read");
	CHECK(!strstr(rig.err.text, "the-secret"));
	end(source);
}

TEST(N2_read_permission_on_the_queue_is_enough)
{
	struct pr_source *source = start();
	const char *url;

	pr_source_close(source);
	amqp_control("add_user reader the-secret");
	amqp_control("set_permissions reader '^$' '^$' '.*'");
	url = pr_arena_printf(&rig.arena, "amqp://reader:the-secret@localhost:%d//%s", server.port,
			      own("read"));
	CHECK_INT(pr_source_open(url, "readers", AMPLE_MS, &source, &rig.err), POSTROOM_OK);
	publish("a");
	expect_one(source, "a");
	CHECK_INT(ack(source), POSTROOM_OK);
	CHECK_MSG(try_read(source, LIMIT, SHORT_MS) == POSTROOM_OK, "%s", rig.err.text);
	end(source);
}
