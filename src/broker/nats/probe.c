/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's checks, by JetStream's API. No stream receives a message. */
#include "base/json.h"
#include "base/time.h"
#include "broker/nats/connection.h"
#include "broker/nats/reply.h"
#include "sink/sink.h"
#include "sink/target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct probe {
	struct pr_nats_connection *conn;
	const struct pr_flight *flight;
	struct pr_checkup *checkup;
	unsigned asked;
};

/* Reads the next message if it is the answer to the last request. */
static bool read_answer(struct probe *probe, const char *reply, struct pr_buf *out,
			bool *ret_no_responder)
{
	natsMsg *msg = NULL;
	natsStatus got = natsSubscription_NextMsg(&msg, probe->conn->answers, 0);
	bool mine = false;

	*ret_no_responder = got == NATS_NO_RESPONDERS;
	if (got == NATS_OK && strcmp(natsMsg_GetSubject(msg), reply) == 0) {
		pr_buf_append(out, natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg));
		mine = true;
	}
	natsMsg_Destroy(msg);
	return mine || *ret_no_responder;
}

/* The server's answer as an object. data NULL: it failed. */
static struct pr_span ask(struct probe *probe, const char *subject, const char *question,
			  struct pr_buf *out, struct pr_err *err)
{
	struct pr_nats_connection *conn = probe->conn;
	struct pr_span none = { NULL, 0 };
	char reply[PR_NATS_INBOX_SIZE + 32];
	bool no_responder = false;

	snprintf(reply, sizeof(reply), "%s.probe.%u", conn->inbox, probe->asked++);
	pr_buf_reset(out);
	if (natsConnection_PublishRequest(conn->connection, subject, reply, question,
					  (int)strlen(question)) != NATS_OK) {
		pr_err_set(err, POSTROOM_UNAVAILABLE, "the connection is lost");
		return none;
	}
	while (!read_answer(probe, reply, out, &no_responder)) {
		if (pr_nats_transfer(conn, probe->flight, probe->flight->begin_until_us, err) < 0)
			return none;
	}
	if (no_responder)
		pr_err_set(err, POSTROOM_UNAVAILABLE, "JetStream is not enabled for this account");
	else if (!pr_json_check(pr_buf_text(out), out->len, NULL))
		pr_err_set(err, POSTROOM_UNAVAILABLE, "JetStream's answer is not JSON");
	else
		return (struct pr_span){ out->data, out->len };
	return none;
}

static void judge_stream(struct probe *probe, const char *subject, const char *stream)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	char question[400];
	struct pr_err err = { 0 };
	struct pr_span config = { NULL, 0 };

	snprintf(question, sizeof(question), "$JS.API.STREAM.INFO.%s", stream);
	/* The server sent the name. A part of a subject cannot contain these characters. */
	if (stream[strcspn(stream, " \t\r\n.*>\\")] == '\0')
		config = pr_nats_member(ask(probe, question, "", &text, &err), "\"config\"");
	if (!config.data) {
		pr_found_skipped(
			probe->checkup, "The stream's settings cannot be read.",
			"The administrator of NATS allows the user $JS.API.STREAM.INFO.>.");
		return;
	}
	if (pr_json_is(pr_nats_member(config, "\"storage\""), "\"memory\"")) {
		pr_found(probe->checkup, PR_LEVEL_WARNING, "Stream \"%s\" is kept in memory",
			 stream);
		pr_found_detail(probe->checkup,
				"Messages are marked as delivered, but a restart of the "
				"server loses them.");
		pr_found_advice(
			probe->checkup,
			"The administrator of NATS removes the stream once its messages are "
			"consumed, and creates one with file storage by the command.");
		pr_found_command(probe->checkup, "nats stream add --storage file --subjects ");
		pr_found_command_word(probe->checkup, subject);
		pr_found_command(probe->checkup, " NAME");
	}
	if (pr_json_is(pr_nats_member(config, "\"no_ack\""), "true")) {
		pr_found(probe->checkup, PR_LEVEL_PROBLEM, "Stream \"%s\" acknowledges nothing",
			 stream);
		pr_found_detail(probe->checkup,
				"A message counts as delivered when the stream acknowledges "
				"it, so every message is sent repeatedly.");
		pr_found_advice(probe->checkup, "The administrator of NATS runs the command.");
		pr_found_command(probe->checkup, "nats stream edit --ack ");
		pr_found_command_word(probe->checkup, stream);
	}
}

/* Reads the first name in ["…"]. False: there is none. */
static bool read_stream(struct pr_span streams, char *out, size_t size)
{
	const char *begin = streams.data ? memchr(streams.data, '"', streams.len) : NULL;
	const char *end;

	if (!begin)
		return false;
	begin++;
	end = memchr(begin, '"', streams.len - (size_t)(begin - streams.data));
	return end && snprintf(out, size, "%.*s", (int)(end - begin), begin) > 0;
}

static void judge_subject(struct probe *probe, const char *subject)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 }, question = { 0 };
	struct pr_err err = { 0 };
	struct pr_span answer;
	char stream[300];

	pr_buf_puts(&question, "{\"subject\":");
	pr_json_put_string(&question, subject);
	pr_buf_putc(&question, '}');
	answer = ask(probe, "$JS.API.STREAM.NAMES", pr_buf_text(&question), &text, &err);
	if (!answer.data) {
		pr_found_unreachable(probe->checkup, err.text);
	} else if (read_stream(pr_nats_member(answer, "\"streams\""), stream, sizeof(stream))) {
		judge_stream(probe, subject, stream);
	} else {
		pr_found(probe->checkup, PR_LEVEL_PROBLEM, "No stream has the subject \"%s\"",
			 subject);
		pr_found_detail(probe->checkup,
				"No stream would acknowledge messages, so they wait in the "
				"outbox.");
		pr_found_advice(probe->checkup,
				"The administrator of NATS runs the command, or the "
				"operator corrects the URL of the sink.");
		pr_found_command(probe->checkup, "nats stream add --storage file --subjects ");
		pr_found_command_word(probe->checkup, subject);
		pr_found_command(probe->checkup, " NAME");
	}
}

void pr_nats_probe(struct pr_nats_connection *conn, const char *subject,
		   const struct pr_flight *flight, struct pr_checkup *checkup)
{
	struct probe probe = { .conn = conn, .flight = flight, .checkup = checkup };
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_err err = { 0 };

	if (pr_nats_connect(conn, flight, flight->begin_until_us, &err) < 0) {
		pr_found_unreachable(checkup, err.text);
		return;
	}
	if (subject[0] && !pr_target_is_template(subject))
		judge_subject(&probe, subject);
	else if (!ask(&probe, "$JS.API.INFO", "", &text, &err).data)
		pr_found_unreachable(checkup, err.text);
	pr_nats_disconnect(conn);
}
