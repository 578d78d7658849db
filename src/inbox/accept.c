/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's side: an event or a command is accepted once, in the caller's
 * transaction.
 *
 * 1. Everything that can be foreseen is checked before the write, so that
 *    refused input leaves the transaction as it was.
 * 2. Nothing is asked before it is written: between a look and a write another
 *    delivery of the same event would slip through.
 */
#include "store/store.h"

#include <string.h>

static int check_names(const struct pr_entry *entry, struct pr_err *err)
{
	int status;

	if (!entry->handler)
		return pr_err_set(err, POSTROOM_INVALID, "handler is missing");
	if (!entry->id)
		return pr_err_set(err, POSTROOM_INVALID, "id is missing");
	status = pr_name_check("handler", entry->handler, POSTROOM_HANDLER_MAX, err);
	if (status >= 0)
		status = pr_text_check("id", entry->id, POSTROOM_EVENT_ID_MAX, err);
	return status;
}

static int accept(postroom_box *box, const struct pr_entry *entry, const char *doing,
		  postroom_inbox_state *ret_state)
{
	size_t max = box->max_payload ? box->max_payload : POSTROOM_PAYLOAD_DEFAULT_MAX;
	int status;

	pr_err_clear(&box->err);
	status = check_names(entry, &box->err);
	if (status >= 0 && entry->payload)
		status = pr_payload_check(entry->payload, strlen(entry->payload), max, &box->err);
	if (status < 0)
		return pr_err_prefix(&box->err, "%s", doing);
	return box->ops->accept(box, entry, ret_state, &box->err);
}

int postroom_inbox_once(postroom_box *box, const char *event_id, const char *handler)
{
	const struct pr_entry entry = { .id = event_id, .handler = handler, .completed = true };

	return accept(box, &entry, "inbox once", NULL);
}

int postroom_inbox_submit(postroom_box *box, const char *handler, const char *command_id,
			  const char *payload, postroom_inbox_state *ret_state)
{
	const struct pr_entry entry = { .id = command_id, .handler = handler, .payload = payload };
	postroom_inbox_state state;
	int status = accept(box, &entry, "inbox submit", &state);

	if (status >= 0 && ret_state)
		*ret_state = state;
	return status;
}
