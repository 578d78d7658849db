/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a message's target (a stream, a subject, a path), made from a template: {topic},
 * {namespace}, {tenant} and {key} are replaced by the message's values, {{ and }} by single braces.
 */
#ifndef PR_SINK_TARGET_H
#define PR_SINK_TARGET_H

#include "base/buf.h"
#include "base/err.h"

#include "core/delivery.h"

#include <stdbool.h>

/* Bytes that a receiver's names can contain. Other bytes of a message are escaped. */
struct pr_target_rule {
	bool (*text)(char c);  /* allowed in the template; NULL: every byte */
	bool (*value)(char c); /* unescaped in a message's value; NULL: every byte */
	char escape;	       /* escape character before the two hex digits of any other byte of
			        * a value */
	bool tokens;	       /* also escape a dot that would make an empty token */
	size_t max;	       /* maximum length of a name; 0: no limit */
};

/* Checks a template at open: the errors are POSTROOM_SINK. An empty template means "{topic}". */
int pr_target_check(const char *template, const struct pr_target_rule *rule, struct pr_err *err);

/* True if the template has the field, as in pr_target_uses(template, "tenant"). */
bool pr_target_uses(const char *template, const char *field);

/* True if the text has any field. An empty one has none. */
bool pr_target_is_template(const char *text);

/*
 * Appends the message's target. Requires a checked template. POSTROOM_INVALID if the name is empty
 * or too long, which concerns only the message.
 */
int pr_target_put(struct pr_buf *out, const char *template, const struct pr_target_rule *rule,
		  const postroom_delivery *item, struct pr_err *err);

#endif
