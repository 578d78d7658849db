/* SPDX-License-Identifier: Apache-2.0 */
#include "library/relay.h"

#include <time.h>

struct rig rig = { .lock = PTHREAD_MUTEX_INITIALIZER };

static postroom_totals last_totals;

static void append(char *to, size_t size, const char *format, const char *a, const char *b)
{
	size_t used;

	pthread_mutex_lock(&rig.lock);
	used = strlen(to);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	CHECK(snprintf(to + used, size - used, format, a, b) < (int)(size - used));
#pragma GCC diagnostic pop
	pthread_mutex_unlock(&rig.lock);
}

void publish(void *context, postroom_delivery *const *items, size_t count, postroom_flight *flight)
{
	struct rig *given = context;

	CHECK(count > 0);
	atomic_fetch_add(&given->calls, 1);
	for (size_t i = 0; i < count; i++) {
		CHECK_INT(postroom_delivery_verdict(items[i]), POSTROOM_UNTRIED);
		append(given->seen, sizeof(given->seen), "%s%s",
		       postroom_delivery_payload(items[i], NULL), " ");
		given->judge(items[i], i, flight);
	}
}

void keep_event(void *context, postroom_log_level level, const char *event, const char *fields)
{
	struct rig *given = context;

	CHECK(level >= POSTROOM_LOG_DEBUG && level <= POSTROOM_LOG_ERROR);
	append(given->events, sizeof(given->events), "%s %s\n", event, fields);
}

bool was_logged(const char *part)
{
	bool found;

	pthread_mutex_lock(&rig.lock);
	found = strstr(rig.events, part) != NULL;
	pthread_mutex_unlock(&rig.lock);
	return found;
}

void open_relay(const postroom_relay_options *options)
{
	postroom_relay_options given = *options;
	int status;

	given.context = given.log_context = &rig;
	given.url = url;
	given.publish = publish;
	given.log = rig.silent ? NULL : keep_event;
	if (!given.base_delay_ms)
		given.base_delay_ms = given.max_delay_ms = 1;
	status = postroom_relay_open(&given, &rig.relay);
	CHECK_MSG(status == POSTROOM_OK, "open: %d %s", status, postroom_relay_errmsg(rig.relay));
}

void run_relay(judge_fn judge)
{
	int status;

	rig.judge = judge;
	status = postroom_relay_run(rig.relay);
	CHECK_MSG(status == POSTROOM_OK, "run: %d %s", status, postroom_relay_errmsg(rig.relay));
	CHECK_STR(postroom_relay_errmsg(rig.relay), "");
}

void close_relay(void)
{
	last_totals = totals();
	postroom_relay_close(rig.relay);
	rig.relay = NULL;
}

postroom_totals totals(void)
{
	postroom_totals now = last_totals;

	if (rig.relay)
		postroom_relay_totals(rig.relay, &now);
	return now;
}

void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

void deliver(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	(void)index, (void)flight;
	postroom_delivery_judge(item, POSTROOM_DELIVERED, NULL);
}
