/* SPDX-License-Identifier: Apache-2.0 */
/*
  * The receiver: it accepts messages, refuses them, fails, hangs, has outages, and loses
  * answers. A message is delivered at the start of its publish.
 *
 * A poison message of the kind that kills makes it drop the connection, with all that is
  * in flight on it.
 *
 * Found here: what is published without a lease that outlasts it, out of its key's
 * turn, more often than faults explain, faster or wider than the limits, cut by a
 * reload, and probes beside probes; and trouble with the database that is over.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct sim_sink {
	struct pr_sink sink;
	size_t number;
};

/* The result of one attempt. */
struct
try {
	postroom_verdict verdict;
	bool arrives;
	bool hangs;
	int64_t latency_us;
};

static bool is_down(const struct receiver *far)
{
	return world.now_us >= far->outage_begin_us && world.now_us < far->outage_end_us;
}

static struct try decide(const struct receiver *far, const struct row *row)
{
	struct try try = { .verdict = POSTROOM_DELIVERED,
			   .arrives = true,
			   .latency_us = between(0, far->latency_us) };

	if (is_down(far)) {
		try.verdict = far->outage == REFUSING ? POSTROOM_UNREACHABLE : POSTROOM_FAILED;
		try.hangs = far->outage == HANGING;
		try.arrives = false;
	} else if (row->poison) {
		try.verdict = row->poison == FAILS ? POSTROOM_FAILED : POSTROOM_UNREACHABLE;
		try.arrives = false;
	} else if (world.now_us >= world.calm_us) {
		return try;
	} else if (chance(far->fails)) {
		try.verdict = POSTROOM_FAILED;
		try.arrives = false;
	} else if (chance(far->rejects)) {
		try.verdict = POSTROOM_REJECTED;
		try.arrives = false;
	} else if (chance(far->unreachable)) {
		try.verdict = POSTROOM_UNREACHABLE;
		try.arrives = false;
	} else if (chance(far->loses_answers)) {
		try.verdict = POSTROOM_FAILED;
	} else if (chance(far->hangs)) {
		try.verdict = POSTROOM_FAILED;
		try.hangs = true;
		try.arrives = chance(500);
	}
	if (chance(far->slow))
		try.latency_us = between(0, world.config.publish_timeout_ms * 1000);
	return try;
}

/* Of its key nothing before it is missing: it has been settled, or has just arrived here. */
static void check_order(const struct row *row)
{
	for (const struct row *other = world.rows; row->key[0] && other < row; other++) {
		bool over = other->status == DELIVERED ||
			    (other->status == DEAD && !world.config.policy.block);

		if (other->sink != row->sink || strcmp(other->key, row->key) != 0 || over)
			continue;
		ENSURE(other->status == PROCESSING && strcmp(other->owner, row->owner) == 0 &&
			       other->said == POSTROOM_DELIVERED,
		       "%s arrives before %s of the same key", row->id, other->id);
	}
}

static void check_rate(struct process *process, size_t number)
{
	double rate = world.far[number].rate;
	double seconds = (double)(world.now_us - process->began_us) / 1e6;

	process->begun[number]++;
	ENSURE(rate <= 0 || (double)process->begun[number] <=
				    rate * seconds + (rate > 1 ? rate : 1) + 0.01,
	       "%d messages in %.3f seconds are more than %.1f a second",
	       (int)process->begun[number], seconds, rate);
}

static void begin(const struct sim_sink *sink, struct row *row, const postroom_delivery *item,
		  const struct pr_flight *flight, const struct try *try)
{
	int64_t settle_us = world.config.lease_ms * 1000 / 10;
	int64_t longest_us = flight->timeout_ms * (1000 + 1000 / PR_FLIGHT_END_PART) + settle_us;

	ENSURE(row->sink == sink->number, "%s goes to the wrong sink", row->id);
	ENSURE(row->status == PROCESSING && row->claims == item->fencing_token &&
		       strcmp(row->owner, current->worker->id) == 0,
	       "%s is published by a worker that has lost it", row->id);
	ENSURE(row->until_us >= world.now_us + longest_us,
	       "%s is published with %d us of its lease left; to settle it may take %d us", row->id,
	       (int)(row->until_us - world.now_us), (int)longest_us);
	ENSURE(row->said == POSTROOM_UNTRIED || row->lost_with > 0, "%s is published twice",
	       row->id);
	check_order(row);
	check_rate(current->process, sink->number);
	row->said = POSTROOM_FAILED;
	row->lost_with = 0;
	if (try->verdict == POSTROOM_UNREACHABLE && !row->outage_us)
		row->outage_us = flight->began_us;
	if (try->arrives) {
		row->arrived = true;
		row->incoming_events++;
		ENSURE(row->incoming_events <= 1 + row->excused, "%s arrives %d times", row->id,
		       row->incoming_events);
	}
}

/* False when the grace of a stop was over first. */
static bool wait_for_answer(const struct pr_flight *flight, int64_t us)
{
	const struct pr_stop *stop = flight->stop;
	int64_t until_us = world.now_us + us;

	process_step();
	while (world.now_us < until_us && !pr_stop_overdue(flight->stop)) {
		int64_t overdue_us = pr_stop_deadline_us(flight->stop);

		/* After a reload the relay may still be asked to stop. */
		while (stop && pr_stop_requested(stop))
			stop = stop->parent;
		sleep_until(overdue_us && overdue_us < until_us ? overdue_us : until_us, stop);
	}
	return world.now_us >= until_us;
}

static void try_item(const struct sim_sink *sink, postroom_delivery *item,
		     const struct pr_flight *flight)
{
	struct row *row = &world.rows[item->seq - 1];
	struct try try = decide(&world.far[sink->number], row);
	int64_t timeout_us = flight->timeout_ms * 1000;
	int64_t longest_us = timeout_us / PR_FLIGHT_END_PART;
	int64_t fencing_token = item->fencing_token;
	bool answered;

	begin(sink, row, item, flight, &try);
	trace("  tries %s: %d%s%s", row->id, try.verdict, try.arrives ? " arrives" : "",
	      try.hangs ? " hangs" : "");
	if (try.hangs)
		try.latency_us = timeout_us + (chance(500) ? between(0, longest_us) : longest_us);
	answered = wait_for_answer(flight, try.latency_us);
	ENSURE(answered || pr_stop_overdue(flight->stop->parent), "a reload cuts %s", row->id);
	if (!answered)
		try.verdict = POSTROOM_FAILED;
	/* It may have been suspended until the message belongs to another worker. */
	if (row->claims == fencing_token) {
		row->said = try.verdict;
		row->rejected |= try.verdict == POSTROOM_REJECTED;
		if (try.verdict == POSTROOM_DELIVERED)
			world.far[sink->number].delivered_us = world.now_us;
		if (row->arrived && try.verdict != POSTROOM_DELIVERED) {
			row->excused++;
			row->arrived = false;
		}
	}
	pr_sink_judge(item, 1, try.verdict, flight,
		      try.verdict == POSTROOM_DELIVERED ? NULL : "as the seed has it");
}

/* Messages in flight when the connection is lost: some of them have arrived. */
static void lose_item(const struct sim_sink *sink, postroom_delivery *item,
		      const struct pr_flight *flight)
{
	struct row *row = &world.rows[item->seq - 1];
	struct try try = { .verdict = POSTROOM_UNREACHABLE,
			   .arrives = !row->poison && chance(300) };

	begin(sink, row, item, flight, &try);
	trace("  loses %s%s", row->id, try.arrives ? " arrives" : "");
	row->said = POSTROOM_UNREACHABLE;
	row->excused += row->arrived;
	row->arrived = false;
	pr_sink_judge_together(item, flight, "the connection is lost");
}

/* Loses the one at this place, and some behind it. */
static void lose_items(const struct sim_sink *sink, postroom_delivery *items, size_t count,
		       size_t at, const size_t *before, const struct pr_flight *flight)
{
	size_t last = at + (size_t)between(0, 10), lost = 0;

	if (last >= count)
		last = count - 1;
	for (size_t i = at; i <= last; i++) {
		if (before[i] != PR_SINK_NONE && items[before[i]].verdict != POSTROOM_DELIVERED)
			continue;
		if (i > at && !pr_flight_may_begin(flight))
			break;
		lose_item(sink, &items[i], flight);
		lost++;
	}
	for (size_t i = at; i <= last; i++) {
		if (items[i].verdict == POSTROOM_UNREACHABLE)
			world.rows[items[i].seq - 1].lost_with = lost;
	}
}

static bool is_killer(const struct receiver *far, const postroom_delivery *item)
{
	return world.rows[item->seq - 1].poison == KILLS && !is_down(far);
}

enum pr_breaker_permission __real_pr_breaker_check(struct pr_breaker *breaker, int64_t now_us,
						   int64_t longest_us, int64_t *ret_probe,
						   int64_t *ret_wait_ms);
enum pr_breaker_permission __wrap_pr_breaker_check(struct pr_breaker *breaker, int64_t now_us,
						   int64_t longest_us, int64_t *ret_probe,
						   int64_t *ret_wait_ms);

enum pr_breaker_permission __wrap_pr_breaker_check(struct pr_breaker *breaker, int64_t now_us,
						   int64_t longest_us, int64_t *ret_probe,
						   int64_t *ret_wait_ms)
{
	current->probe_since_us = now_us;
	return __real_pr_breaker_check(breaker, now_us, longest_us, ret_probe, ret_wait_ms);
}

/* A probe that takes longer than a lease is given up: only it may overlap with another. */
static void check_probes(void)
{
	const struct task *probe = current;
	int64_t given_up_us = world.now_us - world.config.lease_ms * 1000;

	if (!probe->worker->probe || probe->probe_since_us <= given_up_us)
		return;
	for (size_t i = 0; i < TASKS_MAX; i++) {
		const struct task *other = &tasks[i];

		if (!other->used || other == probe || other->process != probe->process ||
		    !other->publishing || !other->worker->probe ||
		    other->worker->pool->sink_state != probe->worker->pool->sink_state)
			continue;
		ENSURE(other->probe_since_us <= given_up_us, "two probes at a time");
	}
}

static int publish(struct pr_sink *base, postroom_delivery *items, size_t count,
		   const struct pr_flight *flight, struct pr_err *err)
{
	const struct sim_sink *sink = (const struct sim_sink *)base;
	const struct receiver *far = &world.far[sink->number];
	int64_t *in_hand = &current->process->in_hand[sink->number];
	const size_t *before = pr_sink_order(items, count, flight->arena);

	(void)err;
	ENSURE(before, "no memory");
	ENSURE(current->worker->outage_since_us == 0,
	       "the database has answered, and is still said to be away");
	trace("publish %zu%s", count, current->worker->probe ? " as a probe" : "");
	check_probes();
	*in_hand += flight->concurrency;
	ENSURE(*in_hand <= far->concurrency, "%d at once are more than %d", (int)*in_hand,
	       (int)far->concurrency);
	current->publishing = true;
	for (size_t i = 0; i < count; i++) {
		if (before[i] != PR_SINK_NONE && items[before[i]].verdict != POSTROOM_DELIVERED)
			continue;
		if (world.now_us < world.calm_us && chance(far->declines))
			break;
		if (!pr_flight_may_begin(flight))
			break;
		if (is_killer(far, &items[i])) {
			lose_items(sink, items, count, i, before, flight);
			break;
		}
		try_item(sink, &items[i], flight);
	}
	current->publishing = false;
	*in_hand -= flight->concurrency;
	return POSTROOM_OK;
}

static const struct pr_sink_ops plain = { .publish = publish };
static const struct pr_sink_ops server = { .publish = publish, .server = true };

struct pr_sink *receiver_open(size_t number)
{
	struct sim_sink *sink = calloc(1, sizeof(*sink));

	ENSURE(sink, "no memory");
	sink->sink.ops = world.far[number].server ? &server : &plain;
	sink->number = number;
	return &sink->sink;
}
