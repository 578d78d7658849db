/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/sink.h"

#include "base/json.h"
#include "base/text.h"
#include "base/time.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What a buffer may keep between batches: more than an ordinary batch needs. */
#define KEEP_BYTES ((size_t)2 * 1024 * 1024)

#define KNOWN_MAX 32

/* Whoever waits past the end of a stop's grace looks again soon. */
#define OVERDUE_PAUSE_US 10000

const struct pr_sink_ops *const pr_sinks[] = {
#ifndef PR_CALLBACK_ONLY /* an application that embeds the relay publishes by itself */
	&pr_sink_null, &pr_sink_stdout, &pr_sink_file, &pr_sink_exec,
#ifdef PR_WITH_HTTP
	&pr_sink_http,
#endif
#ifdef PR_WITH_KAFKA
	&pr_sink_kafka,
#endif
#ifdef PR_WITH_REDIS
	&pr_sink_redis,
#endif
#ifdef PR_WITH_AMQP
	&pr_sink_amqp,
#endif
#ifdef PR_WITH_NATS
	&pr_sink_nats,
#endif
#endif
	NULL,
};

/* What a build may leave out: by which option it comes back, and from which package. */
static const struct optional {
	const char *scheme, *option, *package;
} left_out[] = {
#ifndef PR_WITH_HTTP
	{ "http", "http", "libcurl4-openssl-dev" },
	{ "https", "http", "libcurl4-openssl-dev" },
#endif
#ifndef PR_WITH_KAFKA
	{ "kafka", "kafka", "librdkafka-dev" },
#endif
#ifndef PR_WITH_REDIS
	{ "redis", "redis", "libhiredis-dev" },
	{ "rediss", "redis", "libhiredis-dev" },
#endif
#ifndef PR_WITH_AMQP
	{ "amqp", "amqp", "librabbitmq-dev" },
	{ "amqps", "amqp", "librabbitmq-dev" },
#endif
#ifndef PR_WITH_NATS
	{ "nats", "nats", "libnats-dev" },
#endif
	{ NULL, NULL, NULL },
};

static const struct pr_sink_ops *find(const char *scheme)
{
	for (size_t i = 0; pr_sinks[i]; i++) {
		for (const char *const *name = pr_sinks[i]->schemes; *name; name++) {
			if (strcasecmp(*name, scheme) == 0)
				return pr_sinks[i];
		}
	}
	return NULL;
}

int pr_sink_left_out(const char *scheme, struct pr_err *err)
{
	for (const struct optional *sink = left_out; sink->scheme; sink++) {
		if (strcasecmp(sink->scheme, scheme) == 0)
			return pr_err_set(err, POSTROOM_SINK,
					  "this postroom was built without %s; build it with "
					  "-D%s=enabled (%s)",
					  sink->scheme, sink->option, sink->package);
	}
	return POSTROOM_OK;
}

static int unknown(const char *scheme, struct pr_err *err)
{
	const char *known[KNOWN_MAX + 1] = { NULL };
	char list[500] = "";
	size_t count = 0, used = 0;
	const char *nearest;

	if (pr_sink_left_out(scheme, err) < 0)
		return err->status;
	for (size_t i = 0; pr_sinks[i]; i++) {
		for (const char *const *name = pr_sinks[i]->schemes; *name; name++) {
			if (count == KNOWN_MAX || used >= sizeof(list))
				break;
			used += (size_t)snprintf(list + used, sizeof(list) - used,
						 "%s%s:", used ? " " : "", *name);
			known[count++] = *name;
		}
	}
	nearest = pr_text_nearest(scheme, known);
	if (nearest)
		return pr_err_set(err, POSTROOM_SINK,
				  "there is no sink \"%s:\"; did you mean \"%s:\"? Known: %s",
				  scheme, nearest, list);
	return pr_err_set(err, POSTROOM_SINK, "there is no sink \"%s:\". Known: %s", scheme, list);
}

static int set_params(struct pr_sink *sink, const struct pr_url_setting *settings, size_t count,
		      struct pr_err *err)
{
	for (size_t i = 0; i < count; i++) {
		const struct pr_url_setting *setting = &settings[i];

		if (pr_params_set(sink->ops->params, sink, setting->name, setting->value, err) <
		    0) {
			pr_err_prefix(err, "%s", sink->ops->schemes[0]);
			return err->status = POSTROOM_SINK;
		}
	}
	return POSTROOM_OK;
}

static int set_up(struct pr_sink *sink, const char *url, const struct pr_url_setting *settings,
		  size_t setting_count, struct pr_err *err)
{
	int status = POSTROOM_OK;

	pr_params_defaults(sink->ops->params, sink);
	if (sink->ops->verbatim) {
		sink->target = strdup(strchr(url, ':') + 1);
		if (!sink->target)
			return pr_err_nomem(err);
	} else {
		status = pr_url_parse(url, &sink->url, err);
		if (status == POSTROOM_INVALID)
			status = err->status = POSTROOM_SINK;
		if (status == POSTROOM_OK)
			status = set_params(sink, sink->url.settings, sink->url.setting_count, err);
	}
	if (status == POSTROOM_OK)
		status = set_params(sink, settings, setting_count, err);
	return status == POSTROOM_OK ? sink->ops->open(sink, err) : status;
}

static void discard(struct pr_sink *sink)
{
	pr_url_release(&sink->url);
	free(sink->target);
	free(sink);
}

int pr_sink_find(const char *url, const struct pr_sink_ops **ret, struct pr_err *err)
{
	char scheme[32];
	size_t len = strcspn(url, ":");

	/* Neither error repeats the rest of the URL: a password may be in it. */
	if (!url[len])
		return pr_err_set(err, POSTROOM_SINK,
				  "a sink is written SCHEME:…, as in file:PATH; there is no ':' in "
				  "it");
	snprintf(scheme, sizeof(scheme), "%.*s", (int)(len < INT_MAX ? len : INT_MAX), url);
	*ret = find(scheme);
	return *ret ? POSTROOM_OK : unknown(scheme, err);
}

int pr_sink_open(const char *url, struct pr_sink **ret, struct pr_err *err)
{
	return pr_sink_open_with(url, NULL, 0, ret, err);
}

int pr_sink_open_with(const char *url, const struct pr_url_setting *settings, size_t setting_count,
		      struct pr_sink **ret, struct pr_err *err)
{
	const struct pr_sink_ops *ops;
	struct pr_sink *sink;
	int status = pr_sink_find(url, &ops, err);

	if (status < 0)
		return status;
	sink = calloc(1, ops->size);
	if (!sink)
		return pr_err_nomem(err);
	sink->ops = ops;
	status = set_up(sink, url, settings, setting_count, err);
	if (status < 0) {
		discard(sink);
		return status;
	}
	*ret = sink;
	return POSTROOM_OK;
}

void pr_sink_close(struct pr_sink *sink)
{
	if (!sink)
		return;
	if (sink->ops->close)
		sink->ops->close(sink);
	discard(sink);
}

bool pr_flight_may_begin(const struct pr_flight *flight)
{
	return !pr_stop_requested(flight->stop) && pr_mono_us() < flight->begin_until_us &&
	       !pr_flight_lost(flight);
}

bool pr_flight_lost(const struct pr_flight *flight)
{
	return flight->beat && pr_mono_us() >= flight->beat->until_us;
}

/* Until when to wait at most, so that the lease is renewed in time, and its end is noticed. */
static int64_t keep_lease(const struct pr_flight *flight, int64_t until_us)
{
	struct pr_beat *beat = flight->beat;

	/* Who finds it over may have stood still for long: it is not renewed, others may be at work. */
	if (!beat || pr_flight_lost(flight))
		return until_us;
	if (pr_mono_us() >= beat->next_us)
		beat->renew(beat);
	if (beat->next_us < until_us)
		until_us = beat->next_us;
	return beat->until_us < until_us ? beat->until_us : until_us;
}

int pr_flight_wait(const struct pr_flight *flight, struct pollfd *ret_own, int64_t until_us)
{
	/* Asked first: what is requested in between wakes at once. */
	int news = pr_stop_news_fd(flight->stop);
	int64_t kept_us = keep_lease(flight, until_us);
	int64_t stop_us = pr_stop_deadline_us(flight->stop);
	int64_t now_us = pr_mono_us();
	int64_t left_ms;

	*ret_own = (struct pollfd){ .fd = news, .events = POLLIN };
	until_us = kept_us;
	if (stop_us && stop_us < until_us)
		until_us = stop_us > now_us ? stop_us : now_us + OVERDUE_PAUSE_US;
	left_ms = until_us > now_us ? (until_us - now_us + 999) / 1000 : 0;
	return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

void pr_flight_poll(const struct pr_flight *flight, struct pollfd *fds, nfds_t count,
		    int64_t until_us)
{
	int left_ms = pr_flight_wait(flight, &fds[0], until_us);

	if (poll(fds, count, left_ms) <= 0) {
		for (nfds_t i = 0; i < count; i++)
			fds[i].revents = 0;
	}
}

void pr_sink_judge(postroom_delivery *items, size_t count, postroom_verdict verdict,
		   const struct pr_flight *flight, const char *reason)
{
	size_t len = reason ? strlen(reason) : 0;

	for (size_t i = 0; i < count; i++)
		pr_verdict_set(&items[i], verdict, flight->arena, flight->policy, reason, len);
}

void pr_sink_trim(struct pr_buf *buf)
{
	if (buf->cap > KEEP_BYTES)
		pr_buf_release(buf);
	pr_buf_reset(buf);
}

static void put_field(struct pr_buf *out, const char *name, const char *value)
{
	pr_buf_puts(out, name);
	pr_json_put_string(out, value);
}

/*
 * JSON as it was enqueued. A raw line break in it can only be white space
 * between tokens; it becomes a space, since a line is one message.
 */
static void put_json(struct pr_buf *out, const char *name, const char *text, size_t len)
{
	size_t start;

	pr_buf_puts(out, name);
	start = out->len;
	pr_buf_append(out, text, len);
	if (out->failed || (!memchr(text, '\n', len) && !memchr(text, '\r', len)))
		return;
	for (char *at = out->data + start; at < out->data + out->len; at++) {
		if (*at == '\n' || *at == '\r')
			*at = ' ';
	}
}

void pr_sink_put_line(struct pr_buf *out, const postroom_delivery *item)
{
	char created[PR_RFC3339_SIZE];
	char number[32];

	pr_rfc3339(item->created_at_us, created);
	snprintf(number, sizeof(number), "%d", item->attempt);
	put_field(out, "{\"id\":", item->id);
	put_field(out, ",\"namespace\":", item->ns);
	put_field(out, ",\"topic\":", item->topic);
	put_field(out, ",\"key\":", item->key);
	put_field(out, ",\"tenant_id\":", item->tenant_id);
	put_field(out, ",\"dedupe_key\":", item->dedupe_key);
	put_field(out, ",\"correlation_id\":", item->correlation_id);
	pr_buf_puts(out, ",\"attempt\":");
	pr_buf_puts(out, number);
	put_field(out, ",\"created_at\":", created);
	put_json(out, ",\"headers\":", item->headers, strlen(item->headers));
	put_field(out, ",\"content_type\":", item->content_type);
	put_json(out, ",\"payload\":", item->payload, item->payload_len);
	if (item->body) {
		pr_buf_puts(out, ",\"body_base64\":");
		pr_json_put_base64(out, item->body, item->body_len);
	}
	pr_buf_puts(out, "}\n");
}
