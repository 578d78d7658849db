/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The signed text is "ID.SECONDS.CONTENT", with the content byte for byte as sent.
 * 2. Secrets are wiped before they are freed, and appear in no error.
 */
#include "sink/webhook.h"

#include "base/json.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "whsec_"
#define DIGEST_SIZE 32

static int add_secret(struct pr_webhook *webhook, struct pr_span text, struct pr_err *err)
{
	struct pr_buf *key = &webhook->keys[webhook->count];

	if (webhook->count == PR_WEBHOOK_SECRETS)
		return pr_err_set(err, POSTROOM_SINK, "secret: at most %d can be given",
				  PR_WEBHOOK_SECRETS);
	webhook->count++;
	if (text.len >= strlen(PREFIX) && memcmp(text.data, PREFIX, strlen(PREFIX)) == 0) {
		text.data += strlen(PREFIX);
		text.len -= strlen(PREFIX);
	}
	/* Allocated in one piece: growing would leave copies behind. */
	if (!pr_buf_reserve(key, text.len))
		return pr_err_nomem(err);
	if (!pr_base64_decode(text, key) || key->len == 0)
		return pr_err_set(err, POSTROOM_SINK,
				  "secret: it is written " PREFIX "… followed by base64, as "
				  "`echo " PREFIX "$(openssl rand -base64 24)` makes one");
	return POSTROOM_OK;
}

static int add_secrets(struct pr_webhook *webhook, const char *text, struct pr_err *err)
{
	for (;;) {
		size_t len = strcspn(text, ",");
		int status = add_secret(webhook, (struct pr_span){ text, len }, err);

		if (status < 0 || !text[len])
			return status;
		text += len + 1;
	}
}

static EVP_MAC_CTX *new_mac(void)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){ "SHA256" }, 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *mac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;

	EVP_MAC_free(hmac);
	if (mac && !EVP_MAC_CTX_set_params(mac, params)) {
		EVP_MAC_CTX_free(mac);
		mac = NULL;
	}
	return mac;
}

int pr_webhook_init(struct pr_webhook *webhook, const struct pr_param_list *secrets,
		    struct pr_err *err)
{
	int status = POSTROOM_OK;

	*webhook = (struct pr_webhook){ 0 };
	for (size_t i = 0; i < secrets->count && status == POSTROOM_OK; i++)
		status = add_secrets(webhook, secrets->items[i], err);
	if (status == POSTROOM_OK && webhook->count > 0) {
		webhook->mac = new_mac();
		if (!webhook->mac)
			status = pr_err_set(err, POSTROOM_SINK,
					    "secret: this system's OpenSSL has no HMAC-SHA256");
	}
	if (status < 0)
		pr_webhook_release(webhook);
	return status;
}

void pr_webhook_release(struct pr_webhook *webhook)
{
	for (size_t i = 0; i < webhook->count; i++) {
		if (webhook->keys[i].data)
			OPENSSL_cleanse(webhook->keys[i].data, webhook->keys[i].cap);
		pr_buf_release(&webhook->keys[i]);
	}
	EVP_MAC_CTX_free(webhook->mac);
	*webhook = (struct pr_webhook){ 0 };
}

static bool update(EVP_MAC_CTX *mac, struct pr_span part)
{
	return EVP_MAC_update(mac, (const unsigned char *)part.data, part.len);
}

/* The parts are signed one after the other, without copying them. */
static bool put_mac(EVP_MAC_CTX *mac, const struct pr_buf *key, const struct pr_span parts[3],
		    struct pr_buf *out)
{
	unsigned char digest[DIGEST_SIZE], text[DIGEST_SIZE * 2];
	size_t len;

	if (!EVP_MAC_init(mac, (const unsigned char *)key->data, key->len, NULL) ||
	    !update(mac, parts[0]) || !update(mac, parts[1]) || !update(mac, parts[2]) ||
	    !EVP_MAC_final(mac, digest, &len, sizeof(digest)))
		return false;
	EVP_EncodeBlock(text, digest, (int)len);
	pr_buf_printf(out, "v1,%s", text);
	return true;
}

bool pr_webhook_sign(const struct pr_webhook *webhook, const char *id, int64_t seconds,
		     struct pr_span content, struct pr_buf *out)
{
	char time[32];
	int len = snprintf(time, sizeof(time), ".%lld.", (long long)seconds);
	const struct pr_span parts[3] = { { id, strlen(id) }, { time, (size_t)len }, content };

	for (size_t i = 0; i < webhook->count; i++) {
		if (i > 0)
			pr_buf_putc(out, ' ');
		if (!put_mac(webhook->mac, &webhook->keys[i], parts, out))
			return false;
	}
	return !out->failed;
}
