/* SPDX-License-Identifier: Apache-2.0 */
/* A message on its way in: checked, then brought into the form the tables hold. */
#ifndef PR_CORE_MESSAGE_H
#define PR_CORE_MESSAGE_H

#include "base/err.h"
#include "base/json.h"
#include "base/uuid.h"

/*
 * Everything E4, E5 and E8 demand. The error begins with the field's name. No
 * other code decides what a message may be; the tables' constraints say the
 * same for plain INSERTs.
 */
int pr_message_check(const postroom_message *message, size_t max_payload, struct pr_err *err);

/*
 * The same rules for what else comes in. A text has 1 to max bytes of UTF-8; a
 * name has no control characters either, since it ends up in URLs, subjects
 * and log lines. NULL passes both.
 */
int pr_text_check(const char *field, const char *text, size_t max, struct pr_err *err);
int pr_name_check(const char *field, const char *text, size_t max, struct pr_err *err);
/* One JSON value of at most max bytes; the payload's own is the next. */
int pr_value_check(const char *field, const char *json, size_t len, size_t max, struct pr_err *err);
int pr_payload_check(const char *payload, size_t len, size_t max, struct pr_err *err);

/* What is written. Strings point into the message or into the struct itself. */
struct pr_prepared {
	const char *ns;
	const char *topic;
	const char *key;	    /* NULL if none, as all that follow may be */
	const char *tenant_id;	    /* lower case */
	const char *dedupe_key;	    /* with the tenant before an idempotency key */
	const char *correlation_id;
	const char *content_type;
	const char *headers;
	struct pr_span payload;
	struct pr_span body;	    /* data NULL if none */
	int64_t due_offset_us;	    /* next_attempt_at - created_at: delay minus head start */
	char tenant_text[PR_UUID_SIZE];
	char dedupe_text[POSTROOM_DEDUPE_KEY_MAX + 1];
};

/* Only for a message that has been checked. */
void pr_message_prepare(const postroom_message *message, struct pr_prepared *ret);

/* The receipt's dedupe_key, as written. */
void pr_receipt_set_key(postroom_receipt *receipt, const struct pr_prepared *prepared);

/* True if headers is a JSON object whose values are all strings. */
bool pr_headers_valid(const char *text, size_t len);

#endif
