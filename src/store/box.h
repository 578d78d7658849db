/* SPDX-License-Identifier: Apache-2.0 */
/* The application's side of a connection: it enqueues messages and accepts incoming events. */
#ifndef PR_STORE_BOX_H
#define PR_STORE_BOX_H

#include "base/err.h"
#include "base/uuid.h"

#include <postroom.h>
#include <stdbool.h>

/* An entry for the inbox: an event that is handled in this transaction, or a command. */
struct pr_entry {
	const char *id;
	const char *handler;
	bool completed;
	const char *payload;   /* NULL if none, like the others */
	const char *tenant_id; /* in lower case */
	const char *correlation_id;
};

/*
 * The application's side of a connection; outbox/enqueue.c and inbox/accept.c
 * check, this writes.
 */
struct pr_box_ops {
	/*
	 * Writes checked messages and fills receipts, which may be NULL. On failure, *ret_at is
	 * the index of the message. POSTROOM_DUPLICATE only for a single message; for several, see
	 * each receipt.
	 */
	int (*insert)(postroom_box *box, const postroom_message *messages, size_t count,
		      postroom_receipt *receipts, size_t *ret_at, struct pr_err *err);
	/*
	 * Writes a checked entry unless its id and handler exist: POSTROOM_OK or
	 * POSTROOM_DUPLICATE. *ret_state is set for entries that this call does not complete.
	 */
	int (*accept)(postroom_box *box, const struct pr_entry *entry,
		      postroom_inbox_state *ret_state, struct pr_err *err);
	bool (*in_transaction)(postroom_box *box);
	void (*free)(postroom_box *box);
};

struct postroom_box {
	const struct pr_box_ops *ops;
	size_t max_payload; /* 0: POSTROOM_PAYLOAD_DEFAULT_MAX */
	struct pr_uuid_gen uuids;
	struct pr_err err;
};

#endif
