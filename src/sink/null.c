/* SPDX-License-Identifier: Apache-2.0 */
/* null: accepts every message and keeps only a count. */
#include "sink/sink.h"

struct null_sink {
	struct pr_sink sink;
	int64_t total;
};

static int open_null(struct pr_sink *sink, struct pr_err *err)
{
	if (sink->url.path[0] || sink->url.host[0])
		return pr_err_set(err, POSTROOM_SINK, "null: takes nothing after the colon");
	return POSTROOM_OK;
}

static int null_publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
			const struct pr_flight *flight, struct pr_err *err)
{
	struct null_sink *null = (struct null_sink *)sink;

	(void)err;
	if (!pr_flight_may_begin(flight))
		return POSTROOM_OK;
	pr_sink_judge(items, count, POSTROOM_DELIVERED, flight, NULL);
	null->total += (int64_t)count;
	pr_log_event(flight->log, PR_LOG_DEBUG, "NULL_COUNT");
	pr_log_int(flight->log, "count", (int64_t)count);
	pr_log_int(flight->log, "total", null->total);
	pr_log_end(flight->log);
	return POSTROOM_OK;
}

static const char *const schemes[] = { "null", NULL };
static const struct pr_param params[] = { { .name = NULL } };

const struct pr_sink_ops pr_sink_null = {
	.schemes = schemes,
	.summary = "counts messages and drops them; for tests and measurements",
	.example = "null:",
	.size = sizeof(struct null_sink),
	.params = params,
	.open = open_null,
	.publish = null_publish,
};
