/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of the tables, collected by the janitor and cached for readers.
 *
 * 1. A scrape never causes a query: it gets the last collection, and its age.
 * 2. Gauges are collected only if they are read. An unmonitored relay stays idle.
 * 3. A failed collection changes nothing: the age of the last one grows.
 */
#include "relay/worker.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* After a scrape, the gauges are kept up to date for this long. */
#define WANTED_US 600000000LL

#define INTERVAL_MS 15000

#define GROUPS_MAX (2 * PR_GAUGES_TOPICS)

void pr_meter_want(struct pr_metrics *metrics)
{
	atomic_store(&metrics->collection.wanted_us, pr_mono_us() + WANTED_US);
}

/* A collection in progress. Names are offsets into the buffer until it is complete. */
struct gathering {
	struct pr_metrics *metrics;
	struct pr_topic_gauges *groups;
	size_t offsets[GROUPS_MAX][2]; /* namespace, name */
	size_t count;
	struct pr_buf names;
	struct {
		int64_t pending, processing, dead;
		bool seen;
	} topics[PR_TOPICS_MAX + 1];
};

static size_t add_name(struct gathering *gathering, const char *name)
{
	size_t at = gathering->names.len, len = strlen(name);
	char clean[3 * POSTROOM_TOPIC_MAX + 1];

	len = pr_utf8_sanitize(name, len, sizeof(clean), clean, sizeof(clean));
	pr_buf_append(&gathering->names, clean, len + 1);
	return at;
}

static void add_group(void *context, const struct pr_topic_gauges *group)
{
	struct gathering *gathering = context;
	size_t at = gathering->count;

	if (group->table == POSTROOM_OUTBOX) {
		size_t topic = pr_meter_topic(gathering->metrics, group->topic);

		gathering->topics[topic].pending += group->pending;
		gathering->topics[topic].processing += group->processing;
		gathering->topics[topic].dead += group->dead;
		gathering->topics[topic].seen = true;
	}
	if (at == GROUPS_MAX)
		return;
	gathering->groups[at] = *group;
	gathering->offsets[at][0] = add_name(gathering, group->ns ? group->ns : "");
	gathering->offsets[at][1] = add_name(gathering, group->topic);
	gathering->count++;
}

static void set_topics(struct pr_metrics *metrics, const struct gathering *gathering)
{
	for (size_t i = 0; i <= PR_TOPICS_MAX; i++) {
		struct pr_topic_meter *topic = &metrics->topics[i];

		if (gathering->topics[i].seen)
			atomic_store(&topic->collected, true);
		atomic_store(&topic->gauges.pending, gathering->topics[i].pending);
		atomic_store(&topic->gauges.processing, gathering->topics[i].processing);
		atomic_store(&topic->gauges.dead, gathering->topics[i].dead);
	}
}

/* The collection now owns the memory. */
static void keep(struct pr_metrics *metrics, struct gathering *gathering,
		 const struct pr_gauges *gauges)
{
	struct pr_collection *collection = &metrics->collection;

	for (size_t i = 0; i < gathering->count; i++) {
		struct pr_topic_gauges *group = &gathering->groups[i];

		if (group->ns)
			group->ns = gathering->names.data + gathering->offsets[i][0];
		group->topic = gathering->names.data + gathering->offsets[i][1];
	}
	set_topics(metrics, gathering);
	pthread_mutex_lock(&collection->lock);
	free(collection->groups);
	free(collection->names);
	collection->gauges = *gauges;
	collection->groups = gathering->groups;
	collection->group_count = gathering->count;
	collection->names = gathering->names.data;
	atomic_store(&collection->at_us, pr_now_us());
	pthread_mutex_unlock(&collection->lock);
}

static int collect(struct pr_worker *janitor, struct pr_err *err)
{
	struct pr_metrics *metrics = &janitor->relay->metrics;
	struct gathering gathering = { .metrics = metrics };
	int64_t begun_us = pr_mono_us();
	struct pr_gauges gauges;
	int status;

	gathering.groups = calloc(GROUPS_MAX, sizeof(*gathering.groups));
	if (!gathering.groups)
		return pr_err_nomem(err);
	status = janitor->store->ops->collect(janitor->store, PR_GAUGES_CAP, &gauges, add_group,
					      &gathering, err);
	pr_meter_store(metrics, PR_OPERATION_COLLECT, begun_us, status, err);
	if (status >= 0 && gathering.names.failed)
		status = pr_err_nomem(err);
	if (status >= 0) {
		keep(metrics, &gathering, &gauges);
		return POSTROOM_OK;
	}
	free(gathering.groups);
	pr_buf_release(&gathering.names);
	return status;
}

bool pr_janitor_is_watched(const struct pr_worker *janitor)
{
	return atomic_load(&janitor->relay->metrics.collection.wanted_us) > pr_mono_us();
}

void pr_janitor_collect(struct pr_worker *janitor)
{
	int64_t interval_ms = janitor->generation->config.collect_interval_ms;
	struct pr_err err = { 0 };

	if (interval_ms <= 0)
		interval_ms = INTERVAL_MS;
	janitor->collect_at_us = pr_mono_us() + interval_ms * 1000;
	pr_watchdog_feed(&janitor->watchdog, 0);
	if (pr_worker_connect(janitor, false, &err) < 0 || collect(janitor, &err) < 0) {
		pr_store_close(janitor->store);
		janitor->store = NULL;
	}
}

bool pr_relay_gauges(struct pr_relay *relay, struct pr_gauges *ret, int64_t *ret_age_ms)
{
	struct pr_collection *collection = &relay->metrics.collection;
	int64_t at_us;

	pr_meter_want(&relay->metrics);
	pthread_mutex_lock(&collection->lock);
	at_us = atomic_load(&collection->at_us);
	*ret = collection->gauges;
	pthread_mutex_unlock(&collection->lock);
	*ret_age_ms = (pr_now_us() - at_us) / 1000;
	if (*ret_age_ms < 0)
		*ret_age_ms = 0;
	return at_us != 0;
}

void pr_relay_groups(struct pr_relay *relay, pr_topic_gauges_fn fn, void *context)
{
	struct pr_collection *collection = &relay->metrics.collection;

	pthread_mutex_lock(&collection->lock);
	for (size_t i = 0; i < collection->group_count; i++)
		fn(context, &collection->groups[i]);
	pthread_mutex_unlock(&collection->lock);
}
