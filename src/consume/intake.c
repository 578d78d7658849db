/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a broker into the inbox.
 *
 * 1. The broker is told that an event is safe only after its row is committed:
 *    completed together with its effect, pending, or dead. Whatever happens before
 *    that, the event comes again; whatever happens after it, the row is there.
 * 2. The events of a batch share a transaction. When the statement fails for one of
 *    them they are done over in smaller parts; that one is left to the inbox, with its
 *    attempt counted, and the others are not held up.
 * 3. A database that is away pauses the reading: the batch at hand is kept, and
 *    nothing else is read before it is in.
 * 4. A line of the log tells what has been committed, never what is about to be.
 * 5. While a batch is at hand, however long that takes, the broker hears of it a third
 *    of the lease apart at most, so that it gives it to nobody else.
 * 6. With --drain, who stays away for PR_DRAIN_PATIENCE_MS is waited for no longer.
 */
#include "base/time.h"
#include "consume/consume.h"

#include <stdlib.h>
#include <string.h>

/* How long a read waits for the first event. */
#define WAIT_MS 1000
/* What a broker may take to answer, and to be told that events are safe. */
#define ANSWER_MS 10000
#define PAUSE_MIN_MS 500
#define PAUSE_MAX_MS 2000
/* With --drain: a source that is silent for so long has nothing more. */
#define SILENCE_MS 2000

static struct pr_flight flight_of(struct pr_intake *intake, int64_t wait_ms)
{
	return (struct pr_flight){
		.arena = &intake->scratch,
		.policy = &intake->config->relay.policy,
		.begin_until_us = pr_mono_us() + wait_ms * 1000,
		.timeout_ms = ANSWER_MS,
		.stop = intake->stop,
		.log = &intake->log,
	};
}

/* Heard at every beat of the intake's own pulse: whatever it waits for beats. */
static void keep_at_hand(struct pr_pulse *pulse)
{
	struct pr_intake *intake = (struct pr_intake *)pulse;
	const struct pr_source_ops *source = intake->source->ops;
	int64_t every_ms = intake->config->relay.lease_ms / 4, now_us = pr_mono_us();
	struct pr_flight flight;
	struct pr_err unheard;

	if (!source->keep || !intake->at_hand || now_us - intake->kept_us < every_ms * 1000)
		return;
	intake->kept_us = now_us;
	/* The database waits for us meanwhile. */
	flight = flight_of(intake, every_ms < ANSWER_MS ? every_ms : ANSWER_MS);
	flight.timeout_ms = every_ms < ANSWER_MS ? every_ms : ANSWER_MS;
	source->keep(intake->source, &intake->events, &flight, &unheard);
}

int pr_intake_open(struct pr_intake *intake, struct pr_err *err)
{
	const struct pr_relay_config *relay = &intake->config->relay;

	intake->pulse.step_ms = relay->lease_ms + 2 * ANSWER_MS;
	intake->pulse.heard = keep_at_hand;
	pr_log_init(&intake->log, 2, relay->log_level, relay->log_format);
	intake->log.box = relay->table->box;
	return pr_source_open(intake->config->from, relay->scope.ns, relay->lease_ms,
			      &intake->source, err);
}

void pr_intake_close(struct pr_intake *intake)
{
	pr_source_close(intake->source);
	pr_store_close(intake->store);
	pr_events_release(&intake->events);
	pr_arena_release(&intake->scratch);
	pr_log_release(&intake->log);
	free(intake->arrivals);
}

/* Says so once, until it is back. */
static void tell(struct pr_intake *intake, int64_t *away_us, bool is_away, const char *event,
		 const char *back, const char *why)
{
	if ((*away_us != 0) == is_away)
		return;
	*away_us = is_away ? pr_mono_us() : 0;
	pr_log_box(&intake->log, PR_LOG_WARN, is_away ? event : back);
	if (is_away)
		pr_log_str(&intake->log, "error", why);
	pr_log_end(&intake->log);
}

static void tell_source(struct pr_intake *intake, bool away, const char *why)
{
	tell(intake, &intake->source_away_us, away, "SOURCE_UNREACHABLE", "SOURCE_BACK", why);
}

static void tell_database(struct pr_intake *intake, bool away, const char *why)
{
	tell(intake, &intake->database_away_us, away, "STORE_TROUBLE", "STORE_BACK", why);
}

/* True: a drain has waited for it long enough. */
static bool give_up(struct pr_intake *intake, int64_t away_us, const char *who, struct pr_err *err)
{
	char why[sizeof(err->text)];

	if (!intake->config->drain || !away_us ||
	    pr_mono_us() - away_us < PR_DRAIN_PATIENCE_MS * 1000LL)
		return false;
	memcpy(why, err->text, sizeof(why));
	pr_err_set(err, POSTROOM_UNAVAILABLE,
		   "consume: the %s has been unreachable for %d s (%.300s); what is not in the inbox "
		   "waits in the broker",
		   who, PR_DRAIN_PATIENCE_MS / 1000, why);
	intake->gave_up = true;
	return true;
}

/* True: told to stop. */
static bool pause_a_while(struct pr_intake *intake)
{
	int64_t ms = pr_random_between(&intake->random, PAUSE_MIN_MS, PAUSE_MAX_MS);
	int64_t most_ms = intake->config->relay.lease_ms / 4;

	if (ms > most_ms)
		ms = most_ms;
	pr_log_flush(&intake->log);
	pr_pulse_beat(&intake->pulse, ms);
	return pr_stop_wait(intake->stop, ms);
}

static int connect_store(struct pr_intake *intake, struct pr_err *err)
{
	const struct pr_relay_config *relay = &intake->config->relay;
	const struct pr_store_config config = {
		.url = relay->url,
		.schema = relay->schema,
		.answer_ms = relay->lease_ms,
		.statement_ms = relay->publish_timeout_ms,
		.busy_wait_ms = intake->config->drain ? PR_DRAIN_PATIENCE_MS : -1,
		.stop = intake->stop,
		.pulse = &intake->pulse,
	};

	return intake->store ? POSTROOM_OK : pr_store_open(&config, &intake->store, err);
}

static void tell_arrival(struct pr_intake *intake, const struct pr_arrival *arrival)
{
	struct pr_log *log = &intake->log;
	int32_t max = intake->config->relay.policy.max_attempts;

	if (arrival->known) {
		pr_log_box(log, PR_LOG_INFO, "WORKER_SKIP_PROCESSED");
		pr_log_str(log, "id", arrival->id);
		pr_log_end(log);
		return;
	}
	if (arrival->how == PR_ARRIVE_DONE && !arrival->waits) {
		pr_log_box(log, PR_LOG_INFO, "WORKER_DISPATCH_SUCCESS");
		pr_log_str(log, "id", arrival->id);
		pr_log_str(log, "key", arrival->id);
		pr_log_end(log);
	}
	if (arrival->attempts > 0)
		pr_log_failed(log, arrival->id, arrival->id, arrival->attempts, max,
			      arrival->error);
	if (arrival->how == PR_ARRIVE_DEAD)
		pr_log_dead(log, arrival->id, arrival->id, arrival->attempts, arrival->error);
}

static void count(struct pr_intake *intake, const struct pr_arrival *arrivals, size_t n)
{
	int64_t done = 0, failed = 0, dead = 0;

	for (size_t i = 0; i < n; i++) {
		const struct pr_arrival *arrival = &arrivals[i];

		tell_arrival(intake, arrival);
		if (arrival->known)
			continue;
		done += arrival->how == PR_ARRIVE_DONE && !arrival->waits;
		failed += arrival->attempts > 0;
		dead += arrival->how == PR_ARRIVE_DEAD;
	}
	pr_relay_add(intake->relay, done, failed, dead);
}

/* The statement has failed for this one alone: the inbox has it from now on. */
static void leave_to_inbox(struct pr_intake *intake, struct pr_arrival *arrival,
			   const struct pr_err *err)
{
	const struct pr_policy *policy = &intake->config->relay.policy;
	postroom_delivery job = { .attempt = 1, .retry_in_ms = -1 };
	enum pr_fate fate;

	pr_verdict_set(&job, POSTROOM_FAILED, &intake->scratch, policy, err->text,
		       strlen(err->text));
	fate = pr_verdict_decide(&job, policy, &intake->random);
	arrival->how = fate == PR_FATE_BURY ? PR_ARRIVE_DEAD : PR_ARRIVE_PENDING;
	arrival->attempts = 1;
	arrival->delay_ms = job.retry_in_ms;
	arrival->error = job.reason;
}

/*
 * Even the row alone is refused: jsonb may be stricter than we know. Its bytes are taken
 * by every database. False: it was not that.
 */
static bool leave_as_bytes(struct pr_intake *intake, struct pr_arrival *arrival,
			   const struct pr_err *err)
{
	const char *why = pr_arena_strdup(&intake->scratch, err->text);

	if (!arrival->payload.data || !why)
		return false;
	arrival->how = PR_ARRIVE_DEAD;
	arrival->error = why;
	arrival->body = arrival->payload;
	arrival->payload = (struct pr_span){ 0 };
	arrival->headers = "{}";
	return true;
}

static enum pr_in_order order_of(const struct pr_consume_config *config)
{
	if (!config->ordered)
		return PR_ORDER_NONE;
	return config->relay.policy.block ? PR_ORDER_DEAD : PR_ORDER_UNFINISHED;
}

/* The next n arrivals in one transaction. */
static int take_in(struct pr_intake *intake, struct pr_arrival *arrivals, size_t n, size_t *ret_at,
		   struct pr_err *err)
{
	const struct pr_consume_config *config = intake->config;
	int status;

	pr_pulse_beat(&intake->pulse, 0);
	status = connect_store(intake, err);
	if (status < 0)
		return status;
	return intake->store->ops->take_in(intake->store, config->relay.scope.ns,
					   config->statement, order_of(config), arrivals, n, ret_at,
					   err);
}

/* All that can not be the event's fault: tried again on another connection, until it succeeds. */
static int wait_for_database(struct pr_intake *intake, struct pr_err *err)
{
	bool stopped = err->status == POSTROOM_STOPPED;

	if (!stopped) {
		tell_database(intake, true, err->text);
		pr_store_close(intake->store);
		intake->store = NULL;
		if (give_up(intake, intake->database_away_us, "database", err))
			return err->status;
		stopped = pause_a_while(intake);
	}
	return stopped ? pr_err_set(err, POSTROOM_STOPPED, "told to stop") : POSTROOM_OK;
}

/* POSTROOM_STOPPED when a stop came first. */
static int take_all_in(struct pr_intake *intake, size_t total, struct pr_err *err)
{
	size_t from = 0, part = total;

	while (from < total) {
		struct pr_arrival *arrivals = intake->arrivals + from;
		size_t n = part < total - from ? part : total - from, at = 0;
		int status = take_in(intake, arrivals, n, &at, err);

		if (status >= 0) {
			tell_database(intake, false, NULL);
			count(intake, arrivals, n);
			from += n;
			part *= 2;
		} else if (status == POSTROOM_TX_ABORTED && n > 1) {
			part = at > 0 ? at : 1;
		} else if (status == POSTROOM_TX_ABORTED && arrivals->how == PR_ARRIVE_DONE) {
			leave_to_inbox(intake, arrivals, err);
		} else if (status == POSTROOM_TX_ABORTED && leave_as_bytes(intake, arrivals, err)) {
			continue;
		} else if (wait_for_database(intake, err) < 0) {
			return err->status;
		}
	}
	return POSTROOM_OK;
}

static int prepare(struct pr_intake *intake, struct pr_err *err)
{
	const struct pr_consume_config *config = intake->config;
	size_t total = intake->events.count;

	if (total > intake->capacity) {
		struct pr_arrival *more = reallocarray(intake->arrivals, total, sizeof(*more));

		if (!more)
			return pr_err_nomem(err);
		intake->arrivals = more;
		intake->capacity = total;
	}
	for (size_t i = 0; i < total; i++) {
		struct pr_arrival *arrival = &intake->arrivals[i];
		int status = pr_arrival_make(&intake->events.list[i], &config->identity,
					     config->relay.scope.ns, &intake->events.arena, arrival,
					     err);

		if (status < 0)
			return status;
		if (config->statement && arrival->how == PR_ARRIVE_PENDING)
			arrival->how = PR_ARRIVE_DONE;
	}
	return POSTROOM_OK;
}

/* One batch. POSTROOM_NOT_FOUND: the source has come to its end. */
static int pass(struct pr_intake *intake, struct pr_err *err)
{
	const struct pr_source_ops *source = intake->source->ops;
	struct pr_flight flight = flight_of(intake, WAIT_MS);
	int status;

	pr_events_reset(&intake->events);
	pr_arena_reset(&intake->scratch);
	pr_pulse_beat(&intake->pulse, WAIT_MS);
	status = source->read(intake->source, &intake->events,
			      intake->config->batch_size, &flight, err);
	if (status < 0)
		return status;
	if (intake->events.count == 0)
		return POSTROOM_OK;
	status = prepare(intake, err);
	intake->kept_us = pr_mono_us();
	intake->at_hand = true;
	if (status >= 0)
		status = take_all_in(intake, intake->events.count, err);
	intake->at_hand = false;
	if (status < 0)
		return status;
	flight = flight_of(intake, ANSWER_MS);
	return source->ack(intake->source, &intake->events, &flight, err);
}

static int read_on(struct pr_intake *intake, struct pr_err *err)
{
	int64_t heard_us = pr_mono_us();

	while (!pr_stop_requested(intake->stop)) {
		int status = pass(intake, err);

		pr_log_flush(&intake->log);
		if (status == POSTROOM_NOT_FOUND)
			return POSTROOM_OK;
		if (status == POSTROOM_NOMEM || status == POSTROOM_SINK || intake->gave_up)
			return status;
		if (status >= 0) {
			tell_source(intake, false, NULL);
		} else if (status != POSTROOM_STOPPED) {
			tell_source(intake, true, err->text);
			if (give_up(intake, intake->source_away_us, "broker", err))
				return err->status;
			pause_a_while(intake);
		}
		if (status < 0 || intake->events.count > 0)
			heard_us = pr_mono_us();
		else if (intake->config->drain &&
			 pr_mono_us() - heard_us >= SILENCE_MS * 1000)
			return POSTROOM_OK;
	}
	return POSTROOM_OK;
}

void *pr_intake_run(void *context)
{
	struct pr_intake *intake = context;

	intake->status = read_on(intake, &intake->err);
	pr_pulse_end(&intake->pulse);
	/* Who has only waited in vain leaves the jobs that are there to be finished. */
	if (intake->status < 0 && !intake->gave_up)
		pr_relay_stop(intake->relay);
	return NULL;
}
