/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay in the test's own process, on every database of the contract. What
 * its callback does is the test's; what it was called with is kept here.
 */
#ifndef TESTS_LIBRARY_RELAY_H
#define TESTS_LIBRARY_RELAY_H

#include "contract/store/backend.h"

#include <postroom/relay.h>
#include <pthread.h>
#include <stdatomic.h>

/* The verdict of a test's callback for one message; index counts the messages of a call. */
typedef void (*judge_fn)(postroom_delivery *item, size_t index, postroom_flight *flight);

struct rig {
	postroom_relay *relay;
	judge_fn judge;
	bool silent;		 /* open it without a log */
	atomic_int calls;	 /* of the callback */
	atomic_int flag, inside; /* the test's own */
	pthread_mutex_t lock;	 /* for what follows */
	char seen[4000];	 /* the payloads, a space behind each, in the order they came */
	char events[40000];	 /* "EVENT fields\n" of the log */
};
extern struct rig rig;

/* A postroom_publish_fn: notes each message and asks rig.judge about it. */
void publish(void *context, postroom_delivery *const *items, size_t count, postroom_flight *flight);
void keep_event(void *context, postroom_log_level level, const char *event, const char *fields);

/* On the test's database, with the functions above and short delays unless options says other. */
void open_relay(const postroom_relay_options *options);
void run_relay(judge_fn judge); /* must end well */
void close_relay(void);
#define OPEN(...) open_relay(POSTROOM_RELAY(__VA_ARGS__))
/* All three; the options follow the function, at least the workers. */
#define DRAIN(judge, ...)                                                                          \
	do {                                                                                       \
		OPEN(.drain = 1, __VA_ARGS__);                                                     \
		run_relay(judge);                                                                  \
		close_relay();                                                                     \
	} while (0)

postroom_totals totals(void);	   /* also of a relay that has been closed since */
bool was_logged(const char *part); /* by the log, so far */
void nap(void);			   /* a millisecond, inside a loop that waits for a condition */

void deliver(postroom_delivery *item, size_t index, postroom_flight *flight);

#endif
