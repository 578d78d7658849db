/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the objects of a SQLite database with the statements of the migrations. */
#include "store/sqlite/doctor.h"

#include "store/schema.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Whether two statements are the same but for white space and a semicolon. */
static bool same_sql(const char *a, size_t a_len, const char *b)
{
	const char *end = a + a_len;

	for (;;) {
		while (a < end && isspace((unsigned char)*a))
			a++;
		while (isspace((unsigned char)*b))
			b++;
		if (a == end || !*b)
			return a == end && !*b;
		if (*a++ != *b++)
			return false;
	}
}

/* Runs the command that the finding printed. It concerns an index of our own. */
static void fix(struct sqlite_inspection *in, const char *command)
{
	struct pr_err err = { 0 };
	int got;

	/* An index of a large table takes longer than a check may. */
	sqlite3_progress_handler(in->store->db, 0, NULL, NULL);
	sqlite3_exec(in->store->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	got = sqlite3_exec(in->store->db, command, NULL, NULL, NULL);
	if (got == SQLITE_OK)
		got = sqlite3_exec(in->store->db, "COMMIT", NULL, NULL, NULL);
	if (got != SQLITE_OK) {
		pr_sqlite_fail(in->store->db, in->store, "fixing", &err);
		sqlite3_exec(in->store->db, "ROLLBACK", NULL, NULL, NULL);
	}
	sqlite3_progress_handler(in->store->db, SQLITE_PROGRESS_STEPS, pr_sqlite_interrupt_late, in);
	in->inspection->fixed(in->inspection->context, command, got == SQLITE_OK ? NULL : &err);
}

static const struct object_kind {
	const char *words, *kind, *end;
	const char *harm;
} object_kinds[] = {
	{ "CREATE TABLE ", "Table", ";\n", "Statements that use the table fail." },
	{ "CREATE INDEX ", "Index", ";",
	  "Claims, sweeps or purges name this index and fail without it." },
	{ "CREATE UNIQUE INDEX ", "Index", ";",
	  "Claims, sweeps or purges name this index and fail without it." },
	{ "CREATE VIEW ", "View", ";", "Statements of producers or relays that use it fail." },
	{ "CREATE TRIGGER ", "Trigger", "\nEND;",
	  "Rows that the relay cannot handle are accepted, or duplicates are sent." },
};

static void report_object(struct sqlite_inspection *in, const struct object_kind *kind,
			  const char *name, bool there, const char *sql)
{
	PR_CLEANUP_BUF struct pr_buf command = { 0 };

	pr_found(in->checkup, there ? PR_LEVEL_WARNING : PR_LEVEL_PROBLEM, "%s %s %s", kind->kind,
		 name, there ? "differs from its definition" : "is missing");
	pr_found_detail(in->checkup, "%s", kind->harm);
	if (there && strcmp(kind->kind, "Table") == 0) {
		pr_found_advice(in->checkup,
				"The owner of the file compares the table with that of a new "
				"file, which \"postroom migrate\" creates, and restores the "
				"columns and constraints.");
		return;
	}
	if (there)
		pr_buf_printf(&command, "DROP %s %s;\n", kind->kind, name);
	pr_buf_printf(&command, "%s;", sql);
	if (strcmp(kind->kind, "Index") == 0) {
		pr_found_advice(in->checkup, "The owner of the file runs the command with sqlite3, "
					     "or postroom doctor --fix.");
		if (in->inspection->fixed && !command.failed)
			fix(in, pr_buf_text(&command));
	} else {
		pr_found_advice(in->checkup, "The owner of the file runs the command with sqlite3.");
	}
	pr_found_command(in->checkup, "%s", pr_buf_text(&command));
}

/* A statement of the embedded schema that creates an object. */
static void check_object(struct sqlite_inspection *in, const struct object_kind *kind,
			 const char *name, const char *sql, size_t len)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	sqlite3_stmt *stmt = pr_sqlite_prepare_check(in, "SELECT sql FROM sqlite_schema WHERE name = ?1");
	bool there, same;

	if (!stmt) {
		pr_sqlite_skip_failed(in);
		return;
	}
	sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
	there = sqlite3_step(stmt) == SQLITE_ROW;
	same = there && sqlite3_column_text(stmt, 0) &&
	       same_sql(sql, len, (const char *)sqlite3_column_text(stmt, 0));
	sqlite3_finalize(stmt);
	if (same)
		return;
	pr_buf_append(&text, sql, len);
	report_object(in, kind, name, there, pr_buf_text(&text));
}

/* Only statements that begin a line count. */
static void check_objects_of(struct sqlite_inspection *in, const char *sql,
			     const struct object_kind *kind)
{
	const char *at = sql;

	while ((at = strstr(at, kind->words))) {
		const char *end = strstr(at, kind->end);
		const char *from = at + strlen(kind->words);
		char name[64];

		if (!end)
			return;
		if (strcmp(kind->kind, "Trigger") == 0)
			end += strlen("\nEND");
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(from, " \n\t("), from);
		if (at == sql || at[-1] == '\n')
			check_object(in, kind, name, at, (size_t)(end - at));
		at = end;
	}
}

void pr_sqlite_check_objects(struct sqlite_inspection *in)
{
	const struct pr_migration *migration = pr_schema_sqlite;

	if (!pr_check_begin(in->checkup, "objects", "Tables, indexes, views and triggers are as defined"))
		return;
	if (!in->tables)
		pr_found_skipped(in->checkup, "The tables are missing or of another version.",
				 "See the check \"schema\".");
	for (; in->tables && migration->version; migration++) {
		for (size_t i = 0; i < sizeof(object_kinds) / sizeof(object_kinds[0]); i++)
			check_objects_of(in, migration->sql, &object_kinds[i]);
	}
	pr_check_end(in->checkup);
}
