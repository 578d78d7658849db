/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. No call waits.
 * 2. With TLS nothing is sent before the server has proved its name.
 * 3. After pr_wire_take() nothing waits inside of TLS: the descriptor tells of
 *    everything that is still to come.
 */
#include "sink/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 65536
#define ENOUGH ((size_t)1024 * 1024) /* to be looked at before more is taken in */

static const char *tls_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());

	return reason ? reason : "no reason given";
}

static int refuse_file(const char *setting, const char *path, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_SINK, "%s: the file \"%s\" can not be used: %s", setting,
			  path, tls_reason());
}

static int load_files(SSL_CTX *context, const struct pr_tls_files *files, struct pr_err *err)
{
	if (files->ca ? SSL_CTX_load_verify_locations(context, files->ca, NULL) != 1
		      : SSL_CTX_set_default_verify_paths(context) != 1)
		return refuse_file("ca", files->ca ? files->ca : "(the system's)", err);
	if (files->cert && SSL_CTX_use_certificate_chain_file(context, files->cert) != 1)
		return refuse_file("cert", files->cert, err);
	if (files->key && SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1)
		return refuse_file("key", files->key, err);
	return POSTROOM_OK;
}

bool pr_tls_wanted(const struct pr_url *url, const char *const *schemes)
{
	return strcmp(url->scheme, schemes[1]) == 0;
}

int pr_tls_open(const struct pr_url *url, const char *const *schemes,
		const struct pr_tls_files *files, SSL_CTX **ret, struct pr_err *err)
{
	const char *plain = schemes[0], *secure = schemes[1];
	SSL_CTX *context;

	if (!pr_tls_wanted(url, schemes) && (files->ca || files->cert || files->key))
		return pr_err_set(err, POSTROOM_SINK,
				  "%s: ca, cert and key are for %s://, which has TLS", plain,
				  secure);
	if (!files->cert != !files->key)
		return pr_err_set(err, POSTROOM_SINK, "%s: cert and key go together", secure);
	*ret = NULL;
	if (!pr_tls_wanted(url, schemes))
		return POSTROOM_OK;
	context = SSL_CTX_new(TLS_client_method());
	if (!context)
		return pr_err_nomem(err);
	ERR_clear_error();
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_default_passwd_cb(context, pr_sink_ask_nobody);
	/* The buffer of what is to be sent moves when it grows. */
	SSL_CTX_set_mode(context,
			 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	if (load_files(context, files, err) < 0) {
		SSL_CTX_free(context);
		return pr_err_prefix(err, "%s", secure);
	}
	*ret = context;
	return POSTROOM_OK;
}

static bool expect_host(SSL *ssl, const char *host)
{
	struct in6_addr address;

	if (inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
	return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int pr_wire_open(struct pr_wire *wire, int fd, SSL_CTX *tls, const char *host, struct pr_err *err)
{
	*wire = (struct pr_wire){ .fd = fd };
	if (!tls)
		return POSTROOM_OK;
	wire->ssl = SSL_new(tls);
	if (!wire->ssl || !expect_host(wire->ssl, host) || SSL_set_fd(wire->ssl, fd) != 1) {
		pr_wire_close(wire);
		return pr_err_nomem(err);
	}
	SSL_set_connect_state(wire->ssl);
	return POSTROOM_OK;
}

void pr_wire_close(struct pr_wire *wire)
{
	SSL_free(wire->ssl);
	close(wire->fd);
	*wire = (struct pr_wire){ .fd = -1 };
}

/* 0: not now. */
static ssize_t explain_tls(struct pr_wire *wire, int result, struct pr_err *err)
{
	long trust = SSL_get_verify_result(wire->ssl);

	switch (SSL_get_error(wire->ssl, result)) {
	case SSL_ERROR_WANT_WRITE:
		wire->wants_room = true;
		return 0;
	case SSL_ERROR_WANT_READ:
		return 0;
	case SSL_ERROR_SSL:
		/* What comes after the first fault says less. */
		if (!*wire->fault)
			snprintf(wire->fault, sizeof(wire->fault), "%s",
				 trust != X509_V_OK ? X509_verify_cert_error_string(trust)
						    : tls_reason());
		break;
	default:
		break;
	}
	if (*wire->fault)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "TLS: %s", wire->fault);
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the server has closed it");
}

ssize_t pr_wire_send(struct pr_wire *wire, const char *data, size_t len, struct pr_err *err)
{
	size_t done = 0;
	ssize_t n;

	wire->wants_room = false;
	if (wire->ssl) {
		ERR_clear_error();
		n = SSL_write_ex(wire->ssl, data, len, &done);
		return n == 1 ? (ssize_t)done : explain_tls(wire, (int)n, err);
	}
	n = send(wire->fd, data, len, MSG_NOSIGNAL);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		wire->wants_room = true;
		return 0;
	}
	return n >= 0 ? n : pr_err_set(err, POSTROOM_UNAVAILABLE, "%s", strerror(errno));
}

ssize_t pr_wire_flush(struct pr_wire *wire, struct pr_buf *out, size_t *at, struct pr_err *err)
{
	size_t before = *at;
	ssize_t gone, n = 1;

	while (*at < out->len && n > 0) {
		n = pr_wire_send(wire, out->data + *at, out->len - *at, err);
		*at += n > 0 ? (size_t)n : 0;
	}
	if (n < 0)
		return n;
	gone = (ssize_t)(*at - before);
	if (*at == out->len) {
		*at = 0;
		pr_sink_trim(out);
	}
	return gone;
}

static ssize_t take_some(struct pr_wire *wire, char *data, struct pr_err *err)
{
	size_t got = 0;
	ssize_t n;

	if (wire->ssl) {
		ERR_clear_error();
		n = SSL_read_ex(wire->ssl, data, CHUNK, &got);
		return n == 1 ? (ssize_t)got : explain_tls(wire, (int)n, err);
	}
	n = recv(wire->fd, data, CHUNK, 0);
	if (n > 0)
		return n;
	if (n == 0)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the server has closed it");
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s", strerror(errno));
}

ssize_t pr_wire_take(struct pr_wire *wire, struct pr_buf *out, struct pr_err *err)
{
	ssize_t n, total = 0;

	wire->wants_room = false;
	do {
		char *at = pr_buf_reserve(out, CHUNK);

		if (!at)
			return pr_err_nomem(err);
		n = take_some(wire, at, err);
		if (n > 0)
			out->len += (size_t)n;
		total += n > 0 ? n : 0;
	} while (n > 0 && (out->len < ENOUGH || (wire->ssl && SSL_pending(wire->ssl) > 0)));
	/* What came before the end is heard first; the end is there the next time too. */
	return n < 0 && total == 0 ? n : total;
}
