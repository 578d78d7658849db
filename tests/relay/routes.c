/* SPDX-License-Identifier: Apache-2.0 */
/* Routes, sink pools and reloading, with the relay in the test's own process, on every database. */
#include "relay/rig.h"

#include <sys/stat.h>
#include <unistd.h>

#define FILES 3
static const char *const files[FILES] = { "a.ndjson", "b.ndjson", "late/c" };

static const struct pr_relay_sink sinks[FILES] = {
	{ .name = "a", .url = "file:a.ndjson" },
	{ .name = "b", .url = "file:b.ndjson" },
	/* Away until its directory is there. */
	{ .name = "late", .url = "exec:test -d late || exit 127; echo >> late/c" },
};

static struct pr_relay_config config_with(const struct pr_relay_route *routes, size_t count)
{
	struct pr_relay_config config = rig_config();

	config.sinks = sinks;
	config.sink_count = FILES;
	config.routes = routes;
	config.route_count = count;
	CHECK(pr_relay_config_check(&config, &run.err) >= 0);
	return config;
}

#define ROUTES(...)                                                                                \
	config_with((const struct pr_relay_route[]){ __VA_ARGS__ },                                \
		    sizeof((const struct pr_relay_route[]){ __VA_ARGS__ }) /                       \
			    sizeof(struct pr_relay_route))

static void reload(struct pr_relay_config config)
{
	CHECK_MSG(pr_relay_reload(run.relay, &config, &run.err) >= 0, "%s", run.err.text);
}

TEST(D5_sink_outage_does_not_affect_other_sinks)
{
	struct pr_relay_health health;

	put("late.1", 60);
	put("a.1", 5);
	start(ROUTES({ .topic = "late.*", .sink = 2 }, { .sink = 0 }));
	wait_for_lines(files[0], 5);
	while (!was_logged("OUTBOX_SINK_UNREACHABLE"))
		nap();
	put("a.2", 200);
	wait_for_lines(files[0], 205);
	pr_relay_health(run.relay, &health);
	CHECK_INT(health.sinks_down, 1);
	CHECK(health.sink_outage_ms > 0);
	CHECK_STR(health.sink, "late");
	CHECK(was_logged("sink=late"));
	CHECK(was_logged("sink=a"));
	/* A probe may have some of them at the moment. */
	while (number(app, "SELECT count(*) FROM postroom_outbox WHERE topic = 'late.1' "
			   "AND status = 'pending' AND attempts = 0") < 60)
		nap();
	CHECK(mkdir("late", 0700) == 0);
	wait_for_lines(files[2], 60);
	stop();
	CHECK_INT(rows("delivered"), 265);
}

TEST(D7_unrouted_message_waits_and_is_logged_until_routed)
{
	struct pr_relay_health health;

	put("a.1", 1);
	put("lost", 2);
	start(ROUTES({ .topic = "a.*", .sink = 0 }));
	wait_for_lines(files[0], 1);
	while (!was_logged("OUTBOX_UNROUTED count=2 namespace=default topic=lost"))
		nap();
	pr_relay_health(run.relay, &health);
	CHECK_INT(health.unrouted, 2);
	CHECK_INT(rows("pending"), 2);
	reload(ROUTES({ .topic = "a.*", .sink = 0 }, { .sink = 1 }));
	wait_for_lines(files[1], 2);
	while (!was_logged("OUTBOX_UNROUTED count=0"))
		nap();
	stop();
	CHECK_INT(lines_in(files[0]), 1);
}

TEST(D7_unusable_configuration_changes_nothing)
{
	static const struct pr_relay_sink broken[] = {
		{ .name = "a", .url = "file:a.ndjson" },
		{ .name = "hooks", .url = "file:x?nonsense=1" },
	};
	struct pr_relay_config config;

	start(ROUTES({ .sink = 0 }));
	config = ROUTES({ .topic = "a", .sink = 0 }, { .sink = 1 });
	config.sinks = broken;
	config.sink_count = 2;
	CHECK_INT(pr_relay_reload(run.relay, &config, &run.err), POSTROOM_SINK);
	CHECK_CONTAINS(run.err.text, "sink hooks");
	CHECK_CONTAINS(run.err.text, "nonsense");
	config = ROUTES({ .sink = 0 });
	config.route_count = 0;
	CHECK_INT(pr_relay_reload(run.relay, &config, &run.err), POSTROOM_INVALID);
	put("t", 3);
	wait_for_lines(files[0], 3);
	stop();
}

TEST(D7_reload_does_not_change_the_retry_policy)
{
	struct pr_relay_config config = ROUTES({ .sink = 2 });

	start(config);
	config.policy.max_attempts = 99;
	config.policy.block = true;
	config.url = "sqlite:elsewhere.db";
	config.batch_size = 1;
	config.sinks = (const struct pr_relay_sink[]){ { .name = "x", .url = "exec:exit 1" } };
	config.sink_count = 1;
	config.routes = (const struct pr_relay_route[]){ { .sink = 0 } };
	reload(config);
	CHECK(was_logged("OUTBOX_RELOAD_KEPT settings=\"database max_attempts on_dead\""));
	put("t", 2);
	while (rows("dead") < 2)
		nap();
	CHECK_INT(number(app, "SELECT max(attempts) FROM postroom_outbox"), 3);
	CHECK(was_logged("OUTBOX_WORKER_FETCH count=1"));
	stop();
	CHECK(access("elsewhere.db", F_OK) < 0);
}

TEST(D7_continuous_reloads_neither_lose_nor_duplicate_messages)
{
	const int rounds = 20, each = 40;

	start(ROUTES({ .topic = "x.*", .sink = 1 }, { .sink = 0 }));
	for (int i = 0; i < rounds; i++) {
		put("x.1", each / 2);
		put("y.1", each / 2);
		/* The files change sinks too: messages in flight belong to the generation that claimed them. */
		if (i % 2)
			reload(ROUTES({ .topic = "x.*", .sink = 1 }, { .sink = 0 }));
		else
			reload(ROUTES({ .topic = "x.*", .sink = 0 }, { .sink = 1 }));
	}
	while (rows("delivered") < rounds * each)
		nap();
	stop();
	CHECK_INT(lines_in(files[0]) + lines_in(files[1]), rounds * each);
	CHECK_INT(number(app, "SELECT max(attempts) FROM postroom_outbox"), 1);
}

TEST(D7_reload_keeps_the_outage_time_of_a_sink)
{
	struct pr_relay_health health = { 0 };
	int64_t outage_ms;

	put("t", 1);
	start(ROUTES({ .sink = 2 }));
	while (!was_logged("OUTBOX_SINK_UNREACHABLE"))
		nap();
	while (health.sink_outage_ms < 20)
		pr_relay_health(run.relay, &health);
	outage_ms = health.sink_outage_ms;
	reload(ROUTES({ .ns = "default", .sink = 2 }, { .sink = 0 }));
	pr_relay_health(run.relay, &health);
	CHECK(health.sink_outage_ms >= outage_ms);
	CHECK(mkdir("late", 0700) == 0);
	wait_for_lines(files[2], 1);
	stop();
}

TEST(D7_stopping_relay_refuses_a_new_configuration)
{
	struct pr_relay_config config = ROUTES({ .sink = 0 });

	start(config);
	pr_relay_stop(run.relay);
	CHECK_INT(pr_relay_reload(run.relay, &config, &run.err), POSTROOM_STOPPED);
	finish();
}

TEST(D7_relay_accepts_a_new_configuration_before_its_start)
{
	struct pr_relay_config config = ROUTES({ .sink = 0 });

	CHECK(pr_relay_open(&config, &run.relay, &run.err) >= 0);
	reload(ROUTES({ .sink = 1 }));
	put("t", 2);
	run_in_thread();
	wait_for_lines(files[1], 2);
	stop();
	CHECK_INT(lines_in(files[0]), 0);
}

TEST(D1_drain_ends_when_all_sink_pools_are_done_and_logs_unrouted)
{
	struct pr_relay_config config = ROUTES({ .topic = "a", .sink = 0 },
					       { .topic = "b", .sink = 1 });

	put("a", 30);
	put("b", 20);
	put("c", 10);
	config.drain = true;
	start(config);
	finish();
	CHECK_INT(lines_in(files[0]), 30);
	CHECK_INT(lines_in(files[1]), 20);
	CHECK_INT(rows("pending"), 10);
	CHECK(was_logged("OUTBOX_UNROUTED count=10 namespace=default topic=c"));
}

TEST(C6_routes_stay_within_the_scope_of_the_relay)
{
	struct pr_relay_config config = ROUTES({ .topic = "a", .sink = 0 },
					       { .ns = "shop", .sink = 1 });

	PUT(.topic = "a", .payload = "1");
	PUT(.topic = "a", .payload = "1", .ns = "shop");
	PUT(.topic = "b", .payload = "1", .ns = "shop");
	PUT(.topic = "b", .payload = "1");
	config.drain = true;
	config.scope.ns = "shop";
	start(config);
	finish();
	CHECK_INT(lines_in(files[0]), 1);
	CHECK_INT(lines_in(files[1]), 1);
	CHECK_INT(rows("pending"), 2);
	CHECK(!was_logged("OUTBOX_UNROUTED"));
}
