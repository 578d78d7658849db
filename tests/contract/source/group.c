/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of every broker source to several instances, and to their successors. */
#include "contract/source/rig.h"

#include "base/time.h"

TEST(new_group_receives_all_events_from_the_oldest)
{
	static const char *const groups[] = { "readers", "writers" };

	publish_from(0, BATCH);
	for (size_t i = 0; i < (backend->groups ? 2 : 1); i++) {
		struct pr_source *source = open_source(server.port, groups[i], AMPLE_MS);
		struct seen *seen = new_seen();

		read_all(source, seen, BATCH, true);
		check_each_once(seen, BATCH);
		pr_source_close(source);
	}
}

TEST(events_of_a_broken_connection_are_redelivered_to_another_instance)
{
	struct seen *lost = new_seen(), *seen = new_seen();
	struct pr_source *dead, *source;

	if (backend->take_time)
		backend->take_time();
	publish_from(0, BATCH);
	dead = open_source(proxy.port, "readers", backend->shortest_lease_ms);
	read_all(dead, lost, BATCH, false);
	check_each_once(lost, BATCH);
	proxy_end(&proxy);
	source = open_source(server.port, "readers", backend->shortest_lease_ms);
	read_all(source, seen, BATCH, true);
	check_each_once(seen, BATCH);
	check_nothing_comes(source);
	pr_source_close(dead);
	pr_source_close(source);
	proxy_start(&proxy, server.port);
}

TEST(unacknowledged_event_is_redelivered_immediately_after_close)
{
	struct seen *left = new_seen(), *seen = new_seen();
	struct pr_source *source = open_here();

	publish_from(0, BATCH);
	read_all(source, left, BATCH, false);
	pr_source_close(source);
	source = open_source(server.port, "readers", AMPLE_MS);
	read_all(source, seen, BATCH, true);
	check_each_once(seen, BATCH);
	pr_source_close(source);
}

/* Members of a group may have to wait for each other. */
static void settle(struct pr_source *sources[2])
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;
	struct pr_events events = { 0 };
	bool ready[2] = { false };

	rig.flight.timeout_ms = SHORT_MS;
	for (size_t i = 0; !ready[0] || !ready[1]; i = 1 - i) {
		ready[i] = try_read(sources[i], &events, LIMIT, SHORT_MS) == POSTROOM_OK;
		CHECK_MSG(ready[i] || rig.err.status == POSTROOM_UNAVAILABLE, "%s", rig.err.text);
		CHECK_MSG(pr_mono_us() < patience_us, "%s", rig.err.text);
		CHECK_INT(events.count, 0);
	}
	rig.flight.timeout_ms = AMPLE_MS;
	pr_events_release(&events);
}

/* Reads one member after the other: the others are not read meanwhile, and it may have to wait for them. */
static size_t take_turn(struct pr_source *source, struct seen *seen)
{
	struct pr_events events = { 0 };
	size_t count = 0;
	int status;

	rig.flight.timeout_ms = SHORT_MS;
	status = try_read(source, &events, BATCH / 4, SHORT_MS);
	rig.flight.timeout_ms = AMPLE_MS;
	CHECK_MSG(status == POSTROOM_OK || status == POSTROOM_UNAVAILABLE, "%s", rig.err.text);
	if (status == POSTROOM_OK && events.count > 0) {
		ack(source, &events);
		note(seen, &events);
		count = events.count;
	}
	pr_events_release(&events);
	return count;
}

TEST(N2_instances_of_a_group_share_events_without_loss_or_overlap)
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;
	struct pr_source *sources[2] = { open_here(), open_here() };
	struct seen *seen = new_seen();
	size_t had[2] = { 0 }, total = 0;

	settle(sources);
	/* A group may have lost one of them to a busy machine; it has him back soon. */
	do {
		publish_from(total, 10 * BATCH);
		total += 10 * BATCH;
		while (seen->count < total) {
			CHECK_MSG(pr_mono_us() < patience_us, "%zu and %zu of %zu", had[0], had[1],
				  total);
			for (size_t i = 0; i < 2; i++)
				had[i] += take_turn(sources[i], seen);
		}
	} while (had[0] == 0 || had[1] == 0);
	check_each_once(seen, total);
	for (size_t i = 0; i < 2; i++) {
		check_nothing_comes(sources[i]);
		pr_source_close(sources[i]);
	}
}

/* Which source receives the event is not known in advance; both are read. */
static struct pr_source *find_busy(struct pr_source *sources[2], struct pr_events *kept)
{
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;

	for (size_t i = 0;; i = 1 - i) {
		CHECK_MSG(try_read(sources[i], kept, LIMIT, SHORT_MS) == POSTROOM_OK, "%s",
			  rig.err.text);
		CHECK_MSG(pr_mono_us() < patience_us, "nothing has come");
		if (kept->count > 0)
			return sources[i];
	}
}

TEST(extended_event_is_not_redelivered_after_the_lease)
{
	struct pr_source *sources[2], *busy, *other;
	struct pr_events kept = { 0 }, events = { 0 };
	/* On a busy machine a moment may last for seconds; an extension must still be in time. */
	int64_t lease_ms = 3 * backend->shortest_lease_ms, until_us;

	for (size_t i = 0; i < 2; i++)
		sources[i] = open_source(server.port, "readers", lease_ms);
	settle(sources);
	publish_from(0, 1);
	busy = find_busy(sources, &kept);
	other = sources[busy == sources[0]];
	until_us = pr_mono_us() + lease_ms * 1500;
	while (pr_mono_us() < until_us) {
		if (busy->ops->keep)
			CHECK_MSG(busy->ops->keep(busy, &kept, &rig.flight, &rig.err) ==
					  POSTROOM_OK,
				  "keep: %s", rig.err.text);
		CHECK_INT(try_read(other, &events, LIMIT, lease_ms / 6), POSTROOM_OK);
		CHECK_INT(events.count, 0);
	}
	ack(busy, &kept);
	pr_source_close(busy);
	check_nothing_comes(other);
	pr_source_close(other);
	pr_events_release(&kept);
	pr_events_release(&events);
}
