/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of PostgreSQL's own behavior; see pgsql.c. */
#ifndef TESTS_CONTRACT_STORE_PGSQL_H
#define TESTS_CONTRACT_STORE_PGSQL_H

#include "contract/store/backend.h"

#include <libpq-fe.h>
#include <pthread.h>

#define PGSQL_TEST(test_name) ON_ONE(test_name, backend_pgsql)
#define LANE_TEST(test_name) ON_ONE(test_name, backend_pgsql_lane)

#define TENANT "0f5a3c1e-7b2d-4e9a-8c11-2233445566aa"

static inline PGconn *conn_of(struct session *session)
{
	return session->native;
}

/* Whether a store has run a statement. */
struct pgsql_sql;
extern const struct pgsql_sql pr_sql_claim_lanes, pr_sql_claim_lanes_by_row,
	pr_sql_claim_lanes_unblocked, pr_sql_claim_lanes_fast, pr_sql_settle_lanes_to_history,
	pr_sql_settle_delivered_lanes_to_history;
bool is_prepared(postroom_store *used, const struct pgsql_sql *sql);

/* Returns when session waits for a lock; eye is a session that looks on. */
void await_blocked(struct session *eye, struct session *session);
void await_blocked_pid(struct session *eye, int pid);
void await_unblocked_pid(struct session *eye, int pid);

/* Ends a session by force, and returns when it is gone. */
void end_backend(struct session *eye, int pid);

/* The server's reply to a statement that it must refuse. */
struct refusal {
	char sqlstate[6];
	char constraint[64];
	char message[500];
};
struct refusal refusal_of(struct session *session, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* An enqueue in a thread of its own, in the transaction that its session has open. */
struct producer {
	struct session *session;
	const postroom_message *messages;
	size_t count;		    /* more than one: as a bulk */
	postroom_receipt *receipts; /* of a bulk; NULL: none */
	int status;
	postroom_receipt receipt;
	pthread_t thread;
};
void start_producer(struct producer *producer);
void end_producer(struct producer *producer);

/* So many messages, with more columns than topic and payload; i is the number of each. */
void fill(int64_t count, const char *columns, const char *values);

/* Of topic t. */
void put_some(int count, const char *key);

postroom_store *open_at(const char *at);

/* Claims one message, which there must be, and delivers it; its id. */
const char *take_one(void);

/* The test's database with settings for the session, as the URL's options: "-c a=b -c c=d". */
void url_with_options(const char *options, char out[400]);

#endif
