/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statements of an adoption. The functions of the mirror run in the application's
 * transactions, with these rules:
 * 1. They never fail: a row that cannot be a message is recorded in postroom_adopt_rejects and
 *    stays open. If even that fails, only a warning is raised.
 * 2. A row is marked in the same transaction in which its message is written. If the mark has no
 *    effect, the message is not written: the row belongs to the old dispatcher.
 * 3. They run with the privileges of the producer (no function is SECURITY DEFINER) and with its
 *    search_path, because triggers of theirs run inside; see mapping.c for the consequences.
 */
#include "adopt/parts.h"

#include <string.h>

#define WORK "pg_temp.postroom_adopt_work"

static const char *own_schema(const struct pr_adopt *adopt)
{
	return adopt->own;
}

void pr_adopt_put_state_table(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "CREATE TABLE IF NOT EXISTS %spostroom_adopted (\n"
		      "\ttable_name text PRIMARY KEY,\n"
		      "\tpreset text,\n"
		      "\ttime_zone text,\n"
		      "\tmapping jsonb NOT NULL,\n"
		      "\tmoved bigint NOT NULL DEFAULT 0,\n"
		      "\tadopted_at timestamptz NOT NULL DEFAULT clock_timestamp())",
		      own_schema(adopt));
}

void pr_adopt_put_rejects_table(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "CREATE TABLE IF NOT EXISTS %spostroom_adopt_rejects (\n"
		      "\ttable_name text NOT NULL,\n"
		      "\trow_key text NOT NULL,\n"
		      "\treason text NOT NULL,\n"
		      "\trejected_at timestamptz NOT NULL DEFAULT clock_timestamp(),\n"
		      "\tPRIMARY KEY (table_name, row_key))",
		      own_schema(adopt));
}

/* Duplicates of a dedupe key are no failure: their rows are done. */
static void put_conflict(const struct pr_adopt *adopt, struct pr_buf *out)
{
	if (adopt->parts[PR_ADOPT_DEDUPE] && *adopt->parts[PR_ADOPT_DEDUPE])
		pr_buf_puts(out, "\n\t\tON CONFLICT (namespace, topic, dedupe_key) "
				 "WHERE dedupe_key IS NOT NULL DO NOTHING");
}

static void put_insert(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "INSERT INTO %spostroom_outbox (", own_schema(adopt));
	pr_adopt_put_columns(adopt, out);
	pr_buf_puts(out, ")\n\t\t");
}

/* "UPDATE … SET …" or "DELETE FROM …" of their table as t, up to the condition. */
static void put_mark_of(const struct pr_adopt *adopt, const char *from, struct pr_buf *out)
{
	if (adopt->done == PR_ADOPT_DELETE) {
		pr_buf_printf(out, "DELETE FROM %s AS t%s%s", adopt->name, *from ? " USING " : "",
			      from);
	} else {
		pr_buf_printf(out, "UPDATE %s AS t SET ", adopt->name);
		pr_adopt_put_mark(adopt, true, out);
		pr_buf_printf(out, "%s%s", *from ? " FROM " : "", from);
	}
	pr_buf_puts(out, " WHERE ");
}

/*
 * All new rows at once. With one key column, the rows are found by an array: the plan is cached
 * for the session, and a join that was planned for a bulk insert would read the whole table for
 * every later row.
 */
static void put_mark_all(const struct pr_adopt *adopt, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf key = { 0 };

	pr_adopt_put_ident(&key, adopt->columns[adopt->key[0]].name);
	put_mark_of(adopt, adopt->key_count == 1 ? "" : "new_rows AS r", out);
	if (adopt->key_count == 1) {
		pr_buf_printf(out, "t.%s %s ANY (ARRAY(\n\t\t\tSELECT r.%s FROM new_rows AS r WHERE ",
			      pr_buf_text(&key), adopt->equals[0], pr_buf_text(&key));
		pr_adopt_put_open(adopt, "r", out);
		pr_buf_puts(out, "))");
	} else {
		pr_adopt_put_same(adopt, "t", "r", out);
		pr_buf_puts(out, " AND ");
		pr_adopt_put_open(adopt, "r", out);
	}
}

#define FAILS "EXCEPTION WHEN OTHERS OR ASSERT_FAILURE THEN\n"
#define NOT_MARKED                                                                                 \
	"a trigger or a row security policy keeps the row from being marked as done, so it would "   \
	"be sent twice"

/*
 * INSERT, silently if the server allows prepared transactions: PREPARE TRANSACTION refuses a
 * transaction that has notified. The relay then finds the message when it polls.
 */
static void put_quiet_insert(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_puts(out, "\t\tIF two_phase THEN\n"
			 "\t\t\tPERFORM pg_catalog.set_config('postroom.notify', 'off', true);\n"
			 "\t\tEND IF;\n\t\t");
	put_insert(adopt, out);
}

static void put_insert_end(const struct pr_adopt *adopt, struct pr_buf *out)
{
	put_conflict(adopt, out);
	pr_buf_puts(out, ";\n"
			 "\t\tIF two_phase THEN\n"
			 "\t\t\tPERFORM pg_catalog.set_config('postroom.notify', notify, true);\n"
			 "\t\tEND IF;\n");
}

/* Whether the row is done, after triggers of theirs may have changed it. */
static void put_marked(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_puts(out, " RETURNING ");
	if (adopt->done == PR_ADOPT_DELETE)
		pr_buf_puts(out, "true");
	else
		pr_adopt_put_done(adopt, "t", out);
	pr_buf_puts(out, " AS done");
}

static void put_declarations(const char *more, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "\n#variable_conflict use_column\n"
		      "DECLARE\n\tn record%s;\n\tcause text;\n\tmarked bigint;\n\topen_rows bigint;\n"
		      "\tnotify text := coalesce(pg_catalog.current_setting('postroom.notify', true), 'on');\n"
		      "\ttwo_phase boolean := "
		      "pg_catalog.current_setting('max_prepared_transactions') <> '0'::text;\n",
		      more);
}

static void put_all_at_once(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_puts(out, "\tBEGIN\n");
	put_quiet_insert(adopt, out);
	pr_buf_puts(out, "SELECT ");
	pr_adopt_put_values(adopt, "r", NULL, out);
	pr_buf_puts(out, "\n\t\tFROM new_rows AS r WHERE ");
	pr_adopt_put_open(adopt, "r", out);
	put_insert_end(adopt, out);
	if (adopt->done == PR_ADOPT_NONE) {
		pr_buf_puts(out, "\t\tRETURN NULL;\n");
	} else {
		pr_buf_puts(out, "\t\tWITH changed AS (");
		put_mark_all(adopt, out);
		put_marked(adopt, out);
		pr_buf_puts(out, ")\n\t\tSELECT pg_catalog.count(*) FILTER (WHERE c.done) INTO marked "
				 "FROM changed AS c;\n"
				 "\t\tSELECT pg_catalog.count(*) INTO open_rows FROM new_rows AS r WHERE ");
		pr_adopt_put_open(adopt, "r", out);
		pr_buf_puts(out, ";\n"
				 "\t\tIF marked = open_rows THEN\n\t\t\tRETURN NULL;\n\t\tEND IF;\n"
				 "\t\tRAISE EXCEPTION '" NOT_MARKED "';\n");
	}
	pr_buf_puts(out, "\t" FAILS "\t\tNULL; -- one of the rows is refused: row by row\n\tEND;\n");
}

/* key is SQL. */
static void put_record(const struct pr_adopt *adopt, const char *key, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "INSERT INTO %spostroom_adopt_rejects (table_name, row_key, reason)\n"
		      "\t\t\tVALUES (",
		      own_schema(adopt));
	pr_adopt_put_literal(out, adopt->name);
	pr_buf_printf(out, ", %s, cause) ON CONFLICT DO NOTHING;\n", key);
}

/*
 * Records why rows are not mirrored. A key that cannot be read is '*', which stands for all rows.
 * If nothing can be recorded, the row is still open in its own table.
 */
static void put_reject(const struct pr_adopt *adopt, const char *key, struct pr_buf *out)
{
	pr_buf_puts(out, "\t\tcause := SQLERRM;\n\t\tBEGIN\n\t\t\t");
	put_record(adopt, key, out);
	pr_buf_puts(out, "\t\t" FAILS "\t\t\tBEGIN\n\t\t\t");
	put_record(adopt, "'*'", out);
	pr_buf_printf(out,
		      "\t\t\t" FAILS "\t\t\t\tNULL;\n\t\t\tEND;\n\t\tEND;\n"
		      "\t\tBEGIN\n"
		      "\t\t\tRAISE WARNING 'postroom: row %% of %% is not mirrored: %%', %s, ",
		      key);
	pr_adopt_put_literal(out, adopt->name);
	pr_buf_puts(out, ", cause;\n\t\t" FAILS
			 "\t\t\tNULL; -- the client's encoding lacks a character\n\t\tEND;\n");
}

/* One row, which is the variable n. */
static void put_one_row(const struct pr_adopt *adopt, const char *id, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf key = { 0 };

	pr_buf_puts(out, "\tBEGIN\n");
	put_quiet_insert(adopt, out);
	pr_buf_puts(out, "VALUES (");
	pr_adopt_put_values(adopt, "n", id, out);
	pr_buf_puts(out, ")");
	put_insert_end(adopt, out);
	if (adopt->done != PR_ADOPT_NONE) {
		pr_buf_puts(out, "\t\tWITH changed AS (");
		put_mark_of(adopt, "", out);
		pr_adopt_put_same(adopt, "t", "n", out);
		put_marked(adopt, out);
		pr_buf_puts(out, ")\n\t\tSELECT pg_catalog.count(*) FILTER (WHERE c.done) INTO marked "
				 "FROM changed AS c;\n"
				 "\t\tIF marked <> 1 THEN\n"
				 "\t\t\tRAISE EXCEPTION '" NOT_MARKED "';\n\t\tEND IF;\n");
	}
	pr_adopt_put_row_key(adopt, "n", &key);
	pr_buf_puts(out, "\t" FAILS);
	put_reject(adopt, pr_buf_text(&key), out);
	pr_buf_puts(out, "\tEND;\n");
	out->failed = out->failed || key.failed;
}

/* Errors of the loop itself, such as a column that was renamed, concern all rows: '*'. */
static void put_insert_body(const struct pr_adopt *adopt, struct pr_buf *out)
{
	put_declarations("", out);
	pr_buf_puts(out, "BEGIN\n");
	put_all_at_once(adopt, out);
	pr_buf_puts(out, "\tBEGIN\n\tFOR n IN SELECT * FROM new_rows AS r WHERE ");
	pr_adopt_put_open(adopt, "r", out);
	pr_buf_puts(out, " LOOP\n");
	put_one_row(adopt, NULL, out);
	pr_buf_puts(out, "\tEND LOOP;\n\t" FAILS);
	put_reject(adopt, "'*'", out);
	pr_buf_puts(out, "\tEND;\n\tRETURN NULL;\nEND ");
}

/* A row that was sent before and is open again is another message, with another id. */
static void put_reopen_body(const struct pr_adopt *adopt, struct pr_buf *out)
{
	put_declarations(" := NEW", out);
	pr_buf_puts(out, "\tnew_id uuid;\nBEGIN\n\tBEGIN\n\t\tnew_id := CASE WHEN ");
	pr_adopt_put_done(adopt, "OLD", out);
	pr_buf_printf(out, " THEN %spostroom_uuid() ELSE ", own_schema(adopt));
	pr_adopt_put_id(adopt, "n", out);
	pr_buf_puts(out, " END;\n");
	put_one_row(adopt, "new_id", out);
	pr_buf_puts(out, "\t" FAILS);
	put_reject(adopt, "'*'", out);
	pr_buf_puts(out, "\tEND;\n\tRETURN NULL;\nEND ");
}

/* A tag that the body does not contain: names of columns may contain anything. */
static void put_quoted_body(const struct pr_buf *body, struct pr_buf *out)
{
	char tag[32] = "$postroom$";

	for (int i = 0; strstr(pr_buf_text(body), tag) && i < 1000; i++)
		snprintf(tag, sizeof(tag), "$postroom%d$", i);
	pr_buf_printf(out, "%s%s%s", tag, pr_buf_text(body), tag);
}

void pr_adopt_put_function(const struct pr_adopt *adopt, bool reopened, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf body = { 0 };
	struct pr_adopt as_new = *adopt;

	/* The dedupe key is that of the message that was sent before. */
	if (reopened)
		as_new.parts[PR_ADOPT_DEDUPE] = NULL;
	if (reopened)
		put_reopen_body(&as_new, &body);
	else
		put_insert_body(adopt, &body);
	pr_buf_printf(out, "CREATE OR REPLACE FUNCTION %s%s() RETURNS trigger LANGUAGE plpgsql\n",
		      adopt->function, reopened ? "_reopened" : "");
	/* See put_mark_all(): the join must use the index of the key. */
	if (adopt->key_count > 1 && !reopened)
		pr_buf_puts(out, "SET enable_hashjoin = off SET enable_mergejoin = off "
				 "SET enable_seqscan = off\n");
	pr_buf_puts(out, "AS ");
	put_quoted_body(&body, out);
	out->failed = out->failed || body.failed;
}

void pr_adopt_put_trigger(const struct pr_adopt *adopt, const struct pr_adopt_target *target,
			  bool reopened, struct pr_buf *out)
{
	if (!reopened) {
		pr_buf_printf(out,
			      "CREATE TRIGGER " ADOPT_INSERT_TRIGGER " AFTER INSERT ON %s\n"
			      "\tREFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT\n"
			      "\tEXECUTE FUNCTION %s()",
			      target->name, adopt->function);
		return;
	}
	pr_buf_printf(out,
		      "CREATE TRIGGER " ADOPT_REOPEN_TRIGGER " AFTER UPDATE ON %s\n"
		      "\tFOR EACH ROW WHEN (NOT (",
		      target->name);
	pr_adopt_put_open(adopt, "OLD", out);
	pr_buf_puts(out, ") AND ");
	pr_adopt_put_open(adopt, "NEW", out);
	pr_buf_printf(out, ")\n\tEXECUTE FUNCTION %s_reopened()", adopt->function);
}

void pr_adopt_put_work_key(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	for (size_t i = 0; i < adopt->key_count; i++) {
		pr_buf_printf(out, "%s%s.", i > 0 ? " AND " : "", row);
		pr_adopt_put_ident(out, adopt->columns[adopt->key[i]].name);
		pr_buf_printf(out, " %s w.k%zu", adopt->equals[i], i);
	}
}

void pr_adopt_put_work(const struct pr_adopt *adopt, bool undo, struct pr_buf *out)
{
	pr_buf_puts(out, "CREATE TEMP TABLE postroom_adopt_work AS\n"
			 "SELECT row_number() OVER (ORDER BY ");
	if (undo)
		pr_buf_puts(out, "o.seq");
	else
		pr_adopt_put_order(adopt, "t", out);
	pr_buf_puts(out, ") AS position");
	for (size_t i = 0; i < adopt->key_count; i++) {
		pr_buf_puts(out, ", t.");
		pr_adopt_put_ident(out, adopt->columns[adopt->key[i]].name);
		pr_buf_printf(out, " AS k%zu", i);
	}
	pr_buf_printf(out, "%s\nFROM %s AS t", undo ? ", o.id AS id" : "", adopt->name);
	if (undo) {
		pr_buf_printf(out, " JOIN %spostroom_messages AS o ON o.id = ", own_schema(adopt));
		pr_adopt_put_id(adopt, "t", out);
		/* A message in flight may have to be handed back when the relay has settled it. */
		pr_buf_puts(out, " WHERE o.status IN ('pending', 'processing') AND ");
		pr_adopt_put_done(adopt, "t", out);
		return;
	}
	pr_buf_puts(out, " WHERE ");
	pr_adopt_put_free(adopt, "t", out);
	pr_buf_printf(out,
		      "\n\tAND NOT EXISTS (SELECT FROM %spostroom_adopt_rejects AS r "
		      "WHERE r.table_name = ",
		      own_schema(adopt));
	pr_adopt_put_literal(out, adopt->name);
	pr_buf_puts(out, " AND r.row_key = ");
	pr_adopt_put_row_key(adopt, "t", out);
	pr_buf_putc(out, ')');
}

void pr_adopt_put_move(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "WITH chunk AS MATERIALIZED (\n"
		      "\tSELECT postroom_adopt_row AS n, w.position FROM " WORK " AS w\n"
		      "\tJOIN %s AS postroom_adopt_row ON ",
		      adopt->name);
	pr_adopt_put_work_key(adopt, "postroom_adopt_row", out);
	pr_buf_puts(out, "\n\tWHERE w.position BETWEEN $1::bigint AND $2::bigint AND ");
	pr_adopt_put_free(adopt, "postroom_adopt_row", out);
	pr_buf_puts(out, "\n\tORDER BY w.position FOR UPDATE OF postroom_adopt_row SKIP LOCKED),\n"
			 "copied AS (");
	put_insert(adopt, out);
	pr_buf_puts(out, "SELECT ");
	pr_adopt_put_values(adopt, "(c.n)", NULL, out);
	pr_buf_puts(out, "\n\t\tFROM chunk AS c ORDER BY c.position");
	put_conflict(adopt, out);
	pr_buf_puts(out, "),\nmarked AS (");
	put_mark_of(adopt, "chunk AS c", out);
	pr_adopt_put_same(adopt, "t", "(c.n)", out);
	put_marked(adopt, out);
	pr_buf_puts(out, ")\nSELECT (SELECT count(*) FROM chunk), "
			 "(SELECT count(*) FROM marked AS m WHERE m.done)");
}

/* The ids of the messages of the positions $1 to $2, as an array. Their rows are locked. */
void pr_adopt_put_lock(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "SELECT coalesce(array_agg(l.id), '{}')::text FROM (SELECT w.id FROM " WORK " AS w "
		      "JOIN %s AS t ON ",
		      adopt->name);
	pr_adopt_put_work_key(adopt, "t", out);
	pr_buf_puts(out, "\n\tWHERE w.position BETWEEN $1::bigint AND $2::bigint AND ");
	pr_adopt_put_done(adopt, "t", out);
	pr_buf_puts(out, "\n\tFOR UPDATE OF t SKIP LOCKED) AS l");
}

/* $1 are the ids of messages of the positions $2 to $3 that were withdrawn in this transaction. */
void pr_adopt_put_hand_back(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out, "WITH reopened AS (UPDATE %s AS t SET ", adopt->name);
	pr_adopt_put_mark(adopt, false, out);
	pr_buf_puts(out, "\n\tFROM " WORK " AS w WHERE w.position BETWEEN $2::bigint AND $3::bigint\n"
			 "\tAND w.id = ANY ($1::uuid[]) AND ");
	pr_adopt_put_work_key(adopt, "t", out);
	pr_buf_puts(out, " RETURNING ");
	pr_adopt_put_open(adopt, "t", out);
	pr_buf_puts(out, " AS open)\nSELECT cardinality($1::uuid[]), "
			 "(SELECT count(*) FROM reopened AS r WHERE r.open)");
}
