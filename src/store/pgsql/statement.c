/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's statement, run with an event in the transaction that completes it (N2).
 *
 * 1. The text is used unchanged; the attributes of an event are parameters with declared types.
 * 2. The statement cannot end our transaction: its first word cannot do that, the protocol accepts
 *    one statement at a time, and procedures cannot commit inside of a transaction. A savepoint
 *    proves it before the commit.
 * 3. Its effect and the completion of its event are one transaction.
 * 4. Its own failures are distinguished from failures of the database: a lost connection or a full
 *    disk is not blamed on an event.
 */
#include "store/pgsql/settle.h"
#include "store/pgsql/statements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PREPARING "preparing the handler's statement"
#define RUNNING "the handler's statement failed"

/* jsonb, text, text, text, jsonb, uuid, text: by their numbers in every server's catalogue. */
static const Oid types[] = { 3802, 25, 25, 25, 3802, 2950, 25 };
#define PARAMS ((int)(sizeof(types) / sizeof(types[0])))

#define NAME_SIZE 32

static void statement_name(const struct pgsql_store *store, char out[NAME_SIZE])
{
	/* Behind a pooler it has none. */
	out[0] = '\0';
	if (!store->pooled)
		snprintf(out, NAME_SIZE, "postroom_statement_%u", store->statements);
}

/* Past white space, comments, which nest, and opening parentheses. */
static const char *first_word(const char *at)
{
	for (;;) {
		at += strspn(at, " \t\r\n\f\v(");
		if (strncmp(at, "--", 2) == 0) {
			at += strcspn(at, "\r\n");
		} else if (strncmp(at, "/*", 2) == 0) {
			int depth = 0;

			do {
				if (strncmp(at, "/*", 2) == 0)
					depth++, at += 2;
				else if (strncmp(at, "*/", 2) == 0)
					depth--, at += 2;
				else if (*at)
					at++;
			} while (depth > 0 && *at);
		} else {
			return at;
		}
	}
}

static int check_word(const char *statement, struct pr_err *err)
{
	static const char *const words[] = { "INSERT", "UPDATE", "DELETE", "MERGE",
					     "SELECT", "WITH",	 "VALUES", "CALL" };
	const char *at = first_word(statement);
	size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strlen(words[i]) == len && strncasecmp(words[i], at, len) == 0)
			return POSTROOM_OK;
	}
	if (!*at)
		return pr_err_set(err, POSTROOM_INVALID,
				  "the handler's statement is empty; write one SQL statement");
	return pr_err_set(err, POSTROOM_INVALID,
			  "the handler's statement begins with \"%.*s\"; it runs inside a "
			  "transaction and must be an INSERT, UPDATE, DELETE, MERGE, SELECT, WITH, "
			  "VALUES or CALL",
			  (int)(len == 0   ? 1
				: len < 40 ? len
					   : 40),
			  at);
}

static int refuse_parameter(int number, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_INVALID,
			  "the handler's statement uses $%d; an event has seven: $1 payload, "
			  "$2 id, $3 topic, $4 key, $5 headers, $6 tenant_id, "
			  "$7 correlation_id",
			  number);
}

/* The number of a parameter whose type is unknown to the server, which knows those of an event. */
static int find_unknown_parameter(const struct pr_err *err, const PGresult *result)
{
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *dollar = text ? strchr(text, '$') : NULL;

	return dollar && strcmp(err->sqlstate, "42P18") == 0 ? atoi(dollar + 1) : 0;
}

static PGresult *await_checked(struct pgsql_store *store, int sent, struct pr_err *err)
{
	PGresult *result;
	int unknown;

	if (!sent) {
		pr_pgsql_fail(store->conn, NULL, store->shown, PREPARING, err);
		return NULL;
	}
	result = pr_pgsql_await(store, PREPARING, err);
	if (!result || PQresultStatus(result) == PGRES_COMMAND_OK)
		return result;
	pr_pgsql_fail_statement(store->conn, result, store->shown, POSTROOM_INVALID,
				"the handler's statement cannot be run", err);
	unknown = find_unknown_parameter(err, result);
	/* The error for several statements has no position. */
	if (err->status == POSTROOM_INVALID && strcmp(err->sqlstate, "42601") == 0 &&
	    !PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION))
		pr_err_set(err, POSTROOM_INVALID,
			   "the handler's statement consists of several; write one, or put the "
			   "others into a function");
	else if (err->status == POSTROOM_INVALID && unknown > 0)
		refuse_parameter(unknown, err);
	PQclear(result);
	return NULL;
}

/* In a transaction: behind a pooler both must reach the same server. */
static int prepare_checked(struct pgsql_store *store, const char *statement, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *prepared = NULL, *described = NULL;
	char name[NAME_SIZE];

	store->statements++;
	statement_name(store, name);
	prepared = await_checked(store, PQsendPrepare(store->conn, name, statement, PARAMS, types),
				 err);
	if (!prepared)
		return err->status;
	described = await_checked(store, PQsendDescribePrepared(store->conn, name), err);
	if (!described)
		return err->status;
	if (PQnparams(described) > PARAMS)
		return refuse_parameter(PQnparams(described), err);
	return POSTROOM_OK;
}

int pr_pgsql_check_statement(struct postroom_store *base, const char *statement, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	char *copy;
	int status;

	if (store->statement && strcmp(store->statement, statement) == 0)
		return POSTROOM_OK;
	if (check_word(statement, err) < 0)
		return err->status;
	copy = strdup(statement);
	if (!copy)
		return pr_err_nomem(err);
	status = base->ops->begin(base, err);
	if (status >= 0) {
		status = prepare_checked(store, statement, err);
		pr_pgsql_rollback(store);
	}
	if (status < 0) {
		free(copy);
		return status;
	}
	free(store->statement);
	store->statement = copy;
	return POSTROOM_OK;
}

int pr_pgsql_prepare_statement(struct pgsql_store *store, const char *statement, struct pr_err *err)
{
	int status = pr_pgsql_check_statement(&store->base, statement, err);

	return status == POSTROOM_INVALID ? (err->status = POSTROOM_TX_ABORTED) : status;
}

static bool send_event(struct pgsql_store *store, struct pgsql_running *running,
		       const struct pr_statement_parameters *event)
{
	const char *values[PARAMS] = {
		NULL,		event->id,	  event->topic,		event->key,
		event->headers, event->tenant_id, event->correlation_id
	};
	int lengths[PARAMS] = { 0 }, formats[PARAMS] = { 1 };
	char name[NAME_SIZE];

	/* jsonb's binary form is a version number and the text, which need not end in NUL. */
	if (event->payload.data) {
		pr_buf_reset(&running->json);
		pr_buf_putc(&running->json, 1);
		pr_buf_append(&running->json, event->payload.data, event->payload.len);
		values[0] = running->json.data;
		lengths[0] = (int)running->json.len;
	}
	if (store->pooled)
		return PQsendQueryParams(store->conn, store->statement, PARAMS, types, values,
					 lengths, formats, 0);
	statement_name(store, name);
	return PQsendQueryPrepared(store->conn, name, PARAMS, values, lengths, formats, 0);
}

static bool send_command(struct pgsql_store *store, const char *sql)
{
	return PQsendQueryParams(store->conn, sql, 0, NULL, NULL, NULL, NULL, 0);
}

/* Of each event, when care is taken; behind the last one the end of the transaction. */
enum { DEFER, RUN, CHECK, PARTS };

static size_t parts_of(const struct pgsql_running *running)
{
	return running->careful ? PARTS : 1;
}

/* In front of all, if there is one: what a statement may take. */
static bool send_limit(struct pgsql_store *store)
{
	char sql[64];

	snprintf(sql, sizeof(sql), "SET LOCAL statement_timeout = %lld",
		 (long long)store->statement_ms);
	return send_command(store, sql);
}

static bool send_part(struct pgsql_store *store, void *context, size_t i)
{
	struct pgsql_running *running = context;
	size_t parts = parts_of(running), end = running->count * parts;

	if (store->statement_ms && i-- == 0)
		return send_limit(store);
	if (i >= end)
		return send_command(store, i == end ? "SAVEPOINT postroom" : "COMMIT");
	/* Each answers for itself: together they may take longer than an answer may. */
	if (parts == 1 || i % parts == RUN)
		return send_event(store, running, &running->events[i / parts]) &&
		       PQsendFlushRequest(store->conn);
	return send_command(store, i % parts == DEFER ? "SET CONSTRAINTS ALL DEFERRED"
						      : "SET CONSTRAINTS ALL IMMEDIATE");
}

static bool is_state(const PGresult *result, const char *sqlstate)
{
	const char *said = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return said && strcmp(said, sqlstate) == 0;
}

static bool end_part(struct pgsql_store *store, void *context, size_t i, PGresult *result,
		     struct pr_err *err)
{
	struct pgsql_running *running = context;
	size_t parts = parts_of(running), end = running->count * parts;
	bool fine = PQresultStatus(result) == PGRES_COMMAND_OK ||
		    PQresultStatus(result) == PGRES_TUPLES_OK;

	i -= store->statement_ms && i > 0;
	if (!fine && i == end && is_state(result, "25P01"))
		pr_err_set(err, POSTROOM_DATABASE,
			   "the handler's statement has ended the transaction that it runs in; "
			   "leave that out");
	else if (!fine)
		pr_pgsql_fail_statement(store->conn, result, store->shown, POSTROOM_TX_ABORTED,
					RUNNING, err);
	if (!fine) {
		running->late = i > end;
		running->at = i < end ? i / parts : 0;
	}
	PQclear(result);
	return fine;
}

int pr_pgsql_run_statement(struct pgsql_store *store, struct pgsql_running *running,
			   struct pr_err *err)
{
	const struct pgsql_pipe pipe = { .send = send_part,
					 .answer = end_part,
					 .context = running,
					 .count = running->count * parts_of(running) + 2 +
						  (store->statement_ms != 0) };
	size_t largest = 0;
	int status;

	for (size_t i = 0; i < running->count; i++) {
		if (running->events[i].payload.len > largest)
			largest = running->events[i].payload.len;
	}
	running->late = false;
	/* For all of them: who runs out of memory among the answers loses the connection. */
	status = pr_buf_reserve(&running->json, largest + 1)
			 ? pr_pgsql_pipe(store, &pipe, RUNNING, err)
			 : pr_err_nomem(err);
	pr_buf_release(&running->json);
	return status;
}

#define TRIES 5
#define FIRST_PAUSE_MS 2

/* A table that it answers with has other columns now. */
static bool is_stale(const struct pgsql_store *store, int status, const struct pr_err *err)
{
	return status == POSTROOM_TX_ABORTED && store->statement &&
	       strcmp(err->sqlstate, "0A000") == 0;
}

bool pr_pgsql_should_retry(struct pgsql_store *store, int *status, int tries, struct pr_err *err)
{
	if (tries == 0 && is_stale(store, *status, err)) {
		free(store->statement);
		store->statement = NULL;
		return true;
	}
	if (*status != POSTROOM_BUSY ||
	    (strcmp(err->sqlstate, "40001") != 0 && strcmp(err->sqlstate, "40P01") != 0))
		return false;
	if (tries < TRIES)
		return !pr_stop_wait(store->stop, FIRST_PAUSE_MS << tries);
	*status = err->status = POSTROOM_TX_ABORTED;
	return false;
}

/* Completes the job for any worker: the fencing token suffices. */
static int complete_job(struct pgsql_store *store, postroom_delivery *job, struct pr_err *err)
{
	const struct pr_policy policy = { .max_attempts = 1 };
	struct pgsql_settling settling = { .items = job, .item_count = 1, .anyone = true };
	int status;

	pr_pgsql_add_step(&settling, pr_sql_step(&pr_sql_begin, NULL));
	status = pr_pgsql_begin_settling(store, &pr_table_inbox, &policy, &settling, err);
	if (status >= 0)
		status = pr_pgsql_run_all(store, settling.steps, settling.count, "completing a job",
					  err);
	if (status >= 0)
		status = pr_pgsql_end_settling(store, &settling, err);
	pr_pgsql_release_settling(&settling);
	return status;
}

static int apply_once(struct pgsql_store *store, const char *statement,
		      const postroom_delivery *job, struct pr_err *err)
{
	postroom_delivery done = *job;
	const struct pr_statement_parameters event = pr_job_parameters(job);
	struct pgsql_running running = { .events = &event, .count = 1 };
	int status = pr_pgsql_prepare_statement(store, statement, err);

	done.verdict = POSTROOM_DELIVERED;
	done.lane = 0;
	if (status < 0)
		return status;
	status = complete_job(store, &done, err);
	if (status >= 0)
		status = pr_pgsql_run_statement(store, &running, err);
	if (status < 0)
		pr_pgsql_rollback(store);
	return status;
}

int pr_pgsql_apply(struct postroom_store *base, const char *statement, const postroom_delivery *job,
		   struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int status, tries = 0;

	do {
		status = apply_once(store, statement, job, err);
	} while (pr_pgsql_should_retry(store, &status, tries++, err));
	return status;
}
