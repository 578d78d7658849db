/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each action of an operator is one log event, from the command line and from the admin server. The
 * library itself never logs: programs call this.
 */
#ifndef PR_STORE_ACTION_H
#define PR_STORE_ACTION_H

#include "base/log.h"
#include "store/store.h"

/* Stands for an empty fingerprint or sink, which requests and options would take for no limit. */
#define PR_NONE "<none>"

/* The filter's given parts as "table=outbox status=dead topic=orders.*". */
void pr_filter_text(const postroom_filter *filter, struct pr_buf *out);

/* OUTBOX_OPERATOR_ACTION action=retry filter="…" count=3 actor=…, after the change; flushed. */
void pr_log_action(struct pr_log *log, const char *action, const postroom_filter *filter,
		   int64_t count, const char *actor);

/* The same for an action that has no filter; text describes it instead. */
void pr_log_action_on(struct pr_log *log, const char *action, const char *text, int64_t count,
		      const char *actor);

#endif
