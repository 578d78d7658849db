/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nats: the messages of a JetStream stream, pulled through a durable consumer.
 *
 * 1. A message is acknowledged by ack() and by nothing else. Its last acknowledgement is
 *    confirmed by the server, which takes them in their order.
 * 2. What was given and not acknowledged goes back before more is read, and at the end;
 *    else it comes again after the lease.
 * 3. What comes late, for a read that was left, is the next one's, in its order.
 * 4. A server that has not said a word for as long as a message may take is not there.
 */
#include "consume/nats.h"

#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACK "+ACK"
#define GIVE_BACK "-NAK"
#define IN_PROGRESS "+WPI"

/* Behind a message, for the next or for the server's word that there is none. */
#define LINGER_US 100000
#define SHORTEST_US 1000 /* that a server is asked to wait */
#define FIRST_SHORTEST_US 50000 /* the same of a new connection */
#define TRIES 2 /* of a read; between them the consumer is made again */

static int lost(natsStatus status, struct pr_err *err)
{
	if (status == NATS_NO_MEMORY)
		return pr_err_nomem(err);
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the connection is lost: %s",
			  natsStatus_GetText(status));
}

static void put_inbox(const struct pr_nats_source *nats, char *out, size_t size)
{
	snprintf(out, size, "%s.%" PRIu64, nats->link.inbox, nats->calls);
}

int pr_nats_ask(struct pr_nats_source *nats, const char *subject, const char *content,
		struct pr_err *err)
{
	char inbox[PR_NATS_INBOX_SIZE + 24];
	natsStatus status;

	nats->calls++;
	put_inbox(nats, inbox, sizeof(inbox));
	status = natsConnection_PublishRequestString(nats->link.connection, subject, inbox,
						     content);
	return status == NATS_OK ? POSTROOM_OK : lost(status, err);
}

bool pr_nats_is_answer(const struct pr_nats_source *nats, natsMsg *msg)
{
	char inbox[PR_NATS_INBOX_SIZE + 24];

	put_inbox(nats, inbox, sizeof(inbox));
	return strcmp(natsMsg_GetSubject(msg), inbox) == 0;
}

int pr_nats_check_notes(struct pr_nats_source *nats, struct pr_err *err)
{
	struct pr_buf *notes = &nats->notes;

	pr_buf_reset(notes);
	pr_nats_wire_take_notes(nats->link.wire, notes);
	if (notes->failed)
		return pr_err_nomem(err);
	if (notes->len == 0)
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "%.*s; the user must be allowed to publish to $JS.API.CONSUMER.> and "
			  "$JS.ACK.>, and to subscribe to _INBOX.>",
			  (int)strcspn(notes->data, "\n"), notes->data);
}

/* At the end of those that are late. With no memory it comes again after the lease. */
static void put_aside(struct pr_nats_source *nats, natsMsg *msg)
{
	if (nats->late_count == nats->late_capacity) {
		size_t capacity = nats->late_capacity ? nats->late_capacity * 2 : 64;
		natsMsg **more = reallocarray(nats->late, capacity, sizeof(natsMsg *));

		if (!more) {
			pr_nats_waste(&nats->link, msg);
			return;
		}
		nats->late = more;
		nats->late_capacity = capacity;
	}
	nats->late[nats->late_count++] = msg;
}

/* The first of those that are late; NULL: there is none. */
static natsMsg *take_late(struct pr_nats_source *nats)
{
	if (nats->late_first < nats->late_count)
		return nats->late[nats->late_first++];
	nats->late_first = nats->late_count = 0;
	return NULL;
}

/* For what was just taken, late or not. */
static void put_back(struct pr_nats_source *nats, natsMsg *msg)
{
	if (nats->late_first > 0)
		nats->late[--nats->late_first] = msg;
	else
		put_aside(nats, msg);
}

int pr_nats_await(struct pr_nats_source *nats, const struct pr_nats_wait *wait, natsMsg **ret,
		  struct pr_err *err)
{
	int status = POSTROOM_OK;

	while (status == POSTROOM_OK) {
		natsMsg *msg = NULL;
		natsStatus got = natsSubscription_NextMsg(&msg, nats->link.answers, 0);

		if (got == NATS_NO_RESPONDERS || (got == NATS_OK && pr_nats_is_answer(nats, msg))) {
			*ret = msg;
			return POSTROOM_OK;
		}
		if (got == NATS_OK) {
			if (pr_nats_is_event(natsMsg_GetReply(msg)))
				put_aside(nats, msg);
			else
				pr_nats_waste(&nats->link, msg);
			continue;
		}
		status = pr_nats_check_notes(nats, err);
		if (status == POSTROOM_OK && !wait->in_grace &&
		    pr_stop_requested(wait->flight->stop))
			status = pr_err_set(err, POSTROOM_STOPPED, "stopped before the answer");
		if (status == POSTROOM_OK)
			status = pr_nats_turn(&nats->link, wait->flight, wait->until_us, err);
	}
	return status;
}

/* Says a word about all that read() gave last. */
static natsStatus say(struct pr_nats_source *nats, const char *word, const char *inbox)
{
	const struct pr_buf *given = &nats->given;
	natsStatus status = NATS_OK;

	for (size_t at = 0, next; at < given->len && status == NATS_OK; at = next) {
		const char *reply = given->data + at;

		next = at + strlen(reply) + 1;
		if (next == given->len && inbox)
			status = natsConnection_PublishRequestString(nats->link.connection, reply,
								     inbox, word);
		else
			status = natsConnection_PublishString(nats->link.connection, reply, word);
		pr_nats_push(&nats->link);
	}
	return status;
}

/* The same, and waits until the server has heard all of it. */
static int tell(struct pr_nats_source *nats, const char *word, const struct pr_nats_wait *wait,
		struct pr_err *err)
{
	char inbox[PR_NATS_INBOX_SIZE + 24];
	natsStatus said;
	natsMsg *msg = NULL;
	int status;

	nats->calls++;
	put_inbox(nats, inbox, sizeof(inbox));
	said = say(nats, word, inbox);
	status = said == NATS_OK ? pr_nats_await(nats, wait, &msg, err) : lost(said, err);
	if (status < 0)
		return status;
	nats->ready = msg != NULL;
	pr_nats_waste(&nats->link, msg);
	return POSTROOM_OK;
}

/* What is late goes back with what was given before it. */
static void give_late(struct pr_nats_source *nats)
{
	for (natsMsg *msg; (msg = take_late(nats)) != NULL; pr_nats_waste(&nats->link, msg)) {
		const char *reply = natsMsg_GetReply(msg);

		pr_buf_append(&nats->given, reply, strlen(reply) + 1);
	}
}

/* The server takes what is asked for before what is given back, unless it has heard that. */
static int give_back(struct pr_nats_source *nats, const struct pr_nats_wait *wait,
		     struct pr_err *err)
{
	int status;

	do {
		give_late(nats);
		status = tell(nats, GIVE_BACK, wait, err);
		if (status == POSTROOM_OK)
			pr_buf_reset(&nats->given);
	} while (status == POSTROOM_OK && nats->late_count > 0);
	return status;
}

static int report(struct pr_nats_source *nats, const char *word, const struct pr_flight *flight,
		  struct pr_err *err)
{
	struct pr_nats_wait wait = { .flight = flight,
				     .until_us = pr_mono_us() + flight->timeout_ms * 1000,
				     .in_grace = true };
	int status;

	if (nats->given.len == 0)
		return POSTROOM_OK;
	status = pr_nats_connect(&nats->link, flight, wait.until_us, err);
	if (status < 0)
		return status;
	status = tell(nats, word, &wait, err);
	if (status < 0)
		pr_nats_hang_up(&nats->link);
	else if (!nats->ready)
		status = pr_err_set(err, POSTROOM_UNAVAILABLE,
				    "the consumer \"%s\" of the stream \"%s\" is gone: what was "
				    "read through it comes again",
				    nats->name, nats->source.url.path);
	pr_nats_empty_waste(&nats->link);
	return status;
}

static int ack(struct pr_source *source, const struct pr_events *events,
	       const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_nats_source *nats = (struct pr_nats_source *)source;
	int status = report(nats, ACK, flight, err);

	(void)events;
	if (status == POSTROOM_OK)
		pr_buf_reset(&nats->given);
	return status;
}

static int keep(struct pr_source *source, const struct pr_events *events,
		const struct pr_flight *flight, struct pr_err *err)
{
	(void)events;
	return report((struct pr_nats_source *)source, IN_PROGRESS, flight, err);
}

/* A call to read() and how far it is. */
struct reading {
	struct pr_events *events;
	size_t limit, count, bytes;
	int64_t until_us;
	int64_t last_us; /* when the last one came */
	bool first;	 /* of its connection */
	bool plain;	 /* one is asked for, whatever it is */
	bool ended;	 /* it sends no more of what was asked for */
	bool full;
	bool over;    /* the time is */
	bool refused; /* for the reason in nats->text */
};

static int ask_for_more(struct pr_nats_source *nats, struct reading *reading,
			const struct pr_flight *flight, struct pr_err *err)
{
	char subject[sizeof("$JS.API.CONSUMER.MSG.NEXT..") + 2 * PR_NATS_NAME_MAX];
	char content[200];
	int64_t left_us = reading->until_us - pr_mono_us();
	int64_t shortest_us = reading->first ? FIRST_SHORTEST_US : SHORTEST_US;

	/* So often must it speak, that its silence means something. */
	if (left_us > flight->timeout_ms * 1000 / 2)
		left_us = flight->timeout_ms * 1000 / 2;
	if (left_us < shortest_us)
		left_us = shortest_us;
	if (nats->asked_us == 0)
		nats->asked_us = pr_mono_us();
	snprintf(subject, sizeof(subject), "$JS.API.CONSUMER.MSG.NEXT.%s.%s", nats->source.url.path,
		 nats->name);
	/* With no_wait and a time, the server waits for the first and sends what there is then. */
	if (reading->plain)
		snprintf(content, sizeof(content), "{\"batch\":1,\"expires\":%" PRId64 "}",
			 left_us * 1000);
	else
		snprintf(content, sizeof(content),
			 "{\"batch\":%zu,\"max_bytes\":%zu,\"expires\":%" PRId64
			 ",\"no_wait\":true}",
			 reading->limit, PR_SOURCE_BYTES, left_us * 1000);
	reading->ended = false;
	return pr_nats_ask(nats, subject, content, err);
}

/* The server's word on what was asked for: that there is no more of it, or why not. */
static void hear_status(struct pr_nats_source *nats, struct reading *reading, natsMsg *msg)
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

static int take_event(struct pr_nats_source *nats, struct reading *reading, natsMsg *msg,
		      struct pr_err *err)
{
	const char *reply = natsMsg_GetReply(msg);
	size_t len = (size_t)natsMsg_GetDataLength(msg);
	int status;

	if (reading->count > 0 && reading->bytes + len > PR_SOURCE_BYTES) {
		put_back(nats, msg);
		reading->full = true;
		return POSTROOM_OK;
	}
	status = pr_nats_add_event(nats, msg, reading->events, err);
	if (status == POSTROOM_OK) {
		pr_buf_append(&nats->given, reply, strlen(reply) + 1);
		if (nats->given.failed)
			status = pr_err_nomem(err);
	}
	pr_nats_waste(&nats->link, msg);
	reading->bytes += len;
	reading->last_us = pr_mono_us();
	reading->full = ++reading->count == reading->limit;
	return status;
}

static int take_what_came(struct pr_nats_source *nats, struct reading *reading, struct pr_err *err)
{
	int status = POSTROOM_OK;

	while (status == POSTROOM_OK && !reading->full) {
		natsMsg *msg = take_late(nats);
		natsStatus got = NATS_OK;

		if (!msg)
			got = natsSubscription_NextMsg(&msg, nats->link.answers, 0);
		if (got == NATS_OK || got == NATS_NO_RESPONDERS)
			nats->asked_us = 0;
		if (got == NATS_NO_RESPONDERS) {
			reading->refused = reading->ended = true;
			pr_buf_reset(&nats->text);
			pr_buf_puts(&nats->text, "nobody answers for it");
		} else if (got != NATS_OK) {
			break;
		} else if (pr_nats_is_event(natsMsg_GetReply(msg))) {
			status = take_event(nats, reading, msg, err);
		} else {
			if (pr_nats_is_answer(nats, msg))
				hear_status(nats, reading, msg);
			pr_nats_waste(&nats->link, msg);
		}
	}
	return status;
}

/* One turn for more. Silence is no failure of a server that was heard not long ago. */
static int wait_for_more(struct pr_nats_source *nats, struct reading *reading,
			 const struct pr_flight *flight, struct pr_err *err)
{
	int64_t until_us = reading->until_us;
	int64_t patience_us = nats->asked_us + flight->timeout_ms * 1000;
	int status = pr_nats_check_notes(nats, err);

	if (status < 0)
		return status;
	if (reading->count > 0)
		until_us = reading->last_us + LINGER_US;
	else if (pr_stop_requested(flight->stop))
		return pr_err_set(err, POSTROOM_STOPPED, "stopped before anything came");
	else if (reading->first && nats->asked_us) /* an answer comes: that there is nothing, too */
		until_us = patience_us;
	if (nats->asked_us && patience_us < until_us)
		until_us = patience_us;
	status = pr_nats_turn(&nats->link, flight, until_us, err);
	if (status == POSTROOM_OK || err->native != ETIMEDOUT ||
	    (nats->asked_us && until_us == patience_us))
		return status;
	reading->over = true;
	return POSTROOM_OK;
}

static int fetch(struct pr_nats_source *nats, struct reading *reading,
		 const struct pr_flight *flight, struct pr_err *err)
{
	int status = take_what_came(nats, reading, err);

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
			status = take_what_came(nats, reading, err);
		if (reading->full || reading->refused ||
		    (reading->count > 0 && (reading->ended || reading->plain)) ||
		    (reading->ended && pr_mono_us() >= reading->until_us))
			break;
		/* Others wait already, or the first is too long: we stand in line for one. */
		if (reading->ended)
			reading->plain = true;
	}
	return status;
}

static int explain(const struct pr_nats_source *nats, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_UNAVAILABLE,
			  "the consumer \"%s\" of the stream \"%s\" gives no messages: %s",
			  nats->name, nats->source.url.path, pr_buf_text(&nats->text));
}

static int read_more(struct pr_nats_source *nats, struct reading *reading,
		     const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_nats_wait wait = { .flight = flight,
				     .until_us = pr_mono_us() + flight->timeout_ms * 1000 };
	uint64_t before = nats->link.connections;
	int status = pr_nats_connect(&nats->link, flight, wait.until_us, err);

	reading->first = nats->link.connections != before || !nats->ready;
	if (status == POSTROOM_OK && nats->given.len > 0)
		status = give_back(nats, &wait, err);
	for (int tries = 0; tries < TRIES && status == POSTROOM_OK; tries++) {
		if (!nats->ready)
			status = pr_nats_make_ready(nats, &wait, err);
		if (reading->limit > nats->most)
			reading->limit = nats->most;
		if (status == POSTROOM_OK)
			status = fetch(nats, reading, flight, err);
		if (status < 0 || !reading->refused || reading->count > 0)
			return status;
		nats->ready = false;
	}
	return status < 0 ? status : explain(nats, err);
}

static int read_nats(struct pr_source *source, struct pr_events *events, size_t limit,
		     const struct pr_flight *flight, struct pr_err *err)
{
	struct pr_nats_source *nats = (struct pr_nats_source *)source;
	struct reading reading = { .events = events,
				   .limit = limit,
				   .until_us = flight->begin_until_us };
	int status = read_more(nats, &reading, flight, err);

	pr_nats_empty_waste(&nats->link);
	pr_sink_trim(&nats->value);
	if (status == POSTROOM_UNAVAILABLE) {
		pr_nats_hang_up(&nats->link);
		nats->asked_us = 0;
	}
	/* What has come is safe with us: its acknowledgements can go another way. */
	return status == POSTROOM_UNAVAILABLE && reading.count > 0 ? POSTROOM_OK : status;
}

static void close_nats(struct pr_source *source)
{
	struct pr_nats_source *nats = (struct pr_nats_source *)source;
	struct pr_nats_link *link = &nats->link;
	natsMsg *msg = NULL;

	if (link->connection && !natsConnection_IsClosed(link->connection)) {
		while (natsSubscription_NextMsg(&msg, link->answers, 0) == NATS_OK) {
			if (pr_nats_is_event(natsMsg_GetReply(msg)))
				put_aside(nats, msg);
			else
				pr_nats_waste(link, msg);
		}
		give_late(nats);
		say(nats, GIVE_BACK, NULL);
		if (link->wire->writing)
			natsConnection_ProcessWriteEvent(link->connection);
	}
	give_late(nats);
	pr_nats_release(link);
	free(nats->late);
	pr_buf_release(&nats->given);
	pr_buf_release(&nats->text);
	pr_buf_release(&nats->notes);
	pr_buf_release(&nats->value);
	pr_buf_release(&nats->headers);
}

/* With '%' in it, the server garbles where to acknowledge: to it that is a format. */
static bool may_be_name(char c)
{
	return (unsigned char)c > ' ' && c != 0x7f && !strchr(".*>/\\%", c);
}

static int check_name(const char *what, const char *name, struct pr_err *err)
{
	for (const char *at = name; *at; at++) {
		if (!may_be_name(*at))
			return pr_err_set(
				err, POSTROOM_SINK,
				"nats: \"%.300s\" can not be the name of a %s: no spaces, "
				"control characters, dots, '*', '>', '%%' or slashes in it",
				name, what);
	}
	if (!name[0] || strlen(name) > PR_NATS_NAME_MAX)
		return pr_err_set(err, POSTROOM_SINK,
				  "nats: the name of a %s has 1 to %d bytes, as in "
				  "nats://localhost:4222/STREAM?durable=NAME",
				  what, PR_NATS_NAME_MAX);
	return POSTROOM_OK;
}

/* Handlers may have names that consumers may not: no two of them become the same. */
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

static int open_nats(struct pr_source *source, struct pr_err *err)
{
	struct pr_nats_source *nats = (struct pr_nats_source *)source;

	if (check_name("stream", source->url.path, err) < 0 || name_consumer(nats, err) < 0)
		return err->status;
	if (pr_nats_prepare(&nats->link, &source->url, err) < 0) {
		pr_nats_release(&nats->link);
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
	.open = open_nats,
	.read = read_nats,
	.ack = ack,
	.keep = keep,
	.close = close_nats,
};
