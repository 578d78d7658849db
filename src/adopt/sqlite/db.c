/* SPDX-License-Identifier: Apache-2.0 */
/* Statements of an adoption in SQLite, and its record. */
#include "adopt/sqlite/sqlite.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define DOING "reading the state of the adoption"

void pr_adopt_sqlite_put_literal(struct pr_buf *out, const char *text)
{
	pr_buf_putc(out, '\'');
	for (; *text; text++) {
		if (*text == '\'')
			pr_buf_putc(out, *text);
		pr_buf_putc(out, *text);
	}
	pr_buf_putc(out, '\'');
}

int pr_adopt_sqlite_run(struct pr_adopt *adopt, const char *sql, const char *doing,
			struct pr_err *err)
{
	if (sqlite3_exec(adopt_db(adopt), sql, NULL, NULL, NULL) == SQLITE_OK)
		return POSTROOM_OK;
	return pr_sqlite_fail(adopt_db(adopt), sqlite_store(adopt->store), doing, err);
}

int pr_adopt_sqlite_run_built(struct pr_adopt *adopt, struct pr_buf *sql, const char *doing,
			      struct pr_err *err)
{
	int status = sql->failed ? pr_err_nomem(err)
				 : pr_adopt_sqlite_run(adopt, pr_buf_text(sql), doing, err);

	pr_buf_reset(sql);
	return status;
}

int pr_adopt_sqlite_query(struct pr_adopt *adopt, const char *sql, const char *doing,
			  pr_adopt_row_fn fn, void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(adopt->store);
	sqlite3_stmt *stmt = NULL;
	int rc, status = POSTROOM_OK;

	if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, doing, err);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (fn)
			fn(context, stmt);
	}
	if (rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, doing, err);
	sqlite3_finalize(stmt);
	return status;
}

struct number {
	int64_t value;
	bool found;
};

static void take_number(void *context, sqlite3_stmt *row)
{
	struct number *number = context;

	if (!number->found)
		number->value = sqlite3_column_int64(row, 0);
	number->found = true;
}

int pr_adopt_sqlite_number(struct pr_adopt *adopt, const char *sql, const char *doing, int64_t *ret,
			   struct pr_err *err)
{
	struct number number = { 0 };
	int status = pr_adopt_sqlite_query(adopt, sql, doing, take_number, &number, err);

	if (status >= 0)
		*ret = number.value;
	return status;
}

void pr_adopt_sqlite_put_tables(struct pr_buf *out)
{
	pr_buf_puts(
		out,
		"CREATE TABLE IF NOT EXISTS postroom_adopted (\n"
		"\ttable_name TEXT PRIMARY KEY,\n\tpreset TEXT,\n\ttime_zone TEXT,\n"
		"\tmapping TEXT NOT NULL,\n\tmoved INTEGER NOT NULL DEFAULT 0,\n"
		"\tadopted_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%fZ', 'now'))"
		") STRICT;\n"
		"CREATE TABLE IF NOT EXISTS postroom_adopt_rejects (\n"
		"\ttable_name TEXT NOT NULL,\n\trow_key TEXT NOT NULL,\n\treason TEXT NOT NULL,\n"
		"\trejected_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%fZ', 'now')),\n"
		"\tPRIMARY KEY (table_name, row_key)) STRICT");
}

static const char *text_of(struct pr_adopt *adopt, sqlite3_stmt *row, int column)
{
	const char *text = (const char *)sqlite3_column_text(row, column);

	return text ? pr_arena_strdup(&adopt->arena, text) : NULL;
}

static void load_row(void *context, sqlite3_stmt *row)
{
	struct pr_adopt *adopt = context;
	const char *name = (const char *)sqlite3_column_text(row, 4);

	adopt->adopted = true;
	adopt->preset = text_of(adopt, row, 0);
	adopt->zone = text_of(adopt, row, 1);
	adopt->moved = sqlite3_column_int64(row, 2);
	adopt->since = text_of(adopt, row, 3);
	for (size_t part = 0; part < PR_ADOPT_PARTS; part++) {
		if (name && strcmp(pr_adopt_part_names[part], name) == 0)
			adopt->parts[part] = text_of(adopt, row, 5);
	}
}

int pr_adopt_sqlite_load_state(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int64_t exists = 0;
	int status = pr_adopt_sqlite_number(adopt,
					    "SELECT count(*) FROM main.sqlite_schema WHERE type = "
					    "'table' AND name = 'postroom_adopted'",
					    DOING, &exists, err);

	if (status < 0 || exists == 0)
		return status;
	pr_buf_puts(&sql,
		    "SELECT a.preset, a.time_zone, a.moved, a.adopted_at, m.key, m.value "
		    "FROM postroom_adopted AS a, json_each(a.mapping) AS m WHERE a.table_name = ");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	if (sql.failed)
		return pr_err_nomem(err);
	return pr_adopt_sqlite_query(adopt, sql.data, DOING, load_row, adopt, err);
}

static void put_nullable(struct pr_buf *out, const char *text)
{
	pr_buf_puts(out, ", ");
	if (text)
		pr_adopt_sqlite_put_literal(out, text);
	else
		pr_buf_puts(out, "NULL");
}

int pr_adopt_sqlite_save_state(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf mapping = { 0 }, sql = { 0 };

	pr_adopt_put_mapping(adopt, &mapping);
	pr_buf_puts(
		&sql,
		"INSERT OR IGNORE INTO postroom_adopted (table_name, preset, time_zone, mapping) "
		"VALUES (");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	put_nullable(&sql, adopt->preset);
	put_nullable(&sql, adopt->zone);
	put_nullable(&sql, pr_buf_text(&mapping));
	pr_buf_putc(&sql, ')');
	if (mapping.failed)
		return pr_err_nomem(err);
	return pr_adopt_sqlite_run_built(adopt, &sql, "recording the adoption", err);
}

int pr_adopt_sqlite_drop_state(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_puts(&sql, "DELETE FROM postroom_adopt_rejects WHERE table_name = ");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	pr_buf_puts(&sql, "; DELETE FROM postroom_adopted WHERE table_name = ");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	return pr_adopt_sqlite_run_built(adopt, &sql, "removing the record of the adoption", err);
}
