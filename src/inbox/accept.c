/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inbox: an event or a command is accepted once, in the caller's transaction.
 *
 * 1. Foreseeable errors are checked before the write, so that refused input leaves the transaction
 *    unchanged.
 * 2. The row is written without a check before: between a check and a write, another delivery of
 *    the same event could slip in.
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
	if (status >= 0)
		status = pr_name_check("correlation_id", entry->correlation_id,
				       POSTROOM_CORRELATION_ID_MAX, &box->err);
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
	return postroom_inbox_submit_command(
		box, POSTROOM_COMMAND(.handler = handler, .id = command_id, .payload = payload),
		ret_state);
}

int postroom_inbox_submit_command(postroom_box *box, const postroom_command *command,
				  postroom_inbox_state *ret_state)
{
	struct pr_entry entry = { .id = command->id,
				  .handler = command->handler,
				  .payload = command->payload,
				  .correlation_id = command->correlation_id };
	char tenant_id[PR_UUID_SIZE];
	postroom_inbox_state state;
	int status;

	if (command->size != sizeof(*command))
		return pr_err_set(&box->err, POSTROOM_INVALID,
				  "inbox submit: size must be sizeof(postroom_command): use "
				  "POSTROOM_COMMAND()");
	if (command->tenant_id && !pr_uuid_normalize(command->tenant_id, tenant_id))
		return pr_err_set(
			&box->err, POSTROOM_INVALID,
			"inbox submit: tenant_id is not a UUID (write it as 8-4-4-4-12 hex "
			"digits)");
	if (command->tenant_id)
		entry.tenant_id = tenant_id;
	status = accept(box, &entry, "inbox submit", &state);
	if (status >= 0 && ret_state)
		*ret_state = state;
	return status;
}
