/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The maker's thread touches its wire and nothing else; whoever lets go of it last
 *    frees it.
 * 2. Once it is done, the library's event loop is our poll(): no thread reads, writes
 *    or reconnects, and the library is only at work while it is called.
 * 3. The notes are the wire's and the library's, which may write one after the wire's end;
 *    that the connection is closed is the last that it says.
 * 4. The library's thread, and makers that were left alone, may be at work past the end of
 *    main(): nothing of theirs is taken apart there.
 * 5. Ending a connection never waits: what was not sent is lost, and nobody was told
 *    otherwise.
 */
#include "sink/nats_wire.h"

#include "base/time.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Before anybody else begins to use OpenSSL: it would clean up at exit, under those threads. */
__attribute__((constructor)) static void keep_openssl(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

struct pr_nats_notes {
	pthread_mutex_t lock; /* of all that follows */
	struct pr_buf text;
	int fd; /* an eventfd; -1: nobody reads them any more */
	_Atomic int owners;
};

static struct pr_nats_notes *begin_notes(void)
{
	struct pr_nats_notes *notes = calloc(1, sizeof(*notes));

	if (!notes)
		return NULL;
	notes->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (notes->fd < 0) {
		free(notes);
		return NULL;
	}
	pthread_mutex_init(&notes->lock, NULL);
	atomic_store(&notes->owners, 1);
	return notes;
}

static void end_notes(struct pr_nats_notes *notes)
{
	if (atomic_fetch_sub(&notes->owners, 1) > 1)
		return;
	pthread_mutex_destroy(&notes->lock);
	pr_buf_release(&notes->text);
	free(notes);
}

/* What the library may still write goes nowhere: a descriptor is not left behind for it. */
static void stop_reading(struct pr_nats_notes *notes)
{
	pthread_mutex_lock(&notes->lock);
	close(notes->fd);
	notes->fd = -1;
	pthread_mutex_unlock(&notes->lock);
	end_notes(notes);
}

static void write_note(natsConnection *connection, natsSubscription *subscription,
		       natsStatus status, void *context)
{
	struct pr_nats_notes *notes = context;
	const char *error = nats_GetLastError(NULL);

	(void)connection;
	(void)subscription;
	if (status != NATS_NOT_PERMITTED || !error)
		return;
	pthread_mutex_lock(&notes->lock);
	if (notes->fd >= 0) {
		pr_buf_printf(&notes->text, "%s\n", error);
		eventfd_write(notes->fd, 1);
	}
	pthread_mutex_unlock(&notes->lock);
}

static void hear_close(natsConnection *connection, void *context)
{
	(void)connection;
	end_notes(context);
}

void pr_nats_wire_take_notes(struct pr_nats_wire *wire, struct pr_buf *out)
{
	struct pr_nats_notes *notes = wire->notes;
	eventfd_t count;

	pthread_mutex_lock(&notes->lock);
	if (notes->text.len > 0) {
		pr_buf_puts(out, notes->text.data);
		pr_buf_reset(&notes->text);
		eventfd_read(notes->fd, &count);
	}
	pthread_mutex_unlock(&notes->lock);
}

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

static void let_go(struct pr_nats_wire *wire)
{
	if (atomic_fetch_sub(&wire->owners, 1) > 1)
		return;
	if (wire->connection)
		close_connection(wire);
	stop_reading(wire->notes);
	natsOptions_Destroy(wire->options);
	close(wire->done_fd);
	free(wire);
}

void pr_nats_wire_end(struct pr_nats_wire *wire)
{
	if (!wire)
		return;
	/* One that is done has but a step to go. */
	if (atomic_load(&wire->done))
		pthread_join(wire->maker, NULL);
	else
		pthread_detach(wire->maker);
	let_go(wire);
}

static void *make(void *context)
{
	struct pr_nats_wire *wire = context;
	const char *error;

	wire->status = natsConnection_Connect(&wire->connection, wire->options);
	if (wire->status == NATS_OK) {
		atomic_fetch_add(&wire->notes->owners, 1);
		wire->status = natsConnection_HasHeaderSupport(wire->connection);
	}
	if (wire->status != NATS_OK) {
		error = nats_GetLastError(NULL);
		snprintf(wire->error, sizeof(wire->error), "%s",
			 error ? error : natsStatus_GetText(wire->status));
	}
	atomic_store(&wire->done, true);
	eventfd_write(wire->done_fd, 1);
	let_go(wire);
	nats_ReleaseThreadMemory();
	return NULL;
}

static bool set_callbacks(struct pr_nats_wire *wire, natsOptions *options)
{
	return natsOptions_SetEventLoop(options, wire, attach, want_to_read, want_to_write,
					detach) == NATS_OK &&
	       natsOptions_SetErrorHandler(options, write_note, wire->notes) == NATS_OK &&
	       natsOptions_SetClosedCB(options, hear_close, wire->notes) == NATS_OK;
}

int pr_nats_wire_begin(natsOptions *options, struct pr_nats_wire **ret, struct pr_err *err)
{
	struct pr_nats_wire *wire = calloc(1, sizeof(*wire));
	int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct pr_nats_notes *notes = begin_notes();

	if (!wire || done_fd < 0 || !notes) {
		if (done_fd >= 0)
			close(done_fd);
		if (notes)
			stop_reading(notes);
		free(wire);
		natsOptions_Destroy(options);
		return pr_err_nomem(err);
	}
	wire->options = options;
	wire->done_fd = done_fd;
	wire->notes = notes;
	wire->notes_fd = notes->fd;
	wire->begun_us = pr_mono_us();
	atomic_store(&wire->owners, 2);
	if (!set_callbacks(wire, options) || pthread_create(&wire->maker, NULL, make, wire) != 0) {
		atomic_store(&wire->owners, 1);
		let_go(wire);
		return pr_err_nomem(err);
	}
	*ret = wire;
	return POSTROOM_OK;
}
