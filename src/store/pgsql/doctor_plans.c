/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plans of the statements that claim, as the server would run them now. Nothing is run.
 *
 * 1. A statement is prepared and explained with a generic plan, as a relay uses it.
 * 2. Every access to the outbox or inbox must be by ctid or by an index of ours. A setting of the
 *    role, or an added index, can change that.
 * 3. A missing index is the concern of the check "indexes", and reported once: this check then
 *    does not run.
 */
#include "store/pgsql/doctor.h"
#include "store/pgsql/statements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "postroom_doctor"
#define PLAN_SIZE 200
#define PARAMETERS_MOST 100

struct claims {
	const struct pgsql_sql *statements[6];
	size_t count;
};

/* Behind a pooler, the end of the transaction and of the statement must reach the same server. */
static void end_explaining(struct pgsql_inspection *in)
{
	struct pr_err ignored = { 0 };

	PQclear(pr_pgsql_query(in->store, "ROLLBACK; DEALLOCATE " NAME, NULL, PG_DOCTOR_DOING,
			       &ignored));
}

/* The plan, one line per row. NULL with err filled. */
static PGresult *explain(struct pgsql_inspection *in, const char *sql, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	PR_CLEANUP_RESULT PGresult *begun = NULL, *prepared = NULL, *counted = NULL;

	begun = pr_pgsql_query(in->store,
			       PG_DOCTOR_BEGIN "; SET LOCAL plan_cache_mode = force_generic_plan",
			       NULL, PG_DOCTOR_DOING, err);
	pr_buf_printf(&text, "PREPARE " NAME " AS ");
	pr_buf_puts(&text, sql);
	if (begun && !text.failed)
		prepared = pr_pgsql_query(in->store, pr_buf_text(&text), NULL, PG_DOCTOR_DOING, err);
	if (prepared)
		counted = pr_pgsql_query(in->store,
					 "SELECT cardinality(parameter_types) "
					 "FROM pg_prepared_statements WHERE name = '" NAME "'",
					 NULL, PG_DOCTOR_DOING, err);
	if (!counted || PQntuples(counted) != 1 || pr_pgsql_number_at(counted, 0, 0) > PARAMETERS_MOST)
		return NULL;
	pr_buf_reset(&text);
	pr_buf_puts(&text, "EXPLAIN EXECUTE " NAME "(NULL");
	for (int64_t i = 1; i < pr_pgsql_number_at(counted, 0, 0); i++)
		pr_buf_puts(&text, ", NULL");
	pr_buf_putc(&text, ')');
	return text.failed ? NULL
			   : pr_pgsql_query(in->store, pr_buf_text(&text), NULL, PG_DOCTOR_DOING,
					    err);
}

/* The length of a name, with its quotes if it has any. */
static size_t measure_name(const char *name)
{
	size_t len = 1;

	if (*name != '"')
		return strcspn(name, " ");
	while (name[len] && (name[len] != '"' || name[len + 1] == '"'))
		len += name[len] == '"' ? 2 : 1;
	return len + (name[len] == '"');
}

/* Whether the line is a step that reads the table in another way than claims should. */
static bool is_wrong(const char *line, const char *table)
{
	const char *index = strstr(line, " using "), *at;
	char on[80];

	/* The name of an index may contain the name of the table. */
	at = index ? index + strlen(" using ") + measure_name(index + strlen(" using ")) : line;
	snprintf(on, sizeof(on), " on %s", table);
	at = strstr(at, on);
	if (!at || !strstr(line, "Scan") || (at[strlen(on)] != ' ' && at[strlen(on)] != '\0'))
		return false;
	if (strstr(line, "Tid Scan on "))
		return false;
	return !index || strncmp(index + strlen(" using "), "postroom_", 9) != 0;
}

/* The first wrong step of the plan, without its costs; "" if there is none. */
static void find_wrong_step(const PGresult *plan, const char *table, char out[PLAN_SIZE])
{
	out[0] = '\0';
	for (int row = 0; row < PQntuples(plan) && !out[0]; row++) {
		const char *line = PQgetvalue(plan, row, 0), *end;

		if (!is_wrong(line, table))
			continue;
		line += strspn(line, " ->");
		end = strstr(line, "  (cost=");
		snprintf(out, PLAN_SIZE, "%.*s", end ? (int)(end - line) : (int)strlen(line), line);
		while (out[0] && out[strlen(out) - 1] == ' ')
			out[strlen(out) - 1] = '\0';
	}
}

/* The settings that keep the planner from using indexes: as commands. */
static void advise_settings(struct pgsql_inspection *in)
{
	struct pr_err err = { 0 };
	PR_CLEANUP_RESULT PGresult *result = pr_pgsql_query(
		in->store,
		"SELECT string_agg(format('ALTER ROLE %I IN DATABASE %I SET %s = on;', current_user, "
		"current_database(), name), E'\\n') FROM pg_settings WHERE reset_val = 'off' AND name IN "
		"('enable_indexscan', 'enable_indexonlyscan', 'enable_tidscan', 'enable_nestloop', "
		"'enable_sort', 'enable_material')",
		NULL, PG_DOCTOR_DOING, &err);

	if (result && PQntuples(result) == 1 && *PQgetvalue(result, 0, 0)) {
		pr_found_advice(in->checkup,
				"Planner settings of the role or the server are off. A superuser, or "
				"a role with CREATEROLE, runs the command. Then restart the relay.");
		pr_found_command(in->checkup, "%s", PQgetvalue(result, 0, 0));
		return;
	}
	pr_found_advice(in->checkup,
			"The command lists planner settings with unusual values. A superuser, or a "
			"role with CREATEROLE, resets them for the role of the relay.");
	pr_found_command(in->checkup,
			 "SELECT name, setting, source FROM pg_settings WHERE setting <> boot_val "
			 "AND (name LIKE '%%\\_cost' OR name LIKE 'enable\\_%%');");
}

static void report_step(struct pgsql_inspection *in, const struct pr_table *table, const char *step)
{
	const char *index = strstr(step, " using ");

	pr_found(in->checkup, PR_LEVEL_PROBLEM, "Claims from %s do not use their index",
		 table->name);
	pr_found_detail(in->checkup,
			"The plan has \"%s\". Each claim passes rows that are not due, so it "
			"becomes slower with the size of the table.",
			step);
	if (!index) {
		advise_settings(in);
		return;
	}
	index += strlen(" using ");
	pr_found_advice(in->checkup,
			"The index was added to the table, and the planner prefers it. The owner of "
			"the tables removes it.");
	pr_found_command(in->checkup, "DROP INDEX CONCURRENTLY %s%.*s;", in->store->schema,
			 (int)measure_name(index), index);
}

/* False: the other statements need not be explained. */
static bool check_claim(struct pgsql_inspection *in, const struct pgsql_sql *statement)
{
	char *sql = pr_pgsql_sql(in->store, statement->table, statement->text);
	struct pr_err err = { 0 };
	PR_CLEANUP_RESULT PGresult *plan = NULL;
	char step[PLAN_SIZE] = "";

	plan = sql ? explain(in, sql, &err) : NULL;
	end_explaining(in);
	free(sql);
	if (!plan) {
		pr_found_skipped(in->checkup, err.text[0] ? err.text : "There is not enough memory.",
				 NULL);
		return false;
	}
	find_wrong_step(plan, statement->table->name, step);
	if (step[0])
		report_step(in, statement->table, step);
	return !step[0];
}

/* A role that only relays may not: its claims from the inbox need no plan. */
static bool claims_from_inbox(struct pgsql_inspection *in)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pr_err err = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_buf_printf(&sql, "SELECT has_column_privilege('%spostroom_inbox', 'locked_by', 'UPDATE')",
		      in->store->schema);
	result = pr_pgsql_query(in->store, pr_buf_text(&sql), NULL, PG_DOCTOR_DOING, &err);
	return result && PQntuples(result) == 1 && *PQgetvalue(result, 0, 0) == 't';
}

void pr_pgsql_check_plans(struct pgsql_inspection *in)
{
	static const struct claims by_row = {
		{ &pr_sql_claim_scheduled_outbox, &pr_sql_claim_expired_outbox,
		  &pr_sql_claim_unkeyed, &pr_sql_claim_lanes_by_row },
		4
	};
	static const struct claims by_lane = {
		{ &pr_sql_claim_scheduled_outbox, &pr_sql_claim_expired_outbox,
		  &pr_sql_claim_lanes, &pr_sql_claim_lanes_unblocked, &pr_sql_claim_lanes_fast },
		5
	};
	static const struct claims inbox = {
		{ &pr_sql_claim_scheduled_inbox, &pr_sql_claim_expired_inbox }, 2
	};
	const struct claims *all[] = { in->store->kind == PR_LEASE_LANE ? &by_lane : &by_row,
				       &inbox };
	size_t count = 0;

	if (in->wrong_indexes ||
	    !pr_check_begin(in->checkup, "claim-plans", "Claims find messages by their indexes"))
		return;
	if (in->indexes)
		count = claims_from_inbox(in) ? 2 : 1;
	else
		pr_found_skipped(in->checkup, "The indexes were not checked.",
				 "See the checks \"schema\" and \"indexes\".");
	for (size_t n = 0; n < count; n++) {
		size_t i = 0;

		while (i < all[n]->count && check_claim(in, all[n]->statements[i]))
			i++;
	}
	pr_check_end(in->checkup);
}
