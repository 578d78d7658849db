/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures by Standard Webhooks (version v1, HMAC-SHA256): with the secret, a receiver can verify
 * the origin, the content and the time of a message.
 */
#ifndef PR_SINK_WEBHOOK_H
#define PR_SINK_WEBHOOK_H

#include "base/json.h"
#include "base/param.h"

#include <stdint.h>

#define PR_WEBHOOK_SECRETS 8

/* One signature for each secret, so that receivers can replace theirs one by one. */
struct pr_webhook {
	struct pr_buf keys[PR_WEBHOOK_SECRETS];
	size_t count; /* 0: nothing is signed */
	void *mac;    /* OpenSSL context, reused */
};

/*
 * secrets: base64, with or without "whsec_", several separated by commas. On failure it is left
 * released. The secret never appears in errors.
 */
int pr_webhook_init(struct pr_webhook *webhook, const struct pr_param_list *secrets,
		    struct pr_err *err);
void pr_webhook_release(struct pr_webhook *webhook);

/* Appends the value of webhook-signature, for an id of any length. False when there is no memory. */
bool pr_webhook_sign(const struct pr_webhook *webhook, const char *id, int64_t seconds,
		     struct pr_span content, struct pr_buf *out);

#endif
