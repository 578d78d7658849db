/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedding program's callback.
 *
 * 1. It gets one message per key at a time, so it never has to care about order: the next message
 *    of a key follows when the previous one was delivered.
 * 2. It gets copies: only the verdict, the reason and the retry time are copied back.
 * 3. A callback that begins nothing is an outage. Otherwise the same messages would be claimed and
 *    released without a pause.
 */
#include "sink/callback.h"

#include "base/time.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct callback_sink {
	struct pr_sink sink;
	struct pr_callback callback;
};

struct postroom_flight {
	const struct pr_flight *flight;
};

/* The messages of one call, and the next message of each key. */
struct wave {
	size_t *at; /* positions of the messages */
	size_t count;
	size_t *after; /* for each position, that of the next message of its key, or PR_SINK_NONE */
	postroom_delivery *copies;
	postroom_delivery **handed; /* pointers to the copies */
};

static bool begin_round(struct wave *wave, postroom_delivery *items, size_t count,
			struct pr_arena *arena)
{
	const size_t *before = pr_sink_order(items, count, arena);

	wave->at = pr_arena_alloc(arena, count * sizeof(*wave->at));
	wave->after = pr_arena_alloc(arena, count * sizeof(*wave->after));
	wave->copies = pr_arena_alloc(arena, count * sizeof(*wave->copies));
	wave->handed = pr_arena_alloc(arena, count * sizeof(postroom_delivery *));
	if (!before || !wave->at || !wave->after || !wave->copies || !wave->handed)
		return false;
	for (size_t i = 0; i < count; i++)
		wave->after[i] = PR_SINK_NONE;
	for (size_t i = 0; i < count; i++) {
		if (before[i] == PR_SINK_NONE)
			wave->at[wave->count++] = i;
		else
			wave->after[before[i]] = i;
	}
	return true;
}

static void next_round(struct wave *wave, const postroom_delivery *items)
{
	size_t count = 0;

	for (size_t i = 0; i < wave->count; i++) {
		size_t at = wave->at[i];

		if (items[at].verdict == POSTROOM_DELIVERED && wave->after[at] != PR_SINK_NONE)
			wave->at[count++] = wave->after[at];
	}
	wave->count = count;
}

static void copy_verdicts(postroom_delivery *item, const postroom_delivery *result,
			  const struct pr_flight *flight)
{
	char unknown[80];

	switch (result->verdict) {
	case POSTROOM_UNTRIED:
		return;
	case POSTROOM_DELIVERED:
		pr_sink_judge(item, 1, POSTROOM_DELIVERED, flight, NULL);
		return;
	case POSTROOM_UNREACHABLE:
	case POSTROOM_FAILED:
	case POSTROOM_REJECTED:
		pr_sink_judge(item, 1, result->verdict, flight, result->reason);
		item->retry_in_ms = result->retry_in_ms < POSTROOM_DELAY_MAX_MS
					    ? result->retry_in_ms
					    : POSTROOM_DELAY_MAX_MS;
		return;
	}
	snprintf(unknown, sizeof(unknown), "the callback returned an invalid verdict: %d",
		 (int)result->verdict);
	pr_sink_judge(item, 1, POSTROOM_FAILED, flight, unknown);
}

static void call_publish(const struct callback_sink *sink, const struct wave *wave,
			 postroom_delivery *items, const struct pr_flight *flight)
{
	struct postroom_flight call = { .flight = flight };
	bool tried = false;

	for (size_t i = 0; i < wave->count; i++) {
		wave->copies[i] = items[wave->at[i]];
		wave->handed[i] = &wave->copies[i];
	}
	sink->callback.publish(sink->callback.context, wave->handed, wave->count, &call);
	for (size_t i = 0; i < wave->count; i++) {
		copy_verdicts(&items[wave->at[i]], &wave->copies[i], flight);
		tried = tried || items[wave->at[i]].verdict != POSTROOM_UNTRIED;
	}
	if (!tried && pr_flight_may_begin(flight))
		pr_sink_judge(&items[wave->at[0]], 1, POSTROOM_UNREACHABLE, flight,
			      "the callback tried none of its messages");
}

static int callback_publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
			    const struct pr_flight *flight, struct pr_err *err)
{
	struct wave wave = { 0 };

	(void)err;
	if (!begin_round(&wave, items, count, flight->arena)) {
		pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, "out of memory");
		return POSTROOM_OK;
	}
	for (; wave.count > 0 && pr_flight_may_begin(flight); next_round(&wave, items))
		call_publish((struct callback_sink *)sink, &wave, items, flight);
	return POSTROOM_OK;
}

int postroom_flight_may_begin(const postroom_flight *flight)
{
	return pr_flight_may_begin(flight->flight);
}

int64_t postroom_flight_left_ms(const postroom_flight *flight)
{
	const struct pr_stop *stop = flight->flight->stop;
	int64_t until_us = flight->flight->begin_until_us + flight->flight->timeout_ms * 1000;
	int64_t stop_us = pr_stop_deadline_us(stop);
	int64_t left_us;

	if (stop_us && stop_us < until_us)
		until_us = stop_us;
	left_us = until_us - pr_mono_us();
	return left_us > 0 ? (left_us + 999) / 1000 : 0;
}

const char *postroom_flight_text(postroom_flight *flight, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = pr_arena_vprintf(flight->flight->arena, format, args);
	va_end(args);
	return text;
}

static const char *const schemes[] = { "callback", NULL };
static const struct pr_param params[] = { { .name = NULL } };

static const struct pr_sink_ops callback_ops = {
	.schemes = schemes,
	.summary = "calls a function of the program that embeds the relay",
	.size = sizeof(struct callback_sink),
	.params = params,
	.publish = callback_publish,
};

int pr_sink_open_callback(const struct pr_callback *callback, struct pr_sink **ret,
			  struct pr_err *err)
{
	struct callback_sink *sink = calloc(1, sizeof(*sink));

	if (!sink)
		return pr_err_nomem(err);
	sink->sink.ops = &callback_ops;
	sink->callback = *callback;
	*ret = &sink->sink;
	return POSTROOM_OK;
}
