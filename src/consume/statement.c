/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handler that is an SQL statement.
 *
 * 1. The effect of a job and its completion are one transaction: a delivered job is settled by its
 *    handler, and otherwise nothing has happened.
 * 2. A database outage is an outage, not a failure of the job.
 */
#include "consume/consume.h"

#include <stdlib.h>

struct statement_sink {
	struct pr_sink sink;
	const struct pr_consume_config *config;
	struct postroom_store *store; /* NULL during an outage of the database */
};

static int connect_handler(struct statement_sink *sink, const struct pr_flight *flight,
			   struct pr_err *err)
{
	const struct pr_relay_config *relay = &sink->config->relay;
	const struct pr_store_config config = {
		.url = relay->url,
		.schema = relay->schema,
		.answer_ms = relay->lease_ms,
		.statement_ms = flight->timeout_ms,
		.busy_wait_ms = relay->lease_ms / 2,
		.stop = flight->stop,
		.finishing = true,
	};

	return sink->store ? POSTROOM_OK : pr_store_open(&config, &sink->store, err);
}

static void apply(struct statement_sink *sink, postroom_delivery *job,
		  const struct pr_flight *flight)
{
	struct pr_err err = { 0 };
	int status = connect_handler(sink, flight, &err);

	if (status >= 0)
		status = sink->store->ops->apply(sink->store, sink->config->statement, job, &err);
	if (status >= 0) {
		job->settled_by_handler = 1;
		pr_sink_judge(job, 1, POSTROOM_DELIVERED, flight, NULL);
	} else if (status == POSTROOM_TX_ABORTED) {
		pr_sink_judge(job, 1, POSTROOM_FAILED, flight, err.text);
	} else if (status != POSTROOM_LEASE_LOST && status != POSTROOM_STOPPED) {
		pr_sink_judge(job, 1, POSTROOM_UNREACHABLE, flight, err.text);
		pr_store_close(sink->store);
		sink->store = NULL;
	}
}

static int publish(struct pr_sink *base, postroom_delivery *jobs, size_t count,
		   const struct pr_flight *flight, struct pr_err *err)
{
	struct statement_sink *sink = (struct statement_sink *)base;
	const size_t *before = pr_sink_order(jobs, count, flight->arena);

	(void)err;
	if (!before) {
		pr_sink_judge(jobs, count, POSTROOM_UNREACHABLE, flight, "out of memory");
		return POSTROOM_OK;
	}
	for (size_t i = 0; i < count && pr_flight_may_begin(flight); i++) {
		if (before[i] == PR_SINK_NONE || jobs[before[i]].verdict == POSTROOM_DELIVERED)
			apply(sink, &jobs[i], flight);
		if (jobs[i].verdict == POSTROOM_UNREACHABLE)
			break;
	}
	return POSTROOM_OK;
}

static void close_statement(struct pr_sink *base)
{
	pr_store_close(((struct statement_sink *)base)->store);
}

static const char *const schemes[] = { "sql", NULL };
static const struct pr_param params[] = { { .name = NULL } };

static const struct pr_sink_ops statement_ops = {
	.schemes = schemes,
	.summary = "runs an SQL statement with each event",
	.size = sizeof(struct statement_sink),
	.params = params,
	.publish = publish,
	.close = close_statement,
};

int pr_statement_open(void *context, struct pr_sink **ret, struct pr_err *err)
{
	struct statement_sink *sink = calloc(1, sizeof(*sink));

	if (!sink)
		return pr_err_nomem(err);
	sink->sink.ops = &statement_ops;
	sink->config = context;
	*ret = &sink->sink;
	return POSTROOM_OK;
}
