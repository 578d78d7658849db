/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs statements: alone, row by row, or several in one round trip.
 *
 * 1. Every wait for the server is in one function that also watches the stop and the clock. A
 *    connection whose reply did not come in time is closed, since its state is unknown.
 * 2. Behind a pooler, no statement is prepared.
 */
#include "store/pgsql/statements.h"

#include "base/assert.h"
#include "base/time.h"

#include <poll.h>
#include <stdio.h>

static int fail_on_connection(struct pgsql_store *store, const PGresult *result, const char *doing,
			      struct pr_err *err)
{
	return pr_pgsql_fail(store->conn, result, store->shown, doing, err);
}

void pr_pgsql_text(struct pgsql_params *params, const char *value)
{
	pr_assert(params->count < PG_PARAMS_MAX);
	params->values[params->count++] = value;
}

void pr_pgsql_number(struct pgsql_params *params, int64_t value)
{
	char *text;

	pr_assert(params->count < PG_PARAMS_MAX);
	text = params->numbers[params->count];
	snprintf(text, sizeof(params->numbers[0]), "%lld", (long long)value);
	params->values[params->count++] = text;
}

void pr_pgsql_bytes(struct pgsql_params *params, struct pr_span bytes)
{
	pr_assert(params->count < PG_PARAMS_MAX);
	/* A value of no length must not be NULL, which means something else. */
	params->values[params->count] = bytes.data && bytes.len == 0 ? "" : bytes.data;
	params->lengths[params->count] = (int)bytes.len;
	params->formats[params->count++] = 1;
}

/* How long one poll may last: it ends with the grace period, and early enough to feed the watchdog. */
static int poll_ms(const struct pgsql_store *store, int64_t until_us)
{
	int64_t deadline_us = pr_stop_deadline_us(store->stop), left_us = 1000000;
	int64_t now_us = pr_mono_us();

	if (until_us && until_us - now_us < left_us)
		left_us = until_us - now_us;
	if (deadline_us && deadline_us + PR_STOP_LAST_US - now_us < left_us)
		left_us = deadline_us + PR_STOP_LAST_US - now_us;
	return left_us > 0 ? (int)((left_us + 999) / 1000) : 0;
}

int pr_pgsql_wait_socket(struct pgsql_store *store, short events, int64_t until_us,
			 bool until_request, const char *doing, struct pr_err *err)
{
	if (store->base.until_us && (!until_us || store->base.until_us < until_us))
		until_us = store->base.until_us;
	for (;;) {
		struct pollfd fds[2] = {
			{ .fd = PQsocket(store->conn), .events = events },
			{ .fd = pr_stop_event_fd(store->stop), .events = POLLIN },
		};

		if (until_request ? pr_stop_requested(store->stop) : pr_stop_is_over(store->stop))
			return pr_err_set(err, POSTROOM_STOPPED,
					  "%s: stop requested while waiting for %s", doing,
					  store->shown);
		if (until_us && pr_mono_us() >= until_us)
			return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s: no answer from %s", doing,
					  store->shown);
		pr_watchdog_feed(store->watchdog, 0);
		if (poll(fds, 2, poll_ms(store, until_us)) > 0 && fds[0].revents)
			return POSTROOM_OK;
	}
}

/* The state of the server is unknown on this connection: close it. */
static int drop_connection(struct pgsql_store *store, int status)
{
	if (store->box)
		pr_pgsql_box_disconnect(store->box);
	PQfinish(store->conn);
	store->conn = NULL;
	return status;
}

void pr_pgsql_drain_notifications(struct pgsql_store *store)
{
	PGnotify *notify;

	while ((notify = PQnotifies(store->conn))) {
		store->notified = true;
		PQfreemem(notify);
	}
}

/* The answer, or what marks the end of a pipeline; false while there is more to come. */
static bool has_answer(struct pgsql_store *store, PGresult **result)
{
	while (!PQisBusy(store->conn)) {
		PGresult *next = PQgetResult(store->conn);

		if (!next)
			return true;
		if (PQresultStatus(next) == PGRES_PIPELINE_SYNC && !*result) {
			*result = next;
			return true;
		}
		/* The last one counts; an error is never followed by a success. */
		if (*result && PQresultStatus(*result) == PGRES_FATAL_ERROR) {
			PQclear(next);
		} else {
			PQclear(*result);
			*result = next;
		}
	}
	return false;
}

PGresult *pr_pgsql_await(struct pgsql_store *store, const char *doing, struct pr_err *err)
{
	int64_t until_us = store->answer_ms ? pr_mono_us() + store->answer_ms * 1000 : 0;
	PGresult *result = NULL;

	for (;;) {
		int flushing = PQflush(store->conn);

		if (flushing < 0 || !PQconsumeInput(store->conn)) {
			fail_on_connection(store, NULL, doing, err);
			PQclear(result);
			return NULL;
		}
		if (has_answer(store, &result)) {
			pr_pgsql_drain_notifications(store);
			return result;
		}
		if (pr_pgsql_wait_socket(store, (short)(POLLIN | (flushing ? POLLOUT : 0)),
					 until_us, false, doing, err) < 0) {
			PQclear(result);
			drop_connection(store, POSTROOM_UNAVAILABLE);
			return NULL;
		}
	}
}

static PGresult *check_result(struct pgsql_store *store, PGresult *result, const char *doing,
			      struct pr_err *err)
{
	ExecStatusType status = PQresultStatus(result);

	if (!result)
		return NULL;
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return result;
	fail_on_connection(store, result, doing, err);
	PQclear(result);
	return NULL;
}

static bool require_connection(struct pgsql_store *store, const char *doing, struct pr_err *err)
{
	if (store->conn)
		return true;
	pr_err_set(err, POSTROOM_UNAVAILABLE, "%s: the connection to %s is closed", doing,
		   store->shown);
	return false;
}

PGresult *pr_pgsql_query(struct pgsql_store *store, const char *sql, struct pgsql_params *params,
			 const char *doing, struct pr_err *err)
{
	int sent;

	if (!require_connection(store, doing, err))
		return NULL;
	if (params)
		sent = PQsendQueryParams(store->conn, sql, params->count, NULL, params->values,
					 params->lengths, params->formats, 0);
	else
		sent = PQsendQuery(store->conn, sql);
	if (!sent) {
		fail_on_connection(store, NULL, doing, err);
		return NULL;
	}
	return check_result(store, pr_pgsql_await(store, doing, err), doing, err);
}

int pr_pgsql_force_index_scans(struct pgsql_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (store->by_index || store->pooled)
		return POSTROOM_OK;
		/*
	 * With these settings, a plan without an index has a cost so high that JIT would compile it.
	 * Planning for each batch takes a fifth longer. No value is looked up twice: no memoize.
	 */
#define BY_INDEX                                                                                   \
	"SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; "                   \
	"SET plan_cache_mode = force_generic_plan"
	result = pr_pgsql_query(store,
				PQserverVersion(store->conn) < 140000 ? BY_INDEX
								      : BY_INDEX
					"; SET enable_memoize = off",
				NULL, "connecting", err);
	store->by_index = result != NULL;
	return result ? POSTROOM_OK : err->status;
}

static struct pgsql_prepared *prepared_of(struct pgsql_store *store, const struct pgsql_step *step)
{
	return &store->prepared[step->sql->number];
}

static bool prepare_step(struct pgsql_store *store, const struct pgsql_step *step,
			 const char *doing, struct pr_err *err)
{
	struct pgsql_prepared *prepared = prepared_of(store, step);
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (!prepared->text)
		prepared->text = pr_pgsql_sql(store, step->sql->table, step->sql->text);
	if (!prepared->text) {
		pr_err_nomem(err);
		return false;
	}
	if (store->pooled || prepared->prepared)
		return true;
	if (!PQsendPrepare(store->conn, step->sql->name, prepared->text, 0, NULL)) {
		fail_on_connection(store, NULL, doing, err);
		return false;
	}
	result = check_result(store, pr_pgsql_await(store, doing, err), doing, err);
	prepared->prepared = result != NULL;
	return prepared->prepared;
}

static int send_prepared(struct pgsql_store *store, const struct pgsql_step *step)
{
	const struct pgsql_params *params = step->params;

	if (store->pooled)
		return PQsendQueryParams(store->conn, prepared_of(store, step)->text, params->count,
					 NULL, params->values, params->lengths, params->formats,
					 step->binary);
	return PQsendQueryPrepared(store->conn, step->sql->name, params->count, params->values,
				   params->lengths, params->formats, step->binary);
}

/* In a pipeline of its own, which sets the timeouts of its transaction. */
static PGresult *run_pooled(struct pgsql_store *store, struct pgsql_step step, const char *doing,
			    struct pr_err *err)
{
	return pr_pgsql_run_all(store, &step, 1, doing, err) < 0 ? NULL : step.result;
}

PGresult *pr_pgsql_run_step(struct pgsql_store *store, const struct pgsql_step *step,
			    const char *doing, struct pr_err *err)
{
	if (!require_connection(store, doing, err))
		return NULL;
	if (store->pooled)
		return run_pooled(store, *step, doing, err);
	if (!prepare_step(store, step, doing, err))
		return NULL;
	if (!send_prepared(store, step)) {
		fail_on_connection(store, NULL, doing, err);
		return NULL;
	}
	return check_result(store, pr_pgsql_await(store, doing, err), doing, err);
}

/*
 * Behind a pooler no session is ours, so timeouts of the role are switched off for one
 * transaction at a time. The statements behind this one get timers of their own.
 */
static bool send_timeouts(struct pgsql_store *store)
{
	return PQsendQueryParams(store->conn,
				 "SELECT set_config(name, '0', true) FROM unnest(ARRAY["
				 "'statement_timeout', 'lock_timeout', "
				 "'idle_in_transaction_session_timeout', 'transaction_timeout']) "
				 "AS name WHERE current_setting(name, true) <> '0'",
				 0, NULL, NULL, NULL, NULL, 0);
}

static bool end_timeouts(struct pgsql_store *store, const char *doing, struct pr_err *err)
{
	PGresult *result = pr_pgsql_await(store, doing, err);

	if (!result) {
		drop_connection(store, POSTROOM_UNAVAILABLE);
		return false;
	}
	result = check_result(store, result, doing, err);
	PQclear(result);
	return result != NULL;
}

PGresult *pr_pgsql_await_row(struct pgsql_store *store, const char *doing, struct pr_err *err)
{
	int64_t until_us = store->answer_ms ? pr_mono_us() + store->answer_ms * 1000 : 0;
	PGresult *row;

	while (PQisBusy(store->conn)) {
		int flushing = PQflush(store->conn);

		if (flushing < 0) {
			fail_on_connection(store, NULL, doing, err);
			return NULL;
		}
		if (pr_pgsql_wait_socket(store, (short)(POLLIN | (flushing ? POLLOUT : 0)),
					 until_us, false, doing, err) < 0) {
			drop_connection(store, POSTROOM_UNAVAILABLE);
			return NULL;
		}
		if (!PQconsumeInput(store->conn)) {
			fail_on_connection(store, NULL, doing, err);
			return NULL;
		}
	}
	row = PQgetResult(store->conn);
	if (!row || PQresultStatus(row) == PGRES_SINGLE_TUPLE)
		return row;
	return check_result(store, row, doing, err);
}

/* As end_timeouts(), but it parses no byte of the next answer: that would end the choice of its mode. */
static bool skip_timeouts(struct pgsql_store *store, const char *doing, struct pr_err *err)
{
	PGresult *result;

	pr_err_clear(err);
	while ((result = pr_pgsql_await_row(store, doing, err)))
		PQclear(result);
	return err->status >= 0;
}

bool pr_pgsql_run_step_by_row(struct pgsql_store *store, const struct pgsql_step *step,
			      const char *doing, struct pr_err *err)
{
	if (!require_connection(store, doing, err) || !prepare_step(store, step, doing, err))
		return false;
	/*
	 * In a pipeline, although it is only one: otherwise libpq would go on row by row with the
	 * first statement of the next pipeline.
	 */
	PQenterPipelineMode(store->conn);
	if ((store->pooled && !send_timeouts(store)) || !send_prepared(store, step) ||
	    !PQpipelineSync(store->conn)) {
		drop_connection(store, fail_on_connection(store, NULL, doing, err));
		return false;
	}
	if (store->pooled && !skip_timeouts(store, doing, err)) {
		drop_connection(store, err->status);
		return false;
	}
	if (PQsetSingleRowMode(store->conn))
		return true;
	drop_connection(store, fail_on_connection(store, NULL, doing, err));
	return false;
}

int pr_pgsql_end_rows(struct pgsql_store *store, const char *doing, struct pr_err *err)
{
	struct pr_err later = { 0 };
	bool between = true; /* after an error libpq marks the end of the statement by NULL, once */
	PGresult *end = NULL;

	while (store->conn) {
		end = pr_pgsql_await(store, doing, &later);
		if (end && PQresultStatus(end) == PGRES_PIPELINE_SYNC)
			break;
		if (!end && (!between || later.status < 0))
			break;
		between = end != NULL;
		PQclear(end);
		end = NULL;
	}
	if (!end) {
		if (err->status >= 0 && later.status < 0)
			*err = later;
		else if (err->status >= 0)
			pr_err_set(err, POSTROOM_UNAVAILABLE, "%s: the connection is lost", doing);
		return store->conn ? drop_connection(store, err->status) : err->status;
	}
	PQclear(end);
	PQexitPipelineMode(store->conn);
	return err->status;
}

/* The answers of a pipeline, and what marks its end: nothing is committed without that. */
static bool read_pipeline(struct pgsql_store *store, const struct pgsql_pipe *pipe,
			  const char *doing, struct pr_err *err)
{
	PGresult *end;
	bool fine = !store->pooled || end_timeouts(store, doing, err);

	for (size_t i = 0; store->conn && i < pipe->count; i++) {
		PGresult *result = pr_pgsql_await(store, doing, err);

		if (!result) {
			drop_connection(store, POSTROOM_UNAVAILABLE);
			return false;
		}
		if (PQresultStatus(result) == PGRES_PIPELINE_ABORTED)
			PQclear(result);
		else
			fine &= pipe->answer(store, pipe->context, i, result, err);
	}
	end = store->conn ? pr_pgsql_await(store, doing, err) : NULL;
	if (PQresultStatus(end) != PGRES_PIPELINE_SYNC) {
		if (end && fine)
			fail_on_connection(store, end, doing, err);
		PQclear(end);
		drop_connection(store, POSTROOM_UNAVAILABLE);
		return false;
	}
	PQclear(end);
	PQexitPipelineMode(store->conn);
	return fine;
}

int pr_pgsql_pipe(struct pgsql_store *store, const struct pgsql_pipe *pipe, const char *doing,
		  struct pr_err *err)
{
	bool fine;

	if (!require_connection(store, doing, err))
		return err->status;
	PQenterPipelineMode(store->conn);
	fine = !store->pooled || send_timeouts(store);
	for (size_t i = 0; fine && i < pipe->count; i++)
		fine = pipe->send(store, pipe->context, i);
	if (!fine || !PQpipelineSync(store->conn))
		return drop_connection(store, fail_on_connection(store, NULL, doing, err));
	return read_pipeline(store, pipe, doing, err) ? POSTROOM_OK : err->status;
}

struct stepping {
	struct pgsql_step *steps;
	const char *doing;
};

static bool send_step(struct pgsql_store *store, void *context, size_t i)
{
	const struct stepping *stepping = context;

	return send_prepared(store, &stepping->steps[i]);
}

static bool end_step(struct pgsql_store *store, void *context, size_t i, PGresult *result,
		     struct pr_err *err)
{
	const struct stepping *stepping = context;

	stepping->steps[i].result = check_result(store, result, stepping->doing, err);
	return stepping->steps[i].result != NULL;
}

int pr_pgsql_run_all(struct pgsql_store *store, struct pgsql_step *steps, size_t count,
		     const char *doing, struct pr_err *err)
{
	struct stepping stepping = { .steps = steps, .doing = doing };
	bool fine = require_connection(store, doing, err);

	for (size_t i = 0; fine && i < count; i++)
		fine = prepare_step(store, &steps[i], doing, err);
	if (fine && pr_pgsql_pipe(store,
				  &(struct pgsql_pipe){ .send = send_step,
							.answer = end_step,
							.context = &stepping,
							.count = count },
				  doing, err) >= 0)
		return POSTROOM_OK;
	for (size_t i = 0; i < count; i++) {
		PQclear(steps[i].result);
		steps[i].result = NULL;
	}
	return err->status;
}
