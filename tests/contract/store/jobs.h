/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the inbox's jobs. The handler is "h" unless a test says otherwise. */
#ifndef TESTS_CONTRACT_STORE_JOBS_H
#define TESTS_CONTRACT_STORE_JOBS_H

#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

void job_submit(const char *id, const char *payload);

/* Claims jobs: the fields are those of struct pr_claim; without them 10, with 3 attempts each. */
void jobs_claim(postroom_store *by, struct postroom_batch *batch, struct pr_claim claim);
#define JOBS(by, batch, ...)                                                                       \
	jobs_claim(by, batch, (struct pr_claim){ .scope.ns = "h", __VA_ARGS__ })
/* "a b ", in the order of the batch. */
const char *jobs_in(const struct postroom_batch *batch);

/* Settles all of a batch; a failure waits for an hour. Returns the status. */
int jobs_settle(postroom_store *by, struct postroom_batch *batch, postroom_verdict verdict);

/* Claims and completes until nothing is due; what was done, in its order. */
const char *jobs_done(bool unordered);

const char *job_status(const char *id);
int64_t jobs(const char *status); /* how many */
void jobs_shift(const char *column, int64_t seconds);

/* An event of topic "t" with an amount of 7, unless the fields say otherwise. */
struct pr_incoming_event incoming(struct pr_incoming_event event);
#define ARRIVAL(...) incoming((struct pr_incoming_event){ __VA_ARGS__ })
/* Takes them in with the ledger's statement. */
int inbox_insert(enum pr_insert_order order, struct pr_incoming_event *incoming_events,
		 size_t count, size_t *ret_at, struct pr_err *err);
/* The same, which must work. */
void taken_in(enum pr_insert_order order, struct pr_incoming_event *incoming_events, size_t count);
#define INSERT_EVENTS(order, ...)                                                                  \
	do {                                                                                       \
		struct pr_incoming_event these[] = { __VA_ARGS__ };                                \
		taken_in(order, these, sizeof(these) / sizeof(these[0]));                          \
	} while (0)

/* A table for effects, what writes into it, and how much is in it. */
void ledger_make(void);
const char *ledger_statement(void);
int64_t ledger(void);

#endif
