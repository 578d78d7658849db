/* SPDX-License-Identifier: Apache-2.0 */
/* The states of the inbox by name. */
#include "store/store.h"

#include <string.h>

/* In the order of postroom_inbox_state. */
static const char *const states[] = { "pending", "active", "completed", "dead", NULL };

const char *pr_inbox_state_name(postroom_inbox_state state)
{
	return states[state];
}

postroom_inbox_state pr_inbox_state(const char *name)
{
	int i = 0;

	while (i < POSTROOM_INBOX_DEAD && strcmp(states[i], name) != 0)
		i++;
	return (postroom_inbox_state)i;
}
