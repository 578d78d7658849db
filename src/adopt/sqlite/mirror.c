/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror in SQLite:
 * 1. A view, postroom_adopt_…, takes messages. Its trigger finds the reason why one cannot be sent,
 *    or NULL, and hands both to a second view, whose trigger marks the row and writes the message,
 *    or else the reject. The backlog inserts into the first view, too.
 * 2. A statement in a trigger has the conflict handling of the application's own statement: an
 *    INSERT OR REPLACE would replace a message, and a failed CHECK would fail the application. So
 *    everything that could conflict or fail is tested before: reason has the very CHECKs of
 *    postroom_outbox.
 * 3. The row is marked first. If a trigger of theirs undoes that, or a constraint refuses it (OR
 *    IGNORE), the message is not written.
 */
#include "adopt/sqlite/sqlite.h"

#include <string.h>

#define DOING "reading the rules of postroom_outbox"
#define COLUMNS                                                                                    \
	"id, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, body, "        \
	"content_type, headers, next_attempt_at, created_at"
#define NOT_MARKED                                                                                  \
	"'a trigger or a constraint keeps the row from being marked as done, so it would be sent twice'"

/* Past a quoted text, a comment, or one character. */
static const char *skip(const char *sql)
{
	const char *end;

	if (*sql == '\'' || *sql == '"')
		end = strchr(sql + 1, *sql);
	else if (sql[0] == '-' && sql[1] == '-')
		end = strchr(sql, '\n');
	else
		return sql + 1;
	return end ? end + 1 : sql + strlen(sql);
}

/* Of postroom_outbox: each CHECK that concerns columns which a message gives. */
static bool concerns_message(const char *name)
{
	static const char *const columns[] = {
		"id:",	 "namespace:",	  "topic:",	     "tenant_id:",
		"key:",	 "dedupe_key:",	  "correlation_id:", "payload:",
		"body:", "content_type:", "headers:"
	};

	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		if (strncmp(name, columns[i], strlen(columns[i])) == 0)
			return true;
	}
	return false;
}

static const char *end_of_check(const char *at)
{
	int depth = 0;

	for (; *at; at = skip(at)) {
		depth += (*at == '(') - (*at == ')');
		if (*at == ')' && depth == 0)
			return at + 1;
	}
	return at;
}

static void put_checks(const char *sql, struct pr_buf *out)
{
	static const char word[] = "CONSTRAINT \"";

	while ((sql = strstr(sql, word))) {
		const char *name = sql + strlen(word), *end = strchr(name, '"');
		const char *check = end ? strstr(end, "CHECK (") : NULL, *last;

		if (!check)
			return;
		check += strlen("CHECK ");
		last = end_of_check(check);
		sql = last;
		if (!concerns_message(name))
			continue;
		/* As in a CHECK: NULL passes, and AND stops at the first false, which keeps
		 * json_type() from invalid JSON. As an argument of a function it would not. */
		pr_buf_puts(out, "\n\t\tWHEN NOT ");
		pr_buf_append(out, check, (size_t)(last - check));
		pr_buf_puts(out, " THEN '");
		pr_buf_append(out, name, (size_t)(end - name));
		pr_buf_putc(out, '\'');
	}
}

static void take_checks(void *context, sqlite3_stmt *row)
{
	put_checks((const char *)sqlite3_column_text(row, 0), context);
}

/* Over the columns of a message. Strings in headers are made by the mapping itself. */
static int put_reason(struct pr_adopt *adopt, struct pr_buf *out, struct pr_err *err)
{
	pr_buf_puts(
		out,
		"CASE WHEN id IS NULL THEN 'id: it is empty' WHEN topic IS NULL THEN 'topic: it is "
		"empty' WHEN payload IS NULL THEN 'payload: it is NULL'");
	if (pr_adopt_sqlite_query(adopt,
				  "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND "
				  "name = 'postroom_outbox'",
				  DOING, take_checks, out, err) < 0)
		return err->status;
	pr_buf_puts(out, "\n\t\tEND");
	return POSTROOM_OK;
}

/* INSERT INTO the view, up to the source of the rows. */
static void put_insert(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "INSERT INTO postroom_adopt_%s (postroom_row, postroom_key, " COLUMNS
		      ")\n\tSELECT ",
		      adopt->function);
	pr_adopt_sqlite_put_message(adopt, row, out);
}

/* The values are in NEW now: the CHECKs use each of them several times. */
static int put_check(struct pr_adopt *adopt, struct pr_buf *out, struct pr_err *err)
{
	int status;

	pr_buf_printf(
		out,
		";\nCREATE VIEW postroom_adopt_%s (postroom_row, postroom_key, " COLUMNS
		") AS\n\tSELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
		"NULL, NULL, NULL, NULL, NULL WHERE 0;\n"
		"CREATE TRIGGER postroom_adopt_check_%s INSTEAD OF INSERT ON "
		"postroom_adopt_%s\nBEGIN\n"
		"\tINSERT INTO postroom_adopt_checked_%s (postroom_row, postroom_key, " COLUMNS
		", reason)\n\tSELECT postroom_row, postroom_key, " COLUMNS ", ",
		adopt->function, adopt->function, adopt->function, adopt->function);
	status = put_reason(adopt, out, err);
	pr_buf_puts(
		out,
		"\n\tFROM (SELECT NEW.postroom_row AS postroom_row, NEW.postroom_key AS "
		"postroom_key, "
		"NEW.id AS id, NEW.namespace AS namespace, NEW.topic AS topic, NEW.tenant_id AS "
		"tenant_id, NEW.key AS key, NEW.dedupe_key AS dedupe_key, NEW.correlation_id AS "
		"correlation_id, NEW.payload AS payload, NEW.body AS body, NEW.content_type AS "
		"content_type, NEW.headers AS headers, NEW.next_attempt_at AS next_attempt_at, "
		"NEW.created_at AS created_at);\nEND");
	return status;
}

static void put_still_open(const struct pr_adopt *adopt, struct pr_buf *out)
{
	if (adopt->done == PR_ADOPT_NONE) {
		pr_buf_puts(out, "0");
		return;
	}
	pr_buf_printf(out, "EXISTS (SELECT 1 FROM %s AS t WHERE t._rowid_ = NEW.postroom_row AND ",
		      adopt->name);
	pr_adopt_sqlite_put_open(adopt, "t", out);
	pr_buf_putc(out, ')');
}

static void put_mark(const struct pr_adopt *adopt, struct pr_buf *out)
{
	if (adopt->done == PR_ADOPT_NONE)
		return;
	if (adopt->done == PR_ADOPT_DELETE) {
		pr_buf_printf(out, "\tDELETE FROM %s", adopt->name);
	} else {
		pr_buf_printf(out, "\tUPDATE OR IGNORE %s SET ", adopt->name);
		pr_adopt_sqlite_put_mark(adopt, true, out);
	}
	pr_buf_puts(out, " WHERE _rowid_ = NEW.postroom_row AND NEW.reason IS NULL;\n");
}

static void put_view(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "CREATE VIEW postroom_adopt_checked_%s (postroom_row, postroom_key, " COLUMNS
		      ", reason) AS\n\tSELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
		      "NULL, NULL, "
		      "NULL, NULL, NULL, NULL, NULL, NULL WHERE 0;\n"
		      "CREATE TRIGGER postroom_adopt_write_%s INSTEAD OF INSERT ON "
		      "postroom_adopt_checked_%s\nBEGIN\n",
		      adopt->function, adopt->function, adopt->function);
	put_mark(adopt, out);
	pr_buf_puts(
		out,
		"\tINSERT INTO postroom_outbox (" COLUMNS ")\n\tSELECT CASE WHEN EXISTS "
		"(SELECT 1 FROM postroom_outbox WHERE id = NEW.id) THEN " ADOPT_SQLITE_NEW_ID
		" ELSE NEW.id END,\n\t\tNEW.namespace, NEW.topic, NEW.tenant_id, NEW.key, "
		"NEW.dedupe_key, NEW.correlation_id, NEW.payload, NEW.body,\n\t\tNEW.content_type, "
		"NEW.headers, NEW.next_attempt_at, NEW.created_at\n\tWHERE NEW.reason IS NULL AND "
		"NOT ");
	put_still_open(adopt, out);
	pr_buf_puts(
		out,
		"\n\t\tAND NOT (NEW.dedupe_key IS NOT NULL AND (EXISTS (SELECT 1 FROM "
		"postroom_outbox AS o "
		"WHERE o.namespace = NEW.namespace AND o.topic = NEW.topic AND o.dedupe_key = "
		"NEW.dedupe_key) OR EXISTS (SELECT 1 FROM postroom_dedupe AS d WHERE d.namespace = "
		"NEW.namespace AND d.topic = NEW.topic AND d.dedupe_key = NEW.dedupe_key)));\n"
		"\tINSERT INTO postroom_adopt_rejects (table_name, row_key, reason)\n\tSELECT ");
	pr_adopt_sqlite_put_literal(out, adopt->table);
	pr_buf_puts(out, ", NEW.postroom_key, coalesce(NEW.reason, " NOT_MARKED
			 ")\n\tWHERE (NEW.reason IS NOT NULL OR ");
	put_still_open(adopt, out);
	pr_buf_puts(out, ")\n\t\tAND NOT EXISTS (SELECT 1 FROM postroom_adopt_rejects AS r WHERE "
			 "r.table_name = ");
	pr_adopt_sqlite_put_literal(out, adopt->table);
	pr_buf_puts(out, " AND r.row_key = NEW.postroom_key);\nEND");
}

/* A row that was sent before and is open again is another message, with another id. */
static void put_reopen(const struct pr_adopt *adopt, struct pr_buf *out)
{
	struct pr_adopt as_new = *adopt;

	as_new.parts[PR_ADOPT_DEDUPE] = NULL;
	as_new.expression[PR_ADOPT_ID] = true;
	pr_buf_printf(out,
		      ";\nCREATE TRIGGER " ADOPT_SQLITE_REOPEN "%s AFTER UPDATE ON %s\nWHEN NOT (",
		      adopt->function, adopt->name);
	pr_adopt_sqlite_put_open(adopt, "OLD", out);
	pr_buf_puts(out, ") AND ");
	pr_adopt_sqlite_put_open(adopt, "NEW", out);
	pr_buf_puts(out, "\nBEGIN\n\t");
	put_insert(&as_new, "NEW", out);
	pr_buf_puts(out, ";\nEND");
}

int pr_adopt_sqlite_put_mirror(struct pr_adopt *adopt, struct pr_buf *out, struct pr_err *err)
{
	int status;

	put_view(adopt, out);
	status = put_check(adopt, out, err);
	pr_buf_printf(out, ";\nCREATE TRIGGER " ADOPT_SQLITE_INSERT "%s AFTER INSERT ON %s\nWHEN ",
		      adopt->function, adopt->name);
	pr_adopt_sqlite_put_open(adopt, "NEW", out);
	pr_buf_puts(out, "\nBEGIN\n\t");
	put_insert(adopt, "NEW", out);
	pr_buf_puts(out, ";\nEND");
	if (pr_adopt_has_marker(adopt))
		put_reopen(adopt, out);
	return status;
}

void pr_adopt_sqlite_put_drop(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "DROP TRIGGER IF EXISTS " ADOPT_SQLITE_INSERT
		      "%s; DROP TRIGGER IF EXISTS " ADOPT_SQLITE_REOPEN
		      "%s; DROP VIEW IF EXISTS postroom_adopt_%s; DROP VIEW IF EXISTS "
		      "postroom_adopt_checked_%s",
		      adopt->function, adopt->function, adopt->function, adopt->function);
}

void pr_adopt_sqlite_put_list(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "INSERT INTO temp.postroom_adopt_work (row)\n\tSELECT t._rowid_ FROM %s AS t "
		      "WHERE ",
		      adopt->name);
	pr_adopt_sqlite_put_free(adopt, "t", out);
	pr_buf_puts(out, "\n\tAND NOT EXISTS (SELECT 1 FROM postroom_adopt_rejects AS r WHERE "
			 "r.table_name = ");
	pr_adopt_sqlite_put_literal(out, adopt->table);
	pr_buf_puts(out, " AND r.row_key = ");
	pr_adopt_sqlite_put_key(adopt, "t", out);
	pr_buf_puts(out, ") ORDER BY ");
	pr_adopt_sqlite_put_order(adopt, "t", out);
}

/* ?1 and ?2 are the first and the last position. */
void pr_adopt_sqlite_put_move(const struct pr_adopt *adopt, struct pr_buf *out)
{
	put_insert(adopt, "t", out);
	pr_buf_printf(out,
		      " FROM temp.postroom_adopt_work AS w CROSS JOIN %s AS t ON t._rowid_ = w.row "
		      "WHERE w.position BETWEEN ?1 AND ?2 AND ",
		      adopt->name);
	pr_adopt_sqlite_put_free(adopt, "t", out);
	pr_buf_puts(out, " ORDER BY w.position");
}
