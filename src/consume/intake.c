/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The intake: reads events from a broker into the inbox.
 *
 * 1. An event is acknowledged only after its row is committed: completed together with its effect,
 *    pending, or dead. Before that, the broker redelivers the event; after that, the row exists.
 * 2. The events of a batch share a transaction. If the statement fails for one of them, they are
 *    repeated in smaller parts. The failing event is inserted as pending with its attempt counted,
 *    and the others are not delayed.
 * 3. A database outage pauses the reading: the current batch is kept, and nothing else is read
 *    before it is inserted.
 * 4. A log line reports only committed events.
 * 5. While a batch is unacknowledged, its lease at the broker is extended at least every third of
 *    the lease, so that no other consumer receives it.
 * 6. Events that may have been handled and purged stop the consumer before they have any effect:
 *    see replay.h.
 * 7. With --drain, an outage of PR_DRAIN_PATIENCE_MS ends the intake.
 */
#include "base/time.h"
#include "consume/consume.h"
#include "relay/metrics.h"

#include <stdlib.h>
#include <string.h>

/* How long a read waits for the first event. */
#define WAIT_MS 1000
/* Timeout of a broker's answer, and of an acknowledgement. */
#define ANSWER_MS 10000
#define PAUSE_MIN_MS 500
#define PAUSE_MAX_MS 2000
/* With --drain: a source that is silent for this time has no more events. */
#define WATCHDOG_MS 2000

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

/* Called at each feed of the intake's watchdog: every wait feeds it. */
static void extend_lease(struct pr_watchdog *watchdog)
{
	struct pr_intake *intake = (struct pr_intake *)watchdog;
	const struct pr_source_ops *source = intake->source->ops;
	int64_t every_ms = intake->config->relay.lease_ms / 4, now_us = pr_mono_us();
	struct pr_flight flight;
	struct pr_err unheard;

	if (!source->keep || !intake->unacked || now_us - intake->extended_us < every_ms * 1000)
		return;
	intake->extended_us = now_us;
	/* The transaction in the database waits for us meanwhile. */
	flight = flight_of(intake, every_ms < ANSWER_MS ? every_ms : ANSWER_MS);
	flight.timeout_ms = every_ms < ANSWER_MS ? every_ms : ANSWER_MS;
	source->keep(intake->source, &intake->events, &flight, &unheard);
}

int pr_intake_open(struct pr_intake *intake, struct pr_err *err)
{
	const struct pr_relay_config *relay = &intake->config->relay;

	intake->watchdog.step_ms = relay->lease_ms + 2 * ANSWER_MS;
	intake->watchdog.on_feed = extend_lease;
	pr_log_init(&intake->log, 2, relay->log_level, relay->log_format);
	intake->log.box = relay->table->box;
	if (pr_source_open(intake->config->from, relay->scope.ns, relay->lease_ms, &intake->source,
			   err) < 0)
		return err->status;
	intake->source->bytes = PR_SOURCE_BYTES / intake->sharers;
	intake->replay.scheme = intake->source->ops->schemes[0];
	intake->replay.handler = relay->scope.ns;
	intake->replay.retention_ms = relay->inbox_retention_ms;
	return POSTROOM_OK;
}

void pr_intake_close(struct pr_intake *intake)
{
	pr_source_close(intake->source);
	pr_store_close(intake->store);
	pr_events_release(&intake->events);
	pr_replay_release(&intake->replay);
	pr_arena_release(&intake->scratch);
	pr_log_release(&intake->log);
	free(intake->incoming_events);
}

/* Logs an outage once, until it ends. */
static void log_outage(struct pr_intake *intake, int64_t *outage_us, bool is_outage,
		       const char *event, const char *back, const char *why)
{
	if ((*outage_us != 0) == is_outage)
		return;
	*outage_us = is_outage ? pr_mono_us() : 0;
	pr_log_box(&intake->log, PR_LOG_WARN, is_outage ? event : back);
	if (is_outage)
		pr_log_str(&intake->log, "error", why);
	pr_log_end(&intake->log);
}

static void log_source_outage(struct pr_intake *intake, bool outage, const char *why)
{
	log_outage(intake, &intake->source_outage_us, outage, "SOURCE_UNREACHABLE", "SOURCE_BACK",
		   why);
}

static void log_database_outage(struct pr_intake *intake, bool outage, const char *why)
{
	log_outage(intake, &intake->database_outage_us, outage, "STORE_TROUBLE", "STORE_BACK", why);
}

/* True: a drain has waited long enough for it. */
static bool give_up(struct pr_intake *intake, int64_t outage_us, const char *watchdog_thread,
		    struct pr_err *err)
{
	char why[sizeof(err->text)];

	if (!intake->config->drain || !outage_us ||
	    pr_mono_us() - outage_us < PR_DRAIN_PATIENCE_MS * 1000LL)
		return false;
	memcpy(why, err->text, sizeof(why));
	pr_err_set(err, POSTROOM_UNAVAILABLE,
		   "consume: the %s has been unreachable for %d s (%.300s); the other events "
		   "wait in the broker",
		   watchdog_thread, PR_DRAIN_PATIENCE_MS / 1000, why);
	intake->gave_up = true;
	return true;
}

/* True: a stop was requested. */
static bool pause_before_retry(struct pr_intake *intake)
{
	int64_t ms = pr_random_between(&intake->random, PAUSE_MIN_MS, PAUSE_MAX_MS);
	int64_t most_ms = intake->config->relay.lease_ms / 4;

	if (ms > most_ms)
		ms = most_ms;
	pr_log_flush(&intake->log);
	pr_watchdog_feed(&intake->watchdog, ms);
	return pr_stop_wait(intake->stop, ms);
}

static int connect_intake(struct pr_intake *intake, struct pr_err *err)
{
	const struct pr_relay_config *relay = &intake->config->relay;
	const struct pr_store_config config = {
		.url = relay->url,
		.schema = relay->schema,
		.answer_ms = relay->lease_ms,
		.statement_ms = relay->publish_timeout_ms,
		.busy_wait_ms = intake->config->drain ? PR_DRAIN_PATIENCE_MS : -1,
		.stop = intake->stop,
		.watchdog = &intake->watchdog,
	};

	int status;

	if (intake->store)
		return POSTROOM_OK;
	status = pr_store_open(&config, &intake->store, err);
	if (status >= 0)
		status = intake->store->ops->check_schema(intake->store, PR_SCHEMA_COMPATIBLE, err);
	if (status < 0) {
		pr_store_close(intake->store);
		intake->store = NULL;
	}
	return status;
}

static void log_event(struct pr_intake *intake, const struct pr_incoming_event *incoming)
{
	struct pr_log *log = &intake->log;
	int32_t max = intake->config->relay.policy.max_attempts;

	if (incoming->duplicate) {
		pr_log_box(log, PR_LOG_INFO, "WORKER_SKIP_PROCESSED");
		pr_log_str(log, "id", incoming->id);
		pr_log_end(log);
		return;
	}
	if (incoming->how == PR_INSERT_COMPLETED && !incoming->waits) {
		pr_log_box(log, PR_LOG_INFO, "WORKER_DISPATCH_SUCCESS");
		pr_log_str(log, "id", incoming->id);
		pr_log_str(log, "key", incoming->id);
		pr_log_end(log);
	}
	if (incoming->attempts > 0)
		pr_log_failed(log, incoming->id, incoming->id, incoming->attempts, max,
			      incoming->error);
	if (incoming->how == PR_INSERT_DEAD)
		pr_log_dead(log, incoming->id, incoming->id, incoming->attempts, incoming->error);
}

static void count_inserted(struct pr_intake *intake,
			   const struct pr_incoming_event *incoming_events, size_t n)
{
	int64_t done = 0, failed = 0, dead = 0, duplicates = 0;

	for (size_t i = 0; i < n; i++) {
		const struct pr_incoming_event *incoming = &incoming_events[i];

		log_event(intake, incoming);
		duplicates += incoming->duplicate;
		if (incoming->duplicate)
			continue;
		done += incoming->how == PR_INSERT_COMPLETED && !incoming->waits;
		failed += incoming->attempts > 0;
		dead += incoming->how == PR_INSERT_DEAD;
		if (incoming->how == PR_INSERT_DEAD)
			pr_metrics_count_dead_event(intake->relay, incoming->topic,
						    incoming->attempts > 0);
	}
	pr_metrics_count_events(intake->relay, &(struct pr_event_counts){ .completed = done,
									  .duplicates = duplicates,
									  .failed = failed });
	pr_relay_add(intake->relay, done, failed, dead);
}

/* The statement failed for this event alone: it is inserted as pending. */
static void insert_as_failed(struct pr_intake *intake, struct pr_incoming_event *incoming,
			     const struct pr_err *err)
{
	const struct pr_policy *policy = &intake->config->relay.policy;
	postroom_delivery job = { .attempt = 1, .retry_in_ms = -1 };
	enum pr_disposition disposition;

	pr_verdict_set(&job, POSTROOM_FAILED, &intake->scratch, policy, err->text,
		       strlen(err->text));
	disposition = pr_verdict_decide(&job, policy, &intake->random);
	incoming->how = disposition == PR_DISPOSITION_DEAD ? PR_INSERT_DEAD : PR_INSERT_PENDING;
	incoming->attempts = 1;
	incoming->delay_ms = job.retry_in_ms;
	incoming->error = job.reason;
}

/*
 * The row alone is refused too: jsonb may be stricter than our check. Every database accepts its
 * bytes as a body. False: that was not the reason.
 */
static bool insert_as_bytes(struct pr_intake *intake, struct pr_incoming_event *incoming,
			    const struct pr_err *err)
{
	const char *why = pr_arena_strdup(&intake->scratch, err->text);

	if (!incoming->payload.data || !why)
		return false;
	incoming->how = PR_INSERT_DEAD;
	incoming->error = why;
	incoming->body = incoming->payload;
	incoming->payload = (struct pr_span){ 0 };
	incoming->headers = "{}";
	incoming->tenant_id = NULL;
	incoming->correlation_id = NULL;
	return true;
}

static enum pr_insert_order order_of(const struct pr_consume_config *config)
{
	if (!config->ordered)
		return PR_ORDER_NONE;
	return config->relay.policy.block ? PR_ORDER_DEAD : PR_ORDER_UNFINISHED;
}

/* Inserts the next n incoming events in one transaction. */
static int insert_part(struct pr_intake *intake, struct pr_incoming_event *incoming_events,
		       size_t n, size_t *ret_at, struct pr_err *err)
{
	const struct pr_consume_config *config = intake->config;
	const struct pr_inbox_insert insert = { .handler = config->relay.scope.ns,
						.statement = config->statement,
						.order = order_of(config),
						.events = incoming_events,
						.count = n };
	int status;

	pr_watchdog_feed(&intake->watchdog, 0);
	status = connect_intake(intake, err);
	if (status < 0)
		return status;
	return intake->store->ops->inbox_insert(intake->store, &insert, ret_at, err);
}

/* Any other failure is not the event's: it is retried on another connection until it succeeds. */
static int wait_for_database(struct pr_intake *intake, struct pr_err *err)
{
	bool stopped = err->status == POSTROOM_STOPPED;

	if (pr_schema_is_incompatible(err)) {
		pr_relay_log_incompatible(intake->relay, &intake->log, err);
		return err->status;
	}
	if (!stopped) {
		log_database_outage(intake, true, err->text);
		pr_store_close(intake->store);
		intake->store = NULL;
		if (give_up(intake, intake->database_outage_us, "database", err))
			return err->status;
		stopped = pause_before_retry(intake);
	}
	return stopped ? pr_err_set(err, POSTROOM_STOPPED, "stop requested") : POSTROOM_OK;
}

/* Returns POSTROOM_STOPPED if a stop came first. */
static int insert_all(struct pr_intake *intake, size_t total, struct pr_err *err)
{
	size_t from = 0, part = total;

	while (from < total) {
		struct pr_incoming_event *incoming_events = intake->incoming_events + from;
		size_t n = part < total - from ? part : total - from, at = 0;
		int status = insert_part(intake, incoming_events, n, &at, err);

		if (status >= 0) {
			log_database_outage(intake, false, NULL);
			count_inserted(intake, incoming_events, n);
			from += n;
			part *= 2;
		} else if (status == POSTROOM_TX_ABORTED && n > 1) {
			part = at > 0 ? at : 1;
		} else if (status == POSTROOM_TX_ABORTED &&
			   incoming_events->how == PR_INSERT_COMPLETED) {
			insert_as_failed(intake, incoming_events, err);
		} else if (status == POSTROOM_TX_ABORTED &&
			   insert_as_bytes(intake, incoming_events, err)) {
			continue;
		} else if (wait_for_database(intake, err) < 0) {
			return err->status;
		}
	}
	return POSTROOM_OK;
}

/* POSTROOM_SINK: the consumer must stop. */
static int check_replay(struct pr_intake *intake, struct pr_err *err)
{
	for (;;) {
		int status = connect_intake(intake, err);

		pr_watchdog_feed(&intake->watchdog, 0);
		if (status >= 0)
			status = pr_replay_check(&intake->replay, intake->store, &intake->events,
						 intake->incoming_events, err);
		if (status >= 0 || status == POSTROOM_NOMEM)
			return status;
		if (status == POSTROOM_SINK) {
			pr_log_box(&intake->log, PR_LOG_ERROR, "SOURCE_REPLAY");
			pr_log_str(&intake->log, "error", err->text);
			pr_log_end(&intake->log);
			return status;
		}
		if (wait_for_database(intake, err) < 0)
			return err->status;
	}
}

/* A failure loses nothing: the positions are saved later, with the next ones. */
static void save_progress(struct pr_intake *intake)
{
	struct pr_err unheard;

	if (intake->store)
		pr_replay_save(&intake->replay, intake->store, &unheard);
}

static int prepare_intake(struct pr_intake *intake, struct pr_err *err)
{
	const struct pr_consume_config *config = intake->config;
	size_t total = intake->events.count;

	if (total > intake->capacity) {
		struct pr_incoming_event *more = reallocarray(intake->incoming_events, total,
							      sizeof(*more));

		if (!more)
			return pr_err_nomem(err);
		intake->incoming_events = more;
		intake->capacity = total;
	}
	for (size_t i = 0; i < total; i++) {
		struct pr_incoming_event *incoming = &intake->incoming_events[i];
		int status = pr_incoming_event_make(&intake->events.list[i], &config->identity,
						    config->relay.scope.ns, &intake->events.arena,
						    incoming, err);

		if (status < 0)
			return status;
		if (config->statement && incoming->how == PR_INSERT_PENDING)
			incoming->how = PR_INSERT_COMPLETED;
	}
	return POSTROOM_OK;
}

/* Reads and inserts one batch. POSTROOM_NOT_FOUND: the source has ended. */
static int run_pass(struct pr_intake *intake, struct pr_err *err)
{
	const struct pr_source_ops *source = intake->source->ops;
	struct pr_flight flight = flight_of(intake, WAIT_MS);
	int status;

	pr_events_reset(&intake->events);
	pr_arena_reset(&intake->scratch);
	pr_watchdog_feed(&intake->watchdog, WAIT_MS);
	status = source->read(intake->source, &intake->events, intake->config->batch_size, &flight,
			      err);
	if (status < 0)
		return status;
	if (pr_replay_is_due(&intake->replay))
		save_progress(intake);
	if (intake->events.count == 0)
		return POSTROOM_OK;
	status = prepare_intake(intake, err);
	intake->extended_us = pr_mono_us();
	intake->unacked = true;
	if (status >= 0)
		status = check_replay(intake, err);
	if (status >= 0)
		status = insert_all(intake, intake->events.count, err);
	intake->unacked = false;
	if (status >= 0)
		status = pr_replay_pass(&intake->replay, &intake->events, err);
	if (status < 0)
		return status;
	if (pr_replay_is_due(&intake->replay))
		save_progress(intake);
	flight = flight_of(intake, ANSWER_MS);
	return source->ack(intake->source, &intake->events, &flight, err);
}

static int read_until_stopped(struct pr_intake *intake, struct pr_err *err)
{
	int64_t received_us = pr_mono_us();

	while (!pr_stop_requested(intake->stop)) {
		int status = run_pass(intake, err);

		pr_log_flush(&intake->log);
		if (status == POSTROOM_NOT_FOUND)
			return POSTROOM_OK;
		if (status == POSTROOM_NOMEM || status == POSTROOM_SINK || intake->gave_up ||
		    (status < 0 && pr_schema_is_incompatible(err)))
			return status;
		if (status >= 0) {
			log_source_outage(intake, false, NULL);
		} else if (status != POSTROOM_STOPPED) {
			log_source_outage(intake, true, err->text);
			if (give_up(intake, intake->source_outage_us, "broker", err))
				return err->status;
			pause_before_retry(intake);
		}
		if (status < 0 || intake->events.count > 0)
			received_us = pr_mono_us();
		else if (intake->config->drain && pr_mono_us() - received_us >= WATCHDOG_MS * 1000)
			return POSTROOM_OK;
	}
	return POSTROOM_OK;
}

void *pr_intake_run(void *context)
{
	struct pr_intake *intake = context;

	intake->status = read_until_stopped(intake, &intake->err);
	save_progress(intake);
	pr_watchdog_end(&intake->watchdog);
	/* An intake that ended because of an outage lets the jobs in the inbox be finished. */
	if (intake->status < 0 && !intake->gave_up)
		pr_relay_stop(intake->relay);
	return NULL;
}
