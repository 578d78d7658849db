/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An outage is not poison: while the sink is away nothing is claimed for it, but
 * for what finds out every few seconds whether it is back. One breaker a sink,
 * shared by all workers. Time is given, on the monotonic clock.
 *
 * UNREACHABLE opens it at once. FAILED from a server does when there is nothing
 * else: so many in a row, over at least two messages. Those attempts are given
 * back; where they were written down already, the next failure is not counted
 * instead. One message alone that fails and fails is poison, and dies of it. So
 * does one that fails whether others get through or not: whenever one has got
 * through, the next failure of those who had one given back is their own.
 */
#ifndef PR_RELAY_BREAKER_H
#define PR_RELAY_BREAKER_H

#include <postroom/store.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PR_BREAKER_RUN 5 /* failures in a row that are an outage */

#define PR_BREAKER_SPARED 64 /* of whom it is remembered */

/* Of so many the first is chosen: a store that is asked for one may not find two the next time. */
#define PR_BREAKER_WINDOW_MIN 2

/* Between two probes; the worker draws a pause from this, or a fleet would knock in step. */
#define PR_BREAKER_PAUSE_MIN_MS 2000
#define PR_BREAKER_PAUSE_MAX_MS 3000

/* A server that fails may ask for a longer one, up to this. */
#define PR_BREAKER_LATER_MAX_MS 300000

/* Failures of one message that have been written down. */
struct pr_breaker_debt {
	int64_t seq; /* 0: none */
	int32_t failures;
};

struct pr_breaker {
	pthread_mutex_t lock;
	int64_t open_since_us;		   /* 0: closed */
	int64_t probe_at_us;		   /* when the next may go */
	int64_t probe;			   /* the ticket of who is away; 0: nobody */
	int64_t probes;			   /* tickets given out */
	int64_t probed_seq;		   /* who went last */
	size_t window;			   /* of how many one is to probe */
	int64_t spared[PR_BREAKER_SPARED]; /* failed while open, at no charge; 0: none */
	size_t spares_at, spares;	   /* from where, and how many places since it opened */
	int32_t run_length;		   /* failures since anything else */
	struct pr_breaker_debt run[PR_BREAKER_RUN - 1];	 /* whose they are */
	struct pr_breaker_debt owed[PR_BREAKER_RUN - 1]; /* to whom, since it opened */
	char reason[300];				 /* why it opened, for people */
};

enum pr_breaker_answer {
	PR_BREAKER_CLOSED, /* claim as you like */
	PR_BREAKER_PROBE,  /* you are the one who finds out; end with heed() or leave() */
	PR_BREAKER_OPEN	   /* claim nothing */
};

void pr_breaker_init(struct pr_breaker *breaker);
void pr_breaker_release(struct pr_breaker *breaker);

/*
 * ret_wait_ms is set for PR_BREAKER_OPEN: when to ask again. ret_probe is set for
 * PR_BREAKER_PROBE: the ticket to come back with. longest_us: a probe of which nothing
 * was heard for so long will not come back.
 */
enum pr_breaker_answer pr_breaker_ask(struct pr_breaker *breaker, int64_t now_us,
				      int64_t longest_us, int64_t *ret_probe, int64_t *ret_wait_ms);

/* There was nothing to probe with: whoever finds something may. */
void pr_breaker_leave(struct pr_breaker *breaker, int64_t probe, int64_t now_us);

/* How many to claim for choose(), at most: few at first, and more when all of them have been. */
size_t pr_breaker_window(struct pr_breaker *breaker);

/*
 * Which of the items is to be the probe: the one that comes after the last, so
 * that no message keeps it open that would fail anyway. before is their order
 * by pr_sink_order(): one that stands behind another can not go. NULL: only the
 * first can.
 */
size_t pr_breaker_choose(struct pr_breaker *breaker, const postroom_delivery *items, size_t count,
			 const size_t *before);

enum pr_breaker_news { PR_BREAKER_SAME, PR_BREAKER_OPENED, PR_BREAKER_SHUT };

/* What came of a call to the sink, before it is settled. */
struct pr_breaker_heard {
	postroom_delivery *items; /* FAILED becomes UNREACHABLE where the attempt is given back */
	size_t count;
	bool server;	  /* the sink is one: its failures may be an outage */
	int64_t probe;	  /* its ticket; 0: this was none */
	int64_t pause_us; /* to the next, unless the server wants it later */
};
enum pr_breaker_news pr_breaker_heed(struct pr_breaker *breaker, int64_t now_us,
				     const struct pr_breaker_heard *heard);

bool pr_breaker_is_open(struct pr_breaker *breaker);

/* How long it has been open, 0 if closed; reason gets its text. */
int64_t pr_breaker_open_ms(struct pr_breaker *breaker, int64_t now_us, char reason[300]);

#endif
