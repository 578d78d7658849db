/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that hold for every event, whatever a broker has sent. */
#ifndef TESTS_FUZZ_EVENT_H
#define TESTS_FUZZ_EVENT_H

#include "fuzz.h"

#include "base/text.h"
#include "consume/event.h"
#include "consume/replay.h"
#include "core/message.h"

/* Reads every string to its end, so that the sanitizer sees one that has none. */
static inline void fuzz_check_strings(const struct pr_event *event)
{
	const char *texts[] = { event->id,  event->broker_position, event->topic,
				event->key, event->headers,	    event->content_type };
	size_t sum = 0;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		sum += texts[i] ? strlen(texts[i]) : 0;
	for (size_t i = 0; i < event->len; i++)
		sum += (unsigned char)event->body[i];
	HOLDS(sum < SIZE_MAX);
	HOLDS(event->broker_position && event->body && event->body[event->len] == '\0');
}

/* The tables must accept every field of an incoming event. */
static inline void fuzz_check_incoming_event(const struct pr_incoming_event *incoming)
{
	struct pr_err err;

	HOLDS(incoming->id && pr_text_check("id", incoming->id, POSTROOM_EVENT_ID_MAX, &err) >= 0);
	HOLDS(pr_name_check("topic", incoming->topic, POSTROOM_TOPIC_MAX, &err) >= 0);
	HOLDS(pr_text_check("key", incoming->key, POSTROOM_KEY_MAX, &err) >= 0);
	HOLDS(pr_name_check("type", incoming->content_type, POSTROOM_CONTENT_TYPE_MAX, &err) >= 0);
	HOLDS(pr_headers_valid(incoming->headers, strlen(incoming->headers)));
	HOLDS(strlen(incoming->headers) <= POSTROOM_HEADERS_MAX);
	HOLDS(!incoming->payload.data || !incoming->body.data);
	if (incoming->payload.data)
		HOLDS(pr_json_check(incoming->payload.data, incoming->payload.len, NULL));
	HOLDS((incoming->how == PR_INSERT_DEAD) == (incoming->error != NULL));
}

static inline void fuzz_check_events(struct pr_events *events)
{
	static const struct pr_identity identities[] = { { 0 },
							 { .header = "a" },
							 { .path = "a.b" } };
	struct pr_replay replay = { .scheme = "x", .handler = "h" };
	struct pr_err err;

	for (size_t i = 0; i < events->count; i++) {
		fuzz_check_strings(&events->list[i]);
		for (size_t k = 0; k < sizeof(identities) / sizeof(*identities); k++) {
			struct pr_incoming_event incoming;

			HOLDS(pr_incoming_event_make(&events->list[i], &identities[k], "h",
						     &events->arena, &incoming, &err) >= 0);
			fuzz_check_incoming_event(&incoming);
		}
	}
	HOLDS(pr_replay_pass(&replay, events, &err) >= 0);
	pr_replay_release(&replay);
}

/* The next part of the input, up to a NUL or the end. A copy that ends in a NUL; free() it. */
static inline char *fuzz_take_text(const uint8_t **data, size_t *size)
{
	const uint8_t *end = *size > 0 ? memchr(*data, '\0', *size) : NULL;
	size_t len = end ? (size_t)(end - *data) : *size;
	char *text = malloc(len + 1);

	HOLDS(text);
	if (len > 0)
		memcpy(text, *data, len);
	text[len] = '\0';
	*data += len + (end != NULL);
	*size -= len + (end != NULL);
	return text;
}

#endif
