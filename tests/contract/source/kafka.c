/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of kafka: as a source beyond the contract. */
#include "contract/source/source.h"

#include "base/time.h"
#include "servers/kafka.h"
#include "servers/tls.h"

#include <stdlib.h>

/*
 * The mock cluster waits three seconds for the members of a new group, so that its time is made
 * to run faster than ours; four seconds of ours are a session. But it may forget who asks to be
 * taken in while another's session ends, unless there is time between the two; who has waited
 * for max.poll.interval.ms asks again.
 */
#define HURRY 3
#define HURRIED                                                                                    \
	"kafka.session.timeout.ms=12000&kafka.heartbeat.interval.ms=100"                           \
	"&kafka.max.poll.interval.ms=12000"
#define PATIENT                                                                                    \
	"kafka.session.timeout.ms=4000&kafka.heartbeat.interval.ms=300"                            \
	"&kafka.max.poll.interval.ms=12000"
#define LEASE_MS 4000

static bool hurried, patient;

static void take_time(void)
{
	patient = true;
}

/* The mock cluster forgets what a partition has beyond 5 MiB: large messages must spread. */
static void prepare(const struct server *server, const char *name)
{
	(void)server;
	kafka_order("partitions %s 32", name);
}

/* Older versions of the mock cluster make any topic that a consumer asks for. */
static void set_missing(const char *name, bool missing)
{
	kafka_order("topic %s %d", name, missing ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART : 0);
}

static void put_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	kafka_kind.put_url(out, host, port);
	pr_buf_printf(out, "/%s?%s", name, patient ? PATIENT : HURRIED);
	if (!patient && !hurried)
		kafka_order("hurry %d", HURRY);
	hurried = true;
}

static void put_sink_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	kafka_kind.put_url(out, host, port);
	pr_buf_printf(out, "/%s?kafka.sticky.partitioning.linger.ms=0", name);
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	put_url(out, host, port, name);
	pr_buf_puts(out, "&kafka.security.protocol=sasl_plaintext&kafka.sasl.mechanism=PLAIN"
			 "&kafka.sasl.username=us&kafka.sasl.password=wrong-secret");
}

static rd_kafka_t *begin_producer(void)
{
	PR_CLEANUP_BUF struct pr_buf kept = { 0 };
	PR_CLEANUP_BUF struct pr_buf brokers = { 0 };
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char why[200];
	rd_kafka_t *producer;

	read_file("kept", &kept);
	pr_buf_printf(&brokers, SERVER_HOST ":%d", atoi(pr_buf_text(&kept)));
	rd_kafka_conf_set(conf, "bootstrap.servers", brokers.data, NULL, 0);
	producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof(why));
	CHECK_MSG(producer != NULL, "%s", why);
	return producer;
}

/* As any other program writes: value NULL is a tombstone. headers may be NULL. */
static void write_record(const char *topic, struct pr_span key, const char *value,
			 rd_kafka_headers_t *headers)
{
	rd_kafka_t *producer = begin_producer();

	if (!headers)
		headers = rd_kafka_headers_new(1);
	CHECK_INT(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(0),
				    RD_KAFKA_V_KEY(key.data, key.len),
				    RD_KAFKA_V_VALUE((void *)value, value ? strlen(value) : 0),
				    RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
				    RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END),
		  0);
	CHECK_INT(rd_kafka_flush(producer, (int)AMPLE_MS), 0);
	rd_kafka_destroy(producer);
}

static void publish_foreign(const struct server *server, const char *name, const char *body)
{
	(void)server;
	write_record(name, (struct pr_span){ 0 }, body, NULL);
}

const struct source_backend kafka_backend = {
	.server = &kafka_kind,
	.prepare = prepare,
	.put_url = put_url,
	.put_sink_url = put_sink_url,
	.put_intruder_url = put_intruder_url,
	.publish_foreign = publish_foreign,
	.set_missing = set_missing,
	.take_time = take_time,
	.wrong = { "kafka:", "kafka:///orders", "kafka://localhost", "kafka://localhost/",
		   "kafka://localhost/a/b", "kafka://localhost/{topic}", "kafka://localhost/..",
		   "kafka://user:pw@localhost/orders", "kafka://localhost/orders?group=",
		   "kafka://localhost/orders?grup=a", "kafka://localhost/orders?kafka.group.id=a",
		   "kafka://localhost/orders?kafka.enable.auto.commit=true",
		   "kafka://localhost/orders?kafka.fetching=1",
		   "kafka://localhost/orders?kafka.session.timeout.ms=soon" },
	.groups = true,
	.pushes = true,
	.insists = true,
	.shortest_lease_ms = LEASE_MS,
};

static struct server server;
static struct rig rig;

static struct pr_source *open_topic(const char *topic)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_source *source = NULL;

	put_url(&url, SERVER_HOST, server.port, topic);
	CHECK_MSG(pr_source_open(pr_buf_text(&url), "readers", AMPLE_MS, &source, &rig.err) ==
			  POSTROOM_OK,
		  "%s", rig.err.text);
	return source;
}

/* A topic "one" of one partition. */
static struct pr_source *begin(void)
{
	rig_init(&rig);
	server.port = server_free_port();
	kafka_kind.start(&server);
	kafka_order("partitions one 1");
	return open_topic("one");
}

static void end(struct pr_source *source, struct pr_events *events)
{
	pr_source_close(source);
	pr_events_release(events);
	rig_release(&rig);
	server_kill(&server);
}

static int try_read(struct pr_source *source, struct pr_events *events, size_t limit)
{
	pr_events_reset(events);
	rig.flight.begin_until_us = pr_mono_us() + AMPLE_MS * 1000;
	return source->ops->read(source, events, limit, &rig.flight, &rig.err);
}

/* In one read, which may have to be asked for again until all of them are there. */
static void read_whole(struct pr_source *source, struct pr_events *events, size_t count)
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;

	do {
		CHECK_MSG(try_read(source, events, count) == POSTROOM_OK, "%s", rig.err.text);
		CHECK_MSG(pr_mono_us() < patience_us, "%zu instead of %zu", events->count, count);
	} while (events->count < count);
}

static void ack(struct pr_source *source, const struct pr_events *events)
{
	CHECK_MSG(source->ops->ack(source, events, &rig.flight, &rig.err) == POSTROOM_OK, "%s",
		  rig.err.text);
}

static void write_numbers(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char value[24];

		snprintf(value, sizeof(value), "%zu", i);
		write_record("one", (struct pr_span){ 0 }, value, NULL);
	}
}

TEST(N2_a_tombstone_is_an_event_with_an_empty_body)
{
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	write_record("one", (struct pr_span){ "o-1", 3 }, NULL, NULL);
	read_whole(source, &events, 1);
	CHECK_STR(events.list[0].key, "o-1");
	CHECK_STR(events.list[0].topic, "one");
	CHECK_STR(events.list[0].broker_position, "one/0/0");
	CHECK_STR(events.list[0].body, "");
	CHECK_INT(events.list[0].len, 0);
	ack(source, &events);
	end(source, &events);
}

TEST(N2_binary_keys_stay_distinct)
{
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	write_record("one", (struct pr_span){ "\0\0\0\1", 4 }, "a", NULL);
	write_record("one", (struct pr_span){ "\0\0\0\2", 4 }, "b", NULL);
	write_record("one", (struct pr_span){ "\xff", 1 }, "c", NULL);
	read_whole(source, &events, 3);
	CHECK_STR(events.list[0].key, "AAAAAQ==");
	CHECK_STR(events.list[1].key, "AAAAAg==");
	CHECK_STR(events.list[2].key, "/w==");
	end(source, &events);
}

/* Two sources may both have an event 1: taken for one, the second would be lost. */
TEST(N2_id_of_a_foreign_cloudevent_is_only_a_header)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(4);
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	rd_kafka_header_add(headers, "ce_id", -1, "1", -1);
	rd_kafka_header_add(headers, "ce_source", -1, "/shop", -1);
	rd_kafka_header_add(headers, "ce_type", -1, "paid", -1);
	rd_kafka_header_add(headers, "Content-Type", -1, "text/plain", -1);
	rd_kafka_header_add(headers, "odd", -1, "\xff\0", 2);
	rd_kafka_header_add(headers, "none", -1, NULL, 0);
	write_record("one", (struct pr_span){ 0 }, "x", headers);
	read_whole(source, &events, 1);
	CHECK(events.list[0].id == NULL);
	CHECK_STR(events.list[0].topic, "one");
	CHECK_STR(events.list[0].content_type, "text/plain");
	CHECK_STR(events.list[0].headers,
		  "{\"ce_id\":\"1\",\"ce_source\":\"/shop\",\"ce_type\":\"paid\","
		  "\"odd\":\"\xef\xbf\xbd\xef\xbf\xbd\",\"none\":\"\"}");
	end(source, &events);
}

TEST(N2_only_acknowledged_records_are_committed)
{
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	write_numbers(10);
	read_whole(source, &events, 4);
	ack(source, &events);
	read_whole(source, &events, 3);
	pr_source_close(source);
	source = open_topic("one");
	read_whole(source, &events, 6);
	for (size_t i = 0; i < 6; i++)
		CHECK_INT(atoi(events.list[i].body), 4 + i);
	end(source, &events);
}

TEST(N2_uncommitted_records_are_redelivered_in_order)
{
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	write_numbers(10);
	read_whole(source, &events, 4);
	kafka_order("push %d %d 1", KAFKA_OFFSET_COMMIT,
		    RD_KAFKA_RESP_ERR_INVALID_COMMIT_OFFSET_SIZE);
	CHECK_INT(source->ops->ack(source, &events, &rig.flight, &rig.err), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "\"readers\"");
	CHECK_CONTAINS(rig.err.text, "redelivered");
	read_whole(source, &events, 10);
	for (size_t i = 0; i < 10; i++)
		CHECK_INT(atoi(events.list[i].body), i);
	ack(source, &events);
	pr_source_close(source);
	write_numbers(1);
	source = open_topic("one");
	read_whole(source, &events, 1);
	CHECK_STR(events.list[0].broker_position, "one/0/10");
	end(source, &events);
}

TEST(N2_events_with_extended_lease_are_neither_lost_nor_redelivered)
{
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	write_numbers(10);
	read_whole(source, &events, 3);
	for (int i = 0; i < 5; i++)
		CHECK_MSG(source->ops->keep(source, &events, &rig.flight, &rig.err) == POSTROOM_OK,
			  "%s", rig.err.text);
	ack(source, &events);
	for (size_t next = 3; next < 10; next += events.count) {
		CHECK_MSG(try_read(source, &events, 2) == POSTROOM_OK, "%s", rig.err.text);
		for (size_t i = 0; i < events.count; i++)
			CHECK_INT(atoi(events.list[i].body), next + i);
		CHECK_INT(source->ops->keep(source, &events, &rig.flight, &rig.err), POSTROOM_OK);
		ack(source, &events);
	}
	end(source, &events);
}

TEST(D5_missing_topic_is_named_until_it_exists)
{
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	kafka_order("topic one %d", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(try_read(source, &events, 1), POSTROOM_UNAVAILABLE);
		CHECK_CONTAINS(rig.err.text, "there is no topic \"one\"");
	}
	kafka_order("topic one 0");
	write_numbers(1);
	read_whole(source, &events, 1);
	end(source, &events);
}

TEST(D5_forbidden_group_is_an_outage_until_granted)
{
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	kafka_order("push %d %d 1", KAFKA_JOIN_GROUP, RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED);
	CHECK_INT(try_read(source, &events, 1), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "group \"readers\"");
	CHECK_CONTAINS(rig.err.text, "group=NAME");
	write_numbers(1);
	read_whole(source, &events, 1);
	end(source, &events);
}

TEST(D5_forbidden_topic_is_an_outage_until_granted)
{
	struct pr_source *source = begin();
	struct pr_events events = { 0 };

	write_numbers(1);
	kafka_order("push %d %d 1", KAFKA_FETCH, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
	CHECK_INT(try_read(source, &events, 1), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "topic \"one\"");
	read_whole(source, &events, 1);
	end(source, &events);
}

TEST(G1_error_shows_no_secret_of_a_source_property)
{
	struct pr_source *source = NULL;
	struct pr_events events = { 0 };

	rig_init(&rig);
	CHECK_INT(pr_source_open("kafka://localhost/orders?kafka.security.protocol=ssl"
				 "&kafka.ssl.key.pem=hushhush",
				 "readers", AMPLE_MS, &source, &rig.err),
		  POSTROOM_OK);
	CHECK_INT(try_read(source, &events, 1), POSTROOM_SINK);
	CHECK_CONTAINS(rig.err.text, "ssl.key.pem");
	CHECK_MSG(!strstr(rig.err.text, "hushhush"), "%s", rig.err.text);
	pr_source_close(source);
	pr_events_release(&events);
	rig_release(&rig);
}

TEST(K6_source_refuses_certificate_of_another_host)
{
	struct pr_source *source = NULL;
	struct pr_events events = { 0 };
	struct server stranger = { .port = server_free_port() };
	char url[300];

	rig_init(&rig);
	tls_start(&stranger, "other.example");
	snprintf(url, sizeof(url),
		 "kafka://localhost:%d/orders?kafka.security.protocol=ssl"
		 "&kafka.ssl.ca.location=ca.pem",
		 stranger.port);
	CHECK_INT(pr_source_open(url, "readers", AMPLE_MS, &source, &rig.err), POSTROOM_OK);
	CHECK_INT(try_read(source, &events, 1), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, "certificate verify failed");
	CHECK(!tls_was_trusted());
	pr_source_close(source);
	pr_events_release(&events);
	rig_release(&rig);
	server_kill(&stranger);
}
