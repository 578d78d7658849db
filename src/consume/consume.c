/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay over the inbox, and the intakes that read the broker.
 *
 * 1. Invalid settings, a statement that cannot run, an unusable database and a source that cannot
 *    be opened are found before the first thread starts.
 * 2. If any thread ends with an error, all end, and the error is the result. Only a drain that
 *    gives up on a broker still finishes the jobs in the inbox.
 * 3. When the source has ended, the relay continues until every job is completed or dead.
 */
#include "consume/consume.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct pr_consume {
	struct pr_consume_config config;
	struct pr_relay *relay;
	struct pr_intake *intakes;
	pthread_t *threads;
	size_t count; /* of both */
	size_t started;
	pthread_t waiter; /* waits for the end of the source */
};

/* Only a single reader keeps the events of a key in order. Inserting jobs is faster than processing
 * them. */
static size_t intakes_for(const struct pr_consume_config *config)
{
	if (!config->from)
		return 0;
	return config->statement && !config->ordered && !pr_store_is_embedded(config->relay.url)
		       ? (size_t)config->relay.workers
		       : 1;
}

static int open_intakes(struct pr_consume *consume, struct pr_err *err)
{
	size_t count = intakes_for(&consume->config);

	consume->intakes = calloc(count + 1, sizeof(*consume->intakes));
	consume->threads = calloc(count + 1, sizeof(*consume->threads));
	if (!consume->intakes || !consume->threads)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++) {
		struct pr_intake *intake = &consume->intakes[i];
		int status;

		intake->config = &consume->config;
		intake->relay = consume->relay;
		intake->sharers = count;
		intake->stop = pr_relay_stopping(consume->relay);
		snprintf(intake->name, sizeof(intake->name), "intake %zu", i + 1);
		consume->count++;
		status = pr_intake_open(intake, err);
		if (status < 0)
			return status;
		status = pr_relay_watch(consume->relay, &intake->watchdog, intake->name, err);
		if (status < 0)
			return status;
	}
	return POSTROOM_OK;
}

/* Checks that need the database, once, before any event is read. */
static int prepare_database(const struct pr_consume_config *config, struct pr_err *err)
{
	const struct pr_store_config store_config = {
		.url = config->relay.url,
		.schema = config->relay.schema,
		.busy_wait_ms = config->relay.lease_ms,
	};
	struct postroom_store *store = NULL;
	int status = pr_store_open(&store_config, &store, err);

	if (status >= 0 && config->statement)
		status = pr_store_check_statement(store, config->statement, err);
	if (status >= 0 && config->accept_replay)
		status = pr_store_delete_sources(store, config->relay.scope.ns, err);
	pr_store_close(store);
	return status;
}

int pr_consume_open(const struct pr_consume_config *config, struct pr_consume **ret,
		    struct pr_err *err)
{
	struct pr_consume *consume = calloc(1, sizeof(*consume));
	int status;

	if (!consume)
		return pr_err_nomem(err);
	consume->config = *config;
	/* Events that were read also count: the relay must not mistake a moment without work for
	 * the end. */
	consume->config.relay.drain = config->drain && !config->from;
	consume->config.relay.impatient = config->drain;
	if (config->statement)
		consume->config.relay.handler = (struct pr_handler){ pr_statement_open,
								     &consume->config };
	status = pr_relay_make(&consume->config.relay, &consume->relay, err);
	if (status >= 0 && config->beside.open)
		status = config->beside.open(config->beside.context, consume->relay, err);
	if (status >= 0)
		status = open_intakes(consume, err);
	if (status >= 0)
		status = pr_relay_ready(consume->relay, err);
	if (status >= 0 && (config->statement || config->accept_replay))
		status = prepare_database(config, err);
	if (status < 0) {
		pr_consume_close(consume);
		return status;
	}
	*ret = consume;
	return POSTROOM_OK;
}

/* When no more events come, the jobs in the inbox are finished and the consumer ends. */
static void *wait_for_end(void *context)
{
	struct pr_consume *consume = context;

	for (size_t i = 0; i < consume->started; i++)
		pthread_join(consume->threads[i], NULL);
	pr_relay_finish(consume->relay);
	return NULL;
}

static int start(struct pr_consume *consume, struct pr_err *err)
{
	for (; consume->started < consume->count; consume->started++) {
		struct pr_intake *intake = &consume->intakes[consume->started];
		pthread_t *thread = &consume->threads[consume->started];

		if (pthread_create(thread, NULL, pr_intake_run, intake) != 0)
			return pr_err_set(err, POSTROOM_NOMEM,
					  "consume: cannot start a thread: no "
					  "resources left");
		pthread_setname_np(*thread, intake->name);
	}
	return POSTROOM_OK;
}

int pr_consume_run(struct pr_consume *consume, struct pr_err *err)
{
	bool waiting = false;
	int status = start(consume, err);

	if (status >= 0 && consume->count > 0)
		waiting = pthread_create(&consume->waiter, NULL, wait_for_end, consume) == 0;
	if (status >= 0 && consume->count > 0 && !waiting)
		status = pr_err_set(err, POSTROOM_NOMEM,
				    "consume: cannot start a thread: no resources left");
	if (status >= 0)
		status = pr_relay_run(consume->relay, err);
	pr_relay_stop(consume->relay);
	if (waiting)
		pthread_join(consume->waiter, NULL);
	for (size_t i = 0; !waiting && i < consume->started; i++)
		pthread_join(consume->threads[i], NULL);
	for (size_t i = 0; status >= 0 && i < consume->started; i++) {
		if (consume->intakes[i].status < 0) {
			*err = consume->intakes[i].err;
			status = err->status;
		}
	}
	return status;
}

struct pr_relay *pr_consume_relay(struct pr_consume *consume)
{
	return consume->relay;
}

void pr_consume_close(struct pr_consume *consume)
{
	if (!consume)
		return;
	if (consume->config.beside.close)
		consume->config.beside.close(consume->config.beside.context);
	for (size_t i = 0; i < consume->count; i++)
		pr_intake_close(&consume->intakes[i]);
	pr_relay_close(consume->relay);
	free(consume->intakes);
	free(consume->threads);
	free(consume);
}
