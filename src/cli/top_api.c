/* SPDX-License-Identifier: Apache-2.0 */
/* The admin API of a relay as the source of `postroom top`. */
#include "base/json.h"
#include "cli/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 2000

/* The member of an object; an empty span if there is none. */
static struct pr_span top_member(struct pr_span object, const char *name)
{
	struct pr_json_members walk;
	struct pr_span found, value;
	char quoted[64];

	if (!object.len || pr_json_kind(object) != '{')
		return (struct pr_span){ 0 };
	snprintf(quoted, sizeof(quoted), "\"%s\"", name);
	walk = pr_json_members(object);
	while (pr_json_next(&walk, &found, &value)) {
		if (pr_json_is(found, quoted))
			return value;
	}
	return (struct pr_span){ 0 };
}

static double real_of(struct pr_span object, const char *name, double fallback)
{
	struct pr_span value = top_member(object, name);
	char text[40];

	if (!value.len || pr_json_kind(value) != '0')
		return fallback;
	snprintf(text, sizeof(text), "%.*s", (int)value.len, value.data);
	return strtod(text, NULL);
}

static int64_t number_of(struct pr_span object, const char *name)
{
	return (int64_t)real_of(object, name, 0);
}

static bool is_true(struct pr_span object, const char *name)
{
	struct pr_span value = top_member(object, name);

	return value.len && pr_json_kind(value) == 't';
}

static void text_of(struct pr_span object, const char *name, char *out, size_t size)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_span value = top_member(object, name);

	if (value.len && pr_json_kind(value) == '"')
		pr_json_decode(value, &text);
	snprintf(out, size, "%s", pr_buf_text(&text));
}

/* The next element of a valid array; *at begins after its bracket. */
static bool next_element(struct pr_span *rest, struct pr_span *ret)
{
	const char *at = rest->data, *end = at + rest->len;
	int depth = 0;
	bool quoted = false;

	while (at < end && strchr(" \t\r\n,", *at))
		at++;
	ret->data = at;
	for (; at < end; at++) {
		if (quoted && *at == '\\') {
			at++;
		} else if (*at == '"') {
			quoted = !quoted;
		} else if (quoted) {
			continue;
		} else if (*at == '{' || *at == '[') {
			depth++;
		} else if (*at == ',' && depth == 0) {
			break;
		} else if ((*at == '}' || *at == ']') && depth-- == 0) {
			break;
		}
	}
	if (at > end)
		at = end;
	ret->len = (size_t)(at - ret->data);
	*rest = (struct pr_span){ at, (size_t)(end - at) };
	return ret->len > 0;
}

static struct pr_span begin_list(struct pr_span list)
{
	if (!list.len || pr_json_kind(list) != '[')
		return (struct pr_span){ 0 };
	return (struct pr_span){ list.data + 1, list.len - 1 };
}

static struct pr_span items_of(struct pr_span answer)
{
	return begin_list(top_member(answer, "items"));
}

/* The response as valid JSON, in buf. */
static int read_answer(const char *url, const char *token, const char *path, struct pr_buf *buf,
		       struct pr_span *ret, struct pr_err *err)
{
	int status;

	pr_buf_reset(buf);
	status = cli_fetch(url, path, token, TIMEOUT_MS, buf, err);
	if (status < 0)
		return status;
	*ret = (struct pr_span){ pr_buf_text(buf), buf->len };
	if (!pr_json_check(ret->data, ret->len, NULL))
		return pr_err_set(err, POSTROOM_UNAVAILABLE, "%s%s does not return JSON", url,
				  path);
	return POSTROOM_OK;
}

static void read_stats(struct pr_span answer, struct top_view *view)
{
	static const char *const windows[] = { "1m", "5m", "15m" };
	struct pr_span rates = top_member(answer, "rates"), sample;
	struct pr_span history = begin_list(top_member(answer, "history"));

	text_of(answer, "status", view->status, sizeof(view->status));
	view->live = true;
	view->pending = number_of(answer, "pending");
	view->processing = number_of(answer, "processing");
	view->failed = number_of(answer, "failed_pending");
	view->scheduled = number_of(answer, "scheduled");
	view->dead = number_of(answer, "dead");
	view->oldest_age = real_of(answer, "oldest_age_seconds", -1);
	view->capped = is_true(answer, "capped");
	for (size_t i = 0; i < 3; i++) {
		struct pr_span window = top_member(rates, windows[i]);

		view->rates[i] = (struct top_rate){
			.delivered = real_of(window, "delivered_per_second", 0),
			.failed = real_of(window, "failed_per_second", 0),
			.failure_ratio = real_of(window, "failure_ratio", 0),
		};
	}
	while (next_element(&history, &sample)) {
		double p50 = real_of(sample, "p50_seconds", -1);

		if (p50 < 0)
			continue;
		view->p50 = p50;
		view->p99 = real_of(sample, "p99_seconds", -1);
	}
}

static void read_topics(struct pr_span answer, struct top_view *view)
{
	struct pr_span items = items_of(answer), item;

	view->topics_capped = is_true(answer, "capped");
	while (next_element(&items, &item)) {
		struct top_topic topic = {
			.pending = number_of(item, "pending"),
			.processing = number_of(item, "processing"),
			.failed = number_of(item, "failed_pending"),
			.dead = number_of(item, "dead"),
			.oldest_age = real_of(item, "oldest_age_seconds", -1),
		};

		text_of(item, "topic", topic.name, sizeof(topic.name));
		top_add_topic(view, &topic);
	}
}

static void read_sinks(struct pr_span answer, struct top_view *view)
{
	struct pr_span items = items_of(answer), item;

	while (view->sink_count < TOP_SINKS && next_element(&items, &item)) {
		struct top_sink *sink = &view->sinks[view->sink_count++];

		text_of(item, "name", sink->name, sizeof(sink->name));
		text_of(item, "breaker", sink->breaker, sizeof(sink->breaker));
		text_of(item, "last_error", sink->error, sizeof(sink->error));
		sink->in_flight = number_of(item, "in_flight");
		sink->delivered = number_of(item, "delivered");
		sink->failed = number_of(item, "failed");
	}
}

static void read_errors(struct pr_span answer, struct top_view *view)
{
	struct pr_span items = items_of(answer), item;

	while (view->error_count < TOP_ERRORS && next_element(&items, &item)) {
		struct top_error *error = &view->errors[view->error_count++];

		text_of(item, "topic", error->topic, sizeof(error->topic));
		text_of(item, "example_error", error->text, sizeof(error->text));
		error->count = number_of(item, "count");
	}
}

bool top_read_api(const char *url, const char *token, struct top_view *view, struct pr_err *err)
{
	static const struct {
		const char *path;
		void (*read)(struct pr_span answer, struct top_view *view);
	} parts[] = {
		{ "/api/v1/stats", read_stats },
		{ "/api/v1/topics", read_topics },
		{ "/api/v1/sinks", read_sinks },
		{ "/api/v1/outbox/groups?status=dead", read_errors },
	};
	PR_CLEANUP_BUF struct pr_buf buf = { 0 };
	struct pr_span answer;

	snprintf(view->source, sizeof(view->source), "%s", url);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (read_answer(url, token, parts[i].path, &buf, &answer, err) >= 0) {
			parts[i].read(answer, view);
		} else if (i == 0) {
			return false;
		} else {
			snprintf(view->note, sizeof(view->note), "%.290s", err->text);
		}
	}
	return true;
}
