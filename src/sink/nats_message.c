/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A message can not choose a subject that the template does not leave to it: what
 *    has a meaning to NATS is escaped in its values, '$' included, with which the
 *    server's own subjects begin.
 * 2. No header of a message can say anything to the server: those named Nats-…
 *    are ours alone, and there are no line breaks in any.
 * 3. The names of the headers are those that http: has.
 */
#include "sink/nats_message.h"

#include "base/json.h"
#include "sink/cloudevents.h"
#include "sink/target.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* With reply and lengths it must fit into the 4096 bytes that the server takes for a line. */
#define SUBJECT_MAX 3500

static bool may_be_subject(char c)
{
	return (unsigned char)c > ' ' && c != 0x7f && c != '*' && c != '>';
}

static bool stands_for_itself(char c)
{
	return may_be_subject(c) && c != '$' && c != '%';
}

static const struct pr_target_rule subject_rule = { .text = may_be_subject,
						    .value = stands_for_itself,
						    .escape = '%',
						    .tokens = true,
						    .max = SUBJECT_MAX };

void pr_nats_pen_release(struct pr_nats_pen *pen)
{
	pr_buf_release(&pen->subject);
	pr_buf_release(&pen->name);
	pr_buf_release(&pen->value);
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
				  "the subject \"%s\" has an empty part before, between or behind "
				  "its dots",
				  template);
	return POSTROOM_OK;
}

int pr_nats_subject(struct pr_nats_pen *pen, const char *template, const postroom_delivery *item,
		    struct pr_err *err)
{
	pr_buf_reset(&pen->subject);
	if (pr_target_put(&pen->subject, template, &subject_rule, item, err) < 0)
		return err->status;
	if (has_empty_token(pen->subject.data))
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
	return pr_err_set(err, POSTROOM_INVALID, "NATS can not hold the message: %s",
			  natsStatus_GetText(status));
}

static bool is_name(const char *name)
{
	for (const char *at = name; *at; at++) {
		if (*at <= ' ' || *at >= 0x7f || *at == ':')
			return false;
	}
	return name[0] != '\0';
}

static bool is_value(const char *value)
{
	for (; *value; value++) {
		if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
			return false;
	}
	return true;
}

/* Whoever reads with nats.c 3.4 takes the next header for the value of such a one. */
static bool is_blank(const char *value)
{
	return value[strspn(value, " \t")] == '\0';
}

bool pr_nats_is_ours(const char *name)
{
	return strncasecmp(name, "nats-", 5) == 0 || strncasecmp(name, "ce-", 3) == 0 ||
	       strcasecmp(name, "content-type") == 0 || strcasecmp(name, "idempotency-key") == 0;
}

static int refuse(const char *what, const char *name, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_INVALID,
			  "%s \"%.100s\" can not be sent by NATS: control characters are not "
			  "allowed, and in names no spaces, colons or anything beyond ASCII",
			  what, name);
}

static int set_message_headers(struct pr_nats_pen *pen, natsMsg *msg, const char *headers,
			       struct pr_err *err)
{
	struct pr_json_members walk = pr_json_members((struct pr_span){ headers, strlen(headers) });
	struct pr_span name, value;
	natsStatus status = NATS_OK;

	while (status == NATS_OK && pr_json_next(&walk, &name, &value)) {
		pr_buf_reset(&pen->name);
		pr_buf_reset(&pen->value);
		pr_json_decode(name, &pen->name);
		pr_json_decode(value, &pen->value);
		if (pen->name.failed || pen->value.failed)
			return pr_err_nomem(err);
		if (!is_name(pr_buf_text(&pen->name)) || !is_value(pr_buf_text(&pen->value)))
			return refuse("header", pr_buf_text(&pen->name), err);
		if (!pr_nats_is_ours(pen->name.data) && !is_blank(pr_buf_text(&pen->value)))
			status = natsMsgHeader_Set(msg, pen->name.data, pr_buf_text(&pen->value));
	}
	return status_of(status, err);
}

static natsStatus set_attributes(struct pr_nats_pen *pen, natsMsg *msg,
				 const postroom_delivery *item)
{
	struct pr_ce ce;
	natsStatus status = NATS_OK;

	/* The source is in pen->name for as long as ce is read. */
	pr_ce_fill(&ce, item, NULL, &pen->name);
	if (pen->name.failed)
		return NATS_NO_MEMORY;
	for (size_t i = 0; i < ce.count && status == NATS_OK; i++) {
		char name[32];

		snprintf(name, sizeof(name), "ce-%s", ce.attributes[i].name);
		pr_buf_reset(&pen->value);
		pr_ce_put_header_value(&pen->value, ce.attributes[i].value);
		status = pen->value.failed ? NATS_NO_MEMORY
					   : natsMsgHeader_Set(msg, name, pr_buf_text(&pen->value));
	}
	return status;
}

static natsStatus set_own_headers(struct pr_nats_pen *pen, natsMsg *msg,
				  const postroom_delivery *item)
{
	natsStatus status = natsMsgHeader_Set(msg, "Nats-Msg-Id", item->id);

	if (status == NATS_OK)
		status = set_attributes(pen, msg, item);
	if (status == NATS_OK)
		status = natsMsgHeader_Set(msg, "Content-Type", item->content_type);
	if (status == NATS_OK) {
		pr_buf_reset(&pen->value);
		pr_ce_put_header_value(&pen->value, item->dedupe_key ? item->dedupe_key : item->id);
		status = pen->value.failed ? NATS_NO_MEMORY
					   : natsMsgHeader_Set(msg, "Idempotency-Key",
							       pr_buf_text(&pen->value));
	}
	return status;
}

int pr_nats_compose(struct pr_nats_pen *pen, const postroom_delivery *item, const char *reply,
		    natsMsg **ret, struct pr_err *err)
{
	const char *content = item->body ? item->body : item->payload;
	size_t len = item->body ? item->body_len : item->payload_len;
	natsMsg *msg = NULL;
	int status;

	if (!is_value(item->content_type))
		return refuse("content_type", item->content_type, err);
	if (len > INT_MAX)
		return status_of(NATS_MAX_PAYLOAD, err);
	status = status_of(natsMsg_Create(&msg, pen->subject.data, reply, content, (int)len), err);
	if (status == POSTROOM_OK)
		status = status_of(set_own_headers(pen, msg, item), err);
	if (status == POSTROOM_OK)
		status = set_message_headers(pen, msg, item->headers, err);
	if (status < 0) {
		natsMsg_Destroy(msg);
		return status;
	}
	*ret = msg;
	return POSTROOM_OK;
}
