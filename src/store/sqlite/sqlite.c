/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite store: one connection and its errors.
 *
 * synchronous=FULL: a commit survives a power failure, so a settled message is not delivered again.
 */
#include "store/sqlite/sqlite.h"

#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
				  "%s: database \"%s\" is locked by another connection; retry",
				  doing, path_of(db, store));
	waited_us = pr_mono_us() - store->busy_since_us;
	return pr_err_set(err, POSTROOM_BUSY,
			  "%s: database \"%s\" is locked by another connection (waited %.1f s); "
			  "end its transaction and retry",
			  doing, path_of(db, store), (double)waited_us / 1e6);
}

static int fail_otherwise(sqlite3 *db, const struct sqlite_store *store, const char *doing,
			  struct pr_err *err)
{
	const char *path = path_of(db, store), *text = sqlite3_errmsg(db);

	switch (sqlite3_errcode(db) & 0xff) {
	case SQLITE_NOMEM:
		return pr_err_nomem(err);
	case SQLITE_INTERRUPT:
		return pr_err_set(err, POSTROOM_BUSY,
				  "%s: \"%s\": it took too long and was interrupted; nothing was "
				  "changed, so retry",
				  doing, path);
	case SQLITE_NOTADB:
		return pr_err_set(err, POSTROOM_UNAVAILABLE,
				  "%s: \"%s\" is not a SQLite database; give another file", doing,
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
				  "and retry",
				  doing, path);
	case SQLITE_IOERR:
		return pr_err_set(err, POSTROOM_DATABASE, "%s: \"%s\": %s (%s)", doing, path, text,
				  strerror(sqlite3_system_errno(db)));
	case SQLITE_CORRUPT:
		return pr_err_set(err, POSTROOM_DATABASE,
				  "%s: \"%s\" is damaged (%s); restore it from a backup", doing,
				  path, text);
	default:
		if (strstr(text, "no such index: postroom_"))
			return pr_err_set(err, POSTROOM_SCHEMA,
					  "%s: \"%s\": %s; run `postroom doctor --fix`", doing,
					  path, text);
		if (strstr(text, "no such table: postroom_"))
			return pr_err_set(
				err, POSTROOM_SCHEMA,
				"%s: \"%s\" has no Postroom tables; run `postroom migrate`", doing,
				path);
		/* Named by a view or a trigger: some tables are there. */
		if (strstr(text, "no such table: main.postroom_"))
			return pr_err_set(err, POSTROOM_SCHEMA,
					  "%s: \"%s\": %s; run `postroom doctor`", doing, path,
					  text);
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
		   "to create it",
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
 * SQLite would create a file that all users may read, and gives -wal and -shm the permissions
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
	.begin = pr_sqlite_begin,
	.end = pr_sqlite_end,
	.box = pr_sqlite_box,
	.settle_and_claim = pr_sqlite_settle_and_claim,
	.load = pr_sqlite_load,
	.renew = pr_sqlite_renew,
	.sweep = pr_sqlite_sweep,
	.wait = pr_sqlite_wait,
	.unfinished = pr_sqlite_unfinished,
	.inbox_insert = pr_sqlite_inbox_insert,
	.apply = pr_sqlite_apply,
	.progress = pr_sqlite_progress,
	.list = pr_sqlite_list,
	.count = pr_sqlite_count,
	.retry = pr_sqlite_retry,
	.stats = pr_sqlite_stats,
	.groups = pr_sqlite_groups,
	.collect = pr_sqlite_collect,
	.purge = pr_sqlite_purge,
	.unrouted = pr_sqlite_unrouted,
	.check_statement = pr_sqlite_check_statement,
	.attempts = pr_sqlite_attempts,
	.leases = pr_sqlite_leases,
	.record_sources = pr_sqlite_record_sources,
	.read_sources = pr_sqlite_read_sources,
};
