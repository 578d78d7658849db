/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a key (D6): which messages wait for which, and how they are held and unblocked.
 *
 * 1. Most messages are ready and claimed in the order of seq, which is the order of every key. The
 *    index of keys has only exceptions: messages that were claimed before, are held, have a head
 *    start, or became ready later, where a low-water mark may hide them (low_water.c).
 * 2. A message is claimed only if the nearest one before it in that index is in the same batch, or
 *    there is none. If it was not found by seq, no earlier message of its key may be ready either.
 *    A claim is alone in the database, so what it sees is valid until it commits.
 * 3. A message behind an unfinished one is held (state 'held') by the first claim that meets it,
 *    and is then in no index that claims read: held messages cost nothing. Messages that wait only
 *    for a moment are skipped.
 * 4. When a message of a key ends, the next ones are unblocked, a run at a time, in the same
 *    transaction. An unblocked message is only a candidate; the claim decides.
 * 5. A delayed message is not part of the order before it is due.
 */
#include "store/sqlite/sqlite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many messages are unblocked at once. */
#define RUN 500
/* How many ready messages are scanned for an earlier one of a key. */
#define FRONT_MOST 20000
#define FEW_KEYS 50
/* A message claimed less than this ago is nearly done: holding its successors costs more than skipping them. */
#define YOUNG_US 200000

#define OF_KEY "e.key = ?1 AND e.topic = ?2 AND e.namespace = ?3 AND " PR_SQLITE_IN_ORDER
#define UNFINISHED "AND e.status IN ('pending', '{active}') "

#define DELAYED                                                                                    \
	"SELECT seq, next_attempt_at FROM {table} INDEXED BY {table}_delayed "                     \
	"WHERE key IS NOT NULL AND state = 'new' AND next_attempt_at > created_at "                \
	"AND next_attempt_at <= ?1 "                                                               \
	"ORDER BY next_attempt_at LIMIT ?2"

#define FRONT                                                                                      \
	"SELECT seq, key, topic, namespace FROM {table} INDEXED BY {table}_ready "                 \
	"WHERE " PR_SQLITE_READY "AND seq > ?4 AND seq < ?5 AND " PR_SQLITE_IN_SCOPE               \
	"ORDER BY seq LIMIT ?6"

#define IN_SEQS "WHERE seq IN (SELECT value FROM json_each(?1))"
#define MAKE_READY "UPDATE OR FAIL {table} SET state = 'ready' " IN_SEQS
#define HOLD "UPDATE OR FAIL {table} SET state = 'held' " IN_SEQS
#define HOLD_EXPIRED                                                                               \
	"UPDATE OR FAIL {table} SET status = 'pending', state = 'held', locked_by = NULL, "        \
	"locked_until = NULL " IN_SEQS

#define EARLIER                                                                                    \
	"SELECT e.seq, e.status = '{active}' AND e.last_attempt_at BETWEEN ?5 AND ?6 "             \
	"AND e.locked_until > ?6 FROM {table} AS e INDEXED BY {table}_key "                        \
	"WHERE " OF_KEY UNFINISHED "AND e.seq < ?4 ORDER BY e.seq DESC LIMIT 1"

#define ANY_HELD "SELECT 1 FROM {table} INDEXED BY {table}_held WHERE state = 'held' LIMIT 1"

#define FIRST                                                                                      \
	"SELECT e.state = 'held', EXISTS (SELECT 1 FROM {table} AS d INDEXED BY {table}_blocking " \
	"WHERE d.key = ?1 AND d.topic = ?2 AND d.namespace = ?3 AND d.seq < e.seq "                \
	"AND d.key IS NOT NULL AND d.state = 'dead' AND d.status = 'dead') "                       \
	"FROM {table} AS e INDEXED BY {table}_key WHERE " OF_KEY UNFINISHED                        \
	"ORDER BY e.seq LIMIT 1"

#define FREE                                                                                       \
	"UPDATE OR FAIL {table} SET state = 'ready' WHERE seq IN (SELECT seq FROM {table} "        \
	"INDEXED BY {table}_held WHERE state = 'held' AND key = ?1 AND topic = ?2 "                \
	"AND namespace = ?3 ORDER BY seq LIMIT ?4)"

/* Column by column: a comparison of all three at once would walk over every message of the key. */
#define HELD_KEY(condition, order)                                                                 \
	"SELECT * FROM (SELECT key, topic, namespace FROM {table} INDEXED BY {table}_held "        \
	"WHERE state = 'held' AND " condition " ORDER BY " order " LIMIT 1) "
#define NEXT_KEY                                                                                   \
	HELD_KEY("key = ?1 AND topic = ?2 AND namespace > ?3", "namespace")                        \
	"UNION ALL " HELD_KEY(                                                                     \
		"key = ?1 AND topic > ?2",                                                         \
		"topic, namespace") "UNION ALL " HELD_KEY("key > ?1",                              \
							  "key, topic, namespace") "LIMIT 1"

static struct sqlite_pair *map_find(const struct sqlite_map *map, int64_t key)
{
	size_t mask = map->size - 1, at = (size_t)key & mask;

	while (map->pairs[at].key && map->pairs[at].key != key)
		at = (at + 1) & mask;
	return &map->pairs[at];
}

static int64_t map_get(const struct sqlite_map *map, int64_t key, int64_t otherwise)
{
	const struct sqlite_pair *pair = map->used ? map_find(map, key) : NULL;

	return pair && pair->key ? pair->value : otherwise;
}

/* Keeps the smallest value of a key. */
static bool map_put(struct sqlite_map *map, int64_t key, int64_t value)
{
	struct sqlite_pair *pair;

	if (map->used * 2 >= map->size) {
		struct sqlite_map more = { .size = map->size ? map->size * 2 : 1024,
					   .used = map->used };

		more.pairs = calloc(more.size, sizeof(*more.pairs));
		if (!more.pairs)
			return false;
		for (size_t i = 0; i < map->size; i++) {
			if (map->pairs[i].key)
				*map_find(&more, map->pairs[i].key) = map->pairs[i];
		}
		free(map->pairs);
		*map = more;
	}
	pair = map_find(map, key);
	map->used += !pair->key;
	if (!pair->key || value < pair->value)
		*pair = (struct sqlite_pair){ key, value };
	return true;
}

static void map_clear(struct sqlite_map *map)
{
	if (map->used)
		memset(map->pairs, 0, map->size * sizeof(*map->pairs));
	map->used = 0;
}

/* Two keys with the same hash only take each other for one, and wait for each other. */
static int64_t hash_bytes(const char *key, const char *topic, const char *ns)
{
	const char *parts[] = { key, topic, ns };
	uint64_t sum = 14695981039346656037u; /* FNV-1a */

	for (size_t i = 0; i < 3; i++) {
		for (const char *at = parts[i]; at && *at; at++)
			sum = (sum ^ (unsigned char)*at) * 1099511628211u;
		sum = (sum ^ 0xff) * 1099511628211u;
	}
	return sum ? (int64_t)sum : 1;
}

static const char *key_part(sqlite3_stmt *row, int column)
{
	return (const char *)sqlite3_column_text(row, column);
}

static int64_t hash_of(sqlite3_stmt *row)
{
	return hash_bytes(key_part(row, PR_COL_KEY), key_part(row, PR_COL_TOPIC),
			  key_part(row, PR_COL_NAMESPACE));
}

static void bind_key(sqlite3_stmt *stmt, const char *key, const char *topic, const char *ns)
{
	pr_sqlite_bind(stmt, 1, key);
	pr_sqlite_bind(stmt, 2, topic);
	pr_sqlite_bind(stmt, 3, ns);
}

/* Runs a statement over the messages of seqs. */
static int update_seqs(struct sqlite_store *store, const struct pr_table *table,
		       enum sqlite_slot slot, const char *sql, struct pr_buf *seqs,
		       struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, slot, table, sql, err);
	int status;

	if (!stmt)
		return err->status;
	status = pr_sqlite_bind_seqs(stmt, 1, seqs, err);
	if (status >= 0)
		status = pr_sqlite_run(store, stmt, "keeping the order of a key", err);
	return status;
}

/* The end of a query that is read to its end: 0, or why it broke off. */
static int end_query(struct sqlite_store *store, sqlite3_stmt *stmt, int rc, struct pr_err *err)
{
	int status = POSTROOM_OK;

	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		status = pr_sqlite_fail(store->db, store, "looking at the order of a key", err);
	sqlite3_reset(stmt);
	return status;
}

void pr_sqlite_order_begin(struct sqlite_store *store, const struct pr_table *table,
			   const struct pr_scope *scope, int64_t now_us)
{
	map_clear(&store->claimed);
	map_clear(&store->held_keys);
	map_clear(&store->front);
	/* A message that became ready below the low-water mark is in the index of keys. */
	store->front_end = pr_sqlite_low_water(store, table, scope);
	store->front_read = 0;
	store->claim_scope = scope;
	store->claim_us = now_us;
	store->checked_seq = 0;
}

int pr_sqlite_order_join(struct sqlite_store *store, const struct pr_table *table, int64_t now_us,
			 int64_t *ret_due_us, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_DELAYED, table, DELAYED, err);
	int64_t last_us = now_us;
	int joined = 0, rc;
	int status;

	if (!stmt)
		return err->status;
	pr_buf_reset(&store->made_ready);
	sqlite3_bind_int64(stmt, 1, now_us);
	sqlite3_bind_int(stmt, 2, PR_SQLITE_ORDER_AT_ONCE);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		pr_sqlite_add_seq(&store->made_ready, sqlite3_column_int64(stmt, 0));
		last_us = sqlite3_column_int64(stmt, 1);
		joined++;
	}
	status = end_query(store, stmt, rc, err);
	if (status < 0)
		return status;
	/* There may be more of the same time. */
	*ret_due_us = joined == PR_SQLITE_ORDER_AT_ONCE ? last_us - 1 : now_us;
	return joined ? pr_sqlite_order_make_ready(store, table, err) : POSTROOM_OK;
}

/* Gets to know those that wait for their turn before seq, if they are not too many. */
static int read_front(struct sqlite_store *store, const struct pr_table *table, int64_t seq,
		      struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_FRONT, table, FRONT, err);
	bool stored = true;
	int rc;

	if (!stmt || pr_sqlite_bind_scope(stmt, store->claim_scope, err) < 0)
		return err->status;
	sqlite3_bind_int64(stmt, 4, store->front_end);
	sqlite3_bind_int64(stmt, 5, seq);
	sqlite3_bind_int(stmt, 6, FRONT_MOST - store->front_read);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && stored) {
		store->front_end = sqlite3_column_int64(stmt, 0);
		store->front_read++;
		if (sqlite3_column_type(stmt, 1) != SQLITE_NULL)
			stored = map_put(
				&store->front,
				hash_bytes(key_part(stmt, 1), key_part(stmt, 2), key_part(stmt, 3)),
				store->front_end);
	}
	if (!stored) {
		sqlite3_reset(stmt);
		return pr_err_nomem(err);
	}
	if (rc == SQLITE_DONE && store->front_read < FRONT_MOST)
		store->front_end = seq - 1;
	return end_query(store, stmt, rc, err);
}

/* Does an earlier one of its key wait for its turn? When there are too many to know, it may be so. */
static int has_earlier_ready(struct sqlite_store *store, const struct pr_table *table,
			     sqlite3_stmt *row, enum sqlite_order *ret, struct pr_err *err)
{
	int64_t seq = sqlite3_column_int64(row, PR_COL_SEQ);
	int status = POSTROOM_OK;

	if (store->front_end < seq - 1 && store->front_read < FRONT_MOST)
		status = read_front(store, table, seq, err);
	if (status >= 0 &&
	    (store->front_end < seq - 1 || map_get(&store->front, hash_of(row), INT64_MAX) < seq))
		*ret = ORDER_MAKE_READY;
	return status;
}

/*
 * The index also has rows whose status was set to dead or delivered by hand. They block no other
 * message. This slower query excludes them.
 */
static int check_blocker(struct sqlite_store *store, const struct pr_table *table,
			 sqlite3_stmt *row, int64_t earlier, enum sqlite_order *ret,
			 struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_EARLIER, table, EARLIER, err);
	int rc;

	if (!stmt)
		return err->status;
	/* Behind one that holds its key back come many, and all find the same. */
	if (store->checked_seq == earlier) {
		*ret = (enum sqlite_order)store->checked_order;
		return POSTROOM_OK;
	}
	bind_key(stmt, key_part(row, PR_COL_KEY), key_part(row, PR_COL_TOPIC),
		 key_part(row, PR_COL_NAMESPACE));
	sqlite3_bind_int64(stmt, 4, sqlite3_column_int64(row, PR_COL_SEQ));
	sqlite3_bind_int64(stmt, 5, store->claim_us - YOUNG_US);
	sqlite3_bind_int64(stmt, 6, store->claim_us);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW && !map_get(&store->claimed, sqlite3_column_int64(stmt, 0), 0)) {
		*ret = sqlite3_column_int(stmt, 1) ? ORDER_SKIP : ORDER_HOLD;
		store->checked_seq = earlier;
		store->checked_order = *ret;
	}
	return end_query(store, stmt, rc, err);
}

int pr_sqlite_order_decide(struct sqlite_store *store, const struct pr_table *table,
			   sqlite3_stmt *row, bool ready, enum sqlite_order *ret,
			   struct pr_err *err)
{
	int64_t earlier = sqlite3_column_int64(row, PR_SQLITE_COL_EARLIER);
	int64_t seq = sqlite3_column_int64(row, PR_COL_SEQ);
	int status = POSTROOM_OK;

	*ret = ORDER_CLAIM;
	if (sqlite3_column_type(row, PR_COL_KEY) == SQLITE_NULL)
		return POSTROOM_OK;
	if (sqlite3_column_int(row, PR_SQLITE_COL_BLOCKED))
		*ret = ORDER_BLOCK;
	else if (sqlite3_column_type(row, PR_SQLITE_COL_EARLIER) != SQLITE_NULL &&
		 !map_get(&store->claimed, earlier, 0))
		status = check_blocker(store, table, row, earlier, ret, err);
	if (status >= 0 && *ret == ORDER_CLAIM && !ready)
		status = has_earlier_ready(store, table, row, ret, err);
	/* Messages that this same claim holds are not in the index yet. */
	if (*ret == ORDER_CLAIM && store->held_keys.used &&
	    map_get(&store->held_keys, hash_of(row), INT64_MAX) < seq)
		*ret = ORDER_HOLD;
	if (status >= 0 && *ret != ORDER_CLAIM && !map_put(&store->held_keys, hash_of(row), seq))
		status = pr_err_nomem(err);
	return status;
}

bool pr_sqlite_order_claimed(struct sqlite_store *store, int64_t seq)
{
	return map_put(&store->claimed, seq, 1);
}

int pr_sqlite_order_hold(struct sqlite_store *store, const struct pr_table *table, bool expired,
			 struct pr_err *err)
{
	return expired ? update_seqs(store, table, SLOT_HOLD_EXPIRED, HOLD_EXPIRED, &store->seqs,
				     err)
		       : update_seqs(store, table, SLOT_HOLD, HOLD, &store->seqs, err);
}

int pr_sqlite_order_make_ready(struct sqlite_store *store, const struct pr_table *table,
			       struct pr_err *err)
{
	return update_seqs(store, table, SLOT_MAKE_READY, MAKE_READY, &store->made_ready, err);
}

int pr_sqlite_order_free_key(struct sqlite_store *store, const struct pr_table *table,
			     const char *key, const char *topic, const char *ns, bool block,
			     struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_FIRST, table, FIRST, err);
	bool held = false;
	int status, rc;

	if (!stmt)
		return err->status;
	bind_key(stmt, key, topic, ns);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		held = sqlite3_column_int(stmt, 0) && !(block && sqlite3_column_int(stmt, 1));
	status = end_query(store, stmt, rc, err);
	if (status < 0 || !held)
		return status;
	stmt = pr_sqlite_prepare(store, SLOT_FREE, table, FREE, err);
	if (!stmt)
		return err->status;
	bind_key(stmt, key, topic, ns);
	sqlite3_bind_int(stmt, 4, RUN);
	return pr_sqlite_run(store, stmt, "letting the next messages of a key go", err);
}

static int any_held(struct sqlite_store *store, const struct pr_table *table, bool *ret,
		    struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_ANY_HELD, table, ANY_HELD, err);
	int rc;

	if (!stmt)
		return err->status;
	rc = sqlite3_step(stmt);
	*ret = rc == SQLITE_ROW;
	return end_query(store, stmt, rc, err);
}

/* Moves on to the next key of which something is held; behind the last one back to the beginning. */
static int next_held(struct sqlite_store *store, const struct pr_table *table,
		     struct sqlite_key *at, bool *ret, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_NEXT_KEY, table, NEXT_KEY, err);
	int rc;

	if (!stmt)
		return err->status;
	bind_key(stmt, at->parts[0], at->parts[1], at->parts[2]);
	rc = sqlite3_step(stmt);
	*ret = rc == SQLITE_ROW;
	for (int i = 0; i < 3; i++) {
		const char *part = *ret ? key_part(stmt, i) : NULL;

		snprintf(at->parts[i], sizeof(at->parts[i]), "%s", part ? part : "");
	}
	return end_query(store, stmt, rc, err);
}

/*
 * Nearly always few keys have held messages, and many are settled at once: to
 * know those few is cheaper than to ask for each. *ret_known is false when they
 * are too many.
 */
static int list_held(struct sqlite_store *store, const struct pr_table *table, bool *ret_known,
		     struct pr_err *err)
{
	struct sqlite_key at = { 0 };
	bool found = true;
	int status = POSTROOM_OK;

	map_clear(&store->front);
	for (int i = 0; status >= 0 && found && i < FEW_KEYS; i++) {
		status = next_held(store, table, &at, &found, err);
		if (status >= 0 && found &&
		    !map_put(&store->front, hash_bytes(at.parts[0], at.parts[1], at.parts[2]), 1))
			status = pr_err_nomem(err);
	}
	*ret_known = !found;
	return status;
}

static bool is_over(const postroom_delivery *item, bool block)
{
	return item->settled == POSTROOM_OK &&
	       (item->dead ? !block : item->verdict == POSTROOM_DELIVERED);
}

int pr_sqlite_order_free_settled(struct sqlite_store *store, const struct pr_table *table,
				 const postroom_delivery *items, size_t count, bool block,
				 struct pr_err *err)
{
	bool any = false, known = false;
	int status = any_held(store, table, &any, err);

	if (status >= 0 && any && count > FEW_KEYS)
		status = list_held(store, table, &known, err);
	for (size_t i = 0; any && status >= 0 && i < count; i++) {
		const postroom_delivery *item = &items[i];

		if (!item->key || !is_over(item, block) ||
		    (known &&
		     !map_get(&store->front, hash_bytes(item->key, item->topic, item->ns), 0)))
			continue;
		status = pr_sqlite_order_free_key(store, table, item->key, item->topic, item->ns,
						  block, err);
	}
	return status;
}

int pr_sqlite_order_free_stranded(struct sqlite_store *store, const struct pr_table *table,
				  bool block, struct pr_err *err)
{
	struct sqlite_key *at = &sqlite_side(store, table)->stranded_after;
	bool found = true;
	int status = POSTROOM_OK;

	for (int i = 0; status >= 0 && found && i < FEW_KEYS; i++) {
		status = next_held(store, table, at, &found, err);
		if (status >= 0 && found)
			status = pr_sqlite_order_free_key(store, table, at->parts[0], at->parts[1],
							  at->parts[2], block, err);
	}
	return status;
}
