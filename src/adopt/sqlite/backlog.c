/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adoption of a table in SQLite. Every change is one short write transaction, as those of the
 * application: SQLite has one writer at a time, so a kill at any moment leaves each row whole.
 */
#include "adopt/sqlite/sqlite.h"

#include "base/time.h"

#include <string.h>

#define DOING "moving the backlog"
#define FIRST_CHUNK 50
#define SLOW_US 200000
#define FAST_US 60000
#define PAUSE_MS 100
#define IN_FLIGHT_PASSES 20

static void take_line(void *context, sqlite3_stmt *row)
{
	struct pr_adopt_output *output = context;
	const char *text = (const char *)sqlite3_column_text(row, 0);

	output->fn(output->context, text ? text : "");
	output->count++;
}

int pr_adopt_sqlite_sample(struct pr_adopt *adopt, int limit, pr_adopt_text_fn fn, void *context,
			   struct pr_err *err)
{
	static const char *const columns[] = {
		"id",	   "namespace",	      "topic",		"tenant_id",
		"key",	   "dedupe_key",      "correlation_id", "content_type",
		"headers", "next_attempt_at", "created_at"
	};
	struct pr_adopt_output output = { .fn = fn, .context = context };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status;

	pr_buf_puts(&sql, "SELECT json_object(");
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		pr_buf_printf(&sql, "'%s', %s, ", columns[i], columns[i]);
	pr_buf_puts(&sql,
		    "'payload', CASE WHEN json_valid(payload) THEN json(payload) ELSE payload END, "
		    "'body', CAST(body AS TEXT)) FROM (SELECT ");
	pr_adopt_sqlite_put_message(adopt, "t", &sql);
	pr_buf_printf(&sql, " FROM %s AS t WHERE ", adopt->name);
	pr_adopt_sqlite_put_only(adopt, "t", &sql);
	pr_buf_puts(&sql, " ORDER BY (");
	pr_adopt_sqlite_put_open(adopt, "t", &sql);
	pr_buf_printf(&sql, ") DESC, t._rowid_ LIMIT %d)", limit);
	if (sql.failed)
		return pr_err_nomem(err);
	status = pr_adopt_sqlite_query(adopt, sql.data, "reading samples", take_line, &output, err);
	return status < 0 ? status : output.count;
}

static int show_statement(const char *locks, struct pr_buf *sql, pr_adopt_text_fn fn, void *context,
			  struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	pr_buf_printf(&text, "-- locks: %s\n%s;\n", locks, pr_buf_text(sql));
	if (sql->failed || text.failed)
		return pr_err_nomem(err);
	pr_buf_reset(sql);
	fn(context, text.data);
	return POSTROOM_OK;
}

int pr_adopt_sqlite_explain(struct pr_adopt *adopt, int64_t chunk, pr_adopt_text_fn fn,
			    void *context, struct pr_err *err)
{
	static const char moment[] = "the write lock of the database, for a moment";
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	char locks[128];
	int status;

	pr_adopt_sqlite_put_tables(&sql);
	status = show_statement(moment, &sql, fn, context, err);
	if (status >= 0)
		status = pr_adopt_sqlite_put_mirror(adopt, &sql, err);
	if (status >= 0)
		status = show_statement(moment, &sql, fn, context, err);
	if (status < 0 || adopt->done == PR_ADOPT_NONE)
		return status;
	pr_adopt_sqlite_put_list(adopt, &sql);
	status = show_statement("none: the list is temporary", &sql, fn, context, err);
	pr_adopt_sqlite_put_move(adopt, &sql);
	snprintf(locks, sizeof(locks), "the write lock, for each chunk of %lld rows at most",
		 (long long)chunk);
	return status < 0 ? status : show_statement(locks, &sql, fn, context, err);
}

static void take_drops(void *context, sqlite3_stmt *row)
{
	pr_buf_puts(context, (const char *)sqlite3_column_text(row, 0));
}

/*
 * Triggers follow a table that is renamed, and their names are those of the earlier table. Beside
 * a second mirror, each row would become two messages.
 */
static int drop_mirrors(struct pr_adopt *adopt, struct pr_err *err)
{
	static const char digest[] = "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]"
				     "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]";
	PR_CLEANUP_BUF struct pr_buf sql = { 0 }, drops = { 0 };
	int status;

	pr_buf_puts(&sql, "SELECT 'DROP TRIGGER ' || name || '; DROP VIEW IF EXISTS postroom_adopt_' || "
			  "substr(name, -12) || '; DROP VIEW IF EXISTS postroom_adopt_checked_' || "
			  "substr(name, -12) || ';' FROM main.sqlite_schema WHERE type = 'trigger' AND "
			  "lower(tbl_name) = lower(");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	pr_buf_printf(&sql, ") AND (name GLOB '" ADOPT_SQLITE_INSERT "%s' OR name GLOB '" ADOPT_SQLITE_REOPEN "%s')",
		      digest, digest);
	if (sql.failed)
		return pr_err_nomem(err);
	status = pr_adopt_sqlite_query(adopt, sql.data, "creating the mirror", take_drops, &drops, err);
	if (status < 0 || drops.len == 0)
		return status;
	return pr_adopt_sqlite_run_built(adopt, &drops, "creating the mirror", err);
}

int pr_adopt_sqlite_mirror(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int created = pr_adopt_is_mirrored(&adopt->targets[0], pr_adopt_has_marker(adopt)) ? 0 : 1;
	int status = pr_sqlite_begin(adopt->store, err);

	if (status < 0)
		return status;
	pr_adopt_sqlite_put_tables(&sql);
	status = pr_adopt_sqlite_run_built(adopt, &sql, "creating the mirror", err);
	if (status >= 0)
		status = pr_adopt_sqlite_save_state(adopt, err);
	if (status >= 0 && created)
		status = drop_mirrors(adopt, err);
	if (status >= 0 && created) {
		pr_adopt_sqlite_put_drop(adopt, &sql);
		status = pr_adopt_sqlite_run_built(adopt, &sql, "creating the mirror", err);
	}
	if (status >= 0 && created) {
		status = pr_adopt_sqlite_put_mirror(adopt, &sql, err);
		if (status >= 0)
			status = pr_adopt_sqlite_run_built(adopt, &sql, "creating the mirror", err);
	}
	status = pr_sqlite_end(adopt->store, status, err);
	return status < 0 ? status : created;
}

struct chunks {
	struct pr_adopt *adopt;
	struct pr_adopt_progress *progress;
	struct pr_buf sql;  /* ?1 and ?2 */
	struct pr_buf left; /* how many rows of ?1 to ?2 still wait */
	int64_t total;
};

static int run_positions(struct chunks *run, const char *sql, int64_t first, int64_t last,
			 int64_t *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(run->adopt->store);
	sqlite3_stmt *stmt = NULL;
	int rc, status = POSTROOM_OK;

	if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, DOING, err);
	sqlite3_bind_int64(stmt, 1, first);
	sqlite3_bind_int64(stmt, 2, last);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW && ret)
		*ret = sqlite3_column_int64(stmt, 0);
	else if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		status = pr_sqlite_fail(store->db, store, DOING, err);
	sqlite3_finalize(stmt);
	return status;
}

static int count_rejects(struct pr_adopt *adopt, int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_puts(&sql, "SELECT count(*) FROM postroom_adopt_rejects WHERE table_name = ");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	if (sql.failed)
		return pr_err_nomem(err);
	return pr_adopt_sqlite_number(adopt, sql.data, DOING, ret, err);
}

static int note_moved(struct pr_adopt *adopt, int64_t moved, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_printf(&sql, "UPDATE postroom_adopted SET moved = moved + %lld WHERE table_name = ",
		      (long long)moved);
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	return pr_adopt_sqlite_run_built(adopt, &sql, DOING, err);
}

static int fail_stopped(struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_BUSY,
			  "adopt: interrupted; nothing is lost: run the command again to continue");
}

static int run_chunk(struct chunks *run, int64_t first, int64_t last, bool move, struct pr_err *err)
{
	int64_t before = 0, after = 0;
	int status = pr_sqlite_begin(run->adopt->store, err);

	if (status < 0)
		return status;
	status = run_positions(run, run->left.data, first, last, &before, err);
	if (status >= 0)
		status = run_positions(run, run->sql.data, first, last, NULL, err);
	if (status >= 0)
		status = run_positions(run, run->left.data, first, last, &after, err);
	if (status >= 0 && move)
		status = note_moved(run->adopt, before - after, err);
	status = pr_sqlite_end(run->adopt->store, status, err);
	if (status >= 0)
		run->progress->moved += before - after;
	return status;
}

/* Other writers get the lock between chunks: SQLite has no queue for it. */
static int run_chunks(struct chunks *run, bool move, struct pr_err *err)
{
	int64_t size = run->progress->chunk < FIRST_CHUNK ? run->progress->chunk : FIRST_CHUNK;

	for (int64_t first = 1; first <= run->total;) {
		int64_t begun_us = pr_mono_us(), took_us;
		int64_t last = first + size - 1 < run->total ? first + size - 1 : run->total;
		int status = run_chunk(run, first, last, move, err);

		if (status < 0)
			return status;
		took_us = pr_mono_us() - begun_us;
		first = last + 1;
		if (run->progress->show)
			run->progress->show(run->progress->context, last, run->total);
		if (first <= run->total && pr_stop_wait(run->progress->stop, 1 + took_us / 4000))
			return fail_stopped(err);
		if (took_us > SLOW_US && size > 1)
			size /= 2;
		else if (took_us < FAST_US)
			size = size * 2 < run->progress->chunk ? size * 2 : run->progress->chunk;
	}
	return POSTROOM_OK;
}

static int list_rows(struct chunks *run, struct pr_buf *list, struct pr_err *err)
{
	int status = pr_adopt_sqlite_run(
		run->adopt,
		"DROP TABLE IF EXISTS temp.postroom_adopt_work; CREATE TEMP TABLE "
		"postroom_adopt_work "
		"(position INTEGER PRIMARY KEY, row INTEGER NOT NULL, id TEXT)",
		DOING, err);

	if (status >= 0)
		status = pr_adopt_sqlite_run_built(run->adopt, list, DOING, err);
	if (status >= 0)
		status = pr_adopt_sqlite_number(run->adopt,
						"SELECT count(*) FROM temp.postroom_adopt_work",
						DOING, &run->total, err);
	return status;
}

static void put_left(const struct pr_adopt *adopt, bool waiting, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "SELECT count(*) FROM temp.postroom_adopt_work AS w CROSS JOIN %s AS t ON "
		      "t._rowid_ = "
		      "w.row WHERE w.position BETWEEN ?1 AND ?2 AND ",
		      adopt->name);
	if (waiting)
		pr_adopt_sqlite_put_free(adopt, "t", out);
	else
		pr_adopt_sqlite_put_done(adopt, "t", out);
}

static int clear_rejects(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_puts(&sql, "DELETE FROM postroom_adopt_rejects WHERE table_name = ");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	return pr_adopt_sqlite_run_built(adopt, &sql, DOING, err);
}

int pr_adopt_sqlite_backlog(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
			    struct pr_err *err)
{
	struct chunks run = { .adopt = adopt, .progress = progress };
	PR_CLEANUP_BUF struct pr_buf list = { 0 };
	int status;

	if (adopt->done == PR_ADOPT_NONE)
		return POSTROOM_OK;
	status = clear_rejects(adopt, err);
	pr_adopt_sqlite_put_list(adopt, &list);
	put_left(adopt, true, &run.left);
	if (status >= 0)
		status = list_rows(&run, &list, err);
	pr_adopt_sqlite_put_move(adopt, &run.sql);
	if (status >= 0 && (run.sql.failed || run.left.failed))
		status = pr_err_nomem(err);
	if (status >= 0)
		status = run_chunks(&run, true, err);
	if (status >= 0)
		status = count_rejects(adopt, &progress->rejected, err);
	pr_buf_release(&run.sql);
	pr_buf_release(&run.left);
	return status;
}

static void put_undo_list(const struct pr_adopt *adopt, struct pr_buf *out)
{
	pr_buf_printf(out,
		      "INSERT INTO temp.postroom_adopt_work (row, id)\n\tSELECT t._rowid_, o.id "
		      "FROM %s AS t "
		      "CROSS JOIN postroom_outbox AS o ON o.id = ",
		      adopt->name);
	pr_adopt_sqlite_put_id(adopt, "t", out);
	pr_buf_puts(out, " WHERE o.status = 'pending' AND ");
	pr_adopt_sqlite_put_done(adopt, "t", out);
	pr_buf_puts(out, " ORDER BY o.seq");
}

/* Otherwise neither dispatcher would have the row. */
static int check_reopened(struct chunks *run, int64_t first, int64_t last, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int64_t kept = 0;
	int status;

	pr_buf_printf(&sql,
		      "SELECT count(*) FROM temp.postroom_adopt_work AS w CROSS JOIN %s AS t ON "
		      "t._rowid_ = w.row CROSS JOIN postroom_outbox AS o ON o.id = w.id WHERE "
		      "w.position BETWEEN ?1 AND ?2 AND o.status = 'pending' AND ",
		      run->adopt->name);
	pr_adopt_sqlite_put_done(run->adopt, "t", &sql);
	if (sql.failed)
		return pr_err_nomem(err);
	status = run_positions(run, sql.data, first, last, &kept, err);
	if (status < 0 || kept == 0)
		return status;
	return pr_err_set(err, POSTROOM_DATABASE,
			  "adopt: a trigger of %s keeps rows from being opened again, so their messages "
			  "stay; change it and run the command again",
			  run->adopt->name);
}

/* The row first: while its message is still pending. */
static int hand_back(struct chunks *run, int64_t first, int64_t last, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf reopen = { 0 };
	int64_t before = 0, after = 0;
	int status = pr_sqlite_begin(run->adopt->store, err);

	pr_buf_printf(&reopen, "UPDATE %s SET ", run->adopt->name);
	pr_adopt_sqlite_put_mark(run->adopt, false, &reopen);
	pr_buf_puts(&reopen,
		    " WHERE _rowid_ IN (SELECT w.row FROM temp.postroom_adopt_work AS w JOIN "
		    "postroom_outbox AS o ON o.id = w.id WHERE w.position BETWEEN ?1 AND ?2 "
		    "AND o.status = 'pending')");
	if (status < 0)
		return status;
	status = reopen.failed ? pr_err_nomem(err)
			       : run_positions(run, run->left.data, first, last, &before, err);
	if (status >= 0)
		status = run_positions(run, reopen.data, first, last, NULL, err);
	if (status >= 0)
		status = check_reopened(run, first, last, err);
	if (status >= 0)
		status = run_positions(
			run,
			"DELETE FROM postroom_outbox WHERE status = 'pending' AND id IN (SELECT "
			"w.id "
			"FROM temp.postroom_adopt_work AS w WHERE w.position BETWEEN ?1 AND ?2)",
			first, last, NULL, err);
	if (status >= 0)
		status = run_positions(run, run->left.data, first, last, &after, err);
	status = pr_sqlite_end(run->adopt->store, status, err);
	if (status >= 0)
		run->progress->moved += before - after;
	return status;
}

static int hand_back_all(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
			 struct pr_err *err)
{
	struct chunks run = { .adopt = adopt, .progress = progress };
	PR_CLEANUP_BUF struct pr_buf list = { 0 };
	int64_t size = progress->chunk < 200 ? progress->chunk : 200;
	int status;

	put_undo_list(adopt, &list);
	put_left(adopt, false, &run.left);
	status = list_rows(&run, &list, err);
	for (int64_t first = 1; first <= run.total && status >= 0; first += size) {
		status = hand_back(&run, first, first + size - 1, err);
		if (progress->show)
			progress->show(progress->context, first, run.total);
		if (status >= 0 && pr_stop_wait(progress->stop, 1))
			status = fail_stopped(err);
	}
	pr_buf_release(&run.left);
	return status;
}

/* Messages that a relay has not yet settled. Failed messages have to be handed back. */
static int count_in_flight(struct pr_adopt *adopt, int64_t *ret, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_printf(&sql,
		      "SELECT count(*) FROM %s AS t CROSS JOIN postroom_outbox AS o ON o.id = ",
		      adopt->name);
	pr_adopt_sqlite_put_id(adopt, "t", &sql);
	pr_buf_puts(&sql, " WHERE o.status = 'processing' AND ");
	pr_adopt_sqlite_put_done(adopt, "t", &sql);
	if (sql.failed)
		return pr_err_nomem(err);
	return pr_adopt_sqlite_number(adopt, sql.data, DOING, ret, err);
}

static int hand_back_settled(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
			     struct pr_err *err)
{
	for (int i = 0;; i++) {
		int status = hand_back_all(adopt, progress, err);

		if (status >= 0)
			status = count_in_flight(adopt, &progress->locked, err);
		if (status < 0 || progress->locked == 0 || i == IN_FLIGHT_PASSES)
			return status;
		if (pr_stop_wait(progress->stop, PAUSE_MS))
			return fail_stopped(err);
	}
}

int pr_adopt_sqlite_undo(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
			 struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status = pr_sqlite_begin(adopt->store, err);

	if (status < 0)
		return status;
	pr_adopt_sqlite_put_drop(adopt, &sql);
	status = pr_adopt_sqlite_run_built(adopt, &sql, "dropping the mirror", err);
	status = pr_sqlite_end(adopt->store, status, err);
	if (status >= 0 && pr_adopt_has_marker(adopt))
		status = hand_back_settled(adopt, progress, err);
	return status < 0 || progress->locked > 0 ? status : pr_adopt_sqlite_drop_state(adopt, err);
}

static void take_status(void *context, sqlite3_stmt *row)
{
	struct pr_adopt_status *status = context;
	int64_t *const fields[] = { &status->open,    &status->other,	   &status->rejected,
				    &status->pending, &status->processing, &status->delivered,
				    &status->dead };

	for (int i = 0; i < 7; i++)
		*fields[i] = sqlite3_column_int64(row, i);
}

int pr_adopt_sqlite_status(struct pr_adopt *adopt, struct pr_adopt_status *ret, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	*ret = (struct pr_adopt_status){
		.targets = 1,
		.mirrored = pr_adopt_is_mirrored(&adopt->targets[0], pr_adopt_has_marker(adopt)),
	};
	pr_buf_puts(
		&sql,
		"SELECT count(*) FILTER (WHERE m.open), count(*) FILTER (WHERE NOT m.open AND NOT "
		"m.done), (SELECT count(*) FROM postroom_adopt_rejects WHERE table_name = ");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	pr_buf_puts(
		&sql,
		"), count(*) FILTER (WHERE o.status = 'pending'), count(*) FILTER (WHERE o.status "
		"= "
		"'processing'), count(*) FILTER (WHERE o.status = 'delivered'), count(*) FILTER "
		"(WHERE o.status = 'dead') FROM (SELECT ");
	pr_adopt_sqlite_put_id(adopt, "t", &sql);
	pr_buf_puts(&sql, " AS id, ");
	if (adopt->done == PR_ADOPT_NONE)
		pr_buf_puts(&sql, "0");
	else
		pr_adopt_sqlite_put_open(adopt, "t", &sql);
	pr_buf_puts(&sql, " AS open, ");
	if (adopt->done == PR_ADOPT_NONE)
		pr_buf_puts(&sql, "1");
	else
		pr_adopt_sqlite_put_done(adopt, "t", &sql);
	pr_buf_printf(&sql, " AS done FROM %s AS t WHERE ", adopt->name);
	pr_adopt_sqlite_put_only(adopt, "t", &sql);
	pr_buf_puts(&sql, ") AS m LEFT JOIN postroom_outbox AS o ON o.id = m.id");
	if (sql.failed)
		return pr_err_nomem(err);
	return pr_adopt_sqlite_query(adopt, sql.data, "reading the state of the adoption",
				     take_status, ret, err);
}

int pr_adopt_sqlite_rejects(struct pr_adopt *adopt, pr_adopt_text_fn fn, void *context,
			    struct pr_err *err)
{
	struct pr_adopt_output output = { .fn = fn, .context = context };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_puts(&sql,
		    "SELECT count(*) || ' rows, such as ' || min(row_key) || ': ' || reason FROM "
		    "postroom_adopt_rejects WHERE table_name = ");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	pr_buf_puts(&sql, " GROUP BY reason ORDER BY count(*) DESC, reason LIMIT 10");
	if (sql.failed)
		return pr_err_nomem(err);
	return pr_adopt_sqlite_query(adopt, sql.data, "reading the state of the adoption",
				     take_line, &output, err);
}
