/* SPDX-License-Identifier: Apache-2.0 */
/* What JetStream answers: JSON, in which an error is an object of its own. */
#ifndef PR_BROKER_NATS_REPLY_H
#define PR_BROKER_NATS_REPLY_H

#include "base/json.h"

#include <nats/nats.h>

#include <stdint.h>

struct pr_nats_answer {
	bool acknowledged; /* a stream has what was published */
	struct pr_span
		json; /* the whole answer, for as long as the message lives; NULL: it is none */
	int64_t code, error; /* as of HTTP, and JetStream's own; 0: it is no error */
	struct pr_buf *text; /* the caller's: what the server says of it */
};

/* Into a zeroed answer with a text. */
void pr_nats_read_reply(natsMsg *msg, struct pr_nats_answer *ret);

/* A member of an object, raw, by its name with the quotes; data NULL: it has none, or is no object. */
struct pr_span pr_nats_member(struct pr_span object, const char *name);
int64_t pr_nats_number(struct pr_span object, const char *name); /* 0: it has none */

#endif
