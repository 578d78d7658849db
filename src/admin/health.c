/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes. Only /readyz waits for the database, and only when it has not answered lately.
 *
 * 1. A sink that is down degrades, and never fails readiness: a restart does not repair a broker.
 * 2. Every reason has its value and threshold, so that clients need not parse a sentence.
 */
#include "admin/server.h"

#include "base/time.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>

/* A database that answered this recently is not asked again for a probe. */
#define FRESH_US 5000000
/* Store figures that are older than this say nothing about now. */
#define STALE_MS 120000

static const char *const words[] = { "healthy", "degraded", "unhealthy" };

struct judgment {
	struct pr_buf *out; /* NULL: only the levels count */
	int worst;
	int levels[PR_HEALTH_COMPONENTS];
};

static void add_reason(struct judgment *judgment, const char *component, int level, int64_t value,
		       int64_t threshold, const char *message)
{
	struct pr_buf *out = judgment->out;

	if (level > judgment->worst)
		judgment->worst = level;
	if (!out)
		return;
	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "component", component);
	pr_put_text(out, "status", words[level]);
	if (value >= 0)
		pr_put_int(out, "value", value);
	else
		pr_put_json(out, "value", NULL);
	if (threshold >= 0)
		pr_put_int(out, "threshold", threshold);
	else
		pr_put_json(out, "threshold", NULL);
	pr_put_text(out, "message", message);
	pr_buf_putc(out, '}');
}

static void judge(struct judgment *judgment, enum pr_health_component which, const char *component,
		  int64_t value, const struct pr_admin_limit *limit)
{
	int level = limit->unhealthy >= 0 && value >= limit->unhealthy ? 2
		    : limit->degraded >= 0 && value >= limit->degraded ? 1
								       : 0;
	int64_t threshold = level == 2 ? limit->unhealthy : limit->degraded;
	char message[160];

	judgment->levels[which] = level;
	if (level == 0)
		return;
	if (which == PR_HEALTH_AGE)
		snprintf(message, sizeof(message),
			 "the oldest due message is %" PRId64 " s old; the threshold is %" PRId64
			 " s",
			 value, threshold);
	else
		snprintf(message, sizeof(message),
			 "%" PRId64 " %s messages; the threshold is %" PRId64, value,
			 which == PR_HEALTH_DEAD ? "dead" : "undelivered", threshold);
	add_reason(judgment, component, level, value, threshold, message);
}

static void judge_store(struct judgment *judgment, const struct pr_relay_health *health)
{
	judgment->levels[PR_HEALTH_STORE] = health->database_outage_ms ? 2 : 0;
	if (health->database_outage_ms)
		add_reason(judgment, "store", 2, health->database_outage_ms / 1000, -1,
			   "the database cannot be reached");
	if (health->watchdog_overdue_ms) {
		char message[100];

		snprintf(message, sizeof(message), "%s does not respond", health->watchdog_thread);
		add_reason(judgment, "worker", 2, health->watchdog_overdue_ms / 1000, -1, message);
	}
}

static void judge_sinks(struct judgment *judgment, const struct pr_relay_health *health)
{
	char message[500];

	judgment->levels[PR_HEALTH_SINK] = health->sinks_down > 0;
	if (health->sinks_down > 0) {
		snprintf(message, sizeof(message), "the sink%s%s is down: %s",
			 *health->sink ? " " : "", health->sink, health->reason);
		add_reason(judgment, "sink", 1, health->sinks_down, 1, message);
	}
	if (health->unrouted > 0) {
		snprintf(message, sizeof(message), "%" PRId64 "%s messages match no route",
			 health->unrouted, health->unrouted >= PR_UNROUTED_MAX ? " or more" : "");
		add_reason(judgment, "routes", 1, health->unrouted, 1, message);
	}
}

static void judge_all(struct judgment *judgment, struct pr_admin *admin,
		      const struct pr_admin_settings *settings)
{
	const struct pr_admin_limit age = {
		settings->oldest_age_ms.degraded < 0 ? -1 : settings->oldest_age_ms.degraded / 1000,
		settings->oldest_age_ms.unhealthy < 0 ? -1
						      : settings->oldest_age_ms.unhealthy / 1000,
	};
	struct pr_relay_health health;
	struct pr_gauges gauges = { 0 };
	int64_t age_ms = 0;

	for (size_t i = 0; i < PR_HEALTH_COMPONENTS; i++)
		judgment->levels[i] = -1;
	pr_relay_health(admin->relay, &health);
	judge_store(judgment, &health);
	judge_sinks(judgment, &health);
	if (!pr_relay_gauges(admin->relay, &gauges, &age_ms) || age_ms > STALE_MS)
		return;
	judge(judgment, PR_HEALTH_BACKLOG, "backlog", gauges.pending + gauges.processing,
	      &settings->backlog);
	judge(judgment, PR_HEALTH_AGE, "age",
	      gauges.oldest_age_us > 0 ? gauges.oldest_age_us / 1000000 : 0, &age);
	judge(judgment, PR_HEALTH_DEAD, "dead", gauges.dead, &settings->dead);
}

int pr_put_health(struct pr_admin *admin, const struct pr_admin_settings *settings,
		  struct pr_buf *out)
{
	struct pr_buf reasons = { 0 };
	struct judgment judgment = { .out = &reasons };

	judge_all(&judgment, admin, settings);
	pr_put_text(out, "status", words[judgment.worst]);
	pr_put_name(out, "reasons");
	pr_buf_putc(out, '[');
	pr_buf_puts(out, pr_buf_text(&reasons));
	pr_buf_putc(out, ']');
	out->failed = out->failed || reasons.failed;
	pr_buf_release(&reasons);
	return judgment.worst;
}

void pr_health_levels(void *context, int levels[PR_HEALTH_COMPONENTS])
{
	struct pr_admin *admin = context;
	struct judgment judgment = { 0 };
	struct pr_admin_settings *settings;

	pthread_mutex_lock(&admin->lock);
	settings = pr_settings_ref(admin->settings);
	pthread_mutex_unlock(&admin->lock);
	judge_all(&judgment, admin, settings);
	pr_settings_unref(settings);
	memcpy(levels, judgment.levels, sizeof(judgment.levels));
}

static void answer_probe(struct pr_admin_request *request, const char *why)
{
	struct pr_buf *out = &request->answer.text;

	pr_buf_reset(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "status", why ? "unavailable" : "ok");
	pr_put_text(out, "reason", why);
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
	if (why && request->answer.code == 200)
		request->answer.code = 503;
}

void pr_api_livez(struct pr_admin_request *request)
{
	struct pr_relay_health health;
	char why[100];

	pr_relay_health(request->admin->relay, &health);
	snprintf(why, sizeof(why), "%s does not respond", health.watchdog_thread);
	answer_probe(request, health.watchdog_overdue_ms ? why : NULL);
}

bool pr_readyz_answer(struct pr_admin_request *request)
{
	struct pr_admin *admin = request->admin;
	int64_t answered_us = atomic_load(&admin->database.answered_us);
	struct pr_relay_health health;

	pr_relay_health(admin->relay, &health);
	if (pr_stop_requested(pr_relay_stopping(admin->relay)))
		answer_probe(request, "the relay is stopping");
	else if (!health.running)
		answer_probe(request, "the relay is starting");
	else if (answered_us && pr_mono_us() - answered_us < FRESH_US && !health.database_outage_ms)
		answer_probe(request, NULL);
	else
		return false;
	return true;
}

void pr_api_readyz(struct pr_admin_request *request)
{
	struct postroom_store *store;
	struct pr_err err = { 0 };

	if (pr_readyz_answer(request))
		return;
	store = pr_database_store(request);
	if (!store)
		answer_probe(request, request->admin->database.failure.text);
	else if (store->ops->check_compatible(store, &err) < 0)
		answer_probe(request, err.text);
	else
		answer_probe(request, NULL);
}

void pr_api_healthz(struct pr_admin_request *request)
{
	struct pr_buf *out = &request->answer.text;
	int level;

	pr_buf_putc(out, '{');
	level = pr_put_health(request->admin, request->settings, out);
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
	if (level == 2 && request->answer.code == 200)
		request->answer.code = 503;
}

void pr_api_metrics(struct pr_admin_request *request)
{
	const char *accept = request->connection
				     ? MHD_lookup_connection_value(request->connection,
								   MHD_HEADER_KIND, "Accept")
				     : NULL;
	bool open = accept && strstr(accept, "application/openmetrics-text");

	request->answer.type = open ? PR_METRICS_OPENMETRICS_TYPE : PR_METRICS_TEXT_TYPE;
	if (pr_metrics_write(request->admin->relay, &request->answer.text, open) < 0)
		request->answer.text.failed = true;
	pr_request_succeed(request);
}
