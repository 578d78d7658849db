/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. No call waits.
 * 2. With TLS, nothing is sent before the server has proved its name.
 * 3. After pr_stream_recv_available(), no data is buffered inside of TLS: the descriptor becomes
 *    readable for everything that follows.
 */
#include "net/stream.h"
#include "net/password.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 65536
#define ENOUGH ((size_t)1024 * 1024) /* received bytes to process before more are received */

static const char *tls_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());

	return reason ? reason : "no reason given";
}

static int refuse_file(const char *setting, const char *path, const char *content,
		       struct pr_err *err)
{
	if (access(path, R_OK) < 0)
		return pr_err_errno(err, POSTROOM_SINK, "%s: cannot read \"%s\"", setting, path);
	return pr_err_set(err, POSTROOM_SINK, "%s: \"%s\" contains no usable %s in PEM: %s",
			  setting, path, content, tls_reason());
}

static int load_files(SSL_CTX *context, const struct pr_tls_files *files, struct pr_err *err)
{
	if (!files->ca && SSL_CTX_set_default_verify_paths(context) != 1)
		return pr_err_nomem(err);
	if (files->ca && SSL_CTX_load_verify_locations(context, files->ca, NULL) != 1)
		return refuse_file("ca", files->ca, "certificate", err);
	if (files->cert && SSL_CTX_use_certificate_chain_file(context, files->cert) != 1)
		return refuse_file("cert", files->cert, "certificate", err);
	if (files->key && SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1)
		return refuse_file("key", files->key, "key", err);
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
		return pr_err_set(err, POSTROOM_SINK, "%s: cert and key must be given together",
				  secure);
	*ret = NULL;
	if (!pr_tls_wanted(url, schemes))
		return POSTROOM_OK;
	context = SSL_CTX_new(TLS_client_method());
	if (!context)
		return pr_err_nomem(err);
	ERR_clear_error();
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_default_passwd_cb(context, pr_refuse_password_prompt);
	/* The send buffer moves when it grows. */
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

int pr_stream_open(struct pr_stream *net_stream, const struct pr_flight *flight,
		   struct pr_address *to, SSL_CTX *tls, int64_t until_us, struct pr_err *err)
{
	int fd;
	int status = pr_flight_dial(flight, to, until_us, &fd, err);

	if (status != POSTROOM_OK)
		return status;
	*net_stream = (struct pr_stream){ .fd = fd };
	if (!tls)
		return POSTROOM_OK;
	net_stream->ssl = SSL_new(tls);
	if (!net_stream->ssl || !expect_host(net_stream->ssl, to->host) ||
	    SSL_set_fd(net_stream->ssl, fd) != 1) {
		pr_stream_close(net_stream);
		return pr_err_nomem(err);
	}
	SSL_set_connect_state(net_stream->ssl);
	return POSTROOM_OK;
}

void pr_stream_close(struct pr_stream *net_stream)
{
	SSL_free(net_stream->ssl);
	close(net_stream->fd);
	*net_stream = (struct pr_stream){ .fd = -1 };
}

/* 0: not now. */
static ssize_t explain_tls(struct pr_stream *net_stream, int result, struct pr_err *err)
{
	long trust = SSL_get_verify_result(net_stream->ssl);

	switch (SSL_get_error(net_stream->ssl, result)) {
	case SSL_ERROR_WANT_WRITE:
		net_stream->wants_room = true;
		return 0;
	case SSL_ERROR_WANT_READ:
		return 0;
	case SSL_ERROR_SSL:
		/* Later errors say less than the first one. */
		if (!*net_stream->fault)
			snprintf(net_stream->fault, sizeof(net_stream->fault), "%s",
				 trust != X509_V_OK ? X509_verify_cert_error_string(trust)
						    : tls_reason());
		break;
	default:
		break;
	}
	if (*net_stream->fault)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "TLS: %s", net_stream->fault);
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the server closed the connection");
}

ssize_t pr_stream_send(struct pr_stream *net_stream, const char *data, size_t len,
		       struct pr_err *err)
{
	size_t done = 0;
	ssize_t n;

	net_stream->wants_room = false;
	if (net_stream->ssl) {
		ERR_clear_error();
		n = SSL_write_ex(net_stream->ssl, data, len, &done);
		return n == 1 ? (ssize_t)done : explain_tls(net_stream, (int)n, err);
	}
	n = send(net_stream->fd, data, len, MSG_NOSIGNAL);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		net_stream->wants_room = true;
		return 0;
	}
	return n >= 0 ? n : pr_err_set(err, POSTROOM_UNAVAILABLE, "%s", strerror(errno));
}

ssize_t pr_stream_flush(struct pr_stream *net_stream, struct pr_buf *out, size_t *at,
			struct pr_err *err)
{
	size_t before = *at;
	ssize_t sent, n = 1;

	while (*at < out->len && n > 0) {
		n = pr_stream_send(net_stream, out->data + *at, out->len - *at, err);
		*at += n > 0 ? (size_t)n : 0;
	}
	if (n < 0)
		return n;
	sent = (ssize_t)(*at - before);
	if (*at == out->len) {
		*at = 0;
		pr_buf_trim(out);
	}
	return sent;
}

static ssize_t take_some(struct pr_stream *net_stream, char *data, struct pr_err *err)
{
	size_t got = 0;
	ssize_t n;

	if (net_stream->ssl) {
		ERR_clear_error();
		n = SSL_read_ex(net_stream->ssl, data, CHUNK, &got);
		return n == 1 ? (ssize_t)got : explain_tls(net_stream, (int)n, err);
	}
	n = recv(net_stream->fd, data, CHUNK, 0);
	if (n > 0)
		return n;
	if (n == 0)
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "the server closed the connection");
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s", strerror(errno));
}

ssize_t pr_stream_recv_available(struct pr_stream *net_stream, struct pr_buf *out,
				 struct pr_err *err)
{
	ssize_t n, total = 0;

	net_stream->wants_room = false;
	do {
		char *at = pr_buf_reserve(out, CHUNK);

		if (!at)
			return pr_err_nomem(err);
		n = take_some(net_stream, at, err);
		if (n > 0)
			out->len += (size_t)n;
		total += n > 0 ? n : 0;
	} while (n > 0 &&
		 (out->len < ENOUGH || (net_stream->ssl && SSL_pending(net_stream->ssl) > 0)));
	/* Data before the end is processed first; the next call detects the end again. */
	return n < 0 && total == 0 ? n : total;
}
