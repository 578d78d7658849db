/* SPDX-License-Identifier: Apache-2.0 */
/* A message in NATS form: a subject, headers, content. */
#ifndef PR_BROKER_NATS_MESSAGE_H
#define PR_BROKER_NATS_MESSAGE_H

#include "base/buf.h"
#include "base/err.h"

#include "core/delivery.h"
#include "sink/sink.h"
#include <nats/nats.h>

/* Buffers that are reused for each message. */
struct pr_nats_message_buffers {
	struct pr_buf subject;
	struct pr_buf name;
	struct pr_buf value;
	struct pr_buf text;
};

void pr_nats_message_buffers_release(struct pr_nats_message_buffers *buffers);

/* True if the sink or the server sets the header, so that a message's own headers cannot. */
bool pr_nats_is_ours(const char *name);

/* Checks a template at open. Errors are POSTROOM_SINK. */
int pr_nats_check_subject(const char *template, struct pr_err *err);

/* Writes the message's subject to buffers->subject. POSTROOM_INVALID: it has no valid one. */
int pr_nats_subject(struct pr_nats_message_buffers *buffers, const char *template,
		    const postroom_delivery *item, struct pr_err *err);

/*
 * Makes the whole message, which the caller destroys. Its subject is in buffers->subject.
 * POSTROOM_INVALID: NATS cannot carry it.
 */
int pr_nats_compose(struct pr_nats_message_buffers *buffers, const postroom_delivery *item,
		    const char *reply, natsMsg **ret, struct pr_err *err);

#endif
