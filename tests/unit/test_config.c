/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "config/config.h"

#include <stdlib.h>

struct options {
	const char *topic;
	int64_t workers;
	int64_t retention_ms;
	int64_t dead_retention_ms;
	struct pr_param_list labels;
};

static const struct pr_param params[] = {
	{ .name = "topic", .type = PR_PARAM_STRING, .offset = offsetof(struct options, topic) },
	{ .name = "workers",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct options, workers),
	  .fallback = "2",
	  .min = 1,
	  .max = 256 },
	{ .name = "retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = offsetof(struct options, retention_ms),
	  .fallback = "7d" },
	{ .name = "dead-retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = offsetof(struct options, dead_retention_ms),
	  .fallback = "never" },
	{ .name = "label", .type = PR_PARAM_LIST, .offset = offsetof(struct options, labels) },
	{ 0 },
};

static const char plain[] = "sinks: { out: { url: 'null:' } }\nroutes: [ { sink: out } ]\n";

static void write_file(const char *text)
{
	FILE *file = fopen("c.yaml", "w");

	CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int load(struct options *options, struct pr_config **ret, struct pr_err *err)
{
	const struct pr_config_input input = { .file = "c.yaml",
					       .params = params,
					       .target = options };
	struct pr_faults faults = { 0 };
	int status = pr_config_load(&input, ret, &faults, err);

	pr_faults_release(&faults);
	return status;
}

static struct pr_config *load_text(const char *text, struct options *options)
{
	struct pr_config *config = NULL;
	struct pr_err err = { 0 };

	write_file(text);
	CHECK_MSG(load(options, &config, &err) == POSTROOM_OK, "%s", err.text);
	return config;
}

TEST(D7_a_configuration_can_be_loaded_again_while_the_old_one_is_in_use)
{
	struct options old_options, new_options;
	struct pr_config *old, *new;

	old = load_text("relay: { topic: old, workers: 3 }\n"
			"sinks: { out: { url: 'file:a', sync: no } }\nroutes: [ { sink: out } ]\n",
			&old_options);
	new = load_text("relay: { topic: new }\nretention: { delivered: never, dead: 1s }\n"
			"sinks: { out: { url: 'file:b' } }\nroutes: [ { sink: out } ]\n",
			&new_options);
	CHECK_STR(old_options.topic, "old");
	CHECK_INT(old_options.workers, 3);
	CHECK_STR(old->sinks[0].url, "file:a");
	CHECK_INT(old->sinks[0].setting_count, 1);
	pr_config_free(old);
	CHECK_STR(new_options.topic, "new");
	CHECK_INT(new_options.workers, 2);
	CHECK_INT(new_options.retention_ms, -1);
	CHECK_INT(new_options.dead_retention_ms, 1000);
	CHECK_STR(new->sinks[0].url, "file:b");
	CHECK_INT(new->sinks[0].setting_count, 0);
	pr_config_free(new);
}

TEST(D7_invalid_file_leaks_nothing)
{
	struct options options;
	struct pr_config *config = NULL;
	struct pr_err err = { 0 };

	write_file("relay: { workres: 3 }\nretention: { dead: 1 }\n");
	CHECK_INT(load(&options, &config, &err), POSTROOM_INVALID);
	CHECK(!config);
	CHECK_STR(err.text, "c.yaml:1: relay.workres: unknown; did you mean workers? (and 1 more)");
}

TEST(G1_sinks_and_routes_are_complete)
{
	struct options options;
	struct pr_config *config;

	setenv("POSTROOM_SINKS_BUS_SYNC", "yes", 1);
	config = load_text("sinks:\n"
			   "  bus: { url: 'file:x?sync=no', concurrency: 7, rate: 90/m }\n"
			   "  all: { url: 'null:', rate: 36/h }\n"
			   "  few: { url: 'null:', rate: 0.5 }\n"
			   "routes:\n"
			   "  - { namespace: shop, topic: 'orders.*', sink: bus }\n"
			   "  - { sink: all }\n",
			   &options);
	CHECK_INT(config->sink_count, 3);
	CHECK_STR(config->sinks[0].name, "bus");
	CHECK_INT(config->sinks[0].concurrency, 7);
	CHECK(config->sinks[0].rate > 1.49 && config->sinks[0].rate < 1.51);
	CHECK_INT(config->sinks[0].setting_count, 1);
	CHECK_STR(config->sinks[0].settings[0].name, "sync");
	CHECK_STR(config->sinks[0].settings[0].value, "yes");
	CHECK_INT(config->sinks[1].concurrency, 0);
	CHECK(config->sinks[1].rate > 0.0099 && config->sinks[1].rate < 0.0101);
	CHECK(config->sinks[2].rate > 0.49 && config->sinks[2].rate < 0.51);
	CHECK_INT(config->route_count, 2);
	CHECK_STR(config->routes[0].ns, "shop");
	CHECK_STR(config->routes[0].topic, "orders.*");
	CHECK_INT(config->routes[0].sink, 0);
	CHECK(!config->routes[1].ns && !config->routes[1].topic);
	CHECK_INT(config->routes[1].sink, 1);
	pr_config_free(config);
}

TEST(G1_rates_are_checked)
{
	static const char *const wrong[] = { "0",     "-1",  "5/d",  "/s",    "1e9",	    "inf",
					     "1.2.3", "0x5", "5 /s", "5/s/s", "99999999999" };
	char text[200];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct options options;
		struct pr_config *config = NULL;
		struct pr_err err = { 0 };

		snprintf(text, sizeof(text),
			 "sinks: { a: { url: 'null:', rate: '%s' } }\nroutes: [ { sink: a } ]\n",
			 wrong[i]);
		write_file(text);
		CHECK_MSG(load(&options, &config, &err) == POSTROOM_INVALID, "%s", wrong[i]);
		CHECK_CONTAINS(err.text, "c.yaml:1: sinks.a.rate takes a rate");
	}
}

TEST(G1_late_fault_names_the_given_value)
{
	struct options options;
	struct pr_faults faults = { 0 };
	char text[300];
	struct pr_config *config;

	snprintf(text, sizeof(text), "%srelay:\n  workers: 3\n", plain);
	config = load_text(text, &options);
	pr_config_blame(config, "workers 3 are too many for topic", &faults);
	pr_config_blame(config, "topic is too long for workers", &faults);
	pr_config_blame(config, "topic is too long", &faults);
	CHECK_STR(pr_buf_text(&faults.text),
		  "c.yaml:4: relay.workers 3 are too many for topic\n"
		  "c.yaml:4: relay.workers: topic is too long for workers\n"
		  "topic is too long\n");
	pr_faults_release(&faults);
	pr_config_free(config);
}

TEST(G1_repeatable_option_accepts_a_list)
{
	struct options options;
	struct pr_buf shown = { 0 };
	char text[300];
	struct pr_config *config;

	setenv("SECOND", "two", 1);
	snprintf(text, sizeof(text), "%srelay:\n  label: [ one, '${SECOND}', three ]\n", plain);
	config = load_text(text, &options);
	CHECK_INT(options.labels.count, 3);
	CHECK_STR(options.labels.items[0], "one");
	CHECK_STR(options.labels.items[1], "two");
	pr_config_put_yaml(config, &options, &shown);
	CHECK_CONTAINS(pr_buf_text(&shown), "\n  label: [one, \"***\", three]  # c.yaml:4\n");
	pr_buf_reset(&shown);
	pr_config_put_json(config, &options, &shown);
	CHECK_CONTAINS(pr_buf_text(&shown), "\"label\":[\"one\",\"***\",\"three\"]}");
	pr_buf_release(&shown);
	pr_config_free(config);

	snprintf(text, sizeof(text), "%srelay: { label: one }\n", plain);
	config = load_text(text, &options);
	CHECK_INT(options.labels.count, 1);
	pr_config_free(config);
}
