/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures by Standard Webhooks (version v1, HMAC-SHA256): who knows the secret
 * can tell that a message is ours, is as we sent it, and when that was.
 */
#ifndef PR_SINK_WEBHOOK_H
#define PR_SINK_WEBHOOK_H

#include "base/buf.h"
#include "base/param.h"

#include <stdint.h>

#define PR_WEBHOOK_SECRETS 8

/* One signature for each secret, so that receivers can change theirs one after the other. */
struct pr_webhook {
	struct pr_buf keys[PR_WEBHOOK_SECRETS];
	size_t count; /* 0: nothing is signed */
	void *mac;    /* OpenSSL's, reused */
};

/*
 * secrets: base64, "whsec_" before it or not, several in one with commas between.
 * On failure it is left released. The secret never appears in errors.
 */
int pr_webhook_init(struct pr_webhook *webhook, const struct pr_param_list *secrets,
		    struct pr_err *err);
void pr_webhook_release(struct pr_webhook *webhook);

/* Appends the value of webhook-signature. False when there is no memory. */
bool pr_webhook_sign(const struct pr_webhook *webhook, const char *id, int64_t seconds,
		     const void *content, size_t len, struct pr_buf *out);

#endif
