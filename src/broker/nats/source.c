/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nats: the messages of a JetStream stream, pulled through a durable consumer.
 *
 * 1. Only ack() acknowledges a message. The server confirms the last acknowledgement of a call, and
 *    processes them in order.
 * 2. Messages that were read and not acknowledged are returned before more is read, and at the end;
 *    otherwise they are redelivered after the lease.
 * 3. Late messages of an abandoned read belong to the next read, in order.
 * 4. A server that sends nothing for the timeout of a message is unreachable.
 */
#include "broker/nats/source.h"

#include "base/time.h"
#include "sink/sink.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACK "+ACK"
#define NAK "-NAK"
#define IN_PROGRESS "+WPI"

/* How long to wait after a message for the next one, or for the status that there is none. */
#define LINGER_US 100000
#define SHORTEST_US 1000	/* shortest wait that a server is asked for */
#define FIRST_SHORTEST_US 50000 /* the same of a new connection */
#define TRIES 2			/* of a read; in between, the consumer is created again */

static int fail_source(natsStatus status, struct pr_err *err)
{
	if (status == NATS_NO_MEMORY)
		return pr_err_nomem(err);
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the connection is lost: %s",
			  natsStatus_GetText(status));
}

static void put_inbox(const struct pr_nats_source *nats, char *out, size_t size)
{
	snprintf(out, size, "%s.%" PRIu64, nats->conn.inbox, nats->calls);
}

int pr_nats_request(struct pr_nats_source *nats, const char *subject, const char *content,
		    struct pr_err *err)
{
	char inbox[PR_NATS_INBOX_SIZE + 24];
	natsStatus status;

	nats->calls++;
	put_inbox(nats, inbox, sizeof(inbox));
	status = natsConnection_PublishRequestString(nats->conn.connection, subject, inbox,
						     content);
	return status == NATS_OK ? POSTROOM_OK : fail_source(status, err);
}

bool pr_nats_is_reply(const struct pr_nats_source *nats, natsMsg *msg)
{
	char inbox[PR_NATS_INBOX_SIZE + 24];

	put_inbox(nats, inbox, sizeof(inbox));
	return strcmp(natsMsg_GetSubject(msg), inbox) == 0;
}

int pr_nats_check_errors(struct pr_nats_source *nats, struct pr_err *err)
{
	struct pr_buf *errors = &nats->errors;

	pr_buf_reset(errors);
	pr_nats_handshake_read_errors(nats->conn.handshake, errors);
	if (errors->failed)
		return pr_err_nomem(err);
	if (errors->len == 0)
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "%.*s; the user must be allowed to publish to $JS.API.CONSUMER.> and "
			  "$JS.ACK.>, and to subscribe to _INBOX.>",
			  (int)strcspn(errors->data, "\n"), errors->data);
}

/* Appends to the late messages. Without memory, it is redelivered after the lease. */
static void defer_event(struct pr_nats_source *nats, natsMsg *msg)
{
	if (nats->late_count == nats->late_capacity) {
		size_t capacity = nats->late_capacity ? nats->late_capacity * 2 : 64;
		natsMsg **more = reallocarray(nats->late, capacity, sizeof(natsMsg *));

		if (!more) {
			pr_nats_discard_later(&nats->conn, msg);
			return;
		}
		nats->late = more;
		nats->late_capacity = capacity;
	}
	nats->late[nats->late_count++] = msg;
}

/* Returns the first late message. NULL: there is none. */
static natsMsg *next_late(struct pr_nats_source *nats)
{
	if (nats->late_first < nats->late_count)
		return nats->late[nats->late_first++];
	nats->late_first = nats->late_count = 0;
	return NULL;
}

/* Puts back the message that was just read, late or not. */
static void return_event(struct pr_nats_source *nats, natsMsg *msg)
{
	if (nats->late_first > 0)
		nats->late[--nats->late_first] = msg;
	else
		defer_event(nats, msg);
}

int pr_nats_await(struct pr_nats_source *nats, const struct pr_nats_wait *wait, natsMsg **ret,
		  struct pr_err *err)
{
	int status = POSTROOM_OK;

	while (status == POSTROOM_OK) {
		natsMsg *msg = NULL;
		natsStatus got = natsSubscription_NextMsg(&msg, nats->conn.answers, 0);

		if (got == NATS_NO_RESPONDERS || (got == NATS_OK && pr_nats_is_reply(nats, msg))) {
			*ret = msg;
			return POSTROOM_OK;
		}
		if (got == NATS_OK) {
			if (pr_nats_is_event(natsMsg_GetReply(msg)))
				defer_event(nats, msg);
			else
				pr_nats_discard_later(&nats->conn, msg);
			continue;
		}
		status = pr_nats_check_errors(nats, err);
		if (status == POSTROOM_OK && !wait->in_grace &&
		    pr_stop_requested(wait->flight->stop))
			status = pr_err_set(err, POSTROOM_STOPPED, "stopped before the answer");
		if (status == POSTROOM_OK)
			status = pr_nats_transfer(&nats->conn, wait->flight, wait->until_us, err);
	}
	return status;
}

/* Sends a reply for every message that read() returned last. */
static natsStatus send_acks(struct pr_nats_source *nats, const char *word, const char *inbox)
{
	const struct pr_buf *given = &nats->given;
	natsStatus status = NATS_OK;

	for (size_t at = 0, next; at < given->len && status == NATS_OK; at = next) {
		const char *reply = given->data + at;

		next = at + strlen(reply) + 1;
		if (next == given->len && inbox)
			status = natsConnection_PublishRequestString(nats->conn.connection, reply,
								     inbox, word);
		else
			status = natsConnection_PublishString(nats->conn.connection, reply, word);
		pr_nats_push(&nats->conn);
	}
	return status;
}

/* The same, and waits until the server has processed all of them. */
static int send_acks_and_wait(struct pr_nats_source *nats, const char *word,
			      const struct pr_nats_wait *wait, struct pr_err *err)
{
	char inbox[PR_NATS_INBOX_SIZE + 24];
	natsStatus sent;
	natsMsg *msg = NULL;
	int status;

	nats->calls++;
	put_inbox(nats, inbox, sizeof(inbox));
	sent = send_acks(nats, word, inbox);
	status = sent == NATS_OK ? pr_nats_await(nats, wait, &msg, err) : fail_source(sent, err);
	if (status < 0)
		return status;
	nats->ready = msg != NULL;
	pr_nats_discard_later(&nats->conn, msg);
	return POSTROOM_OK;
}

/* Adds the late messages to those that will be returned to the server. */
static void return_late(struct pr_nats_source *nats)
{
	for (natsMsg *msg; (msg = next_late(nats)) != NULL;
	     pr_nats_discard_later(&nats->conn, msg)) {
		const char *reply = natsMsg_GetReply(msg);

		pr_buf_append(&nats->given, reply, strlen(reply) + 1);
	}
}

/* Waits, because the next request would otherwise get later messages first. */
static int return_unread(struct pr_nats_source *nats, const struct pr_nats_wait *wait,
			 struct pr_err *err)
{
	int status;

	do {
		return_late(nats);
		status = send_acks_and_wait(nats, NAK, wait, err);
		if (status == POSTROOM_OK)
			pr_buf_reset(&nats->given);
	} while (status == POSTROOM_OK && nats->late_count > 0);
	return status;
}

static int acknowledge(struct pr_nats_source *nats, const char *word,
		       const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_nats_wait wait = { .flight = flight,
				     .until_us = pr_mono_us() + flight->timeout_ms * 1000,
				     .in_grace = true };
	int status;

	if (nats->given.len == 0)
		return POSTROOM_OK;
	status = pr_nats_connect(&nats->conn, flight, wait.until_us, err);
	if (status < 0)
		return status;
	status = send_acks_and_wait(nats, word, &wait, err);
	if (status < 0)
		pr_nats_disconnect(&nats->conn);
	else if (!nats->ready)
		status = pr_err_set(err, POSTROOM_UNAVAILABLE,
				    "the consumer \"%s\" of the stream \"%s\" was deleted; each "
				    "message read through it is redelivered",
				    nats->name, nats->source.url.path);
	pr_nats_discard(&nats->conn);
	return status;
}

static int ack(struct pr_source *source, const struct pr_events *events,
	       const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_nats_source *nats = (struct pr_nats_source *)source;
	int status = acknowledge(nats, ACK, flight, err);

	(void)events;
	if (status == POSTROOM_OK)
		pr_buf_reset(&nats->given);
	return status;
}

static int extend_lease(struct pr_source *source, const struct pr_events *events,
			const struct pr_flight *flight, struct pr_err *err)
{
	(void)events;
	return acknowledge((struct pr_nats_source *)source, IN_PROGRESS, flight, err);
}

/* A call of read(), and its progress. */
struct reading {
	struct pr_events *events;
	size_t limit, count, bytes;
	size_t used; /* bytes of the arena at the beginning */
	int64_t until_us;
	int64_t last_us; /* when the last event came */
	bool first;	 /* the first read of its connection */
	bool plain;	 /* one message is requested, of any size */
	bool ended;	 /* the server sends no more for this request */
	bool full;
	bool over;    /* the time is over */
	bool refused; /* the reason is in nats->text */
};

static int ask_for_more(struct pr_nats_source *nats, struct reading *reading,
			const struct pr_flight *flight, struct pr_err *err)
{
	char subject[sizeof("$JS.API.CONSUMER.MSG.NEXT..") + 2 * PR_NATS_NAME_MAX];
	char content[200];
	int64_t left_us = reading->until_us - pr_mono_us();
	int64_t shortest_us = reading->first ? FIRST_SHORTEST_US : SHORTEST_US;

	/* The server answers at least this often, so a missing answer is an outage. */
	if (left_us > flight->timeout_ms * 1000 / 2)
		left_us = flight->timeout_ms * 1000 / 2;
	if (left_us < shortest_us)
		left_us = shortest_us;
	if (nats->asked_us == 0)
		nats->asked_us = pr_mono_us();
	snprintf(subject, sizeof(subject), "$JS.API.CONSUMER.MSG.NEXT.%s.%s", nats->source.url.path,
		 nats->name);
	/* The server waits for the first message, and then sends all that it has. */
	if (reading->plain)
		snprintf(content, sizeof(content), "{\"batch\":1,\"expires\":%" PRId64 "}",
			 left_us * 1000);
	else
		snprintf(content, sizeof(content),
			 "{\"batch\":%zu,\"max_bytes\":%zu,\"expires\":%" PRId64
			 ",\"no_wait\":true}",
			 reading->limit, nats->source.bytes, left_us * 1000);
	reading->ended = false;
	return pr_nats_request(nats, subject, content, err);
}

/* Reads the status that ends a request: no more messages, or a failure. */
static void read_status(struct pr_nats_source *nats, struct reading *reading, natsMsg *msg)
{
	const char *code = NULL, *text = NULL;

	if (natsMsgHeader_Get(msg, "Status", &code) != NATS_OK)
		code = "";
	if (natsMsgHeader_Get(msg, "Description", &text) != NATS_OK)
		text = "no reason given";
	reading->ended = true;
	if (strcmp(code, "404") == 0 || strcmp(code, "408") == 0 ||
	    strncmp(text, "Message Size Exceeds", strlen("Message Size Exceeds")) == 0)
		return;
	reading->refused = true;
	pr_buf_reset(&nats->text);
	pr_buf_printf(&nats->text, "%s %s", code, text);
}

static int add_received(struct pr_nats_source *nats, struct reading *reading, natsMsg *msg,
			struct pr_err *err)
{
	const char *reply = natsMsg_GetReply(msg);
	size_t len = (size_t)natsMsg_GetDataLength(msg);
	int status;

	if (reading->count > 0 && reading->bytes + len > nats->source.bytes) {
		return_event(nats, msg);
		reading->full = true;
		return POSTROOM_OK;
	}
	status = pr_nats_add_event(nats, msg, reading->events, err);
	if (status == POSTROOM_OK) {
		pr_buf_append(&nats->given, reply, strlen(reply) + 1);
		if (nats->given.failed)
			status = pr_err_nomem(err);
	}
	pr_nats_discard_later(&nats->conn, msg);
	reading->bytes += len;
	reading->last_us = pr_mono_us();
	/* The arena counts headers as well. */
	reading->full = ++reading->count == reading->limit ||
			reading->events->arena.used - reading->used >= nats->source.bytes;
	return status;
}

static int read_available(struct pr_nats_source *nats, struct reading *reading, struct pr_err *err)
{
	int status = POSTROOM_OK;

	while (status == POSTROOM_OK && !reading->full) {
		natsMsg *msg = next_late(nats);
		natsStatus got = NATS_OK;

		if (!msg)
			got = natsSubscription_NextMsg(&msg, nats->conn.answers, 0);
		if (got == NATS_OK || got == NATS_NO_RESPONDERS)
			nats->asked_us = 0;
		if (got == NATS_NO_RESPONDERS) {
			reading->refused = reading->ended = true;
			pr_buf_reset(&nats->text);
			pr_buf_puts(&nats->text, "no server answers for it");
		} else if (got != NATS_OK) {
			break;
		} else if (pr_nats_is_event(natsMsg_GetReply(msg))) {
			status = add_received(nats, reading, msg, err);
		} else {
			if (pr_nats_is_reply(nats, msg))
				read_status(nats, reading, msg);
			pr_nats_discard_later(&nats->conn, msg);
		}
	}
	return status;
}

/* Waits once for more. A missing answer is no failure right after a message. */
static int wait_for_more(struct pr_nats_source *nats, struct reading *reading,
			 const struct pr_flight *flight, struct pr_err *err)
{
	int64_t until_us = reading->until_us;
	int64_t patience_us = nats->asked_us + flight->timeout_ms * 1000;
	int status = pr_nats_check_errors(nats, err);

	if (status < 0)
		return status;
	if (reading->count > 0)
		until_us = reading->last_us + LINGER_US;
	else if (pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before anything came");
	else if (reading->first &&
		 nats->asked_us) /* there is always an answer, even if there are no messages */
		until_us = patience_us;
	if (nats->asked_us && patience_us < until_us)
		until_us = patience_us;
	status = pr_nats_transfer(&nats->conn, flight, until_us, err);
	if (status == POSTROOM_OK || err->native != ETIMEDOUT ||
	    (nats->asked_us && until_us == patience_us))
		return status;
	reading->over = true;
	return POSTROOM_OK;
}

static int fetch_events(struct pr_nats_source *nats, struct reading *reading,
			const struct pr_flight *flight, struct pr_err *err)
{
	int status = read_available(nats, reading, err);

	if (status < 0 || reading->count > 0)
		return status;
	reading->refused = false;
	reading->ended = true;
	while (status == POSTROOM_OK && !reading->over) {
		if (reading->ended)
			status = ask_for_more(nats, reading, flight, err);
		if (status == POSTROOM_OK)
			status = wait_for_more(nats, reading, flight, err);
		if (status == POSTROOM_OK)
			status = read_available(nats, reading, err);
		if (reading->full || reading->refused ||
		    (reading->count > 0 && (reading->ended || reading->plain)) ||
		    (reading->ended && pr_mono_us() >= reading->until_us))
			break;
		/* Other consumers wait, or the first message is too large: request any one. */
		if (reading->ended)
			reading->plain = true;
	}
	return status;
}

static int explain_outage(const struct pr_nats_source *nats, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "the consumer \"%s\" of the stream \"%s\" delivers no messages: %s",
			  nats->name, nats->source.url.path, pr_buf_text(&nats->text));
}

static int read_more(struct pr_nats_source *nats, struct reading *reading,
		     const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_nats_wait wait = { .flight = flight,
				     .until_us = pr_mono_us() + flight->timeout_ms * 1000 };
	uint64_t before = nats->conn.connections;
	int status = pr_nats_connect(&nats->conn, flight, wait.until_us, err);

	reading->first = nats->conn.connections != before || !nats->ready;
	if (status == POSTROOM_OK && nats->given.len > 0)
		status = return_unread(nats, &wait, err);
	for (int tries = 0; tries < TRIES && status == POSTROOM_OK; tries++) {
		if (!nats->ready)
			status = pr_nats_make_ready(nats, &wait, err);
		if (reading->limit > nats->most)
			reading->limit = nats->most;
		if (status == POSTROOM_OK)
			status = fetch_events(nats, reading, flight, err);
		if (status < 0 || !reading->refused || reading->count > 0)
			return status;
		nats->ready = false;
	}
	return status < 0 ? status : explain_outage(nats, err);
}

static int read_nats(struct pr_source *source, struct pr_events *events, size_t limit,
		     const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_nats_source *nats = (struct pr_nats_source *)source;
	struct reading reading = { .events = events,
				   .limit = limit,
				   .used = events->arena.used,
				   .until_us = flight->begin_until_us };
	int status = read_more(nats, &reading, flight, err);

	pr_nats_discard(&nats->conn);
	pr_buf_trim(&nats->value);
	if (status == POSTROOM_UNAVAILABLE) {
		pr_nats_disconnect(&nats->conn);
		nats->asked_us = 0;
	}
	/* Acknowledgements can use another connection: the subject of each message is stored. */
	return status == POSTROOM_UNAVAILABLE && reading.count > 0 ? POSTROOM_OK : status;
}

static void close_source(struct pr_source *source)
{
	struct pr_nats_source *nats = (struct pr_nats_source *)source;
	struct pr_nats_connection *conn = &nats->conn;
	natsMsg *msg = NULL;

	if (conn->connection && !natsConnection_IsClosed(conn->connection)) {
		while (natsSubscription_NextMsg(&msg, conn->answers, 0) == NATS_OK) {
			if (pr_nats_is_event(natsMsg_GetReply(msg)))
				defer_event(nats, msg);
			else
				pr_nats_discard_later(conn, msg);
		}
		return_late(nats);
		send_acks(nats, NAK, NULL);
		if (conn->handshake->writing)
			natsConnection_ProcessWriteEvent(conn->connection);
	}
	return_late(nats);
	pr_nats_release(conn);
	free(nats->late);
	pr_buf_release(&nats->given);
	pr_buf_release(&nats->text);
	pr_buf_release(&nats->errors);
	pr_buf_release(&nats->value);
	pr_buf_release(&nats->headers);
}

/* The server uses the name in a format string: no '%'. */
static bool may_be_name(char c)
{
	return (unsigned char)c > ' ' && c != 0x7f && !strchr(".*>/\\%", c);
}

static int check_name(const char *kind, const char *name, struct pr_err *err)
{
	for (const char *at = name; *at; at++) {
		if (!may_be_name(*at))
			return pr_err_set(
				err, POSTROOM_SINK,
				"nats: \"%.300s\" cannot be the name of a %s: no spaces, "
				"control characters, dots, '*', '>', '%%' or slashes in it",
				name, kind);
	}
	if (!name[0] || strlen(name) > PR_NATS_NAME_MAX)
		return pr_err_set(err, POSTROOM_SINK,
				  "nats: the name of a %s has 1 to %d bytes, as in "
				  "nats://localhost:4222/STREAM?durable=NAME",
				  kind, PR_NATS_NAME_MAX);
	return POSTROOM_OK;
}

/* Escapes characters of a handler's name that a consumer's name cannot have. */
static int name_consumer(struct pr_nats_source *nats, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf name = { 0 };

	if (nats->durable)
		pr_buf_puts(&name, nats->durable);
	for (const char *at = nats->source.group; *at && !nats->durable; at++) {
		if (may_be_name(*at) && *at != '=')
			pr_buf_putc(&name, *at);
		else
			pr_buf_printf(&name, "=%02X", (unsigned char)*at);
	}
	if (name.failed)
		return pr_err_nomem(err);
	if (check_name("consumer", pr_buf_text(&name), err) < 0)
		return err->status;
	snprintf(nats->name, sizeof(nats->name), "%s", name.data);
	return POSTROOM_OK;
}

static int open_source(struct pr_source *source, struct pr_err *err)
{
	struct pr_nats_source *nats = (struct pr_nats_source *)source;

	if (check_name("stream", source->url.path, err) < 0 || name_consumer(nats, err) < 0)
		return err->status;
	if (pr_nats_prepare(&nats->conn, &source->url, err) < 0) {
		pr_nats_release(&nats->conn);
		return err->status;
	}
	return POSTROOM_OK;
}

static const char *const schemes[] = { "nats", NULL };

static const struct pr_param params[] = {
	{ .name = "durable",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct pr_nats_source, durable),
	  .value = "NAME",
	  .help = "the durable consumer; without it, the handler's name" },
	PR_NATS_PARAMS(struct pr_nats_source),
	{ .name = NULL },
};

const struct pr_source_ops pr_source_nats = {
	.schemes = schemes,
	.summary = "the messages of a NATS JetStream stream",
	.example = "nats://localhost:4222/ORDERS",
	.size = sizeof(struct pr_nats_source),
	.params = params,
	.open = open_source,
	.read = read_nats,
	.ack = ack,
	.keep = extend_lease,
	.close = close_source,
};
