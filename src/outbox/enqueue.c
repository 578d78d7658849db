/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enqueue: check, then write, in the caller's transaction.
 *
 * 1. Foreseeable errors are checked before the first write, so
 *    that refused input leaves nothing behind and the transaction as it was.
 * 2. Nothing is filtered and payloads are only checked to be JSON.
 */
#include "store/store.h"

static size_t max_payload(const postroom_box *box)
{
	return box->max_payload ? box->max_payload : POSTROOM_PAYLOAD_DEFAULT_MAX;
}

int postroom_enqueue(postroom_box *box, const postroom_message *message, postroom_receipt *receipt)
{
	size_t at;
	int status;

	pr_err_clear(&box->err);
	status = pr_message_check(message, max_payload(box), &box->err);
	if (status < 0) {
		pr_err_prefix(&box->err, "enqueue");
		return status;
	}
	return box->ops->insert(box, message, 1, receipt, &at, &box->err);
}

int postroom_enqueue_many(postroom_box *box, const postroom_message *messages, size_t count,
			  postroom_receipt *receipts)
{
	size_t at = 0;
	int status;

	pr_err_clear(&box->err);
	if (!box->ops->in_transaction(box))
		return pr_err_set(&box->err, POSTROOM_INVALID,
				  "enqueue: many messages need an open transaction, or a crash "
				  "could leave half of them; begin one first");
	for (size_t i = 0; i < count; i++) {
		status = pr_message_check(&messages[i], max_payload(box), &box->err);
		if (status < 0) {
			pr_err_prefix(&box->err, "enqueue: message %zu", i + 1);
			return status;
		}
	}
	if (count == 0)
		return POSTROOM_OK;
	status = box->ops->insert(box, messages, count, receipts, &at, &box->err);
	if (status < 0)
		return pr_err_prefix(&box->err, "message %zu", at + 1);
	return POSTROOM_OK;
}

int postroom_box_set_max_payload(postroom_box *box, size_t bytes)
{
	if (bytes == 0 || bytes > POSTROOM_PAYLOAD_MAX)
		return pr_err_set(&box->err, POSTROOM_INVALID,
				  "the largest payload must be between 1 and %d bytes",
				  POSTROOM_PAYLOAD_MAX);
	box->max_payload = bytes;
	return POSTROOM_OK;
}

const char *postroom_errmsg(const postroom_box *box)
{
	return box ? box->err.text : "out of memory";
}

int postroom_errcode(const postroom_box *box)
{
	return box ? box->err.native : 0;
}

const char *postroom_sqlstate(const postroom_box *box)
{
	return box ? box->err.sqlstate : "";
}

void postroom_box_free(postroom_box *box)
{
	if (box)
		box->ops->free(box);
}
