/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting until a producer notifies (D3).
 *
 * Before it sleeps, a relay writes its notify deadline into the table's sequence
 * (postroom_notify_until, postroom_inbox_notify_until). Until then a trigger on the table notifies.
 * It is a sequence because its value is seen at once, outside of transactions, and leaves no dead
 * rows behind, however long vacuum is held back.
 *
 * 1. Producers notify only while a relay sleeps: a busy relay naps (PR_STORE_SHORT_WAIT_MS)
 *    without an announcement, an announcement expires, and the relay that
 *    receives a notification clears it. After a spurious wakeup another relay is awake: this one
 *    backs off before it announces a sleep again.
 * 2. Listening comes before announcing, and a look at the table comes after it:
 *    the relay looks once more after each sleep, and its sleeps start short, so
 *    that a transaction which inserted before the announcement and committed
 *    after it is not waited for longer than it has lasted.
 * 3. To announce and to look are one statement, and while no producer enqueues that is
 *    all a sleep costs: where it finds nothing, a claim would find nothing either.
 * 4. Behind a pooler there are no notifications: then this is a plain sleep.
 * 5. Every answer drains libpq's notification queue (pr_pgsql_await()), and so does a nap. A
 *    busy worker that never sleeps would otherwise collect notifications without limit.
 * 6. A relay clears only its own announcement. If another one has announced a sleep since,
 *    producers keep notifying.
 */
#include "base/time.h"
#include "store/pgsql/statements.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* A keyed message, or one in a lane without a lease, is due, or a claim makes it scheduled. */
#define WAITING                                                                                    \
	IN_LANES("lease = 'row'", "0", "AND key IS NOT NULL ") " OR "                              \
	IN_LANES("lease = 'lane' AND locked_by IS NULL", "l.start_seq", "")
#define IN_LANES(which, floor, fresh)                                                              \
	"EXISTS (SELECT FROM " PG_ALL_LANES " AS l WHERE " which " AND EXISTS ("                   \
	"SELECT FROM {schema}{table} AS o WHERE " PG_LANE_OF("o.") " = l.lane "                    \
	"AND o.seq >= greatest(" floor ", ($5::bigint[])[l.lane]) "                                \
	"AND status = 'pending' AND apart = 0 " fresh "AND " PG_SCOPE PG_ONE_BY_ONE "))"

/*
 * Messages with an expired lease may have to wait for others, so they do not end the sleep at
 * once. Held messages may be stranded.
 */
#define LEFT_BEHIND                                                                                \
	"EXISTS (SELECT FROM {schema}{table} WHERE apart = 2 AND status = 'pending' "              \
	"AND " PG_SCOPE ") OR EXISTS (SELECT FROM {schema}{table} WHERE status = '{active}' "      \
	"AND locked_until <= " PG_NOW " AND " PG_SCOPE ")"
#define LANES_LEFT " OR EXISTS (SELECT FROM {schema}postroom_lanes WHERE locked_until <= " PG_NOW ")"

/* When the next scheduled message is due, and when the next lease expires. */
#define APART_DUE                                                                                  \
	"(SELECT next_attempt_at FROM {schema}{table} WHERE status = 'pending' "                   \
	"AND apart IN (1, 3) AND " PG_SCOPE "ORDER BY next_attempt_at, seq LIMIT 1), "             \
	"(SELECT locked_until FROM {schema}{table} WHERE status = '{active}' "                     \
	"AND locked_until > " PG_NOW " AND " PG_SCOPE "ORDER BY locked_until LIMIT 1)"

#define NEXT_DUE                                                                                   \
	WAITING ", " LEFT_BEHIND LANES_LEFT ", ceil(extract(epoch FROM least("                     \
	"(SELECT next_attempt_at FROM {schema}{table} WHERE status = 'pending' AND apart = 0 "     \
	"AND key IS NULL AND next_attempt_at >= " PG_SCOPE_LOW_WATER " AND " PG_SCOPE              \
	"AND (SELECT lease = 'row' FROM " PG_LANE("1::smallint") " AS one) ORDER BY next_attempt_at, seq LIMIT 1), " \
	APART_DUE ", (SELECT min(locked_until) FROM {schema}postroom_lanes WHERE locked_until > " PG_NOW ")) " \
	"- clock_timestamp()) * 1000)::bigint"

/* The value of a sequence is seen at once: there is no need to wait for the disk. */
#define NO_WAIT "set_config('synchronous_commit', 'off', true), "

#define ANNOUNCE                                                                                   \
	"SELECT " NEXT_DUE ", " NO_WAIT                                                            \
	"setval('{schema}{notify_until}', greatest(last_value + 1, "                               \
	"(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $6::bigint)) "                   \
	"FROM {schema}{notify_until}"

/* Each part goes by an index of its own. */
#define UNROUTED_IN(condition)                                                                     \
	"SELECT {scope_ns} AS ns, {scope_topic} AS topic FROM {schema}{table} "                    \
	"WHERE status = 'pending' AND " condition " AND " PG_SCOPE_ALL "AND NOT (true {rules}) "
#define UNROUTED(in_turn)                                                                          \
	"SELECT count(*), (array_agg(ns))[1], (array_agg(topic))[1] FROM (" in_turn "UNION ALL "   \
	UNROUTED_IN("apart IN (1, 3)") "UNION ALL "                                                \
	UNROUTED_IN("apart = 2") "LIMIT $4::int) AS u"
#define UNROUTED_LANE UNROUTED(UNROUTED_IN("apart = 0"))
#define UNROUTED_ROW                                                                               \
	UNROUTED(UNROUTED_IN("apart = 0 AND key IS NULL") "UNION ALL "                             \
		 UNROUTED_IN("apart = 0 AND key IS NOT NULL"))

static int clear_notification(struct pgsql_store *store, const struct pr_table *table, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	if (table->lanes)
		pr_sql_bind_clear_notification_outbox(&params, store->announced);
	else
		pr_sql_bind_clear_notification_inbox(&params, store->announced);
	result = pr_sql_run(store, table->lanes ? &pr_sql_clear_notification_outbox :
						  &pr_sql_clear_notification_inbox,
			    &params, err);
	return result ? POSTROOM_OK : err->status;
}

static int listen_on_channel(struct pgsql_store *store, const struct pr_table *table, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *channel = NULL, *listening = NULL;
	char listen[64];

	channel = pr_sql_run(store, table->lanes ? &pr_sql_notify_channel_outbox :
						   &pr_sql_notify_channel_inbox,
			     NULL, err);
	if (!channel)
		return err->status;
	snprintf(listen, sizeof(listen), "LISTEN postroom_%.20s", PQgetvalue(channel, 0, 0));
	listening = pr_pgsql_query(store, listen, NULL, "listening", err);
	if (!listening)
		return err->status;
	store->listening = table;
	return POSTROOM_OK;
}

enum { COL_WAITING, COL_LEFT_BEHIND, COL_NEXT, COL_SET_CONFIG, COL_ANNOUNCED };

static PGresult *announce_outbox(struct pgsql_store *store, const struct pr_scope *scope,
				 bool below, int64_t max_ms, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };

	if (!pr_pgsql_add_scope(&params, scope, &pattern)) {
		pr_err_nomem(err);
		return NULL;
	}
	pr_pgsql_number(&params, below ? 0 : pr_pgsql_scope_low_water(store, scope));
	pr_pgsql_text(&params, below ? NULL : pr_pgsql_scope_low_water_lanes(store, scope));
	if (!store->pooled)
		pr_pgsql_number(&params, max_ms);
	return pr_pgsql_run(store, store->pooled ? PG_NEXT_DUE : PG_ANNOUNCE, &pr_table_outbox,
			    store->pooled ? "SELECT " NEXT_DUE : ANNOUNCE, &params, false,
			    "looking for work", err);
}

static PGresult *announce_inbox(struct pgsql_store *store, const struct pr_scope *scope,
				int64_t max_ms, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };
	const char *topic = pr_pgsql_pattern(scope->topic, &pattern);

	if (pattern.failed) {
		pr_err_nomem(err);
		return NULL;
	}
	if (store->pooled)
		pr_sql_bind_next_due_inbox(&params, scope->ns, topic, scope->tenant_id);
	else
		pr_sql_bind_announce_inbox(&params, scope->ns, topic, scope->tenant_id, max_ms);
	return pr_sql_run(store, store->pooled ? &pr_sql_next_due_inbox : &pr_sql_announce_inbox,
			  &params, err);
}

/* How long until a message is due; announces the sleep if there are notifications. */
static int announce(struct pgsql_store *store, const struct pr_table *table,
		    const struct pr_scope *scope, int64_t max_ms, int64_t *ret_ms,
		    struct pr_err *err)
{
	int64_t next_ms = INT64_MAX, begun_us = pr_mono_us();
	bool below = table->lanes && pr_pgsql_low_water_is_stale(store, scope);
	PR_CLEANUP_RESULT PGresult *result =
		table->lanes ? announce_outbox(store, scope, below, max_ms, err) :
			       announce_inbox(store, scope, max_ms, err);

	if (!result)
		return err->status;
	if (!store->pooled)
		store->announced = atoll(PQgetvalue(result, 0, COL_ANNOUNCED));
	if (*PQgetvalue(result, 0, COL_WAITING) == 't')
		next_ms = 0;
	else if (!PQgetisnull(result, 0, COL_NEXT))
		next_ms = atoll(PQgetvalue(result, 0, COL_NEXT));
	*ret_ms = max_ms;
	if (next_ms < max_ms)
		*ret_ms = next_ms > 0 ? next_ms : 0;
	store->base.idle = next_ms > max_ms && *PQgetvalue(result, 0, COL_LEFT_BEHIND) == 'f';
	if (below && store->base.idle)
		pr_pgsql_store_low_water(store, begun_us);
	return POSTROOM_OK;
}

/* True if a notification was received since the last call. */
static bool take_notification(struct pgsql_store *store)
{
	bool any;

	pr_pgsql_drain_notifications(store);
	any = store->notified;
	store->notified = false;
	return any;
}

/* Drops notifications that are older than the next announcement, whose scan sees their messages. */
static int drop_notifications(struct pgsql_store *store, struct pr_err *err)
{
	if (!PQconsumeInput(store->conn))
		return pr_pgsql_fail(store->conn, NULL, store->shown, "sleeping", err);
	take_notification(store);
	return POSTROOM_OK;
}

static int sleep_until(struct pgsql_store *store, int64_t until_us, bool *ret_notified,
		       struct pr_err *err)
{
	while (!(*ret_notified = take_notification(store)) && !pr_stop_requested(store->stop)) {
		struct pollfd fds[2] = {
			{ .fd = PQsocket(store->conn), .events = POLLIN },
			{ .fd = store->stop ? store->stop->fd : -1, .events = POLLIN },
		};
		int64_t left_ms = (until_us - pr_mono_us() + 999) / 1000;

		if (left_ms <= 0)
			break;
		poll(fds, 2, left_ms < 1000 ? (int)left_ms : 1000);
		if (!PQconsumeInput(store->conn))
			return pr_pgsql_fail(store->conn, NULL, store->shown, "sleeping", err);
	}
	return POSTROOM_OK;
}

static int wait_briefly(struct pgsql_store *store, int64_t ms, struct pr_err *err)
{
	pr_stop_wait(store->stop, ms);
	return drop_notifications(store, err);
}

int pr_pgsql_wait(struct postroom_store *base, const struct pr_table *table,
		  const struct pr_scope *scope, int64_t max_ms, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	int64_t begun_us = pr_mono_us();
	bool woken = false;
	int status = POSTROOM_OK;

	base->idle = false;
	base->wakeup = PR_WAKEUP_POLLED;
	if (max_ms <= PR_STORE_SHORT_WAIT_MS)
		return wait_briefly(store, max_ms, err);
	if (!store->pooled && store->listening != table)
		status = listen_on_channel(store, table, err);
	if (status >= 0)
		status = drop_notifications(store, err);
	if (status >= 0)
		status = announce(store, table, scope, max_ms, &max_ms, err);
	if (status >= 0)
		status = sleep_until(store, begun_us + max_ms * 1000, &woken, err);
	if (status >= 0 && woken) {
		base->idle = false;
		base->wakeup = PR_WAKEUP_NOTIFIED;
		status = clear_notification(store, table, err);
	}
	return status;
}

int pr_pgsql_unrouted(struct postroom_store *base, const struct pr_table *table,
		      const struct pr_scope *scope, int32_t limit, struct pr_unrouted *ret,
		      struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	PR_CLEANUP_RESULT PGresult *result = NULL;
	PR_CLEANUP_BUF struct pr_buf pattern = { 0 };
	struct pgsql_params params = { 0 };
	bool by_lane;

	*ret = (struct pr_unrouted){ 0 };
	if (store->rules.count == 0)
		return POSTROOM_OK;
	if (pr_pgsql_force_index_scans(store, err) < 0 ||
	    (table->lanes && pr_pgsql_load_lease_kind(store, err) < 0))
		return err->status;
	if (!pr_pgsql_add_scope(&params, scope, &pattern))
		return pr_err_nomem(err);
	pr_pgsql_number(&params, limit);
	by_lane = table->lanes && store->kind == PR_LEASE_LANE;
	result = pr_pgsql_run_by_page(store, table,
				      &(struct pgsql_step){ .slot = by_lane ? PG_UNROUTED_LANE : PG_UNROUTED_ROW,
							    .sql = by_lane ? UNROUTED_LANE : UNROUTED_ROW,
							    .params = &params },
				      "counting messages without a route", err);
	if (!result)
		return err->status;
	ret->count = atoll(PQgetvalue(result, 0, 0));
	snprintf(ret->ns, sizeof(ret->ns), "%s", PQgetvalue(result, 0, 1));
	snprintf(ret->topic, sizeof(ret->topic), "%s", PQgetvalue(result, 0, 2));
	return POSTROOM_OK;
}
