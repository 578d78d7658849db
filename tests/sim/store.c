/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database as store.h describes it, in the fewest words: leases, fences, order by
 * key, attempts. It takes its time before and after the moment of the commit, and may
 * fail on either side of it.
 *
 * Found here: leases that ran out although nothing had happened to their owner,
  * verdicts that are not the sink's, attempts that were never made, claims for a sink that
  * is known to be down.
 */
#include "sim.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

struct sim_store {
	struct postroom_store store;
	struct pr_rules rules;
	const struct pr_stop *stop;
};

static const char *const topics[SINKS_MAX] = { "a.orders", "b.orders" };

struct row *row_add(size_t sink, const char *key, enum poison poison)
{
	struct row *row = &world.rows[world.row_count];

	ENSURE(world.row_count < ROWS_MAX, "too many messages");
	*row = (struct row){ .seq = (int64_t)++world.row_count,
			     .sink = sink,
			     .due_us = world.now_us,
			     .created_us = world.now_us,
			     .poison = poison };
	snprintf(row->id, sizeof(row->id), "m%d", (int)row->seq);
	snprintf(row->key, sizeof(row->key), "%s", key);
	world.changed = true;
	trace("enqueue %s key=%s sink=%zu%s", row->id, key, sink,
	      ((const char *const[POISONS]){ "", " fails", " drops", " kills" })[poison]);
	return row;
}

static bool is_over(const struct row *row)
{
	return row->status == DELIVERED || row->status == DEAD;
}

/* True if an earlier message of its key blocks it. Messages of the batch do not. */
static bool has_blocker(const struct row *row, bool dead_only, const struct postroom_batch *batch)
{
	bool block = world.config.policy.block;

	for (const struct row *other = world.rows; row->key[0] && other < row; other++) {
		bool keeps = other->status == DEAD ? block : !dead_only && !is_over(other);

		if (other->sink != row->sink || strcmp(other->key, row->key) != 0)
			continue;
		for (size_t i = 0; keeps && batch && i < batch->count; i++)
			keeps = batch->items[i].seq != other->seq;
		if (keeps)
			return true;
	}
	return false;
}

bool row_finished(const struct row *row)
{
	return is_over(row) || (row->status == PENDING && has_blocker(row, true, NULL));
}

bool all_finished(void)
{
	for (size_t i = 0; i < world.row_count; i++) {
		if (!row_finished(&world.rows[i]))
			return false;
	}
	return true;
}

static bool wanted(const struct sim_store *store, const struct row *row)
{
	for (size_t i = 0; i < store->rules.count; i++) {
		if (pr_pattern_match(store->rules.list[i].topic, topics[row->sink]))
			return store->rules.list[i].mine;
	}
	return store->rules.count == 0;
}

static int break_off(struct pr_err *err)
{
	current->process->fault_us = world.now_us;
	trace("the database fails");
	return pr_err_set(err, POSTROOM_UNAVAILABLE, "the database is down");
}

/* On the way to the database. */
static int send_off(struct pr_err *err)
{
	sleep_for(between(0, world.db_latency_us));
	if (world.now_us >= world.db_outage_us && world.now_us < world.db_back_us)
		return break_off(err);
	if (world.now_us < world.calm_us && chance(world.db_fails))
		return break_off(err);
	return POSTROOM_OK;
}

/* On the way back: what was done is done. */
static int answer(int status, struct pr_err *err)
{
	bool lost = world.now_us < world.calm_us && chance(world.db_loses_answers);

	if (lost)
		current->process->fault_us = world.now_us;
	sleep_for(between(0, world.db_latency_us));
	return lost ? break_off(err) : status;
}

/* A lease that ends before its batch is settled needs a fault that caused it. */
static void end_lease(struct row *row)
{
	const struct process *process = row->process;

	ENSURE(process->life != row->life || process->fault_us >= row->claimed_us,
	       "the lease of %s ran out, and nothing had happened to its owner", row->id);
	row->spent++;
	if (row->arrived)
		row->excused++;
	ENSURE(row->attempts == row->spent, "%s has %d attempts, and was tried %d times", row->id,
	       row->attempts, row->spent);
}

static bool dead_letter_expired(struct row *row, const struct pr_claim *claim,
				struct postroom_batch *batch)
{
	postroom_delivery *item;

	if (row->status != PROCESSING || row->until_us >= world.now_us ||
	    row->attempts < claim->max_attempts)
		return false;
	end_lease(row);
	row->status = DEAD;
	world.changed = true;
	item = pr_batch_add_dead_letter(batch);
	ENSURE(item, "no memory");
	item->id = row->id;
	item->topic = topics[row->sink];
	item->attempt = row->attempts;
	trace("%s is dead after %d attempts", row->id, row->attempts);
	return true;
}

static void take(struct sim_store *store, struct row *row, const struct pr_claim *claim,
		 struct postroom_batch *batch)
{
	postroom_delivery *item = pr_batch_add(batch);

	ENSURE(item, "no memory");
	row->status = PROCESSING;
	row->attempts++;
	row->claims++;
	memcpy(row->owner, store->store.worker, sizeof(row->owner));
	row->until_us = world.now_us + claim->lease_ms * 1000;
	row->process = current->process;
	row->life = current->process->life;
	row->claimed_us = current->claim_sent_us;
	row->said = POSTROOM_UNTRIED;
	row->arrived = false;
	row->lost_with = 0;
	ENSURE(row->attempts == row->spent + 1 && row->attempts <= claim->max_attempts,
	       "%s begins attempt %d of %d after %d tries", row->id, row->attempts,
	       claim->max_attempts, row->spent);
	item->id = row->id;
	item->ns = "default";
	item->topic = topics[row->sink];
	item->key = row->key[0] ? row->key : NULL;
	item->payload = "{}";
	item->payload_len = 2;
	item->attempt = row->attempts;
	item->created_at_us = row->created_us;
	item->seq = row->seq;
	item->fencing_token = row->claims;
	trace("  takes %s attempt %d", row->id, row->attempts);
}

static bool take_suspect(struct sim_store *store, const struct pr_claim *claim,
			 struct postroom_batch *batch)
{
	for (struct row *row = world.rows; row < &world.rows[world.row_count]; row++) {
		if (!wanted(store, row) || dead_letter_expired(row, claim, batch))
			continue;
		if (row->status != PROCESSING || row->until_us >= world.now_us)
			continue;
		end_lease(row);
		row->status = PENDING;
		world.changed = true;
		if (!has_blocker(row, false, NULL)) {
			take(store, row, claim, batch);
			return true;
		}
	}
	return false;
}

static struct row *next_due(struct sim_store *store, const struct postroom_batch *batch)
{
	struct row *first = NULL;

	for (struct row *row = world.rows; row < &world.rows[world.row_count]; row++) {
		if (wanted(store, row) && row->status == PENDING && row->due_us <= world.now_us &&
		    (!first || row->due_us < first->due_us) && !has_blocker(row, false, batch))
			first = row;
	}
	return first;
}

/* While the breaker is open, only a probe may claim, and a claim that began before it opened. */
static void check_breaker(void)
{
	const struct pr_worker *worker = current->worker;
	int64_t open_us = worker->pool->sink_state->breaker.open_since_us;

	if (!open_us || worker->probe)
		return;
	ENSURE(current->open_claim_us != open_us,
	       "a worker claims repeatedly while the breaker is open");
	current->open_claim_us = open_us;
}

static void claim_now(struct sim_store *store, const struct pr_claim *claim,
		      struct postroom_batch *batch)
{
	struct row *row;

	trace("claim %d%s", claim->limit, claim->reclaim_expired ? " expired" : "");
	if (claim->reclaim_expired && take_suspect(store, claim, batch))
		return;
	while (batch->count < (size_t)claim->limit && (row = next_due(store, batch)))
		take(store, row, claim, batch);
}

static bool owned(const struct sim_store *store, const struct row *row,
		  const postroom_delivery *item)
{
	return row->status == PROCESSING && row->claims == item->fencing_token &&
	       strcmp(row->owner, store->store.worker) == 0;
}

/* It could not reach the sink, which counts only if others could since, and if it failed alone. */
static void check_charge(const struct row *row)
{
	ENSURE(world.far[row->sink].delivered_us >= row->outage_us,
	       "%s is charged, and nothing was delivered since it first failed", row->id);
	ENSURE(row->lost_with <= 1, "%s is charged for a failure that it shared with %zu others",
	       row->id, row->lost_with - 1);
}

/* Is this what the sink said of it? */
static void check_verdict(const struct row *row, const postroom_delivery *item)
{
	bool charged = row->said == POSTROOM_UNREACHABLE && item->verdict == POSTROOM_FAILED;
	bool given_back = (world.far[row->sink].server ||
			   pr_stop_overdue(&current->worker->generation->stop)) &&
			  row->said == POSTROOM_FAILED && item->verdict == POSTROOM_UNREACHABLE;
	/* It was to be published again, and there was no time. */
	bool taken_back = row->lost_with > 0 && row->said == POSTROOM_UNREACHABLE &&
			  item->verdict == POSTROOM_UNTRIED;

	if (charged)
		check_charge(row);
	ENSURE(item->verdict == row->said || given_back || charged || taken_back,
	       "%s is settled with verdict %d, and the sink said %d", row->id, item->verdict,
	       row->said);
}

static void settle_row(struct sim_store *store, struct row *row, postroom_delivery *item,
		       const struct pr_policy *policy)
{
	check_verdict(row, item);
	world.changed = true;
	switch (pr_verdict_decide(item, policy, &store->store.random)) {
	case PR_DISPOSITION_DONE:
		row->status = DELIVERED;
		break;
	case PR_DISPOSITION_RELEASE:
		row->status = PENDING;
		row->attempts--;
		break;
	case PR_DISPOSITION_RETRY:
		row->status = PENDING;
		row->due_us = world.now_us + item->retry_in_ms * 1000;
		row->spent++;
		break;
	case PR_DISPOSITION_DEAD:
		row->status = DEAD;
		row->spent += !row->rejected;
		item->dead = 1;
		ENSURE(row->rejected || row->spent >= policy->max_attempts,
		       "%s is dead after %d tries of %d", row->id, row->spent,
		       policy->max_attempts);
		break;
	}
	trace("  settles %s verdict %d: %s, attempts %d", row->id, item->verdict,
	      row->status == PENDING ? "pending"
	      : row->status == DEAD  ? "dead"
				     : "delivered",
	      row->attempts);
}

static int settle_now(struct sim_store *store, postroom_delivery *items, size_t count,
		      const struct pr_policy *policy, struct pr_err *err)
{
	size_t lost = 0;

	current->held++; /* no process is suspended in the middle of a transaction */
	for (size_t i = 0; i < count; i++) {
		struct row *row = &world.rows[items[i].seq - 1];

		items[i].settled = POSTROOM_OK;
		if (owned(store, row, &items[i])) {
			settle_row(store, row, &items[i], policy);
			continue;
		}
		ENSURE(row->claims != items[i].fencing_token ||
			       current->process->fault_us >= row->claimed_us,
		       "%s is settled twice", row->id);
		trace("  has lost %s", row->id);
		items[i].settled = POSTROOM_LEASE_LOST;
		lost++;
	}
	current->held--;
	return lost ? pr_store_lease_lost(lost, count, err) : POSTROOM_OK;
}

static int renew(struct postroom_store *base, const struct pr_table *table,
		 postroom_delivery *items, size_t count, int64_t lease_ms, struct pr_err *err)
{
	struct sim_store *store = (struct sim_store *)base;
	size_t lost = 0;
	int status = send_off(err);

	(void)table;
	if (status < 0)
		return status;
	for (size_t i = 0; i < count; i++) {
		struct row *row = &world.rows[items[i].seq - 1];
		bool mine = owned(store, row, &items[i]);

		items[i].settled = mine ? POSTROOM_OK : POSTROOM_LEASE_LOST;
		if (mine)
			row->until_us = world.now_us + lease_ms * 1000;
		else
			lost++;
	}
	trace("renews %zu, %zu lost", count, lost);
	return answer(lost ? pr_store_lease_lost(lost, count, err) : POSTROOM_OK, err);
}

static int settle_and_claim(struct postroom_store *base, const struct pr_table *table,
			    const struct pr_settle *settle, const struct pr_claim *request,
			    struct postroom_batch *batch, struct pr_err *err)
{
	struct sim_store *store = (struct sim_store *)base;
	int status;

	(void)table;
	if (request) {
		check_breaker();
		current->claim_sent_us = world.now_us;
	}
	status = send_off(err);
	if (status < 0)
		return status;
	if (settle)
		trace(request ? "settle and claim %zu" : "settle %zu", settle->count);
	if (settle)
		status = settle_now(store, settle->items, settle->count, settle->policy, err);
	if (request)
		claim_now(store, request, batch);
	return answer(status, err);
}

static int sweep(struct postroom_store *base, const struct pr_table *table,
		 const struct pr_claim *request, struct postroom_batch *batch, struct pr_err *err)
{
	int status = send_off(err);

	(void)table;
	for (size_t i = 0; status >= 0 && i < world.row_count; i++) {
		if (wanted((struct sim_store *)base, &world.rows[i]))
			dead_letter_expired(&world.rows[i], request, batch);
	}
	return status < 0 ? status : answer(POSTROOM_OK, err);
}

static int wait_for_due(struct postroom_store *base, const struct pr_table *table,
			const struct pr_scope *scope, int64_t max_ms, struct pr_err *err)
{
	(void)table, (void)scope, (void)err;
	pr_stop_wait(((struct sim_store *)base)->stop, max_ms);
	return POSTROOM_OK;
}

static int unfinished(struct postroom_store *base, const struct pr_table *table,
		      const struct pr_claim *request, bool *ret, struct pr_err *err)
{
	int status = send_off(err);

	(void)table, (void)request;
	if (status < 0)
		return status;
	*ret = false;
	for (size_t i = 0; i < world.row_count; i++) {
		if (wanted((struct sim_store *)base, &world.rows[i]) &&
		    !row_finished(&world.rows[i]))
			*ret = true;
	}
	return answer(POSTROOM_OK, err);
}

/* No schema changes here. */
static int check_schema(struct postroom_store *store, enum pr_schema_need need, struct pr_err *err)
{
	(void)store, (void)need, (void)err;
	return POSTROOM_OK;
}

static void close_store(struct postroom_store *store)
{
	free(store);
}

/* The simulated database keeps everything, and remembers no attempts. */
static int purge(struct postroom_store *store, const struct pr_purge *request, int64_t *ret,
		 struct pr_err *err)
{
	(void)store, (void)request, (void)err;
	*ret = 0;
	return POSTROOM_OK;
}

static const struct pr_store_ops ops = {
	.close = close_store,
	.check_schema = check_schema,
	.settle_and_claim = settle_and_claim,
	.renew = renew,
	.sweep = sweep,
	.wait = wait_for_due,
	.unfinished = unfinished,
	.purge = purge,
};

int store_open(const struct pr_store_config *config, struct postroom_store **ret,
	       struct pr_err *err)
{
	struct sim_store *store;
	int status = send_off(err);

	if (status < 0)
		return status;
	store = calloc(1, sizeof(*store));
	ENSURE(store, "no memory");
	store->store.ops = &ops;
	store->rules = config->rules;
	store->stop = config->stop;
	pr_uuid_v4(&store->store.random, store->store.worker);
	*ret = &store->store;
	return POSTROOM_OK;
}
