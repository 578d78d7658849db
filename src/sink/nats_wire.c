/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The maker's thread touches its wire and nothing else; whoever lets go of it last
 *    frees it.
 * 2. Once it is done, the library's event loop is our poll(): no thread reads, writes
 *    or reconnects, and the library is only at work while it is called.
 * 3. Ending a connection never waits: what was not sent is lost, and nobody was told
 *    otherwise.
 */
#include "sink/nats_wire.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static natsStatus attach(void **ret_data, void *context, natsConnection *connection, natsSock fd)
{
	struct pr_nats_wire *wire = context;

	(void)connection;
	/* What exec: starts must not inherit it. */
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	wire->fd = fd;
	*ret_data = wire;
	return NATS_OK;
}

static natsStatus want_to_read(void *data, bool on)
{
	(void)data;
	(void)on;
	return NATS_OK;
}

static natsStatus want_to_write(void *data, bool on)
{
	struct pr_nats_wire *wire = data;

	wire->writing = on;
	return NATS_OK;
}

static natsStatus detach(void *data)
{
	(void)data;
	return NATS_OK;
}

static void close_connection(struct pr_nats_wire *wire)
{
	/* Left to itself the library would try for half a second to send the rest. */
	if (!natsConnection_IsClosed(wire->connection))
		shutdown(wire->fd, SHUT_RDWR);
	while (!natsConnection_IsClosed(wire->connection))
		natsConnection_ProcessReadEvent(wire->connection);
	natsConnection_Destroy(wire->connection);
#ifdef PR_NATS_CLOSES_BY_EVENT
	natsConnection_ProcessCloseEvent(&wire->fd);
#endif
}

void pr_nats_wire_end(struct pr_nats_wire *wire)
{
	if (!wire || atomic_fetch_sub(&wire->owners, 1) > 1)
		return;
	if (wire->connection)
		close_connection(wire);
	natsOptions_Destroy(wire->options);
	close(wire->done_fd);
	free(wire);
}

static void *make(void *context)
{
	struct pr_nats_wire *wire = context;
	const char *error;

	wire->status = natsConnection_Connect(&wire->connection, wire->options);
	if (wire->status == NATS_OK)
		wire->status = natsConnection_HasHeaderSupport(wire->connection);
	if (wire->status != NATS_OK) {
		error = nats_GetLastError(NULL);
		snprintf(wire->error, sizeof(wire->error), "%s",
			 error ? error : natsStatus_GetText(wire->status));
	}
	atomic_store(&wire->done, true);
	eventfd_write(wire->done_fd, 1);
	pr_nats_wire_end(wire);
	nats_ReleaseThreadMemory();
	return NULL;
}

static bool begin_thread(struct pr_nats_wire *wire)
{
	pthread_attr_t attributes;
	pthread_t thread;
	bool begun;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	begun = pthread_create(&thread, &attributes, make, wire) == 0;
	pthread_attr_destroy(&attributes);
	return begun;
}

int pr_nats_wire_begin(natsOptions *options, struct pr_nats_wire **ret, struct pr_err *err)
{
	struct pr_nats_wire *wire = calloc(1, sizeof(*wire));
	int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (!wire || done_fd < 0 ||
	    natsOptions_SetEventLoop(options, wire, attach, want_to_read, want_to_write, detach) !=
		    NATS_OK) {
		if (done_fd >= 0)
			close(done_fd);
		free(wire);
		natsOptions_Destroy(options);
		return pr_err_nomem(err);
	}
	wire->options = options;
	wire->done_fd = done_fd;
	atomic_store(&wire->owners, 2);
	if (!begin_thread(wire)) {
		atomic_store(&wire->owners, 1);
		pr_nats_wire_end(wire);
		return pr_err_nomem(err);
	}
	*ret = wire;
	return POSTROOM_OK;
}
