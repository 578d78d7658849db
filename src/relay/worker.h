/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the relay only. */
#ifndef PR_RELAY_WORKER_H
#define PR_RELAY_WORKER_H

#include "base/arena.h"
#include "base/watchdog.h"
#include "relay/breaker.h"
#include "relay/lease.h"
#include "relay/limit.h"
#include "relay/meter.h"
#include "relay/relay.h"
#include "sink/sink.h"

#include <pthread.h>
#include <stdatomic.h>

struct pr_worker {
	struct pr_relay *relay;
	struct pr_generation *generation;
	struct pr_sink_pool *pool; /* NULL: the janitor */
	pthread_t thread;
	char name[20]; /* for people and top: "worker 1" */
	struct pr_watchdog watchdog;
	bool started;
	int status;   /* how it ended */
	bool gave_up; /* gave up on an outage of its sink; other pools continue */
	struct pr_err err;
	struct postroom_store *store; /* NULL during an outage of the database */
	int64_t open_until_us;	      /* deadline for opening the store; 0: none */
	char id[PR_UUID_SIZE];	      /* locked_by, the same through all reconnects */
	struct pr_sink *sink;
	struct postroom_batch
		batches[2]; /* used alternately: a batch is logged after the next one was claimed */
	struct postroom_batch *batch; /* the current batch */
	struct pr_arena scratch;      /* memory for publishing one slice, including reasons */
	struct pr_arena content;      /* of large messages, while they are published */
	size_t content_budget;	      /* this worker's part of the relay's budget for it */
	int careful; /* number of claims that fetch one message each, without its content */
	struct pr_lease lease;		 /* the batch's */
	_Atomic int64_t in_flight;	 /* of the batch: not settled yet */
	_Atomic int64_t in_flight_bytes; /* their payloads and bodies */
	_Atomic int lanes;		 /* that it has leased for them */
	_Atomic int state;		 /* enum pr_worker_state, for metrics */
	_Atomic int64_t state_us;	 /* since then; monotonic */
	atomic_bool identified;		 /* id does not change any more */
	struct pr_log log;
	struct pr_random random;
	int64_t sleep_ms;     /* duration of its last sleep; 0: it had work since */
	bool has_watch_token; /* it waits for work on behalf of its pool */
	bool has_claim_token; /* other workers of the pool let this one claim */
	int refusals;	      /* refusals since it last had the token */
	int64_t last_count; /* size of the last batch that was not empty: an empty scan may have covered one claim path only */
	bool spurious_wakeup;  /* it was woken, and no claim has found a message yet */
	int64_t reclaim_at_us; /* when to reclaim expired leases again */
	bool reclaimed;	       /* the last pass reclaimed one: the next pass claims due messages */
	int64_t probe;	       /* ticket of its probe; 0: it does not probe */
	int32_t batch_limit;   /* batch size, adapted to the speed of the sink */
	int64_t taken;	       /* taken from the sink's rate for the current batch */
	int64_t part;	       /* its share of the sink's concurrency; 0: no limit */
	int32_t aside_most;    /* messages that were set aside, in one call */
	int64_t began_us;      /* when the last call to the sink began */
	unsigned reopened;     /* the last reopen request this worker has followed */
	_Atomic int64_t outage_since_us; /* start of the database outage; 0: none */
	int64_t collect_at_us;		 /* the janitor's: when to collect the gauges again */
	int64_t unrouted_at_us;		 /* janitor: when to count unrouted messages again */
	int64_t unrouted_logged_us;	 /* janitor: when unrouted messages were last logged */
};

/* Breaker and limits of a sink. They survive a reload, so an outage continues across it. */
struct pr_sink_state {
	struct pr_sink_state *next;
	struct pr_breaker breaker;
	struct pr_limit limit;
	struct pr_sink_meter *meter; /* shared by all of the same name */
	char *shown;		     /* its URL without secrets; "" if it has none */
	char sink[];		     /* its name and URL */
};

/*
 * One sink and its workers. Pools share nothing, so a slow sink or an outage does not affect other
 * sinks.
 */
struct pr_sink_pool {
	struct pr_generation *generation;
	const struct pr_relay_sink *sink;
	struct pr_sink_state *sink_state;
	struct pr_rules rules;	   /* its messages */
	struct pr_worker *workers; /* array of generation->config.workers */
	int watch_token; /* eventfd with one token: its holder waits for work while the others sleep */
	int claim_token; /* eventfd with one token: its holder claims while the backlog is small */
	atomic_bool quiet; /* its holder found nothing to claim and nothing to sweep */
};

/* All threads that run under one configuration. */
struct pr_generation {
	struct pr_generation *next; /* the previous generation, which is finishing */
	struct pr_relay *relay;
	struct pr_arena strings; /* memory of the configuration */
	struct pr_relay_config config;
	struct pr_stop stop; /* child of the relay's stop */
	struct pr_sink_pool *pools;
	size_t pool_count;
	struct pr_rules rules;	  /* union of the rules of all pools */
	struct pr_worker janitor; /* a worker without a pool */
	int64_t working;	  /* workers that have not ended; under the relay's lock */
};

/* Memory for the content of large messages, shared by all workers. */
struct pr_content_budget {
	pthread_mutex_t lock;
	size_t used;
	const struct pr_worker *waiter; /* worker that was refused and has precedence for a while */
	int64_t waiter_us;		/* since then */
};

struct pr_watched_thread {
	const struct pr_watchdog *watchdog;
	const char *name;
};

struct pr_relay {
	struct pr_stop stop;
	_Atomic int64_t grace_ms;
	pthread_mutex_t lock; /* protects the fields below; never held while waiting */
	pthread_cond_t ended; /* signaled when a worker ends */
	struct pr_generation *
		generation; /* the current generation; earlier ones that are still finishing follow */
	bool running;
	struct pr_watched_thread *watched_threads; /* other threads whose watchdogs are checked */
	size_t watched_count;
	struct pr_sink_state *sink_states;
	struct pr_content_budget content_budget;
	struct pr_rates rates;
	struct pr_metrics metrics;
	_Atomic unsigned reopen_requests;
	atomic_bool finishing;		       /* the input has ended */
	atomic_bool notify_unavailable_logged; /* STORE_POLLING was logged */
	atomic_bool incompatible_logged;       /* SCHEMA_INCOMPATIBLE was logged */
	_Atomic int64_t unrouted;	       /* number of unrouted messages at the last count */
	struct {
		_Atomic int64_t fetched, delivered, failed, dead, lost;
	} totals;
	struct pr_relay_totals summarized; /* totals at the last summary line */
};

/* True if the generation ends when nothing is left to do. */
static inline bool pr_generation_drains(const struct pr_generation *generation)
{
	return generation->config.drain || atomic_load(&generation->relay->finishing);
}

/* True if the generation gives up after PR_DRAIN_PATIENCE_MS of an outage. */
static inline bool pr_generation_gives_up(const struct pr_generation *generation)
{
	return generation->config.impatient || pr_generation_drains(generation);
}

/* The breaker of the worker's sink. */
static inline struct pr_breaker *pr_worker_breaker(struct pr_worker *worker)
{
	return &worker->pool->sink_state->breaker;
}

static inline struct pr_limit *pr_worker_limit(struct pr_worker *worker)
{
	return &worker->pool->sink_state->limit;
}

/* After this time no message of a worker is in flight any more. */
static inline int64_t pr_pass_max_ms(const struct pr_relay_config *config)
{
	int64_t timeout_ms = config->publish_timeout_ms;

	return config->lease_ms +
	       (config->renews_leases ? timeout_ms + timeout_ms / PR_FLIGHT_END_PART : 0);
}

/* generation.c: makes a generation with every sink open and no thread started. */
int pr_generation_new(struct pr_relay *relay, const struct pr_relay_config *config,
		      struct pr_generation **ret, struct pr_err *err);
/*
 * Starts all threads. After a failure, the threads already started have been asked to stop. Call
 * it with the relay's lock held.
 */
int pr_generation_start(struct pr_generation *generation, struct pr_err *err);
void pr_generation_stop(struct pr_generation *generation);
/*
 * Waits for all threads. Returns the failure passed in status and err, or else the first failure
 * of a thread.
 */
int pr_generation_join(struct pr_generation *generation, int status, struct pr_err *err);
void pr_generation_free(struct pr_generation *generation);
/* Initializes a log that writes where the generation's logs do. */
void pr_generation_init_log(const struct pr_generation *generation, struct pr_log *log);

/* A thread's body; sets worker->status. */
void *pr_worker_run(void *worker);
void *pr_janitor_run(void *worker);

/*
 * Logs a summary line since the last one. Logs nothing if nothing happened and there is no outage.
 */
void pr_janitor_summarize(struct pr_worker *janitor, bool trouble);

/* Counts unrouted messages and logs a change, or logs always. */
void pr_janitor_count_unrouted(struct pr_worker *janitor, bool always);

/*
 * Opens the store if it is not open. finishing: it is opened to settle published messages, for
 * which the whole grace period may be used.
 */
int pr_worker_connect(struct pr_worker *worker, bool finishing, struct pr_err *err);

/*
 * Handles a failure of the database: logs it, closes the store, pauses. Gives up only for a drain.
 */
int pr_worker_handle_outage(struct pr_worker *worker, struct pr_err *err);
/* The same without the pause, for a worker with messages in flight. */
void pr_worker_log_outage(struct pr_worker *worker, const struct pr_err *err);

/* A claim that is being sent. */
struct pr_claim_request {
	struct pr_claim claim;
	struct postroom_batch *batch;
	struct pr_lease lease;
};
/* Prepares a claim, to be sent immediately: the lease is counted from here. */
struct pr_claim_request pr_claim_prepare(struct pr_worker *worker, int32_t limit);
/* The claim was committed: makes its batch the worker's current batch. */
void pr_claim_receive(struct pr_worker *worker, const struct pr_claim_request *next);

/* claim_token.c: call these around a claim. False: another worker of the pool claims. */
bool pr_claim_token_take(struct pr_worker *worker);
void pr_claim_token_release(struct pr_worker *worker);
/* Takes the token of an eventfd. False: another worker has it. */
bool pr_token_take(int fd);
bool pr_token_release(int fd);

/*
 * load.c: the content of large messages. *ret is how many of the items, from the first one, can be
 * published now. If it is 0, some of them are finished (they cannot be received), or this has
 * waited for memory. After publishing, call pr_load_drop() before the items are settled.
 */
int pr_load_items(struct pr_worker *worker, postroom_delivery *items, size_t count, size_t *ret,
		  struct pr_err *err);
/* Frees the content, unless some of the items still have to be published. */
void pr_load_drop(struct pr_worker *worker, postroom_delivery *items, size_t count);
/* Frees the content unconditionally. */
void pr_load_drop_all(struct pr_worker *worker, struct postroom_batch *batch);
/* How many bytes of content a batch may have, so that all batches together stay bounded. */
size_t pr_load_share(const struct pr_generation *generation);

/*
 * Moves the items for which is_first() is true before the others, keeps the order within both
 * parts, and counts them.
 */
int pr_items_partition(struct pr_worker *worker, postroom_delivery *items, size_t count,
		       bool (*is_first)(const postroom_delivery *item), size_t *ret_first,
		       struct pr_err *err);

/* isolate.c: defers items that are known to make others fail, behind the other items. */
int pr_isolate_known(struct pr_worker *worker, postroom_delivery *items, size_t count,
		     struct pr_err *err);
/* How many of the items the next call may get. */
size_t pr_isolate_next(struct pr_worker *worker, const postroom_delivery *items, size_t count);
/*
 * Takes tokens of the rate for those of the items that were published before, when they are loaded
 * and about to be published again. Returns how many may be. 0: none, and it has waited.
 */
size_t pr_isolate_take(struct pr_worker *worker, const postroom_delivery *items, size_t count);
/*
 * True if some items of a call with count of left items failed together. They are UNTRIED again,
 * to be sorted after the items with a verdict are settled.
 */
bool pr_isolate_lost(struct pr_worker *worker, postroom_delivery *items, size_t count, size_t left);
/* Since when deliveries are evidence about what the last call has decided. */
int64_t pr_isolate_began_us(const struct pr_worker *worker, const postroom_delivery *items,
			    size_t count);
/* Moves deferred items behind the rest, together with the later items of their keys. */
int pr_isolate_sort(struct pr_worker *worker, postroom_delivery *items, size_t count,
		    struct pr_err *err);

/* The steps of a pass. */
int pr_claim_batch(struct pr_worker *worker, int32_t limit, struct pr_err *err);
/*
 * Publishes and settles. worker->batch has changed afterwards if the next batch was claimed with
 * it.
 */
int pr_publish_batch(struct pr_worker *worker, struct pr_err *err);
int pr_settle_items(struct pr_worker *worker, postroom_delivery *items, size_t count,
		    struct pr_err *err);
/*
 * Settles the last items of a batch and claims the next batch in the same transaction, if the
 * worker continues.
 */
int pr_settle_last(struct pr_worker *worker, postroom_delivery *items, size_t count,
		   struct pr_err *err);

/* `key=` of a log line: the dedupe key, or the id. */
static inline const char *pr_log_key(const postroom_delivery *item)
{
	return item->dedupe_key ? item->dedupe_key : item->id;
}

void pr_log_dead_letters(struct pr_worker *worker);

#endif
