/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite store: one connection, its errors, its transactions.
 *
 * 1. A write transaction is IMMEDIATE from its first statement: a read that becomes a write fails
 *    immediately, regardless of the busy handler.
 * 2. No statement stays open between calls: it would prevent a checkpoint of the WAL.
 * 3. synchronous=FULL: a commit survives a power failure, so a settled message is not delivered
 *    again.
 */
#include "store/sqlite/sqlite.h"

#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A topic pattern as GLOB wants it: each character may take three. */
#define GLOB_SIZE (POSTROOM_TOPIC_MAX * 3 + 4)

static const char *const schemes[] = { "sqlite", NULL };

static const char *path_of(sqlite3 *db, const struct sqlite_store *store)
{
	const char *path = store ? store->path : db ? sqlite3_db_filename(db, "main") : NULL;

	return path && *path ? path : "(memory)";
}

static int fail_busy(sqlite3 *db, const struct sqlite_store *store, const char *doing,
		     struct pr_err *err)
{
	int64_t waited_us;

	if (sqlite3_extended_errcode(db) == SQLITE_BUSY_SNAPSHOT)
		return pr_err_set(err, POSTROOM_TX_ABORTED,
				  "%s: another connection has written to \"%s\" since this "
				  "transaction began to read; roll back and start with BEGIN "
				  "IMMEDIATE",
				  doing, path_of(db, store));
	if (store && pr_stop_requested(store->stop))
		return pr_err_set(err, POSTROOM_STOPPED,
				  "%s: stop requested while waiting for \"%s\"", doing,
				  path_of(db, store));
	if (!store || !store->busy_since_us)
		return pr_err_set(err, POSTROOM_BUSY,
				  "%s: database \"%s\" is locked by another connection; try again",
				  doing, path_of(db, store));
	waited_us = pr_mono_us() - store->busy_since_us;
	return pr_err_set(err, POSTROOM_BUSY,
			  "%s: database \"%s\" is locked by another connection (waited %.1f s); "
			  "end its transaction and try again",
			  doing, path_of(db, store), (double)waited_us / 1e6);
}

static int fail_otherwise(sqlite3 *db, const struct sqlite_store *store, const char *doing,
			  struct pr_err *err)
{
	const char *path = path_of(db, store), *text = sqlite3_errmsg(db);

	switch (sqlite3_errcode(db) & 0xff) {
	case SQLITE_NOMEM:
		return pr_err_nomem(err);
	case SQLITE_NOTADB:
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "%s: \"%s\" is not an SQLite database; give another file", doing,
				  path);
	case SQLITE_CANTOPEN:
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "%s: cannot open \"%s\" (%s); check that the directory exists "
				  "and may be written to",
				  doing, path, strerror(sqlite3_system_errno(db)));
	case SQLITE_READONLY:
		return pr_err_set(err, POSTROOM_DATABASE,
				  "%s: \"%s\" is read-only; check the permissions of the file and "
				  "its directory",
				  doing, path);
	case SQLITE_FULL:
		return pr_err_set(err, POSTROOM_DATABASE,
				  "%s: the disk of \"%s\" is full; nothing was written, make room "
				  "and try again",
				  doing, path);
	case SQLITE_IOERR:
		return pr_err_set(err, POSTROOM_DATABASE, "%s: \"%s\": %s (%s)", doing, path, text,
				  strerror(sqlite3_system_errno(db)));
	case SQLITE_CORRUPT:
		return pr_err_set(err, POSTROOM_DATABASE,
				  "%s: \"%s\" is damaged (%s); restore it from a backup", doing,
				  path, text);
	default:
		if (strstr(text, "no such table: postroom_") || strstr(text, "no such index"))
			return pr_err_set(
				err, POSTROOM_SCHEMA,
				"%s: \"%s\" has no Postroom tables; run `postroom migrate`", doing,
				path);
		return pr_err_set(err, POSTROOM_DATABASE, "%s: \"%s\": %s", doing, path, text);
	}
}

int pr_sqlite_fail(sqlite3 *db, const struct sqlite_store *store, const char *doing,
		   struct pr_err *err)
{
	int native = db ? sqlite3_extended_errcode(db) : SQLITE_NOMEM;
	int status;

	if (!db)
		return pr_err_nomem(err);
	if ((native & 0xff) == SQLITE_BUSY || (native & 0xff) == SQLITE_LOCKED)
		status = fail_busy(db, store, doing, err);
	else
		status = fail_otherwise(db, store, doing, err);
	if (err)
		err->native = native;
	return status;
}

/*
 * Growing, jittered pauses. SQLite has no queue for its lock: beside a program that writes
 * without pause the lock is free only for moments, and rare tries would miss them. So the pauses
 * stay short for the first hundreds of tries. After a stop request a claim gives up at once; a
 * settle has until the end of the grace period.
 */
int pr_sqlite_wait_for_lock(void *context, int tries)
{
	struct sqlite_store *store = context;
	int64_t pause_ms = tries < 200 ? 1 : tries < 300 ? 5 : 25;

	if (tries == 0)
		store->busy_since_us = pr_mono_us();
	if (store->busy_wait_ms >= 0 &&
	    pr_mono_us() - store->busy_since_us >= store->busy_wait_ms * 1000)
		return 0;
	if (store->base.until_us && pr_mono_us() >= store->base.until_us)
		return 0;
	if (store->finishing ? pr_stop_is_over(store->stop) : pr_stop_requested(store->stop))
		return 0;
	pr_watchdog_feed(store->watchdog, pause_ms);
	pr_stop_wait(store->finishing ? NULL : store->stop,
		     pr_random_between(&store->base.random, 1, pause_ms));
	return 1;
}

#define CHECKPOINT_FRAMES 4000 /* 16 MB */
#define CHECKPOINT_WAIT_MS 100

/*
 * After a commit that leaves the WAL long. SQLite's own checkpoint goes on beside
 * other writers and never comes to the end of what they append: the WAL would
 * grow for as long as they are busy. This one makes them wait, so that the next
 * of them starts the WAL anew. A long reader can prevent it: then it is tried
 * again that many frames later, not at every commit.
 */
static int checkpoint(void *context, sqlite3 *db, const char *name, int frames)
{
	struct sqlite_store *store = context;
	int64_t busy_wait_ms = store->busy_wait_ms;

	if (frames < CHECKPOINT_FRAMES)
		store->checkpoint_at = CHECKPOINT_FRAMES;
	if (frames < store->checkpoint_at)
		return SQLITE_OK;
	store->checkpoint_at = frames + CHECKPOINT_FRAMES;
	store->busy_wait_ms = CHECKPOINT_WAIT_MS;
	sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
	store->busy_wait_ms = busy_wait_ms;
	return SQLITE_OK;
}

/* As GLOB wants it: everything but '*' stands for itself. Returns the length. */
static size_t glob_of(const char *pattern, char out[GLOB_SIZE])
{
	size_t len = 0;

	/* A pattern longer than the longest topic is cut: with '*'s aside it could not match anyway. */
	for (; *pattern && len + 4 < GLOB_SIZE; pattern++) {
		if (*pattern == '[' || *pattern == '?') {
			out[len++] = '[';
			out[len++] = *pattern;
			out[len++] = ']';
		} else {
			out[len++] = *pattern;
		}
	}
	out[len] = '\0';
	return len;
}

void pr_sqlite_pattern(const char *pattern, struct pr_buf *out)
{
	char glob[GLOB_SIZE];

	pr_buf_append(out, glob, glob_of(pattern, glob));
}

static void put_literal(void *context, const char *text, bool pattern, struct pr_buf *out)
{
	char glob[GLOB_SIZE];
	char *quoted;

	(void)context;
	if (pattern)
		glob_of(text, glob);
	quoted = sqlite3_mprintf("%Q", pattern ? glob : text);
	if (quoted)
		pr_buf_puts(out, quoted);
	else
		out->failed = true;
	sqlite3_free(quoted);
}

/* Last of all: nothing in a rule's own text is taken for a {name}. */
static void fill_rules(const struct sqlite_store *store, const struct pr_table *table,
		       const char *sql, struct pr_buf *out)
{
	const char *at;

	while ((at = strstr(sql, "{rules}"))) {
		pr_buf_append(out, sql, (size_t)(at - sql));
		if (store->rules.count > 0) {
			pr_buf_puts(out, "AND ");
			pr_rules_sql(&store->rules, table, "GLOB", put_literal, NULL, out);
		}
		sql = at + strlen("{rules}");
	}
	pr_buf_puts(out, sql);
}

sqlite3_stmt *pr_sqlite_prepare(struct sqlite_store *store, enum sqlite_slot slot,
				const struct pr_table *table, const char *sql, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf filled = { 0 }, text = { 0 };
	struct sqlite_side *side = sqlite_side(store, table);
	sqlite3_stmt **stmt = &side->slots[slot];

	/* The first ones know no tables. */
	if (*stmt && (slot <= SLOT_SCHEMA_VERSION || side->versions[slot] == store->schema_version))
		return *stmt;
	sqlite3_finalize(*stmt);
	*stmt = NULL;
	side->versions[slot] = store->schema_version;
	if (table)
		pr_table_sql(table, sql, &filled);
	else
		pr_buf_puts(&filled, sql);
	fill_rules(store, table, pr_buf_text(&filled), &text);
	if (filled.failed || text.failed) {
		pr_err_nomem(err);
		return NULL;
	}
	if (sqlite3_prepare_v3(store->db, text.data, -1, SQLITE_PREPARE_PERSISTENT, stmt, NULL) !=
	    SQLITE_OK)
		pr_sqlite_fail(store->db, store, "preparing a statement", err);
	return *stmt;
}

int pr_sqlite_run(struct sqlite_store *store, sqlite3_stmt *stmt, const char *doing,
		  struct pr_err *err)
{
	int status = POSTROOM_OK;

	if (sqlite3_step(stmt) != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, doing, err);
	sqlite3_reset(stmt);
	return status;
}

static int run_slot(struct postroom_store *base, enum sqlite_slot slot, const char *sql,
		    const char *doing, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, slot, NULL, sql, err);

	if (!stmt)
		return err ? err->status : POSTROOM_DATABASE;
	return pr_sqlite_run(store, stmt, doing, err);
}

/*
 * After a change of the schema SQLite prepares a statement anew while it runs. If there is no memory
 * for that, it may roll back the whole transaction and then run the statement outside of it. So
 * every statement of a transaction is prepared for the schema of that transaction.
 */
static int read_schema_version(struct sqlite_store *store, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_SCHEMA_VERSION, NULL,
					       "PRAGMA schema_version", err);
	int status = POSTROOM_OK;

	if (!stmt)
		return err->status;
	if (sqlite3_step(stmt) == SQLITE_ROW)
		store->schema_version = sqlite3_column_int(stmt, 0);
	else
		status = pr_sqlite_fail(store->db, store, "beginning to write", err);
	sqlite3_reset(stmt);
	return status;
}

static int begin(struct postroom_store *store, bool finishing, struct pr_err *err)
{
	int status;

	/* Prepared before it is needed: without memory there must still be a way back. */
	if (!pr_sqlite_prepare(sqlite_store(store), SLOT_ROLLBACK, NULL, "ROLLBACK", err))
		return err->status;
	/* A rollback can fail too; what it left open ends here. */
	pr_sqlite_rollback(store);
	sqlite_store(store)->busy_since_us = 0;
	sqlite_store(store)->finishing = finishing;
	status = run_slot(store, SLOT_BEGIN, "BEGIN IMMEDIATE", "beginning to write", err);
	if (status >= 0)
		status = read_schema_version(sqlite_store(store), err);
	if (status < 0)
		pr_sqlite_rollback(store);
	return status;
}

int pr_sqlite_begin(struct postroom_store *store, struct pr_err *err)
{
	return begin(store, false, err);
}

int pr_sqlite_begin_finishing(struct postroom_store *store, struct pr_err *err)
{
	return begin(store, true, err);
}

int pr_sqlite_commit(struct postroom_store *store, struct pr_err *err)
{
	return run_slot(store, SLOT_COMMIT, "COMMIT", "committing", err);
}

void pr_sqlite_rollback(struct postroom_store *store)
{
	/* After a full disk or an I/O error SQLite has often done it already. */
	if (!sqlite3_get_autocommit(sqlite_store(store)->db))
		run_slot(store, SLOT_ROLLBACK, "ROLLBACK", "rolling back", NULL);
}

int pr_sqlite_end(struct postroom_store *store, int status, struct pr_err *err)
{
	if (status >= 0) {
		int committed = pr_sqlite_commit(store, err);

		if (committed >= 0)
			return status;
		status = committed;
	}
	pr_sqlite_rollback(store);
	return status;
}

void pr_sqlite_bind(sqlite3_stmt *stmt, int index, const char *text)
{
	if (text)
		sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC);
	else
		sqlite3_bind_null(stmt, index);
}

bool pr_sqlite_bind_pattern(sqlite3_stmt *stmt, int index, const char *pattern)
{
	char glob[GLOB_SIZE];
	size_t len;

	if (!pattern) {
		sqlite3_bind_null(stmt, index);
		return true;
	}
	len = glob_of(pattern, glob);
	return sqlite3_bind_text(stmt, index, glob, (int)len, SQLITE_TRANSIENT) == SQLITE_OK;
}

int pr_sqlite_bind_scope(sqlite3_stmt *stmt, const struct pr_scope *scope, struct pr_err *err)
{
	pr_sqlite_bind(stmt, 1, scope->ns);
	pr_sqlite_bind(stmt, 3, scope->tenant_id);
	return pr_sqlite_bind_pattern(stmt, 2, scope->topic) ? POSTROOM_OK : pr_err_nomem(err);
}

void pr_sqlite_add_seq(struct pr_buf *seqs, int64_t seq)
{
	char digits[24];
	char *at = digits + sizeof(digits);

	/* By hand: printf would be a tenth of the claim. */
	do {
		*--at = (char)('0' + seq % 10);
		seq /= 10;
	} while (seq > 0);
	*--at = seqs->len ? ',' : '[';
	pr_buf_append(seqs, at, (size_t)(digits + sizeof(digits) - at));
}

int pr_sqlite_bind_seqs(sqlite3_stmt *stmt, int index, struct pr_buf *seqs, struct pr_err *err)
{
	if (seqs->len && seqs->data[seqs->len - 1] != ']')
		pr_buf_putc(seqs, ']');
	if (seqs->failed)
		return pr_err_nomem(err);
	sqlite3_bind_text64(stmt, index, pr_buf_text(seqs), seqs->len, SQLITE_STATIC, SQLITE_UTF8);
	return POSTROOM_OK;
}

static const char *path_in(const char *url)
{
	return strncmp(url, "sqlite:", 7) == 0 ? url + 7 : url;
}

static int check_path(const struct sqlite_store *store, bool create, struct pr_err *err)
{
	if (!*store->path)
		return pr_err_set(err, POSTROOM_INVALID,
				  "the database URL has no path; write sqlite:FILE");
	if (create || access(store->path, F_OK) == 0 || errno != ENOENT)
		return POSTROOM_OK;
	pr_err_set(err, POSTROOM_UNAVAILABLE,
		   "there is no database \"%s\"; name another with --db, or run `postroom migrate` "
		   "to make it",
		   store->path);
	if (err)
		err->native = ENOENT; /* `migrate --dry-run` distinguishes it from other failures */
	return POSTROOM_UNAVAILABLE;
}

static void close_store(struct postroom_store *base)
{
	struct sqlite_store *store = sqlite_store(base);

	if (store->box)
		store->box->ops->free(store->box);
	for (size_t side = 0; side < 2; side++) {
		for (size_t i = 0; i < SLOT_COUNT; i++)
			sqlite3_finalize(store->sides[side].slots[i]);
		pr_buf_release(&store->sides[side].scope);
	}
	sqlite3_finalize(store->handler_stmt);
	sqlite3_close(store->db);
	if (store->notify_fd >= 0)
		close(store->notify_fd);
	pr_buf_release(&store->seqs);
	pr_buf_release(&store->made_ready);
	pr_buf_release(&store->handler_sql);
	free(store->claimed.pairs);
	free(store->held_keys.pairs);
	free(store->front.pairs);
	free(store->path);
	free(store);
}

/*
 * SQLite would create a file that everybody may read, and gives -wal and -shm the permissions
 * of the database. So an empty database for its owner alone is there before. It is closed
 * before it has its name: closing it later would drop the locks that this process has on it.
 * Where that fails, SQLite creates the file, or says why not.
 */
static void create_private(const char *path)
{
	size_t size = strlen(path) + sizeof(".new-XXXXXX");
	char *fresh;
	int fd;

	if (!path[0] || path[0] == ':' || access(path, F_OK) == 0)
		return;
	fresh = malloc(size);
	if (!fresh)
		return;
	snprintf(fresh, size, "%s.new-XXXXXX", path);
	fd = mkostemp(fresh, O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		/* One that appeared meanwhile stays. */
		if (renameat2(AT_FDCWD, fresh, AT_FDCWD, path, RENAME_NOREPLACE) < 0) {
			(void)!link(fresh, path);
			unlink(fresh);
		}
	}
	free(fresh);
}

static int open_file(struct sqlite_store *store, bool create, struct pr_err *err)
{
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
		    (create ? SQLITE_OPEN_CREATE : 0);
	int status = check_path(store, create, err);

	if (status < 0)
		return status;
	if (create)
		create_private(store->path);
	if (sqlite3_open_v2(store->path, &store->db, flags, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "opening the database", err);
	sqlite3_busy_handler(store->db, pr_sqlite_wait_for_lock, store);
	/*
	 * The first statement reads the file's header, which fails if it is not a
	 * database. The others are worth a tenth of the speed (docs/internals/sqlite.md).
	 */
	if (sqlite3_exec(store->db,
			 "PRAGMA schema_version; PRAGMA synchronous = FULL; "
			 "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4000",
			 NULL, NULL, NULL) != SQLITE_OK)
		return pr_sqlite_fail(store->db, store, "opening the database", err);
	sqlite3_wal_hook(store->db, checkpoint, store);
	return pr_sqlite_add_functions(store, err);
}

static int open_store(const struct pr_store_config *config, struct postroom_store **ret,
		      struct pr_err *err)
{
	struct sqlite_store *store = calloc(1, sizeof(*store));
	int status;

	if (!store)
		return pr_err_nomem(err);
	store->notify_fd = -1;
	store->busy_wait_ms = config->busy_wait_ms;
	store->base.until_us = config->until_us;
	store->statement_ms = config->statement_ms;
	store->stop = config->stop;
	store->watchdog = config->watchdog;
	store->rules = config->rules;
	store->path = strdup(path_in(config->url));
	status = store->path ? open_file(store, config->create, err) : pr_err_nomem(err);
	if (status < 0) {
		close_store(&store->base);
		return status;
	}
	*ret = &store->base;
	return POSTROOM_OK;
}

const struct pr_store_ops pr_store_sqlite = {
	.schemes = schemes,
	.embedded = true,
	.open = open_store,
	.close = close_store,
	.migrate = pr_sqlite_migrate,
	.migrations = pr_sqlite_migrations,
	.check_schema = pr_sqlite_check_schema,
	.check_compatible = pr_sqlite_check_compatible,
	.begin = pr_sqlite_begin,
	.commit = pr_sqlite_commit,
	.rollback = pr_sqlite_rollback,
	.box = pr_sqlite_box,
	.claim = pr_sqlite_claim,
	.load = pr_sqlite_load,
	.renew = pr_sqlite_renew,
	.settle = pr_sqlite_settle,
	.settle_and_claim = pr_sqlite_settle_and_claim,
	.sweep = pr_sqlite_sweep,
	.wait = pr_sqlite_wait,
	.unfinished = pr_sqlite_unfinished,
	.unrouted = pr_sqlite_unrouted,
	.inbox_insert = pr_sqlite_inbox_insert,
	.apply = pr_sqlite_apply,
	.check_statement = pr_sqlite_check_statement,
	.progress = pr_sqlite_progress,
	.list = pr_sqlite_list,
	.show = pr_sqlite_show,
	.retry = pr_sqlite_retry,
	.purge = pr_sqlite_purge,
	.stats = pr_sqlite_stats,
	.count = pr_sqlite_count,
	.groups = pr_sqlite_groups,
	.attempts = pr_sqlite_attempts,
	.tidy_attempts = pr_sqlite_tidy_attempts,
	.collect = pr_sqlite_collect,
	.leases = pr_sqlite_leases,
	.lease = pr_sqlite_lease,
	.forget = pr_sqlite_purge_dedupe_keys,
	.record_sources = pr_sqlite_record_sources,
	.read_sources = pr_sqlite_read_sources,
	.forget_sources = pr_sqlite_forget_sources,
};
