/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a relay is doing, for Prometheus, the admin API and the dashboard. Every function is safe
 * from any thread between pr_relay_make() and pr_relay_close(), and waits for no worker.
 */
#ifndef PR_RELAY_METRICS_H
#define PR_RELAY_METRICS_H

#include "base/buf.h"
#include "store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pr_relay;

#define PR_METRICS_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define PR_METRICS_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Appends the whole text of /metrics. POSTROOM_NOMEM: the buffer failed. */
int pr_metrics_write(struct pr_relay *relay, struct pr_buf *out, bool openmetrics);

/* postroom_http_requests_total. route is the template, such as "/api/v1/outbox/{id}". */
void pr_metrics_count_request(struct pr_relay *relay, const char *route, int code);

/* postroom_operator_actions_total. action is "retry", "delete" or "purge". */
void pr_metrics_count_action(struct pr_relay *relay, const char *action, int64_t rows);

/* Events of a consumer that its workers do not see, because they are not claimed. */
struct pr_event_counts {
	int64_t completed, duplicates, failed;
};
void pr_metrics_count_events(struct pr_relay *relay, const struct pr_event_counts *counts);
/* A dead letter among them; tried: its last attempt failed. */
void pr_metrics_count_dead_event(struct pr_relay *relay, const char *topic, bool tried);

/* A new configuration was refused before it reached pr_relay_reload(). */
void pr_metrics_count_refused_reload(struct pr_relay *relay);

enum pr_health_component {
	PR_HEALTH_STORE,
	PR_HEALTH_SINK,
	PR_HEALTH_BACKLOG,
	PR_HEALTH_AGE,
	PR_HEALTH_DEAD,
	PR_HEALTH_COMPONENTS
};

/* For each component: 0 healthy, 1 degraded, 2 unhealthy, -1 not known, which has no series. */
typedef void (*pr_health_fn)(void *context, int levels[PR_HEALTH_COMPONENTS]);
/* Decides postroom_health from now on, at each scrape; fn is NULL: the relay's own view again. */
void pr_metrics_set_health(struct pr_relay *relay, pr_health_fn fn, void *context);

#define PR_LAST_ERROR_SIZE 300

struct pr_sink_view {
	const char *name;	  /* the label of its series; never NULL */
	const char *url_redacted; /* "" if it has none */
	const char *breaker;	  /* "closed", "open" or "half-open" */
	bool breaker_open;
	int64_t open_since_us; /* 0: it is closed; wall clock, as the next two */
	char last_error[PR_LAST_ERROR_SIZE];
	int64_t last_error_at_us; /* 0: never */
	int64_t last_delivery_at_us;
	int64_t in_flight;
	int64_t delivered, failed;
};
/* Each sink of the present configuration. The pointers last until pr_relay_close(). */
void pr_relay_sinks(struct pr_relay *relay, void (*fn)(void *context, const struct pr_sink_view *),
		    void *context);

/*
 * The last error that this process received for a topic, in any namespace. Returns when that was; 0:
 * none, or the topic is beyond the limit of topics.
 */
int64_t pr_relay_topic_error(struct pr_relay *relay, const char *topic,
			     char ret[PR_LAST_ERROR_SIZE]);

struct pr_worker_view {
	char worker[37];   /* locked_by; "" until it is connected */
	const char *sink;  /* as in pr_sink_view */
	const char *state; /* "idle", "claiming", "publishing" or "settling" */
	int64_t in_flight;
	int64_t since_us; /* of the state; wall clock */
};
void pr_relay_workers(struct pr_relay *relay,
		      void (*fn)(void *context, const struct pr_worker_view *), void *context);

/*
 * The janitor's last collection. False: there is none yet. Asking makes the janitor collect for
 * the next ten minutes, as a scrape does.
 */
bool pr_relay_gauges(struct pr_relay *relay, struct pr_gauges *ret, int64_t *ret_age_ms);
/* The topics and handlers of that collection. */
void pr_relay_groups(struct pr_relay *relay, pr_topic_gauges_fn fn, void *context);

/* Complete samples of 5 s over the last 15 minutes, for charts. */
#define PR_HISTORY_MAX 179
struct pr_history_sample {
	int64_t at_us; /* when it began; wall clock */
	int64_t delivered, failed;
	double p50, p99; /* seconds from enqueue to acknowledgement; -1: nothing was delivered */
};
/* Oldest first; returns how many. */
size_t pr_relay_history(struct pr_relay *relay, struct pr_history_sample ret[PR_HISTORY_MAX]);

#endif
