/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the relay share, and nobody else sees. */
#ifndef PR_RELAY_WORKER_H
#define PR_RELAY_WORKER_H

#include "base/pulse.h"
#include "relay/breaker.h"
#include "relay/lease.h"
#include "relay/limit.h"
#include "relay/relay.h"
#include "sink/sink.h"

#include <pthread.h>
#include <stdatomic.h>

/* A batch's payloads and bodies in memory; a worker has two batches at most. */
#define PR_BATCH_BYTES ((size_t)8 * 1024 * 1024)

/* With --drain: how long a sink or a database may stay away before we give up. */
#define PR_DRAIN_PATIENCE_MS 30000

struct pr_worker {
	struct pr_relay *relay;
	pthread_t thread;
	char name[20]; /* for people and top: "worker 1" */
	struct pr_pulse pulse;
	bool started;
	int status; /* how it ended */
	struct pr_err err;
	struct postroom_store *store; /* NULL while the database is away */
	char id[PR_UUID_SIZE];	      /* locked_by, the same through all reconnects */
	struct pr_sink *sink;
	struct postroom_batch batches[2]; /* they take turns: each is told after the next was claimed */
	struct postroom_batch *batch;	  /* the one at hand */
	struct pr_lease lease;		  /* the batch's */
	_Atomic int64_t in_flight;	  /* of the batch: not settled yet */
	struct pr_log log;
	struct pr_random random;
	int64_t rest_ms;	 /* how long it rested the last time; 0: it had work since */
	int64_t suspects_at_us;	 /* when to look for expired leases again */
	bool suspected;		 /* the last pass found one: now it is the others' turn */
	bool probing;		 /* it is to find out whether the sink is back, and has not yet */
	int32_t batch_limit;	 /* claimed at once, as the sink is fast */
	int64_t taken;		 /* of the sink's rate, for the batch at hand */
	int64_t part;		 /* of the sink's concurrency; 0: there is no limit */
	unsigned reopened;	 /* the last reopen request this worker has followed */
	_Atomic int64_t trouble_since_us; /* since when the database fails; 0: it does not */
};

struct pr_relay {
	struct pr_relay_config config;
	struct pr_stop stop;
	struct pr_breaker breaker;
	struct pr_limit limit;
	struct pr_rates rates;
	struct pr_worker *workers;
	struct pr_worker janitor; /* a worker without a sink */
	_Atomic unsigned reopen_requests;
	atomic_bool told_deaf; /* that commits do not wake it */
	struct {
		_Atomic int64_t fetched, delivered, failed, dead, lost;
	} totals;
	struct pr_relay_totals summarized; /* by the last summary */
};

/* Of the worker's sink. */
static inline struct pr_breaker *pr_worker_breaker(struct pr_worker *worker)
{
	return &worker->relay->breaker;
}

static inline struct pr_limit *pr_worker_limit(struct pr_worker *worker)
{
	return &worker->relay->limit;
}

/* A thread's body; sets worker->status. */
void *pr_worker_run(void *worker);
void *pr_janitor_run(void *worker);

/* One line about what has happened since the last one; none if nothing has, unless there is trouble. */
void pr_janitor_summarize(struct pr_worker *janitor, bool trouble);

/*
 * Opens the store if it is not open. POSTROOM_OK or why not. finishing: to settle
 * what is published, for which the whole grace of a stop may be used.
 */
int pr_worker_connect(struct pr_worker *worker, bool finishing, struct pr_err *err);

/* The database failed: says so, closes it, pauses. Gives up only when draining. */
int pr_worker_trouble(struct pr_worker *worker, struct pr_err *err);

/* A claim on its way. */
struct pr_next {
	struct pr_claim claim;
	struct postroom_batch *batch;
	struct pr_lease lease;
};
/* To be sent at once: the lease runs from here. */
struct pr_next pr_claim_prepare(struct pr_worker *worker, int32_t limit);
/* It was committed: the worker has its batch from now on. */
void pr_claim_receive(struct pr_worker *worker, const struct pr_next *next);

/* The steps of a pass. */
int pr_claim_batch(struct pr_worker *worker, int32_t limit, struct pr_err *err);
/* Settles too; worker->batch is another one after it if the next has been claimed on the way. */
int pr_publish_batch(struct pr_worker *worker, struct pr_err *err);
int pr_settle_items(struct pr_worker *worker, postroom_delivery *items, size_t count,
		    struct pr_err *err);
/* The last of their batch: claims the next one in the same transaction, if there is to be one. */
int pr_settle_last(struct pr_worker *worker, postroom_delivery *items, size_t count,
		   struct pr_err *err);

/* `key=` of a log line: the dedupe key, or the id. */
static inline const char *pr_log_key(const postroom_delivery *item)
{
	return item->dedupe_key ? item->dedupe_key : item->id;
}

void pr_log_buried(struct pr_worker *worker);

#endif
