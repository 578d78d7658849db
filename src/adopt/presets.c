/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of known libraries that the dictionary alone would not map, or that must be refused. */
#include "adopt/parts.h"

#include <string.h>

#define MODULITH                                                                                   \
	[PR_ADOPT_ID] = "id", [PR_ADOPT_TOPIC] = "event_type",                                     \
	[PR_ADOPT_PAYLOAD] = "serialized_event", [PR_ADOPT_CREATED] = "publication_date",          \
	[PR_ADOPT_ONLY] = "sql:pg_catalog.strpos({listener_id}::text, 'EventExternalizer'::text) > 0"

static const struct pr_adopt_preset presets[] = {
	{ .name = "masstransit",
	  .signature = { "MessageId", "SequenceNumber", "DestinationAddress", "Body" },
	  .refused = "it belongs to MassTransit: each row is an envelope for the exchanges of its bus, "
		     "which only MassTransit can read; let the producers insert into "
		     "postroom_outbox instead of publishing through the bus outbox" },
	{ .name = "wolverine",
	  .signature = { "id", "owner_id", "destination", "deliver_by", "body", "message_type" },
	  .refused = "it belongs to Wolverine: body is a binary envelope that only Wolverine can "
		     "read; let the producers insert into postroom_outbox instead" },
	{ .name = "nservicebus",
	  .signature = { "MessageId", "Operations", "Dispatched", "PersistenceVersion" },
	  .refused = "it belongs to NServiceBus: each row holds several operations that only its "
		     "endpoint can dispatch; let the handlers insert into postroom_outbox instead" },
	{ .name = "gruelbox",
	  .signature = { "id", "invocation", "attempts", "blocked" },
	  .refused = "it belongs to gruelbox transaction-outbox: each row is a call of a Java method, "
		     "and no message; let the application insert into postroom_outbox where it "
		     "schedules the call" },
	{ .name = "axon",
	  .signature = { "dead_letter_id", "sequence_identifier", "event_identifier", "cause_type" },
	  .refused = "it holds dead letters of Axon, which only Axon can process again; evaluate or "
		     "delete them there, and let the aggregates' event handlers insert into "
		     "postroom_outbox" },
	{ .name = "go-outbox",
	  .signature = { "id", "data", "state", "created_on", "locked_by", "locked_on",
			 "number_of_attempts", "last_attempted_on" },
	  .refused = "it belongs to go-outbox: data is an encoded Go structure that only its library "
		     "can read; let the producers insert into postroom_outbox instead" },
	{ .name = "outbox-pattern-processor",
	  .signature = { "idempotent_key", "partition_key", "destinations", "headers", "payload" },
	  .refused = "it belongs to outbox-pattern-processor: a row has several destinations, and a "
		     "message of Postroom has one sink; let the producers insert into "
		     "postroom_outbox instead, a row per destination" },
	{ .name = "jaiminho-calls",
	  .signature = { "id", "message", "function", "kwargs", "sent_at" },
	  .refused = "it belongs to django-jaiminho: each row is a pickled call of a Python function, "
		     "and no message; let that function insert into postroom_outbox instead of "
		     "sending" },
	{ .name = "debezium",
	  .signature = { "id", "aggregatetype", "aggregateid", "type", "payload" },
	  .parts = { [PR_ADOPT_ID] = "id",
		     [PR_ADOPT_TOPIC] = "sql:'outbox.event.' || {aggregatetype}::text",
		     [PR_ADOPT_KEY] = "aggregateid",
		     [PR_ADOPT_PAYLOAD] = "payload",
		     [PR_ADOPT_HEADERS] = "sql:pg_catalog.jsonb_build_object('id', {id}::text, 'type', "
					  "{type}::text)",
		     [PR_ADOPT_DONE] = "none" } },
	{ .name = "brighter",
	  .signature = { "messageid", "topic", "timestamp", "headerbag", "body", "dispatched" },
	  .parts = { [PR_ADOPT_ID] = "messageid",
		     [PR_ADOPT_TOPIC] = "topic",
		     [PR_ADOPT_KEY] = "partitionkey",
		     [PR_ADOPT_CORRELATION] = "correlationid",
		     [PR_ADOPT_CONTENT_TYPE] = "contenttype",
		     [PR_ADOPT_HEADERS] = "headerbag",
		     [PR_ADOPT_CREATED] = "timestamp",
		     [PR_ADOPT_DONE] = "dispatched" } },
	{ .name = "cap",
	  .signature = { "Id", "Version", "Name", "Content", "Retries", "Added", "StatusName" },
	  .parts = { [PR_ADOPT_ID] = "Id",
		     [PR_ADOPT_TOPIC] = "Name",
		     [PR_ADOPT_PAYLOAD] = "sql:pg_catalog.jsonb_extract_path({Content}::jsonb, 'Value')",
		     [PR_ADOPT_HEADERS] = "sql:pg_catalog.jsonb_extract_path({Content}::jsonb, "
					  "'Headers')",
		     [PR_ADOPT_CREATED] = "Added",
		     [PR_ADOPT_DONE] = "StatusName:Succeeded",
		     [PR_ADOPT_OPEN] = "Scheduled,Queued" } },
	{ .name = "watermill",
	  .signature = { "offset", "uuid", "created_at", "payload", "metadata", "transaction_id" },
	  .parts = { [PR_ADOPT_ID] = "uuid",
		     [PR_ADOPT_TOPIC] = "table:watermill_",
		     [PR_ADOPT_PAYLOAD] = "payload",
		     [PR_ADOPT_HEADERS] = "metadata",
		     [PR_ADOPT_CREATED] = "created_at",
		     [PR_ADOPT_DONE] = "none" } },
	{ .name = "django-outbox-pattern",
	  .signature = { "id", "destination", "body", "status", "retry", "added", "expires_at" },
	  .parts = { [PR_ADOPT_ID] = "id",
		     [PR_ADOPT_TOPIC] = "destination",
		     [PR_ADOPT_PAYLOAD] = "body",
		     [PR_ADOPT_HEADERS] = "headers",
		     [PR_ADOPT_CREATED] = "added",
		     [PR_ADOPT_DONE] = "status:2",
		     [PR_ADOPT_OPEN] = "1" } },
	{ .name = "eventuate",
	  .signature = { "id", "destination", "headers", "payload", "published", "creation_time" },
	  .parts = { [PR_ADOPT_ID] = "id",
		     [PR_ADOPT_TOPIC] = "destination",
		     [PR_ADOPT_KEY] = "sql:pg_catalog.jsonb_extract_path_text({headers}::jsonb, "
				      "'PARTITION_ID')",
		     [PR_ADOPT_PAYLOAD] = "payload",
		     [PR_ADOPT_HEADERS] = "headers",
		     [PR_ADOPT_CREATED] = "sql:pg_catalog.to_timestamp({creation_time}::float8 / "
					  "'1000'::float8)",
		     [PR_ADOPT_DONE] = "published" } },
	{ .name = "namastack",
	  .signature = { "id", "record_type", "record_key", "payload", "handler_id", "completed_at" },
	  .parts = { [PR_ADOPT_ID] = "id",
		     [PR_ADOPT_TOPIC] = "record_type",
		     [PR_ADOPT_KEY] = "record_key",
		     [PR_ADOPT_DONE] = "status:COMPLETED",
		     [PR_ADOPT_OPEN] = "NEW",
		     [PR_ADOPT_DONE_AT] = "completed_at" } },
	{ .name = "pg-transactional-outbox",
	  .signature = { "id", "aggregate_type", "message_type", "segment", "finished_attempts",
			 "abandoned_at" },
	  .parts = { [PR_ADOPT_ID] = "id",
		     [PR_ADOPT_TOPIC] = "sql:{aggregate_type}::text || '.' || {message_type}::text",
		     [PR_ADOPT_KEY] = "sql:coalesce(nullif({segment}::text, ''), {aggregate_id}::text)",
		     [PR_ADOPT_PAYLOAD] = "payload",
		     [PR_ADOPT_HEADERS] = "metadata",
		     [PR_ADOPT_DONE] = "processed_at",
		     [PR_ADOPT_LOCKED] = "locked_until" } },
	/* One row per listener: only those of the externalizer are messages. */
	{ .name = "spring-modulith",
	  .signature = { "id", "listener_id", "event_type", "serialized_event", "publication_date",
			 "completion_date", "status" },
	  .parts = { MODULITH,
		     [PR_ADOPT_DONE] = "status:COMPLETED",
		     [PR_ADOPT_OPEN] = "PUBLISHED,RESUBMITTED",
		     [PR_ADOPT_DONE_AT] = "completion_date" } },
	{ .name = "spring-modulith",
	  .signature = { "id", "listener_id", "event_type", "serialized_event", "publication_date",
			 "completion_date" },
	  .parts = { MODULITH, [PR_ADOPT_DONE] = "completion_date" } },
	/* Frameworks of Ruby write times in UTC. */
	{ .name = "sbmt-outbox",
	  .signature = { "uuid", "event_key", "bucket", "status", "options", "payload",
			 "errors_count", "processed_at" },
	  .zone = "UTC",
	  .parts = { [PR_ADOPT_ID] = "uuid",
		     [PR_ADOPT_TOPIC] = "event_name",
		     [PR_ADOPT_KEY] = "event_key",
		     [PR_ADOPT_HEADERS] = "sql:pg_catalog.jsonb_extract_path({options}::jsonb, "
					  "'headers')",
		     [PR_ADOPT_DONE] = "status:2",
		     [PR_ADOPT_OPEN] = "0",
		     [PR_ADOPT_DONE_AT] = "processed_at" } },
	{ .name = "rails-outbox",
	  .signature = { "identifier", "event", "aggregate", "aggregate_identifier", "payload" },
	  .zone = "UTC",
	  .parts = { [PR_ADOPT_ID] = "identifier",
		     [PR_ADOPT_TOPIC] = "event",
		     [PR_ADOPT_KEY] = "aggregate_identifier",
		     [PR_ADOPT_HEADERS] = "sql:pg_catalog.jsonb_build_object('aggregate', "
					  "{aggregate}::text)",
		     [PR_ADOPT_DONE] = "none" } },
	{ .name = "django-jaiminho",
	  .signature = { "id", "type", "action", "payload", "function_signature", "sent_at" },
	  .parts = { [PR_ADOPT_ID] = "id",
		     [PR_ADOPT_TOPIC] = "sql:{type}::text || '.' || {action}::text",
		     [PR_ADOPT_DONE] = "sent_at" } },
	{ .name = "open-outbox",
	  .signature = { "event_id", "event_type", "partition_key", "payload", "status",
			 "available_at", "locked_at" },
	  .parts = { [PR_ADOPT_ID] = "event_id",
		     [PR_ADOPT_TOPIC] = "event_type",
		     [PR_ADOPT_KEY] = "partition_key",
		     [PR_ADOPT_NEXT] = "available_at",
		     [PR_ADOPT_DONE] = "status:DELIVERED",
		     [PR_ADOPT_OPEN] = "PENDING" } },
	/* The topic is in metadata, whose encoding is the application's. */
	{ .name = "oagudo-outbox",
	  .signature = { "id", "created_at", "scheduled_at", "metadata", "payload",
			 "times_attempted" },
	  .parts = { [PR_ADOPT_ID] = "id", [PR_ADOPT_DONE] = "delete" } },
	/* Rows whose lease has expired wait, too. */
	{ .name = "modkit",
	  .signature = { "namespace", "topic", "payload", "status", "next_attempt_at", "locked_by",
			 "locked_until", "dedupe_key" },
	  .parts = { [PR_ADOPT_DONE] = "status:delivered", [PR_ADOPT_OPEN] = "pending,processing" } },
	{ .name = "kafka-worker",
	  .signature = { "topic", "key", "payload_json", "status", "retry_count", "next_attempt_at",
			 "published_at", "idempotency_key" },
	  .parts = { [PR_ADOPT_DONE] = "status:published", [PR_ADOPT_OPEN] = "pending,failed" } },
	/* Tenants that are no UUIDs travel as a header. */
	{ .name = "redis-relay",
	  .signature = { "id", "event_id", "event_type", "payload", "correlation_id", "tenant_id",
			 "delivered_at" },
	  .parts = { [PR_ADOPT_ID] = "event_id",
		     [PR_ADOPT_TOPIC] = "event_type",
		     [PR_ADOPT_HEADERS] = "sql:pg_catalog.jsonb_build_object('tenant_id', "
					  "{tenant_id}::text)",
		     [PR_ADOPT_DONE] = "delivered_at" } },
};
#define PRESETS (sizeof(presets) / sizeof(presets[0]))

/* Expressions are written for PostgreSQL. */
static bool has_expressions(const struct pr_adopt_preset *preset)
{
	for (size_t i = 0; i < PR_ADOPT_PARTS; i++) {
		if (preset->parts[i] && strncmp(preset->parts[i], "sql:", 4) == 0)
			return true;
	}
	return false;
}

static bool has_signature(const struct pr_adopt *adopt, const struct pr_adopt_preset *preset)
{
	if (adopt->store->ops->embedded && has_expressions(preset))
		return false;
	for (size_t i = 0; i < 8 && preset->signature[i]; i++) {
		if (pr_adopt_find_column(adopt, preset->signature[i]) < 0)
			return false;
	}
	return true;
}

const struct pr_adopt_preset *pr_adopt_find_preset(const struct pr_adopt *adopt, const char *name)
{
	const struct pr_adopt_preset *named = NULL;

	for (size_t i = 0; i < PRESETS; i++) {
		bool fits = has_signature(adopt, &presets[i]);

		if (name && strcmp(presets[i].name, name) != 0)
			continue;
		if (name && adopt->store->ops->embedded && has_expressions(&presets[i]))
			continue;
		if (fits)
			return &presets[i];
		named = name ? &presets[i] : NULL;
	}
	return named;
}

bool pr_adopt_use_preset(struct pr_adopt *adopt, const struct pr_adopt_preset *preset,
			 enum pr_adopt_part part)
{
	const char *text = preset->parts[part];
	bool is_column = text && strncmp(text, "sql:", 4) != 0 && part != PR_ADOPT_DONE &&
			 part != PR_ADOPT_OPEN && part != PR_ADOPT_ONLY;

	if (text && strncmp(text, "table:", 6) == 0) {
		size_t len = strlen(text + 6);
		bool prefixed = strncmp(adopt->table, text + 6, len) == 0;

		adopt->parts[part] = pr_arena_printf(&adopt->arena, "'%s'",
						     adopt->table + (prefixed ? len : 0));
		return adopt->parts[part] != NULL;
	}
	/* Older versions of a library lack some columns. */
	if (!text || (is_column && pr_adopt_find_column(adopt, text) < 0))
		return false;
	adopt->expression[part] = strncmp(text, "sql:", 4) == 0;
	adopt->parts[part] = adopt->expression[part] ? text + 4 : text;
	return true;
}

void pr_adopt_list_presets(const struct pr_adopt *adopt, struct pr_buf *out)
{
	bool first = true;

	for (size_t i = 0; i < PRESETS; i++) {
		if (adopt->store->ops->embedded && has_expressions(&presets[i]))
			continue;
		if (presets[i].refused || (i > 0 && strcmp(presets[i].name, presets[i - 1].name) == 0))
			continue;
		pr_buf_printf(out, "%s%s", first ? "" : ", ", presets[i].name);
		first = false;
	}
}
