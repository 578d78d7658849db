/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message of a stream as an event.
 *
 * 1. What the sink nats: has written is read as it was enqueued; of what others have
 *    written, the subject is the topic.
 * 2. The place is the stream's own number, the same whenever and to whom it is delivered.
 */
#include "consume/nats.h"

#include "sink/cloudevents.h"
#include "sink/nats_message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ACK_PREFIX "$JS.ACK."

/* $JS.ACK, then domain and account or neither, then these. */
#define PARTS_WITHOUT_DOMAIN 9
#define SEQUENCE_PART 5 /* behind the stream, the consumer, and how often it was delivered */
#define DOMAIN_PARTS 2

bool pr_nats_is_event(const char *reply)
{
	return reply && strncmp(reply, ACK_PREFIX, strlen(ACK_PREFIX)) == 0;
}

static uint64_t sequence(const char *reply)
{
	size_t parts = 1, skip = SEQUENCE_PART;

	for (const char *at = reply; *at; at++)
		parts += *at == '.';
	if (parts > PARTS_WITHOUT_DOMAIN)
		skip += DOMAIN_PARTS;
	for (; skip > 0 && reply; skip--) {
		reply = strchr(reply, '.');
		reply = reply ? reply + 1 : NULL;
	}
	return reply ? strtoull(reply, NULL, 10) : 0;
}

/* Several values of a name are one, as HTTP has them. */
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
	return strcasecmp(name, "ce-type") == 0 || strcasecmp(name, "ce-subject") == 0;
}

/* False when there is no memory. */
static bool take_header(struct pr_nats_source *nats, natsMsg *msg, const char *name,
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

static bool take_headers(struct pr_nats_source *nats, natsMsg *msg, struct pr_event *event,
			 struct pr_arena *arena)
{
	const char **names = NULL;
	int count = 0;
	natsStatus status = natsMsgHeader_Keys(msg, &names, &count);
	/* Some that others write are too much for the library: the event is there nevertheless. */
	bool ok = status != NATS_NO_MEMORY;

	pr_buf_reset(&nats->headers);
	for (int i = 0; i < count && ok; i++)
		ok = take_header(nats, msg, names[i], event, arena);
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
	event->place = pr_arena_printf(arena, "%s/%" PRIu64, nats->source.url.path,
				       sequence(natsMsg_GetReply(msg)));
	if (!event->body || !event->place || !take_headers(nats, msg, event, arena) ||
	    (!event->topic && !(event->topic = pr_arena_strdup(arena, natsMsg_GetSubject(msg))))) {
		events->count--;
		return pr_err_nomem(err);
	}
	return POSTROOM_OK;
}
