/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor: where looks for messages in their turn begin.
 *
 * Messages that wait for another sink stand in the same index. A look that had to
 * pass many of them remembers where its own began, and the next ones start there.
 *
 * 1. New messages come behind all others: there is one writer, and seq only grows.
 * 2. What is released, or freed by its key, comes back where it was, maybe below the
 *    floor: so the floor is forgotten after forty times what the look had taken, and
 *    whoever has to know that there is nothing looks without it. Where there is
 *    nothing that could come back, an idle look keeps it for longer.
 * 3. Order does not depend on it: whatever comes back to its turn is in the index of
 *    keys, where the later ones of its key find it.
 */
#include "base/time.h"
#include "store/sqlite.h"

/* A look that takes less is as cheap as it needs to be. */
#define SLOW_LOOK_US 5000
#define LOOK_SHARE 40
/* So soon is found what people have put below it by hand. */
#define QUIET_US 10000000

int64_t pr_sqlite_floor(struct sqlite_store *store, const struct pr_table *table,
			const struct pr_scope *scope)
{
	const struct sqlite_side *side = sqlite_side(store, table);

	return pr_mono_us() < side->floor_until_us && pr_scope_is(scope, &side->scope) ?
		       side->floor : 0;
}

/* The highest there is. */
static int64_t last_seq(struct sqlite_store *store, const struct pr_table *table)
{
	struct pr_err unheard;
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_LAST_SEQ, table,
					       "SELECT max(seq) FROM {table}", &unheard);
	int64_t seq = 0;

	if (stmt && sqlite3_step(stmt) == SQLITE_ROW)
		seq = sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	return seq;
}

/* A look that began at a floor says nothing about what is below it: that one's time goes on. */
static void set_floor(struct sqlite_side *side, const struct pr_scope *scope, int64_t from,
		      int64_t floor, int64_t for_us)
{
	side->floor = floor;
	if (from > 0)
		return;
	pr_scope_keep(scope, &side->scope);
	side->floor_until_us = pr_mono_us() + for_us;
}

void pr_sqlite_learn_floor(struct sqlite_store *store, const struct pr_table *table,
			   const struct pr_scope *scope, int64_t from, int64_t first,
			   int64_t took_us)
{
	if (from > 0 || took_us >= SLOW_LOOK_US)
		set_floor(sqlite_side(store, table), scope, from,
			  first > 0 ? first - 1 : last_seq(store, table), took_us * LOOK_SHARE);
}

void pr_sqlite_learn_floor_idle(struct sqlite_store *store, const struct pr_table *table,
				const struct pr_scope *scope, int64_t from, int64_t last,
				int64_t took_us, bool quiet)
{
	int64_t for_us = took_us * LOOK_SHARE;

	if (from > 0 || took_us >= SLOW_LOOK_US)
		set_floor(sqlite_side(store, table), scope, from, last,
			  quiet && for_us < QUIET_US ? QUIET_US : for_us);
}
