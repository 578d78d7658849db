/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts errors of the server or libpq into a status and a sentence.
 *
 * 1. No message contains the password.
 * 2. A failure of the user's own statement is reported with the server's text alone: advice about
 *    our tables does not apply to theirs.
 */
#include "store/pgsql/pgsql.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The status for an SQLSTATE of the server. */
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

/* Advice to the user for an SQLSTATE. */
static const char *advice_for(const char *sqlstate)
{
	static const struct {
		const char *prefix;
		const char *advice;
	} known[] = {
		{ "42P01", "; run `postroom migrate`" },
		{ "42883", "; run `postroom migrate`" },
		{ "42703", "; the tables are not as this version of Postroom makes them: "
			   "`postroom migrate --status` says which version has made them" },
		{ "3F000", "; create the schema or name another with --schema, then run `postroom "
			   "migrate`" },
		{ "28P01", "; check user and password in the database URL" },
		{ "28000", "; check the user and the server's pg_hba.conf" },
		{ "3D000", "; create it or name another in the database URL" },
		{ "53100", "; make room on the server, nothing is lost" },
		{ "53300", "; use fewer workers or raise max_connections" },
		{ "25006", "; this is a standby: name the primary, or all hosts and "
			   "target_session_attrs=read-write" },
		{ "40001", "; try the transaction again" },
		{ "40P01", "; try the transaction again" },
		{ "55P03", "; another session holds a lock, retry" },
		{ "57014", "; it took too long or waited for a lock, retry" },
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
		{ "sequence postroom_notify_until", "enqueue", "SELECT" },
		{ "sequence postroom_notify_until", "", "SELECT and UPDATE" },
		{ "sequence postroom_inbox_notify_until", "inbox ", "SELECT" },
		{ "sequence postroom_inbox_notify_until", "", "SELECT and UPDATE" },
		{ "sequence ", "", "USAGE" },
		{ "schema ", "creating ", "CREATE" },
		{ "schema ", "", "USAGE" },
		{ "database ", "creating ", "CREATE" },
		{ "database ", "", "CONNECT" },
		{ "table postroom_outbox", "enqueue",
		  "INSERT, and SELECT of id, namespace, topic and dedupe_key," },
		{ "table postroom_dedupe", "enqueue", "SELECT, INSERT and UPDATE" },
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
		{ "table postroom_inbox", "taking ", "SELECT and INSERT" },
		{ "table postroom_inbox", "purging ", "SELECT, UPDATE and DELETE" },
		{ "table postroom_inbox", "claiming ", "SELECT and UPDATE" },
		{ "table postroom_inbox", "settling ", "SELECT and UPDATE" },
		{ "table postroom_inbox", "renewing ", "SELECT and UPDATE" },
		{ "table postroom_inbox", "completing ", "SELECT and UPDATE" },
		{ "table postroom_inbox", "writing ", "SELECT and UPDATE" },
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

/* Not the statement's: the connection, room, the disk, a standby, and conflicts worth another try. */
static bool is_database_error(const char *code)
{
	static const char *const prefixes[] = { "08",    "53",	  "57P",   "58",   "40001",
						"40P01", "25006", "XX001", "XX002" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		if (strncmp(code, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	}
	return false;
}

int pr_pgsql_fail_statement(PGconn *conn, const PGresult *result, const char *where, int status,
			    const char *doing, struct pr_err *err)
{
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	/* An error that ends the session is an outage of the database. */
	if (!code || !message || !severity || strcmp(severity, "ERROR") != 0 || is_database_error(code))
		return pr_pgsql_fail(conn, result, where, doing, err);
	if (position)
		pr_err_set(err, status, "%s: %s, at character %s of it", doing, message, position);
	else
		pr_err_set(err, status, "%s: %s", doing, message);
	snprintf(err->sqlstate, sizeof(err->sqlstate), "%s", code);
	return status;
}
