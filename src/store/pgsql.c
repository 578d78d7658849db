/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL store: one connection and its statements.
 *
 * 1. Every wait for the server is one function that also watches the stop and
 *    the clock; a connection whose answer did not come in time is closed, since
 *    nobody knows what it is doing.
 * 2. Names carry their schema: nothing depends on a session's search_path.
 * 3. Behind a pooler no statement is kept and nothing is listened to.
 * 4. The password is in no message.
 */
#include "store/pgsql.h"

#include "base/time.h"
#include "base/url.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const schemes[] = { "postgres", "postgresql", NULL };

static int fail(struct pgsql_store *store, const PGresult *result, const char *doing,
		struct pr_err *err)
{
	return pr_pgsql_fail(store->conn, result, store->shown, doing, err);
}

void pr_pgsql_text(struct pgsql_params *params, const char *value)
{
	params->values[params->count++] = value;
}

void pr_pgsql_number(struct pgsql_params *params, int64_t value)
{
	char *text = params->numbers[params->count];

	snprintf(text, sizeof(params->numbers[0]), "%lld", (long long)value);
	params->values[params->count++] = text;
}

/* How long one poll may last: not past the end of a grace, and the pulse goes on meanwhile. */
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
			 bool heed_request, const char *doing, struct pr_err *err)
{
	if (store->base.until_us && (!until_us || store->base.until_us < until_us))
		until_us = store->base.until_us;
	for (;;) {
		struct pollfd fds[2] = {
			{ .fd = PQsocket(store->conn), .events = events },
			{ .fd = pr_stop_news_fd(store->stop), .events = POLLIN },
		};

		if (heed_request ? pr_stop_requested(store->stop) : pr_stop_is_over(store->stop))
			return pr_err_set(err, POSTROOM_STOPPED, "%s: told to stop while waiting for %s",
					  doing, store->shown);
		if (until_us && pr_mono_us() >= until_us)
			return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s: no answer from %s", doing,
					  store->shown);
		pr_pulse_beat(store->pulse, 0);
		if (poll(fds, 2, poll_ms(store, until_us)) > 0 && fds[0].revents)
			return POSTROOM_OK;
	}
}

/* Nobody knows what the server is doing on this connection: away with it. */
static int abandon(struct pgsql_store *store, int status)
{
	if (store->box)
		pr_pgsql_box_disconnect(store->box);
	PQfinish(store->conn);
	store->conn = NULL;
	return status;
}

PGresult *pr_pgsql_await(struct pgsql_store *store, const char *doing, struct pr_err *err)
{
	int64_t until_us = store->answer_ms ? pr_mono_us() + store->answer_ms * 1000 : 0;
	PGresult *result = NULL, *next;

	for (;;) {
		int flushing = PQflush(store->conn);

		if (flushing < 0 || !PQconsumeInput(store->conn)) {
			fail(store, NULL, doing, err);
			PQclear(result);
			return NULL;
		}
		while (!PQisBusy(store->conn)) {
			next = PQgetResult(store->conn);
			if (!next)
				return result;
			if (PQresultStatus(next) == PGRES_PIPELINE_SYNC && !result)
				return next;
			/* The last one counts; an error is never followed by a success. */
			if (result && PQresultStatus(result) == PGRES_FATAL_ERROR) {
				PQclear(next);
			} else {
				PQclear(result);
				result = next;
			}
		}
		if (pr_pgsql_wait_socket(store, (short)(POLLIN | (flushing ? POLLOUT : 0)),
					 until_us, false, doing, err) < 0) {
			PQclear(result);
			abandon(store, POSTROOM_UNAVAILABLE);
			return NULL;
		}
	}
}

static PGresult *checked(struct pgsql_store *store, PGresult *result, const char *doing,
			 struct pr_err *err)
{
	ExecStatusType status = PQresultStatus(result);

	if (!result)
		return NULL;
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return result;
	fail(store, result, doing, err);
	PQclear(result);
	return NULL;
}

static bool connected(struct pgsql_store *store, const char *doing, struct pr_err *err)
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

	if (!connected(store, doing, err))
		return NULL;
	if (params)
		sent = PQsendQueryParams(store->conn, sql, params->count, NULL, params->values,
					 params->lengths, params->formats, 0);
	else
		sent = PQsendQuery(store->conn, sql);
	if (!sent) {
		fail(store, NULL, doing, err);
		return NULL;
	}
	return checked(store, pr_pgsql_await(store, doing, err), doing, err);
}

int pr_pgsql_go_by_index(struct pgsql_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (store->by_index || store->pooled)
		return POSTROOM_OK;
	/* What can not go by an index is then so dear in the planner's eyes that it would be compiled. */
	/* What is planned anew for each batch takes a fifth longer. Nothing is looked up twice: no memoizing. */
#define BY_INDEX                                                                            \
	"SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; "            \
	"SET plan_cache_mode = force_generic_plan"
	result = pr_pgsql_query(store,
				PQserverVersion(store->conn) < 140000 ?
					BY_INDEX : BY_INDEX "; SET enable_memoize = off",
				NULL, "connecting", err);
	store->by_index = result != NULL;
	return result ? POSTROOM_OK : err->status;
}

#define NAME_SIZE 32

static size_t index_of(const struct pr_table *table)
{
	return table == &pr_table_inbox;
}

static void name_of(enum pgsql_slot slot, const struct pr_table *table, char out[NAME_SIZE])
{
	snprintf(out, NAME_SIZE, "postroom_%zu_%d", index_of(table), (int)slot);
}

static bool prepare(struct pgsql_store *store, enum pgsql_slot slot, const struct pr_table *table,
		    const char *sql, const char *doing, struct pr_err *err)
{
	struct pgsql_kept *kept = &store->slots[index_of(table)][slot];
	PR_CLEANUP_RESULT PGresult *result = NULL;
	char name[NAME_SIZE];

	if (!kept->sql)
		kept->sql = pr_pgsql_sql(store, table, sql);
	if (!kept->sql) {
		pr_err_nomem(err);
		return false;
	}
	if (store->pooled || kept->prepared)
		return true;
	name_of(slot, table, name);
	if (!PQsendPrepare(store->conn, name, kept->sql, 0, NULL)) {
		fail(store, NULL, doing, err);
		return false;
	}
	result = checked(store, pr_pgsql_await(store, doing, err), doing, err);
	kept->prepared = result != NULL;
	return kept->prepared;
}

static int send_kept(struct pgsql_store *store, enum pgsql_slot slot, const struct pr_table *table,
		     const struct pgsql_params *params, bool binary)
{
	char name[NAME_SIZE];

	if (store->pooled)
		return PQsendQueryParams(store->conn, store->slots[index_of(table)][slot].sql,
					 params->count, NULL, params->values, params->lengths,
					 params->formats, binary);
	name_of(slot, table, name);
	return PQsendQueryPrepared(store->conn, name, params->count, params->values,
				   params->lengths, params->formats, binary);
}

PGresult *pr_pgsql_run(struct pgsql_store *store, enum pgsql_slot slot,
		       const struct pr_table *table, const char *sql, struct pgsql_params *params,
		       bool binary, const char *doing, struct pr_err *err)
{
	if (!connected(store, doing, err))
		return NULL;
	if (!prepare(store, slot, table, sql, doing, err))
		return NULL;
	if (!send_kept(store, slot, table, params, binary)) {
		fail(store, NULL, doing, err);
		return NULL;
	}
	return checked(store, pr_pgsql_await(store, doing, err), doing, err);
}

/* The answers of a pipeline, and what marks its end: nothing is committed without that. */
static bool collect(struct pgsql_store *store, const struct pgsql_pipe *pipe, const char *doing,
		    struct pr_err *err)
{
	PGresult *end;
	bool fine = true;

	for (size_t i = 0; i < pipe->count; i++) {
		PGresult *result = pr_pgsql_await(store, doing, err);

		if (!result) {
			abandon(store, POSTROOM_UNAVAILABLE);
			return false;
		}
		if (PQresultStatus(result) == PGRES_PIPELINE_ABORTED)
			PQclear(result);
		else
			fine &= pipe->answer(store, pipe->context, i, result, err);
	}
	end = pr_pgsql_await(store, doing, err);
	if (PQresultStatus(end) != PGRES_PIPELINE_SYNC) {
		if (end && fine)
			fail(store, end, doing, err);
		PQclear(end);
		abandon(store, POSTROOM_UNAVAILABLE);
		return false;
	}
	PQclear(end);
	PQexitPipelineMode(store->conn);
	return fine;
}

int pr_pgsql_pipe(struct pgsql_store *store, const struct pgsql_pipe *pipe, const char *doing,
		  struct pr_err *err)
{
	bool fine = true;

	if (!connected(store, doing, err))
		return err->status;
	PQenterPipelineMode(store->conn);
	for (size_t i = 0; fine && i < pipe->count; i++)
		fine = pipe->send(store, pipe->context, i);
	if (!fine || !PQpipelineSync(store->conn))
		return abandon(store, fail(store, NULL, doing, err));
	return collect(store, pipe, doing, err) ? POSTROOM_OK : err->status;
}

struct stepping {
	const struct pr_table *table;
	struct pgsql_step *steps;
	const char *doing;
};

static bool send_step(struct pgsql_store *store, void *context, size_t i)
{
	const struct stepping *stepping = context;
	const struct pgsql_step *step = &stepping->steps[i];

	return send_kept(store, step->slot, stepping->table, step->params, step->binary);
}

static bool end_step(struct pgsql_store *store, void *context, size_t i, PGresult *result,
		     struct pr_err *err)
{
	const struct stepping *stepping = context;

	stepping->steps[i].result = checked(store, result, stepping->doing, err);
	return stepping->steps[i].result != NULL;
}

int pr_pgsql_run_all(struct pgsql_store *store, const struct pr_table *table,
		     struct pgsql_step *steps, size_t count, const char *doing, struct pr_err *err)
{
	struct stepping stepping = { .table = table, .steps = steps, .doing = doing };
	bool fine = connected(store, doing, err);

	for (size_t i = 0; fine && i < count; i++)
		fine = prepare(store, steps[i].slot, table, steps[i].sql, doing, err);
	if (fine && pr_pgsql_pipe(store, &(struct pgsql_pipe){ .send = send_step,
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

PGresult *pr_pgsql_run_by_page(struct pgsql_store *store, enum pgsql_slot slot,
			       const struct pr_table *table, const char *sql,
			       struct pgsql_params *params, const char *doing, struct pr_err *err)
{
	struct pgsql_params no_params = { 0 };
	struct pgsql_step steps[] = {
		{ .slot = PG_BY_PAGE,
		  .sql = "SELECT set_config('enable_indexscan', 'off', true), "
			 "set_config('enable_bitmapscan', 'on', true)",
		  .params = &no_params },
		{ .slot = slot, .sql = sql, .params = params },
	};

	if (pr_pgsql_run_all(store, table, steps, 2, doing, err) < 0)
		return NULL;
	PQclear(steps[0].result);
	return steps[1].result;
}

static void close_store(struct postroom_store *base)
{
	struct pgsql_store *store = pgsql_store(base);

	if (store->box)
		store->box->ops->free(store->box);
	PQfinish(store->conn);
	for (size_t i = 0; i < 2 * PG_SLOTS; i++)
		free(store->slots[i / PG_SLOTS][i % PG_SLOTS].sql);
	free(store->statement);
	for (size_t i = 0; i < sizeof(store->arrays) / sizeof(store->arrays[0]); i++)
		pr_buf_release(&store->arrays[i]);
	pr_buf_release(&store->lanes);
	pr_buf_release(&store->holders);
	pr_buf_release(&store->floors);
	pr_buf_release(&store->scope);
	pr_buf_release(&store->own);
	free(store->url);
	free(store);
}

static int open_store(const struct pr_store_config *config, struct postroom_store **ret,
		      struct pr_err *err)
{
	struct pgsql_store *store = calloc(1, sizeof(*store));
	int status;

	if (!store)
		return pr_err_nomem(err);
	store->answer_ms = config->answer_ms;
	store->statement_ms = config->statement_ms;
	store->base.until_us = config->until_us;
	store->stop = config->stop;
	store->pulse = config->pulse;
	store->rules = config->rules;
	pr_url_redact(config->url, store->shown, sizeof(store->shown));
	store->url = strdup(config->url);
	status = store->url ? pr_pgsql_connect(store, config, err) : pr_err_nomem(err);
	if (status < 0) {
		close_store(&store->base);
		return status;
	}
	*ret = &store->base;
	return POSTROOM_OK;
}

static int command(struct postroom_store *base, const char *sql, const char *doing,
		   struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = pr_pgsql_query(pgsql_store(base), sql, NULL, doing, err);

	return result ? POSTROOM_OK : err ? err->status : POSTROOM_DATABASE;
}

static int begin(struct postroom_store *store, struct pr_err *err)
{
	return command(store, "BEGIN", "beginning to write", err);
}

/* COMMIT of a transaction that has failed is answered with ROLLBACK, and no error. */
static int commit(struct postroom_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result =
		pr_pgsql_query(pgsql_store(store), "COMMIT", NULL, "committing", err);

	if (!result)
		return err->status;
	if (strcmp(PQcmdStatus(result), "COMMIT") != 0)
		return pr_err_set(err, POSTROOM_TX_ABORTED,
				  "committing: the transaction had failed and was rolled back");
	return POSTROOM_OK;
}

static void rollback(struct postroom_store *store)
{
	command(store, "ROLLBACK", "rolling back", NULL);
}

const struct pr_store_ops pr_store_pgsql = {
	.schemes = schemes,
	.open = open_store,
	.close = close_store,
	.migrate = pr_pgsql_migrate,
	.migrations = pr_pgsql_migrations,
	.check_schema = pr_pgsql_check_schema,
	.begin = begin,
	.commit = commit,
	.rollback = rollback,
	.box = pr_pgsql_box,
	.claim = pr_pgsql_claim,
	.renew = pr_pgsql_renew,
	.settle = pr_pgsql_settle,
	.turn = pr_pgsql_turn,
	.sweep = pr_pgsql_sweep,
	.wait = pr_pgsql_wait,
	.unfinished = pr_pgsql_unfinished,
	.unrouted = pr_pgsql_unrouted,
	.take_in = pr_pgsql_take_in,
	.apply = pr_pgsql_apply,
	.check_statement = pr_pgsql_check_statement,
	.progress = pr_pgsql_progress,
	.list = pr_pgsql_list,
	.show = pr_pgsql_show,
	.retry = pr_pgsql_retry,
	.purge = pr_pgsql_purge,
	.stats = pr_pgsql_stats,
	.lease = pr_pgsql_lease,
	.forget = pr_pgsql_forget,
	.inbox_list = pr_pgsql_inbox_list,
	.inbox_retry = pr_pgsql_inbox_retry,
	.inbox_purge = pr_pgsql_inbox_purge,
	.inbox_stats = pr_pgsql_inbox_stats,
};
