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

#define KNOWN_MAX 32

const struct pr_sink_ops *const pr_sinks[] = {
#ifndef PR_CALLBACK_ONLY /* for applications that embed the relay and publish themselves */
	&pr_sink_null,	&pr_sink_stdout, &pr_sink_file, &pr_sink_exec,
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

/* Sinks that a build may omit: the build option that adds it, and its package. */
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

/* Everything except opening it. */
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
	return status == POSTROOM_OK ? set_params(sink, settings, setting_count, err) : status;
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

	/* No error repeats the rest of the URL: it may contain a password. */
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

/* opened: otherwise it has only its settings, and is discarded without close. */
static int make(const char *url, const struct pr_url_setting *settings, size_t setting_count,
		bool opened, struct pr_sink **ret, struct pr_err *err)
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
	if (status == POSTROOM_OK && opened)
		status = ops->open(sink, err);
	if (status < 0) {
		discard(sink);
		return status;
	}
	*ret = sink;
	return POSTROOM_OK;
}

int pr_sink_open_with(const char *url, const struct pr_url_setting *settings, size_t setting_count,
		      struct pr_sink **ret, struct pr_err *err)
{
	return make(url, settings, setting_count, true, ret, err);
}

void pr_found_unreachable(struct pr_checkup *checkup, const char *why)
{
	pr_found(checkup, PR_LEVEL_PROBLEM, "%s cannot be reached, or refuses",
		 checkup->subject ? checkup->subject : "The receiver");
	pr_found_detail(checkup, "%s. Messages wait in the outbox; no attempt is used up.", why);
	pr_found_advice(checkup, "The administrator of the receiver repairs it, or the operator "
				 "corrects the URL, the user or the password of the sink.");
}

void pr_sink_probe(const char *url, const struct pr_url_setting *settings, size_t setting_count,
		   const struct pr_flight *flight, struct pr_checkup *checkup)
{
	const struct pr_sink_ops *ops = NULL;
	struct pr_sink *sink = NULL;
	struct pr_err err = { 0 };

	if (pr_sink_find(url, &ops, &err) < 0 ||
	    make(url, settings, setting_count, ops->probe && !ops->probes_closed, &sink, &err) <
		    0) {
		pr_found(checkup, PR_LEVEL_PROBLEM, "%s cannot be opened",
			 checkup->subject ? checkup->subject : "The sink");
		pr_found_detail(checkup, "%s. A relay refuses to start with it.", err.text);
		pr_found_advice(checkup,
				"The operator corrects the URL or the settings of the sink.");
		pr_found_command(checkup, "postroom sinks %s", ops ? ops->schemes[0] : "");
		return;
	}
	if (ops->probe)
		ops->probe(sink, flight, checkup);
	if (ops->probe && !ops->probes_closed)
		pr_sink_close(sink);
	else
		discard(sink);
}

void pr_sink_close(struct pr_sink *sink)
{
	if (!sink)
		return;
	if (sink->ops->close)
		sink->ops->close(sink);
	discard(sink);
}

static void raise_to(_Atomic int64_t *latest_us, int64_t us)
{
	int64_t before_us = atomic_load_explicit(latest_us, memory_order_relaxed);

	while (before_us < us && !atomic_compare_exchange_weak(latest_us, &before_us, us))
		;
}

void pr_sink_judge(postroom_delivery *items, size_t count, postroom_verdict verdict,
		   const struct pr_flight *flight, const char *reason)
{
	size_t len = reason ? strlen(reason) : 0;
	int64_t now_us = pr_mono_us();

	for (size_t i = 0; i < count; i++) {
		pr_verdict_set(&items[i], verdict, flight->arena, flight->policy, reason, len);
		items[i].judged_us = now_us;
		items[i].together = items[i].by_name = false;
		if (verdict != POSTROOM_DELIVERED || !flight->proof)
			continue;
		raise_to(&flight->proof->delivered_us, now_us);
		raise_to(&flight->proof->begun_us,
			 items[i].begun_us ? items[i].begun_us : flight->began_us);
	}
}

void pr_sink_judge_together(postroom_delivery *item, const struct pr_flight *flight,
			    const char *reason)
{
	pr_sink_judge(item, 1, POSTROOM_UNREACHABLE, flight, reason);
	item->together = true;
}

static void put_field(struct pr_buf *out, const char *name, const char *value)
{
	pr_buf_puts(out, name);
	pr_json_put_string(out, value);
}

/*
 * JSON as it was enqueued. A raw line break can only be white space between tokens. It becomes a
 * space, because a line is one message.
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
