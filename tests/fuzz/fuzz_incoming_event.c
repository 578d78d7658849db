/* SPDX-License-Identifier: Apache-2.0 */
/* Any event at all: id, place, topic, key, headers and content type, with NULs between; then the content. */
#include "fuzz_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pr_events events = { 0 };
	struct pr_event *event = pr_events_add(&events);
	char *texts[6];

	HOLDS(event);
	for (size_t i = 0; i < 6; i++)
		texts[i] = fuzz_take_text(&data, &size);
	event->id = texts[0][0] ? texts[0] : NULL;
	event->broker_position = texts[1][0] ? texts[1] : "orders/1-1";
	event->topic = texts[2];
	event->key = texts[3];
	event->headers = texts[4][0] ? texts[4] : NULL;
	event->content_type = texts[5][0] ? texts[5] : NULL;
	event->body = pr_arena_copy(&events.arena, size > 0 ? (const char *)data : "", size);
	event->len = size;
	fuzz_check_events(&events);
	pr_events_release(&events);
	for (size_t i = 0; i < 6; i++)
		free(texts[i]);
	return 0;
}
