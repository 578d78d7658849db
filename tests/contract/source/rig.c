/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/source/rig.h"

#include "base/time.h"

#include <stdlib.h>
#include <unistd.h>

#define WAIT_MS 1000

const struct source_backend *backend;
struct server server;
struct proxy proxy;
struct rig rig;
char name[32];

void begin_test(const struct source_backend *which)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };

	backend = which;
	snprintf(name, sizeof(name), "orders-%d", (int)getpid());
	rig_init(&rig);
	server.port = server_free_port();
	backend->server->start(&server);
	proxy_start(&proxy, server.port);
	if (backend->prepare)
		backend->prepare(&server, name);
	backend->put_sink_url(&url, SERVER_HOST, server.port, name);
	rig_open(&rig, pr_buf_text(&url));
}

void end_test(void)
{
	rig_release(&rig);
	proxy_end(&proxy);
	if (!backend->server->shared)
		server_kill(&server);
}

struct pr_source *open_source(int port, const char *group, int64_t lease_ms)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_source *source = NULL;
	int status;

	backend->put_url(&url, SERVER_HOST, port, name);
	status = pr_source_open(pr_buf_text(&url), group, lease_ms, &source, &rig.err);
	CHECK_MSG(status == POSTROOM_OK, "%s: %s", pr_buf_text(&url), rig.err.text);
	return source;
}

struct pr_source *open_here(void)
{
	return open_source(server.port, "readers", AMPLE_MS);
}

int try_read(struct pr_source *source, struct pr_events *events, size_t limit, int64_t wait_ms)
{
	pr_events_reset(events);
	rig.flight.begin_until_us = pr_mono_us() + wait_ms * 1000;
	pr_err_clear(&rig.err);
	return source->ops->read(source, events, limit, &rig.flight, &rig.err);
}

void read_some(struct pr_source *source, struct pr_events *events, size_t limit)
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;

	do {
		int status = try_read(source, events, limit, WAIT_MS);

		CHECK_MSG(status == POSTROOM_OK, "read: %d %s", status, rig.err.text);
		CHECK_MSG(events->count > 0 || pr_mono_us() < patience_us, "nothing has come");
	} while (events->count == 0);
	CHECK(events->count <= limit);
}

void ack(struct pr_source *source, const struct pr_events *events)
{
	int status = source->ops->ack(source, events, &rig.flight, &rig.err);

	CHECK_MSG(status == POSTROOM_OK, "ack: %s", rig.err.text);
}

void note(struct seen *seen, const struct pr_events *events)
{
	for (size_t i = 0; i < events->count; i++) {
		const char *id = events->list[i].id;

		CHECK(id && strncmp(id, "id-", 3) == 0 && atoi(id + 3) < SEEN_MAX);
		seen->different += seen->times[atoi(id + 3)]++ == 0;
		seen->count++;
	}
}

void check_each_once(const struct seen *seen, size_t count)
{
	CHECK_INT(seen->count, count);
	for (size_t i = 0; i < count; i++)
		CHECK_MSG(seen->times[i] == 1, "id-%zu has come %d times", i, seen->times[i]);
}

struct seen *new_seen(void)
{
	struct seen *seen = pr_arena_alloc(&rig.arena, sizeof(*seen));

	CHECK(seen != NULL);
	memset(seen, 0, sizeof(*seen));
	return seen;
}

/* Without an acknowledgement: count of them, which none of the reads before has given. */
static void read_and_keep(struct pr_source *source, struct seen *seen, size_t count)
{
	struct pr_events events = { 0 };

	do {
		read_some(source, &events, count);
	} while (backend->insists && events.count < count);
	note(seen, &events);
	pr_events_release(&events);
}

void read_all(struct pr_source *source, struct seen *seen, size_t count, bool acknowledge)
{
	struct pr_events events = { 0 };
	size_t end = seen->count + count;

	while (seen->count < end) {
		if (!acknowledge) {
			read_and_keep(source, seen, end - seen->count);
			continue;
		}
		read_some(source, &events, end - seen->count);
		note(seen, &events);
		ack(source, &events);
	}
	pr_events_release(&events);
}

void check_nothing_comes(struct pr_source *source)
{
	struct pr_events events = { 0 };
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;

	while (try_read(source, &events, LIMIT, SHORT_MS) < 0) {
		CHECK_INT(rig.err.status, POSTROOM_UNAVAILABLE);
		CHECK_MSG(pr_mono_us() < patience_us, "%s", rig.err.text);
	}
	CHECK_MSG(events.count == 0, "%s has come", events.list[0].broker_position);
	pr_events_release(&events);
}

void publish(postroom_delivery *items, size_t count)
{
	rig_publish(&rig, items, count);
	for (size_t i = 0; i < count; i++)
		CHECK_MSG(items[i].verdict == POSTROOM_DELIVERED, "%s: %s", items[i].id,
			  items[i].reason);
}

void publish_from(size_t first, size_t count)
{
	postroom_delivery *items = rig_items(&rig, count);

	for (size_t i = 0; i < count; i++)
		items[i] = rig_item(&rig, (int)(first + i), NULL, NULL);
	publish(items, count);
}
