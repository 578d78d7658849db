/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message as a CloudEvent (1.0.2). Its attributes:
 *
 *	specversion	1.0
 *	id		the message's id
 *	source		/postroom/NAMESPACE, or from the sink's settings
 *	type		the topic
 *	time		when it was enqueued
 *	subject		the key, if it has one
 *	tenantid	the tenant, if it has one
 *	correlationid	the correlation id, if it has one
 */
#ifndef PR_SINK_CLOUDEVENTS_H
#define PR_SINK_CLOUDEVENTS_H

#include "base/buf.h"
#include "base/time.h"

#include "core/delivery.h"

#define PR_CE_MAX 8

struct pr_ce_attribute {
	const char *name;
	const char *value; /* UTF-8, as it is */
};

/* Values point into the message and into this struct. */
struct pr_ce {
	struct pr_ce_attribute attributes[PR_CE_MAX];
	size_t count;
	char time[PR_RFC3339_SIZE];
};

/* source NULL: built from the namespace, in scratch, which must then live as long as ce. */
void pr_ce_fill(struct pr_ce *ce, const postroom_delivery *item, const char *source,
		struct pr_buf *scratch);

/* Appends a value as the HTTP binding requires it in a header: printable ASCII, other bytes as %XX.
 */
void pr_ce_put_header_value(struct pr_buf *out, const char *value);

/* Appends the decoded value; a value that would not be valid text is appended unchanged. */
void pr_ce_take_header_value(struct pr_buf *out, const char *value);

/* Appends the whole event in the JSON format. */
void pr_ce_put_json(struct pr_buf *out, const struct pr_ce *ce, const postroom_delivery *item);

#endif
