/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "config/config.h"

#include <sys/mman.h>
#include <unistd.h>

struct options {
	const char *topic;
	int64_t workers;
	int64_t lease_ms;
	int64_t retention_ms;
};

static const struct pr_param params[] = {
	{ .name = "topic", .type = PR_PARAM_STRING, .offset = offsetof(struct options, topic) },
	{ .name = "workers",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct options, workers),
	  .fallback = "2",
	  .min = 1,
	  .max = 256 },
	{ .name = "lease",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct options, lease_ms) },
	{ .name = "retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = offsetof(struct options, retention_ms),
	  .fallback = "7d" },
	{ 0 },
};

/* The text as a file that the loader can open. */
static struct pr_config *load(const void *text, size_t size, struct options *options)
{
	struct pr_faults faults = { 0 };
	struct pr_err err = { 0 };
	struct pr_config *config = NULL;
	char path[40];
	int fd = memfd_create("config", 0), status;

	HOLDS(fd >= 0 && write(fd, text, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	const struct pr_config_input input = { .file = path, .params = params, .target = options };
	status = pr_config_load(&input, &config, &faults, &err);
	close(fd);
	if (status < 0) {
		HOLDS(status == POSTROOM_INVALID && !config);
		HOLDS(faults.count > 0 && strncmp(err.text, path, strlen(path)) == 0);
	} else {
		HOLDS(faults.count == 0 && options->workers >= 1 && options->workers <= 256);
		for (size_t i = 0; i < config->sink_count; i++)
			HOLDS(config->sinks[i].url && config->sinks[i].rate >= 0);
		for (size_t i = 0; i < config->route_count; i++)
			HOLDS(config->routes[i].sink < config->sink_count);
	}
	/* A line each, whatever the file says. */
	for (const char *c = pr_buf_text(&faults.text); *c; c++)
		HOLDS((unsigned char)*c >= 0x20 || *c == '\n');
	pr_faults_release(&faults);
	return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct options options, again_options;
	struct pr_config *config = load(data, size, &options), *again;
	struct pr_buf shown = { 0 }, json = { 0 };

	if (!config)
		return 0;
	pr_config_put_yaml(config, NULL, &shown);
	pr_config_put_json(config, NULL, &json);
	/* Stars for a password may make another URL of it; all else says the same. */
	if (!strstr(pr_buf_text(&shown), "***")) {
		again = load(shown.data, shown.len, &again_options);
		HOLDS(again && again_options.workers == options.workers &&
		      again_options.lease_ms == options.lease_ms &&
		      again_options.retention_ms == options.retention_ms);
		HOLDS(!options.topic == !again_options.topic);
		HOLDS(!options.topic || strcmp(options.topic, again_options.topic) == 0);
		HOLDS(again->sink_count == config->sink_count &&
		      again->route_count == config->route_count);
		for (size_t i = 0; i < config->sink_count; i++)
			HOLDS(strcmp(again->sinks[i].url, config->sinks[i].url) == 0);
		pr_config_free(again);
	}
	pr_buf_release(&shown);
	pr_buf_release(&json);
	pr_config_free(config);
	return 0;
}
