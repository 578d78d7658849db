/* SPDX-License-Identifier: Apache-2.0 */
/* The members of postroom_delivery in <postroom/store.h>. They may change in any release. */
#ifndef PR_CORE_DELIVERY_H
#define PR_CORE_DELIVERY_H

#include <postroom/store.h>

/* A claimed message. Its strings live as long as its batch. */
struct postroom_delivery {
	const char *id;
	const char *ns;
	const char *topic;
	const char *key; /* NULL if none, like the next three */
	const char *tenant_id;
	const char *dedupe_key;
	const char *correlation_id;
	const char *content_type;
	const char *headers; /* JSON object of strings */
	const char *payload; /* JSON text as it was enqueued; ends in NUL */
	size_t payload_len;
	const void *body; /* NULL if none */
	size_t body_len;
	int attempt;	       /* 1 for the first */
	int64_t created_at_us; /* microseconds since 1970 */

	/* Set by the publisher, and by ack, nack, reject and release. */
	postroom_verdict verdict;
	const char *reason;  /* NULL or a string that outlives the settle */
	int64_t retry_in_ms; /* when to retry; < 0: by the backoff */

	/* After settling: POSTROOM_OK, or POSTROOM_LEASE_LOST. */
	int settled;
	int dead; /* settling made it a dead letter */

	int settled_by_handler; /* the handler settled it together with its effect */

	/* Private to the store. */
	int64_t seq;
	int64_t fencing_token;
	int64_t due_us;
	int64_t ctid;  /* ctid of its row at the claim */
	int lane;      /* 1 and up: the lane whose lease covers it; 0: it has a row lease */
	int unordered; /* its key implies no order */

	/* Private to the relay; times are monotonic, 0: not yet. */
	int64_t begun_us;  /* when its publish began, if the sink set it */
	int64_t judged_us; /* when it got its verdict */
	int64_t lost_us;   /* when the first call began in which it failed together with others */
	int together;	   /* it shares its verdict with a group: one message of the group may be
			    * the cause */
	int by_name;	   /* refused because of its own target, such as a path built from its
			  * topic */
	int aside;	   /* to be published after the others, in a small call */
	int charged;	   /* it was UNREACHABLE, and became FAILED because other messages were
			  * delivered */
	size_t withheld;   /* approximate bytes of content still in the database; 0: none */
	int loaded;	   /* its content was loaded after the claim */
	size_t content_bytes; /* size of payload and body when it was claimed */
};

#endif
