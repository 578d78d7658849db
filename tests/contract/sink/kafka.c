/* SPDX-License-Identifier: Apache-2.0 */
/* How kafka: maps a message to a record, and the broker's replies to verdicts. */
#include "servers/kafka.h"
#include "base/time.h"
#include "contract/sink/server.h"
#include "contract/sink/sink.h"

#define SHORT_MS 200	    /* for a publish that is meant to run out of time */
#define MANY 3000	    /* takes longer to hand over than the shortest linger */
#define INIT_PRODUCER_ID 22 /* the number of that request in the protocol */

static struct server server;
static struct rig rig;

static void begin(const char *rest)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };

	rig_init(&rig);
	server.port = server_free_port();
	kafka_kind.start(&server);
	kafka_kind.put_url(&url, SERVER_HOST, server.port);
	pr_buf_puts(&url, rest);
	rig_open(&rig, pr_buf_text(&url));
}

static void end(void)
{
	rig_release(&rig);
	server_kill(&server);
}

static void check_delivered(const postroom_delivery *items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_DELIVERED, "%s: %d %s", items[i].id,
			  items[i].verdict, items[i].reason);
}

static void check_arrived(const char *expected)
{
	PR_CLEANUP_BUF struct pr_buf ids = { 0 };

	kafka_kind.ids(&server, &ids);
	CHECK_STR(pr_buf_text(&ids), expected);
}

static void check_header(const rd_kafka_message_t *record, const char *name, const char *expected)
{
	PR_CLEANUP_BUF struct pr_buf value = { 0 };

	CHECK_MSG(kafka_header(record, name, &value), "no header %s", name);
	CHECK_STR(pr_buf_text(&value), expected);
}

static bool check_whole(rd_kafka_message_t *record, void *context)
{
	const postroom_delivery *item = context;
	rd_kafka_timestamp_type_t type;

	CHECK_INT(record->key_len, strlen(item->key));
	CHECK(memcmp(record->key, item->key, record->key_len) == 0);
	CHECK_INT(rd_kafka_message_timestamp(record, &type), 1700000000123);
	CHECK_INT(type, RD_KAFKA_TIMESTAMP_CREATE_TIME);
	check_header(record, "ce_specversion", "1.0");
	check_header(record, "ce_id", "id-7");
	check_header(record, "ce_source", "/postroom/default");
	check_header(record, "ce_type", "orders.created");
	check_header(record, "ce_time", "2023-11-14T22:13:20.123456Z");
	check_header(record, "ce_subject", "k");
	check_header(record, "ce_tenantid", item->tenant_id);
	check_header(record, "ce_correlationid", "c");
	check_header(record, "content-type", "text/plain");
	check_header(record, "idempotency-key", "d");
	check_header(record, "traceparent", "00-1-2-03");
	check_header(record, "", "nameless");
	return false;
}

TEST(K5_record_has_key_time_and_cloudevent_headers)
{
	postroom_delivery item;

	begin("/");
	item = rig_item(&rig, 7, "k", NULL);
	item.tenant_id = "6b1f1f3e-0b7e-4b43-9b1e-000000000001";
	item.correlation_id = "c";
	item.dedupe_key = "d";
	item.content_type = "text/plain";
	item.headers = "{\"traceparent\":\"00-1-2-03\",\"\":\"nameless\",\"CE_id\":\"forged\","
		       "\"ce_id\":\"forged\",\"Content-Type\":\"forged\",\"content-type\":"
		       "\"forged\",\"idempotency-key\":\"forged\"}";
	rig_publish(&rig, &item, 1);
	check_delivered(&item, 1);
	kafka_each(check_whole, &item);
	end();
}

/* The numbers are those of the tests of Kafka's own clients in Java. */
static const struct {
	const char *key;
	uint32_t hash;
} hashes[] = {
	{ "21", (uint32_t)-973932308 },
	{ "foobar", (uint32_t)-790332482 },
	{ "a-little-bit-long-string", (uint32_t)-985981536 },
	{ "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", (uint32_t)-58897971 },
};

static bool check_partition(rd_kafka_message_t *record, void *context)
{
	size_t *seen = context;

	for (size_t i = 0; i < sizeof(hashes) / sizeof(*hashes); i++) {
		if (record->key_len == strlen(hashes[i].key) &&
		    memcmp(record->key, hashes[i].key, record->key_len) == 0) {
			CHECK_INT(record->partition, (hashes[i].hash & 0x7fffffff) % 7);
			++*seen;
		}
	}
	return true;
}

TEST(K5_key_selects_the_same_partition_as_the_java_client)
{
	size_t count = sizeof(hashes) / sizeof(*hashes), seen = 0;
	postroom_delivery *items;

	begin("/seven");
	kafka_order("partitions seven 7");
	items = rig_items(&rig, count);
	for (size_t i = 0; i < count; i++)
		items[i].key = hashes[i].key;
	rig_publish(&rig, items, count);
	check_delivered(items, count);
	kafka_each(check_partition, &seen);
	CHECK_INT(seen, count);
	end();
}

static bool put_topic(rd_kafka_message_t *record, void *context)
{
	pr_buf_printf(context, "%s\n", rd_kafka_topic_name(record->rkt));
	return true;
}

TEST(K5_every_message_gets_a_valid_topic_name)
{
	PR_CLEANUP_BUF struct pr_buf topics = { 0 };
	PR_CLEANUP_BUF struct pr_buf longest = { 0 };
	postroom_delivery *items;

	begin("/{key}");
	items = rig_items(&rig, 6);
	while (longest.len < 250)
		pr_buf_putc(&longest, 'x');
	items[0].key = "..";
	items[1].key = ".";
	items[2].key = longest.data;
	items[3].key = longest.data + 1; /* as long as may be */
	items[4].key = "a/b_\xc3\xa9";
	items[5].key = "a_2Fb_";
	rig_publish(&rig, items, 6);
	for (int i = 0; i < 3; i++)
		CHECK_INT(items[i].verdict, POSTROOM_REJECTED);
	CHECK_CONTAINS(items[0].reason, "\"..\"");
	CHECK_CONTAINS(items[2].reason, "249 bytes");
	check_delivered(&items[3], 3);
	kafka_each(put_topic, &topics);
	CHECK_CONTAINS(pr_buf_text(&topics), "a_5F2Fb_\n");
	CHECK_CONTAINS(pr_buf_text(&topics), "a_2Fb__C3_A9\n");
	CHECK_CONTAINS(pr_buf_text(&topics), longest.data + 1);
	end();
}

TEST(K5_message_too_large_alone_is_rejected)
{
	postroom_delivery *item;

	begin("/");
	item = rig_items(&rig, 1);
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
	rig_publish(&rig, item, 1);
	CHECK_INT(item->verdict, POSTROOM_REJECTED);
	CHECK_CONTAINS(item->reason, "topic \"orders.created\"");
	item->verdict = POSTROOM_UNTRIED;
	rig_publish(&rig, item, 1);
	check_delivered(item, 1);
	end();
}

TEST(K5_message_over_the_limit_is_rejected_and_others_are_delivered)
{
	static char body[5000];
	postroom_delivery *items;

	begin("/?kafka.message.max.bytes=2000");
	items = rig_items(&rig, 4);
	items[1].body = body;
	items[1].body_len = sizeof(body);
	items[1].key = items[2].key = "k";
	rig_publish(&rig, items, 4);
	CHECK_INT(items[1].verdict, POSTROOM_REJECTED);
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	check_delivered(&items[0], 1);
	check_delivered(&items[3], 1);
	end();
}

TEST(K5_request_that_is_too_large_is_sent_one_by_one)
{
	postroom_delivery *items;

	begin("/one");
	kafka_order("partitions one 1");
	items = rig_items(&rig, 4);
	for (int i = 0; i < 4; i++)
		items[i].key = "k";
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
	rig_publish(&rig, items, 4);
	check_delivered(items, 4);
	check_arrived("id-0\nid-1\nid-2\nid-3\n");
	end();
}

/* As a property does that names a file which has gone since. */
static void spoil_property(const char *value)
{
	struct pr_param_list *properties = (void *)((char *)rig.sink +
						    rig.sink->ops->params[0].offset);

	properties->items[1] = value;
}

TEST(K5_message_too_large_only_with_others_is_not_a_dead_letter)
{
	postroom_delivery *items;

	begin("/one?kafka.linger.ms=50");
	kafka_order("partitions one 1");
	items = rig_items(&rig, 4);
	rig_publish(&rig, items, 1);
	check_delivered(items, 1);
	items = rig_items(&rig, 4);
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
	spoil_property("soon");
	rig_publish(&rig, items, 4);
	for (int i = 0; i < 4; i++)
		CHECK_INT(items[i].verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(items[3].reason, "linger.ms");
	end();
}

TEST(D6_refused_record_blocks_later_records_of_its_key)
{
	postroom_delivery *items;

	begin("/one?kafka.batch.num.messages=1&kafka.max.in.flight=1");
	kafka_order("partitions one 1");
	items = rig_items(&rig, 3);
	for (int i = 0; i < 3; i++)
		items[i].key = "k";
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_INVALID_RECORD);
	rig_publish(&rig, items, 3);
	CHECK_INT(items[0].verdict, POSTROOM_FAILED);
	CHECK(items[0].reason && items[0].reason[0]);
	CHECK_INT(items[1].verdict, POSTROOM_UNTRIED);
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	check_arrived("");
	rig_publish(&rig, items, 3); /* by a new producer */
	check_delivered(items, 3);
	check_arrived("id-0\nid-1\nid-2\n");
	end();
}

static void check_order_with(const char *rest)
{
	postroom_delivery *items;

	begin(rest);
	kafka_order("partitions one 1");
	items = rig_items(&rig, 1);
	rig_publish(&rig, items, 1);
	check_delivered(items, 1);
	items = rig_items(&rig, MANY);
	for (int i = 0; i < MANY; i++)
		items[i].key = "k";
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_INVALID_RECORD);
	rig_publish(&rig, items, MANY);
	CHECK_INT(items[0].verdict, POSTROOM_FAILED);
	for (int i = 1; i < MANY; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_UNTRIED, "%s: %d", items[i].id,
			  items[i].verdict);
	check_arrived("id-0\n");
	end();
}

/* Each record may be a request of its own as soon as it is handed over. */
TEST(D6_order_does_not_depend_on_linger)
{
	check_order_with("/one?kafka.linger.ms=0");
}

TEST(D6_order_survives_a_short_linger)
{
	check_order_with("/one?kafka.linger.ms=1");
}

TEST(D6_order_survives_a_queue_that_holds_less_than_a_request)
{
	check_order_with("/one?kafka.queue.buffering.max.messages=10");
}

TEST(D6_messages_of_a_key_over_several_requests_are_delivered_in_order)
{
	PR_CLEANUP_BUF struct pr_buf expected = { 0 };
	static char body[3000];
	postroom_delivery *items;

	begin("/one?kafka.batch.size=10000");
	kafka_order("partitions one 1");
	items = rig_items(&rig, 20);
	for (int i = 0; i < 20; i++) {
		items[i].key = "k";
		items[i].body = body;
		items[i].body_len = sizeof(body);
		pr_buf_printf(&expected, "id-%d\n", i);
	}
	rig_publish(&rig, items, 20);
	check_delivered(items, 20);
	check_arrived(pr_buf_text(&expected));
	/* The first request is refused: nothing behind it is sent. */
	for (int i = 0; i < 20; i++)
		items[i].verdict = POSTROOM_UNTRIED;
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_INVALID_RECORD);
	rig_publish(&rig, items, 20);
	CHECK_INT(items[0].verdict, POSTROOM_FAILED);
	for (int i = 1; i < 20; i++)
		CHECK_INT(items[i].verdict, POSTROOM_UNTRIED);
	check_arrived(pr_buf_text(&expected));
	end();
}

TEST(K5_library_retries_transient_broker_errors)
{
	static const int passing[] = { RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
				       RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
				       RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT };

	begin("/one");
	kafka_order("partitions one 1");
	for (size_t i = 0; i < sizeof(passing) / sizeof(*passing); i++) {
		postroom_delivery *items = rig_items(&rig, 3);

		kafka_order("push %d %d 1", KAFKA_PRODUCE, passing[i]);
		rig_publish(&rig, items, 3);
		check_delivered(items, 3);
	}
	end();
}

TEST(K5_lasting_broker_error_is_an_outage)
{
	postroom_delivery *items;

	begin("/one");
	kafka_order("partitions one 1");
	items = rig_items(&rig, 1);
	rig_publish(&rig, items, 1);
	check_delivered(items, 1);
	kafka_order("push %d %d 50", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS);
	rig.flight.timeout_ms = SHORT_MS;
	items = rig_items(&rig, 3);
	rig_publish(&rig, items, 3);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(items[i].verdict, POSTROOM_UNREACHABLE);
		CHECK_CONTAINS(items[i].reason, SERVER_HOST);
	}
	end();
}

TEST(K5_messages_for_missing_topic_wait_until_it_exists)
{
	postroom_delivery *items;

	begin("/missing");
	kafka_order("topic missing %d", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
	items = rig_items(&rig, 2);
	rig_publish(&rig, items, 2);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(items[i].verdict, POSTROOM_UNREACHABLE);
		CHECK_CONTAINS(items[i].reason, "topic \"missing\"");
	}
	kafka_order("topic missing 0");
	while (items[0].verdict != POSTROOM_DELIVERED) {
		CHECK(items[0].verdict != POSTROOM_REJECTED);
		rig_publish(&rig, items, 2);
	}
	check_delivered(items, 2);
	end();
}

TEST(K5_forbidden_topic_is_an_outage_and_makes_no_dead_letter)
{
	postroom_delivery *item;

	begin("/one");
	kafka_order("partitions one 1");
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
	item = rig_items(&rig, 1);
	rig_publish(&rig, item, 1);
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item->reason, "topic \"one\"");
	rig_publish(&rig, item, 1);
	check_delivered(item, 1);
	end();
}

TEST(K5_a_broken_producer_is_replaced)
{
	postroom_delivery *items;
	int tries = 0;

	begin("/one");
	kafka_order("partitions one 1");
	items = rig_items(&rig, 1);
	rig_publish(&rig, items, 1);
	check_delivered(items, 1);
	items = rig_items(&rig, 3);
	kafka_order("push %d %d 1", KAFKA_PRODUCE, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
	rig_publish(&rig, items, 3);
	for (int i = 0; i < 3; i++)
		CHECK_INT(items[i].verdict, POSTROOM_UNREACHABLE);
	for (; items[0].verdict != POSTROOM_DELIVERED; tries++)
		rig_publish(&rig, items, 3);
	CHECK_INT(tries, 1);
	check_delivered(items, 3);
	end();
}

TEST(K5_connection_closed_while_idle_uses_no_attempt)
{
	postroom_delivery *items;

	begin("/");
	items = rig_items(&rig, 2);
	rig_publish(&rig, items, 1);
	check_delivered(items, 1);
	server_kill(&server);
	kafka_kind.start(&server);
	rig_publish(&rig, &items[1], 1);
	check_delivered(items, 2);
	end();
}

TEST(D6_key_in_several_topics_waits_for_each)
{
	postroom_delivery *items;

	begin("/t-{tenant}");
	items = rig_items(&rig, 4);
	for (int i = 0; i < 4; i++) {
		items[i].key = "k";
		items[i].tenant_id = i < 2 ? "6b1f1f3e-0b7e-4b43-9b1e-000000000001"
					   : "6b1f1f3e-0b7e-4b43-9b1e-000000000002";
	}
	rig_publish(&rig, items, 4);
	check_delivered(items, 2);
	CHECK_INT(items[2].verdict, POSTROOM_UNTRIED);
	CHECK_INT(items[3].verdict, POSTROOM_UNTRIED);
	rig_publish(&rig, &items[2], 2);
	check_delivered(items, 4);
	end();
}

TEST(K5_invalid_properties_are_reported_with_the_error_of_the_library)
{
	static const struct {
		const char *setting, *error;
	} cases[] = {
		{ "kafka.lingering=1", "No such configuration property: \"lingering\"" },
		{ "kafka.linger.ms=soon", "kafka.linger.ms: Invalid value" },
		{ "kafka.log_cb=x", "kafka.log_cb: " },
		{ "kafka.acks=1", "cannot be set" },
		{ "kafka.enable.idempotence=false", "cannot be set" },
		{ "kafka.bootstrap.servers=b", "write the brokers before the topic" },
		{ "kafka.ssl.ca.location=/nowhere&kafka.security.protocol=ssl", "ssl.ca.location" },
		{ "linger=5", "unknown setting \"linger\"" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		PR_CLEANUP_BUF struct pr_buf url = { 0 };
		struct pr_sink *none = NULL;
		struct pr_err err = { 0 };

		pr_buf_printf(&url, "kafka://localhost/orders?%s", cases[i].setting);
		CHECK_INT(pr_sink_open(pr_buf_text(&url), &none, &err), POSTROOM_SINK);
		CHECK_CONTAINS(err.text, cases[i].error);
		CHECK(none == NULL);
	}
}

TEST(G1_error_shows_no_secret_of_a_property)
{
	struct pr_sink *none = NULL;
	struct pr_err err = { 0 };
	char shown[200];

	CHECK_INT(pr_sink_open("kafka://localhost/orders?kafka.security.protocol=ssl"
			       "&kafka.ssl.key.pem=hushhush",
			       &none, &err),
		  POSTROOM_SINK);
	CHECK_MSG(!strstr(err.text, "hushhush"), "%s", err.text);
	pr_url_redact("kafka://h/t?kafka.sasl.password=hush&kafka.ssl.key.pem=hush", shown,
		      sizeof(shown));
	CHECK_STR(shown, "kafka://h/t?kafka.sasl.password=***&kafka.ssl.key.pem=***");
}
