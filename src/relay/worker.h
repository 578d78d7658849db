/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the relay share, and nobody else sees. */
#ifndef PR_RELAY_WORKER_H
#define PR_RELAY_WORKER_H

#include "base/arena.h"
#include "base/pulse.h"
#include "relay/breaker.h"
#include "relay/lease.h"
#include "relay/limit.h"
#include "relay/relay.h"
#include "sink/sink.h"

#include <pthread.h>
#include <stdatomic.h>

struct pr_worker {
	struct pr_relay *relay;
	struct pr_crew *crew;
	struct pr_outlet *outlet; /* NULL: the janitor */
	pthread_t thread;
	char name[20]; /* for people and top: "worker 1" */
	struct pr_pulse pulse;
	bool started;
	int status; /* how it ended */
	bool gave_up; /* on a sink that stays away: the others go on */
	struct pr_err err;
	struct postroom_store *store; /* NULL while the database is away */
	int64_t hurry_us; /* until when it may be opened; 0: as long as it takes */
	char id[PR_UUID_SIZE];	      /* locked_by, the same through all reconnects */
	struct pr_sink *sink;
	struct postroom_batch batches[2]; /* they take turns: each is told after the next was claimed */
	struct postroom_batch *batch;	  /* the one at hand */
	struct pr_arena scratch;	  /* what publishing a slice needs, reasons included */
	struct pr_lease lease;		  /* the batch's */
	_Atomic int64_t in_flight;	  /* of the batch: not settled yet */
	struct pr_log log;
	struct pr_random random;
	int64_t rest_ms;	 /* how long it rested the last time; 0: it had work since */
	bool watching;		 /* it looks for all workers of the outlet */
	bool in_turn;		 /* the others leave it to this one to claim */
	int passed_over;	 /* how often it has left it to another since */
	int64_t last_count;	 /* of the last batch that was not empty: a look may be at one arm alone */
	bool vain;		 /* its rest ended for something that no claim has found yet */
	int64_t suspects_at_us;	 /* when to look for expired leases again */
	bool suspected;		 /* the last pass found one: now it is the others' turn */
	int64_t probe;		 /* its ticket to find out whether the sink is back; 0: it has none */
	int32_t batch_limit;	 /* claimed at once, as the sink is fast */
	int64_t taken;		 /* of the sink's rate, for the batch at hand */
	int64_t part;		 /* of the sink's concurrency; 0: there is no limit */
	unsigned reopened;	 /* the last reopen request this worker has followed */
	_Atomic int64_t trouble_since_us; /* since when the database fails; 0: it does not */
	int64_t unrouted_at_us;	 /* the janitor's: when to look for messages without a route again */
	int64_t unrouted_told_us; /* and when it was last said that there are some */
};

/* What is known of a sink, whatever configuration it is used by: a reload forgets no outage. */
struct pr_gate {
	struct pr_gate *next;
	struct pr_breaker breaker;
	struct pr_limit limit;
	char sink[]; /* its name and URL */
};

/*
 * One sink with everything that belongs to it. Outlets share nothing: one that is
 * away, or slow, costs the others nothing.
 */
struct pr_outlet {
	struct pr_crew *crew;
	const struct pr_relay_sink *sink;
	struct pr_gate *gate;
	struct pr_rules rules;	   /* its messages */
	struct pr_worker *workers; /* crew->config.workers of them */
	int watch; /* eventfd with one token: who has it looks for work while the others sleep */
	int turn;  /* the same: who has it claims, where there is little */
	atomic_bool quiet; /* that one has found nothing, not even something to clean up */
};

/* All who work by one configuration. */
struct pr_crew {
	struct pr_crew *next; /* the one before it, which is finishing */
	struct pr_relay *relay;
	struct pr_arena strings; /* the configuration's, and what was made of it */
	struct pr_relay_config config;
	struct pr_stop stop; /* under the relay's */
	struct pr_outlet *outlets;
	size_t outlet_count;
	struct pr_rules rules;	  /* of all outlets together */
	struct pr_worker janitor; /* a worker without an outlet */
	int64_t working;	  /* workers that have not ended; under the relay's lock */
};

struct pr_guest {
	const struct pr_pulse *pulse;
	const char *name;
};

struct pr_relay {
	struct pr_stop stop;
	_Atomic int64_t grace_ms;
	pthread_mutex_t lock; /* for what follows; nobody waits for anything while holding it */
	pthread_cond_t ended; /* a worker has */
	struct pr_crew *crew; /* who works now, and those before who are not done yet */
	bool running;
	struct pr_guest *guests; /* others who are watched */
	size_t guest_count;
	struct pr_gate *gates;
	struct pr_rates rates;
	_Atomic unsigned reopen_requests;
	atomic_bool finishing; /* no more is coming */
	atomic_bool told_deaf; /* that commits do not wake it */
	_Atomic int64_t unrouted; /* messages that no route wants, when last looked at */
	struct {
		_Atomic int64_t fetched, delivered, failed, dead, lost;
	} totals;
	struct pr_relay_totals summarized; /* by the last summary */
};

/* Is it to end when nothing is left to do? */
static inline bool pr_crew_drains(const struct pr_crew *crew)
{
	return crew->config.drain || atomic_load(&crew->relay->finishing);
}

/* Does it give up on who stays away? */
static inline bool pr_crew_gives_up(const struct pr_crew *crew)
{
	return crew->config.impatient || pr_crew_drains(crew);
}

/* Of the worker's sink. */
static inline struct pr_breaker *pr_worker_breaker(struct pr_worker *worker)
{
	return &worker->outlet->gate->breaker;
}

static inline struct pr_limit *pr_worker_limit(struct pr_worker *worker)
{
	return &worker->outlet->gate->limit;
}

/* What a worker has in flight is over after so long, one way or the other. */
static inline int64_t pr_pass_ms(const struct pr_relay_config *config)
{
	int64_t timeout_ms = config->publish_timeout_ms;

	return config->lease_ms +
	       (config->beats ? timeout_ms + timeout_ms / PR_FLIGHT_END_PART : 0);
}

/* crew.c: complete, with every sink open and no thread started. */
int pr_crew_make(struct pr_relay *relay, const struct pr_relay_config *config, struct pr_crew **ret,
		 struct pr_err *err);
/* All threads; after a failure those that there are have been told to stop. Held: the relay's lock. */
int pr_crew_start(struct pr_crew *crew, struct pr_err *err);
void pr_crew_stop(struct pr_crew *crew);
/* Waits for all of them. status and err: a failure so far, or else the first of theirs. */
int pr_crew_join(struct pr_crew *crew, int status, struct pr_err *err);
void pr_crew_free(struct pr_crew *crew);
/* Writes where the crew's own logs do. */
void pr_crew_init_log(const struct pr_crew *crew, struct pr_log *log);

/* A thread's body; sets worker->status. */
void *pr_worker_run(void *worker);
void *pr_janitor_run(void *worker);

/* One line about what has happened since the last one; none if nothing has, unless there is trouble. */
void pr_janitor_summarize(struct pr_worker *janitor, bool trouble);

/* Looks for messages that no route wants, and says so if that is news, or always. */
void pr_janitor_look_unrouted(struct pr_worker *janitor, bool always);

/*
 * Opens the store if it is not open. POSTROOM_OK or why not. finishing: to settle
 * what is published, for which the whole grace of a stop may be used.
 */
int pr_worker_connect(struct pr_worker *worker, bool finishing, struct pr_err *err);

/* The database failed: says so, closes it, pauses. Gives up only for a drain. */
int pr_worker_trouble(struct pr_worker *worker, struct pr_err *err);
/* The same, but for the pause: for who has something under way. */
void pr_worker_tell_trouble(struct pr_worker *worker, const struct pr_err *err);

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

/* turn.c: around a claim. False: it is left to another one, who claims. */
bool pr_turn_take(struct pr_worker *worker);
void pr_turn_leave(struct pr_worker *worker);
/* The one token of an eventfd; false: another has it. */
bool pr_token_take(int fd);
bool pr_token_leave(int fd);

/* Moves those that are to be first before the others, each in their order, and counts them. */
int pr_items_part(struct pr_worker *worker, postroom_delivery *items, size_t count,
		  bool (*is_first)(const postroom_delivery *item), size_t *ret_first,
		  struct pr_err *err);

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
