/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A message is one line: no byte of it can end the line or add a member.
 * 2. No line follows a rejected message of the same key.
 */
#include "sink/lines.h"

#include "sink/attributes.h"

static const struct pr_protocol protocol = { .name = "a line of JSON", .json = true };

bool pr_lines_put(struct pr_buf *text, postroom_delivery *items, size_t count,
		  const struct pr_flight *flight, struct pr_lines *ret)
{
	bool *put = pr_arena_alloc(flight->arena, count * sizeof(*put));
	size_t *before = NULL; /* needed only after a rejection */

	*ret = (struct pr_lines){ .line = pr_arena_alloc(flight->arena,
							 count * sizeof(*ret->line)) };
	if (!put || !ret->line)
		return false;
	for (size_t i = 0; i < count; i++) {
		struct pr_err err = { 0 };
		size_t previous = before ? before[i] : PR_SINK_NONE;

		put[i] = previous == PR_SINK_NONE || put[previous];
		if (!put[i])
			continue;
		/* It decodes nothing, so it needs no scratch buffer. */
		put[i] = pr_attributes_check(&items[i], &protocol, NULL, &err) == POSTROOM_OK;
		if (put[i]) {
			pr_sink_put_line(text, &items[i]);
			ret->line[ret->count++] = (struct pr_line){ i, text->len };
			continue;
		}
		pr_sink_judge(&items[i], 1, POSTROOM_REJECTED, flight, err.text);
		before = before ? before : pr_sink_order(items, count, flight->arena);
		if (!before)
			return false;
	}
	return !text->failed;
}

void pr_lines_judge(const struct pr_lines *lines, size_t written, postroom_delivery *items,
		    size_t count, const struct pr_flight *flight)
{
	size_t first = written < lines->count ? lines->line[written].item : count;

	for (size_t i = 0; i < written; i++)
		pr_sink_judge(&items[lines->line[i].item], 1, POSTROOM_DELIVERED, flight, NULL);
	for (size_t i = first; i < count; i++) {
		if (items[i].verdict == POSTROOM_REJECTED)
			pr_sink_judge(&items[i], 1, POSTROOM_UNTRIED, flight, NULL);
	}
}
