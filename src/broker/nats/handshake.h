/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The making of a connection to a NATS server, and the connection. The library waits
 * by itself while it connects, in a TLS handshake without an end; so that is done by a
 * thread which can be left alone with it.
 */
#ifndef PR_BROKER_NATS_HANDSHAKE_H
#define PR_BROKER_NATS_HANDSHAKE_H

#include "base/buf.h"
#include "base/err.h"

#include <nats/nats.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct pr_nats_handshake {
	/* From here on the maker's alone until done is true, then yours. */
	natsConnection *connection; /* NULL: it has failed */
	natsStatus status;
	char error[256]; /* why */
	int fd;
	bool writing; /* something waits to be sent */

	int errors_fd; /* readable once there is a note to take */
	struct pr_nats_errors *errors;
	int64_t begun_us;
	pthread_t maker;
	_Atomic bool done;
	int done_fd; /* an eventfd: readable once it is done */
	natsOptions *options;
	_Atomic int owners; /* the maker, and the thread that waits for it */
};

/* Begins to connect. The options are the wire's from now on, also after a failure. */
int pr_nats_handshake_begin(natsOptions *options, struct pr_nats_handshake **ret,
			    struct pr_err *err);

/*
 * Appends what the server has said against what we did, a line each: whatever came since
 * this was last asked. The library has it said by a thread of its own, a little later.
 */
void pr_nats_handshake_take_errors(struct pr_nats_handshake *handshake, struct pr_buf *out);

/* Closes it without waiting. One that is not done is closed by its maker, whenever that returns. */
void pr_nats_handshake_end(struct pr_nats_handshake *handshake);

#endif
