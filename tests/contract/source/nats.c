/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of nats: as a source beyond the contract. */
#include "contract/source/source.h"

#include "base/time.h"
#include "servers/nats.h"

#include <stdlib.h>

/* Of the window in which a message is known again: as short as the server takes it. */
#define SHORTEST_NS ((int64_t)100 * 1000 * 1000)

static void prepare(const struct server *at, const char *stream)
{
	jsStreamConfig config;
	char subject[64];

	jsStreamConfig_Init(&config);
	config.Duplicates = SHORTEST_NS;
	snprintf(subject, sizeof(subject), "%s.>", stream);
	nats_add_stream(at, stream, subject, config);
}

static void put_url(struct pr_buf *out, const char *host, int port, const char *stream)
{
	pr_buf_printf(out, "nats://%s:%s@%s:%d/%s", NATS_USER, NATS_PASSWORD_IN_URL, host, port,
		      stream);
}

static void put_sink_url(struct pr_buf *out, const char *host, int port, const char *stream)
{
	put_url(out, host, port, stream);
	pr_buf_puts(out, ".{topic}");
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port, const char *stream)
{
	pr_buf_printf(out, "nats://" NATS_USER ":wrong-secret@%s:%d/%s", host, port, stream);
}

static void publish_foreign(const struct server *at, const char *stream, const char *body)
{
	struct nats_desk desk;
	char subject[64];

	snprintf(subject, sizeof(subject), "%s.foreign", stream);
	CHECK(nats_reach(at, &desk));
	CHECK(js_Publish(NULL, desk.js, subject, body, (int)strlen(body), NULL, NULL) == NATS_OK);
	nats_leave(&desk);
}

const struct source_backend nats_backend = {
	.server = &nats_kind,
	.prepare = prepare,
	.put_url = put_url,
	.put_sink_url = put_sink_url,
	.put_intruder_url = put_intruder_url,
	.publish_foreign = publish_foreign,
	.wrong = { "nats:", "nats://localhost", "nats:///ORDERS", "nats://localhost:0/ORDERS",
		   "nats://localhost/orders.created", "nats://localhost/OR%20DERS",
		   "nats://localhost/OR%25DERS", "nats://localhost/ORDERS?durable=a.b",
		   "nats://localhost/ORDERS?durable=", "nats://localhost/ORDERS?creds=/nowhere",
		   "nats://localhost/ORDERS?cert=/nowhere", "nats://:password@localhost/ORDERS",
		   "nats://localhost/ORDERS?durabel=a" },
	.groups = true,
	.repeats = true,
	.shortest_lease_ms = 6000,
};

#define LEASE_MS 3000
#define LIMIT 100
#define LONG ((size_t)9 * 1024 * 1024) /* more than a read gives, but for a single one */

static struct server server;
static struct rig rig;
static struct pr_source *source;
static struct pr_events events;

static struct pr_source *open_source(const char *target, const char *group)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_source *opened = NULL;

	put_url(&url, SERVER_HOST, server.port, target);
	CHECK_MSG(pr_source_open(pr_buf_text(&url), group, LEASE_MS, &opened, &rig.err) ==
			  POSTROOM_OK,
		  "%s", rig.err.text);
	return opened;
}

/* Its events are not redelivered for the duration of a test. */
static struct pr_source *open_patiently(void)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_source *opened = NULL;

	put_url(&url, SERVER_HOST, server.port, "ORDERS");
	CHECK_INT(pr_source_open(pr_buf_text(&url), "readers", AMPLE_MS, &opened, &rig.err),
		  POSTROOM_OK);
	return opened;
}

static void start(const char *settings)
{
	rig_init(&rig);
	server.port = server_free_port();
	nats_start(&server, settings);
	prepare(&server, "ORDERS");
	source = open_source("ORDERS", "readers");
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
	return source->ops->read(source, &events, LIMIT, &rig.flight, &rig.err);
}

static void read_some(void)
{
	CHECK_MSG(try_read(AMPLE_MS) == POSTROOM_OK, "%s", rig.err.text);
	CHECK(events.count > 0);
}

static void check_refused(const char *says)
{
	CHECK_INT(try_read(AMPLE_MS), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, says);
}

static void ack(void)
{
	CHECK_MSG(source->ops->ack(source, &events, &rig.flight, &rig.err) == POSTROOM_OK, "%s",
		  rig.err.text);
}

static void publish_numbers(int first, int count)
{
	char body[16];

	for (int i = first; i < first + count; i++) {
		snprintf(body, sizeof(body), "%d", i);
		publish_foreign(&server, "ORDERS", body);
	}
}

/* A consumer that another program has made, explicit and pulled from unless the test says otherwise. */
static jsConsumerConfig consumer(const char *name)
{
	jsConsumerConfig config;

	jsConsumerConfig_Init(&config);
	config.Durable = name;
	config.AckPolicy = js_AckExplicit;
	return config;
}

static void add_consumer(jsConsumerConfig *config)
{
	struct nats_desk desk;
	jsErrCode code = 0;

	CHECK(nats_reach(&server, &desk));
	CHECK_MSG(js_AddConsumer(NULL, desk.js, "ORDERS", config, NULL, &code) == NATS_OK, "%d %s",
		  (int)code, nats_GetLastError(NULL));
	nats_leave(&desk);
}

/* The caller destroys it. */
static jsConsumerInfo *read_consumer_info(const char *name)
{
	struct nats_desk desk;
	jsConsumerInfo *info = NULL;

	CHECK(nats_reach(&server, &desk));
	CHECK_MSG(js_GetConsumerInfo(&info, desk.js, "ORDERS", name, NULL, NULL) == NATS_OK,
		  "there is no consumer %s", name);
	nats_leave(&desk);
	return info;
}

TEST(N2_consumer_that_could_lose_events_is_refused)
{
	jsConsumerConfig config = consumer("readers");

	start(NULL);
	config.DeliverSubject = "elsewhere";
	add_consumer(&config);
	check_refused("is a push consumer");
	CHECK_CONTAINS(rig.err.text, "nats consumer rm ORDERS readers");
	pr_source_close(source);
	config = consumer("careless");
	config.AckPolicy = js_AckAll;
	add_consumer(&config);
	source = open_source("ORDERS?durable=careless", "readers");
	check_refused("ack_policy");
	pr_source_close(source);
	config = consumer("impatient");
	config.MaxDeliver = 3;
	add_consumer(&config);
	source = open_source("ORDERS?durable=impatient", "readers");
	check_refused("max_deliver");
	pr_source_close(source);
	config = consumer("short");
	config.HeadersOnly = true;
	add_consumer(&config);
	source = open_source("ORDERS?durable=short", "readers");
	check_refused("headers_only");
	end();
}

TEST(N2_existing_consumer_keeps_its_settings_except_the_lease)
{
	jsConsumerConfig config = consumer("readers");
	jsConsumerInfo *info;

	start(NULL);
	config.FilterSubject = "ORDERS.foreign";
	config.MaxAckPending = 7;
	add_consumer(&config);
	publish_numbers(0, 1);
	read_some();
	info = read_consumer_info("readers");
	CHECK_INT(info->Config->AckWait, (int64_t)LEASE_MS * 1000 * 1000);
	CHECK_STR(info->Config->FilterSubject, "ORDERS.foreign");
	CHECK_INT(info->Config->MaxAckPending, 7);
	jsConsumerInfo_Destroy(info);
	end();
}

TEST(N2_created_consumer_has_no_delivery_limit)
{
	jsConsumerInfo *info;

	start(NULL);
	publish_numbers(0, 1);
	read_some();
	info = read_consumer_info("readers");
	CHECK_INT(info->Config->AckPolicy, js_AckExplicit);
	CHECK_INT(info->Config->DeliverPolicy, js_DeliverAll);
	CHECK_INT(info->Config->MaxDeliver, -1);
	CHECK_INT(info->NumAckPending, 1);
	jsConsumerInfo_Destroy(info);
	ack();
	info = read_consumer_info("readers");
	CHECK_INT(info->NumAckPending, 0);
	CHECK_INT(info->AckFloor.Stream, 1);
	jsConsumerInfo_Destroy(info);
	end();
}

TEST(N2_each_handler_name_has_its_own_consumer)
{
	static const char *const names[][2] = { { "billing.charge", "billing=2Echarge" },
						{ "billing=2Echarge", "billing=3D2Echarge" },
						{ "100% of Zo\xc3\xab/",
						  "100=25=20of=20Zo\xc3\xab=2F" } };
	char too_long[300];
	struct pr_source *none = NULL;

	start(NULL);
	publish_numbers(0, 1);
	for (size_t i = 0; i < 3; i++) {
		pr_source_close(source);
		source = open_source("ORDERS", names[i][0]);
		read_some();
		ack();
		jsConsumerInfo_Destroy(read_consumer_info(names[i][1]));
	}
	memset(too_long, 'x', sizeof(too_long));
	too_long[sizeof(too_long) - 1] = '\0';
	CHECK_INT(pr_source_open("nats://localhost/ORDERS", too_long, LEASE_MS, &none, &rig.err),
		  POSTROOM_SINK);
	CHECK_CONTAINS(rig.err.text, "255");
	end();
}

TEST(N2_deleted_consumer_is_recreated)
{
	struct nats_desk desk;

	start(NULL);
	publish_numbers(0, 1);
	read_some();
	CHECK(nats_reach(&server, &desk));
	CHECK(js_DeleteConsumer(desk.js, "ORDERS", "readers", NULL, NULL) == NATS_OK);
	nats_leave(&desk);
	CHECK_INT(source->ops->ack(source, &events, &rig.flight, &rig.err), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "is redelivered");
	read_some();
	CHECK_STR(events.list[0].broker_position, "ORDERS/1");
	ack();
	end();
}

TEST(N2_unacknowledged_event_is_redelivered_before_later_ones)
{
	size_t came = 0;

	start(NULL);
	publish_numbers(0, 3);
	read_some();
	CHECK_INT(events.count, 3);
	publish_numbers(3, 1);
	while (came < 4) {
		read_some();
		for (size_t i = 0; i < events.count; i++)
			CHECK_INT(events.list[i].body[0] - '0', came++);
		ack();
	}
	end();
}

TEST(N2_consumer_with_small_reads_delivers_all_events)
{
	jsConsumerConfig config = consumer("readers");
	struct pr_events others = { 0 };
	struct pr_source *other;
	size_t came = 2;

	start(NULL);
	pr_source_close(source);
	source = open_patiently();
	other = open_patiently();
	config.MaxAckPending = 3;
	add_consumer(&config);
	publish_numbers(0, 9);
	rig.flight.begin_until_us = pr_mono_us() + AMPLE_MS * 1000;
	CHECK_INT(other->ops->read(other, &others, 2, &rig.flight, &rig.err), POSTROOM_OK);
	CHECK_INT(others.count, 2);
	while (came < 9) {
		read_some();
		CHECK(events.count <= 3);
		for (size_t i = 0; i < events.count; i++)
			CHECK_INT(events.list[i].body[0] - '0', came++);
		if (came == 3)
			CHECK_INT(other->ops->ack(other, &others, &rig.flight, &rig.err),
				  POSTROOM_OK);
		ack();
	}
	pr_source_close(other);
	pr_events_release(&others);
	end();
}

TEST(N2_message_longer_than_a_read_is_returned_alone)
{
	postroom_delivery item;
	char *body = calloc(LONG, 1);
	PR_CLEANUP_BUF struct pr_buf url = { 0 };

	CHECK(body != NULL);
	start("max_payload: 16MB");
	put_sink_url(&url, SERVER_HOST, server.port, "ORDERS");
	rig_open(&rig, pr_buf_text(&url));
	for (int i = 0; i < 3; i++) {
		item = rig_item(&rig, i, NULL, "null");
		item.body = body;
		item.body_len = i == 1 ? LONG : 10;
		rig_publish(&rig, &item, 1);
		CHECK_MSG(item.verdict == POSTROOM_DELIVERED, "%s", item.reason);
	}
	for (int i = 0; i < 3; i++) {
		read_some();
		CHECK_INT(events.count, 1);
		CHECK_INT(events.list[0].len, i == 1 ? LONG : 10);
		ack();
	}
	end();
	free(body);
}

TEST(N2_foreign_message_has_its_subject_as_topic_and_all_headers)
{
	struct nats_desk desk;
	natsMsg *msg = NULL;

	start(NULL);
	CHECK(nats_reach(&server, &desk));
	CHECK(natsMsg_Create(&msg, "ORDERS.a.b", NULL, "x\0y", 3) == NATS_OK);
	CHECK(natsMsgHeader_Set(msg, "content-type", "text/plain") == NATS_OK);
	CHECK(natsMsgHeader_Add(msg, "Via", "one") == NATS_OK);
	CHECK(natsMsgHeader_Add(msg, "Via", "two \"2\"") == NATS_OK);
	CHECK(natsMsgHeader_Set(msg, "ce-subject", "100%25%00%zz%FF") == NATS_OK);
	CHECK(js_PublishMsg(NULL, desk.js, msg, NULL, NULL) == NATS_OK);
	natsMsg_Destroy(msg);
	nats_leave(&desk);
	read_some();
	CHECK(events.list[0].id == NULL);
	CHECK_STR(events.list[0].topic, "ORDERS.a.b");
	CHECK_STR(events.list[0].content_type, "text/plain");
	CHECK_STR(events.list[0].headers, "{\"Via\":\"one, two \\\"2\\\"\"}");
	CHECK_STR(events.list[0].key, "100%25%00%zz%FF");
	CHECK_INT(events.list[0].len, 3);
	CHECK(memcmp(events.list[0].body, "x\0y", 4) == 0);
	ack();
	end();
}

TEST(N2_headers_without_a_value_hide_nothing)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	postroom_delivery item;
	struct nats_desk desk;
	natsMsg *msg = NULL;

	start(NULL);
	put_sink_url(&url, SERVER_HOST, server.port, "ORDERS");
	rig_open(&rig, pr_buf_text(&url));
	item = rig_item(&rig, 7, "k", NULL);
	item.headers = "{\"a\":\"\",\"b\":\" \",\"c\":\"\",\"d\":\"1\",\"e\":\"\"}";
	rig_publish(&rig, &item, 1);
	CHECK_INT(item.verdict, POSTROOM_DELIVERED);
	read_some();
	CHECK_STR(events.list[0].id, "id-7");
	CHECK_STR(events.list[0].key, "k");
	CHECK_STR(events.list[0].headers, "{\"d\":\"1\"}");
	ack();
	CHECK(nats_reach(&server, &desk));
	CHECK(natsMsg_Create(&msg, "ORDERS.a", NULL, "x", 1) == NATS_OK);
	CHECK(natsMsgHeader_Set(msg, "empty", "") == NATS_OK);
	CHECK(js_PublishMsg(NULL, desk.js, msg, NULL, NULL) == NATS_OK);
	natsMsg_Destroy(msg);
	nats_leave(&desk);
	read_some();
	CHECK_STR(events.list[0].topic, "ORDERS.a");
	CHECK_STR(events.list[0].body, "x");
	ack();
	end();
}

TEST(N2_missing_permission_is_reported_and_works_once_granted)
{
	start(NULL);
	publish_numbers(0, 1);
	nats_permit(&server, NATS_DENY("$JS.API.>"));
	check_refused("must be allowed to publish to $JS.API.CONSUMER.>");
	nats_permit(&server, NATS_DENY("$JS.ACK.>"));
	read_some();
	CHECK_INT(source->ops->ack(source, &events, &rig.flight, &rig.err), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "$JS.ACK.>");
	nats_permit(&server, "{ publish: [\"$JS.API.CONSUMER.*.ORDERS.readers\", "
			     "\"$JS.API.CONSUMER.*.*.ORDERS.readers\", "
			     "\"$JS.ACK.ORDERS.readers.>\"], subscribe: [\"_INBOX.>\"] }");
	read_some();
	ack();
	end();
}

TEST(N2_message_longer_than_a_tls_record_is_complete)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	size_t len = 1024 * 1024 + 7;
	char *body = malloc(len);
	size_t came = 0;

	CHECK(body != NULL);
	for (size_t i = 0; i < len; i++)
		body[i] = (char)(i * 7 + i / 251);
	CHECK_INT(system("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
			 "-subj /CN=localhost -addext subjectAltName=IP:" SERVER_HOST " "
			 "-keyout key.pem -out cert.pem 2>openssl.log"),
		  0);
	CHECK(setenv("SSL_CERT_FILE", "cert.pem", 1) == 0);
	start("tls { cert_file: \"cert.pem\", key_file: \"key.pem\" }");
	pr_source_close(source);
	source = NULL;
	put_sink_url(&url, SERVER_HOST, server.port, "ORDERS");
	rig_open(&rig, pr_buf_text(&url));
	for (int i = 0; i < 3; i++) {
		postroom_delivery item = rig_item(&rig, i, NULL, "null");

		item.body = body;
		item.body_len = len;
		rig_publish(&rig, &item, 1);
		CHECK_MSG(item.verdict == POSTROOM_DELIVERED, "%s", item.reason);
	}
	pr_buf_reset(&url);
	put_url(&url, SERVER_HOST, server.port, "ORDERS?ca=cert.pem");
	CHECK_INT(pr_source_open(pr_buf_text(&url), "readers", AMPLE_MS, &source, &rig.err),
		  POSTROOM_OK);
	while (came < 3) {
		read_some();
		for (size_t i = 0; i < events.count; i++, came++) {
			CHECK_INT(events.list[i].len, len);
			CHECK(memcmp(events.list[i].body, body, len) == 0);
		}
		ack();
	}
	end();
	free(body);
}
