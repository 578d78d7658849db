/* SPDX-License-Identifier: Apache-2.0 */
#include "servers/kafka.h"

#include "contract/sink/server.h"
#include "contract/sink/sink.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void start(struct server *server)
{
	static struct server keeper;
	char port[16];
	const char *const keep[] = { KAFKA_BROKER, "keep", NULL };
	const char *const front[] = { KAFKA_BROKER, "front", port, NULL };

	if (!exists("kept")) {
		server_spawn(&keeper, keep);
		while (!exists("kept")) {
			CHECK_MSG(!is_gone(keeper.pid), "%s does not run", KAFKA_BROKER);
			wait_a_moment();
		}
		write_file("advertised", "0");
	}
	snprintf(port, sizeof(port), "%d", server->port);
	server_spawn(server, front);
	while (!server_accepts(server->port)) {
		CHECK_MSG(!is_gone(server->pid), "%s does not run", KAFKA_BROKER);
		wait_a_moment();
	}
}

void kafka_order(const char *format, ...)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "control" };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char line[400], answer[8] = "";
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(write(fd, line, (size_t)len) == len);
	CHECK_MSG(read(fd, answer, sizeof(answer) - 1) == 2, "%s", line);
	close(fd);
}

/* Clients are to come back by the way that the URL says. */
static void put_url(struct pr_buf *out, const char *host, int port)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", port);
	write_file("advertised", number);
	pr_buf_printf(out, "kafka://%s:%d", host, port);
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port)
{
	put_url(out, host, port);
	pr_buf_puts(out, "/?kafka.security.protocol=sasl_plaintext&kafka.sasl.mechanism=PLAIN"
			 "&kafka.sasl.username=us&kafka.sasl.password=wrong-secret");
}

static void spoil(const struct server *server)
{
	(void)server;
	kafka_order("topic bad %d", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
}

static rd_kafka_t *begin_consumer(void)
{
	PR_CLEANUP_BUF struct pr_buf kept = { 0 };
	PR_CLEANUP_BUF struct pr_buf brokers = { 0 };
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char why[200];
	rd_kafka_t *consumer;

	read_file("kept", &kept);
	pr_buf_printf(&brokers, SERVER_HOST ":%d", atoi(pr_buf_text(&kept)));
	rd_kafka_conf_set(conf, "bootstrap.servers", brokers.data, NULL, 0);
	rd_kafka_conf_set(conf, "group.id", "tests", NULL, 0);
	rd_kafka_conf_set(conf, "enable.auto.commit", "false", NULL, 0);
	rd_kafka_conf_set(conf, "enable.partition.eof", "true", NULL, 0);
	rd_kafka_conf_set(conf, "fetch.wait.max.ms", "10", NULL, 0);
	consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof(why));
	CHECK_MSG(consumer != NULL, "%s", why);
	rd_kafka_poll_set_consumer(consumer);
	return consumer;
}

/* All partitions of all topics, from their beginning. Returns how many. */
static int assign_all(rd_kafka_t *consumer)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(16);
	const struct rd_kafka_metadata *metadata;
	int count;

	CHECK(rd_kafka_metadata(consumer, 1, NULL, &metadata, (int)AMPLE_MS) == 0);
	for (int i = 0; i < metadata->topic_cnt; i++) {
		const struct rd_kafka_metadata_topic *topic = &metadata->topics[i];

		for (int j = 0; j < topic->partition_cnt && !topic->err; j++)
			rd_kafka_topic_partition_list_add(list, topic->topic,
							  topic->partitions[j].id)
				->offset = RD_KAFKA_OFFSET_BEGINNING;
	}
	rd_kafka_metadata_destroy(metadata);
	count = list->cnt;
	CHECK(rd_kafka_assign(consumer, list) == 0);
	rd_kafka_topic_partition_list_destroy(list);
	return count;
}

void kafka_each(bool (*fn)(rd_kafka_message_t *record, void *context), void *context)
{
	rd_kafka_t *consumer = begin_consumer();
	int left = assign_all(consumer);
	bool go_on = true;

	while (left > 0 && go_on) {
		rd_kafka_message_t *record = rd_kafka_consumer_poll(consumer, (int)AMPLE_MS);

		CHECK(record != NULL);
		if (record->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
			left--;
		} else {
			CHECK_MSG(!record->err, "%s", rd_kafka_message_errstr(record));
			go_on = fn(record, context);
		}
		rd_kafka_message_destroy(record);
	}
	rd_kafka_consumer_close(consumer);
	rd_kafka_destroy(consumer);
}

bool kafka_header(const rd_kafka_message_t *record, const char *name, struct pr_buf *out)
{
	rd_kafka_headers_t *headers;
	const void *value;
	size_t len;

	if (rd_kafka_message_headers(record, &headers) != 0 ||
	    rd_kafka_header_get_last(headers, name, &value, &len) != 0)
		return false;
	pr_buf_append(out, value, len);
	return true;
}

static bool put_id(rd_kafka_message_t *record, void *context)
{
	CHECK(kafka_header(record, "ce_id", context));
	pr_buf_putc(context, '\n');
	return true;
}

static void ids(const struct server *server, struct pr_buf *out)
{
	(void)server;
	kafka_each(put_id, out);
}

struct question {
	const char *id, *name; /* name NULL: the content */
	struct pr_buf *out;
	bool found;
};

static bool answer(rd_kafka_message_t *record, void *context)
{
	PR_CLEANUP_BUF struct pr_buf id = { 0 };
	struct question *question = context;

	CHECK(kafka_header(record, "ce_id", &id));
	if (strcmp(pr_buf_text(&id), question->id) != 0)
		return true;
	question->found = true;
	if (question->name)
		question->found = kafka_header(record, question->name, question->out);
	else
		pr_buf_append(question->out, record->payload, record->len);
	return false;
}

static void header(const struct server *server, const char *id, const char *name,
		   struct pr_buf *out)
{
	struct question question = { .id = id, .name = name, .out = out };

	(void)server;
	kafka_each(answer, &question);
	CHECK_MSG(question.found, "%s: no %s of it", id, name ? name : "record");
}

static void content(const struct server *server, const char *id, struct pr_buf *out)
{
	header(server, id, NULL, out);
}

const struct server_kind kafka_kind = {
	.start = start,
	.put_url = put_url,
	.put_intruder_url = put_intruder_url,
	.ids = ids,
	.content = content,
	.header = header,
	.spoil = spoil,
};
