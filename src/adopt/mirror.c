/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating and dropping the mirror. Each table and partition is locked alone, in a transaction of
 * its own, and only for a moment: CREATE TRIGGER waits for the writers in flight, and new writers
 * queue behind it. So it gives up after ADOPT_LOCK_MS, and is retried.
 */
#include "adopt/sqlite/sqlite.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>

#define LOCK_TRIES 100
#define DOING "creating the mirror"

static bool is_lock_timeout(const struct pr_err *err)
{
	return strcmp(err->sqlstate, "55P03") == 0 || strcmp(err->sqlstate, "40P01") == 0 ||
	       strcmp(err->sqlstate, "57014") == 0;
}

typedef void (*put_fn)(const struct pr_adopt *adopt, const struct pr_adopt_target *target,
		       bool reopened, struct pr_buf *out);

static void put_drop(const struct pr_adopt *adopt, const struct pr_adopt_target *target,
		     bool reopened, struct pr_buf *out)
{
	(void)adopt;
	pr_buf_printf(out, "DROP TRIGGER IF EXISTS %s ON %s",
		      reopened ? ADOPT_REOPEN_TRIGGER : ADOPT_INSERT_TRIGGER, target->name);
}

static int run_mirror_step(struct pr_adopt *adopt, const struct pr_adopt_target *target, put_fn put,
			   bool reopened, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	put(adopt, target, reopened, &sql);
	return sql.failed ? pr_err_nomem(err) : pr_adopt_run(adopt, pr_buf_text(&sql), DOING, err);
}

static int change_once(struct pr_adopt *adopt, const struct pr_adopt_target *target, put_fn put,
		       struct pr_err *err)
{
	const struct pr_store_ops *ops = adopt->store->ops;
	bool with_reopen = target->has_rows && pr_adopt_has_marker(adopt);
	bool replaced = target->exists && put != put_drop;
	int status = ops->begin(adopt->store, err);

	for (int reopened = 0; reopened <= (with_reopen ? 1 : 0) && status >= 0; reopened++) {
		if (replaced)
			status = run_mirror_step(adopt, target, put_drop, reopened, err);
		if (status >= 0)
			status = run_mirror_step(adopt, target, put, reopened, err);
	}
	return ops->end(adopt->store, status, err);
}

static int fail_locked(const char *table, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_BUSY,
			  "adopt: %s could not be locked for a moment in %d attempts: a transaction "
			  "writes it all the time, or was forgotten; run \"postroom doctor\" to find it, "
			  "then run the command again",
			  table, LOCK_TRIES);
}

static int wait_to_retry(struct pr_adopt *adopt, const struct pr_stop *stop, struct pr_err *err)
{
	if (pr_stop_wait(stop, pr_random_between(&adopt->store->random, 50, 350)))
		return pr_err_set(err, POSTROOM_BUSY,
				  "adopt: interrupted; run the command again to continue");
	return POSTROOM_OK;
}

int pr_adopt_retry(struct pr_adopt *adopt, const char *sql, const struct pr_stop *stop,
		   struct pr_err *err)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		int status;

		pr_err_clear(err);
		status = pr_adopt_run(adopt, sql, "changing the table", err);
		if (status >= 0 || !is_lock_timeout(err))
			return status;
		status = wait_to_retry(adopt, stop, err);
		if (status < 0)
			return status;
	}
	return fail_locked(adopt->name, err);
}

static int change(struct pr_adopt *adopt, const struct pr_adopt_target *target, put_fn put,
		  const struct pr_stop *stop, struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (int i = 0; i < LOCK_TRIES; i++) {
		pr_err_clear(err);
		status = change_once(adopt, target, put, err);
		if (status >= 0 || !is_lock_timeout(err))
			return status;
		status = wait_to_retry(adopt, stop, err);
		if (status < 0)
			return status;
	}
	return fail_locked(target->name, err);
}

static int run_built(struct pr_adopt *adopt, struct pr_buf *sql, struct pr_err *err)
{
	int status = sql->failed ? pr_err_nomem(err) : pr_adopt_run(adopt, sql->data, DOING, err);

	pr_buf_reset(sql);
	return status;
}

int pr_adopt_set_timeouts(struct pr_adopt *adopt, struct pr_err *err)
{
	char sql[64];

	int status;

	snprintf(sql, sizeof(sql), "SET lock_timeout = '%dms'", ADOPT_LOCK_MS);
	status = pr_adopt_run(adopt, sql, DOING, err);
	return status < 0 ? status : pr_adopt_run(adopt, ADOPT_DDL_TIMEOUT, DOING, err);
}

/* In SQLite they are created together with the mirror. */
int pr_adopt_create_tables(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status;

	if (adopt->store->ops->embedded)
		return POSTROOM_OK;
	status = pr_adopt_lock(adopt, err);

	if (status >= 0)
		status = pr_adopt_set_timeouts(adopt, err);
	if (status >= 0) {
		pr_adopt_put_state_table(adopt, &sql);
		status = run_built(adopt, &sql, err);
	}
	if (status >= 0) {
		pr_adopt_put_rejects_table(adopt, &sql);
		status = run_built(adopt, &sql, err);
	}
	return status < 0 ? status : pr_adopt_check_owners(adopt, err);
}

int pr_adopt_mirror(struct pr_adopt *adopt, const struct pr_stop *stop, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status, created = 0;

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_mirror(adopt, err);
	status = pr_adopt_save_state(adopt, err);
	if (status >= 0) {
		pr_adopt_put_function(adopt, false, &sql);
		status = run_built(adopt, &sql, err);
	}
	if (status >= 0 && pr_adopt_has_marker(adopt)) {
		pr_adopt_put_function(adopt, true, &sql);
		status = run_built(adopt, &sql, err);
	}
	for (size_t i = 0; i < adopt->target_count && status >= 0; i++) {
		struct pr_adopt_target *target = &adopt->targets[i];

		if (pr_adopt_is_mirrored(target, pr_adopt_has_marker(adopt)))
			continue;
		status = change(adopt, target, pr_adopt_put_trigger, stop, err);
		created++;
	}
	return status < 0 ? status : created;
}

int pr_adopt_drop_triggers(struct pr_adopt *adopt, const struct pr_stop *stop, struct pr_err *err)
{
	int status = pr_adopt_lock(adopt, err);

	if (status >= 0)
		status = pr_adopt_set_timeouts(adopt, err);
	for (size_t i = 0; i < adopt->target_count && status >= 0; i++)
		status = change(adopt, &adopt->targets[i], put_drop, stop, err);
	return status;
}

int pr_adopt_drop_functions(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_printf(&sql, "DROP FUNCTION IF EXISTS %s(), %s_reopened()", adopt->function,
		      adopt->function);
	return run_built(adopt, &sql, err);
}
