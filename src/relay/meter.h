/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of a relay. One per relay: it survives every reload. Workers only add to atomics, once
 * per batch where that is possible, and never wait for a reader.
 */
#ifndef PR_RELAY_METER_H
#define PR_RELAY_METER_H

#include "base/err.h"
#include "core/batch.h"
#include "relay/histogram.h"
#include "relay/metrics.h"

#include <pthread.h>

/* Topics beyond these share the label "other", which is the first in the list. */
#define PR_TOPICS_MAX 100
#define PR_TOPIC_SLOTS 256 /* a power of two, and so large that most lookups need one step */
#define PR_OUTCOMES 5	   /* by verdict */

/* The last error, for people. Workers lock it only after a failure. */
struct pr_last_error {
	pthread_mutex_t lock;
	char text[PR_LAST_ERROR_SIZE];
	int64_t at_us; /* wall clock; 0: none */
};

enum pr_death { PR_DEATH_MAX_ATTEMPTS, PR_DEATH_PERMANENT, PR_DEATH_CRASHED, PR_DEATHS };

struct pr_topic_meter {
	char name[POSTROOM_TOPIC_MAX + 1]; /* well-formed UTF-8; never changes once it is in use */
	_Atomic int64_t claimed;
	_Atomic int64_t dead[PR_DEATHS];
	struct {
		_Atomic int64_t pending, processing, dead;
	} gauges; /* as collected */
	atomic_bool collected;
	struct pr_last_error last_error;
};

struct pr_sink_meter {
	struct pr_sink_meter *next;
	_Atomic int64_t published[PR_TOPICS_MAX + 1][PR_OUTCOMES];
	atomic_bool seen[PR_TOPICS_MAX + 1]; /* the sink had messages of the topic */
	struct pr_histogram latency;
	struct pr_histogram publish[PR_OUTCOMES];
	_Atomic int64_t refunded, opened;
	_Atomic int64_t last_delivery_us; /* wall clock */
	struct pr_last_error last_error;
	char name[];
};

/* Of postroom_store_operation_duration_seconds and postroom_store_errors_total. */
enum pr_store_operation {
	PR_OPERATION_CONNECT,
	PR_OPERATION_CLAIM,
	PR_OPERATION_SETTLE,
	PR_OPERATION_SETTLE_AND_CLAIM,
	PR_OPERATION_RENEW,
	PR_OPERATION_SWEEP,
	PR_OPERATION_PURGE,
	PR_OPERATION_COLLECT,
	PR_OPERATIONS
};
enum pr_store_failure {
	PR_FAILURE_CONNECTION,
	PR_FAILURE_TIMEOUT,
	PR_FAILURE_CONFLICT,
	PR_FAILURE_OTHER,
	PR_FAILURES
};

enum pr_purged { PR_PURGED_DELIVERED, PR_PURGED_DEAD, PR_PURGED_COMPLETED, PR_PURGED_STATUSES };
enum pr_action { PR_ACTION_RETRY, PR_ACTION_DELETE, PR_ACTION_PURGE, PR_ACTIONS };

/* Of a consumer's events. An attempt is completed, failed or timed out; dead letters count beside. */
enum pr_event_outcome {
	PR_EVENT_COMPLETED,
	PR_EVENT_DUPLICATE,
	PR_EVENT_FAILED,
	PR_EVENT_DEAD,
	PR_EVENT_TIMEOUT,
	PR_EVENT_OUTCOMES
};

/* The activity of a worker. */
enum pr_worker_state {
	PR_WORKER_IDLE,
	PR_WORKER_CLAIMING,
	PR_WORKER_PUBLISHING,
	PR_WORKER_SETTLING,
	PR_WORKER_STATES
};

#define PR_REQUESTS_MAX 200 /* routes times codes; further ones are counted under "other" */
struct pr_request_meter {
	const char *route; /* of the route table, or "other" */
	int code;
	_Atomic int64_t count;
};

/* The janitor's last collection. */
struct pr_collection {
	pthread_mutex_t lock;
	_Atomic int64_t wanted_us; /* monotonic: until when readers need it; 0: no readers */
	_Atomic int64_t at_us;	   /* wall clock; 0: there is none */
	_Atomic int64_t ahead_us;  /* how far the database's clock is ahead of ours */
	struct pr_gauges gauges;
	struct pr_topic_gauges *groups;
	size_t group_count;
	char *names; /* the strings of the groups */
};

struct pr_metrics {
	int64_t started_us;	    /* wall clock, as all here */
	int64_t process_started_us; /* 0: unknown */
	pthread_mutex_t lock;	    /* to add a topic, a sink or a request */
	struct pr_topic_meter topics[PR_TOPICS_MAX + 1];
	_Atomic size_t topic_count;
	_Atomic unsigned char slots[PR_TOPIC_SLOTS]; /* index of a topic; 0: free */
	atomic_bool topics_logged;
	struct pr_sink_meter *_Atomic sinks;
	struct pr_histogram store[PR_OPERATIONS];
	_Atomic int64_t store_errors[PR_OPERATIONS][PR_FAILURES];
	struct pr_histogram batches;
	_Atomic int64_t purged[PR_PURGED_STATUSES];
	_Atomic int64_t actions[PR_ACTIONS];
	_Atomic int64_t wakeups[3]; /* by enum pr_wakeup */
	_Atomic int64_t events[PR_EVENT_OUTCOMES];
	struct pr_histogram handler;
	atomic_bool reload_failed;
	_Atomic int64_t reloaded_us;
	struct pr_request_meter requests[PR_REQUESTS_MAX];
	_Atomic size_t request_count;
	struct pr_collection collection;
	struct pr_health_hook {
		pthread_mutex_t lock;
		pr_health_fn fn; /* NULL: the relay's own view */
		void *context;
	} health;
};

void pr_meter_init(struct pr_metrics *metrics);
void pr_meter_release(struct pr_metrics *metrics);

/* The index of a topic's meter: 0 for those beyond the limit. */
size_t pr_meter_topic(struct pr_metrics *metrics, const char *topic);
/* The same, but adds no topic. */
size_t pr_meter_find_topic(struct pr_metrics *metrics, const char *topic);
/* Returns when the error was; 0: there is none, and ret is empty. */
int64_t pr_meter_read_error(struct pr_last_error *error, char ret[PR_LAST_ERROR_SIZE]);
/* The sink's, from now on if it is new. NULL: no memory. */
struct pr_sink_meter *pr_meter_sink(struct pr_metrics *metrics, const char *name);

struct pr_worker;

/* A worker has received a batch. */
void pr_meter_claimed(struct pr_worker *worker, struct postroom_batch *batch);
/* A worker's items are settled. *ret gets the delivery latencies, for the history. */
void pr_meter_settled(struct pr_worker *worker, const postroom_delivery *items, size_t count,
		      struct pr_tally *ret);
/* Messages that became dead letters at the claim: they had no attempts left. */
void pr_meter_dead_lettered(struct pr_worker *worker, const struct postroom_batch *batch);
void pr_meter_state(struct pr_worker *worker, enum pr_worker_state state);
/* Returns status. A lost lease and a stop are no errors. */
int pr_meter_store(struct pr_metrics *metrics, enum pr_store_operation operation, int64_t begun_us,
		   int status, const struct pr_err *err);
void pr_meter_reload(struct pr_metrics *metrics, bool ok);

/* The text, and with it that of the process itself if it is to be. */
int pr_metrics_write_part(struct pr_relay *relay, struct pr_buf *out, bool openmetrics,
			  bool process);
extern const char *const pr_worker_states[PR_WORKER_STATES];

/* gauges.c: reads the gauges, and says when to do so again; the janitor's. */
void pr_janitor_collect(struct pr_worker *janitor);
bool pr_janitor_is_watched(const struct pr_worker *janitor);
/* Call it when the gauges are read. */
void pr_meter_want(struct pr_metrics *metrics);

#endif
