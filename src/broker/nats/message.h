/* SPDX-License-Identifier: Apache-2.0 */
/* A message in NATS form: a subject, headers, content. */
#ifndef PR_BROKER_NATS_MESSAGE_H
#define PR_BROKER_NATS_MESSAGE_H

#include "base/buf.h"
#include "base/err.h"

#include "core/delivery.h"
#include "sink/sink.h"
#include <nats/nats.h>

/* Buffers to work with, kept from message to message. */
struct pr_nats_pen {
	struct pr_buf subject;
	struct pr_buf name;
	struct pr_buf value;
	struct pr_buf text;
};

void pr_nats_message_buffers_release(struct pr_nats_pen *pen);

/* Whether a header's name is not the message's own: ours, or the server's. */
bool pr_nats_is_ours(const char *name);

/* To be asked at open: the errors are POSTROOM_SINK. */
int pr_nats_check_subject(const char *template, struct pr_err *err);

/* The message's own subject, in pen->subject. POSTROOM_INVALID: there is none. */
int pr_nats_subject(struct pr_nats_pen *pen, const char *template, const postroom_delivery *item,
		    struct pr_err *err);

/*
 * The whole message, for the caller to destroy; its subject is in pen->subject. POSTROOM_INVALID:
 * NATS cannot carry it.
 */
int pr_nats_compose(struct pr_nats_pen *pen, const postroom_delivery *item, const char *reply,
		    natsMsg **ret, struct pr_err *err);

#endif
