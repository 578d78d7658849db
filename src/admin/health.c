/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes. /readyz waits for the database only when it has not answered lately, /healthz only when
 * no request has asked for counts lately: the janitor then has none, and the relay must not pass as
 * healthy.
 *
 * 1. A sink that is down degrades, and never fails readiness: a restart does not repair a broker.
 * 2. Every reason has its value and threshold, so that clients need not parse a sentence.
 * 3. "since" is a fact, never the time of a request: it is null where the relay does not know it.
 */
#include "admin/server.h"

#include "base/time.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*
 * A database that answered this recently is not asked again for a probe: a queue of slow queries, or
 * an action, must not delay it. The workers notice an outage before.
 */
#define FRESH_US (2 * PR_ADMIN_QUERY_MS * INT64_C(1000))
/* Store figures that are older than this say nothing about now. */
#define STALE_MS 120000

static const char *const words[] = { "healthy", "degraded", "unhealthy" };

struct judgment {
	struct pr_buf *out; /* NULL: only the levels count */
	int worst;
	int levels[PR_HEALTH_COMPONENTS];
};

struct dead {
	const char *component, *where;
	int64_t count;
	int64_t since_us; /* wall clock; 0: not known */
};

struct reason {
	const char *component, *message;
	int level;
	int64_t value, threshold; /* -1: none */
	int64_t since_us;	  /* wall clock; 0: not known */
};

static void put_number(struct pr_buf *out, const char *name, int64_t value)
{
	if (value >= 0)
		pr_put_int(out, name, value);
	else
		pr_put_json(out, name, NULL);
}

static void add_reason(struct judgment *judgment, const struct reason *reason)
{
	struct pr_buf *out = judgment->out;

	if (reason->level > judgment->worst)
		judgment->worst = reason->level;
	if (!out)
		return;
	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "component", reason->component);
	pr_put_text(out, "status", words[reason->level]);
	put_number(out, "value", reason->value);
	put_number(out, "threshold", reason->threshold);
	pr_put_time(out, "since", reason->since_us);
	pr_put_text(out, "message", reason->message);
	pr_buf_putc(out, '}');
}

static int level_of(int64_t value, const struct pr_admin_limit *limit)
{
	if (limit->unhealthy >= 0 && value >= limit->unhealthy)
		return 2;
	return limit->degraded >= 0 && value >= limit->degraded ? 1 : 0;
}

static int64_t threshold_of(int level, const struct pr_admin_limit *limit)
{
	return level == 2 ? limit->unhealthy : limit->degraded;
}

static void judge(struct judgment *judgment, enum pr_health_component which, const char *component,
		  int64_t value, const struct pr_admin_limit *limit)
{
	int level = level_of(value, limit);
	int64_t threshold = threshold_of(level, limit);
	int64_t since_us = 0;
	char message[160];

	judgment->levels[which] = level;
	if (level == 0)
		return;
	if (which == PR_HEALTH_AGE) {
		since_us = pr_now_us() - (value - threshold) * 1000000;
		snprintf(message, sizeof(message),
			 "the oldest due message is %" PRId64 " s old; the threshold is %" PRId64
			 " s",
			 value, threshold);
	} else {
		snprintf(message, sizeof(message),
			 "%" PRId64 " undelivered message%s; the threshold is %" PRId64, value,
			 value == 1 ? "" : "s", threshold);
	}
	add_reason(judgment, &(struct reason){ component, message, level, value, threshold, since_us });
}

/*
 * Dead letters of one table. The first one crossed a threshold of 1 when it died; of other thresholds it
 * is not known.
 */
static void judge_dead(struct judgment *judgment, const struct dead *dead,
		       const struct pr_admin_limit *limit)
{
	int level = level_of(dead->count, limit);
	int64_t threshold = threshold_of(level, limit);
	char message[100];

	if (level > judgment->levels[PR_HEALTH_DEAD])
		judgment->levels[PR_HEALTH_DEAD] = level;
	if (level == 0)
		return;
	snprintf(message, sizeof(message), "%" PRId64 " dead message%s%s; the threshold is %" PRId64,
		 dead->count, dead->count == 1 ? "" : "s", dead->where, threshold);
	add_reason(judgment, &(struct reason){ dead->component, message, level, dead->count,
					       threshold, threshold == 1 ? dead->since_us : 0 });
}

static void judge_store(struct judgment *judgment, const struct pr_relay_health *health)
{
	int64_t now_us = pr_now_us();
	int64_t outage_ms = health->database_outage_ms, overdue_ms = health->watchdog_overdue_ms;
	char message[100];

	judgment->levels[PR_HEALTH_STORE] = outage_ms ? 2 : 0;
	if (outage_ms)
		add_reason(judgment, &(struct reason){ "store", "the database cannot be reached", 2,
						       outage_ms / 1000, -1,
						       now_us - outage_ms * 1000 });
	if (overdue_ms) {
		snprintf(message, sizeof(message), "%s does not respond", health->watchdog_thread);
		add_reason(judgment, &(struct reason){ "worker", message, 2, overdue_ms / 1000, -1,
						       now_us - overdue_ms * 1000 });
	}
}

static void find_first_open(void *context, const struct pr_sink_view *sink)
{
	int64_t *since_us = context;

	if (sink->open_since_us && (!*since_us || sink->open_since_us < *since_us))
		*since_us = sink->open_since_us;
}

static void judge_sinks(struct judgment *judgment, struct pr_relay *relay,
			const struct pr_relay_health *health)
{
	char message[500];
	int64_t since_us = 0;

	judgment->levels[PR_HEALTH_SINK] = health->sinks_down > 0;
	if (health->sinks_down > 0) {
		if (judgment->out)
			pr_relay_sinks(relay, find_first_open, &since_us);
		snprintf(message, sizeof(message), "the sink%s%s is down: %s",
			 *health->sink ? " " : "", health->sink, health->reason);
		add_reason(judgment, &(struct reason){ "sink", message, 1, health->sinks_down, 1,
						       since_us });
	}
	if (health->unrouted > 0) {
		snprintf(message, sizeof(message), "%" PRId64 "%s messages match no route",
			 health->unrouted, health->unrouted >= PR_UNROUTED_MAX ? " or more" : "");
		add_reason(judgment,
			   &(struct reason){ "routes", message, 1, health->unrouted, 1, 0 });
	}
}

static bool read_gauges(struct pr_relay *relay, struct pr_gauges *ret)
{
	int64_t age_ms = 0;

	return pr_relay_gauges(relay, ret, &age_ms) && age_ms <= STALE_MS;
}

/* counted: figures that are newer than those of the janitor, or NULL. */
static void judge_all(struct judgment *judgment, struct pr_admin *admin,
		      const struct pr_admin_settings *settings, const struct pr_gauges *counted)
{
	const struct pr_admin_limit age = {
		settings->oldest_age_ms.degraded < 0 ? -1 : settings->oldest_age_ms.degraded / 1000,
		settings->oldest_age_ms.unhealthy < 0 ? -1
						      : settings->oldest_age_ms.unhealthy / 1000,
	};
	struct pr_relay_health health;
	struct pr_gauges gauges = { 0 };

	for (size_t i = 0; i < PR_HEALTH_COMPONENTS; i++)
		judgment->levels[i] = -1;
	pr_relay_health(admin->relay, &health);
	judge_store(judgment, &health);
	judge_sinks(judgment, admin->relay, &health);
	if (counted)
		gauges = *counted;
	else if (!read_gauges(admin->relay, &gauges))
		return;
	judge(judgment, PR_HEALTH_BACKLOG, "backlog", gauges.pending + gauges.processing,
	      &settings->backlog);
	judge(judgment, PR_HEALTH_AGE, "age",
	      gauges.oldest_age_us > 0 ? gauges.oldest_age_us / 1000000 : 0, &age);
	judge_dead(judgment, &(struct dead){ "dead", "", gauges.dead, gauges.dead_since_us },
		   &settings->dead);
	judge_dead(judgment,
		   &(struct dead){ "inbox", " in the inbox", gauges.inbox_dead,
				   gauges.inbox_dead_since_us },
		   &settings->dead);
}

int pr_put_health(struct pr_admin *admin, const struct pr_admin_settings *settings,
		  const struct pr_gauges *counted, struct pr_buf *out)
{
	struct pr_buf reasons = { 0 };
	struct judgment judgment = { .out = &reasons };

	judge_all(&judgment, admin, settings, counted);
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
	judge_all(&judgment, admin, settings, NULL);
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
	/* A probe may have no token: only others learn the address of the database. */
	bool known = request->role != PR_ROLE_NOBODY;
	struct postroom_store *store;
	struct pr_err err = { 0 };

	if (pr_readyz_answer(request))
		return;
	store = pr_database_store(request);
	if (!store)
		answer_probe(request, known ? request->admin->database.failure.text
					    : "the database cannot be used");
	else if (store->ops->check_schema(store, PR_SCHEMA_COMPATIBLE, &err) < 0)
		answer_probe(request, known ? err.text : "the database cannot be used");
	else
		answer_probe(request, NULL);
}

static void answer_health(struct pr_admin_request *request, const struct pr_gauges *counted)
{
	struct pr_buf *out = &request->answer.text;
	int level;

	pr_buf_reset(out);
	pr_buf_putc(out, '{');
	level = pr_put_health(request->admin, request->settings, counted, out);
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
	if (level == 2 && request->answer.code == 200)
		request->answer.code = 503;
}

bool pr_healthz_answer(struct pr_admin_request *request)
{
	struct pr_relay_health health;
	struct pr_gauges gauges;

	pr_relay_health(request->admin->relay, &health);
	if (!health.database_outage_ms && !read_gauges(request->admin->relay, &gauges))
		return false;
	answer_health(request, NULL);
	return true;
}

void pr_api_healthz(struct pr_admin_request *request)
{
	answer_health(request, pr_status_gauges(request));
}

/* The weight of a media type in an Accept header, in thousandths; 0: it is not accepted. */
static int weight_of(const char *accept, const char *type)
{
	size_t len = strlen(type);
	int best = 0;

	for (const char *at = accept; at && *at; at = strchr(at, ',')) {
		const char *end, *q;
		double weight = 1;

		at += strspn(at, ", \t");
		end = at + strcspn(at, ",");
		if (strncasecmp(at, type, len) != 0 || (at[len] && !strchr(",; \t", at[len])))
			continue;
		for (q = at; (q = strchr(q, ';')) && q < end; q++) {
			const char *name = q + 1 + strspn(q + 1, " \t");

			if (strncasecmp(name, "q=", 2) == 0)
				weight = strtod(name + 2, NULL);
		}
		if (weight > 0 && weight <= 1 && (int)(weight * 1000) > best)
			best = (int)(weight * 1000);
	}
	return best;
}

void pr_api_metrics(struct pr_admin_request *request)
{
	const char *accept = request->connection
				     ? MHD_lookup_connection_value(request->connection,
								   MHD_HEADER_KIND, "Accept")
				     : NULL;
	int weight = weight_of(accept, "application/openmetrics-text");
	bool open = weight > 0 && weight >= weight_of(accept, "text/plain");

	request->answer.type = open ? PR_METRICS_OPENMETRICS_TYPE : PR_METRICS_TEXT_TYPE;
	if (pr_metrics_write(request->admin->relay, &request->answer.text, open) < 0)
		request->answer.text.failed = true;
	pr_request_succeed(request);
}
