/* SPDX-License-Identifier: Apache-2.0 */
/* A relay in the test's own process, on every database. */
#ifndef TESTS_RELAY_RIG_H
#define TESTS_RELAY_RIG_H

#include "contract/store/backend.h"

#include "relay/relay.h"

struct rig {
	struct pr_relay *relay;
	int status; /* how it ended */
	struct pr_err err;
};
extern struct rig run;

/* The common configuration of these relays; its events are kept for was_logged(). */
struct pr_relay_config rig_config(void);
bool was_logged(const char *part);

void start(struct pr_relay_config config); /* in a thread of its own, after the check */
void run_in_thread(void);		   /* one that is open */
void finish(void);			   /* it ends by itself, and well */
void stop(void);

int64_t lines_in(const char *path);
void nap(void);
void wait_for_lines(const char *path, int64_t lines);
void put(const char *topic, int count);

#endif
