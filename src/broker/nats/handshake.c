/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The connecting thread uses only its handshake. The last owner frees it.
 * 2. Once it is done, our poll() is the library's event loop: no thread reads, writes or
 *    reconnects, and the library works only while it is called.
 * 3. The handshake and the library share the errors. The library may add one after the handshake
 *    was released. Its last callback reports that the connection is closed.
 * 4. The library's thread and abandoned connecting threads may run past the end of main(), so
 *    nothing that they use is released at exit.
 * 5. Ending a connection never waits. Unsent data is lost, and was never reported as sent.
 */
#include "broker/nats/handshake.h"

#include "base/time.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Called before OpenSSL is used: it would otherwise clean up at exit, while those threads run. */
__attribute__((constructor)) static void keep_openssl(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

struct pr_nats_errors {
	pthread_mutex_t lock; /* protects the following members */
	struct pr_buf text;
	int fd; /* an eventfd; -1: no thread reads errors any more */
	_Atomic int owners;
};

static struct pr_nats_errors *begin_errors(void)
{
	struct pr_nats_errors *errors = calloc(1, sizeof(*errors));

	if (!errors)
		return NULL;
	errors->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (errors->fd < 0) {
		free(errors);
		return NULL;
	}
	pthread_mutex_init(&errors->lock, NULL);
	atomic_store(&errors->owners, 1);
	return errors;
}

static void end_errors(struct pr_nats_errors *errors)
{
	if (atomic_fetch_sub(&errors->owners, 1) > 1)
		return;
	pthread_mutex_destroy(&errors->lock);
	pr_buf_release(&errors->text);
	free(errors);
}

/* Drops later errors of the library, and closes their descriptor. */
static void stop_reading(struct pr_nats_errors *errors)
{
	pthread_mutex_lock(&errors->lock);
	close(errors->fd);
	errors->fd = -1;
	pthread_mutex_unlock(&errors->lock);
	end_errors(errors);
}

static void write_error(natsConnection *connection, natsSubscription *subscription,
			natsStatus status, void *context)
{
	struct pr_nats_errors *errors = context;
	const char *error = nats_GetLastError(NULL);

	(void)connection;
	(void)subscription;
	if (status != NATS_NOT_PERMITTED || !error)
		return;
	pthread_mutex_lock(&errors->lock);
	if (errors->fd >= 0) {
		pr_buf_printf(&errors->text, "%s\n", error);
		eventfd_write(errors->fd, 1);
	}
	pthread_mutex_unlock(&errors->lock);
}

static void on_close(natsConnection *connection, void *context)
{
	(void)connection;
	end_errors(context);
}

void pr_nats_handshake_read_errors(struct pr_nats_handshake *handshake, struct pr_buf *out)
{
	struct pr_nats_errors *errors = handshake->errors;
	eventfd_t count;

	pthread_mutex_lock(&errors->lock);
	if (errors->text.len > 0) {
		pr_buf_puts(out, errors->text.data);
		pr_buf_reset(&errors->text);
		eventfd_read(errors->fd, &count);
	}
	pthread_mutex_unlock(&errors->lock);
}

static natsStatus attach(void **ret_data, void *context, natsConnection *connection, natsSock fd)
{
	struct pr_nats_handshake *handshake = context;

	(void)connection;
	/* Commands of exec: must not inherit the descriptor. */
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	handshake->fd = fd;
	*ret_data = handshake;
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
	struct pr_nats_handshake *handshake = data;

	handshake->writing = on;
	return NATS_OK;
}

static natsStatus detach(void *data)
{
	(void)data;
	return NATS_OK;
}

static void close_connection(struct pr_nats_handshake *handshake)
{
	/* Otherwise the library would try for half a second to send the rest. */
	if (!natsConnection_IsClosed(handshake->connection))
		shutdown(handshake->fd, SHUT_RDWR);
	while (!natsConnection_IsClosed(handshake->connection))
		natsConnection_ProcessReadEvent(handshake->connection);
	natsConnection_Destroy(handshake->connection);
#ifdef PR_NATS_CLOSES_BY_EVENT
	natsConnection_ProcessCloseEvent(&handshake->fd);
#endif
}

static void release_handshake(struct pr_nats_handshake *handshake)
{
	if (atomic_fetch_sub(&handshake->owners, 1) > 1)
		return;
	if (handshake->connection)
		close_connection(handshake);
	stop_reading(handshake->errors);
	natsOptions_Destroy(handshake->options);
	close(handshake->done_fd);
	free(handshake);
}

void pr_nats_handshake_end(struct pr_nats_handshake *handshake)
{
	if (!handshake)
		return;
	/* If it is done, its thread ends immediately. */
	if (atomic_load(&handshake->done))
		pthread_join(handshake->maker, NULL);
	else
		pthread_detach(handshake->maker);
	release_handshake(handshake);
}

static void *make(void *context)
{
	struct pr_nats_handshake *handshake = context;
	const char *error;

	handshake->status = natsConnection_Connect(&handshake->connection, handshake->options);
	if (handshake->status == NATS_OK) {
		atomic_fetch_add(&handshake->errors->owners, 1);
		handshake->status = natsConnection_HasHeaderSupport(handshake->connection);
	}
	if (handshake->status != NATS_OK) {
		error = nats_GetLastError(NULL);
		snprintf(handshake->error, sizeof(handshake->error), "%s",
			 error ? error : natsStatus_GetText(handshake->status));
	}
	atomic_store(&handshake->done, true);
	eventfd_write(handshake->done_fd, 1);
	release_handshake(handshake);
	nats_ReleaseThreadMemory();
	return NULL;
}

static bool set_callbacks(struct pr_nats_handshake *handshake, natsOptions *options)
{
	return natsOptions_SetEventLoop(options, handshake, attach, want_to_read, want_to_write,
					detach) == NATS_OK &&
	       natsOptions_SetErrorHandler(options, write_error, handshake->errors) == NATS_OK &&
	       natsOptions_SetClosedCB(options, on_close, handshake->errors) == NATS_OK;
}

int pr_nats_handshake_begin(natsOptions *options, struct pr_nats_handshake **ret,
			    struct pr_err *err)
{
	struct pr_nats_handshake *handshake = calloc(1, sizeof(*handshake));
	int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct pr_nats_errors *errors = begin_errors();

	if (!handshake || done_fd < 0 || !errors) {
		if (done_fd >= 0)
			close(done_fd);
		if (errors)
			stop_reading(errors);
		free(handshake);
		natsOptions_Destroy(options);
		return pr_err_nomem(err);
	}
	handshake->options = options;
	handshake->done_fd = done_fd;
	handshake->errors = errors;
	handshake->errors_fd = errors->fd;
	handshake->begun_us = pr_mono_us();
	atomic_store(&handshake->owners, 2);
	if (!set_callbacks(handshake, options) ||
	    pthread_create(&handshake->maker, NULL, make, handshake) != 0) {
		atomic_store(&handshake->owners, 1);
		release_handshake(handshake);
		return pr_err_nomem(err);
	}
	*ret = handshake;
	return POSTROOM_OK;
}
