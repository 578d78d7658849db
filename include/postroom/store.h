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

/* What became of one try to publish a message. */
typedef enum postroom_verdict {
	POSTROOM_UNTRIED = 0,	  /* never begun: the attempt is given back */
	POSTROOM_DELIVERED = 1,	  /* acknowledged by the far side */
	POSTROOM_UNREACHABLE = 2, /* the far side is not there: the attempt is given back */
	POSTROOM_FAILED = 3,	  /* counts as an attempt; tried again later */
	POSTROOM_REJECTED = 4	  /* permanent: dead at once */
} postroom_verdict;

/* A claimed message. Its strings live as long as its batch. */
typedef struct postroom_delivery {
	const char *id;
	const char *ns;
	const char *topic;
	const char *key;	    /* NULL if none, as the next three */
	const char *tenant_id;
	const char *dedupe_key;
	const char *correlation_id;
	const char *content_type;
	const char *headers;	    /* JSON object of strings */
	const char *payload;	    /* JSON text as it was enqueued; ends in NUL */
	size_t payload_len;
	const void *body;	    /* NULL if there is none */
	size_t body_len;
	int attempt;		    /* 1 for the first */
	int64_t created_at_us;	    /* microseconds since 1970 */

	/* What the publisher says; ack, nack, reject and release set it too. */
	postroom_verdict verdict;
	const char *reason;	    /* why not; NULL or a string that outlives the settling */
	int64_t retry_in_ms;	    /* when to try again; < 0: by the backoff */

	/* After settling: POSTROOM_OK, or POSTROOM_LEASE_LOST. */
	int settled;
	int dead;		    /* settling it buried it */

	int kept;		    /* the publisher has settled it itself, together with its effect */

	/* The store's own. */
	int64_t seq;
	int64_t fence;
	int64_t due_us;
	int64_t place; /* of its row, as it was then */
	int lane;      /* 1 and up: whose lease covers it; 0: it has one of its own */
	int loose;     /* its key does not order it */
} postroom_delivery;

typedef enum postroom_backoff {
	POSTROOM_BACKOFF_EXPONENTIAL = 0,
	POSTROOM_BACKOFF_CONSTANT = 1
} postroom_backoff;

/* What a dead message does to the later ones of its key. */
typedef enum postroom_on_dead {
	POSTROOM_ON_DEAD_CONTINUE = 0, /* they go on */
	POSTROOM_ON_DEAD_BLOCK = 1     /* they wait until it is sent again or purged */
} postroom_on_dead;

/* What to claim and how to treat it; zero means default. */
typedef struct postroom_claim_options {
	size_t size;
	const char *ns;		/* NULL: every namespace */
	const char *topic;	/* a pattern, '*' for any characters; NULL: every topic */
	const char *tenant_id;	/* NULL: every tenant */
	int32_t limit;		/* 500 messages at most */
	size_t max_bytes;	/* 8 MiB of payloads and bodies at most, but always one message */
	int64_t lease_ms;	/* 30 s */
	int32_t max_attempts;	/* 10, the first included */
	int64_t base_delay_ms;	/* 1 s */
	int64_t max_delay_ms;	/* 5 min */
	postroom_backoff backoff;
	int32_t max_error_length; /* 2000 characters of the reason are kept */
	postroom_on_dead on_dead;
} postroom_claim_options;

#define POSTROOM_CLAIM(...) \
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
 * Claims what is due, oldest first. What a dead worker left behind comes back
 * one message at a time, so that a message that kills its worker can not take
 * others along. *ret is to be freed with postroom_batch_free(), also when it
 * is empty; it must not outlive its store.
 */
POSTROOM_API int postroom_claim(postroom_store *store, const postroom_claim_options *options,
				postroom_batch **ret);
POSTROOM_API postroom_delivery *postroom_batch_items(postroom_batch *batch, size_t *ret_count);
POSTROOM_API void postroom_batch_free(postroom_batch *batch);

/*
 * Settle count neighbouring items of a batch in one transaction. Each guards
 * itself: POSTROOM_LEASE_LOST when any of them was no longer ours (its
 * settled says which; the others are settled all the same).
 * nack: tried and failed; pending again after the backoff, or dead at the last
 * attempt. reject: dead at once. release: never tried, the attempt is given
 * back. renew: the lease starts anew.
 */
POSTROOM_API int postroom_ack(postroom_store *store, postroom_batch *batch,
			      postroom_delivery *items, size_t count);
POSTROOM_API int postroom_nack(postroom_store *store, postroom_batch *batch,
			       postroom_delivery *items, size_t count, const char *reason);
POSTROOM_API int postroom_reject(postroom_store *store, postroom_batch *batch,
				 postroom_delivery *items, size_t count, const char *reason);
POSTROOM_API int postroom_release(postroom_store *store, postroom_batch *batch,
				  postroom_delivery *items, size_t count);
POSTROOM_API int postroom_renew(postroom_store *store, postroom_batch *batch,
				postroom_delivery *items, size_t count);

/* Settles each item by its own verdict, reason and retry_in_ms. */
POSTROOM_API int postroom_settle(postroom_store *store, postroom_batch *batch,
				 postroom_delivery *items, size_t count);

/*
 * Buries what died with its worker during the last attempt it had. Claims do
 * this too for what they meet; a sweep does it without claiming.
 */
POSTROOM_API int postroom_sweep(postroom_store *store, int32_t max_attempts, int64_t *ret_buried);

/* A message as the table has it. Pointers are NULL and times 0 where the column is NULL. */
typedef struct postroom_row {
	int64_t seq;
	const char *id;
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
} postroom_row;

/* Which messages; zero means any. */
typedef struct postroom_filter {
	size_t size;
	const char *status; /* pending, failed (pending after a try), processing, delivered, dead */
	const char *ns;
	const char *topic; /* a pattern */
	const char *tenant_id;
	const char *key;
	const char *after; /* list: an id; go on behind it */
	int64_t older_than_ms; /* purge and retry: delivered or dead for longer, up to 1000 years */
} postroom_filter;

#define POSTROOM_FILTER(...) \
	(&(const postroom_filter){ .size = sizeof(postroom_filter), __VA_ARGS__ })

/* Gets each row, valid during the call; anything but 0 ends the listing. */
typedef int (*postroom_row_fn)(void *context, const postroom_row *row);

/* Newest first, limit rows at most. POSTROOM_NOT_FOUND when filter->after is unknown. */
POSTROOM_API int postroom_list(postroom_store *store, const postroom_filter *filter, int32_t limit,
			       postroom_row_fn fn, void *context);
POSTROOM_API int postroom_show(postroom_store *store, const char *id, postroom_row_fn fn,
			       void *context);

/*
 * Dead back to pending: attempts 0, due now, at the end of its key's order;
 * last_error stays. POSTROOM_NOT_FOUND when there is no such message or it is
 * not dead; the error says which.
 */
POSTROOM_API int postroom_retry(postroom_store *store, const char *id);

/*
 * One short transaction over at most limit messages; call again until *ret is
 * less than limit. retry_some takes dead messages whatever filter->status
 * says; purge_some needs status "delivered" or "dead".
 */
POSTROOM_API int postroom_retry_some(postroom_store *store, const postroom_filter *filter,
				     int32_t limit, int64_t *ret);
POSTROOM_API int postroom_purge_some(postroom_store *store, const postroom_filter *filter,
				     int32_t limit, int64_t *ret);

typedef struct postroom_counts {
	int64_t pending;
	int64_t processing;
	int64_t failed_pending; /* of the pending ones: tried at least once */
	int64_t delivered;
	int64_t dead;
	int64_t oldest_age_us; /* of what is due or being retried; -1: nothing is */
} postroom_counts;

typedef void (*postroom_topic_fn)(void *context, const char *ns, const char *topic,
				  const postroom_counts *counts);

/* Exact, so it reads the whole table. fn, if any, gets each namespace and topic. */
POSTROOM_API int postroom_stats(postroom_store *store, postroom_counts *ret, postroom_topic_fn fn,
				void *context);

/* A row of the inbox. Pointers are NULL and times 0 where the column is NULL. */
typedef struct postroom_inbox_row {
	int64_t seq;
	const char *id;
	const char *handler;
	const char *status;
	const char *topic;   /* of an event; of a command it is the handler */
	const char *key;
	const char *headers; /* JSON, as the next three */
	const char *payload; /* NULL: none, or the body is no JSON */
	const char *checkpoint;
	const char *steps;
	const char *content_type;
	const void *body;
	size_t body_len;
	int32_t attempts;
	int64_t claims;
	int64_t next_attempt_at_us;
	const char *locked_by;
	int64_t locked_until_us;
	int64_t last_attempt_at_us;
	const char *last_error;
	int64_t created_at_us;
	int64_t updated_at_us;
	int64_t processed_at_us;
} postroom_inbox_row;

/* Which rows of the inbox; zero means any. */
typedef struct postroom_inbox_filter {
	size_t size;
	const char *status; /* pending, active, completed, dead */
	const char *handler;
	const char *id;
	int64_t before_seq;    /* list: go on behind the row with this seq */
	int64_t older_than_ms; /* purge and retry: completed or dead for longer, up to 1000 years */
} postroom_inbox_filter;

#define POSTROOM_INBOX_FILTER(...) \
	(&(const postroom_inbox_filter){ .size = sizeof(postroom_inbox_filter), __VA_ARGS__ })

/* Gets each row, valid during the call; anything but 0 ends the listing. */
typedef int (*postroom_inbox_row_fn)(void *context, const postroom_inbox_row *row);

/* Newest first, limit rows at most. */
POSTROOM_API int postroom_inbox_list(postroom_store *store, const postroom_inbox_filter *filter,
				     int32_t limit, postroom_inbox_row_fn fn, void *context);

/*
 * Dead back to pending: attempts 0, due now; steps, checkpoint and last_error
 * stay. POSTROOM_NOT_FOUND when there is none or it is not dead; the error says
 * which.
 */
POSTROOM_API int postroom_inbox_retry(postroom_store *store, const char *handler, const char *id);

/*
 * One short transaction over at most limit rows; call again until *ret is less
 * than limit. retry_some takes dead ones whatever filter->status says;
 * purge_some needs status "completed" or "dead". An event that has been purged
 * is new again when it comes once more.
 */
POSTROOM_API int postroom_inbox_retry_some(postroom_store *store,
					   const postroom_inbox_filter *filter, int32_t limit,
					   int64_t *ret);
POSTROOM_API int postroom_inbox_purge_some(postroom_store *store,
					   const postroom_inbox_filter *filter, int32_t limit,
					   int64_t *ret);

typedef struct postroom_inbox_counts {
	int64_t pending;
	int64_t active;
	int64_t completed;
	int64_t dead;
} postroom_inbox_counts;

typedef void (*postroom_inbox_handler_fn)(void *context, const char *handler,
					  const postroom_inbox_counts *counts);

/* Exact, so it reads the whole table. fn, if any, gets each handler. */
POSTROOM_API int postroom_inbox_stats(postroom_store *store, postroom_inbox_counts *ret,
				      postroom_inbox_handler_fn fn, void *context);

#ifdef __cplusplus
}
#endif

#endif
