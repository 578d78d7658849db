/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages whose content is loaded after the claim. The linker replaces pr_store_load() for the
 * relay (--wrap), so that it can fail or take long.
 */
#include "relay/rig.h"

#include <stdatomic.h>
#include <stdlib.h>

/* More than a claim receives, on any database. */
#define LARGE ((size_t)1024 * 1024)
#define LEASE_MS 12000
/* After a load of this duration the lease is too short for a publish. */
#define LOAD_MS 6000

static struct {
	bool fails;
	int64_t takes_ms;
	atomic_int count;
} loads;

int __real_pr_store_load(struct postroom_store *from, const struct pr_content_load *loading,
			 postroom_delivery *item, struct pr_err *err);
int __wrap_pr_store_load(struct postroom_store *from, const struct pr_content_load *loading,
			 postroom_delivery *item, struct pr_err *err);

int __wrap_pr_store_load(struct postroom_store *from, const struct pr_content_load *loading,
			 postroom_delivery *item, struct pr_err *err)
{
	static const char why[] = "loading a message: it cannot be read";
	int64_t until_us = pr_mono_us() + loads.takes_ms * 1000;

	loads.count++;
	while (pr_mono_us() < until_us)
		nap();
	if (!loads.fails)
		return __real_pr_store_load(from, loading, item, err);
	pr_verdict_set(item, POSTROOM_FAILED, loading->reasons, loading->policy, why, strlen(why));
	return POSTROOM_OK;
}

static void put_large(void)
{
	char *body = calloc(1, LARGE);

	CHECK(body);
	PUT(.topic = "large", .body = body, .body_len = LARGE);
	free(body);
}

TEST(D8_message_that_cannot_be_loaded_uses_no_rate)
{
	struct pr_relay_config config = rig_config();

	put_large();
	config.to = "null:";
	config.workers = 1;
	config.rate = 1.0 / 3600;
	config.policy.max_attempts = 1;
	loads.fails = true;
	start(config);
	while (rows("dead") < 1)
		nap();
	/* The only message of this hour. */
	put("small", 1);
	while (rows("delivered") < 1)
		nap();
	stop();
	CHECK_INT(loads.count, 1);
}

TEST(D8_probe_that_cannot_be_loaded_uses_no_rate)
{
	struct pr_relay_config config = rig_config();
	struct pr_relay_health health;

	config.to = "exec:test -e up || exit 127";
	config.workers = 1;
	config.policy.max_attempts = 1;
	loads.fails = true;
	put("small", 1);
	start(config);
	while (!was_logged("OUTBOX_SINK_UNREACHABLE"))
		nap();
	sql(app, "DELETE FROM postroom_outbox");
	config.rate = 1.0 / 3600;
	CHECK(pr_relay_config_check(&config, &run.err) >= 0);
	CHECK_MSG(pr_relay_reload(run.relay, &config, &run.err) >= 0, "%s", run.err.text);
	put_large();
	while (rows("dead") < 1)
		nap();
	/* The breaker is still open, so the large message was a probe. */
	pr_relay_health(run.relay, &health);
	CHECK_INT(health.sinks_down, 1);
	CHECK(fclose(fopen("up", "w")) == 0);
	/* The only message of this hour. */
	put("small", 1);
	while (rows("delivered") < 1)
		nap();
	stop();
	CHECK_INT(loads.count, 1);
}

TEST(A5_lease_is_renewed_after_a_slow_load)
{
	struct pr_relay_config config = rig_config();

	put_large();
	config.to = "exec:echo >> begun";
	config.workers = 1;
	config.lease_ms = LEASE_MS;
	config.publish_timeout_ms = 5500;
	loads.takes_ms = LOAD_MS;
	start(config);
	/* Without a renewal the publish does not begin, and the message is loaded again. */
	while (rows("delivered") < 1 && loads.count < 3)
		nap();
	stop();
	CHECK_INT(loads.count, 1);
	CHECK_INT(lines_in("begun"), 1);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 1);
}
