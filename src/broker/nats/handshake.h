/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects to a NATS server, and owns the connection. While it connects, the library waits by
 * itself, and in a TLS handshake without a limit. So a thread connects, and is abandoned if that
 * takes too long.
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
	/* The connecting thread owns the following members until done is true, then the caller. */
	natsConnection *connection; /* NULL: it has failed */
	natsStatus status;
	char error[256]; /* why */
	int fd;
	bool writing; /* the library has data to send */

	int errors_fd; /* readable when the server has reported an error */
	struct pr_nats_errors *errors;
	int64_t begun_us;
	pthread_t maker;
	_Atomic bool done;
	int done_fd; /* an eventfd, readable when done is true */
	natsOptions *options;
	_Atomic int owners; /* the connecting thread, and the caller */
};

/* Begins to connect. The handshake owns the options afterwards, also on failure. */
int pr_nats_handshake_begin(natsOptions *options, struct pr_nats_handshake **ret,
			    struct pr_err *err);

/*
 * Appends the errors that the server has reported since the last call, one per line. A thread of
 * the library adds them, a little later than the data.
 */
void pr_nats_handshake_read_errors(struct pr_nats_handshake *handshake, struct pr_buf *out);

/*
 * Closes the connection without waiting. If the handshake is not done, its thread closes it later.
 */
void pr_nats_handshake_end(struct pr_nats_handshake *handshake);

#endif
