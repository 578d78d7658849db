/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's checks of Kafka. All topics are listed, because a request for a single one may
 * create it.
 */
#include "broker/kafka/producer.h"

#include "base/time.h"
#include "sink/sink.h"
#include "sink/target.h"

#include <stdlib.h>
#include <string.h>

static int left_ms(const struct pr_flight *flight)
{
	int64_t left_us = flight->begin_until_us - pr_mono_us();

	return left_us > 0 ? (int)(left_us / 1000) + 1 : 1;
}

/* Reads a setting of a topic. False: the broker did not return it. */
static bool read_setting(rd_kafka_event_t *event, const char *name, char *out, size_t size)
{
	const rd_kafka_DescribeConfigs_result_t *result = rd_kafka_event_DescribeConfigs_result(
		event);
	const rd_kafka_ConfigResource_t **resources;
	const rd_kafka_ConfigEntry_t **entries;
	size_t count = 0;

	resources = result ? rd_kafka_DescribeConfigs_result_resources(result, &count) : NULL;
	if (count == 0)
		return false;
	entries = rd_kafka_ConfigResource_configs(resources[0], &count);
	for (size_t i = 0; i < count; i++) {
		const char *value = rd_kafka_ConfigEntry_value(entries[i]);

		if (value && strcmp(rd_kafka_ConfigEntry_name(entries[i]), name) == 0) {
			snprintf(out, size, "%s", value);
			return true;
		}
	}
	return false;
}

static void judge_settings(rd_kafka_t *handle, const char *topic, const struct pr_flight *flight,
			   struct pr_checkup *checkup)
{
	rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC,
									  topic);
	rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
	rd_kafka_event_t *event;
	char value[32];

	rd_kafka_DescribeConfigs(handle, &resource, 1, NULL, queue);
	event = rd_kafka_queue_poll(queue, left_ms(flight));
	if (!event || !read_setting(event, "min.insync.replicas", value, sizeof(value))) {
		pr_found_skipped(checkup, "The settings of the topic cannot be read.",
				 "The administrator of Kafka allows the user DescribeConfigs for "
				 "the topic.");
	} else if (atoi(value) < 2) {
		pr_found(checkup, PR_LEVEL_WARNING, "Topic \"%s\" has min.insync.replicas=%s",
			 topic, value);
		pr_found_detail(checkup,
				"A message counts as delivered when one broker has it. If that "
				"broker is lost, so is the message.");
		pr_found_advice(checkup,
				"The administrator of Kafka runs the command, if the topic has at "
				"least three replicas.");
		pr_found_command(checkup, "kafka-configs.sh --bootstrap-server BROKER --alter "
					  "--add-config min.insync.replicas=2 --topic ");
		pr_found_command_word(checkup, topic);
	}
	if (event)
		rd_kafka_event_destroy(event);
	rd_kafka_queue_destroy(queue);
	rd_kafka_ConfigResource_destroy(resource);
}

/* The topic is listed, but cannot be written. */
static void report_topic_error(const char *topic, rd_kafka_resp_err_t error,
			       struct pr_checkup *checkup)
{
	pr_found(checkup, PR_LEVEL_PROBLEM, "Topic \"%s\" cannot be used", topic);
	pr_found_detail(checkup, "%s. Messages wait in the outbox.", rd_kafka_err2str(error));
	pr_found_advice(checkup,
			"The administrator of Kafka repairs the topic, or allows the user to "
			"write to it.");
}

static void judge_topic(rd_kafka_t *handle, const rd_kafka_metadata_t *metadata, const char *topic,
			const struct pr_flight *flight, struct pr_checkup *checkup)
{
	const rd_kafka_metadata_topic_t *found = NULL;
	int replicas = 0;

	for (int i = 0; i < metadata->topic_cnt; i++) {
		if (strcmp(metadata->topics[i].topic, topic) == 0)
			found = &metadata->topics[i];
	}
	if (!found) {
		pr_found(checkup, PR_LEVEL_WARNING, "Topic \"%s\" does not exist", topic);
		pr_found_detail(checkup,
				"Unless the cluster creates topics by itself, messages wait in the "
				"outbox.");
		pr_found_advice(checkup,
				"The administrator of Kafka runs the command, or the operator "
				"corrects the URL of the sink.");
		pr_found_command(checkup,
				 "kafka-topics.sh --bootstrap-server BROKER --create "
				 "--replication-factor 3 --config min.insync.replicas=2 --topic ");
		pr_found_command_word(checkup, topic);
		return;
	}
	if (found->err || found->partition_cnt < 1) {
		report_topic_error(topic, found->err ? found->err : RD_KAFKA_RESP_ERR_UNKNOWN,
				   checkup);
		return;
	}
	for (int i = 0; i < found->partition_cnt; i++) {
		if (i == 0 || found->partitions[i].replica_cnt < replicas)
			replicas = found->partitions[i].replica_cnt;
	}
	if (replicas == 1) {
		pr_found(checkup, PR_LEVEL_WARNING, "Topic \"%s\" has one replica", topic);
		pr_found_detail(checkup,
				"If its broker is lost, messages that were delivered are lost.");
		pr_found_advice(checkup, "The administrator of Kafka raises the replication factor "
					 "(kafka-reassign-partitions.sh).");
		return;
	}
	judge_settings(handle, topic, flight, checkup);
}

void pr_kafka_probe(struct pr_kafka_producer *producer, const char *topic,
		    const struct pr_flight *flight, struct pr_checkup *checkup)
{
	struct pr_kafka_client *client = &producer->client;
	const rd_kafka_metadata_t *metadata = NULL;
	rd_kafka_resp_err_t error;

	client->flight = flight;
	error = rd_kafka_metadata(client->handle, 1, NULL, &metadata, left_ms(flight));
	/* A poll delivers the library's broker errors. */
	rd_kafka_poll(client->handle, 0);
	if (error)
		pr_found_unreachable(checkup, client->trouble[0] ? client->trouble
								 : rd_kafka_err2str(error));
	else if (topic[0] && !pr_target_is_template(topic))
		judge_topic(client->handle, metadata, topic, flight, checkup);
	if (metadata)
		rd_kafka_metadata_destroy(metadata);
	client->flight = NULL;
}
