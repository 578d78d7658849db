/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A message cannot choose a subject beyond its template: characters with a meaning to NATS are
 *    escaped in its values. That includes '$', with which the server's own subjects begin.
 * 2. No header of a message controls the server: only the sink sets those named Nats-…, and no
 *    header has a line break. Attributes and the id are percent-encoded, and pr_attributes_check()
 *    has passed the rest.
 * 3. The headers have the same names as those of http:.
 */
#include "broker/nats/message.h"

#include "base/json.h"
#include "sink/attributes.h"
#include "sink/cloudevents.h"
#include "sink/sink.h"
#include "sink/target.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/*
 * With the reply subject and lengths it must fit into a line, which the server limits to 4096
 * bytes.
 */
#define SUBJECT_MAX 3500

static bool may_be_subject(char c)
{
	return (unsigned char)c > ' ' && c != 0x7f && c != '*' && c != '>';
}

static bool is_unescaped(char c)
{
	return may_be_subject(c) && c != '$' && c != '%';
}

static const struct pr_target_rule subject_rule = { .text = may_be_subject,
						    .value = is_unescaped,
						    .escape = '%',
						    .tokens = true,
						    .max = SUBJECT_MAX };

void pr_nats_message_buffers_release(struct pr_nats_message_buffers *buffers)
{
	pr_buf_release(&buffers->subject);
	pr_buf_release(&buffers->name);
	pr_buf_release(&buffers->value);
	pr_buf_release(&buffers->text);
}

static bool has_empty_token(const char *subject)
{
	return subject[0] == '.' || strstr(subject, "..") ||
	       (subject[0] && subject[strlen(subject) - 1] == '.');
}

int pr_nats_check_subject(const char *template, struct pr_err *err)
{
	if (pr_target_check(template, &subject_rule, err) < 0)
		return err->status;
	if (has_empty_token(template))
		return pr_err_set(err, POSTROOM_SINK,
				  "the subject \"%s\" has an empty part; separate its parts by "
				  "single dots",
				  template);
	return POSTROOM_OK;
}

int pr_nats_subject(struct pr_nats_message_buffers *buffers, const char *template,
		    const postroom_delivery *item, struct pr_err *err)
{
	pr_buf_reset(&buffers->subject);
	if (pr_target_put(&buffers->subject, template, &subject_rule, item, err) < 0)
		return err->status;
	if (has_empty_token(buffers->subject.data))
		return pr_err_set(err, POSTROOM_INVALID,
				  "a part of the subject \"%s\" is empty for this message: it has "
				  "no such value",
				  template);
	return POSTROOM_OK;
}

static int status_of(natsStatus status, struct pr_err *err)
{
	if (status == NATS_OK)
		return POSTROOM_OK;
	if (status == NATS_NO_MEMORY)
		return pr_err_nomem(err);
	return pr_err_set(err, POSTROOM_INVALID, "NATS cannot carry the message: %s",
			  natsStatus_GetText(status));
}

static bool is_name(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (name[i] <= ' ' || name[i] >= 0x7f || name[i] == ':')
			return false;
	}
	return len > 0;
}

static const struct pr_protocol protocol = {
	.name = "NATS",
	.content_type = pr_is_header_value,
	.header_name = is_name,
	.header_value = pr_is_header_value,
	.rule = "control characters are not allowed, and in names no spaces, colons or anything "
		"beyond ASCII",
};

bool pr_nats_is_ours(const char *name)
{
	return strncasecmp(name, "nats-", 5) == 0 || strncasecmp(name, "ce-", 3) == 0 ||
	       strcasecmp(name, "content-type") == 0 || strcasecmp(name, "idempotency-key") == 0;
}

/* Sets a header to a value that has been checked, without the blanks around it. */
static natsStatus set_value(struct pr_nats_message_buffers *buffers, natsMsg *msg, const char *name,
			    const char *text, size_t len)
{
	struct pr_span value = pr_trim_value(text, len);

	pr_buf_reset(&buffers->value);
	pr_buf_append(&buffers->value, value.data, value.len);
	/* sink.c 3.4 reads the next header as the value of an empty one. */
	if (value.len == 0)
		return NATS_OK;
	return buffers->value.failed ? NATS_NO_MEMORY
				     : natsMsgHeader_Set(msg, name, pr_buf_text(&buffers->value));
}

/* Sets a header to an attribute, percent-encoded. */
static natsStatus set_encoded(struct pr_nats_message_buffers *buffers, natsMsg *msg,
			      const char *name, const char *text)
{
	pr_buf_reset(&buffers->value);
	pr_ce_put_header_value(&buffers->value, text);
	return buffers->value.failed ? NATS_NO_MEMORY
				     : natsMsgHeader_Set(msg, name, pr_buf_text(&buffers->value));
}

static natsStatus set_message_headers(struct pr_nats_message_buffers *buffers, natsMsg *msg,
				      const char *headers)
{
	struct pr_json_members walk = pr_json_members((struct pr_span){ headers, strlen(headers) });
	struct pr_span name, value;
	natsStatus status = NATS_OK;

	while (status == NATS_OK && pr_json_next(&walk, &name, &value)) {
		pr_buf_reset(&buffers->name);
		pr_buf_reset(&buffers->text);
		pr_json_decode(name, &buffers->name);
		pr_json_decode(value, &buffers->text);
		if (buffers->name.failed || buffers->text.failed)
			return NATS_NO_MEMORY;
		if (!pr_nats_is_ours(buffers->name.data))
			status = set_value(buffers, msg, buffers->name.data,
					   pr_buf_text(&buffers->text), buffers->text.len);
	}
	return status;
}

static natsStatus set_attributes(struct pr_nats_message_buffers *buffers, natsMsg *msg,
				 const postroom_delivery *item)
{
	struct pr_ce ce;
	natsStatus status = NATS_OK;

	/* ce refers to the source in buffers->name. */
	pr_ce_fill(&ce, item, NULL, &buffers->name);
	if (buffers->name.failed)
		return NATS_NO_MEMORY;
	for (size_t i = 0; i < ce.count && status == NATS_OK; i++) {
		char name[32];

		snprintf(name, sizeof(name), "ce-%s", ce.attributes[i].name);
		status = set_encoded(buffers, msg, name, ce.attributes[i].value);
	}
	return status;
}

static natsStatus set_own_headers(struct pr_nats_message_buffers *buffers, natsMsg *msg,
				  const postroom_delivery *item)
{
	natsStatus status = set_encoded(buffers, msg, "Nats-Msg-Id", item->id);

	if (status == NATS_OK)
		status = set_attributes(buffers, msg, item);
	if (status == NATS_OK)
		status = set_value(buffers, msg, "Content-Type", item->content_type,
				   strlen(item->content_type));
	if (status == NATS_OK)
		status = set_encoded(buffers, msg, "Idempotency-Key",
				     item->dedupe_key ? item->dedupe_key : item->id);
	return status;
}

int pr_nats_compose(struct pr_nats_message_buffers *buffers, const postroom_delivery *item,
		    const char *reply, natsMsg **ret, struct pr_err *err)
{
	const char *content = item->body ? item->body : item->payload;
	size_t len = item->body ? item->body_len : item->payload_len;
	natsMsg *msg = NULL;
	int status;

	if (pr_attributes_check(item, &protocol, &buffers->value, err) < 0)
		return err->status;
	if (len > INT_MAX)
		return status_of(NATS_MAX_PAYLOAD, err);
	status = status_of(natsMsg_Create(&msg, buffers->subject.data, reply, content, (int)len),
			   err);
	if (status == POSTROOM_OK)
		status = status_of(set_own_headers(buffers, msg, item), err);
	if (status == POSTROOM_OK)
		status = status_of(set_message_headers(buffers, msg, item->headers), err);
	if (status < 0) {
		natsMsg_Destroy(msg);
		return status;
	}
	*ret = msg;
	return POSTROOM_OK;
}
