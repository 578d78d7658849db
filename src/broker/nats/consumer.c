/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The durable consumer from which the source pulls.
 *
 * 1. It is created if it does not exist, starting at the stream's first message; the stream is not
 *    created.
 * 2. A consumer that could lose events, or that cannot be pulled from, is refused.
 * 3. Unacknowledged messages are redelivered after the lease, also by an existing consumer.
 */
#include "broker/nats/source.h"

#include <inttypes.h>
#include <stdio.h>

/* Codes of JetStream's errors. */
#define ERROR_NO_CONSUMER 10014
#define ERROR_NO_STREAM 10059

#define MAX_ACK_PENDING 100000
#define NS_PER_MS 1000000

static int refuse_consumer(struct pr_nats_source *nats, const char *why, struct pr_err *err)
{
	const char *stream = nats->source.url.path;

	return pr_err_set(
		err, POSTROOM_UNAVAILABLE,
		"the consumer \"%s\" of the stream \"%s\" %s; name another with ?durable=, "
		"or remove it, and consume creates a new one: nats consumer rm %s %s",
		nats->name, stream, why, stream, nats->name);
}

static int check_consumer(struct pr_nats_source *nats, struct pr_span config, struct pr_err *err)
{
	if (pr_nats_member(config, "\"deliver_subject\"").data)
		return refuse_consumer(nats, "is a push consumer and cannot be pulled from", err);
	if (!pr_json_is(pr_nats_member(config, "\"ack_policy\""), "\"explicit\""))
		return refuse_consumer(
			nats, "does not require acknowledgements (ack_policy explicit)", err);
	if (pr_nats_number(config, "\"max_deliver\"") > 0)
		return refuse_consumer(
			nats, "drops messages after too many deliveries (max_deliver)", err);
	if (pr_json_is(pr_nats_member(config, "\"headers_only\""), "true"))
		return refuse_consumer(nats, "omits the content of messages (headers_only)", err);
	return POSTROOM_OK;
}

static int explain_consumer(struct pr_nats_source *nats, const struct pr_nats_answer *answer,
			    struct pr_err *err)
{
	const char *stream = nats->source.url.path;

	if (answer->error == ERROR_NO_STREAM)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "there is no stream \"%s\"; create it with: nats stream add %s "
				  "--subjects SUBJECT",
				  stream, stream);
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the consumer \"%s\" of the stream \"%s\": %s",
			  nats->name, stream,
			  answer->text->len > 0 ? pr_buf_text(answer->text)
						: "the answer is not from JetStream");
}

struct reply {
	natsMsg *msg; /* NULL: none; the answer points into it */
	struct pr_nats_answer answer;
};

/* An error is an answer, too. */
static int request(struct pr_nats_source *nats, const char *verb, const char *content,
		   const struct pr_nats_wait *wait, struct reply *reply, struct pr_err *err)
{
	char subject[sizeof("$JS.API.CONSUMER.DURABLE.CREATE..") + 2 * PR_NATS_NAME_MAX];
	int status;

	snprintf(subject, sizeof(subject), "$JS.API.CONSUMER.%s.%s.%s", verb, nats->source.url.path,
		 nats->name);
	status = pr_nats_request(nats, subject, content, err);
	if (status == POSTROOM_OK)
		status = pr_nats_await(nats, wait, &reply->msg, err);
	if (status < 0)
		return status;
	if (!reply->msg)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "no answer for the stream \"%s\": JetStream is disabled there, "
				  "or not ready yet",
				  nats->source.url.path);
	pr_nats_read_reply(reply->msg, &reply->answer);
	return POSTROOM_OK;
}

static void put_own_settings(struct pr_nats_source *nats, struct pr_buf *out)
{
	pr_buf_puts(out, ",\"durable_name\":");
	pr_json_put_string(out, nats->name);
	pr_buf_printf(out,
		      ",\"deliver_policy\":\"all\",\"ack_policy\":\"explicit\","
		      "\"replay_policy\":\"instant\",\"max_deliver\":-1,"
		      "\"max_ack_pending\":%d",
		      MAX_ACK_PENDING);
}

static void put_other_settings(struct pr_span config, struct pr_buf *out)
{
	struct pr_json_members walk = pr_json_members(config);
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		if (pr_json_is(name, "\"ack_wait\""))
			continue;
		pr_buf_printf(out, ",%.*s:%.*s", (int)name.len, name.data, (int)value.len,
			      value.data);
	}
}

/* config is the current configuration; NULL: there is no consumer yet. */
static int make_consumer(struct pr_nats_source *nats, const struct pr_span *config,
			 const struct pr_nats_wait *wait, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf content = { 0 };
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct reply reply = { .answer.text = &text };
	int status;

	pr_buf_puts(&content, "{\"stream_name\":");
	pr_json_put_string(&content, nats->source.url.path);
	pr_buf_printf(&content, ",\"config\":{\"ack_wait\":%" PRId64,
		      nats->source.lease_ms * NS_PER_MS);
	if (config)
		put_other_settings(*config, &content);
	else
		put_own_settings(nats, &content);
	pr_buf_puts(&content, "}}");
	if (content.failed)
		return pr_err_nomem(err);
	status = request(nats, "DURABLE.CREATE", content.data, wait, &reply, err);
	if (status == POSTROOM_OK && (!reply.answer.json.data || reply.answer.code != 0))
		status = explain_consumer(nats, &reply.answer, err);
	pr_nats_discard_later(&nats->conn, reply.msg);
	return status;
}

int pr_nats_make_ready(struct pr_nats_source *nats, const struct pr_nats_wait *wait,
		       struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct reply reply = { .answer.text = &text };
	struct pr_span config;
	int64_t most;
	int status = request(nats, "INFO", "", wait, &reply, err);

	if (status < 0)
		return status;
	config = pr_nats_member(reply.answer.json, "\"config\"");
	most = pr_nats_number(config, "\"max_ack_pending\"");
	nats->most = most > 0 ? (size_t)most : MAX_ACK_PENDING;
	if (reply.answer.error == ERROR_NO_CONSUMER)
		status = make_consumer(nats, NULL, wait, err);
	else if (!config.data)
		status = explain_consumer(nats, &reply.answer, err);
	else if (check_consumer(nats, config, err) < 0)
		status = err->status;
	else if (pr_nats_number(config, "\"ack_wait\"") != nats->source.lease_ms * NS_PER_MS)
		status = make_consumer(nats, &config, wait, err);
	pr_nats_discard_later(&nats->conn, reply.msg);
	nats->ready = status == POSTROOM_OK;
	return status;
}
