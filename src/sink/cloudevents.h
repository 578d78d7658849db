/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message as a CloudEvent (1.0.2). Its attributes:
 *
 *	specversion	1.0
 *	id		the message's id
 *	source		/postroom/NAMESPACE, or what the sink's settings say
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

#include <postroom/store.h>

#define PR_CE_MAX 8

struct pr_ce_attribute {
	const char *name;
	const char *value; /* UTF-8, as it is */
};

/* Values point into the message and into this. */
struct pr_ce {
	struct pr_ce_attribute attributes[PR_CE_MAX];
	size_t count;
	char time[PR_RFC3339_SIZE];
};

/* source NULL: made of the namespace, in scratch, which must then live as long as ce. */
void pr_ce_fill(struct pr_ce *ce, const postroom_delivery *item, const char *source,
		struct pr_buf *scratch);

/* Appends a value as the binding for HTTP wants it in a header: printable ASCII, the rest as %XX. */
void pr_ce_put_header_value(struct pr_buf *out, const char *value);

/* Appends what such a value says; one that would not be text stays as it is. */
void pr_ce_take_header_value(struct pr_buf *out, const char *value);

/* Appends the whole event in the JSON format. */
void pr_ce_put_json(struct pr_buf *out, const struct pr_ce *ce, const postroom_delivery *item);

#endif
