/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL store: one connection, its errors, its statements.
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

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const schemes[] = { "postgres", "postgresql", NULL };

/* What the server's code means to us. */
static int status_of(const char *sqlstate)
{
	static const struct {
		const char *prefix;
		int status;
	} known[] = {
		{ "40001", POSTROOM_BUSY },	     /* serialization failure */
		{ "40P01", POSTROOM_BUSY },	     /* deadlock */
		{ "55P03", POSTROOM_BUSY },	     /* lock not available */
		{ "57014", POSTROOM_BUSY },	     /* cancelled: statement timeout */
		{ "42P01", POSTROOM_SCHEMA },	     /* no such table */
		{ "42883", POSTROOM_SCHEMA },	     /* no such function */
		{ "42703", POSTROOM_SCHEMA },	     /* no such column */
		{ "3F000", POSTROOM_SCHEMA },	     /* no such schema */
		{ "25006", POSTROOM_UNAVAILABLE },   /* read-only: a standby */
		{ "08", POSTROOM_UNAVAILABLE },	     /* connection */
		{ "57P", POSTROOM_UNAVAILABLE },     /* shut down, starting up, terminated */
		{ "53300", POSTROOM_UNAVAILABLE },   /* too many connections */
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strncmp(sqlstate, known[i].prefix, strlen(known[i].prefix)) == 0)
			return known[i].status;
	}
	return POSTROOM_DATABASE;
}

/* What to do about it, for people. */
static const char *advice_for(const char *sqlstate)
{
	static const struct {
		const char *prefix;
		const char *advice;
	} known[] = {
		{ "42P01", "; run `postroom migrate`" },
		{ "42883", "; run `postroom migrate`" },
		{ "3F000", "; create the schema or name another with --schema, then run `postroom migrate`" },
		{ "28P01", "; check user and password in the database URL" },
		{ "28000", "; check the user and the server's pg_hba.conf" },
		{ "3D000", "; create it or name another in the database URL" },
		{ "53100", "; make room on the server, nothing is lost" },
		{ "53300", "; use fewer workers or raise max_connections" },
		{ "25006", "; this is a standby: name the primary, or all hosts and "
			   "target_session_attrs=read-write" },
		{ "40001", "; try the transaction again" },
		{ "40P01", "; try the transaction again" },
		{ "55P03", "; another session holds a lock, try again" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(sqlstate, known[i].prefix) == 0)
			return known[i].advice;
	}
	return "";
}

/* 42501 names the object; which privilege is wanted on it follows from what was being done. */
static const char *privilege_for(const char *message, const char *doing)
{
	static const struct {
		const char *object;
		const char *doing;
		const char *advice;
	} known[] = {
		{ "sequence postroom_sleepers", "enqueue", "SELECT" },
		{ "sequence postroom_sleepers", "", "SELECT and UPDATE" },
		{ "sequence ", "", "USAGE" },
		{ "schema ", "creating ", "CREATE" },
		{ "schema ", "", "USAGE" },
		{ "database ", "creating ", "CREATE" },
		{ "database ", "", "CONNECT" },
		{ "table postroom_outbox", "enqueue",
		  "INSERT, and SELECT of id, namespace, topic and dedupe_key," },
		{ "table postroom_dedupe", "enqueue", "SELECT and INSERT" },
		{ "table postroom_dedupe", "", "SELECT, UPDATE and DELETE" },
		{ "table postroom_history", "", "SELECT, INSERT, UPDATE and DELETE" },
		{ "table postroom_lanes", "changing ", "to be that of the owner, who may do all" },
		{ "table postroom_lanes", "", "SELECT and UPDATE" },
		{ "table postroom_outbox", "purging ", "SELECT, UPDATE and DELETE" },
		{ "table postroom_outbox", "claiming ", "SELECT and UPDATE" },
		{ "table postroom_outbox", "settling ", "SELECT and UPDATE" },
		{ "table postroom_outbox", "renewing ", "SELECT and UPDATE" },
		{ "table postroom_outbox", "retrying ", "SELECT and UPDATE" },
		{ "table postroom_inbox", "inbox ",
		  "INSERT, and SELECT of id, handler_name and status," },
		{ "table postroom_inbox", "purging ", "SELECT, UPDATE and DELETE" },
		{ "table postroom_inbox", "retrying ", "SELECT and UPDATE" },
		{ "table ", "", "SELECT" },
		{ "view ", "", "SELECT" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strstr(message, known[i].object) &&
		    strncmp(doing, known[i].doing, strlen(known[i].doing)) == 0)
			return known[i].advice;
	}
	return "more rights";
}

/* The first line, without the severity, the code and the newline. */
static int first_line(const char *message, const char **ret)
{
	const char *at = strstr(message, ":  ");
	size_t len;

	at = at && at < message + strcspn(message, "\n") ? at + 3 : message;
	if (strspn(at, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && at[5] == ':' && at[6] == ' ')
		at += 7;
	len = strcspn(at, "\n");
	*ret = at;
	return len > INT_MAX ? INT_MAX : (int)len;
}

/* A connection that failed has no result; with verbose errors its message carries the code. */
static void code_in_message(const char *message, char out[6])
{
	out[0] = '\0';
	for (const char *at = strstr(message, ":  "); at; at = strstr(at + 3, ":  ")) {
		if (strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && at[8] == ':') {
			memcpy(out, at + 3, 5);
			out[5] = '\0';
			return;
		}
	}
}

int pr_pgsql_fail(PGconn *conn, const PGresult *result, const char *where, const char *doing,
		  struct pr_err *err)
{
	const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
	const char *message = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	char code[6] = "";
	const char *line;
	int len, status;

	if (!conn)
		return pr_err_nomem(err);
	if (!message)
		message = PQerrorMessage(conn);
	if (state)
		snprintf(code, sizeof(code), "%s", state);
	else
		code_in_message(message, code);
	/* libpq gave up before the server could say so. */
	if (!*code && PQconnectionNeedsPassword(conn))
		strcpy(code, "28P01");
	if (!*code && PQstatus(conn) == CONNECTION_BAD)
		status = POSTROOM_UNAVAILABLE;
	else
		status = status_of(code);
	len = first_line(message, &line);
	if (strcmp(code, "42501") == 0)
		pr_err_set(err, status, "%s: %s: %.*s; the role needs %s there, see docs/postgres.md",
			   doing, where, len, line, privilege_for(message, doing));
	else
		pr_err_set(err, status, "%s: %s: %.*s%s", doing, where, len, line, advice_for(code));
	if (err)
		memcpy(err->sqlstate, code, sizeof(err->sqlstate));
	return status;
}

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

/* The one result of what was sent. NULL with err filled. */
static PGresult *await(struct pgsql_store *store, const char *doing, struct pr_err *err)
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
			if (!next || PQresultStatus(next) == PGRES_PIPELINE_SYNC)
				return next ? next : result;
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
	return checked(store, await(store, doing, err), doing, err);
}

int pr_pgsql_go_by_index(struct pgsql_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (store->by_index || store->pooled)
		return POSTROOM_OK;
	/* What can not go by an index is then so dear in the planner's eyes that it would be compiled. */
	/* And what is planned anew for each batch takes a fifth longer. */
	result = pr_pgsql_query(store,
				"SET enable_seqscan = off; SET enable_bitmapscan = off; "
				"SET jit = off; SET plan_cache_mode = force_generic_plan",
				NULL, "connecting", err);
	store->by_index = result != NULL;
	return result ? POSTROOM_OK : err->status;
}

#define NAME_SIZE 32

static void name_of(const struct pgsql_store *store, enum pgsql_slot slot, char out[NAME_SIZE])
{
	snprintf(out, NAME_SIZE, "postroom_%u", store->slots[slot].number);
}

static bool prepare(struct pgsql_store *store, enum pgsql_slot slot, const struct pr_table *table,
		    const char *sql, const char *doing, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	char name[NAME_SIZE];

	if (store->slots[slot].table != table) {
		free(store->slots[slot].sql);
		store->slots[slot].sql = pr_pgsql_sql(store, table, sql);
		store->slots[slot].table = table;
		store->slots[slot].prepared = false;
	}
	if (!store->slots[slot].sql) {
		store->slots[slot].table = NULL;
		pr_err_nomem(err);
		return false;
	}
	if (store->pooled || store->slots[slot].prepared)
		return true;
	/* A new name each time: the old one may still stand for another table's statement. */
	store->slots[slot].number = ++store->prepared;
	name_of(store, slot, name);
	if (!PQsendPrepare(store->conn, name, store->slots[slot].sql, 0, NULL)) {
		fail(store, NULL, doing, err);
		return false;
	}
	result = checked(store, await(store, doing, err), doing, err);
	store->slots[slot].prepared = result != NULL;
	return store->slots[slot].prepared;
}

PGresult *pr_pgsql_run(struct pgsql_store *store, enum pgsql_slot slot,
		       const struct pr_table *table, const char *sql, struct pgsql_params *params,
		       bool binary, const char *doing, struct pr_err *err)
{
	char name[NAME_SIZE];
	int sent;

	if (!connected(store, doing, err))
		return NULL;
	if (!prepare(store, slot, table, sql, doing, err))
		return NULL;
	name_of(store, slot, name);
	if (store->pooled)
		sent = PQsendQueryParams(store->conn, store->slots[slot].sql, params->count, NULL,
					 params->values, params->lengths, params->formats, binary);
	else
		sent = PQsendQueryPrepared(store->conn, name, params->count, params->values,
					   params->lengths, params->formats, binary);
	if (!sent) {
		fail(store, NULL, doing, err);
		return NULL;
	}
	return checked(store, await(store, doing, err), doing, err);
}

static bool send_step(struct pgsql_store *store, struct pgsql_step *step)
{
	const struct pgsql_params *params = step->params;
	char name[NAME_SIZE];

	if (store->pooled)
		return PQsendQueryParams(store->conn, store->slots[step->slot].sql, params->count,
					 NULL, params->values, params->lengths, params->formats,
					 step->binary);
	name_of(store, step->slot, name);
	return PQsendQueryPrepared(store->conn, name, params->count, params->values,
				   params->lengths, params->formats, step->binary);
}

/* The results of a pipeline, and what marks its end. */
static bool collect(struct pgsql_store *store, struct pgsql_step *steps, size_t count,
		    const char *doing, struct pr_err *err)
{
	bool fine = true;

	for (size_t i = 0; i <= count; i++) {
		PGresult *result = await(store, doing, err);

		if (!result) {
			abandon(store, POSTROOM_UNAVAILABLE);
			return false;
		}
		if (i == count || PQresultStatus(result) == PGRES_PIPELINE_ABORTED)
			PQclear(result);
		else if (!(steps[i].result = checked(store, result, doing, err)))
			fine = false;
	}
	PQexitPipelineMode(store->conn);
	return fine;
}

int pr_pgsql_run_all(struct pgsql_store *store, const struct pr_table *table,
		     struct pgsql_step *steps, size_t count, const char *doing, struct pr_err *err)
{
	bool fine = connected(store, doing, err);

	for (size_t i = 0; fine && i < count; i++)
		fine = prepare(store, steps[i].slot, table, steps[i].sql, doing, err);
	if (!fine)
		return err->status;
	PQenterPipelineMode(store->conn);
	for (size_t i = 0; fine && i < count; i++)
		fine = send_step(store, &steps[i]);
	if (!fine || !PQpipelineSync(store->conn))
		return abandon(store, fail(store, NULL, doing, err));
	if (collect(store, steps, count, doing, err))
		return POSTROOM_OK;
	for (size_t i = 0; i < count; i++) {
		PQclear(steps[i].result);
		steps[i].result = NULL;
	}
	return err->status;
}

static void close_store(struct postroom_store *base)
{
	struct pgsql_store *store = pgsql_store(base);

	if (store->box)
		store->box->ops->free(store->box);
	PQfinish(store->conn);
	for (size_t i = 0; i < PG_SLOTS; i++)
		free(store->slots[i].sql);
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
