/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For programs that bring their own loop: claim messages with a lease, do
 * something with them, then ack, nack, reject or release. Each call is one
 * transaction of its own on the store's own connection.
 *
 * A store is used by one thread at a time; any number of stores, processes
 * and hosts may work on one database.
 */
#ifndef POSTROOM_STORE_H
#define POSTROOM_STORE_H

#include <postroom.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct postroom_store postroom_store;
typedef struct postroom_batch postroom_batch;

/* Result of one attempt to publish a message. */
typedef enum postroom_verdict {
	POSTROOM_UNTRIED = 0,	  /* never begun: the attempt is refunded */
	POSTROOM_DELIVERED = 1,	  /* acknowledged by the receiver */
	POSTROOM_UNREACHABLE = 2, /* the receiver is not there: the attempt is refunded; the relay
				   * counts it as FAILED if it delivers others */
	POSTROOM_FAILED = 3,	  /* counts as an attempt; retried later */
	POSTROOM_REJECTED = 4	  /* permanent: dead at once */
} postroom_verdict;

/*
 * A claimed message. It is read and judged through the functions below. Strings live as long as
 * the batch, or until the callback of a relay returns; they are NULL where the column is NULL.
 */
typedef struct postroom_delivery postroom_delivery;

POSTROOM_API const char *postroom_delivery_id(const postroom_delivery *item);
POSTROOM_API const char *postroom_delivery_ns(
	const postroom_delivery *item); /* a job: the handler */
POSTROOM_API const char *postroom_delivery_topic(const postroom_delivery *item);
POSTROOM_API const char *postroom_delivery_key(const postroom_delivery *item);
POSTROOM_API const char *postroom_delivery_tenant_id(const postroom_delivery *item);
POSTROOM_API const char *postroom_delivery_dedupe_key(const postroom_delivery *item);
POSTROOM_API const char *postroom_delivery_correlation_id(const postroom_delivery *item);
POSTROOM_API const char *postroom_delivery_content_type(const postroom_delivery *item);
POSTROOM_API const char *postroom_delivery_headers(const postroom_delivery *item); /* JSON object */
/* JSON text as it was enqueued, terminated by NUL. ret_len may be NULL, as in the next function. */
POSTROOM_API const char *postroom_delivery_payload(const postroom_delivery *item, size_t *ret_len);
POSTROOM_API const void *postroom_delivery_body(const postroom_delivery *item, size_t *ret_len);
POSTROOM_API int postroom_delivery_attempt(const postroom_delivery *item); /* 1 for the first */
POSTROOM_API int64_t
postroom_delivery_created_at_us(const postroom_delivery *item); /* since 1970 */

POSTROOM_API postroom_verdict postroom_delivery_verdict(const postroom_delivery *item);
/*
 * Sets the verdict. reason is NULL or a string that lives until the message is settled, or until
 * the callback returns. It is stored as last_error.
 */
POSTROOM_API void postroom_delivery_judge(postroom_delivery *item, postroom_verdict verdict,
					  const char *reason);
/* Retry a FAILED message after this time instead of after the backoff. */
POSTROOM_API void postroom_delivery_retry_in(postroom_delivery *item, int64_t delay_ms);
/* After settling: POSTROOM_OK or POSTROOM_LEASE_LOST. */
POSTROOM_API int postroom_delivery_settled(const postroom_delivery *item);
/* After settling: 1 if the message is a dead letter now. */
POSTROOM_API int postroom_delivery_is_dead(const postroom_delivery *item);

typedef enum postroom_backoff {
	POSTROOM_BACKOFF_EXPONENTIAL = 0,
	POSTROOM_BACKOFF_CONSTANT = 1
} postroom_backoff;

/* Effect of a dead letter on later messages of its key. */
typedef enum postroom_on_dead {
	POSTROOM_ON_DEAD_CONTINUE = 0, /* they are not blocked */
	POSTROOM_ON_DEAD_BLOCK = 1     /* they wait until it is sent again or purged */
} postroom_on_dead;

/* Options of a claim; zero means default. */
typedef struct postroom_claim_options {
	size_t size;
	const char *ns;	       /* NULL: every namespace */
	const char *topic;     /* a pattern, '*' for any characters; NULL: every topic */
	const char *tenant_id; /* NULL: every tenant */
	int32_t limit;	       /* 500 messages at most */
	size_t max_bytes; /* 8 MiB of payloads, bodies and headers at most, but always one message */
	int64_t lease_ms;      /* 30 s */
	int32_t max_attempts;  /* 10, the first included */
	int64_t base_delay_ms; /* 1 s */
	int64_t max_delay_ms;  /* 5 min */
	postroom_backoff backoff;
	int32_t max_error_length; /* 2000 characters of the reason are stored */
	postroom_on_dead on_dead;
} postroom_claim_options;

#define POSTROOM_CLAIM(...)                                                                        \
	(&(const postroom_claim_options){ .size = sizeof(postroom_claim_options), __VA_ARGS__ })

/*
 * Opens the database that url names ("sqlite:PATH" or a path), creating file
 * and tables if need be. On failure *ret is NULL or a store that only has an
 * error message; close it all the same.
 */
POSTROOM_API int postroom_store_open(const char *url, postroom_store **ret);
POSTROOM_API void postroom_store_close(postroom_store *store);
POSTROOM_API const char *postroom_store_errmsg(const postroom_store *store);

/*
 * Claims due messages, oldest first. Messages of a dead worker are reclaimed one at a time, so
 * that a message that crashes its worker cannot affect others. Free *ret with
 * postroom_batch_free(), even if it is empty; it must not outlive its store.
 */
POSTROOM_API int postroom_claim(postroom_store *store, const postroom_claim_options *options,
				postroom_batch **ret);
POSTROOM_API size_t postroom_batch_count(const postroom_batch *batch);
/* NULL beyond the end. */
POSTROOM_API postroom_delivery *postroom_batch_item(postroom_batch *batch, size_t index);
POSTROOM_API void postroom_batch_free(postroom_batch *batch);

/*
 * Settle count consecutive messages of a batch, from item on, in one transaction.
 * POSTROOM_LEASE_LOST: some of them were no longer leased by this store, and
 * postroom_delivery_settled() says which; the others are settled.
 * nack: failed; pending again after the backoff, or dead at the last attempt.
 * reject: dead immediately. release: never tried; the attempt is refunded.
 * renew: the lease starts anew.
 */
POSTROOM_API int postroom_ack(postroom_store *store, postroom_batch *batch, postroom_delivery *item,
			      size_t count);
POSTROOM_API int postroom_nack(postroom_store *store, postroom_batch *batch,
			       postroom_delivery *item, size_t count, const char *reason);
POSTROOM_API int postroom_reject(postroom_store *store, postroom_batch *batch,
				 postroom_delivery *item, size_t count, const char *reason);
POSTROOM_API int postroom_release(postroom_store *store, postroom_batch *batch,
				  postroom_delivery *item, size_t count);
POSTROOM_API int postroom_renew(postroom_store *store, postroom_batch *batch,
				postroom_delivery *item, size_t count);

/* Settles each message by its own verdict, reason and delay. */
POSTROOM_API int postroom_settle(postroom_store *store, postroom_batch *batch,
				 postroom_delivery *item, size_t count);

/*
 * Dead-letters messages whose worker died during their last attempt. Claims do this for the
 * messages that they meet; a sweep does it without claiming.
 */
POSTROOM_API int postroom_sweep(postroom_store *store, int32_t max_attempts, int64_t *ret_dead);

/* The two tables that an operator looks after. */
typedef enum postroom_table {
	POSTROOM_OUTBOX = 0, /* messages that a relay delivers */
	POSTROOM_INBOX = 1   /* events and jobs of a handler */
} postroom_table;

/*
 * A row of either table. Pointers are NULL and times 0 where the column is NULL or the table
 * does not have it.
 */
typedef struct postroom_row {
	int64_t seq;
	const char *id;
	const char *handler; /* inbox */
	const char *ns;
	const char *topic;
	const char *tenant_id;
	const char *key;
	const char *dedupe_key;
	const char *correlation_id;
	const char *payload;
	size_t payload_len;
	const void *body;
	size_t body_len;
	const char *content_type;
	const char *headers;
	const char *status;
	int32_t attempts;
	int64_t claims;
	int64_t next_attempt_at_us;
	const char *locked_by;
	int64_t locked_until_us;
	int64_t last_attempt_at_us;
	const char *last_error;
	int64_t created_at_us;
	int64_t updated_at_us;
	int64_t delivered_at_us;
	int64_t processed_at_us; /* inbox, as the next two: when it was completed */
	const char *checkpoint;	 /* JSON */
	const char *steps;	 /* JSON */
} postroom_row;

/* Which rows; zero means any. */
typedef struct postroom_filter {
	size_t size;
	/*
	 * Outbox: pending, failed (pending after an attempt), processing, delivered, dead.
	 * Inbox: pending, failed, active, completed, dead.
	 */
	const char *status;
	const char *ns;	   /* outbox */
	const char *topic; /* a pattern */
	const char *tenant_id;
	const char *key;
	/*
	 * list: continue after this row. Outbox: its id, or "ID.SEQ.DELIVERED_AT_US", which works
	 * even if the row has been deleted since. Inbox: its seq in decimal digits, since an id may
	 * have several handlers.
	 */
	const char *after;
	/* count, retry and purge: done or dead for longer than this, up to 1000 years */
	int64_t older_than_ms;
	int brief; /* list: without headers, payload, body, checkpoint and steps; they are not read */
	postroom_table table;
	const char *handler;	 /* inbox */
	const char *id;		 /* this one; in the outbox a UUID */
	const char *error;	 /* last_error contains this text; ASCII letters in either case */
	const char *fingerprint; /* of last_error, exactly; "": no error; see postroom_groups() */
	int64_t created_from_us; /* created at or after this time */
	int64_t created_to_us;	 /* created before this time; 0: no limit */
	int64_t offset;		 /* list: skip so many rows; they are read all the same */
	const char *sink;	 /* of the last failed attempt; "": none is recorded */
} postroom_filter;

#define POSTROOM_FILTER(...)                                                                       \
	(&(const postroom_filter){ .size = sizeof(postroom_filter), __VA_ARGS__ })

/* Gets each row, valid during the call; anything but 0 ends the listing. */
typedef int (*postroom_row_fn)(void *context, const postroom_row *row);

/*
 * Newest first, limit rows at most; delivered messages by the time of their delivery.
 * POSTROOM_NOT_FOUND when filter->after is unknown.
 */
POSTROOM_API int postroom_list(postroom_store *store, const postroom_filter *filter, int32_t limit,
			       postroom_row_fn fn, void *context);
/*
 * One row in full: filter->table, id and, in the inbox, handler count. Without a handler all rows
 * of the inbox with this id are shown. POSTROOM_NOT_FOUND when there is none.
 */
POSTROOM_API int postroom_show(postroom_store *store, const postroom_filter *filter,
			       postroom_row_fn fn, void *context);
/*
 * Counts matching rows, up to cap: *ret == cap means cap or more. For retry the status is "dead";
 * count what a retry or purge would change before it runs.
 */
POSTROOM_API int postroom_count(postroom_store *store, const postroom_filter *filter, int64_t cap,
				int64_t *ret);

/* Dead rows with the same cause. Strings are valid during the call. */
typedef struct postroom_group {
	const char *fingerprint; /* the error without the parts that differ from row to row */
	const char *example_error;
	const char *topic;
	const char *handler;	/* inbox; else NULL */
	const char *example_id; /* the newest */
	int64_t count;
	int64_t first_at_us; /* when the first of them became dead */
	int64_t last_at_us;
	const char *sink; /* of the last failed attempt of each; "": not known */
} postroom_group;

/* Gets each group; anything but 0 ends it. */
typedef int (*postroom_group_fn)(void *context, const postroom_group *group);

/*
 * Groups dead rows by fingerprint, topic (and handler) and sink, largest group first; as a filter,
 * these select the rows of a group. It reads the newest 100,000 matching dead rows; *ret_capped,
 * unless NULL, says whether there are more.
 */
POSTROOM_API int postroom_groups(postroom_store *store, const postroom_filter *filter,
				 int32_t limit, postroom_group_fn fn, void *context,
				 int *ret_capped);

/* A failed attempt. Strings are valid during the call; NULL: not known. */
typedef struct postroom_attempt {
	int32_t number;	     /* 1 for the first; starts again after a retry by an operator */
	int64_t at_us;	     /* when it ended */
	int64_t duration_ms; /* -1: not known */
	const char *worker;
	const char *sink;
	const char *error;
} postroom_attempt;

/* Gets each attempt; anything but 0 ends it. */
typedef int (*postroom_attempt_fn)(void *context, const postroom_attempt *attempt);

/* The last ten failed attempts, oldest first, of the row that postroom_show() would show. */
POSTROOM_API int postroom_attempts(postroom_store *store, const postroom_filter *filter,
				   postroom_attempt_fn fn, void *context);

/*
 * Sets a dead row back to pending: attempts 0, due now, at the end of its key's
 * order; last_error, and in the inbox steps and checkpoint, stay. filter->table,
 * id and, in the inbox, handler count. POSTROOM_NOT_FOUND when there is no such
 * row or it is not dead; the error says which.
 */
POSTROOM_API int postroom_retry(postroom_store *store, const postroom_filter *filter);

/*
 * One short transaction over at most limit rows; repeat until *ret is less than limit. retry_some
 * retries dead events and ignores filter->status; purge_some needs status "completed" or "dead". A
 * purged event is new again when it is redelivered.
 */
POSTROOM_API int postroom_retry_some(postroom_store *store, const postroom_filter *filter,
				     int32_t limit, int64_t *ret);
POSTROOM_API int postroom_purge_some(postroom_store *store, const postroom_filter *filter,
				     int32_t limit, int64_t *ret);

/* Of the inbox, "processing" is active, and "delivered" is completed. */
typedef struct postroom_counts {
	int64_t pending;
	int64_t processing;
	int64_t failed_pending; /* of the pending ones: after at least one attempt */
	int64_t delivered;
	int64_t dead;
	int64_t oldest_age_us; /* age of the oldest due or retried message; -1: none */
	int64_t reserved[8];   /* for later fields */
} postroom_counts;

/* Of the inbox, ns is NULL and topic is the handler. */
typedef void (*postroom_topic_fn)(void *context, const char *ns, const char *topic,
				  const postroom_counts *counts);

/*
 * Exact counts of matching rows, so it reads the whole table. filter NULL: the outbox. fn, if any,
 * gets each namespace and topic, or each handler.
 */
POSTROOM_API int postroom_stats(postroom_store *store, const postroom_filter *filter,
				postroom_counts *ret, postroom_topic_fn fn, void *context);

#ifdef __cplusplus
}
#endif

#endif
