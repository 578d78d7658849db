/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/source.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pr_events_reset(struct pr_events *events)
{
	pr_arena_reset(&events->arena);
	events->count = 0;
}

void pr_events_release(struct pr_events *events)
{
	pr_arena_release(&events->arena);
	free(events->list);
	*events = (struct pr_events){ 0 };
}

struct pr_event *pr_events_add(struct pr_events *events)
{
	struct pr_event *event;

	if (events->count == events->capacity) {
		size_t capacity = events->capacity ? events->capacity * 2 : 64;
		struct pr_event *more = reallocarray(events->list, capacity, sizeof(*more));

		if (!more)
			return NULL;
		events->list = more;
		events->capacity = capacity;
	}
	event = &events->list[events->count++];
	*event = (struct pr_event){ 0 };
	return event;
}

const char *pr_event_digest(struct pr_arena *arena, const struct pr_span *parts, size_t count)
{
	static const char prefix[] = "sha256:";
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int len = 0;
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool done = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL);
	char *text;

	for (size_t i = 0; done && i < count; i++)
		done = EVP_DigestUpdate(context, "", i > 0) &&
		       EVP_DigestUpdate(context, parts[i].data, parts[i].len);
	done = done && EVP_DigestFinal_ex(context, digest, &len);
	EVP_MD_CTX_free(context);
	text = done ? pr_arena_alloc(arena, sizeof(prefix) + (size_t)len * 2) : NULL;
	if (!text)
		return NULL;
	memcpy(text, prefix, sizeof(prefix));
	for (unsigned int i = 0; i < len; i++)
		snprintf(text + sizeof(prefix) - 1 + (size_t)i * 2, 3, "%02x", digest[i]);
	return text;
}
