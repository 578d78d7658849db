/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a batch, for stdout: and file:. */
#ifndef PR_SINK_LINES_H
#define PR_SINK_LINES_H

#include "sink/sink.h"

/* A line of a batch: its message, and where it ends. */
struct pr_line {
	size_t item;
	size_t end;
};

struct pr_lines {
	struct pr_line *line; /* in the flight's arena */
	size_t count;
};

/*
 * Appends a line for each item that JSON can carry. The others are REJECTED, and later messages of
 * their key have no line. False: out of memory.
 */
bool pr_lines_put(struct pr_buf *text, postroom_delivery *items, size_t count,
		  const struct pr_flight *flight, struct pr_lines *ret);

/*
 * Marks the first written lines as DELIVERED. A message after a line that was not written is not
 * rejected: it is published again first.
 */
void pr_lines_judge(const struct pr_lines *lines, size_t written, postroom_delivery *items,
		    size_t count, const struct pr_flight *flight);

#endif
