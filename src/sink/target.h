/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of what a message goes to (a stream, a subject, a path), made from a
 * template: {topic}, {namespace}, {tenant} and {key} stand for the message's own,
 * {{ and }} for single braces.
 */
#ifndef PR_SINK_TARGET_H
#define PR_SINK_TARGET_H

#include "base/buf.h"
#include "base/err.h"

#include <postroom/store.h>

#include <stdbool.h>

/* What the far side's names are made of. A message can not say more than that. */
struct pr_target_rule {
	bool (*text)(char c);  /* may stand in the template itself; NULL: every byte */
	bool (*value)(char c); /* stands for itself in a message's value; NULL: every byte */
	char escape;	       /* before the two hex digits of any other byte of a value */
	bool tokens;	       /* and of a dot that would leave nothing between itself and the next */
	size_t max;	       /* bytes of a name; 0: no limit */
};

/* To be asked at open: the errors are POSTROOM_SINK. An empty template stands for "{topic}". */
int pr_target_check(const char *template, const struct pr_target_rule *rule, struct pr_err *err);

/* Whether the template names a field, as in pr_target_uses(template, "tenant"). */
bool pr_target_uses(const char *template, const char *field);

/* Whether the text names any field. An empty one does not. */
bool pr_target_is_template(const char *text);

/*
 * Appends the message's own name; only for a template that has been checked. A
 * name that turns out empty or too long is POSTROOM_INVALID: the message's own fault.
 */
int pr_target_put(struct pr_buf *out, const char *template, const struct pr_target_rule *rule,
		  const postroom_delivery *item, struct pr_err *err);

#endif
