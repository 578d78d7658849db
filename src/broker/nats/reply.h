/* SPDX-License-Identifier: Apache-2.0 */
/* Parses JetStream's answers: JSON, in which "error" is an object. */
#ifndef PR_BROKER_NATS_REPLY_H
#define PR_BROKER_NATS_REPLY_H

#include "base/json.h"

#include <nats/nats.h>

#include <stdint.h>

struct pr_nats_answer {
	bool acknowledged;   /* a stream has stored the message */
	struct pr_span json; /* the whole answer, valid as long as the message; NULL: not JSON */
	int64_t code, error; /* HTTP's code, and JetStream's own; 0: no error */
	struct pr_buf *text; /* the caller's buffer, for the server's description */
};

/* ret is zeroed except for text. */
void pr_nats_read_reply(natsMsg *msg, struct pr_nats_answer *ret);

/*
 * The raw value of a member. name includes its quotes. data NULL: there is none, or object is not
 * an object.
 */
struct pr_span pr_nats_member(struct pr_span object, const char *name);
int64_t pr_nats_number(struct pr_span object, const char *name); /* 0: there is none */

#endif
