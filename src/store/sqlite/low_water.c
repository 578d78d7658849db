/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The low-water mark: where scans for ready messages begin.
 *
 * Messages of other sinks are in the same index. A scan that had to skip many of them remembers
 * where its own messages began, and the next scans start there.
 *
 * 1. New messages are after all others: there is one writer, and seq only grows.
 * 2. A message that is released or unblocked returns to its old position, which may be below the
 *    mark. So the mark expires after forty times the duration of the scan, and a caller that must
 *    be sure scans without it. If no message could return, an idle scan keeps the mark for longer.
 * 3. Order does not depend on it: a message that becomes ready again is in the index of keys,
 *    where later messages of its key find it.
 */
#include "base/time.h"
#include "store/sqlite/sqlite.h"

/* Faster scans need no mark. */
#define SLOW_SCAN_US 5000
#define SCAN_SHARE 40
/* Rows that were moved below the mark by hand are found after this time. */
#define QUIET_US 10000000

int64_t pr_sqlite_low_water(struct sqlite_store *store, const struct pr_table *table,
			    const struct pr_scope *scope)
{
	const struct sqlite_side *side = sqlite_side(store, table);

	return pr_mono_us() < side->low_water_until_us && pr_scope_equals(scope, &side->scope)
		       ? side->low_water_seq
		       : 0;
}

/* The highest seq; 0: none. */
static int64_t last_seq(struct sqlite_store *store, const struct pr_table *table)
{
	struct pr_err ignored;
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_LAST_SEQ, table,
					       "SELECT max(seq) FROM {table}", &ignored);
	int64_t seq = 0;

	if (stmt && sqlite3_step(stmt) == SQLITE_ROW)
		seq = sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	return seq;
}

/* A scan that started at a low-water mark knows nothing about rows below it: the mark keeps its age. */
static void set_low_water(struct sqlite_side *side, const struct pr_scope *scope, int64_t from,
			  int64_t low_water_seq, int64_t for_us)
{
	side->low_water_seq = low_water_seq;
	if (from > 0)
		return;
	pr_scope_store(scope, &side->scope);
	side->low_water_until_us = pr_mono_us() + for_us;
}

void pr_sqlite_raise_low_water(struct sqlite_store *store, const struct pr_table *table,
			       const struct pr_scope *scope, int64_t from, int64_t first,
			       int64_t took_us)
{
	if (from > 0 || took_us >= SLOW_SCAN_US)
		set_low_water(sqlite_side(store, table), scope, from,
			      first > 0 ? first - 1 : last_seq(store, table), took_us * SCAN_SHARE);
}

void pr_sqlite_raise_low_water_idle(struct sqlite_side *side, const struct pr_scope *scope,
				    int64_t from, int64_t last, int64_t took_us, bool quiet)
{
	int64_t for_us = took_us * SCAN_SHARE;

	if (from > 0 || took_us >= SLOW_SCAN_US)
		set_low_water(side, scope, from, last,
			      quiet && for_us < QUIET_US ? QUIET_US : for_us);
}
