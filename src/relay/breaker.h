/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The circuit breaker of one sink, shared by all workers. Callers pass the time, on the monotonic
 * clock. While it is open, nothing is claimed for the sink, except for one probe every few
 * seconds.
 *
 * FAILED verdicts of a server open the breaker if nothing else came between: PR_BREAKER_RUN in a
 * row, over at least two messages. Those attempts are refunded. If they were settled already, the
 * next failure is not counted instead. A single message that keeps failing is poison and becomes a
 * dead letter. So does a message that fails whether others are delivered or not: after each
 * delivery, the next failure of a refunded message counts.
 *
 * UNREACHABLE is about the sink or about the message. Order in time decides:
 *
 * - It is about the message if a message that began after the failure was delivered, by any
 *   worker. It is also about the message if it is the only one of its call that could not reach
 *   the sink, or was refused for the name of its target, and anything was delivered since the call
 *   began. Such a verdict becomes FAILED: it counts, backs off and ends as a dead letter.
 * - Otherwise it is about the sink. If nothing was delivered since the call began, the breaker
 *   opens immediately, and all attempts of the call are refunded.
 * - If something was delivered since the call began, the breaker is in doubt: it is half-open
 *   immediately, and one other message is the probe. If the probe is delivered, the breaker
 *   closes. If it fails, this is an outage, and only then it is logged.
 *
 * Refunded messages are remembered as poison suspects. If another message is delivered later,
 * their next failure is about the message. A message that was charged once is guilty: its next
 * failures count without further evidence, until it is delivered or the breaker opens because of
 * others.
 *
 * Messages that fail together, because they share a connection, are no evidence: the worker first
 * publishes them again in smaller parts (publish.c).
 */
#ifndef PR_RELAY_BREAKER_H
#define PR_RELAY_BREAKER_H

#include "relay/poison.h"
#include "sink/sink.h"

#include "core/delivery.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PR_BREAKER_RUN 5 /* failures in a row that are an outage */

#define PR_BREAKER_REFUNDED_MAX 64 /* remembered refunds */

/*
 * The first probe is chosen from this many messages: a claim of one message might not find a
 * second one next time.
 */
#define PR_BREAKER_WINDOW_MIN 2

/* Pause between two probes. Workers draw it at random, so that a fleet does not probe in step. */
#define PR_BREAKER_PAUSE_MIN_MS 2000
#define PR_BREAKER_PAUSE_MAX_MS 3000

/* Longest pause that a failing server may request (Retry-After). */
#define PR_BREAKER_LATER_MAX_MS 300000

/* Failures of one message that have been settled. */
struct pr_breaker_failures {
	int64_t seq; /* 0: none */
	int32_t failures;
};

struct pr_breaker {
	pthread_mutex_t lock;
	int64_t open_since_us; /* 0: closed */
	int64_t probe_at_us;   /* when the next probe may begin */
	int64_t probe;	       /* ticket of the probe in flight; 0: none */
	int64_t probes;	       /* tickets given out */
	int64_t probed_seq;    /* seq of the last probe */
	size_t window;	       /* of how many one is to probe */
	int64_t refunded
		[PR_BREAKER_REFUNDED_MAX];  /* failed while open and were refunded; 0: unused */
	size_t refunded_at, refunded_count; /* from where, and how many places since it opened */
	int32_t run_length;		    /* failures since anything else */
	struct pr_breaker_failures run[PR_BREAKER_RUN - 1];	  /* the messages of this run */
	struct pr_breaker_failures to_refund[PR_BREAKER_RUN - 1]; /* to whom, since it opened */
	char reason[300];					  /* why it opened, for people */
	bool doubtful; /* open, but perhaps only because of a message: probe at once */
	struct pr_poison_suspects suspects; /* could not reach the sink; perhaps it is about them */
	struct pr_delivery_evidence proof;  /* written by the sinks of all workers */
};

enum pr_breaker_permission {
	PR_BREAKER_CLOSED, /* claim as you like */
	PR_BREAKER_PROBE,  /* this worker probes; it ends with record() or release_probe() */
	PR_BREAKER_OPEN	   /* claim nothing */
};

void pr_breaker_init(struct pr_breaker *breaker);
void pr_breaker_release(struct pr_breaker *breaker);

/*
 * ret_wait_ms is set for PR_BREAKER_OPEN: when to check again. ret_probe is set for
 * PR_BREAKER_PROBE: the ticket of the probe. After longest_us without a result, a probe counts as
 * lost.
 */
enum pr_breaker_permission pr_breaker_check(struct pr_breaker *breaker, int64_t now_us,
					    int64_t longest_us, int64_t *ret_probe,
					    int64_t *ret_wait_ms);

/* There was no message to probe with: another worker may probe. */
void pr_breaker_release_probe(struct pr_breaker *breaker, int64_t probe, int64_t now_us);

/*
 * How many messages to claim for choose(), at most: few at first, more after all of them have been
 * probed.
 */
size_t pr_breaker_window(struct pr_breaker *breaker);

/*
 * Index of the item to probe with: the one after the last probe, so that no poison message keeps
 * the breaker open. before is their order by pr_sink_order(): an item behind another of its key
 * cannot be the probe. NULL: only the first can.
 */
size_t pr_breaker_choose(struct pr_breaker *breaker, const postroom_delivery *items, size_t count,
			 const size_t *before);

enum pr_breaker_change { PR_BREAKER_UNCHANGED, PR_BREAKER_OPENED, PR_BREAKER_RECOVERED };

/* Results of a call to the sink, before they are settled. */
struct pr_breaker_results {
	postroom_delivery *items; /* FAILED becomes UNREACHABLE if the attempt is refunded, */
	size_t count;		  /* and UNREACHABLE becomes FAILED if it is about the message */
	int64_t began_us;	  /* when the call began */
	bool server;		  /* the sink is one: its failures may be an outage */
	int64_t probe;		  /* ticket of the probe; 0: not a probe */
	int64_t pause_us;	  /* to the next, unless the server wants it later */
};
enum pr_breaker_change pr_breaker_record(struct pr_breaker *breaker, int64_t now_us,
					 const struct pr_breaker_results *results);

bool pr_breaker_is_open(struct pr_breaker *breaker);

/* Is a probe on its way? */
bool pr_breaker_is_probing(struct pr_breaker *breaker);

/*
 * Sets aside on items that are known to make other items of their call fail. False: there is none.
 */
bool pr_breaker_mark_alone(struct pr_breaker *breaker, postroom_delivery *items, size_t count,
			   int aside);

/* How long it has been open, 0 if closed or in doubt; reason gets its text. */
int64_t pr_breaker_open_ms(struct pr_breaker *breaker, int64_t now_us, char reason[300]);

#endif
