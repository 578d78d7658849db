/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. No header of a message can route it: CC and BCC, which RabbitMQ would respect, are refused.
 * 2. ce_… and idempotency-key are set by the sink, as with Kafka: headers of a message with such
 *    names are dropped.
 * 3. Nothing is truncated: a message that does not fit is refused.
 */
#include "broker/amqp/message.h"

#include "base/assert.h"
#include "base/json.h"
#include "sink/attributes.h"
#include "sink/cloudevents.h"
#include "sink/sink.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SHORT_MAX 255 /* bytes of a name or a property */
#define PROPERTY_ROOM ((size_t)8 * (SHORT_MAX + 1))
#define ENTRY_ROOM ((size_t)6) /* of a header, beside its name and value */
#define OWN_MAX (PR_CE_MAX + 1)

/* The names of the ce_ attributes, with their prefix. */
static const char *const ce_names[][2] = {
	{ "specversion", "ce_specversion" },
	{ "id", "ce_id" },
	{ "source", "ce_source" },
	{ "type", "ce_type" },
	{ "time", "ce_time" },
	{ "subject", PR_AMQP_KEY_HEADER },
	{ "tenantid", PR_AMQP_TENANT_HEADER },
	{ "correlationid", "ce_correlationid" },
};

void pr_amqp_message_buffers_release(struct pr_amqp_message_buffers *buffers)
{
	pr_buf_release(&buffers->text);
	pr_buf_release(&buffers->source);
	free(buffers->entries);
}

/* Room for that many headers. */
static bool grow(struct pr_amqp_message_buffers *buffers, size_t count)
{
	amqp_table_entry_t *entries;

	if (count <= buffers->capacity)
		return true;
	entries = reallocarray(buffers->entries, count * 2, sizeof(*entries));
	if (!entries)
		return false;
	buffers->entries = entries;
	buffers->capacity = count * 2;
	return true;
}

static void add(struct pr_amqp_message_buffers *buffers, amqp_table_t *table, const char *name,
		size_t name_len, const char *value, size_t len)
{
	pr_assert((size_t)table->num_entries < buffers->capacity);
	buffers->entries[table->num_entries++] = (amqp_table_entry_t){
		.key = { .len = name_len, .bytes = (void *)name },
		.value = { .kind = AMQP_FIELD_KIND_UTF8,
			   .value = { .bytes = { .len = len, .bytes = (void *)value } } },
	};
}

static void add_own(struct pr_amqp_message_buffers *buffers, amqp_table_t *table, const char *name,
		    const char *value)
{
	add(buffers, table, name, strlen(name), value, strlen(value));
}

static const char *ce_name(const char *attribute)
{
	for (size_t i = 0; i < sizeof(ce_names) / sizeof(*ce_names); i++) {
		if (strcmp(ce_names[i][0], attribute) == 0)
			return ce_names[i][1];
	}
	return attribute;
}

bool pr_amqp_is_own_header(amqp_bytes_t name)
{
	static const char prefix[] = "ce_", other[] = "idempotency-key";

	return (name.len >= sizeof(prefix) - 1 &&
		strncasecmp(name.bytes, prefix, sizeof(prefix) - 1) == 0) ||
	       (name.len == sizeof(other) - 1 && strncasecmp(name.bytes, other, name.len) == 0);
}

static int check_name(const char *name, size_t len, struct pr_err *err)
{
	if (len > SHORT_MAX)
		return pr_err_set(err, POSTROOM_INVALID,
				  "the name of the header \"%.40s…\" is longer than the %d bytes "
				  "that AMQP allows",
				  name, SHORT_MAX);
	if (strcmp(name, "CC") == 0 || strcmp(name, "BCC") == 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "RabbitMQ would route the message by its header \"%s\"; give it "
				  "another name",
				  name);
	return POSTROOM_OK;
}

/* The message's own headers. Their decoded form is never longer than their JSON. */
static int add_headers(struct pr_amqp_message_buffers *buffers, amqp_table_t *table,
		       const char *headers, struct pr_err *err)
{
	size_t len = strlen(headers);
	struct pr_json_members walk = pr_json_members((struct pr_span){ headers, len });
	struct pr_span name, value;

	pr_buf_reset(&buffers->text);
	if (!pr_buf_reserve(&buffers->text, len + 1))
		return pr_err_nomem(err);
	while (pr_json_next(&walk, &name, &value)) {
		size_t name_at = buffers->text.len, value_at;
		const char *text = buffers->text.data;

		pr_json_decode(name, &buffers->text);
		pr_buf_putc(&buffers->text, '\0');
		value_at = buffers->text.len;
		pr_json_decode(value, &buffers->text);
		if (pr_amqp_is_own_header(amqp_cstring_bytes(text + name_at)))
			continue;
		if (check_name(text + name_at, value_at - name_at - 1, err) < 0)
			return err->status;
		if (!grow(buffers, (size_t)table->num_entries + 1))
			return pr_err_nomem(err);
		add(buffers, table, text + name_at, value_at - name_at - 1, text + value_at,
		    buffers->text.len - value_at);
	}
	return POSTROOM_OK;
}

static int set_short(amqp_basic_properties_t *properties, amqp_bytes_t *field, amqp_flags_t flag,
		     const char *name, const char *value, struct pr_err *err)
{
	if (!value)
		return POSTROOM_OK;
	*field = amqp_cstring_bytes(value);
	properties->_flags |= flag;
	if (field->len <= SHORT_MAX)
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID,
			  "the message's %s is longer than the %d bytes that AMQP allows", name,
			  SHORT_MAX);
}

static int fill(amqp_basic_properties_t *to, const postroom_delivery *item, struct pr_err *err)
{
	const struct {
		amqp_bytes_t *field;
		amqp_flags_t flag;
		const char *name, *value;
	} shorts[] = {
		{ &to->message_id, AMQP_BASIC_MESSAGE_ID_FLAG, "id", item->id },
		{ &to->type, AMQP_BASIC_TYPE_FLAG, "topic", item->topic },
		{ &to->content_type, AMQP_BASIC_CONTENT_TYPE_FLAG, "content type",
		  item->content_type },
		{ &to->correlation_id, AMQP_BASIC_CORRELATION_ID_FLAG, "correlation id",
		  item->correlation_id },
		{ &to->app_id, AMQP_BASIC_APP_ID_FLAG, "sender", PR_AMQP_APP_ID },
	};

	to->_flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_TIMESTAMP_FLAG |
		     AMQP_BASIC_HEADERS_FLAG;
	to->delivery_mode = AMQP_DELIVERY_PERSISTENT;
	to->timestamp = (uint64_t)(item->created_at_us / 1000000);
	for (size_t i = 0; i < sizeof(shorts) / sizeof(*shorts); i++) {
		if (set_short(to, shorts[i].field, shorts[i].flag, shorts[i].name, shorts[i].value,
			      err) < 0)
			return err->status;
	}
	return POSTROOM_OK;
}

/* The protocol sends the length of every text before it. */
static const struct pr_protocol protocol = { .name = "AMQP" };

int pr_amqp_put_message(struct pr_amqp_message_buffers *buffers, struct pr_amqp_connection *conn,
			const postroom_delivery *item, struct pr_err *err)
{
	amqp_basic_properties_t properties = { 0 };
	amqp_table_t *table = &properties.headers;
	size_t room = PROPERTY_ROOM;
	struct pr_ce ce;

	if (pr_attributes_check(item, &protocol, &buffers->text, err) < 0 ||
	    fill(&properties, item, err) < 0)
		return err->status;
	pr_ce_fill(&ce, item, NULL, &buffers->source);
	if (!grow(buffers, OWN_MAX) || buffers->source.failed)
		return pr_err_nomem(err);
	for (size_t i = 0; i < ce.count; i++)
		add_own(buffers, table, ce_name(ce.attributes[i].name), ce.attributes[i].value);
	add_own(buffers, table, "idempotency-key", item->dedupe_key ? item->dedupe_key : item->id);
	if (add_headers(buffers, table, item->headers, err) < 0)
		return err->status;
	table->entries = buffers->entries;
	for (int i = 0; i < table->num_entries; i++)
		room += ENTRY_ROOM + table->entries[i].key.len +
			table->entries[i].value.value.bytes.len;
	return pr_amqp_put_content(conn, &properties, room, item->body ? item->body : item->payload,
				   item->body ? item->body_len : item->payload_len, err);
}
