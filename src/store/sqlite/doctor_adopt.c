/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's check of tables that `postroom adopt` has adopted. */
#include "store/sqlite/doctor.h"

#define ADOPTED "EXISTS (SELECT 1 FROM main.sqlite_schema WHERE name = 'postroom_adopted')"

static const char *column_text(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text ? text : "";
}

static bool is_adopted(struct sqlite_inspection *in)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare_check(in, "SELECT " ADOPTED);
	bool adopted = stmt && sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_int(stmt, 0);

	sqlite3_finalize(stmt);
	return adopted;
}

static void advise_adopting(struct sqlite_inspection *in, const char *table)
{
	pr_found_command(in->checkup, "postroom adopt --yes ");
	pr_found_command_word(in->checkup, table);
}

static void find_rejects(struct sqlite_inspection *in)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare_check(
		in, "SELECT table_name, count(*), min(row_key), reason FROM (SELECT * FROM "
		    "postroom_adopt_rejects LIMIT 100000) GROUP BY table_name ORDER BY 1");
	int rc = SQLITE_ERROR;

	while (stmt && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		pr_found(in->checkup, PR_LEVEL_WARNING, "%s row(s) of %s cannot be messages",
			 column_text(stmt, 1), column_text(stmt, 0));
		pr_found_detail(in->checkup,
				"They wait in their table, and no relay sees them. Row %s: %s.",
				column_text(stmt, 2), column_text(stmt, 3));
		pr_found_advice(in->checkup,
				"The owner of the table corrects the rows, then runs the command.");
		advise_adopting(in, column_text(stmt, 0));
	}
	if (rc != SQLITE_DONE)
		pr_sqlite_skip_failed(in);
	sqlite3_finalize(stmt);
}

static void find_unmirrored(struct sqlite_inspection *in)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare_check(
		in, "SELECT a.table_name, EXISTS (SELECT 1 FROM main.sqlite_schema AS t WHERE "
		    "t.type = 'table' "
		    "AND t.name = a.table_name), quote(a.table_name) FROM postroom_adopted AS a "
		    "WHERE (SELECT count(*) FROM "
		    "main.sqlite_schema AS g WHERE g.type = 'trigger' AND lower(g.tbl_name) = "
		    "lower(a.table_name) "
		    "AND (g.name GLOB 'postroom_adopt_insert_*' OR g.name GLOB "
		    "'postroom_adopt_reopen_*')) < "
		    "CASE WHEN json_extract(a.mapping, '$.done') IN ('delete', 'none') THEN 1 ELSE "
		    "2 END "
		    "ORDER BY 1");
	int rc = SQLITE_ERROR;

	while (stmt && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		bool exists = sqlite3_column_int(stmt, 1);

		pr_found(in->checkup, exists ? PR_LEVEL_PROBLEM : PR_LEVEL_NOTE,
			 exists ? "Rows of %s are not mirrored"
				: "The adopted table %s does not exist",
			 column_text(stmt, 0));
		pr_found_detail(in->checkup,
				exists ? "A trigger of the adoption is missing. New rows, or rows "
					 "that are opened again, wait in their table, and no relay "
					 "sees them."
				       : "It was dropped or renamed.");
		pr_found_advice(in->checkup, exists ? "The owner of the table runs the command."
						    : "If it was renamed, run \"postroom adopt\" "
						      "for the new name first. The owner "
						      "of the table then runs the command.");
		if (exists)
			advise_adopting(in, column_text(stmt, 0));
		else
			pr_found_command(in->checkup,
					 "DELETE FROM postroom_adopted WHERE table_name = %s;",
					 column_text(stmt, 2));
	}
	if (rc != SQLITE_DONE)
		pr_sqlite_skip_failed(in);
	sqlite3_finalize(stmt);
}

void pr_sqlite_check_adopted(struct sqlite_inspection *in)
{
	if (!pr_check_begin(in->checkup, "adopted",
			    "Every row of the adopted tables becomes a message"))
		return;
	if (is_adopted(in)) {
		find_unmirrored(in);
		find_rejects(in);
	}
	pr_check_end(in->checkup);
}
