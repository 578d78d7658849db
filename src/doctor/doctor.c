/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/doctor.h"

#include "base/time.h"
#include "relay/route.h"

#include <stdlib.h>

/* After this, checks that have not begun are skipped. */
#define TOTAL_US ((int64_t)30 * 1000 * 1000)
#define ANSWER_MS 10000
#define BUSY_WAIT_MS 500

static void inspect(struct postroom_store *store, const struct pr_doctor_config *config,
		    struct pr_checkup *checkup)
{
	const struct pr_relay_config *relay = config->relay;
	const struct pr_inspection inspection = {
		.patience_ms = config->patience_ms ? config->patience_ms : PR_DOCTOR_PATIENCE_MS,
		.retention_ms = relay->retention_ms,
		.inbox_retention_ms = relay->inbox_retention_ms,
		.dedupe_retention_ms = relay->dedupe_retention_ms,
		.workers = relay->workers,
		.scope = &relay->scope,
		.fixed = config->fixed,
		.context = config->fixed_context,
	};
	struct pr_err err = { 0 };

	if (pr_store_inspect(store, &inspection, checkup, &err) >= 0)
		return;
	if (!pr_check_begin(checkup, "database", "The database can be reached"))
		return;
	pr_store_explain_failure(relay->url, &err, checkup);
	pr_check_end(checkup);
}

static void check_database(const struct pr_doctor_config *config, struct pr_checkup *checkup)
{
	const struct pr_relay_config *relay = config->relay;
	struct pr_rule *rules = calloc(relay->route_count + 1, sizeof(*rules));
	struct pr_store_config store_config = {
		.url = relay->url,
		.schema = relay->schema,
		.busy_wait_ms = BUSY_WAIT_MS,
		.answer_ms = config->fixed ? 0 : ANSWER_MS,
		.until_us = pr_mono_us() + ANSWER_MS * 1000,
		.stop = config->stop,
	};
	struct postroom_store *store = NULL;
	struct pr_err err = { 0 };

	pr_store_inspect_file(relay->url, checkup);
	if (rules && relay->route_count > 0)
		pr_route_rules(relay->routes, relay->route_count, PR_ROUTE_ANY, rules,
			       &store_config.rules);
	if (pr_check_begin(checkup, "database", "The database can be reached")) {
		if (pr_store_open(&store_config, &store, &err) < 0)
			pr_store_explain_failure(relay->url, &err, checkup);
		else
			store->until_us = 0;
		pr_check_end(checkup);
	}
	if (store)
		inspect(store, config, checkup);
	pr_store_close(store);
	free(rules);
}

void pr_doctor_run(const struct pr_doctor_config *config, pr_finding_fn fn, void *context)
{
	struct pr_checkup checkup = { .fn = fn, .context = context, .stop = config->stop };

	if (!config->fixed)
		checkup.until_us = pr_mono_us() + TOTAL_US;
	pr_doctor_check_config(config, &checkup);
	if (!config->config_only && config->relay) {
		check_database(config, &checkup);
		pr_doctor_check_sinks(config->relay, &checkup);
	}
	pr_checkup_release(&checkup);
}
