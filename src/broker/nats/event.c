/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts a message of a stream into an event.
 *
 * 1. A message of the nats: sink is read as it was enqueued; the topic of other messages is their
 *    subject.
 * 2. The position is the stream's sequence number, the same at every delivery.
 */
#include "broker/nats/source.h"

#include "broker/nats/message.h"
#include "sink/cloudevents.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NS_PER_US 1000
#define ACK_PREFIX "$JS.ACK."

/* "$JS.ACK", then optionally domain and account, then these parts. */
#define PARTS_WITHOUT_DOMAIN 9
#define SEQUENCE_PART 5 /* after the stream, the consumer and the number of deliveries */
#define TIME_PART 7	/* after the consumer's sequence number; in nanoseconds */
#define DOMAIN_PARTS 2

bool pr_nats_is_event(const char *reply)
{
	return reply && strncmp(reply, ACK_PREFIX, strlen(ACK_PREFIX)) == 0;
}

/* The number in this part; 0: there is none. */
static uint64_t number_at(const char *reply, size_t part)
{
	size_t parts = 1;

	for (const char *at = reply; *at; at++)
		parts += *at == '.';
	if (parts > PARTS_WITHOUT_DOMAIN)
		part += DOMAIN_PARTS;
	for (; part > 0 && reply; part--) {
		reply = strchr(reply, '.');
		reply = reply ? reply + 1 : NULL;
	}
	return reply ? strtoull(reply, NULL, 10) : 0;
}

/* Joins several values of a name with commas, as HTTP does. */
static bool put_values(natsMsg *msg, const char *name, struct pr_buf *out)
{
	const char **values = NULL;
	int count = 0;

	if (natsMsgHeader_Values(msg, name, &values, &count) != NATS_OK)
		return false;
	for (int i = 0; i < count; i++) {
		pr_buf_puts(out, i > 0 ? ", " : "");
		pr_buf_puts(out, values[i]);
	}
	free(values);
	return !out->failed;
}

static bool is_attribute(const char *name)
{
	return strcasecmp(name, "ce-type") == 0 || strcasecmp(name, "ce-subject") == 0 ||
	       strcasecmp(name, "ce-tenantid") == 0 || strcasecmp(name, "ce-correlationid") == 0;
}

/* False when there is no memory. */
static bool read_header(struct pr_nats_source *nats, natsMsg *msg, const char *name,
			struct pr_event *event, struct pr_arena *arena)
{
	struct pr_buf *value = &nats->value, *headers = &nats->headers;
	const char **field = NULL;

	if (strcasecmp(name, "Nats-Msg-Id") == 0)
		field = &event->id;
	else if (strcasecmp(name, "Content-Type") == 0)
		field = &event->content_type;
	else if (strcasecmp(name, "ce-type") == 0)
		field = &event->topic;
	else if (strcasecmp(name, "ce-subject") == 0)
		field = &event->key;
	else if (strcasecmp(name, "ce-tenantid") == 0)
		field = &event->tenant_id;
	else if (strcasecmp(name, "ce-correlationid") == 0)
		field = &event->correlation_id;
	else if (pr_nats_is_ours(name))
		return true;
	pr_buf_reset(value);
	if (!put_values(msg, name, value))
		return false;
	if (field && value->len == 0)
		return true;
	if (!field) {
		pr_buf_putc(headers, headers->len > 0 ? ',' : '{');
		pr_json_put_string(headers, name);
		pr_buf_putc(headers, ':');
		pr_json_put_stringn(headers, pr_buf_text(value), value->len);
		return !headers->failed;
	}
	if (is_attribute(name)) {
		pr_buf_reset(&nats->text);
		pr_ce_take_header_value(&nats->text, value->data);
		value = &nats->text;
	}
	*field = value->failed ? NULL : pr_arena_strdup(arena, pr_buf_text(value));
	return *field != NULL;
}

static bool read_headers(struct pr_nats_source *nats, natsMsg *msg, struct pr_event *event,
			 struct pr_arena *arena)
{
	const char **names = NULL;
	int count = 0;
	natsStatus status = natsMsgHeader_Keys(msg, &names, &count);
	/*
	 * The library cannot parse all headers of other producers. The event is read nevertheless.
	 */
	bool ok = status != NATS_NO_MEMORY;

	pr_buf_reset(&nats->headers);
	for (int i = 0; i < count && ok; i++)
		ok = read_header(nats, msg, names[i], event, arena);
	free(names);
	if (!ok || nats->headers.len == 0)
		return ok;
	pr_buf_putc(&nats->headers, '}');
	event->headers = nats->headers.failed ? NULL : pr_arena_strdup(arena, nats->headers.data);
	return event->headers != NULL;
}

int pr_nats_add_event(struct pr_nats_source *nats, natsMsg *msg, struct pr_events *events,
		      struct pr_err *err)
{
	struct pr_arena *arena = &events->arena;
	struct pr_event *event = pr_events_add(events);

	if (!event)
		return pr_err_nomem(err);
	event->len = (size_t)natsMsg_GetDataLength(msg);
	event->body = pr_arena_copy(arena, event->len > 0 ? natsMsg_GetData(msg) : "", event->len);
	event->broker_position = pr_arena_printf(arena, "%s/%" PRIu64, nats->source.url.path,
						 number_at(natsMsg_GetReply(msg), SEQUENCE_PART));
	event->at_us = (int64_t)(number_at(natsMsg_GetReply(msg), TIME_PART) / NS_PER_US);
	if (!event->body || !event->broker_position || !read_headers(nats, msg, event, arena) ||
	    (!event->topic && !(event->topic = pr_arena_strdup(arena, natsMsg_GetSubject(msg))))) {
		events->count--;
		return pr_err_nomem(err);
	}
	return POSTROOM_OK;
}
