/* SPDX-License-Identifier: Apache-2.0 */
/* The database as the source of `postroom top`: only counts, because it has no data about relays. */
#include "cli/top.h"

#include <stdio.h>
#include <string.h>

static int by_size(const void *left, const void *right)
{
	const struct top_topic *a = left, *b = right;
	int64_t a_size = a->pending + a->processing, b_size = b->pending + b->processing;

	if (a_size != b_size)
		return a_size > b_size ? -1 : 1;
	if (a->dead != b->dead)
		return a->dead > b->dead ? -1 : 1;
	return strcmp(a->name, b->name);
}

void top_add_topic(struct top_view *view, const struct top_topic *topic)
{
	size_t at = view->topic_count;

	if (at == TOP_TOPICS && by_size(topic, &view->topics[--at]) > 0)
		return;
	while (at > 0 && by_size(topic, &view->topics[at - 1]) < 0) {
		view->topics[at] = view->topics[at - 1];
		at--;
	}
	view->topics[at] = *topic;
	if (view->topic_count < TOP_TOPICS)
		view->topic_count++;
}

static double seconds(int64_t age_us)
{
	return age_us < 0 ? -1 : (double)age_us / 1e6;
}

static void take_topic(void *context, const struct pr_topic_gauges *gauges)
{
	struct top_topic topic = {
		.pending = gauges->pending,
		.processing = gauges->processing,
		.failed = gauges->failed_pending,
		.dead = gauges->dead,
		.oldest_age = seconds(gauges->oldest_age_us),
	};
	if (gauges->table != POSTROOM_OUTBOX)
		return;
	snprintf(topic.name, sizeof(topic.name), "%s", gauges->topic);
	top_add_topic(context, &topic);
}

static int take_group(void *context, const postroom_group *group)
{
	struct top_view *view = context;
	struct top_error *error = &view->errors[view->error_count++];

	error->count = group->count;
	snprintf(error->topic, sizeof(error->topic), "%s", group->topic ? group->topic : "");
	snprintf(error->text, sizeof(error->text), "%s",
		 group->example_error ? group->example_error : "");
	return view->error_count == TOP_ERRORS;
}

int top_read_store(struct postroom_store *store, struct top_view *view, struct pr_err *err)
{
	struct pr_gauges gauges;
	int status = store->ops->collect(store, PR_GAUGES_CAP, &gauges, take_topic, view, err);

	if (status < 0)
		return status;
	view->pending = gauges.pending;
	view->processing = gauges.processing;
	view->failed = gauges.failed_pending;
	view->scheduled = gauges.scheduled;
	view->dead = gauges.dead;
	view->capped = gauges.capped;
	view->topics_capped = gauges.capped || gauges.topics_capped;
	view->oldest_age = seconds(gauges.oldest_age_us);
	/* Causes are optional: an error is ignored. */
	if (view->dead > 0)
		postroom_groups(store, POSTROOM_FILTER(.status = "dead"), TOP_ERRORS, take_group,
				view, NULL);
	return POSTROOM_OK;
}
