/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Saved positions are at most SAVE_EVERY_US behind the inserted events: a replay begins further
 *    back.
 * 2. The positions used for comparison are at most READ_EVERY_US old, and are read again for every
 *    event that was passed before.
 * 3. The name of a source contains neither host nor group: another address of the same stream, or
 *    another group of the same handler, also begins at the oldest event.
 */
#include "consume/replay.h"

#include "base/text.h"
#include "base/time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAVE_EVERY_US ((int64_t)5 * 1000000)
#define READ_EVERY_US ((int64_t)1000000)
/* Between the clocks of broker and database. */
#define SLACK_US ((int64_t)5 * 60 * 1000000)
#define SOURCE_MAX 500 /* maximum length of a name; a longer one is replaced by its digest */

/* Precision of the time when a position was passed. */
#define PERIODS_PER_RETENTION 32
#define PERIOD_MIN_MS ((int64_t)60 * 1000)
#define PERIOD_MAX_MS ((int64_t)24 * 3600 * 1000)

void pr_replay_release(struct pr_replay *replay)
{
	for (size_t i = 0; i < replay->count; i++)
		free(replay->positions[i].source);
	free(replay->positions);
	pr_buf_release(&replay->name);
	replay->positions = NULL;
	replay->count = replay->capacity = 0;
}

/* Converts the position of "STREAM/POSITION", one or two numbers, to text that sorts. False: it has
 * none. */
static bool read_position(const struct pr_event *event, char out[PR_POSITION_SIZE])
{
	const char *slash = strrchr(event->broker_position, '/');
	const char *at = slash ? slash + 1 : "";
	uint64_t parts[2] = { 0 };

	for (int i = 0; i < 2; i++) {
		if (*at < '0' || *at > '9')
			return false;
		for (; *at >= '0' && *at <= '9'; at++)
			parts[i] = parts[i] * 10 + (uint64_t)(*at - '0');
		if (*at != '-')
			break;
		at++;
	}
	snprintf(out, PR_POSITION_SIZE, "%020" PRIu64 "-%020" PRIu64, parts[0], parts[1]);
	return *at == '\0';
}

/* Writes "redis:orders" or "kafka:orders/3" into replay->name. False: no memory. */
static bool name_source(struct pr_replay *replay, const struct pr_event *event)
{
	size_t len = (size_t)(strrchr(event->broker_position, '/') - event->broker_position);
	const struct pr_span stream = { event->broker_position, len };
	struct pr_arena arena = { 0 };
	const char *digest;

	pr_buf_reset(&replay->name);
	pr_buf_printf(&replay->name, "%s:", replay->scheme);
	if (len <= SOURCE_MAX && pr_utf8_valid(event->broker_position, len)) {
		pr_buf_append(&replay->name, event->broker_position, len);
		return !replay->name.failed;
	}
	digest = pr_event_digest(&arena, &stream, 1);
	if (digest)
		pr_buf_puts(&replay->name, digest);
	pr_arena_release(&arena);
	return digest && !replay->name.failed;
}

static struct pr_replay_mark *find_position(const struct pr_replay *replay, const char *name)
{
	for (size_t i = 0; i < replay->count; i++) {
		if (strcmp(replay->positions[i].source, name) == 0)
			return &replay->positions[i];
	}
	return NULL;
}

/* NULL: no memory. */
static struct pr_replay_mark *find_or_add(struct pr_replay *replay, const char *name)
{
	struct pr_replay_mark *mark = find_position(replay, name);

	if (mark)
		return mark;
	if (replay->count == replay->capacity) {
		size_t capacity = replay->capacity ? replay->capacity * 2 : 8;
		struct pr_replay_mark *more = reallocarray(replay->positions, capacity,
							   sizeof(*more));

		if (!more)
			return NULL;
		replay->positions = more;
		replay->capacity = capacity;
	}
	mark = &replay->positions[replay->count];
	*mark = (struct pr_replay_mark){ .source = strdup(name) };
	if (!mark->source)
		return NULL;
	replay->count++;
	return mark;
}

static int add_position(void *context, const struct pr_source_position *known, struct pr_err *err)
{
	struct pr_replay_mark *mark = find_or_add(context, known->source);

	if (!mark)
		return pr_err_nomem(err);
	if (strcmp(mark->passed, known->position) < 0)
		snprintf(mark->passed, sizeof(mark->passed), "%s", known->position);
	snprintf(mark->purged, sizeof(mark->purged), "%s", known->purged);
	return POSTROOM_OK;
}

static int load_positions(struct pr_replay *replay, struct postroom_store *store,
			  struct pr_err *err)
{
	int status;

	for (size_t i = 0; i < replay->count; i++)
		replay->positions[i].purged[0] = '\0';
	status = pr_store_read_sources(store, replay->handler, add_position, replay,
				       &replay->purged_us, err);
	if (status >= 0)
		replay->read_us = pr_mono_us();
	return status;
}

static int note_event(void *context, const postroom_row *row)
{
	(void)row;
	*(bool *)context = true;
	return 1;
}

static int refuse_replay(const struct pr_replay *replay, const struct pr_event *event,
			 struct pr_err *err)
{
	return pr_err_set(
		err, POSTROOM_SINK,
		"consume: event \"%.200s\" was redelivered: handler \"%.100s\" had read past "
		"it, and rows of that time were purged from the inbox, so it may take effect "
		"twice; "
		"nothing was handled. If the consumer group was deleted or its offsets expired, "
		"move it past the handled events, or handle them again with --accept-replay",
		event->broker_position, replay->handler);
}

/* True if the event is newer than all purged rows, by the broker's clock. */
static bool is_younger(const struct pr_replay *replay, const struct pr_event *event)
{
	return event->at_us > 0 && event->at_us > replay->purged_us + SLACK_US;
}

static int check_known(const struct pr_replay *replay, struct postroom_store *store,
		       const struct pr_event *event, const char *id, struct pr_err *err)
{
	const postroom_filter filter = { .table = POSTROOM_INBOX,
					 .handler = replay->handler,
					 .id = id };
	bool known = false;
	int status = store->ops->list(store, &filter, 1, note_event, &known, err);

	if (status < 0 || known)
		return status;
	return refuse_replay(replay, event, err);
}

int pr_replay_check(struct pr_replay *replay, struct postroom_store *store,
		    const struct pr_events *events, const struct pr_incoming_event *incoming_events,
		    struct pr_err *err)
{
	bool stale = replay->read_us == 0 || pr_mono_us() - replay->read_us >= READ_EVERY_US;
	bool fresh = false;
	int status = POSTROOM_OK;

	for (size_t i = 0; i < events->count && status >= 0; i++) {
		const struct pr_event *event = &events->list[i];
		const struct pr_replay_mark *mark;
		char position[PR_POSITION_SIZE];

		if (!read_position(event, position))
			continue;
		if (!name_source(replay, event))
			return pr_err_nomem(err);
		mark = find_position(replay, replay->name.data);
		if (!fresh && (stale || (mark && strcmp(position, mark->passed) <= 0))) {
			status = load_positions(replay, store, err);
			mark = find_position(replay, replay->name.data);
			fresh = true;
		}
		if (status >= 0 && mark && strcmp(position, mark->purged) <= 0 &&
		    !is_younger(replay, event))
			status = check_known(replay, store, event, incoming_events[i].id, err);
	}
	return status;
}

int pr_replay_pass(struct pr_replay *replay, const struct pr_events *events, struct pr_err *err)
{
	for (size_t i = 0; i < events->count; i++) {
		struct pr_replay_mark *mark;
		char position[PR_POSITION_SIZE];

		if (!read_position(&events->list[i], position))
			continue;
		mark = name_source(replay, &events->list[i])
			       ? find_or_add(replay, replay->name.data)
			       : NULL;
		if (!mark)
			return pr_err_nomem(err);
		if (strcmp(position, mark->passed) <= 0)
			continue;
		memcpy(mark->passed, position, sizeof(position));
		mark->unsaved = true;
	}
	return POSTROOM_OK;
}

bool pr_replay_is_due(const struct pr_replay *replay)
{
	if (replay->saved_us && pr_mono_us() - replay->saved_us < SAVE_EVERY_US)
		return false;
	for (size_t i = 0; i < replay->count; i++) {
		if (replay->positions[i].unsaved)
			return true;
	}
	return false;
}

static int64_t period_of(int64_t retention_ms)
{
	int64_t period_ms = retention_ms / PERIODS_PER_RETENTION;

	if (retention_ms < 0 || period_ms > PERIOD_MAX_MS)
		return PERIOD_MAX_MS;
	return period_ms > PERIOD_MIN_MS ? period_ms : PERIOD_MIN_MS;
}

int pr_replay_save(struct pr_replay *replay, struct postroom_store *store, struct pr_err *err)
{
	struct pr_source_position *list = calloc(replay->count + 1, sizeof(*list));
	size_t count = 0;
	int status = POSTROOM_OK;

	if (!list)
		return pr_err_nomem(err);
	for (size_t i = 0; i < replay->count; i++) {
		const struct pr_replay_mark *mark = &replay->positions[i];

		if (mark->unsaved)
			list[count++] = (struct pr_source_position){ .source = mark->source,
								     .position = mark->passed };
	}
	if (count > 0)
		status = pr_store_record_sources(store, replay->handler,
						 period_of(replay->retention_ms), list, count, err);
	free(list);
	for (size_t i = 0; i < replay->count && status >= 0; i++)
		replay->positions[i].unsaved = false;
	if (status >= 0)
		replay->saved_us = pr_mono_us();
	return status;
}
