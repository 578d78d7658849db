/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Postroom: the transactional outbox and inbox.
 *
 * An application writes a message into its own database, in its own transaction; a relay publishes
 * it later. On the other side, a consumer asks the inbox, again in its own transaction, whether it
 * has seen the event before. This header is all that most programs need: enqueue, receipts, the
 * inbox, deterministic keys, statuses. <postroom/sqlite.h> and <postroom/libpq.h> make a box from
 * a connection.
 *
 * Every function returns a status: >= 0 is an outcome, < 0 a failure, and postroom_errmsg() has
 * the sentence. Nothing here prints, exits, starts a thread or keeps global state. Strings passed
 * in are borrowed for the call. A box, like its connection, is used by one thread at a time.
 */
#ifndef POSTROOM_H
#define POSTROOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POSTROOM_API __attribute__((visibility("default")))

typedef enum postroom_status {
	POSTROOM_OK = 0,
	POSTROOM_DUPLICATE = 1, /* a duplicate; the receipt names the first */

	POSTROOM_INVALID = -1, /* invalid input: the error names the field; nothing was written */
	POSTROOM_NOMEM = -2,   /* no memory */
	POSTROOM_BUSY = -3,    /* another process has locked the database: retry */
	POSTROOM_TX_ABORTED = -4,  /* the caller's transaction is aborted: roll back */
	POSTROOM_DATABASE = -5,	   /* the database failed: disk full, I/O, corruption, privileges */
	POSTROOM_SCHEMA = -6,	   /* tables missing, or newer than this library */
	POSTROOM_LEASE_LOST = -7,  /* another worker has the message by now */
	POSTROOM_NOT_FOUND = -8,   /* no such message, or its state does not allow this */
	POSTROOM_UNAVAILABLE = -9, /* the database cannot be opened or reached */
	POSTROOM_STOPPED = -10,	   /* a stop was requested while waiting */
	POSTROOM_SINK = -11	   /* the sink is permanently broken, or its settings are invalid */
} postroom_status;

/* Longest values, in bytes. A longer one is POSTROOM_INVALID. */
#define POSTROOM_NAMESPACE_MAX 255
#define POSTROOM_TOPIC_MAX 255
#define POSTROOM_KEY_MAX 1024
#define POSTROOM_DEDUPE_KEY_MAX 512
#define POSTROOM_CORRELATION_ID_MAX 255
#define POSTROOM_CONTENT_TYPE_MAX 255
#define POSTROOM_HEADERS_MAX 65536
#define POSTROOM_PAYLOAD_MAX (64 * 1024 * 1024)	   /* limit of the tables */
#define POSTROOM_PAYLOAD_DEFAULT_MAX (1024 * 1024) /* default limit of a box */
#define POSTROOM_PRIORITY_MAX 3600
#define POSTROOM_DELAY_MAX_MS (3650LL * 24 * 3600 * 1000)
#define POSTROOM_EVENT_ID_MAX 1024
#define POSTROOM_HANDLER_MAX 255

#define POSTROOM_ID_SIZE 37 /* a UUID as text, with its NUL */

/*
 * One message. Only topic and payload (or body) are needed; zero means
 * default. Make it with POSTROOM_MESSAGE(.topic = …, .payload = …), or set
 * size to sizeof(postroom_message) and the rest to zero.
 */
typedef struct postroom_message {
	size_t size;
	const char *topic;
	const char *payload;   /* JSON text, passed on untouched; NULL with a body */
	size_t payload_len;    /* 0: payload ends at its NUL */
	const char *ns;	       /* namespace; NULL: "default" */
	const char *key;       /* the order and partition key */
	const char *tenant_id; /* a UUID */
	const char *
		dedupe_key; /* unique per namespace and topic; must begin with "TENANT/" if there is a tenant */
	const char *idempotency_key; /* instead of dedupe_key: "TENANT/" is put before it */
	const char *headers;	     /* JSON object of strings; NULL: {} */
	const char *correlation_id;
	const char
		*content_type; /* NULL: application/json, or application/octet-stream with a body */
	const void *body;      /* binary content; the payload is then JSON null */
	size_t body_len;
	int64_t delay_ms; /* not before now + delay */
	int32_t priority; /* head start in seconds, 0 to 3600 */
} postroom_message;

#define POSTROOM_MESSAGE(...)                                                                      \
	(&(const postroom_message){ .size = sizeof(postroom_message), __VA_ARGS__ })

/* Result of an enqueue. Nothing in it needs to be freed. */
typedef struct postroom_receipt {
	char id[POSTROOM_ID_SIZE]; /* of this message, or of the first one if it is a duplicate */
	int duplicate;
	int differs; /* the duplicate's payload or body differs from the first: worth a warning */
	char dedupe_key[POSTROOM_DEDUPE_KEY_MAX + 1]; /* "": none; use the id downstream */
	char reserved[64];			      /* for later fields; do not read it */
} postroom_receipt;

/* The application's side of one database connection. */
typedef struct postroom_box postroom_box;

/*
 * Writes one message in the caller's open transaction. It does not begin, commit or roll back.
 * POSTROOM_OK, POSTROOM_DUPLICATE, or a failure. After POSTROOM_INVALID, POSTROOM_BUSY and
 * POSTROOM_SCHEMA the transaction is unchanged. receipt may be NULL.
 */
POSTROOM_API int postroom_enqueue(postroom_box *box, const postroom_message *message,
				  postroom_receipt *receipt);

/*
 * The same for many messages. All are checked before the first is written, so invalid input writes
 * nothing; the error names the message ("message 17: …"). Needs an open transaction. receipts is
 * NULL or has room for count. POSTROOM_OK even if some are duplicates; see each receipt.
 */
POSTROOM_API int postroom_enqueue_many(postroom_box *box, const postroom_message *messages,
				       size_t count, postroom_receipt *receipts);

/* State of an event or command of one handler. */
typedef enum postroom_inbox_state {
	POSTROOM_INBOX_PENDING = 0,
	POSTROOM_INBOX_ACTIVE = 1,
	POSTROOM_INBOX_COMPLETED = 2,
	POSTROOM_INBOX_DEAD = 3
} postroom_inbox_state;

/*
 * Accepts an event once per handler. POSTROOM_OK: the event is new. It is now in the inbox, in the
 * caller's open transaction, and the handler's effects belong into the same transaction.
 * POSTROOM_DUPLICATE: skip it.
 *
 * If another open transaction has accepted the event, this call waits for its outcome: a duplicate
 * if it commits, new if it rolls back. On PostgreSQL at REPEATABLE READ and above, an event that
 * another transaction committed after the snapshot is POSTROOM_TX_ABORTED with SQLSTATE 40001:
 * roll back and retry; it is then a duplicate. On SQLite, a transaction that has read before
 * another one wrote cannot become a writer: POSTROOM_TX_ABORTED; use BEGIN IMMEDIATE.
 * POSTROOM_BUSY: the busy timeout has passed; the transaction is unchanged.
 *
 * Without an open transaction, the event counts as handled immediately.
 */
POSTROOM_API int postroom_inbox_once(postroom_box *box, const char *event_id, const char *handler);

/*
 * Submits a command to a handler, once per command id. POSTROOM_OK: it is new, and pending after
 * the caller's commit. POSTROOM_DUPLICATE: it exists already, with any payload. Waits for other
 * transactions like postroom_inbox_once(). payload is JSON, or NULL for none. *ret_state, which
 * may be NULL, is its state.
 */
POSTROOM_API int postroom_inbox_submit(postroom_box *box, const char *handler,
				       const char *command_id, const char *payload,
				       postroom_inbox_state *ret_state);

/* A command with all its attributes; NULL means none. */
typedef struct postroom_command {
	size_t size;
	const char *handler;
	const char *id;
	const char *payload;   /* JSON */
	const char *tenant_id; /* a UUID */
	const char *correlation_id;
} postroom_command;

#define POSTROOM_COMMAND(...)                                                                      \
	(&(const postroom_command){ .size = sizeof(postroom_command), __VA_ARGS__ })

/* The same as postroom_inbox_submit(). */
POSTROOM_API int postroom_inbox_submit_command(postroom_box *box, const postroom_command *command,
					       postroom_inbox_state *ret_state);

/* Sets the largest payload or body that this box accepts, in bytes. */
POSTROOM_API int postroom_box_set_max_payload(postroom_box *box, size_t bytes);

/* The sentence for the last failure of this box; valid until its next call. */
POSTROOM_API const char *postroom_errmsg(const postroom_box *box);

/* SQLite's own extended result code for it, or 0. */
POSTROOM_API int postroom_errcode(const postroom_box *box);

/*
 * PostgreSQL's SQLSTATE of the last failure ("40001"), or "". After POSTROOM_TX_ABORTED, class 40
 * means: roll back and retry the transaction.
 */
POSTROOM_API const char *postroom_sqlstate(const postroom_box *box);

/* Frees the box; the connection stays open and the caller's. */
POSTROOM_API void postroom_box_free(postroom_box *box);

/*
 * The deterministic idempotency key of an event: SHA-256 over
 * tenant:category:entity:kind:version, ASCII lower-cased, its first 16 bytes
 * as a UUID. version NULL means "0". No part but the entity may hold a ':'.
 * POSTROOM_OK or POSTROOM_INVALID.
 */
POSTROOM_API int postroom_key(const char *tenant, const char *category, const char *entity,
			      const char *kind, const char *version, char out[POSTROOM_ID_SIZE]);

/* The library's version, "MAJOR.MINOR.PATCH". */
POSTROOM_API const char *postroom_version(void);

#ifdef __cplusplus
}
#endif

#endif
