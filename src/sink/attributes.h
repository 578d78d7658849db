/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that decides whether a receiver's protocol can carry the attributes of a
 * message: id, topic, namespace, key, tenant, dedupe key, correlation id, content type and
 * headers. The tables have rules of their own, but a sink relies on none of them.
 *
 * A protocol with header lines carries attributes percent-encoded (pr_ce_put_header_value()),
 * and content types and headers as they are. Names of targets are made by pr_target_put().
 * A message that does not fit is REJECTED with a reason. No attribute is changed silently.
 */
#ifndef PR_SINK_ATTRIBUTES_H
#define PR_SINK_ATTRIBUTES_H

#include "base/err.h"
#include "base/json.h"

#include "core/delivery.h"

#include <stdbool.h>

/* The texts that a protocol carries unchanged. A NULL function accepts every text. */
struct pr_protocol {
	const char *name; /* for the reason of a rejection */
	bool (*content_type)(const char *text, size_t len);
	bool (*header_name)(const char *text, size_t len);
	bool (*header_value)(const char *text, size_t len);
	const char *rule; /* of these functions, for the reason */
	bool json;	  /* the payload becomes a part of a JSON text */
};

/*
 * POSTROOM_INVALID with the reason if the protocol cannot carry the message: a text that is
 * not UTF-8, headers that are not a JSON object of strings, a payload that would break the
 * JSON around it, or one of the rules above.
 * scratch is the caller's, so that its memory serves many messages.
 */
int pr_attributes_check(const postroom_delivery *item, const struct pr_protocol *protocol,
			struct pr_buf *scratch, struct pr_err *err);

/* A token of HTTP: letters, digits and !#$%&'*+-.^_`|~, at least one. */
bool pr_is_token(const char *text, size_t len);
/* Text for a header line: no control characters except tabs. */
bool pr_is_header_value(const char *text, size_t len);

/* The value of a header line without the blanks around it, which are not part of it. */
struct pr_span pr_trim_value(const char *text, size_t len);

#endif
