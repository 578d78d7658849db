/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that wait, moved in chunks.
 * 1. A temporary table lists the rows in the order of their creation, so that messages of a key
 *    keep their order, and a refused row never hides the rows behind it.
 * 2. One statement locks the rows of a chunk (SKIP LOCKED), checks again that they are open,
 *    writes the messages and marks the rows. A kill at any moment leaves each row whole.
 * 3. A new run lists what is still open: there is no position to lose.
 */
#include "adopt/sqlite/sqlite.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>

#define DOING "moving the backlog"
#define FIRST_CHUNK 50
#define SLOW_US 250000
#define FAST_US 80000
/* The rows of a chunk are locked until its end; a chunk of one row may take longer. */
#define CHUNK_TIMEOUT "450ms"
#define LAG_MS 1500
#define PAUSE_MS 100
#define PAUSES_SHOWN 3
/* No chunk makes a session wait that long: between chunks, no lock is held. */
#define PAUSES_MAX 600
#define LOCKED_PASSES 20

enum chunk_job { CHUNK_MOVE, CHUNK_HAND_BACK, CHUNK_KEYS };

struct chunk_run {
	struct pr_adopt *adopt;
	enum chunk_job job;
	struct pr_adopt_progress *progress;
	struct pr_buf sql;
	struct pr_buf ids; /* of withdrawn messages */
	int64_t size, total, done;
};

static int fail_stopped(struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_BUSY,
			  "adopt: interrupted; nothing is lost: run the command again to continue");
}

/* A chunk is small, whatever the planner believes of a table without statistics. */
static int force_index_scans(struct pr_adopt *adopt, bool force, struct pr_err *err)
{
	return pr_adopt_run(adopt,
			    force ? "SELECT set_config(name, 'off', false) FROM unnest(ARRAY["
				    "'enable_seqscan', 'enable_hashjoin', 'enable_mergejoin']) AS name"
				  : "SELECT set_config(name, 'on', false) FROM unnest(ARRAY["
				    "'enable_seqscan', 'enable_hashjoin', 'enable_mergejoin']) AS name",
			    DOING, err);
}

/* How many rows are listed: by a scan of the whole table. */
static int list_rows(struct chunk_run *run, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	int status = pr_adopt_run(run->adopt, "DROP TABLE IF EXISTS pg_temp.postroom_adopt_work",
				  DOING, err);

	if (status >= 0)
		status = force_index_scans(run->adopt, false, err);
	if (status < 0)
		return status;
	if (run->job == CHUNK_KEYS)
		pr_adopt_put_key_work(run->adopt, &sql);
	else
		pr_adopt_put_work(run->adopt, run->job == CHUNK_HAND_BACK, &sql);
	if (sql.failed)
		return pr_err_nomem(err);
	result = pr_pgsql_query(adopt_store(run->adopt), sql.data, &params, DOING, err);
	if (!result)
		return err->status;
	run->total = strtoll(PQcmdTuples(result), NULL, 10);
	run->done = 0;
	status = pr_adopt_run(run->adopt,
			      "ALTER TABLE pg_temp.postroom_adopt_work ADD PRIMARY KEY (position)",
			      DOING, err);
	if (status >= 0)
		status = pr_adopt_run(run->adopt, "ANALYZE pg_temp.postroom_adopt_work", DOING,
				      err);
	return status < 0 ? status : force_index_scans(run->adopt, true, err);
}

/* Standbys that lag, and sessions that wait for a lock on the table, come first. */
static int throttle(struct chunk_run *run, struct pr_err *err)
{
	for (int i = 0;; i++) {
		struct pgsql_params params = { 0 };
		bool lags, waits;
		PR_CLEANUP_RESULT PGresult *result = NULL;

		pr_pgsql_text(&params, run->adopt->name);
		pr_pgsql_number(&params, LAG_MS);
		result = pr_pgsql_query(
			adopt_store(run->adopt),
			"SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lag > "
			"$2::bigint * interval '1 ms'), EXISTS (SELECT FROM pg_locks "
			"WHERE NOT granted AND locktype IN ('relation', 'tuple') "
			"AND relation = $1::regclass)",
			&params, DOING, err);
		if (!result)
			return err->status;
		lags = *PQgetvalue(result, 0, 0) == 't';
		waits = *PQgetvalue(result, 0, 1) == 't';
		if (!lags && (!waits || i >= PAUSES_MAX))
			return POSTROOM_OK;
		if (i == PAUSES_SHOWN && run->progress->pause)
			run->progress->pause(run->progress->context,
					     lags ? "a standby lags by more than 1.5 s"
						  : "another session waits for a lock on the table");
		if (pr_stop_wait(run->progress->stop, PAUSE_MS))
			return fail_stopped(err);
	}
}

static int count_moved(struct chunk_run *run, int64_t moved, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_buf_printf(&sql,
		      "UPDATE %spostroom_adopted SET moved = moved + $1::bigint WHERE table_name = $2",
		      adopt_store(run->adopt)->schema);
	if (sql.failed)
		return pr_err_nomem(err);
	pr_pgsql_number(&params, moved);
	pr_pgsql_text(&params, run->adopt->name);
	result = pr_pgsql_query(adopt_store(run->adopt), sql.data, &params, DOING, err);
	return result ? POSTROOM_OK : err->status;
}

/*
 * The parameter of the chunk's statement: its messages, which are withdrawn now. Messages of rows
 * that others have locked stay for the next pass.
 */
static int withdraw(struct chunk_run *run, int64_t first, int64_t last,
		    struct pgsql_params *ret_params, struct pr_err *err)
{
	struct pgsql_store *store = adopt_store(run->adopt);
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *listed = NULL;

	pr_adopt_put_lock(run->adopt, &sql);
	if (sql.failed)
		return pr_err_nomem(err);
	pr_pgsql_number(&params, first);
	pr_pgsql_number(&params, last);
	listed = pr_pgsql_query(store, sql.data, &params, DOING, err);
	if (!listed)
		return err->status;
	pr_buf_reset(&run->ids);
	if (pr_pgsql_withdraw(store, PQgetvalue(listed, 0, 0), &run->ids, err) < 0)
		return err->status;
	pr_pgsql_text(ret_params, pr_buf_text(&run->ids));
	return POSTROOM_OK;
}

/* In the caller's transaction. Both counts are equal unless a trigger of theirs interferes. */
static int run_chunk(struct chunk_run *run, int64_t first, int64_t last, int64_t *ret,
		     struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (run->job == CHUNK_HAND_BACK && withdraw(run, first, last, &params, err) < 0)
		return err->status;
	pr_pgsql_number(&params, first);
	pr_pgsql_number(&params, last);
	result = pr_pgsql_query(adopt_store(run->adopt), run->sql.data, &params, DOING, err);
	if (!result)
		return err->status;
	*ret = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	if (*ret != strtoll(PQgetvalue(result, 0, 1), NULL, 10) && run->job == CHUNK_KEYS)
		return pr_err_set(err, POSTROOM_DATABASE,
				  "adopt: a row of %s has no key although one was set: --key-sql gives NULL "
				  "for it, or a trigger removes the key; correct that and run the command "
				  "again",
				  run->adopt->name);
	if (*ret != strtoll(PQgetvalue(result, 0, 1), NULL, 10))
		return pr_err_set(err, POSTROOM_DATABASE,
				  "adopt: a trigger or a row security policy of %s keeps rows from being "
				  "marked, so they would be sent twice; change it and run the command "
				  "again",
				  run->adopt->name);
	return run->job == CHUNK_KEYS ? POSTROOM_OK : count_moved(run, *ret, err);
}

static int move_chunk(struct chunk_run *run, int64_t first, int64_t last, struct pr_err *err)
{
	const struct pr_store_ops *ops = run->adopt->store->ops;
	int64_t moved = 0;
	int status = ops->begin(run->adopt->store, err);

	if (status >= 0 && last > first)
		status = pr_adopt_run(run->adopt, "SET LOCAL statement_timeout = '" CHUNK_TIMEOUT "'",
				      DOING, err);
	if (status >= 0)
		status = run_chunk(run, first, last, &moved, err);
	status = ops->end(run->adopt->store, status, err);
	if (status >= 0)
		run->progress->moved += moved;
	return status;
}

/* Errors of a row's content; all others are errors of the command. */
static bool is_refusal(const struct pr_err *err)
{
	return strncmp(err->sqlstate, "22", 2) == 0 || strncmp(err->sqlstate, "23", 2) == 0 ||
	       strncmp(err->sqlstate, "P0", 2) == 0;
}

/* The next pass meets the rows again. */
static bool is_transient(const struct pr_err *err)
{
	return strcmp(err->sqlstate, "55P03") == 0 || strcmp(err->sqlstate, "57014") == 0 ||
	       strncmp(err->sqlstate, "40", 2) == 0;
}

/* The server's own words: without what was done, and where. */
static const char *reason_of(const struct chunk_run *run, const struct pr_err *err)
{
	const char *shown = adopt_store(run->adopt)->shown;
	const char *at = strstr(err->text, shown);

	return at && at[strlen(shown)] == ':' ? at + strlen(shown) + 2 : err->text;
}

static int reject_row(struct chunk_run *run, int64_t position, const char *reason,
		      struct pr_err *err)
{
	const struct pr_adopt *adopt = run->adopt;
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_buf_printf(&sql,
		      "INSERT INTO %spostroom_adopt_rejects (table_name, row_key, reason) "
		      "SELECT $1, concat_ws(','",
		      adopt_store(adopt)->schema);
	for (size_t i = 0; i < adopt->key_count; i++)
		pr_buf_printf(&sql, ", w.k%zu", i);
	pr_buf_puts(&sql, "), $2 FROM pg_temp.postroom_adopt_work AS w WHERE w.position = $3::bigint "
			  "ON CONFLICT (table_name, row_key) DO UPDATE SET reason = excluded.reason, "
			  "rejected_at = excluded.rejected_at");
	if (sql.failed)
		return pr_err_nomem(err);
	pr_pgsql_text(&params, adopt->name);
	pr_pgsql_text(&params, reason);
	pr_pgsql_number(&params, position);
	result = pr_pgsql_query(adopt_store(adopt), sql.data, &params, DOING, err);
	if (!result)
		return err->status;
	run->progress->rejected++;
	return POSTROOM_OK;
}

static int move_one_by_one(struct chunk_run *run, int64_t first, int64_t last, struct pr_err *err)
{
	for (int64_t i = first; i <= last; i++) {
		struct pr_err why = { 0 };
		int status = move_chunk(run, i, i, &why);

		if (status < 0 && is_refusal(&why))
			status = reject_row(run, i, reason_of(run, &why), err);
		else if (status < 0 && !is_transient(&why))
			*err = why;
		else
			status = POSTROOM_OK;
		if (status < 0)
			return status;
		if (pr_stop_requested(run->progress->stop))
			return fail_stopped(err);
	}
	return POSTROOM_OK;
}

static int move_or_reject(struct chunk_run *run, int64_t first, int64_t last, struct pr_err *err)
{
	int64_t begun_us = pr_mono_us(), took_us;
	int status = move_chunk(run, first, last, err);

	if (status < 0 && is_refusal(err) && run->job == CHUNK_MOVE) {
		pr_err_clear(err);
		status = move_one_by_one(run, first, last, err);
	} else if (status < 0 && is_transient(err)) {
		pr_err_clear(err);
		status = POSTROOM_OK;
	}
	took_us = pr_mono_us() - begun_us;
	if (took_us > SLOW_US && run->size > 1)
		run->size /= 2;
	else if (took_us < FAST_US && run->size < run->progress->chunk)
		run->size = run->size * 2 < run->progress->chunk ? run->size * 2
								 : run->progress->chunk;
	return status;
}

static int move_all(struct chunk_run *run, struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (int64_t first = 1; first <= run->total && status >= 0;) {
		int64_t last = first + run->size - 1 < run->total ? first + run->size - 1 : run->total;

		if (pr_stop_requested(run->progress->stop))
			return fail_stopped(err);
		status = throttle(run, err);
		if (status >= 0)
			status = move_or_reject(run, first, last, err);
		first = last + 1;
		run->done = last;
		if (run->progress->show)
			run->progress->show(run->progress->context, run->done, run->total);
	}
	return status;
}

/* Until no row is left but refused ones, and rows that others keep locked. */
static int run_passes(struct chunk_run *run, struct pr_err *err)
{
	struct pr_adopt_progress *progress = run->progress;
	int status, idle = 0;

	do {
		int64_t before = progress->moved + progress->rejected;

		status = list_rows(run, err);
		if (status >= 0)
			status = move_all(run, err);
		progress->locked = run->total;
		/* Producers may go on to write rows without a key: those of one list suffice. */
		if (run->job == CHUNK_KEYS && progress->moved - before == run->total)
			progress->locked = 0;
		if (status < 0 || progress->locked == 0)
			break;
		idle = progress->moved + progress->rejected > before ? 0 : idle + 1;
		if (idle > 0 && pr_stop_wait(progress->stop, PAUSE_MS))
			return fail_stopped(err);
	} while (idle < LOCKED_PASSES);
	return status;
}

/* Refused rows are tried again in every run. */
static int clear_rejects(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_buf_printf(&sql, "DELETE FROM %spostroom_adopt_rejects WHERE table_name = $1",
		      adopt_store(adopt)->schema);
	if (sql.failed)
		return pr_err_nomem(err);
	pr_pgsql_text(&params, adopt->name);
	result = pr_pgsql_query(adopt_store(adopt), sql.data, &params, DOING, err);
	return result ? POSTROOM_OK : err->status;
}

static int run_with(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
		    enum chunk_job job, struct pr_err *err)
{
	struct chunk_run run = { .adopt = adopt, .progress = progress, .job = job };
	int status = pr_adopt_run(adopt, ADOPT_NO_TIMEOUT, DOING, err);

	run.size = progress->chunk < FIRST_CHUNK ? progress->chunk : FIRST_CHUNK;
	if (job == CHUNK_HAND_BACK)
		pr_adopt_put_hand_back(adopt, &run.sql);
	else if (job == CHUNK_KEYS)
		pr_adopt_put_key_chunk(adopt, &run.sql);
	else
		pr_adopt_put_move(adopt, &run.sql);
	if (run.sql.failed)
		status = pr_err_nomem(err);
	if (status >= 0)
		status = run_passes(&run, err);
	pr_buf_release(&run.sql);
	pr_buf_release(&run.ids);
	return status;
}

int pr_adopt_backlog(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
		     struct pr_err *err)
{
	int status;

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_backlog(adopt, progress, err);
	/* Rows that are never marked were all read from the write-ahead log. */
	if (adopt->done == PR_ADOPT_NONE)
		return POSTROOM_OK;
	status = clear_rejects(adopt, err);
	return status < 0 ? status : run_with(adopt, progress, CHUNK_MOVE, err);
}

int pr_adopt_fill_keys(struct pr_adopt *adopt, struct pr_adopt_progress *progress,
		       struct pr_err *err)
{
	return run_with(adopt, progress, CHUNK_KEYS, err);
}

static int check_leases(struct pr_adopt *adopt, struct pr_err *err)
{
	enum pr_lease_kind kind = PR_LEASE_ROW;
	int status = pr_store_lease_kind(adopt->store, NULL, &kind, err);

	if (status >= 0 && kind == PR_LEASE_LANE)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: messages are claimed by lanes, so messages in flight look like "
				  "waiting ones; run \"postroom lease row\" before --undo, "
				  "and \"postroom lease lane\" after it");
	return status;
}

int pr_adopt_undo(struct pr_adopt *adopt, struct pr_adopt_progress *progress, struct pr_err *err)
{
	int status;

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_undo(adopt, progress, err);
	status = check_leases(adopt, err);
	if (status >= 0)
		status = pr_adopt_drop_triggers(adopt, progress->stop, err);
	if (status >= 0 && pr_adopt_has_marker(adopt))
		status = run_with(adopt, progress, CHUNK_HAND_BACK, err);
	/* Otherwise the record is needed to hand back the rest. */
	if (status < 0 || progress->locked > 0)
		return status;
	status = pr_adopt_drop_functions(adopt, err);
	return status < 0 ? status : pr_adopt_drop_state(adopt, err);
}
