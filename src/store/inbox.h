/* SPDX-License-Identifier: Apache-2.0 */
/* Incoming events, the progress of jobs, and how far sources have been read. */
#ifndef PR_STORE_INBOX_H
#define PR_STORE_INBOX_H

#include "base/err.h"
#include "core/batch.h"
#include "core/message.h"

#include <stdbool.h>

/* How an incoming event is inserted into the inbox. */
enum pr_insert_as {
	PR_INSERT_COMPLETED, /* completed, together with its effect */
	PR_INSERT_PENDING,   /* as a job */
	PR_INSERT_DEAD	     /* no handler can process it, but it is not lost */
};

/* Which earlier events of its topic and key block an event that would be inserted as completed. */
enum pr_insert_order {
	PR_ORDER_NONE,	     /* none */
	PR_ORDER_UNFINISHED, /* unfinished events, except dead ones */
	PR_ORDER_DEAD /* unfinished and dead events: dead ones block their key until an operator acts */
};

/* A checked event for one handler. The caller owns its strings. */
struct pr_incoming_event {
	const char *id;
	const char *topic;
	const char *key;	    /* NULL if none */
	const char *tenant_id;	    /* in lower case; NULL if none */
	const char *correlation_id; /* NULL if none */
	const char *content_type;
	const char *headers;	/* JSON object of strings */
	struct pr_span payload; /* JSON; data NULL: none, or not JSON */
	struct pr_span body;	/* content that is not JSON; data NULL: none */
	enum pr_insert_as how;
	int32_t attempts;  /* attempts so far */
	int64_t delay_ms;  /* delay before the next attempt */
	const char *error; /* of the last attempt; NULL if none */

	bool duplicate; /* out: a duplicate; nothing was done */
	bool waits;	/* out: pending behind an earlier event of its key */
};

/* Events to insert together. */
struct pr_inbox_insert {
	const char *handler;
	const char *statement; /* run for completed events; NULL: none */
	enum pr_insert_order order;
	struct pr_incoming_event *events; /* duplicate and waits are set */
	size_t count;
};

/* An event as the parameters of a statement; NULL, and no data, are NULL. */
struct pr_statement_parameters {
	struct pr_span payload;
	const char *id, *topic, *key, *headers, *tenant_id, *correlation_id;
};

static inline struct pr_statement_parameters pr_incoming_event_parameters(
	const struct pr_incoming_event *incoming)
{
	return (struct pr_statement_parameters){ .payload = incoming->payload,
						 .id = incoming->id,
						 .topic = incoming->topic,
						 .key = incoming->key,
						 .headers = incoming->headers,
						 .tenant_id = incoming->tenant_id,
						 .correlation_id = incoming->correlation_id };
}

static inline struct pr_statement_parameters pr_job_parameters(const postroom_delivery *job)
{
	return (struct pr_statement_parameters){
		.payload = { job->payload_len ? job->payload : NULL, job->payload_len },
		.id = job->id,
		.topic = job->topic,
		.key = job->key,
		.headers = job->headers,
		.tenant_id = job->tenant_id,
		.correlation_id = job->correlation_id
	};
}

/*
 * How far a handler has read a stream or partition. Positions are text that sorts in the broker's
 * order.
 */
struct pr_source_position {
	const char *source;
	const char *position; /* the highest position read */
	const char *purged;   /* the highest position whose row may have been purged; "": none */
};
typedef int (*pr_source_fn)(void *context, const struct pr_source_position *entry,
			    struct pr_err *err);

struct pr_progress {
	const char *handler, *id;
	int64_t fencing_token;
	const char *step, *result;
	const char *checkpoint;
};

#endif
