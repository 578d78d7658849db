/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the checks of doctor/pgsql.
 *
 * 1. A check reads in a read-only transaction of its own, which ends after seconds and waits
 *    for no lock longer than an instant: it blocks no other session, and its
 *    failure affects no other check.
 * 2. Every statement is bounded by a limit and goes by an index, whatever the statistics say.
 * 3. A check that the role may not make, or that takes too long, is skipped and never ok.
 * 4. Only a command that a check has marked as safe is ever run, and only for --fix.
 */
#include "store/pgsql/doctor.h"

#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN PG_DOCTOR_BEGIN
#define DOING PG_DOCTOR_DOING

/* The columns of a check's result. */
enum { LEVEL, TITLE, DETAIL, ADVICE, COMMAND, FIX, COLUMNS };

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Puts in what the {name} at the beginning of sql stands for; its length, 0 for none. */
static size_t put_setting_word(const struct pgsql_inspection *in, const char *sql,
			       struct pr_buf *out)
{
	const struct pr_inspection *inspection = in->inspection;
	const struct {
		const char *name;
		int64_t value;
	} numbers[] = {
		{ "{patience_ms}", inspection->patience_ms },
		{ "{lease_patience_ms}", lesser(inspection->patience_ms, 60000) },
		{ "{lock_patience_ms}", lesser(inspection->patience_ms, 10000) },
		{ "{retention_ms}", inspection->retention_ms },
		{ "{inbox_retention_ms}", inspection->inbox_retention_ms },
		{ "{dedupe_retention_ms}", inspection->dedupe_retention_ms },
		{ "{workers}", inspection->workers },
	};
	const struct {
		const char *name, *value;
		void (*put)(struct pr_buf *out);
	} texts[] = {
		{ "{pooled}", in->store->pooled ? "true" : "false", NULL },
		{ "{keyed}", in->store->kind == PR_LEASE_LANE ? "" : "AND key IS NOT NULL", NULL },
		{ "{indexes}", "", pr_pgsql_put_indexes },
		{ "{triggers}", "", pr_pgsql_put_triggers },
		{ "{objects}", "", pr_pgsql_put_objects },
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (strncmp(sql, numbers[i].name, strlen(numbers[i].name)) == 0) {
			pr_buf_printf(out, "%lld", (long long)numbers[i].value);
			return strlen(numbers[i].name);
		}
	}
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (strncmp(sql, texts[i].name, strlen(texts[i].name)) == 0) {
			pr_buf_puts(out, texts[i].value);
			if (texts[i].put)
				texts[i].put(out);
			return strlen(texts[i].name);
		}
	}
	return 0;
}

/* Fills in all {names} of the doctor's own; the store's are filled in later. */
static void fill(const struct pgsql_inspection *in, const char *sql, struct pr_buf *out)
{
	const char *at;

	while ((at = strchr(sql, '{'))) {
		size_t len;

		pr_buf_append(out, sql, (size_t)(at - sql));
		len = put_setting_word(in, at, out);
		if (len == 0)
			pr_buf_putc(out, '{');
		sql = at + (len ? len : 1);
	}
	pr_buf_puts(out, sql);
}

/* The answer of one statement in a transaction of its own. NULL with err filled. */
static PGresult *query_alone(struct pgsql_inspection *in, const char *sql, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	PGresult *begun, *result = NULL;
	char *filled;

	fill(in, sql, &text);
	filled = text.failed ? NULL : pr_pgsql_sql(in->store, NULL, pr_buf_text(&text));
	if (!filled) {
		pr_err_nomem(err);
		return NULL;
	}
	begun = pr_pgsql_query(in->store, BEGIN, NULL, DOING, err);
	if (begun) {
		struct pr_err ignored = { 0 };

		result = pr_pgsql_query(in->store, filled, NULL, DOING, err);
		PQclear(pr_pgsql_query(in->store, "ROLLBACK", NULL, DOING, &ignored));
	}
	PQclear(begun);
	free(filled);
	return result;
}

static enum pr_level level_of(const char *word)
{
	for (int i = 0; i < PR_LEVELS; i++) {
		if (strcmp(pr_level_names[i], word) == 0)
			return (enum pr_level)i;
	}
	return PR_LEVEL_PROBLEM;
}

static void report_row(struct pr_checkup *checkup, const PGresult *result, int row)
{
	pr_found(checkup, level_of(PQgetvalue(result, row, LEVEL)), "%s",
		 PQgetvalue(result, row, TITLE));
	pr_found_detail(checkup, "%s", PQgetvalue(result, row, DETAIL));
	pr_found_advice(checkup, "%s", PQgetvalue(result, row, ADVICE));
	pr_found_command(checkup, "%s", PQgetvalue(result, row, COMMAND));
}

/* Outside of the check's transaction, since CONCURRENTLY wants none. */
static void fix(struct pgsql_inspection *in, const char *command)
{
	struct pr_err err = { 0 }, ignored = { 0 };
	PGresult *result;

	if (!in->store->pooled)
		PQclear(pr_pgsql_query(in->store, "SET lock_timeout = '5s'", NULL, DOING,
				       &ignored));
	result = pr_pgsql_query(in->store, command, NULL, "fixing", &err);
	PQclear(result);
	if (!in->store->pooled)
		PQclear(pr_pgsql_query(in->store, "SET lock_timeout = 0", NULL, DOING, &ignored));
	in->inspection->fixed(in->inspection->context, command, result ? NULL : &err);
}

static void run_check(struct pgsql_inspection *in, const struct pgsql_check *check)
{
	struct pr_err err = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if ((check->schema && !in->schema) || (check->tables && !in->tables)) {
		pr_found_skipped(in->checkup, in->unreadable, "See the check \"schema\".");
		return;
	}
	if (check->sessions && !in->sees_sessions) {
		pr_found_skipped(
			in->checkup, "This role cannot see the transactions of other sessions.",
			"A superuser grants it the role pg_read_all_stats, or runs doctor.");
		pr_found_command(in->checkup, "%s", in->grant);
		return;
	}
	result = query_alone(in, check->sql, &err);
	if (!result || PQnfields(result) != COLUMNS) {
		pr_found_skipped(in->checkup, result ? "The server did not answer the question." : err.text, NULL);
		return;
	}
	if (strcmp(check->id, "indexes") == 0) {
		in->indexes = true;
		in->wrong_indexes = PQntuples(result) > 0;
	}
	for (int i = 0; i < PQntuples(result); i++) {
		report_row(in->checkup, result, i);
		if (in->inspection->fixed && *PQgetvalue(result, i, FIX) == 't')
			fix(in, PQgetvalue(result, i, COMMAND));
	}
}

static bool has_relation(const struct pgsql_inspection *in, const char *name)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pr_err err = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_buf_printf(&sql, "SELECT to_regclass('%s%s') IS NOT NULL", in->store->schema, name);
	result = pr_pgsql_query(in->store, pr_buf_text(&sql), NULL, DOING, &err);
	return !result || PQntuples(result) != 1 || *PQgetvalue(result, 0, 0) == 't';
}

static bool applies(const struct pgsql_inspection *in, const struct pgsql_check *check)
{
	int version = PQserverVersion(in->store->conn);

	return (!check->since || version >= check->since) &&
	       (!check->before || version < check->before) &&
	       (!check->relation || !in->tables || has_relation(in, check->relation));
}

/* Another session holds a lock, or the server is too slow: nothing is known about the tables. */
static bool is_timeout(const struct pr_err *err)
{
	return strcmp(err->sqlstate, "55P03") == 0 || strcmp(err->sqlstate, "57014") == 0;
}

static void report_wrong_schema(struct pgsql_inspection *in, const struct pr_err *err)
{
	in->unreadable = "The tables are missing or of another version.";
	pr_found(in->checkup, PR_LEVEL_PROBLEM, "The schema does not fit this program");
	pr_found_detail(in->checkup, "%s. Neither producers nor relays can work.", err->text);
	if (pr_schema_is_incompatible(err)) {
		pr_found_advice(in->checkup, "The operator installs a newer postroom.");
	} else {
		pr_found_advice(in->checkup,
				"The owner of the tables runs the command, once for all relays.");
		pr_found_command(in->checkup, "postroom migrate");
	}
}

/* The role may not read the tables: it is not known whether they are up to date. */
static void report_refusal(struct pgsql_inspection *in, const struct pr_err *err)
{
	in->unreadable = "This role may not read the tables.";
	pr_found(in->checkup, PR_LEVEL_PROBLEM, "The role may not read the tables");
	pr_found_detail(in->checkup, "%s. A relay with this role cannot work.", err->text);
	pr_found_advice(in->checkup, "The owner of the tables runs the commands, or postgres-roles.sql, "
				     "and then doctor again.");
	pr_found_command(in->checkup, "%s", in->grant_reading);
}

/* The migrations were applied, but the lanes cannot be read or are gone. */
static void report_unreadable_lanes(struct pgsql_inspection *in, const struct pr_err *err)
{
	in->unreadable = "The table postroom_lanes cannot be read.";
	pr_found(in->checkup, PR_LEVEL_PROBLEM, "The lanes cannot be read");
	pr_found_detail(in->checkup, "%s. Relays cannot claim messages.", err->text);
	if (*err->sqlstate) {
		pr_found_advice(in->checkup,
				"See the checks \"objects\" and \"privileges\". The owner of the "
				"tables corrects what they name.");
		return;
	}
	pr_found_advice(in->checkup, "The owner of the tables runs the command.");
	pr_found_command(in->checkup,
			 "INSERT INTO %spostroom_lanes (lane) SELECT generate_series(1, 64);",
			 in->store->schema);
}

/* In a transaction of its own, with the timeouts of all checks. */
static void check_schema(struct pgsql_inspection *in)
{
	struct pr_err err = { 0 }, ignored = { 0 };
	bool lost;

	if (!pr_check_begin(in->checkup, "schema", "The schema fits this program"))
		return;
	PQclear(pr_pgsql_query(in->store, BEGIN, NULL, DOING, &ignored));
	in->schema = in->store->base.ops->check_schema(&in->store->base, PR_SCHEMA_COMPLETE,
						       &err) >= 0;
	in->tables = in->schema && pr_pgsql_check_lease_kind(in->store, &lost, &err) >= 0;
	PQclear(pr_pgsql_query(in->store, "ROLLBACK", NULL, DOING, &ignored));
	if (is_timeout(&err)) {
		in->unreadable = "Another session holds a lock on the tables, or the server is slow.";
		pr_found_skipped(in->checkup, err.text,
				 "See the check \"blocked\", or run doctor again later.");
	} else if (!in->schema && strcmp(err.sqlstate, "42501") == 0) {
		report_refusal(in, &err);
	} else if (!in->schema) {
		report_wrong_schema(in, &err);
	} else if (!in->tables) {
		report_unreadable_lanes(in, &err);
	}
	pr_check_end(in->checkup);
}

#define SKEW_NOTE_US 1000000
#define SKEW_WARNING_US 5000000

static void check_clock(struct pgsql_inspection *in)
{
	struct pr_err err = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	int64_t before_us, round_us, theirs_us, skew_us;

	if (!pr_check_begin(in->checkup, "clock", "The clocks agree"))
		return;
	before_us = pr_now_us();
	round_us = pr_mono_us();
	result = pr_pgsql_query(in->store, "SELECT " PG_TIME("clock_timestamp()"), NULL, DOING,
				&err);
	round_us = pr_mono_us() - round_us;
	if (!result) {
		pr_found_skipped(in->checkup, err.text, NULL);
	} else {
		theirs_us = pr_pgsql_number_at(result, 0, 0);
		skew_us = llabs(theirs_us - before_us - round_us / 2) - round_us / 2;
		if (skew_us > SKEW_NOTE_US) {
			pr_found(in->checkup,
				 skew_us > SKEW_WARNING_US ? PR_LEVEL_WARNING : PR_LEVEL_NOTE,
				 "The clocks of this host and of the server differ by %.1f s",
				 (double)skew_us / 1e6);
			pr_found_detail(
				in->checkup,
				"Leases are safe: only the server's clock counts. Logs, latencies "
				"and webhook timestamps are wrong.");
			pr_found_advice(in->checkup,
					"The administrators of both hosts run a time service.");
			pr_found_command(in->checkup, "timedatectl set-ntp true");
		}
	}
	pr_check_end(in->checkup);
}

/* The privileges for the check of the schema itself. The check of the privileges names all others. */
static void put_reading_grants(struct pgsql_inspection *in, const char *role)
{
	const char *schema = in->store->schema;

	snprintf(in->grant_reading, sizeof(in->grant_reading),
		 "GRANT USAGE ON SCHEMA %.*s TO %s;\nGRANT SELECT ON %spostroom_migrations, "
		 "%spostroom_lanes TO %s;",
		 (int)strlen(schema) - 1, schema, role, schema, schema, role);
}

static void learn_sight(struct pgsql_inspection *in)
{
	struct pr_err err = { 0 };
	PR_CLEANUP_RESULT PGresult *result = pr_pgsql_query(
		in->store,
		"SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), "
		"format('GRANT pg_read_all_stats TO %I;', current_user), quote_ident(current_user)",
		NULL, DOING, &err);

	if (!result || PQntuples(result) != 1 || PQnfields(result) != 3)
		return;
	put_reading_grants(in, PQgetvalue(result, 0, 2));
	in->sees_sessions = *PQgetvalue(result, 0, 0) == 't';
	snprintf(in->grant, sizeof(in->grant), "%s", PQgetvalue(result, 0, 1));
}

/* It reads what waits until it has found enough: so that it ends, the session has a timeout. */
static void check_routes(struct pgsql_inspection *in)
{
	struct pr_err ignored = { 0 };

	if (!in->store->pooled)
		PQclear(pr_pgsql_query(in->store, "SET statement_timeout = '3s'; SET row_security = off",
				       NULL, DOING, &ignored));
	pr_inspect_routes(&in->store->base, in->inspection, in->tables && in->store->rules.count > 0,
			  in->checkup);
	if (!in->store->pooled)
		PQclear(pr_pgsql_query(in->store, "SET statement_timeout = 0; SET row_security = on",
				       NULL, DOING, &ignored));
}

int pr_pgsql_inspect(struct postroom_store *base, const struct pr_inspection *inspection,
		     struct pr_checkup *checkup, struct pr_err *err)
{
	struct pgsql_inspection in = { .store = pgsql_store(base),
				       .inspection = inspection,
				       .checkup = checkup,
				       .unreadable = "The schema was not checked." };

	learn_sight(&in);
	check_schema(&in);
	for (const struct pgsql_check *check = pr_pgsql_checks; check->id; check++) {
		if (!applies(&in, check) || !pr_check_begin(checkup, check->id, check->title))
			continue;
		run_check(&in, check);
		pr_check_end(checkup);
	}
	pr_pgsql_check_plans(&in);
	pr_pgsql_check_pooler(&in);
	check_clock(&in);
	check_routes(&in);
	if (PQstatus(in.store->conn) != CONNECTION_OK)
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "the connection was lost during the inspection");
	return POSTROOM_OK;
}
