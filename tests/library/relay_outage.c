/* SPDX-License-Identifier: Apache-2.0 */
/* A sink that is a server, and returns only failures for a while. */
#include "library/relay.h"

#include "relay/worker.h"

static struct {
	struct pr_relay *relay;
	struct pr_sink_ops ops;
	atomic_int failing; /* so many calls more it has no room for anything */
	atomic_int probes;
} server;

static void answer(void *context, postroom_delivery *const *items, size_t count,
		   postroom_flight *flight)
{
	bool failing = atomic_fetch_sub(&server.failing, 1) > 0;

	(void)context, (void)flight;
	if (pr_breaker_is_open(&server.relay->generation->pools[0].sink_state->breaker)) {
		CHECK_INT((int64_t)count, 1);
		atomic_fetch_add(&server.probes, 1);
	}
	for (size_t i = 0; i < count; i++) {
		/* It always fails for this one. */
		bool poison = strcmp(postroom_delivery_payload(items[i], NULL), "\"poison\"") == 0;

		postroom_delivery_judge(items[i],
					failing || poison ? POSTROOM_FAILED : POSTROOM_DELIVERED,
					failing ? "503 no room" : "500 ouch");
	}
}

static void drain(int64_t workers, int32_t max_attempts)
{
	struct pr_relay_config config = {
		.url = url,
		.callback = { .publish = answer },
		.workers = workers,
		.batch_size = 500,
		.lease_ms = 30000,
		.shutdown_grace_ms = 20000,
		.policy = { .max_attempts = max_attempts,
			    .base_delay_ms = 1,
			    .max_delay_ms = 1,
			    .max_error_length = 200 },
		.retention_ms = -1,
		.dead_retention_ms = -1,
		.dedupe_retention_ms = -1,
		.inbox_retention_ms = -1,
		.drain = true,
		.log_level = PR_LOG_WARN,
	};
	struct pr_err err = { 0 };
	int status;

	CHECK_INT(pr_relay_config_check(&config, &err), POSTROOM_OK);
	CHECK_MSG(pr_relay_open(&config, &server.relay, &err) == POSTROOM_OK, "%s", err.text);
	server.ops = *server.relay->generation->pools[0].workers[0].sink->ops;
	server.ops.server = true;
	for (int64_t i = 0; i < workers; i++)
		server.relay->generation->pools[0].workers[i].sink->ops = &server.ops;
	status = pr_relay_run(server.relay, &err);
	CHECK_MSG(status == POSTROOM_OK, "%s", err.text);
	pr_relay_close(server.relay);
}

TEST(D5_outage_dead_letters_nothing_and_poison_does_not_prolong_it)
{
	PUT(.topic = "t", .payload = "\"poison\"");
	for (int i = 0; i < 30; i++)
		PUT(.topic = "t", .payload = "1");
	server.failing = 2;
	server.probes = 0;
	drain(1, 3);
	/* After the batch one with the oldest, which is the poisoned one; the next was another. */
	CHECK_INT(server.probes, 2);
	CHECK_INT(rows("delivered"), 30);
	CHECK_INT(number(app,
			 "SELECT max(attempts) FROM postroom_messages WHERE status = 'delivered'"),
		  1);
	/* It died of its own failures, and of all that it was allowed. */
	CHECK_INT(rows("dead"), 1);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_messages WHERE status = 'dead'"), 3);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_messages WHERE status = 'dead'"),
		  "500 ouch");
}
