/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Settings that libcurl would refuse with every request are refused at open: a wrong
 *    setting is not an outage.
 * 2. No error repeats a secret: neither a proxy's address nor a key's password.
 */
#include "net/password.h"
#include "sink/http.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static int check_file(const char *setting, const char *path, const struct pr_http *http,
		      struct pr_err *err)
{
	if (!path)
		return POSTROOM_OK;
	if (strcmp(http->sink.url.scheme, "https") != 0)
		return pr_err_set(err, POSTROOM_SINK, "%s: it is for https:// only", setting);
	if (access(path, R_OK) < 0)
		return pr_err_errno(err, POSTROOM_SINK, "%s: cannot read \"%s\"", setting, path);
	return POSTROOM_OK;
}

static int refuse_certificate(const char *setting, const char *path, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_SINK,
			  "%s: \"%s\" contains no certificate in PEM, which begins with "
			  "-----BEGIN CERTIFICATE-----",
			  setting, path);
}

static int check_authorities(const char *path, struct pr_err *err)
{
	X509_STORE *store = X509_STORE_new();
	bool loaded;

	if (!store)
		return pr_err_nomem(err);
	loaded = X509_STORE_load_locations(store, path, NULL) == 1;
	X509_STORE_free(store);
	return loaded ? POSTROOM_OK : refuse_certificate("ca", path, err);
}

static X509 *read_certificate(const char *path)
{
	FILE *file = fopen(path, "re");
	X509 *certificate = file ? PEM_read_X509_AUX(file, NULL, pr_refuse_password_prompt, NULL)
				 : NULL;

	if (file)
		fclose(file);
	return certificate;
}

static EVP_PKEY *read_key(const char *path, const char *password)
{
	FILE *file = fopen(path, "re");
	EVP_PKEY *key = NULL;

	/* Without a callback, OpenSSL uses the last argument as the password. */
	if (file)
		key = PEM_read_PrivateKey(file, NULL, NULL, (void *)(password ? password : ""));
	if (file)
		fclose(file);
	return key;
}

static int check_key(const struct pr_http *http, X509 *certificate, struct pr_err *err)
{
	const char *path = http->key ? http->key : http->cert;
	EVP_PKEY *key = read_key(path, http->key_password);
	bool belongs = key && X509_check_private_key(certificate, key) == 1;

	EVP_PKEY_free(key);
	if (!key)
		return pr_err_set(
			err, POSTROOM_SINK,
			"key: \"%s\" contains no key in PEM, or one that key_password= does "
			"not unlock",
			path);
	if (!belongs)
		return pr_err_set(err, POSTROOM_SINK,
				  "key: the key in \"%s\" does not match the certificate in \"%s\"",
				  path, http->cert);
	return POSTROOM_OK;
}

static int check_own(const struct pr_http *http, struct pr_err *err)
{
	X509 *certificate = read_certificate(http->cert);
	int status;

	if (!certificate)
		return refuse_certificate("cert", http->cert, err);
	status = check_key(http, certificate, err);
	X509_free(certificate);
	return status;
}

static int check_tls(const struct pr_http *http, struct pr_err *err)
{
	int status = POSTROOM_OK;

	if (check_file("ca", http->ca, http, err) < 0 ||
	    check_file("cert", http->cert, http, err) < 0 ||
	    check_file("key", http->key, http, err) < 0)
		return err->status;
	if (http->key && !http->cert)
		return pr_err_set(err, POSTROOM_SINK, "key: it needs the certificate in cert=");
	if (http->ca)
		status = check_authorities(http->ca, err);
	if (status == POSTROOM_OK && http->cert)
		status = check_own(http, err);
	ERR_clear_error();
	return status;
}

static bool is_proxy_scheme(const char *scheme)
{
	static const char *const known[] = { "http",	"socks",  "socks4",
					     "socks4a", "socks5", "socks5h" };

	if (strcasecmp(scheme, "https") == 0)
		return curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_HTTPS_PROXY;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (strcasecmp(scheme, known[i]) == 0)
			return true;
	}
	return false;
}

/* Parsed as libcurl does. Its own error contains the whole address, which would reach log and
 * last_error. */
static int check_proxy(const char *proxy, struct pr_err *err)
{
	CURLU *parsed = curl_url();
	char *scheme = NULL;
	bool good;

	if (!parsed)
		return pr_err_nomem(err);
	good = curl_url_set(parsed, CURLUPART_URL, proxy,
			    CURLU_NON_SUPPORT_SCHEME | CURLU_GUESS_SCHEME) == CURLUE_OK &&
	       curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	       is_proxy_scheme(scheme);
	curl_free(scheme);
	curl_url_cleanup(parsed);
	if (!good)
		return pr_err_set(
			err, POSTROOM_SINK,
			"proxy: must be the address of an http, https, socks4, socks4a, socks5 or "
			"socks5h proxy, as in proxy=http://proxy.example.test:3128");
	return POSTROOM_OK;
}

int pr_http_check(const struct pr_http *http, struct pr_err *err)
{
	if (check_tls(http, err) < 0)
		return err->status;
	/* An empty proxy is none. */
	if (http->proxy && http->proxy[0] && check_proxy(http->proxy, err) < 0)
		return err->status;
	/* The proxy connects and resolves names, so we cannot check the address. */
	if (http->deny_private && http->proxy)
		return pr_err_set(err, POSTROOM_SINK,
				  "deny_private: it cannot be enforced with a proxy; have the "
				  "proxy refuse such addresses, and omit this setting");
	return POSTROOM_OK;
}
