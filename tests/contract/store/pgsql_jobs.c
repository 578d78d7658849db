/* SPDX-License-Identifier: Apache-2.0 */
/* Incoming events and jobs on PostgreSQL: statements, conflicts, notifications (N2, J1, D3). */
#include "contract/store/jobs.h"
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int take_in_with(const char *statement, bool ordered, struct pr_incoming_event *events,
			size_t count, size_t *ret_at, struct pr_err *err)
{
	return store->ops->inbox_insert(
		store, &(struct pr_inbox_insert){ "h", statement, ordered, events, count }, ret_at,
		err);
}

static void taken_in_with(const char *statement, bool ordered, const char *id)
{
	struct pr_incoming_event event = ARRIVAL(.id = id);
	struct pr_err err = { 0 };
	size_t at = 0;
	int status = take_in_with(statement, ordered, &event, 1, &at, &err);

	CHECK_MSG(status >= 0, "%s: %d %s", statement, status, err.text);
}

PGSQL_TEST(N2_error_at_commit_is_attributed_to_its_event)
{
	struct pr_incoming_event events[] = { ARRIVAL(.id = "a"), ARRIVAL(.id = "b"),
					      ARRIVAL(.id = "c"), ARRIVAL(.id = "d") };
	struct pr_err err = { 0 };
	size_t at = 99;

	sql(app, "CREATE TABLE known (id text PRIMARY KEY)");
	sql(app, "INSERT INTO known VALUES ('a'), ('b'), ('d')");
	sql(app, "CREATE TABLE effects (id text REFERENCES known DEFERRABLE INITIALLY DEFERRED)");
	CHECK_INT(take_in_with("INSERT INTO effects VALUES ($2)", false, events, 4, &at, &err),
		  POSTROOM_TX_ABORTED);
	CHECK_INT(at, 2);
	CHECK_CONTAINS(err.text, "foreign key");
	CHECK_STR(err.sqlstate, "23503");
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
	CHECK_INT(number(app, "SELECT count(*) FROM effects"), 0);
}

PGSQL_TEST(N2_procedure_cannot_commit_an_event_without_its_row)
{
	struct pr_incoming_event event = ARRIVAL(.id = "e");
	struct pr_err err = { 0 };
	size_t at = 99;

	sql(app, "CREATE TABLE effects (id text)");
	sql(app, "CREATE PROCEDURE note(id text) LANGUAGE plpgsql AS "
		 "$$BEGIN INSERT INTO effects VALUES (id); END$$");
	sql(app, "CREATE PROCEDURE end_it(id text) LANGUAGE plpgsql AS "
		 "$$BEGIN INSERT INTO effects VALUES (id); COMMIT; END$$");
	CHECK_INT(take_in_with("CALL end_it($2)", false, &event, 1, &at, &err),
		  POSTROOM_TX_ABORTED);
	CHECK_INT(at, 0);
	CHECK_CONTAINS(err.text, "transaction");
	CHECK_INT(number(app, "SELECT count(*) FROM effects"), 0);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
	taken_in_with("CALL note($2)", false, "e");
	CHECK_INT(number(app, "SELECT count(*) FROM effects"), 1);
}

PGSQL_TEST(N2_refused_statement_is_reported_with_reason)
{
	static const struct {
		const char *statement, *part;
	} bad[] = {
		{ " -- why\n /* and /* how */ */ ( commit", "begins with \"commit\"" },
		{ "", "is empty" },
		{ "/* nothing", "is empty" },
		{ "$2", "begins with \"$\"" },
		{ "DO 'BEGIN END'", "INSERT, UPDATE, DELETE" },
		{ "SELECT 1; COMMIT", "consists of several" },
		{ "SELECT $8::int", "$8" },
		{ "SELECT $8::int", "$7 correlation_id" },
		{ "SELECT nothing", "character 8" },
		{ "INSERT INTO nowhere VALUES ($2)", "\"nowhere\" does not exist" },
	};
	struct pr_err err = { 0 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_INT(pr_store_check_statement(store, bad[i].statement, &err),
			  POSTROOM_INVALID);
		CHECK_CONTAINS(err.text, bad[i].part);
		CHECK_CONTAINS(err.text, "the handler's statement");
		CHECK(!strstr(err.text, "migrate"));
	}
	CHECK_INT(pr_store_check_statement(store, "/* a */ (SELECT 1) -- b", &err), POSTROOM_OK);
}

PGSQL_TEST(N2_parameters_have_their_types)
{
	sql(app, "CREATE TABLE effects (what text)");
	taken_in_with("INSERT INTO effects SELECT pg_typeof($5) || ' ' || ($5 ->> 'h')", false,
		      "a");
	taken_in_with("INSERT INTO effects SELECT concat_ws(' ', pg_typeof($1), pg_typeof($2), "
		      "pg_typeof($3), pg_typeof($4))",
		      false, "b");
	taken_in_with("INSERT INTO effects VALUES ('{schema}{table}')", false, "c");
	CHECK_STR(text(app, "SELECT string_agg(what, '|' ORDER BY what) FROM effects"),
		  "jsonb text text text|jsonb v|{schema}{table}");
}

PGSQL_TEST(N2_conflict_is_retried_and_not_blamed_on_an_event)
{
	static const char *const conflicts[] = { "40001", "40P01" };

	sql(app, "CREATE TABLE effects (id text)");
	sql(app, "CREATE SEQUENCE tries");
	for (size_t i = 0; i < 2; i++) {
		sql(app,
		    "CREATE OR REPLACE FUNCTION effect(id text) RETURNS void LANGUAGE plpgsql AS "
		    "$$BEGIN IF nextval('tries') %% 3 <> 0 THEN RAISE EXCEPTION 'again' "
		    "USING ERRCODE = '%s'; END IF; INSERT INTO effects VALUES (id); END$$",
		    conflicts[i]);
		taken_in_with("SELECT effect($2)", false, conflicts[i]);
		CHECK_INT(number(app, "SELECT count(*) FROM effects"), i + 1);
	}
	CHECK_INT(number(app, "SELECT last_value FROM tries"), 6);
}

PGSQL_TEST(N2_statement_that_always_conflicts_has_failed)
{
	struct pr_incoming_event event = ARRIVAL(.id = "e");
	struct pr_err err = { 0 };
	size_t at = 99;

	sql(app, "CREATE FUNCTION effect(id text) RETURNS void LANGUAGE plpgsql AS "
		 "$$BEGIN RAISE EXCEPTION 'never' USING ERRCODE = '40001'; END$$");
	CHECK_INT(take_in_with("SELECT effect($2)", false, &event, 1, &at, &err),
		  POSTROOM_TX_ABORTED);
	CHECK_INT(at, 0);
	CHECK_CONTAINS(err.text, "never");
}

PGSQL_TEST(N2_prepared_statement_survives_a_change_of_its_table)
{
	const char *statement = "INSERT INTO effects (id) VALUES ($2) RETURNING *";

	sql(app, "CREATE TABLE effects (id text)");
	taken_in_with(statement, false, "a");
	sql(app, "ALTER TABLE effects ADD more int");
	taken_in_with(statement, false, "b");
	CHECK_INT(number(app, "SELECT count(*) FROM effects"), 2);
}

PGSQL_TEST(N2_lost_connection_is_not_blamed_on_an_event)
{
	struct pr_incoming_event events[] = { ARRIVAL(.id = "a"), ARRIVAL(.id = "b") };
	struct pr_err err = { 0 };
	size_t at = 99;

	CHECK_INT(take_in_with("SELECT pg_terminate_backend(pg_backend_pid())", false, events, 2,
			       &at, &err),
		  POSTROOM_UNAVAILABLE);
	CHECK_INT(at, 99);
	CHECK(!events[0].duplicate && !events[1].duplicate);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
}

PGSQL_TEST(N2_cancelled_or_raising_statement_has_failed)
{
	static const struct {
		const char *statement, *text;
	} bad[] = {
		/* As a timeout does. */
		{ "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(600)",
		  "the handler's statement failed: canceling statement due to user request" },
		{ "SELECT fail('no such account')",
		  "the handler's statement failed: no such account" },
	};

	sql(app, "CREATE FUNCTION fail(what text) RETURNS void LANGUAGE plpgsql AS "
		 "$$BEGIN RAISE EXCEPTION '%%', what; END$$");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct pr_incoming_event events[] = { ARRIVAL(.id = "a", .how = PR_INSERT_PENDING),
						      ARRIVAL(.id = "b") };
		struct pr_err err = { 0 };
		size_t at = 99;

		CHECK_INT(take_in_with(bad[i].statement, false, events, 2, &at, &err),
			  POSTROOM_TX_ABORTED);
		CHECK_INT(at, 1);
		CHECK_STR(err.text, bad[i].text);
	}
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
}

PGSQL_TEST(D6_statement_keeps_its_own_plan_with_ordered_events)
{
	sql(app, "CREATE TABLE effects (setting text)");
	taken_in_with("INSERT INTO effects SELECT current_setting('enable_seqscan')", true, "a");
	CHECK_STR(text(app, "SELECT setting FROM effects"), "on");
}

/* The reply of the store's own session; valid until the next call. */
static const char *asked_in_session(const char *sql_text)
{
	static char answer[4000];
	PGresult *result = PQexec(pgsql_store(store)->conn, sql_text);

	CHECK_MSG(PQresultStatus(result) != PGRES_FATAL_ERROR, "%s", PQresultErrorMessage(result));
	snprintf(answer, sizeof(answer), "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
	PQclear(result);
	return answer;
}

PGSQL_TEST(J1_statements_are_kept_for_each_table)
{
	struct postroom_batch batch = { 0 };
	char first[1000], again[1000];

	for (int i = 0; i < 2; i++) {
		postroom_batch_free(CLAIM(.limit = 1));
		JOBS(store, &batch);
		snprintf(i ? again : first, sizeof(first), "%s",
			 asked_in_session("SELECT string_agg(concat(name, ' ', prepare_time), '|' "
					  "ORDER BY name) FROM pg_prepared_statements "
					  "WHERE statement LIKE 'WITH now%state IN (''scheduled'', ''delayed'')%'"));
	}
	CHECK_CONTAINS(first, "|");
	CHECK_STR(again, first);
	pr_batch_release(&batch);
}

static void settle_and_claim(struct postroom_batch *now, bool reclaim_expired,
			     struct postroom_batch *next)
{
	const struct pr_policy policy = { .max_attempts = 3, .max_error_length = 100 };
	const struct pr_claim claim = { .scope.ns = "h",
					.limit = 2,
					.max_bytes = SIZE_MAX,
					.lease_ms = 30000,
					.max_attempts = 3,
					.reclaim_expired = reclaim_expired,
					.unordered = true };
	struct pr_err err = { 0 };

	for (size_t i = 0; i < now->count; i++)
		now->items[i].verdict = POSTROOM_DELIVERED;
	pr_batch_reset(next);
	CHECK_MSG(
		store->ops->settle_and_claim(store, &pr_table_inbox,
					     &(struct pr_settle){ now->items, now->count, &policy },
					     &claim, next, &err) == POSTROOM_OK,
		"%s", err.text);
}

/* Independent of the outbox's kind of lease. */
TEST_ON_PGSQL(J1_settle_and_claim_settles_jobs_and_claims_next)
{
	struct postroom_batch now = { 0 }, next = { 0 }, lost = { 0 };

	INSERT_EVENTS(false, ARRIVAL(.id = "a", .key = "k", .how = PR_INSERT_PENDING),
		      ARRIVAL(.id = "b", .key = "k", .how = PR_INSERT_PENDING),
		      ARRIVAL(.id = "c", .key = "k", .how = PR_INSERT_PENDING));
	JOBS(store, &now, .limit = 2, .unordered = true);
	CHECK_STR(jobs_in(&now), "a b ");
	settle_and_claim(&now, false, &next);
	CHECK_STR(jobs_in(&next), "c ");
	CHECK(next.items[0].unordered);
	CHECK_INT(jobs("completed"), 2);
	CHECK_INT(jobs("active"), 1);
	/* None was lost yet; who asks again finds what is lost since. */
	settle_and_claim(&next, true, &now);
	CHECK_INT(now.count, 0);
	job_submit("d", NULL);
	JOBS(store, &lost);
	jobs_shift("locked_until", -24 * 3600);
	settle_and_claim(&now, true, &next);
	CHECK_STR(jobs_in(&next), "d ");
	CHECK_INT(next.items[0].attempt, 2);
	pr_batch_release(&now);
	pr_batch_release(&next);
	pr_batch_release(&lost);
}

PGSQL_TEST(N2_event_refused_by_the_tables_fails_alone)
{
	static char long_id[1026];
	struct pr_incoming_event event = ARRIVAL(.id = long_id, .how = PR_INSERT_PENDING);
	struct pr_err err = { 0 };
	size_t at = 99;

	memset(long_id, 'a', 1025);
	CHECK_INT(take_in_with(NULL, false, &event, 1, &at, &err), POSTROOM_TX_ABORTED);
	CHECK_INT(at, 0);
	CHECK_CONTAINS(err.text, "id: 1 to 1024 bytes");
	event.how = PR_INSERT_COMPLETED;
	CHECK_INT(take_in_with("SELECT 1", false, &event, 1, &at, &err), POSTROOM_TX_ABORTED);
	/* The connection is as good as before. */
	taken_in_with("SELECT 1", false, "a");
	CHECK_STR(job_status("a"), "completed");
}

PGSQL_TEST(N2_event_without_a_statement_is_inserted_completed)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "a", .key = "k", .how = PR_INSERT_PENDING),
		ARRIVAL(.id = "b", .key = "k"),
		ARRIVAL(.id = "c", .key = "l"),
	};
	struct pr_err err = { 0 };
	size_t at = 99;

	CHECK_MSG(take_in_with(NULL, true, events, 3, &at, &err) == POSTROOM_OK, "%s", err.text);
	CHECK(events[1].waits && !events[2].waits);
	CHECK_STR(job_status("b"), "pending");
	CHECK_STR(job_status("c"), "completed");
}

static void *take_in_ordered(void *context)
{
	struct pr_incoming_event *events = context;

	taken_in(true, events, 3);
	return NULL;
}

/* Both were given the same events, and the other one has failed with the first. */
PGSQL_TEST(D6_event_left_unfinished_by_another_consumer_blocks_its_key)
{
	struct pr_incoming_event events[] = { ARRIVAL(.id = "k1", .key = "k"),
					      ARRIVAL(.id = "l1", .key = "l"),
					      ARRIVAL(.id = "k2", .key = "k") };
	struct session *eye = join();
	pthread_t thread;

	ledger_make();
	begin(app);
	sql(app, "INSERT INTO postroom_inbox (id, handler_name, topic, key) "
		 "VALUES ('k1', 'h', 't', 'k')");
	CHECK_INT(pthread_create(&thread, NULL, take_in_ordered, events), 0);
	await_blocked_pid(eye, PQbackendPID(pgsql_store(store)->conn));
	commit(app);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK(events[0].duplicate && !events[1].waits && events[2].waits);
	CHECK_INT(ledger(), 1);
	CHECK_STR(jobs_done(false), "k1 k2 ");
	leave(eye);
}

PGSQL_TEST(N2_pooled_connection_keeps_no_session_state)
{
	struct pr_incoming_event events[] = { ARRIVAL(.id = "a", .key = "k",
						      .how = PR_INSERT_PENDING),
					      ARRIVAL(.id = "b", .key = "k"), ARRIVAL(.id = "c") };
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };
	size_t at;

	ledger_make();
	pgsql_store(store)->pooled = true;
	CHECK_INT(pr_store_check_statement(store, "SELECT $6::int", &err), POSTROOM_INVALID);
	CHECK_MSG(take_in_with(ledger_statement(), true, events, 3, &at, &err) == POSTROOM_OK, "%s",
		  err.text);
	JOBS(store, &batch, .limit = 1);
	CHECK_STR(jobs_in(&batch), "a ");
	CHECK_MSG(store->ops->apply(store, ledger_statement(), batch.items, &err) == POSTROOM_OK,
		  "%s", err.text);
	CHECK_INT(ledger(), 2);
	CHECK_STR(asked_in_session("SELECT count(*) FROM pg_prepared_statements"), "0");
	pr_batch_release(&batch);
}

/* TRAPS 6 */
PGSQL_TEST(J1_jobs_of_a_stopped_handler_are_not_read_by_others)
{
	struct postroom_batch batch = { 0 };

	sql(app, "INSERT INTO postroom_inbox (id, handler_name) "
		 "SELECT n, 'other' FROM generate_series(1, 5000) AS n");
	job_submit("a", NULL);
	JOBS(store, &batch);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_UNTRIED), POSTROOM_OK);
	asked_in_session("BEGIN");
	JOBS(store, &batch);
	CHECK_STR(jobs_in(&batch), "a ");
	CHECK(atoi(asked_in_session("SELECT pg_stat_get_xact_tuples_returned("
				    "'postroom_inbox_due'::regclass)")) < 100);
	asked_in_session("COMMIT");
	pr_batch_release(&batch);
}

static int count_row(void *context, const postroom_row *row)
{
	(void)row;
	return ++*(int *)context < 0;
}

/* TRAPS 7: also by a store that claims, whose plans know no values. */
PGSQL_TEST(J2_job_is_found_by_id_among_many_later_ones)
{
	const postroom_filter *const by_id[] = {
		POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = "h", .id = "a"),
		POSTROOM_FILTER(.table = POSTROOM_INBOX, .id = "a"),
	};
	struct postroom_batch batch = { 0 };
	int found = 0;

	job_submit("a", NULL);
	sql(app, "INSERT INTO postroom_inbox (id, handler_name, status) "
		 "SELECT n, 'h', 'completed' FROM generate_series(1, 5000) AS n");
	for (size_t claimed = 0; claimed < 2; claimed++) {
		asked_in_session("BEGIN");
		for (size_t i = 0; i < 2; i++)
			CHECK_INT(postroom_list(store, by_id[i], 1, count_row, &found),
				  POSTROOM_OK);
		CHECK(atoi(asked_in_session("SELECT sum(pg_stat_get_xact_tuples_returned(c)) "
					    "FROM (VALUES ('postroom_inbox'::regclass), "
					    "('postroom_inbox_seq')) AS t(c)")) < 100);
		asked_in_session("COMMIT");
		JOBS(store, &batch);
	}
	CHECK_INT(found, 4);
	pr_batch_release(&batch);
}

PGSQL_TEST(U1_missing_column_is_distinguished_from_missing_migration)
{
	int found = 0;

	sql(app, "ALTER TABLE postroom_inbox DROP COLUMN content_type");
	CHECK_INT(postroom_list(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), 1, count_row,
				&found),
		  POSTROOM_SCHEMA);
	CHECK_CONTAINS(postroom_store_errmsg(store), "\"content_type\" does not exist");
	CHECK_CONTAINS(postroom_store_errmsg(store), "not as this version of Postroom makes them");
}

static bool notifies(const char *sql_text)
{
	PGnotify *received;
	bool notified = false;

	sql(app, "SELECT setval('postroom_inbox_notify_until', "
		 "(extract(epoch FROM clock_timestamp()) * 1000)::bigint + 3600000)");
	sql(app, "%s", sql_text);
	sql(app, "SELECT 1");
	while ((received = PQnotifies(conn_of(app)))) {
		notified = true;
		PQfreemem(received);
	}
	return notified;
}

PGSQL_TEST(D3_only_pending_inbox_rows_notify)
{
	sql(app, "DO $$BEGIN EXECUTE 'LISTEN postroom_' || 'postroom_inbox'::regclass::oid; END$$");
	CHECK(!notifies("SELECT postroom_inbox_once('a', 'h')"));
	CHECK(notifies("SELECT postroom_inbox_submit('h', 'b')"));
	CHECK(notifies("INSERT INTO postroom_inbox (id, handler_name) VALUES ('c', 'h')"));
	CHECK(!notifies("INSERT INTO postroom_inbox (id, handler_name, status) "
			"VALUES ('d', 'h', 'completed')"));
	CHECK(!notifies("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')"));
	sql(app, "SELECT setval('postroom_inbox_notify_until', 1)");
	sql(app, "SELECT postroom_inbox_submit('h', 'e')");
	CHECK(!PQnotifies(conn_of(app)));
}

/* Grants to this role what docs/postgres-roles.sql grants to workers. */
static void grant_to_worker(const char *role)
{
	FILE *file = fopen(TESTS_DIR "/../docs/postgres-roles.sql", "r");
	char line[300], statement[2000];
	bool meant = false;

	CHECK(file);
	statement[0] = '\0';
	while (fgets(line, sizeof(line), file)) {
		size_t len = strlen(statement);
		const char *at = line;

		if (*line == '\\') {
			meant = strncmp(line, "\\if :{?worker}", 14) == 0;
			continue;
		}
		if (!meant || strncmp(line, "--", 2) == 0)
			continue;
		for (; *at && len < sizeof(statement) - 100; at++) {
			const char *word = strncmp(at, ":\"schema\"", 9) == 0	? "public"
					   : strncmp(at, ":\"worker\"", 9) == 0 ? role
										: NULL;

			if (word) {
				len += (size_t)snprintf(statement + len, 100, "%s", word);
				at += 8;
			} else {
				statement[len++] = *at;
			}
		}
		statement[len] = '\0';
		if (strchr(line, ';')) {
			sql(app, "%s", statement);
			statement[0] = '\0';
		}
	}
	fclose(file);
}

static void work_as(postroom_store *worker)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "a", .key = "k", .how = PR_INSERT_PENDING),
		ARRIVAL(.id = "b", .key = "k"),
		ARRIVAL(.id = "c", .key = "l"),
		ARRIVAL(.id = "d", .key = "m", .how = PR_INSERT_DEAD, .error = "no"),
	};
	const struct pr_claim claim = {
		.scope.ns = "h", .limit = 10, .max_bytes = 1 << 20, .max_attempts = 3
	};
	struct pr_progress progress = {
		.handler = "h", .id = "a", .step = "one", .checkpoint = "1"
	};
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };
	int64_t count = 0;
	size_t at;
	bool any;

	CHECK_MSG(worker->ops->inbox_insert(
			  worker,
			  &(struct pr_inbox_insert){ "h", ledger_statement(), true, events, 4 },
			  &at, &err) >= 0,
		  "%s", err.text);
	JOBS(worker, &batch, .limit = 1, .reclaim_expired = true);
	CHECK_STR(jobs_in(&batch), "a ");
	progress.fencing_token = batch.items[0].fencing_token;
	CHECK_MSG(worker->ops->renew(worker, &pr_table_inbox, batch.items, 1, 30000, &err) >= 0 &&
			  worker->ops->progress(worker, &progress, &err) >= 0 &&
			  worker->ops->apply(worker, ledger_statement(), batch.items, &err) >= 0,
		  "%s", err.text);
	JOBS(worker, &batch);
	CHECK_STR(jobs_in(&batch), "b ");
	CHECK_INT(jobs_settle(worker, &batch, POSTROOM_FAILED), POSTROOM_OK);
	pr_batch_reset(&batch);
	CHECK_MSG(worker->ops->sweep(worker, &pr_table_inbox, &claim, &batch, &err) >= 0 &&
			  worker->ops->unfinished(worker, &pr_table_inbox, &claim, &any, &err) >=
				  0 &&
			  worker->ops->wait(worker, &pr_table_inbox, &claim.scope,
					    PR_STORE_SHORT_WAIT_MS + 1, &err) >= 0,
		  "%s", err.text);
	CHECK_INT(postroom_retry(worker, POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = "h",
							 .id = "d")),
		  POSTROOM_OK);
	CHECK_INT(postroom_purge_some(
			  worker, POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "completed"),
			  10, &count),
		  POSTROOM_OK);
	CHECK_INT(count, 2);
	pr_batch_release(&batch);
}

PGSQL_TEST(N1_worker_role_has_sufficient_privileges)
{
	char role[60], options[100], as_worker[400];
	postroom_store *worker = NULL;

	snprintf(role, sizeof(role), "postroom_worker_%d", (int)getpid());
	snprintf(options, sizeof(options), "-c role=%s", role);
	sql(app, "CREATE ROLE %s", role);
	ledger_make();
	grant_to_worker(role);
	sql(app, "GRANT INSERT ON ledger TO %s", role);
	url_with_options(options, as_worker);
	CHECK_INT(postroom_store_open(as_worker, &worker), POSTROOM_OK);
	work_as(worker);
	postroom_store_close(worker);
	sql(app, "SET ROLE %s", role);
	refused(app, "UPDATE postroom_inbox SET payload = '1'");
	refused(app, "UPDATE postroom_inbox SET id = 'x'");
	refused(app, "SELECT * FROM postroom_outbox");
	sql(app, "RESET ROLE");
	sql(app, "DROP OWNED BY %s", role);
	sql(app, "DROP ROLE %s", role);
}
