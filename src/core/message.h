/* SPDX-License-Identifier: Apache-2.0 */
/* An outgoing message: checked, then converted to the columns of the tables. */
#ifndef PR_CORE_MESSAGE_H
#define PR_CORE_MESSAGE_H

#include "base/err.h"
#include "base/json.h"
#include "base/uuid.h"

/*
 * Checks the rules of E4, E5 and E8. The error begins with the field's name. No other code decides
 * which messages are valid; the constraints of the tables apply the same rules to plain INSERTs.
 */
int pr_message_check(const postroom_message *message, size_t max_payload, struct pr_err *err);

/*
 * The same rules for other input. A text has 1 to max bytes of UTF-8. A name has no control
 * characters either, since it is part of URLs, subjects and log lines. Both accept NULL.
 */
int pr_text_check(const char *field, const char *text, size_t max, struct pr_err *err);
int pr_name_check(const char *field, const char *text, size_t max, struct pr_err *err);
/* Checks for one JSON value of at most max bytes. The payload has its own function below. */
int pr_value_check(const char *field, const char *json, size_t len, size_t max, struct pr_err *err);
int pr_payload_check(const char *payload, size_t len, size_t max, struct pr_err *err);

/* The column values. Strings point into the message or into the struct itself. */
struct pr_prepared {
	const char *ns;
	const char *topic;
	const char *key;	/* NULL if none, like the fields below */
	const char *tenant_id;	/* lower case */
	const char *dedupe_key; /* an idempotency key is prefixed with the tenant */
	const char *correlation_id;
	const char *content_type;
	const char *headers;
	struct pr_span payload;
	struct pr_span body;   /* data NULL if none */
	int64_t due_offset_us; /* next_attempt_at - created_at: delay minus head start */
	char tenant_text[PR_UUID_SIZE];
	char dedupe_text[POSTROOM_DEDUPE_KEY_MAX + 1];
};

/* Requires a message that has been checked. */
void pr_message_prepare(const postroom_message *message, struct pr_prepared *ret);

/* The dedupe_key of the receipt, as written. */
void pr_receipt_set_key(postroom_receipt *receipt, const struct pr_prepared *prepared);

/*
 * True if headers is a JSON object whose values are all strings. Headers of an outbox message
 * contain no control characters; events from other producers may.
 */
bool pr_headers_valid(const char *text, size_t len);

#endif
